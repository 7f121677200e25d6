/* base/threads.h - the threads behind the default parallel-for.
 *
 * The caller works too and never waits for a thread that has not begun: on a busy machine a run costs what one thread needs, not
 * a turn of the scheduler per parallel-for. One job runs at a time; a caller that finds the pool busy does its job alone.
 */
#ifndef HEED_BASE_THREADS_H
#define HEED_BASE_THREADS_H

#include <stddef.h>

#include <heed/common.h>

typedef struct heed_threads heed_threads;

/* A pool that works on up to n_threads threads, the caller's among them, in memory of the caller: heed_threads_bytes() bytes,
 * 64-byte aligned. Threads start with the first job that has use for them; where the system gives fewer, the pool does with
 * those. Nothing is allocated. */
size_t heed_threads_bytes(int n_threads);
void heed_threads_init(heed_threads *pool, int n_threads);
void heed_threads_stop(heed_threads *pool); /* waits for them; takes NULL */

/* fn(arg, t, worker) for t in [0, n_tasks), worker below n_threads. Any thread may call it, from inside a task too. */
void heed_threads_run(heed_threads *pool, heed_task_fn fn, void *arg, int64_t n_tasks);

#endif
