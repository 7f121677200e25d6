/* The order of nodes: as in the file where that works, else a topological one. No recursion over nodes. */
#include <string.h>

#include "onnx/importer.h"

/* What each node needs: indices of nodes of the same scope, those of node i from start[i] to start[i + 1]. */
struct needs {
    const struct scope *scope;
    size_t *items, *start;
    size_t n, capacity;
};

/* Names that graphs inside a node define, from the innermost outwards. */
struct inside {
    const struct inside *outer;
    heed_names names;
};

static heed_status add_need(struct needs *needs, const char *name)
{
    void **found = heed_names_find(&needs->scope->names, name, strlen(name));
    const struct binding *binding = found ? *found : NULL;
    if (!binding || binding->kind != BOUND_NODE) return HEED_OK;
    if (needs->n == needs->capacity) {
        size_t capacity = needs->capacity ? 2 * needs->capacity : 64;
        size_t *items = HEED_NEW_N(needs->scope->arena, size_t, capacity);
        if (!items) return HEED_NO_MEMORY();
        if (needs->n) memcpy(items, needs->items, needs->n * sizeof *items);
        needs->items = items, needs->capacity = capacity;
    }
    needs->items[needs->n++] = binding->node;
    return HEED_OK;
}

static heed_status add_outer_name(struct needs *needs, const struct inside *inside, const char *name)
{
    for (; inside; inside = inside->outer)
        if (heed_names_find(&inside->names, name, strlen(name))) return HEED_OK;
    return add_need(needs, name);
}

static heed_status define(struct inside *inside, const char *name)
{
    if (!name || !*name || heed_names_add(&inside->names, name, strlen(name))) return HEED_OK;
    return HEED_NO_MEMORY();
}

static heed_status define_names(struct inside *inside, const graph_proto *graph)
{
    for (size_t i = 0; i < graph->n_input; i++) HEED_TRY(define(inside, graph->input[i]->name));
    for (size_t i = 0; i < graph->n_initializer; i++) HEED_TRY(define(inside, graph->initializer[i]->name));
    for (size_t i = 0; i < graph->n_node; i++)
        for (size_t k = 0; k < graph->node[i]->n_output; k++) HEED_TRY(define(inside, graph->node[i]->output[k]));
    return HEED_OK;
}

/* What a graph inside a node takes from around it. Recursion is as deep as messages nest, which wire.c bounds. */
static heed_status add_graph_needs(struct needs *needs, const struct inside *outer, const graph_proto *graph)
{
    struct inside inside = { outer, { .arena = needs->scope->arena } };
    HEED_TRY(define_names(&inside, graph));
    for (size_t i = 0; i < graph->n_node; i++) {
        const node_proto *node = graph->node[i];
        for (size_t k = 0; k < node->n_input; k++) HEED_TRY(add_outer_name(needs, &inside, node->input[k]));
        for (size_t k = 0; k < node->n_attribute; k++)
            if (node->attribute[k]->g) HEED_TRY(add_graph_needs(needs, &inside, node->attribute[k]->g));
    }
    for (size_t i = 0; i < graph->n_output; i++)
        if (graph->output[i]->name) HEED_TRY(add_outer_name(needs, &inside, graph->output[i]->name));
    return HEED_OK;
}

static heed_status collect(struct needs *needs, int *sorted)
{
    const struct scope *scope = needs->scope;
    *sorted = 1;
    for (size_t i = 0; i < scope->n_nodes; i++) {
        const node_proto *node = scope->nodes[i];
        needs->start[i] = needs->n;
        for (size_t k = 0; k < node->n_input; k++) HEED_TRY(add_need(needs, node->input[k]));
        for (size_t k = 0; k < node->n_attribute; k++)
            if (node->attribute[k]->g) HEED_TRY(add_graph_needs(needs, NULL, node->attribute[k]->g));
        for (size_t k = needs->start[i]; k < needs->n; k++) *sorted &= needs->items[k] < i;
    }
    needs->start[scope->n_nodes] = needs->n;
    return HEED_OK;
}

static heed_status fail_cycle(const struct scope *scope, size_t i)
{
    const node_proto *node = scope->nodes[i];
    return heed_fail(HEED_ERR_FORMAT, "node '%.120s' (%.80s): its input depends on its own output",
                     node->name && *node->name ? node->name : "", node->op_type ? node->op_type : "");
}

/* Depth first, with a stack of our own. */
static heed_status sort(const struct needs *needs, size_t *order)
{
    enum { NEW, OPEN, DONE };
    const struct scope *scope = needs->scope;
    unsigned char *state = HEED_NEW_N(scope->arena, unsigned char, scope->n_nodes);
    size_t *stack = HEED_NEW_N(scope->arena, size_t, scope->n_nodes), *next = HEED_NEW_N(scope->arena, size_t, scope->n_nodes);
    size_t n = 0;
    if (!state || !stack || !next) return HEED_NO_MEMORY();
    for (size_t first = 0; first < scope->n_nodes; first++) {
        size_t height = 0;
        if (state[first] == NEW) stack[height++] = first, state[first] = OPEN, next[first] = needs->start[first];
        while (height) {
            size_t node = stack[height - 1];
            if (next[node] == needs->start[node + 1]) {
                state[node] = DONE, order[n++] = node, height--;
                continue;
            }
            size_t need = needs->items[next[node]++];
            if (state[need] == OPEN) return fail_cycle(scope, need);
            if (state[need] == NEW) stack[height++] = need, state[need] = OPEN, next[need] = needs->start[need];
        }
    }
    return HEED_OK;
}

heed_status heed_onnx_order(struct scope *scope, const size_t **out)
{
    struct needs needs = { .scope = scope, .start = HEED_NEW_N(scope->arena, size_t, scope->n_nodes + 1) };
    size_t *order = HEED_NEW_N(scope->arena, size_t, scope->n_nodes);
    int sorted = 1;
    if (!needs.start || !order) return HEED_NO_MEMORY();
    HEED_TRY(collect(&needs, &sorted));
    if (!sorted) HEED_TRY(sort(&needs, order));
    else
        for (size_t i = 0; i < scope->n_nodes; i++) order[i] = i;
    *out = order;
    return HEED_OK;
}
