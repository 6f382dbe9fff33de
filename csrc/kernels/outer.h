/* outer.h -- the third product: what a block of queries gives to the keys or the values of a tile.
 *
 *     o[j][c]  +=  sum over panels and lanes of   p[j][lane] x[lane][c]
 *
 * Channels stand on the SIMD lanes, two vectors to a strip and one in the last strip where that is enough; strip c
 * holds x[lane][c .. c + width), lane after lane. Every number of o sums over the lanes in their order, whatever the
 * row block, and the tile is summed on its own before it is added.
 */
#ifndef PE_OUTER_H
#define PE_OUTER_H

#include "gemm.h"
#include "tile.h"

typedef struct {
    const real *p; /* as the scores: panel after panel, key after key */
    const pe_panel *panel;
    int panels;
    const real *x;
    real *o;
    idx o_step; /* numbers from key to key */
} pe_outer;

INLINE void outer_rows(int rows, int cols, const pe_outer *w, int j)
{
    vec acc[SUMS];
    UNROLL
    for (int i = 0; i < rows * cols; i++)
        acc[i] = vec_set(0);
    for (int p = 0; p < w->panels; p++) {
        const int first = w->panel[p].first, width = w->panel[p].width;
        const idx row = width * (idx)sizeof(real);
        accumulate(acc, rows, cols, (const char *)(w->p + first * KEYS + j * width), row, (idx)sizeof(real),
                   w->x + first * cols * LANES, w->panel[p].lanes);
    }
    real *o = w->o + j * w->o_step;
    UNROLL
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++) {
            real *at = o + r * w->o_step + c * LANES;
            vec_store(at, vec_add(vec_load(at), acc[r * cols + c]));
        }
}

/* keys from <= j < to of the tile */
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

INLINE int strip_width(int channels, int first) { return channels - first <= LANES ? LANES : WIDE; }

/* Channels with those that fill up the last strip */
INLINE int strips_width(int channels) { return (channels + LANES - 1) / LANES * LANES; }

/* Rows of an operand across the lanes of their panels, and as strips without what is not finite: the lanes that had
 * such numbers are returned. */
static NOINLINE uint64_t pack(const pe_queries *u, int operand, int n, real scale, real *restrict lanes,
                              real *restrict strips, real *room)
{
    const pe_array *a = &u->call->array[operand];
    const char *data = u->row.data[operand] + u->head * a->core[0] + u->first * a->core[1];
    uint64_t odd = 0;
    memset(lanes, 0, (size_t)(u->width * n) * sizeof *lanes);
    memset(strips, 0, (size_t)(PE_TILE * strips_width(n)) * sizeof *strips);
    for (int p = 0; p < u->panels; p++) {
        const int first = u->panel[p].first, width = u->panel[p].width;
        for (int i = first; i < first + u->panel[p].lanes; i++) {
            const real *row = row_read(data + i * a->core[1], a->storage, n, room);
            real *lane = lanes + first * n + (i - first), check = 0;
            for (int c = 0; c < n; c++)
                lane[c * width] = row[c] * scale;
            for (int c = 0; c < n; c += WIDE) {
                const int w = strip_width(n, c), some = (int)min_(w, n - c);
                real *strip = strips + c * PE_TILE + i * w;
                for (int k = 0; k < some; k++) {
                    strip[k] = row[c + k] * scale;
                    check += strip[k] * 0;
                }
            }
            if (check == 0)
                continue;
            odd |= (uint64_t)1 << i;
            for (int c = 0; c < n; c++) {
                real *x = strips + c / WIDE * WIDE * PE_TILE + i * strip_width(n, c / WIDE * WIDE) + c % WIDE;
                *x = *x - *x == 0 ? *x : 0;
            }
        }
    }
    return odd;
}

#endif
