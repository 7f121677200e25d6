/* Attributes: references bound to what the call gives, values copied into the graph. */
#include <string.h>

#include "onnx/importer.h"

/* More than any operator has; keeps looking them up one by one cheap. */
#define MAX_ATTRS 256

static const char *const type_names[] = { "undefined", "float", "int", "string", "tensor", "graph", "floats", "ints", "strings" };

/* Old files leave the type out. */
static int attr_type(const attribute_proto *attr)
{
    if (attr->has_type && attr->type) return attr->type;
    if (attr->has_f) return PB_FLOAT;
    if (attr->has_i) return PB_INT;
    if (attr->has_s) return PB_STRING;
    if (attr->t) return PB_TENSOR;
    if (attr->g) return PB_GRAPH;
    if (attr->n_floats) return PB_FLOATS;
    if (attr->n_ints) return PB_INTS;
    return attr->n_strings ? PB_STRINGS : 0;
}

heed_status heed_onnx_check_attrs(const node_proto *node)
{
    size_t n = node->n_attribute;
    if (n > MAX_ATTRS) return heed_fail(HEED_ERR_FORMAT, "%zu attributes, expected at most %d", n, MAX_ATTRS);
    for (size_t i = 0; i < n; i++) {
        const char *name = node->attribute[i]->name;
        if (!name || !*name) return heed_fail(HEED_ERR_FORMAT, "attribute %zu has no name", i);
        for (size_t j = 0; j < i; j++)
            if (strcmp(node->attribute[j]->name, name) == 0)
                return heed_fail(HEED_ERR_FORMAT, "attribute '%.80s' is given twice", name);
    }
    return HEED_OK;
}

/* ---- references ---- */

/* The attribute itself, or what its reference stands for in this call; NULL if that was not given. */
static heed_status resolve(const struct call *call, const attribute_proto *attr, const attribute_proto **out)
{
    const char *name = attr->ref_attr_name;
    *out = attr;
    if (!name || !*name) return HEED_OK;
    if (!call) return heed_fail(HEED_ERR_FORMAT, "attribute '%.80s' refers to '%.80s' outside a function", attr->name, name);
    const function_proto *function = call->function;
    *out = NULL;
    for (size_t i = 0; i < call->node->n_attribute && !*out; i++)
        if (strcmp(call->node->attribute[i]->name, name) == 0) *out = call->given[i];
    for (size_t i = 0; i < function->n_attribute_proto && !*out; i++)
        if (function->attribute_proto[i]->name && strcmp(function->attribute_proto[i]->name, name) == 0)
            *out = function->attribute_proto[i];
    for (size_t i = 0; i < function->n_attribute; i++)
        if (strcmp(function->attribute[i], name) == 0) return HEED_OK;
    if (*out) return HEED_OK;
    return heed_fail(HEED_ERR_FORMAT, "attribute '%.80s' refers to '%.80s', which function '%.80s' does not have", attr->name,
                     name, function->name);
}

heed_status heed_onnx_give_attrs(struct import *im, struct call *call)
{
    const function_proto *function = call->function;
    if (function->n_attribute > MAX_ATTRS || function->n_attribute_proto > MAX_ATTRS)
        return heed_fail(HEED_ERR_FORMAT, "function '%.80s' has more than %d attributes", function->name, MAX_ATTRS);
    call->given = HEED_NEW_N(im->arena, const attribute_proto *, call->node->n_attribute);
    if (!call->given) return HEED_NO_MEMORY();
    for (size_t i = 0; i < call->node->n_attribute; i++)
        HEED_TRY(resolve(call->caller, call->node->attribute[i], &call->given[i]));
    return HEED_OK;
}

heed_status heed_onnx_charge(struct import *im, const struct call *call, size_t cost)
{
    if (!call) return HEED_OK;
    if (cost > (size_t) im->budget)
        return heed_fail(HEED_ERR_UNSUPPORTED, "the model's functions unfold to more than heed takes, at function '%.80s'",
                         call->function->name);
    im->budget -= (int64_t) cost;
    return HEED_OK;
}

/* ---- values ---- */

/* Texts are cut at a NUL, if there is one inside. */
static const char *text_of(struct import *im, const ProtobufCBinaryData *bytes)
{
    return heed_arena_strndup(im->arena, bytes->len ? (const char *) bytes->data : "", bytes->len);
}

static heed_status strings_of(struct import *im, const attribute_proto *from, heed_attr *attr)
{
    const char **strings = HEED_NEW_N(im->arena, const char *, from->n_strings);
    if (!strings) return HEED_NO_MEMORY();
    for (size_t i = 0; i < from->n_strings; i++)
        if (!(strings[i] = text_of(im, &from->strings[i]))) return HEED_NO_MEMORY();
    attr->type = HEED_ATTR_STRINGS, attr->n = (int64_t) from->n_strings, attr->strings = strings;
    return HEED_OK;
}

/* Values stay in the message or the import's arena; heed_node_add_attr copies. */
static heed_status convert(struct import *im, const attribute_proto *from, heed_attr *attr)
{
    int type = attr_type(from);
    switch (type) {
    case PB_FLOAT: attr->type = HEED_ATTR_FLOAT, attr->f = from->f; return HEED_OK;
    case PB_INT: attr->type = HEED_ATTR_INT, attr->i = from->i; return HEED_OK;
    case PB_STRING: attr->type = HEED_ATTR_STRING, attr->s = text_of(im, &from->s); return attr->s ? HEED_OK : HEED_NO_MEMORY();
    case PB_FLOATS:
        attr->type = HEED_ATTR_FLOATS, attr->n = (int64_t) from->n_floats, attr->floats = from->floats;
        return HEED_OK;
    case PB_INTS: attr->type = HEED_ATTR_INTS, attr->n = (int64_t) from->n_ints, attr->ints = from->ints; return HEED_OK;
    case PB_STRINGS: return strings_of(im, from, attr);
    case PB_TENSOR:
        if (!from->t) return heed_fail(HEED_ERR_FORMAT, "attribute '%.80s' has no tensor", attr->name);
        attr->type = HEED_ATTR_TENSOR;
        return heed_onnx_tensor(im, from->t, attr->name, &attr->t);
    case PB_GRAPH:
        return heed_fail(HEED_ERR_UNSUPPORTED, "attribute '%.80s' is a graph, which is supported for operator If only",
                         attr->name);
    default: return heed_fail(HEED_ERR_UNSUPPORTED, "attribute '%.80s' is of type %d, which is not supported", attr->name, type);
    }
}

static size_t cost_of(const attribute_proto *attr)
{
    size_t cost = 1 + attr->s.len / 8 + attr->n_floats + attr->n_ints;
    for (size_t i = 0; i < attr->n_strings; i++) cost += 1 + attr->strings[i].len / 8;
    return cost;
}

heed_status heed_onnx_attrs(struct import *im, const struct call *call, const node_proto *proto, heed_node *node)
{
    for (size_t i = 0; i < proto->n_attribute; i++) {
        heed_attr attr = { .name = proto->attribute[i]->name };
        const attribute_proto *from;
        HEED_TRY(resolve(call, proto->attribute[i], &from));
        if (!from) continue;
        HEED_TRY(heed_onnx_charge(im, call, cost_of(from)));
        HEED_TRY(convert(im, from, &attr));
        HEED_TRY(heed_node_add_attr(node->graph, node, &attr));
    }
    return HEED_OK;
}

/* ---- Constant ---- */

/* The forms of a Constant node that heed has. */
static const struct {
    const char *name;
    int type;
} constant_forms[] = { { "value", PB_TENSOR },  { "value_float", PB_FLOAT }, { "value_floats", PB_FLOATS },
                       { "value_int", PB_INT }, { "value_ints", PB_INTS },   { NULL, 0 } };

heed_status heed_onnx_constant(struct import *im, const struct call *call, const node_proto *node, const char *name,
                               const heed_tensor **out)
{
    if (node->n_attribute != 1) return heed_fail(HEED_ERR_FORMAT, "has %zu attributes, expected 1", node->n_attribute);
    const char *form = node->attribute[0]->name ? node->attribute[0]->name : "";
    const attribute_proto *attr;
    HEED_TRY(resolve(call, node->attribute[0], &attr));
    if (!attr) return heed_fail(HEED_ERR_FORMAT, "attribute '%.80s' is not given", form);
    int type = attr_type(attr), i = 0;
    while (constant_forms[i].name && strcmp(constant_forms[i].name, form) != 0) i++;
    if (!constant_forms[i].name) return heed_fail(HEED_ERR_UNSUPPORTED, "a constant given as '%.80s' is not supported", form);
    if (type != constant_forms[i].type || (type == PB_TENSOR && !attr->t))
        return heed_fail(HEED_ERR_FORMAT, "attribute '%.80s' is not of type %s", form, type_names[constant_forms[i].type]);
    switch (type) {
    case PB_FLOAT: return heed_onnx_list(im, attr, HEED_F32, &attr->f, -1, out);
    case PB_FLOATS: return heed_onnx_list(im, attr, HEED_F32, attr->floats, (int64_t) attr->n_floats, out);
    case PB_INT: return heed_onnx_list(im, attr, HEED_I64, &attr->i, -1, out);
    case PB_INTS: return heed_onnx_list(im, attr, HEED_I64, attr->ints, (int64_t) attr->n_ints, out);
    default: return heed_onnx_tensor(im, attr->t, name, out);
    }
}
