/* The vocabulary of the rewrites, the making half: nodes, constants and shapes. New values get their facts at once, so that
 * a pass can look at what it has just made. */
#include <string.h>

#include "base/half.h"
#include "graph/dims.h"
#include "ops/infer.h"
#include "rewrite/match.h"

static void *no_memory(heed_maker *maker)
{
    if (maker->status == HEED_OK) maker->status = heed_fail(HEED_ERR_MEMORY, "no memory for a rewritten graph");
    return NULL;
}

static heed_node *add_node(heed_maker *maker, const char *domain, const char *op, int version, int n_in,
                           heed_value *const *inputs, int n_out)
{
    if (maker->status != HEED_OK) return NULL;
    heed_node *node = heed_graph_add_node(maker->graph, maker->before, domain, op, version, n_in, inputs, n_out);
    if (!node) return no_memory(maker);
    node->def = heed_op_find(domain, op, version);
    if (!node->def) {
        maker->status = heed_op_missing(domain, op, version);
        return NULL;
    }
    return node;
}

void heed_make_infer(heed_maker *maker, heed_node *node)
{
    if (node && maker->status == HEED_OK) maker->status = heed_node_infer(maker->graph, node);
}

heed_value *heed_make(heed_maker *maker, const char *op, int n_in, heed_value *const *inputs)
{
    heed_node *node = add_node(maker, HEED_DOMAIN_ONNX, op, HEED_MADE_VERSION, n_in, inputs, 1);
    if (!node) return NULL;
    heed_make_infer(maker, node);
    return maker->status == HEED_OK ? node->outputs[0] : NULL;
}

heed_node *heed_make_fused(heed_maker *maker, const char *op, int n_in, heed_value *const *inputs, int n_out)
{
    return add_node(maker, HEED_DOMAIN_HEED, op, 1, n_in, inputs, n_out);
}

heed_value *heed_make_unary(heed_maker *maker, const char *op, heed_value *a)
{
    return a ? heed_make(maker, op, 1, &a) : NULL;
}

heed_value *heed_make_binary(heed_maker *maker, const char *op, heed_value *a, heed_value *b)
{
    heed_value *const inputs[] = { a, b };
    return a && b ? heed_make(maker, op, 2, inputs) : NULL;
}

heed_value *heed_make_where(heed_maker *maker, heed_value *condition, heed_value *yes, heed_value *no)
{
    heed_value *const inputs[] = { condition, yes, no };
    return condition && yes && no ? heed_make(maker, "Where", 3, inputs) : NULL;
}

static void set_attr(heed_maker *maker, heed_node *node, const heed_attr *attr)
{
    if (!node || maker->status != HEED_OK) return;
    maker->status = heed_node_add_attr(maker->graph, node, attr);
}

void heed_make_attr_int(heed_maker *maker, heed_node *node, const char *name, int64_t number)
{
    const heed_attr attr = { .name = name, .type = HEED_ATTR_INT, .i = number };
    set_attr(maker, node, &attr);
}

void heed_make_attr_float(heed_maker *maker, heed_node *node, const char *name, double number)
{
    const heed_attr attr = { .name = name, .type = HEED_ATTR_FLOAT, .f = (float) number };
    set_attr(maker, node, &attr);
}

void heed_make_attr_string(heed_maker *maker, heed_node *node, const char *name, const char *text)
{
    const heed_attr attr = { .name = name, .type = HEED_ATTR_STRING, .s = text };
    set_attr(maker, node, &attr);
}

void heed_make_replace(heed_maker *maker, heed_value *from, heed_value *to)
{
    if (!to || maker->status != HEED_OK) return;
    maker->status = heed_value_replace_uses(maker->graph, from, to);
}

/* A node whose attribute decides its facts: the attribute comes first. */
static heed_value *make_with_attr(heed_maker *maker, const char *op, int n_in, heed_value *const *inputs, const heed_attr *attr)
{
    for (int i = 0; i < n_in; i++)
        if (!inputs[i]) return NULL;
    heed_node *node = add_node(maker, HEED_DOMAIN_ONNX, op, HEED_MADE_VERSION, n_in, inputs, 1);
    set_attr(maker, node, attr);
    if (!node) return NULL;
    heed_make_infer(maker, node);
    return maker->status == HEED_OK ? node->outputs[0] : NULL;
}

heed_value *heed_make_transpose(heed_maker *maker, heed_value *value, const int64_t *perm, int rank)
{
    int same = 1;
    for (int i = 0; i < rank; i++) same &= perm[i] == i;
    const heed_attr attr = { .name = "perm", .type = HEED_ATTR_INTS, .n = rank, .ints = perm };
    return same ? value : make_with_attr(maker, "Transpose", 1, &value, &attr);
}

heed_value *heed_make_concat(heed_maker *maker, heed_value *const *parts, int n, int64_t axis)
{
    const heed_attr attr = { .name = "axis", .type = HEED_ATTR_INT, .i = axis };
    return n == 1 ? parts[0] : make_with_attr(maker, "Concat", n, parts, &attr);
}

/* ONNX's numbers for element types. */
static int64_t onnx_type(heed_dtype type)
{
    static const int codes[HEED_DTYPE_COUNT] = {
        [HEED_F32] = 1,  [HEED_U8] = 2,   [HEED_I8] = 3,   [HEED_U16] = 4,  [HEED_I16] = 5,  [HEED_I32] = 6,  [HEED_I64] = 7,
        [HEED_BOOL] = 9, [HEED_F16] = 10, [HEED_F64] = 11, [HEED_U32] = 12, [HEED_U64] = 13, [HEED_BF16] = 16
    };
    return codes[type];
}

heed_value *heed_make_cast(heed_maker *maker, heed_value *value, heed_dtype type)
{
    const heed_attr attr = { .name = "to", .type = HEED_ATTR_INT, .i = onnx_type(type) };
    return value && value->fact.dtype == type ? value : make_with_attr(maker, "Cast", 1, &value, &attr);
}

/* A constant of this shape whose data the caller fills in. */
static heed_tensor *new_constant(heed_maker *maker, heed_dtype type, int rank, const int64_t *dims)
{
    heed_tensor *t = HEED_NEW(maker->graph->arena, heed_tensor);
    if (!t) return no_memory(maker);
    *t = heed_tensor_make(type, rank, dims);
    t->data = heed_arena_alloc(maker->graph->arena, heed_tensor_bytes(t));
    return t->data ? t : no_memory(maker);
}

static heed_value *add_constant(heed_maker *maker, const heed_tensor *t)
{
    heed_value *value = t ? heed_graph_add_constant(maker->graph, NULL, t) : NULL;
    return value ? value : no_memory(maker);
}

heed_value *heed_make_number(heed_maker *maker, heed_dtype type, double number)
{
    if (maker->status != HEED_OK) return NULL;
    heed_tensor *t = new_constant(maker, type, 0, NULL);
    if (!t) return NULL;
    const float f = (float) number;
    switch (type) {
    case HEED_F64: *(double *) t->data = number; break;
    case HEED_F32: *(float *) t->data = f; break;
    case HEED_F16: *(uint16_t *) t->data = heed_f16_from_f32(f); break;
    case HEED_BF16: *(uint16_t *) t->data = heed_bf16_from_f32(f); break;
    default: maker->status = heed_fail(HEED_ERR_INTERNAL, "a number was wanted as %s", heed_dtype_name(type)); return NULL;
    }
    return add_constant(maker, t);
}

heed_value *heed_make_ints(heed_maker *maker, const int64_t *numbers, int n)
{
    if (maker->status != HEED_OK) return NULL;
    const int64_t dims[1] = { n };
    heed_tensor *t = new_constant(maker, HEED_I64, 1, dims);
    if (!t) return NULL;
    if (n) memcpy(t->data, numbers, sizeof *numbers * (size_t) n);
    return add_constant(maker, t);
}

/* ---- shapes ---- */

static int find_dim(int64_t dim, heed_value *const *sources, int n_sources, int *axis)
{
    for (int s = 0; s < n_sources; s++)
        for (int i = 0; sources[s] && i < sources[s]->fact.rank; i++)
            if (heed_match_same_dim(sources[s]->fact.dims[i], dim)) return *axis = i, s;
    return -1;
}

heed_value *heed_make_size(heed_maker *maker, heed_value *value, int axis)
{
    if (!value) return NULL;
    heed_node *node = add_node(maker, HEED_DOMAIN_ONNX, "Shape", HEED_MADE_VERSION, 1, &value, 1);
    heed_make_attr_int(maker, node, "start", axis);
    heed_make_attr_int(maker, node, "end", axis + 1);
    if (!node) return NULL;
    heed_make_infer(maker, node);
    return maker->status == HEED_OK ? node->outputs[0] : NULL;
}

/* The same with at most one size written as -1, where `wildcard` allows it. */
static heed_value *make_shape(heed_maker *maker, const int64_t *dims, int n, heed_value *const *sources, int n_sources,
                              int wildcard)
{
    int64_t numbers[HEED_RANK_MAX];
    int all_known = 1, from[HEED_RANK_MAX], axis[HEED_RANK_MAX] = { 0 };
    if (maker->status != HEED_OK || n > HEED_RANK_MAX) return NULL;
    for (int i = 0; i < n; i++) {
        from[i] = -1, numbers[i] = dims[i];
        if (dims[i] >= 0) continue;
        from[i] = find_dim(dims[i], sources, n_sources, &axis[i]);
        if (from[i] >= 0) all_known = 0;
        else if (wildcard) wildcard = 0, numbers[i] = -1;
        else return NULL;
    }
    if (all_known) return heed_make_ints(maker, numbers, n);
    heed_value *parts[HEED_RANK_MAX];
    for (int i = 0; i < n; i++) {
        parts[i] = from[i] >= 0 ? heed_make_size(maker, sources[from[i]], axis[i]) : heed_make_ints(maker, &numbers[i], 1);
        if (!parts[i]) return NULL;
    }
    return heed_make_concat(maker, parts, n, 0);
}

heed_value *heed_make_shape(heed_maker *maker, const int64_t *dims, int n, heed_value *const *sources, int n_sources)
{
    return make_shape(maker, dims, n, sources, n_sources, 0);
}

heed_value *heed_make_reshape(heed_maker *maker, heed_value *value, const int64_t *dims, int n, heed_value *const *sources,
                              int n_sources)
{
    if (!value) return NULL;
    int same = value->fact.rank == n, has_zero = 0;
    for (int i = 0; i < n; i++) {
        same &= value->fact.rank == n && heed_match_same_dim(value->fact.dims[i], dims[i]);
        has_zero |= dims[i] == 0;
    }
    if (same) return value;
    heed_value *shape = make_shape(maker, dims, n, sources, n_sources, !has_zero);
    heed_value *const inputs[] = { value, shape };
    if (!shape) return NULL;
    heed_node *node = add_node(maker, HEED_DOMAIN_ONNX, "Reshape", HEED_MADE_VERSION, 2, inputs, 1);
    if (has_zero) heed_make_attr_int(maker, node, "allowzero", 1);
    if (!node) return NULL;
    heed_make_infer(maker, node);
    return maker->status == HEED_OK ? node->outputs[0] : NULL;
}
