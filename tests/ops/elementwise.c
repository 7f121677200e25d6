/* Element-wise operators of every type and broadcast, against one small function each in double or 64-bit integers. */
#include "ops/bench_node.h"

/* Shapes that broadcast: same, scalar, row, column, both ways, several joined dimensions, empty, longer than a block. */
static const struct shapes {
    int rank_a, rank_b;
    int64_t a[4], b[4];
} shapes[] = {
    { 1, 1, { 7 }, { 7 } },
    { 0, 0, { 0 }, { 0 } },
    { 2, 0, { 3, 19 }, { 0 } },
    { 0, 2, { 0 }, { 3, 19 } },
    { 3, 1, { 2, 3, 33 }, { 33 } },
    { 2, 2, { 5, 1 }, { 1, 17 } },
    { 4, 4, { 2, 3, 4, 5 }, { 2, 1, 4, 1 } },
    { 2, 3, { 4, 6 }, { 3, 1, 6 } },
    { 2, 2, { 3, 0 }, { 1, 1 } },
    { 1, 1, { 1000 }, { 1000 } },
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static const heed_dtype all_types[] = { HEED_F32, HEED_F64, HEED_F16, HEED_BF16, HEED_I8,  HEED_I16,
                                        HEED_I32, HEED_I64, HEED_U8,  HEED_U16,  HEED_U32, HEED_U64 };
enum { N_TYPES = sizeof all_types / sizeof *all_types, N_FLOAT_TYPES = 4 };

/* ---- two inputs: floats in double, integers as they are, exact ---- */

typedef double float_two(double x, double y);
typedef int64_t int_two(int64_t x, int64_t y); /* in 64 bits; the test wraps to the type */

#define TWO(name, expr)                                                                                                          \
    static double f_##name(double x, double y)                                                                                   \
    {                                                                                                                            \
        return expr;                                                                                                             \
    }
#define TWO_INT(name, expr)                                                                                                      \
    static int64_t i_##name(int64_t x, int64_t y)                                                                                \
    {                                                                                                                            \
        return expr;                                                                                                             \
    }
TWO(add, x + y)
TWO(sub, x - y)
TWO(mul, x *y)
TWO(div, x / y)
TWO(min, isnan(x) ? x : isnan(y) ? y : fmin(x, y))
TWO(max, isnan(x) ? x : isnan(y) ? y : fmax(x, y))
TWO(mean, (x + y) / 2)
TWO(prelu, x < 0 ? x * y : x)
TWO(equal, x == y)
TWO(less, x < y)
TWO(less_equal, x <= y)
TWO(greater, x > y)
TWO(greater_equal, x >= y)
TWO_INT(add, x + y)
TWO_INT(sub, x - y)
TWO_INT(mul, x *y)
TWO_INT(div, y ? x / y : 0)
TWO_INT(mod, y == 0 ? 0 : x - y * (x / y - ((x % y != 0) && ((x < 0) != (y < 0)))))
TWO_INT(min, x < y ? x : y)
TWO_INT(max, x > y ? x : y)
TWO_INT(prelu, x < 0 ? x * y : x)
TWO_INT(bit_and, x &y)
TWO_INT(bit_or, x | y)
TWO_INT(bit_xor, x ^ y)
TWO_INT(equal, x == y)
TWO_INT(less, x < y)
TWO_INT(less_equal, x <= y)
TWO_INT(greater, x > y)
TWO_INT(greater_equal, x >= y)

static const struct two {
    const char *op;
    int version;
    float_two *of_floats;
    int_two *of_ints;
    int truth; /* the result is bool */
} twos[] = {
    { "Add", 14, f_add, i_add, 0 },
    { "Sub", 14, f_sub, i_sub, 0 },
    { "Mul", 14, f_mul, i_mul, 0 },
    { "Div", 14, f_div, i_div, 0 },
    { "Mod", 13, NULL, i_mod, 0 },
    { "Min", 13, f_min, i_min, 0 },
    { "Max", 13, f_max, i_max, 0 },
    { "Sum", 13, f_add, NULL, 0 },
    { "Mean", 13, f_mean, NULL, 0 },
    { "PRelu", 16, f_prelu, i_prelu, 0 },
    { "BitwiseAnd", 18, NULL, i_bit_and, 0 },
    { "BitwiseOr", 18, NULL, i_bit_or, 0 },
    { "BitwiseXor", 18, NULL, i_bit_xor, 0 },
    { "Equal", 13, f_equal, i_equal, 1 },
    { "Less", 13, f_less, i_less, 1 },
    { "LessOrEqual", 16, f_less_equal, i_less_equal, 1 },
    { "Greater", 13, f_greater, i_greater, 1 },
    { "GreaterOrEqual", 16, f_greater_equal, i_greater_equal, 1 },
};

static heed_tensor *some(bench *b, heed_dtype type, int rank, const int64_t *dims)
{
    heed_tensor *t = tensor(b, type, rank, dims);
    for (int64_t k = 0; k < heed_tensor_count(t); k++) {
        int is_unsigned = type >= HEED_U8 && type <= HEED_U64;
        double x = heed_dtype_is_float(type) ? uniform(b, -4, 4) : (double) between(b, is_unsigned ? 0 : -100, 100);
        if (heed_dtype_is_float(type) && between(b, 0, 30) == 0)
            x = (double[]){ NAN, INFINITY, -INFINITY, 0, -0.0 }[between(b, 0, 4)];
        put(t, k, x);
    }
    return t;
}

/* An integer cut to the type, as a number. */
static double wrapped(heed_dtype type, int64_t x)
{
    switch (type) {
    case HEED_I8: return (int8_t) x;
    case HEED_I16: return (int16_t) x;
    case HEED_I32: return (int32_t) x;
    case HEED_U8: return (uint8_t) x;
    case HEED_U16: return (uint16_t) x;
    case HEED_U32: return (uint32_t) x;
    case HEED_U64: return (double) (uint64_t) x;
    default: return (double) x;
    }
}

/* The double rounded to the type, once. */
static double rounded(bench *b, heed_dtype type, double x)
{
    heed_tensor *t = tensor(b, type, 0, NULL);
    put(t, 0, x);
    return get(t, 0);
}

static double want_two(bench *b, const struct two *op, heed_dtype type, double x, double y)
{
    if (!heed_dtype_is_float(type)) {
        int64_t z = op->of_ints((int64_t) x, (int64_t) y);
        return op->truth ? (double) z : wrapped(type, z);
    }
    double z = op->of_floats(x, y);
    return op->truth ? z : rounded(b, type, z);
}

static void check_two(bench *b, const struct two *op, heed_dtype type, const struct shapes *s)
{
    int swap = strcmp(op->op, "PRelu") == 0 && (s->rank_a < s->rank_b || (s->rank_b && s->a[1] == 1 && s->b[1] > 1));
    if (swap) return; /* a slope does not stretch its input */
    const heed_tensor *in[] = { some(b, type, s->rank_a, s->a), some(b, type, s->rank_b, s->b) };
    expect_node(b, node_of(b, "", op->op, op->version, 2, 1), in);
    const heed_tensor *z = b->out[0];
    assert_int_equal(z->dtype, op->truth ? HEED_BOOL : type);
    for (int64_t k = 0; k < heed_tensor_count(z); k++) {
        int64_t index[HEED_RANK_MAX];
        unravel(z, k, index);
        double want = want_two(b, op, type, get_at(in[0], index, z->rank), get_at(in[1], index, z->rank));
        double slack =
            heed_dtype_is_float(type) && isfinite(want) && strcmp(op->op, "Mean") == 0 ? rounding(type) * fabs(want) * 2 : 0;
        if (type == HEED_F16) slack *= 2;
        expect_close(get(z, k), want, slack, op->op, k);
    }
}

static void test_two_inputs(void **state)
{
    (void) state;
    bench b = bench_start();
    for (size_t o = 0; o < sizeof twos / sizeof *twos; o++)
        for (int t = 0; t < N_TYPES; t++)
            for (int s = 0; s < N_SHAPES; s++) {
                int is_unsigned = all_types[t] >= HEED_U8;
                if (is_unsigned && twos[o].of_ints == i_prelu) continue; /* signed types only */
                if (heed_dtype_is_float(all_types[t]) ? !twos[o].of_floats : !twos[o].of_ints) continue;
                check_two(&b, &twos[o], all_types[t], &shapes[s]);
            }
    bench_end(&b);
}

/* Sums and largest of three inputs, one of which alone has the full shape. */
static void test_many_inputs(void **state)
{
    (void) state;
    bench b = bench_start();
    const heed_tensor *in[] = { some(&b, HEED_F32, DIMS(1, 5)), some(&b, HEED_F32, DIMS(4, 1)),
                                some(&b, HEED_F32, DIMS(3, 4, 5)) };
    for (int which = 0; which < 2; which++) {
        expect_node(&b, node_of(&b, "", which ? "Max" : "Sum", 13, 3, 1), in);
        expect_shape(b.out[0], DIMS(3, 4, 5));
        for (int64_t k = 0; k < 60; k++) {
            int64_t index[HEED_RANK_MAX];
            unravel(b.out[0], k, index);
            float x = (float) get_at(in[0], index, 3), y = (float) get_at(in[1], index, 3), z = (float) get_at(in[2], index, 3);
            double want = which ? f_max(f_max(x, y), z) : (double) ((x + y) + z);
            expect_close(get(b.out[0], k), want, which ? 0 : 1e-6, which ? "Max" : "Sum", k);
        }
    }
    bench_end(&b);
}

/* ---- integers at their edges ---- */

static void test_integer_edges(void **state)
{
    (void) state;
    bench b = bench_start();
    static const heed_dtype types[] = { HEED_I8, HEED_I16, HEED_I32, HEED_I64 };
    static const int64_t lowest[] = { INT8_MIN, INT16_MIN, INT32_MIN, INT64_MIN };
    for (int t = 0; t < 4; t++) {
        heed_tensor *x = tensor(&b, types[t], DIMS(4)), *y = tensor(&b, types[t], DIMS(4));
        int64_t xs[] = { lowest[t], lowest[t], 7, -7 }, ys[] = { -1, 0, 0, 2 };
        for (int k = 0; k < 4; k++) {
            int64_t size = (int64_t) heed_dtype_size(types[t]);
            heed_cast_line(types[t], (char *) x->data + k * size, size, HEED_I64, &xs[k], 8, 1);
            heed_cast_line(types[t], (char *) y->data + k * size, size, HEED_I64, &ys[k], 8, 1);
        }
        const heed_tensor *in[] = { x, y };
        heed_node *fmod_node = node_of(&b, "", "Mod", 13, 2, 1);
        set_int(&b, fmod_node, "fmod", 1);
        heed_node *nodes[] = { node_of(&b, "", "Div", 14, 2, 1), node_of(&b, "", "Mod", 13, 2, 1), fmod_node };
        int64_t want[3][4] = { { lowest[t], 0, 0, -3 }, { 0, 0, 0, 1 }, { 0, 0, 0, -1 } };
        for (int n = 0; n < 3; n++) {
            expect_node(&b, nodes[n], in);
            for (int k = 0; k < 4; k++) assert_true(heed_tensor_int(b.out[0], k) == want[n][k]);
        }
    }
    bench_end(&b);
}

static void test_shifts(void **state)
{
    (void) state;
    bench b = bench_start();
    heed_tensor *x = tensor(&b, HEED_I8, DIMS(6)), *y = tensor(&b, HEED_I8, DIMS(6));
    const int xs[] = { -8, 4, 64, -1, -128, 5 }, ys[] = { 1, 1, 1, 9, -1, 8 };
    const int left[] = { -16, 8, -128, 0, 0, 0 }, right[] = { -4, 2, 32, -1, -1, 0 };
    for (int k = 0; k < 6; k++) put(x, k, xs[k]), put(y, k, ys[k]);
    for (int l = 0; l < 2; l++) {
        heed_node *node = node_of(&b, "", "BitShift", 28, 2, 1);
        set_string(&b, node, "direction", l ? "LEFT" : "RIGHT");
        expect_node(&b, node, (const heed_tensor *[]){ x, y });
        for (int k = 0; k < 6; k++) assert_int_equal(heed_tensor_int(b.out[0], k), l ? left[k] : right[k]);
    }
    bench_end(&b);
}

/* ---- Pow with types of its own for base and exponent ---- */

static void test_pow(void **state)
{
    (void) state;
    bench b = bench_start();
    static const double exponents[] = { 2, 3, 0.5, -1, 1, 2.5, 0, -2 };
    static const heed_dtype bases[] = { HEED_F32, HEED_F64, HEED_F16, HEED_BF16 },
                            powers[] = { HEED_F32, HEED_F64, HEED_I64, HEED_I32 };
    for (int t = 0; t < 4; t++) {
        for (int p = 0; p < 4; p++) {
            for (int e = 0; e < 8; e++) {
                if (heed_dtype_is_integer(powers[p]) && exponents[e] != rint(exponents[e])) continue;
                heed_tensor *x = uniform_tensor(&b, bases[t], 0.1, 3, DIMS(3, 100)), *y = tensor(&b, powers[p], 0, NULL);
                put(y, 0, exponents[e]);
                expect_node(&b, node_of(&b, "", "Pow", 15, 2, 1), (const heed_tensor *[]){ x, y });
                for (int64_t k = 0; k < 300; k++) {
                    double want = pow(get(x, k), exponents[e]);
                    expect_close(get(b.out[0], k), want, (rounding(bases[t]) + 1e-6 * (bases[t] != HEED_F64)) * want, "Pow", k);
                }
            }
        }
    }
    bench_end(&b);
}

static void test_pow_of_integers(void **state)
{
    (void) state;
    bench b = bench_start();
    heed_tensor *x = tensor(&b, HEED_I32, DIMS(5)), *y = tensor(&b, HEED_I64, DIMS(5));
    const int xs[] = { 2, -3, 0, -1, 7 }, ys[] = { 10, 3, 0, -3, -1 }, want[] = { 1024, -27, 1, -1, 0 };
    for (int k = 0; k < 5; k++) put(x, k, xs[k]), put(y, k, ys[k]);
    expect_node(&b, node_of(&b, "", "Pow", 15, 2, 1), (const heed_tensor *[]){ x, y });
    assert_int_equal(b.out[0]->dtype, HEED_I32);
    for (int k = 0; k < 5; k++) assert_int_equal(heed_tensor_int(b.out[0], k), want[k]);
    bench_end(&b);
}

/* ---- one input ---- */

typedef double float_one(double x);

#define ONE(name, expr)                                                                                                          \
    static double f_##name(double x)                                                                                             \
    {                                                                                                                            \
        return expr;                                                                                                             \
    }
ONE(neg, -x)
ONE(sign, isnan(x) ? x : x > 0 ? 1 : x < 0 ? -1 : 0)
ONE(reciprocal, 1 / x)
ONE(sigmoid, 1 / (1 + exp(-x)))
ONE(softplus, log(1 + exp(x)))
ONE(softsign, x / (1 + fabs(x)))
ONE(relu, isnan(x) ? x : fmax(x, 0))
ONE(hard_swish, isnan(x) ? x : x *fmin(fmax(x / 6 + 0.5, 0), 1))
ONE(mish, x *tanh(log(1 + exp(x))))
ONE(leaky_relu, x < 0 ? 0.01f * x : x)
ONE(elu, x < 0 ? exp(x) - 1 : x)
ONE(celu, x < 0 ? exp(x) - 1 : x)
ONE(selu, 1.05070102214813232421875 * (x < 0 ? 1.67326319217681884765625 * (exp(x) - 1) : x))
ONE(hard_sigmoid, isnan(x) ? x : fmin(fmax(0.2f * x + 0.5, 0), 1))
ONE(thresholded_relu, x > 1 ? x : 0)
ONE(is_nan, isnan(x))
ONE(is_inf, isinf(x) != 0)

static const struct one {
    const char *op;
    int version;
    float_one *of;
    double low, high; /* where it is tested */
    int truth;
} ones[] = {
    { "Neg", 13, f_neg, -5, 5, 0 },
    { "Abs", 13, fabs, -5, 5, 0 },
    { "Sign", 13, f_sign, -5, 5, 0 },
    { "Floor", 13, floor, -5, 5, 0 },
    { "Ceil", 13, ceil, -5, 5, 0 },
    { "Round", 11, rint, -5, 5, 0 },
    { "Sqrt", 13, sqrt, 0, 9, 0 },
    { "Reciprocal", 13, f_reciprocal, 0.1, 9, 0 },
    { "Exp", 13, exp, -9, 9, 0 },
    { "Log", 13, log, 0.01, 9, 0 },
    { "Erf", 13, erf, -4, 4, 0 },
    { "Sin", 7, sin, -9, 9, 0 },
    { "Cos", 7, cos, -9, 9, 0 },
    { "Tan", 7, tan, -1, 1, 0 },
    { "Asin", 7, asin, -1, 1, 0 },
    { "Acos", 7, acos, -1, 1, 0 },
    { "Atan", 7, atan, -9, 9, 0 },
    { "Sinh", 9, sinh, -3, 3, 0 },
    { "Cosh", 9, cosh, -3, 3, 0 },
    { "Asinh", 9, asinh, -9, 9, 0 },
    { "Acosh", 9, acosh, 1, 9, 0 },
    { "Atanh", 9, atanh, -0.9, 0.9, 0 },
    { "Tanh", 13, tanh, -9, 9, 0 },
    { "Sigmoid", 13, f_sigmoid, -20, 20, 0 },
    { "Softplus", 1, f_softplus, -9, 9, 0 },
    { "Softsign", 1, f_softsign, -9, 9, 0 },
    { "Relu", 14, f_relu, -5, 5, 0 },
    { "HardSwish", 14, f_hard_swish, -9, 9, 0 },
    { "Mish", 18, f_mish, -9, 9, 0 },
    { "LeakyRelu", 16, f_leaky_relu, -5, 5, 0 },
    { "Elu", 6, f_elu, -5, 5, 0 },
    { "Celu", 12, f_celu, -5, 5, 0 },
    { "Selu", 6, f_selu, -5, 5, 0 },
    { "HardSigmoid", 6, f_hard_sigmoid, -5, 5, 0 },
    { "ThresholdedRelu", 10, f_thresholded_relu, -5, 5, 0 },
    { "IsNaN", 20, f_is_nan, -5, 5, 1 },
    { "IsInf", 20, f_is_inf, -5, 5, 1 },
};

static void test_one_input(void **state)
{
    (void) state;
    bench b = bench_start();
    for (size_t o = 0; o < sizeof ones / sizeof *ones; o++) {
        for (int t = 0; t < N_FLOAT_TYPES; t++) {
            heed_tensor *x = uniform_tensor(&b, all_types[t], ones[o].low, ones[o].high, DIMS(3, 5, 67));
            put(x, 0, NAN), put(x, 100, INFINITY), put(x, 101, 0.5), put(x, 102, -INFINITY);
            expect_node(&b, node_of(&b, "", ones[o].op, ones[o].version, 1, 1), (const heed_tensor *[]){ x });
            for (int64_t k = 0; k < heed_tensor_count(x); k++) {
                double at = get(x, k), want = ones[o].of(at);
                if (isinf(at) && isnan(want)) continue; /* a limit that the formula above does not reach */
                double slack = ones[o].truth ? 0 : (rounding(all_types[t]) + 1e-6 * (all_types[t] != HEED_F64)) * fabs(want);
                expect_close(get(b.out[0], k), want, slack + (ones[o].truth ? 0 : 1e-7), ones[o].op, k);
            }
        }
    }
    bench_end(&b);
}

static void test_one_integer(void **state)
{
    (void) state;
    bench b = bench_start();
    static const struct {
        const char *op;
        int64_t want[4]; /* for -128, -3, 0, 5 in 8 bits */
    } cases[] = { { "Neg", { -128, 3, 0, -5 } },
                  { "Abs", { -128, 3, 0, 5 } },
                  { "Sign", { -1, -1, 0, 1 } },
                  { "Relu", { 0, 0, 0, 5 } },
                  { "BitwiseNot", { 127, 2, -1, -6 } } };
    heed_tensor *x = tensor(&b, HEED_I8, DIMS(4));
    for (int k = 0; k < 4; k++) put(x, k, (double[]){ -128, -3, 0, 5 }[k]);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        expect_node(&b, node_of(&b, "", cases[c].op, 18, 1, 1), (const heed_tensor *[]){ x });
        for (int k = 0; k < 4; k++) assert_int_equal(heed_tensor_int(b.out[0], k), cases[c].want[k]);
    }
    bench_end(&b);
}

/* ---- logic, Where, Clip, Trilu ---- */

static heed_tensor *truths(bench *b, int rank, const int64_t *dims)
{
    heed_tensor *t = tensor(b, HEED_BOOL, rank, dims);
    for (int64_t k = 0; k < heed_tensor_count(t); k++) ((uint8_t *) t->data)[k] = (uint8_t) between(b, 0, 1);
    return t;
}

static void test_logic(void **state)
{
    (void) state;
    bench b = bench_start();
    static const char *const ops[] = { "And", "Or", "Xor" };
    for (int s = 0; s < N_SHAPES; s++) {
        const heed_tensor *in[] = { truths(&b, shapes[s].rank_a, shapes[s].a), truths(&b, shapes[s].rank_b, shapes[s].b) };
        for (int o = 0; o < 3; o++) {
            expect_node(&b, node_of(&b, "", ops[o], 7, 2, 1), in);
            for (int64_t k = 0; k < heed_tensor_count(b.out[0]); k++) {
                int64_t index[HEED_RANK_MAX];
                unravel(b.out[0], k, index);
                int x = get_at(in[0], index, b.out[0]->rank) != 0, y = get_at(in[1], index, b.out[0]->rank) != 0;
                assert_int_equal(heed_tensor_int(b.out[0], k), o == 0 ? x & y : o == 1 ? x | y : x ^ y);
            }
        }
        expect_node(&b, node_of(&b, "", "Not", 1, 1, 1), in);
        for (int64_t k = 0; k < heed_tensor_count(b.out[0]); k++) assert_true(get(b.out[0], k) == !get(in[0], k));
    }
    bench_end(&b);
}

static void test_where(void **state)
{
    (void) state;
    bench b = bench_start();
    for (int t = 0; t < N_TYPES; t++) {
        for (int s = 0; s < N_SHAPES; s++) {
            for (int c = 0; c < 2; c++) {
                const heed_tensor *in[] = { c ? truths(&b, shapes[s].rank_a, shapes[s].a)
                                              : truths(&b, shapes[s].rank_b, shapes[s].b),
                                            some(&b, all_types[t], shapes[s].rank_a, shapes[s].a),
                                            some(&b, all_types[t], shapes[s].rank_b, shapes[s].b) };
                expect_node(&b, node_of(&b, "", "Where", 16, 3, 1), in);
                for (int64_t k = 0; k < heed_tensor_count(b.out[0]); k++) {
                    int64_t index[HEED_RANK_MAX];
                    unravel(b.out[0], k, index);
                    int rank = b.out[0]->rank, pick = get_at(in[0], index, rank) != 0 ? 1 : 2;
                    expect_close(get(b.out[0], k), get_at(in[pick], index, rank), 0, "Where", k);
                }
            }
        }
    }
    bench_end(&b);
}

static void test_clip(void **state)
{
    (void) state;
    bench b = bench_start();
    for (int t = 0; t < N_TYPES; t++) {
        for (int which = 0; which < 4; which++) {
            heed_tensor *low = tensor(&b, all_types[t], 0, NULL), *high = tensor(&b, all_types[t], DIMS(1));
            put(low, 0, 1), put(high, 0, 3);
            const heed_tensor *in[] = { some(&b, all_types[t], DIMS(9, 40)), which & 1 ? low : NULL, which & 2 ? high : NULL };
            expect_node(&b, node_of(&b, "", "Clip", 13, 3, 1), in);
            for (int64_t k = 0; k < 360; k++) {
                double want = get(in[0], k);
                if (which & 1 && want < 1) want = 1;
                if (which & 2 && want > 3) want = 3;
                expect_close(get(b.out[0], k), want, 0, "Clip", k);
            }
        }
    }
    bench_end(&b);
}

static void test_trilu(void **state)
{
    (void) state;
    bench b = bench_start();
    static const int64_t ks[] = { 0, 1, -1, 3, -3, 100, -100, INT64_MAX, INT64_MIN };
    for (int upper = 0; upper < 2; upper++) {
        for (int c = 0; c < 9; c++) {
            heed_tensor *x = some(&b, HEED_F32, DIMS(2, 4, 6)), *k = tensor(&b, HEED_I64, 0, NULL);
            *(int64_t *) k->data = ks[c];
            heed_node *node = node_of(&b, "", "Trilu", 14, 2, 1);
            set_int(&b, node, "upper", upper);
            expect_node(&b, node, (const heed_tensor *[]){ x, k });
            for (int64_t e = 0; e < 48; e++) {
                double r = (double) (e / 6 % 4), col = (double) (e % 6), diagonal = r + (double) ks[c];
                int kept = upper ? col >= diagonal : col <= diagonal;
                expect_close(get(b.out[0], e), kept ? get(x, e) : 0, 0, "Trilu", e);
            }
        }
    }
    bench_end(&b);
}

/* ---- what is refused ---- */

static void test_refused(void **state)
{
    (void) state;
    bench b = bench_start();
    heed_tensor *f = tensor(&b, HEED_F32, DIMS(2, 3)), *g = tensor(&b, HEED_F32, DIMS(2, 4)),
                *i = tensor(&b, HEED_I32, DIMS(2, 3));
    assert_int_equal(run_node(&b, node_of(&b, "", "Add", 14, 2, 1), (const heed_tensor *[]){ f, g }), HEED_ERR_ARGUMENT);
    assert_string_equal(heed_last_message(),
                        "Add: input 1 has shape [2, 4], which does not broadcast with dimension 1 of size 3");
    assert_int_equal(run_node(&b, node_of(&b, "", "Add", 14, 2, 1), (const heed_tensor *[]){ f, i }), HEED_ERR_ARGUMENT);
    assert_string_equal(heed_last_message(), "Add: input 1 is i32, expected f32");
    assert_int_equal(run_node(&b, node_of(&b, "", "And", 7, 2, 1), (const heed_tensor *[]){ i, i }), HEED_ERR_UNSUPPORTED);
    assert_int_equal(run_node(&b, node_of(&b, "", "Where", 16, 3, 1), (const heed_tensor *[]){ i, f, f }), HEED_ERR_ARGUMENT);
    assert_int_equal(run_node(&b, node_of(&b, "", "Exp", 13, 1, 1), (const heed_tensor *[]){ i }), HEED_ERR_UNSUPPORTED);
    bench_end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_inputs), cmocka_unit_test(test_many_inputs), cmocka_unit_test(test_integer_edges),
        cmocka_unit_test(test_shifts),     cmocka_unit_test(test_pow),         cmocka_unit_test(test_pow_of_integers),
        cmocka_unit_test(test_one_input),  cmocka_unit_test(test_one_integer), cmocka_unit_test(test_logic),
        cmocka_unit_test(test_where),      cmocka_unit_test(test_clip),        cmocka_unit_test(test_trilu),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
