/* Parts of a tensor: Slice and Split, as views; and parts turned round, ReverseSequence. */
#include <string.h>

#include "ops/util.h"

/* ---- Slice ---- */

struct cut {
    int64_t start, step, count;
};

/* Numpy's rules: negative positions count from the end, positions outside are moved to the edge. */
static struct cut make_cut(int64_t start, int64_t end, int64_t step, int64_t n)
{
    struct cut cut = { 0, step, 0 };
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
    if (start < 0) start += n;
    if (end < 0) end += n;
    start = start < 0 ? 0 : start > high ? high : start;
    end = end < low ? low : end > high ? high : end;
    uint64_t distance = step > 0 ? (uint64_t) (end - start) : (uint64_t) (start - end);
    uint64_t size = step > 0 ? (uint64_t) step : 0 - (uint64_t) step;
    if (n > 0 && (step > 0 ? end > start : start > end)) cut.start = start, cut.count = (int64_t) ((distance - 1) / size + 1);
    return cut;
}

/* A position as a rule sees it: in [0, n], whatever the symbols are, or HEED_DIM_UNKNOWN. */
static int64_t symbolic_position(heed_infer *i, int64_t at, int64_t n)
{
    if (heed_infer_not_negative(i, at)) return heed_dims_min(i->dims, at, n);
    if (heed_infer_not_negative(i, heed_dims_sub(i->dims, 0, at))) /* from the end */
        return heed_dims_max(i->dims, heed_dims_add(i->dims, n, at), 0);
    return HEED_DIM_UNKNOWN;
}

static int64_t symbolic_count(heed_infer *i, int64_t start, int64_t end, int64_t step, int64_t n)
{
    int64_t s, e;
    int s_known = heed_dims_known(i->dims, start, &s), e_known = heed_dims_known(i->dims, end, &e);
    if (n >= 0 && s_known && e_known) return make_cut(s, e, step, n).count;
    if (n < 0 && step == -1 && s_known && e_known && (s == -1 || s == INT64_MAX) && e <= -INT64_MAX) return n; /* reversed */
    if (step < 1 || n == HEED_DIM_UNKNOWN) return HEED_DIM_UNKNOWN;
    end = symbolic_position(i, end, n);
    if (!heed_infer_not_negative(i, start)) start = symbolic_position(i, start, n); /* else past the end gives 0 below anyway */
    if (start == HEED_DIM_UNKNOWN || end == HEED_DIM_UNKNOWN) return HEED_DIM_UNKNOWN;
    int64_t count = heed_dims_max(i->dims, heed_dims_sub(i->dims, end, start), 0);
    return step == 1 ? count : heed_dims_div(i->dims, heed_dims_add(i->dims, count, step - 1), step);
}

/* The parameters as they are known: axes and steps as numbers, starts and ends as entries. */
struct slice {
    int n;
    const int64_t *starts, *ends, *steps; /* steps NULL: 1 */
    int axes[HEED_RANK_MAX];
};

static int absent(const heed_infer *i, int input)
{
    return input >= i->n_in || !i->in[input];
}

/* *state: 1 if everything is known, 0 if not. */
static heed_status read_slice(heed_infer *i, int rank, struct slice *s, int *state)
{
    const int64_t *axes = NULL;
    int n_ends, n_axes, n_steps;
    unsigned seen = 0;
    *state = 0;
    s->steps = NULL;
    if (!heed_infer_ints(i, 1, &s->starts, &s->n) || !heed_infer_ints(i, 2, &s->ends, &n_ends)) return HEED_OK;
    if (!absent(i, 3) && !heed_infer_known_ints(i, 3, &axes, &n_axes)) return HEED_OK;
    if (!absent(i, 4) && !heed_infer_known_ints(i, 4, &s->steps, &n_steps)) return HEED_OK;
    if (s->n > rank || n_ends != s->n || (axes && n_axes != s->n) || (s->steps && n_steps != s->n))
        return heed_infer_fail(i, "starts has %d entries, expected as many as ends, axes and steps, and at most %d", s->n, rank);
    for (int k = 0; k < s->n; k++) {
        s->axes[k] = axes ? heed_axis(axes[k], rank) : k;
        if (s->axes[k] < 0)
            return heed_infer_fail(i, "axes[%d] is %lld, expected %d to %d", k, (long long) axes[k], -rank, rank - 1);
        if (seen >> s->axes[k] & 1) return heed_infer_fail(i, "axes[%d] is %lld, given twice", k, (long long) axes[k]);
        if (s->steps && s->steps[k] == 0) return heed_infer_fail(i, "steps[%d] is 0", k);
        seen |= 1u << s->axes[k];
    }
    *state = 1;
    return HEED_OK;
}

static heed_status slice_ints(heed_infer *i, const struct slice *s)
{
    const int64_t *ints;
    int n;
    int64_t start, end;
    if (i->out[0].rank != 1 || s->n != 1 || !heed_infer_ints(i, 0, &ints, &n)) return HEED_OK;
    if (!heed_dims_known(i->dims, s->starts[0], &start) || !heed_dims_known(i->dims, s->ends[0], &end)) return HEED_OK;
    struct cut cut = make_cut(start, end, s->steps ? s->steps[0] : 1, n);
    int64_t *part = heed_infer_new_ints(i, (int) cut.count);
    if (!part) return heed_infer_memory(i);
    for (int64_t k = 0, at = cut.start; k < cut.count; k++, at += cut.step) part[k] = ints[at];
    return heed_infer_set_ints(i, 0, 1, part, (int) cut.count);
}

static heed_status infer_slice(heed_infer *i)
{
    const heed_fact *in = i->in[0];
    heed_fact *out = &i->out[0];
    struct slice s;
    int known;
    out->dtype = in->dtype;
    if (in->rank < 0) return HEED_OK;
    HEED_TRY(read_slice(i, in->rank, &s, &known));
    out->rank = in->rank;
    memcpy(out->dims, in->dims, sizeof out->dims);
    if (!known) {
        unsigned axes; /* the other dimensions stay */
        int state;
        HEED_TRY(heed_infer_axes(i, 3, in->rank, &axes, &state));
        for (int d = 0; d < in->rank; d++)
            if (state != 1 || axes >> d & 1) out->dims[d] = HEED_DIM_UNKNOWN;
        return HEED_OK;
    }
    for (int k = 0; k < s.n; k++) {
        int d = s.axes[k];
        out->dims[d] = symbolic_count(i, s.starts[k], s.ends[k], s.steps ? s.steps[k] : 1, in->dims[d]);
    }
    return slice_ints(i, &s);
}

/* The part of the input that the output is. */
static void sliced(heed_tensor *view, const heed_compute *c)
{
    const heed_tensor *in = c->in[0], *axes = c->n_in > 3 ? c->in[3] : NULL, *steps = c->n_in > 4 ? c->in[4] : NULL;
    int64_t offset = 0, n = heed_tensor_count(c->in[1]);
    *view = *c->out[0];
    memcpy(view->strides, in->strides, sizeof view->strides);
    for (int64_t k = 0; k < n; k++) {
        int d = axes ? heed_axis(heed_tensor_int(axes, k), in->rank) : (int) k;
        struct cut cut = make_cut(heed_tensor_int(c->in[1], k), heed_tensor_int(c->in[2], k),
                                  steps ? heed_tensor_int(steps, k) : 1, in->dims[d]);
        if (cut.count) offset += cut.start * in->strides[d];
        if (cut.count > 1) view->strides[d] = cut.step * in->strides[d];
    }
    view->data = in->data ? (char *) in->data + offset * (int64_t) heed_dtype_size(in->dtype) : NULL;
}

static int view_slice(heed_compute *c)
{
    sliced(c->out[0], c);
    return 1;
}

static heed_status compute_slice(heed_compute *c)
{
    heed_tensor view;
    sliced(&view, c);
    heed_copy(c->ctx, c->out[0], &view);
    return HEED_OK;
}

/* ---- Split ---- */

/* Sizes that are given, in an attribute (opset 11) or an input; NULL: equal parts. */
static int split_sizes(heed_infer *i, const int64_t **sizes, int *n)
{
    *sizes = heed_node_ints(i->node, "split", n);
    if (*sizes || absent(i, 1)) return 1;
    return heed_infer_known_ints(i, 1, sizes, n);
}

static heed_status check_sizes(heed_infer *i, const int64_t *sizes, int n, int64_t dim)
{
    int64_t sum = 0;
    if (n != i->n_out) return heed_infer_fail(i, "split has %d entries, expected %d, one for each output", n, i->n_out);
    for (int k = 0; k < n; k++)
        if (sizes[k] < 0 || __builtin_add_overflow(sum, sizes[k], &sum))
            return heed_infer_fail(i, "split[%d] is %lld, expected 0 or more", k, (long long) sizes[k]);
    if (dim >= 0 && sum != dim)
        return heed_infer_fail(i, "the entries of split sum to %lld, expected %lld", (long long) sum, (long long) dim);
    return HEED_OK;
}

/* Equal parts; since opset 18 the last one may be smaller. */
static heed_status equal_parts(heed_infer *i, int axis, int64_t dim)
{
    int64_t n = heed_node_int(i->node, "num_outputs", i->n_out);
    if (n != i->n_out)
        return heed_infer_fail(i, "num_outputs is %lld, expected %d, the number of its outputs", (long long) n, i->n_out);
    if (dim < 0) {
        int64_t each = heed_dims_div(i->dims, dim, n);
        int divides = i->node->version < 18 || heed_dims_mul(i->dims, each, n) == dim;
        for (int k = 0; k < n && divides; k++) i->out[k].dims[axis] = each;
        return HEED_OK;
    }
    if (dim % n != 0 && i->node->version < 18)
        return heed_infer_fail(i, "dimension %d of size %lld does not divide into %lld equal parts", axis, (long long) dim,
                               (long long) n);
    int64_t part = dim / n + (dim % n != 0), left = dim;
    for (int k = 0; k < n; k++) {
        i->out[k].dims[axis] = left < part ? left : part;
        left -= i->out[k].dims[axis];
    }
    return HEED_OK;
}

static heed_status split_ints(heed_infer *i)
{
    const int64_t *ints;
    int n, at = 0;
    if (i->in[0]->rank != 1 || !heed_infer_ints(i, 0, &ints, &n)) return HEED_OK;
    for (int k = 0; k < i->n_out; k++) {
        int64_t size = i->out[k].dims[0];
        if (size < 0 || size > n - at) return HEED_OK;
        HEED_TRY(heed_infer_set_ints(i, k, 1, ints + at, (int) size));
        at += (int) size;
    }
    return HEED_OK;
}

static heed_status infer_split(heed_infer *i)
{
    const heed_fact *in = i->in[0];
    const int64_t *sizes;
    int axis, n;
    for (int k = 0; k < i->n_out; k++) i->out[k].dtype = in->dtype;
    if (in->rank < 0) return HEED_OK;
    HEED_TRY(heed_infer_axis(i, "axis", heed_node_int(i->node, "axis", 0), in->rank, &axis));
    for (int k = 0; k < i->n_out; k++) {
        i->out[k].rank = in->rank;
        memcpy(i->out[k].dims, in->dims, sizeof in->dims);
        i->out[k].dims[axis] = HEED_DIM_UNKNOWN;
    }
    if (!split_sizes(i, &sizes, &n)) return HEED_OK;
    if (!sizes) {
        HEED_TRY(equal_parts(i, axis, in->dims[axis]));
    } else {
        HEED_TRY(check_sizes(i, sizes, n, in->dims[axis]));
        for (int k = 0; k < n; k++) i->out[k].dims[axis] = sizes[k];
    }
    return split_ints(i);
}

static void split_part(heed_tensor *view, const heed_compute *c, const heed_tensor *shape, int64_t offset)
{
    *view = *shape;
    memcpy(view->strides, c->in[0]->strides, sizeof view->strides);
    view->data = c->in[0]->data ? (char *) c->in[0]->data + offset * (int64_t) heed_dtype_size(shape->dtype) : NULL;
}

/* Where part k starts, in elements of the input. An output that is not wanted still takes its room. */
static int64_t split_size(const heed_compute *c, int k, int axis)
{
    int n;
    const int64_t *sizes = heed_node_ints(c->node, "split", &n);
    if (c->out[k]) return c->out[k]->dims[axis];
    if (sizes) return sizes[k];
    if (heed_compute_has(c, 1)) return heed_tensor_int(c->in[1], k);
    int64_t dim = c->in[0]->dims[axis], part = dim / c->n_out + (dim % c->n_out != 0), left = dim - part * k;
    return left < 0 ? 0 : left < part ? left : part;
}

static int view_split(heed_compute *c)
{
    int axis = heed_axis(heed_node_int(c->node, "axis", 0), c->in[0]->rank);
    int64_t at = 0;
    for (int k = 0; k < c->n_out; k++) {
        int64_t size = split_size(c, k, axis);
        if (c->out[k]) split_part(c->out[k], c, c->out[k], size ? at * c->in[0]->strides[axis] : 0);
        at += size;
    }
    return 1;
}

static heed_status compute_split(heed_compute *c)
{
    int axis = heed_axis(heed_node_int(c->node, "axis", 0), c->in[0]->rank);
    int64_t at = 0;
    for (int k = 0; k < c->n_out; k++) {
        int64_t size = split_size(c, k, axis);
        heed_tensor part;
        if (c->out[k] && size) {
            split_part(&part, c, c->out[k], at * c->in[0]->strides[axis]);
            heed_copy(c->ctx, c->out[k], &part);
        }
        at += size;
    }
    return HEED_OK;
}

/* ---- ReverseSequence: the first entries along an axis, as many as each batch says, the other way round ---- */

static heed_status infer_reverse(heed_infer *i)
{
    const heed_fact *in = i->in[0], *lengths = i->in[1];
    int64_t batch = heed_node_int(i->node, "batch_axis", 1), time = heed_node_int(i->node, "time_axis", 0);
    HEED_TRY(heed_infer_same(i));
    if (batch < 0 || batch > 1 || time < 0 || time > 1 || batch == time)
        return heed_infer_fail(i, "batch_axis and time_axis are %lld and %lld, expected 0 and 1, or 1 and 0", (long long) batch,
                               (long long) time);
    if (in->rank >= 0 && in->rank < 2) return heed_infer_fail(i, "its input has rank %d, expected 2 or more", in->rank);
    if (in->rank < 0 || lengths->rank < 0) return HEED_OK;
    if (lengths->rank != 1 || (lengths->dims[0] >= 0 && in->dims[batch] >= 0 && lengths->dims[0] != in->dims[batch]))
        return heed_infer_fail(i, "sequence_lens has shape %s, expected [%lld]", heed_infer_shape_text(i, lengths),
                               (long long) in->dims[batch]);
    return HEED_OK;
}

static heed_status compute_reverse(heed_compute *c)
{
    int batch = (int) heed_node_int(c->node, "batch_axis", 1), time = 1 - batch;
    int64_t size = (int64_t) heed_dtype_size(c->out[0]->dtype), n = c->in[0]->dims[time];
    heed_tensor from = *c->in[0], to = *c->out[0];
    heed_copy(c->ctx, &to, &from);
    from.dims[batch] = to.dims[batch] = 1;
    for (int64_t b = 0; b < c->in[0]->dims[batch]; b++) {
        int64_t length = heed_tensor_int(c->in[1], b);
        if (length < 0 || length > n)
            return heed_compute_fail(c, "sequence_lens[%lld] is %lld, expected 0 to %lld", (long long) b, (long long) length,
                                     (long long) n);
        if (length == 0 || heed_tensor_count(c->in[0]) == 0) continue;
        from.dims[time] = to.dims[time] = length;
        from.strides[time] = -c->in[0]->strides[time];
        from.data = (char *) c->in[0]->data + (b * c->in[0]->strides[batch] + (length - 1) * c->in[0]->strides[time]) * size;
        to.data = (char *) c->out[0]->data + b * to.strides[batch] * size;
        heed_copy(c->ctx, &to, &from);
    }
    return HEED_OK;
}

const heed_op heed_ops_slice[] = {
    HEED_OP("Slice", 10, 3, 5, 1, .flags = HEED_OP_STRIDED, .infer = infer_slice, .compute = compute_slice, .view = view_slice,
            .shape_inputs = 0x1e),
    HEED_OP("Split", 11, 1, 1, -1, .flags = HEED_OP_STRIDED, .infer = infer_split, .compute = compute_split, .view = view_split),
    HEED_OP("Split", 13, 1, 2, -1, .flags = HEED_OP_STRIDED, .infer = infer_split, .compute = compute_split, .view = view_split,
            .shape_inputs = 1u << 1),
    HEED_OP("ReverseSequence", 10, 2, 2, 1, .flags = HEED_OP_STRIDED, .infer = infer_reverse, .compute = compute_reverse),
    { 0 },
};
