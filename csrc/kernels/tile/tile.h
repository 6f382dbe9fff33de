/* tile.h -- the masks and position operators for one block of queries and one tile of keys: which queries see which
 * keys, and the numbers added to the scores.
 *
 *     pe_query_block   one head of one row of the batch, and up to BLOCK_M queries, cut into panels of SIMD lanes
 *     pe_key_tile      up to BLOCK_N keys; tiles begin at multiples of BLOCK_N for every query
 *     pe_panel_bias    for a panel and a tile: the range of visible keys, and a number to add to the score of each
 *                      pair; -inf masks the pair
 *
 * The number of a pair has the same bits in any block and panel.
 */
#ifndef PE_TILE_H
#define PE_TILE_H

#include "base/layout.h"
#include "bias/position.h"
#include "fits.h"

/* BLOCK_N is 96 keys in float and 48 in double, so that a tile has the same bytes in both. Fewer keys take longer, and
 * more keys need more memory. TILE_RELS is an upper bound for the diagonals of a tile, n + BLOCK_M - 1. */
enum { BLOCK_N = 384 / (int)sizeof(real), PANEL_LANES = 2 * LANES, TILE_RELS = BLOCK_N + BLOCK_M };
enum { PANELS = BLOCK_M / PANEL_LANES }; /* of a block, at most */

/* A panel is one vector of lanes or two. Its first `lanes` lanes hold queries. */
typedef struct {
    int first, lanes, width; /* width is LANES or PANEL_LANES */
    double low, high;        /* range of the positions of its queries */
} pe_panel;

typedef struct {
    double at[(int)BLOCK_N > (int)BLOCK_M ? (int)BLOCK_N : (int)BLOCK_M];
    double low, high; /* least and largest */
    int count_up;     /* nonzero if they are integers that grow by one, so that a distance depends on indices only */
} pe_positions;

typedef struct {
    const pe_call *call;
    pe_row batch_row;
    idx head, kv_head, first;
    int lanes, panels, width;    /* width: lanes of all panels */
    struct pe_split *split;      /* NULL: products of reals. Else ranges of keys are multiples of DOT (bf16.h). */
    int has_relative, has_pairs; /* nonzero if there is an operator on distances or diagonals; on pairs */
    int has_own_positions;       /* nonzero if an operator has other positions than the call */
    pe_positions position;
    pe_positions own_position[PE_OPERATORS]; /* of the operators that have their own */
    int64_t segment_low, segment_high;
    pe_panel panel[PANELS];
    pe_array operator_array[PE_OPERATORS][PE_OPERATOR_ARRAYS]; /* arrays of the operators at this row of the batch */
    char *operator_positions[PE_OPERATORS][2]; /* of queries and of keys; NULL if an operator reads those of the call */
} pe_query_block;

typedef enum { NO_PAIRS, SOME_PAIRS, ALL_PAIRS } pe_pairs_seen;

typedef struct {
    idx first;
    int n, has_diagonals;
    pe_pairs_seen keep, segments; /* pairs that keep and segments do not mask: none, some or all */
    pe_positions position, own_position[PE_OPERATORS];
    int distances_count_up;        /* nonzero if all positions that distances are computed from count up by one */
    real diagonals[TILE_RELS];     /* relative bias of each diagonal, for all panels of the block */
    real pairs[BLOCK_M * BLOCK_N]; /* bias pair by pair, with the layout of the scores */
    real value[BLOCK_N * PANEL_LANES], rows[BLOCK_N * PANEL_LANES]; /* buffers: numbers to add, and mask */
} pe_key_tile;

/* The block and the tile of a kernel. They are in scratch, because they are too large for the stack of a thread of musl
 * or of threading.stack_size(1 << 17). */
typedef struct {
    pe_query_block *queries;
    pe_key_tile *keys;
} pe_block_state;

INLINE pe_block_state carve_block_state(pe_carver *c)
{
    return (pe_block_state){carve_bytes(c, sizeof(pe_query_block)), carve_bytes(c, sizeof(pe_key_tile))};
}

typedef struct {
    int from, to;    /* no query of the panel sees a key of the tile outside from <= j < to */
    int step;        /* distance in numbers between two keys; the lanes of a key are contiguous */
    const real *add; /* the numbers of key `from`; NULL if all numbers are 0 */
} pe_panel_bias;

/* Where a panel's numbers of a key are in an array with the layout of the scores: panel after panel, each with a row of
 * `width` lanes for every key of a tile */
INLINE int score_offset(const pe_panel *p, int key) { return p->first * BLOCK_N + key * p->width; }

/* The positions that operator t reads */
INLINE const pe_positions *query_positions(const pe_query_block *queries, int t)
{
    return queries->operator_positions[t][0] ? &queries->own_position[t] : &queries->position;
}
INLINE const pe_positions *key_positions(const pe_key_tile *keys, const pe_query_block *queries, int t)
{
    return queries->operator_positions[t][1] ? &keys->own_position[t] : &keys->position;
}

/* The arguments of pair operator t: n keys from `from` on, and the queries of a panel */
INLINE pe_pair_block pair_block_of(const pe_key_tile *keys, const pe_query_block *queries, const pe_panel *p, int t,
                                   int from, int n)
{
    return (pe_pair_block){.keys = n,
                           .lanes = p->lanes,
                           .width = p->width,
                           .k_positions = key_positions(keys, queries, t)->at + from,
                           .q_positions = query_positions(queries, t)->at + p->first,
                           .first_k = keys->first + from,
                           .first_q = queries->first + p->first};
}

/* The row of a lane in an operand with the axes (h,n); key_row: the row of a key in an operand with the axes (g,m) */
INLINE char *query_row_of_head(const pe_query_block *queries, idx head, int operand, int lane)
{
    return entry_at(&queries->call->array[operand], queries->batch_row.data[operand], head, queries->first + lane);
}
INLINE char *query_row(const pe_query_block *queries, int operand, int lane)
{
    return query_row_of_head(queries, queries->head, operand, lane);
}
INLINE char *key_row(const pe_query_block *queries, int operand, idx key)
{
    return entry_at(&queries->call->array[operand], queries->batch_row.data[operand], queries->kv_head, key);
}

/* The sink of a query: a logit that the softmax includes and that has no value. -inf if the call has no sinks. */
INLINE real sink_of(const pe_query_block *queries, idx head, int lane)
{
    const pe_array *a = &queries->call->array[A_SINK];
    char *sinks = queries->batch_row.data[A_SINK];
    return sinks ? (real)scalar_read(entry_at(a, sinks, head, queries->first + lane), a->storage) : MASKED;
}

/* Set the block of queries of a unit. */
void FN(query_block)(pe_query_block *queries, const pe_call *call, idx unit);
/* Set the tile of keys from `first` on. Return 0 if no query sees a key of the tile; the caller then skips the tile. */
int FN(key_tile)(pe_key_tile *keys, const pe_query_block *queries, idx first);

/* A loop over tiles: `while (FN(next_tile)(&tiles)) ...`, and tiles.stopped says whether it ended early. Each tile is
 * visited by `blocks` blocks of one head, one after the other, unless no query of the block sees a key of the tile. */
typedef struct {
    const pe_query_block *queries;
    pe_key_tile *keys;
    int blocks, block;  /* block: the number of the block that visits keys now, */
    int sees;           /* and whether it sees a key of the tile */
    idx first, last;    /* tiles first <= i < last; there may be none */
    int descends;       /* from the last tile to the first */
    int visits_masked;  /* the blocks visit tiles that they do not see, too */
    int polls, stopped; /* polls: 0 for a first tile without a poll, which may read the clock */
    idx steps;          /* taken so far, with those that were skipped */
} pe_tiles;

/* All tiles, for one block */
INLINE pe_tiles tiles_of(const pe_query_block *queries, pe_key_tile *keys)
{
    return (pe_tiles){
        .queries = queries, .keys = keys, .blocks = 1, .last = BLOCKS(queries->call->D(m), BLOCK_N), .polls = 1};
}
/* Set keys to the next tile. Returns 0 if there is none, or if the call was stopped. */
int FN(next_tile)(pe_tiles *t);

/* `add` of the result may point into `keys`, so it is valid until the next tile. */
pe_panel_bias FN(panel_bias)(pe_key_tile *keys, const pe_query_block *queries, const pe_panel *panel);

#endif
