/* Running line functions over tensors of any strides and shapes. */
#include "ops/lines.h"

#include <string.h>

#define BLOCK 256 /* elements of a half that are converted at a time */

struct lines_job {
    heed_line_fn *fn;
    int n_in;
    heed_dtype half; /* type of inputs that go through f32, else none */
    heed_dtype out;  /* type of the output */
};

static void plain(void *arg, char *const *at, const int64_t *steps, int64_t n)
{
    const struct lines_job *job = arg;
    job->fn(at, steps, n);
}

/* Halves: convert a block of each input, compute in f32, round once. */
static void through_f32(void *arg, char *const *at, const int64_t *steps, int64_t n)
{
    const struct lines_job *job = arg;
    float in[HEED_LOOP_MAX - 1][BLOCK], out[BLOCK];
    int to_half = job->out == job->half;
    char *block_at[HEED_LOOP_MAX];
    int64_t block_steps[HEED_LOOP_MAX] = { to_half ? 4 : steps[0] };
    for (int64_t done = 0; done < n; done += BLOCK) {
        int64_t m = n - done < BLOCK ? n - done : BLOCK;
        block_at[0] = to_half ? (char *) out : at[0] + done * steps[0];
        for (int k = 1; k <= job->n_in; k++) {
            block_at[k] = (char *) in[k - 1];
            block_steps[k] = steps[k] ? 4 : 0;
            heed_cast_line(HEED_F32, in[k - 1], 4, job->half, at[k] + done * steps[k], steps[k], steps[k] ? m : 1);
        }
        job->fn(block_at, block_steps, m);
        if (to_half) heed_cast_line(job->half, at[0] + done * steps[0], steps[0], HEED_F32, out, 4, m);
    }
}

void heed_line_apply(heed_line_fn *fn, heed_dtype type, char *const *at, int64_t n)
{
    int half = type == HEED_F16 || type == HEED_BF16;
    struct lines_job job = { fn, 2, type, type };
    int64_t size = (int64_t) heed_dtype_size(type), steps[3] = { size, size, size };
    if (half) through_f32(&job, at, steps, n);
    else fn(at, steps, n);
}

heed_status heed_run_lines(heed_compute *c, int n_in, const heed_tensor *out, const heed_tensor *const *in, heed_line_fn *fn)
{
    const heed_tensor *args[HEED_LOOP_MAX] = { out };
    for (int k = 0; k < n_in; k++) args[k + 1] = in[k];
    heed_dtype type = in[n_in - 1]->dtype;
    int half = type == HEED_F16 || type == HEED_BF16;
    struct lines_job job = { fn, n_in, half ? type : HEED_DTYPE_NONE, out->dtype };
    heed_loop loop;
    heed_loop_init(&loop, n_in + 1, args);
    heed_loop_run(c->ctx, &loop, args, half ? through_f32 : plain, &job);
    return HEED_OK;
}

heed_status heed_compute_lines(heed_compute *c, int n_in, heed_line_fn *const fns[HEED_DTYPE_COUNT])
{
    heed_line_fn *fn = fns[c->in[n_in - 1]->dtype];
    if (!fn) return heed_compute_type(c, n_in - 1);
    return heed_run_lines(c, n_in, c->out[0], c->in, fn);
}

heed_status heed_infer_combine_ints(heed_infer *i, heed_combine_fn *fn)
{
    const int64_t *a, *b;
    int n_a, n_b, rank = i->out[0].rank;
    heed_dtype type = i->in[0]->dtype;
    if (rank < 0 || rank > 1 || (type != HEED_I64 && type != HEED_I32 && type != HEED_BOOL)) return HEED_OK;
    if (!heed_infer_ints(i, 0, &a, &n_a) || !heed_infer_ints(i, 1, &b, &n_b)) return HEED_OK;
    if (n_a != n_b && n_a != 1 && n_b != 1) return HEED_OK;
    int n = n_a == 1 ? n_b : n_a;
    int64_t *ints = heed_infer_new_ints(i, n);
    if (!ints) return heed_infer_memory(i);
    for (int k = 0; k < n; k++) ints[k] = fn(i, a[n_a == 1 ? 0 : k], b[n_b == 1 ? 0 : k]);
    return heed_infer_set_ints(i, 0, rank, ints, n);
}
