/* kernels/ref/storage.h - one element of a storage type, in plain C. */
#ifndef HEED_KERNELS_REF_STORAGE_H
#define HEED_KERNELS_REF_STORAGE_H

#include <stddef.h>

#include "base/dtype.h"
#include "base/half.h"

static inline float element_load(const void *base, heed_dtype dtype, ptrdiff_t i)
{
    if (dtype == HEED_F32) return ((const float *) base)[i];
    uint16_t h = ((const uint16_t *) base)[i];
    return dtype == HEED_F16 ? heed_f32_from_f16(h) : heed_f32_from_bf16(h);
}

static inline void element_store(void *base, heed_dtype dtype, ptrdiff_t i, float x)
{
    if (dtype == HEED_F32) ((float *) base)[i] = x;
    else ((uint16_t *) base)[i] = dtype == HEED_F16 ? heed_f16_from_f32(x) : heed_bf16_from_f32(x);
}

#endif
