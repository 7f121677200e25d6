/* The list of passes, in order. A pass is a function of rewrite/pass.h and one line here.
 *
 * Folding comes first, so that the others see constants, known shapes and no identities; and after the lowering of
 * Attention nodes and last, for what the fusions left behind. Attention goes before norms and linear layers, whose fused
 * forms would hide the products that it is anchored on. */
#include "rewrite/passes.h"

const heed_pass heed_passes[] = {
    { "fold", 1, heed_pass_fold },
    { "onnx attention", 1, heed_pass_onnx_attention },
    { "fold", 1, heed_pass_fold },
    { "attention", 0, heed_pass_attention },
    { "activation", 0, heed_pass_activation },
    { "norm", 0, heed_pass_norm },
    { "linear", 0, heed_pass_linear },
    { "fold", 1, heed_pass_fold },
    { NULL, 0, NULL },
};
