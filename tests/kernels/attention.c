/* Every attention kernel that this CPU runs, against the double reference: each feature alone and with each other, all
 * dimensions and lengths around the sizes of tiles, memory without a byte to spare, and the values that break softmax. */
#include "../unit/test.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "case.h"

static const heed_dtype dtypes[] = { HEED_F32, HEED_F16, HEED_BF16 };
enum { N_DTYPES = 3 };

static double worst[HEED_DTYPE_COUNT];

static void run_and_check(case_data *d, const heed_kernel *kernel, int at_end)
{
    case_run(d, kernel, at_end);
    const double e = case_check(d, kernel);
    if (e > worst[d->c.dtype]) worst[d->c.dtype] = e;
}

/* All kernels of the case's type, and the exact row. */
static void check_all(case_data *d, int both_ends)
{
    case_reference(d);
    for (int i = -1; i < heed_n_kernels; i++) {
        const heed_kernel *kernel = i < 0 ? NULL : &heed_kernels[i];
        if (kernel && (kernel->dtype != d->c.dtype || !runs_here(kernel))) continue;
        run_and_check(d, kernel, 1);
        if (both_ends) run_and_check(d, kernel, 0);
    }
}

static void check_case(const attention_case *c)
{
    case_data d = case_fill(c);
    check_all(&d, 1);
    case_free(&d);
}

/* ---- features ---- */

typedef void feature(attention_case *c);

static void plain(attention_case *c)
{
    (void) c;
}
static void softcap(attention_case *c)
{
    c->softcap = 1.5;
}
static void causal(attention_case *c)
{
    c->window_right = 0;
    c->offset = 137;
}
static void causal_from_top(attention_case *c)
{
    c->window_right = 0;
    c->offset = -5;
}
static void window(attention_case *c)
{
    c->window_left = 20;
    c->window_right = 3;
    c->offset = 60;
}
static void key_length(attention_case *c)
{
    c->key_length = 71;
}
static void bool_mask(attention_case *c)
{
    c->mask = HEED_TILE_MASK_BOOL;
    c->mask_per_row = c->mask_per_head = 1;
    c->mask_hides = 0.5;
}
static void padding_mask(attention_case *c)
{
    c->mask = HEED_TILE_MASK_BOOL;
    c->mask_hides = 0.9;
}
static void f32_mask(attention_case *c)
{
    c->mask = HEED_TILE_MASK_F32;
    c->mask_per_row = 1;
    c->mask_hides = 0.3;
}
static void type_mask(attention_case *c)
{
    c->mask = HEED_TILE_MASK_TYPE;
    c->mask_per_row = c->mask_per_head = 1;
    c->mask_hides = 0.1;
}
static void shared_type_mask(attention_case *c)
{
    c->mask = HEED_TILE_MASK_TYPE;
    c->mask_hides = 0.4;
}
static void mask_of_rows(attention_case *c)
{
    c->mask = HEED_TILE_MASK_BOOL;
    c->mask_per_row = c->mask_repeats_keys = 1;
    c->mask_hides = 0.5;
}
static void mask_strided(attention_case *c)
{
    if (c->mask == HEED_TILE_MASK_NONE) f32_mask(c);
    c->mask_strided = 1;
}
static void sinks(attention_case *c)
{
    c->sinks = 1;
}
static void lse(attention_case *c)
{
    c->lse = 1;
}
static void parts(attention_case *c)
{
    c->parts = 3;
}
static void peaked(attention_case *c)
{
    c->spread = 6;
}
static void wide_values(attention_case *c)
{
    c->head_dim_v = 41;
}
static void strided(attention_case *c)
{
    c->q = c->k = c->v = c->out = LAYOUT_COLUMNS;
}
static void transposed(attention_case *c)
{
    c->q = c->k = c->v = c->out = LAYOUT_TRANSPOSED;
}
static void padded_rows(attention_case *c)
{
    c->q = c->k = c->v = c->out = LAYOUT_PADDED;
}
static void reversed_rows(attention_case *c)
{
    c->q = c->k = c->v = c->out = LAYOUT_REVERSED;
}
static void repeated_keys(attention_case *c)
{
    c->k = LAYOUT_REPEATED;
}
static void repeated_values(attention_case *c)
{
    c->v = LAYOUT_REPEATED;
}
static void many_rows(attention_case *c)
{
    c->group = 3;
    c->len_q = 37;
}
static void one_row(attention_case *c)
{
    c->group = c->len_q = 1;
}

static feature *const features[] = {
    plain,        softcap,  causal,           causal_from_top, window,       key_length, bool_mask,
    padding_mask, f32_mask, shared_type_mask, mask_of_rows,    mask_strided, sinks,      lse,
    type_mask,    parts,    peaked,           wide_values,     strided,      transposed, padded_rows,
    many_rows,    one_row,  repeated_keys,    repeated_values, reversed_rows
};
enum { N_FEATURES = sizeof features / sizeof features[0] };

static void test_features_in_pairs(void **state)
{
    (void) state;
    for (int t = 0; t < N_DTYPES; t++)
        for (int i = 0; i < N_FEATURES; i++)
            for (int j = i; j < N_FEATURES; j++) {
                attention_case c = case_default(dtypes[t]);
                features[i](&c);
                features[j](&c);
                case_data d = case_fill(&c);
                check_all(&d, 0);
                case_free(&d);
            }
}

/* ---- sizes ---- */

static void test_head_dimensions(void **state)
{
    (void) state;
    static const int dims[] = { 1, 8, 16, 20, 32, 40, 48, 64, 72, 80, 96, 112, 128, 160, 192, 256, 512, 1024 };
    const int n = sizeof dims / sizeof dims[0];
    for (int t = 0; t < N_DTYPES; t++)
        for (int i = 0; i < n; i++) {
            attention_case c = case_default(dtypes[t]);
            c.len_q = 9;
            c.len_k = c.key_length = 67;
            c.head_dim = dims[i];
            c.head_dim_v = i % 2 ? dims[i] : dims[random_below(n)];
            c.scale = 1 / sqrt(dims[i]);
            check_case(&c);
        }
}

static void test_lengths(void **state)
{
    (void) state;
    static const int len_q[] = {
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 23, 24, 25, 31, 33, 47, 48, 49, 63, 64, 95, 96, 97, 130
    };
    static const int len_k[] = { 0, 1, 7, 8, 9, 31, 63, 64, 65, 127, 128, 129, 257, 1000 };
    const int n_q = sizeof len_q / sizeof len_q[0], n_k = sizeof len_k / sizeof len_k[0];
    for (int t = 0; t < N_DTYPES; t++)
        for (int i = 0; i < n_q + n_k; i++) {
            attention_case c = case_default(dtypes[t]);
            c.group = 1;
            c.lse = 1;
            c.len_q = i < n_q ? len_q[i] : 5;
            c.len_k = c.key_length = i < n_q ? 40 : len_k[i - n_q];
            c.head_dim = c.head_dim_v = 17;
            check_case(&c);
        }
}

static void test_long_causal(void **state)
{
    (void) state;
    for (int t = 0; t < N_DTYPES; t++) {
        attention_case c = case_default(dtypes[t]);
        causal(&c);
        c.group = 1;
        c.len_q = 300;
        c.len_k = c.key_length = 300 + random_below(50);
        c.offset = c.len_k - c.len_q;
        c.head_dim = c.head_dim_v = 32;
        check_case(&c);
    }
}

/* Tiles of fewer rows than the kernel takes, as callers cut them. */
static void test_small_tiles(void **state)
{
    (void) state;
    for (int rows = 1; rows <= 33; rows += 4) {
        attention_case c = case_default(HEED_F32);
        window(&c);
        c.tile_rows = rows;
        check_case(&c);
    }
}

/* ---- values ---- */

static void test_no_visible_key(void **state)
{
    (void) state;
    for (int t = 0; t < N_DTYPES; t++)
        for (int how = 0; how < 4; how++) {
            attention_case c = case_default(dtypes[t]);
            c.lse = 1;
            c.sinks = how & 1;
            if (how & 2) {
                bool_mask(&c);
                c.mask_hides = 1;
            } else {
                c.key_length = 0;
            }
            case_data d = case_fill(&c);
            check_all(&d, 1);
            for (int i = 0; i < d.rows * c.head_dim_v; i++) assert_true(d.got[i] == 0);
            assert_true(d.got_lse[0] == -INFINITY);
            case_free(&d);
        }
}

/* One key, whatever its score, is the answer. */
static void test_single_low_score(void **state)
{
    (void) state;
    static const double scores[] = { -500000, 500000, -1e30, 0 };
    for (int t = 0; t < N_DTYPES; t++)
        for (size_t s = 0; s < sizeof scores / sizeof scores[0]; s++) {
            attention_case c = case_default(dtypes[t]);
            c.len_k = c.key_length = 1;
            c.scale = scores[s];
            c.spread = 0;
            case_data d = case_fill(&c);
            for (int r = 0; r < d.rows; r++) d.q[r * c.head_dim] = 1;
            d.k[0] = 1;
            check_all(&d, 1);
            for (int i = 0; i < d.rows * c.head_dim_v; i++) assert_true(d.got[i] == d.v[i % c.head_dim_v]);
            case_free(&d);
        }
}

/* What one row may see is hidden from its neighbour, and must not reach it. */
static void poison(case_data *d, int key)
{
    const double values[] = { NAN, INFINITY, -INFINITY };
    const attention_case *c = &d->c;
    d->k[key * c->head_dim + random_below(c->head_dim)] = values[random_below(3)];
    for (int i = 0; i < c->head_dim_v; i++) d->v[key * c->head_dim_v + i] = values[random_below(3)];
}

static void test_hidden_poison(void **state)
{
    (void) state;
    static feature *const hiding[] = { causal, window, bool_mask, f32_mask, type_mask, parts };
    for (int t = 0; t < N_DTYPES; t++)
        for (int i = 0; i < 5; i++)
            for (int j = i; j < 6; j++) {
                attention_case c = case_default(dtypes[t]);
                c.lse = 1;
                hiding[i](&c);
                hiding[j](&c);
                case_data d = case_fill(&c);
                const int first = c.window_left >= 0 ? 45 : 138;
                poison(&d, first + random_below(10));
                check_all(&d, 0);
                case_free(&d);
            }
}

/* The last key is NaN and only the last row sees it: every other row of its tile was touched, is redone and finite. */
static void test_redone_rows_are_counted(void **state)
{
    (void) state;
    for (int k = 0; k < heed_n_kernels; k++) {
        const heed_kernel *kernel = &heed_kernels[k];
        if (!runs_here(kernel)) continue;
        attention_case c = case_default(kernel->dtype);
        c.group = 1;
        c.len_q = kernel->rows < 5 ? kernel->rows : 5;
        c.len_k = c.key_length = 32;
        c.window_right = 0;
        c.offset = c.len_k - c.len_q;
        case_data d = case_fill(&c);
        case_reference(&d);
        case_run(&d, kernel, 1);
        case_check(&d, kernel);
        assert_int_equal(d.redone, 0);
        for (int i = 0; i < c.head_dim_v; i++) d.v[(c.len_k - 1) * c.head_dim_v + i] = NAN;
        case_reference(&d);
        case_run(&d, kernel, 1);
        case_check(&d, kernel);
        assert_int_equal(d.redone, c.len_q - 1);
        case_free(&d);
    }
}

/* Finite masks are numbers: the least of the type in a whole row hides nothing. */
static void test_mask_of_least_numbers(void **state)
{
    (void) state;
    static const double least[] = { -FLT_MAX, -65504, -0x1.fep127 };
    for (int t = 0; t < N_DTYPES; t++)
        for (int shared = 0; shared < 2; shared++) {
            attention_case c = case_default(dtypes[t]);
            c.mask = HEED_TILE_MASK_TYPE;
            c.mask_per_row = c.mask_per_head = !shared;
            case_data d = case_fill(&c);
            for (int i = 0; i < d.rows * c.len_k; i++) d.mask[i] = least[t];
            /* Scores that survive the sum with -65504 in f32 as they are. */
            for (int i = 0; i < d.rows * c.head_dim; i++) d.q[i] = i % c.head_dim ? 0 : 1;
            for (int i = 0; i < c.len_k * c.head_dim; i++) d.k[i] = i % 5;
            d.c.scale = 0.25;
            check_all(&d, 0);
            case_free(&d);
        }
}

static void test_nan_in_visible_mask(void **state)
{
    (void) state;
    attention_case c = case_default(HEED_F32);
    f32_mask(&c);
    case_data d = case_fill(&c);
    for (int g = 0; g < c.group; g++) d.mask[(g * c.len_q + 3) * c.len_k + 7] = NAN;
    check_all(&d, 0);
    assert_true(isnan(d.got[3 * c.head_dim_v]));
    assert_true(isfinite(d.got[4 * c.head_dim_v]));
    case_free(&d);
}

/* Between the keys that rows see there may be keys that none sees: their pages cannot be read. */
static void test_gap_between_intervals(void **state)
{
    (void) state;
    enum { KEYS = 3000 };
    for (int t = 0; t < N_DTYPES; t++) {
        attention_case c = case_default(dtypes[t]);
        c.len_k = c.key_length = KEYS;
        int64_t intervals[26][2];
        for (int r = 0; r < 26; r++) {
            intervals[r][0] = r % 2 ? KEYS - 40 - r : r;
            intervals[r][1] = r % 2 ? KEYS - r % 3 : 30 + r;
            if (r == 8) intervals[r][0] = 90, intervals[r][1] = 20;
        }
        case_data d = case_fill(&c);
        d.intervals = (const int64_t(*)[2]) intervals;
        d.forbidden_k[0] = 60;
        d.forbidden_k[1] = KEYS - 70;
        check_all(&d, 1);
        case_free(&d);
    }
}

static int report(void **state)
{
    (void) state;
    for (int t = 0; t < N_DTYPES; t++) printf("worst error, %s: %.3g\n", heed_dtype_name(dtypes[t]), worst[dtypes[t]]);
    return 0;
}

int main(void)
{
    random_start();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_features_in_pairs),
        cmocka_unit_test(test_head_dimensions),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_long_causal),
        cmocka_unit_test(test_small_tiles),
        cmocka_unit_test(test_no_visible_key),
        cmocka_unit_test(test_single_low_score),
        cmocka_unit_test(test_hidden_poison),
        cmocka_unit_test(test_redone_rows_are_counted),
        cmocka_unit_test(test_mask_of_least_numbers),
        cmocka_unit_test(test_nan_in_visible_mask),
        cmocka_unit_test(test_gap_between_intervals),
    };
    return cmocka_run_group_tests(tests, NULL, report);
}
