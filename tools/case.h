/* case.h - arrays for a model's inputs, and what its outputs should be, found in the files that people keep them in. */
#ifndef HEED_TOOLS_CASE_H
#define HEED_TOOLS_CASE_H

#include "npz.h"
#include "runner.h"

typedef struct heed_case {
    char *source; /* the file or folder it came from */
    int n_inputs, n_outputs;
    heed_array *inputs;   /* in the model's order; type NULL: not there */
    heed_array *expected; /* likewise */
} heed_case;

/* A case without arrays. */
void heed_case_create(heed_case *c, const heed_runner *r, const char *source);
void heed_case_destroy(heed_case *c);

/* Inputs under their own names or in_NAME; what is there of them. */
int heed_case_read_inputs(heed_case *c, const heed_runner *r, const char *npz_path);
/* -1, with words on the first input that has no array. */
int heed_case_require_inputs(const heed_case *c, const heed_runner *r);
/* Fill each input that has no array with numbers: floats normally distributed, others 0 or 1. `dims` gives sizes to symbolic
 * dimensions by name; others that are unknown become 1. */
typedef struct heed_binding {
    char *name;
    const char *value;
} heed_binding;
typedef struct heed_bindings {
    int n;
    heed_binding *items;
} heed_bindings;
int heed_case_randomize(heed_case *c, const heed_runner *r, const heed_bindings *dims, uint64_t seed);

/* From an npz with in_NAME and out_I. */
int heed_case_from_npz(heed_case *c, const heed_runner *r, const char *path);
/* From a folder with input_N.pb and output_N.pb, or from all folders test_data_set_* in it. */
int heed_cases_from_folder(heed_case **cases, int *n, const heed_runner *r, const char *path);

#endif
