/* Folding: what goes, what stays, and that the compiled graph still computes the same. */
#include <math.h>

#include "exec/graph.h"
#include "rewrite/pass.h"

struct fixture {
    struct counting memory;
    heed_context *ctx;
    heed_graph *g;
    heed_value *x; /* f32 [d1, 4] */
};

static void begin(struct fixture *f)
{
    f->ctx = test_context(&f->memory, 1);
    f->g = heed_graph_create(f->ctx);
    int64_t dims[2] = { -1, 4 };
    f->x = input(f->g, "x", HEED_F32, 2, dims);
}

static void end(struct fixture *f)
{
    heed_graph_destroy(f->g);
    heed_context_destroy(f->ctx);
    assert_int_equal(f->memory.n_live, 0);
}

static int count_nodes(const heed_graph *g)
{
    int n = 0;
    for (const heed_node *node = g->first; node; node = node->next) n++;
    return n;
}

/* Folds and returns how many nodes are left. */
static int fold(struct fixture *f)
{
    heed_rewriter rewriter = { .ctx = f->ctx, .graph = f->g };
    assert_ok(heed_graph_bind(f->g));
    assert_ok(heed_graph_infer(f->g));
    assert_ok(heed_pass_fold(&rewriter));
    heed_graph_prune(f->g);
    assert_ok(heed_graph_verify(f->g));
    assert_ok(heed_graph_infer(f->g));
    return count_nodes(f->g);
}

static void output(struct fixture *f, heed_value *v)
{
    assert_ok(heed_graph_add_output(f->g, v));
}

static void test_constants(void **state)
{
    (void) state;
    struct fixture f;
    begin(&f);
    heed_value *two = op(f.g, "Add", IN(scalar(f.g, 1), scalar(f.g, 1)));
    output(&f, op(f.g, "Mul", IN(f.x, op(f.g, "Mul", IN(two, scalar(f.g, 3))))));
    assert_int_equal(fold(&f), 1);
    const heed_value *six = f.g->first->inputs[1];
    assert_null(six->producer);
    assert_true(((const float *) six->fact.value->data)[0] == 6);
    end(&f);
}

/* A known size of a shape that is otherwise symbolic. */
static void test_known_shapes(void **state)
{
    (void) state;
    struct fixture f;
    begin(&f);
    int64_t index = 1, one = 1;
    heed_value *width = op(f.g, "Gather", IN(op(f.g, "Shape", IN(f.x)), constant(f.g, HEED_I64, 0, NULL, &index)));
    heed_value *row = op(f.g, "Unsqueeze", IN(width, ints(f.g, 1, (int64_t[]){ 0 })));
    heed_value *shape = op(f.g, "Concat", IN(ints(f.g, 1, &one), row));
    set_int(f.g, shape, "axis", 0);
    output(&f, op(f.g, "Expand", IN(f.x, shape)));
    output(&f, shape);
    assert_int_equal(fold(&f), 0);
    assert_ptr_equal(f.g->outputs[0], f.x);
    assert_int_equal(heed_tensor_int(f.g->outputs[1]->fact.value, 1), 4);
    end(&f);
}

static void test_identities(void **state)
{
    (void) state;
    struct fixture f;
    begin(&f);
    heed_value *v = op(f.g, "Identity", IN(f.x));
    v = op(f.g, "Cast", IN(v));
    set_int(f.g, v, "to", 1);
    v = op(f.g, "Reshape", IN(v, op(f.g, "Shape", IN(f.x))));
    v = op(f.g, "Transpose", IN(v));
    set_ints(f.g, v, "perm", 2, (int64_t[]){ 0, 1 });
    v = op(f.g, "Mul", IN(scalar(f.g, 1), v));
    v = op(f.g, "Div", IN(v, scalar(f.g, 1)));
    v = op(f.g, "Sub", IN(v, scalar(f.g, 0)));
    v = op(f.g, "Add", IN(v, scalar(f.g, -0.0f)));
    v = op(f.g, "Concat", IN(v));
    set_int(f.g, v, "axis", 0);
    v = op(f.g, "Slice",
           IN(v, ints(f.g, 1, (int64_t[]){ 0 }), ints(f.g, 1, (int64_t[]){ INT64_MAX }), ints(f.g, 1, (int64_t[]){ 0 })));
    v = op(f.g, "Dropout", IN(v));
    output(&f, op(f.g, "Neg", IN(v)));
    assert_int_equal(fold(&f), 1);
    assert_ptr_equal(f.g->first->inputs[0], f.x);
    end(&f);
}

/* Each of these looks like an identity and is none. */
static void test_not_identities(void **state)
{
    (void) state;
    struct fixture f;
    begin(&f);
    int64_t shape[3] = { 1, 1, 1 }, back = -1, large = INT64_MIN, axis = 0, wide = 4;
    float ones[4] = { 1, 1, 1, 1 }, one = 1;
    output(&f, op(f.g, "Add", IN(f.x, scalar(f.g, 0))));                          /* -0 + 0 is 0 */
    output(&f, op(f.g, "Mul", IN(f.x, constant(f.g, HEED_F32, 3, shape, &one)))); /* one rank more */
    output(&f, op(f.g, "Div", IN(scalar(f.g, 1), f.x)));
    output(&f, op(f.g, "Sub", IN(constant(f.g, HEED_F32, 1, &wide, (float[4]){ 0 }), f.x)));
    output(&f, op(f.g, "Slice", IN(f.x, ints(f.g, 1, &back), ints(f.g, 1, &large), ints(f.g, 1, &axis), ints(f.g, 1, &back))));
    heed_value *y = input(f.g, "y", HEED_F32, 1, (int64_t[]){ -3 });
    output(&f, op(f.g, "Mul", IN(y, constant(f.g, HEED_F32, 1, &wide, ones)))); /* y may have one element */
    heed_value *half = op(f.g, "Cast", IN(f.x));
    set_int(f.g, half, "to", 10);
    output(&f, half);
    assert_int_equal(fold(&f), 7);
    end(&f);
}

static void test_common_subexpressions(void **state)
{
    (void) state;
    struct fixture f;
    begin(&f);
    heed_value *v[4];
    for (int i = 0; i < 4; i++) {
        heed_value *e = op(f.g, "Exp", IN(op(f.g, "Mul", IN(f.x, scalar(f.g, i == 3 ? 3 : 2)))));
        v[i] = op(f.g, "Softmax", IN(e));
        set_int(f.g, v[i], "axis", i == 2 ? 0 : 1);
        output(&f, v[i]);
    }
    assert_int_equal(fold(&f), 7); /* Mul and Exp by 2 and by 3; Softmax of axis 1, of axis 0, and of the other Exp */
    assert_ptr_equal(f.g->outputs[0], f.g->outputs[1]);
    assert_ptr_not_equal(f.g->outputs[0], f.g->outputs[2]);
    assert_ptr_not_equal(f.g->outputs[0], f.g->outputs[3]);
    end(&f);
}

static heed_graph *branch(heed_graph *outer, const char *what)
{
    heed_graph *g = heed_graph_create_inner(outer);
    heed_value *x = heed_graph_add_input(g, "x"), *k = heed_graph_add_input(g, "k");
    heed_graph_add_output(g, op(g, what, IN(x, op(g, "Add", IN(k, scalar(g, 1))))));
    return g;
}

static heed_value *add_if(struct fixture *f, heed_value *condition, heed_value *k)
{
    heed_value *r = op(f->g, "If", IN(condition, f->x, k, f->x, k));
    heed_attr attrs[2] = { { .name = "then_branch", .type = HEED_ATTR_GRAPH, .n = 1 },
                           { .name = "else_branch", .type = HEED_ATTR_GRAPH, .n = 1 } };
    attrs[0].g = branch(f->g, "Mul"), attrs[1].g = branch(f->g, "Sub");
    for (int i = 0; i < 2; i++) assert_ok(heed_node_add_attr(f->g, r->producer, &attrs[i]));
    return r;
}

static void test_if_with_known_condition(void **state)
{
    (void) state;
    for (int taken = 0; taken < 2; taken++) {
        struct fixture f;
        begin(&f);
        int64_t n = taken ? 4 : 5, one = 1;
        heed_value *width = op(f.g, "Gather", IN(op(f.g, "Shape", IN(f.x)), constant(f.g, HEED_I64, 0, NULL, &one)));
        heed_value *condition = op(f.g, "Equal", IN(width, constant(f.g, HEED_I64, 0, NULL, &n)));
        output(&f, op(f.g, "Neg", IN(add_if(&f, condition, scalar(f.g, 2)))));
        assert_int_equal(fold(&f), 2);
        assert_string_equal(f.g->first->op, taken ? "Mul" : "Sub");
        assert_true(((const float *) f.g->first->inputs[1]->fact.value->data)[0] == 3);
        end(&f);
    }
}

/* Constants from outside fold in the branches of an If that stays. */
static void test_branches_fold(void **state)
{
    (void) state;
    struct fixture f;
    begin(&f);
    heed_value *condition = input(f.g, "c", HEED_BOOL, 0, NULL);
    output(&f, add_if(&f, condition, scalar(f.g, 2)));
    assert_int_equal(fold(&f), 1);
    assert_int_equal(count_nodes(heed_node_attr(f.g->first, "then_branch")->g), 1);
    assert_int_equal(count_nodes(heed_node_attr(f.g->first, "else_branch")->g), 1);
    heed_program *p = program_of(f.g);
    float data[4] = { 1, 2, 3, 4 };
    int64_t dims[2] = { 1, 4 };
    for (unsigned char taken = 0; taken < 2; taken++) {
        heed_tensor in[2] = { tensor(HEED_F32, 2, dims, data), tensor(HEED_BOOL, 0, NULL, &taken) };
        assert_ok(heed_program_run(p, in));
        for (int i = 0; i < 4; i++) assert_true(at(heed_program_output(p, 0), i) == (taken ? data[i] * 3 : data[i] - 3));
    }
    heed_program_destroy(p);
    end(&f);
}

/* A large broadcast stays a node, which costs nothing at run time. */
static void test_large_results_are_left(void **state)
{
    (void) state;
    struct fixture f;
    begin(&f);
    int64_t big[2] = { 1 << 20, 4 };
    size_t before = f.memory.bytes;
    output(&f, op(f.g, "Expand", IN(scalar(f.g, 1), ints(f.g, 2, big))));
    assert_int_equal(fold(&f), 1);
    assert_true(f.memory.bytes - before < 1 << 20);
    end(&f);
}

/* Random numbers are drawn anew in every run and by every node. */
static void test_random_is_left(void **state)
{
    (void) state;
    struct fixture f;
    begin(&f);
    int64_t n = 2000; /* more than inference computes on the way */
    heed_value *k = constant(f.g, HEED_F32, 1, &n, NULL);
    for (int i = 0; i < 2; i++) output(&f, op(f.g, "Exp", IN(k)));
    assert_ok(heed_graph_bind(f.g));
    heed_op random = *f.g->first->def;
    random.flags |= HEED_OP_RANDOM;
    for (heed_node *node = f.g->first; node; node = node->next) node->def = &random;
    assert_ok(heed_graph_infer(f.g));
    heed_rewriter rewriter = { .ctx = f.ctx, .graph = f.g };
    assert_ok(heed_pass_fold(&rewriter));
    assert_int_equal(count_nodes(f.g), 2);
    assert_int_equal(fold(&f), 0); /* bound to the real Exp again */
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_constants),
        cmocka_unit_test(test_known_shapes),
        cmocka_unit_test(test_identities),
        cmocka_unit_test(test_not_identities),
        cmocka_unit_test(test_common_subexpressions),
        cmocka_unit_test(test_if_with_known_condition),
        cmocka_unit_test(test_branches_fold),
        cmocka_unit_test(test_large_results_are_left),
        cmocka_unit_test(test_random_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
