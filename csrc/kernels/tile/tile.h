/* tile.h -- one block of queries against one tile of keys, without the products: which pairs see each other, and the
 * numbers that position operators add to their scores.
 *
 *     pe_query_block   one head of one row of the batch, and up to BLOCK_M queries, cut into panels of SIMD lanes
 *     pe_key_tile      up to BLOCK_N keys; tiles begin at multiples of BLOCK_N for every query
 *     pe_panel_bias    for a panel and a tile: the visible keys, and a number to add to the score of each pair.
 *                      -inf masks a pair. There is no other mask.
 *
 * A pair's number is computed in one way only, so its bits do not depend on the rest of the block.
 */
#ifndef PE_TILE_H
#define PE_TILE_H

#include "base/layout.h"
#include "bias/position.h"
#include "fits.h"

/* BLOCK_N: 96 keys in float, 48 in double, so that a tile's scores fit the caches alike. Against 96 keys, 48 take 1.02x
 * the time; 144 and 192 save 1 % and need more memory.
 * TILE_RELS: most distances of a tile, n + BLOCK_M - 1 of them where positions count up by one. */
enum { BLOCK_N = 384 / (int)sizeof(real), PANEL_LANES = 2 * LANES, TILE_RELS = BLOCK_N + BLOCK_M };
enum { PANELS = BLOCK_M / PANEL_LANES }; /* at most, in a block */

/* Operands and parameters that begin the rows attention, attention_vjp, logits and logits_vjp of ops.def */
enum { A_Q, A_K, A_V, A_K_SCALE, A_V_SCALE, A_KEEP, A_Q_POSITIONS, A_K_POSITIONS, A_Q_SEGMENTS, A_K_SEGMENTS, A_SINK };
enum { A_BIAS = A_SINK + 1, A_OUT, A_LSE };

/* A panel is one vector of lanes or two. Its first `lanes` lanes are queries. */
typedef struct {
    int first, lanes, width; /* width is LANES or PANEL_LANES */
    double low, high;        /* range of the positions of its queries */
} pe_panel;

typedef struct {
    double at[(int)BLOCK_N > (int)BLOCK_M ? (int)BLOCK_N : (int)BLOCK_M], low, high; /* low and high: their range */
    int count_up; /* integers that grow by one: a distance then depends on the two indices only */
} pe_positions;

typedef struct {
    const pe_call *call;
    pe_row batch_row;
    idx head, kv_head, first;
    int lanes, panels, width;    /* width: the lanes and those that fill up the last panel */
    int has_relative, has_pairs; /* nonzero if an operator reads distances or diagonals; pairs */
    int has_own_positions;       /* nonzero if an operator does not read those of the call */
    pe_positions position;
    pe_positions own_position[PE_TERMS]; /* of the operators that have their own */
    int64_t segment_low, segment_high;
    pe_panel panel[PANELS];
    pe_array term[PE_TERMS][PE_TERM_ARRAYS]; /* arrays of the operators at this row of the batch */
    char *term_positions[PE_TERMS][2]; /* positions of queries and keys of an operator; NULL are those of the call */
} pe_query_block;

typedef enum { NO_PAIRS, SOME_PAIRS, ALL_PAIRS } pe_pairs_seen;

typedef struct {
    idx first;
    int n, has_window;
    pe_pairs_seen keep, segments; /* pairs that the mask and the segments let through */
    pe_positions position, own_position[PE_TERMS];
    int distances_count_up; /* positions of the call, and those that operators on distance read, count up by one */
    real window[TILE_RELS]; /* relative bias by distance, for all panels of the block */
    real pairs[BLOCK_N * PANEL_LANES];                              /* bias of one panel, pair by pair */
    real value[BLOCK_N * PANEL_LANES], rows[BLOCK_N * PANEL_LANES]; /* buffers: numbers to add, and mask */
} pe_key_tile;

/* A block and a tile of a kernel's state. They lie in its scratch: with them, the stack of a thread of musl or of
 * threading.stack_size(1 << 17) would be too small. */
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
    int step;        /* numbers from one key to the next; the lanes of a key are contiguous */
    const real *add; /* of key `from`; NULL if it would be 0 for every pair */
} pe_panel_bias;

/* The positions that operator t reads: its own or those of the call */
INLINE const pe_positions *query_positions(const pe_query_block *queries, int t)
{
    return queries->term_positions[t][0] ? &queries->own_position[t] : &queries->position;
}
INLINE const pe_positions *key_positions(const pe_key_tile *keys, const pe_query_block *queries, int t)
{
    return queries->term_positions[t][1] ? &keys->own_position[t] : &keys->position;
}

/* The block that operator t gets: n keys from `from` on, and a panel */
INLINE pe_pair_block pair_block_of(const pe_key_tile *keys, const pe_query_block *queries, const pe_panel *p, int t,
                                   int from, int n)
{
    return (pe_pair_block){.keys = n,
                           .lanes = p->width,
                           .queries = p->lanes,
                           .k_positions = key_positions(keys, queries, t)->at + from,
                           .q_positions = query_positions(queries, t)->at + p->first,
                           .first_k = keys->first + from,
                           .first_q = queries->first + p->first};
}

/* A row of an operand with the axes (h,n): that of a lane of the block; with the axes (g,m): that of a key */
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

/* The logit that joins the softmax of a query and has no value; -inf without a sink */
INLINE real sink_of(const pe_query_block *queries, idx head, int lane)
{
    const pe_array *a = &queries->call->array[A_SINK];
    char *sinks = queries->batch_row.data[A_SINK];
    return sinks ? (real)scalar_read(entry_at(a, sinks, head, queries->first + lane), a->storage) : MASKED;
}

void FN(query_block)(pe_query_block *queries, const pe_call *call, idx unit);
/* Returns 0 if no query of the block can see a key of the tile; such a tile is skipped. */
int FN(key_tile)(pe_key_tile *keys, const pe_query_block *queries, idx first);
/* The result is valid until the next call with the same tile: it may lie in k. */
pe_panel_bias FN(panel_bias)(pe_key_tile *keys, const pe_query_block *queries, const pe_panel *panel);

#endif
