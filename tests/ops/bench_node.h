/* Run one operator on tensors of a test's making: as a session would (data of inputs that are not constants is hidden while
 * preparing), with inputs of any strides, on one thread and on three, with the same bits. Tensors live in the bench's arena. */
#ifndef HEED_TESTS_BENCH_NODE_H
#define HEED_TESTS_BENCH_NODE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/half.h"
#include "ops/line_io.h"
#include "ops/op.h"
#include "unit/test.h"

#define BENCH_MAX 12

typedef struct bench {
    heed_context *ctx, *ctx3;
    heed_graph *graph;
    uint64_t random;
    unsigned constants; /* bit i: input i is a constant */
    int strides_matter; /* sums may run in another order with other strides: then that result is in out[], to be checked itself */
    heed_tensor *out[BENCH_MAX];
} bench;

/* ---- numbers ---- */

static inline uint64_t next_random(bench *b)
{
    b->random ^= b->random << 13, b->random ^= b->random >> 7, b->random ^= b->random << 17;
    return b->random;
}

static inline double uniform(bench *b, double low, double high)
{
    return low + (high - low) * (double) (next_random(b) >> 11) * 0x1p-53;
}

static inline int64_t between(bench *b, int64_t low, int64_t high)
{
    return low + (int64_t) (next_random(b) % (uint64_t) (high - low + 1));
}

static inline void put(const heed_tensor *t, int64_t at, double x)
{
    heed_cast_line(t->dtype, heed_at(t->data, t->dtype, at), 0, HEED_F64, &x, 0, 1);
}

static inline double get(const heed_tensor *t, int64_t at)
{
    double x;
    heed_cast_line(HEED_F64, &x, 0, t->dtype, heed_at(t->data, t->dtype, at), 0, 1);
    return x;
}

/* Element by its index; missing dimensions and those of size 1 repeat. */
static inline double get_at(const heed_tensor *t, const int64_t *index, int rank)
{
    int64_t at = 0;
    for (int d = 0; d < t->rank; d++) {
        int64_t i = index[d + rank - t->rank];
        at += (t->dims[d] == 1 ? 0 : i) * t->strides[d];
    }
    return get(t, at);
}

/* Index of element number i in row-major order. */
static inline void unravel(const heed_tensor *t, int64_t i, int64_t *index)
{
    for (int d = t->rank - 1; d >= 0; d--) index[d] = i % t->dims[d], i /= t->dims[d];
}

/* Distance of two neighbours of the type at magnitude 1, relative. */
static inline double rounding(heed_dtype dtype)
{
    return dtype == HEED_F16 ? 0x1p-10 : dtype == HEED_BF16 ? 0x1p-7 : dtype == HEED_F64 ? 1e-14 : 0x1p-22;
}

/* ---- set up ---- */

static inline bench bench_start(void)
{
    const char *seed = getenv("HEED_TEST_SEED");
    bench b = { .random = seed ? strtoull(seed, NULL, 0) : (uint64_t) time(NULL) * 2654435761u + 1 };
    printf("HEED_TEST_SEED=%llu\n", (unsigned long long) b.random);
    heed_context_desc desc;
    heed_context_desc_init(&desc);
    desc.n_threads = 1;
    assert_int_equal(heed_context_create(&b.ctx, &desc), HEED_OK);
    desc.n_threads = 3;
    assert_int_equal(heed_context_create(&b.ctx3, &desc), HEED_OK);
    b.graph = heed_graph_create(b.ctx);
    assert_non_null(b.graph);
    return b;
}

static inline void bench_end(bench *b)
{
    heed_graph_destroy(b->graph);
    heed_context_destroy(b->ctx3);
    heed_context_destroy(b->ctx);
}

/* A tensor of zeros; dense. */
static inline heed_tensor *tensor(bench *b, heed_dtype dtype, int rank, const int64_t *dims)
{
    heed_tensor *t = HEED_NEW(b->graph->arena, heed_tensor);
    *t = heed_tensor_make(dtype, rank, dims);
    t->data = heed_arena_alloc(b->graph->arena, heed_tensor_bytes(t) + 1);
    return t;
}

#define DIMS(...)                                                                                                                \
    ((int) (sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t))), (int64_t[])                                                  \
    {                                                                                                                            \
        __VA_ARGS__                                                                                                              \
    }

static inline heed_tensor *uniform_tensor(bench *b, heed_dtype dtype, double low, double high, int rank, const int64_t *dims)
{
    heed_tensor *t = tensor(b, dtype, rank, dims);
    for (int64_t i = 0; i < heed_tensor_count(t); i++) put(t, i, uniform(b, low, high));
    return t;
}

/* The same values in memory of another order, with gaps, some of it backwards. */
static inline heed_tensor *restride(bench *b, const heed_tensor *t)
{
    heed_tensor *s = HEED_NEW(b->graph->arena, heed_tensor);
    *s = *t;
    int order[HEED_RANK_MAX];
    for (int d = 0; d < t->rank; d++) order[d] = d;
    for (int d = t->rank - 1; d > 0; d--) {
        int e = (int) between(b, 0, d), x = order[d];
        order[d] = order[e], order[e] = x;
    }
    int64_t stride = between(b, 1, 2), start = 0;
    for (int d = t->rank - 1; d >= 0; d--) {
        s->strides[order[d]] = stride;
        stride *= (t->dims[order[d]] ? t->dims[order[d]] : 1) + between(b, 0, 1);
    }
    for (int d = 0; d < t->rank; d++) {
        if (t->dims[d] == 0 || next_random(b) % 4 != 0) continue;
        start += s->strides[d] * (t->dims[d] - 1), s->strides[d] = -s->strides[d];
    }
    char *memory = heed_arena_alloc(b->graph->arena, (size_t) (stride + 1) * heed_dtype_size(t->dtype));
    memset(memory, 0xff, (size_t) (stride + 1) * heed_dtype_size(t->dtype)); /* NaN between */
    s->data = heed_at(memory, t->dtype, start);
    heed_tensor_copy(s, t);
    return s;
}

static inline heed_node *node_of(bench *b, const char *domain, const char *op, int version, int n_in, int n_out)
{
    heed_value *none[BENCH_MAX] = { NULL };
    heed_node *node = heed_graph_add_node(b->graph, NULL, domain, op, version, n_in, none, n_out);
    assert_non_null(node);
    return node;
}

static inline void set_int(bench *b, heed_node *node, const char *name, int64_t i)
{
    heed_node_add_attr(b->graph, node, &(heed_attr){ .name = name, .type = HEED_ATTR_INT, .i = i });
}

static inline void set_float(bench *b, heed_node *node, const char *name, double f)
{
    heed_node_add_attr(b->graph, node, &(heed_attr){ .name = name, .type = HEED_ATTR_FLOAT, .f = (float) f });
}

static inline void set_string(bench *b, heed_node *node, const char *name, const char *s)
{
    heed_node_add_attr(b->graph, node, &(heed_attr){ .name = name, .type = HEED_ATTR_STRING, .s = s });
}

static inline void set_ints(bench *b, heed_node *node, const char *name, int n, const int64_t *ints)
{
    heed_node_add_attr(b->graph, node, &(heed_attr){ .name = name, .type = HEED_ATTR_INTS, .n = n, .ints = ints });
}

/* ---- run ---- */

static inline heed_status bench_infer(bench *b, const heed_op *op, const heed_node *node, const heed_tensor *const *in,
                                      heed_fact *out)
{
    heed_fact facts[BENCH_MAX], *in_facts[BENCH_MAX] = { NULL };
    for (int k = 0; k < node->n_inputs; k++) {
        if (!in[k]) continue;
        facts[k] = (heed_fact){ .dtype = in[k]->dtype, .rank = in[k]->rank };
        memcpy(facts[k].dims, in[k]->dims, sizeof facts[k].dims);
        if (op->shape_inputs >> k & 1) facts[k].value = in[k];
        in_facts[k] = &facts[k];
    }
    for (int k = 0; k < node->n_outputs; k++) out[k] = (heed_fact){ .rank = -1 };
    heed_infer infer = {
        node, b->graph->arena, b->graph->dims, node->n_inputs, node->n_outputs, (const heed_fact *const *) in_facts, out
    };
    return op->infer(&infer);
}

static inline heed_status bench_compute(bench *b, heed_context *ctx, const heed_op *op, const heed_node *node,
                                        const heed_tensor *const *in, heed_tensor **out)
{
    heed_tensor hidden[BENCH_MAX];
    const heed_tensor *seen[BENCH_MAX] = { NULL };
    heed_compute c = { .ctx = ctx, .node = node, .n_in = node->n_inputs, .n_out = node->n_outputs, .in = seen, .out = out };
    for (int k = 0; k < node->n_inputs; k++) {
        if (!in[k]) continue;
        hidden[k] = *in[k];
        if (!(b->constants >> k & 1)) hidden[k].data = NULL;
        seen[k] = &hidden[k];
    }
    if (op->prepare) HEED_TRY(op->prepare(&c, &c.state));
    size_t bytes = op->scratch ? op->scratch(&c) : 0;
    assert_true(bytes < (size_t) 1 << 32);
    void *scratch = bytes ? heed_alloc(ctx, bytes) : NULL;
    if (bytes) memset(scratch, 0xff, bytes);
    c.scratch = scratch, c.in = in;
    heed_status status = op->compute(&c);
    heed_free(ctx, scratch);
    if (op->release) op->release(ctx, c.state);
    return status;
}

static inline void expect_same_bits(const heed_node *node, heed_tensor *const *a, heed_tensor *const *b, const char *when)
{
    for (int k = 0; k < node->n_outputs; k++)
        if (memcmp(a[k]->data, b[k]->data, heed_tensor_bytes(a[k])) != 0) fail_msg("%s: output %d differs %s", node->op, k, when);
}

/* Outputs in b->out. */
static inline heed_status run_node(bench *b, heed_node *node, const heed_tensor *const *in)
{
    const heed_op *op = heed_op_find(node->domain, node->op, node->version);
    assert_non_null(op);
    assert_true(node->n_inputs >= op->min_in && (op->max_in < 0 || node->n_inputs <= op->max_in));
    heed_fact facts[BENCH_MAX];
    HEED_TRY(bench_infer(b, op, node, in, facts));
    heed_tensor *again[BENCH_MAX] = { NULL };
    for (int k = 0; k < node->n_outputs; k++) {
        assert_true(facts[k].rank >= 0 && facts[k].dtype != HEED_DTYPE_NONE);
        b->out[k] = tensor(b, facts[k].dtype, facts[k].rank, facts[k].dims);
        again[k] = tensor(b, facts[k].dtype, facts[k].rank, facts[k].dims);
    }
    if (op->layout) {
        heed_compute c = { .ctx = b->ctx, .node = node, .n_in = node->n_inputs, .n_out = node->n_outputs, .in = in };
        c.out = b->out, op->layout(&c);
        c.out = again, op->layout(&c);
    }
    HEED_TRY(bench_compute(b, b->ctx, op, node, in, b->out));
    HEED_TRY(bench_compute(b, b->ctx3, op, node, in, again));
    expect_same_bits(node, b->out, again, "on three threads");
    if (!(op->flags & HEED_OP_STRIDED)) return HEED_OK;
    const heed_tensor *strided[BENCH_MAX] = { NULL };
    for (int k = 0; k < node->n_inputs; k++) strided[k] = !in[k] || b->constants >> k & 1 ? in[k] : restride(b, in[k]);
    if (b->strides_matter) return bench_compute(b, b->ctx3, op, node, strided, b->out);
    HEED_TRY(bench_compute(b, b->ctx3, op, node, strided, again));
    expect_same_bits(node, b->out, again, "with other strides");
    return HEED_OK;
}

static inline void expect_node(bench *b, heed_node *node, const heed_tensor *const *in)
{
    heed_status status = run_node(b, node, in);
    if (status != HEED_OK) fail_msg("%s: %s", node->op, heed_last_message());
}

/* |got - want| <= error, or both the same infinity or NaN. */
static inline void expect_close(double got, double want, double error, const char *what, int64_t at)
{
    if (fabs(got - want) <= error || got == want || (isnan(got) && isnan(want))) return;
    fail_msg("%s: element %lld is %.9g, expected %.9g within %.2g", what, (long long) at, got, want, error);
}

static inline void expect_shape(const heed_tensor *t, int rank, const int64_t *dims)
{
    assert_int_equal(t->rank, rank);
    for (int d = 0; d < rank; d++) assert_int_equal(t->dims[d], dims[d]);
}

#endif
