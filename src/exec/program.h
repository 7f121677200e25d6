/* exec/program.h - a graph made ready to run: recorded once for the shapes of its inputs, replayed after that.
 *
 * Recording walks the nodes with the shapes that the inputs have. A node whose result follows from shapes and constants is
 * computed then and there and is no part of the replay; one that can look at its input's memory in another way is a view and
 * costs nothing; the others become steps, whose tensors get their places in one arena when the walk is over. A replay is a
 * loop over the steps.
 *
 * Some shapes depend on data (NonZero, a Reshape to a computed shape). The walk stops before such a node, what was recorded
 * runs, and a new segment begins with it; a replay asks its shape rule again and records anew from there if the shape
 * changed. An If begins a segment too: it runs one of two inner programs, whose outputs are inputs of what follows.
 */
#ifndef HEED_EXEC_PROGRAM_H
#define HEED_EXEC_PROGRAM_H

#include "exec/memplan.h"
#include "ops/op.h"

typedef struct heed_program heed_program;

/* The graph is bound and must outlive the program. */
heed_status heed_program_create(heed_program **out, const heed_graph *graph);
void heed_program_destroy(heed_program *program);

/* inputs[i] is for graph->inputs[i]; type and rank are right, data is borrowed for the call. */
heed_status heed_program_run(heed_program *program, const heed_tensor *inputs);

/* Dense; valid from a successful run to the next run. */
const heed_tensor *heed_program_output(const heed_program *program, int index);
/* What the operator's prepare() made for the node in the last run, or NULL. */
void *heed_program_state(const heed_program *program, const heed_node *node);

/* What a recorded program holds: for tests and for figures. Segments count from 0; 0 is returned past the last one. */
typedef struct heed_program_segment_info {
    const heed_mem_block *blocks;
    int n_blocks, n_steps;
    void *memory;
    size_t bytes;
} heed_program_segment_info;
int heed_program_segment_get(const heed_program *program, int index, heed_program_segment_info *info);

#endif
