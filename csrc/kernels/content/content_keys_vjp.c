/* content_keys_vjp.c -- gradients of what meets the keys: DeBERTa's second table and Transformer-XL's u.
 *
 *     x_ij += scale k_j . table[row_ij],   x_ij += scale u . k_j
 *
 * As in content_vjp.c, but that here a group of keys stands on the lanes.
 */
#include "content/gradient.h"

/* sum[r] += the lanes of row r; lanes that are no query hold 0 */
static void add_lanes(const real *w, int n, int width, real *sum)
{
    for (int r = 0; r < n; r += LANES) {
        vec acc[LANES];
        real some[LANES];
        for (int i = 0; i < LANES; i++) {
            const real *row = w + min_(r + i, n - 1) * width;
            acc[i] = vec_load(row);
            if (width == PANEL_LANES)
                acc[i] = vec_add(acc[i], vec_load(row + LANES));
        }
        vec_store(some, vec_sums(acc));
        for (int i = 0; i < LANES && r + i < n; i++)
            sum[r + i] += some[i];
    }
}

/* Some keys as strips, times scale, and whether numbers that are not finite were left out: 0 * NaN would reach the rows
 * that such a key does not take. */
static int key_strips(pe_content_vjp *b, const pe_content *c, const char *keys, idx step, int n)
{
    int odd = 0;
    for (int j = 0; j < n; j++)
        odd |= strip_row(row_number(keys, step, j), c->d, c->scale, b->strips, PANEL_LANES, j);
    return odd;
}

/* What they left out, to the rows that such a key takes */
static void add_odd_numbers(const pe_content *c, const char *keys, idx step, int some, const real *w, int n, real *rows,
                            idx d_step)
{
    for (int j = 0; j < some; j++) {
        const real *row = (const real *)(const void *)(keys + j * step);
        for (int k = 0; k < c->d; k++)
            for (int i = 0; i < n && !(c->scale * row[k] - c->scale * row[k] == 0); i++)
                if (w[i * PANEL_LANES + j] != 0)
                    rows[i * d_step + k] += w[i * PANEL_LANES + j] * (c->scale * row[k]);
    }
}

/* w[row - low][key] += the dx of all lanes */
static void add_pairs_by_row(const pe_queries *u, const pe_rows *r, int first, int keys, int low, int n, const real *dx,
                             real *w)
{
    for (int p = 0; p < u->panels; p++)
        for (int j = 0; j < keys; j++) {
            const int width = u->panel[p].width;
            const int32_t *row = r->row + (first + j) * r->step + u->panel[p].first;
            const real *x = dx + u->panel[p].first * BLOCK_N + (first + j) * width;
            for (int l = 0; l < width; l++)
                if (row[l] >= low && row[l] - low < n)
                    w[(row[l] - low) * PANEL_LANES + j] += x[l];
        }
}

/* The same where rows are a window: see fetch_window */
static void add_window_by_row(const pe_content *c, const pe_queries *u, const pe_rows *r, int first, int keys, int low,
                              int n, const real *dx, real *w)
{
    const int count = keys + u->width - 1;
    const int32_t *row = r->row - (first + keys - 1);
    real *turned = c->weight;
    memset(turned, 0, (size_t)(keys * count) * sizeof *turned);
    for (int p = 0; p < u->panels; p++)
        for (int j = 0; j < keys; j++)
            memcpy(turned + j * count + (keys - 1 - j) + u->panel[p].first,
                   dx + u->panel[p].first * BLOCK_N + (first + j) * u->panel[p].width,
                   (size_t)u->panel[p].width * sizeof *dx);
    pack_transposed((const char *)turned, count * (idx)sizeof *turned, keys, count, 1, PANEL_LANES, c->window);
    for (int i = 0; i < count; i++)
        for (int l = 0; l < PANEL_LANES && row[i] >= low && row[i] - low < n; l++)
            w[(row[i] - low) * PANEL_LANES + l] += c->window[i * PANEL_LANES + l];
}

/* From   x_ij += scale k_j . table[row_ij] */
static void key_table_vjp(pe_content_vjp *b, pe_content *c, const pe_queries *u, const pe_keys *k, int term,
                          const char *keys, idx step, int from, int to, const real *dx, real *dk, int dk_step)
{
    const pe_table_rows table = table_of(u, term, DEBERTA_Q);
    const pe_rows r = rows_of(c, &u->term[term][DEBERTA_Q_ROWS], u->call->term[term].dim, u, k, 0, u->width);
    char *into = gradient_of(b, u, term, DEBERTA_DQ);
    const idx d_step = row_step(u, term, DEBERTA_DQ);
    for (int first = from; first < to; first += PANEL_LANES) {
        const int some = (int)min_(PANEL_LANES, to - first);
        int low, high;
        range(&r, first, first + some, u->width, &low, &high);
        const int odd = key_strips(b, c, keys + first * step, step, some);
        for (; low <= high; low += TILE_RELS) {
            const int n = (int)min_(TILE_RELS, high - low + 1);
            real *w = c->products;
            memset(w, 0, (size_t)(n * PANEL_LANES) * sizeof *w);
            if (r.step == -1)
                add_window_by_row(c, u, &r, first, some, low, n, dx, w);
            else
                add_pairs_by_row(u, &r, first, some, low, n, dx, w);
            memset(b->sum, 0, (size_t)(c->d * PANEL_LANES) * sizeof(real));
            add_table(&table, low, n, c->d, PANEL_LANES, w, b->sum);
            unpack_transposed(b->sum, PANEL_LANES, some, c->d, c->scale, NULL, (char *)c->pack,
                              c->d * (idx)sizeof(real));
            for (int j = 0; j < some; j++)
                for (int d = 0; d < c->d; d++)
                    dk[(first + j) * dk_step + d] += c->pack[j * c->d + d];
            if (!into)
                continue;
            real *rows = (real *)(void *)(into + low * d_step);
            add_outer_rows(0, some, PANEL_LANES, w, b->strips, PANEL_LANES, c->d, n, rows, d_step / (idx)sizeof(real));
            if (odd)
                add_odd_numbers(c, keys + first * step, step, some, w, n, rows, d_step / (idx)sizeof(real));
        }
    }
}

void FN(content_keys_vjp)(pe_content_vjp *b, pe_content *c, const pe_queries *u, const pe_keys *k, const char *keys,
                          idx step, int from, int to, const real *dx, real *dk, int dk_step)
{
    for (int t = 0; t < u->call->nterms; t++) {
        const int op = u->call->term[t].op;
        if (op == PE_deberta && u->term[t][DEBERTA_Q].data)
            key_table_vjp(b, c, u, k, t, keys, step, from, to, dx, dk, dk_step);
        if (op != PE_transformer_xl)
            continue;
        const real *x = vector_of(u, t, XL_U);
        double *d_u = (double *)(void *)gradient_of(b, u, t, XL_DU);
        real sum[BLOCK_N] = {0};
        for (int p = 0; p < u->panels; p++) {
            const int width = u->panel[p].width;
            add_lanes(dx + u->panel[p].first * BLOCK_N + from * width, to - from, width, sum);
        }
        for (int j = from; j < to; j++) { /* x_ij += scale u.k_j */
            const real *key = (const real *)(const void *)(keys + j * step);
            const real all = c->scale * sum[j - from];
            for (int d = 0; d < c->d && all != 0; d++) {
                dk[j * dk_step + d] += all * x[d];
                if (d_u)
                    d_u[d] += (double)(all * key[d]);
            }
        }
    }
}
