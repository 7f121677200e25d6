/* Operators that move elements: each against a rule "output index -> input index", as a view and as a copy. */
#include "ops/bench_node.h"

/* Numbered elements, so that each says where it came from. */
static heed_tensor *numbered(bench *b, heed_dtype type, int rank, const int64_t *dims)
{
    heed_tensor *t = tensor(b, type, rank, dims);
    for (int64_t k = 0; k < heed_tensor_count(t); k++) put(t, k, (double) (k % 120));
    return t;
}

static heed_tensor *ints(bench *b, int n, const int64_t *values)
{
    heed_tensor *t = tensor(b, HEED_I64, 1, (int64_t[]){ n });
    if (n) memcpy(t->data, values, (size_t) n * sizeof(int64_t));
    return t;
}

static const heed_dtype sizes[] = { HEED_U8, HEED_BF16, HEED_F32, HEED_F64 }; /* one of each size */

/* The operator's view of the first input, if it gives one, has the same elements as b->out. Also of an input in odd strides. */
static void expect_view(bench *b, const heed_node *node, const heed_tensor *const *in, int must)
{
    const heed_op *op = heed_op_find(node->domain, node->op, node->version);
    assert_non_null(op->view);
    for (int odd = 0; odd < 2; odd++) {
        heed_tensor views[BENCH_MAX], *outs[BENCH_MAX] = { NULL };
        const heed_tensor *seen[BENCH_MAX];
        for (int k = 0; k < node->n_inputs; k++) seen[k] = in[k];
        if (odd) seen[0] = restride(b, in[0]);
        for (int k = 0; k < node->n_outputs; k++) views[k] = *b->out[k], views[k].data = NULL, outs[k] = &views[k];
        heed_compute c = {
            .ctx = b->ctx, .node = node, .n_in = node->n_inputs, .n_out = node->n_outputs, .in = seen, .out = outs
        };
        int given = op->view(&c);
        if (must && !odd) assert_true(given);
        for (int k = 0; k < node->n_outputs && given; k++) {
            for (int64_t e = 0; e < heed_tensor_count(&views[k]); e++) {
                int64_t index[HEED_RANK_MAX], at = 0;
                unravel(&views[k], e, index);
                for (int d = 0; d < views[k].rank; d++) at += index[d] * views[k].strides[d];
                expect_close(get(&views[k], at), get(b->out[k], e), 0, node->op, e);
            }
        }
    }
}

/* ---- Reshape and its kin: elements stay in order ---- */

static void check_order(bench *b, heed_node *node, const heed_tensor *const *in, int rank, const int64_t *dims)
{
    expect_node(b, node, in);
    expect_shape(b->out[0], rank, dims);
    for (int64_t k = 0; k < heed_tensor_count(in[0]); k++) expect_close(get(b->out[0], k), get(in[0], k), 0, node->op, k);
    expect_view(b, node, in, 1);
}

static void test_reshape(void **state)
{
    (void) state;
    bench b = bench_start();
    static const struct {
        int rank, n, want_rank;
        int64_t dims[5], shape[6], want[6];
        int allow_zero;
    } cases[] = {
        { 3, 2, 2, { 2, 3, 4 }, { 6, 4 }, { 6, 4 }, 0 },
        { 3, 3, 3, { 2, 3, 4 }, { 0, -1, 2 }, { 2, 6, 2 }, 0 },
        { 3, 1, 1, { 2, 3, 4 }, { -1 }, { 24 }, 0 },
        { 1, 0, 0, { 1 }, { 0 }, { 0 }, 0 },
        { 4, 6, 6, { 2, 6, 1, 4 }, { 2, 1, 2, 3, 4, 1 }, { 2, 1, 2, 3, 4, 1 }, 0 },
        { 2, 3, 3, { 0, 3 }, { 0, 3, 7 }, { 0, 3, 7 }, 0 },
        { 2, 2, 2, { 0, 3 }, { 5, 0 }, { 5, 0 }, 1 },
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        for (int t = 0; t < 4; t++) {
            heed_node *node = node_of(&b, "", "Reshape", 14, 2, 1);
            set_int(&b, node, "allowzero", cases[c].allow_zero);
            const heed_tensor *in[] = { numbered(&b, sizes[t], cases[c].rank, cases[c].dims),
                                        ints(&b, cases[c].n, cases[c].shape) };
            check_order(&b, node, in, cases[c].want_rank, cases[c].want);
        }
    }
    bench_end(&b);
}

static void test_squeeze_and_flatten(void **state)
{
    (void) state;
    bench b = bench_start();
    const heed_tensor *x = numbered(&b, HEED_F32, DIMS(1, 3, 1, 4)), *y = numbered(&b, HEED_F32, DIMS(3, 4));
    heed_node *old = node_of(&b, "", "Squeeze", 11, 1, 1), *old_un = node_of(&b, "", "Unsqueeze", 11, 1, 1);
    set_ints(&b, old, "axes", 2, (int64_t[]){ 0, -2 });
    set_ints(&b, old_un, "axes", 2, (int64_t[]){ -1, 0 });
    check_order(&b, old, &x, DIMS(3, 4));
    check_order(&b, old_un, &y, DIMS(1, 3, 4, 1));
    check_order(&b, node_of(&b, "", "Squeeze", 13, 1, 1), &x, DIMS(3, 4));
    check_order(&b, node_of(&b, "", "Squeeze", 13, 2, 1), (const heed_tensor *[]){ x, ints(&b, 1, (int64_t[]){ 2 }) },
                DIMS(1, 3, 4));
    check_order(&b, node_of(&b, "", "Unsqueeze", 13, 2, 1), (const heed_tensor *[]){ y, ints(&b, 2, (int64_t[]){ 1, 3 }) },
                DIMS(3, 1, 4, 1));
    for (int axis = -4; axis <= 4; axis++) {
        heed_node *node = node_of(&b, "", "Flatten", 13, 1, 1);
        set_int(&b, node, "axis", axis);
        int64_t first = 1;
        for (int d = 0; d < (axis < 0 ? axis + 4 : axis); d++) first *= x->dims[d];
        check_order(&b, node, &x, DIMS(first, 12 / first));
    }
    bench_end(&b);
}

/* ---- Transpose, Expand ---- */

static void test_transpose(void **state)
{
    (void) state;
    bench b = bench_start();
    static const int64_t perms[][4] = { { 0, 2, 1, 3 }, { 0, 2, 3, 1 }, { 3, 2, 1, 0 }, { 1, 0, 3, 2 }, { 0, 1, 2, 3 } };
    for (int t = 0; t < 4; t++) {
        for (int p = 0; p < 6; p++) {
            const heed_tensor *x = numbered(&b, sizes[t], DIMS(2, 35, 3, 20));
            heed_node *node = node_of(&b, "", "Transpose", 13, 1, 1);
            if (p < 5) set_ints(&b, node, "perm", 4, perms[p]);
            expect_node(&b, node, &x);
            for (int64_t e = 0; e < heed_tensor_count(x); e++) {
                int64_t index[HEED_RANK_MAX], from[HEED_RANK_MAX];
                unravel(b.out[0], e, index);
                for (int d = 0; d < 4; d++) from[p < 5 ? perms[p][d] : 3 - d] = index[d];
                expect_close(get(b.out[0], e), get_at(x, from, 4), 0, "Transpose", e);
            }
            expect_view(&b, node, &x, 1);
        }
    }
    bench_end(&b);
}

static void test_expand(void **state)
{
    (void) state;
    bench b = bench_start();
    static const struct {
        int rank, n, want_rank;
        int64_t dims[4], shape[4], want[4];
    } cases[] = { { 2, 2, 2, { 3, 1 }, { 3, 5 }, { 3, 5 } },    { 2, 3, 3, { 3, 1 }, { 2, 1, 6 }, { 2, 3, 6 } },
                  { 3, 1, 3, { 2, 1, 4 }, { 4 }, { 2, 1, 4 } }, { 0, 2, 2, { 0 }, { 2, 3 }, { 2, 3 } },
                  { 2, 2, 2, { 3, 1 }, { 1, 0 }, { 3, 0 } },    { 4, 4, 4, { 1, 2, 1, 3 }, { 2, 2, 4, 3 }, { 2, 2, 4, 3 } } };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const heed_tensor *in[] = { numbered(&b, HEED_F32, cases[c].rank, cases[c].dims), ints(&b, cases[c].n, cases[c].shape) };
        heed_node *node = node_of(&b, "", "Expand", 13, 2, 1);
        expect_node(&b, node, in);
        expect_shape(b.out[0], cases[c].want_rank, cases[c].want);
        for (int64_t e = 0; e < heed_tensor_count(b.out[0]); e++) {
            int64_t index[HEED_RANK_MAX];
            unravel(b.out[0], e, index);
            expect_close(get(b.out[0], e), get_at(in[0], index, b.out[0]->rank), 0, "Expand", e);
        }
        expect_view(&b, node, in, 1);
    }
    bench_end(&b);
}

/* ---- Slice, Split, Concat ---- */

/* Python's x[start:end:step] by walking. */
static int64_t walk(int64_t start, int64_t end, int64_t step, int64_t n, int64_t *positions)
{
    long double s = start, e = end, at;
    if (s < 0) s += n;
    if (e < 0) e += n;
    if (s < 0) s = 0;
    if (step > 0 ? s > n : s > n - 1) s = step > 0 ? n : n - 1;
    int64_t count = 0;
    for (at = s; step > 0 ? at < e && at < n : at > e && at >= 0; at += step) positions[count++] = (int64_t) at;
    return count;
}

static void test_slice(void **state)
{
    (void) state;
    bench b = bench_start();
    static const int64_t edges[] = { 0, 1, 3, 6, 7, 8, 100, -1, -3, -7, -8, -100, INT64_MAX, INT64_MIN };
    static const int64_t steps[] = { 1, 2, 3, -1, -2, 7, -100, INT64_MAX, INT64_MIN };
    enum { N = sizeof edges / sizeof *edges, S = sizeof steps / sizeof *steps };
    const heed_tensor *x = numbered(&b, HEED_F32, DIMS(2, 7, 5));
    for (int s = 0; s < N * N * S; s++) {
        int64_t start = edges[s % N], end = edges[s / N % N], step = steps[s / N / N], positions[16];
        int64_t n = walk(start, end, step, 7, positions);
        heed_node *node = node_of(&b, "", "Slice", 13, 5, 1);
        const heed_tensor *in[] = { x, ints(&b, 1, &start), ints(&b, 1, &end), ints(&b, 1, (int64_t[]){ -2 }),
                                    ints(&b, 1, &step) };
        expect_node(&b, node, in);
        expect_shape(b.out[0], DIMS(2, n, 5));
        for (int64_t e = 0; e < heed_tensor_count(b.out[0]); e++) {
            int64_t index[HEED_RANK_MAX];
            unravel(b.out[0], e, index);
            index[1] = positions[index[1]];
            expect_close(get(b.out[0], e), get_at(x, index, 3), 0, "Slice", e);
        }
        expect_view(&b, node, in, 1);
    }
    /* Axes and steps left out. */
    const heed_tensor *in[] = { x, ints(&b, 2, (int64_t[]){ 1, 2 }), ints(&b, 2, (int64_t[]){ 2, -1 }) };
    expect_node(&b, node_of(&b, "", "Slice", 13, 3, 1), in);
    expect_shape(b.out[0], DIMS(1, 4, 5));
    expect_close(get(b.out[0], 0), 35 + 10, 0, "Slice", 0);
    bench_end(&b);
}

static void test_split_and_concat(void **state)
{
    (void) state;
    bench b = bench_start();
    static const struct {
        int version, n, with_sizes;
        int64_t sizes[4];
    } cases[] = { { 11, 3, 0, { 4, 4, 4 } },    { 11, 2, 1, { 5, 7 } }, { 13, 3, 2, { 0, 11, 1 } },
                  { 18, 4, 0, { 3, 3, 3, 3 } }, { 13, 2, 0, { 6, 6 } }, { 18, 2, 2, { 2, 10 } } };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        for (int axis = 0; axis < 3; axis++) {
            int64_t dims[3] = { 5, 2, 3 };
            dims[axis] = 12;
            int as_input = cases[c].with_sizes == 2;
            heed_node *node = node_of(&b, "", "Split", cases[c].version, as_input ? 2 : 1, cases[c].n);
            set_int(&b, node, "axis", axis - 3);
            if (cases[c].with_sizes == 1) set_ints(&b, node, "split", cases[c].n, cases[c].sizes);
            if (cases[c].version >= 18 && !as_input) set_int(&b, node, "num_outputs", cases[c].n);
            const heed_tensor *in[] = { numbered(&b, HEED_F16, 3, dims), ints(&b, cases[c].n, cases[c].sizes) };
            expect_node(&b, node, in);
            expect_view(&b, node, in, 1);
            int64_t at = 0;
            for (int k = 0; k < cases[c].n; at += cases[c].sizes[k++]) {
                assert_int_equal(b.out[k]->dims[axis], cases[c].sizes[k]);
                for (int64_t e = 0; e < heed_tensor_count(b.out[k]); e++) {
                    int64_t index[HEED_RANK_MAX];
                    unravel(b.out[k], e, index);
                    index[axis] += at;
                    expect_close(get(b.out[k], e), get_at(in[0], index, 3), 0, "Split", e);
                }
            }
            heed_node *back = node_of(&b, "", "Concat", 13, cases[c].n, 1); /* and together again */
            set_int(&b, back, "axis", axis);
            const heed_tensor *parts[4] = { b.out[0], b.out[1], b.out[2], b.out[3] };
            expect_node(&b, back, parts);
            expect_shape(b.out[0], 3, dims);
            for (int64_t e = 0; e < heed_tensor_count(in[0]); e++) expect_close(get(b.out[0], e), get(in[0], e), 0, "Concat", e);
        }
    }
    /* Since opset 18 the last part may be smaller, or empty. */
    heed_node *node = node_of(&b, "", "Split", 18, 1, 4);
    set_int(&b, node, "num_outputs", 4);
    const heed_tensor *nine = numbered(&b, HEED_F32, DIMS(9));
    expect_node(&b, node, &nine);
    const int64_t want[] = { 3, 3, 3, 0 };
    for (int k = 0; k < 4; k++) assert_int_equal(b.out[k]->dims[0], want[k]);
    bench_end(&b);
}

/* ---- Pad, Tile, DepthToSpace ---- */

static int64_t pad_from(const char *mode, int64_t at, int64_t n)
{
    if (at >= 0 && at < n) return at;
    if (strcmp(mode, "constant") == 0) return -1;
    if (strcmp(mode, "edge") == 0) return at < 0 ? 0 : n - 1;
    while (at < 0 || at >= n) {
        if (strcmp(mode, "wrap") == 0) at += at < 0 ? n : -n;
        else at = at < 0 ? -at : 2 * (n - 1) - at;
    }
    return at;
}

static void test_pad(void **state)
{
    (void) state;
    bench b = bench_start();
    static const char *const modes[] = { "constant", "reflect", "edge", "wrap" };
    static const int64_t pads[][6] = {
        { 0, 1, 2, 3, 0, 1 }, { 5, 9, 0, 0, 7, 0 }, { -1, 0, -2, 2, -1, 1 }, { 0, 0, 0, 0, 0, 0 }
    };
    for (int m = 0; m < 4; m++) {
        for (int p = 0; p < 4; p++) {
            for (int t = 0; t < 4; t++) {
                heed_node *node = node_of(&b, "", "Pad", 19, 3, 1);
                set_string(&b, node, "mode", modes[m]);
                heed_tensor *value = tensor(&b, sizes[t], 0, NULL);
                put(value, 0, 77);
                const heed_tensor *in[] = { numbered(&b, sizes[t], DIMS(3, 4, 5)), ints(&b, 6, pads[p]), p ? value : NULL };
                expect_node(&b, node, in);
                for (int64_t e = 0; e < heed_tensor_count(b.out[0]); e++) {
                    int64_t index[HEED_RANK_MAX];
                    int outside = 0;
                    unravel(b.out[0], e, index);
                    for (int d = 0; d < 3; d++) {
                        index[d] = pad_from(modes[m], index[d] - pads[p][d], in[0]->dims[d]);
                        if (index[d] < 0) outside = 1;
                    }
                    expect_close(get(b.out[0], e), outside ? (p ? 77 : 0) : get_at(in[0], index, 3), 0, modes[m], e);
                }
            }
        }
    }
    const heed_tensor *in[] = { numbered(&b, HEED_F32, DIMS(2, 3)), ints(&b, 2, (int64_t[]){ 1, 0 }), NULL,
                                ints(&b, 1, (int64_t[]){ -1 }) };
    expect_node(&b, node_of(&b, "", "Pad", 18, 4, 1), in);
    expect_shape(b.out[0], DIMS(2, 4));
    expect_close(get(b.out[0], 5), 3, 0, "Pad", 5);
    bench_end(&b);
}

static void test_tile(void **state)
{
    (void) state;
    bench b = bench_start();
    static const struct {
        int rank;
        int64_t dims[6], repeats[6];
    } cases[] = { { 1, { 5 }, { 3 } },
                  { 2, { 3, 4 }, { 2, 1 } },
                  { 3, { 2, 1, 3 }, { 1, 4, 2 } },
                  { 2, { 3, 4 }, { 0, 2 } },
                  { 6, { 2, 3, 2, 2, 3, 2 }, { 2, 2, 3, 2, 2, 2 } } };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const heed_tensor *in[] = { numbered(&b, HEED_F32, cases[c].rank, cases[c].dims),
                                    ints(&b, cases[c].rank, cases[c].repeats) };
        expect_node(&b, node_of(&b, "", "Tile", 13, 2, 1), in);
        for (int64_t e = 0; e < heed_tensor_count(b.out[0]); e++) {
            int64_t index[HEED_RANK_MAX];
            unravel(b.out[0], e, index);
            for (int d = 0; d < cases[c].rank; d++) index[d] %= cases[c].dims[d];
            expect_close(get(b.out[0], e), get_at(in[0], index, cases[c].rank), 0, "Tile", e);
        }
    }
    bench_end(&b);
}

static void test_depth(void **state)
{
    (void) state;
    bench b = bench_start();
    for (int crd = 0; crd < 2; crd++) {
        heed_node *there = node_of(&b, "", "DepthToSpace", 13, 1, 1), *back = node_of(&b, "", "SpaceToDepth", 13, 1, 1);
        set_int(&b, there, "blocksize", 2), set_int(&b, back, "blocksize", 2);
        if (crd) set_string(&b, there, "mode", "CRD"), set_string(&b, back, "mode", "CRD");
        const heed_tensor *x = numbered(&b, HEED_F32, DIMS(2, 12, 3, 5));
        expect_node(&b, there, &x);
        const heed_tensor *y = b.out[0];
        expect_shape(y, DIMS(2, 3, 6, 10));
        for (int64_t e = 0; e < heed_tensor_count(y); e++) {
            int64_t i[HEED_RANK_MAX];
            unravel(y, e, i);
            int64_t corner = i[2] % 2 * 2 + i[3] % 2, channel = crd ? i[1] * 4 + corner : corner * 3 + i[1];
            expect_close(get(y, e), get_at(x, (int64_t[]){ i[0], channel, i[2] / 2, i[3] / 2 }, 4), 0, "DepthToSpace", e);
        }
        expect_node(&b, back, &y);
        for (int64_t e = 0; e < heed_tensor_count(x); e++) expect_close(get(b.out[0], e), get(x, e), 0, "SpaceToDepth", e);
    }
    bench_end(&b);
}

/* ---- what is refused ---- */

static void expect_refused(bench *b, heed_node *node, const heed_tensor *const *in, const char *message)
{
    assert_int_not_equal(run_node(b, node, in), HEED_OK);
    assert_string_equal(heed_last_message(), message);
}

static void test_refused(void **state)
{
    (void) state;
    bench b = bench_start();
    const heed_tensor *x = numbered(&b, HEED_F32, DIMS(2, 3, 4)), *in[5] = { x };
    static const struct {
        const char *op;
        int n;
        int64_t entries[3];
        const char *message;
    } cases[] = {
        { "Reshape", 2, { 5, 5 }, "Reshape: a tensor of shape [2, 3, 4] cannot have shape [5, 5]" },
        { "Reshape", 2, { 5, -1 }, "Reshape: a tensor of shape [2, 3, 4] does not divide into shape [5, ?]" },
        { "Reshape", 2, { -1, -1 }, "Reshape: shape[1] is -1, and so is shape[0]; expected one at most" },
        { "Reshape", 1, { -2 }, "Reshape: shape[0] is -2, expected -1 or more" },
        { "Reshape", 2, { INT64_MAX, INT64_MAX }, NULL },
        { "Reshape", 3, { INT64_MAX, INT64_MAX, -1 }, NULL },
        { "Expand", 1, { 3 }, "Expand: shape[0] is 3, which does not broadcast with 4" },
        { "Expand", 1, { -4 }, "Expand: shape[0] is -4, expected 0 or more" },
        { "Squeeze", 1, { 1 }, "Squeeze: dimension 1 is 3, expected 1" },
        { "Squeeze", 1, { 3 }, "Squeeze: axes[0] is 3, expected -3 to 2" },
        { "Unsqueeze", 2, { 1, 1 }, "Unsqueeze: axes[1] is 1, given twice" },
        { "Tile", 2, { 1, 1 }, "Tile: repeats has 2 entries, expected 3, the rank of its input" },
        { "Tile", 3, { INT64_MAX, INT64_MAX, INT64_MAX }, "Tile: repeats[0] is too large" },
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        in[1] = ints(&b, cases[c].n, cases[c].entries);
        heed_node *node = node_of(&b, "", cases[c].op, 18, 2, 1);
        if (cases[c].message) expect_refused(&b, node, in, cases[c].message);
        else assert_int_equal(run_node(&b, node, in), HEED_ERR_ARGUMENT);
    }
    in[0] = numbered(&b, HEED_F32, DIMS(0, 4, 5)), in[1] = ints(&b, 3, (int64_t[]){ 0, 2, -1 });
    expect_refused(&b, node_of(&b, "", "Reshape", 14, 2, 1), in,
                   "Reshape: shape[2] is -1, but the other entries make an empty tensor");
    heed_node *perm = node_of(&b, "", "Transpose", 13, 1, 1);
    set_ints(&b, perm, "perm", 3, (int64_t[]){ 0, 1, 1 });
    expect_refused(&b, perm, &x, "Transpose: perm is not a permutation of the 3 axes of its input");
    const heed_tensor *zero_step[] = { x, ints(&b, 1, (int64_t[]){ 0 }), ints(&b, 1, (int64_t[]){ 1 }),
                                       ints(&b, 1, (int64_t[]){ 0 }), ints(&b, 1, (int64_t[]){ 0 }) };
    expect_refused(&b, node_of(&b, "", "Slice", 13, 5, 1), zero_step, "Slice: steps[0] is 0");
    bench_end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reshape),   cmocka_unit_test(test_squeeze_and_flatten),
        cmocka_unit_test(test_transpose), cmocka_unit_test(test_expand),
        cmocka_unit_test(test_slice),     cmocka_unit_test(test_split_and_concat),
        cmocka_unit_test(test_pad),       cmocka_unit_test(test_tile),
        cmocka_unit_test(test_depth),     cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
