/* outer.h -- the third product: what a block of queries gives to the keys or the values of a tile, or to a table.
 *
 *     o[j][c]  +=  sum over spans and lanes of   w[j][lane] x[lane][c]
 *
 * Channels stand on the SIMD lanes, two vectors to a strip and one in the last strip where that is enough; strip c
 * holds x[lane][c .. c + width), lane after lane. Every number of o sums over the lanes in their order, whatever the
 * row block, and the spans are summed on their own before they are added.
 */
#ifndef PE_OUTER_H
#define PE_OUTER_H

#include "tile/gemm.h"
#include "tile/tile.h"

/* Weights of some lanes for rows from <= j < to. A row block may reach over both ends, unless all spans end there too:
 * MARGIN rows of zeros must stand on each side. */
typedef struct {
    const real *w; /* of row 0, which need not be there */
    int first, lanes, width, from, to;
} pe_span;

enum { MARGIN = SUMS - 1 };

typedef struct {
    const pe_span *span;
    int spans;
    const real *x;
    real *o;
    idx o_step; /* numbers from row to row */
} pe_outer;

INLINE void outer_rows(int rows, int cols, const pe_outer *w, int j)
{
    vec acc[SUMS];
    int some = 0;
    UNROLL
    for (int i = 0; i < rows * cols; i++)
        acc[i] = vec_set(0);
    for (int p = 0; p < w->spans; p++) {
        const pe_span *s = &w->span[p];
        if (j + rows <= s->from || j >= s->to)
            continue;
        some = 1;
        accumulate(acc, rows, cols, (const char *)(s->w + j * s->width), s->width * (idx)sizeof(real),
                   (idx)sizeof(real), w->x + s->first * cols * LANES, s->lanes);
    }
    real *o = w->o + j * w->o_step;
    UNROLL
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols && some; c++) {
            real *at = o + r * w->o_step + c * LANES;
            vec_store(at, vec_add(vec_load(at), acc[r * cols + c]));
        }
}

/* rows from <= j < to */
INLINE void outer(int cols, const pe_outer *given, int from, int to)
{
    const pe_outer here = *given, *w = &here;
    const int rows = SUMS / cols;
    int j = from;
    for (; to - j >= rows; j += rows)
        outer_rows(rows, cols, w, j);
    if (rows > 8 && to - j >= 8) {
        outer_rows(8, cols, w, j);
        j += 8;
    }
    if (rows > 4 && to - j >= 4) {
        outer_rows(4, cols, w, j);
        j += 4;
    }
    if (to - j >= 2) {
        outer_rows(2, cols, w, j);
        j += 2;
    }
    if (to - j >= 1)
        outer_rows(1, cols, w, j);
}

static NOINLINE void outer_narrow(const pe_outer *w, int from, int to) { outer(1, w, from, to); }
static NOINLINE void outer_wide(const pe_outer *w, int from, int to) { outer(2, w, from, to); }

INLINE int strip_width(int channels, int first) { return channels - first <= LANES ? LANES : PANEL_LANES; }

/* Channels with those that fill up the last strip */
INLINE int strips_width(int channels) { return (channels + LANES - 1) / LANES * LANES; }

/* All channels; x are strips of `room` lanes */
static NOINLINE void add_outer(const pe_span *span, int spans, const real *x, int room, int channels, int from, int to,
                               real *o, idx o_step)
{
    for (int c = 0; c < channels; c += PANEL_LANES) {
        const pe_outer w = {span, spans, x + c * room, o + c, o_step};
        (strip_width(channels, c) == PANEL_LANES ? outer_wide : outer_narrow)(&w, from, to);
    }
}

/* The panels of a block, whose weights lie as the scores do: all of them have rows from <= j < to */
static NOINLINE void add_outer_of_block(const pe_queries *u, const real *w, const real *x, int channels, int from,
                                        int to, real *o, idx o_step)
{
    pe_span span[BLOCK_M / LANES];
    for (int p = 0; p < u->panels; p++) {
        const pe_panel *panel = &u->panel[p];
        span[p] = (pe_span){w + panel->first * BLOCK_N, panel->first, panel->lanes, panel->width, from, to};
    }
    add_outer(span, u->panels, x, BLOCK_M, channels, from, to, o, o_step);
}

/* Row i of `room` in each strip, times scale; without what is not finite, which 1 tells */
static NOINLINE int strip_row(const real *row, int n, real scale, real *restrict strips, int room, int i)
{
    vec check = vec_set(0); /* x * 0 is 0 where x is finite */
    int c = 0;
    for (; c + PANEL_LANES <= n; c += PANEL_LANES) {
        real *strip = strips + c * room + i * PANEL_LANES;
        UNROLL
        for (int k = 0; k < PANEL_LANES; k += LANES) {
            const vec x = vec_mul(vec_load(row + c + k), vec_set(scale));
            vec_store(strip + k, x);
            check = vec_fma(x, vec_set(0), check);
        }
    }
    if (c < n) {
        const int width = strip_width(n, c);
        real last[PANEL_LANES] = {0};
        for (int k = 0; c + k < n; k++)
            last[k] = row[c + k] * scale;
        for (int k = 0; k < width; k += LANES) {
            vec_store(strips + c * room + i * width + k, vec_load(last + k));
            check = vec_fma(vec_load(last + k), vec_set(0), check);
        }
    }
    if (vec_none(check))
        return 0;
    for (c = 0; c < n; c++) {
        real *x = strips + c / PANEL_LANES * PANEL_LANES * room + i * strip_width(n, c / PANEL_LANES * PANEL_LANES)
                  + c % PANEL_LANES;
        *x = *x - *x == 0 ? *x : 0;
    }
    return 1;
}

/* The rows of an operand as strips: the lanes that had what is not finite are returned. */
static NOINLINE uint64_t strips_of(const pe_queries *u, int operand, int n, real scale, real *restrict strips,
                                   real *room)
{
    const pe_array *a = &u->call->array[operand];
    const char *data = u->row.data[operand] + u->head * a->core[0] + u->first * a->core[1];
    uint64_t odd = 0;
    for (int i = 0; i < u->lanes; i++)
        odd |= (uint64_t)strip_row(row_read(data + i * a->core[1], a->storage, n, room), n, scale, strips, BLOCK_M, i)
               << i;
    return odd;
}

#endif
