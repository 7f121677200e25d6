/* Attention as plain whole-tensor steps: scores = scale q k^T, mask, softmax, scores v, each over all heads before the
 * next begins, the products by CBLAS. It covers every feature: the fallback where no fused kernel applies, the arm that
 * fused kernels are measured against, and a second opinion in tests.
 *
 * Each step is cut into (batch, head, block of query rows). Halves, and arrays whose strides BLAS cannot take, are first
 * copied to dense f32. Keys outside the span that some row of the batch may see by position and length are left out of
 * the products, so they are never read; a row that comes out non-finite, because 0 times a hidden NaN or infinity is
 * NaN, is computed again from the definition. */
#include <cblas.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "attention/solvers.h"
#include "base/half.h"

/* Query rows in a task: enough for an efficient product, few enough to share out. */
#define BLOCK 128

/* A [batch, heads] of f32 matrices as BLAS takes them: rows `ld` elements apart, or columns if transposed. */
struct matrices {
    const float *data;
    int64_t batch_stride, head_stride;
    int ld, transposed;
};

struct job {
    heed_attention_launch *launch;
    const heed_attention_problem *p;
    const heed_attention_class *c;
    struct matrices q, k, v;
    float *scores; /* [batch, heads_q, len_q, score_ld] */
    float *out;    /* f32, dense; NULL where the products go straight to the caller's */
    int64_t keys;  /* the longest span */
    int64_t score_ld;
    int64_t n_blocks;
    atomic_int_fast64_t n_redone;
};

static size_t aligned(size_t bytes)
{
    return heed_size_add(bytes, 63) & ~(size_t) 63;
}

static size_t f32_bytes(int64_t batch, int64_t heads, int64_t len, int64_t dim)
{
    size_t n = heed_size_mul(heed_size_mul((size_t) batch, (size_t) heads), heed_size_mul((size_t) len, (size_t) dim));
    return aligned(heed_size_mul(n, sizeof(float)));
}

/* Rows of scores begin at multiples of 64 bytes. */
static int64_t score_stride(int64_t keys)
{
    return keys > INT64_MAX - 15 ? keys : (keys + 15) & ~(int64_t) 15;
}

size_t heed_explode_workspace(const heed_solver *solver, const heed_attention_class *c, const heed_attention_size *size,
                              int n_workers, int n_splits)
{
    (void) solver, (void) n_workers, (void) n_splits;
    size_t bytes = f32_bytes(size->batch, c->heads_q, size->len_q, score_stride(size->keys));
    bytes = heed_size_add(bytes, f32_bytes(size->batch, c->heads_q, size->len_q, c->head_dim));
    bytes = heed_size_add(bytes, f32_bytes(size->batch, c->heads_kv, size->keys, c->head_dim));
    bytes = heed_size_add(bytes, f32_bytes(size->batch, c->heads_kv, size->keys, c->head_dim_v));
    return heed_size_add(bytes, f32_bytes(size->batch, c->heads_q, size->len_q, c->head_dim_v));
}

int heed_explode_applicable(const heed_solver *solver, const heed_attention_class *c, const heed_attention_limits *limits,
                            char *why, size_t why_size)
{
    (void) limits;
    const int64_t most = 1 << 30; /* BLAS counts in int */
    if (c->max_len_q > most || c->max_len_k > most) {
        snprintf(why, why_size, "lengths are up to %lld, BLAS takes %lld",
                 (long long) (c->max_len_q > most ? c->max_len_q : c->max_len_k), (long long) most);
        return 0;
    }
    const heed_attention_size size = { c->max_batch, c->max_len_q, c->max_len_k };
    if (heed_explode_workspace(solver, c, &size, 1, 0) > PTRDIFF_MAX) {
        snprintf(why, why_size, "the scores of the largest size overflow");
        return 0;
    }
    return 1;
}

double heed_explode_cost(const heed_solver *solver, const heed_attention_class *c, const heed_attention_size *size)
{
    (void) solver;
    double scores = (double) size->batch * (double) c->heads_q * (double) size->len_q * (double) size->keys;
    return scores * (2.0 * (c->head_dim + c->head_dim_v) / 130 + 1.5);
}

/* n elements `step` apart to dense f32. */
static void load_row(float *to, const char *from, heed_dtype dtype, int64_t step, int64_t n, const heed_row_kernels *rows)
{
    const uint16_t *half = (const uint16_t *) (const void *) from;
    const float *full = (const float *) (const void *) from;
    if (dtype == HEED_F16 && step == 1) rows->f32_from_f16(to, half, n);
    else if (dtype == HEED_BF16 && step == 1) rows->f32_from_bf16(to, half, n);
    else if (dtype == HEED_F16)
        for (int64_t i = 0; i < n; i++) to[i] = heed_f32_from_f16(half[i * step]);
    else if (dtype == HEED_BF16)
        for (int64_t i = 0; i < n; i++) to[i] = heed_f32_from_bf16(half[i * step]);
    else
        for (int64_t i = 0; i < n; i++) to[i] = full[i * step];
}

/* Dense f32 to n elements `step` apart. */
static void store_row(char *to, const float *from, heed_dtype dtype, int64_t step, int64_t n, const heed_row_kernels *rows)
{
    uint16_t *half = (uint16_t *) (void *) to;
    float *full = (float *) (void *) to;
    if (dtype == HEED_F16 && step == 1) rows->f16_from_f32(half, from, n);
    else if (dtype == HEED_BF16 && step == 1) rows->bf16_from_f32(half, from, n);
    else if (dtype == HEED_F16)
        for (int64_t i = 0; i < n; i++) half[i * step] = heed_f16_from_f32(from[i]);
    else if (dtype == HEED_BF16)
        for (int64_t i = 0; i < n; i++) half[i * step] = heed_bf16_from_f32(from[i]);
    else
        for (int64_t i = 0; i < n; i++) full[i * step] = from[i];
}

/* Can BLAS take [len, dim] with these strides? */
static int blas_form(struct matrices *m, const heed_array *a, int64_t len, int64_t dim)
{
    int64_t row = len > 1 ? a->strides[2] : dim, col = dim > 1 ? a->strides[3] : 1;
    const int64_t most = 1 << 30;
    *m = (struct matrices){ (const float *) (const void *) a->data, a->strides[0], a->strides[1], 0, 0 };
    if (col == 1 && row >= dim && row <= most) {
        m->ld = (int) row;
        return 1;
    }
    if (row == 1 && col >= len && col <= most) {
        m->ld = (int) col, m->transposed = 1;
        return 1;
    }
    return 0;
}

struct packing {
    const struct job *job;
    const heed_array *from;
    float *to;
    int64_t heads, len, dim;
    int by_key; /* rows are keys: only those of the batch's span are there */
};

static void pack_task(void *arg, int64_t task, int worker)
{
    (void) worker;
    const struct packing *w = arg;
    const heed_attention_class *c = w->job->c;
    const size_t size = heed_dtype_size(c->dtype);
    int64_t b = task / w->heads, h = task % w->heads, lo = 0, hi = w->len;
    if (w->by_key) heed_visible_span(w->job->p, b, &lo, &hi);
    float *to = w->to + task * w->len * w->dim;
    for (int64_t i = lo; i < hi; i++)
        load_row(to + i * w->dim, heed_array_at(w->from, size, b, h, i), c->dtype, w->from->strides[3], w->dim,
                 w->job->launch->rows);
}

/* Bring one input into a form for BLAS: as it is, or copied to *space, which moves on. */
static void prepare(struct job *job, struct matrices *m, const heed_array *a, int64_t heads, int64_t len, int64_t dim, int by_key,
                    char **space)
{
    if (job->c->dtype == HEED_F32 && blas_form(m, a, len, dim)) return;
    struct packing work = { job, a, (float *) (void *) *space, heads, len, dim, by_key };
    heed_parallel_for(job->launch->ctx, pack_task, &work, job->p->batch * heads);
    *m = (struct matrices){ work.to, heads * len * dim, len * dim, (int) dim, 0 };
    *space += f32_bytes(job->p->batch, heads, len, dim);
}

/* The rows of a task and the keys that its batch may see. */
struct block {
    int64_t b, h, g, first, n_rows, lo, n_keys;
    float *scores;
};

static struct block find_block(const struct job *job, int64_t task)
{
    struct block k = { .first = task % job->n_blocks * BLOCK };
    int64_t bh = task / job->n_blocks, hi;
    k.b = bh / job->c->heads_q, k.h = bh % job->c->heads_q, k.g = k.h / (job->c->heads_q / job->c->heads_kv);
    int64_t left = job->p->len_q - k.first;
    k.n_rows = left < BLOCK ? left : BLOCK;
    heed_visible_span(job->p, k.b, &k.lo, &hi);
    k.n_keys = hi - k.lo;
    k.scores = job->scores + (bh * job->p->len_q + k.first) * job->score_ld;
    return k;
}

/* Element (row, 0) of a matrix. */
static const float *matrix_at(const struct matrices *m, int64_t b, int64_t h, int64_t row)
{
    return m->data + b * m->batch_stride + h * m->head_stride + row * (m->transposed ? 1 : m->ld);
}

static void score_task(void *arg, int64_t task, int worker)
{
    (void) worker;
    const struct job *job = arg;
    const struct block at = find_block(job, task);
    if (at.n_keys == 0) return;
    /* A scale of 0 is left to the next step: BLAS would not look at the product then, and a NaN in it would be lost. */
    float alpha = job->c->scale != 0 ? job->c->scale : 1;
    const float *q = matrix_at(&job->q, at.b, at.h, at.first), *k = matrix_at(&job->k, at.b, at.g, at.lo);
    if (at.n_rows == 1) {
        memset(at.scores, 0, (size_t) at.n_keys * sizeof(float));
        cblas_sgemv(CblasRowMajor, job->k.transposed ? CblasTrans : CblasNoTrans,
                    (int) (job->k.transposed ? job->c->head_dim : at.n_keys),
                    (int) (job->k.transposed ? at.n_keys : job->c->head_dim), alpha, k, job->k.ld, q,
                    job->q.transposed ? job->q.ld : 1, 0, at.scores, 1);
        return;
    }
    cblas_sgemm(CblasRowMajor, job->q.transposed ? CblasTrans : CblasNoTrans, job->k.transposed ? CblasNoTrans : CblasTrans,
                (int) at.n_rows, (int) at.n_keys, job->c->head_dim, alpha, q, job->q.ld, k, job->k.ld, 0, at.scores,
                (int) job->score_ld);
}

static float mask_value(const char *mask, heed_tile_mask kind, heed_dtype dtype, int64_t at)
{
    switch (kind) {
    case HEED_TILE_MASK_BOOL: return mask[at] ? 0 : -INFINITY;
    case HEED_TILE_MASK_F32: return ((const float *) (const void *) mask)[at];
    case HEED_TILE_MASK_TYPE: {
        uint16_t h = ((const uint16_t *) (const void *) mask)[at];
        return dtype == HEED_F16 ? heed_f32_from_f16(h) : heed_f32_from_bf16(h);
    }
    case HEED_TILE_MASK_NONE: break;
    }
    return 0;
}

/* Scores are selected, not added, to -inf: a hidden one may be NaN. */
static void mask_row(float *s, int64_t n, const char *mask, heed_tile_mask kind, heed_dtype dtype, int64_t step)
{
    if (kind == HEED_TILE_MASK_F32 && step == 1) {
        const float *m = (const float *) (const void *) mask;
        for (int64_t j = 0; j < n; j++) s[j] = m[j] == -INFINITY ? -INFINITY : s[j] + m[j];
        return;
    }
    for (int64_t j = 0; j < n; j++) {
        float m = mask_value(mask, kind, dtype, j * step);
        s[j] = m == -INFINITY ? -INFINITY : s[j] + m;
    }
}

/* After the softmax of s, whose maximum was `top`: the largest weight is 1 / sum, which gives the log-sum-exp and lets
 * the sink into the denominator. */
static void finish_row(float *s, int64_t n, float top, float sink, float *lse)
{
    float largest = 0;
    for (int64_t j = 0; j < n; j++) largest = s[j] > largest || isnan(s[j]) ? s[j] : largest;
    double log_sum = largest == 0 ? -INFINITY : (double) top - log((double) largest);
    if (lse) *lse = (float) log_sum;
    if (sink == -INFINITY || log_sum == -INFINITY) return;
    float keep = (float) (1 / (1 + exp((double) sink - log_sum)));
    for (int64_t j = 0; j < n; j++) s[j] *= keep;
}

static void softmax_row(const struct job *job, const struct block *at, int64_t i, float *s)
{
    const heed_attention_problem *p = job->p;
    const heed_attention_class *c = job->c;
    const heed_row_kernels *rows = job->launch->rows;
    int64_t lo, hi;
    heed_visible_keys(p, at->b, i, &lo, &hi);
    if (hi < lo) lo = hi = at->lo;
    int64_t before = lo - at->lo, n = hi - lo;
    memset(s, 0, (size_t) before * sizeof *s);
    memset(s + before + n, 0, (size_t) (at->n_keys - before - n) * sizeof *s);
    s += before;
    if (c->scale == 0)
        for (int64_t j = 0; j < n; j++) s[j] *= c->scale;
    if (c->softcap > 0) {
        for (int64_t j = 0; j < n; j++) s[j] /= c->softcap;
        rows->tanh(s, s, n);
        for (int64_t j = 0; j < n; j++) s[j] *= c->softcap;
    }
    if (p->mask.data) {
        size_t size = c->mask == HEED_TILE_MASK_BOOL  ? 1
                      : c->mask == HEED_TILE_MASK_F32 ? sizeof(float)
                                                      : heed_dtype_size(c->dtype);
        const char *mask = heed_array_at(&p->mask, size, at->b, at->h, i) + lo * p->mask.strides[3] * (int64_t) size;
        mask_row(s, n, mask, c->mask, c->dtype, p->mask.strides[3]);
    }
    float *lse = p->lse.data ? (float *) (void *) heed_array_at(&p->lse, sizeof(float), at->b, at->h, i) : NULL;
    float sink = p->sinks ? p->sinks[at->h] : -INFINITY, top = -INFINITY;
    int finish = lse || sink != -INFINITY;
    for (int64_t j = 0; finish && j < n; j++) top = s[j] > top ? s[j] : top;
    rows->softmax(s, s, n);
    if (finish) finish_row(s, n, top, sink, lse);
}

static void softmax_task(void *arg, int64_t task, int worker)
{
    (void) worker;
    const struct job *job = arg;
    const struct block at = find_block(job, task);
    for (int64_t r = 0; r < at.n_rows; r++) softmax_row(job, &at, at.first + r, at.scores + r * job->score_ld);
}

static int is_finite_row(const float *x, int64_t n)
{
    uint32_t worst = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t magnitude = heed_bits_of_f32(x[i]) & 0x7fffffffu;
        worst = magnitude > worst ? magnitude : worst;
    }
    return worst < 0x7f800000u;
}

/* One row from the definition. */
static void redo_row(struct job *job, const struct block *at, int64_t i)
{
    const heed_attention_problem *p = job->p;
    const heed_attention_class *c = job->c;
    const size_t size = heed_dtype_size(c->dtype);
    const size_t mask_size = c->mask == HEED_TILE_MASK_BOOL ? 1 : c->mask == HEED_TILE_MASK_F32 ? sizeof(float) : size;
    heed_tile_row row = { .q = heed_array_at(&p->q, size, at->b, at->h, i),
                          .out = heed_array_at(&p->out, size, at->b, at->h, i),
                          .mask = p->mask.data ? heed_array_at(&p->mask, mask_size, at->b, at->h, i) : NULL,
                          .sink = p->sinks ? p->sinks[at->h] : -INFINITY,
                          .lse = p->lse.data ? (float *) (void *) heed_array_at(&p->lse, sizeof(float), at->b, at->h, i) : NULL };
    heed_visible_keys(p, at->b, i, &row.lo, &row.hi);
    heed_tile tile = { .n_rows = 1,
                       .rows = &row,
                       .head_dim = c->head_dim,
                       .head_dim_v = c->head_dim_v,
                       .q_col = p->q.strides[3],
                       .out_col = p->out.strides[3],
                       .k = heed_array_at(&p->k, size, at->b, at->g, 0),
                       .v = heed_array_at(&p->v, size, at->b, at->g, 0),
                       .k_row = p->k.strides[2],
                       .k_col = p->k.strides[3],
                       .v_row = p->v.strides[2],
                       .v_col = p->v.strides[3],
                       .mask_kind = c->mask,
                       .mask_col = p->mask.strides[3],
                       .mask_shared = 1,
                       .scale = c->scale,
                       .softcap = c->softcap,
                       .key_end = p->len_k };
    heed_row_exact(&tile, c->dtype, 0);
    atomic_fetch_add_explicit(&job->n_redone, 1, memory_order_relaxed);
}

/* Where the product of a block goes: the caller's output if BLAS can write it, else the dense f32 copy. */
static float *product_at(const struct job *job, const struct block *at, int *ld)
{
    if (job->out) {
        *ld = job->c->head_dim_v;
        return job->out + ((at->b * job->c->heads_q + at->h) * job->p->len_q + at->first) * job->c->head_dim_v;
    }
    *ld = job->p->len_q > 1 ? (int) job->p->out.strides[2] : job->c->head_dim_v;
    return (float *) (void *) heed_array_at(&job->p->out, sizeof(float), at->b, at->h, at->first);
}

static void product_task(void *arg, int64_t task, int worker)
{
    (void) worker;
    struct job *job = arg;
    const heed_attention_problem *p = job->p;
    const struct block at = find_block(job, task);
    const int dim = job->c->head_dim_v;
    int ld;
    float *out = product_at(job, &at, &ld);
    for (int64_t r = 0; r < at.n_rows && (at.n_keys == 0 || at.n_rows == 1); r++)
        memset(out + r * ld, 0, (size_t) dim * sizeof(float));
    const float *v = at.n_keys ? matrix_at(&job->v, at.b, at.g, at.lo) : NULL;
    if (at.n_keys && at.n_rows == 1)
        cblas_sgemv(CblasRowMajor, job->v.transposed ? CblasNoTrans : CblasTrans, (int) (job->v.transposed ? dim : at.n_keys),
                    (int) (job->v.transposed ? at.n_keys : dim), 1, v, job->v.ld, at.scores, 1, 0, out, 1);
    else if (at.n_keys)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, job->v.transposed ? CblasTrans : CblasNoTrans, (int) at.n_rows, dim,
                    (int) at.n_keys, 1, at.scores, (int) job->score_ld, v, job->v.ld, 0, out, ld);
    for (int64_t r = 0; r < at.n_rows; r++) {
        if (!is_finite_row(out + r * ld, dim)) redo_row(job, &at, at.first + r);
        else if (job->out)
            store_row(heed_array_at(&p->out, heed_dtype_size(job->c->dtype), at.b, at.h, at.first + r), out + r * ld,
                      job->c->dtype, p->out.strides[3], dim, job->launch->rows);
    }
}

void heed_explode_launch(heed_attention_launch *launch)
{
    const heed_attention_problem *p = launch->problem;
    const heed_attention_class *c = p->cls;
    struct job job = { .launch = launch, .p = p, .c = c, .keys = heed_longest_span(p) };
    job.score_ld = score_stride(job.keys);
    job.n_blocks = (p->len_q + BLOCK - 1) / BLOCK;
    char *space = launch->workspace;
    job.scores = (float *) (void *) space;
    space += f32_bytes(p->batch, c->heads_q, p->len_q, job.score_ld);
    if (job.keys > 0) {
        prepare(&job, &job.q, &p->q, c->heads_q, p->len_q, c->head_dim, 0, &space);
        prepare(&job, &job.k, &p->k, c->heads_kv, p->len_k, c->head_dim, 1, &space);
        prepare(&job, &job.v, &p->v, c->heads_kv, p->len_k, c->head_dim_v, 1, &space);
    }
    struct matrices out;
    if (c->dtype != HEED_F32 || !blas_form(&out, &p->out, p->len_q, c->head_dim_v) || out.transposed)
        job.out = (float *) (void *) space;

    launch->n_tasks = p->batch * c->heads_q * job.n_blocks;
    launch->splits_done = 1;
    heed_parallel_for(launch->ctx, score_task, &job, launch->n_tasks);
    heed_parallel_for(launch->ctx, softmax_task, &job, launch->n_tasks);
    heed_parallel_for(launch->ctx, product_task, &job, launch->n_tasks);
    launch->n_redone = atomic_load(&job.n_redone);
}
