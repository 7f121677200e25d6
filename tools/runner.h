/* runner.h - a model on its way through the library: loaded, compiled, run. What the commands share of it. */
#ifndef HEED_TOOLS_RUNNER_H
#define HEED_TOOLS_RUNNER_H

#include <heed/heed.h>

#include "array.h"

typedef struct heed_runner {
    const char *path;
    heed_context *ctx;
    heed_model *model;
    heed_compiled *compiled;
    heed_session *session;
} heed_runner;

/* Load. threads 0: as many as there are CPUs. A failure's words begin with the path, here and below. */
int heed_runner_load(heed_runner *r, const char *path, int threads);
/* Compile, in place of what was compiled before. */
int heed_runner_compile(heed_runner *r, int fuse);
/* Run with one array for each input, in the model's order. They stay the caller's, and must stay until the next call. */
int heed_runner_run(heed_runner *r, const heed_array *inputs);
/* Copies of the outputs, in the model's order. */
int heed_runner_outputs(heed_runner *r, heed_array *outputs);
void heed_runner_close(heed_runner *r);

/* Input or output number i. */
heed_value_info heed_runner_input(const heed_runner *r, int i);
heed_value_info heed_runner_output(const heed_runner *r, int i);
/* Index of the input or output called `name`, -1 if there is none. */
int heed_runner_find_input(const heed_runner *r, const char *name);
int heed_runner_find_output(const heed_runner *r, const char *name);

/* Attention number i of the compiled model. */
heed_attention_report heed_runner_attention(const heed_runner *r, int i);
int heed_runner_count_fused(const heed_runner *r);
/* "12 attentions: 11 fused, 1 left alone", malloc'ed. */
char *heed_runner_tally(const heed_runner *r);

void heed_arrays_destroy(heed_array *arrays, int n);

#endif
