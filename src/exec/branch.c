/* If: each branch is a program of its own, whose inputs are the outer values that it uses. */
#include "exec/program_impl.h"

static heed_status branch_of(heed_program *program, int node, int taken, heed_program **branch, int *first)
{
    heed_program_node *n = &program->nodes[node];
    const heed_attr *then_attr = heed_node_attr(n->node, "then_branch"), *else_attr = heed_node_attr(n->node, "else_branch");
    if (!then_attr || !else_attr || then_attr->type != HEED_ATTR_GRAPH || else_attr->type != HEED_ATTR_GRAPH)
        return heed_fail(HEED_ERR_FORMAT, "a branch is missing");
    const heed_graph *graph = taken ? then_attr->g : else_attr->g;
    *first = taken ? 1 : 1 + then_attr->g->n_inputs;
    if (*first + graph->n_inputs > n->node->n_inputs || graph->n_outputs < n->node->n_outputs)
        return heed_fail(HEED_ERR_FORMAT, "its branch has %d inputs and %d outputs, which do not fit the node", graph->n_inputs,
                         graph->n_outputs);
    if (!n->branches[taken]) HEED_TRY(heed_program_create(&n->branches[taken], graph));
    *branch = n->branches[taken];
    return HEED_OK;
}

static heed_status run_taken(heed_program *program, int node)
{
    heed_program_node *n = &program->nodes[node];
    const heed_tensor *condition = n->node->inputs[0] ? &program->slots[n->node->inputs[0]->id].tensor : NULL;
    if (!condition || condition->dtype != HEED_BOOL || heed_tensor_count(condition) != 1)
        return heed_fail(HEED_ERR_ARGUMENT, "its condition is not one bool");
    heed_program *branch = NULL;
    int first = 0, taken = heed_tensor_int(condition, 0) != 0;
    HEED_TRY(branch_of(program, node, taken, &branch, &first));
    int n_inputs = branch->graph->n_inputs;
    heed_tensor *inputs = branch->inputs;
    for (int i = 0; i < n_inputs; i++) {
        if (!n->node->inputs[first + i]) return heed_fail(HEED_ERR_FORMAT, "input %d of its branch is missing", i);
        inputs[i] = program->slots[n->node->inputs[first + i]->id].tensor;
    }
    n->taken = taken;
    return heed_program_run(branch, inputs);
}

heed_status heed_program_run_if(heed_program *program, int node)
{
    heed_status status = run_taken(program, node);
    return status == HEED_OK ? status : heed_node_fail(status, program->nodes[node].node);
}
