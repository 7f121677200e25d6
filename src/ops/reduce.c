/* Reductions over axes: ReduceSum, Mean, Max, Min, Prod, L1, L2, SumSquare, LogSum, LogSumExp.
 *
 * Each is a map of the elements, a fold, and a finish. Floats fold in double (dense f32 in f32 within a short block), so that
 * long sums stay exact enough. Where the innermost dimension is reduced, blocks fold into one number; else rows fold into a row.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/util.h"

#define BLOCK 256
#define LANES 16

typedef enum fold { FOLD_SUM, FOLD_PROD, FOLD_MAX, FOLD_MIN } fold;
typedef enum map { MAP_SAME, MAP_ABS, MAP_SQUARE, MAP_EXP } map;
typedef enum finish { FINISH_SAME, FINISH_MEAN, FINISH_SQRT, FINISH_LOG, FINISH_LOG_SUM_EXP } finish;

static const struct reduction {
    const char *op;
    fold fold;
    map map;
    finish finish;
} reductions[] = {
    { "ReduceSum", FOLD_SUM, MAP_SAME, FINISH_SAME },   { "ReduceMean", FOLD_SUM, MAP_SAME, FINISH_MEAN },
    { "ReduceMax", FOLD_MAX, MAP_SAME, FINISH_SAME },   { "ReduceMin", FOLD_MIN, MAP_SAME, FINISH_SAME },
    { "ReduceProd", FOLD_PROD, MAP_SAME, FINISH_SAME }, { "ReduceL1", FOLD_SUM, MAP_ABS, FINISH_SAME },
    { "ReduceL2", FOLD_SUM, MAP_SQUARE, FINISH_SQRT },  { "ReduceSumSquare", FOLD_SUM, MAP_SQUARE, FINISH_SAME },
    { "ReduceLogSum", FOLD_SUM, MAP_SAME, FINISH_LOG }, { "ReduceLogSumExp", FOLD_SUM, MAP_EXP, FINISH_LOG_SUM_EXP },
};

static const struct reduction *find(const heed_node *node)
{
    const struct reduction *r = reductions;
    while (strcmp(r->op, node->op) != 0) r++; /* one of the table, as heed_ops_reduce says */
    return r;
}

/* ---- the rule ---- */

/* Bits of the reduced axes; none given: all, or with noop_with_empty_axes none. */
static unsigned finish_axes(const heed_node *node, unsigned axes, int state, int rank)
{
    if (state == 1 && axes) return axes;
    return heed_node_int(node, "noop_with_empty_axes", 0) ? 0 : (1u << rank) - 1;
}

static heed_status infer_ints(heed_infer *i)
{
    const int64_t *ints;
    int n;
    const struct reduction *r = find(i->node);
    if (i->in[0]->rank != 1 || i->out[0].rank > 1 || i->in[0]->dtype != HEED_I64 || !heed_infer_ints(i, 0, &ints, &n) || n == 0)
        return HEED_OK;
    if (r->map != MAP_SAME || r->finish != FINISH_SAME || heed_fact_count(&i->out[0]) != 1) return HEED_OK;
    int64_t (*const combine[])(heed_dims *, int64_t, int64_t) = {
        [FOLD_SUM] = heed_dims_add, [FOLD_PROD] = heed_dims_mul, [FOLD_MAX] = heed_dims_max, [FOLD_MIN] = heed_dims_min
    };
    int64_t all = ints[0];
    for (int k = 1; k < n; k++) all = combine[r->fold](i->dims, all, ints[k]);
    return heed_infer_set_ints(i, 0, i->out[0].rank, &all, 1);
}

static heed_status infer_reduce(heed_infer *i, int axes_input)
{
    const heed_fact *in = i->in[0];
    heed_fact *out = &i->out[0];
    int keep = heed_node_int(i->node, "keepdims", 1) != 0, state, rank = 0;
    unsigned axes;
    out->dtype = in->dtype;
    if (in->rank < 0) return HEED_OK;
    HEED_TRY(heed_infer_axes(i, axes_input, in->rank, &axes, &state));
    if (state == 0) {
        const heed_fact *given = i->in[axes_input];
        if (keep) heed_fact_unknown_dims(out, in->rank);
        else if (given->rank == 1 && given->dims[0] > 0 && given->dims[0] <= in->rank)
            heed_fact_unknown_dims(out, in->rank - (int) given->dims[0]);
        return HEED_OK;
    }
    axes = finish_axes(i->node, axes, state, in->rank);
    for (int d = 0; d < in->rank; d++) {
        if (!(axes >> d & 1)) out->dims[rank++] = in->dims[d];
        else if (keep) out->dims[rank++] = 1;
    }
    out->rank = rank;
    return axes ? infer_ints(i) : HEED_OK;
}

static heed_status infer_with_attribute(heed_infer *i)
{
    return infer_reduce(i, -1);
}

static heed_status infer_with_input(heed_infer *i)
{
    return infer_reduce(i, 1);
}

/* ---- folding ---- */

/* Dimensions of the input that matter, kept and reduced apart, both from outer to inner; steps in bytes. At least one of each. */
struct dims {
    int n;
    int64_t dim[HEED_RANK_MAX + 1], step[HEED_RANK_MAX + 1];
};

struct job {
    const struct reduction *how;
    struct dims kept, reduced;
    int64_t count; /* elements that fold into one */
    const char *in;
    char *out;
    heed_dtype type;
    int by_rows;    /* the innermost kept dimension runs, not the innermost reduced one */
    int64_t pieces; /* of the innermost kept dimension, of up to BLOCK elements, when by rows */
};

/* Neighbours that lie together are joined. */
static void add_dim(struct dims *d, int64_t dim, int64_t step)
{
    if (dim == 1) return;
    if (d->n && d->step[d->n - 1] == step * dim) d->dim[d->n - 1] *= dim;
    else d->dim[d->n++] = dim;
    d->step[d->n - 1] = step;
}

static void split_dims(struct job *job, const heed_tensor *in, unsigned axes)
{
    int64_t size = (int64_t) heed_dtype_size(in->dtype);
    job->count = 1;
    for (int d = 0; d < in->rank; d++) {
        add_dim(axes >> d & 1 ? &job->reduced : &job->kept, in->dims[d], in->strides[d] * size);
        if (axes >> d & 1) job->count *= in->dims[d];
    }
    if (!job->kept.n) job->kept.dim[job->kept.n++] = 1;
    if (!job->reduced.n) job->reduced.dim[job->reduced.n++] = 1;
}

/* Go to the next line of the outer dimensions; 0 after the last one. */
static int next_line(const struct dims *d, int64_t *index, const char **at)
{
    for (int k = d->n - 2; k >= 0; k--) {
        *at += d->step[k];
        if (++index[k] < d->dim[k]) return 1;
        *at -= d->step[k] * d->dim[k];
        index[k] = 0;
    }
    return 0;
}

static const char *seek(const struct dims *d, const char *at, int64_t line)
{
    for (int k = d->n - 2; k >= 0; k--) {
        at += line % d->dim[k] * d->step[k];
        line /= d->dim[k];
    }
    return at;
}

static double neutral(fold how)
{
    switch (how) {
    case FOLD_PROD: return 1;
    case FOLD_MAX: return -INFINITY;
    case FOLD_MIN: return INFINITY;
    default: return 0;
    }
}

/* NaN wins. */
static inline double fold_two(fold how, double a, double b)
{
    switch (how) {
    case FOLD_PROD: return a * b;
    case FOLD_MAX: return a > b || a != a ? a : b;
    case FOLD_MIN: return a < b || a != a ? a : b;
    default: return a + b;
    }
}

static void map_block(double *x, map how, int64_t n, const double *max, int64_t max_step)
{
    switch (how) {
    case MAP_ABS:
        for (int64_t k = 0; k < n; k++) x[k] = fabs(x[k]);
        break;
    case MAP_SQUARE:
        for (int64_t k = 0; k < n; k++) x[k] *= x[k];
        break;
    case MAP_EXP:
        for (int64_t k = 0; k < n; k++) x[k] = exp(x[k] - max[k * max_step]);
        break;
    default: break;
    }
}

/* The common cases of f32 and halves. Lanes of f32 for a block, which is short. 0 if it is another case. */
static int fold_f32(const float *x, int64_t n, fold how, map by, double *result)
{
    float lanes[LANES];
    int64_t k = 0, nans = 0;
    if (how == FOLD_PROD || (by != MAP_SAME && !(by == MAP_SQUARE && how == FOLD_SUM))) return 0;
    for (int j = 0; j < LANES; j++) lanes[j] = (float) neutral(how);
    for (; k + LANES <= n; k += LANES) {
        const float *v = x + k;
        if (how == FOLD_MAX) {
            for (int j = 0; j < LANES; j++) lanes[j] = v[j] > lanes[j] ? v[j] : lanes[j];
        } else if (how == FOLD_MIN) {
            for (int j = 0; j < LANES; j++) lanes[j] = v[j] < lanes[j] ? v[j] : lanes[j];
        } else if (by == MAP_SQUARE) {
            for (int j = 0; j < LANES; j++) lanes[j] += v[j] * v[j];
        } else {
            for (int j = 0; j < LANES; j++) lanes[j] += v[j];
        }
    }
    if (how == FOLD_MAX || how == FOLD_MIN)
        for (int64_t j = 0; j < k; j++) nans += x[j] != x[j]; /* the lanes have passed over them */
    if (nans) *result = NAN;
    for (; k < n; k++) *result = fold_two(how, *result, by == MAP_SQUARE ? x[k] * x[k] : x[k]);
    for (int j = 0; j < LANES; j++) *result = fold_two(how, *result, lanes[j]);
    return 1;
}

static double fold_block(const struct job *job, const char *at, int64_t n, fold how, map by, double max, double result)
{
    int64_t step = job->reduced.step[job->reduced.n - 1];
    float narrow[BLOCK];
    if (job->type != HEED_F64 && heed_dtype_is_float(job->type)) {
        const float *x = job->type == HEED_F32 && step == 4 ? (const float *) at : narrow;
        if (x == narrow) heed_cast_line(HEED_F32, narrow, 4, job->type, at, step, n);
        if (fold_f32(x, n, how, by, &result)) return result;
    }
    double block[BLOCK], lanes[4];
    heed_cast_line(HEED_F64, block, 8, job->type, at, step, n);
    map_block(block, by, n, &max, 0);
    for (int j = 0; j < 4; j++) lanes[j] = neutral(how);
    for (int64_t k = 0; k < n; k++) lanes[k % 4] = fold_two(how, lanes[k % 4], block[k]);
    for (int j = 0; j < 4; j++) result = fold_two(how, result, lanes[j]);
    return result;
}

/* All that folds into the output whose first element is at `at`. */
static double fold_element(const struct job *job, const char *at, fold how, map by, double max)
{
    int64_t index[HEED_RANK_MAX + 1] = { 0 }, n = job->reduced.dim[job->reduced.n - 1],
                                  step = job->reduced.step[job->reduced.n - 1];
    double result = neutral(how);
    if (job->count == 0) return result;
    do {
        for (int64_t k = 0; k < n; k += BLOCK)
            result = fold_block(job, at + k * step, n - k < BLOCK ? n - k : BLOCK, how, by, max, result);
    } while (next_line(&job->reduced, index, &at));
    return result;
}

/* The same for up to BLOCK outputs side by side. */
static void fold_row(const struct job *job, const char *at, int64_t n, fold how, map by, const double *max, double *result)
{
    const struct dims *r = &job->reduced;
    int64_t index[HEED_RANK_MAX + 1] = { 0 }, step = job->kept.step[job->kept.n - 1];
    double block[BLOCK];
    for (int64_t k = 0; k < n; k++) result[k] = neutral(how);
    if (job->count == 0) return;
    do {
        for (int64_t line = 0; line < r->dim[r->n - 1]; line++) {
            heed_cast_line(HEED_F64, block, 8, job->type, at + line * r->step[r->n - 1], step, n);
            map_block(block, by, n, max, 1);
            if (how == FOLD_SUM)
                for (int64_t k = 0; k < n; k++) result[k] += block[k];
            else
                for (int64_t k = 0; k < n; k++) result[k] = fold_two(how, result[k], block[k]);
        }
    } while (next_line(r, index, &at));
}

static double finish_one(const struct job *job, double x, double max)
{
    switch (job->how->finish) {
    case FINISH_MEAN: return x / (double) job->count;
    case FINISH_SQRT: return sqrt(x);
    case FINISH_LOG: return log(x);
    case FINISH_LOG_SUM_EXP: return log(x) + max;
    default: return x;
    }
}

/* exp(x - max) needs a number: infinities take care of themselves. */
static double shift_by(double max)
{
    return isfinite(max) ? max : 0;
}

static void reduce_elements(void *arg, int64_t begin, int64_t end)
{
    const struct job *job = arg;
    const struct dims *k = &job->kept;
    int64_t n = k->dim[k->n - 1], size = (int64_t) heed_dtype_size(job->type);
    for (int64_t o = begin; o < end; o++) {
        const char *at = seek(k, job->in, o / n) + o % n * k->step[k->n - 1];
        double max = job->how->map == MAP_EXP ? shift_by(fold_element(job, at, FOLD_MAX, MAP_SAME, 0)) : 0;
        double x = finish_one(job, fold_element(job, at, job->how->fold, job->how->map, max), max);
        heed_cast_line(job->type, job->out + o * size, size, HEED_F64, &x, 8, 1);
    }
}

static void reduce_rows(void *arg, int64_t begin, int64_t end)
{
    const struct job *job = arg;
    const struct dims *k = &job->kept;
    int64_t row = k->dim[k->n - 1], size = (int64_t) heed_dtype_size(job->type);
    double x[BLOCK], max[BLOCK] = { 0 };
    for (int64_t o = begin; o < end; o++) {
        int64_t first = o % job->pieces * BLOCK, n = row - first < BLOCK ? row - first : BLOCK;
        const char *at = seek(k, job->in, o / job->pieces) + first * k->step[k->n - 1];
        if (job->how->map == MAP_EXP) {
            fold_row(job, at, n, FOLD_MAX, MAP_SAME, NULL, max);
            for (int64_t j = 0; j < n; j++) max[j] = shift_by(max[j]);
        }
        fold_row(job, at, n, job->how->fold, job->how->map, max, x);
        for (int64_t j = 0; j < n; j++) x[j] = finish_one(job, x[j], max[j]);
        heed_cast_line(job->type, job->out + (o / job->pieces * row + first) * size, size, HEED_F64, x, 8, n);
    }
}

/* ---- integers: 64-bit, wrapping; the smallest and largest of u64 by way of a turned sign bit ---- */

static int64_t fold_ints(const struct job *job, const char *at, int64_t turn)
{
    int64_t index[HEED_RANK_MAX + 1] = { 0 }, n = job->reduced.dim[job->reduced.n - 1],
                                  step = job->reduced.step[job->reduced.n - 1];
    int64_t result = job->how->fold == FOLD_PROD ? 1 : 0, x;
    if (job->how->fold == FOLD_MAX) result = heed_dtype_lowest(job->type) ^ turn;
    if (job->how->fold == FOLD_MIN) result = heed_dtype_highest(job->type) ^ turn;
    if (job->count == 0) return result ^ turn;
    do {
        for (int64_t k = 0; k < n; k++) {
            heed_cast_line(HEED_I64, &x, 8, job->type, at + k * step, 0, 1);
            uint64_t u = (uint64_t) x, r = (uint64_t) result;
            if (job->how->map == MAP_ABS && x < 0) u = 0 - u;
            if (job->how->map == MAP_SQUARE) u *= u;
            x = (int64_t) u ^ turn;
            switch (job->how->fold) {
            case FOLD_SUM: result = (int64_t) (r + u); break;
            case FOLD_PROD: result = (int64_t) (r * u); break;
            case FOLD_MAX: result = x > result ? x : result; break;
            case FOLD_MIN: result = x < result ? x : result; break;
            }
        }
    } while (next_line(&job->reduced, index, &at));
    return result ^ turn;
}

static void reduce_ints(void *arg, int64_t begin, int64_t end)
{
    const struct job *job = arg;
    const struct dims *k = &job->kept;
    int64_t n = k->dim[k->n - 1], size = (int64_t) heed_dtype_size(job->type);
    int ordered = job->how->fold == FOLD_MAX || job->how->fold == FOLD_MIN;
    for (int64_t o = begin; o < end; o++) {
        const char *at = seek(k, job->in, o / n) + o % n * k->step[k->n - 1];
        int64_t x = fold_ints(job, at, ordered && job->type == HEED_U64 ? INT64_MIN : 0);
        if (job->how->finish == FINISH_MEAN) x = job->count ? x / job->count : 0;
        heed_cast_line(job->type, job->out + o * size, size, HEED_I64, &x, 8, 1);
    }
}

/* ---- running ---- */

static heed_status run(heed_compute *c, unsigned axes)
{
    const heed_tensor *in = c->in[0], *out = c->out[0];
    struct job job = { .how = find(c->node), .in = in->data, .out = out->data, .type = in->dtype };
    int64_t outputs = heed_tensor_count(out);
    split_dims(&job, in, axes);
    if (outputs == 0) return HEED_OK;
    if (job.type == HEED_BOOL && job.how->fold != FOLD_MAX && job.how->fold != FOLD_MIN) return heed_compute_type(c, 0);
    int64_t grain = HEED_GRAIN / (job.count ? job.count : 1), row = job.kept.dim[job.kept.n - 1];
    if (!heed_dtype_is_float(job.type) && (job.how->finish == FINISH_SAME || job.how->finish == FINISH_MEAN)) {
        heed_parallel_ranges(c->ctx, outputs, grain, reduce_ints, &job);
    } else if (llabs(job.kept.step[job.kept.n - 1]) < llabs(job.reduced.step[job.reduced.n - 1]) && row >= 4) {
        job.pieces = (row + BLOCK - 1) / BLOCK;
        heed_parallel_ranges(c->ctx, outputs / row * job.pieces, grain / BLOCK, reduce_rows, &job);
    } else {
        heed_parallel_ranges(c->ctx, outputs, grain, reduce_elements, &job);
    }
    return HEED_OK;
}

static heed_status compute_with(heed_compute *c, int axes_input)
{
    unsigned axes;
    int state, rank = c->in[0]->rank;
    heed_compute_axes(c, axes_input, rank, &axes, &state);
    return run(c, finish_axes(c->node, axes, state, rank));
}

static heed_status compute_with_attribute(heed_compute *c)
{
    return compute_with(c, -1);
}

static heed_status compute_with_input(heed_compute *c)
{
    return compute_with(c, 1);
}

/* Axes moved from an attribute to an input at opset 18, for ReduceSum at 13. */
#define REDUCE(op, since, moved)                                                                                                 \
    HEED_OP(op, since, 1, 1, 1, .flags = HEED_OP_STRIDED, .infer = infer_with_attribute, .compute = compute_with_attribute),     \
        HEED_OP(op, moved, 1, 2, 1, .flags = HEED_OP_STRIDED, .infer = infer_with_input, .compute = compute_with_input,          \
                .shape_inputs = 1u << 1)

const heed_op heed_ops_reduce[] = {
    REDUCE("ReduceSum", 1, 13),
    REDUCE("ReduceMean", 1, 18),
    REDUCE("ReduceMax", 1, 18),
    REDUCE("ReduceMin", 1, 18),
    REDUCE("ReduceProd", 1, 18),
    REDUCE("ReduceL1", 1, 18),
    REDUCE("ReduceL2", 1, 18),
    REDUCE("ReduceSumSquare", 1, 18),
    REDUCE("ReduceLogSum", 1, 18),
    REDUCE("ReduceLogSumExp", 1, 18),
    { 0 },
};
