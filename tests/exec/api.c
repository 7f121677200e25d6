/* heed/model.h from the outside: arguments and their messages, described inputs, runs with other shapes, threads. */
#include <heed/heed.h>
#include <math.h>
#include <stdio.h>

#include "exec/onnx.h"

#define assert_ok(call)                                                                                                          \
    do {                                                                                                                         \
        if ((call) != HEED_OK) fail_msg("%s: %s", #call, heed_last_message());                                                   \
    } while (0)
#define assert_fails(call, status, text)                                                                                         \
    do {                                                                                                                         \
        assert_int_equal(call, status);                                                                                          \
        assert_string_equal(heed_last_message(), text);                                                                          \
    } while (0)

struct objects {
    heed_context *ctx;
    heed_model *model;
    heed_compiled *compiled;
    heed_session *session;
};

/* z = softmax(a + b), p = a */
static bytes sample(void)
{
    bytes graph = { .n = 0 };
    put_node(&graph, "Add", "a,b", "sum");
    put_node(&graph, "Softmax", "sum", "z");
    put_node(&graph, "Identity", "a", "p");
    put_text(&graph, 2, "sample");
    put_value(&graph, 11, "a", ONNX_FLOAT, "batch,8");
    put_value(&graph, 11, "b", ONNX_FLOAT, "batch,1");
    put_value(&graph, 12, "z", ONNX_FLOAT, "batch,8");
    put_value(&graph, 12, "p", ONNX_FLOAT, "batch,8");
    return model_of(&graph, 17);
}

/* y = attention(q, k, v): all sizes are known but the batch */
static bytes attention(const char *batch)
{
    bytes graph = { .n = 0 };
    char dims[32];
    put_node(&graph, "Attention", "q,k,v", "y");
    put_text(&graph, 2, "attention");
    for (int i = 0; i < 3; i++) {
        snprintf(dims, sizeof dims, "%s,%d,6,16", batch, i ? 2 : 4);
        put_value(&graph, 11, (const char *[]){ "q", "k", "v" }[i], ONNX_FLOAT, dims);
    }
    put_value(&graph, 12, "y", ONNX_FLOAT, NULL);
    return model_of(&graph, 23);
}

static void open_file(struct objects *o, const bytes *file, int threads, int fuse)
{
    heed_context_desc desc;
    heed_context_desc_init(&desc);
    desc.n_threads = threads;
    assert_ok(heed_context_create(&o->ctx, &desc));
    assert_ok(heed_model_load_memory(&o->model, o->ctx, file->data, file->n, NULL));
    heed_compile_options options;
    heed_compile_options_init(&options);
    options.fuse = fuse;
    assert_ok(heed_compile(&o->compiled, o->model, &options));
    assert_ok(heed_session_create(&o->session, o->compiled));
}

static void open_sample(struct objects *o, int threads)
{
    bytes file = sample();
    open_file(o, &file, threads, 1);
}

static void close_objects(struct objects *o)
{
    heed_session_destroy(o->session);
    heed_compiled_destroy(o->compiled);
    heed_model_destroy(o->model);
    heed_context_destroy(o->ctx);
}

static DLTensor array(void *data, int ndim, int64_t *shape)
{
    return (DLTensor){ .data = data, .device = { kDLCPU, 0 }, .ndim = ndim, .dtype = { kDLFloat, 32, 1 }, .shape = shape };
}

static void test_described(void **state)
{
    (void) state;
    struct objects o;
    open_sample(&o, 1);
    assert_int_equal(heed_model_input_count(o.model), 2);
    assert_int_equal(heed_model_output_count(o.model), 2);
    heed_value_info info = { .struct_size = sizeof info };
    assert_ok(heed_model_input(o.model, 0, &info));
    assert_string_equal(info.name, "a");
    assert_int_equal(info.ndim, 2);
    assert_int_equal(info.shape[0], -1);
    assert_string_equal(info.dim_names[0], "batch");
    assert_int_equal(info.shape[1], 8);
    assert_null(info.dim_names[1]);
    assert_int_equal(info.dtype.code, kDLFloat);
    assert_ok(heed_model_output(o.model, 0, &info));
    assert_string_equal(info.name, "z");
    assert_fails(heed_model_output(o.model, 2, &info), HEED_ERR_ARGUMENT, "index: is 2, the model has 2 outputs");
    const char *text;
    assert_ok(heed_compiled_print(o.compiled, &text));
    assert_non_null(strstr(text, "Softmax("));
    assert_null(strstr(text, "Identity("));
    assert_int_equal(heed_compiled_attention_count(o.compiled), 0);
    close_objects(&o);
}

static void test_run_and_other_shapes(void **state)
{
    (void) state;
    struct objects o;
    open_sample(&o, 1);
    float a[24], b[3] = { 1, 2, 3 };
    for (int i = 0; i < 24; i++) a[i] = (float) (i % 5);
    for (int round = 0; round < 6; round++) {
        int64_t n = round % 3 == 2 ? 0 : 1 + round % 3 * 2, shape_a[2] = { n, 8 }, shape_b[2] = { n, 1 };
        DLTensor ta = array(a, 2, shape_a), tb = array(b, 2, shape_b);
        assert_ok(heed_session_set_input(o.session, "a", &ta));
        assert_ok(heed_session_set_input(o.session, "b", &tb));
        assert_ok(heed_session_run(o.session));
        const DLTensor *z, *p;
        assert_ok(heed_session_output(o.session, 0, &z));
        assert_ok(heed_session_output(o.session, 1, &p));
        assert_int_equal(z->ndim, 2);
        assert_int_equal(z->shape[0], n);
        assert_int_equal(z->strides[0], 8);
        assert_ptr_not_equal(p->data, a);
        for (int64_t i = 0; i < n; i++) {
            float sum = 0;
            for (int j = 0; j < 8; j++) sum += ((float *) z->data)[i * 8 + j];
            assert_true(fabsf(sum - 1) < 1e-5f);
            assert_true(((float *) p->data)[i * 8 + 3] == a[i * 8 + 3]);
        }
    }
    close_objects(&o);
}

static void test_inputs_are_checked(void **state)
{
    (void) state;
    struct objects o;
    open_sample(&o, 1);
    float data[64] = { 0 };
    int64_t shape[2] = { 2, 8 }, column[2] = { 3, 1 };
    DLTensor t = array(data, 2, shape);
    assert_fails(heed_session_set_input(o.session, "c", &t), HEED_ERR_ARGUMENT,
                 "input 'c': the model has no such input; it has 'a', 'b'");
    t.dtype.code = kDLInt;
    assert_fails(heed_session_set_input(o.session, "a", &t), HEED_ERR_ARGUMENT, "input 'a': type is i32, expected f32");
    t.dtype.code = kDLFloat, shape[1] = 7;
    assert_fails(heed_session_set_input(o.session, "a", &t), HEED_ERR_ARGUMENT, "input 'a': dimension 1 is 7, expected 8");
    t.ndim = 1;
    assert_fails(heed_session_set_input(o.session, "a", &t), HEED_ERR_ARGUMENT, "input 'a': rank is 1, expected 2");
    t.ndim = 2, shape[1] = 8;
    assert_ok(heed_session_set_input(o.session, "a", &t));
    assert_fails(heed_session_run(o.session), HEED_ERR_ARGUMENT, "input 'b' is not set");
    DLTensor b = array(data, 2, column);
    assert_ok(heed_session_set_input(o.session, "b", &b));
    assert_fails(heed_session_run(o.session), HEED_ERR_ARGUMENT, "dimension 'batch' is 2 in 'a' and 3 in 'b'");
    const DLTensor *out;
    assert_fails(heed_session_output(o.session, 0, &out), HEED_ERR_ARGUMENT,
                 "session: no run has succeeded yet, or the last one failed");
    column[0] = 2;
    assert_ok(heed_session_set_input(o.session, "b", &b));
    assert_ok(heed_session_run(o.session));
    assert_ok(heed_session_output(o.session, 0, &out));
    assert_fails(heed_session_output(o.session, -1, &out), HEED_ERR_ARGUMENT, "index: is -1, the model has 2 outputs");
    assert_null(out);
    close_objects(&o);
}

static void test_null_arguments(void **state)
{
    (void) state;
    struct objects o;
    open_sample(&o, 1);
    heed_model *model;
    heed_compiled *compiled;
    heed_session *session;
    heed_value_info info = { .struct_size = 0 };
    heed_compile_options options = { .struct_size = 1 };
    heed_attention_report report = { .struct_size = sizeof report };
    const char *text;
    assert_int_equal(heed_model_load(NULL, o.ctx, "x"), HEED_ERR_ARGUMENT);
    assert_int_equal(heed_model_load(&model, NULL, "x"), HEED_ERR_ARGUMENT);
    assert_int_equal(heed_model_load(&model, o.ctx, NULL), HEED_ERR_ARGUMENT);
    assert_int_equal(heed_model_load(&model, o.ctx, "/no/such/file.onnx"), HEED_ERR_FILE);
    assert_null(model);
    assert_int_equal(heed_model_load_memory(&model, o.ctx, NULL, 3, NULL), HEED_ERR_ARGUMENT);
    assert_int_equal(heed_model_load_memory(&model, o.ctx, "\xff\xff\xff", 3, NULL), HEED_ERR_FORMAT);
    assert_int_equal(heed_model_input(o.model, 0, NULL), HEED_ERR_ARGUMENT);
    assert_fails(heed_model_input(o.model, 0, &info), HEED_ERR_ARGUMENT,
                 "info: struct_size is 0; set it to sizeof(heed_value_info)");
    assert_int_equal(heed_compile(NULL, o.model, NULL), HEED_ERR_ARGUMENT);
    assert_int_equal(heed_compile(&compiled, NULL, NULL), HEED_ERR_ARGUMENT);
    assert_int_equal(heed_compile(&compiled, o.model, &options), HEED_ERR_ARGUMENT);
    assert_int_equal(heed_compiled_attention(o.compiled, 0, &report), HEED_ERR_ARGUMENT);
    assert_int_equal(heed_compiled_print(NULL, &text), HEED_ERR_ARGUMENT);
    assert_int_equal(heed_session_create(&session, NULL), HEED_ERR_ARGUMENT);
    assert_int_equal(heed_session_set_input(o.session, "a", NULL), HEED_ERR_ARGUMENT);
    assert_int_equal(heed_session_set_input(o.session, NULL, NULL), HEED_ERR_ARGUMENT);
    assert_int_equal(heed_session_run(NULL), HEED_ERR_ARGUMENT);
    assert_int_equal(heed_session_attention_kernel(o.session, 0, &text), HEED_ERR_ARGUMENT);
    heed_session_destroy(NULL);
    heed_compiled_destroy(NULL);
    heed_model_destroy(NULL);
    close_objects(&o);
}

/* Bits do not depend on the number of threads, and two sessions of one compiled model do not disturb each other. */
static void test_threads_and_sessions(void **state)
{
    (void) state;
    enum { ROWS = 5000 };
    static float a[ROWS * 8], b[ROWS];
    for (int i = 0; i < ROWS * 8; i++) a[i] = (float) (i * 37 % 101) / 17;
    struct objects o[2];
    heed_session *other = NULL;
    const DLTensor *out[3];
    int64_t shape_a[2] = { ROWS, 8 }, shape_b[2] = { ROWS, 1 };
    DLTensor ta = array(a, 2, shape_a), tb = array(b, 2, shape_b);
    for (int i = 0; i < 2; i++) open_sample(&o[i], i + 1);
    assert_ok(heed_session_create(&other, o[1].compiled));
    heed_session *sessions[3] = { o[0].session, o[1].session, other };
    for (int i = 0; i < 3; i++) {
        assert_ok(heed_session_set_input(sessions[i], "a", &ta));
        assert_ok(heed_session_set_input(sessions[i], "b", &tb));
        assert_ok(heed_session_run(sessions[i]));
        assert_ok(heed_session_output(sessions[i], 0, &out[i]));
    }
    for (int i = 1; i < 3; i++) assert_memory_equal(out[0]->data, out[i]->data, sizeof a);
    heed_session_destroy(other);
    for (int i = 0; i < 2; i++) close_objects(&o[i]);
}

/* The report says what is known before the run; the session, what ran. Fused and unfused agree. */
static void test_attention_is_reported(void **state)
{
    (void) state;
    float data[3][2 * 4 * 6 * 16], first[2 * 4 * 6 * 16];
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 2 * 4 * 6 * 16; j++) data[i][j] = sinf((float) (i * 1000 + j));
    for (int symbolic = 0; symbolic < 2; symbolic++) {
        for (int fuse = 0; fuse < 2; fuse++) {
            struct objects o;
            bytes file = attention(symbolic ? "batch" : "2");
            open_file(&o, &file, 1, fuse);
            assert_int_equal(heed_compiled_attention_count(o.compiled), fuse);
            heed_attention_report report = { .struct_size = sizeof report };
            const char *kernel;
            if (fuse) {
                assert_ok(heed_compiled_attention(o.compiled, 0, &report));
                assert_true(report.fused);
                assert_string_equal(report.node, "make_y");
                assert_string_equal(report.shapes,
                                    symbolic ? "q [batch, 4, 6, 16] k [batch, 2, 6, 16] v [batch, 2, 6, 16] f32, scale 0.25"
                                             : "q [2, 4, 6, 16] k [2, 2, 6, 16] v [2, 2, 6, 16] f32, scale 0.25");
                assert_int_equal(report.kernel[0] == 0, symbolic);
                assert_int_equal(report.why[0] == 0, symbolic);
                assert_ok(heed_session_attention_kernel(o.session, 0, &kernel));
                assert_string_equal(kernel, "");
            }
            for (int i = 0; i < 3; i++) {
                int64_t shape[4] = { 2, i ? 2 : 4, 6, 16 };
                DLTensor t = array(data[i], 4, shape);
                assert_ok(heed_session_set_input(o.session, (const char *[]){ "q", "k", "v" }[i], &t));
            }
            assert_ok(heed_session_run(o.session));
            const DLTensor *y;
            assert_ok(heed_session_output(o.session, 0, &y));
            if (fuse) {
                assert_ok(heed_session_attention_kernel(o.session, 0, &kernel));
                assert_true(strlen(kernel) > 0);
                assert_string_not_equal(kernel, "explode");
            }
            if (!symbolic && !fuse) memcpy(first, y->data, sizeof first);
            for (size_t i = 0; i < sizeof first / sizeof *first; i++)
                assert_true(fabsf(((float *) y->data)[i] - first[i]) < 1e-5f);
            close_objects(&o);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_described),
        cmocka_unit_test(test_run_and_other_shapes),
        cmocka_unit_test(test_inputs_are_checked),
        cmocka_unit_test(test_null_arguments),
        cmocka_unit_test(test_threads_and_sessions),
        cmocka_unit_test(test_attention_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
