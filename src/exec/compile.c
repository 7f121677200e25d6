/* From a model to a graph that is ready to run: a copy of its own, which the passes change. */
#include <string.h>

#include "exec/model.h"
#include "graph/clone.h"
#include "rewrite/pass.h"

void heed_compile_options_init(heed_compile_options *options)
{
    if (options) *options = (heed_compile_options){ .struct_size = sizeof *options, .fuse = 1 };
}

static heed_status read_options(heed_compile_options *full, const heed_compile_options *options)
{
    heed_compile_options_init(full);
    if (!options) return HEED_OK;
    if (options->struct_size < sizeof(size_t) || options->struct_size > 4096)
        return heed_fail(HEED_ERR_ARGUMENT, "options: struct_size is %zu; start from heed_compile_options_init()",
                         options->struct_size);
    size_t n = options->struct_size < sizeof *full ? options->struct_size : sizeof *full;
    memcpy(full, options, n);
    return HEED_OK;
}

static heed_status compile(heed_compiled *compiled, const heed_model *model, const heed_compile_options *options)
{
    HEED_TRY(heed_graph_clone(&compiled->graph, model->graph));
    heed_rewriter rewriter = {
        .ctx = model->ctx, .graph = compiled->graph, .fuse = options->fuse != 0, .force_fused = options->force_fused != 0
    };
    HEED_TRY(heed_rewrite(&rewriter));
    HEED_TRY(heed_report_make(compiled, &rewriter));
    heed_graph_print(compiled->graph, &compiled->text);
    return compiled->text.failed ? heed_fail(HEED_ERR_MEMORY, "no memory to print the graph") : HEED_OK;
}

heed_status heed_compile(heed_compiled **out, const heed_model *model, const heed_compile_options *options)
{
    if (!out) return heed_fail(HEED_ERR_ARGUMENT, "out: is NULL");
    *out = NULL;
    if (!model) return heed_fail(HEED_ERR_ARGUMENT, "model: is NULL");
    heed_compile_options full;
    HEED_TRY(read_options(&full, options));
    heed_compiled *compiled = heed_alloc(model->ctx, sizeof *compiled);
    if (!compiled) return heed_fail(HEED_ERR_MEMORY, "no memory for a compiled model");
    *compiled = (heed_compiled){ .ctx = model->ctx, .text = { .ctx = model->ctx } };
    heed_status status = compile(compiled, model, &full);
    if (status != HEED_OK) {
        heed_compiled_destroy(compiled);
        return status;
    }
    *out = compiled;
    return HEED_OK;
}

void heed_compiled_destroy(heed_compiled *compiled)
{
    if (!compiled) return;
    heed_graph_destroy(compiled->graph);
    heed_text_free(&compiled->text);
    heed_free(compiled->ctx, compiled);
}

heed_status heed_compiled_print(const heed_compiled *compiled, const char **text)
{
    if (!text) return heed_fail(HEED_ERR_ARGUMENT, "text: is NULL");
    *text = NULL;
    if (!compiled) return heed_fail(HEED_ERR_ARGUMENT, "compiled: is NULL");
    *text = compiled->text.data ? compiled->text.data : "";
    return HEED_OK;
}
