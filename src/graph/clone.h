/* graph/clone.h - a copy of a graph that passes may change while the original stays (constants' data are shared). */
#ifndef HEED_GRAPH_CLONE_H
#define HEED_GRAPH_CLONE_H

#include "graph/graph.h"

/* In an arena and dims table of its own. *out is NULL on failure. */
heed_status heed_graph_clone(heed_graph **out, const heed_graph *graph);

#endif
