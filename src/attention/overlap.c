/* Overlap of strided arrays. The general question is hard; these tests err towards "overlap" only for layouts that no
 * program makes on purpose. */
#include "attention/overlap.h"

#include <stdlib.h>

/* Bytes of a tensor as [lo, hi), counting only dimensions whose byte stride is not a multiple of `period`. */
static void extent(const heed_tensor *t, int64_t period, int64_t *lo, int64_t *hi)
{
    int64_t size = (int64_t) heed_dtype_size(t->dtype);
    *lo = (int64_t) (intptr_t) t->data;
    *hi = *lo + size;
    for (int i = 0; i < t->rank; i++) {
        int64_t step = t->strides[i] * size;
        if (t->dims[i] < 2 || (period && step % period == 0)) continue;
        int64_t reach = step * (t->dims[i] - 1);
        if (reach < 0) *lo += reach;
        else *hi += reach;
    }
}

/* Two tensors whose outer strides are multiples of one period never meet if their inner parts lie in different places
 * of the period: q, k, v and out side by side in every row of one buffer. */
static int apart_in_period(const heed_tensor *a, const heed_tensor *b, int64_t period)
{
    int64_t a_lo, a_hi, b_lo, b_hi;
    extent(a, period, &a_lo, &a_hi);
    extent(b, period, &b_lo, &b_hi);
    if (a_hi - a_lo > period || b_hi - b_lo > period) return 0;
    int64_t gap = (b_lo - a_lo) % period;
    if (gap < 0) gap += period;
    return gap >= a_hi - a_lo && gap + (b_hi - b_lo) <= period;
}

int heed_tensors_overlap(const heed_tensor *a, const heed_tensor *b)
{
    if (heed_tensor_bytes(a) == 0 || heed_tensor_bytes(b) == 0) return 0;
    int64_t a_lo, a_hi, b_lo, b_hi;
    extent(a, 0, &a_lo, &a_hi);
    extent(b, 0, &b_lo, &b_hi);
    if (a_hi <= b_lo || b_hi <= a_lo) return 0;
    for (int i = 0; i < a->rank; i++) {
        int64_t period = llabs(a->strides[i]) * (int64_t) heed_dtype_size(a->dtype);
        if (period && apart_in_period(a, b, period)) return 0;
    }
    return 1;
}

int heed_tensor_overlaps_itself(const heed_tensor *t)
{
    if (heed_tensor_bytes(t) == 0) return 0;
    int64_t reach = 0; /* of the dimensions taken so far, from the smallest stride up */
    int taken[HEED_RANK_MAX] = { 0 };
    for (int n = 0; n < t->rank; n++) {
        int next = -1;
        for (int i = 0; i < t->rank; i++)
            if (!taken[i] && (next < 0 || llabs(t->strides[i]) < llabs(t->strides[next]))) next = i;
        taken[next] = 1;
        if (t->dims[next] < 2) continue;
        int64_t step = llabs(t->strides[next]);
        if (step <= reach) return 1;
        reach += step * (t->dims[next] - 1);
    }
    return 0;
}
