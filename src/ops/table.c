/* THE list of operators: one array a file. Looked up by domain, name and opset version through a hash table made once. */
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "ops/op.h"

/* clang-format off */
#define HEED_OP_ARRAYS(X) \
    X(activation) \
    X(arith) \
    X(attention) \
    X(cast) \
    X(channel_norm) \
    X(compare) \
    X(contrib_attention) \
    X(control) \
    X(conv) \
    X(depth) \
    X(einsum) \
    X(fill) \
    X(gather) \
    X(gelu) \
    X(group_query) \
    X(join) \
    X(matmul) \
    X(move) \
    X(nbits) \
    X(norm) \
    X(onnx_attention) \
    X(pick) \
    X(pool) \
    X(quantize) \
    X(reduce) \
    X(rotary) \
    X(scatter) \
    X(select) \
    X(slice) \
    X(softmax) \
    X(unary)
/* clang-format on */

#define DECLARE(name) extern const heed_op heed_ops_##name[];
HEED_OP_ARRAYS(DECLARE)
#undef DECLARE

#define LIST(name) heed_ops_##name,
static const heed_op *const arrays[] = { HEED_OP_ARRAYS(LIST) };
#undef LIST

#define SLOTS 4096 /* a power of two, far more than there are operators */

static const heed_op *slots[SLOTS];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static uint32_t hash(const char *domain, const char *name)
{
    uint32_t h = 2166136261u;
    for (; *domain; domain++) h = (h ^ (unsigned char) *domain) * 16777619u;
    h = (h ^ ':') * 16777619u;
    for (; *name; name++) h = (h ^ (unsigned char) *name) * 16777619u;
    return (h ^ h >> 15) % SLOTS;
}

/* Entries of one operator, all versions, lie in the same run of filled slots. */
static void fill(void)
{
    int left = SLOTS - 1; /* one slot stays empty: a search ends there */
    for (size_t a = 0; a < sizeof arrays / sizeof *arrays; a++) {
        for (const heed_op *op = arrays[a]; op->name && left > 0; op++, left--) {
            uint32_t at = hash(op->domain, op->name);
            while (slots[at]) at = (at + 1) % SLOTS;
            slots[at] = op;
        }
    }
}

/* The newest entry not newer than `version`; *oldest is the version from which on there is one, 0 if the name is not known. */
static const heed_op *find(const char *domain, const char *name, int version, int *oldest)
{
    pthread_once(&once, fill);
    const heed_op *best = NULL;
    *oldest = 0;
    for (uint32_t at = hash(domain, name); slots[at]; at = (at + 1) % SLOTS) {
        const heed_op *op = slots[at];
        if (strcmp(op->name, name) != 0 || strcmp(op->domain, domain) != 0) continue;
        if (!*oldest || op->since < *oldest) *oldest = op->since;
        if (op->since <= version && (!best || op->since > best->since)) best = op;
    }
    return best;
}

const heed_op *heed_op_find(const char *domain, const char *name, int version)
{
    int oldest;
    return find(domain, name, version, &oldest);
}

heed_status heed_op_missing(const char *domain, const char *name, int version)
{
    int oldest;
    find(domain, name, version, &oldest);
    const char *dot = *domain ? "." : "";
    if (!oldest) return heed_fail(HEED_ERR_UNSUPPORTED, "operator '%s%s%s' is not known", domain, dot, name);
    return heed_fail(HEED_ERR_UNSUPPORTED, "operator '%s%s%s' of opset %d is older than opset %d, the first one known", domain,
                     dot, name, version, oldest);
}
