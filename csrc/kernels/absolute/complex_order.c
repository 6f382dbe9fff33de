/* complex_order.c -- z = r exp(i a), stored as pairs (real, imaginary), from the cosines and sines of the angles a.
 *
 *     for (k < c)
 *         z[2 * k] = r[k] * cos[k], z[2 * k + 1] = r[k] * sin[k];
 *
 * cos and sin are double, so that each number of z is rounded once.
 */
#include "base/layout.h"
#include "base/row.h"

typedef struct {
    real *amplitude, *grad, *d_amplitude; /* copies of a row in half precision, as real */
} complex_order_state;

LAYOUT(complex_order)
{
    s->amplitude = carve_reals(c, D(c));
    s->grad = carve_reals(c, D(z));
    s->d_amplitude = carve_reals(c, D(c));
}

static NOINLINE void write_pairs(const real *restrict r, const double *restrict cosine, const double *restrict sine,
                                 idx n, real *restrict out)
{
    SIMD
    for (idx k = 0; k < n; k++) {
        out[2 * k] = (real)((double)r[k] * cosine[k]);
        out[2 * k + 1] = (real)((double)r[k] * sine[k]);
    }
}

KERNEL(complex_order)
{
    enum { AMPLITUDE, COS, SIN, OUT };
    const idx c = call->D(c);
    const complex_order_state s = complex_order_begin(call, work);
    for (pe_row row = row_at(call, begin); row.index < end; row_next(call, &row)) {
        const real *r = row_read(row.data[AMPLITUDE], call->array[AMPLITUDE].storage, c, s.amplitude);
        write_pairs(r, as_doubles(row.data[COS]), as_doubles(row.data[SIN]), c, as_reals(row.data[OUT]));
    }
}

/* dr = cos d(re) + sin d(im),   da = r (cos d(im) - sin d(re)) */
static NOINLINE void complex_gradients(const real *restrict grad, const real *restrict r, const double *restrict cosine,
                                       const double *restrict sine, idx n, real *restrict d_amplitude,
                                       double *restrict d_angle)
{
    SIMD
    for (idx k = 0; k < n; k++) {
        const double re = (double)grad[2 * k], im = (double)grad[2 * k + 1];
        d_angle[k] = (double)r[k] * (cosine[k] * im - sine[k] * re);
        d_amplitude[k] = (real)(cosine[k] * re + sine[k] * im);
    }
}

KERNEL(complex_order_vjp)
{
    enum { AMPLITUDE, GRAD, COS, SIN, DAMPLITUDE, DANGLE };
    const idx c = call->D(c);
    const pe_array *a = call->array;
    const complex_order_state s = complex_order_begin(call, work);
    for (pe_row row = row_at(call, begin); row.index < end; row_next(call, &row)) {
        const real *grad = row_read(row.data[GRAD], a[GRAD].storage, 2 * c, s.grad);
        const real *r = row_read(row.data[AMPLITUDE], a[AMPLITUDE].storage, c, s.amplitude);
        real *to = row_target(row.data[DAMPLITUDE], a[DAMPLITUDE].storage, s.d_amplitude);
        complex_gradients(grad, r, as_doubles(row.data[COS]), as_doubles(row.data[SIN]), c, to,
                          as_doubles(row.data[DANGLE]));
        row_write(to, row.data[DAMPLITUDE], a[DAMPLITUDE].storage, c);
    }
}
