/* Row kernels of every instruction set that this CPU has, against libm in double: accuracy, special values, every length
 * around the vectors without a byte to spare, in place. */
#include "../unit/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "case.h"
#include "kernels/kernels.h"

typedef void row_fn(float *y, const float *x, int64_t n);

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}
static double gelu(double x)
{
    return 0.5 * x * erfc(-x * 0.70710678118654752440);
}
static double gelu_tanh(double x)
{
    return x * sigmoid(2 * 0.79788456080286535588 * (x + 0.044715 * x * x * x));
}
static double silu(double x)
{
    return x * sigmoid(x);
}

enum { N_FUNCTIONS = 7 };

/* |error| <= ulps units in the last place of the true value, or absolute. */
static const struct {
    const char *name;
    double (*want)(double);
    double ulps, absolute;
} functions[N_FUNCTIONS] = {
    { "exp", exp, 1.5, 0 },           { "erf", erf, 3, 0 },      { "tanh", tanh, 2, 0 },
    { "sigmoid", sigmoid, 3, 1e-38 }, { "gelu", gelu, 3, 2e-7 }, { "gelu_tanh", gelu_tanh, 3, 2e-7 },
    { "silu", silu, 4, 1e-36 },
};

static row_fn *function_of(const heed_row_kernels *rows, int i)
{
    row_fn *const all[N_FUNCTIONS] = { rows->exp, rows->erf, rows->tanh, rows->sigmoid, rows->gelu, rows->gelu_tanh, rows->silu };
    return all[i];
}

static double error_allowed(int f, double want)
{
    return functions[f].absolute + functions[f].ulps * (isfinite(want) ? ulp_of(HEED_F32, want) : 0);
}

static void check_value(heed_isa isa, int f, float x, float got)
{
    const double want = functions[f].want((double) x);
    const float as_float = (float) want;
    if (isnan(want) || isinf(as_float)) {
        if ((isnan(want) && isnan(got)) || got == as_float) return;
    } else if (fabs((double) got - want) <= error_allowed(f, want)) {
        return;
    }
    fail_msg("%s of %.9g, %s: %.9g, expected %.9g", functions[f].name, (double) x, heed_isa_name(isa), (double) got, want);
}

/* The instruction sets that run here and have row kernels. */
#define FOR_EACH_ISA(isa, rows)                                                                                                  \
    for (int isa = 0; isa <= (int) heed_cpu_isa(); isa++)                                                                        \
        for (const heed_row_kernels *rows = heed_row_kernels_of((heed_isa) isa); rows; rows = NULL)

static void test_functions(void **state)
{
    (void) state;
    static const double scales[] = { 0.01, 0.5, 1, 3, 10, 100 };
    static const float special[] = { INFINITY, -INFINITY, NAN,   0.0f,   1e-42f,  -1e-40f, 3e38f,
                                     -3e38f,   88.5f,     88.9f, -87.5f, -103.0f, -104.5f };
    enum { N = 3000, N_SPECIAL = sizeof special / sizeof special[0] };
    float x[N], y[N];
    FOR_EACH_ISA(isa, rows)
    for (int f = 0; f < N_FUNCTIONS; f++) {
        for (int i = 0; i < N; i++)
            x[i] = i < N_SPECIAL ? special[i] : (float) ((2 * random_uniform() - 1) * scales[random_below(6)]);
        function_of(rows, f)(y, x, N);
        for (int i = 0; i < N; i++) check_value((heed_isa) isa, f, x[i], y[i]);
    }
}

/* A value does not depend on where it stands, nor on what is beside it; nothing past the end is read or written. */
static void test_lengths(void **state)
{
    (void) state;
    FOR_EACH_ISA(isa, rows)
    for (int f = 0; f < N_FUNCTIONS; f++)
        for (int n = 0; n < 40; n++) {
            guarded x = guarded_new((size_t) n * sizeof(float), sizeof(float), n & 1);
            guarded y = guarded_new((size_t) n * sizeof(float), sizeof(float), ~n & 1);
            float *in = x.data, *out = y.data, one;
            for (int i = 0; i < n; i++) in[i] = (float) (3 * random_normal());
            function_of(rows, f)(out, in, n);
            for (int i = 0; i < n; i++) {
                function_of(rows, f)(&one, &in[i], 1);
                assert_memory_equal(&one, &out[i], sizeof one);
            }
            function_of(rows, f)(in, in, n);
            assert_memory_equal(in, out, (size_t) n * sizeof(float));
            guarded_free(&x);
            guarded_free(&y);
        }
}

static void check_softmax(const heed_row_kernels *rows, const float *x, int n)
{
    guarded in = guarded_new((size_t) n * sizeof(float), sizeof(float), 1);
    float *y = in.data;
    double top = -INFINITY, sum = 0;
    if (n > 0) memcpy(y, x, (size_t) n * sizeof(float));
    rows->softmax(y, y, n);
    for (int i = 0; i < n; i++)
        if ((double) x[i] > top) top = (double) x[i];
    for (int i = 0; i < n; i++) sum += exp((double) x[i] - top);
    for (int i = 0; i < n; i++) {
        const double want = top == -INFINITY ? 0 : exp((double) x[i] - top) / sum;
        /* The argument of exp is rounded, and its error grows with it. */
        const double slack = want == 0 ? 0 : 1e-6 + 1e-7 * (top - (double) x[i]);
        assert_true(isnan(want) ? isnan(y[i]) : fabs((double) y[i] - want) <= slack * want + 1e-37);
    }
    guarded_free(&in);
}

static void test_softmax(void **state)
{
    (void) state;
    enum { N = 300 };
    float x[N];
    FOR_EACH_ISA(isa, rows)
    for (int n = 0; n < N; n += n < 40 ? 1 : 43) {
        for (int i = 0; i < n; i++) x[i] = (float) (10 * random_normal());
        check_softmax(rows, x, n);
        for (int i = 0; i < n; i++)
            if (random_below(2)) x[i] = -INFINITY;
        x[random_below(n ? n : 1)] = -500000;
        check_softmax(rows, x, n);
        for (int i = 0; i < n; i++) x[i] = -INFINITY;
        check_softmax(rows, x, n);
    }
}

static void test_softmax_of_nan(void **state)
{
    (void) state;
    FOR_EACH_ISA(isa, rows)
    for (int n = 1; n < 40; n++) {
        float x[40];
        for (int i = 0; i < n; i++) x[i] = (float) i;
        x[random_below(n)] = n % 2 ? NAN : INFINITY;
        rows->softmax(x, x, n);
        int nans = 0;
        for (int i = 0; i < n; i++) nans += isnan(x[i]);
        assert_int_equal(nans, n);
    }
}

static void check_norms(const heed_row_kernels *rows, int n, int with_scale, int with_bias)
{
    float x[200], scale[200], bias[200], y[200], mean, inv_std;
    double m = 0, square = 0, variance = 0;
    const double epsilon = (double) 1e-5f;
    for (int i = 0; i < n; i++) {
        x[i] = (float) (3 + random_normal());
        scale[i] = (float) random_normal();
        bias[i] = (float) random_normal();
        m += (double) x[i] / n;
        square += (double) x[i] * (double) x[i] / n;
    }
    for (int i = 0; i < n; i++) variance += ((double) x[i] - m) * ((double) x[i] - m) / n;

    rows->layer_norm(y, x, with_scale ? scale : NULL, with_bias ? bias : NULL, n, 1e-5f, &mean, &inv_std);
    const double factor = 1 / sqrt(variance + epsilon), error = 1e-6 * (1 + factor);
    assert_true(fabs((double) mean - m) <= 2e-6);
    assert_true(fabs((double) inv_std - factor) <= error * factor);
    for (int i = 0; i < n; i++) {
        const double want =
            ((double) x[i] - m) * factor * (with_scale ? (double) scale[i] : 1) + (with_bias ? (double) bias[i] : 0);
        assert_true(fabs((double) y[i] - want) <= 5 * error * (1 + fabs(want)));
    }
    rows->layer_norm(y, x, scale, bias, n, 1e-5f, NULL, NULL);

    rows->rms_norm(y, x, scale, n, 1e-5f);
    for (int i = 0; i < n; i++) {
        const double want = (double) x[i] / sqrt(square + epsilon) * (double) scale[i];
        assert_true(fabs((double) y[i] - want) <= 1e-6 * (1 + fabs(want)));
    }
}

static void test_norms(void **state)
{
    (void) state;
    FOR_EACH_ISA(isa, rows)
    for (int n = 1; n < 200; n += n < 40 ? 1 : 23) check_norms(rows, n, n & 1, n & 2);
}

/* Against base/half.h: all halves, and random numbers of every exponent. */
static void test_conversions(void **state)
{
    (void) state;
    enum { N = 65536 };
    uint16_t *h = malloc(N * sizeof *h), *back = malloc(N * sizeof *back);
    float *x = malloc(N * sizeof *x);
    assert_true(h && back && x);
    FOR_EACH_ISA(isa, rows)
    {
        for (int i = 0; i < N; i++) h[i] = (uint16_t) i;
        rows->f32_from_f16(x, h, N);
        for (int i = 0; i < N; i++)
            assert_true(x[i] == heed_f32_from_f16(h[i]) || (isnan(x[i]) && isnan(heed_f32_from_f16(h[i]))));
        rows->f16_from_f32(back, x, N);
        for (int i = 0; i < N; i++) assert_true(back[i] == h[i] || (isnan(x[i]) && isnan(heed_f32_from_f16(back[i]))));
        rows->f32_from_bf16(x, h, N);
        for (int i = 0; i < N; i++) assert_int_equal(heed_bits_of_f32(x[i]), (uint32_t) h[i] << 16);
        for (int i = 0; i < N; i++) x[i] = heed_f32_of_bits((uint32_t) random_bits());
        for (int i = 0; i < N; i += 2) x[i] = heed_f32_from_f16((uint16_t) random_bits()) * 1.00048828125f; /* near the middle */
        rows->f16_from_f32(back, x, N);
        for (int i = 0; i < N; i++)
            assert_true(back[i] == heed_f16_from_f32(x[i]) || (isnan(x[i]) && isnan(heed_f32_from_f16(back[i]))));
        rows->bf16_from_f32(back, x, N);
        for (int i = 0; i < N; i++)
            assert_true(back[i] == heed_bf16_from_f32(x[i]) || (isnan(x[i]) && isnan(heed_f32_from_bf16(back[i]))));
    }
    free(h);
    free(back);
    free(x);
}

static void test_conversion_lengths(void **state)
{
    (void) state;
    FOR_EACH_ISA(isa, rows)
    for (int n = 0; n < 40; n++) {
        guarded x = guarded_new((size_t) n * sizeof(float), sizeof(float), 1);
        guarded h = guarded_new((size_t) n * sizeof(uint16_t), sizeof(uint16_t), 1);
        float *wide = x.data;
        uint16_t *narrow = h.data;
        for (int i = 0; i < n; i++) wide[i] = (float) i;
        rows->f16_from_f32(narrow, wide, n);
        rows->f32_from_f16(wide, narrow, n);
        rows->bf16_from_f32(narrow, wide, n);
        rows->f32_from_bf16(wide, narrow, n);
        for (int i = 0; i < n; i++) assert_true(wide[i] == (float) i);
        guarded_free(&x);
        guarded_free(&h);
    }
}

static void test_choice(void **state)
{
    (void) state;
    for (int isa = 0; isa < HEED_ISA_COUNT; isa++) {
        const heed_isa most = (heed_isa) isa < heed_cpu_isa() ? (heed_isa) isa : heed_cpu_isa();
        setenv("HEED_ISA", heed_isa_name((heed_isa) isa), 1);
        assert_ptr_equal(heed_row_kernels_get(), heed_row_kernels_of(most));
    }
    unsetenv("HEED_ISA");
    assert_ptr_equal(heed_row_kernels_get(), heed_row_kernels_of(heed_cpu_isa()));
}

int main(void)
{
    random_start();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_functions),          cmocka_unit_test(test_lengths), cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_softmax_of_nan),     cmocka_unit_test(test_norms),   cmocka_unit_test(test_conversions),
        cmocka_unit_test(test_conversion_lengths), cmocka_unit_test(test_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
