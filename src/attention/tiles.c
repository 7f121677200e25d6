/* Fused kernels: cutting a run into tiles.
 *
 * The query rows of all heads that share one KV head are stacked (row r: head r / len_q of the group, query r % len_q) and
 * cut into blocks of at most the kernel's rows. Where that gives few blocks and many keys, the keys are cut into pieces
 * too, and a second pass joins the pieces in order. Both cuts follow from the shape alone, so results are the same
 * for any number of threads. */
#include <math.h>
#include <stdatomic.h>

#include "attention/solvers.h"

/* Enough units to keep many threads busy; beyond it, splitting keys only costs. */
#define UNITS_WANTED 64
/* Fewest keys in a piece: a piece's partial result must be small beside the keys and values it reads. */
static const int64_t piece_least[HEED_FAMILY_COUNT] = { [HEED_FAMILY_PREFILL] = 1024, [HEED_FAMILY_DECODE] = 512 };
/* Units are joined into tasks of about this many nanoseconds, so that handing them out costs little. */
#define TASK_NS 5000.0

struct cut {
    int64_t rows;     /* query rows that share a KV head */
    int64_t block;    /* rows in a block */
    int64_t n_blocks; /* blocks of one KV head */
    int64_t n_splits; /* pieces of the keys */
    int64_t piece;    /* keys in a piece */
    int64_t n_units;  /* batch * heads_kv * n_blocks * n_splits */
};

static int64_t ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

static size_t align64(size_t bytes)
{
    return heed_size_add(bytes, 63) & ~(size_t) 63;
}

static struct cut make_cut(const heed_kernel *kernel, const heed_attention_class *c, const heed_attention_size *size,
                           int n_splits)
{
    struct cut cut = { .rows = c->heads_q / c->heads_kv * size->len_q, .n_splits = 1 };
    /* As few blocks as will do, and these of equal size: the lanes left idle are the same however the rows are dealt,
     * as long as all blocks but the last are whole steps. */
    cut.n_blocks = ceil_div(cut.rows, kernel->rows);
    cut.block = ceil_div(ceil_div(cut.rows, cut.n_blocks), kernel->row_step) * kernel->row_step;
    cut.n_blocks = ceil_div(cut.rows, cut.block);
    int64_t blocks = size->batch * c->heads_kv * cut.n_blocks;
    if (n_splits > 0) {
        cut.n_splits = n_splits;
    } else if (blocks < UNITS_WANTED) {
        int64_t most = size->keys / piece_least[kernel->family];
        cut.n_splits = ceil_div(UNITS_WANTED, blocks);
        if (cut.n_splits > most) cut.n_splits = most;
    }
    if (cut.n_splits > size->keys) cut.n_splits = size->keys;
    if (cut.n_splits < 1) cut.n_splits = 1;
    cut.piece = ceil_div(size->keys, cut.n_splits);
    if (cut.piece > 0) cut.n_splits = ceil_div(size->keys, cut.piece);
    cut.n_units = blocks * cut.n_splits;
    return cut;
}

/* Measured on one core of a Xeon and an EPYC with 1024 and 2048 keys. Only the proportions matter: they place the change
 * from decode to prefill, which is near 8 rows for f32 and 12 for halves with AVX-512, 5 and 8 with AVX2. */
static const struct {
    double flops[HEED_FAMILY_COUNT];      /* per nanosecond */
    double conversion[HEED_FAMILY_COUNT]; /* nanoseconds to bring an element of a half type to f32, once a block of rows */
} speeds[HEED_ISA_COUNT] = {
    [HEED_ISA_GENERIC] = { { 30, 25 }, { 0.31, 0.29 } },
    [HEED_ISA_AVX2] = { { 72, 45 }, { 0.12, 0 } },
    [HEED_ISA_AVX512] = { { 140, 72 }, { 0.14, 0 } },
};

double heed_tiles_cost(const heed_solver *solver, const heed_attention_class *c, const heed_attention_size *size)
{
    const heed_kernel *kernel = solver->kernel;
    const double rows = (double) (c->heads_q / c->heads_kv) * (double) size->len_q, step = kernel->row_step;
    const double elements =
        (double) (c->head_dim + c->head_dim_v) * (double) size->keys * (double) size->batch * (double) c->heads_kv;
    double arithmetic = 2 * step * ceil(rows / step) / speeds[kernel->isa].flops[kernel->family];
    double conversion =
        kernel->dtype == HEED_F32 ? 0 : ceil(rows / kernel->rows) * speeds[kernel->isa].conversion[kernel->family];
    return elements * (arithmetic + conversion);
}

static size_t worker_bytes(const heed_kernel *kernel, const heed_attention_class *c)
{
    return heed_size_add(align64((size_t) kernel->rows * sizeof(heed_tile_row)),
                         align64(kernel->scratch(c->head_dim, c->head_dim_v)));
}

/* Per query row and piece: the sum of values, the sum of weights, the maximum. */
static size_t partial_bytes(const heed_attention_class *c, size_t rows_times_splits)
{
    return heed_size_mul(rows_times_splits, sizeof(float) * ((size_t) c->head_dim_v + 2));
}

size_t heed_tiles_workspace(const heed_solver *solver, const heed_attention_class *c, const heed_attention_env *env,
                            const heed_attention_size *size, int n_workers)
{
    const heed_kernel *kernel = solver->kernel;
    size_t rows = heed_size_mul(heed_size_mul((size_t) size->batch, (size_t) c->heads_q), (size_t) size->len_q),
           rows_times_splits = 0;
    if (env->n_splits > 1) {
        rows_times_splits = heed_size_mul(rows, (size_t) env->n_splits);
    } else if (env->n_splits == 0) {
        /* A smaller run may split where the largest does not, but only with fewer than UNITS_WANTED blocks: then
         * blocks * splits is below 2 * UNITS_WANTED. */
        size_t most = (size_t) (size->keys / piece_least[kernel->family]), bound = (size_t) (2 * UNITS_WANTED * kernel->rows);
        if (most > UNITS_WANTED) most = UNITS_WANTED;
        rows_times_splits = most > 1 ? heed_size_mul(rows, most) : 0;
        if (rows_times_splits > bound) rows_times_splits = bound;
    }
    size_t workers = heed_size_mul((size_t) n_workers, worker_bytes(kernel, c));
    return heed_size_add(workers, align64(partial_bytes(c, rows_times_splits)));
}

struct job {
    const heed_attention_problem *p;
    const heed_kernel *kernel;
    struct cut cut;
    int64_t units_per_task;
    size_t worker_bytes, row_bytes;
    char *workers;
    float *part_out, *part_sum, *part_max;
    atomic_int_fast64_t n_redone;
};

/* Where a unit lies. */
struct unit {
    int64_t b, g, first, split; /* batch, KV head, first stacked row, piece of the keys */
    int n_rows;
};

static struct unit find_unit(const struct job *job, int64_t index, int64_t n_splits)
{
    const struct cut *cut = &job->cut;
    struct unit u = { .split = index % n_splits };
    index /= n_splits;
    u.first = index % cut->n_blocks * cut->block;
    index /= cut->n_blocks;
    u.g = index % job->p->cls->heads_kv;
    u.b = index / job->p->cls->heads_kv;
    int64_t left = cut->rows - u.first;
    u.n_rows = (int) (left < cut->block ? left : cut->block);
    return u;
}

/* Ask for the lines of n bytes ahead of their use. A kernel that meets its queries and outputs line by line waits for memory
 * a tenth of its time where keys are few (128): here all queries are asked for at once, and outputs long before their end. */
static void ask_for(const char *at, size_t n, int to_write)
{
    for (size_t i = 0; i < n; i += 64) {
        if (to_write) __builtin_prefetch(at + i, 1);
        else __builtin_prefetch(at + i, 0);
    }
}

/* The rows of a block; returns 1 if they all have the same mask row. */
static int fill_rows(const struct job *job, const struct unit *u, heed_tile_row *rows)
{
    const heed_attention_problem *p = job->p;
    const heed_attention_class *c = p->cls;
    const size_t size = heed_dtype_size(c->dtype);
    const size_t mask_size = c->mask == HEED_TILE_MASK_BOOL ? 1 : c->mask == HEED_TILE_MASK_F32 ? sizeof(float) : size;
    int64_t h = u->g * (c->heads_q / c->heads_kv) + u->first / p->len_q, i = u->first % p->len_q;
    int shared = 1;
    for (int r = 0; r < u->n_rows; r++) {
        heed_tile_row *row = &rows[r];
        row->q = heed_array_at(&p->q, size, u->b, h, i);
        row->out = heed_array_at(&p->out, size, u->b, h, i);
        row->mask = p->mask.data ? heed_array_at(&p->mask, mask_size, u->b, h, i) : NULL;
        row->sink = p->sinks ? p->sinks[h] : -INFINITY;
        row->lse = p->lse.data ? (float *) (void *) heed_array_at(&p->lse, sizeof(float), u->b, h, i) : NULL;
        heed_visible_keys(p, u->b, i, &row->lo, &row->hi);
        if (row->mask != rows[0].mask) shared = 0;
        if (p->q.strides[3] == 1) ask_for(row->q, (size_t) c->head_dim * size, 0);
        if (p->out.strides[3] == 1) ask_for(row->out, (size_t) c->head_dim_v * size, 1);
        if (++i == p->len_q) i = 0, h++;
    }
    return shared;
}

static heed_tile make_tile(const struct job *job, const struct unit *u, int worker)
{
    const heed_attention_problem *p = job->p;
    const heed_attention_class *c = p->cls;
    const size_t size = heed_dtype_size(c->dtype);
    char *own = job->workers + (size_t) worker * job->worker_bytes;
    heed_tile_row *rows = (heed_tile_row *) (void *) own;
    int shared = fill_rows(job, u, rows);
    return (heed_tile){ .n_rows = u->n_rows,
                        .rows = rows,
                        .head_dim = c->head_dim,
                        .head_dim_v = c->head_dim_v,
                        .q_col = p->q.strides[3],
                        .out_col = p->out.strides[3],
                        .k = heed_array_at(&p->k, size, u->b, u->g, 0),
                        .v = heed_array_at(&p->v, size, u->b, u->g, 0),
                        .k_row = p->k.strides[2],
                        .k_col = p->k.strides[3],
                        .v_row = p->v.strides[2],
                        .v_col = p->v.strides[3],
                        .mask_kind = c->mask,
                        .mask_col = p->mask.strides[3],
                        .mask_shared = shared,
                        .scale = c->scale,
                        .softcap = c->softcap,
                        .scratch = own + job->row_bytes };
}

/* Partial results of the rows of a block lie together, one piece after the other. */
static int64_t partial_row(const struct job *job, const struct unit *u)
{
    return ((u->b * job->p->cls->heads_kv + u->g) * job->cut.rows + u->first) * job->cut.n_splits;
}

static void run_unit(struct job *job, int64_t index, int worker)
{
    const struct cut *cut = &job->cut;
    struct unit u = find_unit(job, index, cut->n_splits);
    heed_tile tile = make_tile(job, &u, worker);
    int64_t lo, hi;
    heed_visible_span(job->p, u.b, &lo, &hi);
    tile.key_begin = lo, tile.key_end = hi;
    if (cut->n_splits > 1) {
        tile.key_begin = lo + u.split * cut->piece;
        if (tile.key_begin > hi) tile.key_begin = hi;
        if (hi - tile.key_begin > cut->piece) tile.key_end = tile.key_begin + cut->piece;
        int64_t at = partial_row(job, &u) + u.split * u.n_rows;
        tile.part_out = job->part_out + at * tile.head_dim_v;
        tile.part_sum = job->part_sum + at;
        tile.part_max = job->part_max + at;
    }
    int redone = job->kernel->run(&tile);
    if (redone) atomic_fetch_add_explicit(&job->n_redone, redone, memory_order_relaxed);
}

static void run_task(void *arg, int64_t task, int worker)
{
    struct job *job = arg;
    int64_t first = task * job->units_per_task, end = first + job->units_per_task;
    if (end > job->cut.n_units) end = job->cut.n_units;
    /* From the last unit down: under a causal mask the later blocks see more keys, and long work is best begun first. */
    for (int64_t u = first; u < end; u++) run_unit(job, job->cut.n_units - 1 - u, worker);
}

static void merge_task(void *arg, int64_t task, int worker)
{
    struct job *job = arg;
    struct unit u = find_unit(job, task, 1);
    heed_tile tile = make_tile(job, &u, worker);
    int64_t at = partial_row(job, &u);
    heed_merge_parts(&tile, job->kernel->dtype, (int) job->cut.n_splits, job->part_out + at * tile.head_dim_v, job->part_sum + at,
                     job->part_max + at);
}

void heed_tiles_launch(heed_attention_launch *launch)
{
    const heed_attention_problem *p = launch->problem;
    const heed_attention_class *c = p->cls;
    const heed_attention_size size = { p->batch, p->len_q, heed_longest_span(p) };
    const heed_kernel *kernel = launch->solver->kernel;
    struct job job = { .p = p, .kernel = kernel, .cut = make_cut(kernel, c, &size, launch->env->n_splits) };
    job.row_bytes = align64((size_t) kernel->rows * sizeof(heed_tile_row));
    job.worker_bytes = worker_bytes(kernel, c);
    job.workers = launch->workspace;
    job.part_out = (float *) (void *) (job.workers + (size_t) heed_context_threads(launch->ctx) * job.worker_bytes);
    size_t partial_rows = (size_t) (p->batch * c->heads_kv * job.cut.rows * job.cut.n_splits);
    job.part_sum = job.part_out + partial_rows * (size_t) c->head_dim_v;
    job.part_max = job.part_sum + partial_rows;

    double unit_ns = heed_tiles_cost(launch->solver, c, &size) / (double) job.cut.n_units;
    job.units_per_task = unit_ns < TASK_NS ? (int64_t) (TASK_NS / (unit_ns + 1)) : 1;
    if (job.units_per_task > job.cut.n_units / UNITS_WANTED) job.units_per_task = job.cut.n_units / UNITS_WANTED;
    if (job.units_per_task < 1) job.units_per_task = 1;
    launch->n_tasks = ceil_div(job.cut.n_units, job.units_per_task);
    launch->splits_done = job.cut.n_splits;
    heed_parallel_for(launch->ctx, run_task, &job, launch->n_tasks);
    if (job.cut.n_splits > 1) heed_parallel_for(launch->ctx, merge_task, &job, job.cut.n_units / job.cut.n_splits);
    launch->n_redone = atomic_load(&job.n_redone);
}
