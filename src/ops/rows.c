/* Row functions from the C library, until the vector ones are in the build. */
#include <math.h>

#include "base/half.h"
#include "ops/util.h"

static void row_exp(float *y, const float *x, int64_t n)
{
    for (int64_t k = 0; k < n; k++) y[k] = expf(x[k]);
}

static void row_erf(float *y, const float *x, int64_t n)
{
    for (int64_t k = 0; k < n; k++) y[k] = erff(x[k]);
}

static void row_tanh(float *y, const float *x, int64_t n)
{
    for (int64_t k = 0; k < n; k++) y[k] = tanhf(x[k]);
}

static void row_sigmoid(float *y, const float *x, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        float e = expf(-fabsf(x[k]));
        y[k] = (x[k] >= 0 ? 1 : e) / (1 + e);
    }
}

static void row_f32_from_f16(float *y, const uint16_t *x, int64_t n)
{
    for (int64_t k = 0; k < n; k++) y[k] = heed_f32_from_f16(x[k]);
}

static void row_f16_from_f32(uint16_t *y, const float *x, int64_t n)
{
    for (int64_t k = 0; k < n; k++) y[k] = heed_f16_from_f32(x[k]);
}

static void row_f32_from_bf16(float *y, const uint16_t *x, int64_t n)
{
    for (int64_t k = 0; k < n; k++) y[k] = heed_f32_from_bf16(x[k]);
}

static void row_bf16_from_f32(uint16_t *y, const float *x, int64_t n)
{
    for (int64_t k = 0; k < n; k++) y[k] = heed_bf16_from_f32(x[k]);
}

const heed_row_kernels *heed_ops_rows(void)
{
    static const heed_row_kernels rows = { .exp = row_exp,
                                           .erf = row_erf,
                                           .tanh = row_tanh,
                                           .sigmoid = row_sigmoid,
                                           .f32_from_f16 = row_f32_from_f16,
                                           .f16_from_f32 = row_f16_from_f32,
                                           .f32_from_bf16 = row_f32_from_bf16,
                                           .bf16_from_f32 = row_bf16_from_f32 };
    return &rows;
}
