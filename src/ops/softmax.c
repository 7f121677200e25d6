/* Softmax and LogSoftmax. Before opset 13 the input is a matrix of rows, cut at `axis`; from 13 on a row runs along the
 * one axis. */
#include <math.h>
#include <string.h>

#include "ops/line_io.h"

typedef struct softmax_job {
    const heed_row_kernels *k;
    const heed_tensor *x, *y;
    int64_t n, inner; /* length of a row, and the distance of its elements */
    int log;
    float *buffers;
} softmax_job;

enum { ROW_TASK = 16384 }; /* elements of a task */

static int flattens(const heed_node *node)
{
    return node->version < 13;
}

static heed_status infer_softmax(heed_infer *i)
{
    int64_t axis = heed_node_int(i->node, "axis", flattens(i->node) ? 1 : -1);
    int rank = i->in[0]->rank, unused;
    /* The old form may cut after the last axis: each element is a row then. */
    if (rank > 0 && !(flattens(i->node) && axis == rank)) HEED_TRY(heed_infer_axis(i, "axis", axis, rank, &unused));
    return heed_infer_same(i);
}

/* Rows as outer x n x inner. */
static void cut(const heed_node *node, const heed_tensor *x, int64_t *outer, int64_t *n, int64_t *inner)
{
    int64_t axis = heed_node_int(node, "axis", flattens(node) ? 1 : -1);
    int at = axis == x->rank ? x->rank : heed_axis(axis, x->rank);
    *outer = *n = *inner = 1;
    if (x->rank == 0) return;
    for (int d = 0; d < x->rank; d++) {
        if (d < at) *outer *= x->dims[d];
        else if (d == at || flattens(node)) *n *= x->dims[d];
        else *inner *= x->dims[d];
    }
}

static void log_softmax(const heed_row_kernels *k, float *y, const float *x, int64_t n)
{
    float max = -INFINITY, part[256];
    for (int64_t i = 0; i < n; i++) max = x[i] > max ? x[i] : max;
    double sum = 0;
    for (int64_t i = 0; i < n; i += 256) {
        int64_t some = n - i < 256 ? n - i : 256;
        for (int64_t j = 0; j < some; j++) part[j] = x[i + j] - max;
        k->exp(part, part, some);
        for (int64_t j = 0; j < some; j++) sum += (double) part[j];
    }
    float log_sum = (float) log(sum);
    for (int64_t i = 0; i < n; i++) y[i] = x[i] - max - log_sum;
}

/* The kernel gives 0 for a row without a finite number; by the definition 0 / 0 is NaN there. */
static void softmax(const heed_row_kernels *k, float *y, const float *x, int64_t n)
{
    k->softmax(y, x, n);
    int64_t i = 0;
    while (i < n && y[i] == 0) i++;
    if (i < n) return;
    for (i = 0; i < n; i++) y[i] = NAN;
}

static void row_f64(const softmax_job *w, int64_t at)
{
    const double *x = (const double *) w->x->data + at;
    double *y = (double *) w->y->data + at, max = -INFINITY, sum = 0;
    for (int64_t i = 0; i < w->n; i++) max = x[i * w->inner] > max ? x[i * w->inner] : max;
    for (int64_t i = 0; i < w->n; i++) sum += exp(x[i * w->inner] - max);
    double log_sum = log(sum);
    for (int64_t i = 0; i < w->n; i++) {
        double shifted = x[i * w->inner] - max;
        y[i * w->inner] = w->log ? shifted - log_sum : exp(shifted) / sum;
    }
}

typedef struct task_job {
    const softmax_job *w;
    int64_t rows, grain;
} task_job;

static void run_rows(void *arg, int64_t task, int worker)
{
    const task_job *t = arg;
    const softmax_job *w = t->w;
    heed_dtype dtype = w->x->dtype;
    float *in = w->buffers + (size_t) worker * 2 * (size_t) w->n, *buf = in + w->n;
    int64_t end = (task + 1) * t->grain < t->rows ? (task + 1) * t->grain : t->rows;
    for (int64_t r = task * t->grain; r < end; r++) {
        int64_t at = r / w->inner * w->n * w->inner + r % w->inner;
        if (dtype == HEED_F64) {
            row_f64(w, at);
            continue;
        }
        const float *x = heed_row_load(in, dtype, w->x->data, at, w->inner, w->n);
        float *y = heed_row_target(buf, dtype, w->y->data, at, w->inner);
        if (w->log) log_softmax(w->k, y, x, w->n);
        else softmax(w->k, y, x, w->n);
        heed_row_store(dtype, w->y->data, at, w->inner, y, w->n);
    }
}

static size_t scratch_softmax(const heed_compute *c)
{
    int64_t outer, n, inner;
    cut(c->node, c->in[0], &outer, &n, &inner);
    if (c->in[0]->dtype == HEED_F64 || (c->in[0]->dtype == HEED_F32 && inner == 1)) return 0;
    return heed_size_mul(heed_size_mul((size_t) n, 2 * sizeof(float)), (size_t) heed_context_threads(c->ctx));
}

static heed_status compute_softmax(heed_compute *c)
{
    int64_t outer;
    softmax_job w = { .k = heed_row_kernels_get(), .x = c->in[0], .y = c->out[0], .buffers = c->scratch };
    if (!heed_dtype_is_float(w.x->dtype)) return heed_compute_type(c, 0);
    w.log = strcmp(c->node->op, "LogSoftmax") == 0;
    if (heed_tensor_count(w.y) == 0) return HEED_OK;
    cut(c->node, w.x, &outer, &w.n, &w.inner);
    task_job t = { .w = &w, .rows = outer * w.inner, .grain = w.n < ROW_TASK ? ROW_TASK / w.n : 1 };
    heed_parallel_for(c->ctx, run_rows, &t, (t.rows + t.grain - 1) / t.grain);
    return HEED_OK;
}

#define SOFTMAX(op_name, op_since)                                                                                               \
    {                                                                                                                            \
        .domain = "", .name = op_name, .since = op_since, .min_in = 1, .max_in = 1, .min_out = 1, .max_out = 1,                  \
        .flags = HEED_OP_INPLACE, .infer = infer_softmax, .compute = compute_softmax, .scratch = scratch_softmax                 \
    }

const heed_op heed_ops_softmax[] = {
    SOFTMAX("Softmax", 1), SOFTMAX("Softmax", 13), SOFTMAX("LogSoftmax", 1), SOFTMAX("LogSoftmax", 13), { 0 },
};
