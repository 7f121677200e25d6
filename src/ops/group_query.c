/* GroupQueryAttention of com.microsoft, on the attention API: the operator of decoders with a cache. New keys and values are
 * turned by their positions and written behind those of the past; each batch has its own length.
 *
 * Inputs: query [B, S, H * D], or query, key and value packed in its columns; key and value [B, S, Hkv * D]; past_key and
 * past_value [B, Hkv, P, D]; seqlens_k i32 [B], the keys of a batch less one; total_sequence_length i32, the most keys of any
 * batch; cos_cache, sin_cache [positions, R / 2]; position_ids i64 [B, S]; attention_bias [B | 1, H | 1, S, total]; head_sink
 * [H]. Outputs: out, and present_key and present_value [B, Hkv, max(P, total), D], with zeros past the keys. */
#include <string.h>

#include "ops/attention.h"
#include "ops/line_io.h"
#include "ops/rotary.h"

enum { QUERY, KEY, VALUE, PAST_KEY, PAST_VALUE, LENGTHS, TOTAL, COS, SIN, POSITIONS, BIAS, SINK, N_INPUTS };
enum { OUT, PRESENT_KEY, PRESENT_VALUE, N_OUTPUTS };

static int64_t heads_of(const heed_node *node)
{
    return heed_node_int(node, "num_heads", 0);
}

static int64_t kv_heads_of(const heed_node *node)
{
    return heed_node_int(node, "kv_num_heads", 0);
}

/* ---- shapes ---- */

static const heed_fact *fact(const heed_infer *i, int k)
{
    return k < i->n_in ? i->in[k] : NULL;
}

static heed_status check_attributes(heed_infer *i)
{
    int64_t heads = heads_of(i->node), kv = kv_heads_of(i->node);
    if (heads < 1 || kv < 1 || heads > INT32_MAX || heads % kv != 0)
        return heed_infer_fail(i, "num_heads is %lld and kv_num_heads %lld, expected a multiple", (long long) heads,
                               (long long) kv);
    static const char *const none[] = { "k_quant_type", "v_quant_type" };
    for (int k = 0; k < 2; k++)
        if (strcmp(heed_node_string(i->node, none[k], "NONE"), "NONE") != 0)
            return heed_fail(HEED_ERR_UNSUPPORTED, "%s: %s other than NONE is not supported", i->node->op, none[k]);
    if (heed_node_int(i->node, "qk_output", 0) != 0)
        return heed_fail(HEED_ERR_UNSUPPORTED, "%s: qk_output is not supported", i->node->op);
    for (int k = N_INPUTS; k < i->n_in; k++)
        if (i->in[k]) return heed_fail(HEED_ERR_UNSUPPORTED, "%s: input %d is not supported", i->node->op, k);
    for (int k = N_OUTPUTS; k < i->n_out; k++)
        if (i->node->outputs[k]) return heed_fail(HEED_ERR_UNSUPPORTED, "%s: output %d is not supported", i->node->op, k);
    heed_dtype dtype = i->in[QUERY]->dtype;
    if (dtype != HEED_DTYPE_NONE && (!heed_dtype_is_float(dtype) || dtype == HEED_F64))
        return heed_fail(HEED_ERR_UNSUPPORTED, "%s: its type is %s, expected f32, f16 or bf16", i->node->op,
                         heed_dtype_name(dtype));
    return HEED_OK;
}

/* The dimension of a head: from the columns of query, which may hold key and value too. */
static heed_status head_dim(heed_infer *i, int64_t *dim)
{
    const heed_fact *q = i->in[QUERY], *k = fact(i, KEY), *v = fact(i, VALUE);
    int64_t columns = heads_of(i->node) + (k ? 0 : 2 * kv_heads_of(i->node));
    if (!k != !v) return heed_infer_fail(i, "key and value must both be there, or neither");
    *dim = q->dims[2] >= 0 ? q->dims[2] / columns : HEED_DIM_UNKNOWN;
    if (q->dims[2] >= 0 && q->dims[2] % columns != 0)
        return heed_infer_fail(i, "query is %lld wide, which does not divide into %lld heads", (long long) q->dims[2],
                               (long long) columns);
    for (int n = KEY; n <= VALUE; n++) {
        const heed_fact *f = fact(i, n);
        if (!f || f->rank < 0) continue;
        if (f->rank != 3 || (f->dims[2] >= 0 && *dim >= 0 && f->dims[2] != *dim * kv_heads_of(i->node)) ||
            (f->dims[1] >= 0 && q->dims[1] >= 0 && f->dims[1] != q->dims[1]))
            return heed_infer_fail(i, "query has shape %s, input %d %s", heed_infer_shape_text(i, q), n,
                                   heed_infer_shape_text(i, f));
    }
    return HEED_OK;
}

static heed_status infer_group_query(heed_infer *i)
{
    const heed_fact *q = i->in[QUERY], *past = fact(i, PAST_KEY);
    int64_t dim = HEED_DIM_UNKNOWN, total = HEED_DIM_UNKNOWN;
    HEED_TRY(check_attributes(i));
    for (int k = 0; k < i->n_out && k < N_OUTPUTS; k++) i->out[k].dtype = q->dtype;
    if (q->rank < 0) return HEED_OK;
    if (q->rank != 3) return heed_infer_fail(i, "query has rank %d, expected 3", q->rank);
    if (!fact(i, LENGTHS) || !fact(i, TOTAL)) return heed_infer_fail(i, "seqlens_k or total_sequence_length is missing");
    HEED_TRY(head_dim(i, &dim));
    i->out[OUT] = (heed_fact){ .dtype = q->dtype,
                               .rank = 3,
                               .dims = { q->dims[0], q->dims[1], heed_dims_mul(i->dims, dim, heads_of(i->node)) } };
    const int64_t *ints;
    int n;
    if (heed_infer_ints(i, TOTAL, &ints, &n) && n == 1) total = ints[0];
    int64_t number;
    if (total != HEED_DIM_UNKNOWN && heed_dims_known(i->dims, total, &number) && number < 1)
        return heed_infer_fail(i, "total_sequence_length is %lld, expected 1 or more", (long long) number);
    if (past && past->rank >= 0 && past->rank != 4) return heed_infer_fail(i, "past_key has rank %d, expected 4", past->rank);
    int64_t most = total;
    if (past)
        most = total == HEED_DIM_UNKNOWN || past->rank < 0 ? HEED_DIM_UNKNOWN : heed_dims_max(i->dims, past->dims[2], total);
    for (int k = PRESENT_KEY; k < i->n_out && k < N_OUTPUTS; k++)
        i->out[k] = (heed_fact){ .dtype = q->dtype, .rank = 4, .dims = { q->dims[0], kv_heads_of(i->node), most, dim } };
    return HEED_OK;
}

/* ---- laying a node out ---- */

typedef struct group_query {
    const heed_compute *c;
    int64_t batch, len, heads, heads_kv, dim, past, total, most; /* past: room of it; most: room of the present */
    heed_tensor fresh[3];                                        /* query, key, value [B, H, S, D] as they come */
    heed_tensor turned;                                          /* query after the rotation */
    heed_tensor present[2];
    heed_attention_tensors t;
    int64_t *lengths, *offsets;
    float *sinks, *lines;
    int64_t half; /* of the rotated channels, 0: none */
    int interleaved;
    size_t used;
} group_query;

static const heed_tensor *input(const heed_compute *c, int k)
{
    return heed_compute_has(c, k) ? c->in[k] : NULL;
}

/* Scratch without memory is only counted. */
static void *take(group_query *g, char *base, size_t bytes)
{
    char *at = base ? base + g->used : NULL;
    g->used = heed_size_add(g->used, heed_size_add(bytes, 63) / 64 * 64);
    return at;
}

static heed_tensor columns_of(const heed_tensor *t, int64_t first, int64_t heads, int64_t dim)
{
    int64_t width = t->dims[2];
    heed_tensor v = { .dtype = t->dtype,
                      .rank = 4,
                      .dims = { t->dims[0], heads, t->dims[1], dim },
                      .strides = { t->dims[1] * width, dim, width, 1 } };
    v.data = t->data ? heed_at(t->data, t->dtype, first) : NULL;
    return v;
}

enum { LINES = 4 }; /* of a head's length for each worker */

static void lay_out(group_query *g, const heed_compute *c, char *base)
{
    const heed_tensor *q = c->in[QUERY], *past = input(c, PAST_KEY), *bias = input(c, BIAS);
    *g = (group_query){
        .c = c, .batch = q->dims[0], .len = q->dims[1], .heads = heads_of(c->node), .heads_kv = kv_heads_of(c->node)
    };
    g->dim = c->out[OUT]->dims[2] / g->heads;
    g->past = past ? past->dims[2] : 0;
    /* Before the run its number is not known, but there cannot be more keys than are remembered and new. */
    g->total = c->in[TOTAL]->data ? heed_tensor_int(c->in[TOTAL], 0) : g->past + g->len;
    g->most = g->past > g->total ? g->past : g->total;
    g->fresh[0] = columns_of(q, 0, g->heads, g->dim);
    g->fresh[1] =
        input(c, KEY) ? columns_of(c->in[KEY], 0, g->heads_kv, g->dim) : columns_of(q, g->heads * g->dim, g->heads_kv, g->dim);
    g->fresh[2] = input(c, VALUE) ? columns_of(c->in[VALUE], 0, g->heads_kv, g->dim)
                                  : columns_of(q, (g->heads + g->heads_kv) * g->dim, g->heads_kv, g->dim);
    g->turned = g->fresh[0];
    if (heed_node_int(c->node, "do_rotary", 0) && input(c, COS)) {
        g->half = c->in[COS]->dims[c->in[COS]->rank - 1];
        g->interleaved = heed_node_int(c->node, "rotary_interleaved", 0) != 0;
        heed_tensor dense = heed_tensor_make(q->dtype, 3, (int64_t[]){ g->batch, g->len, g->heads * g->dim });
        dense.data = take(g, base, heed_tensor_bytes(&dense));
        g->turned = columns_of(&dense, 0, g->heads, g->dim);
    }
    for (int k = 0; k < 2; k++) {
        g->present[k] = heed_tensor_make(q->dtype, 4, (int64_t[]){ g->batch, g->heads_kv, g->most, g->dim });
        int output = PRESENT_KEY + k;
        g->present[k].data =
            output < c->n_out && c->out[output] ? c->out[output]->data : take(g, base, heed_tensor_bytes(&g->present[k]));
    }
    g->lengths = take(g, base, (size_t) g->batch * sizeof *g->lengths);
    g->offsets = take(g, base, (size_t) g->batch * sizeof *g->offsets);
    g->sinks = take(g, base, (size_t) g->heads * sizeof *g->sinks);
    g->lines = take(g, base, heed_size_mul((size_t) heed_context_threads(c->ctx) * LINES * sizeof *g->lines, (size_t) g->dim));
    g->t = (heed_attention_tensors){ .q = g->turned, .k = g->present[0], .v = g->present[1] };
    g->t.k.dims[2] = g->t.v.dims[2] = g->total; /* what lies behind is never seen */
    g->t.out = columns_of(c->out[OUT], 0, g->heads, g->dim);
    if (bias) g->t.mask = *bias;
}

static int has_sinks(const heed_compute *c)
{
    return input(c, SINK) || heed_node_int(c->node, "smooth_softmax", 0) > 0;
}

/* ---- checks ---- */

static heed_status check_tensor(const heed_compute *c, int k, int rank, const int64_t *dims)
{
    const heed_tensor *t = input(c, k);
    if (!t) return HEED_OK;
    for (int d = 0; d < rank; d++)
        if (t->rank != rank || (dims[d] >= 0 && t->dims[d] != dims[d]))
            return heed_compute_fail(c, "input %d has rank %d and %lld at axis %d, expected rank %d and %lld", k, t->rank,
                                     (long long) (d < t->rank ? t->dims[d] : 0), d, rank, (long long) dims[d]);
    return HEED_OK;
}

static heed_status check_shapes(const group_query *g)
{
    const heed_compute *c = g->c;
    const int64_t past[4] = { g->batch, g->heads_kv, g->past, g->dim }, cache[2] = { -1, g->half },
                  positions[2] = { g->batch, g->len }, vector[1] = { g->batch }, sink[1] = { g->heads },
                  fresh[3] = { g->batch, g->len, g->heads_kv * g->dim };
    HEED_TRY(check_tensor(c, KEY, 3, fresh));
    HEED_TRY(check_tensor(c, VALUE, 3, fresh));
    HEED_TRY(check_tensor(c, PAST_KEY, 4, past));
    HEED_TRY(check_tensor(c, PAST_VALUE, 4, past));
    HEED_TRY(check_tensor(c, SINK, 1, sink));
    if (heed_tensor_count(c->in[LENGTHS]) != g->batch) HEED_TRY(check_tensor(c, LENGTHS, 1, vector));
    if (!input(c, PAST_KEY) != !input(c, PAST_VALUE))
        return heed_compute_fail(c, "past_key and past_value must both be there, or neither");
    if (heed_node_int(c->node, "do_rotary", 0) == 0) return HEED_OK;
    if (!input(c, COS) || !input(c, SIN)) return heed_compute_fail(c, "do_rotary is 1, and a cache is missing");
    HEED_TRY(check_tensor(c, COS, 2, cache));
    HEED_TRY(check_tensor(c, SIN, 2, (int64_t[]){ c->in[COS]->dims[0], g->half }));
    HEED_TRY(check_tensor(c, POSITIONS, 2, positions));
    if (2 * g->half > g->dim)
        return heed_compute_fail(c, "the caches are %lld wide, a head %lld", (long long) g->half, (long long) g->dim);
    return HEED_OK;
}

static int64_t position_of(const group_query *g, int64_t b, int64_t s)
{
    const heed_tensor *positions = input(g->c, POSITIONS);
    return positions ? heed_tensor_int(positions, b * g->len + s) : g->offsets[b] + s;
}

/* How many keys each batch had before: none where the queries are the whole sequence. */
static heed_status find_lengths(group_query *g)
{
    if (g->total < 1 || g->total > g->past + g->len)
        return heed_compute_fail(g->c, "total_sequence_length is %lld, expected 1 to %lld, the past and the new",
                                 (long long) g->total, (long long) (g->past + g->len));
    for (int64_t b = 0; b < g->batch; b++) {
        int64_t keys = heed_tensor_int(g->c->in[LENGTHS], b) + 1;
        g->offsets[b] = g->len == g->total ? 0 : keys - g->len;
        g->lengths[b] = g->offsets[b] + g->len;
        if (keys > g->total || g->offsets[b] < 0 || g->offsets[b] > g->past || g->lengths[b] > g->total)
            return heed_compute_fail(
                g->c, "seqlens_k: element %lld is %lld, which does not fit %lld new keys, a past of %lld and a total of %lld",
                (long long) b, (long long) keys - 1, (long long) g->len, (long long) g->past, (long long) g->total);
        for (int64_t s = 0; g->half && s < g->len; s++) {
            int64_t at = position_of(g, b, s);
            if (at < 0 || at >= g->c->in[COS]->dims[0])
                return heed_compute_fail(g->c, "position %lld is outside the %lld rows of the caches", (long long) at,
                                         (long long) g->c->in[COS]->dims[0]);
        }
    }
    return HEED_OK;
}

/* ---- running ---- */

/* All heads of `from` at [b, :, s, :] go to `to` at [b, :, s + offset, :], turned. */
static void turn_heads(const group_query *g, const heed_tensor *to, const heed_tensor *from, int64_t b, int64_t s, int64_t offset,
                       float *lines)
{
    const heed_tensor *cos = g->c->in[COS], *sin = g->c->in[SIN];
    int64_t row = position_of(g, b, s) * g->half;
    const float *cosines = heed_row_load(lines, cos->dtype, cos->data, row, 1, g->half);
    const float *sines = heed_row_load(lines + g->dim, sin->dtype, sin->data, row, 1, g->half);
    for (int64_t h = 0; h < from->dims[1]; h++) {
        int64_t at = b * from->strides[0] + h * from->strides[1] + s * from->strides[2];
        int64_t to_at = b * to->strides[0] + h * to->strides[1] + (s + offset) * to->strides[2];
        const float *x = heed_row_load(lines + 2 * g->dim, from->dtype, from->data, at, 1, g->dim);
        float *y = heed_row_target(lines + 3 * g->dim, to->dtype, to->data, to_at, 1);
        heed_rotate(y, x, cosines, sines, g->half, g->dim, g->interleaved);
        heed_row_store(to->dtype, to->data, to_at, 1, y, g->dim);
    }
}

static void turn_task(void *arg, int64_t task, int worker)
{
    const group_query *g = arg;
    int64_t b = task / g->len, s = task % g->len;
    float *lines = g->lines + (size_t) worker * LINES * (size_t) g->dim;
    turn_heads(g, &g->turned, &g->fresh[0], b, s, 0, lines);
    turn_heads(g, &g->present[0], &g->fresh[1], b, s, g->offsets[b], lines);
}

/* [b, h, from 0, :] of `n` rows, at row `at` of `to`. */
static void copy_rows(const heed_tensor *to, int64_t at, const heed_tensor *from, int64_t b, int64_t h, int64_t n, int64_t dim)
{
    heed_tensor t = heed_tensor_make(to->dtype, 2, (int64_t[]){ n, dim }), f = t;
    t.data = heed_at(to->data, to->dtype, b * to->strides[0] + h * to->strides[1] + at * to->strides[2]);
    f.data = heed_at(from->data, from->dtype, b * from->strides[0] + h * from->strides[1]);
    f.strides[0] = from->strides[2];
    heed_tensor_copy(&t, &f);
}

/* One head of one batch of the present: the past, what is new unless it is turned on the way, zeros. */
static void present_range(void *arg, int64_t begin, int64_t end)
{
    const group_query *g = arg;
    for (int64_t task = begin; task < end; task++) {
        int64_t b = task / g->heads_kv, h = task % g->heads_kv, old = g->offsets[b], keys = g->lengths[b];
        for (int k = 0; k < 2; k++) {
            const heed_tensor *past = input(g->c, PAST_KEY + k), *to = &g->present[k];
            if (old) copy_rows(to, 0, past, b, h, old, g->dim);
            if (k == 1 || !g->half) copy_rows(to, old, &g->fresh[1 + k], b, h, g->len, g->dim);
            memset(heed_at(to->data, to->dtype, b * to->strides[0] + h * to->strides[1] + keys * g->dim), 0,
                   (size_t) ((g->most - keys) * g->dim) * heed_dtype_size(to->dtype));
        }
    }
}

static heed_status prepare_group_query(heed_compute *c, void **state)
{
    group_query g;
    lay_out(&g, c, NULL);
    HEED_TRY(check_shapes(&g));
    heed_attention_desc desc;
    heed_attention_desc_init(&desc);
    float scale = heed_node_float(c->node, "scale", 0);
    int64_t window = heed_node_int(c->node, "local_window_size", -1);
    if (scale != 0) desc.scale = scale;
    desc.softcap = heed_node_float(c->node, "softcap", 0);
    desc.offset_mode = HEED_OFFSET_PER_BATCH;
    if (heed_node_int(c->node, "causal", 1)) desc.window_right = 0;
    if (window > 0) desc.window_left = window - 1; /* so many keys, the query's own among them */
    desc.has_key_lengths = 1, desc.has_sinks = has_sinks(c);
    return heed_attention_state_create(c, &desc, &g.t, state);
}

static size_t scratch_group_query(const heed_compute *c)
{
    group_query g;
    lay_out(&g, c, NULL);
    return heed_size_add(g.used, heed_attention_state_workspace(c->state));
}

static heed_status compute_group_query(heed_compute *c)
{
    group_query g;
    lay_out(&g, c, c->scratch);
    HEED_TRY(find_lengths(&g));
    heed_parallel_ranges(c->ctx, g.batch * g.heads_kv, HEED_GRAIN / (g.most * g.dim + 1) + 1, present_range, &g);
    if (g.half) heed_parallel_for(c->ctx, turn_task, &g, g.batch * g.len);
    const heed_tensor *sink = input(c, SINK);
    for (int64_t h = 0; h < g.heads; h++) {
        g.sinks[h] = 0;
        if (sink) heed_cast_line(HEED_F32, &g.sinks[h], 0, sink->dtype, heed_at(sink->data, sink->dtype, h), 0, 1);
    }
    g.t.sinks = has_sinks(c) ? g.sinks : NULL, g.t.key_lengths = g.lengths, g.t.offsets = g.offsets;
    return heed_attention_state_run(c->state, &g.t, (char *) c->scratch + g.used);
}

const heed_op heed_ops_group_query[] = {
    { .domain = "com.microsoft",
      .name = "GroupQueryAttention",
      .since = 1,
      .min_in = 1, /* key and value may be packed; the rule asks for the others */
      .max_in = 16,
      .min_out = 1,
      .max_out = 4,
      .shape_inputs = 1u << TOTAL,
      .infer = infer_group_query,
      .compute = compute_group_query,
      .scratch = scratch_group_query,
      .prepare = prepare_group_query,
      .release = heed_attention_state_release },
    { 0 },
};
