/* What a fuzzer does with bytes that may be an ONNX model: import, and if that works, everything done with a graph. */
#include <stdlib.h>

#include "graph/clone.h"
#include "onnx/import.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static heed_context *ctx;
    heed_onnx_model *model;
    heed_graph *copy;
    if (!ctx && heed_context_create(&ctx, NULL)) abort();
    if (heed_onnx_import(&model, ctx, data, bytes, "fuzzed", "/nonexistent")) {
        if (model || !*heed_last_message()) abort();
        return 0;
    }
    heed_text text = { .ctx = ctx };
    heed_graph_print(heed_onnx_graph(model), &text);
    heed_text_free(&text);
    if (heed_graph_verify(heed_onnx_graph(model)) || heed_graph_clone(&copy, heed_onnx_graph(model))) abort();
    heed_graph_prune(copy);
    if (heed_graph_verify(copy)) abort();
    heed_graph_destroy(copy);
    heed_onnx_destroy(model);
    return 0;
}
