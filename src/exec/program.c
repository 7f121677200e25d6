/* A program's life and its runs: bind the inputs, replay the segments that are still good, record the others. */
#include <stdio.h>
#include <string.h>

#include "exec/program_impl.h"

/* Operators often begin their messages with their own name, which need not be said twice. */
heed_status heed_node_fail(heed_status status, const heed_node *node)
{
    size_t n = strlen(node->op);
    const char *message = heed_last_message();
    int says_op = strncmp(message, node->op, n) == 0 && message[n] == ':';
    char op[80] = "";
    if (!says_op) snprintf(op, sizeof op, " (%s)", node->op);
    if (node->name && node->name[0]) return heed_fail_prefix(status, "node '%s'%s: ", node->name, op);
    return heed_fail_prefix(status, "node #%d%s: ", node->id, op);
}

/* ---- creation ---- */

static void note_last_uses(heed_program *program)
{
    const heed_graph *graph = program->graph;
    for (int i = 0; i < graph->n_values; i++) program->last_use[i] = -1;
    for (int i = 0; i < program->n_nodes; i++) {
        const heed_node *node = program->nodes[i].node;
        for (int j = 0; j < node->n_inputs; j++)
            if (node->inputs[j]) program->last_use[node->inputs[j]->id] = i;
    }
    for (int i = 0; i < graph->n_outputs; i++) program->last_use[graph->outputs[i]->id] = HEED_MEM_FOREVER;
}

static void init_slots(heed_program *program)
{
    const heed_graph *graph = program->graph;
    for (int i = 0; i < graph->n_values; i++) {
        const heed_value *value = graph->values[i];
        heed_slot *slot = &program->slots[i];
        *slot = (heed_slot){ .segment = -1, .root = slot, .last_node = HEED_MEM_FOREVER };
        if (value->is_input) {
            slot->storage = HEED_STORAGE_EXTERNAL;
        } else if (!value->producer && value->fact.value) {
            slot->storage = HEED_STORAGE_KEPT;
            slot->tensor = *value->fact.value;
            slot->base = slot->tensor.data;
            slot->known = slot->constant = 1;
        }
    }
}

static heed_status fill(heed_program *program)
{
    const heed_graph *graph = program->graph;
    program->cap_segments = 1;
    for (const heed_node *node = graph->first; node; node = node->next) {
        if (!node->def) return heed_node_fail(heed_fail(HEED_ERR_INTERNAL, "is not bound to an operator"), node);
        program->n_nodes++;
        program->cap_segments += (node->def->flags & HEED_OP_CONTROL) || node->def->shape_inputs;
    }
    heed_arena *arena = program->arena;
    program->nodes = HEED_NEW_N(arena, heed_program_node, program->n_nodes + 1);
    program->slots = HEED_NEW_N(arena, heed_slot, graph->n_values + 1);
    program->last_use = HEED_NEW_N(arena, int, graph->n_values + 1);
    program->segments = HEED_NEW_N(arena, heed_segment, program->cap_segments);
    program->memory = HEED_NEW_N(arena, heed_segment_memory, program->cap_segments);
    program->inputs = HEED_NEW_N(arena, heed_tensor, graph->n_inputs + 1);
    program->outputs = HEED_NEW_N(arena, const heed_tensor *, graph->n_outputs + 1);
    if (!program->inputs || !program->nodes || !program->slots || !program->last_use || !program->segments || !program->memory ||
        !program->outputs)
        return heed_fail(HEED_ERR_MEMORY, "no memory for a program of %d nodes", program->n_nodes);
    int i = 0;
    for (const heed_node *node = graph->first; node; node = node->next) program->nodes[i++].node = node;
    note_last_uses(program);
    init_slots(program);
    return HEED_OK;
}

heed_status heed_program_create(heed_program **out, const heed_graph *graph)
{
    *out = NULL;
    heed_program *program = heed_alloc(graph->ctx, sizeof *program);
    if (!program) return heed_fail(HEED_ERR_MEMORY, "no memory for a program");
    *program = (heed_program){ .ctx = graph->ctx, .graph = graph, .arena = heed_arena_create(graph->ctx) };
    heed_status status = program->arena ? fill(program) : heed_fail(HEED_ERR_MEMORY, "no memory for a program");
    if (status != HEED_OK) {
        heed_program_destroy(program);
        return status;
    }
    *out = program;
    return HEED_OK;
}

void heed_program_destroy(heed_program *program)
{
    if (!program) return;
    heed_program_drop(program, 0);
    for (int i = 0; program->memory && i < program->cap_segments; i++) heed_free(program->ctx, program->memory[i].data);
    for (int i = 0; program->nodes && i < program->n_nodes; i++) {
        heed_program_node *node = &program->nodes[i];
        if (node->state && node->node->def->release) node->node->def->release(program->ctx, node->state);
        heed_program_destroy(node->branches[0]);
        heed_program_destroy(node->branches[1]);
    }
    heed_arena_destroy(program->arena);
    heed_free(program->ctx, program);
}

/* ---- running ---- */

static int same_layout(const heed_tensor *a, const heed_tensor *b)
{
    if (a->dtype != b->dtype || a->rank != b->rank) return 0;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i] || a->strides[i] != b->strides[i]) return 0;
    return 1;
}

static void place_from(heed_program *program, int from)
{
    for (int i = from; i < program->n_segments; i++) heed_segment_place(&program->segments[i]);
}

static void bind_inputs(heed_program *program, const heed_tensor *inputs)
{
    int reshaped = 0, moved = 0;
    for (int i = 0; i < program->graph->n_inputs; i++) {
        heed_slot *slot = &program->slots[program->graph->inputs[i]->id];
        reshaped |= !same_layout(&slot->tensor, &inputs[i]);
        moved |= slot->base != inputs[i].data;
        slot->tensor = inputs[i];
        slot->base = inputs[i].data;
    }
    if (reshaped) heed_program_drop(program, 0);
    else if (moved) place_from(program, 0);
}

/* The outputs of an If that was run just now fit what was recorded; their addresses are taken over. */
static int branch_fits(heed_program *program, int segment, const heed_program_node *node)
{
    int moved = 0;
    for (int i = 0; i < node->node->n_outputs; i++) {
        const heed_tensor *now = heed_program_output(node->branches[node->taken], i);
        if (!node->node->outputs[i]) continue;
        heed_slot *slot = &program->slots[node->node->outputs[i]->id];
        if (!same_layout(&slot->tensor, now)) return 0;
        moved |= slot->base != now->data;
        slot->base = now->data;
    }
    if (moved) place_from(program, segment);
    return 1;
}

static heed_status shape_fits(heed_program *program, const heed_node *node, int *fits)
{
    heed_arena *arena = heed_arena_create(program->ctx);
    heed_dims *dims = arena ? heed_dims_create(arena) : NULL;
    heed_fact *facts = dims ? HEED_NEW_N(arena, heed_fact, node->n_outputs + 1) : NULL;
    heed_status status =
        facts ? heed_program_infer(program, node, arena, dims, facts) : heed_fail(HEED_ERR_MEMORY, "no memory for its shape");
    *fits = 1;
    for (int i = 0; status == HEED_OK && i < node->n_outputs; i++) {
        const heed_slot *slot = node->outputs[i] ? &program->slots[node->outputs[i]->id] : NULL;
        if (!slot || slot->storage == HEED_STORAGE_NONE) continue;
        for (int d = 0; d < slot->tensor.rank; d++)
            if (facts[i].rank != slot->tensor.rank || facts[i].dims[d] != slot->tensor.dims[d]) *fits = 0;
    }
    heed_arena_destroy(arena);
    return status == HEED_OK ? status : heed_node_fail(status, node);
}

/* Make segment k good for this run: it starts at node `first`, and all before it has run. */
static heed_status enter_segment(heed_program *program, int k, int first)
{
    heed_program_node *node = first < program->n_nodes ? &program->nodes[first] : NULL;
    int is_if = node && (node->node->def->flags & HEED_OP_CONTROL);
    if (is_if) HEED_TRY(heed_program_run_if(program, first));
    if (k < program->n_segments) {
        int fits = 1;
        if (is_if) fits = branch_fits(program, k, node);
        else if (program->segments[k].dynamic) HEED_TRY(shape_fits(program, node->node, &fits));
        if (fits) return HEED_OK;
        heed_program_drop(program, k);
    }
    return heed_program_record(program, first);
}

static heed_status replay(const heed_segment *segment)
{
    for (heed_step *step = segment->steps, *end = step + segment->n_steps; step < end; step++) {
        heed_status status = step->run(&step->c);
        if (status != HEED_OK) return heed_node_fail(status, step->c.node);
    }
    return HEED_OK;
}

heed_status heed_program_run(heed_program *program, const heed_tensor *inputs)
{
    bind_inputs(program, inputs);
    int first = 0;
    for (int k = 0;; k++) {
        HEED_TRY(enter_segment(program, k, first));
        HEED_TRY(replay(&program->segments[k]));
        first = program->segments[k].end;
        if (first == program->n_nodes) return HEED_OK;
    }
}

const heed_tensor *heed_program_output(const heed_program *program, int index)
{
    return program->outputs[index];
}

void *heed_program_state(const heed_program *program, const heed_node *node)
{
    for (int k = 0; k < program->n_segments; k++) {
        const heed_segment *segment = &program->segments[k];
        for (int i = 0; i < segment->n_steps; i++)
            if (segment->steps[i].c.node == node && segment->steps[i].c.state) return segment->steps[i].c.state;
    }
    return NULL;
}

int heed_program_segment_get(const heed_program *program, int index, heed_program_segment_info *info)
{
    if (index < 0 || index >= program->n_segments) return 0;
    const heed_segment *segment = &program->segments[index];
    *info = (heed_program_segment_info){ segment->blocks, segment->n_blocks, segment->n_steps, program->memory[index].data,
                                         segment->bytes };
    return 1;
}
