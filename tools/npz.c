/* Reading and writing .npz through libzip. Sizes that an archive claims are held against what its bytes can hold. */
#include "npz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zip.h>

#include "fault.h"
#include "file.h"
#include "npy.h"

/* Deflate packs at most 1032 bytes into one. */
enum { MAX_RATIO = 1032 };

struct heed_npz {
    zip_t *zip;
    char *path, *key;
    uint64_t bytes; /* of the archive */
};

int heed_npz_open(heed_npz **out, const char *path)
{
    *out = NULL;
    uint64_t bytes;
    FILE *f = heed_file_open(path, &bytes); /* says in plain words what libzip says by number */
    if (!f) return -1;
    fclose(f);
    int code = 0;
    zip_t *zip = zip_open(path, ZIP_RDONLY, &code);
    if (!zip) {
        zip_error_t error;
        zip_error_init_with_code(&error, code);
        heed_fault("%s: not an npz file: %s", path, zip_error_strerror(&error));
        zip_error_fini(&error);
        return -1;
    }
    heed_npz *npz = heed_must_alloc(sizeof *npz);
    *npz = (heed_npz){ .zip = zip, .path = heed_must_copy(path), .bytes = bytes };
    *out = npz;
    return 0;
}

void heed_npz_close(heed_npz *npz)
{
    if (!npz) return;
    zip_discard(npz->zip);
    free(npz->path), free(npz->key), free(npz);
}

const char *heed_npz_key(heed_npz *npz, int i)
{
    const char *name = i < zip_get_num_entries(npz->zip, 0) ? zip_get_name(npz->zip, (zip_uint64_t) i, 0) : NULL;
    free(npz->key);
    npz->key = name ? heed_must_copy(name) : NULL;
    size_t n = name ? strlen(name) : 0;
    if (n > 4 && strcmp(name + n - 4, ".npy") == 0) npz->key[n - 4] = 0;
    return npz->key;
}

static int64_t read_member(void *from, void *buf, size_t n)
{
    size_t got = 0;
    while (got < n) { /* libzip may give less than asked for */
        zip_int64_t more = zip_fread(from, (char *) buf + got, n - got);
        if (more < 0) return heed_fault("%s", zip_file_strerror(from));
        if (more == 0) break;
        got += (size_t) more;
    }
    return (int64_t) got;
}

static int read_entry(heed_npz *npz, zip_uint64_t entry, heed_array *out)
{
    zip_stat_t st;
    zip_stat_init(&st);
    if (zip_stat_index(npz->zip, entry, 0, &st) != 0) return heed_fault("%s", zip_strerror(npz->zip));
    const zip_uint64_t wanted = ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE;
    if ((st.valid & wanted) != wanted) return heed_fault("the archive does not say how large it is");
    if (st.comp_size > npz->bytes || st.size / MAX_RATIO > st.comp_size)
        return heed_fault("claims %llu bytes packed into %llu, in an archive of %llu", (unsigned long long) st.size,
                          (unsigned long long) st.comp_size, (unsigned long long) npz->bytes);
    zip_file_t *member = zip_fopen_index(npz->zip, entry, 0);
    if (!member) return heed_fault("%s", zip_strerror(npz->zip));
    int rc = heed_npy_read(out, &(heed_source){ read_member, member, st.size });
    zip_fclose(member);
    return rc;
}

int heed_npz_read(heed_npz *npz, const char *key, heed_array *out)
{
    *out = (heed_array){ 0 };
    char *name = heed_must_print("%s.npy", key);
    zip_int64_t entry = zip_name_locate(npz->zip, name, 0);
    if (entry < 0) entry = zip_name_locate(npz->zip, key, 0);
    free(name);
    if (entry < 0) return 0;
    if (read_entry(npz, (zip_uint64_t) entry, out) == 0) return 1;
    return heed_fault_prefix("%s: %s: ", npz->path, key);
}

/* One member: header and data as they lie, stored, dated 1980-01-01 so that the same arrays give the same bytes. */
static int add_member(zip_t *zip, const char *key, const heed_array *a, char *header)
{
    zip_buffer_fragment_t parts[2] = { { (zip_uint8_t *) header, heed_npy_header(header, a) }, { a->data, heed_array_bytes(a) } };
    zip_source_t *source = zip_source_buffer_fragment(zip, parts, 2, 0);
    if (!source) return -1;
    char *name = heed_must_print("%s.npy", key);
    zip_int64_t entry = zip_file_add(zip, name, source, ZIP_FL_ENC_UTF_8);
    free(name);
    if (entry < 0) {
        zip_source_free(source);
        return -1;
    }
    if (zip_set_file_compression(zip, (zip_uint64_t) entry, ZIP_CM_STORE, 0) != 0) return -1;
    return zip_file_set_dostime(zip, (zip_uint64_t) entry, 0, 1 << 5 | 1, 0);
}

int heed_npz_write(const char *path, int n, const char *const *names, const heed_array *arrays)
{
    if (heed_file_check_writable(path) != 0) return -1;
    zip_error_t error;
    zip_error_init(&error);
    zip_source_t *file = zip_source_file_create(path, 0, -1, &error);
    zip_t *zip = file ? zip_open_from_source(file, ZIP_CREATE | ZIP_TRUNCATE, &error) : NULL;
    if (!zip) {
        heed_fault("%s: cannot write: %s", path, zip_error_strerror(&error));
        zip_source_free(file);
        zip_error_fini(&error);
        return -1;
    }
    char(*headers)[HEED_NPY_HEADER_BYTES] = heed_must_alloc((size_t) n * sizeof *headers);
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        rc = add_member(zip, names[i], &arrays[i], headers[i]);
        if (rc != 0) heed_fault("%s: cannot write '%s': %s", path, names[i], zip_strerror(zip));
    }
    /* libzip writes under a temporary name, renames at the end, and removes the temporary if that fails. */
    if (rc == 0 && (rc = zip_close(zip)) != 0) heed_fault("%s: cannot write: %s", path, zip_strerror(zip));
    if (rc != 0) zip_discard(zip);
    free(headers);
    return rc == 0 ? 0 : -1;
}
