/* The fourth output of ONNX's Attention, qk_matmul_output: the scores at a place of the file's choice, by plain operators
 * beside the fused node. In f32 inside, rounded once to the type of Q. */
#include <math.h>

#include "graph/dims.h"
#include "rewrite/onnx_attention.h"

enum { RAW = 0, CAPPED = 1, BIASED = 2, SOFTMAX = 3 };

static heed_value *unary(heed_lowering *l, const char *op, heed_value *a)
{
    return heed_make_unary(&l->maker, op, a);
}

static heed_value *binary(heed_lowering *l, const char *op, heed_value *a, heed_value *b)
{
    return heed_make_binary(&l->maker, op, a, b);
}

static heed_value *f32_number(heed_lowering *l, double x)
{
    return heed_make_number(&l->maker, HEED_F32, x);
}

static heed_value *ints(heed_lowering *l, int n, int64_t a, int64_t b, int64_t c, int64_t d)
{
    const int64_t numbers[4] = { a, b, c, d };
    return heed_make_ints(&l->maker, numbers, n);
}

/* K with its heads repeated to those of Q, each in place. */
static heed_value *repeated_keys(heed_lowering *l)
{
    const int64_t heads = l->q->fact.dims[1], own = l->k->fact.dims[1];
    if (heed_match_same_dim(heads, own)) return l->k;
    if (heads < 1 || own < 1 || heads % own != 0) {
        l->maker.status =
            heed_fail(HEED_ERR_ARGUMENT, "K: its heads are not known to divide those of Q, which qk_matmul_output needs");
        return NULL;
    }
    const int64_t repeats[5] = { 1, 1, heads / own, 1, 1 };
    const int64_t dims[4] = { l->k->fact.dims[0], heads, l->k->fact.dims[2], l->k->fact.dims[3] };
    heed_value *const sources[] = { l->k };
    heed_value *wide =
        binary(l, "Expand", binary(l, "Unsqueeze", l->k, ints(l, 1, 2, 0, 0, 0)), heed_make_ints(&l->maker, repeats, 5));
    return heed_make_reshape(&l->maker, wide, dims, 4, sources, 1);
}

static heed_value *raw_scores(heed_lowering *l)
{
    static const int64_t swap[4] = { 0, 1, 3, 2 };
    const heed_attr *scale = heed_node_attr(l->node, "scale");
    const int64_t dim = l->q->fact.dims[3];
    if (!scale && dim < 1) {
        l->maker.status = heed_fail(HEED_ERR_UNSUPPORTED, "Q: its head dimension is not known, which the default scale needs");
        return NULL;
    }
    heed_value *q = heed_make_cast(&l->maker, l->q, HEED_F32), *k = heed_make_cast(&l->maker, repeated_keys(l), HEED_F32);
    heed_value *product = binary(l, "MatMul", q, k ? heed_make_transpose(&l->maker, k, swap, 4) : NULL);
    return binary(l, "Mul", product, f32_number(l, scale ? scale->f : 1.0 / sqrt((double) dim)));
}

/* 0, 1, .. size - 1. */
static heed_value *counted(heed_lowering *l, heed_value *size)
{
    heed_value *const inputs[] = { unary(l, "Squeeze", ints(l, 1, 0, 0, 0, 0)), unary(l, "Squeeze", size),
                                   unary(l, "Squeeze", ints(l, 1, 1, 0, 0, 0)) };
    return l->maker.status == HEED_OK ? heed_make(&l->maker, "Range", 3, inputs) : NULL;
}

static heed_value *both(heed_lowering *l, heed_value *a, heed_value *b)
{
    return a && b ? binary(l, "And", a, b) : a ? a : b;
}

/* Which keys the diagonal, the window and the lengths leave; NULL: all. */
static heed_value *kept_keys(heed_lowering *l)
{
    if (l->left < 0 && l->right < 0 && !l->lengths) return NULL;
    heed_value *keys = counted(l, heed_make_size(&l->maker, l->k, 2)), *queries = heed_make_size(&l->maker, l->q, 2),
               *kept = NULL;
    heed_value *lengths = l->lengths ? binary(l, "Reshape", l->lengths, ints(l, 4, -1, 1, 1, 1)) : NULL;
    heed_value *offset = ints(l, 1, 0, 0, 0, 0);
    if (l->past_key) offset = heed_make_size(&l->maker, l->past_key, 2);
    if (lengths) offset = binary(l, "Sub", lengths, queries);
    heed_value *row = binary(l, "Reshape", counted(l, queries), ints(l, 2, -1, 1, 0, 0));
    heed_value *position = binary(l, "Add", row, offset);
    if (l->right >= 0) kept = binary(l, "LessOrEqual", keys, binary(l, "Add", position, ints(l, 1, l->right, 0, 0, 0)));
    if (l->left >= 0)
        kept = both(l, kept, binary(l, "GreaterOrEqual", keys, binary(l, "Sub", position, ints(l, 1, l->left, 0, 0, 0))));
    return lengths ? both(l, kept, binary(l, "Less", keys, lengths)) : kept;
}

/* What is added to the scores; NULL: nothing. */
static heed_value *bias(heed_lowering *l)
{
    heed_value *sum = NULL, *kept = kept_keys(l);
    if (l->mask && l->mask->fact.dtype == HEED_BOOL) kept = both(l, kept, l->mask);
    else if (l->mask) sum = heed_make_cast(&l->maker, l->mask, HEED_F32);
    if (!kept) return sum;
    return heed_make_where(&l->maker, kept, sum ? sum : f32_number(l, 0.0), f32_number(l, -HUGE_VAL));
}

/* Rows that have no key at all are 0. */
static heed_value *softmax(heed_lowering *l, heed_value *scores, heed_value *added)
{
    heed_value *p = unary(l, "Softmax", scores);
    if (!added || !p) return p;
    heed_value *const row[] = { added, ints(l, 1, -1, 0, 0, 0) };
    heed_value *highest = row[1] ? heed_make(&l->maker, "ReduceMax", 2, row) : NULL;
    return heed_make_where(&l->maker, binary(l, "Equal", highest, f32_number(l, -HUGE_VAL)), f32_number(l, 0.0), p);
}

heed_status heed_lower_scores_output(heed_lowering *l, heed_value *wanted)
{
    const int64_t mode = heed_node_int(l->node, "qk_matmul_output_mode", RAW);
    const float softcap = heed_node_float(l->node, "softcap", 0.0f);
    if (mode < RAW || mode > SOFTMAX)
        return heed_fail(HEED_ERR_ARGUMENT, "qk_matmul_output_mode is %lld, expected 0 to 3", (long long) mode);
    heed_value *scores = raw_scores(l);
    if (mode >= CAPPED && softcap != 0.0f)
        scores = binary(l, "Mul", unary(l, "Tanh", binary(l, "Div", scores, f32_number(l, softcap))), f32_number(l, softcap));
    heed_value *added = mode >= BIASED ? bias(l) : NULL;
    if (added) scores = binary(l, "Add", scores, added);
    if (mode == SOFTMAX) scores = softmax(l, scores, added);
    if (scores) heed_make_replace(&l->maker, wanted, heed_make_cast(&l->maker, scores, l->q->fact.dtype));
    return l->maker.status;
}
