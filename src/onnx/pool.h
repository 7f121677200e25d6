/* onnx/pool.h - memory of the parsed file: what is small goes when the import is done, large data may be kept for constants. */
#ifndef HEED_ONNX_POOL_H
#define HEED_ONNX_POOL_H

#include <protobuf-c/protobuf-c.h>

#include "base/arena.h"

/* Allocations of at least this many bytes can be kept. */
#define HEED_POOL_LARGE 4096

typedef struct heed_pool {
    const heed_context *ctx;
    ProtobufCAllocator hooks; /* for protobuf-c; its free does nothing */
    heed_arena *small;
    struct heed_pool_block *large;
    int failed; /* memory ran out */
} heed_pool;

void heed_pool_init(heed_pool *pool, const heed_context *ctx);
/* Keep a large allocation, and what it holds, until the pool is destroyed. */
void heed_pool_keep(void *large);
/* Free everything that is not kept. */
void heed_pool_drop(heed_pool *pool);
void heed_pool_destroy(heed_pool *pool);

#endif
