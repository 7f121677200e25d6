/* Load, compile, run. */
#include "runner.h"

#include <stdlib.h>
#include <string.h>

#include "fault.h"

int heed_runner_load(heed_runner *r, const char *path, int threads)
{
    *r = (heed_runner){ .path = path };
    heed_context_desc desc;
    heed_context_desc_init(&desc);
    desc.n_threads = threads;
    if (heed_context_create(&r->ctx, &desc) == HEED_OK && heed_model_load(&r->model, r->ctx, path) == HEED_OK) return 0;
    heed_fault_library(path);
    heed_runner_close(r);
    return -1;
}

static void drop_compiled(heed_runner *r)
{
    heed_session_destroy(r->session);
    heed_compiled_destroy(r->compiled);
    r->session = NULL, r->compiled = NULL;
}

void heed_runner_close(heed_runner *r)
{
    drop_compiled(r);
    heed_model_destroy(r->model);
    heed_context_destroy(r->ctx);
    *r = (heed_runner){ 0 };
}

int heed_runner_compile(heed_runner *r, int fuse)
{
    drop_compiled(r);
    heed_compile_options options;
    heed_compile_options_init(&options);
    options.fuse = fuse;
    return heed_compile(&r->compiled, r->model, &options) == HEED_OK ? 0 : heed_fault_library(r->path);
}

int heed_runner_run(heed_runner *r, const heed_array *inputs)
{
    if (!r->session && heed_session_create(&r->session, r->compiled) != HEED_OK) return heed_fault_library(r->path);
    int n = heed_model_input_count(r->model);
    for (int i = 0; i < n; i++) {
        DLTensor view = heed_array_view(&inputs[i]);
        if (heed_session_set_input(r->session, heed_runner_input(r, i).name, &view) != HEED_OK)
            return heed_fault_library(r->path);
    }
    return heed_session_run(r->session) == HEED_OK ? 0 : heed_fault_library(r->path);
}

int heed_runner_outputs(heed_runner *r, heed_array *outputs)
{
    int n = heed_model_output_count(r->model);
    memset(outputs, 0, (size_t) n * sizeof *outputs);
    for (int i = 0; i < n; i++) {
        const DLTensor *tensor;
        int rc = heed_session_output(r->session, i, &tensor) == HEED_OK ? 0 : heed_fault_library(r->path);
        if (rc == 0 && (rc = heed_array_copy(&outputs[i], tensor)) != 0)
            heed_fault_prefix("%s: output '%s': ", r->path, heed_runner_output(r, i).name);
        if (rc == 0) continue;
        heed_arrays_destroy(outputs, i);
        return -1;
    }
    return 0;
}

heed_value_info heed_runner_input(const heed_runner *r, int i)
{
    heed_value_info info = { .struct_size = sizeof info, .name = "" };
    heed_model_input(r->model, i, &info);
    return info;
}

heed_value_info heed_runner_output(const heed_runner *r, int i)
{
    heed_value_info info = { .struct_size = sizeof info, .name = "" };
    heed_model_output(r->model, i, &info);
    return info;
}

int heed_runner_find_input(const heed_runner *r, const char *name)
{
    for (int i = 0, n = heed_model_input_count(r->model); i < n; i++)
        if (strcmp(heed_runner_input(r, i).name, name) == 0) return i;
    return -1;
}

int heed_runner_find_output(const heed_runner *r, const char *name)
{
    for (int i = 0, n = heed_model_output_count(r->model); i < n; i++)
        if (strcmp(heed_runner_output(r, i).name, name) == 0) return i;
    return -1;
}

heed_attention_report heed_runner_attention(const heed_runner *r, int i)
{
    heed_attention_report report = {
        .struct_size = sizeof report, .node = "", .reason = "", .shapes = "", .kernel = "", .why = ""
    };
    heed_compiled_attention(r->compiled, i, &report);
    return report;
}

int heed_runner_count_fused(const heed_runner *r)
{
    int fused = 0;
    for (int i = 0, n = heed_compiled_attention_count(r->compiled); i < n; i++) fused += heed_runner_attention(r, i).fused != 0;
    return fused;
}

char *heed_runner_tally(const heed_runner *r)
{
    int n = heed_compiled_attention_count(r->compiled), fused = heed_runner_count_fused(r);
    return heed_must_print("%d attention%s: %d fused, %d left alone", n, n == 1 ? "" : "s", fused, n - fused);
}

void heed_arrays_destroy(heed_array *arrays, int n)
{
    for (int i = 0; i < n; i++) heed_array_destroy(&arrays[i]);
}
