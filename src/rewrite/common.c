/* Common subexpressions: exporters write shape computations, masks and scalars many times over. Two nodes are the same if
 * operator, attributes and inputs are; constants if type, shape and bytes are. */
#include <string.h>

#include "ops/op.h"
#include "rewrite/fold.h"

#define MOST_CONSTANT_BYTES 1024 /* above it a comparison could page in weights */

static uint64_t mix(uint64_t h, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++) h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

static uint64_t mix_text(uint64_t h, const char *text)
{
    return mix(h, text, strlen(text) + 1);
}

static size_t element_bytes(heed_attr_type type)
{
    return type == HEED_ATTR_INTS ? sizeof(int64_t) : sizeof(float);
}

static uint64_t hash_tensor(uint64_t h, const heed_tensor *t)
{
    h = mix(h, &t->dtype, sizeof t->dtype);
    h = mix(h, t->dims, (size_t) t->rank * sizeof *t->dims);
    size_t bytes = heed_tensor_bytes(t);
    return bytes <= MOST_CONSTANT_BYTES ? mix(h, t->data, bytes) : h;
}

static int same_tensor(const heed_tensor *a, const heed_tensor *b)
{
    if (a == b) return 1;
    if (a->dtype != b->dtype || a->rank != b->rank || memcmp(a->dims, b->dims, (size_t) a->rank * sizeof *a->dims) != 0) return 0;
    size_t bytes = heed_tensor_bytes(a);
    return bytes == 0 || a->data == b->data || (bytes <= MOST_CONSTANT_BYTES && memcmp(a->data, b->data, bytes) == 0);
}

static uint64_t hash_attr(uint64_t h, const heed_attr *attr)
{
    h = mix_text(h, attr->name);
    switch (attr->type) {
    case HEED_ATTR_INT: return mix(h, &attr->i, sizeof attr->i);
    case HEED_ATTR_FLOAT: return mix(h, &attr->f, sizeof attr->f);
    case HEED_ATTR_STRING: return mix_text(h, attr->s);
    case HEED_ATTR_TENSOR: return hash_tensor(h, attr->t);
    case HEED_ATTR_INTS:
    case HEED_ATTR_FLOATS: return mix(h, attr->ints, (size_t) attr->n * element_bytes(attr->type));
    default: return h;
    }
}

static int same_attr(const heed_attr *a, const heed_attr *b)
{
    if (a->type != b->type || strcmp(a->name, b->name) != 0) return 0;
    switch (a->type) {
    case HEED_ATTR_INT: return a->i == b->i;
    case HEED_ATTR_FLOAT: return memcmp(&a->f, &b->f, sizeof a->f) == 0;
    case HEED_ATTR_STRING: return strcmp(a->s, b->s) == 0;
    case HEED_ATTR_TENSOR: return same_tensor(a->t, b->t);
    case HEED_ATTR_INTS:
    case HEED_ATTR_FLOATS:
        return a->n == b->n && (a->n == 0 || memcmp(a->ints, b->ints, (size_t) a->n * element_bytes(a->type)) == 0);
    default: return 0;
    }
}

static uint64_t hash_node(const heed_node *node)
{
    uint64_t h = mix_text(mix_text(0xcbf29ce484222325u, node->domain), node->op);
    h = mix(h, &node->version, sizeof node->version);
    for (int i = 0; i < node->n_inputs; i++) {
        int id = node->inputs[i] ? node->inputs[i]->id : -1;
        h = mix(h, &id, sizeof id);
    }
    for (int i = 0; i < node->n_attrs; i++) h = hash_attr(h, &node->attrs[i]);
    return h;
}

static int same_node(const heed_node *a, const heed_node *b)
{
    if (strcmp(a->op, b->op) != 0 || strcmp(a->domain, b->domain) != 0 || a->version != b->version ||
        a->n_inputs != b->n_inputs || a->n_outputs != b->n_outputs || a->n_attrs != b->n_attrs)
        return 0;
    for (int i = 0; i < a->n_inputs; i++)
        if (a->inputs[i] != b->inputs[i]) return 0;
    for (int i = 0; i < a->n_outputs; i++)
        if (b->outputs[i] && !a->outputs[i]) return 0;
    for (int i = 0; i < a->n_attrs; i++)
        if (!same_attr(&a->attrs[i], &b->attrs[i])) return 0;
    return 1;
}

/* An open hash table of pointers, made large enough at the start. */
struct table {
    const void **slots;
    size_t mask;
};

static heed_status table_create(struct table *table, const heed_graph *graph, size_t n)
{
    size_t size = 16;
    while (size < n * 2) size *= 2;
    table->mask = size - 1;
    table->slots = heed_alloc(graph->ctx, size * sizeof *table->slots);
    if (!table->slots) return heed_fail(HEED_ERR_MEMORY, "no memory to look for common subexpressions");
    memset(table->slots, 0, size * sizeof *table->slots);
    return HEED_OK;
}

static heed_status merge_constants(heed_graph *graph, struct table *table)
{
    int n = graph->n_values;
    for (int i = 0; i < n; i++) {
        heed_value *value = graph->values[i];
        if (!value || value->n_uses == 0 || !heed_value_is_constant(value)) continue;
        size_t at = (size_t) hash_tensor(0xcbf29ce484222325u, value->fact.value) & table->mask;
        for (;; at = (at + 1) & table->mask) {
            heed_value *other = (heed_value *) table->slots[at];
            if (!other) {
                table->slots[at] = value;
                break;
            }
            if (same_tensor(other->fact.value, value->fact.value)) {
                HEED_TRY(heed_value_replace_uses(graph, value, other));
                break;
            }
        }
    }
    return HEED_OK;
}

static heed_status merge_into(heed_graph *graph, const heed_node *kept, heed_node *node)
{
    for (int i = 0; i < node->n_outputs; i++)
        if (node->outputs[i]) HEED_TRY(heed_value_replace_uses(graph, node->outputs[i], kept->outputs[i]));
    heed_graph_remove_node(graph, node);
    return HEED_OK;
}

static int may_merge(const heed_node *node)
{
    if (!node->def || (node->def->flags & (HEED_OP_RANDOM | HEED_OP_CONTROL))) return 0;
    for (int i = 0; i < node->n_attrs; i++)
        if (node->attrs[i].type == HEED_ATTR_GRAPH || node->attrs[i].type == HEED_ATTR_STRINGS) return 0;
    return 1;
}

static heed_status merge_nodes(heed_graph *graph, struct table *table)
{
    heed_node *next;
    for (heed_node *node = graph->first; node; node = next) {
        next = node->next;
        if (!may_merge(node)) continue;
        size_t at = (size_t) hash_node(node) & table->mask;
        for (;; at = (at + 1) & table->mask) {
            const heed_node *other = table->slots[at];
            if (!other) {
                table->slots[at] = node;
                break;
            }
            if (same_node(other, node)) {
                HEED_TRY(merge_into(graph, other, node));
                break;
            }
        }
    }
    return HEED_OK;
}

heed_status heed_fold_common(heed_graph *graph)
{
    struct table table;
    HEED_TRY(table_create(&table, graph, (size_t) graph->n_values));
    heed_status status = merge_constants(graph, &table);
    heed_free(graph->ctx, table.slots);
    HEED_TRY(status);
    HEED_TRY(table_create(&table, graph, (size_t) graph->n_nodes_made));
    status = merge_nodes(graph, &table);
    heed_free(graph->ctx, table.slots);
    return status;
}
