/* panel.h -- the steps that attention, its gradient and the logits share: softcap, bias and exponentials of a panel,
 * and rows of keys, values and queries as reals.
 *
 *     rows in memory (any storage, any stride)  --tile_rows-->  rows of reals  --product.h-->  scores
 *     rows of queries                           --pack_queries-->  channels x lanes
 *
 * Rows of reals are read in place. Rows of other storage are widened into a copy of one tile, which stays in cache.
 */
#ifndef PE_PANEL_H
#define PE_PANEL_H

#include "tile/tile.h"

#include <math.h>

/* Padding of a row of a copy, in numbers, so that vector loads may pass its end and rows use different cache sets. */
enum { ROW_PAD = 16 };

/* s = cap tanh(s / cap) */
void FN(cap)(real *s, int n, real cap);
/* s = factor s + bias for n keys, and update the running maximum m, unless it is NULL. With a softcap, the bias follows
 * the cap, so attention calls this instead of passing the bias to FN(scores). */
void FN(add_bias)(real *s, int n, int width, real factor, const pe_panel_bias *bias, real *m);
/* s = exp(s - m), l += sum of s over n keys, for each lane */
void FN(exponentials)(real *s, const real *m, int n, int width, real *l);

/* Stored rows, `step` bytes apart. Rows of int8 have one scale each, or NULL if all scales are 1. */
typedef struct {
    const char *data;
    idx step;
    pe_storage storage;
    const char *scale;
    idx scale_step;
    pe_storage scale_storage;
} pe_rows;

INLINE pe_rows plain_rows(const char *data, idx step, pe_storage storage)
{
    return (pe_rows){.data = data, .step = step, .storage = storage};
}

INLINE real scale_of_row(const pe_rows *r, idx j)
{
    return PE_REAL == 32 && r->scale ? (real)scalar_read(r->scale + j * r->scale_step, r->scale_storage) : 1;
}

/* The rows of the kv head from `key` on; operand is A_K or A_V. */
INLINE pe_rows rows_of_keys(const pe_query_block *queries, int operand, idx key)
{
    const pe_array *a = &queries->call->array[operand];
    const int scales = operand == A_K ? A_K_SCALE : A_V_SCALE;
    pe_rows r = plain_rows(key_row(queries, operand, key), a->core[1], a->storage);
    if (PE_REAL == 32 && a->storage == PE_I8 && queries->batch_row.data[scales]) {
        r.scale = key_row(queries, scales, key);
        r.scale_step = queries->call->array[scales].core[1];
        r.scale_storage = queries->call->array[scales].storage;
    }
    return r;
}

/* Row j as real, times its scale: the stored row itself if it is real, else in `buffer` */
INLINE const real *real_row_of(const pe_rows *r, idx j, int width, real *buffer)
{
    const char *row = r->data + j * r->step;
    if (PE_REAL == 64 || r->storage != PE_I8)
        return row_read(row, r->storage, width, buffer);
    widen_codes(row, width, scale_of_row(r, j), buffer);
    return buffer;
}

/* n rows of a tile as real: the stored rows themselves if they are real, else in `copy`. Rows 4096 bytes apart share
 * one set of the first-level cache, so they are copied if more than one panel reads them. Other rows gain nothing by a
 * copy. */
pe_lines FN(tile_rows)(pe_rows stored, int n, int width, int panels, real *copy);
/* Copy the rows, with 0 in place of nonfinite numbers. The products multiply a number also by the weight 0 of lanes
 * that do not see its key, and 0 * NaN is NaN. The caller adds nonfinite numbers later, for lanes that see the key. */
pe_lines FN(finite_rows)(pe_rows stored, int n, int width, real *copy);
/* Write rows of queries, times scale, to the lanes of all panels; `copy` is a buffer of a tile. */
void FN(pack_queries)(const pe_query_block *queries, int operand, int n, real scale, real *copy, real *out);

/* The inverse of pack_queries: write scale x / divisor to the rows of an output for one head. Return whether all
 * numbers are finite. */
int FN(unpack_queries)(const pe_query_block *queries, idx head, int operand, int n, const real *x, real scale,
                       const real *divisor, real *copy);

#endif
