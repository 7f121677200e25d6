/* simd/vec_generic.h - the vocabulary in vector extensions of gcc and clang: 4 lanes, any CPU.
 *
 * Kernels are written in these words once and compiled for each instruction set, which brings a vec_NAME.h with the same
 * words:
 *     V, VM, VL          a vector of floats, a mask of lanes, the number of lanes
 *     V_TILE_VECTORS     vectors side by side in the register tile of a matrix product (2 or 3, a macro);
 *     V_TILE_ROWS_n      its rows where n vectors are in use
 *     V_DOT_ACCUMULATORS registers for sums in a kernel that reads vectors from both operands
 *     v_fma, v_fms       a b + c, a b - c, rounded once where the CPU can
 *     v_max(a, b)        b where either is NaN
 *     v_round(a)         to the nearest whole number, |a| < 2^22
 *     v_scale2(p, n)     p 2^n for whole -160 <= n <= 160, overflowing and rounding to subnormals like one product
 *     v_scale2_flush     the same for n <= 0, a little less: it may give 0 for n < -126
 *     V_EXP_FLOOR        the least x that v_scale2_flush takes as n = x log2 e; surely gives 0 there
 *     v_lt v_ge v_eq     false for NaN; v_ne: true for NaN
 *     vm_bits(m)         lane i in bit i
 *     v_select(m, a, b)  a where m, b elsewhere
 *     v_load_T, v_store_T     VL elements of storage type T: f32, f16, bf16; any alignment; converted, rounded to nearest
 *     v_loadn_T, v_storen_T   the first n, 0 <= n <= VL; the other lanes load as 0; memory past n is not touched
 *     v_loadn_u8(p, n)   bytes as numbers
 *     v_sum, v_hmax      over the lanes
 *     v_transpose(r)     of VL vectors, in place
 *     v_sum4(a, b, c, d) four sums half done; v_sum4_end of VL / 4 of them, q, ends them: lane 4 i + k is the sum of
 *                        vector k of q[i]
 */
#ifndef HEED_SIMD_VEC_GENERIC_H
#define HEED_SIMD_VEC_GENERIC_H

#include <stdint.h>
#include <string.h>

typedef float V __attribute__((vector_size(16)));
typedef int32_t VM __attribute__((vector_size(16)));
typedef uint32_t lanes_u32 __attribute__((vector_size(16)));
typedef uint16_t lanes_u16 __attribute__((vector_size(8)));
typedef uint8_t lanes_u8 __attribute__((vector_size(4)));

#define V_TILE_VECTORS 2
#define V_EXP_FLOOR -88.0f

enum { VL = 4, V_TILE_ROWS_3 = 1, V_TILE_ROWS_2 = 4, V_TILE_ROWS_1 = 8, V_DOT_ACCUMULATORS = 8 };

static inline V v_zero(void)
{
    return (V){ 0 };
}

static inline V v_set1(float x)
{
    return (V){ x, x, x, x };
}

static inline V v_index(void)
{
    return (V){ 0, 1, 2, 3 };
}

static inline V v_add(V a, V b)
{
    return a + b;
}

static inline V v_sub(V a, V b)
{
    return a - b;
}

static inline V v_mul(V a, V b)
{
    return a * b;
}

static inline V v_div(V a, V b)
{
    return a / b;
}

static inline V v_fma(V a, V b, V c)
{
    return a * b + c;
}

static inline V v_fms(V a, V b, V c)
{
    return a * b - c;
}

static inline VM v_lt(V a, V b)
{
    return a < b;
}

static inline VM v_ge(V a, V b)
{
    return a >= b;
}

static inline VM v_eq(V a, V b)
{
    return a == b;
}

static inline VM v_ne(V a, V b)
{
    return a != b;
}

static inline VM vm_and(VM a, VM b)
{
    return a & b;
}

static inline VM vm_or(VM a, VM b)
{
    return a | b;
}

static inline VM vm_none(void)
{
    return (VM){ 0 };
}

static inline unsigned vm_bits(VM a)
{
    return (unsigned) ((a[0] & 1) | (a[1] & 2) | (a[2] & 4) | (a[3] & 8));
}

static inline lanes_u32 select_u32(VM m, lanes_u32 a, lanes_u32 b)
{
    return ((lanes_u32) m & a) | (~(lanes_u32) m & b);
}

static inline V v_select(VM m, V a, V b)
{
    return (V) select_u32(m, (lanes_u32) a, (lanes_u32) b);
}

static inline V v_max(V a, V b)
{
    return v_select(a > b, a, b);
}

static inline V v_abs(V a)
{
    return (V) ((lanes_u32) a & 0x7fffffffu);
}

static inline V v_round(V a)
{
    const V shift = v_set1(0x1.8p23f);
    return (a + shift) - shift;
}

static inline V power_of_two(VM n)
{
    return (V) ((lanes_u32) (n + 127) << 23);
}

static inline VM whole(V n)
{
    return __builtin_convertvector(n, VM);
}

static inline V v_scale2(V p, V n)
{
    VM all = whole(n), half = all >> 1;
    return p * power_of_two(half) * power_of_two(all - half);
}

static inline V v_scale2_flush(V p, V n)
{
    return p * power_of_two(whole(n));
}

static inline V v_load_f32(const float *p)
{
    V a;
    memcpy(&a, p, sizeof a);
    return a;
}

static inline V v_loadn_f32(const float *p, int n)
{
    V a = { 0 };
    for (int i = 0; i < n; i++) a[i] = p[i];
    return a;
}

static inline void v_store_f32(float *p, V a)
{
    memcpy(p, &a, sizeof a);
}

static inline void v_storen_f32(float *p, V a, int n)
{
    for (int i = 0; i < n; i++) p[i] = a[i];
}

static inline lanes_u32 load_u16(const uint16_t *p)
{
    lanes_u16 h;
    memcpy(&h, p, sizeof h);
    return __builtin_convertvector(h, lanes_u32);
}

static inline lanes_u32 loadn_u16(const uint16_t *p, int n)
{
    lanes_u32 h = { 0 };
    for (int i = 0; i < n; i++) h[i] = p[i];
    return h;
}

static inline void store_u16(uint16_t *p, lanes_u32 a)
{
    lanes_u16 h = __builtin_convertvector(a, lanes_u16);
    memcpy(p, &h, sizeof h);
}

static inline void storen_u16(uint16_t *p, lanes_u32 a, int n)
{
    for (int i = 0; i < n; i++) p[i] = (uint16_t) a[i];
}

/* The exponent moves by a product with 2^112, which also makes subnormals right; infinity and NaN get theirs back. */
static inline V widen_f16(lanes_u32 h)
{
    lanes_u32 magnitude = (h & 0x7fffu) << 13, special = (lanes_u32) (magnitude >= 0x0f800000u) & 0x7f800000u;
    V a = (V) magnitude * v_set1(0x1p112f);
    return (V) ((lanes_u32) a | special | (h & 0x8000u) << 16);
}

/* As heed_f16_from_f32 in base/half.h does it. */
static inline lanes_u32 narrow_f16(V a)
{
    lanes_u32 u = (lanes_u32) a, sign = u >> 16 & 0x8000u, m = u & 0x7fffffffu;
    lanes_u32 normal = (m + 0xfffu + (m >> 13 & 1u) - 0x38000000u) >> 13;
    lanes_u32 subnormal = (lanes_u32) ((V) m + 0.5f) - 0x3f000000u;
    lanes_u32 nan = 0x7e00u | (m >> 13 & 0x3ffu), infinity = (lanes_u32){ 0x7c00u, 0x7c00u, 0x7c00u, 0x7c00u };
    lanes_u32 h = select_u32((VM) (m < 0x38800000u), subnormal, normal);
    h = select_u32((VM) (m >= 0x477ff000u), infinity, h);
    return sign | select_u32((VM) (m > 0x7f800000u), nan, h);
}

static inline V v_load_f16(const uint16_t *p)
{
    return widen_f16(load_u16(p));
}

static inline V v_loadn_f16(const uint16_t *p, int n)
{
    return widen_f16(loadn_u16(p, n));
}

static inline void v_store_f16(uint16_t *p, V a)
{
    store_u16(p, narrow_f16(a));
}

static inline void v_storen_f16(uint16_t *p, V a, int n)
{
    storen_u16(p, narrow_f16(a), n);
}

static inline lanes_u32 narrow_bf16(V a)
{
    lanes_u32 u = (lanes_u32) a, rounded = u + 0x7fffu + (u >> 16 & 1u), quiet = u | 0x400000u;
    return select_u32(a != a, quiet, rounded) >> 16;
}

static inline V v_load_bf16(const uint16_t *p)
{
    return (V) (load_u16(p) << 16);
}

static inline V v_loadn_bf16(const uint16_t *p, int n)
{
    return (V) (loadn_u16(p, n) << 16);
}

static inline void v_store_bf16(uint16_t *p, V a)
{
    store_u16(p, narrow_bf16(a));
}

static inline void v_storen_bf16(uint16_t *p, V a, int n)
{
    storen_u16(p, narrow_bf16(a), n);
}

static inline V v_loadn_u8(const uint8_t *p, int n)
{
    V a = { 0 };
    for (int i = 0; i < n; i++) a[i] = p[i];
    return a;
}

static inline float v_sum(V a)
{
    return (a[0] + a[2]) + (a[1] + a[3]);
}

static inline float v_hmax(V a)
{
    float m = a[0];
    for (int i = 1; i < VL; i++)
        if (a[i] > m) m = a[i];
    return m;
}

static inline void v_transpose(V r[VL])
{
    V ab = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5), ab_hi = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
    V cd = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5), cd_hi = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
    r[0] = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
    r[1] = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    r[2] = __builtin_shufflevector(ab_hi, cd_hi, 0, 1, 4, 5);
    r[3] = __builtin_shufflevector(ab_hi, cd_hi, 2, 3, 6, 7);
}

static inline V v_sum4(V a, V b, V c, V d)
{
    V t[VL] = { a, b, c, d };
    v_transpose(t);
    return (t[0] + t[2]) + (t[1] + t[3]);
}

static inline V v_sum4_end(const V q[VL / 4])
{
    return q[0];
}

#endif
