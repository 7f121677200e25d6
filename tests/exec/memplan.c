/* The memory plan: live blocks never overlap, and memory is used again. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "exec/memplan.h"
#include "unit/test.h"

static unsigned seed;

static heed_context *context(void)
{
    heed_context *ctx;
    assert_int_equal(heed_context_create(&ctx, NULL), HEED_OK);
    return ctx;
}

static void test_random_plans_hold(void **state)
{
    (void) state;
    heed_context *ctx = context();
    for (int round = 0; round < 300; round++) {
        heed_mem_block blocks[64];
        int n = rand() % 64;
        size_t sum = 0, bytes;
        for (int i = 0; i < n; i++) {
            int first = rand() % 30, last = rand() % 8 ? first + rand() % 6 : HEED_MEM_FOREVER;
            blocks[i] = (heed_mem_block){ .bytes = rand() % 5 ? (size_t) (rand() % 10000) : 0, .first = first, .last = last };
            sum += (blocks[i].bytes + 63) / 64 * 64;
        }
        assert_int_equal(heed_memplan(ctx, blocks, n, &bytes), HEED_OK);
        assert_true(heed_memplan_check(blocks, n, bytes));
        assert_true(bytes <= sum);
    }
    heed_context_destroy(ctx);
}

/* x -> a -> b -> ...: two buffers do for any length. */
static void test_chain_takes_two(void **state)
{
    (void) state;
    heed_context *ctx = context();
    heed_mem_block blocks[50];
    for (int i = 0; i < 50; i++) blocks[i] = (heed_mem_block){ .bytes = 1024, .first = i, .last = i + 1 };
    size_t bytes;
    assert_int_equal(heed_memplan(ctx, blocks, 50, &bytes), HEED_OK);
    assert_int_equal(bytes, 2048);
    heed_context_destroy(ctx);
}

static void test_check_finds_faults(void **state)
{
    (void) state;
    heed_mem_block together[2] = { { 100, 0, 2, 0 }, { 100, 2, 3, 64 } };
    assert_false(heed_memplan_check(together, 2, 1024));
    assert_string_equal(heed_last_message(), "memory plan: blocks 0 and 1 overlap");
    together[1].first = 3;
    assert_true(heed_memplan_check(together, 2, 1024));
    assert_false(heed_memplan_check(together, 2, 128));
    together[1].offset = 100;
    assert_false(heed_memplan_check(together, 2, 1024));
}

static void test_huge_sizes_fail(void **state)
{
    (void) state;
    heed_context *ctx = context();
    heed_mem_block blocks[3] = { { SIZE_MAX - 10, 0, 5, 0 }, { SIZE_MAX / 2, 1, 2, 0 }, { SIZE_MAX / 2, 1, 3, 0 } };
    size_t bytes;
    assert_int_equal(heed_memplan(ctx, blocks, 3, &bytes), HEED_ERR_MEMORY);
    heed_context_destroy(ctx);
}

int main(void)
{
    seed = (unsigned) time(NULL);
    printf("seed %u\n", seed);
    srand(seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_plans_hold),
        cmocka_unit_test(test_chain_takes_two),
        cmocka_unit_test(test_check_finds_faults),
        cmocka_unit_test(test_huge_sizes_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
