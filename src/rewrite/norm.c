/* Normalisation over the last axis: RMS norm and layer norm written out, to heed.RmsNorm and heed.LayerNorm, and these and
 * ONNX's own with the residual Add before them. The sum of that Add becomes the second output where others use it. */
#include <string.h>

#include "ops/op.h"
#include "rewrite/match.h"

typedef struct norm {
    const char *op;  /* of domain heed */
    heed_node *root; /* its result is the norm's */
    heed_value *x, *scale, *bias;
    double epsilon;
} norm;

/* ---- parts of a norm written out ---- */

/* ReduceMean over the last axis alone, kept as a dimension of 1. */
static heed_value *mean_of(const heed_value *value)
{
    const heed_node *node = heed_match_producer(value, "ReduceMean");
    if (!node || !heed_node_int(node, "keepdims", 1) || node->inputs[0]->fact.rank < 1) return NULL;
    return heed_match_last_axis(node, node->inputs[0]->fact.rank) ? node->inputs[0] : NULL;
}

static heed_value *square_of(const heed_value *value)
{
    double two;
    const heed_node *pow = heed_match_producer(value, "Pow"), *mul = heed_match_producer(value, "Mul");
    if (pow && heed_match_scalar(pow->inputs[1], &two) && two == 2.0) return pow->inputs[0];
    return mul && mul->inputs[0] == mul->inputs[1] ? mul->inputs[0] : NULL;
}

/* sqrt(mean(x^2) + epsilon): x. */
static heed_value *root_mean_square(const heed_value *sum, double *epsilon)
{
    const heed_node *add = heed_match_producer(sum, "Add");
    if (!add) return NULL;
    const int turned = heed_match_scalar(add->inputs[0], epsilon);
    if (!turned && !heed_match_scalar(add->inputs[1], epsilon)) return NULL;
    const heed_value *square = mean_of(add->inputs[turned]);
    return square ? square_of(square) : NULL;
}

/* 1 / sqrt(mean(x^2) + epsilon): x. */
static heed_value *inverse_rms(const heed_value *value, double *epsilon)
{
    double number;
    const heed_node *node = value->producer;
    if (!node) return NULL;
    if (heed_node_is(node, "Pow"))
        return heed_match_scalar(node->inputs[1], &number) && number == -0.5 ? root_mean_square(node->inputs[0], epsilon) : NULL;
    const heed_value *root = NULL;
    if (heed_node_is(node, "Reciprocal")) root = node->inputs[0];
    if (heed_node_is(node, "Div") && heed_match_scalar(node->inputs[0], &number) && number == 1.0) root = node->inputs[1];
    const heed_node *sqrt_node = heed_match_producer(root, "Sqrt");
    return sqrt_node ? root_mean_square(sqrt_node->inputs[0], epsilon) : NULL;
}

/* node = x / rms(x): x. */
static heed_value *normalised(const heed_node *node, double *epsilon)
{
    if (heed_node_is(node, "Div")) {
        const heed_node *root = heed_match_producer(node->inputs[1], "Sqrt");
        heed_value *x = root ? root_mean_square(root->inputs[0], epsilon) : NULL;
        return x == node->inputs[0] ? x : NULL;
    }
    if (!heed_node_is(node, "Mul")) return NULL;
    for (int i = 0; i < 2; i++) {
        heed_value *x = inverse_rms(node->inputs[!i], epsilon);
        if (x && x == node->inputs[i]) return x;
    }
    return NULL;
}

/* x - mean(x): x. */
static heed_value *centered(const heed_value *value)
{
    const heed_node *sub = heed_match_producer(value, "Sub");
    return sub && mean_of(sub->inputs[1]) == sub->inputs[0] ? sub->inputs[0] : NULL;
}

/* The only user of the norm's result is `op` with a vector along the last axis beside it: the vector. */
static heed_value *vector_beside(const norm *n, const char *op, heed_node **user)
{
    const heed_value *value = n->root->outputs[0];
    heed_node *node = heed_match_only_user(value);
    if (!node || !heed_node_is(node, op)) return NULL;
    heed_value *vector = node->inputs[0] == value ? node->inputs[1] : node->inputs[0];
    if (vector == value || vector->fact.rank != 1 || !heed_match_same_dim(vector->fact.dims[0], heed_match_dim(value, 1)))
        return NULL;
    *user = node;
    return vector;
}

/* ---- whole norms ---- */

static void take_cast_back(norm *n)
{
    heed_node *cast = heed_match_only_user(n->root->outputs[0]);
    if (cast && heed_match_float_cast(cast)) n->root = cast;
}

/* The norm takes and gives one type: that before the cast to f32, if its result is cast back. */
static int settle_types(norm *n)
{
    const heed_dtype type = n->root->outputs[0]->fact.dtype;
    if (n->x->fact.dtype != type && n->x->producer && heed_match_float_cast(n->x->producer)) n->x = n->x->producer->inputs[0];
    if (n->x->fact.dtype != type || type == HEED_F64) return 0;
    return (!n->scale || n->scale->fact.dtype == type) && (!n->bias || n->bias->fact.dtype == type);
}

static int read_chain(norm *n, heed_node *node)
{
    double epsilon;
    heed_value *x = normalised(node, &epsilon), *behind = x ? centered(x) : NULL;
    if (!x) return 0;
    *n = (norm){ .op = behind ? "LayerNorm" : "RmsNorm", .root = node, .x = behind ? behind : x, .epsilon = epsilon };
    take_cast_back(n);
    n->scale = vector_beside(n, "Mul", &n->root);
    if (behind && n->scale) n->bias = vector_beside(n, "Add", &n->root);
    if (n->scale) take_cast_back(n);
    return settle_types(n);
}

/* ONNX's own, over the last axis with a vector as scale. */
static int read_operator(norm *n, heed_node *node)
{
    const int layer = heed_node_is(node, "LayerNormalization");
    if (!layer && !heed_node_is(node, "RMSNormalization") && !heed_node_is(node, "SimplifiedLayerNormalization")) return 0;
    heed_value *x = node->inputs[0];
    for (int i = 1; i < node->n_outputs; i++)
        if (node->outputs[i] && node->outputs[i]->n_uses) return 0;
    if (x->fact.rank < 1 || heed_axis(heed_node_int(node, "axis", -1), x->fact.rank) != x->fact.rank - 1) return 0;
    *n = (norm){ .op = layer ? "LayerNorm" : "RmsNorm",
                 .root = node,
                 .x = x,
                 .scale = node->inputs[1],
                 .bias = layer && node->n_inputs > 2 ? node->inputs[2] : NULL,
                 .epsilon = heed_node_float(node, "epsilon", 1e-5f) };
    return n->scale->fact.rank == 1 && (!n->bias || n->bias->fact.rank == 1) && settle_types(n);
}

/* The Add before it, whose two sides have the whole shape. The norm then goes where the Add is. */
static heed_node *residual_add(const norm *n)
{
    heed_node *add = heed_match_producer(n->x, "Add");
    if (!add || !heed_match_same_shape(&add->inputs[0]->fact, &add->inputs[1]->fact)) return NULL;
    if (!heed_match_same_shape(&add->inputs[0]->fact, &n->x->fact)) return NULL;
    return heed_match_is_source(n->scale) && (!n->bias || heed_match_is_source(n->bias)) ? add : NULL;
}

/* Whatever the node makes ends up in `root` and nowhere else. */
static int feeds_only(const heed_node *node, const heed_node *root, int depth)
{
    if (node == root) return 1;
    if (!node || depth == 0) return 0;
    for (int i = 0; i < node->n_outputs; i++)
        for (int u = 0; node->outputs[i] && u < node->outputs[i]->n_uses; u++)
            if (!feeds_only(node->outputs[i]->uses[u].node, root, depth - 1)) return 0;
    return 1;
}

static int has_other_users(const norm *n)
{
    for (int i = 0; i < n->x->n_uses; i++)
        if (!feeds_only(n->x->uses[i].node, n->root, 10)) return 1;
    return 0;
}

static heed_status make(heed_graph *graph, const norm *n, heed_node *add)
{
    heed_maker maker = { graph, add ? add : n->root, HEED_OK };
    heed_value *const inputs[] = { add ? add->inputs[0] : n->x, add ? add->inputs[1] : NULL, n->scale, n->bias };
    const int others_use_sum = add && has_other_users(n);
    heed_node *node = heed_make_fused(&maker, n->op, n->bias ? 4 : n->scale ? 3 : 2, inputs, others_use_sum ? 2 : 1);
    heed_make_attr_float(&maker, node, "epsilon", n->epsilon);
    heed_make_infer(&maker, node);
    if (!node) return maker.status;
    heed_make_replace(&maker, n->root->outputs[0], node->outputs[0]);
    if (others_use_sum) heed_make_replace(&maker, n->x, node->outputs[1]);
    return maker.status;
}

static heed_status fuse_in_graph(heed_rewriter *rewriter, heed_graph *graph)
{
    (void) rewriter;
    for (heed_node *node = graph->first; node; node = node->next) {
        norm n;
        const int chain = read_chain(&n, node);
        if (!chain && !read_operator(&n, node)) continue;
        heed_node *add = residual_add(&n);
        if (chain || add) HEED_TRY(make(graph, &n, add));
    }
    return HEED_OK;
}

heed_status heed_pass_norm(heed_rewriter *rewriter)
{
    return heed_match_each_graph(rewriter, rewriter->graph, fuse_in_graph);
}
