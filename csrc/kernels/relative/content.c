/* content.c -- the table of operators that read q and k, and the loops over the operators of a call; see content.h.
 *
 *     for each operator of the call:
 *         if it sets the member:
 *             call the function of the member
 *
 * Drivers call such a loop once per block, tile or panel, so it costs a few comparisons each time.
 */
#include "relative/content.h"

#include "relative/lookup.h"
#include "relative/scan.h"

#include <stddef.h>

#define CONTENT(name, fits, signature) extern const pe_content_operator FN(name##_operator);
#include "ops.def"

const pe_content_operator *const FN(content_operators)[PE_COUNT] = {
#define CONTENT(name, fits, signature) [PE_##name] = &FN(name##_operator),
#include "ops.def"
};

/* The pe_content_operator of operator view->operator_index. If it is a position operator, all members are NULL. */
static const pe_content_operator *stages_of(const pe_view *view)
{
    static const pe_content_operator none = {.query_table = NULL};
    const pe_content_operator *stages = FN(content_operators)[operator_of(view)->entry];
    return stages ? stages : &none;
}

/* `lookup`, or NULL if the caller passed no table */
static const pe_lookup *given(const pe_view *view, const pe_lookup *lookup)
{
    return lookup && operand_of(view, lookup->table)->data ? lookup : NULL;
}

static size_t bytes_of_panel(const pe_view *view)
{
    return (size_t)((view->bias->to - view->bias->from) * view->panel->width) * sizeof(real);
}

/* The address of the first visible key of the panel in a buffer for all lanes of the block */
static real *in_block(real *x, const pe_view *view) { return x + score_offset(view->panel, view->bias->from); }

static void gradient_layout(pe_content_vjp *vjp, const idx *dim, pe_carver *carver)
{
    const idx piece = max_(D(d), CONTENT_PIECE);
    vjp->d_gates = carve_reals(carver, BLOCK_M * BLOCK_N);
    vjp->d_piece = carve_reals(carver, PANEL_LANES * piece);
    vjp->strips = carve_reals(carver, PANEL_LANES * (piece + LANES));
    vjp->q_plus_rows = carve_reals(carver, BLOCK_M * (D(d) + LANES));
    vjp->d_q_plus = carve_reals(carver, BLOCK_M * D(d));
    vjp->by_row = carve_reals(carver, BLOCK_M * BY_ROW);
}

void FN(content_layout)(pe_content *c, pe_content_vjp *vjp, const idx *dim, pe_carver *carver)
{
    const idx piece = max_(D(d), CONTENT_PIECE);
    c->multiplier = carve_reals(carver, BLOCK_M * D(d));
    c->q_plus = carve_reals(carver, BLOCK_M * D(d));
    c->pack = carve_reals(carver, PANEL_LANES * piece);
    c->products = carve_reals(carver, TILE_RELS * PANEL_LANES);
    c->diagonals = carve_reals(carver, TILE_RELS * PANEL_LANES);
    c->added = carve_reals(carver, BLOCK_M * BLOCK_N);
    c->kept = carve_reals(carver, BLOCK_M * PANEL_LANES);
    c->scratch = carve_reals(carver, 2 * BLOCK_N * PANEL_LANES);
    c->gates = carve_reals(carver, BLOCK_N * PANEL_LANES);
    c->index = carve_bytes(carver, (BLOCK_M * BLOCK_N + TILE_RELS) * (idx)sizeof *c->index);
    if (vjp)
        gradient_layout(vjp, dim, carver);
}

/* ---- forward ---- */

void FN(content_block)(pe_content *c, const pe_query_block *queries, const real *q, double scale)
{
    pe_view view = {.queries = queries};
    c->d = (int)queries->call->D(d);
    c->e = (int)queries->call->D(e);
    c->scale = c->packed_scale = (real)scale;
    c->factor = 1;
    c->q = q;
    c->before_cap = c->after_cap = c->values = c->scans = c->ascending = 0;
    c->plus_operator = -1;
    memset(c->kept_rows, 0, sizeof c->kept_rows);
    for (view.operator_index = 0; view.operator_index < view.queries->call->noperators; view.operator_index++) {
        const pe_content_operator *stages = stages_of(&view);
        c->before_cap |= stages->query_table || stages->key_table || stages->scan;
        c->after_cap |= stages->after != NULL;
        c->values |= given(&view, stages->values) != NULL;
        c->scans |= stages->scan != NULL;
    }
    if (c->scans)
        memset(c->passed, 0, sizeof c->passed);
}

const real *FN(content_multiplier)(pe_content *c, const pe_query_block *queries, const real *packed)
{
    const real *multiplier = packed;
    const idx size = queries->width * c->d;
    pe_view view = {.queries = queries};
    for (view.operator_index = 0; view.operator_index < view.queries->call->noperators; view.operator_index++) {
        const pe_lookup *table = given(&view, stages_of(&view)->key_table);
        if (!table || table->map)
            continue;
        if (multiplier == packed && packed)
            memcpy(c->multiplier, packed, (size_t)size * sizeof(real));
        else if (multiplier == packed)
            zero_reals(c->multiplier, size);
        multiplier = c->multiplier;
        FN(add_to_queries)(c, &view, table->table, c->multiplier);
    }
    return multiplier;
}

void FN(content_tile)(pe_content *c, pe_view view)
{
    if (!c->before_cap)
        return;
    zero_reals(c->added, BLOCK_M * BLOCK_N);
    for (view.operator_index = 0; view.operator_index < view.queries->call->noperators; view.operator_index++) {
        const pe_lookup *table = given(&view, stages_of(&view)->key_table);
        if (table && table->map)
            FN(key_table_scores)(c, &view, table);
    }
}

real *FN(content_panel)(pe_content *c, pe_view view)
{
    real *add = in_block(c->added, &view);
    for (view.operator_index = 0; view.operator_index < view.queries->call->noperators; view.operator_index++) {
        const pe_lookup *table = given(&view, stages_of(&view)->query_table);
        if (table)
            FN(query_table_scores)(c, &view, table, add);
    }
    if (!c->scans)
        return add;
    FN(scan_panel)(c, &view);
    for (view.operator_index = 0; view.operator_index < view.queries->call->noperators; view.operator_index++) {
        if (stages_of(&view)->scan)
            stages_of(&view)->scan->add(c, &view, add);
    }
    FN(scan_panel_end)(c, &view);
    return add;
}

/* An operator writes to one of two buffers. merge_bias then adds the sum so far, which is in the bias or in the other
 * buffer. */
pe_panel_bias FN(content_after)(pe_content *c, pe_view view)
{
    pe_panel_bias sum = *view.bias;
    real *out = c->scratch, *other = c->scratch + BLOCK_N * PANEL_LANES;
    for (view.operator_index = 0; view.operator_index < view.queries->call->noperators; view.operator_index++) {
        real *written = out;
        if (!stages_of(&view)->after)
            continue;
        stages_of(&view)->after(c, &view, written);
        merge_bias(written, &sum, view.panel->width);
        sum.add = written;
        sum.step = view.panel->width;
        out = other;
        other = written;
    }
    return sum;
}

void FN(content_values)(pe_content *c, pe_view view, const real *weights, real *o)
{
    for (view.operator_index = 0; view.operator_index < view.queries->call->noperators; view.operator_index++) {
        const pe_lookup *table = given(&view, stages_of(&view)->values);
        if (table)
            FN(value_table_output)(c, &view, table, weights, o);
    }
}

/* ---- gradient ---- */

void FN(content_block_vjp)(pe_content_vjp *vjp, pe_content *c, const real *q_rows, const real *g_rows, real *dq,
                           idx table_row)
{
    vjp->content = c;
    vjp->q_rows = q_rows;
    vjp->g_rows = g_rows;
    vjp->dq = dq;
    vjp->table_row = table_row;
    vjp->plus_operator = -1;
    memset(vjp->d_passed, 0, sizeof vjp->d_passed);
}

const real *FN(content_value_scores)(pe_content *c, pe_view view, const real *g)
{
    real *add = c->scratch;
    memset(add, 0, bytes_of_panel(&view));
    for (view.operator_index = 0; view.operator_index < view.queries->call->noperators; view.operator_index++) {
        const pe_lookup *table = given(&view, stages_of(&view)->values);
        if (table)
            FN(value_table_scores)(c, &view, table, g, add);
    }
    return add;
}

void FN(content_values_vjp)(pe_content_vjp *vjp, pe_view view, const real *weights)
{
    for (view.operator_index = 0; view.operator_index < view.queries->call->noperators; view.operator_index++) {
        const pe_lookup *table = given(&view, stages_of(&view)->values);
        if (table)
            FN(value_table_vjp)(vjp, &view, table, weights);
    }
}

void FN(content_after_vjp)(pe_content_vjp *vjp, pe_view view, const real *ds)
{
    real *copy = vjp->content->scratch;
    for (view.operator_index = 0; view.operator_index < view.queries->call->noperators; view.operator_index++) {
        if (!stages_of(&view)->after_vjp)
            continue;
        memcpy(copy, ds, bytes_of_panel(&view));
        stages_of(&view)->after_vjp(vjp, &view, copy);
    }
}

void FN(content_scan_vjp)(pe_content_vjp *vjp, pe_view view, const real *dx)
{
    memset(in_block(vjp->d_gates, &view), 0, bytes_of_panel(&view));
    for (view.operator_index = 0; view.operator_index < view.queries->call->noperators; view.operator_index++) {
        if (stages_of(&view)->scan)
            stages_of(&view)->scan->vjp(vjp, &view, dx);
    }
    FN(scan_gates_vjp)(vjp, &view, dx);
}

void FN(content_panels_vjp)(pe_content_vjp *vjp, pe_view view, int (*seen)[2], const real *dx)
{
    for (view.operator_index = 0; view.operator_index < view.queries->call->noperators; view.operator_index++) {
        const pe_lookup *table = given(&view, stages_of(&view)->query_table);
        if (table)
            FN(query_table_vjp)(vjp, &view, table, seen, dx);
    }
}

void FN(content_keys_vjp)(pe_content_vjp *vjp, pe_view view, int from, int to, const real *dx, real *dk, int dk_step)
{
    for (view.operator_index = 0; view.operator_index < view.queries->call->noperators; view.operator_index++) {
        const pe_lookup *table = given(&view, stages_of(&view)->key_table);
        if (table)
            (table->map ? FN(key_table_vjp) : FN(key_row_vjp))(vjp, &view, table, from, to, dx, (pe_sums){dk, dk_step});
    }
}
