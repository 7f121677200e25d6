/* ops/util.h - what the operator files share: attributes, messages, shape rules' small parts, and loops over strided arrays.
 *
 * A loop walks several arrays of one broadcast shape together. Dimensions of size 1 are dropped and neighbours that lie
 * together in all arrays are joined, so that what is left is a few outer dimensions and one inner line; the callback gets a
 * line at a time, on several threads where there is enough work.
 */
#ifndef HEED_OPS_UTIL_H
#define HEED_OPS_UTIL_H

#include "base/context.h"
#include "kernels/kernels.h"
#include "ops/op.h"

/* Loops whose iterations do not depend on each other, though output and input may be the same memory. */
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed" /* a permission, not a wish: loops of libm calls stay as they are */
#define HEED_IVDEP _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define HEED_IVDEP _Pragma("GCC ivdep")
#else
#define HEED_IVDEP
#endif

#define HEED_GRAIN ((int64_t) 32768) /* elements of cheap work that are worth a task */

/* A line of an operator table; the rest are designated initialisers of heed_op. */
#define HEED_OP(op_name, op_since, in_min, in_max, n_out, ...)                                                                   \
    {                                                                                                                            \
        .domain = "", .name = op_name, .since = op_since, .min_in = in_min, .max_in = in_max, .min_out = 1, .max_out = n_out,    \
        __VA_ARGS__                                                                                                              \
    }

/* ---- parallel work ---- */
typedef void heed_range_fn(void *arg, int64_t begin, int64_t end);
/* fn over [0, n) in pieces of `grain`; the pieces depend on n and grain only. */
void heed_parallel_ranges(const heed_context *ctx, int64_t n, int64_t grain, heed_range_fn *fn, void *arg);

#define HEED_LOOP_MAX 4
typedef struct heed_loop {
    int rank, n_args; /* rank >= 1 */
    int64_t dims[HEED_RANK_MAX];
    int64_t steps[HEED_LOOP_MAX][HEED_RANK_MAX]; /* in bytes */
} heed_loop;

/* at[k] points to the first element of argument k, steps[k] is the distance of two elements in bytes. */
typedef void heed_loop_fn(void *arg, char *const *at, const int64_t *steps, int64_t n);

/* args[0] has the full shape; the others are broadcast to it, aligned to the right. */
void heed_loop_init(heed_loop *loop, int n_args, const heed_tensor *const *args);
void heed_loop_run(const heed_context *ctx, const heed_loop *loop, const heed_tensor *const *args, heed_loop_fn *fn, void *arg);

/* heed_tensor_copy on several threads, in tiles where one side runs across the other. */
void heed_copy(const heed_context *ctx, const heed_tensor *dst, const heed_tensor *src);

/* ---- element types ---- */
/* n elements from one type to another; steps in bytes; dst may not overlap src unless it is the same memory and size. */
typedef void heed_cast_fn(void *dst, int64_t dst_step, const void *src, int64_t src_step, int64_t n);
/* Rounds to nearest even, saturates floats to integers (NaN gives 0), wraps integers; 1 for nonzero in bool. */
void heed_cast_line(heed_dtype to, void *dst, int64_t dst_step, heed_dtype from, const void *src, int64_t src_step, int64_t n);

/* From a TensorProto.DataType number; HEED_DTYPE_NONE for what heed does not have. */
heed_dtype heed_dtype_from_onnx(int64_t code);
int64_t heed_dtype_to_onnx(heed_dtype type); /* 0 for none */
/* Smallest and largest number of an integer type or bool; u64's largest as the bits of an int64_t. */
int64_t heed_dtype_lowest(heed_dtype type);
int64_t heed_dtype_highest(heed_dtype type);
/* One element (a scalar input) as a double. */
double heed_tensor_double(const heed_tensor *t, int64_t i);

/* ---- messages of computations ---- */
heed_status heed_compute_fail(const heed_compute *c, const char *fmt, ...) HEED_PRINTF(2, 3); /* HEED_ERR_ARGUMENT */
heed_status heed_compute_type(const heed_compute *c, int input); /* HEED_ERR_UNSUPPORTED: a type it does not take */

/* ---- views ---- */
/* A view function of an operator that only gives in[0] another shape. */
int heed_view_reshaped(heed_compute *c);
heed_status heed_compute_reshaped(heed_compute *c);
/* A view function, and the copy, of an operator whose output is its input. */
int heed_view_same(heed_compute *c);
heed_status heed_compute_same(heed_compute *c);

/* ---- indices (ops/gather.c) ---- */
int64_t heed_index_at(const heed_tensor *t, int64_t k); /* entry k of a dense i32 or i64 tensor */
heed_status heed_infer_index_type(const heed_infer *i, int input);
/* "indices[3] is 12, expected -10 to 9" */
heed_status heed_compute_index_range(const heed_compute *c, int64_t k, int64_t index, int64_t n);
/* Element offset in dense data that the `depth` indices from entry `first` on name, below axis `batch`; -1 and *status if
 * one is out of range. */
int64_t heed_compute_tuple_offset(const heed_compute *c, const heed_tensor *data, const heed_tensor *indices, int64_t first,
                                  int depth, int batch, heed_status *status);

/* ---- rules ---- */
heed_status heed_infer_memory(const heed_infer *i); /* HEED_ERR_MEMORY */
/* NULL if absent. */
const int64_t *heed_node_ints(const heed_node *node, const char *name, int *n);
/* Broadcast the shapes of inputs first to last into out's shape. */
heed_status heed_infer_broadcast_range(heed_infer *i, int first, int last, heed_fact *out);
/* The size that two dimensions have when broadcast together. */
heed_status heed_infer_broadcast_dim(heed_infer *i, int64_t a, int64_t b, int64_t *out);
/* Fails unless the types of inputs first to last are the same, where known; *dtype is that type. */
heed_status heed_infer_same_type(heed_infer *i, int first, int last, heed_dtype *dtype);
/* Axis attribute or number checked against the rank: fails with a message. */
heed_status heed_infer_axis(const heed_infer *i, const char *what, int64_t axis, int rank, int *out);
/* A bit for each axis, from input `input` if that is >= 0, else from attribute "axes". *state: 0 unknown, 1 given, -1 absent. */
heed_status heed_infer_axes(heed_infer *i, int input, int rank, unsigned *mask, int *state);
/* Product of dimensions [from, to) of a fact. */
int64_t heed_infer_product(heed_infer *i, const heed_fact *fact, int from, int to);
/* Number of elements if all dimensions are known, else -1 (also when it overflows). */
int64_t heed_fact_count(const heed_fact *fact);
int heed_fact_shape_known(const heed_fact *fact);
/* Make the shape unknown of known rank. */
void heed_fact_unknown_dims(heed_fact *fact, int rank);
/* "[2, S, 4]" in the rule's arena, for messages. */
const char *heed_infer_shape_text(const heed_infer *i, const heed_fact *fact);
/* Entries that fit `HEED_INTS_MAX` are carried along. */
#define HEED_INTS_MAX 256
/* Room for n entries, NULL without memory. */
int64_t *heed_infer_new_ints(heed_infer *i, int n);
/* Known or symbolic dimension that certainly is not negative. */
int heed_infer_not_negative(heed_infer *i, int64_t dim);

int heed_compute_has(const heed_compute *c, int input); /* 1 if the optional input is there */
/* axes of a node at run time: the same as heed_infer_axes, from the data. Absent: *state -1. */
void heed_compute_axes(const heed_compute *c, int input, int rank, unsigned *mask, int *state);

#endif
