/* onnx/import.h - from an ONNX file to a graph.
 *
 * What the importer does so that nothing after it needs to: domain "ai.onnx" becomes ""; every node carries the opset
 * version of its domain; Constant nodes and initializers become constants (sparse ones are refused); model-local functions
 * are inlined, with their attributes bound; an optional input written "" is NULL; an initializer that is also a graph input
 * is a constant. An If node's branches are graphs in attributes then_branch and else_branch whose outer values became inputs
 * of the branch: the node's inputs are the condition, then what then_branch->inputs stand for, in order, then the same for
 * else_branch. Loop and Scan are refused by name. Declared types and shapes of values are kept as facts (symbolic names go
 * into graph->dims), so that inference starts from them.
 */
#ifndef HEED_ONNX_IMPORT_H
#define HEED_ONNX_IMPORT_H

#include "graph/graph.h"

typedef struct heed_onnx_model heed_onnx_model; /* owns the graph, the protobuf memory that constants point into, and the maps */

/* path is for messages and base_dir for external data (NULL: the file's folder, or none). bytes are not needed afterwards. */
heed_status heed_onnx_import(heed_onnx_model **out, const heed_context *ctx, const void *data, size_t bytes, const char *path,
                             const char *base_dir);
heed_status heed_onnx_import_file(heed_onnx_model **out, const heed_context *ctx, const char *path);
void heed_onnx_destroy(heed_onnx_model *model);
const heed_graph *heed_onnx_graph(const heed_onnx_model *model);

#endif
