/* The model as an object, and the way from bytes to a graph. */
#include "onnx/import.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "onnx/importer.h"
#include "onnx/wire.h"

/* Nodes, their inputs, outputs and attributes that functions may unfold to. */
#define UNFOLD_BUDGET (1 << 22)
/* A version is looked up for each node. */
#define MAX_OPSETS 256

static char *function_key(struct import *im, const char *domain, const char *name, const char *overload)
{
    return heed_arena_printf(im->arena, "%s\n%s\n%s", heed_onnx_domain(domain), name, overload ? overload : "");
}

/* What was found for a node, also if that is nothing. */
struct lookup {
    const function_proto *function;
};

heed_status heed_onnx_find_function(struct import *im, const node_proto *node, const function_proto **out)
{
    *out = NULL;
    if (!im->functions.n) return HEED_OK;
    struct lookup **known = (struct lookup **) heed_names_at(&im->calls, node);
    if (!known) return HEED_NO_MEMORY();
    if (!*known) {
        struct lookup *lookup = HEED_NEW(im->arena, struct lookup);
        char *key = function_key(im, node->domain, node->op_type, node->overload);
        if (!lookup || !key) return HEED_NO_MEMORY();
        void **found = heed_names_find(&im->functions, key, strlen(key));
        lookup->function = found ? *found : NULL;
        *known = lookup;
    }
    *out = (*known)->function;
    return HEED_OK;
}

heed_status heed_onnx_check_opset(int64_t version)
{
    if (version >= HEED_OPSET_MIN && version <= HEED_OPSET_MAX) return HEED_OK;
    if (version == 0) return heed_fail(HEED_ERR_FORMAT, "no opset version is given for domain ai.onnx");
    return heed_fail(HEED_ERR_UNSUPPORTED, "opset %" PRId64 " is not supported, expected %d to %d", version, HEED_OPSET_MIN,
                     HEED_OPSET_MAX);
}

/* The model's own; those of a function are looked at where something uses them. */
static heed_status check_opsets(const model_proto *proto)
{
    size_t n = proto->n_opset_import;
    if (n > MAX_OPSETS) return heed_fail(HEED_ERR_FORMAT, "%zu opsets, expected at most %d", n, MAX_OPSETS);
    for (size_t i = 0; i < n; i++)
        if (!*heed_onnx_domain(proto->opset_import[i]->domain)) HEED_TRY(heed_onnx_check_opset(proto->opset_import[i]->version));
    return HEED_OK;
}

static heed_status add_functions(struct import *im)
{
    for (size_t i = 0; i < im->proto->n_functions; i++) {
        function_proto *function = im->proto->functions[i];
        if (!function->name || !*function->name) return heed_fail(HEED_ERR_FORMAT, "function %zu has no name", i);
        char *key = function_key(im, function->domain, function->name, function->overload);
        void **slot = key ? heed_names_add(&im->functions, key, strlen(key)) : NULL;
        if (!slot) return HEED_NO_MEMORY();
        if (*slot) return heed_fail(HEED_ERR_FORMAT, "function '%.120s' is defined twice", function->name);
        *slot = function;
        if (function->n_opset_import > MAX_OPSETS)
            return heed_fail(HEED_ERR_FORMAT, "function '%.120s' has more than %d opsets", function->name, MAX_OPSETS);
    }
    return HEED_OK;
}

static heed_status unpack(struct import *im, const void *data, size_t bytes)
{
    if (!bytes) return heed_fail(HEED_ERR_FORMAT, "is empty");
    HEED_TRY(heed_wire_check(&heed__onnx__model_proto__descriptor, data, bytes));
    im->proto = heed__onnx__model_proto__unpack(&im->model->pool.hooks, bytes, data);
    if (im->proto) return HEED_OK;
    return im->model->pool.failed ? HEED_NO_MEMORY()
                                  : heed_fail(HEED_ERR_FORMAT, "is not an ONNX model: a field has a wrong type");
}

static heed_status build(struct import *im, const void *data, size_t bytes)
{
    HEED_TRY(unpack(im, data, bytes));
    if (!im->proto->graph) return heed_fail(HEED_ERR_FORMAT, "is not an ONNX model: it has no graph");
    if (im->proto->ir_version > HEED_IR_VERSION_MAX)
        return heed_fail(HEED_ERR_UNSUPPORTED, "IR version %" PRId64 " is not supported, expected at most %d",
                         im->proto->ir_version, HEED_IR_VERSION_MAX);
    HEED_TRY(check_opsets(im->proto));
    HEED_TRY(add_functions(im));
    heed_graph *graph = im->model->graph;
    if (im->proto->graph->name && !(graph->name = heed_arena_strdup(graph->arena, im->proto->graph->name)))
        return HEED_NO_MEMORY();
    return heed_onnx_main(im, im->proto->graph);
}

/* Where external data are looked for, if nothing else is said: the folder of the file. */
static char *folder_of(heed_arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash) return heed_arena_strdup(arena, ".");
    return heed_arena_strndup(arena, path, slash == path ? 1 : (size_t) (slash - path));
}

static heed_status import(heed_onnx_model *model, const void *data, size_t bytes, const char *path, const char *base_dir)
{
    struct import im = { .model = model, .folder = base_dir, .budget = UNFOLD_BUDGET, .arena = heed_arena_create(model->ctx) };
    im.functions.arena = im.calls.arena = im.tensors.arena = im.files.arena = im.arena;
    heed_status status = HEED_OK;
    model->graph = heed_graph_create(model->ctx);
    if (!im.arena || !model->graph) status = HEED_NO_MEMORY();
    if (!status && path && !base_dir && !(im.folder = folder_of(im.arena, path))) status = HEED_NO_MEMORY();
    if (!status) status = build(&im, data, bytes);
    heed_arena_destroy(im.arena);
    heed_pool_drop(&model->pool);
    return status;
}

heed_status heed_onnx_import(heed_onnx_model **out, const heed_context *ctx, const void *data, size_t bytes, const char *path,
                             const char *base_dir)
{
    int kept_errno = errno;
    const char *shown = path ? path : "model";
    *out = NULL;
    heed_onnx_model *model = heed_alloc(ctx, sizeof *model);
    if (!model) return heed_fail_prefix(HEED_NO_MEMORY(), "%.300s: ", shown);
    *model = (heed_onnx_model){ .ctx = ctx };
    heed_pool_init(&model->pool, ctx);
    heed_status status = import(model, data, bytes, path, base_dir);
    if (status) {
        status = heed_fail_prefix(status, "%.300s: ", shown);
        heed_onnx_destroy(model);
        model = NULL;
    }
    *out = model;
    errno = kept_errno;
    return status;
}

static heed_status map_model(int file, const char *path, void **data, size_t *bytes)
{
    struct stat about;
    if (fstat(file, &about) != 0) return heed_fail(HEED_ERR_FILE, "%.300s: %s", path, strerror(errno));
    if (!S_ISREG(about.st_mode)) return heed_fail(HEED_ERR_FILE, "%.300s: is not a regular file", path);
    *bytes = (size_t) about.st_size;
    *data = *bytes ? mmap(NULL, *bytes, PROT_READ, MAP_PRIVATE, file, 0) : NULL;
    return *data == MAP_FAILED ? heed_fail(HEED_ERR_FILE, "%.300s: cannot be mapped: %s", path, strerror(errno)) : HEED_OK;
}

heed_status heed_onnx_import_file(heed_onnx_model **out, const heed_context *ctx, const char *path)
{
    int kept_errno = errno;
    void *data = NULL;
    size_t bytes = 0;
    *out = NULL;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not make us wait */
    heed_status status =
        file < 0 ? heed_fail(HEED_ERR_FILE, "%.300s: %s", path, strerror(errno)) : map_model(file, path, &data, &bytes);
    if (file >= 0) close(file);
    if (!status) {
        status = heed_onnx_import(out, ctx, data, bytes, path, NULL);
        if (data) munmap(data, bytes);
    }
    errno = kept_errno;
    return status;
}

void heed_onnx_destroy(heed_onnx_model *model)
{
    if (!model) return;
    heed_onnx_unmap(model->maps);
    heed_graph_destroy(model->graph);
    heed_pool_destroy(&model->pool);
    heed_free(model->ctx, model);
}

const heed_graph *heed_onnx_graph(const heed_onnx_model *model)
{
    return model->graph;
}
