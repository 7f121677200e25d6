/* The attention matcher: each thing that it sees through, and the twin that only looks like it. */
#include "rewrite/rewrite.h"

#define B 2
#define H 4
#define S 6
#define T 9
#define D 8
static const int64_t swap[4] = { 0, 1, 3, 2 }, bshd[4] = { 0, 2, 1, 3 };
static const int64_t q_dims[4] = { B, H, S, D }, k_dims[4] = { B, H, T, D };

struct parts {
    heed_graph *g;
    heed_value *q, *k, *v;
};

static struct parts begin(void)
{
    struct parts p = { .g = heed_graph_create(ctx) };
    p.q = input(p.g, "q", HEED_F32, 4, q_dims);
    p.k = input(p.g, "k", HEED_F32, 4, k_dims);
    p.v = input(p.g, "v", HEED_F32, 4, k_dims);
    return p;
}

static heed_value *scores(const struct parts *p)
{
    return op(p->g, "MatMul", IN(p->q, transpose(p->g, p->k, 4, swap)));
}

static heed_value *scaled(const struct parts *p, float scale)
{
    return op(p->g, "Mul", IN(scores(p), scalar(p->g, scale)));
}

static void finish(const struct parts *p, heed_value *probabilities)
{
    heed_graph_add_output(p->g, op(p->g, "MatMul", IN(probabilities, p->v)));
}

/* scores -> softmax -> product with V */
static void finish_scores(const struct parts *p, heed_value *s)
{
    finish(p, softmax(p->g, s, -1));
}

static heed_value *mask_input(const struct parts *p, heed_dtype type, int64_t b, int64_t h, int64_t s, int64_t t)
{
    const int64_t dims[4] = { b, h, s, t };
    return input(p->g, "mask", type, 4, dims);
}

/* ---- plain ---- */

static void test_plain(void **state)
{
    (void) state;
    struct parts p = begin();
    finish_scores(&p, scores(&p));
    struct outcome o = try_graph(p.g, 2e-5);
    assert_int_equal(o.n_fused, 1);
    const heed_node *node = find_node(o.graph, "heed", "Attention");
    assert_true(heed_node_float(node, "scale", 0) == 1.0f);
    assert_int_equal(node->n_inputs, 3);
    assert_int_equal(o.graph->first == o.graph->last, 1);
    assert_string_equal(o.reason, "softmax(Q K^T) V");
    done(&o, p.g);
}

static void test_scales(void **state)
{
    (void) state;
    for (int where = 0; where < 8; where++) {
        struct parts p = begin();
        heed_value *s;
        switch (where) {
        case 0: s = scaled(&p, 0.3f); break;
        case 1: s = op(p.g, "Mul", IN(scalar(p.g, 0.3f), scores(&p))); break;
        case 2: s = op(p.g, "Div", IN(scores(&p), scalar(p.g, 3.0f))); break;
        case 3: p.q = op(p.g, "Mul", IN(p.q, scalar(p.g, 0.3f))), s = scores(&p); break;
        case 4: p.k = op(p.g, "Div", IN(p.k, scalar(p.g, 3.0f))), s = scores(&p); break;
        case 5:
            p.q = op(p.g, "Mul", IN(p.q, scalar(p.g, 0.6f)));
            s = op(p.g, "MatMul", IN(p.q, op(p.g, "Mul", IN(transpose(p.g, p.k, 4, swap), scalar(p.g, 0.5f)))));
            break;
        case 6: s = op(p.g, "Neg", IN(scaled(&p, 0.3f))); break;
        default: s = op(p.g, "Div", IN(scores(&p), op(p.g, "Sqrt", IN(scalar(p.g, 9.0f)))));
        }
        finish_scores(&p, s);
        struct outcome o = try_graph(p.g, 2e-5);
        assert_int_equal(o.n_fused, 1);
        assert_int_equal(o.graph->first == o.graph->last, 1);
        const float scale = heed_node_float(o.graph->first, "scale", 0);
        assert_true(fabsf(fabsf(scale) - (where == 2 || where == 4 || where == 7 ? 1.0f / 3 : 0.3f)) < 1e-6f);
        done(&o, p.g);
    }
}

/* A computed scale, one a head or one a row, is given to Q; one a key is not a scale. */
static void test_tensor_scales(void **state)
{
    (void) state;
    static const int64_t sizes[][3] = { { 1, 1, 1 }, { H, 1, 1 }, { 1, S, 1 }, { H, S, 1 } };
    for (size_t i = 0; i <= sizeof sizes / sizeof *sizes; i++) {
        struct parts p = begin();
        heed_value *t = i < 4 ? input(p.g, "t", HEED_F32, 3, sizes[i]) : input(p.g, "t", HEED_F32, 0, NULL);
        heed_value *s = i & 1 ? op(p.g, "Mul", IN(scaled(&p, 0.5f), t)) : op(p.g, "Mul", IN(t, scaled(&p, 0.5f)));
        finish_scores(&p, op(p.g, "Add", IN(s, mask_input(&p, HEED_F32, B, 1, S, T))));
        assert_fused(p.g, 1);
    }
    struct parts p = begin();
    finish_scores(&p, op(p.g, "Mul", IN(scores(&p), input(p.g, "t", HEED_F32, 1, k_dims + 2))));
    assert_refused(p.g, "not one number a row");
    p = begin();
    finish_scores(&p, op(p.g, "Div", IN(scores(&p), input(p.g, "t", HEED_F32, 0, NULL))));
    assert_refused(p.g, "not one number a row");
    p = begin();
    heed_value *s = op(p.g, "Add", IN(scores(&p), mask_input(&p, HEED_F32, B, 1, S, T)));
    finish_scores(&p, op(p.g, "Mul", IN(s, input(p.g, "t", HEED_F32, 0, NULL))));
    assert_refused(p.g, "before the scores are multiplied by a tensor");
}

/* ---- the softmax ---- */

static void test_axis(void **state)
{
    (void) state;
    struct parts p = begin();
    finish(&p, softmax(p.g, scaled(&p, 0.2f), 3));
    assert_fused(p.g, 1);
    p = begin();
    finish(&p, softmax(p.g, scaled(&p, 0.2f), 1));
    assert_refused(p.g, "over axis 1 of 4, not over the last");
    p = begin();
    finish(&p, softmax(p.g, scaled(&p, 0.2f), -2));
    assert_refused(p.g, "over axis -2 of 4");
    /* Before opset 13 the default is axis 1, flattened. */
    p = begin();
    heed_value *s = op(p.g, "Softmax", IN(scores(&p)));
    s->producer->version = 11;
    finish(&p, s);
    assert_refused(p.g, "over axis 1 of 4");
}

static void test_not_a_softmax(void **state)
{
    (void) state;
    struct parts p = begin();
    finish(&p, op(p.g, "Relu", IN(scaled(&p, 0.2f))));
    assert_refused(p.g, "(Relu) stands where attention has its softmax");
    p = begin();
    finish_scores(&p, op(p.g, "Relu", IN(scores(&p))));
    assert_refused(p.g, "(Relu) stands between the scores and the softmax");
    p = begin();
    finish(&p, op(p.g, "Mul", IN(softmax(p.g, scores(&p), -1), scalar(p.g, 0.9f))));
    assert_refused(p.g, "a factor of 0.9");
    p = begin();
    finish(&p, op(p.g, "Sqrt", IN(softmax(p.g, scores(&p), -1))));
    assert_refused(p.g, "goes to 'Sqrt_");
}

/* A classifier's softmax is not even reported. */
static void test_other_softmax(void **state)
{
    (void) state;
    heed_graph *g = heed_graph_create(ctx);
    const int64_t x_dims[2] = { 3, D }, w_dims[2] = { D, 5 };
    float w[D * 5];
    for (int i = 0; i < D * 5; i++) w[i] = uniform(-1, 1);
    heed_value *x = input(g, "x", HEED_F32, 2, x_dims);
    heed_graph_add_output(g, softmax(g, op(g, "MatMul", IN(x, constant(g, HEED_F32, 2, w_dims, w))), -1));
    struct outcome o = try_graph(g, 1e-6);
    assert_int_equal(o.n_fused + o.n_refused, 0);
    done(&o, g);
}

static void test_second_users(void **state)
{
    (void) state;
    struct parts p = begin();
    heed_value *s = scaled(&p, 0.2f);
    finish_scores(&p, s);
    heed_graph_add_output(p.g, op(p.g, "Abs", IN(s)));
    assert_refused(p.g, "is also used by 'Abs_");
    p = begin();
    s = scores(&p);
    finish_scores(&p, op(p.g, "Mul", IN(s, scalar(p.g, 0.2f))));
    heed_graph_add_output(p.g, s);
    assert_refused(p.g, "is also an output of the graph");
    p = begin();
    s = softmax(p.g, scores(&p), -1);
    finish(&p, s);
    heed_graph_add_output(p.g, s);
    assert_refused(p.g, "the result of the softmax ('Softmax_");
    p = begin();
    s = softmax(p.g, scores(&p), -1);
    heed_graph_add_output(p.g, s);
    assert_refused(p.g, "also an output");
    /* The shape alone can come from elsewhere; other users of Q, K, V and of the mask do not matter. */
    p = begin();
    s = scaled(&p, 0.2f);
    heed_value *m = mask_input(&p, HEED_F32, 1, 1, S, T);
    finish_scores(&p, op(p.g, "Add", IN(s, m)));
    heed_graph_add_output(p.g, op(p.g, "Shape", IN(s)));
    heed_graph_add_output(p.g, op(p.g, "Neg", IN(p.k)));
    heed_graph_add_output(p.g, op(p.g, "Neg", IN(m)));
    assert_fused(p.g, 1);
}

static void test_casts_and_guard(void **state)
{
    (void) state;
    struct parts p = begin();
    heed_value *s = softmax(p.g, cast(p.g, cast(p.g, scaled(&p, 0.2f), 10), 1), -1);
    finish(&p, s);
    struct outcome o = try_graph(p.g, 5e-3); /* the plain one rounds the scores to f16 */
    assert_int_equal(o.n_fused, 1);
    done(&o, p.g);

    p = begin();
    s = softmax(p.g, scaled(&p, 0.2f), -1);
    finish(&p, op(p.g, "Where", IN(op(p.g, "IsNaN", IN(s)), scalar(p.g, 0), s)));
    o = try_graph(p.g, 2e-5);
    assert_int_equal(o.n_fused, 1);
    assert_non_null(strstr(o.reason, "NaN guard"));
    done(&o, p.g);

    p = begin();
    s = softmax(p.g, scaled(&p, 0.2f), -1);
    finish(&p, op(p.g, "Where", IN(op(p.g, "IsNaN", IN(s)), scalar(p.g, 1), s)));
    assert_refused(p.g, "is also used by");
}

/* ---- K and its transposition ---- */

static void test_key_spellings(void **state)
{
    (void) state;
    static const int64_t as_bshd[4] = { B, T, H, D }, p0231[4] = { 0, 2, 3, 1 }, stored[4] = { B, H, D, T };
    for (int kind = 0; kind < 6; kind++) {
        struct parts p = begin();
        heed_value *kt = NULL;
        if (kind == 0) kt = transpose(p.g, input(p.g, "k2", HEED_F32, 4, as_bshd), 4, p0231);
        if (kind == 1) kt = transpose(p.g, transpose(p.g, input(p.g, "k2", HEED_F32, 4, as_bshd), 4, bshd), 4, swap);
        if (kind == 2) kt = input(p.g, "k2", HEED_F32, 4, stored);
        if (kind == 3) { /* as the dynamo exporter writes it */
            heed_value *flat = reshape(p.g, p.k, 3, (int64_t[]){ -1, T, D });
            kt = reshape(p.g, transpose(p.g, flat, 3, (int64_t[]){ 0, 2, 1 }), 4, (int64_t[]){ B, H, D, T });
        }
        if (kind == 4) kt = transpose(p.g, transpose(p.g, transpose(p.g, p.k, 4, swap), 4, swap), 4, swap);
        if (kind == 5) { /* not a transposition: the sizes fit, the elements are others */
            kt = reshape(p.g, p.k, 4, (int64_t[]){ B, H, D, T });
        }
        finish_scores(&p, op(p.g, "MatMul", IN(p.q, kt)));
        assert_fused(p.g, 1);
    }
}

static void test_heads_permuted_on_the_way(void **state)
{
    (void) state;
    /* Reshape to [H*B] from [B, H] with the two exchanged: not the same batches, and must not be taken for them. */
    struct parts p = begin();
    heed_value *flat = reshape(p.g, transpose(p.g, p.k, 4, (int64_t[]){ 1, 0, 2, 3 }), 3, (int64_t[]){ -1, T, D });
    heed_value *kt = reshape(p.g, transpose(p.g, flat, 3, (int64_t[]){ 0, 2, 1 }), 4, (int64_t[]){ B, H, D, T });
    finish_scores(&p, op(p.g, "MatMul", IN(p.q, kt)));
    assert_fused(p.g, 1);
}

static void test_einsum(void **state)
{
    (void) state;
    static const struct {
        const char *scores, *product;
        int turned, fused;
    } cases[] = {
        { "bhqd,bhkd->bhqk", "bhqk,bhkd->bhqd", 0, 1 },
        { "bhkd,bhqd->bhqk", "bhqk,bhkd->bhqd", 1, 1 },
        { "n h i d , n h j d -> n h i j", "nhij,nhjd->nhid", 0, 1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct parts p = begin();
        heed_value *s = cases[i].turned ? op(p.g, "Einsum", IN(p.k, p.q)) : op(p.g, "Einsum", IN(p.q, p.k));
        set_string(p.g, s, "equation", cases[i].scores);
        heed_value *out = op(p.g, "Einsum", IN(softmax(p.g, op(p.g, "Mul", IN(s, scalar(p.g, 0.3f))), -1), p.v));
        heed_graph_add_output(p.g, set_string(p.g, out, "equation", cases[i].product));
        assert_fused(p.g, cases[i].fused);
    }
    /* In the order in which projections come, with K and V turned in other ways. */
    static const char *const orders[][2] = { { "bhqd,bhkd->bhqk", "bhqk,bhkd->bqhd" }, { "bhqd,bhkd->hbqk", "hbqk,bhkd->bhqd" } };
    for (int i = 0; i < 2; i++) {
        struct parts p = begin();
        heed_value *s = set_string(p.g, op(p.g, "Einsum", IN(p.q, p.k)), "equation", orders[i][0]);
        heed_value *out = op(p.g, "Einsum", IN(softmax(p.g, s, -1), p.v));
        heed_graph_add_output(p.g, set_string(p.g, out, "equation", orders[i][1]));
        assert_fused(p.g, 1);
    }
    struct parts by_row = begin();
    static const int64_t q_rows[4] = { B, S, H, D }, k_rows[4] = { B, T, H, D }, v_columns[4] = { B, H, D, T };
    heed_value *q = input(by_row.g, "q1", HEED_F32, 4, q_rows), *k = input(by_row.g, "k1", HEED_F32, 4, k_rows);
    heed_value *v = input(by_row.g, "v1", HEED_F32, 4, v_columns);
    heed_value *x = set_string(by_row.g, op(by_row.g, "Einsum", IN(q, k)), "equation", "bqhd,bkhd->bhqk");
    x = op(by_row.g, "Einsum",
           IN(v, softmax(by_row.g, op(by_row.g, "Add", IN(x, mask_input(&by_row, HEED_F32, B, 1, 1, T))), -1)));
    heed_graph_add_output(by_row.g, set_string(by_row.g, x, "equation", "bhdk,bhqk->bqhd"));
    struct outcome o = try_graph(by_row.g, 2e-5);
    assert_int_equal(o.n_fused, 1);
    assert_int_equal(heed_node_int(find_node(o.graph, "heed", "Attention"), "out_layout", 0), 1);
    done(&o, by_row.g);
    /* Keys in the rows: the softmax runs over queries. */
    struct parts p = begin();
    heed_value *s = op(p.g, "Einsum", IN(p.q, p.k));
    set_string(p.g, s, "equation", "bhqd,bhkd->bhkq");
    heed_value *out = op(p.g, "Einsum", IN(softmax(p.g, s, -1), p.v));
    heed_graph_add_output(p.g, set_string(p.g, out, "equation", "bhkq,bhkd->bhqd"));
    assert_refused(p.g, "");
}

static void test_gemm(void **state)
{
    (void) state;
    static const int64_t dims_q[2] = { S, D }, dims_k[2] = { T, D }, dims_c[2] = { 1, T };
    heed_graph *g = heed_graph_create(ctx);
    heed_value *q = input(g, "q", HEED_F32, 2, dims_q), *k = input(g, "k", HEED_F32, 2, dims_k);
    heed_value *v = input(g, "v", HEED_F32, 2, dims_k), *c = input(g, "c", HEED_F32, 2, dims_c);
    heed_value *s = op(g, "Gemm", IN(q, k, c));
    set_int(g, s, "transB", 1);
    set_float(g, set_float(g, s, "alpha", 0.4f), "beta", 2.0f);
    heed_graph_add_output(g, op(g, "MatMul", IN(softmax(g, s, -1), v)));
    assert_fused(g, 1);
}

/* ---- masks ---- */

static void test_additive_masks(void **state)
{
    (void) state;
    static const int64_t sizes[][4] = { { B, H, S, T }, { B, 1, 1, T }, { 1, H, S, T }, { 1, 1, S, 1 }, { 1, 1, 1, 1 } };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int turned = 0; turned < 2; turned++) {
            struct parts p = begin();
            heed_value *m = mask_input(&p, HEED_F32, sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3]), *s = scaled(&p, 0.2f);
            finish_scores(&p, turned ? op(p.g, "Add", IN(m, s)) : op(p.g, "Add", IN(s, m)));
            assert_fused(p.g, 1);
        }
    /* A rank below that of the scores, and one that would make them larger. */
    struct parts p = begin();
    const int64_t row[1] = { T };
    finish_scores(&p, op(p.g, "Add", IN(scores(&p), input(p.g, "m", HEED_F32, 1, row))));
    assert_fused(p.g, 1);
    p = begin();
    const int64_t one[4] = { 1, H, S, D }, one_k[4] = { 1, H, T, D };
    p.q = input(p.g, "q1", HEED_F32, 4, one), p.k = input(p.g, "k1", HEED_F32, 4, one_k);
    finish_scores(&p, op(p.g, "Add", IN(scores(&p), mask_input(&p, HEED_F32, B, 1, 1, T))));
    assert_refused(p.g, "is not proven to fit the scores");
}

static void test_factor_after_mask(void **state)
{
    (void) state;
    struct parts p = begin();
    heed_value *s = op(p.g, "Add", IN(scores(&p), mask_input(&p, HEED_F32, B, 1, S, T)));
    finish_scores(&p, op(p.g, "Mul", IN(s, scalar(p.g, 0.25f))));
    struct outcome o = try_graph(p.g, 2e-5);
    assert_int_equal(o.n_fused, 1);
    assert_int_equal(count_nodes(o.graph, "", "Mul"), 1); /* the mask is scaled too */
    done(&o, p.g);
    p = begin();
    s = op(p.g, "Sub", IN(scaled(&p, 0.3f), mask_input(&p, HEED_F32, B, 1, S, T)));
    finish_scores(&p, s);
    assert_fused(p.g, 1);
}

static void test_several_masks(void **state)
{
    (void) state;
    struct parts p = begin();
    const int64_t bias_dims[3] = { H, S, T };
    heed_value *bias = input(p.g, "bias", HEED_F32, 3, bias_dims), *m = mask_input(&p, HEED_F32, B, 1, 1, T);
    heed_value *keep = input(p.g, "keep", HEED_BOOL, 2, (int64_t[]){ S, T });
    heed_value *s = op(p.g, "Add", IN(op(p.g, "Add", IN(scaled(&p, 0.3f), bias)), m));
    finish_scores(&p, op(p.g, "Where", IN(keep, s, scalar(p.g, -INFINITY))));
    assert_fused(p.g, 1);
    p = begin();
    keep = input(p.g, "keep", HEED_BOOL, 2, (int64_t[]){ S, T }), m = mask_input(&p, HEED_F32, B, 1, 1, T);
    s = op(p.g, "Where", IN(keep, scaled(&p, 0.3f), scalar(p.g, -INFINITY)));
    finish_scores(&p, op(p.g, "Add", IN(s, m)));
    assert_fused(p.g, 1);
}

static void test_where_masks(void **state)
{
    (void) state;
    static const struct {
        float fill;
        int hides, fused;
    } cases[] = { { -INFINITY, 0, 1 }, { -INFINITY, 1, 1 }, { -3.4028234663852886e38f, 0, 1 },
                  { -1e9f, 1, 1 },     { -1e4f, 0, 0 },     { 0, 0, 0 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct parts p = begin();
        heed_value *c = mask_input(&p, HEED_BOOL, B, 1, S, T), *s = scaled(&p, 0.3f), *fill_value = scalar(p.g, cases[i].fill);
        finish_scores(&p, cases[i].hides ? op(p.g, "Where", IN(c, fill_value, s)) : op(p.g, "Where", IN(c, s, fill_value)));
        if (!cases[i].fused) {
            assert_refused(p.g, "not low enough");
            continue;
        }
        struct outcome o = try_graph(p.g, 2e-5);
        assert_int_equal(o.n_fused, 1);
        const heed_value *mask = find_node(o.graph, "heed", "Attention")->inputs[3];
        assert_int_equal(mask->fact.dtype, isinf(cases[i].fill) ? HEED_BOOL : HEED_F32);
        done(&o, p.g);
    }
}

/* max(scores + mask, lowest), as OPT and the first CLIP write it: two lowest numbers added up must not hide more than one. */
static void test_floor(void **state)
{
    (void) state;
    const float lowest = -3.4028234663852886e38f;
    float low[2][S * T];
    for (int i = 0; i < S * T; i++)
        low[0][i] = i % T < 2 || i / T == 1 ? lowest : 0, low[1][i] = i % T > 5 || i / T == 1 ? lowest : 0;
    const int64_t dims[2] = { S, T };
    for (int turned = 0; turned < 2; turned++) {
        struct parts p = begin();
        heed_value *s = op(p.g, "Add", IN(scaled(&p, 0.3f), constant(p.g, HEED_F32, 2, dims, low[0])));
        s = op(p.g, "Add", IN(s, constant(p.g, HEED_F32, 2, dims, low[1])));
        finish_scores(&p, turned ? op(p.g, "Max", IN(scalar(p.g, lowest), s)) : op(p.g, "Max", IN(s, scalar(p.g, lowest))));
        assert_fused(p.g, 1);
    }
    struct parts p = begin();
    finish_scores(&p,
                  op(p.g, "Max", IN(op(p.g, "Add", IN(scores(&p), mask_input(&p, HEED_F32, B, 1, S, T))), scalar(p.g, -0.5f))));
    assert_refused(p.g, "raised to -0.5");
    p = begin();
    finish_scores(&p, op(p.g, "Max", IN(scores(&p), scalar(p.g, -0.5f))));
    assert_refused(p.g, "raised to -0.5");
}

/* Rows hidden whole by the mask are cleared after the softmax, by the mask itself. */
static void test_cleared_rows(void **state)
{
    (void) state;
    for (int wrong = 0; wrong < 2; wrong++) {
        struct parts p = begin();
        float numbers[S * T];
        for (int i = 0; i < S * T; i++) numbers[i] = i / T == 3 || i % 4 == 0 ? -INFINITY : uniform(-1, 1);
        const int64_t dims[2] = { S, T }, last = -1;
        heed_value *m = op(p.g, "Neg", IN(constant(p.g, HEED_F32, 2, dims, numbers)));
        heed_value *x = input(p.g, "x", HEED_F32, 2, dims);
        m = op(p.g, "Sub", IN(op(p.g, "Abs", IN(x)), m)); /* not a constant */
        heed_value *s = softmax(p.g, op(p.g, "Add", IN(scaled(&p, 0.3f), m)), -1);
        heed_value *highest = op(p.g, "ReduceMax", IN(wrong ? x : m, ints(p.g, 1, &last)));
        heed_value *test = op(p.g, "Equal", IN(highest, scalar(p.g, -INFINITY)));
        finish(&p, op(p.g, "Where", IN(test, scalar(p.g, 0), s)));
        if (wrong) assert_refused(p.g, "goes to 'Where_");
        else assert_fused(p.g, 1);
    }
}

/* A row in which a Where hides every key by the lowest finite number is uniform, and stays so. */
static void test_fully_hidden_row(void **state)
{
    (void) state;
    struct parts p = begin();
    uint8_t keep[S * T];
    for (int i = 0; i < S * T; i++) keep[i] = i / T != 2 && i % 3 != 0;
    const int64_t dims[2] = { S, T };
    heed_value *c = constant(p.g, HEED_BOOL, 2, dims, keep);
    finish_scores(&p, op(p.g, "Where", IN(c, scaled(&p, 0.3f), scalar(p.g, -3.4028234663852886e38f))));
    assert_fused(p.g, 1);
    p = begin();
    c = constant(p.g, HEED_BOOL, 2, dims, keep);
    heed_value *m = op(p.g, "Where", IN(c, scalar(p.g, 0), scalar(p.g, -INFINITY)));
    heed_value *s = softmax(p.g, op(p.g, "Add", IN(scaled(&p, 0.3f), m)), -1);
    finish(&p, op(p.g, "Where", IN(op(p.g, "IsNaN", IN(s)), scalar(p.g, 0), s)));
    assert_fused(p.g, 1);
}

static void test_masks_that_do_nothing(void **state)
{
    (void) state;
    struct parts p = begin();
    const int64_t dims[4] = { 1, 1, S, T };
    float zeros[S * T] = { 0 };
    finish_scores(&p, op(p.g, "Add", IN(scaled(&p, 0.3f), constant(p.g, HEED_F32, 4, dims, zeros))));
    struct outcome o = try_graph(p.g, 2e-5);
    assert_int_equal(o.n_fused, 1);
    assert_int_equal(find_node(o.graph, "heed", "Attention")->n_inputs, 3);
    done(&o, p.g);
}

static void test_softcap(void **state)
{
    (void) state;
    struct parts p = begin();
    heed_value *t = op(p.g, "Tanh", IN(op(p.g, "Div", IN(scaled(&p, 0.6f), scalar(p.g, 1.5f)))));
    heed_value *m = mask_input(&p, HEED_F32, B, 1, S, T);
    finish_scores(&p, op(p.g, "Add", IN(op(p.g, "Mul", IN(t, scalar(p.g, 1.5f))), m)));
    struct outcome o = try_graph(p.g, 2e-5);
    assert_int_equal(o.n_fused, 1);
    assert_true(fabsf(heed_node_float(find_node(o.graph, "heed", "Attention"), "softcap", 0) - 1.5f) < 1e-6f);
    done(&o, p.g);
    /* Masked before it is capped: another function. */
    p = begin();
    m = mask_input(&p, HEED_F32, B, 1, S, T);
    t = op(p.g, "Tanh", IN(op(p.g, "Div", IN(op(p.g, "Add", IN(scaled(&p, 0.6f), m)), scalar(p.g, 1.5f)))));
    finish_scores(&p, op(p.g, "Mul", IN(t, scalar(p.g, 1.5f))));
    assert_refused(p.g, "before the soft cap");
}

/* ---- heads ---- */

/* [B, G, T, D] to [B, H, T, D] in one of several spellings; `tiles`: h0, h1, h0, h1 instead of h0, h0, h1, h1. */
static heed_value *repeat_heads(heed_graph *g, heed_value *x, int64_t groups, int spelling)
{
    const int64_t times = H / groups, two = 2, wide[5] = { B, groups, times, T, D };
    heed_value *five =
        spelling == 3 ? reshape(g, x, 5, (int64_t[]){ B, groups, 1, T, D }) : op(g, "Unsqueeze", IN(x, ints(g, 1, &two)));
    if (spelling == 1) five = op(g, "Tile", IN(five, ints(g, 5, (int64_t[]){ 1, 1, times, 1, 1 })));
    else if (spelling == 2) five = op(g, "Concat", IN(five, five)), set_int(g, five, "axis", 2);
    else five = op(g, "Expand", IN(five, ints(g, 5, wide)));
    return reshape(g, five, 4, (int64_t[]){ B, H, T, D });
}

static heed_graph *grouped(int spelling, int how)
{
    heed_graph *g = heed_graph_create(ctx);
    const int64_t kv[4] = { B, 2, T, D };
    struct parts p = { .g = g, .q = input(g, "q", HEED_F32, 4, q_dims) };
    heed_value *k = input(g, "k", HEED_F32, 4, kv), *v = input(g, "v", HEED_F32, 4, kv);
    p.k = repeat_heads(g, k, 2, spelling);
    p.v = how == 1 ? op(g, "Tile", IN(v, ints(g, 4, (int64_t[]){ 1, 2, 1, 1 }))) : repeat_heads(g, v, 2, spelling);
    if (how == 2) { /* straight from rank 5 to the flat form that the dynamo exporter transposes in */
        heed_value *flat = reshape(g, p.k->producer->inputs[0], 3, (int64_t[]){ B * H, T, D });
        heed_value *kt = reshape(g, transpose(g, flat, 3, (int64_t[]){ 0, 2, 1 }), 4, (int64_t[]){ B, H, D, T });
        finish_scores(&p, op(g, "MatMul", IN(p.q, kt)));
    } else finish_scores(&p, scaled(&p, 0.3f));
    return g;
}

static void test_repeated_heads(void **state)
{
    (void) state;
    for (int spelling = 0; spelling < 4; spelling++)
        for (int how = 0; how < 3; how += 2) {
            heed_graph *g = grouped(spelling, how);
            struct outcome o = try_graph(g, 2e-5);
            assert_int_equal(o.n_fused, 1);
            assert_int_equal(o.graph->first == o.graph->last, 1);
            assert_non_null(strstr(o.reason, "2 query heads a key head"));
            done(&o, g);
        }
    /* V in the other order: fused, but with the heads as they were repeated. */
    heed_graph *g = grouped(0, 1);
    struct outcome o = try_graph(g, 2e-5);
    assert_int_equal(o.n_fused, 1);
    assert_int_equal(find_node(o.graph, "heed", "Attention")->inputs[1]->fact.dims[1], H);
    done(&o, g);
}

/* Heads repeated while they still lie behind the keys: [B, T, G, D] to [B, T, H, D], then transposed. */
static void test_repeated_before_transpose(void **state)
{
    (void) state;
    heed_graph *g = heed_graph_create(ctx);
    const int64_t kv[4] = { B, T, 2, D }, three = 3;
    struct parts p = { .g = g, .q = input(g, "q", HEED_F32, 4, q_dims) };
    heed_value *both[2];
    for (int i = 0; i < 2; i++) {
        heed_value *x = op(g, "Unsqueeze", IN(input(g, i ? "v" : "k", HEED_F32, 4, kv), ints(g, 1, &three)));
        x = op(g, "Expand", IN(x, ints(g, 5, (int64_t[]){ B, T, 2, 2, D })));
        both[i] = transpose(g, reshape(g, x, 4, (int64_t[]){ B, T, H, D }), 4, bshd);
    }
    p.k = both[0], p.v = both[1];
    finish_scores(&p, scaled(&p, 0.3f));
    struct outcome o = try_graph(g, 2e-5);
    assert_int_equal(o.n_fused, 1);
    assert_int_equal(find_node(o.graph, "heed", "Attention")->inputs[1]->fact.dims[1], 2);
    assert_int_equal(count_nodes(o.graph, "", "Expand"), 0);
    done(&o, g);
}

/* h0, h1, h0, h1 for K and V both, in front of the keys or behind them: fused with the heads as they were repeated. */
static void test_tiled_heads(void **state)
{
    (void) state;
    for (int behind = 0; behind < 2; behind++) {
        heed_graph *g = heed_graph_create(ctx);
        const int64_t heads_first[4] = { B, 2, T, D }, keys_first[4] = { B, T, 2, D }, axis = behind ? 2 : 1;
        struct parts p = { .g = g, .q = input(g, "q", HEED_F32, 4, q_dims) };
        heed_value *both[2];
        for (int i = 0; i < 2; i++) {
            heed_value *x = input(g, i ? "v" : "k", HEED_F32, 4, behind ? keys_first : heads_first);
            x = op(g, "Unsqueeze", IN(x, ints(g, 1, &axis)));
            x = op(g, "Expand", IN(x, ints(g, 5, behind ? (int64_t[]){ B, T, 2, 2, D } : (int64_t[]){ B, 2, 2, T, D })));
            x = reshape(g, x, 4, behind ? (int64_t[]){ B, T, H, D } : (int64_t[]){ B, H, T, D });
            both[i] = behind ? transpose(g, x, 4, bshd) : x;
        }
        p.k = both[0], p.v = both[1];
        finish_scores(&p, scaled(&p, 0.3f));
        struct outcome o = try_graph(g, 2e-5);
        assert_int_equal(o.n_fused, 1);
        assert_int_equal(find_node(o.graph, "heed", "Attention")->inputs[1]->fact.dims[1], H);
        done(&o, g);
    }
}

/* One head of K and V for all of Q, by broadcasting in the product. */
static void test_one_key_head(void **state)
{
    (void) state;
    heed_graph *g = heed_graph_create(ctx);
    const int64_t kv[4] = { B, 1, T, D };
    struct parts p = { g, input(g, "q", HEED_F32, 4, q_dims), input(g, "k", HEED_F32, 4, kv), input(g, "v", HEED_F32, 4, kv) };
    finish_scores(&p, scaled(&p, 0.3f));
    assert_fused(g, 1);
    /* K of rank 2 for every batch and head. */
    g = heed_graph_create(ctx);
    const int64_t flat[2] = { T, D };
    p = (struct parts){ g, input(g, "q", HEED_F32, 4, q_dims), input(g, "k", HEED_F32, 2, flat), input(g, "v", HEED_F32, 4, kv) };
    finish_scores(&p, op(g, "MatMul", IN(p.q, op(g, "Transpose", IN(p.k)))));
    assert_fused(g, 1);
    /* K shared by the heads, V not: heads of K and V differ. */
    p = begin();
    p.k = input(p.g, "k1", HEED_F32, 4, kv);
    finish_scores(&p, scaled(&p, 0.3f));
    assert_refused(p.g, "do not have the same number of heads");
}

/* ---- batches folded into rank 3, and out of rank 5 ---- */

static void test_rank_3(void **state)
{
    (void) state;
    for (int kind = 0; kind < 3; kind++) {
        struct parts p = begin();
        heed_value *q = reshape(p.g, p.q, 3, (int64_t[]){ B * H, S, D }), *k = reshape(p.g, p.k, 3, (int64_t[]){ B * H, T, D });
        heed_value *v = reshape(p.g, p.v, 3, (int64_t[]){ -1, T, D });
        heed_value *s =
            op(p.g, "Mul", IN(op(p.g, "MatMul", IN(q, transpose(p.g, k, 3, (int64_t[]){ 0, 2, 1 }))), scalar(p.g, 0.3f)));
        if (kind >= 1) { /* as CLIP and BLOOM: a mask in rank 3, one in rank 4 */
            s = op(p.g, "Add", IN(s, input(p.g, "alibi", HEED_F32, 3, (int64_t[]){ B * H, 1, T })));
            s = op(p.g, "Add", IN(reshape(p.g, s, 4, (int64_t[]){ B, H, S, T }), mask_input(&p, HEED_F32, B, 1, S, T)));
        }
        heed_value *prob = softmax(p.g, s, -1);
        if (kind == 1) prob = reshape(p.g, prob, 3, (int64_t[]){ B * H, S, T });
        heed_value *out = kind == 2 ? op(p.g, "MatMul", IN(prob, p.v)) : op(p.g, "MatMul", IN(prob, v));
        if (kind != 2) out = reshape(p.g, out, 4, (int64_t[]){ B, H, S, D });
        heed_graph_add_output(p.g, op(p.g, "Neg", IN(transpose(p.g, out, 4, bshd))));
        struct outcome o = try_graph(p.g, 2e-5);
        assert_int_equal(o.n_fused, 1);
        const heed_node *node = find_node(o.graph, "heed", "Attention");
        assert_int_equal(node->inputs[0]->fact.rank, 4);
        assert_int_equal(heed_node_int(node, "out_layout", 0), 1);
        assert_int_equal(count_nodes(o.graph, "", "Reshape"), kind >= 1);
        done(&o, p.g);
    }
    /* Rank 3 from the start. */
    heed_graph *g = heed_graph_create(ctx);
    const int64_t dq[3] = { B, S, D }, dk[3] = { B, T, D };
    struct parts p = { g, input(g, "q", HEED_F32, 3, dq), input(g, "k", HEED_F32, 3, dk), input(g, "v", HEED_F32, 3, dk) };
    finish_scores(&p, op(g, "MatMul", IN(p.q, transpose(g, p.k, 3, (int64_t[]){ 0, 2, 1 }))));
    assert_fused(g, 1);
}

/* Windows: the mask is written for [B, W, H, S, T], the product for [B*W, H, S, T]. */
static void test_windows(void **state)
{
    (void) state;
    const int64_t W = 3, q5[4] = { B * W, H, S, D };
    heed_graph *g = heed_graph_create(ctx);
    struct parts p = { g, input(g, "q", HEED_F32, 4, q5), input(g, "k", HEED_F32, 4, q5), input(g, "v", HEED_F32, 4, q5) };
    heed_value *s = op(g, "Add", IN(scaled(&p, 0.3f), input(g, "bias", HEED_F32, 4, (int64_t[]){ 1, H, S, S })));
    s = reshape(g, s, 5, (int64_t[]){ B, W, H, S, S });
    s = op(g, "Add", IN(s, input(g, "mask", HEED_F32, 5, (int64_t[]){ 1, W, 1, S, S })));
    finish_scores(&p, reshape(g, s, 4, (int64_t[]){ -1, H, S, S }));
    assert_fused(g, 1);
    /* Everything in rank 5. */
    g = heed_graph_create(ctx);
    const int64_t five[5] = { B, W, H, S, D };
    p = (struct parts){ g, input(g, "q", HEED_F32, 5, five), input(g, "k", HEED_F32, 5, five), input(g, "v", HEED_F32, 5, five) };
    s = op(g, "MatMul", IN(p.q, transpose(g, p.k, 5, (int64_t[]){ 0, 1, 2, 4, 3 })));
    s = op(g, "Add", IN(s, input(g, "mask", HEED_F32, 5, (int64_t[]){ 1, W, 1, S, S })));
    finish_scores(&p, s);
    assert_fused(g, 1);
}

/* ---- shapes with symbols ---- */

static void test_symbols(void **state)
{
    (void) state;
    heed_graph *g = heed_graph_create(ctx);
    const int64_t x_dims[3] = { -1, -2, H * D }, split[4] = { 0, 0, H, D };
    heed_value *x = input(g, "x", HEED_F32, 3, x_dims), *qkv[3];
    for (int i = 0; i < 3; i++) qkv[i] = transpose(g, reshape(g, op(g, i ? "Neg" : "Abs", IN(x)), 4, split), 4, bshd);
    struct parts p = { g, qkv[0], qkv[1], qkv[2] };
    const int64_t m_dims[4] = { -1, 1, 1, -2 };
    heed_value *s = op(g, "Add", IN(scaled(&p, 0.3f), input(g, "m", HEED_F32, 4, m_dims)));
    heed_value *out = op(g, "MatMul", IN(softmax(g, s, -1), p.v));
    out = reshape(g, transpose(g, out, 4, bshd), 3, (int64_t[]){ 0, 0, H * D });
    heed_graph_add_output(g, out);
    struct outcome o = try_graph(g, 2e-5);
    assert_int_equal(o.n_fused, 1);
    assert_int_equal(heed_node_int(find_node(o.graph, "heed", "Attention"), "out_layout", 0), 1);
    done(&o, g);
    /* A mask of a length of its own: the product with V proves that it is the keys' or 1. A batch of its own is not proven. */
    for (int of_batch = 0; of_batch <= 1; of_batch++) {
        g = heed_graph_create(ctx);
        const int64_t q4[4] = { -1, H, -2, D }, other[4] = { of_batch ? -3 : 1, 1, 1, of_batch ? -2 : -3 };
        heed_value *q = input(g, "q", HEED_F32, 4, q4), *m = input(g, "m", HEED_F32, 4, other);
        p = (struct parts){ g, q, input(g, "k", HEED_F32, 4, q4), input(g, "v", HEED_F32, 4, q4) };
        finish_scores(&p, op(g, "Add", IN(scores(&p), m)));
        heed_rewriter r;
        heed_graph *copy = rewritten(g, 1, &r);
        assert_int_equal(r.n_findings, 1);
        assert_int_equal(r.findings[0].fused, !of_batch);
        if (of_batch) assert_non_null(strstr(r.findings[0].reason, "not proven to fit"));
        heed_graph_destroy(copy), heed_graph_destroy(g);
    }
}

/* K and V from a cache that is an output too. */
static void test_cache(void **state)
{
    (void) state;
    struct parts p = begin();
    const int64_t past[4] = { B, H, 3, D };
    p.k = op(p.g, "Concat", IN(input(p.g, "past_k", HEED_F32, 4, past), p.k)), set_int(p.g, p.k, "axis", 2);
    p.v = op(p.g, "Concat", IN(input(p.g, "past_v", HEED_F32, 4, past), p.v)), set_int(p.g, p.v, "axis", -2);
    heed_graph_add_output(p.g, p.k);
    heed_graph_add_output(p.g, p.v);
    finish_scores(&p, scaled(&p, 0.3f));
    assert_fused(p.g, 1);
}

/* Two softmaxes in a row, and one attention feeding the next. */
static void test_chain(void **state)
{
    (void) state;
    struct parts p = begin();
    const int64_t same[4] = { B, H, S, D };
    heed_value *first = op(p.g, "MatMul", IN(softmax(p.g, scaled(&p, 0.3f), -1), p.v));
    struct parts next = { p.g, first, input(p.g, "k2", HEED_F32, 4, same), first };
    finish_scores(&next, scaled(&next, 0.5f));
    assert_fused(p.g, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_scales),
        cmocka_unit_test(test_tensor_scales),
        cmocka_unit_test(test_axis),
        cmocka_unit_test(test_not_a_softmax),
        cmocka_unit_test(test_other_softmax),
        cmocka_unit_test(test_second_users),
        cmocka_unit_test(test_casts_and_guard),
        cmocka_unit_test(test_key_spellings),
        cmocka_unit_test(test_heads_permuted_on_the_way),
        cmocka_unit_test(test_einsum),
        cmocka_unit_test(test_gemm),
        cmocka_unit_test(test_additive_masks),
        cmocka_unit_test(test_factor_after_mask),
        cmocka_unit_test(test_several_masks),
        cmocka_unit_test(test_where_masks),
        cmocka_unit_test(test_floor),
        cmocka_unit_test(test_cleared_rows),
        cmocka_unit_test(test_fully_hidden_row),
        cmocka_unit_test(test_masks_that_do_nothing),
        cmocka_unit_test(test_softcap),
        cmocka_unit_test(test_repeated_heads),
        cmocka_unit_test(test_repeated_before_transpose),
        cmocka_unit_test(test_tiled_heads),
        cmocka_unit_test(test_one_key_head),
        cmocka_unit_test(test_rank_3),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_symbols),
        cmocka_unit_test(test_cache),
        cmocka_unit_test(test_chain),
    };
    start();
    return cmocka_run_group_tests(tests, setup, teardown);
}
