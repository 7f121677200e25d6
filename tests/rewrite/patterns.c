/* Activations, norms and linear layers written out: fused in every spelling with the same result, and left alone where a
 * number or a user is another. */
#include "rewrite/rewrite.h"

#define ROWS 5
#define N 12
static const int64_t x_dims[3] = { 2, ROWS, N };

static heed_value *number(heed_graph *g, float x)
{
    return scalar(g, x);
}

static heed_value *add(heed_graph *g, heed_value *a, heed_value *b)
{
    return op(g, "Add", IN(a, b));
}

static heed_value *mul(heed_graph *g, heed_value *a, heed_value *b)
{
    return op(g, "Mul", IN(a, b));
}

static heed_value *vector(heed_graph *g, int64_t n)
{
    float data[64];
    for (int64_t i = 0; i < n; i++) data[i] = uniform(0.5f, 1.5f);
    return constant(g, HEED_F32, 1, &n, data);
}

static heed_value *matrix(heed_graph *g, int64_t rows, int64_t columns)
{
    const int64_t dims[2] = { rows, columns };
    float data[64 * 64];
    for (int64_t i = 0; i < rows * columns; i++) data[i] = uniform(-1, 1);
    return constant(g, HEED_F32, 2, dims, data);
}

static heed_graph *begin(heed_value **x)
{
    heed_graph *g = heed_graph_create(ctx);
    *x = input(g, "x", HEED_F32, 3, x_dims);
    return g;
}

/* The graph ends in one node of domain heed, or in none if `name` is NULL. */
static void assert_becomes(heed_graph *g, heed_value *result, const char *name, const char *attr, const char *text)
{
    heed_graph_add_output(g, result);
    struct outcome o = try_graph(g, 2e-6);
    if (name) {
        const heed_node *node = find_node(o.graph, "heed", name);
        if (!node || o.graph->first != o.graph->last) {
            print_graph(o.graph);
            fail_msg("not heed.%s alone", name);
        }
        if (attr) assert_string_equal(heed_node_string(node, attr, ""), text);
    } else
        for (const heed_node *n = o.graph->first; n; n = n->next)
            if (strcmp(n->domain, "heed") == 0) fail_msg("heed.%s was made", n->op);
    done(&o, g);
}

/* ---- activations ---- */

static heed_value *erf_of(heed_graph *g, heed_value *x, float divisor)
{
    return op(g, "Erf", IN(op(g, "Div", IN(x, number(g, divisor)))));
}

static void test_gelu(void **state)
{
    (void) state;
    const float root2 = 1.41421356f;
    for (int kind = 0; kind < 6; kind++) {
        heed_value *x, *y = NULL;
        heed_graph *g = begin(&x);
        heed_value *one_plus = add(g, erf_of(g, x, root2), number(g, 1));
        if (kind == 0) y = mul(g, mul(g, x, one_plus), number(g, 0.5f));
        if (kind == 1) y = mul(g, mul(g, x, number(g, 0.5f)), one_plus);
        if (kind == 2) y = mul(g, x, mul(g, number(g, 0.5f), one_plus));
        if (kind == 3) y = op(g, "Div", IN(mul(g, one_plus, x), number(g, 2)));
        if (kind == 4)
            y = mul(g, x, add(g, number(g, 0.5f), mul(g, op(g, "Erf", IN(mul(g, x, number(g, 0.70710678f)))), number(g, 0.5f))));
        if (kind == 5) { /* x itself a product */
            x = mul(g, x, op(g, "Abs", IN(x)));
            one_plus = add(g, erf_of(g, x, root2), number(g, 1));
            heed_graph_add_output(g, x);
            y = mul(g, number(g, 0.5f), mul(g, one_plus, x));
            heed_graph_add_output(g, y);
            struct outcome o = try_graph(g, 2e-6);
            assert_int_equal(count_nodes(o.graph, "heed", "Gelu"), 1);
            assert_int_equal(count_nodes(o.graph, "", "Erf"), 0);
            done(&o, g);
            continue;
        }
        assert_becomes(g, y, "Gelu", "approximate", "none");
    }
}

static void test_gelu_tanh(void **state)
{
    (void) state;
    for (int kind = 0; kind < 4; kind++) {
        heed_value *x, *u;
        heed_graph *g = begin(&x);
        const float k = 0.7978845608f, c = 0.044715f;
        if (kind == 0) u = mul(g, number(g, k), add(g, x, mul(g, number(g, c), op(g, "Pow", IN(x, number(g, 3))))));
        else if (kind == 1) u = mul(g, mul(g, x, number(g, k)), add(g, number(g, 1), mul(g, mul(g, x, number(g, c)), x)));
        else if (kind == 2) u = mul(g, add(g, x, mul(g, mul(g, mul(g, x, x), x), number(g, c))), number(g, k));
        else u = add(g, mul(g, x, number(g, k)), mul(g, op(g, "Pow", IN(x, number(g, 3))), number(g, k * c)));
        heed_value *one_plus = add(g, op(g, "Tanh", IN(u)), number(g, 1));
        assert_becomes(g, mul(g, mul(g, x, number(g, 0.5f)), one_plus), "Gelu", "approximate", "tanh");
    }
}

static void test_sigmoids(void **state)
{
    (void) state;
    heed_value *x;
    heed_graph *g = begin(&x);
    assert_becomes(g, mul(g, x, op(g, "Sigmoid", IN(x))), "Silu", NULL, NULL);
    g = begin(&x);
    assert_becomes(g, mul(g, op(g, "Sigmoid", IN(mul(g, x, number(g, 1.702f)))), x), "QuickGelu", NULL, NULL);
    /* Another base, another sign. */
    g = begin(&x);
    assert_becomes(g, mul(g, op(g, "Abs", IN(x)), op(g, "Sigmoid", IN(x))), NULL, NULL, NULL);
    g = begin(&x);
    assert_becomes(g, mul(g, x, op(g, "Sigmoid", IN(op(g, "Neg", IN(x))))), NULL, NULL, NULL);
}

static void test_not_gelu(void **state)
{
    (void) state;
    static const struct {
        float divisor, one, half;
    } wrong[] = { { 1.5f, 1, 0.5f }, { 1.41421356f, 1.1f, 0.5f }, { 1.41421356f, 1, 0.4f }, { -1.41421356f, 1, 0.5f } };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        heed_value *x;
        heed_graph *g = begin(&x);
        heed_value *one_plus = add(g, erf_of(g, x, wrong[i].divisor), number(g, wrong[i].one));
        assert_becomes(g, mul(g, mul(g, x, one_plus), number(g, wrong[i].half)), NULL, NULL, NULL);
    }
    heed_value *x;
    heed_graph *g = begin(&x);
    heed_value *y = op(g, "Abs", IN(x));
    assert_becomes(g, mul(g, mul(g, y, add(g, erf_of(g, x, 1.41421356f), number(g, 1))), number(g, 0.5f)), NULL, NULL, NULL);
    /* A cube where there should be a first power. */
    g = begin(&x);
    heed_value *u = mul(g, number(g, 0.7978845608f), add(g, x, mul(g, number(g, 0.05f), op(g, "Pow", IN(x, number(g, 3))))));
    assert_becomes(g, mul(g, mul(g, x, number(g, 0.5f)), add(g, op(g, "Tanh", IN(u)), number(g, 1))), NULL, NULL, NULL);
}

/* ---- norms ---- */

static heed_value *mean(heed_graph *g, heed_value *x, int64_t axis)
{
    heed_value *m = op(g, "ReduceMean", IN(x, ints(g, 1, &axis)));
    set_int(g, m, "keepdims", 1);
    return m;
}

/* In one of the spellings of x / sqrt(mean(x^2) + eps). */
static heed_value *rms(heed_graph *g, heed_value *x, int spelling, int64_t axis)
{
    heed_value *square = spelling & 1 ? mul(g, x, x) : op(g, "Pow", IN(x, number(g, 2)));
    heed_value *v = mean(g, square, axis), *eps = number(g, 1e-5f);
    v = spelling & 2 ? add(g, eps, v) : add(g, v, eps);
    if (spelling / 4 == 3) return mul(g, op(g, "Pow", IN(v, number(g, -0.5f))), x);
    v = op(g, "Sqrt", IN(v));
    if (spelling / 4 == 0) return op(g, "Div", IN(x, v));
    return mul(g, x, spelling / 4 == 1 ? op(g, "Reciprocal", IN(v)) : op(g, "Div", IN(number(g, 1), v)));
}

static void test_rms_norm(void **state)
{
    (void) state;
    for (int spelling = 0; spelling < 16; spelling++)
        for (int weight = 0; weight < 3; weight++) {
            heed_value *x;
            heed_graph *g = begin(&x);
            heed_value *y = rms(g, x, spelling, spelling % 3 ? -1 : 2);
            if (weight) y = weight == 1 ? mul(g, y, vector(g, N)) : mul(g, vector(g, N), y);
            assert_becomes(g, y, "RmsNorm", NULL, NULL);
        }
    heed_value *x;
    heed_graph *g = begin(&x);
    assert_becomes(g, rms(g, x, 4, 1), NULL, NULL, NULL);
    g = begin(&x);
    heed_value *y = op(g, "Abs", IN(x));
    assert_becomes(g, op(g, "Div", IN(y, op(g, "Sqrt", IN(add(g, mean(g, mul(g, x, x), -1), number(g, 1e-5f)))))), NULL, NULL,
                   NULL);
}

static void test_layer_norm(void **state)
{
    (void) state;
    for (int bias = 0; bias < 2; bias++)
        for (int twice = 0; twice < 2; twice++) {
            heed_value *x;
            heed_graph *g = begin(&x);
            heed_value *d = op(g, "Sub", IN(x, mean(g, x, -1))), *e = twice ? op(g, "Sub", IN(x, mean(g, x, -1))) : d;
            heed_value *v = add(g, mean(g, op(g, "Pow", IN(d, number(g, 2))), -1), number(g, 1e-5f));
            heed_value *y = mul(g, op(g, "Div", IN(e, op(g, "Sqrt", IN(v)))), vector(g, N));
            if (bias) y = add(g, y, vector(g, N));
            assert_becomes(g, y, "LayerNorm", NULL, NULL);
        }
}

/* The Add before it, and the sum if others need it. */
static void test_residual(void **state)
{
    (void) state;
    for (int kind = 0; kind < 6; kind++) {
        heed_value *x;
        heed_graph *g = begin(&x);
        const int used = kind & 1;
        heed_value *other = input(g, "r", HEED_F32, 3, x_dims), *sum = add(g, x, other), *y;
        if (kind / 2 == 0) y = mul(g, vector(g, N), rms(g, sum, 4, -1));
        else if (kind / 2 == 1) y = op(g, "LayerNormalization", IN(sum, vector(g, N), vector(g, N)));
        else y = op(g, "RMSNormalization", IN(sum, vector(g, N))), y->producer->version = 23;
        heed_graph_add_output(g, y);
        if (used) heed_graph_add_output(g, op(g, "Neg", IN(sum)));
        struct outcome o = try_graph(g, 2e-6);
        const heed_node *node = find_node(o.graph, "heed", kind / 2 == 1 ? "LayerNorm" : "RmsNorm");
        assert_non_null(node);
        assert_non_null(node->inputs[1]);
        assert_int_equal(node->n_outputs, 1 + used);
        assert_int_equal(count_nodes(o.graph, "", "Add"), 0);
        done(&o, g);
    }
    /* A residual that is broadcast stays outside. */
    heed_value *x;
    heed_graph *g = begin(&x);
    heed_value *y =
        op(g, "LayerNormalization", IN(add(g, x, input(g, "r", HEED_F32, 1, x_dims + 2)), vector(g, N), vector(g, N)));
    assert_becomes(g, y, NULL, NULL, NULL);
}

/* ---- linear layers ---- */

static void test_linear(void **state)
{
    (void) state;
    static const char *const names[] = { "", "relu", "tanh", "silu", "gelu" };
    for (int bias = 0; bias < 2; bias++)
        for (int act = 0; act < 5; act++)
            for (int residual = 0; residual < 2; residual++) {
                heed_value *x;
                heed_graph *g = begin(&x);
                heed_value *y = op(g, "MatMul", IN(x, matrix(g, N, 7)));
                if (bias) y = act & 1 ? add(g, vector(g, 7), y) : add(g, y, vector(g, 7));
                if (act == 1) y = op(g, "Relu", IN(y));
                if (act == 2) y = op(g, "Tanh", IN(y));
                if (act == 3) y = mul(g, y, op(g, "Sigmoid", IN(y)));
                if (act == 4) y = mul(g, mul(g, y, add(g, erf_of(g, y, 1.41421356f), number(g, 1))), number(g, 0.5f));
                if (residual) y = add(g, y, input(g, "r", HEED_F32, 3, (int64_t[]){ 2, ROWS, 7 }));
                assert_becomes(g, y, "Linear", "activation", names[act]);
            }
}

static void test_gemm(void **state)
{
    (void) state;
    for (int transposed = 0; transposed < 2; transposed++)
        for (int sandwich = 0; sandwich < 2; sandwich++) {
            heed_value *x;
            heed_graph *g = begin(&x);
            if (!sandwich) g->inputs[0]->fact.rank = 2, g->inputs[0]->fact.dims[0] = ROWS, g->inputs[0]->fact.dims[1] = N;
            else x = reshape(g, x, 2, (int64_t[]){ -1, N });
            heed_value *y = op(g, "Gemm", IN(x, transposed ? matrix(g, 7, N) : matrix(g, N, 7), vector(g, 7)));
            if (transposed) set_int(g, y, "transB", 1);
            if (sandwich) y = op(g, "Relu", IN(reshape(g, y, 3, (int64_t[]){ 2, ROWS, 7 })));
            assert_becomes(g, y, "Linear", "activation", sandwich ? "relu" : "");
        }
    heed_value *x;
    heed_graph *g = begin(&x);
    x->fact.rank = 2, x->fact.dims[0] = ROWS, x->fact.dims[1] = N;
    heed_value *y = op(g, "Gemm", IN(x, matrix(g, N, 7), vector(g, 7)));
    assert_becomes(g, set_float(g, y, "alpha", 0.5f), NULL, NULL, NULL);
}

/* What another node needs too is not swallowed. */
static void test_linear_users(void **state)
{
    (void) state;
    heed_value *x;
    heed_graph *g = begin(&x);
    heed_value *y = op(g, "MatMul", IN(x, matrix(g, N, 7)));
    heed_graph_add_output(g, y);
    heed_graph_add_output(g, add(g, y, vector(g, 7)));
    struct outcome o = try_graph(g, 2e-6);
    assert_int_equal(find_node(o.graph, "heed", "Linear")->n_inputs, 2);
    assert_int_equal(count_nodes(o.graph, "", "Add"), 1);
    done(&o, g);
    /* Two computed matrices are no layer. */
    g = begin(&x);
    assert_becomes(g, op(g, "MatMul", IN(x, transpose(g, x, 3, (int64_t[]){ 0, 2, 1 }))), NULL, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gelu),         cmocka_unit_test(test_gelu_tanh), cmocka_unit_test(test_sigmoids),
        cmocka_unit_test(test_not_gelu),     cmocka_unit_test(test_rms_norm),  cmocka_unit_test(test_layer_norm),
        cmocka_unit_test(test_residual),     cmocka_unit_test(test_linear),    cmocka_unit_test(test_gemm),
        cmocka_unit_test(test_linear_users),
    };
    start();
    return cmocka_run_group_tests(tests, setup, teardown);
}
