/* Validation: nothing past this file sees a bad size, type, pointer or stride. A message names the argument, what it was
 * and what it should be. */
#include "attention/problem.h"

#include <math.h>
#include <string.h>

#include "attention/overlap.h"
#include "base/context.h"
#include "base/tensor.h"

#define HEAD_DIM_MAX 1024

/* For positions: int64 offsets and windows of any value cannot overflow in it. */
__extension__ typedef __int128 wide;

void heed_attention_desc_init(heed_attention_desc *desc)
{
    *desc = (heed_attention_desc){ .struct_size = sizeof *desc,
                                   .dtype = { .code = kDLFloat, .bits = 32, .lanes = 1 },
                                   .max_batch = 1,
                                   .heads_q = 1,
                                   .heads_kv = 1,
                                   .max_len_q = 1,
                                   .max_len_k = 1,
                                   .head_dim = 64,
                                   .scale = NAN,
                                   .offset_mode = HEED_OFFSET_BOTTOM_RIGHT,
                                   .window_left = HEED_WINDOW_UNBOUNDED,
                                   .window_right = HEED_WINDOW_UNBOUNDED };
}

void heed_attention_desc_set_causal(heed_attention_desc *desc, heed_offset_mode mode)
{
    desc->window_right = 0;
    desc->offset_mode = mode;
}

void heed_attention_args_init(heed_attention_args *args)
{
    *args = (heed_attention_args){ .struct_size = sizeof *args };
}

/* Copy what the caller's version of a struct has over the defaults. */
static heed_status read_struct(void *full, size_t full_size, const void *given, const char *name, const char *init)
{
    if (!given) return heed_fail(HEED_ERR_ARGUMENT, "%s: is NULL; start from %s()", name, init);
    size_t size;
    memcpy(&size, given, sizeof size);
    if (size < sizeof size || size > 4096)
        return heed_fail(HEED_ERR_ARGUMENT, "%s: struct_size is %zu; start from %s()", name, size, init);
    memcpy(full, given, size < full_size ? size : full_size);
    return HEED_OK;
}

void heed_copy_struct(void *to, const void *from, size_t from_size)
{
    size_t size;
    memcpy(&size, to, sizeof size);
    memcpy(to, from, size < from_size ? size : from_size);
}

static heed_status check_ranges(const heed_attention_desc *d)
{
    const struct {
        const char *name;
        int64_t value, least, most;
    } fields[] = {
        { "max_batch", d->max_batch, 0, PTRDIFF_MAX },
        { "heads_q", d->heads_q, 1, PTRDIFF_MAX },
        { "heads_kv", d->heads_kv, 1, PTRDIFF_MAX },
        { "max_len_q", d->max_len_q, 0, PTRDIFF_MAX },
        { "max_len_k", d->max_len_k, 0, PTRDIFF_MAX },
        { "head_dim", d->head_dim, 1, HEAD_DIM_MAX },
        { "head_dim_v", d->head_dim_v, 0, HEAD_DIM_MAX },
        { "mask", d->mask, HEED_MASK_NONE, HEED_MASK_TYPE_Q },
        { "offset_mode", d->offset_mode, HEED_OFFSET_TOP_LEFT, HEED_OFFSET_PER_BATCH },
        { "window_left", d->window_left, -1, INT64_MAX },
        { "window_right", d->window_right, -1, INT64_MAX },
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (fields[i].value < fields[i].least || fields[i].value > fields[i].most)
            return heed_fail(HEED_ERR_ARGUMENT, "%s: is %lld, expected %lld to %lld", fields[i].name, (long long) fields[i].value,
                             (long long) fields[i].least, (long long) fields[i].most);
    if (d->heads_q % d->heads_kv != 0)
        return heed_fail(HEED_ERR_ARGUMENT, "heads_q: is %lld, expected a multiple of heads_kv, which is %lld",
                         (long long) d->heads_q, (long long) d->heads_kv);
    if (isinf(d->scale))
        return heed_fail(HEED_ERR_ARGUMENT, "scale: is %g, expected a finite value, or NaN for 1/sqrt(head_dim)",
                         (double) d->scale);
    if (!isfinite(d->softcap) || d->softcap < 0)
        return heed_fail(HEED_ERR_ARGUMENT, "softcap: is %g, expected 0 (off) or a finite value above", (double) d->softcap);
    return HEED_OK;
}

/* Every tensor of the largest run must be countable in bytes, so that later products need no checks. 8 bytes an element,
 * because the reference works in double. */
static heed_status check_sizes(const heed_attention_class *c)
{
    const int wider = c->head_dim > c->head_dim_v ? c->head_dim : c->head_dim_v;
    const struct {
        const char *names;
        int64_t heads, len;
    } tensors[] = {
        { "max_batch * heads_q * max_len_q", c->heads_q, c->max_len_q },
        { "max_batch * heads_kv * max_len_k", c->heads_kv, c->max_len_k },
    };
    for (size_t i = 0; i < 2; i++) {
        size_t batch = c->max_batch ? (size_t) c->max_batch : 1, len = tensors[i].len ? (size_t) tensors[i].len : 1;
        size_t bytes = heed_size_mul(heed_size_mul(batch, (size_t) tensors[i].heads), heed_size_mul(len, (size_t) wider * 8));
        if (bytes > PTRDIFF_MAX)
            return heed_fail(HEED_ERR_ARGUMENT, "%s * head dimension: %lld * %lld * %lld * %d elements overflow",
                             tensors[i].names, (long long) c->max_batch, (long long) tensors[i].heads, (long long) tensors[i].len,
                             wider);
    }
    return HEED_OK;
}

static heed_tile_mask tile_mask(heed_mask_kind kind, heed_dtype dtype)
{
    switch (kind) {
    case HEED_MASK_BOOL: return HEED_TILE_MASK_BOOL;
    case HEED_MASK_F32: return HEED_TILE_MASK_F32;
    case HEED_MASK_TYPE_Q: return dtype == HEED_F32 ? HEED_TILE_MASK_F32 : HEED_TILE_MASK_TYPE;
    case HEED_MASK_NONE: break;
    }
    return HEED_TILE_MASK_NONE;
}

heed_status heed_attention_class_init(heed_attention_class *c, const char **kernel, const heed_attention_desc *desc)
{
    heed_attention_desc d;
    heed_attention_desc_init(&d);
    HEED_TRY(read_struct(&d, sizeof d, desc, "desc", "heed_attention_desc_init"));
    heed_dtype dtype = heed_dtype_from_dl(d.dtype);
    if (dtype != HEED_F32 && dtype != HEED_F16 && dtype != HEED_BF16)
        return heed_fail(HEED_ERR_ARGUMENT, "dtype: is %s (code %d, %d bits, %d lanes), expected f32, f16 or bf16",
                         heed_dtype_name(dtype), d.dtype.code, d.dtype.bits, d.dtype.lanes);
    HEED_TRY(check_ranges(&d));
    *kernel = d.kernel;
    *c = (heed_attention_class){ .dtype = dtype,
                                 .max_batch = d.max_batch,
                                 .heads_q = d.heads_q,
                                 .heads_kv = d.heads_kv,
                                 .max_len_q = d.max_len_q,
                                 .max_len_k = d.max_len_k,
                                 .head_dim = (int) d.head_dim,
                                 .head_dim_v = (int) (d.head_dim_v ? d.head_dim_v : d.head_dim),
                                 .scale = isnan(d.scale) ? (float) (1 / sqrt((double) d.head_dim)) : d.scale,
                                 .softcap = d.softcap,
                                 .mask = tile_mask(d.mask, dtype),
                                 .offset_mode = d.offset_mode,
                                 .window_left = d.window_left,
                                 .window_right = d.window_right,
                                 .has_sinks = d.has_sinks != 0,
                                 .has_key_lengths = d.has_key_lengths != 0,
                                 .want_lse = d.want_lse != 0,
                                 .force_fused = d.force_fused != 0 };
    return check_sizes(c);
}

/* A dimension of a tensor: what it is called and what it must be (-1: free up to `most`). */
struct dim_rule {
    const char *name;
    int64_t size, most;
};
typedef const struct dim_rule dim_rules[];

static struct dim_rule exactly(const char *name, int64_t size)
{
    return (struct dim_rule){ name, size, size };
}

static struct dim_rule up_to(const char *name, int64_t most)
{
    return (struct dim_rule){ name, -1, most };
}

static heed_status take_tensor(heed_tensor *t, const DLTensor *dl, const char *name, heed_dtype dtype)
{
    HEED_TRY(heed_tensor_from_dl(t, dl, name));
    if (dl->device.device_type != kDLCPU)
        return heed_fail(HEED_ERR_ARGUMENT, "%s: device type is %d, expected %d (CPU)", name, (int) dl->device.device_type,
                         (int) kDLCPU);
    if (t->dtype != dtype)
        return heed_fail(HEED_ERR_ARGUMENT, "%s: type is %s, expected %s", name, heed_dtype_name(t->dtype),
                         heed_dtype_name(dtype));
    return HEED_OK;
}

static heed_status check_dims(const heed_tensor *t, const char *name, const struct dim_rule *rules, int rank)
{
    if (t->rank != rank) {
        return heed_fail(HEED_ERR_ARGUMENT, "%s: rank is %d, expected %d (%s, %s, %s%s%s)", name, t->rank, rank, rules[0].name,
                         rules[1].name, rules[2].name, rank > 3 ? ", " : "", rank > 3 ? rules[3].name : "");
    }
    for (int i = 0; i < rank; i++) {
        if (rules[i].size >= 0 && t->dims[i] != rules[i].size)
            return heed_fail(HEED_ERR_ARGUMENT, "%s: dimension %d (%s) is %lld, expected %lld", name, i, rules[i].name,
                             (long long) t->dims[i], (long long) rules[i].size);
        if (rules[i].size < 0 && t->dims[i] > rules[i].most)
            return heed_fail(HEED_ERR_ARGUMENT, "%s: dimension %d (%s) is %lld, the plan was made for at most %lld", name, i,
                             rules[i].name, (long long) t->dims[i], (long long) rules[i].most);
    }
    return HEED_OK;
}

static heed_status take_4d(heed_tensor *t, const DLTensor *dl, const char *name, heed_dtype dtype, const struct dim_rule *rules)
{
    HEED_TRY(take_tensor(t, dl, name, dtype));
    return check_dims(t, name, rules, 4);
}

static heed_array array_of(const heed_tensor *t)
{
    heed_array a = { .data = t->data };
    if (!a.data) return a; /* no elements: no addresses to compute */
    for (int i = 0; i < t->rank; i++) a.strides[i] = t->strides[i];
    return a;
}

/* Right-aligned broadcasting to [batch, heads_q, len_q, len_k]. */
static heed_status take_mask(heed_tensor *t, heed_array *array, const DLTensor *dl, const heed_attention_problem *p)
{
    const heed_attention_class *c = p->cls;
    if (c->mask == HEED_TILE_MASK_NONE) {
        if (dl) return heed_fail(HEED_ERR_ARGUMENT, "mask: is given, but the plan was made without one");
        return HEED_OK;
    }
    heed_dtype dtype = c->mask == HEED_TILE_MASK_BOOL ? HEED_BOOL : c->mask == HEED_TILE_MASK_F32 ? HEED_F32 : c->dtype;
    if (dtype == HEED_BOOL && dl && heed_dtype_from_dl(dl->dtype) == HEED_U8) dtype = HEED_U8;
    HEED_TRY(take_tensor(t, dl, "mask", dtype));
    if (t->rank > 4)
        return heed_fail(HEED_ERR_ARGUMENT, "mask: rank is %d, expected at most 4 (batch, heads_q, len_q, len_k)", t->rank);
    static const char *const names[4] = { "batch", "heads_q", "len_q", "len_k" };
    const int64_t full[4] = { p->batch, c->heads_q, p->len_q, p->len_k };
    array->data = t->data;
    for (int i = 0; i < t->rank; i++) {
        int at = 4 - t->rank + i;
        if (t->dims[i] != 1 && t->dims[i] != full[at])
            return heed_fail(HEED_ERR_ARGUMENT, "mask: dimension %d (%s) is %lld, expected 1 or %lld", i, names[at],
                             (long long) t->dims[i], (long long) full[at]);
        array->strides[at] = t->dims[i] == 1 ? 0 : t->strides[i];
    }
    return HEED_OK;
}

/* An optional plain array of the arguments: there where the plan has it, and only there. */
static heed_status check_vector(const char *name, const void *data, size_t size, int wanted, int64_t n)
{
    if (!wanted && data) return heed_fail(HEED_ERR_ARGUMENT, "%s: is given, but the plan was made without it", name);
    if (wanted && n > 0 && !data)
        return heed_fail(HEED_ERR_ARGUMENT, "%s: is NULL, expected an array of %lld", name, (long long) n);
    if ((uintptr_t) data % size)
        return heed_fail(HEED_ERR_ARGUMENT, "%s: is not aligned to its elements of %zu bytes", name, size);
    return HEED_OK;
}

static heed_status take_vectors(heed_attention_problem *p, const heed_attention_args *a)
{
    const heed_attention_class *c = p->cls;
    HEED_TRY(check_vector("sinks", a->sinks, sizeof *a->sinks, c->has_sinks, c->heads_q));
    HEED_TRY(check_vector("key_lengths", a->key_lengths, sizeof *a->key_lengths, c->has_key_lengths, p->batch));
    HEED_TRY(check_vector("offsets", a->offsets, sizeof *a->offsets, c->offset_mode == HEED_OFFSET_PER_BATCH, p->batch));
    for (int64_t b = 0; c->has_key_lengths && b < p->batch; b++)
        if (a->key_lengths[b] < 0 || a->key_lengths[b] > p->len_k)
            return heed_fail(HEED_ERR_ARGUMENT, "key_lengths: element %lld is %lld, expected 0 to %lld (len_k)", (long long) b,
                             (long long) a->key_lengths[b], (long long) p->len_k);
    p->sinks = a->sinks, p->key_lengths = a->key_lengths, p->offsets = a->offsets, p->offset = a->offset;
    return HEED_OK;
}

/* A plain array as a tensor without a type of its own, for the overlap test. */
static heed_tensor vector_tensor(const void *data, heed_dtype dtype, int64_t n)
{
    heed_tensor t = heed_tensor_make(dtype, 1, &(int64_t){ data ? n : 0 });
    t.data = (void *) (uintptr_t) data;
    return t;
}

struct named_tensor {
    const char *name;
    heed_tensor tensor;
};

static heed_status check_output(const struct named_tensor *out, const struct named_tensor *others, int n)
{
    if (heed_tensor_overlaps_itself(&out->tensor))
        return heed_fail(HEED_ERR_ARGUMENT, "%s: its strides place several elements at one address", out->name);
    for (int i = 0; i < n; i++)
        if (heed_tensors_overlap(&out->tensor, &others[i].tensor))
            return heed_fail(HEED_ERR_ARGUMENT, "%s: overlaps %s", out->name, others[i].name);
    return HEED_OK;
}

heed_status heed_attention_problem_init(heed_attention_problem *p, const heed_attention_class *c, const heed_attention_args *args)
{
    heed_attention_args a;
    heed_attention_args_init(&a);
    HEED_TRY(read_struct(&a, sizeof a, args, "args", "heed_attention_args_init"));
    *p = (heed_attention_problem){ .cls = c };
    heed_tensor q, k, v, out, mask = { .rank = 0 }, lse = { .rank = 0 };

    HEED_TRY(take_4d(&q, a.q, "q", c->dtype,
                     (dim_rules){ up_to("batch", c->max_batch), exactly("heads_q", c->heads_q), up_to("len_q", c->max_len_q),
                                  exactly("head_dim", c->head_dim) }));
    p->batch = q.dims[0], p->len_q = q.dims[2];
    const struct dim_rule batch = exactly("batch", p->batch), heads_q = exactly("heads_q", c->heads_q),
                          heads_kv = exactly("heads_kv", c->heads_kv);
    const struct dim_rule len_q = exactly("len_q", p->len_q), head_dim_v = exactly("head_dim_v", c->head_dim_v);
    HEED_TRY(take_4d(&k, a.k, "k", c->dtype,
                     (dim_rules){ batch, heads_kv, up_to("len_k", c->max_len_k), exactly("head_dim", c->head_dim) }));
    p->len_k = k.dims[2];
    HEED_TRY(take_4d(&v, a.v, "v", c->dtype, (dim_rules){ batch, heads_kv, exactly("len_k", p->len_k), head_dim_v }));
    HEED_TRY(take_mask(&mask, &p->mask, a.mask, p));
    HEED_TRY(take_vectors(p, &a));
    HEED_TRY(take_4d(&out, a.out, "out", c->dtype, (dim_rules){ batch, heads_q, len_q, head_dim_v }));
    if (!c->want_lse && a.lse) return heed_fail(HEED_ERR_ARGUMENT, "lse: is given, but the plan was made without it");
    if (c->want_lse) {
        HEED_TRY(take_tensor(&lse, a.lse, "lse", HEED_F32));
        HEED_TRY(check_dims(&lse, "lse", (dim_rules){ batch, heads_q, len_q }, 3));
    }

    const struct named_tensor all[] = { { "q", q },
                                        { "k", k },
                                        { "v", v },
                                        { "mask", mask },
                                        { "sinks", vector_tensor(a.sinks, HEED_F32, c->heads_q) },
                                        { "key_lengths", vector_tensor(a.key_lengths, HEED_I64, p->batch) },
                                        { "offsets", vector_tensor(a.offsets, HEED_I64, p->batch) },
                                        { "out", out } };
    const int n_inputs = sizeof all / sizeof *all - 1;
    HEED_TRY(check_output(&all[n_inputs], all, n_inputs));
    if (c->want_lse) HEED_TRY(check_output(&(struct named_tensor){ "lse", lse }, all, n_inputs + 1));

    p->q = array_of(&q), p->k = array_of(&k), p->v = array_of(&v), p->out = array_of(&out), p->lse = array_of(&lse);
    return HEED_OK;
}

static int64_t clamp_key(wide key, int64_t length)
{
    return key < 0 ? 0 : key > length ? length : (int64_t) key;
}

void heed_visible_keys(const heed_attention_problem *p, int64_t b, int64_t i, int64_t *lo, int64_t *hi)
{
    const heed_attention_class *c = p->cls;
    int64_t length = p->key_lengths ? p->key_lengths[b] : p->len_k, offset = 0;
    switch (c->offset_mode) {
    case HEED_OFFSET_TOP_LEFT: break;
    case HEED_OFFSET_BOTTOM_RIGHT: offset = length - p->len_q; break;
    case HEED_OFFSET_VALUE: offset = p->offset; break;
    case HEED_OFFSET_PER_BATCH: offset = p->offsets[b]; break;
    }
    wide at = (wide) i + offset;
    *lo = c->window_left < 0 ? 0 : clamp_key(at - c->window_left, length);
    *hi = c->window_right < 0 ? length : clamp_key(at + c->window_right + 1, length);
}

void heed_visible_span(const heed_attention_problem *p, int64_t b, int64_t *lo, int64_t *hi)
{
    int64_t ignored;
    heed_visible_keys(p, b, 0, lo, &ignored);
    heed_visible_keys(p, b, p->len_q - 1, &ignored, hi);
    if (*hi < *lo) *hi = *lo;
}

int64_t heed_longest_span(const heed_attention_problem *p)
{
    int64_t longest = 0;
    for (int64_t b = 0; b < p->batch; b++) {
        int64_t lo, hi;
        heed_visible_span(p, b, &lo, &hi);
        if (hi - lo > longest) longest = hi - lo;
    }
    return longest;
}
