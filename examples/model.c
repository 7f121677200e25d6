/* Run an ONNX model on made-up inputs, and say what became of its attention.
 *
 *   cc model.c $(pkg-config --cflags --libs heed) -o model && ./model bert.onnx batch=1 sequence=64
 *
 * A dimension that the file leaves open gets the size given for its name, else 8. */
#include <heed/heed.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int check(heed_status status)
{
    if (status != HEED_OK) fprintf(stderr, "model: %s\n", heed_last_message());
    return status == HEED_OK;
}

static int64_t size_of(const char *name, int argc, char **argv)
{
    size_t n = name ? strlen(name) : 0;
    for (int i = 2; name && i < argc; i++)
        if (strncmp(argv[i], name, n) == 0 && argv[i][n] == '=') return atoll(argv[i] + n + 1);
    return 8;
}

/* A tensor of the described shape: 0, 1/n, 2/n .. in f32, zeros in any other type. */
static int feed(heed_session *session, const heed_value_info *info, int argc, char **argv)
{
    int64_t shape[HEED_MAX_RANK], n = 1;
    for (int i = 0; i < info->ndim; i++)
        n *= shape[i] = info->shape[i] >= 0 ? info->shape[i] : size_of(info->dim_names[i], argc, argv);
    float *data = calloc(n > 0 ? (size_t) n : 1, 8); /* kept to the end of the program */
    if (!data) return 0;
    for (int64_t i = 0; info->dtype.code == kDLFloat && info->dtype.bits == 32 && i < n; i++) data[i] = (float) i / (float) n;
    DLTensor tensor = { .data = data, .device = { kDLCPU, 0 }, .ndim = info->ndim, .dtype = info->dtype, .shape = shape };
    return check(heed_session_set_input(session, info->name, &tensor));
}

static void print_output(const char *name, const DLTensor *t)
{
    int64_t n = 1;
    printf("%s [", name);
    for (int i = 0; i < t->ndim; n *= t->shape[i++]) printf("%s%lld", i ? ", " : "", (long long) t->shape[i]);
    printf("]");
    const float *x = t->data;
    for (int64_t i = 0; t->dtype.code == kDLFloat && t->dtype.bits == 32 && i < n && i < 6; i++) printf(" %g", (double) x[i]);
    printf("\n");
}

int main(int argc, char **argv)
{
    heed_context *ctx = NULL;
    heed_model *model = NULL;
    heed_compiled *compiled = NULL;
    heed_session *session = NULL;
    if (argc < 2) return fprintf(stderr, "usage: model FILE.onnx [DIMENSION=SIZE ...]\n"), 2;
    int ok = check(heed_context_create(&ctx, NULL)) && check(heed_model_load(&model, ctx, argv[1])) &&
             check(heed_compile(&compiled, model, NULL)) && check(heed_session_create(&session, compiled));
    heed_value_info info = { .struct_size = sizeof info };
    for (int i = 0; ok && i < heed_model_input_count(model); i++)
        ok = check(heed_model_input(model, i, &info)) && feed(session, &info, argc, argv);
    ok = ok && check(heed_session_run(session));
    heed_attention_report report = { .struct_size = sizeof report };
    for (int i = 0; ok && i < heed_compiled_attention_count(compiled); i++) {
        const char *kernel = "";
        ok = check(heed_compiled_attention(compiled, i, &report)) && check(heed_session_attention_kernel(session, i, &kernel));
        if (ok)
            printf("%s: %s, %s %s %s\n", report.node, report.fused ? "fused" : "left alone", report.reason, report.shapes,
                   kernel);
    }
    const DLTensor *output;
    for (int i = 0; ok && i < heed_model_output_count(model); i++) {
        ok = check(heed_model_output(model, i, &info)) && check(heed_session_output(session, i, &output));
        if (ok) print_output(info.name, output);
    }
    heed_session_destroy(session), heed_compiled_destroy(compiled), heed_model_destroy(model), heed_context_destroy(ctx);
    return !ok;
}
