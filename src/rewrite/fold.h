/* rewrite/fold.h - the parts of the folding pass. Each works on one graph whose facts are up to date, keeps results bit for
 * bit, and leaves unused nodes to be pruned. */
#ifndef HEED_REWRITE_FOLD_H
#define HEED_REWRITE_FOLD_H

#include "graph/graph.h"

/* 1 for an initializer or a folded value. */
static inline int heed_value_is_constant(const heed_value *value)
{
    return value && value->fact.value && !value->producer && !value->is_input;
}

/* Make constants of the node's outputs if their data are known or can be computed cheaply. *done is 1 if so. */
heed_status heed_fold_node(heed_graph *graph, heed_node *node, int *done);
/* The value that output 0 of the node always equals, or NULL. */
heed_value *heed_fold_identity(const heed_node *node);
/* Merge constants with equal contents and nodes that compute the same. */
heed_status heed_fold_common(heed_graph *graph);
/* Put the nodes of a branch of an If before it and its results in place of the If's. */
heed_status heed_fold_inline_branch(heed_graph *graph, heed_node *node, int taken);

#endif
