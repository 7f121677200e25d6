/* Shape inference over small graphs with symbolic dimensions: what exporters write around shapes must resolve; known facts
 * are joined with declared ones; branches of If; evaluation of nodes on known data. */
#include "graph/dims.h"
#include "ops/bench_node.h"
#include "ops/infer.h"

static heed_context *ctx;

static int setup(void **state)
{
    (void) state;
    return heed_context_create(&ctx, NULL);
}

static int teardown(void **state)
{
    (void) state;
    heed_context_destroy(ctx);
    return 0;
}

#define VALUES(...)                                                                                                              \
    (int) (sizeof((heed_value *[]){ __VA_ARGS__ }) / sizeof(heed_value *)), (heed_value *[])                                     \
    {                                                                                                                            \
        __VA_ARGS__                                                                                                              \
    }

/* "B, 12, S" */
static heed_value *input(heed_graph *g, const char *name, heed_dtype type, const char *shape)
{
    heed_value *v = heed_graph_add_input(g, name);
    char text[128], *save = NULL;
    snprintf(text, sizeof text, "%s", shape);
    v->fact.dtype = type, v->fact.rank = 0;
    for (char *dim = strtok_r(text, ", ", &save); dim; dim = strtok_r(NULL, ", ", &save))
        v->fact.dims[v->fact.rank++] = *dim >= '0' && *dim <= '9' ? atoll(dim) : heed_dims_named(g->dims, dim);
    return v;
}

static heed_value *constant(heed_graph *g, int rank, int64_t n, const int64_t *ints)
{
    heed_tensor *t = HEED_NEW(g->arena, heed_tensor);
    *t = heed_tensor_make(HEED_I64, rank, &n);
    t->data = heed_arena_alloc(g->arena, (size_t) (n + 1) * sizeof(int64_t));
    memcpy(t->data, ints, (size_t) n * sizeof(int64_t));
    return heed_graph_add_constant(g, NULL, t);
}

#define INTS(g, ...) constant(g, 1, (int64_t) (sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), (int64_t[]){ __VA_ARGS__ })
#define INT(g, x) constant(g, 0, 1, (int64_t[]){ x })

static heed_node *node(heed_graph *g, const char *op, int n_in, heed_value *const *in, int n_out)
{
    heed_node *made = heed_graph_add_node(g, NULL, "", op, 17, n_in, in, n_out);
    assert_non_null(made);
    return made;
}

static heed_value *op(heed_graph *g, const char *name, int n_in, heed_value *const *in)
{
    return node(g, name, n_in, in, 1)->outputs[0];
}

static heed_value *with_axis(heed_graph *g, const char *name, int64_t axis, int n_in, heed_value *const *in)
{
    heed_node *made = node(g, name, n_in, in, 1);
    assert_int_equal(heed_node_add_attr(g, made, &(heed_attr){ .name = "axis", .type = HEED_ATTR_INT, .i = axis }), HEED_OK);
    return made->outputs[0];
}

static void infer(heed_graph *g)
{
    assert_int_equal(heed_graph_bind(g), HEED_OK);
    if (heed_graph_infer(g) != HEED_OK) fail_msg("%s", heed_last_message());
    assert_int_equal(heed_graph_verify(g), HEED_OK);
}

static void expect_fact(heed_graph *g, const heed_value *v, const char *want)
{
    heed_text text = { .ctx = ctx };
    heed_fact_print(g, &v->fact, &text);
    assert_string_equal(text.data, want);
    heed_text_free(&text);
}

static void expect_entries(heed_graph *g, const heed_value *v, const char *want)
{
    heed_text text = { .ctx = ctx };
    assert_non_null(v->fact.ints);
    for (int k = 0; k < v->fact.n_ints; k++) {
        if (k) heed_text_add(&text, ", ");
        heed_dims_print(g->dims, v->fact.ints[k], &text);
    }
    assert_string_equal(text.data, want);
    heed_text_free(&text);
}

/* x.shape[axis] as torch writes it */
static heed_value *size_of(heed_graph *g, heed_value *x, int64_t axis)
{
    return with_axis(g, "Gather", 0, VALUES(op(g, "Shape", VALUES(x)), INT(g, axis)));
}

static heed_value *as_list(heed_graph *g, heed_value *scalar)
{
    return op(g, "Unsqueeze", VALUES(scalar, INTS(g, 0)));
}

/* view(B, S, 12, -1), transpose, back to (B, S, hidden) */
static void test_heads(void **state)
{
    (void) state;
    heed_graph *g = heed_graph_create(ctx);
    heed_value *x = input(g, "x", HEED_F32, "B, S, 768");
    heed_value *b = size_of(g, x, 0), *s = size_of(g, x, 1);
    heed_value *shape = with_axis(g, "Concat", 0, VALUES(as_list(g, b), as_list(g, s), INTS(g, 12), INTS(g, -1)));
    heed_value *heads = op(g, "Reshape", VALUES(x, shape));
    heed_node *turn = node(g, "Transpose", VALUES(heads), 1);
    heed_node_add_attr(g, turn,
                       &(heed_attr){ .name = "perm", .type = HEED_ATTR_INTS, .n = 4, .ints = (int64_t[]){ 0, 2, 1, 3 } });
    heed_value *flat =
        op(g, "Reshape",
           VALUES(turn->outputs[0],
                  with_axis(g, "Concat", 0, VALUES(op(g, "Mul", VALUES(as_list(g, b), INTS(g, 12))), INTS(g, -1, 64)))));
    heed_value *zero = op(g, "Reshape", VALUES(x, INTS(g, 0, 0, 12, 64))),
               *merged = op(g, "Reshape", VALUES(heads, INTS(g, 0, 0, -1)));
    infer(g);
    expect_fact(g, heads, "f32[B, S, 12, 64]");
    expect_fact(g, turn->outputs[0], "f32[B, 12, S, 64]");
    expect_fact(g, flat, "f32[12*B, S, 64]");
    expect_fact(g, zero, "f32[B, S, 12, 64]");
    expect_fact(g, merged, "f32[B, S, 768]");
    heed_graph_destroy(g);
}

/* What is on both sides of -1 goes away, however many sizes there are. */
static void test_many_symbols(void **state)
{
    (void) state;
    heed_graph *g = heed_graph_create(ctx);
    heed_value *x = input(g, "x", HEED_F32, "A, B, C, D, E, F, 6"),
               *first = op(g, "Slice", VALUES(op(g, "Shape", VALUES(x)), INTS(g, 0), INTS(g, 6)));
    heed_value *y = op(g, "Reshape", VALUES(x, with_axis(g, "Concat", 0, VALUES(first, INTS(g, -1, 2)))));
    infer(g);
    expect_fact(g, y, "f32[A, B, C, D, E, F, 3, 2]");
    heed_graph_destroy(g);
}

/* repeat_kv of TorchScript: Expand to Where(Equal(shape, -1), ones, shape), then Reshape */
static void test_repeat_kv(void **state)
{
    (void) state;
    heed_graph *g = heed_graph_create(ctx);
    heed_value *k = input(g, "k", HEED_F32, "B, 2, T, 64");
    heed_value *shape = with_axis(
        g, "Concat", 0, VALUES(as_list(g, size_of(g, k, 0)), INTS(g, 2), INTS(g, 7), as_list(g, size_of(g, k, 2)), INTS(g, 64)));
    heed_node *ones = node(g, "ConstantOfShape", VALUES(op(g, "Shape", VALUES(shape))), 1);
    heed_tensor one = heed_tensor_make(HEED_I64, 1, (int64_t[]){ 1 });
    one.data = (int64_t[]){ 1 };
    heed_node_add_attr(g, ones, &(heed_attr){ .name = "value", .type = HEED_ATTR_TENSOR, .t = &one });
    heed_value *minus = op(g, "Mul", VALUES(ones->outputs[0], INT(g, -1)));
    heed_value *noise = op(g, "Where", VALUES(op(g, "Equal", VALUES(shape, minus)), ones->outputs[0], shape));
    heed_value *wide = op(g, "Expand", VALUES(op(g, "Unsqueeze", VALUES(k, INTS(g, 2))), noise));
    heed_value *all =
        op(g, "Reshape",
           VALUES(wide, with_axis(g, "Concat", 0,
                                  VALUES(as_list(g, size_of(g, k, 0)), INTS(g, 14), as_list(g, size_of(g, k, 2)), INTS(g, 64)))));
    infer(g);
    expect_entries(g, noise, "B, 2, 7, T, 64");
    expect_fact(g, wide, "f32[B, 2, 7, T, 64]");
    expect_fact(g, all, "f32[B, 14, T, 64]");
    heed_graph_destroy(g);
}

/* A cache: Concat, the causal part of a mask by Slice, positions by Range. */
static void test_cache(void **state)
{
    (void) state;
    heed_graph *g = heed_graph_create(ctx);
    heed_value *past = input(g, "past", HEED_F32, "B, 4, past, 64"), *now = input(g, "k", HEED_F32, "B, 4, S, 64");
    heed_value *k = with_axis(g, "Concat", -2, VALUES(past, now)), *mask = input(g, "mask", HEED_F32, "1, 1, S, 4096");
    heed_value *n_past = size_of(g, past, 2), *total = size_of(g, k, 2), *s = op(g, "Sub", VALUES(total, n_past));
    heed_value *cut = op(
        g, "Slice", VALUES(input(g, "table", HEED_F32, "1, 1, total, total"), as_list(g, n_past), as_list(g, total), INTS(g, 2)));
    heed_value *left = op(g, "Slice", VALUES(mask, INTS(g, 0), as_list(g, total), INTS(g, 3)));
    heed_value *positions = op(g, "Range", VALUES(n_past, total, INT(g, 1)));
    heed_value *last = op(g, "Slice", VALUES(now, INTS(g, -1), INTS(g, INT64_MAX), INTS(g, 2), INTS(g, 1)));
    heed_value *rest = op(g, "Slice", VALUES(k, as_list(g, n_past), INTS(g, INT64_MAX), INTS(g, 2)));
    heed_value *half = op(g, "Div", VALUES(op(g, "Mul", VALUES(as_list(g, total), INTS(g, 6))), INTS(g, 3)));
    infer(g);
    expect_fact(g, k, "f32[B, 4, past + S, 64]");
    expect_entries(g, s, "S");
    expect_fact(g, positions, "i64[S]");
    expect_fact(g, rest, "f32[B, 4, S, 64]");
    expect_fact(g, left, "f32[1, 1, S, min(past + S, 4096)]");
    expect_entries(g, half, "2*past + 2*S");
    assert_int_equal(cut->fact.rank, 4);
    assert_int_equal(last->fact.rank, 4);
    heed_graph_destroy(g);
}

/* What comparisons of sizes prove. */
static void test_comparisons(void **state)
{
    (void) state;
    heed_graph *g = heed_graph_create(ctx);
    heed_value *x = input(g, "x", HEED_F32, "B, S");
    heed_value *s = as_list(g, size_of(g, x, 1)), *more = op(g, "Add", VALUES(s, INTS(g, 3)));
    heed_value *never = op(g, "Equal", VALUES(s, INTS(g, -1))), *less = op(g, "Less", VALUES(s, more)),
               *not_less = op(g, "GreaterOrEqual", VALUES(s, more));
    heed_value *open = op(g, "Equal", VALUES(s, INTS(g, 4))), *and = op(g, "And", VALUES(never, open)),
               * or = op(g, "Or", VALUES(op(g, "Not", VALUES(never)), open));
    heed_value *same = op(g, "Equal", VALUES(s, op(g, "Sub", VALUES(more, INTS(g, 3)))));
    heed_value *min = op(g, "Min", VALUES(s, more)), *mod = op(g, "Mod", VALUES(op(g, "Mul", VALUES(s, INTS(g, 8))), INTS(g, 4)));
    infer(g);
    expect_entries(g, never, "0");
    expect_entries(g, same, "1");
    expect_entries(g, less, "1");
    expect_entries(g, not_less, "0");
    assert_true(open->fact.ints[0] < 0 && !open->fact.value);
    expect_entries(g, and, "0");
    expect_entries(g, or, "1");
    expect_entries(g, min, "S");
    expect_entries(g, mod, "0");
    assert_non_null(never->fact.value); /* known entries are data too */
    assert_int_equal(never->fact.value->dtype, HEED_BOOL);
    heed_graph_destroy(g);
}

static void test_broadcast(void **state)
{
    (void) state;
    heed_graph *g = heed_graph_create(ctx);
    heed_value *x = input(g, "x", HEED_F32, "B, 1, S, 1"), *y = input(g, "y", HEED_F32, "H, S, 4");
    heed_value *table = input(g, "table", HEED_F32, "512, 4"), *n = as_list(g, size_of(g, x, 2));
    heed_value *sum = op(g, "Add", VALUES(x, y)), *positions = op(g, "Slice", VALUES(table, INTS(g, 0), n, INTS(g, 0)));
    heed_value *embedded = op(g, "Add", VALUES(y, positions));
    infer(g);
    expect_fact(g, sum, "f32[B, H, S, 4]");
    expect_fact(g, embedded, "f32[H, S, 4]"); /* S + min(S, 512) */
    heed_graph_destroy(g);
}

/* ---- joining with what the file declares ---- */

static void test_declared(void **state)
{
    (void) state;
    heed_graph *g = heed_graph_create(ctx);
    heed_value *x = input(g, "x", HEED_F32, "B, S"), *y = op(g, "NonZero", VALUES(x)), *z = op(g, "Relu", VALUES(x));
    y->fact.rank = 2, y->fact.dims[0] = heed_dims_named(g->dims, "r"), y->fact.dims[1] = heed_dims_named(g->dims, "found");
    z->fact.rank = 2, z->fact.dims[0] = 4, z->fact.dims[1] = heed_dims_named(g->dims, "other");
    infer(g);
    expect_fact(g, y, "i64[2, found]"); /* the rule knows one, the file the other */
    expect_fact(g, z, "f32[4, S]");
    infer(g); /* and again, with the same result */
    expect_fact(g, y, "i64[2, found]");
    heed_graph_destroy(g);

    g = heed_graph_create(ctx);
    x = input(g, "x", HEED_F32, "2, 3"), y = op(g, "Relu", VALUES(x));
    y->name = "y", y->fact.rank = 2, y->fact.dims[0] = 2, y->fact.dims[1] = 4;
    assert_int_equal(heed_graph_infer(g), HEED_ERR_ARGUMENT);
    assert_string_equal(heed_last_message(), "node 'Relu': value 'y': its size is 3, but was declared or found before to be 4");
    heed_graph_destroy(g);
}

static void test_unknown_operators(void **state)
{
    (void) state;
    heed_graph *g = heed_graph_create(ctx);
    heed_value *x = input(g, "x", HEED_F32, "2, 3");
    heed_node *made = node(g, "Frobnicate", VALUES(x), 1);
    made->name = "n7";
    assert_int_equal(heed_graph_bind(g), HEED_ERR_UNSUPPORTED);
    assert_string_equal(heed_last_message(), "node 'n7': operator 'Frobnicate' is not known");
    heed_graph_destroy(g);
    assert_null(heed_op_find("", "Mish", 17));
    assert_non_null(heed_op_find("", "Mish", 18));
    assert_int_equal(heed_op_missing("", "Mish", 17), HEED_ERR_UNSUPPORTED);
    assert_string_equal(heed_last_message(), "operator 'Mish' of opset 17 is older than opset 18, the first one known");
    assert_int_equal(heed_op_find("", "Squeeze", 12)->since, 11);
    assert_int_equal(heed_op_find("", "Squeeze", 28)->since, 13);
    g = heed_graph_create(ctx);
    x = input(g, "x", HEED_F32, "2, 3");
    node(g, "Add", VALUES(x), 1);
    assert_int_equal(heed_graph_bind(g), HEED_ERR_FORMAT);
    assert_string_equal(heed_last_message(), "node 'Add': Add: has 1 inputs, expected 2 to 2");
    heed_graph_destroy(g);
}

/* ---- If ---- */

static heed_graph *branch(heed_graph *outer, const char *shape, int64_t times)
{
    heed_graph *g = heed_graph_create_inner(outer);
    heed_value *x = input(g, "x", HEED_F32, shape);
    x->fact.rank = -1, x->fact.dtype = HEED_DTYPE_NONE; /* the node's inputs say */
    heed_graph_add_output(g, with_axis(g, "Concat", 1, (int) times, (heed_value *[]){ x, x, x }));
    return g;
}

static void test_if(void **state)
{
    (void) state;
    for (int known = 0; known < 2; known++) {
        heed_graph *g = heed_graph_create(ctx);
        heed_value *x = input(g, "x", HEED_F32, "B, S"), *c = input(g, "c", HEED_BOOL, "");
        heed_value *yes = op(g, "Equal", VALUES(INT(g, 1), INT(g, 1)));
        heed_node *made = node(g, "If", VALUES(known ? yes : c, x, x), 1);
        heed_graph *a = branch(g, "?", 2), *b = branch(g, "?", 3);
        heed_node_add_attr(g, made, &(heed_attr){ .name = "then_branch", .type = HEED_ATTR_GRAPH, .g = a });
        heed_node_add_attr(g, made, &(heed_attr){ .name = "else_branch", .type = HEED_ATTR_GRAPH, .g = b });
        assert_int_equal(heed_graph_bind(g), HEED_OK);
        if (heed_graph_infer(g) != HEED_OK) fail_msg("%s", heed_last_message());
        expect_fact(g, a->outputs[0], "f32[B, 2*S]");
        if (!known) expect_fact(g, b->outputs[0], "f32[B, 3*S]");
        const heed_fact *out = &made->outputs[0]->fact;
        assert_int_equal(out->rank, 2);
        assert_true(out->dims[0] == x->fact.dims[0]);
        assert_int_equal(out->dims[1] == a->outputs[0]->fact.dims[1], known);
        heed_graph_destroy(g);
    }
}

/* ---- evaluation ---- */

static void test_evaluate(void **state)
{
    (void) state;
    heed_graph *g = heed_graph_create(ctx);
    heed_value *x = INTS(g, 1, 2, 3, 4, 5, 6);
    heed_node *view = node(g, "Reshape", VALUES(x, INTS(g, 2, 3)), 1),
              *sum = node(g, "Add", VALUES(view->outputs[0], INTS(g, 10, 20, 30)), 1);
    const heed_tensor *out[1];
    assert_int_equal(heed_node_evaluate(g, view, out), HEED_OK);
    assert_ptr_equal(out[0]->data, x->fact.value->data); /* no copy where none is needed */
    view->outputs[0]->fact.value = out[0];
    assert_int_equal(heed_node_evaluate(g, sum, out), HEED_OK);
    assert_int_equal(heed_tensor_int(out[0], 5), 36);
    heed_node *huge = node(g, "Expand", VALUES(x, INTS(g, 1 << 30, 6)), 1),
              *open = node(g, "Relu", VALUES(input(g, "y", HEED_F32, "2")), 1);
    assert_int_equal(heed_node_evaluate(g, huge, out), HEED_ERR_UNSUPPORTED);
    assert_string_equal(heed_last_message(), "Expand: cannot be computed ahead: its result is too large");
    assert_int_equal(heed_node_evaluate(g, open, out), HEED_ERR_UNSUPPORTED);
    heed_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heads),    cmocka_unit_test(test_many_symbols),      cmocka_unit_test(test_repeat_kv),
        cmocka_unit_test(test_cache),    cmocka_unit_test(test_comparisons),       cmocka_unit_test(test_broadcast),
        cmocka_unit_test(test_declared), cmocka_unit_test(test_unknown_operators), cmocka_unit_test(test_if),
        cmocka_unit_test(test_evaluate),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
