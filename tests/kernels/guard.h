/* Memory between two pages that cannot be touched, and random numbers that can be had again. */
#ifndef HEED_TESTS_KERNELS_GUARD_H
#define HEED_TESTS_KERNELS_GUARD_H

#include <stddef.h>
#include <stdint.h>

typedef struct guarded {
    void *data; /* `bytes` bytes, all 0xff: NaN in every floating-point type */
    size_t bytes;
    void *map;
    size_t map_bytes;
} guarded;

/* The first byte after the memory is forbidden if at_end, else the first byte before it. `align` moves the memory away from
 * the edge at the end, where bytes is not a multiple of it. */
guarded guarded_new(size_t bytes, size_t align, int at_end);
void guarded_free(guarded *g);
/* Forbid the whole pages in [from, to) of the memory. Returns how many bytes that are. */
size_t guarded_forbid(const guarded *g, size_t from, size_t to);

/* Print the seed, which HEED_TEST_SEED sets if it is there, and start from it. */
void random_start(void);
uint64_t random_bits(void);
int random_below(int n);
double random_uniform(void); /* [0, 1) */
double random_normal(void);

#endif
