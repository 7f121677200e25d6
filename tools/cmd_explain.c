/* heed explain: per attention of a model, was it fused or left alone, why, on what shapes, by which kernel. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "print.h"
#include "runner.h"

typedef struct explain_state {
    int json, graph;
    heed_runner runner;
} explain_state;

static const heed_option options[] = {
    { "graph", NULL, "print the compiled graph too", heed_option_flag, offsetof(explain_state, graph), 0, 0 },
    { "json", NULL, "print one JSON object", heed_option_flag, offsetof(explain_state, json), 0, 0 },
};

static void print_entry(const char *name, const char *text)
{
    if (text && text[0] && !strchr(text, '\n')) printf("   %-8s%s\n", name, text);
    else if (text && text[0]) {
        printf("   %s\n", name);
        heed_print_indented("      ", text);
    }
}

static void print_text(const explain_state *s, const char *graph)
{
    char *tally = heed_runner_tally(&s->runner);
    printf("%s%s%s\n", heed_style_on(HEED_STYLE_BOLD), tally, heed_style_off(HEED_STYLE_BOLD));
    free(tally);
    for (int i = 0, n = heed_compiled_attention_count(s->runner.compiled); i < n; i++) {
        heed_attention_report r = heed_runner_attention(&s->runner, i);
        heed_style style = r.fused ? HEED_STYLE_GOOD : HEED_STYLE_BAD;
        printf("\n%d. %s: %s%s%s\n", i + 1, r.node, heed_style_on(style), r.fused ? "fused" : "left alone",
               heed_style_off(style));
        print_entry(r.fused ? "found" : "reason", r.reason);
        print_entry("shapes", r.shapes);
        if (r.fused) print_entry("kernel", r.kernel && r.kernel[0] ? r.kernel : "chosen when the shapes are known, in the run");
        print_entry("choice", r.why);
    }
    if (graph) printf("\n%s%s", graph, graph[0] && graph[strlen(graph) - 1] != '\n' ? "\n" : "");
}

static void print_json(const explain_state *s, const char *graph)
{
    cJSON *all = cJSON_CreateObject();
    int n = heed_compiled_attention_count(s->runner.compiled), fused = heed_runner_count_fused(&s->runner);
    heed_json_text(all, "model", s->runner.path);
    heed_json_number(all, "fused", fused);
    heed_json_number(all, "refused", n - fused);
    cJSON *list = cJSON_AddArrayToObject(all, "attention");
    for (int i = 0; i < n; i++) {
        heed_attention_report r = heed_runner_attention(&s->runner, i);
        cJSON *entry = cJSON_CreateObject();
        heed_json_text(entry, "node", r.node ? r.node : "");
        cJSON_AddBoolToObject(entry, "fused", r.fused);
        heed_json_text(entry, "reason", r.reason ? r.reason : "");
        heed_json_text(entry, "shapes", r.shapes ? r.shapes : "");
        heed_json_text(entry, "kernel", r.kernel ? r.kernel : "");
        heed_json_text(entry, "why", r.why ? r.why : "");
        cJSON_AddItemToArray(list, entry);
    }
    if (graph) heed_json_text(all, "graph", graph);
    heed_json_print(all);
}

static int explain(explain_state *s)
{
    const char *graph = NULL;
    if (heed_runner_compile(&s->runner, 1) != 0) return -1;
    if (s->graph && heed_compiled_print(s->runner.compiled, &graph) != HEED_OK) return heed_fault_library(s->runner.path);
    (s->json ? print_json : print_text)(s, graph);
    return 0;
}

static int run(int argc, char **argv)
{
    explain_state s = { 0 };
    int at = heed_command_parse(&heed_cmd_explain, argc, argv, &s);
    if (at < 0) return -1 - at;
    if (heed_runner_load(&s.runner, argv[at], 0) != 0) return heed_fault_print();
    int exit_code = explain(&s) == 0 ? HEED_EXIT_OK : heed_fault_print();
    heed_runner_close(&s.runner);
    return exit_code;
}

const heed_command heed_cmd_explain = {
    .name = "explain",
    .operands = "MODEL [OPTION]...",
    .summary = "Say which attentions of a model fuse, which do not, and why.",
    .notes = "Examples:\n"
             "  heed explain model.onnx\n"
             "  heed explain model.onnx --graph | less\n",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .min_operands = 1,
    .max_operands = 1,
    .run = run,
};
