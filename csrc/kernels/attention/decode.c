/* decode.c -- attention for few queries, often one, which is limited by memory bandwidth.
 *
 *     for each key j (once for all heads that share it):
 *         for each query p of a head, a row of q:
 *             s[p][j] = dot(q[p], k[j]);
 *     softmax of s[p] over the keys of the tile, as in forward.c; then the same loop over the values:
 *             o[p] += s[p][j] * v[j];
 *
 * In forward.c each SIMD lane holds one query, and most lanes would be idle here. Here each lane holds one channel, and
 * keys and values are read in place. LANES keys give LANES vectors of products, and a tree of additions reduces these
 * to one vector of scores. A call computes the heads that share their keys, up to MAX_Q_ROWS rows of q: the
 * keys come from memory for the first row and from the cache for the others. The sums of a row, and their bits, do not
 * depend on the other rows.
 *
 * Rows of float16, bfloat16 and int8 codes are widened in registers, in the loop that multiplies, if a row is a whole
 * number of vectors and the tile has LANES rows or more; else the tile is copied as real. Both give the same bits.
 * Without F16C, float16 is always copied. The scale of a row of codes multiplies its score (keys) or its weight
 * (values).
 *
 * tile.c computes the masks, one head at a time. If a head's result is not finite, forward.c recomputes the head,
 * because forward.c keeps NaN and infinity of masked keys and values out of the result.
 */
#include "attention/decode.h"

#include "attention/plan.h"
#include "attention/scores.h"
#include "base/elementary.h"
#include "base/vec_stored.h"
#include "tile/panel.h"

enum { VALUE_VECS = 4 };                         /* vectors of value columns that are summed together */
enum { VALUE_KEYS = 32 };                        /* keys whose values are summed while they are in the L1 cache */
enum { VALUE_Q_ROWS = VEC_BYTES == 64 ? 4 : 2 }; /* VALUE_Q_ROWS x VALUE_VECS sums: 16 of 32 registers, or 8 of 16 */
enum { SCORE_Q_ROWS = LANES >= 16 ? 4 : LANES >= 8 ? 2 : 1 }; /* rows of q x (LANES / rows) keys: LANES sums */
enum { KEYS_TOGETHER = LANES >= 8 ? 2 : LANES };              /* keys that a single row of q reads together */
enum { PREFETCH_BYTES = 16384, CACHE_LINE = 64 };             /* prefetch distance */

typedef struct {
    int d, e, padded_d, padded_e; /* widths of heads, and filled up to whole vectors */
    idx first_head;               /* the first of the heads that are decoded together */
    int heads, q_rows;            /* row of q = head * queries + query */
    real *q, *o, *scores, *copy, *row, *scale;
    real m[MAX_Q_ROWS], alpha[MAX_Q_ROWS], one[MAX_Q_ROWS], l[MAX_Q_ROWS * LANES]; /* l: a partial sum for each lane */
    pe_block_state at;
} decode_state;

/* Return rows of whole vectors: the stored rows if possible, else a copy as real with zeros after each row. Codes keep
 * their scales. A group of LANES keys may read rows of the copy that were not written; their scores are not used. */
static pe_rows whole_rows(const decode_state *s, pe_rows rows, int n, int width)
{
    const idx copy_width = width + ROW_PAD;
    if (widens_in_registers(rows.storage) && width % LANES == 0 && n >= LANES)
        return rows;
    for (int j = 0; j < n; j++) {
        real *to = s->copy + j * copy_width;
        row_load(rows.data + j * rows.step, rows.storage, width, to);
        for (int k = width; k % LANES; k++)
            to[k] = 0;
    }
    rows.data = (const char *)s->copy;
    rows.step = copy_width * (idx)sizeof(real);
    rows.storage = PE_STORAGE;
    return rows;
}

/* Multiply the scores or weights of all rows of q by the scales of the keys or values. */
static NOINLINE void multiply_by_scales(decode_state *s, const pe_rows *rows, int n)
{
    real *restrict scale = s->scale;
    if (PE_REAL == 64 || !rows->scale)
        return;
    for (int j = 0; j < n; j++)
        scale[j] = scale_of_row(rows, j);
    for (int p = 0; p < s->q_rows; p++) {
        real *restrict scores = s->scores + p * BLOCK_N;
        for (int j = 0; j < n; j++)
            scores[j] *= scale[j];
    }
}

/* ---- prefetching ---- */

/* Prefetches rows ahead of the rows that are read. If `passes` passes read the same rows, each pass prefetches one
 * row in `passes`, which spreads the requests over time. The target is the L2 cache, because L1 can wait for fewer
 * lines at a time. */
typedef struct {
    const char *next;
    idx step;
    int lines, wait, passes; /* lines of a row; rows until this pass prefetches */
} prefetcher;

INLINE prefetcher prefetch_ahead(const char *rows, idx step, idx row_bytes, int pass, int passes)
{
    return (prefetcher){rows + (PREFETCH_BYTES / max_(row_bytes, 1) + 1) * step, step,
                        (int)BLOCKS(row_bytes, CACHE_LINE), pass, passes};
}

INLINE void prefetch_row(prefetcher *a)
{
    if (a->wait-- == 0) {
        a->wait = a->passes - 1;
        for (int i = 0; i < a->lines; i++)
            PREFETCH_SECOND(a->next + i * CACHE_LINE);
    }
    a->next += a->step;
}

void FN(prefetch_rows)(const pe_rows *rows, int n, int width)
{
    prefetcher ahead = prefetch_ahead(rows->data, rows->step, width * storage_size(rows->storage), 0, 1);
    for (int j = 0; j < n; j++)
        prefetch_row(&ahead);
}

/* ---- products ---- */

/* s = q . k for `q_rows` rows of q and LANES / q_rows keys, with a vector of sums for each row and key. A single row
 * reads KEYS_TOGETHER keys at a time, nearly in memory order. Several rows read all keys together, so that each vector
 * of a query is loaded once. */
INLINE void score_micro_tile(int q_rows, const char *k, idx step, pe_storage storage, int pass, int passes,
                             const real *q, int d, real *scores)
{
    const int keys = LANES / q_rows, together = q_rows > 1 ? keys : KEYS_TOGETHER, bytes = (int)storage_size(storage);
    prefetcher ahead = prefetch_ahead(k, step, d * bytes, pass, passes);
    real sum[LANES];
    vec all[LANES];
    for (int first = 0; first < keys; first += together, k += together * step) {
        vec acc[LANES];
        UNROLL
        for (int i = 0; i < q_rows * together; i++)
            acc[i] = vec_set(0);
        for (int r = 0; r < together; r++)
            prefetch_row(&ahead);
        int c = 0;
        do { /* d > 0: a loop that may not run makes gcc store the sums before and after it */
            vec x[SCORE_Q_ROWS];
            UNROLL
            for (int p = 0; p < q_rows; p++)
                x[p] = vec_load(q + p * d + c);
            UNROLL
            for (int r = 0; r < together; r++) {
                const vec y = vec_load_stored(k + r * step + c * bytes, storage);
                UNROLL
                for (int p = 0; p < q_rows; p++)
                    acc[p * together + r] = vec_fma(y, x[p], acc[p * together + r]);
            }
        } while ((c += LANES) < d);
        UNROLL
        for (int i = 0; i < q_rows * together; i++)
            all[first + i] = acc[i]; /* the sums of several rows are complete in one pass */
    }
    vec_store(sum, vec_sums(all));
    UNROLL
    for (int p = 0; p < q_rows; p++)
        memcpy(scores + p * BLOCK_N, sum + p * keys, (size_t)keys * sizeof *scores);
}

/* A key is loaded, and widened, once for SCORE_Q_ROWS rows of q. */
INLINE void scores_of_stored(const decode_state *s, const char *k, idx step, pe_storage storage, int n)
{
    enum { KEYS = LANES / SCORE_Q_ROWS };
    const int d = s->padded_d, passes = s->q_rows / SCORE_Q_ROWS + s->q_rows % SCORE_Q_ROWS;
    for (int j = 0; j < n; j += LANES) {
        const int first = (int)max_(0, min_(j, n - LANES)); /* the last group repeats keys of the one before */
        const char *rows = k + first * step;
        real *scores = s->scores + first;
        const int together = s->q_rows / SCORE_Q_ROWS * SCORE_Q_ROWS;
        for (int r = 0; r < LANES; r += KEYS) {
            for (int p = 0; p < together; p += SCORE_Q_ROWS)
                score_micro_tile(SCORE_Q_ROWS, rows + r * step, step, storage, p / SCORE_Q_ROWS, passes, s->q + p * d,
                                 d, scores + p * BLOCK_N + r);
        }
        for (int p = together; p < s->q_rows; p++)
            score_micro_tile(1, rows, step, storage, together / SCORE_Q_ROWS + p - together, passes, s->q + p * d, d,
                             scores + p * BLOCK_N);
    }
}

/* Values of the keys from <= j < from + n of a tile; rows begin with key `from`. */
typedef struct {
    pe_rows rows;
    int from, n;
    prefetcher ahead;
} value_keys;

/* o = o alpha + sum_j p_j v_j for `q_rows` rows of q from p on and `cols` vectors of channels from c on; q_rows and
 * cols are constants where this is inlined. Only the first keys of a tile rescale o by alpha. */
INLINE void value_micro_tile(int q_rows, int cols, const decode_state *s, value_keys *keys, int p, int c)
{
    const pe_rows rows = keys->rows;
    const int bytes = (int)storage_size(rows.storage), n = keys->n, e = s->padded_e;
    const real *weight = s->scores + p * BLOCK_N + keys->from, *alpha = (keys->from ? s->one : s->alpha) + p;
    const char *v = rows.data + c * bytes;
    real *o = s->o + p * e + c;
    prefetcher ahead = keys->ahead;
    vec acc[4 * VALUE_VECS];
    UNROLL
    for (int i = 0; i < q_rows * cols; i++)
        acc[i] = vec_set(0);
    for (int j = 0; j < n; j++, v += rows.step) {
        prefetch_row(&ahead);
        vec x[VALUE_VECS];
        UNROLL
        for (int i = 0; i < cols; i++)
            x[i] = vec_load_stored(v + i * LANES * bytes, rows.storage);
        UNROLL
        for (int r = 0; r < q_rows; r++) {
            const vec y = vec_set(weight[r * BLOCK_N + j]);
            UNROLL
            for (int i = 0; i < cols; i++)
                acc[r * cols + i] = vec_fma(y, x[i], acc[r * cols + i]);
        }
    }
    UNROLL
    for (int r = 0; r < q_rows; r++) {
        UNROLL
        for (int i = 0; i < cols; i++) {
            real *to = o + r * e + i * LANES;
            vec_store(to, vec_fma(vec_load(to), vec_set(alpha[r]), acc[r * cols + i]));
        }
    }
    keys->ahead.wait++; /* the next pass prefetches other rows */
}

/* The same for all rows of q */
INLINE void values_of_columns(int cols, const decode_state *s, value_keys *keys, int c)
{
    int p = 0;
    for (; s->q_rows - p >= VALUE_Q_ROWS; p += VALUE_Q_ROWS)
        value_micro_tile(VALUE_Q_ROWS, cols, s, keys, p, c);
    for (; p < s->q_rows; p++)
        value_micro_tile(1, cols, s, keys, p, c);
}

INLINE void values_of_stored(const decode_state *s, pe_rows rows, int n)
{
    const int wide = s->padded_e / (VALUE_VECS * LANES), rest = (s->padded_e - wide * VALUE_VECS * LANES) / LANES;
    const int passes = (wide + rest) * (s->q_rows / VALUE_Q_ROWS + s->q_rows % VALUE_Q_ROWS);
    value_keys keys = {.rows = rows};
    for (; keys.from < n; keys.from += VALUE_KEYS, keys.rows.data += VALUE_KEYS * rows.step) {
        keys.n = (int)min_(VALUE_KEYS, n - keys.from);
        keys.ahead = prefetch_ahead(keys.rows.data, rows.step, s->padded_e * storage_size(rows.storage), 0, passes);
        int c = 0;
        for (; s->padded_e - c >= VALUE_VECS * LANES; c += VALUE_VECS * LANES)
            values_of_columns(VALUE_VECS, s, &keys, c);
        for (; c < s->padded_e; c += LANES)
            values_of_columns(1, s, &keys, c);
    }
}

/* One function per storage: compilers run out of registers if one function has several of these loops. */
typedef void stored_product(const decode_state *s, const pe_rows *rows, int n);
#define PE_STORED(name, storage)                                                          \
    static NOINLINE void scores_of_##name(const decode_state *s, const pe_rows *r, int n) \
    {                                                                                     \
        scores_of_stored(s, r->data, r->step, storage, n);                                \
    }                                                                                     \
    static NOINLINE void values_of_##name(const decode_state *s, const pe_rows *r, int n) \
    {                                                                                     \
        values_of_stored(s, plain_rows(r->data, r->step, storage), n);                    \
    }
PE_STORED(reals, PE_STORAGE)
#if PE_REAL == 32
PE_STORED(bf16, PE_BF16)
PE_STORED(codes, PE_I8)
#endif
#if PE_F16C
PE_STORED(f16, PE_F16)
#endif

/* The products with rows of each storage that whole_rows returns */
static const struct {
    stored_product *scores, *values;
} products_of[] = {
    [PE_STORAGE] = {scores_of_reals, values_of_reals},
#if PE_REAL == 32
    [PE_BF16] = {scores_of_bf16, values_of_bf16},
    [PE_I8] = {scores_of_codes, values_of_codes},
#endif
#if PE_F16C
    [PE_F16] = {scores_of_f16, values_of_f16},
#endif
};

/* ---- a tile ---- */

/* s += bias of one lane, whose scores are contiguous here. Keys outside bias->from .. to are masked. */
static void add_lane_bias(real *scores, int n, const pe_panel_bias *bias, int lane)
{
    for (int j = 0; j < n; j++) {
        const int is_seen = j >= bias->from && j < bias->to;
        const real add = !is_seen ? MASKED : bias->add ? bias->add[(j - bias->from) * bias->step + lane] : 0;
        scores[j] = add == MASKED ? MASKED : scores[j] + add;
    }
}

/* One step of online softmax for a row of q, with one key per SIMD lane */
static void decode_softmax_step(decode_state *s, int p, int n)
{
    const int whole = (n + LANES - 1) / LANES * LANES;
    real *scores = s->scores + p * BLOCK_N, lane[LANES], m = s->m[p];
    for (int j = n; j < whole; j++)
        scores[j] = MASKED;
    vec max = vec_set(m);
    for (int j = 0; j < whole; j += LANES)
        max = vec_max(vec_load(scores + j), max);
    vec_store(lane, max);
    for (int l = 0; l < LANES; l++)
        m = lane[l] > m ? lane[l] : m;
    const real base = m == MASKED ? 0 : m; /* no key seen yet, as in forward.c */
    s->alpha[p] = exp2_((s->m[p] - base) * LOG2_E);
    s->m[p] = m;
    for (int l = 0; l < LANES; l++) {
        lane[l] = base;
        s->l[p * LANES + l] *= s->alpha[p];
    }
    FN(exponentials)(scores, lane, whole / LANES, LANES, s->l + p * LANES);
}

/* Apply cap, bias and softmax to a head's scores. Returns whether a query may see a key of the tile. */
static int softmax_of_head(decode_state *s, pe_query_block *queries, pe_key_tile *keys, int head, int sees_tile)
{
    const real softcap = (real)queries->call->par[A_SOFTCAP];
    const int n = keys->n;
    pe_panel_bias bias = {0, 0, 0, NULL};
    keys->has_diagonals = 0;
    if (sees_tile)
        bias = FN(panel_bias)(keys, queries, queries->panel);
    for (int l = 0; l < queries->lanes; l++) {
        const int p = head * queries->lanes + l;
        if (softcap > 0)
            FN(cap)(s->scores + p * BLOCK_N, n, softcap);
        if (bias.add || bias.from > 0 || bias.to < n)
            add_lane_bias(s->scores + p * BLOCK_N, n, &bias, l);
        decode_softmax_step(s, p, n);
    }
    return bias.from < bias.to;
}

/* Process one tile; sees_tile: for the first head. Of the masks that can hide a tile, only `keep` has an axis of heads.
 * So key_tile is called for the other heads if there is a `keep`. */
static void decode_tile(decode_state *s, pe_query_block *queries, pe_key_tile *keys, int sees_tile)
{
    const pe_rows stored_k = rows_of_keys(queries, A_K, keys->first),
                  stored_v = rows_of_keys(queries, A_V, keys->first);
    int any = 0;
    const pe_rows k = whole_rows(s, stored_k, keys->n, s->d);
    products_of[k.storage].scores(s, &k, keys->n);
    multiply_by_scales(s, &k, keys->n);
    for (int h = 0; h < s->heads; h++) {
        queries->head = s->first_head + h;
        if (h > 0 && queries->batch_row.data[A_KEEP])
            sees_tile = FN(key_tile)(keys, queries, keys->first);
        any |= softmax_of_head(s, queries, keys, h, sees_tile);
    }
    queries->head = s->first_head;
    if (!any)
        return;
    const pe_rows v = whole_rows(s, stored_v, keys->n, s->e);
    multiply_by_scales(s, &v, keys->n);
    products_of[v.storage].values(s, &v, keys->n);
}

/* ---- heads that share keys ---- */

/* Copy the queries, times scale. */
static void read_queries(const pe_query_block *queries, decode_state *s)
{
    const real scale = (real)queries->call->par[A_SCALE];
    zero_reals(s->q, s->q_rows * s->padded_d);
    for (int p = 0; p < s->q_rows; p++) {
        const char *from = query_row_of_head(queries, s->first_head + p / queries->lanes, A_Q, p % queries->lanes);
        const real *row = row_read(from, queries->call->array[A_Q].storage, s->d, s->row);
        for (int k = 0; k < s->d; k++)
            s->q[p * s->padded_d + k] = row[k] * scale;
    }
}

/* o = o / l. Returns whether all of it is finite. Adding 0 turns -0 into 0, as in forward.c. */
static int normalize(const decode_state *s, int p, real l)
{
    const real divisor = l == 0 ? 1 : l;
    real *o = s->o + p * s->padded_e;
    int nonfinite = 0;
    SIMD_OR(nonfinite)
    for (int k = 0; k < s->e; k++) {
        o[k] = o[k] / divisor + 0;
        nonfinite |= !is_finite(o[k]);
    }
    return !nonfinite;
}

/* Store out and lse of a head. If its result is not finite, store nothing and return 0. */
static int write_head(const pe_query_block *queries, const pe_key_part *part, const decode_state *s, int head)
{
    const int outs = part->parts > 1 ? A_PART_OUT : A_OUT, lses = part->parts > 1 ? A_PART_LSE : A_LSE;
    const pe_array *out = &queries->call->array[outs], *of_lse = &queries->call->array[lses];
    const idx h = output_head(part, s->first_head + head);
    real sum[MAX_Q_ROWS];
    for (int l = 0; l < queries->lanes; l++) {
        const int p = head * queries->lanes + l;
        sum[l] = 0;
        for (int c = 0; c < LANES; c++)
            sum[l] += s->l[p * LANES + c];
        if (!normalize(s, p, sum[l]))
            return 0;
    }
    for (int l = 0; l < queries->lanes; l++) {
        const int p = head * queries->lanes + l;
        row_store(s->o + p * s->padded_e, entry_at(out, queries->batch_row.data[outs], h, l), out->storage, s->e);
        if (!queries->batch_row.data[lses])
            continue;
        write_lse(log_sum(s->m[p], sum[l]), entry_at(of_lse, queries->batch_row.data[lses], h, l), of_lse->storage);
    }
    return 1;
}

LAYOUT(decode)
{
    s->d = (int)D(d);
    s->e = (int)D(e);
    s->padded_d = (int)BLOCKS(D(d), LANES) * LANES;
    s->padded_e = (int)BLOCKS(D(e), LANES) * LANES;
    s->q = carve_reals(c, MAX_Q_ROWS * (idx)s->padded_d);
    s->o = carve_reals(c, MAX_Q_ROWS * (idx)s->padded_e);
    s->scores = carve_reals(c, MAX_Q_ROWS * BLOCK_N);
    s->copy = carve_reals(c, (max_(D(d), D(e)) + ROW_PAD) * BLOCK_N);
    s->row = carve_reals(c, max_(D(d), D(e)));
    s->scale = carve_reals(c, BLOCK_N);
    s->at = carve_block_state(c);
}

/* Compute the heads that share keys from s->first_head on. Bit i of the result is set if the result of head i is not
 * finite, and was not written. Returns -1 if the call was stopped. */
static int64_t decode_heads(decode_state *s, pe_query_block *queries, const pe_key_part *part)
{
    int64_t nonfinite = 0;
    read_queries(queries, s);
    zero_reals(s->o, s->q_rows * s->padded_e);
    memset(s->l, 0, sizeof s->l);
    for (int p = 0; p < s->q_rows; p++) {
        s->m[p] = sink_of_part(queries, part, s->first_head + p / queries->lanes, p % queries->lanes);
        s->l[p * LANES] = (real)(s->m[p] != MASKED);
        s->one[p] = 1;
    }
    pe_tiles tiles = tiles_of(queries, s->at.keys);
    tiles.first = part->first;
    tiles.last = part->last;
    tiles.visits_masked = queries->batch_row.data[A_KEEP] != NULL;
    while (FN(next_tile)(&tiles))
        decode_tile(s, queries, s->at.keys, tiles.sees);
    if (tiles.stopped)
        return -1;
    for (int h = 0; h < s->heads; h++)
        nonfinite |= (int64_t)!write_head(queries, part, s, h) << h;
    return nonfinite;
}

/* There is one block of queries. The first unit of heads that are decoded together computes all of them, and the units
 * of the others do nothing. */
KERNEL(decode)
{
    const idx share = call->D(h) / call->D(g);
    const int together = call->plan.heads_together;
    for (idx unit = begin; unit < end; unit++) {
        const pe_key_part part = part_of_unit(call, unit);
        const idx head = unit / part.parts % call->D(h) % share;
        decode_state s = decode_begin(call, work);
        if (head % together != 0)
            continue;
        FN(query_block)(s.at.queries, call, unit / part.parts);
        s.first_head = s.at.queries->head;
        s.heads = (int)min_(together, share - head);
        s.q_rows = s.heads * s.at.queries->lanes;
        const int64_t nonfinite = decode_heads(&s, s.at.queries, &part);
        if (nonfinite < 0)
            return;
        for (int h = 0; nonfinite >> h; h++) {
            if (nonfinite >> h & 1 && !FN(attend_unit)(call, unit + h * part.parts, work))
                return;
        }
    }
}
