/* The fuzzer's target under mutations that are the same each time: a small model with one of everything, cut off at each byte,
 * with each bit turned, with pieces doubled and lost, with bytes at random. Under sanitizers it must end in a status. */
#include "onnx/build.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void add_function(builder *b)
{
    pb_function *f = b_function(b, "my", "f", "x scale", "y");
    char *names[] = { "axis" };
    f->attribute = b_alloc(b, sizeof names), f->n_attribute = 1;
    memcpy(f->attribute, names, sizeof names);
    pb_node *constant = b_node(b, f, "Constant", "", "c");
    b_int(b, constant, "value_int", 3);
    pb_node *op = b_node(b, f, "Op", "x scale c", "m");
    b_ref(b, op, "axis", 2, "axis");
    b_node(b, f, "Relu", "m", "y");
    b_node(b, b->graph, "f", "x _", "called")->domain = "my";
}

static void add_if(builder *b)
{
    pb_node *node = b_node(b, b->graph, "If", "c", "chosen");
    pb_graph *then_branch = b_branch(b, node, "then_branch"), *else_branch = b_branch(b, node, "else_branch");
    b_node(b, then_branch, "Add", "called w", "t");
    b_output(b, then_branch, "t");
    b_node(b, else_branch, "f", "x x", "e")->domain = "my";
    b_output(b, else_branch, "e");
}

static void *make_seed(builder *b, size_t *bytes)
{
    static float w[4] = { 1, 2, 3, 4 };
    static int32_t halves[2] = { 0x3c00, 0x4000 };
    b_input(b, "x", T_FLOAT, "batch 4");
    b_input(b, "c", T_BOOL, "");
    b_raw(b_initializer(b, b->graph, "w", T_FLOAT, "2 2"), w, sizeof w);
    pb_tensor *h = b_initializer(b, b->graph, "h", T_FLOAT16, "2"), *far = b_initializer(b, b->graph, "far", T_INT8, "9");
    h->int32_data = halves, h->n_int32_data = 2;
    b_external(b, far, "location", "data.bin");
    b_external(b, far, "length", "9");
    add_function(b);
    add_if(b);
    pb_node *sum = b_node(b, b->graph, "Sum", "chosen h last", "y");
    b_float(b, sum, "alpha", 0.5f);
    b_node(b, b->graph, "Neg", "x", "last"); /* out of order */
    b_output(b, b->graph, "y");
    return b_pack(b, bytes);
}

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* A buffer of just the right size, so that the sanitizer sees a read past the end. */
static void try(const uint8_t *data, size_t bytes)
{
    uint8_t *copy = malloc(bytes ? bytes : 1);
    assert_non_null(copy);
    if (bytes) memcpy(copy, data, bytes);
    LLVMFuzzerTestOneInput(copy, bytes);
    free(copy);
}

static heed_context *ctx;
static builder b;
static uint8_t *seed, *scratch;
static size_t n;

static int start(void **state)
{
    (void) state;
    if (heed_context_create(&ctx, NULL)) return -1;
    b = b_start(ctx);
    seed = make_seed(&b, &n);
    scratch = b_alloc(&b, 2 * n);
    return 0;
}

static int end(void **state)
{
    (void) state;
    b_end(&b);
    heed_context_destroy(ctx);
    return 0;
}

static void test_cut_off(void **state)
{
    (void) state;
    for (size_t i = 0; i <= n; i++) try(seed, i);
}

static void test_each_bit(void **state)
{
    (void) state;
    for (size_t i = 0; i < 8 * n; i++) {
        seed[i / 8] ^= (uint8_t) (1 << i % 8);
        try(seed, n);
        seed[i / 8] ^= (uint8_t) (1 << i % 8);
    }
}

static void test_pieces(void **state)
{
    (void) state;
    uint64_t random = 1;
    for (int round = 0; round < 4000; round++) {
        size_t from = next_random(&random) % n, length = next_random(&random) % (n - from), to = next_random(&random) % n;
        memcpy(scratch, seed, to);
        if (round % 2) { /* a piece doubled */
            memcpy(scratch + to, seed + from, length);
            memcpy(scratch + to + length, seed + to, n - to);
            try(scratch, n + length);
        } else { /* a piece lost */
            memcpy(scratch, seed, from);
            memcpy(scratch + from, seed + from + length, n - from - length);
            try(scratch, n - length);
        }
    }
}

static void test_bytes_at_random(void **state)
{
    (void) state;
    uint64_t random = 2;
    for (int round = 0; round < 8000; round++) {
        memcpy(scratch, seed, n);
        for (uint64_t k = next_random(&random) % 8 + 1; k; k--)
            scratch[next_random(&random) % n] = (uint8_t) next_random(&random);
        try(scratch, n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_off),
        cmocka_unit_test(test_each_bit),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_bytes_at_random),
    };
    return cmocka_run_group_tests(tests, start, end);
}
