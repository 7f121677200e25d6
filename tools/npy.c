/* Reading and writing .npy. The header is parsed by hand: a dict of three known keys. */
#include "npy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fault.h"
#include "file.h"

enum { MAX_HEADER = 1 << 20, ORDER_MARK = 1 };
static const char magic[6] = "\x93NUMPY";

typedef struct npy_header {
    const heed_type *type;
    int swapped; /* stored in the other byte order */
    int fortran; /* the first dimension runs fastest */
    int ndim;
    int64_t shape[HEED_MAX_RANK];
    unsigned seen; /* bit i: keys[i] was there */
} npy_header;

/* The header's text and how far it is read. It ends with a 0 of ours, which no token includes. */
typedef struct cursor {
    const char *p;
} cursor;

static void skip_space(cursor *c)
{
    while (*c->p == ' ' || *c->p == '\t' || *c->p == '\n' || *c->p == '\r') c->p++;
}

/* Take `token` if it is next. */
static int take(cursor *c, const char *token)
{
    skip_space(c);
    size_t n = strlen(token);
    if (strncmp(c->p, token, n) != 0) return 0;
    c->p += n;
    return 1;
}

static int expect(cursor *c, const char *token)
{
    if (take(c, token)) return 0;
    return heed_fault("npy header: expected %s before \"%.20s\"", token, c->p);
}

static int parse_string(cursor *c, char *text, size_t bytes)
{
    skip_space(c);
    char quote = *c->p;
    if (quote != '\'' && quote != '"') return heed_fault("npy header: expected a string before \"%.20s\"", c->p);
    const char *begin = ++c->p;
    while (*c->p && *c->p != quote) c->p++;
    if (!*c->p) return heed_fault("npy header: a string has no end");
    size_t n = (size_t) (c->p++ - begin);
    if (n >= bytes) return heed_fault("npy header: '%.20s...' is not known", begin);
    memcpy(text, begin, n);
    text[n] = 0;
    return 0;
}

static int host_is_little(void)
{
    const uint16_t one = ORDER_MARK;
    return *(const unsigned char *) &one == ORDER_MARK;
}

static int parse_descr(cursor *c, npy_header *h)
{
    char descr[16];
    skip_space(c);
    if (*c->p == '[') return heed_fault("npy header: structured types are not supported");
    if (parse_string(c, descr, sizeof descr) != 0) return -1;
    int has_order = descr[0] && strchr("<>=|", descr[0]);
    h->type = strcmp(descr, "bfloat16") == 0 ? heed_type_from_name("bf16") : heed_type_from_npy(descr + has_order);
    if (!h->type)
        return heed_fault(
            "npy header: type '%s' is not supported (known: f2 f4 f8, i1 i2 i4 i8, u1 u2 u4 u8, b1, and V2 for bfloat16)", descr);
    char order = has_order ? descr[0] : '=';
    if (order == '|' && h->type->bits > 8 && h->type->code != kDLBfloat)
        return heed_fault("npy header: type '%s' has no byte order", descr);
    h->swapped = h->type->bits > 8 && ((order == '<' && !host_is_little()) || (order == '>' && host_is_little()));
    return 0;
}

static int parse_order(cursor *c, npy_header *h)
{
    h->fortran = take(c, "True");
    if (!h->fortran && !take(c, "False")) return heed_fault("npy header: fortran_order is neither True nor False");
    return 0;
}

static int parse_dimension(cursor *c, int64_t *dim)
{
    skip_space(c);
    if (*c->p < '0' || *c->p > '9') return heed_fault("npy header: shape: expected a number before \"%.20s\"", c->p);
    int64_t n = 0;
    for (; *c->p >= '0' && *c->p <= '9'; c->p++)
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, *c->p - '0', &n))
            return heed_fault("npy header: shape: a dimension is larger than 2^63 - 1");
    if (*c->p == 'L') c->p++; /* Python 2 wrote long integers so */
    *dim = n;
    return 0;
}

static int parse_shape(cursor *c, npy_header *h)
{
    if (expect(c, "(") != 0) return -1;
    int comma = 0;
    while (!take(c, ")")) {
        if (h->ndim && !comma) return expect(c, ",");
        if (h->ndim == HEED_MAX_RANK) return heed_fault("npy header: shape: more than %d dimensions", HEED_MAX_RANK);
        if (parse_dimension(c, &h->shape[h->ndim++]) != 0) return -1;
        comma = take(c, ",");
    }
    if (h->ndim == 1 && !comma) return heed_fault("npy header: shape is a number, expected a tuple");
    return 0;
}

static const struct {
    const char *name;
    int (*parse)(cursor *c, npy_header *h);
} keys[] = { { "descr", parse_descr }, { "fortran_order", parse_order }, { "shape", parse_shape } };

enum { N_KEYS = sizeof keys / sizeof keys[0] };

static int parse_key(cursor *c, npy_header *h)
{
    char name[16];
    if (parse_string(c, name, sizeof name) != 0 || expect(c, ":") != 0) return -1;
    for (int i = 0; i < N_KEYS; i++) {
        if (strcmp(name, keys[i].name) != 0) continue;
        if (h->seen >> i & 1) return heed_fault("npy header: %s stands there twice", name);
        h->seen |= 1u << i;
        return keys[i].parse(c, h);
    }
    return heed_fault("npy header: '%s' is not known", name);
}

static int parse_header(npy_header *h, const char *text)
{
    cursor c = { text };
    if (expect(&c, "{") != 0) return -1;
    while (!take(&c, "}")) {
        if (parse_key(&c, h) != 0) return -1;
        if (!take(&c, ",")) {
            if (expect(&c, "}") != 0) return -1;
            break;
        }
    }
    skip_space(&c);
    if (*c.p) return heed_fault("npy header: text after the end: \"%.20s\"", c.p);
    for (int i = 0; i < N_KEYS; i++)
        if (!(h->seen >> i & 1)) return heed_fault("npy header: %s is missing", keys[i].name);
    return 0;
}

/* Exactly n bytes. */
static int read_all(const heed_source *s, void *buf, size_t n, const char *what)
{
    int64_t got = n ? s->read(s->from, buf, n) : 0;
    if (got < 0) return -1;
    if ((size_t) got == n) return 0;
    return heed_fault("truncated: %s has %lld of %llu bytes", what, (long long) got, (unsigned long long) n);
}

static int read_header(npy_header *h, const heed_source *s, uint64_t *header_bytes)
{
    unsigned char start[12];
    int64_t got = s->read(s->from, start, 8);
    if (got < 0) return -1;
    if (got == 0) return heed_fault("empty, expected an npy array");
    if (got < 8 || memcmp(start, magic, sizeof magic) != 0)
        return heed_fault("not an npy array: it does not start with \\x93NUMPY");
    int version = start[6], wide = version > 1;
    if (version < 1 || version > 3) return heed_fault("npy version is %d.%d, expected 1, 2 or 3", start[6], start[7]);
    if (read_all(s, start + 8, wide ? 4 : 2, "the npy header's size") != 0) return -1;
    size_t n = (size_t) start[8] | (size_t) start[9] << 8;
    if (wide) n |= (size_t) start[10] << 16 | (size_t) start[11] << 24;
    if (n > MAX_HEADER) return heed_fault("npy header: has %zu bytes, at most %d are read", n, MAX_HEADER);
    char *text = heed_must_alloc(n + 1);
    int rc = read_all(s, text, n, "the npy header");
    if (rc == 0 && strlen(text) != n) rc = heed_fault("npy header: has a zero byte");
    if (rc == 0) rc = parse_header(h, text);
    free(text);
    *header_bytes = 8 + (wide ? 4 : 2) + n;
    return rc;
}

static void swap_bytes(unsigned char *data, int64_t n, int size)
{
    for (int64_t i = 0; i < n; i++, data += size)
        for (int a = 0, b = size - 1; a < b; a++, b--) {
            unsigned char byte = data[a];
            data[a] = data[b], data[b] = byte;
        }
}

/* From first-dimension-fastest to last-dimension-fastest. */
static int to_row_major(heed_array *a)
{
    heed_array to;
    if (heed_array_create(&to, a->type, a->ndim, a->shape) != 0) return -1;
    int64_t index[HEED_MAX_RANK] = { 0 }, n = heed_array_count(a);
    size_t size = a->type->bits / 8;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0;
        for (int d = 0; d < a->ndim; d++) at = at * a->shape[d] + index[d];
        memcpy((char *) to.data + (size_t) at * size, (char *) a->data + (size_t) i * size, size);
        for (int d = 0; d < a->ndim && ++index[d] == a->shape[d]; d++) index[d] = 0;
    }
    heed_array_destroy(a);
    *a = to;
    return 0;
}

static int read_data(heed_array *out, const npy_header *h, const heed_source *s)
{
    size_t bytes = heed_array_bytes(out);
    if (read_all(s, out->data, bytes, "the array") != 0) return -1;
    char extra;
    int64_t more = s->read(s->from, &extra, 1); /* also lets a zip member check its sum */
    if (more < 0) return -1;
    if (more > 0) return heed_fault("bytes after the end of the array");
    int64_t n = heed_array_count(out);
    if (h->swapped) swap_bytes(out->data, n, out->type->bits / 8);
    if (strcmp(out->type->name, "bool") == 0)
        for (int64_t i = 0; i < n; i++) ((unsigned char *) out->data)[i] = ((unsigned char *) out->data)[i] != 0;
    return h->fortran && out->ndim > 1 ? to_row_major(out) : 0;
}

int heed_npy_read(heed_array *out, const heed_source *source)
{
    *out = (heed_array){ 0 };
    npy_header h = { 0 };
    uint64_t header_bytes = 0;
    if (read_header(&h, source, &header_bytes) != 0) return -1;
    size_t bytes = heed_array_bytes_of(h.type, h.ndim, h.shape);
    char shape[HEED_SHAPE_TEXT];
    heed_shape_print(shape, sizeof shape, h.ndim, h.shape);
    if (bytes == SIZE_MAX) return heed_fault("npy header: %s %s is too large for this machine", h.type->name, shape);
    if (source->bytes != UINT64_MAX && source->bytes - header_bytes < bytes) /* before memory is asked for */
        return heed_fault("truncated: %s %s needs %zu bytes, %llu are there", h.type->name, shape, bytes,
                          (unsigned long long) (source->bytes - header_bytes));
    if (heed_array_create(out, h.type, h.ndim, h.shape) != 0) return -1;
    if (read_data(out, &h, source) == 0) return 0;
    heed_array_destroy(out);
    return -1;
}

static int64_t read_stream(void *from, void *buf, size_t n)
{
    size_t got = fread(buf, 1, n, from);
    if (got < n && ferror((FILE *) from)) return heed_fault("%s", strerror(errno));
    return (int64_t) got;
}

int heed_npy_read_file(heed_array *out, const char *path)
{
    *out = (heed_array){ 0 };
    heed_source source = { .read = read_stream };
    FILE *f = heed_file_open(path, &source.bytes);
    if (!f) return -1;
    source.from = f;
    int rc = heed_npy_read(out, &source);
    fclose(f);
    return rc == 0 ? 0 : heed_fault_prefix("%s: ", path);
}

size_t heed_npy_header(char header[HEED_NPY_HEADER_BYTES], const heed_array *a)
{
    char order = a->type->bits == 8 ? '|' : host_is_little() ? '<' : '>';
    size_t n = 10 + (size_t) snprintf(header + 10, HEED_NPY_HEADER_BYTES - 10,
                                      "{'descr': '%c%s', 'fortran_order': False, 'shape': (", order, a->type->npy);
    for (int i = 0; i < a->ndim; i++) /* the comma stays after a single dimension, as Python's tuples need it */
        n += (size_t) snprintf(header + n, HEED_NPY_HEADER_BYTES - n, "%s%lld%s", i ? ", " : "", (long long) a->shape[i],
                               a->ndim == 1 ? "," : "");
    n += (size_t) snprintf(header + n, HEED_NPY_HEADER_BYTES - n, "), }");
    while ((n + 1) % 64 != 0) header[n++] = ' ';
    header[n++] = '\n';
    memcpy(header, magic, sizeof magic);
    header[6] = 1, header[7] = 0;
    header[8] = (char) ((n - 10) & 0xff), header[9] = (char) ((n - 10) >> 8);
    return n;
}

int heed_npy_write_file(const char *path, const heed_array *a)
{
    char header[HEED_NPY_HEADER_BYTES];
    size_t n = heed_npy_header(header, a);
    heed_new_file file;
    if (heed_new_file_open(&file, path) != 0) return -1;
    heed_new_file_write(&file, header, n);
    heed_new_file_write(&file, a->data, heed_array_bytes(a));
    return heed_new_file_keep(&file);
}
