/* Symbolic dimensions: what must be proven equal, what must not, and how it reads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "graph/dims.h"
#include "unit/test.h"

static heed_context *ctx;
static heed_arena *arena;
static heed_dims *dims;
static int64_t B, S, P, H;

static int setup(void **state)
{
    (void) state;
    if (heed_context_create(&ctx, NULL)) return -1;
    arena = heed_arena_create(ctx);
    dims = heed_dims_create(arena);
    B = heed_dims_named(dims, "batch"), S = heed_dims_named(dims, "S"), P = heed_dims_named(dims, "past");
    H = heed_dims_named(dims, "height");
    return 0;
}

static int teardown(void **state)
{
    (void) state;
    heed_arena_destroy(arena);
    heed_context_destroy(ctx);
    return 0;
}

#define ADD(a, b) heed_dims_add(dims, a, b)
#define SUB(a, b) heed_dims_sub(dims, a, b)
#define MUL(a, b) heed_dims_mul(dims, a, b)
#define DIV(a, b) heed_dims_div(dims, a, b)
#define MIN(a, b) heed_dims_min(dims, a, b)
#define MAX(a, b) heed_dims_max(dims, a, b)
#define assert_reads(dim, words)                                                                                                 \
    do {                                                                                                                         \
        heed_text text_ = { .ctx = ctx };                                                                                        \
        heed_dims_print(dims, dim, &text_);                                                                                      \
        assert_string_equal(text_.data, words);                                                                                  \
        heed_text_free(&text_);                                                                                                  \
    } while (0)

static void test_names_and_unknowns(void **state)
{
    (void) state;
    assert_true(B < 0 && S < 0 && B != S);
    assert_int_equal(heed_dims_named(dims, "batch"), B);
    assert_string_equal(heed_dims_name(dims, B), "batch");
    assert_null(heed_dims_name(dims, ADD(B, 1)));
    assert_null(heed_dims_name(dims, 7));
    int64_t x = heed_dims_fresh(dims), y = heed_dims_fresh(dims);
    assert_int_not_equal(x, y);
    assert_int_not_equal(ADD(x, 1), ADD(y, 1));
    assert_true(heed_dims_valid(dims, x) && heed_dims_valid(dims, 0));
    assert_false(heed_dims_valid(dims, HEED_DIM_UNKNOWN));
    assert_false(heed_dims_valid(dims, -1000000));
}

static void test_literals(void **state)
{
    (void) state;
    int64_t number = 7, minus = heed_dims_literal(dims, -1);
    assert_int_equal(heed_dims_literal(dims, 5), 5);
    assert_true(minus < 0);
    assert_int_equal(heed_dims_literal(dims, -1), minus);
    assert_true(heed_dims_known(dims, minus, &number));
    assert_int_equal(number, -1);
    assert_true(heed_dims_known(dims, 12, &number));
    assert_int_equal(number, 12);
    assert_false(heed_dims_known(dims, S, &number));
    assert_int_equal(MUL(minus, minus), 1);
    assert_int_equal(ADD(minus, 4), 3);
    assert_int_equal(SUB(S, ADD(S, 1)), minus);
    assert_true(heed_dims_known(dims, heed_dims_literal(dims, INT64_MIN), &number));
    assert_true(number == INT64_MIN);
    assert_int_equal(DIV(heed_dims_literal(dims, -7), 2), heed_dims_literal(dims, -3)); /* toward zero */
    assert_int_equal(DIV(7, heed_dims_literal(dims, -2)), heed_dims_literal(dims, -3));
}

static void test_sums(void **state)
{
    (void) state;
    assert_int_equal(ADD(B, S), ADD(S, B));
    assert_int_equal(SUB(ADD(B, S), S), B);
    assert_int_equal(ADD(ADD(P, 1), 1), ADD(2, P));
    assert_int_equal(ADD(ADD(P, S), B), ADD(P, ADD(S, B)));
    assert_int_equal(SUB(S, S), 0);
    assert_int_equal(ADD(S, 0), S);
    assert_int_equal(ADD(S, S), MUL(2, S));
    assert_int_equal(SUB(MUL(3, S), S), MUL(S, 2));
    assert_int_not_equal(ADD(S, 1), ADD(S, 2));
    assert_int_not_equal(SUB(S, B), SUB(B, S));
    assert_int_equal(ADD(SUB(S, B), B), S);
}

static void test_products(void **state)
{
    (void) state;
    assert_int_equal(MUL(S, 1), S);
    assert_int_equal(MUL(S, 0), 0);
    assert_int_equal(MUL(MUL(B, S), P), MUL(P, MUL(S, B)));
    assert_int_equal(MUL(ADD(P, S), 12), ADD(MUL(12, S), MUL(12, P)));
    assert_int_equal(DIV(MUL(MUL(B, 12), S), 12), MUL(B, S));
    assert_int_equal(DIV(MUL(MUL(B, S), 768), MUL(MUL(B, S), 12)), 64);
    assert_int_equal(DIV(MUL(MUL(B, ADD(P, S)), 64), MUL(ADD(P, S), B)), 64);
    assert_int_equal(DIV(MUL(ADD(P, 1), ADD(S, 1)), ADD(P, 1)), ADD(S, 1));
    assert_int_equal(DIV(ADD(MUL(4, S), 8), 4), ADD(S, 2));
    assert_int_equal(DIV(S, S), 1);
    assert_int_equal(DIV(S, 1), S);
    assert_int_equal(DIV(0, S), 0);
}

static void test_rounding_stays(void **state)
{
    (void) state;
    int64_t half = DIV(S, 2);
    assert_int_not_equal(MUL(half, 2), S);
    assert_int_equal(half, DIV(S, 2));
    assert_int_equal(half, DIV(MUL(S, 16), 32));
    assert_int_equal(DIV(MUL(B, S), MUL(2, B)), half);
    assert_int_equal(DIV(half, 2), DIV(S, 4));
    assert_int_equal(DIV(DIV(MUL(3, S), 2), 3), half);
    assert_int_equal(SUB(S, half), SUB(S, DIV(S, 2)));
    assert_int_not_equal(DIV(ADD(S, 1), 2), ADD(DIV(S, 2), 1));
    assert_int_not_equal(DIV(S, 0), DIV(S, 0)); /* means nothing, so it equals nothing */
}

static void test_min_max(void **state)
{
    (void) state;
    assert_int_equal(MIN(S, P), MIN(P, S));
    assert_int_equal(MIN(S, S), S);
    assert_int_equal(MIN(3, 5), 3);
    assert_int_equal(MAX(3, 5), 5);
    assert_int_equal(MIN(S, INT64_MAX), S);
    assert_int_equal(MAX(S, 0), S);
    assert_int_equal(MIN(S, ADD(S, P)), S);
    assert_int_equal(MAX(ADD(S, 1), S), ADD(S, 1));
    assert_int_equal(MAX(SUB(S, 1), S), S);
    int64_t m = MIN(S, 512);
    assert_int_equal(MIN(m, 512), m);
    assert_int_equal(MIN(S, m), m);
    assert_int_equal(MAX(m, S), S);
    assert_int_equal(MAX(m, 0), m);
    int64_t x = heed_dims_fresh(dims); /* may be an entry of a shape, so below zero */
    assert_int_not_equal(MAX(x, 0), x);
    assert_int_not_equal(MAX(SUB(S, 1), 0), SUB(S, 1));
}

static void test_text(void **state)
{
    (void) state;
    assert_reads(12, "12");
    assert_reads(B, "batch");
    assert_reads(ADD(P, 1), "past + 1");
    assert_reads(heed_dims_literal(dims, -1), "-1");
    assert_reads(MUL(MUL(B, 12), S), "12*batch*S");
    assert_reads(SUB(S, B), "S - batch");
    assert_reads(SUB(1, S), "1 - S");
    assert_reads(DIV(ADD(SUB(H, 1), MUL(2, P)), 2), "(2*past + height - 1)/2");
    assert_reads(MUL(DIV(S, 2), B), "batch*(S/2)");
    assert_reads(MIN(ADD(S, 1), 77), "min(S + 1, 77)");
    assert_reads(HEED_DIM_UNKNOWN, "?");
    heed_dims *other = heed_dims_create(arena);
    int64_t third = 0;
    for (int i = 0; i < 4; i++) third = heed_dims_fresh(other);
    heed_text text = { .ctx = ctx };
    heed_dims_print(other, third, &text);
    assert_string_equal(text.data, "?3");
    heed_text_free(&text);
}

/* Expressions that grow without end cost no more than their steps, and stay themselves. */
static void test_growth_is_bounded(void **state)
{
    (void) state;
    int64_t square = ADD(S, 1), sum = 0, product = S;
    for (int i = 0; i < 200; i++) square = MUL(square, ADD(square, i));
    char name[16];
    for (int i = 0; i < 500; i++) {
        snprintf(name, sizeof name, "d%d", i);
        sum = ADD(sum, heed_dims_named(dims, name));
        product = MUL(product, heed_dims_named(dims, name));
        product = DIV(product, ADD(heed_dims_named(dims, name), 3));
    }
    int64_t again = 0;
    for (int i = 0; i < 500; i++) {
        snprintf(name, sizeof name, "d%d", i);
        again = ADD(again, heed_dims_named(dims, name));
    }
    assert_int_equal(sum, again);
    int64_t huge = MUL(MUL(S, INT64_MAX), 2);
    assert_true(heed_dims_valid(dims, huge));
    assert_int_not_equal(huge, MUL(S, -2));
    assert_true(heed_dims_valid(dims, ADD(INT64_MAX, INT64_MAX)));
    assert_true(heed_dims_valid(dims, SUB(heed_dims_literal(dims, INT64_MIN), 1)));
    assert_true(heed_dims_valid(dims, DIV(heed_dims_literal(dims, INT64_MIN), heed_dims_literal(dims, -1))));
    assert_true(heed_dims_valid(dims, ADD(HEED_DIM_UNKNOWN, 1)));
    int64_t all[] = { square, sum, product, huge };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        heed_text text = { .ctx = ctx };
        assert_true(heed_dims_valid(dims, all[i]));
        heed_dims_print(dims, all[i], &text);
        assert_false(text.failed);
        assert_in_range(text.size, 1, 4000);
        heed_text_free(&text);
    }
}

/* ---- random expressions: equal symbols must have equal values ---- */

/* HEED_TEST_SEED repeats a run. */
static void seed_random(void)
{
    const char *given = getenv("HEED_TEST_SEED");
    unsigned seed = given ? (unsigned) strtoul(given, NULL, 10) : (unsigned) time(NULL);
    print_message("HEED_TEST_SEED=%u\n", seed);
    srand(seed);
}

enum { N_NAMES = 4, N_EXPRS = 3000, N_POINTS = 6 };

struct expr {
    int64_t dim, values[N_POINTS];
};

static int64_t apply(int op, int64_t a, int64_t b)
{
    switch (op) {
    case 0: return a + b;
    case 1: return a - b;
    case 2: return a * b;
    case 3: return a / b;
    case 4: return a < b ? a : b;
    default: return a > b ? a : b;
    }
}

static int64_t apply_dims(int op, int64_t a, int64_t b)
{
    switch (op) {
    case 0: return ADD(a, b);
    case 1: return SUB(a, b);
    case 2: return MUL(a, b);
    case 3: return DIV(a, b);
    case 4: return MIN(a, b);
    default: return MAX(a, b);
    }
}

/* Zero if the operation is not defined or gets too large to compare. */
static int combine(struct expr *out, int op, const struct expr *a, const struct expr *b)
{
    for (int i = 0; i < N_POINTS; i++) {
        if (op == 3 && b->values[i] == 0) return 0;
        out->values[i] = apply(op, a->values[i], b->values[i]);
        if (llabs(out->values[i]) > 1 << 30) return 0;
    }
    out->dim = apply_dims(op, a->dim, b->dim);
    return 1;
}

static void test_random_expressions(void **state)
{
    (void) state;
    seed_random();
    static struct expr exprs[N_EXPRS];
    int n = 0;
    for (; n < N_NAMES; n++) {
        char name[2] = { (char) ('a' + n), 0 };
        exprs[n].dim = heed_dims_named(dims, name);
        for (int i = 0; i < N_POINTS; i++) exprs[n].values[i] = 1 + rand() % 60;
    }
    for (int c = -3; c <= 4; c++, n++) {
        exprs[n].dim = heed_dims_literal(dims, c);
        for (int i = 0; i < N_POINTS; i++) exprs[n].values[i] = c;
    }
    for (int tries = 0; n < N_EXPRS && tries < 20 * N_EXPRS; tries++)
        n += combine(&exprs[n], rand() % 6, &exprs[rand() % n], &exprs[rand() % n]);
    for (int i = 0; i < n; i++) {
        int64_t number;
        if (heed_dims_known(dims, exprs[i].dim, &number))
            for (int k = 0; k < N_POINTS; k++) assert_int_equal(exprs[i].values[k], number);
        for (int j = 0; j < i; j++) {
            if (exprs[i].dim == exprs[j].dim) assert_memory_equal(exprs[i].values, exprs[j].values, sizeof exprs[i].values);
        }
    }
}

/* A small sum of products, whose products with another fit. */
static int64_t random_sum(void)
{
    const int64_t names[] = { B, S, P, H };
    int64_t sum = rand() % 5;
    for (int i = rand() % 2; i >= 0; i--) {
        int64_t product = MUL(names[rand() % 4], heed_dims_literal(dims, rand() % 9 - 4));
        sum = ADD(sum, rand() % 2 ? product : MUL(product, names[rand() % 4]));
    }
    return sum;
}

/* What must be proven equal, whatever it is made of. */
static void test_random_identities(void **state)
{
    (void) state;
    seed_random();
    for (int i = 0; i < 20000; i++) {
        int64_t x = random_sum(), y = random_sum(), z = random_sum();
        assert_int_equal(SUB(ADD(x, y), y), x);
        assert_int_equal(ADD(SUB(x, y), y), x);
        assert_int_equal(ADD(x, ADD(y, z)), ADD(ADD(z, x), y));
        assert_int_equal(MUL(x, y), MUL(y, x));
        assert_int_equal(MUL(x, ADD(y, z)), ADD(MUL(z, x), MUL(x, y)));
        assert_int_equal(SUB(x, x), 0);
        if (y) assert_int_equal(DIV(MUL(x, y), y), x);
        if (y) assert_int_equal(DIV(MUL(x, 6), MUL(y, 6)), DIV(x, y));
        assert_int_equal(MIN(x, y), MIN(y, x));
        assert_int_equal(MAX(x, MIN(x, y)), x);
        assert_int_equal(MIN(y, MAX(x, y)), y);
    }
}

static void test_clone(void **state)
{
    (void) state;
    int64_t all[200];
    for (int i = 0; i < 200; i++) all[i] = i % 3 ? ADD(MUL(S, i), B) : MIN(DIV(P, i + 2), heed_dims_fresh(dims));
    heed_arena *second = heed_arena_create(ctx);
    heed_dims *copy = heed_dims_clone(dims, second);
    assert_non_null(copy);
    for (int i = 0; i < 200; i++) {
        heed_text a = { .ctx = ctx }, b = { .ctx = ctx };
        heed_dims_print(dims, all[i], &a);
        heed_dims_print(copy, all[i], &b);
        assert_string_equal(a.data, b.data);
        heed_text_free(&a);
        heed_text_free(&b);
    }
    assert_int_equal(heed_dims_named(copy, "batch"), B);
    assert_int_equal(heed_dims_add(copy, P, 1), ADD(P, 1));
    assert_int_equal(heed_dims_fresh(copy), heed_dims_fresh(dims));
    heed_arena_destroy(second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_and_unknowns),
        cmocka_unit_test(test_literals),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_rounding_stays),
        cmocka_unit_test(test_min_max),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_growth_is_bounded),
        cmocka_unit_test(test_random_expressions),
        cmocka_unit_test(test_random_identities),
        cmocka_unit_test(test_clone),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
