/* Joining two results over different keys by their log-sum-exp. */
#include <math.h>

#include "attention/overlap.h"
#include "base/context.h"
#include "base/half.h"

#include <heed/attention.h>

/* Rows in a task. */
#define BLOCK 64

struct job {
    heed_tensor a, b, lse_a, lse_b, out, out_lse; /* out_lse.data NULL: none */
    const float *sinks;
    int64_t n_rows;
};

static float load(const char *at, heed_dtype dtype)
{
    if (dtype == HEED_F32) return *(const float *) (const void *) at;
    uint16_t h = *(const uint16_t *) (const void *) at;
    return dtype == HEED_F16 ? heed_f32_from_f16(h) : heed_f32_from_bf16(h);
}

static void store(char *at, heed_dtype dtype, float x)
{
    if (dtype == HEED_F32) *(float *) (void *) at = x;
    else *(uint16_t *) (void *) at = dtype == HEED_F16 ? heed_f16_from_f32(x) : heed_bf16_from_f32(x);
}

/* Address of row (b, h, i). */
static char *row_at(const heed_tensor *t, int64_t b, int64_t h, int64_t i)
{
    return (char *) t->data + (b * t->strides[0] + h * t->strides[1] + i * t->strides[2]) * (int64_t) heed_dtype_size(t->dtype);
}

/* exp(x - top), 0 where there is nothing. */
static double weight(double x, double top)
{
    return x == -INFINITY ? 0 : exp(x - top);
}

static void merge_row(const struct job *job, int64_t b, int64_t h, int64_t i)
{
    const heed_dtype dtype = job->a.dtype;
    const int64_t size = (int64_t) heed_dtype_size(dtype);
    double lse_a = (double) *(float *) (void *) row_at(&job->lse_a, b, h, i);
    double lse_b = (double) *(float *) (void *) row_at(&job->lse_b, b, h, i);
    double sink = job->sinks ? (double) job->sinks[h] : -INFINITY, m = lse_a > lse_b ? lse_a : lse_b;
    double top = sink > m ? sink : m;
    double w_a = weight(lse_a, top), w_b = weight(lse_b, top), sum = w_a + w_b + weight(sink, top);
    if (sum != 0) w_a /= sum, w_b /= sum;
    const char *from_a = row_at(&job->a, b, h, i), *from_b = row_at(&job->b, b, h, i);
    char *to = row_at(&job->out, b, h, i);
    for (int64_t d = 0; d < job->a.dims[3]; d++) {
        double x = 0; /* a part without weight does not count, whatever it holds */
        if (w_a != 0) x += w_a * (double) load(from_a + d * job->a.strides[3] * size, dtype);
        if (w_b != 0) x += w_b * (double) load(from_b + d * job->b.strides[3] * size, dtype);
        store(to + d * job->out.strides[3] * size, dtype, (float) x);
    }
    if (job->out_lse.data)
        *(float *) (void *) row_at(&job->out_lse, b, h, i) =
            m == -INFINITY ? -INFINITY : (float) (m + log(weight(lse_a, m) + weight(lse_b, m)));
}

static void merge_task(void *arg, int64_t task, int worker)
{
    (void) worker;
    const struct job *job = arg;
    int64_t end = (task + 1) * BLOCK < job->n_rows ? (task + 1) * BLOCK : job->n_rows;
    for (int64_t r = task * BLOCK; r < end; r++) {
        int64_t i = r % job->a.dims[2], bh = r / job->a.dims[2];
        merge_row(job, bh / job->a.dims[1], bh % job->a.dims[1], i);
    }
}

static heed_status take(heed_tensor *t, const DLTensor *dl, const char *name, const heed_tensor *like, int rank, heed_dtype dtype)
{
    HEED_TRY(heed_tensor_from_dl(t, dl, name));
    if (dl->device.device_type != kDLCPU)
        return heed_fail(HEED_ERR_ARGUMENT, "%s: device type is %d, expected %d (CPU)", name, (int) dl->device.device_type,
                         (int) kDLCPU);
    if (t->dtype != dtype)
        return heed_fail(HEED_ERR_ARGUMENT, "%s: type is %s, expected %s", name, heed_dtype_name(t->dtype),
                         heed_dtype_name(dtype));
    if (t->rank != rank)
        return heed_fail(HEED_ERR_ARGUMENT, "%s: rank is %d, expected %d (batch, heads_q, len_q%s)", name, t->rank, rank,
                         rank == 4 ? ", head_dim_v" : "");
    for (int i = 0; like && i < rank; i++)
        if (t->dims[i] != like->dims[i])
            return heed_fail(HEED_ERR_ARGUMENT, "%s: dimension %d is %lld, expected %lld as in a", name, i,
                             (long long) t->dims[i], (long long) like->dims[i]);
    return HEED_OK;
}

/* An output may be the very array that it replaces, row for row, but may not share memory with anything else. */
static heed_status check_apart(const heed_tensor *out, const char *name, const heed_tensor *in, const char *in_name,
                               int may_be_same)
{
    if (may_be_same && out->data == in->data) {
        int same = 1;
        for (int i = 0; i < out->rank; i++)
            if (out->dims[i] > 1 && out->strides[i] != in->strides[i]) same = 0;
        if (same) return HEED_OK;
    }
    if (heed_tensors_overlap(out, in)) return heed_fail(HEED_ERR_ARGUMENT, "%s: overlaps %s", name, in_name);
    return HEED_OK;
}

static heed_status check_output(const struct job *job, const heed_tensor *out, const char *name)
{
    const int is_lse = out == &job->out_lse;
    heed_tensor sinks = heed_tensor_make(HEED_F32, 1, &(int64_t){ job->sinks ? job->a.dims[1] : 0 });
    sinks.data = (void *) (uintptr_t) job->sinks;
    if (heed_tensor_overlaps_itself(out))
        return heed_fail(HEED_ERR_ARGUMENT, "%s: its strides place several elements at one address", name);
    HEED_TRY(check_apart(out, name, &job->a, "a", !is_lse));
    HEED_TRY(check_apart(out, name, &job->b, "b", 0));
    HEED_TRY(check_apart(out, name, &job->lse_a, "lse_a", is_lse));
    HEED_TRY(check_apart(out, name, &job->lse_b, "lse_b", 0));
    return check_apart(out, name, &sinks, "sinks", 0);
}

heed_status heed_attention_merge(heed_context *ctx, const DLTensor *a, const DLTensor *lse_a, const DLTensor *b,
                                 const DLTensor *lse_b, const float *sinks, const DLTensor *out, const DLTensor *out_lse)
{
    if (!ctx) return heed_fail(HEED_ERR_ARGUMENT, "ctx: is NULL");
    struct job job = { .sinks = sinks };
    heed_dtype dtype = a ? heed_dtype_from_dl(a->dtype) : HEED_F32;
    if (dtype != HEED_F32 && dtype != HEED_F16 && dtype != HEED_BF16)
        return heed_fail(HEED_ERR_ARGUMENT, "a: type is %s, expected f32, f16 or bf16", heed_dtype_name(dtype));
    HEED_TRY(take(&job.a, a, "a", NULL, 4, dtype));
    HEED_TRY(take(&job.lse_a, lse_a, "lse_a", &job.a, 3, HEED_F32));
    HEED_TRY(take(&job.b, b, "b", &job.a, 4, dtype));
    HEED_TRY(take(&job.lse_b, lse_b, "lse_b", &job.a, 3, HEED_F32));
    HEED_TRY(take(&job.out, out, "out", &job.a, 4, dtype));
    if ((uintptr_t) sinks % sizeof *sinks)
        return heed_fail(HEED_ERR_ARGUMENT, "sinks: is not aligned to its elements of %zu bytes", sizeof *sinks);
    HEED_TRY(check_output(&job, &job.out, "out"));
    if (out_lse) {
        HEED_TRY(take(&job.out_lse, out_lse, "out_lse", &job.a, 3, HEED_F32));
        HEED_TRY(check_output(&job, &job.out_lse, "out_lse"));
        HEED_TRY(check_apart(&job.out_lse, "out_lse", &job.out, "out", 0));
    }
    job.n_rows = job.a.dims[0] * job.a.dims[1] * job.a.dims[2];
    heed_parallel_for(ctx, merge_task, &job, job.n_rows / BLOCK + (job.n_rows % BLOCK != 0));
    return HEED_OK;
}
