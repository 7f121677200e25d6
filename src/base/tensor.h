/* base/tensor.h - an array in memory: type, shape, strides in elements, data. Plain data, owns nothing. */
#ifndef HEED_BASE_TENSOR_H
#define HEED_BASE_TENSOR_H

#include <stdint.h>

#include "base/dtype.h"
#include "base/status.h"

#define HEED_RANK_MAX 8

typedef struct heed_tensor {
    heed_dtype dtype;
    int rank;
    int64_t dims[HEED_RANK_MAX];
    int64_t strides[HEED_RANK_MAX]; /* in elements; may be 0 or negative */
    void *data;                     /* the element at index 0,0,.. ; may be NULL if there are no elements */
} heed_tensor;

/* Number of elements; 1 for a scalar. Dimensions are known and their product fits (heed_tensor_bytes checked it). */
int64_t heed_tensor_count(const heed_tensor *t);
/* Bytes of the dense form, SIZE_MAX on overflow. */
size_t heed_tensor_bytes(const heed_tensor *t);
/* Set row-major strides for the dims that are there. */
void heed_tensor_set_dense(heed_tensor *t);
/* 1 if the elements lie row-major without gaps (dimensions of size 1 do not matter). */
int heed_tensor_is_dense(const heed_tensor *t);
/* A dense tensor of this type and shape without data. */
heed_tensor heed_tensor_make(heed_dtype dtype, int rank, const int64_t *dims);
/* Copy elements between tensors of the same type and shape, any strides. dst and src do not overlap. */
void heed_tensor_copy(const heed_tensor *dst, const heed_tensor *src);

/* Read or write element number i, counted row-major, of an integer or bool tensor as int64. */
int64_t heed_tensor_int(const heed_tensor *t, int64_t i);
void heed_tensor_set_int(const heed_tensor *t, int64_t i, int64_t value);

/* Check and take over a DLTensor. `name` goes into the message. */
heed_status heed_tensor_from_dl(heed_tensor *t, const DLTensor *dl, const char *name);

#endif
