/* product.c -- the two products of product.h, in SIMD registers, for a panel of lanes and a micro-tile of rows.
 *
 * A row is a key in `scores`, and a column of v in `values`. The sums stay in registers for the whole loop over k, and
 * each load of b serves all rows of the micro-tile. The loop broadcasts a from the caller's memory, so a is not packed.
 */
#include "tile/product.h"

/* Rows of keys or values, and one panel or two */
typedef struct {
    pe_lines a;
    int n; /* channels of a key; or keys */
    pe_side side[2];
} product;

INLINE void score_rows(int rows, int cols, int panels, const void *of, int j)
{
    const product *w = of;
    const int all = panels * cols;
    const pe_lines b[2] = {lines_of(w->side[0].b, cols * LANES), lines_of(w->side[1].b, cols * LANES)};
    const pe_matrix keys = {w->a.data + j * w->a.step, w->a.step, (idx)sizeof(real)};
    vec acc[MOST_SUMS];
    zero_sums(acc, rows * all);
    accumulate(acc, rows, cols, panels, keys, b, w->n);
    UNROLL
    for (int p = 0; p < panels; p++) {
        const pe_side *side = &w->side[p];
        const real *bias = side->add ? side->add + j * side->step : NULL;
        real *s = side->c + j * cols * LANES;
        UNROLL
        for (int c = 0; c < cols; c++) {
            vec m = side->max ? vec_load(side->max + c * LANES) : vec_set(0);
            UNROLL
            for (int r = 0; r < rows; r++) {
                vec x = acc[r * all + p * cols + c];
                if (bias)
                    x = vec_bias(x, vec_load(bias + r * side->step + c * LANES));
                m = vec_max(x, m);
                vec_store(s + (r * cols + c) * LANES, x);
            }
            if (side->max)
                vec_store(side->max + c * LANES, m);
        }
    }
}

INLINE void value_rows(int rows, int cols, int panels, const void *of, int d)
{
    const product *w = of;
    const int all = panels * cols;
    const pe_lines b[2] = {lines_of(w->side[0].b, cols * LANES), lines_of(w->side[1].b, cols * LANES)};
    const pe_matrix columns = {w->a.data + d * (int)sizeof(real), (idx)sizeof(real), w->a.step};
    vec acc[MOST_SUMS];
    zero_sums(acc, rows * all);
    accumulate(acc, rows, cols, panels, columns, b, w->n);
    /* acc is the sum of this tile only. Adding it to c lets the error grow with the number of tiles, not of keys. */
    UNROLL
    for (int p = 0; p < panels; p++) {
        const pe_side *side = &w->side[p];
        UNROLL
        for (int r = 0; r < rows; r++) {
            for (int c = 0; c < cols; c++) {
                real *to = side->c + ((d + r) * cols + c) * LANES;
                const vec alpha = side->alpha ? vec_load(side->alpha + c * LANES) : vec_set(1);
                vec_store(to, vec_fma(vec_load(to), alpha, acc[r * all + p * cols + c]));
            }
        }
    }
}

/* Arguments are passed by value, so the compiler knows that no store changes them. */
static NOINLINE void scores_narrow(product w, int from, int n) { in_micro_tiles(score_rows, 1, &w, from, n); }
static NOINLINE void scores_wide(product w, int from, int n) { in_micro_tiles(score_rows, 2, &w, from, n); }
static NOINLINE int scores_of_two(product w, int n) { return in_two_panels(score_rows, &w, 0, n); }
static NOINLINE void values_narrow(product w, int from, int e) { in_micro_tiles(value_rows, 1, &w, from, e); }
static NOINLINE void values_wide(product w, int from, int e) { in_micro_tiles(value_rows, 2, &w, from, e); }
static NOINLINE int values_of_two(product w, int e) { return in_two_panels(value_rows, &w, 0, e); }

/* Return whether a side and the next one are one product. */
static int goes_together(const pe_side *side, int left)
{
    return TWO_PANELS && left > 1 && side[0].width == 2 * LANES && side[1].width == 2 * LANES
           && side[0].from == side[1].from && side[0].to == side[1].to;
}

void FN(scores)(pe_lines k, int d, const pe_side *side, int sides)
{
    for (int i = 0; i < sides; i++) {
        const int n = side[i].to - side[i].from, two = goes_together(side + i, sides - i);
        product w = {lines_from(k, side[i].from), d, {side[i], side[two ? i + 1 : i]}};
        const int done = two ? scores_of_two(w, n) : 0;
        (w.side[0].width == LANES ? scores_narrow : scores_wide)(w, done, n);
        if (two) {
            w.side[0] = side[++i];
            scores_wide(w, done, n);
        }
    }
}

void FN(values)(pe_lines v, int e, const pe_side *side, int sides)
{
    for (int i = 0; i < sides; i++) {
        const int two = goes_together(side + i, sides - i);
        product w = {lines_from(v, side[i].from), side[i].to - side[i].from, {side[i], side[two ? i + 1 : i]}};
        if (w.n == 0)
            continue;
        const int done = two ? values_of_two(w, e) : 0;
        (w.side[0].width == LANES ? values_narrow : values_wide)(w, done, e);
        if (two) {
            w.side[0] = side[++i];
            values_wide(w, done, e);
        }
    }
}
