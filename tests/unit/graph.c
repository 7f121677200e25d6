/* Building, changing, checking, copying and printing graphs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/clone.h"
#include "graph/dims.h"
#include "graph/graph.h"
#include "unit/test.h"

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

static float weights[32] = { 1 };
static int64_t shape_data[4] = { 0, -1, 2, 4 };
static heed_tensor weight, shape;

static void set_fact(heed_graph *graph, heed_value *value, heed_dtype dtype, int rank, int64_t last)
{
    value->fact.dtype = dtype, value->fact.rank = rank;
    for (int i = 0; i < rank; i++) value->fact.dims[i] = i == rank - 1 ? last : heed_dims_named(graph->dims, "B");
}

/* x [B, 4] -> MatMul with weight [4, 8] -> Relu -> Reshape; then Add(x, x) that nothing uses. */
struct sample {
    heed_graph *graph;
    heed_value *x, *w, *target;
    heed_node *matmul, *relu, *reshape, *unused;
};

static struct sample make_sample(void)
{
    struct sample s = { .graph = heed_graph_create(ctx) };
    weight = heed_tensor_make(HEED_F32, 2, (int64_t[]){ 4, 8 }), weight.data = weights;
    shape = heed_tensor_make(HEED_I64, 1, (int64_t[]){ 4 }), shape.data = shape_data;
    s.x = heed_graph_add_input(s.graph, "x");
    set_fact(s.graph, s.x, HEED_F32, 2, 4);
    s.w = heed_graph_add_constant(s.graph, "w", &weight);
    s.target = heed_graph_add_constant(s.graph, NULL, &shape);
    s.matmul = heed_graph_add_node(s.graph, NULL, "", "MatMul", 17, 2, (heed_value *[]){ s.x, s.w }, 1);
    set_fact(s.graph, s.matmul->outputs[0], HEED_F32, 2, 8);
    s.reshape = heed_graph_add_node(s.graph, NULL, "", "Reshape", 17, 2, (heed_value *[]){ s.matmul->outputs[0], s.target }, 1);
    s.relu = heed_graph_add_node(s.graph, s.reshape, "", "Relu", 17, 1, &s.matmul->outputs[0], 1);
    assert_int_equal(heed_node_set_input(s.reshape, 0, s.relu->outputs[0]), HEED_OK);
    s.unused = heed_graph_add_node(s.graph, NULL, "my.domain", "Add", 1, 3, (heed_value *[]){ s.x, NULL, s.x }, 2);
    s.unused->outputs[1]->producer = NULL, s.unused->outputs[1] = NULL;
    s.reshape->outputs[0]->name = "y";
    assert_int_equal(heed_graph_add_output(s.graph, s.reshape->outputs[0]), HEED_OK);
    assert_int_equal(heed_graph_verify(s.graph), HEED_OK);
    return s;
}

static int count_nodes(const heed_graph *graph)
{
    int n = 0;
    for (const heed_node *node = graph->first; node; node = node->next) n++;
    return n;
}

static void test_build_and_change(void **state)
{
    (void) state;
    struct sample s = make_sample();
    assert_int_equal(count_nodes(s.graph), 4);
    assert_ptr_equal(s.matmul->next, s.relu);
    assert_ptr_equal(s.relu->next, s.reshape);
    assert_int_equal(s.x->n_uses, 3);
    assert_int_equal(s.matmul->outputs[0]->n_uses, 1);
    assert_true(heed_value_is_output(s.reshape->outputs[0]));
    assert_false(heed_value_is_output(s.x));
    assert_true(heed_node_is(s.relu, "Relu") && !heed_node_is(s.relu, "Add") && !heed_node_is(s.unused, "Add"));
    assert_true(heed_node_is_in(s.unused, "my.domain", "Add"));

    heed_graph_prune(s.graph);
    assert_int_equal(count_nodes(s.graph), 3);
    assert_int_equal(s.x->n_uses, 1);
    assert_int_equal(heed_graph_verify(s.graph), HEED_OK);

    assert_int_equal(heed_value_replace_uses(s.graph, s.relu->outputs[0], s.matmul->outputs[0]), HEED_OK);
    heed_graph_remove_node(s.graph, s.relu);
    assert_int_equal(heed_graph_verify(s.graph), HEED_OK);
    assert_int_equal(heed_value_replace_uses(s.graph, s.reshape->outputs[0], s.matmul->outputs[0]), HEED_OK);
    assert_string_equal(s.graph->output_names[0], "y");
    assert_ptr_equal(s.graph->outputs[0], s.matmul->outputs[0]);
    heed_graph_prune(s.graph);
    assert_int_equal(count_nodes(s.graph), 1);
    assert_ptr_equal(s.graph->first, s.graph->last);
    assert_int_equal(heed_node_set_input(s.matmul, 4, s.x), HEED_OK);
    assert_int_equal(s.matmul->n_inputs, 5);
    assert_null(s.matmul->inputs[3]);
    assert_int_equal(heed_graph_verify(s.graph), HEED_OK);
    heed_graph_destroy(s.graph);
}

static void test_attributes(void **state)
{
    (void) state;
    struct sample s = make_sample();
    char name[] = "perm", text[] = "tanh";
    int64_t perm[] = { 0, 2, 1 };
    const char *strings[] = { text, "b" };
    heed_attr attrs[] = {
        { .name = name, .type = HEED_ATTR_INTS, .n = 3, .ints = perm },
        { .name = "axis", .type = HEED_ATTR_INT, .i = -1 },
        { .name = "alpha", .type = HEED_ATTR_FLOAT, .f = 0.5f },
        { .name = "mode", .type = HEED_ATTR_STRING, .s = text },
        { .name = "names", .type = HEED_ATTR_STRINGS, .n = 2, .strings = strings },
        { .name = "none", .type = HEED_ATTR_FLOATS, .n = 0 },
        { .name = "value", .type = HEED_ATTR_TENSOR, .t = &shape },
    };
    for (size_t i = 0; i < sizeof attrs / sizeof *attrs; i++)
        assert_int_equal(heed_node_add_attr(s.graph, s.relu, &attrs[i]), HEED_OK);
    name[0] = 'x', text[0] = 'X', perm[1] = 9;
    assert_int_equal(heed_node_attr(s.relu, "perm")->ints[1], 2);
    assert_int_equal(heed_node_int(s.relu, "axis", 3), -1);
    assert_int_equal(heed_node_int(s.relu, "alpha", 3), 3); /* another type */
    assert_int_equal(heed_node_int(s.relu, "absent", 3), 3);
    assert_true(heed_node_float(s.relu, "alpha", 0) == 0.5f && heed_node_float(s.relu, "axis", 2) == 2);
    assert_string_equal(heed_node_string(s.relu, "mode", "none"), "tanh");
    assert_string_equal(heed_node_attr(s.relu, "names")->strings[0], "tanh");
    attrs[1].i = 7;
    assert_int_equal(heed_node_add_attr(s.graph, s.relu, &attrs[1]), HEED_OK);
    assert_int_equal(heed_node_int(s.relu, "axis", 3), 7);
    assert_int_equal(s.relu->n_attrs, 7);
    heed_graph_destroy(s.graph);
}

static char *print(const heed_graph *graph)
{
    heed_text text = { .ctx = graph->ctx };
    heed_graph_print(graph, &text);
    assert_false(text.failed);
    char *copy = strdup(text.data ? text.data : "");
    heed_text_free(&text);
    return copy;
}

static void test_print(void **state)
{
    (void) state;
    struct sample s = make_sample();
    s.matmul->name = "/layer.0/\x1b[31m\n";
    heed_attr attr = { .name = "axes", .type = HEED_ATTR_INTS, .n = 2, .ints = shape_data };
    assert_int_equal(heed_node_add_attr(s.graph, s.relu, &attr), HEED_OK);
    char *text = print(s.graph);
    assert_string_equal(text, "input %0 f32[B, 4] # x\n"
                              "output %4 ?[..] # y\n"
                              "constant %1 f32[4, 8] # w\n"
                              "%3 f32[B, 8] = MatMul(%0, %1) # /layer.0/\\x1b[31m\\x0a\n"
                              "%5 ?[..] = Relu(%3) {axes=[0, -1]}\n"
                              "%4 ?[..] = Reshape(%5, i64{0, -1, 2, 4})\n"
                              "%6 ?[..], _ = my.domain.Add(%0, _, %0)\n");
    free(text);
    heed_graph_destroy(s.graph);
}

static void test_clone_is_apart(void **state)
{
    (void) state;
    struct sample s = make_sample();
    s.relu->outputs[0]->fact.ints = shape_data, s.relu->outputs[0]->fact.n_ints = 1;
    char *before = print(s.graph);
    heed_graph *copy;
    assert_int_equal(heed_graph_clone(&copy, s.graph), HEED_OK);
    assert_int_equal(heed_graph_verify(copy), HEED_OK);
    char *same = print(copy);
    assert_string_equal(before, same);
    assert_int_equal(heed_dims_named(copy->dims, "B"), heed_dims_named(s.graph->dims, "B"));
    assert_ptr_equal(copy->values[s.w->id]->fact.value->data, weights);
    heed_graph_prune(copy);
    assert_int_equal(heed_value_replace_uses(copy, copy->outputs[0], copy->inputs[0]), HEED_OK);
    heed_graph_prune(copy);
    assert_null(copy->first);
    assert_int_equal(heed_graph_verify(copy), HEED_OK);
    assert_int_equal(heed_graph_verify(s.graph), HEED_OK);
    char *after = print(s.graph);
    assert_string_equal(before, after);
    free(before);
    free(same);
    free(after);
    heed_graph_destroy(copy);
    heed_graph_destroy(s.graph);
}

/* An If with a branch that takes one outer value, and the other none. */
static heed_node *add_if(struct sample *s)
{
    heed_graph *then_branch = heed_graph_create_inner(s->graph), *else_branch = heed_graph_create_inner(s->graph);
    heed_value *inside = heed_graph_add_input(then_branch, NULL);
    heed_node *neg = heed_graph_add_node(then_branch, NULL, "", "Neg", 17, 1, &inside, 1);
    heed_graph_add_node(then_branch, NULL, "", "Abs", 17, 1, &inside, 1);
    assert_int_equal(heed_graph_add_output(then_branch, neg->outputs[0]), HEED_OK);
    assert_int_equal(heed_graph_add_output(else_branch, heed_graph_add_constant(else_branch, "c", &weight)), HEED_OK);
    heed_value *condition = heed_graph_add_input(s->graph, "condition");
    heed_node *node = heed_graph_add_node(s->graph, NULL, "", "If", 17, 2, (heed_value *[]){ condition, s->x }, 1);
    heed_attr attrs[] = { { .name = "then_branch", .type = HEED_ATTR_GRAPH, .g = then_branch },
                          { .name = "else_branch", .type = HEED_ATTR_GRAPH, .g = else_branch } };
    assert_int_equal(heed_node_add_attr(s->graph, node, &attrs[0]), HEED_OK);
    assert_int_equal(heed_node_add_attr(s->graph, node, &attrs[1]), HEED_OK);
    assert_int_equal(heed_graph_add_output(s->graph, node->outputs[0]), HEED_OK);
    return node;
}

static void test_inner_graphs(void **state)
{
    (void) state;
    struct sample s = make_sample();
    heed_node *node = add_if(&s);
    assert_int_equal(heed_graph_verify(s.graph), HEED_OK);
    char *text = print(s.graph);
    assert_non_null(strstr(text, "If(%8, %0) {then_branch=graph, else_branch=graph}\n"
                                 "  then_branch:\n"
                                 "    input %0 ?[..]\n"
                                 "    output %1 ?[..]\n"
                                 "    %1 ?[..] = Neg(%0)\n"));
    heed_graph *copy;
    assert_int_equal(heed_graph_clone(&copy, s.graph), HEED_OK);
    assert_int_equal(heed_graph_verify(copy), HEED_OK);
    char *same = print(copy);
    assert_string_equal(text, same);
    heed_graph_prune(copy);
    assert_int_equal(heed_graph_verify(copy), HEED_OK);
    assert_int_equal(count_nodes(heed_node_attr(copy->last, "then_branch")->g), 1);
    assert_int_equal(count_nodes(heed_node_attr(node, "then_branch")->g), 2);
    free(text);
    free(same);
    heed_graph_destroy(copy);

    heed_node *inner = heed_node_attr(node, "then_branch")->g->first;
    inner->inputs[0]->n_uses--;
    assert_int_equal(heed_graph_verify(s.graph), HEED_ERR_INTERNAL);
    assert_non_null(strstr(heed_last_message(), "in graph 'then_branch': "));
    inner->inputs[0]->n_uses++;
    assert_int_equal(heed_node_set_input(node, 2, s.x), HEED_OK);
    assert_int_equal(heed_graph_verify(s.graph), HEED_ERR_INTERNAL);
    assert_non_null(strstr(heed_last_message(), "has 3 inputs, but its graphs and condition take 2"));
    heed_graph_destroy(s.graph);
}

/* ---- each invariant, broken by hand ---- */

static void break_value_id(struct sample *s)
{
    s->x->id = 3;
}
static void break_dtype(struct sample *s)
{
    s->x->fact.dtype = (heed_dtype) 99;
}
static void break_rank(struct sample *s)
{
    s->x->fact.rank = HEED_RANK_MAX + 1;
}
static void break_dimension(struct sample *s)
{
    s->x->fact.dims[0] = HEED_DIM_UNKNOWN;
}
static void break_entry(struct sample *s)
{
    static const int64_t ints[] = { -5000 };
    s->x->fact.ints = ints, s->x->fact.n_ints = 1;
}
static void break_constant_shape(struct sample *s)
{
    s->w->fact.dims[1] = 9;
}
static void break_constant_data(struct sample *s)
{
    weight.data = NULL;
    (void) s;
}
static void break_constant_layout(struct sample *s)
{
    weight.strides[0] = 1;
    (void) s;
}
static void break_input_made(struct sample *s)
{
    s->relu->outputs[0]->is_input = 1;
}
static void break_input_list(struct sample *s)
{
    s->x->is_input = 0;
}
static void break_input_twice(struct sample *s)
{
    static heed_value *twice[2];
    twice[0] = twice[1] = s->x;
    s->graph->inputs = twice, s->graph->n_inputs = 2;
}
static void break_input_name(struct sample *s)
{
    s->x->name = "";
}
static void break_node_id(struct sample *s)
{
    s->relu->id = s->matmul->id;
}
static void break_link(struct sample *s)
{
    s->relu->prev = NULL;
}
static void break_last(struct sample *s)
{
    s->graph->last = s->relu;
}
static void break_owner(struct sample *s)
{
    s->relu->graph = NULL;
}
static void break_order(struct sample *s)
{
    heed_node *m = s->matmul, *r = s->relu;
    s->graph->first = r, r->prev = NULL, r->next = m, m->prev = r, m->next = s->reshape, s->reshape->prev = m;
}
static void break_producer(struct sample *s)
{
    s->relu->outputs[0]->producer = s->matmul;
}
static void break_output_index(struct sample *s)
{
    s->relu->outputs[0]->output_index = 1;
}
static void break_one_definition(struct sample *s)
{
    static heed_value *outputs[2];
    outputs[0] = outputs[1] = s->relu->outputs[0];
    s->relu->outputs = outputs, s->relu->n_outputs = 2;
    heed_value *v = s->relu->outputs[0];
    v->output_index = 0;
}
static void break_foreign_value(struct sample *s)
{
    static heed_value foreign = { .id = 0 };
    s->relu->inputs[0] = &foreign;
}
static void break_missing_use(struct sample *s)
{
    s->matmul->outputs[0]->n_uses = 0;
}
static void break_stale_use(struct sample *s)
{
    s->x->uses[0].index = 1;
}
static void break_double_use(struct sample *s)
{
    s->x->uses[1] = s->x->uses[0];
}
static void break_dead_user(struct sample *s)
{
    heed_use use = s->w->uses[0];
    heed_value_replace_uses(s->graph, s->reshape->outputs[0], s->x);
    heed_graph_remove_node(s->graph, s->reshape);
    use.node = s->reshape;
    s->w->uses[0] = use;
}
static void break_graph_output(struct sample *s)
{
    s->graph->outputs[0] = NULL;
}

static void test_verify_catches(void **state)
{
    (void) state;
    static const struct {
        void (*break_it)(struct sample *s);
        const char *words;
    } cases[] = {
        { break_value_id, "another number" },
        { break_dtype, "type 99" },
        { break_rank, "rank is 9" },
        { break_dimension, "'x': dimension 0 is no symbol" },
        { break_entry, "entry 0 is no symbol" },
        { break_constant_shape, "'w': its data have another type or shape" },
        { break_constant_data, "missing" },
        { break_constant_layout, "not dense" },
        { break_input_made, "an input that a node makes" },
        { break_input_list, "input 0 is no input value" },
        { break_input_twice, "listed twice" },
        { break_input_name, "input 0 has no name" },
        { break_node_id, "there twice" },
        { break_link, "linked wrongly" },
        { break_last, "the last node" },
        { break_owner, "Relu '': is linked wrongly" },
        { break_order, "before it is made" },
        { break_producer, "another one makes it" },
        { break_output_index, "another one makes it" },
        { break_one_definition, "another one makes it" },
        { break_foreign_value, "not of this graph" },
        { break_missing_use, "has 1 uses, but lists 0" },
        { break_stale_use, "use 0 is not one" },
        { break_double_use, "use 1 is listed twice" },
        { break_dead_user, "use 0 is not one" },
        { break_graph_output, "output 0: is not there" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sample s = make_sample();
        cases[i].break_it(&s);
        assert_int_equal(heed_graph_verify(s.graph), HEED_ERR_INTERNAL);
        if (!strstr(heed_last_message(), cases[i].words))
            fail_msg("case %zu: '%s' does not say '%s'", i, heed_last_message(), cases[i].words);
        heed_graph_destroy(s.graph);
    }
}

/* ---- memory that runs out at any point ---- */

static int blocks_left;

static void *scarce_alloc(void *user, size_t align, size_t bytes)
{
    (void) user;
    return blocks_left-- > 0 ? aligned_alloc(align, (bytes + align - 1) / align * align) : NULL;
}

static void scarce_free(void *user, void *ptr)
{
    (void) user;
    free(ptr);
}

static heed_status build_large(const heed_context *scarce)
{
    heed_graph *graph = heed_graph_create(scarce), *copy = NULL;
    if (!graph) return HEED_ERR_MEMORY;
    heed_value *x = heed_graph_add_input(graph, "x");
    heed_status status = x ? HEED_OK : HEED_ERR_MEMORY;
    for (int i = 0; i < 2000 && !status; i++) {
        heed_node *node = heed_graph_add_node(graph, NULL, "", "Add", 17, 2, (heed_value *[]){ x, x }, 1);
        if (!node || heed_dims_add(graph->dims, heed_dims_fresh(graph->dims), i) == HEED_DIM_UNKNOWN) status = HEED_ERR_MEMORY;
        if (!status && i % 2) x = node->outputs[0];
    }
    if (!status) status = heed_graph_add_output(graph, x);
    if (!status) status = heed_graph_verify(graph);
    if (!status) status = heed_graph_clone(&copy, graph);
    heed_graph_destroy(copy);
    heed_graph_destroy(graph);
    return status;
}

static void test_memory_runs_out(void **state)
{
    (void) state;
    heed_context_desc desc;
    heed_context_desc_init(&desc);
    desc.allocator = (heed_allocator){ NULL, scarce_alloc, scarce_free };
    heed_context *scarce;
    blocks_left = 1000000;
    assert_int_equal(heed_context_create(&scarce, &desc), HEED_OK);
    int n = 0;
    heed_status status = HEED_ERR_MEMORY;
    for (; status == HEED_ERR_MEMORY; n++) {
        blocks_left = n;
        status = build_large(scarce);
    }
    assert_int_equal(status, HEED_OK);
    assert_true(n > 20);
    heed_context_destroy(scarce);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_build_and_change), cmocka_unit_test(test_attributes),   cmocka_unit_test(test_print),
        cmocka_unit_test(test_clone_is_apart),   cmocka_unit_test(test_inner_graphs), cmocka_unit_test(test_verify_catches),
        cmocka_unit_test(test_memory_runs_out),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
