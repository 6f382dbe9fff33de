/* panel.h -- the steps that attention, its gradient and the logits share: softcap, bias and exponentials of a panel,
 * and rows of keys, values and queries as reals.
 *
 *     rows in memory (any storage, any stride)  --tile_rows-->  rows of reals  --gemm.h-->  scores
 *     rows of queries                           --pack_queries-->  channels x lanes
 *
 * Rows of reals are used where the caller stores them. Other storage is copied tile by tile, so the copy stays in
 * cache.
 */
#ifndef PE_PANEL_H
#define PE_PANEL_H

#include "tile/tile.h"

/* Numbers between the rows of a copy: whole vectors may be read behind a row, and rows do not share a cache set. */
enum { ROW_PAD = 16 };

/* s = cap tanh(s / cap) */
void FN(cap)(real *s, int n, real cap);
/* Add the bias to n keys' scores, and take them into the running max m. If a softcap stands between product and bias,
 * this replaces the bias of the product (pe_scores). */
void FN(add_bias)(real *s, int n, int width, const pe_panel_bias *bias, real *m);
/* s = exp(s - m), and l += its sum over n keys, for each lane */
void FN(exponentials)(real *s, const real *m, int n, int width, real *l);

/* Rows as they are stored, `step` bytes apart. Rows of codes have scales, or NULL for scales of 1. */
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
    return r->scale ? (real)scalar_read(r->scale + j * r->scale_step, r->scale_storage) : 1;
}

/* The rows of a kv head from `key` on; operand is A_K or A_V. */
INLINE pe_rows rows_of_keys(const pe_query_block *queries, int operand, idx key)
{
    const pe_array *a = &queries->call->array[operand];
    const int scales = operand == A_K ? A_K_SCALE : A_V_SCALE;
    pe_rows r = plain_rows(key_row(queries, operand, key), a->core[1], a->storage);
    if (a->storage == PE_I8 && queries->batch_row.data[scales]) {
        r.scale = key_row(queries, scales, key);
        r.scale_step = queries->call->array[scales].core[1];
        r.scale_storage = queries->call->array[scales].storage;
    }
    return r;
}

/* Row j as real, dequantised: in its place, or in `buffer` */
INLINE const real *real_row_of(const pe_rows *r, idx j, int width, real *buffer)
{
    const char *row = r->data + j * r->step;
    if (r->storage != PE_I8)
        return row_read(row, r->storage, width, buffer);
    widen_codes(row, width, scale_of_row(r, j), buffer);
    return buffer;
}

/* n rows of a tile as real: in place if they are real, else in `copy`. Rows 4096 bytes apart share one set of the
 * first-level cache and are copied if more than one panel reads them (at 2048 bytes it is even; copying always takes
 * 1.05x the time). */
pe_rows FN(tile_rows)(pe_rows stored, int n, int width, int panels, real *copy);
/* A copy of the rows with 0 in place of numbers that are not finite. The products multiply every number by the weight
 * of every lane, and 0 * NaN is NaN also for a lane that may not see it; nonfinite numbers are added afterwards, to the
 * lanes that see them. */
pe_rows FN(finite_rows)(pe_rows stored, int n, int width, real *copy);
/* Rows of an operand of the queries on the lanes of panel after panel, times scale; `copy` holds a tile. */
void FN(pack_queries)(const pe_query_block *queries, int operand, int n, real scale, real *copy, real *out);
/* The inverse, to an output's rows of one head: scale x / divisor. Returns whether all of it is finite. */
int FN(unpack_queries)(const pe_query_block *queries, idx head, int operand, int n, const real *x, real scale,
                       const real *divisor, real *copy);

#endif
