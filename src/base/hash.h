/* base/hash.h - a keyed hash (SipHash with one round a word and three at the end), for tables whose keys come from a file: who
 * writes the file cannot make them collide. */
#ifndef HEED_BASE_HASH_H
#define HEED_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t heed_hash_rotate(uint64_t x, int by)
{
    return x << by | x >> (64 - by);
}

static inline void heed_hash_round(uint64_t v[4])
{
    v[0] += v[1], v[2] += v[3];
    v[1] = heed_hash_rotate(v[1], 13) ^ v[0], v[3] = heed_hash_rotate(v[3], 16) ^ v[2];
    v[0] = heed_hash_rotate(v[0], 32);
    v[2] += v[1], v[0] += v[3];
    v[1] = heed_hash_rotate(v[1], 17) ^ v[2], v[3] = heed_hash_rotate(v[3], 21) ^ v[0];
    v[2] = heed_hash_rotate(v[2], 32);
}

/* key: any number that the writer of the keys does not know; the address of the table will do. */
static inline uint64_t heed_hash(uint64_t key, const void *data, size_t n)
{
    const unsigned char *bytes = data;
    uint64_t k1 = key * 0x9e3779b97f4a7c15u, word;
    uint64_t v[4] = { key ^ 0x736f6d6570736575u, k1 ^ 0x646f72616e646f6du, key ^ 0x6c7967656e657261u, k1 ^ 0x7465646279746573u };
    for (size_t left = n; left >= 8; left -= 8, bytes += 8) {
        memcpy(&word, bytes, 8);
        v[3] ^= word;
        heed_hash_round(v);
        v[0] ^= word;
    }
    word = (uint64_t) n << 56;
    for (size_t i = 0; i < n % 8; i++) word |= (uint64_t) bytes[i] << 8 * i;
    v[3] ^= word;
    heed_hash_round(v);
    v[0] ^= word;
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++) heed_hash_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

#endif
