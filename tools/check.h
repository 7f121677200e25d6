/* check.h - one model checked: run fused and unfused, compared with each other and with what its outputs should be. */
#ifndef HEED_TOOLS_CHECK_H
#define HEED_TOOLS_CHECK_H

#include <cjson/cJSON.h>

#include "case.h"

typedef struct heed_check_options {
    const char *io, *data; /* an npz, or a folder of ONNX test data */
    double atol, rtol;
    int64_t threads;
} heed_check_options;

/* What became of one output, the worst over all cases. */
typedef struct heed_check_output {
    char *name;
    double max_abs_err;      /* against the expected, fused and unfused; NaN where they cannot be subtracted */
    double fused_vs_unfused; /* likewise */
    int ok;
    char reason[448]; /* what is wrong first, "" if nothing */
} heed_check_output;

typedef struct heed_check {
    const char *model;
    int fused;      /* attentions fused */
    cJSON *refused; /* [{"node", "reason"}] */
    int n_outputs;
    heed_check_output *outputs;
    double max_abs_err, fused_vs_unfused; /* over all outputs */
    int ok;
    char *error; /* the model could not be loaded or run, or its data not be read; NULL if all could */
} heed_check;

/* Check. Every failure ends up in the result. */
void heed_check_model(heed_check *check, const char *model, const heed_check_options *options);
void heed_check_destroy(heed_check *check);
/* The object that `heed check --json` prints; it belongs to the caller. */
cJSON *heed_check_json(const heed_check *check);

#endif
