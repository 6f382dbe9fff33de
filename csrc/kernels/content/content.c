/* content.c -- the table of operators that read q and k, and the loops over those of a call; see content.h. */
#include "content/content.h"

#include "content/lookup.h"
#include "tile/outer.h"

#include <stddef.h>

#define CONTENT(name, fits, signature) extern const pe_content_op FN(name##_op);
#include "ops.def"

const pe_content_op *const FN(content_op)[PE_COUNT] = {
#define CONTENT(name, fits, signature) [PE_##name] = &FN(name##_op),
#include "ops.def"
};

/* The hooks of an operator of the call: none are set if it does not read q and k. */
static const pe_content_op *hooks(const pe_query_block *u, int term)
{
    static const pe_content_op none = {.queries = NULL};
    const pe_content_op *op = FN(content_op)[u->call->term[term].op];
    return op ? op : &none;
}

static int terms_of(const pe_tile *t) { return t->queries->call->nterms; }

void FN(content_layout)(pe_content *c, pe_content_vjp *b, const idx *dim, pe_carver *carver)
{
    const idx piece = max_(D(d), CONTENT_PIECE);
    c->multiplier = carve_reals(carver, BLOCK_M * D(d));
    c->shifted = carve_reals(carver, BLOCK_M * D(d));
    c->pack = carve_reals(carver, PANEL_LANES * piece);
    c->products = carve_reals(carver, TILE_RELS * PANEL_LANES);
    c->window = carve_reals(carver, TILE_RELS * PANEL_LANES);
    c->added = carve_reals(carver, BLOCK_M * BLOCK_N);
    c->kept = carve_reals(carver, BLOCK_M * PANEL_LANES);
    c->weight = carve_reals(carver, 2 * BLOCK_N * PANEL_LANES);
    c->index = carve_bytes(carver, (BLOCK_M * BLOCK_N + TILE_RELS) * (idx)sizeof *c->index);
    if (!b)
        return;
    b->d_gates = carve_reals(carver, BLOCK_M * BLOCK_N);
    b->sum = carve_reals(carver, PANEL_LANES * piece);
    b->strips = carve_reals(carver, PANEL_LANES * (piece + LANES));
    b->shifted = carve_reals(carver, BLOCK_M * (D(d) + LANES));
    b->shifted_dq = carve_reals(carver, BLOCK_M * D(d));
    b->by_row = carve_reals(carver, BLOCK_M * BY_ROW);
}

/* ---- forward ---- */

static void note_hooks(pe_content *c, const pe_query_block *u)
{
    for (int term = 0; term < u->call->nterms; term++) {
        const pe_content_op *op = hooks(u, term);
        c->before_cap |= op->queries || op->keys || op->panel || op->scan;
        c->after_cap |= op->after != NULL;
        c->values |= op->values && u->term[term][op->values_operand].data;
        c->scan = op->scan ? op : c->scan;
    }
}

void FN(content_block)(pe_content *c, const pe_query_block *u, const real *q)
{
    const pe_call *call = u->call;
    c->d = (int)call->D(d);
    c->e = (int)call->D(e);
    c->scale = (real)call->par[A_SCALE];
    c->gate_scale = 1;
    c->q = q;
    c->before_cap = c->after_cap = c->values = c->ascending = 0;
    c->scan = NULL;
    c->shifted_term = -1;
    c->index_map = NULL;
    memset(c->kept_rows, 0, sizeof c->kept_rows);
    note_hooks(c, u);
    if (c->scan)
        memset(c->passed, 0, sizeof c->passed);
}

const real *FN(content_multiplier)(pe_content *c, const pe_query_block *u)
{
    const real *multiplier = c->q;
    for (int term = 0; term < u->call->nterms; term++) {
        if (!hooks(u, term)->queries)
            continue;
        if (multiplier == c->q)
            multiplier = memcpy(c->multiplier, c->q, (size_t)(u->width * c->d) * sizeof(real));
        hooks(u, term)->queries(c, u, term, c->multiplier);
    }
    return multiplier;
}

void FN(content_tile)(pe_content *c, const pe_tile *t)
{
    c->index_map = NULL;
    memset(c->added, 0, (size_t)(BLOCK_M * BLOCK_N) * sizeof(real));
    for (int term = 0; term < terms_of(t); term++) {
        if (hooks(t->queries, term)->keys)
            hooks(t->queries, term)->keys(c, t, term);
    }
}

real *FN(content_panel)(pe_content *c, const pe_tile *t, const pe_panel *p, const pe_panel_bias *visible)
{
    real *add = c->added + p->first * BLOCK_N + visible->from * p->width;
    for (int term = 0; term < terms_of(t); term++) {
        if (hooks(t->queries, term)->panel)
            hooks(t->queries, term)->panel(c, t, p, visible, term, add);
    }
    if (c->scan) {
        for (int term = 0; term < terms_of(t); term++) {
            if (hooks(t->queries, term)->scan)
                hooks(t->queries, term)->scan(c, t, p, visible, term, add);
        }
        c->scan->scan_done(c, p);
    }
    return add;
}

/* Two buffers take turns: an operator writes to one, and what was there before is added from the other. */
pe_panel_bias FN(content_after)(pe_content *c, const pe_tile *t, const pe_panel *p, const pe_panel_bias *bias)
{
    pe_panel_bias sum = *bias;
    real *out = c->weight, *other = c->weight + BLOCK_N * PANEL_LANES;
    for (int term = 0; term < terms_of(t); term++) {
        const pe_content_op *op = hooks(t->queries, term);
        if (!op->after)
            continue;
        real *written = out;
        op->after(c, t, p, bias, term, written);
        merge_bias(written, &sum, p->width);
        sum.add = written;
        sum.step = p->width;
        out = other;
        other = written;
    }
    return sum;
}

void FN(content_values)(pe_content *c, const pe_tile *t, const pe_panel *p, const pe_panel_bias *visible,
                        const real *weights, real *o)
{
    for (int term = 0; term < terms_of(t); term++) {
        const pe_content_op *op = hooks(t->queries, term);
        if (op->values && t->queries->term[term][op->values_operand].data)
            op->values(c, t, p, visible, term, weights, o);
    }
}

/* ---- gradient ---- */

void FN(content_block_vjp)(pe_content_vjp *b, const real *q_rows, const real *g_rows, real *dq, idx table_row)
{
    b->q_rows = q_rows;
    b->g_rows = g_rows;
    b->nonfinite_q = 0;
    b->dq = dq;
    b->table_row = table_row;
    b->shifted_term = -1;
    memset(b->d_passed, 0, sizeof b->d_passed);
}

const real *FN(content_value_scores)(pe_content *c, const pe_tile *t, const pe_panel *p, const pe_panel_bias *visible,
                                     const real *g)
{
    real *add = c->weight;
    memset(add, 0, (size_t)((visible->to - visible->from) * p->width) * sizeof *add);
    for (int term = 0; term < terms_of(t); term++) {
        const pe_content_op *op = hooks(t->queries, term);
        if (op->value_scores && t->queries->term[term][op->values_operand].data)
            op->value_scores(c, t, p, visible, term, g, add);
    }
    return add;
}

void FN(content_values_vjp)(pe_content_vjp *b, pe_content *c, const pe_tile *t, const pe_panel *p,
                            const pe_panel_bias *visible, const real *weights)
{
    for (int term = 0; term < terms_of(t); term++) {
        if (hooks(t->queries, term)->values_vjp)
            hooks(t->queries, term)->values_vjp(b, c, t, p, visible, term, weights);
    }
}

void FN(content_after_vjp)(pe_content_vjp *b, pe_content *c, const pe_tile *t, const pe_panel *p,
                           const pe_panel_bias *visible, const real *ds)
{
    for (int term = 0; term < terms_of(t); term++) {
        const pe_content_op *op = hooks(t->queries, term);
        if (!op->after_vjp)
            continue;
        memcpy(c->weight, ds, (size_t)((visible->to - visible->from) * p->width) * sizeof *ds);
        op->after_vjp(b, c, t, p, visible, term, c->weight);
    }
}

void FN(content_scan_vjp)(pe_content_vjp *b, pe_content *c, const pe_tile *t, const pe_panel *p,
                          const pe_panel_bias *visible, const real *dx)
{
    const int size = (visible->to - visible->from) * p->width;
    memset(b->d_gates + p->first * BLOCK_N + visible->from * p->width, 0, (size_t)size * sizeof(real));
    for (int term = 0; term < terms_of(t); term++) {
        if (hooks(t->queries, term)->scan_vjp)
            hooks(t->queries, term)->scan_vjp(b, c, t, p, visible, term, dx);
    }
    c->scan->gates_vjp(b, c, t, p, visible, dx);
}

void FN(content_panels_vjp)(pe_content_vjp *b, pe_content *c, const pe_tile *t, int (*seen)[2], const real *dx)
{
    for (int term = 0; term < terms_of(t); term++) {
        if (hooks(t->queries, term)->panels_vjp)
            hooks(t->queries, term)->panels_vjp(b, c, t, seen, term, dx);
    }
}

void FN(content_keys_vjp)(pe_content_vjp *b, pe_content *c, const pe_tile *t, int from, int to, const real *dx,
                          real *dk, int dk_step)
{
    for (int term = 0; term < terms_of(t); term++) {
        if (hooks(t->queries, term)->keys_vjp)
            hooks(t->queries, term)->keys_vjp(b, c, t, from, to, term, dx, dk, dk_step);
    }
}

void FN(content_end_vjp)(pe_content_vjp *b, const pe_content *c, const pe_query_block *u)
{
    for (int term = 0; term < u->call->nterms; term++) {
        if (hooks(u, term)->block_vjp)
            hooks(u, term)->block_vjp(b, c, u, term);
    }
}
