/* content.h -- the interface of operators that read q and k (Shaw, Transformer-XL, DeBERTa, CoPE) or add an inner
 * product to the scores (TUPE, gated distance). Attention, its gradient and the logits call it.
 *
 * An operator has one file, one CONTENT entry of ops.def and one pe_content_operator, FN(<name>_operator), whose
 * members are the stages in backquotes. Drivers contain no operator's name. For a pair of query i and key j,
 *
 *     s_ij = scale q_i . k_j  + `query_table`  + `key_table`  + `scan`
 *     s_ij = softcap tanh(s_ij / softcap)  + `after`
 *     o_i  = sum_j softmax(s)_ij (v_j + `values`)
 *
 * Numbers of a panel have the layout of its scores: a row of `width` lanes for each key bias->from <= j < bias->to.
 */
#ifndef PE_CONTENT_H
#define PE_CONTENT_H

#include "tile/panel.h"

/* Channels per product, if the length of an operator's vectors is not that of the queries */
enum { CONTENT_PIECE = 64 };

/* The arguments of the stages: an operator of the call, a block of queries, a tile of keys and a panel. keys and k
 * are set in functions that are called per tile or panel, panel and bias in functions called per panel. */
typedef struct {
    int operator_index; /* number of the operator in the call; its arrays are queries->operator_array[operator_index] */
    const pe_query_block *queries;
    const pe_key_tile *keys;
    pe_lines k; /* rows of the keys as real */
    const pe_panel *panel;
    const pe_panel_bias *bias; /* the keys that the panel sees, and which pairs are masked */
} pe_view;
INLINE const pe_operator *operator_of(const pe_view *v) { return &v->queries->call->operators[v->operator_index]; }

/* A table of vectors. Pair (i, j) uses row_ij = map[distance of i and j] (lookup.h). The members are numbers of
 * operands. */
typedef struct {
    int table, map, d_table; /* map is 0 if the table has one row for all pairs (key_table only) */
    int vector, d_vector;    /* added to the queries before the product; 0 if there is no vector */
} pe_lookup;

/* The products that a panel keeps from its last tile, because its next tile needs the same table rows (lookup.c) */
typedef struct {
    const void *table, *pack;
    int plus_operator, low;
} pe_kept_rows;

/* State of the operators for a block of queries, and buffers whose content is not kept between calls */
typedef struct {
    int d, e;
    real scale;        /* factor of all numbers added to the scores; packed_scale times factor */
    real packed_scale; /* factor of the packed queries */
    real factor;       /* of the scores; 1 but for 16-bit products, whose packed_scale is a power of two */
    real gate_scale;   /* the gates of a scan are sigmoid(gate_scale q.k) */
    const real *q;     /* packed queries of the block, one per lane */
    int before_cap, after_cap, values, scans; /* nonzero if an operator of the call has that stage */
    /* Stage `scan` (scan.h): 0 if the driver visits tiles from the last to the first (forward), 1 if from the first to
     * the last (gradient, after a pass that sums all gates). */
    int ascending;
    double passed[BLOCK_M]; /* of each lane, the sum of the gates of all keys after this tile. If tiles ascend,
                             * FN(scan_panel) first subtracts the gates of this tile. */
    real *gates;            /* of the panel of the last FN(scan_panel) */

    real *multiplier; /* for the product with the keys: packed queries plus key tables with a single row */
    real *q_plus;     /* packed queries plus the vector of operator plus_operator (-1: none); kept between tiles */
    int plus_operator;
    real *added; /* for all lanes of the block: added to the scores of the tile before the cap; ds_times reuses it */
    pe_kept_rows kept_rows[PANELS]; /* of each panel; the products are in `kept` */
    real *kept;
    int32_t *index;             /* table rows of pairs, or of diagonals; not kept */
    real *pack;                 /* a panel of vectors, one per lane */
    real *products, *diagonals; /* of one lookup (lookup.c) */
    real *scratch;              /* two buffers, each for a panel and a tile; not kept */
} pe_content;

/* The gradient of the operators for a block of queries */
typedef struct {
    pe_content *content;
    const real *q_rows, *g_rows; /* strips (outer.h) of the queries, times scale, and of the cotangents; without
                                  * nonfinite numbers, whose pairs have a weight of 0 or NaN */
    real *dq;                    /* of the block, without the factor `scale` */
    idx table_row;               /* row of the gradients of tables, axis t */
    real *d_gates;               /* scan: gradient of q.k through the gates, for all lanes */
    double d_passed[BLOCK_M];    /* scan: sum of dS d s_ij / d sum_ij over the keys so far */
    real *d_piece, *strips;
    real *q_plus_rows, *d_q_plus; /* strips of queries plus the vector of operator plus_operator, and their gradient */
    int plus_operator;
    real *by_row; /* for each panel: dS summed by table row, between rows of zeros */
} pe_content_vjp;

/* The stage `scan`: scores that depend on sums of gates along the keys */
typedef struct {
    /* Once per panel, before the cap: compute from c->gates and c->passed, and add to the scores. */
    void (*add)(pe_content *c, const pe_view *view, real *add);
    /* The gradients of the operator's arrays and of q; d s_ij / d (the sum at j) is added to vjp->d_gates. */
    void (*vjp)(pe_content_vjp *vjp, const pe_view *view, const real *dx);
} pe_scan;

/* The stages of an operator. A member that is NULL adds nothing, nor does a lookup if the caller passed no table. */
typedef struct {
    const pe_lookup *query_table; /* s_ij += scale (q_i + vector) . table[row_ij] */
    const pe_lookup *key_table;   /* s_ij += scale k_j . table[row_ij] */
    const pe_lookup *values;      /* stage `values`: table[row_ij] is added to v_j for query i */
    const pe_scan *scan;          /* stage `scan` */
    /* Once per panel, after the cap: write the numbers to add. */
    void (*after)(pe_content *c, const pe_view *view, real *out);
    /* The gradient of `after`. dS is 0 for masked pairs. The operator may overwrite ds. */
    void (*after_vjp)(pe_content_vjp *vjp, const pe_view *view, real *ds);
} pe_content_operator;

extern const pe_content_operator *const FN(content_operators)[PE_COUNT]; /* NULL for other entries of ops.def */
INLINE int has_content_operators(const pe_call *call)
{
    for (int t = 0; t < call->noperators; t++) {
        if (FN(content_operators)[call->operators[t].entry])
            return 1;
    }
    return 0;
}

/* ---- called by drivers: loops over the operators of a call (content.c); view.operator_index is set there ---- */

/* Carve the buffers of a block, and the buffers of its gradient if vjp is not NULL. */
void FN(content_layout)(pe_content *c, pe_content_vjp *vjp, const idx *dim, pe_carver *carver);
/* Begin a block whose packed queries are q, times scale. */
void FN(content_block)(pe_content *c, const pe_query_block *queries, const real *q, double scale);
/* The vectors for the product with the keys: `packed`, or a copy plus the key tables with a single row. If `packed` is
 * NULL, these tables alone, or NULL if there are none. */
const real *FN(content_multiplier)(pe_content *c, const pe_query_block *queries, const real *packed);
/* Begin a tile: add the products of keys and key tables to c->added. */
void FN(content_tile)(pe_content *c, pe_view view);
/* Return the numbers to add to the scores of a panel before the cap. */
real *FN(content_panel)(pe_content *c, pe_view view);
/* Return the bias plus the numbers of `after`. */
pe_panel_bias FN(content_after)(pe_content *c, pe_view view);
void FN(content_values)(pe_content *c, pe_view view, const real *weights, real *o);

void FN(content_block_vjp)(pe_content_vjp *vjp, pe_content *c, const real *q_rows, const real *g_rows, real *dq,
                           idx table_row);
/* Return g_i . table[row_ij], the part of `values` in g.v, valid until the next call. */
const real *FN(content_value_scores)(pe_content *c, pe_view view, const real *g);
void FN(content_values_vjp)(pe_content_vjp *vjp, pe_view view, const real *weights);
void FN(content_after_vjp)(pe_content_vjp *vjp, pe_view view, const real *ds);
void FN(content_scan_vjp)(pe_content_vjp *vjp, pe_view view, const real *dx);
void FN(content_panels_vjp)(pe_content_vjp *vjp, pe_view view, int (*seen)[2], const real *dx);
void FN(content_keys_vjp)(pe_content_vjp *vjp, pe_view view, int from, int to, const real *dx, real *dk, int dk_step);
void FN(content_end_vjp)(pe_content_vjp *vjp, const pe_query_block *queries);

/* add += bias, but -inf wherever bias is -inf */
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
