/* Attention as plain whole-tensor steps, as a graph of plain operators runs it: scores = q k^T; scale, softcap and mask;
 * softmax; times v; each over all heads before the next begins. It covers every feature: the fallback where no fused kernel
 * applies, the arm that fused kernels are measured against, and a second opinion in tests.
 *
 * Each step is cut into (batch, head, block of query rows). Halves are converted to f32 first. Keys outside the span that
 * some row of the batch may see by position and length are left out of the products, so they are never read; a row that
 * comes out non-finite, because 0 times a hidden NaN or infinity is NaN, is computed again from the definition. */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "attention/solvers.h"
#include "base/half.h"

/* Query rows in a task: enough for an efficient product, few enough to share out. */
#define BLOCK 256

struct job {
    heed_attention_launch *launch;
    const heed_attention_problem *p;
    const heed_attention_class *c;
    heed_array q, k, v; /* as given, or converted to f32 */
    float *scores;      /* [batch, heads_q, len_q, score_row] */
    float *out;         /* f32, dense; NULL where the products go straight to the caller's */
    char *workers;
    size_t worker_bytes;
    int64_t score_row, n_blocks;
    atomic_int_fast64_t n_redone;
};

static size_t f32_bytes(int64_t batch, int64_t heads, int64_t len, int64_t dim)
{
    size_t n = heed_size_mul(heed_size_mul((size_t) batch, (size_t) heads), heed_size_mul((size_t) len, (size_t) dim));
    return heed_size_add(heed_size_mul(n, sizeof(float)), 63) & ~(size_t) 63;
}

/* Rows of scores begin at multiples of 64 bytes, and not all in the same cache sets. */
static int64_t score_row(int64_t keys)
{
    int64_t row = (keys + 15) & ~(int64_t) 15;
    return row % 512 == 0 ? row + 16 : row;
}

static size_t worker_bytes(const heed_attention_class *c, const heed_attention_env *env, int64_t keys)
{
    int64_t terms = keys > c->head_dim ? keys : c->head_dim;
    return heed_size_add(heed_gemm_block_scratch(env->gemm, BLOCK, terms), 63) & ~(size_t) 63;
}

size_t heed_explode_workspace(const heed_solver *solver, const heed_attention_class *c, const heed_attention_env *env,
                              const heed_attention_size *size, int n_workers)
{
    (void) solver;
    if (size->keys > INT64_MAX / 2) return SIZE_MAX;
    size_t bytes = heed_size_mul((size_t) n_workers, worker_bytes(c, env, size->keys));
    bytes = heed_size_add(bytes, f32_bytes(size->batch, c->heads_q, size->len_q, score_row(size->keys)));
    bytes = heed_size_add(bytes, f32_bytes(size->batch, c->heads_q, size->len_q, c->head_dim_v));
    if (c->dtype == HEED_F32) return bytes;
    bytes = heed_size_add(bytes, f32_bytes(size->batch, c->heads_q, size->len_q, c->head_dim));
    bytes = heed_size_add(bytes, f32_bytes(size->batch, c->heads_kv, size->keys, c->head_dim));
    return heed_size_add(bytes, f32_bytes(size->batch, c->heads_kv, size->keys, c->head_dim_v));
}

int heed_explode_applicable(const heed_solver *solver, const heed_attention_class *c, const heed_attention_env *env, char *why,
                            size_t why_size)
{
    const heed_attention_size size = { c->max_batch, c->max_len_q, c->max_len_k };
    if (heed_explode_workspace(solver, c, env, &size, 1) <= PTRDIFF_MAX) return 1;
    snprintf(why, why_size, "the scores of the largest size overflow");
    return 0;
}

double heed_explode_cost(const heed_solver *solver, const heed_attention_class *c, const heed_attention_size *size)
{
    (void) solver;
    double scores = (double) size->batch * (double) c->heads_q * (double) size->len_q * (double) size->keys;
    return scores * (2.0 * (c->head_dim + c->head_dim_v) / 110 + 0.5);
}

/* n elements `step` apart to dense f32. */
static void load_row(float *to, const char *from, heed_dtype dtype, int64_t step, int64_t n, const heed_row_kernels *rows)
{
    const uint16_t *half = (const uint16_t *) (const void *) from;
    if (step == 1) {
        (dtype == HEED_F16 ? rows->f32_from_f16 : rows->f32_from_bf16)(to, half, n);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        to[i] = dtype == HEED_F16 ? heed_f32_from_f16(half[i * step]) : heed_f32_from_bf16(half[i * step]);
}

/* Dense f32 to n elements `step` apart. */
static void store_row(char *to, const float *from, heed_dtype dtype, int64_t step, int64_t n, const heed_row_kernels *rows)
{
    uint16_t *half = (uint16_t *) (void *) to;
    if (dtype == HEED_F32) {
        for (int64_t i = 0; i < n; i++) ((float *) (void *) to)[i * step] = from[i];
    } else if (step == 1) {
        (dtype == HEED_F16 ? rows->f16_from_f32 : rows->bf16_from_f32)(half, from, n);
    } else {
        for (int64_t i = 0; i < n; i++)
            half[i * step] = dtype == HEED_F16 ? heed_f16_from_f32(from[i]) : heed_bf16_from_f32(from[i]);
    }
}

struct conversion {
    const struct job *job;
    const heed_array *from;
    float *to;
    int64_t heads, len, dim;
    int of_keys; /* the rows are keys: only those of the batch's span count */
};

static void convert_task(void *arg, int64_t task, int worker)
{
    (void) worker;
    const struct conversion *w = arg;
    const heed_attention_class *c = w->job->c;
    int64_t b = task / w->heads, h = task % w->heads, lo = 0, hi = w->len;
    if (w->of_keys) heed_visible_span(w->job->p, b, &lo, &hi);
    float *to = w->to + task * w->len * w->dim;
    for (int64_t i = lo; i < hi; i++)
        load_row(to + i * w->dim, heed_array_at(w->from, heed_dtype_size(c->dtype), b, h, i), c->dtype, w->from->strides[3],
                 w->dim, w->job->launch->env->rows);
}

/* An input as f32: as it is, or converted to *space, which moves on. */
static heed_array as_f32(const struct job *job, const heed_array *a, int64_t heads, int64_t len, int64_t dim, int of_keys,
                         char **space)
{
    if (job->c->dtype == HEED_F32) return *a;
    struct conversion work = { job, a, (float *) (void *) *space, heads, len, dim, of_keys };
    heed_parallel_for(job->launch->ctx, convert_task, &work, job->p->batch * heads);
    *space += f32_bytes(job->p->batch, heads, len, dim);
    return (heed_array){ (char *) work.to, { heads * len * dim, len * dim, dim, 1 } };
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
    k.scores = job->scores + (bh * job->p->len_q + k.first) * job->score_row;
    return k;
}

/* The [rows, dim] of one batch and head as a matrix, from `row` on. */
static heed_gemm_matrix matrix_at(const heed_array *a, int64_t b, int64_t h, int64_t row)
{
    return (heed_gemm_matrix){ heed_array_at(a, sizeof(float), b, h, row), HEED_F32, a->strides[2], a->strides[3] };
}

static void score_task(void *arg, int64_t task, int worker)
{
    const struct job *job = arg;
    const struct block at = find_block(job, task);
    heed_gemm_matrix k = matrix_at(&job->k, at.b, at.g, at.lo);
    heed_gemm_block product = { .m = at.n_rows,
                                .n = at.n_keys,
                                .k = job->c->head_dim,
                                .a = matrix_at(&job->q, at.b, at.h, at.first),
                                .b = { k.data, HEED_F32, k.col, k.row },
                                .c = at.scores,
                                .c_row = job->score_row,
                                .scratch = job->workers + (size_t) worker * job->worker_bytes };
    heed_gemm_block_run(job->launch->env->gemm, &product);
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

/* Scale, softcap, mask, and -inf for what position and length hide. */
static void hide_row(const struct job *job, const struct block *at, int64_t i, float *s)
{
    const heed_attention_problem *p = job->p;
    const heed_attention_class *c = job->c;
    int64_t lo, hi;
    heed_visible_keys(p, at->b, i, &lo, &hi);
    if (hi < lo) lo = hi = at->lo;
    const int64_t before = lo - at->lo, n = hi - lo;
    for (int64_t j = 0; j < before; j++) s[j] = -INFINITY;
    for (int64_t j = before + n; j < at->n_keys; j++) s[j] = -INFINITY;
    s += before;
    for (int64_t j = 0; j < n; j++) s[j] *= c->scale;
    if (c->softcap > 0) {
        for (int64_t j = 0; j < n; j++) s[j] /= c->softcap;
        job->launch->env->rows->tanh(s, s, n);
        for (int64_t j = 0; j < n; j++) s[j] *= c->softcap;
    }
    if (p->mask.data) {
        size_t size = c->mask == HEED_TILE_MASK_BOOL  ? 1
                      : c->mask == HEED_TILE_MASK_F32 ? sizeof(float)
                                                      : heed_dtype_size(c->dtype);
        const char *mask = heed_array_at(&p->mask, size, at->b, at->h, i) + lo * p->mask.strides[3] * (int64_t) size;
        mask_row(s, n, mask, c->mask, c->dtype, p->mask.strides[3]);
    }
}

static void hide_task(void *arg, int64_t task, int worker)
{
    (void) worker;
    const struct job *job = arg;
    const struct block at = find_block(job, task);
    for (int64_t r = 0; r < at.n_rows; r++) hide_row(job, &at, at.first + r, at.scores + r * job->score_row);
}

static void softmax_row(const struct job *job, const struct block *at, int64_t i, float *s)
{
    const heed_attention_problem *p = job->p;
    float *lse = p->lse.data ? (float *) (void *) heed_array_at(&p->lse, sizeof(float), at->b, at->h, i) : NULL;
    float sink = p->sinks ? p->sinks[at->h] : -INFINITY, top = -INFINITY;
    const int finish = lse || sink != -INFINITY;
    for (int64_t j = 0; finish && j < at->n_keys; j++) top = s[j] > top ? s[j] : top;
    job->launch->env->rows->softmax(s, s, at->n_keys);
    if (finish) finish_row(s, at->n_keys, top, sink, lse);
}

static void softmax_task(void *arg, int64_t task, int worker)
{
    (void) worker;
    const struct job *job = arg;
    const struct block at = find_block(job, task);
    for (int64_t r = 0; r < at.n_rows; r++) softmax_row(job, &at, at.first + r, at.scores + r * job->score_row);
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

/* Where the product of a block goes: the caller's output if its rows are dense f32, else a copy. */
static float *product_at(const struct job *job, const struct block *at, int64_t *row)
{
    if (job->out) {
        *row = job->c->head_dim_v;
        return job->out + ((at->b * job->c->heads_q + at->h) * job->p->len_q + at->first) * job->c->head_dim_v;
    }
    *row = job->p->out.strides[2];
    return (float *) (void *) heed_array_at(&job->p->out, sizeof(float), at->b, at->h, at->first);
}

static void product_task(void *arg, int64_t task, int worker)
{
    struct job *job = arg;
    const struct block at = find_block(job, task);
    const int dim = job->c->head_dim_v;
    int64_t row;
    float *out = product_at(job, &at, &row);
    heed_gemm_block product = { .m = at.n_rows,
                                .n = dim,
                                .k = at.n_keys,
                                .a = { at.scores, HEED_F32, job->score_row, 1 },
                                .b = matrix_at(&job->v, at.b, at.g, at.lo),
                                .c = out,
                                .c_row = row,
                                .scratch = job->workers + (size_t) worker * job->worker_bytes };
    heed_gemm_block_run(job->launch->env->gemm, &product);
    for (int64_t r = 0; r < at.n_rows; r++) {
        char *to = heed_array_at(&job->p->out, heed_dtype_size(job->c->dtype), at.b, at.h, at.first + r);
        if (!is_finite_row(out + r * row, dim)) redo_row(job, &at, at.first + r);
        else if (job->out) store_row(to, out + r * row, job->c->dtype, job->p->out.strides[3], dim, job->launch->env->rows);
    }
}

void heed_explode_launch(heed_attention_launch *launch)
{
    const heed_attention_problem *p = launch->problem;
    const heed_attention_class *c = p->cls;
    struct job job = { .launch = launch, .p = p, .c = c };
    job.score_row = score_row(heed_longest_span(p));
    job.n_blocks = (p->len_q + BLOCK - 1) / BLOCK;
    job.worker_bytes = worker_bytes(c, launch->env, p->len_k);
    job.workers = launch->workspace;
    char *space = job.workers + (size_t) heed_context_threads(launch->ctx) * job.worker_bytes;
    job.scores = (float *) (void *) space;
    space += f32_bytes(p->batch, c->heads_q, p->len_q, job.score_row);
    if (c->dtype != HEED_F32 || (c->head_dim_v > 1 && p->out.strides[3] != 1)) {
        job.out = (float *) (void *) space;
        space += f32_bytes(p->batch, c->heads_q, p->len_q, c->head_dim_v);
    }
    job.q = as_f32(&job, &p->q, c->heads_q, p->len_q, c->head_dim, 0, &space);
    job.k = as_f32(&job, &p->k, c->heads_kv, p->len_k, c->head_dim, 1, &space);
    job.v = as_f32(&job, &p->v, c->heads_kv, p->len_k, c->head_dim_v, 1, &space);

    launch->n_tasks = p->batch * c->heads_q * job.n_blocks;
    launch->splits_done = 1;
    heed_parallel_for(launch->ctx, score_task, &job, launch->n_tasks);
    heed_parallel_for(launch->ctx, hide_task, &job, launch->n_tasks);
    heed_parallel_for(launch->ctx, softmax_task, &job, launch->n_tasks);
    heed_parallel_for(launch->ctx, product_task, &job, launch->n_tasks);
    launch->n_redone = atomic_load(&job.n_redone);
}
