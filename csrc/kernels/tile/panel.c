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

void FN(add_bias)(real *s, int n, int width, const pe_panel_bias *bias, real *m)
{
    for (int l = 0; l < width; l += LANES) {
        vec max = vec_load(m + l);
        for (int j = 0; j < n; j++) {
            vec x = vec_load(s + j * width + l);
            if (bias->add)
                x = vec_bias(x, vec_load(bias->add + j * bias->step + l));
            max = vec_max(x, max);
            vec_store(s + j * width + l, x);
        }
        vec_store(m + l, max);
    }
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

/* Each branch passes a constant width, so that the compiler keeps the sums in registers. */
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

/* ---- queries that times scale leave the range of real ---- */

/* Numbers below 2**LEAST are lifted below 2**LIFTED, so that no sum of MOST_WIDTH products with keys overflows. Without
 * that, a number that underflows is less than 2**-66 (double: 2**-522) of the largest of its query. Powers of two up to
 * 2**MOST_LATE and their inverses are normal numbers, as are those from 2**(NORMAL - 1) on. */
#if PE_REAL == 32
enum { LEAST = -63, LIFTED = -25, MOST_LATE = 126, NORMAL = -125 };
#else
enum { LEAST = -500, LIFTED = -25, MOST_LATE = 1022, NORMAL = -1021 };
#endif

/* The least number with |row| scale < 2**number for the whole row, or one more. Returns 0 if no factor helps. */
static int find_exponent(const real *row, int n, double scale, int *exponent, int *of_scale)
{
    real largest = 0;
    int of_row;
    for (int k = 0; k < n; k++) {
        const real size = row[k] < 0 ? -row[k] : row[k];
        largest = size > largest ? size : largest;
    }
    if (largest == 0 || !is_finite(largest) || scale == 0)
        return 0;
    (void)frexp((double)largest, &of_row);
    (void)frexp(scale, of_scale);
    *exponent = of_row + *of_scale;
    return 1;
}

int FN(row_in_range)(const real *row, int n, double scale, int highest)
{
    int exponent, of_scale;
    return !find_exponent(row, n, scale, &exponent, &of_scale)
           || (exponent <= highest && exponent > LEAST && of_scale >= NORMAL);
}

/* Pack a row as lane `out` of a panel, times scale / *late. */
static void pack_row(const real *row, int n, double scale, int width, real *out, real *late)
{
    int exponent = 0, of_scale = 0;
    (void)find_exponent(row, n, scale, &exponent, &of_scale);
    const int away = exponent - (exponent > HIGHEST ? HIGHEST : LIFTED);
    const int power = (int)max_(-MOST_LATE, min_(away, MOST_LATE));
    const double factor = ldexp(scale, -power);
    *late = (real)ldexp(1, power);
    for (int k = 0; k < n; k++)
        out[k * width] = (real)((double)row[k] * factor);
}

/* The sum of the squares of each lane */
static void sums_of_squares(const real *packed, int n, int width, real *sum)
{
    for (int l = 0; l < width; l += LANES) {
        vec acc[4] = {vec_set(0), vec_set(0), vec_set(0), vec_set(0)};
        int k = 0;
        for (; k + 4 <= n; k += 4) {
            UNROLL
            for (int i = 0; i < 4; i++) {
                const vec x = vec_load(packed + (k + i) * width + l);
                acc[i] = vec_fma(x, x, acc[i]);
            }
        }
        for (; k < n; k++) {
            const vec x = vec_load(packed + k * width + l);
            acc[0] = vec_fma(x, x, acc[0]);
        }
        vec_store(sum + l, vec_add(vec_add(acc[0], acc[1]), vec_add(acc[2], acc[3])));
    }
}

int FN(pack_in_range)(const pe_query_block *queries, int n, double scale, real *copy, real *out, real *late)
{
    const pe_storage storage = queries->call->array[A_Q].storage;
    int any = 0;
    FN(pack_queries)(queries, A_Q, n, (real)scale, copy, out);
    for (const pe_panel *p = queries->panel; p < queries->panel + queries->panels; p++) {
        real sum[PANEL_LANES];
        sums_of_squares(out + p->first * n, n, p->width, sum);
        for (int l = 0; l < p->width; l++) {
            late[p->first + l] = 1;
            if (l >= p->lanes || squares_in_range(sum[l]))
                continue;
            const real *row = row_read(query_row(queries, A_Q, p->first + l), storage, n, copy);
            if (FN(row_in_range)(row, n, scale, HIGHEST))
                continue;
            pack_row(row, n, scale, p->width, out + p->first * n + l, &late[p->first + l]);
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
