/* base/context.h - the context, and the memory and threads that come with it. */
#ifndef HEED_BASE_CONTEXT_H
#define HEED_BASE_CONTEXT_H

#include "base/status.h"

struct heed_context {
    DLDevice device;
    heed_allocator allocator;
    heed_parallel parallel;
    heed_log log;
    struct heed_threads *threads; /* behind the default parallel, else NULL */
};

/* 64-byte aligned memory from the context's hook, or NULL. A size of 0 gives a valid pointer. Not zeroed. */
void *heed_alloc(const heed_context *ctx, size_t bytes);
void heed_free(const heed_context *ctx, void *ptr);

/* fn(arg, t, worker) for t in [0, n_tasks); in the calling thread where one thread or one task makes the rest pointless. */
void heed_parallel_for(const heed_context *ctx, heed_task_fn fn, void *arg, int64_t n_tasks);

void heed_log_line(const heed_context *ctx, heed_log_level level, const char *fmt, ...) HEED_PRINTF(3, 4);

/* a * b and a + b for sizes, saturating at SIZE_MAX, so that one check at the end is enough. */
size_t heed_size_mul(size_t a, size_t b);
size_t heed_size_add(size_t a, size_t b);

#endif
