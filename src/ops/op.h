/* ops/op.h - what an operator is: its shape rule and its computation, side by side, one table line each.
 *
 * The same shape rule serves the compiler (symbolic dimensions, some values known) and the run (all dimensions known, the
 * values that it reads known). A rule may say "unknown" (rank -1, or fresh dimensions) when it does not know enough; with
 * known dimensions and the values named in `shape_inputs` it must not.
 */
#ifndef HEED_OP_H
#define HEED_OP_H

#include "base/tensor.h"
#include "graph/dims.h"
#include "graph/graph.h"

/* Arguments of a shape rule. Outputs start as unknown. Everything it makes goes into the arena. */
typedef struct heed_infer {
    const heed_node *node;
    heed_arena *arena;
    heed_dims *dims;
    int n_in, n_out;
    const heed_fact *const *in; /* NULL entries: absent */
    heed_fact *out;             /* n_out of them; an unwanted output may be filled or not */
} heed_infer;

typedef heed_status heed_infer_fn(heed_infer *i);

/* Arguments of a computation. Shapes are those that the rule gave; outputs are allocated, dense unless the operator asked for
 * another layout. An unwanted output is NULL. */
typedef struct heed_compute {
    const heed_context *ctx;
    const heed_node *node;
    int n_in, n_out;
    const heed_tensor *const *in;
    heed_tensor *const *out;
    void *scratch; /* as many bytes as scratch() asked for, 64-byte aligned */
    void *state;   /* what prepare() made (scratch() sees it too), NULL without it */
} heed_compute;

typedef heed_status heed_compute_fn(heed_compute *c);
typedef size_t heed_op_scratch_fn(const heed_compute *c); /* shapes are set, data may not be; SIZE_MAX: overflow */

/* Out of the memory of in[0] instead of a copy: set out[0..]'s data and strides and return 1, or return 0 if these strides do
 * not allow it; then compute() copies. Types and shapes are set already. in[0]'s data is only an address to count from, it
 * cannot be read yet; the data of other inputs is NULL unless known (that of shape_inputs always is). */
typedef int heed_view_fn(heed_compute *c);

/* State kept by a session for a node while shapes stay the same: packed weights, an attention plan. in[] and out[] have types,
 * shapes and strides; data only for constants (others have NULL). */
typedef heed_status heed_prepare_fn(heed_compute *c, void **state);
typedef void heed_release_fn(const heed_context *ctx, void *state);

/* Before the outputs get memory: change their strides, which are dense when it is called. Types and shapes of all tensors and
 * strides of the inputs are set, data is not. The elements must fill the same bytes as the dense form, in another order. */
typedef void heed_layout_fn(heed_compute *c);

enum {
    HEED_OP_STRIDED = 1,     /* compute takes inputs of any strides (else they are made dense first) */
    HEED_OP_INPLACE = 2,     /* out[0] may be the memory of in[0] when type and shape are the same and both are dense */
    HEED_OP_RANDOM = 4,      /* not a function of its inputs: never folded */
    HEED_OP_COMMUTES = 8,    /* in[0] and in[1] may change places */
    HEED_OP_KEEP_STATE = 16, /* prepare() looks at attributes and constant inputs alone (packed weights): its state stays when
                                shapes change */
    HEED_OP_CONTROL = 32,    /* If: compute is NULL, the executor runs the branch. Its rule infers the inner graphs in place, so a
                                run, which has facts of its own for them, must not call it */
};

typedef struct heed_op {
    const char *domain, *name;
    int since; /* first opset version whose meaning this entry has; the entry with the largest since <= the node's version holds
                */
    int min_in, max_in, min_out, max_out; /* max -1: any number */
    unsigned flags;
    unsigned shape_inputs; /* bit i: the rule reads the data of input i */
    heed_infer_fn *infer;
    heed_compute_fn *compute;
    heed_view_fn *view;          /* NULL: none */
    heed_op_scratch_fn *scratch; /* NULL: none */
    heed_prepare_fn *prepare;    /* NULL: none */
    heed_release_fn *release;
    heed_layout_fn *layout; /* NULL: outputs are dense */
} heed_op;

/* Each file of src/ops/ exports one array that ends with a zeroed entry; ops/table.c lists the arrays. */
const heed_op *heed_op_find(const char *domain, const char *name, int version);
/* Why there is none: "operator 'Foo' is not known", or "… of opset 9 is older than …". Returns HEED_ERR_UNSUPPORTED. */
heed_status heed_op_missing(const char *domain, const char *name, int version);

/* Helpers for rules (ops/infer_util.c). */
heed_status heed_infer_same(heed_infer *i);      /* out[0] = type and shape of in[0] */
heed_status heed_infer_broadcast(heed_infer *i); /* out[0] = type of in[0], shapes of all inputs broadcast together */
heed_status heed_infer_fail(const heed_infer *i, const char *fmt, ...) HEED_PRINTF(2, 3); /* HEED_ERR_ARGUMENT */
/* The entries of an integer input as known sizes or dims symbols; 0 if they are not known. *n is their number. */
int heed_infer_ints(heed_infer *i, int input, const int64_t **ints, int *n);
/* The same, all known numbers. */
int heed_infer_known_ints(heed_infer *i, int input, const int64_t **ints, int *n);
/* Give out[0] known entries (a rank-1 or rank-0 integer tensor computed from shapes). */
heed_status heed_infer_set_ints(heed_infer *i, int output, int rank, const int64_t *ints, int n);
int heed_axis(int64_t axis, int rank); /* from 0 to rank - 1, or -1 if it is out of range */

#endif
