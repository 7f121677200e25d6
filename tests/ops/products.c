/* MatMul, Gemm, FusedMatMul, heed.Linear against sums in double: shapes that end inside a tile, every broadcast, types, halves,
 * empty dimensions, packed and unpacked weights. */
#include "ops/bench_node.h"

static const heed_dtype types[] = { HEED_F32, HEED_F16, HEED_BF16, HEED_F64, HEED_I32, HEED_I64, HEED_U32, HEED_U64 };
enum { N_TYPES = sizeof types / sizeof *types, N_FLOATS = 4 };

static heed_tensor *operand(bench *b, heed_dtype dtype, int rank, const int64_t *dims)
{
    heed_tensor *t =
        uniform_tensor(b, dtype, heed_dtype_is_float(dtype) ? -1 : -9, heed_dtype_is_float(dtype) ? 1 : 9, rank, dims);
    if (dtype == HEED_U32 || dtype == HEED_U64)
        for (int64_t i = 0; i < heed_tensor_count(t); i++) put(t, i, (double) between(b, 0, 9));
    return t;
}

/* a[.., m, k] . b[.., k, n] at an index of the output, the batch broadcast; *size is the sum of magnitudes. */
static double product_at(const heed_tensor *a, const heed_tensor *w, const int64_t *index, int n_batch, int64_t i, int64_t j,
                         int trans_a, int trans_b, double *size)
{
    int64_t k = a->rank == 1 ? a->dims[0] : a->dims[a->rank - 1 - trans_a];
    double sum = 0;
    *size = 0;
    for (int64_t x = 0; x < k; x++) {
        int64_t at_a[HEED_RANK_MAX + 2], at_w[HEED_RANK_MAX + 2];
        memcpy(at_a, index, (size_t) n_batch * sizeof *index);
        memcpy(at_w, index, (size_t) n_batch * sizeof *index);
        at_a[n_batch] = trans_a ? x : i, at_a[n_batch + 1] = trans_a ? i : x;
        at_w[n_batch] = trans_b ? j : x, at_w[n_batch + 1] = trans_b ? x : j;
        double p = get_at(a, at_a, n_batch + 2);
        if (w->rank == 1) p *= get(w, x * w->strides[0]);
        else p *= get_at(w, at_w, n_batch + 2);
        sum += p, *size += fabs(p);
    }
    return sum;
}

static void check_matmul(bench *b, heed_node *node, const heed_tensor *const *in, int trans_a, int trans_b, double alpha)
{
    expect_node(b, node, in);
    const heed_tensor *y = b->out[0];
    int na = in[0]->rank > 2 ? in[0]->rank - 2 : 0, nb = in[1]->rank > 2 ? in[1]->rank - 2 : 0, n_batch = na > nb ? na : nb;
    for (int64_t e = 0; e < heed_tensor_count(y); e++) {
        int64_t index[HEED_RANK_MAX + 2] = { 0 };
        unravel(y, e, index);
        int64_t i = in[0]->rank == 1 ? 0 : index[n_batch], j = in[1]->rank == 1 ? 0 : index[y->rank - 1];
        double size, want = alpha * product_at(in[0], in[1], index, n_batch, i, j, trans_a, trans_b, &size);
        double error = heed_dtype_is_float(y->dtype) ? rounding(y->dtype) * fabs(want) + 4e-7 * size + 1e-30 : 0;
        if (y->dtype == HEED_F16) error += 0x1p-24;
        expect_close(get(y, e), want, error, node->op, e);
    }
}

static void test_matmul_sizes(void **state)
{
    (void) state;
    bench b = bench_start();
    static const int64_t sizes[][3] = { { 1, 1, 1 },   { 1, 33, 7 },   { 2, 31, 16 },   { 3, 64, 40 },
                                        { 12, 32, 5 }, { 13, 65, 3 },  { 37, 17, 70 },  { 130, 33, 20 },
                                        { 5, 400, 9 }, { 1, 70, 600 }, { 6, 40, 1100 }, { 0, 3, 4 },
                                        { 3, 0, 4 },   { 3, 4, 0 },    { 500, 40, 2 },  { 2, 1, 530 } };
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (int t = 0; t < N_TYPES; t++) {
            for (unsigned constant = 0; constant < 2; constant++) {
                const heed_tensor *in[] = { operand(&b, types[t], DIMS(sizes[s][0], sizes[s][2])),
                                            operand(&b, types[t], DIMS(sizes[s][2], sizes[s][1])) };
                b.constants = constant << 1;
                check_matmul(&b, node_of(&b, "", "MatMul", 13, 2, 1), in, 0, 0, 1);
                expect_shape(b.out[0], DIMS(sizes[s][0], sizes[s][1]));
            }
        }
    }
    bench_end(&b);
}

static void test_matmul_broadcasts(void **state)
{
    (void) state;
    bench b = bench_start();
    static const struct {
        int ra;
        int64_t a[5];
        int rb;
        int64_t b[5];
        int ry;
        int64_t y[5];
    } cases[] = {
        { 1, { 5 }, 1, { 5 }, 0, { 0 } },
        { 1, { 5 }, 2, { 5, 3 }, 1, { 3 } },
        { 2, { 4, 5 }, 1, { 5 }, 1, { 4 } },
        { 1, { 5 }, 3, { 2, 5, 3 }, 2, { 2, 3 } },
        { 3, { 2, 4, 5 }, 1, { 5 }, 2, { 2, 4 } },
        { 3, { 2, 4, 5 }, 2, { 5, 3 }, 3, { 2, 4, 3 } },
        { 2, { 4, 5 }, 3, { 2, 5, 3 }, 3, { 2, 4, 3 } },
        { 4, { 3, 1, 4, 5 }, 3, { 2, 5, 3 }, 4, { 3, 2, 4, 3 } },
        { 4, { 1, 2, 4, 5 }, 4, { 3, 1, 5, 3 }, 4, { 3, 2, 4, 3 } },
        { 5, { 2, 3, 2, 1, 5 }, 2, { 5, 3 }, 5, { 2, 3, 2, 1, 3 } },
        { 4, { 0, 2, 4, 5 }, 4, { 1, 2, 5, 3 }, 4, { 0, 2, 4, 3 } },
        { 3, { 40, 9, 17 }, 3, { 40, 17, 20 }, 3, { 40, 9, 20 } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int t = 0; t < N_TYPES; t++) {
            for (unsigned constant = 0; constant < 2; constant++) {
                const heed_tensor *in[] = { operand(&b, types[t], cases[i].ra, cases[i].a),
                                            operand(&b, types[t], cases[i].rb, cases[i].b) };
                b.constants = constant << 1;
                check_matmul(&b, node_of(&b, "", "MatMul", 9, 2, 1), in, 0, 0, 1);
                expect_shape(b.out[0], cases[i].ry, cases[i].y);
            }
        }
    }
    bench_end(&b);
}

static void test_matmul_refuses(void **state)
{
    (void) state;
    bench b = bench_start();
    const heed_tensor *bad[] = { operand(&b, HEED_F32, DIMS(3, 4)), operand(&b, HEED_F32, DIMS(5, 6)) };
    assert_int_equal(run_node(&b, node_of(&b, "", "MatMul", 13, 2, 1), bad), HEED_ERR_ARGUMENT);
    assert_string_equal(heed_last_message(), "MatMul: shapes [3, 4] and [5, 6]: 4 columns against 5 rows");
    const heed_tensor *batch[] = { operand(&b, HEED_F32, DIMS(2, 3, 4)), operand(&b, HEED_F32, DIMS(3, 4, 6)) };
    assert_int_equal(run_node(&b, node_of(&b, "", "MatMul", 13, 2, 1), batch), HEED_ERR_ARGUMENT);
    const heed_tensor *mixed[] = { operand(&b, HEED_F32, DIMS(3, 4)), operand(&b, HEED_F16, DIMS(4, 6)) };
    assert_int_equal(run_node(&b, node_of(&b, "", "MatMul", 13, 2, 1), mixed), HEED_ERR_ARGUMENT);
    const heed_tensor *small[] = { operand(&b, HEED_I8, DIMS(3, 4)), operand(&b, HEED_I8, DIMS(4, 6)) };
    assert_int_equal(run_node(&b, node_of(&b, "", "MatMul", 13, 2, 1), small), HEED_ERR_UNSUPPORTED);
    bench_end(&b);
}

static void test_fused_matmul(void **state)
{
    (void) state;
    bench b = bench_start();
    for (int trans = 0; trans < 4; trans++) {
        for (unsigned constant = 0; constant < 2; constant++) {
            int ta = trans & 1, tb = trans >> 1;
            const heed_tensor *in[] = { operand(&b, HEED_F32, 3, ta ? (int64_t[]){ 3, 8, 5 } : (int64_t[]){ 3, 5, 8 }),
                                        operand(&b, HEED_F32, 3, tb ? (int64_t[]){ 1, 37, 8 } : (int64_t[]){ 1, 8, 37 }) };
            heed_node *node = node_of(&b, "com.microsoft", "FusedMatMul", 1, 2, 1);
            set_int(&b, node, "transA", ta), set_int(&b, node, "transB", tb), set_float(&b, node, "alpha", 0.25);
            b.constants = constant << 1;
            check_matmul(&b, node, in, ta, tb, 0.25);
        }
    }
    bench_end(&b);
}

static void check_gemm(bench *b, heed_dtype dtype, int trans, int c_rank, const int64_t *c_dims, double alpha, double beta)
{
    int ta = trans & 1, tb = trans >> 1;
    enum { M = 14, N = 35, K = 9 };
    const heed_tensor *in[] = { operand(b, dtype, 2, ta ? (int64_t[]){ K, M } : (int64_t[]){ M, K }),
                                operand(b, dtype, 2, tb ? (int64_t[]){ N, K } : (int64_t[]){ K, N }),
                                c_rank < 0 ? NULL : operand(b, dtype, c_rank, c_dims) };
    heed_node *node = node_of(b, "", "Gemm", 13, c_rank < 0 ? 2 : 3, 1);
    set_int(b, node, "transA", ta), set_int(b, node, "transB", tb);
    set_float(b, node, "alpha", alpha), set_float(b, node, "beta", beta);
    expect_node(b, node, in);
    expect_shape(b->out[0], DIMS(M, N));
    for (int64_t i = 0; i < M; i++) {
        for (int64_t j = 0; j < N; j++) {
            double size, want = alpha * product_at(in[0], in[1], &(int64_t){ 0 }, 0, i, j, ta, tb, &size);
            if (in[2]) want += beta * get_at(in[2], (int64_t[]){ i, j }, 2);
            double error = rounding(dtype) * fabs(want) + 1e-6 * (size + fabs(want)) + 1e-7;
            if (!heed_dtype_is_float(dtype)) want = trunc(want), error = 0;
            expect_close(get(b->out[0], i * N + j), want, error, "Gemm", i * N + j);
        }
    }
}

static void test_gemm(void **state)
{
    (void) state;
    bench b = bench_start();
    static const struct {
        int rank;
        int64_t dims[2];
    } shapes[] = {
        { -1, { 0 } }, { 0, { 0 } }, { 1, { 1 } }, { 1, { 35 } }, { 2, { 1, 35 } }, { 2, { 14, 1 } }, { 2, { 14, 35 } }
    };
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int trans = 0; trans < 4; trans++)
            for (int t = 0; t < N_TYPES; t++)
                for (b.constants = 0; b.constants < 4; b.constants += 2) {
                    check_gemm(&b, types[t], trans, shapes[s].rank, shapes[s].dims, 1, 1);
                    if (heed_dtype_is_float(types[t]) || types[t] == HEED_I32)
                        check_gemm(&b, types[t], trans, shapes[s].rank, shapes[s].dims, 0.5, 2);
                }
    bench_end(&b);
}

static double activate(const char *name, double x)
{
    if (strcmp(name, "gelu") == 0) return 0.5 * x * (1 + erf(x / sqrt(2)));
    if (strcmp(name, "gelu_tanh") == 0) return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    if (strcmp(name, "silu") == 0) return x / (1 + exp(-x));
    if (strcmp(name, "quick_gelu") == 0) return x / (1 + exp(-(double) 1.702f * x));
    if (strcmp(name, "relu") == 0) return x > 0 ? x : 0;
    return strcmp(name, "tanh") == 0 ? tanh(x) : x;
}

static void check_linear(bench *b, heed_dtype dtype, const char *activation, int transposed, int with_bias, int with_residual,
                         int64_t k)
{
    const int64_t rows[2] = { 3, 7 }, n = 45;
    const heed_tensor *in[] = { operand(b, dtype, DIMS(rows[0], rows[1], k)),
                                operand(b, dtype, 2, transposed ? (int64_t[]){ n, k } : (int64_t[]){ k, n }),
                                with_bias ? operand(b, dtype, DIMS(n)) : NULL,
                                with_residual ? operand(b, dtype, DIMS(rows[0], rows[1], n)) : NULL };
    heed_node *node = node_of(b, "heed", "Linear", 1, 4, 1);
    set_string(b, node, "activation", activation), set_int(b, node, "transposed", transposed);
    expect_node(b, node, in);
    for (int64_t e = 0; e < heed_tensor_count(b->out[0]); e++) {
        int64_t index[3];
        unravel(b->out[0], e, index);
        double size, x = product_at(in[0], in[1], index, 1, index[1], index[2], 0, transposed, &size);
        if (in[2]) x += get(in[2], index[2]);
        double want = activate(activation, x);
        if (in[3]) want += get(in[3], e);
        expect_close(get(b->out[0], e), want, rounding(dtype) * fabs(want) + 2e-6 * (size + 1) * (dtype == HEED_F64 ? 1e-6 : 1),
                     activation, e);
    }
}

static void test_linear(void **state)
{
    (void) state;
    bench b = bench_start();
    static const char *const activations[] = { "", "gelu", "gelu_tanh", "silu", "relu", "tanh", "quick_gelu" };
    for (int t = 0; t < N_FLOATS; t++)
        for (size_t a = 0; a < sizeof activations / sizeof *activations; a++)
            for (int options = 0; options < 8; options++) {
                b.constants = options & 1 ? 2 | 4 : 0;
                check_linear(&b, types[t], activations[a], options & 1, options >> 1 & 1, options >> 2, a == 1 ? 0 : 19);
            }
    heed_node *node = node_of(&b, "heed", "Linear", 1, 2, 1);
    set_string(&b, node, "activation", "swoosh");
    const heed_tensor *in[] = { operand(&b, HEED_F32, DIMS(2, 3)), operand(&b, HEED_F32, DIMS(3, 4)) };
    assert_int_equal(run_node(&b, node, in), HEED_ERR_ARGUMENT);
    bench_end(&b);
}

/* NaN and infinities go where arithmetic takes them, and nowhere else. */
static void test_special_values(void **state)
{
    (void) state;
    bench b = bench_start();
    for (b.constants = 0; b.constants < 4; b.constants += 2) {
        heed_tensor *x = operand(&b, HEED_F32, DIMS(20, 33)), *w = operand(&b, HEED_F32, DIMS(33, 50));
        put(x, 3 * 33 + 5, NAN);
        put(w, 7 * 50 + 49, INFINITY);
        put(x, 9 * 33 + 7, 0);
        const heed_tensor *in[] = { x, w };
        expect_node(&b, node_of(&b, "", "MatMul", 13, 2, 1), in);
        for (int64_t i = 0; i < 20; i++)
            for (int64_t j = 0; j < 50; j++) {
                double y = get(b.out[0], i * 50 + j);
                if (i == 3 || (i == 9 && j == 49)) assert_true(isnan(y));
                else if (j == 49) assert_true(isinf(y));
                else assert_true(isfinite(y));
            }
    }
    bench_end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul_sizes),   cmocka_unit_test(test_matmul_broadcasts),
        cmocka_unit_test(test_matmul_refuses), cmocka_unit_test(test_fused_matmul),
        cmocka_unit_test(test_gemm),           cmocka_unit_test(test_linear),
        cmocka_unit_test(test_special_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
