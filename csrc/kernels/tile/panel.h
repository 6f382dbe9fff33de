/* panel.h -- what attention and its gradient do alike with a block of queries and a tile of keys. */
#ifndef PE_BLOCK_H
#define PE_BLOCK_H

#include "base/elementary.h"
#include "base/transpose.h"
#include "tile/tile.h"

static NOINLINE void cap(real *restrict s, int n, real most)
{
    const real inverse = 1 / most;
    SIMD
    for (int i = 0; i < n; i++)
        s[i] = most * tanh_(s[i] * inverse);
}

/* A softcap stands between product and bias: then the bias is added here instead of in the product. */
static NOINLINE void add_bias(real *s, int n, int width, const pe_bias *bias, real *top)
{
    for (int l = 0; l < width; l += LANES) {
        vec most = vec_load(top + l);
        for (int j = 0; j < n; j++) {
            vec x = vec_load(s + j * width + l);
            if (bias->add)
                x = vec_bias(x, vec_load(bias->add + j * bias->step + l));
            most = vec_max(x, most);
            vec_store(s + j * width + l, x);
        }
        vec_store(top + l, most);
    }
}

/* s -> exp(s - top), and its sum over the keys for each lane */
INLINE void exponentials(int width, real *restrict s, const real *restrict top, int n, real *restrict total)
{
    real sum[PANEL_LANES] = {0};
    for (int j = 0; j < n; j++, s += width)
        SIMD
    for (int l = 0; l < width; l++) {
        s[l] = exp2_((s[l] - top[l]) * LOG2_E);
        sum[l] += s[l];
    }
    for (int l = 0; l < width; l++)
        total[l] += sum[l];
}

static NOINLINE void exponentials_narrow(real *s, const real *top, int n, real *total)
{
    exponentials(LANES, s, top, n, total);
}

static NOINLINE void exponentials_wide(real *s, const real *top, int n, real *total)
{
    exponentials(PANEL_LANES, s, top, n, total);
}

/* Rows of a tile as real, with their stride: in place where they are real. Rows 4096 bytes apart share one L1 set
 * and are copied when they are read more than once (2048 apart it is even; copying always costs 1.05 x). */
static NOINLINE const char *tile_rows(const char *data, idx *step, pe_storage storage, int n, int width, int panels,
                                      real *copy)
{
    const idx room = width + ATTENTION_PAD, from = *step;
    if (storage == PE_STORAGE && !(from % 4096 == 0 && panels > 1))
        return data;
    for (int j = 0; j < n; j++) {
        const real *row = row_read(data + j * from, storage, width, copy + j * room);
        if (row != copy + j * room)
            memcpy(copy + j * room, row, (size_t)width * sizeof *row);
    }
    *step = room * (idx)sizeof(real);
    return (const char *)copy;
}

/* Rows of an operand that has one for each query, panel after panel across the lanes; copy has room for a tile. */
static NOINLINE void queries_to_lanes(const pe_queries *u, int operand, int n, real scale, real *copy, real *out)
{
    const pe_array *a = &u->call->array[operand];
    const char *data = u->row.data[operand] + u->head * a->core[0] + u->first * a->core[1];
    for (int p = 0; p < u->panels; p++) {
        const pe_panel *panel = &u->panel[p];
        idx step = a->core[1];
        const char *rows = tile_rows(data + panel->first * step, &step, a->storage, panel->lanes, n, 1, copy);
        pack_transposed(rows, step, panel->lanes, n, scale, panel->width, out + panel->first * n);
    }
}

/* The way back, to an operand that is written: scale x / divisor. Whether all of it is finite */
static NOINLINE int lanes_to_queries(const pe_queries *u, int operand, int n, const real *x, real scale,
                                     const real *divisor, real *copy)
{
    const pe_array *a = &u->call->array[operand];
    const int there = a->storage == PE_STORAGE;
    const idx step = there ? a->core[1] : n * (idx)sizeof(real);
    char *to = u->row.data[operand] + u->head * a->core[0] + u->first * a->core[1];
    int finite = 1;
    for (int p = 0; p < u->panels; p++) {
        const int first = u->panel[p].first, lanes = u->panel[p].lanes;
        char *rows = there ? to : (char *)copy;
        finite &= unpack_transposed(x + first * n, u->panel[p].width, lanes, n, scale, divisor ? divisor + first : NULL,
                                    rows, step);
        for (int l = 0; l < lanes; l++, to += a->core[1])
            row_write((const real *)(const void *)(rows + l * step), to, a->storage, n);
    }
    return finite;
}

/* Careful: the fast way multiplies every number by the weight of every lane, and 0 * NaN is NaN also for a lane that
 * may not see it. Here numbers that are not finite are left out of the product; they are given
 * afterwards to the lanes that see them. */
static NOINLINE const char *finite_rows(const char *data, idx *step, pe_storage storage, int n, int width, real *copy)
{
    const idx room = width + ATTENTION_PAD;
    for (int j = 0; j < n; j++) {
        const real *row = row_read(data + j * *step, storage, width, copy + j * room);
        for (int k = 0; k < width; k++)
            copy[j * room + k] = row[k] - row[k] == 0 ? row[k] : 0;
    }
    *step = room * (idx)sizeof(real);
    return (const char *)copy;
}

#endif
