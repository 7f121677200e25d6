/* Tensors made of nothing, or of a few numbers: ConstantOfShape, Range, EyeLike, OneHot. */
#include <math.h>
#include <string.h>

#include "ops/util.h"

/* One element everywhere. */
static void fill(const heed_context *ctx, heed_tensor *out, const void *element)
{
    heed_tensor value = *out;
    memset(value.strides, 0, sizeof value.strides);
    value.data = (void *) (uintptr_t) element;
    heed_copy(ctx, out, &value);
}

/* Shape entries become dimensions. */
static heed_status dims_from_ints(heed_infer *i, const int64_t *ints, int n)
{
    heed_fact *out = &i->out[0];
    if (n > HEED_RANK_MAX) return heed_infer_fail(i, "shape has %d entries, expected at most %d", n, HEED_RANK_MAX);
    out->rank = n;
    for (int d = 0; d < n; d++) {
        int64_t number;
        out->dims[d] = ints[d];
        if (heed_dims_known(i->dims, ints[d], &number) && number < 0)
            return heed_infer_fail(i, "shape[%d] is %lld, expected 0 or more", d, (long long) number);
    }
    return HEED_OK;
}

/* ---- ConstantOfShape ---- */

static const heed_tensor *fill_value(const heed_node *node)
{
    const heed_attr *value = heed_node_attr(node, "value");
    return value && value->type == HEED_ATTR_TENSOR && heed_tensor_count(value->t) == 1 ? value->t : NULL;
}

static heed_status infer_constant_of_shape(heed_infer *i)
{
    const heed_tensor *value = fill_value(i->node);
    heed_fact *out = &i->out[0];
    const int64_t *ints;
    int n;
    if (!value && heed_node_attr(i->node, "value")) return heed_infer_fail(i, "value is not a tensor of one element");
    out->dtype = value ? value->dtype : HEED_F32;
    if (!heed_infer_ints(i, 0, &ints, &n)) {
        const heed_fact *shape = i->in[0];
        if (shape->rank == 1 && shape->dims[0] >= 0 && shape->dims[0] <= HEED_RANK_MAX)
            heed_fact_unknown_dims(out, (int) shape->dims[0]);
        return HEED_OK;
    }
    HEED_TRY(dims_from_ints(i, ints, n));
    int64_t count = heed_fact_count(out);
    if (!heed_dtype_is_integer(out->dtype) || out->rank > 1 || count < 0 || count > HEED_INTS_MAX) return HEED_OK;
    int64_t *same = heed_infer_new_ints(i, (int) count), x = value ? heed_tensor_int(value, 0) : 0;
    if (!same) return heed_infer_memory(i);
    for (int64_t k = 0; k < count; k++) same[k] = heed_dims_literal(i->dims, x);
    return heed_infer_set_ints(i, 0, out->rank, same, (int) count);
}

static heed_status compute_constant_of_shape(heed_compute *c)
{
    const heed_tensor *value = fill_value(c->node);
    uint64_t zero = 0;
    fill(c->ctx, c->out[0], value ? value->data : (const void *) &zero);
    return HEED_OK;
}

/* ---- Range ---- */

/* Number of elements, at least 0; -1 if it is too large for any memory, or not a number. */
static int64_t range_count(const heed_tensor *start, const heed_tensor *limit, const heed_tensor *delta)
{
    if (heed_dtype_is_float(start->dtype)) {
        double n = ceil((heed_tensor_double(limit, 0) - heed_tensor_double(start, 0)) / heed_tensor_double(delta, 0));
        return n != n || n > 0x1p48 ? -1 : n > 0 ? (int64_t) n : 0;
    }
    int64_t s = heed_tensor_int(start, 0), l = heed_tensor_int(limit, 0), d = heed_tensor_int(delta, 0);
    if (d == 0) return -1;
    if (d > 0 ? l <= s : l >= s) return 0;
    uint64_t distance = d > 0 ? (uint64_t) l - (uint64_t) s : (uint64_t) s - (uint64_t) l,
             step = d > 0 ? (uint64_t) d : 0 - (uint64_t) d;
    uint64_t n = (distance - 1) / step + 1;
    return n > (uint64_t) 1 << 48 ? -1 : (int64_t) n;
}

static heed_status known_range(heed_infer *i)
{
    const heed_tensor *in[3];
    for (int k = 0; k < 3; k++) {
        in[k] = i->in[k]->value;
        if (heed_tensor_count(in[k]) != 1)
            return heed_infer_fail(i, "input %d has %lld elements, expected 1", k, (long long) heed_tensor_count(in[k]));
    }
    int64_t n = range_count(in[0], in[1], in[2]);
    if (n < 0 && heed_tensor_double(in[2], 0) == 0) return heed_infer_fail(i, "delta is 0");
    if (n < 0)
        return heed_infer_fail(i, "from %g to %g by %g it has too many elements, or no number of them",
                               heed_tensor_double(in[0], 0), heed_tensor_double(in[1], 0), heed_tensor_double(in[2], 0));
    i->out[0].dims[0] = n;
    if (n > HEED_INTS_MAX || !heed_dtype_is_integer(i->out[0].dtype)) return HEED_OK;
    int64_t *ints = heed_infer_new_ints(i, (int) n), start = heed_tensor_int(in[0], 0), delta = heed_tensor_int(in[2], 0);
    if (!ints) return heed_infer_memory(i);
    for (int64_t k = 0; k < n; k++)
        ints[k] = heed_dims_literal(i->dims, (int64_t) ((uint64_t) start + (uint64_t) k * (uint64_t) delta));
    return heed_infer_set_ints(i, 0, 1, ints, (int) n);
}

static heed_status infer_range(heed_infer *i)
{
    const int64_t *start, *limit, *delta;
    int n_start, n_limit, n_delta;
    int64_t step;
    HEED_TRY(heed_infer_same_type(i, 0, 2, &i->out[0].dtype));
    if (i->out[0].dtype == HEED_BOOL) return heed_infer_fail(i, "its inputs are bool");
    heed_fact_unknown_dims(&i->out[0], 1);
    if (i->in[0]->value && i->in[1]->value && i->in[2]->value) return known_range(i);
    if (!heed_infer_ints(i, 0, &start, &n_start) || !heed_infer_ints(i, 1, &limit, &n_limit) ||
        !heed_infer_ints(i, 2, &delta, &n_delta) || n_start != 1 || n_limit != 1 || n_delta != 1)
        return HEED_OK;
    if (!heed_dims_known(i->dims, delta[0], &step) || step < 1) return HEED_OK;
    int64_t distance = heed_dims_max(i->dims, heed_dims_sub(i->dims, limit[0], start[0]), 0);
    i->out[0].dims[0] = step == 1 ? distance : heed_dims_div(i->dims, heed_dims_add(i->dims, distance, step - 1), step);
    return HEED_OK;
}

static heed_status compute_range(heed_compute *c)
{
    heed_tensor *out = c->out[0];
    int64_t n = out->dims[0], size = (int64_t) heed_dtype_size(out->dtype);
    if (heed_dtype_is_float(out->dtype)) {
        double start = heed_tensor_double(c->in[0], 0), delta = heed_tensor_double(c->in[2], 0);
        for (int64_t k = 0; k < n; k++) {
            double x = start + (double) k * delta;
            heed_cast_line(out->dtype, (char *) out->data + k * size, size, HEED_F64, &x, 8, 1);
        }
        return HEED_OK;
    }
    uint64_t x = (uint64_t) heed_tensor_int(c->in[0], 0), delta = (uint64_t) heed_tensor_int(c->in[2], 0);
    for (int64_t k = 0; k < n; k++, x += delta)
        heed_cast_line(out->dtype, (char *) out->data + k * size, size, HEED_U64, &x, 8, 1);
    return HEED_OK;
}

/* ---- EyeLike ---- */

static heed_status infer_eye_like(heed_infer *i)
{
    HEED_TRY(heed_infer_same(i));
    if (i->in[0]->rank >= 0 && i->in[0]->rank != 2)
        return heed_infer_fail(i, "its input has rank %d, expected 2", i->in[0]->rank);
    if (!heed_node_attr(i->node, "dtype")) return HEED_OK;
    i->out[0].dtype = heed_dtype_from_onnx(heed_node_int(i->node, "dtype", 0));
    if (i->out[0].dtype != HEED_DTYPE_NONE) return HEED_OK;
    return heed_fail(HEED_ERR_UNSUPPORTED, "%s: dtype is %lld, an element type that heed does not have", i->node->op,
                     (long long) heed_node_int(i->node, "dtype", 0));
}

static heed_status compute_eye_like(heed_compute *c)
{
    heed_tensor *out = c->out[0];
    int64_t k = heed_node_int(c->node, "k", 0), rows = out->dims[0], cols = out->dims[1],
            size = (int64_t) heed_dtype_size(out->dtype);
    uint64_t zero = 0;
    uint8_t one = 1;
    fill(c->ctx, out, &zero);
    if (k >= cols || k <= -rows) return HEED_OK;
    for (int64_t r = k < 0 ? -k : 0; r < rows && r + k < cols; r++)
        heed_cast_line(out->dtype, (char *) out->data + (r * cols + r + k) * size, size, HEED_U8, &one, 1, 1);
    return HEED_OK;
}

/* ---- OneHot ---- */

static heed_status infer_one_hot(heed_infer *i)
{
    const heed_fact *indices = i->in[0];
    heed_fact *out = &i->out[0];
    const int64_t *depth;
    int n, axis;
    out->dtype = i->in[2]->dtype;
    if (indices->rank < 0) return HEED_OK;
    int rank = indices->rank + 1;
    if (rank > HEED_RANK_MAX) return heed_infer_fail(i, "the result has rank %d, expected at most %d", rank, HEED_RANK_MAX);
    HEED_TRY(heed_infer_axis(i, "axis", heed_node_int(i->node, "axis", -1), rank, &axis));
    out->rank = rank;
    for (int d = 0, k = 0; d < rank; d++) out->dims[d] = d == axis ? HEED_DIM_UNKNOWN : indices->dims[k++];
    if (heed_infer_ints(i, 1, &depth, &n) && n == 1) {
        int64_t number;
        if (heed_dims_known(i->dims, depth[0], &number) && number < 0)
            return heed_infer_fail(i, "depth is %lld, expected 0 or more", (long long) number);
        out->dims[axis] = depth[0];
    } else if (i->in[1]->value && heed_tensor_count(i->in[1]->value) == 1) {
        double number = heed_tensor_double(i->in[1]->value, 0);
        if (!(number >= 0 && number < 0x1p48)) return heed_infer_fail(i, "depth is %g, expected 0 or more", number);
        out->dims[axis] = (int64_t) number;
    }
    if (heed_fact_count(i->in[2]) >= 0 && heed_fact_count(i->in[2]) != 2)
        return heed_infer_fail(i, "values have shape %s, expected [2]", heed_infer_shape_text(i, i->in[2]));
    return HEED_OK;
}

/* An index outside [-depth, depth - 1] gives a line of off-values. */
static heed_status compute_one_hot(heed_compute *c)
{
    heed_tensor *out = c->out[0];
    const heed_tensor *indices = c->in[0], *values = c->in[2];
    int axis = heed_axis(heed_node_int(c->node, "axis", -1), out->rank);
    int64_t size = (int64_t) heed_dtype_size(out->dtype), depth = out->dims[axis], inner = out->strides[axis];
    int64_t n = heed_tensor_count(indices);
    if (heed_tensor_count(out) == 0) return HEED_OK;
    fill(c->ctx, out, values->data);
    for (int64_t k = 0; k < n; k++) {
        double at = heed_tensor_double(indices, k);
        if (at < 0) at += (double) depth;
        if (!(at >= 0 && at < (double) depth)) continue;
        int64_t to = (k / inner * depth + (int64_t) at) * inner + k % inner;
        memcpy((char *) out->data + to * size, (const char *) values->data + size, (size_t) size);
    }
    return HEED_OK;
}

const heed_op heed_ops_fill[] = {
    HEED_OP("ConstantOfShape", 9, 1, 1, 1, .infer = infer_constant_of_shape, .compute = compute_constant_of_shape,
            .shape_inputs = 1),
    HEED_OP("Range", 11, 3, 3, 1, .infer = infer_range, .compute = compute_range, .shape_inputs = 7),
    HEED_OP("EyeLike", 9, 1, 1, 1, .infer = infer_eye_like, .compute = compute_eye_like),
    HEED_OP("OneHot", 11, 3, 3, 1, .infer = infer_one_hot, .compute = compute_one_hot, .shape_inputs = 1u << 1),
    { 0 },
};
