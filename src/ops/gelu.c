/* Activation functions: over lines of f32 for the products' epilogues, and as operators of their own. BiasGelu and FastGelu
 * of com.microsoft are the same with a bias along the last axis. */
#include "ops/gelu.h"

#include <math.h>
#include <string.h>

#include "ops/line_io.h"

#define QUICK_GELU_ALPHA 1.702f

enum { LINE = 1024 };

int heed_activation_parse(const char *name, heed_activation_desc *desc)
{
    static const struct {
        const char *name;
        heed_activation_desc desc;
    } known[] = {
        { "", { HEED_ACT_NONE, 0 } },
        { "gelu", { HEED_ACT_GELU, 0 } },
        { "gelu_tanh", { HEED_ACT_GELU_TANH, 0 } },
        { "silu", { HEED_ACT_SILU, 0 } },
        { "relu", { HEED_ACT_RELU, 0 } },
        { "tanh", { HEED_ACT_TANH, 0 } },
        { "quick_gelu", { HEED_ACT_SWISH, QUICK_GELU_ALPHA } },
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(name, known[i].name) != 0) continue;
        *desc = known[i].desc;
        return 1;
    }
    return 0;
}

static void swish(const heed_row_kernels *k, float alpha, float *y, const float *x, int64_t n)
{
    float gate[256];
    for (int64_t i = 0; i < n; i += 256) {
        int64_t some = n - i < 256 ? n - i : 256;
        for (int64_t j = 0; j < some; j++) gate[j] = alpha * x[i + j];
        k->sigmoid(gate, gate, some);
        for (int64_t j = 0; j < some; j++) y[i + j] = x[i + j] * gate[j];
    }
}

void heed_activate(const heed_row_kernels *k, heed_activation_desc desc, float *y, const float *x, int64_t n)
{
    switch (desc.kind) {
    case HEED_ACT_GELU: k->gelu(y, x, n); break;
    case HEED_ACT_GELU_TANH: k->gelu_tanh(y, x, n); break;
    case HEED_ACT_SILU: k->silu(y, x, n); break;
    case HEED_ACT_SWISH: swish(k, desc.alpha, y, x, n); break;
    case HEED_ACT_TANH: k->tanh(y, x, n); break;
    case HEED_ACT_SIGMOID: k->sigmoid(y, x, n); break;
    case HEED_ACT_RELU: /* NaN stays */
        for (int64_t i = 0; i < n; i++) y[i] = x[i] < 0 ? 0 : x[i];
        break;
    default:
        if (y != x) memcpy(y, x, (size_t) n * sizeof *y);
    }
}

double heed_activate_f64(heed_activation_desc desc, double x)
{
    switch (desc.kind) {
    case HEED_ACT_GELU: return 0.5 * x * (1 + erf(x * M_SQRT1_2));
    case HEED_ACT_GELU_TANH: return 0.5 * x * (1 + tanh(M_2_SQRTPI * M_SQRT1_2 * (x + 0.044715 * x * x * x)));
    case HEED_ACT_SILU: return x / (1 + exp(-x));
    case HEED_ACT_SWISH: return x / (1 + exp(-(double) desc.alpha * x));
    case HEED_ACT_TANH: return tanh(x);
    case HEED_ACT_SIGMOID: return 1 / (1 + exp(-x));
    case HEED_ACT_RELU: return x < 0 ? 0 : x;
    default: return x;
    }
}

/* ---- operators ---- */

/* What a node asks for, by its name and attributes. */
static heed_activation_desc desc_of(const heed_node *node)
{
    const char *approximate = heed_node_string(node, "approximate", "none");
    if (strcmp(node->op, "FastGelu") == 0) return (heed_activation_desc){ HEED_ACT_GELU_TANH, 0 };
    if (strcmp(node->op, "Silu") == 0) return (heed_activation_desc){ HEED_ACT_SILU, 0 };
    if (strcmp(node->op, "QuickGelu") == 0)
        return (heed_activation_desc){ HEED_ACT_SWISH, heed_node_float(node, "alpha", QUICK_GELU_ALPHA) };
    if (strcmp(node->op, "Swish") == 0) {
        float alpha = heed_node_float(node, "alpha", 1);
        return (heed_activation_desc){ alpha == 1 ? HEED_ACT_SILU : HEED_ACT_SWISH, alpha };
    }
    return (heed_activation_desc){ strcmp(approximate, "tanh") == 0 ? HEED_ACT_GELU_TANH : HEED_ACT_GELU, 0 };
}

static heed_status infer_activation(heed_infer *i)
{
    const char *approximate = heed_node_string(i->node, "approximate", "none");
    if (strcmp(approximate, "none") != 0 && strcmp(approximate, "tanh") != 0)
        return heed_infer_fail(i, "approximate is '%s', expected 'none' or 'tanh'", approximate);
    const heed_fact *bias = i->n_in > 1 ? i->in[1] : NULL;
    if (bias && bias->rank >= 0 && bias->rank != 1)
        return heed_infer_fail(i, "bias has shape %s, expected one dimension", heed_infer_shape_text(i, bias));
    if (bias && bias->rank == 1 && i->in[0]->rank >= 0) {
        int64_t last = i->in[0]->rank ? i->in[0]->dims[i->in[0]->rank - 1] : 1;
        if (bias->dims[0] >= 0 && last >= 0 && bias->dims[0] != last)
            return heed_infer_fail(i, "bias has %lld elements, expected %lld, the size of the last axis",
                                   (long long) bias->dims[0], (long long) last);
    }
    return heed_infer_same(i);
}

typedef struct activation_job {
    const heed_row_kernels *k;
    heed_activation_desc desc;
    const heed_tensor *x, *bias, *y;
    int64_t n_last;
} activation_job;

/* At most LINE elements, which with a bias lie within one row. */
static void run_line(const activation_job *w, int64_t at, int64_t n)
{
    float buf[LINE], target[LINE], bias[LINE];
    heed_dtype dtype = w->x->dtype;
    const float *x = heed_row_load(buf, dtype, w->x->data, at, 1, n);
    float *y = heed_row_target(target, dtype, w->y->data, at, 1);
    if (w->bias) {
        const float *b = heed_row_load(bias, w->bias->dtype, w->bias->data, at % w->n_last, 1, n);
        for (int64_t i = 0; i < n; i++) y[i] = x[i] + b[i];
        x = y;
    }
    heed_activate(w->k, w->desc, y, x, n);
    heed_row_store(dtype, w->y->data, at, 1, y, n);
}

static void run_activation(void *arg, int64_t begin, int64_t end)
{
    const activation_job *w = arg;
    if (w->x->dtype == HEED_F64) {
        const double *x = w->x->data, *b = w->bias ? w->bias->data : NULL;
        double *y = w->y->data;
        for (int64_t i = begin; i < end; i++) y[i] = heed_activate_f64(w->desc, b ? x[i] + b[i % w->n_last] : x[i]);
        return;
    }
    while (begin < end) {
        int64_t n = end - begin < LINE ? end - begin : LINE;
        if (w->bias && w->n_last - begin % w->n_last < n) n = w->n_last - begin % w->n_last;
        run_line(w, begin, n);
        begin += n;
    }
}

static heed_status compute_activation(heed_compute *c)
{
    if (!heed_dtype_is_float(c->in[0]->dtype)) return heed_compute_type(c, 0);
    activation_job w = { .k = heed_row_kernels_get(), .desc = desc_of(c->node), .x = c->in[0], .y = c->out[0] };
    if (heed_compute_has(c, 1)) w.bias = c->in[1];
    w.n_last = w.x->rank ? w.x->dims[w.x->rank - 1] : 1;
    if (w.bias && (w.bias->dtype != w.x->dtype || w.bias->dims[0] != w.n_last))
        return heed_compute_fail(c, "bias is %s[%lld], expected %s[%lld]", heed_dtype_name(w.bias->dtype),
                                 (long long) w.bias->dims[0], heed_dtype_name(w.x->dtype), (long long) w.n_last);
    heed_parallel_ranges(c->ctx, heed_tensor_count(w.y), HEED_GRAIN / 2, run_activation, &w);
    return HEED_OK;
}

#define ACTIVATION(op_domain, op_name, op_since, inputs_min, inputs_max)                                                         \
    {                                                                                                                            \
        .domain = op_domain, .name = op_name, .since = op_since, .min_in = inputs_min, .max_in = inputs_max, .min_out = 1,       \
        .max_out = 1, .flags = HEED_OP_INPLACE, .infer = infer_activation, .compute = compute_activation                         \
    }

const heed_op heed_ops_gelu[] = {
    ACTIVATION("", "Gelu", 20, 1, 1),
    ACTIVATION("", "Swish", 24, 1, 1),
    ACTIVATION("heed", "Gelu", 1, 1, 1),
    ACTIVATION("heed", "Silu", 1, 1, 1),
    ACTIVATION("heed", "QuickGelu", 1, 1, 1),
    ACTIVATION("com.microsoft", "Gelu", 1, 1, 1),
    ACTIVATION("com.microsoft", "QuickGelu", 1, 1, 1),
    ACTIVATION("com.microsoft", "BiasGelu", 1, 2, 2),
    ACTIVATION("com.microsoft", "FastGelu", 1, 1, 2),
    { 0 },
};
