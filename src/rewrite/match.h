/* rewrite/match.h - the vocabulary of the rewrites: what they see through, and how they add nodes.
 *
 * Looking is free of side effects and never guesses: a function that answers "yes" has a proof from constants and facts.
 * Numbers are read as double whatever float type holds them.
 */
#ifndef HEED_REWRITE_MATCH_H
#define HEED_REWRITE_MATCH_H

#include "rewrite/pass.h"

/* The opset version that nodes made by rewrites are written in. */
#define HEED_MADE_VERSION 18

/* ---- values ---- */

/* The only node that uses the value; NULL if there is none, several, or it is also a graph output. One node that uses it
 * twice counts as one. */
heed_node *heed_match_only_user(const heed_value *value);
/* Its producer if that is operator `op` of the default domain, or NULL. */
heed_node *heed_match_producer(const heed_value *value, const char *op);
/* A known tensor of one element, any rank: its number. Integers count. */
int heed_match_scalar(const heed_value *value, double *number);
/* A known tensor all of whose elements (one at least) are the same number. */
int heed_match_uniform(const heed_value *value, double *number);
/* The value is there when the graph starts: a constant or an input. */
int heed_match_is_source(const heed_value *value);
/* Known, or made of what is known by a short chain of nodes: a weight, transposed or dequantized. */
int heed_match_from_constants(const heed_value *value);
/* Equal up to the rounding of constants of this type. */
int heed_match_near(double a, double b, heed_dtype type);
/* Element i of a known dense tensor of numbers. */
double heed_match_element(const heed_tensor *tensor, int64_t i);

/* ---- looking through nodes; each returns what is behind, or NULL ---- */

/* node = x * factor for a scalar: Mul in either order, Div, Neg. The shape is x's. */
heed_value *heed_match_factor(const heed_node *node, double *factor);
/* Identity, and Dropout in inference whose mask is not wanted. */
heed_value *heed_match_identity(const heed_node *node);
/* Cast between float types. */
heed_value *heed_match_float_cast(const heed_node *node);
/* Where(IsNaN(x), 0, x). */
heed_value *heed_match_nan_guard(const heed_node *node);
/* Where(max of mask's row == -inf, 0, probabilities): the mask. */
heed_value *heed_match_hidden_rows(const heed_node *node, const heed_value *probabilities);
/* Reshape, Squeeze, Unsqueeze, Flatten that leaves the last two dimensions as they are and only regroups those before. */
heed_value *heed_match_regroup(const heed_node *node);
/* Transpose, and its permutation. */
heed_value *heed_match_transpose(const heed_node *node, const int64_t **perm);
/* Behind any number of Identity, Dropout and float Cast nodes; the value itself if there are none. */
heed_value *heed_match_behind_casts(heed_value *value);

/* A reduction over the last axis alone (attribute or input "axes"). */
int heed_match_last_axis(const heed_node *node, int rank);

/* value as a polynomial in `base` of degree 3 at most, through Add, Sub, Mul, Div by a number, Neg, Pow with a small integer
 * exponent and float casts: coefficients from the constant up. */
int heed_match_polynomial(const heed_value *value, const heed_value *base, double coefficients[4]);

/* ---- shapes ---- */

int heed_match_same_dim(int64_t a, int64_t b);                     /* proven equal */
int heed_match_same_shape(const heed_fact *a, const heed_fact *b); /* proven equal, ranks too */
/* Dimension `axis` from the right (1: the last); HEED_DIM_UNKNOWN if the rank is not known or too small. */
int64_t heed_match_dim(const heed_value *value, int from_right);

/* ---- making nodes ---- */

/* Where new nodes go: before `before`. The first failure stays in `status`, and every later call returns NULL. */
typedef struct heed_maker {
    heed_graph *graph;
    heed_node *before;
    heed_status status;
} heed_maker;

/* A node of the default domain with one output, whose facts are inferred at once. */
heed_value *heed_make(heed_maker *maker, const char *op, int n_in, heed_value *const *inputs);
/* A node of domain "heed"; heed_make_infer() when its attributes are there. */
heed_node *heed_make_fused(heed_maker *maker, const char *op, int n_in, heed_value *const *inputs, int n_out);
void heed_make_infer(heed_maker *maker, heed_node *node);
heed_value *heed_make_unary(heed_maker *maker, const char *op, heed_value *a);
heed_value *heed_make_binary(heed_maker *maker, const char *op, heed_value *a, heed_value *b);
heed_value *heed_make_where(heed_maker *maker, heed_value *condition, heed_value *yes, heed_value *no);
heed_value *heed_make_transpose(heed_maker *maker, heed_value *value, const int64_t *perm, int rank);
heed_value *heed_make_cast(heed_maker *maker, heed_value *value, heed_dtype type);
heed_value *heed_make_number(heed_maker *maker, heed_dtype type, double number); /* a rank-0 float constant */
heed_value *heed_make_ints(heed_maker *maker, const int64_t *numbers, int n);    /* a rank-1 i64 constant */
heed_value *heed_make_concat(heed_maker *maker, heed_value *const *parts, int n, int64_t axis);
heed_value *heed_make_size(heed_maker *maker, heed_value *value, int axis); /* Shape(value)[axis] as an i64 vector of one */
/* An i64 vector of these sizes. Symbols are taken at run time from the shapes of the `sources`; NULL, without a failure, if
 * one of them is in none of their shapes. */
heed_value *heed_make_shape(heed_maker *maker, const int64_t *dims, int n, heed_value *const *sources, int n_sources);
/* Reshape to these sizes; at most one of them may be a symbol that no source has. The value itself if it has them already. */
heed_value *heed_make_reshape(heed_maker *maker, heed_value *value, const int64_t *dims, int n, heed_value *const *sources,
                              int n_sources);
void heed_make_attr_int(heed_maker *maker, heed_node *node, const char *name, int64_t number);
void heed_make_attr_float(heed_maker *maker, heed_node *node, const char *name, double number);
void heed_make_attr_string(heed_maker *maker, heed_node *node, const char *name, const char *text);
/* Every use of `from` becomes a use of `to`. */
void heed_make_replace(heed_maker *maker, heed_value *from, heed_value *to);

/* ---- words ---- */

/* "'MatMul_4'" or "MatMul #12". In the arena; never NULL. */
const char *heed_match_label(heed_graph *graph, const heed_node *node);
/* Call fn for the graph and for every graph inside it (branches of If), inner ones first. */
heed_status heed_match_each_graph(heed_rewriter *rewriter, heed_graph *graph,
                                  heed_status (*fn)(heed_rewriter *rewriter, heed_graph *graph));

#endif
