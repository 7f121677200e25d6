/* TensorProto through protobuf-c. Elements lie in raw_data, little-endian, or in the typed field that their type uses. */
#include "tensor.h"

#include <stdlib.h>
#include <string.h>

#include "fault.h"
#include "file.h"
#include "onnx.pb-c.h"

/* Which typed field carries a type. Half types travel as their bits; what is not here lies in int32_data. */
enum { FLOAT_DATA, INT32_DATA, INT64_DATA, DOUBLE_DATA, UINT64_DATA };
static const struct {
    const char *type;
    int field;
} carried_in[] = {
    { "f32", FLOAT_DATA }, { "f64", DOUBLE_DATA }, { "i64", INT64_DATA }, { "u32", UINT64_DATA }, { "u64", UINT64_DATA },
};

static int field_of(const heed_type *type)
{
    for (size_t i = 0; i < sizeof carried_in / sizeof carried_in[0]; i++)
        if (strcmp(type->name, carried_in[i].type) == 0) return carried_in[i].field;
    return INT32_DATA;
}

static int host_is_little(void)
{
    const uint16_t one = 1;
    return *(const unsigned char *) &one;
}

static int read_typed(heed_array *a, const Heed__Onnx__TensorProto *t)
{
    const struct {
        size_t n, size;
        const void *data;
    } fields[] = { [FLOAT_DATA] = { t->n_float_data, 4, t->float_data },
                   [INT32_DATA] = { t->n_int32_data, 4, t->int32_data },
                   [INT64_DATA] = { t->n_int64_data, 8, t->int64_data },
                   [DOUBLE_DATA] = { t->n_double_data, 8, t->double_data },
                   [UINT64_DATA] = { t->n_uint64_data, 8, t->uint64_data } },
      *from = &fields[field_of(a->type)];
    size_t n = (size_t) heed_array_count(a), bytes = a->type->bits / 8u;
    if (from->n != n) return heed_fault("holds %zu elements, its shape has %zu", from->n, n);
    size_t low = host_is_little() ? 0 : from->size - bytes; /* a narrow type is the low end of the word that carries it */
    for (size_t i = 0; i < n; i++) memcpy((char *) a->data + i * bytes, (const char *) from->data + i * from->size + low, bytes);
    return 0;
}

static int read_raw(heed_array *a, const ProtobufCBinaryData *raw)
{
    size_t bytes = heed_array_bytes(a);
    if (raw->len != bytes) return heed_fault("holds %zu bytes, its type and shape need %zu", raw->len, bytes);
    if (bytes) memcpy(a->data, raw->data, bytes);
    if (host_is_little()) return 0;
    size_t size = a->type->bits / 8u;
    for (unsigned char *p = a->data, *end = p + bytes; p < end; p += size)
        for (size_t i = 0; i < size / 2; i++) {
            unsigned char byte = p[i];
            p[i] = p[size - 1 - i], p[size - 1 - i] = byte;
        }
    return 0;
}

static int read_tensor(heed_array *out, const Heed__Onnx__TensorProto *t)
{
    const heed_type *type = heed_type_from_onnx(t->data_type);
    if (!type) return heed_fault("element type is %d, which is not supported", (int) t->data_type);
    if (t->data_location || t->segment) return heed_fault("external or segmented data is not supported in test data");
    if (t->n_dims > HEED_MAX_RANK) return heed_fault("has %zu dimensions, at most %d are supported", t->n_dims, HEED_MAX_RANK);
    for (size_t i = 0; i < t->n_dims; i++)
        if (t->dims[i] < 0) return heed_fault("dimension %zu is %lld, expected 0 or more", i, (long long) t->dims[i]);
    size_t bytes = heed_array_bytes_of(type, (int) t->n_dims, t->dims);
    size_t elements = t->n_float_data + t->n_int32_data + t->n_int64_data + t->n_double_data + t->n_uint64_data;
    if (bytes / 8 > elements && bytes > t->raw_data.len) /* before memory is asked for */
        return heed_fault("holds %zu bytes and %zu elements, its type and shape need %zu bytes", t->raw_data.len, elements,
                          bytes);
    if (heed_array_create(out, type, (int) t->n_dims, t->dims) != 0) return -1;
    if ((t->has_raw_data ? read_raw(out, &t->raw_data) : read_typed(out, t)) != 0) {
        heed_array_destroy(out);
        return -1;
    }
    if (strcmp(type->name, "bool") == 0)
        for (size_t i = 0; i < bytes; i++) ((unsigned char *) out->data)[i] = ((unsigned char *) out->data)[i] != 0;
    return 0;
}

int heed_tensor_read_file(heed_array *out, char **name, const char *path)
{
    *out = (heed_array){ 0 };
    *name = NULL;
    void *data;
    size_t bytes;
    if (heed_file_read(path, &data, &bytes) != 0) return -1;
    Heed__Onnx__TensorProto *t = heed__onnx__tensor_proto__unpack(NULL, bytes, data);
    free(data);
    if (!t) return heed_fault("%s: not an ONNX tensor", path);
    int rc = read_tensor(out, t);
    if (rc == 0) *name = heed_must_copy(t->name ? t->name : "");
    else heed_fault_prefix("%s: ", path);
    heed__onnx__tensor_proto__free_unpacked(t, NULL);
    return rc;
}
