/* Programs: what a replay may and may not do, on graphs of a few nodes. */
#include <math.h>
#include <stdio.h>
#include <time.h>

#include "exec/graph.h"

static unsigned seed;

static void fill_random(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = (float) rand() / (float) RAND_MAX - 0.5f;
}

struct fixture {
    struct counting memory;
    long live; /* what the context itself holds */
    heed_context *ctx;
    heed_graph *g;
    heed_program *p;
};

static void begin(struct fixture *f)
{
    f->ctx = test_context(&f->memory, 1);
    f->live = f->memory.n_live;
    f->g = heed_graph_create(f->ctx);
    f->p = NULL;
    assert_non_null(f->g);
}

/* Nothing is left behind. */
static void end(struct fixture *f)
{
    heed_program_destroy(f->p);
    heed_graph_destroy(f->g);
    assert_int_equal(f->memory.n_live, f->live);
    heed_context_destroy(f->ctx);
    assert_int_equal(f->memory.n_live, 0);
}

/* Make sure that a replay depends on nothing that an earlier run left. */
static void poison(heed_program *p)
{
    heed_program_segment_info info;
    for (int i = 0; heed_program_segment_get(p, i, &info); i++) {
        assert_true(heed_memplan_check(info.blocks, info.n_blocks, info.bytes));
        memset(info.memory, 0xff, info.bytes);
    }
}

static void test_chain_reuses_memory(void **state)
{
    (void) state;
    struct fixture f;
    begin(&f);
    int64_t dims[2] = { -1, 256 };
    heed_value *x = input(f.g, "x", HEED_F32, 2, dims), *v = x;
    for (int i = 0; i < 20; i++) {
        heed_value *e = op(f.g, "Exp", IN(op(f.g, "Neg", IN(v))));
        v = op(f.g, "Softmax", IN(op(f.g, "Add", IN(e, v))));
    }
    heed_graph_add_output(f.g, v);
    f.p = program_of(f.g);
    static float data[64 * 256];
    int64_t shape[2] = { 64, 256 };
    fill_random(data, 64 * 256);
    heed_tensor in = tensor(HEED_F32, 2, shape, data);
    assert_ok(heed_program_run(f.p, &in));
    heed_program_segment_info info;
    assert_true(heed_program_segment_get(f.p, 0, &info));
    assert_false(heed_program_segment_get(f.p, 1, &info));
    assert_true(info.bytes <= 4 * sizeof data);
    float first = at(heed_program_output(f.p, 0), 77);
    poison(f.p);
    long before = f.memory.n_allocs;
    assert_ok(heed_program_run(f.p, &in));
    assert_int_equal(f.memory.n_allocs, before);
    assert_true(at(heed_program_output(f.p, 0), 77) == first);
    end(&f);
}

/* Shapes change and change back, and the address of an input changes. */
static void test_shapes_change(void **state)
{
    (void) state;
    struct fixture f;
    begin(&f);
    int64_t dims[2] = { -1, -2 }, perm[2] = { 1, 0 }, flat = -1;
    heed_value *x = input(f.g, "x", HEED_F32, 2, dims);
    heed_value *t = op(f.g, "Transpose", IN(x));
    set_ints(f.g, t, "perm", 2, perm);
    heed_value *shape = op(f.g, "Shape", IN(t));
    heed_value *back = op(f.g, "Reshape", IN(op(f.g, "Reshape", IN(t, ints(f.g, 1, &flat))), shape));
    set_int(f.g, back, "allowzero", 1);
    heed_graph_add_output(f.g, op(f.g, "Add", IN(back, t)));
    f.p = program_of(f.g);
    float data[2][30];
    for (int round = 0; round < 12; round++) {
        int64_t sizes[3][2] = { { 3, 5 }, { 6, 2 }, { 0, 4 } }, *size = sizes[round / 2 % 3];
        float *from = data[round & 1];
        fill_random(from, 30);
        heed_tensor in = tensor(HEED_F32, 2, size, from);
        poison(f.p);
        long before = f.memory.n_allocs;
        assert_ok(heed_program_run(f.p, &in));
        if (round & 1) assert_int_equal(f.memory.n_allocs, before);
        const heed_tensor *out = heed_program_output(f.p, 0);
        assert_dims(out, 2, (int64_t[]){ size[1], size[0] });
        for (int64_t i = 0; i < size[0]; i++)
            for (int64_t j = 0; j < size[1]; j++) assert_true(at(out, j * size[0] + i) == 2 * from[i * size[1] + j]);
    }
    end(&f);
}

/* Steps that follow from shapes alone are done while recording. */
static void test_invariants_leave_the_replay(void **state)
{
    (void) state;
    struct fixture f;
    begin(&f);
    int64_t dims[2] = { -1, -2 };
    float zero = 0;
    int64_t one = 1;
    heed_value *x = input(f.g, "x", HEED_F32, 2, dims);
    heed_value *like = op(f.g, "ConstantOfShape", IN(op(f.g, "Shape", IN(x))));
    heed_attr value = { .name = "value", .type = HEED_ATTR_TENSOR, .n = 1 };
    heed_tensor t = tensor(HEED_F32, 1, &one, &zero);
    value.t = &t;
    assert_ok(heed_node_add_attr(f.g, like->producer, &value));
    heed_value *mask = op(f.g, "Exp", IN(like));
    heed_graph_add_output(f.g, op(f.g, "Mul", IN(op(f.g, "Exp", IN(mask)), x)));
    f.p = program_of(f.g);
    float data[6] = { 1, 2, 3, 4, 5, 6 };
    int64_t shape[2] = { 2, 3 };
    heed_tensor in = tensor(HEED_F32, 2, shape, data);
    for (int round = 0; round < 3; round++) {
        assert_ok(heed_program_run(f.p, &in));
        heed_program_segment_info info;
        assert_true(heed_program_segment_get(f.p, 0, &info));
        assert_int_equal(info.n_steps, 1);
        assert_true(fabsf(at(heed_program_output(f.p, 0), 5) - 6 * expf(1)) < 1e-4f);
        poison(f.p);
    }
    end(&f);
}

/* a is needed after b was made of it, so b may not overwrite it; c may overwrite b. */
static void test_overwriting_is_safe(void **state)
{
    (void) state;
    struct fixture f;
    begin(&f);
    int64_t n = 100, pair[2] = { 10, 10 };
    heed_value *x = input(f.g, "x", HEED_F32, 1, &n);
    heed_value *a = op(f.g, "Exp", IN(x));
    heed_value *b = op(f.g, "Neg", IN(a));
    heed_value *c = op(f.g, "Neg", IN(b));
    heed_value *sum = op(f.g, "Add", IN(op(f.g, "Sub", IN(a, b)), c));
    heed_value *square = op(f.g, "Reshape", IN(sum, ints(f.g, 2, pair)));
    heed_value *turned = op(f.g, "Transpose", IN(square));
    heed_graph_add_output(f.g, op(f.g, "Add", IN(op(f.g, "Mul", IN(square, square)), turned)));
    heed_graph_add_output(f.g, op(f.g, "Add", IN(square, turned)));
    f.p = program_of(f.g);
    float data[100];
    fill_random(data, n);
    heed_tensor in = tensor(HEED_F32, 1, &n, data);
    for (int round = 0; round < 2; round++) {
        assert_ok(heed_program_run(f.p, &in));
        for (int i = 0; i < 10; i++)
            for (int j = 0; j < 10; j++) {
                float s = 3 * expf(data[i * 10 + j]), t = 3 * expf(data[j * 10 + i]);
                assert_true(fabsf(at(heed_program_output(f.p, 0), i * 10 + j) - (s * s + t)) < 1e-3f);
                assert_true(fabsf(at(heed_program_output(f.p, 1), i * 10 + j) - (s + t)) < 1e-3f);
            }
        poison(f.p);
    }
    end(&f);
}

/* An output that is an input, a constant, a view, or twice the same. */
static void test_outputs_have_their_own_memory(void **state)
{
    (void) state;
    struct fixture f;
    begin(&f);
    int64_t dims[2] = { 2, 3 };
    float numbers[6] = { 9, 8, 7, 6, 5, 4 }, data[6] = { 1, 2, 3, 4, 5, 6 };
    heed_value *x = input(f.g, "x", HEED_F32, 2, dims), *k = constant(f.g, HEED_F32, 2, dims, numbers);
    heed_value *t = op(f.g, "Transpose", IN(x)), *e = op(f.g, "Neg", IN(x)), *et = op(f.g, "Transpose", IN(e));
    heed_value *outs[] = { x, k, t, e, e, et, x };
    for (int i = 0; i < 7; i++) assert_ok(heed_graph_add_output(f.g, outs[i]));
    f.p = program_of(f.g);
    heed_tensor in = tensor(HEED_F32, 2, dims, data);
    for (int round = 0; round < 2; round++) {
        assert_ok(heed_program_run(f.p, &in));
        const heed_tensor *o[7];
        for (int i = 0; i < 7; i++) o[i] = heed_program_output(f.p, i);
        assert_ptr_not_equal(o[0]->data, data);
        assert_ptr_not_equal(o[1]->data, k->fact.value->data);
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < 3; j++) {
                assert_true(at(o[0], i * 3 + j) == data[i * 3 + j] && at(o[6], i * 3 + j) == data[i * 3 + j]);
                assert_true(at(o[1], i * 3 + j) == numbers[i * 3 + j]);
                assert_true(at(o[2], j * 2 + i) == data[i * 3 + j]);
                assert_true(at(o[3], i * 3 + j) == -data[i * 3 + j] && at(o[4], i * 3 + j) == -data[i * 3 + j]);
                assert_true(at(o[5], j * 2 + i) == -data[i * 3 + j]);
            }
        poison(f.p);
    }
    end(&f);
}

/* The sizes after NonZero change with the data. */
static void test_shapes_that_depend_on_data(void **state)
{
    (void) state;
    struct fixture f;
    begin(&f);
    int64_t n = 8;
    heed_value *x = input(f.g, "x", HEED_F32, 1, &n);
    heed_value *y = op(f.g, "Neg", IN(x));
    heed_value *where = op(f.g, "Transpose", IN(op(f.g, "NonZero", IN(x))));
    heed_value *count = op(f.g, "Shape", IN(where));
    heed_value *picked = op(f.g, "GatherND", IN(y, where));
    heed_graph_add_output(f.g, op(f.g, "Exp", IN(picked)));
    heed_graph_add_output(f.g, count);
    heed_graph_add_output(f.g, op(f.g, "Neg", IN(y)));
    f.p = program_of(f.g);
    float data[4][8] = { { 0, 1, 0, 2, 0, 0, 3, 0 }, { 5, 0, 0, 0, 6, 7, 0, 0 }, { 0 }, { 1, 2, 3, 4, 5, 6, 7, 8 } };
    static const int order[] = { 0, 1, 0, 2, 3, 3, 2, 1 };
    for (size_t round = 0; round < sizeof order / sizeof *order; round++) {
        float *from = data[order[round]];
        heed_tensor in = tensor(HEED_F32, 1, &n, from);
        poison(f.p);
        assert_ok(heed_program_run(f.p, &in));
        const heed_tensor *out = heed_program_output(f.p, 0);
        int64_t k = 0;
        for (int i = 0; i < 8; i++)
            if (from[i] != 0) assert_true(fabsf(at(out, k++) - expf(-from[i])) < 1e-6f);
        assert_dims(out, 1, &k);
        assert_int_equal(heed_tensor_int(heed_program_output(f.p, 1), 0), k);
        for (int i = 0; i < 8; i++) assert_true(at(heed_program_output(f.p, 2), i) == from[i]);
    }
    end(&f);
}

/* The same shape in every run, other values: what a rule knows from data holds for that run alone. */
static void test_values_that_depend_on_data(void **state)
{
    (void) state;
    struct fixture f;
    begin(&f);
    int64_t three = 3, one = 1;
    heed_value *start = input(f.g, "start", HEED_I64, 0, NULL);
    heed_value *limit = op(f.g, "Add", IN(start, constant(f.g, HEED_I64, 0, NULL, &three)));
    heed_graph_add_output(f.g, op(f.g, "Range", IN(start, limit, constant(f.g, HEED_I64, 0, NULL, &one))));
    f.p = program_of(f.g);
    for (int64_t from = 0; from < 12; from += 5) {
        heed_tensor in = tensor(HEED_I64, 0, NULL, &from);
        assert_ok(heed_program_run(f.p, &in));
        assert_dims(heed_program_output(f.p, 0), 1, &three);
        for (int i = 0; i < 3; i++) assert_int_equal(heed_tensor_int(heed_program_output(f.p, 0), i), from + i);
    }
    end(&f);
}

/* One of y = x * c and y = Transpose(x), whose shapes differ; y is used inside and out. */
static heed_graph *branch(heed_graph *outer, int scaled)
{
    heed_graph *g = heed_graph_create_inner(outer);
    assert_non_null(g);
    heed_value *x = heed_graph_add_input(g, "x");
    heed_value *out = scaled ? op(g, "Mul", IN(x, scalar(g, 3))) : op(g, "Transpose", IN(x));
    assert_ok(heed_graph_add_output(g, out));
    return g;
}

static void add_if(struct fixture *f)
{
    int64_t dims[2] = { -1, -2 };
    heed_value *x = input(f->g, "x", HEED_F32, 2, dims), *c = input(f->g, "c", HEED_BOOL, 0, NULL);
    heed_value *y = op(f->g, "Neg", IN(x));
    heed_value *r = op(f->g, "If", IN(c, y, y));
    heed_attr attrs[2] = { { .name = "then_branch", .type = HEED_ATTR_GRAPH, .n = 1 },
                           { .name = "else_branch", .type = HEED_ATTR_GRAPH, .n = 1 } };
    attrs[0].g = branch(f->g, 1), attrs[1].g = branch(f->g, 0);
    for (int i = 0; i < 2; i++) assert_ok(heed_node_add_attr(f->g, r->producer, &attrs[i]));
    heed_graph_add_output(f->g, op(f->g, "Add", IN(r, scalar(f->g, 1))));
    heed_graph_add_output(f->g, r);
    heed_graph_add_output(f->g, op(f->g, "Neg", IN(y)));
}

static void test_if_both_ways(void **state)
{
    (void) state;
    struct fixture f;
    begin(&f);
    add_if(&f);
    f.p = program_of(f.g);
    float data[6];
    for (int round = 0; round < 12; round++) {
        unsigned char taken = (unsigned char) (round / 2 % 2);
        int64_t dims[2] = { round < 8 ? 2 : 3, round < 8 ? 3 : 2 };
        fill_random(data, 6);
        heed_tensor in[2] = { tensor(HEED_F32, 2, dims, data), tensor(HEED_BOOL, 0, NULL, &taken) };
        poison(f.p);
        assert_ok(heed_program_run(f.p, in));
        const heed_tensor *out = heed_program_output(f.p, 0), *inner = heed_program_output(f.p, 1);
        assert_dims(out, 2, (int64_t[]){ dims[!taken], dims[taken] });
        for (int i = 0; i < dims[0]; i++)
            for (int j = 0; j < dims[1]; j++) {
                float x = data[i * dims[1] + j], y = taken ? -3 * x : -x;
                int64_t where = taken ? i * dims[1] + j : j * dims[0] + i;
                assert_true(fabsf(at(out, where) - (y + 1)) < 1e-6f && at(inner, where) == y);
                assert_true(at(heed_program_output(f.p, 2), i * dims[1] + j) == x);
            }
    }
    end(&f);
}

/* Whatever allocation fails, the run says so, and the next one works. */
static void test_memory_may_run_out(void **state)
{
    (void) state;
    struct fixture f;
    begin(&f);
    int64_t dims[2] = { -1, 4 }, n = 3;
    heed_value *x = input(f.g, "x", HEED_F32, 2, dims);
    heed_value *where = op(f.g, "NonZero", IN(x));
    heed_value *shape = op(f.g, "Shape", IN(op(f.g, "Transpose", IN(x))));
    heed_value *flat = op(f.g, "Reshape", IN(op(f.g, "Transpose", IN(op(f.g, "Softmax", IN(x)))), shape));
    heed_graph_add_output(f.g, flat);
    heed_graph_add_output(f.g, where);
    f.p = program_of(f.g);
    float data[40] = { 1, 0, 2, 0, 1 };
    int failures = 0;
    for (long k = 0; k < 1000; k++, n = n == 3 ? 10 : 3) {
        dims[0] = n;
        heed_tensor in = tensor(HEED_F32, 2, dims, data);
        f.memory.fail_at = f.memory.n_allocs + k;
        heed_status status = heed_program_run(f.p, &in);
        int failed = f.memory.n_allocs > f.memory.fail_at;
        f.memory.fail_at = -1;
        if (!failed) {
            assert_int_equal(status, HEED_OK);
            break;
        }
        assert_int_equal(status, HEED_ERR_MEMORY);
        failures++;
        assert_ok(heed_program_run(f.p, &in));
        assert_dims(heed_program_output(f.p, 0), 2, (int64_t[]){ 4, n });
    }
    assert_true(failures > 5);
    end(&f);
}

static void test_errors_name_the_node(void **state)
{
    (void) state;
    struct fixture f;
    begin(&f);
    int64_t dims[1] = { -1 }, two[2] = { 2, -1 }, n = 5;
    heed_value *x = input(f.g, "x", HEED_F32, 1, dims);
    heed_graph_add_output(f.g, op(f.g, "Reshape", IN(x, ints(f.g, 2, two))));
    f.p = program_of(f.g);
    float data[6] = { 0 };
    heed_tensor in = tensor(HEED_F32, 1, &n, data);
    assert_int_equal(heed_program_run(f.p, &in), HEED_ERR_ARGUMENT);
    assert_non_null(strstr(heed_last_message(), "node 'Reshape_0'"));
    n = 6;
    in = tensor(HEED_F32, 1, &n, data);
    assert_ok(heed_program_run(f.p, &in));
    assert_dims(heed_program_output(f.p, 0), 2, (int64_t[]){ 2, 3 });
    end(&f);
}

/* Inputs of any strides. */
static void test_strided_inputs(void **state)
{
    (void) state;
    struct fixture f;
    begin(&f);
    int64_t dims[2] = { -1, -2 };
    heed_value *x = input(f.g, "x", HEED_F32, 2, dims);
    heed_graph_add_output(f.g, op(f.g, "Softmax", IN(x)));
    heed_graph_add_output(f.g, x);
    f.p = program_of(f.g);
    float data[6] = { 0, 1, 2, 3, 4, 5 };
    int64_t shape[2] = { 3, 2 };
    heed_tensor in = tensor(HEED_F32, 2, shape, data + 5);
    in.strides[0] = -1, in.strides[1] = -3; /* transposed and backwards: [5 2; 4 1; 3 0] */
    for (int round = 0; round < 2; round++) {
        assert_ok(heed_program_run(f.p, &in));
        assert_true(at(heed_program_output(f.p, 1), 0) == 5 && at(heed_program_output(f.p, 1), 1) == 2);
        assert_true(at(heed_program_output(f.p, 1), 4) == 3 && at(heed_program_output(f.p, 1), 5) == 0);
        for (int i = 0; i < 3; i++) assert_true(fabsf(at(heed_program_output(f.p, 0), 2 * i) - 1 / (1 + expf(-3))) < 1e-6f);
        poison(f.p);
    }
    end(&f);
}

int main(void)
{
    seed = (unsigned) time(NULL);
    printf("seed %u\n", seed);
    srand(seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain_reuses_memory),
        cmocka_unit_test(test_shapes_change),
        cmocka_unit_test(test_invariants_leave_the_replay),
        cmocka_unit_test(test_overwriting_is_safe),
        cmocka_unit_test(test_outputs_have_their_own_memory),
        cmocka_unit_test(test_shapes_that_depend_on_data),
        cmocka_unit_test(test_values_that_depend_on_data),
        cmocka_unit_test(test_if_both_ways),
        cmocka_unit_test(test_memory_may_run_out),
        cmocka_unit_test(test_errors_name_the_node),
        cmocka_unit_test(test_strided_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
