/* A copy of a tensor with elements replaced by index: ScatterElements, ScatterND, TensorScatter. */
#include <string.h>

#include "ops/lines.h"

/* How an update joins what is there: a heed_join, -1 to replace, HEED_JOINS for a name that is not one. */
static int read_reduction(const heed_node *node)
{
    static const char *const names[HEED_JOINS] = { "add", "mul", "min", "max" };
    const char *text = heed_node_string(node, "reduction", "none");
    if (strcmp(text, "none") == 0) return -1;
    int r = 0;
    while (r < HEED_JOINS && strcmp(text, names[r]) != 0) r++;
    return r;
}

static heed_status check_reduction(const heed_infer *i)
{
    if (read_reduction(i->node) != HEED_JOINS) return HEED_OK;
    return heed_infer_fail(i, "reduction is '%s', expected none, add, mul, min or max",
                           heed_node_string(i->node, "reduction", ""));
}

/* to[k] = join(to[k], from[k]) for n elements that lie together. */
struct joiner {
    heed_dtype type;
    heed_line_fn *fn; /* NULL: replace */
};

static heed_status make_joiner(const heed_compute *c, struct joiner *joiner)
{
    int r = read_reduction(c->node);
    *joiner = (struct joiner){ c->out[0]->dtype, r < 0 ? NULL : heed_join_line((heed_join) r, c->out[0]->dtype) };
    return r >= 0 && !joiner->fn ? heed_compute_type(c, 0) : HEED_OK;
}

static void join(const struct joiner *joiner, char *to, const char *from, int64_t n)
{
    int64_t size = (int64_t) heed_dtype_size(joiner->type);
    if (joiner->fn) heed_line_apply(joiner->fn, joiner->type, (char *const[]){ to, to, (char *) (uintptr_t) from }, n);
    else memcpy(to, from, (size_t) (n * size));
}

static void start_from_data(heed_compute *c)
{
    if (c->out[0]->data != c->in[0]->data) heed_copy(c->ctx, c->out[0], c->in[0]);
}

/* ---- ScatterElements ---- */

static heed_status infer_scatter_elements(heed_infer *i)
{
    const heed_fact *in = i->in[0], *indices = i->in[1];
    int axis;
    heed_dtype type = in->dtype;
    HEED_TRY(check_reduction(i));
    HEED_TRY(heed_infer_index_type(i, 1));
    if (i->in[2]->dtype != HEED_DTYPE_NONE && type != HEED_DTYPE_NONE && i->in[2]->dtype != type)
        return heed_infer_fail(i, "updates are %s, expected %s", heed_dtype_name(i->in[2]->dtype), heed_dtype_name(type));
    HEED_TRY(heed_infer_same(i));
    if (in->rank < 0 || indices->rank < 0 || i->in[2]->rank < 0) return HEED_OK;
    HEED_TRY(heed_infer_axis(i, "axis", heed_node_int(i->node, "axis", 0), in->rank, &axis));
    if (indices->rank != in->rank || i->in[2]->rank != in->rank)
        return heed_infer_fail(i, "indices and updates have ranks %d and %d, expected %d, the rank of data", indices->rank,
                               i->in[2]->rank, in->rank);
    for (int d = 0; d < in->rank; d++) {
        int64_t n = indices->dims[d], m = i->in[2]->dims[d];
        if (n >= 0 && m >= 0 && n != m)
            return heed_infer_fail(i, "updates have %lld in dimension %d, expected %lld as indices", (long long) m, d,
                                   (long long) n);
        if (d != axis && in->dims[d] >= 0 && n > in->dims[d])
            return heed_infer_fail(i, "indices have %lld in dimension %d, expected at most %lld", (long long) n, d,
                                   (long long) in->dims[d]);
    }
    return HEED_OK;
}

static heed_status compute_scatter_elements(heed_compute *c)
{
    const heed_tensor *indices = c->in[1], *updates = c->in[2];
    heed_tensor *out = c->out[0];
    int axis = heed_axis(heed_node_int(c->node, "axis", 0), out->rank);
    int64_t count = heed_tensor_count(indices), size = (int64_t) heed_dtype_size(out->dtype), dim = out->dims[axis];
    struct joiner joiner;
    HEED_TRY(make_joiner(c, &joiner));
    start_from_data(c);
    int64_t index[HEED_RANK_MAX] = { 0 };
    for (int64_t k = 0; k < count; k++) {
        int64_t at = heed_index_at(indices, k), offset = 0;
        if (at < -dim || at >= dim) return heed_compute_index_range(c, k, at, dim);
        for (int d = 0; d < out->rank; d++) offset += (d == axis ? (at < 0 ? at + dim : at) : index[d]) * out->strides[d];
        join(&joiner, (char *) out->data + offset * size, (const char *) updates->data + k * size, 1);
        for (int d = out->rank - 1; d >= 0 && ++index[d] == indices->dims[d]; d--) index[d] = 0;
    }
    return HEED_OK;
}

/* ---- ScatterND ---- */

static heed_status infer_scatter_nd(heed_infer *i)
{
    const heed_fact *in = i->in[0], *indices = i->in[1], *updates = i->in[2];
    HEED_TRY(check_reduction(i));
    if (indices->dtype != HEED_DTYPE_NONE && indices->dtype != HEED_I64)
        return heed_infer_fail(i, "indices are %s, expected i64", heed_dtype_name(indices->dtype));
    if (updates->dtype != HEED_DTYPE_NONE && in->dtype != HEED_DTYPE_NONE && updates->dtype != in->dtype)
        return heed_infer_fail(i, "updates are %s, expected %s", heed_dtype_name(updates->dtype), heed_dtype_name(in->dtype));
    HEED_TRY(heed_infer_same(i));
    if (in->rank < 0 || indices->rank < 0 || updates->rank < 0) return HEED_OK;
    int64_t depth = indices->rank > 0 ? indices->dims[indices->rank - 1] : 0;
    if (in->rank < 1 || indices->rank < 1 || depth > in->rank)
        return heed_infer_fail(i, "indices have shape %s, expected [.., 0 to %d]", heed_infer_shape_text(i, indices), in->rank);
    if (depth < 0) return HEED_OK;
    int n = indices->rank - 1, rank = n + in->rank - (int) depth;
    int fits = updates->rank == rank;
    for (int d = 0; d < rank && fits; d++) {
        int64_t want = d < n ? indices->dims[d] : in->dims[d - n + depth];
        if (want >= 0 && updates->dims[d] >= 0 && want != updates->dims[d]) fits = 0;
    }
    return fits ? HEED_OK
                : heed_infer_fail(i, "updates have shape %s, which does not fit data %s and indices %s",
                                  heed_infer_shape_text(i, updates), heed_infer_shape_text(i, in),
                                  heed_infer_shape_text(i, indices));
}

static heed_status compute_scatter_nd(heed_compute *c)
{
    const heed_tensor *indices = c->in[1], *updates = c->in[2];
    heed_tensor *out = c->out[0];
    int depth = (int) indices->dims[indices->rank - 1];
    int64_t tuples = 1, slice = 1, size = (int64_t) heed_dtype_size(out->dtype);
    struct joiner joiner;
    HEED_TRY(make_joiner(c, &joiner));
    start_from_data(c);
    for (int d = 0; d < indices->rank - 1; d++) tuples *= indices->dims[d];
    for (int d = depth; d < out->rank; d++) slice *= out->dims[d];
    heed_status status = HEED_OK;
    if (slice == 0) return HEED_OK;
    for (int64_t k = 0; k < tuples; k++) {
        int64_t offset = heed_compute_tuple_offset(c, out, indices, k * depth, depth, 0, &status);
        if (status != HEED_OK) return status;
        join(&joiner, (char *) out->data + offset * size, (const char *) updates->data + k * slice * size, slice);
    }
    return HEED_OK;
}

/* ---- TensorScatter: new entries of a cache ---- */

static int is_circular(const heed_node *node)
{
    return strcmp(heed_node_string(node, "mode", "linear"), "circular") == 0;
}

static heed_status infer_tensor_scatter(heed_infer *i)
{
    const heed_fact *cache = i->in[0], *update = i->in[1], *at = i->n_in > 2 ? i->in[2] : NULL;
    const char *mode = heed_node_string(i->node, "mode", "linear");
    int axis;
    heed_dtype type;
    if (strcmp(mode, "linear") != 0 && strcmp(mode, "circular") != 0)
        return heed_infer_fail(i, "mode is '%s', expected linear or circular", mode);
    HEED_TRY(heed_infer_same_type(i, 0, 1, &type));
    HEED_TRY(heed_infer_same(i));
    if (cache->rank < 0 || update->rank < 0) return HEED_OK;
    HEED_TRY(heed_infer_axis(i, "axis", heed_node_int(i->node, "axis", -2), cache->rank, &axis));
    if (axis == 0) return heed_infer_fail(i, "axis is 0, the batch; expected another one");
    for (int d = 0; d < cache->rank; d++) {
        int64_t n = cache->dims[d], m = update->rank == cache->rank ? update->dims[d] : -1;
        if (update->rank != cache->rank || (n >= 0 && m >= 0 && (d == axis ? m > n : m != n)))
            return heed_infer_fail(i, "update has shape %s, which does not fit a cache of shape %s",
                                   heed_infer_shape_text(i, update), heed_infer_shape_text(i, cache));
    }
    if (at && at->rank >= 0 && (at->rank != 1 || (at->dims[0] >= 0 && cache->dims[0] >= 0 && at->dims[0] != cache->dims[0])))
        return heed_infer_fail(i, "write_indices have shape %s, expected one for each batch", heed_infer_shape_text(i, at));
    return HEED_OK;
}

static heed_status compute_tensor_scatter(heed_compute *c)
{
    const heed_tensor *update = c->in[1];
    heed_tensor *out = c->out[0];
    int axis = heed_axis(heed_node_int(c->node, "axis", -2), out->rank), circular = is_circular(c->node);
    int64_t size = (int64_t) heed_dtype_size(out->dtype), slots = out->dims[axis], n = update->dims[axis];
    int64_t inner = size, middle = 1;
    for (int d = axis + 1; d < out->rank; d++) inner *= out->dims[d];
    for (int d = 1; d < axis; d++) middle *= out->dims[d];
    start_from_data(c);
    if (heed_tensor_count(update) == 0) return HEED_OK;
    for (int64_t b = 0; b < out->dims[0]; b++) {
        int64_t first = heed_compute_has(c, 2) ? heed_tensor_int(c->in[2], b) : 0;
        if (first < 0 || first > slots - (circular ? 0 : n))
            return heed_compute_fail(c, "write_indices[%lld] is %lld, expected 0 to %lld", (long long) b, (long long) first,
                                     (long long) (slots - (circular ? 0 : n)));
        for (int64_t m = b * middle; m < (b + 1) * middle; m++)
            for (int64_t k = 0; k < n; k++)
                memcpy((char *) out->data + (m * slots + (first + k) % slots) * inner,
                       (const char *) update->data + (m * n + k) * inner, (size_t) inner);
    }
    return HEED_OK;
}

#define SCATTER(op, since, rule, run) HEED_OP(op, since, 3, 3, 1, .flags = HEED_OP_INPLACE, .infer = rule, .compute = run)

const heed_op heed_ops_scatter[] = {
    SCATTER("ScatterElements", 11, infer_scatter_elements, compute_scatter_elements),
    SCATTER("ScatterND", 11, infer_scatter_nd, compute_scatter_nd),
    HEED_OP("TensorScatter", 24, 2, 3, 1, .flags = HEED_OP_INPLACE, .infer = infer_tensor_scatter,
            .compute = compute_tensor_scatter),
    { 0 },
};
