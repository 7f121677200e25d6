/* The vocabulary of the rewrites, the looking half: constants, single users, and the nodes that change nothing but the form
 * of a value. */
#include "rewrite/match.h"

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "graph/dims.h"
#include "ops/op.h"

heed_node *heed_match_only_user(const heed_value *value)
{
    heed_node *user = NULL;
    for (int i = 0; i < value->n_uses; i++) {
        heed_node *node = value->uses[i].node;
        if (!node || (user && node != user)) return NULL;
        user = node;
    }
    return user;
}

heed_node *heed_match_producer(const heed_value *value, const char *op)
{
    return value && value->producer && heed_node_is(value->producer, op) ? value->producer : NULL;
}

int heed_match_is_source(const heed_value *value)
{
    return value && !value->producer;
}

double heed_match_element(const heed_tensor *t, int64_t i)
{
    switch (t->dtype) {
    case HEED_F32: return ((const float *) t->data)[i];
    case HEED_F64: return ((const double *) t->data)[i];
    case HEED_F16: return heed_f32_from_f16(((const uint16_t *) t->data)[i]);
    case HEED_BF16: return heed_f32_from_bf16(((const uint16_t *) t->data)[i]);
    default: return (double) heed_tensor_int(t, i);
    }
}

/* The number as this type holds it. */
static double rounded(double number, heed_dtype type)
{
    if (type == HEED_F16) return heed_f32_from_f16(heed_f16_from_f32((float) number));
    return type == HEED_BF16 ? heed_f32_from_bf16(heed_bf16_from_f32((float) number)) : number;
}

int heed_match_scalar(const heed_value *value, double *number)
{
    /* CastLike does not fold while the type it is like belongs to a computed value. */
    const heed_node *like = heed_match_producer(value, "CastLike");
    const heed_tensor *t = like ? like->inputs[0]->fact.value : value ? value->fact.value : NULL;
    if (!t || heed_tensor_count(t) != 1) return 0;
    *number = heed_match_element(t, 0);
    if (!like) return 1;
    *number = rounded(*number, value->fact.dtype);
    return heed_dtype_is_float(t->dtype) && heed_dtype_is_float(value->fact.dtype);
}

int heed_match_uniform(const heed_value *value, double *number)
{
    const heed_tensor *t = value ? value->fact.value : NULL;
    int64_t n = t ? heed_tensor_count(t) : 0;
    if (n < 1) return 0;
    *number = heed_match_element(t, 0);
    for (int64_t i = 1; i < n; i++)
        if (heed_match_element(t, i) != *number) return 0;
    return 1;
}

int heed_match_near(double a, double b, heed_dtype type)
{
    const double rounding = type == HEED_F16 ? 1e-3 : type == HEED_BF16 ? 8e-3 : 1e-6;
    return fabs(a - b) <= rounding * fabs(b);
}

int heed_match_last_axis(const heed_node *node, int rank)
{
    const heed_attr *attr = heed_node_attr(node, "axes");
    if (attr) return attr->type == HEED_ATTR_INTS && attr->n == 1 && heed_axis(attr->ints[0], rank) == rank - 1;
    double axis;
    if (node->n_inputs < 2 || !heed_match_scalar(node->inputs[1], &axis)) return 0;
    return heed_axis((int64_t) axis, rank) == rank - 1;
}

/* ---- shapes ---- */

int heed_match_same_dim(int64_t a, int64_t b)
{
    return a == b && a != HEED_DIM_UNKNOWN;
}

int heed_match_same_shape(const heed_fact *a, const heed_fact *b)
{
    if (a->rank < 0 || a->rank != b->rank) return 0;
    for (int i = 0; i < a->rank; i++)
        if (!heed_match_same_dim(a->dims[i], b->dims[i])) return 0;
    return 1;
}

int64_t heed_match_dim(const heed_value *value, int from_right)
{
    int rank = value->fact.rank;
    return rank >= from_right ? value->fact.dims[rank - from_right] : HEED_DIM_UNKNOWN;
}

int heed_match_from_constants(const heed_value *value)
{
    for (int depth = 0; value && depth < 6; depth++) {
        if (value->fact.value) return 1;
        const heed_node *node = value->producer;
        if (!node || node->n_inputs < 1) return 0;
        for (int i = 1; i < node->n_inputs; i++)
            if (node->inputs[i] && !node->inputs[i]->fact.value) return 0;
        value = node->inputs[0];
    }
    return 0;
}

/* ---- nodes that change nothing but the form ---- */

/* A scalar c beside x: the result has x's shape. */
static int is_scalar_beside(const heed_value *c, const heed_value *x, double *number)
{
    return x && heed_match_scalar(c, number) && x->fact.rank >= c->fact.rank;
}

heed_value *heed_match_factor(const heed_node *node, double *factor)
{
    double c;
    if (heed_node_is(node, "Neg")) {
        *factor = -1.0;
        return node->inputs[0];
    }
    int mul = heed_node_is(node, "Mul");
    if (!mul && !heed_node_is(node, "Div")) return NULL;
    heed_value *a = node->inputs[0], *b = node->inputs[1];
    if (is_scalar_beside(b, a, &c) && (mul || c != 0.0)) {
        *factor = mul ? c : 1.0 / c;
        return a;
    }
    if (mul && is_scalar_beside(a, b, &c)) {
        *factor = c;
        return b;
    }
    return NULL;
}

heed_value *heed_match_identity(const heed_node *node)
{
    double training;
    if (heed_node_is(node, "Identity")) return node->inputs[0];
    if (!heed_node_is(node, "Dropout") || (node->n_outputs > 1 && node->outputs[1] && node->outputs[1]->n_uses)) return NULL;
    if (node->n_inputs < 3 || !node->inputs[2]) return node->inputs[0];
    return heed_match_scalar(node->inputs[2], &training) && training == 0.0 ? node->inputs[0] : NULL;
}

heed_value *heed_match_float_cast(const heed_node *node)
{
    if (!heed_node_is(node, "Cast") && !heed_node_is(node, "CastLike")) return NULL;
    heed_value *in = node->inputs[0];
    return heed_dtype_is_float(in->fact.dtype) && heed_dtype_is_float(node->outputs[0]->fact.dtype) ? in : NULL;
}

heed_value *heed_match_nan_guard(const heed_node *node)
{
    double zero;
    if (!heed_node_is(node, "Where")) return NULL;
    const heed_node *test = heed_match_producer(node->inputs[0], "IsNaN");
    heed_value *x = node->inputs[2];
    if (!test || test->inputs[0] != x || !is_scalar_beside(node->inputs[1], x, &zero) || zero != 0.0) return NULL;
    return x;
}

heed_value *heed_match_hidden_rows(const heed_node *node, const heed_value *probabilities)
{
    double zero, lowest;
    if (!heed_node_is(node, "Where") || node->inputs[2] != probabilities) return NULL;
    if (!is_scalar_beside(node->inputs[1], probabilities, &zero) || zero != 0.0) return NULL;
    const heed_node *test = heed_match_producer(node->inputs[0], "Equal");
    if (!test) return NULL;
    const int turned = heed_match_scalar(test->inputs[0], &lowest);
    if ((!turned && !heed_match_scalar(test->inputs[1], &lowest)) || lowest != -HUGE_VAL) return NULL;
    const heed_node *highest = heed_match_producer(test->inputs[turned], "ReduceMax");
    if (!highest || !heed_node_int(highest, "keepdims", 1)) return NULL;
    return heed_match_last_axis(highest, highest->inputs[0]->fact.rank) ? highest->inputs[0] : NULL;
}

heed_value *heed_match_regroup(const heed_node *node)
{
    static const char *const views[] = { "Reshape", "Squeeze", "Unsqueeze", "Flatten" };
    int is_view = 0;
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) is_view |= heed_node_is(node, views[i]);
    if (!is_view) return NULL;
    heed_value *in = node->inputs[0], *out = node->outputs[0];
    if (in->fact.rank < 2 || out->fact.rank < 2) return NULL;
    for (int i = 1; i <= 2; i++)
        if (!heed_match_same_dim(heed_match_dim(in, i), heed_match_dim(out, i))) return NULL;
    return in;
}

heed_value *heed_match_transpose(const heed_node *node, const int64_t **perm)
{
    if (!heed_node_is(node, "Transpose")) return NULL;
    static const int64_t reversed[2] = { 1, 0 };
    const heed_attr *attr = heed_node_attr(node, "perm");
    heed_value *in = node->inputs[0];
    if (attr && attr->n == in->fact.rank) *perm = attr->ints;
    else if (!attr && in->fact.rank == 2) *perm = reversed;
    else return NULL;
    return in;
}

heed_value *heed_match_behind_casts(heed_value *value)
{
    while (value && value->producer) {
        heed_value *in = heed_match_identity(value->producer);
        if (!in) in = heed_match_float_cast(value->producer);
        if (!in) break;
        value = in;
    }
    return value;
}

/* ---- polynomials ---- */

enum { DEGREE = 3, DEPTH = 12 };

static int polynomial(const heed_value *value, const heed_value *base, double c[DEGREE + 1], int depth);

static int multiply(const double a[DEGREE + 1], const double b[DEGREE + 1], double out[DEGREE + 1])
{
    double product[2 * DEGREE + 1] = { 0 };
    for (int i = 0; i <= DEGREE; i++)
        for (int j = 0; j <= DEGREE; j++) product[i + j] += a[i] * b[j];
    for (int i = DEGREE + 1; i <= 2 * DEGREE; i++)
        if (product[i] != 0.0) return 0;
    memcpy(out, product, sizeof(double) * (DEGREE + 1));
    return 1;
}

static int power(const heed_node *node, const heed_value *base, double c[DEGREE + 1], int depth)
{
    double a[DEGREE + 1], exponent;
    if (!is_scalar_beside(node->inputs[1], node->inputs[0], &exponent)) return 0;
    if (exponent != 1.0 && exponent != 2.0 && exponent != 3.0) return 0;
    if (!polynomial(node->inputs[0], base, a, depth)) return 0;
    memcpy(c, a, sizeof a);
    for (int i = 1; i < (int) exponent; i++)
        if (!multiply(c, a, c)) return 0;
    return 1;
}

static int binary(const heed_node *node, const heed_value *base, double c[DEGREE + 1], int depth)
{
    int add = heed_node_is(node, "Add"), sub = heed_node_is(node, "Sub"), mul = heed_node_is(node, "Mul");
    if (!add && !sub && !mul) return 0;
    double a[DEGREE + 1], b[DEGREE + 1];
    if (!polynomial(node->inputs[0], base, a, depth) || !polynomial(node->inputs[1], base, b, depth)) return 0;
    if (mul) return multiply(a, b, c);
    for (int i = 0; i <= DEGREE; i++) c[i] = sub ? a[i] - b[i] : a[i] + b[i];
    return 1;
}

static int polynomial(const heed_value *value, const heed_value *base, double c[DEGREE + 1], int depth)
{
    double number;
    memset(c, 0, sizeof(double) * (DEGREE + 1));
    if (value == base) return c[1] = 1.0, 1;
    if (!value || depth == 0) return 0;
    if (heed_match_scalar(value, &number)) return value->fact.rank <= base->fact.rank ? (c[0] = number, 1) : 0;
    const heed_node *node = value->producer;
    if (!node) return 0;
    heed_value *in = heed_match_factor(node, &number);
    if (in) {
        if (!polynomial(in, base, c, depth - 1)) return 0;
        for (int i = 0; i <= DEGREE; i++) c[i] *= number;
        return 1;
    }
    in = heed_match_identity(node);
    if (!in) in = heed_match_float_cast(node);
    if (in) return polynomial(in, base, c, depth - 1);
    return heed_node_is(node, "Pow") ? power(node, base, c, depth - 1) : binary(node, base, c, depth - 1);
}

int heed_match_polynomial(const heed_value *value, const heed_value *base, double coefficients[4])
{
    return polynomial(value, base, coefficients, DEPTH);
}

/* ---- words ---- */

const char *heed_match_label(heed_graph *graph, const heed_node *node)
{
    const char *text = node->name && node->name[0] ? heed_arena_printf(graph->arena, "'%s'", node->name)
                                                   : heed_arena_printf(graph->arena, "%s #%d", node->op, node->id);
    return text ? text : node->op;
}

heed_status heed_match_each_graph(heed_rewriter *rewriter, heed_graph *graph,
                                  heed_status (*fn)(heed_rewriter *rewriter, heed_graph *graph))
{
    for (heed_node *node = graph->first; node; node = node->next)
        for (int i = 0; i < node->n_attrs; i++)
            if (node->attrs[i].type == HEED_ATTR_GRAPH) HEED_TRY(heed_match_each_graph(rewriter, node->attrs[i].g, fn));
    return fn(rewriter, graph);
}
