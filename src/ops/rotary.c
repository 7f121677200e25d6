/* RotaryEmbedding of ONNX (23) and of com.microsoft. Pairs of channels (x1, x2) of a row turn by the angle of its position:
 * (cos x1 - sin x2, sin x1 + cos x2). The pairs are the two halves of the rotated channels, or neighbours where `interleaved`;
 * channels past them are copied. X is [B, H, S, D], or [B, S, H * D]. */
#include <string.h>

#include "ops/line_io.h"
#include "ops/rotary.h"

/* Inputs by number: com.microsoft has the positions before the caches. */
typedef struct inputs {
    int positions, cos, sin;
} inputs;

static int is_contrib(const heed_node *node)
{
    return strcmp(node->domain, HEED_DOMAIN_ONNX) != 0;
}

static inputs inputs_of(const heed_node *node, int n_in)
{
    if (is_contrib(node)) return (inputs){ 1, 2, 3 };
    return (inputs){ n_in > 3 ? 3 : -1, 1, 2 };
}

/* ---- shapes ---- */

static heed_status check_contrib(heed_infer *i)
{
    if (heed_node_int(i->node, "is_packed_batching", 0) != 0)
        return heed_fail(HEED_ERR_UNSUPPORTED, "%s: is_packed_batching is not supported", i->node->op);
    if (heed_node_float(i->node, "scale", 1) != 1)
        return heed_fail(HEED_ERR_UNSUPPORTED, "%s: a scale other than 1 is not supported", i->node->op);
    return HEED_OK;
}

static heed_status infer_rotary(heed_infer *i)
{
    const heed_fact *x = i->in[0];
    inputs in = inputs_of(i->node, i->n_in);
    heed_dtype dtype;
    HEED_TRY(check_contrib(i));
    if (x->dtype != HEED_DTYPE_NONE && (!heed_dtype_is_float(x->dtype) || x->dtype == HEED_F64))
        return heed_infer_fail(i, "x is %s, expected f32, f16 or bf16", heed_dtype_name(x->dtype));
    HEED_TRY(heed_infer_same_type(i, in.cos, in.sin, &dtype));
    if (x->rank >= 0 && x->rank != 3 && x->rank != 4) return heed_infer_fail(i, "x has rank %d, expected 3 or 4", x->rank);
    if (x->rank == 3 && !is_contrib(i->node) && heed_node_int(i->node, "num_heads", 0) <= 0)
        return heed_infer_fail(i, "num_heads is %lld, expected 1 or more beside an x of rank 3",
                               (long long) heed_node_int(i->node, "num_heads", 0));
    return heed_infer_same(i);
}

/* ---- running ---- */

typedef struct rotary {
    const heed_tensor *x, *y, *cos, *sin, *positions;
    int interleaved, contrib;
    int64_t batch, heads, len, dim, half;
    int64_t x_strides[4], y_strides[4]; /* batch, head, position, channel */
    float *lines;
} rotary;

enum { LINES = 4 }; /* of a head's length: x, y, cos, sin */

static void split_strides(const heed_tensor *t, int64_t dim, int64_t *strides)
{
    strides[0] = t->strides[0], strides[3] = t->strides[t->rank - 1];
    strides[1] = t->rank == 4 ? t->strides[1] : dim * t->strides[2];
    strides[2] = t->rank == 4 ? t->strides[2] : t->strides[1];
}

/* Heads and channels. Without num_heads they follow from the width of the caches. */
static heed_status split_heads(const heed_compute *c, rotary *r)
{
    int64_t cached = r->cos->rank ? r->cos->dims[r->cos->rank - 1] : 0, heads = heed_node_int(c->node, "num_heads", 0);
    int64_t rotated = heed_node_int(c->node, "rotary_embedding_dim", 0);
    r->batch = r->x->dims[0];
    if (r->x->rank == 4) {
        r->heads = r->x->dims[1], r->len = r->x->dims[2], r->dim = r->x->dims[3];
    } else {
        int64_t width = r->x->dims[2];
        if (heads <= 0) heads = cached > 0 && rotated == 0 ? width / (2 * cached) : 0;
        if (heads <= 0 || width % heads != 0)
            return heed_compute_fail(c, "x is %lld wide, which does not divide into %lld heads", (long long) width,
                                     (long long) heads);
        r->heads = heads, r->len = r->x->dims[1], r->dim = width / heads;
    }
    if (rotated == 0) rotated = r->dim;
    r->half = rotated / 2;
    if (rotated < 0 || rotated > r->dim || rotated % 2 != 0)
        return heed_compute_fail(c, "rotary_embedding_dim is %lld, expected an even number up to %lld", (long long) rotated,
                                 (long long) r->dim);
    if (cached != r->half)
        return heed_compute_fail(c, "the caches are %lld wide, expected %lld", (long long) cached, (long long) r->half);
    return HEED_OK;
}

/* The caches are [positions, half], or [B, S, half] where no positions are given. */
static heed_status check_caches(const heed_compute *c, const rotary *r)
{
    int want = r->positions ? 2 : 3;
    if (r->cos->rank != want || r->sin->rank != want ||
        memcmp(r->cos->dims, r->sin->dims, (size_t) want * sizeof *r->cos->dims) != 0)
        return heed_compute_fail(c, "the caches have ranks %d and %d, expected one shape of rank %d", r->cos->rank, r->sin->rank,
                                 want);
    if (!r->positions && (r->cos->dims[0] != r->batch || r->cos->dims[1] != r->len))
        return heed_compute_fail(c, "the caches are for %lld x %lld rows, expected %lld x %lld", (long long) r->cos->dims[0],
                                 (long long) r->cos->dims[1], (long long) r->batch, (long long) r->len);
    if (!r->positions) return HEED_OK;
    const heed_tensor *p = r->positions;
    int offset = r->contrib && heed_tensor_count(p) == 1;
    if (!offset && (p->rank != 2 || p->dims[0] != r->batch || p->dims[1] != r->len))
        return heed_compute_fail(c, "the positions have another shape than [%lld, %lld]", (long long) r->batch,
                                 (long long) r->len);
    return HEED_OK;
}

/* Row of the caches for a position of the input. */
static int64_t position_of(const rotary *r, int64_t b, int64_t s)
{
    if (r->contrib && heed_tensor_count(r->positions) == 1) return heed_tensor_int(r->positions, 0) + s;
    return heed_tensor_int(r->positions, b * r->len + s);
}

static heed_status check_positions(const heed_compute *c, const rotary *r)
{
    for (int64_t b = 0; r->positions && b < r->batch; b++)
        for (int64_t s = 0; s < r->len; s++) {
            int64_t at = position_of(r, b, s);
            if (at < 0 || at >= r->cos->dims[0])
                return heed_compute_fail(c, "position %lld is outside the %lld rows of the caches", (long long) at,
                                         (long long) r->cos->dims[0]);
        }
    return HEED_OK;
}

void heed_rotate(float *y, const float *x, const float *cosines, const float *sines, int64_t half, int64_t dim, int interleaved)
{
    int64_t apart = interleaved ? 1 : half, step = interleaved ? 2 : 1;
    for (int64_t i = 0; i < half; i++) {
        float a = x[i * step], b = x[i * step + apart];
        y[i * step] = cosines[i] * a - sines[i] * b;
        y[i * step + apart] = sines[i] * a + cosines[i] * b;
    }
    if (y != x) memcpy(y + 2 * half, x + 2 * half, (size_t) (dim - 2 * half) * sizeof *y);
}

static const float *cache_row(const rotary *r, const heed_tensor *cache, int64_t b, int64_t s, float *line)
{
    int64_t at = r->positions ? position_of(r, b, s) * cache->strides[0] : b * cache->strides[0] + s * cache->strides[1];
    return heed_row_load(line, cache->dtype, cache->data, at, cache->strides[cache->rank - 1], r->half);
}

/* A task is one position: all its heads turn alike. */
static void position_task(void *arg, int64_t task, int worker)
{
    const rotary *r = arg;
    int64_t b = task / r->len, s = task % r->len;
    float *lines = r->lines + (size_t) worker * LINES * (size_t) r->dim;
    const float *cosines = cache_row(r, r->cos, b, s, lines + 2 * r->dim),
                *sines = cache_row(r, r->sin, b, s, lines + 3 * r->dim);
    for (int64_t h = 0; h < r->heads; h++) {
        int64_t from = b * r->x_strides[0] + h * r->x_strides[1] + s * r->x_strides[2];
        int64_t to = b * r->y_strides[0] + h * r->y_strides[1] + s * r->y_strides[2];
        const float *x = heed_row_load(lines, r->x->dtype, r->x->data, from, r->x_strides[3], r->dim);
        float *y = heed_row_target(lines + r->dim, r->y->dtype, r->y->data, to, r->y_strides[3]);
        heed_rotate(y, x, cosines, sines, r->half, r->dim, r->interleaved);
        heed_row_store(r->y->dtype, r->y->data, to, r->y_strides[3], y, r->dim);
    }
}

static heed_status init_rotary(const heed_compute *c, rotary *r)
{
    inputs in = inputs_of(c->node, c->n_in);
    *r = (rotary){ .x = c->in[0], .y = c->out[0], .cos = c->in[in.cos], .sin = c->in[in.sin], .contrib = is_contrib(c->node) };
    if (in.positions >= 0 && heed_compute_has(c, in.positions)) r->positions = c->in[in.positions];
    r->interleaved = heed_node_int(c->node, "interleaved", 0) != 0;
    HEED_TRY(split_heads(c, r));
    HEED_TRY(check_caches(c, r));
    split_strides(r->x, r->dim, r->x_strides);
    split_strides(r->y, r->dim, r->y_strides);
    return HEED_OK;
}

static size_t scratch_rotary(const heed_compute *c)
{
    rotary r;
    if (init_rotary(c, &r) != HEED_OK) return 0; /* compute will say why */
    size_t line = heed_size_mul((size_t) r.dim, sizeof(float));
    return heed_size_mul(heed_size_mul(line, LINES), (size_t) heed_context_threads(c->ctx));
}

typedef struct range_job {
    rotary *r;
    int64_t grain, n;
} range_job;

static void range_task(void *arg, int64_t task, int worker)
{
    const range_job *w = arg;
    int64_t end = (task + 1) * w->grain < w->n ? (task + 1) * w->grain : w->n;
    for (int64_t t = task * w->grain; t < end; t++) position_task(w->r, t, worker);
}

static heed_status compute_rotary(heed_compute *c)
{
    rotary r;
    HEED_TRY(init_rotary(c, &r));
    HEED_TRY(check_positions(c, &r));
    if (heed_tensor_count(r.y) == 0) return HEED_OK;
    r.lines = c->scratch;
    range_job w = { &r, HEED_GRAIN / 2 / (r.heads * r.dim) + 1, r.batch * r.len };
    heed_parallel_for(c->ctx, range_task, &w, (w.n + w.grain - 1) / w.grain);
    return HEED_OK;
}

#define ROTARY(op_domain, op_since, inputs_min)                                                                                  \
    {                                                                                                                            \
        .domain = op_domain, .name = "RotaryEmbedding", .since = op_since, .min_in = inputs_min, .max_in = 4, .min_out = 1,      \
        .max_out = 1, .flags = HEED_OP_STRIDED, .infer = infer_rotary, .compute = compute_rotary, .scratch = scratch_rotary      \
    }

const heed_op heed_ops_rotary[] = {
    ROTARY("", 23, 3),
    ROTARY("com.microsoft", 1, 4),
    { 0 },
};
