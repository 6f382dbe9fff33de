/* recurrence.c -- positions as states of a map: p_{k+1} = f(p_k).
 *
 *     tanh   p' = tanh(W p + b)                                               W (c,c), b (1,c)
 *     gru    r = s(U_r p + a_r + b_r),  z = s(U_z p + a_z + b_z)              U (3c,c) in the order r, z, n
 *            m = tanh(a_n + r (U_n p + b_n)),  p' = (1 - z) m + z p           biases (2,3c): a beside the input, which
 *                                                                             is 0, and b beside the state
 *
 * A group of columns of the batch walks all positions together. Backwards, what does not wait for the next position
 * (gates) is computed for many positions at once, and so are the outer products of the gradient of W.
 */
#include "encoding/matvec.h"
#include "base/elementary.h"

#include "scratch.h"

typedef struct {
    const pe_call *call;
    idx c, row, gates, polls;     /* row: how far columns are apart */
    real *w[3], *bias[3], *input; /* biases of the sums; input: a_n, which r does not multiply */
} map;

static int stopped(map *m)
{
    const pe_call *call = m->call;
    return call->stop && (m->c > 256 || ++m->polls % 16 == 0) && call->stop(call);
}

static map map_of(const pe_call *call, int shift, char **scratch)
{
    const pe_array *weight = &call->array[1 + shift], *bias = &call->array[2 + shift];
    const idx c = call->D(c);
    const int gru = (int)call->par[0];
    map m = {.call = call, .c = c, .row = padded(c), .gates = gru ? 3 : 1};
    for (idx g = 0; g < m.gates; g++) {
        m.w[g] = carve(scratch, m.row * c);
        m.bias[g] = carve(scratch, m.row);
        pack_matrix(weight, g * c, c, c, m.w[g]);
        read_padded(bias->data + g * c * storage_size(bias->storage), bias->storage, c, m.bias[g]);
    }
    if (gru) {
        m.input = carve(scratch, m.row);
        for (idx g = 0; g < 3; g++) { /* the last is a_n, and stays */
            const char *state = bias->data + bias->core[0] + g * c * storage_size(bias->storage);
            read_padded(bias->data + g * c * storage_size(bias->storage), bias->storage, c, m.input);
            read_padded(state, bias->storage, c, m.bias[g]);
            for (idx i = 0; i < c && g < 2; i++)
                m.bias[g][i] += m.input[i];
        }
    }
    return m;
}

/* 1 / (1 + exp(-x)) by z = exp(-|x|) <= 1. What the product x log2 e loses is put back, to 3 ulp for either sign;
 * without FMA it cannot be known, and gates near 0 are |x| / 2 ulp worse. */
INLINE real sigmoid(real x)
{
#if PE_REAL == 32
    const real lost = 1.925963033e-8f, most = 87.0f; /* log2 e - LOG2_E; exp(-most) is normal */
#else
    const real lost = 2.0355273740931033e-17, most = 708.0;
#endif
    const real ln_2 = R(0.693147180559945309);
    const real size = x < 0 ? -x : x, y = size > most ? most : size, high = y * LOG2_E;
    const real low = fma_(y, LOG2_E, -high) + y * lost, power = exp2_(-high);
    const real z = fma_(power, -low * ln_2, power), q = 1 / (1 + z);
    return x < 0 ? z * q : q;
}

static NOINLINE void tanh_row(real *restrict y, idx n)
{
    SIMD
    for (idx i = 0; i < n; i++)
        y[i] = tanh_(y[i]);
}

/* r and z from their sums, in place */
static NOINLINE void sigmoid_row(real *restrict y, idx n)
{
    SIMD
    for (idx i = 0; i < n; i++)
        y[i] = sigmoid(y[i]);
}

/* m = tanh(input + r y) */
static NOINLINE void candidate_row(const real *restrict input, const real *restrict r, const real *restrict y, idx n,
                                   real *restrict m)
{
    SIMD
    for (idx i = 0; i < n; i++)
        m[i] = tanh_(fma_(r[i], y[i], input[i]));
}

/* What a step computes on its way, for each column: rows of gate sums, then r, z; U_n p + b_n; m. tanh: one row. */
typedef struct {
    real *r, *z, *y, *m;
} gates;

/* p -> the values of the gates, of `cols` columns; for tanh r is f(p). */
static void open_gates(const map *m, const real *p, idx cols, const gates *g)
{
    real *const sum[3] = {g->r, g->z, g->y};
    for (idx k = 0; k < m->gates; k++) {
        const pe_dense d = {m->w[k], m->bias[k], p, sum[k], m->c, m->c, m->row, m->row, 0};
        dense(&d, cols);
    }
    if (m->gates == 1) {
        tanh_row(g->r, cols * m->row);
        return;
    }
    sigmoid_row(g->r, cols * m->row);
    sigmoid_row(g->z, cols * m->row);
    for (idx q = 0; q < cols; q++)
        candidate_row(m->input, g->r + q * m->row, g->y + q * m->row, m->row, g->m + q * m->row);
}

/* p <- f(p) */
static void step_on(const map *m, real *restrict p, idx cols, const gates *g)
{
    const idx n = cols * m->row;
    open_gates(m, p, cols, g);
    if (m->gates == 1) {
        memcpy(p, g->r, (size_t)n * sizeof(real));
        return;
    }
    const real *z = g->z, *c = g->m;
    SIMD
    for (idx i = 0; i < n; i++) /* (1 - z) m + z p */
        p[i] = fma_(z[i], p[i], fma_(-z[i], c[i], c[i]));
}

/* p0(b,c) weight(g,c) bias(s,g) -> out(b,n,c); gru, skip */
void FN(recurrent)(const pe_call *call, idx begin, idx end, const pe_work *work)
{
    const idx n = call->D(n), c = call->D(c), *const dim = call->dim, units = WALK_UNITS,
              last = share_of(call, end, units);
    const pe_array *p0 = &call->array[0], *out = &call->array[3];
    char *scratch = work->scratch;
    map m = map_of(call, 0, &scratch);
    real *p = carve(&scratch, WALK_COLUMNS * m.row), *room = carve(&scratch, WALK_COLUMNS * m.row * 4);
    const idx all = WALK_COLUMNS * m.row;
    const gates g = {room, room + all, room + 2 * all, room + 3 * all};
    for (idx b = share_of(call, begin, units); b < last; b += WALK_COLUMNS) {
        const idx cols = min_(WALK_COLUMNS, last - b);
        for (idx q = 0; q < cols; q++)
            read_padded(p0->data + (b + q) * p0->core[0], p0->storage, c, p + q * m.row);
        for (idx k = 0; k < n; k++) {
            if (k > 0 || call->par[1] != 0)
                step_on(&m, p, cols, &g);
            for (idx q = 0; q < cols; q++) {
                char *row = out->data + (b + q) * out->core[0] + k * out->core[1];
                if (out->storage == PE_STORAGE)
                    memcpy(row, p + q * m.row, (size_t)c * sizeof(real));
                else
                    row_write(p + q * m.row, row, out->storage, c);
            }
            if (stopped(&m))
                return;
        }
    }
}

/* ---- gradient ---- */

/* A run of positions: pair q = position * streams + stream has its state p, gates, and cotangents of the gates' sums. */
typedef struct {
    idx streams, most; /* pairs that fit */
    real *p, *d[3];
    gates g;
    real *lambda, *part; /* cotangent of the state so far; a product */
} tape;

/* From   p' = tanh(y), y = W p + b:   dy = lambda (1 - p'^2),   lambda = W^T dy */
static void tanh_back(const map *m, const tape *t, idx at, real *const transposed[3])
{
    const idx n = t->streams * m->row;
    const real *f = t->g.r + at * m->row, *lambda = t->lambda;
    real *restrict dy = t->d[0] + at * m->row;
    SIMD
    for (idx i = 0; i < n; i++)
        dy[i] = lambda[i] * fma_(-f[i], f[i], R(1.0));
    const pe_dense d = {transposed[0], NULL, dy, t->lambda, m->c, m->c, m->row, m->row, 0};
    dense(&d, t->streams);
}

/* From   p' = (1 - z) m + z p,  m = tanh(x), x = a_n + r y, y = U_n p + b_n,  r, z = s(...):
 *     dx = lambda (1 - z) (1 - m^2),   dy = dx r,   dr = dx y r (1 - r),   dz = lambda (p - m) z (1 - z)
 *     lambda = lambda z + U_r^T dr + U_z^T dz + U_n^T dy.   da_n += dx */
static void gru_back(const map *m, const tape *t, idx at, real *const transposed[3], double *restrict da_n)
{
    const idx from = at * m->row, n = t->streams * m->row;
    const real *r = t->g.r + from, *z = t->g.z + from, *y = t->g.y + from, *c = t->g.m + from, *p = t->p + from;
    real *restrict dr = t->d[0] + from, *restrict dz = t->d[1] + from, *restrict dy = t->d[2] + from;
    real *restrict lambda = t->lambda, *restrict part = t->part;
    SIMD
    for (idx i = 0; i < n; i++) {
        const real dx = lambda[i] * (1 - z[i]) * fma_(-c[i], c[i], R(1.0));
        part[i] = dx;
        dy[i] = dx * r[i];
        dr[i] = dx * y[i] * r[i] * (1 - r[i]);
        dz[i] = lambda[i] * (p[i] - c[i]) * z[i] * (1 - z[i]);
        lambda[i] *= z[i];
    }
    add_rows(part, m->row, t->streams, m->c, da_n);
    for (int k = 0; k < 3; k++) {
        const pe_dense d = {transposed[k], NULL, t->d[k] + from, part, m->c, m->c, m->row, m->row, 0};
        dense(&d, t->streams);
        SIMD
        for (idx i = 0; i < n; i++)
            lambda[i] += part[i];
    }
}

static double *slot_of(const pe_call *call, int operand, const pe_work *work)
{
    const pe_array *a = &call->array[operand];
    return (double *)(void *)(a->data + work->block * a->loop[0]);
}

/* dW += sum of dy p^T for each gate; biases of sums get the sum of dy, on both sides where there are two. a_n has its
 * own already. */
static void add_weights(const map *m, const tape *t, idx pairs, const pe_work *work)
{
    const idx c = m->c;
    double *dw = slot_of(m->call, 5, work), *db = slot_of(m->call, 6, work);
    for (idx k = 0; k < m->gates; k++) {
        const pe_outer o = {t->d[k], t->p, m->row, m->row, pairs, dw + k * c * c, c, c};
        add_outer(&o);
        add_rows(t->d[k], m->row, pairs, c, m->gates == 1 ? db : db + (3 + k) * c);
        if (m->gates == 3 && k < 2)
            add_rows(t->d[k], m->row, pairs, c, db + k * c);
    }
}

/* The rows first <= k < first + run of the path, of columns b on: lambda moves from row first + run to row first. */
static int run_back(map *m, const tape *t, idx b, idx first, idx run, real *const transposed[3], const pe_work *work)
{
    const pe_array *grad = &m->call->array[0], *path = &m->call->array[1];
    const idx skip = (idx)m->call->par[1], pairs = run * t->streams, c = m->c;
    double *da_n = slot_of(m->call, 6, work) + 2 * c;
    for (idx q = 0; q < pairs; q++)
        read_padded(path->data + (b + q % t->streams) * path->core[0] + (first + q / t->streams) * path->core[1],
                    path->storage, c, t->p + q * m->row);
    open_gates(m, t->p, pairs, &t->g);
    for (idx k = run - 1; k >= 0; k--) {
        const idx row = first + k;
        if (m->gates == 1)
            tanh_back(m, t, k * t->streams, transposed);
        else
            gru_back(m, t, k * t->streams, transposed, da_n);
        for (idx q = 0; row >= skip && q < t->streams; q++) {
            const char *data = grad->data + (b + q) * grad->core[0] + (row - skip) * grad->core[1];
            const real *g = row_read(data, grad->storage, c, t->part);
            for (idx i = 0; i < c; i++)
                t->lambda[q * m->row + i] += g[i];
        }
        if (stopped(m))
            return 0;
    }
    add_weights(m, t, pairs, work);
    return 1;
}

/* grad(b,n,c) path(b,m,c) weight(g,c) bias(s,g) -> dp0(b,c) +dweight(g,c) +dbias(s,g); gru, skip */
void FN(recurrent_vjp)(const pe_call *call, idx begin, idx end, const pe_work *work)
{
    const idx rows = call->D(m), c = call->D(c), *const dim = call->dim, units = WALK_UNITS,
              last = share_of(call, end, units);
    const pe_array *grad = &call->array[0], *dp0 = &call->array[4];
    char *scratch = work->scratch;
    map m = map_of(call, 1, &scratch);
    real *transposed[3] = {NULL};
    for (idx k = 0; k < m.gates; k++) {
        transposed[k] = carve(&scratch, m.row * c);
        pack_matrix_transposed(&call->array[2], k * c, c, c, transposed[k]);
    }
    const idx all = WALK_PAIRS * m.row;
    tape t = {.p = carve(&scratch, all), .most = WALK_PAIRS};
    for (int k = 0; k < 3; k++)
        t.d[k] = carve(&scratch, all);
    t.g = (gates){carve(&scratch, all), carve(&scratch, all), carve(&scratch, all), carve(&scratch, all)};
    t.lambda = carve(&scratch, WALK_COLUMNS * m.row);
    t.part = carve(&scratch, WALK_COLUMNS * m.row);
    for (idx b = share_of(call, begin, units); b < last; b += WALK_COLUMNS) {
        t.streams = min_(WALK_COLUMNS, last - b);
        memset(t.lambda, 0, (size_t)(t.streams * m.row) * sizeof(real));
        for (idx q = 0; call->D(n) > 0 && q < t.streams; q++)
            read_padded(grad->data + (b + q) * grad->core[0] + (call->D(n) - 1) * grad->core[1], grad->storage, c,
                        t.lambda + q * m.row);
        for (idx left = rows - 1; left > 0;) {
            const idx run = min_(t.most / t.streams, left);
            left -= run;
            if (!run_back(&m, &t, b, left, run, transposed, work))
                return;
        }
        for (idx q = 0; q < t.streams; q++)
            for (idx i = 0; i < c; i++)
                ((double *)(void *)(dp0->data + (b + q) * dp0->core[0]))[i] = (double)t.lambda[q * m.row + i];
    }
}
