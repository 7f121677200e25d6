/* Results over parts of the keys, joined, against the whole. */
#include <math.h>
#include <string.h>

#include "case.h"
#include "unit/test.h"

static heed_context *context;

static int start(void **state)
{
    (void) state;
    rng_start();
    return heed_context_create(&context, NULL) != HEED_OK;
}

static int stop(void **state)
{
    (void) state;
    heed_context_destroy(context);
    return 0;
}

/* A part of a sample: keys [begin, end), without sinks, into arrays of its own. */
struct part {
    array out, lse;
};

static void run_part(const sample *c, struct part *p, int64_t begin, int64_t end)
{
    const spec *s = &c->s;
    heed_attention_desc d = c->desc;
    heed_attention_args a = c->args;
    heed_attention_plan *plan;
    d.has_sinks = 0, d.want_lse = 1;
    array_make(&p->out, s->dtype, 4, (int64_t[]){ s->batch, s->heads_q, s->len_q, s->head_dim_v }, s->order, 0);
    array_make(&p->lse, HEED_F32, 3, (int64_t[]){ s->batch, s->heads_q, s->len_q }, s->order, 0);

    DLTensor k = c->k.dl, v = c->v.dl, mask = c->mask.dl;
    int64_t k_dims[4], v_dims[4], mask_dims[4];
    memcpy(k_dims, c->k.dims, sizeof k_dims), memcpy(v_dims, c->v.dims, sizeof v_dims),
        memcpy(mask_dims, c->mask.dims, sizeof mask_dims);
    k_dims[2] = v_dims[2] = mask_dims[3] = end - begin;
    size_t size = heed_dtype_size(s->dtype);
    k.shape = k_dims, k.byte_offset = (uint64_t) (begin * c->k.strides[2]) * size;
    v.shape = v_dims, v.byte_offset = (uint64_t) (begin * c->v.strides[2]) * size;
    mask.shape = mask_dims, mask.byte_offset = (uint64_t) (begin * c->mask.strides[3]) * heed_dtype_size(c->mask.dtype);
    a.k = &k, a.v = &v, a.out = &p->out.dl, a.lse = &p->lse.dl, a.sinks = NULL;
    if (s->mask != HEED_MASK_NONE) a.mask = &mask;
    if (heed_attention_plan_create(&plan, context, &d) != HEED_OK || heed_attention_run(plan, &a, NULL, 0) != HEED_OK)
        fail_msg("%s", heed_last_message());
    heed_attention_plan_destroy(plan);
}

/* Halves are rounded in each part and once more: one unit more than a single run may be off. Compared in f32 it is exact
 * enough for the same bounds. Masks are moderate, because a row that sees nothing above the type's lowest number has a
 * log-sum-exp that absorbs how many keys it saw: no merge can know how to weigh its parts. */
static void test_against_whole(void **state)
{
    (void) state;
    for (int n = 0; n < 60; n++) {
        spec s = spec_random(n % 3 == 0 ? HEED_F32 : n % 3 == 1 ? HEED_F16 : HEED_BF16);
        s.len_k = 2 + rng_below(60), s.lse = 1, s.mask_moderate = 1, s.sinks = n % 2, s.order = (layout) (n % LAYOUT_COUNT);
        if (n % 5 == 0) s.mask = HEED_MASK_F32;
        sample c;
        struct part a, b;
        sample_make(&c, &s);
        int64_t cut = rng_below(s.len_k + 1); /* one part may be empty */
        run_part(&c, &a, 0, cut), run_part(&c, &b, cut, s.len_k);
        const float *sinks = s.sinks ? c.sinks : NULL;
        int in_place = n % 4 == 3;
        if (heed_attention_merge(context, &a.out.dl, &a.lse.dl, &b.out.dl, &b.lse.dl, sinks, in_place ? &a.out.dl : &c.out.dl,
                                 in_place ? &a.lse.dl : &c.lse.dl) != HEED_OK)
            fail_msg("%s", heed_last_message());
        if (in_place) {
            memcpy(c.out.data, a.out.data, c.out.reach * heed_dtype_size(s.dtype));
            memcpy(c.lse.data, a.lse.data, c.lse.reach * sizeof(float));
        }
        sample_check(&c, "merge");
        array_free(&a.out), array_free(&a.lse), array_free(&b.out), array_free(&b.lse);
        sample_free(&c);
    }
}

/* A part that saw nothing has no say, whatever lies in it; a sink far above everything leaves 0. */
static void test_edges(void **state)
{
    (void) state;
    const int64_t dims[4] = { 1, 2, 1, 3 };
    array a, b, out, lse_a, lse_b, lse;
    array *arrays[] = { &a, &b, &out }, *lses[] = { &lse_a, &lse_b, &lse };
    for (int i = 0; i < 3; i++)
        array_make(arrays[i], HEED_F32, 4, dims, LAYOUT_BHLD, 0), array_make(lses[i], HEED_F32, 3, dims, LAYOUT_BHLD, 0);
    for (int64_t h = 0; h < 2; h++) {
        for (int64_t d = 0; d < 3; d++) array_set(&a, 0, h, 0, d, 5), array_set(&b, 0, h, 0, d, NAN);
        array_set(&lse_a, 0, h, 0, 0, 900), array_set(&lse_b, 0, h, 0, 0, -INFINITY);
    }
    assert_int_equal(heed_attention_merge(context, &a.dl, &lse_a.dl, &b.dl, &lse_b.dl, NULL, &out.dl, NULL), HEED_OK);
    assert_true(array_get(&out, 0, 1, 0, 2) == 5);
    const float sinks[2] = { 1e4f, -INFINITY };
    assert_int_equal(heed_attention_merge(context, &a.dl, &lse_a.dl, &b.dl, &lse_b.dl, sinks, &out.dl, &lse.dl), HEED_OK);
    assert_true(array_get(&out, 0, 0, 0, 0) == 0);
    assert_true(array_get(&out, 0, 1, 0, 0) == 5);
    assert_true(array_get(&lse, 0, 0, 0, 0) == 900);
    for (int64_t h = 0; h < 2; h++) array_set(&lse_a, 0, h, 0, 0, -INFINITY);
    assert_int_equal(heed_attention_merge(context, &a.dl, &lse_a.dl, &b.dl, &lse_b.dl, NULL, &out.dl, &lse.dl), HEED_OK);
    assert_true(array_get(&out, 0, 0, 0, 0) == 0);
    assert_true(array_get(&lse, 0, 0, 0, 0) == -INFINITY);
    for (int i = 0; i < 3; i++) array_free(arrays[i]), array_free(lses[i]);
}

/* What a fault changes: the tensors as they are, then one thing off. */
struct merge_args {
    DLTensor a, lse_a, b, lse_b, out, out_lse;
    const DLTensor *pass[6];
    const float *sinks;
    heed_context *ctx;
};

#define SPOIL(name, statement)                                                                                                   \
    static void name(struct merge_args *m)                                                                                       \
    {                                                                                                                            \
        statement;                                                                                                               \
    }
static int64_t other_dims[4] = { 2, 3, 4, 6 };
static int64_t repeat_strides[4] = { 0, 20, 5, 1 };
SPOIL(m_ctx, m->ctx = NULL)
SPOIL(m_a, m->pass[0] = NULL)
SPOIL(m_lse_b, m->pass[3] = NULL)
SPOIL(m_out, m->pass[4] = NULL)
SPOIL(m_a_type, m->a.dtype.code = kDLInt)
SPOIL(m_b_type, m->b.dtype.bits = 16)
SPOIL(m_lse_type, m->lse_a.dtype.bits = 64)
SPOIL(m_rank, m->a.ndim = 3)
SPOIL(m_dims, m->b.shape = other_dims)
SPOIL(m_lse_rank, m->lse_b.ndim = 4)
SPOIL(m_device, m->b.device.device_type = kDLMetal)
SPOIL(m_sinks, m->sinks = (const float *) (const void *) ((const char *) m->sinks + 2))
SPOIL(m_out_b, m->out.data = m->b.data)
SPOIL(m_out_a, m->out.data = (char *) m->a.data + 4)
SPOIL(m_out_lse, m->out_lse.data = m->lse_b.data)
SPOIL(m_lse_out, m->out_lse.data = m->out.data)
SPOIL(m_repeat, m->out.strides = repeat_strides)
SPOIL(m_sinks_out, m->sinks = m->out.data)

static const struct {
    void (*spoil)(struct merge_args *m);
    const char *message;
} faults[] = {
    { m_ctx, "ctx: is NULL" },
    { m_a, "a: is NULL, expected a tensor" },
    { m_lse_b, "lse_b: is NULL, expected a tensor" },
    { m_out, "out: is NULL, expected a tensor" },
    { m_a_type, "a: type is i32, expected f32, f16 or bf16" },
    { m_b_type, "b: type is f16, expected f32" },
    { m_lse_type, "lse_a: type is f64, expected f32" },
    { m_rank, "a: rank is 3, expected 4 (batch, heads_q, len_q, head_dim_v)" },
    { m_dims, "b: dimension 3 is 6, expected 5 as in a" },
    { m_lse_rank, "lse_b: rank is 4, expected 3 (batch, heads_q, len_q)" },
    { m_device, "b: device type is 8, expected 1 (CPU)" },
    { m_sinks, "sinks: is not aligned to its elements of 4 bytes" },
    { m_out_b, "out: overlaps b" },
    { m_out_a, "out: overlaps a" },
    { m_out_lse, "out_lse: overlaps lse_b" },
    { m_lse_out, "out_lse: overlaps out" },
    { m_repeat, "out: its strides place several elements at one address" },
    { m_sinks_out, "out: overlaps sinks" },
};

static void test_faults(void **state)
{
    (void) state;
    static const float sinks[4] = { 0 };
    const int64_t dims[4] = { 2, 3, 4, 5 };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        array arrays[6];
        for (int n = 0; n < 6; n++) array_make(&arrays[n], HEED_F32, n % 2 ? 3 : 4, dims, LAYOUT_BHLD, 0);
        struct merge_args m = { arrays[0].dl,
                                arrays[1].dl,
                                arrays[2].dl,
                                arrays[3].dl,
                                arrays[4].dl,
                                arrays[5].dl,
                                { &m.a, &m.lse_a, &m.b, &m.lse_b, &m.out, &m.out_lse },
                                sinks,
                                context };
        faults[i].spoil(&m);
        heed_status status =
            heed_attention_merge(m.ctx, m.pass[0], m.pass[1], m.pass[2], m.pass[3], m.sinks, m.pass[4], m.pass[5]);
        assert_int_equal(status, HEED_ERR_ARGUMENT);
        assert_string_equal(heed_last_message(), faults[i].message);
        for (int n = 0; n < 6; n++) array_free(&arrays[n]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_against_whole), cmocka_unit_test(test_edges),
                                        cmocka_unit_test(test_faults) };
    return cmocka_run_group_tests(tests, start, stop);
}
