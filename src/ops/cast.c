/* Cast and CastLike: every pair of element types, one line loop each.
 *
 * To integers, floats are cut toward zero and saturate, NaN gives 0; integers wrap to narrower ones; bool is "not zero". To
 * f16 and bf16 there is one rounding: wider sources go through an f32 that was rounded to odd, from which rounding again to
 * half the digits gives what one rounding would.
 */
#include <math.h>

#include "base/half.h"
#include "kernels/kernels.h"
#include "ops/util.h"

#define BLOCK 256

/* ---- one element ---- */

static inline int64_t i64_from_double(double x)
{
    if (x != x) return 0;
    if (x >= 0x1p63) return INT64_MAX;
    return x < -0x1p63 ? INT64_MIN : (int64_t) x;
}

static inline uint64_t u64_from_double(double x)
{
    if (!(x > 0)) return 0;
    return x >= 0x1p64 ? UINT64_MAX : (uint64_t) x;
}

static inline int32_t i32_from_double(double x)
{
    if (x != x) return 0;
    if (x >= 0x1p31) return INT32_MAX;
    return x < -0x1p31 ? INT32_MIN : (int32_t) x;
}

static inline int64_t clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

#define F_TO_I8(x) ((int8_t) clamp(i64_from_double(x), INT8_MIN, INT8_MAX))
#define F_TO_I16(x) ((int16_t) clamp(i64_from_double(x), INT16_MIN, INT16_MAX))
#define F_TO_I32(x) i32_from_double(x)
#define F_TO_I64(x) i64_from_double(x)
#define F_TO_U8(x) ((uint8_t) clamp(i64_from_double(x), 0, UINT8_MAX))
#define F_TO_U16(x) ((uint16_t) clamp(i64_from_double(x), 0, UINT16_MAX))
#define F_TO_U32(x) ((uint32_t) clamp(i64_from_double(x), 0, UINT32_MAX))
#define F_TO_U64(x) u64_from_double(x)

static float odd_from_double(double x)
{
    float f = (float) x;
    if ((double) f == x || x != x) return f;
    uint32_t bits = heed_bits_of_f32(f);
    if (fabs((double) f) > fabs(x)) bits--; /* back toward zero: also from infinity to the largest number */
    return heed_f32_of_bits(bits | 1);
}

static float odd_from_u64(uint64_t x)
{
    if (x < (uint64_t) 1 << 24) return (float) x;
    int shift = 40 - __builtin_clzll(x);
    uint64_t lost = x & (((uint64_t) 1 << shift) - 1);
    return ldexpf((float) (x >> shift | (lost != 0)), shift);
}

static float odd_from_i64(int64_t x)
{
    return x < 0 ? -odd_from_u64(0 - (uint64_t) x) : odd_from_u64((uint64_t) x);
}

/* ---- lines ---- */

#define AT(type, p, step, i) (*(type *) ((char *) (p) + (i) * (step)))
#define CAT(type, p, step, i) (*(const type *) ((const char *) (p) + (i) * (step)))

/* The dense form apart, so that the compiler makes vectors of it. */
#define LINE(name, D, S, expr)                                                                                                   \
    static void name(void *dst, int64_t dst_step, const void *src, int64_t src_step, int64_t n)                                  \
    {                                                                                                                            \
        if (dst_step == sizeof(D) && src_step == sizeof(S)) {                                                                    \
            D *y = dst;                                                                                                          \
            const S *s = src;                                                                                                    \
            HEED_IVDEP                                                                                                           \
            for (int64_t i = 0; i < n; i++) {                                                                                    \
                S x = s[i];                                                                                                      \
                y[i] = expr;                                                                                                     \
            }                                                                                                                    \
            return;                                                                                                              \
        }                                                                                                                        \
        for (int64_t i = 0; i < n; i++) {                                                                                        \
            S x = CAT(S, src, src_step, i);                                                                                      \
            AT(D, dst, dst_step, i) = expr;                                                                                      \
        }                                                                                                                        \
    }

/* From one C type to all others; `FLOAT` converts for f32 on the way to halves. */
#define FROM_INT(tag, S)                                                                                                         \
    LINE(tag##_f32, float, S, (float) x)                                                                                         \
    LINE(tag##_f64, double, S, (double) x)                                                                                       \
    LINE(tag##_8, uint8_t, S, (uint8_t) x)                                                                                       \
    LINE(tag##_16, uint16_t, S, (uint16_t) x)                                                                                    \
    LINE(tag##_32, uint32_t, S, (uint32_t) x)                                                                                    \
    LINE(tag##_64, uint64_t, S, (uint64_t) x)                                                                                    \
    LINE(tag##_bool, uint8_t, S, x != 0)

#define FROM_FLOAT(tag, S)                                                                                                       \
    LINE(tag##_f32, float, S, (float) x)                                                                                         \
    LINE(tag##_f64, double, S, (double) x)                                                                                       \
    LINE(tag##_i8, int8_t, S, F_TO_I8(x))                                                                                        \
    LINE(tag##_i16, int16_t, S, F_TO_I16(x))                                                                                     \
    LINE(tag##_i32, int32_t, S, F_TO_I32(x))                                                                                     \
    LINE(tag##_i64, int64_t, S, F_TO_I64(x))                                                                                     \
    LINE(tag##_u8, uint8_t, S, F_TO_U8(x))                                                                                       \
    LINE(tag##_u16, uint16_t, S, F_TO_U16(x))                                                                                    \
    LINE(tag##_u32, uint32_t, S, F_TO_U32(x))                                                                                    \
    LINE(tag##_u64, uint64_t, S, F_TO_U64(x))                                                                                    \
    LINE(tag##_bool, uint8_t, S, x != 0)

FROM_FLOAT(f32, float)
FROM_FLOAT(f64, double)
FROM_INT(i8, int8_t)
FROM_INT(i16, int16_t)
FROM_INT(i32, int32_t)
FROM_INT(i64, int64_t)
FROM_INT(u8, uint8_t)
FROM_INT(u16, uint16_t)
FROM_INT(u32, uint32_t)
FROM_INT(u64, uint64_t)
LINE(f64_odd, float, double, odd_from_double(x))
LINE(i32_odd, float, int32_t, odd_from_i64(x))
LINE(u32_odd, float, uint32_t, odd_from_u64(x))
LINE(i64_odd, float, int64_t, odd_from_i64(x))
LINE(u64_odd, float, uint64_t, odd_from_u64(x))
LINE(copy_8, uint8_t, uint8_t, x)
LINE(copy_16, uint16_t, uint16_t, x)
LINE(copy_32, uint32_t, uint32_t, x)
LINE(copy_64, uint64_t, uint64_t, x)

static void f16_f32(void *dst, int64_t dst_step, const void *src, int64_t src_step, int64_t n)
{
    if (dst_step == 4 && src_step == 2) {
        heed_row_kernels_get()->f32_from_f16(dst, src, n);
        return;
    }
    for (int64_t i = 0; i < n; i++) AT(float, dst, dst_step, i) = heed_f32_from_f16(CAT(uint16_t, src, src_step, i));
}

static void bf16_f32(void *dst, int64_t dst_step, const void *src, int64_t src_step, int64_t n)
{
    if (dst_step == 4 && src_step == 2) {
        heed_row_kernels_get()->f32_from_bf16(dst, src, n);
        return;
    }
    for (int64_t i = 0; i < n; i++) AT(float, dst, dst_step, i) = heed_f32_from_bf16(CAT(uint16_t, src, src_step, i));
}

static void f32_f16(void *dst, int64_t dst_step, const void *src, int64_t src_step, int64_t n)
{
    if (dst_step == 2 && src_step == 4) {
        heed_row_kernels_get()->f16_from_f32(dst, src, n);
        return;
    }
    for (int64_t i = 0; i < n; i++) AT(uint16_t, dst, dst_step, i) = heed_f16_from_f32(CAT(float, src, src_step, i));
}

static void f32_bf16(void *dst, int64_t dst_step, const void *src, int64_t src_step, int64_t n)
{
    if (dst_step == 2 && src_step == 4) {
        heed_row_kernels_get()->bf16_from_f32(dst, src, n);
        return;
    }
    for (int64_t i = 0; i < n; i++) AT(uint16_t, dst, dst_step, i) = heed_bf16_from_f32(CAT(float, src, src_step, i));
}

#define INT_ROW(tag, to_f32_first)                                                                                               \
    {                                                                                                                            \
        [HEED_F32] = tag##_f32, [HEED_F64] = tag##_f64, [HEED_I8] = tag##_8, [HEED_I16] = tag##_16, [HEED_I32] = tag##_32,       \
        [HEED_I64] = tag##_64, [HEED_U8] = tag##_8, [HEED_U16] = tag##_16, [HEED_U32] = tag##_32, [HEED_U64] = tag##_64,         \
        [HEED_BOOL] = tag##_bool, [HEED_DTYPE_NONE] = to_f32_first                                                               \
    }
#define FLOAT_ROW(tag, to_f32_first)                                                                                             \
    {                                                                                                                            \
        [HEED_F32] = tag##_f32, [HEED_F64] = tag##_f64, [HEED_I8] = tag##_i8, [HEED_I16] = tag##_i16, [HEED_I32] = tag##_i32,    \
        [HEED_I64] = tag##_i64, [HEED_U8] = tag##_u8, [HEED_U16] = tag##_u16, [HEED_U32] = tag##_u32, [HEED_U64] = tag##_u64,    \
        [HEED_BOOL] = tag##_bool, [HEED_DTYPE_NONE] = to_f32_first                                                               \
    }

/* direct[from][to]; [from][NONE] is the way to f32 before rounding to a half. */
static heed_cast_fn *const direct[HEED_DTYPE_COUNT][HEED_DTYPE_COUNT] = {
    [HEED_F32] = FLOAT_ROW(f32, f32_f32), [HEED_F64] = FLOAT_ROW(f64, f64_odd), [HEED_I8] = INT_ROW(i8, i8_f32),
    [HEED_I16] = INT_ROW(i16, i16_f32),   [HEED_I32] = INT_ROW(i32, i32_odd),   [HEED_I64] = INT_ROW(i64, i64_odd),
    [HEED_U8] = INT_ROW(u8, u8_f32),      [HEED_U16] = INT_ROW(u16, u16_f32),   [HEED_U32] = INT_ROW(u32, u32_odd),
    [HEED_U64] = INT_ROW(u64, u64_odd),   [HEED_BOOL] = INT_ROW(u8, u8_f32),
};

static int is_half(heed_dtype t)
{
    return t == HEED_F16 || t == HEED_BF16;
}

static heed_cast_fn *same_type(heed_dtype t)
{
    switch (heed_dtype_size(t)) {
    case 1: return copy_8;
    case 2: return copy_16;
    case 4: return copy_32;
    default: return copy_64;
    }
}

/* Through a block of f32, where one or both sides are halves. */
static void through_f32(heed_dtype to, char *dst, int64_t dst_step, heed_dtype from, const char *src, int64_t src_step, int64_t n)
{
    float block[BLOCK];
    heed_cast_fn *in = from == HEED_F16 ? f16_f32 : from == HEED_BF16 ? bf16_f32 : direct[from][HEED_DTYPE_NONE];
    heed_cast_fn *out = to == HEED_F16 ? f32_f16 : to == HEED_BF16 ? f32_bf16 : direct[HEED_F32][to];
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t m = n - i < BLOCK ? n - i : BLOCK;
        in(block, 4, src + i * src_step, src_step, m);
        out(dst + i * dst_step, dst_step, block, 4, m);
    }
}

static heed_cast_fn *find(heed_dtype to, heed_dtype from)
{
    if (to == from) return same_type(to);
    if (to == HEED_F32 && is_half(from)) return from == HEED_F16 ? f16_f32 : bf16_f32;
    if (from == HEED_F32 && is_half(to)) return to == HEED_F16 ? f32_f16 : f32_bf16;
    return direct[from][to];
}

void heed_cast_line(heed_dtype to, void *dst, int64_t dst_step, heed_dtype from, const void *src, int64_t src_step, int64_t n)
{
    heed_cast_fn *fn = find(to, from);
    if (fn) fn(dst, dst_step, src, src_step, n);
    else through_f32(to, dst, dst_step, from, src, src_step, n);
}

double heed_tensor_double(const heed_tensor *t, int64_t i)
{
    int64_t at = 0;
    for (int d = t->rank - 1; d >= 0; d--) {
        at += i % t->dims[d] * t->strides[d];
        i /= t->dims[d];
    }
    double x;
    heed_cast_line(HEED_F64, &x, 8, t->dtype, (const char *) t->data + at * (int64_t) heed_dtype_size(t->dtype), 0, 1);
    return x;
}

/* ---- the operators ---- */

/* Numbers of TensorProto.DataType. */
heed_dtype heed_dtype_from_onnx(int64_t code)
{
    static const heed_dtype types[] = {
        [1] = HEED_F32,  [2] = HEED_U8,   [3] = HEED_I8,   [4] = HEED_U16,  [5] = HEED_I16,  [6] = HEED_I32,  [7] = HEED_I64,
        [9] = HEED_BOOL, [10] = HEED_F16, [11] = HEED_F64, [12] = HEED_U32, [13] = HEED_U64, [16] = HEED_BF16
    };
    return code >= 0 && code < (int64_t) (sizeof types / sizeof *types) ? types[code] : HEED_DTYPE_NONE;
}

int64_t heed_dtype_to_onnx(heed_dtype type)
{
    for (int64_t code = 1; code <= 16; code++)
        if (heed_dtype_from_onnx(code) == type) return type == HEED_DTYPE_NONE ? 0 : code;
    return 0;
}

/* Shape entries stay as they are between integer types; heed_infer_set_ints drops numbers that would wrap. */
static heed_status infer_to(heed_infer *i, heed_dtype to)
{
    HEED_TRY(heed_infer_same(i));
    i->out[0].dtype = to;
    const int64_t *ints;
    int n;
    if (!heed_dtype_is_integer(to) || i->in[0]->rank < 0 || i->in[0]->rank > 1 || !heed_infer_ints(i, 0, &ints, &n))
        return HEED_OK;
    return heed_infer_set_ints(i, 0, i->in[0]->rank, ints, n);
}

static heed_status infer_cast(heed_infer *i)
{
    int64_t code = heed_node_int(i->node, "to", 0);
    heed_dtype to = heed_dtype_from_onnx(code);
    if (to == HEED_DTYPE_NONE)
        return heed_fail(HEED_ERR_UNSUPPORTED, "%s: to is %lld, an element type that heed does not have", i->node->op,
                         (long long) code);
    return infer_to(i, to);
}

static heed_status infer_cast_like(heed_infer *i)
{
    return infer_to(i, i->in[1]->dtype);
}

struct cast_job {
    heed_dtype to, from;
};

static void cast_lines(void *arg, char *const *at, const int64_t *steps, int64_t n)
{
    const struct cast_job *job = arg;
    heed_cast_line(job->to, at[0], steps[0], job->from, at[1], steps[1], n);
}

static heed_status compute_cast(heed_compute *c)
{
    const heed_tensor *args[2] = { c->out[0], c->in[0] };
    struct cast_job job = { args[0]->dtype, args[1]->dtype };
    if (job.to == job.from) {
        heed_copy(c->ctx, c->out[0], c->in[0]);
        return HEED_OK;
    }
    heed_loop loop;
    heed_loop_init(&loop, 2, args);
    heed_loop_run(c->ctx, &loop, args, cast_lines, &job);
    return HEED_OK;
}

static int view_cast(heed_compute *c)
{
    return c->out[0]->dtype == c->in[0]->dtype && heed_view_same(c);
}

const heed_op heed_ops_cast[] = {
    HEED_OP("Cast", 6, 1, 1, 1, .flags = HEED_OP_STRIDED, .infer = infer_cast, .compute = compute_cast, .view = view_cast),
    HEED_OP("CastLike", 15, 2, 2, 1, .flags = HEED_OP_STRIDED, .infer = infer_cast_like, .compute = compute_cast,
            .view = view_cast),
    { 0 },
};
