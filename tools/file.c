/* Files: reading, and writing by temporary name and rename. */
#include "file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fault.h"

FILE *heed_file_open(const char *path, uint64_t *bytes)
{
    FILE *f = fopen(path, "rb");
    struct stat st;
    if (!f || fstat(fileno(f), &st) != 0) {
        heed_fault("%s: %s", path, strerror(errno));
    } else if (S_ISDIR(st.st_mode)) {
        heed_fault("%s: is a folder, expected a file", path);
    } else {
        *bytes = S_ISREG(st.st_mode) ? (uint64_t) st.st_size : UINT64_MAX;
        return f;
    }
    if (f) fclose(f);
    return NULL;
}

int heed_file_read(const char *path, void **data, size_t *bytes)
{
    uint64_t size;
    FILE *f = heed_file_open(path, &size);
    if (!f) return -1;
    size_t room = size < 1 << 30 ? (size_t) size + 1 : 4096, n = 0, got;
    char *text = heed_must_alloc(room);
    while ((got = fread(text + n, 1, room - n, f)) > 0) {
        n += got;
        if (n == room) text = heed_must_grow(text, room *= 2);
    }
    int failed = ferror(f);
    if (failed) heed_fault("%s: %s", path, strerror(errno));
    fclose(f);
    if (failed) free(text);
    else *data = text, *bytes = n;
    return failed ? -1 : 0;
}

int heed_file_is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

int heed_file_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash) return heed_must_copy(".");
    return slash == path ? heed_must_copy("/") : heed_must_print("%.*s", (int) (slash - path), path);
}

int heed_file_check_writable(const char *path)
{
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return heed_fault("%s: is %s, expected a name for a file", path, S_ISDIR(st.st_mode) ? "a folder" : "a device or pipe");
    char *folder = folder_of(path);
    int rc = access(folder, W_OK | X_OK);
    if (rc != 0) heed_fault("%s: cannot write: %s", path, strerror(errno));
    free(folder);
    return rc;
}

int heed_new_file_open(heed_new_file *file, const char *path)
{
    *file = (heed_new_file){ 0 };
    if (heed_file_check_writable(path) != 0) return -1;
    file->path = heed_must_copy(path);
    file->temporary = heed_must_print("%s.XXXXXX", path);
    int fd = mkstemp(file->temporary);
    if (fd >= 0) {
        mode_t mask = umask(0);
        umask(mask);
        fchmod(fd, 0666 & ~mask); /* what a new file has; mkstemp is stricter */
        file->stream = fdopen(fd, "wb");
    }
    if (file->stream) return 0;
    heed_fault("%s: cannot write: %s", path, strerror(errno));
    if (fd >= 0) close(fd), unlink(file->temporary);
    free(file->path), free(file->temporary);
    return -1;
}

static void note_failure(heed_new_file *file, int failed)
{
    if (failed && !file->why) file->why = errno ? errno : EIO;
}

void heed_new_file_write(heed_new_file *file, const void *data, size_t bytes)
{
    errno = 0;
    note_failure(file, fwrite(data, 1, bytes, file->stream) != bytes);
}

int heed_new_file_keep(heed_new_file *file)
{
    errno = 0;
    note_failure(file, fclose(file->stream) != 0);
    if (!file->why) note_failure(file, rename(file->temporary, file->path) != 0);
    if (file->why) {
        unlink(file->temporary);
        heed_fault("%s: cannot write: %s", file->path, strerror(file->why));
    }
    free(file->path), free(file->temporary);
    return file->why ? -1 : 0;
}
