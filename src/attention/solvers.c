/* The solver table, and which solvers apply. */
#include "attention/solvers.h"

#include <stdio.h>

static int always_applicable(const heed_solver *solver, const heed_attention_class *cls, const heed_attention_env *env, char *why,
                             size_t why_size)
{
    (void) solver, (void) cls, (void) env, (void) why, (void) why_size;
    return 1;
}

static int kernel_applicable(const heed_solver *solver, const heed_attention_class *cls, const heed_attention_env *env, char *why,
                             size_t why_size)
{
    const heed_kernel *kernel = solver->kernel;
    if (kernel->dtype != cls->dtype) {
        snprintf(why, why_size, "works on %s, the problem is %s", heed_dtype_name(kernel->dtype), heed_dtype_name(cls->dtype));
        return 0;
    }
    if (kernel->isa > env->isa) {
        snprintf(why, why_size, "needs %s, %s", heed_isa_name(kernel->isa), env->isa_cause);
        return 0;
    }
    return 1;
}

static const heed_solver unfused[] = {
    { "reference", HEED_TIER_REFERENCE, NULL, always_applicable, heed_reference_cost, heed_reference_workspace,
      heed_reference_launch },
    { "explode", HEED_TIER_EXPLODE, NULL, heed_explode_applicable, heed_explode_cost, heed_explode_workspace,
      heed_explode_launch },
};
enum { N_UNFUSED = sizeof unfused / sizeof *unfused };

int heed_solver_count(void)
{
    return N_UNFUSED + heed_n_kernels;
}

heed_solver heed_solver_get(int index)
{
    if (index < N_UNFUSED) return unfused[index];
    const heed_kernel *kernel = &heed_kernels[index - N_UNFUSED];
    return (heed_solver){ kernel->name,    HEED_TIER_FUSED,      kernel,           kernel_applicable,
                          heed_tiles_cost, heed_tiles_workspace, heed_tiles_launch };
}

int heed_kernel_info_get(int index, heed_kernel_info *info)
{
    if (!info || info->struct_size < sizeof(size_t) || index < 0 || index >= heed_solver_count()) return 0;
    heed_solver solver = heed_solver_get(index);
    const heed_kernel *kernel = solver.kernel;
    heed_kernel_info full = { .struct_size = info->struct_size, .name = solver.name, .runs_here = 1 };
    full.family = kernel ? heed_family_name(kernel->family) : solver.name;
    full.dtype = kernel ? heed_dtype_name(kernel->dtype) : "any";
    full.isa = heed_isa_name(kernel ? kernel->isa : HEED_ISA_GENERIC);
    full.runs_here = !kernel || kernel->isa <= heed_cpu_isa();
    heed_copy_struct(info, &full, sizeof full);
    return 1;
}
