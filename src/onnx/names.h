/* onnx/names.h - a table from strings of bytes to pointers. */
#ifndef HEED_ONNX_NAMES_H
#define HEED_ONNX_NAMES_H

#include "base/arena.h"

/* Start from zero with an arena. Keys are borrowed. */
typedef struct heed_names {
    heed_arena *arena;
    struct heed_names_slot *slots;
    size_t n, n_slots;
} heed_names;

/* Where the pointer of a key is, NULL if the key is not there. */
void **heed_names_find(const heed_names *names, const void *key, size_t bytes);
/* The same, added with a NULL pointer if it is not there. NULL where there is no memory. Valid until the next add. */
void **heed_names_add(heed_names *names, const void *key, size_t bytes);
/* The same for a table of addresses: what belongs to this one. */
void **heed_names_at(heed_names *names, const void *address);

#endif
