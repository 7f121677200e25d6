/* From the nodes of a graph, a branch of If or a function to nodes of a heed_graph. */
#include <string.h>

#include "onnx/importer.h"

/* Functions in functions and branches in branches. */
#define MAX_DEPTH 100
/* Bytes of a name that cost as much as an input when a function is inlined. */
#define COST_UNIT 16

const char *heed_onnx_domain(const char *domain)
{
    return !domain || strcmp(domain, "ai.onnx") == 0 ? "" : domain;
}

static const char *text(const char *s)
{
    return s ? s : "";
}

static int is_onnx_op(const node_proto *node, const char *op)
{
    return *heed_onnx_domain(node->domain) == 0 && strcmp(text(node->op_type), op) == 0;
}

static int is_constant(const node_proto *node)
{
    return is_onnx_op(node, "Constant");
}

/* ---- scopes ---- */

static heed_status open_scope(struct import *im, struct scope *scope, struct scope *outer, const struct call *call,
                              heed_graph *graph)
{
    *scope = (struct scope){ .outer = outer, .call = call, .graph = graph };
    if (im->depth == MAX_DEPTH)
        return heed_fail(HEED_ERR_UNSUPPORTED, "functions and branches nest more than %d deep", MAX_DEPTH);
    scope->arena = heed_arena_create(im->model->ctx);
    if (!scope->arena) return HEED_NO_MEMORY();
    scope->names.arena = scope->arena;
    im->depth++;
    return HEED_OK;
}

static void close_scope(struct import *im, struct scope *scope)
{
    if (!scope->arena) return;
    heed_arena_destroy(scope->arena);
    im->depth--;
}

static struct binding *find(const struct scope *scope, const char *name)
{
    void **found = heed_names_find(&scope->names, name, strlen(name));
    return found ? *found : NULL;
}

static heed_status bind(struct scope *scope, const char *name, struct binding what)
{
    void **slot = heed_names_add(&scope->names, name, strlen(name));
    struct binding *binding = slot && !*slot ? HEED_NEW(scope->arena, struct binding) : NULL;
    if (!slot || (!*slot && !binding)) return HEED_NO_MEMORY();
    if (*slot) return heed_fail(HEED_ERR_FORMAT, "value '%.120s' is defined twice", name);
    *binding = what;
    binding->name = name;
    *slot = binding;
    return HEED_OK;
}

/* A name as it is in the file, behind those of the calls that it lies in. */
static heed_status set_name(const struct scope *scope, const char **to, const char *name)
{
    if (!name || !*name) return HEED_OK;
    *to = scope->call ? heed_arena_printf(scope->graph->arena, "%.200s/%.200s", scope->call->prefix, name)
                      : heed_arena_strdup(scope->graph->arena, name);
    return *to ? HEED_OK : HEED_NO_MEMORY();
}

/* ---- from names to values ---- */

static heed_status add_constant(struct scope *scope, struct binding *binding, const heed_tensor *tensor)
{
    binding->value = heed_graph_add_constant(scope->graph, NULL, tensor);
    if (!binding->value) return HEED_NO_MEMORY();
    binding->kind = BOUND_VALUE;
    return set_name(scope, &binding->value->name, binding->name);
}

static heed_status resolve(struct import *im, struct scope *scope, const char *name, heed_value **out);

/* A name that a branch takes from around it: a constant as it is, anything else as an input of the branch. */
static heed_status capture(struct import *im, struct scope *scope, const char *name, heed_value **out)
{
    heed_value *outer;
    HEED_TRY(resolve(im, scope->outer, name, &outer));
    struct binding bound = { .kind = outer ? BOUND_VALUE : BOUND_ABSENT };
    if (outer && !outer->producer && !outer->is_input) {
        bound.value = heed_graph_add_constant(scope->graph, outer->name, outer->fact.value);
        if (!bound.value) return HEED_NO_MEMORY();
    } else if (outer) {
        if (scope->n_captured == scope->cap_captured) {
            int capacity = scope->cap_captured ? 2 * scope->cap_captured : 8;
            heed_value **captured = HEED_NEW_N(scope->arena, heed_value *, capacity);
            if (!captured) return HEED_NO_MEMORY();
            if (scope->n_captured) memcpy(captured, scope->captured, (size_t) scope->n_captured * sizeof *captured);
            scope->captured = captured, scope->cap_captured = capacity;
        }
        bound.value = heed_graph_add_input(scope->graph, outer->name);
        if (!bound.value) return HEED_NO_MEMORY();
        bound.value->fact = outer->fact;
        scope->captured[scope->n_captured++] = outer;
    }
    *out = bound.value;
    return bind(scope, name, bound);
}

/* The value of a name, made now if it is a constant; NULL if it is an optional input of a function that was not given. */
static heed_status resolve(struct import *im, struct scope *scope, const char *name, heed_value **out)
{
    struct binding *binding = find(scope, name);
    const heed_tensor *tensor = NULL;
    if (!binding && scope->outer) return capture(im, scope, name, out);
    if (!binding) return heed_fail(HEED_ERR_FORMAT, "value '%.120s' is not defined", name);
    switch (binding->kind) {
    case BOUND_TENSOR:
        HEED_TRY(heed_onnx_tensor(im, binding->tensor, name, &tensor));
        HEED_TRY(add_constant(scope, binding, tensor));
        break;
    case BOUND_CONSTANT: {
        const node_proto *node = scope->nodes[binding->node];
        heed_status status = heed_onnx_constant(im, scope->call, node, name, &tensor);
        if (status) return heed_fail_prefix(status, "constant '%.120s': ", name);
        HEED_TRY(add_constant(scope, binding, tensor));
        break;
    }
    case BOUND_SPARSE: return heed_fail(HEED_ERR_UNSUPPORTED, "sparse tensor '%.120s' is not supported", name);
    case BOUND_NODE: return heed_fail(HEED_ERR_INTERNAL, "value '%.120s' is used before it is made", name);
    default: break;
    }
    if (binding->value && binding->value->is_input && binding->info) HEED_TRY(heed_onnx_check_input(binding->info));
    *out = binding->value;
    return HEED_OK;
}

/* The inputs of a node, "" as NULL. */
static heed_status resolve_inputs(struct import *im, struct scope *scope, const node_proto *proto, heed_value ***out)
{
    heed_value **inputs = HEED_NEW_N(scope->arena, heed_value *, proto->n_input);
    if (!inputs) return HEED_NO_MEMORY();
    for (size_t i = 0; i < proto->n_input; i++)
        if (*proto->input[i]) HEED_TRY(resolve(im, scope, proto->input[i], &inputs[i]));
    *out = inputs;
    return HEED_OK;
}

/* ---- nodes ---- */

static heed_status opset_version(const struct import *im, const struct scope *scope, const char *domain, int *version)
{
    const function_proto *function = scope->call ? scope->call->function : NULL;
    size_t n = function ? function->n_opset_import : im->proto->n_opset_import;
    Heed__Onnx__OperatorSetIdProto *const *opsets = function ? function->opset_import : im->proto->opset_import;
    int64_t found = *domain ? 1 : 0; /* a domain that is not listed can only mean its first version */
    for (size_t i = 0; i < n; i++)
        if (strcmp(heed_onnx_domain(opsets[i]->domain), domain) == 0) found = opsets[i]->version;
    if (!*domain) HEED_TRY(heed_onnx_check_opset(found));
    *version = found < 0 || found > INT32_MAX ? INT32_MAX : (int) found;
    return HEED_OK;
}

/* Bind the outputs of a made node; "" means that nobody wants it. */
static heed_status bind_outputs(struct import *im, struct scope *scope, const node_proto *proto, heed_node *node)
{
    for (int i = 0; i < node->n_outputs; i++) {
        heed_value *value = node->outputs[i];
        const char *name = (size_t) i < proto->n_output ? proto->output[i] : "";
        if (!*name) {
            value->producer = NULL;
            node->outputs[i] = NULL;
            continue;
        }
        struct binding *binding = find(scope, name);
        binding->kind = BOUND_VALUE, binding->value = value;
        HEED_TRY(set_name(scope, &value->name, name));
        HEED_TRY(heed_onnx_fact(im, binding->info, &value->fact));
    }
    return HEED_OK;
}

static heed_status make_plain(struct import *im, struct scope *scope, const node_proto *proto)
{
    heed_value **inputs = NULL;
    int version;
    HEED_TRY(resolve_inputs(im, scope, proto, &inputs));
    HEED_TRY(opset_version(im, scope, heed_onnx_domain(proto->domain), &version));
    heed_node *node = heed_graph_add_node(scope->graph, NULL, heed_onnx_domain(proto->domain), proto->op_type, version,
                                          (int) proto->n_input, inputs, (int) proto->n_output);
    if (!node) return HEED_NO_MEMORY();
    HEED_TRY(set_name(scope, &node->name, proto->name));
    HEED_TRY(heed_onnx_attrs(im, scope->call, proto, node));
    return bind_outputs(im, scope, proto, node);
}

static heed_status make_nodes(struct import *im, struct scope *scope);
static heed_status bind_nodes(struct scope *scope, node_proto *const *nodes, size_t n);
static heed_status bind_graph(struct import *im, struct scope *scope, const graph_proto *proto);
static heed_status add_outputs(struct import *im, struct scope *scope, const graph_proto *proto);

/* ---- If ---- */

static heed_status branch_of(const node_proto *proto, const char *name, const graph_proto **out)
{
    *out = NULL;
    for (size_t i = 0; i < proto->n_attribute; i++)
        if (strcmp(proto->attribute[i]->name, name) == 0) *out = proto->attribute[i]->g;
    if (!*out) return heed_fail(HEED_ERR_FORMAT, "has no graph '%s'", name);
    if ((*out)->n_input) return heed_fail(HEED_ERR_FORMAT, "graph '%s' has %zu inputs, expected none", name, (*out)->n_input);
    if ((*out)->n_output < proto->n_output)
        return heed_fail(HEED_ERR_FORMAT, "graph '%s' has %zu outputs, the node %zu", name, (*out)->n_output, proto->n_output);
    return HEED_OK;
}

static heed_status fill_branch(struct import *im, struct scope *scope, const graph_proto *proto)
{
    HEED_TRY(bind_graph(im, scope, proto));
    HEED_TRY(make_nodes(im, scope));
    return add_outputs(im, scope, proto);
}

struct branch {
    const char *name;
    const graph_proto *proto;
    heed_graph *graph;
    heed_value **captured;
    int n_captured;
};

static heed_status make_branch(struct import *im, struct scope *scope, struct branch *branch)
{
    struct scope inner;
    branch->graph = heed_graph_create_inner(scope->graph);
    if (!branch->graph) return HEED_NO_MEMORY();
    heed_status status = open_scope(im, &inner, scope, scope->call, branch->graph);
    if (!status) status = fill_branch(im, &inner, branch->proto);
    if (!status) {
        branch->n_captured = inner.n_captured;
        branch->captured = HEED_NEW_N(scope->arena, heed_value *, inner.n_captured);
        if (!branch->captured) status = HEED_NO_MEMORY();
        else if (inner.n_captured) memcpy(branch->captured, inner.captured, (size_t) inner.n_captured * sizeof *inner.captured);
    }
    close_scope(im, &inner);
    return status;
}

/* The node's inputs: the condition, then what each branch captured. */
static heed_status add_if(struct scope *scope, const node_proto *proto, int version, heed_value *condition,
                          const struct branch branches[2], heed_node **out)
{
    int n = 1 + branches[0].n_captured + branches[1].n_captured;
    heed_value **inputs = HEED_NEW_N(scope->arena, heed_value *, n);
    if (!inputs) return HEED_NO_MEMORY();
    inputs[0] = condition;
    n = 1;
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < branches[b].n_captured; i++) inputs[n++] = branches[b].captured[i];
    heed_node *node = heed_graph_add_node(scope->graph, NULL, "", "If", version, n, inputs, branches[0].graph->n_outputs);
    if (!node) return HEED_NO_MEMORY();
    HEED_TRY(set_name(scope, &node->name, proto->name));
    for (int b = 0; b < 2; b++) {
        heed_attr attr = { .name = branches[b].name, .type = HEED_ATTR_GRAPH, .g = branches[b].graph };
        HEED_TRY(heed_node_add_attr(scope->graph, node, &attr));
    }
    *out = node;
    return HEED_OK;
}

static heed_status make_if(struct import *im, struct scope *scope, const node_proto *proto)
{
    struct branch branches[2] = { { .name = "then_branch" }, { .name = "else_branch" } };
    heed_value **inputs = NULL;
    heed_node *node = NULL;
    int version;
    if (proto->n_input != 1) return heed_fail(HEED_ERR_FORMAT, "has %zu inputs, expected 1", proto->n_input);
    HEED_TRY(resolve_inputs(im, scope, proto, &inputs));
    HEED_TRY(opset_version(im, scope, "", &version));
    for (int b = 0; b < 2; b++) {
        HEED_TRY(branch_of(proto, branches[b].name, &branches[b].proto));
        HEED_TRY(make_branch(im, scope, &branches[b]));
    }
    if (branches[0].graph->n_outputs != branches[1].graph->n_outputs)
        return heed_fail(HEED_ERR_FORMAT, "its branches have %d and %d outputs", branches[0].graph->n_outputs,
                         branches[1].graph->n_outputs);
    HEED_TRY(add_if(scope, proto, version, inputs[0], branches, &node));
    return bind_outputs(im, scope, proto, node);
}

/* ---- functions ---- */

static heed_status check_call(const struct scope *scope, const node_proto *proto, const function_proto *function)
{
    for (const struct call *call = scope->call; call; call = call->caller)
        if (call->function == function) return heed_fail(HEED_ERR_FORMAT, "function '%.80s' calls itself", function->name);
    if (proto->n_input > function->n_input)
        return heed_fail(HEED_ERR_FORMAT, "gives %zu inputs to function '%.80s', expected at most %zu", proto->n_input,
                         function->name, function->n_input);
    if (proto->n_output > function->n_output)
        return heed_fail(HEED_ERR_FORMAT, "wants %zu outputs of function '%.80s', expected at most %zu", proto->n_output,
                         function->name, function->n_output);
    return HEED_OK;
}

/* What a call's output stands for, named as the caller has it if the function made it. */
static heed_status bind_result(struct import *im, struct scope *scope, struct scope *inner, const char *result, const char *name,
                               int first_made)
{
    heed_value *value;
    struct binding *binding = find(scope, name);
    HEED_TRY(resolve(im, inner, result, &value));
    if (!value) return heed_fail(HEED_ERR_FORMAT, "output '%.120s' is an input that was not given", name);
    binding->kind = BOUND_VALUE, binding->value = value;
    if (value->id < first_made) return HEED_OK;
    HEED_TRY(set_name(scope, &value->name, name));
    return value->producer && binding->info ? heed_onnx_fact(im, binding->info, &value->fact) : HEED_OK;
}

static heed_status fill_call(struct import *im, struct scope *scope, struct scope *inner, heed_value *const *inputs)
{
    const node_proto *proto = inner->call->node;
    const function_proto *function = inner->call->function;
    int first_made = scope->graph->n_values;
    for (size_t i = 0; i < function->n_input; i++) {
        heed_value *value = i < proto->n_input ? inputs[i] : NULL;
        HEED_TRY(heed_onnx_charge(im, inner->call, 1 + strlen(function->input[i]) / COST_UNIT));
        if (!*function->input[i]) continue;
        HEED_TRY(bind(inner, function->input[i], (struct binding){ .kind = value ? BOUND_VALUE : BOUND_ABSENT, .value = value }));
    }
    HEED_TRY(bind_nodes(inner, function->node, function->n_node));
    HEED_TRY(make_nodes(im, inner));
    for (size_t i = 0; i < proto->n_output; i++)
        if (*proto->output[i]) HEED_TRY(bind_result(im, scope, inner, function->output[i], proto->output[i], first_made));
    return HEED_OK;
}

static heed_status make_call(struct import *im, struct scope *scope, const node_proto *proto, const function_proto *function)
{
    struct scope inner;
    struct call call = { .caller = scope->call, .function = function, .node = proto };
    heed_value **inputs = NULL;
    HEED_TRY(check_call(scope, proto, function));
    HEED_TRY(resolve_inputs(im, scope, proto, &inputs));
    HEED_TRY(heed_onnx_give_attrs(im, &call));
    HEED_TRY(set_name(scope, &call.prefix, proto->name && *proto->name ? proto->name : proto->op_type));
    heed_status status = open_scope(im, &inner, NULL, &call, scope->graph);
    if (!status) status = fill_call(im, scope, &inner, inputs);
    close_scope(im, &inner);
    return status;
}

/* ---- the nodes of a scope ---- */

/* What a node of a function costs each time: its parts, and the lengths of what is copied or looked up. */
static size_t cost_of(const node_proto *proto)
{
    size_t cost = 1 + (strlen(proto->op_type) + strlen(text(proto->domain))) / COST_UNIT;
    for (size_t i = 0; i < proto->n_input; i++) cost += 1 + strlen(proto->input[i]) / COST_UNIT;
    for (size_t i = 0; i < proto->n_output; i++) cost += 1 + strlen(proto->output[i]) / COST_UNIT;
    for (size_t i = 0; i < proto->n_attribute; i++) {
        const attribute_proto *attr = proto->attribute[i];
        cost += 1 + (strlen(text(attr->name)) + strlen(text(attr->ref_attr_name)) + proto->n_attribute) / COST_UNIT;
    }
    return cost;
}

static heed_status make_node(struct import *im, struct scope *scope, const node_proto *proto)
{
    const function_proto *function = NULL;
    if (scope->call) HEED_TRY(heed_onnx_charge(im, scope->call, cost_of(proto)));
    HEED_TRY(heed_onnx_check_attrs(proto));
    HEED_TRY(heed_onnx_find_function(im, proto, &function));
    if (function) return make_call(im, scope, proto, function);
    if (is_constant(proto)) return HEED_OK; /* when something uses it */
    return is_onnx_op(proto, "If") ? make_if(im, scope, proto) : make_plain(im, scope, proto);
}

/* Only the innermost node is named in a message: its name leads through the functions. */
static heed_status name_node(struct import *im, const struct scope *scope, size_t index, heed_status status)
{
    const node_proto *proto = scope->nodes[index];
    const char *prefix = scope->call ? scope->call->prefix : "", *slash = scope->call ? "/" : "", *op = text(proto->op_type);
    if (im->labelled) return status;
    im->labelled = 1;
    if (proto->name && *proto->name)
        return heed_fail_prefix(status, "node '%.120s%s%.120s' (%.80s): ", prefix, slash, proto->name, op);
    return heed_fail_prefix(status, "node '%.120s%s#%zu' (%.80s): ", prefix, slash, index, op);
}

static heed_status make_nodes(struct import *im, struct scope *scope)
{
    const size_t *order;
    HEED_TRY(heed_onnx_order(scope, &order));
    for (size_t i = 0; i < scope->n_nodes; i++) {
        heed_status status = make_node(im, scope, scope->nodes[order[i]]);
        if (status) return name_node(im, scope, order[i], status);
    }
    return HEED_OK;
}

/* ---- what a scope defines ---- */

static heed_status bind_nodes(struct scope *scope, node_proto *const *nodes, size_t n)
{
    scope->nodes = nodes, scope->n_nodes = n;
    for (size_t i = 0; i < n; i++) {
        const node_proto *node = nodes[i];
        if (!node->op_type || !*node->op_type)
            return heed_fail(HEED_ERR_FORMAT, "node '%.120s': has no operator", text(node->name));
        enum binding_kind kind = is_constant(node) ? BOUND_CONSTANT : BOUND_NODE;
        for (size_t k = 0; k < node->n_output; k++)
            if (*node->output[k]) HEED_TRY(bind(scope, node->output[k], (struct binding){ .kind = kind, .node = i }));
    }
    return HEED_OK;
}

static heed_status bind_initializers(struct scope *scope, const graph_proto *proto)
{
    for (size_t i = 0; i < proto->n_initializer; i++) {
        const tensor_proto *tensor = proto->initializer[i];
        if (!tensor->name || !*tensor->name) return heed_fail(HEED_ERR_FORMAT, "initializer %zu has no name", i);
        HEED_TRY(bind(scope, tensor->name, (struct binding){ .kind = BOUND_TENSOR, .tensor = tensor }));
    }
    for (size_t i = 0; i < proto->n_sparse_initializer; i++) {
        const tensor_proto *values = proto->sparse_initializer[i]->values;
        if (!values || !values->name || !*values->name)
            return heed_fail(HEED_ERR_FORMAT, "sparse initializer %zu has no name", i);
        HEED_TRY(bind(scope, values->name, (struct binding){ .kind = BOUND_SPARSE }));
    }
    return HEED_OK;
}

static void bind_infos(struct scope *scope, size_t n, value_info_proto *const *infos)
{
    for (size_t i = 0; i < n; i++) {
        struct binding *binding = infos[i]->name ? find(scope, infos[i]->name) : NULL;
        if (binding) binding->info = infos[i];
    }
}

/* Initializers, nodes and declared types; of inputs only those of the main graph exist. */
static heed_status bind_graph(struct import *im, struct scope *scope, const graph_proto *proto)
{
    HEED_TRY(bind_initializers(scope, proto));
    for (size_t i = 0; i < proto->n_input; i++) {
        const char *name = proto->input[i]->name;
        if (!name || !*name) return heed_fail(HEED_ERR_FORMAT, "input %zu has no name", i);
        const struct binding *known = find(scope, name);
        if (known && known->kind != BOUND_VALUE) continue; /* an input that the file gives a value is a constant */
        struct binding bound = { .kind = BOUND_VALUE,
                                 .value = heed_graph_add_input(scope->graph, name),
                                 .info = proto->input[i] };
        if (!bound.value) return HEED_NO_MEMORY();
        HEED_TRY(bind(scope, name, bound));
        HEED_TRY(heed_onnx_fact(im, proto->input[i], &bound.value->fact));
    }
    HEED_TRY(bind_nodes(scope, proto->node, proto->n_node));
    bind_infos(scope, proto->n_value_info, proto->value_info);
    bind_infos(scope, proto->n_output, proto->output);
    bind_infos(scope, proto->n_input, proto->input);
    return HEED_OK;
}

static heed_status add_outputs(struct import *im, struct scope *scope, const graph_proto *proto)
{
    for (size_t i = 0; i < proto->n_output; i++) {
        const char *name = text(proto->output[i]->name);
        heed_value *value;
        if (!*name) return heed_fail(HEED_ERR_FORMAT, "output %zu has no name", i);
        heed_status status = resolve(im, scope, name, &value);
        if (status) return heed_fail_prefix(status, "output %zu: ", i);
        if (!value) return heed_fail(HEED_ERR_FORMAT, "output %zu: '%.120s' is an input that was not given", i, name);
        HEED_TRY(heed_graph_add_output(scope->graph, value));
        scope->graph->output_names[i] = heed_arena_strdup(scope->graph->arena, name);
        if (!scope->graph->output_names[i]) return HEED_NO_MEMORY();
    }
    return HEED_OK;
}

heed_status heed_onnx_main(struct import *im, const graph_proto *proto)
{
    struct scope scope;
    heed_status status = open_scope(im, &scope, NULL, NULL, im->model->graph);
    if (!status) status = bind_graph(im, &scope, proto);
    if (!status) status = make_nodes(im, &scope);
    if (!status) status = add_outputs(im, &scope, proto);
    close_scope(im, &scope);
    return status;
}
