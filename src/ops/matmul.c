/* Operators that are matrix products: MatMul, Gemm, FusedMatMul of com.microsoft, and heed.Linear. Each describes its
 * product to ops/gemm.h; weights that are constants are packed when the session starts. */
#include <string.h>

#include "ops/gemm.h"
#include "ops/util.h"

/* What the four operators have in common, read from attributes. */
typedef struct product {
    int trans_a, trans_b;
    float alpha, beta;
    int bias, residual; /* numbers of inputs, -1: none */
    heed_activation_desc activation;
} product;

static int input_or_none(int n_in, int input)
{
    return input < n_in ? input : -1;
}

static product product_of(const heed_node *node, int n_in)
{
    product p = { .alpha = 1, .beta = 1, .bias = -1, .residual = -1 };
    if (strcmp(node->op, "MatMul") == 0) return p;
    if (strcmp(node->op, "Linear") == 0) {
        p.trans_b = heed_node_int(node, "transposed", 0) != 0;
        p.bias = input_or_none(n_in, 2), p.residual = input_or_none(n_in, 3);
        heed_activation_parse(heed_node_string(node, "activation", ""), &p.activation);
        return p;
    }
    p.trans_a = heed_node_int(node, "transA", 0) != 0, p.trans_b = heed_node_int(node, "transB", 0) != 0;
    p.alpha = heed_node_float(node, "alpha", 1);
    if (strcmp(node->op, "Gemm") == 0) p.bias = input_or_none(n_in, 2), p.beta = heed_node_float(node, "beta", 1);
    return p;
}

/* ---- shapes ---- */

static heed_status infer_types(heed_infer *i)
{
    HEED_TRY(heed_infer_same_type(i, 0, i->n_in - 1, &i->out[0].dtype));
    if (i->out[0].dtype != HEED_DTYPE_NONE && !heed_gemm_takes(i->out[0].dtype))
        return heed_fail(HEED_ERR_UNSUPPORTED, "%s: its type is %s, expected a float or an integer of 32 or 64 bits", i->node->op,
                         heed_dtype_name(i->out[0].dtype));
    return HEED_OK;
}

/* Rows and columns of an input as a matrix: a vector is a row on the left and a column on the right. */
static void matrix_dims(const heed_fact *fact, int right, int transposed, int64_t *rows, int64_t *cols)
{
    int64_t last = fact->dims[fact->rank - 1], before = fact->rank > 1 ? fact->dims[fact->rank - 2] : 1;
    if (fact->rank == 1) {
        *rows = right ? last : 1, *cols = right ? 1 : last;
        return;
    }
    *rows = transposed ? last : before, *cols = transposed ? before : last;
}

static heed_status infer_batch(heed_infer *i, const heed_fact *a, const heed_fact *b)
{
    heed_fact *out = &i->out[0];
    int na = a->rank > 2 ? a->rank - 2 : 0, nb = b->rank > 2 ? b->rank - 2 : 0, n = na > nb ? na : nb;
    for (int d = 0; d < n; d++) {
        int64_t x = d >= n - na ? a->dims[d - (n - na)] : 1, y = d >= n - nb ? b->dims[d - (n - nb)] : 1;
        if (heed_infer_broadcast_dim(i, x, y, &out->dims[d]) != HEED_OK)
            return heed_infer_fail(i, "shapes %s and %s do not broadcast: %lld against %lld", heed_infer_shape_text(i, a),
                                   heed_infer_shape_text(i, b), (long long) x, (long long) y);
    }
    out->rank = n;
    return HEED_OK;
}

static heed_status infer_product(heed_infer *i, const product *p)
{
    const heed_fact *a = i->in[0], *b = i->in[1];
    heed_fact *out = &i->out[0];
    HEED_TRY(infer_types(i));
    if (a->rank < 0 || b->rank < 0) return HEED_OK;
    if (a->rank == 0 || b->rank == 0)
        return heed_infer_fail(i, "input %d is a scalar, expected one dimension or more", a->rank ? 1 : 0);
    int64_t m, k, k2, n;
    matrix_dims(a, 0, p->trans_a, &m, &k);
    matrix_dims(b, 1, p->trans_b, &k2, &n);
    if (k >= 0 && k2 >= 0 && k != k2)
        return heed_infer_fail(i, "shapes %s and %s: %lld columns against %lld rows", heed_infer_shape_text(i, a),
                               heed_infer_shape_text(i, b), (long long) k, (long long) k2);
    HEED_TRY(infer_batch(i, a, b));
    if (a->rank > 1) out->dims[out->rank++] = m;
    if (b->rank > 1) out->dims[out->rank++] = n;
    return HEED_OK;
}

static heed_status infer_matmul(heed_infer *i)
{
    product p = product_of(i->node, i->n_in);
    if (heed_node_int(i->node, "transBatchA", 0) || heed_node_int(i->node, "transBatchB", 0))
        return heed_fail(HEED_ERR_UNSUPPORTED, "%s: transBatchA and transBatchB are not supported", i->node->op);
    return infer_product(i, &p);
}

/* Input `input` broadcasts to out[0] without making it larger. */
static heed_status check_beside(heed_infer *i, int input, const char *name)
{
    const heed_fact *c = i->in[input], *out = &i->out[0];
    if (!c || c->rank < 0 || out->rank < 0) return HEED_OK;
    int skip = out->rank - c->rank, fits = skip >= 0;
    for (int d = 0; fits && d < c->rank; d++)
        if (c->dims[d] != 1 && c->dims[d] >= 0 && out->dims[d + skip] >= 0 && c->dims[d] != out->dims[d + skip]) fits = 0;
    if (fits) return HEED_OK;
    return heed_infer_fail(i, "%s has shape %s, expected one that broadcasts to %s", name, heed_infer_shape_text(i, c),
                           heed_infer_shape_text(i, out));
}

static heed_status infer_gemm(heed_infer *i)
{
    product p = product_of(i->node, i->n_in);
    for (int k = 0; k < 2; k++)
        if (i->in[k]->rank >= 0 && i->in[k]->rank != 2)
            return heed_infer_fail(i, "input %d has rank %d, expected 2", k, i->in[k]->rank);
    HEED_TRY(infer_product(i, &p));
    return i->n_in > 2 ? check_beside(i, 2, "C") : HEED_OK;
}

static heed_status infer_linear(heed_infer *i)
{
    product p = product_of(i->node, i->n_in);
    const char *activation = heed_node_string(i->node, "activation", "");
    if (!heed_activation_parse(activation, &p.activation)) return heed_infer_fail(i, "activation '%s' is not known", activation);
    if (i->in[1]->rank >= 0 && i->in[1]->rank != 2) return heed_infer_fail(i, "w has rank %d, expected 2", i->in[1]->rank);
    HEED_TRY(infer_product(i, &p));
    if (i->out[0].dtype != HEED_DTYPE_NONE && !heed_dtype_is_float(i->out[0].dtype))
        return heed_infer_fail(i, "its type is %s, expected a float", heed_dtype_name(i->out[0].dtype));
    if (i->n_in > 2) HEED_TRY(check_beside(i, 2, "bias"));
    return i->n_in > 3 ? check_beside(i, 3, "residual") : HEED_OK;
}

/* ---- running ---- */

/* Strides of an input's two last dimensions, and of its batch dimensions aligned to the right of n_batch of them. */
static heed_matrix matrix_of(const heed_tensor *t, int right, int transposed, int n_batch)
{
    heed_matrix m = { .data = t->data, .dtype = t->dtype };
    if (t->rank == 1) {
        m.row = right ? t->strides[0] : 0, m.col = right ? 0 : t->strides[0];
        return m;
    }
    m.row = t->strides[t->rank - 2], m.col = t->strides[t->rank - 1];
    if (transposed) {
        int64_t row = m.row;
        m.row = m.col, m.col = row;
    }
    for (int d = 0; d < t->rank - 2; d++) m.batch[n_batch - (t->rank - 2) + d] = t->dims[d] == 1 ? 0 : t->strides[d];
    return m;
}

/* Something that broadcasts to the output, whose rank is `rank` and whose last two dimensions are rows and columns unless
 * there is no such (a vector operand). */
static heed_matrix beside(const heed_tensor *t, int rank, int n_batch)
{
    heed_matrix m = { .data = t->data, .dtype = t->dtype };
    for (int d = 0; d < t->rank; d++) {
        int64_t stride = t->dims[d] == 1 ? 0 : t->strides[d];
        int at = d + rank - t->rank;
        if (at == rank - 1) m.col = stride;
        else if (at == rank - 2) m.row = stride;
        else m.batch[n_batch - (rank - 2) + at] = stride;
    }
    return m;
}

static void describe(const heed_compute *c, heed_gemm *g)
{
    const heed_tensor *a = c->in[0], *b = c->in[1], *out = c->out[0];
    product p = product_of(c->node, c->n_in);
    const heed_gemm_state *state = c->state;
    *g = (heed_gemm){ .kernel = state->kernel, .alpha = p.alpha, .beta = p.beta, .activation = p.activation };
    int na = a->rank > 2 ? a->rank - 2 : 0, nb = b->rank > 2 ? b->rank - 2 : 0;
    g->n_batch = na > nb ? na : nb;
    for (int d = 0; d < g->n_batch; d++) g->batch[d] = out->dims[d];
    g->a = matrix_of(a, 0, p.trans_a, g->n_batch);
    g->b = matrix_of(b, 1, p.trans_b, g->n_batch);
    g->m = a->rank == 1 ? 1 : a->dims[a->rank - 2 + p.trans_a];
    g->k = a->rank == 1 ? a->dims[0] : a->dims[a->rank - 1 - p.trans_a];
    g->n = b->rank == 1 ? 1 : b->dims[b->rank - 1 - p.trans_b];
    g->c = (heed_matrix){ .data = out->data, .dtype = out->dtype };
    for (int d = 0; d < g->n_batch; d++) g->c.batch[d] = out->strides[d];
    g->c.row = a->rank > 1 ? out->strides[g->n_batch] : 0;
    g->c.col = b->rank > 1 ? out->strides[out->rank - 1] : 0;
    if (p.bias >= 0 && c->in[p.bias]) g->bias = beside(c->in[p.bias], out->rank, g->n_batch);
    if (p.residual >= 0 && c->in[p.residual]) g->residual = beside(c->in[p.residual], out->rank, g->n_batch);
    if (state->packed) {
        int64_t step = heed_gemm_packed_floats(g->kernel, g->n, g->k);
        g->b_packed = 1;
        g->b.data = state->packed, g->b.dtype = HEED_F32;
        for (int d = b->rank - 3; d >= 0; d--) { /* matrices of a constant lie one after the other */
            g->b.batch[g->n_batch - nb + d] = b->dims[d] == 1 ? 0 : step;
            step *= b->dims[d];
        }
    }
    heed_gemm_simplify(g);
}

static size_t scratch_product(const heed_compute *c)
{
    heed_gemm g;
    describe(c, &g);
    return heed_gemm_scratch(c->ctx, &g);
}

static heed_status compute_product(heed_compute *c)
{
    heed_gemm g;
    describe(c, &g);
    heed_gemm_run(c->ctx, &g, c->scratch);
    return HEED_OK;
}

static heed_status prepare_product(heed_compute *c, void **state)
{
    const heed_tensor *b = c->in[1];
    if (!b || !b->data || !heed_tensor_is_dense(b) || b->rank < 2 || heed_tensor_count(b) == 0 ||
        !(b->dtype == HEED_F32 || b->dtype == HEED_F16 || b->dtype == HEED_BF16))
        return heed_gemm_state_create(c, NULL, state);
    product p = product_of(c->node, c->n_in);
    int64_t rows = b->dims[b->rank - 2], cols = b->dims[b->rank - 1];
    heed_gemm_weights weights = { .n_matrices = heed_tensor_count(b) / (rows * cols),
                                  .matrix_step = rows * cols,
                                  .data = b->data,
                                  .dtype = b->dtype,
                                  .n = cols,
                                  .k = rows,
                                  .row = cols,
                                  .col = 1 };
    if (p.trans_b) weights.n = rows, weights.k = cols, weights.row = 1, weights.col = cols;
    return heed_gemm_state_create(c, &weights, state);
}

#define PRODUCT(op_domain, op_name, op_since, inputs_min, inputs_max, rule)                                                      \
    {                                                                                                                            \
        .domain = op_domain, .name = op_name, .since = op_since, .min_in = inputs_min, .max_in = inputs_max, .min_out = 1,       \
        .max_out = 1, .flags = HEED_OP_STRIDED | HEED_OP_KEEP_STATE, .infer = rule, .compute = compute_product,                  \
        .scratch = scratch_product, .prepare = prepare_product, .release = heed_gemm_state_release                               \
    }

const heed_op heed_ops_matmul[] = {
    PRODUCT("", "MatMul", 1, 2, 2, infer_matmul),
    PRODUCT("", "Gemm", 7, 2, 3, infer_gemm),
    PRODUCT("com.microsoft", "FusedMatMul", 1, 2, 2, infer_matmul),
    PRODUCT("heed", "Linear", 1, 2, 4, infer_linear),
    { 0 },
};
