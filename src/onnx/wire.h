/* onnx/wire.h - a look over serialized protobuf before protobuf-c unpacks it, which is recursive and trusts repetition. */
#ifndef HEED_ONNX_WIRE_H
#define HEED_ONNX_WIRE_H

#include <protobuf-c/protobuf-c.h>

#include "base/status.h"

/* Check that data is a message of this type as far as the wire format goes: whole fields, lengths inside their message,
 * bounded nesting and number of fields, no message field that occurs twice (merging them costs the square of their number).
 * Linear in the size. HEED_ERR_FORMAT with words. */
heed_status heed_wire_check(const ProtobufCMessageDescriptor *type, const void *data, size_t bytes);

#endif
