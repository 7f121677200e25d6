/* Comparisons, logic and bits. Their results are 0 or 1 in a byte; a bool of another value than 0 counts as true. */
#include "ops/lines.h"

#define COMPARE(name, expr)                                                                                                      \
    HEED_TRUTH_LINES(HEED_LINE2, name, expr)                                                                                     \
    HEED_LINE2(name##_bool, uint8_t, uint8_t, expr)                                                                              \
    static heed_line_fn *const name##_lines[HEED_DTYPE_COUNT] = { HEED_FLOAT_TABLE(name), HEED_SIGNED_TABLE(name),               \
                                                                  HEED_UNSIGNED_TABLE(name), [HEED_BOOL] = name##_bool };

COMPARE(equal, x == y)
COMPARE(less, x < y)
COMPARE(less_equal, x <= y)
COMPARE(greater, x > y)
COMPARE(greater_equal, x >= y)

#define LOGIC(name, expr)                                                                                                        \
    HEED_LINE2(name##_bool, uint8_t, uint8_t, expr)                                                                              \
    static heed_line_fn *const name##_lines[HEED_DTYPE_COUNT] = { [HEED_BOOL] = name##_bool };

LOGIC(and, x &&y)
LOGIC(or, x || y)
LOGIC(xor, !x != !y)

#define BITS(name, op)                                                                                                           \
    HEED_UNSIGNED_LINES(HEED_LINE2, name, (x op y))                                                                              \
    static heed_line_fn *const name##_lines[HEED_DTYPE_COUNT] = {                                                                \
        HEED_UNSIGNED_TABLE(name), [HEED_I8] = name##_u8, [HEED_I16] = name##_u16, [HEED_I32] = name##_u32,                      \
        [HEED_I64] = name##_u64                                                                                                  \
    };

BITS(bit_and, &)
BITS(bit_or, |)
BITS(bit_xor, ^)

/* Shifts by the width of the type or more, and by a negative number, push everything out: 0 is left, or the sign. */
HEED_UNSIGNED_LINES(HEED_LINE2, shift_left, y < 8 * sizeof x ? (uint64_t) x << y : 0)
HEED_UNSIGNED_LINES(HEED_LINE2, shift_right, y < 8 * sizeof x ? x >> y : 0)
HEED_SIGNED_LINES(HEED_LINE2, shift_left, (uint64_t) y < 8 * sizeof x ? (uint64_t) x << y : 0)
HEED_SIGNED_LINES(HEED_LINE2, shift_right, (uint64_t) y < 8 * sizeof x ? x >> y : x >> (8 * sizeof x - 1))
static heed_line_fn *const shift_left_lines[HEED_DTYPE_COUNT] = { HEED_UNSIGNED_TABLE(shift_left),
                                                                  HEED_SIGNED_TABLE(shift_left) };
static heed_line_fn *const shift_right_lines[HEED_DTYPE_COUNT] = { HEED_UNSIGNED_TABLE(shift_right),
                                                                   HEED_SIGNED_TABLE(shift_right) };

HEED_LINE1(not_bool, uint8_t, uint8_t, !x)
static heed_line_fn *const not_lines[HEED_DTYPE_COUNT] = { [HEED_BOOL] = not_bool };
HEED_UNSIGNED_LINES(HEED_LINE1, bit_not, ~x)
static heed_line_fn *const bit_not_lines[HEED_DTYPE_COUNT] = {
    HEED_UNSIGNED_TABLE(bit_not), [HEED_I8] = bit_not_u8, [HEED_I16] = bit_not_u16, [HEED_I32] = bit_not_u32,
    [HEED_I64] = bit_not_u64
};

/* ---- rules: what entries of shapes prove ---- */

/* 1 if a < b for certain: with symbols, where b - a - 1 cannot be negative. */
static int surely_less(heed_infer *i, int64_t a, int64_t b)
{
    int64_t x, y;
    if (heed_dims_known(i->dims, a, &x) && heed_dims_known(i->dims, b, &y)) return x < y;
    return heed_infer_not_negative(i, heed_dims_sub(i->dims, heed_dims_sub(i->dims, b, a), 1));
}

static int64_t ints_less(heed_infer *i, int64_t a, int64_t b)
{
    if (surely_less(i, a, b)) return 1;
    if (a == b || surely_less(i, b, a)) return 0;
    return heed_infer_not_negative(i, heed_dims_sub(i->dims, a, b)) ? 0 : HEED_DIM_UNKNOWN;
}

static int64_t ints_equal(heed_infer *i, int64_t a, int64_t b)
{
    if (a == b) return 1;
    return surely_less(i, a, b) || surely_less(i, b, a) ? 0 : HEED_DIM_UNKNOWN;
}

static int64_t opposite(int64_t truth)
{
    return truth == HEED_DIM_UNKNOWN ? truth : !truth;
}

static int64_t ints_greater(heed_infer *i, int64_t a, int64_t b)
{
    return ints_less(i, b, a);
}

static int64_t ints_less_equal(heed_infer *i, int64_t a, int64_t b)
{
    return opposite(ints_less(i, b, a));
}

static int64_t ints_greater_equal(heed_infer *i, int64_t a, int64_t b)
{
    return opposite(ints_less(i, a, b));
}

/* Truth values: 0, 1, or a symbol, which is a truth value not known. */
static int64_t ints_and(heed_infer *i, int64_t a, int64_t b)
{
    (void) i;
    if (a == 0 || b == 0) return 0;
    return a == 1 ? b : b == 1 ? a : HEED_DIM_UNKNOWN;
}

static int64_t ints_or(heed_infer *i, int64_t a, int64_t b)
{
    (void) i;
    if (a == 1 || b == 1) return 1;
    return a == 0 ? b : b == 0 ? a : HEED_DIM_UNKNOWN;
}

static int64_t ints_xor(heed_infer *i, int64_t a, int64_t b)
{
    (void) i;
    return a >= 0 && b >= 0 ? a != b : HEED_DIM_UNKNOWN;
}

static heed_status infer_truth(heed_infer *i, heed_combine_fn *fn)
{
    HEED_TRY(heed_infer_broadcast(i));
    i->out[0].dtype = HEED_BOOL;
    return heed_infer_combine_ints(i, fn);
}

#define BINARY(name)                                                                                                             \
    static heed_status infer_##name(heed_infer *i)                                                                               \
    {                                                                                                                            \
        return infer_truth(i, ints_##name);                                                                                      \
    }                                                                                                                            \
    static heed_status compute_##name(heed_compute *c)                                                                           \
    {                                                                                                                            \
        return heed_compute_lines(c, 2, name##_lines);                                                                           \
    }

BINARY(equal)
BINARY(less)
BINARY(less_equal)
BINARY(greater)
BINARY(greater_equal)
BINARY(and)
BINARY(or)
BINARY(xor)

static heed_status infer_not(heed_infer *i)
{
    HEED_TRY(heed_infer_same(i));
    const int64_t *a;
    int n;
    if (i->out[0].rank < 0 || i->out[0].rank > 1 || !heed_infer_ints(i, 0, &a, &n)) return HEED_OK;
    int64_t *ints = heed_infer_new_ints(i, n);
    if (!ints) return heed_infer_memory(i);
    for (int k = 0; k < n; k++) ints[k] = a[k] < 0 ? HEED_DIM_UNKNOWN : !a[k];
    return heed_infer_set_ints(i, 0, i->out[0].rank, ints, n);
}

static heed_status compute_not(heed_compute *c)
{
    return heed_compute_lines(c, 1, not_lines);
}

static heed_status compute_bit_and(heed_compute *c)
{
    return heed_compute_lines(c, 2, bit_and_lines);
}

static heed_status compute_bit_or(heed_compute *c)
{
    return heed_compute_lines(c, 2, bit_or_lines);
}

static heed_status compute_bit_xor(heed_compute *c)
{
    return heed_compute_lines(c, 2, bit_xor_lines);
}

static heed_status compute_bit_not(heed_compute *c)
{
    return heed_compute_lines(c, 1, bit_not_lines);
}

/* 1: left, 0: right, -1: neither. */
static int direction(const heed_node *node)
{
    const char *text = heed_node_string(node, "direction", "");
    return *text == 'L' ? 1 : *text == 'R' ? 0 : -1;
}

static heed_status infer_shift(heed_infer *i)
{
    if (direction(i->node) < 0)
        return heed_infer_fail(i, "direction is '%s', expected LEFT or RIGHT", heed_node_string(i->node, "direction", ""));
    return heed_infer_broadcast(i);
}

static heed_status compute_shift(heed_compute *c)
{
    return heed_compute_lines(c, 2, direction(c->node) ? shift_left_lines : shift_right_lines);
}

#define TWO(op, since, rule, run, more)                                                                                          \
    HEED_OP(op, since, 2, 2, 1, .flags = HEED_OP_STRIDED | (more), .infer = rule, .compute = run)
#define ONE(op, since, rule, run)                                                                                                \
    HEED_OP(op, since, 1, 1, 1, .flags = HEED_OP_STRIDED | HEED_OP_INPLACE, .infer = rule, .compute = run)

const heed_op heed_ops_compare[] = {
    TWO("Equal", 7, infer_equal, compute_equal, HEED_OP_COMMUTES),
    TWO("Less", 7, infer_less, compute_less, 0),
    TWO("LessOrEqual", 12, infer_less_equal, compute_less_equal, 0),
    TWO("Greater", 7, infer_greater, compute_greater, 0),
    TWO("GreaterOrEqual", 12, infer_greater_equal, compute_greater_equal, 0),
    TWO("And", 7, infer_and, compute_and, HEED_OP_COMMUTES | HEED_OP_INPLACE),
    TWO("Or", 7, infer_or, compute_or, HEED_OP_COMMUTES | HEED_OP_INPLACE),
    TWO("Xor", 7, infer_xor, compute_xor, HEED_OP_COMMUTES | HEED_OP_INPLACE),
    ONE("Not", 1, infer_not, compute_not),
    TWO("BitwiseAnd", 18, heed_infer_broadcast, compute_bit_and, HEED_OP_COMMUTES | HEED_OP_INPLACE),
    TWO("BitwiseOr", 18, heed_infer_broadcast, compute_bit_or, HEED_OP_COMMUTES | HEED_OP_INPLACE),
    TWO("BitwiseXor", 18, heed_infer_broadcast, compute_bit_xor, HEED_OP_COMMUTES | HEED_OP_INPLACE),
    ONE("BitwiseNot", 18, heed_infer_same, compute_bit_not),
    TWO("BitShift", 11, infer_shift, compute_shift, HEED_OP_INPLACE),
    { 0 },
};
