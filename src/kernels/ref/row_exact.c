/* One row of a tile from the definition, in double: what a fast kernel falls back to for a row that came out non-finite
 * although a NaN or infinity may have reached it through a hidden key only. Touches visible keys and values alone. */
#include <math.h>

#include "kernels/kernels.h"
#include "kernels/ref/storage.h"

enum { CHUNK = 1024 }; /* output columns summed at a time */

typedef struct row_view {
    const heed_tile *tile;
    const heed_tile_row *row;
    heed_dtype dtype;
    int64_t begin, end;
} row_view;

/* What the mask adds; -inf hides the key. */
static double mask_value(const row_view *view, int64_t j)
{
    const void *mask = view->row->mask;
    ptrdiff_t at = (ptrdiff_t) j * view->tile->mask_col;
    switch (view->tile->mask_kind) {
    case HEED_TILE_MASK_BOOL: return ((const uint8_t *) mask)[at] ? 0 : -INFINITY;
    case HEED_TILE_MASK_F32: return (double) ((const float *) mask)[at];
    case HEED_TILE_MASK_TYPE: return (double) element_load(mask, view->dtype, at);
    case HEED_TILE_MASK_NONE: break;
    }
    return 0;
}

/* 1 if the row sees key j, with its score. */
static int score(const row_view *view, int64_t j, double *s)
{
    const heed_tile *t = view->tile;
    double added = mask_value(view, j), dot = 0;
    if (added == -INFINITY) return 0;
    for (int d = 0; d < t->head_dim; d++)
        dot += (double) element_load(view->row->q, view->dtype, d * t->q_col) *
               (double) element_load(t->k, view->dtype, (ptrdiff_t) j * t->k_row + d * t->k_col);
    double x = (double) t->scale * dot;
    if (t->softcap > 0) x = (double) t->softcap * tanh(x / (double) t->softcap);
    *s = x + added;
    return 1;
}

/* exp(s - top), where nothing but -inf was seen too. */
static double weight(double s, double top)
{
    return exp(top == -INFINITY ? s : s - top);
}

/* sums[c] = sum of exp(s - top) v[first + c]; returns the sum of exp(s - top). */
static double weighted_sum(const row_view *view, double top, int first, int n, double *sums)
{
    const heed_tile *t = view->tile;
    double total = 0, s;
    for (int c = 0; c < n; c++) sums[c] = 0;
    for (int64_t j = view->begin; j < view->end; j++) {
        if (!score(view, j, &s)) continue;
        double w = weight(s, top);
        total += w;
        for (int c = 0; c < n; c++)
            sums[c] += w * (double) element_load(t->v, view->dtype, (ptrdiff_t) j * t->v_row + (first + c) * t->v_col);
    }
    return total;
}

void heed_row_exact(const heed_tile *tile, heed_dtype dtype, int row)
{
    const heed_tile_row *r = &tile->rows[row];
    row_view view = { tile, r, dtype, r->lo > tile->key_begin ? r->lo : tile->key_begin,
                      r->hi < tile->key_end ? r->hi : tile->key_end };
    double m = -INFINITY, s, sums[CHUNK];

    for (int64_t j = view.begin; j < view.end; j++)
        if (score(&view, j, &s) && s > m) m = s;
    m = (double) (float) m; /* as it is handed on */

    const double sink = (double) r->sink, top = !tile->part_out && sink > m ? sink : m;
    double total = 0;
    for (int first = 0; first < tile->head_dim_v; first += CHUNK) {
        const int n = tile->head_dim_v - first < CHUNK ? tile->head_dim_v - first : CHUNK;
        total = weighted_sum(&view, top, first, n, sums);
        const double all = total + weight(sink, top);
        for (int c = 0; c < n; c++) {
            if (tile->part_out) tile->part_out[(ptrdiff_t) row * tile->head_dim_v + first + c] = (float) sums[c];
            else element_store(r->out, dtype, (first + c) * tile->out_col, all == 0 ? 0.0f : (float) (sums[c] / all));
        }
    }
    if (tile->part_out) {
        tile->part_sum[row] = (float) total;
        tile->part_max[row] = (float) m;
    } else if (r->lse) {
        if (top != m) total = weighted_sum(&view, m, 0, 0, sums); /* may be too small beside the sink */
        *r->lse = total == 0 ? -INFINITY : (float) (m + log(total));
    }
}
