/* Shape inference over a graph: each node's rule in order, its answer joined with what is known already. */
#include "ops/infer.h"

#include <stdio.h>
#include <string.h>

#include "ops/util.h"

static const char *node_label(const heed_node *node)
{
    return node->name && *node->name ? node->name : node->op;
}

/* ---- binding ---- */

static heed_status check_arity(const heed_node *node)
{
    const heed_op *def = node->def;
    if (node->n_inputs < def->min_in || (def->max_in >= 0 && node->n_inputs > def->max_in))
        return heed_fail(HEED_ERR_FORMAT, "%s: has %d inputs, expected %d to %d", node->op, node->n_inputs, def->min_in,
                         def->max_in);
    if (node->n_outputs < def->min_out || (def->max_out >= 0 && node->n_outputs > def->max_out))
        return heed_fail(HEED_ERR_FORMAT, "%s: has %d outputs, expected %d to %d", node->op, node->n_outputs, def->min_out,
                         def->max_out);
    for (int k = 0; k < def->min_in; k++)
        if (!node->inputs[k]) return heed_fail(HEED_ERR_FORMAT, "%s: input %d is missing", node->op, k);
    return HEED_OK;
}

static heed_status bind_node(heed_node *node)
{
    node->def = heed_op_find(node->domain, node->op, node->version);
    if (!node->def) return heed_op_missing(node->domain, node->op, node->version);
    HEED_TRY(check_arity(node));
    for (int a = 0; a < node->n_attrs; a++)
        if (node->attrs[a].type == HEED_ATTR_GRAPH) HEED_TRY(heed_graph_bind(node->attrs[a].g));
    return HEED_OK;
}

heed_status heed_graph_bind(heed_graph *graph)
{
    for (heed_node *node = graph->first; node; node = node->next) {
        heed_status status = bind_node(node);
        if (status != HEED_OK) return heed_fail_prefix(status, "node '%s': ", node_label(node));
    }
    return HEED_OK;
}

/* ---- joining facts ---- */

static heed_status contradiction(const heed_value *value, const char *what, const char *is, const char *was)
{
    return heed_fail(HEED_ERR_ARGUMENT, "value '%s': its %s is %s, but was declared or found before to be %s",
                     value->name ? value->name : "?", what, is, was);
}

/* The new dimension, where the rule knows it, else the old one. A known size is better than any symbol. */
static int join_dim(int64_t *out, int64_t found, int64_t before)
{
    if (found >= 0 && before >= 0 && found != before) return 0;
    if (found == HEED_DIM_UNKNOWN || (found < 0 && before >= 0)) *out = before;
    else *out = found;
    return 1;
}

static heed_status join_shape(heed_graph *graph, const heed_value *value, heed_fact *found)
{
    const heed_fact *before = &value->fact;
    if (found->rank < 0) {
        found->rank = before->rank;
        memcpy(found->dims, before->dims, sizeof found->dims);
    } else if (before->rank >= 0) {
        if (found->rank != before->rank) {
            char is[16], was[16];
            snprintf(is, sizeof is, "%d", found->rank), snprintf(was, sizeof was, "%d", before->rank);
            return contradiction(value, "rank", is, was);
        }
        for (int d = 0; d < found->rank; d++) {
            if (join_dim(&found->dims[d], found->dims[d], before->dims[d])) continue;
            char is[32], was[32];
            snprintf(is, sizeof is, "%lld", (long long) found->dims[d]);
            snprintf(was, sizeof was, "%lld", (long long) before->dims[d]);
            return contradiction(value, "size", is, was);
        }
    }
    for (int d = 0; d < found->rank; d++)
        if (found->dims[d] == HEED_DIM_UNKNOWN) found->dims[d] = heed_dims_fresh(graph->dims);
    return HEED_OK;
}

/* Put what a rule found into the value. */
static heed_status join(heed_graph *graph, heed_value *value, heed_fact *found)
{
    if (value->fact.dtype != HEED_DTYPE_NONE && found->dtype == HEED_DTYPE_NONE) found->dtype = value->fact.dtype;
    if (value->fact.dtype != HEED_DTYPE_NONE && found->dtype != value->fact.dtype)
        return contradiction(value, "type", heed_dtype_name(found->dtype), heed_dtype_name(value->fact.dtype));
    HEED_TRY(join_shape(graph, value, found));
    value->fact = *found;
    return HEED_OK;
}

/* ---- a node ---- */

/* Results this small are computed on the way: shape arithmetic in any operator, scalars that rewrites want to see. */
#define SMALL_COUNT 1024

static int worth_evaluating(const heed_infer *i)
{
    const heed_op *def = i->node->def;
    if (!def->compute || def->flags & (HEED_OP_RANDOM | HEED_OP_CONTROL) || def->prepare) return 0;
    int known = 1;
    for (int k = 0; k < i->n_out; k++) {
        int64_t n = heed_fact_count(&i->out[k]);
        if (n < 0 || n > SMALL_COUNT || i->out[k].dtype == HEED_DTYPE_NONE) return 0;
        if (!i->out[k].value) known = 0;
    }
    for (int k = 0; k < i->n_in; k++)
        if (i->in[k] && (!i->in[k]->value || heed_tensor_count(i->in[k]->value) > SMALL_COUNT)) return 0;
    return !known;
}

static heed_status evaluate_small(heed_graph *graph, heed_node *node, heed_infer *i)
{
    const heed_tensor **values = HEED_NEW_N(graph->arena, const heed_tensor *, i->n_out + 1);
    if (!values) return heed_infer_memory(i);
    heed_status status = heed_node_evaluate(graph, node, values);
    if (status == HEED_ERR_MEMORY) return status;
    if (status != HEED_OK) return HEED_OK; /* such as an index out of range: an error of a run that gets there */
    for (int k = 0; k < i->n_out; k++)
        if (node->outputs[k]) i->out[k].value = values[k];
    return HEED_OK;
}

heed_status heed_node_infer(heed_graph *graph, heed_node *node)
{
    if (!node->def) HEED_TRY(bind_node(node));
    HEED_TRY(check_arity(node)); /* passes may have changed it */
    const heed_fact **in = HEED_NEW_N(graph->arena, const heed_fact *, node->n_inputs + 1);
    heed_fact *out = HEED_NEW_N(graph->arena, heed_fact, node->n_outputs + 1);
    if (!in || !out) return heed_fail(HEED_ERR_MEMORY, "%s: no memory for its shape", node->op);
    for (int k = 0; k < node->n_inputs; k++) in[k] = node->inputs[k] ? &node->inputs[k]->fact : NULL;
    for (int k = 0; k < node->n_outputs; k++) out[k].rank = -1;
    heed_infer i = { node, graph->arena, graph->dims, node->n_inputs, node->n_outputs, in, out };
    HEED_TRY(node->def->infer(&i));
    if (worth_evaluating(&i)) HEED_TRY(evaluate_small(graph, node, &i));
    for (int k = 0; k < node->n_outputs; k++)
        if (node->outputs[k]) HEED_TRY(join(graph, node->outputs[k], &out[k]));
    return HEED_OK;
}

heed_status heed_graph_infer(heed_graph *graph)
{
    for (heed_node *node = graph->first; node; node = node->next) {
        heed_status status = heed_node_infer(graph, node);
        if (status != HEED_OK) return heed_fail_prefix(status, "node '%s': ", node_label(node));
    }
    return HEED_OK;
}
