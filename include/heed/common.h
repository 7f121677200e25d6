/* heed/common.h - what every part of heed shares: export macro, version, statuses, hooks and the context.
 *
 * A context holds what is the same for all work of one user of the library: the device, the number of threads and the
 * hooks. It is created once, is read-only afterwards, and may be used from several threads at once. It must outlive
 * everything created from it.
 *
 * Nothing in heed prints, aborts, exits or touches errno. Every failing call returns a heed_status below zero and, for
 * the calling thread, keeps a one-line message that names the argument, what it was and what it should be:
 * heed_last_message().
 */
#ifndef HEED_COMMON_H
#define HEED_COMMON_H

#include <dlpack/dlpack.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(HEED_BUILDING) && defined(__GNUC__)
#define HEED_API __attribute__((visibility("default")))
#else
#define HEED_API
#endif

/* Version of the library. The build reads it here; the soname carries HEED_SOVERSION. */
#define HEED_VERSION_MAJOR 0
#define HEED_VERSION_MINOR 1
#define HEED_VERSION_PATCH 0
#define HEED_SOVERSION 0

/* Version of the library that runs, major * 10000 + minor * 100 + patch. Thread-safe. */
HEED_API int heed_version_number(void);
/* The same as text, "0.1.0". Static storage. Thread-safe. */
HEED_API const char *heed_version_string(void);

/* Outcome of a call. Zero is success, every failure is negative, numbers never change their meaning. */
typedef enum heed_status {
    HEED_OK = 0,
    HEED_ERR_ARGUMENT = -1,    /* a null pointer, a wrong rank, size, type, stride or value */
    HEED_ERR_MEMORY = -2,      /* the allocator returned nothing */
    HEED_ERR_UNSUPPORTED = -3, /* valid, but this build, device or version of heed cannot do it */
    HEED_ERR_FILE = -4,        /* a file is missing, unreadable or unwritable */
    HEED_ERR_FORMAT = -5,      /* a file or model is malformed */
    HEED_ERR_DEVICE = -6,      /* the device or its driver failed */
    HEED_ERR_INTERNAL = -7     /* a fault of heed itself: please report it */
} heed_status;

/* Name of a status, such as "HEED_ERR_ARGUMENT". Static storage. Thread-safe. */
HEED_API const char *heed_status_string(heed_status status);

/* One line on the last failure of the calling thread: "q: rank is 3, expected 4 (batch, heads_q, len_q, head_dim)".
 * Never NULL, "" if nothing failed yet; valid until the next failing call of the same thread. */
HEED_API const char *heed_last_message(void);

/* Memory hook. alloc returns `bytes` bytes aligned to `align` (a power of two, at most 4096) or NULL; free takes what
 * alloc gave, or NULL. Both may be called from several threads at once. */
typedef struct heed_allocator {
    void *user;
    void *(*alloc)(void *user, size_t align, size_t bytes);
    void (*free)(void *user, void *ptr);
} heed_allocator;

/* One piece of parallel work. `task` runs from 0 to n_tasks - 1. `worker`, from 0 to n_threads - 1, tells calls apart
 * that run at the same time, so that each may have a scratch area. */
typedef void (*heed_task_fn)(void *arg, int64_t task, int worker);

/* Parallel-for hook: call fn(arg, t, worker) once for each t in [0, n_tasks), in any order, on at most n_threads
 * threads, and return when all are done. Results of heed never depend on the order, nor on the number of threads. */
typedef struct heed_parallel {
    void *user;
    int n_threads;
    void (*run)(void *user, heed_task_fn fn, void *arg, int64_t n_tasks);
} heed_parallel;

typedef enum heed_log_level { HEED_LOG_ERROR = 0, HEED_LOG_WARNING = 1, HEED_LOG_INFO = 2, HEED_LOG_DEBUG = 3 } heed_log_level;

/* Log hook: one line of text without a newline. Without a hook heed says nothing. May be called from any thread. */
typedef struct heed_log {
    void *user;
    void (*write)(void *user, heed_log_level level, const char *line);
} heed_log;

typedef struct heed_context heed_context;

/* How to make a context. Start from heed_context_desc_init(), then set what differs. */
typedef struct heed_context_desc {
    size_t struct_size;       /* set by the init function; lets the struct grow without breaking callers */
    DLDevice device;          /* default: kDLCPU, 0 */
    int n_threads;            /* default 0: as many as the process may use CPUs; ignored if `parallel` is set */
    heed_allocator allocator; /* default: alloc and free NULL, for the C library's */
    heed_parallel parallel;   /* default: run NULL, for threads of the context's own */
    heed_log log;             /* default: write NULL, for silence */
} heed_context_desc;

HEED_API void heed_context_desc_init(heed_context_desc *desc);

/* Create a context; desc may be NULL for the defaults. On failure *out is NULL. Destroy takes NULL. */
HEED_API heed_status heed_context_create(heed_context **out, const heed_context_desc *desc);
HEED_API void heed_context_destroy(heed_context *ctx);

/* Number of threads the context works with. */
HEED_API int heed_context_threads(const heed_context *ctx);

#ifdef __cplusplus
}
#endif
#endif
