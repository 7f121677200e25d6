/* Every feature alone and in pairs, and lengths round tile edges, on every kernel that runs here, against the reference. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "case.h"
#include "unit/test.h"

static const heed_dtype types[] = { HEED_F32, HEED_F16, HEED_BF16 };

static void bool_mask(spec *s)
{
    s->mask = HEED_MASK_BOOL;
}
static void f32_mask(spec *s)
{
    s->mask = HEED_MASK_F32;
}
static void typed_mask(spec *s)
{
    s->mask = HEED_MASK_TYPE_Q;
}
static void any_mask(spec *s)
{
    if (s->mask == HEED_MASK_NONE) s->mask = (heed_mask_kind) (1 + rng_below(3));
}
static void batch_mask(spec *s) /* [batch, 1, 1, len_k]: padding */
{
    any_mask(s), s->mask_repeat = 6;
}
static void head_mask(spec *s) /* [1, heads_q, len_q, len_k]: position bias */
{
    any_mask(s), s->mask_repeat = 1;
}
static void row_mask(spec *s) /* [batch, heads_q, len_q, 1] */
{
    any_mask(s), s->mask_repeat = 8;
}
static void low_rank_mask(spec *s)
{
    any_mask(s), s->mask_rank = (int) rng_below(4);
}
static void causal_top_left(spec *s)
{
    s->window_right = 0, s->offset_mode = HEED_OFFSET_TOP_LEFT;
}
static void causal_bottom_right(spec *s)
{
    s->window_right = 0, s->offset_mode = HEED_OFFSET_BOTTOM_RIGHT;
}
static void causal_value(spec *s)
{
    s->window_right = 0, s->offset_mode = HEED_OFFSET_VALUE, s->offset = rng_below(2 * s->len_k + 3) - s->len_k - 1;
}
static void causal_per_batch(spec *s)
{
    s->window_right = 0, s->offset_mode = HEED_OFFSET_PER_BATCH;
}
static void window_left(spec *s)
{
    s->window_left = rng_below(s->len_k + 2);
}
static void window_right(spec *s)
{
    s->window_right = rng_below(s->len_k + 2);
}
static void extreme_window(spec *s) /* everything, by numbers that overflow carelessly */
{
    s->window_left = s->window_right = INT64_MAX;
    s->offset_mode = HEED_OFFSET_VALUE, s->offset = rng() & 1 ? INT64_MAX : 7;
}
static void softcap(spec *s)
{
    s->softcap = 1.5f;
}
static void own_scale(spec *s)
{
    s->scale = (float[]){ 0.37f, -0.2f, 0 }[rng_below(3)];
}
static void sinks(spec *s)
{
    s->sinks = 1;
}
static void key_lengths(spec *s)
{
    s->key_lengths = 1;
}
static void lse(spec *s)
{
    s->lse = 1;
}
static void grouped(spec *s)
{
    s->heads_kv = 2, s->heads_q = 6;
}
static void one_kv_head(spec *s)
{
    s->heads_kv = 1, s->heads_q = 5;
}
static void other_value_dim(spec *s)
{
    s->head_dim_v = 1 + rng_below(70);
}
static void blhd(spec *s)
{
    s->order = LAYOUT_BLHD;
}
static void transposed(spec *s)
{
    s->order = LAYOUT_BHDL;
}
static void padded(spec *s)
{
    s->order = LAYOUT_PADDED;
}
static void repeated(spec *s) /* one K and V for the batch, the heads, the keys */
{
    s->kv_repeat = 1u << rng_below(3);
}
static void poisoned(spec *s)
{
    s->poison = 1;
}
static void peaked(spec *s)
{
    s->spread = 4;
}

typedef void feature(spec *s);
static feature *const features[] = { bool_mask,
                                     f32_mask,
                                     typed_mask,
                                     batch_mask,
                                     head_mask,
                                     row_mask,
                                     low_rank_mask,
                                     causal_value,
                                     causal_bottom_right,
                                     softcap,
                                     causal_per_batch,
                                     window_left,
                                     window_right,
                                     extreme_window,
                                     causal_top_left,
                                     own_scale,
                                     sinks,
                                     key_lengths,
                                     lse,
                                     grouped,
                                     one_kv_head,
                                     blhd,
                                     transposed,
                                     padded,
                                     other_value_dim,
                                     repeated,
                                     poisoned,
                                     peaked };
enum { N_FEATURES = sizeof features / sizeof *features };

static heed_context *context;

static int start(void **state)
{
    (void) state;
    rng_start();
    heed_context_desc d; /* thread counts are the business of threads.c */
    heed_context_desc_init(&d);
    d.n_threads = 1;
    return heed_context_create(&context, &d) != HEED_OK;
}

static int stop(void **state)
{
    (void) state;
    heed_context_destroy(context);
    return 0;
}

/* One sample on every kernel of its type. */
static void run_everywhere(const spec *s)
{
    sample c;
    sample_make(&c, s);
    const char *kernel;
    for (int i = 0; (kernel = kernel_for(s->dtype, i)); i++) sample_run(&c, context, kernel, NULL);
    sample_free(&c);
}

static void test_features(void **state)
{
    (void) state;
    for (int t = 0; t < 3; t++) {
        for (int i = 0; i < N_FEATURES; i++) {
            for (int j = i; j < N_FEATURES; j++) {
                spec s = spec_random(types[t]);
                features[i](&s), features[j](&s);
                run_everywhere(&s);
            }
        }
    }
}

/* All at once, in any mix. */
static void test_mixes(void **state)
{
    (void) state;
    for (int n = 0; n < 300; n++) {
        spec s = spec_random(types[n % 3]);
        for (int i = 0; i < N_FEATURES; i++)
            if (rng_below(4) == 0) features[i](&s);
        run_everywhere(&s);
    }
}

static void test_lengths(void **state)
{
    (void) state;
    static const int64_t queries[] = { 0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 97 };
    static const int64_t keys[] = { 0, 1, 7, 15, 16, 17, 63, 64, 65, 127, 128, 129, 255, 256, 257 };
    for (int t = 0; t < 3; t++) {
        for (size_t i = 0; i < sizeof queries / sizeof *queries; i++) {
            for (size_t j = 0; j < sizeof keys / sizeof *keys; j++) {
                spec s = spec_random(types[t]);
                s.batch = 1, s.heads_q = s.heads_kv = 1, s.head_dim = s.head_dim_v = 8;
                s.len_q = queries[i], s.len_k = keys[j], s.lse = 1;
                if ((i + j) % 2) s.window_right = 0;
                run_everywhere(&s);
            }
        }
    }
}

/* Long enough that keys are split, with and without a group of heads; also no batch. */
static void test_long(void **state)
{
    (void) state;
    for (int t = 0; t < 3; t++) {
        for (int n = 0; n < 6; n++) {
            spec s = spec_random(types[t]);
            s.batch = n % 3, s.heads_kv = 1, s.heads_q = n < 3 ? 1 : 4, s.head_dim = s.head_dim_v = 16;
            s.len_q = n % 2 ? 1 : 3, s.len_k = 2500 + rng_below(100), s.lse = 1, s.sinks = n % 2, s.key_lengths = n == 2;
            run_everywhere(&s);
        }
    }
}

/* Softmax in f32 has no finite stand-in for -inf: one key with a hopeless score still has all the weight. */
static void test_single_low_key(void **state)
{
    (void) state;
    spec s = spec_random(HEED_F32);
    s.len_q = s.len_k = 1, s.mask = HEED_MASK_F32;
    sample c;
    sample_make(&c, &s);
    const char *kernel;
    for (int64_t b = 0; b < s.batch; b++)
        for (int64_t h = 0; h < s.heads_q; h++) array_set(&c.mask, b, h, 0, 0, -500000);
    for (int i = 0; (kernel = kernel_for(HEED_F32, i)); i++) {
        for (int64_t n = 0, at = 0; n < s.batch * s.heads_q; n++)
            for (int64_t d = 0; d < s.head_dim_v; d++) c.ref_out[at++] = array_get(&c.v, n / s.heads_q, n % s.heads_q, 0, d);
        sample_run(&c, context, kernel, NULL);
    }
    sample_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_features), cmocka_unit_test(test_mixes),
                                        cmocka_unit_test(test_lengths), cmocka_unit_test(test_long),
                                        cmocka_unit_test(test_single_low_key) };
    return cmocka_run_group_tests(tests, start, stop);
}
