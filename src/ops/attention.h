/* ops/attention.h - the bridge from operators to the attention API: a state that owns a plan and remembers what ran. */
#ifndef HEED_OPS_ATTENTION_H
#define HEED_OPS_ATTENTION_H

#include <heed/attention.h>

#include "ops/op.h"

/* Of a state of heed.Attention, or of an operator of com.microsoft that computes attention: the kernel that ran last, or the
 * chosen one before the first run; and the plan's explanation. Owned by the state. */
const char *heed_attention_state_kernel(const void *state);
const char *heed_attention_state_explain(const void *state);

/* The tensors of a run as operators have them. Each of q, k, v and out has rank 4 in the order of the attention API; a batch
 * stride may be 0. mask.dtype is HEED_DTYPE_NONE where there is none. */
typedef struct heed_attention_tensors {
    heed_tensor q, k, v, mask, out;
    const float *sinks;
    const int64_t *key_lengths, *offsets;
    int64_t offset;
} heed_attention_tensors;

/* desc needs what the tensors do not say: scale, softcap, window, offset mode, what is there of the vectors, kernel. */
heed_status heed_attention_state_create(const heed_compute *c, heed_attention_desc *desc, const heed_attention_tensors *tensors,
                                        void **state);
void heed_attention_state_release(const heed_context *ctx, void *state);
size_t heed_attention_state_workspace(const void *state);
heed_status heed_attention_state_run(void *state, const heed_attention_tensors *tensors, void *workspace);

#endif
