/* Open addressing, at most half full. */
#include "onnx/names.h"

#include "base/hash.h"

struct heed_names_slot {
    const void *key; /* NULL: free */
    size_t bytes;
    uint64_t hash;
    void *pointer;
};

static struct heed_names_slot *find_slot(const heed_names *names, const void *key, size_t bytes, uint64_t hash)
{
    size_t mask = names->n_slots - 1, at = (size_t) hash & mask;
    for (;; at = (at + 1) & mask) {
        struct heed_names_slot *slot = &names->slots[at];
        if (!slot->key || (slot->hash == hash && slot->bytes == bytes && memcmp(slot->key, key, bytes) == 0)) return slot;
    }
}

static uint64_t hash_key(const heed_names *names, const void *key, size_t bytes)
{
    return heed_hash((uint64_t) (uintptr_t) names->arena, key, bytes);
}

void **heed_names_find(const heed_names *names, const void *key, size_t bytes)
{
    if (!names->n) return NULL;
    struct heed_names_slot *slot = find_slot(names, key, bytes, hash_key(names, key, bytes));
    return slot->key ? &slot->pointer : NULL;
}

static int grow(heed_names *names)
{
    size_t n_slots = names->n_slots ? names->n_slots * 2 : 16;
    heed_names larger = { names->arena, HEED_NEW_N(names->arena, struct heed_names_slot, n_slots), names->n, n_slots };
    if (!larger.slots) return 0;
    for (size_t i = 0; i < names->n_slots; i++) {
        const struct heed_names_slot *old = &names->slots[i];
        if (old->key) *find_slot(&larger, old->key, old->bytes, old->hash) = *old;
    }
    *names = larger;
    return 1;
}

void **heed_names_add(heed_names *names, const void *key, size_t bytes)
{
    if (names->n >= names->n_slots / 2 && !grow(names)) return NULL;
    uint64_t hash = hash_key(names, key, bytes);
    struct heed_names_slot *slot = find_slot(names, key, bytes, hash);
    if (!slot->key) {
        *slot = (struct heed_names_slot){ key, bytes, hash, NULL };
        names->n++;
    }
    return &slot->pointer;
}

void **heed_names_at(heed_names *names, const void *address)
{
    void **found = heed_names_find(names, &address, sizeof address);
    if (found) return found;
    const void **key = HEED_NEW(names->arena, const void *);
    if (!key) return NULL;
    *key = address;
    return heed_names_add(names, key, sizeof address);
}
