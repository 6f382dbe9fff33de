/* embedding.c -- rows of a table (r,d): learned positions, hierarchical ones, of which r rows encode r * r, and sums.
 *
 *     learned        out = p_m
 *     hierarchical   out = a u_i + (1 - a) u_j,   u_k = (p_k - a p_0) / (1 - a),   m = i r + j
 *
 *     for (k < d)                                             hierarchical, with c = a / (1 - a)
 *         out[k] = i == 0 ? p[j][k] : p[j][k] + c * (p[i][k] - p[0][k]);
 *
 * Rows with i = 0 are copied bit for bit. Consecutive positions share i, so the offset c (p_i - p_0) is computed once
 * for each i. Python has checked the row numbers; the kernel clamps them again, because another thread may have
 * written to the caller's array since.
 */
#include "base/layout.h"
#include "base/row.h"
#include "fits.h"

static idx row_number_read(const char *data, idx rows)
{
    int64_t m;
    memcpy(&m, data, sizeof m);
    return m < 0 ? 0 : m >= rows ? rows - 1 : (idx)m;
}

KERNEL(learned)
{
    enum { TABLE, ROWS, OUT };
    const idx r = call->D(r), step = call->array[TABLE].core[0];
    const size_t bytes = (size_t)(call->D(d) * storage_size(call->array[TABLE].storage));
    if (r == 0)
        return;
    for (pe_row row = row_at(call, begin); row.index < end; row_next(call, &row))
        memcpy(row.data[OUT], row.data[TABLE] + row_number_read(row.data[ROWS], r) * step, bytes);
}

/* offset = c (p_i - p_0), in double and rounded once if real is float */
static void hierarchical_offset(const real *restrict p_i, const real *restrict p_0, double c, idx d,
                                real *restrict offset)
{
    SIMD
    for (idx k = 0; k < d; k++)
        offset[k] = (real)(c * ((double)p_i[k] - (double)p_0[k]));
}

static void add_offset(const real *restrict p_j, const real *restrict offset, idx d, real *restrict out)
{
    SIMD
    for (idx k = 0; k < d; k++)
        out[k] = p_j[k] + offset[k];
}

KERNEL(hierarchical)
{
    enum { TABLE, ROWS, OUT, ALPHA = 0 };
    const idx r = call->D(r), d = call->D(d), step = call->array[TABLE].core[0];
    const idx rows =
        r <= PTRDIFF_MAX / max_(r, 1) ? r * r : PTRDIFF_MAX; /* a table without columns may have 2**40 rows */
    const double alpha = call->par[ALPHA], c = alpha / (1 - alpha);
    const pe_storage storage = call->array[TABLE].storage;
    idx offset_of = 0; /* the i that `offset` was computed for; 0: none */
    real *offset = scratch_row(call, work, 0), *wide = scratch_row(call, work, 1);
    real *result = scratch_row(call, work, 2);
    if (r == 0)
        return;
    for (pe_row row = row_at(call, begin); row.index < end; row_next(call, &row)) {
        const char *table = row.data[TABLE];
        const idx m = row_number_read(row.data[ROWS], rows), i = m / r, j = m % r;
        if (i == 0) {
            memcpy(row.data[OUT], table + j * step, (size_t)(d * storage_size(storage)));
            continue;
        }
        if (i != offset_of) {
            const real *p_0 = row_read(table, storage, d, wide);
            hierarchical_offset(row_read(table + i * step, storage, d, result), p_0, c, d, offset);
            offset_of = i;
        }
        real *out = row_target(row.data[OUT], storage, result);
        add_offset(row_read(table + j * step, storage, d, wide), offset, d, out);
        row_write(out, row.data[OUT], storage, d);
    }
}

enum { POLL_ROWS = 1024 }; /* rows that a sum adds between two polls of call->stop */

static void add_rows(double *restrict sum, const real *restrict row, const double *weight, int n)
{
    const double factor = weight ? *weight : 1; /* a product with 1 is exact */
    SIMD
    for (int k = 0; k < n; k++)
        sum[k] = fma64(factor, (double)row[k], sum[k]);
}

/* Sums of rows:   out_r = sum_e weight_e x_e   over the entries first <= e < last of row r, of which entry e reads row
 * order_e of x. The sum is double, in the order of e; a row without entries is 0. Without WEIGHT, all weights are 1. A
 * table that is resampled is such a sum, and so are the gradients of tables, whose entries are sorted by their row. */
KERNEL(weighted_rows)
{
    enum { X, ORDER, WEIGHT, FIRST, LAST, OUT };
    const idx d = call->D(d), units = BLOCKS(d, SUM_COLUMNS), rows = call->D(n), entries = call->D(e);
    const pe_array *x = &call->array[X];
    const pe_storage storage = call->array[OUT].storage;
    real wide[SUM_COLUMNS], result[SUM_COLUMNS];
    double sum[SUM_COLUMNS];
    pe_row row = row_at(call, begin / max_(units, 1));
    for (idx unit = begin; unit < end; unit++) {
        const idx k0 = unit % units * SUM_COLUMNS;
        const int n = (int)min_(SUM_COLUMNS, d - k0);
        const double *weight = as_doubles(row.data[WEIGHT]);
        int64_t first, last;
        memcpy(&first, row.data[FIRST], sizeof first);
        memcpy(&last, row.data[LAST], sizeof last);
        first = first < 0 ? 0 : first;
        last = rows == 0 ? first : last > entries ? entries : last;
        for (int k = 0; k < n; k++)
            sum[k] = first < last ? -0.0 : 0.0; /* -0.0 + x is x, also where x is -0.0 */
        for (int64_t e = first; e < last; e++) {
            const idx r = row_number_read(row.data[ORDER] + e * (idx)sizeof e, rows);
            const char *from = row.data[X] + r * x->core[0] + k0 * storage_size(x->storage);
            add_rows(sum, row_read(from, x->storage, n, wide), weight ? weight + e : NULL, n);
            if ((e - first) % POLL_ROWS == POLL_ROWS - 1 && stop_requested(call)) /* one row may own all entries */
                return;
        }
        char *out = row.data[OUT] + k0 * storage_size(storage);
        real *target = row_target(out, storage, result);
        for (int k = 0; k < n; k++)
            target[k] = (real)sum[k];
        row_write(target, out, storage, n);
        if ((unit + 1) % units == 0)
            row_next(call, &row);
    }
}
