/* A product with a constant weight and what follows it, to heed.Linear: bias, activation, residual. Weights of such nodes are
 * packed once. What follows is taken only where the value between has no other user. */
#include <string.h>

#include "rewrite/match.h"

typedef struct linear {
    heed_node *product, *last; /* last: the node whose result the fused node gives */
    heed_value *x, *weight, *bias, *residual;
    int transposed;
    const char *activation;
} linear;

static int is_constant(const heed_value *value, int rank)
{
    return value && value->fact.value && value->fact.rank == rank;
}

static int64_t columns(const linear *l)
{
    return l->weight->fact.dims[l->transposed ? 0 : 1];
}

static int is_bias(const linear *l, const heed_value *value)
{
    return is_constant(value, 1) && value->fact.dims[0] == columns(l) && value->fact.dtype == l->x->fact.dtype;
}

/* Large constants stay behind their Transpose. */
static void take_transpose(linear *l)
{
    const int64_t *perm;
    heed_value *in = l->weight->producer ? heed_match_transpose(l->weight->producer, &perm) : NULL;
    if (in && in->fact.rank == 2 && perm[0] == 1) l->weight = in, l->transposed ^= 1;
}

/* MatMul with a constant matrix, or a Gemm that is no more than that and a bias. */
static int read_product(linear *l, heed_node *node)
{
    const int gemm = heed_node_is(node, "Gemm");
    if (!gemm && !heed_node_is(node, "MatMul")) return 0;
    *l = (linear){ .product = node, .last = node, .x = node->inputs[0], .weight = node->inputs[1], .activation = "" };
    l->transposed = gemm && heed_node_int(node, "transB", 0) != 0;
    take_transpose(l);
    if (!is_constant(l->weight, 2) || l->x->fact.value || l->x->fact.rank < 2 || l->x->fact.dtype != l->weight->fact.dtype)
        return 0;
    if (l->x->fact.dtype == HEED_F64 || !heed_dtype_is_float(l->x->fact.dtype)) return 0;
    if (!gemm) return 1;
    if (heed_node_int(node, "transA", 0) || heed_node_float(node, "alpha", 1.0f) != 1.0f) return 0;
    heed_value *c = node->n_inputs > 2 ? node->inputs[2] : NULL;
    if (c && (heed_node_float(node, "beta", 1.0f) != 1.0f || !is_bias(l, c))) return 0;
    l->bias = c;
    return 1;
}

static heed_value *result(const linear *l)
{
    return l->last->outputs[0];
}

/* [.., K] flattened to [rows, K] before and unflattened after: the same without both. */
static void take_reshapes(linear *l)
{
    heed_node *after = heed_match_only_user(result(l));
    const heed_node *before = heed_match_producer(l->x, "Reshape");
    if (!before || !after || !heed_node_is(after, "Reshape")) return;
    heed_value *x = before->inputs[0];
    const heed_fact *in = &x->fact, *out = &after->outputs[0]->fact;
    if (in->rank < 2 || in->rank != out->rank || !heed_match_same_dim(in->dims[in->rank - 1], heed_match_dim(l->x, 1))) return;
    for (int i = 0; i < in->rank - 1; i++)
        if (!heed_match_same_dim(in->dims[i], out->dims[i])) return;
    if (out->dims[out->rank - 1] != columns(l)) return;
    l->x = x, l->last = after;
}

static heed_value *other_side(const heed_node *add, const heed_value *value)
{
    return add->inputs[0] == value ? add->inputs[1] : add->inputs[0];
}

static void take_bias(linear *l)
{
    heed_node *add = heed_match_only_user(result(l));
    if (l->bias || !add || !heed_node_is(add, "Add") || !is_bias(l, other_side(add, result(l)))) return;
    l->bias = other_side(add, result(l));
    l->last = add;
}

/* The name of an activation that heed.Linear has, or NULL. */
static const char *activation_of(const heed_node *node)
{
    const int gelu = heed_node_is_in(node, HEED_DOMAIN_HEED, "Gelu") || heed_node_is(node, "Gelu");
    if (gelu) return strcmp(heed_node_string(node, "approximate", "none"), "tanh") == 0 ? "gelu_tanh" : "gelu";
    if (heed_node_is_in(node, HEED_DOMAIN_HEED, "Silu")) return "silu";
    const float alpha = heed_node_float(node, "alpha", 1.702f);
    if (heed_node_is_in(node, HEED_DOMAIN_HEED, "QuickGelu")) return alpha == 1.702f ? "quick_gelu" : NULL;
    if (heed_node_is(node, "Relu")) return "relu";
    return heed_node_is(node, "Tanh") ? "tanh" : NULL;
}

static void take_activation(linear *l)
{
    heed_node *node = heed_match_only_user(result(l));
    const char *name = node ? activation_of(node) : NULL;
    if (!name) return;
    l->activation = name, l->last = node;
}

static void take_residual(linear *l)
{
    heed_node *add = heed_match_only_user(result(l));
    if (!add || !heed_node_is(add, "Add")) return;
    heed_value *other = other_side(add, result(l));
    if (other == result(l) || other->fact.dtype != result(l)->fact.dtype ||
        !heed_match_same_shape(&other->fact, &result(l)->fact))
        return;
    l->residual = other, l->last = add;
}

static heed_status make(heed_graph *graph, const linear *l)
{
    heed_maker maker = { graph, l->last, HEED_OK };
    heed_value *const inputs[] = { l->x, l->weight, l->bias, l->residual };
    heed_node *node = heed_make_fused(&maker, "Linear", l->residual ? 4 : l->bias ? 3 : 2, inputs, 1);
    if (l->transposed) heed_make_attr_int(&maker, node, "transposed", 1);
    if (l->activation[0]) heed_make_attr_string(&maker, node, "activation", l->activation);
    heed_make_infer(&maker, node);
    if (node) heed_make_replace(&maker, result(l), node->outputs[0]);
    return maker.status;
}

static heed_status fuse_in_graph(heed_rewriter *rewriter, heed_graph *graph)
{
    (void) rewriter;
    for (heed_node *node = graph->first; node; node = node->next) {
        linear l;
        if (!read_product(&l, node)) continue;
        take_bias(&l);
        take_reshapes(&l);
        take_bias(&l);
        take_activation(&l);
        take_residual(&l);
        HEED_TRY(make(graph, &l));
    }
    return HEED_OK;
}

heed_status heed_pass_linear(heed_rewriter *rewriter)
{
    return heed_match_each_graph(rewriter, rewriter->graph, fuse_in_graph);
}
