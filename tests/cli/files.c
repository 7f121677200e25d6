/* The files that the tools read and write: .npy, .npz and ONNX tensors. Round trips, other people's spellings, hostile bytes. */
#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include <zip.h>

#include "array.h"
#include "base/half.h"
#include "fault.h"
#include "file.h"
#include "npy.h"
#include "npz.h"
#include "tensor.h"
#include "unit/test.h"

static char folder[] = "/tmp/heed-files-XXXXXX";
static char path[64], other[64]; /* two names in it */

static const char *const type_names[] = { "f32", "f16", "bf16", "f64", "i8",  "i16", "i32",
                                          "i64", "u8",  "u16",  "u32", "u64", "bool" };
enum { N_TYPES = sizeof type_names / sizeof type_names[0] };

static const struct {
    int ndim;
    int64_t dims[HEED_MAX_RANK];
} shapes[] = { { 0, { 0 } },    { 1, { 1 } },       { 1, { 7 } },       { 1, { 0 } },
               { 2, { 3, 4 } }, { 3, { 2, 0, 5 } }, { 3, { 2, 3, 4 } }, { 8, { 1, 2, 1, 2, 1, 2, 1, 3 } } };
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

static void put(const char *name, const void *bytes, size_t n)
{
    FILE *f = fopen(name, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static heed_array make_random(const char *type, int shape)
{
    heed_array a;
    assert_int_equal(heed_array_create(&a, heed_type_from_name(type), shapes[shape].ndim, shapes[shape].dims), 0);
    unsigned char *bytes = a.data;
    for (size_t i = 0, n = heed_array_bytes(&a); i < n; i++)
        bytes[i] = (unsigned char) (strcmp(type, "bool") == 0 ? rand() & 1 : rand() >> 4);
    return a;
}

static void assert_same(const heed_array *a, const heed_array *b)
{
    assert_ptr_equal(a->type, b->type);
    assert_int_equal(a->ndim, b->ndim);
    for (int i = 0; i < a->ndim; i++) assert_int_equal(a->shape[i], b->shape[i]);
    assert_memory_equal(a->data, b->data, heed_array_bytes(a));
}

static void assert_one_line(const char *text)
{
    assert_true(text[0] != 0);
    for (; *text; text++) assert_true((unsigned char) *text >= 0x20);
}

static void test_npy_round_trip(void **state)
{
    (void) state;
    for (int t = 0; t < N_TYPES; t++)
        for (int s = 0; s < N_SHAPES; s++) {
            heed_array a = make_random(type_names[t], s), b;
            assert_int_equal(heed_npy_write_file(path, &a), 0);
            assert_int_equal(heed_npy_read_file(&b, path), 0);
            assert_same(&a, &b);
            heed_array_destroy(&a), heed_array_destroy(&b);
        }
}

static void test_npz_round_trip(void **state)
{
    (void) state;
    enum { N = N_TYPES * N_SHAPES };
    heed_array arrays[N], b;
    char *names[N];
    for (int i = 0; i < N; i++) {
        arrays[i] = make_random(type_names[i / N_SHAPES], i % N_SHAPES);
        names[i] = heed_must_print("layer/%d.\xc3\xa4", i);
    }
    assert_int_equal(heed_npz_write(path, N, (const char *const *) names, arrays), 0);
    heed_npz *npz;
    assert_int_equal(heed_npz_open(&npz, path), 0);
    for (int i = 0; i < N; i++) {
        assert_string_equal(heed_npz_key(npz, i), names[i]);
        assert_int_equal(heed_npz_read(npz, names[i], &b), 1);
        assert_same(&arrays[i], &b);
        heed_array_destroy(&b), heed_array_destroy(&arrays[i]);
        free(names[i]);
    }
    assert_null(heed_npz_key(npz, N));
    assert_int_equal(heed_npz_read(npz, "nothing", &b), 0);
    heed_npz_close(npz);
}

/* An .npy file from the words of its header; what follows is `data`. */
static size_t make_npy(unsigned char *bytes, int version, const char *words, const void *data, size_t n_data)
{
    size_t n = strlen(words), start = version == 1 ? 10 : 12;
    memcpy(bytes, "\x93NUMPY", 6);
    bytes[6] = (unsigned char) version, bytes[7] = 0;
    for (size_t i = 8; i < start; i++) bytes[i] = (unsigned char) (n >> 8 * (i - 8));
    memcpy(bytes + start, words, n);
    if (n_data) memcpy(bytes + start + n, data, n_data);
    return start + n + n_data;
}

static void test_spellings(void **state)
{
    (void) state;
    static const struct {
        int version;
        const char *words;
    } spelled[] = {
        { 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }          \n" },
        { 2, "{'shape': (2, 3), 'fortran_order': False, 'descr': '<f4'}" },
        { 3, "{\"descr\":\"<f4\",\"fortran_order\":False,\"shape\":(2,3)}\n" },
        { 1, " { 'descr' : 'f4' ,'shape':( 2L , 3L , ),'fortran_order' : False , } " },
        { 1, "{'descr': '>f4', 'fortran_order': False, 'shape': (2, 3), }" },
        { 1, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }" },
        { 1, "{'descr': '>f4', 'fortran_order': True, 'shape': (2, 3), }" },
    };
    const float want[6] = { 0, 1, 2, 10, 11, 12 };
    for (size_t i = 0; i < sizeof spelled / sizeof spelled[0]; i++) {
        float data[6];
        int fortran = strstr(spelled[i].words, "True") != NULL, big = strchr(spelled[i].words, '>') != NULL;
        for (int row = 0; row < 2; row++)
            for (int column = 0; column < 3; column++)
                data[fortran ? column * 2 + row : row * 3 + column] = want[row * 3 + column];
        for (int k = 0; big && k < 6; k++) {
            uint32_t u;
            memcpy(&u, &data[k], 4);
            u = __builtin_bswap32(u);
            memcpy(&data[k], &u, 4);
        }
        unsigned char bytes[256];
        put(path, bytes, make_npy(bytes, spelled[i].version, spelled[i].words, data, sizeof data));
        heed_array a;
        assert_int_equal(heed_npy_read_file(&a, path), 0);
        assert_memory_equal(a.data, want, sizeof want);
        heed_array_destroy(&a);
    }
}

/* Each is refused with words that hold these. */
static void test_hostile_headers(void **state)
{
    (void) state;
    static const struct {
        const char *words, *message;
    } hostile[] = {
        { "", "expected {" },
        { "{", "expected a string" },
        { "{}", "descr is missing" },
        { "{'descr': '<f4', 'fortran_order': False}", "shape is missing" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}", "'more' is not known" },
        { "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", "twice" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x", "after the end" },
        { "{'descr': '<f4' 'fortran_order': False, 'shape': (2,)}", "expected }" },
        { "{'descr': '<f4', 'fortran_order': Maybe, 'shape': (2,)}", "neither True nor False" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': 2}", "expected (" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (2)}", "expected a tuple" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (2 2)}", "expected ," },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", "expected a number" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (2,,)}", "expected a number" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (2,", "expected a number" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", "larger than 2^63" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 9223372036854775807)}", "too large" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,)}", "truncated" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", "truncated" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", "bytes after the end" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,2)}", "more than 8 dimensions" },
        { "{'descr': '|O', 'fortran_order': False, 'shape': (2,)}", "type '|O' is not supported" },
        { "{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", "not supported" },
        { "{'descr': '<U2', 'fortran_order': False, 'shape': (1,)}", "not supported" },
        { "{'descr': '', 'fortran_order': False, 'shape': (1,)}", "not supported" },
        { "{'descr': '|f4', 'fortran_order': False, 'shape': (2,)}", "no byte order" },
        { "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", "structured" },
        { "{'descr': '<f4, 'fortran_order': False, 'shape': (2,)}", "not" },
        { "{'descr': '<f444444444444444444444444444", "has no end" },
        { "{'descr': '<f4444444444444444444444444444'", "is not known" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}\x1b[31m\n\n", "after the end" },
    };
    const float data[2] = { 1, 2 };
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) {
        unsigned char bytes[512];
        put(path, bytes, make_npy(bytes, 1, hostile[i].words, data, sizeof data));
        heed_array a;
        assert_int_equal(heed_npy_read_file(&a, path), -1);
        if (!strstr(heed_fault_text(), hostile[i].message)) fail_msg("%s: %s", hostile[i].words, heed_fault_text());
        assert_one_line(heed_fault_text());
        assert_null(a.data);
    }
}

static void test_hostile_starts(void **state)
{
    (void) state;
    static const struct {
        size_t n;
        const char *bytes, *message;
    } hostile[] = {
        { 0, "", "empty" },
        { 4, "\x93NUM", "not an npy array" },
        { 16, "PK\3\4nonsense....", "not an npy array" },
        { 10, "\x93NUMPY\0\0\1\0", "version is 0.0" },
        { 10, "\x93NUMPY\4\0\1\0", "version is 4.0" },
        { 9, "\x93NUMPY\1\0\1", "truncated" },
        { 12, "\x93NUMPY\1\0\xff\xff{}", "truncated" },
        { 12, "\x93NUMPY\2\0\xff\xff\xff\xff", "has 4294967295 bytes" },
        { 14, "\x93NUMPY\1\0\4\0{\0}\n", "zero byte" },
    };
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) {
        put(path, hostile[i].bytes, hostile[i].n);
        heed_array a;
        assert_int_equal(heed_npy_read_file(&a, path), -1);
        if (!strstr(heed_fault_text(), hostile[i].message)) fail_msg("%zu: %s", i, heed_fault_text());
    }
}

/* Whatever the bytes, reading ends with an array or with one line. */
typedef struct memory {
    const unsigned char *bytes;
    size_t n, at;
} memory;

static int64_t read_memory(void *from, void *buf, size_t n)
{
    memory *m = from;
    if (n > m->n - m->at) n = m->n - m->at;
    if (n) memcpy(buf, m->bytes + m->at, n);
    m->at += n;
    return (int64_t) n;
}

static void read_as_npy(const void *bytes, size_t n)
{
    heed_array a;
    memory m = { bytes, n, 0 };
    if (heed_npy_read(&a, &(heed_source){ read_memory, &m, rand() & 1 ? n : UINT64_MAX }) != 0)
        assert_one_line(heed_fault_text());
    heed_array_destroy(&a);
}

static void read_as_npz(const void *bytes, size_t n)
{
    heed_npz *npz;
    heed_array a;
    put(path, bytes, n);
    if (heed_npz_open(&npz, path) != 0) {
        assert_one_line(heed_fault_text());
        return;
    }
    for (int i = 0; heed_npz_key(npz, i); i++) {
        if (heed_npz_read(npz, heed_npz_key(npz, i), &a) < 0) assert_one_line(heed_fault_text());
        heed_array_destroy(&a);
    }
    heed_npz_close(npz);
}

/* Cut at many places, and changed at a few, `times` times. */
static void damage(const void *whole, size_t n, int times, void (*read_it)(const void *bytes, size_t n))
{
    unsigned char *bytes = malloc(n);
    assert_non_null(bytes);
    for (size_t cut = 0; cut < n; cut += 1 + n / 100) read_it(whole, cut);
    for (int i = 0; i < times; i++) {
        memcpy(bytes, whole, n);
        for (int k = rand() % 4; k >= 0; k--) bytes[(size_t) rand() % n] = (unsigned char) (rand() >> 4);
        read_it(bytes, n);
    }
    free(bytes);
}

static void test_damaged_npy(void **state)
{
    (void) state;
    heed_array a = make_random("f16", 6);
    char bytes[HEED_NPY_HEADER_BYTES + 64];
    size_t n = heed_npy_header(bytes, &a);
    memcpy(bytes + n, a.data, heed_array_bytes(&a));
    n += heed_array_bytes(&a);
    heed_array_destroy(&a);
    damage(bytes, n, 20000, read_as_npy);
}

/* Two members, one deflated, by libzip itself. */
static void write_mixed_npz(const char *name)
{
    unsigned char bytes[2][512];
    float data[64] = { 1, 2, 3 };
    int code;
    zip_t *zip = zip_open(name, ZIP_CREATE | ZIP_TRUNCATE, &code);
    assert_non_null(zip);
    for (int i = 0; i < 2; i++) {
        size_t n = make_npy(bytes[i], 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (64,)}", data, sizeof data);
        zip_int64_t at = zip_file_add(zip, i ? "b.npy" : "a", zip_source_buffer(zip, bytes[i], n, 0), 0);
        assert_int_equal(zip_set_file_compression(zip, (zip_uint64_t) at, i ? ZIP_CM_DEFLATE : ZIP_CM_STORE, 9), 0);
    }
    assert_int_equal(zip_close(zip), 0);
}

static void test_mixed_and_damaged_npz(void **state)
{
    (void) state;
    write_mixed_npz(other);
    heed_npz *npz;
    assert_int_equal(heed_npz_open(&npz, other), 0);
    for (int i = 0; i < 2; i++) {
        heed_array a;
        assert_int_equal(heed_npz_read(npz, i ? "b" : "a", &a), 1);
        assert_true(heed_array_value(&a, 2) == 3 && heed_array_count(&a) == 64);
        heed_array_destroy(&a);
    }
    heed_npz_close(npz);
    void *bytes;
    size_t n;
    assert_int_equal(heed_file_read(other, &bytes, &n), 0);
    damage(bytes, n, 300, read_as_npz);
    free(bytes);
}

static int count_files(void)
{
    char *command = heed_must_print("ls -A %s | wc -l", folder);
    FILE *f = popen(command, "r");
    int n = -1;
    assert_int_equal(fscanf(f, "%d", &n), 1);
    pclose(f), free(command);
    return n;
}

/* When writing fails half way, what was there stays, and nothing else does. */
static void test_writing_is_whole_or_not(void **state)
{
    (void) state;
    const int64_t dims[1] = { 100000 };
    heed_array small = make_random("f32", 4), large, back;
    assert_int_equal(heed_array_create(&large, heed_type_from_name("f32"), 1, dims), 0);
    memset(large.data, 1, heed_array_bytes(&large));
    const char *name = "x";
    assert_int_equal(heed_npy_write_file(path, &small), 0);
    assert_int_equal(heed_npz_write(other, 1, &name, &small), 0);
    int n_files = count_files();

    struct rlimit was, limit;
    getrlimit(RLIMIT_FSIZE, &was);
    limit = was, limit.rlim_cur = 50000;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    int npy = heed_npy_write_file(path, &large);
    char *npy_words = heed_must_copy(heed_fault_text());
    int npz = heed_npz_write(other, 1, &name, &large);
    setrlimit(RLIMIT_FSIZE, &was);

    assert_int_equal(npy, -1);
    assert_int_equal(npz, -1);
    assert_non_null(strstr(npy_words, "cannot write"));
    assert_non_null(strstr(heed_fault_text(), "cannot write"));
    assert_int_equal(count_files(), n_files);
    assert_int_equal(heed_npy_read_file(&back, path), 0);
    assert_same(&small, &back);
    heed_array_destroy(&back);
    heed_npz *z;
    assert_int_equal(heed_npz_open(&z, other), 0);
    assert_int_equal(heed_npz_read(z, name, &back), 1);
    assert_same(&small, &back);
    heed_npz_close(z);
    heed_array_destroy(&small), heed_array_destroy(&large), heed_array_destroy(&back), free(npy_words);

    assert_int_equal(heed_file_check_writable(folder), -1);
    assert_int_equal(heed_file_check_writable("/dev/null"), -1);
    assert_int_equal(heed_file_check_writable("/no/such/folder/x"), -1);
}

static void test_tensors(void **state)
{
    (void) state;
    static const struct {
        size_t n;
        const char *bytes;
        const char *want; /* a type, or words of the refusal */
        double first;
    } tensors[] = {
        { 14, "\x08\x02\x10\x01\x4a\x08\0\0\x80\x3f\0\0\0\x40", "f32", 1 },     /* dims 2, raw_data */
        { 9, "\x10\x07\x3a\x01\x05\x42\x02id", "i64", 5 },                      /* a scalar in int64_data, with a name */
        { 10, "\x08\x01\x10\x0a\x2a\x02\x80\x78\x42\x00", "f16", 1 },           /* bits 0x3c00 in int32_data */
        { 9, "\x08\x02\x10\x09\x2a\x02\x01\x00\x42", "not an ONNX tensor", 0 }, /* cut */
        { 8, "\x08\x02\x10\x09\x2a\x02\x05\x00", "bool", 1 },                   /* 5 is true */
        { 8, "\x08\x03\x10\x09\x2a\x02\x01\x00", "holds 2 elements, its shape has 3", 0 },
        { 2, "\x10\x63", "element type is 99", 0 },
        { 2, "\x10\x08", "element type is 8", 0 }, /* strings */
        { 4, "\x10\x01\x70\x01", "external or segmented data", 0 },
        { 13, "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x10\x01", "dimension 0 is -1", 0 },
        { 12, "\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x10\x01", "holds 0 bytes", 0 },
        { 11, "\x08\xff\xff\xff\xff\xff\x7f\x10\x01\x4a\x00", "holds 0 bytes", 0 },
        { 20, "\x08\x01\x08\x01\x08\x01\x08\x01\x08\x01\x08\x01\x08\x01\x08\x01\x08\x01\x10\x01", "has 9 dimensions", 0 },
    };
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        put(path, tensors[i].bytes, tensors[i].n);
        heed_array a;
        char *name;
        if (heed_tensor_read_file(&a, &name, path) == 0) {
            assert_string_equal(a.type->name, tensors[i].want);
            assert_true(heed_array_value(&a, 0) == tensors[i].first);
            assert_string_equal(name, i == 1 ? "id" : "");
        } else if (!strstr(heed_fault_text(), tensors[i].want)) {
            fail_msg("%zu: %s", i, heed_fault_text());
        }
        heed_array_destroy(&a), free(name);
    }
}

static void test_halves(void **state)
{
    (void) state;
    const int64_t dims[1] = { 1 };
    heed_array f16, bf16;
    assert_int_equal(heed_array_create(&f16, heed_type_from_name("f16"), 1, dims), 0);
    assert_int_equal(heed_array_create(&bf16, heed_type_from_name("bf16"), 1, dims), 0);
    for (uint32_t h = 0; h < 0x10000; h++) {
        *(uint16_t *) f16.data = *(uint16_t *) bf16.data = (uint16_t) h;
        float a = heed_f32_from_f16((uint16_t) h), b = heed_f32_from_bf16((uint16_t) h);
        if (!isnan(a)) assert_true(heed_array_value(&f16, 0) == a);
        else assert_true(isnan(heed_array_value(&f16, 0)));
        if (!isnan(b)) assert_true(heed_array_value(&bf16, 0) == b);
        float x = a * 1.0003f; /* between two numbers of f16 */
        heed_array_set(&f16, 0, x), heed_array_set(&bf16, 0, x);
        if (isnan(x)) continue;
        assert_int_equal(*(uint16_t *) f16.data, heed_f16_from_f32(x));
        assert_int_equal(*(uint16_t *) bf16.data, heed_bf16_from_f32(x));
    }
    heed_array_destroy(&f16), heed_array_destroy(&bf16);
}

static heed_difference compare(const char *type, const double *x, const double *ref, int64_t n)
{
    heed_array a, b;
    assert_int_equal(heed_array_create(&a, heed_type_from_name(type), 1, &n), 0);
    assert_int_equal(heed_array_create(&b, heed_type_from_name(type), 1, &n), 0);
    for (int64_t i = 0; i < n; i++) heed_array_set(&a, i, x[i]), heed_array_set(&b, i, ref[i]);
    heed_difference d = heed_array_compare(&a, &b, 1e-4, 1e-3);
    heed_array_destroy(&a), heed_array_destroy(&b);
    return d;
}

static void test_comparison(void **state)
{
    (void) state;
    double x[] = { 1, NAN, INFINITY, -INFINITY, 100 };
    assert_true(compare("f32", x, x, 5).ok && compare("f32", x, x, 5).max_abs == 0);
    double near[] = { 1.001, NAN, INFINITY, -INFINITY, 100.1 };
    assert_true(compare("f64", x, near, 5).ok);
    double far[] = { 1.0012, NAN, INFINITY, -INFINITY, 100 };
    assert_false(compare("f64", x, far, 5).ok);
    assert_non_null(strstr(compare("f64", x, far, 5).reason, "1 of 5 values differ, most at [0]"));
    for (int i = 1; i < 4; i++) { /* a NaN or an infinity against anything else */
        double wrong[] = { 1, NAN, INFINITY, -INFINITY, 100 };
        wrong[i] = i == 2 ? -INFINITY : 0;
        assert_false(compare("f32", x, wrong, 5).ok);
        assert_false(compare("f32", wrong, x, 5).ok);
        assert_true(isnan(compare("f32", wrong, x, 5).max_abs));
    }
    double big[] = { 0x1p53 }, bigger[] = { 0x1p53 + 2 };
    assert_true(compare("i64", big, bigger, 1).max_abs == 2);
    assert_false(compare("u8", (double[]){ 0 }, (double[]){ 255 }, 1).ok);
    assert_true(compare("u8", (double[]){ 0 }, (double[]){ 255 }, 1).max_abs == 255);

    heed_array a = make_random("f32", 4), b = make_random("f32", 6), c = make_random("i32", 4);
    assert_string_equal(heed_array_compare(&a, &b, 1, 1).reason, "shape is [3, 4], expected [2, 3, 4]");
    assert_string_equal(heed_array_compare(&a, &c, 1, 1).reason, "type is f32, expected i32");
    heed_array_destroy(&a), heed_array_destroy(&b), heed_array_destroy(&c);
}

static int remove_entry(const char *name, const struct stat *st, int flag, struct FTW *walk)
{
    (void) st, (void) flag, (void) walk;
    return remove(name);
}

static int set_up(void **state)
{
    (void) state;
    unsigned seed = (unsigned) time(NULL);
    print_message("seed %u\n", seed);
    srand(seed);
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/one", folder);
    snprintf(other, sizeof other, "%s/two", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void) state;
    return nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_npy_round_trip), cmocka_unit_test(test_npz_round_trip),
        cmocka_unit_test(test_spellings),      cmocka_unit_test(test_hostile_headers),
        cmocka_unit_test(test_hostile_starts), cmocka_unit_test(test_damaged_npy),
        cmocka_unit_test(test_tensors),        cmocka_unit_test(test_mixed_and_damaged_npz),
        cmocka_unit_test(test_comparison),     cmocka_unit_test(test_writing_is_whole_or_not),
        cmocka_unit_test(test_halves),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
