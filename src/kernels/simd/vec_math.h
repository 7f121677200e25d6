/* simd/vec_math.h - elementary functions in the words of the vocabulary. Polynomials are minimax fits of ours. */
#ifndef HEED_SIMD_VEC_MATH_H
#define HEED_SIMD_VEC_MATH_H

#include <math.h>

#include "kernels/simd/vec.h"

#define LOG2_E 1.44269502f

/* 2^f for |f| <= 0.5, relative error 9e-8, exactly 1 at 0. */
ALWAYS_INLINE V exp2_fraction(V f)
{
    V p = v_set1(0.00132647269f);
    p = v_fma(p, f, v_set1(0.00967151266f));
    p = v_fma(p, f, v_set1(0.0555073374f));
    p = v_fma(p, f, v_set1(0.240222421f));
    p = v_fma(p, f, v_set1(0.693146978f));
    return v_fma(p, f, v_set1(1.0f));
}

/* exp(x) for x <= 0: exactly 1 at 0, exactly 0 at -inf, NaN stays. What is below the normal numbers may become 0. */
ALWAYS_INLINE V v_exp_down(V x)
{
    x = v_max(v_set1(V_EXP_FLOOR), x);
    V n = v_round(v_mul(x, v_set1(LOG2_E)));
    return v_scale2_flush(exp2_fraction(v_fms(x, v_set1(LOG2_E), n)), n);
}

/* What is subtracted before exp: the maximum, or 0 while nothing but -inf was seen, so that exp gives 0 and not NaN. */
ALWAYS_INLINE V v_base(V maximum)
{
    return v_select(v_eq(maximum, v_set1(-INFINITY)), v_zero(), maximum);
}

/* exp(x) for any x, with subnormals and overflow, within 1.5 ulp: 2^n e^r, ln 2 in two parts so that r is exact enough
 * without fused operations too. */
ALWAYS_INLINE V v_exp(V x)
{
    V t = v_max(v_set1(-105.0f), x);
    t = v_select(v_lt(v_set1(90.0f), t), v_set1(90.0f), t);
    V n = v_round(v_mul(t, v_set1(LOG2_E)));
    V r = v_fma(n, v_set1(-1.42860677e-6f), v_fma(n, v_set1(-0.693145752f), t));
    V p = v_set1(0.00138142218f);
    p = v_fma(p, r, v_set1(0.00836889868f));
    p = v_fma(p, r, v_set1(0.0416684057f));
    p = v_fma(p, r, v_set1(0.166665191f));
    p = v_fma(p, r, v_set1(0.499999933f));
    return v_scale2(v_add(v_fma(v_mul(r, r), p, r), v_set1(1.0f)), n);
}

ALWAYS_INLINE V with_sign_of(V magnitude, V x)
{
    return v_select(v_lt(x, v_zero()), v_sub(v_zero(), magnitude), magnitude);
}

/* Within 2 ulp: a polynomial near 0, else 1 - 2 / (exp(2 |x|) + 1). */
ALWAYS_INLINE V v_tanh(V x)
{
    V a = v_abs(x), y = v_mul(x, x);
    V p = v_set1(-0.00570498743f);
    p = v_fma(p, y, v_set1(0.0206390877f));
    p = v_fma(p, y, v_set1(-0.0537397152f));
    p = v_fma(p, y, v_set1(0.133314422f));
    p = v_fma(p, y, v_set1(-0.333332819f));
    V near = v_fma(v_mul(x, y), p, x);
    V far = v_sub(v_set1(1.0f), v_div(v_set1(2.0f), v_add(v_exp(v_add(a, a)), v_set1(1.0f))));
    return v_select(v_lt(a, v_set1(0.625f)), near, with_sign_of(far, x));
}

/* erf(x) / x for |x| <= 1, from y = x^2. */
ALWAYS_INLINE V erf_near(V y)
{
    V p = v_set1(7.85389761e-05f);
    p = v_fma(p, y, v_set1(-0.000801020551f));
    p = v_fma(p, y, v_set1(0.00518832919f));
    p = v_fma(p, y, v_set1(-0.0268538128f));
    p = v_fma(p, y, v_set1(0.112835852f));
    p = v_fma(p, y, v_set1(-0.376126258f));
    return v_fma(p, y, v_set1(1.12837917f));
}

/* erfc(a) for a >= 1: exp(-a^2) times a polynomial in t = 1 / (1 + a / 2). */
ALWAYS_INLINE V erfc_far(V a)
{
    V t = v_div(v_set1(1.0f), v_fma(v_set1(0.5f), a, v_set1(1.0f)));
    V p = v_set1(0.094375826f);
    p = v_fma(p, t, v_set1(-0.228903351f));
    p = v_fma(p, t, v_set1(0.0857552776f));
    p = v_fma(p, t, v_set1(0.0587803868f));
    p = v_fma(p, t, v_set1(0.179654115f));
    p = v_fma(p, t, v_set1(0.246764297f));
    p = v_fma(p, t, v_set1(0.282064026f));
    p = v_fma(p, t, v_set1(0.282097172f));
    return v_mul(v_mul(p, t), v_exp(v_sub(v_zero(), v_mul(a, a))));
}

ALWAYS_INLINE V v_erf(V x)
{
    V a = v_abs(x);
    V near = v_mul(x, erf_near(v_mul(x, x)));
    return v_select(v_lt(a, v_set1(1.0f)), near, with_sign_of(v_sub(v_set1(1.0f), erfc_far(a)), x));
}

ALWAYS_INLINE V v_sigmoid(V x)
{
    return v_div(v_set1(1.0f), v_add(v_set1(1.0f), v_exp(v_sub(v_zero(), x))));
}

/* 0.5 x (1 + erf(x / sqrt 2)); the left tail through erfc, without cancellation. */
ALWAYS_INLINE V v_gelu(V x)
{
    V z = v_mul(x, v_set1(0.707106781f)), a = v_abs(z), half = v_mul(v_set1(0.5f), x);
    V near = v_fma(half, v_mul(z, erf_near(v_mul(z, z))), half);
    V tail = erfc_far(a);
    V far = v_mul(half, v_select(v_lt(x, v_zero()), tail, v_sub(v_set1(2.0f), tail)));
    return v_select(v_lt(a, v_set1(1.0f)), near, far);
}

/* 0.5 x (1 + tanh(u)) = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3). */
ALWAYS_INLINE V v_gelu_tanh(V x)
{
    V u = v_mul(v_mul(v_set1(0.797884561f), x), v_fma(v_mul(v_set1(0.044715f), x), x, v_set1(1.0f)));
    return v_mul(x, v_sigmoid(v_add(u, u)));
}

ALWAYS_INLINE V v_silu(V x)
{
    return v_mul(x, v_sigmoid(x));
}

#endif
