/* Row functions from the C library, until the vector ones are in the build. */
#include <math.h>
#include "base/half.h"
#include "kernels/kernels.h"
#define F(name, expr) static void f_##name(float *y, const float *x, int64_t n) { for (int64_t i = 0; i < n; i++) { float v = x[i]; y[i] = expr; } }
F(exp, expf(v)) F(erf, erff(v)) F(tanh, tanhf(v)) F(sigmoid, 1 / (1 + expf(-v)))
F(gelu, 0.5f * v * (1 + erff(v * 0.70710678f))) F(gelu_tanh, 0.5f * v * (1 + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)))) F(silu, v / (1 + expf(-v)))
static void f_softmax(float *y, const float *x, int64_t n) { float m = -INFINITY, s = 0; for (int64_t i = 0; i < n; i++) m = fmaxf(m, x[i]); for (int64_t i = 0; i < n; i++) s += y[i] = m == -INFINITY ? 0 : expf(x[i] - m); for (int64_t i = 0; i < n; i++) y[i] = m == -INFINITY ? 0 : y[i] / s; }
static void f_ln(float *y, const float *x, const float *sc, const float *b, int64_t n, float eps, float *mean, float *inv) { double m = 0, v = 0; for (int64_t i = 0; i < n; i++) m += x[i]; m /= n; for (int64_t i = 0; i < n; i++) v += (x[i] - m) * (x[i] - m); double r = 1 / sqrt(v / n + eps); for (int64_t i = 0; i < n; i++) y[i] = (x[i] - m) * r * (sc ? sc[i] : 1) + (b ? b[i] : 0); if (mean) *mean = m; if (inv) *inv = r; }
static void f_rms(float *y, const float *x, const float *sc, int64_t n, float eps) { double v = 0; for (int64_t i = 0; i < n; i++) v += (double) x[i] * x[i]; double r = 1 / sqrt(v / n + eps); for (int64_t i = 0; i < n; i++) y[i] = x[i] * r * sc[i]; }
#define C(name, T, U, fn) static void f_##name(T *y, const U *x, int64_t n) { for (int64_t i = 0; i < n; i++) y[i] = fn(x[i]); }
C(f32_from_f16, float, uint16_t, heed_f32_from_f16) C(f16_from_f32, uint16_t, float, heed_f16_from_f32) C(f32_from_bf16, float, uint16_t, heed_f32_from_bf16) C(bf16_from_f32, uint16_t, float, heed_bf16_from_f32)
__attribute__((weak)) const heed_row_kernels *heed_row_kernels_get(void) { static const heed_row_kernels k = { f_softmax, f_ln, f_rms, f_exp, f_erf, f_tanh, f_sigmoid, f_gelu, f_gelu_tanh, f_silu, f_f32_from_f16, f_f16_from_f32, f_f32_from_bf16, f_bf16_from_f32 }; return &k; }
