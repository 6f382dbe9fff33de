/* matvec.c -- products of one matrix and a few vectors at once, and sums of outer products: see matvec.h. */
#include "absolute/matvec.h"
#include "base/vec.h"

enum {
    /* Accumulators. AVX-512 has 32 registers, AVX2 and SSE have 16; the other registers hold loaded numbers. NEON
     * uses the value of SSE. */
    MATVEC_SUMS = VEC_BYTES == 64   ? 24
                  : VEC_BYTES == 32 ? 12
                                    : 8,
    MATVEC_VECS = STRIPE / LANES < 8 ? STRIPE / LANES : 8, /* most SIMD vectors of a stripe at once */
    MATVEC_COLUMNS = VEC_BYTES == 16 ? 4 : 6,              /* most vectors x at once */
    /* Prefetch distance in columns of W, for products limited by loads of W from L3 */
    PREFETCH_COLUMNS = 16
};

/* Pack rows first .. first + rows of W into stripes of k columns, in tiles of 64 columns that fit the L1 cache. */
void FN(pack_matrix)(const pe_array *w, idx first, idx rows, idx k, real *restrict out)
{
    real wide[STRIPE];
    for (idx p = 0; p < rows; p += STRIPE, out += k * STRIPE) {
        const idx here = min_(STRIPE, rows - p);
        for (idx j = 0; j < k; j += STRIPE) {
            const idx width = min_(STRIPE, k - j);
            if (here < STRIPE)
                memset(out + j * STRIPE, 0, (size_t)(width * STRIPE) * sizeof(real));
            for (idx r = 0; r < here; r++) {
                const char *data = w->data + (first + p + r) * w->core[0] + j * storage_size(w->storage);
                const real *row = row_read(data, w->storage, width, wide);
                for (idx i = 0; i < width; i++)
                    out[(j + i) * STRIPE + r] = row[i];
            }
        }
    }
}

/* Pack the transpose: its rows are the first `rows` columns of W, its k columns are the rows of W from `first` on. */
void FN(pack_matrix_transposed)(const pe_array *w, idx first, idx rows, idx k, real *restrict out)
{
    real wide[STRIPE];
    for (idx p = 0; p < rows; p += STRIPE) {
        const idx width = min_(STRIPE, rows - p);
        for (idx j = 0; j < k; j++, out += STRIPE) {
            const char *data = w->data + (first + j) * w->core[0] + p * storage_size(w->storage);
            const real *row = row_read(data, w->storage, width, wide);
            memcpy(out, row, (size_t)width * sizeof(real));
            memset(out + width, 0, (size_t)(STRIPE - width) * sizeof(real));
        }
    }
}

/* A stored vector as reals, padded with zeros */
void FN(read_padded)(const char *data, pe_storage storage, idx n, real *out)
{
    row_load(data, storage, n, out);
    memset(out + n, 0, (size_t)(padded(n) - n) * sizeof(real));
}

/* Multiply one stripe by `cols` columns; callers pass a constant cols. */
INLINE void stripe_times(int cols, const matvec *m, idx stripe, idx column)
{
    const int most = MATVEC_VECS, half = most / 2,
              vecs = most * cols <= MATVEC_SUMS   ? most
                     : half * cols <= MATVEC_SUMS ? half
                                                  : half / 2;
    for (int first = 0; first < STRIPE; first += vecs * LANES) {
        const idx row = stripe * STRIPE + first;
        const pe_lines w = lines_of(m->w + stripe * STRIPE * m->k + first, STRIPE);
        vec acc[MATVEC_SUMS], zero = vec_set(0);
        UNROLL
        for (int v = 0; v < vecs; v++) {
            const idx first_start = column * m->start_step + row + v * LANES;
            const vec s = m->start ? vec_load(m->start + first_start) : zero;
            UNROLL
            for (int c = 0; c < cols; c++)
                acc[c * vecs + v] = m->start_step ? vec_load(m->start + first_start + c * m->start_step) : s;
        }
        for (idx i = 0; i < m->k; i++) {
            const pe_matrix x = {(const char *)(m->x + column * m->x_step + i), m->x_step * (idx)sizeof(real), 0};
            const pe_lines now = lines_from(w, i);
            for (int v = 0; cols <= 2 && v < vecs * LANES; v += 64 / (int)sizeof(real))
                PREFETCH(line_at(now, PREFETCH_COLUMNS) + v);
            accumulate(acc, cols, vecs, 1, x, &now, 1);
        }
        UNROLL
        for (int c = 0; c < cols; c++) {
            UNROLL
            for (int v = 0; v < vecs; v++) {
                const vec y = acc[c * vecs + v];
                vec_store(m->y + (column + c) * m->y_step + row + v * LANES, m->relu ? vec_max(zero, y) : y);
            }
        }
    }
}

static NOINLINE void stripe_times_1(const matvec *m, idx stripe, idx c) { stripe_times(1, m, stripe, c); }
static NOINLINE void stripe_times_2(const matvec *m, idx stripe, idx c) { stripe_times(2, m, stripe, c); }
static NOINLINE void stripe_times_3(const matvec *m, idx stripe, idx c) { stripe_times(3, m, stripe, c); }
static NOINLINE void stripe_times_4(const matvec *m, idx stripe, idx c) { stripe_times(4, m, stripe, c); }
static NOINLINE void stripe_times_6(const matvec *m, idx stripe, idx c) { stripe_times(MATVEC_COLUMNS, m, stripe, c); }

/* Multiply all stripes by columns 0 .. cols. */
void FN(multiply_columns)(const matvec *m, idx cols)
{
    static void (*const times[])(const matvec *, idx, idx) = {
        NULL, stripe_times_1, stripe_times_2, stripe_times_3, stripe_times_4, NULL, stripe_times_6};
    for (idx stripe = 0; stripe < BLOCKS(m->rows, STRIPE); stripe++) {
        for (idx c = 0, now; c < cols; c += now) {
            const idx left = cols - c; /* 5 = 3 + 2 keeps more sums in flight than 4 + 1 */
            now = left >= 6 && MATVEC_COLUMNS == 6 ? 6 : left == 5 ? 3 : min_(4, left);
            times[now](m, stripe, c);
        }
    }
}

enum { OUTER_VECS = VEC_BYTES == 64 ? 4 : 2 };

/* Sum at most a few hundred terms in `real`, then add the sum to `into` in double, so that the error does not grow
 * with the number of positions. */
INLINE void outer_rows(int rows, const outer_products *o, idx row, idx column)
{
    const pe_lines x = lines_of(o->x + column, o->x_step);
    const pe_matrix l = {(const char *)(o->l + row), (idx)sizeof(real), o->l_step * (idx)sizeof(real)};
    const int width = (int)min_(OUTER_VECS * LANES, o->columns - column);
    vec acc[MATVEC_COLUMNS * OUTER_VECS];
    real sum[OUTER_VECS * LANES];
    zero_sums(acc, rows * OUTER_VECS);
    accumulate(acc, rows, OUTER_VECS, 1, l, &x, (int)o->terms);
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

static NOINLINE void outer_most(const outer_products *o, idx row, idx c) { outer_rows(MATVEC_COLUMNS, o, row, c); }
static NOINLINE void outer_one(const outer_products *o, idx row, idx column) { outer_rows(1, o, row, column); }

/* into += sum over q of l[q] x[q]^T; rows of x are padded */
void FN(add_outer_products)(const outer_products *o)
{
    for (idx column = 0; column < o->columns; column += OUTER_VECS * LANES) {
        idx row = 0;
        for (; row + MATVEC_COLUMNS <= o->rows; row += MATVEC_COLUMNS)
            outer_most(o, row, column);
        for (; row < o->rows; row++)
            outer_one(o, row, column);
    }
}

/* into += sum over q of l[q] */
void FN(add_vectors)(const real *restrict l, idx l_step, idx terms, idx n, double *restrict into)
{
    for (idx q = 0; q < terms; q++) {
        SIMD
        for (idx i = 0; i < n; i++)
            into[i] += (double)l[q * l_step + i];
    }
}
