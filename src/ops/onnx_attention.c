/* ONNX's Attention, opset 23 on: types and shapes only. rewrite/onnx_attention.c turns every such node into heed.Attention before
 * anything runs. */
#include "ops/util.h"

/* Dimension of an operand: 0 batch, 1 heads, 2 length, 3 head dimension, whichever rank it has. */
static int64_t dim_of(const heed_infer *i, const heed_fact *f, int which, int64_t heads)
{
    if (f->rank == 4) return f->dims[which];
    if (f->rank != 3) return heed_dims_fresh(i->dims);
    switch (which) {
    case 0: return f->dims[0];
    case 1: return heads;
    case 2: return f->dims[1];
    default: return heed_dims_div(i->dims, f->dims[2], heads);
    }
}

static void set(heed_infer *i, int output, heed_dtype type, int rank, int64_t a, int64_t b, int64_t c, int64_t d)
{
    if (output >= i->n_out) return;
    const int64_t dims[4] = { a, b, c, d };
    i->out[output].dtype = type, i->out[output].rank = rank;
    for (int k = 0; k < rank; k++) i->out[output].dims[k] = dims[k];
}

static heed_status infer_attention(heed_infer *i)
{
    const heed_fact *q = i->in[0], *k = i->in[1], *v = i->in[2];
    const heed_fact *past = i->n_in > 4 ? i->in[4] : NULL;
    const int64_t heads_q = heed_node_int(i->node, "q_num_heads", 0), heads_kv = heed_node_int(i->node, "kv_num_heads", 0);
    i->out[0].dtype = q->dtype;
    if (q->rank < 0 || k->rank < 0 || v->rank < 0) return HEED_OK;
    if (q->rank != k->rank || q->rank != v->rank || (q->rank != 3 && q->rank != 4))
        return heed_infer_fail(i, "Q, K and V have ranks %d, %d and %d, expected 3 or 4, all the same", q->rank, k->rank,
                               v->rank);
    if (q->rank == 3 && (heads_q < 1 || heads_kv < 1))
        return heed_infer_fail(i, "q_num_heads is %lld and kv_num_heads %lld, expected at least 1 for inputs of rank 3",
                               (long long) heads_q, (long long) heads_kv);
    const int64_t batch = dim_of(i, q, 0, heads_q), heads = dim_of(i, q, 1, heads_q), rows = dim_of(i, q, 2, heads_q);
    const int64_t kv = dim_of(i, k, 1, heads_kv), dim_v = dim_of(i, v, 3, heads_kv);
    int64_t keys = dim_of(i, k, 2, heads_kv);
    if (past && past->rank != 4) keys = heed_dims_fresh(i->dims);
    else if (past) keys = heed_dims_add(i->dims, past->dims[2], keys);
    if (q->rank == 4) set(i, 0, q->dtype, 4, batch, heads, rows, dim_v);
    else set(i, 0, q->dtype, 3, batch, rows, heed_dims_mul(i->dims, heads, dim_v), 0);
    set(i, 1, k->dtype, 4, batch, kv, keys, dim_of(i, k, 3, heads_kv));
    set(i, 2, v->dtype, 4, batch, kv, keys, dim_v);
    set(i, 3, q->dtype, 4, batch, heads, rows, keys);
    return HEED_OK;
}

const heed_op heed_ops_onnx_attention[] = {
    HEED_OP("Attention", 23, 3, 7, 4, .infer = infer_attention),
    { 0 },
};
