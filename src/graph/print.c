/* Graphs, facts and names as text. */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "graph/dims.h"
#include "graph/graph.h"

enum { NAME_SHOWN = 120, ELEMENTS_SHOWN = 8, TEXT_SHOWN = 40 };

void heed_text_name(heed_text *text, const char *name)
{
    int shown = 0;
    for (; *name && shown < NAME_SHOWN; name++, shown++) {
        unsigned char c = (unsigned char) *name;
        if (c < 0x20 || c == 0x7f) heed_text_add(text, "\\x%02x", c);
        else heed_text_add(text, "%c", c);
    }
    if (*name) heed_text_add(text, "..");
}

/* " # name" */
static void print_comment(const char *name, heed_text *text)
{
    if (!name || !*name) return;
    heed_text_add(text, " # ");
    heed_text_name(text, name);
}

static void print_shape(const heed_dims *table, int rank, const int64_t *dims, heed_text *text)
{
    heed_text_add(text, "[");
    for (int i = 0; i < rank; i++) {
        if (i) heed_text_add(text, ", ");
        heed_dims_print(table, dims[i], text);
    }
    heed_text_add(text, "]");
}

void heed_fact_print(const heed_graph *graph, const heed_fact *fact, heed_text *text)
{
    heed_text_add(text, "%s", heed_dtype_name(fact->dtype));
    if (fact->rank < 0) heed_text_add(text, "[..]");
    else if (fact->rank > 0) print_shape(graph->dims, fact->rank, fact->dims, text);
}

static void print_float(double x, heed_text *text)
{
    if (isfinite(x)) heed_text_add(text, "%.9g", x);
    else heed_text_add(text, "%s", isnan(x) ? "nan" : x < 0 ? "-inf" : "inf");
}

static void print_element(const heed_tensor *t, int64_t i, heed_text *text)
{
    switch (t->dtype) {
    case HEED_F32: print_float(((const float *) t->data)[i], text); break;
    case HEED_F64: print_float(((const double *) t->data)[i], text); break;
    case HEED_F16: print_float(heed_f32_from_f16(((const uint16_t *) t->data)[i]), text); break;
    case HEED_BF16: print_float(heed_f32_from_bf16(((const uint16_t *) t->data)[i]), text); break;
    case HEED_BOOL: heed_text_add(text, "%s", heed_tensor_int(t, i) ? "true" : "false"); break;
    case HEED_U64: heed_text_add(text, "%llu", (unsigned long long) heed_tensor_int(t, i)); break;
    default: heed_text_add(text, "%lld", (long long) heed_tensor_int(t, i));
    }
}

/* Small enough to be read where it is used. */
static int shown_in_place(const heed_tensor *t)
{
    return t->rank <= 1 && heed_tensor_count(t) <= ELEMENTS_SHOWN && heed_tensor_is_dense(t) && heed_dtype_size(t->dtype);
}

/* "i64{0, -1, 12}", "f32 0.125", or only type and shape for larger ones. */
static void print_tensor(const heed_graph *graph, const heed_tensor *t, heed_text *text)
{
    heed_text_add(text, "%s", heed_dtype_name(t->dtype));
    if (!shown_in_place(t)) {
        print_shape(graph->dims, t->rank, t->dims, text);
        return;
    }
    heed_text_add(text, t->rank ? "{" : " ");
    for (int64_t i = 0, n = heed_tensor_count(t); i < n; i++) {
        if (i) heed_text_add(text, ", ");
        print_element(t, i, text);
    }
    if (t->rank) heed_text_add(text, "}");
}

static int is_constant(const heed_value *value)
{
    return !value->producer && !value->is_input && value->fact.value;
}

static void print_value(const heed_graph *graph, const heed_value *value, heed_text *text)
{
    if (!value) heed_text_add(text, "_");
    else if (is_constant(value) && shown_in_place(value->fact.value)) print_tensor(graph, value->fact.value, text);
    else heed_text_add(text, "%%%d", value->id);
}

static void print_typed(const heed_graph *graph, const heed_value *value, heed_text *text)
{
    print_value(graph, value, text);
    if (!value) return;
    heed_text_add(text, " ");
    heed_fact_print(graph, &value->fact, text);
}

static void print_string(const char *s, heed_text *text)
{
    heed_text_add(text, "\"");
    heed_text_name(text, s);
    heed_text_add(text, "\"");
}

static void print_item(const heed_attr *attr, int64_t i, heed_text *text)
{
    if (attr->type == HEED_ATTR_INTS) heed_text_add(text, "%lld", (long long) attr->ints[i]);
    else if (attr->type == HEED_ATTR_FLOATS) print_float(attr->floats[i], text);
    else print_string(attr->strings[i], text);
}

static void print_attr(const heed_graph *graph, const heed_attr *attr, heed_text *text)
{
    heed_text_name(text, attr->name);
    heed_text_add(text, "=");
    switch (attr->type) {
    case HEED_ATTR_INT: heed_text_add(text, "%lld", (long long) attr->i); return;
    case HEED_ATTR_FLOAT: print_float(attr->f, text); return;
    case HEED_ATTR_STRING: print_string(attr->s, text); return;
    case HEED_ATTR_TENSOR: print_tensor(graph, attr->t, text); return;
    case HEED_ATTR_GRAPH: heed_text_add(text, "graph"); return;
    default: break;
    }
    heed_text_add(text, "[");
    for (int64_t i = 0; i < attr->n && i < TEXT_SHOWN; i++) {
        if (i) heed_text_add(text, ", ");
        print_item(attr, i, text);
    }
    heed_text_add(text, attr->n > TEXT_SHOWN ? ", ..]" : "]");
}

static void print_graph(const heed_graph *graph, int indent, heed_text *text);

static void print_node(const heed_graph *graph, const heed_node *node, int indent, heed_text *text)
{
    heed_text_add(text, "%*s", indent, "");
    for (int i = 0; i < node->n_outputs; i++) {
        if (i) heed_text_add(text, ", ");
        print_typed(graph, node->outputs[i], text);
    }
    heed_text_add(text, " = ");
    if (*node->domain) {
        heed_text_name(text, node->domain);
        heed_text_add(text, ".");
    }
    heed_text_name(text, node->op);
    heed_text_add(text, "(");
    for (int i = 0; i < node->n_inputs; i++) {
        if (i) heed_text_add(text, ", ");
        print_value(graph, node->inputs[i], text);
    }
    heed_text_add(text, ")");
    for (int i = 0; i < node->n_attrs; i++) {
        heed_text_add(text, i ? ", " : " {");
        print_attr(graph, &node->attrs[i], text);
    }
    if (node->n_attrs) heed_text_add(text, "}");
    print_comment(node->name, text);
    heed_text_add(text, "\n");
    for (int i = 0; i < node->n_attrs; i++) {
        if (node->attrs[i].type != HEED_ATTR_GRAPH) continue;
        heed_text_add(text, "%*s", indent + 2, "");
        heed_text_name(text, node->attrs[i].name);
        heed_text_add(text, ":\n");
        print_graph(node->attrs[i].g, indent + 4, text);
    }
}

static void print_line(const heed_graph *graph, int indent, const char *what, const heed_value *value, const char *name,
                       heed_text *text)
{
    heed_text_add(text, "%*s%s ", indent, "", what);
    print_typed(graph, value, text);
    print_comment(name, text);
    heed_text_add(text, "\n");
}

static void print_graph(const heed_graph *graph, int indent, heed_text *text)
{
    for (int i = 0; i < graph->n_inputs; i++) print_line(graph, indent, "input", graph->inputs[i], graph->inputs[i]->name, text);
    for (int i = 0; i < graph->n_outputs; i++)
        print_line(graph, indent, "output", graph->outputs[i], graph->output_names[i], text);
    for (int i = 0; i < graph->n_values; i++) {
        const heed_value *value = graph->values[i];
        if (is_constant(value) && value->n_uses && !shown_in_place(value->fact.value))
            print_line(graph, indent, "constant", value, value->name, text);
    }
    for (const heed_node *node = graph->first; node; node = node->next) print_node(graph, node, indent, text);
}

void heed_graph_print(const heed_graph *graph, heed_text *text)
{
    print_graph(graph, 0, text);
}
