/* Nodes that hand on their input unchanged: one function a kind, listed in a table. */
#include "base/half.h"
#include "rewrite/fold.h"

#include <string.h>

typedef heed_value *identity_fn(const heed_node *node);

static heed_value *input(const heed_node *node, int i)
{
    return i < node->n_inputs ? node->inputs[i] : NULL;
}

static int same_dims(const heed_fact *a, const heed_fact *b)
{
    if (a->rank < 0 || a->rank != b->rank) return 0;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i] || a->dims[i] == INT64_MIN) return 0;
    return 1;
}

/* Output 0 has the type and, proven, the shape of input i. */
static int keeps_shape(const heed_node *node, int i)
{
    const heed_value *in = input(node, i), *out = node->outputs[0];
    return in && out && in->fact.dtype != HEED_DTYPE_NONE && in->fact.dtype == out->fact.dtype &&
           same_dims(&in->fact, &out->fact);
}

/* Every element of the constant has these bits (for a float: as f32; f64 is left alone). */
static int all_are(const heed_value *value, float number)
{
    if (!heed_value_is_constant(value)) return 0;
    const heed_tensor *t = value->fact.value;
    int64_t n = heed_tensor_count(t);
    uint32_t bits = heed_bits_of_f32(number);
    for (int64_t i = 0; i < n; i++) {
        switch (t->dtype) {
        case HEED_F32:
            if (heed_bits_of_f32(((const float *) t->data)[i]) != bits) return 0;
            break;
        case HEED_F16:
            if (heed_bits_of_f32(heed_f32_from_f16(((const uint16_t *) t->data)[i])) != bits) return 0;
            break;
        case HEED_BF16:
            if (heed_bits_of_f32(heed_f32_from_bf16(((const uint16_t *) t->data)[i])) != bits) return 0;
            break;
        case HEED_F64: return 0;
        default:
            if (heed_tensor_int(t, i) != (int64_t) number) return 0;
        }
    }
    return n > 0;
}

static heed_value *always(const heed_node *node)
{
    return input(node, 0);
}

static heed_value *single_input(const heed_node *node)
{
    return node->n_inputs == 1 ? input(node, 0) : NULL;
}

static heed_value *single_output(const heed_node *node)
{
    return node->n_outputs == 1 && keeps_shape(node, 0) ? input(node, 0) : NULL;
}

static heed_value *same_shape(const heed_node *node)
{
    return keeps_shape(node, 0) ? input(node, 0) : NULL;
}

static heed_value *same_type(const heed_node *node)
{
    const heed_value *in = input(node, 0), *out = node->outputs[0];
    return in && in->fact.dtype != HEED_DTYPE_NONE && in->fact.dtype == out->fact.dtype ? input(node, 0) : NULL;
}

/* In inference, with the mask unwanted. */
static heed_value *dropout(const heed_node *node)
{
    if (node->n_outputs > 1 && node->outputs[1]) return NULL;
    const heed_value *training = input(node, 2);
    return !training || all_are(training, 0.0f) ? input(node, 0) : NULL;
}

static heed_value *transpose(const heed_node *node)
{
    const heed_value *in = input(node, 0);
    if (!in || in->fact.rank < 0) return NULL;
    if (in->fact.rank <= 1) return input(node, 0);
    const heed_attr *perm = heed_node_attr(node, "perm");
    if (!perm || perm->n != in->fact.rank) return NULL;
    for (int i = 0; i < in->fact.rank; i++)
        if (perm->ints[i] != i) return NULL;
    return input(node, 0);
}

/* Equal sizes in and out with steps of 1 leave nothing cut off. */
static heed_value *slice(const heed_node *node)
{
    const heed_value *steps = input(node, 4);
    return keeps_shape(node, 0) && (!steps || all_are(steps, 1.0f)) ? input(node, 0) : NULL;
}

/* x op c or, if it may be turned round, c op x. */
static heed_value *neutral(const heed_node *node, float number, int commutes)
{
    if (keeps_shape(node, 0) && all_are(input(node, 1), number)) return input(node, 0);
    if (commutes && keeps_shape(node, 1) && all_are(input(node, 0), number)) return input(node, 1);
    return NULL;
}

static heed_value *mul(const heed_node *node)
{
    return neutral(node, 1.0f, 1);
}

static heed_value *div_by(const heed_node *node)
{
    return neutral(node, 1.0f, 0);
}

/* -0 + 0 is 0, but x + -0 is always x. An integer has one zero only. */
static heed_value *add(const heed_node *node)
{
    const heed_value *in = input(node, 0);
    return neutral(node, in && heed_dtype_is_float(in->fact.dtype) ? -0.0f : 0.0f, 1);
}

static heed_value *sub(const heed_node *node)
{
    return neutral(node, 0.0f, 0);
}

static heed_value *where(const heed_node *node)
{
    for (int i = 1; i <= 2; i++)
        if (all_are(input(node, 0), i == 1 ? 1.0f : 0.0f) && keeps_shape(node, i)) return input(node, i);
    return NULL;
}

static const struct {
    const char *op;
    identity_fn *find;
} identities[] = {
    { "Identity", always },
    { "Dropout", dropout },
    { "Cast", same_type },
    { "CastLike", same_type },
    { "Reshape", same_shape },
    { "Expand", same_shape },
    { "Squeeze", same_shape },
    { "Unsqueeze", same_shape },
    { "Flatten", same_shape },
    { "Tile", same_shape },
    { "Transpose", transpose },
    { "Slice", slice },
    { "Concat", single_input },
    { "Sum", single_input },
    { "Max", single_input },
    { "Min", single_input },
    { "Mean", single_input },
    { "Split", single_output },
    { "Mul", mul },
    { "Div", div_by },
    { "Add", add },
    { "Sub", sub },
    { "Where", where },
};

heed_value *heed_fold_identity(const heed_node *node)
{
    if (strcmp(node->domain, HEED_DOMAIN_ONNX) != 0 || node->n_outputs < 1 || !node->outputs[0]) return NULL;
    for (size_t i = 0; i < sizeof identities / sizeof *identities; i++)
        if (strcmp(identities[i].op, node->op) == 0) return identities[i].find(node);
    return NULL;
}
