/* One thread's share of a matrix product: packing, and the loops around the register tile. */
#include "kernels/gemm.h"

#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "base/half.h"

extern const heed_gemm_kernel heed_gemm_generic;
#ifdef __x86_64__
extern const heed_gemm_kernel heed_gemm_avx2, heed_gemm_avx512;
#endif

/* Terms worked on before the next ones: a panel of so many, 32 columns wide, stays in the first-level cache with the rows
 * of a beside it. */
enum { K_BLOCK = HEED_GEMM_K_BLOCK, LINE = 1024 };

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* n elements `step` apart as f32. */
static void convert_line(float *to, heed_dtype dtype, const void *from, ptrdiff_t step, int64_t n)
{
    const float *f = from;
    const uint16_t *h = from;
    if (dtype == HEED_F32 && step == 1) {
        memcpy(to, f, (size_t) n * sizeof *to);
    } else if (dtype == HEED_F32) {
        for (int64_t i = 0; i < n; i++) to[i] = f[i * step];
    } else if (dtype == HEED_F16) {
        for (int64_t i = 0; i < n; i++) to[i] = heed_f32_from_f16(h[i * step]);
    } else {
        for (int64_t i = 0; i < n; i++) to[i] = heed_f32_from_bf16(h[i * step]);
    }
}

static const void *element(const heed_gemm_matrix *m, int64_t i, int64_t j)
{
    return (const char *) m->data + (i * m->row + j * m->col) * (ptrdiff_t) heed_dtype_size(m->dtype);
}

/* Terms k0 to k0 + k of the n columns from j0 on as a panel, zeros after them. */
static void pack(const heed_gemm_kernel *kernel, float *panel, const heed_gemm_matrix *b, int64_t j0, int n, int64_t k0,
                 int64_t k)
{
    int cols = kernel->cols;
    if (b->dtype == HEED_F32 && b->row == 1 && n > 1) {
        kernel->pack_transposed(panel, element(b, k0, j0), b->col, k, n);
        return;
    }
    if (b->col == 1 || b->row != 1) {
        for (int64_t i = 0; i < k; i++, panel += cols) {
            convert_line(panel, b->dtype, element(b, k0 + i, j0), b->col, n);
            if (n < cols) memset(panel + n, 0, (size_t) (cols - n) * sizeof *panel);
        }
        return;
    }
    float line[LINE];
    for (int64_t i0 = 0; i0 < k; i0 += LINE) {
        int64_t some = min64(k - i0, LINE);
        float *to = panel + i0 * cols;
        for (int j = 0; j < n; j++) {
            convert_line(line, b->dtype, element(b, k0 + i0, j0 + j), 1, some);
            for (int64_t i = 0; i < some; i++) to[i * cols + j] = line[i];
        }
        for (int j = n; j < cols; j++)
            for (int64_t i = 0; i < some; i++) to[i * cols + j] = 0;
    }
}

/* The tile reads a in place where its rows are lines of f32 that do not all fall onto the same few cache sets. */
static int reads_in_place(const heed_gemm_block *g)
{
    return g->a.dtype == HEED_F32 && (g->a.col == 1 || g->k == 1) && (g->m <= 4 || g->a.row % 1024 != 0);
}

/* Room in a line of copied rows: the next row starts in another cache set. */
static int64_t copied_row(int64_t k)
{
    return min64((k + 15) / 16 * 16, K_BLOCK) + 16;
}

static void copy_rows(float *to, const heed_gemm_matrix *a, int64_t m, int64_t k0, int64_t k, ptrdiff_t to_row)
{
    if (a->col == 1 || a->row != 1) {
        for (int64_t i = 0; i < m; i++) convert_line(to + i * to_row, a->dtype, element(a, i, k0), a->col, k);
        return;
    }
    float line[LINE]; /* a transposed matrix: along its memory, a line of rows at a time */
    for (int64_t i0 = 0; i0 < m; i0 += LINE) {
        int64_t some = min64(m - i0, LINE);
        for (int64_t j = 0; j < k; j++) {
            convert_line(line, a->dtype, element(a, i0, k0 + j), 1, some);
            for (int64_t i = 0; i < some; i++) to[(i0 + i) * to_row + j] = line[i];
        }
    }
}

/* All rows against one panel. */
static void panel_times_rows(const heed_gemm_kernel *kernel, heed_gemm_tile *t, int64_t m)
{
    /* Rows that are left over are shared out evenly among the last tiles: 13 rows are 7 and 6, not 12 and 1. */
    int64_t tiles = (m + kernel->rows - 1) / kernel->rows;
    const float *a = t->a;
    float *c = t->c;
    for (int64_t i = 0, at = 0; i < tiles; i++) {
        int64_t next = m * (i + 1) / tiles;
        t->rows = (int) (next - at);
        t->a = a + at * t->a_row, t->c = c + at * t->c_row;
        kernel->tile(t);
        at = next;
    }
}

void heed_gemm_block_run(const heed_gemm_kernel *kernel, const heed_gemm_block *g)
{
    int cols = kernel->cols;
    float *panel = g->scratch, *rows = panel + (int64_t) cols * K_BLOCK;
    int in_place = reads_in_place(g), b_in_place = !g->source && g->b.dtype == HEED_F32 && g->b.col == 1 && g->m <= 4;
    if (g->k == 0)
        for (int64_t i = 0; i < g->m; i++) memset(g->c + i * g->c_row, 0, (size_t) g->n * sizeof *g->c);
    for (int64_t k0 = 0; k0 < g->k; k0 += K_BLOCK) {
        int64_t k = min64(g->k - k0, K_BLOCK);
        ptrdiff_t a_row = in_place ? g->a.row : copied_row(g->k);
        if (!in_place) copy_rows(rows, &g->a, g->m, k0, k, a_row);
        for (int64_t j = 0; j < g->n; j += cols) {
            heed_gemm_tile t = { .cols = (int) min64(g->n - j, cols), .k = k, .b_row = cols, .c_row = g->c_row };
            t.a = in_place ? element(&g->a, 0, k0) : rows, t.a_row = a_row;
            t.c = g->c + j, t.accumulate = k0 > 0;
            if (g->packed) {
                t.b = g->packed + j * g->k + k0 * cols;
            } else if (g->source) {
                g->source->fill(g->source, kernel, panel, g->first_column + j, t.cols, k0, k);
                t.b = panel;
            } else if (b_in_place && t.cols == cols) {
                t.b = element(&g->b, k0, j), t.b_row = g->b.row;
            } else {
                pack(kernel, panel, &g->b, j, t.cols, k0, k);
                t.b = panel;
            }
            panel_times_rows(kernel, &t, g->m);
        }
    }
}

size_t heed_gemm_block_scratch(const heed_gemm_kernel *kernel, int64_t m, int64_t k)
{
    size_t floats = heed_size_add(heed_size_mul((size_t) m, (size_t) copied_row(k)), (size_t) kernel->cols * K_BLOCK);
    return heed_size_mul(floats, sizeof(float));
}

size_t heed_gemm_packed_bytes(const heed_gemm_kernel *kernel, int64_t n, int64_t k)
{
    size_t panels = ((size_t) n + (size_t) kernel->cols - 1) / (size_t) kernel->cols;
    return heed_size_mul(heed_size_mul(panels, (size_t) kernel->cols * sizeof(float)), (size_t) k);
}

void heed_gemm_pack_panel(const heed_gemm_kernel *kernel, float *panel, const heed_gemm_matrix *b, int64_t n, int64_t k,
                          int64_t p)
{
    int64_t j = p * kernel->cols;
    pack(kernel, panel, b, j, (int) min64(n - j, kernel->cols), 0, k);
}

const heed_gemm_kernel *heed_gemm_kernel_get(void)
{
    static const heed_gemm_kernel *const kernels[HEED_ISA_COUNT] = {
        [HEED_ISA_GENERIC] = &heed_gemm_generic,
#ifdef __x86_64__
        [HEED_ISA_AVX2] = &heed_gemm_avx2,
        [HEED_ISA_AVX512] = &heed_gemm_avx512,
#endif
    };
    const char *name = getenv("HEED_ISA");
    heed_isa isa = heed_cpu_isa(), wanted;
    if (name && heed_isa_parse(name, &wanted) && wanted < isa) isa = wanted;
    while (!kernels[isa]) isa--;
    return kernels[isa];
}
