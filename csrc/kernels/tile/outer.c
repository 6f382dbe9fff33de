/* outer.c -- the product of outer.h, in SIMD registers.
 *
 * Lanes are the inner loop: a micro-tile of rows and one strip of channels keeps its sums in registers for all lanes of
 * all spans, so o is loaded and stored once per call.
 */
#include "tile/outer.h"

typedef struct {
    const pe_span *span;
    int spans;
    const real *x[2]; /* the strip, and the strip beside it */
    pe_sums o;
} outer_product;

INLINE void outer_rows(int rows, int cols, int strips, const void *of, int j)
{
    const outer_product *w = of;
    const int all = strips * cols;
    vec acc[MOST_SUMS];
    int any = 0;
    zero_sums(acc, rows * all);
    for (int p = 0; p < w->spans; p++) {
        const pe_span *s = &w->span[p];
        if (j + rows <= s->from || j >= s->to)
            continue;
        any = 1;
        const pe_lines x[2] = {lines_from(lines_of(w->x[0], cols * LANES), s->first),
                               lines_from(lines_of(w->x[1], cols * LANES), s->first)};
        const pe_matrix weights = {(const char *)(s->w + j * s->width), s->width * (idx)sizeof(real),
                                   (idx)sizeof(real)};
        accumulate(acc, rows, cols, strips, weights, x, s->lanes);
    }
    if (!any)
        return;
    real *o = w->o.row + j * w->o.step;
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int c = 0; c < all; c++) {
            real *to = o + r * w->o.step + c * LANES;
            vec_store(to, vec_add(vec_load(to), acc[r * all + c]));
        }
    }
}

static NOINLINE void outer_narrow(outer_product w, int from, int to) { in_micro_tiles(outer_rows, 1, &w, from, to); }
static NOINLINE void outer_wide(outer_product w, int from, int to) { in_micro_tiles(outer_rows, 2, &w, from, to); }
static NOINLINE int outer_of_two(outer_product w, int from, int to) { return in_two_panels(outer_rows, &w, from, to); }

void FN(add_outer)(const pe_span *span, int spans, const pe_strips *x, int from, int to, pe_sums o)
{
    const int channels = x->channels;
    for (int c = 0; c < channels; c += PANEL_LANES) {
        const real *strip = x->x + c * x->lanes;
        const int next = c + PANEL_LANES;
        outer_product w = {span, spans, {strip, strip}, {o.row + c, o.step}};
        int first = from;
        if (TWO_PANELS && channels > next && strip_width(channels, next) == PANEL_LANES) {
            w.x[1] = x->x + next * x->lanes;
            first = outer_of_two(w, from, to);
            outer_wide(w, first, to);
            w.x[0] = w.x[1];
            w.o.row += PANEL_LANES;
            c = next;
        }
        (strip_width(channels, c) == LANES ? outer_narrow : outer_wide)(w, first, to);
    }
}

void FN(add_outer_of_block)(const pe_query_block *queries, const real *w, const pe_strips *x, int from, int to,
                            pe_sums o)
{
    pe_span span[PANELS];
    for (int p = 0; p < queries->panels; p++) {
        const pe_panel *panel = &queries->panel[p];
        span[p] = (pe_span){w + score_offset(panel, 0), panel->first, panel->lanes, panel->width, from, to};
    }
    FN(add_outer)(span, queries->panels, x, from, to, o);
}

/* The address of channel c of lane i */
static real *in_strips(real *strips, int strip_lanes, int channels, int i, int c)
{
    const int first = c / PANEL_LANES * PANEL_LANES;
    return strips + first * strip_lanes + i * strip_width(channels, first) + (c - first);
}

int FN(strip_row)(const real *row, int n, real scale, real *restrict strips, int strip_lanes, int i)
{
    vec check = vec_set(0); /* sum of x * 0, for vec_all_finite */
    int c = 0;
    for (; c + PANEL_LANES <= n; c += PANEL_LANES) {
        real *strip = strips + c * strip_lanes + i * PANEL_LANES;
        UNROLL
        for (int k = 0; k < PANEL_LANES; k += LANES) {
            const vec x = vec_mul(vec_load(row + c + k), vec_set(scale));
            vec_store(strip + k, x);
            check = vec_fma(x, vec_set(0), check);
        }
    }
    if (c < n) {
        real *strip = in_strips(strips, strip_lanes, n, i, c);
        for (const real *end = strip + strip_width(n, c); strip < end; strip += LANES, c += LANES) {
            real last[LANES] = {0};
            for (int k = 0; c + LANES > n && c + k < n; k++)
                last[k] = row[c + k];
            const vec x = vec_mul(vec_load(c + LANES > n ? last : row + c), vec_set(scale));
            vec_store(strip, x);
            check = vec_fma(x, vec_set(0), check);
        }
    }
    if (vec_all_finite(check))
        return 0;
    for (c = 0; c < n; c++) {
        real *x = in_strips(strips, strip_lanes, n, i, c);
        *x = is_finite(*x) ? *x : 0;
    }
    return 1;
}

uint64_t FN(strips_of)(const pe_query_block *queries, int operand, int n, real scale, real *restrict strips,
                       real *buffer)
{
    const pe_array *a = &queries->call->array[operand];
    uint64_t nonfinite = 0;
    for (int i = 0; i < queries->lanes; i++) {
        const real *row = row_read(query_row(queries, operand, i), a->storage, n, buffer);
        nonfinite |= (uint64_t)FN(strip_row)(row, n, scale, strips, BLOCK_M, i) << i;
    }
    return nonfinite;
}
