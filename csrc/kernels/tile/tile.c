/* tile.c -- positions, position operators and masks of a tile, folded into one number per pair (see tile.h).
 *
 *     for (int j = from; j < to; j++)
 *         for (int l = 0; l < width; l++)
 *             add[j][l] = is_masked(j, l) ? -inf : sum over operators of b_h(query l, key j);
 *
 * If positions count up by one, causality, windows, distance biases and Toeplitz rows depend on lane - key only. A tile
 * of n keys then has n + width - 1 numbers, one for each diagonal, not n * width: number t belongs to lane - key = t -
 * (n - 1). A key reads `width` consecutive numbers, and the next key begins one number earlier. Pair operators, keep,
 * segments and other positions need one number per pair.
 */
#include "tile/tile.h"

#include "base/transpose.h"
#include "tile/bf16.h"

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

/* Read positions first ... first + n - 1 of the row at `data`; if it is NULL, they are start, start + 1, ... */
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

static int64_t segment_of(const pe_query_block *queries, int operand, idx i)
{
    int64_t s;
    memcpy(&s, queries->batch_row.data[operand] + i * queries->call->array[operand].core[0], sizeof s);
    return s;
}

static void segment_range(const pe_query_block *queries, int operand, idx first, int n, int64_t *low, int64_t *high)
{
    *low = *high = segment_of(queries, operand, first);
    for (int i = 1; i < n; i++) {
        const int64_t s = segment_of(queries, operand, first + i);
        *low = s < *low ? s : *low;
        *high = s > *high ? s : *high;
    }
}

static char *at_batch_row(const pe_query_block *queries, const pe_array *array)
{
    char *data = array->data;
    if (!data)
        return NULL;
    for (int a = 0; a < queries->call->nloops; a++)
        data += queries->batch_row.at[a] * array->loop[a];
    return data;
}

/* Locate the arrays of the operators at this row of the batch, and note which kinds of position operators occur. */
static void locate_operators(pe_query_block *queries)
{
    const pe_call *call = queries->call;
    queries->has_relative = queries->has_pairs = queries->has_own_positions = 0;
    for (int t = 0; t < call->noperators; t++) {
        const pe_position_operator *functions = FN(position_operators)[call->operators[t].entry];
        queries->has_relative |= functions && (functions->distance || functions->diagonal);
        queries->has_pairs |= functions && functions->pairs;
        memcpy(queries->operator_array[t], call->operators[t].array, sizeof queries->operator_array[t]);
        for (int k = 0; k < PE_OPERATOR_ARRAYS; k++)
            queries->operator_array[t][k].data = at_batch_row(queries, &queries->operator_array[t][k]);
        for (int side = 0; side < 2; side++)
            queries->operator_positions[t][side] = at_batch_row(queries, &call->operators[t].positions[side]);
        queries->has_own_positions |= queries->operator_positions[t][0] != NULL;
    }
}

/* Give lanes without a query the position of the last query. */
static void repeat_last(pe_positions *p, int lanes, int width)
{
    for (int i = lanes; i < width; i++)
        p->at[i] = p->at[lanes - 1];
}

/* Split the block into panels. The last panel is one vector if its queries fit, so that few queries cost less. */
static void cut_into_panels(pe_query_block *queries)
{
    pe_positions *at = &queries->position;
    queries->panels = queries->width = 0;
    while (queries->width < queries->lanes) {
        pe_panel *p = &queries->panel[queries->panels++];
        p->first = queries->width;
        p->width = queries->lanes - p->first <= LANES ? LANES : PANEL_LANES;
        p->lanes = (int)min_(p->width, queries->lanes - p->first);
        range_of(at->at + p->first, p->lanes, &p->low, &p->high);
        queries->width += p->width;
    }
    repeat_last(at, queries->lanes, queries->width);
}

void FN(query_block)(pe_query_block *queries, const pe_call *call, idx unit)
{
    const idx heads = call->D(h), blocks = BLOCKS(call->D(n), BLOCK_M), block = unit % (heads * blocks);
    queries->call = call;
    queries->batch_row = row_at(call, unit / (heads * blocks));
    queries->head = block / blocks;
    queries->kv_head = queries->head / (heads / call->D(g));
    queries->first = block % blocks * BLOCK_M;
    queries->lanes = (int)min_(BLOCK_M, call->D(n) - queries->first);
    queries->split = NULL;
    locate_operators(queries);
    read_positions(&queries->position, &call->array[A_Q_POSITIONS], queries->batch_row.data[A_Q_POSITIONS],
                   queries->first, queries->lanes, (double)queries->first + call->par[A_SHIFT]);
    if (queries->batch_row.data[A_Q_SEGMENTS])
        segment_range(queries, A_Q_SEGMENTS, queries->first, queries->lanes, &queries->segment_low,
                      &queries->segment_high);
    cut_into_panels(queries);
    if (!queries->has_own_positions)
        return;
    for (int t = 0; t < call->noperators; t++) {
        if (!queries->operator_positions[t][0])
            continue;
        read_positions(&queries->own_position[t], &call->operators[t].positions[0], queries->operator_positions[t][0],
                       queries->first, queries->lanes, 0);
        repeat_last(&queries->own_position[t], queries->lanes, queries->width);
    }
}

/* ---- a tile of keys ---- */

/* Count the bytes that are not 0. The compiler vectorises the loop for contiguous bytes. */
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

static const char *keep_at(const pe_query_block *queries, idx i, idx j)
{
    const pe_array *a = &queries->call->array[A_KEEP];
    return queries->batch_row.data[A_KEEP] + queries->head * a->core[0] + i * a->core[1] + j * a->core[2];
}

/* Return which pairs of the tile `keep` leaves. If it leaves all, mask_keep is not called; if it leaves none, the
 * tile is skipped. */
static pe_pairs_seen seen_by_keep(const pe_key_tile *keys, const pe_query_block *queries)
{
    const pe_array *a = &queries->call->array[A_KEEP];
    const int rows = a->core[1] ? queries->lanes : 1,
              n = a->core[2] ? keys->n : 1; /* one index of axes that broadcast */
    int count = 0;
    if (!queries->batch_row.data[A_KEEP])
        return ALL_PAIRS;
    for (int i = 0; i < rows; i++)
        count += count_true(keep_at(queries, queries->first + i, keys->first), a->core[2], n);
    return count == 0 ? NO_PAIRS : count == rows * n ? ALL_PAIRS : SOME_PAIRS;
}

static pe_pairs_seen seen_by_segments(const pe_key_tile *keys, const pe_query_block *queries)
{
    int64_t low, high;
    if (!queries->batch_row.data[A_Q_SEGMENTS] || !queries->batch_row.data[A_K_SEGMENTS])
        return ALL_PAIRS;
    segment_range(queries, A_K_SEGMENTS, keys->first, keys->n, &low, &high);
    if (high < queries->segment_low || queries->segment_high < low)
        return NO_PAIRS;
    return low == high && queries->segment_low == low && queries->segment_high == low ? ALL_PAIRS : SOME_PAIRS;
}

/* Read the positions of operators that do not use those of the call, and set distances_count_up. */
static void read_own_positions(pe_key_tile *keys, const pe_query_block *queries)
{
    keys->distances_count_up = queries->position.count_up && keys->position.count_up;
    if (!queries->has_own_positions)
        return;
    for (int t = 0; t < queries->call->noperators; t++) {
        const pe_operator *operator_ = &queries->call->operators[t];
        const pe_position_operator *functions = FN(position_operators)[operator_->entry];
        if (!queries->operator_positions[t][1])
            continue;
        read_positions(&keys->own_position[t], &operator_->positions[1], queries->operator_positions[t][1], keys->first,
                       keys->n, 0);
        if (functions && functions->distance)
            keys->distances_count_up &= queries->own_position[t].count_up && keys->own_position[t].count_up;
    }
}

int FN(key_tile)(pe_key_tile *keys, const pe_query_block *queries, idx first)
{
    const double low = queries->call->par[A_LOW], high = queries->call->par[A_HIGH];
    keys->first = first;
    keys->n = (int)min_(BLOCK_N, queries->call->D(m) - first);
    keys->has_diagonals = 0;
    read_positions(&keys->position, &queries->call->array[A_K_POSITIONS], queries->batch_row.data[A_K_POSITIONS], first,
                   keys->n, (double)first);
    if (keys->position.high - queries->position.low < low || keys->position.low - queries->position.high > high)
        return 0;
    keys->segments = seen_by_segments(keys, queries);
    keys->keep = keys->segments == NO_PAIRS ? NO_PAIRS : seen_by_keep(keys, queries);
    if (keys->keep == NO_PAIRS)
        return 0;
    read_own_positions(keys, queries);
    return 1;
}

int FN(next_tile)(pe_tiles *t)
{
    const pe_call *call = t->queries->call;
    while (t->steps < (t->last - t->first) * t->blocks) {
        const idx i = t->steps / t->blocks, tile = t->descends ? t->last - 1 - i : t->first + i;
        t->block = (int)(t->steps++ % t->blocks);
        t->sees = FN(key_tile)(t->keys, &t->queries[t->block], tile * BLOCK_N);
        const int visits = t->sees || t->visits_masked;
        t->stopped = visits ? t->polls && stop_requested(call) : stop_requested_at(call, t->steps);
        t->polls |= visits;
        if (visits || t->stopped)
            return !t->stopped;
    }
    return 0;
}

/* ---- the bias of a panel ---- */

/* rows x width pairs of a tile: the keys from `key` on and the lanes from `lane` on. The diagonals are one row; its
 * number t is for rel = position of the last key of the tile - position of lane 0 - t. */
typedef struct {
    int by_diagonal, rows, width, key, lane;
} pe_pairs;

/* The bias of a panel, pair by pair */
static real *pairs_of(pe_key_tile *keys, const pe_panel *p) { return keys->pairs + score_offset(p, 0); }

static void distances_of(const pe_pairs *pairs, const pe_positions *of_keys, const pe_positions *of_queries,
                         double *restrict rel)
{
    const int width = pairs->width;
    if (pairs->by_diagonal) {
        const double last = of_keys->at[pairs->key] - of_queries->at[0];
        for (int t = 0; t < width; t++)
            rel[t] = last - t;
        return;
    }
    for (int r = 0; r < pairs->rows; r++) {
        for (int l = 0; l < width; l++)
            rel[r * width + l] = of_keys->at[pairs->key + r] - of_queries->at[pairs->lane + l];
    }
}

/* Index of the diagonal of key j of the tile and query i of the block */
static idx diagonal_of(const pe_key_tile *keys, const pe_query_block *queries, int j, int i)
{
    return keys->first + j - queries->first - i + queries->call->D(n) - 1;
}

/* Read the numbers of `pairs` from diagonals (h,n+m-1). `first` is the diagonal of the first key and lane. Lanes beyond
 * the last query get 0 if their index is negative. */
static void read_diagonals(const pe_array *row, idx head, idx first, const pe_pairs *pairs, real *restrict out)
{
    const real *d = line_at((pe_lines){row->data, row->core[0]}, head) + first;
    for (int r = 0; r < pairs->rows; r++, out += pairs->width) {
        const int in_row = (int)min_(pairs->width, first + r + 1);
        for (int l = 0; l < in_row; l++)
            out[l] = d[r - l];
        for (int l = in_row; l < pairs->width; l++)
            out[l] = 0;
    }
}

/* Add the operators on distances and diagonals for `pairs`. The sum is in double, in the order of the call, and rounded
 * once. Pairs with rel outside low .. high get -inf. */
static void relative_bias(const pe_key_tile *keys, const pe_query_block *queries, const pe_pairs *pairs,
                          real *restrict out)
{
    const pe_call *call = queries->call;
    const double low = call->par[A_LOW], high = call->par[A_HIGH];
    const int n = pairs->rows * pairs->width;
    double sum[TILE_RELS], rel[TILE_RELS], own_rel[TILE_RELS];
    real value[TILE_RELS];
    distances_of(pairs, &keys->position, &queries->position, rel);
    for (int i = 0; i < n; i++)
        sum[i] = 0;
    for (int t = 0; t < call->noperators; t++) {
        const pe_operator *operator_ = &call->operators[t];
        const pe_position_operator *functions = FN(position_operators)[operator_->entry];
        if (!functions || functions->pairs)
            continue;
        if (functions->diagonal) {
            const idx first = diagonal_of(keys, queries, pairs->key, pairs->lane);
            read_diagonals(queries->operator_array[t], queries->head, first, pairs, value);
        } else {
            const int is_own = queries->operator_positions[t][0] != NULL;
            if (is_own)
                distances_of(pairs, key_positions(keys, queries, t), query_positions(queries, t), own_rel);
            functions->distance(queries->operator_array[t], operator_->dim, queries->head, is_own ? own_rel : rel, n,
                                value);
        }
        for (int i = 0; i < n; i++)
            sum[i] += (double)value[i];
    }
    for (int i = 0; i < n; i++)
        out[i] = ((rel[i] >= low) & (rel[i] <= high)) ? (real)sum[i] : MASKED;
}

static void fill_diagonals(pe_key_tile *keys, const pe_query_block *queries)
{
    const pe_pairs diagonals = {.by_diagonal = 1, .rows = 1, .width = keys->n + queries->width - 1, .key = keys->n - 1};
    relative_bias(keys, queries, &diagonals, keys->diagonals);
    keys->has_diagonals = 1;
}

/* If positions do not count up: compute each pair, TILE_RELS / width keys at a time. */
static void fill_pairs(pe_key_tile *keys, const pe_query_block *queries, const pe_panel *p, int from, int to)
{
    const int width = p->width, at_once = TILE_RELS / width;
    for (int j = from; j < to; j += at_once) {
        const pe_pairs pairs = {.rows = (int)min_(at_once, to - j), .width = width, .key = j, .lane = p->first};
        relative_bias(keys, queries, &pairs, pairs_of(keys, p) + (j - from) * width);
    }
}

/* Add the pair operators. A masked pair keeps -inf, even if an operator returns infinity or NaN for it. */
static void add_pair_operators(pe_key_tile *keys, const pe_query_block *queries, const pe_panel *p, int from, int n)
{
    real *restrict value = keys->value, *restrict pairs = pairs_of(keys, p);
    for (int t = 0; t < queries->call->noperators; t++) {
        const pe_operator *operator_ = &queries->call->operators[t];
        const pe_position_operator *functions = FN(position_operators)[operator_->entry];
        if (!functions || !functions->pairs)
            continue;
        const pe_pair_block block = pair_block_of(keys, queries, p, t, from, n);
        functions->pairs(queries->operator_array[t], operator_->dim, queries->head, &block, value);
        SIMD
        for (int i = 0; i < n * p->width; i++)
            pairs[i] = pairs[i] == MASKED ? MASKED : pairs[i] + value[i];
    }
}

static void mask_keep(pe_key_tile *keys, const pe_query_block *queries, const pe_panel *p, int from, int n)
{
    const idx step = queries->call->array[A_KEEP].core[2];
    real *restrict transposed = keys->value, *restrict rows = keys->rows, *restrict pairs = pairs_of(keys, p);
    for (int l = 0; l < p->lanes; l++) {
        const char *keep = keep_at(queries, queries->first + p->first + l, keys->first + from);
        real *row = rows + l * BLOCK_N;
        if (step == 1) { /* the compiler vectorises this loop */
            for (int j = 0; j < n; j++)
                row[j] = keep[j] != 0;
        } else {
            for (int j = 0; j < n; j++)
                row[j] = keep[j * step] != 0;
        }
    }
    pack_transposed(lines_of(rows, BLOCK_N), p->lanes, n, 1, p->width, transposed);
    SIMD
    for (int i = 0; i < n * p->width; i++)
        pairs[i] = transposed[i] != 0 ? pairs[i] : MASKED;
}

static void mask_segments(pe_key_tile *keys, const pe_query_block *queries, const pe_panel *p, int from, int to)
{
    int64_t segment[PANEL_LANES];
    real *pairs = pairs_of(keys, p);
    for (int l = 0; l < p->width; l++)
        segment[l] = segment_of(queries, A_Q_SEGMENTS, queries->first + p->first + (l < p->lanes ? l : 0));
    for (int j = from; j < to; j++, pairs += p->width) {
        const int64_t s = segment_of(queries, A_K_SEGMENTS, keys->first + j);
        for (int l = 0; l < p->width; l++)
            pairs[l] = segment[l] == s ? pairs[l] : MASKED;
    }
}

/* Drop the keys at both ends of the tile that no query of the panel sees. With causality this saves half of the pairs,
 * except up to one panel width per query. */
static void trim(pe_panel_bias *bias, const pe_key_tile *keys, const pe_panel *p, int multiple, double low, double high)
{
    while (bias->from < bias->to && keys->position.at[bias->from] - p->low < low)
        bias->from++;
    while (bias->from < bias->to && keys->position.at[bias->to - 1] - p->high > high)
        bias->to--;
    if (bias->from == bias->to)
        return;
    bias->from -= bias->from % multiple;
    bias->to = (int)min_(BLOCKS(bias->to, multiple) * multiple, keys->n);
}

pe_panel_bias FN(panel_bias)(pe_key_tile *keys, const pe_query_block *queries, const pe_panel *p)
{
    const double low = queries->call->par[A_LOW], high = queries->call->par[A_HIGH];
    const int window_cuts = !(keys->position.low - p->high >= low && keys->position.high - p->low <= high);
    const int count_up = keys->distances_count_up, relative = window_cuts || queries->has_relative;
    const int by_pair = queries->has_pairs || keys->keep == SOME_PAIRS || keys->segments == SOME_PAIRS;
    pe_panel_bias bias = {0, keys->n, p->width, NULL};
    trim(&bias, keys, p, bf16_of(queries) ? DOT : 1, low, high);
    if (bias.from == bias.to || !(relative || by_pair))
        return bias;
    if (relative && count_up && !keys->has_diagonals)
        fill_diagonals(keys, queries);
    const real *diagonals = keys->diagonals + (keys->n - 1 - bias.from) + p->first;
    if (count_up && !by_pair) {
        bias.add = diagonals;
        bias.step = -1;
        return bias;
    }

    const int n = bias.to - bias.from, width = p->width;
    real *pairs = pairs_of(keys, p);
    if (relative && !count_up) {
        fill_pairs(keys, queries, p, bias.from, bias.to);
    } else {
        for (int j = 0; j < n; j++) {
            for (int l = 0; l < width; l++)
                pairs[j * width + l] = relative ? diagonals[l - j] : 0;
        }
    }
    add_pair_operators(keys, queries, p, bias.from, n);
    if (keys->keep == SOME_PAIRS)
        mask_keep(keys, queries, p, bias.from, n);
    if (keys->segments == SOME_PAIRS)
        mask_segments(keys, queries, p, bias.from, bias.to);
    bias.add = pairs;
    return bias;
}
