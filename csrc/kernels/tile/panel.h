/* panel.h -- the steps that attention, its gradient and the logits share: softcap, bias and exponentials of a panel,
 * and rows of keys, values and queries as reals.
 *
 *     rows in memory (any storage, any stride)  --tile_rows-->  rows of reals  --gemm.h-->  scores
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
/* s = factor s + bias for n keys, and update the running maximum m. `factor` has a number per lane, or is NULL. With a
 * softcap, the bias follows the cap, so attention calls this instead of passing the bias to FN(scores). */
void FN(add_bias)(real *s, int n, int width, const real *factor, const pe_panel_bias *bias, real *m);
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
    return r->scale ? (real)scalar_read(r->scale + j * r->scale_step, r->scale_storage) : 1;
}

/* The rows of the kv head from `key` on; operand is A_K or A_V. */
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

/* Row j as real, times its scale: the stored row itself if it is real, else in `buffer` */
INLINE const real *real_row_of(const pe_rows *r, idx j, int width, real *buffer)
{
    const char *row = r->data + j * r->step;
    if (r->storage != PE_I8)
        return row_read(row, r->storage, width, buffer);
    widen_codes(row, width, scale_of_row(r, j), buffer);
    return buffer;
}

/* n rows of a tile as real: the stored rows themselves if they are real, else in `copy`. Rows 4096 bytes apart share
 * one set of the first-level cache, so they are copied if more than one panel reads them. If rows are 2048 bytes apart,
 * copying them and reading them in place take equal time. If every tile is copied, attention takes 1.05 times the time.
 */
pe_rows FN(tile_rows)(pe_rows stored, int n, int width, int panels, real *copy);
/* Copy the rows, with 0 in place of nonfinite numbers. The products multiply a number also by the weight 0 of lanes
 * that do not see its key, and 0 * NaN is NaN. The caller adds nonfinite numbers later, for lanes that see the key. */
pe_rows FN(finite_rows)(pe_rows stored, int n, int width, real *copy);
/* Write rows of queries, times scale, to the lanes of all panels; `copy` is a buffer of a tile. */
void FN(pack_queries)(const pe_query_block *queries, int operand, int n, real scale, real *copy, real *out);

/* A packed query, times scale, is in range if the exponent of its largest number is at most HIGHEST
 * (HIGHEST_OF_CODES for keys of int8) and above LEAST (panel.c). Below, numbers that underflow could matter: large keys
 * lift their products to ordinary scores. */
enum { HIGHEST = PE_REAL == 32 ? 127 : 1023, HIGHEST_OF_CODES = 96 };
/* The cheap test, by the sum of the squares of a query. If it returns 1, the query is in range; if 0, row_in_range
 * decides. */
INLINE int squares_in_range(real sum) { return sum >= (PE_REAL == 32 ? R(0x1p-100) : R(0x1p-120)) && is_finite(sum); }
/* The exact test, for n numbers and a scale. Rows of zeros or with infinity are in range: no factor helps them. */
int FN(row_in_range)(const real *row, int n, double scale, int highest);
/* The largest |x| of a row, without its NaNs. */
real FN(largest_of)(const real *row, int n);
/* Pack A_Q times `scale` as pack_queries does, but keep each query in range. If late[l] is not 1, the numbers of lane l
 * are divided by late[l], a power of two, and the caller multiplies the scores of the lane by it. Return whether there
 * is such a lane. A lane with late[l] = 1 has the bits of pack_queries. `added` is the largest number that the caller
 * adds to a query before the product, times scale / late[l]; it stays in range too. `highest` is HIGHEST, or less. */
int FN(pack_in_range)(const pe_query_block *queries, int n, double scale, real added, int highest, real *copy,
                      real *out, real *late);

/* The scale multiplies a product x.y after its sum, unless the scale is extreme. If it is not, a sum that leaves the
 * range of real is no ordinary score after the multiplication either. */
INLINE int is_extreme(double scale)
{
    const double size = scale < 0 ? -scale : scale;
    return size != 0 && (size < 0x1p-41 || size >= 0x1p40);
}
/* Split a scale into a power of two that multiplies x, and the rest, which multiplies the sum x.y: x gets all of a
 * large scale, and half of the exponent of a small one. */
INLINE void split_scale(double scale, real *early, real *rest)
{
    int exponent;
    (void)frexp(scale, &exponent);
    const int power = exponent > 0 ? exponent - 1 : (int)max_(exponent / 2, -126);
    *early = (real)ldexp(1, power);
    *rest = (real)ldexp(scale, -power);
}
/* For an extreme scale: pack rows of reals as pack_in_range does, every row with its own late[l]. */
void FN(pack_rows_in_range)(const char *rows, idx step, int lanes, int n, double scale, int width, real *out,
                            real *late);
/* x[j][lane] *= factor[lane] for n rows */
void FN(multiply_lanes)(real *x, const real *factor, int n, int width);
/* The inverse of pack_queries: write scale x / divisor to the rows of an output for one head. Return whether all
 * numbers are finite. */
int FN(unpack_queries)(const pe_query_block *queries, idx head, int operand, int n, const real *x, real scale,
                       const real *divisor, real *copy);

#endif
