/* Building and changing graphs: values, nodes, uses, attributes. */
#include "graph/graph.h"

#include <string.h>

#include "graph/dims.h"

heed_graph *heed_graph_create(const heed_context *ctx)
{
    heed_arena *arena = heed_arena_create(ctx);
    if (!arena) return NULL;
    heed_graph *graph = HEED_NEW(arena, heed_graph);
    heed_dims *dims = heed_dims_create(arena);
    if (!graph || !dims) {
        heed_arena_destroy(arena);
        return NULL;
    }
    graph->ctx = ctx, graph->arena = arena, graph->dims = dims;
    return graph;
}

heed_graph *heed_graph_create_inner(heed_graph *outer)
{
    heed_graph *graph = HEED_NEW(outer->arena, heed_graph);
    if (!graph) return NULL;
    graph->ctx = outer->ctx, graph->arena = outer->arena, graph->dims = outer->dims, graph->outer = outer;
    return graph;
}

void heed_graph_destroy(heed_graph *graph)
{
    if (graph && !graph->outer) heed_arena_destroy(graph->arena);
}

/* ---- values and their uses ---- */

/* A larger array in the arena with room for one more element; the old one stays behind, so growth doubles. */
static int grow(heed_arena *arena, void *items, size_t size, int n, int *capacity)
{
    if (n < *capacity) return 1;
    if (*capacity > INT32_MAX / 2) return 0;
    int larger = *capacity ? *capacity * 2 : 4;
    void *copy = heed_arena_alloc(arena, heed_size_mul(size, (size_t) larger)), *old;
    if (!copy) return 0;
    memcpy(&old, items, sizeof old);
    if (n) memcpy(copy, old, (size_t) n * size);
    memcpy(items, &copy, sizeof copy);
    *capacity = larger;
    return 1;
}

heed_value *heed_graph_add_value(heed_graph *graph, const char *name)
{
    heed_value *value = HEED_NEW(graph->arena, heed_value);
    if (!value || !grow(graph->arena, &graph->values, sizeof *graph->values, graph->n_values, &graph->cap_values)) return NULL;
    if (name && !(value->name = heed_arena_strdup(graph->arena, name))) return NULL;
    value->fact.rank = -1;
    value->id = graph->n_values;
    graph->values[graph->n_values++] = value;
    return value;
}

heed_value *heed_graph_add_constant(heed_graph *graph, const char *name, const heed_tensor *tensor)
{
    heed_value *value = heed_graph_add_value(graph, name);
    if (!value) return NULL;
    value->fact.dtype = tensor->dtype, value->fact.rank = tensor->rank, value->fact.value = tensor;
    memcpy(value->fact.dims, tensor->dims, sizeof tensor->dims);
    return value;
}

heed_value *heed_graph_add_input(heed_graph *graph, const char *name)
{
    heed_value *value = heed_graph_add_value(graph, name);
    if (!value || !grow(graph->arena, &graph->inputs, sizeof *graph->inputs, graph->n_inputs, &graph->cap_inputs)) return NULL;
    value->is_input = 1;
    graph->inputs[graph->n_inputs++] = value;
    return value;
}

static int add_use(heed_graph *graph, heed_value *value, heed_node *node, int index)
{
    if (!grow(graph->arena, &value->uses, sizeof *value->uses, value->n_uses, &value->cap_uses)) return 0;
    value->uses[value->n_uses++] = (heed_use){ node, index };
    return 1;
}

/* Searched from the end: what was added last mostly goes first. */
static void drop_use(heed_value *value, const heed_node *node, int index)
{
    int at = value->n_uses - 1;
    while (at >= 0 && (value->uses[at].node != node || value->uses[at].index != index)) at--;
    if (at < 0) return;
    value->n_uses--;
    memmove(&value->uses[at], &value->uses[at + 1], (size_t) (value->n_uses - at) * sizeof *value->uses);
}

heed_status heed_graph_add_output(heed_graph *graph, heed_value *value)
{
    int n = graph->n_outputs, capacity = graph->cap_outputs;
    if (!grow(graph->arena, &graph->outputs, sizeof *graph->outputs, n, &capacity) ||
        !grow(graph->arena, &graph->output_names, sizeof *graph->output_names, n, &graph->cap_outputs) ||
        !add_use(graph, value, NULL, n))
        return heed_fail(HEED_ERR_MEMORY, "no memory for an output of the graph");
    graph->output_names[n] = value->name;
    graph->outputs[n] = value;
    graph->n_outputs++;
    return HEED_OK;
}

int heed_value_is_output(const heed_value *value)
{
    for (int i = 0; i < value->n_uses; i++)
        if (!value->uses[i].node) return 1;
    return 0;
}

heed_status heed_value_replace_uses(heed_graph *graph, heed_value *from, heed_value *to)
{
    if (from == to) return HEED_OK;
    for (int i = 0; i < from->n_uses; i++) {
        heed_use use = from->uses[i];
        if (!add_use(graph, to, use.node, use.index)) {
            to->n_uses -= i;
            return heed_fail(HEED_ERR_MEMORY, "no memory to replace a value of the graph");
        }
    }
    for (int i = 0; i < from->n_uses; i++) {
        heed_use use = from->uses[i];
        *(use.node ? &use.node->inputs[use.index] : &graph->outputs[use.index]) = to;
    }
    from->n_uses = 0;
    return HEED_OK;
}

/* ---- nodes ---- */

static void link_node(heed_graph *graph, heed_node *node, heed_node *before)
{
    node->next = before;
    node->prev = before ? before->prev : graph->last;
    *(node->prev ? &node->prev->next : &graph->first) = node;
    *(before ? &before->prev : &graph->last) = node;
}

heed_node *heed_graph_add_node(heed_graph *graph, heed_node *before, const char *domain, const char *op, int version, int n_in,
                               heed_value *const *inputs, int n_out)
{
    heed_node *node = HEED_NEW(graph->arena, heed_node);
    if (!node) return NULL;
    node->graph = graph;
    node->domain = heed_arena_strdup(graph->arena, domain);
    node->op = heed_arena_strdup(graph->arena, op);
    node->version = version;
    node->inputs = HEED_NEW_N(graph->arena, heed_value *, n_in);
    node->outputs = HEED_NEW_N(graph->arena, heed_value *, n_out);
    if (!node->domain || !node->op || !node->inputs || !node->outputs) return NULL;
    for (; node->n_outputs < n_out; node->n_outputs++) {
        heed_value *value = heed_graph_add_value(graph, NULL);
        if (!value) return NULL;
        value->producer = node, value->output_index = node->n_outputs;
        node->outputs[node->n_outputs] = value;
    }
    for (; node->n_inputs < n_in; node->n_inputs++) {
        heed_value *value = inputs[node->n_inputs];
        if (value && !add_use(graph, value, node, node->n_inputs)) break;
        node->inputs[node->n_inputs] = value;
    }
    if (node->n_inputs < n_in) {
        while (node->n_inputs--)
            if (inputs[node->n_inputs]) drop_use(inputs[node->n_inputs], node, node->n_inputs);
        return NULL;
    }
    node->id = graph->n_nodes_made++;
    link_node(graph, node, before);
    return node;
}

void heed_graph_remove_node(heed_graph *graph, heed_node *node)
{
    for (int i = node->n_inputs - 1; i >= 0; i--)
        if (node->inputs[i]) drop_use(node->inputs[i], node, i);
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i]) node->outputs[i]->producer = NULL;
    *(node->prev ? &node->prev->next : &graph->first) = node->next;
    *(node->next ? &node->next->prev : &graph->last) = node->prev;
    node->n_inputs = node->n_outputs = 0;
    node->prev = node->next = NULL;
}

static int add_input_slots(heed_node *node, int n)
{
    heed_value **inputs = HEED_NEW_N(node->graph->arena, heed_value *, n);
    if (!inputs) return 0;
    if (node->n_inputs) memcpy(inputs, node->inputs, (size_t) node->n_inputs * sizeof *inputs);
    node->inputs = inputs, node->n_inputs = n;
    return 1;
}

heed_status heed_node_set_input(heed_node *node, int index, heed_value *value)
{
    if (index < 0) return heed_fail(HEED_ERR_INTERNAL, "input %d of a node of '%s'", index, node->op);
    if ((index >= node->n_inputs && !add_input_slots(node, index + 1)) || (value && !add_use(node->graph, value, node, index)))
        return heed_fail(HEED_ERR_MEMORY, "no memory for an input of a node of '%s'", node->op);
    heed_value *old = node->inputs[index];
    node->inputs[index] = value;
    if (old) drop_use(old, node, index);
    return HEED_OK;
}

void heed_graph_prune(heed_graph *graph)
{
    for (heed_node *node = graph->last, *prev; node; node = prev) {
        prev = node->prev;
        int used = 0;
        for (int i = 0; i < node->n_outputs && !used; i++) used = node->outputs[i] && node->outputs[i]->n_uses;
        if (!used) heed_graph_remove_node(graph, node);
        for (int i = 0; i < node->n_attrs && used; i++)
            if (node->attrs[i].type == HEED_ATTR_GRAPH) heed_graph_prune(node->attrs[i].g);
    }
}

/* ---- attributes ---- */

const heed_attr *heed_node_attr(const heed_node *node, const char *name)
{
    for (int i = 0; i < node->n_attrs; i++)
        if (strcmp(node->attrs[i].name, name) == 0) return &node->attrs[i];
    return NULL;
}

int64_t heed_node_int(const heed_node *node, const char *name, int64_t otherwise)
{
    const heed_attr *attr = heed_node_attr(node, name);
    return attr && attr->type == HEED_ATTR_INT ? attr->i : otherwise;
}

float heed_node_float(const heed_node *node, const char *name, float otherwise)
{
    const heed_attr *attr = heed_node_attr(node, name);
    return attr && attr->type == HEED_ATTR_FLOAT ? attr->f : otherwise;
}

const char *heed_node_string(const heed_node *node, const char *name, const char *otherwise)
{
    const heed_attr *attr = heed_node_attr(node, name);
    return attr && attr->type == HEED_ATTR_STRING ? attr->s : otherwise;
}

static void *copy_array(heed_arena *arena, const void *from, int64_t n, size_t size)
{
    void *copy = heed_arena_alloc(arena, heed_size_mul((size_t) n, size));
    if (copy && n) memcpy(copy, from, (size_t) n * size);
    return copy;
}

static const char *const *copy_strings(heed_arena *arena, const char *const *from, int64_t n)
{
    char **copy = HEED_NEW_N(arena, char *, n);
    for (int64_t i = 0; copy && i < n; i++)
        if (!(copy[i] = heed_arena_strdup(arena, from[i]))) return NULL;
    return (const char *const *) copy;
}

/* Copy into the arena what the attribute points to; graphs and the data of tensors stay where they are. */
static int copy_attr(heed_arena *arena, heed_attr *copy, const heed_attr *attr)
{
    *copy = *attr;
    copy->name = heed_arena_strdup(arena, attr->name);
    if (!copy->name) return 0;
    switch (attr->type) {
    case HEED_ATTR_STRING: return (copy->s = heed_arena_strdup(arena, attr->s)) != NULL;
    case HEED_ATTR_TENSOR: return (copy->t = copy_array(arena, attr->t, 1, sizeof *attr->t)) != NULL;
    case HEED_ATTR_INTS: return (copy->ints = copy_array(arena, attr->ints, attr->n, sizeof *attr->ints)) != NULL;
    case HEED_ATTR_FLOATS: return (copy->floats = copy_array(arena, attr->floats, attr->n, sizeof *attr->floats)) != NULL;
    case HEED_ATTR_STRINGS: return (copy->strings = copy_strings(arena, attr->strings, attr->n)) != NULL;
    default: return 1;
    }
}

heed_status heed_node_add_attr(heed_graph *graph, heed_node *node, const heed_attr *attr)
{
    heed_attr copy;
    heed_attr *old = (heed_attr *) heed_node_attr(node, attr->name);
    if (!copy_attr(graph->arena, &copy, attr) ||
        (!old && !grow(graph->arena, &node->attrs, sizeof *node->attrs, node->n_attrs, &node->cap_attrs)))
        return heed_fail(HEED_ERR_MEMORY, "no memory for attribute '%.80s' of a node of '%.80s'", attr->name, node->op);
    *(old ? old : &node->attrs[node->n_attrs++]) = copy;
    return HEED_OK;
}

int heed_node_is_in(const heed_node *node, const char *domain, const char *op)
{
    return strcmp(node->op, op) == 0 && strcmp(node->domain, domain) == 0;
}

int heed_node_is(const heed_node *node, const char *op)
{
    return heed_node_is_in(node, HEED_DOMAIN_ONNX, op);
}
