/* attention/problem.h - what is asked for, checked and in one form: the class of a plan, and the tensors of one run. */
#ifndef HEED_ATTENTION_PROBLEM_H
#define HEED_ATTENTION_PROBLEM_H

#include <heed/attention.h>

#include "base/dtype.h"
#include "base/status.h"
#include "kernels/kernels.h"

/* A checked heed_attention_desc with its defaults filled in. */
typedef struct heed_attention_class {
    heed_dtype dtype;
    int64_t max_batch, heads_q, heads_kv, max_len_q, max_len_k;
    int head_dim, head_dim_v;
    float scale, softcap;
    heed_tile_mask mask;
    heed_offset_mode offset_mode;
    int64_t window_left, window_right; /* -1: unbounded */
    int has_sinks, has_key_lengths, want_lse, force_fused;
} heed_attention_class;

/* An array of up to four dimensions [batch, heads, len, dim]: strides in elements, 0 where it repeats. */
typedef struct heed_array {
    char *data;
    int64_t strides[4];
} heed_array;

/* The checked tensors of one run. Optional ones have data NULL. */
typedef struct heed_attention_problem {
    const heed_attention_class *cls;
    int64_t batch, len_q, len_k;
    heed_array q, k, v, mask, out, lse;
    const float *sinks;
    const int64_t *key_lengths, *offsets;
    int64_t offset;
} heed_attention_problem;

/* kernel: the desc's pinned kernel or NULL, borrowed. */
heed_status heed_attention_class_init(heed_attention_class *cls, const char **kernel, const heed_attention_desc *desc);
heed_status heed_attention_problem_init(heed_attention_problem *p, const heed_attention_class *cls,
                                        const heed_attention_args *args);

/* Keys that query i of batch b may see by position and length: [lo, hi), none where lo >= hi. Both ends grow with i. */
void heed_visible_keys(const heed_attention_problem *p, int64_t b, int64_t i, int64_t *lo, int64_t *hi);
/* Keys that any query of batch b may see. */
void heed_visible_span(const heed_attention_problem *p, int64_t b, int64_t *lo, int64_t *hi);
/* The longest span of the batches. */
int64_t heed_longest_span(const heed_attention_problem *p);

/* Write what the caller's version of a struct has room for; `to` and `from` start with a size_t struct_size, which is the
 * caller's in both. */
void heed_copy_struct(void *to, const void *from, size_t from_size);

/* Address of an element; `size` is the size of one in bytes. */
static inline char *heed_array_at(const heed_array *a, size_t size, int64_t b, int64_t h, int64_t i)
{
    return a->data + (b * a->strides[0] + h * a->strides[1] + i * a->strides[2]) * (int64_t) size;
}

#endif
