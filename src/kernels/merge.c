/* Joining the pieces that the keys of a row were split into. Plain C: it moves a few numbers per row and piece. */
#include <math.h>

#include "kernels/kernels.h"
#include "kernels/ref/storage.h"

enum { CHUNK = 64 }; /* output columns summed at a time */

/* A piece that saw no key has the maximum -inf and must weigh 0, whatever `top` is; NaN passes through. */
static float piece_weight(float maximum, float top)
{
    return maximum == -INFINITY ? 0.0f : expf(maximum - top);
}

static void merge_row(const heed_tile *tile, heed_dtype dtype, int row, int n_parts, const float *part_out, const float *part_sum,
                      const float *part_max)
{
    const heed_tile_row *r = &tile->rows[row];
    const ptrdiff_t n_rows = tile->n_rows, width = tile->head_dim_v;
    float m = -INFINITY;
    for (int p = 0; p < n_parts; p++)
        if (part_max[p * n_rows + row] > m) m = part_max[p * n_rows + row];

    double visible = 0, sum = 0;
    const float top = r->sink > m ? r->sink : m;
    for (int p = 0; p < n_parts; p++) {
        ptrdiff_t i = p * n_rows + row;
        visible += (double) piece_weight(part_max[i], m) * (double) part_sum[i];
        sum += (double) piece_weight(part_max[i], top) * (double) part_sum[i];
    }
    sum += (double) piece_weight(r->sink, top);

    for (ptrdiff_t first = 0; first < width; first += CHUNK) {
        double x[CHUNK] = { 0 };
        ptrdiff_t n = width - first < CHUNK ? width - first : CHUNK;
        for (int p = 0; p < n_parts; p++) {
            ptrdiff_t i = p * n_rows + row;
            double w = (double) piece_weight(part_max[i], top);
            for (ptrdiff_t c = 0; c < n; c++) x[c] += w * (double) part_out[i * width + first + c];
        }
        for (ptrdiff_t c = 0; c < n; c++)
            element_store(r->out, dtype, (first + c) * tile->out_col, sum == 0 ? 0.0f : (float) (x[c] / sum));
    }
    if (r->lse) *r->lse = visible == 0 ? -INFINITY : (float) ((double) m + log(visible));
}

void heed_merge_parts(const heed_tile *tile, heed_dtype dtype, int n_parts, const float *part_out, const float *part_sum,
                      const float *part_max)
{
    for (int row = 0; row < tile->n_rows; row++) merge_row(tile, dtype, row, n_parts, part_out, part_sum, part_max);
}
