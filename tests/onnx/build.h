/* Small ONNX models made in memory, for tests: words in strings are separated by spaces, "_" is an absent input or output. */
#ifndef HEED_TESTS_ONNX_BUILD_H
#define HEED_TESTS_ONNX_BUILD_H

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "onnx/onnx.pb-c.h"
#include "unit/test.h"

typedef Heed__Onnx__GraphProto pb_graph;
typedef Heed__Onnx__NodeProto pb_node;
typedef Heed__Onnx__FunctionProto pb_function;
typedef Heed__Onnx__AttributeProto pb_attr;
typedef Heed__Onnx__TensorProto pb_tensor;
typedef Heed__Onnx__ValueInfoProto pb_value;
typedef Heed__Onnx__TypeProto pb_type;
typedef Heed__Onnx__OperatorSetIdProto pb_opset;

/* Codes of TensorProto.data_type that tests use. */
enum {
    T_FLOAT = 1,
    T_UINT8,
    T_INT8,
    T_UINT16,
    T_INT16,
    T_INT32,
    T_INT64,
    T_STRING,
    T_BOOL,
    T_FLOAT16,
    T_DOUBLE,
    T_UINT32,
    T_UINT64
};
enum { T_BFLOAT16 = 16, T_INT4 = 22 };

typedef struct builder {
    heed_arena *arena;
    Heed__Onnx__ModelProto *model;
    pb_graph *graph; /* the main one */
} builder;

static inline void *b_alloc(builder *b, size_t bytes)
{
    void *ptr = heed_arena_alloc(b->arena, bytes);
    assert_non_null(ptr);
    return ptr;
}

/* b_node_proto(b) and so on: an empty message. */
#define B_MESSAGE(type, name)                                                                                                    \
    static inline type *b_##name(builder *b)                                                                                     \
    {                                                                                                                            \
        type *message = b_alloc(b, sizeof *message);                                                                             \
        heed__onnx__##name##__init(message);                                                                                     \
        return message;                                                                                                          \
    }
B_MESSAGE(Heed__Onnx__ModelProto, model_proto)
B_MESSAGE(pb_graph, graph_proto)
B_MESSAGE(pb_node, node_proto)
B_MESSAGE(pb_function, function_proto)
B_MESSAGE(pb_attr, attribute_proto)
B_MESSAGE(pb_tensor, tensor_proto)
B_MESSAGE(pb_value, value_info_proto)
B_MESSAGE(pb_type, type_proto)
B_MESSAGE(pb_opset, operator_set_id_proto)
B_MESSAGE(Heed__Onnx__TypeProto__Tensor, type_proto__tensor)
B_MESSAGE(Heed__Onnx__TensorShapeProto, tensor_shape_proto)
B_MESSAGE(Heed__Onnx__TensorShapeProto__Dimension, tensor_shape_proto__dimension)
B_MESSAGE(Heed__Onnx__StringStringEntryProto, string_string_entry_proto)

/* Append to a repeated field: its pointer and its count. The array has room for a power of two. */
static inline void *b_push(builder *b, void *list, size_t *n, const void *item, size_t size)
{
    char **items = list;
    if ((*n & (*n - 1)) == 0) {
        char *larger = b_alloc(b, size * (*n ? 2 * *n : 1));
        if (*n) memcpy(larger, *items, size * *n);
        *items = larger;
    }
    return memcpy(*items + size * (*n)++, item, size);
}
#define B_PUSH(b, message, field, item) b_push(b, &(message)->field, &(message)->n_##field, &(item), sizeof(item))

static inline void b_words(builder *b, char ***list, size_t *n, const char *words)
{
    char *text = heed_arena_strdup(b->arena, words), *rest = text;
    for (char *word; (word = strtok_r(rest, " ", &rest));) {
        if (strcmp(word, "_") == 0) word = "";
        b_push(b, list, n, &word, sizeof word);
    }
}

static inline void b_opset(builder *b, size_t *n, pb_opset ***list, const char *domain, int64_t version)
{
    pb_opset *opset = b_operator_set_id_proto(b);
    opset->domain = (char *) domain, opset->has_version = 1, opset->version = version;
    b_push(b, list, n, &opset, sizeof opset);
}

/* An empty model of opset 17. */
static inline builder b_start(const heed_context *ctx)
{
    builder b = { .arena = heed_arena_create(ctx) };
    b.model = b_model_proto(&b);
    b.graph = b.model->graph = b_graph_proto(&b);
    b.model->has_ir_version = 1, b.model->ir_version = 8;
    b_opset(&b, &b.model->n_opset_import, &b.model->opset_import, NULL, 17);
    return b;
}

static inline void b_end(builder *b)
{
    heed_arena_destroy(b->arena);
}

/* owner: a graph or a function. */
#define b_node(b, owner, op, in, out) b_add_node(b, &(owner)->n_node, &(owner)->node, op, in, out)
static inline pb_node *b_add_node(builder *b, size_t *n, pb_node ***nodes, const char *op, const char *in, const char *out)
{
    pb_node *node = b_node_proto(b);
    node->op_type = (char *) op;
    b_words(b, &node->input, &node->n_input, in);
    b_words(b, &node->output, &node->n_output, out);
    b_push(b, nodes, n, &node, sizeof node);
    return node;
}

static inline pb_attr *b_attr(builder *b, pb_node *node, const char *name, int type)
{
    pb_attr *attr = b_attribute_proto(b);
    attr->name = (char *) name, attr->has_type = type != 0, attr->type = type;
    B_PUSH(b, node, attribute, attr);
    return attr;
}

static inline void b_int(builder *b, pb_node *node, const char *name, int64_t i)
{
    pb_attr *attr = b_attr(b, node, name, 2);
    attr->has_i = 1, attr->i = i;
}

static inline void b_float(builder *b, pb_node *node, const char *name, float f)
{
    pb_attr *attr = b_attr(b, node, name, 1);
    attr->has_f = 1, attr->f = f;
}

/* An attribute of a node in a function that takes its value from the call. */
static inline void b_ref(builder *b, pb_node *node, const char *name, int type, const char *from)
{
    b_attr(b, node, name, type)->ref_attr_name = (char *) from;
}

static inline pb_graph *b_branch(builder *b, pb_node *node, const char *name)
{
    return b_attr(b, node, name, 5)->g = b_graph_proto(b);
}

/* dims: words, a number, a name or "?"; NULL: no shape. */
static inline pb_value *b_value(builder *b, const char *name, int type, const char *dims)
{
    pb_value *value = b_value_info_proto(b);
    value->name = (char *) name;
    value->type = b_type_proto(b);
    Heed__Onnx__TypeProto__Tensor *tensor = value->type->tensor_type = b_type_proto__tensor(b);
    tensor->has_elem_type = 1, tensor->elem_type = type;
    if (!dims) return value;
    tensor->shape = b_tensor_shape_proto(b);
    char **words = NULL;
    size_t n = 0;
    b_words(b, &words, &n, dims);
    for (size_t i = 0; i < n; i++) {
        Heed__Onnx__TensorShapeProto__Dimension *dim = b_tensor_shape_proto__dimension(b);
        char *end;
        dim->dim_value = strtoll(words[i], &end, 10);
        dim->has_dim_value = *end == 0;
        if (*end && strcmp(words[i], "?") != 0) dim->dim_param = words[i];
        B_PUSH(b, tensor->shape, dim, dim);
    }
    return value;
}

static inline void b_input(builder *b, const char *name, int type, const char *dims)
{
    pb_value *value = b_value(b, name, type, dims);
    B_PUSH(b, b->graph, input, value);
}

/* Without a declared type. */
static inline void b_output(builder *b, pb_graph *graph, const char *name)
{
    pb_value *value = b_value_info_proto(b);
    value->name = (char *) name;
    B_PUSH(b, graph, output, value);
}

static inline pb_tensor *b_tensor(builder *b, const char *name, int type, const char *dims)
{
    pb_tensor *tensor = b_tensor_proto(b);
    tensor->name = (char *) name;
    tensor->has_data_type = 1, tensor->data_type = type;
    char **words = NULL;
    size_t n = 0;
    b_words(b, &words, &n, dims);
    for (size_t i = 0; i < n; i++) {
        int64_t dim = strtoll(words[i], NULL, 10);
        B_PUSH(b, tensor, dims, dim);
    }
    return tensor;
}

static inline void b_raw(pb_tensor *tensor, const void *data, size_t bytes)
{
    tensor->has_raw_data = 1;
    tensor->raw_data = (ProtobufCBinaryData){ bytes, (uint8_t *) data };
}

static inline pb_tensor *b_initializer(builder *b, pb_graph *graph, const char *name, int type, const char *dims)
{
    pb_tensor *tensor = b_tensor(b, name, type, dims);
    B_PUSH(b, graph, initializer, tensor);
    return tensor;
}

static inline void b_external(builder *b, pb_tensor *tensor, const char *key, const char *text)
{
    Heed__Onnx__StringStringEntryProto *entry = b_string_string_entry_proto(b);
    entry->key = (char *) key, entry->value = (char *) text;
    tensor->has_data_location = 1, tensor->data_location = 1;
    B_PUSH(b, tensor, external_data, entry);
}

/* A function of opset 17 with inputs and outputs in words. */
static inline pb_function *b_function(builder *b, const char *domain, const char *name, const char *in, const char *out)
{
    pb_function *function = b_function_proto(b);
    function->domain = (char *) domain, function->name = (char *) name;
    b_words(b, &function->input, &function->n_input, in);
    b_words(b, &function->output, &function->n_output, out);
    b_opset(b, &function->n_opset_import, &function->opset_import, "", 17);
    B_PUSH(b, b->model, functions, function);
    return function;
}

static inline void *b_pack(builder *b, size_t *bytes)
{
    *bytes = heed__onnx__model_proto__get_packed_size(b->model);
    void *data = b_alloc(b, *bytes);
    heed__onnx__model_proto__pack(b->model, data);
    return data;
}

#endif
