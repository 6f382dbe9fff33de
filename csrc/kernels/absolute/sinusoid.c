/* sinusoid.c -- sin and cos of position * frequency: the sinusoidal encoding and rotary tables of one coordinate.
 *
 *     for (k < f) {
 *         out[sine + k * step] = sine_scale * sin(p * w[k]);
 *         out[cosine + k * step] = cosine_scale * cos(p * w[k]);
 *     }
 *
 * If real is float, a pair at an integer position costs four multiplications, and two more for scales other than 1:
 * angles.h adds the angles of a base and an offset, whose sines and cosines are computed once for many rows.
 */
#include "fits.h"
#include "base/layout.h"
#include "base/row.h"
#include "base/angles.h"

/* PAIRS pairs of all rows of a block are computed before the next pairs. So many pairs write memory nearly in
 * sequence. */
enum { PAIRS = 256 };

typedef struct {
    pe_frequencies w;
} sinusoid_state;

LAYOUT(sinusoid) { carve_frequencies(&s->w, c, min_(PAIRS, D(f))); }

/* The columns of sines and cosines in a row of d numbers, and their scales */
typedef struct {
    idx sine, cosine, step, d;
    double sine_scale, cosine_scale;
    pe_storage storage;
} columns;

static columns columns_of(const pe_call *call, const pe_array *row)
{
    const double *par = call->par;
    return (columns){
        .sine = max_(0, (idx)P(SINUSOID_SINE)),
        .cosine = max_(0, (idx)P(SINUSOID_COSINE)),
        .step = (idx)P(SINUSOID_STEP),
        .d = call->D(d),
        .sine_scale = P(SINUSOID_SINE_SCALE),
        .cosine_scale = P(SINUSOID_COSINE_SCALE),
        .storage = row->storage,
    };
}

static column_order order_of(const columns *to)
{
    return to->step == 1 ? HALVES : to->sine < to->cosine ? SINE_COSINE : COSINE_SINE;
}

static void store_columns(const real *values, idx column, idx n, const columns *to, char *row)
{
    n = min_(n, to->d - column);
    if (n > 0)
        row_store(values, row + column * storage_size(to->storage), to->storage, n);
}

/* Store pairs k0 .. k0 + n of a row from a buffer, which has [sines | cosines] or interleaved pairs. The last column of
 * an odd width may lack its partner. */
static void store_pairs(const real *buffer, idx k0, idx n, const columns *to, char *row)
{
    if (to->step == 2) {
        store_columns(buffer, 2 * k0, 2 * n, to, row);
        return;
    }
    store_columns(buffer, to->sine + k0, n, to, row);
    store_columns(buffer + PAIRS, to->cosine + k0, n, to, row);
}

/* Compute the pairs of w, which are those from k0 on, of the row of position p. */
static void fill_pairs(pe_frequencies *w, double p, idx k0, const columns *to, char *row)
{
    const idx last = max_(to->sine, to->cosine) + (k0 + w->n - 1) * to->step;
    const int in_place = to->storage == PE_STORAGE && last < to->d;
    real buffer[2 * PAIRS];
    angle_row pairs = {order_of(to), to->sine_scale, to->cosine_scale, buffer, buffer + PAIRS};
    if (in_place) {
        pairs.s = as_reals(row) + to->sine + k0 * to->step;
        pairs.c = as_reals(row) + to->cosine + k0 * to->step;
    } else if (to->step == 2) {
        pairs.s = buffer + to->sine;
        pairs.c = buffer + to->cosine;
    }
    store_angles_at(w, p, &pairs);
    if (!in_place)
        store_pairs(buffer, k0, w->n, to, row);
}

/* Clear the columns after the last pair. If d is odd and f = (d - 1) / 2, there is one such column. */
static void clear_rest(idx f, const columns *to, char *row)
{
    const idx first = f == 0 ? 0 : max_(to->sine, to->cosine) + (f - 1) * to->step + 1;
    if (first < to->d)
        memset(row + first * storage_size(to->storage), 0, (size_t)((to->d - first) * storage_size(to->storage)));
}

KERNEL(sinusoid)
{
    enum { POSITIONS, HI, LO, OUT };
    const idx f = call->D(f);
    const columns to = columns_of(call, &call->array[OUT]);
    const double *hi = as_doubles(call->array[HI].data), *lo = as_doubles(call->array[LO].data);
    sinusoid_state s = sinusoid_begin(call, work);
    for (idx k0 = 0; k0 == 0 || k0 < f; k0 += PAIRS) {
        set_frequencies(&s.w, hi + k0, lo ? lo + k0 : NULL, (int)min_(PAIRS, f - k0));
        for (pe_row row = row_at(call, begin); row.index < end; row_next(call, &row)) {
            if (k0 == 0)
                clear_rest(f, &to, row.data[OUT]);
            fill_pairs(&s.w, scalar_read(row.data[POSITIONS], call->array[POSITIONS].storage), k0, &to, row.data[OUT]);
        }
    }
}
