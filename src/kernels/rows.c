/* Which table of row kernels this process works with. */
#include <stdlib.h>

#include "kernels/simd/rows.h"

const heed_row_kernels *heed_row_kernels_of(heed_isa isa)
{
    static const heed_row_kernels *const tables[HEED_ISA_COUNT] = {
        [HEED_ISA_GENERIC] = &heed_rows_generic,
#if defined(__x86_64__)
        [HEED_ISA_AVX2] = &heed_rows_avx2,
        [HEED_ISA_AVX512] = &heed_rows_avx512,
#endif
    };
    return tables[isa];
}

const heed_row_kernels *heed_row_kernels_get(void)
{
    heed_isa isa = heed_cpu_isa(), most;
    const char *wish = getenv("HEED_ISA");
    if (wish && heed_isa_parse(wish, &most) && most < isa) isa = most;
    while (isa > HEED_ISA_GENERIC && !heed_row_kernels_of(isa)) isa--;
    return heed_row_kernels_of(isa);
}
