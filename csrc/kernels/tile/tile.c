/* tile.c -- positions, bias terms and masks of a tile, folded into one number per pair (see tile.h).
 *
 * Where positions count up by one, all that depends on rel = position of key - position of query is a window of
 * n + 63 numbers per tile: number t belongs to lane - key = t - (n - 1), so the lanes of a key are contiguous and
 * the next key is one number earlier. That serves causality, windows, distance biases and Toeplitz rows alike.
 * Everything else (dense biases, keep, segments, irregular positions) fills the pairs one by one.
 */
#include "tile/tile.h"
#include "base/transpose.h"
#include "bias/pair.h"

static void read_positions(const pe_call *call, const pe_row *row, int operand, idx first, int n, double *restrict out)
{
    const pe_array *a = &call->array[operand];
    for (int i = 0; i < n; i++)
        out[i] = scalar_read(row->data[operand] + (first + i) * a->core[0], a->storage);
}

static int64_t segment_of(const pe_call *call, const pe_row *row, int operand, idx i)
{
    int64_t s;
    memcpy(&s, row->data[operand] + i * call->array[operand].core[0], sizeof s);
    return s;
}

static void segment_range(const pe_call *call, const pe_row *row, int operand, idx first, int n, int64_t *low,
                          int64_t *high)
{
    *low = *high = segment_of(call, row, operand, first);
    for (int i = 1; i < n; i++) {
        const int64_t s = segment_of(call, row, operand, first + i);
        *low = s < *low ? s : *low;
        *high = s > *high ? s : *high;
    }
}

static void range_of(const double *x, int n, double *low, double *high)
{
    *low = *high = x[0];
    for (int i = 1; i < n; i++) {
        *low = x[i] < *low ? x[i] : *low;
        *high = x[i] > *high ? x[i] : *high;
    }
}

/* Integers that count up by one, so small that every difference is exact: rel then depends on the indices only. */
static int counts_up(const double *x, int n)
{
    if (!(fabs_(x[0]) < 0x1p51) || (double)(int64_t)x[0] != x[0])
        return 0;
    for (int i = 1; i < n; i++)
        if (x[i] != x[0] + i)
            return 0;
    return 1;
}

static void terms_at(pe_queries *q)
{
    const pe_call *call = q->call;
    q->relatives = q->denses = 0;
    for (int t = 0; t < call->nterms; t++) {
        const int op = call->term[t].op;
        q->denses += op == PE_dense || FN(pair)[op];
        q->relatives += op == PE_toeplitz || FN(distance)[op];
        memcpy(q->term[t], call->term[t].array, sizeof q->term[t]);
        for (int k = 0; k < PE_TERM_ARRAYS; k++)
            if (q->term[t][k].data)
                for (int a = 0; a < call->nloops; a++)
                    q->term[t][k].data += q->row.at[a] * q->term[t][k].loop[a];
    }
}

/* of lanes from `first` on; positions that are not given count up */
static void positions_between(const pe_queries *q, int given, int first, int lanes, double *low, double *high)
{
    if (given) {
        range_of(q->position + first, lanes, low, high);
        return;
    }
    *low = q->position[first];
    *high = q->position[first + lanes - 1];
}

void FN(queries_at)(pe_queries *q, const pe_call *call, idx unit)
{
    const idx heads = call->D(h), blocks = BLOCKS(call->D(n), BLOCK_M), part = unit % (heads * blocks);
    q->call = call;
    q->row = row_at(call, unit / (heads * blocks));
    q->head = part / blocks;
    q->kv_head = q->head / (heads / call->D(g));
    q->first = part % blocks * BLOCK_M;
    q->lanes = (int)min_(BLOCK_M, call->D(n) - q->first);
    terms_at(q);
    const int given = q->row.data[A_Q_POSITIONS] != NULL;
    const double start = (double)q->first + call->par[A_SHIFT];
    if (given)
        read_positions(call, &q->row, A_Q_POSITIONS, q->first, q->lanes, q->position);
    for (int i = 0; i < q->lanes && !given; i++)
        q->position[i] = start + i;
    q->even = counts_up(q->position, given ? q->lanes : 1);
    positions_between(q, given, 0, q->lanes, &q->low, &q->high);
    if (q->row.data[A_Q_SEGMENTS])
        segment_range(call, &q->row, A_Q_SEGMENTS, q->first, q->lanes, &q->segment_low, &q->segment_high);
    q->panels = q->width = 0;
    while (q->width < q->lanes) {
        pe_panel *p = &q->panel[q->panels++];
        p->first = q->width;
        p->width = q->lanes - p->first <= LANES ? LANES : PANEL_LANES; /* few queries must not pay for many */
        p->lanes = (int)min_(p->width, q->lanes - p->first);
        positions_between(q, given, p->first, p->lanes, &p->low, &p->high);
        q->width += p->width;
    }
    for (int i = q->lanes; i < q->width; i++)
        q->position[i] = q->position[q->lanes - 1]; /* lanes that are no queries: any number will do */
}

static const char *at(const char *data, const pe_array *a, idx h, idx i, idx j)
{
    return data + h * a->core[0] + i * a->core[1] + j * a->core[2];
}

/* How much of keep is true: all of it needs no pairs, none of it no tile. */
static pe_seen kept(const pe_keys *k, const pe_queries *q)
{
    const pe_array *a = &q->call->array[A_KEEP];
    const char *data = q->row.data[A_KEEP];
    const int rows = a->core[1] ? q->lanes : 1, n = a->core[2] ? k->n : 1;
    int count = 0;
    if (!data)
        return EVERYBODY;
    for (int i = 0; i < rows; i++) {
        const char *row = at(data, a, q->head, q->first + i, k->first);
        if (a->core[2] == 1)
            for (int j = 0; j < n; j++)
                count += row[j] != 0;
        else
            for (int j = 0; j < n; j++)
                count += row[j * a->core[2]] != 0;
    }
    return count == 0 ? NOBODY : count == rows * n ? EVERYBODY : SOMEBODY;
}

static pe_seen same_segment(const pe_keys *k, const pe_queries *q)
{
    int64_t low, high;
    if (!q->row.data[A_Q_SEGMENTS] || !q->row.data[A_K_SEGMENTS])
        return EVERYBODY;
    segment_range(q->call, &q->row, A_K_SEGMENTS, k->first, k->n, &low, &high);
    if (high < q->segment_low || q->segment_high < low)
        return NOBODY;
    return low == high && q->segment_low == low && q->segment_high == low ? EVERYBODY : SOMEBODY;
}

int FN(keys_at)(pe_keys *k, const pe_queries *q, idx first)
{
    const double low = q->call->par[A_LOW], high = q->call->par[A_HIGH];
    const int given = q->row.data[A_K_POSITIONS] != NULL;
    k->first = first;
    k->n = (int)min_(BLOCK_N, q->call->D(m) - first);
    k->has_window = 0;
    k->low = (double)first;
    k->high = (double)(first + k->n - 1);
    if (given) {
        read_positions(q->call, &q->row, A_K_POSITIONS, first, k->n, k->position);
        range_of(k->position, k->n, &k->low, &k->high);
    }
    if (k->high - q->low < low || k->low - q->high > high)
        return 0;
    if (!given)
        for (int j = 0; j < k->n; j++)
            k->position[j] = (double)(first + j);
    k->even = !given || counts_up(k->position, k->n);
    k->segments = same_segment(k, q);
    k->keep = k->segments == NOBODY ? NOBODY : kept(k, q);
    return k->keep != NOBODY;
}

/* What depends on rel, rows x width numbers: the sum of the terms in double, in their order, rounded once.
 * Number l of row r is at distance rel[r, l]; in a Toeplitz row it is element diagonal + r - l. */
static void relative_bias(const pe_queries *q, const double *rel, int rows, int width, idx diagonal, real *restrict out)
{
    const pe_call *call = q->call;
    const double low = call->par[A_LOW], high = call->par[A_HIGH];
    const int n = rows * width;
    double sum[TILE_RELS];
    real value[TILE_RELS];
    for (int i = 0; i < n; i++)
        sum[i] = 0;
    for (int t = 0; t < call->nterms; t++) {
        const pe_array *a = q->term[t];
        const int op = call->term[t].op;
        if (op == PE_toeplitz) {
            const real *d = (const real *)(const void *)(a->data + q->head * a->core[0]) + diagonal;
            for (int r = 0; r < rows; r++) {
                const int there = (int)min_(width, diagonal + r + 1); /* lanes beyond the last query have none */
                for (int l = 0; l < there; l++)
                    sum[r * width + l] += (double)d[r - l];
            }
        } else if (FN(distance)[op]) {
            FN(distance)[op](a, call->term[t].dim, q->head, rel, n, value);
            for (int i = 0; i < n; i++)
                sum[i] += (double)value[i];
        }
    }
    for (int i = 0; i < n; i++)
        out[i] = ((rel[i] >= low) & (rel[i] <= high)) ? (real)sum[i] : MASKED;
}

static void fill_window(pe_keys *k, const pe_queries *q)
{
    const int n = k->n + q->width - 1;
    const double last = k->position[k->n - 1] - q->position[0];
    double rel[TILE_RELS];
    for (int t = 0; t < n; t++)
        rel[t] = last - t;
    relative_bias(q, rel, 1, n, k->first + k->n - 1 - q->first + q->call->D(n) - 1, k->window);
    k->has_window = 1;
}

/* The same for irregular positions, pair by pair, some keys at a time. */
static void fill_pairs(pe_keys *k, const pe_queries *q, const pe_panel *p, int from, int to)
{
    const int width = p->width, some = TILE_RELS / width;
    double rel[TILE_RELS];
    for (int j = from; j < to; j += some) {
        const int rows = (int)min_(some, to - j);
        for (int r = 0; r < rows; r++)
            for (int l = 0; l < width; l++)
                rel[r * width + l] = k->position[j + r] - q->position[p->first + l];
        relative_bias(q, rel, rows, width, k->first + j - q->first - p->first + q->call->D(n) - 1,
                      k->pairs + (j - from) * width);
    }
}

/* A dense term. Rows are queries in memory and keys here: turned over number by number, then added by vectors.
 * A masked pair stays masked, whatever the term says of it. */
static void add_dense(const char *data, const pe_array *a, const pe_panel *p, int n, real *restrict pairs)
{
    const int width = p->width, plain = a->core[2] == storage_size(a->storage);
    real turned[BLOCK_N * PANEL_LANES], rows[BLOCK_N * PANEL_LANES];
    idx step = a->core[1];
    if (!(plain && a->storage == PE_STORAGE)) {
        for (int l = 0; l < p->lanes; l++) {
            const char *from = data + l * step;
            real *row = rows + l * BLOCK_N;
            if (plain && (a->storage == PE_BF16 || a->storage == PE_F16))
                row_read(from, a->storage, n, row);
            else
                for (int j = 0; j < n; j++)
                    row[j] = (real)scalar_read(from + j * a->core[2], a->storage);
        }
        data = (const char *)rows;
        step = BLOCK_N * (idx)sizeof *rows;
    }
    pack_transposed(data, step, p->lanes, n, 1, width, turned);
    SIMD
    for (int i = 0; i < n * width; i++)
        pairs[i] = pairs[i] == MASKED ? MASKED : pairs[i] + turned[i];
}

/* A term that reads both positions. */
static void add_pair(pe_pair of, const pe_term *term, const pe_array *a, const pe_keys *k, const pe_queries *q,
                     const pe_panel *p, int from, int n, real *restrict pairs)
{
    const pe_block_of_pairs block = {
        n, p->width, p->lanes, k->position + from, q->position + p->first, k->first + from, q->first + p->first};
    real value[BLOCK_N * PANEL_LANES];
    of(a, term->dim, q->head, &block, value);
    SIMD
    for (int i = 0; i < n * p->width; i++)
        pairs[i] = pairs[i] == MASKED ? MASKED : pairs[i] + value[i];
}

static void mask_keep(const char *data, const pe_array *a, const pe_panel *p, int n, real *restrict pairs)
{
    real turned[BLOCK_N * PANEL_LANES], rows[BLOCK_N * PANEL_LANES];
    for (int l = 0; l < p->lanes; l++) {
        const char *from = data + l * a->core[1];
        real *row = rows + l * BLOCK_N;
        if (a->core[2] == 1) /* a loop of its own, which the compiler makes vectors of */
            for (int j = 0; j < n; j++)
                row[j] = from[j] != 0;
        else
            for (int j = 0; j < n; j++)
                row[j] = from[j * a->core[2]] != 0;
    }
    pack_transposed((const char *)rows, BLOCK_N * (idx)sizeof *rows, p->lanes, n, 1, p->width, turned);
    SIMD
    for (int i = 0; i < n * p->width; i++)
        pairs[i] = turned[i] != 0 ? pairs[i] : MASKED;
}

static void mask_segments(const pe_keys *k, const pe_queries *q, const pe_panel *p, int from, int to,
                          real *restrict pairs)
{
    int64_t segment[BLOCK_M];
    for (int l = 0; l < p->width; l++)
        segment[l] = segment_of(q->call, &q->row, A_Q_SEGMENTS, q->first + p->first + (l < p->lanes ? l : 0));
    for (int j = from; j < to; j++, pairs += p->width) {
        const int64_t s = segment_of(q->call, &q->row, A_K_SEGMENTS, k->first + j);
        for (int l = 0; l < p->width; l++)
            pairs[l] = segment[l] == s ? pairs[l] : MASKED;
    }
}

pe_bias FN(bias_of)(pe_keys *k, const pe_queries *q, const pe_panel *p)
{
    const pe_call *call = q->call;
    const double low = call->par[A_LOW], high = call->par[A_HIGH];
    const int edge = !(k->low - p->high >= low && k->high - p->low <= high);
    const int even = q->even && k->even, relative = edge || q->relatives;
    const int others = q->denses || k->keep == SOMEBODY || k->segments == SOMEBODY;
    pe_bias b = {0, k->n, p->width, NULL};
    /* keys that the window hides from all of the panel, at both ends: causality costs half, to a panel's width */
    while (b.from < b.to && k->position[b.from] - p->low < low)
        b.from++;
    while (b.from < b.to && k->position[b.to - 1] - p->high > high)
        b.to--;
    if (b.from == b.to || !(relative || others))
        return b;
    if (relative && even && !k->has_window)
        fill_window(k, q);
    const real *window = k->window + (k->n - 1 - b.from) + p->first;
    if (even && !others) {
        b.add = window;
        b.step = -1;
        return b;
    }

    const int n = b.to - b.from, width = p->width;
    if (relative && !even)
        fill_pairs(k, q, p, b.from, b.to);
    else
        for (int j = 0; j < n; j++)
            for (int l = 0; l < width; l++)
                k->pairs[j * width + l] = relative ? window[l - j] : 0;
    const idx i = q->first + p->first, j = k->first + b.from;
    for (int t = 0; t < call->nterms; t++) {
        const pe_pair pair = FN(pair)[call->term[t].op];
        if (call->term[t].op == PE_dense)
            add_dense(at(q->term[t]->data, q->term[t], q->head, i, j), q->term[t], p, n, k->pairs);
        else if (pair)
            add_pair(pair, &call->term[t], q->term[t], k, q, p, b.from, n, k->pairs);
    }
    if (k->keep == SOMEBODY)
        mask_keep(at(q->row.data[A_KEEP], &call->array[A_KEEP], q->head, i, j), &call->array[A_KEEP], p, n, k->pairs);
    if (k->segments == SOMEBODY)
        mask_segments(k, q, p, b.from, b.to, k->pairs);
    b.add = k->pairs;
    return b;
}
