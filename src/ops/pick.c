/* What depends on the order of elements along an axis: ArgMax, ArgMin, TopK, CumSum; and NonZero. */
#include <string.h>

#include "base/half.h"
#include "ops/util.h"

/* An axis seen as lines: `outer` times `inner` of them, each of n elements that are `inner` apart (dense tensors). */
struct axis {
    int64_t outer, n, inner;
};

static struct axis axis_of(const heed_tensor *t, int axis)
{
    struct axis a = { 1, t->dims[axis], 1 };
    for (int d = 0; d < axis; d++) a.outer *= t->dims[d];
    for (int d = axis + 1; d < t->rank; d++) a.inner *= t->dims[d];
    return a;
}

/* A number that is ordered as the element is, for all types but NaN, which is the largest of all. */
static int64_t order_key(heed_dtype type, const void *element)
{
    double x = 0;
    int64_t bits = 0;
    if (!heed_dtype_is_float(type)) {
        heed_cast_line(HEED_I64, &bits, 8, type, element, 0, 1);
        return type == HEED_U64 ? bits ^ INT64_MIN : bits;
    }
    heed_cast_line(HEED_F64, &x, 8, type, element, 0, 1);
    if (x != x) return INT64_MAX;
    if (x == 0) return 0; /* of either sign */
    memcpy(&bits, &x, sizeof bits);
    return bits < 0 ? -(bits & INT64_MAX) : bits;
}

/* ---- ArgMax, ArgMin ---- */

static heed_status infer_arg(heed_infer *i)
{
    const heed_fact *in = i->in[0];
    heed_fact *out = &i->out[0];
    int axis, keep = heed_node_int(i->node, "keepdims", 1) != 0;
    out->dtype = HEED_I64;
    if (in->rank < 0) return HEED_OK;
    HEED_TRY(heed_infer_axis(i, "axis", heed_node_int(i->node, "axis", 0), in->rank, &axis));
    if (in->dims[axis] == 0) return heed_infer_fail(i, "dimension %d is empty", axis);
    out->rank = 0;
    for (int d = 0; d < in->rank; d++) {
        if (d != axis) out->dims[out->rank++] = in->dims[d];
        else if (keep) out->dims[out->rank++] = 1;
    }
    return HEED_OK;
}

struct arg_job {
    const char *in;
    int64_t *out;
    struct axis axis;
    heed_dtype type;
    int smallest, last;
};

static int64_t arg_of_line(const struct arg_job *job, const char *at)
{
    int64_t step = job->axis.inner * (int64_t) heed_dtype_size(job->type), best = 0, best_key = 0;
    for (int64_t k = 0; k < job->axis.n; k++) {
        int64_t key = order_key(job->type, at + k * step);
        if (job->smallest) key = key == INT64_MAX && heed_dtype_is_float(job->type) ? key : -1 - key; /* NaN wins here too */
        if (k == 0 || key > best_key || (job->last && key == best_key)) best = k, best_key = key;
    }
    return best;
}

static void arg_lines(void *arg, int64_t begin, int64_t end)
{
    const struct arg_job *job = arg;
    int64_t size = (int64_t) heed_dtype_size(job->type), inner = job->axis.inner;
    for (int64_t o = begin; o < end; o++)
        job->out[o] = arg_of_line(job, job->in + (o / inner * inner * job->axis.n + o % inner) * size);
}

static heed_status compute_arg(heed_compute *c)
{
    const heed_tensor *in = c->in[0];
    if (heed_tensor_count(c->out[0]) == 0) return HEED_OK;
    struct arg_job job = { .in = in->data, .out = c->out[0]->data, .type = in->dtype };
    job.axis = axis_of(in, heed_axis(heed_node_int(c->node, "axis", 0), in->rank));
    job.smallest = strcmp(c->node->op, "ArgMin") == 0;
    job.last = heed_node_int(c->node, "select_last_index", 0) != 0;
    heed_parallel_ranges(c->ctx, job.axis.outer * job.axis.inner, HEED_GRAIN / 8 / job.axis.n, arg_lines, &job);
    return HEED_OK;
}

/* ---- TopK ---- */

static heed_status infer_top_k(heed_infer *i)
{
    const heed_fact *in = i->in[0];
    const int64_t *k;
    int axis, n;
    for (int o = 0; o < i->n_out; o++) {
        i->out[o].dtype = o ? HEED_I64 : in->dtype;
        i->out[o].rank = in->rank;
        memcpy(i->out[o].dims, in->dims, sizeof in->dims);
    }
    if (in->rank < 0) return HEED_OK;
    HEED_TRY(heed_infer_axis(i, "axis", heed_node_int(i->node, "axis", -1), in->rank, &axis));
    int known = heed_infer_ints(i, 1, &k, &n), number_known = 0;
    int64_t number = 0;
    if (known && n != 1) return heed_infer_fail(i, "k has %d elements, expected 1", n);
    if (known) number_known = heed_dims_known(i->dims, k[0], &number);
    if (number_known && (number < 0 || (in->dims[axis] >= 0 && number > in->dims[axis])))
        return heed_infer_fail(i, "k is %lld, expected 0 to %lld, the size of dimension %d", (long long) number,
                               (long long) in->dims[axis], axis);
    for (int o = 0; o < i->n_out; o++) i->out[o].dims[axis] = known ? k[0] : HEED_DIM_UNKNOWN;
    return HEED_OK;
}

struct ranked {
    int64_t key, index;
};

/* 1 if a comes before b in the result: larger first, then the one with the lower index. */
static int before(const struct ranked *a, const struct ranked *b)
{
    return a->key != b->key ? a->key > b->key : a->index < b->index;
}

/* heap[0] is the last in order of n; heap[at] may be out of place. */
static void sift(struct ranked *heap, int64_t n, int64_t at)
{
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= n) return;
        if (child + 1 < n && before(&heap[child], &heap[child + 1])) child++;
        if (!before(&heap[at], &heap[child])) return;
        struct ranked t = heap[at];
        heap[at] = heap[child], heap[child] = t;
        at = child;
    }
}

/* The first k of a line, in order, into heap. */
static void select_top(struct ranked *heap, int64_t k, heed_dtype type, const char *at, int64_t step, int64_t n, int smallest)
{
    for (int64_t j = 0; j < n; j++) {
        int64_t key = order_key(type, at + j * step);
        struct ranked entry = { smallest ? -1 - key : key, j };
        if (j < k) heap[j] = entry;
        if (j == k - 1)
            for (int64_t h = k / 2; h-- > 0;) sift(heap, k, h);
        if (j >= k && before(&entry, &heap[0])) {
            heap[0] = entry;
            sift(heap, k, 0);
        }
    }
    for (int64_t left = k - 1; left > 0; left--) {
        struct ranked t = heap[0];
        heap[0] = heap[left], heap[left] = t;
        sift(heap, left, 0);
    }
}

static int64_t top_axis(const heed_compute *c, struct axis *a, int64_t *k)
{
    int axis = heed_axis(heed_node_int(c->node, "axis", -1), c->in[0]->rank);
    const heed_tensor *out = c->out[0] ? c->out[0] : c->n_out > 1 ? c->out[1] : NULL;
    *a = axis_of(c->in[0], axis);
    *k = out ? out->dims[axis] : 0;
    return *k;
}

static size_t scratch_top_k(const heed_compute *c)
{
    struct axis a;
    int64_t k;
    top_axis(c, &a, &k);
    return heed_size_mul((size_t) k, sizeof(struct ranked));
}

static heed_status compute_top_k(heed_compute *c)
{
    const heed_tensor *in = c->in[0];
    char *values = c->out[0] ? c->out[0]->data : NULL;
    int64_t *indices = c->n_out > 1 && c->out[1] ? c->out[1]->data : NULL, k, size = (int64_t) heed_dtype_size(in->dtype);
    int smallest = heed_node_int(c->node, "largest", 1) == 0;
    struct axis a;
    struct ranked *heap = c->scratch;
    if (top_axis(c, &a, &k) == 0) return HEED_OK;
    for (int64_t line = 0; line < a.outer * a.inner; line++) {
        int64_t from = line / a.inner * a.n * a.inner + line % a.inner, to = line / a.inner * k * a.inner + line % a.inner;
        select_top(heap, k, in->dtype, (const char *) in->data + from * size, a.inner * size, a.n, smallest);
        for (int64_t j = 0; j < k; j++, to += a.inner) {
            if (indices) indices[to] = heap[j].index;
            if (values)
                memcpy(values + to * size, (const char *) in->data + (from + heap[j].index * a.inner) * size, (size_t) size);
        }
    }
    return HEED_OK;
}

/* ---- CumSum ---- */

static heed_status infer_cum_sum(heed_infer *i)
{
    const int64_t *axis;
    int n, at;
    HEED_TRY(heed_infer_same(i));
    if (i->in[0]->rank < 0 || !heed_infer_known_ints(i, 1, &axis, &n)) return HEED_OK;
    if (n != 1) return heed_infer_fail(i, "axis has %d elements, expected 1", n);
    return heed_infer_axis(i, "axis", axis[0], i->in[0]->rank, &at);
}

struct sum_job {
    const char *in;
    char *out;
    struct axis axis;
    heed_dtype type;
    int exclusive, reverse;
};

/* Sums run in double, or as 64-bit integers that wrap. */
static void sum_lines(void *arg, int64_t begin, int64_t end)
{
    const struct sum_job *job = arg;
    int64_t size = (int64_t) heed_dtype_size(job->type), inner = job->axis.inner, n = job->axis.n;
    int is_float = heed_dtype_is_float(job->type);
    heed_dtype work = is_float ? HEED_F64 : HEED_U64;
    for (int64_t line = begin; line < end; line++) {
        int64_t at = line / inner * inner * n + line % inner, step = inner;
        double x = 0, sum = 0;
        uint64_t u = 0, total = 0;
        if (job->reverse) at += (n - 1) * inner, step = -inner;
        for (int64_t k = 0; k < n; k++, at += step) {
            void *element = is_float ? (void *) &x : (void *) &u, *result = is_float ? (void *) &sum : (void *) &total;
            heed_cast_line(work, element, 8, job->type, job->in + at * size, size, 1);
            if (job->exclusive) heed_cast_line(job->type, job->out + at * size, size, work, result, 8, 1);
            sum += x, total += u;
            if (!job->exclusive) heed_cast_line(job->type, job->out + at * size, size, work, result, 8, 1);
        }
    }
}

static heed_status compute_cum_sum(heed_compute *c)
{
    const heed_tensor *in = c->in[0];
    if (heed_tensor_count(in) == 0) return HEED_OK;
    int axis = heed_tensor_count(c->in[1]) == 1 ? heed_axis(heed_tensor_int(c->in[1], 0), in->rank) : -1;
    if (axis < 0) return heed_compute_fail(c, "axis is not one of the %d axes of its input", in->rank);
    struct sum_job job = { .in = in->data, .out = c->out[0]->data, .axis = axis_of(in, axis), .type = in->dtype };
    job.exclusive = heed_node_int(c->node, "exclusive", 0) != 0, job.reverse = heed_node_int(c->node, "reverse", 0) != 0;
    heed_parallel_ranges(c->ctx, job.axis.outer * job.axis.inner, HEED_GRAIN / 8 / job.axis.n, sum_lines, &job);
    return HEED_OK;
}

/* ---- NonZero ---- */

/* 1 if element k of a dense tensor is not zero. */
static int is_set(const heed_tensor *t, int64_t k)
{
    const char *at = (const char *) t->data + k * (int64_t) heed_dtype_size(t->dtype);
    uint8_t truth;
    heed_cast_line(HEED_BOOL, &truth, 1, t->dtype, at, 0, 1);
    return t->dtype == HEED_BOOL ? *(const uint8_t *) at != 0 : truth;
}

static heed_status infer_non_zero(heed_infer *i)
{
    const heed_fact *in = i->in[0];
    i->out[0].dtype = HEED_I64;
    heed_fact_unknown_dims(&i->out[0], 2);
    if (in->rank >= 0) i->out[0].dims[0] = in->rank ? in->rank : 1;
    if (!in->value) return HEED_OK;
    int64_t n = heed_tensor_count(in->value), found = 0;
    for (int64_t k = 0; k < n; k++) found += is_set(in->value, k);
    i->out[0].dims[1] = found;
    return HEED_OK;
}

static heed_status compute_non_zero(heed_compute *c)
{
    const heed_tensor *in = c->in[0];
    int64_t n = heed_tensor_count(in), found = c->out[0]->dims[1], at = 0, *out = c->out[0]->data;
    for (int64_t k = 0; k < n && at < found; k++) {
        if (!is_set(in, k)) continue;
        int64_t rest = k;
        for (int d = in->rank - 1; d >= 0; d--) {
            out[d * found + at] = rest % in->dims[d];
            rest /= in->dims[d];
        }
        if (in->rank == 0) out[at] = 0;
        at++;
    }
    return HEED_OK;
}

#define ARG(op, since) HEED_OP(op, since, 1, 1, 1, .infer = infer_arg, .compute = compute_arg)

const heed_op heed_ops_pick[] = {
    ARG("ArgMax", 11),
    ARG("ArgMin", 11),
    HEED_OP("TopK", 11, 2, 2, 2, .infer = infer_top_k, .compute = compute_top_k, .scratch = scratch_top_k,
            .shape_inputs = 1u << 1),
    HEED_OP("CumSum", 11, 2, 2, 1, .flags = HEED_OP_INPLACE, .infer = infer_cum_sum, .compute = compute_cum_sum),
    HEED_OP("NonZero", 9, 1, 1, 1, .infer = infer_non_zero, .compute = compute_non_zero, .shape_inputs = 1),
    { 0 },
};
