/* One mask tensor out of everything that is added to the scores or put in their place.
 *
 * Masks are joined from the scores outward, in the order in which the graph applies them. A condition that puts -inf in
 * place of scores stays boolean as long as nothing is added to it. A condition that puts a finite number there is the same
 * as adding that number only if the number is so low that it absorbs any score: finfo.min + s is finfo.min for every |s|
 * below 1e31, so that a row in which every key is hidden stays uniform. -1e4 does not absorb: such a mask is not taken.
 */
#include <float.h>
#include <math.h>

#include "graph/dims.h"
#include "rewrite/attention.h"

/* At or below this, a fill absorbs every score of a sane model in f32. */
#define ABSORBS (-1e30)
/* At or below this, a hidden score is out of reach of the visible ones, and may be put lower still. */
#define OUT_OF_REACH (-1e9)

typedef struct joined {
    heed_value *value; /* NULL: nothing yet */
    int is_bool;       /* true keeps */
} joined;

/* ---- into the frame's grouping ---- */

/* How many lead dimensions from the right are the same in both. */
static int common_tail(const heed_lead *a, const heed_lead *b)
{
    int n = 0;
    while (n < a->n && n < b->n && heed_match_same_dim(a->dims[a->n - 1 - n], b->dims[b->n - 1 - n])) n++;
    return n;
}

/* The value's own lead is right-aligned to `from`, sizes of 1 repeat. */
heed_value *heed_attention_into_frame(heed_attention_match *match, heed_maker *maker, heed_value *value, const heed_lead *from)
{
    const heed_lead *frame = &match->frame;
    const int rank = value->fact.rank, own = rank - 2;
    if (own <= 0 || heed_attention_same_lead(from, frame)) return value;
    heed_value *const sources[] = { value, match->q.value, match->k.value, match->v.value };
    const int tail = common_tail(from, frame);
    int64_t wide[HEED_RANK_MAX], dims[HEED_RANK_MAX];
    int all_ones = 1, expands = 0;
    /* What lies before the common tail is one or has all of its sizes, by an Expand if need be. */
    for (int i = 0; i < from->n; i++) {
        const int at = i - (from->n - own);
        wide[i] = at >= 0 ? value->fact.dims[at] : 1;
        if (i < from->n - tail && wide[i] != 1) all_ones = 0;
    }
    int n = 0;
    for (int i = 0; i < frame->n - tail; i++) dims[n++] = all_ones ? 1 : frame->dims[i];
    for (int i = 0; i < from->n - tail && !all_ones; i++)
        if (!heed_match_same_dim(wide[i], from->dims[i])) wide[i] = from->dims[i], expands = 1;
    for (int i = from->n - tail; i < from->n; i++) dims[n++] = wide[i];
    for (int i = 0; i < 2; i++) dims[n++] = wide[from->n + i] = value->fact.dims[own + i];
    if (expands) {
        heed_value *shape = heed_make_shape(maker, wide, from->n + 2, sources, 4);
        value = shape ? heed_make_binary(maker, "Expand", value, shape) : NULL;
    }
    return value ? heed_make_reshape(maker, value, dims, n, sources, 4) : NULL;
}

/* ---- one mask ---- */

/* Where(c, 0, -inf) and Where(c, -inf, 0), which hide by a condition: keeps says which. */
static heed_value *hiding_condition(const heed_value *value, int *keeps)
{
    double yes, no;
    const heed_node *node = heed_match_producer(value, "Where");
    if (!node || !heed_match_scalar(node->inputs[1], &yes) || !heed_match_scalar(node->inputs[2], &no)) return NULL;
    *keeps = yes == 0.0;
    const double hidden = *keeps ? no : yes, kept = *keeps ? yes : no;
    return kept == 0.0 && hidden == -HUGE_VAL ? node->inputs[0] : NULL;
}

static int does_nothing(const heed_score_mask *mask)
{
    double number;
    if (!heed_match_uniform(mask->value, &number)) return 0;
    return mask->kind == HEED_SCORES_REPLACED ? (number != 0.0) == mask->keeps : number == 0.0;
}

/* What the scores become where a condition hides them, or NAN with a reason. */
static double low_fill(heed_attention_match *match, const heed_score_mask *mask)
{
    const double fill = mask->fill * mask->factor;
    if (fill == -HUGE_VAL) return fill;
    if (fill <= ABSORBS) return fmax(fill, -FLT_MAX);
    const int lowest_half = mask->type == HEED_F16 && fill <= -65504.0;
    if (match->n_masks == 1 && (fill <= OUT_OF_REACH || lowest_half)) return -FLT_MAX;
    heed_attention_refuse(
        match, "a mask puts %g in place of hidden scores, which is not low enough to be the same as hiding them", fill);
    return NAN;
}

/* ---- joining ---- */

static heed_value *f32_number(heed_maker *maker, double number)
{
    return heed_make_number(maker, HEED_F32, number);
}

/* Where(keep, sum or 0, fill). */
static heed_value *select(heed_maker *maker, heed_value *keep, heed_value *sum, double fill)
{
    heed_value *kept = sum ? heed_make_cast(maker, sum, HEED_F32) : f32_number(maker, 0.0);
    return heed_make_where(maker, keep, kept, f32_number(maker, fill));
}

static int join_condition(heed_attention_match *match, heed_maker *maker, joined *all, heed_value *condition, int keeps,
                          double fill)
{
    heed_value *keep = keeps ? condition : heed_make_unary(maker, "Not", condition);
    if (fill == -HUGE_VAL && !all->value) *all = (joined){ keep, 1 };
    else if (fill == -HUGE_VAL && all->is_bool) *all = (joined){ heed_make_binary(maker, "And", keep, all->value), 1 };
    else {
        heed_value *sum = all->value && all->is_bool ? select(maker, all->value, NULL, -HUGE_VAL) : all->value;
        *all = (joined){ select(maker, keep, sum, fill), 0 };
    }
    return all->value ? 1 : heed_attention_refuse(match, "masks cannot be joined");
}

static int join_sum(heed_attention_match *match, heed_maker *maker, joined *all, heed_value *value, double factor)
{
    const heed_dtype type = value->fact.dtype;
    if (type != HEED_F32 && type != HEED_F16 && type != HEED_BF16)
        return heed_attention_refuse(match, "a mask is %s, not f32, f16 or bf16", heed_dtype_name(type));
    if (!isfinite(factor)) return heed_attention_refuse(match, "a mask is multiplied by %g", factor);
    if (factor != 1.0 || all->value) value = heed_make_cast(maker, value, HEED_F32);
    if (factor != 1.0) value = heed_make_binary(maker, "Mul", value, f32_number(maker, factor));
    if (!all->value) *all = (joined){ value, 0 };
    else if (all->is_bool) *all = (joined){ select(maker, all->value, value, -HUGE_VAL), 0 };
    else *all = (joined){ heed_make_binary(maker, "Add", heed_make_cast(maker, all->value, HEED_F32), value), 0 };
    return all->value ? 1 : heed_attention_refuse(match, "masks cannot be joined");
}

/* The scores are finite: only what hides them can lie below the floor. */
static int join_floor(heed_attention_match *match, heed_maker *maker, joined *all, const heed_score_mask *mask)
{
    const double floor = mask->fill * mask->factor;
    if (!(floor <= ABSORBS) || isinf(floor))
        return heed_attention_refuse(match, "the scores are raised to %g, which is not low enough to be harmless", floor);
    if (!all->value) return 1;
    heed_value *sum = all->is_bool ? select(maker, all->value, NULL, -HUGE_VAL) : heed_make_cast(maker, all->value, HEED_F32);
    *all = (joined){ heed_make_binary(maker, "Max", sum, f32_number(maker, fmax(floor, -FLT_MAX))), 0 };
    return all->value ? 1 : heed_attention_refuse(match, "masks cannot be joined");
}

static int join(heed_attention_match *match, heed_maker *maker, joined *all, const heed_score_mask *mask)
{
    if (mask->kind == HEED_SCORES_RAISED) return join_floor(match, maker, all, mask);
    if (does_nothing(mask)) return 1;
    const int replaces = mask->kind == HEED_SCORES_REPLACED;
    int keeps = mask->keeps;
    heed_value *value = replaces ? mask->value : mask->factor > 0.0 ? hiding_condition(mask->value, &keeps) : NULL;
    const int is_condition = value != NULL;
    const double fill = replaces ? low_fill(match, mask) : -HUGE_VAL;
    if (isnan(fill)) return 0;
    value = heed_attention_into_frame(match, maker, value ? value : mask->value, &mask->lead);
    if (!value)
        return maker->status == HEED_OK &&
               heed_attention_refuse(match, "a mask cannot be brought into the form [batch, heads, queries, keys]");
    return is_condition ? join_condition(match, maker, all, value, keeps, fill)
                        : join_sum(match, maker, all, value, mask->factor);
}

int heed_attention_mask(heed_attention_match *match, heed_maker *maker)
{
    joined all = { NULL, 0 };
    for (int i = match->n_masks - 1; i >= 0; i--)
        if (!join(match, maker, &all, &match->masks[i])) return 0;
    /* A half mask beside f32 activations, or of another half type. */
    if (all.value && !all.is_bool && all.value->fact.dtype != match->in_q->fact.dtype)
        all.value = heed_make_cast(maker, all.value, HEED_F32);
    match->in_mask = all.value;
    return maker->status == HEED_OK;
}
