/* heed/model.h - a model from an ONNX file: load -> compile -> session -> run.
 *
 *   model     what the file says. Owns its memory, maps external data. Read-only after loading.
 *   compiled  the graph after shape inference, folding and fusing. Read-only after compiling, borrows the model.
 *   session   memory and state to run it: one run at a time per session; several sessions share one compiled graph.
 *
 * Objects must be destroyed in the opposite order of creation. Every destroy function takes NULL.
 */
#ifndef HEED_MODEL_H
#define HEED_MODEL_H

#include <heed/common.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct heed_model heed_model;
typedef struct heed_compiled heed_compiled;
typedef struct heed_session heed_session;

#define HEED_MAX_RANK 8

/* An input or output of a model. Owned by the object it came from. */
typedef struct heed_value_info {
    size_t struct_size;
    const char *name;
    DLDataType dtype;
    int ndim;                             /* -1: unknown */
    int64_t shape[HEED_MAX_RANK];         /* -1: not known before the run */
    const char *dim_names[HEED_MAX_RANK]; /* name of a symbolic dimension, or NULL */
} heed_value_info;

/* Load an ONNX file, opsets 11 to 28. External data is looked for beside it and mapped when first needed. */
HEED_API heed_status heed_model_load(heed_model **out, heed_context *ctx, const char *path);
/* The same from memory (copied as needed; the buffer may go after the call); base_dir, for external data, may be NULL. */
HEED_API heed_status heed_model_load_memory(heed_model **out, heed_context *ctx, const void *data, size_t bytes,
                                            const char *base_dir);
HEED_API void heed_model_destroy(heed_model *model);

HEED_API int heed_model_input_count(const heed_model *model);
HEED_API int heed_model_output_count(const heed_model *model);
HEED_API heed_status heed_model_input(const heed_model *model, int index, heed_value_info *info);
HEED_API heed_status heed_model_output(const heed_model *model, int index, heed_value_info *info);

typedef struct heed_compile_options {
    size_t struct_size;
    int fuse;        /* default 1; 0: plain operators only, attention nodes of the file are exploded too */
    int force_fused; /* default 0; 1: a fused attention whose kernel does not apply fails instead of exploding */
} heed_compile_options;

HEED_API void heed_compile_options_init(heed_compile_options *options);

/* Compile. options may be NULL for the defaults. */
HEED_API heed_status heed_compile(heed_compiled **out, const heed_model *model, const heed_compile_options *options);
HEED_API void heed_compiled_destroy(heed_compiled *compiled);

/* One attention that the compiler found, or something that looks like one and was left alone. */
typedef struct heed_attention_report {
    size_t struct_size;
    const char *node; /* the node it was anchored on: the product with V, or the softmax */
    int fused;
    const char *reason; /* fused: what was recognised; refused: why, in words a user can act on */
    const char *shapes; /* "q [B, 12, S, 32] k [B, 12, S, 32] v [B, 12, S, 32] f32, scale 0.1768, float mask" */
    const char *kernel; /* kernel chosen for known shapes, "" where that waits for the run */
    const char *why;    /* the plan's explanation, "" likewise */
} heed_attention_report;

HEED_API int heed_compiled_attention_count(const heed_compiled *compiled);
HEED_API heed_status heed_compiled_attention(const heed_compiled *compiled, int index, heed_attention_report *report);

/* The graph as text, one line a node. Owned by the compiled object. */
HEED_API heed_status heed_compiled_print(const heed_compiled *compiled, const char **text);

HEED_API heed_status heed_session_create(heed_session **out, const heed_compiled *compiled);
HEED_API void heed_session_destroy(heed_session *session);

/* Set an input for the following runs. The tensor's data is borrowed until it is set again or the session goes; the
 * DLTensor itself is copied. Type and shape are checked against the model. */
HEED_API heed_status heed_session_set_input(heed_session *session, const char *name, const DLTensor *tensor);

/* Run. After the first run with the same input shapes, later ones allocate nothing, unless shapes inside the model depend on
 * data. A session remembers the shapes of its last run only; for two kinds of shapes in turn, two sessions are faster. */
HEED_API heed_status heed_session_run(heed_session *session);

/* An output of the last run, dense and row-major; borrowed until the next run. */
HEED_API heed_status heed_session_output(const heed_session *session, int index, const DLTensor **tensor);

/* What the last run did with attention number `index` of the compiled report: the kernel that ran. */
HEED_API heed_status heed_session_attention_kernel(const heed_session *session, int index, const char **kernel);

#ifdef __cplusplus
}
#endif
#endif
