/* heed.Attention on the attention API. The plan is made when shapes are known and is kept with the node; tensors are handed over
 * as they lie, so that Transpose, Expand and Slice around it need no copies. */
#include "ops/attention.h"

#include <math.h>
#include <string.h>

#include "ops/line_io.h"

enum { Q, K, V, MASK, SINKS, KEY_LENGTHS, OFFSETS, N_INPUTS };

/* ---- the bridge ---- */

typedef struct attention_state {
    heed_attention_plan *plan;
    size_t workspace;
    heed_attention_trace trace;
} attention_state;

const char *heed_attention_state_kernel(const void *state)
{
    const attention_state *s = state;
    if (!s) return "";
    return s->trace.kernel[0] ? s->trace.kernel : heed_attention_plan_kernel(s->plan);
}

const char *heed_attention_state_explain(const void *state)
{
    const attention_state *s = state;
    return s ? heed_attention_plan_explain(s->plan) : "";
}

size_t heed_attention_state_workspace(const void *state)
{
    const attention_state *s = state;
    return s ? s->workspace : 0;
}

void heed_attention_state_release(const heed_context *ctx, void *state)
{
    attention_state *s = state;
    if (!s) return;
    heed_attention_plan_destroy(s->plan);
    heed_free(ctx, s);
}

static heed_mask_kind mask_kind(const heed_attention_tensors *t)
{
    if (t->mask.dtype == HEED_DTYPE_NONE) return HEED_MASK_NONE;
    if (t->mask.dtype == HEED_BOOL || t->mask.dtype == HEED_U8) return HEED_MASK_BOOL;
    return t->mask.dtype == HEED_F32 ? HEED_MASK_F32 : HEED_MASK_TYPE_Q;
}

heed_status heed_attention_state_create(const heed_compute *c, heed_attention_desc *desc, const heed_attention_tensors *t,
                                        void **state)
{
    desc->dtype = heed_dtype_to_dl(t->q.dtype);
    desc->max_batch = t->q.dims[0];
    desc->heads_q = t->q.dims[1], desc->heads_kv = t->k.dims[1];
    desc->max_len_q = t->q.dims[2], desc->max_len_k = t->k.dims[2];
    desc->head_dim = t->q.dims[3], desc->head_dim_v = t->v.dims[3];
    desc->mask = mask_kind(t);
    attention_state *s = heed_alloc(c->ctx, sizeof *s);
    if (!s) return heed_fail(HEED_ERR_MEMORY, "%s: no memory for its state", c->node->op);
    *s = (attention_state){ .trace = { .struct_size = sizeof s->trace } };
    /* The public call takes a context that it may change; making a plan does not. */
    heed_status status = heed_attention_plan_create(&s->plan, (heed_context *) (uintptr_t) c->ctx, desc);
    if (status != HEED_OK) {
        heed_free(c->ctx, s);
        return status;
    }
    s->workspace = heed_attention_plan_workspace(s->plan);
    *state = s;
    return HEED_OK;
}

static DLTensor dl_of(heed_tensor *t)
{
    return (DLTensor){ .data = t->data,
                       .device = { kDLCPU, 0 },
                       .ndim = t->rank,
                       .dtype = heed_dtype_to_dl(t->dtype),
                       .shape = t->dims,
                       .strides = t->strides };
}

heed_status heed_attention_state_run(void *state, const heed_attention_tensors *tensors, void *workspace)
{
    attention_state *s = state;
    heed_attention_tensors t = *tensors;
    DLTensor q = dl_of(&t.q), k = dl_of(&t.k), v = dl_of(&t.v), out = dl_of(&t.out), mask = dl_of(&t.mask);
    heed_attention_args args;
    heed_attention_args_init(&args);
    args.q = &q, args.k = &k, args.v = &v, args.out = &out;
    args.mask = t.mask.dtype == HEED_DTYPE_NONE ? NULL : &mask;
    args.sinks = t.sinks, args.key_lengths = t.key_lengths, args.offsets = t.offsets, args.offset = t.offset;
    s->trace.kernel[0] = '\0';
    return heed_attention_run_traced(s->plan, &args, workspace, s->workspace, &s->trace);
}

/* ---- shapes ---- */

/* Dimension d of four, the missing ones on the left of the last two being 1: [L, D] and [B, L, D] have one head. */
static int64_t dim_of_four(const heed_fact *f, int d)
{
    int at = f->rank == 4 ? d : f->rank == 3 ? (d == 0 ? 0 : d - 1) : d - 2;
    return at < 0 || (f->rank == 3 && d == 1) ? 1 : f->dims[at];
}

static heed_status check_equal(heed_infer *i, const char *what, int64_t a, int64_t b)
{
    if (a < 0 || b < 0 || a == b) return HEED_OK;
    return heed_infer_fail(i, "q %s, k %s, v %s: %s differ, %lld and %lld", heed_infer_shape_text(i, i->in[Q]),
                           heed_infer_shape_text(i, i->in[K]), heed_infer_shape_text(i, i->in[V]), what, (long long) a,
                           (long long) b);
}

static heed_status infer_batch(heed_infer *i, int64_t *batch)
{
    *batch = 1;
    for (int k = 0; k <= MASK && k < i->n_in; k++) {
        const heed_fact *f = i->in[k];
        /* A mask is aligned to the right of [B, H, Lq, Lk], of q's rank. */
        if (!f || f->rank < 0 || (k == MASK && f->rank < i->in[Q]->rank)) continue;
        if (heed_infer_broadcast_dim(i, *batch, dim_of_four(f, 0), batch) != HEED_OK)
            return heed_infer_fail(i, "input %d has shape %s: its batch does not repeat to %lld", k, heed_infer_shape_text(i, f),
                                   (long long) *batch);
    }
    return HEED_OK;
}

/* Heads or rows of q against those of the mask: one of q's is repeated, as the sum of scores and mask would. */
static heed_status infer_repeated(heed_infer *i, int64_t size, int from_right, int64_t *out)
{
    const heed_fact *mask = i->n_in > MASK ? i->in[MASK] : NULL;
    *out = size;
    if (!mask || mask->rank < from_right) return HEED_OK;
    if (heed_infer_broadcast_dim(i, size, mask->dims[mask->rank - from_right], out) != HEED_OK)
        return heed_infer_fail(i, "the mask has shape %s, which does not repeat to q's %s", heed_infer_shape_text(i, mask),
                               heed_infer_shape_text(i, i->in[Q]));
    return HEED_OK;
}

static heed_status check_vector(heed_infer *i, int input, const char *name, heed_dtype dtype, int64_t n)
{
    const heed_fact *f = input < i->n_in ? i->in[input] : NULL;
    if (!f) return HEED_OK;
    if (f->dtype != HEED_DTYPE_NONE && f->dtype != dtype)
        return heed_infer_fail(i, "%s is %s, expected %s", name, heed_dtype_name(f->dtype), heed_dtype_name(dtype));
    if (f->rank < 0) return HEED_OK;
    if (f->rank != 1 || (f->dims[0] >= 0 && n >= 0 && f->dims[0] != n))
        return heed_infer_fail(i, "%s has shape %s, expected [%lld]", name, heed_infer_shape_text(i, f), (long long) n);
    return HEED_OK;
}

static heed_status check_mask(heed_infer *i)
{
    const heed_fact *f = i->n_in > MASK ? i->in[MASK] : NULL, *q = i->in[Q];
    if (!f) return HEED_OK;
    if (f->dtype != HEED_DTYPE_NONE && q->dtype != HEED_DTYPE_NONE && f->dtype != HEED_BOOL && f->dtype != HEED_F32 &&
        f->dtype != q->dtype)
        return heed_infer_fail(i, "the mask is %s, expected bool, f32 or q's type, %s", heed_dtype_name(f->dtype),
                               heed_dtype_name(q->dtype));
    if (f->rank > q->rank) return heed_infer_fail(i, "the mask has rank %d, more than q's rank %d", f->rank, q->rank);
    return HEED_OK;
}

static heed_status infer_attention(heed_infer *i)
{
    heed_fact *out = &i->out[0];
    HEED_TRY(heed_infer_same_type(i, Q, V, &out->dtype));
    if (out->dtype != HEED_DTYPE_NONE && (!heed_dtype_is_float(out->dtype) || out->dtype == HEED_F64))
        return heed_fail(HEED_ERR_UNSUPPORTED, "%s: q is %s, expected f32, f16 or bf16", i->node->op,
                         heed_dtype_name(out->dtype));
    const heed_fact *q = i->in[Q], *k = i->in[K], *v = i->in[V];
    if (q->rank < 0 || k->rank < 0 || v->rank < 0) return HEED_OK;
    if (q->rank < 2 || q->rank > 4 || k->rank != q->rank || v->rank != q->rank)
        return heed_infer_fail(i, "q, k, v have ranks %d, %d, %d, expected one of 2 to 4", q->rank, k->rank, v->rank);
    HEED_TRY(check_equal(i, "head dimensions of q and k", q->dims[q->rank - 1], k->dims[q->rank - 1]));
    HEED_TRY(check_equal(i, "lengths of k and v", k->dims[q->rank - 2], v->dims[q->rank - 2]));
    HEED_TRY(check_equal(i, "heads of k and v", dim_of_four(k, 1), dim_of_four(v, 1)));
    HEED_TRY(check_mask(i));
    int64_t batch, heads = dim_of_four(q, 1), heads_kv = dim_of_four(k, 1);
    if (heads >= 0 && heads_kv >= 0 && (heads_kv == 0 || heads % heads_kv != 0))
        return heed_infer_fail(i, "%lld query heads are not a multiple of %lld key heads", (long long) heads,
                               (long long) heads_kv);
    HEED_TRY(infer_batch(i, &batch));
    out->rank = q->rank;
    if (q->rank > 3) HEED_TRY(infer_repeated(i, heads, 3, &heads));
    HEED_TRY(infer_repeated(i, q->dims[q->rank - 2], 2, &out->dims[q->rank - 2]));
    if (q->rank > 2) out->dims[0] = batch;
    if (q->rank > 3) out->dims[1] = heads;
    out->dims[q->rank - 1] = v->dims[q->rank - 1];
    HEED_TRY(check_vector(i, SINKS, "sinks", HEED_F32, heads));
    HEED_TRY(check_vector(i, KEY_LENGTHS, "key_lengths", HEED_I64, batch));
    return check_vector(i, OFFSETS, "offsets", HEED_I64, batch);
}

/* ---- running ---- */

/* A tensor as [B, H, L, D], the batch repeated to `batch`. */
static heed_tensor as_four(const heed_tensor *t, int64_t batch)
{
    heed_tensor four = { .dtype = t->dtype, .rank = 4, .dims = { 1, 1, 1, 1 }, .data = t->data };
    for (int d = 0; d < t->rank; d++) {
        int at = t->rank == 3 && d == 0 ? 0 : d + 4 - t->rank;
        four.dims[at] = t->dims[d];
        four.strides[at] = t->strides[d];
    }
    if (four.dims[0] != batch) four.dims[0] = batch, four.strides[0] = 0;
    return four;
}

/* A mask beside q of rank 3 may be [B, Lq, Lk]: the heads come between. */
static heed_tensor mask_of(const heed_tensor *mask, int q_rank)
{
    if (q_rank != 3 || mask->rank != 3) return *mask;
    return as_four(mask, mask->dims[0]);
}

static heed_attention_tensors tensors_of(const heed_compute *c)
{
    int64_t batch = c->out[0]->rank > 2 ? c->out[0]->dims[0] : 1;
    heed_attention_tensors t = { .q = as_four(c->in[Q], batch),
                                 .k = as_four(c->in[K], batch),
                                 .v = as_four(c->in[V], batch),
                                 .out = as_four(c->out[0], batch),
                                 .offset = heed_node_int(c->node, "offset", 0) };
    for (int d = 1; d <= 2; d++) /* rows and heads of the mask that q has once */
        if (t.q.dims[d] != t.out.dims[d]) t.q.dims[d] = t.out.dims[d], t.q.strides[d] = 0;
    if (heed_compute_has(c, MASK)) t.mask = mask_of(c->in[MASK], c->in[Q]->rank);
    return t;
}

static heed_status prepare_attention(heed_compute *c, void **state)
{
    heed_attention_desc desc;
    heed_attention_desc_init(&desc);
    desc.scale = heed_node_float(c->node, "scale", NAN);
    desc.softcap = heed_node_float(c->node, "softcap", 0);
    desc.window_left = heed_node_int(c->node, "window_left", -1);
    desc.window_right = heed_node_int(c->node, "causal", 0) ? 0 : heed_node_int(c->node, "window_right", -1);
    desc.offset_mode = (heed_offset_mode) heed_node_int(c->node, "offset_mode", HEED_OFFSET_TOP_LEFT);
    desc.has_sinks = heed_compute_has(c, SINKS);
    desc.has_key_lengths = heed_compute_has(c, KEY_LENGTHS);
    desc.force_fused = heed_node_int(c->node, "force_fused", 0) != 0;
    if (heed_node_int(c->node, "explode", 0)) desc.kernel = "explode";
    heed_attention_tensors tensors = tensors_of(c);
    return heed_attention_state_create(c, &desc, &tensors, state);
}

/* Room for the three vectors where they do not lie dense, then the workspace. */
static size_t vector_bytes(const heed_compute *c, int input)
{
    if (!heed_compute_has(c, input) || heed_tensor_is_dense(c->in[input])) return 0;
    return (heed_tensor_bytes(c->in[input]) + 63) / 64 * 64;
}

static size_t scratch_attention(const heed_compute *c)
{
    size_t bytes = heed_attention_state_workspace(c->state);
    for (int k = SINKS; k < N_INPUTS; k++) bytes = heed_size_add(bytes, vector_bytes(c, k));
    return bytes;
}

static const void *dense_vector(const heed_compute *c, int input, char **scratch)
{
    if (!heed_compute_has(c, input)) return NULL;
    if (vector_bytes(c, input) == 0) return c->in[input]->data;
    heed_tensor to = heed_tensor_make(c->in[input]->dtype, c->in[input]->rank, c->in[input]->dims);
    to.data = *scratch;
    *scratch += vector_bytes(c, input);
    heed_tensor_copy(&to, c->in[input]);
    return to.data;
}

static heed_status compute_attention(heed_compute *c)
{
    heed_attention_tensors t = tensors_of(c);
    char *scratch = c->scratch;
    t.sinks = dense_vector(c, SINKS, &scratch);
    t.key_lengths = dense_vector(c, KEY_LENGTHS, &scratch);
    t.offsets = dense_vector(c, OFFSETS, &scratch);
    return heed_attention_state_run(c->state, &t, scratch);
}

static void layout_attention(heed_compute *c)
{
    heed_tensor *out = c->out[0];
    if (out->rank != 4 || heed_node_int(c->node, "out_layout", 0) != 1) return;
    heed_tensor by_row = heed_tensor_make(out->dtype, 4, (int64_t[]){ out->dims[0], out->dims[2], out->dims[1], out->dims[3] });
    out->strides[0] = by_row.strides[0], out->strides[1] = by_row.strides[2], out->strides[2] = by_row.strides[1];
}

const heed_op heed_ops_attention[] = {
    { .domain = HEED_DOMAIN_HEED,
      .name = "Attention",
      .since = 1,
      .min_in = 3,
      .max_in = N_INPUTS,
      .min_out = 1,
      .max_out = 1,
      .flags = HEED_OP_STRIDED,
      .infer = infer_attention,
      .compute = compute_attention,
      .scratch = scratch_attention,
      .prepare = prepare_attention,
      .release = heed_attention_state_release,
      .layout = layout_attention },
    { 0 },
};
