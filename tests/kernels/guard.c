#include "guard.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

guarded guarded_new(size_t bytes, size_t align, int at_end)
{
    const size_t page = (size_t) sysconf(_SC_PAGESIZE), room = (bytes + page - 1) / page * page + page;
    guarded g = { .bytes = bytes, .map_bytes = room + 2 * page };
    g.map = mmap(NULL, g.map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (g.map == MAP_FAILED) abort();
    char *begin = (char *) g.map + page;
    if (mprotect(begin, room, PROT_READ | PROT_WRITE) != 0) abort();
    memset(begin, 0xff, room);
    g.data = at_end ? begin + room - (bytes + align - 1) / align * align : begin;
    return g;
}

void guarded_free(guarded *g)
{
    if (g->map) munmap(g->map, g->map_bytes);
    *g = (guarded){ 0 };
}

size_t guarded_forbid(const guarded *g, size_t from, size_t to)
{
    const uintptr_t page = (uintptr_t) sysconf(_SC_PAGESIZE), base = (uintptr_t) g->data;
    const uintptr_t begin = (base + from + page - 1) / page * page, end = (base + to) / page * page;
    if (begin >= end) return 0;
    if (mprotect((char *) g->data + (begin - base), end - begin, PROT_NONE) != 0) abort();
    return end - begin;
}

static uint64_t state;

void random_start(void)
{
    const char *wish = getenv("HEED_TEST_SEED");
    state = wish ? strtoull(wish, NULL, 0) : (uint64_t) time(NULL);
    printf("HEED_TEST_SEED=%llu\n", (unsigned long long) state);
}

/* splitmix64 (Steele, Lea, Flood 2014) */
uint64_t random_bits(void)
{
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

int random_below(int n)
{
    return (int) (random_bits() % (uint64_t) n);
}

double random_uniform(void)
{
    return (double) (random_bits() >> 11) * 0x1p-53;
}

double random_normal(void)
{
    return sqrt(-2 * log(1 - random_uniform())) * cos(6.283185307179586 * random_uniform());
}
