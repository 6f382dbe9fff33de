/* tile.c -- positions, position operators and masks of a tile, folded into one number per pair (see tile.h).
 *
 * Where positions count up by one, everything that depends on rel = position of key - position of query is a window of
 * n + width - 1 numbers per tile: number t belongs to lane - key = t - (n - 1). The lanes of a key are contiguous in
 * the window, and the next key's begin one number earlier. Causality, windows, distance biases and Toeplitz rows are
 * all read from this window. Pair operators, keep, segments and other positions fill the pairs of a panel one by one.
 */
#include "tile/tile.h"

#include "base/transpose.h"

static void range_of(const double *x, int n, double *low, double *high)
{
    *low = *high = x[0];
    for (int i = 1; i < n; i++) {
        *low = x[i] < *low ? x[i] : *low;
        *high = x[i] > *high ? x[i] : *high;
    }
}

/* Return whether positions are integers that grow by one, and so small that every difference is exact. */
static int count_up(const double *x, int n)
{
    if (!(fabs_(x[0]) < 0x1p51) || (double)(int64_t)x[0] != x[0])
        return 0;
    for (int i = 1; i < n; i++) {
        if (x[i] != x[0] + i)
            return 0;
    }
    return 1;
}

/* Positions first .. first + n of an array whose row is at `data`; if it is NULL, start, start + 1, .... */
static void read_positions(pe_positions *p, const pe_array *a, const char *data, idx first, int n, double start)
{
    if (!data) {
        for (int i = 0; i < n; i++)
            p->at[i] = start + i;
        p->low = p->at[0];
        p->high = p->at[n - 1];
        p->count_up = count_up(p->at, 1);
        return;
    }
    for (int i = 0; i < n; i++)
        p->at[i] = scalar_read(data + (first + i) * a->core[0], a->storage);
    range_of(p->at, n, &p->low, &p->high);
    p->count_up = count_up(p->at, n);
}

/* ---- a block of queries ---- */

static int64_t segment_of(const pe_query_block *q, int operand, idx i)
{
    int64_t s;
    memcpy(&s, q->row.data[operand] + i * q->call->array[operand].core[0], sizeof s);
    return s;
}

static void segment_range(const pe_query_block *q, int operand, idx first, int n, int64_t *low, int64_t *high)
{
    *low = *high = segment_of(q, operand, first);
    for (int i = 1; i < n; i++) {
        const int64_t s = segment_of(q, operand, first + i);
        *low = s < *low ? s : *low;
        *high = s > *high ? s : *high;
    }
}

static char *at_batch_row(const pe_query_block *q, const pe_array *array)
{
    char *data = array->data;
    for (int a = 0; data && a < q->call->nloops; a++)
        data += q->row.at[a] * array->loop[a];
    return data;
}

/* The operators' arrays at this row of the batch, and which kinds of position operators there are. */
static void locate_terms(pe_query_block *q)
{
    const pe_call *call = q->call;
    q->has_relative = q->has_pairs = q->has_own_positions = 0;
    for (int t = 0; t < call->nterms; t++) {
        const pe_position_op *op = FN(position_op)[call->term[t].op];
        q->has_relative |= op && (op->distance || op->diagonal);
        q->has_pairs |= op && op->pairs;
        memcpy(q->term[t], call->term[t].array, sizeof q->term[t]);
        for (int k = 0; k < PE_TERM_ARRAYS; k++)
            q->term[t][k].data = at_batch_row(q, &q->term[t][k]);
        for (int side = 0; side < 2; side++)
            q->term_positions[t][side] = at_batch_row(q, &call->term[t].positions[side]);
        q->has_own_positions |= q->term_positions[t][0] != NULL;
    }
}

/* Lanes that are no queries repeat the last position. */
static void repeat_last(pe_positions *p, int lanes, int width)
{
    for (int i = lanes; i < width; i++)
        p->at[i] = p->at[lanes - 1];
}

/* The last panel is narrow if one vector is enough: a few queries must not cost as much as many. */
static void cut_into_panels(pe_query_block *q)
{
    pe_positions *at = &q->position;
    q->panels = q->width = 0;
    while (q->width < q->lanes) {
        pe_panel *p = &q->panel[q->panels++];
        p->first = q->width;
        p->width = q->lanes - p->first <= LANES ? LANES : PANEL_LANES;
        p->lanes = (int)min_(p->width, q->lanes - p->first);
        range_of(at->at + p->first, p->lanes, &p->low, &p->high);
        q->width += p->width;
    }
    repeat_last(at, q->lanes, q->width);
}

void FN(query_block)(pe_query_block *q, const pe_call *call, idx unit)
{
    const idx heads = call->D(h), blocks = BLOCKS(call->D(n), BLOCK_M), block = unit % (heads * blocks);
    q->call = call;
    q->row = row_at(call, unit / (heads * blocks));
    q->head = block / blocks;
    q->kv_head = q->head / (heads / call->D(g));
    q->first = block % blocks * BLOCK_M;
    q->lanes = (int)min_(BLOCK_M, call->D(n) - q->first);
    locate_terms(q);
    read_positions(&q->position, &call->array[A_Q_POSITIONS], q->row.data[A_Q_POSITIONS], q->first, q->lanes,
                   (double)q->first + call->par[A_SHIFT]);
    if (q->row.data[A_Q_SEGMENTS])
        segment_range(q, A_Q_SEGMENTS, q->first, q->lanes, &q->segment_low, &q->segment_high);
    cut_into_panels(q);
    for (int t = 0; q->has_own_positions && t < call->nterms; t++) {
        if (!q->term_positions[t][0])
            continue;
        read_positions(&q->own_position[t], &call->term[t].positions[0], q->term_positions[t][0], q->first, q->lanes,
                       0);
        repeat_last(&q->own_position[t], q->lanes, q->width);
    }
}

/* ---- a tile of keys ---- */

/* Count the bytes that are not 0. Contiguous bytes have a loop of their own, which the compiler vectorises. */
static int count_true(const char *row, idx step, int n)
{
    int count = 0;
    if (step == 1) {
        for (int j = 0; j < n; j++)
            count += row[j] != 0;
    } else {
        for (int j = 0; j < n; j++)
            count += row[j * step] != 0;
    }
    return count;
}

static const char *keep_at(const pe_query_block *q, idx i, idx j)
{
    const pe_array *a = &q->call->array[A_KEEP];
    return q->row.data[A_KEEP] + q->head * a->core[0] + i * a->core[1] + j * a->core[2];
}

/* If all of keep is true no pair is read; if none of it is, the tile is skipped. */
static pe_visible visible_by_keep(const pe_key_tile *k, const pe_query_block *q)
{
    const pe_array *a = &q->call->array[A_KEEP];
    const int rows = a->core[1] ? q->lanes : 1, n = a->core[2] ? k->n : 1; /* axes that broadcast are read once */
    int count = 0;
    if (!q->row.data[A_KEEP])
        return ALL_PAIRS;
    for (int i = 0; i < rows; i++)
        count += count_true(keep_at(q, q->first + i, k->first), a->core[2], n);
    return count == 0 ? NO_PAIRS : count == rows * n ? ALL_PAIRS : SOME_PAIRS;
}

static pe_visible visible_by_segments(const pe_key_tile *k, const pe_query_block *q)
{
    int64_t low, high;
    if (!q->row.data[A_Q_SEGMENTS] || !q->row.data[A_K_SEGMENTS])
        return ALL_PAIRS;
    segment_range(q, A_K_SEGMENTS, k->first, k->n, &low, &high);
    if (high < q->segment_low || q->segment_high < low)
        return NO_PAIRS;
    return low == high && q->segment_low == low && q->segment_high == low ? ALL_PAIRS : SOME_PAIRS;
}

/* Read the positions of operators that have their own, and set distances_count_up. */
static void read_own_positions(pe_key_tile *k, const pe_query_block *q)
{
    k->distances_count_up = q->position.count_up && k->position.count_up;
    for (int t = 0; q->has_own_positions && t < q->call->nterms; t++) {
        const pe_term *term = &q->call->term[t];
        const pe_position_op *op = FN(position_op)[term->op];
        if (!q->term_positions[t][1])
            continue;
        read_positions(&k->own_position[t], &term->positions[1], q->term_positions[t][1], k->first, k->n, 0);
        if (op && op->distance)
            k->distances_count_up &= q->own_position[t].count_up && k->own_position[t].count_up;
    }
}

int FN(key_tile)(pe_key_tile *k, const pe_query_block *q, idx first)
{
    const double low = q->call->par[A_LOW], high = q->call->par[A_HIGH];
    k->first = first;
    k->n = (int)min_(BLOCK_N, q->call->D(m) - first);
    k->has_window = 0;
    read_positions(&k->position, &q->call->array[A_K_POSITIONS], q->row.data[A_K_POSITIONS], first, k->n,
                   (double)first);
    if (k->position.high - q->position.low < low || k->position.low - q->position.high > high)
        return 0;
    k->segments = visible_by_segments(k, q);
    k->keep = k->segments == NO_PAIRS ? NO_PAIRS : visible_by_keep(k, q);
    if (k->keep == NO_PAIRS)
        return 0;
    read_own_positions(k, q);
    return 1;
}

/* ---- the bias of a panel ---- */

/* Pairs of a tile, rows x width of them: those of the keys from `key` on and the lanes from `lane` on. A window has one
 * row, in which number t is the distance of the tile's last key and the block's first lane, less t. */
typedef struct {
    int is_window, rows, width, key, lane;
} pe_pairs;

static void distances_of(const pe_pairs *pairs, const pe_positions *k, const pe_positions *q, double *restrict rel)
{
    const int width = pairs->width;
    if (pairs->is_window) {
        const double last = k->at[pairs->key] - q->at[0];
        for (int t = 0; t < width; t++)
            rel[t] = last - t;
        return;
    }
    for (int r = 0; r < pairs->rows; r++) {
        for (int l = 0; l < width; l++)
            rel[r * width + l] = k->at[pairs->key + r] - q->at[pairs->lane + l];
    }
}

/* Element of a row of diagonals that belongs to key k->first + j and query q->first + i */
static idx diagonal_of(const pe_key_tile *k, const pe_query_block *q, int j, int i)
{
    return k->first + j - q->first - i + q->call->D(n) - 1;
}

/* The relative operators for some pairs: their sum in double, in the order of the call, rounded once; -inf outside the
 * window. */
static void relative_bias(const pe_key_tile *k, const pe_query_block *q, const pe_pairs *pairs, real *restrict out)
{
    const pe_call *call = q->call;
    const double low = call->par[A_LOW], high = call->par[A_HIGH];
    const int n = pairs->rows * pairs->width;
    double sum[TILE_RELS], rel[TILE_RELS], own_rel[TILE_RELS];
    real value[TILE_RELS];
    distances_of(pairs, &k->position, &q->position, rel);
    for (int i = 0; i < n; i++)
        sum[i] = 0;
    for (int t = 0; t < call->nterms; t++) {
        const pe_term *term = &call->term[t];
        const pe_position_op *op = FN(position_op)[term->op];
        if (!op || op->pairs)
            continue;
        const int is_own = q->term_positions[t][0] != NULL;
        if (is_own)
            distances_of(pairs, key_positions(k, q, t), query_positions(q, t), own_rel);
        if (op->distance)
            op->distance(q->term[t], term->dim, q->head, is_own ? own_rel : rel, n, value);
        else
            op->diagonal(q->term[t], q->head, diagonal_of(k, q, pairs->key, pairs->lane), pairs->rows, pairs->width,
                         value);
        for (int i = 0; i < n; i++)
            sum[i] += (double)value[i];
    }
    for (int i = 0; i < n; i++)
        out[i] = ((rel[i] >= low) & (rel[i] <= high)) ? (real)sum[i] : MASKED;
}

static void fill_window(pe_key_tile *k, const pe_query_block *q)
{
    const pe_pairs window = {.is_window = 1, .rows = 1, .width = k->n + q->width - 1, .key = k->n - 1};
    relative_bias(k, q, &window, k->window);
    k->has_window = 1;
}

/* The same for other positions, pair by pair, as many keys at a time as TILE_RELS holds. */
static void fill_pairs(pe_key_tile *k, const pe_query_block *q, const pe_panel *p, int from, int to)
{
    const int width = p->width, chunk = TILE_RELS / width;
    for (int j = from; j < to; j += chunk) {
        const pe_pairs pairs = {.rows = (int)min_(chunk, to - j), .width = width, .key = j, .lane = p->first};
        relative_bias(k, q, &pairs, k->pairs + (j - from) * width);
    }
}

/* A masked pair stays masked, whatever an operator adds to it. */
static void add_pair_operators(pe_key_tile *k, const pe_query_block *q, const pe_panel *p, int from, int n)
{
    real *restrict value = k->value, *restrict pairs = k->pairs;
    for (int t = 0; t < q->call->nterms; t++) {
        const pe_term *term = &q->call->term[t];
        const pe_position_op *op = FN(position_op)[term->op];
        if (!op || !op->pairs)
            continue;
        const pe_pair_block block = pair_block_of(k, q, p, t, from, n);
        op->pairs(q->term[t], term->dim, q->head, &block, value);
        SIMD
        for (int i = 0; i < n * p->width; i++)
            pairs[i] = pairs[i] == MASKED ? MASKED : pairs[i] + value[i];
    }
}

static void mask_keep(pe_key_tile *k, const pe_query_block *q, const pe_panel *p, int from, int n)
{
    const idx step = q->call->array[A_KEEP].core[2];
    real *restrict transposed = k->value, *restrict rows = k->rows, *restrict pairs = k->pairs;
    for (int l = 0; l < p->lanes; l++) {
        const char *keep = keep_at(q, q->first + p->first + l, k->first + from);
        real *row = rows + l * BLOCK_N;
        if (step == 1) { /* a loop of its own, which the compiler vectorises */
            for (int j = 0; j < n; j++)
                row[j] = keep[j] != 0;
        } else {
            for (int j = 0; j < n; j++)
                row[j] = keep[j * step] != 0;
        }
    }
    pack_transposed((const char *)rows, BLOCK_N * (idx)sizeof *rows, p->lanes, n, 1, p->width, transposed);
    SIMD
    for (int i = 0; i < n * p->width; i++)
        pairs[i] = transposed[i] != 0 ? pairs[i] : MASKED;
}

static void mask_segments(pe_key_tile *k, const pe_query_block *q, const pe_panel *p, int from, int to)
{
    int64_t segment[PANEL_LANES];
    real *pairs = k->pairs;
    for (int l = 0; l < p->width; l++)
        segment[l] = segment_of(q, A_Q_SEGMENTS, q->first + p->first + (l < p->lanes ? l : 0));
    for (int j = from; j < to; j++, pairs += p->width) {
        const int64_t s = segment_of(q, A_K_SEGMENTS, k->first + j);
        for (int l = 0; l < p->width; l++)
            pairs[l] = segment[l] == s ? pairs[l] : MASKED;
    }
}

/* Keys at both ends of the tile that the window hides from the whole panel: so causality costs half, up to the width of
 * a panel. */
static void trim(pe_panel_bias *b, const pe_key_tile *k, const pe_panel *p, double low, double high)
{
    while (b->from < b->to && k->position.at[b->from] - p->low < low)
        b->from++;
    while (b->from < b->to && k->position.at[b->to - 1] - p->high > high)
        b->to--;
}

pe_panel_bias FN(panel_bias)(pe_key_tile *k, const pe_query_block *q, const pe_panel *p)
{
    const double low = q->call->par[A_LOW], high = q->call->par[A_HIGH];
    const int window_cuts = !(k->position.low - p->high >= low && k->position.high - p->low <= high);
    const int count_up = k->distances_count_up, relative = window_cuts || q->has_relative;
    const int by_pair = q->has_pairs || k->keep == SOME_PAIRS || k->segments == SOME_PAIRS;
    pe_panel_bias b = {0, k->n, p->width, NULL};
    trim(&b, k, p, low, high);
    if (b.from == b.to || !(relative || by_pair))
        return b;
    if (relative && count_up && !k->has_window)
        fill_window(k, q);
    const real *window = k->window + (k->n - 1 - b.from) + p->first;
    if (count_up && !by_pair) {
        b.add = window;
        b.step = -1;
        return b;
    }

    const int n = b.to - b.from, width = p->width;
    if (relative && !count_up) {
        fill_pairs(k, q, p, b.from, b.to);
    } else {
        for (int j = 0; j < n; j++) {
            for (int l = 0; l < width; l++)
                k->pairs[j * width + l] = relative ? window[l - j] : 0;
        }
    }
    add_pair_operators(k, q, p, b.from, n);
    if (k->keep == SOME_PAIRS)
        mask_keep(k, q, p, b.from, n);
    if (k->segments == SOME_PAIRS)
        mask_segments(k, q, p, b.from, b.to);
    b.add = k->pairs;
    return b;
}
