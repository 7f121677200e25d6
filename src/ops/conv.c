/* Conv over one to six spatial axes. The patches under the window become columns of a matrix ("im2col", a chunk at a time), and
 * the weights times that matrix are the output; where a group has one channel (depthwise) the taps are added up directly. */
#include <string.h>

#include "ops/gemm.h"
#include "ops/line_io.h"
#include "ops/window.h"

/* Elements of the matrix of patches that exist at one time: small enough to stay near, large enough to share out. */
#define PATCH_ELEMENTS ((int64_t) 1 << 20)

/* ---- shapes ---- */

static heed_status check_channels(heed_infer *i)
{
    const heed_fact *x = i->in[0], *w = i->in[1], *b = i->n_in > 2 ? i->in[2] : NULL;
    int64_t group = heed_node_int(i->node, "group", 1), channels = x->dims[1], per_group = w->dims[1], out = w->dims[0];
    if (group < 1) return heed_infer_fail(i, "group is %lld, expected 1 or more", (long long) group);
    if (channels >= 0 && per_group >= 0 && (channels % group != 0 || channels / group != per_group))
        return heed_infer_fail(i, "x has %lld channels, w has %lld in each of %lld groups", (long long) channels,
                               (long long) per_group, (long long) group);
    if (out >= 0 && out % group != 0)
        return heed_infer_fail(i, "%lld output channels do not divide into %lld groups", (long long) out, (long long) group);
    if (b && b->rank >= 0 && (b->rank != 1 || (b->dims[0] >= 0 && out >= 0 && b->dims[0] != out)))
        return heed_infer_fail(i, "bias has shape %s, expected [%lld]", heed_infer_shape_text(i, b), (long long) out);
    return HEED_OK;
}

static heed_status infer_conv(heed_infer *i)
{
    const heed_fact *x = i->in[0], *w = i->in[1];
    heed_fact *out = &i->out[0];
    HEED_TRY(heed_infer_same_type(i, 0, i->n_in - 1, &out->dtype));
    if (out->dtype != HEED_DTYPE_NONE && !heed_dtype_is_float(out->dtype))
        return heed_infer_fail(i, "x is %s, expected a float", heed_dtype_name(out->dtype));
    if (x->rank < 0 || w->rank < 0) return HEED_OK;
    if (x->rank < 3 || w->rank != x->rank)
        return heed_infer_fail(i, "x has rank %d and w rank %d, expected one rank of 3 or more", x->rank, w->rank);
    HEED_TRY(check_channels(i));
    out->rank = x->rank;
    out->dims[0] = x->dims[0], out->dims[1] = w->dims[0];
    int n;
    const int64_t *kernel = heed_node_ints(i->node, "kernel_shape", &n);
    for (int d = 0; kernel && d < n && d < x->rank - 2; d++)
        if (w->dims[2 + d] >= 0 && kernel[d] != w->dims[2 + d])
            return heed_infer_fail(i, "kernel_shape has %lld at axis %d, w has %lld", (long long) kernel[d], d,
                                   (long long) w->dims[2 + d]);
    return heed_window_infer(i, x->rank - 2, w->dims + 2, x, out->dims + 2);
}

/* ---- patches ---- */

typedef struct conv {
    heed_window w;
    const heed_tensor *x, *weight, *bias, *y;
    heed_dtype dtype; /* of the computation: f32, or f64 */
    int64_t images, channels, group, out_channels;
    int64_t terms;   /* channels of a group x taps: rows of the matrix of patches */
    int64_t chunk;   /* columns of it at a time */
    int64_t at_once; /* images at a time */
    int direct;      /* patches are the input itself: a 1 x 1 window */
    void *patches;
    int64_t first_image, first, n; /* the piece that is worked on */
} conv;

static void init_conv(const heed_compute *c, conv *v)
{
    *v = (conv){ .x = c->in[0], .weight = c->in[1], .y = c->out[0] };
    if (heed_compute_has(c, 2)) v->bias = c->in[2];
    heed_window_init(&v->w, c->node, v->x, v->weight->dims + 2, v->y);
    v->dtype = v->x->dtype == HEED_F64 ? HEED_F64 : HEED_F32;
    v->images = v->x->dims[0], v->channels = v->x->dims[1], v->out_channels = v->weight->dims[0];
    v->group = heed_node_int(c->node, "group", 1);
    v->terms = v->weight->dims[1] * v->w.taps;
    v->direct = v->x->dtype == v->dtype && v->w.taps == 1 && v->w.in_count == v->w.out_count;
    for (int d = 0; d < v->w.n; d++)
        if (v->w.stride[d] != 1 || v->w.pad[d] != 0) v->direct = 0;
    int64_t rows = v->terms * v->group;
    v->chunk = rows ? PATCH_ELEMENTS / rows : v->w.out_count;
    if (v->chunk < 64) v->chunk = 64;
    if (v->chunk > v->w.out_count) v->chunk = v->w.out_count;
    v->at_once = v->chunk * rows > 0 ? PATCH_ELEMENTS / (v->chunk * rows) : 1;
    if (v->at_once < 1 || v->chunk < v->w.out_count) v->at_once = 1;
    if (v->at_once > v->images) v->at_once = v->images;
}

static int is_depthwise(const conv *v)
{
    return v->weight->dims[1] == 1 && v->dtype == HEED_F32 && v->group > 1;
}

/* The indices of output position p, and of tap t, along each axis. */
static void split_index(const int64_t *dims, int n, int64_t p, int64_t *index)
{
    for (int d = n - 1; d >= 0; d--) index[d] = p % dims[d], p /= dims[d];
}

/* `count` outputs along the last axis from `at` on, for one tap of it: inside the input are those from lo to hi. */
static void inside(const heed_window *w, int64_t at, int64_t tap, int64_t count, int64_t *lo, int64_t *hi)
{
    int axis = w->n - 1;
    int64_t first = heed_window_at(w, axis, at, tap), stride = w->stride[axis], size = w->in[axis];
    *lo = first >= 0 ? 0 : (-first + stride - 1) / stride;
    *hi = first >= size ? 0 : (size - first + stride - 1) / stride;
    if (*lo > count) *lo = count;
    if (*hi > count) *hi = count;
    if (*hi < *lo) *hi = *lo;
}

/* Outputs `from` to `from + n` of a row of the matrix of patches: one channel, one tap. */
static void patch_row(const conv *v, char *to, int64_t plane, const int64_t *tap, int64_t from, int64_t n)
{
    const heed_window *w = &v->w;
    int last = w->n - 1;
    int64_t size = (int64_t) heed_dtype_size(v->dtype), in_size = (int64_t) heed_dtype_size(v->x->dtype);
    int64_t at[HEED_SPATIAL_MAX];
    while (n > 0) {
        split_index(w->out, w->n, from, at);
        int64_t count = w->out[last] - at[last], line = 0, lo, hi;
        if (count > n) count = n;
        int outside = 0;
        for (int d = 0; d < last; d++) {
            int64_t i = heed_window_at(w, d, at[d], tap[d]);
            if (i < 0 || i >= w->in[d]) outside = 1;
            line = (line + i) * w->in[d + 1];
        }
        inside(w, at[last], tap[last], count, &lo, &hi);
        if (outside) lo = hi = 0;
        memset(to, 0, (size_t) (lo * size));
        if (hi > lo) {
            int64_t i = plane * w->in_count + line + heed_window_at(w, last, at[last] + lo, tap[last]);
            heed_cast_line(v->dtype, to + lo * size, size, v->x->dtype, heed_at(v->x->data, v->x->dtype, i),
                           w->stride[last] * in_size, hi - lo);
        }
        memset(to + hi * size, 0, (size_t) ((count - hi) * size));
        to += count * size, from += count, n -= count;
    }
}

static void patch_range(void *arg, int64_t begin, int64_t end)
{
    const conv *v = arg;
    int64_t rows = v->terms * v->group, tap[HEED_SPATIAL_MAX];
    for (int64_t t = begin; t < end; t++) {
        int64_t image = v->first_image + t / rows, row = t % rows, channel = row / v->w.taps;
        split_index(v->w.kernel, v->w.n, row % v->w.taps, tap);
        patch_row(v, heed_at(v->patches, v->dtype, t * v->n), image * v->channels + channel, tap, v->first, v->n);
    }
}

/* weights [group][out / group, terms] . patches [image][group][terms, n] = y [image][group][out / group, n] */
static void describe(const conv *v, const heed_gemm_kernel *kernel, int64_t images, heed_gemm *g)
{
    int64_t out = v->out_channels / v->group, columns = v->direct ? v->w.out_count : v->n;
    *g = (heed_gemm){
        .kernel = kernel, .n_batch = 2, .batch = { images, v->group }, .m = out, .n = v->n, .k = v->terms, .alpha = 1, .beta = 1
    };
    g->a = (heed_matrix){
        .data = v->weight->data, .dtype = v->weight->dtype, .row = v->terms, .col = 1, .batch = { 0, out * v->terms }
    };
    g->b = (heed_matrix){ .data = v->patches,
                          .dtype = v->dtype,
                          .row = columns,
                          .col = 1,
                          .batch = { v->group * v->terms * columns, v->terms * columns } };
    if (v->direct) g->b.data = heed_at(v->x->data, v->dtype, v->first_image * v->channels * v->w.in_count + v->first);
    g->c = (heed_matrix){
        .dtype = v->y->dtype, .row = v->w.out_count, .col = 1, .batch = { v->out_channels * v->w.out_count, out * v->w.out_count }
    };
    g->c.data = heed_at(v->y->data, v->y->dtype, v->first_image * v->out_channels * v->w.out_count + v->first);
    if (v->bias) g->bias = (heed_matrix){ .data = v->bias->data, .dtype = v->bias->dtype, .row = 1, .batch = { 0, out } };
}

/* ---- depthwise ---- */

/* Add weight * input to the outputs for one tap. */
static void add_tap(const heed_window *w, float *y, const float *x, const int64_t *tap, float weight)
{
    int last = w->n - 1;
    int64_t lines = w->out_count / w->out[last], at[HEED_SPATIAL_MAX], lo, hi, stride = w->stride[last];
    inside(w, 0, tap[last], w->out[last], &lo, &hi);
    for (int64_t l = 0; l < lines; l++, y += w->out[last]) {
        split_index(w->out, last, l, at);
        int64_t line = 0, outside = 0;
        for (int d = 0; d < last; d++) {
            int64_t i = heed_window_at(w, d, at[d], tap[d]);
            if (i < 0 || i >= w->in[d]) outside = 1;
            line = (line + i) * w->in[d + 1];
        }
        if (outside || hi <= lo) continue;
        const float *from = x + line + heed_window_at(w, last, lo, tap[last]);
        if (stride == 1)
            for (int64_t o = lo; o < hi; o++) y[o] += weight * from[o - lo];
        else
            for (int64_t o = lo; o < hi; o++) y[o] += weight * from[(o - lo) * stride];
    }
}

static size_t depthwise_bytes(const conv *v)
{
    size_t floats = heed_size_add(heed_size_add((size_t) v->w.in_count, (size_t) v->w.out_count), (size_t) v->w.taps);
    return heed_size_mul(heed_size_add(floats, 16), sizeof(float));
}

static void depthwise_task(void *arg, int64_t task, int worker)
{
    const conv *v = arg;
    const heed_window *w = &v->w;
    int64_t image = task / v->out_channels, m = task % v->out_channels, channel = m / (v->out_channels / v->group);
    float *buffer = (float *) (void *) ((char *) v->patches + (size_t) worker * depthwise_bytes(v));
    const float *x =
        heed_row_load(buffer, v->x->dtype, v->x->data, (image * v->channels + channel) * w->in_count, 1, w->in_count);
    const float *taps = heed_row_load(buffer + w->in_count, v->weight->dtype, v->weight->data, m * w->taps, 1, w->taps);
    int64_t to = task * w->out_count, tap[HEED_SPATIAL_MAX];
    float *y = heed_row_target(buffer + w->in_count + w->taps, v->y->dtype, v->y->data, to, 1), bias = 0;
    if (v->bias) heed_cast_line(HEED_F32, &bias, 0, v->bias->dtype, heed_at(v->bias->data, v->bias->dtype, m), 0, 1);
    for (int64_t o = 0; o < w->out_count; o++) y[o] = bias;
    for (int64_t t = 0; t < w->taps; t++) {
        split_index(w->kernel, w->n, t, tap);
        add_tap(w, y, x, tap, taps[t]);
    }
    heed_row_store(v->y->dtype, v->y->data, to, 1, y, w->out_count);
}

/* ---- running ---- */

static size_t patch_bytes(const conv *v)
{
    if (v->direct) return 0;
    size_t n = heed_size_mul(heed_size_mul((size_t) v->terms, (size_t) v->group), (size_t) v->chunk);
    return heed_size_add(heed_size_mul(heed_size_mul(n, (size_t) v->at_once), heed_dtype_size(v->dtype)), 63) / 64 * 64;
}

static size_t scratch_conv(const heed_compute *c)
{
    conv v;
    init_conv(c, &v);
    if (heed_tensor_count(v.y) == 0) return 0;
    if (is_depthwise(&v)) return heed_size_mul(depthwise_bytes(&v), (size_t) heed_context_threads(c->ctx));
    heed_gemm g;
    const heed_gemm_state *state = c->state;
    v.n = v.chunk;
    describe(&v, state->kernel, v.at_once, &g);
    size_t most = heed_gemm_scratch(c->ctx, &g);
    /* The last images and the last columns are fewer: products of another shape. */
    for (int part = 1; part < 4; part++) {
        int64_t images = part & 1 && v.images % v.at_once ? v.images % v.at_once : v.at_once;
        v.n = part & 2 && v.w.out_count % v.chunk ? v.w.out_count % v.chunk : v.chunk;
        describe(&v, state->kernel, images, &g);
        size_t bytes = heed_gemm_scratch(c->ctx, &g);
        if (bytes > most) most = bytes;
    }
    return heed_size_add(patch_bytes(&v), most);
}

static heed_status compute_conv(heed_compute *c)
{
    conv v;
    init_conv(c, &v);
    if (heed_tensor_count(v.y) == 0) return HEED_OK;
    v.patches = c->scratch;
    if (is_depthwise(&v)) {
        heed_parallel_for(c->ctx, depthwise_task, &v, v.images * v.out_channels);
        return HEED_OK;
    }
    const heed_gemm_state *state = c->state;
    char *scratch = (char *) c->scratch + patch_bytes(&v);
    for (v.first_image = 0; v.first_image < v.images; v.first_image += v.at_once) {
        int64_t images = v.images - v.first_image < v.at_once ? v.images - v.first_image : v.at_once;
        for (v.first = 0; v.first < v.w.out_count; v.first += v.chunk) {
            v.n = v.w.out_count - v.first < v.chunk ? v.w.out_count - v.first : v.chunk;
            if (!v.direct) heed_parallel_ranges(c->ctx, images * v.group * v.terms, HEED_GRAIN / (v.n + 1) + 1, patch_range, &v);
            heed_gemm g;
            describe(&v, state->kernel, images, &g);
            heed_gemm_run(c->ctx, &g, scratch);
        }
    }
    return HEED_OK;
}

static heed_status prepare_conv(heed_compute *c, void **state)
{
    return heed_gemm_state_create(c, NULL, state);
}

const heed_op heed_ops_conv[] = {
    { .domain = "",
      .name = "Conv",
      .since = 1,
      .min_in = 2,
      .max_in = 3,
      .min_out = 1,
      .max_out = 1,
      .flags = HEED_OP_KEEP_STATE,
      .infer = infer_conv,
      .compute = compute_conv,
      .scratch = scratch_conv,
      .prepare = prepare_conv,
      .release = heed_gemm_state_release },
    { 0 },
};
