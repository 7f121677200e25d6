/* Normalisation of rows: LayerNormalization, RMSNormalization and its older name, the com.microsoft forms with a residual
 * ("Skip..."), heed.LayerNorm and heed.RmsNorm. All are one computation on rows that end with the last axis:
 *
 *   sum = x + residual + input_bias;   y = norm(sum) * scale + bias
 *
 * in f32 (f64 for f64) with one rounding at each output. GroupNormalization and its relatives are in channel_norm.c. */
#include <math.h>
#include <string.h>

#include "ops/line_io.h"

/* Which input is what, which output is what; -1: none. */
typedef struct layout {
    int rms;
    int residual, scale, bias, input_bias;
    int mean, inv_std, sum;
    int repeats; /* the residual may lack the batch, or have it as 1, and repeats over it */
} layout;

typedef struct layout_entry {
    const char *domain, *op;
    layout l;
    float epsilon; /* default */
} layout_entry;

static const layout_entry layouts[] = {
    { "", "LayerNormalization", { 0, -1, 1, 2, -1, 1, 2, -1, 0 }, 1e-5f },
    { "", "RMSNormalization", { 1, -1, 1, -1, -1, -1, -1, -1, 0 }, 1e-5f },
    { "", "SimplifiedLayerNormalization", { 1, -1, 1, -1, -1, -1, 1, -1, 0 }, 1e-5f },
    { "com.microsoft", "SimplifiedLayerNormalization", { 1, -1, 1, -1, -1, -1, 1, -1, 0 }, 1e-5f },
    { "com.microsoft", "SkipLayerNormalization", { 0, 1, 2, 3, 4, 1, 2, 3, 1 }, 1e-12f },
    { "com.microsoft", "SkipSimplifiedLayerNormalization", { 1, 1, 2, -1, 3, 1, 2, 3, 1 }, 1e-12f },
    { "heed", "LayerNorm", { 0, 1, 2, 3, -1, -1, -1, 1, 0 }, 1e-5f },
    { "heed", "RmsNorm", { 1, 1, 2, -1, -1, -1, -1, 1, 0 }, 1e-5f },
};

static const layout_entry *entry_of(const heed_node *node)
{
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (strcmp(node->op, layouts[i].op) == 0 && strcmp(node->domain, layouts[i].domain) == 0) return &layouts[i];
    return NULL;
}

static int first_axis(const heed_node *node, int rank)
{
    return heed_axis(heed_node_int(node, "axis", -1), rank);
}

/* ---- shapes ---- */

static void output(heed_infer *i, int k, heed_dtype dtype, int ones_from)
{
    if (k < 0 || k >= i->n_out) return;
    const heed_fact *x = i->in[0];
    i->out[k].dtype = dtype;
    i->out[k].rank = x->rank;
    for (int d = 0; d < x->rank; d++) i->out[k].dims[d] = d >= ones_from ? 1 : x->dims[d];
}

/* A parameter of the rows: aligned to the right it broadcasts to the axes from `axis` on. */
static heed_status check_parameter(heed_infer *i, int k, const char *name, int axis)
{
    if (k < 0 || k >= i->n_in || !i->in[k] || i->in[k]->rank < 0) return HEED_OK;
    const heed_fact *p = i->in[k], *x = i->in[0];
    int skip = x->rank - p->rank, fits = skip >= 0;
    for (int d = 0; fits && d < p->rank; d++) {
        int64_t have = p->dims[d], want = x->dims[d + skip];
        if (have == 1 || have < 0 || (d + skip >= axis && (want < 0 || have == want))) continue;
        fits = 0;
    }
    if (fits) return HEED_OK;
    return heed_infer_fail(i, "%s has shape %s, expected one that broadcasts to the axes from %d on of %s", name,
                           heed_infer_shape_text(i, p), axis, heed_infer_shape_text(i, x));
}

static heed_status check_residual(heed_infer *i, const layout *l)
{
    if (l->residual < 0 || l->residual >= i->n_in || !i->in[l->residual]) return HEED_OK;
    const heed_fact *r = i->in[l->residual], *x = i->in[0];
    if (r->rank < 0) return HEED_OK;
    int skip = x->rank - r->rank, fits = skip >= 0 && (skip == 0 || l->repeats);
    for (int d = 0; fits && d < r->rank; d++) {
        int64_t have = r->dims[d], want = x->dims[d + skip];
        int again = have == 1 && l->repeats && d + skip < x->rank - 2;
        if (have < 0 || want < 0 || have == want || again) continue;
        fits = 0;
    }
    if (fits) return HEED_OK;
    return heed_infer_fail(i, "the residual has shape %s, expected that of x, %s", heed_infer_shape_text(i, r),
                           heed_infer_shape_text(i, x));
}

static heed_status infer_norm(heed_infer *i)
{
    const layout *l = &entry_of(i->node)->l;
    const heed_fact *x = i->in[0];
    /* RMSNormalization's output has the type of its scale; elsewhere all types are one. */
    int mixed = l->rms && l->residual < 0 && l->scale < i->n_in && i->in[l->scale];
    i->out[0].dtype = mixed ? i->in[l->scale]->dtype : x->dtype;
    if (x->dtype != HEED_DTYPE_NONE && !heed_dtype_is_float(x->dtype))
        return heed_infer_fail(i, "x is %s, expected a float", heed_dtype_name(x->dtype));
    if (x->rank < 0) return HEED_OK;
    if (x->rank == 0) return heed_infer_fail(i, "x is a scalar, expected one dimension or more");
    int axis;
    HEED_TRY(heed_infer_axis(i, "axis", heed_node_int(i->node, "axis", -1), x->rank, &axis));
    heed_dtype statistics = x->dtype == HEED_F64 ? HEED_F64 : HEED_F32;
    output(i, 0, i->out[0].dtype, x->rank);
    output(i, l->mean, statistics, axis);
    output(i, l->inv_std, statistics, axis);
    output(i, l->sum, x->dtype, x->rank);
    HEED_TRY(check_residual(i, l));
    HEED_TRY(check_parameter(i, l->scale, "scale", axis));
    HEED_TRY(check_parameter(i, l->bias, "bias", axis));
    return check_parameter(i, l->input_bias, "the bias of x", axis);
}

/* ---- running ---- */

enum { PARAMETERS = 3, LINES = 4, ROW_TASK = 16384 };

typedef struct norm_job {
    const heed_row_kernels *k;
    int rms;
    float epsilon;
    const heed_tensor *x, *residual;
    const float *scale, *bias, *input_bias; /* NULL: none */
    const heed_tensor *y, *mean, *inv_std, *sum;
    int64_t n, rows, residual_rows, grain;
    float *lines; /* LINES of n for each worker */
} norm_job;

static const heed_tensor *input_or_null(const heed_compute *c, int k)
{
    return k >= 0 && heed_compute_has(c, k) ? c->in[k] : NULL;
}

static const heed_tensor *output_or_null(const heed_compute *c, int k)
{
    return k >= 0 && k < c->n_out ? c->out[k] : NULL;
}

/* mean and 1 / sqrt(variance + epsilon), or the latter of the mean square. */
static void statistics_f64(const norm_job *w, const double *x, double *mean, double *inv_std)
{
    double sum = 0, squares = 0;
    for (int64_t j = 0; j < w->n; j++) sum += x[j];
    *mean = w->rms ? 0 : sum / (double) w->n;
    for (int64_t j = 0; j < w->n; j++) squares += (x[j] - *mean) * (x[j] - *mean);
    *inv_std = 1 / sqrt(squares / (double) w->n + (double) w->epsilon);
}

static float inverse_rms(const float *x, int64_t n, float epsilon)
{
    double squares = 0;
    for (int64_t j = 0; j < n; j++) squares += (double) x[j] * (double) x[j];
    return (float) (1 / sqrt(squares / (double) n + (double) epsilon));
}

static void store_statistics(const norm_job *w, int64_t r, double mean, double inv_std)
{
    const heed_tensor *to[] = { w->mean, w->inv_std };
    double values[] = { mean, inv_std };
    for (int k = 0; k < 2; k++) {
        if (!to[k]) continue;
        if (to[k]->dtype == HEED_F64) ((double *) to[k]->data)[r] = values[k];
        else ((float *) to[k]->data)[r] = (float) values[k];
    }
}

static void add_rows(float *y, const float *a, const float *b, int64_t n)
{
    for (int64_t j = 0; j < n; j++) y[j] = a[j] + b[j];
}

static void norm_row(const norm_job *w, int64_t r, float *lines)
{
    int64_t n = w->n, at = r * n;
    float *sum_line = lines + n, mean = 0, inv_std = 0;
    const float *x = heed_row_load(lines, w->x->dtype, w->x->data, at, 1, n);
    if (w->residual || w->input_bias) {
        float *sum = w->sum ? heed_row_target(sum_line, w->sum->dtype, w->sum->data, at, 1) : sum_line;
        if (w->residual) {
            int64_t residual_at = r % w->residual_rows * n;
            add_rows(sum, x, heed_row_load(lines + 2 * n, w->residual->dtype, w->residual->data, residual_at, 1, n), n);
            x = sum;
        }
        if (w->input_bias) add_rows(sum, x, w->input_bias, n);
        x = sum;
    }
    if (w->sum) heed_row_store(w->sum->dtype, w->sum->data, at, 1, x, n);
    float *y = heed_row_target(lines + 3 * n, w->y->dtype, w->y->data, at, 1);
    if (w->rms) {
        w->k->rms_norm(y, x, w->scale, n, w->epsilon);
        if (w->inv_std) inv_std = inverse_rms(x, n, w->epsilon);
    } else {
        w->k->layer_norm(y, x, w->scale, w->bias, n, w->epsilon, &mean, &inv_std);
    }
    store_statistics(w, r, (double) mean, (double) inv_std);
    heed_row_store(w->y->dtype, w->y->data, at, 1, y, n);
}

/* Rows of f64 with f64 parameters, in `lines` as well: there is room for one of doubles. */
static void norm_row_f64(const norm_job *w, int64_t r, double *sum)
{
    const double *x = (const double *) w->x->data + r * w->n, *scale = (const double *) w->scale,
                 *bias = (const double *) w->bias;
    const double *residual = w->residual ? (const double *) w->residual->data + r % w->residual_rows * w->n : NULL;
    const double *input_bias = (const double *) w->input_bias;
    double *y = (double *) w->y->data + r * w->n, mean, inv_std;
    for (int64_t j = 0; j < w->n; j++) sum[j] = x[j] + (residual ? residual[j] : 0) + (input_bias ? input_bias[j] : 0);
    if (w->sum) memcpy((double *) w->sum->data + r * w->n, sum, (size_t) w->n * sizeof *sum);
    statistics_f64(w, sum, &mean, &inv_std);
    for (int64_t j = 0; j < w->n; j++) y[j] = (sum[j] - mean) * inv_std * (scale ? scale[j] : 1) + (bias ? bias[j] : 0);
    store_statistics(w, r, mean, inv_std);
}

static void run_rows(void *arg, int64_t task, int worker)
{
    const norm_job *w = arg;
    float *lines = w->lines + (size_t) worker * LINES * (size_t) w->n;
    int64_t end = (task + 1) * w->grain < w->rows ? (task + 1) * w->grain : w->rows;
    for (int64_t r = task * w->grain; r < end; r++) {
        if (w->x->dtype == HEED_F64) norm_row_f64(w, r, (double *) lines);
        else norm_row(w, r, lines);
    }
}

/* A parameter as a line of n in the type that rows are computed in: where it lies, or made in `buf`. */
static const void *parameter(const heed_tensor *p, const heed_tensor *x, int axis, int64_t n, void *buf)
{
    heed_dtype want = x->dtype == HEED_F64 ? HEED_F64 : HEED_F32;
    int64_t size = (int64_t) heed_dtype_size(want);
    if (heed_tensor_count(p) == n) {
        if (p->dtype == want) return p->data;
        heed_cast_line(want, buf, size, p->dtype, p->data, (int64_t) heed_dtype_size(p->dtype), n);
        return buf;
    }
    for (int64_t j = 0; j < n; j++) { /* a small thing that repeats: seldom, so element by element */
        int64_t rest = j, at = 0;
        for (int d = x->rank - 1; d >= axis; d--) {
            int pd = d - (x->rank - p->rank);
            if (pd >= 0 && p->dims[pd] != 1) at += rest % x->dims[d] * p->strides[pd];
            rest /= x->dims[d];
        }
        heed_cast_line(want, (char *) buf + j * size, size, p->dtype, heed_at(p->data, p->dtype, at), 0, 1);
    }
    return buf;
}

static int64_t row_length(const heed_compute *c)
{
    const heed_tensor *x = c->in[0];
    int64_t n = 1;
    for (int d = first_axis(c->node, x->rank); d < x->rank; d++) n *= x->dims[d];
    return n;
}

/* Lines of doubles where x is f64: twice as many floats. */
static size_t line_bytes(const heed_compute *c)
{
    return heed_size_mul((size_t) row_length(c), c->in[0]->dtype == HEED_F64 ? sizeof(double) : sizeof(float));
}

static size_t scratch_norm(const heed_compute *c)
{
    if (heed_tensor_count(c->in[0]) == 0) return 0;
    size_t threads = (size_t) heed_context_threads(c->ctx);
    return heed_size_mul(line_bytes(c), heed_size_add(heed_size_mul(threads, LINES), PARAMETERS));
}

static heed_status compute_norm(heed_compute *c)
{
    const layout_entry *e = entry_of(c->node);
    norm_job w = { .k = heed_row_kernels_get(), .rms = e->l.rms, .x = c->in[0], .y = c->out[0] };
    if (heed_tensor_count(w.x) == 0) return HEED_OK;
    w.epsilon = heed_node_float(c->node, "epsilon", e->epsilon);
    w.residual = input_or_null(c, e->l.residual);
    w.mean = output_or_null(c, e->l.mean), w.inv_std = output_or_null(c, e->l.inv_std), w.sum = output_or_null(c, e->l.sum);
    int axis = first_axis(c->node, w.x->rank);
    w.n = row_length(c), w.rows = heed_tensor_count(w.x) / w.n;
    w.residual_rows = w.residual ? heed_tensor_count(w.residual) / w.n : 1;
    char *lines = c->scratch;
    const int inputs[PARAMETERS] = { e->l.scale, e->l.bias, e->l.input_bias };
    const void *made[PARAMETERS] = { NULL };
    for (int k = 0; k < PARAMETERS; k++, lines += line_bytes(c))
        if (input_or_null(c, inputs[k])) made[k] = parameter(c->in[inputs[k]], w.x, axis, w.n, lines);
    if (!made[0] && w.rms && w.x->dtype != HEED_F64) { /* the kernel wants a scale */
        float *ones = c->scratch;
        for (int64_t j = 0; j < w.n; j++) ones[j] = 1;
        made[0] = ones;
    }
    w.scale = made[0], w.bias = made[1], w.input_bias = made[2], w.lines = (float *) lines;
    w.grain = w.n < ROW_TASK ? ROW_TASK / w.n : 1;
    heed_parallel_for(c->ctx, run_rows, &w, (w.rows + w.grain - 1) / w.grain);
    return HEED_OK;
}

#define NORM(op_domain, op_name, op_since, inputs_min, inputs_max, outputs_max)                                                  \
    {                                                                                                                            \
        .domain = op_domain, .name = op_name, .since = op_since, .min_in = inputs_min, .max_in = inputs_max, .min_out = 1,       \
        .max_out = outputs_max, .infer = infer_norm, .compute = compute_norm, .scratch = scratch_norm                            \
    }

const heed_op heed_ops_norm[] = {
    NORM("", "LayerNormalization", 1, 2, 3, 3),
    NORM("", "RMSNormalization", 23, 2, 2, 1),
    NORM("", "SimplifiedLayerNormalization", 1, 2, 2, 2),
    NORM("com.microsoft", "SimplifiedLayerNormalization", 1, 2, 2, 2),
    NORM("com.microsoft", "SkipLayerNormalization", 1, 3, 5, 4),
    NORM("com.microsoft", "SkipSimplifiedLayerNormalization", 1, 3, 4, 4),
    NORM("heed", "LayerNorm", 1, 1, 4, 2),
    NORM("heed", "RmsNorm", 1, 1, 3, 2),
    { 0 },
};
