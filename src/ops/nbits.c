/* MatMulNBits of com.microsoft: weights of 4 or 8 bits in blocks along k that share a scale and a zero point. A block becomes f32
 * on its way into the product's panels, so that the weights stay small in memory.
 *
 * Inputs: A [.., K], B u8 [N, blocks, block_size * bits / 8], scales [N, blocks], zero_points (u8, packed like B, or of the
 * scales' type), g_idx, bias [N]. w = (q - zero) * scale; the zero point is 2^(bits - 1) where none is given. */
#include <string.h>

#include "base/half.h"
#include "ops/gemm.h"
#include "ops/line_io.h"

#define SIZE_LIMIT ((int64_t) 1 << 40) /* of N and K */
#define BLOCK_MAX ((int64_t) 1 << 20)

enum { A, B, SCALES, ZEROS, GROUP_INDEX, BIAS, N_INPUTS };

/* ---- shapes ---- */

typedef struct sizes {
    int64_t n, k, block, bits, blocks, block_bytes, zero_bytes; /* zero_bytes: of the packed zero points of a column */
} sizes;

static sizes sizes_of(const heed_node *node)
{
    sizes s = { heed_node_int(node, "N", 0),
                heed_node_int(node, "K", 0),
                heed_node_int(node, "block_size", 32),
                heed_node_int(node, "bits", 4),
                0,
                0,
                0 };
    if (s.block <= 0 || s.block > BLOCK_MAX || s.k <= 0 || s.k > SIZE_LIMIT) return s; /* the rule refuses these */
    s.blocks = (s.k + s.block - 1) / s.block;
    s.block_bytes = s.block / 8 * s.bits;
    s.zero_bytes = (s.blocks * s.bits + 7) / 8;
    return s;
}

static heed_status check_sizes(heed_infer *i, const sizes *s)
{
    if (s->n < 1 || s->n > SIZE_LIMIT || s->k < 1 || s->k > SIZE_LIMIT)
        return heed_infer_fail(i, "N is %lld and K is %lld, expected 1 to %lld", (long long) s->n, (long long) s->k,
                               (long long) SIZE_LIMIT);
    if (s->bits != 4 && s->bits != 8)
        return heed_fail(HEED_ERR_UNSUPPORTED, "%s: bits is %lld, supported are 4 and 8", i->node->op, (long long) s->bits);
    if (s->block < 16 || s->block > BLOCK_MAX || (s->block & (s->block - 1)))
        return heed_infer_fail(i, "block_size is %lld, expected a power of two from 16 on", (long long) s->block);
    return HEED_OK;
}

static heed_status check_count(heed_infer *i, int input, const char *name, int64_t per_column, int64_t n)
{
    const heed_fact *f = input < i->n_in ? i->in[input] : NULL;
    int64_t want, have = f ? heed_fact_count(f) : -1;
    if (have < 0) return HEED_OK;
    if (__builtin_mul_overflow(per_column, n, &want) || have != want)
        return heed_infer_fail(i, "%s has %lld elements, expected %lld for each of %lld columns", name, (long long) have,
                               (long long) per_column, (long long) n);
    return HEED_OK;
}

static heed_status infer_nbits(heed_infer *i)
{
    const heed_fact *a = i->in[A], *zeros = i->n_in > ZEROS ? i->in[ZEROS] : NULL;
    heed_fact *out = &i->out[0];
    sizes s = sizes_of(i->node);
    out->dtype = a->dtype;
    if (a->dtype != HEED_DTYPE_NONE && (!heed_dtype_is_float(a->dtype) || a->dtype == HEED_F64))
        return heed_infer_fail(i, "A is %s, expected f32, f16 or bf16", heed_dtype_name(a->dtype));
    HEED_TRY(check_sizes(i, &s));
    if (i->n_in > GROUP_INDEX && i->in[GROUP_INDEX])
        return heed_fail(HEED_ERR_UNSUPPORTED, "%s: g_idx is not supported", i->node->op);
    if (i->in[B]->dtype != HEED_DTYPE_NONE && i->in[B]->dtype != HEED_U8)
        return heed_infer_fail(i, "B is %s, expected u8", heed_dtype_name(i->in[B]->dtype));
    if (i->in[SCALES]->dtype != HEED_DTYPE_NONE && !heed_dtype_is_float(i->in[SCALES]->dtype))
        return heed_infer_fail(i, "the scales are %s, expected a float", heed_dtype_name(i->in[SCALES]->dtype));
    HEED_TRY(check_count(i, B, "B", s.blocks * s.block_bytes, s.n));
    HEED_TRY(check_count(i, SCALES, "scales", s.blocks, s.n));
    if (zeros) HEED_TRY(check_count(i, ZEROS, "zero_points", zeros->dtype == HEED_U8 ? s.zero_bytes : s.blocks, s.n));
    HEED_TRY(check_count(i, BIAS, "bias", 1, s.n));
    if (a->rank < 0) return HEED_OK;
    if (a->rank < 1 || (a->dims[a->rank - 1] >= 0 && a->dims[a->rank - 1] != s.k))
        return heed_infer_fail(i, "A has shape %s, expected its last axis to be K, %lld", heed_infer_shape_text(i, a),
                               (long long) s.k);
    out->rank = a->rank;
    memcpy(out->dims, a->dims, sizeof out->dims);
    out->dims[a->rank - 1] = s.n;
    return HEED_OK;
}

/* ---- running ---- */

typedef struct weights {
    heed_gemm_source source; /* first: fill() gets its address */
    sizes s;
    const heed_tensor *b, *scales, *zeros; /* zeros NULL: the middle */
} weights;

static float float_at(const heed_tensor *t, int64_t at)
{
    if (t->dtype == HEED_F32) return ((const float *) t->data)[at];
    if (t->dtype == HEED_F16) return heed_f32_from_f16(((const uint16_t *) t->data)[at]);
    if (t->dtype == HEED_BF16) return heed_f32_from_bf16(((const uint16_t *) t->data)[at]);
    return (float) ((const double *) t->data)[at];
}

static float zero_point(const weights *w, int64_t column, int64_t block)
{
    if (!w->zeros) return w->s.bits == 4 ? 8 : 128;
    if (w->zeros->dtype != HEED_U8) return float_at(w->zeros, column * w->s.blocks + block);
    const uint8_t *q = (const uint8_t *) w->zeros->data + column * w->s.zero_bytes;
    if (w->s.bits == 8) return q[block];
    return block & 1 ? q[block / 2] >> 4 : q[block / 2] & 15;
}

/* Terms k0 to k0 + k of a column; k0 is even. */
static void unpack_column(const weights *w, const heed_gemm_kernel *kernel, float *to, int64_t column, int64_t k0, int64_t k)
{
    const uint8_t *q = (const uint8_t *) w->b->data + column * w->s.blocks * w->s.block_bytes;
    while (k > 0) {
        int64_t block = k0 / w->s.block, n = (block + 1) * w->s.block - k0;
        if (n > k) n = k;
        float scale = float_at(w->scales, column * w->s.blocks + block), zero = zero_point(w, column, block);
        if (w->s.bits == 4) kernel->unpack4(to, q + k0 / 2, n, zero, scale);
        else kernel->unpack8(to, q + k0, n, zero, scale);
        to += n, k0 += n, k -= n;
    }
}

enum { LINE = 128, COLUMNS_MAX = 32 };

static void fill_panel(const heed_gemm_source *source, const heed_gemm_kernel *kernel, float *panel, int64_t j, int n, int64_t k0,
                       int64_t k)
{
    const weights *w = (const weights *) source;
    float lines[COLUMNS_MAX][LINE];
    for (int64_t at = 0; at < k; at += LINE) {
        int64_t some = k - at < LINE ? k - at : LINE;
        for (int c = 0; c < n; c++) unpack_column(w, kernel, lines[c], j + c, k0 + at, some);
        kernel->pack_transposed(panel + at * kernel->cols, lines[0], LINE, some, n);
    }
}

static void describe(const heed_compute *c, const weights *w, heed_gemm *g)
{
    const heed_tensor *a = c->in[A], *y = c->out[0];
    const heed_gemm_state *state = c->state;
    *g = (heed_gemm){ .kernel = state->kernel,
                      .n_batch = a->rank - 1,
                      .m = 1,
                      .n = w->s.n,
                      .k = w->s.k,
                      .alpha = 1,
                      .beta = 1,
                      .b_source = &w->source,
                      .b = { .dtype = HEED_F32 } };
    g->a = (heed_matrix){ .data = a->data, .dtype = a->dtype, .col = a->strides[a->rank - 1] };
    g->c = (heed_matrix){ .data = y->data, .dtype = y->dtype, .col = 1 };
    for (int d = 0; d < g->n_batch; d++) g->batch[d] = a->dims[d], g->a.batch[d] = a->strides[d], g->c.batch[d] = y->strides[d];
    if (heed_compute_has(c, BIAS)) g->bias = (heed_matrix){ .data = c->in[BIAS]->data, .dtype = c->in[BIAS]->dtype, .col = 1 };
    heed_gemm_simplify(g);
}

static weights weights_of(const heed_compute *c)
{
    weights w = { .source = { fill_panel }, .s = sizes_of(c->node), .b = c->in[B], .scales = c->in[SCALES] };
    if (heed_compute_has(c, ZEROS)) w.zeros = c->in[ZEROS];
    return w;
}

static size_t scratch_nbits(const heed_compute *c)
{
    weights w = weights_of(c);
    heed_gemm g;
    describe(c, &w, &g);
    return heed_gemm_scratch(c->ctx, &g);
}

static heed_status compute_nbits(heed_compute *c)
{
    weights w = weights_of(c);
    heed_gemm g;
    describe(c, &w, &g);
    heed_gemm_run(c->ctx, &g, c->scratch);
    return HEED_OK;
}

static heed_status prepare_nbits(heed_compute *c, void **state)
{
    return heed_gemm_state_create(c, NULL, state);
}

const heed_op heed_ops_nbits[] = {
    { .domain = "com.microsoft",
      .name = "MatMulNBits",
      .since = 1,
      .min_in = 3,
      .max_in = N_INPUTS,
      .min_out = 1,
      .max_out = 1,
      .flags = HEED_OP_KEEP_STATE,
      .infer = infer_nbits,
      .compute = compute_nbits,
      .scratch = scratch_nbits,
      .prepare = prepare_nbits,
      .release = heed_gemm_state_release },
    { 0 },
};
