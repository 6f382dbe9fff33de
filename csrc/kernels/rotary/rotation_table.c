/* rotation_table.c -- tables of cos and sin for positions of several coordinates, whose angles add up; for each row:
 *
 *     for (k < f) {
 *         angle = p[0] * w[0][k] + p[1] * w[1][k] + ...;
 *         out[k] = cosine_scale * cos(angle), out[f + k] = sine_scale * sin(angle);
 *     }
 *
 * The kernel reduces each product p_a w_ak to a fraction of a turn before it adds the fractions, so the result is as
 * accurate for large positions as for small ones.
 */
#include "fits.h"
#include "base/layout.h"
#include "base/row.h"
#include "base/sincos.h"

typedef struct {
    double *hi, *lo;     /* the frequencies in turns, as hi + lo: axes a x f */
    double *turn, *rest; /* angles of a row in turns, as turn + rest */
    real *values;
} rotation_table_state;

LAYOUT(rotation_table)
{
    s->hi = carve_doubles(c, D(a) * D(f));
    s->lo = carve_doubles(c, D(a) * D(f));
    s->turn = carve_doubles(c, D(f));
    s->rest = carve_doubles(c, D(f));
    s->values = carve_reals(c, D(t));
}

/* Add p (hi + lo), the angles of one coordinate, to turn + rest, modulo 1. `rest` takes the low part of the product and
 * the rounding error of the sum. */
static NOINLINE void add_coordinate(double p, const double *restrict hi, const double *restrict lo, idx n,
                                    double *restrict turn, double *restrict rest)
{
    SIMD
    for (idx k = 0; k < n; k++) {
        const double h = p * hi[k], l = product_error(p, hi[k], h) + p * lo[k];
        const double x = without_turns(h), sum = turn[k] + x, other = sum - turn[k];
        rest[k] += ((turn[k] - (sum - other)) + (x - other)) + (l - nearest(l));
        turn[k] = sum - nearest(sum);
    }
}

static NOINLINE void store_angles(const double *restrict turn, const double *restrict rest, idx n, double cosine_scale,
                                  double sine_scale, real *restrict cosine_out, real *restrict sine_out)
{
    SIMD
    for (idx k = 0; k < n; k++) {
        double sine, cosine;
        sincos_fraction(turn[k], rest[k] - nearest(rest[k]), &sine, &cosine);
        sine_out[k] = (real)(sine_scale * sine);
        cosine_out[k] = (real)(cosine_scale * cosine);
    }
}

KERNEL(rotation_table)
{
    enum { POSITIONS, FREQUENCIES, OUT };
    const idx axes = call->D(a), f = call->D(f);
    const pe_array *a = call->array;
    const rotation_table_state s = rotation_table_begin(call, work);
    const char *ready = NULL; /* the frequencies whose turns are in `s` */
    for (pe_row row = row_at(call, begin); row.index < end; row_next(call, &row)) {
        if (ready != row.data[FREQUENCIES]) {
            for (idx axis = 0; axis < axes; axis++) {
                const double *w = as_doubles(row.data[FREQUENCIES] + axis * a[FREQUENCIES].core[0]);
                for (idx k = 0; k < f; k++)
                    turns(w[k], 0, &s.hi[axis * f + k], &s.lo[axis * f + k]);
            }
            ready = row.data[FREQUENCIES];
        }
        memset(s.turn, 0, (size_t)f * sizeof *s.turn);
        memset(s.rest, 0, (size_t)f * sizeof *s.rest);
        for (idx axis = 0; axis < axes; axis++) {
            const double p = scalar_read(row.data[POSITIONS] + axis * a[POSITIONS].core[0], a[POSITIONS].storage);
            add_coordinate(p, s.hi + axis * f, s.lo + axis * f, f, s.turn, s.rest);
        }
        real *to = row_target(row.data[OUT], a[OUT].storage, s.values);
        store_angles(s.turn, s.rest, f, call->par[TABLE_COSINE_SCALE], call->par[TABLE_SINE_SCALE], to, to + f);
        row_write(to, row.data[OUT], a[OUT].storage, 2 * f);
    }
}
