/* Small allocations from an arena, large ones each with a header in a list. */
#include "onnx/pool.h"

struct heed_pool_block {
    struct heed_pool_block *next;
    int kept;
    _Alignas(64) unsigned char data[];
};

static void *alloc_large(heed_pool *pool, size_t bytes)
{
    struct heed_pool_block *block = heed_alloc(pool->ctx, heed_size_add(sizeof *block, bytes));
    if (!block) return NULL;
    block->next = pool->large, block->kept = 0;
    pool->large = block;
    return block->data;
}

static void *pool_alloc(void *user, size_t bytes)
{
    heed_pool *pool = user;
    if (bytes < HEED_POOL_LARGE && !pool->small) pool->small = heed_arena_create(pool->ctx);
    void *ptr = bytes >= HEED_POOL_LARGE ? alloc_large(pool, bytes) : pool->small ? heed_arena_alloc(pool->small, bytes) : NULL;
    if (!ptr) pool->failed = 1;
    return ptr;
}

static void pool_free(void *user, void *ptr)
{
    (void) user, (void) ptr;
}

void heed_pool_init(heed_pool *pool, const heed_context *ctx)
{
    *pool = (heed_pool){ .ctx = ctx, .hooks = { pool_alloc, pool_free, pool } };
}

void heed_pool_keep(void *large)
{
    struct heed_pool_block *block = (struct heed_pool_block *) ((unsigned char *) large - offsetof(struct heed_pool_block, data));
    block->kept = 1;
}

void heed_pool_drop(heed_pool *pool)
{
    heed_arena_destroy(pool->small);
    pool->small = NULL;
    for (struct heed_pool_block **at = &pool->large, *block; (block = *at);) {
        if (block->kept) {
            at = &block->next;
            continue;
        }
        *at = block->next;
        heed_free(pool->ctx, block);
    }
}

void heed_pool_destroy(heed_pool *pool)
{
    for (struct heed_pool_block *block = pool->large; block; block = block->next) block->kept = 0;
    heed_pool_drop(pool);
}
