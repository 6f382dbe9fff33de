/* content.c -- the table of operators that read q and k, and the loops over those of a call; see content.h. */
#include "relative/content.h"

#include "relative/lookup.h"
#include "tile/outer.h"

#include <stddef.h>

#define CONTENT(name, fits, signature) extern const pe_content_op FN(name##_op);
#include "ops.def"

const pe_content_op *const FN(content_op)[PE_COUNT] = {
#define CONTENT(name, fits, signature) [PE_##name] = &FN(name##_op),
#include "ops.def"
};

/* The hooks of operator v->term: none are set if it does not read q and k. */
static const pe_content_op *hooks(const pe_view *v)
{
    static const pe_content_op none = {.queries = NULL};
    return operator_of(v) ? operator_of(v) : &none;
}

/* For each operator of the call that has the hook, in their order: v.term is its number. */
#define FOR_EACH(hook)                                           \
    for (v.term = 0; v.term < v.queries->call->nterms; v.term++) \
        if (hooks(&v)->hook)

static int has_values(const pe_view *v) { return v->queries->term[v->term][hooks(v)->values_operand].data != NULL; }

static size_t bytes_of_panel(const pe_view *v)
{
    return (size_t)((v->visible->to - v->visible->from) * v->panel->width) * sizeof(real);
}

/* The panel's first visible key in a buffer for all lanes of the block */
static real *in_block(real *x, const pe_view *v)
{
    return x + v->panel->first * BLOCK_N + v->visible->from * v->panel->width;
}

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

void FN(content_block)(pe_content *c, const pe_query_block *u, const real *q)
{
    pe_view v = {.queries = u};
    c->d = (int)u->call->D(d);
    c->e = (int)u->call->D(e);
    c->scale = (real)u->call->par[A_SCALE];
    c->gate_scale = 1;
    c->q = q;
    c->before_cap = c->after_cap = c->values = c->ascending = 0;
    c->scan = NULL;
    c->shifted_term = -1;
    c->index_map = NULL;
    memset(c->kept_rows, 0, sizeof c->kept_rows);
    memset(c->passed, 0, sizeof c->passed);
    for (v.term = 0; v.term < u->call->nterms; v.term++) {
        const pe_content_op *op = hooks(&v);
        c->before_cap |= op->queries || op->keys || op->panel || op->scan;
        c->after_cap |= op->after != NULL;
        c->values |= op->values && has_values(&v);
        c->scan = op->scan ? op : c->scan;
    }
}

const real *FN(content_multiplier)(pe_content *c, const pe_query_block *u)
{
    const real *multiplier = c->q;
    pe_view v = {.queries = u};
    FOR_EACH(queries)
    {
        if (multiplier == c->q)
            multiplier = memcpy(c->multiplier, c->q, (size_t)(u->width * c->d) * sizeof(real));
        hooks(&v)->queries(c, &v, c->multiplier);
    }
    return multiplier;
}

void FN(content_tile)(pe_content *c, pe_view v)
{
    c->index_map = NULL;
    if (!c->before_cap)
        return;
    zero_reals(c->added, BLOCK_M * BLOCK_N);
    FOR_EACH(keys) hooks(&v)->keys(c, &v);
}

real *FN(content_panel)(pe_content *c, pe_view v)
{
    real *add = in_block(c->added, &v);
    FOR_EACH(panel) hooks(&v)->panel(c, &v, add);
    FOR_EACH(scan) hooks(&v)->scan(c, &v, add);
    if (c->scan)
        c->scan->scan_done(c, &v);
    return add;
}

/* Two buffers take turns: an operator writes to one, and the sum of those before is added from the other. */
pe_panel_bias FN(content_after)(pe_content *c, pe_view v)
{
    pe_panel_bias sum = *v.visible;
    real *out = c->weight, *other = c->weight + BLOCK_N * PANEL_LANES;
    FOR_EACH(after)
    {
        real *written = out;
        hooks(&v)->after(c, &v, written);
        merge_bias(written, &sum, v.panel->width);
        sum.add = written;
        sum.step = v.panel->width;
        out = other;
        other = written;
    }
    return sum;
}

void FN(content_values)(pe_content *c, pe_view v, const real *weights, real *o)
{
    FOR_EACH(values && has_values(&v)) hooks(&v)->values(c, &v, weights, o);
}

/* ---- gradient ---- */

void FN(content_block_vjp)(pe_content_vjp *b, pe_content *c, const real *q_rows, const real *g_rows, real *dq,
                           idx table_row)
{
    b->content = c;
    b->q_rows = q_rows;
    b->g_rows = g_rows;
    b->nonfinite_q = 0;
    b->dq = dq;
    b->table_row = table_row;
    b->shifted_term = -1;
    memset(b->d_passed, 0, sizeof b->d_passed);
}

const real *FN(content_value_scores)(pe_content *c, pe_view v, const real *g)
{
    real *add = c->weight;
    memset(add, 0, bytes_of_panel(&v));
    FOR_EACH(value_scores && has_values(&v)) hooks(&v)->value_scores(c, &v, g, add);
    return add;
}

void FN(content_values_vjp)(pe_content_vjp *b, pe_view v, const real *weights)
{
    FOR_EACH(values_vjp) hooks(&v)->values_vjp(b, &v, weights);
}

void FN(content_after_vjp)(pe_content_vjp *b, pe_view v, const real *ds)
{
    FOR_EACH(after_vjp) hooks(&v)->after_vjp(b, &v, memcpy(b->content->weight, ds, bytes_of_panel(&v)));
}

void FN(content_scan_vjp)(pe_content_vjp *b, pe_view v, const real *dx)
{
    memset(in_block(b->d_gates, &v), 0, bytes_of_panel(&v));
    FOR_EACH(scan_vjp) hooks(&v)->scan_vjp(b, &v, dx);
    b->content->scan->gates_vjp(b, &v, dx);
}

void FN(content_panels_vjp)(pe_content_vjp *b, pe_view v, int (*seen)[2], const real *dx)
{
    FOR_EACH(panels_vjp) hooks(&v)->panels_vjp(b, &v, seen, dx);
}

void FN(content_keys_vjp)(pe_content_vjp *b, pe_view v, int from, int to, const real *dx, real *dk, int dk_step)
{
    FOR_EACH(keys_vjp) hooks(&v)->keys_vjp(b, &v, from, to, dx, dk, dk_step);
}

void FN(content_end_vjp)(pe_content_vjp *b, const pe_query_block *u)
{
    pe_view v = {.queries = u};
    FOR_EACH(block_vjp) hooks(&v)->block_vjp(b, &v);
}
