/* logits_vjp.c -- gradients of what operators that read q and k add to the logits, from the gradient of that matrix:
 * the tiles of content.h, read from grad(h,n,m). q(h,n,d) k(g,m,d) -> dq(h,n,d) dk(g,m,d). One unit is a kv head.
 */
#include "attention/scores.h"
#include "content/lookup.h"
#include "tile/panel.h"

enum { L_GRAD = A_BIAS + 1, L_DQ, L_DK };

typedef struct {
    int d, padded_d;
    real *q, *q_rows, *dq, *dx, *k_copy, *row, *dk;
    pe_content content;
    pe_content_vjp vjp;
} logits_vjp_state;

/* The gradient of a tile with its queries on lanes, and 0 in lanes that are no queries */
static void read_tile(const pe_view *v, real *dx)
{
    const pe_query_block *u = v->queries;
    const pe_array *a = &u->call->array[L_GRAD];
    const char *grad = u->row.data[L_GRAD] + u->head * a->core[0] + u->first * a->core[1] + v->keys->first * a->core[2];
    for (int i = 0; i < u->panels; i++) {
        const pe_panel *p = &u->panel[i];
        for (int l = 0; l < p->width; l++) {
            const char *row = grad + (p->first + l) * a->core[1];
            real *to = dx + p->first * BLOCK_N + l;
            for (int j = 0; j < v->keys->n; j++)
                to[j * p->width] = l < p->lanes ? (real)scalar_read(row + j * a->core[2], a->storage) : 0;
        }
    }
}

/* The tile of keys `first` ... with its rows as real */
static pe_view tile_at(logits_vjp_state *b, const pe_query_block *u, pe_key_tile *keys, idx first)
{
    const pe_array *a = &u->call->array[A_K];
    pe_view v = {.queries = u, .keys = keys, .k_step = a->core[1]};
    FN(key_tile)(keys, u, first);
    v.k = FN(tile_rows)(stored_rows(u, A_K, first), &v.k_step, a->storage, keys->n, b->d, 2, b->k_copy);
    b->content.index_map = NULL; /* another tile */
    return v;
}

/* From   gate = sigmoid(scale q_i.k_t):   d_gates goes to dq and dk, as in attention's own product */
static void add_gates(logits_vjp_state *b, const pe_view *v)
{
    const pe_query_block *u = v->queries;
    const pe_matrix keys = {v->k, v->k_step};
    const int n = v->keys->n;
    for (int i = 0; i < u->panels; i++) {
        const pe_panel *p = &u->panel[i];
        real *d_gates = b->vjp.d_gates + p->first * BLOCK_N;
        for (int x = 0; x < n * p->width; x++)
            d_gates[x] *= b->content.gate_scale;
        FN(add_rows)(&keys, 0, n, b->d, p->width, d_gates, b->dq + p->first * b->d);
    }
    real *dk = b->dk + v->keys->first * b->padded_d;
    FN(add_outer_of_block)(u, b->vjp.d_gates, b->q_rows, b->d, 0, n, dk, b->padded_d);
}

static void tile_vjp(logits_vjp_state *b, pe_view v)
{
    const int n = v.keys->n;
    pe_content *c = &b->content;
    int seen[PANELS][2];
    read_tile(&v, b->dx);
    for (int i = 0; i < v.queries->panels; i++) {
        const pe_panel_bias all = {0, n, v.queries->panel[i].width, NULL};
        v.panel = &v.queries->panel[i];
        v.visible = &all;
        seen[i][0] = 0;
        seen[i][1] = n;
        if (c->scan)
            FN(content_scan_vjp)(&b->vjp, v, b->dx + v.panel->first * BLOCK_N);
    }
    FN(content_panels_vjp)(&b->vjp, v, seen, b->dx);
    FN(content_keys_vjp)(&b->vjp, v, 0, n, b->dx, b->dk + v.keys->first * b->padded_d, b->padded_d);
    if (c->scan)
        add_gates(b, &v);
}

/* Before the tiles: the sum of all gates. Returns 0 if the call was stopped. */
static int count_gates(logits_vjp_state *b, const pe_query_block *u)
{
    const pe_call *call = u->call;
    pe_key_tile keys;
    for (idx first = 0; first < call->D(m); first += BLOCK_N) {
        if (call->stop && call->stop(call))
            return 0;
        pe_view v = tile_at(b, u, &keys, first);
        for (int i = 0; i < u->panels; i++) {
            const pe_panel_bias all = {0, keys.n, u->panel[i].width, NULL};
            v.panel = &u->panel[i];
            v.visible = &all;
            b->content.scan->count(&b->content, &v);
        }
    }
    return 1;
}

/* Returns 0 if the call was stopped. */
static int block_vjp(logits_vjp_state *b, const pe_query_block *u)
{
    const pe_call *call = u->call;
    pe_key_tile keys;
    const uint64_t nonfinite_q = FN(strips_of)(u, A_Q, b->d, 1, b->q_rows, b->row);
    FN(pack_queries)(u, A_Q, b->d, 1, b->k_copy, b->q);
    memset(b->dq, 0, (size_t)(u->width * b->d) * sizeof(real));
    FN(content_block)(&b->content, u, b->q);
    FN(content_block_vjp)(&b->vjp, &b->content, b->q_rows, NULL, b->dq, u->head);
    b->vjp.nonfinite_q = nonfinite_q;
    b->content.scale = 1;
    b->content.gate_scale = (real)call->par[A_SCALE];
    b->content.ascending = 1;
    if (b->content.scan && !count_gates(b, u))
        return 0;
    for (idx first = 0; first < call->D(m); first += BLOCK_N) {
        if (call->stop && call->stop(call))
            return 0;
        tile_vjp(b, tile_at(b, u, &keys, first));
    }
    FN(content_end_vjp)(&b->vjp, u);
    FN(unpack_queries)(u, L_DQ, b->d, b->dq, 1, NULL, b->k_copy);
    return 1;
}

static void write_keys(const pe_call *call, const pe_row *row, idx group, const logits_vjp_state *b)
{
    const pe_array *a = &call->array[L_DK];
    char *to = row->data[L_DK] + group * a->core[0];
    const real *dk = b->dk;
    for (idx j = 0; j < call->D(m); j++, to += a->core[1], dk += b->padded_d) {
        if (a->storage == PE_STORAGE)
            memcpy(to, dk, (size_t)b->d * sizeof *dk);
        else
            row_write(dk, to, a->storage, b->d);
    }
}

typedef logits_vjp_state logits_vjp_pieces;

static size_t logits_vjp_layout(logits_vjp_pieces *b, const idx *dim, const double *par, char *memory)
{
    pe_carver c = {memory, 0};
    (void)par;
    b->padded_d = strips_width((int)D(d));
    b->q = carve_reals(&c, BLOCK_M * D(d));
    b->q_rows = carve_reals(&c, BLOCK_M * (idx)b->padded_d);
    b->dq = carve_reals(&c, BLOCK_M * D(d));
    b->dx = carve_reals(&c, BLOCK_M * BLOCK_N);
    b->k_copy = carve_reals(&c, (D(d) + ROW_PAD) * BLOCK_N);
    b->row = carve_reals(&c, D(d));
    b->dk = carve_reals(&c, D(m) * b->padded_d);
    FN(content_layout)(&b->content, &b->vjp, dim, &c);
    return c.used;
}
SCRATCH(logits_vjp)

void FN(logits_vjp)(const pe_call *call, idx begin, idx end, const pe_work *work)
{
    const idx heads = call->D(h), groups = call->D(g), share = heads / groups, m = call->D(m);
    const idx blocks = BLOCKS(call->D(n), BLOCK_M);
    logits_vjp_state b;
    pe_query_block u;
    logits_vjp_layout(&b, call->dim, call->par, work->scratch);
    b.d = (int)call->D(d);
    for (idx unit = begin; unit < end; unit++) {
        const idx group = unit % groups;
        const pe_row row = row_at(call, unit / groups);
        memset(b.dk, 0, (size_t)(m * b.padded_d) * sizeof(real));
        for (idx h = group * share; h < (group + 1) * share; h++) {
            for (idx i = 0; i < blocks; i++) {
                FN(query_block)(&u, call, (unit / groups * heads + h) * blocks + i);
                if (!block_vjp(&b, &u))
                    return;
            }
        }
        write_keys(call, &row, group, &b);
    }
}
