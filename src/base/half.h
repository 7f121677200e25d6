/* base/half.h - f16 and bf16 as uint16_t, converted one by one in plain C (IEEE 754 binary16; bfloat16).
 * Rounding is to nearest even; NaN stays NaN. Kernels have wide conversions of their own. */
#ifndef HEED_BASE_HALF_H
#define HEED_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t heed_bits_of_f32(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float heed_f32_of_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static inline float heed_f32_from_bf16(uint16_t h)
{
    return heed_f32_of_bits((uint32_t) h << 16);
}

static inline uint16_t heed_bf16_from_f32(float x)
{
    uint32_t u = heed_bits_of_f32(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t) (u >> 16 | 0x40); /* quiet the NaN */
    return (uint16_t) ((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

static inline float heed_f32_from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t) (h & 0x8000u) << 16, exponent = h >> 10 & 0x1fu, mantissa = h & 0x3ffu;
    if (exponent == 0x1f) return heed_f32_of_bits(sign | 0x7f800000u | mantissa << 13);
    if (exponent != 0) return heed_f32_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
    float x = (float) mantissa * 0x1p-24f; /* subnormal: exact */
    return sign ? -x : x;
}

static inline uint16_t heed_f16_from_f32(float x)
{
    uint32_t u = heed_bits_of_f32(x), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return (uint16_t) (sign | 0x7e00u | (a >> 13 & 0x3ffu));
    if (a >= 0x477ff000u) return (uint16_t) (sign | 0x7c00u); /* 65520 and more round to infinity */
    if (a < 0x38800000u) {                                    /* below 2^-14: the sum rounds at 2^-24 */
        float r = heed_f32_of_bits(a) + 0.5f;
        return (uint16_t) (sign | (heed_bits_of_f32(r) - 0x3f000000u));
    }
    a += 0xfffu + (a >> 13 & 1);
    return (uint16_t) (sign | (a - 0x38000000u) >> 13);
}

#endif
