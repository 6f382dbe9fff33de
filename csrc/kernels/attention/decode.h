/* decode.h -- attention of one or a few queries, limited by memory bandwidth (decode.c), and parts of the keys.
 *
 *     1 query, 8 heads that share keys:
 *         forward.c    one head at a time, one query per lane: all lanes but one are idle
 *         decode.c     one channel per lane, all 8 heads at once
 *
 * If there are few heads, the keys are cut into parts. Each part writes its out and lse, and merge_attention.c combines
 * the parts.
 */
#ifndef PE_DECODE_H
#define PE_DECODE_H

#include "base/elementary.h"
#include "tile/panel.h"

/* Most rows of q that decode.c computes together, each a query of a head: as many as a panel has lanes */
enum { MAX_Q_ROWS = 32 };

/* The tiles of keys that a work item of attention visits. If the keys are cut into parts, part `index` of `parts`
 * writes separate results, and the first part includes the sink. */
typedef struct {
    idx index, parts, first, last; /* tiles first <= i < last; there may be none */
} pe_key_part;

/* The part of unit `unit`: the parts of a block of queries follow each other. */
INLINE pe_key_part part_of_unit(const pe_call *call, idx unit)
{
    const idx parts = (idx)call->par[A_PARTS], tiles = BLOCKS(call->D(m), BLOCK_N), share = BLOCKS(tiles, parts);
    const idx index = unit % parts;
    return (pe_key_part){index, parts, min_(index * share, tiles), min_((index + 1) * share, tiles)};
}

INLINE real sink_of_part(const pe_query_block *queries, const pe_key_part *part, idx head, int lane)
{
    return part->index == 0 ? sink_of(queries, head, lane) : MASKED;
}

/* lse = m + log l. Where a query has seen a key or a sink, the largest score adds exactly 1, so l >= 1. */
INLINE double log_sum(real m, real l)
{
    const double lse = (double)m + log1p_pos((double)l - 1);
    return l == 0 ? (double)MASKED : lse;
}

/* Store lse in the type of its output; double, as part_lse always is, keeps all bits. */
INLINE void write_lse(double lse, char *to, pe_storage storage)
{
    const real rounded = (real)lse;
    if (storage == PE_F64)
        memcpy(to, &lse, sizeof lse);
    else
        row_store(&rounded, to, storage, 1);
}

/* The row of a head and a part in part_out and part_lse; of a head in out and lse, if there is one part */
INLINE idx output_head(const pe_key_part *part, idx head) { return head * part->parts + part->index; }

/* Prefetch n rows, about PREFETCH_BYTES ahead of `rows`. */
void FN(prefetch_rows)(const pe_rows *rows, int n, int width);

#endif
