/* ONNX's Attention (opset 23 to 28) to heed.Attention and the plain operators it needs around it: heads split and merged for
 * rank 3, the cache joined on, short masks padded, and the scores where the file wants them as an output.
 *
 * The order of scale, soft cap and mask is that of onnx 1.22 and later, which is also heed's. softmax_precision needs nothing:
 * heed's softmax is in f32 at least, and the result is rounded to the type of Q either way. */
#include "rewrite/onnx_attention.h"

#include <math.h>

#include <heed/attention.h>

#include "graph/dims.h"
#include "rewrite/attention.h"

static const int64_t bshd[4] = { 0, 2, 1, 3 };

static heed_value *input(const heed_node *node, int i)
{
    return i < node->n_inputs ? node->inputs[i] : NULL;
}

static int is_wanted(const heed_node *node, int i)
{
    return i < node->n_outputs && node->outputs[i] && node->outputs[i]->n_uses;
}

/* ---- Q, K, V and the cache ---- */

/* [B, S, H*D] to [B, H, S, D]; rank 4 stays. */
static heed_value *split_heads(heed_lowering *l, heed_value *value, const char *name, int64_t heads)
{
    if (value->fact.rank == 4) return value;
    const int64_t hidden = value->fact.dims[2];
    if (hidden >= 0 && hidden % heads != 0) {
        l->maker.status = heed_fail(HEED_ERR_ARGUMENT, "%s: its last size %lld is not a multiple of %lld heads", name,
                                    (long long) hidden, (long long) heads);
        return NULL;
    }
    const int64_t sizes[4] = { 0, 0, heads, hidden >= 0 ? hidden / heads : -1 };
    heed_value *shape = heed_make_ints(&l->maker, sizes, 4);
    return heed_make_transpose(&l->maker, heed_make_binary(&l->maker, "Reshape", value, shape), bshd, 4);
}

static heed_value *join_past(heed_lowering *l, heed_value *past, heed_value *now)
{
    if (!past || !now) return now;
    heed_value *const parts[] = { past, now };
    return heed_make_concat(&l->maker, parts, 2, 2);
}

static heed_status read_heads(heed_lowering *l)
{
    l->heads_q = heed_node_int(l->node, "q_num_heads", 0), l->heads_kv = heed_node_int(l->node, "kv_num_heads", 0);
    const heed_value *const three[] = { l->q, l->k, l->v };
    for (int i = 0; i < 3; i++)
        if (three[i]->fact.rank != l->q->fact.rank || (three[i]->fact.rank != 3 && three[i]->fact.rank != 4))
            return heed_fail(HEED_ERR_ARGUMENT, "%c: rank is %d, expected 3 or 4, the same for Q, K and V", "QKV"[i],
                             three[i] -> fact.rank);
    l->is_3d = l->q->fact.rank == 3;
    if (l->is_3d && (l->heads_q < 1 || l->heads_kv < 1))
        return heed_fail(HEED_ERR_ARGUMENT, "q_num_heads is %lld and kv_num_heads %lld, expected at least 1 for inputs of rank 3",
                         (long long) l->heads_q, (long long) l->heads_kv);
    return HEED_OK;
}

static heed_status read_inputs(heed_lowering *l)
{
    heed_node *node = l->node;
    l->q = input(node, 0), l->k = input(node, 1), l->v = input(node, 2);
    if (!l->q || !l->k || !l->v) return heed_fail(HEED_ERR_ARGUMENT, "Q, K or V is missing");
    l->past_key = input(node, 4);
    heed_value *past_value = input(node, 5);
    l->lengths = input(node, 6);
    if (!l->past_key != !past_value) return heed_fail(HEED_ERR_ARGUMENT, "past_key and past_value come only together");
    if (l->past_key && l->lengths) return heed_fail(HEED_ERR_ARGUMENT, "past_key and nonpad_kv_seqlen exclude each other");
    HEED_TRY(read_heads(l));
    l->new_keys = heed_match_dim(l->k, 2);
    l->q = split_heads(l, l->q, "Q", l->heads_q);
    l->k = join_past(l, l->past_key, split_heads(l, l->k, "K", l->heads_kv));
    l->v = join_past(l, past_value, split_heads(l, l->v, "V", l->heads_kv));
    if (l->k && l->v && l->k->fact.rank == 4) l->keys = l->k->fact.dims[2];
    return l->maker.status;
}

/* ---- the mask ---- */

/* Sizes short of the keys are filled up with "hidden". */
static heed_value *pad_mask(heed_lowering *l, heed_value *mask)
{
    heed_maker *maker = &l->maker;
    const int rank = mask->fact.rank;
    const int64_t zeros[2 * HEED_RANK_MAX] = { 0 }, have = heed_match_dim(mask, 1);
    heed_value *missing = NULL;
    if (have >= 0 && l->keys >= 0) {
        const int64_t number = l->keys - have;
        missing = heed_make_ints(maker, &number, 1);
    } else {
        heed_value *size = heed_make_size(maker, mask, rank - 1), *keys = heed_make_size(maker, l->k, 2);
        missing = heed_make_binary(maker, "Max", heed_make_binary(maker, "Sub", keys, size), heed_make_ints(maker, zeros, 1));
    }
    heed_value *const parts[] = { heed_make_ints(maker, zeros, 2 * rank - 1), missing };
    heed_value *pads = heed_make_concat(maker, parts, 2, 0);
    heed_value *const inputs[] = { mask, pads,
                                   mask->fact.dtype == HEED_BOOL ? NULL : heed_make_number(maker, mask->fact.dtype, -HUGE_VAL) };
    return maker->status == HEED_OK ? heed_make(maker, "Pad", inputs[2] ? 3 : 2, inputs) : NULL;
}

static heed_status read_mask(heed_lowering *l)
{
    heed_value *mask = input(l->node, 3);
    if (!mask) return HEED_OK;
    const heed_dtype type = mask->fact.dtype;
    const int rank = mask->fact.rank;
    const int64_t have = heed_match_dim(mask, 1);
    if (rank > 4) return heed_fail(HEED_ERR_ARGUMENT, "attn_mask: rank is %d, expected at most 4", rank);
    if (have >= 0 && l->keys >= 0 && have > l->keys)
        return heed_fail(HEED_ERR_ARGUMENT, "attn_mask: its last size is %lld, but there are %lld keys", (long long) have,
                         (long long) l->keys);
    if (type != HEED_BOOL && type != HEED_F32 && type != l->q->fact.dtype) mask = heed_make_cast(&l->maker, mask, HEED_F32);
    /* Before opset 24 a size of 1 repeats and others must fit. */
    const int may_be_short = l->node->version >= 24 || (have > 1 && l->keys >= 0);
    if (mask && rank >= 1 && may_be_short && !heed_match_same_dim(have, l->keys)) mask = pad_mask(l, mask);
    l->mask = mask;
    return l->maker.status;
}

/* ---- the diagonal ---- */

static heed_status read_diagonal(heed_lowering *l)
{
    const int64_t left = heed_node_int(l->node, "left_window_size", -1), right = heed_node_int(l->node, "right_window_size", -1);
    if (left < -1 || right < -1)
        return heed_fail(HEED_ERR_ARGUMENT, "left_window_size is %lld and right_window_size %lld, expected -1 or more",
                         (long long) left, (long long) right);
    l->left = left, l->right = heed_node_int(l->node, "is_causal", 0) ? 0 : right;
    if (l->left < 0 && l->right < 0) return HEED_OK;
    l->offset_mode = HEED_OFFSET_TOP_LEFT;
    const int64_t past = l->past_key ? heed_match_dim(l->past_key, 2) : 0;
    if (l->lengths) l->offset_mode = HEED_OFFSET_BOTTOM_RIGHT;
    else if (l->past_key && heed_match_same_dim(l->new_keys, heed_match_dim(l->q, 2))) l->offset_mode = HEED_OFFSET_BOTTOM_RIGHT;
    else if (l->past_key && past >= 0) l->offset_mode = HEED_OFFSET_VALUE, l->offset = past;
    else if (l->past_key) {
        l->offset_mode = HEED_OFFSET_PER_BATCH;
        l->offsets =
            heed_make_binary(&l->maker, "Expand", heed_make_size(&l->maker, l->past_key, 2), heed_make_size(&l->maker, l->q, 0));
    }
    return l->maker.status;
}

/* ---- the node ---- */

static heed_node *make_attention(heed_lowering *l, const heed_rewriter *rewriter)
{
    heed_maker *maker = &l->maker;
    heed_value *const inputs[7] = { l->q, l->k, l->v, l->mask, NULL, l->lengths, l->offsets };
    const heed_attr *scale = heed_node_attr(l->node, "scale");
    const float softcap = heed_node_float(l->node, "softcap", 0.0f);
    heed_node *node = heed_make_fused(maker, "Attention", l->offsets ? 7 : l->lengths ? 6 : l->mask ? 4 : 3, inputs, 1);
    if (scale) heed_make_attr_float(maker, node, "scale", scale->f);
    if (softcap != 0.0f) heed_make_attr_float(maker, node, "softcap", softcap);
    if (l->left >= 0) heed_make_attr_int(maker, node, "window_left", l->left);
    if (l->right >= 0) heed_make_attr_int(maker, node, "window_right", l->right);
    if (l->offset_mode) heed_make_attr_int(maker, node, "offset_mode", l->offset_mode);
    if (l->offset) heed_make_attr_int(maker, node, "offset", l->offset);
    if (!rewriter->fuse) heed_make_attr_int(maker, node, "explode", 1);
    if (rewriter->fuse && rewriter->force_fused) heed_make_attr_int(maker, node, "force_fused", 1);
    if (rewriter->fuse) heed_make_attr_int(maker, node, "finding", rewriter->n_findings);
    if (l->is_3d) heed_make_attr_int(maker, node, "out_layout", 1);
    heed_make_infer(maker, node);
    return maker->status == HEED_OK ? node : NULL;
}

static heed_value *merge_heads(heed_lowering *l, heed_value *out)
{
    if (!l->is_3d) return out;
    const int64_t hidden = heed_dims_mul(l->maker.graph->dims, out->fact.dims[1], out->fact.dims[3]);
    const int64_t sizes[3] = { 0, 0, hidden >= 0 ? hidden : -1 };
    heed_value *turned = heed_make_transpose(&l->maker, out, bshd, 4);
    return heed_make_binary(&l->maker, "Reshape", turned, heed_make_ints(&l->maker, sizes, 3));
}

static heed_status lower(heed_rewriter *rewriter, heed_graph *graph, heed_node *node)
{
    heed_lowering l = { .node = node, .maker = { graph, node, HEED_OK }, .left = -1, .right = -1, .keys = HEED_DIM_UNKNOWN };
    HEED_TRY(read_inputs(&l));
    HEED_TRY(read_mask(&l));
    HEED_TRY(read_diagonal(&l));
    if (is_wanted(node, 1)) heed_make_replace(&l.maker, node->outputs[1], l.k);
    if (is_wanted(node, 2)) heed_make_replace(&l.maker, node->outputs[2], l.v);
    if (is_wanted(node, 3)) HEED_TRY(heed_lower_scores_output(&l, node->outputs[3]));
    if (rewriter->fuse) heed_attention_unrepeat(&l.maker, &l.k, &l.v);
    heed_node *fused = make_attention(&l, rewriter);
    HEED_TRY(l.maker.status);
    heed_value *out = merge_heads(&l, fused->outputs[0]);
    heed_make_replace(&l.maker, node->outputs[0], out);
    HEED_TRY(l.maker.status);
    if (!l.is_3d && heed_attention_is_merged_after(fused->outputs[0])) heed_make_attr_int(&l.maker, fused, "out_layout", 1);
    HEED_TRY(l.maker.status);
    return rewriter->fuse ? heed_rewriter_found(rewriter, node, fused, "an Attention operator of the file") : HEED_OK;
}

static heed_status lower_in_graph(heed_rewriter *rewriter, heed_graph *graph)
{
    for (heed_node *node = graph->first; node; node = node->next) {
        if (!heed_node_is(node, "Attention")) continue;
        heed_status status = lower(rewriter, graph, node);
        if (status != HEED_OK) return heed_fail_prefix(status, "node %s: ", heed_match_label(graph, node));
    }
    return HEED_OK;
}

heed_status heed_pass_onnx_attention(heed_rewriter *rewriter)
{
    return heed_match_each_graph(rewriter, rewriter->graph, lower_in_graph);
}
