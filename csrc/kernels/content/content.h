/* content.h -- operators on the logits that read q and k: what they add to the scores of a tile, before the cap, and
 * TUPE's product of positions, which comes after it.
 *
 *     relation   scale (q_i + v) . table[row]   and   scale k_j . table[row]
 *     row        rows[min(max(rel, -B), B) + B], rel cut towards zero; rows(b) has b = 2 B + 1 entries
 *
 * A table meets the queries (or the keys) of a panel by the product of scores, over the rows that the tile can see;
 * what a pair needs is then fetched from there. Rows are numbered for a panel of lanes: of key j and lane l it is
 * row[j * step + l].
 */
#ifndef PE_CONTENT_H
#define PE_CONTENT_H

#include "tile/tile.h"

typedef struct {
    const int32_t *row;
    int step;
} pe_rows;

/* Rows of a product that the next tile of a panel needs too */
typedef struct {
    const void *table, *pack;
    int vector, low;
} pe_kept;

typedef struct {
    int d, e;
    int by_query, by_key, sums, values, after; /* how many terms there are of each kind; sums are CoPE's */
    real scale, gate_scale;                    /* of what is added; of q.k in CoPE's gates, beyond that of the pack */
    const real *q;                             /* packed queries, times scale */
    real *packed, *shifted, *pack, *products, *window, *added, *weight, *kept;
    pe_kept of[BLOCK_M / LANES];
    int vector; /* the term whose vector is in shifted, or -1 */
    int32_t *index;
    const void *held; /* the map whose rows index has for this tile, where positions count up by one */
    int ascending;    /* whether tiles go from the first key to the last: not in the forward of CoPE */
    /* CoPE: sum of the gates of all keys that come after this tile, and of its own if ascending */
    double passed[BLOCK_M];
    double left[PANEL_LANES]; /* of the panel that was last, this tile included */
} pe_content;

/* Whether a term adds to the scores before the cap */
INLINE int before_cap(const pe_content *c) { return c->by_query || c->by_key || c->sums; }

/* What there is to add in this unit, and room for it; q is the block's pack of queries. */
void FN(content_at)(pe_content *c, const pe_queries *u, const real *q, char **scratch);
/* The pack that meets the keys: that of the queries, plus Transformer-XL's u */
const real *FN(content_queries)(pe_content *c, const pe_queries *u);
/* Begins a tile; keys are its rows as real. */
void FN(content_keys)(pe_content *c, const pe_queries *u, const pe_keys *k, const char *keys, idx step);
/* Before the cap: numbers for keys bias->from .. bias->to of a panel, a row of lanes for each. */
real *FN(content_tile)(pe_content *c, const pe_queries *u, const pe_keys *k, const pe_panel *p, const pe_bias *bias,
                       const char *keys, idx step);
/* CoPE's parts, for its gradient: see content.c */
void FN(content_gates)(const pe_content *c, const pe_queries *u, const pe_keys *k, const pe_panel *p,
                       const pe_bias *bias, const char *keys, idx step, real *gate);
void FN(content_positions)(pe_content *c, const pe_queries *u, const pe_keys *k, const pe_panel *p, const pe_bias *bias,
                           const char *keys, idx step, int last);
/* After the cap: the bias with TUPE's products added. */
pe_bias FN(content_after)(pe_content *c, const pe_queries *u, const pe_keys *k, const pe_panel *p, const pe_bias *bias);
/* o += sum_j weights_j values[row_ij] */
void FN(content_values)(pe_content *c, const pe_queries *u, const pe_keys *k, const pe_panel *p, const pe_bias *bias,
                        const real *weights, real *o);

/* add += bias; -inf where that masks, whatever add holds */
INLINE void merge_bias(real *add, const pe_bias *bias, int width)
{
    for (int j = 0; bias->add && j < bias->to - bias->from; j++)
        for (int l = 0; l < width; l += LANES)
            vec_store(add + j * width + l,
                      vec_bias(vec_load(add + j * width + l), vec_load(bias->add + j * bias->step + l)));
}

#endif
