/* Recording a segment: one walk over the nodes with known shapes, which leaves steps, then places for their tensors. */
#include <string.h>

#include "exec/program_impl.h"
#include "ops/util.h"

/* A walk. temp holds facts and lasts as long as the walk does; the segment's arena as long as the recording. */
struct recorder {
    heed_program *program;
    heed_segment *segment;
    heed_arena *temp;
    heed_dims *dims;
    int k;    /* number of the segment */
    int node; /* number of the node at work */
};

static heed_status no_memory(void)
{
    return heed_fail(HEED_ERR_MEMORY, "no memory to record a run");
}

/* ---- slots ---- */

static heed_slot *slot_of(const heed_program *program, const heed_value *value)
{
    return value ? &program->slots[value->id] : NULL;
}

/* Output 0 is always made: few computations expect to go without it. */
static int is_wanted(const heed_program *program, const heed_node *node, int output)
{
    return node->outputs[output] && (output == 0 || program->last_use[node->outputs[output]->id] >= 0);
}

static void add_slot(struct recorder *r, heed_slot *slot)
{
    slot->segment = r->k;
    slot->next = r->segment->slots;
    r->segment->slots = slot;
}

static void set_root(heed_slot *slot, heed_slot *root, ptrdiff_t offset, int last_node)
{
    slot->root = root, slot->offset = offset, slot->storage = root->storage;
    if (last_node > root->last_node) root->last_node = last_node;
}

static heed_status own_memory(struct recorder *r, heed_slot *slot, int last_node)
{
    slot->owned = slot->base = slot->tensor.data = heed_alloc(r->program->ctx, heed_tensor_bytes(&slot->tensor));
    if (!slot->owned) return no_memory();
    slot->storage = HEED_STORAGE_KEPT, slot->known = 1, slot->last_node = last_node;
    set_root(slot, slot, 0, last_node);
    return HEED_OK;
}

static heed_status add_block(struct recorder *r, size_t bytes, int *index)
{
    heed_segment *s = r->segment;
    if (s->n_blocks == s->cap_blocks) {
        int capacity = s->cap_blocks ? s->cap_blocks * 2 : 64;
        heed_mem_block *grown = HEED_NEW_N(s->arena, heed_mem_block, capacity);
        if (!grown) return no_memory();
        if (s->n_blocks) memcpy(grown, s->blocks, (size_t) s->n_blocks * sizeof *grown);
        s->blocks = grown, s->cap_blocks = capacity;
    }
    *index = s->n_blocks;
    s->blocks[s->n_blocks++] = (heed_mem_block){ .bytes = bytes, .first = s->n_steps, .last = s->n_steps };
    return HEED_OK;
}

static heed_status arena_memory(struct recorder *r, heed_slot *slot, int last_node)
{
    slot->storage = HEED_STORAGE_ARENA, slot->last_node = last_node;
    set_root(slot, slot, 0, last_node);
    return add_block(r, heed_tensor_bytes(&slot->tensor), &slot->block);
}

/* The step to come reads or writes the slot. */
static void touch(struct recorder *r, const heed_slot *slot)
{
    heed_slot *root = slot->root;
    if (root->storage == HEED_STORAGE_ARENA && root->segment == r->k) r->segment->blocks[root->block].last = r->segment->n_steps;
    root->pinned = 1;
}

/* ---- shapes ---- */

/* Data are handed to a rule where it asks for them, else where that costs no copy. */
static heed_status fact_of(const heed_slot *slot, int wants_data, heed_arena *arena, heed_fact *fact)
{
    const heed_tensor *t = &slot->tensor;
    *fact = (heed_fact){ .dtype = t->dtype, .rank = t->rank };
    memcpy(fact->dims, t->dims, sizeof fact->dims);
    int dense = heed_tensor_is_dense(t);
    if (dense && (slot->known || wants_data)) {
        fact->value = t;
    } else if (wants_data) {
        heed_tensor *copy = HEED_NEW(arena, heed_tensor);
        if (!copy) return no_memory();
        *copy = heed_tensor_make(t->dtype, t->rank, t->dims);
        copy->data = heed_arena_alloc(arena, heed_tensor_bytes(copy));
        if (!copy->data) return no_memory();
        heed_tensor_copy(copy, t);
        fact->value = copy;
    }
    return HEED_OK;
}

static int reads_data(const heed_node *node, int input)
{
    return input < 32 && (node->def->shape_inputs >> input & 1);
}

int heed_program_is_dynamic(const heed_program *program, const heed_node *node)
{
    if (node->def->flags & HEED_OP_CONTROL) return 1;
    for (int i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] && reads_data(node, i) && !program->slots[node->inputs[i]->id].known) return 1;
    return 0;
}

static heed_status check_facts(const heed_program *program, const heed_node *node, heed_fact *facts)
{
    for (int i = 0; i < node->n_outputs; i++) {
        heed_fact *fact = &facts[i];
        if (!is_wanted(program, node, i)) continue;
        if (fact->dtype == HEED_DTYPE_NONE) fact->dtype = node->outputs[i]->fact.dtype;
        int known = fact->dtype != HEED_DTYPE_NONE && fact->rank >= 0 && fact->rank <= HEED_RANK_MAX;
        for (int d = 0; known && d < fact->rank; d++) known = fact->dims[d] >= 0;
        if (!known) return heed_fail(HEED_ERR_UNSUPPORTED, "output %d: its type and shape do not follow from the inputs", i);
        heed_tensor t = heed_tensor_make(fact->dtype, fact->rank, fact->dims);
        if (heed_tensor_bytes(&t) == SIZE_MAX) return heed_fail(HEED_ERR_ARGUMENT, "output %d: its size overflows", i);
    }
    return HEED_OK;
}

heed_status heed_program_infer(const heed_program *program, const heed_node *node, heed_arena *arena, heed_dims *dims,
                               heed_fact *facts)
{
    heed_fact *in = HEED_NEW_N(arena, heed_fact, node->n_inputs + 1);
    const heed_fact **in_ptrs = HEED_NEW_N(arena, const heed_fact *, node->n_inputs + 1);
    if (!in || !in_ptrs) return no_memory();
    for (int i = 0; i < node->n_inputs; i++) {
        if (!node->inputs[i]) continue;
        HEED_TRY(fact_of(slot_of(program, node->inputs[i]), reads_data(node, i), arena, &in[i]));
        in_ptrs[i] = &in[i];
    }
    for (int i = 0; i < node->n_outputs; i++) facts[i] = (heed_fact){ .rank = -1 };
    heed_infer infer = {
        .node = node, .arena = arena, .dims = dims, .n_in = node->n_inputs, .n_out = node->n_outputs, .in = in_ptrs, .out = facts
    };
    HEED_TRY(node->def->infer(&infer));
    return check_facts(program, node, facts);
}

/* ---- results known while recording ---- */

static int fact_is_known(const heed_dims *dims, const heed_fact *fact)
{
    int64_t number;
    if (fact->value) return 1;
    if (!fact->ints || fact->rank > 1 || (fact->rank == 1 && fact->dims[0] != fact->n_ints)) return 0;
    for (int i = 0; i < fact->n_ints; i++)
        if (!heed_dims_known(dims, fact->ints[i], &number)) return 0;
    return 1;
}

/* The rule itself knows all wanted outputs, as Shape's does. */
static int rule_knows(const struct recorder *r, const heed_node *node, const heed_fact *facts)
{
    for (int i = 0; i < node->n_outputs; i++)
        if (is_wanted(r->program, node, i) && !fact_is_known(r->dims, &facts[i])) return 0;
    return 1;
}

static heed_status take_from_rule(struct recorder *r, const heed_node *node, const heed_fact *facts)
{
    for (int i = 0; i < node->n_outputs; i++) {
        if (!is_wanted(r->program, node, i)) continue;
        heed_slot *slot = slot_of(r->program, node->outputs[i]);
        HEED_TRY(own_memory(r, slot, r->program->last_use[node->outputs[i]->id]));
        if (facts[i].value) heed_tensor_copy(&slot->tensor, facts[i].value);
        for (int j = 0; !facts[i].value && j < facts[i].n_ints; j++) {
            int64_t number = 0;
            heed_dims_known(r->dims, facts[i].ints[j], &number);
            heed_tensor_set_int(&slot->tensor, j, number);
        }
    }
    return HEED_OK;
}

static int inputs_known(const heed_program *program, const heed_node *node)
{
    for (int i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] && !program->slots[node->inputs[i]->id].known) return 0;
    return 1;
}

/* ---- arguments of an operator's functions ---- */

/* c->in and c->out for the slots; in the segment's arena. in[] may be replaced by dense copies. */
static heed_status arguments(struct recorder *r, const heed_node *node, heed_slot *const *in, heed_compute *c)
{
    const heed_tensor **in_ptrs = HEED_NEW_N(r->segment->arena, const heed_tensor *, node->n_inputs + 1);
    heed_tensor **out_ptrs = HEED_NEW_N(r->segment->arena, heed_tensor *, node->n_outputs + 1);
    if (!in_ptrs || !out_ptrs) return no_memory();
    for (int i = 0; i < node->n_inputs; i++) in_ptrs[i] = in[i] ? &in[i]->tensor : NULL;
    for (int i = 0; i < node->n_outputs; i++)
        if (is_wanted(r->program, node, i)) out_ptrs[i] = &slot_of(r->program, node->outputs[i])->tensor;
    *c = (heed_compute){
        .ctx = r->program->ctx, .node = node, .n_in = node->n_inputs, .n_out = node->n_outputs, .in = in_ptrs, .out = out_ptrs
    };
    return HEED_OK;
}

enum data_shown { SHOW_KNOWN, SHOW_CONSTANTS };

/* The same arguments with copies of the inputs that show only the data that may be looked at. */
static heed_status shown(struct recorder *r, heed_slot *const *in, enum data_shown show, const heed_compute *c, heed_compute *out)
{
    heed_tensor *copies = HEED_NEW_N(r->temp, heed_tensor, c->n_in + 1);
    const heed_tensor **ptrs = HEED_NEW_N(r->temp, const heed_tensor *, c->n_in + 1);
    if (!copies || !ptrs) return no_memory();
    for (int i = 0; i < c->n_in; i++) {
        if (!in[i]) continue;
        copies[i] = in[i]->tensor;
        if (show == SHOW_CONSTANTS ? !in[i]->constant : !in[i]->known) copies[i].data = NULL;
        ptrs[i] = &copies[i];
    }
    *out = *c;
    out->in = ptrs;
    return HEED_OK;
}

/* ---- views ---- */

#define NOWHERE ((uintptr_t) 1 << 40) /* an address to count from where there is no memory yet */

static heed_status try_view(struct recorder *r, const heed_node *node, heed_slot *const *in, heed_compute *c, int *done)
{
    *done = 0;
    if (!node->def->view || node->n_inputs < 1 || !in[0]) return HEED_OK;
    heed_compute view;
    HEED_TRY(shown(r, in, SHOW_KNOWN, c, &view));
    heed_tensor *first = (heed_tensor *) view.in[0];
    if (!first->data) first->data = (void *) NOWHERE;
    if (!node->def->view(&view)) {
        for (int i = 0; i < c->n_out; i++)
            if (c->out[i]) heed_tensor_set_dense(c->out[i]), c->out[i]->data = NULL;
        return HEED_OK;
    }
    int known = inputs_known(r->program, node), constant = 1;
    for (int i = 0; i < node->n_inputs; i++)
        if (in[i] && !in[i]->constant) constant = 0;
    for (int i = 0; i < node->n_outputs; i++) {
        if (!c->out[i]) continue;
        heed_slot *slot = slot_of(r->program, node->outputs[i]);
        ptrdiff_t from_first = (ptrdiff_t) ((uintptr_t) slot->tensor.data - (uintptr_t) first->data);
        set_root(slot, in[0]->root, in[0]->offset + from_first, r->program->last_use[node->outputs[i]->id]);
        slot->known = known, slot->constant = constant;
    }
    *done = 1;
    return HEED_OK;
}

/* ---- steps ---- */

static heed_status add_step(struct recorder *r, const heed_step *step)
{
    heed_segment *s = r->segment;
    if (s->n_steps == s->cap_steps) {
        int capacity = s->cap_steps ? s->cap_steps * 2 : 64;
        heed_step *grown = HEED_NEW_N(s->arena, heed_step, capacity);
        if (!grown) return no_memory();
        if (s->n_steps) memcpy(grown, s->steps, (size_t) s->n_steps * sizeof *grown);
        s->steps = grown, s->cap_steps = capacity;
    }
    s->steps[s->n_steps++] = *step;
    return HEED_OK;
}

static heed_status copy_compute(heed_compute *c)
{
    heed_copy(c->ctx, c->out[0], c->in[0]);
    return HEED_OK;
}

static heed_status add_copy(struct recorder *r, heed_slot *from, heed_slot *to)
{
    const heed_tensor **in = HEED_NEW(r->segment->arena, const heed_tensor *);
    heed_tensor **out = HEED_NEW(r->segment->arena, heed_tensor *);
    if (!in || !out) return no_memory();
    *in = &from->tensor, *out = &to->tensor;
    touch(r, from);
    heed_step step = { .c = { .ctx = r->program->ctx, .n_in = 1, .n_out = 1, .in = in, .out = out },
                       .run = copy_compute,
                       .scratch = -1 };
    return add_step(r, &step);
}

static heed_slot *dense_slot(struct recorder *r, const heed_slot *of)
{
    heed_slot *slot = HEED_NEW(r->segment->arena, heed_slot);
    if (!slot) return NULL;
    slot->tensor = heed_tensor_make(of->tensor.dtype, of->tensor.rank, of->tensor.dims);
    add_slot(r, slot);
    return slot;
}

/* Row-major copies for an operator that takes no other; made once per value. */
static heed_status make_dense(struct recorder *r, const heed_node *node, heed_slot **in)
{
    if (node->def->flags & HEED_OP_STRIDED) return HEED_OK;
    for (int i = 0; i < node->n_inputs; i++) {
        if (!in[i] || heed_tensor_is_dense(&in[i]->tensor)) continue;
        if (!in[i]->dense) {
            heed_slot *copy = dense_slot(r, in[i]);
            if (!copy) return no_memory();
            int last_node = r->program->last_use[node->inputs[i]->id];
            if (in[i]->known) {
                HEED_TRY(own_memory(r, copy, last_node));
                heed_tensor_copy(&copy->tensor, &in[i]->tensor);
            } else {
                HEED_TRY(arena_memory(r, copy, last_node));
                HEED_TRY(add_copy(r, in[i], copy));
            }
            in[i]->dense = copy;
        }
        in[i] = in[i]->dense;
    }
    return HEED_OK;
}

static heed_status prepare(struct recorder *r, const heed_node *node, heed_slot *const *in, heed_step *step)
{
    if (!node->def->prepare) return HEED_OK;
    heed_program_node *kept = node->def->flags & HEED_OP_KEEP_STATE ? &r->program->nodes[r->node] : NULL;
    if (kept && kept->state) {
        step->c.state = kept->state;
        return HEED_OK;
    }
    heed_compute c;
    HEED_TRY(shown(r, in, SHOW_CONSTANTS, &step->c, &c));
    void *state = NULL;
    HEED_TRY(node->def->prepare(&c, &state));
    step->c.state = state;
    if (kept) kept->state = state;
    else step->release = state ? node->def->release : NULL;
    return HEED_OK;
}

static heed_status scratch_bytes(const heed_step *step, size_t *bytes)
{
    const heed_op *def = step->c.node->def;
    *bytes = def->scratch ? def->scratch(&step->c) : 0;
    return *bytes == SIZE_MAX ? heed_fail(HEED_ERR_MEMORY, "the scratch memory that it needs overflows") : HEED_OK;
}

/* Compute a node here and now, into kept memory. */
static heed_status compute_now(struct recorder *r, heed_step *step, heed_slot *const *in)
{
    const heed_node *node = step->c.node;
    for (int i = 0; i < node->n_outputs; i++) {
        if (!step->c.out[i]) continue;
        heed_slot *slot = slot_of(r->program, node->outputs[i]);
        HEED_TRY(own_memory(r, slot, r->program->last_use[node->outputs[i]->id]));
    }
    size_t bytes;
    heed_status status = prepare(r, node, in, step);
    if (status == HEED_OK) status = scratch_bytes(step, &bytes);
    if (status == HEED_OK && bytes) {
        step->c.scratch = heed_alloc(r->program->ctx, bytes);
        if (!step->c.scratch) status = no_memory();
    }
    if (status == HEED_OK) status = node->def->compute(&step->c);
    heed_free(r->program->ctx, step->c.scratch);
    if (step->release) step->release(r->program->ctx, step->c.state);
    return status;
}

/* Output 0 takes over the memory of an input that nothing reads after this step. */
static int overwrites(struct recorder *r, heed_slot *const *in, int n_in, int which, const heed_slot *out)
{
    const heed_slot *slot = in[which], *root = slot ? slot->root : NULL;
    if (!slot || root->storage != HEED_STORAGE_ARENA || root->segment != r->k || root->last_node > r->node) return 0;
    if (slot->tensor.dtype != out->tensor.dtype || slot->tensor.rank != out->tensor.rank ||
        !heed_tensor_is_dense(&slot->tensor) || !heed_tensor_is_dense(&out->tensor))
        return 0;
    for (int d = 0; d < out->tensor.rank; d++)
        if (slot->tensor.dims[d] != out->tensor.dims[d]) return 0;
    for (int i = 0; i < n_in; i++)
        if (i != which && in[i] && in[i]->root == root) return 0;
    return 1;
}

static heed_status output_memory(struct recorder *r, heed_slot **in, heed_step *step)
{
    const heed_node *node = step->c.node;
    unsigned flags = node->def->flags;
    for (int i = 0; i < node->n_outputs; i++) {
        if (!step->c.out[i]) continue;
        heed_slot *slot = slot_of(r->program, node->outputs[i]);
        int last_node = r->program->last_use[node->outputs[i]->id];
        if (i == 0 && (flags & HEED_OP_INPLACE)) {
            int which = overwrites(r, in, node->n_inputs, 0, slot) ? 0 : -1;
            if (which < 0 && (flags & HEED_OP_COMMUTES) && node->n_inputs == 2 && overwrites(r, in, 2, 1, slot)) {
                const heed_tensor **ptrs = (const heed_tensor **) step->c.in, *first = ptrs[0];
                heed_slot *first_slot = in[0];
                ptrs[0] = ptrs[1], ptrs[1] = first, in[0] = in[1], in[1] = first_slot, which = 0;
            }
            if (which == 0) {
                set_root(slot, in[0]->root, in[0]->offset, last_node);
                continue;
            }
        }
        HEED_TRY(arena_memory(r, slot, last_node));
    }
    return HEED_OK;
}

static int nothing_to_write(const heed_compute *c)
{
    for (int i = 0; i < c->n_out; i++)
        if (c->out[i] && heed_tensor_bytes(c->out[i]) > 0) return 0;
    return 1;
}

static heed_status record_step(struct recorder *r, const heed_node *node, heed_slot **in)
{
    heed_step step = { .run = node->def->compute, .scratch = -1 };
    HEED_TRY(make_dense(r, node, in));
    HEED_TRY(arguments(r, node, in, &step.c));
    if (node->def->layout) node->def->layout(&step.c);
    HEED_TRY(output_memory(r, in, &step));
    if (nothing_to_write(&step.c)) return HEED_OK;
    for (int i = 0; i < node->n_inputs; i++)
        if (in[i]) touch(r, in[i]);
    HEED_TRY(prepare(r, node, in, &step));
    size_t bytes;
    heed_status status = scratch_bytes(&step, &bytes);
    if (status == HEED_OK && bytes) status = add_block(r, bytes, &step.scratch);
    if (status == HEED_OK) status = add_step(r, &step);
    if (status != HEED_OK && step.release) step.release(r->program->ctx, step.c.state);
    return status;
}

/* ---- nodes ---- */

/* The branch has run: its outputs are tensors of the inner program. */
static void record_if(struct recorder *r, const heed_node *node)
{
    const heed_program_node *n = &r->program->nodes[r->node];
    for (int i = 0; i < node->n_outputs; i++) {
        if (!node->outputs[i]) continue;
        heed_slot *slot = slot_of(r->program, node->outputs[i]);
        slot->tensor = *heed_program_output(n->branches[n->taken], i);
        slot->storage = HEED_STORAGE_EXTERNAL, slot->root = slot, slot->base = slot->tensor.data;
        add_slot(r, slot);
    }
}

static heed_status record_shapes(struct recorder *r, const heed_node *node, heed_fact **facts)
{
    *facts = HEED_NEW_N(r->temp, heed_fact, node->n_outputs + 1);
    if (!*facts) return no_memory();
    HEED_TRY(heed_program_infer(r->program, node, r->temp, r->dims, *facts));
    for (int i = 0; i < node->n_outputs; i++) {
        if (!is_wanted(r->program, node, i)) continue;
        heed_slot *slot = slot_of(r->program, node->outputs[i]);
        slot->tensor = heed_tensor_make((*facts)[i].dtype, (*facts)[i].rank, (*facts)[i].dims);
        add_slot(r, slot);
    }
    return HEED_OK;
}

static heed_status record_node(struct recorder *r, const heed_node *node)
{
    if (node->def->flags & HEED_OP_CONTROL) {
        record_if(r, node);
        return HEED_OK;
    }
    heed_fact *facts;
    HEED_TRY(record_shapes(r, node, &facts));
    int dynamic = heed_program_is_dynamic(r->program, node);
    if (!dynamic && rule_knows(r, node, facts)) return take_from_rule(r, node, facts);

    heed_slot **in = HEED_NEW_N(r->temp, heed_slot *, node->n_inputs + 1);
    if (!in) return no_memory();
    for (int i = 0; i < node->n_inputs; i++) in[i] = slot_of(r->program, node->inputs[i]);
    heed_step step = { .run = node->def->compute, .scratch = -1 };
    if (!dynamic) {
        int done;
        HEED_TRY(arguments(r, node, in, &step.c));
        HEED_TRY(try_view(r, node, in, &step.c, &done));
        if (done) return HEED_OK;
    }
    if (!node->def->compute) return heed_fail(HEED_ERR_UNSUPPORTED, "is not supported in a run");
    if (dynamic || (node->def->flags & HEED_OP_RANDOM) || !inputs_known(r->program, node)) return record_step(r, node, in);
    HEED_TRY(make_dense(r, node, in));
    HEED_TRY(arguments(r, node, in, &step.c));
    return compute_now(r, &step, in);
}

/* Results are row-major and in memory of the program's own, which stays until the next run. */
static heed_status record_outputs(struct recorder *r)
{
    heed_program *program = r->program;
    const heed_graph *graph = program->graph;
    for (int i = 0; i < graph->n_outputs; i++) {
        heed_slot *slot = slot_of(program, graph->outputs[i]);
        program->outputs[i] = NULL;
        for (int j = 0; j < i && !program->outputs[i]; j++)
            if (graph->outputs[j] == graph->outputs[i]) program->outputs[i] = program->outputs[j];
        if (program->outputs[i]) continue;
        program->outputs[i] = &slot->tensor;
        if (slot->root->storage == HEED_STORAGE_ARENA && heed_tensor_is_dense(&slot->tensor)) continue;
        heed_slot *copy = dense_slot(r, slot);
        if (!copy) return no_memory();
        HEED_TRY(arena_memory(r, copy, HEED_MEM_FOREVER));
        HEED_TRY(add_copy(r, slot, copy));
        program->outputs[i] = &copy->tensor;
    }
    return HEED_OK;
}

static heed_status walk(struct recorder *r, int first)
{
    heed_program *program = r->program;
    for (r->node = first; r->node < program->n_nodes; r->node++) {
        const heed_node *node = program->nodes[r->node].node;
        if (heed_program_is_dynamic(program, node)) {
            if (r->node > first) break;
            r->segment->dynamic = 1;
        }
        heed_status status = record_node(r, node);
        if (status != HEED_OK) return heed_node_fail(status, node);
    }
    r->segment->end = r->node;
    return r->node == program->n_nodes ? record_outputs(r) : HEED_OK;
}

/* ---- memory ---- */

/* What later segments read stays to the end of the run; what was only a stage on the way to known values goes now. */
static void settle_lifetimes(struct recorder *r)
{
    heed_segment *segment = r->segment;
    for (heed_slot *slot = segment->slots; slot; slot = slot->next) {
        if (slot->root != slot) continue;
        int needed_later = slot->last_node >= segment->end;
        if (slot->storage == HEED_STORAGE_ARENA && needed_later) segment->blocks[slot->block].last = HEED_MEM_FOREVER;
        if (slot->owned && !slot->pinned && !needed_later) {
            heed_free(r->program->ctx, slot->owned);
            slot->owned = slot->base = NULL;
        }
    }
}

void heed_segment_place(heed_segment *segment)
{
    for (heed_slot *slot = segment->slots; slot; slot = slot->next)
        if (slot->storage != HEED_STORAGE_NONE)
            slot->tensor.data = slot->root->base ? (char *) slot->root->base + slot->offset : NULL;
}

/* Memory that grows once is likely to grow again (a cache of keys): take a quarter more then. */
static heed_status reserve(const heed_context *ctx, heed_segment_memory *memory, size_t bytes)
{
    if (memory->data && bytes <= memory->bytes) return HEED_OK;
    size_t take = memory->data ? heed_size_add(bytes, bytes / 4) : bytes;
    heed_free(ctx, memory->data);
    *memory = (heed_segment_memory){ heed_alloc(ctx, take), take };
    if (memory->data) return HEED_OK;
    return heed_fail(HEED_ERR_MEMORY, "no memory for the %zu bytes that a run needs", bytes);
}

static heed_status give_places(struct recorder *r)
{
    heed_segment *segment = r->segment;
    heed_segment_memory *memory = &r->program->memory[r->k];
    HEED_TRY(heed_memplan(r->program->ctx, segment->blocks, segment->n_blocks, &segment->bytes));
#ifndef NDEBUG
    if (!heed_memplan_check(segment->blocks, segment->n_blocks, segment->bytes)) return HEED_ERR_INTERNAL;
#endif
    HEED_TRY(reserve(r->program->ctx, memory, segment->bytes));
    for (heed_slot *slot = segment->slots; slot; slot = slot->next)
        if (slot->root == slot && slot->storage == HEED_STORAGE_ARENA)
            slot->base = (char *) memory->data + segment->blocks[slot->block].offset;
    heed_segment_place(segment);
    for (int i = 0; i < segment->n_steps; i++)
        if (segment->steps[i].scratch >= 0)
            segment->steps[i].c.scratch = (char *) memory->data + segment->blocks[segment->steps[i].scratch].offset;
    return HEED_OK;
}

static heed_status record(struct recorder *r, int first)
{
    r->dims = heed_dims_create(r->temp);
    if (!r->dims) return no_memory();
    HEED_TRY(walk(r, first));
    settle_lifetimes(r);
    return give_places(r);
}

heed_status heed_program_record(heed_program *program, int first)
{
    int k = program->n_segments;
    heed_segment *segment = &program->segments[k];
    *segment = (heed_segment){ .first = first, .end = first, .arena = heed_arena_create(program->ctx) };
    if (!segment->arena) return no_memory();
    program->n_segments++;
    struct recorder r = { .program = program, .segment = segment, .temp = heed_arena_create(program->ctx), .k = k };
    heed_status status = r.temp ? record(&r, first) : no_memory();
    heed_arena_destroy(r.temp);
    if (status != HEED_OK) heed_program_drop(program, k);
    return status;
}

static void drop_slots(heed_program *program, heed_segment *segment)
{
    heed_slot *next, *begin = program->slots, *end = begin + program->graph->n_values;
    for (heed_slot *slot = segment->slots; slot; slot = next) {
        next = slot->next;
        heed_free(program->ctx, slot->owned);
        if (slot >= begin && slot < end) *slot = (heed_slot){ .segment = -1, .root = slot };
    }
}

void heed_program_drop(heed_program *program, int from)
{
    for (int k = program->n_segments - 1; k >= from; k--) {
        heed_segment *segment = &program->segments[k];
        for (int i = 0; i < segment->n_steps; i++)
            if (segment->steps[i].release) segment->steps[i].release(program->ctx, segment->steps[i].c.state);
        for (int i = 0; i < program->graph->n_values; i++)
            if (program->slots[i].dense && program->slots[i].dense->segment >= k) program->slots[i].dense = NULL;
        drop_slots(program, segment);
        heed_arena_destroy(segment->arena);
        *segment = (heed_segment){ 0 };
        program->n_segments = k;
    }
}
