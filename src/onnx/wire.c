/* Tags, lengths and nesting of the wire format. */
#include "onnx/wire.h"

/* Nesting of messages; one If in another takes three. */
#define MAX_DEPTH 64
/* What all fields may cost: 1 each, 4 if it is a string or message, which takes memory of its own. Bounds what a small file
 * can be blown up to. */
#define MAX_COST (1 << 24)

struct wire {
    int cost;
};

enum { VARINT = 0, FIXED64 = 1, LENGTH = 2, FIXED32 = 5 };

/* Bytes of the varint at the front, 0 if it does not end in time. */
static size_t read_varint(const unsigned char *at, size_t bytes, uint64_t *out)
{
    uint64_t x = 0;
    for (size_t i = 0; i < bytes && i < 10; i++) {
        x |= (uint64_t) (at[i] & 0x7f) << 7 * i;
        if (at[i] & 0x80) continue;
        *out = x;
        return i + 1;
    }
    return 0;
}

static heed_status check_message(struct wire *wire, const ProtobufCMessageDescriptor *type, const unsigned char *at, size_t bytes,
                                 int depth);

/* The contents of a field that has a length. seen: one bit for each field of the type. */
static heed_status check_contents(struct wire *wire, const ProtobufCMessageDescriptor *type, uint64_t number,
                                  const unsigned char *at, size_t bytes, int depth, uint64_t *seen)
{
    wire->cost += 3;
    if (number > UINT32_MAX) return HEED_OK;
    const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field(type, (unsigned) number);
    if (!field || field->type != PROTOBUF_C_TYPE_MESSAGE) return HEED_OK;
    if (field->label != PROTOBUF_C_LABEL_REPEATED) {
        uint64_t bit = (uint64_t) 1 << (field - type->fields) % 64;
        if (*seen & bit)
            return heed_fail(HEED_ERR_FORMAT, "%s: field '%s' occurs twice, expected once", type->short_name, field->name);
        *seen |= bit;
    }
    if (depth == MAX_DEPTH)
        return heed_fail(HEED_ERR_FORMAT, "nested more than %d deep, at field '%s' of %s", MAX_DEPTH, field->name,
                         type->short_name);
    return check_message(wire, field->descriptor, at, bytes, depth + 1);
}

static heed_status check_message(struct wire *wire, const ProtobufCMessageDescriptor *type, const unsigned char *at, size_t bytes,
                                 int depth)
{
    uint64_t seen = 0;
    while (bytes) {
        uint64_t tag = 0, length = 0;
        size_t n = read_varint(at, bytes, &tag);
        if (!n || tag >> 3 == 0) return heed_fail(HEED_ERR_FORMAT, "broken field in %s", type->short_name);
        at += n, bytes -= n;
        int wire_type = (int) (tag & 7);
        switch (wire_type) {
        case VARINT:
            n = read_varint(at, bytes, &length);
            length = n;
            break;
        case FIXED64: n = 8, length = 8; break;
        case FIXED32: n = 4, length = 4; break;
        case LENGTH:
            n = read_varint(at, bytes, &length);
            at += n, bytes -= n;
            break;
        default:
            return heed_fail(HEED_ERR_FORMAT, "field %llu of %s is of no kind known", (unsigned long long) tag >> 3,
                             type->short_name);
        }
        if (!n || length > bytes)
            return heed_fail(HEED_ERR_FORMAT, "cut off in field %llu of %s", (unsigned long long) tag >> 3, type->short_name);
        if (wire_type == LENGTH) HEED_TRY(check_contents(wire, type, tag >> 3, at, (size_t) length, depth, &seen));
        if (++wire->cost > MAX_COST) return heed_fail(HEED_ERR_FORMAT, "more fields than the %d that heed reads", MAX_COST);
        at += length, bytes -= (size_t) length;
    }
    return HEED_OK;
}

heed_status heed_wire_check(const ProtobufCMessageDescriptor *type, const void *data, size_t bytes)
{
    struct wire wire = { 0 };
    return check_message(&wire, type, data, bytes, 0);
}
