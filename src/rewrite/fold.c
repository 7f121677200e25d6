/* Folding: what can be known before the run becomes a constant, identities and repeated computations go, an If with a known
 * condition gives way to its branch. Results stay the same bit for bit. */
#include "rewrite/fold.h"

#include <string.h>

#include "ops/infer.h"
#include "ops/util.h"
#include "rewrite/pass.h"

/* Above this many bytes a value is folded only if it is not much larger than what it is made of: a broadcast scalar costs
 * nothing as a view at run time, but could be gigabytes as data in the model. */
#define SMALL_BYTES ((size_t) 64 << 10)
#define MOST_GROWTH 4

static heed_status replace_by_constant(heed_graph *graph, heed_value *value, const heed_tensor *tensor)
{
    heed_value *constant = heed_graph_add_constant(graph, value->name, tensor);
    if (!constant) return heed_fail(HEED_ERR_MEMORY, "no memory to fold value '%s'", value->name ? value->name : "");
    return heed_value_replace_uses(graph, value, constant);
}

static int all_known(const heed_dims *dims, const heed_fact *fact)
{
    int64_t number;
    if (!fact->ints || fact->dtype == HEED_DTYPE_NONE || fact->rank < 0 || fact->rank > 1) return 0;
    if (fact->rank == 1 && fact->dims[0] != fact->n_ints) return 0;
    for (int i = 0; i < fact->n_ints; i++)
        if (!heed_dims_known(dims, fact->ints[i], &number)) return 0;
    return 1;
}

static const heed_tensor *tensor_of_ints(heed_graph *graph, const heed_fact *fact)
{
    heed_tensor *t = HEED_NEW(graph->arena, heed_tensor);
    if (!t) return NULL;
    *t = heed_tensor_make(fact->dtype, fact->rank, fact->dims);
    t->data = heed_arena_alloc(graph->arena, heed_tensor_bytes(t));
    if (!t->data) return NULL;
    for (int i = 0; i < fact->n_ints; i++) {
        int64_t number = 0;
        heed_dims_known(graph->dims, fact->ints[i], &number);
        heed_tensor_set_int(t, i, number);
    }
    return t;
}

/* Outputs that inference already knows. *done: nothing of the node is needed any more. */
static heed_status fold_known(heed_graph *graph, heed_node *node, int *done)
{
    *done = 1;
    for (int i = 0; i < node->n_outputs; i++) {
        heed_value *value = node->outputs[i];
        if (!value || value->n_uses == 0) continue;
        const heed_tensor *t = value->fact.value;
        if (!t && all_known(graph->dims, &value->fact)) {
            t = tensor_of_ints(graph, &value->fact);
            if (!t) return heed_fail(HEED_ERR_MEMORY, "no memory to fold value '%s'", value->name ? value->name : "");
        }
        if (t) HEED_TRY(replace_by_constant(graph, value, t));
        else *done = 0;
    }
    return HEED_OK;
}

static int inputs_are_constant(const heed_node *node, size_t *bytes)
{
    *bytes = 0;
    for (int i = 0; i < node->n_inputs; i++) {
        if (!node->inputs[i]) continue;
        if (!heed_value_is_constant(node->inputs[i])) return 0;
        *bytes = heed_size_add(*bytes, heed_tensor_bytes(node->inputs[i]->fact.value));
    }
    return 1;
}

/* SIZE_MAX if it is not known. */
static size_t output_bytes(const heed_node *node)
{
    size_t bytes = 0;
    for (int i = 0; i < node->n_outputs; i++) {
        if (!node->outputs[i]) continue;
        const heed_fact *fact = &node->outputs[i]->fact;
        if (fact->dtype == HEED_DTYPE_NONE || fact->rank < 0) return SIZE_MAX;
        for (int d = 0; d < fact->rank; d++)
            if (fact->dims[d] < 0) return SIZE_MAX;
        heed_tensor t = heed_tensor_make(fact->dtype, fact->rank, fact->dims);
        bytes = heed_size_add(bytes, heed_tensor_bytes(&t));
    }
    return bytes;
}

/* A constant seen through a view that stays row-major (Reshape, a slice of rows) shares its memory. */
static heed_status fold_view(heed_graph *graph, heed_node *node, int *done)
{
    enum { MOST = 8 };
    const heed_tensor *in[MOST];
    if (!node->def->view || node->n_outputs != 1 || !node->outputs[0] || node->n_inputs < 1 || node->n_inputs > MOST ||
        !node->inputs[0] || output_bytes(node) == SIZE_MAX)
        return HEED_OK;
    for (int i = 0; i < node->n_inputs; i++) in[i] = node->inputs[i] ? node->inputs[i]->fact.value : NULL;
    const heed_fact *fact = &node->outputs[0]->fact;
    heed_tensor view = heed_tensor_make(fact->dtype, fact->rank, fact->dims), *out = &view;
    heed_compute c = { .ctx = graph->ctx, .node = node, .n_in = node->n_inputs, .n_out = 1, .in = in, .out = &out };
    if (!node->def->view(&c) || !heed_tensor_is_dense(out)) return HEED_OK;
    heed_tensor *t = HEED_NEW(graph->arena, heed_tensor);
    if (!t)
        return heed_fail(HEED_ERR_MEMORY, "no memory to fold value '%s'", node->outputs[0]->name ? node->outputs[0]->name : "");
    *t = view;
    heed_tensor_set_dense(t);
    *done = 1;
    return replace_by_constant(graph, node->outputs[0], t);
}

static heed_status fold_computed(heed_graph *graph, heed_node *node, int *done)
{
    const heed_tensor **outputs = HEED_NEW_N(graph->arena, const heed_tensor *, node->n_outputs ? node->n_outputs : 1);
    if (!outputs) return heed_fail(HEED_ERR_MEMORY, "no memory to fold a node");
    heed_status status = heed_node_evaluate(graph, node, outputs);
    if (status == HEED_ERR_MEMORY) return status;
    if (status != HEED_OK) return HEED_OK; /* it says so again when it is run, if it ever is */
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i] && outputs[i]) HEED_TRY(replace_by_constant(graph, node->outputs[i], outputs[i]));
    *done = 1;
    return HEED_OK;
}

heed_status heed_fold_node(heed_graph *graph, heed_node *node, int *done)
{
    *done = 0;
    if (!node->def || (node->def->flags & (HEED_OP_RANDOM | HEED_OP_CONTROL))) return HEED_OK;
    HEED_TRY(fold_known(graph, node, done));
    size_t in_bytes;
    if (*done || !node->def->compute || !inputs_are_constant(node, &in_bytes)) return HEED_OK;
    HEED_TRY(fold_view(graph, node, done));
    if (*done) return HEED_OK;
    size_t out_bytes = output_bytes(node);
    /* A view that is not row-major (a transposed weight) costs nothing at run time either. */
    if (out_bytes > SMALL_BYTES && (node->def->view || out_bytes / MOST_GROWTH > in_bytes)) return HEED_OK;
    return fold_computed(graph, node, done);
}

/* ---- If ---- */

static int known_condition(const heed_graph *graph, const heed_node *node, int *taken)
{
    const heed_value *condition = node->inputs[0];
    if (!condition) return 0;
    const heed_fact *fact = &condition->fact;
    if (fact->value && heed_tensor_count(fact->value) == 1) {
        *taken = heed_tensor_int(fact->value, 0) != 0;
        return 1;
    }
    int64_t number;
    if (!fact->ints || fact->n_ints != 1 || !heed_dims_known(graph->dims, fact->ints[0], &number)) return 0;
    *taken = number != 0;
    return 1;
}

/* Constants outside are constants inside the branches too. */
static heed_status push_constants(heed_node *node)
{
    int at = 1;
    static const char *const branches[] = { "then_branch", "else_branch" };
    for (int b = 0; b < 2; b++) {
        const heed_attr *attr = heed_node_attr(node, branches[b]);
        if (!attr || attr->type != HEED_ATTR_GRAPH) continue;
        for (int i = 0; i < attr->g->n_inputs && at < node->n_inputs; i++, at++) {
            if (!heed_value_is_constant(node->inputs[at]) || attr->g->inputs[i]->n_uses == 0) continue;
            HEED_TRY(replace_by_constant(attr->g, attr->g->inputs[i], node->inputs[at]->fact.value));
        }
    }
    return HEED_OK;
}

/* CastLike takes a type from its second input, not data: as a Cast it folds where its first input is constant. Returns the node
 * to go on with. */
static heed_status cast_for_cast_like(heed_graph *graph, heed_node **node)
{
    heed_node *like = *node;
    if (!heed_node_is(like, "CastLike") || !like->inputs[1] || like->inputs[1]->fact.dtype == HEED_DTYPE_NONE) return HEED_OK;
    heed_node *cast = heed_graph_add_node(graph, like, HEED_DOMAIN_ONNX, "Cast", like->version, 1, like->inputs, 1);
    if (!cast) return heed_fail(HEED_ERR_MEMORY, "no memory to fold a node");
    const heed_attr to = { .name = "to", .type = HEED_ATTR_INT, .i = heed_dtype_to_onnx(like->inputs[1]->fact.dtype) };
    HEED_TRY(heed_node_add_attr(graph, cast, &to));
    cast->name = like->name;
    cast->def = heed_op_find(cast->domain, cast->op, cast->version);
    cast->outputs[0]->fact = like->outputs[0]->fact;
    HEED_TRY(heed_value_replace_uses(graph, like->outputs[0], cast->outputs[0]));
    *node = cast;
    return HEED_OK;
}

static heed_status fold_graph(heed_graph *graph);

static heed_status fold_if(heed_graph *graph, heed_node *node, int *inlined)
{
    int taken;
    if (known_condition(graph, node, &taken)) {
        *inlined = 1;
        return heed_fold_inline_branch(graph, node, taken);
    }
    HEED_TRY(push_constants(node));
    for (int i = 0; i < node->n_attrs; i++)
        if (node->attrs[i].type == HEED_ATTR_GRAPH) HEED_TRY(fold_graph(node->attrs[i].g));
    return HEED_OK;
}

/* One sweep in order: what is folded early is there for the nodes after it. */
static heed_status sweep(heed_graph *graph, int *inlined)
{
    heed_node *next;
    for (heed_node *node = graph->first; node; node = next) {
        next = node->next;
        if (node->def && (node->def->flags & HEED_OP_CONTROL)) {
            HEED_TRY(fold_if(graph, node, inlined));
            continue;
        }
        int done = 0;
        HEED_TRY(cast_for_cast_like(graph, &node));
        HEED_TRY(heed_fold_node(graph, node, &done));
        if (done) continue;
        heed_value *same = heed_fold_identity(node);
        if (same) HEED_TRY(heed_value_replace_uses(graph, node->outputs[0], same));
    }
    heed_graph_prune(graph);
    return HEED_OK;
}

/* Branches that took the place of an If may hold others, and make more shapes known. */
static heed_status fold_graph(heed_graph *graph)
{
    for (;;) {
        int inlined = 0;
        HEED_TRY(sweep(graph, &inlined));
        if (!inlined) break;
        HEED_TRY(heed_graph_infer(graph));
    }
    return heed_fold_common(graph);
}

heed_status heed_pass_fold(heed_rewriter *rewriter)
{
    return fold_graph(rewriter->graph);
}
