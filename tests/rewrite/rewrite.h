/* What the tests of the rewrites share: a graph is rewritten twice, plain and fused, both are run on the same random inputs,
 * and the results are compared. */
#ifndef HEED_TESTS_REWRITE_H
#define HEED_TESTS_REWRITE_H

#include <math.h>
#include <stdio.h>
#include <time.h>

#include "exec/graph.h"
#include "graph/clone.h"
#include "rewrite/pass.h"

/* What became of a graph. The texts live until done(). */
struct outcome {
    heed_graph *graph; /* rewritten, fused */
    int n_fused, n_refused;
    const char *reason; /* of the last refusal, or of the last fusion if there is none */
    double error;       /* largest difference between plain and fused */
};

static struct counting memory;
static heed_context *ctx;
static unsigned seed;

static inline int setup(void **state)
{
    (void) state;
    ctx = test_context(&memory, 1);
    return 0;
}

static inline int teardown(void **state)
{
    (void) state;
    heed_context_destroy(ctx);
    assert_int_equal(memory.n_live, 0);
    return 0;
}

static inline int pick(int n)
{
    return rand() % n;
}

static inline float uniform(float low, float high)
{
    return low + (high - low) * (float) rand() / (float) RAND_MAX;
}

static inline void fill(heed_tensor *t)
{
    const int64_t n = heed_tensor_count(t);
    for (int64_t i = 0; i < n; i++) {
        switch (t->dtype) {
        case HEED_F32: ((float *) t->data)[i] = uniform(-2, 2); break;
        case HEED_BOOL: ((uint8_t *) t->data)[i] = pick(4) != 0; break;
        default: ((int64_t *) t->data)[i] = 1;
        }
    }
}

/* Sizes that the symbols d1, d2, .. have in the run. */
static const int64_t symbol_sizes[] = { 2, 7, 5, 3 };

static inline int64_t run_size(const heed_graph *g, int64_t dim)
{
    const char *name = heed_dims_name(g->dims, dim);
    return name ? symbol_sizes[name[1] - '1'] : dim;
}

static inline heed_graph *rewritten(const heed_graph *g, int fuse, heed_rewriter *rewriter)
{
    heed_graph *copy;
    assert_ok(heed_graph_clone(&copy, g));
    *rewriter = (heed_rewriter){ .ctx = ctx, .graph = copy, .fuse = fuse };
    assert_ok(heed_rewrite(rewriter));
    return copy;
}

static inline heed_program *run_graph(heed_graph *g, const heed_tensor *inputs)
{
    heed_program *p;
    assert_ok(heed_program_create(&p, g));
    assert_ok(heed_program_run(p, inputs));
    return p;
}

static inline double difference(const heed_tensor *a, const heed_tensor *b)
{
    double worst = 0;
    assert_int_equal(a->dtype, b->dtype);
    assert_dims(a, b->rank, b->dims);
    if (a->dtype != HEED_F32) return 0;
    for (int64_t i = 0, n = heed_tensor_count(a); i < n; i++) {
        const double x = ((const float *) a->data)[i], y = ((const float *) b->data)[i];
        if (x == y || (isnan(x) && (y == 0.0 || isnan(y))))
            continue; /* a row without a key: plain softmax makes NaN of it, heed 0 */
        const double d = fabs(x - y) / (1 + fabs(x));
        if (!(d <= worst)) worst = d;
    }
    return worst;
}

static inline int count_nodes(const heed_graph *g, const char *domain, const char *name)
{
    int n = 0;
    for (const heed_node *node = g->first; node; node = node->next) n += heed_node_is_in(node, domain, name);
    return n;
}

static inline const heed_node *find_node(const heed_graph *g, const char *domain, const char *name)
{
    for (const heed_node *node = g->first; node; node = node->next)
        if (heed_node_is_in(node, domain, name)) return node;
    return NULL;
}

static inline void print_graph(const heed_graph *g)
{
    heed_text text = { .ctx = ctx };
    heed_graph_print(g, &text);
    printf("%s\n", text.data);
    heed_text_free(&text);
}

/* Rewrite, run and compare; `tolerance` holds for the largest relative difference. */
static inline struct outcome try_graph(const heed_graph *g, double tolerance)
{
    struct outcome o = { 0 };
    heed_rewriter plain, fused;
    heed_graph *copy = rewritten(g, 0, &plain);
    o.graph = rewritten(g, 1, &fused);
    for (int i = 0; i < fused.n_findings; i++) {
        const heed_finding *f = &fused.findings[i];
        *(f->fused ? &o.n_fused : &o.n_refused) += 1;
        if (!f->fused || !o.n_refused) o.reason = f->reason;
        assert_int_equal(f->fused, f->attention != NULL);
        if (f->fused) assert_int_equal(heed_node_int(f->attention, "finding", -1), i);
        assert_non_null(f->node);
    }
    heed_tensor inputs[8];
    assert_true(g->n_inputs <= 8);
    for (int i = 0; i < g->n_inputs; i++) {
        int64_t dims[HEED_RANK_MAX];
        const heed_fact *fact = &g->inputs[i]->fact;
        for (int d = 0; d < fact->rank; d++) dims[d] = run_size(g, fact->dims[d]);
        inputs[i] = heed_tensor_make(fact->dtype, fact->rank, dims);
        inputs[i].data = malloc(heed_tensor_bytes(&inputs[i]) + 1);
        assert_non_null(inputs[i].data);
        fill(&inputs[i]);
    }
    heed_program *a = run_graph(copy, inputs), *b = run_graph(o.graph, inputs);
    for (int i = 0; i < g->n_outputs; i++) {
        const double d = difference(heed_program_output(a, i), heed_program_output(b, i));
        if (!(d <= o.error)) o.error = d;
    }
    if (!(o.error <= tolerance)) {
        print_graph(g), print_graph(o.graph);
        fail_msg("seed %u: plain and fused differ by %g", seed, o.error);
    }
    heed_program_destroy(a), heed_program_destroy(b);
    heed_graph_destroy(copy);
    for (int i = 0; i < g->n_inputs; i++) free(inputs[i].data);
    return o;
}

static inline void done(struct outcome *o, heed_graph *g)
{
    heed_graph_destroy(o->graph);
    heed_graph_destroy(g);
}

static inline void assert_fused(heed_graph *g, int n)
{
    struct outcome o = try_graph(g, 2e-5);
    if (o.n_fused != n || o.n_refused) fail_msg("%d fused, %d refused: %s", o.n_fused, o.n_refused, o.reason ? o.reason : "");
    assert_int_equal(count_nodes(o.graph, "heed", "Attention"), n);
    assert_int_equal(count_nodes(o.graph, "", "Softmax"), 0);
    done(&o, g);
}

/* Left alone, and the reason has these words. */
static inline void assert_refused(heed_graph *g, const char *words)
{
    struct outcome o = try_graph(g, 0);
    assert_int_equal(o.n_fused, 0);
    assert_int_equal(count_nodes(o.graph, "heed", "Attention"), 0);
    if (!o.reason || !strstr(o.reason, words))
        fail_msg("the reason is \"%s\", expected \"%s\" in it", o.reason ? o.reason : "", words);
    done(&o, g);
}

/* ---- building ---- */

static inline heed_value *set_string(heed_graph *g, heed_value *v, const char *name, const char *text)
{
    heed_attr attr = { .name = name, .type = HEED_ATTR_STRING, .s = text };
    assert_ok(heed_node_add_attr(g, v->producer, &attr));
    return v;
}

static inline heed_value *set_float(heed_graph *g, heed_value *v, const char *name, float x)
{
    heed_attr attr = { .name = name, .type = HEED_ATTR_FLOAT, .f = x };
    assert_ok(heed_node_add_attr(g, v->producer, &attr));
    return v;
}

static inline heed_value *transpose(heed_graph *g, heed_value *v, int rank, const int64_t *perm)
{
    heed_value *t = op(g, "Transpose", IN(v));
    set_ints(g, t, "perm", rank, perm);
    return t;
}

static inline heed_value *reshape(heed_graph *g, heed_value *v, int rank, const int64_t *dims)
{
    return op(g, "Reshape", IN(v, ints(g, rank, dims)));
}

static inline heed_value *softmax(heed_graph *g, heed_value *v, int axis)
{
    heed_value *s = op(g, "Softmax", IN(v));
    set_int(g, s, "axis", axis);
    return s;
}

static inline heed_value *cast(heed_graph *g, heed_value *v, int to)
{
    heed_value *c = op(g, "Cast", IN(v));
    set_int(g, c, "to", to);
    return c;
}

/* A seed to repeat a run with comes from HEED_TEST_SEED. */
static inline void start(void)
{
    const char *given = getenv("HEED_TEST_SEED");
    seed = given ? (unsigned) strtoul(given, NULL, 10) : (unsigned) time(NULL);
    printf("seed %u\n", seed);
    srand(seed);
}

#endif
