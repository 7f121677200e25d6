/* Parts that shape rules are made of: messages, entries of shape tensors, broadcasting, axes. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ops/util.h"

heed_status heed_infer_fail(const heed_infer *i, const char *fmt, ...)
{
    char text[768];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return heed_fail(HEED_ERR_ARGUMENT, "%s: %s", i->node->op, text);
}

heed_status heed_infer_memory(const heed_infer *i)
{
    return heed_fail(HEED_ERR_MEMORY, "%s: no memory for its shape", i->node->op);
}

heed_status heed_compute_fail(const heed_compute *c, const char *fmt, ...)
{
    char text[768];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return heed_fail(HEED_ERR_ARGUMENT, "%s: %s", c->node->op, text);
}

heed_status heed_compute_type(const heed_compute *c, int input)
{
    return heed_fail(HEED_ERR_UNSUPPORTED, "%s: input %d is %s, a type that it does not take", c->node->op, input,
                     heed_dtype_name(c->in[input]->dtype));
}

const int64_t *heed_node_ints(const heed_node *node, const char *name, int *n)
{
    const heed_attr *attr = heed_node_attr(node, name);
    if (!attr || attr->type != HEED_ATTR_INTS || attr->n > INT32_MAX) {
        *n = 0;
        return NULL;
    }
    static const int64_t none;
    *n = (int) attr->n;
    return attr->n ? attr->ints : &none;
}

int heed_axis(int64_t axis, int rank)
{
    if (axis < -(int64_t) rank || axis >= rank) return -1;
    return (int) (axis < 0 ? axis + rank : axis);
}

heed_status heed_infer_axis(const heed_infer *i, const char *what, int64_t axis, int rank, int *out)
{
    *out = heed_axis(axis, rank);
    if (*out >= 0) return HEED_OK;
    return heed_infer_fail(i, "%s is %lld, expected %d to %d", what, (long long) axis, -rank, rank - 1);
}

/* ---- facts ---- */

int heed_fact_shape_known(const heed_fact *fact)
{
    if (fact->rank < 0) return 0;
    for (int d = 0; d < fact->rank; d++)
        if (fact->dims[d] < 0) return 0;
    return 1;
}

int64_t heed_fact_count(const heed_fact *fact)
{
    if (!heed_fact_shape_known(fact)) return -1;
    int64_t n = 1;
    for (int d = 0; d < fact->rank; d++)
        if (fact->dims[d] == 0) return 0;
    for (int d = 0; d < fact->rank; d++)
        if (__builtin_mul_overflow(n, fact->dims[d], &n)) return -1;
    return n;
}

void heed_fact_unknown_dims(heed_fact *fact, int rank)
{
    fact->rank = rank;
    for (int d = 0; d < rank; d++) fact->dims[d] = HEED_DIM_UNKNOWN;
}

const char *heed_infer_shape_text(const heed_infer *i, const heed_fact *fact)
{
    if (fact->rank < 0) return "of unknown rank";
    char *text = heed_arena_strdup(i->arena, "[");
    for (int d = 0; d < fact->rank && text; d++) {
        const char *comma = d ? ", " : "";
        if (fact->dims[d] >= 0) text = heed_arena_printf(i->arena, "%s%s%lld", text, comma, (long long) fact->dims[d]);
        else text = heed_arena_printf(i->arena, "%s%s?", text, comma);
    }
    if (text) text = heed_arena_printf(i->arena, "%s]", text);
    return text ? text : "?";
}

int64_t heed_infer_product(heed_infer *i, const heed_fact *fact, int from, int to)
{
    int64_t product = 1;
    for (int d = from; d < to; d++)
        if (fact->dims[d] == 0) return 0;
    for (int d = from; d < to; d++) product = heed_dims_mul(i->dims, product, fact->dims[d]);
    return product;
}

heed_status heed_infer_same(heed_infer *i)
{
    i->out[0].dtype = i->in[0]->dtype;
    i->out[0].rank = i->in[0]->rank;
    memcpy(i->out[0].dims, i->in[0]->dims, sizeof i->out[0].dims);
    return HEED_OK;
}

/* ---- types ---- */

heed_status heed_infer_same_type(heed_infer *i, int first, int last, heed_dtype *dtype)
{
    *dtype = HEED_DTYPE_NONE;
    for (int k = first; k <= last && k < i->n_in; k++) {
        if (!i->in[k] || i->in[k]->dtype == HEED_DTYPE_NONE) continue;
        if (*dtype == HEED_DTYPE_NONE) *dtype = i->in[k]->dtype;
        if (i->in[k]->dtype != *dtype)
            return heed_infer_fail(i, "input %d is %s, expected %s", k, heed_dtype_name(i->in[k]->dtype),
                                   heed_dtype_name(*dtype));
    }
    return HEED_OK;
}

/* ---- broadcasting ---- */

heed_status heed_infer_broadcast_dim(heed_infer *i, int64_t a, int64_t b, int64_t *out)
{
    if (a == b || b == 1) *out = a;
    else if (a == 1) *out = b;
    else if (a >= 0 && b >= 0) return HEED_ERR_ARGUMENT;
    else if (a >= 0) *out = a; /* b is 1 or the same */
    else if (b >= 0) *out = b;
    else if (a == HEED_DIM_UNKNOWN || b == HEED_DIM_UNKNOWN) *out = HEED_DIM_UNKNOWN;
    /* One is never more than the other, as in x[:n] + y[:min(n, 512)]: where both are valid they are equal, or the smaller is 1.
     */
    else if (heed_dims_min(i->dims, a, b) == b) *out = a;
    else if (heed_dims_min(i->dims, a, b) == a) *out = b;
    else *out = HEED_DIM_UNKNOWN;
    return HEED_OK;
}

heed_status heed_infer_broadcast_range(heed_infer *i, int first, int last, heed_fact *out)
{
    int rank = 0;
    for (int k = first; k <= last; k++) {
        if (!i->in[k]) continue;
        if (i->in[k]->rank < 0) return HEED_OK; /* unknown */
        if (i->in[k]->rank > rank) rank = i->in[k]->rank;
    }
    out->rank = rank;
    for (int d = 0; d < rank; d++) out->dims[d] = 1;
    for (int k = first; k <= last; k++) {
        if (!i->in[k]) continue;
        int skip = rank - i->in[k]->rank;
        for (int d = skip; d < rank; d++) {
            int64_t dim = i->in[k]->dims[d - skip];
            if (heed_infer_broadcast_dim(i, out->dims[d], dim, &out->dims[d]) != HEED_OK)
                return heed_infer_fail(i, "input %d has shape %s, which does not broadcast with dimension %d of size %lld", k,
                                       heed_infer_shape_text(i, i->in[k]), d, (long long) out->dims[d]);
        }
    }
    return HEED_OK;
}

heed_status heed_infer_broadcast(heed_infer *i)
{
    HEED_TRY(heed_infer_same_type(i, 0, i->n_in - 1, &i->out[0].dtype));
    return heed_infer_broadcast_range(i, 0, i->n_in - 1, &i->out[0]);
}

/* ---- entries of shape tensors ---- */

int64_t *heed_infer_new_ints(heed_infer *i, int n)
{
    return heed_arena_alloc(i->arena, heed_size_mul(sizeof(int64_t), (size_t) (n > 0 ? n : 1)));
}

static int readable(const heed_fact *fact)
{
    return fact && (fact->dtype == HEED_BOOL || heed_dtype_is_integer(fact->dtype));
}

/* Numbers of a known integer tensor; literals of dims where `symbols`. */
static int read_value(heed_infer *i, const heed_tensor *t, int symbols, const int64_t **ints, int *n)
{
    int64_t count = heed_tensor_count(t);
    if (count > HEED_INTS_MAX) return 0;
    int64_t *entries = heed_infer_new_ints(i, (int) count);
    if (!entries) return 0;
    for (int64_t k = 0; k < count; k++) {
        int64_t x = heed_tensor_int(t, k);
        entries[k] = symbols && x < 0 ? heed_dims_literal(i->dims, x) : x;
    }
    *ints = entries, *n = (int) count;
    return 1;
}

int heed_infer_ints(heed_infer *i, int input, const int64_t **ints, int *n)
{
    const heed_fact *fact = input < i->n_in ? i->in[input] : NULL;
    if (!readable(fact)) return 0;
    if (fact->ints) {
        *ints = fact->ints, *n = fact->n_ints;
        return 1;
    }
    return fact->value && read_value(i, fact->value, 1, ints, n);
}

int heed_infer_known_ints(heed_infer *i, int input, const int64_t **ints, int *n)
{
    const heed_fact *fact = input < i->n_in ? i->in[input] : NULL;
    if (!readable(fact)) return 0;
    if (fact->value) return read_value(i, fact->value, 0, ints, n);
    if (!fact->ints) return 0;
    int64_t *numbers = heed_infer_new_ints(i, fact->n_ints);
    if (!numbers) return 0;
    for (int k = 0; k < fact->n_ints; k++)
        if (!heed_dims_known(i->dims, fact->ints[k], &numbers[k])) return 0;
    *ints = numbers, *n = fact->n_ints;
    return 1;
}

int64_t heed_dtype_lowest(heed_dtype t)
{
    switch (t) {
    case HEED_I8: return INT8_MIN;
    case HEED_I16: return INT16_MIN;
    case HEED_I32: return INT32_MIN;
    case HEED_I64: return INT64_MIN;
    default: return 0;
    }
}

int64_t heed_dtype_highest(heed_dtype t)
{
    switch (t) {
    case HEED_I8: return INT8_MAX;
    case HEED_I16: return INT16_MAX;
    case HEED_I32: return INT32_MAX;
    case HEED_U8: return UINT8_MAX;
    case HEED_U16: return UINT16_MAX;
    case HEED_U32: return UINT32_MAX;
    case HEED_BOOL: return 1;
    case HEED_U64: return -1; /* its bits */
    default: return INT64_MAX;
    }
}

static int holds(heed_dtype t, int64_t number)
{
    return number >= heed_dtype_lowest(t) && (t == HEED_U64 || number <= heed_dtype_highest(t));
}

heed_status heed_infer_set_ints(heed_infer *i, int output, int rank, const int64_t *ints, int n)
{
    heed_fact *out = &i->out[output];
    if (out->dtype == HEED_DTYPE_NONE) out->dtype = HEED_I64;
    out->rank = rank;
    if (rank == 1) out->dims[0] = n;
    if (n > HEED_INTS_MAX) return HEED_OK;
    int64_t *entries = heed_infer_new_ints(i, n), *numbers = heed_infer_new_ints(i, n);
    if (!entries || !numbers) return heed_infer_memory(i);
    int all_known = 1;
    for (int k = 0; k < n; k++) {
        entries[k] = ints[k] == HEED_DIM_UNKNOWN ? heed_dims_fresh(i->dims) : ints[k];
        if (!heed_dims_known(i->dims, entries[k], &numbers[k])) all_known = 0;
        else if (!holds(out->dtype, numbers[k])) return HEED_OK; /* would wrap */
    }
    out->ints = entries, out->n_ints = n;
    if (!all_known) return HEED_OK;
    heed_tensor *t = HEED_NEW(i->arena, heed_tensor);
    int64_t count = n;
    if (t) *t = heed_tensor_make(out->dtype, rank, &count);
    if (t) t->data = heed_arena_alloc(i->arena, heed_size_mul((size_t) n + 1, heed_dtype_size(out->dtype)));
    if (!t || !t->data) return heed_infer_memory(i);
    heed_cast_line(out->dtype, t->data, (int64_t) heed_dtype_size(out->dtype), HEED_I64, numbers, 8, n);
    out->value = t;
    return HEED_OK;
}

int heed_infer_not_negative(heed_infer *i, int64_t dim)
{
    return dim >= 0 || (dim != HEED_DIM_UNKNOWN && heed_dims_max(i->dims, dim, 0) == dim);
}

/* ---- axes ---- */

static heed_status axes_mask(heed_infer *i, const int64_t *axes, int n, int rank, unsigned *mask)
{
    *mask = 0;
    for (int k = 0; k < n; k++) {
        int axis = heed_axis(axes[k], rank);
        if (axis < 0) return heed_infer_fail(i, "axes[%d] is %lld, expected %d to %d", k, (long long) axes[k], -rank, rank - 1);
        if (*mask >> axis & 1) return heed_infer_fail(i, "axes[%d] is %lld, given twice", k, (long long) axes[k]);
        *mask |= 1u << axis;
    }
    return HEED_OK;
}

heed_status heed_infer_axes(heed_infer *i, int input, int rank, unsigned *mask, int *state)
{
    const int64_t *axes;
    int n;
    *mask = 0;
    if (input >= 0) {
        *state = input < i->n_in && i->in[input] ? 0 : -1;
        if (*state < 0 || !heed_infer_known_ints(i, input, &axes, &n)) return HEED_OK;
    } else {
        axes = heed_node_ints(i->node, "axes", &n);
        *state = axes ? 1 : -1;
        if (!axes) return HEED_OK;
    }
    *state = 1;
    return axes_mask(i, axes, n, rank, mask);
}

int heed_compute_has(const heed_compute *c, int input)
{
    return input < c->n_in && c->in[input] != NULL;
}

void heed_compute_axes(const heed_compute *c, int input, int rank, unsigned *mask, int *state)
{
    *mask = 0, *state = -1;
    if (input >= 0) {
        if (!heed_compute_has(c, input)) return;
        *state = 1;
        int64_t n = heed_tensor_count(c->in[input]);
        for (int64_t k = 0; k < n; k++) {
            int axis = heed_axis(heed_tensor_int(c->in[input], k), rank);
            if (axis >= 0) *mask |= 1u << axis;
        }
        return;
    }
    int n;
    const int64_t *axes = heed_node_ints(c->node, "axes", &n);
    if (!axes) return;
    *state = 1;
    for (int k = 0; k < n; k++) {
        int axis = heed_axis(axes[k], rank);
        if (axis >= 0) *mask |= 1u << axis;
    }
}
