/* Where; Trilu and Dropout, which choose by position and by nothing. */
#include <string.h>

#include "ops/lines.h"

/* ---- Where ---- */

/* y, with the bits in which x differs turned where the condition holds: vectors without a blend instruction. */
#define CHOOSE(T, x, y) ((y) ^ (((x) ^ (y)) & (T) (0 - (T) (((const uint8_t *) at[1])[k] != 0))))

#define WHERE(name, T)                                                                                                           \
    static void name(char *const *at, const int64_t *steps, int64_t n)                                                           \
    {                                                                                                                            \
        const int64_t dense = sizeof(T);                                                                                         \
        if (steps[1] == 1 && steps[2] == dense && steps[3] == 0) {                                                               \
            const T y = *(const T *) at[3];                                                                                      \
            HEED_LINE_LOOP(T, const T x = ((const T *) at[2])[k], CHOOSE(T, x, y))                                               \
        } else if (steps[1] == 1 && steps[2] == 0 && steps[3] == dense) {                                                        \
            const T x = *(const T *) at[2];                                                                                      \
            HEED_LINE_LOOP(T, const T y = ((const T *) at[3])[k], CHOOSE(T, x, y))                                               \
        } else if (steps[1] == 1 && steps[2] == dense && steps[3] == dense) {                                                    \
            HEED_LINE_LOOP(T, const T x = ((const T *) at[2])[k]; const T y = ((const T *) at[3])[k], CHOOSE(T, x, y))           \
        } else {                                                                                                                 \
            for (int64_t k = 0; k < n; k++)                                                                                      \
                ((T *) at[0])[k] = *(const uint8_t *) (at[1] + k * steps[1]) ? *(const T *) (at[2] + k * steps[2])               \
                                                                             : *(const T *) (at[3] + k * steps[3]);              \
        }                                                                                                                        \
    }
WHERE(where_8, uint8_t)
WHERE(where_16, uint16_t)
WHERE(where_32, uint32_t)
WHERE(where_64, uint64_t)

static int64_t chosen(heed_infer *i, int64_t truth, int64_t x, int64_t y)
{
    int64_t number;
    if (x == y) return x;
    if (!heed_dims_known(i->dims, truth, &number)) return HEED_DIM_UNKNOWN;
    return number ? x : y;
}

static heed_status infer_where(heed_infer *i)
{
    const int64_t *in[3];
    int n[3], count = 1;
    heed_fact *out = &i->out[0];
    if (i->in[0]->dtype != HEED_DTYPE_NONE && i->in[0]->dtype != HEED_BOOL)
        return heed_infer_fail(i, "condition is %s, expected bool", heed_dtype_name(i->in[0]->dtype));
    HEED_TRY(heed_infer_same_type(i, 1, 2, &out->dtype));
    HEED_TRY(heed_infer_broadcast_range(i, 0, 2, out));
    if (out->rank < 0 || out->rank > 1 || (out->dtype != HEED_I64 && out->dtype != HEED_I32)) return HEED_OK;
    for (int k = 0; k < 3; k++) {
        if (!heed_infer_ints(i, k, &in[k], &n[k])) return HEED_OK;
        if (n[k] != 1) count = n[k];
    }
    for (int k = 0; k < 3; k++)
        if (n[k] != 1 && n[k] != count) return HEED_OK;
    int64_t *ints = heed_infer_new_ints(i, count);
    if (!ints) return heed_infer_memory(i);
    for (int k = 0; k < count; k++)
        ints[k] = chosen(i, in[0][n[0] == 1 ? 0 : k], in[1][n[1] == 1 ? 0 : k], in[2][n[2] == 1 ? 0 : k]);
    return heed_infer_set_ints(i, 0, out->rank, ints, count);
}

static void where_lines(void *arg, char *const *at, const int64_t *steps, int64_t n)
{
    (*(heed_line_fn *const *) arg)(at, steps, n);
}

static heed_status compute_where(heed_compute *c)
{
    static heed_line_fn *const by_size[] = { [1] = where_8, [2] = where_16, [4] = where_32, [8] = where_64 };
    heed_line_fn *fn = by_size[heed_dtype_size(c->out[0]->dtype)];
    const heed_tensor *args[4] = { c->out[0], c->in[0], c->in[1], c->in[2] };
    heed_loop loop;
    heed_loop_init(&loop, 4, args);
    heed_loop_run(c->ctx, &loop, args, where_lines, &fn);
    return HEED_OK;
}

/* ---- Trilu ---- */

static heed_status infer_trilu(heed_infer *i)
{
    HEED_TRY(heed_infer_same(i));
    if (i->in[0]->rank >= 0 && i->in[0]->rank < 2)
        return heed_infer_fail(i, "its input has rank %d, expected 2 or more", i->in[0]->rank);
    return HEED_OK;
}

struct trilu {
    char *data;
    int64_t rows, cols, k;
    size_t size;
    int upper;
};

/* Clear what lies on the other side of the diagonal, in rows of all matrices. */
static void trilu_rows(void *arg, int64_t begin, int64_t end)
{
    const struct trilu *t = arg;
    for (int64_t r = begin; r < end; r++) {
        int64_t diagonal = r % t->rows + t->k; /* its column in this row, which may lie outside */
        int64_t first = t->upper ? 0 : diagonal + 1, last = t->upper ? diagonal : t->cols; /* cleared */
        if (first < 0) first = 0;
        if (last > t->cols) last = t->cols;
        if (last > first) memset(t->data + (size_t) (r * t->cols + first) * t->size, 0, (size_t) (last - first) * t->size);
    }
}

static heed_status compute_trilu(heed_compute *c)
{
    heed_tensor *out = c->out[0];
    if (heed_tensor_count(out) == 0) return HEED_OK;
    if (out->data != c->in[0]->data) heed_copy(c->ctx, out, c->in[0]);
    int64_t rows = out->dims[out->rank - 2], cols = out->dims[out->rank - 1], n = heed_tensor_count(out) / cols;
    int64_t k = heed_compute_has(c, 1) && heed_tensor_count(c->in[1]) ? heed_tensor_int(c->in[1], 0) : 0;
    if (k > cols) k = cols;
    if (k < -rows) k = -rows;
    struct trilu t = { out->data, rows, cols, k, heed_dtype_size(out->dtype), heed_node_int(c->node, "upper", 1) != 0 };
    heed_parallel_ranges(c->ctx, n, HEED_GRAIN / cols, trilu_rows, &t);
    return HEED_OK;
}

/* ---- Dropout: inference, so nothing is dropped ---- */

static heed_status infer_dropout(heed_infer *i)
{
    const heed_fact *mode = i->n_in > 2 ? i->in[2] : NULL;
    if (mode && mode->value && heed_tensor_count(mode->value) == 1 && heed_tensor_int(mode->value, 0))
        return heed_fail(HEED_ERR_UNSUPPORTED, "%s: training_mode is true; heed runs models in inference only", i->node->op);
    HEED_TRY(heed_infer_same(i));
    if (i->n_out > 1) {
        i->out[1] = i->out[0];
        i->out[1].dtype = HEED_BOOL;
    }
    return HEED_OK;
}

static int view_dropout(heed_compute *c)
{
    return c->n_out == 1 || !c->out[1] ? heed_view_same(c) : 0;
}

static heed_status compute_dropout(heed_compute *c)
{
    if (c->out[0]) heed_copy(c->ctx, c->out[0], c->in[0]);
    if (c->n_out > 1 && c->out[1]) memset(c->out[1]->data, 1, heed_tensor_bytes(c->out[1]));
    return HEED_OK;
}

const heed_op heed_ops_select[] = {
    HEED_OP("Where", 9, 3, 3, 1, .flags = HEED_OP_STRIDED, .infer = infer_where, .compute = compute_where),
    HEED_OP("Trilu", 14, 1, 2, 1, .flags = HEED_OP_STRIDED | HEED_OP_INPLACE, .infer = infer_trilu, .compute = compute_trilu),
    HEED_OP("Dropout", 7, 1, 1, 2, .flags = HEED_OP_STRIDED, .infer = infer_dropout, .compute = compute_dropout,
            .view = view_dropout),
    HEED_OP("Dropout", 12, 1, 3, 2, .flags = HEED_OP_STRIDED, .infer = infer_dropout, .compute = compute_dropout,
            .view = view_dropout, .shape_inputs = 1u << 2),
    { 0 },
};
