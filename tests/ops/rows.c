/* Softmax, the norms of rows and of channels, GELU and its relatives, RotaryEmbedding, against loops in double. */
#include "ops/bench_node.h"

static const heed_dtype types[] = { HEED_F32, HEED_F16, HEED_BF16, HEED_F64 };
enum { N_TYPES = sizeof types / sizeof *types };

static double tolerance(heed_dtype dtype, double value)
{
    return dtype == HEED_F64 ? 1e-12 * (1 + fabs(value))
                             : rounding(dtype) * fabs(value) + 4e-6 + (dtype == HEED_F16 ? 0x1p-24 : 0);
}

/* ---- softmax ---- */

static void check_softmax(bench *b, const char *op, int version, int64_t axis, heed_dtype dtype, int rank, const int64_t *dims)
{
    heed_tensor *x = uniform_tensor(b, dtype, -8, 8, rank, dims);
    heed_node *node = node_of(b, "", op, version, 1, 1);
    set_int(b, node, "axis", axis);
    expect_node(b, node, (const heed_tensor *const[]){ x });
    int at = (int) (axis < 0 ? axis + rank : axis);
    int64_t outer = 1, n = 1, inner = 1;
    for (int d = 0; d < rank; d++) {
        if (d < at) outer *= dims[d];
        else if (d == at || version < 13) n *= dims[d];
        else inner *= dims[d];
    }
    for (int64_t r = 0; r < outer * inner; r++) {
        int64_t base = r / inner * n * inner + r % inner;
        double max = -INFINITY, sum = 0;
        for (int64_t i = 0; i < n; i++) max = fmax(max, get(x, base + i * inner));
        for (int64_t i = 0; i < n; i++) sum += exp(get(x, base + i * inner) - max);
        for (int64_t i = 0; i < n; i++) {
            double shifted = get(x, base + i * inner) - max, want = op[0] == 'L' ? shifted - log(sum) : exp(shifted) / sum;
            expect_close(get(b->out[0], base + i * inner), want, tolerance(dtype, want), op, base + i * inner);
        }
    }
}

static void test_softmax(void **state)
{
    (void) state;
    bench b = bench_start();
    static const char *const names[] = { "Softmax", "LogSoftmax" };
    for (int t = 0; t < N_TYPES; t++)
        for (int k = 0; k < 2; k++)
            for (int64_t axis = -3; axis < 3; axis++) {
                check_softmax(&b, names[k], 13, axis, types[t], DIMS(3, 21, 18));
                check_softmax(&b, names[k], 11, axis, types[t], DIMS(3, 7, 18));
                check_softmax(&b, names[k], 13, axis, types[t], DIMS(2, 0, 5));
            }
    check_softmax(&b, "Softmax", 13, -1, HEED_F32, DIMS(70, 1000));
    bench_end(&b);
}

static void test_softmax_without_numbers(void **state)
{
    (void) state;
    bench b = bench_start();
    heed_tensor *x = tensor(&b, HEED_F32, DIMS(3, 40));
    for (int64_t i = 0; i < 40; i++)
        put(x, i, -INFINITY), put(x, 40 + i, i == 7 ? -1e30 : -INFINITY), put(x, 80 + i, i == 5 ? NAN : 1);
    expect_node(&b, node_of(&b, "", "Softmax", 13, 1, 1), (const heed_tensor *const[]){ x });
    for (int64_t i = 0; i < 40; i++) {
        assert_true(isnan(get(b.out[0], i))); /* 0 / 0 */
        assert_true(get(b.out[0], 40 + i) == (i == 7));
        assert_true(isnan(get(b.out[0], 80 + i)));
    }
    bench_end(&b);
}

/* ---- norms of rows ---- */

typedef struct row_norm {
    const char *domain, *op;
    int n_in, residual, scale, bias, input_bias, rms, sum; /* numbers of inputs, -1: none; sum: number of the output */
} row_norm;

static const row_norm row_norms[] = {
    { "", "LayerNormalization", 3, -1, 1, 2, -1, 0, -1 },
    { "", "RMSNormalization", 2, -1, 1, -1, -1, 1, -1 },
    { "", "SimplifiedLayerNormalization", 2, -1, 1, -1, -1, 1, -1 },
    { "com.microsoft", "SkipLayerNormalization", 5, 1, 2, 3, 4, 0, 3 },
    { "com.microsoft", "SkipSimplifiedLayerNormalization", 4, 1, 2, -1, 3, 1, 3 },
    { "heed", "LayerNorm", 4, 1, 2, 3, -1, 0, 1 },
    { "heed", "RmsNorm", 3, 1, 2, -1, -1, 1, 1 },
};

/* `without` leaves optional inputs out: bit i is input i. */
static void check_row_norm(bench *b, const row_norm *n, heed_dtype dtype, unsigned without, int64_t width)
{
    const int64_t dims[3] = { 2, 5, width };
    const heed_tensor *in[BENCH_MAX] = { uniform_tensor(b, dtype, -2, 3, 3, dims) };
    for (int k = 1; k < n->n_in; k++)
        if (!(without >> k & 1))
            in[k] = k == n->residual ? uniform_tensor(b, dtype, -1, 1, 3, dims) : uniform_tensor(b, dtype, -1, 2, DIMS(width));
    int n_out = n->sum > 0 ? n->sum + 1 : 1;
    heed_node *node = node_of(b, n->domain, n->op, 23, n->n_in, n_out);
    set_float(b, node, "epsilon", 1e-3);
    expect_node(b, node, in);
    for (int64_t r = 0; r < 10; r++) {
        double mean = 0, square = 0;
        double *x = heed_arena_alloc(b->graph->arena, (size_t) (width + 1) * sizeof *x);
        for (int64_t j = 0; j < width; j++) {
            x[j] = get(in[0], r * width + j);
            if (n->residual >= 0 && in[n->residual]) x[j] += get(in[n->residual], r * width + j);
            if (n->input_bias >= 0 && in[n->input_bias]) x[j] += get(in[n->input_bias], j);
            if (n->sum > 0) expect_close(get(b->out[n->sum], r * width + j), x[j], tolerance(dtype, x[j]), "sum", r * width + j);
            mean += x[j] / (double) width;
        }
        if (n->rms) mean = 0;
        for (int64_t j = 0; j < width; j++) square += (x[j] - mean) * (x[j] - mean) / (double) width;
        for (int64_t j = 0; j < width; j++) {
            double want = (x[j] - mean) / sqrt(square + (double) 1e-3f);
            if (n->scale >= 0 && in[n->scale]) want *= get(in[n->scale], j);
            if (n->bias >= 0 && in[n->bias]) want += get(in[n->bias], j);
            expect_close(get(b->out[0], r * width + j), want, tolerance(dtype, want), n->op, r * width + j);
        }
    }
}

static void test_row_norms(void **state)
{
    (void) state;
    bench b = bench_start();
    for (size_t k = 0; k < sizeof row_norms / sizeof *row_norms; k++) {
        const row_norm *n = &row_norms[k];
        unsigned optional = 0;
        if (n->bias >= 0) optional |= 1u << n->bias;
        if (n->input_bias >= 0) optional |= 1u << n->input_bias;
        if (strcmp(n->domain, "heed") == 0) optional |= 1u << n->scale | 1u << n->residual;
        for (int t = 0; t < N_TYPES; t++)
            for (unsigned without = 0; without <= optional; without++)
                if ((without & ~optional) == 0)
                    for (int64_t width = 1; width < 100; width += 31) check_row_norm(&b, n, types[t], without, width);
    }
    bench_end(&b);
}

/* Several axes, a scale that repeats, a residual without a batch, statistics as outputs. */
static void test_layer_norm_forms(void **state)
{
    (void) state;
    bench b = bench_start();
    heed_tensor *x = uniform_tensor(&b, HEED_F32, -1, 1, DIMS(2, 3, 4, 5)),
                *scale = uniform_tensor(&b, HEED_F32, -1, 1, DIMS(4, 1));
    heed_node *node = node_of(&b, "", "LayerNormalization", 17, 2, 3);
    set_int(&b, node, "axis", 2);
    expect_node(&b, node, (const heed_tensor *const[]){ x, scale });
    expect_shape(b.out[1], DIMS(2, 3, 1, 1));
    for (int64_t r = 0; r < 6; r++) {
        double mean = 0, square = 0;
        for (int64_t j = 0; j < 20; j++) mean += get(x, r * 20 + j) / 20;
        for (int64_t j = 0; j < 20; j++) square += pow(get(x, r * 20 + j) - mean, 2) / 20;
        double inverse = 1 / sqrt(square + 1e-5);
        expect_close(get(b.out[1], r), mean, 1e-6, "mean", r);
        expect_close(get(b.out[2], r), inverse, 1e-5 * inverse, "inverse", r);
        for (int64_t j = 0; j < 20; j++)
            expect_close(get(b.out[0], r * 20 + j), (get(x, r * 20 + j) - mean) * inverse * get(scale, j / 5), 1e-5, "y",
                         r * 20 + j);
    }
    heed_tensor *rows = uniform_tensor(&b, HEED_F32, -1, 1, DIMS(2, 3, 8)),
                *skip = uniform_tensor(&b, HEED_F32, -1, 1, DIMS(3, 8));
    heed_tensor *gamma = uniform_tensor(&b, HEED_F32, 1, 2, DIMS(8));
    expect_node(&b, node_of(&b, "com.microsoft", "SkipLayerNormalization", 1, 3, 4),
                (const heed_tensor *const[]){ rows, skip, gamma });
    for (int64_t e = 0; e < 48; e++) expect_close(get(b.out[3], e), get(rows, e) + get(skip, e % 24), 1e-6, "sum", e);
    heed_tensor *wrong = uniform_tensor(&b, HEED_F32, 1, 2, DIMS(7));
    assert_int_equal(run_node(&b, node_of(&b, "", "LayerNormalization", 17, 2, 1), (const heed_tensor *const[]){ rows, wrong }),
                     HEED_ERR_ARGUMENT);
    bench_end(&b);
}

/* ---- norms of channels ---- */

static void check_channel_norm(bench *b, const char *op, int version, int64_t groups, heed_dtype dtype, double offset)
{
    enum { N = 2, C = 6, PLANE = 5 * 7 };
    int batch = op[0] == 'B', per_group = op[0] == 'G' && version < 21;
    int64_t width = per_group ? groups : C, in_group = C / groups;
    heed_tensor *x = uniform_tensor(b, dtype, offset - 1, offset + 1, DIMS(N, C, 5, 7));
    const heed_tensor *in[] = { x, uniform_tensor(b, dtype, -1, 2, DIMS(width)), uniform_tensor(b, dtype, -1, 2, DIMS(width)),
                                uniform_tensor(b, dtype, -1, 1, DIMS(C)), uniform_tensor(b, dtype, 0.5, 2, DIMS(C)) };
    heed_node *node = node_of(b, "", op, version, batch ? 5 : 3, 1);
    if (op[0] == 'G') set_int(b, node, "num_groups", groups);
    expect_node(b, node, in);
    for (int64_t g = 0; g < N * groups; g++) {
        int64_t first = g * in_group * PLANE, count = in_group * PLANE;
        double mean = 0, square = 0;
        for (int64_t i = 0; i < count; i++) mean += get(x, first + i) / (double) count;
        for (int64_t i = 0; i < count; i++) square += pow(get(x, first + i) - mean, 2) / (double) count;
        for (int64_t i = 0; i < count; i++) {
            int64_t c = g % groups * in_group + i / PLANE, p = per_group ? g % groups : c;
            double m = batch ? get(in[3], c) : mean, v = batch ? get(in[4], c) : square;
            double want = (get(x, first + i) - m) / sqrt(v + 1e-5) * get(in[1], p) + get(in[2], p);
            expect_close(get(b->out[0], first + i), want, 2 * tolerance(dtype, want) + 1e-7, op, first + i);
        }
    }
}

static void test_channel_norms(void **state)
{
    (void) state;
    bench b = bench_start();
    for (int t = 0; t < N_TYPES; t++) {
        check_channel_norm(&b, "BatchNormalization", 15, 6, types[t], 0);
        check_channel_norm(&b, "InstanceNormalization", 6, 6, types[t], 0);
        for (int64_t groups = 1; groups <= 6; groups += groups == 3 ? 3 : 1) {
            check_channel_norm(&b, "GroupNormalization", 18, groups, types[t], 0);
            check_channel_norm(&b, "GroupNormalization", 21, groups, types[t], 0);
        }
    }
    check_channel_norm(&b, "GroupNormalization", 21, 3, HEED_F32, 1000); /* a mean far from 0 costs no digits */
    bench_end(&b);
}

/* ---- activations ---- */

static double gelu(double x)
{
    return 0.5 * x * (1 + erf(x / sqrt(2)));
}

static double gelu_tanh(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static double quick_gelu(double x)
{
    return x / (1 + exp(-(double) 1.702f * x));
}

static void test_activations(void **state)
{
    (void) state;
    bench b = bench_start();
    static const struct {
        const char *domain, *op, *approximate;
        double (*f)(double);
        int n_in;
    } cases[] = {
        { "", "Gelu", "none", gelu, 1 },
        { "", "Gelu", "tanh", gelu_tanh, 1 },
        { "", "Swish", "", silu, 1 },
        { "heed", "Gelu", "none", gelu, 1 },
        { "heed", "Gelu", "tanh", gelu_tanh, 1 },
        { "heed", "Silu", "", silu, 1 },
        { "heed", "QuickGelu", "", quick_gelu, 1 },
        { "com.microsoft", "Gelu", "", gelu, 1 },
        { "com.microsoft", "QuickGelu", "", quick_gelu, 1 },
        { "com.microsoft", "BiasGelu", "", gelu, 2 },
        { "com.microsoft", "FastGelu", "", gelu_tanh, 2 },
        { "com.microsoft", "FastGelu", "", gelu_tanh, 1 },
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        for (int t = 0; t < N_TYPES; t++)
            for (int64_t width = 37; width < 3000; width += 2000) {
                const heed_tensor *in[] = { uniform_tensor(&b, types[t], -6, 6, DIMS(17, width)),
                                            uniform_tensor(&b, types[t], -1, 1, DIMS(width)) };
                heed_node *node = node_of(&b, cases[k].domain, cases[k].op, 24, cases[k].n_in, 1);
                if (*cases[k].approximate) set_string(&b, node, "approximate", cases[k].approximate);
                expect_node(&b, node, in);
                for (int64_t e = 0; e < heed_tensor_count(in[0]); e++) {
                    double want = cases[k].f(get(in[0], e) + (cases[k].n_in > 1 ? get(in[1], e % width) : 0));
                    expect_close(get(b.out[0], e), want, tolerance(types[t], want), cases[k].op, e);
                }
            }
    bench_end(&b);
}

/* ---- rotation ---- */

static void check_rotary(bench *b, int contrib, int interleaved, int with_positions, int rank, int64_t rotated, heed_dtype dtype)
{
    enum { B = 2, H = 3, S = 4, D = 10, MOST = 9 };
    int64_t half = (rotated ? rotated : D) / 2;
    heed_tensor *x =
        rank == 4 ? uniform_tensor(b, dtype, -1, 1, DIMS(B, H, S, D)) : uniform_tensor(b, dtype, -1, 1, DIMS(B, S, H * D));
    heed_tensor *cosines =
        with_positions ? uniform_tensor(b, dtype, -1, 1, DIMS(MOST, half)) : uniform_tensor(b, dtype, -1, 1, DIMS(B, S, half));
    heed_tensor *sines =
        with_positions ? uniform_tensor(b, dtype, -1, 1, DIMS(MOST, half)) : uniform_tensor(b, dtype, -1, 1, DIMS(B, S, half));
    heed_tensor *positions = with_positions ? tensor(b, HEED_I64, DIMS(B, S)) : NULL;
    for (int64_t i = 0; positions && i < B * S; i++) put(positions, i, (double) between(b, 0, MOST - 1));
    const heed_tensor *onnx[] = { x, cosines, sines, positions }, *microsoft[] = { x, positions, cosines, sines };
    heed_node *node = node_of(b, contrib ? "com.microsoft" : "", "RotaryEmbedding", 23, 4, 1);
    set_int(b, node, "interleaved", interleaved), set_int(b, node, "num_heads", H),
        set_int(b, node, "rotary_embedding_dim", rotated);
    expect_node(b, node, contrib ? microsoft : onnx);
    for (int64_t e = 0; e < B * H * S * D; e++) {
        int64_t d = e % D, s = rank == 4 ? e / D % S : e / (H * D) % S, batch = e / (H * S * D),
                i = interleaved ? d / 2 : d % half;
        int64_t row = (with_positions ? (int64_t) get(positions, batch * S + s) : batch * S + s) * half, first = e - d;
        double want = get(x, e);
        if (d < 2 * half) {
            double c = get(cosines, row + i), n = get(sines, row + i);
            double x1 = get(x, first + (interleaved ? 2 * i : i)), x2 = get(x, first + (interleaved ? 2 * i + 1 : i + half));
            want = (interleaved ? d % 2 == 0 : d < half) ? c * x1 - n * x2 : n * x1 + c * x2;
        }
        expect_close(get(b->out[0], e), want, tolerance(dtype, want), "RotaryEmbedding", e);
    }
}

static void test_rotary(void **state)
{
    (void) state;
    bench b = bench_start();
    for (int t = 0; t < 3; t++)
        for (int options = 0; options < 32; options++) {
            int contrib = options & 1, with_positions = contrib || options >> 2 & 1;
            check_rotary(&b, contrib, options >> 1 & 1, with_positions, options & 8 ? 3 : 4, options & 16 ? 6 : 0, types[t]);
        }
    heed_tensor *x = uniform_tensor(&b, HEED_F32, -1, 1, DIMS(1, 1, 2, 4)),
                *cache = uniform_tensor(&b, HEED_F32, -1, 1, DIMS(5, 2));
    heed_tensor *positions = tensor(&b, HEED_I64, DIMS(1, 2));
    put(positions, 1, 5);
    assert_int_equal(
        run_node(&b, node_of(&b, "", "RotaryEmbedding", 23, 4, 1), (const heed_tensor *const[]){ x, cache, cache, positions }),
        HEED_ERR_ARGUMENT);
    put(positions, 1, -1);
    assert_int_equal(
        run_node(&b, node_of(&b, "", "RotaryEmbedding", 23, 4, 1), (const heed_tensor *const[]){ x, cache, cache, positions }),
        HEED_ERR_ARGUMENT);
    bench_end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_softmax),       cmocka_unit_test(test_softmax_without_numbers),
        cmocka_unit_test(test_row_norms),     cmocka_unit_test(test_layer_norm_forms),
        cmocka_unit_test(test_channel_norms), cmocka_unit_test(test_activations),
        cmocka_unit_test(test_rotary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
