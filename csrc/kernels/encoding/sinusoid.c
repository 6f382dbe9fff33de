/* sinusoid.c -- tables of sin and cos of position * frequency: the sinusoidal encoding and every rotary table.
 *
 *     out[sine + k step] = sine_scale sin(p w_k),   out[cosine + k step] = cosine_scale cos(p w_k)
 *
 * float: two-level angle addition in double. An integer position is base + r, 0 <= r < STEPS, base a multiple of
 * STEPS: sin and cos of base are shared by consecutive rows, those of r by the whole call, and a pair costs four
 * multiplications. What a row becomes depends on its position alone, not on its neighbours. Near a zero of sin or
 * cos the addition loses relative accuracy, so results below 2**-26 are computed again without it; elsewhere its
 * error of 2**-52 is at most 2**-26 of the result, a quarter of a float's half ulp.
 * double, and positions with a fraction: without angle addition, sincos.h for each pair.
 */
#include "scratch.h"
#include "base/row.h"
#include "base/sincos.h"

/* A tile is wide enough that memory is written nearly in sequence: 64 pairs, 512 bytes of every row in turn, took 3.3
 * times as long as filling that memory, 256 take 2.0. */
enum { STEPS = 16, TILE = 256, CHUNK = 1024 };

typedef struct {
    double hi[TILE], lo[TILE]; /* turns per position */
    double step_sine[STEPS][TILE], step_cosine[STEPS][TILE];
    double base_sine[TILE], base_cosine[TILE];
    int64_t base; /* of base_sine and base_cosine: a multiple of STEPS, or 1 */
    char ready[STEPS];
} tile;
_Static_assert(sizeof(tile) <= SINUSOID_SCRATCH, "scratch.h says what a tile needs");

static NOINLINE void tile_turns(tile *t, const double *hi, const double *lo, int n)
{
    t->base = 1;
    memset(t->ready, 0, sizeof t->ready);
    SIMD
    for (int k = 0; k < n; k++)
        turns(hi[k], lo ? lo[k] : 0.0, &t->hi[k], &t->lo[k]);
}

static NOINLINE void exact_row(const tile *t, double p, int n, double *restrict sine, double *restrict cosine)
{
    SIMD
    for (int k = 0; k < n; k++)
        sincos_turns(p, t->hi[k], t->lo[k], &sine[k], &cosine[k]);
}

/* The rest r of p = base + r, with sines of both in the tile; -1 where angles are not added. */
static int step_of(tile *t, double p, int n)
{
    const int64_t whole = (int64_t)p, base = whole & ~(int64_t)(STEPS - 1);
    const int r = (int)(whole - base);
    if (PE_REAL == 64 || (double)whole != p)
        return -1;
    if (t->base != base)
        exact_row(t, (double)base, n, t->base_sine, t->base_cosine);
    if (!t->ready[r])
        exact_row(t, r, n, t->step_sine[r], t->step_cosine[r]);
    t->base = base;
    t->ready[r] = 1;
    return r;
}

/* How sines and cosines lie in a row: s[k] and c[k], or pairs from s (or c) on, written as they are computed: through
 * a second loop they cost 1.5 times as much. */
typedef enum { APART, SINE_FIRST, COSINE_FIRST } order;

INLINE void store(order o, real *restrict out, real *restrict other, int k, real sine, real cosine)
{
    if (o == APART) {
        out[k] = sine;
        other[k] = cosine;
    } else {
        out[2 * k] = o == SINE_FIRST ? sine : cosine;
        out[2 * k + 1] = o == SINE_FIRST ? cosine : sine;
    }
}

/* sin(x + y) = sin x cos y + cos x sin y, cos(x + y) = cos x cos y - sin x sin y; says whether one may be below 2**-26.
 * Then their product is, and magnitudes of floats compare as integers: the sign of a difference, kept by an OR. */
INLINE int added(order o, const double *restrict base_sine, const double *restrict base_cosine,
                 const double *restrict step_sine, const double *restrict step_cosine, double a, double b, int n,
                 real *restrict out, real *restrict other)
{
    const float least = (float)fabs_(a * b) * 0x1.01p-26f;
    const uint32_t least_bits = float_bits(least);
    int32_t small = 0;
    SIMD_OR(small)
    for (int k = 0; k < n; k++) {
        const double sine = fma64(base_sine[k], step_cosine[k], base_cosine[k] * step_sine[k]);
        const double cosine = fma64(base_cosine[k], step_cosine[k], -(base_sine[k] * step_sine[k]));
        const real scaled_sine = (real)(a * sine), scaled_cosine = (real)(b * cosine);
        const float product = (float)scaled_sine * (float)scaled_cosine;
        small |= (int32_t)((float_bits(product) & 0x7fffffffu) - least_bits);
        store(o, out, other, k, scaled_sine, scaled_cosine);
    }
    return small < 0 || least < 0x1p-60f; /* a product so small could underflow */
}

/* The values of a row that were computed one by one, scaled. */
INLINE void scaled(order o, const double *restrict sine, const double *restrict cosine, double a, double b, int n,
                   real *restrict out, real *restrict other)
{
    SIMD
    for (int k = 0; k < n; k++)
        store(o, out, other, k, (real)(a * sine[k]), (real)(b * cosine[k]));
}

static NOINLINE int added_row(order o, const tile *t, int r, double a, double b, int n, real *s, real *c)
{
    const double *x = t->base_sine, *y = t->base_cosine, *u = t->step_sine[r], *v = t->step_cosine[r];
    const int plain = a == 1 && b == 1; /* an eighth of the time is the two multiplications */
    switch (o) {
    case APART: return plain ? added(APART, x, y, u, v, 1, 1, n, s, c) : added(APART, x, y, u, v, a, b, n, s, c);
    case SINE_FIRST:
        return plain ? added(SINE_FIRST, x, y, u, v, 1, 1, n, s, NULL)
                     : added(SINE_FIRST, x, y, u, v, a, b, n, s, NULL);
    default:
        return plain ? added(COSINE_FIRST, x, y, u, v, 1, 1, n, c, NULL)
                     : added(COSINE_FIRST, x, y, u, v, a, b, n, c, NULL);
    }
}

static NOINLINE void scaled_row(order o, const double *x, const double *y, double a, double b, int n, real *s, real *c)
{
    switch (o) {
    case APART: scaled(APART, x, y, a, b, n, s, c); break;
    case SINE_FIRST: scaled(SINE_FIRST, x, y, a, b, n, s, NULL); break;
    default: scaled(COSINE_FIRST, x, y, a, b, n, c, NULL);
    }
}

/* added_row again for the few results that are too small for it. */
static NOINLINE void mend_row(const tile *t, double p, int r, double a, double b, int n, int step, real *s, real *c)
{
    for (int k = 0; k < n; k++) {
        const double sine = fma64(t->base_sine[k], t->step_cosine[r][k], t->base_cosine[k] * t->step_sine[r][k]);
        const double cosine = fma64(t->base_cosine[k], t->step_cosine[r][k], -(t->base_sine[k] * t->step_sine[r][k]));
        double exact_sine, exact_cosine;
        sincos_turns(p, t->hi[k], t->lo[k], &exact_sine, &exact_cosine);
        if (sine * sine < 0x1p-52)
            s[k * step] = (real)(a * exact_sine);
        if (cosine * cosine < 0x1p-52)
            c[k * step] = (real)(b * exact_cosine);
    }
}

/* Where the columns of one row lie. */
typedef struct {
    idx sine, cosine, step, d;
    pe_storage storage;
} columns;

static order order_of(const columns *to)
{
    return to->step == 1 ? APART : to->sine < to->cosine ? SINE_FIRST : COSINE_FIRST;
}

static void put(const real *values, idx column, idx n, const columns *to, char *row)
{
    n = min_(n, to->d - column);
    if (n <= 0)
        return;
    row += column * storage_size(to->storage);
    if (to->storage == PE_STORAGE)
        memcpy(row, values, (size_t)n * sizeof(real));
    else
        row_write(values, row, to->storage, n);
}

/* Pairs k0 .. k0+n of a row from room, [sines | cosines] or pairs; the last column of an odd width may lack its partner. */
static void put_pairs(const real *room, idx k0, idx n, const columns *to, char *row)
{
    if (to->step == 2) {
        put(room, 2 * k0, 2 * n, to, row);
        return;
    }
    put(room, to->sine + k0, n, to, row);
    put(room + TILE, to->cosine + k0, n, to, row);
}

static void sinusoid_tile(tile *t, const double *position, char *const *row, idx rows, idx k0, int n, double a,
                          double b, const columns *to)
{
    const int step = (int)to->step;
    const order o = order_of(to);
    const idx last = max_(to->sine, to->cosine) + (k0 + n - 1) * step;
    const int direct = to->storage == PE_STORAGE && last < to->d;
    real room[2 * TILE];
    for (idx i = 0; i < rows; i++) {
        real *s = room + (step == 1 ? 0 : to->sine), *c = room + (step == 1 ? TILE : to->cosine);
        if (direct) {
            s = (real *)(void *)row[i] + to->sine + k0 * step;
            c = (real *)(void *)row[i] + to->cosine + k0 * step;
        }
        const double p = position[i];
        const int r = step_of(t, p, n);
        if (r < 0) {
            double sine[TILE], cosine[TILE];
            exact_row(t, p, n, sine, cosine);
            scaled_row(o, sine, cosine, a, b, n, s, c);
        } else if (added_row(o, t, r, a, b, n, s, c)) {
            mend_row(t, p, r, a, b, n, step, s, c);
        }
        if (!direct)
            put_pairs(room, k0, n, to, row[i]);
    }
}

/* What no sine or cosine reaches: the last column of an odd width with denominator half-1. */
static void clear_rest(idx f, const columns *to, char *row)
{
    const idx last = max_(to->sine, to->cosine) + (f - 1) * to->step + 1;
    if (f == 0 || last < to->d) {
        const idx from = f == 0 ? 0 : last;
        memset(row + from * storage_size(to->storage), 0, (size_t)((to->d - from) * storage_size(to->storage)));
    }
}

static columns columns_of(const pe_call *call, int operand)
{
    return (columns){max_(0, (idx)call->par[0]), max_(0, (idx)call->par[1]), (idx)call->par[2], call->D(d),
                     call->array[operand].storage};
}

/* positions() hi(f) lo?(f) -> out(d); sine, cosine, step, sine_scale, cosine_scale */
void FN(sinusoid)(const pe_call *call, idx begin, idx end, const pe_work *work)
{
    const idx f = call->D(f);
    const columns to = columns_of(call, 3);
    double position[CHUNK];
    char *row[CHUNK];
    tile *t = work->scratch;
    pe_row at = row_at(call, begin);
    const double *hi = (const double *)(void *)at.data[1], *lo = (const double *)(void *)at.data[2];
    while (at.index < end) {
        const idx rows = min_(end - at.index, CHUNK);
        for (idx i = 0; i < rows; i++, row_next(call, &at)) {
            position[i] = scalar_read(at.data[0], call->array[0].storage);
            row[i] = at.data[3];
            clear_rest(f, &to, row[i]);
        }
        for (idx k0 = 0; k0 < f; k0 += TILE) {
            const int n = (int)min_(TILE, f - k0);
            tile_turns(t, hi + k0, lo ? lo + k0 : NULL, n);
            sinusoid_tile(t, position, row, rows, k0, n, call->par[3], call->par[4], &to);
        }
    }
}

/* n numbers of a stored row from `column` on, as real; past the end of the row they are 0. */
static const real *take(const columns *of, const char *row, idx column, idx n, real *room)
{
    const idx inside = max_(0, min_(n, of->d - column));
    const real *values = row_read(row + min_(column, of->d) * storage_size(of->storage), of->storage, inside, room);
    if (inside == n)
        return values;
    if (values != room)
        memcpy(room, values, (size_t)inside * sizeof(real));
    memset(room + inside, 0, (size_t)(n - inside) * sizeof(real));
    return room;
}

/* sin and cos of base + r as they come: next to the other terms of a sum nothing is too small for an error of 2**-52. */
static NOINLINE void sum_of_angles(const tile *t, int r, int n, double *restrict sine, double *restrict cosine)
{
    const double *x = t->base_sine, *y = t->base_cosine, *u = t->step_sine[r], *v = t->step_cosine[r];
    SIMD
    for (int k = 0; k < n; k++) {
        sine[k] = fma64(x[k], v[k], y[k] * u[k]);
        cosine[k] = fma64(y[k], v[k], -(x[k] * u[k]));
    }
}

/* phase_k = a cos(p w_k) grad_sine - b sin(p w_k) grad_cosine; leaves w_k phase_k for the sum, and dw_k += p phase_k */
INLINE void phases(order o, const double *restrict sine, const double *restrict cosine, const double *restrict w,
                   const real *restrict grad, const real *restrict other, double p, double a, double b, int n,
                   double *restrict dw, double *restrict terms)
{
    SIMD
    for (int k = 0; k < n; k++) {
        const real to_sine = o == APART ? grad[k] : grad[2 * k + (o == COSINE_FIRST)];
        const real to_cosine = o == APART ? other[k] : grad[2 * k + (o == SINE_FIRST)];
        const double phase = cosine[k] * (a * (double)to_sine) - sine[k] * (b * (double)to_cosine);
        terms[k] = w[k] * phase;
        dw[k] += p * phase;
    }
}

static NOINLINE void phase_row(order o, const double *x, const double *y, const double *w, const real *grad,
                               const real *other, double p, double a, double b, int n, double *dw, double *terms)
{
    switch (o) {
    case APART: phases(APART, x, y, w, grad, other, p, a, b, n, dw, terms); break;
    case SINE_FIRST: phases(SINE_FIRST, x, y, w, grad, NULL, p, a, b, n, dw, terms); break;
    default: phases(COSINE_FIRST, x, y, w, grad, NULL, p, a, b, n, dw, terms);
    }
}

/* Sum of a tile, in one order on every machine. */
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
 *        dp = sum_k w_k phase_k,  dw_k = sum over rows of p phase_k */
static void vjp_tile(tile *t, const double *position, char *const *row, idx rows, const double *w, idx k0, int n,
                     double a, double b, const columns *of, double *dp, double *dw)
{
    const order o = order_of(of);
    real room[2 * TILE];
    double sine[TILE], cosine[TILE], terms[TILE];
    for (idx i = 0; i < rows; i++) {
        const int r = step_of(t, position[i], n);
        if (r < 0)
            exact_row(t, position[i], n, sine, cosine);
        else
            sum_of_angles(t, r, n, sine, cosine);
        const real *grad, *other = NULL;
        if (o == APART) {
            grad = take(of, row[i], of->sine + k0, n, room);
            other = take(of, row[i], of->cosine + k0, n, room + TILE);
        } else {
            grad = take(of, row[i], 2 * k0, 2 * n, room);
        }
        phase_row(o, sine, cosine, w, grad, other, position[i], a, b, n, dw, terms);
        dp[i] += sum_of_terms(terms, n);
    }
}

/* grad(d) positions() hi(f) lo?(f) -> dpositions() +dfrequencies(f); sine, cosine, step, sine_scale, cosine_scale */
void FN(sinusoid_vjp)(const pe_call *call, idx begin, idx end, const pe_work *work)
{
    const idx f = call->D(f);
    const columns of = columns_of(call, 0);
    double position[CHUNK], dp[CHUNK];
    char *row[CHUNK], *to[CHUNK];
    tile *t = work->scratch;
    pe_row at = row_at(call, begin);
    const double *hi = (const double *)(void *)at.data[2], *lo = (const double *)(void *)at.data[3];
    double *dw = (double *)(void *)(call->array[5].data + work->block * call->array[5].loop[0]);
    while (at.index < end) {
        const idx rows = min_(end - at.index, CHUNK);
        for (idx i = 0; i < rows; i++, row_next(call, &at)) {
            position[i] = scalar_read(at.data[1], call->array[1].storage);
            row[i] = at.data[0];
            to[i] = at.data[4];
            dp[i] = 0;
        }
        for (idx k0 = 0; k0 < f; k0 += TILE) {
            const int n = (int)min_(TILE, f - k0);
            tile_turns(t, hi + k0, lo ? lo + k0 : NULL, n);
            vjp_tile(t, position, row, rows, hi + k0, k0, n, call->par[3], call->par[4], &of, dp, dw + k0);
        }
        for (idx i = 0; i < rows; i++)
            memcpy(to[i], &dp[i], sizeof dp[i]);
    }
}
