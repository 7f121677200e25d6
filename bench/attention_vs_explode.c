/* Two arms of one attention problem, in one process, call by call in turn: the kernel that heed chooses against another one
 * (explode unless named). Prints the medians, the best times, the ratio of the medians, and how far the results are apart.
 *
 *     bench-attention [batch=8] [heads_q=8] [heads_kv=8] [len_q=128] [len_k=128] [dim=64] [dtype=f32] [causal=0]
 *                     [threads=0] [pairs=201] [a=KERNEL] [b=explode]
 */
#include <heed/heed.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct setting {
    const char *name;
    long value;
};
enum { BATCH, HEADS_Q, HEADS_KV, LEN_Q, LEN_K, DIM, CAUSAL, THREADS, PAIRS, N_SETTINGS };
static struct setting settings[N_SETTINGS] = { { "batch", 8 },   { "heads_q", 8 }, { "heads_kv", 8 },
                                               { "len_q", 128 }, { "len_k", 128 }, { "dim", 64 },
                                               { "causal", 0 },  { "threads", 0 }, { "pairs", 201 } };
static const char *dtype_name = "f32", *arm_names[2] = { NULL, "explode" };

static void fail(const char *what)
{
    fprintf(stderr, "bench-attention: %s\n", what);
    exit(1);
}

static void read_setting(const char *text)
{
    const char *equals = strchr(text, '=');
    size_t n = equals ? (size_t) (equals - text) : 0;
    for (int i = 0; i < N_SETTINGS; i++) {
        if (strlen(settings[i].name) != n || strncmp(settings[i].name, text, n) != 0) continue;
        settings[i].value = atol(equals + 1);
        return;
    }
    if (n == 5 && strncmp(text, "dtype", n) == 0) dtype_name = equals + 1;
    else if (n == 1 && (*text == 'a' || *text == 'b')) arm_names[*text - 'a'] = equals + 1;
    else fail(text);
}

static DLDataType dtype_of(const char *name)
{
    if (strcmp(name, "f16") == 0) return (DLDataType){ kDLFloat, 16, 1 };
    if (strcmp(name, "bf16") == 0) return (DLDataType){ kDLBfloat, 16, 1 };
    return (DLDataType){ kDLFloat, 32, 1 };
}

/* Dense [batch, heads, len, dim]. Random bits that are numbers of moderate size in every type: 1 to 2 with a sign. */
struct tensor {
    int64_t shape[4];
    DLTensor dl;
    size_t count;
};

static void make_tensor(struct tensor *t, long heads, long len)
{
    static uint64_t state = 1;
    t->shape[0] = settings[BATCH].value, t->shape[1] = heads, t->shape[2] = len, t->shape[3] = settings[DIM].value;
    t->count = (size_t) (t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3]);
    t->dl = (DLTensor){ .device = { kDLCPU, 0 }, .ndim = 4, .dtype = dtype_of(dtype_name), .shape = t->shape };
    size_t size = t->dl.dtype.bits / 8;
    if (posix_memalign(&t->dl.data, 64, t->count * size + 64)) fail("no memory");
    for (size_t i = 0; i < t->count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint32_t r = (uint32_t) (state >> 33);
        if (t->dl.dtype.bits == 32) ((float *) t->dl.data)[i] = (float) r / 1073741824.0f - 1;
        else if (t->dl.dtype.code == kDLBfloat) ((uint16_t *) t->dl.data)[i] = (uint16_t) (0x3f80 | (r & 0x807f));
        else ((uint16_t *) t->dl.data)[i] = (uint16_t) (0x3c00 | (r & 0x83ff));
    }
}

static double element(const struct tensor *t, size_t i)
{
    if (t->dl.dtype.bits == 32) return (double) ((const float *) t->dl.data)[i];
    uint16_t h = ((const uint16_t *) t->dl.data)[i];
    int bits = t->dl.dtype.code == kDLBfloat ? 7 : 10, bias = bits == 7 ? 127 : 15;
    int exponent = h >> bits & (2 * bias + 1), mantissa = h & ((1 << bits) - 1);
    double x = ldexp(exponent ? mantissa + (1 << bits) : mantissa, (exponent ? exponent : 1) - bias - bits);
    return h & 0x8000 ? -x : x;
}

struct arm {
    heed_attention_plan *plan;
    heed_attention_args args;
    struct tensor out;
    void *workspace;
    size_t workspace_bytes;
    heed_attention_trace trace;
    double *times;
};

static void make_arm(struct arm *arm, heed_context *ctx, const char *kernel, const struct tensor *q, const struct tensor *k,
                     const struct tensor *v)
{
    heed_attention_desc d;
    heed_attention_desc_init(&d);
    d.dtype = q->dl.dtype, d.kernel = kernel;
    d.max_batch = settings[BATCH].value, d.heads_q = settings[HEADS_Q].value, d.heads_kv = settings[HEADS_KV].value;
    d.max_len_q = settings[LEN_Q].value, d.max_len_k = settings[LEN_K].value, d.head_dim = settings[DIM].value;
    if (settings[CAUSAL].value) heed_attention_desc_set_causal(&d, HEED_OFFSET_BOTTOM_RIGHT);
    if (heed_attention_plan_create(&arm->plan, ctx, &d) != HEED_OK) fail(heed_last_message());
    make_tensor(&arm->out, settings[HEADS_Q].value, settings[LEN_Q].value);
    heed_attention_args_init(&arm->args);
    arm->args.q = &q->dl, arm->args.k = &k->dl, arm->args.v = &v->dl, arm->args.out = &arm->out.dl;
    arm->workspace_bytes = heed_attention_plan_workspace(arm->plan);
    if (posix_memalign(&arm->workspace, 64, arm->workspace_bytes + 64)) fail("no memory");
    memset(arm->workspace, 0, arm->workspace_bytes);
    arm->trace.struct_size = sizeof arm->trace;
    arm->times = calloc((size_t) settings[PAIRS].value, sizeof *arm->times);
    if (!arm->times) fail("no memory");
}

static double run_arm(struct arm *arm)
{
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    if (heed_attention_run_traced(arm->plan, &arm->args, arm->workspace, arm->workspace_bytes, &arm->trace) != HEED_OK)
        fail(heed_last_message());
    clock_gettime(CLOCK_MONOTONIC, &b);
    return (double) (b.tv_sec - a.tv_sec) * 1e6 + (double) (b.tv_nsec - a.tv_nsec) * 1e-3;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

static double median(double *x, long n)
{
    qsort(x, (size_t) n, sizeof *x, by_size);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) read_setting(argv[i]);
    const long pairs = settings[PAIRS].value;
    if (pairs < 1) fail("pairs must be 1 or more");
    heed_context_desc cd;
    heed_context *ctx;
    heed_context_desc_init(&cd);
    cd.n_threads = (int) settings[THREADS].value;
    if (heed_context_create(&ctx, &cd) != HEED_OK) fail(heed_last_message());

    struct tensor q, k, v;
    make_tensor(&q, settings[HEADS_Q].value, settings[LEN_Q].value);
    make_tensor(&k, settings[HEADS_KV].value, settings[LEN_K].value);
    make_tensor(&v, settings[HEADS_KV].value, settings[LEN_K].value);
    struct arm arms[2];
    for (int i = 0; i < 2; i++) make_arm(&arms[i], ctx, arm_names[i], &q, &k, &v);

    for (int warm = 0; warm < 20; warm++) run_arm(&arms[0]), run_arm(&arms[1]);
    for (long n = 0; n < pairs; n++) { /* the order changes from pair to pair */
        int first = n & 1;
        arms[first].times[n] = run_arm(&arms[first]);
        arms[!first].times[n] = run_arm(&arms[!first]);
    }
    double most = 0;
    for (size_t i = 0; i < arms[0].out.count; i++) {
        double difference = fabs(element(&arms[0].out, i) - element(&arms[1].out, i));
        if (!(difference <= most)) most = difference;
    }
    double a = median(arms[0].times, pairs), b = median(arms[1].times, pairs);
    printf("%s %.1f us (best %.1f), %s %.1f us (best %.1f): medians of %ld in turn, %d threads; ratio %.3f; largest difference "
           "%.3g\n",
           arms[0].trace.kernel, a, arms[0].times[0], arms[1].trace.kernel, b, arms[1].times[0], pairs, heed_context_threads(ctx),
           b / a, most);
    for (int i = 0; i < 2; i++) {
        heed_attention_plan_destroy(arms[i].plan);
        free(arms[i].workspace), free(arms[i].out.dl.data), free(arms[i].times);
    }
    free(q.dl.data), free(k.dl.data), free(v.dl.data);
    heed_context_destroy(ctx);
    return 0;
}
