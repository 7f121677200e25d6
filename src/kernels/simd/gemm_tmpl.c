/* Matrix product tiles, written once and compiled per instruction set: HEED_SIMD is its name, HEED_SIMD_FLOATS the floats
 * of a vector.
 *
 * A tile of rows x 2 vectors of c stays in registers while k runs: each step loads two vectors of b and broadcasts one
 * number of each row of a, which is read where it lies. The vectors are the compiler's own, so that the file needs no
 * intrinsics; -ffp-contract=fast fuses multiply and add where the instruction set can. */
#include <string.h>

#include "kernels/gemm.h"

#define PASTE2(a, b) a##b
#define PASTE(a, b) PASTE2(a, b)
#define TEXT2(a) #a
#define TEXT(a) TEXT2(a)

enum { VL = HEED_SIMD_FLOATS, COLS = 2 * VL, ROWS = VL == 16 ? 12 : 6 };

typedef float V __attribute__((vector_size(4 * HEED_SIMD_FLOATS)));
typedef float V4 __attribute__((vector_size(16)));

static inline V load(const float *p)
{
    V v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void store(float *p, V v)
{
    memcpy(p, &v, sizeof v);
}

static inline void write_row(const heed_gemm_tile *t, float *c, V low, V high)
{
    if (t->cols == COLS) {
        if (t->accumulate) low += load(c), high += load(c + VL);
        store(c, low), store(c + VL, high);
        return;
    }
    float line[COLS];
    store(line, low), store(line + VL, high);
    for (int j = 0; j < t->cols; j++) c[j] = t->accumulate ? c[j] + line[j] : line[j];
}

/* n is a constant in every caller: loops over rows unroll and the sums live in registers. */
static inline __attribute__((always_inline)) void tile_of(const int n, const heed_gemm_tile *t)
{
    const float *a[ROWS], *b = t->b;
    const ptrdiff_t b_row = t->b_row;
    V low[ROWS], high[ROWS];
#pragma GCC unroll 12
    for (int r = 0; r < n; r++) {
        a[r] = t->a + r * t->a_row;
        low[r] = high[r] = (V){ 0 };
    }
    for (int64_t k = 0; k < t->k; k++, b += b_row) {
        V b0 = load(b), b1 = load(b + VL);
#pragma GCC unroll 12
        for (int r = 0; r < n; r++) {
            low[r] += a[r][k] * b0;
            high[r] += a[r][k] * b1;
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < n; r++) write_row(t, t->c + r * t->c_row, low[r], high[r]);
}

#define TILE(n)                                                                                                                  \
    static void tile_##n(const heed_gemm_tile *t)                                                                                \
    {                                                                                                                            \
        tile_of(n, t);                                                                                                           \
    }
TILE(1)
TILE(2)
TILE(3)
TILE(4)
TILE(5)
TILE(6)
#if HEED_SIMD_FLOATS == 16
TILE(7)
TILE(8)
TILE(9)
TILE(10)
TILE(11)
TILE(12)
#endif

static void run_tile(const heed_gemm_tile *t)
{
    static void (*const tiles[])(const heed_gemm_tile *) = {
        tile_1,
        tile_2,
        tile_3,
        tile_4,
        tile_5,
        tile_6,
#if HEED_SIMD_FLOATS == 16
        tile_7,
        tile_8,
        tile_9,
        tile_10,
        tile_11,
        tile_12,
#endif
    };
    tiles[t->rows - 1](t);
}

/* Four rows of b become four columns of the panel, four k at a time. */
static inline void transpose_4x4(float *panel, const float *b, ptrdiff_t b_col)
{
    V4 r[4];
    for (int i = 0; i < 4; i++) memcpy(&r[i], b + i * b_col, sizeof r[i]);
    V4 x = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5), y = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
    V4 z = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7), w = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
    r[0] = __builtin_shufflevector(x, y, 0, 1, 4, 5), r[1] = __builtin_shufflevector(x, y, 2, 3, 6, 7);
    r[2] = __builtin_shufflevector(z, w, 0, 1, 4, 5), r[3] = __builtin_shufflevector(z, w, 2, 3, 6, 7);
    for (int i = 0; i < 4; i++) memcpy(panel + i * COLS, &r[i], sizeof r[i]);
}

static void pack_transposed(float *panel, const float *b, ptrdiff_t b_col, int64_t k, int n)
{
    int64_t whole = k & ~(int64_t) 3;
    int j = 0;
    for (; j + 4 <= n; j += 4) {
        const float *from = b + j * b_col;
        for (int64_t i = 0; i < whole; i += 4) transpose_4x4(panel + i * COLS + j, from + i, b_col);
        for (int64_t i = whole; i < k; i++)
            for (int c = 0; c < 4; c++) panel[i * COLS + j + c] = from[c * b_col + i];
    }
    for (; j < n; j++)
        for (int64_t i = 0; i < k; i++) panel[i * COLS + j] = b[j * b_col + i];
    for (; j < COLS; j++)
        for (int64_t i = 0; i < k; i++) panel[i * COLS + j] = 0;
}

static void unpack8(float *y, const uint8_t *q, int64_t n, float zero, float scale)
{
    for (int64_t i = 0; i < n; i++) y[i] = ((float) q[i] - zero) * scale;
}

/* In blocks, so that both loops run over vectors. */
static void unpack4(float *y, const uint8_t *q, int64_t n, float zero, float scale)
{
    uint8_t halves[32];
    for (; n >= 32; n -= 32, q += 16, y += 32) {
        for (int i = 0; i < 16; i++) {
            halves[2 * i] = q[i] & 15;
            halves[2 * i + 1] = q[i] >> 4;
        }
        unpack8(y, halves, 32, zero, scale);
    }
    for (int64_t i = 0; i < n; i++) y[i] = ((float) (i & 1 ? q[i / 2] >> 4 : q[i / 2] & 15) - zero) * scale;
}

const heed_gemm_kernel PASTE(heed_gemm_, HEED_SIMD) = {
    "gemm_f32_" TEXT(HEED_SIMD), PASTE(HEED_ISA_, HEED_SIMD_ISA), ROWS, COLS, run_tile, pack_transposed, unpack4, unpack8
};
