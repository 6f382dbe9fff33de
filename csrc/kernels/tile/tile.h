/* tile.h -- one block of queries against one tile of keys, without its products: which pairs see each other, and what
 * is added to their scores.
 *
 *     pe_queries   the unit: one row of the batch, one head, up to BLOCK_M queries cut into panels of lanes
 *     pe_keys      up to BLOCK_N keys, from a multiple of BLOCK_N on: tiles are the same for every query
 *     pe_bias      for a panel and a tile: the keys that matter and a real number per pair to add to its score;
 *                  -inf means masked. There is no other mask.
 *
 * A number of a pair is computed in one way only, so it has the same bits whatever else the block holds.
 */
#ifndef PE_TILE_H
#define PE_TILE_H

#include "scratch.h"
#include "base/row.h"
#include "base/vec.h"

enum { BLOCK_N = ATTENTION_COLUMN / (int)sizeof(real), PANEL_LANES = 2 * LANES, TILE_RELS = BLOCK_N + BLOCK_M };
enum { A_Q, A_K, A_V, A_KEEP, A_Q_POSITIONS, A_K_POSITIONS, A_Q_SEGMENTS, A_K_SEGMENTS, A_BIAS, A_OUT, A_LSE };
enum { A_SCALE, A_SOFTCAP, A_LOW, A_HIGH, A_SHIFT };

typedef struct {
    int first, lanes, width; /* width is LANES or PANEL_LANES; lanes of them are queries */
    double low, high;        /* positions of its queries lie between */
} pe_panel;

typedef struct {
    const pe_call *call;
    pe_row row;
    idx head, kv_head, first;
    int lanes, panels, width; /* width: lanes with those that fill up the last panel */
    int relatives, denses;    /* terms that read rel only, and others */
    int even;                 /* positions are integers that count up by one */
    double low, high, position[BLOCK_M];
    int64_t segment_low, segment_high;
    pe_panel panel[BLOCK_M / PANEL_LANES];
    pe_array term[PE_TERMS][PE_TERM_ARRAYS]; /* at this row of the batch */
} pe_queries;

typedef enum { NOBODY, SOMEBODY, EVERYBODY } pe_seen;

typedef struct {
    idx first;
    int n, even, has_window;
    pe_seen keep, segments;
    double low, high, position[BLOCK_N];
    real window[TILE_RELS], pairs[BLOCK_N * PANEL_LANES];
} pe_keys;

typedef struct {
    int from, to;    /* no query of the panel sees another key of the tile */
    int step;        /* numbers from one key to the next; the lanes of a key are contiguous */
    const real *add; /* of key `from`; NULL where it would be 0 everywhere */
} pe_bias;

/* The next numbers of a thread's scratch, aligned to a cache line */
INLINE real *carve(char **scratch, idx numbers)
{
    real *p = (real *)(void *)*scratch;
    *scratch += (numbers * (idx)sizeof(real) + 63) / 64 * 64;
    return p;
}

void FN(queries_at)(pe_queries *q, const pe_call *call, idx unit);
/* 0 if no query of the block can see a key of the tile: such a tile is skipped */
int FN(keys_at)(pe_keys *k, const pe_queries *q, idx first);
/* Valid until the next call: it may lie in k */
pe_bias FN(bias_of)(pe_keys *k, const pe_queries *q, const pe_panel *panel);

#endif
