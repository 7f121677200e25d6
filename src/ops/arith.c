/* Arithmetic of two inputs, or more: Add, Sub, Mul, Div, Mod, Pow, Min, Max, Sum, Mean, PRelu.
 *
 * Integers wrap. An integer divided by zero gives 0, and so does its remainder: ONNX leaves both open, and a file must not be
 * able to stop the program.
 */
#include <math.h>
#include <string.h>

#include "ops/lines.h"

#define WRAP(op) (uint64_t) x op(uint64_t) y
#define ARITH(name, float_expr, signed_expr, unsigned_expr)                                                                      \
    HEED_LINE2(name##_f32, float, float, float_expr)                                                                             \
    HEED_LINE2(name##_f64, double, double, float_expr)                                                                           \
    HEED_SIGNED_LINES(HEED_LINE2, name, signed_expr)                                                                             \
    HEED_UNSIGNED_LINES(HEED_LINE2, name, unsigned_expr)                                                                         \
    static heed_line_fn *const name##_lines[HEED_DTYPE_COUNT] = { HEED_FLOAT_TABLE(name), HEED_SIGNED_TABLE(name),               \
                                                                  HEED_UNSIGNED_TABLE(name) };

/* -1 apart: the smallest integer divided by it overflows. */
#define DIV_SIGNED (y == 0 ? 0 : y == -1 ? 0 - (uint64_t) x : (uint64_t) (x / y))
/* The remainder has the sign of the divisor (as in Python), or with fmod that of the dividend. */
#define MOD_SIGNED (y == 0 || y == -1 ? 0 : x % y != 0 && (x % y < 0) != (y < 0) ? x % y + y : x % y)

static inline double mod_float(double x, double y)
{
    double r = fmod(x, y);
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

ARITH(add, x + y, WRAP(+), WRAP(+))
ARITH(sub, x - y, WRAP(-), WRAP(-))
ARITH(mul, x *y, WRAP(*), WRAP(*))
ARITH(div, x / y, DIV_SIGNED, y == 0 ? 0 : x / y)
ARITH(mod, mod_float(x, y), MOD_SIGNED, y == 0 ? 0 : x % y)
ARITH(fmod, fmod(x, y), y == 0 || y == -1 ? 0 : x % y, y == 0 ? 0 : x % y)
/* NaN wins. */
ARITH(min, x < y || x != x ? x : y, x < y ? x : y, x < y ? x : y)
ARITH(max, x > y || x != x ? x : y, x > y ? x : y, x > y ? x : y)

HEED_LINE2(prelu_f32, float, float, x < 0 ? x * y : x)
HEED_LINE2(prelu_f64, double, double, x < 0 ? x * y : x)
HEED_SIGNED_LINES(HEED_LINE2, prelu, x < 0 ? (uint64_t) x * (uint64_t) y : (uint64_t) x)
static heed_line_fn *const prelu_lines[HEED_DTYPE_COUNT] = { HEED_FLOAT_TABLE(prelu), HEED_SIGNED_TABLE(prelu) };

heed_line_fn *heed_join_line(heed_join how, heed_dtype type)
{
    static heed_line_fn *const *const tables[] = {
        [HEED_JOIN_ADD] = add_lines, [HEED_JOIN_MUL] = mul_lines, [HEED_JOIN_MIN] = min_lines, [HEED_JOIN_MAX] = max_lines
    };
    return tables[how][type];
}

/* ---- rules: entries of shapes are computed along ---- */

static int64_t ints_add(heed_infer *i, int64_t a, int64_t b)
{
    return heed_dims_add(i->dims, a, b);
}

static int64_t ints_sub(heed_infer *i, int64_t a, int64_t b)
{
    return heed_dims_sub(i->dims, a, b);
}

static int64_t ints_mul(heed_infer *i, int64_t a, int64_t b)
{
    return heed_dims_mul(i->dims, a, b);
}

static int64_t ints_div(heed_infer *i, int64_t a, int64_t b)
{
    return b == 0 ? 0 : heed_dims_div(i->dims, a, b);
}

static int64_t ints_min(heed_infer *i, int64_t a, int64_t b)
{
    return heed_dims_min(i->dims, a, b);
}

static int64_t ints_max(heed_infer *i, int64_t a, int64_t b)
{
    return heed_dims_max(i->dims, a, b);
}

/* a - a / b * b is the remainder of both kinds where nothing is negative. */
static int64_t ints_mod(heed_infer *i, int64_t a, int64_t b)
{
    if (b == 0) return 0;
    if (!heed_infer_not_negative(i, a) || !heed_infer_not_negative(i, b)) return HEED_DIM_UNKNOWN;
    return heed_dims_sub(i->dims, a, heed_dims_mul(i->dims, heed_dims_div(i->dims, a, b), b));
}

static heed_status infer_with(heed_infer *i, heed_combine_fn *fn)
{
    HEED_TRY(heed_infer_broadcast(i));
    return i->n_in == 2 ? heed_infer_combine_ints(i, fn) : HEED_OK;
}

/* One operator of two inputs: its rule and its computation. */
#define BINARY(name)                                                                                                             \
    static heed_status infer_##name(heed_infer *i)                                                                               \
    {                                                                                                                            \
        return infer_with(i, ints_##name);                                                                                       \
    }                                                                                                                            \
    static heed_status compute_##name(heed_compute *c)                                                                           \
    {                                                                                                                            \
        return heed_compute_lines(c, 2, name##_lines);                                                                           \
    }

BINARY(add)
BINARY(sub)
BINARY(mul)
BINARY(div)

static heed_status infer_mod(heed_infer *i)
{
    return infer_with(i, ints_mod);
}

static heed_status compute_mod(heed_compute *c)
{
    return heed_compute_lines(c, 2, heed_node_int(c->node, "fmod", 0) ? fmod_lines : mod_lines);
}

static heed_status compute_prelu(heed_compute *c)
{
    return heed_compute_lines(c, 2, prelu_lines);
}

/* The slope is broadcast to x, not the other way round. */
static heed_status infer_prelu(heed_infer *i)
{
    HEED_TRY(heed_infer_same_type(i, 0, 1, &i->out[0].dtype));
    HEED_TRY(heed_infer_broadcast_range(i, 0, 1, &i->out[0]));
    HEED_TRY(heed_infer_same(i));
    return HEED_OK;
}

/* ---- any number of inputs ---- */

static heed_status infer_min(heed_infer *i)
{
    return infer_with(i, ints_min);
}

static heed_status infer_max(heed_infer *i)
{
    return infer_with(i, ints_max);
}

static heed_status infer_sum(heed_infer *i)
{
    return infer_with(i, ints_add);
}

static heed_status compute_many(heed_compute *c, heed_line_fn *const *fns)
{
    if (!fns[c->in[0]->dtype]) return heed_compute_type(c, 0);
    if (c->n_in == 1) return heed_compute_same(c);
    HEED_TRY(heed_compute_lines(c, 2, fns));
    for (int k = 2; k < c->n_in; k++) {
        const heed_tensor *pair[2] = { c->out[0], c->in[k] };
        HEED_TRY(heed_run_lines(c, 2, c->out[0], pair, fns[c->in[k]->dtype]));
    }
    return HEED_OK;
}

static heed_status compute_min(heed_compute *c)
{
    return compute_many(c, min_lines);
}

static heed_status compute_max(heed_compute *c)
{
    return compute_many(c, max_lines);
}

static heed_status compute_sum(heed_compute *c)
{
    return compute_many(c, add_lines);
}

/* ---- Pow: base and exponent have types of their own ---- */

#define BLOCK 256

struct pow_job {
    heed_dtype base, exponent, work; /* work: f32, f64 or i64 */
};

static int64_t power_int(int64_t base, int64_t exponent)
{
    if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent & 1 ? -1 : 1) : 0;
    uint64_t result = 1, square = (uint64_t) base;
    for (; exponent; exponent >>= 1, square *= square)
        if (exponent & 1) result *= square;
    return (int64_t) result;
}

/* Exponents that models use: much cheaper, and vectors. 1 if it was one of them. */
static int power_simple(float *x, float exponent, int64_t n)
{
    if (exponent == 2) {
        for (int64_t k = 0; k < n; k++) x[k] = x[k] * x[k];
    } else if (exponent == 3) {
        for (int64_t k = 0; k < n; k++) x[k] = x[k] * x[k] * x[k];
    } else if (exponent == 0.5f) {
        for (int64_t k = 0; k < n; k++) x[k] = x[k] == -INFINITY ? INFINITY : sqrtf(x[k]) + 0.0f;
    } else if (exponent == -1) {
        for (int64_t k = 0; k < n; k++) x[k] = 1 / x[k];
    } else if (exponent != 1) {
        return 0;
    }
    return 1;
}

static void power_block(const struct pow_job *job, void *base, const void *exponent, int one_exponent, int64_t n)
{
    float *x = base;
    double *xd = base;
    int64_t *xi = base;
    switch (job->work) {
    case HEED_F32:
        if (one_exponent && power_simple(x, ((const float *) exponent)[0], n)) return;
        for (int64_t k = 0; k < n; k++) x[k] = powf(x[k], ((const float *) exponent)[one_exponent ? 0 : k]);
        return;
    case HEED_F64:
        for (int64_t k = 0; k < n; k++) xd[k] = pow(xd[k], ((const double *) exponent)[one_exponent ? 0 : k]);
        return;
    default:
        for (int64_t k = 0; k < n; k++) xi[k] = power_int(xi[k], ((const int64_t *) exponent)[one_exponent ? 0 : k]);
        return;
    }
}

static void power_lines(void *arg, char *const *at, const int64_t *steps, int64_t n)
{
    const struct pow_job *job = arg;
    int64_t size = (int64_t) heed_dtype_size(job->work);
    double base[BLOCK], exponent[BLOCK]; /* of the working type, none of which is larger */
    int one = steps[2] == 0;
    for (int64_t done = 0; done < n; done += BLOCK) {
        int64_t m = n - done < BLOCK ? n - done : BLOCK;
        heed_cast_line(job->work, base, size, job->base, at[1] + done * steps[1], steps[1], m);
        heed_cast_line(job->work, exponent, size, job->exponent, at[2] + done * steps[2], steps[2], one ? 1 : m);
        power_block(job, base, exponent, one, m);
        heed_cast_line(job->base, at[0] + done * steps[0], steps[0], job->work, base, size, m);
    }
}

static heed_status infer_pow(heed_infer *i)
{
    i->out[0].dtype = i->in[0]->dtype;
    return heed_infer_broadcast_range(i, 0, 1, &i->out[0]);
}

static heed_status compute_pow(heed_compute *c)
{
    struct pow_job job = { c->in[0]->dtype, c->in[1]->dtype, HEED_F64 };
    for (int k = 0; k < 2; k++)
        if (c->in[k]->dtype == HEED_BOOL) return heed_compute_type(c, k);
    if (heed_dtype_is_integer(job.base) && heed_dtype_is_integer(job.exponent)) job.work = HEED_I64;
    else if (heed_dtype_is_float(job.base) && job.base != HEED_F64) job.work = HEED_F32;
    const heed_tensor *args[3] = { c->out[0], c->in[0], c->in[1] };
    heed_loop loop;
    heed_loop_init(&loop, 3, args);
    heed_loop_run(c->ctx, &loop, args, power_lines, &job);
    return HEED_OK;
}

/* Sum divided by the number of inputs; like Sum of halves, each addition is rounded. */
static heed_status compute_mean(heed_compute *c)
{
    if (!heed_dtype_is_float(c->out[0]->dtype)) return heed_compute_type(c, 0);
    HEED_TRY(compute_many(c, add_lines));
    uint64_t bits = 0;
    double n = c->n_in;
    heed_tensor count = heed_tensor_make(c->out[0]->dtype, 0, NULL);
    count.data = &bits;
    heed_cast_line(count.dtype, &bits, 0, HEED_F64, &n, 0, 1);
    const heed_tensor *pair[2] = { c->out[0], &count };
    return heed_run_lines(c, 2, c->out[0], pair, div_lines[count.dtype]);
}

#define TWO(op, since, name, more)                                                                                               \
    HEED_OP(op, since, 2, 2, 1, .flags = HEED_OP_STRIDED | HEED_OP_INPLACE | (more), .infer = infer_##name,                      \
            .compute = compute_##name)
#define MANY(op, since, name)                                                                                                    \
    HEED_OP(op, since, 1, -1, 1, .flags = HEED_OP_STRIDED, .infer = infer_##name, .compute = compute_##name)

const heed_op heed_ops_arith[] = {
    TWO("Add", 7, add, HEED_OP_COMMUTES),
    TWO("Sub", 7, sub, 0),
    TWO("Mul", 7, mul, HEED_OP_COMMUTES),
    TWO("Div", 7, div, 0),
    TWO("Mod", 10, mod, 0),
    TWO("Pow", 7, pow, 0),
    TWO("PRelu", 7, prelu, 0),
    MANY("Min", 8, min),
    MANY("Max", 8, max),
    MANY("Sum", 8, sum),
    HEED_OP("Mean", 8, 1, -1, 1, .flags = HEED_OP_STRIDED, .infer = heed_infer_broadcast, .compute = compute_mean),
    { 0 },
};
