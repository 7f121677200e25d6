/* kernels/kernels.h - what a kernel is. Kernels are pure loops: no allocation, threads, logging, globals or error codes.
 *
 * One call works on a tile: a handful of query rows that share one KV head, over a range of keys. Which keys a row may
 * see (causal, window, key length, in any mix) reaches the kernel as one interval per row, so that kernels know nothing
 * of these features; query heads of a group are just more rows.
 */
#ifndef HEED_KERNELS_H
#define HEED_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "base/cpu.h"
#include "base/dtype.h"

typedef enum heed_tile_mask {
    HEED_TILE_MASK_NONE = 0,
    HEED_TILE_MASK_BOOL, /* uint8_t, 0 hides */
    HEED_TILE_MASK_F32,  /* added in f32 */
    HEED_TILE_MASK_TYPE  /* added, in the kernel's storage type */
} heed_tile_mask;

/* One query row. */
typedef struct heed_tile_row {
    const void *q;    /* head_dim elements, q_col apart */
    void *out;        /* head_dim_v elements, out_col apart; unused for a partial result */
    const void *mask; /* element for key 0, mask_col apart; the same pointer in every row if mask_shared */
    int64_t lo, hi;   /* visible keys, [lo, hi) within [0, len_k); lo >= hi: none */
    float sink;       /* logit, -inf for none; ignored for a partial result */
    float *lse;       /* NULL, or where the natural log-sum-exp over the visible keys goes (sink left out) */
} heed_tile_row;

/* Work for one kernel call. Strides are in elements. `key_begin`, `key_end`: the keys of this call, [key_begin, key_end);
 * a row's interval is cut to it. Memory of keys and values that no row of the tile may see is never read. */
typedef struct heed_tile {
    int n_rows; /* 1 to the kernel's rows */
    const heed_tile_row *rows;
    int head_dim, head_dim_v;
    ptrdiff_t q_col, out_col;
    const void *k, *v; /* element 0 of key 0 */
    ptrdiff_t k_row, k_col, v_row, v_col;
    heed_tile_mask mask_kind;
    ptrdiff_t mask_col;
    int mask_shared;
    float scale, softcap; /* softcap 0: off */
    int64_t key_begin, key_end;
    /* Partial result instead of out and lse, if part_out is not NULL: per row r the sum of exp(s - m) v in
     * part_out[r * head_dim_v ..], the sum of exp(s - m) in part_sum[r], the maximum m in part_max[r] (-inf, with zeros,
     * for a row that sees no key). Sinks stay out. */
    float *part_out, *part_sum, *part_max;
    void *scratch; /* 64-byte aligned, of the size that the kernel's scratch() names */
} heed_tile;

/* Run a tile. Returns how many rows were computed again, exactly, because a NaN or infinity in a key or value hidden
 * from them touched the tile. */
typedef int heed_tile_fn(const heed_tile *tile);
/* Bytes of scratch for these head dimensions. */
typedef size_t heed_scratch_fn(int head_dim, int head_dim_v);

typedef enum heed_family { HEED_FAMILY_PREFILL, HEED_FAMILY_DECODE, HEED_FAMILY_COUNT } heed_family;

typedef struct heed_kernel {
    const char *name; /* "prefill_f32_avx512" */
    heed_family family;
    heed_dtype dtype; /* storage of q, k, v and out */
    heed_isa isa;
    int rows;     /* most query rows in a tile */
    int row_step; /* rows are worked on in multiples of this: fewer leave lanes idle (1 for decode) */
    heed_tile_fn *run;
    heed_scratch_fn *scratch;
} heed_kernel;

/* All kernels of this build, made of kernels.inc. */
#define HEED_KERNEL(family, dtype, isa, rows, row_step)                                                                          \
    heed_tile_fn heed_##family##_##dtype##_##isa;                                                                                \
    heed_scratch_fn heed_##family##_##dtype##_##isa##_scratch;
#include "kernels/kernels.inc"
#undef HEED_KERNEL

extern const heed_kernel heed_kernels[];
extern const int heed_n_kernels;

const char *heed_family_name(heed_family family);
/* The kernel of that kind, or NULL if this build has none. */
const heed_kernel *heed_kernel_find(heed_family family, heed_dtype dtype, heed_isa isa);
const heed_kernel *heed_kernel_by_name(const char *name);

/* One row of a tile, straight from the definition: hidden keys and values are never touched. In f32 storage types,
 * accumulated in double. Used where a tile's result for the row is not finite. kernels/ref/row_exact.c */
void heed_row_exact(const heed_tile *tile, heed_dtype dtype, int row);

/* Join partial results of n_parts pieces of the keys, in order, into out and lse of the rows, taking each row's sink.
 * part p of row r: part_out[(p * n_rows + r) * head_dim_v ..], part_sum[p * n_rows + r], part_max[p * n_rows + r]. */
void heed_merge_parts(const heed_tile *tile, heed_dtype dtype, int n_parts, const float *part_out, const float *part_sum,
                      const float *part_max);

/* The specification: whole attention in double, features as the public API has them. kernels/ref/attention_ref.c
 * Strides in elements for [batch, heads, len, dim]; a broadcast dimension has stride 0. */
typedef struct heed_ref_array {
    const void *data;
    heed_dtype dtype; /* f32, f16, bf16, f64, bool (also for uint8_t masks) */
    int64_t strides[4];
} heed_ref_array;

typedef struct heed_ref_problem {
    int64_t batch, heads_q, heads_kv, len_q, len_k, head_dim, head_dim_v;
    heed_ref_array q, k, v, mask; /* mask.data NULL: none */
    double scale, softcap;
    int64_t window_left, window_right; /* -1: unbounded */
    int offset_mode;                   /* heed_offset_mode */
    int64_t offset;
    const int64_t *offsets, *key_lengths; /* NULL: none */
    const float *sinks;                   /* NULL: none */
    double *out;                          /* dense [batch, heads_q, len_q, head_dim_v] */
    double *lse;                          /* dense [batch, heads_q, len_q], or NULL */
} heed_ref_problem;

/* Needs no memory but a row of scores: `row` has room for len_k doubles. */
void heed_ref_attention(const heed_ref_problem *problem, double *row);

/* Element-wise and row-wise helpers that explode and the operators of a graph share, compiled per ISA like the kernels
 * (kernels/simd/rows_tmpl.c). All dense f32. */
typedef struct heed_row_kernels {
    /* y[i] = exp(x[i] - max) / sum over the n of a row, in place allowed; a row whose maximum is -inf gives 0. */
    void (*softmax)(float *y, const float *x, int64_t n);
    /* y = (x - mean) / sqrt(variance + epsilon) * scale + bias; scale and bias may be NULL. mean and inv_std may be NULL. */
    void (*layer_norm)(float *y, const float *x, const float *scale, const float *bias, int64_t n, float epsilon, float *mean,
                       float *inv_std);
    /* y = x / sqrt(mean(x^2) + epsilon) * scale */
    void (*rms_norm)(float *y, const float *x, const float *scale, int64_t n, float epsilon);
    /* y[i] = f(x[i]), in place allowed. */
    void (*exp)(float *y, const float *x, int64_t n);
    void (*erf)(float *y, const float *x, int64_t n);
    void (*tanh)(float *y, const float *x, int64_t n);
    void (*sigmoid)(float *y, const float *x, int64_t n);
    void (*gelu)(float *y, const float *x, int64_t n);      /* 0.5 x (1 + erf(x / sqrt 2)) */
    void (*gelu_tanh)(float *y, const float *x, int64_t n); /* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
    void (*silu)(float *y, const float *x, int64_t n);      /* x sigmoid(x) */
    /* Types. */
    void (*f32_from_f16)(float *y, const uint16_t *x, int64_t n);
    void (*f16_from_f32)(uint16_t *y, const float *x, int64_t n);
    void (*f32_from_bf16)(float *y, const uint16_t *x, int64_t n);
    void (*bf16_from_f32)(uint16_t *y, const float *x, int64_t n);
} heed_row_kernels;

/* Those of one instruction set, or NULL if this build has none; the CPU must have it. */
const heed_row_kernels *heed_row_kernels_of(heed_isa isa);
/* The strongest that runs here and HEED_ISA allows. */
const heed_row_kernels *heed_row_kernels_get(void);

#endif
