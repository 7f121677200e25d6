/* ops/rotary.h - the rotation that RotaryEmbedding and GroupQueryAttention share. */
#ifndef HEED_OPS_ROTARY_H
#define HEED_OPS_ROTARY_H

#include <stdint.h>

/* Turn the first 2 * half of a row's dim channels by angles with these cosines and sines, and copy the rest. Pairs are channels i
 * and i + half, or neighbours where `interleaved`. y may be x. */
void heed_rotate(float *y, const float *x, const float *cosines, const float *sines, int64_t half, int64_t dim, int interleaved);

#endif
