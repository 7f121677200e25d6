/* ops/gemm.h - batched matrix products over all threads, with what comes after them done while a tile is in the cache.
 *
 * c = activation(alpha * (a . b) + beta * bias) + residual
 *
 * Floats are summed in f32 (f64 in f64), whatever they are stored as, and rounded once. How the work is cut into tasks depends on
 * the shape alone, and each element of c is one sum in one order, so results do not depend on the number of threads.
 */
#ifndef HEED_OPS_GEMM_H
#define HEED_OPS_GEMM_H

#include "kernels/gemm.h"
#include "ops/gelu.h"
#include "ops/op.h"

/* Matrices of a batch, in memory: element (i, j) of the one at batch index x is data[sum of x * batch + i * row + j * col].
 * Any strides, in elements; 0 repeats. */
typedef struct heed_matrix {
    void *data;
    heed_dtype dtype; /* HEED_DTYPE_NONE: absent (bias, residual) */
    int64_t row, col;
    int64_t batch[HEED_RANK_MAX];
} heed_matrix;

typedef struct heed_gemm {
    const heed_gemm_kernel *kernel; /* heed_gemm_kernel_get(), asked once and kept in the operator's state: packed weights and
                                       scratch are of its sizes */
    int n_batch;
    int64_t batch[HEED_RANK_MAX];
    int64_t m, n, k;
    heed_matrix a, b, c;              /* f32, f16 or bf16 in any mix; or all of one type of f64, i32, i64, u32, u64 */
    int b_packed;                     /* b.data is what heed_gemm_pack() made; b.batch counts its floats */
    const heed_gemm_source *b_source; /* NULL, or what makes b; then b has no batch */
    float alpha, beta;                /* start from 1 */
    heed_matrix bias;
    heed_activation_desc activation;
    heed_matrix residual;
} heed_gemm;

/* Make rows of what can be: batch dimensions over which b repeats, where the matrices of a, c and what is added follow each
 * other. Larger matrices are cut better, and b is read fewer times. */
void heed_gemm_simplify(heed_gemm *g);
/* Bytes of scratch; SIZE_MAX on overflow. Data pointers do not matter. */
size_t heed_gemm_scratch(const heed_context *ctx, const heed_gemm *g);
void heed_gemm_run(const heed_context *ctx, const heed_gemm *g, void *scratch);
int heed_gemm_takes(heed_dtype dtype);

/* Matrices packed ahead: n_matrices of [k, n], matrix number i lying `matrix_step` elements after the one before. */
typedef struct heed_gemm_weights {
    int64_t n_matrices, matrix_step;
    int64_t n, k;
    const void *data;
    heed_dtype dtype; /* f32, f16, bf16 */
    int64_t row, col;
} heed_gemm_weights;

/* Floats of one packed matrix, -1 on overflow. */
int64_t heed_gemm_packed_floats(const heed_gemm_kernel *kernel, int64_t n, int64_t k);
/* On all threads. *packed is from the context's allocator. */
heed_status heed_gemm_pack(const heed_context *ctx, const heed_gemm_kernel *kernel, const heed_gemm_weights *weights,
                           float **packed);

/* The state of an operator that is a product: the kernel, and its weights if they are packed. For heed_op.prepare and .release.
 */
typedef struct heed_gemm_state {
    const heed_gemm_kernel *kernel;
    float *packed; /* NULL: not packed */
} heed_gemm_state;

/* weights NULL: nothing is packed. */
heed_status heed_gemm_state_create(const heed_compute *c, const heed_gemm_weights *weights, void **state);
void heed_gemm_state_release(const heed_context *ctx, void *state);

#endif
