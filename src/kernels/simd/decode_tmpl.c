/* Attention for few query rows: head dimension in the lanes.
 *
 * One to eight rows, usually the query heads of one KV head, are worked on together, so that each key and value is read
 * and converted once for all of them: memory is the limit here. Keys go in blocks. Of a block, first all scores are
 * computed (sums of VL keys are added up across lanes together), then softmax runs along the keys, then values are
 * added up, a few columns at a time that fit in registers. Blocks that the mask hides wholly are not read. The values of a
 * block are asked for while its keys are worked on, and the keys of the next block while its values are, so that memory
 * never rests.
 */
#include "kernels/simd/tile.h"

enum {
    ROWS_MOST = ROWS(decode),
    KEYS = 64, /* in a block */
    LINE = 64  /* bytes in a cache line */
};

typedef struct work {
    const heed_tile *tile;
    float *q, *out;       /* [row][padded head dimension]: scaled queries, sums of weighted values */
    float *scores, *mask; /* [row][KEYS] */
    element *packed_k, *packed_v;
    const element *k, *v; /* row of the first key of the block, unit column stride */
    ptrdiff_t k_row, v_row;
    float maximum[ROWS_MOST], sum[ROWS_MOST];
    unsigned hidden; /* bit r: a key that was worked on is hidden from row r */
} work;

ALWAYS_INLINE int padded(int n)
{
    return (n + VL - 1) / VL * VL;
}

size_t SCRATCH_NAME(decode, HEED_SIMD_TYPE, HEED_SIMD_ISA)(int head_dim, int head_dim_v)
{
    size_t width = (size_t) padded(head_dim) + (size_t) padded(head_dim_v);
    return sizeof(float) * ROWS_MOST * (width + 2 * KEYS) + sizeof(element) * KEYS * width;
}

static void open_work(const heed_tile *t, work *w)
{
    const int wide = padded(t->head_dim), wide_v = padded(t->head_dim_v);
    w->tile = t;
    w->q = t->scratch;
    w->out = w->q + ROWS_MOST * wide;
    w->scores = w->out + ROWS_MOST * wide_v;
    w->mask = w->scores + ROWS_MOST * KEYS;
    w->packed_k = (element *) (void *) (w->mask + ROWS_MOST * KEYS);
    w->packed_v = w->packed_k + KEYS * wide;
    w->hidden = 0;
    for (int r = 0; r < t->n_rows; r++) {
        w->maximum[r] = -INFINITY;
        w->sum[r] = 0;
        for (int d = 0; d < t->head_dim; d += VL) {
            const int n = t->head_dim - d < VL ? t->head_dim - d : VL;
            V x = load_elements((const element *) t->rows[r].q + d * t->q_col, t->q_col, n);
            v_store_f32(w->q + r * wide + d, v_mul(x, v_set1(t->scale)));
        }
    }
    memset(w->out, 0, sizeof(float) * (size_t) (t->n_rows * wide_v));
}

static void pack(element *to, const element *from, ptrdiff_t row, ptrdiff_t column, int n_keys, int n_columns)
{
    for (int j = 0; j < n_keys; j++)
        for (int c = 0; c < n_columns; c++) to[j * n_columns + c] = from[j * row + c * column];
}

/* Make keys [key, key + n) readable with unit column stride. */
static void open_block(work *w, int64_t key, int n)
{
    const heed_tile *t = w->tile;
    w->k = (const element *) t->k + (ptrdiff_t) key * t->k_row;
    w->k_row = t->k_row;
    if (t->k_col != 1) {
        pack(w->packed_k, w->k, t->k_row, t->k_col, n, t->head_dim);
        w->k = w->packed_k;
        w->k_row = t->head_dim;
    }
    w->v = (const element *) t->v + (ptrdiff_t) key * t->v_row;
    w->v_row = t->v_row;
    if (t->v_col != 1) {
        pack(w->packed_v, w->v, t->v_row, t->v_col, n, t->head_dim_v);
        w->v = w->packed_v;
        w->v_row = t->head_dim_v;
    }
}

/* The mask rows of the block as what is added. Returns 0 if they hide all n keys from all rows. */
static int open_mask(work *w, int64_t key, int n)
{
    const int rows = w->tile->mask_shared ? 1 : w->tile->n_rows;
    VM shown = vm_none();
    for (int r = 0; r < rows; r++) {
        VM hidden = vm_none();
        for (int j = 0; j < n; j += VL) {
            const int left = n - j < VL ? n - j : VL;
            const VM present = v_lt(v_index(), v_set1((float) left));
            V m = load_mask(w->tile, r, key + j, left);
            hidden = vm_or(hidden, vm_and(present, v_eq(m, v_set1(-INFINITY))));
            shown = vm_or(shown, vm_and(present, v_ne(m, v_set1(-INFINITY))));
            v_store_f32(w->mask + r * KEYS + j, m);
        }
        if (vm_bits(hidden)) w->hidden |= w->tile->mask_shared ? ~0u : 1u << r;
    }
    return vm_bits(shown) != 0;
}

/* n elements at an address that may lie past the end: it is not read. */
ALWAYS_INLINE void ask_for(uintptr_t at, int n)
{
    const uintptr_t end = at + (uintptr_t) n * sizeof(element);
    for (; at < end; at += LINE) __builtin_prefetch((const void *) at, 0, 2);
}

/* ---- scores ---- */

/* Keys and rows whose sums are in registers together. */
enum { KEYS_TOGETHER = 4, ROWS_TOGETHER = V_DOT_ACCUMULATORS / KEYS_TOGETHER };

/* sum[row][key] += q[row][d ..] k[key][d ..], n columns. */
ALWAYS_INLINE void add_products(int rows, int keys, const work *w, const float *q, const element *k, int d, int n,
                                V sum[ROWS_TOGETHER][KEYS_TOGETHER])
{
    const int wide = padded(w->tile->head_dim);
    UNROLL
    for (int j = 0; j < keys; j++) {
        const element *from = k + j * w->k_row + d;
        V x = n == VL ? v_load_element(from) : v_loadn_element(from, n);
        UNROLL
        for (int r = 0; r < rows; r++) sum[r][j] = v_fma(x, v_load_f32(q + r * wide + d), sum[r][j]);
    }
}

/* Sums over the head dimension, a vector each, of `keys` keys with `rows` queries. */
ALWAYS_INLINE void dot_keys(int rows, int keys, const work *w, const float *q, const element *k,
                            V sum[ROWS_TOGETHER][KEYS_TOGETHER])
{
    const int head_dim = w->tile->head_dim;
    int d = 0;
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int j = 0; j < keys; j++) sum[r][j] = v_zero();
    }
    for (; d + VL <= head_dim; d += VL) add_products(rows, keys, w, q, k, d, VL, sum);
    if (d < head_dim) add_products(rows, keys, w, q, k, d, head_dim - d, sum);
}

/* Scores of n keys, 1 to VL, from key j of the block on, with `rows` rows from `row` on. */
ALWAYS_INLINE void score_keys(int rows, const work *w, int row, int j, int n)
{
    const float *q = w->q + row * padded(w->tile->head_dim);
    const element *k = w->k + j * w->k_row;
    float *scores = w->scores + row * KEYS + j;
    V sum[ROWS_TOGETHER][KEYS_TOGETHER], fours[ROWS_TOGETHER][VL / KEYS_TOGETHER];
    int i = 0;
    for (; i + KEYS_TOGETHER <= n; i += KEYS_TOGETHER) {
        dot_keys(rows, KEYS_TOGETHER, w, q, k + i * w->k_row, sum);
        UNROLL
        for (int r = 0; r < rows; r++) fours[r][i / KEYS_TOGETHER] = v_sum4(sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
    }
    const int done = i;
    for (; i < VL; i += KEYS_TOGETHER) {
        UNROLL
        for (int r = 0; r < rows; r++) fours[r][i / KEYS_TOGETHER] = v_zero();
    }
    UNROLL
    for (int r = 0; r < rows; r++) v_store_f32(scores + r * KEYS, v_sum4_end(fours[r]));
    for (i = done; i < n; i++) { /* the last keys, one by one */
        dot_keys(rows, 1, w, q, k + i * w->k_row, sum);
        UNROLL
        for (int r = 0; r < rows; r++) scores[r * KEYS + i] = v_sum(sum[r][0]);
    }
}

ALWAYS_INLINE void score_block(int rows, const work *w, int n)
{
    for (int j = 0; j < n; j += VL) {
        const int left = n - j < VL ? n - j : VL;
        for (int i = 0; i < left; i++) ask_for((uintptr_t) (w->v + (j + i) * w->v_row), w->tile->head_dim_v);
        int r = 0;
        for (; r + ROWS_TOGETHER <= rows; r += ROWS_TOGETHER) score_keys(ROWS_TOGETHER, w, r, j, left);
        if (r < rows) score_keys(rows % ROWS_TOGETHER, w, r, j, left);
    }
}

/* ---- softmax ---- */

/* Softcap, mask and interval: the scores of one row, -inf for what it does not see, up to a multiple of VL. */
static void edit_scores(work *w, int row, int64_t key, int n)
{
    const heed_tile *t = w->tile;
    const float *mask = w->mask + (t->mask_shared ? 0 : row * KEYS);
    const span s = row_span(t, row);
    const V first = v_set1((float) larger(0, smaller(n, s.begin - key))),
            end = v_set1((float) larger(0, smaller(n, s.end - key)));
    const V hide = v_set1(-INFINITY);
    for (int j = 0; j < n; j += VL) {
        float *at = w->scores + row * KEYS + j;
        V x = v_load_f32(at), index = v_add(v_index(), v_set1((float) j));
        if (t->softcap > 0) x = capped(x, t->softcap);
        if (t->mask_kind != HEED_TILE_MASK_NONE) {
            V m = v_load_f32(mask + j);
            x = v_select(v_eq(m, hide), hide, v_add(x, m));
        }
        v_store_f32(at, v_select(vm_and(v_ge(index, first), v_lt(index, end)), x, hide));
    }
    if (s.begin > key || s.end < key + n) w->hidden |= 1u << row;
}

/* Scores become weights exp(s - maximum); maximum, sum and out follow. */
static void soften(work *w, int row, int n)
{
    float *s = w->scores + row * KEYS;
    V top = v_set1(w->maximum[row]), total = v_zero();
    for (int j = 0; j < n; j += VL) top = v_max(v_load_f32(s + j), top);
    const float old = w->maximum[row], maximum = v_hmax(top);
    const V base = v_base(v_set1(maximum));
    for (int j = 0; j < n; j += VL) {
        V e = v_exp_down(v_sub(v_load_f32(s + j), base));
        total = v_add(total, e);
        v_store_f32(s + j, e);
    }
    if (maximum != old && old != -INFINITY) {
        const float factor = expf(old - maximum);
        const int wide = padded(w->tile->head_dim_v);
        float *out = w->out + row * wide;
        for (int c = 0; c < wide; c += VL) v_store_f32(out + c, v_mul(v_load_f32(out + c), v_set1(factor)));
        w->sum[row] *= factor;
    }
    w->sum[row] += v_sum(total);
    w->maximum[row] = maximum;
}

/* ---- values ---- */

/* `columns` vectors of columns, or the last `part` columns of one vector if part is not VL. */
ALWAYS_INLINE void add_columns(int rows, int columns, const work *w, int c, int part, int n)
{
    const int wide = padded(w->tile->head_dim_v);
    const element *v = w->v + c, *next_k = w->k + KEYS * w->k_row + c;
    V sum[ROWS_MOST][V_DOT_ACCUMULATORS];
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int i = 0; i < columns; i++) sum[r][i] = v_load_f32(w->out + r * wide + c + i * VL);
    }
    for (int j = 0; j < n; j++, v += w->v_row, next_k += w->k_row) {
        ask_for((uintptr_t) next_k, columns * VL);
        UNROLL
        for (int i = 0; i < columns; i++) {
            V x = part == VL ? v_load_element(v + i * VL) : v_loadn_element(v, part);
            UNROLL
            for (int r = 0; r < rows; r++) sum[r][i] = v_fma(v_set1(w->scores[r * KEYS + j]), x, sum[r][i]);
        }
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int i = 0; i < columns; i++) v_store_f32(w->out + r * wide + c + i * VL, sum[r][i]);
    }
}

ALWAYS_INLINE int columns_together(int rows)
{
    const int n = V_DOT_ACCUMULATORS / rows;
    return n >= 8 ? 8 : n >= 4 ? 4 : n >= 2 ? 2 : 1;
}

ALWAYS_INLINE void add_values(int rows, const work *w, int n)
{
    const int together = columns_together(rows), columns = w->tile->head_dim_v;
    int c = 0;
    for (; c + together * VL <= columns; c += together * VL) add_columns(rows, together, w, c, VL, n);
    if (together > 2)
        for (; c + 2 * VL <= columns; c += 2 * VL) add_columns(rows, 2, w, c, VL, n);
    for (; c + VL <= columns; c += VL) add_columns(rows, 1, w, c, VL, n);
    if (c < columns) add_columns(rows, 1, w, c, columns - c, n);
}

/* ---- a block, by number of rows ---- */

ALWAYS_INLINE void attend(int rows, work *w, int64_t key, int n)
{
    score_block(rows, w, n);
    for (int r = 0; r < rows; r++) {
        edit_scores(w, r, key, n);
        soften(w, r, n);
    }
    add_values(rows, w, n);
}

/* Compiled for each number of rows, so that all sums stay in registers. */
static void attend_block(work *w, int64_t key, int n)
{
    switch (w->tile->n_rows) {
    case 1: attend(1, w, key, n); break;
    case 2: attend(2, w, key, n); break;
    case 3: attend(3, w, key, n); break;
    case 4: attend(4, w, key, n); break;
    case 5: attend(5, w, key, n); break;
    case 6: attend(6, w, key, n); break;
    case 7: attend(7, w, key, n); break;
    case 8: attend(8, w, key, n); break;
    }
}

/* ---- results out ---- */

/* Returns 1 if the row came out non-finite. */
static int store_row(const work *w, int row)
{
    const heed_tile *t = w->tile;
    const float *out = w->out + row * padded(t->head_dim_v);
    float factor = 1.0f;
    V check = v_zero();
    if (t->part_out) {
        t->part_sum[row] = w->sum[row];
        t->part_max[row] = w->maximum[row];
    } else {
        factor = end_row(&t->rows[row], w->maximum[row], w->sum[row]);
    }
    for (int c = 0; c < t->head_dim_v; c += VL) {
        const int n = t->head_dim_v - c < VL ? t->head_dim_v - c : VL;
        V x = v_mul(v_load_f32(out + c), v_set1(factor));
        check = v_fma(x, v_zero(), check); /* infinity and NaN become NaN and stay */
        if (t->part_out) v_storen_f32(t->part_out + (ptrdiff_t) row * t->head_dim_v + c, x, n);
        else store_elements((element *) t->rows[row].out + c * t->out_col, t->out_col, x, n);
    }
    return vm_bits(v_ne(check, check)) != 0;
}

int KERNEL_NAME(decode, HEED_SIMD_TYPE, HEED_SIMD_ISA)(const heed_tile *tile)
{
    work w;
    open_work(tile, &w);
    for (span run = next_run(tile, tile->key_begin); run.begin < run.end; run = next_run(tile, run.end)) {
        for (int64_t key = run.begin; key < run.end; key += KEYS) {
            const int n = (int) smaller(KEYS, run.end - key);
            if (tile->mask_kind != HEED_TILE_MASK_NONE && !open_mask(&w, key, n)) continue;
            open_block(&w, key, n);
            attend_block(&w, key, n);
        }
    }
    int redone = 0;
    for (int r = 0; r < tile->n_rows; r++) {
        if (!store_row(&w, r) || !(w.hidden >> r & 1)) continue;
        heed_row_exact(tile, (heed_dtype) DTYPE, r);
        redone++;
    }
    return redone;
}
