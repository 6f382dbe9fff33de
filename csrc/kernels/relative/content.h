/* content.h -- operators that read q and k (Shaw, Transformer-XL, DeBERTa, CoPE) or add a product of vectors to the
 * scores (TUPE, gated distance): the hooks by which attention, its gradient and the logits call them.
 *
 * An operator is one file, one CONTENT row of ops.def and one pe_content_op, FN(<name>_op). Drivers loop over the
 * operators of a call and call the hooks that are set; they name no operator. With s the scores of a panel,
 *
 *     s = scale q.k   + what `keys`, `panel` and `scan` add;   s = softcap tanh(s / softcap);   s += what `after` gives
 *     o = softmax(s) v   + what `values` adds
 *
 * Numbers of a panel lie as its scores do: a row of `width` lanes for each key visible->from <= j < visible->to.
 */
#ifndef PE_CONTENT_H
#define PE_CONTENT_H

#include "tile/tile.h"

/* Channels of a long vector that are multiplied at a time, if an operator's vectors are not as wide as the queries */
enum { CONTENT_PIECE = 64 };

/* The view that a hook gets: an operator of the call, a block of queries, a tile of keys and a panel. keys, k and
 * k_step are not set before the first tile; panel and visible are set for hooks that are called once per panel. */
typedef struct {
    int term; /* number of the operator in the call; its arrays are queries->term[term] */
    const pe_query_block *queries;
    const pe_key_tile *keys;
    const char *k; /* the keys' rows as real, k_step bytes apart */
    idx k_step;
    const pe_panel *panel;
    const pe_panel_bias *visible; /* the keys that the panel sees, and which pairs are masked */
} pe_view;

typedef struct pe_content_op pe_content_op;

/* Operands of an operator with a table: the table, the map from distances to its rows, and the table's gradient */
typedef struct {
    int table, map, d_table;
} pe_lookup;

/* A product with the rows of a table that the next tile of the panel needs too (lookup.c) */
typedef struct {
    const void *table, *pack;
    int shifted_term, low;
} pe_kept_rows;

/* The operators of a block of queries: the state that hooks read, and buffers that a hook may use until it returns. */
typedef struct {
    int d, e;
    real scale;                        /* of the packed queries, and so of everything that is added to the scores */
    real gate_scale;                   /* of q.k in a scan's gates, beyond the scale of the packed queries */
    const real *q;                     /* the block's queries on lanes, times scale */
    int before_cap, after_cap, values; /* nonzero if an operator has hooks of that kind */
    /* Operators that count along the keys share one scan: tiles go from the last key to the first, and their gates are
     * the same. In the gradient tiles ascend, after a pass that counts. NULL if there are none. */
    const pe_content_op *scan;
    int ascending;
    double passed[BLOCK_M];   /* sum of the gates of all keys after this tile, and of its own if tiles ascend */
    double left[PANEL_LANES]; /* the same for the last panel, with this tile's gates in any case */

    real *multiplier; /* multiplies the keys: the packed queries plus the vectors of `queries` hooks */
    real *shifted;    /* packed queries plus a vector of operator shifted_term, or -1: kept between tiles */
    int shifted_term;
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
    real *sum, *strips;
    real *shifted, *shifted_dq; /* strips of queries plus a vector of operator shifted_term, and their gradient */
    int shifted_term;
    real *by_row; /* for each panel: dS summed by table row, between rows of zeros */
} pe_content_vjp;

struct pe_content_op {
    /* Once per block of queries: add to the packed queries that multiply the keys. */
    void (*queries)(const pe_content *c, const pe_view *v, real *multiplier);
    /* Once per tile: add to c->added, for all panels. */
    void (*keys)(pe_content *c, const pe_view *v);
    /* Once per panel, before the cap */
    void (*panel)(pe_content *c, const pe_view *v, real *add);
    /* The same for operators that count along the keys, after every `panel` hook; scan_done ends the panel's scan. */
    void (*scan)(pe_content *c, const pe_view *v, real *add);
    void (*scan_done)(pe_content *c, const pe_view *v);
    /* After the cap: write the numbers to add. */
    void (*after)(pe_content *c, const pe_view *v, real *out);
    /* Add to the output, from the softmax weights of the panel. */
    void (*values)(pe_content *c, const pe_view *v, const real *weights, real *o);
    int values_operand; /* the array without which `values` and its gradient are not called */
    /* Tables of the hooks in lookup.h, one that multiplies the queries and one that multiplies the keys */
    const pe_lookup *query_table, *key_table;

    /* Gradients. dS is 0 for pairs that are not visible. `panels_vjp` is the gradient of `panel` for all panels of the
     * block at once, panel p seeing keys seen[p][0] <= j < seen[p][1]; dx is dS before the cap, for all lanes. */
    void (*panels_vjp)(pe_content_vjp *b, const pe_view *v, int (*seen)[2], const real *dx);
    /* Of `queries` and `keys`, for the keys from <= j < to; dk are the rows of the tile's keys. */
    void (*keys_vjp)(pe_content_vjp *b, const pe_view *v, int from, int to, const real *dx, real *dk, int dk_step);
    /* Before the tiles: add the gates of a tile to c->passed. */
    void (*count)(pe_content *c, const pe_view *v);
    /* Of `scan`: tables and dq, and the sum over the operators of d s / d position in b->d_gates; then, once, the
     * gates' part of the gradient of q.k. */
    void (*scan_vjp)(pe_content_vjp *b, const pe_view *v, const real *dx);
    void (*gates_vjp)(pe_content_vjp *b, const pe_view *v, const real *dx);
    void (*after_vjp)(pe_content_vjp *b, const pe_view *v, real *ds); /* may overwrite ds */
    /* Add to g.v what `values` makes of it, and the gradient of its table from the weights. */
    void (*value_scores)(pe_content *c, const pe_view *v, const real *g, real *add);
    void (*values_vjp)(pe_content_vjp *b, const pe_view *v, const real *weights);
    /* Once per block, at its end */
    void (*block_vjp)(pe_content_vjp *b, const pe_view *v);
};

extern const pe_content_op *const FN(content_op)[PE_COUNT]; /* NULL if the row is no CONTENT */
INLINE const pe_content_op *operator_of(const pe_view *v) { return FN(content_op)[v->queries->call->term[v->term].op]; }

/* ---- called by drivers: loops over the operators of a call (content.c); v.term is set there ---- */

/* The buffers of a block; those of its gradient too, if b is not NULL */
void FN(content_layout)(pe_content *c, pe_content_vjp *b, const idx *dim, pe_carver *carver);
/* Begin a block whose packed queries are q. */
void FN(content_block)(pe_content *c, const pe_query_block *u, const real *q);
/* The vectors that multiply the keys: the packed queries, or a copy plus the vectors of `queries` hooks */
const real *FN(content_multiplier)(pe_content *c, const pe_query_block *u);
/* Begin a tile: forget the table rows of the last one, and call the hooks `keys`. */
void FN(content_tile)(pe_content *c, pe_view v);
/* Numbers to add to the panel's scores before the cap */
real *FN(content_panel)(pe_content *c, pe_view v);
/* The bias plus what `after` hooks give */
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
void FN(content_end_vjp)(pe_content_vjp *b, const pe_query_block *u);

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
