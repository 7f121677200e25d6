/* ONNX files made in memory, for tests: just enough of protobuf's wire format and of ONNX's field numbers. */
#ifndef HEED_TESTS_EXEC_ONNX_H
#define HEED_TESTS_EXEC_ONNX_H

#include <stdlib.h>
#include <string.h>

#include "unit/test.h"

typedef struct bytes {
    unsigned char data[4096];
    size_t n;
} bytes;

static inline void put_varint(bytes *b, uint64_t x)
{
    do {
        assert_true(b->n < sizeof b->data);
        b->data[b->n++] = (unsigned char) ((x & 0x7f) | (x > 0x7f ? 0x80 : 0));
    } while (x >>= 7);
}

static inline void put_int(bytes *b, unsigned field, int64_t x)
{
    put_varint(b, field << 3);
    put_varint(b, (uint64_t) x);
}

static inline void put_data(bytes *b, unsigned field, const void *data, size_t n)
{
    put_varint(b, field << 3 | 2);
    put_varint(b, n);
    assert_true(b->n + n <= sizeof b->data);
    memcpy(b->data + b->n, data, n);
    b->n += n;
}

static inline void put_text(bytes *b, unsigned field, const char *text)
{
    put_data(b, field, text, strlen(text));
}

static inline void put_bytes(bytes *b, unsigned field, const bytes *inner)
{
    put_data(b, field, inner->data, inner->n);
}

enum { ONNX_FLOAT = 1, ONNX_INT64 = 7, ONNX_BOOL = 9 };

/* field 11: an input of the graph, 12: an output. dims: "2,batch,8"; NULL: no shape. */
static inline void put_value(bytes *graph, unsigned field, const char *name, int type, const char *dims)
{
    bytes value = { .n = 0 }, outer = { .n = 0 }, tensor = { .n = 0 }, shape = { .n = 0 };
    char copy[128];
    put_int(&tensor, 1, type);
    snprintf(copy, sizeof copy, "%s", dims ? dims : "");
    for (char *save, *dim = strtok_r(copy, ",", &save); dim; dim = strtok_r(NULL, ",", &save)) {
        bytes d = { .n = 0 };
        if (*dim >= '0' && *dim <= '9') put_int(&d, 1, atoll(dim));
        else put_text(&d, 2, dim);
        put_bytes(&shape, 1, &d);
    }
    if (dims) put_bytes(&tensor, 2, &shape);
    put_bytes(&outer, 1, &tensor);
    put_text(&value, 1, name);
    put_bytes(&value, 2, &outer);
    put_bytes(graph, field, &value);
}

/* "y = Add(a, b)" is put_node(graph, "Add", "a,b", "y") */
static inline void put_node(bytes *graph, const char *op, const char *inputs, const char *outputs)
{
    bytes node = { .n = 0 };
    const char *lists[2] = { inputs, outputs };
    for (unsigned i = 0; i < 2; i++) {
        char copy[256];
        snprintf(copy, sizeof copy, "%s", lists[i]);
        for (char *save, *name = strtok_r(copy, ",", &save); name; name = strtok_r(NULL, ",", &save))
            put_text(&node, i + 1, name);
    }
    char name[300];
    snprintf(name, sizeof name, "make_%s", outputs);
    put_text(&node, 3, name);
    put_text(&node, 4, op);
    put_bytes(graph, 1, &node);
}

static inline bytes model_of(const bytes *graph, int opset)
{
    bytes model = { .n = 0 }, import = { .n = 0 };
    put_int(&model, 1, 8);
    put_text(&import, 1, "");
    put_int(&import, 2, opset);
    put_bytes(&model, 7, graph);
    put_bytes(&model, 8, &import);
    return model;
}

#endif
