/* DepthToSpace and SpaceToDepth: a copy through a view of six axes. */
#include <string.h>

#include "ops/util.h"

static int is_crd(const heed_node *node)
{
    return strcmp(heed_node_string(node, "mode", "DCR"), "CRD") == 0;
}

static heed_status infer_depth(heed_infer *i, int to_space)
{
    const heed_fact *in = i->in[0];
    heed_fact *out = &i->out[0];
    int64_t block = heed_node_int(i->node, "blocksize", 0);
    if (block < 1 || block > INT32_MAX) return heed_infer_fail(i, "blocksize is %lld, expected 1 or more", (long long) block);
    out->dtype = in->dtype;
    heed_fact_unknown_dims(out, 4);
    if (in->rank < 0) return HEED_OK;
    if (in->rank != 4) return heed_infer_fail(i, "its input has rank %d, expected 4", in->rank);
    int64_t area = block * block;
    for (int d = 0; d < 4; d++) {
        int64_t by = d == 0 ? 1 : d == 1 ? area : block;
        int divides = (d == 1) == to_space; /* this dimension gets smaller */
        if (d && divides && in->dims[d] >= 0 && in->dims[d] % by != 0)
            return heed_infer_fail(i, "dimension %d is %lld, expected a multiple of %lld", d, (long long) in->dims[d],
                                   (long long) by);
        out->dims[d] = divides ? heed_dims_div(i->dims, in->dims[d], by) : heed_dims_mul(i->dims, in->dims[d], by);
        if (in->dims[d] >= 0 && out->dims[d] < 0) return heed_infer_fail(i, "blocksize %lld is too large", (long long) block);
    }
    out->dims[0] = in->dims[0];
    return HEED_OK;
}

static heed_status infer_to_space(heed_infer *i)
{
    return infer_depth(i, 1);
}

static heed_status infer_to_depth(heed_infer *i)
{
    return infer_depth(i, 0);
}

/* `dense` in its six axes, and `other` under the same axes in another order. */
static void six_axes(heed_tensor *t, const heed_tensor *of, const int64_t *dims)
{
    *t = heed_tensor_make(of->dtype, 6, dims);
    t->data = of->data;
}

/* deep [n, C] as [n, block, block, c] (DCR) or [n, c, block, block] (CRD), then h, w; wide is [n, c, h, block, w, block]. */
static heed_status move(heed_compute *c, const heed_tensor *deep, const heed_tensor *wide, int to_space)
{
    int crd = is_crd(c->node);
    int64_t b = heed_node_int(c->node, "blocksize", 1), n = deep->dims[0], ch = wide->dims[1], h = deep->dims[2],
            w = deep->dims[3];
    heed_tensor from, to;
    six_axes(&from, deep, crd ? (int64_t[]){ n, ch, b, b, h, w } : (int64_t[]){ n, b, b, ch, h, w });
    six_axes(&to, wide, (int64_t[]){ n, ch, h, b, w, b });
    static const int dcr_axes[] = { 0, 3, 4, 1, 5, 2 }, crd_axes[] = { 0, 1, 4, 2, 5, 3 };
    const int *axes = crd ? crd_axes : dcr_axes;
    heed_tensor turned = from;
    for (int d = 0; d < 6; d++) turned.dims[d] = from.dims[axes[d]], turned.strides[d] = from.strides[axes[d]];
    heed_copy(c->ctx, to_space ? &to : &turned, to_space ? &turned : &to);
    return HEED_OK;
}

static heed_status compute_to_space(heed_compute *c)
{
    return move(c, c->in[0], c->out[0], 1);
}

static heed_status compute_to_depth(heed_compute *c)
{
    return move(c, c->out[0], c->in[0], 0);
}

const heed_op heed_ops_depth[] = {
    HEED_OP("DepthToSpace", 11, 1, 1, 1, .infer = infer_to_space, .compute = compute_to_space),
    HEED_OP("SpaceToDepth", 1, 1, 1, 1, .infer = infer_to_depth, .compute = compute_to_depth),
    { 0 },
};
