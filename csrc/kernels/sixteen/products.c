/* products.c -- split operands into bfloat16 numbers, for the products of products.h.
 *
 *     for (int p = 0; p < parts; p++) {
 *         part[p] = nearest_bfloat16(x);
 *         x -= part[p];
 *     }
 *
 * The loop has no branch and vectorises. The parts of a number then take part in many products.
 */
#include "sixteen/products.h"

#include "base/transpose.h"
#include "tile/outer.h"

/* Return the next part of *x, as bits, and subtract it from *x. A number that is not finite leaves 0: infinity is
 * the sum infinity + 0. */
INLINE uint32_t next_part(real *x)
{
    const uint16_t part = narrow_bf16((float)*x);
    const real rest = *x - (real)widen_bf16(part);
    *x = rest - rest == 0 ? rest : 0;
    return part;
}

/* Width and parts are constants where this is inlined. Rows beyond n are 0. */
INLINE void split_pairs(int width, int parts, const real *x, int n, uint32_t *restrict out)
{
    const real none[PANEL_LANES] = {0};
    const idx words = words_of(n, width);
    for (int j = 0; j < (int)whole_chunks(n); j += 2, out += width) {
        const real *even = j < n ? x + j * width : none, *odd = j + 1 < n ? x + (j + 1) * width : none;
        for (int l = 0; l < width; l++) {
            real a = even[l], b = odd[l];
            UNROLL
            for (int p = 0; p < parts; p++) {
                const uint32_t low = next_part(&a), high = next_part(&b);
                out[p * words + l] = low | high << 16;
            }
        }
    }
}

INLINE void split_lanes(int parts, const real *x, int n, int width, uint32_t *out)
{
    if (width == PANEL_LANES)
        split_pairs(PANEL_LANES, parts, x, n, out);
    else
        split_pairs(LANES, parts, x, n, out);
}

void FN(split_lanes)(const real *x, int n, int width, int parts, uint32_t *out)
{
    if (parts == 1)
        split_lanes(1, x, n, width, out);
    else if (parts == 2)
        split_lanes(2, x, n, width, out);
    else
        split_lanes(MOST_PARTS, x, n, width, out);
}

/* Split a row into one part or two. */
static NOINLINE void split_row(const real *row, int n, int parts, int finite, uint16_t *restrict out, idx part_size)
{
    uint16_t *restrict rest = parts > 1 ? out + part_size : NULL;
    SIMD
    for (int k = 0; k < n; k++) {
        real x = finite && !is_finite(row[k]) ? 0 : row[k];
        out[k] = (uint16_t)next_part(&x);
        if (rest)
            rest[k] = (uint16_t)next_part(&x);
    }
}

pe_parts FN(split_rows)(pe_rows stored, int n, int width, int finite, uint16_t *copy, real *scale, real *row)
{
    /* One chunk more than whole_chunks, so that rows use different sets of the cache */
    const idx columns = whole_chunks(width) + CHUNK, part_size = BLOCK_N * columns;
    pe_parts r = {.parts = parts_of(stored.storage), .scale = stored.scale ? scale : NULL};
    for (int j = 0; stored.scale && j < n; j++)
        scale[j] = scale_of_row(&stored, j);
    if (stored.storage == PE_BF16 && !finite && n % CHUNK == 0 && width % CHUNK == 0 && stored.step % 4096 != 0) {
        r.part[0] = stored.data;
        r.step = stored.step;
        return r;
    }
    for (int j = 0; j < (int)whole_chunks(n); j++) {
        uint16_t *out = copy + j * columns;
        const char *data = stored.data + j * stored.step;
        for (int p = 0; p < r.parts; p++)
            memset(out + p * part_size, 0, (size_t)columns * sizeof *out);
        if (j < n && stored.storage == PE_BF16 && !finite)
            memcpy(out, data, (size_t)width * sizeof *out);
        else if (j < n)
            split_row(row_read(data, stored.storage, width, row), width, r.parts, finite, out, part_size);
    }
    for (int p = 0; p < r.parts; p++)
        r.part[p] = (const char *)(copy + p * part_size);
    r.step = columns * (idx)sizeof *copy;
    return r;
}

/* Words of a square: WORDS pairs of keys and WORDS channels. In float a vector holds WORDS words, and transposing moves
 * them without arithmetic. */
enum { WORDS = PE_REAL == 32 ? LANES : CHUNK / 2 };

static void transpose_square(const char *rows, idx step, uint32_t *restrict out)
{
    uint32_t words[WORDS * WORDS];
    for (int i = 0; i < WORDS; i++) {
        uint16_t even[WORDS], odd[WORDS];
        memcpy(even, rows + 2 * i * step, sizeof even);
        memcpy(odd, rows + (2 * i + 1) * step, sizeof odd);
        SIMD
        for (int k = 0; k < WORDS; k++)
            words[i * WORDS + k] = even[k] | (uint32_t)odd[k] << 16;
    }
#if PE_REAL == 32
    vec x[LANES];
    memcpy(x, words, sizeof words);
    transpose(x);
    for (int i = 0; i < LANES; i++)
        memcpy(out + i * (CHUNK / 2), &x[i], sizeof x[i]);
#else
    for (int i = 0; i < WORDS; i++) {
        for (int k = 0; k < WORDS; k++)
            out[k * (CHUNK / 2) + i] = words[i * WORDS + k];
    }
#endif
}

pe_parts FN(transpose_rows)(const pe_parts *rows, int n, int width, uint16_t *out)
{
    enum { PAIRS = CHUNK / 2 };
    const int channels = (int)whole_chunks(width);
    pe_parts r = {.parts = rows->parts, .scale = rows->scale, .step = channels * CHUNK * (idx)sizeof *out};
    for (int p = 0; p < rows->parts; p++) {
        r.part[p] = (const char *)out;
        for (int j = 0; j < (int)whole_chunks(n); j += CHUNK, out += channels * CHUNK) {
            uint32_t *words = (uint32_t *)(void *)out;
            for (int k = 0; k < channels; k += WORDS) {
                for (int pair = 0; pair < PAIRS; pair += WORDS)
                    transpose_square(rows->part[p] + (j + 2 * pair) * rows->step + k * (idx)sizeof *out, rows->step,
                                     words + k * PAIRS + pair);
            }
        }
    }
    return r;
}

void FN(split_strips)(const real *strips, int lanes, int channels, int parts, uint32_t *out)
{
    for (int c = 0; c < channels; c += PANEL_LANES)
        FN(split_lanes)
    (strips + c * BLOCK_M, lanes, strip_width(channels, c), parts, out + c * parts * words_of(lanes, 1));
}

/* List the passes of a product: `a` from byte a_offset on, and b with parts of b_words words. */
static void list_passes(pe_product *w, const pe_parts *a, idx a_offset, const uint32_t *b, int b_parts, idx b_words)
{
    const int most = (int)max_(a->parts, b_parts);
    w->passes = 0;
    for (int i = 0; i < a->parts; i++) {
        for (int j = 0; j < b_parts && i + j < most; j++)
            w->pass[w->passes++] = (pe_pass){a->part[i] + a_offset, b + j * b_words};
    }
}

void FN(scores_of_parts)(const pe_products *unit, const pe_parts *rows, int from, int n, int d, const uint32_t *x,
                         int x_parts, int width, real *s)
{
    pe_product w = {.rows = (int)whole_chunks(n),
                    .depth = (int)whole_chunks(d),
                    .width = width,
                    .row_step = rows->step,
                    .chunk_step = CHUNK * (idx)sizeof(uint16_t),
                    .c = s};
    list_passes(&w, rows, from * rows->step, x, x_parts, words_of(d, width));
    unit->multiply(&w);
}

/* ---- weights: split for each tile and block of queries ---- */

#define UPPER_HALF 0xffff0000u

/* Return the first part, as the bits of a float, and subtract it from *x. Ties are rounded away from 0. Infinity, NaN
 * and numbers that round to infinity are truncated: *x = 0. A NaN that comes from arithmetic has a bit in its upper
 * half, so it stays a NaN. In gcc, u + (c ? h : 0) takes half the instructions of c ? u + h : u. */
INLINE uint32_t first_part_of_weight(real *x)
{
    const uint32_t u = float_bits((float)*x);
    const int rounds = u << 1 < 0xfeff0000u;
    const uint32_t part = (u + (rounds ? 0x8000u : 0)) & UPPER_HALF;
    *x = rounds ? *x - (real)bits_float(part) : 0;
    return part;
}

/* Return the second part in the upper half; ignore the lower half. x is finite and too small to round to infinity. */
INLINE uint32_t second_part_of_weight(real x) { return float_bits((float)x) + 0x8000u; }

/* Split weights as split_pairs does, times the factor of their row unless `factor` is NULL. */
INLINE void split_weight_pairs(int width, int parts, const real *w, const real *factor, int n, uint32_t *restrict out)
{
    const real none[PANEL_LANES] = {0};
    const idx words = words_of(n, width);
    for (int j = 0; j < (int)whole_chunks(n); j += 2, out += width) {
        const real *even = j < n ? w + j * width : none, *odd = j + 1 < n ? w + (j + 1) * width : none;
        const real f = factor && j < n ? factor[j] : 1, g = factor && j + 1 < n ? factor[j + 1] : 1;
        SIMD
        for (int l = 0; l < width; l++) {
            real a = factor ? even[l] * f : even[l], b = factor ? odd[l] * g : odd[l];
            const uint32_t low = first_part_of_weight(&a), high = first_part_of_weight(&b);
            out[l] = low >> 16 | high;
            if (parts == 2)
                out[words + l] = second_part_of_weight(a) >> 16 | (second_part_of_weight(b) & UPPER_HALF);
        }
    }
}

INLINE void split_weights_in(int parts, const real *w, const real *factor, int n, int width, uint32_t *out)
{
    if (width == PANEL_LANES && factor)
        split_weight_pairs(PANEL_LANES, parts, w, factor, n, out);
    else if (width == PANEL_LANES)
        split_weight_pairs(PANEL_LANES, parts, w, NULL, n, out);
    else if (factor)
        split_weight_pairs(LANES, parts, w, factor, n, out);
    else
        split_weight_pairs(LANES, parts, w, NULL, n, out);
}

static NOINLINE void split_weights(const real *w, const real *factor, int n, int width, int parts, uint32_t *out)
{
    if (parts == 2)
        split_weights_in(2, w, factor, n, width, out);
    else
        split_weights_in(1, w, factor, n, width, out);
}

/* o = o alpha + sums for e rows of lanes */
INLINE void add_sums(int width, const real *restrict sums, const real *alpha, int e, real *restrict o)
{
    for (int c = 0; c < e * width; c += width) {
        UNROLL
        for (int l = 0; l < width; l += LANES)
            vec_store(o + c + l,
                      vec_fma(vec_load(o + c + l), alpha ? vec_load(alpha + l) : vec_set(1), vec_load(sums + c + l)));
    }
}

void FN(add_values_of_parts)(const pe_weight_products *t, const pe_parts *columns, int from, int n, int e, int width,
                             const real *weights, const real *alpha, real *o)
{
    pe_product w = {.rows = (int)whole_chunks(e),
                    .depth = (int)whole_chunks(n),
                    .width = width,
                    .row_step = CHUNK * (idx)sizeof(uint16_t),
                    .chunk_step = columns->step,
                    .c = t->sums};
    split_weights(weights, columns->scale ? columns->scale + from : NULL, n, width, t->parts, t->words);
    list_passes(&w, columns, from / CHUNK * columns->step, t->words, t->parts, words_of(n, width));
    t->unit->multiply(&w);
    if (width == PANEL_LANES)
        add_sums(PANEL_LANES, t->sums, alpha, e, o);
    else
        add_sums(LANES, t->sums, alpha, e, o);
}

enum { WEIGHTS = BLOCK_N * BLOCK_M };

/* Split n rows of a panel; rows of `out` have BLOCK_M numbers. */
INLINE void split_panel(const real *restrict w, int n, int width, int parts, uint16_t *restrict out)
{
    for (int j = 0; j < n; j++, w += width, out += BLOCK_M) {
        SIMD
        for (int l = 0; l < width; l++) {
            real x = w[l];
            out[l] = (uint16_t)(first_part_of_weight(&x) >> 16);
            if (parts == 2)
                out[WEIGHTS + l] = (uint16_t)(second_part_of_weight(x) >> 16);
        }
    }
}

static NOINLINE void split_weight_rows(const real *w, int n, int width, int parts, uint16_t *out)
{
    if (width == PANEL_LANES && parts == 2)
        split_panel(w, n, PANEL_LANES, 2, out);
    else if (width == PANEL_LANES)
        split_panel(w, n, PANEL_LANES, 1, out);
    else
        split_panel(w, n, LANES, parts, out);
}

void FN(add_outer_of_parts)(const pe_weight_products *t, const pe_query_block *queries, const real *weights,
                            const uint32_t *x, int x_parts, int channels, int from, int to, real *o, idx o_step)
{
    const int lanes = (int)whole_chunks(queries->lanes), n = to - from;
    const pe_parts rows = {.part = {(const char *)t->rows, (const char *)(t->rows + WEIGHTS)},
                           .parts = t->parts,
                           .step = BLOCK_M * (idx)sizeof *t->rows};
    pe_product w = {.rows = (int)whole_chunks(n),
                    .depth = lanes,
                    .row_step = rows.step,
                    .chunk_step = CHUNK * (idx)sizeof *t->rows,
                    .c = t->sums};
    if (n <= 0)
        return;
    for (const pe_panel *p = queries->panel; p < queries->panel + queries->panels; p++)
        split_weight_rows(weights + p->first * BLOCK_N + from * p->width, n, p->width, t->parts, t->rows + p->first);
    for (int j = 0; j < n && queries->width < lanes; j++) {
        for (int p = 0; p < t->parts; p++)
            memset(t->rows + p * WEIGHTS + j * BLOCK_M + queries->width, 0,
                   (size_t)(lanes - queries->width) * sizeof *t->rows);
    }
    for (int c = 0; c < channels; c += PANEL_LANES) {
        w.width = strip_width(channels, c);
        list_passes(&w, &rows, 0, x + c * x_parts * words_of(lanes, 1), x_parts, words_of(lanes, w.width));
        t->unit->multiply(&w);
        for (int j = 0; j < n; j++)
            add_reals(o + (from + j) * o_step + c, t->sums + j * w.width, w.width);
    }
}
