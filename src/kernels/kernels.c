/* The table of kernels, made of kernels.inc, and the ways to find one. */
#include "kernels/kernels.h"

#include <string.h>

/* Types and sets as kernels.inc spells them. */
enum { TYPE_f32 = HEED_F32, TYPE_f16 = HEED_F16, TYPE_bf16 = HEED_BF16 };
enum { SET_generic = HEED_ISA_GENERIC, SET_avx2 = HEED_ISA_AVX2, SET_avx512 = HEED_ISA_AVX512 };
enum { FAMILY_prefill = HEED_FAMILY_PREFILL, FAMILY_decode = HEED_FAMILY_DECODE };

#define HEED_KERNEL(family, dtype, isa, rows, row_step)                                                                          \
    { #family "_" #dtype "_" #isa,                                                                                               \
      (heed_family) FAMILY_##family,                                                                                             \
      (heed_dtype) TYPE_##dtype,                                                                                                 \
      (heed_isa) SET_##isa,                                                                                                      \
      rows,                                                                                                                      \
      row_step,                                                                                                                  \
      heed_##family##_##dtype##_##isa,                                                                                           \
      heed_##family##_##dtype##_##isa##_scratch },
const heed_kernel heed_kernels[] = {
#include "kernels/kernels.inc"
    { NULL, HEED_FAMILY_COUNT, HEED_DTYPE_NONE, HEED_ISA_COUNT, 0, 0, NULL, NULL },
};
#undef HEED_KERNEL
const int heed_n_kernels = (int) (sizeof heed_kernels / sizeof heed_kernels[0]) - 1;

const char *heed_family_name(heed_family family)
{
    static const char *const names[HEED_FAMILY_COUNT] = { "prefill", "decode" };
    return names[family];
}

const heed_kernel *heed_kernel_find(heed_family family, heed_dtype dtype, heed_isa isa)
{
    for (int i = 0; i < heed_n_kernels; i++)
        if (heed_kernels[i].family == family && heed_kernels[i].dtype == dtype && heed_kernels[i].isa == isa)
            return &heed_kernels[i];
    return NULL;
}

const heed_kernel *heed_kernel_by_name(const char *name)
{
    for (int i = 0; i < heed_n_kernels; i++)
        if (strcmp(heed_kernels[i].name, name) == 0) return &heed_kernels[i];
    return NULL;
}
