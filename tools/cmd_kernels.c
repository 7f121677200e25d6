/* heed kernels: what is built, what this CPU can run, and what a given problem would choose. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "command.h"
#include "print.h"

typedef struct kernels_state {
    int asked; /* any option that describes a problem was there */
    int json;
    heed_attention_desc desc;
} kernels_state;

/* The options below write into the description through these; the first to do so makes it a question about a problem. */
static heed_attention_desc *ask(void *state)
{
    ((kernels_state *) state)->asked = 1;
    return &((kernels_state *) state)->desc;
}

/* "32" or "32/8". */
static int parse_pair(const char *value, int64_t max, int64_t *a, int64_t *b)
{
    const char *slash = strchr(value, '/');
    if (!slash) return heed_parse_int(value, 0, max, a);
    char *first = heed_must_print("%.*s", (int) (slash - value), value);
    int rc = heed_parse_int(first, 0, max, a);
    free(first);
    return rc ? rc : heed_parse_int(slash + 1, 0, max, b);
}

static int parse_dtype(void *state, const heed_option *option, const char *value)
{
    (void) option;
    const heed_type *type = heed_type_from_name(value);
    if (!type || !heed_type_is_float(type) || type->bits == 64) return heed_fault("'%s' is not one of f32, f16, bf16", value);
    ask(state)->dtype = (DLDataType){ type->code, type->bits, 1 };
    return 0;
}

static int parse_heads(void *state, const heed_option *option, const char *value)
{
    (void) option;
    heed_attention_desc *d = ask(state);
    d->heads_kv = -1;
    if (parse_pair(value, INT64_MAX, &d->heads_q, &d->heads_kv) != 0) return -1;
    if (d->heads_kv < 0) d->heads_kv = d->heads_q;
    return 0;
}

static int parse_head_dim(void *state, const heed_option *option, const char *value)
{
    (void) option;
    heed_attention_desc *d = ask(state);
    return parse_pair(value, INT64_MAX, &d->head_dim, &d->head_dim_v);
}

static int parse_window(void *state, const heed_option *option, const char *value)
{
    (void) option;
    heed_attention_desc *d = ask(state);
    return parse_pair(value, INT64_MAX, &d->window_left, &d->window_right);
}

static int parse_causal(void *state, const heed_option *option, const char *value)
{
    (void) option;
    if (value && strcmp(value, "top-left") != 0 && strcmp(value, "bottom-right") != 0)
        return heed_fault("'%s' is not one of top-left, bottom-right", value);
    int top_left = value && strcmp(value, "top-left") == 0;
    heed_attention_desc_set_causal(ask(state), top_left ? HEED_OFFSET_TOP_LEFT : HEED_OFFSET_BOTTOM_RIGHT);
    return 0;
}

static int parse_mask(void *state, const heed_option *option, const char *value)
{
    (void) option;
    static const char *const kinds[] = {
        [HEED_MASK_NONE] = "none", [HEED_MASK_BOOL] = "bool", [HEED_MASK_F32] = "f32", [HEED_MASK_TYPE_Q] = "q"
    };
    heed_attention_desc *d = ask(state);
    if (!value) value = "bool";
    for (int i = 0; i < (int) (sizeof kinds / sizeof kinds[0]); i++)
        if (strcmp(value, kinds[i]) == 0) {
            d->mask = (heed_mask_kind) i;
            return 0;
        }
    return heed_fault("'%s' is not one of none, bool, f32, q", value);
}

/* The plain fields: an offset into the description, by the type that the field has. */
static int parse_size(void *field, const heed_option *option, const char *value)
{
    ask((char *) field - option->at);
    return heed_option_int(field, option, value);
}

static int parse_float(void *field, const heed_option *option, const char *value)
{
    double x;
    ask((char *) field - option->at);
    if (heed_parse_real(value, option->min, option->max, &x) != 0) return -1;
    *(float *) field = (float) x;
    return 0;
}

static int parse_flag(void *field, const heed_option *option, const char *value)
{
    ask((char *) field - option->at);
    return heed_option_flag(field, option, value);
}

static int parse_kernel(void *field, const heed_option *option, const char *value)
{
    ask((char *) field - option->at);
    return heed_option_text(field, option, value);
}

#define AT(field) offsetof(kernels_state, desc.field)
static const heed_option options[] = {
    { "dtype", "TYPE", "f32 (default), f16 or bf16", parse_dtype, 0, 0, 0 },
    { "batch", "N", "batch (default 1)", parse_size, AT(max_batch), 0, 0x1p63 },
    { "heads", "N[/KV]", "query heads and, if they differ, KV heads (default 1)", parse_heads, 0, 0, 0 },
    { "head-dim", "D[/DV]", "head dimension, and that of the values (default 64)", parse_head_dim, 0, 0, 0 },
    { "len-q", "N", "query rows (default 1)", parse_size, AT(max_len_q), 0, 0x1p63 },
    { "len-k", "N", "keys (default 1)", parse_size, AT(max_len_k), 0, 0x1p63 },
    { "causal", "[OFFSET]", "causal, from the bottom-right (default) or top-left corner", parse_causal, 0, 0, 0 },
    { "window", "LEFT[/RIGHT]", "keys kept left and right of the diagonal", parse_window, 0, 0, 0 },
    { "mask", "[KIND]", "a mask: none, bool (default), f32, or q for the type of q", parse_mask, 0, 0, 0 },
    { "scale", "X", "factor on the scores (default 1/sqrt(D))", parse_float, AT(scale), -INFINITY, INFINITY },
    { "softcap", "X", "softcap * tanh(score / softcap)", parse_float, AT(softcap), 0, INFINITY },
    { "sinks", NULL, "a sink logit per query head", parse_flag, AT(has_sinks), 0, 0 },
    { "key-lengths", NULL, "a key length per batch", parse_flag, AT(has_key_lengths), 0, 0 },
    { "lse", NULL, "the log-sum-exp is wanted too", parse_flag, AT(want_lse), 0, 0 },
    { "force-fused", NULL, "fail with the reasons where no fused kernel applies", parse_flag, AT(force_fused), 0, 0 },
    { "kernel", "NAME", "this kernel, or the reason why it does not apply", parse_kernel, AT(kernel), 0, 0 },
    { "json", NULL, "print one JSON object", heed_option_flag, offsetof(kernels_state, json), 0, 0 },
};

static void print_kernels(void)
{
    heed_table *t = heed_table_create("lllll");
    static const char *const heading[] = { "KERNEL", "FAMILY", "TYPE", "ISA", "THIS CPU" };
    for (size_t i = 0; i < sizeof heading / sizeof heading[0]; i++) heed_table_add(t, HEED_STYLE_BOLD, "%s", heading[i]);
    heed_kernel_info k = { .struct_size = sizeof k };
    for (int i = 0; heed_kernel_info_get(i, &k); i++) {
        heed_table_add(t, HEED_STYLE_PLAIN, "%s", k.name);
        heed_table_add(t, HEED_STYLE_PLAIN, "%s", k.family);
        heed_table_add(t, HEED_STYLE_PLAIN, "%s", k.dtype);
        heed_table_add(t, HEED_STYLE_PLAIN, "%s", k.isa);
        heed_table_add(t, k.runs_here ? HEED_STYLE_GOOD : HEED_STYLE_PLAIN, "%s", k.runs_here ? "runs it" : "cannot run it");
    }
    heed_table_print(t);
}

static void print_json(const heed_attention_plan *plan)
{
    cJSON *all = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(all, "kernels");
    heed_kernel_info k = { .struct_size = sizeof k };
    for (int i = 0; heed_kernel_info_get(i, &k); i++) {
        cJSON *entry = cJSON_CreateObject();
        heed_json_text(entry, "name", k.name);
        heed_json_text(entry, "family", k.family);
        heed_json_text(entry, "dtype", k.dtype);
        heed_json_text(entry, "isa", k.isa);
        cJSON_AddBoolToObject(entry, "runs_here", k.runs_here);
        cJSON_AddItemToArray(list, entry);
    }
    if (plan) {
        cJSON *choice = cJSON_AddObjectToObject(all, "choice");
        heed_json_text(choice, "kernel", heed_attention_plan_kernel(plan));
        heed_json_text(choice, "why", heed_attention_plan_explain(plan));
        heed_json_number(choice, "workspace_bytes", (double) heed_attention_plan_workspace(plan));
    }
    heed_json_print(all);
}

static void print_choice(const heed_attention_plan *plan)
{
    printf("%s%s%s, workspace %zu bytes\n", heed_style_on(HEED_STYLE_BOLD), heed_attention_plan_kernel(plan),
           heed_style_off(HEED_STYLE_BOLD), heed_attention_plan_workspace(plan));
    heed_print_indented("  ", heed_attention_plan_explain(plan));
}

static int run(int argc, char **argv)
{
    kernels_state s = { 0 };
    heed_attention_desc_init(&s.desc);
    int at = heed_command_parse(&heed_cmd_kernels, argc, argv, &s);
    if (at < 0) return -1 - at;
    heed_context *ctx = NULL;
    heed_attention_plan *plan = NULL;
    int exit_code = HEED_EXIT_OK;
    if (s.asked && (heed_context_create(&ctx, NULL) != HEED_OK || heed_attention_plan_create(&plan, ctx, &s.desc) != HEED_OK)) {
        heed_fault_library(NULL);
        exit_code = heed_fault_print();
    } else if (s.json) print_json(plan);
    else if (plan) print_choice(plan);
    else print_kernels();
    heed_attention_plan_destroy(plan);
    heed_context_destroy(ctx);
    return exit_code;
}

const heed_command heed_cmd_kernels = {
    .name = "kernels",
    .operands = "[OPTION]...",
    .summary = "List the attention kernels, or say which one a problem would get and why.",
    .notes = "Without an option that describes a problem the kernels are listed.\n\n"
             "Examples:\n"
             "  heed kernels\n"
             "  heed kernels --dtype=f16 --heads=32/8 --head-dim=128 --len-q=1 --len-k=4096\n"
             "  heed kernels --heads=12 --len-q=512 --len-k=512 --causal --mask=f32\n",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .min_operands = 0,
    .max_operands = 0,
    .run = run,
};
