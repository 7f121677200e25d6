/* The taken branch of an If moves into the graph around it. */
#include "rewrite/fold.h"

#include <string.h>

/* Where the values of the branch are in the graph around it, by their ids. */
struct move {
    heed_graph *graph;
    const heed_graph *branch;
    heed_node *before;
    heed_value **map;
};

static heed_status no_memory(const heed_node *node)
{
    return heed_fail(HEED_ERR_MEMORY, "no memory to inline a branch of node '%s'", node->name ? node->name : "If");
}

static heed_value *moved(struct move *m, const heed_value *value)
{
    if (!value) return NULL;
    if (!m->map[value->id] && heed_value_is_constant(value))
        m->map[value->id] = heed_graph_add_constant(m->graph, value->name, value->fact.value);
    return m->map[value->id];
}

static heed_status move_node(struct move *m, const heed_node *node)
{
    heed_value **inputs = HEED_NEW_N(m->graph->arena, heed_value *, node->n_inputs ? node->n_inputs : 1);
    if (!inputs) return no_memory(node);
    for (int i = 0; i < node->n_inputs; i++) {
        inputs[i] = moved(m, node->inputs[i]);
        if (node->inputs[i] && !inputs[i]) return no_memory(node);
    }
    heed_node *copy =
        heed_graph_add_node(m->graph, m->before, node->domain, node->op, node->version, node->n_inputs, inputs, node->n_outputs);
    if (!copy) return no_memory(node);
    copy->name = node->name; /* both graphs live in one arena */
    copy->def = node->def;
    for (int i = 0; i < node->n_attrs; i++) HEED_TRY(heed_node_add_attr(m->graph, copy, &node->attrs[i]));
    for (int i = 0; i < node->n_outputs; i++) {
        const heed_value *from = node->outputs[i];
        if (!from) continue;
        copy->outputs[i]->name = from->name;
        copy->outputs[i]->fact = from->fact;
        m->map[from->id] = copy->outputs[i];
    }
    return HEED_OK;
}

heed_status heed_fold_inline_branch(heed_graph *graph, heed_node *node, int taken)
{
    const heed_attr *then_attr = heed_node_attr(node, "then_branch"), *else_attr = heed_node_attr(node, "else_branch");
    if (!then_attr || !else_attr || then_attr->type != HEED_ATTR_GRAPH || else_attr->type != HEED_ATTR_GRAPH)
        return heed_fail(HEED_ERR_FORMAT, "node '%s' (If): a branch is missing", node->name ? node->name : "");
    const heed_graph *branch = taken ? then_attr->g : else_attr->g;
    int first = taken ? 1 : 1 + then_attr->g->n_inputs;
    if (first + branch->n_inputs > node->n_inputs || branch->n_outputs < node->n_outputs)
        return heed_fail(HEED_ERR_FORMAT, "node '%s' (If): its branch has %d inputs and %d outputs, which do not fit the node",
                         node->name ? node->name : "", branch->n_inputs, branch->n_outputs);
    struct move m = { graph, branch, node, NULL };
    m.map = HEED_NEW_N(graph->arena, heed_value *, branch->n_values ? branch->n_values : 1);
    if (!m.map) return no_memory(node);
    for (int i = 0; i < branch->n_inputs; i++) m.map[branch->inputs[i]->id] = node->inputs[first + i];
    for (const heed_node *n = branch->first; n; n = n->next) HEED_TRY(move_node(&m, n));
    for (int i = 0; i < node->n_outputs; i++) {
        if (!node->outputs[i]) continue;
        heed_value *result = moved(&m, branch->outputs[i]);
        if (!result) return no_memory(node);
        HEED_TRY(heed_value_replace_uses(graph, node->outputs[i], result));
    }
    heed_graph_remove_node(graph, node);
    return HEED_OK;
}
