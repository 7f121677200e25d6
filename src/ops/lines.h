/* ops/lines.h - element-wise operators: one small function per operator and C type that works on a line of elements.
 *
 * at[0] is the output, which is dense along the line; at[1].. are the inputs, steps[] their distance in bytes, 0 for one
 * element that repeats. The output may be the memory of an input of the same type and steps. HEED_LINE1 and HEED_LINE2 write
 * such a function around an expression of x and y, with the steps that matter apart so that the compiler makes vectors.
 * Halves run through the f32 function in blocks, and are rounded once.
 */
#ifndef HEED_OPS_LINES_H
#define HEED_OPS_LINES_H

#include "ops/util.h"

typedef void heed_line_fn(char *const *at, const int64_t *steps, int64_t n);

/* out[0] from the first n_in inputs, broadcast; `fns` by the type of the last of them, NULL where it is not taken. The output is
 * of that type too, or bool. */
heed_status heed_compute_lines(heed_compute *c, int n_in, heed_line_fn *const fns[HEED_DTYPE_COUNT]);
/* The same for given tensors. */
heed_status heed_run_lines(heed_compute *c, int n_in, const heed_tensor *out, const heed_tensor *const *in, heed_line_fn *fn);

/* at[0][k] = fn(at[1][k], at[2][k]) for n elements that lie together, of any type. */
void heed_line_apply(heed_line_fn *fn, heed_dtype type, char *const *at, int64_t n);

/* x + y, x * y, the smaller, the larger (ops/arith.c); NULL: not for this type. */
typedef enum heed_join { HEED_JOIN_ADD, HEED_JOIN_MUL, HEED_JOIN_MIN, HEED_JOIN_MAX, HEED_JOINS } heed_join;
heed_line_fn *heed_join_line(heed_join how, heed_dtype type);

#define HEED_LINE_LOOP(R, value, expr)                                                                                           \
    HEED_IVDEP                                                                                                                   \
    for (int64_t k = 0; k < n; k++) {                                                                                            \
        value;                                                                                                                   \
        ((R *) at[0])[k] = (R) (expr);                                                                                           \
    }

#define HEED_LINE1(name, T, R, expr)                                                                                             \
    static void name(char *const *at, const int64_t *steps, int64_t n)                                                           \
    {                                                                                                                            \
        if (steps[1] == (int64_t) sizeof(T)) {                                                                                   \
            HEED_LINE_LOOP(R, const T x = ((const T *) at[1])[k], expr)                                                          \
        } else {                                                                                                                 \
            for (int64_t k = 0; k < n; k++) {                                                                                    \
                const T x = *(const T *) (at[1] + k * steps[1]);                                                                 \
                ((R *) at[0])[k] = (R) (expr);                                                                                   \
            }                                                                                                                    \
        }                                                                                                                        \
    }

#define HEED_LINE2(name, T, R, expr)                                                                                             \
    static void name(char *const *at, const int64_t *steps, int64_t n)                                                           \
    {                                                                                                                            \
        if (steps[1] == (int64_t) sizeof(T) && steps[2] == (int64_t) sizeof(T)) {                                                \
            HEED_LINE_LOOP(R, const T x = ((const T *) at[1])[k]; const T y = ((const T *) at[2])[k], expr)                      \
        } else if (steps[1] == (int64_t) sizeof(T) && steps[2] == 0) {                                                           \
            const T y = *(const T *) at[2];                                                                                      \
            HEED_LINE_LOOP(R, const T x = ((const T *) at[1])[k], expr)                                                          \
        } else if (steps[1] == 0 && steps[2] == (int64_t) sizeof(T)) {                                                           \
            const T x = *(const T *) at[1];                                                                                      \
            HEED_LINE_LOOP(R, const T y = ((const T *) at[2])[k], expr)                                                          \
        } else {                                                                                                                 \
            for (int64_t k = 0; k < n; k++) {                                                                                    \
                const T x = *(const T *) (at[1] + k * steps[1]);                                                                 \
                const T y = *(const T *) (at[2] + k * steps[2]);                                                                 \
                ((R *) at[0])[k] = (R) (expr);                                                                                   \
            }                                                                                                                    \
        }                                                                                                                        \
    }

/* A function per type, named NAME_i8 .. NAME_u64, and a table entry for each. R: `same` type or one type for all. */
#define HEED_SIGNED_LINES(LINE, name, expr)                                                                                      \
    LINE(name##_i8, int8_t, int8_t, expr)                                                                                        \
    LINE(name##_i16, int16_t, int16_t, expr)                                                                                     \
    LINE(name##_i32, int32_t, int32_t, expr)                                                                                     \
    LINE(name##_i64, int64_t, int64_t, expr)
#define HEED_UNSIGNED_LINES(LINE, name, expr)                                                                                    \
    LINE(name##_u8, uint8_t, uint8_t, expr)                                                                                      \
    LINE(name##_u16, uint16_t, uint16_t, expr)                                                                                   \
    LINE(name##_u32, uint32_t, uint32_t, expr)                                                                                   \
    LINE(name##_u64, uint64_t, uint64_t, expr)
#define HEED_TRUTH_LINES(LINE, name, expr)                                                                                       \
    LINE(name##_f32, float, uint8_t, expr)                                                                                       \
    LINE(name##_f64, double, uint8_t, expr)                                                                                      \
    LINE(name##_i8, int8_t, uint8_t, expr)                                                                                       \
    LINE(name##_i16, int16_t, uint8_t, expr)                                                                                     \
    LINE(name##_i32, int32_t, uint8_t, expr)                                                                                     \
    LINE(name##_i64, int64_t, uint8_t, expr)                                                                                     \
    LINE(name##_u8, uint8_t, uint8_t, expr)                                                                                      \
    LINE(name##_u16, uint16_t, uint8_t, expr)                                                                                    \
    LINE(name##_u32, uint32_t, uint8_t, expr)                                                                                    \
    LINE(name##_u64, uint64_t, uint8_t, expr)

#define HEED_FLOAT_TABLE(name) [HEED_F32] = name##_f32, [HEED_F16] = name##_f32, [HEED_BF16] = name##_f32, [HEED_F64] = name##_f64
#define HEED_SIGNED_TABLE(name) [HEED_I8] = name##_i8, [HEED_I16] = name##_i16, [HEED_I32] = name##_i32, [HEED_I64] = name##_i64
#define HEED_UNSIGNED_TABLE(name) [HEED_U8] = name##_u8, [HEED_U16] = name##_u16, [HEED_U32] = name##_u32, [HEED_U64] = name##_u64

/* out[0]'s entries from those of in[0] and in[1], broadcast, where both are entries of shapes. fn gives HEED_DIM_UNKNOWN for
 * what it cannot say. */
typedef int64_t heed_combine_fn(heed_infer *i, int64_t a, int64_t b);
heed_status heed_infer_combine_ints(heed_infer *i, heed_combine_fn *fn);

#endif
