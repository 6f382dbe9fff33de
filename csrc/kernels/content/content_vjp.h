/* content_vjp.h -- the gradients of what content.h adds, from those of a tile; see content_vjp.c. */
#ifndef PE_CONTENT_VJP_H
#define PE_CONTENT_VJP_H

#include "content/content.h"

typedef struct {
    const real *q_rows, *g_rows; /* strips of the block's queries, times scale, and of its cotangents (outer.h) */
    real *dq;                    /* of the block, before the scale */
    real *more;                  /* CoPE: what the gates add to dX in the product q.k, for all lanes */
    real *sum, *strips;
    real *shifted, *dq_apart; /* Transformer-XL: strips of q + v, and what its table gives to dq */
    int vector;               /* the term that they are of, or -1 */
    real *by_row;             /* for each panel SPAN rows: what its pairs give to the rows of a table, between zeros */
    uint64_t odd_q;           /* lanes that the strips leave out, where their weights are not NaN too: in logits */
    idx t;                    /* row of the gradients of tables */
    double run[BLOCK_M];
} pe_content_vjp;

/* Room, and the beginning of a block of queries */
void FN(content_vjp_at)(pe_content_vjp *b, const pe_content *c, const real *q_rows, const real *g_rows, real *dq, idx t,
                        char **scratch);
/* and its end: dq is whole after it */
void FN(content_vjp_end)(pe_content_vjp *b, const pe_content *c, const pe_queries *u);
/* CoPE, before the tiles: adds the gates of a tile to c->passed. */
void FN(content_count)(pe_content *c, const pe_queries *u, const pe_keys *k, const pe_panel *p, const pe_bias *bias,
                       const char *keys, idx step);
/* What Shaw's values add to g_i.v_j, or NULL; valid until the next call */
real *FN(content_values_of)(pe_content *c, const pe_queries *u, const pe_keys *k, const pe_panel *p,
                            const pe_bias *bias, const real *g);
/* From   out_i += sum_j p_ij values[row_ij]:   d values[row] += p_ij g_i */
void FN(content_values_vjp)(pe_content_vjp *b, pe_content *c, const pe_queries *u, const pe_keys *k, const pe_panel *p,
                            const pe_bias *bias, const real *weights);
/* TUPE, from the gradient after the cap */
void FN(content_after_vjp)(pe_content_vjp *b, pe_content *c, const pe_queries *u, const pe_keys *k, const pe_panel *p,
                           const pe_bias *bias, const real *ds);
/* CoPE, from the gradient before the cap of a panel */
void FN(content_sums_vjp)(pe_content_vjp *b, pe_content *c, const pe_queries *u, const pe_keys *k, const pe_panel *p,
                          const pe_bias *bias, const char *keys, idx step, const real *dx);
/* Tables that meet the queries, from that of all lanes: panel p sees keys seen[p][0] <= j < seen[p][1] */
void FN(content_tables_vjp)(pe_content_vjp *b, pe_content *c, const pe_queries *u, const pe_keys *k, int (*seen)[2],
                            const real *dx);
/* Tables and vectors that meet the keys from <= j < to: dx is that of all lanes, dk the rows of the tile's keys */
void FN(content_keys_vjp)(pe_content_vjp *b, pe_content *c, const pe_queries *u, const pe_keys *k, const char *keys,
                          idx step, int from, int to, const real *dx, real *dk, int dk_step);

#endif
