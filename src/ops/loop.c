/* Loops over strided arrays, in parallel where they are long, and the copy made of them. */
#include <string.h>

#include "ops/util.h"

/* ---- ranges ---- */

struct ranges {
    heed_range_fn *fn;
    void *arg;
    int64_t n, grain;
};

static void range_task(void *arg, int64_t task, int worker)
{
    (void) worker;
    const struct ranges *r = arg;
    int64_t begin = task * r->grain, end = r->n - begin < r->grain ? r->n : begin + r->grain;
    r->fn(r->arg, begin, end);
}

void heed_parallel_ranges(const heed_context *ctx, int64_t n, int64_t grain, heed_range_fn *fn, void *arg)
{
    if (n <= 0) return;
    if (grain < 1) grain = 1;
    struct ranges r = { fn, arg, n, grain };
    heed_parallel_for(ctx, range_task, &r, (n - 1) / grain + 1);
}

/* ---- loops ---- */

static int64_t step_of(const heed_tensor *t, int d, int rank)
{
    int k = d - (rank - t->rank);
    if (k < 0 || t->dims[k] == 1) return 0;
    return t->strides[k] * (int64_t) heed_dtype_size(t->dtype);
}

/* Dimension d goes on where the last one of the loop ends, in every argument. */
static int joins(const heed_loop *loop, const int64_t *steps, int64_t dim)
{
    for (int k = 0; k < loop->n_args; k++)
        if (loop->steps[k][loop->rank - 1] != steps[k] * dim) return 0;
    return 1;
}

void heed_loop_init(heed_loop *loop, int n_args, const heed_tensor *const *args)
{
    *loop = (heed_loop){ .n_args = n_args };
    int rank = args[0]->rank;
    for (int d = 0; d < rank; d++) {
        int64_t dim = args[0]->dims[d], steps[HEED_LOOP_MAX] = { 0 };
        if (dim == 1) continue;
        for (int k = 0; k < n_args; k++) steps[k] = step_of(args[k], d, rank);
        if (loop->rank && joins(loop, steps, dim)) loop->dims[loop->rank - 1] *= dim;
        else loop->dims[loop->rank++] = dim;
        for (int k = 0; k < n_args; k++) loop->steps[k][loop->rank - 1] = steps[k];
    }
    if (loop->rank == 0) loop->rank = 1, loop->dims[0] = 1;
}

/* Where line `line` starts: indices of the outer dimensions and pointers. */
static void seek(const heed_loop *loop, int64_t line, int64_t *index, char **at)
{
    for (int d = loop->rank - 2; d >= 0; d--) {
        index[d] = line % loop->dims[d];
        line /= loop->dims[d];
        for (int k = 0; k < loop->n_args; k++) at[k] += index[d] * loop->steps[k][d];
    }
}

static void advance(const heed_loop *loop, int64_t *index, char **at)
{
    for (int d = loop->rank - 2; d >= 0; d--) {
        for (int k = 0; k < loop->n_args; k++) at[k] += loop->steps[k][d];
        if (++index[d] < loop->dims[d]) return;
        for (int k = 0; k < loop->n_args; k++) at[k] -= loop->steps[k][d] * loop->dims[d];
        index[d] = 0;
    }
}

struct loop_job {
    const heed_loop *loop;
    char *base[HEED_LOOP_MAX];
    heed_loop_fn *fn;
    void *arg;
};

static void inner_steps(const heed_loop *loop, int64_t *steps)
{
    for (int k = 0; k < loop->n_args; k++) steps[k] = loop->steps[k][loop->rank - 1];
}

static void run_lines(void *arg, int64_t begin, int64_t end)
{
    const struct loop_job *job = arg;
    const heed_loop *loop = job->loop;
    int64_t index[HEED_RANK_MAX], steps[HEED_LOOP_MAX], n = loop->dims[loop->rank - 1];
    char *at[HEED_LOOP_MAX];
    memcpy(at, job->base, sizeof at);
    inner_steps(loop, steps);
    seek(loop, begin, index, at);
    for (int64_t line = begin; line < end; line++) {
        job->fn(job->arg, at, steps, n);
        advance(loop, index, at);
    }
}

/* A part of the one line that there is. */
static void run_part(void *arg, int64_t begin, int64_t end)
{
    const struct loop_job *job = arg;
    int64_t steps[HEED_LOOP_MAX];
    char *at[HEED_LOOP_MAX];
    inner_steps(job->loop, steps);
    for (int k = 0; k < job->loop->n_args; k++) at[k] = job->base[k] + begin * steps[k];
    job->fn(job->arg, at, steps, end - begin);
}

void heed_loop_run(const heed_context *ctx, const heed_loop *loop, const heed_tensor *const *args, heed_loop_fn *fn, void *arg)
{
    struct loop_job job = { .loop = loop, .fn = fn, .arg = arg };
    for (int k = 0; k < loop->n_args; k++) job.base[k] = args[k]->data;
    int64_t lines = 1, n = loop->dims[loop->rank - 1];
    for (int d = 0; d < loop->rank; d++)
        if (loop->dims[d] == 0) return;
    for (int d = 0; d < loop->rank - 1; d++) lines *= loop->dims[d];
    if (lines == 1) heed_parallel_ranges(ctx, n, HEED_GRAIN, run_part, &job);
    else heed_parallel_ranges(ctx, lines, n >= HEED_GRAIN ? 1 : HEED_GRAIN / n, run_lines, &job);
}

/* ---- copy ---- */

#define COPY_LINE(type)                                                                                                          \
    for (int64_t i = 0; i < n; i++) *(type *) (at[0] + i * steps[0]) = *(const type *) (at[1] + i * steps[1])

static void copy_line(void *arg, char *const *at, const int64_t *steps, int64_t n)
{
    size_t size = *(const size_t *) arg;
    if (steps[0] == (int64_t) size && steps[1] == (int64_t) size) {
        memcpy(at[0], at[1], (size_t) n * size);
        return;
    }
    switch (size) {
    case 1: COPY_LINE(uint8_t); break;
    case 2: COPY_LINE(uint16_t); break;
    case 4: COPY_LINE(uint32_t); break;
    default: COPY_LINE(uint64_t); break;
    }
}

#define TILE 16

/* The two innermost dimensions, where the source runs along the outer one of them. */
struct transpose_job {
    heed_loop outer; /* the rest, ending in a dimension of size 1 */
    char *base[2];
    int64_t rows, cols; /* of the destination */
    int64_t dst_row, dst_col, src_row, src_col;
    size_t size;
};

#define COPY_TILE(type)                                                                                                          \
    for (int64_t r = 0; r < rows; r++)                                                                                           \
        for (int64_t c = 0; c < cols; c++)                                                                                       \
    *(type *) (dst + r * job->dst_row + c * job->dst_col) = *(const type *) (src + r * job->src_row + c * job->src_col)

static void copy_tile(const struct transpose_job *job, char *dst, const char *src, int64_t rows, int64_t cols)
{
    switch (job->size) {
    case 1: COPY_TILE(uint8_t); break;
    case 2: COPY_TILE(uint16_t); break;
    case 4: COPY_TILE(uint32_t); break;
    default: COPY_TILE(uint64_t); break;
    }
}

/* Pieces are bands of TILE destination rows. */
static void transpose_bands(void *arg, int64_t begin, int64_t end)
{
    const struct transpose_job *job = arg;
    int64_t bands = (job->rows + TILE - 1) / TILE, index[HEED_RANK_MAX];
    for (int64_t band = begin; band < end; band++) {
        char *at[HEED_LOOP_MAX] = { job->base[0], job->base[1] };
        seek(&job->outer, band / bands, index, at);
        int64_t r = band % bands * TILE, rows = job->rows - r < TILE ? job->rows - r : TILE;
        char *dst = at[0] + r * job->dst_row;
        const char *src = at[1] + r * job->src_row;
        for (int64_t c = 0; c < job->cols; c += TILE)
            copy_tile(job, dst + c * job->dst_col, src + c * job->src_col, rows, job->cols - c < TILE ? job->cols - c : TILE);
    }
}

static void transpose(const heed_context *ctx, const heed_loop *loop, const heed_tensor *const *args, size_t size)
{
    int row = loop->rank - 2, col = loop->rank - 1;
    struct transpose_job job = { .outer = *loop, .base = { args[0]->data, args[1]->data }, .size = size };
    job.rows = loop->dims[row], job.cols = loop->dims[col];
    job.dst_row = loop->steps[0][row], job.dst_col = loop->steps[0][col];
    job.src_row = loop->steps[1][row], job.src_col = loop->steps[1][col];
    job.outer.rank--; /* its last dimension, the rows, is not part of seek() */
    int64_t bands = (job.rows + TILE - 1) / TILE;
    for (int d = 0; d < row; d++) bands *= loop->dims[d];
    int64_t grain = HEED_GRAIN / (TILE * job.cols);
    heed_parallel_ranges(ctx, bands, grain, transpose_bands, &job);
}

void heed_copy(const heed_context *ctx, const heed_tensor *dst, const heed_tensor *src)
{
    const heed_tensor *args[2] = { dst, src };
    heed_loop loop;
    heed_loop_init(&loop, 2, args);
    for (int d = 0; d < loop.rank; d++)
        if (loop.dims[d] == 0) return;
    size_t size = heed_dtype_size(dst->dtype);
    int64_t inner = loop.steps[1][loop.rank - 1];
    if (loop.rank >= 2 && inner != (int64_t) size && inner != 0 && loop.steps[1][loop.rank - 2] == (int64_t) size)
        transpose(ctx, &loop, args, size);
    else heed_loop_run(ctx, &loop, args, copy_line, &size);
}
