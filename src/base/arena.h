/* base/arena.h - memory that is freed all at once: graphs, names, plans. Also a growing text. */
#ifndef HEED_BASE_ARENA_H
#define HEED_BASE_ARENA_H

#include "base/context.h"

typedef struct heed_arena heed_arena;

/* NULL if there is no memory. The arena takes its blocks from the context's allocator. */
heed_arena *heed_arena_create(const heed_context *ctx);
void heed_arena_destroy(heed_arena *arena);

/* Zeroed memory, aligned to 16 bytes (64 from 4096 bytes on), or NULL. Lives as long as the arena. */
void *heed_arena_alloc(heed_arena *arena, size_t bytes);
char *heed_arena_strdup(heed_arena *arena, const char *text);
char *heed_arena_strndup(heed_arena *arena, const char *text, size_t n);
char *heed_arena_printf(heed_arena *arena, const char *fmt, ...) HEED_PRINTF(2, 3);

#define HEED_NEW(arena, type) ((type *) heed_arena_alloc((arena), sizeof(type)))
#define HEED_NEW_N(arena, type, n) ((type *) heed_arena_alloc((arena), heed_size_mul(sizeof(type), (size_t) (n))))

/* A growing text. Start from zero; after a failed growth `failed` is set and further calls do nothing. */
typedef struct heed_text {
    const heed_context *ctx;
    char *data; /* NULL or NUL-terminated */
    size_t size, capacity;
    int failed;
} heed_text;

void heed_text_add(heed_text *text, const char *fmt, ...) HEED_PRINTF(2, 3);
void heed_text_free(heed_text *text);

#endif
