/* Normalisation over channels of [N, C, ...]: BatchNormalization (inference), InstanceNormalization, GroupNormalization. In the
 * end each is y = x * factor + shift with one pair of numbers a channel and image, computed in double and applied in f32 (f64 for
 * f64). */
#include <math.h>
#include <string.h>

#include "ops/line_io.h"

typedef enum channel_norm_kind { NORM_BATCH, NORM_INSTANCE, NORM_GROUP } channel_norm_kind;

static channel_norm_kind kind_of(const heed_node *node)
{
    return node->op[0] == 'B' ? NORM_BATCH : node->op[0] == 'I' ? NORM_INSTANCE : NORM_GROUP;
}

static heed_status infer_channel_norm(heed_infer *i)
{
    const heed_fact *x = i->in[0];
    int64_t groups = heed_node_int(i->node, "num_groups", 0), channels = x->rank >= 2   ? x->dims[1]
                                                                         : x->rank == 1 ? 1
                                                                                        : HEED_DIM_UNKNOWN;
    channel_norm_kind kind = kind_of(i->node);
    if (x->dtype != HEED_DTYPE_NONE && !heed_dtype_is_float(x->dtype))
        return heed_infer_fail(i, "x is %s, expected a float", heed_dtype_name(x->dtype));
    if (kind == NORM_BATCH && heed_node_int(i->node, "training_mode", 0) != 0)
        return heed_fail(HEED_ERR_UNSUPPORTED, "%s: training_mode is 1, only inference is supported", i->node->op);
    for (int k = 1; k < i->n_out; k++)
        if (i->node->outputs[k])
            return heed_fail(HEED_ERR_UNSUPPORTED, "%s: output %d is of training, only inference is supported", i->node->op, k);
    if (x->rank >= 0 && x->rank < (kind == NORM_BATCH ? 1 : 2))
        return heed_infer_fail(i, "x has rank %d, expected 2 or more", x->rank);
    if (kind == NORM_GROUP && (groups < 1 || (channels >= 0 && channels % groups != 0)))
        return heed_infer_fail(i, "num_groups is %lld, expected a divisor of %lld channels", (long long) groups,
                               (long long) channels);
    int64_t want = kind == NORM_GROUP && i->node->version < 21 ? groups : channels;
    for (int k = 1; k < i->n_in; k++) {
        if (i->in[k]->rank < 0 || x->rank < 0) continue;
        if (i->in[k]->rank != 1 || (i->in[k]->dims[0] >= 0 && want >= 0 && i->in[k]->dims[0] != want))
            return heed_infer_fail(i, "input %d has shape %s, expected [%lld]", k, heed_infer_shape_text(i, i->in[k]),
                                   (long long) want);
    }
    return heed_infer_same(i);
}

typedef struct channel_job {
    const heed_node *node;
    channel_norm_kind kind;
    const heed_tensor *const *in;
    const heed_tensor *x, *y;
    int64_t channels, plane, groups, per_group; /* per_group: channels of a group */
    double epsilon;
} channel_job;

static double element(const heed_tensor *t, int64_t at)
{
    double x;
    heed_cast_line(HEED_F64, &x, 0, t->dtype, heed_at(t->data, t->dtype, at), 0, 1);
    return x;
}

enum { LINE = 512 };

/* Mean and variance of n elements: two passes, sums in double. */
static void statistics(const heed_tensor *x, int64_t at, int64_t n, double *mean, double *variance)
{
    double line[LINE], sum = 0, squares = 0;
    int64_t size = (int64_t) heed_dtype_size(x->dtype);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < n; i += LINE) {
            int64_t some = n - i < LINE ? n - i : LINE;
            heed_cast_line(HEED_F64, line, sizeof *line, x->dtype, heed_at(x->data, x->dtype, at + i), size, some);
            for (int64_t j = 0; j < some; j++) {
                if (pass == 0) sum += line[j];
                else squares += (line[j] - *mean) * (line[j] - *mean);
            }
        }
        *mean = sum / (double) n;
    }
    *variance = squares / (double) n;
}

static void apply(const channel_job *w, int64_t at, double mean, double factor, double bias)
{
    int64_t size = (int64_t) heed_dtype_size(w->x->dtype);
    if (w->x->dtype == HEED_F64) {
        const double *x = (const double *) w->x->data + at;
        double *y = (double *) w->y->data + at;
        for (int64_t i = 0; i < w->plane; i++) y[i] = (x[i] - mean) * factor + bias;
        return;
    }
    /* What rounding the mean to f32 loses goes into the bias. */
    float line[LINE], m = (float) mean, f = (float) factor, b = (float) (bias + ((double) m - mean) * factor);
    for (int64_t i = 0; i < w->plane; i += LINE) {
        int64_t some = w->plane - i < LINE ? w->plane - i : LINE;
        heed_cast_line(HEED_F32, line, sizeof *line, w->x->dtype, heed_at(w->x->data, w->x->dtype, at + i), size, some);
        for (int64_t j = 0; j < some; j++) line[j] = (line[j] - m) * f + b;
        heed_row_store(w->y->dtype, w->y->data, at + i, 1, line, some);
    }
}

/* A task is a group of channels of one image: a channel alone but in GroupNormalization. */
static void channel_task(void *arg, int64_t begin, int64_t end)
{
    const channel_job *w = arg;
    for (int64_t t = begin; t < end; t++) {
        int64_t first = t % w->groups * w->per_group, at = t * w->per_group * w->plane;
        double mean = 0, variance = 0;
        if (w->kind != NORM_BATCH) statistics(w->x, at, w->per_group * w->plane, &mean, &variance);
        for (int64_t k = 0; k < w->per_group; k++) {
            int64_t channel = first + k, parameter = w->in[1]->dims[0] == w->channels ? channel : first / w->per_group;
            if (w->kind == NORM_BATCH) mean = element(w->in[3], channel), variance = element(w->in[4], channel);
            double factor = element(w->in[1], parameter) / sqrt(variance + w->epsilon);
            apply(w, at + k * w->plane, mean, factor, element(w->in[2], parameter));
        }
    }
}

static heed_status compute_channel_norm(heed_compute *c)
{
    channel_job w = { .node = c->node, .kind = kind_of(c->node), .in = c->in, .x = c->in[0], .y = c->out[0], .plane = 1 };
    if (heed_tensor_count(w.x) == 0) return HEED_OK;
    w.epsilon = (double) heed_node_float(c->node, "epsilon", 1e-5f);
    w.channels = w.x->rank > 1 ? w.x->dims[1] : 1;
    w.groups = w.kind == NORM_GROUP ? heed_node_int(c->node, "num_groups", 1) : w.channels;
    w.per_group = w.channels / w.groups;
    for (int d = 2; d < w.x->rank; d++) w.plane *= w.x->dims[d];
    heed_parallel_ranges(c->ctx, w.x->dims[0] * w.groups, HEED_GRAIN / (w.per_group * w.plane + 1) + 1, channel_task, &w);
    return HEED_OK;
}

#define CHANNEL_NORM(op_name, op_since, inputs, outputs)                                                                         \
    {                                                                                                                            \
        .domain = "", .name = op_name, .since = op_since, .min_in = inputs, .max_in = inputs, .min_out = 1, .max_out = outputs,  \
        .flags = HEED_OP_INPLACE, .infer = infer_channel_norm, .compute = compute_channel_norm                                   \
    }

const heed_op heed_ops_channel_norm[] = {
    CHANNEL_NORM("BatchNormalization", 9, 5, 5),
    CHANNEL_NORM("InstanceNormalization", 1, 3, 1),
    CHANNEL_NORM("GroupNormalization", 18, 3, 1),
    { 0 },
};
