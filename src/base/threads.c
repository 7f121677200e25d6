/* A job is published under the lock; threads join it under the lock and take tasks by an atomic counter. Joining ends when the
 * caller has taken the last task, so that a thread that wakes late finds nothing and no one waited for it. */
#include "base/threads.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

/* How long an idle thread looks for the next job before it sleeps: the pause between two parallel-for of one model run is some
 * microseconds, waking a thread costs tens of them. */
#define IDLE_LOOKS 4000

struct job {
    heed_task_fn fn;
    void *arg;
    int64_t n_tasks;
    _Atomic int64_t next;
};

struct member {
    pthread_t thread;
    heed_threads *pool;
    int worker;
};

struct heed_threads {
    int n_threads, n_started;
    pthread_mutex_t busy; /* held by the caller whose job runs */
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t work, done;
    struct job *job; /* NULL: nothing to join */
    int n_asleep;
    int stop;
    _Atomic int n_inside;    /* threads that joined the job, without the caller; changes under the lock */
    _Atomic unsigned epoch;  /* goes up with every job and with stop; idle threads look at it without the lock */
    struct member members[]; /* without the caller */
};

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void take_tasks(struct job *job, int worker)
{
    for (;;) {
        int64_t t = atomic_fetch_add_explicit(&job->next, 1, memory_order_relaxed);
        if (t >= job->n_tasks) return;
        job->fn(job->arg, t, worker);
    }
}

/* Until the epoch is not `seen` any more: looking for a while, then asleep. */
static void wait_for_work(heed_threads *pool, unsigned seen)
{
    for (int i = 0; i < IDLE_LOOKS; i++) {
        if (atomic_load_explicit(&pool->epoch, memory_order_acquire) != seen) return;
        relax();
    }
    pthread_mutex_lock(&pool->lock);
    pool->n_asleep++;
    while (atomic_load_explicit(&pool->epoch, memory_order_relaxed) == seen) pthread_cond_wait(&pool->work, &pool->lock);
    pool->n_asleep--;
    pthread_mutex_unlock(&pool->lock);
}

static void *thread_main(void *arg)
{
    const struct member *member = arg;
    heed_threads *pool = member->pool;
    unsigned seen = 0;
    for (;;) {
        wait_for_work(pool, seen);
        pthread_mutex_lock(&pool->lock);
        seen = atomic_load_explicit(&pool->epoch, memory_order_relaxed);
        int stop = pool->stop;
        struct job *job = stop ? NULL : pool->job;
        if (job) pool->n_inside++;
        pthread_mutex_unlock(&pool->lock);
        if (stop) return NULL;
        if (!job) continue;
        take_tasks(job, member->worker);
        pthread_mutex_lock(&pool->lock);
        if (--pool->n_inside == 0) pthread_cond_signal(&pool->done);
        pthread_mutex_unlock(&pool->lock);
    }
}

size_t heed_threads_bytes(int n_threads)
{
    return sizeof(heed_threads) + (size_t) n_threads * sizeof(struct member);
}

void heed_threads_init(heed_threads *pool, int n_threads)
{
    memset(pool, 0, heed_threads_bytes(n_threads));
    pool->n_threads = n_threads;
    pthread_mutex_init(&pool->busy, NULL);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->done, NULL);
}

/* Signals are the host's business and its threads'. */
static int start_thread(struct member *member)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&member->thread, NULL, thread_main, member);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

/* With `busy` held, once. A thread sees epoch 0 first, as it was before the job that starts it. */
static void start_threads(heed_threads *pool)
{
    while (pool->n_started < pool->n_threads - 1) {
        struct member *member = &pool->members[pool->n_started];
        member->pool = pool, member->worker = pool->n_started + 1;
        if (start_thread(member) != 0) break;
        pool->n_started++;
    }
    pool->n_threads = pool->n_started + 1;
}

void heed_threads_stop(heed_threads *pool)
{
    if (!pool) return;
    pthread_mutex_lock(&pool->lock);
    pool->stop = 1;
    atomic_fetch_add_explicit(&pool->epoch, 1, memory_order_release);
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->n_started; i++) pthread_join(pool->members[i].thread, NULL);
    pthread_cond_destroy(&pool->work);
    pthread_cond_destroy(&pool->done);
    pthread_mutex_destroy(&pool->lock);
    pthread_mutex_destroy(&pool->busy);
}

void heed_threads_run(heed_threads *pool, heed_task_fn fn, void *arg, int64_t n_tasks)
{
    struct job job = { .fn = fn, .arg = arg, .n_tasks = n_tasks };
    /* Busy: another thread's job, or this call is inside a task of it. */
    if (n_tasks < 2 || pthread_mutex_trylock(&pool->busy) != 0) {
        take_tasks(&job, 0);
        return;
    }
    if (pool->n_started < pool->n_threads - 1) start_threads(pool);
    pthread_mutex_lock(&pool->lock);
    pool->job = &job;
    atomic_fetch_add_explicit(&pool->epoch, 1, memory_order_release);
    if (pool->n_asleep > 0) pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);

    take_tasks(&job, 0);

    pthread_mutex_lock(&pool->lock);
    pool->job = NULL;
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < IDLE_LOOKS && atomic_load_explicit(&pool->n_inside, memory_order_acquire) > 0; i++) relax();
    pthread_mutex_lock(&pool->lock);
    while (pool->n_inside > 0) pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
    pthread_mutex_unlock(&pool->busy);
}
