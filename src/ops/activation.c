/* Activations with parameters; and Clip, whose bounds are inputs since opset 11. */
#include <math.h>
#include <string.h>

#include "ops/lines.h"

#define BLOCK 256

typedef double function(double x, double a, double b);

#define FUNCTION(name, expr)                                                                                                     \
    static double name(double x, double a, double b)                                                                             \
    {                                                                                                                            \
        (void) a, (void) b;                                                                                                      \
        return expr;                                                                                                             \
    }

FUNCTION(leaky_relu, x < 0 ? a * x : x)
FUNCTION(elu, x < 0 ? a * expm1(x) : x)
FUNCTION(celu, x < 0 ? a * expm1(x / a) : x)
FUNCTION(selu, x > 0 ? b * x : b * a * expm1(x))
FUNCTION(hard_sigmoid, x != x ? x : fmin(fmax(a * x + b, 0), 1))
FUNCTION(thresholded_relu, x > a ? x : 0)
FUNCTION(shrink, x<-b ? x + a : x> b ? x - a : 0)

/* What each is called, and its parameters. */
static const struct activation {
    const char *op;
    function *of;
    const char *a_name, *b_name;
    float a, b;
} activations[] = {
    { "LeakyRelu", leaky_relu, "alpha", NULL, 0.01f, 0 },
    { "Elu", elu, "alpha", NULL, 1, 0 },
    { "Celu", celu, "alpha", NULL, 1, 0 },
    { "Selu", selu, "alpha", "gamma", 1.67326319217681884765625f, 1.05070102214813232421875f },
    { "HardSigmoid", hard_sigmoid, "alpha", "beta", 0.2f, 0.5f },
    { "ThresholdedRelu", thresholded_relu, "alpha", NULL, 1, 0 },
    { "Shrink", shrink, "bias", "lambd", 0, 0.5f },
};

struct job {
    function *of;
    double a, b;
    heed_dtype type;
};

static void activation_lines(void *arg, char *const *at, const int64_t *steps, int64_t n)
{
    const struct job *job = arg;
    double block[BLOCK];
    for (int64_t done = 0; done < n; done += BLOCK) {
        int64_t m = n - done < BLOCK ? n - done : BLOCK;
        heed_cast_line(HEED_F64, block, 8, job->type, at[1] + done * steps[1], steps[1], m);
        for (int64_t k = 0; k < m; k++) block[k] = job->of(block[k], job->a, job->b);
        heed_cast_line(job->type, at[0] + done * steps[0], steps[0], HEED_F64, block, 8, m);
    }
}

static heed_status compute_activation(heed_compute *c)
{
    const struct activation *found = activations;
    while (strcmp(found->op, c->node->op) != 0) found++; /* one of the table, as heed_ops_activation says */
    struct job job = { found->of, heed_node_float(c->node, found->a_name, found->a),
                       found->b_name ? heed_node_float(c->node, found->b_name, found->b) : 0, c->in[0]->dtype };
    if (!heed_dtype_is_float(job.type) && found->of != shrink) return heed_compute_type(c, 0);
    const heed_tensor *args[2] = { c->out[0], c->in[0] };
    heed_loop loop;
    heed_loop_init(&loop, 2, args);
    heed_loop_run(c->ctx, &loop, args, activation_lines, &job);
    return HEED_OK;
}

/* ---- Clip ---- */

#define CLIP(name, T)                                                                                                            \
    HEED_LINE2(name##_low, T, T, x < y ? y : x)                                                                                  \
    HEED_LINE2(name##_high, T, T, x > y ? y : x)
CLIP(f32, float)
CLIP(f64, double)
CLIP(i8, int8_t)
CLIP(i16, int16_t)
CLIP(i32, int32_t)
CLIP(i64, int64_t)
CLIP(u8, uint8_t)
CLIP(u16, uint16_t)
CLIP(u32, uint32_t)
CLIP(u64, uint64_t)

#define CLIP_TABLE(which)                                                                                                        \
    {                                                                                                                            \
        [HEED_F32] = f32_##which, [HEED_F16] = f32_##which, [HEED_BF16] = f32_##which, [HEED_F64] = f64_##which,                 \
        [HEED_I8] = i8_##which, [HEED_I16] = i16_##which, [HEED_I32] = i32_##which, [HEED_I64] = i64_##which,                    \
        [HEED_U8] = u8_##which, [HEED_U16] = u16_##which, [HEED_U32] = u32_##which, [HEED_U64] = u64_##which                     \
    }
static heed_line_fn *const low_lines[HEED_DTYPE_COUNT] = CLIP_TABLE(low);
static heed_line_fn *const high_lines[HEED_DTYPE_COUNT] = CLIP_TABLE(high);

/* max(low, min(x, high)) by way of two passes of lines; the upper bound last: it wins where the lower one is above it. */
static heed_status clip(heed_compute *c, const heed_tensor *low, const heed_tensor *high)
{
    const heed_tensor *from = c->in[0];
    heed_dtype type = from->dtype;
    if (!low_lines[type]) return heed_compute_type(c, 0);
    if (low) {
        const heed_tensor *pair[2] = { from, low };
        HEED_TRY(heed_run_lines(c, 2, c->out[0], pair, low_lines[type]));
        from = c->out[0];
    }
    if (high) {
        const heed_tensor *pair[2] = { from, high };
        return heed_run_lines(c, 2, c->out[0], pair, high_lines[type]);
    }
    if (!low && c->out[0]->data != c->in[0]->data) return heed_compute_same(c);
    return HEED_OK;
}

static heed_status infer_clip(heed_infer *i)
{
    heed_dtype type;
    HEED_TRY(heed_infer_same_type(i, 0, 2, &type));
    for (int k = 1; k < i->n_in; k++)
        if (i->in[k] && heed_fact_count(i->in[k]) >= 0 && heed_fact_count(i->in[k]) != 1)
            return heed_infer_fail(i, "bound %s has shape %s, expected a scalar", k == 1 ? "min" : "max",
                                   heed_infer_shape_text(i, i->in[k]));
    HEED_TRY(heed_infer_same(i));
    i->out[0].dtype = type;
    return HEED_OK;
}

static heed_status compute_clip(heed_compute *c)
{
    const heed_tensor *low = heed_compute_has(c, 1) ? c->in[1] : NULL, *high = heed_compute_has(c, 2) ? c->in[2] : NULL;
    heed_tensor scalars[2]; /* a bound of shape [1, 1] must not add dimensions */
    if (low) scalars[0] = *low, scalars[0].rank = 0, low = &scalars[0];
    if (high) scalars[1] = *high, scalars[1].rank = 0, high = &scalars[1];
    return clip(c, low, high);
}

#define ONE(op, since)                                                                                                           \
    HEED_OP(op, since, 1, 1, 1, .flags = HEED_OP_STRIDED | HEED_OP_INPLACE, .infer = heed_infer_same,                            \
            .compute = compute_activation)

const heed_op heed_ops_activation[] = {
    ONE("LeakyRelu", 6),
    ONE("Elu", 6),
    ONE("Celu", 12),
    ONE("Selu", 6),
    ONE("HardSigmoid", 6),
    ONE("ThresholdedRelu", 10),
    ONE("Shrink", 9),
    HEED_OP("Clip", 11, 1, 3, 1, .flags = HEED_OP_STRIDED | HEED_OP_INPLACE, .infer = infer_clip, .compute = compute_clip),
    { 0 },
};
