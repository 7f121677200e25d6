/* ops/window.h - windows that move over the spatial axes of [N, C, ...]: convolution and pooling. */
#ifndef HEED_OPS_WINDOW_H
#define HEED_OPS_WINDOW_H

#include "ops/util.h"

#define HEED_SPATIAL_MAX (HEED_RANK_MAX - 2)

typedef struct heed_window {
    int n; /* spatial axes */
    int64_t in[HEED_SPATIAL_MAX], out[HEED_SPATIAL_MAX], kernel[HEED_SPATIAL_MAX];
    int64_t stride[HEED_SPATIAL_MAX], dilation[HEED_SPATIAL_MAX], pad[HEED_SPATIAL_MAX]; /* pad: before the first element */
    int64_t in_count, out_count, taps;                                                   /* products */
} heed_window;

/* Check the attributes for `n` spatial axes and compute the spatial sizes of the output. kernel: entries may be symbols. */
heed_status heed_window_infer(heed_infer *i, int n, const int64_t *kernel, const heed_fact *x, int64_t *out);
/* The window of a run, of attributes that heed_window_infer has passed. */
void heed_window_init(heed_window *w, const heed_node *node, const heed_tensor *x, const int64_t *kernel, const heed_tensor *y);

/* Positions of the input along axis `axis` for output position `o` and tap `t` are o * stride - pad + t * dilation; they may lie
 * outside. */
static inline int64_t heed_window_at(const heed_window *w, int axis, int64_t o, int64_t t)
{
    return o * w->stride[axis] - w->pad[axis] + t * w->dilation[axis];
}

#endif
