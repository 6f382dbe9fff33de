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
#include "absolute/sinusoid.h"

/* PAIRS pairs of ROWS rows are computed before the next pairs. So many pairs write memory nearly in sequence. */
enum { PAIRS = 256, ROWS = 1024 };

typedef struct {
    double hi[PAIRS], lo[PAIRS]; /* turns per position */
    double offset_sine[OFFSETS][PAIRS], offset_cosine[OFFSETS][PAIRS];
    double base_sine[PAIRS], base_cosine[PAIRS];
    int64_t base;          /* of base_sine and base_cosine; 1, never a base, if they are not set */
    char ready[OFFSETS];   /* 1 if offset_sine and offset_cosine are computed */
    double position[ROWS]; /* of the current rows */
    char *row[ROWS];       /* out of each row */
} sinusoid_state;
SCRATCH_STRUCT(sinusoid, sinusoid_state)

static NOINLINE void start_pairs(sinusoid_state *state, const double *hi, const double *lo, int n)
{
    state->base = 1;
    memset(state->ready, 0, sizeof state->ready);
    SIMD
    for (int k = 0; k < n; k++)
        turns(hi[k], lo ? lo[k] : 0.0, &state->hi[k], &state->lo[k]);
}

static pe_angles base_of(sinusoid_state *state) { return (pe_angles){state->base_sine, state->base_cosine}; }
static pe_angles offset_at(sinusoid_state *state, int offset)
{
    return (pe_angles){state->offset_sine[offset], state->offset_cosine[offset]};
}

/* Prepare the state for p = base + offset and return the offset; -1 if p needs sincos_row. */
static int offset_of(sinusoid_state *state, double p, int n)
{
    int64_t base;
    int offset;
    if (!split_position(p, &base, &offset))
        return -1;
    if (state->base != base)
        sincos_row(state->hi, state->lo, (double)base, n, base_of(state));
    if (!state->ready[offset])
        sincos_row(state->hi, state->lo, offset, n, offset_at(state, offset));
    state->base = base;
    state->ready[offset] = 1;
    return offset;
}

/* The columns of sines and cosines in a row of d numbers */
typedef struct {
    idx sine, cosine, step, d;
    pe_storage storage;
} columns;

static columns columns_of(const pe_call *call, const pe_array *row)
{
    return (columns){max_(0, (idx)call->par[SINUSOID_SINE]), max_(0, (idx)call->par[SINUSOID_COSINE]),
                     (idx)call->par[SINUSOID_STEP], call->D(d), row->storage};
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

/* Compute pairs k0 .. k0 + n of `rows` rows. */
static void fill_pairs(sinusoid_state *state, const double *position, char *const *row, idx rows, idx k0, int n,
                       double a, double b, const columns *to)
{
    const int step = (int)to->step;
    const column_order order = order_of(to);
    const idx last = max_(to->sine, to->cosine) + (k0 + n - 1) * step;
    const int in_place = to->storage == PE_STORAGE && last < to->d;
    real buffer[2 * PAIRS];
    for (idx i = 0; i < rows; i++) {
        real *s = buffer + (step == 1 ? 0 : to->sine), *c = buffer + (step == 1 ? PAIRS : to->cosine);
        if (in_place) {
            s = as_reals(row[i]) + to->sine + k0 * step;
            c = as_reals(row[i]) + to->cosine + k0 * step;
        }
        const double p = position[i];
        const int offset = offset_of(state, p, n);
        if (offset < 0) {
            double sine[PAIRS], cosine[PAIRS];
            sincos_row(state->hi, state->lo, p, n, (pe_angles){sine, cosine});
            scale_row(order, (pe_angles){sine, cosine}, a, b, n, s, c);
        } else if (add_angles_row(order, base_of(state), offset_at(state, offset), a, b, n, s, c) && offset != 0
                   && state->base != 0) {
            recompute_small(state->hi, state->lo, p, base_of(state), offset_at(state, offset), a, b, n, step, s, c);
        }
        if (!in_place)
            store_pairs(buffer, k0, n, to, row[i]);
    }
}

/* Clear the columns after the last pair. If d is odd and f = (d - 1) / 2, there is one such column. */
static void clear_rest(idx f, const columns *to, char *row)
{
    const idx first = f == 0 ? 0 : max_(to->sine, to->cosine) + (f - 1) * to->step + 1;
    if (first < to->d)
        memset(row + first * storage_size(to->storage), 0, (size_t)((to->d - first) * storage_size(to->storage)));
}

/* Compute all pairs of the rows state->row at the positions state->position. */
static void fill_rows(sinusoid_state *state, idx rows, const double *hi, const double *lo, idx f, double a, double b,
                      const columns *to)
{
    for (idx k0 = 0; k0 < f; k0 += PAIRS) {
        const int n = (int)min_(PAIRS, f - k0);
        start_pairs(state, hi + k0, lo ? lo + k0 : NULL, n);
        fill_pairs(state, state->position, state->row, rows, k0, n, a, b, to);
    }
}

KERNEL(sinusoid)
{
    enum { POSITIONS, HI, LO, OUT };
    const idx f = call->D(f);
    const columns to = columns_of(call, &call->array[OUT]);
    sinusoid_state *state = work->scratch;
    double *position = state->position;
    char **out = state->row;
    pe_row row = row_at(call, begin);
    const double *hi = as_doubles(row.data[HI]), *lo = as_doubles(row.data[LO]);
    while (row.index < end) {
        const idx rows = min_(end - row.index, ROWS);
        for (idx i = 0; i < rows; i++, row_next(call, &row)) {
            position[i] = scalar_read(row.data[POSITIONS], call->array[POSITIONS].storage);
            out[i] = row.data[OUT];
            clear_rest(f, &to, out[i]);
        }
        fill_rows(state, rows, hi, lo, f, call->par[SINUSOID_SINE_SCALE], call->par[SINUSOID_COSINE_SCALE], &to);
    }
}

void FN(cos_sin_table)(void *scratch, const char *positions, pe_storage storage, idx n, const double *w, idx f,
                       real *table)
{
    sinusoid_state *state = scratch;
    const columns to = {.sine = f, .cosine = 0, .step = 1, .d = 2 * f, .storage = PE_STORAGE};
    for (idx first = 0; first < n; first += ROWS) {
        const idx rows = min_(n - first, ROWS);
        for (idx i = 0; i < rows; i++) {
            state->position[i] = scalar_read(positions + (first + i) * 8, storage);
            state->row[i] = (char *)(table + (first + i) * 2 * f);
        }
        fill_rows(state, rows, w, NULL, f, 1, 1, &to);
    }
}
