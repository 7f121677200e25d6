/* Greedy placement, largest block first: each goes into the tightest gap left by the placed blocks that are live at the
 * same time as it, or behind them. Sizes differ by orders of magnitude in a transformer, so that the small blocks fit into
 * what the large ones leave. */
#include "exec/memplan.h"

#include <stdlib.h>

static size_t rounded(size_t bytes)
{
    return bytes > SIZE_MAX - HEED_MEM_ALIGN ? SIZE_MAX : (bytes + HEED_MEM_ALIGN - 1) & ~(HEED_MEM_ALIGN - 1);
}

static int by_size(const void *a, const void *b)
{
    const heed_mem_block *x = *(heed_mem_block *const *) a, *y = *(heed_mem_block *const *) b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x < y ? -1 : x > y;
}

static int live_together(const heed_mem_block *a, const heed_mem_block *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* placed[] is sorted by offset. */
static size_t best_offset(heed_mem_block *const *placed, int n, const heed_mem_block *block)
{
    size_t end = 0, best = SIZE_MAX, best_gap = SIZE_MAX, need = rounded(block->bytes);
    for (int i = 0; i < n; i++) {
        const heed_mem_block *other = placed[i];
        if (!live_together(other, block)) continue;
        if (other->offset > end && other->offset - end >= need && other->offset - end < best_gap)
            best = end, best_gap = other->offset - end;
        size_t other_end = heed_size_add(other->offset, rounded(other->bytes));
        if (other_end > end) end = other_end;
    }
    return best == SIZE_MAX ? end : best;
}

static void insert_sorted(heed_mem_block **placed, int n, heed_mem_block *block)
{
    int i = n;
    for (; i > 0 && placed[i - 1]->offset > block->offset; i--) placed[i] = placed[i - 1];
    placed[i] = block;
}

heed_status heed_memplan(const heed_context *ctx, heed_mem_block *blocks, int n, size_t *bytes)
{
    *bytes = 0;
    if (n == 0) return HEED_OK;
    heed_mem_block **order = heed_alloc(ctx, heed_size_mul(2 * sizeof(heed_mem_block *), (size_t) n));
    if (!order) return heed_fail(HEED_ERR_MEMORY, "no memory to plan the memory of %d values", n);
    heed_mem_block **placed = order + n;
    int n_placed = 0;
    for (int i = 0; i < n; i++) order[i] = &blocks[i];
    qsort(order, (size_t) n, sizeof *order, by_size);
    for (int i = 0; i < n; i++) {
        heed_mem_block *block = order[i];
        block->offset = 0;
        if (block->bytes == 0) continue; /* no bytes, no place: the start will do */
        block->offset = best_offset(placed, n_placed, block);
        insert_sorted(placed, n_placed++, block);
        size_t end = heed_size_add(block->offset, rounded(block->bytes));
        if (end > *bytes) *bytes = end;
    }
    heed_free(ctx, order);
    if (*bytes > (size_t) PTRDIFF_MAX)
        return heed_fail(HEED_ERR_MEMORY, "the values of a run need more memory than there are addresses");
    return HEED_OK;
}

int heed_memplan_check(const heed_mem_block *blocks, int n, size_t bytes)
{
    for (int i = 0; i < n; i++) {
        const heed_mem_block *a = &blocks[i];
        if (a->bytes == 0) continue;
        if (a->first > a->last || a->offset % HEED_MEM_ALIGN || heed_size_add(a->offset, a->bytes) > bytes) {
            heed_fail(HEED_ERR_INTERNAL, "memory plan: block %d of %zu bytes at %zu, live from %d to %d, is not within %zu bytes",
                      i, a->bytes, a->offset, a->first, a->last, bytes);
            return 0;
        }
        for (int j = 0; j < i; j++) {
            const heed_mem_block *b = &blocks[j];
            if (b->bytes == 0 || !live_together(a, b)) continue;
            if (a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset) continue;
            heed_fail(HEED_ERR_INTERNAL, "memory plan: blocks %d and %d overlap", j, i);
            return 0;
        }
    }
    return 1;
}
