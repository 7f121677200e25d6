/* Matrix products on all threads: cutting into tasks, and the epilogue of a tile. */
#include "ops/gemm.h"

#include <string.h>

#include "kernels/gemm.h"
#include "ops/line_io.h"

/* Rows of a task. More where b must be packed on the way, since each task packs its own columns. */
enum { ROWS_PACKED = 120, ROWS_UNPACKED = 480, COLS_TASK = 384 };
#define TASK_FLOPS ((int64_t) 1 << 22) /* not worth cutting further */
#define TASKS_ENOUGH 16

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* How a product is cut: tiles of rows x cols of c, `group` of them to a task. */
typedef struct grid {
    int64_t batches, row_tiles, col_tiles, rows, cols, group, n_tasks;
    size_t block_bytes, tile_bytes, worker_bytes;
} grid;

static int direct_c(const heed_gemm *g)
{
    return g->c.dtype == HEED_F32 && (g->c.col == 1 || g->n == 1);
}

static int64_t flops(int64_t m, int64_t n, int64_t k)
{
    double f = 2.0 * (double) m * (double) n * (double) (k ? k : 1);
    return f > 1e18 ? (int64_t) 1000000000000000000 : (int64_t) f;
}

/* 0 where c has no element. */
static int64_t count_batches(const heed_gemm *g)
{
    int64_t batches = 1;
    if (g->m == 0 || g->n == 0) return 0;
    for (int i = 0; i < g->n_batch; i++)
        if (g->batch[i] == 0) return 0;
    for (int i = 0; i < g->n_batch; i++) batches *= g->batch[i];
    return batches;
}

static void make_grid(const heed_gemm *g, grid *d)
{
    const heed_gemm_kernel *kernel = g->kernel;
    *d = (grid){ .batches = count_batches(g) };
    if (d->batches == 0) return;
    d->row_tiles = ceil_div(g->m, g->b_packed ? ROWS_PACKED : ROWS_UNPACKED);
    d->rows = ceil_div(g->m, d->row_tiles);
    int64_t panels = ceil_div(g->n, kernel->cols), per_tile = COLS_TASK / kernel->cols;
    while (per_tile > 1 && d->batches * d->row_tiles * ceil_div(panels, per_tile) < TASKS_ENOUGH &&
           flops(d->rows, per_tile * kernel->cols, g->k) > TASK_FLOPS)
        per_tile = (per_tile + 1) / 2;
    d->col_tiles = ceil_div(panels, per_tile);
    per_tile = ceil_div(panels, d->col_tiles); /* even shares */
    d->cols = per_tile * kernel->cols;
    int64_t tiles = d->batches * d->row_tiles * d->col_tiles, work = flops(d->rows, min64(d->cols, g->n), g->k);
    d->group = work < TASK_FLOPS / 4 ? TASK_FLOPS / 4 / (work + 1) : 1;
    if (d->group < 1) d->group = 1;
    if (d->group > 256) d->group = 256;
    d->n_tasks = ceil_div(tiles, d->group);
    d->block_bytes = heed_size_add(heed_gemm_block_scratch(kernel, d->rows, g->k), 63) / 64 * 64;
    /* A tile of c where it cannot be summed in place, and a line for what the epilogue loads. */
    d->tile_bytes = direct_c(g) ? 0 : heed_size_mul((size_t) d->rows, (size_t) d->cols * sizeof(float));
    d->worker_bytes = heed_size_add(heed_size_add(d->block_bytes, d->tile_bytes), (size_t) d->cols * sizeof(float));
    d->worker_bytes = heed_size_add(d->worker_bytes, 63) / 64 * 64;
}

typedef struct job {
    const heed_gemm *g;
    const heed_row_kernels *rows;
    grid d;
    char *scratch;
} job;

static int64_t batch_offset(const heed_gemm *g, const heed_matrix *m, int64_t batch)
{
    int64_t at = 0;
    for (int i = g->n_batch - 1; i >= 0; i--) {
        at += batch % g->batch[i] * m->batch[i];
        batch /= g->batch[i];
    }
    return at;
}

/* line += factor * x */
static void add_line(float *line, const float *x, float factor, int64_t n)
{
    if (factor == 1)
        for (int64_t j = 0; j < n; j++) line[j] += x[j];
    else
        for (int64_t j = 0; j < n; j++) line[j] += factor * x[j];
}

/* A row of a matrix beside c; one number for all columns is spread. */
static const float *load_beside(float *buf, const heed_matrix *m, int64_t at, int64_t n)
{
    return heed_row_load(buf, m->dtype, m->data, at, m->col, n);
}

static void finish_rows(const job *w, int64_t batch, int64_t i0, int64_t j0, int64_t m, int64_t n, float *tile, int64_t tile_row,
                        float *buf)
{
    const heed_gemm *g = w->g;
    int64_t bias_at = g->bias.dtype ? batch_offset(g, &g->bias, batch) + i0 * g->bias.row + j0 * g->bias.col : 0;
    int64_t residual_at =
        g->residual.dtype ? batch_offset(g, &g->residual, batch) + i0 * g->residual.row + j0 * g->residual.col : 0;
    int64_t c_at = batch_offset(g, &g->c, batch) + i0 * g->c.row + j0 * g->c.col;
    for (int64_t i = 0; i < m; i++) {
        float *line = tile + i * tile_row;
        if (g->alpha != 1)
            for (int64_t j = 0; j < n; j++) line[j] *= g->alpha;
        if (g->bias.dtype) add_line(line, load_beside(buf, &g->bias, bias_at + i * g->bias.row, n), g->beta, n);
        if (g->activation.kind != HEED_ACT_NONE) heed_activate(w->rows, g->activation, line, line, n);
        if (g->residual.dtype) add_line(line, load_beside(buf, &g->residual, residual_at + i * g->residual.row, n), 1, n);
        heed_row_store(g->c.dtype, g->c.data, c_at + i * g->c.row, g->c.col, line, n);
    }
}

static void run_tile(const job *w, int64_t tile, int worker)
{
    const heed_gemm *g = w->g;
    const grid *d = &w->d;
    /* Column tiles run last: neighbours in time share b's columns, which are the larger part most often. */
    int64_t batch = tile / (d->row_tiles * d->col_tiles), rest = tile % (d->row_tiles * d->col_tiles);
    int64_t i0 = rest % d->row_tiles * d->rows, j0 = rest / d->row_tiles * d->cols;
    int64_t m = min64(g->m - i0, d->rows), n = min64(g->n - j0, d->cols);
    if (m <= 0 || n <= 0) return;
    char *scratch = w->scratch + (size_t) worker * d->worker_bytes;
    float *out = (float *) (scratch + d->block_bytes);
    float *buf = (float *) (scratch + d->block_bytes + d->tile_bytes);
    int64_t out_row = d->cols;
    if (direct_c(g)) {
        out = (float *) heed_at(g->c.data, HEED_F32, batch_offset(g, &g->c, batch) + i0 * g->c.row + j0 * g->c.col);
        out_row = g->c.row;
    }
    heed_gemm_block block = { .m = m, .n = n, .k = g->k, .c = out, .c_row = out_row, .scratch = scratch };
    block.a = (heed_gemm_matrix){ heed_at(g->a.data, g->a.dtype, batch_offset(g, &g->a, batch) + i0 * g->a.row), g->a.dtype,
                                  g->a.row, g->a.col };
    int64_t b_at = batch_offset(g, &g->b, batch);
    if (g->b_source) block.source = g->b_source, block.first_column = j0;
    else if (g->b_packed) block.packed = (const float *) g->b.data + b_at + j0 * g->k;
    else block.b = (heed_gemm_matrix){ heed_at(g->b.data, g->b.dtype, b_at + j0 * g->b.col), g->b.dtype, g->b.row, g->b.col };
    heed_gemm_block_run(g->kernel, &block);
    finish_rows(w, batch, i0, j0, m, n, out, out_row, buf);
}

static void run_task(void *arg, int64_t task, int worker)
{
    const job *w = arg;
    int64_t tiles = w->d.batches * w->d.row_tiles * w->d.col_tiles, end = min64(tiles, (task + 1) * w->d.group);
    for (int64_t t = task * w->d.group; t < end; t++) run_tile(w, t, worker);
}

/* ---- simplifying ---- */

static int follows(const heed_matrix *m, int d, int64_t rows)
{
    return !m->dtype || m->batch[d] == rows * m->row;
}

static void drop_batch(heed_gemm *g, int d)
{
    heed_matrix *all[] = { &g->a, &g->b, &g->c, &g->bias, &g->residual };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        memmove(all[i]->batch + d, all[i]->batch + d + 1, (size_t) (g->n_batch - 1 - d) * sizeof *all[i]->batch);
    memmove(g->batch + d, g->batch + d + 1, (size_t) (g->n_batch - 1 - d) * sizeof *g->batch);
    g->n_batch--;
}

void heed_gemm_simplify(heed_gemm *g)
{
    heed_matrix *rows[] = { &g->a, &g->c, &g->bias, &g->residual };
    for (int d = g->n_batch - 1; d >= 0; d--)
        if (g->batch[d] == 1) drop_batch(g, d);
    while (g->n_batch > 0) {
        int d = g->n_batch - 1;
        if (g->m == 1)
            for (int i = 0; i < 4; i++) rows[i]->row = rows[i]->batch[d];
        if (g->b.batch[d] != 0) return;
        for (int i = 0; i < 4; i++)
            if (!follows(rows[i], d, g->m)) return;
        g->m *= g->batch[d];
        drop_batch(g, d);
    }
}

/* ---- types that the tile does not have: plain loops, a row of c to a task ---- */

/* Sums of integers are made in the unsigned type, where they wrap. */
#define PLAIN(name, type, sum_type)                                                                                              \
    static void name##_row(const heed_gemm *g, int64_t batch, int64_t i)                                                         \
    {                                                                                                                            \
        const type *a = (const type *) g->a.data + batch_offset(g, &g->a, batch) + i * g->a.row;                                 \
        const type *b = (const type *) g->b.data + batch_offset(g, &g->b, batch);                                                \
        type *c = (type *) g->c.data + batch_offset(g, &g->c, batch) + i * g->c.row;                                             \
        int64_t c_col = g->c.col, b_col = g->b.col;                                                                              \
        for (int64_t j = 0; j < g->n; j++) c[j * c_col] = 0;                                                                     \
        for (int64_t k = 0; k < g->k; k++) {                                                                                     \
            const type *line = b + k * g->b.row;                                                                                 \
            const sum_type x = (sum_type) a[k * g->a.col];                                                                       \
            for (int64_t j = 0; j < g->n; j++) c[j * c_col] = (type) ((sum_type) c[j * c_col] + x * (sum_type) line[j * b_col]); \
        }                                                                                                                        \
        const type *bias = g->bias.dtype ? (type *) g->bias.data + batch_offset(g, &g->bias, batch) + i * g->bias.row : NULL;    \
        if (g->alpha == 1 && g->beta == 1) {                                                                                     \
            for (int64_t j = 0; bias && j < g->n; j++)                                                                           \
                c[j * c_col] = (type) ((sum_type) c[j * c_col] + (sum_type) bias[j * g->bias.col]);                              \
            return;                                                                                                              \
        }                                                                                                                        \
        for (int64_t j = 0; j < g->n; j++) {                                                                                     \
            double x = (double) g->alpha * (double) c[j * c_col];                                                                \
            if (bias) x += (double) g->beta * (double) bias[j * g->bias.col];                                                    \
            heed_cast_line(g->c.dtype, &c[j * c_col], 0, HEED_F64, &x, 0, 1);                                                    \
        }                                                                                                                        \
    }
PLAIN(f64, double, double)
PLAIN(i32, int32_t, uint32_t)
PLAIN(i64, int64_t, uint64_t)
PLAIN(u32, uint32_t, uint32_t)
PLAIN(u64, uint64_t, uint64_t)

static void f64_finish(const heed_gemm *g, int64_t batch, int64_t i)
{
    double *c = (double *) g->c.data + batch_offset(g, &g->c, batch) + i * g->c.row;
    const double *r =
        g->residual.dtype ? (double *) g->residual.data + batch_offset(g, &g->residual, batch) + i * g->residual.row : NULL;
    for (int64_t j = 0; j < g->n; j++) {
        double x = heed_activate_f64(g->activation, c[j * g->c.col]);
        c[j * g->c.col] = r ? x + r[j * g->residual.col] : x;
    }
}

static void run_plain(void *arg, int64_t begin, int64_t end)
{
    typedef void row_fn(const heed_gemm *g, int64_t batch, int64_t i);
    static row_fn *const rows[HEED_DTYPE_COUNT] = {
        [HEED_F64] = f64_row, [HEED_I32] = i32_row, [HEED_I64] = i64_row, [HEED_U32] = u32_row, [HEED_U64] = u64_row
    };
    const heed_gemm *g = arg;
    for (int64_t t = begin; t < end; t++) {
        rows[g->c.dtype](g, t / g->m, t % g->m);
        if (g->c.dtype == HEED_F64) f64_finish(g, t / g->m, t % g->m);
    }
}

static int is_small_float(heed_dtype dtype)
{
    return dtype == HEED_F32 || dtype == HEED_F16 || dtype == HEED_BF16;
}

int heed_gemm_takes(heed_dtype dtype)
{
    return is_small_float(dtype) || dtype == HEED_F64 || dtype == HEED_I32 || dtype == HEED_I64 || dtype == HEED_U32 ||
           dtype == HEED_U64;
}

size_t heed_gemm_scratch(const heed_context *ctx, const heed_gemm *g)
{
    if (!is_small_float(g->c.dtype)) return 0;
    grid d;
    make_grid(g, &d);
    return heed_size_mul(d.worker_bytes, (size_t) heed_context_threads(ctx));
}

void heed_gemm_run(const heed_context *ctx, const heed_gemm *g, void *scratch)
{
    if (!is_small_float(g->c.dtype)) {
        int64_t grain = TASK_FLOPS / 16 / (flops(1, g->n, g->k) + 1) + 1;
        heed_parallel_ranges(ctx, count_batches(g) * g->m, grain, run_plain, (void *) (uintptr_t) g);
        return;
    }
    job w = { .g = g, .rows = heed_row_kernels_get(), .scratch = scratch };
    make_grid(g, &w.d);
    heed_parallel_for(ctx, run_task, &w, w.d.n_tasks);
}

/* ---- packing ahead ---- */

typedef struct pack_job {
    const heed_gemm_kernel *kernel;
    const heed_gemm_weights *weights;
    float *to;
    int64_t panels, floats;
} pack_job;

static void pack_range(void *arg, int64_t begin, int64_t end)
{
    const pack_job *w = arg;
    const heed_gemm_weights *b = w->weights;
    for (int64_t t = begin; t < end; t++) {
        int64_t matrix = t / w->panels, p = t % w->panels;
        heed_gemm_matrix m = { heed_at(b->data, b->dtype, matrix * b->matrix_step), b->dtype, b->row, b->col };
        heed_gemm_pack_panel(w->kernel, w->to + matrix * w->floats + p * b->k * w->kernel->cols, &m, b->n, b->k, p);
    }
}

int64_t heed_gemm_packed_floats(const heed_gemm_kernel *kernel, int64_t n, int64_t k)
{
    size_t bytes = heed_gemm_packed_bytes(kernel, n, k);
    return bytes > (size_t) INT64_MAX ? -1 : (int64_t) (bytes / sizeof(float));
}

heed_status heed_gemm_pack(const heed_context *ctx, const heed_gemm_kernel *kernel, const heed_gemm_weights *weights,
                           float **packed)
{
    pack_job w = { .kernel = kernel, .weights = weights };
    size_t bytes = heed_size_mul(heed_gemm_packed_bytes(kernel, weights->n, weights->k), (size_t) weights->n_matrices);
    *packed = bytes == SIZE_MAX ? NULL : heed_alloc(ctx, bytes);
    if (!*packed)
        return heed_fail(HEED_ERR_MEMORY, "no memory for packed weights of %lld x [%lld, %lld]", (long long) weights->n_matrices,
                         (long long) weights->k, (long long) weights->n);
    w.to = *packed;
    w.panels = ceil_div(weights->n, kernel->cols), w.floats = heed_gemm_packed_floats(kernel, weights->n, weights->k);
    heed_parallel_ranges(ctx, w.panels * weights->n_matrices, 4, pack_range, &w);
    return HEED_OK;
}

heed_status heed_gemm_state_create(const heed_compute *c, const heed_gemm_weights *weights, void **state)
{
    heed_gemm_state *s = heed_alloc(c->ctx, sizeof *s);
    if (!s) return heed_fail(HEED_ERR_MEMORY, "%s: no memory for its state", c->node->op);
    *s = (heed_gemm_state){ .kernel = heed_gemm_kernel_get() };
    heed_status status = weights ? heed_gemm_pack(c->ctx, s->kernel, weights, &s->packed) : HEED_OK;
    if (status != HEED_OK) {
        heed_free(c->ctx, s);
        return status;
    }
    *state = s;
    return HEED_OK;
}

void heed_gemm_state_release(const heed_context *ctx, void *state)
{
    heed_gemm_state *s = state;
    if (!s) return;
    heed_free(ctx, s->packed);
    heed_free(ctx, s);
}
