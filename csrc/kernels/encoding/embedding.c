/* embedding.c -- rows of a table: learned positions, and n rows that reach n n positions.
 *
 *     learned        out = p_m
 *     hierarchical   out = a u_i + (1 - a) u_j,   u_k = (p_k - a p_0) / (1 - a),   m = i n + j
 *                        = p_j + c (p_i - p_0),   c = a / (1 - a)
 *
 * The second form leaves p_j alone where i = 0; those rows are copied, bit for bit. Python has checked the ids. They
 * are clamped here all the same: the array is the caller's, who may write to it from another thread.
 */
#include "base/row_sum.h"

static idx row_of(const char *id, idx rows)
{
    int64_t m;
    memcpy(&m, id, sizeof m);
    return m < 0 ? 0 : m >= rows ? rows - 1 : (idx)m;
}

/* table(r,d) rows() -> out(d) */
void FN(learned)(const pe_call *call, idx begin, idx end, const pe_work *work)
{
    const idx r = call->D(r);
    const size_t bytes = (size_t)(call->D(d) * storage_size(call->array[0].storage));
    (void)work;
    if (r == 0)
        return;
    for (pe_row at = row_at(call, begin); at.index < end; row_next(call, &at))
        memcpy(at.data[2], at.data[0] + row_of(at.data[1], r) * call->array[0].core[0], bytes);
}

/* shift = c (p_i - p_0), rounded once from double where real is float */
static void shift_of(const real *restrict p_i, const real *restrict p_0, double c, idx d, real *restrict shift)
{
    SIMD
    for (idx k = 0; k < d; k++)
        shift[k] = (real)(c * ((double)p_i[k] - (double)p_0[k]));
}

static void shifted_row(const real *restrict p_j, const real *restrict shift, idx d, real *restrict out)
{
    SIMD
    for (idx k = 0; k < d; k++)
        out[k] = p_j[k] + shift[k];
}

/* table(r,d) rows() -> out(d); alpha */
void FN(hierarchical)(const pe_call *call, idx begin, idx end, const pe_work *work)
{
    const idx r = call->D(r), d = call->D(d), step = call->array[0].core[0];
    const double alpha = call->par[0], c = alpha / (1 - alpha);
    const pe_storage stored = call->array[0].storage;
    real *shift = work->scratch, *wide = shift + d, *room = wide + d;
    idx now = 0; /* the i that `shift` belongs to: consecutive positions share it */
    if (r == 0)
        return;
    for (pe_row at = row_at(call, begin); at.index < end; row_next(call, &at)) {
        const char *table = at.data[0];
        const idx m = row_of(at.data[1], r * r), i = m / r, j = m % r;
        if (i == 0) {
            memcpy(at.data[2], table + j * step, (size_t)(d * storage_size(stored)));
            continue;
        }
        if (i != now) {
            const real *p_0 = row_read(table, stored, d, wide);
            shift_of(row_read(table + i * step, stored, d, room), p_0, c, d, shift);
            now = i;
        }
        real *out = row_target(at.data[2], stored, room);
        shifted_row(row_read(table + j * step, stored, d, wide), shift, d, out);
        row_write(out, at.data[2], stored, d);
    }
}

/* From   out_e = sum_r weight_re p_r:   dp_r = sum_e weight_re grad_e, entries in order of position, in double.
 * grad(n,d) order(e) weight?(e) first() last() -> dtable(d) */
void FN(gather_rows)(const pe_call *call, idx begin, idx end, const pe_work *work)
{
    enum { LOOK = 1024 }; /* rows between two looks at call->stop: every entry may be of one row */
    const idx d = call->D(d), tiles = BLOCKS(d, ROW_TILE), step = call->array[0].core[0];
    const idx rows = call->D(n), entries = call->D(e);
    const pe_storage stored = call->array[0].storage, out_stored = call->array[5].storage;
    real wide[ROW_TILE], room[ROW_TILE];
    double sum[ROW_TILE];
    (void)work;
    pe_row at = row_at(call, begin / max_(tiles, 1));
    for (idx unit = begin; unit < end; unit++) {
        const idx k0 = tile_begin(unit, d);
        const int n = tile_width(k0, d);
        const int64_t *order = (const int64_t *)(const void *)at.data[1];
        const double *weight = (const double *)(const void *)at.data[2];
        int64_t first, last;
        memcpy(&first, at.data[3], sizeof first);
        memcpy(&last, at.data[4], sizeof last);
        memset(sum, 0, sizeof sum);
        first = first < 0 ? 0 : first;
        last = rows == 0 ? first : last > entries ? entries : last;
        for (int64_t e = first; e < last; e++) {
            const char *from = at.data[0] + row_of((const char *)&order[e], rows) * step;
            const real *row = tile_read(from, stored, k0, n, wide);
            if (weight)
                add_scaled(sum, row, weight[e], n);
            else
                add_row(sum, row, n);
            if ((e - first) % LOOK == LOOK - 1 && call->stop && call->stop(call))
                return;
        }
        char *out = at.data[5] + k0 * storage_size(out_stored);
        real *target = row_target(out, out_stored, room);
        for (int k = 0; k < n; k++)
            target[k] = (real)sum[k];
        row_write(target, out, out_stored, n);
        if ((unit + 1) % tiles == 0)
            row_next(call, &at);
    }
}
