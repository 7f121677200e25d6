/* Operators with indices, order and counts: each against its definition, and every index out of range refused by name. */
#include "ops/bench_node.h"

static heed_tensor *ints(bench *b, int rank, const int64_t *dims, const int64_t *values)
{
    heed_tensor *t = tensor(b, HEED_I64, rank, dims);
    memcpy(t->data, values, heed_tensor_bytes(t));
    return t;
}

static heed_tensor *random_ints(bench *b, heed_dtype type, int64_t low, int64_t high, int rank, const int64_t *dims)
{
    heed_tensor *t = tensor(b, type, rank, dims);
    for (int64_t k = 0; k < heed_tensor_count(t); k++) put(t, k, (double) between(b, low, high));
    return t;
}

static int64_t wrap(double at, int64_t n)
{
    return (int64_t) at + (at < 0 ? n : 0);
}

static void expect_refused(bench *b, heed_node *node, const heed_tensor *const *in, const char *message)
{
    assert_int_not_equal(run_node(b, node, in), HEED_OK);
    assert_string_equal(heed_last_message(), message);
}

/* ---- Gather ---- */

static void test_gather(void **state)
{
    (void) state;
    bench b = bench_start();
    for (int axis = 0; axis < 3; axis++) {
        for (int rank = 0; rank < 3; rank++) {
            const heed_tensor *x = uniform_tensor(&b, HEED_F32, -1, 1, DIMS(4, 5, 6));
            const heed_tensor *at =
                random_ints(&b, rank % 2 ? HEED_I32 : HEED_I64, -x->dims[axis], x->dims[axis] - 1, rank, (int64_t[]){ 2, 3 });
            heed_node *node = node_of(&b, "", "Gather", 13, 2, 1);
            set_int(&b, node, "axis", axis - 3);
            expect_node(&b, node, (const heed_tensor *[]){ x, at });
            assert_int_equal(b.out[0]->rank, 2 + rank);
            for (int64_t e = 0; e < heed_tensor_count(b.out[0]); e++) {
                int64_t index[HEED_RANK_MAX], from[3];
                unravel(b.out[0], e, index);
                for (int d = 0; d < 3; d++)
                    if (d != axis) from[d] = index[d < axis ? d : d + rank - 1];
                from[axis] = wrap(get_at(at, index + axis, rank), x->dims[axis]);
                expect_close(get(b.out[0], e), get_at(x, from, 3), 0, "Gather", e);
            }
        }
    }
    /* One known index is a view, of an input in any order. */
    const heed_tensor *x = restride(&b, uniform_tensor(&b, HEED_F32, -1, 1, DIMS(3, 4, 5)));
    heed_node *node = node_of(&b, "", "Gather", 13, 2, 1);
    set_int(&b, node, "axis", 1);
    heed_tensor view = heed_tensor_make(HEED_F32, 2, (int64_t[]){ 3, 5 });
    heed_compute c = { .ctx = b.ctx,
                       .node = node,
                       .n_in = 2,
                       .n_out = 1,
                       .in = (const heed_tensor *[]){ x, ints(&b, 0, NULL, (int64_t[]){ -1 }) },
                       .out = (heed_tensor *[]){ &view } };
    assert_true(heed_op_find("", "Gather", 13)->view(&c));
    for (int64_t i = 0; i < 15; i++)
        assert_true(get_at(&view, (int64_t[]){ i / 5, i % 5 }, 2) == get_at(x, (int64_t[]){ i / 5, 3, i % 5 }, 3));
    bench_end(&b);
}

static void test_gather_elements_and_scatter(void **state)
{
    (void) state;
    bench b = bench_start();
    for (int axis = 0; axis < 3; axis++) {
        int64_t dims[3] = { 3, 4, 5 };
        dims[axis] = 7;
        const heed_tensor *x = uniform_tensor(&b, HEED_F32, -1, 1, DIMS(4, 5, 6));
        const heed_tensor *at = random_ints(&b, HEED_I64, -x->dims[axis], x->dims[axis] - 1, 3, dims);
        heed_node *node = node_of(&b, "", "GatherElements", 13, 2, 1);
        set_int(&b, node, "axis", axis);
        expect_node(&b, node, (const heed_tensor *[]){ x, at });
        for (int64_t e = 0; e < heed_tensor_count(at); e++) {
            int64_t index[HEED_RANK_MAX];
            unravel(at, e, index);
            index[axis] = wrap(get(at, e), x->dims[axis]);
            expect_close(get(b.out[0], e), get_at(x, index, 3), 0, "GatherElements", e);
        }
        static const char *const reductions[] = { "none", "add", "mul", "min", "max" };
        for (int r = 0; r < 5; r++) {
            const heed_tensor *u = uniform_tensor(&b, HEED_F32, -1, 1, 3, dims);
            heed_node *scatter = node_of(&b, "", "ScatterElements", 18, 3, 1);
            set_int(&b, scatter, "axis", axis);
            set_string(&b, scatter, "reduction", reductions[r]);
            expect_node(&b, scatter, (const heed_tensor *[]){ x, at, u });
            heed_tensor *want = tensor(&b, HEED_F32, DIMS(4, 5, 6));
            heed_tensor_copy(want, x);
            for (int64_t e = 0; e < heed_tensor_count(at); e++) {
                int64_t i[HEED_RANK_MAX];
                unravel(at, e, i);
                i[axis] = wrap(get(at, e), x->dims[axis]);
                int64_t to = (i[0] * 5 + i[1]) * 6 + i[2];
                float old = (float) get(want, to), new = (float) get(u, e);
                put(want, to, r == 0 ? new : r == 1 ? old + new : r == 2 ? old *new : r == 3 ? fmin(old, new) : fmax(old, new));
            }
            for (int64_t e = 0; e < 120; e++) expect_close(get(b.out[0], e), get(want, e), 0, reductions[r], e);
        }
    }
    bench_end(&b);
}

static void test_nd(void **state)
{
    (void) state;
    bench b = bench_start();
    const heed_tensor *x = uniform_tensor(&b, HEED_F16, -1, 1, DIMS(2, 3, 4, 5));
    for (int batch = 0; batch < 2; batch++) {
        for (int depth = 1; depth <= 3 - batch; depth++) {
            heed_tensor *at = tensor(&b, HEED_I64, DIMS(2, 6, depth));
            for (int64_t e = 0; e < heed_tensor_count(at); e++) {
                int64_t n = x->dims[batch + e % depth];
                put(at, e, (double) between(&b, -n, n - 1));
            }
            heed_node *node = node_of(&b, "", "GatherND", 13, 2, 1);
            set_int(&b, node, "batch_dims", batch);
            expect_node(&b, node, (const heed_tensor *[]){ x, at });
            for (int64_t e = 0; e < heed_tensor_count(b.out[0]); e++) {
                int64_t i[HEED_RANK_MAX], from[4];
                unravel(b.out[0], e, i);
                if (batch) from[0] = i[0];
                for (int d = 0; d < depth; d++)
                    from[batch + d] = wrap(get_at(at, (int64_t[]){ i[0], i[1], d }, 3), x->dims[batch + d]);
                for (int d = batch + depth; d < 4; d++) from[d] = i[2 + d - batch - depth];
                expect_close(get(b.out[0], e), get_at(x, from, 4), 0, "GatherND", e);
            }
        }
    }
    /* ScatterND: two slices, one of them twice with add. */
    heed_node *node = node_of(&b, "", "ScatterND", 16, 3, 1);
    set_string(&b, node, "reduction", "add");
    const heed_tensor *data = uniform_tensor(&b, HEED_F32, -1, 1, DIMS(4, 3)),
                      *u = uniform_tensor(&b, HEED_F32, -1, 1, DIMS(3, 3));
    expect_node(&b, node, (const heed_tensor *[]){ data, ints(&b, DIMS(3, 1), (int64_t[]){ 1, -1, 1 }), u });
    for (int64_t c = 0; c < 3; c++) {
        assert_true(get(b.out[0], c) == get(data, c) && get(b.out[0], 6 + c) == get(data, 6 + c));
        expect_close(get(b.out[0], 3 + c), (float) ((float) get(data, 3 + c) + (float) get(u, c)) + (float) get(u, 6 + c), 1e-6,
                     "add", c);
        expect_close(get(b.out[0], 9 + c), (float) get(data, 9 + c) + (float) get(u, 3 + c), 1e-6, "add", c);
    }
    bench_end(&b);
}

static void test_tensor_scatter(void **state)
{
    (void) state;
    bench b = bench_start();
    for (int circular = 0; circular < 2; circular++) {
        const heed_tensor *cache = uniform_tensor(&b, HEED_F32, -1, 1, DIMS(2, 3, 6, 4)),
                          *u = uniform_tensor(&b, HEED_F32, -1, 1, DIMS(2, 3, 2, 4));
        const int64_t first[2] = { 1, circular ? 5 : 4 };
        heed_node *node = node_of(&b, "", "TensorScatter", 24, 3, 1);
        if (circular) set_string(&b, node, "mode", "circular");
        expect_node(&b, node, (const heed_tensor *[]){ cache, u, ints(&b, DIMS(2), first) });
        for (int64_t e = 0; e < heed_tensor_count(cache); e++) {
            int64_t i[HEED_RANK_MAX];
            unravel(cache, e, i);
            int64_t k = (i[2] - first[i[0]] + 6) % 6;
            double want = k < 2 ? get_at(u, (int64_t[]){ i[0], i[1], k, i[3] }, 4) : get(cache, e);
            expect_close(get(b.out[0], e), want, 0, "TensorScatter", e);
        }
    }
    heed_node *node = node_of(&b, "", "TensorScatter", 24, 3, 1);
    const heed_tensor *in[] = { tensor(&b, HEED_F32, DIMS(1, 6, 4)), tensor(&b, HEED_F32, DIMS(1, 2, 4)),
                                ints(&b, DIMS(1), (int64_t[]){ 5 }) };
    expect_refused(&b, node, in, "TensorScatter: write_indices[0] is 5, expected 0 to 4");
    bench_end(&b);
}

static void test_out_of_range(void **state)
{
    (void) state;
    bench b = bench_start();
    static const int64_t bad[] = { 10, -11, INT64_MAX, INT64_MIN };
    const heed_tensor *x = tensor(&b, HEED_F32, DIMS(10));
    for (int k = 0; k < 4; k++) {
        char message[128];
        const heed_tensor *at = ints(&b, DIMS(4), (int64_t[]){ 0, 9, -10, bad[k] }), *nd = ints(&b, DIMS(4, 1), at->data);
        const heed_tensor *u = tensor(&b, HEED_F32, DIMS(4));
        static const char *const ops[] = { "Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND" };
        for (int o = 0; o < 5; o++) {
            snprintf(message, sizeof message, "%s: indices[3] is %lld, expected -10 to 9", ops[o], (long long) bad[k]);
            expect_refused(&b, node_of(&b, "", ops[o], 16, o < 3 ? 2 : 3, 1),
                           (const heed_tensor *[]){ x, o == 2 || o == 4 ? nd : at, u }, message);
        }
    }
    expect_refused(&b, node_of(&b, "", "Gather", 13, 2, 1),
                   (const heed_tensor *[]){ tensor(&b, HEED_F32, DIMS(0, 2)), ints(&b, DIMS(1), (int64_t[]){ 0 }) },
                   "Gather: indices[0] is 0, but the dimension is empty");
    bench_end(&b);
}

/* ---- order ---- */

static void test_top_k(void **state)
{
    (void) state;
    bench b = bench_start();
    static const heed_dtype types[] = { HEED_F32, HEED_BF16, HEED_I64, HEED_U8 };
    for (int t = 0; t < 4; t++) {
        for (int axis = 0; axis < 2; axis++) {
            for (int largest = 0; largest < 2; largest++) {
                for (int64_t k = 0; k <= 40; k += 8) {
                    int64_t dims[2] = { 3, 3 };
                    dims[axis] = 40;
                    const heed_tensor *x = random_ints(&b, types[t], types[t] == HEED_U8 ? 0 : -9, 20, 2, dims); /* with ties */
                    heed_node *node = node_of(&b, "", "TopK", 11, 2, 2);
                    set_int(&b, node, "axis", axis), set_int(&b, node, "largest", largest);
                    expect_node(&b, node, (const heed_tensor *[]){ x, ints(&b, DIMS(1), &k) });
                    for (int64_t line = 0; line < 3; line++) {
                        int used[40] = { 0 };
                        for (int64_t j = 0; j < k; j++) { /* the best one left, the first of equals */
                            int64_t best = -1, at[2] = { line, line };
                            double best_x = 0;
                            for (int64_t c = 0; c < 40; c++) {
                                at[axis] = c;
                                double v = get_at(x, at, 2);
                                if (!used[c] && (best < 0 || (largest ? v > best_x : v < best_x))) best = c, best_x = v;
                            }
                            used[best] = 1, at[axis] = j;
                            expect_close(get_at(b.out[1], at, 2), (double) best, 0, "TopK", j);
                            expect_close(get_at(b.out[0], at, 2), best_x, 0, "TopK", j);
                        }
                    }
                }
            }
        }
    }
    expect_refused(&b, node_of(&b, "", "TopK", 11, 2, 2),
                   (const heed_tensor *[]){ tensor(&b, HEED_F32, DIMS(2, 3)), ints(&b, DIMS(1), (int64_t[]){ 4 }) },
                   "TopK: k is 4, expected 0 to 3, the size of dimension 1");
    bench_end(&b);
}

static void test_arg(void **state)
{
    (void) state;
    bench b = bench_start();
    static const heed_dtype types[] = { HEED_F32, HEED_F16, HEED_I32, HEED_U64 };
    for (int t = 0; t < 4; t++) {
        for (int mode = 0; mode < 8; mode++) {
            int smallest = mode & 1, last = mode >> 1 & 1, axis = mode >> 2;
            const heed_tensor *x = random_ints(&b, types[t], types[t] == HEED_U64 ? 0 : -4, 4, DIMS(6, 30));
            heed_node *node = node_of(&b, "", smallest ? "ArgMin" : "ArgMax", 13, 1, 1);
            set_int(&b, node, "axis", axis), set_int(&b, node, "select_last_index", last), set_int(&b, node, "keepdims", 0);
            expect_node(&b, node, &x);
            for (int64_t o = 0; o < heed_tensor_count(b.out[0]); o++) {
                int64_t best = 0, at[2] = { o, o };
                for (int64_t c = 0; c < x->dims[axis]; c++) {
                    at[axis] = c;
                    double v = get_at(x, at, 2);
                    at[axis] = best;
                    double w = get_at(x, at, 2);
                    if (smallest ? v < w : v > w) best = c;
                    else if (last && v == w) best = c;
                }
                expect_close(get(b.out[0], o), (double) best, 0, node->op, o);
            }
        }
    }
    heed_tensor *x = uniform_tensor(&b, HEED_F32, -1, 1, DIMS(1, 9));
    put(x, 5, NAN);
    for (int smallest = 0; smallest < 2; smallest++) {
        heed_node *node = node_of(&b, "", smallest ? "ArgMin" : "ArgMax", 13, 1, 1);
        set_int(&b, node, "axis", 1);
        expect_node(&b, node, (const heed_tensor *[]){ x });
        assert_int_equal(heed_tensor_int(b.out[0], 0), 5);
    }
    bench_end(&b);
}

static void test_cum_sum(void **state)
{
    (void) state;
    bench b = bench_start();
    static const heed_dtype types[] = { HEED_F32, HEED_F64, HEED_I32, HEED_I64 };
    for (int mode = 0; mode < 16; mode++) {
        int exclusive = mode & 1, reverse = mode >> 1 & 1, axis = mode >> 2 & 1;
        const heed_tensor *x = random_ints(&b, types[mode % 4], -9, 9, DIMS(5, 7, 2));
        heed_node *node = node_of(&b, "", "CumSum", 14, 2, 1);
        set_int(&b, node, "exclusive", exclusive), set_int(&b, node, "reverse", reverse);
        expect_node(&b, node, (const heed_tensor *[]){ x, ints(&b, 0, NULL, (int64_t[]){ axis - 3 }) });
        for (int64_t e = 0; e < 70; e++) {
            int64_t i[HEED_RANK_MAX];
            unravel(x, e, i);
            int64_t here = i[axis];
            double sum = 0;
            for (i[axis] = 0; i[axis] < x->dims[axis]; i[axis]++) {
                int before = reverse ? i[axis] > here : i[axis] < here;
                if (before || (!exclusive && i[axis] == here)) sum += get_at(x, i, 3);
            }
            expect_close(get(b.out[0], e), sum, 0, "CumSum", e);
        }
    }
    bench_end(&b);
}

static void test_counts(void **state)
{
    (void) state;
    bench b = bench_start();
    const heed_tensor *x = random_ints(&b, HEED_I32, 0, 2, DIMS(3, 4, 5));
    expect_node(&b, node_of(&b, "", "NonZero", 13, 1, 1), &x);
    int64_t at = 0;
    for (int64_t e = 0; e < 60; e++) {
        int64_t i[HEED_RANK_MAX];
        if (get(x, e) == 0) continue;
        unravel(x, e, i);
        for (int d = 0; d < 3; d++) assert_true(get_at(b.out[0], (int64_t[]){ d, at }, 2) == (double) i[d]);
        at++;
    }
    expect_shape(b.out[0], DIMS(3, at));

    heed_node *one_hot = node_of(&b, "", "OneHot", 11, 3, 1);
    set_int(&b, one_hot, "axis", 1);
    const heed_tensor *which = ints(&b, DIMS(2, 3), (int64_t[]){ 0, -1, 3, 4, -4, -5 }),
                      *values = uniform_tensor(&b, HEED_F32, 1, 2, DIMS(2));
    expect_node(&b, one_hot, (const heed_tensor *[]){ which, ints(&b, 0, NULL, (int64_t[]){ 4 }), values });
    expect_shape(b.out[0], DIMS(2, 4, 3));
    for (int64_t e = 0; e < 24; e++) {
        int64_t i[HEED_RANK_MAX];
        unravel(b.out[0], e, i);
        int on = wrap(get_at(which, (int64_t[]){ i[0], i[2] }, 2), 4) == i[1];
        expect_close(get(b.out[0], e), get(values, on), 0, "OneHot", e);
    }
    bench_end(&b);
}

static heed_tensor *number(bench *b, heed_dtype type, double x)
{
    heed_tensor *t = tensor(b, type, 0, NULL);
    put(t, 0, x);
    return t;
}

static void test_fills(void **state)
{
    (void) state;
    bench b = bench_start();
    static const struct {
        heed_dtype type;
        double start, limit, delta;
        int64_t n;
    } ranges[] = { { HEED_I64, 3, 9, 2, 3 },    { HEED_I64, 3, 10, 2, 4 },    { HEED_I32, 5, -3, -3, 3 },
                   { HEED_F32, 0, 1, 0.25, 4 }, { HEED_F64, 1, -1, -0.5, 4 }, { HEED_I64, 4, 4, 1, 0 },
                   { HEED_I64, 4, 9, -1, 0 },   { HEED_F32, 0, 0.9, 0.3, 3 } };
    for (size_t r = 0; r < sizeof ranges / sizeof *ranges; r++) {
        const heed_tensor *in[] = { number(&b, ranges[r].type, ranges[r].start), number(&b, ranges[r].type, ranges[r].limit),
                                    number(&b, ranges[r].type, ranges[r].delta) };
        expect_node(&b, node_of(&b, "", "Range", 11, 3, 1), in);
        expect_shape(b.out[0], DIMS(ranges[r].n));
        for (int64_t k = 0; k < ranges[r].n; k++)
            expect_close(get(b.out[0], k), ranges[r].start + (double) k * ranges[r].delta, 1e-6, "Range", k);
    }
    const heed_tensor *whole[] = { ints(&b, 0, NULL, (int64_t[]){ INT64_MIN }), ints(&b, 0, NULL, (int64_t[]){ INT64_MAX }),
                                   number(&b, HEED_I64, 1) };
    assert_int_equal(run_node(&b, node_of(&b, "", "Range", 11, 3, 1), whole), HEED_ERR_ARGUMENT);
    const heed_tensor *still[] = { number(&b, HEED_I64, 0), number(&b, HEED_I64, 4), number(&b, HEED_I64, 0) };
    expect_refused(&b, node_of(&b, "", "Range", 11, 3, 1), still, "Range: delta is 0");

    heed_node *constant = node_of(&b, "", "ConstantOfShape", 9, 1, 1);
    heed_tensor value = *number(&b, HEED_I32, 7);
    value.rank = 1, value.dims[0] = 1, value.strides[0] = 1;
    heed_node_add_attr(b.graph, constant, &(heed_attr){ .name = "value", .type = HEED_ATTR_TENSOR, .t = &value });
    expect_node(&b, constant, (const heed_tensor *[]){ ints(&b, DIMS(2), (int64_t[]){ 3, 2 }) });
    expect_shape(b.out[0], DIMS(3, 2));
    for (int k = 0; k < 6; k++) assert_int_equal(heed_tensor_int(b.out[0], k), 7);
    expect_refused(&b, constant, (const heed_tensor *[]){ ints(&b, DIMS(2), (int64_t[]){ 3, -2 }) },
                   "ConstantOfShape: shape[1] is -2, expected 0 or more");

    for (int k = -4; k <= 5; k++) {
        heed_node *eye = node_of(&b, "", "EyeLike", 9, 1, 1);
        set_int(&b, eye, "k", k);
        expect_node(&b, eye, (const heed_tensor *[]){ tensor(&b, HEED_F16, DIMS(3, 4)) });
        for (int64_t e = 0; e < 12; e++) assert_true(get(b.out[0], e) == (e % 4 == e / 4 + k));
    }
    bench_end(&b);
}

static void test_reverse_and_dropout(void **state)
{
    (void) state;
    bench b = bench_start();
    const heed_tensor *x = uniform_tensor(&b, HEED_F32, -1, 1, DIMS(4, 3, 2));
    const int64_t lengths[] = { 4, 0, 2 };
    expect_node(&b, node_of(&b, "", "ReverseSequence", 10, 2, 1), (const heed_tensor *[]){ x, ints(&b, DIMS(3), lengths) });
    for (int64_t e = 0; e < 24; e++) {
        int64_t i[HEED_RANK_MAX] = { 0 };
        unravel(x, e, i);
        if (i[0] < lengths[i[1]]) i[0] = lengths[i[1]] - 1 - i[0];
        expect_close(get(b.out[0], e), get_at(x, i, 3), 0, "ReverseSequence", e);
    }
    expect_refused(&b, node_of(&b, "", "ReverseSequence", 10, 2, 1),
                   (const heed_tensor *[]){ x, ints(&b, DIMS(3), (int64_t[]){ 0, 5, 0 }) },
                   "ReverseSequence: sequence_lens[1] is 5, expected 0 to 4");
    expect_node(&b, node_of(&b, "", "Dropout", 13, 1, 2), &x);
    for (int64_t e = 0; e < 24; e++) assert_true(get(b.out[0], e) == get(x, e) && get(b.out[1], e) == 1);
    bench_end(&b);
}

/* ---- quantisation ---- */

static void test_quantize(void **state)
{
    (void) state;
    bench b = bench_start();
    static const heed_dtype types[] = { HEED_I8, HEED_U8, HEED_I16, HEED_U16 };
    for (int t = 0; t < 4; t++) {
        for (int kind = 0; kind < 3; kind++) { /* one scale; one for each index of axis 1; blocks of 4 along it */
            int64_t per_axis[] = { 6 }, blocks[] = { 2, 2, 5 };
            int rank = kind == 0 ? 0 : kind == 1 ? 1 : 3;
            const int64_t *dims = kind == 1 ? per_axis : blocks;
            int is_unsigned = types[t] == HEED_U8 || types[t] == HEED_U16;
            const heed_tensor *x = uniform_tensor(&b, HEED_F32, -300, 300, DIMS(2, 6, 5)),
                              *scale = uniform_tensor(&b, HEED_F32, 0.5, 2, rank, dims);
            const heed_tensor *zero = random_ints(&b, types[t], is_unsigned ? 0 : -20, 20, rank, dims);
            double low = is_unsigned ? 0 : t == 0 ? -128 : -32768, high = t == 0 ? 127 : t == 1 ? 255 : t == 2 ? 32767 : 65535;
            heed_node *q = node_of(&b, "", "QuantizeLinear", 21, 3, 1), *dq = node_of(&b, "", "DequantizeLinear", 21, 3, 1);
            if (kind == 2) set_int(&b, q, "block_size", 4), set_int(&b, dq, "block_size", 4);
            expect_node(&b, q, (const heed_tensor *[]){ x, scale, zero });
            const heed_tensor *y = b.out[0];
            expect_node(&b, dq, (const heed_tensor *[]){ y, scale, zero });
            for (int64_t e = 0; e < 60; e++) {
                int64_t i[HEED_RANK_MAX];
                unravel(x, e, i);
                const int64_t at_axis[] = { i[1] }, at_block[] = { i[0], i[1] / 4, i[2] }, *at = kind == 1 ? at_axis : at_block;
                float s = (float) get_at(scale, at, rank);
                double z = get_at(zero, at, rank), want = fmin(fmax((double) rintf((float) get(x, e) / s) + z, low), high);
                expect_close(get(y, e), want, 0, "QuantizeLinear", e);
                expect_close(get(b.out[0], e), (want - z) * s, 1e-3, "DequantizeLinear", e);
            }
        }
    }
    const heed_tensor *x = uniform_tensor(&b, HEED_F32, -2, 5, DIMS(500));
    expect_node(&b, node_of(&b, "", "DynamicQuantizeLinear", 11, 1, 3), &x);
    double scale = get(b.out[1], 0), zero = get(b.out[2], 0);
    for (int64_t e = 0; e < 500; e++)
        expect_close((get(b.out[0], e) - zero) * scale, get(x, e), 0.6 * scale, "DynamicQuantizeLinear", e);
    expect_refused(&b, node_of(&b, "", "DequantizeLinear", 13, 2, 1),
                   (const heed_tensor *[]){ tensor(&b, HEED_I8, DIMS(2, 6)), tensor(&b, HEED_F32, DIMS(5)) },
                   "DequantizeLinear: the scale has 5 elements, expected 6, the size of axis 1");
    bench_end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gather),
        cmocka_unit_test(test_gather_elements_and_scatter),
        cmocka_unit_test(test_nd),
        cmocka_unit_test(test_tensor_scatter),
        cmocka_unit_test(test_out_of_range),
        cmocka_unit_test(test_top_k),
        cmocka_unit_test(test_arg),
        cmocka_unit_test(test_cum_sum),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_fills),
        cmocka_unit_test(test_reverse_and_dropout),
        cmocka_unit_test(test_quantize),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
