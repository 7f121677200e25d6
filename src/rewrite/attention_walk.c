/* From a softmax back to the product of Q and K, one step a node, and forward to the product with V.
 *
 * Going back, `scale` is the product of the factors passed so far: what is added further back is multiplied by it. A factor
 * that stands between a mask and the softmax therefore ends up in the mask too, not only in the scale. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "graph/dims.h"
#include "ops/op.h"
#include "rewrite/attention.h"

int heed_attention_refuse(heed_attention_match *match, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(match->reason, sizeof match->reason, fmt, args);
    va_end(args);
    return 0;
}

static const char *label(const heed_attention_match *match, const heed_node *node)
{
    return heed_match_label(match->graph, node);
}

/* ---- leads ---- */

heed_lead heed_attention_lead(const heed_value *value)
{
    heed_lead lead = { value->fact.rank < 2 ? -1 : value->fact.rank - 2, { 0 } };
    for (int i = 0; i < lead.n; i++) lead.dims[i] = value->fact.dims[i];
    return lead;
}

int heed_attention_same_lead(const heed_lead *a, const heed_lead *b)
{
    if (a->n < 0 || a->n != b->n) return 0;
    for (int i = 0; i < a->n; i++)
        if (!heed_match_same_dim(a->dims[i], b->dims[i])) return 0;
    return 1;
}

/* ---- products ---- */

/* A weight matrix makes a linear layer, not scores. */
static int is_weight(const heed_value *value)
{
    return value->fact.rank <= 2 && heed_match_from_constants(value);
}

static void set_operand(heed_operand *operand, heed_value *value, int swapped, const heed_lead *product)
{
    *operand = (heed_operand){ .value = value, .swapped = swapped, .lead = heed_attention_lead(value) };
    operand->full = heed_attention_same_lead(&operand->lead, product);
}

/* ---- Einsum ---- */

enum { LABELS_MAX = HEED_RANK_MAX };

/* Of two operands, written with letters only: "bhqd,bhkd->bhqk". */
static int split_equation(const char *equation, char a[LABELS_MAX + 1], char b[LABELS_MAX + 1], char out[LABELS_MAX + 1])
{
    char *const parts[] = { a, b, out };
    static const char *const ends[] = { ",", "->", "" };
    for (int p = 0; p < 3; p++) {
        int n = 0;
        const size_t end = strlen(ends[p]);
        while (*equation && (end == 0 || strncmp(equation, ends[p], end) != 0)) {
            const char c = *equation++;
            if (c == ' ') continue;
            const int letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
            if (!letter || n == LABELS_MAX || memchr(parts[p], c, (size_t) n)) return 0;
            parts[p][n++] = c;
        }
        parts[p][n] = 0;
        if (strncmp(equation, ends[p], end) != 0 || n < 2) return 0;
        equation += end;
    }
    return *equation == 0;
}

/* perm[i]: where labels has wanted[i]. 0 unless both hold the same labels. *moves: the order is another. */
static int order_of(const char *labels, const char *wanted, int64_t perm[LABELS_MAX], int *moves)
{
    const size_t n = strlen(wanted);
    *moves = 0;
    if (strlen(labels) != n) return 0;
    for (size_t i = 0; i < n; i++) {
        const char *at = strchr(labels, wanted[i]);
        if (!at) return 0;
        perm[i] = at - labels;
        *moves |= perm[i] != (int64_t) i;
    }
    return 1;
}

/* The first label of `labels` that is in none of the others, 0 if there is none. */
static char own_label(const char *labels, const char *not_in, const char *nor_in)
{
    for (; *labels; labels++)
        if (!strchr(not_in, *labels) && !(nor_in && strchr(nor_in, *labels))) return *labels;
    return 0;
}

static int permuted_operand(heed_operand *operand, heed_value *value, const char *labels, const char *wanted,
                            const heed_lead *product)
{
    *operand = (heed_operand){ .value = value, .lead = { (int) strlen(wanted) - 2, { 0 } } };
    if (value->fact.rank != (int) strlen(labels) || !order_of(labels, wanted, operand->perm, &operand->permuted)) return 0;
    for (int i = 0; i < operand->lead.n; i++) operand->lead.dims[i] = value->fact.dims[operand->perm[i]];
    operand->full = heed_attention_same_lead(&operand->lead, product);
    return 1;
}

/* The same labels with the last two in place of the last two. */
static void with_last(char out[LABELS_MAX + 1], const char *labels, char a, char b)
{
    const size_t n = strlen(labels);
    memcpy(out, labels, n + 1);
    out[n - 2] = a, out[n - 1] = b;
}

static int read_einsum_scores(const heed_node *node, heed_product *product)
{
    char la[LABELS_MAX + 1], lb[LABELS_MAX + 1], out[LABELS_MAX + 1], wanted[LABELS_MAX + 1];
    if (node->n_inputs != 2 || !split_equation(heed_node_string(node, "equation", ""), la, lb, out)) return 0;
    const char row = out[strlen(out) - 2], column = out[strlen(out) - 1];
    const int turned = strchr(la, row) == NULL;
    const char *q = turned ? lb : la, *k = turned ? la : lb;
    const char inner = own_label(q, out, NULL);
    const heed_lead lead = heed_attention_lead(node->outputs[0]);
    if (!inner) return 0;
    with_last(wanted, out, row, inner);
    if (!permuted_operand(&product->a, node->inputs[turned], q, wanted, &lead)) return 0;
    with_last(wanted, out, column, inner);
    return permuted_operand(&product->b, node->inputs[!turned], k, wanted, &lead);
}

static int read_einsum_product(const heed_node *node, const heed_value *probabilities, heed_product *product)
{
    char la[LABELS_MAX + 1], lb[LABELS_MAX + 1], out[LABELS_MAX + 1], wanted[LABELS_MAX + 1];
    if (node->n_inputs != 2 || !split_equation(heed_node_string(node, "equation", ""), la, lb, out)) return 0;
    const int turned = node->inputs[0] != probabilities;
    const char *p = turned ? lb : la, *v = turned ? la : lb;
    const char row = p[strlen(p) - 2], column = p[strlen(p) - 1], own = own_label(v, p, NULL);
    if (!own || strchr(out, column)) return 0;
    const heed_lead lead = heed_attention_lead(probabilities);
    if (!permuted_operand(&product->a, node->inputs[turned], p, p, &lead)) return 0;
    with_last(wanted, p, column, own);
    if (!permuted_operand(&product->b, node->inputs[!turned], v, wanted, &lead)) return 0;
    with_last(wanted, p, row, own);
    return order_of(wanted, out, product->out_perm, &product->out_permuted);
}

/* ---- MatMul and Gemm ---- */

static int read_plain(const heed_node *node, int scores, heed_product *product)
{
    const int gemm = heed_node_is(node, "Gemm");
    if (!gemm && !heed_node_is(node, "MatMul")) return 0;
    const int trans_a = gemm && heed_node_int(node, "transA", 0), trans_b = gemm && heed_node_int(node, "transB", 0);
    if (node->inputs[0]->fact.rank < 2 || node->inputs[1]->fact.rank < 2) return 0;
    const heed_lead lead = heed_attention_lead(node->outputs[0]);
    set_operand(&product->a, node->inputs[0], trans_a, &lead);
    set_operand(&product->b, node->inputs[1], scores ? !trans_b : trans_b, &lead);
    return 1;
}

int heed_attention_read_scores(const heed_node *node, heed_product *product)
{
    *product = (heed_product){ .out_permuted = 0 };
    const int read = heed_node_is(node, "Einsum") ? read_einsum_scores(node, product) : read_plain(node, 1, product);
    return read && !is_weight(product->a.value) && !is_weight(product->b.value);
}

int heed_attention_read_product(const heed_node *node, const heed_value *probabilities, heed_product *product)
{
    *product = (heed_product){ .out_permuted = 0 };
    return heed_node_is(node, "Einsum") ? read_einsum_product(node, probabilities, product) : read_plain(node, 0, product);
}

static int is_scores(const heed_node *node)
{
    heed_product product;
    return heed_attention_read_scores(node, &product);
}

/* ---- what is known without walking ---- */

/* Both searches look at so many nodes at most, so that no graph makes them slow. */
enum { DEPTH = 32, BUDGET = 512 };

/* Steps from the value back to scores through nodes that the walk can take; 0: none. */
static int distance(const heed_value *value, int depth, int *budget)
{
    static const char *const steps[] = { "Add", "Sub",      "Where",   "Mul",      "Div",     "Neg",     "Tanh",      "Cast",
                                         "Max", "CastLike", "Dropout", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten" };
    const heed_node *node = value ? value->producer : NULL;
    if (!node || depth == 0 || --*budget < 0) return 0;
    if (is_scores(node)) return 1;
    int known = 0, nearest = 0;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) known |= heed_node_is(node, steps[i]);
    for (int i = 0; known && i < node->n_inputs; i++) {
        const int d = distance(node->inputs[i], depth - 1, budget);
        if (d && (!nearest || d + 1 < nearest)) nearest = d + 1;
    }
    return nearest;
}

static int scores_distance(const heed_value *value)
{
    int budget = BUDGET;
    return distance(value, DEPTH, &budget);
}

static int has_scores(const heed_value *value, int depth, int *budget)
{
    static const char *const several[] = { "Add",  "Sub",     "Mul", "Div",     "Where",   "Min",       "Max",
                                           "Clip", "Dropout", "Pow", "Reshape", "Squeeze", "Unsqueeze", "CastLike" };
    const heed_node *node = value ? value->producer : NULL;
    if (!node || depth == 0 || --*budget < 0) return 0;
    if (is_scores(node)) return 1;
    int through = node->n_inputs == 1;
    for (size_t i = 0; i < sizeof several / sizeof *several; i++) through |= heed_node_is(node, several[i]);
    for (int i = 0; through && i < node->n_inputs; i++)
        if (has_scores(node->inputs[i], depth - 1, budget)) return 1;
    return 0;
}

int heed_attention_has_scores(const heed_value *value)
{
    int budget = BUDGET;
    return has_scores(value, DEPTH, &budget);
}

/* ---- one step back ---- */

/* The node asks a value for its shape or its type only. */
static int asks_form_only(const heed_node *node, const heed_value *value)
{
    return heed_node_is(node, "Shape") || (heed_node_is(node, "CastLike") && node->inputs[0] != value);
}

/* The value lies between Q K and the product with V, and fusing does away with it: nothing else may need more of it than its
 * form. */
static int take_inner(heed_attention_match *match, heed_value *value, const char *what, const heed_node *user,
                      const heed_node *second)
{
    const char *where = value->producer ? label(match, value->producer) : "an input";
    for (int i = 0; i < value->n_uses; i++) {
        const heed_node *node = value->uses[i].node;
        if (!node) return heed_attention_refuse(match, "%s (%s) is also an output of the graph", what, where);
        if (node == user || node == second || asks_form_only(node, value)) continue;
        return heed_attention_refuse(match, "%s (%s) is also used by %s (%s)", what, where, label(match, node), node->op);
    }
    if (match->n_inner == HEED_MATCH_INNER_MAX) return heed_attention_refuse(match, "too many nodes stand around the softmax");
    match->inner[match->n_inner++] = value;
    return 1;
}

static int refuse_misfit(heed_attention_match *match, const heed_node *node, const heed_value *scores, const heed_value *mask)
{
    heed_text text = { .ctx = match->graph->ctx };
    heed_fact_print(match->graph, &mask->fact, &text);
    heed_text_add(&text, " to the scores' ");
    heed_fact_print(match->graph, &scores->fact, &text);
    heed_attention_refuse(match, "in %s a mask is not proven to fit the scores: %s", label(match, node),
                          text.data && !text.failed ? text.data : "?");
    heed_text_free(&text);
    return 0;
}

/* Element by element between the scores and a tensor: the scores keep their shape. */
static int keeps_shape(heed_attention_match *match, const heed_node *node, const heed_value *scores, const heed_value *mask)
{
    return heed_match_same_shape(&node->outputs[0]->fact, &scores->fact) || refuse_misfit(match, node, scores, mask);
}

/* The same for a mask, whose last two sizes may be symbols of their own ("keys" beside "past + len"). The number of keys is
 * then the scores' or 1, because the product with V has as many terms as V has rows; and a mask of more rows than one query
 * gives each of them that query, which heed.Attention does too. */
static int mask_fits(heed_attention_match *match, const heed_node *node, const heed_value *scores, const heed_value *mask)
{
    const heed_fact *out = &node->outputs[0]->fact, *in = &scores->fact;
    int fits = out->rank == in->rank && in->rank >= 2;
    for (int i = 0; fits && i < in->rank; i++) {
        const int both_known = out->dims[i] >= 0 && in->dims[i] >= 0;
        fits = heed_match_same_dim(out->dims[i], in->dims[i]) || (i >= in->rank - 2 && !both_known);
    }
    return fits || refuse_misfit(match, node, scores, mask);
}

static int add_mask(heed_attention_match *match, const heed_score_mask *mask)
{
    const char *where = mask->value->producer ? label(match, mask->value->producer) : "an input";
    if (match->softcap > 0.0)
        return heed_attention_refuse(match, "a mask (%s) is applied before the soft cap of the scores", where);
    if (match->tensor_factor)
        return heed_attention_refuse(match, "a mask (%s) is applied before the scores are multiplied by a tensor", where);
    if (match->n_masks == HEED_MATCH_MASKS_MAX) return heed_attention_refuse(match, "more than %d masks", HEED_MATCH_MASKS_MAX);
    match->masks[match->n_masks++] = *mask;
    return 1;
}

/* Add or Sub: one side leads to the scores, the other is a mask. */
static heed_value *step_add(heed_attention_match *match, const heed_node *node)
{
    const int left = scores_distance(node->inputs[0]), right = scores_distance(node->inputs[1]);
    const int sub = heed_node_is(node, "Sub");
    const int turned = !left || (right && right < left);
    if (!left && !right) return NULL;
    heed_value *scores = node->inputs[turned], *mask = node->inputs[!turned];
    if (sub && turned) {
        heed_attention_refuse(match, "the scores are subtracted in %s", label(match, node));
        return NULL;
    }
    if (!mask_fits(match, node, scores, mask)) return NULL;
    const heed_score_mask added = { .kind = HEED_SCORES_ADDED,
                                    .value = mask,
                                    .factor = sub ? -match->scale : match->scale,
                                    .type = scores->fact.dtype,
                                    .lead = heed_attention_lead(scores) };
    return add_mask(match, &added) ? scores : NULL;
}

static heed_value *step_where(heed_attention_match *match, const heed_node *node)
{
    const int yes = scores_distance(node->inputs[1]), no = scores_distance(node->inputs[2]);
    if (!yes && !no) return NULL;
    heed_value *scores = node->inputs[yes ? 1 : 2], *other = node->inputs[yes ? 2 : 1];
    double fill;
    if (!heed_match_uniform(other, &fill)) {
        heed_attention_refuse(match, "%s puts values that are not one constant in place of scores", label(match, node));
        return NULL;
    }
    if (!keeps_shape(match, node, scores, node->inputs[0])) return NULL;
    const heed_score_mask replaced = { .kind = HEED_SCORES_REPLACED,
                                       .value = node->inputs[0],
                                       .keeps = yes != 0,
                                       .fill = fill,
                                       .factor = match->scale,
                                       .type = scores->fact.dtype,
                                       .lead = heed_attention_lead(scores) };
    return add_mask(match, &replaced) ? scores : NULL;
}

/* max(scores, lowest number), which undoes the -inf of two lowest numbers added up. */
static heed_value *step_max(heed_attention_match *match, const heed_node *node)
{
    double fill;
    const int turned = node->n_inputs == 2 && !scores_distance(node->inputs[0]);
    heed_value *scores = node->inputs[turned];
    if (node->n_inputs != 2 || !scores_distance(scores) || !heed_match_scalar(node->inputs[!turned], &fill)) {
        heed_attention_refuse(match, "%s (Max) stands between the scores and the softmax", label(match, node));
        return NULL;
    }
    if (!keeps_shape(match, node, scores, node->inputs[!turned])) return NULL;
    const heed_score_mask raised = { .kind = HEED_SCORES_RAISED,
                                     .value = node->inputs[!turned],
                                     .fill = fill,
                                     .factor = match->scale,
                                     .type = scores->fact.dtype,
                                     .lead = heed_attention_lead(scores) };
    return add_mask(match, &raised) ? scores : NULL;
}

/* A factor for each head or row can be given to Q. */
static heed_value *take_tensor_factor(heed_attention_match *match, const heed_node *node)
{
    if (!heed_node_is(node, "Mul") || match->tensor_factor || match->softcap > 0.0) return NULL;
    const int turned = !scores_distance(node->inputs[0]);
    heed_value *scores = node->inputs[turned], *factor = node->inputs[!turned];
    if (!scores_distance(scores) || factor->fact.rank < 0 || (factor->fact.rank > 0 && heed_match_dim(factor, 1) != 1))
        return NULL;
    if (!keeps_shape(match, node, scores, factor)) return NULL;
    match->tensor_factor = factor, match->tensor_lead = heed_attention_lead(scores);
    return scores;
}

static heed_value *step_factor(heed_attention_match *match, const heed_node *node)
{
    double factor;
    heed_value *scores = heed_match_factor(node, &factor);
    if (scores) {
        match->scale *= factor;
        return scores;
    }
    scores = take_tensor_factor(match, node);
    for (int i = 0; i < node->n_inputs && !scores && !match->reason[0]; i++)
        if (scores_distance(node->inputs[i]))
            heed_attention_refuse(match, "%s (%s) changes the scores by something that is not one number a row",
                                  label(match, node), node->op);
    return scores;
}

/* softcap * tanh(x / softcap): the factors after the Tanh are the cap, those before it are made whole by it. */
static heed_value *step_tanh(heed_attention_match *match, const heed_node *node)
{
    if (match->softcap > 0.0 || !(match->scale > 0.0) || match->tensor_factor) {
        heed_attention_refuse(match, "%s (Tanh) is not a soft cap of the scores", label(match, node));
        return NULL;
    }
    match->softcap = match->scale;
    return node->inputs[0];
}

static heed_value *step_form(heed_attention_match *match, const heed_node *node)
{
    heed_value *in = heed_match_identity(node);
    if (!in) in = heed_match_float_cast(node);
    if (!in) in = heed_match_regroup(node);
    if (!in && scores_distance(node->outputs[0]))
        heed_attention_refuse(match, "%s (%s) changes the form of the scores in a way that is not proven harmless",
                              label(match, node), node->op);
    return in;
}

typedef heed_value *step_fn(heed_attention_match *match, const heed_node *node);

static const struct {
    const char *op;
    step_fn *step;
} steps[] = {
    { "Add", step_add },       { "Sub", step_add },        { "Where", step_where },   { "Mul", step_factor },
    { "Div", step_factor },    { "Neg", step_factor },     { "Tanh", step_tanh },     { "Cast", step_form },
    { "CastLike", step_form }, { "Dropout", step_form },   { "Identity", step_form }, { "Reshape", step_form },
    { "Squeeze", step_form },  { "Unsqueeze", step_form }, { "Flatten", step_form },  { "Max", step_max },
};

static heed_value *step_back(heed_attention_match *match, const heed_node *node)
{
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (heed_node_is(node, steps[i].op)) return steps[i].step(match, node);
    heed_attention_refuse(match, "%s (%s) stands between the scores and the softmax", label(match, node), node->op);
    return NULL;
}

/* Gemm brings a factor and a mask of its own. */
static int take_gemm(heed_attention_match *match, const heed_node *node)
{
    if (!heed_node_is(node, "Gemm")) return 1;
    const double beta = heed_node_float(node, "beta", 1.0f);
    if (node->n_inputs > 2 && node->inputs[2] && beta != 0.0) {
        const heed_score_mask added = { .kind = HEED_SCORES_ADDED,
                                        .value = node->inputs[2],
                                        .factor = match->scale * beta,
                                        .type = node->outputs[0]->fact.dtype,
                                        .lead = heed_attention_lead(node->outputs[0]) };
        if (!add_mask(match, &added)) return 0;
    }
    match->scale *= heed_node_float(node, "alpha", 1.0f);
    return 1;
}

/* Over the last axis; before opset 13 over all axes from `axis` on, flattened. */
static int softmax_is_last(heed_attention_match *match)
{
    const heed_node *node = match->softmax;
    const int rank = node->inputs[0]->fact.rank;
    const int64_t axis = heed_node_int(node, "axis", node->version < 13 ? 1 : -1);
    if (rank < 2) return heed_attention_refuse(match, "the rank of the scores is not known");
    if (heed_axis(axis, rank) == rank - 1) return 1;
    return heed_attention_refuse(match, "the softmax runs over axis %lld of %d, not over the last", (long long) axis, rank);
}

int heed_attention_walk_scores(heed_attention_match *match)
{
    const heed_node *user = match->softmax;
    heed_value *value = user->inputs[0];
    match->scale = 1.0;
    if (!heed_attention_has_scores(value)) return 0;
    if (!softmax_is_last(match)) return 0;
    match->softmax_lead = heed_attention_lead(value);
    for (;;) {
        heed_node *node = value->producer;
        if (!take_inner(match, value, "a step of the scores", user, NULL)) return 0;
        if (is_scores(node)) {
            match->scores = node;
            break;
        }
        heed_value *next = step_back(match, node);
        if (!next && match->reason[0] == 0)
            heed_attention_refuse(match, "no product of Q and K was found behind %s (%s)", label(match, node), node->op);
        if (!next) return 0;
        if (!next->producer) return heed_attention_refuse(match, "the scores come from outside the graph");
        value = next, user = node;
    }
    if (!take_gemm(match, match->scores)) return 0;
    match->scores_lead = heed_attention_lead(match->scores->outputs[0]);
    if (match->scores_lead.n < 0) return heed_attention_refuse(match, "the shape of the scores is not known");
    heed_product product;
    if (!heed_attention_read_scores(match->scores, &product)) return 0;
    match->q = product.a, match->k = product.b;
    return 1;
}

/* ---- on to the product with V ---- */

static int take_product(heed_attention_match *match, heed_node *node, const heed_value *probabilities)
{
    heed_product product;
    if (!heed_attention_read_product(node, probabilities, &product)) return -1;
    if (product.a.value != probabilities || product.b.value == probabilities) return -1;
    if (product.a.swapped)
        return heed_attention_refuse(match, "the result of the softmax is transposed before %s", label(match, node));
    if (!product.a.full) return heed_attention_refuse(match, "V has more batches than the scores in %s", label(match, node));
    const int scaled =
        heed_node_is(node, "Gemm") && (heed_node_float(node, "alpha", 1.0f) != 1.0f || (node->n_inputs > 2 && node->inputs[2]));
    if (scaled) return heed_attention_refuse(match, "%s (Gemm) does more than the product with V", label(match, node));
    if (is_weight(product.b.value))
        return heed_attention_refuse(match, "%s multiplies the result of the softmax by a constant matrix", label(match, node));
    match->product = node, match->v = product.b;
    match->product_lead = product.a.lead;
    match->out_permuted = product.out_permuted;
    memcpy(match->out_perm, product.out_perm, sizeof match->out_perm);
    return 1;
}

/* The two nodes of Where(IsNaN(x), 0, x), if those are the users of x: the Where. */
static heed_node *guard_of(const heed_value *value, heed_node **test)
{
    heed_node *guard = NULL;
    *test = NULL;
    for (int i = 0; i < value->n_uses; i++) {
        heed_node *node = value->uses[i].node;
        if (node && heed_node_is(node, "IsNaN")) *test = node;
        if (node && heed_match_nan_guard(node) == value) guard = node;
    }
    if (!guard || !*test || guard->inputs[0] != (*test)->outputs[0]) return NULL;
    return heed_match_only_user((*test)->outputs[0]) == guard ? guard : NULL;
}

/* The first user that is not after the form alone. */
static heed_node *main_user(const heed_value *value)
{
    for (int i = 0; i < value->n_uses; i++)
        if (value->uses[i].node && !asks_form_only(value->uses[i].node, value)) return value->uses[i].node;
    return NULL;
}

/* Rows that one of the masks hides whole become 0, as they do in the fused node anyway. */
static int clears_hidden_rows(const heed_attention_match *match, const heed_node *node, const heed_value *value)
{
    const heed_value *mask = heed_match_hidden_rows(node, value);
    for (int i = 0; mask && i < match->n_masks; i++)
        if (match->masks[i].value == mask && match->masks[i].kind == HEED_SCORES_ADDED && match->masks[i].factor > 0.0) return 1;
    return 0;
}

static heed_value *step_on(heed_attention_match *match, heed_node *node, const heed_value *value)
{
    double factor;
    if (clears_hidden_rows(match, node, value)) return match->has_guard = 1, node->outputs[0];
    if (heed_match_identity(node) || heed_match_float_cast(node) || heed_match_regroup(node)) return node->outputs[0];
    if (heed_match_factor(node, &factor))
        heed_attention_refuse(match, "a factor of %g (%s) stands between the softmax and the product with V", factor,
                              label(match, node));
    else
        heed_attention_refuse(match, "the result of the softmax goes to %s (%s), not to a product with V", label(match, node),
                              node->op);
    return NULL;
}

int heed_attention_walk_product(heed_attention_match *match)
{
    heed_value *value = match->softmax->outputs[0];
    for (;;) {
        heed_node *test, *guard = guard_of(value, &test);
        heed_node *node = guard ? guard : main_user(value);
        if (!take_inner(match, value, "the result of the softmax", node, test)) return 0;
        if (!node) return heed_attention_refuse(match, "the result of the softmax is not used");
        if (guard) {
            match->has_guard = 1;
            value = guard->outputs[0];
            continue;
        }
        const int taken = take_product(match, node, value);
        if (taken >= 0) return taken;
        value = step_on(match, node, value);
        if (!value) return 0;
    }
}
