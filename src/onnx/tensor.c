/* Element types, tensors and declared types. */
#include <inttypes.h>
#include <string.h>

#include "graph/dims.h"
#include "onnx/importer.h"

/* Which list of a TensorProto holds elements of a type when they are not raw. */
enum list { NONE, FLOATS, DOUBLES, INT32S, INT64S, UINT64S };

static const struct {
    const char *name;
    heed_dtype dtype;
    enum list list;
} types[] = {
    [1] = { "float", HEED_F32, FLOATS },
    [2] = { "uint8", HEED_U8, INT32S },
    [3] = { "int8", HEED_I8, INT32S },
    [4] = { "uint16", HEED_U16, INT32S },
    [5] = { "int16", HEED_I16, INT32S },
    [6] = { "int32", HEED_I32, INT32S },
    [7] = { "int64", HEED_I64, INT64S },
    [8] = { "string", HEED_DTYPE_NONE, NONE },
    [9] = { "bool", HEED_BOOL, INT32S },
    [10] = { "float16", HEED_F16, INT32S },
    [11] = { "double", HEED_F64, DOUBLES },
    [12] = { "uint32", HEED_U32, UINT64S },
    [13] = { "uint64", HEED_U64, UINT64S },
    [14] = { "complex64", HEED_DTYPE_NONE, NONE },
    [15] = { "complex128", HEED_DTYPE_NONE, NONE },
    [16] = { "bfloat16", HEED_BF16, INT32S },
    [17] = { "float8e4m3fn", HEED_DTYPE_NONE, NONE },
    [18] = { "float8e4m3fnuz", HEED_DTYPE_NONE, NONE },
    [19] = { "float8e5m2", HEED_DTYPE_NONE, NONE },
    [20] = { "float8e5m2fnuz", HEED_DTYPE_NONE, NONE },
    [21] = { "uint4", HEED_DTYPE_NONE, NONE },
    [22] = { "int4", HEED_DTYPE_NONE, NONE },
    [23] = { "float4e2m1", HEED_DTYPE_NONE, NONE },
    [24] = { "float8e8m0", HEED_DTYPE_NONE, NONE },
    [25] = { "uint2", HEED_DTYPE_NONE, NONE },
    [26] = { "int2", HEED_DTYPE_NONE, NONE },
};

static int is_type(int64_t code)
{
    return code > 0 && code < (int64_t) (sizeof types / sizeof *types);
}

heed_dtype heed_onnx_dtype(int64_t code)
{
    return is_type(code) ? types[code].dtype : HEED_DTYPE_NONE;
}

const char *heed_onnx_type_name(int64_t code)
{
    return is_type(code) ? types[code].name : "unknown";
}

/* ---- tensors ---- */

struct elements {
    const void *data;
    size_t n, size;
    const char *list;
};

static struct elements elements_of(const tensor_proto *proto, enum list list)
{
    switch (list) {
    case FLOATS: return (struct elements){ proto->float_data, proto->n_float_data, sizeof(float), "float_data" };
    case DOUBLES: return (struct elements){ proto->double_data, proto->n_double_data, sizeof(double), "double_data" };
    case INT64S: return (struct elements){ proto->int64_data, proto->n_int64_data, sizeof(int64_t), "int64_data" };
    case UINT64S: return (struct elements){ proto->uint64_data, proto->n_uint64_data, sizeof(uint64_t), "uint64_data" };
    default: return (struct elements){ proto->int32_data, proto->n_int32_data, sizeof(int32_t), "int32_data" };
    }
}

/* Data of the unpacked message as data of the model: large ones are kept where they are. */
static void *take(struct import *im, const void *data, size_t bytes)
{
    if (bytes >= HEED_POOL_LARGE) {
        heed_pool_keep((void *) data);
        return (void *) data;
    }
    void *copy = heed_arena_alloc(im->model->graph->arena, bytes);
    if (copy && bytes) memcpy(copy, data, bytes);
    return copy;
}

/* Elements that the list holds in a wider type. */
static void *narrow(struct import *im, const struct elements *from, heed_dtype dtype)
{
    size_t size = heed_dtype_size(dtype);
    void *data = heed_arena_alloc(im->model->graph->arena, heed_size_mul(from->n, size));
    for (size_t i = 0; data && i < from->n; i++) {
        uint64_t x = from->size == 8 ? ((const uint64_t *) from->data)[i] : (uint64_t) ((const int32_t *) from->data)[i];
        if (size == 1) ((uint8_t *) data)[i] = dtype == HEED_BOOL ? x != 0 : (uint8_t) x;
        else if (size == 2) ((uint16_t *) data)[i] = (uint16_t) x;
        else ((uint32_t *) data)[i] = (uint32_t) x;
    }
    return data;
}

static heed_status listed_data(struct import *im, const tensor_proto *proto, size_t bytes, heed_tensor *t)
{
    struct elements from = elements_of(proto, types[proto->data_type].list);
    size_t size = heed_dtype_size(t->dtype);
    if (from.n != bytes / size)
        return heed_fail(HEED_ERR_FORMAT, "%zu elements in %s, expected %zu", from.n, from.list, bytes / size);
    t->data = from.size == size ? take(im, from.data, bytes) : narrow(im, &from, t->dtype);
    return t->data ? HEED_OK : HEED_NO_MEMORY();
}

static heed_status raw_data(struct import *im, const tensor_proto *proto, size_t bytes, heed_tensor *t)
{
    if (proto->raw_data.len != bytes)
        return heed_fail(HEED_ERR_FORMAT, "%zu bytes of raw data, expected %zu", proto->raw_data.len, bytes);
    t->data = take(im, proto->raw_data.data, bytes);
    return t->data ? HEED_OK : HEED_NO_MEMORY();
}

/* The file is mapped; what cannot be used from there is copied. */
static heed_status external_data(struct import *im, const tensor_proto *proto, size_t bytes, heed_tensor *t)
{
    const void *data;
    HEED_TRY(heed_onnx_external(im, proto, bytes, &data));
    t->data = (void *) data;
    if (!bytes || ((uintptr_t) data % heed_dtype_size(t->dtype) == 0 && t->dtype != HEED_BOOL)) return HEED_OK;
    t->data = heed_arena_alloc(im->model->graph->arena, bytes);
    if (!t->data) return HEED_NO_MEMORY();
    memcpy(t->data, data, bytes);
    return HEED_OK;
}

static heed_status tensor_shape(const tensor_proto *proto, heed_tensor *t, size_t *bytes)
{
    int64_t code = proto->data_type;
    if (heed_onnx_dtype(code) == HEED_DTYPE_NONE)
        return heed_fail(HEED_ERR_UNSUPPORTED, "type %" PRId64 " (%s) is not supported", code, heed_onnx_type_name(code));
    if (proto->segment) return heed_fail(HEED_ERR_UNSUPPORTED, "is a segment of a larger one, which is not supported");
    if (proto->n_dims > HEED_RANK_MAX)
        return heed_fail(HEED_ERR_UNSUPPORTED, "rank is %zu, expected at most %d", proto->n_dims, HEED_RANK_MAX);
    for (size_t i = 0; i < proto->n_dims; i++)
        if (proto->dims[i] < 0)
            return heed_fail(HEED_ERR_FORMAT, "dimension %zu is %" PRId64 ", expected 0 or more", i, proto->dims[i]);
    *t = (heed_tensor){ .dtype = heed_onnx_dtype(code), .rank = (int) proto->n_dims };
    for (int i = 0; i < t->rank; i++) t->dims[i] = proto->dims[i];
    size_t most = heed_dtype_size(t->dtype); /* with 1 for dimensions of 0, for strides must not overflow either */
    for (int i = 0; i < t->rank; i++) most = heed_size_mul(most, t->dims[i] ? (size_t) t->dims[i] : 1);
    if (most > PTRDIFF_MAX) return heed_fail(HEED_ERR_FORMAT, "the product of its dimensions overflows");
    *bytes = heed_tensor_bytes(t);
    heed_tensor_set_dense(t);
    return HEED_OK;
}

static heed_status make_tensor(struct import *im, const tensor_proto *proto, heed_tensor *t)
{
    size_t bytes = 0;
    HEED_TRY(tensor_shape(proto, t, &bytes));
    if (proto->data_location == 1) HEED_TRY(external_data(im, proto, bytes, t));
    else if (proto->raw_data.len) HEED_TRY(raw_data(im, proto, bytes, t));
    else HEED_TRY(listed_data(im, proto, bytes, t));
    uint8_t *truth = t->data;
    for (size_t i = 0; i < bytes && t->dtype == HEED_BOOL; i++)
        if (truth[i] > 1) truth[i] = 1;
    return HEED_OK;
}

heed_status heed_onnx_tensor(struct import *im, const tensor_proto *proto, const char *name, const heed_tensor **out)
{
    void **made = heed_names_at(&im->tensors, proto);
    heed_tensor *t = made && !*made ? HEED_NEW(im->model->graph->arena, heed_tensor) : NULL;
    if (!made || (!*made && !t)) return HEED_NO_MEMORY();
    if (t) {
        heed_status status = make_tensor(im, proto, t);
        if (status) return heed_fail_prefix(status, "tensor '%.120s': ", name);
        *made = t;
    }
    *out = *made;
    return HEED_OK;
}

heed_status heed_onnx_list(struct import *im, const void *key, heed_dtype dtype, const void *data, int64_t n,
                           const heed_tensor **out)
{
    void **made = heed_names_at(&im->tensors, key);
    heed_tensor *t = made && !*made ? HEED_NEW(im->model->graph->arena, heed_tensor) : NULL;
    if (!made || (!*made && !t)) return HEED_NO_MEMORY();
    if (t) {
        *t = heed_tensor_make(dtype, n >= 0, &n);
        t->data = take(im, data, heed_tensor_bytes(t));
        if (!t->data) return HEED_NO_MEMORY();
        *made = t;
    }
    *out = *made;
    return HEED_OK;
}

/* ---- declared types ---- */

static int64_t declared_dim(heed_dims *dims, const Heed__Onnx__TensorShapeProto__Dimension *dim)
{
    if (dim->has_dim_value && dim->dim_value >= 0) return dim->dim_value;
    return dim->dim_param && *dim->dim_param ? heed_dims_named(dims, dim->dim_param) : heed_dims_fresh(dims);
}

heed_status heed_onnx_fact(struct import *im, const value_info_proto *info, heed_fact *fact)
{
    *fact = (heed_fact){ .rank = -1 };
    const Heed__Onnx__TypeProto__Tensor *type = info && info->type ? info->type->tensor_type : NULL;
    if (!type) return HEED_OK;
    fact->dtype = heed_onnx_dtype(type->elem_type);
    if (!type->shape || type->shape->n_dim > HEED_RANK_MAX) return HEED_OK;
    fact->rank = (int) type->shape->n_dim;
    for (int i = 0; i < fact->rank; i++) {
        fact->dims[i] = declared_dim(im->model->graph->dims, type->shape->dim[i]);
        if (fact->dims[i] == HEED_DIM_UNKNOWN) return HEED_NO_MEMORY();
    }
    return HEED_OK;
}

heed_status heed_onnx_check_input(const value_info_proto *info)
{
    const Heed__Onnx__TypeProto *type = info->type;
    if (!type) return HEED_OK;
    if (type->sequence_type || type->map_type || type->sparse_tensor_type || type->optional_type)
        return heed_fail(HEED_ERR_UNSUPPORTED,
                         "input '%.120s' is a sequence, map, optional or sparse tensor, which is not supported", info->name);
    if (!type->tensor_type) return HEED_OK;
    int64_t code = type->tensor_type->elem_type;
    if (code && heed_onnx_dtype(code) == HEED_DTYPE_NONE)
        return heed_fail(HEED_ERR_UNSUPPORTED, "input '%.120s': type %" PRId64 " (%s) is not supported", info->name, code,
                         heed_onnx_type_name(code));
    if (type->tensor_type->shape && type->tensor_type->shape->n_dim > HEED_RANK_MAX)
        return heed_fail(HEED_ERR_UNSUPPORTED, "input '%.120s': rank is %zu, expected at most %d", info->name,
                         type->tensor_type->shape->n_dim, HEED_RANK_MAX);
    return HEED_OK;
}
