/* Checking one model: two runs a case, three comparisons an output. */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fault.h"
#include "print.h"

/* The material of a check while it runs. results[fused][case * n_outputs + output]. */
typedef struct material {
    heed_runner runner;
    heed_case *cases;
    int n_cases, n_outputs;
    heed_array *results[2];
} material;

static int read_cases(material *m, const heed_check_options *o)
{
    if (o->data) return heed_cases_from_folder(&m->cases, &m->n_cases, &m->runner, o->data);
    m->cases = heed_must_alloc(sizeof *m->cases);
    if (heed_case_from_npz(m->cases, &m->runner, o->io) != 0) return -1;
    m->n_cases = 1;
    return 0;
}

static void keep_report(heed_check *c, const heed_runner *r)
{
    c->fused = heed_runner_count_fused(r);
    for (int i = 0, n = heed_compiled_attention_count(r->compiled); i < n; i++) {
        heed_attention_report report = heed_runner_attention(r, i);
        if (report.fused) continue;
        cJSON *entry = cJSON_CreateObject();
        heed_json_text(entry, "node", report.node ? report.node : "");
        heed_json_text(entry, "reason", report.reason ? report.reason : "");
        cJSON_AddItemToArray(c->refused, entry);
    }
}

static int run_variant(heed_check *c, material *m, int fuse)
{
    int rc = heed_runner_compile(&m->runner, fuse);
    if (rc == 0 && fuse) keep_report(c, &m->runner);
    m->results[fuse] = heed_must_alloc((size_t) m->n_cases * (size_t) m->n_outputs * sizeof(heed_array));
    for (int i = 0; i < m->n_cases && rc == 0; i++) {
        rc = heed_runner_run(&m->runner, m->cases[i].inputs);
        if (rc == 0) rc = heed_runner_outputs(&m->runner, m->results[fuse] + i * m->n_outputs);
    }
    return rc;
}

/* Both, whatever becomes of the first: a fault that only one of them has is of another kind. */
static int run_variants(heed_check *c, material *m)
{
    int fused = run_variant(c, m, 1);
    char *words = heed_must_copy(fused == 0 ? "" : heed_fault_text());
    int unfused = run_variant(c, m, 0);
    if (fused != 0) heed_fault("%s%s", words, unfused == 0 ? " (fused only)" : "");
    else if (unfused != 0) heed_fault("%s (unfused only)", heed_fault_text());
    free(words);
    return fused == 0 && unfused == 0 ? 0 : -1;
}

static double larger(double a, double b)
{
    return isnan(a) || isnan(b) ? NAN : a > b ? a : b;
}

static void note(heed_check_output *out, double *worst, const char *what, heed_difference d)
{
    *worst = larger(*worst, d.max_abs);
    if (d.ok) return;
    out->ok = 0;
    if (!out->reason[0]) snprintf(out->reason, sizeof out->reason, "%s: %s", what, d.reason);
}

static heed_difference not_there(const heed_case *from)
{
    heed_difference d = { .max_abs = NAN };
    snprintf(d.reason, sizeof d.reason, "not in %.200s", from->source);
    return d;
}

static void compare(heed_check *c, const material *m, const heed_check_options *o)
{
    for (int i = 0; i < m->n_cases * m->n_outputs; i++) {
        heed_check_output *out = &c->outputs[i % m->n_outputs];
        const heed_array *fused = &m->results[1][i], *unfused = &m->results[0][i];
        const heed_case *from = &m->cases[i / m->n_outputs];
        const heed_array *expected = &from->expected[i % m->n_outputs];
        if (expected->type) {
            note(out, &out->max_abs_err, "fused against expected", heed_array_compare(fused, expected, o->atol, o->rtol));
            note(out, &out->max_abs_err, "unfused against expected", heed_array_compare(unfused, expected, o->atol, o->rtol));
        } else {
            note(out, &out->max_abs_err, "expected output", not_there(from));
        }
        note(out, &out->fused_vs_unfused, "fused against unfused", heed_array_compare(fused, unfused, o->atol, o->rtol));
    }
    c->ok = 1;
    for (int i = 0; i < c->n_outputs; i++) {
        c->ok &= c->outputs[i].ok;
        c->max_abs_err = larger(c->max_abs_err, c->outputs[i].max_abs_err);
        c->fused_vs_unfused = larger(c->fused_vs_unfused, c->outputs[i].fused_vs_unfused);
    }
}

static void name_outputs(heed_check *c, const material *m)
{
    c->n_outputs = m->n_outputs;
    c->outputs = heed_must_alloc((size_t) c->n_outputs * sizeof *c->outputs);
    for (int i = 0; i < c->n_outputs; i++) {
        c->outputs[i].name = heed_must_copy(heed_runner_output(&m->runner, i).name);
        c->outputs[i].ok = 1;
    }
}

static void free_material(material *m)
{
    for (int fuse = 0; fuse < 2; fuse++) {
        if (m->results[fuse]) heed_arrays_destroy(m->results[fuse], m->n_cases * m->n_outputs);
        free(m->results[fuse]);
    }
    for (int i = 0; i < m->n_cases; i++) heed_case_destroy(&m->cases[i]);
    free(m->cases);
    heed_runner_close(&m->runner);
}

void heed_check_model(heed_check *c, const char *model, const heed_check_options *o)
{
    material m = { 0 };
    *c = (heed_check){ .model = model, .refused = cJSON_CreateArray() };
    int rc = heed_runner_load(&m.runner, model, (int) o->threads);
    if (rc == 0) {
        m.n_outputs = heed_model_output_count(m.runner.model);
        rc = read_cases(&m, o);
    }
    if (rc == 0) rc = run_variants(c, &m);
    if (rc == 0) {
        name_outputs(c, &m);
        compare(c, &m, o);
    } else {
        c->error = heed_must_copy(heed_fault_text());
    }
    free_material(&m);
}

void heed_check_destroy(heed_check *c)
{
    for (int i = 0; i < c->n_outputs; i++) free(c->outputs[i].name);
    free(c->outputs), free(c->error);
    cJSON_Delete(c->refused);
}

cJSON *heed_check_json(const heed_check *c)
{
    cJSON *all = cJSON_CreateObject();
    heed_json_text(all, "model", c->model);
    cJSON *attention = cJSON_AddObjectToObject(all, "attention");
    heed_json_number(attention, "fused", c->fused);
    cJSON_AddItemToObject(attention, "refused", cJSON_Duplicate(c->refused, 1));
    cJSON *outputs = cJSON_AddArrayToObject(all, "outputs");
    for (int i = 0; i < c->n_outputs; i++) {
        const heed_check_output *o = &c->outputs[i];
        cJSON *entry = cJSON_CreateObject();
        heed_json_text(entry, "name", o->name);
        heed_json_number(entry, "max_abs_err", o->max_abs_err);
        cJSON_AddBoolToObject(entry, "ok", o->ok);
        if (!o->ok) heed_json_text(entry, "reason", o->reason);
        cJSON_AddItemToArray(outputs, entry);
    }
    heed_json_number(all, "fused_vs_unfused_max_abs", c->error ? NAN : c->fused_vs_unfused);
    cJSON_AddBoolToObject(all, "ok", c->ok);
    if (c->error) heed_json_text(all, "error", c->error);
    return all;
}
