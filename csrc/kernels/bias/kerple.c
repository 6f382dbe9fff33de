/* kerple.c -- KERPLE (Chi et al. 2022, equations 5 and 6):
 *
 *     kerple_log    b_h(rel) = -r1_h log(1 + r2_h |rel|)
 *     kerple_power  b_h(rel) = -r1_h |rel|**r2_h
 *
 *     for (int j = 0; j < n; j++)
 *         out[j] = -r1 * log1p(r2 * fabs(rel[j]));        or -r1 * pow(fabs(rel[j]), r2)
 *
 * rel, the position of the key minus the position of the query, is exact in double. A value is computed in double and
 * rounded once. log1p_pos and power_pos call no library function, so the compiler vectorises the loops.
 */
#include "base/elementary.h"
#include "bias/position.h"

#include <math.h>

enum { R1, R2 };

static void kerple_log(const pe_array *array, const idx *dim, idx h, const double *restrict rel, int n,
                       real *restrict out)
{
    const double r1 = *element(&array[R1], h, 0), r2 = *element(&array[R2], h, 0);
    (void)dim;
    SIMD
    for (int j = 0; j < n; j++)
        out[j] = (real)(0.0 - r1 * log1p_pos(r2 * fabs_(rel[j])));
}

/* d r1 -= log(1 + r2 |rel|) grad,   d r2 -= r1 |rel| / (1 + r2 |rel|) grad */
static void kerple_log_vjp(const pe_array *array, const idx *dim, idx h, const double *rel, int n, const double *grad,
                           const pe_array *into)
{
    const double r1 = *element(&array[R1], h, 0), r2 = *element(&array[R2], h, 0);
    double d_r1 = 0, d_r2 = 0;
    (void)dim;
    for (int j = 0; j < n; j++) {
        const double distance = fabs_(rel[j]);
        d_r1 -= grad[j] * log1p_pos(r2 * distance);
        d_r2 -= grad[j] * r1 * distance / (1 + r2 * distance);
    }
    *element(&into[R1], h, 0) += d_r1;
    *element(&into[R2], h, 0) += d_r2;
}

const pe_position_op FN(kerple_log_op) = {.distance = kerple_log, .distance_vjp = kerple_log_vjp};

/* ---- kerple_power ---- */

static void kerple_power(const pe_array *array, const idx *dim, idx h, const double *restrict rel, int n,
                         real *restrict out)
{
    const double r1 = *element(&array[R1], h, 0), r2 = *element(&array[R2], h, 0);
    (void)dim;
    SIMD
    for (int j = 0; j < n; j++)
        out[j] = (real)(0.0 - r1 * power_pos(fabs_(rel[j]), r2));
}

/* d r1 -= |rel|**r2 grad,   d r2 -= r1 |rel|**r2 log |rel| grad. At rel = 0 the gradient of r2 is 0. */
static void kerple_power_vjp(const pe_array *array, const idx *dim, idx h, const double *rel, int n, const double *grad,
                             const pe_array *into)
{
    const double r1 = *element(&array[R1], h, 0), r2 = *element(&array[R2], h, 0);
    double d_r1 = 0, d_r2 = 0;
    (void)dim;
    for (int j = 0; j < n; j++) {
        const double distance = fabs_(rel[j]), power = power_pos(distance, r2);
        d_r1 -= grad[j] * power;
        d_r2 -= distance > 0 ? grad[j] * r1 * power * log(distance) : 0;
    }
    *element(&into[R1], h, 0) += d_r1;
    *element(&into[R2], h, 0) += d_r2;
}

const pe_position_op FN(kerple_power_op) = {.distance = kerple_power, .distance_vjp = kerple_power_vjp};
