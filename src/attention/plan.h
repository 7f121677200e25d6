/* attention/plan.h - a plan: the class, and the solvers that runs choose from. */
#ifndef HEED_ATTENTION_PLAN_H
#define HEED_ATTENTION_PLAN_H

#include "attention/solvers.h"

/* One solver a kernel family, or the one that covers everything. */
#define HEED_PLAN_CHOICES HEED_FAMILY_COUNT

struct heed_attention_plan {
    const heed_context *ctx;
    heed_attention_class cls;
    heed_attention_env env;
    heed_solver choices[HEED_PLAN_CHOICES];
    int n_choices;
    size_t workspace;
    char *explain;
};

/* The choice for a run of this size: cheap, pure, by the shape alone. */
const heed_solver *heed_plan_choose(const heed_attention_plan *plan, const heed_attention_size *size);

#endif
