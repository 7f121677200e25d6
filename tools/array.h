/* array.h - an array that the tools own: dense, row-major, in host byte order. What it can hold is what heed's tensors hold. */
#ifndef HEED_TOOLS_ARRAY_H
#define HEED_TOOLS_ARRAY_H

#include <heed/heed.h>
#include <stddef.h>
#include <stdint.h>

/* An element type and what the file formats call it. */
typedef struct heed_type {
    const char *name; /* "f32" */
    uint8_t code;     /* DLPack's */
    uint8_t bits;
    char npy[3]; /* "f4", as NumPy writes it after the byte order; bfloat16 is NumPy's raw "V2", as ml_dtypes saves it */
    int onnx;    /* TensorProto.DataType */
} heed_type;

const heed_type *heed_type_from_dl(DLDataType dtype); /* NULL if unknown, so below */
const heed_type *heed_type_from_npy(const char *npy);
const heed_type *heed_type_from_onnx(int onnx);
const heed_type *heed_type_from_name(const char *name);
const char *heed_type_name(DLDataType dtype); /* "?" if unknown */
int heed_type_is_float(const heed_type *type);

typedef struct heed_array {
    const heed_type *type; /* NULL: no array here */
    int ndim;
    int64_t shape[HEED_MAX_RANK];
    void *data; /* 64-byte aligned, owned; never NULL in an array, even without elements */
} heed_array;

/* Bytes of an array of this type and shape, SIZE_MAX where that overflows. */
size_t heed_array_bytes_of(const heed_type *type, int ndim, const int64_t *shape);
/* Make an array, its elements not set. */
int heed_array_create(heed_array *a, const heed_type *type, int ndim, const int64_t *shape);
/* Make a copy of a dense tensor. */
int heed_array_copy(heed_array *a, const DLTensor *from);
void heed_array_destroy(heed_array *a);

int64_t heed_array_count(const heed_array *a);
size_t heed_array_bytes(const heed_array *a);
/* The array as a DLTensor, valid while `a` stays where it is. */
DLTensor heed_array_view(const heed_array *a);
double heed_array_value(const heed_array *a, int64_t i);
void heed_array_set(heed_array *a, int64_t i, double value); /* rounds to the type; only for values in its range */

/* "[2, 7, 64]"; a dimension below 0 is written "?". Returns `text`. */
char *heed_shape_print(char *text, size_t bytes, int ndim, const int64_t *shape);
enum { HEED_SHAPE_TEXT = 24 * HEED_MAX_RANK };

typedef struct heed_summary {
    double min, mean, max; /* over the finite values, NaN without any */
    int64_t n_nan, n_inf;
} heed_summary;

heed_summary heed_array_summary(const heed_array *a);

typedef struct heed_difference {
    int ok;
    double max_abs;   /* NaN where a NaN or an infinity stands against something else, or type or shape differ */
    char reason[384]; /* what is wrong, "" if nothing */
} heed_difference;

/* Compare: same type and shape, and |x - ref| <= atol + rtol |ref| for each element; NaN equals NaN, inf equals inf. */
heed_difference heed_array_compare(const heed_array *x, const heed_array *ref, double atol, double rtol);

#endif
