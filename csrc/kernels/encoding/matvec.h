/* matvec.h -- y = start + W x for a few columns x at once, and the sum of outer products that its gradient is.
 *
 * W is packed once for many products: panels of PANEL rows, and in a panel the rows of one column side by side, so that
 * rows stand on lanes: no sum crosses lanes, one column runs at the speed of reading W, several share what is read.
 * Every row sums in the order of the columns of W, however many x there are: a result depends on its own x alone.
 * Rows of x and y are `padded`; what is past the last row of W becomes 0.
 */
#ifndef PE_DENSE_H
#define PE_DENSE_H

#include "base/row.h"
#include "base/vec.h"

/* Accumulators in flight: AVX-512 has 32 registers, the others 16 with the loads and the broadcast among them. */
enum {
    PANEL = 64,
    DENSE_SUMS = VEC_BYTES == 64   ? 24
                 : VEC_BYTES == 32 ? 12
                                   : 8,
    DENSE_COLUMNS = VEC_BYTES == 16 ? 4 : 6,
    DENSE_WIDEST = PANEL / LANES < 8 ? PANEL / LANES : 8,
    AHEAD = 16 /* columns of W to ask for early where reading is all: 2 MB from L3 take 18 us instead of 25 */
};

INLINE idx padded(idx n) { return BLOCKS(n, PANEL) * PANEL; }

INLINE real *carve(char **scratch, idx numbers)
{
    real *p = (real *)(void *)*scratch;
    *scratch += (numbers * (idx)sizeof(real) + 63) / 64 * 64;
    return p;
}

/* W(rows, k) as stored -> panels. Tiles of 64 columns: what is written stays in L1 while its rows are read. */
static NOINLINE void pack_matrix(const pe_array *w, idx first, idx rows, idx k, real *restrict out)
{
    real wide[PANEL];
    for (idx p = 0; p < rows; p += PANEL, out += k * PANEL) {
        const idx here = min_(PANEL, rows - p);
        for (idx j = 0; j < k; j += PANEL) {
            const idx width = min_(PANEL, k - j);
            if (here < PANEL)
                memset(out + j * PANEL, 0, (size_t)(width * PANEL) * sizeof(real));
            for (idx r = 0; r < here; r++) {
                const char *data = w->data + (first + p + r) * w->core[0] + j * storage_size(w->storage);
                const real *row = row_read(data, w->storage, width, wide);
                for (idx i = 0; i < width; i++)
                    out[(j + i) * PANEL + r] = row[i];
            }
        }
    }
}

/* The same of the transpose: rows of it are the first `rows` columns of W, its k columns the rows of W. */
static NOINLINE void pack_matrix_transposed(const pe_array *w, idx first, idx rows, idx k, real *restrict out)
{
    real wide[PANEL];
    for (idx p = 0; p < rows; p += PANEL) {
        const idx width = min_(PANEL, rows - p);
        for (idx j = 0; j < k; j++, out += PANEL) {
            const char *data = w->data + (first + j) * w->core[0] + p * storage_size(w->storage);
            const real *row = row_read(data, w->storage, width, wide);
            memcpy(out, row, (size_t)width * sizeof(real));
            memset(out + width, 0, (size_t)(PANEL - width) * sizeof(real));
        }
    }
}

/* A stored vector, padded with zeros. */
static void read_padded(const char *data, pe_storage storage, idx n, real *out)
{
    const real *row = row_read(data, storage, n, out);
    if (row != out)
        memcpy(out, row, (size_t)n * sizeof(real));
    memset(out + n, 0, (size_t)(padded(n) - n) * sizeof(real));
}

/* One product: W(rows, k) packed, x and y with their distance from column to column. start may be NULL: 0. */
typedef struct {
    const real *w, *start, *x;
    real *y;
    idx rows, k, x_step, y_step;
    int relu;
} pe_dense;

/* A panel times `cols` columns; cols is a constant where this is inlined. */
INLINE void panel_times(int cols, const pe_dense *d, idx panel, idx column)
{
    const int widest = DENSE_WIDEST, wide = widest / 2,
              vecs = widest * cols <= DENSE_SUMS ? widest
                     : wide * cols <= DENSE_SUMS ? wide
                                                 : wide / 2;
    const idx k = d->k, step = d->x_step;
    const real *x = d->x + column * step;
    for (int first = 0; first < PANEL; first += vecs * LANES) {
        const idx row = panel * PANEL + first;
        const real *w = d->w + panel * PANEL * k + first;
        vec acc[DENSE_SUMS], zero = vec_set(0);
        UNROLL
        for (int v = 0; v < vecs; v++) {
            const vec s = d->start ? vec_load(d->start + row + v * LANES) : zero;
            UNROLL
            for (int c = 0; c < cols; c++)
                acc[c * vecs + v] = s;
        }
        for (idx i = 0; i < k; i++, w += PANEL) {
            vec a[DENSE_WIDEST];
            for (int v = 0; cols <= 2 && v < vecs * LANES; v += 64 / (int)sizeof(real))
                PREFETCH(w + AHEAD * PANEL + v);
            UNROLL
            for (int v = 0; v < vecs; v++)
                a[v] = vec_load(w + v * LANES);
            UNROLL
            for (int c = 0; c < cols; c++) {
                const vec b = vec_set(x[c * step + i]);
                UNROLL
                for (int v = 0; v < vecs; v++)
                    acc[c * vecs + v] = vec_fma(b, a[v], acc[c * vecs + v]);
            }
        }
        UNROLL
        for (int c = 0; c < cols; c++)
            UNROLL
        for (int v = 0; v < vecs; v++) {
            const vec y = acc[c * vecs + v];
            vec_store(d->y + (column + c) * d->y_step + row + v * LANES, d->relu ? vec_max(zero, y) : y);
        }
    }
}

static NOINLINE void panel_times_1(const pe_dense *d, idx panel, idx c) { panel_times(1, d, panel, c); }
static NOINLINE void panel_times_2(const pe_dense *d, idx panel, idx c) { panel_times(2, d, panel, c); }
static NOINLINE void panel_times_3(const pe_dense *d, idx panel, idx c) { panel_times(3, d, panel, c); }
static NOINLINE void panel_times_4(const pe_dense *d, idx panel, idx c) { panel_times(4, d, panel, c); }
#if VEC_BYTES > 16
static NOINLINE void panel_times_6(const pe_dense *d, idx panel, idx c) { panel_times(6, d, panel, c); }
#endif

/* y[c] = start + W x[c], or its positive part, for c < cols */
static void dense(const pe_dense *d, idx cols)
{
    for (idx panel = 0; panel < BLOCKS(d->rows, PANEL); panel++)
        for (idx c = 0; c < cols;) {
            const idx left = cols - c;
#if VEC_BYTES > 16
            if (left >= 6) {
                panel_times_6(d, panel, c);
                c += 6;
                continue;
            }
#endif
            const idx now = left == 5 ? 3 : min_(4, left); /* 5 = 3 + 2 keeps more sums in flight than 4 + 1 */
            (now == 4   ? panel_times_4
             : now == 3 ? panel_times_3
             : now == 2 ? panel_times_2
                        : panel_times_1)(d, panel, c);
            c += now;
        }
}

/* ---- gradient of W: the sum over pairs q of l[q] x[q]^T ---- */

typedef struct {
    const real *l, *x;
    idx l_step, x_step, pairs;
    double *into;
    idx rows, columns; /* of `into`, whose rows lie side by side */
} pe_outer;

enum { OUTER_VECS = VEC_BYTES == 64 ? 4 : 2 };

/* Pairs are summed in `real`, a few hundred at most, and that sum in double: the error does not grow with positions. */
INLINE void outer_rows(int rows, const pe_outer *o, idx row, idx column)
{
    vec acc[6 * OUTER_VECS];
    real sum[OUTER_VECS * LANES];
    const real *l = o->l + row, *x = o->x + column;
    const idx pairs = o->pairs, l_step = o->l_step, x_step = o->x_step;
    const int width = (int)min_(OUTER_VECS * LANES, o->columns - column);
    UNROLL
    for (int i = 0; i < rows * OUTER_VECS; i++)
        acc[i] = vec_set(0);
    for (idx q = 0; q < pairs; q++, l += l_step, x += x_step) {
        vec a[OUTER_VECS];
        UNROLL
        for (int v = 0; v < OUTER_VECS; v++)
            a[v] = vec_load(x + v * LANES);
        UNROLL
        for (int r = 0; r < rows; r++) {
            const vec b = vec_set(l[r]);
            UNROLL
            for (int v = 0; v < OUTER_VECS; v++)
                acc[r * OUTER_VECS + v] = vec_fma(b, a[v], acc[r * OUTER_VECS + v]);
        }
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        double *into = o->into + (row + r) * o->columns + column;
        UNROLL
        for (int v = 0; v < OUTER_VECS; v++)
            vec_store(sum + v * LANES, acc[r * OUTER_VECS + v]);
        for (int i = 0; i < width; i++)
            into[i] += (double)sum[i];
    }
}

static NOINLINE void outer_most(const pe_outer *o, idx row, idx column) { outer_rows(DENSE_COLUMNS, o, row, column); }
static NOINLINE void outer_one(const pe_outer *o, idx row, idx column) { outer_rows(1, o, row, column); }

/* into += sum over q of l[q] x[q]^T; rows of x are padded */
static void add_outer(const pe_outer *o)
{
    for (idx column = 0; column < o->columns; column += OUTER_VECS * LANES) {
        idx row = 0;
        for (; row + DENSE_COLUMNS <= o->rows; row += DENSE_COLUMNS)
            outer_most(o, row, column);
        for (; row < o->rows; row++)
            outer_one(o, row, column);
    }
}

/* into += sum over q of l[q] */
static NOINLINE void add_rows(const real *restrict l, idx l_step, idx pairs, idx n, double *restrict into)
{
    for (idx q = 0; q < pairs; q++) {
        SIMD
        for (idx i = 0; i < n; i++)
            into[i] += (double)l[q * l_step + i];
    }
}

/* ---- the batch ---- */

/* Units are shares of the columns of a batch; a kernel walks its columns in groups of WALK_COLUMNS. */
INLINE idx share_of(const pe_call *call, idx unit, idx units) { return unit * call->D(b) / units; }

#endif
