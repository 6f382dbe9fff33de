/* alibi.c -- ALiBi (Press et al. 2022, section 3):   b_h(rel) = -slope_h |rel|
 *
 *     for (int j = 0; j < n; j++)
 *         out[j] = -slope * fabs(rel[j]);
 *
 * rel is the position of the key minus the position of the query, a double, exact if both are integers below 2**52. The
 * product is computed in double and rounded to the result. If positions count up by one, the loop runs once per
 * distance instead of once per pair.
 */
#include "bias/position.h"

enum { SLOPES };

DISTANCE_VALUES(alibi)
{
    const double slope = *element(&array[SLOPES], h, 0);
    SIMD
    for (int j = 0; j < n; j++)
        out[j] = (real)(0.0 - slope * fabs_(rel[j])); /* subtracted from 0, so that rel = 0 gives 0 and not -0 */
}

/* d slope -= |rel| grad */
DISTANCE_VJP(alibi_vjp)
{
    double d_slope = 0;
    for (int j = 0; j < n; j++)
        d_slope -= grad[j] * fabs_(rel[j]);
    *element(&into[SLOPES], h, 0) += d_slope;
}

const pe_position_operator FN(alibi_operator) = {.distance = alibi, .distance_vjp = alibi_vjp};
