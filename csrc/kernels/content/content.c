/* content.c -- Shaw, Transformer-XL, DeBERTa, CoPE and TUPE in a tile; see content.h. */
#include "base/elementary.h"
#include "content/lookup.h"

#include <math.h>
#include <stddef.h>

/* ---- the block ---- */

static void add_vector(const real *x, real scale, int d, int width, real *pack)
{
    for (int k = 0; k < d; k++)
        for (int l = 0; l < width; l++)
            pack[k * width + l] += scale * x[k];
}

void FN(content_at)(pe_content *c, const pe_queries *u, const real *q, char **scratch)
{
    const pe_call *call = u->call;
    memset(c, 0, offsetof(pe_content, passed)); /* passed and left are long, and CoPE's */
    c->d = (int)call->D(d);
    c->e = (int)call->D(e);
    c->scale = (real)call->par[A_SCALE];
    c->gate_scale = 1;
    c->q = q;
    c->vector = -1;
    for (int t = 0; t < call->nterms; t++) {
        const int op = call->term[t].op;
        c->by_query += op == PE_shaw || op == PE_transformer_xl || (op == PE_deberta && u->term[t][DEBERTA_K].data);
        c->by_key += op == PE_transformer_xl || (op == PE_deberta && u->term[t][DEBERTA_Q].data);
        c->sums += op == PE_cope;
        c->values += op == PE_shaw && u->term[t][SHAW_V].data;
        c->after += op == PE_tupe;
    }
    if (c->sums)
        memset(c->passed, 0, sizeof c->passed);
    c->packed = carve(scratch, (idx)BLOCK_M * c->d);
    c->shifted = carve(scratch, (idx)BLOCK_M * c->d);
    c->pack = carve(scratch, (idx)PANEL_LANES * max_(c->d, CONTENT_PIECE));
    c->products = carve(scratch, TILE_RELS * PANEL_LANES);
    c->window = carve(scratch, TILE_RELS * PANEL_LANES);
    c->added = carve(scratch, (idx)BLOCK_M * BLOCK_N);
    c->kept = carve(scratch, (idx)BLOCK_M * PANEL_LANES);
    c->weight = carve(scratch, (idx)2 * BLOCK_N * PANEL_LANES);
    c->index = (int32_t *)(void *)carve(scratch, (idx)BLOCK_M * BLOCK_N + TILE_RELS);
}

const real *FN(content_queries)(pe_content *c, const pe_queries *u)
{
    int some = 0;
    for (int t = 0; t < u->call->nterms; t++) {
        if (u->call->term[t].op != PE_transformer_xl)
            continue;
        if (!some++)
            memcpy(c->packed, c->q, (size_t)(u->width * c->d) * sizeof(real));
        for (int p = 0; p < u->panels; p++)
            add_vector(vector_of(u, t, XL_U), c->scale, c->d, u->panel[p].width, c->packed + u->panel[p].first * c->d);
    }
    return some ? c->packed : c->q;
}

/* ---- DeBERTa's keys ---- */

/* add[j, l] += scale product[row - low, j]: from the lanes of the keys to those of the queries */
static void fetch_keys(const pe_content *c, const pe_queries *u, const pe_rows *r, int first, int keys, int low, int n)
{
    for (int p = 0; p < u->panels; p++)
        for (int j = 0; j < keys; j++) {
            const int width = u->panel[p].width;
            const int32_t *row = r->row + (first + j) * r->step + u->panel[p].first;
            real *add = c->added + u->panel[p].first * BLOCK_N + (first + j) * width;
            SIMD
            for (int l = 0; l < width; l++) {
                const int t = row[l] - low, inside = (t >= 0) & (t < n);
                const real x = c->products[(inside ? t : 0) * PANEL_LANES + j];
                add[l] += inside ? c->scale * x : 0;
            }
        }
}

/* The same where rows are a window. Its products, turned, have all that a key adds in one row: lane l of key j takes
 * number l + keys - 1 - j. */
static void fetch_window(const pe_content *c, const pe_queries *u, int first, int keys)
{
    const int count = keys + u->width - 1;
    real *turned = c->weight;
    unpack_transposed(c->window, PANEL_LANES, keys, count, c->scale, NULL, (char *)turned, count * (idx)sizeof *turned);
    for (int p = 0; p < u->panels; p++)
        for (int j = 0; j < keys; j++) {
            const int width = u->panel[p].width;
            real *add = c->added + u->panel[p].first * BLOCK_N + (first + j) * width;
            const real *x = turned + j * count + (keys - 1 - j) + u->panel[p].first;
            for (int l = 0; l < width; l += LANES)
                vec_store(add + l, vec_add(vec_load(add + l), vec_load(x + l)));
        }
}

void FN(content_keys)(pe_content *c, const pe_queries *u, const pe_keys *k, const char *keys, idx step)
{
    c->held = NULL;
    memset(c->added, 0, (size_t)(BLOCK_M * BLOCK_N) * sizeof(real));
    for (int t = 0; t < u->call->nterms; t++) {
        if (u->call->term[t].op != PE_deberta || !u->term[t][DEBERTA_Q].data)
            continue;
        const pe_table_rows table = table_of(u, t, DEBERTA_Q);
        const pe_rows r = rows_of(c, &u->term[t][DEBERTA_Q_ROWS], u->call->term[t].dim, u, k, 0, u->width);
        for (int first = 0; first < k->n; first += PANEL_LANES) {
            const int some = (int)min_(PANEL_LANES, k->n - first);
            int low, high;
            pack_transposed(keys + first * step, step, some, c->d, 1, PANEL_LANES,
                            c->pack); /* keys stand on lanes here */
            range(&r, first, first + some, u->width, &low, &high);
            for (; low <= high; low += TILE_RELS) {
                const int n = (int)min_(TILE_RELS, high - low + 1);
                products(&table, low, n, c->d, c->pack, PANEL_LANES, c->products);
                if (r.step == -1)
                    window_of(r.row - (first + some - 1), some + u->width - 1, low, n, PANEL_LANES, c->products,
                              c->window);
                else
                    fetch_keys(c, u, &r, first, some, low, n);
            }
            if (r.step == -1)
                fetch_window(c, u, first, some);
        }
    }
}

/* ---- CoPE ---- */

/* sigmoid(scale q_i.k_t) where key t counts for query i: visible, and not after it; else 0 */
void FN(content_gates)(const pe_content *c, const pe_queries *u, const pe_keys *k, const pe_panel *p,
                       const pe_bias *bias, const char *keys, idx step, real *gate)
{
    const int width = p->width, n = bias->to - bias->from;
    const pe_table_rows rows = {keys + bias->from * step, step};
    products(&rows, 0, n, c->d, c->q + p->first * c->d, width, gate);
    SIMD
    for (int i = 0; i < n * width; i++)
        gate[i] = R(0.5) + R(0.5) * tanh_(R(0.5) * c->gate_scale * gate[i]);
    for (int j = 0; j < n; j++)
        for (int l = 0; l < width; l++) {
            const int hidden = bias->add && bias->add[j * bias->step + l] == MASKED;
            if (hidden || !(k->position[bias->from + j] <= u->position[p->first + l]))
                gate[j * width + l] = 0;
        }
}

void FN(content_count)(pe_content *c, const pe_queries *u, const pe_keys *k, const pe_panel *p, const pe_bias *bias,
                       const char *keys, idx step)
{
    FN(content_gates)(c, u, k, p, bias, keys, step, c->weight);
    for (int j = 0; j < bias->to - bias->from; j++)
        for (int l = 0; l < p->width; l++)
            c->passed[p->first + l] += (double)c->weight[j * p->width + l];
}

/* p_ij = min(sum of the gates t >= j, P - 1): whole part to index, fraction and its complement to weight. The sum is
 * in double: P may be thousands, a gate is below 1. Where tiles ascend, `passed` has the gates of this tile too. */
void FN(content_positions)(pe_content *c, const pe_queries *u, const pe_keys *k, const pe_panel *p, const pe_bias *bias,
                           const char *keys, idx step, int last)
{
    const int width = p->width, n = bias->to - bias->from;
    real *fraction = c->weight, *rest = fraction + BLOCK_N * PANEL_LANES;
    double sum[PANEL_LANES];
    c->held = NULL; /* index is of use here */
    FN(content_gates)(c, u, k, p, bias, keys, step, fraction);
    for (int l = 0; l < width; l++) {
        sum[l] = c->passed[p->first + l];
        for (int j = 0; c->ascending && j < n; j++)
            sum[l] -= (double)fraction[j * width + l];
    }
    for (int j = n - 1; j >= 0; j--)
        for (int l = 0; l < width; l++) {
            sum[l] += (double)fraction[j * width + l];
            const double at = sum[l] < last ? sum[l] > 0 ? sum[l] : 0 : sum[l] >= last ? last : 0; /* NaN: any row */
            const int whole = (int)at;
            c->index[j * width + l] = whole;
            fraction[j * width + l] = (real)(at - whole);
            rest[j * width + l] = (real)(1 - (at - whole));
        }
    memcpy(c->left, sum, (size_t)width * sizeof *sum);
}

static void add_sums(pe_content *c, const pe_queries *u, const pe_keys *k, const pe_panel *p, const pe_bias *bias,
                     const char *keys, idx step, real *add)
{
    for (int t = 0; t < u->call->nterms; t++) {
        if (u->call->term[t].op != PE_cope)
            continue;
        const int last = (int)u->call->term[t].D(P) - 1, n = bias->to - bias->from;
        const pe_table_rows table = table_of(u, t, COPE_TABLE);
        const pe_rows r = {c->index, p->width};
        FN(content_positions)(c, u, k, p, bias, keys, step, last);
        add_products(c, &table, &r, 0, n, c->d, c->q + p->first * c->d, p, c->weight + BLOCK_N * PANEL_LANES, add);
        for (int i = 0; i < n * p->width; i++)
            c->index[i] += c->index[i] < last;
        add_products(c, &table, &r, 0, n, c->d, c->q + p->first * c->d, p, c->weight, add);
    }
    if (!c->ascending)
        memcpy(c->passed + p->first, c->left, (size_t)p->width * sizeof *c->left);
}

/* ---- a panel ---- */

/* The block's queries plus Transformer-XL's v; kept, of the term that came last */
static const real *with_vector(pe_content *c, const pe_queries *u, int term)
{
    if (c->vector != term) {
        memcpy(c->shifted, c->q, (size_t)(u->width * c->d) * sizeof(real));
        for (int p = 0; p < u->panels; p++)
            add_vector(vector_of(u, term, XL_V), c->scale, c->d, u->panel[p].width,
                       c->shifted + u->panel[p].first * c->d);
        c->vector = term;
    }
    return c->shifted;
}

real *FN(content_tile)(pe_content *c, const pe_queries *u, const pe_keys *k, const pe_panel *p, const pe_bias *bias,
                       const char *keys, idx step)
{
    real *add = c->added + p->first * BLOCK_N + bias->from * p->width;
    for (int t = 0; t < u->call->nterms; t++) {
        const int op = u->call->term[t].op;
        const real *pack = c->q + p->first * c->d;
        int table = SHAW_K, rows = SHAW_ROWS;
        if (op == PE_transformer_xl) {
            pack = with_vector(c, u, t) + p->first * c->d;
            table = XL_R;
            rows = XL_ROWS;
        } else if (op == PE_deberta && u->term[t][DEBERTA_K].data) {
            table = DEBERTA_K;
            rows = DEBERTA_ROWS;
        } else if (op != PE_shaw) {
            continue;
        }
        const pe_table_rows from = table_of(u, t, table);
        const pe_rows r = rows_of(c, &u->term[t][rows], u->call->term[t].dim, u, k, p->first, p->width);
        add_products(c, &from, &r, bias->from, bias->to, c->d, pack, p, NULL, add);
    }
    if (c->sums)
        add_sums(c, u, k, p, bias, keys, step, add);
    return add;
}

/* ---- TUPE ---- */

static void position_products(pe_content *c, const pe_queries *u, const pe_keys *k, const pe_panel *p,
                              const pe_bias *bias, int term, real *out)
{
    const pe_table_rows keys = table_of(u, term, TUPE_K);
    const int n = bias->to - bias->from;
    const idx depth = u->call->term[term].D(P);
    real unused[PANEL_LANES] = {0};
    memset(out, 0, (size_t)(n * p->width) * sizeof(real));
    for (idx piece = 0; piece < depth; piece += CONTENT_PIECE) {
        const int some = (int)min_(CONTENT_PIECE, depth - piece);
        const pe_table_rows q = positions_of(u, p, term, piece);
        pack_transposed(q.data, q.step, p->lanes, some, position_factor(u, term), p->width, c->pack);
        const pe_scores w = {.k = keys.data + (k->first + bias->from) * keys.step + piece * (idx)sizeof(real),
                             .k_step = keys.step,
                             .d = some,
                             .q = c->pack,
                             .bias = out,
                             .bias_step = p->width,
                             .s = out,
                             .top = unused};
        (p->width == PANEL_LANES ? scores_wide : scores_narrow)(&w, n);
    }
    if (u->term[term][TUPE_ANY_TO_CLS].data && k->first + bias->from == 0)
        for (int l = 0; l < p->width; l++)
            out[l] = vector_of(u, term, TUPE_ANY_TO_CLS)[0];
    if (u->term[term][TUPE_CLS_TO_ANY].data && u->first + p->first == 0)
        for (int j = 0; j < n; j++)
            out[j * p->width] = vector_of(u, term, TUPE_CLS_TO_ANY)[0];
}

pe_bias FN(content_after)(pe_content *c, const pe_queries *u, const pe_keys *k, const pe_panel *p, const pe_bias *bias)
{
    pe_bias b = *bias;
    real *out = c->weight, *other = c->weight + BLOCK_N * PANEL_LANES;
    for (int t = 0; t < u->call->nterms; t++) {
        if (u->call->term[t].op != PE_tupe)
            continue;
        position_products(c, u, k, p, bias, t, out);
        merge_bias(out, &b, p->width);
        b.add = out;
        b.step = p->width;
        out = other;
        other = (real *)b.add;
    }
    return b;
}

/* ---- Shaw's values ---- */

void FN(content_values)(pe_content *c, const pe_queries *u, const pe_keys *k, const pe_panel *p, const pe_bias *bias,
                        const real *weights, real *o)
{
    const int width = p->width;
    for (int t = 0; t < u->call->nterms; t++) {
        if (u->call->term[t].op != PE_shaw || !u->term[t][SHAW_V].data)
            continue;
        const pe_table_rows table = table_of(u, t, SHAW_V);
        const pe_rows r = rows_of(c, &u->term[t][SHAW_ROWS], u->call->term[t].dim, u, k, p->first, width);
        int low, high;
        range(&r, bias->from, bias->to, width, &low, &high);
        for (; low <= high; low += TILE_RELS) {
            const int n = (int)min_(TILE_RELS, high - low + 1);
            add_by_row(c, &r, bias->from, bias->to, low, n, width, weights, NULL, 1, c->products);
            add_table(&table, low, n, c->e, width, c->products, o);
        }
    }
}
