/* ops/gelu.h - GELU and its relatives by name, over lines of f32. */
#ifndef HEED_OPS_GELU_H
#define HEED_OPS_GELU_H

#include "kernels/kernels.h"

typedef enum heed_activation {
    HEED_ACT_NONE,
    HEED_ACT_GELU,
    HEED_ACT_GELU_TANH,
    HEED_ACT_SILU,
    HEED_ACT_SWISH, /* x sigmoid(alpha x) */
    HEED_ACT_RELU,
    HEED_ACT_TANH,
    HEED_ACT_SIGMOID,
    HEED_ACT_COUNT
} heed_activation;

/* A function with its parameter. */
typedef struct heed_activation_desc {
    heed_activation kind;
    float alpha; /* of swish */
} heed_activation_desc;

/* The names of heed.Linear's attribute: "", "gelu", "gelu_tanh", "silu", "relu", "tanh", "quick_gelu". 0 for others. */
int heed_activation_parse(const char *name, heed_activation_desc *desc);
/* y[i] = f(x[i]); y may be x. */
void heed_activate(const heed_row_kernels *k, heed_activation_desc desc, float *y, const float *x, int64_t n);
double heed_activate_f64(heed_activation_desc desc, double x);

#endif
