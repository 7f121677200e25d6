/* heed check: one model, or a folder of cases; fused against unfused against expected. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "command.h"
#include "file.h"
#include "print.h"

typedef struct check_state {
    heed_check_options how; /* tolerances below 0: not given */
    const char *all;
    int json;
} check_state;

#define DEFAULT_ATOL 1e-4
#define DEFAULT_RTOL 1e-3

#define AT(field) offsetof(check_state, field)
static const heed_option options[] = {
    { "io", "F.npz", "inputs as in_NAME and expected outputs as out_I, I counted\nfrom 0 over the model's outputs",
      heed_option_text, AT(how.io), 0, 0 },
    { "data", "DIR", "ONNX test data: input_N.pb and output_N.pb, or folders\ntest_data_set_* that hold them", heed_option_text,
      AT(how.data), 0, 0 },
    { "all", "DIR",
      "check each DIR/NAME/model.onnx with its io.npz or its\ntest_data_set_* folders, and count; its meta.json may\nhold an "
      "atol, an rtol and its attention_calls",
      heed_option_text, AT(all), 0, 0 },
    { "atol", "X", "allow a difference of X ... (default 1e-4)", heed_option_real, AT(how.atol), 0, INFINITY },
    { "rtol", "X", "... + X times the expected value (default 1e-3)", heed_option_real, AT(how.rtol), 0, INFINITY },
    { "threads", "N", "use N threads (default: as many as there are CPUs)", heed_option_int, AT(how.threads), 1, 4096 },
    { "json", NULL, "print one JSON object", heed_option_flag, AT(json), 0, 0 },
};

static void add_error_cell(heed_table *t, double x)
{
    if (isnan(x)) heed_table_add(t, HEED_STYLE_BAD, "-");
    else heed_table_add(t, HEED_STYLE_PLAIN, "%.2g", x);
}

static void add_heading(heed_table *t, const char *const *heading, size_t n)
{
    for (size_t i = 0; i < n; i++) heed_table_add(t, HEED_STYLE_BOLD, "%s", heading[i]);
}

static void print_verdict(int ok)
{
    heed_style style = ok ? HEED_STYLE_GOOD : HEED_STYLE_BAD;
    printf("%s%s%s\n", heed_style_on(style), ok ? "ok" : "FAILED", heed_style_off(style));
}

static void print_check(const heed_check *c)
{
    int n_refused = cJSON_GetArraySize(c->refused), n = c->fused + n_refused;
    printf("%d attention%s: %d fused, %d left alone\n", n, n == 1 ? "" : "s", c->fused, n_refused);
    cJSON *entry;
    cJSON_ArrayForEach(entry, c->refused)
    {
        printf("  %s: %s\n", cJSON_GetStringValue(cJSON_GetObjectItem(entry, "node")),
               cJSON_GetStringValue(cJSON_GetObjectItem(entry, "reason")));
    }
    putchar('\n');
    heed_table *t = heed_table_create("lrrl");
    static const char *const heading[] = { "OUTPUT", "AGAINST EXPECTED", "FUSED AGAINST UNFUSED", "RESULT" };
    add_heading(t, heading, sizeof heading / sizeof heading[0]);
    for (int i = 0; i < c->n_outputs; i++) {
        const heed_check_output *o = &c->outputs[i];
        heed_table_add(t, HEED_STYLE_PLAIN, "%s", o->name);
        add_error_cell(t, o->max_abs_err);
        add_error_cell(t, o->fused_vs_unfused);
        if (o->ok) heed_table_add(t, HEED_STYLE_GOOD, "ok");
        else heed_table_add(t, HEED_STYLE_BAD, "FAILED: %s", o->reason);
    }
    heed_table_print(t);
    putchar('\n');
    print_verdict(c->ok);
}

static int print_error(const heed_check *c)
{
    heed_fault("%s", c->error);
    return heed_fault_print();
}

/* The command line wins over the case, the case over the defaults. */
static double tolerance(double given, const cJSON *meta, const char *name, double usual)
{
    if (given >= 0) return given;
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(meta, name);
    return cJSON_IsNumber(item) && item->valuedouble >= 0 ? item->valuedouble : usual;
}

static int check_one(const check_state *s, const char *model)
{
    heed_check_options how = s->how;
    how.atol = tolerance(how.atol, NULL, "atol", DEFAULT_ATOL);
    how.rtol = tolerance(how.rtol, NULL, "rtol", DEFAULT_RTOL);
    heed_check c;
    heed_check_model(&c, model, &how);
    if (s->json) heed_json_print(heed_check_json(&c));
    else if (!c.error) print_check(&c);
    int exit_code = c.ok ? HEED_EXIT_OK : HEED_EXIT_FAILED;
    if (c.error) print_error(&c);
    heed_check_destroy(&c);
    return exit_code;
}

/* ------------------------------------------------------------------------------------------- a folder of cases */

typedef struct sweep {
    int n, n_ok, n_fused, n_known;
    heed_table *table;
    cJSON *json;
} sweep;

static const char *first_wrong(const heed_check *c)
{
    size_t n = strlen(c->model);
    if (c->error) return strncmp(c->error, c->model, n) == 0 && c->error[n] == ':' ? c->error + n + 2 : c->error;
    for (int i = 0; i < c->n_outputs; i++)
        if (!c->outputs[i].ok) return c->outputs[i].reason;
    return "";
}

/* What is known of a case: its own tolerances, and how many attentions it holds. */
static cJSON *read_meta(const char *path)
{
    void *text;
    size_t bytes;
    if (!heed_file_exists(path) || heed_file_read(path, &text, &bytes) != 0) return NULL;
    cJSON *meta = cJSON_ParseWithLength(text, bytes);
    free(text);
    return meta;
}

static void add_to_sweep(sweep *w, const heed_check *c, const char *name, const cJSON *meta)
{
    const cJSON *known = cJSON_GetObjectItemCaseSensitive(meta, "attention_calls");
    w->n++, w->n_ok += c->ok, w->n_fused += c->fused;
    cJSON_AddItemToArray(w->json, heed_check_json(c));
    heed_table_add(w->table, HEED_STYLE_PLAIN, "%s", name);
    if (cJSON_IsNumber(known)) w->n_known += known->valueint;
    if (cJSON_IsNumber(known)) heed_table_add(w->table, HEED_STYLE_PLAIN, "%d of %d", c->fused, known->valueint);
    else heed_table_add(w->table, HEED_STYLE_PLAIN, "%d", c->fused);
    heed_table_add(w->table, HEED_STYLE_PLAIN, "%d", cJSON_GetArraySize(c->refused));
    add_error_cell(w->table, c->error ? NAN : c->max_abs_err);
    add_error_cell(w->table, c->error ? NAN : c->fused_vs_unfused);
    if (c->ok) heed_table_add(w->table, HEED_STYLE_GOOD, "ok");
    else heed_table_add(w->table, HEED_STYLE_BAD, "FAILED: %s", first_wrong(c));
}

static void check_case(const check_state *s, sweep *w, const char *name)
{
    char *folder = heed_must_print("%s/%s", s->all, name), *model = heed_must_print("%s/model.onnx", folder);
    char *io = heed_must_print("%s/io.npz", folder), *about = heed_must_print("%s/meta.json", folder);
    if (heed_file_exists(model)) {
        cJSON *meta = read_meta(about);
        heed_check_options how = s->how;
        how.atol = tolerance(how.atol, meta, "atol", DEFAULT_ATOL);
        how.rtol = tolerance(how.rtol, meta, "rtol", DEFAULT_RTOL);
        if (heed_file_exists(io)) how.io = io;
        else how.data = folder;
        heed_check c;
        heed_check_model(&c, model, &how);
        add_to_sweep(w, &c, name, meta);
        heed_check_destroy(&c);
        cJSON_Delete(meta);
    }
    free(folder), free(model), free(io), free(about);
}

static int is_named(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* Print and free. */
static void finish_sweep(sweep *w, int as_json)
{
    if (as_json) {
        cJSON *all = cJSON_CreateObject();
        cJSON_AddItemToObject(all, "cases", w->json);
        heed_json_number(all, "passed", w->n_ok);
        heed_json_number(all, "failed", w->n - w->n_ok);
        cJSON_AddBoolToObject(all, "ok", w->n_ok == w->n);
        heed_json_print(all);
        heed_table_destroy(w->table);
        return;
    }
    cJSON_Delete(w->json);
    heed_table_print(w->table);
    printf("\n%d attention%s fused", w->n_fused, w->n_fused == 1 ? "" : "s");
    if (w->n_known) printf(", %d known", w->n_known);
    printf("\n%d passed, %d failed\n", w->n_ok, w->n - w->n_ok);
}

static int check_all(const check_state *s)
{
    struct dirent **entries = NULL;
    int n = heed_file_is_folder(s->all) ? scandir(s->all, &entries, is_named, alphasort) : -1;
    if (n < 0) {
        heed_fault("%s: is not a folder that can be read", s->all);
        return heed_fault_print();
    }
    sweep w = { .table = heed_table_create("lrrrrl"), .json = cJSON_CreateArray() };
    static const char *const heading[] = { "CASE", "FUSED", "LEFT ALONE", "AGAINST EXPECTED", "FUSED AGAINST UNFUSED", "RESULT" };
    add_heading(w.table, heading, sizeof heading / sizeof heading[0]);
    for (int i = 0; i < n; i++) {
        heed_progress(i + 1, n, entries[i]->d_name);
        check_case(s, &w, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    heed_progress(0, 0, NULL);
    if (w.n) {
        int exit_code = w.n_ok == w.n ? HEED_EXIT_OK : HEED_EXIT_FAILED;
        finish_sweep(&w, s->json);
        return exit_code;
    }
    cJSON_Delete(w.json), heed_table_destroy(w.table);
    heed_fault("%s: holds no NAME/model.onnx", s->all);
    return heed_fault_print();
}

static int run(int argc, char **argv)
{
    check_state s = { .how = { .atol = -1, .rtol = -1 } };
    int at = heed_command_parse(&heed_cmd_check, argc, argv, &s);
    if (at < 0) return -1 - at;
    int n = argc - at, sources = (s.how.io != NULL) + (s.how.data != NULL) + (s.all != NULL);
    if (sources != 1) heed_fault("expected one of --io, --data and --all");
    else if (s.all && n) heed_fault("extra operand '%s': --all takes the models from its folder", argv[at]);
    else if (!s.all && !n) heed_fault("missing MODEL");
    else return s.all ? check_all(&s) : check_one(&s, argv[at]);
    return heed_command_misused(&heed_cmd_check);
}

const heed_command heed_cmd_check = {
    .name = "check",
    .operands = "MODEL --io F.npz | MODEL --data DIR | --all DIR [OPTION]...",
    .summary = "Run a model fused and unfused, and compare with each other and with the expected.",
    .notes = "All is well, and the exit status 0, if each output has the expected type and shape and\n"
             "|x - expected| <= atol + rtol |expected| for each element, where NaN equals NaN. In JSON\n"
             "a difference that is not a number is null.\n\n"
             "Examples:\n"
             "  heed check model.onnx --io io.npz\n"
             "  heed check model.onnx --data test_data_set_0 --atol 1e-5 --json\n"
             "  heed check --all tests/data/models\n",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .min_operands = 0,
    .max_operands = 1,
    .run = run,
};
