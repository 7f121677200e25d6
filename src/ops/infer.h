/* ops/infer.h - shape inference over a graph, and evaluation of one node on known data. */
#ifndef HEED_OPS_INFER_H
#define HEED_OPS_INFER_H

#include "ops/op.h"

/* Bind node->def for every node, inner graphs too. Fails with HEED_ERR_UNSUPPORTED and the node's name at the first unknown one.
 */
heed_status heed_graph_bind(heed_graph *graph);
/* Compute the facts of every value in order, from the inputs' and constants' facts. What a node says is joined with what the
 * file declared (the more precise wins; a contradiction of two known sizes is an error that names the value). */
heed_status heed_graph_infer(heed_graph *graph);
/* Facts of one node's outputs from its inputs' present facts. */
heed_status heed_node_infer(heed_graph *graph, heed_node *node);
/* Evaluate a node whose inputs are all known: outputs dense, in the arena. Fails with HEED_ERR_UNSUPPORTED if it cannot. */
heed_status heed_node_evaluate(heed_graph *graph, heed_node *node, const heed_tensor **outputs);

#endif
