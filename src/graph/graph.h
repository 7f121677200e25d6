/* graph/graph.h - the typed graph between an ONNX file and its execution.
 *
 * A graph is a list of nodes in an order in which every value is made before it is used. A value is made by one node, or
 * is an input, or a constant. Dimensions are int64_t: 0 and more are known sizes, below zero are symbols of the graph's
 * dims table (graph/dims.h), in which equal expressions have equal numbers, so that two dimensions are proven equal by
 * comparing them. A graph with its nodes, values and names lives in one arena. Names may be NULL for what passes made.
 */
#ifndef HEED_GRAPH_H
#define HEED_GRAPH_H

#include "base/arena.h"
#include "base/tensor.h"

typedef struct heed_graph heed_graph;
typedef struct heed_node heed_node;
typedef struct heed_value heed_value;
typedef struct heed_dims heed_dims;
struct heed_op;

#define HEED_DOMAIN_ONNX ""     /* "ai.onnx" is read as "" */
#define HEED_DOMAIN_HEED "heed" /* fused operators */

typedef enum heed_attr_type {
    HEED_ATTR_INT = 1,
    HEED_ATTR_FLOAT,
    HEED_ATTR_STRING,
    HEED_ATTR_TENSOR,
    HEED_ATTR_INTS,
    HEED_ATTR_FLOATS,
    HEED_ATTR_STRINGS,
    HEED_ATTR_GRAPH
} heed_attr_type;

typedef struct heed_attr {
    const char *name;
    heed_attr_type type;
    int64_t n; /* elements of ints, floats, strings */
    union {
        int64_t i;
        float f;
        const char *s;
        const heed_tensor *t;
        const int64_t *ints;
        const float *floats;
        const char *const *strings;
        heed_graph *g;
    };
} heed_attr;

/* What is known of a value: the abstract value that shape inference computes. */
typedef struct heed_fact {
    heed_dtype dtype; /* HEED_DTYPE_NONE: unknown */
    int rank;         /* -1: unknown */
    int64_t dims[HEED_RANK_MAX];
    const heed_tensor *value; /* the data, dense, if it is known */
    const int64_t
        *ints; /* entries of a small integer tensor as known sizes or dims symbols (see heed_dims_literal); NULL: not known */
    int n_ints;
} heed_fact;

typedef struct heed_use {
    heed_node *node; /* NULL: a graph output */
    int index;       /* which input of the node, or which graph output */
} heed_use;

struct heed_value {
    int id; /* dense, from 0; index into heed_graph.values */
    const char *name;
    heed_fact fact;      /* fact.value set and producer NULL: a constant */
    heed_node *producer; /* NULL for inputs and constants */
    int output_index;    /* which output of the producer */
    int is_input;
    heed_use *uses; /* kept up to date by the functions below */
    int n_uses, cap_uses;
};

struct heed_node {
    int id;                         /* dense in creation order; stable */
    const char *domain, *op, *name; /* name: NULL if it has none */
    int version;                    /* opset version of its domain in the file */
    const struct heed_op *def;      /* from the operator table, NULL until bound */
    heed_value **inputs;            /* NULL entries are absent optional inputs */
    heed_value **outputs;           /* NULL entries are not wanted */
    int n_inputs, n_outputs;
    heed_graph *graph; /* that it belongs to */
    heed_attr *attrs;  /* subgraphs (If) are attributes of type graph: their outer values are listed as extra inputs, in the
                          order of subgraph->inputs; see onnx/import.h */
    int n_attrs, cap_attrs;
    heed_node *prev, *next;
};

struct heed_graph {
    const heed_context *ctx;
    heed_arena *arena; /* owned by the outermost graph */
    heed_dims *dims;   /* likewise */
    heed_graph *outer; /* the graph that a branch of If lies in, else NULL */
    const char *name;
    heed_node *first, *last;
    int n_nodes_made;
    heed_value **values;
    int n_values, cap_values;
    heed_value **inputs, **outputs;
    const char **output_names; /* as the file has them, whatever value is the output by now */
    int n_inputs, n_outputs, cap_inputs, cap_outputs;
};

heed_graph *heed_graph_create(const heed_context *ctx);
/* A graph inside another one's arena and dims table, for the branches of If. */
heed_graph *heed_graph_create_inner(heed_graph *outer);
void heed_graph_destroy(heed_graph *graph);

/* All return NULL where there is no memory. Names are copied. */
heed_value *heed_graph_add_value(heed_graph *graph, const char *name);
heed_value *heed_graph_add_constant(heed_graph *graph, const char *name,
                                    const heed_tensor *tensor); /* tensor and data are borrowed */
heed_value *heed_graph_add_input(heed_graph *graph, const char *name);
heed_status heed_graph_add_output(heed_graph *graph, heed_value *value);
/* A node before `before` (NULL: at the end) with n_out fresh output values. inputs may have NULL entries. */
heed_node *heed_graph_add_node(heed_graph *graph, heed_node *before, const char *domain, const char *op, int version, int n_in,
                               heed_value *const *inputs, int n_out);
void heed_graph_remove_node(heed_graph *graph, heed_node *node); /* its outputs have no uses left */

/* An index past the last input makes the node have that many; those between are absent. value may be NULL: absent. */
heed_status heed_node_set_input(heed_node *node, int index, heed_value *value);
/* Make every use of `from`, graph outputs too, a use of `to`. The name of a graph output stays in graph->output_names. */
heed_status heed_value_replace_uses(heed_graph *graph, heed_value *from, heed_value *to);
int heed_value_is_output(const heed_value *value);

const heed_attr *heed_node_attr(const heed_node *node, const char *name);
int64_t heed_node_int(const heed_node *node, const char *name, int64_t otherwise);
float heed_node_float(const heed_node *node, const char *name, float otherwise);
const char *heed_node_string(const heed_node *node, const char *name, const char *otherwise);
heed_status heed_node_add_attr(heed_graph *graph, heed_node *node,
                               const heed_attr *attr); /* copied, name and arrays too; replaces */
/* 1 if the node is operator `op` of the default domain (or of `domain`). */
int heed_node_is(const heed_node *node, const char *op);
int heed_node_is_in(const heed_node *node, const char *domain, const char *op);

/* Check what must hold: order, producers, uses, one definition each, names, ranks. Names node and value in the message. */
heed_status heed_graph_verify(const heed_graph *graph);
/* One line a node: "%12 f32[B, 12, S, 32] = MatMul(%3, %5) {alpha=1} # node name"; inputs and outputs first. */
void heed_graph_print(const heed_graph *graph, heed_text *text);
void heed_fact_print(const heed_graph *graph, const heed_fact *fact, heed_text *text); /* "f32[B, 12, S, 32]" */
/* Add a name that came from a file: control characters escaped, cut where it is very long. */
void heed_text_name(heed_text *text, const char *name);
/* Remove nodes none of whose outputs is used. */
void heed_graph_prune(heed_graph *graph);

#endif
