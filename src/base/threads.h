/* base/threads.h - the threads behind the default parallel-for.
 *
 * The caller works too and never waits for a thread that has not begun: on a busy machine a run costs what one thread needs, not
 * a turn of the scheduler per parallel-for. One job runs at a time; a caller that finds the pool busy does its job alone.
 */
#ifndef HEED_BASE_THREADS_H
#define HEED_BASE_THREADS_H

#include <heed/common.h>

typedef struct heed_threads heed_threads;

/* A pool that works on up to n_threads threads, the caller's among them. Threads start with the first job that has use for
 * them; where the system gives fewer, the pool does with those. NULL: no memory. */
heed_threads *heed_threads_create(const heed_allocator *allocator, int n_threads);
void heed_threads_destroy(heed_threads *pool); /* waits for the threads; takes NULL */

/* fn(arg, t, worker) for t in [0, n_tasks), worker below n_threads. Any thread may call it, from inside a task too. */
void heed_threads_run(heed_threads *pool, heed_task_fn fn, void *arg, int64_t n_tasks);

#endif
