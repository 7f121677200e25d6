/* Rows of plain f32: softmax, normalisations, elementary functions, and conversions of types. Compiled once per instruction
 * set. */
#include "kernels/kernels.h"
#include "kernels/simd/rows.h"
#include "kernels/simd/vec_math.h"

ALWAYS_INLINE V load_first(const float *p, int64_t n)
{
    return n >= VL ? v_load_f32(p) : v_loadn_f32(p, (int) n);
}

ALWAYS_INLINE void store_first(float *p, V a, int64_t n)
{
    if (n >= VL) v_store_f32(p, a);
    else v_storen_f32(p, a, (int) n);
}

/* Lanes past n replaced by x. */
ALWAYS_INLINE V only_first(V a, int64_t n, float x)
{
    return n >= VL ? a : v_select(v_lt(v_index(), v_set1((float) n)), a, v_set1(x));
}

ALWAYS_INLINE void map(float *y, const float *x, int64_t n, V (*f)(V))
{
    for (int64_t i = 0; i < n; i += VL) store_first(y + i, f(load_first(x + i, n - i)), n - i);
}

static void row_exp(float *y, const float *x, int64_t n)
{
    map(y, x, n, v_exp);
}

static void row_erf(float *y, const float *x, int64_t n)
{
    map(y, x, n, v_erf);
}

static void row_tanh(float *y, const float *x, int64_t n)
{
    map(y, x, n, v_tanh);
}

static void row_sigmoid(float *y, const float *x, int64_t n)
{
    map(y, x, n, v_sigmoid);
}

static void row_gelu(float *y, const float *x, int64_t n)
{
    map(y, x, n, v_gelu);
}

static void row_gelu_tanh(float *y, const float *x, int64_t n)
{
    map(y, x, n, v_gelu_tanh);
}

static void row_silu(float *y, const float *x, int64_t n)
{
    map(y, x, n, v_silu);
}

static void row_softmax(float *y, const float *x, int64_t n)
{
    V top = v_set1(-INFINITY), total = v_zero();
    for (int64_t i = 0; i < n; i += VL) top = v_max(only_first(load_first(x + i, n - i), n - i, -INFINITY), top);
    const V base = v_base(v_set1(v_hmax(top)));
    for (int64_t i = 0; i < n; i += VL) {
        V e = only_first(v_exp_down(v_sub(load_first(x + i, n - i), base)), n - i, 0);
        total = v_add(total, e);
        store_first(y + i, e, n - i);
    }
    const float sum = v_sum(total);
    const V factor = v_set1(sum == 0 ? 0.0f : 1.0f / sum);
    for (int64_t i = 0; i < n; i += VL) store_first(y + i, v_mul(load_first(y + i, n - i), factor), n - i);
}

static float mean_of(const float *x, int64_t n)
{
    V total = v_zero();
    for (int64_t i = 0; i < n; i += VL) total = v_add(total, load_first(x + i, n - i));
    return v_sum(total) / (float) n;
}

/* Mean of (x - centre)^2. */
static float mean_square(const float *x, int64_t n, float centre)
{
    V total = v_zero();
    for (int64_t i = 0; i < n; i += VL) {
        V d = only_first(v_sub(load_first(x + i, n - i), v_set1(centre)), n - i, 0);
        total = v_fma(d, d, total);
    }
    return v_sum(total) / (float) n;
}

static void row_layer_norm(float *y, const float *x, const float *scale, const float *bias, int64_t n, float epsilon, float *mean,
                           float *inv_std)
{
    const float centre = mean_of(x, n), factor = 1.0f / sqrtf(mean_square(x, n, centre) + epsilon);
    for (int64_t i = 0; i < n; i += VL) {
        V a = v_mul(v_sub(load_first(x + i, n - i), v_set1(centre)), v_set1(factor));
        if (scale) a = v_mul(a, load_first(scale + i, n - i));
        if (bias) a = v_add(a, load_first(bias + i, n - i));
        store_first(y + i, a, n - i);
    }
    if (mean) *mean = centre;
    if (inv_std) *inv_std = factor;
}

static void row_rms_norm(float *y, const float *x, const float *scale, int64_t n, float epsilon)
{
    const V factor = v_set1(1.0f / sqrtf(mean_square(x, n, 0) + epsilon));
    for (int64_t i = 0; i < n; i += VL) {
        V a = v_mul(load_first(x + i, n - i), factor);
        if (scale) a = v_mul(a, load_first(scale + i, n - i));
        store_first(y + i, a, n - i);
    }
}

static void row_f32_from_f16(float *y, const uint16_t *x, int64_t n)
{
    int64_t i = 0;
    for (; i + VL <= n; i += VL) v_store_f32(y + i, v_load_f16(x + i));
    if (i < n) v_storen_f32(y + i, v_loadn_f16(x + i, (int) (n - i)), (int) (n - i));
}

static void row_f16_from_f32(uint16_t *y, const float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + VL <= n; i += VL) v_store_f16(y + i, v_load_f32(x + i));
    if (i < n) v_storen_f16(y + i, v_loadn_f32(x + i, (int) (n - i)), (int) (n - i));
}

static void row_f32_from_bf16(float *y, const uint16_t *x, int64_t n)
{
    int64_t i = 0;
    for (; i + VL <= n; i += VL) v_store_f32(y + i, v_load_bf16(x + i));
    if (i < n) v_storen_f32(y + i, v_loadn_bf16(x + i, (int) (n - i)), (int) (n - i));
}

static void row_bf16_from_f32(uint16_t *y, const float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + VL <= n; i += VL) v_store_bf16(y + i, v_load_f32(x + i));
    if (i < n) v_storen_bf16(y + i, v_loadn_f32(x + i, (int) (n - i)), (int) (n - i));
}

const heed_row_kernels HEED_SIMD_JOIN(heed_rows_, HEED_SIMD_ISA) = {
    .softmax = row_softmax,
    .layer_norm = row_layer_norm,
    .rms_norm = row_rms_norm,
    .exp = row_exp,
    .erf = row_erf,
    .tanh = row_tanh,
    .sigmoid = row_sigmoid,
    .gelu = row_gelu,
    .gelu_tanh = row_gelu_tanh,
    .silu = row_silu,
    .f32_from_f16 = row_f32_from_f16,
    .f16_from_f32 = row_f16_from_f32,
    .f32_from_bf16 = row_f32_from_bf16,
    .bf16_from_f32 = row_bf16_from_f32,
};
