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

/* The rows of an operand as strips, without what is not finite: the lanes that had such numbers are returned. */
static NOINLINE uint64_t strips_of(const pe_queries *u, int operand, int n, real scale, real *restrict strips,
                                   real *room)
{
    const pe_array *a = &u->call->array[operand];
    const char *data = u->row.data[operand] + u->head * a->core[0] + u->first * a->core[1];
    uint64_t odd = 0;
    for (int i = 0; i < u->lanes; i++) {
        const real *row = row_read(data + i * a->core[1], a->storage, n, room);
        vec check = vec_set(0);
        int c = 0;
        for (; c + WIDE <= n; c += WIDE) {
            real *strip = strips + c * PE_TILE + i * WIDE;
            UNROLL
            for (int k = 0; k < WIDE; k += LANES) {
                const vec x = vec_mul(vec_load(row + c + k), vec_set(scale));
                vec_store(strip + k, x);
                check = vec_fma(x, vec_set(0), check);
            }
        }
        if (c < n) {
            const int width = strip_width(n, c);
            real last[WIDE] = {0};
            for (int k = 0; c + k < n; k++)
                last[k] = row[c + k] * scale;
            for (int k = 0; k < width; k += LANES) {
                vec_store(strips + c * PE_TILE + i * width + k, vec_load(last + k));
                check = vec_fma(vec_load(last + k), vec_set(0), check);
            }
        }
        real zero[LANES], sum = 0;
        vec_store(zero, check);
        for (int k = 0; k < LANES; k++)
            sum += zero[k];
        if (sum == 0)
            continue;
        odd |= (uint64_t)1 << i;
        for (c = 0; c < n; c++) {
            real *x = strips + c / WIDE * WIDE * PE_TILE + i * strip_width(n, c / WIDE * WIDE) + c % WIDE;
            *x = *x - *x == 0 ? *x : 0;
        }
    }
    return odd;
}

#endif
