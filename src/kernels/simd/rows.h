/* simd/rows.h - the tables of row kernels, one per instruction set. */
#ifndef HEED_SIMD_ROWS_H
#define HEED_SIMD_ROWS_H

#include "kernels/kernels.h"

extern const heed_row_kernels heed_rows_generic;
#if defined(__x86_64__)
extern const heed_row_kernels heed_rows_avx2, heed_rows_avx512;
#endif

#endif
