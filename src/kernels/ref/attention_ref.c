/* The specification: whole attention in double, one query row at a time, one key at a time, straight from
 * include/heed/attention.h. Slow on purpose: everything else is measured against it. */
#include <heed/attention.h>
#include <math.h>

#include "base/half.h"
#include "kernels/kernels.h"

static double element(const heed_ref_array *a, int64_t offset)
{
    switch (a->dtype) {
    case HEED_F64: return ((const double *) a->data)[offset];
    case HEED_F32: return (double) ((const float *) a->data)[offset];
    case HEED_F16: return (double) heed_f32_from_f16(((const uint16_t *) a->data)[offset]);
    case HEED_BF16: return (double) heed_f32_from_bf16(((const uint16_t *) a->data)[offset]);
    default: return (double) ((const uint8_t *) a->data)[offset]; /* bool */
    }
}

static int64_t at(const heed_ref_array *a, int64_t b, int64_t h, int64_t i, int64_t j)
{
    return b * a->strides[0] + h * a->strides[1] + i * a->strides[2] + j * a->strides[3];
}

/* Offsets and windows come from outside and may be extreme: positions are exact in it. */
__extension__ typedef __int128 wide;

static int64_t key_length(const heed_ref_problem *p, int64_t b)
{
    return p->key_lengths ? p->key_lengths[b] : p->len_k;
}

static int64_t diagonal_offset(const heed_ref_problem *p, int64_t b)
{
    switch ((heed_offset_mode) p->offset_mode) {
    case HEED_OFFSET_BOTTOM_RIGHT: return key_length(p, b) - p->len_q;
    case HEED_OFFSET_VALUE: return p->offset;
    case HEED_OFFSET_PER_BATCH: return p->offsets[b];
    case HEED_OFFSET_TOP_LEFT: break;
    }
    return 0;
}

/* Key length, causal and window. */
static int in_reach(const heed_ref_problem *p, int64_t b, int64_t i, int64_t j)
{
    if (j >= key_length(p, b)) return 0;
    wide centre = (wide) i + diagonal_offset(p, b);
    if (p->window_left >= 0 && j < centre - p->window_left) return 0;
    if (p->window_right >= 0 && j > centre + p->window_right) return 0;
    return 1;
}

/* What the mask adds to the score of key j; -inf hides it, as 0 in a boolean mask does. */
static double mask_value(const heed_ref_problem *p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    if (!p->mask.data) return 0;
    double m = element(&p->mask, at(&p->mask, b, h, i, j));
    if (heed_dtype_is_float(p->mask.dtype)) return m;
    return m != 0 ? 0 : -INFINITY;
}

static int visible(const heed_ref_problem *p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    return in_reach(p, b, i, j) && mask_value(p, b, h, i, j) != -INFINITY;
}

static double score(const heed_ref_problem *p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    int64_t g = h / (p->heads_q / p->heads_kv);
    double dot = 0;
    for (int64_t d = 0; d < p->head_dim; d++)
        dot += element(&p->q, at(&p->q, b, h, i, d)) * element(&p->k, at(&p->k, b, g, j, d));
    double s = p->scale * dot;
    if (p->softcap > 0) s = p->softcap * tanh(s / p->softcap);
    return s + mask_value(p, b, h, i, j);
}

/* exp(s - m), where nothing but -inf was seen so far too. */
static double weight(double s, double m)
{
    return m == -INFINITY ? exp(s) : exp(s - m);
}

/* One query row. A visible key whose score is -inf by itself (an overflow in q k) weighs 0; if there is nothing else, the
 * row is 0 as if it saw no key. */
static void attend(const heed_ref_problem *p, int64_t b, int64_t h, int64_t i, double *row)
{
    int64_t g = h / (p->heads_q / p->heads_kv), n = (b * p->heads_q + h) * p->len_q + i;
    double *out = p->out + n * p->head_dim_v, m = -INFINITY, sum = 0, sink = -INFINITY;

    for (int64_t j = 0; j < p->len_k; j++) {
        if (!visible(p, b, h, i, j)) continue;
        row[j] = score(p, b, h, i, j);
        if (row[j] > m) m = row[j];
    }
    if (p->sinks) sink = (double) p->sinks[h];
    double top = sink > m ? sink : m, visible_sum = 0;
    for (int64_t c = 0; c < p->head_dim_v; c++) out[c] = 0;
    for (int64_t j = 0; j < p->len_k; j++) {
        if (!visible(p, b, h, i, j)) continue;
        double w = weight(row[j], top);
        visible_sum += weight(row[j], m);
        sum += w;
        for (int64_t c = 0; c < p->head_dim_v; c++) out[c] += w * element(&p->v, at(&p->v, b, g, j, c));
    }
    sum += weight(sink, top);
    for (int64_t c = 0; c < p->head_dim_v; c++) out[c] = sum == 0 ? 0 : out[c] / sum;
    if (p->lse) p->lse[n] = visible_sum == 0 ? -INFINITY : m + log(visible_sum);
}

void heed_ref_attention(const heed_ref_problem *p, double *row)
{
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads_q; h++)
            for (int64_t i = 0; i < p->len_q; i++) attend(p, b, h, i, row);
}
