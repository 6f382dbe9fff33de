/* panel.c -- the steps of panel.h. For example, the exponentials of a panel:
 *
 *     for (int j = 0; j < n; j++)
 *         for (int l = 0; l < width; l++)
 *             sum[l] += s[j][l] = exp(s[j][l] - m[l]);
 *
 * Lanes are independent, so the compiler turns a loop over lanes into one or two vector instructions.
 */
#include "tile/panel.h"

#include "base/elementary.h"
#include "base/transpose.h"

#include <math.h>

void FN(cap)(real *restrict s, int n, real cap)
{
    const real inverse = 1 / cap;
    SIMD
    for (int i = 0; i < n; i++)
        s[i] = cap * tanh_(s[i] * inverse);
}

/* add_bias and exponentials are inlined with a constant width, so that maxima and sums stay in registers. */
INLINE void add_bias(int width, real *s, int n, const real *factor, const real *bias, int step, real *m)
{
    enum { MOST_VECTORS = 2 };
    vec max[MOST_VECTORS];
    for (int l = 0; l < width; l += LANES)
        max[l / LANES] = vec_load(m + l);
    for (int j = 0; j < n; j++, s += width) {
        UNROLL
        for (int l = 0; l < width; l += LANES) {
            vec x = vec_load(s + l);
            if (factor)
                x = vec_mul(x, vec_load(factor + l));
            if (bias)
                x = vec_bias(x, vec_load(bias + j * step + l));
            max[l / LANES] = vec_max(x, max[l / LANES]);
            vec_store(s + l, x);
        }
    }
    for (int l = 0; l < width; l += LANES)
        vec_store(m + l, max[l / LANES]);
}

void FN(add_bias)(real *s, int n, int width, const real *factor, const pe_panel_bias *bias, real *m)
{
    const int step = bias->add ? bias->step : 0;
    if (width == LANES)
        add_bias(LANES, s, n, factor, bias->add, step, m);
    else
        add_bias(PANEL_LANES, s, n, factor, bias->add, step, m);
}

INLINE void exponentials(int width, real *restrict s, const real *restrict m, int n, real *restrict l)
{
    real sum[PANEL_LANES] = {0};
    for (int j = 0; j < n; j++, s += width) {
        SIMD
        for (int i = 0; i < width; i++) {
            s[i] = exp2_((s[i] - m[i]) * LOG2_E);
            sum[i] += s[i];
        }
    }
    for (int i = 0; i < width; i++)
        l[i] += sum[i];
}

void FN(exponentials)(real *s, const real *m, int n, int width, real *l)
{
    if (width == LANES)
        exponentials(LANES, s, m, n, l);
    else
        exponentials(PANEL_LANES, s, m, n, l);
}

static pe_rows copied_rows(const real *copy, idx copy_width)
{
    return plain_rows((const char *)copy, copy_width * (idx)sizeof(real), PE_STORAGE);
}

pe_rows FN(tile_rows)(pe_rows stored, int n, int width, int panels, real *copy)
{
    const idx copy_width = width + ROW_PAD;
    if (stored.storage == PE_STORAGE && !(stored.step % 4096 == 0 && panels > 1))
        return stored;
    for (int j = 0; j < n; j++) {
        real *to = copy + j * copy_width;
        const real *row = real_row_of(&stored, j, width, to);
        if (row != to)
            memcpy(to, row, (size_t)width * sizeof *row);
    }
    return copied_rows(copy, copy_width);
}

pe_rows FN(finite_rows)(pe_rows stored, int n, int width, real *copy)
{
    const idx copy_width = width + ROW_PAD;
    for (int j = 0; j < n; j++) {
        real *to = copy + j * copy_width;
        const real *row = real_row_of(&stored, j, width, to);
        for (int k = 0; k < width; k++)
            to[k] = is_finite(row[k]) ? row[k] : 0;
    }
    return copied_rows(copy, copy_width);
}

void FN(pack_queries)(const pe_query_block *queries, int operand, int n, real scale, real *copy, real *out)
{
    const pe_array *a = &queries->call->array[operand];
    for (const pe_panel *p = queries->panel; p < queries->panel + queries->panels; p++) {
        const pe_rows stored = plain_rows(query_row(queries, operand, p->first), a->core[1], a->storage);
        const pe_rows rows = FN(tile_rows)(stored, p->lanes, n, 1, copy);
        pack_transposed(rows.data, rows.step, p->lanes, n, scale, p->width, out + p->first * n);
    }
}

/* ---- queries whose product with the scale leaves the range of real ---- */

/* If the largest number of a query times scale is below 2**(LEAST - 1), pack_row multiplies the query by a power of
 * two. The power lifts this number to 2**LIFTED at most, so that no sum of MOST_WIDTH products with keys overflows. In
 * a query without a factor, a number that underflows is less than 2**-62 (double: 2**-521) of the largest number. The
 * power is at most 2**MOST_LIFT: it also lifts the terms that operators add to the scores, and normal queries need no
 * more. Powers of two up to 2**MOST_LATE and their inverses are normal numbers, as are powers from 2**(NORMAL - 1)
 * on. */
#if PE_REAL == 32
enum { LEAST = -63, LIFTED = -25, MOST_LIFT = 64, MOST_LATE = 126, NORMAL = -125 };
#else
enum { LEAST = -500, LIFTED = -25, MOST_LIFT = 524, MOST_LATE = 1022, NORMAL = -1021 };
#endif

/* The least number with x scale < 2**number, or one more */
static int exponent_of(real x, double scale)
{
    int of_x, of_scale;
    (void)frexp((double)x, &of_x);
    (void)frexp(scale, &of_scale);
    return of_x + of_scale;
}

real FN(largest_of)(const real *row, int n)
{
    real largest = 0;
    for (int k = 0; k < n; k++) {
        const real size = row[k] < 0 ? -row[k] : row[k];
        largest = size > largest ? size : largest;
    }
    return largest;
}

/* Return the exponent of the factor that keeps a row times scale, and `added` times scale, in range; 0 if they are
 * in range without a factor, or if no factor helps. 0 is no exponent of a factor: -1 replaces it. */
static int find_power(const real *row, int n, real added, double scale, int highest)
{
    const real largest = FN(largest_of)(row, n);
    if ((largest == 0 && added == 0) || !is_finite(largest) || !is_finite(added) || scale == 0)
        return 0;
    const int least = exponent_of(largest == 0 ? added : largest, scale);
    const int most = exponent_of(largest > added ? largest : added, scale);
    if (most <= highest && least > LEAST && exponent_of(1, scale) > NORMAL)
        return 0;
    const int away = (int)(most > HIGHEST ? most - HIGHEST : max_(least - LIFTED, most - HIGHEST));
    const int power = (int)max_(-MOST_LIFT, min_(away, MOST_LATE));
    return power == 0 ? -1 : power;
}

int FN(row_in_range)(const real *row, int n, double scale, int highest)
{
    return find_power(row, n, 0, scale, highest) == 0;
}

/* Pack a row as lane `out` of a panel, times scale / *late. */
static void pack_row(const real *row, int n, double scale, int power, int width, real *out, real *late)
{
    const double factor = ldexp(scale, -power);
    *late = (real)ldexp(1, power);
    for (int k = 0; k < n; k++)
        out[k * width] = (real)((double)row[k] * factor);
}

void FN(pack_rows_in_range)(const char *rows, idx step, int lanes, int n, double scale, int width, real *out,
                            real *late)
{
    for (int l = 0; l < width; l++) {
        const real *row = real_row(rows, step, min_(l, lanes - 1));
        pack_row(row, n, scale, find_power(row, n, 0, scale, HIGHEST), width, out + l, &late[l]);
    }
}

void FN(multiply_lanes)(real *restrict x, const real *restrict factor, int n, int width)
{
    for (int j = 0; j < n; j++, x += width) {
        SIMD
        for (int l = 0; l < width; l++)
            x[l] *= factor[l];
    }
}

/* The sum of the squares of each lane */
static void sums_of_squares(const real *packed, int n, int width, real *sum)
{
    enum { SUMS = 8 }; /* two FMA units with a latency of 4 cycles are busy with 8 independent sums */
    for (int l = 0; l < width; l += LANES) {
        vec acc[SUMS] = {vec_set(0)};
        for (int k = 0; k < n; k += SUMS) {
            UNROLL
            for (int i = 0; i < SUMS; i++) {
                const vec x = k + i < n ? vec_load(packed + (k + i) * width + l) : vec_set(0);
                acc[i] = vec_fma(x, x, acc[i]);
            }
        }
        UNROLL
        for (int i = 1; i < SUMS; i++)
            acc[0] = vec_add(acc[0], acc[i]);
        vec_store(sum + l, acc[0]);
    }
}

int FN(pack_in_range)(const pe_query_block *queries, int n, double scale, real added, int highest, real *copy,
                      real *out, real *late)
{
    const pe_storage storage = queries->call->array[A_Q].storage;
    const int is_added_small = added == 0 || exponent_of(added, scale) <= HIGHEST;
    int any = 0;
    FN(pack_queries)(queries, A_Q, n, (real)scale, copy, out);
    for (const pe_panel *p = queries->panel; p < queries->panel + queries->panels; p++) {
        real sum[PANEL_LANES];
        int out_of_range = !is_added_small;
        sums_of_squares(out + p->first * n, n, p->width, sum);
        for (int l = 0; l < p->width; l++)
            late[p->first + l] = 1;
        for (int l = 0; l < p->lanes; l++)
            out_of_range |= !squares_in_range(sum[l]);
        for (int l = 0; l < p->lanes && out_of_range; l++) {
            if (squares_in_range(sum[l]) && is_added_small)
                continue;
            const real *row = row_read(query_row(queries, A_Q, p->first + l), storage, n, copy);
            const int power = find_power(row, n, added, scale, highest);
            if (power == 0)
                continue;
            pack_row(row, n, scale, power, p->width, out + p->first * n + l, &late[p->first + l]);
            any = 1;
        }
    }
    return any;
}

int FN(unpack_queries)(const pe_query_block *queries, idx head, int operand, int n, const real *x, real scale,
                       const real *divisor, real *copy)
{
    const pe_array *a = &queries->call->array[operand];
    const int in_place = a->storage == PE_STORAGE;
    const idx step = in_place ? a->core[1] : n * (idx)sizeof(real);
    int finite = 1;
    for (const pe_panel *p = queries->panel; p < queries->panel + queries->panels; p++) {
        const real *by = divisor ? divisor + p->first : NULL;
        char *rows = in_place ? query_row_of_head(queries, head, operand, p->first) : (char *)copy;
        finite &= unpack_transposed(x + p->first * n, p->width, p->lanes, n, scale, by, rows, step);
        for (int l = 0; l < p->lanes; l++)
            row_write(real_row(rows, step, l), query_row_of_head(queries, head, operand, p->first + l), a->storage, n);
    }
    return finite;
}
