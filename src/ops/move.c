/* Operators that only give data another shape or order, as views where strides allow; and what reads a shape. */
#include <string.h>

#include "ops/util.h"

/* ---- views of the whole input ---- */

int heed_view_same(heed_compute *c)
{
    memcpy(c->out[0]->strides, c->in[0]->strides, sizeof c->out[0]->strides);
    c->out[0]->data = c->in[0]->data;
    return 1;
}

heed_status heed_compute_same(heed_compute *c)
{
    heed_copy(c->ctx, c->out[0], c->in[0]);
    return HEED_OK;
}

/* Strides of `out` over the memory of `in`, of as many elements: groups of dimensions with equal products are matched; inside a
 * group the input must lie without gaps. */
static int reshape_strides(heed_tensor *out, const heed_tensor *in)
{
    int from[HEED_RANK_MAX], n = 0; /* input dimensions that count */
    for (int d = 0; d < in->rank; d++)
        if (in->dims[d] != 1) from[n++] = d;
    int i = 0, o = 0;
    while (o < out->rank) {
        if (i == n) { /* only sizes of 1 are left */
            out->strides[o++] = 1;
            continue;
        }
        int64_t have = in->dims[from[i]], want = out->dims[o];
        int i_end = i + 1, o_end = o + 1;
        while (have != want) {
            if (want < have) want *= out->dims[o_end++];
            else have *= in->dims[from[i_end++]];
        }
        for (int k = i; k + 1 < i_end; k++)
            if (in->strides[from[k]] != in->strides[from[k + 1]] * in->dims[from[k + 1]]) return 0;
        int64_t stride = in->strides[from[i_end - 1]];
        for (int k = o_end - 1; k >= o; k--) {
            out->strides[k] = stride;
            stride *= out->dims[k];
        }
        i = i_end, o = o_end;
    }
    return 1;
}

int heed_view_reshaped(heed_compute *c)
{
    heed_tensor *out = c->out[0];
    out->data = c->in[0]->data;
    if (heed_tensor_count(out) == 0) {
        heed_tensor_set_dense(out);
        return 1;
    }
    return reshape_strides(out, c->in[0]);
}

heed_status heed_compute_reshaped(heed_compute *c)
{
    heed_tensor dst = *c->in[0]; /* the output's memory in the input's shape */
    heed_tensor_set_dense(&dst);
    dst.data = c->out[0]->data;
    heed_copy(c->ctx, &dst, c->in[0]);
    return HEED_OK;
}

/* Entries of a shape tensor pass through whatever keeps their order. */
static heed_status pass_ints(heed_infer *i)
{
    const int64_t *ints;
    int n;
    if (i->out[0].rank < 0 || i->out[0].rank > 1 || !heed_infer_ints(i, 0, &ints, &n)) return HEED_OK;
    return heed_infer_set_ints(i, 0, i->out[0].rank, ints, n);
}

static heed_status infer_identity(heed_infer *i)
{
    HEED_TRY(heed_infer_same(i));
    return pass_ints(i);
}

/* ---- Reshape ---- */

/* Entries of the target that are sizes, with -1 in *hole (or -1) and zeros taken from the input. */
static heed_status reshape_target(heed_infer *i, const int64_t *ints, int n, int *hole)
{
    const heed_fact *in = i->in[0];
    heed_fact *out = &i->out[0];
    int allow_zero = heed_node_int(i->node, "allowzero", 0) != 0;
    *hole = -1;
    for (int d = 0; d < n; d++) {
        int64_t number = 1;
        int known = heed_dims_known(i->dims, ints[d], &number);
        out->dims[d] = ints[d];
        if (known && number < -1) return heed_infer_fail(i, "shape[%d] is %lld, expected -1 or more", d, (long long) number);
        if (known && number == -1) {
            if (*hole >= 0) return heed_infer_fail(i, "shape[%d] is -1, and so is shape[%d]; expected one at most", d, *hole);
            *hole = d;
        }
        if (!known || number != 0 || allow_zero) continue;
        if (in->rank >= 0 && d >= in->rank)
            return heed_infer_fail(i, "shape[%d] is 0 (as in the input), but the input has rank %d", d, in->rank);
        out->dims[d] = in->rank >= 0 ? in->dims[d] : HEED_DIM_UNKNOWN;
    }
    return HEED_OK;
}

static heed_status solve_hole(heed_infer *i, int hole)
{
    const heed_fact *in = i->in[0];
    heed_fact *out = &i->out[0];
    int64_t total = heed_infer_product(i, in, 0, in->rank), rest = 1;
    int known = total >= 0;
    for (int d = 0; d < out->rank; d++) {
        if (d == hole) continue;
        rest = heed_dims_mul(i->dims, rest, out->dims[d]);
        known = known && out->dims[d] >= 0;
    }
    out->dims[hole] = HEED_DIM_UNKNOWN;
    if (rest == 0) { /* a run knows what is empty */
        if (heed_fact_shape_known(in))
            return heed_infer_fail(i, "shape[%d] is -1, but the other entries make an empty tensor", hole);
        return HEED_OK;
    }
    if (known && (rest < 0 || total % rest != 0)) /* rest < 0: it overflows */
        return heed_infer_fail(i, "a tensor of shape %s does not divide into shape %s", heed_infer_shape_text(i, in),
                               heed_infer_shape_text(i, out));
    out->dims[hole] = heed_dims_div(i->dims, total, rest);
    return HEED_OK;
}

static heed_status check_same_count(heed_infer *i)
{
    int64_t have = heed_fact_count(i->in[0]), want = heed_fact_count(&i->out[0]);
    if (!heed_fact_shape_known(i->in[0]) || !heed_fact_shape_known(&i->out[0]) || (have == want && have >= 0)) return HEED_OK;
    return heed_infer_fail(i, "a tensor of shape %s cannot have shape %s", heed_infer_shape_text(i, i->in[0]),
                           heed_infer_shape_text(i, &i->out[0]));
}

static heed_status infer_reshape(heed_infer *i)
{
    const heed_fact *in = i->in[0], *shape = i->in[1];
    const int64_t *ints;
    int n, hole;
    i->out[0].dtype = in->dtype;
    if (!heed_infer_ints(i, 1, &ints, &n)) {
        if (shape->rank == 1 && shape->dims[0] >= 0 && shape->dims[0] <= HEED_RANK_MAX)
            heed_fact_unknown_dims(&i->out[0], (int) shape->dims[0]);
        return HEED_OK;
    }
    if (n > HEED_RANK_MAX) return heed_infer_fail(i, "shape has %d entries, expected at most %d", n, HEED_RANK_MAX);
    i->out[0].rank = n;
    HEED_TRY(reshape_target(i, ints, n, &hole));
    if (hole >= 0 && in->rank >= 0) HEED_TRY(solve_hole(i, hole));
    else if (hole >= 0) i->out[0].dims[hole] = HEED_DIM_UNKNOWN;
    HEED_TRY(check_same_count(i));
    return pass_ints(i);
}

/* ---- Flatten, Squeeze, Unsqueeze ---- */

static heed_status infer_flatten(heed_infer *i)
{
    const heed_fact *in = i->in[0];
    i->out[0].dtype = in->dtype;
    heed_fact_unknown_dims(&i->out[0], 2);
    if (in->rank < 0) return HEED_OK;
    int64_t axis = heed_node_int(i->node, "axis", 1);
    if (axis < -(int64_t) in->rank || axis > in->rank)
        return heed_infer_fail(i, "axis is %lld, expected %d to %d", (long long) axis, -in->rank, in->rank);
    if (axis < 0) axis += in->rank;
    i->out[0].dims[0] = heed_infer_product(i, in, 0, (int) axis);
    i->out[0].dims[1] = heed_infer_product(i, in, (int) axis, in->rank);
    return HEED_OK;
}

static heed_status squeeze(heed_infer *i, int axes_input)
{
    const heed_fact *in = i->in[0];
    heed_fact *out = &i->out[0];
    out->dtype = in->dtype;
    if (in->rank < 0) return HEED_OK;
    unsigned axes;
    int state;
    HEED_TRY(heed_infer_axes(i, axes_input, in->rank, &axes, &state));
    if (state == 0) {
        const heed_fact *given = i->in[axes_input];
        if (given->rank == 1 && given->dims[0] >= 0 && given->dims[0] <= in->rank)
            heed_fact_unknown_dims(out, in->rank - (int) given->dims[0]);
        return HEED_OK;
    }
    int rank = 0;
    for (int d = 0; d < in->rank; d++) {
        if (state < 0 && in->dims[d] < 0) return HEED_OK; /* all of size 1: is this one? */
        if (state < 0 ? in->dims[d] == 1 : (int) (axes >> d & 1)) {
            if (in->dims[d] >= 0 && in->dims[d] != 1)
                return heed_infer_fail(i, "dimension %d is %lld, expected 1", d, (long long) in->dims[d]);
            continue;
        }
        out->dims[rank++] = in->dims[d];
    }
    out->rank = rank;
    return pass_ints(i);
}

static heed_status infer_squeeze_11(heed_infer *i)
{
    return squeeze(i, -1);
}

static heed_status infer_squeeze_13(heed_infer *i)
{
    return squeeze(i, 1);
}

static heed_status unsqueeze(heed_infer *i, int axes_input)
{
    const heed_fact *in = i->in[0];
    heed_fact *out = &i->out[0];
    const int64_t *given = NULL;
    int n = 0;
    out->dtype = in->dtype;
    if (in->rank < 0) return HEED_OK;
    if (axes_input < 0) {
        given = heed_node_ints(i->node, "axes", &n);
        if (!given) return heed_infer_fail(i, "attribute axes is missing");
    } else if (!heed_infer_known_ints(i, axes_input, &given, &n)) {
        const heed_fact *axes = i->in[axes_input];
        if (axes->rank == 1 && axes->dims[0] >= 0 && axes->dims[0] <= HEED_RANK_MAX - in->rank)
            heed_fact_unknown_dims(out, in->rank + (int) axes->dims[0]);
        return HEED_OK;
    }
    int rank = in->rank + n;
    if (rank > HEED_RANK_MAX) return heed_infer_fail(i, "the result has rank %d, expected at most %d", rank, HEED_RANK_MAX);
    unsigned axes;
    int state;
    HEED_TRY(heed_infer_axes(i, axes_input, rank, &axes, &state));
    out->rank = rank;
    for (int d = 0, k = 0; d < rank; d++) out->dims[d] = axes >> d & 1 ? 1 : in->dims[k++];
    return pass_ints(i);
}

static heed_status infer_unsqueeze_11(heed_infer *i)
{
    return unsqueeze(i, -1);
}

static heed_status infer_unsqueeze_13(heed_infer *i)
{
    return unsqueeze(i, 1);
}

/* ---- Transpose ---- */

/* Default: the axes the other way round. */
static int read_perm(const heed_node *node, int rank, int *perm)
{
    int n;
    const int64_t *given = heed_node_ints(node, "perm", &n);
    unsigned seen = 0;
    if (given && n != rank) return 0;
    for (int d = 0; d < rank; d++) {
        perm[d] = given ? (given[d] >= 0 && given[d] < rank ? (int) given[d] : -1) : rank - 1 - d;
        if (perm[d] < 0 || seen >> perm[d] & 1) return 0;
        seen |= 1u << perm[d];
    }
    return 1;
}

static heed_status infer_transpose(heed_infer *i)
{
    int perm[HEED_RANK_MAX], n;
    i->out[0].dtype = i->in[0]->dtype;
    if (i->in[0]->rank < 0) {
        if (heed_node_ints(i->node, "perm", &n) && n <= HEED_RANK_MAX) heed_fact_unknown_dims(&i->out[0], n);
        return HEED_OK;
    }
    if (!read_perm(i->node, i->in[0]->rank, perm))
        return heed_infer_fail(i, "perm is not a permutation of the %d axes of its input", i->in[0]->rank);
    i->out[0].rank = i->in[0]->rank;
    for (int d = 0; d < i->out[0].rank; d++) i->out[0].dims[d] = i->in[0]->dims[perm[d]];
    return pass_ints(i);
}

static void transposed(heed_tensor *view, const heed_compute *c)
{
    int perm[HEED_RANK_MAX];
    *view = *c->out[0];
    view->data = c->in[0]->data;
    if (!read_perm(c->node, view->rank, perm)) return; /* the rule has refused it */
    for (int d = 0; d < view->rank; d++) view->strides[d] = c->in[0]->strides[perm[d]];
}

static int view_transpose(heed_compute *c)
{
    transposed(c->out[0], c);
    return 1;
}

static heed_status compute_transpose(heed_compute *c)
{
    heed_tensor view;
    transposed(&view, c);
    heed_copy(c->ctx, c->out[0], &view);
    return HEED_OK;
}

/* ---- Expand ---- */

static heed_status infer_expand(heed_infer *i)
{
    const heed_fact *in = i->in[0];
    heed_fact *out = &i->out[0];
    const int64_t *ints;
    int n;
    out->dtype = in->dtype;
    if (in->rank < 0) return HEED_OK;
    if (!heed_infer_ints(i, 1, &ints, &n)) {
        const heed_fact *shape = i->in[1];
        if (shape->rank == 1 && shape->dims[0] >= 0 && shape->dims[0] <= HEED_RANK_MAX)
            heed_fact_unknown_dims(out, shape->dims[0] > in->rank ? (int) shape->dims[0] : in->rank);
        return HEED_OK;
    }
    if (n > HEED_RANK_MAX) return heed_infer_fail(i, "shape has %d entries, expected at most %d", n, HEED_RANK_MAX);
    int rank = n > in->rank ? n : in->rank;
    out->rank = rank;
    for (int d = 0; d < rank; d++) {
        int64_t a = d < rank - in->rank ? 1 : in->dims[d - (rank - in->rank)], b = d < rank - n ? 1 : ints[d - (rank - n)],
                number;
        if (b < 0 && heed_dims_known(i->dims, b, &number))
            return heed_infer_fail(i, "shape[%d] is %lld, expected 0 or more", d - (rank - n), (long long) number);
        if (heed_infer_broadcast_dim(i, a, b, &out->dims[d]) != HEED_OK)
            return heed_infer_fail(i, "shape[%d] is %lld, which does not broadcast with %lld", d - (rank - n), (long long) b,
                                   (long long) a);
    }
    int64_t count = heed_fact_count(out);
    if (count < 0 || count > HEED_INTS_MAX || rank > 1 || !heed_infer_ints(i, 0, &ints, &n) || n > count) return HEED_OK;
    if (n == count) return heed_infer_set_ints(i, 0, rank, ints, n);
    int64_t *repeated = heed_infer_new_ints(i, (int) count);
    if (!repeated) return heed_infer_memory(i);
    for (int64_t k = 0; k < count; k++) repeated[k] = ints[0];
    return n == 1 ? heed_infer_set_ints(i, 0, rank, repeated, (int) count) : HEED_OK;
}

static void expanded(heed_tensor *view, const heed_compute *c)
{
    const heed_tensor *in = c->in[0];
    *view = *c->out[0];
    view->data = in->data;
    for (int d = 0; d < view->rank; d++) {
        int k = d - (view->rank - in->rank);
        view->strides[d] = k < 0 || in->dims[k] == 1 ? 0 : in->strides[k];
    }
}

static int view_expand(heed_compute *c)
{
    expanded(c->out[0], c);
    return 1;
}

static heed_status compute_expand(heed_compute *c)
{
    heed_tensor view;
    expanded(&view, c);
    heed_copy(c->ctx, c->out[0], &view);
    return HEED_OK;
}

/* ---- Shape, Size ---- */

static void shape_range(const heed_node *node, int rank, int *start, int *end)
{
    int64_t s = heed_node_int(node, "start", 0), e = heed_node_attr(node, "end") ? heed_node_int(node, "end", 0) : rank;
    if (s < 0) s += rank;
    if (e < 0) e += rank;
    *start = (int) (s < 0 ? 0 : s > rank ? rank : s);
    *end = (int) (e < *start ? *start : e > rank ? rank : e);
}

static heed_status infer_shape(heed_infer *i)
{
    i->out[0].dtype = HEED_I64;
    heed_fact_unknown_dims(&i->out[0], 1);
    if (i->in[0]->rank < 0) return HEED_OK;
    int start, end;
    shape_range(i->node, i->in[0]->rank, &start, &end);
    return heed_infer_set_ints(i, 0, 1, i->in[0]->dims + start, end - start);
}

static heed_status compute_shape(heed_compute *c)
{
    int start, end;
    shape_range(c->node, c->in[0]->rank, &start, &end);
    memcpy(c->out[0]->data, c->in[0]->dims + start, (size_t) (end - start) * sizeof(int64_t));
    return HEED_OK;
}

static heed_status infer_size(heed_infer *i)
{
    i->out[0].dtype = HEED_I64;
    i->out[0].rank = 0;
    if (i->in[0]->rank < 0) return HEED_OK;
    int64_t size = heed_infer_product(i, i->in[0], 0, i->in[0]->rank);
    return size == HEED_DIM_UNKNOWN ? HEED_OK : heed_infer_set_ints(i, 0, 0, &size, 1);
}

static heed_status compute_size(heed_compute *c)
{
    *(int64_t *) c->out[0]->data = heed_tensor_count(c->in[0]);
    return HEED_OK;
}

#define VIEW(rule) .flags = HEED_OP_STRIDED, .infer = rule

const heed_op heed_ops_move[] = {
    HEED_OP("Identity", 1, 1, 1, 1, VIEW(infer_identity), .compute = heed_compute_same, .view = heed_view_same),
    HEED_OP("Reshape", 5, 2, 2, 1, VIEW(infer_reshape), .compute = heed_compute_reshaped, .view = heed_view_reshaped,
            .shape_inputs = 1u << 1),
    HEED_OP("Flatten", 9, 1, 1, 1, VIEW(infer_flatten), .compute = heed_compute_reshaped, .view = heed_view_reshaped),
    HEED_OP("Squeeze", 11, 1, 1, 1, VIEW(infer_squeeze_11), .compute = heed_compute_reshaped, .view = heed_view_reshaped),
    HEED_OP("Squeeze", 13, 1, 2, 1, VIEW(infer_squeeze_13), .compute = heed_compute_reshaped, .view = heed_view_reshaped,
            .shape_inputs = 1u << 1),
    HEED_OP("Unsqueeze", 11, 1, 1, 1, VIEW(infer_unsqueeze_11), .compute = heed_compute_reshaped, .view = heed_view_reshaped),
    HEED_OP("Unsqueeze", 13, 2, 2, 1, VIEW(infer_unsqueeze_13), .compute = heed_compute_reshaped, .view = heed_view_reshaped,
            .shape_inputs = 1u << 1),
    HEED_OP("Transpose", 1, 1, 1, 1, VIEW(infer_transpose), .compute = compute_transpose, .view = view_transpose),
    HEED_OP("Expand", 8, 2, 2, 1, VIEW(infer_expand), .compute = compute_expand, .view = view_expand, .shape_inputs = 1u << 1),
    HEED_OP("Shape", 1, 1, 1, 1, VIEW(infer_shape), .compute = compute_shape),
    HEED_OP("Size", 1, 1, 1, 1, VIEW(infer_size), .compute = compute_size),
    { 0 },
};
