/* distance_function.c -- a bias whose values the caller passes, one for each distance:
 *
 *     for (int j = 0; j < n; j++)
 *         out[j] = values[h][i];          i is the last index with distances[i] <= rel[j]
 *
 * arrays: values(h,L), distances(L), ascending. Python passes every distance that occurs in the call. index_of first
 * tries i = rel[j] - distances[0], which is right if the distances are consecutive integers. Otherwise bisection finds
 * i.
 */
#include "bias/position.h"

enum { VALUES, DISTANCES };

/* The index of the last distance that is at most rel, or 0. In a range of integers the guess is right. */
static idx index_of(const double *distances, idx count, double rel)
{
    idx low = 0, high = count - 1;
    const idx guess = within((idx)clamp_(rel - distances[0], (double)high), count);
    if (distances[guess] == rel)
        return guess;
    while (low < high) {
        const idx middle = high - (high - low) / 2;
        if (distances[middle] <= rel)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

DISTANCE_VALUES(distance_function)
{
    const double *restrict values = element(&array[VALUES], h, 0);
    const double *restrict distances = as_doubles(array[DISTANCES].data);
    for (int j = 0; j < n; j++)
        out[j] = (real)values[index_of(distances, D(L), rel[j])];
}

DISTANCE_VJP(distance_function_vjp)
{
    const double *distances = as_doubles(array[DISTANCES].data);
    for (int j = 0; j < n; j++)
        *element(&into[VALUES], h, index_of(distances, D(L), rel[j])) += grad[j];
}

const pe_position_operator FN(distance_function_operator) = {.distance = distance_function,
                                                             .distance_vjp = distance_function_vjp};
