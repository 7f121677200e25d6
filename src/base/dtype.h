/* base/dtype.h - element types: the small internal enum, its size and name, and its DLPack form. */
#ifndef HEED_BASE_DTYPE_H
#define HEED_BASE_DTYPE_H

#include <dlpack/dlpack.h>
#include <stddef.h>

typedef enum heed_dtype {
    HEED_DTYPE_NONE = 0, /* unknown */
    HEED_F32,
    HEED_F16,
    HEED_BF16,
    HEED_F64,
    HEED_I8,
    HEED_I16,
    HEED_I32,
    HEED_I64,
    HEED_U8,
    HEED_U16,
    HEED_U32,
    HEED_U64,
    HEED_BOOL, /* one byte, 0 or 1 */
    HEED_DTYPE_COUNT
} heed_dtype;

size_t heed_dtype_size(heed_dtype type);      /* bytes, 0 for none */
const char *heed_dtype_name(heed_dtype type); /* "f32", "i64", "bool", "?" */
int heed_dtype_is_float(heed_dtype type);     /* f32, f16, bf16, f64 */
int heed_dtype_is_integer(heed_dtype type);   /* signed and unsigned, without bool */

#define HEED_DL_BOOL 6 /* DLPack's code for bool, newer than some headers */

/* HEED_DTYPE_NONE for what heed does not know. bool is code 6; u8 stays u8. */
heed_dtype heed_dtype_from_dl(DLDataType type);
DLDataType heed_dtype_to_dl(heed_dtype type);

#endif
