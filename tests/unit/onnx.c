/* From ONNX files to graphs: every form that is read, every refusal. */
#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "graph/clone.h"
#include "graph/dims.h"
#include "onnx/build.h"
#include "onnx/import.h"
#include "unit/test.h"

static heed_context *ctx;
static builder b;

static int open_context(void **state)
{
    (void) state;
    return heed_context_create(&ctx, NULL);
}

static int close_context(void **state)
{
    (void) state;
    heed_context_destroy(ctx);
    return 0;
}

static int start(void **state)
{
    (void) state;
    b = b_start(ctx);
    return 0;
}

static int end(void **state)
{
    (void) state;
    b_end(&b);
    return 0;
}

/* The graph of what was built, which must be right. */
static heed_onnx_model *import_in(const char *folder)
{
    size_t bytes;
    void *data = b_pack(&b, &bytes);
    heed_onnx_model *model;
    heed_status status = heed_onnx_import(&model, ctx, data, bytes, "m.onnx", folder);
    if (status) fail_msg("%s", heed_last_message());
    memset(data, 0xee, bytes); /* it is not needed any more */
    if (heed_graph_verify(heed_onnx_graph(model))) fail_msg("%s", heed_last_message());
    return model;
}

static heed_onnx_model *import(void)
{
    return import_in(NULL);
}

static void assert_refused_in(const char *folder, heed_status expected, const char *words)
{
    size_t bytes;
    void *data = b_pack(&b, &bytes);
    heed_onnx_model *model = (heed_onnx_model *) &bytes;
    heed_status status = heed_onnx_import(&model, ctx, data, bytes, "m.onnx", folder);
    assert_null(model);
    if (status != expected || strncmp(heed_last_message(), "m.onnx: ", 8) != 0 || !strstr(heed_last_message(), words))
        fail_msg("status %d, '%s', expected %d, '%s'", status, heed_last_message(), expected, words);
}

static void assert_refused(heed_status expected, const char *words)
{
    assert_refused_in(NULL, expected, words);
}

static void assert_prints(const heed_graph *graph, const char *words)
{
    heed_text text = { .ctx = ctx };
    heed_graph_print(graph, &text);
    assert_string_equal(text.data, words);
    heed_text_free(&text);
}

static const heed_value *find_value(const heed_graph *graph, const char *name)
{
    for (int i = 0; i < graph->n_values; i++)
        if (graph->values[i]->name && strcmp(graph->values[i]->name, name) == 0) return graph->values[i];
    fail_msg("no value '%s'", name);
    return NULL;
}

/* ---- plain graphs ---- */

static void test_facts_and_names(void **state)
{
    (void) state;
    b.graph->name = "main";
    b_input(&b, "x", T_FLOAT, "batch 4 ? -1");
    b_input(&b, "mask", T_BOOL, NULL);
    b_input(&b, "w", T_FLOAT, "4"); /* has a value below */
    b_initializer(&b, b.graph, "w", T_FLOAT, "0");
    b_node(&b, b.graph, "Clip", "x _ w", "y _")->name = "clip/1";
    b_node(&b, b.graph, "Where", "mask y x", "z")->domain = "ai.onnx";
    pb_value *info = b_value(&b, "y", T_FLOAT, "batch 4"), *other = b_value(&b, "nobody", T_FLOAT, "1");
    B_PUSH(&b, b.graph, value_info, info);
    B_PUSH(&b, b.graph, value_info, other);
    b_output(&b, b.graph, "z");
    b_output(&b, b.graph, "x"); /* straight through */
    b_output(&b, b.graph, "w");
    heed_onnx_model *model = import();
    const heed_graph *graph = heed_onnx_graph(model);
    assert_prints(graph, "input %0 f32[batch, 4, ?0, ?1] # x\n"
                         "input %1 bool[..] # mask\n"
                         "output %5 ?[..] # z\n"
                         "output %0 f32[batch, 4, ?0, ?1] # x\n"
                         "output f32{} f32[0] # w\n"
                         "%3 f32[batch, 4], _ = Clip(%0, _, f32{}) # clip/1\n"
                         "%5 ?[..] = Where(%1, %3, %0)\n");
    assert_string_equal(graph->name, "main");
    assert_string_equal(graph->first->name, "clip/1");
    assert_null(graph->last->name);
    assert_string_equal(graph->last->domain, "");
    assert_int_equal(graph->first->version, 17);
    assert_string_equal(graph->outputs[0]->name, "z");
    heed_onnx_destroy(model);
}

static void test_versions(void **state)
{
    (void) state;
    b_opset(&b, &b.model->n_opset_import, &b.model->opset_import, "com.microsoft", 3);
    b_opset(&b, &b.model->n_opset_import, &b.model->opset_import, "ai.onnx.ml", 4);
    b_input(&b, "x", T_FLOAT, "1");
    b_node(&b, b.graph, "Gelu", "x", "a")->domain = "com.microsoft";
    b_node(&b, b.graph, "Scaler", "a", "b")->domain = "ai.onnx.ml";
    b_node(&b, b.graph, "Other", "b", "c")->domain = "not.listed";
    b_node(&b, b.graph, "Relu", "c", "d");
    b_output(&b, b.graph, "d");
    heed_onnx_model *model = import();
    const heed_node *node = heed_onnx_graph(model)->first;
    assert_true(heed_node_is_in(node, "com.microsoft", "Gelu") && node->version == 3);
    assert_true(heed_node_is_in(node->next, "ai.onnx.ml", "Scaler") && node->next->version == 4);
    assert_true(node->next->next->version == 1);
    assert_true(heed_node_is(node->next->next->next, "Relu") && heed_onnx_graph(model)->last->version == 17);
    heed_onnx_destroy(model);

    pb_opset *opset = b.model->opset_import[0];
    opset->domain = "ai.onnx", opset->version = 11;
    heed_onnx_destroy(import());
    opset->version = 28;
    heed_onnx_destroy(import());
    opset->version = 10;
    assert_refused(HEED_ERR_UNSUPPORTED, "opset 10 is not supported, expected 11 to 28");
    opset->version = 29;
    assert_refused(HEED_ERR_UNSUPPORTED, "opset 29");
    opset->version = -5;
    assert_refused(HEED_ERR_UNSUPPORTED, "opset -5");
    opset->domain = "other";
    assert_refused(HEED_ERR_FORMAT, "no opset version is given");
    opset->domain = "", opset->version = 17, b.model->ir_version = 13;
    heed_onnx_destroy(import());
    b.model->ir_version = 14;
    assert_refused(HEED_ERR_UNSUPPORTED, "IR version 14");
    b.model->ir_version = 8;
    for (int i = 0; i < 300; i++) b_opset(&b, &b.model->n_opset_import, &b.model->opset_import, "many", 1);
    assert_refused(HEED_ERR_FORMAT, "opsets");
}

static void test_order(void **state)
{
    (void) state;
    b_input(&b, "x", T_FLOAT, "1");
    b_node(&b, b.graph, "C", "b a", "c");
    b_node(&b, b.graph, "B", "a", "b");
    b_node(&b, b.graph, "A", "x", "a");
    b_node(&b, b.graph, "D", "x", "d");
    b_output(&b, b.graph, "c");
    heed_onnx_model *model = import();
    const heed_node *node = heed_onnx_graph(model)->first;
    for (const char *op = "ABCD"; *op; op++, node = node->next) assert_int_equal(node->op[0], *op);
    heed_onnx_destroy(model);
}

/* As many nodes as a large unrolled model has, last one first, and one value that all of them use. */
static void test_many_nodes(void **state)
{
    (void) state;
    enum { N = 50000 };
    char in[64], out[32];
    b_input(&b, "n0", T_FLOAT, "1");
    for (int i = N; i > 0; i--) {
        snprintf(in, sizeof in, "n%d n0 w", i - 1);
        snprintf(out, sizeof out, "n%d", i);
        b_node(&b, b.graph, "Sum", in, out);
    }
    float one = 1;
    b_raw(b_initializer(&b, b.graph, "w", T_FLOAT, ""), &one, sizeof one);
    snprintf(out, sizeof out, "n%d", N);
    b_output(&b, b.graph, out);
    heed_onnx_model *model = import();
    assert_int_equal(heed_onnx_graph(model)->inputs[0]->n_uses, N + 1);
    heed_onnx_destroy(model);
}

static void test_names_are_untrusted(void **state)
{
    (void) state;
    size_t n = 100000;
    char *name = b_alloc(&b, n + 1);
    memset(name, 'n', n);
    b_input(&b, name, T_FLOAT, "\xff\xfe\x01");
    b_node(&b, b.graph, "\x1b[2J\n", name, "\xc3\x28\t")->name = name;
    b_output(&b, b.graph, "\xc3\x28\t");
    heed_onnx_model *model = import();
    const heed_graph *graph = heed_onnx_graph(model);
    assert_string_equal(graph->first->name, name);
    heed_text text = { .ctx = ctx };
    heed_graph_print(graph, &text);
    for (const char *at = text.data; *at; at++) assert_true((unsigned char) *at >= 0x20 || *at == '\n');
    heed_text_free(&text);
    heed_onnx_destroy(model);
    b_node(&b, b.graph, "A", "\n\x02", "out")->name = name;
    assert_refused(HEED_ERR_FORMAT, "is not defined");
}

static void test_structure_is_checked(void **state)
{
    (void) state;
    static const struct {
        const char *op, *in, *out, *words;
    } cases[] = {
        { "Add", "x nowhere", "z", "node '#1' (Add): value 'nowhere' is not defined" },
        { "Add", "x", "y", "value 'y' is defined twice" },
        { "Add", "x", "x", "value 'x' is defined twice" },
        { "Add", "x", "w", "value 'w' is defined twice" },
        { "Add", "x", "z z", "value 'z' is defined twice" },
        { "Add", "z", "z", "node '' (Add): its input depends on its own output" },
        { "", "x", "z", "has no operator" },
    };
    float one = 1;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        b_end(&b);
        b = b_start(ctx);
        b_input(&b, "x", T_FLOAT, "1");
        b_raw(b_initializer(&b, b.graph, "w", T_FLOAT, ""), &one, sizeof one);
        b_node(&b, b.graph, "Relu", "x", "y");
        b_node(&b, b.graph, cases[i].op, cases[i].in, cases[i].out);
        b_output(&b, b.graph, "y");
        assert_refused(HEED_ERR_FORMAT, cases[i].words);
    }
    b.graph->node[1]->op_type = "Add", b.graph->node[1]->output[0] = "z";
    heed_onnx_destroy(import());
    b_node(&b, b.graph, "A", "q", "p"), b_node(&b, b.graph, "B", "p", "q");
    assert_refused(HEED_ERR_FORMAT, "(A): its input depends on its own output");
    b.graph->n_node -= 2;
    b_output(&b, b.graph, "nothing");
    assert_refused(HEED_ERR_FORMAT, "output 1: value 'nothing' is not defined");
    b.graph->output[1]->name = NULL;
    assert_refused(HEED_ERR_FORMAT, "output 1 has no name");
    b.graph->n_output = 1;
    b_input(&b, "x", T_FLOAT, "1");
    assert_refused(HEED_ERR_FORMAT, "value 'x' is defined twice");
    b.graph->input[1]->name = "";
    assert_refused(HEED_ERR_FORMAT, "input 1 has no name");
    b.graph->n_input = 1;
    b_initializer(&b, b.graph, "", T_FLOAT, "0");
    assert_refused(HEED_ERR_FORMAT, "initializer 1 has no name");
    b.graph->initializer[1]->name = "w";
    assert_refused(HEED_ERR_FORMAT, "value 'w' is defined twice");
}

static void test_inputs_are_tensors(void **state)
{
    (void) state;
    b_input(&b, "x", T_FLOAT, "1");
    b_input(&b, "s", T_STRING, "1");
    b_node(&b, b.graph, "Relu", "x", "y");
    b_output(&b, b.graph, "y");
    heed_onnx_destroy(import()); /* nobody uses it */
    pb_node *user = b_node(&b, b.graph, "Cast", "s", "t");
    assert_refused(HEED_ERR_UNSUPPORTED, "(Cast): input 's': type 8 (string) is not supported");
    pb_type *type = b.graph->input[1]->type;
    type->tensor_type->elem_type = 1000;
    assert_refused(HEED_ERR_UNSUPPORTED, "type 1000 (unknown)");
    type->tensor_type = b_value(&b, "", T_FLOAT, "1 1 1 1 1 1 1 1 1")->type->tensor_type;
    assert_refused(HEED_ERR_UNSUPPORTED, "input 's': rank is 9, expected at most 8");
    Heed__Onnx__TypeProto__Other other = HEED__ONNX__TYPE_PROTO__OTHER__INIT;
    type->tensor_type = NULL, type->sequence_type = &other;
    assert_refused(HEED_ERR_UNSUPPORTED, "input 's' is a sequence");
    b.graph->input[1]->type = NULL;
    heed_onnx_destroy(import());
    user->input[0] = "x";
    heed_onnx_destroy(import());
}

/* ---- attributes ---- */

static void test_attributes(void **state)
{
    (void) state;
    b_input(&b, "x", T_FLOAT, "1");
    pb_node *node = b_node(&b, b.graph, "Op", "x", "y");
    b_int(&b, node, "int", -3);
    b_float(&b, node, "float", 0.25f);
    pb_attr *s = b_attr(&b, node, "string", 3), *t = b_attr(&b, node, "tensor", 4), *fs = b_attr(&b, node, "floats", 6);
    pb_attr *is = b_attr(&b, node, "ints", 7), *ss = b_attr(&b, node, "strings", 8), *old = b_attr(&b, node, "untyped", 0);
    int64_t ints[] = { 1, -2, INT64_MAX };
    float floats[] = { 1.5f };
    ProtobufCBinaryData strings[] = { { 1, (uint8_t *) "a" }, { 0, NULL } };
    s->has_s = 1, s->s = (ProtobufCBinaryData){ 4, (uint8_t *) "tanh" };
    t->t = b_tensor(&b, "", T_INT64, "3");
    t->t->int64_data = ints, t->t->n_int64_data = 3;
    fs->floats = floats, fs->n_floats = 1;
    is->ints = ints, is->n_ints = 3;
    ss->strings = strings, ss->n_strings = 2;
    old->ints = ints, old->n_ints = 2;
    b_output(&b, b.graph, "y");
    heed_onnx_model *model = import();
    const heed_node *made = heed_onnx_graph(model)->first;
    assert_int_equal(heed_node_int(made, "int", 0), -3);
    assert_true(heed_node_float(made, "float", 0) == 0.25f);
    assert_string_equal(heed_node_string(made, "string", ""), "tanh");
    assert_int_equal(heed_tensor_int(heed_node_attr(made, "tensor")->t, 1), -2);
    assert_true(heed_node_attr(made, "floats")->n == 1 && heed_node_attr(made, "floats")->floats[0] == 1.5f);
    assert_true(heed_node_attr(made, "ints")->n == 3 && heed_node_attr(made, "ints")->ints[2] == INT64_MAX);
    assert_string_equal(heed_node_attr(made, "strings")->strings[0], "a");
    assert_string_equal(heed_node_attr(made, "strings")->strings[1], "");
    assert_true(heed_node_attr(made, "untyped")->type == HEED_ATTR_INTS && heed_node_attr(made, "untyped")->n == 2);
    heed_onnx_destroy(model);

    t->t->n_int64_data = 2;
    assert_refused(HEED_ERR_FORMAT, "(Op): tensor 'tensor': 2 elements in int64_data, expected 3");
    t->t = NULL;
    assert_refused(HEED_ERR_FORMAT, "attribute 'tensor' has no tensor");
    t->type = 9;
    assert_refused(HEED_ERR_UNSUPPORTED, "attribute 'tensor' is of type 9");
    t->type = 2, t->ref_attr_name = "outer";
    assert_refused(HEED_ERR_FORMAT, "attribute 'tensor' refers to 'outer' outside a function");
    t->ref_attr_name = NULL, t->name = "int";
    assert_refused(HEED_ERR_FORMAT, "attribute 'int' is given twice");
    t->name = NULL;
    assert_refused(HEED_ERR_FORMAT, "attribute 3 has no name");
    t->name = "t";
    for (int i = 0; i < 300; i++) b_int(&b, node, heed_arena_printf(b.arena, "a%d", i), i);
    assert_refused(HEED_ERR_FORMAT, "attributes, expected at most 256");
}

static void test_graphs_only_in_if(void **state)
{
    (void) state;
    b_input(&b, "x", T_FLOAT, "1");
    pb_node *loop = b_node(&b, b.graph, "Loop", "x x", "y");
    loop->name = "again";
    b_branch(&b, loop, "body");
    b_output(&b, b.graph, "y");
    assert_refused(HEED_ERR_UNSUPPORTED, "node 'again' (Loop): attribute 'body' is a graph");
    loop->op_type = "Scan";
    assert_refused(HEED_ERR_UNSUPPORTED, "node 'again' (Scan)");
}

/* ---- tensors ---- */

static void test_typed_lists(void **state)
{
    (void) state;
    float floats[] = { 1.5f, -2 };
    double doubles[] = { 0.1, -3 };
    int32_t small[] = { 1, 300 }, bits[] = { 0x3c00, 0xc000 }, signs[] = { -1, 7 };
    int64_t longs[] = { INT64_MIN, 5 };
    uint64_t unsigneds[] = { UINT64_MAX, 0x1fffffff3u };
    static const struct {
        const char *name;
        int type;
        heed_dtype dtype;
        uint64_t first, second; /* bits */
    } cases[] = {
        { "f32", T_FLOAT, HEED_F32, 0x3fc00000, 0xc0000000 },
        { "f64", T_DOUBLE, HEED_F64, 0x3fb999999999999a, 0xc008000000000000 },
        { "u8", T_UINT8, HEED_U8, 1, 300 % 256 },
        { "i8", T_INT8, HEED_I8, 0xff, 7 },
        { "u16", T_UINT16, HEED_U16, 1, 300 },
        { "i16", T_INT16, HEED_I16, 0xffff, 7 },
        { "i32", T_INT32, HEED_I32, 0xffffffff, 7 },
        { "i64", T_INT64, HEED_I64, (uint64_t) INT64_MIN, 5 },
        { "bool", T_BOOL, HEED_BOOL, 1, 1 },
        { "f16", T_FLOAT16, HEED_F16, 0x3c00, 0xc000 },
        { "bf16", T_BFLOAT16, HEED_BF16, 0x3c00, 0xc000 },
        { "u32", T_UINT32, HEED_U32, 0xffffffff, 0xfffffff3 },
        { "u64", T_UINT64, HEED_U64, UINT64_MAX, 0x1fffffff3 },
    };
    size_t n = sizeof cases / sizeof *cases;
    for (size_t i = 0; i < n; i++) {
        pb_tensor *t = b_initializer(&b, b.graph, cases[i].name, cases[i].type, "2 1");
        int is_signed = strchr("i", cases[i].name[0]) != NULL, is_half = strstr(cases[i].name, "f16") != NULL;
        t->float_data = floats, t->n_float_data = cases[i].type == T_FLOAT ? 2 : 0;
        t->double_data = doubles, t->n_double_data = cases[i].type == T_DOUBLE ? 2 : 0;
        t->int64_data = longs, t->n_int64_data = cases[i].type == T_INT64 ? 2 : 0;
        t->uint64_data = unsigneds, t->n_uint64_data = cases[i].type == T_UINT32 || cases[i].type == T_UINT64 ? 2 : 0;
        t->int32_data = is_half ? bits : is_signed ? signs : small;
        t->n_int32_data = 2 * !(t->n_float_data || t->n_double_data || t->n_int64_data || t->n_uint64_data);
        b_output(&b, b.graph, cases[i].name);
    }
    heed_onnx_model *model = import();
    for (size_t i = 0; i < n; i++) {
        const heed_tensor *t = heed_onnx_graph(model)->outputs[i]->fact.value;
        uint64_t first = 0, second = 0;
        size_t size = heed_dtype_size(t->dtype);
        assert_int_equal(t->dtype, cases[i].dtype);
        assert_true(t->rank == 2 && t->dims[0] == 2 && t->dims[1] == 1 && heed_tensor_is_dense(t));
        memcpy(&first, t->data, size);
        memcpy(&second, (const char *) t->data + size, size);
        if (first != cases[i].first || second != cases[i].second) fail_msg("elements of %s", cases[i].name);
    }
    heed_onnx_destroy(model);
}

static void test_raw_data(void **state)
{
    (void) state;
    enum { N = 5000 };
    static float large[N];
    uint8_t truth[] = { 0, 1, 2, 255 };
    for (int i = 0; i < N; i++) large[i] = (float) i;
    b_raw(b_initializer(&b, b.graph, "large", T_FLOAT, "50 100"), large, sizeof large);
    b_raw(b_initializer(&b, b.graph, "scalar", T_FLOAT, ""), large + 7, 4);
    b_raw(b_initializer(&b, b.graph, "truth", T_BOOL, "4"), truth, sizeof truth);
    b_raw(b_initializer(&b, b.graph, "empty", T_FLOAT, "3 0 4611686018427387904"), NULL, 0);
    b_initializer(&b, b.graph, "nothing", T_INT64, "0");
    for (size_t i = 0; i < b.graph->n_initializer; i++) b_output(&b, b.graph, b.graph->initializer[i]->name);
    b.graph->initializer[3]->dims[2] = 1 << 30;
    heed_onnx_model *model = import();
    heed_value **out = heed_onnx_graph(model)->outputs;
    assert_memory_equal(out[0]->fact.value->data, large, sizeof large);
    assert_int_equal((uintptr_t) out[0]->fact.value->data % 64, 0);
    assert_true(out[1]->fact.rank == 0 && *(const float *) out[1]->fact.value->data == 7);
    assert_memory_equal(out[2]->fact.value->data, ((uint8_t[]){ 0, 1, 1, 1 }), 4);
    assert_int_equal(heed_tensor_count(out[3]->fact.value), 0);
    assert_int_equal(out[4]->fact.rank, 1);
    heed_onnx_destroy(model);
}

static void test_tensors_are_checked(void **state)
{
    (void) state;
    static const struct {
        int type;
        const char *dims;
        size_t bytes;
        heed_status status;
        const char *words;
    } cases[] = {
        { T_FLOAT, "2 2", 15, HEED_ERR_FORMAT, "tensor 't': 15 bytes of raw data, expected 16" },
        { T_FLOAT, "2 2", 17, HEED_ERR_FORMAT, "17 bytes" },
        { T_FLOAT, "2 2", 0, HEED_ERR_FORMAT, "0 elements in float_data, expected 4" },
        { T_FLOAT, "0", 4, HEED_ERR_FORMAT, "4 bytes of raw data, expected 0" },
        { T_FLOAT, "2 -2", 16, HEED_ERR_FORMAT, "dimension 1 is -2" },
        { T_FLOAT, "4294967296 4294967296", 16, HEED_ERR_FORMAT, "overflows" },
        { T_FLOAT, "4611686018427387904", 16, HEED_ERR_FORMAT, "overflows" },
        { T_FLOAT, "4611686018427387904 0 4", 0, HEED_ERR_FORMAT, "overflows" },
        { T_FLOAT, "1 1 1 1 1 1 1 1 1", 4, HEED_ERR_UNSUPPORTED, "rank is 9" },
        { T_STRING, "1", 4, HEED_ERR_UNSUPPORTED, "tensor 't': type 8 (string) is not supported" },
        { T_INT4, "1", 1, HEED_ERR_UNSUPPORTED, "type 22 (int4)" },
        { 0, "1", 4, HEED_ERR_UNSUPPORTED, "type 0 (unknown)" },
        { -7, "1", 4, HEED_ERR_UNSUPPORTED, "type -7 (unknown)" },
    };
    static uint8_t data[32];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        b_end(&b);
        b = b_start(ctx);
        b_input(&b, "x", T_FLOAT, "1");
        b_raw(b_initializer(&b, b.graph, "t", cases[i].type, cases[i].dims), data, cases[i].bytes);
        b_output(&b, b.graph, "x");
        heed_onnx_destroy(import()); /* nobody uses it, so it does not matter */
        b_node(&b, b.graph, "Add", "x t", "y")->name = "add";
        assert_refused(cases[i].status, cases[i].words);
        assert_non_null(strstr(heed_last_message(), "node 'add' (Add): tensor 't': "));
    }
    Heed__Onnx__TensorProto__Segment segment = HEED__ONNX__TENSOR_PROTO__SEGMENT__INIT;
    b.graph->initializer[0]->data_type = T_FLOAT;
    heed_onnx_destroy(import());
    b.graph->initializer[0]->segment = &segment;
    assert_refused(HEED_ERR_UNSUPPORTED, "segment");
    Heed__Onnx__SparseTensorProto sparse = HEED__ONNX__SPARSE_TENSOR_PROTO__INIT, *list[] = { &sparse };
    sparse.values = b.graph->initializer[0];
    b.graph->n_initializer = 0, b.graph->sparse_initializer = list, b.graph->n_sparse_initializer = 1;
    assert_refused(HEED_ERR_UNSUPPORTED, "sparse tensor 't' is not supported");
    b.graph->n_node = 0;
    heed_onnx_destroy(import());
}

static void test_constants(void **state)
{
    (void) state;
    int64_t ints[] = { 1, 2, 3 };
    float floats[] = { 1, 2 };
    pb_node *tensor = b_node(&b, b.graph, "Constant", "", "t"), *is = b_node(&b, b.graph, "Constant", "", "is");
    pb_node *fs = b_node(&b, b.graph, "Constant", "", "fs"), *unused = b_node(&b, b.graph, "Constant", "", "unused");
    b_float(&b, b_node(&b, b.graph, "Constant", "", "f"), "value_float", 0.5f);
    b_int(&b, b_node(&b, b.graph, "Constant", "", "i"), "value_int", -4);
    pb_tensor *value = b_attr(&b, tensor, "value", 4)->t = b_tensor(&b, NULL, T_INT64, "3 1");
    value->int64_data = ints, value->n_int64_data = 3;
    pb_attr *attr = b_attr(&b, is, "value_ints", 7);
    attr->ints = ints, attr->n_ints = 3;
    attr = b_attr(&b, fs, "value_floats", 6);
    attr->floats = floats, attr->n_floats = 2;
    b_attr(&b, unused, "value_string", 3)->has_s = 1;
    static const char *const names[] = { "t", "is", "fs", "f", "i" };
    for (int i = 0; i < 5; i++) b_output(&b, b.graph, names[i]);
    heed_onnx_model *model = import();
    const heed_graph *graph = heed_onnx_graph(model);
    assert_null(graph->first);
    assert_prints(graph, "output %0 i64[3, 1] # t\n"
                         "output i64{1, 2, 3} i64[3] # is\n"
                         "output f32{1, 2} f32[2] # fs\n"
                         "output f32 0.5 f32 # f\n"
                         "output i64 -4 i64 # i\n"
                         "constant %0 i64[3, 1] # t\n");
    heed_onnx_destroy(model);
    b_output(&b, b.graph, "unused");
    assert_refused(HEED_ERR_UNSUPPORTED, "output 5: constant 'unused': a constant given as 'value_string'");
    b.graph->n_output--;
    attr->name = "value_ints";
    assert_refused(HEED_ERR_FORMAT, "constant 'fs': attribute 'value_ints' is not of type ints");
    fs->n_attribute = 0;
    assert_refused(HEED_ERR_FORMAT, "constant 'fs': has 0 attributes, expected 1");
}

/* ---- external data ---- */

static void write_file(const char *folder, const char *name, const void *data, size_t bytes)
{
    char *path = heed_arena_printf(b.arena, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static void external_tensor(const char *name, int type, const char *dims, const char *location, const char *offset,
                            const char *length)
{
    pb_tensor *t = b_initializer(&b, b.graph, name, type, dims);
    t->has_data_location = 1, t->data_location = 1;
    if (location) b_external(&b, t, "location", location);
    if (offset) b_external(&b, t, "offset", offset);
    if (length) b_external(&b, t, "length", length);
    b_external(&b, t, "checksum", "not looked at");
    b_output(&b, b.graph, name);
}

/* folder/model/{data,sub/data}, folder/secret, and links out of and inside of the model's folder. */
static char *make_folder(void)
{
    char *folder = heed_arena_strdup(b.arena, "/tmp/heed-onnx-XXXXXX");
    float data[16];
    for (int i = 0; i < 16; i++) data[i] = (float) i;
    assert_non_null(mkdtemp(folder));
    char *model = heed_arena_printf(b.arena, "%s/model", folder);
    assert_int_equal(mkdir(model, 0700), 0);
    assert_int_equal(mkdir(heed_arena_printf(b.arena, "%s/sub", model), 0700), 0);
    write_file(folder, "secret", data, sizeof data);
    write_file(folder, "model/data", data, sizeof data);
    write_file(folder, "model/sub/data", "\1\2\0\1", 4);
    write_file(folder, "model/empty", "", 0);
    assert_int_equal(symlink("../secret", heed_arena_printf(b.arena, "%s/out", model)), 0);
    assert_int_equal(symlink("sub/data", heed_arena_printf(b.arena, "%s/in", model)), 0);
    assert_int_equal(symlink("..", heed_arena_printf(b.arena, "%s/up", model)), 0);
    assert_int_equal(mkfifo(heed_arena_printf(b.arena, "%s/pipe", model), 0600), 0);
    return folder;
}

static void remove_folder(const char *folder)
{
    static const char *const names[] = { "model/data", "model/sub/data", "model/empty", "model/out",    "model/in", "model/up",
                                         "model/pipe", "secret",         "model/sub",   "model/m.onnx", "model",    "" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        (void) remove(heed_arena_printf(b.arena, "%s/%s", folder, names[i]));
    assert_int_not_equal(access(folder, F_OK), 0);
}

static void test_external_data(void **state)
{
    (void) state;
    char *folder = make_folder(), *place = heed_arena_printf(b.arena, "%s/model", folder);
    external_tensor("whole", T_FLOAT, "4 4", "data", NULL, NULL);
    external_tensor("part", T_FLOAT, "2", "data", "8", "8");
    external_tensor("crooked", T_INT16, "2", "data", "1", "4"); /* not aligned: copied */
    external_tensor("truth", T_BOOL, "4", "sub/../sub/./data", "0", "4");
    external_tensor("linked", T_INT8, "3", "in", "1", NULL);
    external_tensor("empty", T_FLOAT, "0 5", "empty", "0", "0");
    external_tensor("end", T_FLOAT, "0", "data", "64", NULL);
    heed_onnx_model *model = import_in(place);
    heed_value **out = heed_onnx_graph(model)->outputs;
    const float *whole = out[0]->fact.value->data, *part = out[1]->fact.value->data;
    for (int i = 0; i < 16; i++) assert_true(whole[i] == (float) i);
    assert_true(part[0] == 2 && part[1] == 3);
    assert_ptr_equal(part, whole + 2); /* one mapping */
    assert_memory_equal(out[2]->fact.value->data, (const char *) whole + 1, 4);
    assert_int_equal((uintptr_t) out[2]->fact.value->data % 2, 0);
    assert_memory_equal(out[3]->fact.value->data, ((uint8_t[]){ 1, 1, 0, 1 }), 4);
    assert_memory_equal(out[4]->fact.value->data, ((uint8_t[]){ 2, 0, 1 }), 3);
    heed_onnx_destroy(model);

    size_t bytes;
    void *data = b_pack(&b, &bytes);
    write_file(folder, "model/m.onnx", data, bytes);
    assert_int_equal(heed_onnx_import_file(&model, ctx, heed_arena_printf(b.arena, "%s/m.onnx", place)), HEED_OK);
    heed_onnx_destroy(model);
    assert_int_equal(heed_onnx_import(&model, ctx, data, bytes, NULL, NULL), HEED_ERR_FILE);
    assert_non_null(
        strstr(heed_last_message(), "model: output 0: tensor 'whole': external data 'data': the model has no folder"));
    remove_folder(folder);
}

static void test_external_data_is_checked(void **state)
{
    (void) state;
    static const struct {
        const char *location, *offset, *length;
        heed_status status;
        const char *words;
    } cases[] = {
        { NULL, "0", "64", HEED_ERR_FORMAT, "tensor 't': external data: has no location" },
        { "", NULL, NULL, HEED_ERR_FORMAT, "expected a path relative" },
        { "/etc/passwd", NULL, NULL, HEED_ERR_FORMAT, "external data '/etc/passwd': expected a path relative" },
        { "../secret", NULL, NULL, HEED_ERR_FORMAT, "external data '../secret': lies outside" },
        { "sub/../../secret", NULL, NULL, HEED_ERR_FORMAT, "lies outside" },
        { "up/secret", NULL, NULL, HEED_ERR_FORMAT, "lies outside" },
        { "out", NULL, NULL, HEED_ERR_FORMAT, "external data 'out': lies outside" },
        { "..", NULL, NULL, HEED_ERR_FORMAT, "lies outside" },
        { ".", NULL, NULL, HEED_ERR_FORMAT, "lies outside" },
        { "sub", NULL, NULL, HEED_ERR_FILE, "is not a regular file" },
        { "pipe", NULL, NULL, HEED_ERR_FILE, "is not a regular file" },
        { "missing", NULL, NULL, HEED_ERR_FILE, "external data 'missing': No such file" },
        { "empty", NULL, NULL, HEED_ERR_FORMAT, "but the file has 0" },
        { "data", "4", "64", HEED_ERR_FORMAT, "external data 'data': bytes 4 to 68, but the file has 64" },
        { "data", "9223372036854775806", "64", HEED_ERR_FORMAT, "but the file has 64" },
        { "data", "99999999999999999999999", "64", HEED_ERR_FORMAT, "offset is '99999999999999999999999'" },
        { "data", "-1", "64", HEED_ERR_FORMAT, "offset is '-1'" },
        { "data", "", "64", HEED_ERR_FORMAT, "offset is ''" },
        { "data", "0", "4x", HEED_ERR_FORMAT, "length is '4x'" },
        { "data", "0", "60", HEED_ERR_FORMAT, "length is 60, expected 64" },
    };
    char *folder = make_folder();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        b.graph->n_initializer = b.graph->n_output = 0;
        external_tensor("t", T_FLOAT, "16", cases[i].location, cases[i].offset, cases[i].length);
        assert_refused_in(heed_arena_printf(b.arena, "%s/model", folder), cases[i].status, cases[i].words);
    }
    b.graph->n_initializer = b.graph->n_output = 0;
    external_tensor("t", T_FLOAT, "16", "data", NULL, NULL);
    assert_refused_in(heed_arena_printf(b.arena, "%s/none", folder), HEED_ERR_FILE, "No such file");
    b.graph->n_output = 0;
    heed_onnx_destroy(import_in(folder)); /* nobody uses it */
    remove_folder(folder);
}

/* ---- functions ---- */

/* twice(x, scale?) -> Mul(x, scale) with a Constant and attributes; outer(x) calls it. */
static void test_functions(void **state)
{
    (void) state;
    pb_function *inner = b_function(&b, "my", "inner", "x scale", "y unused");
    inner->opset_import[0]->version = 13;
    char *names[] = { "axis" };
    inner->attribute = names, inner->n_attribute = 1;
    pb_attr *preset = b_attribute_proto(&b);
    preset->name = "alpha", preset->has_type = 1, preset->type = 1, preset->has_f = 1, preset->f = 0.125f;
    B_PUSH(&b, inner, attribute_proto, preset);
    pb_node *constant = b_node(&b, inner, "Constant", "", "c");
    b_ref(&b, constant, "value_float", 1, "alpha");
    pb_node *op = b_node(&b, inner, "Op", "x scale c", "y");
    op->name = "op";
    b_ref(&b, op, "axis", 2, "axis");
    b_ref(&b, op, "alpha", 1, "alpha");
    b_node(&b, inner, "Relu", "y", "unused");
    pb_function *outer = b_function(&b, "my", "outer", "x", "z");
    pb_attr *axis = b_attribute_proto(&b);
    axis->name = "outer_axis", axis->has_type = 1, axis->type = 2, axis->has_i = 1, axis->i = 9;
    B_PUSH(&b, outer, attribute_proto, axis);
    pb_node *call = b_node(&b, outer, "inner", "x", "z");
    call->domain = "my", call->name = "call";
    b_ref(&b, call, "axis", 2, "outer_axis");

    b_input(&b, "x", T_FLOAT, "4");
    pb_node *first = b_node(&b, b.graph, "outer", "x", "a"), *second = b_node(&b, b.graph, "inner", "a x", "y");
    first->domain = second->domain = "my", first->name = "first";
    b_float(&b, second, "alpha", 2);
    pb_value *info = b_value(&b, "a", T_FLOAT, "4");
    B_PUSH(&b, b.graph, value_info, info);
    b_output(&b, b.graph, "y");
    heed_onnx_model *model = import();
    const heed_graph *graph = heed_onnx_graph(model);
    assert_prints(graph, "input %0 f32[4] # x\n"
                         "output %5 ?[..] # y\n"
                         "%2 f32[4] = Op(%0, _, f32 0.125) {axis=9, alpha=0.125} # first/call/op\n"
                         "%3 ?[..] = Relu(%2)\n"
                         "%5 ?[..] = Op(%2, %0, f32 2) {alpha=2} # inner/op\n"
                         "%6 ?[..] = Relu(%5)\n");
    assert_int_equal(graph->first->version, 13);
    assert_string_equal(graph->first->outputs[0]->name, "a");
    assert_string_equal(graph->first->inputs[2]->name, "first/call/c");
    assert_string_equal(graph->last->outputs[0]->name, "inner/unused");
    heed_onnx_destroy(model);

    op->attribute[0]->ref_attr_name = "beta";
    assert_refused(HEED_ERR_FORMAT,
                   "node 'first/call/op' (Op): attribute 'axis' refers to 'beta', which function 'inner' does not have");
    op->attribute[0]->ref_attr_name = "axis";
    op->input[1] = "nowhere";
    assert_refused(HEED_ERR_FORMAT, "node 'first/call/op' (Op): value 'nowhere' is not defined");
    op->input[1] = "a"; /* a name of the caller */
    assert_refused(HEED_ERR_FORMAT, "value 'a' is not defined");
    op->input[1] = "scale";
    inner->opset_import[0]->version = 10;
    assert_refused(HEED_ERR_UNSUPPORTED, "node 'first/call/op' (Op): opset 10");
    inner->n_opset_import = 0;
    assert_refused(HEED_ERR_FORMAT, "node 'first/call/op' (Op): no opset version");
    inner->n_opset_import = 1, inner->opset_import[0]->version = 13;
    heed_onnx_destroy(import());
    B_PUSH(&b, b.model, functions, inner);
    assert_refused(HEED_ERR_FORMAT, "function 'inner' is defined twice");
    b.model->functions[2] = b_function(&b, "my", "inner", "x", "x");
    b.model->n_functions = 3, b.model->functions[2]->overload = "other";
    second->overload = "other", second->n_input = 1;
    model = import();
    assert_ptr_equal(heed_onnx_graph(model)->outputs[0], find_value(heed_onnx_graph(model), "a"));
    assert_string_equal(heed_onnx_graph(model)->output_names[0], "y");
    heed_onnx_destroy(model);
}

static void test_calls_are_checked(void **state)
{
    (void) state;
    pb_function *f = b_function(&b, "my", "f", "x", "y");
    pb_node *inside = b_node(&b, f, "Relu", "x", "y");
    b_input(&b, "x", T_FLOAT, "4");
    pb_node *call = b_node(&b, b.graph, "f", "x x", "y");
    call->domain = "my", call->name = "call";
    b_output(&b, b.graph, "y");
    assert_refused(HEED_ERR_FORMAT, "node 'call' (f): gives 2 inputs to function 'f', expected at most 1");
    call->n_input = 1;
    heed_onnx_destroy(import());
    b_words(&b, &call->output, &call->n_output, "z");
    assert_refused(HEED_ERR_FORMAT, "wants 2 outputs of function 'f', expected at most 1");
    call->n_output = 1, call->n_input = 0, f->output[0] = "x";
    assert_refused(HEED_ERR_FORMAT, "output 'y' is an input that was not given");
    call->n_input = 1;
    heed_onnx_destroy(import());
    f->output[0] = "nowhere";
    assert_refused(HEED_ERR_FORMAT, "node 'call' (f): value 'nowhere' is not defined");
    f->output[0] = "y";
    inside->op_type = "f", inside->domain = "my";
    assert_refused(HEED_ERR_FORMAT, "node 'call/#0' (f): function 'f' calls itself");
    f->name = "";
    assert_refused(HEED_ERR_FORMAT, "function 0 has no name");
}

/* f0 calls f1 twice, f1 calls f2 twice, ..: more nodes than there is memory for. */
static void test_functions_unfold_within_bounds(void **state)
{
    (void) state;
    b_input(&b, "x", T_FLOAT, "4");
    b_node(&b, b.graph, "f0", "x", "y")->domain = "my";
    b_output(&b, b.graph, "y");
    for (int i = 0; i < 60; i++) {
        char *next = heed_arena_printf(b.arena, "f%d", i + 1);
        pb_function *f = b_function(&b, "my", heed_arena_printf(b.arena, "f%d", i), "x", "y");
        b_node(&b, f, next, "x", "m")->domain = "my";
        b_node(&b, f, next, "m", "y")->domain = "my";
    }
    pb_function *last = b_function(&b, "my", "f60", "x", "y");
    assert_refused(HEED_ERR_FORMAT, "value 'y' is not defined");
    last->output[0] = "x";
    assert_refused(HEED_ERR_UNSUPPORTED, "unfold to more than heed takes");
    for (int i = 0; i < 60; i++) b.model->functions[i]->n_node = 1, b.model->functions[i]->output[0] = "m";
    heed_onnx_destroy(import());
    for (int i = 60; i < 130; i++) { /* a chain that is too deep */
        last->output[0] = "m";
        b_node(&b, last, heed_arena_printf(b.arena, "f%d", i + 1), "x", "m")->domain = "my";
        last = b_function(&b, "my", heed_arena_printf(b.arena, "f%d", i + 1), "x", "y");
    }
    last->output[0] = "x";
    assert_refused(HEED_ERR_UNSUPPORTED, "nest more than 100 deep");
}

/* ---- If ---- */

static void test_if(void **state)
{
    (void) state;
    float half = 0.5f;
    b_input(&b, "c", T_BOOL, "");
    b_input(&b, "x", T_FLOAT, "n 4");
    b_input(&b, "d", T_BOOL, "");
    pb_node *node = b_node(&b, b.graph, "If", "c", "y _");
    node->name = "if";
    b_node(&b, b.graph, "Neg", "x", "late"); /* made after the node that captures it */
    b_raw(b_initializer(&b, b.graph, "half", T_FLOAT, ""), &half, sizeof half);
    b_output(&b, b.graph, "y");
    pb_graph *then_branch = b_branch(&b, node, "then_branch"), *else_branch = b_branch(&b, node, "else_branch");
    b_node(&b, then_branch, "Mul", "late half", "y"); /* the name of the node's output, another value */
    b_node(&b, then_branch, "Abs", "y", "z");
    b_output(&b, then_branch, "y");
    b_output(&b, then_branch, "z");
    pb_node *nested = b_node(&b, else_branch, "If", "d", "p q");
    b_node(&b, else_branch, "Exp", "x", "e");
    b_raw(b_initializer(&b, else_branch, "own", T_FLOAT, ""), &half, sizeof half);
    b_output(&b, else_branch, "p");
    b_output(&b, else_branch, "q");
    pb_graph *deep = b_branch(&b, nested, "then_branch"), *other = b_branch(&b, nested, "else_branch");
    b_node(&b, deep, "Add", "e x", "s");
    b_node(&b, deep, "Add", "own half", "t");
    b_output(&b, deep, "s");
    b_output(&b, deep, "t");
    b_output(&b, other, "x");
    b_output(&b, other, "own");
    heed_onnx_model *model = import();
    assert_prints(heed_onnx_graph(model), "input %0 bool # c\n"
                                          "input %1 f32[n, 4] # x\n"
                                          "input %2 bool # d\n"
                                          "output %5 ?[..] # y\n"
                                          "%3 ?[..] = Neg(%1)\n"
                                          "%5 ?[..], _ = If(%0, %3, %1, %2) {then_branch=graph, else_branch=graph} # if\n"
                                          "  then_branch:\n"
                                          "    input %0 ?[..] # late\n"
                                          "    output %2 ?[..] # y\n"
                                          "    output %3 ?[..] # z\n"
                                          "    %2 ?[..] = Mul(%0, f32 0.5)\n"
                                          "    %3 ?[..] = Abs(%2)\n"
                                          "  else_branch:\n"
                                          "    input %0 f32[n, 4] # x\n"
                                          "    input %2 bool # d\n"
                                          "    output %5 ?[..] # p\n"
                                          "    output %6 ?[..] # q\n"
                                          "    %1 ?[..] = Exp(%0)\n"
                                          "    %5 ?[..], %6 ?[..] = If(%2, %1, %0, %0) {then_branch=graph, else_branch=graph}\n"
                                          "      then_branch:\n"
                                          "        input %0 ?[..] # e\n"
                                          "        input %1 f32[n, 4] # x\n"
                                          "        output %2 ?[..] # s\n"
                                          "        output %5 ?[..] # t\n"
                                          "        %2 ?[..] = Add(%0, %1)\n"
                                          "        %5 ?[..] = Add(f32 0.5, f32 0.5)\n"
                                          "      else_branch:\n"
                                          "        input %0 f32[n, 4] # x\n"
                                          "        output %0 f32[n, 4] # x\n"
                                          "        output f32 0.5 f32 # own\n");
    heed_graph *copy;
    assert_int_equal(heed_graph_clone(&copy, heed_onnx_graph(model)), HEED_OK);
    assert_int_equal(heed_graph_verify(copy), HEED_OK);
    heed_graph_destroy(copy);
    heed_onnx_destroy(model);

    deep->node[0]->input[0] = "nowhere";
    assert_refused(HEED_ERR_FORMAT, "node '#0' (Add): value 'nowhere' is not defined");
    deep->node[0]->input[0] = "p"; /* what the If itself makes */
    assert_refused(HEED_ERR_FORMAT, "(If): its input depends on its own output");
    deep->node[0]->input[0] = "e";
    node->n_attribute = 1;
    assert_refused(HEED_ERR_FORMAT, "node 'if' (If): has no graph 'else_branch'");
    node->n_attribute = 2, else_branch->n_output = 1;
    assert_refused(HEED_ERR_FORMAT, "node 'if' (If): graph 'else_branch' has 1 outputs, the node 2");
    node->n_output = 1;
    assert_refused(HEED_ERR_FORMAT, "node 'if' (If): its branches have 2 and 1 outputs");
    else_branch->n_output = 2;
    heed_onnx_destroy(import());
    b_words(&b, &node->input, &node->n_input, "x");
    assert_refused(HEED_ERR_FORMAT, "node 'if' (If): has 2 inputs, expected 1");
    node->n_input = 1;
    pb_value *input = b_value(&b, "i", T_FLOAT, "");
    B_PUSH(&b, then_branch, input, input);
    assert_refused(HEED_ERR_FORMAT, "graph 'then_branch' has 1 inputs, expected none");
}

/* A branch inside a function: attributes of the call, and inputs of the function captured, one of them not given. */
static void test_if_in_function(void **state)
{
    (void) state;
    pb_function *f = b_function(&b, "my", "f", "c x option", "y");
    char *names[] = { "axis" };
    f->attribute = names, f->n_attribute = 1;
    pb_node *node = b_node(&b, f, "If", "c", "y");
    pb_graph *then_branch = b_branch(&b, node, "then_branch"), *else_branch = b_branch(&b, node, "else_branch");
    pb_node *op = b_node(&b, then_branch, "Op", "x option", "a");
    b_ref(&b, op, "axis", 2, "axis");
    b_output(&b, then_branch, "a");
    b_output(&b, else_branch, "x");
    b_input(&b, "c", T_BOOL, "");
    b_input(&b, "v", T_FLOAT, "2");
    pb_node *call = b_node(&b, b.graph, "f", "c v", "out");
    call->domain = "my", call->name = "call";
    b_int(&b, call, "axis", 5);
    b_output(&b, b.graph, "out");
    heed_onnx_model *model = import();
    assert_prints(heed_onnx_graph(model), "input %0 bool # c\n"
                                          "input %1 f32[2] # v\n"
                                          "output %2 ?[..] # out\n"
                                          "%2 ?[..] = If(%0, %1, %1) {then_branch=graph, else_branch=graph}\n"
                                          "  then_branch:\n"
                                          "    input %0 f32[2] # v\n"
                                          "    output %1 ?[..] # a\n"
                                          "    %1 ?[..] = Op(%0, _) {axis=5}\n"
                                          "  else_branch:\n"
                                          "    input %0 f32[2] # v\n"
                                          "    output %0 f32[2] # x\n");
    heed_onnx_destroy(model);
    else_branch->output[0]->name = "option";
    assert_refused(HEED_ERR_FORMAT, "output 0: 'option' is an input that was not given");
}

/* ---- bytes ---- */

static void assert_bytes_refused(const void *data, size_t bytes, const char *words)
{
    heed_onnx_model *model;
    assert_int_equal(heed_onnx_import(&model, ctx, data, bytes, "m.onnx", NULL), HEED_ERR_FORMAT);
    assert_null(model);
    if (!strstr(heed_last_message(), words)) fail_msg("'%s' does not say '%s'", heed_last_message(), words);
}

static void test_bytes_are_checked(void **state)
{
    (void) state;
    assert_bytes_refused("", 0, "m.onnx: is empty");
    assert_bytes_refused("\x08\x08", 2, "has no graph");
    assert_bytes_refused("not a model at all", 18, "m.onnx: ");
    assert_bytes_refused("\x3a\x05\x0a", 3, "cut off in field 7 of ModelProto");
    assert_bytes_refused("\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11, "cut off in field 7");
    assert_bytes_refused("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12, "cut off in field 1");
    assert_bytes_refused("\x0b", 1, "field 1 of ModelProto is of no kind");
    assert_bytes_refused("\x02\x00", 2, "broken field in ModelProto");
    assert_bytes_refused("\x09\x01\x02", 3, "cut off in field 1");
    assert_bytes_refused("\x3a\x00\x3a\x00", 4, "ModelProto: field 'graph' occurs twice");
    assert_bytes_refused("\x38\x01", 2, "is not an ONNX model: a field has a wrong type");
}

/* If in If in If ..: protobuf would recurse until the stack ends. */
static void test_nesting_is_bounded(void **state)
{
    (void) state;
    pb_graph *graph = b.graph;
    b_input(&b, "c", T_BOOL, "");
    for (int depth = 0; depth < 15; depth++) {
        pb_node *node = b_node(&b, graph, "If", "c", "y");
        b_output(&b, graph, "y");
        b_output(&b, b_branch(&b, node, "else_branch"), "c");
        graph = b_branch(&b, node, "then_branch");
    }
    b_output(&b, graph, "c");
    heed_onnx_destroy(import());
    for (int depth = 0; depth < 10; depth++) {
        pb_node *node = b_node(&b, graph, "If", "c", "y");
        graph = b_branch(&b, node, "then_branch");
    }
    assert_refused(HEED_ERR_FORMAT, "nested more than 64 deep");
}

/* A small file of empty nodes must not become gigabytes. */
static void test_fields_are_bounded(void **state)
{
    (void) state;
    size_t bytes = 10000000;
    unsigned char *data = b_alloc(&b, bytes);
    data[0] = 0x3a;
    size_t length = bytes - 6, at = 1;
    for (; at < 5; at++) data[at] = (unsigned char) (length & 0x7f) | 0x80, length >>= 7;
    data[at++] = (unsigned char) length;
    for (; at < bytes; at += 2) data[at] = 0x0a;
    assert_bytes_refused(data, bytes, "more fields than");
}

static void test_files(void **state)
{
    (void) state;
    heed_onnx_model *model;
    char *folder = make_folder();
    assert_int_equal(heed_onnx_import_file(&model, ctx, "/tmp/no such file.onnx"), HEED_ERR_FILE);
    assert_string_equal(heed_last_message(), "/tmp/no such file.onnx: No such file or directory");
    assert_null(model);
    assert_int_equal(heed_onnx_import_file(&model, ctx, folder), HEED_ERR_FILE);
    assert_non_null(strstr(heed_last_message(), ": is not a regular file"));
    assert_int_equal(heed_onnx_import_file(&model, ctx, heed_arena_printf(b.arena, "%s/model/pipe", folder)), HEED_ERR_FILE);
    assert_int_equal(heed_onnx_import_file(&model, ctx, heed_arena_printf(b.arena, "%s/model/empty", folder)), HEED_ERR_FORMAT);
    assert_non_null(strstr(heed_last_message(), "/model/empty: is empty"));
    assert_int_equal(heed_onnx_import_file(&model, ctx, heed_arena_printf(b.arena, "%s/secret", folder)), HEED_ERR_FORMAT);
    remove_folder(folder);
}

/* ---- memory that runs out at any point ---- */

static int blocks_left;
static long blocks_out;

static void *scarce_alloc(void *user, size_t align, size_t bytes)
{
    (void) user;
    if (blocks_left-- <= 0) return NULL;
    blocks_out++;
    return aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void scarce_free(void *user, void *ptr)
{
    (void) user;
    if (ptr) blocks_out--;
    free(ptr);
}

static void test_memory_runs_out(void **state)
{
    (void) state;
    static float large[4000];
    b_raw(b_initializer(&b, b.graph, "large", T_FLOAT, "4000"), large, sizeof large);
    b_raw(b_initializer(&b, b.graph, "unused", T_FLOAT, "4000"), large, sizeof large);
    b_input(&b, "c", T_BOOL, "");
    pb_function *f = b_function(&b, "my", "f", "x", "y");
    for (int i = 0; i < 300; i++) b_node(&b, f, "Add", "x x", i ? heed_arena_printf(b.arena, "m%d", i) : "y");
    b_node(&b, b.graph, "f", "large", "a")->domain = "my";
    pb_node *node = b_node(&b, b.graph, "If", "c", "y");
    for (int i = 0; i < 2; i++) {
        pb_graph *branch = b_branch(&b, node, i ? "then_branch" : "else_branch");
        b_node(&b, branch, "f", "a", "z")->domain = "my";
        b_output(&b, branch, "z");
    }
    b_output(&b, b.graph, "y");
    size_t bytes;
    void *data = b_pack(&b, &bytes);
    heed_context_desc desc;
    heed_context_desc_init(&desc);
    desc.allocator = (heed_allocator){ NULL, scarce_alloc, scarce_free };
    heed_context *scarce;
    blocks_left = 1000000;
    assert_int_equal(heed_context_create(&scarce, &desc), HEED_OK);
    long before = blocks_out;
    heed_onnx_model *model = NULL;
    heed_status status = HEED_ERR_MEMORY;
    int n = 0;
    for (; status == HEED_ERR_MEMORY; n++) {
        blocks_left = n;
        status = heed_onnx_import(&model, scarce, data, bytes, "m.onnx", NULL);
        if (status) assert_int_equal(blocks_out, before);
    }
    if (status) fail_msg("%s", heed_last_message());
    assert_true(n > 15);
    assert_memory_equal(find_value(heed_onnx_graph(model), "large")->fact.value->data, large, sizeof large);
    heed_onnx_destroy(model);
    assert_int_equal(blocks_out, before);
    heed_context_destroy(scarce);
}

/* ---- models of exporters: every FOLDER/NAME/model.onnx ---- */

static const char *repository_models;

static int import_folder(const char *folder)
{
    DIR *dir = opendir(folder);
    int n = 0;
    if (!dir) fail_msg("cannot open '%s'", folder);
    for (struct dirent *entry; (entry = readdir(dir));) {
        char *path = heed_arena_printf(b.arena, "%s/%s/model.onnx", folder, entry->d_name);
        heed_onnx_model *model;
        heed_graph *copy;
        if (entry->d_name[0] == '.' || access(path, R_OK) != 0) continue;
        if (heed_onnx_import_file(&model, ctx, path)) fail_msg("%s", heed_last_message());
        if (heed_graph_verify(heed_onnx_graph(model))) fail_msg("%s: %s", path, heed_last_message());
        assert_int_equal(heed_graph_clone(&copy, heed_onnx_graph(model)), HEED_OK);
        if (heed_graph_verify(copy)) fail_msg("copy of %s: %s", path, heed_last_message());
        heed_graph_destroy(copy);
        heed_onnx_destroy(model);
        n++;
    }
    closedir(dir);
    print_message("%d models in %s\n", n, folder);
    return n;
}

static void test_models(void **state)
{
    (void) state;
    const char *more = getenv("HEED_TEST_MODELS");
    assert_true(repository_models && import_folder(repository_models) > 0);
    if (more) assert_true(import_folder(more) > 0);
    else print_message("HEED_TEST_MODELS is not set: no further models\n");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, end)

/* The argument is the repository's folder of models. */
int main(int argc, char **argv)
{
    repository_models = argc > 1 ? argv[1] : NULL;
    const struct CMUnitTest tests[] = {
        TEST(test_facts_and_names),
        TEST(test_versions),
        TEST(test_order),
        TEST(test_many_nodes),
        TEST(test_names_are_untrusted),
        TEST(test_structure_is_checked),
        TEST(test_inputs_are_tensors),
        TEST(test_attributes),
        TEST(test_graphs_only_in_if),
        TEST(test_typed_lists),
        TEST(test_raw_data),
        TEST(test_tensors_are_checked),
        TEST(test_constants),
        TEST(test_external_data),
        TEST(test_external_data_is_checked),
        TEST(test_functions),
        TEST(test_calls_are_checked),
        TEST(test_functions_unfold_within_bounds),
        TEST(test_if),
        TEST(test_if_in_function),
        TEST(test_bytes_are_checked),
        TEST(test_nesting_is_bounded),
        TEST(test_fields_are_bounded),
        TEST(test_files),
        TEST(test_memory_runs_out),
        TEST(test_models),
    };
    return cmocka_run_group_tests(tests, open_context, close_context);
}
