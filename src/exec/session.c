/* A session: checked inputs, one program, outputs as DLTensors. */
#include <stdio.h>
#include <string.h>

#include "exec/model.h"
#include "ops/attention.h"

/* An output in the form of the public API. */
struct output {
    DLTensor dl;
    int64_t shape[HEED_RANK_MAX], strides[HEED_RANK_MAX];
};

/* A dimension of an input whose name an earlier dimension, of this input or another, has too. */
struct tie {
    int input, dim, first_input, first_dim;
};

struct heed_session {
    const heed_compiled *compiled;
    const heed_graph *graph;
    heed_arena *arena;
    heed_program *program;
    heed_tensor *inputs;
    unsigned char *is_set;
    struct tie *ties;
    int n_ties;
    struct output *outputs;
    int has_run; /* the last run succeeded: outputs are there */
};

static int find_first(const heed_graph *graph, int64_t dim, struct tie *tie)
{
    for (int i = 0; i < graph->n_inputs; i++)
        for (int d = 0; d < graph->inputs[i]->fact.rank; d++)
            if (graph->inputs[i]->fact.dims[d] == dim) {
                tie->first_input = i, tie->first_dim = d;
                return i != tie->input || d != tie->dim;
            }
    return 0;
}

static heed_status note_ties(heed_session *session)
{
    const heed_graph *graph = session->graph;
    session->ties = HEED_NEW_N(session->arena, struct tie, graph->n_inputs * HEED_RANK_MAX + 1);
    if (!session->ties) return heed_fail(HEED_ERR_MEMORY, "no memory for a session");
    for (int i = 0; i < graph->n_inputs; i++) {
        const heed_fact *fact = &graph->inputs[i]->fact;
        for (int d = 0; d < fact->rank; d++) {
            struct tie tie = { .input = i, .dim = d };
            if (fact->dims[d] < 0 && heed_dims_name(graph->dims, fact->dims[d]) && find_first(graph, fact->dims[d], &tie))
                session->ties[session->n_ties++] = tie;
        }
    }
    return HEED_OK;
}

static heed_status fill(heed_session *session)
{
    const heed_graph *graph = session->graph;
    session->arena = heed_arena_create(graph->ctx);
    if (!session->arena) return heed_fail(HEED_ERR_MEMORY, "no memory for a session");
    session->inputs = HEED_NEW_N(session->arena, heed_tensor, graph->n_inputs + 1);
    session->is_set = HEED_NEW_N(session->arena, unsigned char, graph->n_inputs + 1);
    session->outputs = HEED_NEW_N(session->arena, struct output, graph->n_outputs + 1);
    if (!session->inputs || !session->is_set || !session->outputs) return heed_fail(HEED_ERR_MEMORY, "no memory for a session");
    HEED_TRY(note_ties(session));
    return heed_program_create(&session->program, graph);
}

heed_status heed_session_create(heed_session **out, const heed_compiled *compiled)
{
    if (!out) return heed_fail(HEED_ERR_ARGUMENT, "out: is NULL");
    *out = NULL;
    if (!compiled) return heed_fail(HEED_ERR_ARGUMENT, "compiled: is NULL");
    heed_session *session = heed_alloc(compiled->ctx, sizeof *session);
    if (!session) return heed_fail(HEED_ERR_MEMORY, "no memory for a session");
    *session = (heed_session){ .compiled = compiled, .graph = compiled->graph };
    heed_status status = fill(session);
    if (status != HEED_OK) {
        heed_session_destroy(session);
        return status;
    }
    *out = session;
    return HEED_OK;
}

void heed_session_destroy(heed_session *session)
{
    if (!session) return;
    const heed_context *ctx = session->compiled->ctx;
    heed_program_destroy(session->program);
    heed_arena_destroy(session->arena);
    heed_free(ctx, session);
}

/* ---- inputs ---- */

static const char *name_of(const heed_value *value)
{
    return value->name ? value->name : "";
}

static heed_status no_such_input(const heed_graph *graph, const char *name)
{
    heed_text names = { .ctx = graph->ctx };
    for (int i = 0; i < graph->n_inputs; i++) heed_text_add(&names, "%s'%s'", i ? ", " : "", name_of(graph->inputs[i]));
    heed_status status = heed_fail(HEED_ERR_ARGUMENT, "input '%s': the model has no such input; it has %s", name,
                                   names.data ? names.data : "none");
    heed_text_free(&names);
    return status;
}

static heed_status check_shape(const char *name, const heed_fact *expected, const heed_tensor *t)
{
    if (expected->dtype != HEED_DTYPE_NONE && expected->dtype != t->dtype)
        return heed_fail(HEED_ERR_ARGUMENT, "input '%s': type is %s, expected %s", name, heed_dtype_name(t->dtype),
                         heed_dtype_name(expected->dtype));
    if (expected->rank < 0) return HEED_OK;
    if (expected->rank != t->rank)
        return heed_fail(HEED_ERR_ARGUMENT, "input '%s': rank is %d, expected %d", name, t->rank, expected->rank);
    for (int i = 0; i < t->rank; i++)
        if (expected->dims[i] >= 0 && expected->dims[i] != t->dims[i])
            return heed_fail(HEED_ERR_ARGUMENT, "input '%s': dimension %d is %lld, expected %lld", name, i,
                             (long long) t->dims[i], (long long) expected->dims[i]);
    return HEED_OK;
}

heed_status heed_session_set_input(heed_session *session, const char *name, const DLTensor *tensor)
{
    if (!session) return heed_fail(HEED_ERR_ARGUMENT, "session: is NULL");
    if (!name) return heed_fail(HEED_ERR_ARGUMENT, "name: is NULL");
    const heed_graph *graph = session->graph;
    int index = 0;
    while (index < graph->n_inputs && strcmp(name_of(graph->inputs[index]), name) != 0) index++;
    if (index == graph->n_inputs) return no_such_input(graph, name);
    char label[256];
    snprintf(label, sizeof label, "input '%s'", name);
    heed_tensor t;
    HEED_TRY(heed_tensor_from_dl(&t, tensor, label));
    /* NumPy and DLPack users often have bool arrays as bytes. */
    const heed_fact *expected = &graph->inputs[index]->fact;
    if (expected->dtype == HEED_BOOL && t.dtype == HEED_U8) t.dtype = HEED_BOOL;
    HEED_TRY(check_shape(name, expected, &t));
    session->inputs[index] = t;
    session->is_set[index] = 1;
    return HEED_OK;
}

/* A symbolic dimension has one size in a run. */
static heed_status check_ties(const heed_session *session)
{
    const heed_graph *graph = session->graph;
    for (int i = 0; i < session->n_ties; i++) {
        const struct tie *tie = &session->ties[i];
        int64_t first = session->inputs[tie->first_input].dims[tie->first_dim], size = session->inputs[tie->input].dims[tie->dim];
        if (first == size) continue;
        return heed_fail(HEED_ERR_ARGUMENT, "dimension '%s' is %lld in '%s' and %lld in '%s'",
                         heed_dims_name(graph->dims, graph->inputs[tie->input]->fact.dims[tie->dim]), (long long) first,
                         name_of(graph->inputs[tie->first_input]), (long long) size, name_of(graph->inputs[tie->input]));
    }
    return HEED_OK;
}

/* ---- running ---- */

static void take_output(struct output *output, const heed_tensor *t, DLDevice device)
{
    memcpy(output->shape, t->dims, sizeof output->shape);
    heed_tensor dense = heed_tensor_make(t->dtype, t->rank, t->dims);
    memcpy(output->strides, dense.strides, sizeof output->strides);
    output->dl = (DLTensor){ .data = t->data,
                             .device = device,
                             .ndim = t->rank,
                             .dtype = heed_dtype_to_dl(t->dtype),
                             .shape = output->shape,
                             .strides = output->strides };
}

heed_status heed_session_run(heed_session *session)
{
    if (!session) return heed_fail(HEED_ERR_ARGUMENT, "session: is NULL");
    const heed_graph *graph = session->graph;
    session->has_run = 0;
    for (int i = 0; i < graph->n_inputs; i++)
        if (!session->is_set[i]) return heed_fail(HEED_ERR_ARGUMENT, "input '%s' is not set", name_of(graph->inputs[i]));
    HEED_TRY(check_ties(session));
    HEED_TRY(heed_program_run(session->program, session->inputs));
    for (int i = 0; i < graph->n_outputs; i++)
        take_output(&session->outputs[i], heed_program_output(session->program, i), graph->ctx->device);
    session->has_run = 1;
    return HEED_OK;
}

heed_status heed_session_output(const heed_session *session, int index, const DLTensor **tensor)
{
    if (!tensor) return heed_fail(HEED_ERR_ARGUMENT, "tensor: is NULL");
    *tensor = NULL;
    if (!session) return heed_fail(HEED_ERR_ARGUMENT, "session: is NULL");
    if (index < 0 || index >= session->graph->n_outputs)
        return heed_fail(HEED_ERR_ARGUMENT, "index: is %d, the model has %d outputs", index, session->graph->n_outputs);
    if (!session->has_run) return heed_fail(HEED_ERR_ARGUMENT, "session: no run has succeeded yet, or the last one failed");
    *tensor = &session->outputs[index].dl;
    return HEED_OK;
}

heed_status heed_session_attention_kernel(const heed_session *session, int index, const char **kernel)
{
    if (!kernel) return heed_fail(HEED_ERR_ARGUMENT, "kernel: is NULL");
    *kernel = "";
    if (!session) return heed_fail(HEED_ERR_ARGUMENT, "session: is NULL");
    const heed_compiled *compiled = session->compiled;
    if (index < 0 || index >= compiled->n_entries)
        return heed_fail(HEED_ERR_ARGUMENT, "index: is %d, the report has %d entries", index, compiled->n_entries);
    const heed_node *attention = compiled->entries[index].attention;
    if (session->has_run && attention) *kernel = heed_attention_state_kernel(heed_program_state(session->program, attention));
    return HEED_OK;
}
