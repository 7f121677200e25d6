/* ops/line_io.h - lines of numbers as f32, whatever type and stride they are stored with. */
#ifndef HEED_OPS_LINE_IO_H
#define HEED_OPS_LINE_IO_H

#include "kernels/kernels.h"
#include "ops/util.h"

static inline char *heed_at(const void *data, heed_dtype dtype, int64_t element)
{
    return (char *) (uintptr_t) data + element * (int64_t) heed_dtype_size(dtype);
}

/* n elements `step` apart, from element number `at` on: where they lie if they are f32 side by side, else copied to buf. */
static inline const float *heed_row_load(float *buf, heed_dtype dtype, const void *data, int64_t at, int64_t step, int64_t n)
{
    const char *from = heed_at(data, dtype, at);
    if (dtype == HEED_F32 && (step == 1 || n == 1)) return (const float *) from;
    heed_cast_line(HEED_F32, buf, sizeof *buf, dtype, from, step * (int64_t) heed_dtype_size(dtype), n);
    return buf;
}

/* Where a row of results may be computed: in the output itself, or in buf, from which heed_row_store() takes it. */
static inline float *heed_row_target(float *buf, heed_dtype dtype, void *data, int64_t at, int64_t step)
{
    return dtype == HEED_F32 && step == 1 ? (float *) heed_at(data, dtype, at) : buf;
}

static inline void heed_row_store(heed_dtype dtype, void *data, int64_t at, int64_t step, const float *row, int64_t n)
{
    char *to = heed_at(data, dtype, at);
    if ((const float *) to == row) return;
    heed_cast_line(dtype, to, step * (int64_t) heed_dtype_size(dtype), HEED_F32, row, sizeof *row, n);
}

#endif
