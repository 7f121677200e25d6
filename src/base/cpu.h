/* base/cpu.h - what this CPU and its operating system can run. */
#ifndef HEED_BASE_CPU_H
#define HEED_BASE_CPU_H

/* Instruction sets that kernels are compiled for, weak to strong. Each includes the ones before it on its architecture. */
typedef enum heed_isa {
    HEED_ISA_GENERIC = 0, /* what the compiler targets by default */
    HEED_ISA_AVX2 = 1,    /* AVX2, FMA, F16C */
    HEED_ISA_AVX512 = 2,  /* AVX-512 F, BW, CD, DQ, VL on top */
    HEED_ISA_COUNT = 3
} heed_isa;

const char *heed_isa_name(heed_isa isa);
/* 1 if `name` names an ISA, which is then in *isa. */
int heed_isa_parse(const char *name, heed_isa *isa);
/* Strongest ISA that runs here (CPUID, and XGETBV for the state the system saves). Thread-safe, cheap. */
heed_isa heed_cpu_isa(void);

/* Logical CPUs that this process may use (affinity, then the count of online ones), at least 1. */
int heed_cpu_count(void);

#endif
