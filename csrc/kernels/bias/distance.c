/* distance.c -- ALiBi and KERPLE: biases that are short functions of rel = position of key - position of query.
 *
 * rel is exact in double; a value is computed in double and rounded once.
 */
#include "base/elementary.h"
#include "bias/position.h"

#include <math.h>

/* ALiBi (Press et al. 2022, section 3):   b_h(rel) = -slope_h |rel| */
enum { SLOPES };

static void alibi(const pe_array *array, const idx *dim, idx h, const double *restrict rel, int n, real *restrict out)
{
    const double slope = *element(&array[SLOPES], h, 0);
    (void)dim;
    SIMD
    for (int j = 0; j < n; j++)
        out[j] = (real)(0.0 - slope * fabs_(rel[j])); /* subtracted from 0, so that rel = 0 gives 0 and not -0 */
}

static void alibi_vjp(const pe_array *array, const idx *dim, idx h, const double *rel, int n, const double *grad,
                      const pe_array *into)
{
    double d_slope = 0;
    (void)array, (void)dim;
    for (int j = 0; j < n; j++)
        d_slope -= grad[j] * fabs_(rel[j]);
    *element(&into[SLOPES], h, 0) += d_slope;
}

const pe_position_op FN(alibi_op) = {.distance = alibi, .distance_vjp = alibi_vjp};

/* KERPLE, logarithmic (Chi et al. 2022, equation 6):   b_h(rel) = -r1_h log(1 + r2_h |rel|) */
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

/* KERPLE, power (Chi et al. 2022, equation 5):   b_h(rel) = -r1_h |rel|**r2_h */
static void kerple_power(const pe_array *array, const idx *dim, idx h, const double *restrict rel, int n,
                         real *restrict out)
{
    const double r1 = *element(&array[R1], h, 0), r2 = *element(&array[R2], h, 0);
    (void)dim;
    SIMD
    for (int j = 0; j < n; j++)
        out[j] = (real)(0.0 - r1 * power_pos(fabs_(rel[j]), r2));
}

/* d r1 -= |rel|**r2 grad,   d r2 -= r1 |rel|**r2 log |rel| grad, which is 0 at rel = 0 */
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
