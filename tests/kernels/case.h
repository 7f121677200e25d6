/* One attention problem for a tile kernel: its features, its tensors in guarded memory, what the reference makes of it, and
 * the comparison. One KV head; the query heads of its group are stacked in the rows, as callers of kernels do. */
#ifndef HEED_TESTS_KERNELS_CASE_H
#define HEED_TESTS_KERNELS_CASE_H

#include "guard.h"
#include "kernels/kernels.h"

/* How a matrix lies in memory. */
typedef enum layout {
    LAYOUT_DENSE,
    LAYOUT_PADDED,     /* rows further apart than they are long */
    LAYOUT_COLUMNS,    /* columns three apart */
    LAYOUT_TRANSPOSED, /* unit row stride */
    LAYOUT_REVERSED,   /* negative row stride */
    LAYOUT_REPEATED    /* row stride 0: all rows are the first */
} layout;

typedef struct attention_case {
    heed_dtype dtype;
    int group, len_q, len_k, head_dim, head_dim_v;
    double scale, softcap;
    double spread; /* standard deviation of q; 1, or more for peaked softmax */
    layout q, k, v, out;
    int64_t window_left, window_right, offset; /* -1: unbounded */
    int key_length;                            /* len_k or less */
    heed_tile_mask mask;
    int mask_per_row, mask_per_head; /* else repeated */
    int mask_repeats_keys, mask_strided;
    double mask_hides; /* share of keys that a bool mask, or -inf in an additive one, hides */
    int sinks, lse;
    int parts;     /* pieces of the keys, joined by heed_merge_parts; 0: one whole */
    int tile_rows; /* rows in a tile, 0: as many as the kernel takes */
} attention_case;

/* Tensors of a case, as exact doubles. Tests may change them between case_fill and case_reference. */
typedef struct case_data {
    attention_case c;
    int rows;                 /* group * len_q */
    double *q, *k, *v, *mask; /* dense; mask [rows][len_k], bool as 0 and 1 */
    float *sinks;             /* [group] */
    double *want, *want_lse;  /* of the reference */
    double *got, *got_lse;
    int redone;
    const int64_t (*intervals)[2]; /* NULL, or the keys each row sees, in place of window and key length */
    size_t forbidden_k[2];         /* keys whose pages are forbidden */
} case_data;

attention_case case_default(heed_dtype dtype);
case_data case_fill(const attention_case *c);
void case_reference(case_data *d);
/* A kernel, or NULL for heed_row_exact on each row. */
void case_run(case_data *d, const heed_kernel *kernel, int at_end);
/* Fails the test, naming the kernel, where the result is not what the reference wants. Returns the worst error. */
double case_check(const case_data *d, const heed_kernel *kernel);
void case_free(case_data *d);

/* x as the type holds it. */
double rounded(heed_dtype dtype, double x);
/* Distance of neighbours at x. */
double ulp_of(heed_dtype dtype, double x);

/* Kernels of a type that this CPU runs, from kernels.inc. */
int runs_here(const heed_kernel *kernel);

#endif
