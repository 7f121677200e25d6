/* A copy with the same numbers: values, nodes and dimension symbols keep theirs. */
#include "graph/clone.h"

#include <string.h>

#include "graph/dims.h"

static int copy_name(heed_arena *arena, const char **to, const char *from)
{
    *to = from ? heed_arena_strdup(arena, from) : NULL;
    return !from || *to;
}

static int copy_fact(heed_arena *arena, heed_fact *to, const heed_fact *from)
{
    *to = *from;
    if (from->value) {
        heed_tensor *tensor = HEED_NEW(arena, heed_tensor);
        if (!tensor) return 0;
        *tensor = *from->value;
        to->value = tensor;
    }
    if (from->ints) {
        int64_t *ints = HEED_NEW_N(arena, int64_t, from->n_ints);
        if (!ints) return 0;
        if (from->n_ints) memcpy(ints, from->ints, (size_t) from->n_ints * sizeof *ints);
        to->ints = ints;
    }
    return 1;
}

/* All values in the order of their ids; who makes them is filled in with the nodes. */
static int copy_values(heed_graph *to, const heed_graph *from)
{
    for (int i = 0; i < from->n_values; i++) {
        const heed_value *old = from->values[i];
        heed_value *value = heed_graph_add_value(to, old->name);
        if (!value || !copy_fact(to->arena, &value->fact, &old->fact)) return 0;
        value->output_index = old->output_index, value->is_input = old->is_input;
        if (!(value->uses = HEED_NEW_N(to->arena, heed_use, old->n_uses))) return 0;
        value->cap_uses = old->n_uses;
    }
    to->inputs = HEED_NEW_N(to->arena, heed_value *, from->n_inputs);
    if (!to->inputs) return 0;
    for (int i = 0; i < from->n_inputs; i++) to->inputs[i] = to->values[from->inputs[i]->id];
    to->n_inputs = to->cap_inputs = from->n_inputs;
    return 1;
}

static int copy_outputs(heed_graph *to, const heed_graph *from)
{
    for (int i = 0; i < from->n_outputs; i++) {
        if (heed_graph_add_output(to, to->values[from->outputs[i]->id]) != HEED_OK) return 0;
        if (!copy_name(to->arena, &to->output_names[i], from->output_names[i])) return 0;
    }
    return 1;
}

static int copy_contents(heed_graph *to, const heed_graph *from);

static int copy_attrs(heed_graph *to, heed_node *node, const heed_node *old)
{
    for (int i = 0; i < old->n_attrs; i++) {
        heed_attr attr = old->attrs[i];
        if (attr.type == HEED_ATTR_GRAPH) {
            attr.g = heed_graph_create_inner(to);
            if (!attr.g || !copy_contents(attr.g, old->attrs[i].g)) return 0;
        }
        if (heed_node_add_attr(to, node, &attr) != HEED_OK) return 0;
    }
    return 1;
}

static int copy_node(heed_graph *to, const heed_node *old)
{
    heed_value **inputs = HEED_NEW_N(to->arena, heed_value *, old->n_inputs);
    if (!inputs) return 0;
    for (int i = 0; i < old->n_inputs; i++) inputs[i] = old->inputs[i] ? to->values[old->inputs[i]->id] : NULL;
    heed_node *node = heed_graph_add_node(to, NULL, old->domain, old->op, old->version, old->n_inputs, inputs, 0);
    if (!node || !copy_name(to->arena, &node->name, old->name)) return 0;
    node->id = old->id, node->def = old->def;
    node->outputs = HEED_NEW_N(to->arena, heed_value *, old->n_outputs);
    if (!node->outputs) return 0;
    for (; node->n_outputs < old->n_outputs; node->n_outputs++) {
        const heed_value *value = old->outputs[node->n_outputs];
        if (!value) continue;
        node->outputs[node->n_outputs] = to->values[value->id];
        to->values[value->id]->producer = node;
    }
    return copy_attrs(to, node, old);
}

static int copy_contents(heed_graph *to, const heed_graph *from)
{
    if (!copy_name(to->arena, &to->name, from->name) || !copy_values(to, from)) return 0;
    for (const heed_node *node = from->first; node; node = node->next)
        if (!copy_node(to, node)) return 0;
    to->n_nodes_made = from->n_nodes_made;
    return copy_outputs(to, from);
}

heed_status heed_graph_clone(heed_graph **out, const heed_graph *graph)
{
    *out = NULL;
    heed_graph *copy = heed_graph_create(graph->ctx);
    if (copy) copy->dims = heed_dims_clone(graph->dims, copy->arena);
    if (!copy || !copy->dims || !copy_contents(copy, graph)) {
        heed_graph_destroy(copy);
        return heed_fail(HEED_ERR_MEMORY, "no memory for a copy of the graph");
    }
    *out = copy;
    return HEED_OK;
}
