/* kerple.c -- KERPLE (Chi et al. 2022, equations 5 and 6):
 *
 *     kerple_log    b_h(rel) = -r1_h log(1 + r2_h |rel|)
 *     kerple_power  b_h(rel) = -r1_h |rel|**r2_h
 *
 *     for (int j = 0; j < n; j++)
 *         out[j] = -r1 * log1p(r2 * fabs(rel[j]));        or -r1 * pow(fabs(rel[j]), r2)
 *
 * rel is the position of the key minus the position of the query, a double, exact if both are integers below 2**52. A
 * value is computed in double and rounded to the result. log1p_pos and power_pos call no library function, so the
 * compiler vectorises the loop of `fill`.
 */
#include "base/elementary.h"
#include "bias/position.h"

#include <math.h>

enum { R1, R2 };

/* |rel|**r2 or log(1 + r2 |rel|). Callers pass a constant `power`. */
INLINE double of_distance(int power, double r2, double distance)
{
    return power ? power_pos(distance, r2) : log1p_pos(r2 * distance);
}

INLINE void fill(int power, const pe_array *array, idx h, const double *restrict rel, int n, real *restrict out)
{
    const double r1 = *element(&array[R1], h, 0), r2 = *element(&array[R2], h, 0);
    SIMD
    for (int j = 0; j < n; j++)
        out[j] = (real)(0.0 - r1 * of_distance(power, r2, fabs_(rel[j])));
}

/* kerple_log      d r1 -= log(1 + r2 |rel|) grad,   d r2 -= r1 |rel| / (1 + r2 |rel|) grad
 * kerple_power    d r1 -= |rel|**r2 grad,           d r2 -= r1 |rel|**r2 log |rel| grad,   0 at rel = 0 */
INLINE void vjp(int power, const pe_array *array, idx h, const double *rel, int n, const double *grad,
                const pe_array *into)
{
    const double r1 = *element(&array[R1], h, 0), r2 = *element(&array[R2], h, 0);
    double sum_1 = 0, sum_2 = 0;
    for (int j = 0; j < n; j++) {
        const double distance = fabs_(rel[j]), f = of_distance(power, r2, distance);
        sum_1 -= grad[j] * f;
        if (power)
            sum_2 -= distance > 0 ? grad[j] * r1 * f * log_pos(distance) : 0;
        else
            sum_2 -= grad[j] * r1 * distance / (1 + r2 * distance);
    }
    *element(&into[R1], h, 0) += sum_1;
    *element(&into[R2], h, 0) += sum_2;
}

DISTANCE_VALUES(kerple_log) { fill(0, array, h, rel, n, out); }
DISTANCE_VJP(kerple_log_vjp) { vjp(0, array, h, rel, n, grad, into); }
DISTANCE_VALUES(kerple_power) { fill(1, array, h, rel, n, out); }
DISTANCE_VJP(kerple_power_vjp) { vjp(1, array, h, rel, n, grad, into); }

const pe_position_operator FN(kerple_log_operator) = {.distance = kerple_log, .distance_vjp = kerple_log_vjp};
const pe_position_operator FN(kerple_power_operator) = {.distance = kerple_power, .distance_vjp = kerple_power_vjp};
