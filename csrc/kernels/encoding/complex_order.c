/* complex_order.c -- z = r exp(i (w p + theta)), stored as pairs (real, imaginary).
 *
 * Angles are double-double turns, as in sinusoid.c. Frequencies and phases have any stride: 0 along a row where one
 * number serves all dimensions of a word, and the same row for every word where they belong to dimensions. Tiles of
 * columns are the outer loop, so that the turns of such a shared row are computed once.
 */
#include "scratch.h"
#include "base/row.h"
#include "base/sincos.h"

enum { TILE = COMPLEX_ORDER_TILE };

typedef struct {
    double t_hi[TILE], t_lo[TILE]; /* turns per position */
    double f_hi[TILE], f_lo[TILE]; /* phase in turns, f_hi within 1/2 */
    double sine[TILE], cosine[TILE];
    real wide[TILE], wide_pairs[2 * TILE];
    const char *frequency, *phase; /* the rows that the turns belong to */
} tile;
_Static_assert(sizeof(tile) <= COMPLEX_ORDER_SCRATCH, "scratch.h says what a tile needs");

static void read_strided(const char *data, idx stride, int n, double *restrict to)
{
    for (int k = 0; k < n; k++)
        memcpy(&to[k], data + k * stride, sizeof(double));
}

static NOINLINE void turns_of(const double *restrict w, int n, double *restrict hi, double *restrict lo)
{
    SIMD
    for (int k = 0; k < n; k++)
        turns(w[k], 0.0, &hi[k], &lo[k]);
}

static NOINLINE void drop_turns(double *hi, int n)
{
    SIMD
    for (int k = 0; k < n; k++)
        hi[k] = without_turns(hi[k]);
}

static NOINLINE void plain_row(tile *t, double p, int n)
{
    SIMD
    for (int k = 0; k < n; k++)
        sincos_turns(p, t->t_hi[k], t->t_lo[k], &t->sine[k], &t->cosine[k]);
}

static NOINLINE void shifted_row(tile *t, double p, int n)
{
    SIMD
    for (int k = 0; k < n; k++)
        sincos_shifted(p, t->t_hi[k], t->t_lo[k], t->f_hi[k], t->f_lo[k], &t->sine[k], &t->cosine[k]);
}

/* Sines and cosines of n columns of a row from k0 on; `first` is the operand `positions`. */
static void angles(tile *t, const pe_call *call, const pe_row *at, int first, idx k0, int n)
{
    const idx w_stride = call->array[first + 1].core[0], f_stride = call->array[first + 2].core[0];
    const char *w = at->data[first + 1] + k0 * w_stride;
    const char *f = at->data[first + 2] ? at->data[first + 2] + k0 * f_stride : NULL;
    const double p = scalar_read(at->data[first], call->array[first].storage);
    if (w != t->frequency) {
        read_strided(w, w_stride, n, t->sine);
        turns_of(t->sine, n, t->t_hi, t->t_lo);
        t->frequency = w;
    }
    if (f && f != t->phase) {
        read_strided(f, f_stride, n, t->sine);
        turns_of(t->sine, n, t->f_hi, t->f_lo);
        drop_turns(t->f_hi, n);
        t->phase = f;
    }
    if (f)
        shifted_row(t, p, n);
    else
        plain_row(t, p, n);
}

static NOINLINE void pairs_row(const tile *t, const real *restrict r, int n, real *restrict out)
{
    SIMD
    for (int k = 0; k < n; k++) {
        out[2 * k] = (real)((double)r[k] * t->cosine[k]);
        out[2 * k + 1] = (real)((double)r[k] * t->sine[k]);
    }
}

INLINE const real *tile_of(const char *row, pe_storage storage, idx k0, int n, real *wide)
{
    return row_read(row + k0 * storage_size(storage), storage, n, wide);
}

/* amplitude(c) positions() frequency~(c) phase?~(c) -> out(z) */
void FN(complex_order)(const pe_call *call, idx begin, idx end, const pe_work *work)
{
    const idx c = min_(call->D(c), call->D(z) / 2);
    tile *t = work->scratch;
    for (idx k0 = 0; k0 < c; k0 += TILE) {
        const int n = (int)min_(TILE, c - k0);
        t->frequency = t->phase = NULL;
        for (pe_row at = row_at(call, begin); at.index < end; row_next(call, &at)) {
            angles(t, call, &at, 1, k0, n);
            pairs_row(t, tile_of(at.data[0], call->array[0].storage, k0, n, t->wide), n,
                      (real *)(void *)at.data[4] + 2 * k0);
        }
    }
}

/* From   re = r cos(w p + theta), im = r sin(w p + theta):
 *     dr = cos dre + sin dim,   dtheta = r (cos dim - sin dre),   dw = p dtheta,   dp = sum_k w_k dtheta_k
 * grad(z) amplitude(c) positions() frequency~(c) phase?~(c) -> damplitude(c) dfrequency(c) dpositions() dphase?(c) */
void FN(complex_order_vjp)(const pe_call *call, idx begin, idx end, const pe_work *work)
{
    const idx c = min_(call->D(c), call->D(z) / 2), stride = call->array[3].core[0];
    const pe_array *a = call->array;
    tile *t = work->scratch;
    for (idx k0 = 0; k0 < c || k0 == 0; k0 += TILE) {
        const int n = (int)min_(TILE, c - k0);
        t->frequency = t->phase = NULL;
        for (pe_row at = row_at(call, begin); at.index < end; row_next(call, &at)) {
            const double p = scalar_read(at.data[2], a[2].storage);
            double dp = 0;
            if (k0 > 0)
                memcpy(&dp, at.data[7], sizeof dp);
            angles(t, call, &at, 2, k0, n);
            const real *grad = tile_of(at.data[0], a[0].storage, 2 * k0, 2 * n, t->wide_pairs);
            const real *r = tile_of(at.data[1], a[1].storage, k0, n, t->wide);
            const char *w = at.data[3] + k0 * stride;
            real dr[TILE];
            double *dw = (double *)(void *)at.data[6] + k0;
            double *dtheta = at.data[8] ? (double *)(void *)at.data[8] + k0 : NULL;
            for (int k = 0; k < n; k++) {
                const double re = (double)grad[2 * k], im = (double)grad[2 * k + 1];
                const double turn = (double)r[k] * (t->cosine[k] * im - t->sine[k] * re);
                double w_k;
                memcpy(&w_k, w + k * stride, sizeof w_k);
                dr[k] = (real)(t->cosine[k] * re + t->sine[k] * im);
                dw[k] = p * turn;
                dp += w_k * turn;
                if (dtheta)
                    dtheta[k] = turn;
            }
            char *out = at.data[5] + k0 * storage_size(a[5].storage);
            if (a[5].storage == PE_STORAGE)
                memcpy(out, dr, (size_t)n * sizeof(real));
            else
                row_write(dr, out, a[5].storage, n);
            memcpy(at.data[7], &dp, sizeof dp);
        }
    }
}
