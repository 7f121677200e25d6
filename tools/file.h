/* file.h - opening files to read, and writing them so that a name holds the whole of its content or what was there before. */
#ifndef HEED_TOOLS_FILE_H
#define HEED_TOOLS_FILE_H

#include <stdint.h>
#include <stdio.h>

/* Open to read; *bytes is the size, UINT64_MAX where only reading will tell (a pipe). NULL after heed_fault(). */
FILE *heed_file_open(const char *path, uint64_t *bytes);
/* The whole of a file; *data is malloc'ed. */
int heed_file_read(const char *path, void **data, size_t *bytes);

/* 1 if `path` is a folder. */
int heed_file_is_folder(const char *path);
/* 1 if there is something at `path`. */
int heed_file_exists(const char *path);

/* Can `path` be written? Asked before long work: its folder must be there and writable, and the name free or a plain file. */
int heed_file_check_writable(const char *path);

/* A file being written under a temporary name beside its own. */
typedef struct heed_new_file {
    FILE *stream;
    char *path, *temporary;
    int why; /* errno of the first failure, 0 so far */
} heed_new_file;

int heed_new_file_open(heed_new_file *file, const char *path);
/* A failure is kept for the end. */
void heed_new_file_write(heed_new_file *file, const void *data, size_t bytes);
/* Finish: give the file its name, or remove it if any write failed. */
int heed_new_file_keep(heed_new_file *file);

#endif
