/* The pass that finds attention in plain operators: softmax(scale * Q K^T + mask) V, in the spellings of exporters.
 *
 * Each softmax behind which there are scores is a candidate. It becomes one heed.Attention node, or stays as it is and the
 * report says why. Nothing is fused on a guess: shapes, axes, factors and users are proven or the candidate is left alone.
 */
#include "rewrite/attention.h"

#include <math.h>
#include <string.h>

#include "graph/dims.h"

/* ---- the fused node ---- */

/* A node that wants only the type of a value that goes away. */
static int free_type(heed_attention_match *match, heed_node *like)
{
    heed_maker maker = { match->graph, like, HEED_OK };
    heed_make_replace(&maker, like->outputs[0], heed_make_cast(&maker, like->inputs[0], like->outputs[0]->fact.dtype));
    return maker.status == HEED_OK ||
           heed_attention_refuse(match, "%s needs the type of the scores", heed_match_label(match->graph, like));
}

/* A node that wants only the shape of a value that goes away gets it from what stays. */
static int free_shape(heed_attention_match *match, heed_node *shape)
{
    const heed_fact *fact = &shape->inputs[0]->fact;
    int64_t start = heed_node_int(shape, "start", 0), end = heed_node_int(shape, "end", fact->rank);
    start = start < 0 ? start + fact->rank : start, end = end < 0 ? end + fact->rank : end;
    start = start < 0 ? 0 : start, end = end > fact->rank ? fact->rank : end;
    if (end <= start)
        return heed_attention_refuse(match, "%s wants a shape of the scores", heed_match_label(match->graph, shape));
    heed_maker maker = { match->graph, shape, HEED_OK };
    heed_value *const sources[] = { match->in_q, match->in_k, match->q.value, match->k.value };
    heed_value *dims = heed_make_shape(&maker, fact->dims + start, (int) (end - start), sources, 4);
    heed_make_replace(&maker, shape->outputs[0], dims);
    if (dims) return 1;
    return heed_attention_refuse(match, "%s needs the shape of the scores", heed_match_label(match->graph, shape));
}

static int free_forms(heed_attention_match *match)
{
    for (int i = 0; i < match->n_inner; i++)
        for (int u = match->inner[i]->n_uses - 1; u >= 0; u--) {
            heed_node *node = match->inner[i]->uses[u].node;
            if (!node || !node->outputs[0]->n_uses) continue;
            if (heed_node_is(node, "Shape") && !free_shape(match, node)) return 0;
            if (heed_node_is(node, "CastLike") && node->inputs[1] == match->inner[i] && !free_type(match, node)) return 0;
        }
    return 1;
}

int heed_attention_is_merged_after(const heed_value *out)
{
    static const int64_t bshd[] = { 0, 2, 1, 3 };
    const heed_node *user = heed_match_only_user(out);
    const int64_t *perm;
    return out->fact.rank == 4 && user && heed_match_transpose(user, &perm) && memcmp(perm, bshd, sizeof bshd) == 0;
}

/* The value that takes the place of the product's result; a Reshape back to the frame just after it falls away with it. */
static heed_value *give_result(heed_attention_match *match, heed_maker *maker, heed_value *out)
{
    heed_value *old = match->product->outputs[0];
    const heed_node *user = heed_match_only_user(old);
    heed_value *const sources[] = { out, match->q.value, match->k.value, match->v.value };
    out = heed_make_cast(maker, out, old->fact.dtype);
    if (out && match->out_permuted) {
        int64_t dims[HEED_RANK_MAX];
        for (int i = 0; i < old->fact.rank; i++) dims[match->out_perm[i]] = old->fact.dims[i];
        out = heed_make_reshape(maker, out, dims, old->fact.rank, sources, 4);
        out = out ? heed_make_transpose(maker, out, match->out_perm, old->fact.rank) : NULL;
    }
    if (out && user && heed_match_regroup(user) && heed_match_same_shape(&user->outputs[0]->fact, &out->fact))
        old = user->outputs[0];
    heed_value *formed = out ? heed_make_reshape(maker, out, old->fact.dims, old->fact.rank, sources, 4) : NULL;
    heed_make_replace(maker, old, formed);
    return formed;
}

static heed_node *make_attention(heed_attention_match *match, heed_maker *maker, const heed_rewriter *rewriter)
{
    heed_value *const inputs[] = { match->in_q, match->in_k, match->in_v, match->in_mask };
    heed_node *node = heed_make_fused(maker, "Attention", match->in_mask ? 4 : 3, inputs, 1);
    heed_make_attr_float(maker, node, "scale", match->scale);
    if (match->softcap > 0.0) heed_make_attr_float(maker, node, "softcap", match->softcap);
    if (rewriter->force_fused) heed_make_attr_int(maker, node, "force_fused", 1);
    heed_make_attr_int(maker, node, "finding", rewriter->n_findings);
    heed_make_infer(maker, node);
    return maker->status == HEED_OK ? node : NULL;
}

/* "softmax(0.125 Q K^T + mask) V, ..." */
static void describe(const heed_attention_match *match, heed_text *text)
{
    heed_text_add(text, "softmax(");
    if (match->softcap > 0.0) heed_text_add(text, "softcap %g of ", match->softcap);
    if (match->scale != 1.0) heed_text_add(text, "%.6g ", match->scale);
    heed_text_add(text, "Q K^T");
    if (match->in_mask) heed_text_add(text, match->in_mask->fact.dtype == HEED_BOOL ? " where mask" : " + mask");
    heed_text_add(text, ") V");
    if (match->heads_per_kv > 1) heed_text_add(text, ", %lld query heads a key head", (long long) match->heads_per_kv);
    if (match->has_guard) heed_text_add(text, ", NaN guard");
    if (!heed_node_is(match->scores, "MatMul")) heed_text_add(text, ", scores by %s", match->scores->op);
}

/* ---- one candidate ---- */

static int sizes_fit(heed_attention_match *match)
{
    if (!isfinite(match->scale)) return heed_attention_refuse(match, "the scores are scaled by %g", match->scale);
    if (match->softcap > 0.0 && !(match->softcap < 1e30))
        return heed_attention_refuse(match, "the soft cap is %g", match->softcap);
    const int64_t keys = heed_match_dim(match->in_k, 2), values = heed_match_dim(match->in_v, 2);
    if (heed_match_same_dim(keys, values) && heed_match_same_dim(heed_match_dim(match->in_q, 1), heed_match_dim(match->in_k, 1)))
        return 1;
    return heed_attention_refuse(match, "the sizes of Q, K and V are not proven to fit each other");
}

static int match_all(heed_attention_match *match, heed_maker *maker)
{
    if (!heed_attention_walk_scores(match) || !heed_attention_walk_product(match)) return 0;
    maker->before = match->product;
    return heed_attention_operands(match, maker) && sizes_fit(match) && heed_attention_mask(match, maker) && free_forms(match);
}

static heed_status fuse(heed_attention_match *match, heed_maker *maker, heed_rewriter *rewriter)
{
    heed_node *anchor = match->product;
    heed_node *node = make_attention(match, maker, rewriter);
    heed_value *formed = node ? give_result(match, maker, node->outputs[0]) : NULL;
    HEED_TRY(maker->status);
    if (!formed) return heed_fail(HEED_ERR_INTERNAL, "%s: no form for the result of a fused attention", anchor->op);
    if (heed_attention_is_merged_after(node->outputs[0])) heed_make_attr_int(maker, node, "out_layout", 1);
    HEED_TRY(maker->status);
    heed_text text = { .ctx = match->graph->ctx };
    describe(match, &text);
    heed_status status = text.failed ? heed_fail(HEED_ERR_MEMORY, "no memory for the attention report")
                                     : heed_rewriter_found(rewriter, anchor, node, text.data);
    heed_text_free(&text);
    return status;
}

static heed_status try_softmax(heed_rewriter *rewriter, heed_graph *graph, heed_node *softmax)
{
    heed_attention_match *match = HEED_NEW(graph->arena, heed_attention_match);
    if (!match) return heed_fail(HEED_ERR_MEMORY, "no memory for the attention matcher");
    match->graph = graph, match->softmax = softmax;
    heed_maker maker = { graph, softmax, HEED_OK };
    const int yes = match_all(match, &maker);
    HEED_TRY(maker.status);
    if (yes) return fuse(match, &maker, rewriter);
    if (!match->reason[0]) return HEED_OK;
    return heed_rewriter_found(rewriter, match->product ? match->product : softmax, NULL, match->reason);
}

/* ---- what only looks like attention ---- */

/* A product of a pointwise function of scores with another computed matrix. */
static heed_status report_without_softmax(heed_rewriter *rewriter, heed_graph *graph, heed_node *product)
{
    static const char *const pointwise[] = { "Relu", "Sigmoid", "LeakyRelu", "Elu", "HardSigmoid", "Softplus", "Tanh", "Exp" };
    heed_product read;
    heed_value *p = product->n_inputs > 0 ? product->inputs[0] : NULL;
    if (!p || !heed_attention_read_product(product, p, &read)) return HEED_OK;
    if (read.b.value->fact.rank <= 2 && heed_match_from_constants(read.b.value)) return HEED_OK;
    const heed_node *node = heed_match_behind_casts(p)->producer;
    for (size_t i = 0; node && i < sizeof pointwise / sizeof *pointwise; i++) {
        if (!heed_node_is(node, pointwise[i]) || !heed_attention_has_scores(node->inputs[0])) continue;
        const char *reason = heed_arena_printf(graph->arena, "%s (%s) stands where attention has its softmax",
                                               heed_match_label(graph, node), node->op);
        return reason ? heed_rewriter_found(rewriter, product, NULL, reason)
                      : heed_fail(HEED_ERR_MEMORY, "no memory for the attention report");
    }
    return HEED_OK;
}

static heed_status find_in_graph(heed_rewriter *rewriter, heed_graph *graph)
{
    for (heed_node *node = graph->first, *next; node; node = next) {
        next = node->next;
        if (heed_node_is(node, "Softmax")) HEED_TRY(try_softmax(rewriter, graph, node));
        else HEED_TRY(report_without_softmax(rewriter, graph, node));
    }
    return HEED_OK;
}

heed_status heed_pass_attention(heed_rewriter *rewriter)
{
    return heed_match_each_graph(rewriter, rewriter->graph, find_in_graph);
}
