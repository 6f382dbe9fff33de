/* products.c -- the room's functions for attention (tile/bf16.h): split operands into bfloat16 numbers, and multiply
 * them by a unit of products.h.
 *
 *     for (int p = 0; p < parts; p++) {
 *         part[p] = nearest_bfloat16(x);
 *         x -= part[p];
 *     }
 *
 * The loop has no branch and vectorises. The parts of a number then take part in many products.
 */
#include "bf16/products.h"

#include "base/transpose.h"
#include "tile/outer.h"

#if PE_REAL == 32
/* Rows of keys or values as bfloat16: part p of row j is at part[p] + j * step. Rows and columns beyond the operand are
 * 0, up to whole chunks. */
typedef struct {
    const char *part[MOST_PARTS];
    int parts;
    idx step;
    const real *scale; /* of each row of codes, or NULL */
} pe_parts;

/* A pair of operands: `lanes` and `strips` of the blocks, and rows of the tile, which are split into `copy` */
typedef struct {
    int width, parts; /* channels; parts of lanes and strips */
    uint32_t *lanes, *strips;
    pe_parts rows;
    uint16_t *copy;
    real *scale;
} operands;

struct pe_split {
    int blocks, weight_parts, finite;
    operands pair[2];
    operands *transposes; /* the pair whose rows are transposed: values, or in the gradient keys */
    pe_parts columns;
    uint16_t *transposed, *weight_rows; /* weight_rows: for the outer product */
    uint32_t *words;                    /* parts of weights */
    real *sums, *row;                   /* whole chunks of rows, a copy of a row */
    idx first_key;
};

/* Weights of a tile and a block */
enum { WEIGHTS = BLOCK_N * BLOCK_M };

INLINE int parts_of(pe_storage storage) { return storage == PE_F16 ? 2 : 1; }
INLINE idx whole_chunks(idx n) { return BLOCKS(n, CHUNK) * CHUNK; }
/* Words of a part of x[j][lane] with n rows: pairs of rows */
INLINE idx words_of(idx n, int width) { return whole_chunks(n) / 2 * width; }
/* Numbers of a part of a row. One chunk more than whole_chunks, so that rows use different sets of the cache */
INLINE idx split_width(int width) { return whole_chunks(width) + CHUNK; }

/* Into how many bfloat16 numbers a weight is split */
static int weight_parts_of(const pe_call *call)
{
    return call->par[A_PRECISION] == 0 || call->array[A_Q].storage == PE_F16 ? 2 : 1;
}

/* ---- memory ---- */

static int takes_operands(const pe_call *call, int is_gradient)
{
    static const int operand[] = {A_Q, A_K, A_V, A_GRAD};
    idx parts = weight_parts_of(call);
    for (int i = 0; i < 3 + is_gradient; i++) {
        const pe_storage storage = call->array[operand[i]].storage;
        if (storage != PE_F16 && storage != PE_BF16 && storage != PE_I8)
            return 0;
        parts = max_(parts, parts_of(storage));
    }
    return parts <= call->products->most_parts;
}

static pe_split *carve_split(pe_carver *c, const pe_call *call, int blocks, int is_gradient)
{
    const idx widest = max_(call->D(d), call->D(e));
    pe_split only_counted, *carved = carve_bytes(c, sizeof *carved), *x = carved ? carved : &only_counted;
    x->blocks = blocks;
    x->weight_parts = weight_parts_of(call);
    x->transposes = &x->pair[is_gradient ? QK : GV];
    for (int i = 0; i < 2; i++) {
        operands *of = &x->pair[i];
        of->width = (int)(i == QK ? call->D(d) : call->D(e));
        const idx words = BLOCK_M * MOST_PARTS * words_of(of->width, 1) * (idx)sizeof(uint32_t);
        of->lanes = carve_bytes(c, (i == QK ? blocks : is_gradient) * words);
        of->strips = carve_bytes(c, is_gradient * words);
        of->copy = carve_bytes(c, 2 * BLOCK_N * split_width(of->width) * (idx)sizeof *of->copy);
        of->scale = carve_reals(c, BLOCK_N);
    }
    x->transposed = carve_bytes(c, 2 * BLOCK_N * split_width((int)widest) * (idx)sizeof *x->transposed);
    x->weight_rows = carve_bytes(c, is_gradient * 2 * WEIGHTS * (idx)sizeof *x->weight_rows);
    x->words = carve_bytes(c, 2 * words_of(BLOCK_N, PANEL_LANES) * (idx)sizeof *x->words);
    x->sums = carve_reals(c, max_(whole_chunks(widest), BLOCK_N) * PANEL_LANES);
    x->row = carve_reals(c, widest);
    return carved;
}

/* ---- queries ---- */

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

INLINE void split_lanes_in(int parts, const real *x, int n, int width, uint32_t *out)
{
    if (width == PANEL_LANES)
        split_pairs(PANEL_LANES, parts, x, n, out);
    else
        split_pairs(LANES, parts, x, n, out);
}

static NOINLINE void split_lanes(const real *x, int n, int width, int parts, uint32_t *out)
{
    if (parts == 1)
        split_lanes_in(1, x, n, width, out);
    else if (parts == 2)
        split_lanes_in(2, x, n, width, out);
    else
        split_lanes_in(MOST_PARTS, x, n, width, out);
}

/* The parts of the lanes of a block from lane `first` on. The blocks that go together have different places. */
static uint32_t *lanes_at(const pe_query_block *queries, const operands *of, int first)
{
    const idx block = queries->first / BLOCK_M % queries->split->blocks;
    return of->lanes + (block * BLOCK_M + first) * of->parts * words_of(of->width, 1);
}

static void split_block(const pe_query_block *queries, int pair, int exact, const real *lanes, const real *strips)
{
    operands *of = &queries->split->pair[pair];
    const int n = of->width, all = queries->lanes;
    of->parts = exact ? MOST_PARTS : parts_of(queries->call->array[pair == QK ? A_Q : A_GRAD].storage);
    for (const pe_panel *p = queries->panel; p < queries->panel + queries->panels; p++)
        split_lanes(lanes + p->first * n, n, p->width, of->parts, lanes_at(queries, of, p->first));
    for (int c = 0; strips && c < n; c += PANEL_LANES)
        split_lanes(strips + c * BLOCK_M, all, strip_width(n, c), of->parts,
                    of->strips + c * of->parts * words_of(all, 1));
}

/* ---- keys and values ---- */

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

/* Split n rows of a tile. bfloat16 rows are read in place if they are whole chunks. With `finite`, nonfinite numbers
 * are 0. */
static void split_rows(operands *of, pe_rows stored, int n, int finite, real *row)
{
    const int width = of->width;
    const idx columns = split_width(width), part_size = BLOCK_N * columns;
    pe_parts *r = &of->rows;
    r->parts = parts_of(stored.storage);
    r->scale = stored.scale ? of->scale : NULL;
    for (int j = 0; stored.scale && j < n; j++)
        of->scale[j] = scale_of_row(&stored, j);
    if (stored.storage == PE_BF16 && !finite && n % CHUNK == 0 && width % CHUNK == 0 && stored.step % 4096 != 0) {
        r->part[0] = stored.data;
        r->step = stored.step;
        return;
    }
    for (int j = 0; j < (int)whole_chunks(n); j++) {
        uint16_t *out = of->copy + j * columns;
        const char *data = stored.data + j * stored.step;
        for (int p = 0; p < r->parts; p++)
            memset(out + p * part_size, 0, (size_t)columns * sizeof *out);
        if (j < n && stored.storage == PE_BF16 && !finite)
            memcpy(out, data, (size_t)width * sizeof *out);
        else if (j < n)
            split_row(row_read(data, stored.storage, width, row), width, r->parts, finite, out, part_size);
    }
    for (int p = 0; p < r->parts; p++)
        r->part[p] = (const char *)(of->copy + p * part_size);
    r->step = columns * (idx)sizeof *of->copy;
}

/* A square of LANES pairs of keys and LANES channels, each pair a word. Transposing moves words without arithmetic. */
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
        memcpy(out + i * (CHUNK / 2), &x[i], sizeof x[i]);
}

/* Transpose these rows: chunk j / CHUNK has whole_chunks(width) rows of CHUNK keys; step is the bytes of a chunk. */
static pe_parts transpose_rows(const pe_parts *rows, int n, int width, uint16_t *out)
{
    enum { PAIRS = CHUNK / 2 };
    const int channels = (int)whole_chunks(width);
    pe_parts r = {.parts = rows->parts, .scale = rows->scale, .step = channels * CHUNK * (idx)sizeof *out};
    for (int p = 0; p < rows->parts; p++) {
        r.part[p] = (const char *)out;
        for (int j = 0; j < (int)whole_chunks(n); j += CHUNK, out += channels * CHUNK) {
            uint32_t *words = (uint32_t *)(void *)out;
            for (int k = 0; k < channels; k += LANES) {
                for (int pair = 0; pair < PAIRS; pair += LANES)
                    transpose_square(rows->part[p] + (j + 2 * pair) * rows->step + k * (idx)sizeof *out, rows->step,
                                     words + k * PAIRS + pair);
            }
        }
    }
    return r;
}

static int split_keys_and_values(const pe_query_block *queries, const pe_key_tile *keys, int finite, int transposes)
{
    pe_split *x = queries->split;
    const operands *v = &x->pair[GV];
    x->finite = finite;
    x->first_key = keys->first;
    split_rows(&x->pair[QK], rows_of_keys(queries, A_K, keys->first), keys->n, 0, x->row);
    split_rows(&x->pair[GV], rows_of_keys(queries, A_V, keys->first), keys->n, finite, x->row);
    if (transposes)
        x->columns = transpose_rows(&x->transposes->rows, keys->n, x->transposes->width, x->transposed);
    for (int j = 0; v->rows.scale && j < keys->n; j++) {
        if (!is_finite(v->scale[j]))
            return 0;
    }
    return 1;
}

/* ---- scores ---- */

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
    const int width = side->width, d = x->pair[QK].width;
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

static void multiply_keys(const pe_query_block *queries, const pe_panel *panel, int pair, const pe_side *side)
{
    const pe_split *x = queries->split;
    const operands *of = &x->pair[pair];
    const int n = side->to - side->from, width = panel->width;
    pe_product w = {.rows = (int)whole_chunks(n),
                    .depth = (int)whole_chunks(of->width),
                    .width = width,
                    .row_step = of->rows.step,
                    .chunk_step = CHUNK * (idx)sizeof(uint16_t),
                    .c = side->c};
    list_passes(&w, &of->rows, side->from * of->rows.step, lanes_at(queries, of, panel->first), of->parts,
                words_of(of->width, width));
    queries->call->products->multiply(&w);
    if (of->rows.scale)
        scale_scores(side->c, of->rows.scale + side->from, n, width);
    if (x->finite)
        repair_scores(queries, side);
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

static void multiply_values(const pe_query_block *queries, const pe_side *side)
{
    const pe_split *x = queries->split;
    const pe_parts *columns = &x->columns;
    const int n = side->to - side->from, e = x->transposes->width, width = side->width;
    pe_product w = {.rows = (int)whole_chunks(e),
                    .depth = (int)whole_chunks(n),
                    .width = width,
                    .row_step = CHUNK * (idx)sizeof(uint16_t),
                    .chunk_step = columns->step,
                    .c = x->sums};
    split_weights(side->b, columns->scale ? columns->scale + side->from : NULL, n, width, x->weight_parts, x->words);
    list_passes(&w, columns, side->from / CHUNK * columns->step, x->words, x->weight_parts, words_of(n, width));
    queries->call->products->multiply(&w);
    if (width == PANEL_LANES)
        add_sums(PANEL_LANES, x->sums, side->alpha, e, side->c);
    else
        add_sums(LANES, x->sums, side->alpha, e, side->c);
}

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

static void multiply_outer(const pe_query_block *queries, int pair, const real *weights, int from, int to, real *o,
                           idx o_step)
{
    const pe_split *x = queries->split;
    const operands *of = &x->pair[pair];
    const int lanes = (int)whole_chunks(queries->lanes), n = to - from;
    const pe_parts rows = {.part = {(const char *)x->weight_rows, (const char *)(x->weight_rows + WEIGHTS)},
                           .parts = x->weight_parts,
                           .step = BLOCK_M * (idx)sizeof *x->weight_rows};
    pe_product w = {.rows = (int)whole_chunks(n),
                    .depth = lanes,
                    .row_step = rows.step,
                    .chunk_step = CHUNK * (idx)sizeof *x->weight_rows,
                    .c = x->sums};
    if (n <= 0)
        return;
    for (const pe_panel *p = queries->panel; p < queries->panel + queries->panels; p++)
        split_weight_rows(weights + score_offset(p, from), n, p->width, rows.parts, x->weight_rows + p->first);
    for (int j = 0; j < n && queries->width < lanes; j++) {
        for (int p = 0; p < rows.parts; p++)
            memset(x->weight_rows + p * WEIGHTS + j * BLOCK_M + queries->width, 0,
                   (size_t)(lanes - queries->width) * sizeof *x->weight_rows);
    }
    for (int c = 0; c < of->width; c += PANEL_LANES) {
        w.width = strip_width(of->width, c);
        list_passes(&w, &rows, 0, of->strips + c * of->parts * words_of(lanes, 1), of->parts, words_of(lanes, w.width));
        queries->call->products->multiply(&w);
        for (int j = 0; j < n; j++)
            add_reals(o + (from + j) * o_step + c, x->sums + j * w.width, w.width);
    }
}

const pe_bf16 FN(bf16) = {takes_operands, carve_split,     split_block,   split_keys_and_values,
                          multiply_keys,  multiply_values, multiply_outer};

/* The units of this variant (dispatch.c) */
extern const pe_products *const FN(pe_products_of)[PE_PRODUCTS];
const pe_products *const FN(pe_products_of)[PE_PRODUCTS] = {
#if PE_HAS_UNITS
    [PE_AVX512BF16] = &FN(products_avx512bf16),
    [PE_AMX] = &FN(products_amx),
#endif
    [PE_AMX_EMULATED] = &FN(products_emulated),
};
#endif
