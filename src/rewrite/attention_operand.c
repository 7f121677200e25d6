/* What Q, K and V are: behind transpositions, regrouped batches and factors, the deepest value that still has the shape the
 * fused node takes; and for K and V, behind repeated heads, the ones that were repeated.
 *
 * Every step keeps a proof: a swap of the last two dimensions is tracked exactly; a Reshape that keeps the last two
 * dimensions keeps the order of the matrices before them, so two leads with equal dimensions mean the same matrices. */
#include <string.h>

#include "graph/dims.h"
#include "rewrite/attention.h"

enum { STEPS_MAX = 24 };

/* A value that can stand for the operand. */
typedef struct form {
    heed_value *value; /* NULL: none */
    int swapped;
    double factor;
} form;

typedef struct search {
    heed_lead frame;
    int full;
    form best;     /* lead equal to the frame's, or broadcast as the product did */
    form deepest;  /* every step taken, whatever its lead */
    form repeated; /* lead [B, heads / repeats] */
    int64_t repeats, kv_heads;
} search;

static int is_one(int64_t dim)
{
    return dim == 1;
}

/* ---- repeated heads ---- */

/* value repeats `in` along exactly one axis in which `in` has size 1: Expand, Tile, or a Concat of the same value. */
static heed_value *repeat_of(const heed_value *value, int *axis)
{
    const heed_node *node = value->producer;
    if (!node) return NULL;
    if (!heed_node_is(node, "Expand") && !heed_node_is(node, "Tile") && !heed_node_is(node, "Concat")) return NULL;
    for (int i = 1; heed_node_is(node, "Concat") && i < node->n_inputs; i++)
        if (node->inputs[i] != node->inputs[0]) return NULL;
    heed_value *in = node->inputs[0];
    if (in->fact.rank < 0 || in->fact.rank != value->fact.rank) return NULL;
    *axis = -1;
    for (int i = 0; i < in->fact.rank; i++) {
        if (heed_match_same_dim(in->fact.dims[i], value->fact.dims[i])) continue;
        if (!is_one(in->fact.dims[i]) || value->fact.dims[i] < 1 || *axis >= 0) return NULL;
        *axis = i;
    }
    return *axis >= 0 ? in : NULL;
}

/* value [.., heads, ..] at `axis` is every slice of the result repeated in place: Reshape of a repeat along an axis of its own
 * just after it. The result has the shape of value with fewer heads; it may have to be made. */
static heed_value *repeat_interleaved(heed_maker *maker, const heed_value *value, int axis)
{
    const heed_node *reshape = heed_match_producer(value, "Reshape");
    const heed_value *wide = reshape ? reshape->inputs[0] : NULL;
    const int rank = value->fact.rank;
    int at;
    heed_value *in = wide ? repeat_of(wide, &at) : NULL;
    if (!in || in->fact.rank != rank + 1 || at != axis + 1) return NULL;
    int64_t dims[HEED_RANK_MAX];
    for (int i = 0; i < rank; i++) {
        const int from = i <= axis ? i : i + 1;
        dims[i] = in->fact.dims[from];
        if (i != axis && !heed_match_same_dim(dims[i], value->fact.dims[i])) return NULL;
    }
    const heed_node *unsqueeze = in->producer;
    if (unsqueeze && (heed_node_is(unsqueeze, "Unsqueeze") || heed_node_is(unsqueeze, "Reshape"))) {
        heed_value *narrow = unsqueeze->inputs[0];
        int same = narrow->fact.rank == rank;
        for (int i = 0; same && i < rank; i++) same = heed_match_same_dim(narrow->fact.dims[i], dims[i]);
        if (same) return narrow;
    }
    return heed_make_reshape(maker, in, dims, rank, &in, 1);
}

static void found_repeat(search *s, heed_value *value, int swapped, double factor, int64_t heads)
{
    int64_t repeats = heads > 0 && s->frame.dims[1] > 0 ? s->frame.dims[1] / heads : 0;
    if (s->repeated.value || repeats < 2 || repeats * heads != s->frame.dims[1]) return;
    s->repeated = (form){ value, swapped, factor };
    s->repeats = repeats, s->kv_heads = heads;
}

/* The lead [B, G, R] with R repeated, last two dimensions as they are. */
static void look_for_repeat_in_lead(search *s, heed_maker *maker, const form *at)
{
    int axis;
    heed_value *in = repeat_of(at->value, &axis);
    if (!in || in->fact.rank != 5 || axis != 2 || s->frame.n != 2) return;
    if (!heed_match_same_dim(in->fact.dims[0], s->frame.dims[0])) return;
    const int64_t dims[4] = { in->fact.dims[0], in->fact.dims[1], in->fact.dims[3], in->fact.dims[4] };
    heed_value *narrow = in->producer && heed_match_regroup(in->producer) ? in->producer->inputs[0] : NULL;
    int same = narrow && narrow->fact.rank == 4;
    for (int i = 0; same && i < 4; i++) same = heed_match_same_dim(narrow->fact.dims[i], dims[i]);
    if (!same) narrow = heed_make_reshape(maker, in, dims, 4, &in, 1);
    if (narrow) found_repeat(s, narrow, at->swapped, at->factor, dims[1]);
}

/* Transpose of [B, T, H, D], repeated along H before it. */
static void look_for_repeat_before_transpose(search *s, heed_maker *maker, const form *at)
{
    const int64_t *perm;
    heed_value *in = heed_match_transpose(at->value->producer, &perm);
    if (!in || in->fact.rank != 4 || s->frame.n != 2 || at->value->fact.rank != 4) return;
    heed_value *narrow = repeat_interleaved(maker, in, (int) perm[1]);
    heed_value *turned = narrow ? heed_make_transpose(maker, narrow, perm, 4) : NULL;
    if (turned) found_repeat(s, turned, at->swapped, at->factor, narrow->fact.dims[perm[1]]);
}

/* ---- the search ---- */

/* The lead of a value of the frame's rank: equal, or 1 where the product broadcast it. */
static int fits_frame(const search *s, const heed_value *value)
{
    const heed_lead lead = heed_attention_lead(value);
    if (s->full) return heed_attention_same_lead(&lead, &s->frame);
    if (lead.n != s->frame.n) return 0;
    for (int i = 0; i < lead.n; i++)
        if (!is_one(lead.dims[i]) && !heed_match_same_dim(lead.dims[i], s->frame.dims[i])) return 0;
    return 1;
}

static int is_swap(const heed_value *value, const int64_t *perm)
{
    const int rank = value->fact.rank;
    for (int i = 0; i < rank - 2; i++)
        if (perm[i] != i) return 0;
    return perm[rank - 2] == rank - 1 && perm[rank - 1] == rank - 2;
}

/* One step behind `at`; 0 where it ends. */
static int step(const search *s, form *at, int factors)
{
    const heed_node *node = at->value->producer;
    const int64_t *perm;
    double factor;
    if (!node) return 0;
    heed_value *in = heed_match_identity(node);
    if (!in && s->full) in = heed_match_regroup(node);
    if (in) return at->value = in, 1;
    in = factors ? heed_match_factor(node, &factor) : NULL;
    if (in) return at->value = in, at->factor *= factor, 1;
    in = heed_match_transpose(node, &perm);
    if (in && in->fact.rank >= 2 && is_swap(in, perm)) return at->value = in, at->swapped ^= 1, 1;
    return 0;
}

static void look(search *s, heed_maker *maker, const heed_operand *operand, int is_q, int factors)
{
    form at = { operand->value, operand->swapped, 1.0 };
    if (operand->permuted) at.value = heed_make_transpose(maker, at.value, operand->perm, at.value->fact.rank);
    for (int i = 0; i < STEPS_MAX; i++) {
        if (!at.value || at.value->fact.rank < 2) break;
        if (fits_frame(s, at.value)) s->best = at;
        s->deepest = at;
        if (!is_q && s->full && at.value->producer) {
            look_for_repeat_in_lead(s, maker, &at);
            look_for_repeat_before_transpose(s, maker, &at);
        }
        if (!step(s, &at, factors)) break;
    }
}

/* ---- forms into values ---- */

/* [.., rows, columns] of it, in one Transpose with the one that may be behind it. */
static heed_value *straighten(heed_maker *maker, const form *f)
{
    const int rank = f->value->fact.rank;
    int64_t perm[HEED_RANK_MAX] = { 0 };
    const int64_t *before = NULL;
    if (!f->swapped || rank < 2) return f->value;
    heed_value *in = f->value->producer ? heed_match_transpose(f->value->producer, &before) : NULL;
    for (int i = 0; i < rank; i++) perm[i] = in ? before[i] : i;
    const int64_t last = perm[rank - 1];
    perm[rank - 1] = perm[rank - 2], perm[rank - 2] = last;
    return heed_make_transpose(maker, in ? in : f->value, perm, rank);
}

/* A value that is right but for the grouping of its lead, or that lacks leading ones. */
static heed_value *regrouped(heed_maker *maker, const search *s, heed_value *const *sources, int n_sources, double *factor)
{
    const form *f = &s->deepest;
    if (!f->value) return NULL;
    int64_t dims[HEED_RANK_MAX];
    heed_value *value = straighten(maker, f);
    if (!value) return NULL;
    const int n = s->frame.n, own = value->fact.rank - 2;
    if (!s->full && own > n) return NULL;
    for (int i = 0; i < n; i++) {
        const int missing = n - own;
        dims[i] = s->full ? s->frame.dims[i] : i < missing ? 1 : value->fact.dims[i - missing];
        if (!s->full && !is_one(dims[i]) && !heed_match_same_dim(dims[i], s->frame.dims[i])) return NULL;
    }
    for (int i = 0; i < 2; i++) dims[n + i] = value->fact.dims[own + i];
    *factor = f->factor;
    return heed_make_reshape(maker, value, dims, n + 2, sources, n_sources);
}

static heed_value *resolve(heed_maker *maker, const search *s, heed_value *const *sources, int n_sources, double *factor)
{
    if (!s->best.value) return regrouped(maker, s, sources, n_sources, factor);
    *factor = s->best.factor;
    return straighten(maker, &s->best);
}

int64_t heed_attention_unrepeat(heed_maker *maker, heed_value **k, heed_value **v)
{
    heed_value **const both[] = { k, v };
    search s[2];
    for (int i = 0; i < 2; i++) {
        const heed_operand operand = { .value = *both[i], .full = 1, .lead = heed_attention_lead(*both[i]) };
        if (operand.lead.n != 2) return 1;
        s[i] = (search){ .frame = operand.lead, .full = 1 };
        look(&s[i], maker, &operand, 0, 0);
        if (!s[i].repeated.value) return 1;
    }
    if (s[0].repeats != s[1].repeats) return 1;
    for (int i = 0; i < 2; i++) *both[i] = straighten(maker, &s[i].repeated);
    return s[0].repeats;
}

/* ---- the frame ---- */

/* [B, H] if any place along the way has it; more dimensions are flattened into it; else what there is. */
static int choose_frame(heed_attention_match *match)
{
    const heed_lead *const places[] = { &match->product_lead, &match->softmax_lead, &match->scores_lead };
    for (int i = 0; i < 3; i++)
        if (places[i]->n == 2) return match->frame = *places[i], 1;
    match->frame = match->product_lead;
    if (match->frame.n <= 2) return match->frame.n >= 0;
    heed_dims *dims = match->graph->dims;
    int64_t batch = match->frame.dims[0];
    for (int i = 1; i < match->frame.n - 1; i++) batch = heed_dims_mul(dims, batch, match->frame.dims[i]);
    match->frame.dims[1] = match->frame.dims[match->frame.n - 1];
    match->frame.dims[0] = batch, match->frame.n = 2;
    return batch != HEED_DIM_UNKNOWN;
}

/* Q, K and V computed as [B*H, ..] from [B, H, ..]: the frame in which no copy is needed. */
static void lift_frame(heed_attention_match *match, heed_maker *maker)
{
    if (match->frame.n != 1 || !match->q.full || match->q.permuted) return;
    search q = { .frame = match->frame, .full = 1 };
    form at = { match->q.value, match->q.swapped, 1.0 };
    heed_lead found = { 0, { 0 } };
    for (int i = 0; i < STEPS_MAX && at.value->fact.rank >= 2; i++) {
        if (at.value->fact.rank == 4) found = heed_attention_lead(at.value);
        if (!step(&q, &at, 1)) break;
    }
    if (found.n != 2) return;
    const heed_operand *const others[] = { &match->k, &match->v };
    for (int i = 0; i < 2; i++) {
        search s = { .frame = found, .full = others[i]->full };
        look(&s, maker, others[i], 0, i == 0);
        if (!s.best.value && !s.repeated.value) return;
    }
    match->frame = found;
}

/* ---- all three ---- */

/* Q times what the scores were multiplied by. */
static int scale_rows(heed_attention_match *match, heed_maker *maker)
{
    if (!match->tensor_factor) return 1;
    heed_value *factor = heed_attention_into_frame(match, maker, match->tensor_factor, &match->tensor_lead);
    heed_value *scaled =
        factor ? heed_make_binary(maker, "Mul", match->in_q, heed_make_cast(maker, factor, match->in_q->fact.dtype)) : NULL;
    if (!scaled || !heed_match_same_shape(&scaled->fact, &match->in_q->fact))
        return maker->status == HEED_OK &&
               heed_attention_refuse(match, "the tensor that the scores are multiplied by does not fit Q");
    match->in_q = scaled;
    return 1;
}

static int heads_fit(heed_attention_match *match)
{
    if (match->frame.n < 2) return 1;
    const int64_t heads = match->in_q->fact.dims[1], kv = match->in_k->fact.dims[1], kv_v = match->in_v->fact.dims[1];
    if (!heed_match_same_dim(kv, kv_v)) return heed_attention_refuse(match, "K and V do not have the same number of heads");
    if (heed_match_same_dim(heads, kv) || is_one(kv) || (heads > 0 && kv > 0 && heads % kv == 0)) return 1;
    return heed_attention_refuse(match, "the heads of Q are not proven to be a multiple of those of K and V");
}

/* One type for the three. What was cast up from V's type is taken as it was before. */
static void unify_types(heed_attention_match *match, heed_maker *maker)
{
    const heed_dtype type = match->in_v->fact.dtype;
    heed_value **const both[] = { &match->in_q, &match->in_k };
    if (match->in_q->fact.dtype == type) return;
    heed_value *behind[2] = { NULL, NULL };
    for (int i = 0; i < 2; i++) {
        heed_value *in = (*both[i])->producer ? heed_match_float_cast((*both[i])->producer) : NULL;
        if (in && in->fact.dtype == type && (*both[i])->fact.dtype == HEED_F32) behind[i] = in;
    }
    if (behind[0] && behind[1]) {
        match->in_q = behind[0], match->in_k = behind[1];
        return;
    }
    match->in_q = heed_make_cast(maker, match->in_q, HEED_F32);
    match->in_k = heed_make_cast(maker, match->in_k, HEED_F32);
    match->in_v = heed_make_cast(maker, match->in_v, HEED_F32);
}

static int types_fit(heed_attention_match *match, heed_maker *maker)
{
    const heed_value *const three[] = { match->in_q, match->in_k, match->in_v };
    for (int i = 0; i < 3; i++) {
        const heed_dtype type = three[i]->fact.dtype;
        if (type == HEED_F32 || type == HEED_F16 || type == HEED_BF16) continue;
        return heed_attention_refuse(match, "Q, K and V are %s, not f32, f16 or bf16", heed_dtype_name(type));
    }
    unify_types(match, maker);
    return maker->status == HEED_OK;
}

/* The product broadcast an operand: the frame must be the product's own lead then. */
static int broadcast_fits(heed_attention_match *match)
{
    const heed_lead *const leads[] = { &match->scores_lead, &match->scores_lead, &match->product_lead };
    const heed_operand *const operands[] = { &match->q, &match->k, &match->v };
    for (int i = 0; i < 3; i++)
        if (!operands[i]->full && !heed_attention_same_lead(leads[i], &match->frame))
            return heed_attention_refuse(match, "%c is broadcast over batches in a way that cannot be followed", "QKV"[i]);
    return 1;
}

int heed_attention_operands(heed_attention_match *match, heed_maker *maker)
{
    if (!choose_frame(match)) return heed_attention_refuse(match, "the batch and head dimensions are not known");
    lift_frame(match, maker);
    if (!broadcast_fits(match)) return 0;
    const heed_operand *const operands[] = { &match->q, &match->k, &match->v };
    heed_value **const results[] = { &match->in_q, &match->in_k, &match->in_v };
    heed_value *const sources[] = { match->q.value, match->k.value, match->v.value };
    search s[3];
    for (int i = 0; i < 3; i++) {
        s[i] = (search){ .frame = match->frame, .full = operands[i]->full };
        look(&s[i], maker, operands[i], i == 0, i < 2);
    }
    match->heads_per_kv = 1;
    if (s[1].repeated.value && s[2].repeated.value && s[1].repeats == s[2].repeats) {
        match->heads_per_kv = s[1].repeats;
        s[1].best = s[1].repeated, s[2].best = s[2].repeated;
    }
    for (int i = 0; i < 3; i++) {
        double factor = 1.0;
        *results[i] = resolve(maker, &s[i], sources, 3, &factor);
        if (maker->status != HEED_OK) return 0;
        if (!*results[i])
            return heed_attention_refuse(match, "the batches and heads of %c cannot be brought into one form", "QKV"[i]);
        match->scale *= factor;
    }
    return heads_fit(match) && scale_rows(match, maker) && types_fit(match, maker);
}
