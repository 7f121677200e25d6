/* rewrite/pass.h - passes over a graph. The list is one table, heed_passes in rewrite/passes.c. */
#ifndef HEED_REWRITE_PASS_H
#define HEED_REWRITE_PASS_H

#include "graph/graph.h"

/* One attention found, or a candidate left alone: what heed_compiled_attention() reports. */
typedef struct heed_finding {
    const char *node; /* name of the node it was anchored on; never NULL: "MatMul #12" where the file gave none */
    int fused;
    const char *reason;
    const heed_node *attention; /* the fused node, NULL if refused; its attribute "finding" is the index of this entry */
} heed_finding;

typedef struct heed_rewriter {
    const heed_context *ctx;
    heed_graph *graph;
    int fuse;        /* 0: only what plain execution needs */
    int force_fused; /* heed_compile_options.force_fused */
    heed_finding *findings;
    int n_findings, cap_findings;
} heed_rewriter;

/* text is copied into the graph's arena. */
heed_status heed_rewriter_found(heed_rewriter *rewriter, const heed_node *anchor, const heed_node *attention, const char *reason);

typedef heed_status heed_pass_fn(heed_rewriter *rewriter);

typedef struct heed_pass {
    const char *name;
    int when_unfused; /* 1: also runs with fuse = 0 */
    heed_pass_fn *run;
} heed_pass;

/* Run all passes: the graph ends inferred, verified and pruned. */
heed_status heed_rewrite(heed_rewriter *rewriter);

heed_pass_fn heed_pass_fold;           /* rewrite/fold.c: constants, known shapes, If with a known condition, identities */
heed_pass_fn heed_pass_onnx_attention; /* rewrite/onnx_attention.c: Attention-23..25 to heed.Attention and what it needs around */
heed_pass_fn heed_pass_attention;      /* rewrite/attention.c: the matcher */
heed_pass_fn heed_pass_activation;     /* rewrite/activation.c: GELU, SiLU chains */
heed_pass_fn heed_pass_norm;           /* rewrite/norm.c: layer norm and RMS norm chains, with the residual add */
heed_pass_fn heed_pass_linear;         /* rewrite/linear.c: MatMul or Gemm + bias + activation to heed.Linear */

#endif
