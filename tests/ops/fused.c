/* heed.Attention and the operators of com.microsoft around it, and MatMulNBits, against loops in double. What attention itself
 * must do is tested in tests/attention; here it is that operators hand over the right thing: ranks, repeats, masks, layouts. */
#include "ops/attention.h"
#include "ops/bench_node.h"

static const heed_dtype types[] = { HEED_F32, HEED_F16, HEED_BF16 };

/* One attention in its general form, all as functions of [b, h, i, j]. */
typedef struct problem {
    int64_t batch, heads, heads_kv, len_q, len_k, dim, dim_v;
    double scale;
    const heed_tensor *q, *k, *v; /* [B | 1, H, L, D] */
    const heed_tensor *mask;      /* broadcast to [B, H, Lq, Lk]; bool or float */
    const heed_tensor *sinks, *lengths;
    int64_t left, right, offset; /* -1: unbounded */
} problem;

static double score(const problem *p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    double s = 0;
    if (p->lengths && j >= (int64_t) get(p->lengths, b)) return -INFINITY;
    if ((p->left >= 0 && j < i + p->offset - p->left) || (p->right >= 0 && j > i + p->offset + p->right)) return -INFINITY;
    for (int64_t d = 0; d < p->dim; d++)
        s += get_at(p->q, (int64_t[]){ b, h, i, d }, 4) * get_at(p->k, (int64_t[]){ b, h / (p->heads / p->heads_kv), j, d }, 4);
    s *= p->scale;
    if (!p->mask) return s;
    double m = get_at(p->mask, (int64_t[]){ b, h, i, j }, 4);
    return p->mask->dtype == HEED_BOOL ? (m != 0 ? s : -INFINITY) : s + m;
}

static double want_at(const problem *p, int64_t b, int64_t h, int64_t i, int64_t e)
{
    double max = p->sinks ? get(p->sinks, h) : -INFINITY, sum = 0, out = 0;
    for (int64_t j = 0; j < p->len_k; j++) max = fmax(max, score(p, b, h, i, j));
    if (max == -INFINITY) return 0;
    if (p->sinks) sum = exp(get(p->sinks, h) - max);
    for (int64_t j = 0; j < p->len_k; j++) {
        double w = exp(score(p, b, h, i, j) - max);
        sum += w, out += w * get_at(p->v, (int64_t[]){ b, h / (p->heads / p->heads_kv), j, e }, 4);
    }
    return out / sum;
}

/* out: [B, H, Lq, Dv] of any strides. */
static void check_attention(const problem *p, const heed_tensor *out, const char *what)
{
    for (int64_t n = 0; n < p->batch * p->heads * p->len_q * p->dim_v; n++) {
        int64_t at[4] = { n / p->dim_v / p->len_q / p->heads, n / p->dim_v / p->len_q % p->heads, n / p->dim_v % p->len_q,
                          n % p->dim_v };
        double want = want_at(p, at[0], at[1], at[2], at[3]);
        expect_close(get_at(out, at, 4), want, 3 * rounding(out->dtype) + 2e-5, what, n);
    }
}

static heed_tensor *make_mask(bench *b, heed_dtype dtype, int rank, const int64_t *dims)
{
    heed_tensor *m = uniform_tensor(b, dtype, -2, 2, rank, dims);
    for (int64_t i = 0; i < heed_tensor_count(m); i++) {
        if (dtype == HEED_BOOL) put(m, i, next_random(b) % 4 != 0);
        else if (next_random(b) % 4 == 0) put(m, i, -INFINITY);
    }
    return m;
}

/* Masks of every rank and repeat, batches that repeat, grouped heads, both layouts, exploded and not. */
static void check_rank_4(bench *b, heed_dtype dtype, int round)
{
    problem p = {
        2, 6, round % 3 == 0 ? 2 : 6, 5, 9, 16, round & 1 ? 16 : 24, 0.2, NULL, NULL, NULL, NULL, NULL, NULL, -1, -1, 0
    };
    p.q = uniform_tensor(b, dtype, -2, 2, DIMS(round % 4 == 1 ? 1 : 2, p.heads, p.len_q, p.dim));
    p.k = uniform_tensor(b, dtype, -2, 2, DIMS(round % 5 == 1 ? 1 : 2, p.heads_kv, p.len_k, p.dim));
    p.v = uniform_tensor(b, dtype, -2, 2, DIMS(2, p.heads_kv, p.len_k, p.dim_v));
    const int64_t full[4] = { p.batch, p.heads, p.len_q, p.len_k };
    int rank = round % 5;
    int64_t dims[4];
    for (int d = 0; d < rank; d++) dims[d] = next_random(b) % 3 ? full[4 - rank + d] : 1;
    if (rank) p.mask = make_mask(b, round % 2 ? HEED_BOOL : round % 4 ? HEED_F32 : dtype, rank, dims);
    if (round % 7 == 2) p.sinks = uniform_tensor(b, HEED_F32, -1, 1, DIMS(p.heads));
    if (round % 6 == 3) {
        heed_tensor *lengths = tensor(b, HEED_I64, DIMS(p.batch));
        for (int64_t i = 0; i < p.batch; i++) put(lengths, i, (double) between(b, 0, p.len_k));
        p.lengths = lengths;
    }
    heed_node *node = node_of(b, "heed", "Attention", 1, 6, 1);
    set_float(b, node, "scale", p.scale), set_int(b, node, "out_layout", round & 1), set_int(b, node, "explode", round >> 1 & 1);
    if (round % 8 == 5) {
        p.left = 3, p.right = 1, p.offset = 2;
        set_int(b, node, "window_left", 3), set_int(b, node, "window_right", 1);
        set_int(b, node, "offset", 2), set_int(b, node, "offset_mode", HEED_OFFSET_VALUE);
    }
    if (round % 8 == 6) p.right = 0, set_int(b, node, "causal", 1);
    expect_node(b, node, (const heed_tensor *const[]){ p.q, p.k, p.v, p.mask, p.sinks, p.lengths });
    expect_shape(b->out[0], DIMS(p.batch, p.heads, p.len_q, p.dim_v));
    if (round & 1) assert_int_equal(b->out[0]->strides[1], p.dim_v);
    check_attention(&p, b->out[0], "heed.Attention");
}

static void test_attention(void **state)
{
    (void) state;
    bench b = bench_start();
    for (int t = 0; t < 3; t++)
        for (int round = 0; round < 60; round++) check_rank_4(&b, types[t], round);
    bench_end(&b);
}

static void test_attention_low_ranks(void **state)
{
    (void) state;
    bench b = bench_start();
    for (int with_mask = 0; with_mask < 3; with_mask++) {
        problem p = { 3, 1, 1, 4, 6, 8, 8, 1 / sqrt(8), NULL, NULL, NULL, NULL, NULL, NULL, -1, -1, 0 };
        const heed_tensor *in[] = { uniform_tensor(&b, HEED_F32, -2, 2, DIMS(3, 4, 8)),
                                    uniform_tensor(&b, HEED_F32, -2, 2, DIMS(1, 6, 8)),
                                    uniform_tensor(&b, HEED_F32, -2, 2, DIMS(3, 6, 8)), NULL };
        heed_tensor four[4];
        for (int k = 0; k < 3; k++)
            four[k] = heed_tensor_make(HEED_F32, 4, (int64_t[]){ in[k]->dims[0], 1, in[k]->dims[1], 8 }),
            four[k].data = in[k]->data;
        p.q = &four[0], p.k = &four[1], p.v = &four[2];
        if (with_mask == 1) in[3] = p.mask = make_mask(&b, HEED_F32, DIMS(4, 6));
        if (with_mask == 2) {
            in[3] = make_mask(&b, HEED_F32, DIMS(3, 4, 6)); /* beside rank 3 the first dimension is the batch */
            four[3] = heed_tensor_make(HEED_F32, 4, (int64_t[]){ 3, 1, 4, 6 }), four[3].data = in[3]->data, p.mask = &four[3];
        }
        expect_node(&b, node_of(&b, "heed", "Attention", 1, 4, 1), in);
        expect_shape(b.out[0], DIMS(3, 4, 8));
        heed_tensor out = heed_tensor_make(HEED_F32, 4, (int64_t[]){ 3, 1, 4, 8 });
        out.data = b.out[0]->data;
        check_attention(&p, &out, "rank 3");
    }
    const heed_tensor *flat[] = { uniform_tensor(&b, HEED_F32, -2, 2, DIMS(4, 8)),
                                  uniform_tensor(&b, HEED_F32, -2, 2, DIMS(0, 8)),
                                  uniform_tensor(&b, HEED_F32, -2, 2, DIMS(0, 5)) };
    expect_node(&b, node_of(&b, "heed", "Attention", 1, 3, 1), flat);
    expect_shape(b.out[0], DIMS(4, 5));
    for (int64_t e = 0; e < 20; e++) assert_true(get(b.out[0], e) == 0); /* no keys */
    bench_end(&b);
}

static void test_attention_refuses(void **state)
{
    (void) state;
    bench b = bench_start();
    const heed_tensor *q = uniform_tensor(&b, HEED_F32, -1, 1, DIMS(2, 3, 4, 8)),
                      *k = uniform_tensor(&b, HEED_F32, -1, 1, DIMS(2, 2, 5, 8)),
                      *narrow = uniform_tensor(&b, HEED_F32, -1, 1, DIMS(2, 3, 5, 7)),
                      *fits = uniform_tensor(&b, HEED_F32, -1, 1, DIMS(2, 3, 5, 8)),
                      *mask = uniform_tensor(&b, HEED_F32, -1, 1, DIMS(4, 6)),
                      *doubles = uniform_tensor(&b, HEED_F64, -1, 1, DIMS(2, 3, 4, 8));
    assert_int_equal(run_node(&b, node_of(&b, "heed", "Attention", 1, 3, 1), (const heed_tensor *const[]){ q, k, k }),
                     HEED_ERR_ARGUMENT);
    assert_int_equal(run_node(&b, node_of(&b, "heed", "Attention", 1, 3, 1), (const heed_tensor *const[]){ q, narrow, fits }),
                     HEED_ERR_ARGUMENT);
    assert_int_equal(run_node(&b, node_of(&b, "heed", "Attention", 1, 4, 1), (const heed_tensor *const[]){ q, fits, fits, mask }),
                     HEED_ERR_ARGUMENT);
    assert_int_equal(
        run_node(&b, node_of(&b, "heed", "Attention", 1, 3, 1), (const heed_tensor *const[]){ doubles, doubles, doubles }),
        HEED_ERR_UNSUPPORTED);
    bench_end(&b);
}

/* The state tells which kernel ran. */
static void test_state_names_kernel(void **state)
{
    (void) state;
    bench b = bench_start();
    const heed_op *op = heed_op_find("heed", "Attention", 1);
    heed_tensor *x = uniform_tensor(&b, HEED_F32, -1, 1, DIMS(1, 2, 3, 8)), *y = tensor(&b, HEED_F32, DIMS(1, 2, 3, 8));
    heed_node *node = node_of(&b, "heed", "Attention", 1, 3, 1);
    set_int(&b, node, "explode", 1);
    heed_compute c = {
        .ctx = b.ctx, .node = node, .n_in = 3, .n_out = 1, .in = (const heed_tensor *const[]){ x, x, x }, .out = &y
    };
    assert_int_equal(op->prepare(&c, &c.state), HEED_OK);
    assert_string_equal(heed_attention_state_kernel(c.state), "explode");
    assert_non_null(strstr(heed_attention_state_explain(c.state), "explode: chosen"));
    op->release(b.ctx, c.state);
    assert_string_equal(heed_attention_state_kernel(NULL), "");
    bench_end(&b);
}

/* ---- com.microsoft ---- */

/* HIDDEN: mask_filter_value, not so low that a row of hidden keys loses its digits. */
enum { B = 2, H = 3, S = 4, D = 8, P = 3, W = H * D, HIDDEN = -50 };

/* [B, H, L, D] out of [B, L, H * parts * D] rows from column `first` on. */
static heed_tensor heads_of(const heed_tensor *t, int64_t first, int64_t len, int64_t width)
{
    heed_tensor v = heed_tensor_make(t->dtype, 4, (int64_t[]){ B, H, len, D });
    v.strides[0] = len * width, v.strides[1] = D, v.strides[2] = width;
    v.data = heed_at(t->data, t->dtype, first);
    return v;
}

/* Past and new along the length. */
static heed_tensor *joined(bench *b, const heed_tensor *past, int64_t past_at, const heed_tensor *fresh)
{
    int64_t old = past ? P : 0, len = old + fresh->dims[2];
    heed_tensor *t = tensor(b, fresh->dtype, DIMS(B, H, len, D));
    for (int64_t e = 0; e < heed_tensor_count(t); e++) {
        int64_t at[4];
        unravel(t, e, at);
        if (at[2] < old) put(t, e, get(past, past_at + ((at[0] * H + at[1]) * P + at[2]) * D + at[3]));
        else put(t, e, get_at(fresh, (int64_t[]){ at[0], at[1], at[2] - old, at[3] }, 4));
    }
    return t;
}

/* The additive mask that a mask_index or key_padding_mask and an attention_bias mean. */
static heed_tensor *mask_meaning(bench *b, const heed_tensor *mask, const heed_tensor *bias, int64_t len_k)
{
    heed_tensor *m = tensor(b, HEED_F32, DIMS(B, H, S, len_k));
    for (int64_t e = 0; e < heed_tensor_count(m); e++) {
        int64_t at[4], j;
        unravel(m, e, at), j = at[3];
        double x = bias ? get_at(bias, at, 4) : 0;
        int hidden = 0;
        if (mask && mask->rank == 1) hidden = j >= get(mask, at[0]) || (mask->dims[0] == 2 * B && j < get(mask, B + at[0]));
        if (mask && mask->rank == 2) hidden = get(mask, at[0] * len_k + j) == 0;
        if (mask && mask->rank == 3) hidden = get(mask, (at[0] * S + at[2]) * len_k + j) == 0;
        put(m, e, hidden ? x + HIDDEN : x);
    }
    return m;
}

static heed_tensor *make_index(bench *b, int form, int64_t len_k)
{
    heed_tensor *m = form == 1   ? tensor(b, HEED_I32, DIMS(B))
                     : form == 2 ? tensor(b, HEED_I32, DIMS(2 * B))
                     : form == 3 ? tensor(b, HEED_I32, DIMS(B, len_k))
                                 : tensor(b, HEED_I32, DIMS(B, S, len_k));
    for (int64_t i = 0; i < heed_tensor_count(m); i++)
        put(m, i,
            form >= 3 ? (double) (next_random(b) % 3 != 0)
            : i < B   ? (double) between(b, 2, len_k)
                      : (double) between(b, 0, 1));
    return form ? m : NULL;
}

static void check_output(bench *b, const problem *p, const char *what)
{
    heed_tensor out = heads_of(b->out[0], 0, S, W);
    expect_shape(b->out[0], DIMS(B, S, W));
    check_attention(p, &out, what);
}

static void check_present(const heed_tensor *got, int64_t first, const heed_tensor *want)
{
    for (int64_t e = 0; e < heed_tensor_count(want); e++)
        expect_close(get(got, first + e), get(want, e), 1e-6 + rounding(got->dtype) * 4, "present", e);
}

static void check_packed(bench *b, heed_dtype dtype, int form, int with_past, int unidirectional, int with_scores)
{
    enum { IN = 10 };
    int64_t len_k = S + (with_past ? P : 0);
    heed_tensor *x = uniform_tensor(b, dtype, -1, 1, DIMS(B, S, IN)), *w = uniform_tensor(b, dtype, -0.5, 0.5, DIMS(IN, 3 * W)),
                *bias = uniform_tensor(b, dtype, -1, 1, DIMS(3 * W)),
                *past = with_past ? uniform_tensor(b, dtype, -1, 1, DIMS(2, B, H, P, D)) : NULL,
                *scores = with_scores ? uniform_tensor(b, dtype, -1, 1, DIMS(1, H, S, len_k)) : NULL,
                *index = make_index(b, form, len_k);
    heed_tensor *qkv = tensor(b, dtype, DIMS(B, S, 3 * W));
    for (int64_t e = 0; e < heed_tensor_count(qkv); e++) {
        double sum = get(bias, e % (3 * W));
        for (int64_t k = 0; k < IN; k++) sum += get(x, e / (3 * W) * IN + k) * get(w, k * 3 * W + e % (3 * W));
        put(qkv, e, sum);
    }
    heed_tensor q = heads_of(qkv, 0, S, 3 * W), k = heads_of(qkv, W, S, 3 * W), v = heads_of(qkv, 2 * W, S, 3 * W);
    problem p = { B,
                  H,
                  H,
                  S,
                  len_k,
                  D,
                  D,
                  1 / sqrt(D),
                  &q,
                  joined(b, past, 0, &k),
                  joined(b, past, B * H * P * D, &v),
                  mask_meaning(b, index, scores, len_k),
                  NULL,
                  NULL,
                  -1,
                  unidirectional ? 0 : -1,
                  with_past ? P : 0 };
    heed_node *node = node_of(b, "com.microsoft", "Attention", 1, 6, with_past || form == 1 ? 2 : 1);
    set_float(b, node, "mask_filter_value", HIDDEN), set_int(b, node, "num_heads", H),
        set_int(b, node, "unidirectional", unidirectional);
    expect_node(b, node, (const heed_tensor *const[]){ x, w, bias, index, past, scores });
    check_output(b, &p, "Attention");
    if (node->n_outputs < 2) return;
    expect_shape(b->out[1], DIMS(2, B, H, len_k, D));
    check_present(b->out[1], 0, p.k);
    check_present(b->out[1], heed_tensor_count(p.k), p.v);
}

static void test_packed_attention(void **state)
{
    (void) state;
    bench b = bench_start();
    for (int t = 0; t < 3; t++)
        for (int options = 0; options < 40; options++) {
            b.constants = options & 1 ? 1u << 1 | 1u << 2 : 0;
            check_packed(&b, types[t], options % 5, options >> 1 & 1, options >> 2 & 1, options >> 3 & 1);
        }
    bench_end(&b);
}

static void check_multi_head(bench *b, heed_dtype dtype, int form, int with_bias, int with_past, int with_scores)
{
    int64_t len = with_past ? S : 6, len_k = len + (with_past ? P : 0);
    heed_tensor *x[3] = { uniform_tensor(b, dtype, -1, 1, DIMS(B, S, W)), uniform_tensor(b, dtype, -1, 1, DIMS(B, len, W)),
                          uniform_tensor(b, dtype, -1, 1, DIMS(B, len, W)) };
    heed_tensor *bias = with_bias ? uniform_tensor(b, dtype, -1, 1, DIMS(3 * W)) : NULL,
                *index = make_index(b, form == 2 ? 0 : form, len_k), *past[2] = { NULL, NULL },
                *scores = with_scores ? uniform_tensor(b, HEED_F32, -1, 1, DIMS(B, 1, S, len_k)) : NULL;
    if (scores && dtype != HEED_F32) scores = uniform_tensor(b, dtype, -1, 1, DIMS(B, 1, S, len_k));
    heed_tensor sums[3];
    for (int k = 0; k < 3; k++) {
        heed_tensor *sum = tensor(b, dtype, 3, x[k]->dims);
        for (int64_t e = 0; e < heed_tensor_count(sum); e++) put(sum, e, get(x[k], e) + (bias ? get(bias, k * W + e % W) : 0));
        sums[k] = heads_of(sum, 0, k ? len : S, W);
    }
    for (int k = 0; with_past && k < 2; k++) past[k] = uniform_tensor(b, dtype, -1, 1, DIMS(B, H, P, D));
    problem p = { B,
                  H,
                  H,
                  S,
                  len_k,
                  D,
                  D,
                  0.3,
                  &sums[0],
                  joined(b, past[0], 0, &sums[1]),
                  joined(b, past[1], 0, &sums[2]),
                  mask_meaning(b, index, scores, len_k),
                  NULL,
                  NULL,
                  -1,
                  -1,
                  0 };
    heed_node *node = node_of(b, "com.microsoft", "MultiHeadAttention", 1, 8, with_past ? 3 : 1);
    set_float(b, node, "mask_filter_value", HIDDEN), set_int(b, node, "num_heads", H), set_float(b, node, "scale", 0.3);
    expect_node(b, node, (const heed_tensor *const[]){ x[0], x[1], x[2], bias, index, scores, past[0], past[1] });
    check_output(b, &p, "MultiHeadAttention");
    if (!with_past) return;
    check_present(b->out[1], 0, p.k);
    check_present(b->out[2], 0, p.v);
}

static void test_multi_head_attention(void **state)
{
    (void) state;
    bench b = bench_start();
    for (int t = 0; t < 3; t++)
        for (int options = 0; options < 40; options++)
            check_multi_head(&b, types[t], options % 5, options & 1, options >> 1 & 1, options >> 2 & 1);
    bench_end(&b);
}

/* ---- GroupQueryAttention ---- */

enum { GROUP_KV = 1, ROOM = 6, CACHED = 12 };

/* x[b, l, h * D + d] after the rotation by halves at its position. */
static double turned(const heed_tensor *x, const heed_tensor *cosines, const heed_tensor *sines, int64_t row, int64_t head,
                     int64_t d, int64_t position)
{
    int64_t at = row * x->dims[2] + head * D, half = D / 2, i = d % half;
    if (!cosines) return get(x, at + d);
    double a = get(x, at + i), b = get(x, at + half + i), c = get(cosines, position * half + i),
           s = get(sines, position * half + i);
    return d < half ? c * a - s * b : s * a + c * b;
}

/* The first queries of a sequence (prompt), or `len` after different numbers of keys in each batch. */
static void check_group_query(bench *b, heed_dtype dtype, int prompt, int with_rotary, int with_sink, int64_t window)
{
    int64_t len = prompt ? S : 1, past = prompt ? 0 : ROOM, old[B] = { prompt ? 0 : ROOM, prompt ? 0 : 3 }, total = old[0] + len;
    heed_tensor *q = uniform_tensor(b, dtype, -1, 1, DIMS(B, len, W)), *kv[2], *pasts[2], *lengths = tensor(b, HEED_I32, DIMS(B)),
                *totals = tensor(b, HEED_I32, DIMS(1)), *sink = with_sink ? uniform_tensor(b, dtype, -1, 1, DIMS(H)) : NULL;
    heed_tensor *cosines = with_rotary ? uniform_tensor(b, dtype, -1, 1, DIMS(CACHED, D / 2)) : NULL,
                *sines = with_rotary ? uniform_tensor(b, dtype, -1, 1, DIMS(CACHED, D / 2)) : NULL;
    for (int k = 0; k < 2; k++) {
        kv[k] = uniform_tensor(b, dtype, -1, 1, DIMS(B, len, GROUP_KV * D));
        pasts[k] = uniform_tensor(b, dtype, -1, 1, DIMS(B, GROUP_KV, past, D));
    }
    for (int64_t i = 0; i < B; i++) put(lengths, i, (double) (old[i] + len - 1));
    put(totals, 0, (double) total);
    heed_node *node = node_of(b, "com.microsoft", "GroupQueryAttention", 1, 12, 3);
    set_int(b, node, "num_heads", H), set_int(b, node, "kv_num_heads", GROUP_KV), set_int(b, node, "do_rotary", with_rotary);
    set_int(b, node, "local_window_size", window);
    expect_node(
        b, node,
        (const heed_tensor *const[]){ q, kv[0], kv[1], pasts[0], pasts[1], lengths, totals, cosines, sines, NULL, NULL, sink });
    int64_t most = past > total ? past : total;
    heed_tensor *query = tensor(b, dtype, DIMS(B, H, len, D)), *present[2], *key_lengths = tensor(b, HEED_I64, DIMS(B));
    for (int64_t e = 0; e < heed_tensor_count(query); e++) {
        int64_t at[4];
        unravel(query, e, at);
        put(query, e, turned(q, cosines, sines, at[0] * len + at[2], at[1], at[3], old[at[0]] + at[2]));
    }
    for (int k = 0; k < 2; k++) {
        present[k] = tensor(b, dtype, DIMS(B, GROUP_KV, most, D));
        for (int64_t e = 0; e < heed_tensor_count(present[k]); e++) {
            int64_t at[4], fresh;
            unravel(present[k], e, at), fresh = at[2] - old[at[0]];
            if (fresh < 0) put(present[k], e, get(pasts[k], (at[0] * GROUP_KV + at[1]) * past * D + at[2] * D + at[3]));
            else if (fresh < len)
                put(present[k], e, turned(kv[k], k ? NULL : cosines, sines, at[0] * len + fresh, at[1], at[3], at[2]));
        }
        expect_shape(b->out[1 + k], DIMS(B, GROUP_KV, most, D));
        check_present(b->out[1 + k], 0, present[k]);
    }
    for (int64_t i = 0; i < B; i++) { /* a batch at a time: each has an offset of its own */
        heed_tensor one[4] = { *query, *present[0], *present[1], heads_of(b->out[0], 0, len, W) };
        for (int k = 0; k < 4; k++) one[k].dims[0] = 1, one[k].data = heed_at(one[k].data, dtype, i * one[k].strides[0]);
        put(key_lengths, 0, (double) (old[i] + len));
        problem p = { 1,       H,     GROUP_KV,    len,         total,
                      D,       D,     1 / sqrt(D), &one[0],     &one[1],
                      &one[2], NULL,  sink,        key_lengths, window > 0 ? window - 1 : -1,
                      0,       old[i] };
        check_attention(&p, &one[3], "GroupQueryAttention");
    }
}

static void test_group_query_attention(void **state)
{
    (void) state;
    bench b = bench_start();
    for (int t = 0; t < 3; t++)
        for (int options = 0; options < 16; options++)
            check_group_query(&b, types[t], options & 1, options >> 1 & 1, options >> 2 & 1, options & 8 ? 2 : -1);
    /* Lengths that the shapes cannot hold. */
    heed_tensor *q = uniform_tensor(&b, HEED_F32, -1, 1, DIMS(1, 1, W)), *k = uniform_tensor(&b, HEED_F32, -1, 1, DIMS(1, 1, D)),
                *past = uniform_tensor(&b, HEED_F32, -1, 1, DIMS(1, 1, 4, D)), *length = tensor(&b, HEED_I32, DIMS(1)),
                *total = tensor(&b, HEED_I32, DIMS(1));
    static const double bad[][2] = { { 5, 5 }, { -5, 5 }, { 4, 6 }, { 4, -1 }, { 2147483647, 5 }, { 4, 0 } };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put(length, 0, bad[i][0]), put(total, 0, bad[i][1]);
        heed_node *node = node_of(&b, "com.microsoft", "GroupQueryAttention", 1, 7, 1);
        set_int(&b, node, "num_heads", H), set_int(&b, node, "kv_num_heads", 1);
        assert_int_equal(run_node(&b, node, (const heed_tensor *const[]){ q, k, k, past, past, length, total }),
                         HEED_ERR_ARGUMENT);
    }
    bench_end(&b);
}

/* ---- MatMulNBits ---- */

static void check_nbits(bench *b, heed_dtype dtype, int64_t bits, int64_t k, int64_t block, int zeros_kind)
{
    enum { M = 5, N = 37 };
    int64_t blocks = (k + block - 1) / block, bytes = block * bits / 8, zero_bytes = (blocks * bits + 7) / 8;
    heed_tensor *a = uniform_tensor(b, dtype, -1, 1, DIMS(1, M, k)), *q = tensor(b, HEED_U8, DIMS(N, blocks, bytes)),
                *scales = uniform_tensor(b, dtype, 0.01, 0.1, DIMS(N * blocks)), *bias = uniform_tensor(b, dtype, -1, 1, DIMS(N));
    heed_tensor *zeros = zeros_kind == 1   ? tensor(b, HEED_U8, DIMS(N, zero_bytes))
                         : zeros_kind == 2 ? uniform_tensor(b, dtype, 0, 9, DIMS(N, blocks))
                                           : NULL;
    for (int64_t i = 0; i < N * blocks * bytes; i++) put(q, i, (double) between(b, 0, 255));
    for (int64_t i = 0; zeros_kind == 1 && i < N * zero_bytes; i++) put(zeros, i, (double) between(b, 0, 255));
    heed_node *node = node_of(b, "com.microsoft", "MatMulNBits", 1, 6, 1);
    set_int(b, node, "N", N), set_int(b, node, "K", k), set_int(b, node, "bits", bits), set_int(b, node, "block_size", block);
    expect_node(b, node, (const heed_tensor *const[]){ a, q, scales, zeros, NULL, bias });
    expect_shape(b->out[0], DIMS(1, M, N));
    for (int64_t e = 0; e < M * N; e++) {
        int64_t n = e % N;
        double want = get(bias, n), size = 1;
        for (int64_t i = 0; i < k; i++) {
            int64_t g = i / block, byte = (int64_t) get(q, (n * blocks + g) * bytes + i % block * bits / 8);
            double zero = bits == 4 ? 8 : 128, x = bits == 8 ? (double) byte : (double) (i & 1 ? byte >> 4 : byte & 15);
            if (zeros_kind == 2) zero = get(zeros, n * blocks + g);
            if (zeros_kind == 1) {
                int64_t z = (int64_t) get(zeros, n * zero_bytes + g * bits / 8);
                zero = bits == 8 ? (double) z : (double) (g & 1 ? z >> 4 : z & 15);
            }
            double w = get(a, e / N * k + i) * (x - zero) * get(scales, n * blocks + g);
            want += w, size += fabs(w);
        }
        expect_close(get(b->out[0], e), want, rounding(dtype) * fabs(want) + 1e-6 * size, "MatMulNBits", e);
    }
}

static void test_nbits(void **state)
{
    (void) state;
    bench b = bench_start();
    for (int t = 0; t < 3; t++)
        for (int64_t bits = 4; bits <= 8; bits += 4)
            for (int zeros = 0; zeros < 3; zeros++) {
                check_nbits(&b, types[t], bits, 64, 32, zeros);
                check_nbits(&b, types[t], bits, 50, 16, zeros);
                check_nbits(&b, types[t], bits, 1100, 128, zeros);
                check_nbits(&b, types[t], bits, 33, 1024, zeros);
            }
    heed_node *node = node_of(&b, "com.microsoft", "MatMulNBits", 1, 3, 1);
    set_int(&b, node, "N", INT64_MAX), set_int(&b, node, "K", INT64_MAX);
    const heed_tensor *x = uniform_tensor(&b, HEED_F32, -1, 1, DIMS(2, 64)), *q = tensor(&b, HEED_U8, DIMS(4, 2, 16));
    assert_int_equal(run_node(&b, node, (const heed_tensor *const[]){ x, q, x }), HEED_ERR_ARGUMENT);
    bench_end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_attention_low_ranks),
        cmocka_unit_test(test_attention_refuses),
        cmocka_unit_test(test_state_names_kernel),
        cmocka_unit_test(test_packed_attention),
        cmocka_unit_test(test_multi_head_attention),
        cmocka_unit_test(test_group_query_attention),
        cmocka_unit_test(test_nbits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
