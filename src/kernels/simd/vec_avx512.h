/* simd/vec_avx512.h - the vocabulary in AVX-512 F, BW, CD, DQ, VL: 16 lanes. The words are explained in vec_generic.h. */
#ifndef HEED_SIMD_VEC_AVX512_H
#define HEED_SIMD_VEC_AVX512_H

#include <immintrin.h>
#include <stdint.h>

typedef __m512 V;
typedef __mmask16 VM;

#define V_TILE_VECTORS 3 /* 8 x 3 accumulators, 3 vectors, 1 broadcast of 32 registers */
#define V_EXP_FLOOR -110.0f

enum { VL = 16, V_TILE_ROWS_3 = 8, V_TILE_ROWS_2 = 12, V_TILE_ROWS_1 = 16, V_DOT_ACCUMULATORS = 16 };

static inline V v_zero(void)
{
    return _mm512_setzero_ps();
}

static inline V v_set1(float x)
{
    return _mm512_set1_ps(x);
}

static inline V v_index(void)
{
    return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

static inline V v_add(V a, V b)
{
    return _mm512_add_ps(a, b);
}

static inline V v_sub(V a, V b)
{
    return _mm512_sub_ps(a, b);
}

static inline V v_mul(V a, V b)
{
    return _mm512_mul_ps(a, b);
}

static inline V v_div(V a, V b)
{
    return _mm512_div_ps(a, b);
}

static inline V v_fma(V a, V b, V c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static inline V v_fms(V a, V b, V c)
{
    return _mm512_fmsub_ps(a, b, c);
}

static inline V v_max(V a, V b)
{
    return _mm512_max_ps(a, b);
}

static inline V v_abs(V a)
{
    return _mm512_abs_ps(a);
}

static inline V v_round(V a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline V v_scale2(V p, V n)
{
    return _mm512_scalef_ps(p, n);
}

static inline V v_scale2_flush(V p, V n)
{
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(n, _mm512_set1_ps(-127.0f), _CMP_NLE_UQ), p, n);
}

static inline VM v_lt(V a, V b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}

static inline VM v_ge(V a, V b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ);
}

static inline VM v_eq(V a, V b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}

static inline VM v_ne(V a, V b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_NEQ_UQ);
}

static inline VM vm_and(VM a, VM b)
{
    return (VM) (a & b);
}

static inline VM vm_or(VM a, VM b)
{
    return (VM) (a | b);
}

static inline VM vm_none(void)
{
    return 0;
}

static inline unsigned vm_bits(VM a)
{
    return a;
}

static inline V v_select(VM m, V a, V b)
{
    return _mm512_mask_blend_ps(m, b, a);
}

static inline __mmask16 first_lanes(int n)
{
    return (__mmask16) ((1u << n) - 1);
}

static inline V v_load_f32(const float *p)
{
    return _mm512_loadu_ps(p);
}

static inline V v_loadn_f32(const float *p, int n)
{
    return _mm512_maskz_loadu_ps(first_lanes(n), p);
}

static inline void v_store_f32(float *p, V a)
{
    _mm512_storeu_ps(p, a);
}

static inline void v_storen_f32(float *p, V a, int n)
{
    _mm512_mask_storeu_ps(p, first_lanes(n), a);
}

static inline V v_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *) p));
}

static inline V v_loadn_f16(const uint16_t *p, int n)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}

static inline void v_store_f16(uint16_t *p, V a)
{
    _mm256_storeu_si256((__m256i *) p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

static inline void v_storen_f16(uint16_t *p, V a, int n)
{
    _mm256_mask_storeu_epi16(p, first_lanes(n), _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

static inline V widen_bf16(__m256i h)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

static inline __m256i narrow_bf16(V a)
{
    __m512i u = _mm512_castps_si512(a);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
    __m512i quiet = _mm512_or_si512(u, _mm512_set1_epi32(0x400000));
    __mmask16 nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_blend_epi32(nan, rounded, quiet), 16));
}

static inline V v_load_bf16(const uint16_t *p)
{
    return widen_bf16(_mm256_loadu_si256((const __m256i *) p));
}

static inline V v_loadn_bf16(const uint16_t *p, int n)
{
    return widen_bf16(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}

static inline void v_store_bf16(uint16_t *p, V a)
{
    _mm256_storeu_si256((__m256i *) p, narrow_bf16(a));
}

static inline void v_storen_bf16(uint16_t *p, V a, int n)
{
    _mm256_mask_storeu_epi16(p, first_lanes(n), narrow_bf16(a));
}

static inline V v_loadn_u8(const uint8_t *p, int n)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(first_lanes(n), p)));
}

static inline float v_sum(V a)
{
    return _mm512_reduce_add_ps(a);
}

static inline float v_hmax(V a)
{
    return _mm512_reduce_max_ps(a);
}

/* Rows 4i..4i+3 in each 128-bit lane first, then the lanes. */
static inline void v_transpose(V r[VL])
{
    V t[VL];
#pragma GCC unroll 4
    for (int i = 0; i < VL; i += 4) {
        V ab = _mm512_unpacklo_ps(r[i], r[i + 1]), ab_hi = _mm512_unpackhi_ps(r[i], r[i + 1]);
        V cd = _mm512_unpacklo_ps(r[i + 2], r[i + 3]), cd_hi = _mm512_unpackhi_ps(r[i + 2], r[i + 3]);
        t[i] = _mm512_shuffle_ps(ab, cd, 0x44);
        t[i + 1] = _mm512_shuffle_ps(ab, cd, 0xee);
        t[i + 2] = _mm512_shuffle_ps(ab_hi, cd_hi, 0x44);
        t[i + 3] = _mm512_shuffle_ps(ab_hi, cd_hi, 0xee);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        V ab = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88), ab_odd = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd);
        V cd = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88), cd_odd = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xdd);
        r[i] = _mm512_shuffle_f32x4(ab, cd, 0x88);
        r[i + 4] = _mm512_shuffle_f32x4(ab_odd, cd_odd, 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(ab, cd, 0xdd);
        r[i + 12] = _mm512_shuffle_f32x4(ab_odd, cd_odd, 0xdd);
    }
}

static inline V v_sum4(V a, V b, V c, V d)
{
    V ab = v_add(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)),
      cd = v_add(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    return v_add(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
}

static inline V v_sum4_end(const V q[VL / 4])
{
    V ab = v_add(_mm512_shuffle_f32x4(q[0], q[1], 0x44), _mm512_shuffle_f32x4(q[0], q[1], 0xee));
    V cd = v_add(_mm512_shuffle_f32x4(q[2], q[3], 0x44), _mm512_shuffle_f32x4(q[2], q[3], 0xee));
    return v_add(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
}

#endif
