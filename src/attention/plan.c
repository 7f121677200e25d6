/* Making a plan: ask every solver, keep the best and all the reasons. */
#include "attention/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

#define N_SPLITS_MAX 1024

/* The environment, for tests and measurements. An empty variable counts as none. */
static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static heed_status read_env(heed_attention_env *env)
{
    static const char *const causes[HEED_ISA_COUNT] = { "this CPU runs generic at most", "this CPU runs avx2 at most",
                                                        "this CPU runs avx512 at most" };
    static const char *const asked[HEED_ISA_COUNT] = { "HEED_ISA is generic", "HEED_ISA is avx2", "HEED_ISA is avx512" };
    heed_isa here = heed_cpu_isa();
    *env = (heed_attention_env){ here, causes[here], 0, heed_row_kernels_get(), heed_gemm_kernel_get() };

    const char *isa = variable("HEED_ISA");
    if (isa) {
        if (!heed_isa_parse(isa, &env->isa))
            return heed_fail(HEED_ERR_ARGUMENT, "HEED_ISA: is '%s', expected generic, avx2 or avx512", isa);
        if (env->isa > here) return heed_fail(HEED_ERR_UNSUPPORTED, "HEED_ISA: is %s, %s", isa, causes[here]);
        env->isa_cause = asked[env->isa];
    }
    const char *splits = variable("HEED_SPLITS");
    if (splits) {
        char *end;
        long n = strtol(splits, &end, 10);
        if (*end || n < 1 || n > N_SPLITS_MAX)
            return heed_fail(HEED_ERR_ARGUMENT, "HEED_SPLITS: is '%s', expected 1 to %d", splits, N_SPLITS_MAX);
        env->n_splits = (int) n;
    }
    return HEED_OK;
}

static heed_attention_size largest_size(const heed_attention_class *c)
{
    return (heed_attention_size){ c->max_batch, c->max_len_q, c->max_len_k };
}

const heed_solver *heed_plan_choose(const heed_attention_plan *plan, const heed_attention_size *size)
{
    const heed_solver *best = &plan->choices[0];
    if (plan->n_choices == 1) return best;
    double least = best->cost(best, &plan->cls, size);
    for (int i = 1; i < plan->n_choices; i++) {
        const heed_solver *solver = &plan->choices[i];
        double cost = solver->cost(solver, &plan->cls, size);
        if (cost < least) least = cost, best = solver;
    }
    return best;
}

/* The one solver that the caller or HEED_KERNEL named. */
static heed_status pin(heed_attention_plan *plan, const char *name, const char *source)
{
    char why[160];
    for (int i = 0; i < heed_solver_count(); i++) {
        heed_solver solver = heed_solver_get(i);
        if (strcmp(solver.name, name) != 0) continue;
        if (!solver.applicable(&solver, &plan->cls, &plan->env, why, sizeof why))
            return heed_fail(HEED_ERR_UNSUPPORTED, "%s: %s does not apply: %s", source, name, why);
        if (plan->cls.force_fused && solver.tier != HEED_TIER_FUSED)
            return heed_fail(HEED_ERR_UNSUPPORTED, "%s: %s is not a fused kernel, and force_fused is set", source, name);
        plan->choices[0] = solver, plan->n_choices = 1;
        return HEED_OK;
    }
    return heed_fail(HEED_ERR_ARGUMENT, "%s: '%s' is not a kernel of this build", source, name);
}

/* Among the solvers that apply, the best tier; in it, the cheapest of each kernel family. */
static void select_choices(heed_attention_plan *plan)
{
    const heed_attention_size size = largest_size(&plan->cls);
    heed_solver_tier best = HEED_TIER_REFERENCE;
    heed_solver kept[HEED_FAMILY_COUNT];
    double costs[HEED_FAMILY_COUNT];
    int have[HEED_FAMILY_COUNT] = { 0 };
    char why[160];

    for (int i = 0; i < heed_solver_count(); i++) {
        heed_solver solver = heed_solver_get(i);
        if (solver.tier > best || !solver.applicable(&solver, &plan->cls, &plan->env, why, sizeof why)) continue;
        if (solver.tier < best) memset(have, 0, sizeof have), best = solver.tier;
        int slot = solver.kernel ? (int) solver.kernel->family : 0;
        double cost = solver.cost(&solver, &plan->cls, &size);
        if (have[slot] && costs[slot] <= cost) continue;
        kept[slot] = solver, costs[slot] = cost, have[slot] = 1;
    }
    for (int slot = 0; slot < HEED_FAMILY_COUNT; slot++)
        if (have[slot]) plan->choices[plan->n_choices++] = kept[slot];
}

/* force_fused was asked for and nothing fused applies: say of each kernel of the type why not. */
static heed_status fail_unfused(const heed_attention_plan *plan)
{
    heed_text text = { .ctx = plan->ctx };
    char why[160];
    for (int i = 0; i < heed_solver_count(); i++) {
        heed_solver solver = heed_solver_get(i);
        if (solver.tier != HEED_TIER_FUSED || solver.kernel->dtype != plan->cls.dtype) continue;
        if (!solver.applicable(&solver, &plan->cls, &plan->env, why, sizeof why))
            heed_text_add(&text, "%s %s %s", text.size ? ";" : "", solver.name, why);
    }
    const char *dtype = heed_dtype_name(plan->cls.dtype);
    heed_status status = text.size
                             ? heed_fail(HEED_ERR_UNSUPPORTED, "force_fused: no fused kernel for %s applies:%s", dtype, text.data)
                             : heed_fail(HEED_ERR_UNSUPPORTED, "force_fused: this build has no fused kernel for %s", dtype);
    heed_text_free(&text);
    return status;
}

static int is_choice(const heed_attention_plan *plan, const heed_solver *solver)
{
    for (int i = 0; i < plan->n_choices; i++)
        if (strcmp(plan->choices[i].name, solver->name) == 0) return 1;
    return 0;
}

static heed_status write_explanation(heed_attention_plan *plan, const char *pinned_by)
{
    const heed_attention_size size = largest_size(&plan->cls);
    const heed_solver *winner = heed_plan_choose(plan, &size);
    heed_text text = { .ctx = plan->ctx };
    char why[160];

    heed_text_add(&text, "%s: chosen%s%s, about %.3g us of one core at the largest size\n", winner->name, pinned_by ? " by " : "",
                  pinned_by ? pinned_by : "", winner->cost(winner, &plan->cls, &size) / 1000);
    for (int i = 0; i < heed_solver_count(); i++) {
        heed_solver solver = heed_solver_get(i);
        if (strcmp(solver.name, winner->name) == 0) continue;
        if (!solver.applicable(&solver, &plan->cls, &plan->env, why, sizeof why)) {
            heed_text_add(&text, "%s: does not apply: %s\n", solver.name, why);
            continue;
        }
        double cost = solver.cost(&solver, &plan->cls, &size) / 1000;
        const char *verdict = is_choice(plan, &solver)      ? "taken for runs whose lengths suit it better"
                              : pinned_by                   ? "applies, but another one is pinned"
                              : solver.tier != winner->tier ? "applies, but a fused kernel does too"
                                                            : "applies, but costs more";
        heed_text_add(&text, "%s: %s, about %.3g us\n", solver.name, verdict, cost);
    }
    if (text.failed) {
        heed_text_free(&text);
        return heed_fail(HEED_ERR_MEMORY, "no memory for the explanation of an attention plan");
    }
    plan->explain = text.data;
    return HEED_OK;
}

static heed_status fill_plan(heed_attention_plan *plan, const char *kernel)
{
    const char *source = kernel ? "kernel" : "HEED_KERNEL";
    if (!kernel) kernel = variable("HEED_KERNEL");
    if (kernel) {
        HEED_TRY(pin(plan, kernel, source));
    } else {
        select_choices(plan);
        if (plan->cls.force_fused && plan->choices[0].tier != HEED_TIER_FUSED) return fail_unfused(plan);
    }
    const heed_attention_size size = largest_size(&plan->cls);
    for (int i = 0; i < plan->n_choices; i++) {
        const heed_solver *solver = &plan->choices[i];
        size_t bytes = solver->workspace(solver, &plan->cls, &plan->env, &size, heed_context_threads(plan->ctx));
        if (bytes > PTRDIFF_MAX)
            return heed_fail(HEED_ERR_ARGUMENT, "desc: the workspace of %s overflows at the largest size", solver->name);
        if (bytes > plan->workspace) plan->workspace = bytes;
    }
    return write_explanation(plan, kernel ? source : NULL);
}

heed_status heed_attention_plan_create(heed_attention_plan **out, heed_context *ctx, const heed_attention_desc *desc)
{
    if (!out) return heed_fail(HEED_ERR_ARGUMENT, "out: is NULL");
    *out = NULL;
    if (!ctx) return heed_fail(HEED_ERR_ARGUMENT, "ctx: is NULL");
    heed_attention_class cls;
    heed_attention_env env;
    const char *kernel;
    HEED_TRY(heed_attention_class_init(&cls, &kernel, desc));
    HEED_TRY(read_env(&env));

    heed_attention_plan *plan = heed_alloc(ctx, sizeof *plan);
    if (!plan) return heed_fail(HEED_ERR_MEMORY, "no memory for an attention plan");
    *plan = (heed_attention_plan){ .ctx = ctx, .cls = cls, .env = env };
    heed_status status = fill_plan(plan, kernel);
    if (status != HEED_OK) {
        heed_attention_plan_destroy(plan);
        return status;
    }
    *out = plan;
    return HEED_OK;
}

void heed_attention_plan_destroy(heed_attention_plan *plan)
{
    if (!plan) return;
    heed_free(plan->ctx, plan->explain);
    heed_free(plan->ctx, plan);
}

size_t heed_attention_plan_workspace(const heed_attention_plan *plan)
{
    return plan ? plan->workspace : 0;
}

const char *heed_attention_plan_explain(const heed_attention_plan *plan)
{
    return plan ? plan->explain : "";
}

const char *heed_attention_plan_kernel(const heed_attention_plan *plan)
{
    if (!plan) return "";
    const heed_attention_size size = largest_size(&plan->cls);
    return heed_plan_choose(plan, &size)->name;
}
