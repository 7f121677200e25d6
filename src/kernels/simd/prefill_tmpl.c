/* Attention for many query rows: queries in the lanes.
 *
 * The queries of a tile are transposed once, scaled, so that a vector holds one element of VL queries. Scores come out
 * transposed as well, S^T = K Q^T, and so does the result, O^T += V^T P^T: keys and values are read element by element and
 * broadcast, in place and without packing where they are f32 with unit column stride. Maximum, sum and rescaling are plain
 * vertical operations, one lane a query, and any head dimension will do.
 *
 * A tile is made of panels of up to V_TILE_VECTORS vectors of queries. Block by block of the keys that some row sees, each
 * panel in turn goes through: mask, S^T, softcap and hiding, online softmax, O^T. Layout of all transposed matrices:
 * [key or column][query], `width` queries wide.
 */
#include "kernels/simd/tile.h"

enum {
    PANEL = V_TILE_VECTORS * VL,
    PANELS = (ROWS(prefill) + PANEL - 1) / PANEL,
    KEYS_MOST = 128, /* keys in a block, fewer for wide heads: the block's keys and values are to stay in the L2 cache */
    KEYS_LEAST = 32,
    BLOCK_FLOATS = 48 * 1024,
    IN_PLACE = (int) DTYPE == (int) HEED_F32
};

/* State of the queries of a panel. */
typedef struct panel {
    const heed_tile_row *rows;
    int first, n_rows; /* rows [first, first + n_rows) of the tile */
    int vectors;       /* in use: 1 to V_TILE_VECTORS */
    span seen;         /* hull of the rows' intervals */
    span seen_by_all;  /* the keys that no row's interval leaves out */
    float *q, *out;    /* transposed: head_dim, head_dim_v times width */
    float *maximum, *sum;
    uint64_t hidden; /* bit r: a key that was worked on is hidden from row r */
} panel;

/* Scratch, and the block of keys at hand as panels see it: f32 with unit column stride. */
typedef struct work {
    const heed_tile *tile;
    panel panels[PANELS];
    int n_panels, block; /* most keys in a block */
    float *packed_k, *packed_v;
    float *scores, *mask; /* KEYS_MOST times width */
    const float *k, *v;   /* row of the first key of the block */
    ptrdiff_t k_row, v_row;
    int64_t key; /* first key of the block */
} work;

ALWAYS_INLINE int padded(int n)
{
    return (n + VL - 1) / VL * VL;
}

static int block_keys(int head_dim, int head_dim_v)
{
    int n = BLOCK_FLOATS / (head_dim + head_dim_v) / 8 * 8;
    return n > KEYS_MOST ? KEYS_MOST : n < KEYS_LEAST ? KEYS_LEAST : n;
}

size_t SCRATCH_NAME(prefill, HEED_SIMD_TYPE, HEED_SIMD_ISA)(int head_dim, int head_dim_v)
{
    size_t width = (size_t) padded(head_dim) + (size_t) padded(head_dim_v), keys = (size_t) block_keys(head_dim, head_dim_v);
    return sizeof(float) * (PANELS * PANEL * (width + 2) + keys * width + 2 * KEYS_MOST * PANEL);
}

/* ---- products: c[m][q] (+)= sum over k of a[m][k] b[k][q] ---- */

/* `rows` by `vectors` of them in registers. */
ALWAYS_INLINE void product_tile(int rows, int vectors, const float *a, ptrdiff_t a_row, ptrdiff_t a_k, const float *b, float *c,
                                int n_k, int accumulate)
{
    const int width = vectors * VL;
    V sum[V_TILE_ROWS_1][V_TILE_VECTORS], x[V_TILE_VECTORS];
    UNROLL
    for (int m = 0; m < rows; m++) {
        UNROLL
        for (int i = 0; i < vectors; i++) sum[m][i] = accumulate ? v_load_f32(c + m * width + i * VL) : v_zero();
    }
    for (int k = 0; k < n_k; k++) {
        UNROLL
        for (int i = 0; i < vectors; i++) x[i] = v_load_f32(b + i * VL);
        UNROLL
        for (int m = 0; m < rows; m++) {
            V y = v_set1(a[m * a_row]);
            UNROLL
            for (int i = 0; i < vectors; i++) sum[m][i] = v_fma(y, x[i], sum[m][i]);
        }
        a += a_k;
        b += width;
    }
    UNROLL
    for (int m = 0; m < rows; m++) {
        UNROLL
        for (int i = 0; i < vectors; i++) v_store_f32(c + m * width + i * VL, sum[m][i]);
    }
}

ALWAYS_INLINE int tile_rows(int vectors)
{
    return vectors == 1 ? V_TILE_ROWS_1 : vectors == 2 ? V_TILE_ROWS_2 : V_TILE_ROWS_3;
}

/* Any number of rows: the last ones in smaller tiles. */
ALWAYS_INLINE void product(int vectors, const float *a, ptrdiff_t a_row, ptrdiff_t a_k, const float *b, float *c, int n_rows,
                           int n_k, int accumulate)
{
    const int most = tile_rows(vectors), width = vectors * VL;
    int m = 0;
    for (; m + most <= n_rows; m += most)
        product_tile(most, vectors, a + m * a_row, a_row, a_k, b, c + m * width, n_k, accumulate);
    if (most > 8)
        for (; m + 8 <= n_rows; m += 8) product_tile(8, vectors, a + m * a_row, a_row, a_k, b, c + m * width, n_k, accumulate);
    if (most > 4)
        for (; m + 4 <= n_rows; m += 4) product_tile(4, vectors, a + m * a_row, a_row, a_k, b, c + m * width, n_k, accumulate);
    for (; m + 2 <= n_rows; m += 2) product_tile(2, vectors, a + m * a_row, a_row, a_k, b, c + m * width, n_k, accumulate);
    if (m < n_rows) product_tile(1, vectors, a + m * a_row, a_row, a_k, b, c + m * width, n_k, accumulate);
}

/* ---- queries in ---- */

/* Lanes without a query hold zeros; their results are never looked at. */
static void load_queries(const heed_tile *tile, const panel *p)
{
    const int width = p->vectors * VL;
    const V scale = v_set1(tile->scale);
    for (int i = 0; i < width; i += VL) {
        for (int d = 0; d < tile->head_dim; d += VL) {
            const int n = tile->head_dim - d < VL ? tile->head_dim - d : VL;
            V x[VL];
            for (int r = 0; r < VL; r++) {
                const int has_row = i + r < p->n_rows;
                x[r] = has_row ? load_elements((const element *) p->rows[i + r].q + d * tile->q_col, tile->q_col, n) : v_zero();
            }
            v_transpose(x);
            for (int e = 0; e < n; e++) v_store_f32(p->q + (d + e) * width + i, v_mul(x[e], scale));
        }
    }
}

static void open_panel(const heed_tile *tile, panel *p)
{
    p->seen = (span){ INT64_MAX, INT64_MIN };
    p->seen_by_all = (span){ INT64_MIN, INT64_MAX };
    for (int r = 0; r < p->n_rows; r++) {
        span s = row_span(tile, p->first + r);
        if (s.begin < s.end) {
            p->seen.begin = smaller(p->seen.begin, s.begin);
            p->seen.end = larger(p->seen.end, s.end);
        }
        p->seen_by_all.begin = larger(p->seen_by_all.begin, s.begin);
        p->seen_by_all.end = smaller(p->seen_by_all.end, s.end);
    }
    load_queries(tile, p);
    const int width = p->vectors * VL;
    memset(p->out, 0, sizeof(float) * (size_t) (width * tile->head_dim_v));
    for (int i = 0; i < width; i += VL) {
        v_store_f32(p->maximum + i, v_set1(-INFINITY));
        v_store_f32(p->sum + i, v_zero());
    }
}

/* Share out the scratch and the rows. */
static void open_work(const heed_tile *tile, work *w)
{
    const int width = padded(tile->head_dim) + padded(tile->head_dim_v);
    float *at = tile->scratch;
    w->tile = tile;
    w->n_panels = (tile->n_rows + PANEL - 1) / PANEL;
    w->block = block_keys(tile->head_dim, tile->head_dim_v);
    for (int i = 0; i < w->n_panels; i++) {
        panel *p = &w->panels[i];
        p->first = i * PANEL;
        p->rows = tile->rows + p->first;
        p->n_rows = tile->n_rows - p->first < PANEL ? tile->n_rows - p->first : PANEL;
        p->vectors = (p->n_rows + VL - 1) / VL;
        p->hidden = 0;
        p->q = at;
        p->out = p->q + padded(tile->head_dim) * PANEL;
        p->maximum = at + width * PANEL;
        p->sum = p->maximum + PANEL;
        at = p->sum + PANEL;
        open_panel(tile, p);
    }
    w->scores = at;
    w->mask = w->scores + KEYS_MOST * PANEL;
    w->packed_k = w->mask + KEYS_MOST * PANEL;
    w->packed_v = w->packed_k + w->block * padded(tile->head_dim);
}

/* ---- keys and values ---- */

static void pack(float *to, const element *from, ptrdiff_t row, ptrdiff_t column, int n_keys, int n_columns)
{
    const int pitch = padded(n_columns);
    for (int j = 0; j < n_keys; j++)
        for (int c = 0; c < n_columns; c += VL)
            v_store_f32(to + (ptrdiff_t) j * pitch + c,
                        load_elements(from + j * row + c * column, column, n_columns - c < VL ? n_columns - c : VL));
}

/* Make keys [key, key + n) readable as f32 rows. */
static void open_block(work *w, int64_t key, int n)
{
    const heed_tile *t = w->tile;
    const element *k = (const element *) t->k + (ptrdiff_t) key * t->k_row,
                  *v = (const element *) t->v + (ptrdiff_t) key * t->v_row;
    w->key = key;
    w->k = (const float *) (const void *) k;
    w->k_row = t->k_row;
    if (!IN_PLACE || t->k_col != 1) {
        pack(w->packed_k, k, t->k_row, t->k_col, n, t->head_dim);
        w->k = w->packed_k;
        w->k_row = padded(t->head_dim);
    }
    w->v = (const float *) (const void *) v;
    w->v_row = t->v_row;
    if (!IN_PLACE || t->v_col != 1) {
        pack(w->packed_v, v, t->v_row, t->v_col, n, t->head_dim_v);
        w->v = w->packed_v;
        w->v_row = padded(t->head_dim_v);
    }
}

/* ---- what rows do not see ---- */

static uint64_t all_rows(const panel *p)
{
    return UINT64_MAX >> (64 - p->n_rows);
}

/* One mask for all rows: w->mask[j]. Returns 0 if it hides all n keys. */
static int open_shared_mask(const work *w, panel *p, int64_t key, int n)
{
    VM shown = vm_none(), hidden = vm_none();
    for (int j = 0; j < n; j += VL) {
        const int left = n - j < VL ? n - j : VL;
        const VM present = v_lt(v_index(), v_set1((float) left));
        V m = load_mask(w->tile, p->first, key + j, left);
        hidden = vm_or(hidden, vm_and(present, v_eq(m, v_set1(-INFINITY))));
        shown = vm_or(shown, vm_and(present, v_ne(m, v_set1(-INFINITY))));
        v_store_f32(w->mask + j, m);
    }
    if (vm_bits(hidden)) p->hidden |= all_rows(p);
    return vm_bits(shown) != 0;
}

/* One mask a row, transposed: w->mask[j][query]. Returns 0 if every row's hides all n keys. */
static int open_mask(const work *w, panel *p, int64_t key, int n)
{
    const int width = p->vectors * VL;
    int any = 0;
    for (int i = 0; i < p->n_rows; i += VL) {
        VM shown = vm_none(), hidden = vm_none();
        for (int j = 0; j < n; j += VL) {
            const int left = n - j < VL ? n - j : VL;
            V m[VL];
            for (int r = 0; r < VL; r++)
                m[r] = i + r < p->n_rows ? load_mask(w->tile, p->first + i + r, key + j, left) : v_set1(-INFINITY);
            v_transpose(m);
            for (int e = 0; e < left; e++) {
                VM none = v_eq(m[e], v_set1(-INFINITY));
                hidden = vm_or(hidden, none);
                shown = vm_or(shown, v_ne(m[e], v_set1(-INFINITY)));
                v_store_f32(w->mask + (j + e) * width + i, m[e]);
            }
        }
        p->hidden |= (uint64_t) vm_bits(hidden) << i;
        any |= vm_bits(shown) != 0;
    }
    return any;
}

/* Add the mask; select, never add, where it hides: a NaN in a hidden key must not survive. */
static void add_shared_mask(const work *w, int width, int n)
{
    for (int j = 0; j < n; j++) {
        const float m = w->mask[j];
        if (m == 0) continue;
        float *s = w->scores + j * width;
        for (int i = 0; i < width; i += VL)
            v_store_f32(s + i, m == -INFINITY ? v_set1(-INFINITY) : v_add(v_load_f32(s + i), v_set1(m)));
    }
}

static void add_mask(const work *w, int width, int n)
{
    for (int i = 0; i < n * width; i += VL) {
        V m = v_load_f32(w->mask + i), hide = v_set1(-INFINITY);
        v_store_f32(w->scores + i, v_select(v_eq(m, hide), hide, v_add(v_load_f32(w->scores + i), m)));
    }
}

/* Hide, row by row, what lies outside of its interval. */
static void hide_outside(const work *w, panel *p, int64_t key, int n)
{
    const int width = p->vectors * VL;
    float lo[PANEL], hi[PANEL]; /* relative to the block: small whole numbers */
    for (int r = 0; r < width; r++) {
        span s = { key, key + n };
        if (r < p->n_rows) s = row_span(w->tile, p->first + r);
        lo[r] = (float) larger(0, smaller(n, s.begin - key));
        hi[r] = (float) larger(0, smaller(n, s.end - key));
        if (s.begin > key || s.end < key + n) p->hidden |= (uint64_t) 1 << r;
    }
    for (int i = 0; i < width; i += VL) {
        const V first = v_load_f32(lo + i), end = v_load_f32(hi + i);
        for (int j = 0; j < n; j++) {
            float *s = w->scores + j * width + i;
            V at = v_set1((float) j);
            v_store_f32(s, v_select(vm_and(v_ge(at, first), v_lt(at, end)), v_load_f32(s), v_set1(-INFINITY)));
        }
    }
}

/* ---- softmax ---- */

ALWAYS_INLINE void rescale(int vectors, float *out, int n, const V *factor)
{
    for (int c = 0; c < n; c++) {
        UNROLL
        for (int i = 0; i < vectors; i++, out += VL) v_store_f32(out, v_mul(v_load_f32(out), factor[i]));
    }
}

/* Scores become weights exp(s - maximum); maximum, sum and out follow. */
ALWAYS_INLINE void soften(int vectors, const work *w, panel *p, int n)
{
    const int width = vectors * VL;
    V old[V_TILE_VECTORS], top[V_TILE_VECTORS], base[V_TILE_VECTORS], total[V_TILE_VECTORS], factor[V_TILE_VECTORS];
    VM moved = vm_none();

    UNROLL
    for (int i = 0; i < vectors; i++) {
        old[i] = top[i] = v_load_f32(p->maximum + i * VL);
        total[i] = v_zero();
    }
    for (int j = 0; j < n; j++) {
        UNROLL
        for (int i = 0; i < vectors; i++) top[i] = v_max(v_load_f32(w->scores + j * width + i * VL), top[i]);
    }
    UNROLL
    for (int i = 0; i < vectors; i++) {
        base[i] = v_base(top[i]);
        /* While the old maximum is -inf there is nothing to rescale. */
        moved = vm_or(moved, vm_and(v_ne(old[i], top[i]), v_ne(old[i], v_set1(-INFINITY))));
        v_store_f32(p->maximum + i * VL, top[i]);
    }
    for (int j = 0; j < n; j++) {
        UNROLL
        for (int i = 0; i < vectors; i++) {
            float *s = w->scores + j * width + i * VL;
            V e = v_exp_down(v_sub(v_load_f32(s), base[i]));
            total[i] = v_add(total[i], e);
            v_store_f32(s, e);
        }
    }
    const int rescaled = vm_bits(moved) != 0;
    UNROLL
    for (int i = 0; i < vectors; i++) {
        factor[i] = rescaled ? v_exp_down(v_sub(old[i], base[i])) : v_set1(1.0f);
        v_store_f32(p->sum + i * VL, v_fma(v_load_f32(p->sum + i * VL), factor[i], total[i]));
    }
    if (rescaled) rescale(vectors, p->out, w->tile->head_dim_v, factor);
}

static void cap_scores(const work *w, int count)
{
    for (int i = 0; i < count; i += VL) v_store_f32(w->scores + i, capped(v_load_f32(w->scores + i), w->tile->softcap));
}

/* ---- a panel and a block ---- */

/* n keys from `key` on, which lie in the block at hand. */
ALWAYS_INLINE void attend(int vectors, const work *w, panel *p, int64_t key, int n)
{
    const heed_tile *t = w->tile;
    const int width = vectors * VL;
    const ptrdiff_t skip = (ptrdiff_t) (key - w->key);

    product(vectors, w->k + skip * w->k_row, w->k_row, 1, p->q, w->scores, n, t->head_dim, 0);
    if (t->softcap > 0) cap_scores(w, n * width);
    if (t->mask_kind != HEED_TILE_MASK_NONE) {
        if (t->mask_shared) add_shared_mask(w, width, n);
        else add_mask(w, width, n);
    }
    if (key < p->seen_by_all.begin || key + n > p->seen_by_all.end) hide_outside(w, p, key, n);
    soften(vectors, w, p, n);
    product(vectors, w->v + skip * w->v_row, 1, w->v_row, w->scores, p->out, t->head_dim_v, n, 1);
}

static void attend_1(const work *w, panel *p, int64_t key, int n)
{
    attend(1, w, p, key, n);
}

static void attend_2(const work *w, panel *p, int64_t key, int n)
{
    attend(2, w, p, key, n);
}

#if V_TILE_VECTORS >= 3
static void attend_3(const work *w, panel *p, int64_t key, int n)
{
    attend(3, w, p, key, n);
}
#endif

/* The part of the block [key, key + n) that the panel sees, unless the mask hides all of it. */
static void attend_block(const work *w, panel *p, int64_t key, int n)
{
    static void (*const by_vectors[])(const work *, panel *, int64_t, int) = {
        attend_1,
        attend_2,
#if V_TILE_VECTORS >= 3
        attend_3,
#endif
    };
    const int64_t begin = larger(key, p->seen.begin), end = smaller(key + n, p->seen.end);
    if (begin >= end) return;
    const int count = (int) (end - begin);
    if (w->tile->mask_kind != HEED_TILE_MASK_NONE) {
        const int some = w->tile->mask_shared ? open_shared_mask(w, p, begin, count) : open_mask(w, p, begin, count);
        if (!some) return;
    }
    by_vectors[p->vectors - 1](w, p, begin, count);
}

/* ---- results out ---- */

/* VL rows from row i on, n columns from c on. */
static void store_rows(const heed_tile *tile, const panel *p, int i, int c, int n, V x[VL])
{
    v_transpose(x);
    const int rows = p->n_rows - i < VL ? p->n_rows - i : VL;
    for (int r = 0; r < rows; r++) {
        if (tile->part_out) {
            float *to = tile->part_out + (ptrdiff_t) (p->first + i + r) * tile->head_dim_v + c;
            if (n == VL) v_store_f32(to, x[r]);
            else v_storen_f32(to, x[r], n);
        } else {
            store_elements((element *) p->rows[i + r].out + c * tile->out_col, tile->out_col, x[r], n);
        }
    }
}

/* Factors that end the rows, into p->sum. */
static void end_rows(const heed_tile *tile, const panel *p)
{
    for (int r = 0; r < p->n_rows; r++) {
        if (tile->part_out) {
            tile->part_sum[p->first + r] = p->sum[r];
            tile->part_max[p->first + r] = p->maximum[r];
            p->sum[r] = 1.0f;
        } else {
            p->sum[r] = end_row(&p->rows[r], p->maximum[r], p->sum[r]);
        }
    }
}

/* Returns how many rows had to be computed again. */
static int close_panel(const heed_tile *tile, const panel *p)
{
    const int width = p->vectors * VL, columns = tile->head_dim_v;
    uint64_t suspect = 0;
    end_rows(tile, p);
    for (int i = 0; i < width; i += VL) {
        V factor = v_load_f32(p->sum + i), check = v_zero();
        for (int c = 0; c < columns; c += VL) {
            const int n = columns - c < VL ? columns - c : VL;
            V x[VL];
            for (int e = 0; e < VL; e++) {
                x[e] = e < n ? v_mul(v_load_f32(p->out + (c + e) * width + i), factor) : v_zero();
                check = v_fma(x[e], v_zero(), check); /* infinity and NaN become NaN and stay */
            }
            store_rows(tile, p, i, c, n, x);
        }
        suspect |= (uint64_t) vm_bits(v_ne(check, check)) << i;
    }
    suspect &= p->hidden;
    int redone = 0;
    for (int r = 0; r < p->n_rows; r++) {
        if (!(suspect >> r & 1)) continue;
        heed_row_exact(tile, (heed_dtype) DTYPE, p->first + r);
        redone++;
    }
    return redone;
}

int KERNEL_NAME(prefill, HEED_SIMD_TYPE, HEED_SIMD_ISA)(const heed_tile *tile)
{
    work w;
    open_work(tile, &w);
    for (span run = next_run(tile, tile->key_begin); run.begin < run.end; run = next_run(tile, run.end)) {
        for (int64_t key = run.begin; key < run.end; key += w.block) {
            const int n = (int) smaller(w.block, run.end - key);
            open_block(&w, key, n);
            for (int i = 0; i < w.n_panels; i++) attend_block(&w, &w.panels[i], key, n);
        }
    }
    int redone = 0;
    for (int i = 0; i < w.n_panels; i++) redone += close_panel(tile, &w.panels[i]);
    return redone;
}
