/* exec/program_impl.h - the inside of a program, shared by recording and running. */
#ifndef HEED_EXEC_PROGRAM_IMPL_H
#define HEED_EXEC_PROGRAM_IMPL_H

#include "exec/program.h"

/* Whose memory a tensor lies in. */
typedef enum heed_storage {
    HEED_STORAGE_NONE = 0, /* not made yet */
    HEED_STORAGE_ARENA,    /* a block of its segment */
    HEED_STORAGE_EXTERNAL, /* a graph input or the output of an inner program: the address may change from run to run */
    HEED_STORAGE_KEPT      /* a constant, or computed while recording: the same until the segment is recorded again */
} heed_storage;

/* A tensor of the run: one for each value of the graph, and one for each dense copy. */
typedef struct heed_slot heed_slot;
struct heed_slot {
    heed_tensor tensor;
    heed_storage storage;
    heed_slot *root;  /* the slot that owns the memory; itself, or what this one is a view of or overwrites */
    ptrdiff_t offset; /* of the first element, in bytes from the root's base */
    int known;        /* data are there while recording */
    int constant;     /* a constant of the graph, or a view of one */
    heed_slot *dense; /* the packed copy, if one was needed */
    int segment;      /* that made it; -1: there from the start */
    heed_slot *next;  /* made in the same segment */
    /* of a root */
    void *base;
    void *owned;   /* memory to free with the segment */
    int block;     /* in the segment's blocks */
    int pinned;    /* read by a step: kept memory stays */
    int last_node; /* last node that reads it or one of its views, HEED_MEM_FOREVER for an output */
};

typedef struct heed_step {
    heed_compute c;
    heed_compute_fn *run;
    heed_release_fn *release; /* for c.state, if the step owns it */
    int scratch;              /* block, or -1 */
} heed_step;

typedef struct heed_segment {
    int first, end; /* nodes [first, end) */
    int dynamic;    /* node `first` has a shape that depends on data */
    heed_arena *arena;
    heed_step *steps;
    int n_steps, cap_steps;
    heed_mem_block *blocks;
    int n_blocks, cap_blocks;
    size_t bytes; /* of the arena that the blocks need */
    heed_slot *slots;
} heed_segment;

/* Memory of a segment; outlives its recordings. */
typedef struct heed_segment_memory {
    void *data;
    size_t bytes;
} heed_segment_memory;

typedef struct heed_program_node {
    const heed_node *node;
    void *state;               /* of an operator with HEED_OP_KEEP_STATE */
    heed_program *branches[2]; /* of an If: else, then; made when first taken */
    int taken;                 /* the branch that ran last */
} heed_program_node;

struct heed_program {
    const heed_context *ctx;
    const heed_graph *graph;
    heed_arena *arena; /* nodes, slots, segments: what lives as long as the program */
    heed_program_node *nodes;
    int n_nodes;
    heed_slot *slots; /* by value id */
    int *last_use;    /* by value id: last node that reads it, HEED_MEM_FOREVER for an output, -1 for none */
    heed_segment *segments;
    heed_segment_memory *memory; /* by segment */
    int n_segments, cap_segments;
    heed_tensor *inputs; /* room for the inputs of a branch, filled by the program around it */
    const heed_tensor **outputs;
};

/* Record the segment that starts at node `first` and append it. What is before it has run. */
heed_status heed_program_record(heed_program *program, int first);
/* Forget segments from `from` on. */
void heed_program_drop(heed_program *program, int from);
/* Point the tensors of a segment's slots into their roots' memory. */
void heed_segment_place(heed_segment *segment);

/* 1 if the shape of the node's outputs depends on data that are not known while recording. */
int heed_program_is_dynamic(const heed_program *program, const heed_node *node);
/* Shapes of the node's outputs by its rule from the slots as they are now. facts[] has n_outputs entries. */
heed_status heed_program_infer(const heed_program *program, const heed_node *node, heed_arena *arena, heed_dims *dims,
                               heed_fact *facts);

/* Run the taken branch of an If, node number `node`. exec/branch.c */
heed_status heed_program_run_if(heed_program *program, int node);

heed_status heed_node_fail(heed_status status, const heed_node *node); /* puts "node 'x' (Op): " in front */

#endif
