/* recurrence.c -- positions as states of a map: p_{k+1} = f(p_k).
 *
 *     for (k = 0; k < n; k++)
 *         out[k] = p, p = f(p);                               with skip: p = f(p), out[k] = p
 *
 *     tanh   p' = tanh(W p + b)                                        W (c,c), b (1,c)
 *     gru    r = s(U_r p + a_r + b_r),  z = s(U_z p + a_z + b_z)       U (3c,c) in the order r, z, n
 *            m = tanh(a_n + r (U_n p + b_n)),  p' = (1 - z) m + z p    biases (2,3c): a of the input, b of the state
 *            s is the sigmoid.
 *
 * With inputs x (n,e) and their weight V, (c,e) or (3c,e), step k adds V x_k to the bias b of tanh, or to the biases a
 * of the GRU. A group of columns of the batch takes each step together, so that W is read once for the group. The
 * gradient reads all states from the forward pass, so it computes the gates, and the outer products for W and V, for
 * many positions at once.
 */
#include "absolute/matvec.h"
#include "base/elementary.h"

/* The gates of some columns, one padded row for each: r and z (first their sums), y = U_n p + b_n, and m. tanh uses
 * only r, which then holds f(p). */
typedef struct {
    real *r, *z, *y, *m;
} gate_rows;

typedef struct {
    const pe_call *call;
    idx c, row, gates, polls;  /* row: stride of columns; gates: 1 for tanh, 3 for gru */
    real *w[3], *bias[3];      /* of each gate: packed weights, and the bias of the sum */
    real *input;               /* a_n, which r does not multiply */
    idx e, x_row;              /* width of an input, -1 without inputs; its stride */
    real *v[3], *x, *drive[3]; /* packed weights of inputs; for some columns: inputs, and V x + bias of each gate */
} map;

static gate_rows carve_gates(pe_carver *c, const map *m, idx columns)
{
    const idx all = columns * m->row, gru = m->gates == 3 ? all : 0;
    return (gate_rows){carve_reals(c, all), carve_reals(c, gru), carve_reals(c, gru), carve_reals(c, gru)};
}

static map carve_map(pe_carver *carver, const pe_call *call, idx columns)
{
    map m = {
        .c = call->D(c), .row = padded(call->D(c)), .gates = call->par[RECURRENT_GRU] != 0 ? 3 : 1, .e = call->D(e)};
    for (idx g = 0; g < m.gates; g++) {
        m.w[g] = carve_reals(carver, m.row * m.c);
        m.bias[g] = carve_reals(carver, m.row);
    }
    m.input = carve_reals(carver, m.row);
    if (m.e >= 0) {
        m.x_row = padded(m.e);
        m.x = carve_reals(carver, columns * m.x_row);
        for (idx g = 0; g < m.gates; g++) {
            m.v[g] = carve_reals(carver, m.row * m.e);
            m.drive[g] = carve_reals(carver, columns * m.row);
        }
    }
    return m;
}

/* `operands` are weight, bias, inputs and input_weight. */
static void read_map(map *m, const pe_call *call, const pe_array *operands)
{
    const pe_array *weight = operands, *bias = operands + 1, *input_weight = operands + 3;
    const idx c = m->c, size = storage_size(bias->storage);
    m->call = call;
    for (idx g = 0; g < m->gates; g++) {
        FN(pack_matrix)(weight, g * c, c, c, m->w[g]);
        FN(read_padded)(bias->data + g * c * size, bias->storage, c, m->bias[g]);
        if (m->e >= 0)
            FN(pack_matrix)(input_weight, g * c, c, m->e, m->v[g]);
    }
    if (m->gates == 1)
        return;
    for (idx g = 0; g < 3; g++) { /* the last iteration leaves a_n in input */
        FN(read_padded)(bias->data + g * c * size, bias->storage, c, m->input);
        FN(read_padded)(bias->data + bias->core[0] + g * c * size, bias->storage, c, m->bias[g]);
        if (g < 2) {
            for (idx i = 0; i < c; i++)
                m->bias[g][i] += m->input[i];
        }
    }
}

/* `count` states: state q is entry (b + q % cols, k + q / cols) of a. */
static void read_padded_states(const map *m, const pe_array *a, idx b, idx cols, idx k, idx count, real *p)
{
    for (idx q = 0; q < count; q++)
        FN(read_padded)(entry_at(a, a->data, b + q % cols, k + q / cols), a->storage, m->c, p + q * m->row);
}

/* Read the inputs of `count` states, from position k on, and set drive to V x + bias. */
static void read_inputs(const map *m, const pe_array *inputs, idx b, idx cols, idx k, idx count)
{
    for (idx q = 0; q < count; q++) {
        const char *x = entry_at(inputs, inputs->data, b + q % cols, k + q / cols);
        FN(read_padded)(x, inputs->storage, m->e, m->x + q * m->x_row);
    }
    for (idx g = 0; g < m->gates; g++) {
        const matvec product = {
            m->v[g], g == 2 ? m->input : m->bias[g], m->x, m->drive[g], m->c, m->e, m->x_row, m->row, 0, 0};
        FN(multiply_columns)(&product, count);
    }
}

/* Return whether the kernel must stop. It polls at each position if c > 256, else at each 16th. */
static int stopped_in_map(map *m) { return (m->c > 256 || ++m->polls % 16 == 0) && stop_requested(m->call); }

/* 1 / (1 + exp(-x)), computed from z = exp(-|x|) <= 1. The rounding error of x log2 e is added back, which gives 3
 * ulp for either sign. Without FMA that rounding error cannot be computed, and the error of gates near 0 grows by up
 * to |x| ulp. Below -most the function returns sigmoid(-most). */
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

/* Compute the gates of `cols` columns p, after read_inputs. */
static void compute_gates(const map *m, const real *p, idx cols, const gate_rows *g)
{
    real *const sum[3] = {g->r, g->z, g->y};
    for (idx k = 0; k < m->gates; k++) {
        const int driven = m->e >= 0 && k < 2; /* b_n stays inside the product with r */
        const matvec product = {
            m->w[k], driven ? m->drive[k] : m->bias[k], p, sum[k], m->c, m->c, m->row, m->row, 0, driven ? m->row : 0};
        FN(multiply_columns)(&product, cols);
    }
    if (m->gates == 1) {
        tanh_row(g->r, cols * m->row);
        return;
    }
    sigmoid_row(g->r, cols * m->row);
    sigmoid_row(g->z, cols * m->row);
    for (idx q = 0; q < cols; q++) {
        const real *input = m->e >= 0 ? m->drive[2] + q * m->row : m->input;
        candidate_row(input, g->r + q * m->row, g->y + q * m->row, m->row, g->m + q * m->row);
    }
}

/* p <- f(p) */
static void next_states(const map *m, real *restrict p, idx cols, const gate_rows *g)
{
    const idx n = cols * m->row;
    compute_gates(m, p, cols, g);
    if (m->gates == 1) {
        memcpy(p, g->r, (size_t)n * sizeof(real));
        return;
    }
    const real *z = g->z, *c = g->m;
    SIMD
    for (idx i = 0; i < n; i++) /* (1 - z) m + z p */
        p[i] = fma_(z[i], p[i], fma_(-z[i], c[i], c[i]));
}

typedef struct {
    map m;
    real *p;
    gate_rows gates;
} recurrent_state;

LAYOUT(recurrent)
{
    s->m = carve_map(c, call, SCAN_COLUMNS);
    s->p = carve_reals(c, SCAN_COLUMNS * s->m.row);
    s->gates = carve_gates(c, &s->m, SCAN_COLUMNS);
}

KERNEL(recurrent)
{
    enum { P0, WEIGHT, BIAS, INPUTS, INPUT_WEIGHT, OUT };
    const idx *const dim = call->dim, n = D(n), c = D(c), units = SCAN_UNITS, last = share_begin(call, end, units);
    const pe_array *p0 = &call->array[P0], *inputs = &call->array[INPUTS], *out = &call->array[OUT];
    const idx skip = call->par[RECURRENT_SKIP] != 0;
    recurrent_state s = recurrent_begin(call, work);
    map *m = &s.m;
    real *p = s.p;
    read_map(m, call, &call->array[WEIGHT]);
    for (idx b = share_begin(call, begin, units); b < last; b += SCAN_COLUMNS) {
        const idx cols = min_(SCAN_COLUMNS, last - b);
        read_padded_states(m, p0, b, cols, 0, cols, p);
        for (idx k = 0; k < n; k++) {
            if (k > 0 || skip) {
                if (m->e >= 0)
                    read_inputs(m, inputs, b, cols, k - 1 + skip, cols);
                next_states(m, p, cols, &s.gates);
            }
            for (idx q = 0; q < cols; q++)
                row_store(p + q * m->row, entry_at(out, out->data, b + q, k), out->storage, c);
            if (stopped_in_map(m))
                return;
        }
    }
}

/* ---- gradient ---- */

enum { GRAD, PATH, WEIGHT, BIAS, INPUTS, INPUT_WEIGHT, DP0, DWEIGHT, DBIAS, DINPUTS, DINPUT_WEIGHT };
enum { STATES = 192 }; /* most states in a run */

/* A run of positions. State q = position * cols + column has a vector p, gates, and the cotangents d of the gates'
 * sums. The cotangent of V x_k in a gate is also d. Only in gate n of the GRU it is dx, the cotangent of the argument
 * of tanh. */
typedef struct {
    map m;
    real *transposed[3], *input_transposed[3]; /* packed weights */
    real *p, *d[3], *dx;
    gate_rows gates;
    real *lambda, *term;       /* of each column: lambda: cotangent of the state; term: buffer */
    real *dinput, *input_term; /* of some states: dinput: cotangent of the input; input_term: buffer */
    idx cols;
} recurrent_vjp_state;

LAYOUT(recurrent_vjp)
{
    s->m = carve_map(c, call, STATES);
    s->cols = 0; /* until a block is read */
    const idx row = s->m.row;
    for (idx k = 0; k < s->m.gates; k++) {
        s->transposed[k] = carve_reals(c, row * s->m.c);
        s->d[k] = carve_reals(c, STATES * row);
    }
    s->p = carve_reals(c, STATES * row);
    s->gates = carve_gates(c, &s->m, STATES);
    s->lambda = carve_reals(c, SCAN_COLUMNS * row);
    s->term = carve_reals(c, SCAN_COLUMNS * row);
    if (s->m.e >= 0) {
        s->dx = carve_reals(c, s->m.gates == 3 ? STATES * row : 0);
        s->dinput = carve_reals(c, SCAN_COLUMNS * s->m.x_row);
        s->input_term = carve_reals(c, SCAN_COLUMNS * s->m.x_row);
        for (idx k = 0; k < s->m.gates; k++)
            s->input_transposed[k] = carve_reals(c, s->m.x_row * s->m.c);
    }
}

/* From   p' = tanh(y), y = W p + b:   dy = lambda (1 - p'^2),   lambda = W^T dy */
static void tanh_backward(const recurrent_vjp_state *s, idx state)
{
    const map *m = &s->m;
    const idx n = s->cols * m->row;
    const real *f = s->gates.r + state * m->row, *lambda = s->lambda;
    real *restrict dy = s->d[0] + state * m->row;
    SIMD
    for (idx i = 0; i < n; i++)
        dy[i] = lambda[i] * fma_(-f[i], f[i], R(1.0));
    FN(multiply_columns)(&(matvec){s->transposed[0], NULL, dy, s->lambda, m->c, m->c, m->row, m->row, 0, 0}, s->cols);
}

/* From   p' = (1 - z) m + z p,  m = tanh(x), x = a_n + r y (not an input x_k), y = U_n p + b_n,  r, z = s(...):
 *     dx = lambda (1 - z) (1 - m^2),   dy = dx r,   dr = dx y r (1 - r),   dz = lambda (p - m) z (1 - z)
 *     lambda = lambda z + U_r^T dr + U_z^T dz + U_n^T dy.   da_n += dx */
static void gru_backward(const recurrent_vjp_state *s, idx state, double *restrict da_n)
{
    const map *m = &s->m;
    const idx from = state * m->row, n = s->cols * m->row;
    const real *r = s->gates.r + from, *z = s->gates.z + from, *y = s->gates.y + from, *c = s->gates.m + from;
    const real *p = s->p + from;
    real *restrict dr = s->d[0] + from, *restrict dz = s->d[1] + from, *restrict dy = s->d[2] + from;
    real *restrict lambda = s->lambda, *restrict term = s->term;
    SIMD
    for (idx i = 0; i < n; i++) {
        const real dx = lambda[i] * (1 - z[i]) * fma_(-c[i], c[i], R(1.0));
        term[i] = dx;
        dy[i] = dx * r[i];
        dr[i] = dx * y[i] * r[i] * (1 - r[i]);
        dz[i] = lambda[i] * (p[i] - c[i]) * z[i] * (1 - z[i]);
        lambda[i] *= z[i];
    }
    if (m->e >= 0)
        memcpy(s->dx + from, term, (size_t)n * sizeof(real));
    FN(add_vectors)(term, m->row, s->cols, m->c, da_n);
    for (int k = 0; k < 3; k++) {
        const matvec product = {s->transposed[k], NULL, s->d[k] + from, term, m->c, m->c, m->row, m->row, 0, 0};
        FN(multiply_columns)(&product, s->cols);
        add_reals(lambda, term, n);
    }
}

/* dW += sum of dy p^T for each gate. Add the sum of dy to the gate's biases, a and b; gru_backward has
 * added to a_n. */
static void add_gate_weights(const recurrent_vjp_state *s, idx states, double *dweight, double *dbias)
{
    const map *m = &s->m;
    const idx c = m->c;
    for (idx k = 0; k < m->gates; k++) {
        FN(add_outer_products)(&(outer_products){s->d[k], s->p, m->row, m->row, states, dweight + k * c * c, c, c});
        FN(add_vectors)(s->d[k], m->row, states, c, m->gates == 1 ? dbias : dbias + (3 + k) * c);
        if (m->gates == 3 && k < 2)
            FN(add_vectors)(s->d[k], m->row, states, c, dbias + k * c);
    }
}

/* The gradient of input x_k is the sum of V^T d over the gates. dV += sum of d x_k^T for each gate, over the inputs
 * first .. first + run. In gate n, d is dx. */
static void add_inputs(const recurrent_vjp_state *s, const pe_call *call, idx b, idx first, idx run, double *dweight)
{
    const map *m = &s->m;
    const pe_array *dinputs = &call->array[DINPUTS];
    const idx c = m->c, e = m->e, cols = s->cols;
    for (idx k = 0; k < m->gates; k++) {
        const outer_products o = {k == 2 ? s->dx : s->d[k], m->x, m->row, m->x_row, run * cols,
                                  dweight + k * c * e,      c,    e};
        FN(add_outer_products)(&o);
    }
    for (idx t = 0; t < run; t++) {
        for (idx k = 0; k < m->gates; k++) {
            const real *d = (k == 2 ? s->dx : s->d[k]) + t * cols * m->row;
            const matvec product = {
                s->input_transposed[k], NULL, d, k ? s->input_term : s->dinput, e, c, m->row, m->x_row, 0, 0};
            FN(multiply_columns)(&product, cols);
            if (k)
                add_reals(s->dinput, s->input_term, cols * m->x_row);
        }
        for (idx q = 0; q < cols; q++) {
            double *to = as_doubles(entry_at(dinputs, dinputs->data, b + q, first + t));
            for (idx i = 0; i < e; i++)
                to[i] = (double)s->dinput[q * m->x_row + i];
        }
    }
}

/* Propagate lambda from row first + run of the path back to row first, for the columns from b on. */
static int recurrent_run_vjp(recurrent_vjp_state *s, const pe_call *call, idx b, idx first, idx run,
                             const pe_work *work)
{
    const pe_array *grad = &call->array[GRAD], *path = &call->array[PATH];
    const idx skip = (idx)call->par[RECURRENT_SKIP], cols = s->cols, states = run * cols, c = s->m.c, row = s->m.row;
    double *dweight = block_sums(call, DWEIGHT, work), *dbias = block_sums(call, DBIAS, work);
    read_padded_states(&s->m, path, b, cols, first, states, s->p);
    if (s->m.e >= 0)
        read_inputs(&s->m, &call->array[INPUTS], b, cols, first, states);
    compute_gates(&s->m, s->p, states, &s->gates);
    for (idx k = run - 1; k >= 0; k--) {
        if (s->m.gates == 1)
            tanh_backward(s, k * cols);
        else
            gru_backward(s, k * cols, dbias + 2 * c);
        const idx out_row = first + k - skip; /* the state's row in out; -1 for p0 if out begins after it */
        if (out_row >= 0) {
            for (idx q = 0; q < cols; q++) {
                const real *g = row_read(entry_at(grad, grad->data, b + q, out_row), grad->storage, c, s->term);
                add_reals(s->lambda + q * row, g, c);
            }
        }
        if (stopped_in_map(&s->m))
            return 0;
    }
    add_gate_weights(s, states, dweight, dbias);
    if (s->m.e >= 0)
        add_inputs(s, call, b, first, run, block_sums(call, DINPUT_WEIGHT, work));
    return 1;
}

/* PATH is p0 and the states after it: row i of PATH is row i - skip of out. */
KERNEL(recurrent_vjp)
{
    const idx *const dim = call->dim, n = D(n), c = D(c), units = SCAN_UNITS, last = share_begin(call, end, units);
    const pe_array *grad = &call->array[GRAD], *dp0 = &call->array[DP0];
    recurrent_vjp_state s = recurrent_vjp_begin(call, work);
    const idx row = s.m.row;
    read_map(&s.m, call, &call->array[WEIGHT]);
    for (idx k = 0; k < s.m.gates; k++) {
        FN(pack_matrix_transposed)(&call->array[WEIGHT], k * c, c, c, s.transposed[k]);
        if (s.m.e >= 0)
            FN(pack_matrix_transposed)(&call->array[INPUT_WEIGHT], k * c, s.m.e, c, s.input_transposed[k]);
    }
    for (idx b = share_begin(call, begin, units); b < last; b += SCAN_COLUMNS) {
        s.cols = min_(SCAN_COLUMNS, last - b);
        memset(s.lambda, 0, (size_t)(s.cols * row) * sizeof(real));
        if (n > 0)
            read_padded_states(&s.m, grad, b, s.cols, n - 1, s.cols, s.lambda);
        for (idx left = D(m) - 1; left > 0;) {
            const idx run = min_(STATES / s.cols, left);
            left -= run;
            if (!recurrent_run_vjp(&s, call, b, left, run, work))
                return;
        }
        for (idx k = max_(D(m) - 1, 0); s.m.e >= 0 && k < D(i); k++) { /* inputs that no state reads */
            for (idx q = 0; q < s.cols; q++)
                memset(entry_at(&call->array[DINPUTS], call->array[DINPUTS].data, b + q, k), 0,
                       (size_t)s.m.e * sizeof(double));
        }
        for (idx q = 0; q < s.cols; q++) {
            double *to = as_doubles(entry_at(dp0, dp0->data, b + q, 0));
            for (idx i = 0; i < c; i++)
                to[i] = (double)s.lambda[q * row + i];
        }
    }
}
