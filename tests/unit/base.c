/* Half types, sizes, tensors, arena. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/half.h"
#include "base/tensor.h"
#include "unit/test.h"

static void test_f16_round_trip(void **state)
{
    (void) state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        float x = heed_f32_from_f16((uint16_t) h);
        if (isnan(x)) {
            assert_true(isnan(heed_f32_from_f16(heed_f16_from_f32(x))));
            continue;
        }
        assert_int_equal(heed_f16_from_f32(x), h);
        float next = heed_f32_from_f16((uint16_t) (h + 1));
        if ((h & 0x7fff) >= 0x7bff || isinf(next)) continue;
        float middle = (x + next) / 2; /* a tie goes to the even one */
        assert_int_equal(heed_f16_from_f32(middle), h & 1 ? h + 1 : h);
    }
    assert_int_equal(heed_f16_from_f32(65519.9f), 0x7bff);
    assert_int_equal(heed_f16_from_f32(65520.0f), 0x7c00);
    assert_int_equal(heed_f16_from_f32(-1e30f), 0xfc00);
    assert_int_equal(heed_f16_from_f32(0x1p-25f), 0);
}

static void test_bf16_round_trip(void **state)
{
    (void) state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        float x = heed_f32_from_bf16((uint16_t) h);
        uint16_t back = heed_bf16_from_f32(x);
        if (isnan(x)) assert_true(isnan(heed_f32_from_bf16(back)));
        else assert_int_equal(back, h);
    }
    assert_int_equal(heed_bf16_from_f32(heed_f32_of_bits(0x3f808000)), 0x3f80);
    assert_int_equal(heed_bf16_from_f32(heed_f32_of_bits(0x3f818000)), 0x3f82);
}

static void test_sizes_saturate(void **state)
{
    (void) state;
    assert_true(heed_size_mul(SIZE_MAX / 2, 3) == SIZE_MAX);
    assert_true(heed_size_add(SIZE_MAX, 1) == SIZE_MAX);
    int64_t huge[3] = { INT64_MAX / 2, 4, 4 }, empty[3] = { INT64_MAX / 2, 0, 4 };
    heed_tensor t = { .dtype = HEED_F32, .rank = 3 };
    memcpy(t.dims, huge, sizeof huge);
    assert_true(heed_tensor_bytes(&t) == SIZE_MAX);
    memcpy(t.dims, empty, sizeof empty);
    assert_true(heed_tensor_bytes(&t) == 0);
}

static void test_copy_permutes(void **state)
{
    (void) state;
    int64_t dims[4] = { 2, 3, 4, 5 };
    uint16_t from[120], to[120];
    for (int i = 0; i < 120; i++) from[i] = (uint16_t) (i * 7);
    heed_tensor src = heed_tensor_make(HEED_F16, 4, dims);
    src.data = from;
    int order[4] = { 2, 0, 3, 1 };
    heed_tensor view = { .dtype = HEED_F16, .rank = 4, .data = from };
    for (int i = 0; i < 4; i++) view.dims[i] = dims[order[i]], view.strides[i] = src.strides[order[i]];
    heed_tensor dst = heed_tensor_make(HEED_F16, 4, view.dims);
    dst.data = to;
    heed_tensor_copy(&dst, &view);
    int n = 0;
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < 2; b++)
            for (int c = 0; c < 5; c++)
                for (int d = 0; d < 3; d++) assert_int_equal(to[n++], from[((b * 3 + d) * 4 + a) * 5 + c]);
    assert_true(heed_tensor_is_dense(&dst));
    assert_false(heed_tensor_is_dense(&view));
}

static void test_dl_is_checked(void **state)
{
    (void) state;
    float data[8];
    int64_t shape[2] = { 2, 4 };
    DLTensor dl = { .data = data, .device = { kDLCPU, 0 }, .ndim = 2, .dtype = { kDLFloat, 32, 1 }, .shape = shape };
    heed_tensor t;
    assert_int_equal(heed_tensor_from_dl(&t, &dl, "q"), HEED_OK);
    shape[1] = -4;
    assert_int_equal(heed_tensor_from_dl(&t, &dl, "q"), HEED_ERR_ARGUMENT);
    assert_string_equal(heed_last_message(), "q: dimension 1 is -4, expected 0 or more");
    shape[1] = 4, dl.byte_offset = 2;
    assert_int_equal(heed_tensor_from_dl(&t, &dl, "q"), HEED_ERR_ARGUMENT);
    assert_non_null(strstr(heed_last_message(), "aligned"));
}

static void test_arena_and_text(void **state)
{
    (void) state;
    heed_context *ctx;
    assert_int_equal(heed_context_create(&ctx, NULL), HEED_OK);
    heed_arena *arena = heed_arena_create(ctx);
    for (size_t n = 1; n < 300000; n = n * 3 + 1) {
        unsigned char *p = heed_arena_alloc(arena, n);
        assert_non_null(p);
        assert_int_equal((uintptr_t) p % 16, 0);
        for (size_t i = 0; i < n; i++) assert_int_equal(p[i], 0);
        memset(p, 0xff, n);
    }
    assert_string_equal(heed_arena_printf(arena, "%d-%s", 7, "x"), "7-x");
    assert_null(heed_arena_alloc(arena, SIZE_MAX - 3));
    heed_text text = { .ctx = ctx };
    for (int i = 0; i < 1000; i++) heed_text_add(&text, "%d,", i);
    assert_false(text.failed);
    assert_int_equal(text.size, 10 * 2 + 90 * 3 + 900 * 4);
    heed_text_free(&text);
    heed_arena_destroy(arena);
    heed_context_destroy(ctx);
}

/* ---- threads ---- */

struct counted {
    heed_context *ctx;
    _Atomic int seen[1000];
    _Atomic int bad_worker;
};

static void count_task(void *arg, int64_t task, int worker)
{
    struct counted *c = arg;
    atomic_fetch_add(&c->seen[task], 1);
    if (worker < 0 || worker >= heed_context_threads(c->ctx)) atomic_store(&c->bad_worker, 1);
}

static void nested_task(void *arg, int64_t task, int worker)
{
    (void) task, (void) worker;
    heed_parallel_for(((struct counted *) arg)->ctx, count_task, arg, 10);
}

static void *second_caller(void *arg)
{
    for (int i = 0; i < 200; i++) heed_parallel_for(((struct counted *) arg)->ctx, count_task, arg, 1000);
    return NULL;
}

static void test_each_task_runs_once(void **state)
{
    (void) state;
    for (int n = 1; n <= 5; n++) {
        static struct counted c;
        memset(&c, 0, sizeof c);
        heed_context_desc desc;
        heed_context_desc_init(&desc);
        desc.n_threads = n;
        assert_int_equal(heed_context_create(&c.ctx, &desc), HEED_OK);
        pthread_t other;
        assert_int_equal(pthread_create(&other, NULL, second_caller, &c), 0); /* two callers of one context */
        second_caller(&c);
        pthread_join(other, NULL);
        for (int t = 0; t < 1000; t++) assert_int_equal(c.seen[t], 400);
        heed_parallel_for(c.ctx, nested_task, &c, 7);
        for (int t = 0; t < 1000; t++) assert_int_equal(c.seen[t], t < 10 ? 407 : 400);
        assert_int_equal(c.bad_worker, 0);
        heed_context_destroy(c.ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f16_round_trip),      cmocka_unit_test(test_bf16_round_trip), cmocka_unit_test(test_sizes_saturate),
        cmocka_unit_test(test_copy_permutes),       cmocka_unit_test(test_dl_is_checked),   cmocka_unit_test(test_arena_and_text),
        cmocka_unit_test(test_each_task_runs_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
