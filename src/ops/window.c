/* Sizes and padding of moving windows: the attributes that Conv and the pools share. */
#include "ops/window.h"

#include <string.h>

/* Sizes and steps above this could make positions overflow. */
#define STEP_MAX ((int64_t) 1 << 31)

typedef enum auto_pad { PAD_GIVEN, PAD_SAME_UPPER, PAD_SAME_LOWER, PAD_VALID, PAD_UNKNOWN } auto_pad;

static auto_pad auto_pad_of(const heed_node *node)
{
    static const char *const names[] = { "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID" };
    const char *name = heed_node_string(node, "auto_pad", "NOTSET");
    for (int i = 0; i < PAD_UNKNOWN; i++)
        if (strcmp(name, names[i]) == 0) return (auto_pad) i;
    return PAD_UNKNOWN;
}

static int64_t attribute(const heed_node *node, const char *name, int index, int64_t otherwise)
{
    int n;
    const int64_t *ints = heed_node_ints(node, name, &n);
    return index < n ? ints[index] : otherwise;
}

static heed_status check_ints(heed_infer *i, const char *name, int n, int64_t least)
{
    int have;
    const int64_t *ints = heed_node_ints(i->node, name, &have);
    if (!ints) return HEED_OK;
    if (have != n) return heed_infer_fail(i, "%s has %d entries, expected %d", name, have, n);
    for (int k = 0; k < n; k++)
        if (ints[k] < least || ints[k] > STEP_MAX)
            return heed_infer_fail(i, "%s: entry %d is %lld, expected %lld to %lld", name, k, (long long) ints[k],
                                   (long long) least, (long long) STEP_MAX);
    return HEED_OK;
}

static heed_status check_attributes(heed_infer *i, int n)
{
    if (auto_pad_of(i->node) == PAD_UNKNOWN)
        return heed_infer_fail(i, "auto_pad is '%s', expected NOTSET, SAME_UPPER, SAME_LOWER or VALID",
                               heed_node_string(i->node, "auto_pad", ""));
    HEED_TRY(check_ints(i, "kernel_shape", n, 1));
    HEED_TRY(check_ints(i, "strides", n, 1));
    HEED_TRY(check_ints(i, "dilations", n, 1));
    return check_ints(i, "pads", 2 * n, 0);
}

/* Output size of one axis of known sizes; below zero where the window does not fit. */
static int64_t known_size(const heed_node *node, int n, int axis, int64_t in, int64_t kernel)
{
    int64_t stride = attribute(node, "strides", axis, 1), dilation = attribute(node, "dilations", axis, 1);
    auto_pad pad = auto_pad_of(node);
    if (pad == PAD_SAME_UPPER || pad == PAD_SAME_LOWER) return (in + stride - 1) / stride;
    int64_t before = pad == PAD_GIVEN ? attribute(node, "pads", axis, 0) : 0;
    int64_t after = pad == PAD_GIVEN ? attribute(node, "pads", n + axis, 0) : 0;
    int64_t room = in + before + after - ((kernel - 1) * dilation + 1);
    if (room < 0) return -1;
    if (heed_node_int(node, "ceil_mode", 0) == 0) return room / stride + 1;
    int64_t out = (room + stride - 1) / stride + 1;
    /* The last window begins in the input or in the padding before it, not in what was rounded up. */
    return (out - 1) * stride >= in + before ? out - 1 : out;
}

static int64_t symbolic_size(heed_infer *i, int n, int axis, int64_t in, int64_t kernel)
{
    const heed_node *node = i->node;
    int64_t stride = attribute(node, "strides", axis, 1), dilation = attribute(node, "dilations", axis, 1);
    auto_pad pad = auto_pad_of(node);
    if (heed_node_int(node, "ceil_mode", 0) != 0) return HEED_DIM_UNKNOWN;
    if (pad == PAD_SAME_UPPER || pad == PAD_SAME_LOWER)
        return heed_dims_div(i->dims, heed_dims_add(i->dims, in, stride - 1), stride);
    int64_t pads = pad == PAD_GIVEN ? attribute(node, "pads", axis, 0) + attribute(node, "pads", n + axis, 0) : 0;
    int64_t reach = heed_dims_add(i->dims, heed_dims_mul(i->dims, heed_dims_sub(i->dims, kernel, 1), dilation), 1);
    int64_t room = heed_dims_sub(i->dims, heed_dims_add(i->dims, in, pads), reach);
    return heed_dims_add(i->dims, heed_dims_div(i->dims, room, stride), 1);
}

heed_status heed_window_infer(heed_infer *i, int n, const int64_t *kernel, const heed_fact *x, int64_t *out)
{
    HEED_TRY(check_attributes(i, n));
    for (int d = 0; d < n; d++) {
        int64_t in = x->dims[2 + d];
        if (kernel[d] == 0 || kernel[d] > STEP_MAX || in > INT64_MAX / 4)
            return heed_infer_fail(i, "axis %d: a window of %lld over %lld elements", 2 + d, (long long) kernel[d],
                                   (long long) in);
        if (in < 0 || kernel[d] < 0) {
            out[d] = symbolic_size(i, n, d, in, kernel[d]);
            continue;
        }
        out[d] = known_size(i->node, n, d, in, kernel[d]);
        if (out[d] < 0)
            return heed_infer_fail(i, "axis %d: a window of %lld does not fit into %lld elements and their padding", 2 + d,
                                   (long long) kernel[d], (long long) in);
    }
    return HEED_OK;
}

void heed_window_init(heed_window *w, const heed_node *node, const heed_tensor *x, const int64_t *kernel, const heed_tensor *y)
{
    *w = (heed_window){ .n = x->rank - 2, .in_count = 1, .out_count = 1, .taps = 1 };
    auto_pad pad = auto_pad_of(node);
    for (int d = 0; d < w->n; d++) {
        w->in[d] = x->dims[2 + d], w->out[d] = y->dims[2 + d], w->kernel[d] = kernel[d];
        w->stride[d] = attribute(node, "strides", d, 1), w->dilation[d] = attribute(node, "dilations", d, 1);
        w->pad[d] = pad == PAD_GIVEN ? attribute(node, "pads", d, 0) : 0;
        if (pad == PAD_SAME_UPPER || pad == PAD_SAME_LOWER) {
            int64_t reach = (kernel[d] - 1) * w->dilation[d] + 1, total = (w->out[d] - 1) * w->stride[d] + reach - w->in[d];
            if (total < 0) total = 0;
            w->pad[d] = pad == PAD_SAME_UPPER ? total / 2 : total - total / 2;
        }
        /* Unsigned: an input without channels may have any sizes, and then the product is not used. */
        w->in_count = (int64_t) ((uint64_t) w->in_count * (uint64_t) w->in[d]);
        w->out_count *= w->out[d], w->taps *= kernel[d];
    }
}
