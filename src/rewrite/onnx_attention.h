/* rewrite/onnx_attention.h - what the two halves of the lowering of ONNX's Attention share. */
#ifndef HEED_REWRITE_ONNX_ATTENTION_H
#define HEED_REWRITE_ONNX_ATTENTION_H

#include "rewrite/match.h"

typedef struct heed_lowering {
    heed_node *node;
    heed_maker maker;
    int is_3d;
    int64_t heads_q, heads_kv;
    heed_value *q, *k, *v; /* rank 4, past joined on */
    heed_value *past_key;
    heed_value *mask;       /* padded; NULL: none */
    heed_value *lengths;    /* nonpad_kv_seqlen; NULL: none */
    int64_t keys, new_keys; /* with and without the past */
    int64_t left, right;    /* window, -1: unbounded */
    int offset_mode;        /* heed_offset_mode */
    int64_t offset;         /* with HEED_OFFSET_VALUE */
    heed_value *offsets;    /* with HEED_OFFSET_PER_BATCH */
} heed_lowering;

/* Give the node's qk_matmul_output by plain operators. */
heed_status heed_lower_scores_output(heed_lowering *lowering, heed_value *wanted);

#endif
