/* Elements by index: Gather, GatherElements, GatherND. Indices come from the data of a model, so every one is checked. */
#include <string.h>

#include "ops/util.h"

int64_t heed_index_at(const heed_tensor *t, int64_t k)
{
    return t->dtype == HEED_I32 ? ((const int32_t *) t->data)[k] : ((const int64_t *) t->data)[k];
}

heed_status heed_infer_index_type(const heed_infer *i, int input)
{
    heed_dtype type = i->in[input]->dtype;
    if (type == HEED_DTYPE_NONE || type == HEED_I32 || type == HEED_I64) return HEED_OK;
    return heed_infer_fail(i, "indices are %s, expected i32 or i64", heed_dtype_name(type));
}

heed_status heed_compute_index_range(const heed_compute *c, int64_t k, int64_t index, int64_t n)
{
    if (n == 0)
        return heed_compute_fail(c, "indices[%lld] is %lld, but the dimension is empty", (long long) k, (long long) index);
    return heed_compute_fail(c, "indices[%lld] is %lld, expected %lld to %lld", (long long) k, (long long) index, (long long) -n,
                             (long long) (n - 1));
}

/* ---- Gather ---- */

static heed_status gather_ints(heed_infer *i)
{
    const int64_t *ints, *at;
    int n, n_at;
    if (i->in[0]->rank != 1 || i->out[0].rank > 1 || !heed_infer_ints(i, 0, &ints, &n) ||
        !heed_infer_known_ints(i, 1, &at, &n_at))
        return HEED_OK;
    int64_t *picked = heed_infer_new_ints(i, n_at);
    if (!picked) return heed_infer_memory(i);
    for (int k = 0; k < n_at; k++) {
        if (at[k] < -n || at[k] >= n)
            return heed_infer_fail(i, "indices[%d] is %lld, expected %d to %d", k, (long long) at[k], -n, n - 1);
        picked[k] = ints[at[k] < 0 ? at[k] + n : at[k]];
    }
    return heed_infer_set_ints(i, 0, i->out[0].rank, picked, n_at);
}

static heed_status infer_gather(heed_infer *i)
{
    const heed_fact *in = i->in[0], *indices = i->in[1];
    heed_fact *out = &i->out[0];
    int axis, n = 0;
    out->dtype = in->dtype;
    HEED_TRY(heed_infer_index_type(i, 1));
    if (in->rank < 0) return HEED_OK;
    HEED_TRY(heed_infer_axis(i, "axis", heed_node_int(i->node, "axis", 0), in->rank, &axis));
    if (indices->rank < 0) return HEED_OK;
    if (in->rank + indices->rank - 1 > HEED_RANK_MAX)
        return heed_infer_fail(i, "the result has rank %d, expected at most %d", in->rank + indices->rank - 1, HEED_RANK_MAX);
    for (int d = 0; d < axis; d++) out->dims[n++] = in->dims[d];
    for (int d = 0; d < indices->rank; d++) out->dims[n++] = indices->dims[d];
    for (int d = axis + 1; d < in->rank; d++) out->dims[n++] = in->dims[d];
    out->rank = n;
    return gather_ints(i);
}

/* One known index: the part of the input that it names. */
static int view_gather(heed_compute *c)
{
    const heed_tensor *in = c->in[0], *indices = c->in[1];
    heed_tensor *out = c->out[0];
    if (!indices->data || heed_tensor_count(indices) != 1) return 0;
    int axis = heed_axis(heed_node_int(c->node, "axis", 0), in->rank), n = 0;
    int64_t at = heed_tensor_int(indices, 0), dim = in->dims[axis];
    if (at < -dim || at >= dim) return 0; /* compute() says so */
    if (at < 0) at += dim;
    for (int d = 0; d < axis; d++) out->strides[n++] = in->strides[d];
    for (int d = 0; d < indices->rank; d++) out->strides[n++] = 0;
    for (int d = axis + 1; d < in->rank; d++) out->strides[n++] = in->strides[d];
    out->data = in->data ? (char *) in->data + at * in->strides[axis] * (int64_t) heed_dtype_size(in->dtype) : NULL;
    return 1;
}

struct gather_job {
    const heed_tensor *indices;
    const char *from;
    char *to;
    int64_t n, dim, bytes; /* indices; size of the axis; bytes of what one index names */
};

static void gather_slices(void *arg, int64_t begin, int64_t end)
{
    const struct gather_job *job = arg;
    for (int64_t k = begin; k < end; k++) {
        int64_t at = heed_index_at(job->indices, k % job->n);
        if (at < 0) at += job->dim;
        memcpy(job->to + k * job->bytes, job->from + (k / job->n * job->dim + at) * job->bytes, (size_t) job->bytes);
    }
}

static heed_status compute_gather(heed_compute *c)
{
    const heed_tensor *in = c->in[0], *indices = c->in[1];
    int axis = heed_axis(heed_node_int(c->node, "axis", 0), in->rank);
    int64_t outer = 1, dim = in->dims[axis], n = heed_tensor_count(indices);
    struct gather_job job = { indices, in->data, c->out[0]->data, n, dim, (int64_t) heed_dtype_size(in->dtype) };
    if (heed_tensor_count(c->out[0]) == 0) return HEED_OK;
    for (int64_t k = 0; k < n; k++) {
        int64_t at = heed_index_at(indices, k);
        if (at < -dim || at >= dim) return heed_compute_index_range(c, k, at, dim);
    }
    for (int d = 0; d < axis; d++) outer *= in->dims[d];
    for (int d = axis + 1; d < in->rank; d++) job.bytes *= in->dims[d];
    heed_parallel_ranges(c->ctx, outer * n, 4 * HEED_GRAIN / job.bytes, gather_slices, &job);
    return HEED_OK;
}

/* ---- GatherElements ---- */

static heed_status infer_gather_elements(heed_infer *i)
{
    const heed_fact *in = i->in[0], *indices = i->in[1];
    heed_fact *out = &i->out[0];
    int axis;
    HEED_TRY(heed_infer_index_type(i, 1));
    *out = *indices;
    out->value = NULL, out->ints = NULL;
    out->dtype = in->dtype;
    if (in->rank < 0 || indices->rank < 0) return HEED_OK;
    HEED_TRY(heed_infer_axis(i, "axis", heed_node_int(i->node, "axis", 0), in->rank, &axis));
    if (indices->rank != in->rank)
        return heed_infer_fail(i, "indices have rank %d, expected %d, the rank of data", indices->rank, in->rank);
    for (int d = 0; d < in->rank; d++)
        if (d != axis && in->dims[d] >= 0 && indices->dims[d] > in->dims[d])
            return heed_infer_fail(i, "indices have %lld in dimension %d, expected at most %lld", (long long) indices->dims[d], d,
                                   (long long) in->dims[d]);
    return HEED_OK;
}

struct elements_job {
    const heed_tensor *in, *indices;
    heed_tensor *out;
    int axis;
};

#define TAKE(type)                                                                                                               \
    for (int64_t k = 0; k < n; k++) {                                                                                            \
        int64_t at = heed_index_at(job->indices, first + k);                                                                     \
        if (at < 0) at += dim;                                                                                                   \
        ((type *) to)[k] = ((const type *) from)[k * along + at * step];                                                         \
    }

/* Lines along the last axis. */
static void take_lines(void *arg, int64_t begin, int64_t end)
{
    const struct elements_job *job = arg;
    const heed_tensor *in = job->in, *indices = job->indices;
    int last = in->rank - 1;
    int64_t n = indices->dims[last], dim = in->dims[job->axis], step = in->strides[job->axis];
    int64_t along = job->axis == last ? 0 : in->strides[last];
    size_t size = heed_dtype_size(in->dtype);
    for (int64_t line = begin; line < end; line++) {
        int64_t offset = 0, rest = line, first = line * n;
        for (int d = last - 1; d >= 0; d--) {
            if (d != job->axis) offset += rest % indices->dims[d] * in->strides[d];
            rest /= indices->dims[d];
        }
        const char *from = (const char *) in->data + offset * (int64_t) size;
        char *to = (char *) job->out->data + (size_t) first * size;
        switch (size) {
        case 1: TAKE(uint8_t) break;
        case 2: TAKE(uint16_t) break;
        case 4: TAKE(uint32_t) break;
        default: TAKE(uint64_t) break;
        }
    }
}

static heed_status compute_gather_elements(heed_compute *c)
{
    const heed_tensor *in = c->in[0], *indices = c->in[1];
    int64_t count = heed_tensor_count(indices);
    if (count == 0) return HEED_OK;
    struct elements_job job = { in, indices, c->out[0], heed_axis(heed_node_int(c->node, "axis", 0), in->rank) };
    int64_t dim = in->dims[job.axis], n = indices->dims[in->rank - 1];
    for (int64_t k = 0; k < count; k++) {
        int64_t at = heed_index_at(indices, k);
        if (at < -dim || at >= dim) return heed_compute_index_range(c, k, at, dim);
    }
    heed_parallel_ranges(c->ctx, count / n, HEED_GRAIN / n, take_lines, &job);
    return HEED_OK;
}

/* ---- GatherND ---- */

static heed_status infer_gather_nd(heed_infer *i)
{
    const heed_fact *in = i->in[0], *indices = i->in[1];
    heed_fact *out = &i->out[0];
    int64_t batch = heed_node_int(i->node, "batch_dims", 0);
    out->dtype = in->dtype;
    HEED_TRY(heed_infer_index_type(i, 1));
    if (in->rank < 0 || indices->rank < 0) return HEED_OK;
    if (in->rank < 1 || indices->rank < 1)
        return heed_infer_fail(i, "data and indices have ranks %d and %d, expected 1 or more", in->rank, indices->rank);
    if (batch < 0 || batch >= in->rank || batch >= indices->rank)
        return heed_infer_fail(i, "batch_dims is %lld, expected less than the ranks %d and %d of its inputs", (long long) batch,
                               in->rank, indices->rank);
    int64_t depth = indices->dims[indices->rank - 1];
    if (depth < 0) return HEED_OK;
    if (depth > in->rank - batch)
        return heed_infer_fail(i, "indices name %lld axes, expected at most %d", (long long) depth, in->rank - (int) batch);
    int rest = in->rank - (int) batch - (int) depth, n = 0;
    if (indices->rank - 1 + rest > HEED_RANK_MAX)
        return heed_infer_fail(i, "the result has rank %d, expected at most %d", indices->rank - 1 + rest, HEED_RANK_MAX);
    for (int d = 0; d < indices->rank - 1; d++) out->dims[n++] = indices->dims[d];
    for (int d = in->rank - rest; d < in->rank; d++) out->dims[n++] = in->dims[d];
    out->rank = n;
    for (int d = 0; d < batch; d++)
        if (in->dims[d] >= 0 && indices->dims[d] >= 0 && in->dims[d] != indices->dims[d])
            return heed_infer_fail(i, "indices have %lld in batch dimension %d, expected %lld", (long long) indices->dims[d], d,
                                   (long long) in->dims[d]);
    return HEED_OK;
}

/* Element offset that the tuple starting at entry `first` of the indices names, below axis `batch`; -1 with a message. */
int64_t heed_compute_tuple_offset(const heed_compute *c, const heed_tensor *data, const heed_tensor *indices, int64_t first,
                                  int depth, int batch, heed_status *status)
{
    int64_t offset = 0;
    for (int d = 0; d < depth; d++) {
        int64_t at = heed_index_at(indices, first + d), dim = data->dims[batch + d];
        if (at < -dim || at >= dim) {
            *status = heed_compute_index_range(c, first + d, at, dim);
            return -1;
        }
        offset += (at < 0 ? at + dim : at) * data->strides[batch + d];
    }
    return offset;
}

static heed_status compute_gather_nd(heed_compute *c)
{
    const heed_tensor *in = c->in[0], *indices = c->in[1];
    int batch = (int) heed_node_int(c->node, "batch_dims", 0), depth = (int) indices->dims[indices->rank - 1];
    int64_t size = (int64_t) heed_dtype_size(in->dtype), slice = size, tuples = 1, batches = 1;
    if (heed_tensor_count(c->out[0]) == 0) return HEED_OK;
    for (int d = batch + depth; d < in->rank; d++) slice *= in->dims[d];
    for (int d = 0; d < indices->rank - 1; d++) tuples *= indices->dims[d];
    for (int d = 0; d < batch; d++) batches *= in->dims[d];
    int64_t batch_bytes = heed_tensor_count(in) / (batches ? batches : 1) * size;
    heed_status status = HEED_OK;
    for (int64_t k = 0; k < tuples; k++) {
        int64_t offset = heed_compute_tuple_offset(c, in, indices, k * depth, depth, batch, &status);
        if (status != HEED_OK) return status;
        const char *from = (const char *) in->data + k / (tuples / batches) * batch_bytes + offset * size;
        memcpy((char *) c->out[0]->data + k * slice, from, (size_t) slice);
    }
    return HEED_OK;
}

const heed_op heed_ops_gather[] = {
    HEED_OP("Gather", 1, 2, 2, 1, .infer = infer_gather, .compute = compute_gather, .view = view_gather),
    HEED_OP("GatherElements", 11, 2, 2, 1, .infer = infer_gather_elements, .compute = compute_gather_elements),
    HEED_OP("GatherND", 11, 2, 2, 1, .infer = infer_gather_nd, .compute = compute_gather_nd),
    { 0 },
};
