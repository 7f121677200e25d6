/* A random attention problem with guard pages round every array, its answer by the double reference, and the comparison. */
#ifndef HEED_TESTS_ATTENTION_CASE_H
#define HEED_TESTS_ATTENTION_CASE_H

#include <heed/attention.h>

#include "base/dtype.h"
#include "kernels/kernels.h"

/* Random numbers. The seed is printed; HEED_TEST_SEED repeats a run. */
void rng_start(void);
uint64_t rng(void);
int64_t rng_below(int64_t n);
double rng_normal(void);

/* An array of up to four dimensions in memory of its own that ends at, or begins after, a page without access. */
typedef struct array {
    heed_dtype dtype;
    int rank;
    int64_t dims[4], strides[4];
    void *data;
    char *map;
    size_t map_bytes, reach; /* reach: elements from the first to past the last */
    DLTensor dl;
} array;

typedef enum layout {
    LAYOUT_BHLD = 0, /* dense */
    LAYOUT_BLHD,     /* heads beside each other in a row */
    LAYOUT_BHDL,     /* transposed */
    LAYOUT_PADDED,   /* gaps between rows and between elements */
    LAYOUT_COUNT
} layout;

/* `repeat`: bit i gives dimension i stride 0. Filled with NaN bytes. */
void array_make(array *a, heed_dtype dtype, int rank, const int64_t *dims, layout order, unsigned repeat);
void array_free(array *a);
void array_poison(array *a);
double array_get(const array *a, int64_t b, int64_t h, int64_t i, int64_t d);
void array_set(array *a, int64_t b, int64_t h, int64_t i, int64_t d, double value);

/* What to test. Start from spec_random(). */
typedef struct spec {
    heed_dtype dtype;
    int64_t batch, heads_q, heads_kv, len_q, len_k, head_dim, head_dim_v;
    float scale, softcap; /* scale NaN: the default */
    heed_mask_kind mask;
    unsigned mask_repeat; /* bit i: dimension i of the mask has size 1 */
    int mask_rank;
    int mask_moderate; /* no mask of the type's lowest number */
    heed_offset_mode offset_mode;
    int64_t offset, window_left, window_right;
    int sinks, key_lengths, lse;
    layout order;
    unsigned kv_repeat; /* dimensions of k and v with stride 0 */
    int poison;         /* NaN and infinities in some keys and values */
    double spread;      /* of the queries: how peaked the softmax is */
} spec;

spec spec_random(heed_dtype dtype);

/* A problem in memory, with the reference's answer. */
typedef struct sample {
    spec s;
    array q, k, v, mask, out, lse;
    float *sinks;
    int64_t *key_lengths, *offsets;
    double *ref_out, *ref_lse;
    heed_attention_desc desc;
    heed_attention_args args;
} sample;

void sample_make(sample *c, const spec *s);
void sample_free(sample *c);
/* Compute the reference's answer again, after a change to the inputs. */
void sample_refer(sample *c);

/* Compare out and lse with the reference; fails the test with the place and the spec in words. `who` names the arm. */
void sample_check(const sample *c, const char *who);
/* Pin a kernel (NULL: none), run on poisoned outputs, check. *trace may be NULL. */
void sample_run(sample *c, heed_context *ctx, const char *kernel, heed_attention_trace *trace);

/* For each kernel that runs here and takes the type: its name, or NULL past the last. */
const char *kernel_for(heed_dtype dtype, int index);

#endif
