/* Reductions and casts: every operator, type and set of axes against sums in double; every pair of types. */
#include "ops/bench_node.h"

/* ---- reductions ---- */

typedef enum kind { SUM, MEAN, MAX, MIN, PROD, L1, L2, SUM_SQUARE, LOG_SUM, LOG_SUM_EXP, KINDS } kind;

static const char *const names[] = { "ReduceSum", "ReduceMean", "ReduceMax",       "ReduceMin",    "ReduceProd",
                                     "ReduceL1",  "ReduceL2",   "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp" };

/* Straight from the definitions; x are the n elements that fold into one. */
static double reduced(kind how, const double *x, int64_t n, double lowest, double highest)
{
    /* exps: moved by the largest that there is, 3 */
    double sum = 0, squares = 0, sizes = 0, exps = 0, product = 1, max = lowest, min = highest;
    for (int64_t k = 0; k < n; k++) {
        sum += x[k], squares += x[k] * x[k], sizes += fabs(x[k]), exps += exp(x[k] - 3), product *= x[k];
        if (k == 0 || x[k] > max) max = x[k];
        if (k == 0 || x[k] < min) min = x[k];
    }
    const double of[KINDS] = {
        sum,   sum / (double) n, max,     min,      product,
        sizes, sqrt(squares),    squares, log(sum), n && max == -1000 ? log((double) n) - 1000 : log(exps) + 3
    };
    return of[how];
}

struct reduce_case {
    int rank, n_axes;
    int64_t dims[4], axes[4];
};

static const struct reduce_case cases[] = {
    { 2, 1, { 5, 300 }, { 1 } },      { 2, 1, { 300, 5 }, { 0 } },        { 3, 1, { 4, 7, 33 }, { -2 } },
    { 3, 2, { 4, 7, 33 }, { 0, 2 } }, { 4, 2, { 3, 4, 5, 6 }, { 1, 2 } }, { 4, 3, { 3, 4, 5, 6 }, { 3, 1, -4 } },
    { 3, 0, { 2, 3, 4 }, { 0 } },     { 1, 1, { 1000 }, { 0 } },          { 2, 1, { 3, 1 }, { 1 } },
    { 3, 1, { 2, 9, 270 }, { 1 } },
};

/* The elements that fold into output number `o`, whose kept axes are in `kept`. */
static int64_t collect(const heed_tensor *x, unsigned reduced_axes, int64_t o, double *into)
{
    int64_t n = 0;
    for (int64_t e = 0; e < heed_tensor_count(x); e++) {
        int64_t index[HEED_RANK_MAX], at = 0;
        unravel(x, e, index);
        for (int d = 0; d < x->rank; d++)
            if (!(reduced_axes >> d & 1)) at = at * x->dims[d] + index[d];
        if (at == o) into[n++] = get(x, e);
    }
    return n;
}

static heed_node *reduce_node(bench *b, kind how, const struct reduce_case *c, int keep, int axes_as_input, heed_tensor **axes)
{
    int moved = how == SUM ? 13 : 18;
    heed_node *node = node_of(b, "", names[how], axes_as_input ? moved : moved - 1, axes_as_input ? 2 : 1, 1);
    set_int(b, node, "keepdims", keep);
    *axes = NULL;
    if (c->n_axes && axes_as_input) {
        *axes = tensor(b, HEED_I64, DIMS(c->n_axes));
        memcpy((*axes)->data, c->axes, (size_t) c->n_axes * sizeof(int64_t));
    } else if (c->n_axes) {
        set_ints(b, node, "axes", c->n_axes, c->axes);
    }
    return node;
}

static void check_reduce(bench *b, kind how, heed_dtype type, const struct reduce_case *c, int keep, int as_input)
{
    heed_tensor *x = tensor(b, type, c->rank, c->dims), *axes;
    static double elements[2000];
    for (int64_t k = 0; k < heed_tensor_count(x); k++) { /* what is summed of these is exact in any order */
        int positive = how == LOG_SUM || (type >= HEED_U8 && type <= HEED_U64);
        double number = (double) between(b, positive ? 1 : -3, 3);
        if (how == PROD) number = between(b, 0, 40) == 0 ? 2 : 1;
        if (how == LOG_SUM_EXP) number = number > 0 ? 3 : -1000;
        put(x, k, number);
    }
    heed_node *node = reduce_node(b, how, c, keep, as_input, &axes);
    expect_node(b, node, (const heed_tensor *[]){ x, axes });
    unsigned mask = c->n_axes ? 0 : ~0u;
    for (int k = 0; k < c->n_axes; k++) mask |= 1u << (c->axes[k] < 0 ? c->axes[k] + c->rank : c->axes[k]);
    int64_t dims[4];
    int rank = 0;
    for (int d = 0; d < c->rank; d++) {
        if (!(mask >> d & 1)) dims[rank++] = c->dims[d];
        else if (keep) dims[rank++] = 1;
    }
    expect_shape(b->out[0], rank, dims);
    for (int64_t o = 0; o < heed_tensor_count(b->out[0]); o++) {
        int64_t n = collect(x, mask, o, elements);
        double want = reduced(how, elements, n, -INFINITY, INFINITY), slack = 0;
        if (heed_dtype_is_float(type)) slack = (rounding(type) + 1e-6 * (type != HEED_F64)) * fabs(want);
        else want = type == HEED_I32 || type == HEED_I64 ? trunc(want) : want;
        if (isinf(want)) slack = 0;
        if (type == HEED_F16 && fabs(want) > 60000) continue;
        expect_close(get(b->out[0], o), want, slack, names[how], o);
    }
}

static void test_reductions(void **state)
{
    (void) state;
    bench b = bench_start();
    static const heed_dtype types[] = { HEED_F32, HEED_F64, HEED_F16, HEED_BF16, HEED_I32, HEED_I64 };
    for (int how = 0; how < KINDS; how++)
        for (int t = 0; t < 6; t++)
            for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
                if (t >= 4 && (how == L2 || how == LOG_SUM || how == LOG_SUM_EXP)) continue; /* of integers: not exact */
                if (t >= 4 && how == PROD && cases[c].dims[0] >= 300) continue;              /* overflows */
                check_reduce(&b, (kind) how, types[t], &cases[c], (int) (c + (size_t) t) % 2, (int) c % 2);
            }
    bench_end(&b);
}

/* Over no elements at all. */
static void test_empty_reductions(void **state)
{
    (void) state;
    bench b = bench_start();
    static const double want[KINDS] = { 0, NAN, -INFINITY, INFINITY, 1, 0, 0, 0, -INFINITY, -INFINITY };
    struct reduce_case c = { 2, 1, { 3, 0 }, { 1 } };
    for (int how = 0; how < KINDS; how++) {
        heed_tensor *axes;
        heed_node *node = reduce_node(&b, (kind) how, &c, 0, 1, &axes);
        expect_node(&b, node, (const heed_tensor *[]){ tensor(&b, HEED_F32, DIMS(3, 0)), axes });
        expect_shape(b.out[0], DIMS(3));
        for (int k = 0; k < 3; k++) expect_close(get(b.out[0], k), want[how], 0, names[how], k);
    }
    heed_tensor *axes;
    heed_node *node = reduce_node(&b, MAX, &c, 0, 1, &axes);
    expect_node(&b, node, (const heed_tensor *[]){ tensor(&b, HEED_I32, DIMS(3, 0)), axes });
    assert_int_equal(heed_tensor_int(b.out[0], 0), INT32_MIN);
    bench_end(&b);
}

static void test_noop_and_nan(void **state)
{
    (void) state;
    bench b = bench_start();
    heed_tensor *x = uniform_tensor(&b, HEED_F32, -1, 1, DIMS(3, 40));
    heed_node *node = node_of(&b, "", "ReduceSum", 13, 2, 1);
    set_int(&b, node, "noop_with_empty_axes", 1);
    expect_node(&b, node, (const heed_tensor *[]){ x, tensor(&b, HEED_I64, DIMS(0)) });
    expect_shape(b.out[0], DIMS(3, 40));
    for (int64_t k = 0; k < 120; k++) expect_close(get(b.out[0], k), get(x, k), 0, "ReduceSum", k);
    for (int64_t at = 0; at < 120; at += 7) { /* NaN wins wherever it is */
        put(x, at, NAN);
        for (int how = MAX; how <= MIN; how++) {
            expect_node(&b, node_of(&b, "", names[how], 13, 1, 1), (const heed_tensor *[]){ x });
            assert_true(isnan(get(b.out[0], 0)));
        }
        put(x, at, 0);
    }
    bench_end(&b);
}

/* u64 beyond what i64 holds; an f32 sum that would lose small numbers added one by one. */
static void test_large_numbers(void **state)
{
    (void) state;
    bench b = bench_start();
    heed_tensor *x = tensor(&b, HEED_U64, DIMS(3));
    uint64_t *u = x->data;
    u[0] = 5, u[1] = UINT64_MAX - 1, u[2] = (uint64_t) 1 << 62;
    expect_node(&b, node_of(&b, "", "ReduceMax", 13, 1, 1), (const heed_tensor *[]){ x });
    assert_true(*(uint64_t *) b.out[0]->data == UINT64_MAX - 1);
    expect_node(&b, node_of(&b, "", "ReduceMin", 13, 1, 1), (const heed_tensor *[]){ x });
    assert_true(*(uint64_t *) b.out[0]->data == 5);
    heed_tensor *long_one = tensor(&b, HEED_F32, DIMS(1 << 22));
    for (int64_t k = 0; k < 1 << 22; k++) ((float *) long_one->data)[k] = 0.1f;
    expect_node(&b, node_of(&b, "", "ReduceMean", 13, 1, 1), (const heed_tensor *[]){ long_one });
    expect_close(get(b.out[0], 0), 0.1f, 3e-8, "ReduceMean", 0);
    bench_end(&b);
}

/* ---- casts ---- */

static const int onnx_codes[HEED_DTYPE_COUNT] = {
    [HEED_F32] = 1,  [HEED_U8] = 2,   [HEED_I8] = 3,   [HEED_U16] = 4,  [HEED_I16] = 5,  [HEED_I32] = 6,  [HEED_I64] = 7,
    [HEED_BOOL] = 9, [HEED_F16] = 10, [HEED_F64] = 11, [HEED_U32] = 12, [HEED_U64] = 13, [HEED_BF16] = 16
};

/* The nearest number of `digits` binary digits, half to even, from the definition. */
static double nearest(double x, int digits, int lowest_exponent)
{
    if (x == 0 || !isfinite(x)) return x;
    int e;
    frexp(x, &e);
    int shift = e - digits < lowest_exponent ? lowest_exponent : e - digits;
    return ldexp(rint(ldexp(x, -shift)), shift);
}

static double as_type(heed_dtype to, double x)
{
    static const struct {
        double low, high;
    } range[HEED_DTYPE_COUNT] = {
        [HEED_I8] = { -128, 127 },        [HEED_I16] = { -32768, 32767 }, [HEED_I32] = { INT32_MIN, INT32_MAX },
        [HEED_U8] = { 0, 255 },           [HEED_U16] = { 0, 65535 },      [HEED_U32] = { 0, UINT32_MAX },
        [HEED_I64] = { -0x1p63, 0x1p63 }, [HEED_U64] = { 0, 0x1p64 }
    };
    switch (to) {
    case HEED_F64: return x;
    case HEED_F32: return (float) x;
    case HEED_BOOL: return x != 0;
    case HEED_F16: return fabs(x) >= 65520 ? copysign(INFINITY, x) : nearest(x, 11, -24);
    case HEED_BF16: x = nearest(x, 8, -133); return fabs(x) > 0x1.fep127 ? copysign(INFINITY, x) : x;
    default: break;
    }
    if (isnan(x)) return 0;
    x = trunc(x);
    return x < range[to].low ? range[to].low : x > range[to].high ? range[to].high : x;
}

static void test_casts(void **state)
{
    (void) state;
    bench b = bench_start();
    enum { N = 600 };
    for (int from = HEED_F32; from < HEED_DTYPE_COUNT; from++) {
        heed_tensor *x = tensor(&b, (heed_dtype) from, DIMS(N));
        for (int64_t k = 0; k < N; k++) {
            static const double special[] = { 0,       -0.0,    NAN,   INFINITY, -INFINITY,   65519.99, 65520,        1e-8,
                                              0x1p-24, 0x1p-25, 255.9, -0.9,     1e300,       -1e300,   2147483647.5, 2049,
                                              2051,    257,     259,   0x1.01p8, 0x1.010001p8 };
            double v = k < 21 ? special[k] : uniform(&b, -1, 1) * pow(2, (double) between(&b, -30, 40));
            put(x, k, v);
        }
        for (int to = HEED_F32; to < HEED_DTYPE_COUNT; to++) {
            heed_node *node = node_of(&b, "", "Cast", 19, 1, 1);
            set_int(&b, node, "to", onnx_codes[to]);
            expect_node(&b, node, (const heed_tensor *[]){ x });
            assert_int_equal(b.out[0]->dtype, to);
            int narrows = heed_dtype_is_integer((heed_dtype) from) && heed_dtype_is_integer((heed_dtype) to);
            for (int64_t k = 0; k < N; k++) {
                if (narrows) { /* wraps: the low bits stay */
                    int64_t got = heed_tensor_int(b.out[0], k), want = heed_tensor_int(x, k),
                            bits = 8 * (int64_t) heed_dtype_size((heed_dtype) to);
                    assert_true(((uint64_t) got ^ (uint64_t) want) << (64 - bits) == 0);
                    continue;
                }
                char what[32];
                snprintf(what, sizeof what, "Cast %s to %s", heed_dtype_name((heed_dtype) from),
                         heed_dtype_name((heed_dtype) to));
                double exact = get(x, k);
                if (fabs(exact) > 0x1p53 && heed_dtype_is_integer((heed_dtype) from)) continue; /* not exact in the reference */
                expect_close(get(b.out[0], k), as_type((heed_dtype) to, exact), 0, what, k);
            }
        }
    }
    bench_end(&b);
}

/* One rounding, where two would end at another number: just above a tie of the half, too close to it for f32. */
static void test_one_rounding(void **state)
{
    (void) state;
    bench b = bench_start();
    heed_tensor *d = tensor(&b, HEED_F64, DIMS(2)), *i = tensor(&b, HEED_I64, DIMS(2));
    put(d, 0, 1 + 0x1p-11 + 0x1p-40), put(d, 1, 1 + 0x1p-8 + 0x1p-40);
    ((int64_t *) i->data)[0] = ((int64_t) 1 << 40) + ((int64_t) 1 << 32) + 1;
    heed_node *to_f16 = node_of(&b, "", "Cast", 19, 1, 1), *to_bf16 = node_of(&b, "", "Cast", 19, 1, 1);
    set_int(&b, to_f16, "to", 10), set_int(&b, to_bf16, "to", 16);
    expect_node(&b, to_f16, (const heed_tensor *[]){ d });
    expect_close(get(b.out[0], 0), 1 + 0x1p-10, 0, "f64 to f16", 0);
    expect_node(&b, to_bf16, (const heed_tensor *[]){ d });
    expect_close(get(b.out[0], 1), 1 + 0x1p-7, 0, "f64 to bf16", 1);
    expect_node(&b, to_bf16, (const heed_tensor *[]){ i });
    expect_close(get(b.out[0], 0), 0x1p40 + 0x1p33, 0, "i64 to bf16", 0);
    bench_end(&b);
}

static void test_cast_like(void **state)
{
    (void) state;
    bench b = bench_start();
    heed_tensor *x = uniform_tensor(&b, HEED_F32, -9, 9, DIMS(2, 30));
    expect_node(&b, node_of(&b, "", "CastLike", 19, 2, 1), (const heed_tensor *[]){ x, tensor(&b, HEED_I8, DIMS(1)) });
    assert_int_equal(b.out[0]->dtype, HEED_I8);
    for (int64_t k = 0; k < 60; k++) assert_int_equal(heed_tensor_int(b.out[0], k), (int64_t) get(x, k));
    heed_node *strange = node_of(&b, "", "Cast", 19, 1, 1);
    set_int(&b, strange, "to", 8);
    assert_int_equal(run_node(&b, strange, (const heed_tensor *[]){ x }), HEED_ERR_UNSUPPORTED);
    assert_string_equal(heed_last_message(), "Cast: to is 8, an element type that heed does not have");
    bench_end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reductions),   cmocka_unit_test(test_empty_reductions),
        cmocka_unit_test(test_noop_and_nan), cmocka_unit_test(test_large_numbers),
        cmocka_unit_test(test_casts),        cmocka_unit_test(test_one_rounding),
        cmocka_unit_test(test_cast_like),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
