/* sinusoid.c -- sin and cos of position * frequency: the sinusoidal encoding and every rotary table.
 *
 *     out[sine + k step] = sine_scale sin(p w_k),   out[cosine + k step] = cosine_scale cos(p w_k),   k < f
 *
 * Float, integer positions: p = base + offset, 0 <= offset < OFFSETS, where base is a multiple of OFFSETS. sin and cos
 * of the sum of the two angles are computed in double by the angle-addition theorem. Consecutive rows share sin and cos
 * of the base, and all rows share those of the offsets: a pair costs four multiplications. A row depends on its
 * position alone, not on its neighbours. Near a zero of sin or cos the addition loses relative accuracy, so results
 * below 2**-26 are recomputed without it; elsewhere its error of 2**-52 is at most 2**-26 of the result, a quarter of a
 * float's half ulp. Double, and positions with a fraction: sincos.h evaluates every pair.
 */
#include "fits.h"
#include "base/layout.h"
#include "base/row.h"
#include "base/sincos.h"
#include "encoding/sinusoid.h"

/* Pairs of a tile, and rows that pass through one tile after the other. A tile is wide so that memory is written nearly
 * in sequence: compared with filling the memory, tiles of 64 pairs (512 bytes of each row in turn) took 3.3x the time,
 * and tiles of 256 pairs take 2.0x the time. */
enum { OFFSETS = 16, TILE = 256, ROWS = 1024 };

typedef struct {
    double hi[TILE], lo[TILE]; /* turns per position */
    double offset_sine[OFFSETS][TILE], offset_cosine[OFFSETS][TILE];
    double base_sine[TILE], base_cosine[TILE];
    int64_t base;        /* of base_sine and base_cosine; 1, which is no base, if they are not computed */
    char ready[OFFSETS]; /* 1 if offset_sine and offset_cosine are computed */
    double position[ROWS], d_position[ROWS]; /* of the rows that pass */
    char *row[ROWS], *result[ROWS];          /* their columns; where the gradients of their positions belong */
} pair_tile;
SCRATCH_STRUCT(sinusoid, pair_tile)

static NOINLINE void start_tile(pair_tile *t, const double *hi, const double *lo, int n)
{
    t->base = 1;
    memset(t->ready, 0, sizeof t->ready);
    SIMD
    for (int k = 0; k < n; k++)
        turns(hi[k], lo ? lo[k] : 0.0, &t->hi[k], &t->lo[k]);
}

static NOINLINE void sincos_row(const pair_tile *t, double p, int n, double *restrict sine, double *restrict cosine)
{
    SIMD
    for (int k = 0; k < n; k++)
        sincos_turns(p, t->hi[k], t->lo[k], &sine[k], &cosine[k]);
}

/* Prepare the tile for p = base + offset and return the offset; -1 if p needs sincos_row. */
static int offset_of(pair_tile *t, double p, int n)
{
    const int64_t whole = (int64_t)p, base = whole & ~(int64_t)(OFFSETS - 1);
    const int offset = (int)(whole - base);
    if (PE_REAL == 64 || (double)whole != p)
        return -1;
    if (t->base != base)
        sincos_row(t, (double)base, n, t->base_sine, t->base_cosine);
    if (!t->ready[offset])
        sincos_row(t, offset, n, t->offset_sine[offset], t->offset_cosine[offset]);
    t->base = base;
    t->ready[offset] = 1;
    return offset;
}

/* The columns of a row: s[k] and c[k], or pairs that begin at s (or at c). */
typedef enum { HALVES, SINE_COSINE, COSINE_SINE } column_order;

/* f(order, ...) with a constant order, so that each order gets a loop of its own */
#define FOR_ORDER(f, order, ...)                            \
    ((order) == HALVES        ? f(HALVES, __VA_ARGS__)      \
     : (order) == SINE_COSINE ? f(SINE_COSINE, __VA_ARGS__) \
                              : f(COSINE_SINE, __VA_ARGS__))

/* Pairs are interleaved as they are computed: a second loop that interleaves them cost 1.5x the time. */
INLINE void store_pair(column_order order, real *restrict s, real *restrict c, int k, real sine, real cosine)
{
    if (order == HALVES) {
        s[k] = sine;
        c[k] = cosine;
    } else {
        real *pair = order == SINE_COSINE ? s : c;
        pair[2 * k] = order == SINE_COSINE ? sine : cosine;
        pair[2 * k + 1] = order == SINE_COSINE ? cosine : sine;
    }
}

/* sin(x + y) = sin x cos y + cos x sin y, cos(x + y) = cos x cos y - sin x sin y, times a and b. Returns whether a sine
 * or a cosine may be below 2**-26. Their product is then below a b 2**-26. Magnitudes of floats compare like integers,
 * so an OR collects the sign of the difference. */
INLINE int add_angles(column_order order, const pair_tile *t, int offset, double a, double b, int n, real *restrict s,
                      real *restrict c)
{
    const double *restrict base_sine = t->base_sine, *restrict base_cosine = t->base_cosine;
    const double *restrict offset_sine = t->offset_sine[offset], *restrict offset_cosine = t->offset_cosine[offset];
    const float least = (float)fabs_(a * b) * 0x1.01p-26f;
    const uint32_t least_bits = float_bits(least);
    int32_t small = 0;
    SIMD_OR(small)
    for (int k = 0; k < n; k++) {
        const double sine = fma64(base_sine[k], offset_cosine[k], base_cosine[k] * offset_sine[k]);
        const double cosine = fma64(base_cosine[k], offset_cosine[k], -(base_sine[k] * offset_sine[k]));
        const real scaled_sine = (real)(a * sine), scaled_cosine = (real)(b * cosine);
        const float product = (float)scaled_sine * (float)scaled_cosine;
        small |= (int32_t)((float_bits(product) & 0x7fffffffu) - least_bits);
        store_pair(order, s, c, k, scaled_sine, scaled_cosine);
    }
    return small < 0 || least < 0x1p-60f; /* a product so small could underflow */
}

static NOINLINE int add_angles_row(column_order order, const pair_tile *t, int offset, double a, double b, int n,
                                   real *s, real *c)
{
    if (a == 1 && b == 1) /* the two multiplications take an eighth of the time */
        return FOR_ORDER(add_angles, order, t, offset, 1, 1, n, s, c);
    return FOR_ORDER(add_angles, order, t, offset, a, b, n, s, c);
}

/* Recompute the results of add_angles_row that are too close to zero for it to be accurate. If one of the two angles is
 * 0, the addition is exact. */
static NOINLINE void recompute_small(const pair_tile *t, double p, int offset, double a, double b, int n, int step,
                                     real *s, real *c)
{
    const double *x = t->base_sine, *y = t->base_cosine, *u = t->offset_sine[offset], *v = t->offset_cosine[offset];
    for (int k = 0; k < n; k++) {
        const double sine = fma64(x[k], v[k], y[k] * u[k]), cosine = fma64(y[k], v[k], -(x[k] * u[k]));
        double exact_sine, exact_cosine;
        sincos_turns(p, t->hi[k], t->lo[k], &exact_sine, &exact_cosine);
        if (sine * sine < 0x1p-52)
            s[k * step] = (real)(a * exact_sine);
        if (cosine * cosine < 0x1p-52)
            c[k * step] = (real)(b * exact_cosine);
    }
}

INLINE void scale(column_order order, const double *restrict sine, const double *restrict cosine, double a, double b,
                  int n, real *restrict s, real *restrict c)
{
    SIMD
    for (int k = 0; k < n; k++)
        store_pair(order, s, c, k, (real)(a * sine[k]), (real)(b * cosine[k]));
}

static NOINLINE void scale_row(column_order order, const double *sine, const double *cosine, double a, double b, int n,
                               real *s, real *c)
{
    FOR_ORDER(scale, order, sine, cosine, a, b, n, s, c);
}

/* The columns that sines and cosines take in a row of d numbers */
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
    store_columns(buffer + TILE, to->cosine + k0, n, to, row);
}

/* Pairs k0 .. k0 + n of some rows */
static void fill_tile(pair_tile *t, const double *position, char *const *row, idx rows, idx k0, int n, double a,
                      double b, const columns *to)
{
    const int step = (int)to->step;
    const column_order order = order_of(to);
    const idx last = max_(to->sine, to->cosine) + (k0 + n - 1) * step;
    const int in_place = to->storage == PE_STORAGE && last < to->d;
    real buffer[2 * TILE];
    for (idx i = 0; i < rows; i++) {
        real *s = buffer + (step == 1 ? 0 : to->sine), *c = buffer + (step == 1 ? TILE : to->cosine);
        if (in_place) {
            s = as_reals(row[i]) + to->sine + k0 * step;
            c = as_reals(row[i]) + to->cosine + k0 * step;
        }
        const double p = position[i];
        const int offset = offset_of(t, p, n);
        if (offset < 0) {
            double sine[TILE], cosine[TILE];
            sincos_row(t, p, n, sine, cosine);
            scale_row(order, sine, cosine, a, b, n, s, c);
        } else if (add_angles_row(order, t, offset, a, b, n, s, c) && offset != 0 && t->base != 0) {
            recompute_small(t, p, offset, a, b, n, step, s, c);
        }
        if (!in_place)
            store_pairs(buffer, k0, n, to, row[i]);
    }
}

/* Clear the columns after the last sine and cosine: an odd width with denominator half-1 has one. */
static void clear_rest(idx f, const columns *to, char *row)
{
    const idx first = f == 0 ? 0 : max_(to->sine, to->cosine) + (f - 1) * to->step + 1;
    if (first < to->d)
        memset(row + first * storage_size(to->storage), 0, (size_t)((to->d - first) * storage_size(to->storage)));
}

/* All pairs of the rows in t->row at the positions in t->position */
static void fill_rows(pair_tile *t, idx rows, const double *hi, const double *lo, idx f, double a, double b,
                      const columns *to)
{
    for (idx k0 = 0; k0 < f; k0 += TILE) {
        const int n = (int)min_(TILE, f - k0);
        start_tile(t, hi + k0, lo ? lo + k0 : NULL, n);
        fill_tile(t, t->position, t->row, rows, k0, n, a, b, to);
    }
}

KERNEL(sinusoid)
{
    enum { POSITIONS, HI, LO, OUT };
    const idx f = call->D(f);
    const columns to = columns_of(call, &call->array[OUT]);
    pair_tile *t = work->scratch;
    double *position = t->position;
    char **out = t->row;
    pe_row row = row_at(call, begin);
    const double *hi = as_doubles(row.data[HI]), *lo = as_doubles(row.data[LO]);
    while (row.index < end) {
        const idx rows = min_(end - row.index, ROWS);
        for (idx i = 0; i < rows; i++, row_next(call, &row)) {
            position[i] = scalar_read(row.data[POSITIONS], call->array[POSITIONS].storage);
            out[i] = row.data[OUT];
            clear_rest(f, &to, out[i]);
        }
        fill_rows(t, rows, hi, lo, f, call->par[SINUSOID_SINE_SCALE], call->par[SINUSOID_COSINE_SCALE], &to);
    }
}

void FN(cos_sin_table)(void *scratch, const char *positions, pe_storage storage, idx n, const double *w, idx f,
                       real *table)
{
    pair_tile *t = scratch;
    const columns to = {.sine = f, .cosine = 0, .step = 1, .d = 2 * f, .storage = PE_STORAGE};
    for (idx first = 0; first < n; first += ROWS) {
        const idx rows = min_(n - first, ROWS);
        for (idx i = 0; i < rows; i++) {
            t->position[i] = scalar_read(positions + (first + i) * 8, storage);
            t->row[i] = (char *)(table + (first + i) * 2 * f);
        }
        fill_rows(t, rows, w, NULL, f, 1, 1, &to);
    }
}

/* ---- gradient ---- */

/* n numbers of a stored row from `column` on, as real; 0 past the end of the row. */
static const real *load_columns(const columns *from, const char *row, idx column, idx n, real *buffer)
{
    const idx inside = max_(0, min_(n, from->d - column));
    row += min_(column, from->d) * storage_size(from->storage);
    if (inside == n)
        return row_read(row, from->storage, n, buffer);
    row_load(row, from->storage, inside, buffer);
    memset(buffer + inside, 0, (size_t)(n - inside) * sizeof *buffer);
    return buffer;
}

/* sin and cos of base + offset: next to the other terms of a sum an error of 2**-52 is small enough. */
static NOINLINE void add_angles_double(const pair_tile *t, int offset, int n, double *restrict sine,
                                       double *restrict cosine)
{
    const double *x = t->base_sine, *y = t->base_cosine, *u = t->offset_sine[offset], *v = t->offset_cosine[offset];
    SIMD
    for (int k = 0; k < n; k++) {
        sine[k] = fma64(x[k], v[k], y[k] * u[k]);
        cosine[k] = fma64(y[k], v[k], -(x[k] * u[k]));
    }
}

/* phase_k = a cos(p w_k) grad_sine_k - b sin(p w_k) grad_cosine_k: terms_k = w_k phase_k, dw_k += p phase_k */
INLINE void phases(column_order order, const double *restrict sine, const double *restrict cosine,
                   const double *restrict w, const real *restrict grad_s, const real *restrict grad_c, double p,
                   double a, double b, int n, double *restrict dw, double *restrict terms)
{
    SIMD
    for (int k = 0; k < n; k++) {
        const real grad_sine = order == HALVES ? grad_s[k] : grad_s[2 * k + (order == COSINE_SINE)];
        const real grad_cosine = order == HALVES ? grad_c[k] : grad_s[2 * k + (order == SINE_COSINE)];
        const double phase = cosine[k] * (a * (double)grad_sine) - sine[k] * (b * (double)grad_cosine);
        terms[k] = w[k] * phase;
        dw[k] += p * phase;
    }
}

static NOINLINE void phase_row(column_order order, const double *sine, const double *cosine, const double *w,
                               const real *grad_s, const real *grad_c, double p, double a, double b, int n, double *dw,
                               double *terms)
{
    FOR_ORDER(phases, order, sine, cosine, w, grad_s, grad_c, p, a, b, n, dw, terms);
}

/* The sum of a tile's terms, added in the same order on every machine */
static NOINLINE double sum_of_terms(double *terms, int n)
{
    for (int k = n; k < TILE; k++)
        terms[k] = 0;
    for (int half = TILE / 2; half > 0; half /= 2) {
        SIMD
        for (int k = 0; k < half; k++)
            terms[k] += terms[k + half];
    }
    return terms[0];
}

/* From   out[sine + k step] = a sin(p w_k), out[cosine + k step] = b cos(p w_k):
 *        dp = sum_k w_k phase_k,   dw_k = sum over rows of p phase_k */
static void vjp_tile(pair_tile *t, const double *position, char *const *row, idx rows, const double *w, idx k0, int n,
                     double a, double b, const columns *from, double *dp, double *dw)
{
    const column_order order = order_of(from);
    real buffer[2 * TILE];
    double sine[TILE], cosine[TILE], terms[TILE];
    for (idx i = 0; i < rows; i++) {
        const int offset = offset_of(t, position[i], n);
        if (offset < 0)
            sincos_row(t, position[i], n, sine, cosine);
        else
            add_angles_double(t, offset, n, sine, cosine);
        const real *grad_s, *grad_c = NULL; /* grad_s has both if they are interleaved */
        if (order == HALVES) {
            grad_s = load_columns(from, row[i], from->sine + k0, n, buffer);
            grad_c = load_columns(from, row[i], from->cosine + k0, n, buffer + TILE);
        } else {
            grad_s = load_columns(from, row[i], 2 * k0, 2 * n, buffer);
        }
        phase_row(order, sine, cosine, w, grad_s, grad_c, position[i], a, b, n, dw, terms);
        dp[i] += sum_of_terms(terms, n);
    }
}

KERNEL(sinusoid_vjp)
{
    enum { GRAD, POSITIONS, HI, LO, DPOSITIONS, DFREQUENCIES };
    const idx f = call->D(f);
    const columns from = columns_of(call, &call->array[GRAD]);
    pair_tile *t = work->scratch;
    double *position = t->position, *dp = t->d_position, *dw = block_sums(call, DFREQUENCIES, work);
    char **grad = t->row, **dpositions = t->result;
    pe_row row = row_at(call, begin);
    const double *hi = as_doubles(row.data[HI]), *lo = as_doubles(row.data[LO]);
    while (row.index < end) {
        const idx rows = min_(end - row.index, ROWS);
        for (idx i = 0; i < rows; i++, row_next(call, &row)) {
            position[i] = scalar_read(row.data[POSITIONS], call->array[POSITIONS].storage);
            grad[i] = row.data[GRAD];
            dpositions[i] = row.data[DPOSITIONS];
            dp[i] = 0;
        }
        for (idx k0 = 0; k0 < f; k0 += TILE) {
            const int n = (int)min_(TILE, f - k0);
            start_tile(t, hi + k0, lo ? lo + k0 : NULL, n);
            vjp_tile(t, position, grad, rows, hi + k0, k0, n, call->par[SINUSOID_SINE_SCALE],
                     call->par[SINUSOID_COSINE_SCALE], &from, dp, dw + k0);
        }
        for (idx i = 0; i < rows; i++)
            memcpy(dpositions[i], &dp[i], sizeof dp[i]);
    }
}
