/* graph/dims.h - symbolic dimensions by value numbering.
 *
 * A dimension is an int64_t: known when >= 0, else a symbol. Symbols are made by name (an input's "batch") or as an
 * expression of others; the same expression always gives the same symbol, sums and products are put in a normal order and
 * simple identities are applied (x + 0, x * 1, (x * y) / y, x - x, (x + a) - a, known with known), so equality of meaning is
 * most often equality of number. A comparison that says "equal" is a proof (under the usual reading that dimensions are
 * not negative); one that says "not equal" is not a proof of the contrary.
 *
 * Entries of a shape tensor can be negative (-1 in Reshape), which a dimension cannot. heed_dims_literal() makes a symbol
 * that stands for such a number; heed_dims_known() gives it back.
 */
#ifndef HEED_GRAPH_DIMS_H
#define HEED_GRAPH_DIMS_H

#include "base/arena.h"

typedef struct heed_dims heed_dims;

heed_dims *heed_dims_create(heed_arena *arena);
/* The same symbols under the same numbers, in another arena. NULL where there is no memory. */
heed_dims *heed_dims_clone(const heed_dims *dims, heed_arena *arena);

/* What the functions below give where there is no memory. It stands for no dimension: it is not even equal to itself, so it
 * must not get into a fact (heed_graph_verify looks). An expression that overflows or grows too large is no failure: it gets
 * a symbol that only the same operation on the same operands gives again. */
#define HEED_DIM_UNKNOWN INT64_MIN

int64_t heed_dims_named(heed_dims *dims, const char *name); /* same name, same symbol */
int64_t heed_dims_fresh(heed_dims *dims);                   /* unlike any other */
int64_t heed_dims_literal(heed_dims *dims, int64_t number); /* number itself if >= 0 */
int64_t heed_dims_add(heed_dims *dims, int64_t a, int64_t b);
int64_t heed_dims_sub(heed_dims *dims, int64_t a, int64_t b);
int64_t heed_dims_mul(heed_dims *dims, int64_t a, int64_t b);
int64_t heed_dims_div(heed_dims *dims, int64_t a, int64_t b); /* integer division as ONNX has it: toward zero */
int64_t heed_dims_min(heed_dims *dims, int64_t a, int64_t b);
int64_t heed_dims_max(heed_dims *dims, int64_t a, int64_t b);
/* 1 and *number if the entry is a known number (a size, or a literal below zero). */
int heed_dims_known(const heed_dims *dims, int64_t dim, int64_t *number);
/* "12", "batch", "past + 1", "?3". */
void heed_dims_print(const heed_dims *dims, int64_t dim, heed_text *text);
/* 1 if it is a number or a symbol of this table. */
int heed_dims_valid(const heed_dims *dims, int64_t dim);
/* NULL, or the name if the dimension is a named symbol. */
const char *heed_dims_name(const heed_dims *dims, int64_t dim);

#endif
