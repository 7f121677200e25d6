/* attention/solvers.h - the ways to compute attention, as a table: the reference, explode, and one solver for each kernel
 * of heed_kernels. A solver says whether it applies (and if not, why), what it costs, how much workspace it needs, and
 * runs. */
#ifndef HEED_ATTENTION_SOLVERS_H
#define HEED_ATTENTION_SOLVERS_H

#include "attention/problem.h"
#include "base/context.h"
#include "kernels/gemm.h"

typedef struct heed_solver heed_solver;

/* Lengths that costs and workspace depend on. `keys` is the most keys a query may see. */
typedef struct heed_attention_size {
    int64_t batch, len_q, keys;
} heed_attention_size;

/* What the machine and the environment variables offer, read when a plan is made. */
typedef struct heed_attention_env {
    heed_isa isa;          /* strongest that may be used */
    const char *isa_cause; /* "this CPU runs avx2 at most" */
    int n_splits;          /* pieces of the keys; 0: as the shape asks */
    const heed_row_kernels *rows;
    const heed_gemm_kernel *gemm;
} heed_attention_env;

/* Everything a launch works with. */
typedef struct heed_attention_launch {
    const heed_context *ctx;
    const heed_solver *solver;
    const heed_attention_problem *problem;
    const heed_attention_env *env;
    char *workspace; /* 64-byte aligned, of the size that workspace() names */
    /* What was done. */
    int64_t n_tasks, splits_done, n_redone;
} heed_attention_launch;

/* Solvers of a lower tier are preferred whatever the costs: fused kernels need no memory for the scores. */
typedef enum heed_solver_tier { HEED_TIER_FUSED = 0, HEED_TIER_EXPLODE, HEED_TIER_REFERENCE } heed_solver_tier;

struct heed_solver {
    const char *name;
    heed_solver_tier tier;
    const heed_kernel *kernel; /* NULL but for fused ones */
    /* 1, or 0 with the reason in `why`. */
    int (*applicable)(const heed_solver *solver, const heed_attention_class *cls, const heed_attention_env *env, char *why,
                      size_t why_size);
    /* About nanoseconds of one core. Pure and cheap: it is asked on every run. */
    double (*cost)(const heed_solver *solver, const heed_attention_class *cls, const heed_attention_size *size);
    /* Bytes for any run up to `size` with that many workers, SIZE_MAX on overflow. */
    size_t (*workspace)(const heed_solver *solver, const heed_attention_class *cls, const heed_attention_env *env,
                        const heed_attention_size *size, int n_workers);
    void (*launch)(heed_attention_launch *launch);
};

/* Number of solvers, and solver `index` of them. */
int heed_solver_count(void);
heed_solver heed_solver_get(int index);

/* The fused kernels' part: attention/tiles.c */
double heed_tiles_cost(const heed_solver *solver, const heed_attention_class *cls, const heed_attention_size *size);
size_t heed_tiles_workspace(const heed_solver *solver, const heed_attention_class *cls, const heed_attention_env *env,
                            const heed_attention_size *size, int n_workers);
void heed_tiles_launch(heed_attention_launch *launch);

/* attention/explode.c */
int heed_explode_applicable(const heed_solver *solver, const heed_attention_class *cls, const heed_attention_env *env, char *why,
                            size_t why_size);
double heed_explode_cost(const heed_solver *solver, const heed_attention_class *cls, const heed_attention_size *size);
size_t heed_explode_workspace(const heed_solver *solver, const heed_attention_class *cls, const heed_attention_env *env,
                              const heed_attention_size *size, int n_workers);
void heed_explode_launch(heed_attention_launch *launch);

/* attention/reference.c */
double heed_reference_cost(const heed_solver *solver, const heed_attention_class *cls, const heed_attention_size *size);
size_t heed_reference_workspace(const heed_solver *solver, const heed_attention_class *cls, const heed_attention_env *env,
                                const heed_attention_size *size, int n_workers);
void heed_reference_launch(heed_attention_launch *launch);

#endif
