/* MaxPool, AveragePool, and over whole planes GlobalMaxPool, GlobalAveragePool. A plane is one channel of one
 * image. */
#include <math.h>
#include <string.h>

#include "ops/line_io.h"
#include "ops/window.h"

static int is_max(const heed_node *node)
{
    return strcmp(node->op, "MaxPool") == 0 || strcmp(node->op, "GlobalMaxPool") == 0;
}

static int is_global(const heed_node *node)
{
    return strncmp(node->op, "Global", 6) == 0;
}

/* ---- shapes ---- */

static heed_status check_type(heed_infer *i)
{
    heed_dtype dtype = i->in[0]->dtype;
    if (dtype == HEED_DTYPE_NONE || heed_dtype_is_float(dtype)) return HEED_OK;
    if (strcmp(i->node->op, "MaxPool") == 0 && (dtype == HEED_I8 || dtype == HEED_U8)) return HEED_OK;
    return heed_infer_fail(i, "x is %s, expected a float", heed_dtype_name(dtype));
}

static heed_status infer_pool(heed_infer *i)
{
    const heed_fact *x = i->in[0];
    heed_fact *out = &i->out[0];
    HEED_TRY(check_type(i));
    out->dtype = x->dtype;
    if (i->n_out > 1) i->out[1].dtype = HEED_I64;
    if (x->rank < 0) return HEED_OK;
    if (x->rank < 3 || x->rank > HEED_RANK_MAX) return heed_infer_fail(i, "x has rank %d, expected 3 or more", x->rank);
    *out = (heed_fact){ .dtype = x->dtype, .rank = x->rank, .dims = { x->dims[0], x->dims[1] } };
    if (is_global(i->node)) {
        for (int d = 2; d < x->rank; d++) out->dims[d] = 1;
        return HEED_OK;
    }
    int n;
    const int64_t *kernel = heed_node_ints(i->node, "kernel_shape", &n);
    if (n != x->rank - 2) return heed_infer_fail(i, "kernel_shape has %d entries, expected %d", n, x->rank - 2);
    HEED_TRY(heed_window_infer(i, n, kernel, x, out->dims + 2));
    if (i->n_out > 1) {
        i->out[1] = *out;
        i->out[1].dtype = HEED_I64;
    }
    return HEED_OK;
}

/* ---- running ---- */

typedef struct pool {
    heed_window w;
    const heed_tensor *x, *y, *indices;
    int max, include_pad, column_major;
    int64_t extent[HEED_SPATIAL_MAX]; /* end of the padded input along each axis, which ends what include_pad counts */
    double *planes;                   /* one a worker, as double */
} pool;

static void init_pool(const heed_compute *c, pool *p)
{
    int n;
    const int64_t *kernel = heed_node_ints(c->node, "kernel_shape", &n), *pads = heed_node_ints(c->node, "pads", &n);
    *p = (pool){ .x = c->in[0], .y = c->out[0], .max = is_max(c->node) };
    if (c->n_out > 1) p->indices = c->out[1];
    heed_window_init(&p->w, c->node, p->x, is_global(c->node) ? p->x->dims + 2 : kernel, p->y);
    int same = strncmp(heed_node_string(c->node, "auto_pad", ""), "SAME", 4) == 0;
    p->include_pad = heed_node_int(c->node, "count_include_pad", 0) != 0;
    p->column_major = heed_node_int(c->node, "storage_order", 0) != 0;
    for (int d = 0; d < p->w.n; d++) {
        int64_t reach = heed_window_at(&p->w, d, p->w.out[d] - 1, p->w.kernel[d] - 1) + 1;
        int64_t after = pads && n == 2 * p->w.n ? pads[p->w.n + d] : same && reach > p->w.in[d] ? reach - p->w.in[d] : 0;
        p->extent[d] = p->w.in[d] + after;
    }
}

/* Number of an element of the whole input, as MaxPool's second output counts. */
static int64_t index_of(const pool *p, int64_t plane, const int64_t *at)
{
    int64_t index = 0, n = p->w.n;
    for (int64_t d = 0; d < n; d++) {
        int64_t axis = p->column_major ? n - 1 - d : d;
        index = index * p->w.in[axis] + at[axis];
    }
    return plane * p->w.in_count + index;
}

/* One output position: go over the taps. */
static double pool_one(const pool *p, const double *x, const int64_t *out, int64_t plane, int64_t *index)
{
    const heed_window *w = &p->w;
    double best = -INFINITY, sum = 0;
    int64_t tap[HEED_SPATIAL_MAX] = { 0 }, at[HEED_SPATIAL_MAX], counted = 0, found = 0;
    for (int64_t t = 0; t < w->taps; t++) {
        int64_t from = 0, in_input = 1, in_padding = 1;
        for (int d = 0; d < w->n; d++) {
            at[d] = heed_window_at(w, d, out[d], tap[d]);
            if (at[d] < 0 || at[d] >= w->in[d]) in_input = 0;
            if (at[d] >= p->extent[d]) in_padding = 0;
            from = from * w->in[d] + at[d];
        }
        counted += p->include_pad ? in_padding : in_input;
        if (in_input) {
            if (!found || x[from] > best || isnan(x[from])) {
                if (!found || !isnan(best)) best = x[from], *index = index_of(p, plane, at);
            }
            sum += x[from], found = 1;
        }
        for (int d = w->n - 1; d >= 0 && ++tap[d] == w->kernel[d]; d--) tap[d] = 0;
    }
    if (p->max) return best;
    return counted ? sum / (double) counted : 0;
}

static void pool_task(void *arg, int64_t plane, int worker)
{
    const pool *p = arg;
    const heed_window *w = &p->w;
    int64_t size = (int64_t) heed_dtype_size(p->x->dtype), out[HEED_SPATIAL_MAX] = { 0 };
    double *x = p->planes + (size_t) worker * (size_t) w->in_count;
    heed_cast_line(HEED_F64, x, sizeof *x, p->x->dtype, heed_at(p->x->data, p->x->dtype, plane * w->in_count), size, w->in_count);
    for (int64_t o = 0; o < w->out_count; o++) {
        int64_t index = 0;
        double y = pool_one(p, x, out, plane, &index);
        heed_cast_line(p->y->dtype, heed_at(p->y->data, p->y->dtype, plane * w->out_count + o), 0, HEED_F64, &y, 0, 1);
        if (p->indices) ((int64_t *) p->indices->data)[plane * w->out_count + o] = index;
        for (int d = w->n - 1; d >= 0 && ++out[d] == w->out[d]; d--) out[d] = 0;
    }
}

static size_t scratch_pool(const heed_compute *c)
{
    size_t count = 1;
    for (int d = 2; d < c->in[0]->rank; d++) count = heed_size_mul(count, (size_t) c->in[0]->dims[d]);
    return heed_size_mul(heed_size_mul(count, sizeof(double)), (size_t) heed_context_threads(c->ctx));
}

static heed_status compute_pool(heed_compute *c)
{
    pool p;
    if (heed_tensor_count(c->out[0]) == 0) return HEED_OK;
    init_pool(c, &p);
    p.planes = c->scratch;
    heed_parallel_for(c->ctx, pool_task, &p, p.x->dims[0] * p.x->dims[1]);
    return HEED_OK;
}

#define POOL(op_name, outputs)                                                                                                   \
    {                                                                                                                            \
        .domain = "", .name = op_name, .since = 1, .min_in = 1, .max_in = 1, .min_out = 1, .max_out = outputs,                   \
        .infer = infer_pool, .compute = compute_pool, .scratch = scratch_pool                                                    \
    }

const heed_op heed_ops_pool[] = {
    POOL("MaxPool", 2), POOL("AveragePool", 1), POOL("GlobalAveragePool", 1), POOL("GlobalMaxPool", 1), { 0 },
};
