/* Attention and MultiHeadAttention of com.microsoft, on the attention API.
 *
 * Query, key and value lie as [B, L, H * D] or packed and become views [B, H, L, D]. A mask in any of its forms, and what is
 * added to the scores, become one additive mask; hidden keys get the finite number `mask_filter_value` there, as the operators
 * define it. Where there is a past, or the present is wanted, keys and values are joined first.
 *
 * One function lays a node out: run without memory it only counts bytes and shapes, for the plan and the scratch. */
#include <math.h>
#include <string.h>

#include "ops/attention.h"
#include "ops/gemm.h"
#include "ops/line_io.h"

/* Inputs of MultiHeadAttention, and of Attention. */
enum { M_QUERY, M_KEY, M_VALUE, M_BIAS, M_MASK, M_SCORES, M_PAST_KEY, M_PAST_VALUE };
enum { A_X, A_WEIGHTS, A_BIAS, A_MASK, A_PAST, A_SCORES };

static int is_attention(const heed_node *node)
{
    return strcmp(node->op, "Attention") == 0;
}

/* ---- shapes ---- */

static const heed_fact *fact(const heed_infer *i, int k)
{
    return k < i->n_in ? i->in[k] : NULL;
}

static heed_status check_common(heed_infer *i)
{
    static const char *const unknown[] = { "do_rotary", "past_present_share_buffer" };
    for (size_t k = 0; k < sizeof unknown / sizeof *unknown; k++)
        if (heed_node_int(i->node, unknown[k], 0) != 0)
            return heed_fail(HEED_ERR_UNSUPPORTED, "%s: %s is not supported", i->node->op, unknown[k]);
    int last = is_attention(i->node) ? A_SCORES : M_PAST_VALUE;
    for (int k = last + 1; k < i->n_in; k++)
        if (i->in[k]) return heed_fail(HEED_ERR_UNSUPPORTED, "%s: input %d is not supported", i->node->op, k);
    if (heed_node_int(i->node, "num_heads", 0) < 1)
        return heed_infer_fail(i, "num_heads is %lld, expected 1 or more", (long long) heed_node_int(i->node, "num_heads", 0));
    heed_dtype dtype = i->in[0]->dtype;
    if (dtype != HEED_DTYPE_NONE && (!heed_dtype_is_float(dtype) || dtype == HEED_F64))
        return heed_fail(HEED_ERR_UNSUPPORTED, "%s: its type is %s, expected f32, f16 or bf16", i->node->op,
                         heed_dtype_name(dtype));
    return HEED_OK;
}

/* Widths of query and value among the columns of the packed weights. */
static heed_status packed_widths(heed_infer *i, int64_t columns, int64_t *query, int64_t *value)
{
    int n;
    const int64_t *widths = heed_node_ints(i->node, "qkv_hidden_sizes", &n);
    int64_t heads = heed_node_int(i->node, "num_heads", 1);
    if (widths && (n != 3 || widths[0] != widths[1]))
        return heed_infer_fail(i, "qkv_hidden_sizes must be three, the first two equal");
    *query = widths ? widths[0] : columns / 3, *value = widths ? widths[2] : columns / 3;
    if (*query < 1 || *value < 1 || *query > columns || *value > columns || 2 * *query + *value != columns || *query % heads ||
        *value % heads)
        return heed_infer_fail(i, "%lld columns of weights do not divide into query, key and value of %lld heads",
                               (long long) columns, (long long) heads);
    return HEED_OK;
}

static heed_status infer_packed_attention(heed_infer *i)
{
    const heed_fact *x = i->in[A_X], *w = i->in[A_WEIGHTS], *past = fact(i, A_PAST), *bias = fact(i, A_BIAS);
    HEED_TRY(check_common(i));
    i->out[0].dtype = x->dtype;
    if (i->n_out > 1) i->out[1].dtype = x->dtype;
    if (x->rank < 0 || w->rank < 0 || w->dims[w->rank - (w->rank > 0)] < 0) return HEED_OK;
    if (x->rank != 3 || w->rank != 2)
        return heed_infer_fail(i, "x has rank %d and the weights %d, expected 3 and 2", x->rank, w->rank);
    if (x->dims[2] >= 0 && w->dims[0] >= 0 && x->dims[2] != w->dims[0])
        return heed_infer_fail(i, "x has shape %s, the weights %s", heed_infer_shape_text(i, x), heed_infer_shape_text(i, w));
    if (bias && heed_fact_count(bias) >= 0 && heed_fact_count(bias) != w->dims[1])
        return heed_infer_fail(i, "bias has shape %s, expected [%lld]", heed_infer_shape_text(i, bias), (long long) w->dims[1]);
    int64_t query = 0, value = 0, heads = heed_node_int(i->node, "num_heads", 1);
    HEED_TRY(packed_widths(i, w->dims[1], &query, &value));
    i->out[0] = (heed_fact){ .dtype = x->dtype, .rank = 3, .dims = { x->dims[0], x->dims[1], value } };
    if (past && past->rank >= 0 && (past->rank != 5 || query != value))
        return heed_infer_fail(i, "past has shape %s, expected [2, batch, heads, length, dim]", heed_infer_shape_text(i, past));
    if (i->n_out < 2 || !i->node->outputs[1]) return HEED_OK;
    if (query != value)
        return heed_infer_fail(i, "present needs one width for keys and values, they are %lld and %lld", (long long) query,
                               (long long) value);
    int64_t total = past ? (past->rank == 5 ? heed_dims_add(i->dims, past->dims[3], x->dims[1]) : HEED_DIM_UNKNOWN) : x->dims[1];
    i->out[1] = (heed_fact){ .dtype = x->dtype, .rank = 5, .dims = { 2, x->dims[0], heads, total, query / heads } };
    return HEED_OK;
}

/* Length and width of the keys (part 0) or values (part 1) of MultiHeadAttention, whatever their form. */
static heed_status key_dims(heed_infer *i, int part, int64_t *len, int64_t *width)
{
    const heed_fact *q = i->in[M_QUERY], *f = fact(i, part ? M_VALUE : M_KEY), *key = fact(i, M_KEY);
    int64_t heads = heed_node_int(i->node, "num_heads", 1);
    if (q->rank == 5) f = q;
    else if (key && key->rank == 5) f = key;
    if (!f) return heed_infer_fail(i, "key or value is missing");
    *len = *width = HEED_DIM_UNKNOWN;
    if (f->rank < 0) return HEED_OK;
    if (f->rank < 3 || f->rank > 5) return heed_infer_fail(i, "key or value has rank %d, expected 3 to 5", f->rank);
    *len = f->dims[f->rank == 4 ? 2 : 1];
    *width = f->rank == 3 ? f->dims[2] : heed_dims_mul(i->dims, f->dims[f->rank - 1], heads);
    if (f->rank == 4 && f->dims[1] >= 0 && f->dims[1] != heads)
        return heed_infer_fail(i, "key or value has shape %s, expected %lld heads", heed_infer_shape_text(i, f),
                               (long long) heads);
    if (f->rank == 5 && (f->dims[2] != heads || f->dims[3] != (f == q ? 3 : 2)))
        return heed_infer_fail(i, "a packed input has shape %s, expected [batch, length, %lld, %d, dim]",
                               heed_infer_shape_text(i, f), (long long) heads, f == q ? 3 : 2);
    if (*width >= 0 && *width % heads != 0)
        return heed_infer_fail(i, "key or value is %lld wide, which does not divide into %lld heads", (long long) *width,
                               (long long) heads);
    return HEED_OK;
}

static heed_status infer_multi_head(heed_infer *i)
{
    const heed_fact *q = i->in[M_QUERY], *past = fact(i, M_PAST_KEY);
    int64_t heads, len, len_v, width, width_v, q_width;
    HEED_TRY(check_common(i));
    for (int k = 0; k < i->n_out; k++) i->out[k].dtype = q->dtype;
    if (q->rank < 0) return HEED_OK;
    heads = heed_node_int(i->node, "num_heads", 1);
    if (q->rank != 3 && q->rank != 5) return heed_infer_fail(i, "query has rank %d, expected 3 or 5", q->rank);
    HEED_TRY(key_dims(i, 0, &len, &width));
    HEED_TRY(key_dims(i, 1, &len_v, &width_v));
    q_width = q->rank == 5 ? width : q->dims[2];
    if ((q_width >= 0 && width >= 0 && q_width != width) || (len >= 0 && len_v >= 0 && len != len_v))
        return heed_infer_fail(i, "query is %lld wide, keys %lld; there are %lld keys and %lld values", (long long) q_width,
                               (long long) width, (long long) len, (long long) len_v);
    const heed_fact *key = fact(i, M_KEY), *bias = fact(i, M_BIAS);
    if (bias && (q->rank == 5 || (key && key->rank == 5)))
        return heed_fail(HEED_ERR_UNSUPPORTED, "%s: bias beside packed inputs is not supported", i->node->op);
    if (bias && heed_fact_count(bias) >= 0 && width >= 0 && width_v >= 0 && heed_fact_count(bias) != 2 * width + width_v)
        return heed_infer_fail(i, "bias has %lld elements, expected %lld", (long long) heed_fact_count(bias),
                               (long long) (2 * width + width_v));
    i->out[0] = (heed_fact){ .dtype = q->dtype, .rank = 3, .dims = { q->dims[0], q->dims[1], width_v } };
    if (past && past->rank >= 0 && past->rank != 4) return heed_infer_fail(i, "past_key has rank %d, expected 4", past->rank);
    if (i->n_out > 3 && i->node->outputs[3])
        return heed_fail(HEED_ERR_UNSUPPORTED, "%s: output 3 (the scores) is not supported", i->node->op);
    int64_t total = past ? (past->rank == 4 ? heed_dims_add(i->dims, past->dims[2], len) : HEED_DIM_UNKNOWN) : len;
    for (int k = 1; k < i->n_out && k < 3; k++)
        i->out[k] = (heed_fact){ .dtype = q->dtype,
                                 .rank = 4,
                                 .dims = { q->dims[0], heads, total, heed_dims_div(i->dims, k == 1 ? width : width_v, heads) } };
    return HEED_OK;
}

/* ---- laying a node out ---- */

typedef struct space {
    char *base; /* NULL: only count */
    size_t used;
} space;

static void *take(space *s, size_t bytes)
{
    char *at = s->base ? s->base + s->used : NULL;
    s->used = heed_size_add(s->used, heed_size_add(bytes, 63) / 64 * 64);
    return at;
}

typedef struct layout {
    heed_attention_tensors t;   /* keys and values after joining */
    heed_tensor new_k, new_v;   /* [B, H, L, D] views */
    heed_tensor past_k, past_v; /* the same; dtype none: no past */
    int join;                   /* t.k and t.v are other memory than new_k and new_v */
    const heed_tensor *mask, *scores;
    int build_mask; /* t.mask is to be filled */
    int64_t past;
    heed_gemm product; /* of Attention: x times the packed weights */
} layout;

typedef struct contrib_state {
    void *gemm, *attention;
} contrib_state;

static const heed_tensor *input(const heed_compute *c, int k)
{
    return heed_compute_has(c, k) ? c->in[k] : NULL;
}

/* A view [B, H, L, D] with these strides, starting at element `at`. */
static heed_tensor view(const heed_tensor *t, int64_t at, const int64_t dims[4], int64_t sb, int64_t sh, int64_t sl)
{
    heed_tensor v = {
        .dtype = t->dtype, .rank = 4, .dims = { dims[0], dims[1], dims[2], dims[3] }, .strides = { sb, sh, sl, 1 }
    };
    v.data = t->data ? heed_at(t->data, t->dtype, at) : NULL;
    return v;
}

/* [B, L, H * D] from column `at` on, of rows `width` wide. */
static heed_tensor heads_view(const heed_tensor *t, int64_t at, int64_t width, int64_t batch, int64_t heads, int64_t len,
                              int64_t dim)
{
    const int64_t dims[4] = { batch, heads, len, dim };
    return view(t, at, dims, len * width, dim, width);
}

static heed_tensor dense_view(const heed_tensor *t, int64_t at, int64_t batch, int64_t heads, int64_t len, int64_t dim)
{
    const int64_t dims[4] = { batch, heads, len, dim };
    return view(t, at, dims, heads * len * dim, len * dim, dim);
}

/* The product x . weights + bias into a buffer, and the views of its columns. */
static void lay_packed(const heed_compute *c, layout *l, space *s)
{
    const heed_tensor *x = c->in[A_X], *w = c->in[A_WEIGHTS], *bias = input(c, A_BIAS), *past = input(c, A_PAST);
    int64_t batch = x->dims[0], len = x->dims[1], columns = w->dims[1], heads = heed_node_int(c->node, "num_heads", 1);
    int64_t value = c->out[0]->dims[2], query = (columns - value) / 2;
    heed_tensor buffer = heed_tensor_make(x->dtype, 3, (int64_t[]){ batch, len, columns });
    buffer.data = take(s, heed_tensor_bytes(&buffer));
    heed_gemm *g = &l->product;
    *g = (heed_gemm){ .m = batch * len, .n = columns, .k = x->dims[2], .alpha = 1, .beta = 1 };
    g->a = (heed_matrix){ .data = x->data, .dtype = x->dtype, .row = x->dims[2], .col = 1 };
    g->b = (heed_matrix){ .data = w->data, .dtype = w->dtype, .row = columns, .col = 1 };
    g->c = (heed_matrix){ .data = buffer.data, .dtype = x->dtype, .row = columns, .col = 1 };
    if (bias) g->bias = (heed_matrix){ .data = bias->data, .dtype = bias->dtype, .col = 1 };
    l->t.q = heads_view(&buffer, 0, columns, batch, heads, len, query / heads);
    l->new_k = heads_view(&buffer, query, columns, batch, heads, len, query / heads);
    l->new_v = heads_view(&buffer, 2 * query, columns, batch, heads, len, value / heads);
    if (!past) return;
    l->past = past->dims[3];
    l->past_k = dense_view(past, 0, batch, heads, l->past, past->dims[4]);
    l->past_v = dense_view(past, batch * heads * l->past * past->dims[4], batch, heads, l->past, past->dims[4]);
}

/* An input of MultiHeadAttention: [B, L, H * D], with its part of the bias added in a copy; or [B, H, L, D] as it is. */
static heed_tensor lay_operand(const heed_compute *c, const heed_tensor *t, space *s, int64_t heads)
{
    if (t->rank == 4) return dense_view(t, 0, t->dims[0], heads, t->dims[2], t->dims[3]);
    heed_tensor from = *t;
    if (input(c, M_BIAS)) from.data = take(s, heed_tensor_bytes(t));
    return heads_view(&from, 0, t->dims[2], t->dims[0], heads, t->dims[1], t->dims[2] / heads);
}

/* Part `part` of [B, L, H, parts, D]. */
static heed_tensor part_view(const heed_tensor *t, int part)
{
    const int64_t dims[4] = { t->dims[0], t->dims[2], t->dims[1], t->dims[4] };
    return view(t, part * t->dims[4], dims, t->strides[0], t->strides[2], t->strides[1]);
}

static void lay_multi_head(const heed_compute *c, layout *l, space *s)
{
    const heed_tensor *q = c->in[M_QUERY], *k = input(c, M_KEY), *v = input(c, M_VALUE), *past_k = input(c, M_PAST_KEY),
                      *past_v = input(c, M_PAST_VALUE);
    int64_t heads = heed_node_int(c->node, "num_heads", 1);
    if (q->rank == 5) {
        l->t.q = part_view(q, 0), l->new_k = part_view(q, 1), l->new_v = part_view(q, 2);
    } else {
        l->t.q = lay_operand(c, q, s, heads);
        l->new_k = k->rank == 5 ? part_view(k, 0) : lay_operand(c, k, s, heads);
        l->new_v = k->rank == 5 ? part_view(k, 1) : lay_operand(c, v, s, heads);
    }
    if (!past_k || !past_v) return;
    l->past = past_k->dims[2];
    l->past_k = dense_view(past_k, 0, past_k->dims[0], past_k->dims[1], l->past, past_k->dims[3]);
    l->past_v = dense_view(past_v, 0, past_v->dims[0], past_v->dims[1], past_v->dims[2], past_v->dims[3]);
}

/* Where joined keys (part 0) or values (part 1) go: an output, or scratch. */
static heed_tensor lay_present(const heed_compute *c, const heed_tensor *fresh, int64_t past, int part, space *s)
{
    int64_t total = past + fresh->dims[2];
    heed_tensor t = heed_tensor_make(fresh->dtype, 4, (int64_t[]){ fresh->dims[0], fresh->dims[1], total, fresh->dims[3] });
    int output = is_attention(c->node) ? 1 : 1 + part;
    if (output < c->n_out && c->out[output]) {
        int64_t at = is_attention(c->node) ? part * heed_tensor_count(&t) : 0;
        t.data = c->out[output]->data ? heed_at(c->out[output]->data, t.dtype, at) : NULL;
    } else {
        t.data = take(s, heed_tensor_bytes(&t));
    }
    return t;
}

static int wants_present(const heed_compute *c)
{
    for (int k = 1; k < c->n_out; k++)
        if (c->out[k]) return 1;
    return 0;
}

/* What is added to the scores: nothing, the given tensor, or one to be built, [B, H | 1, Lq | 1, Lk]. */
static void lay_mask(layout *l, space *s)
{
    if (!l->mask && !l->scores) return;
    if (!l->mask && (l->scores->dtype == HEED_F32 || l->scores->dtype == l->t.q.dtype)) {
        l->t.mask = *l->scores;
        return;
    }
    int64_t dims[4] = { l->t.q.dims[0], 1, 1, l->t.k.dims[2] };
    if (l->scores) dims[1] = l->scores->dims[1];
    if (l->scores || l->mask->rank == 3) dims[2] = l->t.q.dims[2];
    l->t.mask = heed_tensor_make(HEED_F32, 4, dims);
    l->t.mask.data = take(s, heed_tensor_bytes(&l->t.mask));
    l->build_mask = 1;
}

static void lay_out(const heed_compute *c, layout *l, space *s)
{
    int attention = is_attention(c->node);
    *l = (layout){ .mask = input(c, attention ? A_MASK : M_MASK), .scores = input(c, attention ? A_SCORES : M_SCORES) };
    if (attention) lay_packed(c, l, s);
    else lay_multi_head(c, l, s);
    l->t.k = l->new_k, l->t.v = l->new_v;
    l->join = l->past_k.dtype != HEED_DTYPE_NONE || wants_present(c);
    if (l->join) {
        l->t.k = lay_present(c, &l->new_k, l->past, 0, s);
        l->t.v = lay_present(c, &l->new_v, l->past, 1, s);
    }
    l->t.out = heads_view(c->out[0], 0, c->out[0]->dims[2], l->t.q.dims[0], l->t.q.dims[1], l->t.q.dims[2], l->t.v.dims[3]);
    l->t.offset = l->past;
    lay_mask(l, s);
}

/* ---- checks of what shapes alone say ---- */

static heed_status check_mask_shapes(const heed_compute *c, const layout *l)
{
    int64_t batch = l->t.q.dims[0], len_q = l->t.q.dims[2], len_k = l->t.k.dims[2], heads = l->t.q.dims[1];
    const heed_tensor *m = l->mask, *b = l->scores;
    if (m && m->dtype != HEED_I32) return heed_compute_fail(c, "the mask is %s, expected i32", heed_dtype_name(m->dtype));
    int fits = !m || (m->rank == 1 && (m->dims[0] == batch || m->dims[0] == 2 * batch || m->dims[0] == 3 * batch + 2)) ||
               (m->rank == 2 && m->dims[0] == batch && m->dims[1] == len_k) ||
               (m->rank == 3 && m->dims[0] == batch && m->dims[1] == len_q && m->dims[2] == len_k);
    if (!fits)
        return heed_compute_fail(c, "the mask has rank %d and %lld first, expected a form for %lld x %lld x %lld", m->rank,
                                 (long long) (m->rank ? m->dims[0] : 1), (long long) batch, (long long) len_q, (long long) len_k);
    if (b && (b->rank != 4 || (b->dims[0] != 1 && b->dims[0] != batch) || (b->dims[1] != 1 && b->dims[1] != heads) ||
              b->dims[2] != len_q || b->dims[3] != len_k))
        return heed_compute_fail(c, "attention_bias has another shape than [%lld, %lld, %lld, %lld]", (long long) batch,
                                 (long long) heads, (long long) len_q, (long long) len_k);
    return HEED_OK;
}

static heed_status check_past(const heed_compute *c, const layout *l)
{
    const heed_tensor *pairs[2][2] = { { &l->past_k, &l->new_k }, { &l->past_v, &l->new_v } };
    for (int k = 0; k < 2; k++) {
        const heed_tensor *past = pairs[k][0], *fresh = pairs[k][1];
        if (past->dtype == HEED_DTYPE_NONE) continue;
        if (past->dtype != fresh->dtype || past->dims[0] != fresh->dims[0] || past->dims[1] != fresh->dims[1] ||
            past->dims[3] != fresh->dims[3] || past->dims[2] != l->past)
            return heed_compute_fail(c, "a past does not fit the new keys or values");
    }
    return HEED_OK;
}

/* ---- running ---- */

static void release_contrib(const heed_context *ctx, void *state)
{
    contrib_state *s = state;
    if (!s) return;
    heed_gemm_state_release(ctx, s->gemm);
    heed_attention_state_release(ctx, s->attention);
    heed_free(ctx, s);
}

static heed_status prepare_contrib(heed_compute *c, void **state)
{
    layout l;
    space s = { 0 };
    lay_out(c, &l, &s);
    HEED_TRY(check_past(c, &l));
    HEED_TRY(check_mask_shapes(c, &l));
    contrib_state *made = heed_alloc(c->ctx, sizeof *made);
    if (!made) return heed_fail(HEED_ERR_MEMORY, "%s: no memory for its state", c->node->op);
    *made = (contrib_state){ NULL, NULL };
    *state = made;
    heed_attention_desc desc;
    heed_attention_desc_init(&desc);
    float scale = heed_node_float(c->node, "scale", 0);
    if (scale != 0) desc.scale = scale;
    if (heed_node_int(c->node, "unidirectional", 0)) heed_attention_desc_set_causal(&desc, HEED_OFFSET_VALUE);
    heed_status status = heed_attention_state_create(c, &desc, &l.t, &made->attention);
    if (status == HEED_OK && is_attention(c->node)) {
        const heed_tensor *w = c->in[A_WEIGHTS];
        heed_gemm_weights weights = { 1, 0, w->dims[1], w->dims[0], w->data, w->dtype, w->dims[1], 1 };
        status = heed_gemm_state_create(c, w->data && heed_tensor_count(w) ? &weights : NULL, &made->gemm);
    }
    if (status != HEED_OK) {
        release_contrib(c->ctx, made);
        *state = NULL;
    }
    return status;
}

/* The product with its kernel and weights as they were prepared. */
static void finish_product(layout *l, const contrib_state *state)
{
    const heed_gemm_state *gemm = state->gemm;
    l->product.kernel = gemm->kernel;
    if (!gemm->packed) return;
    l->product.b = (heed_matrix){ .data = gemm->packed, .dtype = HEED_F32 };
    l->product.b_packed = 1;
}

static size_t scratch_contrib(const heed_compute *c)
{
    const contrib_state *state = c->state;
    layout l;
    space s = { 0 };
    lay_out(c, &l, &s);
    size_t work = heed_attention_state_workspace(state->attention), product = 0;
    if (is_attention(c->node)) {
        finish_product(&l, state);
        product = heed_gemm_scratch(c->ctx, &l.product);
    }
    return heed_size_add(s.used, work > product ? work : product);
}

typedef struct bias_job {
    const heed_tensor *from, *bias;
    heed_tensor to;
    int64_t first; /* of the bias */
} bias_job;

/* Rows of a [B, L, W] plus the bias. */
static void bias_rows(void *arg, int64_t begin, int64_t end)
{
    const bias_job *w = arg;
    enum { LINE = 512 };
    float line[LINE], x[LINE];
    int64_t width = w->from->dims[2];
    for (int64_t r = begin; r < end; r++)
        for (int64_t j = 0; j < width; j += LINE) {
            int64_t n = width - j < LINE ? width - j : LINE;
            const float *a = heed_row_load(x, w->from->dtype, w->from->data, r * width + j, 1, n);
            const float *b = heed_row_load(line, w->bias->dtype, w->bias->data, w->first + j, 1, n);
            for (int64_t k = 0; k < n; k++) line[k] = a[k] + b[k];
            heed_row_store(w->to.dtype, w->to.data, r * width + j, 1, line, n);
        }
}

static void add_biases(const heed_compute *c, const layout *l)
{
    const heed_tensor *bias = input(c, M_BIAS);
    const heed_tensor *from[] = { c->in[M_QUERY], input(c, M_KEY), input(c, M_VALUE) }, *to[] = { &l->t.q, &l->new_k, &l->new_v };
    int64_t first = 0;
    for (int k = 0; bias && k < 3; k++) {
        int64_t width = to[k]->dims[1] * to[k]->dims[3];
        bias_job w = { from[k], bias, *to[k], first };
        first += width;
        if (from[k]->rank == 3)
            heed_parallel_ranges(c->ctx, from[k]->dims[0] * from[k]->dims[1], HEED_GRAIN / (width + 1) + 1, bias_rows, &w);
    }
}

static void join(const heed_compute *c, const heed_tensor *to, const heed_tensor *past, const heed_tensor *fresh)
{
    heed_tensor part = *to;
    int64_t old = past->dtype != HEED_DTYPE_NONE ? past->dims[2] : 0;
    if (old) {
        part.dims[2] = old;
        heed_copy(c->ctx, &part, past);
    }
    part.dims[2] = fresh->dims[2];
    part.data = heed_at(to->data, to->dtype, old * to->strides[2]);
    heed_copy(c->ctx, &part, fresh);
}

typedef struct mask_job {
    const layout *l;
    float filter;
} mask_job;

static int hides(const layout *l, int64_t b, int64_t i, int64_t j)
{
    const heed_tensor *m = l->mask;
    if (!m) return 0;
    const int32_t *at = m->data;
    int64_t batch = l->t.q.dims[0], len_q = l->t.q.dims[2], len_k = l->t.k.dims[2];
    if (m->rank == 2) return at[b * len_k + j] <= 0;
    if (m->rank == 3) return at[(b * len_q + i) * len_k + j] <= 0;
    /* Lengths; the second form has the first keys after them. */
    return j >= at[b] || (m->dims[0] == 2 * batch && j < at[batch + b]);
}

static void mask_rows(void *arg, int64_t begin, int64_t end)
{
    const mask_job *w = arg;
    const layout *l = w->l;
    const heed_tensor *mask = &l->t.mask, *scores = l->scores;
    int64_t len_k = mask->dims[3];
    for (int64_t r = begin; r < end; r++) {
        int64_t i = r % mask->dims[2], h = r / mask->dims[2] % mask->dims[1], b = r / mask->dims[2] / mask->dims[1];
        float *row = (float *) mask->data + r * len_k;
        if (scores) {
            int64_t at = (scores->dims[0] == 1 ? 0 : b) * scores->strides[0] + h * scores->strides[1] + i * scores->strides[2];
            const float *from = heed_row_load(row, scores->dtype, scores->data, at, 1, len_k);
            if (from != row) memcpy(row, from, (size_t) len_k * sizeof *row);
        } else {
            memset(row, 0, (size_t) len_k * sizeof *row);
        }
        for (int64_t j = 0; j < len_k; j++)
            if (hides(l, b, i, j)) row[j] += w->filter;
    }
}

static heed_status compute_contrib(heed_compute *c)
{
    const contrib_state *state = c->state;
    layout l;
    space s = { .base = c->scratch };
    if (heed_tensor_count(c->out[0]) == 0 && !wants_present(c)) return HEED_OK;
    lay_out(c, &l, &s);
    void *work = s.base ? s.base + s.used : NULL;
    if (is_attention(c->node)) {
        finish_product(&l, state);
        heed_gemm_run(c->ctx, &l.product, work);
    } else {
        add_biases(c, &l);
    }
    if (l.join) {
        join(c, &l.t.k, &l.past_k, &l.new_k);
        join(c, &l.t.v, &l.past_v, &l.new_v);
    }
    mask_job m = { &l, heed_node_float(c->node, "mask_filter_value", -10000) };
    if (l.build_mask)
        heed_parallel_ranges(c->ctx, heed_tensor_count(&l.t.mask) / (l.t.mask.dims[3] ? l.t.mask.dims[3] : 1),
                             HEED_GRAIN / (l.t.mask.dims[3] + 1) + 1, mask_rows, &m);
    return heed_attention_state_run(state->attention, &l.t, work);
}

#define CONTRIB(op_name, inputs_min, inputs_max, outputs_max, rule)                                                              \
    {                                                                                                                            \
        .domain = "com.microsoft", .name = op_name, .since = 1, .min_in = inputs_min, .max_in = inputs_max, .min_out = 1,        \
        .max_out = outputs_max, .infer = rule, .compute = compute_contrib, .scratch = scratch_contrib,                           \
        .prepare = prepare_contrib, .release = release_contrib                                                                   \
    }

const heed_op heed_ops_contrib_attention[] = {
    CONTRIB("Attention", 2, 7, 2, infer_packed_attention),
    CONTRIB("MultiHeadAttention", 1, 10, 4, infer_multi_head),
    { 0 },
};
