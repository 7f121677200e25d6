/* Bump allocation in blocks; a large request gets a block of its own. */
#include "base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define BLOCK_BYTES ((size_t) 64 << 10)

struct block {
    struct block *next;
    size_t used, size;
    _Alignas(64) unsigned char data[];
};

struct heed_arena {
    const heed_context *ctx;
    struct block *blocks; /* the first one is filled */
};

heed_arena *heed_arena_create(const heed_context *ctx)
{
    heed_arena *arena = heed_alloc(ctx, sizeof *arena);
    if (arena) *arena = (heed_arena){ ctx, NULL };
    return arena;
}

void heed_arena_destroy(heed_arena *arena)
{
    if (!arena) return;
    while (arena->blocks) {
        struct block *next = arena->blocks->next;
        heed_free(arena->ctx, arena->blocks);
        arena->blocks = next;
    }
    heed_free(arena->ctx, arena);
}

static struct block *add_block(heed_arena *arena, size_t size)
{
    struct block *block = heed_alloc(arena->ctx, heed_size_add(sizeof *block, size));
    if (!block) return NULL;
    block->used = 0, block->size = size;
    /* A full-size block becomes the one being filled; a large one goes behind it. */
    if (arena->blocks && size > BLOCK_BYTES) {
        block->next = arena->blocks->next;
        arena->blocks->next = block;
    } else {
        block->next = arena->blocks;
        arena->blocks = block;
    }
    return block;
}

void *heed_arena_alloc(heed_arena *arena, size_t bytes)
{
    if (bytes > SIZE_MAX / 2) return NULL;
    size_t align = bytes >= 4096 ? 64 : 16, rounded = (bytes + 15) & ~(size_t) 15;
    struct block *block = arena->blocks;
    size_t at = block ? (block->used + align - 1) & ~(align - 1) : 0;
    if (!block || at + rounded > block->size) {
        block = add_block(arena, rounded > BLOCK_BYTES / 4 ? (rounded > BLOCK_BYTES ? rounded : BLOCK_BYTES) : BLOCK_BYTES);
        if (!block) return NULL;
        at = 0;
    }
    block->used = at + rounded;
    memset(block->data + at, 0, rounded);
    return block->data + at;
}

char *heed_arena_strndup(heed_arena *arena, const char *text, size_t n)
{
    char *copy = heed_arena_alloc(arena, n + 1);
    if (copy) memcpy(copy, text, n);
    return copy;
}

char *heed_arena_strdup(heed_arena *arena, const char *text)
{
    return heed_arena_strndup(arena, text, strlen(text));
}

char *heed_arena_printf(heed_arena *arena, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *text = n < 0 ? NULL : heed_arena_alloc(arena, (size_t) n + 1);
    if (text) vsnprintf(text, (size_t) n + 1, fmt, again);
    va_end(again);
    return text;
}

void heed_text_add(heed_text *text, const char *fmt, ...)
{
    if (text->failed) return;
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    size_t need = n < 0 ? 0 : text->size + (size_t) n + 1;
    if (n >= 0 && need > text->capacity) {
        size_t capacity = need < 256 ? 256 : need * 2;
        char *data = heed_alloc(text->ctx, capacity);
        if (data) {
            if (text->data) memcpy(data, text->data, text->size + 1);
            heed_free(text->ctx, text->data);
            text->data = data, text->capacity = capacity;
        }
    }
    if (n < 0 || need > text->capacity) {
        text->failed = 1;
    } else {
        vsnprintf(text->data + text->size, (size_t) n + 1, fmt, again);
        text->size += (size_t) n;
    }
    va_end(again);
}

void heed_text_free(heed_text *text)
{
    heed_free(text->ctx, text->data);
    *text = (heed_text){ .ctx = text->ctx };
}
