/* The specification as a solver: heed_ref_attention in double, one (batch, head) a task. */
#include "attention/solvers.h"

#include "base/half.h"

static size_t task_bytes(const heed_attention_class *c, int64_t len_q, int64_t keys)
{
    size_t outs = heed_size_mul((size_t) len_q, (size_t) c->head_dim_v + 1); /* with the log-sum-exp */
    size_t bytes = heed_size_mul(heed_size_add(outs, (size_t) keys), sizeof(double));
    return heed_size_add(bytes, 63) & ~(size_t) 63;
}

double heed_reference_cost(const heed_solver *solver, const heed_attention_class *c, const heed_attention_size *size)
{
    (void) solver;
    return 1.0 * (c->head_dim + c->head_dim_v) * (double) size->batch * (double) c->heads_q * (double) size->len_q *
           (double) size->keys;
}

size_t heed_reference_workspace(const heed_solver *solver, const heed_attention_class *c, const heed_attention_env *env,
                                const heed_attention_size *size, int n_workers)
{
    (void) solver, (void) env;
    return heed_size_mul((size_t) n_workers, task_bytes(c, size->len_q, size->keys));
}

static heed_ref_array slice(const heed_array *a, heed_dtype dtype, size_t size, int64_t b, int64_t h)
{
    if (!a->data) return (heed_ref_array){ .data = NULL };
    heed_ref_array s = { .data = heed_array_at(a, size, b, h, 0), .dtype = dtype };
    for (int i = 0; i < 4; i++) s.strides[i] = a->strides[i];
    return s;
}

static void store(char *at, heed_dtype dtype, double value)
{
    switch (dtype) {
    case HEED_F16: *(uint16_t *) (void *) at = heed_f16_from_f32((float) value); break;
    case HEED_BF16: *(uint16_t *) (void *) at = heed_bf16_from_f32((float) value); break;
    default: *(float *) (void *) at = (float) value; break;
    }
}

static void run_task(void *arg, int64_t task, int worker)
{
    const heed_attention_launch *launch = arg;
    const heed_attention_problem *p = launch->problem;
    const heed_attention_class *c = p->cls;
    const size_t size = heed_dtype_size(c->dtype);
    const heed_dtype mask_type = c->mask == HEED_TILE_MASK_BOOL ? HEED_BOOL : c->mask == HEED_TILE_MASK_F32 ? HEED_F32 : c->dtype;
    int64_t b = task / c->heads_q, h = task % c->heads_q, g = h / (c->heads_q / c->heads_kv);
    double *out = (double *) (void *) (launch->workspace + (size_t) worker * task_bytes(c, p->len_q, p->len_k));
    double *lse = out + p->len_q * c->head_dim_v, *row = lse + p->len_q;

    heed_ref_problem ref = { .batch = 1,
                             .heads_q = 1,
                             .heads_kv = 1,
                             .len_q = p->len_q,
                             .len_k = p->len_k,
                             .head_dim = c->head_dim,
                             .head_dim_v = c->head_dim_v,
                             .q = slice(&p->q, c->dtype, size, b, h),
                             .k = slice(&p->k, c->dtype, size, b, g),
                             .v = slice(&p->v, c->dtype, size, b, g),
                             .mask = slice(&p->mask, mask_type, heed_dtype_size(mask_type), b, h),
                             .scale = c->scale,
                             .softcap = c->softcap,
                             .window_left = c->window_left,
                             .window_right = c->window_right,
                             .offset_mode = c->offset_mode,
                             .offset = p->offset,
                             .offsets = p->offsets ? p->offsets + b : NULL,
                             .key_lengths = p->key_lengths ? p->key_lengths + b : NULL,
                             .sinks = p->sinks ? p->sinks + h : NULL,
                             .out = out,
                             .lse = lse };
    heed_ref_attention(&ref, row);
    for (int64_t i = 0; i < p->len_q; i++) {
        char *to = heed_array_at(&p->out, size, b, h, i);
        for (int64_t d = 0; d < c->head_dim_v; d++)
            store(to + d * p->out.strides[3] * (int64_t) size, c->dtype, out[i * c->head_dim_v + d]);
        if (p->lse.data) store(heed_array_at(&p->lse, sizeof(float), b, h, i), HEED_F32, lse[i]);
    }
}

void heed_reference_launch(heed_attention_launch *launch)
{
    const heed_attention_problem *p = launch->problem;
    launch->n_tasks = p->batch * p->cls->heads_q;
    launch->splits_done = 1;
    heed_parallel_for(launch->ctx, run_task, launch, launch->n_tasks);
}
