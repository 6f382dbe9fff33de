/* distance_function.c -- a bias whose values the caller passes, one for each distance:
 *
 *     for (int j = 0; j < n; j++)
 *         out[j] = values[h][i];          i is the last index with distances[i] <= rel[j]
 *
 * arrays: values(h,l), distances(l), ascending. Python passes every distance that occurs in the call. If the first
 * distance is an integer and the last is l - 1 more, i is rel[j] - distances[0]; otherwise bisection finds i.
 */
#include "bias/position.h"

enum { VALUES, DISTANCES };

/* The index of the last distance that is at most rel, or 0 */
static idx index_of(const double *distances, idx count, int is_range, double rel)
{
    idx low = 0, high = count - 1;
    if (is_range)
        return within((idx)clamp_(rel - distances[0], (double)high), count);
    while (low < high) {
        const idx middle = high - (high - low) / 2;
        if (distances[middle] <= rel)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static int is_range(const double *distances, idx count)
{
    return distances[count - 1] - distances[0] == (double)(count - 1) && (double)(int64_t)distances[0] == distances[0];
}

static void distance_function(const pe_array *array, const idx *dim, idx h, const double *restrict rel, int n,
                              real *restrict out)
{
    const double *restrict values = element(&array[VALUES], h, 0);
    const double *restrict distances = as_doubles(array[DISTANCES].data);
    const int range = is_range(distances, D(L));
    for (int j = 0; j < n; j++)
        out[j] = (real)values[index_of(distances, D(L), range, rel[j])];
}

static void distance_function_vjp(const pe_array *array, const idx *dim, idx h, const double *rel, int n,
                                  const double *grad, const pe_array *into)
{
    const double *distances = as_doubles(array[DISTANCES].data);
    const int range = is_range(distances, D(L));
    for (int j = 0; j < n; j++)
        *element(&into[VALUES], h, index_of(distances, D(L), range, rel[j])) += grad[j];
}

const pe_position_op FN(distance_function_op) = {.distance = distance_function, .distance_vjp = distance_function_vjp};
