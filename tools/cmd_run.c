/* heed run: run a model on arrays from files, or on made-up ones, and say what came out and how long it took. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "case.h"
#include "command.h"
#include "file.h"
#include "npy.h"
#include "print.h"

typedef struct run_state {
    const char *inputs_path, *outputs_path;
    heed_bindings inputs, outputs, dims;
    int64_t threads, repeat, seed;
    int no_fuse, json, random;
    heed_runner runner;
    heed_case arrays;
    heed_array *outputs_found;
    double median_ms, min_ms;
} run_state;

/* NAME=VALUE, any number of times. */
static int parse_binding(void *field, const heed_option *option, const char *value)
{
    const char *equals = strchr(value, '=');
    if (!equals || equals == value || !equals[1]) return heed_fault("'%s' is not of the form %s", value, option->value);
    heed_bindings *list = field;
    list->items = heed_must_grow(list->items, ((size_t) list->n + 1) * sizeof *list->items);
    list->items[list->n++] = (heed_binding){ heed_must_print("%.*s", (int) (equals - value), value), equals + 1 };
    return 0;
}

static int parse_dim(void *field, const heed_option *option, const char *value)
{
    int64_t n;
    if (parse_binding(field, option, value) != 0) return -1;
    return heed_parse_int(strchr(value, '=') + 1, 0, INT64_MAX, &n);
}

#define AT(field) offsetof(run_state, field)
static const heed_option options[] = {
    { "inputs", "F.npz", "read inputs from F.npz, each under its NAME or as in_NAME", heed_option_text, AT(inputs_path), 0, 0 },
    { "input", "NAME=F.npy", "read the input NAME from F.npy; may be repeated", parse_binding, AT(inputs), 0, 0 },
    { "random", NULL, "make up the inputs that no file gives: floats from the\nnormal distribution, others 0 or 1",
      heed_option_flag, AT(random), 0, 0 },
    { "dim", "NAME=N", "with --random: size of the symbolic dimension NAME (else 1)", parse_dim, AT(dims), 0, 0 },
    { "seed", "N", "with --random: where the numbers start (default 0)", heed_option_int, AT(seed), 0, 0x1p63 },
    { "outputs", "F.npz", "write the outputs to F.npz, each under its name", heed_option_text, AT(outputs_path), 0, 0 },
    { "output", "NAME=F.npy", "write the output NAME to F.npy; may be repeated", parse_binding, AT(outputs), 0, 0 },
    { "threads", "N", "use N threads (default: as many as there are CPUs)", heed_option_int, AT(threads), 1, 4096 },
    { "no-fuse", NULL, "run plain operators, with no attention fused", heed_option_flag, AT(no_fuse), 0, 0 },
    { "repeat", "N", "run once, then N times more, and print the median and\nthe shortest time of those", heed_option_int,
      AT(repeat), 1, 1000000 },
    { "json", NULL, "print one JSON object", heed_option_flag, AT(json), 0, 0 },
};

static int read_inputs(run_state *s)
{
    heed_case_create(&s->arrays, &s->runner, s->inputs_path ? s->inputs_path : "");
    for (int i = 0; i < s->inputs.n; i++) {
        const heed_binding *b = &s->inputs.items[i];
        int at = heed_runner_find_input(&s->runner, b->name);
        if (at < 0) return heed_fault("%s: has no input '%s'", s->runner.path, b->name);
        heed_array_destroy(&s->arrays.inputs[at]);
        if (heed_npy_read_file(&s->arrays.inputs[at], b->value) != 0) return -1;
    }
    if (s->inputs_path && heed_case_read_inputs(&s->arrays, &s->runner, s->inputs_path) != 0) return -1;
    if (s->random && heed_case_randomize(&s->arrays, &s->runner, &s->dims, (uint64_t) s->seed) != 0) return -1;
    if (heed_case_require_inputs(&s->arrays, &s->runner) == 0) return 0;
    if (s->inputs_path || s->inputs.n) return -1;
    return heed_fault("%s; give arrays by --inputs or --input, or have numbers made up by --random", heed_fault_text());
}

/* Before the work, not after it: can what was asked for be written? */
static int check_outputs(const run_state *s)
{
    for (int i = 0; i < s->outputs.n; i++) {
        const heed_binding *b = &s->outputs.items[i];
        if (heed_runner_find_output(&s->runner, b->name) < 0)
            return heed_fault("%s: has no output '%s'", s->runner.path, b->name);
        if (heed_file_check_writable(b->value) != 0) return -1;
    }
    return s->outputs_path ? heed_file_check_writable(s->outputs_path) : 0;
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return ((double) t.tv_sec * 1e9 + (double) t.tv_nsec) / 1e6;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

/* With --repeat the first run, which sets memory up, is not counted. */
static int run_timed(run_state *s)
{
    int n = s->repeat ? (int) s->repeat : 1;
    double *times = heed_must_alloc((size_t) n * sizeof *times);
    int rc = s->repeat ? heed_runner_run(&s->runner, s->arrays.inputs) : 0;
    for (int i = 0; i < n && rc == 0; i++) {
        if (s->repeat) heed_progress(i + 1, n, "runs");
        double start = now_ms();
        rc = heed_runner_run(&s->runner, s->arrays.inputs);
        times[i] = now_ms() - start;
    }
    if (s->repeat) heed_progress(0, 0, NULL);
    qsort(times, (size_t) n, sizeof *times, by_size);
    s->min_ms = times[0];
    s->median_ms = n % 2 ? times[n / 2] : (times[n / 2 - 1] + times[n / 2]) / 2;
    free(times);
    return rc;
}

static int write_outputs(const run_state *s)
{
    for (int i = 0; i < s->outputs.n; i++) {
        const heed_binding *b = &s->outputs.items[i];
        int at = heed_runner_find_output(&s->runner, b->name);
        if (heed_npy_write_file(b->value, &s->outputs_found[at]) != 0) return -1;
    }
    if (!s->outputs_path) return 0;
    int n = heed_model_output_count(s->runner.model);
    const char **names = heed_must_alloc((size_t) n * sizeof *names);
    for (int i = 0; i < n; i++) names[i] = heed_runner_output(&s->runner, i).name;
    int rc = heed_npz_write(s->outputs_path, n, names, s->outputs_found);
    free(names);
    return rc;
}

/* Kernels that ran, each once with how often: "prefill_f32_avx2 x 6, decode_f32_avx2 x 6". To text or into JSON. */
static cJSON *count_kernels(const run_state *s)
{
    cJSON *kernels = cJSON_CreateObject();
    for (int i = 0, n = heed_compiled_attention_count(s->runner.compiled); i < n; i++) {
        const char *name = "";
        if (!heed_runner_attention(&s->runner, i).fused) continue;
        if (heed_session_attention_kernel(s->runner.session, i, &name) != HEED_OK || !name[0]) continue;
        cJSON *count = cJSON_GetObjectItemCaseSensitive(kernels, name);
        if (count) cJSON_SetNumberValue(count, count->valuedouble + 1);
        else cJSON_AddNumberToObject(kernels, name, 1);
    }
    return kernels;
}

static void print_first_values(const heed_array *a, char *text, size_t bytes)
{
    enum { FIRST = 4 };
    size_t n = 0;
    int64_t count = heed_array_count(a);
    text[0] = 0;
    for (int64_t i = 0; i < count && i < FIRST && n < bytes; i++)
        n += (size_t) snprintf(text + n, bytes - n, "%s%.5g", i ? " " : "", heed_array_value(a, i));
    if (count > FIRST && n < bytes) snprintf(text + n, bytes - n, " ...");
}

static void add_number_cell(heed_table *t, double x)
{
    if (isnan(x)) heed_table_add(t, HEED_STYLE_PLAIN, "-");
    else heed_table_add(t, HEED_STYLE_PLAIN, "%.5g", x);
}

static void print_outputs(const run_state *s)
{
    heed_table *t = heed_table_create("lllrrrl");
    static const char *const heading[] = { "OUTPUT", "TYPE", "SHAPE", "MIN", "MEAN", "MAX", "FIRST VALUES" };
    for (size_t i = 0; i < sizeof heading / sizeof heading[0]; i++) heed_table_add(t, HEED_STYLE_BOLD, "%s", heading[i]);
    for (int i = 0, n = heed_model_output_count(s->runner.model); i < n; i++) {
        const heed_array *a = &s->outputs_found[i];
        heed_summary sum = heed_array_summary(a);
        char shape[HEED_SHAPE_TEXT], first[128];
        print_first_values(a, first, sizeof first);
        heed_table_add(t, HEED_STYLE_PLAIN, "%s", heed_runner_output(&s->runner, i).name);
        heed_table_add(t, HEED_STYLE_PLAIN, "%s", a->type->name);
        heed_table_add(t, HEED_STYLE_PLAIN, "%s", heed_shape_print(shape, sizeof shape, a->ndim, a->shape));
        add_number_cell(t, sum.min), add_number_cell(t, sum.mean), add_number_cell(t, sum.max);
        if (sum.n_nan || sum.n_inf)
            heed_table_add(t, HEED_STYLE_BAD, "%s (%lld NaN, %lld infinite)", first, (long long) sum.n_nan,
                           (long long) sum.n_inf);
        else heed_table_add(t, HEED_STYLE_PLAIN, "%s", first);
    }
    heed_table_print(t);
}

static void print_text(const run_state *s)
{
    print_outputs(s);
    char *tally = heed_runner_tally(&s->runner);
    printf("\n%s", tally);
    free(tally);
    cJSON *kernels = count_kernels(s), *kernel;
    const char *before = ", by ";
    cJSON_ArrayForEach(kernel, kernels)
    {
        printf("%s%s x %.0f", before, kernel->string, kernel->valuedouble);
        before = ", ";
    }
    cJSON_Delete(kernels);
    int threads = heed_context_threads(s->runner.ctx);
    const char *plural = threads == 1 ? "" : "s";
    if (s->repeat)
        printf("\n%lld runs on %d thread%s: median %.3f ms, shortest %.3f ms\n", (long long) s->repeat, threads, plural,
               s->median_ms, s->min_ms);
    else printf("\nfirst run on %d thread%s: %.3f ms\n", threads, plural, s->min_ms);
}

static void print_json(const run_state *s)
{
    cJSON *all = cJSON_CreateObject();
    heed_json_text(all, "model", s->runner.path);
    heed_json_number(all, "threads", heed_context_threads(s->runner.ctx));
    heed_json_number(all, "runs", s->repeat ? (double) s->repeat : 1);
    cJSON *time_ms = cJSON_AddObjectToObject(all, "time_ms");
    heed_json_number(time_ms, "median", round(s->median_ms * 1e6) / 1e6); /* whole nanoseconds */
    heed_json_number(time_ms, "min", round(s->min_ms * 1e6) / 1e6);
    cJSON *attention = cJSON_AddObjectToObject(all, "attention");
    int fused = heed_runner_count_fused(&s->runner);
    heed_json_number(attention, "fused", fused);
    heed_json_number(attention, "refused", heed_compiled_attention_count(s->runner.compiled) - fused);
    cJSON_AddItemToObject(attention, "kernels", count_kernels(s));
    cJSON *outputs = cJSON_AddArrayToObject(all, "outputs");
    for (int i = 0, n = heed_model_output_count(s->runner.model); i < n; i++) {
        const heed_array *a = &s->outputs_found[i];
        heed_summary sum = heed_array_summary(a);
        cJSON *output = cJSON_CreateObject();
        heed_json_text(output, "name", heed_runner_output(&s->runner, i).name);
        heed_json_text(output, "type", a->type->name);
        cJSON_AddItemToObject(output, "shape", heed_json_shape(a->ndim, a->shape));
        heed_json_number(output, "min", sum.min);
        heed_json_number(output, "mean", sum.mean);
        heed_json_number(output, "max", sum.max);
        heed_json_number(output, "n_nan", (double) sum.n_nan);
        heed_json_number(output, "n_inf", (double) sum.n_inf);
        cJSON_AddItemToArray(outputs, output);
    }
    heed_json_print(all);
}

static int run_model(run_state *s)
{
    if (read_inputs(s) != 0 || check_outputs(s) != 0) return -1;
    if (heed_runner_compile(&s->runner, !s->no_fuse) != 0 || run_timed(s) != 0) return -1;
    int n = heed_model_output_count(s->runner.model);
    s->outputs_found = heed_must_alloc((size_t) n * sizeof *s->outputs_found);
    int rc = heed_runner_outputs(&s->runner, s->outputs_found);
    if (rc == 0) rc = write_outputs(s);
    if (rc == 0) (s->json ? print_json : print_text)(s);
    heed_arrays_destroy(s->outputs_found, n);
    free(s->outputs_found);
    return rc;
}

static void free_bindings(heed_bindings *list)
{
    for (int i = 0; i < list->n; i++) free(list->items[i].name);
    free(list->items);
}

static int run(int argc, char **argv)
{
    run_state s = { 0 };
    int at = heed_command_parse(&heed_cmd_run, argc, argv, &s), exit_code = HEED_EXIT_OK;
    if (at < 0) {
        exit_code = -1 - at;
    } else if (heed_runner_load(&s.runner, argv[at], (int) s.threads) != 0) {
        exit_code = heed_fault_print();
    } else {
        if (run_model(&s) != 0) exit_code = heed_fault_print();
        heed_runner_close(&s.runner);
        heed_case_destroy(&s.arrays);
    }
    free_bindings(&s.inputs), free_bindings(&s.outputs), free_bindings(&s.dims);
    return exit_code;
}

const heed_command heed_cmd_run = {
    .name = "run",
    .operands = "MODEL [OPTION]...",
    .summary = "Run a model and summarise its outputs.",
    .notes = "Examples:\n"
             "  heed run model.onnx --inputs in.npz --outputs out.npz\n"
             "  heed run model.onnx --input input_ids=ids.npy --input attention_mask=mask.npy\n"
             "  heed run model.onnx --random --dim batch=1 --dim sequence=256 --repeat 50 --threads 2\n",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .min_operands = 1,
    .max_operands = 1,
    .run = run,
};
