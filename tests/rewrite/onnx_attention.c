/* ONNX's Attention after lowering, fused and exploded, against the operator's definition written out in double, over random
 * combinations of its features. */
#include "rewrite/rewrite.h"

enum { NO_MASK, BOOL_MASK, FLOAT_MASK };

struct problem {
    int64_t b, hq, hkv, s, t_new, past, d, dv; /* keys: past + t_new */
    int is_3d, is_causal, has_past, has_lengths, mask_kind, mode;
    int64_t left, right;
    int mask_rank;
    int64_t mask_dims[4]; /* the last `mask_rank` of them */
    float scale, softcap; /* 0: absent */
    int64_t lengths[4];
    heed_tensor q, k, v, mask, past_k, past_v;
};

static int64_t keys(const struct problem *p)
{
    return p->past + p->t_new;
}

static struct problem random_problem(void)
{
    struct problem p = {
        .b = 1 + pick(3), .hkv = 1 + pick(2), .s = 1 + pick(5), .t_new = 1 + pick(6), .d = 1 + pick(9), .dv = 1 + pick(9)
    };
    p.hq = p.hkv * (1 + pick(3));
    p.is_3d = pick(2), p.is_causal = pick(2), p.mask_kind = pick(3), p.mode = pick(4);
    p.has_past = pick(3) == 0, p.has_lengths = !p.has_past && pick(3) == 0;
    if (p.has_past) p.past = pick(5);
    if (p.has_past && pick(2)) p.t_new = p.s;
    p.left = pick(3) ? -1 : pick(4), p.right = pick(3) ? -1 : pick(3);
    p.scale = pick(2) ? uniform(0.1f, 1) : 0, p.softcap = pick(3) ? 0 : uniform(0.5f, 3);
    for (int64_t i = 0; i < p.b; i++) p.lengths[i] = pick((int) p.t_new + 1);
    p.mask_rank = 1 + pick(4);
    const int64_t full[4] = { p.b, p.hq, p.s, keys(&p) };
    for (int i = 0; i < 4; i++) p.mask_dims[i] = i == 3 || pick(2) ? full[i] : 1;
    if (p.mask_dims[3] > 2 && pick(4) == 0) p.mask_dims[3] -= 1;
    return p;
}

/* ---- the definition ---- */

static float element(const struct problem *p, const heed_tensor *t, int64_t b, int64_t h, int64_t row, int64_t i, int64_t heads,
                     int64_t dim)
{
    const int64_t rows = p->is_3d ? t->dims[1] : t->dims[2];
    return ((const float *)
                t->data)[p->is_3d ? (b * rows + row) * heads * dim + h * dim + i : ((b * heads + h) * rows + row) * dim + i];
}

static float key_element(const struct problem *p, int value, int64_t b, int64_t h, int64_t j, int64_t i)
{
    const int64_t dim = value ? p->dv : p->d;
    const heed_tensor *past = value ? &p->past_v : &p->past_k, *now = value ? &p->v : &p->k;
    if (j < p->past) return ((const float *) past->data)[((b * p->hkv + h) * p->past + j) * dim + i];
    return element(p, now, b, h, j - p->past, i, p->hkv, dim);
}

static double mask_at(const struct problem *p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const int64_t at[4] = { b, h, i, j };
    int64_t offset = 0;
    if (p->mask_kind == NO_MASK) return 0;
    if (j >= p->mask_dims[3]) return -INFINITY;
    for (int k = 4 - p->mask_rank; k < 4; k++) offset = offset * p->mask_dims[k] + (p->mask_dims[k] == 1 ? 0 : at[k]);
    if (p->mask_kind == BOOL_MASK) return ((const uint8_t *) p->mask.data)[offset] ? 0 : -INFINITY;
    return ((const float *) p->mask.data)[offset];
}

static double bias_at(const struct problem *p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const int64_t position = i + (p->has_past ? p->past : p->has_lengths ? p->lengths[b] - p->s : 0);
    if (p->is_causal && j > position) return -INFINITY;
    if (p->right >= 0 && j > position + p->right) return -INFINITY;
    if (p->left >= 0 && j < position - p->left) return -INFINITY;
    if (p->has_lengths && j >= p->lengths[b]) return -INFINITY;
    return mask_at(p, b, h, i, j);
}

/* One row: its scores at the place that `mode` says, and its result. */
static void row(const struct problem *p, int64_t b, int64_t h, int64_t i, double *scores, double *out)
{
    const int64_t n = keys(p), g = h / (p->hq / p->hkv);
    const double scale = p->scale != 0 ? p->scale : 1 / sqrt((double) p->d);
    double weights[32], highest = -INFINITY, sum = 0;
    for (int64_t j = 0; j < n; j++) {
        double s = 0;
        for (int64_t d = 0; d < p->d; d++)
            s += scale * element(p, &p->q, b, h, i, d, p->hq, p->d) * key_element(p, 0, b, g, j, d);
        scores[j] = s;
        if (p->softcap > 0) s = p->softcap * tanh(s / p->softcap);
        if (p->mode == 1) scores[j] = s;
        s += bias_at(p, b, h, i, j);
        if (p->mode == 2) scores[j] = s;
        weights[j] = s;
        highest = fmax(highest, s);
    }
    for (int64_t j = 0; j < n; j++) sum += weights[j] = highest == -INFINITY ? 0 : exp(weights[j] - highest);
    for (int64_t j = 0; j < n; j++) weights[j] = sum > 0 ? weights[j] / sum : 0;
    for (int64_t j = 0; j < n && p->mode == 3; j++) scores[j] = weights[j];
    for (int64_t d = 0; d < p->dv; d++) {
        out[d] = 0;
        for (int64_t j = 0; j < n; j++) out[d] += weights[j] * key_element(p, 1, b, g, j, d);
    }
}

/* ---- the graph ---- */

static heed_value *add_input(heed_graph *g, const char *name, heed_tensor *t, heed_dtype type, int rank, const int64_t *dims)
{
    *t = heed_tensor_make(type, rank, dims);
    t->data = malloc(heed_tensor_bytes(t) + 1);
    assert_non_null(t->data);
    fill(t);
    return input(g, name, type, rank, dims);
}

static heed_value *operand(heed_graph *g, const char *name, const struct problem *p, heed_tensor *t, int64_t heads, int64_t rows,
                           int64_t dim)
{
    const int64_t four[4] = { p->b, heads, rows, dim }, three[3] = { p->b, rows, heads * dim };
    return p->is_3d ? add_input(g, name, t, HEED_F32, 3, three) : add_input(g, name, t, HEED_F32, 4, four);
}

static heed_graph *build(struct problem *p, heed_tensor *inputs)
{
    heed_graph *g = heed_graph_create(ctx);
    heed_value *in[7] = { operand(g, "q", p, &p->q, p->hq, p->s, p->d), operand(g, "k", p, &p->k, p->hkv, p->t_new, p->d),
                          operand(g, "v", p, &p->v, p->hkv, p->t_new, p->dv) };
    int n = 0;
    inputs[n++] = p->q, inputs[n++] = p->k, inputs[n++] = p->v;
    if (p->mask_kind != NO_MASK) {
        in[3] = add_input(g, "mask", &p->mask, p->mask_kind == BOOL_MASK ? HEED_BOOL : HEED_F32, p->mask_rank,
                          p->mask_dims + 4 - p->mask_rank);
        inputs[n++] = p->mask;
    }
    if (p->has_past) {
        in[4] = add_input(g, "past_k", &p->past_k, HEED_F32, 4, (int64_t[]){ p->b, p->hkv, p->past, p->d });
        in[5] = add_input(g, "past_v", &p->past_v, HEED_F32, 4, (int64_t[]){ p->b, p->hkv, p->past, p->dv });
        inputs[n++] = p->past_k, inputs[n++] = p->past_v;
    }
    if (p->has_lengths) {
        heed_tensor lengths;
        in[6] = add_input(g, "lengths", &lengths, HEED_I64, 1, &p->b);
        memcpy(lengths.data, p->lengths, sizeof(int64_t) * (size_t) p->b);
        inputs[n++] = lengths;
    }
    heed_node *a = node(g, "Attention", 7, in, 4);
    a->version = 25;
    for (int i = 0; i < 4; i++) heed_graph_add_output(g, a->outputs[i]);
    set_int(g, a->outputs[0], "is_causal", p->is_causal);
    set_int(g, a->outputs[0], "qk_matmul_output_mode", p->mode);
    set_int(g, a->outputs[0], "left_window_size", p->left);
    set_int(g, a->outputs[0], "right_window_size", p->right);
    if (p->is_3d) set_int(g, a->outputs[0], "q_num_heads", p->hq), set_int(g, a->outputs[0], "kv_num_heads", p->hkv);
    if (p->scale != 0) set_float(g, a->outputs[0], "scale", p->scale);
    if (p->softcap != 0) set_float(g, a->outputs[0], "softcap", p->softcap);
    return g;
}

static void compare(const struct problem *p, const heed_program *program)
{
    const heed_tensor *y = heed_program_output(program, 0), *qk = heed_program_output(program, 3);
    const int64_t n = keys(p);
    for (int64_t b = 0; b < p->b; b++)
        for (int64_t h = 0; h < p->hq; h++)
            for (int64_t i = 0; i < p->s; i++) {
                double scores[32], out[16];
                row(p, b, h, i, scores, out);
                for (int64_t d = 0; d < p->dv; d++)
                    if (!(fabs(element(p, y, b, h, i, d, p->hq, p->dv) - out[d]) < 1e-5))
                        fail_msg("seed %u: result differs", seed);
                for (int64_t j = 0; j < n; j++) {
                    const float got = at(qk, ((b * p->hq + h) * p->s + i) * n + j);
                    if (got != scores[j] && !(fabs(got - scores[j]) < 1e-5 * (1 + fabs(scores[j]))))
                        fail_msg("seed %u: scores differ", seed);
                }
            }
    for (int which = 0; which < 2; which++)
        for (int64_t b = 0; b < p->b; b++)
            for (int64_t h = 0; h < p->hkv; h++)
                for (int64_t j = 0; j < n; j++)
                    for (int64_t d = 0, dim = which ? p->dv : p->d; d < dim; d++)
                        assert_true(at(heed_program_output(program, 1 + which), ((b * p->hkv + h) * n + j) * dim + d) ==
                                    key_element(p, which, b, h, j, d));
}

static void test_against_definition(void **state)
{
    (void) state;
    for (int round = 0; round < 150; round++) {
        struct problem p = random_problem();
        heed_tensor inputs[7];
        heed_graph *g = build(&p, inputs);
        for (int fuse = 0; fuse < 2; fuse++) {
            heed_rewriter r;
            heed_graph *copy = rewritten(g, fuse, &r);
            assert_int_equal(count_nodes(copy, "", "Attention"), 0);
            assert_int_equal(count_nodes(copy, "heed", "Attention"), 1);
            assert_int_equal(heed_node_int(find_node(copy, "heed", "Attention"), "explode", 0), !fuse);
            assert_int_equal(r.n_findings >= 1, fuse);
            heed_program *program = run_graph(copy, inputs);
            compare(&p, program);
            heed_program_destroy(program);
            heed_graph_destroy(copy);
        }
        for (int i = 0; i < g->n_inputs; i++) free(inputs[i].data);
        heed_graph_destroy(g);
    }
}

/* Nothing but the fused node and views is left of rank 3, and K and V that were repeated are taken as they were. */
static void test_shape_of_result(void **state)
{
    (void) state;
    heed_graph *g = heed_graph_create(ctx);
    const int64_t q_dims[3] = { -1, -2, 32 }, two = 2;
    heed_value *q = input(g, "q", HEED_F32, 3, q_dims), *k = input(g, "k", HEED_F32, 3, q_dims);
    heed_value *a = op(g, "Attention", IN(q, k, k));
    a->producer->version = 23;
    set_int(g, a, "q_num_heads", 4), set_int(g, a, "kv_num_heads", 4);
    heed_graph_add_output(g, a);
    struct outcome o = try_graph(g, 2e-5);
    assert_int_equal(o.n_fused, 1);
    assert_int_equal(heed_node_int(find_node(o.graph, "heed", "Attention"), "out_layout", 0), 1);
    done(&o, g);

    g = heed_graph_create(ctx);
    const int64_t q4[4] = { 2, 4, 3, 8 }, kv[4] = { 2, 2, 5, 8 };
    q = input(g, "q", HEED_F32, 4, q4);
    heed_value *wide[2];
    for (int i = 0; i < 2; i++) {
        heed_value *x = op(g, "Unsqueeze", IN(input(g, i ? "v" : "k", HEED_F32, 4, kv), ints(g, 1, &two)));
        wide[i] = reshape(g, op(g, "Expand", IN(x, ints(g, 5, (int64_t[]){ 2, 2, 2, 5, 8 }))), 4, (int64_t[]){ 2, 4, 5, 8 });
    }
    a = op(g, "Attention", IN(q, wide[0], wide[1]));
    a->producer->version = 23;
    heed_graph_add_output(g, a);
    o = try_graph(g, 2e-5);
    assert_int_equal(find_node(o.graph, "heed", "Attention")->inputs[1]->fact.dims[1], 2);
    assert_int_equal(count_nodes(o.graph, "", "Expand"), 0);
    done(&o, g);
}

static void assert_rejected(heed_graph *g, const char *words)
{
    heed_rewriter r = { .ctx = ctx, .graph = g, .fuse = 1 };
    assert_int_equal(heed_rewrite(&r), HEED_ERR_ARGUMENT);
    if (!strstr(heed_last_message(), words)) fail_msg("the message is \"%s\", expected \"%s\" in it", heed_last_message(), words);
    assert_non_null(strstr(heed_last_message(), "Attention"));
    heed_graph_destroy(g);
}

static heed_value *simple(heed_graph **g, int rank, int64_t last)
{
    *g = heed_graph_create(ctx);
    const int64_t three[3] = { 2, 3, last }, four[4] = { 2, 2, 3, last };
    heed_value *q = input(*g, "q", HEED_F32, rank, rank == 3 ? three : four);
    heed_value *a = node(*g, "Attention", 7, (heed_value *[]){ q, q, q, NULL, NULL, NULL, NULL }, 1)->outputs[0];
    a->producer->version = 25;
    heed_graph_add_output(*g, a);
    return a;
}

static void test_bad_nodes(void **state)
{
    (void) state;
    heed_graph *g;
    heed_value *a = simple(&g, 3, 8);
    assert_rejected(g, "q_num_heads is 0");
    a = simple(&g, 3, 9);
    set_int(g, a, "q_num_heads", 2), set_int(g, a, "kv_num_heads", 2);
    assert_rejected(g, "not a multiple of 2 heads");
    a = simple(&g, 4, 8);
    set_int(g, a, "left_window_size", -2);
    assert_rejected(g, "left_window_size is -2");
    a = simple(&g, 4, 8);
    heed_node_set_input(a->producer, 4, g->inputs[0]);
    assert_rejected(g, "past_key and past_value");
    a = simple(&g, 4, 8);
    heed_node_set_input(a->producer, 3, input(g, "m", HEED_F32, 1, (int64_t[]){ 4 }));
    assert_rejected(g, "there are 3 keys");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_definition),
        cmocka_unit_test(test_shape_of_result),
        cmocka_unit_test(test_bad_nodes),
    };
    start();
    return cmocka_run_group_tests(tests, setup, teardown);
}
