/* Larger tensors out of smaller ones: Concat, Tile, Pad. */
#include <string.h>

#include "ops/util.h"

/* ---- Concat ---- */

static heed_status concat_ints(heed_infer *i)
{
    int total = 0, n;
    const int64_t *ints;
    for (int k = 0; k < i->n_in; k++) {
        if (!i->in[k] || i->in[k]->rank != 1 || !heed_infer_ints(i, k, &ints, &n)) return HEED_OK;
        total += n;
        if (total > HEED_INTS_MAX) return HEED_OK;
    }
    int64_t *all = heed_infer_new_ints(i, total);
    if (!all) return heed_infer_memory(i);
    for (int k = 0, at = 0; k < i->n_in; k++, at += n) {
        heed_infer_ints(i, k, &ints, &n);
        memcpy(all + at, ints, (size_t) n * sizeof *all);
    }
    return heed_infer_set_ints(i, 0, 1, all, total);
}

/* Dimension d of all inputs: the same, so what one knows holds for all. */
static heed_status common_dim(heed_infer *i, int d)
{
    int64_t *dim = &i->out[0].dims[d];
    *dim = HEED_DIM_UNKNOWN;
    for (int k = 0; k < i->n_in; k++) {
        if (!i->in[k] || i->in[k]->rank < 0) continue;
        int64_t other = i->in[k]->dims[d];
        if (*dim >= 0 && other >= 0 && *dim != other)
            return heed_infer_fail(i, "input %d has shape %s, expected %lld in dimension %d", k,
                                   heed_infer_shape_text(i, i->in[k]), (long long) *dim, d);
        if (*dim == HEED_DIM_UNKNOWN || (*dim < 0 && other >= 0)) *dim = other;
    }
    return HEED_OK;
}

static heed_status infer_concat(heed_infer *i)
{
    heed_fact *out = &i->out[0];
    int rank = -1, axis, all_known = 1;
    HEED_TRY(heed_infer_same_type(i, 0, i->n_in - 1, &out->dtype));
    for (int k = 0; k < i->n_in; k++) {
        if (!i->in[k]) return heed_infer_fail(i, "input %d is missing", k);
        if (i->in[k]->rank < 0) all_known = 0;
        else if (rank >= 0 && i->in[k]->rank != rank)
            return heed_infer_fail(i, "input %d has rank %d, expected %d", k, i->in[k]->rank, rank);
        else rank = i->in[k]->rank;
    }
    if (rank < 0) return HEED_OK;
    if (!heed_node_attr(i->node, "axis")) return heed_infer_fail(i, "attribute axis is missing");
    HEED_TRY(heed_infer_axis(i, "axis", heed_node_int(i->node, "axis", 0), rank, &axis));
    out->rank = rank;
    for (int d = 0; d < rank; d++)
        if (d != axis) HEED_TRY(common_dim(i, d));
    int64_t sum = 0;
    for (int k = 0; k < i->n_in && all_known; k++) sum = heed_dims_add(i->dims, sum, i->in[k]->dims[axis]);
    out->dims[axis] = all_known ? sum : HEED_DIM_UNKNOWN;
    return concat_ints(i);
}

static heed_status compute_concat(heed_compute *c)
{
    heed_tensor *out = c->out[0];
    int axis = heed_axis(heed_node_int(c->node, "axis", 0), out->rank);
    char *at = out->data;
    for (int k = 0; k < c->n_in; k++) {
        heed_tensor part = *out;
        part.dims[axis] = c->in[k]->dims[axis];
        part.data = at;
        heed_copy(c->ctx, &part, c->in[k]);
        at += part.dims[axis] * out->strides[axis] * (int64_t) heed_dtype_size(out->dtype);
    }
    return HEED_OK;
}

/* ---- Tile ---- */

static heed_status infer_tile(heed_infer *i)
{
    const heed_fact *in = i->in[0];
    const int64_t *repeats;
    int n;
    i->out[0].dtype = in->dtype;
    if (in->rank < 0) return HEED_OK;
    heed_fact_unknown_dims(&i->out[0], in->rank);
    if (!heed_infer_ints(i, 1, &repeats, &n)) return HEED_OK;
    if (n != in->rank) return heed_infer_fail(i, "repeats has %d entries, expected %d, the rank of its input", n, in->rank);
    for (int d = 0; d < n; d++) {
        int64_t number = -1;
        if (heed_dims_known(i->dims, repeats[d], &number) && number < 0)
            return heed_infer_fail(i, "repeats[%d] is %lld, expected 0 or more", d, (long long) number);
        i->out[0].dims[d] = heed_dims_mul(i->dims, in->dims[d], repeats[d]);
        if (number >= 0 && in->dims[d] >= 0 && i->out[0].dims[d] < 0) return heed_infer_fail(i, "repeats[%d] is too large", d);
    }
    return HEED_OK;
}

/* Source and destination as one more dimension for each repeat; those that no tensor has room for are loops here. */
struct tile_dims {
    int n;
    int64_t dims[2 * HEED_RANK_MAX], from[2 * HEED_RANK_MAX], to[2 * HEED_RANK_MAX];
};

static void tile(const heed_compute *c, const struct tile_dims *t, int skip, char *to)
{
    int64_t size = (int64_t) heed_dtype_size(c->out[0]->dtype);
    if (t->n - skip > HEED_RANK_MAX) {
        for (int64_t k = 0; k < t->dims[skip]; k++) tile(c, t, skip + 1, to + k * t->to[skip] * size);
        return;
    }
    heed_tensor src = { .dtype = c->out[0]->dtype, .rank = t->n - skip, .data = c->in[0]->data }, dst = src;
    dst.data = to;
    for (int d = 0; d < src.rank; d++) {
        src.dims[d] = dst.dims[d] = t->dims[skip + d];
        src.strides[d] = t->from[skip + d], dst.strides[d] = t->to[skip + d];
    }
    heed_copy(c->ctx, &dst, &src);
}

static heed_status compute_tile(heed_compute *c)
{
    const heed_tensor *in = c->in[0], *out = c->out[0];
    if (heed_tensor_count(out) == 0) return HEED_OK;
    struct tile_dims t = { 0 };
    for (int pass = 0; pass < 2; pass++) { /* repeats first: they may become loops, where the source stays the same */
        for (int d = 0; d < in->rank; d++) {
            int64_t dim = pass ? in->dims[d] : out->dims[d] / in->dims[d];
            if (dim == 1) continue;
            t.dims[t.n] = dim;
            t.from[t.n] = pass ? in->strides[d] : 0;
            t.to[t.n++] = pass ? out->strides[d] : out->strides[d] * in->dims[d];
        }
    }
    tile(c, &t, 0, out->data);
    return HEED_OK;
}

/* ---- Pad ---- */

typedef enum pad_mode { PAD_CONSTANT, PAD_REFLECT, PAD_EDGE, PAD_WRAP, PAD_MODES } pad_mode;

static pad_mode read_mode(const heed_node *node)
{
    static const char *const names[] = { "constant", "reflect", "edge", "wrap" };
    const char *text = heed_node_string(node, "mode", "constant");
    int mode = 0;
    while (mode < PAD_MODES && strcmp(text, names[mode]) != 0) mode++;
    return (pad_mode) mode;
}

static heed_status pad_axes(heed_infer *i, int rank, int *axes, int *n, int *known)
{
    const int64_t *given;
    *known = 1, *n = rank;
    for (int d = 0; d < rank; d++) axes[d] = d;
    if (i->n_in < 4 || !i->in[3]) return HEED_OK;
    *known = heed_infer_known_ints(i, 3, &given, n);
    if (!*known) return HEED_OK;
    if (*n > rank) return heed_infer_fail(i, "axes has %d entries, expected at most %d", *n, rank);
    for (int k = 0; k < *n; k++) {
        axes[k] = heed_axis(given[k], rank);
        if (axes[k] < 0)
            return heed_infer_fail(i, "axes[%d] is %lld, expected %d to %d", k, (long long) given[k], -rank, rank - 1);
    }
    return HEED_OK;
}

static heed_status infer_pad(heed_infer *i)
{
    const heed_fact *in = i->in[0];
    heed_fact *out = &i->out[0];
    const int64_t *pads;
    int n, n_axes, known, axes[HEED_RANK_MAX];
    pad_mode mode = read_mode(i->node);
    if (mode == PAD_MODES)
        return heed_infer_fail(i, "mode is '%s', expected constant, reflect, edge or wrap",
                               heed_node_string(i->node, "mode", ""));
    out->dtype = in->dtype;
    if (in->rank < 0) return HEED_OK;
    heed_fact_unknown_dims(out, in->rank);
    HEED_TRY(pad_axes(i, in->rank, axes, &n_axes, &known));
    if (!known || !heed_infer_ints(i, 1, &pads, &n)) return HEED_OK;
    if (n != 2 * n_axes) return heed_infer_fail(i, "pads has %d entries, expected %d", n, 2 * n_axes);
    memcpy(out->dims, in->dims, sizeof out->dims);
    for (int k = 0; k < n_axes; k++) {
        int d = axes[k];
        int64_t size = heed_dims_add(i->dims, heed_dims_add(i->dims, in->dims[d], pads[k]), pads[n_axes + k]), number;
        if (heed_dims_known(i->dims, size, &number) && number < 0)
            return heed_infer_fail(i, "pads[%d] and pads[%d] leave %lld of dimension %d", k, n_axes + k, (long long) number, d);
        if (size < 0 && heed_fact_shape_known(in)) return heed_infer_fail(i, "pads[%d] is too large", k);
        if (mode != PAD_CONSTANT && in->dims[d] == 0 && size > 0)
            return heed_infer_fail(i, "dimension %d is empty, there is nothing to pad it with", d);
        out->dims[d] = size;
    }
    return HEED_OK;
}

/* How many are added before the first element of each axis. */
static void pads_before(const heed_compute *c, int64_t *before)
{
    int rank = c->out[0]->rank;
    const heed_tensor *axes = heed_compute_has(c, 3) ? c->in[3] : NULL;
    int64_t n = heed_tensor_count(c->in[1]) / 2;
    for (int d = 0; d < rank; d++) before[d] = 0;
    for (int64_t k = 0; k < n; k++) before[axes ? heed_axis(heed_tensor_int(axes, k), rank) : k] = heed_tensor_int(c->in[1], k);
}

/* Fill with the constant, then copy what is kept. */
static void pad_constant(heed_compute *c, const int64_t *before)
{
    heed_tensor *out = c->out[0], kept = *out, source = *c->in[0];
    uint64_t zero = 0;
    const heed_tensor *given = heed_compute_has(c, 2) && heed_tensor_count(c->in[2]) ? c->in[2] : NULL;
    heed_tensor value = *out;
    memset(value.strides, 0, sizeof value.strides);
    value.data = given ? given->data : &zero;
    heed_copy(c->ctx, out, &value);
    int64_t to = 0, from = 0;
    for (int d = 0; d < out->rank; d++) {
        int64_t first = before[d] < 0 ? -before[d] : 0, last = out->dims[d] - before[d]; /* of the input, kept */
        if (last > source.dims[d]) last = source.dims[d];
        if (last <= first) return;
        from += first * source.strides[d], to += (first + before[d]) * out->strides[d];
        kept.dims[d] = last - first;
    }
    int64_t size = (int64_t) heed_dtype_size(out->dtype);
    memcpy(source.dims, kept.dims, sizeof source.dims);
    source.data = (char *) source.data + from * size;
    kept.data = (char *) kept.data + to * size;
    heed_copy(c->ctx, &kept, &source);
}

static int64_t pad_source(pad_mode mode, int64_t at, int64_t n)
{
    int64_t period;
    switch (mode) {
    case PAD_REFLECT:
        if (n == 1) return 0;
        period = 2 * (n - 1);
        at = (at % period + period) % period;
        return at < n ? at : period - at;
    case PAD_WRAP: return (at % n + n) % n;
    default: return at < 0 ? 0 : at >= n ? n - 1 : at;
    }
}

struct pad_job {
    const heed_tensor *out, *in;
    const int64_t *maps[HEED_RANK_MAX]; /* byte offset in the input of each index of an axis */
};

static void pad_lines(void *arg, int64_t begin, int64_t end)
{
    const struct pad_job *job = arg;
    int last = job->out->rank - 1;
    int64_t n = job->out->dims[last], size = (int64_t) heed_dtype_size(job->out->dtype);
    const int64_t *map = job->maps[last];
    for (int64_t line = begin; line < end; line++) {
        const char *from = job->in->data;
        char *to = (char *) job->out->data + line * n * size;
        int64_t rest = line;
        for (int d = last - 1; d >= 0; d--) {
            from += job->maps[d][rest % job->out->dims[d]];
            rest /= job->out->dims[d];
        }
        for (int64_t k = 0; k < n; k++) memcpy(to + k * size, from + map[k], (size_t) size);
    }
}

static size_t scratch_pad(const heed_compute *c)
{
    size_t n = 0;
    if (read_mode(c->node) == PAD_CONSTANT) return 0;
    for (int d = 0; d < c->out[0]->rank; d++) n = heed_size_add(n, (size_t) c->out[0]->dims[d]);
    return heed_size_mul(n, sizeof(int64_t));
}

static heed_status compute_pad(heed_compute *c)
{
    const heed_tensor *out = c->out[0], *in = c->in[0];
    int64_t before[HEED_RANK_MAX], *map = c->scratch, count = heed_tensor_count(out);
    pad_mode mode = read_mode(c->node);
    pads_before(c, before);
    if (count == 0) return HEED_OK;
    if (mode == PAD_CONSTANT || out->rank == 0) {
        pad_constant(c, before);
        return HEED_OK;
    }
    struct pad_job job = { .out = out, .in = in };
    for (int d = 0; d < out->rank; map += out->dims[d], d++) {
        for (int64_t k = 0; k < out->dims[d]; k++)
            map[k] = pad_source(mode, k - before[d], in->dims[d]) * in->strides[d] * (int64_t) heed_dtype_size(in->dtype);
        job.maps[d] = map;
    }
    int64_t n = out->dims[out->rank - 1];
    heed_parallel_ranges(c->ctx, count / n, HEED_GRAIN / n, pad_lines, &job);
    return HEED_OK;
}

const heed_op heed_ops_join[] = {
    HEED_OP("Concat", 4, 1, -1, 1, .flags = HEED_OP_STRIDED, .infer = infer_concat, .compute = compute_concat),
    HEED_OP("Tile", 6, 2, 2, 1, .flags = HEED_OP_STRIDED, .infer = infer_tile, .compute = compute_tile, .shape_inputs = 1u << 1),
    HEED_OP("Pad", 11, 2, 4, 1, .flags = HEED_OP_STRIDED, .infer = infer_pad, .compute = compute_pad, .scratch = scratch_pad,
            .shape_inputs = 0xa),
    { 0 },
};
