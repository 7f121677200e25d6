/* Threads, hooks and memory: results do not depend on who runs what when; a run allocates nothing; failures leak nothing. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "case.h"
#include "unit/test.h"

static int start(void **state)
{
    (void) state;
    rng_start();
    return 0;
}

/* An allocator that counts and can fail. */
struct counter {
    atomic_int live, calls, fail_at; /* fail_at: number of the call that fails, 0 for none */
};

static void *counting_alloc(void *user, size_t align, size_t bytes)
{
    struct counter *n = user;
    int call = atomic_fetch_add(&n->calls, 1) + 1;
    if (call == atomic_load(&n->fail_at)) return NULL;
    void *ptr = NULL;
    if (posix_memalign(&ptr, align, bytes ? bytes : 1)) return NULL;
    atomic_fetch_add(&n->live, 1);
    return ptr;
}

static void counting_free(void *user, void *ptr)
{
    struct counter *n = user;
    if (ptr) atomic_fetch_sub(&n->live, 1);
    free(ptr);
}

static heed_context *make_context(int n_threads, struct counter *counter, const heed_parallel *parallel)
{
    heed_context_desc d;
    heed_context *ctx;
    heed_context_desc_init(&d);
    d.n_threads = n_threads;
    if (counter) d.allocator = (heed_allocator){ counter, counting_alloc, counting_free };
    if (parallel) d.parallel = *parallel;
    if (heed_context_create(&ctx, &d) != HEED_OK) fail_msg("context: %s", heed_last_message());
    return ctx;
}

/* Problems that take every road: whole, split by the shape, many small units in a task, a mask, halves. */
static spec road(int n)
{
    static const heed_dtype types[] = { HEED_F32, HEED_F16, HEED_BF16 };
    spec s = spec_random(types[n % 3]);
    s.batch = 2, s.heads_q = 6, s.heads_kv = 2, s.head_dim = s.head_dim_v = 16, s.lse = s.sinks = 1;
    s.len_q = (int64_t[]){ 70, 1, 3, 9 }[n % 4], s.len_k = (int64_t[]){ 65, 2300, 2300, 7 }[n % 4];
    if (n % 4 == 3) s.batch = 50;
    if (n % 2) s.window_right = 0;
    if (n & 1) s.mask = HEED_MASK_BOOL, s.mask_repeat = 6;
    s.poison = n & 4;
    return s;
}
enum { N_ROADS = 8 };

static void run_in(sample *c, heed_context *ctx, const char *kernel)
{
    heed_attention_plan *plan;
    heed_attention_desc d = c->desc;
    d.kernel = kernel;
    if (heed_attention_plan_create(&plan, ctx, &d) != HEED_OK) fail_msg("plan: %s", heed_last_message());
    array_poison(&c->out), array_poison(&c->lse);
    if (heed_attention_run(plan, &c->args, NULL, 0) != HEED_OK) fail_msg("run: %s", heed_last_message());
    heed_attention_plan_destroy(plan);
}

/* Copies of both outputs, to compare bit by bit. */
struct bits {
    char *out, *lse;
};

static struct bits keep(const sample *c)
{
    struct bits b = { malloc(c->out.reach * 4), malloc(c->lse.reach * 4) };
    memcpy(b.out, c->out.data, c->out.reach * heed_dtype_size(c->out.dtype));
    memcpy(b.lse, c->lse.data, c->lse.reach * 4);
    return b;
}

static void expect_same(const sample *c, const struct bits *b, const char *who)
{
    if (memcmp(b->out, c->out.data, c->out.reach * heed_dtype_size(c->out.dtype)) != 0) fail_msg("%s: out differs", who);
    if (memcmp(b->lse, c->lse.data, c->lse.reach * 4) != 0) fail_msg("%s: lse differs", who);
}

static void drop(struct bits *b)
{
    free(b->out), free(b->lse);
}

static void test_thread_counts(void **state)
{
    (void) state;
    for (int n = 0; n < N_ROADS; n++) {
        spec s = road(n);
        sample c;
        sample_make(&c, &s);
        for (int i = -1; i < 0 || kernel_for(s.dtype, i); i++) {
            const char *kernel = i < 0 ? NULL : kernel_for(s.dtype, i);
            heed_context *one = make_context(1, NULL, NULL);
            run_in(&c, one, kernel);
            sample_check(&c, kernel ? kernel : "the choice");
            struct bits b = keep(&c);
            for (int t = 0; t < 3; t++) {
                heed_context *ctx = make_context((int[]){ 2, 3, 7 }[t], NULL, NULL);
                run_in(&c, ctx, kernel);
                expect_same(&c, &b, kernel ? kernel : "the choice");
                heed_context_destroy(ctx);
            }
            drop(&b);
            heed_context_destroy(one);
        }
        sample_free(&c);
    }
}

/* A parallel-for of the user's own: four workers, tasks from the last to the first. */
struct own_pool {
    atomic_int runs;
    heed_task_fn fn;
    void *arg;
    atomic_int_fast64_t left;
};

struct own_worker {
    struct own_pool *pool;
    int number;
};

static void *work(void *arg)
{
    const struct own_worker *w = arg;
    int64_t t;
    while ((t = atomic_fetch_sub(&w->pool->left, 1) - 1) >= 0) w->pool->fn(w->pool->arg, t, w->number);
    return NULL;
}

static void own_run(void *user, heed_task_fn fn, void *arg, int64_t n_tasks)
{
    struct own_pool *pool = user;
    pthread_t threads[4];
    struct own_worker workers[4];
    atomic_fetch_add(&pool->runs, 1);
    pool->fn = fn, pool->arg = arg;
    atomic_store(&pool->left, n_tasks);
    for (int i = 0; i < 4; i++) {
        workers[i] = (struct own_worker){ pool, i };
        if (pthread_create(&threads[i], NULL, work, &workers[i])) abort();
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}

static void test_own_parallel(void **state)
{
    (void) state;
    struct own_pool pool = { .runs = 0 };
    heed_context *one = make_context(1, NULL, NULL), *own = make_context(0, NULL, &(heed_parallel){ &pool, 4, own_run });
    assert_int_equal(heed_context_threads(own), 4);
    for (int n = 0; n < N_ROADS; n++) {
        spec s = road(n);
        sample c;
        sample_make(&c, &s);
        run_in(&c, one, NULL);
        struct bits b = keep(&c);
        int before = atomic_load(&pool.runs);
        run_in(&c, own, NULL);
        assert_true(atomic_load(&pool.runs) > before);
        expect_same(&c, &b, "own parallel-for");
        drop(&b);
        sample_free(&c);
    }
    heed_context_destroy(one);
    heed_context_destroy(own);
}

/* With a workspace of the plan's size nothing is allocated, for any run up to the plan's maxima. */
static void test_no_allocation(void **state)
{
    (void) state;
    struct counter counter = { .live = 0 };
    heed_context *ctx = make_context(2, &counter, NULL);
    for (int n = 0; n < N_ROADS; n++) {
        spec s = road(n);
        for (int i = -1; i < 0 || kernel_for(s.dtype, i); i++) {
            sample c;
            sample_make(&c, &s);
            heed_attention_desc d = c.desc;
            d.kernel = i < 0 ? NULL : kernel_for(s.dtype, i);
            heed_attention_plan *plan;
            assert_int_equal(heed_attention_plan_create(&plan, ctx, &d), HEED_OK);
            size_t bytes = heed_attention_plan_workspace(plan);
            array space; /* ends at a page without access */
            array_make(&space, HEED_F32, 1, &(int64_t){ (int64_t) (bytes + 63) / 64 * 16 }, LAYOUT_BHLD, 0);
            char *end = space.map + space.map_bytes - sysconf(_SC_PAGESIZE);
            void *aligned = end - (bytes + 63) / 64 * 64;
            int calls = atomic_load(&counter.calls);
            for (int part = 0; part < 6; part++) { /* the whole, then smaller runs */
                spec small = s;
                if (part)
                    small.batch = 1 + rng_below(s.batch), small.len_q = rng_below(s.len_q + 1),
                    small.len_k = rng_below(s.len_k + 1);
                if (part == 1) small.batch = 1, small.len_q = s.len_q, small.len_k = s.len_k;
                sample r;
                sample_make(&r, &small);
                if (heed_attention_run(plan, &r.args, aligned, bytes) != HEED_OK) fail_msg("run: %s", heed_last_message());
                sample_check(&r, d.kernel ? d.kernel : "the choice");
                sample_free(&r);
            }
            assert_int_equal(atomic_load(&counter.calls), calls);
            array_free(&space);
            heed_attention_plan_destroy(plan);
            sample_free(&c);
        }
    }
    heed_context_destroy(ctx);
    assert_int_equal(atomic_load(&counter.live), 0);
}

/* Every allocation in turn fails: the status says so, nothing leaks, nothing is written. */
static void test_failing_memory(void **state)
{
    (void) state;
    static const char *const kernels[] = { NULL, "explode", "reference" };
    for (int k = 0; k < 3; k++) {
        spec s = road(k);
        sample c;
        sample_make(&c, &s);
        c.desc.kernel = kernels[k];
        int done = 0;
        for (int fail_at = 1; !done; fail_at++) {
            assert_true(fail_at < 100);
            struct counter counter = { .live = 0 };
            heed_context *ctx = make_context(2, &counter, NULL);
            int before = atomic_load(&counter.calls), live = atomic_load(&counter.live);
            atomic_store(&counter.fail_at, before + fail_at);
            heed_attention_plan *plan;
            array_poison(&c.out);
            heed_status status = heed_attention_plan_create(&plan, ctx, &c.desc);
            if (status == HEED_OK) status = heed_attention_run(plan, &c.args, NULL, 0);
            else assert_null(plan);
            done = atomic_load(&counter.calls) < before + fail_at;
            assert_int_equal(status, done ? HEED_OK : HEED_ERR_MEMORY);
            if (!done) {
                assert_non_null(strstr(heed_last_message(), "no memory for"));
                for (size_t i = 0; i < c.out.reach * heed_dtype_size(s.dtype); i++)
                    assert_int_equal(((unsigned char *) c.out.data)[i], 0xff);
            }
            heed_attention_plan_destroy(plan);
            assert_int_equal(atomic_load(&counter.live), live);
            heed_context_destroy(ctx);
            assert_int_equal(atomic_load(&counter.live), 0);
        }
        sample_free(&c);
    }
}

/* Several threads run one plan at once, each with its own tensors. */
struct user {
    const heed_attention_plan *plan;
    sample c;
    heed_status status;
};

static void *use_plan(void *arg)
{
    struct user *u = arg;
    for (int n = 0; n < 20 && u->status == HEED_OK; n++) u->status = heed_attention_run(u->plan, &u->c.args, NULL, 0);
    return NULL;
}

static void test_shared_plan(void **state)
{
    (void) state;
    static const char *const kernels[] = { NULL, "explode" };
    heed_context *ctx = make_context(2, NULL, NULL);
    for (int k = 0; k < 2; k++) {
        struct user users[3];
        pthread_t threads[3];
        heed_attention_plan *plan;
        for (int i = 0; i < 3; i++) {
            spec s = road(2);
            users[i] = (struct user){ .status = HEED_OK };
            sample_make(&users[i].c, &s);
        }
        users[0].c.desc.kernel = kernels[k];
        assert_int_equal(heed_attention_plan_create(&plan, ctx, &users[0].c.desc), HEED_OK);
        for (int i = 0; i < 3; i++) {
            users[i].plan = plan;
            if (pthread_create(&threads[i], NULL, use_plan, &users[i])) fail_msg("no thread");
        }
        for (int i = 0; i < 3; i++) {
            pthread_join(threads[i], NULL);
            assert_int_equal(users[i].status, HEED_OK);
            sample_check(&users[i].c, "shared plan");
            sample_free(&users[i].c);
        }
        heed_attention_plan_destroy(plan);
    }
    heed_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_thread_counts), cmocka_unit_test(test_own_parallel),
                                        cmocka_unit_test(test_no_allocation), cmocka_unit_test(test_failing_memory),
                                        cmocka_unit_test(test_shared_plan) };
    return cmocka_run_group_tests(tests, start, NULL);
}
