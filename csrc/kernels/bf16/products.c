/* products.c -- the room's functions for attention (tile/bf16.h): split operands into bfloat16 numbers, and multiply
 * them by an instruction of products.h.
 *
 *     for (int p = 0; p < terms; p++) {
 *         term[p] = nearest_bfloat16(x);
 *         x -= term[p];
 *     }
 *
 * The loop has no branch and vectorises. The terms of a number then take part in many products.
 */
#include "bf16/products.h"

#include "base/transpose.h"
#include "tile/outer.h"

#if PE_REAL == 32
/* The left factor of a product, split into terms of bfloat16: DOT numbers k .. k + DOT of row j of term p begin at
 * term[p] + j * row_step + k / DOT * dot_step. Rows and numbers beyond the operand are 0, up to a multiple of DOT. */
typedef struct {
    const char *term[MOST_TERMS];
    int terms;
    idx row_step, dot_step; /* bytes */
    const real *scale;      /* of each row of codes, or NULL */
} pe_terms;

/* The right factor of a product, n x width numbers split into terms of words: a word has the numbers of two rows. */
typedef struct {
    uint32_t *words;
    int terms, n, width;
} pe_words;

/* The operands of QK or GV: `lanes` and `strips` of the blocks, and rows of the tile, which are split into `copy` */
typedef struct {
    int width, terms; /* channels; terms of lanes and strips */
    uint32_t *lanes, *strips;
    pe_terms rows;
    uint16_t *copy;
    real *scale;
} operands;

struct pe_split {
    int blocks, weight_terms, finite;
    operands operands[2];
    operands *transposes; /* those whose rows are transposed: values, or in the gradient keys */
    pe_terms columns;
    uint16_t *transposed, *weight_rows; /* weight_rows: for the outer product */
    uint32_t *words;                    /* terms of weights */
    real *sums, *row;                   /* whole_dots rows of a product, a copy of a row */
    idx first_key;
};

/* Weights of a tile and a block */
enum { WEIGHTS = BLOCK_N * BLOCK_M };

INLINE int terms_of(pe_storage storage) { return storage == PE_F16 ? 2 : 1; }
INLINE idx whole_dots(idx n) { return BLOCKS(n, DOT) * DOT; }
/* Words of a term of n rows */
INLINE idx words_of(idx n, int width) { return whole_dots(n) / 2 * width; }
/* Numbers of a term of a row. DOT more than whole_dots, so that rows use different sets of the cache */
INLINE idx split_width(int width) { return whole_dots(width) + DOT; }

/* Into how many bfloat16 numbers a weight is split */
static int weight_terms_of(const pe_call *call)
{
    return call->par[A_PRECISION] == 0 || call->array[A_Q].storage == PE_F16 ? 2 : 1;
}

/* ---- memory ---- */

static int takes_operands(const pe_call *call, int is_gradient)
{
    static const int operand[] = {A_Q, A_K, A_V, A_GRAD};
    idx terms = weight_terms_of(call);
    for (int i = 0; i < 3 + is_gradient; i++) {
        const pe_storage storage = call->array[operand[i]].storage;
        if (storage != PE_F16 && storage != PE_BF16 && storage != PE_I8)
            return 0;
        terms = max_(terms, terms_of(storage));
    }
    return terms <= call->products->most_terms;
}

static pe_split *carve_split(pe_carver *c, const pe_call *call, int blocks, int is_gradient)
{
    const idx widest = max_(call->D(d), call->D(e));
    pe_split only_counted, *carved = carve_bytes(c, sizeof *carved), *x = carved ? carved : &only_counted;
    x->blocks = blocks;
    x->weight_terms = weight_terms_of(call);
    x->transposes = &x->operands[is_gradient ? QK : GV];
    for (int i = 0; i < 2; i++) {
        operands *of = &x->operands[i];
        of->width = (int)(i == QK ? call->D(d) : call->D(e));
        const idx words = BLOCK_M * MOST_TERMS * words_of(of->width, 1) * (idx)sizeof(uint32_t);
        of->lanes = carve_bytes(c, (i == QK ? blocks : is_gradient) * words);
        of->strips = carve_bytes(c, is_gradient * words);
        of->copy = carve_bytes(c, 2 * BLOCK_N * split_width(of->width) * (idx)sizeof *of->copy);
        of->scale = carve_reals(c, BLOCK_N);
    }
    x->transposed = carve_bytes(c, 2 * BLOCK_N * split_width((int)widest) * (idx)sizeof *x->transposed);
    x->weight_rows = carve_bytes(c, is_gradient * 2 * WEIGHTS * (idx)sizeof *x->weight_rows);
    x->words = carve_bytes(c, 2 * words_of(BLOCK_N, PANEL_LANES) * (idx)sizeof *x->words);
    x->sums = carve_reals(c, max_(whole_dots(widest), BLOCK_N) * PANEL_LANES);
    x->row = carve_reals(c, widest);
    return carved;
}

/* ---- queries ---- */

/* Return the next term of *x, as bits, and subtract it from *x. A number that is not finite leaves 0: infinity is
 * the sum infinity + 0. */
INLINE uint32_t next_term(real *x)
{
    const uint16_t term = narrow_bf16((float)*x);
    const real rest = *x - (real)widen_bf16(term);
    *x = rest - rest == 0 ? rest : 0;
    return term;
}

/* Width and terms are constants where this is inlined. Rows beyond n are 0. */
INLINE void split_words(int width, int terms, const real *x, int n, uint32_t *restrict out)
{
    const real none[PANEL_LANES] = {0};
    const idx words = words_of(n, width);
    for (int j = 0; j < (int)whole_dots(n); j += 2, out += width) {
        const real *even = j < n ? x + j * width : none, *odd = j + 1 < n ? x + (j + 1) * width : none;
        for (int l = 0; l < width; l++) {
            real a = even[l], b = odd[l];
            UNROLL
            for (int p = 0; p < terms; p++) {
                const uint32_t low = next_term(&a), high = next_term(&b);
                out[p * words + l] = low | high << 16;
            }
        }
    }
}

static NOINLINE void split_lanes(const real *x, const pe_words *to)
{
    if (to->terms == 1)
        FOR_WIDTH(split_words, to->width, 1, x, to->n, to->words);
    else if (to->terms == 2)
        FOR_WIDTH(split_words, to->width, 2, x, to->n, to->words);
    else
        FOR_WIDTH(split_words, to->width, MOST_TERMS, x, to->n, to->words);
}

/* The lanes of a panel. The blocks that go together have different places. */
static pe_words lanes_of(const pe_query_block *queries, const operands *of, const pe_panel *p)
{
    const idx block = queries->first / BLOCK_M % queries->split->blocks;
    uint32_t *words = of->lanes + (block * BLOCK_M + p->first) * of->terms * words_of(of->width, 1);
    return (pe_words){words, of->terms, of->width, p->width};
}

/* The strip of a block from channel c on */
static pe_words strip_of(const pe_query_block *queries, const operands *of, int c)
{
    uint32_t *words = of->strips + c * of->terms * words_of(queries->lanes, 1);
    return (pe_words){words, of->terms, queries->lanes, strip_width(of->width, c)};
}

/* Split the lanes of a block: queries for QK, cotangents for GV; and their strips, unless they are NULL. */
static void split_block(const pe_query_block *queries, int product, int exact, const real *lanes, const real *strips)
{
    operands *of = &queries->split->operands[product];
    of->terms = exact ? MOST_TERMS : terms_of(queries->call->array[product == QK ? A_Q : A_GRAD].storage);
    for (const pe_panel *p = queries->panel; p < queries->panel + queries->panels; p++) {
        const pe_words to = lanes_of(queries, of, p);
        split_lanes(lanes + p->first * of->width, &to);
    }
    for (int c = 0; strips && c < of->width; c += PANEL_LANES) {
        const pe_words to = strip_of(queries, of, c);
        split_lanes(strips + c * BLOCK_M, &to);
    }
}

/* ---- keys and values ---- */

/* Split a row into one term or two. */
static NOINLINE void split_row(const real *row, int n, int terms, int finite, uint16_t *restrict out, idx term_size)
{
    uint16_t *restrict rest = terms > 1 ? out + term_size : NULL;
    SIMD
    for (int k = 0; k < n; k++) {
        real x = finite && !is_finite(row[k]) ? 0 : row[k];
        out[k] = (uint16_t)next_term(&x);
        if (rest)
            rest[k] = (uint16_t)next_term(&x);
    }
}

/* Split n rows of a tile. bfloat16 rows are read in place if they need no padding. With `finite`, nonfinite numbers
 * are 0. */
static void split_rows(operands *of, pe_rows stored, int n, int finite, real *row)
{
    const int width = of->width;
    const idx columns = split_width(width), term_size = BLOCK_N * columns;
    pe_terms *r = &of->rows;
    r->terms = terms_of(stored.storage);
    r->dot_step = DOT * (idx)sizeof(uint16_t);
    r->scale = stored.scale ? of->scale : NULL;
    for (int j = 0; stored.scale && j < n; j++)
        of->scale[j] = scale_of_row(&stored, j);
    if (stored.storage == PE_BF16 && !finite && n % DOT == 0 && width % DOT == 0 && stored.step % 4096 != 0) {
        r->term[0] = stored.data;
        r->row_step = stored.step;
        return;
    }
    for (int j = 0; j < (int)whole_dots(n); j++) {
        uint16_t *out = of->copy + j * columns;
        const char *data = stored.data + j * stored.step;
        for (int p = 0; p < r->terms; p++)
            memset(out + p * term_size, 0, (size_t)columns * sizeof *out);
        if (j < n && stored.storage == PE_BF16 && !finite)
            memcpy(out, data, (size_t)width * sizeof *out);
        else if (j < n)
            split_row(row_read(data, stored.storage, width, row), width, r->terms, finite, out, term_size);
    }
    for (int p = 0; p < r->terms; p++)
        r->term[p] = (const char *)(of->copy + p * term_size);
    r->row_step = columns * (idx)sizeof *of->copy;
}

/* A square of words: LANES times two keys, and LANES channels. Transposing moves words without arithmetic. */
static void transpose_square(const char *rows, idx step, uint32_t *restrict out)
{
    uint32_t words[LANES * LANES];
    for (int i = 0; i < LANES; i++) {
        uint16_t even[LANES], odd[LANES];
        memcpy(even, rows + 2 * i * step, sizeof even);
        memcpy(odd, rows + (2 * i + 1) * step, sizeof odd);
        SIMD
        for (int k = 0; k < LANES; k++)
            words[i * LANES + k] = even[k] | (uint32_t)odd[k] << 16;
    }
    vec x[LANES];
    memcpy(x, words, sizeof words);
    transpose(x);
    for (int i = 0; i < LANES; i++)
        memcpy(out + i * (DOT / 2), &x[i], sizeof x[i]);
}

/* Transpose these rows: keys j .. j + DOT become whole_dots(width) rows of DOT numbers. */
static pe_terms transpose_rows(const pe_terms *rows, int n, int width, uint16_t *out)
{
    enum { WORDS = DOT / 2 };
    const int channels = (int)whole_dots(width);
    const idx dot_bytes = DOT * (idx)sizeof *out;
    pe_terms r = {.terms = rows->terms, .row_step = dot_bytes, .dot_step = channels * dot_bytes, .scale = rows->scale};
    for (int p = 0; p < rows->terms; p++) {
        r.term[p] = (const char *)out;
        for (int j = 0; j < (int)whole_dots(n); j += DOT, out += channels * DOT) {
            uint32_t *words = (uint32_t *)(void *)out;
            for (int k = 0; k < channels; k += LANES) {
                for (int word = 0; word < WORDS; word += LANES)
                    transpose_square(rows->term[p] + (j + 2 * word) * rows->row_step + k * (idx)sizeof *out,
                                     rows->row_step, words + k * WORDS + word);
            }
        }
    }
    return r;
}

static int split_keys_and_values(const pe_query_block *queries, const pe_key_tile *keys, int finite, int transposes)
{
    pe_split *x = queries->split;
    const operands *v = &x->operands[GV];
    x->finite = finite;
    x->first_key = keys->first;
    split_rows(&x->operands[QK], rows_of_keys(queries, A_K, keys->first), keys->n, 0, x->row);
    split_rows(&x->operands[GV], rows_of_keys(queries, A_V, keys->first), keys->n, finite, x->row);
    if (transposes)
        x->columns = transpose_rows(&x->transposes->rows, keys->n, x->transposes->width, x->transposed);
    for (int j = 0; v->rows.scale && j < keys->n; j++) {
        if (!is_finite(v->scale[j]))
            return 0;
    }
    return 1;
}

/* ---- products ---- */

/* c[row][lane] = sum_k a[row][k] b[k][lane] for n rows of a, which begin `offset` bytes after the first number of each
 * term. Products of two small terms are left out (products.h). */
static void multiply(const pe_call *call, const pe_terms *a, idx offset, const pe_words *b, int n, real *c)
{
    const int most = (int)max_(a->terms, b->terms);
    pe_product w = {.rows = (int)whole_dots(n),
                    .depth = (int)whole_dots(b->n),
                    .width = b->width,
                    .row_step = a->row_step,
                    .dot_step = a->dot_step,
                    .c = c};
    for (int i = 0; i < a->terms; i++) {
        for (int j = 0; j < b->terms && i + j < most; j++)
            w.pass[w.passes++] = (pe_pass){a->term[i] + offset, b->words + j * words_of(b->n, b->width)};
    }
    call->products->multiply(&w);
}

/* ---- scores ---- */

/* s[j][lane] *= factor[j] */
static NOINLINE void scale_scores(real *restrict s, const real *restrict factor, int n, int width)
{
    for (int j = 0; j < n; j++, s += width) {
        SIMD
        for (int l = 0; l < width; l++)
            s[l] *= factor[j];
    }
}

/* s[j][lane] = sum_k key[j][k] q[k][lane] where s is NaN */
static NOINLINE void repair_scores(const pe_query_block *queries, const pe_side *side)
{
    const pe_split *x = queries->split;
    const pe_rows rows = rows_of_keys(queries, A_K, x->first_key);
    const int width = side->width, d = x->operands[QK].width;
    const real *q = side->b;
    real *restrict s = side->c;
    for (int j = side->from; j < side->to; j++, s += width) {
        real sum[PANEL_LANES] = {0}, total = 0;
        for (int l = 0; l < width; l++)
            total += s[l] - s[l];
        if (is_finite(total))
            continue;
        const real *key = real_row_of(&rows, j, d, x->row);
        for (int k = 0; k < d; k++) {
            SIMD
            for (int l = 0; l < width; l++)
                sum[l] = fma_(key[k], q[k * width + l], sum[l]);
        }
        for (int l = 0; l < width; l++)
            s[l] = s[l] != s[l] ? sum[l] : s[l];
    }
}

static void multiply_keys(const pe_query_block *queries, const pe_panel *panel, int product, const pe_side *side)
{
    const pe_split *x = queries->split;
    const operands *of = &x->operands[product];
    const pe_terms *rows = &of->rows;
    const pe_words lanes = lanes_of(queries, of, panel);
    const int n = side->to - side->from;
    multiply(queries->call, rows, side->from * rows->row_step, &lanes, n, side->c);
    if (rows->scale)
        scale_scores(side->c, rows->scale + side->from, n, panel->width);
    if (x->finite)
        repair_scores(queries, side);
}

/* ---- weights: split for each tile and block of queries ---- */

#define UPPER_HALF 0xffff0000u

/* Return the first term, as the bits of a float, and subtract it from *x. Ties are rounded away from 0. Infinity, NaN
 * and numbers that round to infinity are truncated: *x = 0. A NaN that comes from arithmetic has a bit in its upper
 * half, so it stays a NaN. In gcc, u + (c ? h : 0) takes half the instructions of c ? u + h : u. */
INLINE uint32_t first_term_of_weight(real *x)
{
    const uint32_t u = float_bits((float)*x);
    const int rounds = u << 1 < 0xfeff0000u;
    const uint32_t term = (u + (rounds ? 0x8000u : 0)) & UPPER_HALF;
    *x = rounds ? *x - (real)bits_float(term) : 0;
    return term;
}

/* Return the second term in the upper half; ignore the lower half. x is finite and too small to round to infinity. */
INLINE uint32_t second_term_of_weight(real x) { return float_bits((float)x) + 0x8000u; }

/* Split weights as split_words does, times the factor of their row unless `factor` is NULL. */
INLINE void split_weight_words(int width, int terms, const real *w, const real *factor, int n, uint32_t *restrict out)
{
    const real none[PANEL_LANES] = {0};
    const idx words = words_of(n, width);
    for (int j = 0; j < (int)whole_dots(n); j += 2, out += width) {
        const real *even = j < n ? w + j * width : none, *odd = j + 1 < n ? w + (j + 1) * width : none;
        const real f = factor && j < n ? factor[j] : 1, g = factor && j + 1 < n ? factor[j + 1] : 1;
        SIMD
        for (int l = 0; l < width; l++) {
            real a = factor ? even[l] * f : even[l], b = factor ? odd[l] * g : odd[l];
            const uint32_t low = first_term_of_weight(&a), high = first_term_of_weight(&b);
            out[l] = low >> 16 | high;
            if (terms == 2)
                out[words + l] = second_term_of_weight(a) >> 16 | (second_term_of_weight(b) & UPPER_HALF);
        }
    }
}

static NOINLINE void split_weights(const real *w, const real *factor, const pe_words *to)
{
    if (to->terms == 2 && factor)
        FOR_WIDTH(split_weight_words, to->width, 2, w, factor, to->n, to->words);
    else if (to->terms == 2)
        FOR_WIDTH(split_weight_words, to->width, 2, w, NULL, to->n, to->words);
    else if (factor)
        FOR_WIDTH(split_weight_words, to->width, 1, w, factor, to->n, to->words);
    else
        FOR_WIDTH(split_weight_words, to->width, 1, w, NULL, to->n, to->words);
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

static void multiply_values(const pe_query_block *queries, const pe_side *side)
{
    const pe_split *x = queries->split;
    const pe_terms *columns = &x->columns;
    const pe_words weights = {x->words, x->weight_terms, side->to - side->from, side->width};
    const int e = x->transposes->width;
    split_weights(side->b, columns->scale ? columns->scale + side->from : NULL, &weights);
    multiply(queries->call, columns, side->from / DOT * columns->dot_step, &weights, e, x->sums);
    FOR_WIDTH(add_sums, side->width, x->sums, side->alpha, e, side->c);
}

/* Split n rows of a panel; rows of `out` have BLOCK_M numbers. */
INLINE void split_panel(int width, int terms, const real *restrict w, int n, uint16_t *restrict out)
{
    for (int j = 0; j < n; j++, w += width, out += BLOCK_M) {
        SIMD
        for (int l = 0; l < width; l++) {
            real x = w[l];
            out[l] = (uint16_t)(first_term_of_weight(&x) >> 16);
            if (terms == 2)
                out[WEIGHTS + l] = (uint16_t)(second_term_of_weight(x) >> 16);
        }
    }
}

/* Split the weights of a block for n keys from `from` on: a row is a key, and its numbers are the queries. */
static NOINLINE pe_terms split_weight_rows(const pe_query_block *queries, const real *weights, int from, int n)
{
    const pe_split *x = queries->split;
    const int terms = x->weight_terms, padding = (int)whole_dots(queries->lanes) - queries->width;
    for (const pe_panel *p = queries->panel; p < queries->panel + queries->panels; p++) {
        const real *w = weights + score_offset(p, from);
        if (terms == 2)
            FOR_WIDTH(split_panel, p->width, 2, w, n, x->weight_rows + p->first);
        else
            FOR_WIDTH(split_panel, p->width, 1, w, n, x->weight_rows + p->first);
    }
    for (int j = 0; j < n && padding > 0; j++) {
        for (int p = 0; p < terms; p++)
            memset(x->weight_rows + p * WEIGHTS + j * BLOCK_M + queries->width, 0,
                   (size_t)padding * sizeof *x->weight_rows);
    }
    return (pe_terms){.term = {(const char *)x->weight_rows, (const char *)(x->weight_rows + WEIGHTS)},
                      .terms = terms,
                      .row_step = BLOCK_M * (idx)sizeof *x->weight_rows,
                      .dot_step = DOT * (idx)sizeof *x->weight_rows};
}

static void multiply_outer(const pe_query_block *queries, int product, const real *weights, int from, int to, pe_sums o)
{
    const pe_split *x = queries->split;
    const operands *of = &x->operands[product];
    const int n = to - from;
    if (n <= 0)
        return;
    const pe_terms rows = split_weight_rows(queries, weights, from, n);
    for (int c = 0; c < of->width; c += PANEL_LANES) {
        const pe_words strip = strip_of(queries, of, c);
        multiply(queries->call, &rows, 0, &strip, n, x->sums);
        for (int j = 0; j < n; j++)
            add_reals(o.row + (from + j) * o.step + c, x->sums + j * strip.width, strip.width);
    }
}

const pe_bf16 FN(bf16) = {takes_operands, carve_split,     split_block,   split_keys_and_values,
                          multiply_keys,  multiply_values, multiply_outer};

/* The instructions that this variant has (dispatch.c) */
extern const pe_products *const FN(pe_products_of)[PE_PRODUCTS];
const pe_products *const FN(pe_products_of)[PE_PRODUCTS] = {
#if PE_HAS_INSTRUCTIONS
    [PE_AVX512BF16] = &FN(products_avx512bf16),
    [PE_AMX] = &FN(products_amx),
#endif
    [PE_AMX_EMULATED] = &FN(products_emulated),
};
#endif
