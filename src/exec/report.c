/* The attention report: what the passes found, put into words from what is known of the shapes. */
#include <math.h>
#include <string.h>

#include "exec/model.h"
#include "ops/attention.h"
#include "rewrite/pass.h"

/* Inputs of heed.Attention, see docs/fused-operators.md. */
enum { Q, K, V, MASK, SINKS, KEY_LENGTHS, OFFSETS };

static const heed_fact *fact_of(const heed_node *node, int input)
{
    return input < node->n_inputs && node->inputs[input] ? &node->inputs[input]->fact : NULL;
}

static void add_shape(heed_text *text, const heed_graph *graph, const char *name, const heed_fact *fact)
{
    heed_text_add(text, "%s [", name);
    for (int i = 0; i < fact->rank; i++) {
        if (i) heed_text_add(text, ", ");
        heed_dims_print(graph->dims, fact->dims[i], text);
    }
    heed_text_add(text, fact->rank < 0 ? "?]" : "]");
}

static void add_scale(heed_text *text, const heed_node *node, const heed_fact *q)
{
    int64_t head_dim = q->rank > 0 ? q->dims[q->rank - 1] : -1;
    if (heed_node_attr(node, "scale")) heed_text_add(text, ", scale %.4g", (double) heed_node_float(node, "scale", 1.0f));
    else if (head_dim > 0) heed_text_add(text, ", scale %.4g", 1.0 / sqrt((double) head_dim));
    float softcap = heed_node_float(node, "softcap", 0.0f);
    if (softcap > 0) heed_text_add(text, ", softcap %.4g", (double) softcap);
}

static void add_window(heed_text *text, const heed_node *node)
{
    int64_t left = heed_node_int(node, "window_left", -1), right = heed_node_int(node, "window_right", -1);
    if (heed_node_int(node, "causal", 0)) right = 0;
    if (right == 0) heed_text_add(text, ", causal");
    else if (right > 0) heed_text_add(text, ", window right %lld", (long long) right);
    if (left >= 0) heed_text_add(text, ", window left %lld", (long long) left);
}

static void add_shapes(heed_text *text, const heed_graph *graph, const heed_node *node)
{
    static const char *const names[] = { "q", " k", " v" };
    for (int i = Q; i <= V; i++)
        if (fact_of(node, i)) add_shape(text, graph, names[i], fact_of(node, i));
    const heed_fact *q = fact_of(node, Q), *mask = fact_of(node, MASK);
    if (!q) return;
    heed_text_add(text, " %s", heed_dtype_name(q->dtype));
    add_scale(text, node, q);
    add_window(text, node);
    if (mask) heed_text_add(text, mask->dtype == HEED_BOOL ? ", bool mask" : ", float mask");
    if (fact_of(node, SINKS)) heed_text_add(text, ", sinks");
    if (fact_of(node, KEY_LENGTHS)) heed_text_add(text, ", key lengths");
    if (fact_of(node, OFFSETS)) heed_text_add(text, ", offset per batch");
}

/* 1 if type and all sizes are known before the run. */
static int known_tensor(const heed_fact *fact, heed_tensor *t)
{
    if (fact->dtype == HEED_DTYPE_NONE || fact->rank < 0) return 0;
    for (int d = 0; d < fact->rank; d++)
        if (fact->dims[d] < 0) return 0;
    *t = heed_tensor_make(fact->dtype, fact->rank, fact->dims);
    return heed_tensor_bytes(t) != SIZE_MAX;
}

/* The plan that a run with dense tensors of these shapes would make. A plan that cannot be made is the run's to report. */
static heed_status choose_kernel(heed_compiled *compiled, heed_report_entry *entry)
{
    enum { MOST = OFFSETS + 1 };
    const heed_node *node = entry->attention;
    heed_tensor in[MOST], out;
    const heed_tensor *in_ptrs[MOST] = { NULL };
    heed_tensor *out_ptrs[] = { &out };
    if (!node->def || !node->def->prepare || node->n_inputs > MOST || !known_tensor(&node->outputs[0]->fact, &out))
        return HEED_OK;
    for (int i = 0; i < node->n_inputs; i++) {
        if (!node->inputs[i]) continue;
        if (!known_tensor(&node->inputs[i]->fact, &in[i])) return HEED_OK;
        in_ptrs[i] = &in[i];
    }
    heed_compute c = { .ctx = compiled->ctx, .node = node, .n_in = node->n_inputs, .n_out = 1, .in = in_ptrs, .out = out_ptrs };
    void *state = NULL;
    heed_status status = node->def->prepare(&c, &state);
    if (status != HEED_OK) return status == HEED_ERR_MEMORY ? status : HEED_OK;
    const char *kernel = heed_arena_strdup(compiled->graph->arena, heed_attention_state_kernel(state));
    const char *why = heed_arena_strdup(compiled->graph->arena, heed_attention_state_explain(state));
    node->def->release(compiled->ctx, state);
    if (!kernel || !why) return heed_fail(HEED_ERR_MEMORY, "no memory for the attention report");
    entry->report.kernel = kernel, entry->report.why = why;
    return HEED_OK;
}

/* The node in the graph as it is after all passes. */
static const heed_node *attention_of(const heed_graph *graph, int index)
{
    for (const heed_node *node = graph->first; node; node = node->next)
        if (heed_node_is_in(node, HEED_DOMAIN_HEED, "Attention") && heed_node_int(node, "finding", -1) == index) return node;
    return NULL;
}

static heed_status make_entry(heed_compiled *compiled, const heed_finding *finding, int index)
{
    heed_report_entry *entry = &compiled->entries[index];
    entry->report = (heed_attention_report){ .struct_size = sizeof entry->report,
                                             .node = finding->node,
                                             .fused = finding->fused,
                                             .reason = finding->reason,
                                             .shapes = "",
                                             .kernel = "",
                                             .why = "" };
    entry->attention = attention_of(compiled->graph, index);
    if (!entry->attention) return HEED_OK;
    heed_text text = { .ctx = compiled->ctx };
    add_shapes(&text, compiled->graph, entry->attention);
    char *shapes = text.data ? heed_arena_strdup(compiled->graph->arena, text.data) : NULL;
    int failed = text.failed || !shapes;
    heed_text_free(&text);
    if (failed) return heed_fail(HEED_ERR_MEMORY, "no memory for the attention report");
    entry->report.shapes = shapes;
    return choose_kernel(compiled, entry);
}

heed_status heed_report_make(heed_compiled *compiled, const heed_rewriter *rewriter)
{
    compiled->n_entries = rewriter->n_findings;
    compiled->entries = HEED_NEW_N(compiled->graph->arena, heed_report_entry, rewriter->n_findings + 1);
    if (!compiled->entries) return heed_fail(HEED_ERR_MEMORY, "no memory for the attention report");
    for (int i = 0; i < rewriter->n_findings; i++) HEED_TRY(make_entry(compiled, &rewriter->findings[i], i));
    return HEED_OK;
}

int heed_compiled_attention_count(const heed_compiled *compiled)
{
    return compiled ? compiled->n_entries : 0;
}

heed_status heed_compiled_attention(const heed_compiled *compiled, int index, heed_attention_report *report)
{
    if (!compiled) return heed_fail(HEED_ERR_ARGUMENT, "compiled: is NULL");
    if (!report) return heed_fail(HEED_ERR_ARGUMENT, "report: is NULL");
    if (index < 0 || index >= compiled->n_entries)
        return heed_fail(HEED_ERR_ARGUMENT, "index: is %d, the report has %d entries", index, compiled->n_entries);
    size_t size = report->struct_size;
    if (size < sizeof(size_t) || size > 4096)
        return heed_fail(HEED_ERR_ARGUMENT, "report: struct_size is %zu; set it to sizeof(heed_attention_report)", size);
    heed_attention_report full = compiled->entries[index].report;
    full.struct_size = size;
    memcpy(report, &full, size < sizeof full ? size : sizeof full);
    return HEED_OK;
}
