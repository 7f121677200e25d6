/* If. Its branches are graphs in attributes; the executor runs one of them, the rule here infers both. */
#include <string.h>

#include "ops/infer.h"
#include "ops/util.h"

static const char *const branch_names[2] = { "then_branch", "else_branch" };

/* What the node's inputs say becomes the facts of the branch's inputs, from input number *at on. */
static heed_status infer_branch(heed_infer *i, heed_graph *branch, const char *name, int *at)
{
    for (int k = 0; k < branch->n_inputs; k++, ++*at) {
        if (*at >= i->n_in || !i->in[*at]) return heed_infer_fail(i, "input %d, which %s uses, is missing", *at, name);
        branch->inputs[k]->fact = *i->in[*at];
    }
    if (branch->n_outputs < i->n_out)
        return heed_infer_fail(i, "%s has %d outputs, expected %d", name, branch->n_outputs, i->n_out);
    heed_status status = heed_graph_infer(branch);
    return status == HEED_OK ? status : heed_fail_prefix(status, "%s: ", name);
}

/* What holds for both. */
static heed_status join_facts(heed_infer *i, int output, const heed_fact *a, const heed_fact *b)
{
    heed_fact *out = &i->out[output];
    if (a->dtype != HEED_DTYPE_NONE && b->dtype != HEED_DTYPE_NONE && a->dtype != b->dtype)
        return heed_infer_fail(i, "output %d is %s in one branch and %s in the other", output, heed_dtype_name(a->dtype),
                               heed_dtype_name(b->dtype));
    out->dtype = a->dtype == HEED_DTYPE_NONE ? b->dtype : a->dtype;
    if (a->rank < 0 || a->rank != b->rank) return HEED_OK;
    out->rank = a->rank;
    for (int d = 0; d < a->rank; d++) out->dims[d] = a->dims[d] == b->dims[d] ? a->dims[d] : HEED_DIM_UNKNOWN;
    return HEED_OK;
}

/* With a known condition the other branch is left alone: it may not even fit the shapes (a Squeeze of what is not 1). */
static heed_status infer_if(heed_infer *i)
{
    const int64_t *condition;
    int n, at = 1, taken = -1;
    if (heed_infer_known_ints(i, 0, &condition, &n) && n == 1) taken = condition[0] ? 0 : 1;
    heed_graph *branches[2];
    for (int b = 0; b < 2; b++) {
        const heed_attr *attr = heed_node_attr(i->node, branch_names[b]);
        if (!attr || attr->type != HEED_ATTR_GRAPH) return heed_infer_fail(i, "attribute %s is missing", branch_names[b]);
        branches[b] = attr->g;
        if (taken >= 0 && taken != b) at += branches[b]->n_inputs;
        else HEED_TRY(infer_branch(i, branches[b], branch_names[b], &at));
    }
    for (int k = 0; k < i->n_out; k++) {
        if (taken >= 0) i->out[k] = branches[taken]->outputs[k]->fact;
        else HEED_TRY(join_facts(i, k, &branches[0]->outputs[k]->fact, &branches[1]->outputs[k]->fact));
    }
    return HEED_OK;
}

const heed_op heed_ops_control[] = {
    HEED_OP("If", 11, 1, -1, -1, .flags = HEED_OP_CONTROL, .infer = infer_if),
    { 0 },
};
