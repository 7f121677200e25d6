/* Functions of one element without parameters: arithmetic, elementary functions, activations, tests for NaN and infinity. */
#include <math.h>

#include "kernels/kernels.h"
#include "ops/lines.h"

/* ---- functions without parameters ---- */

#define FLOATS(name, expr)                                                                                                       \
    HEED_LINE1(name##_f32, float, float, expr)                                                                                   \
    HEED_LINE1(name##_f64, double, double, expr)

#define FUNCTION(name, expr)                                                                                                     \
    FLOATS(name, expr)                                                                                                           \
    static heed_line_fn *const name##_lines[HEED_DTYPE_COUNT] = { HEED_FLOAT_TABLE(name) };

/* Through a vector kernel for f32; that serves the halves too. */
#define KERNEL_FUNCTION(name, expr)                                                                                              \
    HEED_LINE1(name##_f64, double, double, expr)                                                                                 \
    static void name##_f32(char *const *at, const int64_t *steps, int64_t n)                                                     \
    {                                                                                                                            \
        float *y = (float *) at[0];                                                                                              \
        if (steps[1] != 4) heed_cast_line(HEED_F32, y, 4, HEED_F32, at[1], steps[1], n);                                         \
        heed_row_kernels_get()->name(y, steps[1] == 4 ? (const float *) at[1] : y, n);                                           \
    }                                                                                                                            \
    static heed_line_fn *const name##_lines[HEED_DTYPE_COUNT] = { HEED_FLOAT_TABLE(name) };

static inline double sigmoid_of(double x)
{
    double e = exp(-fabs(x)); /* never overflows */
    return x >= 0 ? 1 / (1 + e) : e / (1 + e);
}

static inline double softplus_of(double x)
{
    return fmax(x, 0) + log1p(exp(-fabs(x)));
}

KERNEL_FUNCTION(exp, exp(x))
KERNEL_FUNCTION(erf, erf(x))
KERNEL_FUNCTION(tanh, tanh(x))
KERNEL_FUNCTION(sigmoid, sigmoid_of(x))

#define MATH(name) sizeof x == 4 ? name##f((float) x) : name(x)
FUNCTION(floor, MATH(floor))
FUNCTION(ceil, MATH(ceil))
FUNCTION(round, MATH(rint)) /* half to even, the default rounding mode */
FUNCTION(sqrt, MATH(sqrt))
FUNCTION(log, MATH(log))
FUNCTION(sin, MATH(sin))
FUNCTION(cos, MATH(cos))
FUNCTION(tan, MATH(tan))
FUNCTION(asin, MATH(asin))
FUNCTION(acos, MATH(acos))
FUNCTION(atan, MATH(atan))
FUNCTION(sinh, MATH(sinh))
FUNCTION(cosh, MATH(cosh))
FUNCTION(asinh, MATH(asinh))
FUNCTION(acosh, MATH(acosh))
FUNCTION(atanh, MATH(atanh))
FUNCTION(reciprocal, 1 / x)
FUNCTION(softplus, softplus_of(x))
FUNCTION(softsign, x / (1 + fabs(x)))
FUNCTION(hard_swish, x *fmin(fmax(x / 6 + 0.5, 0), 1))
FUNCTION(mish, x *tanh(softplus_of(x)))

#define WITH_INTS(name, float_expr, signed_expr, unsigned_expr)                                                                  \
    FLOATS(name, float_expr)                                                                                                     \
    HEED_SIGNED_LINES(HEED_LINE1, name, signed_expr)                                                                             \
    HEED_UNSIGNED_LINES(HEED_LINE1, name, unsigned_expr)                                                                         \
    static heed_line_fn *const name##_lines[HEED_DTYPE_COUNT] = { HEED_FLOAT_TABLE(name), HEED_SIGNED_TABLE(name),               \
                                                                  HEED_UNSIGNED_TABLE(name) };

WITH_INTS(neg, -x, 0 - (uint64_t) x, 0 - (uint64_t) x)
WITH_INTS(abs, fabs(x), x < 0 ? 0 - (uint64_t) x : (uint64_t) x, x)
WITH_INTS(sign, x > 0 ? 1 : x < 0 ? -1 : x, (x > 0) - (x < 0), x > 0)
WITH_INTS(relu, x<0 ? 0 : x, x> 0 ? x : 0, x)

HEED_LINE1(is_nan_f32, float, uint8_t, x != x)
HEED_LINE1(is_nan_f64, double, uint8_t, x != x)
static heed_line_fn *const is_nan_lines[HEED_DTYPE_COUNT] = { HEED_FLOAT_TABLE(is_nan) };

HEED_LINE1(is_inf_f32, float, uint8_t, x == INFINITY || x == -INFINITY)
HEED_LINE1(is_inf_f64, double, uint8_t, x == INFINITY || x == -INFINITY)
HEED_LINE1(is_pos_inf_f32, float, uint8_t, x == INFINITY)
HEED_LINE1(is_pos_inf_f64, double, uint8_t, x == INFINITY)
HEED_LINE1(is_neg_inf_f32, float, uint8_t, x == -INFINITY)
HEED_LINE1(is_neg_inf_f64, double, uint8_t, x == -INFINITY)
HEED_LINE1(never_f32, float, uint8_t, x != x && x == x)
HEED_LINE1(never_f64, double, uint8_t, x != x && x == x)
/* [positive][negative] */
static heed_line_fn *const is_inf_lines[2][2][HEED_DTYPE_COUNT] = {
    { { HEED_FLOAT_TABLE(never) }, { HEED_FLOAT_TABLE(is_neg_inf) } },
    { { HEED_FLOAT_TABLE(is_pos_inf) }, { HEED_FLOAT_TABLE(is_inf) } },
};

#define COMPUTE(name)                                                                                                            \
    static heed_status compute_##name(heed_compute *c)                                                                           \
    {                                                                                                                            \
        return heed_compute_lines(c, 1, name##_lines);                                                                           \
    }
COMPUTE(exp)
COMPUTE(erf)
COMPUTE(tanh)
COMPUTE(sigmoid)
COMPUTE(floor)
COMPUTE(ceil)
COMPUTE(round)
COMPUTE(sqrt)
COMPUTE(log)
COMPUTE(sin)
COMPUTE(cos)
COMPUTE(tan)
COMPUTE(asin)
COMPUTE(acos)
COMPUTE(atan)
COMPUTE(sinh)
COMPUTE(cosh)
COMPUTE(asinh)
COMPUTE(acosh)
COMPUTE(atanh)
COMPUTE(reciprocal)
COMPUTE(softplus)
COMPUTE(softsign)
COMPUTE(hard_swish)
COMPUTE(mish)
COMPUTE(neg)
COMPUTE(abs)
COMPUTE(sign)
COMPUTE(relu)
COMPUTE(is_nan)

static heed_status compute_is_inf(heed_compute *c)
{
    int positive = heed_node_int(c->node, "detect_positive", 1) != 0,
        negative = heed_node_int(c->node, "detect_negative", 1) != 0;
    return heed_compute_lines(c, 1, is_inf_lines[positive][negative]);
}

/* Entries of a shape: -a, and a where it is not negative. */
static heed_status map_ints(heed_infer *i, int negate)
{
    const int64_t *a;
    int n;
    HEED_TRY(heed_infer_same(i));
    if (i->out[0].dtype != HEED_I64 || i->out[0].rank < 0 || i->out[0].rank > 1 || !heed_infer_ints(i, 0, &a, &n)) return HEED_OK;
    int64_t *ints = heed_infer_new_ints(i, n);
    if (!ints) return heed_infer_memory(i);
    for (int k = 0; k < n; k++) {
        int64_t minus = heed_dims_sub(i->dims, 0, a[k]);
        if (negate) ints[k] = minus;
        else if (heed_infer_not_negative(i, a[k])) ints[k] = a[k];
        else ints[k] = heed_infer_not_negative(i, minus) ? minus : HEED_DIM_UNKNOWN;
    }
    return heed_infer_set_ints(i, 0, i->out[0].rank, ints, n);
}

static heed_status infer_neg(heed_infer *i)
{
    return map_ints(i, 1);
}

static heed_status infer_abs(heed_infer *i)
{
    return map_ints(i, 0);
}

static heed_status infer_truth(heed_infer *i)
{
    HEED_TRY(heed_infer_same(i));
    i->out[0].dtype = HEED_BOOL;
    return HEED_OK;
}

#define ONE(op, since, name)                                                                                                     \
    HEED_OP(op, since, 1, 1, 1, .flags = HEED_OP_STRIDED | HEED_OP_INPLACE, .infer = heed_infer_same, .compute = compute_##name)

const heed_op heed_ops_unary[] = {
    ONE("Exp", 6, exp),
    ONE("Erf", 9, erf),
    ONE("Tanh", 6, tanh),
    ONE("Sigmoid", 6, sigmoid),
    ONE("Floor", 6, floor),
    ONE("Ceil", 6, ceil),
    ONE("Round", 11, round),
    ONE("Sqrt", 6, sqrt),
    ONE("Log", 6, log),
    ONE("Sin", 7, sin),
    ONE("Cos", 7, cos),
    ONE("Tan", 7, tan),
    ONE("Asin", 7, asin),
    ONE("Acos", 7, acos),
    ONE("Atan", 7, atan),
    ONE("Sinh", 9, sinh),
    ONE("Cosh", 9, cosh),
    ONE("Asinh", 9, asinh),
    ONE("Acosh", 9, acosh),
    ONE("Atanh", 9, atanh),
    ONE("Reciprocal", 6, reciprocal),
    ONE("Softplus", 1, softplus),
    ONE("Softsign", 1, softsign),
    ONE("HardSwish", 14, hard_swish),
    ONE("Mish", 18, mish),
    ONE("Sign", 9, sign),
    ONE("Relu", 6, relu),
    HEED_OP("Neg", 6, 1, 1, 1, .flags = HEED_OP_STRIDED | HEED_OP_INPLACE, .infer = infer_neg, .compute = compute_neg),
    HEED_OP("Abs", 6, 1, 1, 1, .flags = HEED_OP_STRIDED | HEED_OP_INPLACE, .infer = infer_abs, .compute = compute_abs),
    HEED_OP("IsNaN", 9, 1, 1, 1, .flags = HEED_OP_STRIDED, .infer = infer_truth, .compute = compute_is_nan),
    HEED_OP("IsInf", 10, 1, 1, 1, .flags = HEED_OP_STRIDED, .infer = infer_truth, .compute = compute_is_inf),
    { 0 },
};
