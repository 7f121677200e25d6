/* Conv and the pools against loops in double: one to three axes, padding of every kind, strides, dilations, groups, depthwise,
 * more output than fits one chunk of patches. */
#include "ops/bench_node.h"

static const heed_dtype types[] = { HEED_F32, HEED_F16, HEED_BF16, HEED_F64 };
enum { N_TYPES = sizeof types / sizeof *types };

typedef struct shape {
    int n; /* spatial axes */
    int64_t in[3], kernel[3], stride[3], dilation[3], pads[6], out[3];
    const char *auto_pad;
} shape;

/* Sizes by the definition, counted: output positions whose window fits into the padded input. */
static void fill_out(shape *s, int ceil_mode)
{
    for (int d = 0; d < s->n; d++) {
        int64_t reach = (s->kernel[d] - 1) * s->dilation[d] + 1, total = 0;
        if (strncmp(s->auto_pad, "SAME", 4) == 0) {
            s->out[d] = (s->in[d] + s->stride[d] - 1) / s->stride[d];
            total = (s->out[d] - 1) * s->stride[d] + reach - s->in[d];
            if (total < 0) total = 0;
            s->pads[d] = s->auto_pad[5] == 'U' ? total / 2 : total - total / 2;
            s->pads[s->n + d] = total - s->pads[d];
            continue;
        }
        s->out[d] = 0;
        for (int64_t first = -s->pads[d];; first += s->stride[d]) {
            int64_t past = first + reach - (s->in[d] + s->pads[s->n + d]);
            if (past > 0 && !(ceil_mode && past < s->stride[d] && first < s->in[d])) break;
            s->out[d]++;
        }
    }
}

static void set_window(bench *b, heed_node *node, const shape *s)
{
    set_ints(b, node, "kernel_shape", s->n, s->kernel);
    set_ints(b, node, "strides", s->n, s->stride);
    set_ints(b, node, "dilations", s->n, s->dilation);
    set_string(b, node, "auto_pad", s->auto_pad);
    if (strcmp(s->auto_pad, "NOTSET") == 0) set_ints(b, node, "pads", 2 * s->n, s->pads);
}

static int64_t product(const int64_t *dims, int n)
{
    int64_t p = 1;
    for (int d = 0; d < n; d++) p *= dims[d];
    return p;
}

static void split(const int64_t *dims, int n, int64_t i, int64_t *index)
{
    for (int d = n - 1; d >= 0; d--) index[d] = i % dims[d], i /= dims[d];
}

/* Element of the input plane under tap t of the window at output o, -1 outside. */
static int64_t under(const shape *s, int64_t o, int64_t t)
{
    int64_t at_o[3], at_t[3], i = 0;
    split(s->out, s->n, o, at_o);
    split(s->kernel, s->n, t, at_t);
    for (int d = 0; d < s->n; d++) {
        int64_t at = at_o[d] * s->stride[d] - s->pads[d] + at_t[d] * s->dilation[d];
        if (at < 0 || at >= s->in[d]) return -1;
        i = i * s->in[d] + at;
    }
    return i;
}

/* Positions that count as padding do not go past the padded input. */
static int in_padding(const shape *s, int64_t o, int64_t t)
{
    int64_t at_o[3], at_t[3];
    split(s->out, s->n, o, at_o);
    split(s->kernel, s->n, t, at_t);
    for (int d = 0; d < s->n; d++)
        if (at_o[d] * s->stride[d] - s->pads[d] + at_t[d] * s->dilation[d] >= s->in[d] + s->pads[s->n + d]) return 0;
    return 1;
}

static shape random_shape(bench *b, int n)
{
    static const char *const pads[] = { "NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER" };
    shape s = { .n = n, .auto_pad = pads[between(b, 0, 4)] };
    for (int d = 0; d < n; d++) {
        s.kernel[d] = between(b, 1, 4), s.stride[d] = between(b, 1, 3), s.dilation[d] = between(b, 1, 2);
        s.in[d] = (s.kernel[d] - 1) * s.dilation[d] + 1 + between(b, 0, 8);
        if (strcmp(s.auto_pad, "NOTSET") == 0)
            s.pads[d] = between(b, 0, s.kernel[d] - 1), s.pads[n + d] = between(b, 0, s.kernel[d] - 1);
    }
    return s;
}

static void check_conv(bench *b, const shape *s, heed_dtype dtype, int64_t images, int64_t group, int64_t in_group,
                       int64_t out_group, int with_bias)
{
    int64_t channels = group * in_group, outs = group * out_group, x_dims[5] = { images, channels },
            w_dims[5] = { outs, in_group };
    memcpy(x_dims + 2, s->in, (size_t) s->n * sizeof *x_dims);
    memcpy(w_dims + 2, s->kernel, (size_t) s->n * sizeof *w_dims);
    heed_tensor *x = uniform_tensor(b, dtype, -1, 1, 2 + s->n, x_dims), *w = uniform_tensor(b, dtype, -1, 1, 2 + s->n, w_dims);
    heed_tensor *bias = with_bias ? uniform_tensor(b, dtype, -1, 1, DIMS(outs)) : NULL;
    heed_node *node = node_of(b, "", "Conv", 11, 3, 1);
    set_window(b, node, s), set_int(b, node, "group", group);
    expect_node(b, node, (const heed_tensor *const[]){ x, w, bias });
    for (int d = 0; d < s->n; d++) assert_int_equal(b->out[0]->dims[2 + d], s->out[d]);
    int64_t plane = product(s->in, s->n), out = product(s->out, s->n), taps = product(s->kernel, s->n);
    for (int64_t e = 0; e < images * outs * out; e += 1 + (images * outs * out > 20000) * 97) {
        int64_t o = e % out, m = e / out % outs, image = e / out / outs;
        double want = bias ? get(bias, m) : 0, size = fabs(want);
        for (int64_t c = 0; c < in_group; c++)
            for (int64_t t = 0; t < taps; t++) {
                int64_t at = under(s, o, t);
                if (at < 0) continue;
                double p = get(x, (image * channels + m / out_group * in_group + c) * plane + at) *
                           get(w, (m * in_group + c) * taps + t);
                want += p, size += fabs(p);
            }
        expect_close(get(b->out[0], e), want, rounding(dtype) * fabs(want) + (dtype == HEED_F64 ? 1e-13 : 1e-6) * size + 0x1p-24,
                     "Conv", e);
    }
}

static void test_conv(void **state)
{
    (void) state;
    bench b = bench_start();
    static const int64_t groups[][3] = { { 1, 3, 5 }, { 1, 1, 1 }, { 2, 3, 2 }, { 4, 1, 1 }, { 3, 1, 2 }, { 1, 0, 2 } };
    for (int n = 1; n <= 3; n++)
        for (int round = 0; round < 12; round++)
            for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
                shape s = random_shape(&b, n);
                fill_out(&s, 0);
                check_conv(&b, &s, types[between(&b, 0, N_TYPES - 1)], between(&b, 0, 3), groups[g][0], groups[g][1],
                           groups[g][2], round & 1);
            }
    /* Direct (1 x 1), and more patches than fit one chunk. */
    shape one = { 2, { 9, 11 }, { 1, 1 }, { 1, 1 }, { 1, 1 }, { 0 }, { 9, 11 }, "VALID" };
    for (int t = 0; t < N_TYPES; t++) check_conv(&b, &one, types[t], 2, 2, 5, 7, 1);
    shape large = { 2, { 120, 130 }, { 3, 3 }, { 1, 1 }, { 1, 1 }, { 1, 1, 1, 1 }, { 120, 130 }, "NOTSET" };
    check_conv(&b, &large, HEED_F32, 2, 1, 12, 2, 1);
    bench_end(&b);
}

static void test_conv_refuses(void **state)
{
    (void) state;
    bench b = bench_start();
    heed_tensor *x = uniform_tensor(&b, HEED_F32, -1, 1, DIMS(1, 4, 5)), *w = uniform_tensor(&b, HEED_F32, -1, 1, DIMS(2, 3, 3)),
                *wide = uniform_tensor(&b, HEED_F32, -1, 1, DIMS(2, 4, 7)),
                *fits = uniform_tensor(&b, HEED_F32, -1, 1, DIMS(2, 4, 3));
    assert_int_equal(run_node(&b, node_of(&b, "", "Conv", 11, 2, 1), (const heed_tensor *const[]){ x, w }), HEED_ERR_ARGUMENT);
    assert_string_equal(heed_last_message(), "Conv: x has 4 channels, w has 3 in each of 1 groups");
    assert_int_equal(run_node(&b, node_of(&b, "", "Conv", 11, 2, 1), (const heed_tensor *const[]){ x, wide }), HEED_ERR_ARGUMENT);
    static const int64_t bad[] = { -1, INT64_MAX, INT64_MIN };
    for (int k = 0; k < 3; k++) {
        static const char *const names[] = { "strides", "dilations", "pads" };
        for (int a = 0; a < 3; a++) {
            heed_node *node = node_of(&b, "", "Conv", 11, 2, 1);
            set_ints(&b, node, names[a], a == 2 ? 2 : 1, (int64_t[]){ bad[k], bad[k] });
            assert_int_equal(run_node(&b, node, (const heed_tensor *const[]){ x, fits }), HEED_ERR_ARGUMENT);
        }
    }
    bench_end(&b);
}

static void check_pool(bench *b, const char *op, const shape *s, heed_dtype dtype, int ceil_mode, int include_pad)
{
    int64_t x_dims[5] = { 2, 3 };
    memcpy(x_dims + 2, s->in, (size_t) s->n * sizeof *x_dims);
    heed_tensor *x = uniform_tensor(b, dtype, -50, 50, 2 + s->n, x_dims);
    int max = op[0] == 'M';
    heed_node *node = node_of(b, "", op, 19, 1, max ? 2 : 1);
    set_window(b, node, s), set_int(b, node, "ceil_mode", ceil_mode);
    if (!max) set_int(b, node, "count_include_pad", include_pad);
    expect_node(b, node, (const heed_tensor *const[]){ x });
    for (int d = 0; d < s->n; d++) assert_int_equal(b->out[0]->dims[2 + d], s->out[d]);
    int64_t plane = product(s->in, s->n), out = product(s->out, s->n), taps = product(s->kernel, s->n);
    for (int64_t e = 0; e < 6 * out; e++) {
        double best = -INFINITY, sum = 0;
        int64_t counted = 0, first = e / out * plane, index = -1;
        for (int64_t t = 0; t < taps; t++) {
            int64_t at = under(s, e % out, t);
            counted += include_pad ? in_padding(s, e % out, t) : at >= 0;
            if (at < 0) continue;
            double v = get(x, first + at);
            sum += v;
            if (index < 0 || v > best) best = v, index = first + at;
        }
        if (max && index < 0) continue; /* nothing but padding */
        double want = max ? best : counted ? sum / (double) counted : 0;
        expect_close(get(b->out[0], e), want, max ? 0 : rounding(dtype) * fabs(want) + 1e-4, op, e);
        if (max) assert_int_equal((int64_t) get(b->out[1], e), index);
    }
}

static void test_pools(void **state)
{
    (void) state;
    bench b = bench_start();
    for (int n = 1; n <= 3; n++)
        for (int round = 0; round < 40; round++) {
            shape s = random_shape(&b, n);
            int ceil_mode = round & 1 && strncmp(s.auto_pad, "SAME", 4) != 0;
            fill_out(&s, ceil_mode);
            check_pool(&b, "AveragePool", &s, types[round % N_TYPES], ceil_mode, round >> 1 & 1);
            static const heed_dtype of_max[] = { HEED_F32, HEED_F16, HEED_BF16, HEED_F64, HEED_I8 };
            check_pool(&b, "MaxPool", &s, of_max[round % 5], ceil_mode, 0);
        }
    bench_end(&b);
}

static void test_global_pools(void **state)
{
    (void) state;
    bench b = bench_start();
    for (int t = 0; t < N_TYPES; t++) {
        const heed_tensor *x = uniform_tensor(&b, types[t], -1, 1, DIMS(2, 3, 4, 5));
        for (int max = 0; max < 2; max++) {
            expect_node(&b, node_of(&b, "", max ? "GlobalMaxPool" : "GlobalAveragePool", 1, 1, 1), &x);
            expect_shape(b.out[0], DIMS(2, 3, 1, 1));
            for (int64_t p = 0; p < 6; p++) {
                double best = -INFINITY, sum = 0;
                for (int64_t i = 0; i < 20; i++) best = fmax(best, get(x, p * 20 + i)), sum += get(x, p * 20 + i);
                expect_close(get(b.out[0], p), max ? best : sum / 20, rounding(types[t]) + 1e-6, "global", p);
            }
        }
    }
    bench_end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conv),
        cmocka_unit_test(test_conv_refuses),
        cmocka_unit_test(test_pools),
        cmocka_unit_test(test_global_pools),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
