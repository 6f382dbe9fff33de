/* gram.c -- inner products, distances or correlations of all pairs of rows.   x(n,d) -> out(n,n)
 *
 *     for (i < n)
 *         for (j < n)
 *             out[i][j] = dot(x[i], x[j]);               or the norm of x[i] - x[j]
 *
 * Correlations are inner products of rows that standardize.c has computed.
 *
 * A unit of work is one block of BLOCK_M rows, packed once with one row per SIMD lane. The kernel combines it with the
 * rows of this and all later blocks, whose numbers it broadcasts. A tile off the diagonal is stored twice, the second
 * time transposed to the other side, so half of the pairs are computed and both sides have the same bits. A tile on the
 * diagonal is symmetric and stored once: products commute, and (x - y)^2 = (y - x)^2.
 *
 * Distances sum squares of differences. With |x|^2 + |y|^2 - 2 x.y, cancellation would leave few digits for close rows,
 * and the distance of a row from itself would not be 0.
 */
#include "fits.h"
#include "base/transpose.h"
#include "tile/panel.h"
#include "tile/product.h"
#include "base/layout.h"

enum { CHUNK = 256 }; /* columns of one partial sum, so that the rounding error grows more slowly with d */

/* Operands of a product of rows and a panel, columns first .. first + d. Rows of s are BLOCK_M numbers apart. */
typedef struct {
    const char *rows;
    idx step;
    const real *panel;
    real *s;
    int d, first;
} pairs_tile;

/* Compute rows j .. j + rows. `squares` sums squares of differences. Callers pass constant rows, cols and squares. */
INLINE void pair_rows(int rows, int cols, int squares, const pairs_tile *t, int j)
{
    vec acc[SUMS];
    const char *a = t->rows + j * t->step + t->first * (int)sizeof(real);
    const real *b = t->panel + t->first * cols * LANES;
    const idx step = t->step;
    real *s = t->s + j * BLOCK_M;
    UNROLL
    for (int i = 0; i < rows * cols; i++)
        acc[i] = vec_set(0);
    for (int k = 0; k < t->d; k++) {
        vec x[2];
        for (int c = 0; c < cols; c++)
            x[c] = vec_load(b + c * LANES);
        UNROLL
        for (int r = 0; r < rows; r++) {
            const vec y = vec_set(*(const real *)(const void *)(a + r * step));
            for (int c = 0; c < cols; c++) {
                const vec z = squares ? vec_sub(y, x[c]) : y;
                acc[r * cols + c] = vec_fma(z, squares ? z : x[c], acc[r * cols + c]);
            }
        }
        a += sizeof(real);
        b += cols * LANES;
    }
    UNROLL
    for (int i = 0; i < rows * cols; i++) {
        real *to = s + i / cols * BLOCK_M + i % cols * LANES;
        vec_store(to, t->first ? vec_add(vec_load(to), acc[i]) : acc[i]);
    }
}

INLINE void product_rows(int rows, int cols, int panels, const void *t, int j)
{
    (void)panels;
    pair_rows(rows, cols, 0, t, j);
}
INLINE void square_rows(int rows, int cols, int panels, const void *t, int j)
{
    (void)panels;
    pair_rows(rows, cols, 1, t, j);
}

/* Tiles are passed by value, so the compiler knows that no store changes them. */
static NOINLINE void products_wide(pairs_tile t, int n) { in_row_blocks(product_rows, 2, &t, 0, n); }
static NOINLINE void products_narrow(pairs_tile t, int n) { in_row_blocks(product_rows, 1, &t, 0, n); }
static NOINLINE void squares_wide(pairs_tile t, int n) { in_row_blocks(square_rows, 2, &t, 0, n); }
static NOINLINE void squares_narrow(pairs_tile t, int n) { in_row_blocks(square_rows, 1, &t, 0, n); }

/* Multiply n rows by the packed rows, one panel at a time. A panel has two vectors; the last panel may have one. */
static NOINLINE void tile_pairs(const char *rows, idx step, const real *pack, int lanes, int d, int squares, real *s,
                                int n)
{
    for (int lane = 0; lane < lanes; lane += PANEL_LANES) {
        const int wide = lanes - lane > LANES;
        for (int first = 0; first < d; first += CHUNK) {
            const pairs_tile t = {rows, step, pack + lane * d, s + lane, (int)min_(CHUNK, d - first), first};
            if (squares)
                (wide ? squares_wide : squares_narrow)(t, n);
            else
                (wide ? products_wide : products_narrow)(t, n);
        }
    }
}

static NOINLINE void roots(real *s, int n)
{
    SIMD
    for (int i = 0; i < n; i++)
        s[i] = PE_REAL == 32 ? (real)sqrtf((float)s[i]) : (real)sqrt((double)s[i]);
}

/* Clip to [-1, 1], which rounded products may exceed. A row without variance keeps its NaN. */
static NOINLINE void clip(real *s, int n)
{
    SIMD
    for (int i = 0; i < n; i++)
        s[i] = s[i] > 1 ? 1 : s[i] < -1 ? -1 : s[i];
}

static NOINLINE void pack_rows(const char *data, idx step, pe_storage storage, int lanes, int d, real *copy, real *pack)
{
    for (int lane = 0; lane < lanes; lane += PANEL_LANES) {
        const int here = (int)min_(PANEL_LANES, lanes - lane);
        const pe_rows rows = FN(tile_rows)(plain_rows(data + lane * step, step, storage), here, d, 1, copy);
        pack_transposed(rows.data, rows.step, here, d, 1, here > LANES ? PANEL_LANES : LANES, pack + lane * d);
    }
}

/* Write n rows of a tile to out(first + j, column ...). */
static void write_rows(const pe_array *a, char *out, idx first, idx column, const real *s, int n, int width)
{
    out += first * a->core[0] + column * storage_size(a->storage);
    for (int j = 0; j < n; j++, s += BLOCK_M, out += a->core[0])
        row_store(s, out, a->storage, width);
}

typedef struct {
    real *pack, *tile, *transposed; /* packed rows; a tile; the transposed tile */
    real *copy;                     /* copy of rows that cannot be read in place */
} gram_state;

LAYOUT(gram)
{
    s->pack = carve_reals(c, BLOCK_M * D(d));
    s->tile = carve_reals(c, BLOCK_M * BLOCK_M);
    s->transposed = carve_reals(c, BLOCK_M * BLOCK_M);
    s->copy = carve_reals(c, BLOCK_M * (D(d) + ROW_PAD));
}

KERNEL(gram)
{
    enum { X, OUT };
    const idx n = call->D(n), blocks = BLOCKS(n, BLOCK_M);
    const int d = (int)call->D(d), mode = (int)call->par[GRAM_MODE];
    const pe_array *x = &call->array[X], *out = &call->array[OUT];
    const gram_state piece = gram_begin(call, work);
    real *s = piece.tile;
    memset(s, 0, BLOCK_M * BLOCK_M * sizeof *s);
    for (idx u = begin; u < end; u++) {
        const pe_row row = row_at(call, u / blocks);
        const idx first = u % blocks * BLOCK_M;
        const int lanes = (int)min_(BLOCK_M, n - first);
        pack_rows(row.data[X] + first * x->core[0], x->core[0], x->storage, lanes, d, piece.copy, piece.pack);
        for (idx j = first; j < n; j += BLOCK_M) {
            const int count = (int)min_(BLOCK_M, n - j);
            const pe_rows stored = plain_rows(row.data[X] + j * x->core[0], x->core[0], x->storage);
            if (stop_requested(call))
                return;
            const pe_rows rows = FN(tile_rows)(stored, count, d, 2, piece.copy);
            tile_pairs(rows.data, rows.step, piece.pack, lanes, d, mode == GRAM_DISTANCE, s, count);
            if (mode == GRAM_DISTANCE)
                roots(s, count * BLOCK_M);
            if (mode == GRAM_CORRELATION)
                clip(s, count * BLOCK_M);
            if (mode == GRAM_CORRELATION && j == first) {
                for (int l = 0; l < lanes; l++) { /* 1 exactly, but NaN stays */
                    real *diagonal = &s[l * BLOCK_M + l];
                    *diagonal = *diagonal > 0 ? 1 : *diagonal;
                }
            }
            write_rows(out, row.data[OUT], j, first, s, count, lanes);
            if (j > first) {
                pack_transposed((const char *)s, BLOCK_M * (idx)sizeof *s, count, lanes, 1, BLOCK_M, piece.transposed);
                write_rows(out, row.data[OUT], first, j, piece.transposed, lanes, count);
            }
        }
    }
}
