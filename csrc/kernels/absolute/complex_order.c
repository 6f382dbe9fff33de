/* complex_order.c -- z = r exp(i (w p + theta)), stored as pairs (real, imaginary).
 *
 *     for (k < c)
 *         z[2 * k] = r[k] * cos(w[k] * p + theta[k]), z[2 * k + 1] = r[k] * sin(w[k] * p + theta[k]);
 *
 * Angles are double-double numbers of turns, as in sinusoid.c. The strides of w and theta may be 0: along a row if all
 * channels of a token share one number, and between rows if all tokens share one row. The outer loop runs over tiles of
 * columns, so that the turns of a shared row are computed once, not once per token.
 */
#include "base/layout.h"
#include "base/row.h"
#include "base/sincos.h"

enum { TILE = 256 };

typedef struct {
    double t_hi[TILE], t_lo[TILE]; /* turns per position */
    double f_hi[TILE], f_lo[TILE]; /* phase in turns, |f_hi| <= 1/2 */
    double sine[TILE], cosine[TILE];
    real amplitude[TILE], grad[2 * TILE];
    const char *frequency, *phase; /* the rows that t_hi and f_hi were computed from */
} channel_tile;
SCRATCH_STRUCT(complex_order, channel_tile)

static void read_strided(const char *data, idx stride, int n, double *restrict to)
{
    for (int k = 0; k < n; k++)
        memcpy(&to[k], data + k * stride, sizeof(double));
}

static NOINLINE void turns_row(const double *restrict w, int n, double *restrict hi, double *restrict lo)
{
    SIMD
    for (int k = 0; k < n; k++)
        turns(w[k], 0.0, &hi[k], &lo[k]);
}

static NOINLINE void without_turns_row(double *hi, int n)
{
    SIMD
    for (int k = 0; k < n; k++)
        hi[k] = without_turns(hi[k]);
}

static NOINLINE void sincos_tile(channel_tile *t, double p, int n)
{
    SIMD
    for (int k = 0; k < n; k++)
        sincos_turns(p, t->t_hi[k], t->t_lo[k], &t->sine[k], &t->cosine[k]);
}

static NOINLINE void sincos_shifted_tile(channel_tile *t, double p, int n)
{
    SIMD
    for (int k = 0; k < n; k++)
        sincos_shifted(p, t->t_hi[k], t->t_lo[k], t->f_hi[k], t->f_lo[k], &t->sine[k], &t->cosine[k]);
}

/* Compute the sines and cosines of columns k0 .. k0 + n. call->array[operand] is the positions; the next two arrays are
 * frequency and phase. */
static void angles(channel_tile *t, const pe_call *call, const pe_row *row, int operand, idx k0, int n)
{
    const idx w_stride = call->array[operand + 1].core[0], f_stride = call->array[operand + 2].core[0];
    const char *w = row->data[operand + 1] + k0 * w_stride;
    const char *f = row->data[operand + 2] ? row->data[operand + 2] + k0 * f_stride : NULL;
    const double p = scalar_read(row->data[operand], call->array[operand].storage);
    if (w != t->frequency) {
        read_strided(w, w_stride, n, t->sine); /* sine is a buffer until sincos_tile sets it */
        turns_row(t->sine, n, t->t_hi, t->t_lo);
        t->frequency = w;
    }
    if (f && f != t->phase) {
        read_strided(f, f_stride, n, t->sine);
        turns_row(t->sine, n, t->f_hi, t->f_lo);
        without_turns_row(t->f_hi, n);
        t->phase = f;
    }
    if (f)
        sincos_shifted_tile(t, p, n);
    else
        sincos_tile(t, p, n);
}

static NOINLINE void write_pairs(const channel_tile *t, const real *restrict r, int n, real *restrict out)
{
    SIMD
    for (int k = 0; k < n; k++) {
        out[2 * k] = (real)((double)r[k] * t->cosine[k]);
        out[2 * k + 1] = (real)((double)r[k] * t->sine[k]);
    }
}

INLINE const real *read_columns(const char *row, pe_storage storage, idx first, int n, real *wide)
{
    return row_read(row + first * storage_size(storage), storage, n, wide);
}

KERNEL(complex_order)
{
    enum { AMPLITUDE, POSITIONS, FREQUENCY, PHASE, OUT };
    const idx c = min_(call->D(c), call->D(z) / 2);
    const pe_storage storage = call->array[AMPLITUDE].storage;
    channel_tile *t = work->scratch;
    for (idx k0 = 0; k0 < c; k0 += TILE) {
        const int n = (int)min_(TILE, c - k0);
        t->frequency = t->phase = NULL;
        for (pe_row row = row_at(call, begin); row.index < end; row_next(call, &row)) {
            angles(t, call, &row, POSITIONS, k0, n);
            write_pairs(t, read_columns(row.data[AMPLITUDE], storage, k0, n, t->amplitude), n,
                        as_reals(row.data[OUT]) + 2 * k0);
        }
    }
}

/* From   re = r cos(w p + theta), im = r sin(w p + theta):
 *     dr = cos d(re) + sin d(im),   dtheta = r (cos d(im) - sin d(re)),   dw = p dtheta,   dp = sum_k w_k dtheta_k */
KERNEL(complex_order_vjp)
{
    enum { GRAD, AMPLITUDE, POSITIONS, FREQUENCY, PHASE, DAMPLITUDE, DFREQUENCY, DPOSITIONS, DPHASE };
    const idx c = min_(call->D(c), call->D(z) / 2), w_stride = call->array[FREQUENCY].core[0];
    const pe_array *a = call->array;
    channel_tile *t = work->scratch;
    for (idx k0 = 0; k0 < max_(c, 1); k0 += TILE) { /* c = 0: one pass stores dpositions = 0 */
        const int n = (int)min_(TILE, c - k0);
        t->frequency = t->phase = NULL;
        for (pe_row row = row_at(call, begin); row.index < end; row_next(call, &row)) {
            const double p = scalar_read(row.data[POSITIONS], a[POSITIONS].storage);
            double dp = 0;
            if (k0 > 0)
                memcpy(&dp, row.data[DPOSITIONS], sizeof dp);
            angles(t, call, &row, POSITIONS, k0, n);
            const real *grad = read_columns(row.data[GRAD], a[GRAD].storage, 2 * k0, 2 * n, t->grad);
            const real *r = read_columns(row.data[AMPLITUDE], a[AMPLITUDE].storage, k0, n, t->amplitude);
            const char *w = row.data[FREQUENCY] + k0 * w_stride;
            real dr[TILE];
            double slope[TILE]; /* dtheta */
            for (int k = 0; k < n; k++) {
                const double re = (double)grad[2 * k], im = (double)grad[2 * k + 1];
                slope[k] = (double)r[k] * (t->cosine[k] * im - t->sine[k] * re);
                dr[k] = (real)(t->cosine[k] * re + t->sine[k] * im);
            }
            /* This loop stores nothing. If it also stored dw, GCC would compile it twice, and sum with FMAs only in
             * the version for arrays that overlap. */
            for (int k = 0; k < n; k++) {
                double w_k;
                memcpy(&w_k, w + k * w_stride, sizeof w_k);
                dp += w_k * slope[k];
            }
            double *dw = as_doubles(row.data[DFREQUENCY]) + k0;
            for (int k = 0; k < n; k++)
                dw[k] = p * slope[k];
            if (row.data[DPHASE])
                memcpy(as_doubles(row.data[DPHASE]) + k0, slope, (size_t)n * sizeof *slope);
            row_store(dr, row.data[DAMPLITUDE] + k0 * storage_size(a[DAMPLITUDE].storage), a[DAMPLITUDE].storage, n);
            memcpy(row.data[DPOSITIONS], &dp, sizeof dp);
        }
    }
}
