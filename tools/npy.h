/* npy.h - NumPy's .npy format: one array behind a header that is a Python dict in text (versions 1 to 3).
 *
 * Read: C and Fortran order, little and big endian, the types of array.h. Everything in a header is taken as hostile.
 * Written: version 1, C order, as numpy.save does. bfloat16 has no NumPy type: it is "<V2", as ml_dtypes saves it.
 */
#ifndef HEED_TOOLS_NPY_H
#define HEED_TOOLS_NPY_H

#include "array.h"

/* Where the bytes come from. */
typedef struct heed_source {
    /* Up to n bytes into buf; how many, fewer only at the end, or -1 after heed_fault(). */
    int64_t (*read)(void *from, void *buf, size_t n);
    void *from;
    uint64_t bytes; /* how many there are at most, UINT64_MAX where that is not known */
} heed_source;

int heed_npy_read(heed_array *out, const heed_source *source);
int heed_npy_read_file(heed_array *out, const char *path);

enum { HEED_NPY_HEADER_BYTES = 320 };
/* The header for an array; its size, a multiple of 64. */
size_t heed_npy_header(char header[HEED_NPY_HEADER_BYTES], const heed_array *a);
int heed_npy_write_file(const char *path, const heed_array *a);

#endif
