/* row.h -- iterate over the rows of a call; read rows of real, half types or int8 as `real`, write real or half types.
 *
 * Operands broadcast over the leading axes of a call, its loop axes. A row is one index along these axes.
 *
 *     for (pe_row row = row_at(call, begin); row.index < end; row_next(call, &row)) { ... row.data[OPERAND] ... }
 */
#ifndef PE_ROW_H
#define PE_ROW_H

#include "base/half.h"

typedef struct {
    idx index, at[PE_LOOPS]; /* index along the flattened loop axes, and along each axis */
    char *data[PE_ARRAYS];   /* address of this row in each operand; NULL if the operand is absent */
} pe_row;

INLINE idx count_rows(const pe_call *call)
{
    idx rows = 1;
    for (int a = 0; a < call->nloops; a++)
        rows *= call->shape[a];
    return rows;
}

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

INLINE double *as_doubles(char *data) { return (double *)(void *)data; }
INLINE real *as_reals(char *data) { return (real *)(void *)data; }

INLINE idx storage_size(pe_storage storage)
{
    return storage == PE_F32                        ? 4
           : storage == PE_F64 || storage == PE_I64 ? 8
           : storage == PE_BOOL || storage == PE_I8 ? 1
                                                    : 2;
}

/* Return whether numbers are stored as real. No call in double has operands of another type that takes its place. */
INLINE int is_real(pe_storage storage) { return PE_REAL == 64 || storage == PE_STORAGE; }

/* out[i] = codes[i] * scale, for int8 codes */
static NOINLINE void widen_codes(const char *codes, idx n, real scale, real *restrict out)
{
    SIMD
    for (idx i = 0; i < n; i++)
        out[i] = (real)(signed char)codes[i] * scale;
}

/* Return the row itself if it is stored as real. Else widen it into scratch. */
INLINE const real *row_read(const char *data, pe_storage storage, idx n, real *scratch)
{
    if (is_real(storage))
        return (const real *)(const void *)data;
    if (storage == PE_I8)
        widen_codes(data, n, 1, scratch);
    else if (storage == PE_BF16)
        FN(widen_bf16_row)((const uint16_t *)(const void *)data, n, scratch);
    else
        FN(widen_f16_row)((const uint16_t *)(const void *)data, n, scratch);
    return scratch;
}

/* Copy a stored row to `out`, as real. */
INLINE void row_load(const char *data, pe_storage storage, idx n, real *out)
{
    const real *row = row_read(data, storage, n, out);
    if (row != out)
        memcpy(out, row, (size_t)n * sizeof *row);
}

INLINE void zero_reals(real *x, idx n) { memset(x, 0, (size_t)n * sizeof *x); }
/* No SIMD: compilers vectorize the loop without it, and clang warns about SIMD if a constant n is too small. */
INLINE void add_reals(real *restrict to, const real *restrict x, idx n)
{
    for (idx i = 0; i < n; i++)
        to[i] += x[i];
}

/* The address at which to compute a row of an output: data if the output is stored as real, else scratch. The caller
 * then calls row_write, which narrows a row from scratch into data, and does nothing if the storage is real. */
INLINE real *row_target(char *data, pe_storage storage, real *scratch)
{
    return is_real(storage) ? as_reals(data) : scratch;
}

INLINE void row_write(const real *row, char *data, pe_storage storage, idx n)
{
    if (PE_REAL == 32 && storage == PE_BF16)
        FN(narrow_bf16_row)(row, n, (uint16_t *)(void *)data);
    else if (PE_REAL == 32 && storage == PE_F16)
        FN(narrow_f16_row)(row, n, (uint16_t *)(void *)data);
}

/* Copy or narrow a row that was computed at another address than data. */
INLINE void row_store(const real *row, char *data, pe_storage storage, idx n)
{
    if (is_real(storage))
        memcpy(data, row, (size_t)n * sizeof *row);
    else
        row_write(row, data, storage, n);
}

/* Address of entry (i, j) along an operand's first two named axes; data is the address of entry (0, 0) */
INLINE char *entry_at(const pe_array *a, char *data, idx i, idx j) { return data + i * a->core[0] + j * a->core[1]; }

/* One number as double, of any storage except int8; a bool is 0 or 1. */
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

/* The sums of this block of units in an output that is summed over all rows ("+" in ops.def). The binding adds the
 * sums of the blocks. */
INLINE double *block_sums(const pe_call *call, int operand, const pe_work *work)
{
    return as_doubles(call->array[operand].data + work->block * call->array[operand].loop[0]);
}

/* Return whether the caller wants the kernel to return at once. */
INLINE int stop_requested(const pe_call *call) { return call->stop && call->stop(call); }

/* The same for a loop that skips an item, such as a masked tile: a poll may take longer than the skip. */
INLINE int stop_requested_at(const pe_call *call, idx skipped) { return skipped % 1024 == 0 && stop_requested(call); }

#endif
