/* Bad input: a status, a message that names the argument with what it was and should be, and nothing written. */
#include <math.h>
#include <stdio.h>
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

static void expect(heed_status got, heed_status wanted, const char *message)
{
    if (got == wanted && strcmp(heed_last_message(), message) == 0) return;
    fail_msg("%s: '%s', expected %s: '%s'", heed_status_string(got), got == HEED_OK ? "" : heed_last_message(),
             heed_status_string(wanted), message);
}

/* Descriptors. */
struct desc_fault {
    void (*spoil)(heed_attention_desc *d);
    const char *message;
};

#define SPOIL_DESC(name, statement)                                                                                              \
    static void name(heed_attention_desc *d)                                                                                     \
    {                                                                                                                            \
        statement;                                                                                                               \
    }
SPOIL_DESC(d_size, d->struct_size = 3)
SPOIL_DESC(d_size_huge, d->struct_size = 100000)
SPOIL_DESC(d_int, d->dtype = ((DLDataType){ kDLInt, 32, 1 }))
SPOIL_DESC(d_f64, d->dtype.bits = 64)
SPOIL_DESC(d_lanes, d->dtype.lanes = 4)
SPOIL_DESC(d_batch, d->max_batch = -1)
SPOIL_DESC(d_heads, d->heads_q = 0)
SPOIL_DESC(d_heads_kv, d->heads_kv = 0)
SPOIL_DESC(d_group, (d->heads_q = 7, d->heads_kv = 2))
SPOIL_DESC(d_len_q, d->max_len_q = -5)
SPOIL_DESC(d_len_k, d->max_len_k = -5)
SPOIL_DESC(d_dim, d->head_dim = 0)
SPOIL_DESC(d_dim_large, d->head_dim = 1025)
SPOIL_DESC(d_dim_v, d->head_dim_v = 2000)
SPOIL_DESC(d_scale, d->scale = -INFINITY)
SPOIL_DESC(d_softcap, d->softcap = -1)
SPOIL_DESC(d_softcap_nan, d->softcap = NAN)
SPOIL_DESC(d_mask, d->mask = (heed_mask_kind) 9)
SPOIL_DESC(d_mode, d->offset_mode = (heed_offset_mode) 4)
SPOIL_DESC(d_left, d->window_left = -2)
SPOIL_DESC(d_right, d->window_right = INT64_MIN)
SPOIL_DESC(d_overflow, (d->max_batch = d->max_len_q = INT64_C(1) << 31))
SPOIL_DESC(d_overflow_k, (d->heads_kv = d->heads_q = 1 << 20, d->max_len_k = INT64_C(1) << 40))
SPOIL_DESC(d_kernel, d->kernel = "fastest")

static const struct desc_fault desc_faults[] = {
    { d_size, "desc: struct_size is 3; start from heed_attention_desc_init()" },
    { d_size_huge, "desc: struct_size is 100000; start from heed_attention_desc_init()" },
    { d_int, "dtype: is i32 (code 0, 32 bits, 1 lanes), expected f32, f16 or bf16" },
    { d_f64, "dtype: is f64 (code 2, 64 bits, 1 lanes), expected f32, f16 or bf16" },
    { d_lanes, "dtype: is ? (code 2, 32 bits, 4 lanes), expected f32, f16 or bf16" },
    { d_batch, "max_batch: is -1, expected 0 to 9223372036854775807" },
    { d_heads, "heads_q: is 0, expected 1 to 9223372036854775807" },
    { d_heads_kv, "heads_kv: is 0, expected 1 to 9223372036854775807" },
    { d_group, "heads_q: is 7, expected a multiple of heads_kv, which is 2" },
    { d_len_q, "max_len_q: is -5, expected 0 to 9223372036854775807" },
    { d_len_k, "max_len_k: is -5, expected 0 to 9223372036854775807" },
    { d_dim, "head_dim: is 0, expected 1 to 1024" },
    { d_dim_large, "head_dim: is 1025, expected 1 to 1024" },
    { d_dim_v, "head_dim_v: is 2000, expected 0 to 1024" },
    { d_scale, "scale: is -inf, expected a finite value, or NaN for 1/sqrt(head_dim)" },
    { d_softcap, "softcap: is -1, expected 0 (off) or a finite value above" },
    { d_softcap_nan, "softcap: is nan, expected 0 (off) or a finite value above" },
    { d_mask, "mask: is 9, expected 0 to 3" },
    { d_mode, "offset_mode: is 4, expected 0 to 3" },
    { d_left, "window_left: is -2, expected -1 to 9223372036854775807" },
    { d_right, "window_right: is -9223372036854775808, expected -1 to 9223372036854775807" },
    { d_overflow, "max_batch * heads_q * max_len_q * head dimension: 2147483648 * 1 * 2147483648 * 64 elements overflow" },
    { d_overflow_k, "max_batch * heads_kv * max_len_k * head dimension: 1 * 1048576 * 1099511627776 * 64 elements overflow" },
    { d_kernel, "kernel: 'fastest' is not a kernel of this build" },
};

static void test_descriptors(void **state)
{
    (void) state;
    heed_attention_plan *plan = (heed_attention_plan *) &plan;
    for (size_t i = 0; i < sizeof desc_faults / sizeof *desc_faults; i++) {
        heed_attention_desc d;
        heed_attention_desc_init(&d);
        desc_faults[i].spoil(&d);
        expect(heed_attention_plan_create(&plan, context, &d), HEED_ERR_ARGUMENT, desc_faults[i].message);
        assert_null(plan);
    }
    heed_attention_desc d;
    heed_attention_desc_init(&d);
    expect(heed_attention_plan_create(&plan, context, NULL), HEED_ERR_ARGUMENT,
           "desc: is NULL; start from heed_attention_desc_init()");
    expect(heed_attention_plan_create(&plan, NULL, &d), HEED_ERR_ARGUMENT, "ctx: is NULL");
    expect(heed_attention_plan_create(NULL, context, &d), HEED_ERR_ARGUMENT, "out: is NULL");
}

/* A caller built against an older header has a shorter struct: what it lacks keeps its default. */
static void test_short_descriptor(void **state)
{
    (void) state;
    heed_attention_desc d;
    heed_attention_desc_init(&d);
    d.struct_size = offsetof(heed_attention_desc, scale);
    d.scale = INFINITY, d.kernel = "nothing";
    heed_attention_plan *plan;
    assert_int_equal(heed_attention_plan_create(&plan, context, &d), HEED_OK);
    heed_attention_plan_destroy(plan);
}

/* Runs: f32, batch 2, heads 4/2, len 3/5, dim 8/6, a boolean mask, sinks, key lengths, offsets per batch, lse. */
static sample good;

struct run_fault {
    void (*spoil)(sample *c);
    const char *message;
};

#define SPOIL_RUN(name, statement)                                                                                               \
    static void name(sample *c)                                                                                                  \
    {                                                                                                                            \
        statement;                                                                                                               \
    }
static int64_t ones[5] = { 1, 1, 1, 1, 1 };
SPOIL_RUN(r_size, c->args.struct_size = 0)
SPOIL_RUN(r_q_null, c->args.q = NULL)
SPOIL_RUN(r_k_null, c->args.k = NULL)
SPOIL_RUN(r_v_null, c->args.v = NULL)
SPOIL_RUN(r_mask_null, c->args.mask = NULL)
SPOIL_RUN(r_out_null, c->args.out = NULL)
SPOIL_RUN(r_lse_null, c->args.lse = NULL)
SPOIL_RUN(r_data_null, c->k.dl.data = NULL)
SPOIL_RUN(r_shape_null, c->k.dl.shape = NULL)
SPOIL_RUN(r_rank, c->q.dl.ndim = 3)
SPOIL_RUN(r_rank_huge, c->q.dl.ndim = 99)
SPOIL_RUN(r_type, c->v.dl.dtype.bits = 16)
SPOIL_RUN(r_type_unknown, c->v.dl.dtype.code = 77)
SPOIL_RUN(r_device, c->v.dl.device.device_type = kDLCUDA)
SPOIL_RUN(r_negative, c->k.dims[2] = -4)
SPOIL_RUN(r_product, (c->q.dims[0] = c->q.dims[2] = INT64_C(1) << 40))
SPOIL_RUN(r_batch, c->q.dims[0] = 3)
SPOIL_RUN(r_heads_q, c->q.dims[1] = 2)
SPOIL_RUN(r_len_q, c->q.dims[2] = 4)
SPOIL_RUN(r_dim, c->q.dims[3] = 7)
SPOIL_RUN(r_k_batch, c->k.dims[0] = 1)
SPOIL_RUN(r_k_heads, c->k.dims[1] = 4)
SPOIL_RUN(r_len_k, c->k.dims[2] = 6)
SPOIL_RUN(r_k_dim, c->k.dims[3] = 6)
SPOIL_RUN(r_v_len, c->v.dims[2] = 4)
SPOIL_RUN(r_v_dim, c->v.dims[3] = 8)
SPOIL_RUN(r_align, c->q.dl.byte_offset = 2)
SPOIL_RUN(r_strides, c->q.strides[0] = INT64_MAX / 2)
SPOIL_RUN(r_mask_type, c->mask.dl.dtype = ((DLDataType){ kDLFloat, 32, 1 }))
SPOIL_RUN(r_mask_dim, c->mask.dims[3] = 4)
SPOIL_RUN(r_mask_rank, (c->mask.dl.ndim = 5, c->mask.dl.shape = ones, c->mask.dl.strides = NULL))
SPOIL_RUN(r_sinks, c->args.sinks = NULL)
SPOIL_RUN(r_sinks_align, c->args.sinks = (const float *) (const void *) ((const char *) c->sinks + 1))
SPOIL_RUN(r_lengths, c->args.key_lengths = NULL)
SPOIL_RUN(r_length_low, c->key_lengths[1] = -1)
SPOIL_RUN(r_length_high, c->key_lengths[0] = 6)
SPOIL_RUN(r_offsets, c->args.offsets = NULL)
SPOIL_RUN(r_out_dims, c->out.dims[1] = 2)
SPOIL_RUN(r_out_repeat, c->out.strides[1] = 0)
SPOIL_RUN(r_out_fold, c->out.strides[2] = 5)
SPOIL_RUN(r_out_is_q, c->out.dl.data = c->q.data)
SPOIL_RUN(r_out_in_v, c->out.dl.data = (char *) c->v.data + 4)
SPOIL_RUN(r_lse_rank, c->lse.dl.ndim = 2)
SPOIL_RUN(r_lse_type, c->lse.dl.dtype.code = kDLInt)
SPOIL_RUN(r_lse_repeat, c->lse.strides[0] = 0)
SPOIL_RUN(r_lse_in_out, c->lse.dl.data = c->out.data)

static const struct run_fault run_faults[] = {
    { r_size, "args: struct_size is 0; start from heed_attention_args_init()" },
    { r_q_null, "q: is NULL, expected a tensor" },
    { r_k_null, "k: is NULL, expected a tensor" },
    { r_v_null, "v: is NULL, expected a tensor" },
    { r_mask_null, "mask: is NULL, expected a tensor" },
    { r_out_null, "out: is NULL, expected a tensor" },
    { r_lse_null, "lse: is NULL, expected a tensor" },
    { r_data_null, "k: data is NULL" },
    { r_shape_null, "k: shape is NULL" },
    { r_rank, "q: rank is 3, expected 4 (batch, heads_q, len_q, head_dim)" },
    { r_rank_huge, "q: rank is 99, expected 0 to 8" },
    { r_type, "v: type is f16, expected f32" },
    { r_type_unknown, "v: type code 77 with 32 bits and 1 lanes is not known" },
    { r_device, "v: device type is 2, expected 1 (CPU)" },
    { r_negative, "k: dimension 2 is -4, expected 0 or more" },
    { r_product, "q: the product of its dimensions overflows" },
    { r_batch, "q: dimension 0 (batch) is 3, the plan was made for at most 2" },
    { r_heads_q, "q: dimension 1 (heads_q) is 2, expected 4" },
    { r_len_q, "q: dimension 2 (len_q) is 4, the plan was made for at most 3" },
    { r_dim, "q: dimension 3 (head_dim) is 7, expected 8" },
    { r_k_batch, "k: dimension 0 (batch) is 1, expected 2" },
    { r_k_heads, "k: dimension 1 (heads_kv) is 4, expected 2" },
    { r_len_k, "k: dimension 2 (len_k) is 6, the plan was made for at most 5" },
    { r_k_dim, "k: dimension 3 (head_dim) is 6, expected 8" },
    { r_v_len, "v: dimension 2 (len_k) is 4, expected 5" },
    { r_v_dim, "v: dimension 3 (head_dim_v) is 8, expected 6" },
    { r_align, "q: data is not aligned to its elements of 4 bytes" },
    { r_strides, "q: its strides overflow" },
    { r_mask_type, "mask: type is f32, expected bool" },
    { r_mask_dim, "mask: dimension 3 (len_k) is 4, expected 1 or 5" },
    { r_mask_rank, "mask: rank is 5, expected at most 4 (batch, heads_q, len_q, len_k)" },
    { r_sinks, "sinks: is NULL, expected an array of 4" },
    { r_sinks_align, "sinks: is not aligned to its elements of 4 bytes" },
    { r_lengths, "key_lengths: is NULL, expected an array of 2" },
    { r_length_low, "key_lengths: element 1 is -1, expected 0 to 5 (len_k)" },
    { r_length_high, "key_lengths: element 0 is 6, expected 0 to 5 (len_k)" },
    { r_offsets, "offsets: is NULL, expected an array of 2" },
    { r_out_dims, "out: dimension 1 (heads_q) is 2, expected 4" },
    { r_out_repeat, "out: its strides place several elements at one address" },
    { r_out_fold, "out: its strides place several elements at one address" },
    { r_out_is_q, "out: overlaps q" },
    { r_out_in_v, "out: overlaps v" },
    { r_lse_rank, "lse: rank is 2, expected 3 (batch, heads_q, len_q)" },
    { r_lse_type, "lse: type is i32, expected f32" },
    { r_lse_repeat, "lse: its strides place several elements at one address" },
    { r_lse_in_out, "lse: overlaps out" },
};

static spec good_spec(void)
{
    spec s = spec_random(HEED_F32);
    s.batch = 2, s.heads_q = 4, s.heads_kv = 2, s.len_q = 3, s.len_k = 5, s.head_dim = 8, s.head_dim_v = 6;
    s.mask = HEED_MASK_BOOL, s.sinks = s.key_lengths = s.lse = 1;
    s.window_right = 0, s.offset_mode = HEED_OFFSET_PER_BATCH;
    return s;
}

static void expect_untouched(const array *a, const char *who)
{
    for (size_t i = 0; i < a->reach * heed_dtype_size(a->dtype); i++)
        if (((const unsigned char *) a->data)[i] != 0xff) fail_msg("%s: the output was touched", who);
}

static void test_runs(void **state)
{
    (void) state;
    const spec s = good_spec();
    for (size_t i = 0; i < sizeof run_faults / sizeof *run_faults; i++) {
        sample_make(&good, &s);
        heed_attention_plan *plan;
        assert_int_equal(heed_attention_plan_create(&plan, context, &good.desc), HEED_OK);
        run_faults[i].spoil(&good);
        expect(heed_attention_run(plan, &good.args, NULL, 0), HEED_ERR_ARGUMENT, run_faults[i].message);
        expect_untouched(&good.out, run_faults[i].message);
        expect_untouched(&good.lse, run_faults[i].message);
        heed_attention_plan_destroy(plan);
        sample_free(&good);
    }
    expect(heed_attention_run(NULL, &good.args, NULL, 0), HEED_ERR_ARGUMENT, "plan: is NULL");
}

/* What a plan was made without must not be passed: it would be ignored in silence. */
static void test_unplanned(void **state)
{
    (void) state;
    spec s = good_spec();
    sample_make(&good, &s);
    heed_attention_desc d = good.desc;
    d.mask = HEED_MASK_NONE, d.has_sinks = d.has_key_lengths = d.want_lse = 0, d.offset_mode = HEED_OFFSET_TOP_LEFT;
    heed_attention_plan *plan;
    assert_int_equal(heed_attention_plan_create(&plan, context, &d), HEED_OK);
    heed_attention_args a = good.args;
    expect(heed_attention_run(plan, &a, NULL, 0), HEED_ERR_ARGUMENT, "mask: is given, but the plan was made without one");
    a.mask = NULL;
    expect(heed_attention_run(plan, &a, NULL, 0), HEED_ERR_ARGUMENT, "sinks: is given, but the plan was made without it");
    a.sinks = NULL;
    expect(heed_attention_run(plan, &a, NULL, 0), HEED_ERR_ARGUMENT, "key_lengths: is given, but the plan was made without it");
    a.key_lengths = NULL;
    expect(heed_attention_run(plan, &a, NULL, 0), HEED_ERR_ARGUMENT, "offsets: is given, but the plan was made without it");
    a.offsets = NULL;
    expect(heed_attention_run(plan, &a, NULL, 0), HEED_ERR_ARGUMENT, "lse: is given, but the plan was made without it");
    a.lse = NULL;
    assert_int_equal(heed_attention_run(plan, &a, NULL, 0), HEED_OK);
    heed_attention_plan_destroy(plan);
    sample_free(&good);
}

static void test_workspace_and_trace(void **state)
{
    (void) state;
    static _Alignas(64) char small[128];
    const spec s = good_spec();
    sample_make(&good, &s);
    heed_attention_plan *plan;
    good.desc.kernel = "reference";
    assert_int_equal(heed_attention_plan_create(&plan, context, &good.desc), HEED_OK);
    size_t need = heed_attention_plan_workspace(plan);
    assert_true(need > 64);
    char message[128];
    snprintf(message, sizeof message, "workspace_bytes: is 64, this run of reference needs %zu", need);
    expect(heed_attention_run(plan, &good.args, small, 64), HEED_ERR_ARGUMENT, message);
    expect(heed_attention_run(plan, &good.args, small + 8, 64), HEED_ERR_ARGUMENT, "workspace: is not aligned to 64 bytes");
    expect(heed_attention_run_traced(plan, &good.args, NULL, 0, NULL), HEED_ERR_ARGUMENT, "trace: is NULL");
    heed_attention_trace trace = { .struct_size = 0 };
    expect(heed_attention_run_traced(plan, &good.args, NULL, 0, &trace), HEED_ERR_ARGUMENT,
           "trace: struct_size is 0, expected sizeof(heed_attention_trace)");
    expect_untouched(&good.out, "workspace");
    /* A shorter trace gets what it has room for. */
    trace.struct_size = offsetof(heed_attention_trace, n_splits), trace.n_splits = -7;
    assert_int_equal(heed_attention_run_traced(plan, &good.args, NULL, 0, &trace), HEED_OK);
    assert_int_equal(trace.n_tasks, 8);
    assert_int_equal(trace.n_splits, -7);
    heed_attention_plan_destroy(plan);
    sample_free(&good);
}

/* q, k, v and out side by side in every row of one buffer do not overlap; shifted into each other they do. */
static void test_packed_buffer(void **state)
{
    (void) state;
    enum { LEN = 4, HEADS = 2, DIM = 8, PART = HEADS * DIM, ROW = 4 * PART };
    static float buffer[LEN * ROW];
    int64_t dims[4] = { 1, HEADS, LEN, DIM }, strides[4] = { LEN * ROW, DIM, ROW, 1 };
    DLTensor parts[4];
    for (int i = 0; i < LEN * ROW; i++) buffer[i] = (float) rng_normal();
    for (int i = 0; i < 4; i++)
        parts[i] = (DLTensor){ buffer + i * PART, { kDLCPU, 0 }, 4, { kDLFloat, 32, 1 }, dims, strides, 0 };
    heed_attention_desc d;
    heed_attention_desc_init(&d);
    d.heads_q = d.heads_kv = HEADS, d.max_len_q = d.max_len_k = LEN, d.head_dim = DIM;
    heed_attention_plan *plan;
    assert_int_equal(heed_attention_plan_create(&plan, context, &d), HEED_OK);
    heed_attention_args a;
    heed_attention_args_init(&a);
    a.q = &parts[0], a.k = &parts[1], a.v = &parts[2], a.out = &parts[3];
    assert_int_equal(heed_attention_run(plan, &a, NULL, 0), HEED_OK);
    parts[3].data = buffer + 3 * PART - 1;
    expect(heed_attention_run(plan, &a, NULL, 0), HEED_ERR_ARGUMENT, "out: overlaps v");
    parts[3].data = buffer + 3 * PART + 1; /* into q of the next row, and past the end */
    dims[2] = LEN - 1;
    expect(heed_attention_run(plan, &a, NULL, 0), HEED_ERR_ARGUMENT, "out: overlaps q");
    heed_attention_plan_destroy(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_descriptors), cmocka_unit_test(test_short_descriptor),    cmocka_unit_test(test_runs),
        cmocka_unit_test(test_unplanned),   cmocka_unit_test(test_workspace_and_trace), cmocka_unit_test(test_packed_buffer)
    };
    return cmocka_run_group_tests(tests, start, stop);
}
