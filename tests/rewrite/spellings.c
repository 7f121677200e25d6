/* Attention in random spellings: where the scale is, how K is turned, what hides keys and where, casts, guards, repeated heads,
 * batches folded into rank 3, symbolic sizes. Every one must fuse and give what the plain graph gives. A part of them gets a
 * twist that makes it something else: then only the result counts. */
#include "rewrite/rewrite.h"

struct spelling {
    heed_graph *g;
    int64_t b, h, groups, s, t, d, dv; /* b, s, t may be symbols below zero */
    int folded;                        /* Q, K, V as [B*H, ..] */
    int twist;
};

static heed_value *number(struct spelling *p, float x)
{
    const int64_t ones[2] = { 1, 1 };
    return constant(p->g, HEED_F32, pick(3), ones, &x);
}

/* x * factor in one of three ways. */
static heed_value *times(struct spelling *p, heed_value *x, float factor)
{
    if (pick(3) == 0) return op(p->g, "Div", IN(x, number(p, 1 / factor)));
    return pick(2) ? op(p->g, "Mul", IN(x, number(p, factor))) : op(p->g, "Mul", IN(number(p, factor), x));
}

/* What changes nothing. */
static heed_value *maybe_wrapped(struct spelling *p, heed_value *x)
{
    const int kind = pick(6);
    if (kind == 0) return op(p->g, "Identity", IN(x));
    if (kind == 1) return op(p->g, "Dropout", IN(x));
    if (kind == 2) return cast(p->g, cast(p->g, x, 11), 1);
    return x;
}

/* An operand [B, heads, rows, dim], from an input of that form or of [B, rows, heads, dim]. */
static heed_value *operand(struct spelling *p, const char *name, int64_t heads, int64_t rows, int64_t dim)
{
    const int64_t direct[4] = { p->b, heads, rows, dim }, by_row[4] = { p->b, rows, heads, dim }, bshd[4] = { 0, 2, 1, 3 };
    if (pick(2)) return input(p->g, name, HEED_F32, 4, direct);
    return transpose(p->g, input(p->g, name, HEED_F32, 4, by_row), 4, bshd);
}

/* [B, G, T, dim] to [B, H, T, dim], each head repeated in place. */
static heed_value *repeated(struct spelling *p, heed_value *x, int64_t dim)
{
    const int64_t two = 2, repeats[5] = { 1, 1, p->h / p->groups, 1, 1 };
    if (p->groups == p->h) return x;
    x = op(p->g, "Unsqueeze", IN(x, ints(p->g, 1, &two)));
    x = op(p->g, pick(2) ? "Tile" : "Expand", IN(x, ints(p->g, 5, repeats)));
    if (p->t >= 0) return reshape(p->g, x, 4, (int64_t[]){ 0, p->h, p->t, dim });
    /* [B, G, R, T, dim]: sizes of a Reshape from the shape itself, as exporters do. */
    heed_value *length = op(p->g, "Shape", IN(x));
    set_int(p->g, length, "start", 3), set_int(p->g, length, "end", 4);
    heed_value *parts[] = { ints(p->g, 2, (int64_t[]){ 0, p->h }), length, ints(p->g, 1, &dim) };
    heed_value *sizes = op(p->g, "Concat", 3, parts);
    set_int(p->g, sizes, "axis", 0);
    return op(p->g, "Reshape", IN(x, sizes));
}

static heed_value *fold(struct spelling *p, heed_value *x, int64_t rows, int64_t dim)
{
    return p->folded ? reshape(p->g, x, 3, (int64_t[]){ -1, rows, dim }) : x;
}

/* [.., T, D] to [.., D, T]. */
static heed_value *turned(struct spelling *p, heed_value *k)
{
    if (p->folded) return transpose(p->g, k, 3, (int64_t[]){ 0, 2, 1 });
    if (p->t < 0 || pick(2)) return transpose(p->g, k, 4, (int64_t[]){ 0, 1, 3, 2 });
    heed_value *flat = reshape(p->g, k, 3, (int64_t[]){ -1, p->t, p->d });
    flat = transpose(p->g, flat, 3, (int64_t[]){ 0, 2, 1 });
    return reshape(p->g, flat, 4, (int64_t[]){ p->b < 0 ? -1 : p->b, p->h, p->d, p->t });
}

/* ---- masks ---- */

static heed_value *mask_input(struct spelling *p, heed_dtype type, int i)
{
    const char *const names[] = { "mask0", "mask1", "mask2" };
    int64_t full[4] = { p->b, p->h, p->s, p->t }, dims[4];
    const int rank = p->folded ? 3 : 1 + pick(4);
    if (p->folded) full[1] = p->b * p->h, full[0] = 1;
    for (int k = 0; k < 4; k++) dims[k] = pick(2) ? full[k] : 1;
    if (pick(2)) dims[3] = full[3];
    return input(p->g, names[i], type, rank, dims + 4 - rank);
}

static heed_value *masked(struct spelling *p, heed_value *s, int i)
{
    const int kind = pick(6);
    if (kind < 2) {
        heed_value *m = mask_input(p, HEED_F32, i);
        return kind ? op(p->g, "Add", IN(s, m)) : op(p->g, "Add", IN(m, s));
    }
    if (kind == 2) return op(p->g, "Sub", IN(s, mask_input(p, HEED_F32, i)));
    heed_value *c = mask_input(p, HEED_BOOL, i);
    const float lowest = p->twist == 4 ? -3.0f : pick(2) ? -INFINITY : -3.4028234663852886e38f;
    if (kind == 3) return op(p->g, "Where", IN(c, s, number(p, lowest)));
    if (kind == 4) return op(p->g, "Where", IN(c, number(p, lowest), s));
    return op(p->g, "Add", IN(s, op(p->g, "Where", IN(c, number(p, 0), number(p, lowest)))));
}

/* ---- the whole ---- */

static heed_value *scores(struct spelling *p)
{
    heed_value *q = operand(p, "q", p->h, p->s, p->d), *k = repeated(p, operand(p, "k", p->groups, p->t, p->d), p->d);
    const int where = pick(4);
    if (where == 0) q = times(p, q, 0.5f);
    q = fold(p, q, p->s, p->d), k = fold(p, k, p->t, p->d);
    if (where == 1) k = times(p, k, 0.4f), q = times(p, q, 0.8f);
    heed_value *kt = turned(p, k);
    if (where == 2) kt = times(p, kt, 0.3f);
    heed_value *s = op(p->g, "MatMul", IN(q, kt));
    if (where == 3) s = times(p, s, 0.25f);
    if (pick(4) == 0) s = times(p, op(p->g, "Tanh", IN(times(p, s, 0.5f))), 2.0f);
    s = maybe_wrapped(p, s);
    for (int i = 0, n = pick(4); i < n && i < 3; i++) s = masked(p, s, i);
    if (pick(4) == 0) s = times(p, s, 0.75f);
    return maybe_wrapped(p, s);
}

static void build(struct spelling *p)
{
    heed_value *s = scores(p);
    if (p->twist == 1) s = op(p->g, "Relu", IN(s));
    heed_value *x = softmax(p->g, s, p->twist == 2 ? -2 : pick(2) ? -1 : p->folded ? 2 : 3);
    if (p->twist == 3) x = times(p, x, 0.9f);
    if (pick(3) == 0) x = op(p->g, "Where", IN(op(p->g, "IsNaN", IN(x)), number(p, 0), x));
    x = maybe_wrapped(p, x);
    heed_value *v = fold(p, repeated(p, operand(p, "v", p->groups, p->t, p->dv), p->dv), p->t, p->dv);
    heed_value *out = op(p->g, "MatMul", IN(x, v));
    if (p->folded) out = reshape(p->g, out, 4, (int64_t[]){ p->b, p->h, p->s, p->dv });
    if (pick(2)) out = reshape(p->g, transpose(p->g, out, 4, (int64_t[]){ 0, 2, 1, 3 }), 3, (int64_t[]){ 0, 0, p->h * p->dv });
    heed_graph_add_output(p->g, out);
    if (p->twist == 5) heed_graph_add_output(p->g, op(p->g, "Neg", IN(s)));
    if (p->twist == 6) heed_graph_add_output(p->g, x);
}

static struct spelling random_spelling(int twist)
{
    struct spelling p = { .g = heed_graph_create(ctx),
                          .b = 1 + pick(3),
                          .s = 1 + pick(8),
                          .t = 1 + pick(9),
                          .d = 1 + pick(12),
                          .dv = 1 + pick(12),
                          .twist = twist };
    p.groups = 1 + pick(3), p.h = p.groups * (1 + pick(3));
    p.folded = pick(4) == 0;
    if (!p.folded && pick(3) == 0) p.b = -1, p.s = -2, p.t = -3;
    return p;
}

static void test_random_spellings(void **state)
{
    (void) state;
    for (int round = 0; round < 300; round++) {
        const unsigned own = seed + (unsigned) round;
        srand(own);
        struct spelling p = random_spelling(0);
        build(&p);
        struct outcome o = try_graph(p.g, 3e-5);
        if (o.n_fused != 1) print_graph(o.graph);
        if (o.n_fused != 1) fail_msg("seed %u, round %d: not fused: %s", own, round, o.reason ? o.reason : "no finding");
        done(&o, p.g);
    }
}

static void test_random_twists(void **state)
{
    (void) state;
    for (int round = 0; round < 150; round++) {
        srand(seed + 1000000u + (unsigned) round);
        struct spelling p = random_spelling(1 + round % 6);
        build(&p);
        struct outcome o = try_graph(p.g, 3e-5);
        if (p.twist != 4) assert_int_equal(o.n_fused, 0);
        done(&o, p.g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_spellings),
        cmocka_unit_test(test_random_twists),
    };
    start();
    return cmocka_run_group_tests(tests, setup, teardown);
}
