/* Loading a model and describing its inputs and outputs. */
#include "exec/model.h"

#include <string.h>

static heed_status wrap(heed_model **out, const heed_context *ctx, heed_onnx_model *file)
{
    heed_model *model = heed_alloc(ctx, sizeof *model);
    if (!model) {
        heed_onnx_destroy(file);
        return heed_fail(HEED_ERR_MEMORY, "no memory for a model");
    }
    *model = (heed_model){ ctx, file, heed_onnx_graph(file) };
    *out = model;
    return HEED_OK;
}

heed_status heed_model_load(heed_model **out, heed_context *ctx, const char *path)
{
    if (!out) return heed_fail(HEED_ERR_ARGUMENT, "out: is NULL");
    *out = NULL;
    if (!ctx) return heed_fail(HEED_ERR_ARGUMENT, "ctx: is NULL");
    if (!path) return heed_fail(HEED_ERR_ARGUMENT, "path: is NULL");
    heed_onnx_model *file;
    HEED_TRY(heed_onnx_import_file(&file, ctx, path));
    return wrap(out, ctx, file);
}

heed_status heed_model_load_memory(heed_model **out, heed_context *ctx, const void *data, size_t bytes, const char *base_dir)
{
    if (!out) return heed_fail(HEED_ERR_ARGUMENT, "out: is NULL");
    *out = NULL;
    if (!ctx) return heed_fail(HEED_ERR_ARGUMENT, "ctx: is NULL");
    if (!data) return heed_fail(HEED_ERR_ARGUMENT, "data: is NULL");
    heed_onnx_model *file;
    HEED_TRY(heed_onnx_import(&file, ctx, data, bytes, "model in memory", base_dir));
    return wrap(out, ctx, file);
}

void heed_model_destroy(heed_model *model)
{
    if (!model) return;
    heed_onnx_destroy(model->file);
    heed_free(model->ctx, model);
}

int heed_model_input_count(const heed_model *model)
{
    return model ? model->graph->n_inputs : 0;
}

int heed_model_output_count(const heed_model *model)
{
    return model ? model->graph->n_outputs : 0;
}

static heed_status describe(const heed_graph *graph, heed_value *const *values, int n, const char *what, int index,
                            heed_value_info *info)
{
    if (!info) return heed_fail(HEED_ERR_ARGUMENT, "info: is NULL");
    if (index < 0 || index >= n) return heed_fail(HEED_ERR_ARGUMENT, "index: is %d, the model has %d %ss", index, n, what);
    if (info->struct_size < sizeof(size_t) || info->struct_size > 4096)
        return heed_fail(HEED_ERR_ARGUMENT, "info: struct_size is %zu; set it to sizeof(heed_value_info)", info->struct_size);
    const heed_value *value = values[index];
    heed_value_info full = { .struct_size = info->struct_size, .name = value->name ? value->name : "", .ndim = value->fact.rank };
    if (value->fact.dtype != HEED_DTYPE_NONE) full.dtype = heed_dtype_to_dl(value->fact.dtype);
    for (int i = 0; i < value->fact.rank; i++) {
        int64_t dim = value->fact.dims[i];
        full.shape[i] = dim < 0 ? -1 : dim;
        full.dim_names[i] = dim < 0 ? heed_dims_name(graph->dims, dim) : NULL;
    }
    size_t bytes = info->struct_size < sizeof full ? info->struct_size : sizeof full; /* an older caller's is shorter */
    memcpy(info, &full, bytes);
    return HEED_OK;
}

heed_status heed_model_input(const heed_model *model, int index, heed_value_info *info)
{
    if (!model) return heed_fail(HEED_ERR_ARGUMENT, "model: is NULL");
    return describe(model->graph, model->graph->inputs, model->graph->n_inputs, "input", index, info);
}

heed_status heed_model_output(const heed_model *model, int index, heed_value_info *info)
{
    if (!model) return heed_fail(HEED_ERR_ARGUMENT, "model: is NULL");
    return describe(model->graph, model->graph->outputs, model->graph->n_outputs, "output", index, info);
}
