/* exec/model.h - the inside of the objects of heed/model.h. */
#ifndef HEED_EXEC_MODEL_H
#define HEED_EXEC_MODEL_H

#include <heed/model.h>

#include "exec/program.h"
#include "onnx/import.h"

struct heed_model {
    const heed_context *ctx;
    heed_onnx_model *file;
    const heed_graph *graph;
};

/* One entry of the attention report. The node is NULL where the attention was left alone or removed later. */
typedef struct heed_report_entry {
    heed_attention_report report;
    const heed_node *attention;
} heed_report_entry;

struct heed_compiled {
    const heed_context *ctx;
    heed_graph *graph;
    heed_report_entry *entries; /* in the graph's arena, like their texts */
    int n_entries;
    heed_text text;
};

struct heed_rewriter;
/* Fill compiled->entries from what the passes found. exec/report.c */
heed_status heed_report_make(heed_compiled *compiled, const struct heed_rewriter *rewriter);

#endif
