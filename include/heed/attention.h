/* heed/attention.h - scaled dot-product attention: problem -> plan -> run.
 *
 *   out[b,h,i,:] = sum over j of softmax_j(score[b,h,i,j]) * v[b,g,j,:],   g = h / (heads_q / heads_kv)
 *
 * with, in this order (Vaswani et al. 2017, section 3.2.1, and what came since):
 *   1. score = scale * (q . k), accumulated in f32 at least
 *   2. softcap > 0: score = softcap * tanh(score / softcap)
 *   3. mask: boolean (false hides the key), or additive (f32, or the type of q)
 *   4. causal and window: key j is visible to row i iff  p - window_left <= j <= p + window_right, with p = i + offset;
 *      causal means window_right = 0. Per-batch key lengths: a key at or past the length is never read.
 *   5. sink: one logit per query head that joins the maximum and the denominator only; it is not scaled
 *   6. softmax in f32; a row without a visible key gives 0
 *   7. products with v accumulate in f32, rounded once to the type of out
 *
 * A key is hidden when the boolean mask, causal, window or key length hides it, or the additive mask is -inf. NaN and
 * infinities in hidden keys and values never reach the row. Finite masks, however low, are just numbers.
 *
 * Shapes:  q [batch, heads_q, len_q, head_dim]      k [batch, heads_kv, len_k, head_dim]
 *          v [batch, heads_kv, len_k, head_dim_v]   out [batch, heads_q, len_q, head_dim_v]
 *          mask [batch|1, heads_q|1, len_q|1, len_k|1], or fewer dimensions, aligned to the right
 *          lse [batch, heads_q, len_q], f32
 * Strides are free (DLTensor strides, in elements; 0 repeats), so [batch, len, heads, head_dim] storage needs no copy.
 * Types: f32, f16, bf16, one for q, k, v and out. batch, len_q and len_k may be 0. All offsets are 64-bit.
 *
 * A plan is made for a class of problems (types, heads, dimensions, features) and maximum lengths. Each run brings the
 * actual tensors, of any batch and lengths up to those. A plan is read-only after creation: several threads may run it
 * at once, each with its own workspace. On the CPU results are bit-equal for any number of threads.
 */
#ifndef HEED_ATTENTION_H
#define HEED_ATTENTION_H

#include <heed/common.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where the causal or windowed diagonal lies: row i looks from position p = i + offset. */
typedef enum heed_offset_mode {
    HEED_OFFSET_TOP_LEFT = 0,     /* offset 0: ONNX without a cache, PyTorch's is_causal */
    HEED_OFFSET_BOTTOM_RIGHT = 1, /* offset = key length - len_q, per batch where there are key lengths */
    HEED_OFFSET_VALUE = 2,        /* heed_attention_args.offset */
    HEED_OFFSET_PER_BATCH = 3     /* heed_attention_args.offsets[batch], may be negative */
} heed_offset_mode;

typedef enum heed_mask_kind {
    HEED_MASK_NONE = 0,
    HEED_MASK_BOOL = 1,  /* kDLUInt 8 or DLPack's bool (code 6, 8 bits): 0 hides */
    HEED_MASK_F32 = 2,   /* added to the scores in f32 */
    HEED_MASK_TYPE_Q = 3 /* added to the scores, stored in the type of q */
} heed_mask_kind;

#define HEED_WINDOW_UNBOUNDED ((int64_t) -1)

/* A class of problems. Start from heed_attention_desc_init(), then set dtype, heads_q, heads_kv, head_dim at least. */
typedef struct heed_attention_desc {
    size_t struct_size;
    DLDataType dtype;             /* default f32 */
    int64_t max_batch;            /* largest batch a run may bring; default 1 */
    int64_t heads_q;              /* default 1 */
    int64_t heads_kv;             /* default 1; heads_q is a multiple */
    int64_t max_len_q;            /* default 1 */
    int64_t max_len_k;            /* default 1 */
    int64_t head_dim;             /* 1 to 1024; default 64 */
    int64_t head_dim_v;           /* default 0: the same as head_dim */
    float scale;                  /* default NaN: 1 / sqrt(head_dim); otherwise any finite value */
    float softcap;                /* default 0: off; otherwise finite and > 0 */
    heed_mask_kind mask;          /* default none */
    heed_offset_mode offset_mode; /* default bottom-right; matters with a bounded window only */
    int64_t window_left;          /* default unbounded; keys kept left of the diagonal, >= 0 */
    int64_t window_right;         /* default unbounded; 0 is causal */
    int has_sinks;                /* default 0: no sink logits */
    int has_key_lengths;          /* default 0: all len_k keys count */
    int want_lse;                 /* default 0: no log-sum-exp output */
    int force_fused;              /* default 0; 1: fail with the reasons where no fused kernel applies, instead of exploding */
    const char *kernel;           /* default NULL: heed chooses; else the name of the one kernel to use ("explode", "reference",
                                     "prefill_f32_avx2"), or an error that says why it does not apply. Not kept after the call */
} heed_attention_desc;

HEED_API void heed_attention_desc_init(heed_attention_desc *desc);
/* Same as window_right = 0 with the given mode. */
HEED_API void heed_attention_desc_set_causal(heed_attention_desc *desc, heed_offset_mode mode);

/* The tensors of one run. Start from heed_attention_args_init(). All are borrowed for the call. */
typedef struct heed_attention_args {
    size_t struct_size;
    const DLTensor *q, *k, *v;
    const DLTensor *mask;       /* NULL unless the plan has a mask */
    const float *sinks;         /* [heads_q], NULL unless the plan has sinks */
    const int64_t *key_lengths; /* [batch], each 0 to len_k, NULL unless the plan has them */
    int64_t offset;             /* with HEED_OFFSET_VALUE */
    const int64_t *offsets;     /* [batch], with HEED_OFFSET_PER_BATCH */
    const DLTensor *out;        /* written; must not overlap an input */
    const DLTensor *lse;        /* written, NULL unless the plan wants it: log of the sum of exp(score) over the visible
                                   keys, natural logarithm, -inf for none; leaves the sink out */
} heed_attention_args;

HEED_API void heed_attention_args_init(heed_attention_args *args);

typedef struct heed_attention_plan heed_attention_plan;

/* Make a plan: check the class, ask every solver, keep the best. The plan belongs to the caller. On failure *out is
 * NULL. The variables HEED_KERNEL, HEED_ISA and HEED_SPLITS are read here, for tests and measurements. Thread-safe. */
HEED_API heed_status heed_attention_plan_create(heed_attention_plan **out, heed_context *ctx, const heed_attention_desc *desc);
HEED_API void heed_attention_plan_destroy(heed_attention_plan *plan);

/* Bytes of workspace that a run up to the plan's maxima needs, for 64-byte alignment. May be 0. */
HEED_API size_t heed_attention_plan_workspace(const heed_attention_plan *plan);

/* Run. workspace may be NULL: then it is taken from the context's allocator for the call. Tensors are checked first;
 * on failure nothing was written. Thread-safe with separate workspaces and outputs. */
HEED_API heed_status heed_attention_run(const heed_attention_plan *plan, const heed_attention_args *args, void *workspace,
                                        size_t workspace_bytes);

/* What a run did, for tests and measurements: filled by heed_attention_run_traced. */
typedef struct heed_attention_trace {
    size_t struct_size;
    char kernel[64];  /* the kernel that ran, as `heed kernels` lists it; "" where there was nothing to do */
    int64_t n_tasks;  /* pieces of parallel work */
    int64_t n_splits; /* pieces that the keys of one row were split into, 1 for none */
    int64_t n_redone; /* rows computed again because a hidden NaN or infinity touched their tile */
} heed_attention_trace;

HEED_API heed_status heed_attention_run_traced(const heed_attention_plan *plan, const heed_attention_args *args, void *workspace,
                                               size_t workspace_bytes, heed_attention_trace *trace);

/* The choice in words: a line for the winner and one for each other solver with its reason. Owned by the plan. */
HEED_API const char *heed_attention_plan_explain(const heed_attention_plan *plan);
/* Name of the chosen kernel at the plan's maximum lengths. Owned by the plan. */
HEED_API const char *heed_attention_plan_kernel(const heed_attention_plan *plan);

/* Join two results computed over different keys of the same problem (each without sinks, each with its log-sum-exp):
 *   m = max(lse_a, lse_b), w = exp(lse - m), out = (w_a out_a + w_b out_b) / (w_a + w_b + exp(sink - m)).
 * a and b are f32, f16 or bf16 [batch, heads_q, len_q, head_dim_v], lse [batch, heads_q, len_q] f32; out and out_lse may
 * be a and lse_a. sinks may be NULL and is taken once, here. out_lse may be NULL. Where a row sees only keys under a mask as low
 * as f32's lowest number, the log-sum-exp cannot say how many they were, and its parts weigh the same. Thread-safe. */
HEED_API heed_status heed_attention_merge(heed_context *ctx, const DLTensor *a, const DLTensor *lse_a, const DLTensor *b,
                                          const DLTensor *lse_b, const float *sinks, const DLTensor *out,
                                          const DLTensor *out_lse);

/* The kernels in this build. index counts from 0; returns 0 past the last one. */
typedef struct heed_kernel_info {
    size_t struct_size;
    const char *name;   /* "prefill_f32_avx512" */
    const char *family; /* "reference", "explode", "prefill", "decode" */
    const char *dtype;  /* "f32", "f16", "bf16"; "any" for reference and explode */
    const char *isa;    /* "generic", "avx2", "avx512" */
    int runs_here;      /* this CPU has the instructions */
} heed_kernel_info;

HEED_API int heed_kernel_info_get(int index, heed_kernel_info *info);

#ifdef __cplusplus
}
#endif
#endif
