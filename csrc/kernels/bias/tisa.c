/* tisa.c -- TISA (Wennberg and Henter 2021, section 4.2):   b_h(rel) = sum_r a_hr exp(-|b_hr| (rel - c_hr)**2)
 *
 *     for (int j = 0; j < n; j++)          with out[j] = 0 before
 *         for (int r = 0; r < R; r++)
 *             out[j] += a[h][r] * exp(-fabs(b[h][r]) * (rel[j] - c[h][r]) * (rel[j] - c[h][r]));
 *
 * The code exchanges the two loops for DISTANCES distances at a time, so the inner loop is
 * over distances and vectorises.
 */
#include "base/elementary.h"
#include "bias/position.h"

enum { A, B, C };
enum { DISTANCES = 64 }; /* distances at a time */

DISTANCE_VALUES(tisa)
{
    for (int first = 0; first < n; first += DISTANCES) {
        const int count = (int)min_(DISTANCES, n - first);
        double sum[DISTANCES] = {0};
        for (idx r = 0; r < D(R); r++) {
            const double a = *element(&array[A], h, r), b = fabs_(*element(&array[B], h, r));
            const double c = *element(&array[C], h, r);
            SIMD
            for (int j = 0; j < count; j++) {
                const double away = rel[first + j] - c;
                sum[j] += a * exp_minus(b * (away * away));
            }
        }
        for (int j = 0; j < count; j++)
            out[first + j] = (real)sum[j];
    }
}

/* With e = exp(-|b| x**2), x = rel - c:   d a += e grad,   d b -= sign(b) a x**2 e grad,   d c += 2 a |b| x e grad */
DISTANCE_VJP(tisa_vjp)
{
    for (idx r = 0; r < D(R); r++) {
        const double a = *element(&array[A], h, r), b = *element(&array[B], h, r), c = *element(&array[C], h, r);
        double d_a = 0, d_b = 0, d_c = 0;
        for (int j = 0; j < n; j++) {
            const double x = rel[j] - c, weight = grad[j] * exp_minus(fabs_(b) * (x * x));
            d_a += weight;
            d_b -= weight * (x * x);
            d_c += weight * x;
        }
        *element(&into[A], h, r) += d_a;
        *element(&into[B], h, r) += b < 0 ? -a * d_b : b > 0 ? a * d_b : 0;
        *element(&into[C], h, r) += 2 * a * fabs_(b) * d_c;
    }
}

const pe_position_operator FN(tisa_operator) = {.distance = tisa, .distance_vjp = tisa_vjp};
