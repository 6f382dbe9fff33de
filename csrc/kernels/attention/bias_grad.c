/* bias_grad.c -- where dS of a tile goes to the terms of attention (see sums.h). */
#include "attention/bias_grad.h"
#include "bias/pair.h"

/* Gradients that are made from the pairs of a tile: not those of FoX, which are sums of rows and columns */
static int has_own(int op)
{
    return FN(distance_gradient)[op] || (FN(pair_grad)[op] && op != PE_fox && op != PE_sandwich);
}

static double *row_of(const pe_queries *q, int operand, idx i)
{
    char *data = q->row.data[operand];
    return data ? (double *)(void *)(data + i * q->call->array[operand].core[0]) : NULL;
}

void FN(sums_clear)(const pe_queries *q, idx t)
{
    const pe_call *call = q->call;
    double *diagonals = row_of(q, A_DIAGONALS, t), *columns = row_of(q, A_COLUMNS, t);
    if (diagonals)
        memset(diagonals, 0, (size_t)(call->D(n) + call->D(m) - 1) * sizeof(double));
    if (columns)
        memset(columns, 0, (size_t)call->D(m) * sizeof(double));
}

void FN(sums_at)(pe_sums *s, const pe_queries *q, idx t, const pe_work *work)
{
    const pe_call *call = q->call;
    const pe_array *terms = &call->array[A_TERMS];
    char *into = terms->data ? terms->data + work->block * terms->loop[0] : NULL;
    memset(s->rows, 0, sizeof s->rows);
    s->diagonals = row_of(q, A_DIAGONALS, t);
    s->columns = row_of(q, A_COLUMNS, t);
    s->wants_rows = q->row.data[A_ROWS] != NULL;
    s->pairs = q->row.data[A_PAIRS];
    s->distances = s->both = 0;
    idx room = call->D(z);
    for (int i = 0; i < call->nterms; i++)
        for (int k = 0; k < PE_TERM_ARRAYS && has_own(call->term[i].op) && call->term[i].array[k].data; k++)
            room -= call->term[i].size[k];
    if (room < 0)
        return; /* there is no place for them */
    for (int i = 0; i < call->nterms && into; i++) {
        if (!has_own(call->term[i].op))
            continue;
        s->distances |= FN(distance_gradient)[call->term[i].op] != NULL;
        s->both |= FN(pair_grad)[call->term[i].op] != NULL;
        for (int k = 0; k < PE_TERM_ARRAYS && call->term[i].array[k].data; k++) {
            s->into[i][k] = call->term[i].array[k]; /* its gradient lies in memory as the array does */
            s->into[i][k].data = into;
            into += call->term[i].size[k] * (idx)sizeof(double);
        }
    }
}

/* out[j - lane] += ds. Number t of the window is that of lane - key = t - (n - 1): a vector of them is a sum of loads,
 * one from each key, a lane further on each time. Zeros on both sides of a key stand for lanes that are not there. */
static void add_diagonals(double *restrict out, const real *restrict ds, int n, int width, int lanes)
{
    real padded[BLOCK_N * (PANEL_LANES + 2 * LANES)], window[TILE_RELS + LANES];
    const int room = width + 2 * LANES;
    for (int j = 0; j < n; j++) {
        real *to = padded + j * room;
        vec_store(to, vec_set(0));
        for (int l = 0; l < width; l += LANES)
            vec_store(to + LANES + l, vec_load(ds + j * width + l));
        vec_store(to + LANES + width, vec_set(0));
    }
    for (int t = 0; t < n + width - 1; t += LANES) {
        const int first = t - (n - 1); /* lane of key 0 in the first number */
        const int from = (int)max_(0, 1 - LANES - first), to = (int)min_(n, width - first);
        vec sum = vec_set(0);
        for (int j = from; j < to; j++)
            sum = vec_add(sum, vec_load(padded + j * room + LANES + first + j));
        vec_store(window + t, sum);
    }
    for (int t = 0; t < n + lanes - 1; t++)
        out[n - 1 - t] += (double)window[t];
}

static void add_columns(double *restrict out, const real *ds, int n, int width)
{
    for (int j = 0; j < n; j++, ds += width) {
        real part[LANES];
        vec sum = vec_load(ds);
        for (int l = LANES; l < width; l += LANES)
            sum = vec_add(sum, vec_load(ds + l));
        vec_store(part, sum);
        double total = 0;
        for (int l = 0; l < LANES; l++)
            total += (double)part[l];
        out[j] += total;
    }
}

static void add_rows(double *restrict out, const real *ds, int n, int width)
{
    for (int l = 0; l < width; l += LANES) {
        real part[LANES];
        vec sum = vec_set(0);
        for (int j = 0; j < n; j++)
            sum = vec_add(sum, vec_load(ds + j * width + l));
        vec_store(part, sum);
        for (int c = 0; c < LANES; c++)
            out[l + c] += (double)part[c];
    }
}

static void add_pairs(char *out, const pe_array *a, const real *ds, int n, const pe_panel *p)
{
    for (int l = 0; l < p->lanes; l++)
        for (int j = 0; j < n; j++) {
            real *to = (real *)(void *)(out + l * a->core[1] + j * a->core[2]);
            *to += ds[j * p->width + l];
        }
}

static void add_distances(pe_sums *s, const pe_keys *k, const pe_queries *q, const pe_panel *p, int from, int to,
                          const real *ds)
{
    const pe_call *call = q->call;
    const int width = p->width, some = TILE_RELS / width;
    double rel[TILE_RELS], weight[TILE_RELS];
    for (int j = from; j < to; j += some) {
        const int rows = (int)min_(some, to - j);
        for (int r = 0; r < rows; r++, ds += width)
            for (int l = 0; l < width; l++) {
                rel[r * width + l] = k->position[j + r] - q->position[p->first + l];
                weight[r * width + l] = (double)ds[l];
            }
        for (int t = 0; t < call->nterms; t++)
            if (FN(distance_gradient)[call->term[t].op])
                FN(distance_gradient)
        [call->term[t].op](q->term[t], call->term[t].dim, q->head, rel, rows * width, weight, s->into[t]);
    }
}

static void add_both(pe_sums *s, const pe_keys *k, const pe_queries *q, const pe_panel *p, int from, int to,
                     const real *ds)
{
    const pe_call *call = q->call;
    const pe_block_of_pairs block = {
        to - from,       p->width,           p->lanes, k->position + from, q->position + p->first,
        k->first + from, q->first + p->first};
    double weight[BLOCK_N * PANEL_LANES];
    for (int i = 0; i < (to - from) * p->width; i++)
        weight[i] = (double)ds[i];
    for (int t = 0; t < call->nterms; t++)
        if (FN(pair_grad)[call->term[t].op] && has_own(call->term[t].op))
            FN(pair_grad)[call->term[t].op](q->term[t], call->term[t].dim, q->head, &block, weight, s->into[t]);
}

void FN(sums_add)(pe_sums *s, const pe_keys *k, const pe_queries *q, const pe_panel *p, int from, int to,
                  const real *ds)
{
    const pe_array *pairs = &q->call->array[A_PAIRS];
    const int n = to - from;
    const idx i = q->first + p->first, j = k->first + from;
    if (s->diagonals)
        add_diagonals(s->diagonals + (j - i + q->call->D(n) - 1), ds, n, p->width, p->lanes);
    if (s->columns)
        add_columns(s->columns + j, ds, n, p->width);
    if (s->wants_rows)
        add_rows(s->rows + p->first, ds, n, p->width);
    if (s->pairs && pairs->storage == PE_STORAGE)
        add_pairs(s->pairs + q->head * pairs->core[0] + i * pairs->core[1] + j * pairs->core[2], pairs, ds, n, p);
    if (s->distances)
        add_distances(s, k, q, p, from, to, ds);
    if (s->both)
        add_both(s, k, q, p, from, to, ds);
}

void FN(sums_write)(const pe_sums *s, const pe_queries *q)
{
    double *rows = row_of(q, A_ROWS, q->head);
    if (rows)
        memcpy(rows + q->first, s->rows, (size_t)q->lanes * sizeof *rows);
}
