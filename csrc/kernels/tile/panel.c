/* panel.c -- the steps of panel.h.
 *
 * Lanes are independent, so the compiler turns a loop over lanes into one or two vector instructions.
 */
#include "tile/panel.h"

#include "base/elementary.h"
#include "base/transpose.h"

void FN(cap)(real *restrict s, int n, real cap)
{
    const real inverse = 1 / cap;
    SIMD
    for (int i = 0; i < n; i++)
        s[i] = cap * tanh_(s[i] * inverse);
}

/* add_bias and exponentials are inlined with a constant width, so that maxima and sums stay in registers. */
INLINE void add_bias(int width, real *s, int n, real factor, const real *bias, int step, real *m)
{
    enum { MOST_VECTORS = 2 };
    vec max[MOST_VECTORS];
    for (int l = 0; l < width; l += LANES)
        max[l / LANES] = m ? vec_load(m + l) : vec_set(0);
    for (int j = 0; j < n; j++, s += width) {
        UNROLL
        for (int l = 0; l < width; l += LANES) {
            vec x = vec_mul(vec_load(s + l), vec_set(factor));
            if (bias)
                x = vec_bias(x, vec_load(bias + j * step + l));
            max[l / LANES] = vec_max(x, max[l / LANES]);
            vec_store(s + l, x);
        }
    }
    for (int l = 0; m && l < width; l += LANES)
        vec_store(m + l, max[l / LANES]);
}

void FN(add_bias)(real *s, int n, int width, real factor, const pe_panel_bias *bias, real *m)
{
    FOR_WIDTH(add_bias, width, s, n, factor, bias->add, bias->add ? bias->step : 0, m);
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

void FN(exponentials)(real *s, const real *m, int n, int width, real *l) { FOR_WIDTH(exponentials, width, s, m, n, l); }

pe_lines FN(tile_rows)(pe_rows stored, int n, int width, int panels, real *copy)
{
    const idx copy_width = width + ROW_PAD;
    if (is_real(stored.storage) && !(stored.step % 4096 == 0 && panels > 1))
        return (pe_lines){stored.data, stored.step};
    for (int j = 0; j < n; j++) {
        real *to = copy + j * copy_width;
        const real *row = real_row_of(&stored, j, width, to);
        if (row != to)
            memcpy(to, row, (size_t)width * sizeof *row);
    }
    return lines_of(copy, copy_width);
}

pe_lines FN(finite_rows)(pe_rows stored, int n, int width, real *copy)
{
    const idx copy_width = width + ROW_PAD;
    for (int j = 0; j < n; j++) {
        real *to = copy + j * copy_width;
        const real *row = real_row_of(&stored, j, width, to);
        for (int k = 0; k < width; k++)
            to[k] = is_finite(row[k]) ? row[k] : 0;
    }
    return lines_of(copy, copy_width);
}

void FN(pack_queries)(const pe_query_block *queries, int operand, int n, real scale, real *copy, real *out)
{
    const pe_array *a = &queries->call->array[operand];
    for (const pe_panel *p = queries->panel; p < queries->panel + queries->panels; p++) {
        const pe_rows stored = plain_rows(query_row(queries, operand, p->first), a->core[1], a->storage);
        const pe_lines rows = FN(tile_rows)(stored, p->lanes, n, 1, copy);
        pack_transposed(rows, p->lanes, n, scale, p->width, out + p->first * n);
    }
}

int FN(unpack_queries)(const pe_query_block *queries, idx head, int operand, int n, const real *x, real scale,
                       const real *divisor, real *copy)
{
    const pe_array *a = &queries->call->array[operand];
    const int in_place = is_real(a->storage);
    const idx step = in_place ? a->core[1] : n * (idx)sizeof(real);
    int finite = 1;
    for (const pe_panel *p = queries->panel; p < queries->panel + queries->panels; p++) {
        const real *by = divisor ? divisor + p->first : NULL;
        char *rows = in_place ? query_row_of_head(queries, head, operand, p->first) : (char *)copy;
        const pe_lanes lanes = {x + p->first * n, p->width, p->lanes, n};
        finite &= unpack_transposed(lanes, scale, by, rows, step);
        for (int l = 0; l < p->lanes; l++)
            row_write(line_at((pe_lines){rows, step}, l), query_row_of_head(queries, head, operand, p->first + l),
                      a->storage, n);
    }
    return finite;
}
