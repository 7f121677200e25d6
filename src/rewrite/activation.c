/* Activations written out in elementary operators, to heed.Gelu, heed.Silu and heed.QuickGelu.
 *
 * All have the form x * (a + b * f(p(x))) with f one of Erf, Tanh, Sigmoid and p a small polynomial. Both parts are worked
 * out as numbers, so that it does not matter how the factors are grouped, which come first, or how a cube is written. */
#include <string.h>

#include "rewrite/match.h"

enum { SEEN_MAX = 24, DEPTH = 7 };

/* What may be f or x below the root. */
typedef struct seen {
    heed_node *inner; /* the Erf, Tanh or Sigmoid */
    heed_value *values[SEEN_MAX];
    int n;
} seen;

typedef struct activation {
    const char *inner;
    double p1, p3; /* p(x) = p1 x + p3 x^3; p1 0: any */
    double a, b;
    const char *fused, *approximate;
} activation;

static const activation activations[] = {
    { "Erf", 0.70710678118654752, 0.0, 0.5, 0.5, "Gelu", "none" },
    { "Tanh", 0.79788456080286536, 0.79788456080286536 * 0.044715, 0.5, 0.5, "Gelu", "tanh" },
    { "Sigmoid", 1.0, 0.0, 0.0, 1.0, "Silu", NULL },
    { "Sigmoid", 0.0, 0.0, 0.0, 1.0, "QuickGelu", NULL },
};

static int is_inner(const heed_node *node)
{
    return heed_node_is(node, "Erf") || heed_node_is(node, "Tanh") || heed_node_is(node, "Sigmoid");
}

static void look_around(seen *s, heed_value *value, int depth)
{
    double number;
    if (!value || s->n == SEEN_MAX || heed_match_scalar(value, &number)) return;
    for (int i = 0; i < s->n; i++)
        if (s->values[i] == value) return;
    s->values[s->n++] = value;
    heed_node *node = value->producer;
    if (!node || depth == 0) return;
    if (is_inner(node)) {
        if (!s->inner) s->inner = node;
        return;
    }
    static const char *const through[] = { "Mul", "Div", "Add", "Sub", "Cast", "Identity" };
    for (size_t i = 0; i < sizeof through / sizeof *through; i++)
        for (int k = 0; heed_node_is(node, through[i]) && k < node->n_inputs; k++) look_around(s, node->inputs[k], depth - 1);
}

/* value = c[0] + c[1] x + c[2] f + c[3] x f. */
static int bilinear(const heed_value *value, const heed_value *x, const heed_value *f, double c[4], int depth)
{
    double number, a[4], b[4];
    memset(c, 0, 4 * sizeof *c);
    if (value == x) return c[1] = 1.0, 1;
    if (value == f) return c[2] = 1.0, 1;
    if (heed_match_scalar(value, &number)) return c[0] = number, value->fact.rank <= x->fact.rank;
    const heed_node *node = value->producer;
    if (!node || depth == 0) return 0;
    const heed_value *in = heed_match_factor(node, &number);
    if (in) {
        if (!bilinear(in, x, f, c, depth - 1)) return 0;
        for (int i = 0; i < 4; i++) c[i] *= number;
        return 1;
    }
    const int add = heed_node_is(node, "Add"), sub = heed_node_is(node, "Sub");
    if (!add && !sub && !heed_node_is(node, "Mul")) return 0;
    if (!bilinear(node->inputs[0], x, f, a, depth - 1) || !bilinear(node->inputs[1], x, f, b, depth - 1)) return 0;
    if (add || sub) {
        for (int i = 0; i < 4; i++) c[i] = sub ? a[i] - b[i] : a[i] + b[i];
        return 1;
    }
    c[0] = a[0] * b[0];
    c[1] = a[0] * b[1] + a[1] * b[0];
    c[2] = a[0] * b[2] + a[2] * b[0];
    c[3] = a[0] * b[3] + a[1] * b[2] + a[2] * b[1] + a[3] * b[0];
    /* x^2, f^2 and the like are not of the form. */
    return a[1] * b[1] == 0.0 && a[2] * b[2] == 0.0 && (a[3] == 0.0 || (b[1] == 0.0 && b[2] == 0.0 && b[3] == 0.0)) &&
           (b[3] == 0.0 || (a[1] == 0.0 && a[2] == 0.0));
}

static int fits(const activation *kind, const heed_node *inner, const double p[4], const double c[4], heed_dtype type)
{
    if (!heed_node_is(inner, kind->inner) || p[0] != 0.0 || p[2] != 0.0 || c[0] != 0.0 || c[2] != 0.0) return 0;
    if (kind->p1 == 0.0 ? !(p[1] > 0.0) : !heed_match_near(p[1], kind->p1, type)) return 0;
    return heed_match_near(p[3], kind->p3, type) && heed_match_near(c[1], kind->a, type) && heed_match_near(c[3], kind->b, type);
}

static heed_status make(heed_graph *graph, heed_node *root, heed_value *x, const activation *kind, double alpha)
{
    heed_maker maker = { graph, root, HEED_OK };
    heed_node *node = heed_make_fused(&maker, kind->fused, 1, &x, 1);
    if (kind->approximate) heed_make_attr_string(&maker, node, "approximate", kind->approximate);
    else if (kind->p1 == 0.0) heed_make_attr_float(&maker, node, "alpha", alpha);
    heed_make_infer(&maker, node);
    if (node) heed_make_replace(&maker, root->outputs[0], node->outputs[0]);
    return maker.status;
}

static heed_status try_root(heed_graph *graph, heed_node *root)
{
    seen s = { NULL, { NULL }, 0 };
    heed_value *out = root->outputs[0];
    look_around(&s, out, DEPTH);
    if (!s.inner) return HEED_OK;
    for (int i = 1; i < s.n; i++) {
        heed_value *x = s.values[i];
        double p[4], c[4];
        if (x == s.inner->outputs[0] || !heed_match_same_shape(&x->fact, &out->fact) || x->fact.dtype != out->fact.dtype)
            continue;
        if (!bilinear(out, x, s.inner->outputs[0], c, DEPTH) || !heed_match_polynomial(s.inner->inputs[0], x, p)) continue;
        for (size_t k = 0; k < sizeof activations / sizeof *activations; k++)
            if (fits(&activations[k], s.inner, p, c, x->fact.dtype)) return make(graph, root, x, &activations[k], p[1]);
    }
    return HEED_OK;
}

static heed_status fuse_in_graph(heed_rewriter *rewriter, heed_graph *graph)
{
    (void) rewriter;
    for (heed_node *node = graph->first; node; node = node->next)
        if ((heed_node_is(node, "Mul") || heed_node_is(node, "Div")) && heed_dtype_is_float(node->outputs[0]->fact.dtype) &&
            node->outputs[0]->fact.dtype != HEED_F64)
            HEED_TRY(try_root(graph, node));
    return HEED_OK;
}

heed_status heed_pass_activation(heed_rewriter *rewriter)
{
    return heed_match_each_graph(rewriter, rewriter->graph, fuse_in_graph);
}
