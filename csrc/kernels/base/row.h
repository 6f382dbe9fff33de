/* row.h -- walking the rows of a call, and rows as `real` whatever they are stored in.
 *
 *     for (pe_row r = row_at(call, begin); r.index < end; row_next(call, &r)) { ... r.data[operand] ... }
 */
#ifndef PE_ROW_H
#define PE_ROW_H

#include "base/half.h"

typedef struct {
    idx index, at[PE_LOOPS];
    char *data[PE_ARRAYS];
} pe_row;

INLINE pe_row row_at(const pe_call *call, idx index)
{
    pe_row r;
    idx rest = index;
    r.index = index;
    for (int k = 0; k < call->narrays; k++)
        r.data[k] = call->array[k].data;
    for (int a = call->nloops - 1; a >= 0; a--) {
        r.at[a] = rest % call->shape[a];
        rest /= call->shape[a];
        for (int k = 0; k < call->narrays; k++)
            if (r.data[k])
                r.data[k] += r.at[a] * call->array[k].loop[a];
    }
    return r;
}

INLINE void row_next(const pe_call *call, pe_row *r)
{
    r->index++;
    for (int a = call->nloops - 1; a >= 0; a--) {
        const int wraps = ++r->at[a] == call->shape[a];
        for (int k = 0; k < call->narrays; k++) {
            const idx step = call->array[k].loop[a];
            if (r->data[k])
                r->data[k] += wraps ? -step * (call->shape[a] - 1) : step;
        }
        if (!wraps)
            return;
        r->at[a] = 0;
    }
}

/* A stored row as real: itself where it is real already, else widened into scratch. */
INLINE const real *row_read(const char *data, pe_storage storage, idx n, real *scratch)
{
    if (storage == PE_STORAGE)
        return (const real *)(const void *)data;
    if (storage == PE_BF16)
        widen_bf16_row((const uint16_t *)(const void *)data, n, scratch);
    else
        widen_f16_row((const uint16_t *)(const void *)data, n, scratch);
    return scratch;
}

/* Where to compute a row that will be stored in data: there, or in scratch for row_write to narrow. */
INLINE real *row_target(char *data, pe_storage storage, real *scratch)
{
    return storage == PE_STORAGE ? (real *)(void *)data : scratch;
}

INLINE void row_write(const real *row, char *data, pe_storage storage, idx n)
{
    if (storage == PE_BF16)
        narrow_bf16_row(row, n, (uint16_t *)(void *)data);
    else if (storage == PE_F16)
        narrow_f16_row(row, n, (uint16_t *)(void *)data);
}

INLINE idx storage_size(pe_storage storage)
{
    return storage == PE_F32 ? 4 : storage == PE_F64 || storage == PE_I64 ? 8 : storage == PE_BOOL ? 1 : 2;
}

/* One number of any storage that kernels meet, as double. */
INLINE double scalar_read(const char *data, pe_storage storage)
{
    double f64;
    float f32;
    int64_t i64;
    uint16_t half;
    switch (storage) {
    case PE_F64: memcpy(&f64, data, 8); return f64;
    case PE_F32: memcpy(&f32, data, 4); return (double)f32;
    case PE_I64: memcpy(&i64, data, 8); return (double)i64;
    case PE_BF16: memcpy(&half, data, 2); return (double)widen_bf16(half);
    case PE_F16: memcpy(&half, data, 2); return (double)widen_f16(half);
    default: return (double)*(const unsigned char *)data;
    }
}

#endif
