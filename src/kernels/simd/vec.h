/* simd/vec.h - brings in the vocabulary of the instruction set that a file is compiled for, and names by it.
 *
 * The build gives each file HEED_SIMD_ISA (a name of base/cpu.h: generic, avx2 ...) and the attention kernels HEED_SIMD_TYPE
 * (f32, f16, bf16) as well. A new instruction set is one more vec_NAME.h. Only static functions may be defined in these
 * files: the linker keeps one copy of anything shared, and it might be one that this CPU cannot run. */
#ifndef HEED_SIMD_VEC_H
#define HEED_SIMD_VEC_H

#define HEED_SIMD_JOIN_(a, b) a##b
#define HEED_SIMD_JOIN(a, b) HEED_SIMD_JOIN_(a, b)
#define HEED_SIMD_TEXT_(x) #x
#define HEED_SIMD_TEXT(x) HEED_SIMD_TEXT_(x)
/* Blanks would become part of the file name. */
/* clang-format off */
#define HEED_SIMD_FILE_(isa) HEED_SIMD_TEXT(kernels/simd/vec_##isa.h)
/* clang-format on */
#define HEED_SIMD_FILE(isa) HEED_SIMD_FILE_(isa)
#include HEED_SIMD_FILE(HEED_SIMD_ISA)

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* Unroll a loop over registers wholly. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#endif
