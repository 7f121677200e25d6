/* One run: check the tensors, choose by the shape, find the workspace, launch. */
#include <stdio.h>

#include "attention/plan.h"

static heed_status check_trace(const heed_attention_trace *trace)
{
    if (!trace) return heed_fail(HEED_ERR_ARGUMENT, "trace: is NULL");
    if (trace->struct_size < sizeof trace->struct_size || trace->struct_size > 4096)
        return heed_fail(HEED_ERR_ARGUMENT, "trace: struct_size is %zu, expected sizeof(heed_attention_trace)",
                         trace->struct_size);
    return HEED_OK;
}

static void fill_trace(heed_attention_trace *trace, const heed_attention_launch *launch)
{
    heed_attention_trace full = { .struct_size = trace->struct_size,
                                  .n_tasks = launch->n_tasks,
                                  .n_splits = launch->splits_done,
                                  .n_redone = launch->n_redone };
    if (launch->solver) snprintf(full.kernel, sizeof full.kernel, "%s", launch->solver->name);
    heed_copy_struct(trace, &full, sizeof full);
}

/* The caller's workspace if it is good, else one from the allocator. */
static heed_status find_workspace(heed_attention_launch *launch, size_t need, void *workspace, size_t workspace_bytes)
{
    if (!workspace) {
        launch->workspace = heed_alloc(launch->ctx, need);
        if (launch->workspace) return HEED_OK;
        return heed_fail(HEED_ERR_MEMORY, "no memory for a workspace of %zu bytes", need);
    }
    if ((uintptr_t) workspace % 64) return heed_fail(HEED_ERR_ARGUMENT, "workspace: is not aligned to 64 bytes");
    if (workspace_bytes < need)
        return heed_fail(HEED_ERR_ARGUMENT, "workspace_bytes: is %zu, this run of %s needs %zu", workspace_bytes,
                         launch->solver->name, need);
    launch->workspace = workspace;
    return HEED_OK;
}

static heed_status run(const heed_attention_plan *plan, const heed_attention_args *args, void *workspace, size_t workspace_bytes,
                       heed_attention_trace *trace)
{
    if (!plan) return heed_fail(HEED_ERR_ARGUMENT, "plan: is NULL");
    heed_attention_problem problem;
    HEED_TRY(heed_attention_problem_init(&problem, &plan->cls, args));
    heed_attention_launch launch = { .ctx = plan->ctx, .problem = &problem, .env = &plan->env, .splits_done = 1 };
    if (problem.batch > 0 && problem.len_q > 0) {
        /* What a run needs is bounded by len_k, whatever the key lengths and windows leave of it. */
        heed_attention_size size = { problem.batch, problem.len_q, problem.len_k };
        int n_workers = heed_context_threads(plan->ctx);
        launch.solver = heed_plan_choose(plan, &size);
        size_t need = launch.solver->workspace(launch.solver, &plan->cls, &plan->env, &size, n_workers);
        HEED_TRY(find_workspace(&launch, need, workspace, workspace_bytes));
        launch.solver->launch(&launch);
        if (!workspace) heed_free(plan->ctx, launch.workspace);
    }
    if (trace) fill_trace(trace, &launch);
    return HEED_OK;
}

heed_status heed_attention_run(const heed_attention_plan *plan, const heed_attention_args *args, void *workspace,
                               size_t workspace_bytes)
{
    return run(plan, args, workspace, workspace_bytes, NULL);
}

heed_status heed_attention_run_traced(const heed_attention_plan *plan, const heed_attention_args *args, void *workspace,
                                      size_t workspace_bytes, heed_attention_trace *trace)
{
    HEED_TRY(check_trace(trace));
    return run(plan, args, workspace, workspace_bytes, trace);
}
