/* The context: defaults for every hook, one parallel-for. */
#include "base/context.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/threads.h"

static void *default_alloc(void *user, size_t align, size_t bytes)
{
    (void) user;
    void *ptr = NULL;
    if (posix_memalign(&ptr, align < sizeof(void *) ? sizeof(void *) : align, bytes ? bytes : 1) != 0) return NULL;
    return ptr;
}

static void default_free(void *user, void *ptr)
{
    (void) user;
    free(ptr);
}

static void default_run(void *user, heed_task_fn fn, void *arg, int64_t n_tasks)
{
    heed_threads_run(user, fn, arg, n_tasks);
}

void heed_context_desc_init(heed_context_desc *desc)
{
    *desc = (heed_context_desc){ .struct_size = sizeof *desc, .device = { kDLCPU, 0 } };
}

/* Fields that an older caller's struct does not have keep their defaults. */
static heed_status read_desc(heed_context_desc *full, const heed_context_desc *desc)
{
    heed_context_desc_init(full);
    if (!desc) return HEED_OK;
    if (desc->struct_size < sizeof(size_t) || desc->struct_size > 4096)
        return heed_fail(HEED_ERR_ARGUMENT, "desc: struct_size is %zu; start from heed_context_desc_init()", desc->struct_size);
    size_t n = desc->struct_size < sizeof *full ? desc->struct_size : sizeof *full;
    memcpy(full, desc, n);
    if (full->device.device_type != kDLCPU)
        return heed_fail(HEED_ERR_UNSUPPORTED, "device: type is %d, this build runs on the CPU (type %d) only",
                         (int) full->device.device_type, (int) kDLCPU);
    if (full->n_threads < 0 || full->n_threads > 4096)
        return heed_fail(HEED_ERR_ARGUMENT, "n_threads: is %d, expected 0 (all) to 4096", full->n_threads);
    if (!full->allocator.alloc != !full->allocator.free)
        return heed_fail(HEED_ERR_ARGUMENT, "allocator: alloc and free must both be set, or neither");
    if (full->parallel.run && full->parallel.n_threads < 1)
        return heed_fail(HEED_ERR_ARGUMENT, "parallel: n_threads is %d, expected 1 or more", full->parallel.n_threads);
    return HEED_OK;
}

heed_status heed_context_create(heed_context **out, const heed_context_desc *desc)
{
    if (!out) return heed_fail(HEED_ERR_ARGUMENT, "out: is NULL");
    *out = NULL;
    heed_context_desc full;
    HEED_TRY(read_desc(&full, desc));
    if (!full.allocator.alloc) full.allocator = (heed_allocator){ NULL, default_alloc, default_free };

    /* One piece of memory for the context and its threads. */
    const size_t head = (sizeof(heed_context) + 63) / 64 * 64;
    const int n = full.parallel.run ? 0 : full.n_threads ? full.n_threads : heed_cpu_count();
    heed_context *ctx = full.allocator.alloc(full.allocator.user, 64, head + (n ? heed_threads_bytes(n) : 0));
    if (!ctx) return heed_fail(HEED_ERR_MEMORY, "no memory for a context");
    *ctx = (heed_context){ full.device, full.allocator, full.parallel, full.log, NULL };
    if (n) {
        ctx->threads = (heed_threads *) (void *) ((char *) ctx + head);
        heed_threads_init(ctx->threads, n);
        ctx->parallel = (heed_parallel){ ctx->threads, n, default_run };
    }
    *out = ctx;
    return HEED_OK;
}

void heed_context_destroy(heed_context *ctx)
{
    if (!ctx) return;
    heed_threads_stop(ctx->threads);
    heed_allocator allocator = ctx->allocator;
    allocator.free(allocator.user, ctx);
}

int heed_context_threads(const heed_context *ctx)
{
    return ctx->parallel.n_threads;
}

void *heed_alloc(const heed_context *ctx, size_t bytes)
{
    return ctx->allocator.alloc(ctx->allocator.user, 64, bytes ? bytes : 1);
}

void heed_free(const heed_context *ctx, void *ptr)
{
    if (ptr) ctx->allocator.free(ctx->allocator.user, ptr);
}

void heed_parallel_for(const heed_context *ctx, heed_task_fn fn, void *arg, int64_t n_tasks)
{
    if (n_tasks <= 1 || ctx->parallel.n_threads == 1) {
        for (int64_t t = 0; t < n_tasks; t++) fn(arg, t, 0);
        return;
    }
    ctx->parallel.run(ctx->parallel.user, fn, arg, n_tasks);
}

void heed_log_line(const heed_context *ctx, heed_log_level level, const char *fmt, ...)
{
    if (!ctx->log.write) return;
    char line[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    ctx->log.write(ctx->log.user, level, line);
}

size_t heed_size_mul(size_t a, size_t b)
{
    size_t r;
    return __builtin_mul_overflow(a, b, &r) ? SIZE_MAX : r;
}

size_t heed_size_add(size_t a, size_t b)
{
    size_t r;
    return __builtin_add_overflow(a, b, &r) ? SIZE_MAX : r;
}
