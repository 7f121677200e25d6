/* simd/tile.h - what the attention kernels share: the storage type they are compiled for, masks as numbers, the runs of
 * keys that a tile sees, and the end of a row. */
#ifndef HEED_SIMD_TILE_H
#define HEED_SIMD_TILE_H

#include <math.h>
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/simd/vec.h"
#include "kernels/simd/vec_math.h"

/* The storage type T: its element, loads and stores, and heed_<family>_<type>_<isa>. */
typedef float element_f32;
typedef uint16_t element_f16, element_bf16;
enum { DTYPE_f32 = HEED_F32, DTYPE_f16 = HEED_F16, DTYPE_bf16 = HEED_BF16 };

typedef HEED_SIMD_JOIN(element_, HEED_SIMD_TYPE) element;
enum { DTYPE = HEED_SIMD_JOIN(DTYPE_, HEED_SIMD_TYPE) };
#define v_load_element HEED_SIMD_JOIN(v_load_, HEED_SIMD_TYPE)
#define v_loadn_element HEED_SIMD_JOIN(v_loadn_, HEED_SIMD_TYPE)
#define v_store_element HEED_SIMD_JOIN(v_store_, HEED_SIMD_TYPE)
#define v_storen_element HEED_SIMD_JOIN(v_storen_, HEED_SIMD_TYPE)

#define KERNEL_NAME_(family, type, isa) heed_##family##_##type##_##isa
#define KERNEL_NAME(family, type, isa) KERNEL_NAME_(family, type, isa)
#define SCRATCH_NAME_(family, type, isa) heed_##family##_##type##_##isa##_scratch
#define SCRATCH_NAME(family, type, isa) SCRATCH_NAME_(family, type, isa)

/* The most rows of a tile, as kernels.inc has it: ROWS(prefill). */
enum {
#define HEED_KERNEL(family, dtype, isa, rows, row_step) ROWS_##family##_##dtype##_##isa = rows,
#include "kernels/kernels.inc"
#undef HEED_KERNEL
};
#define ROWS_NAME_(family, type, isa) ROWS_##family##_##type##_##isa
#define ROWS_NAME(family, type, isa) ROWS_NAME_(family, type, isa)
#define ROWS(family) ROWS_NAME(family, HEED_SIMD_TYPE, HEED_SIMD_ISA)

/* Keys [begin, end). */
typedef struct span {
    int64_t begin, end;
} span;

ALWAYS_INLINE int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

ALWAYS_INLINE int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The keys that a row sees as far as its interval goes; empty ones have begin == end. */
static inline span row_span(const heed_tile *tile, int row)
{
    span s = { larger(tile->rows[row].lo, tile->key_begin), smaller(tile->rows[row].hi, tile->key_end) };
    if (s.end < s.begin) s.end = s.begin;
    return s;
}

/* The next run of keys, at or after `from`, that are each in the interval of some row. Empty at the end. */
static inline span next_run(const heed_tile *tile, int64_t from)
{
    span run = { INT64_MAX, INT64_MAX };
    for (int r = 0; r < tile->n_rows; r++) {
        span s = row_span(tile, r);
        if (s.end > larger(from, s.begin)) run.begin = smaller(run.begin, larger(from, s.begin));
    }
    run.end = run.begin;
    int64_t reached;
    do {
        reached = run.end;
        for (int r = 0; r < tile->n_rows; r++) {
            span s = row_span(tile, r);
            if (s.begin <= run.end && s.end > run.end) run.end = s.end;
        }
    } while (run.end != reached);
    return run;
}

/* n elements `stride` apart as a dense row: in place if they are one, else gathered into `buffer`. */
static inline const void *dense(void *buffer, const void *from, size_t size, ptrdiff_t stride, int n)
{
    if (stride == 1) return from;
    for (ptrdiff_t i = 0; i < n; i++)
        memcpy((char *) buffer + (size_t) i * size, (const char *) from + i * stride * (ptrdiff_t) size, size);
    return buffer;
}

/* n elements of q, k or v, `stride` apart. */
static inline V load_elements(const element *from, ptrdiff_t stride, int n)
{
    element buffer[VL];
    if (stride == 1 && n == VL) return v_load_element(from);
    return v_loadn_element(dense(buffer, from, sizeof(element), stride, n), n);
}

static inline void store_elements(element *to, ptrdiff_t stride, V a, int n)
{
    element buffer[VL];
    if (stride == 1) {
        if (n == VL) v_store_element(to, a);
        else v_storen_element(to, a, n);
        return;
    }
    v_store_element(buffer, a);
    for (ptrdiff_t i = 0; i < n; i++) to[i * stride] = buffer[i];
}

/* The mask of one row from key `key` on, as what is added to the scores of n keys: -inf hides. Lanes past n are 0. */
static inline V load_mask(const heed_tile *tile, int row, int64_t key, int n)
{
    const void *mask = tile->rows[row].mask;
    const ptrdiff_t at = (ptrdiff_t) key * tile->mask_col;
    float buffer[VL];
    switch (tile->mask_kind) {
    case HEED_TILE_MASK_BOOL: {
        const uint8_t *shown = dense(buffer, (const uint8_t *) mask + at, sizeof *shown, tile->mask_col, n);
        VM hidden = vm_and(v_eq(v_loadn_u8(shown, n), v_zero()), v_lt(v_index(), v_set1((float) n)));
        return v_select(hidden, v_set1(-INFINITY), v_zero());
    }
    case HEED_TILE_MASK_F32: {
        const float *added = dense(buffer, (const float *) mask + at, sizeof *added, tile->mask_col, n);
        return n == VL ? v_load_f32(added) : v_loadn_f32(added, n);
    }
    case HEED_TILE_MASK_TYPE: return load_elements((const element *) mask + at, tile->mask_col, n);
    case HEED_TILE_MASK_NONE: break;
    }
    return v_zero();
}

/* softcap tanh(s / softcap). */
ALWAYS_INLINE V capped(V s, float softcap)
{
    return v_mul(v_set1(softcap), v_tanh(v_div(s, v_set1(softcap))));
}

/* The factor that turns the sum of weighted values of a row into its output, with the sink, and its log-sum-exp. */
static inline float end_row(const heed_tile_row *row, float maximum, float sum)
{
    if (row->lse) *row->lse = sum == 0 ? -INFINITY : (float) ((double) maximum + log((double) sum));
    if (row->sink == -INFINITY) return sum == 0 ? 0.0f : 1.0f / sum;
    float top = row->sink > maximum ? row->sink : maximum;
    float scale = maximum == -INFINITY ? 0.0f : expf(maximum - top);
    return scale / (sum * scale + expf(row->sink - top));
}

#endif
