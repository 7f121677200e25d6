/* simd/vec_avx2.h - the vocabulary in AVX2, FMA and F16C: 8 lanes. The words are explained in vec_generic.h. */
#ifndef HEED_SIMD_VEC_AVX2_H
#define HEED_SIMD_VEC_AVX2_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

typedef __m256 V;
typedef __m256 VM;

#define V_TILE_VECTORS 3 /* 4 x 3 accumulators, 3 vectors, 1 broadcast: all 16 registers */
#define V_EXP_FLOOR -88.0f

enum { VL = 8, V_TILE_ROWS_3 = 4, V_TILE_ROWS_2 = 6, V_TILE_ROWS_1 = 8, V_DOT_ACCUMULATORS = 8 };

static inline V v_zero(void)
{
    return _mm256_setzero_ps();
}

static inline V v_set1(float x)
{
    return _mm256_set1_ps(x);
}

static inline V v_index(void)
{
    return _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7);
}

static inline V v_add(V a, V b)
{
    return _mm256_add_ps(a, b);
}

static inline V v_sub(V a, V b)
{
    return _mm256_sub_ps(a, b);
}

static inline V v_mul(V a, V b)
{
    return _mm256_mul_ps(a, b);
}

static inline V v_div(V a, V b)
{
    return _mm256_div_ps(a, b);
}

static inline V v_fma(V a, V b, V c)
{
    return _mm256_fmadd_ps(a, b, c);
}

static inline V v_fms(V a, V b, V c)
{
    return _mm256_fmsub_ps(a, b, c);
}

static inline V v_max(V a, V b)
{
    return _mm256_max_ps(a, b);
}

static inline V v_abs(V a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}

static inline V v_round(V a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline V power_of_two(__m256i n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}

static inline V v_scale2(V p, V n)
{
    __m256i all = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(all, 1);
    return v_mul(v_mul(p, power_of_two(half)), power_of_two(_mm256_sub_epi32(all, half)));
}

static inline V v_scale2_flush(V p, V n)
{
    return v_mul(p, power_of_two(_mm256_cvtps_epi32(n)));
}

static inline VM v_lt(V a, V b)
{
    return _mm256_cmp_ps(a, b, _CMP_LT_OQ);
}

static inline VM v_ge(V a, V b)
{
    return _mm256_cmp_ps(a, b, _CMP_GE_OQ);
}

static inline VM v_eq(V a, V b)
{
    return _mm256_cmp_ps(a, b, _CMP_EQ_OQ);
}

static inline VM v_ne(V a, V b)
{
    return _mm256_cmp_ps(a, b, _CMP_NEQ_UQ);
}

static inline VM vm_and(VM a, VM b)
{
    return _mm256_and_ps(a, b);
}

static inline VM vm_or(VM a, VM b)
{
    return _mm256_or_ps(a, b);
}

static inline VM vm_none(void)
{
    return _mm256_setzero_ps();
}

static inline unsigned vm_bits(VM a)
{
    return (unsigned) _mm256_movemask_ps(a);
}

static inline V v_select(VM m, V a, V b)
{
    return _mm256_blendv_ps(b, a, m);
}

static inline __m256i first_lanes(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline V v_load_f32(const float *p)
{
    return _mm256_loadu_ps(p);
}

static inline V v_loadn_f32(const float *p, int n)
{
    return _mm256_maskload_ps(p, first_lanes(n));
}

static inline void v_store_f32(float *p, V a)
{
    _mm256_storeu_ps(p, a);
}

static inline void v_storen_f32(float *p, V a, int n)
{
    _mm256_maskstore_ps(p, first_lanes(n), a);
}

/* n < 8 halves, or bytes, one by one: there are no masked loads of that width. */
static inline __m128i loadn_u16(const uint16_t *p, int n)
{
    uint16_t lanes[VL] = { 0 };
    for (int i = 0; i < n; i++) lanes[i] = p[i];
    return _mm_loadu_si128((const __m128i *) lanes);
}

static inline void storen_u16(uint16_t *p, __m128i a, int n)
{
    uint16_t lanes[VL];
    _mm_storeu_si128((__m128i *) lanes, a);
    for (int i = 0; i < n; i++) p[i] = lanes[i];
}

static inline V v_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) p));
}

static inline V v_loadn_f16(const uint16_t *p, int n)
{
    return _mm256_cvtph_ps(loadn_u16(p, n));
}

static inline void v_store_f16(uint16_t *p, V a)
{
    _mm_storeu_si128((__m128i *) p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

static inline void v_storen_f16(uint16_t *p, V a, int n)
{
    storen_u16(p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), n);
}

static inline V widen_bf16(__m128i h)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

static inline __m128i narrow_bf16(V a)
{
    __m256i u = _mm256_castps_si256(a);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
    __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    __m256i h = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
}

static inline V v_load_bf16(const uint16_t *p)
{
    return widen_bf16(_mm_loadu_si128((const __m128i *) p));
}

static inline V v_loadn_bf16(const uint16_t *p, int n)
{
    return widen_bf16(loadn_u16(p, n));
}

static inline void v_store_bf16(uint16_t *p, V a)
{
    _mm_storeu_si128((__m128i *) p, narrow_bf16(a));
}

static inline void v_storen_bf16(uint16_t *p, V a, int n)
{
    storen_u16(p, narrow_bf16(a), n);
}

static inline V v_loadn_u8(const uint8_t *p, int n)
{
    uint8_t lanes[VL] = { 0 };
    if (n == VL) memcpy(lanes, p, VL);
    else
        for (int i = 0; i < n; i++) lanes[i] = p[i];
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *) lanes)));
}

static inline float v_sum(V a)
{
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}

static inline float v_hmax(V a)
{
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}

static inline void v_transpose(V r[VL])
{
    V t[VL];
#pragma GCC unroll 2
    for (int i = 0; i < VL; i += 4) {
        V ab = _mm256_unpacklo_ps(r[i], r[i + 1]), ab_hi = _mm256_unpackhi_ps(r[i], r[i + 1]);
        V cd = _mm256_unpacklo_ps(r[i + 2], r[i + 3]), cd_hi = _mm256_unpackhi_ps(r[i + 2], r[i + 3]);
        t[i] = _mm256_shuffle_ps(ab, cd, 0x44);
        t[i + 1] = _mm256_shuffle_ps(ab, cd, 0xee);
        t[i + 2] = _mm256_shuffle_ps(ab_hi, cd_hi, 0x44);
        t[i + 3] = _mm256_shuffle_ps(ab_hi, cd_hi, 0xee);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x31);
    }
}

static inline V v_sum4(V a, V b, V c, V d)
{
    V ab = v_add(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b)),
      cd = v_add(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
    return v_add(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
}

static inline V v_sum4_end(const V q[VL / 4])
{
    return v_add(_mm256_permute2f128_ps(q[0], q[1], 0x20), _mm256_permute2f128_ps(q[0], q[1], 0x31));
}

#endif
