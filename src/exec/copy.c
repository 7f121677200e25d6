/* Copies between layouts, spread over the threads when they are large. */
#include "exec/program_impl.h"

#define BYTES_PER_TASK (64 << 10)

struct copy {
    const heed_tensor *dst, *src;
    int axis;
    int64_t per_task;
};

static heed_tensor part(const heed_tensor *t, int axis, int64_t first, int64_t n)
{
    heed_tensor p = *t;
    p.dims[axis] = n;
    p.data = (char *) t->data + first * t->strides[axis] * (int64_t) heed_dtype_size(t->dtype);
    return p;
}

static void copy_task(void *arg, int64_t task, int worker)
{
    (void) worker;
    const struct copy *copy = arg;
    int64_t first = task * copy->per_task, n = copy->dst->dims[copy->axis] - first;
    if (n > copy->per_task) n = copy->per_task;
    heed_tensor dst = part(copy->dst, copy->axis, first, n), src = part(copy->src, copy->axis, first, n);
    heed_tensor_copy(&dst, &src);
}

heed_status heed_copy_compute(heed_compute *c)
{
    struct copy copy = { .dst = c->out[0], .src = c->in[0] };
    int64_t bytes = (int64_t) heed_tensor_bytes(copy.dst);
    for (int i = 1; i < copy.dst->rank; i++)
        if (copy.dst->dims[i] > copy.dst->dims[copy.axis] && copy.dst->dims[copy.axis] < 16) copy.axis = i;
    if (bytes <= BYTES_PER_TASK || copy.dst->rank == 0) {
        heed_tensor_copy(copy.dst, copy.src);
        return HEED_OK;
    }
    int64_t n = copy.dst->dims[copy.axis], tasks = bytes / BYTES_PER_TASK;
    if (tasks > n) tasks = n;
    copy.per_task = (n + tasks - 1) / tasks;
    heed_parallel_for(c->ctx, copy_task, &copy, (n + copy.per_task - 1) / copy.per_task);
    return HEED_OK;
}
