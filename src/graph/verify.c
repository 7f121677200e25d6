/* What must hold of every graph between passes. Linear in the size of the graph. */
#include <string.h>

#include "graph/dims.h"
#include "graph/graph.h"

/* Marks of one graph. A slot is one place that uses a value: an input of a node or a graph output. */
struct check {
    const heed_graph *graph;
    unsigned char *made;         /* by value id: it exists at this point of the order */
    int *uses;                   /* by value id: slots that hold it */
    const heed_node **nodes;     /* by node id */
    size_t *first_slot;          /* by node id; one more for the graph outputs */
    unsigned char *slot_is_used; /* by slot: a value lists it among its uses */
};

#define FAIL(...) heed_fail(HEED_ERR_INTERNAL, __VA_ARGS__)

static heed_status fail_at(const heed_node *node, heed_status status)
{
    const char *name = node->name ? node->name : "";
    return heed_fail_prefix(status, "node #%d %.80s '%.120s': ", node->id, node->op, name);
}

static int is_here(const heed_graph *graph, const heed_value *value)
{
    return value->id >= 0 && value->id < graph->n_values && graph->values[value->id] == value;
}

static heed_status check_fact(const heed_graph *graph, const heed_value *value)
{
    const heed_fact *fact = &value->fact;
    const char *name = value->name ? value->name : "";
    if ((int) fact->dtype < 0 || fact->dtype >= HEED_DTYPE_COUNT)
        return FAIL("value %%%d '%.120s': type %d is none", value->id, name, (int) fact->dtype);
    if (fact->rank < -1 || fact->rank > HEED_RANK_MAX)
        return FAIL("value %%%d '%.120s': rank is %d, expected -1 to %d", value->id, name, fact->rank, HEED_RANK_MAX);
    for (int i = 0; i < fact->rank; i++)
        if (!heed_dims_valid(graph->dims, fact->dims[i]))
            return FAIL("value %%%d '%.120s': dimension %d is no symbol of the graph", value->id, name, i);
    if (fact->ints && fact->n_ints < 0) return FAIL("value %%%d '%.120s': %d known entries", value->id, name, fact->n_ints);
    for (int i = 0; fact->ints && i < fact->n_ints; i++)
        if (!heed_dims_valid(graph->dims, fact->ints[i]))
            return FAIL("value %%%d '%.120s': entry %d is no symbol of the graph", value->id, name, i);
    const heed_tensor *data = fact->value;
    if (!data) return HEED_OK;
    if (data->dtype != fact->dtype || data->rank != fact->rank ||
        (data->rank > 0 && memcmp(data->dims, fact->dims, (size_t) data->rank * sizeof *data->dims)))
        return FAIL("value %%%d '%.120s': its data have another type or shape than its fact", value->id, name);
    if (heed_tensor_bytes(data) == SIZE_MAX || (heed_tensor_bytes(data) && !data->data) || !heed_tensor_is_dense(data))
        return FAIL("value %%%d '%.120s': its data are missing, too large or not dense", value->id, name);
    return HEED_OK;
}

static heed_status check_values(struct check *c)
{
    const heed_graph *graph = c->graph;
    for (int i = 0; i < graph->n_values; i++) {
        const heed_value *value = graph->values[i];
        if (!value || value->id != i) return FAIL("value %d of the graph is missing or has another number", i);
        HEED_TRY(check_fact(graph, value));
        if (value->is_input && value->producer) return FAIL("value %%%d: an input that a node makes", i);
        c->made[i] = !value->producer && !value->is_input && value->fact.value;
    }
    for (int i = 0; i < graph->n_inputs; i++) {
        const heed_value *value = graph->inputs[i];
        if (!value || !is_here(graph, value) || !value->is_input) return FAIL("input %d is no input value of the graph", i);
        if (c->made[value->id]) return FAIL("input %d, value %%%d, is listed twice", i, value->id);
        if (!graph->outer && (!value->name || !*value->name)) return FAIL("input %d has no name", i);
        c->made[value->id] = 1;
    }
    return HEED_OK;
}

/* Ids and links; where each node's slots start. */
static heed_status check_links(struct check *c, size_t *n_slots)
{
    const heed_graph *graph = c->graph;
    const heed_node *prev = NULL;
    size_t slot = 0;
    for (const heed_node *node = graph->first; node; prev = node, node = node->next) {
        if (node->id < 0 || node->id >= graph->n_nodes_made || c->nodes[node->id])
            return FAIL("node number %d is out of range or there twice", node->id);
        if (node->prev != prev || node->graph != graph) return fail_at(node, FAIL("is linked wrongly"));
        if (!node->op || !node->domain) return FAIL("node #%d has no operator", node->id);
        c->nodes[node->id] = node;
        c->first_slot[node->id] = slot;
        slot += (size_t) node->n_inputs;
    }
    if (graph->last != prev) return FAIL("the last node of the graph is not the end of the list");
    c->first_slot[graph->n_nodes_made] = slot;
    *n_slots = slot + (size_t) graph->n_outputs;
    return HEED_OK;
}

static heed_status check_use(struct check *c, const heed_value *value)
{
    if (!value) return HEED_OK;
    if (!is_here(c->graph, value)) return FAIL("uses a value that is not of this graph");
    if (!c->made[value->id]) return FAIL("uses value %%%d '%.120s' before it is made", value->id, value->name ? value->name : "");
    c->uses[value->id]++;
    return HEED_OK;
}

static heed_status check_inner(const heed_node *node)
{
    int n_outer = 1, n_graphs = 0;
    for (int i = 0; i < node->n_attrs; i++) {
        if (node->attrs[i].type != HEED_ATTR_GRAPH) continue;
        const heed_graph *inner = node->attrs[i].g;
        if (!inner || inner->outer != node->graph) return FAIL("graph '%.80s' is not one inside this graph", node->attrs[i].name);
        if (inner->n_outputs != node->n_outputs)
            return FAIL("graph '%.80s' has %d outputs, the node %d", node->attrs[i].name, inner->n_outputs, node->n_outputs);
        heed_status status = heed_graph_verify(inner);
        if (status) return heed_fail_prefix(status, "in graph '%.80s': ", node->attrs[i].name);
        n_outer += inner->n_inputs;
        n_graphs++;
    }
    if (n_graphs && n_outer != node->n_inputs)
        return FAIL("has %d inputs, but its graphs and condition take %d", node->n_inputs, n_outer);
    return HEED_OK;
}

static heed_status check_node(struct check *c, const heed_node *node)
{
    for (int i = 0; i < node->n_inputs; i++) HEED_TRY(check_use(c, node->inputs[i]));
    for (int i = 0; i < node->n_outputs; i++) {
        const heed_value *value = node->outputs[i];
        if (!value) continue;
        if (!is_here(c->graph, value)) return FAIL("makes a value that is not of this graph");
        if (value->producer != node || value->output_index != i)
            return FAIL("its output %d, value %%%d, says that another one makes it", i, value->id);
        if (c->made[value->id]) return FAIL("makes value %%%d a second time", value->id);
        c->made[value->id] = 1;
    }
    return check_inner(node);
}

/* Where the use's place in slot_is_used is; -1 if it names no node or output of the graph. */
static int64_t slot_of(const struct check *c, heed_use use, const heed_value **holds)
{
    const heed_graph *graph = c->graph;
    int id = graph->n_nodes_made, n = graph->n_outputs;
    heed_value *const *held = graph->outputs;
    if (use.node) {
        id = use.node->id, n = use.node->n_inputs, held = use.node->inputs;
        if (use.node->graph != graph || c->nodes[id] != use.node) return -1;
    }
    if (use.index < 0 || use.index >= n) return -1;
    *holds = held[use.index];
    return (int64_t) c->first_slot[id] + use.index;
}

/* Each listed use is a slot that holds the value, none is listed twice, and none is missing. */
static heed_status check_use_list(struct check *c, const heed_value *value)
{
    const char *name = value->name ? value->name : "";
    for (int i = 0; i < value->n_uses; i++) {
        const heed_value *holds = NULL;
        int64_t slot = slot_of(c, value->uses[i], &holds);
        if (slot < 0 || holds != value) return FAIL("value %%%d '%.120s': use %d is not one", value->id, name, i);
        if (c->slot_is_used[slot]) return FAIL("value %%%d '%.120s': use %d is listed twice", value->id, name, i);
        c->slot_is_used[slot] = 1;
    }
    if (value->n_uses != c->uses[value->id])
        return FAIL("value %%%d '%.120s': has %d uses, but lists %d", value->id, name, c->uses[value->id], value->n_uses);
    return HEED_OK;
}

static heed_status check_all(struct check *c, heed_arena *arena)
{
    const heed_graph *graph = c->graph;
    size_t n_slots = 0;
    HEED_TRY(check_values(c));
    HEED_TRY(check_links(c, &n_slots));
    for (const heed_node *node = graph->first; node; node = node->next) {
        heed_status status = check_node(c, node);
        if (status) return fail_at(node, status);
    }
    for (int i = 0; i < graph->n_outputs; i++) {
        heed_status status = graph->outputs[i] ? check_use(c, graph->outputs[i]) : FAIL("is not there");
        if (status) return heed_fail_prefix(status, "output %d: ", i);
    }
    c->slot_is_used = HEED_NEW_N(arena, unsigned char, n_slots);
    if (!c->slot_is_used) return heed_fail(HEED_ERR_MEMORY, "no memory to verify the graph");
    for (int i = 0; i < graph->n_values; i++) HEED_TRY(check_use_list(c, graph->values[i]));
    return HEED_OK;
}

heed_status heed_graph_verify(const heed_graph *graph)
{
    heed_arena *arena = heed_arena_create(graph->ctx);
    if (!arena) return heed_fail(HEED_ERR_MEMORY, "no memory to verify the graph");
    struct check c = {
        .graph = graph,
        .made = HEED_NEW_N(arena, unsigned char, graph->n_values),
        .uses = HEED_NEW_N(arena, int, graph->n_values),
        .nodes = HEED_NEW_N(arena, const heed_node *, graph->n_nodes_made),
        .first_slot = HEED_NEW_N(arena, size_t, graph->n_nodes_made + 1),
    };
    heed_status status = c.made && c.uses && c.nodes && c.first_slot
                             ? check_all(&c, arena)
                             : heed_fail(HEED_ERR_MEMORY, "no memory to verify the graph");
    heed_arena_destroy(arena);
    return status;
}
