/* Samples: arrays between guard pages, features at random, the double reference, tolerances. */
#include "case.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/half.h"
#include "unit/test.h"

static uint64_t rng_state;

void rng_start(void)
{
    const char *seed = getenv("HEED_TEST_SEED");
    rng_state = seed ? strtoull(seed, NULL, 10) : (uint64_t) time(NULL) * 1000003u + (uint64_t) getpid();
    printf("HEED_TEST_SEED=%llu\n", (unsigned long long) rng_state);
    fflush(stdout);
}

/* splitmix64 */
uint64_t rng(void)
{
    uint64_t z = rng_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

int64_t rng_below(int64_t n)
{
    return (int64_t) (rng() % (uint64_t) n);
}

double rng_normal(void)
{
    double u = ((double) (rng() >> 11) + 1) / 9007199254740993.0, w = (double) (rng() >> 11) / 9007199254740992.0;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * w);
}

static void place_strides(array *a, layout order, unsigned repeat)
{
    static const int orders[LAYOUT_COUNT][4] = { { 0, 1, 2, 3 }, { 0, 2, 1, 3 }, { 0, 1, 3, 2 }, { 0, 1, 2, 3 } };
    int64_t stride = order == LAYOUT_PADDED ? 2 : 1;
    for (int n = 3; n >= 0; n--) {
        int i = orders[order][n];
        if (i >= a->rank) continue;
        a->strides[i] = repeat >> i & 1 ? 0 : stride;
        if (a->strides[i]) stride *= a->dims[i] ? a->dims[i] : 1;
        if (order == LAYOUT_PADDED && i == a->rank - 1) stride += 5;
    }
}

void array_make(array *a, heed_dtype dtype, int rank, const int64_t *dims, layout order, unsigned repeat)
{
    *a = (array){ .dtype = dtype, .rank = rank };
    int empty = 0;
    for (int i = 0; i < rank; i++) a->dims[i] = dims[i], empty |= dims[i] == 0;
    place_strides(a, order, repeat);
    a->reach = empty ? 0 : 1;
    for (int i = 0; i < rank && !empty; i++) a->reach += (size_t) ((dims[i] - 1) * a->strides[i]);

    size_t page = (size_t) sysconf(_SC_PAGESIZE), size = heed_dtype_size(dtype), bytes = a->reach * size;
    size_t body = (bytes + page - 1) / page * page;
    a->map_bytes = body + 2 * page;
    a->map = mmap(NULL, a->map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (a->map == MAP_FAILED) fail_msg("mmap failed");
    if (body && mprotect(a->map + page, body, PROT_READ | PROT_WRITE)) fail_msg("mprotect failed");
    a->data = rng() & 1 ? a->map + page : a->map + page + body - bytes;
    array_poison(a);
    a->dl = (DLTensor){ .data = a->data,
                        .device = { kDLCPU, 0 },
                        .ndim = rank,
                        .dtype = heed_dtype_to_dl(dtype),
                        .shape = a->dims,
                        .strides = a->strides };
}

void array_free(array *a)
{
    if (a->map) munmap(a->map, a->map_bytes);
    a->map = NULL;
}

void array_poison(array *a)
{
    memset(a->data, 0xff, a->reach * heed_dtype_size(a->dtype));
}

static int64_t offset_of(const array *a, int64_t b, int64_t h, int64_t i, int64_t d)
{
    return b * a->strides[0] + h * a->strides[1] + i * a->strides[2] + d * a->strides[3];
}

double array_get(const array *a, int64_t b, int64_t h, int64_t i, int64_t d)
{
    int64_t at = offset_of(a, b, h, i, d);
    switch (a->dtype) {
    case HEED_F32: return (double) ((const float *) a->data)[at];
    case HEED_F16: return (double) heed_f32_from_f16(((const uint16_t *) a->data)[at]);
    case HEED_BF16: return (double) heed_f32_from_bf16(((const uint16_t *) a->data)[at]);
    default: return ((const uint8_t *) a->data)[at];
    }
}

void array_set(array *a, int64_t b, int64_t h, int64_t i, int64_t d, double value)
{
    int64_t at = offset_of(a, b, h, i, d);
    switch (a->dtype) {
    case HEED_F32: ((float *) a->data)[at] = (float) value; break;
    case HEED_F16: ((uint16_t *) a->data)[at] = heed_f16_from_f32((float) value); break;
    case HEED_BF16: ((uint16_t *) a->data)[at] = heed_bf16_from_f32((float) value); break;
    default: ((uint8_t *) a->data)[at] = value != 0; break;
    }
}

spec spec_random(heed_dtype dtype)
{
    static const int64_t dims[] = { 1, 8, 16, 20, 32, 40, 64 }, queries[] = { 1, 1, 2, 5, 9, 16, 17 },
                         keys[] = { 1, 3, 16, 17, 31, 48, 65 };
    int64_t heads = 1 + rng_below(3), dim = dims[rng_below(7)];
    return (spec){ .dtype = dtype,
                   .batch = 1 + rng_below(3),
                   .heads_q = heads,
                   .heads_kv = heads,
                   .len_q = queries[rng_below(7)],
                   .len_k = keys[rng_below(7)],
                   .head_dim = dim,
                   .head_dim_v = dim,
                   .scale = NAN,
                   .mask_rank = 4,
                   .offset_mode = HEED_OFFSET_BOTTOM_RIGHT,
                   .window_left = -1,
                   .window_right = -1,
                   .spread = 1 };
}

static void fill(array *a, double spread)
{
    for (int64_t b = 0; b < a->dims[0]; b++)
        for (int64_t h = 0; h < a->dims[1]; h++)
            for (int64_t i = 0; i < a->dims[2]; i++)
                for (int64_t d = 0; d < a->dims[3]; d++) array_set(a, b, h, i, d, spread * rng_normal());
}

static double random_mask_value(heed_dtype dtype, int moderate)
{
    int64_t kind = rng_below(4);
    if (dtype == HEED_BOOL) return kind != 0;
    if (kind == 0) return -INFINITY;
    if (kind == 1 && dtype != HEED_F16 && !moderate) return dtype == HEED_F32 ? -FLT_MAX : -3.3895313892515355e38;
    return rng_normal();
}

/* The mask has fewer dimensions in its DLTensor; here it keeps four, with stride 0 where it repeats. */
static void make_mask(sample *c)
{
    const spec *s = &c->s;
    heed_dtype dtype = s->mask == HEED_MASK_BOOL ? HEED_BOOL : s->mask == HEED_MASK_F32 ? HEED_F32 : s->dtype;
    int64_t dims[4] = { s->batch, s->heads_q, s->len_q, s->len_k };
    for (int i = 0; i < 4; i++)
        if (i < 4 - s->mask_rank || s->mask_repeat >> i & 1) dims[i] = 1;
    array_make(&c->mask, dtype, 4, dims, s->order, 0);
    for (int64_t b = 0; b < dims[0]; b++)
        for (int64_t h = 0; h < dims[1]; h++)
            for (int64_t i = 0; i < dims[2]; i++)
                for (int64_t j = 0; j < dims[3]; j++) array_set(&c->mask, b, h, i, j, random_mask_value(dtype, s->mask_moderate));
    for (int i = 0; i < 4; i++)
        if (dims[i] == 1) c->mask.strides[i] = 0;
    int skip = 4 - s->mask_rank;
    c->mask.dl.ndim = s->mask_rank;
    c->mask.dl.shape += skip, c->mask.dl.strides += skip;
    c->args.mask = &c->mask.dl;
}

static void make_vectors(sample *c)
{
    const spec *s = &c->s;
    size_t n = (size_t) s->batch + 1;
    c->sinks = calloc((size_t) s->heads_q, sizeof *c->sinks);
    c->key_lengths = calloc(n, sizeof *c->key_lengths);
    c->offsets = calloc(n, sizeof *c->offsets);
    for (int64_t h = 0; h < s->heads_q; h++) c->sinks[h] = h % 4 == 3 ? -INFINITY : (float) (2 * rng_normal());
    for (int64_t b = 0; b < s->batch; b++) {
        c->key_lengths[b] = rng_below(s->len_k + 1);
        c->offsets[b] = rng_below(2 * s->len_k + 3) - s->len_k - 1;
    }
    if (s->sinks) c->args.sinks = c->sinks;
    if (s->key_lengths) c->args.key_lengths = c->key_lengths;
    if (s->offset_mode == HEED_OFFSET_PER_BATCH) c->args.offsets = c->offsets;
    c->args.offset = s->offset;
}

/* Some keys and values are not numbers; key lengths, masks and windows hide them from some rows and not from others.
 * What is past the key length must not be touched at all. Never the key and the value of one place: with a score of -inf
 * from an infinity in the key the weight is 0, and what 0 times NaN gives where nothing else is visible is left open. */
static void poison(sample *c)
{
    static const double bad[] = { NAN, INFINITY, -INFINITY };
    const spec *s = &c->s;
    const int of_keys = (int) (rng() & 1);
    for (int64_t b = 0; b < s->batch; b++) {
        for (int64_t h = 0; h < s->heads_kv; h++) {
            for (int n = 0; n < 3 && s->len_k; n++) {
                if (of_keys) array_set(&c->k, b, h, rng_below(s->len_k), rng_below(s->head_dim), bad[rng_below(3)]);
                else array_set(&c->v, b, h, rng_below(s->len_k), rng_below(s->head_dim_v), bad[rng_below(3)]);
            }
            if (!s->key_lengths || s->kv_repeat) continue;
            for (int64_t j = c->key_lengths[b]; j < s->len_k; j++)
                array_set(&c->k, b, h, j, 0, NAN), array_set(&c->v, b, h, j, 0, NAN);
        }
    }
}

static heed_ref_array ref_array(const array *a)
{
    heed_ref_array r = { a->data, a->dtype, { a->strides[0], a->strides[1], a->strides[2], a->strides[3] } };
    return r;
}

void sample_refer(sample *c)
{
    const spec *s = &c->s;
    free(c->ref_out), free(c->ref_lse);
    size_t rows = (size_t) (s->batch * s->heads_q * s->len_q);
    c->ref_out = calloc(rows * (size_t) s->head_dim_v + 1, sizeof(double));
    c->ref_lse = calloc(rows + 1, sizeof(double));
    double *scratch = calloc((size_t) s->len_k + 1, sizeof(double));
    heed_ref_problem p = { .batch = s->batch,
                           .heads_q = s->heads_q,
                           .heads_kv = s->heads_kv,
                           .len_q = s->len_q,
                           .len_k = s->len_k,
                           .head_dim = s->head_dim,
                           .head_dim_v = s->head_dim_v,
                           .q = ref_array(&c->q),
                           .k = ref_array(&c->k),
                           .v = ref_array(&c->v),
                           .scale = isnan(s->scale) ? 1 / sqrt((double) s->head_dim) : (double) s->scale,
                           .softcap = (double) s->softcap,
                           .window_left = s->window_left,
                           .window_right = s->window_right,
                           .offset_mode = s->offset_mode,
                           .offset = s->offset,
                           .offsets = c->args.offsets,
                           .key_lengths = c->args.key_lengths,
                           .sinks = c->args.sinks,
                           .out = c->ref_out,
                           .lse = c->ref_lse };
    if (s->mask != HEED_MASK_NONE) p.mask = ref_array(&c->mask);
    heed_ref_attention(&p, scratch);
    free(scratch);
}

static void fill_desc(heed_attention_desc *d, const spec *s)
{
    heed_attention_desc_init(d);
    d->dtype = heed_dtype_to_dl(s->dtype);
    d->max_batch = s->batch, d->heads_q = s->heads_q, d->heads_kv = s->heads_kv;
    d->max_len_q = s->len_q, d->max_len_k = s->len_k;
    d->head_dim = s->head_dim, d->head_dim_v = s->head_dim_v;
    d->scale = s->scale, d->softcap = s->softcap, d->mask = s->mask;
    d->offset_mode = s->offset_mode, d->window_left = s->window_left, d->window_right = s->window_right;
    d->has_sinks = s->sinks, d->has_key_lengths = s->key_lengths, d->want_lse = s->lse;
}

void sample_make(sample *c, const spec *s)
{
    *c = (sample){ .s = *s };
    fill_desc(&c->desc, s);
    heed_attention_args_init(&c->args);
    array_make(&c->q, s->dtype, 4, (int64_t[]){ s->batch, s->heads_q, s->len_q, s->head_dim }, s->order, 0);
    array_make(&c->k, s->dtype, 4, (int64_t[]){ s->batch, s->heads_kv, s->len_k, s->head_dim }, s->order, s->kv_repeat);
    array_make(&c->v, s->dtype, 4, (int64_t[]){ s->batch, s->heads_kv, s->len_k, s->head_dim_v }, s->order, s->kv_repeat);
    array_make(&c->out, s->dtype, 4, (int64_t[]){ s->batch, s->heads_q, s->len_q, s->head_dim_v }, s->order, 0);
    array_make(&c->lse, HEED_F32, 3, (int64_t[]){ s->batch, s->heads_q, s->len_q }, s->order, 0);
    fill(&c->q, s->spread), fill(&c->k, 1), fill(&c->v, 1);
    if (s->mask != HEED_MASK_NONE) make_mask(c);
    make_vectors(c);
    if (s->poison) poison(c);
    c->args.q = &c->q.dl, c->args.k = &c->k.dl, c->args.v = &c->v.dl, c->args.out = &c->out.dl;
    if (s->lse) c->args.lse = &c->lse.dl;
    sample_refer(c);
}

void sample_free(sample *c)
{
    array *all[] = { &c->q, &c->k, &c->v, &c->mask, &c->out, &c->lse };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) array_free(all[i]);
    free(c->sinks), free(c->key_lengths), free(c->offsets), free(c->ref_out), free(c->ref_lse);
}

static void describe(const spec *s, char *text, size_t size)
{
    snprintf(
        text, size,
        "%s batch %lld heads %lld/%lld len %lld/%lld dim %lld/%lld scale %g softcap %g mask %d repeat %x rank %d offset mode %d "
        "(%lld) window %lld/%lld sinks %d key_lengths %d lse %d layout %d kv_repeat %x poison %d spread %g",
        heed_dtype_name(s->dtype), (long long) s->batch, (long long) s->heads_q, (long long) s->heads_kv, (long long) s->len_q,
        (long long) s->len_k, (long long) s->head_dim, (long long) s->head_dim_v, (double) s->scale, (double) s->softcap,
        (int) s->mask, s->mask_repeat, s->mask_rank, (int) s->offset_mode, (long long) s->offset, (long long) s->window_left,
        (long long) s->window_right, s->sinks, s->key_lengths, s->lse, (int) s->order, s->kv_repeat, s->poison, s->spread);
}

/* Largest finite |v| of a batch and head. */
static double largest_value(const sample *c, int64_t b, int64_t g)
{
    double most = 0;
    for (int64_t j = 0; j < c->s.len_k; j++) {
        for (int64_t d = 0; d < c->s.head_dim_v; d++) {
            double x = fabs(array_get(&c->v, b, g, j, d));
            if (isfinite(x) && x > most) most = x;
        }
    }
    return most;
}

/* f32: 1e-5. Halves: two units in the last place of the largest value. */
static double tolerance(heed_dtype dtype, double largest)
{
    if (dtype == HEED_F32) return 1e-5;
    int exponent;
    frexp(largest, &exponent); /* largest is in [2^(exponent-1), 2^exponent) */
    return 2 * ldexp(1, exponent - 1 - (dtype == HEED_F16 ? 10 : 7));
}

static int differs(double x, double ref, double allowed)
{
    if (isnan(ref)) return !isnan(x);
    if (isinf(ref)) return x != ref;
    return !(fabs(x - ref) <= allowed);
}

void sample_check(const sample *c, const char *who)
{
    const spec *s = &c->s;
    char text[512];
    const double *ref = c->ref_out, *ref_lse = c->ref_lse;
    for (int64_t b = 0; b < s->batch; b++) {
        for (int64_t h = 0; h < s->heads_q; h++) {
            double allowed = tolerance(s->dtype, largest_value(c, b, h / (s->heads_q / s->heads_kv)));
            for (int64_t i = 0; i < s->len_q; i++, ref_lse++) {
                for (int64_t d = 0; d < s->head_dim_v; d++, ref++) {
                    double x = array_get(&c->out, b, h, i, d);
                    if (!differs(x, *ref, allowed)) continue;
                    describe(s, text, sizeof text);
                    fail_msg("%s: out[%lld,%lld,%lld,%lld] is %.9g, expected %.9g within %.3g; %s", who, (long long) b,
                             (long long) h, (long long) i, (long long) d, x, *ref, allowed, text);
                }
                double lse = s->lse ? array_get(&c->lse, b, h, i, 0) : *ref_lse;
                if (!differs(lse, *ref_lse, 1e-5 * (1 + fabs(*ref_lse)))) continue;
                describe(s, text, sizeof text);
                fail_msg("%s: lse[%lld,%lld,%lld] is %.9g, expected %.9g; %s", who, (long long) b, (long long) h, (long long) i,
                         lse, *ref_lse, text);
            }
        }
    }
}

void sample_run(sample *c, heed_context *ctx, const char *kernel, heed_attention_trace *trace)
{
    heed_attention_plan *plan;
    heed_attention_trace own = { .struct_size = sizeof own };
    heed_attention_desc desc = c->desc;
    desc.kernel = kernel;
    if (heed_attention_plan_create(&plan, ctx, &desc) != HEED_OK) fail_msg("plan: %s", heed_last_message());
    array_poison(&c->out), array_poison(&c->lse);
    if (heed_attention_run_traced(plan, &c->args, NULL, 0, &own) != HEED_OK) fail_msg("run: %s", heed_last_message());
    if (kernel && *own.kernel) assert_string_equal(own.kernel, kernel);
    sample_check(c, own.kernel);
    if (trace) *trace = own;
    heed_attention_plan_destroy(plan);
}

const char *kernel_for(heed_dtype dtype, int index)
{
    heed_kernel_info info = { .struct_size = sizeof info };
    for (int i = 0; heed_kernel_info_get(i, &info); i++) {
        int takes = strcmp(info.dtype, "any") == 0 || strcmp(info.dtype, heed_dtype_name(dtype)) == 0;
        if (takes && info.runs_here && index-- == 0) return info.name;
    }
    return NULL;
}
