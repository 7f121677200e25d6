/* One table of element types. */
#include "base/dtype.h"

static const struct {
    const char *name;
    unsigned char size, code, bits;
} types[HEED_DTYPE_COUNT] = {
    [HEED_DTYPE_NONE] = { "?", 0, 0, 0 },    [HEED_F32] = { "f32", 4, kDLFloat, 32 },
    [HEED_F16] = { "f16", 2, kDLFloat, 16 }, [HEED_BF16] = { "bf16", 2, kDLBfloat, 16 },
    [HEED_F64] = { "f64", 8, kDLFloat, 64 }, [HEED_I8] = { "i8", 1, kDLInt, 8 },
    [HEED_I16] = { "i16", 2, kDLInt, 16 },   [HEED_I32] = { "i32", 4, kDLInt, 32 },
    [HEED_I64] = { "i64", 8, kDLInt, 64 },   [HEED_U8] = { "u8", 1, kDLUInt, 8 },
    [HEED_U16] = { "u16", 2, kDLUInt, 16 },  [HEED_U32] = { "u32", 4, kDLUInt, 32 },
    [HEED_U64] = { "u64", 8, kDLUInt, 64 },  [HEED_BOOL] = { "bool", 1, HEED_DL_BOOL, 8 },
};

size_t heed_dtype_size(heed_dtype type)
{
    return types[type].size;
}

const char *heed_dtype_name(heed_dtype type)
{
    return types[type].name;
}

int heed_dtype_is_float(heed_dtype type)
{
    return type >= HEED_F32 && type <= HEED_F64;
}

int heed_dtype_is_integer(heed_dtype type)
{
    return type >= HEED_I8 && type <= HEED_U64;
}

heed_dtype heed_dtype_from_dl(DLDataType type)
{
    if (type.lanes != 1) return HEED_DTYPE_NONE;
    for (int i = HEED_F32; i < HEED_DTYPE_COUNT; i++)
        if (types[i].code == type.code && types[i].bits == type.bits) return (heed_dtype) i;
    return HEED_DTYPE_NONE;
}

DLDataType heed_dtype_to_dl(heed_dtype type)
{
    return (DLDataType){ .code = types[type].code, .bits = types[type].bits, .lanes = 1 };
}
