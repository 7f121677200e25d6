/* CPU features by CPUID and XGETBV: no /proc, no /sys, so that it works in sandboxes. */
#include "base/cpu.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static const char *const isa_names[HEED_ISA_COUNT] = { "generic", "avx2", "avx512" };

const char *heed_isa_name(heed_isa isa)
{
    return isa_names[isa];
}

int heed_isa_parse(const char *name, heed_isa *isa)
{
    for (int i = 0; i < HEED_ISA_COUNT; i++) {
        if (strcmp(name, isa_names[i]) == 0) {
            *isa = (heed_isa) i;
            return 1;
        }
    }
    return 0;
}

#if defined(__x86_64__)
#include <cpuid.h>

static unsigned long long saved_state(void)
{
    unsigned lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (unsigned long long) hi << 32 | lo;
}

static heed_isa detect(void)
{
    const unsigned osxsave = 1u << 27, avx = 1u << 28, fma = 1u << 12, f16c = 1u << 29;
    const unsigned avx2 = 1u << 5, f512 = 1u << 16, dq512 = 1u << 17, cd512 = 1u << 28, bw512 = 1u << 30, vl512 = 1u << 31;
    const unsigned need1 = osxsave | avx | fma | f16c, need512 = f512 | dq512 | cd512 | bw512 | vl512;
    unsigned a, b, c, d;

    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & need1) != need1) return HEED_ISA_GENERIC;
    unsigned long long state = saved_state();
    if ((state & 0x6) != 0x6) return HEED_ISA_GENERIC; /* XMM, YMM */
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & avx2)) return HEED_ISA_GENERIC;
    if ((b & need512) != need512 || (state & 0xe6) != 0xe6) return HEED_ISA_AVX2; /* opmask, ZMM */
    return HEED_ISA_AVX512;
}

/* Asked once: CPUID traps in a virtual machine and then takes tens of microseconds. */
heed_isa heed_cpu_isa(void)
{
    static atomic_int known = -1;
    int isa = atomic_load_explicit(&known, memory_order_relaxed);
    if (isa < 0) {
        isa = (int) detect();
        atomic_store_explicit(&known, isa, memory_order_relaxed);
    }
    return (heed_isa) isa;
}
#else
heed_isa heed_cpu_isa(void)
{
    return HEED_ISA_GENERIC;
}
#endif

int heed_cpu_count(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        int n = CPU_COUNT(&set);
        if (n > 0) return n;
    }
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int) n : 1;
}
