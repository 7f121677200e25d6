/* Running the passes: facts are computed anew after each that changed the graph, and what nothing uses goes away. */
#include "rewrite/pass.h"

#include "ops/infer.h"
#include "rewrite/passes.h"

static const char *anchor_name(heed_graph *graph, const heed_node *anchor)
{
    if (anchor->name && anchor->name[0]) return heed_arena_strdup(graph->arena, anchor->name);
    return heed_arena_printf(graph->arena, "%s #%d", anchor->op, anchor->id);
}

static heed_status make_room(heed_rewriter *rewriter)
{
    if (rewriter->n_findings < rewriter->cap_findings) return HEED_OK;
    int capacity = rewriter->cap_findings ? rewriter->cap_findings * 2 : 16;
    heed_finding *grown = HEED_NEW_N(rewriter->graph->arena, heed_finding, capacity);
    if (!grown) return heed_fail(HEED_ERR_MEMORY, "no memory for the attention report");
    for (int i = 0; i < rewriter->n_findings; i++) grown[i] = rewriter->findings[i];
    rewriter->findings = grown, rewriter->cap_findings = capacity;
    return HEED_OK;
}

heed_status heed_rewriter_found(heed_rewriter *rewriter, const heed_node *anchor, const heed_node *attention, const char *reason)
{
    HEED_TRY(make_room(rewriter));
    heed_graph *graph = rewriter->graph;
    heed_finding finding = { anchor_name(graph, anchor), attention != NULL, heed_arena_strdup(graph->arena, reason), attention };
    if (!finding.node || !finding.reason) return heed_fail(HEED_ERR_MEMORY, "no memory for the attention report");
    rewriter->findings[rewriter->n_findings++] = finding;
    return HEED_OK;
}

static heed_status settle(heed_rewriter *rewriter)
{
    heed_graph_prune(rewriter->graph);
    HEED_TRY(heed_graph_bind(rewriter->graph));
    HEED_TRY(heed_graph_infer(rewriter->graph));
#ifndef NDEBUG
    HEED_TRY(heed_graph_verify(rewriter->graph));
#endif
    return HEED_OK;
}

heed_status heed_rewrite(heed_rewriter *rewriter)
{
    HEED_TRY(settle(rewriter));
    for (const heed_pass *pass = heed_passes; pass->name; pass++) {
        if (!rewriter->fuse && !pass->when_unfused) continue;
        HEED_TRY(pass->run(rewriter));
        HEED_TRY(settle(rewriter));
    }
    return heed_graph_verify(rewriter->graph);
}
