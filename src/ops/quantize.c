/* QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear: 8- and 16-bit integers with a scale and a zero point, for a whole
 * tensor, for each index of an axis, or for blocks along it. */
#include <math.h>
#include <string.h>

#include "ops/util.h"

#define BLOCK 256

/* Where the parameters of element [o, a, i] of the axis form (outer, n, inner) are: at o * outer + a / block * n + i. */
struct layout {
    int64_t outer, n, inner;                          /* of x */
    int64_t block, outer_step, axis_step, inner_step; /* of the parameters */
};

static struct layout make_layout(const heed_compute *c)
{
    const heed_tensor *x = c->in[0], *scale = c->in[1];
    struct layout l = { 1, 1, 1, 1, 0, 0, 0 };
    int64_t count = heed_tensor_count(scale);
    if (scale->rank == 0 || (count == 1 && scale->rank == 1)) {
        l.inner = heed_tensor_count(x);
        return l;
    }
    int axis = heed_axis(heed_node_int(c->node, "axis", 1), x->rank);
    l.n = x->dims[axis];
    for (int d = 0; d < axis; d++) l.outer *= x->dims[d];
    for (int d = axis + 1; d < x->rank; d++) l.inner *= x->dims[d];
    l.axis_step = 1;
    if (scale->rank == 1) return l;
    l.block = heed_node_int(c->node, "block_size", 0);
    l.axis_step = l.inner, l.inner_step = 1, l.outer_step = l.inner * scale->dims[axis];
    return l;
}

static heed_status check_parameters(heed_infer *i)
{
    const heed_fact *x = i->in[0], *scale = i->in[1], *zero = i->n_in > 2 ? i->in[2] : NULL;
    int axis;
    if (x->rank < 0 || scale->rank < 0) return HEED_OK;
    if (zero && zero->rank >= 0 && heed_fact_shape_known(zero) && heed_fact_shape_known(scale) &&
        (zero->rank != scale->rank || memcmp(zero->dims, scale->dims, (size_t) zero->rank * sizeof(int64_t)) != 0))
        return heed_infer_fail(i, "the zero point has shape %s, expected that of the scale, %s", heed_infer_shape_text(i, zero),
                               heed_infer_shape_text(i, scale));
    if (scale->rank == 0 || (scale->rank == 1 && scale->dims[0] == 1)) return HEED_OK;
    HEED_TRY(heed_infer_axis(i, "axis", heed_node_int(i->node, "axis", 1), x->rank, &axis));
    if (scale->rank == 1) {
        if (scale->dims[0] < 0 || x->dims[axis] < 0 || scale->dims[0] == x->dims[axis]) return HEED_OK;
        return heed_infer_fail(i, "the scale has %lld elements, expected %lld, the size of axis %d", (long long) scale->dims[0],
                               (long long) x->dims[axis], axis);
    }
    int64_t block = heed_node_int(i->node, "block_size", 0);
    int fits = block > 0 && scale->rank == x->rank;
    for (int d = 0; d < x->rank && fits; d++) {
        int64_t want = d == axis && x->dims[d] >= 0 ? x->dims[d] / block + (x->dims[d] % block != 0) : x->dims[d];
        if (want >= 0 && scale->dims[d] >= 0 && want != scale->dims[d]) fits = 0;
    }
    return fits ? HEED_OK
                : heed_infer_fail(i, "the scale has shape %s, which does not fit %s in blocks of %lld along axis %d",
                                  heed_infer_shape_text(i, scale), heed_infer_shape_text(i, x), (long long) block, axis);
}

/* One of the integer types that hold quantised numbers. */
static heed_status quantised_type(const heed_infer *i, heed_dtype type)
{
    if (type == HEED_I8 || type == HEED_U8 || type == HEED_I16 || type == HEED_U16 || type == HEED_I32 || type == HEED_DTYPE_NONE)
        return HEED_OK;
    return heed_infer_fail(i, "quantised numbers are %s, expected i8, u8, i16, u16 or i32", heed_dtype_name(type));
}

static heed_status infer_quantize(heed_infer *i)
{
    HEED_TRY(heed_infer_same(i));
    int64_t code = heed_node_int(i->node, "output_dtype", 0);
    const heed_fact *zero = i->n_in > 2 ? i->in[2] : NULL;
    i->out[0].dtype = zero ? zero->dtype : code ? heed_dtype_from_onnx(code) : HEED_U8;
    if (code && i->out[0].dtype == HEED_DTYPE_NONE && !zero)
        return heed_fail(HEED_ERR_UNSUPPORTED, "%s: output_dtype is %lld, an element type that heed does not have", i->node->op,
                         (long long) code);
    HEED_TRY(quantised_type(i, i->out[0].dtype));
    return check_parameters(i);
}

static heed_status infer_dequantize(heed_infer *i)
{
    HEED_TRY(quantised_type(i, i->in[0]->dtype));
    HEED_TRY(heed_infer_same(i));
    int64_t code = heed_node_int(i->node, "output_dtype", 0);
    i->out[0].dtype = code ? heed_dtype_from_onnx(code) : i->in[1]->dtype;
    return check_parameters(i);
}

struct job {
    const heed_tensor *x, *scale, *zero; /* zero NULL: 0 */
    heed_tensor *y;
    struct layout l;
    double low, high; /* of the quantised type */
    int divide;       /* quantise */
};

static double parameter(const heed_tensor *t, int64_t at)
{
    double x;
    heed_cast_line(HEED_F64, &x, 8, t->dtype, (const char *) t->data + at * (int64_t) heed_dtype_size(t->dtype), 0, 1);
    return x;
}

/* In f32, as the definition has it; half to even. */
static void convert(const struct job *job, float *x, float scale, float zero, int64_t n)
{
    if (!job->divide) {
        for (int64_t k = 0; k < n; k++) x[k] = (x[k] - zero) * scale;
        return;
    }
    for (int64_t k = 0; k < n; k++) {
        double q = (double) rintf(x[k] / scale) + zero;
        x[k] = (float) (q < job->low ? job->low : q > job->high ? job->high : q != q ? zero : q);
    }
}

/* A range of (outer, axis) lines of `inner` elements. */
static void lines(void *arg, int64_t begin, int64_t end)
{
    const struct job *job = arg;
    const struct layout *l = &job->l;
    int64_t x_size = (int64_t) heed_dtype_size(job->x->dtype), y_size = (int64_t) heed_dtype_size(job->y->dtype);
    float block[BLOCK];
    for (int64_t line = begin; line < end; line++) {
        int64_t at = line / l->n * l->outer_step + line % l->n / l->block * l->axis_step;
        int64_t run = l->inner_step ? 1 : BLOCK; /* elements that share their parameters */
        for (int64_t k = 0; k < l->inner; k += run) {
            int64_t n = l->inner - k < run ? l->inner - k : run, e = line * l->inner + k, p = at + k * l->inner_step;
            heed_cast_line(HEED_F32, block, 4, job->x->dtype, (const char *) job->x->data + e * x_size, x_size, n);
            convert(job, block, (float) parameter(job->scale, p), job->zero ? (float) parameter(job->zero, p) : 0, n);
            heed_cast_line(job->y->dtype, (char *) job->y->data + e * y_size, y_size, HEED_F32, block, 4, n);
        }
    }
}

static heed_status compute_linear(heed_compute *c)
{
    struct job job = { .x = c->in[0], .scale = c->in[1], .zero = heed_compute_has(c, 2) ? c->in[2] : NULL, .y = c->out[0] };
    if (heed_tensor_count(job.x) == 0) return HEED_OK;
    job.l = make_layout(c);
    job.divide = strcmp(c->node->op, "QuantizeLinear") == 0;
    if (job.divide) {
        job.low = (double) heed_dtype_lowest(job.y->dtype);
        job.high = (double) heed_dtype_highest(job.y->dtype);
    }
    if (job.l.outer * job.l.n == 1) { /* one long line: cut it */
        int64_t count = job.l.inner;
        while (job.l.inner > HEED_GRAIN && job.l.inner % 2 == 0) job.l.inner /= 2;
        job.l.outer = count / job.l.inner;
    }
    heed_parallel_ranges(c->ctx, job.l.outer * job.l.n, HEED_GRAIN / 4 / job.l.inner, lines, &job);
    return HEED_OK;
}

/* ---- DynamicQuantizeLinear ---- */

static heed_status infer_dynamic(heed_infer *i)
{
    HEED_TRY(heed_infer_same(i));
    i->out[0].dtype = HEED_U8;
    for (int k = 1; k < i->n_out; k++) i->out[k].rank = 0, i->out[k].dtype = k == 1 ? HEED_F32 : HEED_U8;
    return HEED_OK;
}

static heed_status compute_dynamic(heed_compute *c)
{
    const heed_tensor *x = c->in[0];
    if (x->dtype != HEED_F32) return heed_compute_type(c, 0);
    const float *at = x->data;
    int64_t n = heed_tensor_count(x);
    float low = 0, high = 0; /* the range holds 0 */
    for (int64_t k = 0; k < n; k++) {
        low = at[k] < low ? at[k] : low;
        high = at[k] > high ? at[k] : high;
    }
    float scale = (high - low) / 255, zero = 0;
    if (scale == 0) scale = 1; /* all zero */
    zero = fminf(fmaxf(rintf(-low / scale), 0), 255);
    uint8_t zero_point = zero == zero ? (uint8_t) zero : 0;
    if (c->n_out > 1 && c->out[1]) *(float *) c->out[1]->data = scale;
    if (c->n_out > 2 && c->out[2]) *(uint8_t *) c->out[2]->data = zero_point;
    struct job job = { .low = 0, .high = 255, .divide = 1 };
    for (int64_t k = 0; k < n && c->out[0]; k += BLOCK) {
        float block[BLOCK];
        int64_t m = n - k < BLOCK ? n - k : BLOCK;
        memcpy(block, at + k, (size_t) m * sizeof *block);
        convert(&job, block, scale, zero_point, m);
        heed_cast_line(HEED_U8, (uint8_t *) c->out[0]->data + k, 1, HEED_F32, block, 4, m);
    }
    return HEED_OK;
}

const heed_op heed_ops_quantize[] = {
    HEED_OP("QuantizeLinear", 10, 2, 3, 1, .infer = infer_quantize, .compute = compute_linear),
    HEED_OP("DequantizeLinear", 10, 2, 3, 1, .infer = infer_dequantize, .compute = compute_linear),
    HEED_OP("DynamicQuantizeLinear", 11, 1, 1, 3, .infer = infer_dynamic, .compute = compute_dynamic),
    { 0 },
};
