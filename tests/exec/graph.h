/* Small graphs written in C, for tests. Everything asserts. */
#ifndef HEED_TESTS_EXEC_GRAPH_H
#define HEED_TESTS_EXEC_GRAPH_H

#include <stdlib.h>
#include <string.h>

#include "exec/program.h"
#include "ops/infer.h"
#include "unit/test.h"

#define OPSET 18
#define IN(...)                                                                                                                  \
    (sizeof((heed_value *[]){ __VA_ARGS__ }) / sizeof(heed_value *)), (heed_value *[])                                           \
    {                                                                                                                            \
        __VA_ARGS__                                                                                                              \
    }

#define assert_ok(call)                                                                                                          \
    do {                                                                                                                         \
        heed_status status_ = (call);                                                                                            \
        if (status_ != HEED_OK) fail_msg("%s: %s", #call, heed_last_message());                                                  \
    } while (0)

/* ---- an allocator that counts, can fail, and fills memory with NaN before and after use ---- */

struct counting {
    long n_allocs, n_live, fail_at; /* fail_at: number of the allocation that fails, -1 for none */
    size_t bytes;
};

static inline void *counting_alloc(void *user, size_t align, size_t bytes)
{
    struct counting *c = user;
    if (c->n_allocs++ == c->fail_at) return NULL;
    size_t head = align < 64 ? 64 : align, total = (head + bytes + align - 1) & ~(align - 1);
    unsigned char *p = aligned_alloc(align, total);
    assert_non_null(p);
    memset(p, 0xff, total);
    *(size_t *) p = total, *(size_t *) (p + head - sizeof(size_t)) = head;
    c->n_live++, c->bytes += bytes;
    return p + head;
}

static inline void counting_free(void *user, void *ptr)
{
    if (!ptr) return;
    struct counting *c = user;
    size_t head = *(size_t *) ((unsigned char *) ptr - sizeof(size_t));
    unsigned char *p = (unsigned char *) ptr - head;
    memset(p, 0xff, *(size_t *) p);
    free(p);
    c->n_live--;
}

static inline heed_context *test_context(struct counting *c, int threads)
{
    heed_context_desc desc;
    heed_context_desc_init(&desc);
    desc.n_threads = threads;
    *c = (struct counting){ .fail_at = -1 };
    desc.allocator = (heed_allocator){ c, counting_alloc, counting_free };
    heed_context *ctx;
    assert_ok(heed_context_create(&ctx, &desc));
    return ctx;
}

/* ---- graphs ---- */

/* dims: sizes, or -1, -2, .. for symbols "d1", "d2" */
static inline heed_value *input(heed_graph *g, const char *name, heed_dtype dtype, int rank, const int64_t *dims)
{
    heed_value *v = heed_graph_add_input(g, name);
    assert_non_null(v);
    v->fact.dtype = dtype, v->fact.rank = rank;
    for (int i = 0; i < rank; i++) {
        char symbol[8] = { 'd', (char) ('0' - dims[i]), 0 };
        v->fact.dims[i] = dims[i] >= 0 ? dims[i] : heed_dims_named(g->dims, symbol);
    }
    return v;
}

static inline heed_value *constant(heed_graph *g, heed_dtype dtype, int rank, const int64_t *dims, const void *data)
{
    heed_tensor *t = HEED_NEW(g->arena, heed_tensor);
    *t = heed_tensor_make(dtype, rank, dims);
    t->data = heed_arena_alloc(g->arena, heed_tensor_bytes(t) + 1);
    if (data) memcpy(t->data, data, heed_tensor_bytes(t));
    heed_value *v = heed_graph_add_constant(g, NULL, t);
    assert_non_null(v);
    return v;
}

static inline heed_value *ints(heed_graph *g, int64_t n, const int64_t *data)
{
    return constant(g, HEED_I64, 1, &n, data);
}

static inline heed_value *scalar(heed_graph *g, float x)
{
    return constant(g, HEED_F32, 0, NULL, &x);
}

static inline heed_node *node(heed_graph *g, const char *op, int n_in, heed_value *const *in, int n_out)
{
    heed_node *n = heed_graph_add_node(g, NULL, "", op, OPSET, n_in, in, n_out);
    assert_non_null(n);
    n->name = heed_arena_printf(g->arena, "%s_%d", op, n->id);
    return n;
}

static inline heed_value *op(heed_graph *g, const char *name, size_t n_in, heed_value *const *in)
{
    return node(g, name, (int) n_in, in, 1)->outputs[0];
}

static inline void set_int(heed_graph *g, heed_value *v, const char *name, int64_t i)
{
    heed_attr attr = { .name = name, .type = HEED_ATTR_INT, .n = 1, .i = i };
    assert_ok(heed_node_add_attr(g, v->producer, &attr));
}

static inline void set_ints(heed_graph *g, heed_value *v, const char *name, int64_t n, const int64_t *values)
{
    heed_attr attr = { .name = name, .type = HEED_ATTR_INTS, .n = n, .ints = values };
    assert_ok(heed_node_add_attr(g, v->producer, &attr));
}

static inline heed_program *program_of(heed_graph *g)
{
    heed_program *p;
    assert_ok(heed_graph_bind(g));
    assert_ok(heed_graph_infer(g));
    assert_ok(heed_graph_verify(g));
    assert_ok(heed_program_create(&p, g));
    return p;
}

static inline heed_tensor tensor(heed_dtype dtype, int rank, const int64_t *dims, void *data)
{
    heed_tensor t = heed_tensor_make(dtype, rank, dims);
    t.data = data;
    return t;
}

static inline void assert_dims(const heed_tensor *t, int rank, const int64_t *dims)
{
    assert_int_equal(t->rank, rank);
    for (int i = 0; i < rank; i++) assert_int_equal(t->dims[i], dims[i]);
}

static inline float at(const heed_tensor *t, int64_t i)
{
    assert_int_equal(t->dtype, HEED_F32);
    assert_true(heed_tensor_is_dense(t));
    return ((const float *) t->data)[i];
}

#endif
