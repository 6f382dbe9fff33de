/* gram.c -- every row with every other: products, distances and correlations, x(n,d) -> out(n,n).
 *
 * A unit is BLOCK_M rows on the lanes, packed once, against all rows from its own on, which are broadcast from where they
 * lie. A tile is written as it is and, transposed, to the other side of the diagonal: half the pairs are computed, each
 * number is written once, and both sides have the same bits. Products commute and squares have no sign, so the tile on
 * the diagonal is symmetric by itself.
 *
 * Distances sum squares of differences: from products, |x|^2 + |y|^2 - 2 x.y, neighbours would keep few digits, and the
 * distance from itself would not be 0.
 */
#include "base/transpose.h"
#include "tile/panel.h"
#include "tile/gemm.h"
#include "base/layout.h"

enum { CHUNK = 256 }; /* columns that are summed on their own, so that the error does not grow with all of d */

/* A tile: n rows against a panel of cols vectors, columns first .. first + d. s[j] is BLOCK_M wide. */
typedef struct {
    const char *rows;
    idx step;
    const real *panel;
    real *s;
    int d, first, mode;
} tile_of_pairs;

INLINE void pair_rows(int rows, int cols, int apart, const tile_of_pairs *t, int j)
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
                const vec z = apart ? vec_sub(y, x[c]) : y;
                acc[r * cols + c] = vec_fma(z, apart ? z : x[c], acc[r * cols + c]);
            }
        }
        a += sizeof(real);
        b += cols * LANES;
    }
    UNROLL
    for (int i = 0; i < rows * cols; i++) {
        real *at = s + i / cols * BLOCK_M + i % cols * LANES;
        vec_store(at, t->first ? vec_add(vec_load(at), acc[i]) : acc[i]);
    }
}

INLINE void pairs(int cols, int apart, const tile_of_pairs *given, int n)
{
    const tile_of_pairs here = *given, *t = &here;
    const int rows = SUMS / cols;
    int j = 0;
    for (; n - j >= rows; j += rows)
        pair_rows(rows, cols, apart, t, j);
    for (; n - j >= 2; j += 2)
        pair_rows(2, cols, apart, t, j);
    if (n - j >= 1)
        pair_rows(1, cols, apart, t, j);
}

static NOINLINE void products_wide(const tile_of_pairs *t, int n) { pairs(2, 0, t, n); }
static NOINLINE void products_narrow(const tile_of_pairs *t, int n) { pairs(1, 0, t, n); }
static NOINLINE void squares_wide(const tile_of_pairs *t, int n) { pairs(2, 1, t, n); }
static NOINLINE void squares_narrow(const tile_of_pairs *t, int n) { pairs(1, 1, t, n); }

/* All columns of n rows against the packed rows; a panel is two vectors, or one where one is enough. */
static NOINLINE void tile_pairs(const char *rows, idx step, const real *pack, int lanes, int d, int mode, real *s,
                                int n)
{
    for (int lane = 0; lane < lanes; lane += PANEL_LANES) {
        const int wide = lanes - lane > LANES;
        for (int first = 0; first < d; first += CHUNK) {
            const tile_of_pairs t = {rows, step, pack + lane * d, s + lane, (int)min_(CHUNK, d - first), first, mode};
            if (mode == GRAM_DISTANCE)
                (wide ? squares_wide : squares_narrow)(&t, n);
            else
                (wide ? products_wide : products_narrow)(&t, n);
        }
    }
}

static NOINLINE void roots(real *s, int n)
{
    SIMD
    for (int i = 0; i < n; i++)
        s[i] = PE_REAL == 32 ? (real)sqrtf((float)s[i]) : (real)sqrt((double)s[i]);
}

/* Rounding may leave [-1, 1]; NaN, of a row without variance, stays. */
static NOINLINE void clip(real *s, int n)
{
    SIMD
    for (int i = 0; i < n; i++)
        s[i] = s[i] > 1 ? 1 : s[i] < -1 ? -1 : s[i];
}

/* Rows across the lanes, panel after panel of two vectors, or one where one is enough */
static NOINLINE void pack_rows(const char *data, idx step, pe_storage storage, int lanes, int d, real *copy, real *pack)
{
    for (int lane = 0; lane < lanes; lane += PANEL_LANES) {
        const int some = (int)min_(PANEL_LANES, lanes - lane);
        idx room = step;
        const char *rows = FN(tile_rows)(data + lane * step, &room, storage, some, d, 1, copy);
        pack_transposed(rows, room, some, d, 1, some > LANES ? PANEL_LANES : LANES, pack + lane * d);
    }
}

/* n rows of a tile to out(first + j, column ...) */
static void write_rows(const pe_array *a, char *out, idx first, idx column, const real *s, int n, int width)
{
    out += first * a->core[0] + column * storage_size(a->storage);
    for (int j = 0; j < n; j++, s += BLOCK_M, out += a->core[0])
        if (a->storage == PE_STORAGE)
            memcpy(out, s, (size_t)width * sizeof *s);
        else
            row_write(s, out, a->storage, width);
}

typedef struct {
    real *pack, *tile, *transposed; /* packed rows; products of a tile, and the tile with rows and columns exchanged */
    real *copy;                     /* of the rows of a tile if they cannot be read in place */
} gram_pieces;

static size_t gram_layout(gram_pieces *s, const idx *dim, const double *par, char *memory)
{
    pe_carver c = {memory, 0};
    (void)par;
    s->pack = carve_reals(&c, BLOCK_M * D(d));
    s->tile = carve_reals(&c, BLOCK_M * BLOCK_M);
    s->transposed = carve_reals(&c, BLOCK_M * BLOCK_M);
    s->copy = carve_reals(&c, BLOCK_M * (D(d) + ROW_PAD));
    return c.used;
}
SCRATCH(gram)

/* x(n,d) -> out(n,n); mode */
void FN(gram)(const pe_call *call, idx begin, idx end, const pe_work *work)
{
    const idx n = call->D(n), blocks = BLOCKS(n, BLOCK_M);
    const int d = (int)call->D(d), mode = (int)call->par[0];
    const pe_array *x = &call->array[0], *out = &call->array[1];
    gram_pieces piece;
    gram_layout(&piece, call->dim, call->par, work->scratch);
    real *pack = piece.pack, *s = piece.tile, *turned = piece.transposed, *copy = piece.copy;
    memset(s, 0, BLOCK_M * BLOCK_M * sizeof *s);
    for (idx u = begin; u < end; u++) {
        const pe_row row = row_at(call, u / blocks);
        const idx first = u % blocks * BLOCK_M;
        const int lanes = (int)min_(BLOCK_M, n - first);
        pack_rows(row.data[0] + first * x->core[0], x->core[0], x->storage, lanes, d, copy, pack);
        for (idx j = first; j < n; j += BLOCK_M) {
            const int count = (int)min_(BLOCK_M, n - j);
            idx step = x->core[0];
            if (call->stop && call->stop(call))
                return;
            const char *rows = FN(tile_rows)(row.data[0] + j * step, &step, x->storage, count, d, 2, copy);
            tile_pairs(rows, step, pack, lanes, d, mode, s, count);
            if (mode == GRAM_DISTANCE)
                roots(s, count * BLOCK_M);
            if (mode == GRAM_CORRELATION)
                clip(s, count * BLOCK_M);
            if (mode == GRAM_CORRELATION && j == first)
                for (int l = 0; l < lanes; l++) /* NaN stays */
                    s[l * BLOCK_M + l] = s[l * BLOCK_M + l] > 0 ? 1 : s[l * BLOCK_M + l];
            write_rows(out, row.data[1], j, first, s, count, lanes);
            if (j > first) {
                pack_transposed((const char *)s, BLOCK_M * (idx)sizeof *s, count, lanes, 1, BLOCK_M, turned);
                write_rows(out, row.data[1], first, j, turned, lanes, count);
            }
        }
    }
}

/* x(d) -> out(d): out = (x - mean) / |x - mean|, in double. The first number is taken off before the mean, so that a row
 * of equal numbers is exactly 0 / 0. */
void FN(standard)(const pe_call *call, idx begin, idx end, const pe_work *work)
{
    const idx d = call->D(d);
    real *wide = work->scratch, *room = wide + d;
    for (pe_row at = row_at(call, begin); at.index < end; row_next(call, &at)) {
        const real *x = row_read(at.data[0], call->array[0].storage, d, wide);
        real *out = row_target(at.data[1], call->array[1].storage, room);
        double sum = 0, squares = 0, largest = 0;
        for (idx k = 0; k < d; k++) {
            const double y = (double)x[k] - (double)x[0];
            sum += y;
            largest = fabs_(y) > largest ? fabs_(y) : largest;
        }
        const double mean = sum / (double)max_(d, 1);
        const double unit = largest > 0 ? 1 / largest : 1; /* squares neither overflow nor vanish */
        for (idx k = 0; k < d; k++) {
            const double y = ((double)x[k] - (double)x[0] - mean) * unit;
            squares += y * y;
        }
        const double size = sqrt(squares);
        for (idx k = 0; k < d; k++)
            out[k] = (real)(((double)x[k] - (double)x[0] - mean) * unit / size);
        row_write(out, at.data[1], call->array[1].storage, d);
    }
}
