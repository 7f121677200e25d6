/* exec/memplan.h - where in one arena each value of a run lies.
 *
 * A block is live from the step that writes it to the last step that reads it, both included. Blocks that are live at the
 * same step never share a byte; others may.
 */
#ifndef HEED_EXEC_MEMPLAN_H
#define HEED_EXEC_MEMPLAN_H

#include "base/context.h"

#define HEED_MEM_ALIGN ((size_t) 64)
#define HEED_MEM_FOREVER INT32_MAX /* last step of a block that outlives the steps */

typedef struct heed_mem_block {
    size_t bytes;
    int first, last;
    size_t offset; /* filled by the plan, a multiple of HEED_MEM_ALIGN */
} heed_mem_block;

/* Give every block an offset; *bytes is the size of the arena. Fails with HEED_ERR_MEMORY if that size overflows. */
heed_status heed_memplan(const heed_context *ctx, heed_mem_block *blocks, int n, size_t *bytes);
/* 1 if every block lies inside the arena and no two live at the same step overlap; else 0 with a message. */
int heed_memplan_check(const heed_mem_block *blocks, int n, size_t bytes);

#endif
