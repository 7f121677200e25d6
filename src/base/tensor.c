/* Tensor arithmetic that everything above needs. */
#include "base/tensor.h"

#include <string.h>

#include "base/context.h"

int64_t heed_tensor_count(const heed_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->dims[i];
    return n;
}

size_t heed_tensor_bytes(const heed_tensor *t)
{
    size_t n = heed_dtype_size(t->dtype);
    for (int i = 0; i < t->rank; i++)
        if (t->dims[i] == 0) return 0;
    for (int i = 0; i < t->rank; i++) n = heed_size_mul(n, (size_t) t->dims[i]);
    return n > (size_t) PTRDIFF_MAX ? SIZE_MAX : n;
}

void heed_tensor_set_dense(heed_tensor *t)
{
    int64_t stride = 1;
    for (int i = t->rank - 1; i >= 0; i--) {
        t->strides[i] = stride;
        stride *= t->dims[i] ? t->dims[i] : 1;
    }
}

int heed_tensor_is_dense(const heed_tensor *t)
{
    int64_t stride = 1;
    for (int i = 0; i < t->rank; i++)
        if (t->dims[i] == 0) return 1;
    for (int i = t->rank - 1; i >= 0; i--) {
        if (t->dims[i] == 1) continue;
        if (t->strides[i] != stride) return 0;
        stride *= t->dims[i];
    }
    return 1;
}

heed_tensor heed_tensor_make(heed_dtype dtype, int rank, const int64_t *dims)
{
    heed_tensor t = { .dtype = dtype, .rank = rank };
    for (int i = 0; i < rank; i++) t.dims[i] = dims[i];
    heed_tensor_set_dense(&t);
    return t;
}

/* Copy n elements with strides; the common case is dense on both sides. */
static void copy_line(char *dst, int64_t ds, const char *src, int64_t ss, int64_t n, size_t size)
{
    if (ds == 1 && ss == 1) {
        memcpy(dst, src, (size_t) n * size);
        return;
    }
#define COPY(type)                                                                                                               \
    for (int64_t i = 0; i < n; i++) ((type *) dst)[i * ds] = ((const type *) src)[i * ss]
    switch (size) {
    case 1: COPY(uint8_t); break;
    case 2: COPY(uint16_t); break;
    case 4: COPY(uint32_t); break;
    default: COPY(uint64_t); break;
    }
#undef COPY
}

void heed_tensor_copy(const heed_tensor *dst, const heed_tensor *src)
{
    size_t size = heed_dtype_size(dst->dtype);
    int rank = dst->rank;
    for (int i = 0; i < rank; i++)
        if (dst->dims[i] == 0) return;
    /* Leave out dimensions of size 1 and join those that lie together in both. */
    int64_t dims[HEED_RANK_MAX] = { 1 }, ds[HEED_RANK_MAX] = { 1 }, ss[HEED_RANK_MAX] = { 1 };
    int n = 0;
    for (int i = 0; i < rank; i++) {
        if (dst->dims[i] == 1) continue;
        if (n && ds[n - 1] == dst->strides[i] * dst->dims[i] && ss[n - 1] == src->strides[i] * dst->dims[i]) {
            dims[n - 1] *= dst->dims[i];
        } else {
            dims[n++] = dst->dims[i];
        }
        ds[n - 1] = dst->strides[i], ss[n - 1] = src->strides[i];
    }
    if (n == 0) n = 1;
    int64_t at[HEED_RANK_MAX] = { 0 };
    char *d = dst->data;
    const char *s = src->data;
    for (;;) {
        copy_line(d, ds[n - 1], s, ss[n - 1], dims[n - 1], size);
        int i = n - 2;
        for (; i >= 0; i--) {
            d += ds[i] * (int64_t) size, s += ss[i] * (int64_t) size;
            if (++at[i] < dims[i]) break;
            d -= ds[i] * dims[i] * (int64_t) size, s -= ss[i] * dims[i] * (int64_t) size;
            at[i] = 0;
        }
        if (i < 0) return;
    }
}

static int64_t element_offset(const heed_tensor *t, int64_t i)
{
    int64_t at = 0;
    for (int d = t->rank - 1; d >= 0; d--) {
        at += i % t->dims[d] * t->strides[d];
        i /= t->dims[d];
    }
    return at;
}

int64_t heed_tensor_int(const heed_tensor *t, int64_t i)
{
    int64_t at = element_offset(t, i);
    switch (t->dtype) {
    case HEED_I8: return ((const int8_t *) t->data)[at];
    case HEED_I16: return ((const int16_t *) t->data)[at];
    case HEED_I32: return ((const int32_t *) t->data)[at];
    case HEED_I64: return ((const int64_t *) t->data)[at];
    case HEED_U16: return ((const uint16_t *) t->data)[at];
    case HEED_U32: return ((const uint32_t *) t->data)[at];
    case HEED_U64: return (int64_t) ((const uint64_t *) t->data)[at];
    default: return ((const uint8_t *) t->data)[at];
    }
}

void heed_tensor_set_int(const heed_tensor *t, int64_t i, int64_t value)
{
    int64_t at = element_offset(t, i);
    switch (heed_dtype_size(t->dtype)) {
    case 1: ((uint8_t *) t->data)[at] = (uint8_t) value; break;
    case 2: ((uint16_t *) t->data)[at] = (uint16_t) value; break;
    case 4: ((uint32_t *) t->data)[at] = (uint32_t) value; break;
    default: ((uint64_t *) t->data)[at] = (uint64_t) value; break;
    }
}

/* Smallest and largest element offset must fit in 63 bits of bytes, so that no address can wrap. */
static int strides_fit(const heed_tensor *t)
{
    int64_t reach = 0;
    for (int i = 0; i < t->rank; i++) {
        int64_t step = t->strides[i], part;
        if (step == INT64_MIN) return 0;
        if (step < 0) step = -step;
        if (__builtin_mul_overflow(step, t->dims[i] ? t->dims[i] - 1 : 0, &part) || __builtin_add_overflow(reach, part, &reach))
            return 0;
    }
    return reach < INT64_MAX / 16;
}

heed_status heed_tensor_from_dl(heed_tensor *t, const DLTensor *dl, const char *name)
{
    if (!dl) return heed_fail(HEED_ERR_ARGUMENT, "%s: is NULL, expected a tensor", name);
    if (dl->ndim < 0 || dl->ndim > HEED_RANK_MAX)
        return heed_fail(HEED_ERR_ARGUMENT, "%s: rank is %d, expected 0 to %d", name, dl->ndim, HEED_RANK_MAX);
    if (dl->ndim > 0 && !dl->shape) return heed_fail(HEED_ERR_ARGUMENT, "%s: shape is NULL", name);
    heed_dtype dtype = heed_dtype_from_dl(dl->dtype);
    if (dtype == HEED_DTYPE_NONE)
        return heed_fail(HEED_ERR_ARGUMENT, "%s: type code %d with %d bits and %d lanes is not known", name, dl->dtype.code,
                         dl->dtype.bits, dl->dtype.lanes);
    *t = (heed_tensor){ .dtype = dtype, .rank = dl->ndim };
    for (int i = 0; i < dl->ndim; i++) {
        if (dl->shape[i] < 0)
            return heed_fail(HEED_ERR_ARGUMENT, "%s: dimension %d is %lld, expected 0 or more", name, i,
                             (long long) dl->shape[i]);
        t->dims[i] = dl->shape[i];
    }
    if (heed_tensor_bytes(t) == SIZE_MAX)
        return heed_fail(HEED_ERR_ARGUMENT, "%s: the product of its dimensions overflows", name);
    if (dl->strides) {
        for (int i = 0; i < dl->ndim; i++) t->strides[i] = dl->strides[i];
        if (!strides_fit(t)) return heed_fail(HEED_ERR_ARGUMENT, "%s: its strides overflow", name);
    } else {
        heed_tensor_set_dense(t);
    }
    t->data = dl->data ? (char *) dl->data + dl->byte_offset : NULL;
    if (heed_tensor_bytes(t) == 0) return HEED_OK;
    if (!t->data) return heed_fail(HEED_ERR_ARGUMENT, "%s: data is NULL", name);
    if ((uintptr_t) t->data % heed_dtype_size(dtype))
        return heed_fail(HEED_ERR_ARGUMENT, "%s: data is not aligned to its elements of %zu bytes", name, heed_dtype_size(dtype));
    return HEED_OK;
}
