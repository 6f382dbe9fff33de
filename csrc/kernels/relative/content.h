/* content.h -- operators of attention that read q and k (Shaw, Transformer-XL, DeBERTa, CoPE) or add a product of
 * vectors to the scores (TUPE, gated distance), and the calls that attention, its gradient and the logits make to them.
 *
 * An operator is one file, one CONTENT row of ops.def and one pe_content_op, FN(<name>_op). Drivers loop over the
 * operators of a call and name no operator. For a pair of query i and key j,
 *
 *     s_ij = scale q_i . k_j  + `query_table`  + `key_table`  + `scan`
 *     s_ij = softcap tanh(s_ij / softcap)  + `after`
 *     o_i  = sum_j softmax(s)_ij (v_j + `values`)
 *
 * Numbers of a panel are stored as its scores are: a row of `width` lanes for each key bias->from <= j < bias->to.
 */
#ifndef PE_CONTENT_H
#define PE_CONTENT_H

#include "tile/tile.h"

/* Channels of a long vector that are multiplied at a time, if an operator's vectors are not as wide as the queries */
enum { CONTENT_PIECE = 64 };

/* The place in the loops: an operator of the call, a block of queries, a tile of keys and a panel. keys, k and k_step
 * are not set before the first tile; panel and bias are set in functions that are called once per panel. */
typedef struct {
    int term; /* number of the operator in the call; its arrays are queries->term[term] */
    const pe_query_block *queries;
    const pe_key_tile *keys;
    const char *k; /* the keys' rows as real, k_step bytes apart */
    idx k_step;
    const pe_panel *panel;
    const pe_panel_bias *bias; /* the keys that the panel sees, and which pairs are masked */
} pe_view;

/* A table of vectors, of which each pair takes the row of its distance:   row_ij = map[distance of i and j]
 * (lookup.h). The members are numbers of operands. */
typedef struct {
    int table, map, d_table; /* map is 0 if the table has one row, which all pairs take (key_table only) */
    int vector, d_vector;    /* a vector that is added to the queries before the product; 0 if there is none */
} pe_lookup;

/* A product with the rows of a table that the next tile of the panel needs too (lookup.c) */
typedef struct {
    const void *table, *pack;
    int sum_term, low;
} pe_kept_rows;

/* The operators of a block of queries: the state that they read, and buffers that are free between their calls */
typedef struct {
    int d, e;
    real scale;      /* of the packed queries, and so of everything that is added to the scores */
    real gate_scale; /* of q.k in a scan's gates, beyond the scale of the packed queries */
    const real *q;   /* the block's queries on lanes, times scale */
    int before_cap, after_cap, values, scans; /* nonzero if an operator of the call has that stage */
    /* Stage `scan` (scan.h). Tiles go from the last key to the first. In the gradient they ascend, after a pass that
     * sums all gates. */
    int ascending;
    double passed[BLOCK_M]; /* of each lane, the sum of the gates of all keys after this tile (between tiles that
                             * ascend: and of this tile) */
    real *gates;            /* of the last panel that FN(scan_panel) got */

    real *multiplier; /* multiplies the keys: the packed queries plus the vectors that all keys multiply */
    real *sum;        /* packed queries plus the vector of operator sum_term, or -1: kept between tiles */
    int sum_term;
    real *added;                    /* for all lanes of the block: numbers to add to the scores before the cap */
    pe_kept_rows kept_rows[PANELS]; /* of each panel, in `kept` */
    real *kept;
    int32_t *index;        /* table rows of pairs, or of a window of distances */
    const void *index_map; /* the map whose rows `index` holds for this tile where positions count up, or NULL */
    const pe_positions *index_positions; /* the positions of the keys for which it does */
    real *pack;                          /* a panel of vectors on lanes */
    real *products, *window;             /* lookup.c */
    real *weight;                        /* two tiles of a panel */
} pe_content;

/* The gradient of the operators for a block of queries */
typedef struct {
    pe_content *content;
    const real *q_rows, *g_rows; /* strips of the block's queries, times scale, and of its cotangents (outer.h) */
    uint64_t nonfinite_q;        /* lanes whose numbers in q_rows were replaced by 0, to be added here */
    real *dq;                    /* of the block, before the scale */
    idx table_row;               /* row of the gradients of tables, axis t */
    real *d_gates;               /* scan: the gates' part of the gradient of q.k, for all lanes */
    double d_passed[BLOCK_M];    /* scan: sum over the keys so far of dS d position */
    real *d_piece, *strips;
    real *sum_rows, *d_sum; /* strips of queries plus the vector of operator sum_term, and their gradient */
    int sum_term;
    real *by_row; /* for each panel: dS summed by table row, between rows of zeros */
} pe_content_vjp;

/* The stage `scan`: scores that depend on sums of gates along the keys */
typedef struct {
    /* Once per panel, before the cap: add to the scores by c->gates and c->passed. */
    void (*add)(pe_content *c, const pe_view *v, real *add);
    /* The gradients of the operator's arrays and of q; d s_ij / d (the sum at j) is added to b->d_gates. */
    void (*vjp)(pe_content_vjp *b, const pe_view *v, const real *dx);
} pe_scan;

/* The additions of an operator. A member that is not set adds nothing, nor does a lookup whose table is None. */
typedef struct {
    const pe_lookup *query_table; /* s_ij += scale (q_i + vector) . table[row_ij] */
    const pe_lookup *key_table;   /* s_ij += scale k_j . table[row_ij] */
    const pe_lookup *values;      /* stage `values`: table[row_ij] is added to v_j for query i */
    const pe_scan *scan;          /* stage `scan` */
    /* Once per panel, after the cap: write the numbers to add. */
    void (*after)(pe_content *c, const pe_view *v, real *out);
    /* Its gradient from dS, which is 0 for masked pairs, and which the operator may overwrite */
    void (*after_vjp)(pe_content_vjp *b, const pe_view *v, real *ds);
} pe_content_op;

extern const pe_content_op *const FN(content_op)[PE_COUNT]; /* NULL if the row is no CONTENT */
INLINE const pe_content_op *operator_of(const pe_view *v) { return FN(content_op)[v->queries->call->term[v->term].op]; }

/* ---- called by drivers: loops over the operators of a call (content.c); v.term is set there ---- */

/* The buffers of a block; those of its gradient too, if b is not NULL */
void FN(content_layout)(pe_content *c, pe_content_vjp *b, const idx *dim, pe_carver *carver);
/* Begin a block whose packed queries are q. */
void FN(content_block)(pe_content *c, const pe_query_block *queries, const real *q);
/* The vectors that multiply the keys: the packed queries, or a copy plus the tables of one row */
const real *FN(content_multiplier)(pe_content *c, const pe_query_block *queries);
/* Begin a tile: forget the table rows of the last one, and add what key tables give to c->added. */
void FN(content_tile)(pe_content *c, pe_view v);
/* Numbers to add to the panel's scores before the cap */
real *FN(content_panel)(pe_content *c, pe_view v);
/* The bias plus the numbers of `after` */
pe_panel_bias FN(content_after)(pe_content *c, pe_view v);
void FN(content_values)(pe_content *c, pe_view v, const real *weights, real *o);

void FN(content_block_vjp)(pe_content_vjp *b, pe_content *c, const real *q_rows, const real *g_rows, real *dq,
                           idx table_row);
/* Numbers to add to g.v, valid until the next call */
const real *FN(content_value_scores)(pe_content *c, pe_view v, const real *g);
void FN(content_values_vjp)(pe_content_vjp *b, pe_view v, const real *weights);
void FN(content_after_vjp)(pe_content_vjp *b, pe_view v, const real *ds);
void FN(content_scan_vjp)(pe_content_vjp *b, pe_view v, const real *dx);
void FN(content_panels_vjp)(pe_content_vjp *b, pe_view v, int (*seen)[2], const real *dx);
void FN(content_keys_vjp)(pe_content_vjp *b, pe_view v, int from, int to, const real *dx, real *dk, int dk_step);
void FN(content_end_vjp)(pe_content_vjp *b, const pe_query_block *queries);

/* add += bias; -inf where the bias masks, whatever add holds */
INLINE void merge_bias(real *add, const pe_panel_bias *bias, int width)
{
    if (!bias->add)
        return;
    for (int j = 0; j < bias->to - bias->from; j++) {
        const real *row = bias->add + j * bias->step;
        for (int l = 0; l < width; l += LANES)
            vec_store(add + j * width + l, vec_bias(vec_load(add + j * width + l), vec_load(row + l)));
    }
}

#endif
