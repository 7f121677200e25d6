/* Which kernel runs, who decided, and what is said about it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"
#include "unit/test.h"

static heed_context *context;

static int start(void **state)
{
    (void) state;
    rng_start();
    return heed_context_create(&context, NULL) != HEED_OK;
}

static int stop(void **state)
{
    (void) state;
    heed_context_destroy(context);
    return 0;
}

static int clear(void **state)
{
    (void) state;
    unsetenv("HEED_KERNEL"), unsetenv("HEED_ISA"), unsetenv("HEED_SPLITS");
    return 0;
}

static heed_attention_desc desc_of(heed_dtype dtype, int64_t len_q, int64_t len_k)
{
    heed_attention_desc d;
    heed_attention_desc_init(&d);
    d.dtype = heed_dtype_to_dl(dtype);
    d.heads_q = d.heads_kv = 8, d.max_len_q = len_q, d.max_len_k = len_k;
    return d;
}

static spec plain(heed_dtype dtype, int64_t len_q, int64_t len_k)
{
    spec s = spec_random(dtype);
    s.batch = 1, s.heads_q = s.heads_kv = 2, s.head_dim = s.head_dim_v = 16, s.len_q = len_q, s.len_k = len_k, s.lse = 1;
    return s;
}

/* heed_kernel_info_get lists reference, explode and every line of the table. */
static void test_list(void **state)
{
    (void) state;
    heed_kernel_info info = { .struct_size = sizeof info };
    int n = 0, reference = 0, explode = 0;
    for (; heed_kernel_info_get(n, &info); n++) {
        reference += strcmp(info.name, "reference") == 0, explode += strcmp(info.name, "explode") == 0;
        heed_isa isa;
        assert_true(heed_isa_parse(info.isa, &isa));
        assert_int_equal(info.runs_here, isa <= heed_cpu_isa());
        const heed_kernel *kernel = heed_kernel_by_name(info.name);
        if (!kernel) continue;
        assert_string_equal(info.family, heed_family_name(kernel->family));
        assert_string_equal(info.dtype, heed_dtype_name(kernel->dtype));
    }
    assert_int_equal(n, heed_n_kernels + 2);
    assert_int_equal(reference, 1);
    assert_int_equal(explode, 1);
    assert_false(heed_kernel_info_get(-1, &info));
    assert_false(heed_kernel_info_get(0, NULL));
    info.struct_size = 0;
    assert_false(heed_kernel_info_get(0, &info));
}

/* Each instruction set that runs here has its own kernels, which the trace names. */
static void test_isa(void **state)
{
    (void) state;
    static const heed_dtype types[] = { HEED_F32, HEED_F16, HEED_BF16 };
    for (int isa = 0; isa <= (int) heed_cpu_isa(); isa++) {
        setenv("HEED_ISA", heed_isa_name((heed_isa) isa), 1);
        for (int t = 0; t < 3; t++) {
            for (int long_q = 0; long_q < 2; long_q++) {
                spec s = plain(types[t], long_q ? 64 : 1, 80);
                sample c;
                sample_make(&c, &s);
                heed_attention_trace trace = { .struct_size = sizeof trace };
                sample_run(&c, context, NULL, &trace);
                char name[64];
                snprintf(name, sizeof name, "%s_%s_%s", heed_family_name(long_q ? HEED_FAMILY_PREFILL : HEED_FAMILY_DECODE),
                         heed_dtype_name(types[t]), heed_isa_name((heed_isa) isa));
                assert_string_equal(trace.kernel, name);
                sample_free(&c);
            }
        }
    }
}

/* One plan serves long and short queries with a kernel for each. */
static void test_by_lengths(void **state)
{
    (void) state;
    spec s = plain(HEED_F32, 64, 64);
    heed_attention_desc d = desc_of(HEED_F32, 64, 64);
    d.heads_q = d.heads_kv = 2, d.head_dim = 16, d.want_lse = 1;
    heed_attention_plan *plan;
    assert_int_equal(heed_attention_plan_create(&plan, context, &d), HEED_OK);
    const char *prefill = heed_attention_plan_kernel(plan);
    assert_true(strncmp(prefill, "prefill_f32_", 12) == 0);
    assert_non_null(strstr(heed_attention_plan_explain(plan), "taken for runs whose lengths suit it better"));
    for (int n = 0; n < 2; n++) {
        s.len_q = n ? 1 : 64, s.len_k = 30 + n;
        sample c;
        sample_make(&c, &s);
        heed_attention_trace trace = { .struct_size = sizeof trace };
        assert_int_equal(heed_attention_run_traced(plan, &c.args, NULL, 0, &trace), HEED_OK);
        sample_check(&c, trace.kernel);
        if (n) assert_true(strncmp(trace.kernel, "decode_f32_", 11) == 0);
        else assert_string_equal(trace.kernel, prefill);
        sample_free(&c);
    }
    heed_attention_plan_destroy(plan);
}

/* Nothing to do: no kernel in the trace. */
static void test_empty(void **state)
{
    (void) state;
    spec s = plain(HEED_F16, 0, 4);
    sample c;
    sample_make(&c, &s);
    heed_attention_trace trace = { .struct_size = sizeof trace };
    sample_run(&c, context, NULL, &trace);
    assert_string_equal(trace.kernel, "");
    assert_int_equal(trace.n_tasks, 0);
    assert_int_equal(trace.n_splits, 1);
    sample_free(&c);
}

/* The explanation has the winner first and a line for every other solver. */
static void test_explanation(void **state)
{
    (void) state;
    heed_attention_desc d = desc_of(HEED_F16, 128, 128);
    heed_attention_plan *plan;
    setenv("HEED_ISA", "generic", 1);
    assert_int_equal(heed_attention_plan_create(&plan, context, &d), HEED_OK);
    const char *text = heed_attention_plan_explain(plan), *winner = heed_attention_plan_kernel(plan);
    assert_true(strncmp(text, winner, strlen(winner)) == 0);
    assert_true(strncmp(text + strlen(winner), ": chosen", 8) == 0);
    int lines = 0;
    for (const char *p = text; *p; p++) lines += *p == '\n';
    assert_int_equal(lines, heed_n_kernels + 2);
    heed_kernel_info info = { .struct_size = sizeof info };
    for (int i = 0; heed_kernel_info_get(i, &info); i++) assert_non_null(strstr(text, info.name));
    assert_non_null(strstr(text, "explode: applies, but a fused kernel does too"));
    if (heed_kernel_by_name("prefill_f32_generic"))
        assert_non_null(strstr(text, "prefill_f32_generic: does not apply: works on f32, the problem is f16"));
    if (heed_kernel_by_name("prefill_f16_avx2"))
        assert_non_null(strstr(text, "prefill_f16_avx2: does not apply: needs avx2, HEED_ISA is generic"));
    heed_attention_plan_destroy(plan);
}

static void expect_failure(const heed_attention_desc *d, heed_status status, const char *message)
{
    heed_attention_plan *plan;
    heed_status got = heed_attention_plan_create(&plan, context, d);
    if (got == HEED_OK) fail_msg("a plan was made, expected '%s'", message);
    assert_int_equal(got, status);
    assert_string_equal(heed_last_message(), message);
    assert_null(plan);
}

static void test_pins(void **state)
{
    (void) state;
    heed_attention_desc d = desc_of(HEED_F32, 16, 16);
    heed_attention_plan *plan;
    setenv("HEED_KERNEL", "explode", 1);
    assert_int_equal(heed_attention_plan_create(&plan, context, &d), HEED_OK);
    assert_string_equal(heed_attention_plan_kernel(plan), "explode");
    assert_non_null(strstr(heed_attention_plan_explain(plan), "explode: chosen by HEED_KERNEL"));
    heed_attention_plan_destroy(plan);
    d.kernel = "reference"; /* what the program asks for comes before the environment */
    assert_int_equal(heed_attention_plan_create(&plan, context, &d), HEED_OK);
    assert_string_equal(heed_attention_plan_kernel(plan), "reference");
    heed_attention_plan_destroy(plan);
    d.kernel = NULL;
    setenv("HEED_KERNEL", "nonsense", 1);
    expect_failure(&d, HEED_ERR_ARGUMENT, "HEED_KERNEL: 'nonsense' is not a kernel of this build");
    setenv("HEED_KERNEL", "", 1);
    assert_int_equal(heed_attention_plan_create(&plan, context, &d), HEED_OK);
    heed_attention_plan_destroy(plan);
    unsetenv("HEED_KERNEL");

    if (!heed_kernel_by_name("prefill_f16_avx2")) return;
    d.kernel = "prefill_f16_avx2";
    expect_failure(&d, HEED_ERR_UNSUPPORTED, "kernel: prefill_f16_avx2 does not apply: works on f16, the problem is f32");
    d.kernel = "prefill_f32_avx2";
    setenv("HEED_ISA", "generic", 1);
    expect_failure(&d, HEED_ERR_UNSUPPORTED, "kernel: prefill_f32_avx2 does not apply: needs avx2, HEED_ISA is generic");
}

static void test_bad_variables(void **state)
{
    (void) state;
    heed_attention_desc d = desc_of(HEED_F32, 16, 16);
    setenv("HEED_ISA", "mmx", 1);
    expect_failure(&d, HEED_ERR_ARGUMENT, "HEED_ISA: is 'mmx', expected generic, avx2 or avx512");
    unsetenv("HEED_ISA");
    static const char *const bad[] = { "0", "-3", "1025", "two", "4x", "99999999999999999999" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char message[96];
        setenv("HEED_SPLITS", bad[i], 1);
        snprintf(message, sizeof message, "HEED_SPLITS: is '%s', expected 1 to 1024", bad[i]);
        expect_failure(&d, HEED_ERR_ARGUMENT, message);
    }
}

static void test_force_fused(void **state)
{
    (void) state;
    heed_attention_desc d = desc_of(HEED_F32, 16, 16);
    d.force_fused = 1;
    heed_attention_plan *plan;
    assert_int_equal(heed_attention_plan_create(&plan, context, &d), HEED_OK);
    assert_non_null(heed_kernel_by_name(heed_attention_plan_kernel(plan)));
    heed_attention_plan_destroy(plan);
    d.kernel = "explode";
    expect_failure(&d, HEED_ERR_UNSUPPORTED, "kernel: explode is not a fused kernel, and force_fused is set");
}

/* Split and whole give the same numbers; the trace says which it was. Pieces cut short by lengths and windows too. */
static void test_splits(void **state)
{
    (void) state;
    static const char *const counts[] = { "1", "2", "3", "7", "64" };
    static const heed_dtype types[] = { HEED_F32, HEED_F16, HEED_BF16 };
    for (int n = 0; n < 24; n++) {
        spec s = plain(types[n % 3], n % 2 ? 1 : 9, 150);
        s.key_lengths = n & 4, s.window_left = n & 8 ? 70 : -1, s.sinks = n & 2, s.heads_kv = 1, s.poison = n & 16;
        sample c;
        sample_make(&c, &s);
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            setenv("HEED_SPLITS", counts[i], 1);
            heed_attention_trace trace = { .struct_size = sizeof trace };
            sample_run(&c, context, NULL, &trace);
            assert_true(trace.n_splits <= atoi(counts[i]));
            if (!s.key_lengths && s.window_left < 0 && i < 4) assert_int_equal(trace.n_splits, atoi(counts[i]));
        }
        unsetenv("HEED_SPLITS");
        sample_free(&c);
    }
}

/* Long keys are split without being told to, where there are few rows. */
static void test_split_by_shape(void **state)
{
    (void) state;
    spec s = plain(HEED_F32, 1, 4096);
    sample c;
    sample_make(&c, &s);
    heed_attention_trace trace = { .struct_size = sizeof trace };
    sample_run(&c, context, NULL, &trace);
    assert_int_equal(trace.n_splits, 8);
    assert_int_equal(trace.n_tasks, 16);
    sample_free(&c);
}

/* Rows that a hidden NaN got into are computed again, and counted. */
static void test_redone(void **state)
{
    (void) state;
    spec s = plain(HEED_F32, 20, 20);
    s.window_right = 0;
    sample c;
    sample_make(&c, &s);
    for (int bad = 0; bad < 2; bad++) {
        if (bad) array_set(&c.v, 0, 0, 19, 3, NAN); /* seen by the last row alone */
        sample_refer(&c);
        const char *kernel;
        for (int i = 0; (kernel = kernel_for(HEED_F32, i)); i++) {
            heed_attention_trace trace = { .struct_size = sizeof trace };
            sample_run(&c, context, kernel, &trace);
            if (!bad) assert_int_equal(trace.n_redone, 0);
            else if (strcmp(kernel, "explode") == 0 || strncmp(kernel, "prefill", 7) == 0) assert_true(trace.n_redone > 0);
        }
    }
    sample_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list),
        cmocka_unit_test_setup_teardown(test_isa, clear, clear),
        cmocka_unit_test_setup_teardown(test_by_lengths, clear, clear),
        cmocka_unit_test_setup_teardown(test_empty, clear, clear),
        cmocka_unit_test_setup_teardown(test_explanation, clear, clear),
        cmocka_unit_test_setup_teardown(test_pins, clear, clear),
        cmocka_unit_test_setup_teardown(test_bad_variables, clear, clear),
        cmocka_unit_test_setup_teardown(test_force_fused, clear, clear),
        cmocka_unit_test_setup_teardown(test_splits, clear, clear),
        cmocka_unit_test_setup_teardown(test_split_by_shape, clear, clear),
        cmocka_unit_test_setup_teardown(test_redone, clear, clear),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
