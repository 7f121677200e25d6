/* kernels/gemm.h - matrix products in f32: the register tile, compiled per instruction set, and one thread's block of work.
 *
 * The products are heed's own because of two measured facts. Several threads must work on one product, and a serial BLAS
 * need not allow calls from several threads at once (OpenBLAS without locks hands the same buffer to two of them and gives
 * wrong numbers). And weights are the same in every run, so they are packed once, which BLAS has no call for.
 *
 * b is read in panels: `cols` columns, for all k, lying as [k][cols]; columns past n are zero. A row of the result is the sum
 * over k in order, so it does not depend on how rows and columns are handed to threads.
 */
#ifndef HEED_KERNELS_GEMM_H
#define HEED_KERNELS_GEMM_H

#include <stddef.h>
#include <stdint.h>

#include "base/cpu.h"
#include "base/dtype.h"

/* c[r][j] (+)= sum over k of a[r * a_row + k] * b[k * b_row + j], for r below rows and j below cols. All of a panel's columns
 * of b are read, also where cols is less. Strides are in elements. */
typedef struct heed_gemm_tile {
    int rows, cols; /* 1 to the kernel's */
    int64_t k;
    const float *a, *b;
    float *c;
    ptrdiff_t a_row, b_row, c_row;
    int accumulate; /* add to what c holds */
} heed_gemm_tile;

typedef struct heed_gemm_kernel {
    const char *name; /* "gemm_f32_avx512" */
    heed_isa isa;
    int rows, cols; /* of a tile */
    void (*tile)(const heed_gemm_tile *tile);
    /* panel[k * cols + j] = b[j * b_col + k] for j < n, 0 for the other j: a panel out of the rows of a transposed matrix */
    void (*pack_transposed)(float *panel, const float *b, ptrdiff_t b_col, int64_t k, int n);
    /* y[i] = (q[i] - zero) * scale, for n numbers of 4 bits (the low half of a byte first; n is even) or 8 bits */
    void (*unpack4)(float *y, const uint8_t *q, int64_t n, float zero, float scale);
    void (*unpack8)(float *y, const uint8_t *q, int64_t n, float zero, float scale);
} heed_gemm_kernel;

/* The strongest that runs here and HEED_ISA allows. */
const heed_gemm_kernel *heed_gemm_kernel_get(void);

/* A matrix in memory: element (i, j) is data[i * row + j * col], strides in elements. f32, f16 or bf16. */
typedef struct heed_gemm_matrix {
    const void *data;
    heed_dtype dtype;
    ptrdiff_t row, col;
} heed_gemm_matrix;

/* A matrix b that is not an array of floats: fill() makes terms k0 to k0 + k (at most HEED_GEMM_K_BLOCK) of the n columns from j
 * on into a panel, with zeros in the columns after them. */
enum { HEED_GEMM_K_BLOCK = 512 };
typedef struct heed_gemm_source heed_gemm_source;
struct heed_gemm_source {
    void (*fill)(const heed_gemm_source *source, const heed_gemm_kernel *kernel, float *panel, int64_t j, int n, int64_t k0,
                 int64_t k);
};

/* Work for one thread: c = a . b with a [m, k], b [k, n] and c dense within its rows. */
typedef struct heed_gemm_block {
    int64_t m, n, k;
    heed_gemm_matrix a;
    heed_gemm_matrix b;  /* unless packed or source is set */
    const float *packed; /* NULL, or what heed_gemm_pack_panel() made of b */
    const heed_gemm_source *source;
    int64_t first_column; /* of the source */
    float *c;
    ptrdiff_t c_row;
    void *scratch; /* 64-byte aligned, heed_gemm_block_scratch() bytes */
} heed_gemm_block;

void heed_gemm_block_run(const heed_gemm_kernel *kernel, const heed_gemm_block *block);
/* Enough for any block of up to m rows and k terms; SIZE_MAX on overflow. */
size_t heed_gemm_block_scratch(const heed_gemm_kernel *kernel, int64_t m, int64_t k);

/* Panels of a whole b [k, n], one after the other. Panel p starts at packed + p * k * cols. */
size_t heed_gemm_packed_bytes(const heed_gemm_kernel *kernel, int64_t n, int64_t k);
/* Pack panel number p. `line` has room for 1024 floats and is used for halves only. */
void heed_gemm_pack_panel(const heed_gemm_kernel *kernel, float *panel, const heed_gemm_matrix *b, int64_t n, int64_t k,
                          int64_t p);

#endif
