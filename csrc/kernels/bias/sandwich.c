/* sandwich.c -- Sandwich (Chi et al. 2023, section 4):   b_h(rel) = (sum_t cos(w_t rel) - F) / divisor_h,   t < F
 *
 *     for (int j = 0; j < n; j++)          with out[j] = -F / divisor[h] before
 *         for (int t = 0; t < F; t++)
 *             out[j] += cos((frequencies[t] + lo[t]) * rel[j]) / divisor[h];
 *
 * arrays: frequencies(F) and lo(F), in radians per position as double-double, and divisor(h). The code exchanges the
 * two loops for DISTANCES distances at a time, so the inner loop is over distances and vectorises. Sandwich has no
 * learned parameters, so there is no gradient.
 */
#include "base/sincos.h"
#include "bias/position.h"

enum { FREQUENCIES, LO, DIVISOR };
enum { DISTANCES = 64 }; /* distances at a time */

DISTANCE_VALUES(sandwich)
{
    const double divisor = *element(&array[DIVISOR], h, 0);
    for (int first = 0; first < n; first += DISTANCES) {
        const int count = (int)min_(DISTANCES, n - first);
        double sum[DISTANCES] = {0};
        for (idx t = 0; t < D(F); t++) {
            double t_hi, t_lo;
            turns(*element(&array[FREQUENCIES], t, 0), *element(&array[LO], t, 0), &t_hi, &t_lo);
            SIMD
            for (int j = 0; j < count; j++) {
                double sine, cosine;
                sincos_turns(rel[first + j], t_hi, t_lo, &sine, &cosine);
                sum[j] += cosine;
            }
        }
        for (int j = 0; j < count; j++)
            out[first + j] = (real)((sum[j] - (double)D(F)) / divisor);
    }
}

const pe_position_operator FN(sandwich_operator) = {.distance = sandwich};
