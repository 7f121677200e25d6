/* Arrays: types, elements, a summary, and the comparison that `heed check` rests on. */
#include "array.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fault.h"

enum { DL_BOOL = 6 /* DLPack's code for bool, newer than some headers */ };

static const heed_type types[] = {
    { "f32", kDLFloat, 32, "f4", 1 },  { "f16", kDLFloat, 16, "f2", 10 }, { "bf16", kDLBfloat, 16, "V2", 16 },
    { "f64", kDLFloat, 64, "f8", 11 }, { "i8", kDLInt, 8, "i1", 3 },      { "i16", kDLInt, 16, "i2", 5 },
    { "i32", kDLInt, 32, "i4", 6 },    { "i64", kDLInt, 64, "i8", 7 },    { "u8", kDLUInt, 8, "u1", 2 },
    { "u16", kDLUInt, 16, "u2", 4 },   { "u32", kDLUInt, 32, "u4", 12 },  { "u64", kDLUInt, 64, "u8", 13 },
    { "bool", DL_BOOL, 8, "b1", 9 },
};

#define FIND(condition)                                                                                                          \
    for (const heed_type *t = types; t < types + sizeof types / sizeof types[0]; t++)                                            \
        if (condition) return t;                                                                                                 \
    return NULL

const heed_type *heed_type_from_dl(DLDataType dtype)
{
    FIND(dtype.lanes == 1 && t->code == dtype.code && t->bits == dtype.bits);
}

const heed_type *heed_type_from_npy(const char *npy)
{
    FIND(strcmp(t->npy, npy) == 0);
}

const heed_type *heed_type_from_onnx(int onnx)
{
    FIND(t->onnx == onnx);
}

const heed_type *heed_type_from_name(const char *name)
{
    FIND(strcmp(t->name, name) == 0);
}

const char *heed_type_name(DLDataType dtype)
{
    const heed_type *type = heed_type_from_dl(dtype);
    return type ? type->name : "?";
}

int heed_type_is_float(const heed_type *type)
{
    return type->code == kDLFloat || type->code == kDLBfloat;
}

size_t heed_array_bytes_of(const heed_type *type, int ndim, const int64_t *shape)
{
    size_t bytes = type->bits / 8;
    int overflow = 0;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] == 0) return 0;
        overflow |= shape[i] < 0 || (uint64_t) shape[i] > SIZE_MAX || __builtin_mul_overflow(bytes, (size_t) shape[i], &bytes);
    }
    return overflow || bytes > PTRDIFF_MAX ? SIZE_MAX : bytes;
}

int heed_array_create(heed_array *a, const heed_type *type, int ndim, const int64_t *shape)
{
    *a = (heed_array){ 0 };
    size_t bytes = heed_array_bytes_of(type, ndim, shape);
    void *data = NULL;
    if (bytes == SIZE_MAX || posix_memalign(&data, 64, bytes ? bytes : 1) != 0) {
        char text[HEED_SHAPE_TEXT];
        return heed_fault("no memory for an array of %s %s", type->name, heed_shape_print(text, sizeof text, ndim, shape));
    }
    *a = (heed_array){ .type = type, .ndim = ndim, .data = data };
    for (int i = 0; i < ndim; i++) a->shape[i] = shape[i];
    return 0;
}

int heed_array_copy(heed_array *a, const DLTensor *from)
{
    const heed_type *type = heed_type_from_dl(from->dtype);
    if (!type || from->ndim > HEED_MAX_RANK) return heed_fault("an array of a type or rank that the tools do not know");
    if (heed_array_create(a, type, from->ndim, from->shape) != 0) return -1;
    size_t bytes = heed_array_bytes(a);
    if (bytes) memcpy(a->data, (const char *) from->data + from->byte_offset, bytes);
    return 0;
}

void heed_array_destroy(heed_array *a)
{
    free(a->data);
    *a = (heed_array){ 0 };
}

int64_t heed_array_count(const heed_array *a)
{
    return (int64_t) (heed_array_bytes(a) / (a->type->bits / 8u));
}

size_t heed_array_bytes(const heed_array *a)
{
    return heed_array_bytes_of(a->type, a->ndim, a->shape);
}

DLTensor heed_array_view(const heed_array *a)
{
    return (DLTensor){ .data = a->data,
                       .device = { kDLCPU, 0 },
                       .ndim = a->ndim,
                       .dtype = { a->type->code, a->type->bits, 1 },
                       .shape = (int64_t *) (uintptr_t) a->shape };
}

/* Half types by arithmetic on the exponent: rare enough here that clarity wins. */
static double value_of_f16(uint16_t h)
{
    int exponent = h >> 10 & 31, mantissa = h & 1023;
    double x = exponent == 31 ? (mantissa ? NAN : INFINITY)
                              : ldexp(exponent ? mantissa + 1024 : mantissa, (exponent ? exponent : 1) - 25);
    return h & 0x8000 ? -x : x;
}

static double value_of_bf16(uint16_t h)
{
    uint32_t bits = (uint32_t) h << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* To nearest even, through the spacing of f16 at this size. Above its largest number: infinity. */
static uint16_t f16_of_value(double x)
{
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    x = fabs(x);
    if (isnan(x)) return 0x7e00;
    if (x >= 65520) return sign | 0x7c00;
    int exponent = x < 0x1p-14 ? -14 : ilogb(x);
    int mantissa = (int) nearbyint(ldexp(x, 10 - exponent)); /* 1024 and more: the carry walks into the exponent by itself */
    return (uint16_t) (sign | (mantissa < 1024 ? mantissa : ((exponent + 14) << 10) + mantissa));
}

static uint16_t bf16_of_value(double x)
{
    float f = (float) x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (isnan(x)) return 0x7fc0;
    return (uint16_t) ((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* One key for a type: its code and size together. */
#define KIND(code, bits) ((code) << 8 | (bits))

double heed_array_value(const heed_array *a, int64_t i)
{
    switch (KIND(a->type->code, a->type->bits)) {
    case KIND(kDLFloat, 32): return ((const float *) a->data)[i];
    case KIND(kDLFloat, 16): return value_of_f16(((const uint16_t *) a->data)[i]);
    case KIND(kDLBfloat, 16): return value_of_bf16(((const uint16_t *) a->data)[i]);
    case KIND(kDLFloat, 64): return ((const double *) a->data)[i];
    case KIND(kDLInt, 8): return ((const int8_t *) a->data)[i];
    case KIND(kDLInt, 16): return ((const int16_t *) a->data)[i];
    case KIND(kDLInt, 32): return ((const int32_t *) a->data)[i];
    case KIND(kDLInt, 64): return (double) ((const int64_t *) a->data)[i];
    case KIND(kDLUInt, 16): return ((const uint16_t *) a->data)[i];
    case KIND(kDLUInt, 32): return ((const uint32_t *) a->data)[i];
    case KIND(kDLUInt, 64): return (double) ((const uint64_t *) a->data)[i];
    default: return ((const uint8_t *) a->data)[i]; /* u8 and bool */
    }
}

void heed_array_set(heed_array *a, int64_t i, double x)
{
    switch (KIND(a->type->code, a->type->bits)) {
    case KIND(kDLFloat, 32): ((float *) a->data)[i] = (float) x; break;
    case KIND(kDLFloat, 16): ((uint16_t *) a->data)[i] = f16_of_value(x); break;
    case KIND(kDLBfloat, 16): ((uint16_t *) a->data)[i] = bf16_of_value(x); break;
    case KIND(kDLFloat, 64): ((double *) a->data)[i] = x; break;
    case KIND(kDLInt, 8): ((int8_t *) a->data)[i] = (int8_t) x; break;
    case KIND(kDLInt, 16): ((int16_t *) a->data)[i] = (int16_t) x; break;
    case KIND(kDLInt, 32): ((int32_t *) a->data)[i] = (int32_t) x; break;
    case KIND(kDLInt, 64): ((int64_t *) a->data)[i] = (int64_t) x; break;
    case KIND(kDLUInt, 16): ((uint16_t *) a->data)[i] = (uint16_t) x; break;
    case KIND(kDLUInt, 32): ((uint32_t *) a->data)[i] = (uint32_t) x; break;
    case KIND(kDLUInt, 64): ((uint64_t *) a->data)[i] = (uint64_t) x; break;
    default: ((uint8_t *) a->data)[i] = (uint8_t) x; break;
    }
}

char *heed_shape_print(char *text, size_t bytes, int ndim, const int64_t *shape)
{
    size_t n = (size_t) snprintf(text, bytes, "[");
    for (int i = 0; i < ndim && n < bytes; i++) {
        const char *comma = i ? ", " : "";
        if (shape[i] < 0) n += (size_t) snprintf(text + n, bytes - n, "%s?", comma);
        else n += (size_t) snprintf(text + n, bytes - n, "%s%lld", comma, (long long) shape[i]);
    }
    if (n < bytes) snprintf(text + n, bytes - n, "]");
    return text;
}

heed_summary heed_array_summary(const heed_array *a)
{
    heed_summary s = { .min = NAN, .mean = NAN, .max = NAN };
    int64_t n = heed_array_count(a), n_finite = 0;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double x = heed_array_value(a, i);
        s.n_nan += isnan(x);
        s.n_inf += isinf(x) != 0;
        if (!isfinite(x)) continue;
        if (n_finite++ == 0) s.min = s.max = x;
        if (x < s.min) s.min = x;
        if (x > s.max) s.max = x;
        sum += x;
    }
    if (n_finite) s.mean = sum / (double) n_finite;
    return s;
}

/* |x - ref| at element i, 0 where both are NaN or the same infinity, NaN where only one is. 64-bit integers are subtracted
 * as integers: a double would hide small differences of large numbers. */
static double distance(const heed_array *x, const heed_array *ref, int64_t i)
{
    if (x->type->bits == 64 && !heed_type_is_float(x->type)) {
        uint64_t a = ((const uint64_t *) x->data)[i], b = ((const uint64_t *) ref->data)[i];
        int less = x->type->code == kDLInt ? (int64_t) a < (int64_t) b : a < b;
        return (double) (less ? b - a : a - b);
    }
    double a = heed_array_value(x, i), b = heed_array_value(ref, i);
    if ((isnan(a) && isnan(b)) || a == b) return 0;
    return isfinite(a) && isfinite(b) ? fabs(a - b) : NAN;
}

static void print_index(char *text, size_t bytes, const heed_array *a, int64_t i)
{
    int64_t index[HEED_MAX_RANK];
    for (int d = a->ndim - 1; d >= 0; d--) index[d] = i % a->shape[d], i /= a->shape[d];
    heed_shape_print(text, bytes, a->ndim, index);
}

static int compare_kind(const heed_array *x, const heed_array *ref, heed_difference *d)
{
    char ours[HEED_SHAPE_TEXT], theirs[HEED_SHAPE_TEXT];
    if (x->type != ref->type) {
        snprintf(d->reason, sizeof d->reason, "type is %s, expected %s", x->type->name, ref->type->name);
        return 0;
    }
    if (x->ndim == ref->ndim && memcmp(x->shape, ref->shape, (size_t) x->ndim * sizeof x->shape[0]) == 0) return 1;
    snprintf(d->reason, sizeof d->reason, "shape is %s, expected %s", heed_shape_print(ours, sizeof ours, x->ndim, x->shape),
             heed_shape_print(theirs, sizeof theirs, ref->ndim, ref->shape));
    return 0;
}

heed_difference heed_array_compare(const heed_array *x, const heed_array *ref, double atol, double rtol)
{
    heed_difference d = { .max_abs = NAN };
    if (!compare_kind(x, ref, &d)) return d;
    int64_t n = heed_array_count(x), n_bad = 0, worst = 0;
    double worst_excess = -1;
    d.max_abs = 0;
    for (int64_t i = 0; i < n; i++) {
        double distant = distance(x, ref, i), allowed = atol + rtol * fabs(heed_array_value(ref, i));
        if (isnan(distant) || distant > d.max_abs) d.max_abs = isnan(d.max_abs) ? d.max_abs : distant;
        if (distant == 0 || distant <= allowed) continue;
        double excess = isnan(distant) ? INFINITY : distant - allowed;
        if (excess > worst_excess) worst = i, worst_excess = excess;
        n_bad++;
    }
    d.ok = n_bad == 0;
    if (d.ok) return d;
    char index[HEED_SHAPE_TEXT];
    print_index(index, sizeof index, x, worst);
    snprintf(d.reason, sizeof d.reason, "%lld of %lld values differ, most at %s: is %.9g, expected %.9g", (long long) n_bad,
             (long long) n, index, heed_array_value(x, worst), heed_array_value(ref, worst));
    return d;
}
