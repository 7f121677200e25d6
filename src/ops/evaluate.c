/* Run one node on known data while compiling: constants fold, small shape arithmetic resolves. */
#include <string.h>

#include "ops/infer.h"
#include "ops/util.h"

/* A larger result is left for the run, unless it is no larger than what it is made of: a Range, Expand or ConstantOfShape
 * of a few bytes would otherwise become a file's worth of memory. */
#define FOLD_BYTES ((size_t) 64 << 20)

static heed_status cannot(const heed_node *node, const char *why)
{
    return heed_fail(HEED_ERR_UNSUPPORTED, "%s: cannot be computed ahead: %s", node->op, why);
}

/* A fact for each input that says what its data are, whatever was found out before. */
static heed_status read_inputs(const heed_node *node, heed_infer *i, const heed_tensor **tensors, size_t *bytes)
{
    const heed_fact **in = (const heed_fact **) i->in;
    for (int k = 0; k < node->n_inputs; k++) {
        if (!node->inputs[k]) continue;
        const heed_tensor *t = tensors[k] = node->inputs[k]->fact.value;
        if (!t) return cannot(node, "an input is not known");
        heed_fact *fact = HEED_NEW(i->arena, heed_fact);
        if (!fact) return heed_infer_memory(i);
        fact->dtype = t->dtype, fact->rank = t->rank, fact->value = t;
        memcpy(fact->dims, t->dims, sizeof fact->dims);
        in[k] = fact;
        *bytes = heed_size_add(*bytes, heed_tensor_bytes(t));
    }
    return HEED_OK;
}

static heed_status make_outputs(const heed_node *node, const heed_infer *i, heed_tensor **out, size_t in_bytes)
{
    size_t bytes = 0;
    for (int k = 0; k < i->n_out; k++) {
        if (!node->outputs[k]) continue;
        if (i->out[k].dtype == HEED_DTYPE_NONE || !heed_fact_shape_known(&i->out[k]))
            return cannot(node, "the type or shape of its result is not known");
        out[k] = HEED_NEW(i->arena, heed_tensor);
        if (!out[k]) return heed_infer_memory(i);
        *out[k] = heed_tensor_make(i->out[k].dtype, i->out[k].rank, i->out[k].dims);
        bytes = heed_size_add(bytes, heed_tensor_bytes(out[k]));
    }
    if (bytes > FOLD_BYTES && bytes > in_bytes) return cannot(node, "its result is too large");
    return HEED_OK;
}

/* A view of a constant is a constant without a copy, if it is dense. */
static int take_view(const heed_op *def, heed_compute *c)
{
    if (!def->view || !def->view(c)) return 0;
    int dense = 1;
    for (int k = 0; k < c->n_out; k++)
        if (c->out[k] && !heed_tensor_is_dense(c->out[k])) dense = 0;
    for (int k = 0; k < c->n_out; k++)
        if (c->out[k]) heed_tensor_set_dense(c->out[k]);
    return dense;
}

static heed_status compute(const heed_op *def, heed_compute *c, heed_arena *arena)
{
    for (int k = 0; k < c->n_out; k++) {
        if (!c->out[k]) continue;
        c->out[k]->data = heed_arena_alloc(arena, heed_tensor_bytes(c->out[k]));
        if (!c->out[k]->data) return heed_fail(HEED_ERR_MEMORY, "%s: no memory for its result", c->node->op);
    }
    if (def->prepare) HEED_TRY(def->prepare(c, &c->state));
    size_t bytes = def->scratch ? def->scratch(c) : 0;
    heed_status status = HEED_OK;
    if (bytes) c->scratch = bytes == SIZE_MAX ? NULL : heed_alloc(c->ctx, bytes);
    if (bytes && !c->scratch) status = heed_fail(HEED_ERR_MEMORY, "%s: no memory to work in", c->node->op);
    if (status == HEED_OK) status = def->compute(c);
    heed_free(c->ctx, c->scratch);
    if (def->release && c->state) def->release(c->ctx, c->state);
    return status;
}

heed_status heed_node_evaluate(heed_graph *graph, heed_node *node, const heed_tensor **outputs)
{
    const heed_op *def = node->def ? node->def : heed_op_find(node->domain, node->op, node->version);
    if (!def) return heed_op_missing(node->domain, node->op, node->version);
    if (!def->compute || def->flags & (HEED_OP_RANDOM | HEED_OP_CONTROL)) return cannot(node, "it is not a plain function");

    int n_in = node->n_inputs, n_out = node->n_outputs;
    const heed_fact **in = HEED_NEW_N(graph->arena, const heed_fact *, n_in + 1);
    const heed_tensor **tensors = HEED_NEW_N(graph->arena, const heed_tensor *, n_in + 1);
    heed_fact *facts = HEED_NEW_N(graph->arena, heed_fact, n_out + 1);
    heed_tensor **out = HEED_NEW_N(graph->arena, heed_tensor *, n_out + 1);
    if (!in || !tensors || !facts || !out) return heed_fail(HEED_ERR_MEMORY, "%s: no memory to compute it", node->op);
    for (int k = 0; k < n_out; k++) facts[k].rank = -1;

    heed_infer i = { node, graph->arena, graph->dims, n_in, n_out, in, facts };
    size_t in_bytes = 0;
    HEED_TRY(read_inputs(node, &i, tensors, &in_bytes));
    HEED_TRY(def->infer(&i));
    HEED_TRY(make_outputs(node, &i, out, in_bytes));

    heed_compute c = { .ctx = graph->ctx, .node = node, .n_in = n_in, .n_out = n_out, .in = tensors, .out = out };
    if (!take_view(def, &c)) HEED_TRY(compute(def, &c, graph->arena));
    for (int k = 0; k < n_out; k++) outputs[k] = out[k];
    return HEED_OK;
}
