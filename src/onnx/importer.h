/* onnx/importer.h - what the files of the importer share. Nobody else includes it.
 *
 *   import.c    the model as an object, the way through the steps
 *   wire.c      check of the bytes before they are unpacked        pool.c   memory of the unpacked message
 *   body.c      nodes of a graph, branch or function to nodes of a heed_graph: scopes of names, functions, If
 *   order.c     the order of nodes                                 attr.c   attributes
 *   tensor.c    types and tensors                                  external.c   tensors in files beside the model
 */
#ifndef HEED_ONNX_IMPORTER_H
#define HEED_ONNX_IMPORTER_H

#include "graph/graph.h"
#include "onnx/names.h"
#include "onnx/onnx.pb-c.h"
#include "onnx/pool.h"

typedef Heed__Onnx__ModelProto model_proto;
typedef Heed__Onnx__GraphProto graph_proto;
typedef Heed__Onnx__NodeProto node_proto;
typedef Heed__Onnx__FunctionProto function_proto;
typedef Heed__Onnx__AttributeProto attribute_proto;
typedef Heed__Onnx__TensorProto tensor_proto;
typedef Heed__Onnx__ValueInfoProto value_info_proto;

/* AttributeProto.type */
enum { PB_FLOAT = 1, PB_INT, PB_STRING, PB_TENSOR, PB_GRAPH, PB_FLOATS, PB_INTS, PB_STRINGS };

#define HEED_OPSET_MIN 11
#define HEED_OPSET_MAX 28
#define HEED_IR_VERSION_MAX 13

/* A file mapped for external data. */
struct heed_onnx_map {
    struct heed_onnx_map *next;
    void *data; /* NULL if it is empty */
    size_t bytes;
};

struct heed_onnx_model {
    const heed_context *ctx;
    heed_graph *graph;
    heed_pool pool;
    struct heed_onnx_map *maps;
};

/* A call of a model-local function that is being inlined. */
struct call {
    const struct call *caller; /* NULL: the main graph */
    const function_proto *function;
    const node_proto *node;
    const char *prefix;            /* of names inside */
    const attribute_proto **given; /* for each attribute of the node: what it is, NULL if the caller was not given it */
};

/* One import on its way. */
struct import {
    struct heed_onnx_model *model;
    const model_proto *proto;
    const char *folder;   /* of external data; NULL: none */
    heed_arena *arena;    /* gone after the import */
    heed_names functions; /* by domain, name and overload: function_proto */
    heed_names calls;     /* by the address of a node_proto: struct lookup */
    heed_names tensors;   /* by the address of what a tensor was made of: heed_tensor. One for all calls of a function */
    heed_names files;     /* by location: heed_onnx_map */
    int depth;            /* of functions and branches */
    int64_t budget;       /* what inlining may still cost */
    int labelled;         /* the failure names its node already */
};

/* What a name stands for. Constants are made when something uses them. */
struct binding {
    enum binding_kind { BOUND_VALUE, BOUND_ABSENT, BOUND_NODE, BOUND_TENSOR, BOUND_CONSTANT, BOUND_SPARSE } kind;
    const char *name;
    heed_value *value;            /* BOUND_VALUE */
    size_t node;                  /* BOUND_NODE, not made yet; BOUND_CONSTANT: its index */
    const tensor_proto *tensor;   /* BOUND_TENSOR */
    const value_info_proto *info; /* declared type, or NULL */
};

/* The names of one graph, branch or function body. */
struct scope {
    struct scope *outer; /* where a branch of If looks for what it does not have */
    const struct call *call;
    heed_graph *graph;
    heed_arena *arena;
    heed_names names; /* struct binding */
    node_proto *const *nodes;
    size_t n_nodes;
    heed_value **captured; /* the outer values of graph->inputs of a branch */
    int n_captured, cap_captured;
};

#define HEED_NO_MEMORY() heed_fail(HEED_ERR_MEMORY, "no memory to import the model")

/* import.c */
/* The model's function that a node calls, NULL if it is an operator. */
heed_status heed_onnx_find_function(struct import *im, const node_proto *node, const function_proto **out);
heed_status heed_onnx_check_opset(int64_t version);

/* tensor.c */
heed_dtype heed_onnx_dtype(int64_t code); /* HEED_DTYPE_NONE for what heed does not know */
const char *heed_onnx_type_name(int64_t code);
heed_status heed_onnx_tensor(struct import *im, const tensor_proto *proto, const char *name, const heed_tensor **out);
/* A rank-1 (or 0, if n is -1) tensor of data in the message; made once for each key. */
heed_status heed_onnx_list(struct import *im, const void *key, heed_dtype dtype, const void *data, int64_t n,
                           const heed_tensor **out);
/* What is declared of a value, as far as heed has the type and rank; info may be NULL. */
heed_status heed_onnx_fact(struct import *im, const value_info_proto *info, heed_fact *fact);
/* Whether heed has an input's type and rank. */
heed_status heed_onnx_check_input(const value_info_proto *info);

/* external.c: `bytes` bytes at the place that the tensor names. */
heed_status heed_onnx_external(struct import *im, const tensor_proto *proto, size_t bytes, const void **out);
void heed_onnx_unmap(struct heed_onnx_map *maps);

/* attr.c */
/* Pay for something that inlining does once for each call; what lies outside functions is free. */
heed_status heed_onnx_charge(struct import *im, const struct call *call, size_t cost);
/* Fill call->given. */
heed_status heed_onnx_give_attrs(struct import *im, struct call *call);
heed_status heed_onnx_attrs(struct import *im, const struct call *call, const node_proto *proto, heed_node *node);
/* The tensor of a Constant node. */
heed_status heed_onnx_constant(struct import *im, const struct call *call, const node_proto *node, const char *name,
                               const heed_tensor **out);
heed_status heed_onnx_check_attrs(const node_proto *node);

/* order.c: indices of scope->nodes such that what a node uses comes before it. */
heed_status heed_onnx_order(struct scope *scope, const size_t **order);

/* body.c */
const char *heed_onnx_domain(const char *domain); /* NULL and "ai.onnx" are "" */
heed_status heed_onnx_main(struct import *im, const graph_proto *proto);

#endif
