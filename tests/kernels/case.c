#include "case.h"

#include <heed/attention.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/test.h"
#include "base/half.h"

attention_case case_default(heed_dtype dtype)
{
    return (attention_case){ .dtype = dtype,
                             .group = 2,
                             .len_q = 13,
                             .len_k = 150,
                             .head_dim = 24,
                             .head_dim_v = 24,
                             .scale = 0.2,
                             .spread = 1,
                             .window_left = -1,
                             .window_right = -1,
                             .key_length = 150 };
}

double rounded(heed_dtype dtype, double x)
{
    if (dtype == HEED_F16) return (double) heed_f32_from_f16(heed_f16_from_f32((float) x));
    if (dtype == HEED_BF16) return (double) heed_f32_from_bf16(heed_bf16_from_f32((float) x));
    return (double) (float) x;
}

double ulp_of(heed_dtype dtype, double x)
{
    const int bits = dtype == HEED_F16 ? 10 : dtype == HEED_BF16 ? 7 : 23, least = dtype == HEED_F16 ? -14 : -126;
    int exponent;
    frexp(x, &exponent);
    exponent--;
    return ldexp(1, (exponent < least ? least : exponent) - bits);
}

int runs_here(const heed_kernel *kernel)
{
    return kernel->isa <= heed_cpu_isa();
}

/* ---- making a case ---- */

static double *doubles(size_t n)
{
    double *p = calloc(n + 1, sizeof *p);
    assert_non_null(p);
    return p;
}

static double *normals(const attention_case *c, int rows, int columns, double spread, layout how)
{
    double *p = doubles((size_t) (rows * columns));
    for (int i = 0; i < rows * columns; i++) p[i] = rounded(c->dtype, spread * random_normal());
    if (how == LAYOUT_REPEATED)
        for (int i = columns; i < rows * columns; i++) p[i] = p[i - columns];
    return p;
}

static double mask_element(const attention_case *c)
{
    const int hides = random_uniform() < c->mask_hides;
    if (c->mask == HEED_TILE_MASK_BOOL) return !hides;
    if (hides) return -INFINITY;
    return rounded(c->mask == HEED_TILE_MASK_F32 ? HEED_F32 : c->dtype, random_normal());
}

static double *make_mask(const attention_case *c)
{
    double *mask = doubles((size_t) (c->group * c->len_q * c->len_k));
    for (int g = 0; g < c->group; g++)
        for (int i = 0; i < c->len_q; i++)
            for (int j = 0; j < c->len_k; j++) {
                double *m = &mask[(g * c->len_q + i) * c->len_k + j];
                const int again = (g > 0 && !c->mask_per_head) || (i > 0 && !c->mask_per_row) || (j > 0 && c->mask_repeats_keys);
                const int from_g = c->mask_per_head ? g : 0, from_i = c->mask_per_row ? i : 0,
                          from_j = c->mask_repeats_keys ? 0 : j;
                *m = again ? mask[(from_g * c->len_q + from_i) * c->len_k + from_j] : mask_element(c);
            }
    return mask;
}

case_data case_fill(const attention_case *c)
{
    case_data d = { .c = *c, .rows = c->group * c->len_q };
    d.q = normals(c, d.rows, c->head_dim, c->spread, c->q);
    d.k = normals(c, c->len_k, c->head_dim, 1, c->k);
    d.v = normals(c, c->len_k, c->head_dim_v, 1, c->v);
    if (c->mask != HEED_TILE_MASK_NONE) d.mask = make_mask(c);
    d.sinks = calloc((size_t) c->group + 1, sizeof *d.sinks);
    assert_non_null(d.sinks);
    for (int g = 0; g < c->group; g++) d.sinks[g] = c->sinks ? (float) (2 * random_normal()) : -INFINITY;
    d.want = doubles((size_t) (d.rows * c->head_dim_v));
    d.got = doubles((size_t) (d.rows * c->head_dim_v));
    d.want_lse = doubles((size_t) d.rows);
    d.got_lse = doubles((size_t) d.rows);
    return d;
}

void case_free(case_data *d)
{
    void *const all[] = { d->q, d->k, d->v, d->mask, d->sinks, d->want, d->want_lse, d->got, d->got_lse };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) free(all[i]);
    *d = (case_data){ 0 };
}

/* ---- the reference ---- */

static heed_ref_array array_of(const double *data, int head, int row)
{
    return (heed_ref_array){ data, HEED_F64, { 0, head, row, 1 } };
}

/* Mask of the reference: intervals of a test's own are laid over it as -inf. */
static double *reference_mask(const case_data *d)
{
    const attention_case *c = &d->c;
    if (!d->mask && !d->intervals) return NULL;
    double *mask = doubles((size_t) (d->rows * c->len_k));
    for (int r = 0; r < d->rows; r++)
        for (int j = 0; j < c->len_k; j++) {
            double m = d->mask ? d->mask[r * c->len_k + j] : 0;
            if (d->mask && c->mask == HEED_TILE_MASK_BOOL) m = m != 0 ? 0 : -INFINITY;
            if (d->intervals && (j < d->intervals[r][0] || j >= d->intervals[r][1])) m = -INFINITY;
            mask[r * c->len_k + j] = m;
        }
    return mask;
}

void case_reference(case_data *d)
{
    const attention_case *c = &d->c;
    const int64_t key_length = c->key_length;
    double *mask = reference_mask(d), *row = doubles((size_t) c->len_k);
    heed_ref_problem p = { .batch = 1,
                           .heads_q = c->group,
                           .heads_kv = 1,
                           .len_q = c->len_q,
                           .len_k = c->len_k,
                           .head_dim = c->head_dim,
                           .head_dim_v = c->head_dim_v,
                           .q = array_of(d->q, c->len_q * c->head_dim, c->head_dim),
                           .k = array_of(d->k, 0, c->head_dim),
                           .v = array_of(d->v, 0, c->head_dim_v),
                           .scale = (double) (float) c->scale,
                           .softcap = (double) (float) c->softcap,
                           .window_left = c->window_left,
                           .window_right = c->window_right,
                           .offset_mode = HEED_OFFSET_VALUE,
                           .offset = c->offset,
                           .key_lengths = &key_length,
                           .sinks = c->sinks ? d->sinks : NULL,
                           .out = d->want,
                           .lse = d->want_lse };
    if (mask) p.mask = array_of(mask, c->len_q * c->len_k, c->len_k);
    heed_ref_attention(&p, row);
    free(mask);
    free(row);
}

/* ---- tensors in guarded memory ---- */

typedef struct matrix {
    guarded memory;
    char *base; /* element [0][0], which itself may lie outside */
    heed_dtype dtype;
    ptrdiff_t row, column;
} matrix;

static char *element_at(const matrix *m, int i, int j)
{
    return m->base + (i * m->row + j * m->column) * (ptrdiff_t) heed_dtype_size(m->dtype);
}

static void put(const matrix *m, int i, int j, double x)
{
    void *at = element_at(m, i, j);
    switch (m->dtype) {
    case HEED_F32: *(float *) at = (float) x; break;
    case HEED_F16: *(uint16_t *) at = heed_f16_from_f32((float) x); break;
    case HEED_BF16: *(uint16_t *) at = heed_bf16_from_f32((float) x); break;
    default: *(uint8_t *) at = (uint8_t) x; break;
    }
}

static double get(const matrix *m, int i, int j)
{
    const void *at = element_at(m, i, j);
    switch (m->dtype) {
    case HEED_F32: return (double) *(const float *) at;
    case HEED_F16: return (double) heed_f32_from_f16(*(const uint16_t *) at);
    case HEED_BF16: return (double) heed_f32_from_bf16(*(const uint16_t *) at);
    default: return (double) *(const uint8_t *) at;
    }
}

/* Rows [first, end) of a matrix of that layout; the rest of it does not exist. */
static matrix matrix_new(heed_dtype dtype, layout how, int n_rows, int columns, int first, int end, int at_end)
{
    matrix m = { .dtype = dtype, .row = columns, .column = 1 };
    switch (how) {
    case LAYOUT_DENSE: break;
    case LAYOUT_PADDED: m.row = columns + 5; break;
    case LAYOUT_COLUMNS: m.row = 3 * columns, m.column = 3; break;
    case LAYOUT_TRANSPOSED: m.row = 1, m.column = n_rows; break;
    case LAYOUT_REVERSED: m.row = -columns; break;
    case LAYOUT_REPEATED: m.row = 0; break;
    }
    const ptrdiff_t a = first * m.row, b = (end - 1) * m.row, lowest = a < b ? a : b,
                    highest = (a < b ? b : a) + (columns - 1) * m.column;
    const size_t size = heed_dtype_size(dtype);
    m.memory = guarded_new(end > first ? (size_t) (highest - lowest + 1) * size : 0, size, at_end);
    m.base = (char *) m.memory.data - (end > first ? lowest : 0) * (ptrdiff_t) size;
    return m;
}

static matrix matrix_of(heed_dtype dtype, layout how, int n_rows, int columns, int first, int end, const double *x, int at_end)
{
    matrix m = matrix_new(dtype, how, n_rows, columns, first, end, at_end);
    for (int i = first; i < end; i++)
        for (int j = 0; j < columns; j++) put(&m, i, j, x[i * columns + j]);
    return m;
}

/* ---- running ---- */

typedef struct run_state {
    case_data *d;
    const heed_kernel *kernel;
    matrix q, k, v, mask, out;
    guarded lse, scratch, parts;
    heed_tile_row *rows;
} run_state;

static heed_dtype mask_dtype(const attention_case *c)
{
    return c->mask == HEED_TILE_MASK_BOOL ? HEED_BOOL : c->mask == HEED_TILE_MASK_F32 ? HEED_F32 : c->dtype;
}

static void fill_rows(run_state *s)
{
    const attention_case *c = &s->d->c;
    for (int r = 0; r < s->d->rows; r++) {
        const int64_t centre = r % c->len_q + c->offset;
        int64_t lo = c->window_left < 0 ? 0 : centre - c->window_left;
        int64_t hi = c->window_right < 0 ? c->key_length : centre + c->window_right + 1;
        if (lo < 0) lo = 0;
        if (hi > c->key_length) hi = c->key_length;
        if (hi < 0) hi = 0;
        if (s->d->intervals) lo = s->d->intervals[r][0], hi = s->d->intervals[r][1];
        s->rows[r] = (heed_tile_row){ .q = element_at(&s->q, r, 0),
                                      .out = element_at(&s->out, r, 0),
                                      .lo = lo,
                                      .hi = hi,
                                      .sink = s->d->sinks[r / c->len_q],
                                      .lse = c->lse ? (float *) s->lse.data + r : NULL };
        if (s->d->mask) s->rows[r].mask = element_at(&s->mask, c->mask_per_row || c->mask_per_head ? r : 0, 0);
    }
}

/* Keys that some row may see: only these exist. */
static void seen_keys(const run_state *s, int *first, int *end)
{
    *first = s->d->c.len_k;
    *end = 0;
    for (int r = 0; r < s->d->rows; r++) {
        if (s->rows[r].lo >= s->rows[r].hi) continue;
        if (s->rows[r].lo < *first) *first = (int) s->rows[r].lo;
        if (s->rows[r].hi > *end) *end = (int) s->rows[r].hi;
    }
    if (*first > *end) *first = *end;
}

static void forbid_keys(const run_state *s)
{
    const size_t *keys = s->d->forbidden_k, size = heed_dtype_size(s->d->c.dtype);
    if (keys[0] == keys[1]) return;
    const size_t k_row = (size_t) s->d->c.head_dim * size, v_row = (size_t) s->d->c.head_dim_v * size;
    assert_true(guarded_forbid(&s->k.memory, keys[0] * k_row, keys[1] * k_row) > 0);
    assert_true(guarded_forbid(&s->v.memory, keys[0] * v_row, keys[1] * v_row) > 0);
}

static run_state run_open(case_data *d, const heed_kernel *kernel, int at_end)
{
    const attention_case *c = &d->c;
    run_state s = { .d = d, .kernel = kernel, .rows = calloc((size_t) d->rows + 1, sizeof(heed_tile_row)) };
    const int mask_rows = c->mask_per_row || c->mask_per_head ? d->rows : 1;
    const layout mask_layout = c->mask_repeats_keys ? LAYOUT_DENSE : c->mask_strided ? LAYOUT_COLUMNS : LAYOUT_PADDED;
    int first, end;
    assert_non_null(s.rows);
    s.q = matrix_of(c->dtype, c->q, d->rows, c->head_dim, 0, d->rows, d->q, at_end);
    s.out = matrix_new(c->dtype, c->out, d->rows, c->head_dim_v, 0, d->rows, at_end);
    s.lse = guarded_new((size_t) d->rows * sizeof(float), sizeof(float), at_end);
    if (d->mask)
        s.mask = matrix_of(mask_dtype(c), mask_layout, mask_rows, c->len_k, 0, c->len_k ? mask_rows : 0, d->mask, at_end);
    fill_rows(&s);
    seen_keys(&s, &first, &end);
    s.k = matrix_of(c->dtype, c->k, c->len_k, c->head_dim, first, end, d->k, at_end);
    s.v = matrix_of(c->dtype, c->v, c->len_k, c->head_dim_v, first, end, d->v, at_end);
    forbid_keys(&s);
    if (kernel) s.scratch = guarded_new(kernel->scratch(c->head_dim, c->head_dim_v), 64, at_end);
    const size_t per_row = (size_t) c->head_dim_v + 2;
    s.parts = guarded_new((size_t) c->parts * (size_t) d->rows * per_row * sizeof(float), sizeof(float), at_end);
    return s;
}

static void run_close(run_state *s)
{
    guarded *const all[] = { &s->q.memory,   &s->k.memory, &s->v.memory, &s->mask.memory,
                             &s->out.memory, &s->lse,      &s->scratch,  &s->parts };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) guarded_free(all[i]);
    free(s->rows);
}

static int run_tile(const run_state *s, const heed_tile *tile)
{
    if (s->kernel) {
        memset(s->scratch.data, 0xff, s->scratch.bytes);
        return s->kernel->run(tile);
    }
    for (int r = 0; r < tile->n_rows; r++) heed_row_exact(tile, s->d->c.dtype, r);
    return 0;
}

/* The keys in pieces, then joined. */
static int run_parts(const run_state *s, heed_tile tile)
{
    const int n = s->d->c.parts, rows = tile.n_rows, width = tile.head_dim_v, keys = s->d->c.len_k;
    float *out = s->parts.data, *sum = out + (ptrdiff_t) n * rows * width, *maximum = sum + n * rows;
    int redone = 0;
    for (int p = 0; p < n; p++) {
        heed_tile part = tile;
        part.key_begin = (int64_t) keys * p / n;
        part.key_end = (int64_t) keys * (p + 1) / n;
        part.part_out = out + (ptrdiff_t) p * rows * width;
        part.part_sum = sum + p * rows;
        part.part_max = maximum + p * rows;
        redone += run_tile(s, &part);
    }
    heed_merge_parts(&tile, s->d->c.dtype, n, out, sum, maximum);
    return redone;
}

static heed_tile tile_of(const run_state *s, int first, int n)
{
    const attention_case *c = &s->d->c;
    return (heed_tile){ .n_rows = n,
                        .rows = s->rows + first,
                        .head_dim = c->head_dim,
                        .head_dim_v = c->head_dim_v,
                        .q_col = s->q.column,
                        .out_col = s->out.column,
                        .k = s->k.base,
                        .v = s->v.base,
                        .k_row = s->k.row,
                        .k_col = s->k.column,
                        .v_row = s->v.row,
                        .v_col = s->v.column,
                        .mask_kind = c->mask,
                        .mask_col = c->mask_repeats_keys ? 0 : s->mask.column,
                        .mask_shared = !c->mask_per_row && !c->mask_per_head,
                        .scale = (float) c->scale,
                        .softcap = (float) c->softcap,
                        .key_begin = 0,
                        .key_end = c->len_k,
                        .scratch = s->scratch.data };
}

/* Read the output back, and see that nothing between its elements was written. */
static void read_output(run_state *s)
{
    const attention_case *c = &s->d->c;
    for (int r = 0; r < s->d->rows; r++) {
        for (int i = 0; i < c->head_dim_v; i++) {
            s->d->got[r * c->head_dim_v + i] = get(&s->out, r, i);
            memset(element_at(&s->out, r, i), 0xff, heed_dtype_size(c->dtype));
        }
        s->d->got_lse[r] = (double) ((const float *) s->lse.data)[r];
    }
    const unsigned char *bytes = s->out.memory.data;
    for (size_t i = 0; i < s->out.memory.bytes; i++) assert_int_equal(bytes[i], 0xff);
}

void case_run(case_data *d, const heed_kernel *kernel, int at_end)
{
    run_state s = run_open(d, kernel, at_end);
    const int most = d->c.tile_rows ? d->c.tile_rows : kernel ? kernel->rows : 8;
    const int step = kernel && most > kernel->rows ? kernel->rows : most;
    d->redone = 0;
    for (int first = 0; first < d->rows; first += step) {
        heed_tile tile = tile_of(&s, first, d->rows - first < step ? d->rows - first : step);
        d->redone += d->c.parts ? run_parts(&s, tile) : run_tile(&s, &tile);
    }
    read_output(&s);
    run_close(&s);
}

/* ---- comparing ---- */

static double error_of(double got, double want)
{
    if (isnan(want) || isinf(want)) return (isnan(want) && isnan(got)) || got == want ? 0 : INFINITY;
    return isnan(got) ? INFINITY : fabs(got - want);
}

/* 1e-5 for f32; two units in the last place of the largest visible value for halves, here of all values. */
static double bound_of(const case_data *d)
{
    double largest = 0;
    if (d->c.dtype == HEED_F32) return 1e-5;
    for (int i = 0; i < d->c.len_k * d->c.head_dim_v; i++)
        if (isfinite(d->v[i]) && fabs(d->v[i]) > largest) largest = fabs(d->v[i]);
    return 2 * ulp_of(d->c.dtype, largest);
}

double case_check(const case_data *d, const heed_kernel *kernel)
{
    const attention_case *c = &d->c;
    const double bound = bound_of(d);
    const char *name = kernel ? kernel->name : "row_exact";
    double worst = 0;
    for (int r = 0; r < d->rows; r++) {
        for (int i = 0; i < c->head_dim_v; i++) {
            const double got = d->got[r * c->head_dim_v + i], want = d->want[r * c->head_dim_v + i], e = error_of(got, want);
            if (e > worst) worst = e;
            if (!(e <= bound))
                fail_msg("%s: row %d of %d, column %d of %d: %.9g, expected %.9g, bound %.3g (head_dim %d, len_k %d)", name, r,
                         d->rows, i, c->head_dim_v, got, want, bound, c->head_dim, c->len_k);
        }
        const double got = d->got_lse[r], want = c->lse ? d->want_lse[r] : NAN; /* untouched: NaN */
        if (!(error_of(got, want) <= 1e-5 + (isfinite(want) ? 1e-6 * fabs(want) : 0)) && !(isnan(want) && isnan(got)))
            fail_msg("%s: log-sum-exp of row %d of %d: %.9g, expected %.9g", name, r, d->rows, got, want);
    }
    return worst;
}
