/* floater.c -- positions as samples of an ordinary differential equation (FLOATER).
 *
 *     dp/dt = F(p, t),   F = W2 [relu(W1 [p; t] + b1); t] + b2       W1 (e, c+1), W2 (c, e+1), time is the last column
 *
 *     for (k = 0; k + 1 < n; k++)                             Euler's method; other methods have up to 4 stages
 *         for (p[k + 1] = p[k], step = 0; step < s; step++)
 *             p[k + 1] += dt / s * F(p[k + 1], (k + step / s) * dt);
 *
 * A stream is one entry of the batch. A group of streams takes each step together, so that W1 and W2 are read once for
 * the group. Time is stored as element c of each state and element e of each relu vector, so that both products are
 * dense. The state is double, because thousands of small steps are added to it; the field F is `real`.
 *
 * The gradient differentiates the discrete steps. It recomputes the stages of a run of positions at once, from the
 * states that floater stored, and then goes back one position at a time. Outer products are summed over all stages of a
 * run.
 */
#include "absolute/matvec.h"

enum { STAGES = 4, STEPS = 8 }; /* most stages of a method; most steps whose stages the gradient stores */

typedef struct {
    int stages;
    double at[STAGES], from[STAGES][STAGES], weight[STAGES];
} tableau;

static const tableau tableaus[] = {
#define TABLEAU(name, stages, t1, t2, t3, a10, a20, a21, a30, a31, a32, b0, b1, b2, b3) \
    {stages, {0, t1, t2, t3}, {{0}, {a10}, {a20, a21}, {a30, a31, a32}}, {b0, b1, b2, b3}},
#include "constants.def"
};

/* The field and its stages. Both kernels have w1, b1, w2, b2 and when as consecutive operands. */
typedef struct {
    const pe_call *call;
    const tableau *rule;
    idx c, e, c_row, e_row, steps; /* c_row, e_row: strides between states and between relu vectors */
    double dt, h;                  /* h: a step, dt / steps */
    const double *when;
    real *w1, *b1, *w2, *b2;
    real *k[STAGES + 1]; /* slopes of the stages; in the gradient, cotangents of their states. k[STAGES] is 0 */
    int polls;
} flow;

static flow carve_flow(pe_carver *carver, const pe_call *call)
{
    flow f = {.rule = &tableaus[(int)call->par[FLOATER_METHOD]],
              .steps = call->D(s),
              .dt = call->par[FLOATER_DT],
              .h = call->par[FLOATER_DT] / (double)call->D(s)};
    f.c = call->D(c), f.e = call->D(e), f.c_row = padded(f.c + 1), f.e_row = padded(f.e + 1);
    f.w1 = carve_reals(carver, padded(f.e) * (f.c + 1));
    f.b1 = carve_reals(carver, padded(f.e));
    f.w2 = carve_reals(carver, padded(f.c) * (f.e + 1));
    f.b2 = carve_reals(carver, padded(f.c));
    for (int i = 0; i <= STAGES; i++)
        f.k[i] = carve_reals(carver, SCAN_COLUMNS * f.c_row);
    return f;
}

static void read_flow(flow *f, const pe_call *call, const pe_array *w1)
{
    enum { W1, B1, W2, B2, WHEN };
    const pe_array *a = w1;
    f->call = call;
    f->when = as_doubles(a[WHEN].data);
    FN(pack_matrix)(&a[W1], 0, f->e, f->c + 1, f->w1);
    FN(read_padded)(a[B1].data, a[B1].storage, f->e, f->b1);
    FN(pack_matrix)(&a[W2], 0, f->c, f->e + 1, f->w2);
    FN(read_padded)(a[B2].data, a[B2].storage, f->c, f->b2);
    for (int i = 0; i <= STAGES; i++)
        memset(f->k[i], 0, (size_t)(SCAN_COLUMNS * f->c_row) * sizeof(real));
}

/* Return whether the kernel must stop. It polls after each step if a step takes about 100 us, else after every 16th. */
static int stopped_in_flow(flow *f)
{
    return (f->c * f->e > 1 << 16 || ++f->polls % 16 == 0) && stop_requested(f->call);
}

/* Slope m, or 0 if its weight is 0, because 0 times an infinite slope would be NaN. */
static const real *slope(const flow *f, int m, double weight) { return f->k[weight != 0 ? m : STAGES]; }

/* y = p + sum over stages m < i of h from[i][m] k_m, n numbers */
static NOINLINE void stage_state(const flow *f, int i, const double *restrict p, idx n, real *restrict y)
{
    const double *from = f->rule->from[i], h = f->h;
    const double h0 = h * from[0], h1 = h * from[1], h2 = h * from[2];
    const real *k0 = slope(f, 0, from[0]), *k1 = slope(f, 1, from[1]), *k2 = slope(f, 2, from[2]);
    if (i == 0) {
        SIMD
        for (idx j = 0; j < n; j++)
            y[j] = (real)p[j];
        return;
    }
    SIMD
    for (idx j = 0; j < n; j++)
        y[j] = (real)(p[j] + (h0 * (double)k0[j] + (h1 * (double)k1[j] + h2 * (double)k2[j])));
}

/* p += sum over stages of h weight[i] k_i */
static NOINLINE void add_slopes(const flow *f, double *restrict p, idx n)
{
    const double *weight = f->rule->weight, h = f->h;
    const double h0 = h * weight[0], h1 = h * weight[1], h2 = h * weight[2], h3 = h * weight[3];
    const real *k0 = slope(f, 0, weight[0]), *k1 = slope(f, 1, weight[1]), *k2 = slope(f, 2, weight[2]),
               *k3 = slope(f, 3, weight[3]);
    SIMD
    for (idx j = 0; j < n; j++)
        p[j] += (h0 * (double)k0[j] + h1 * (double)k1[j]) + (h2 * (double)k2[j] + h3 * (double)k3[j]);
}

/* A group of states, of `streams` streams at one or more positions: state q is of stream q % streams at position
 * first + q / streams. Stage i of a step stores its states at y + i y_stage and its relus at a + i a_stage. */
typedef struct {
    idx first, streams, cols;
    double *p;
    real *y, *a;
    idx y_stage, a_stage;
} group;

/* Advance the states by one step, from `step` steps past their positions. */
static void take_step(const flow *f, idx step, const group *g)
{
    real *y = g->y, *a = g->a;
    for (int i = 0; i < f->rule->stages; i++, y += g->y_stage, a += g->a_stage) {
        const double later = f->when[step] + f->rule->at[i] / (double)f->steps;
        const matvec up = {f->w1, f->b1, y, a, f->e, f->c + 1, f->c_row, f->e_row, 1, 0};
        const matvec down = {f->w2, f->b2, a, f->k[i], f->c, f->e + 1, f->e_row, f->c_row, 0, 0};
        stage_state(f, i, g->p, g->cols * f->c_row, y);
        for (idx q = 0; q < g->cols; q++)
            y[q * f->c_row + f->c] = (real)(f->dt * ((double)(g->first + q / g->streams) + later));
        FN(multiply_columns)(&up, g->cols);
        for (idx q = 0; q < g->cols; q++)
            a[q * f->e_row + f->e] = y[q * f->c_row + f->c];
        FN(multiply_columns)(&down, g->cols);
    }
    add_slopes(f, g->p, g->cols * f->c_row);
}

/* Read the states of a group from a (b,n,c), of the streams from b on. */
static void read_double_states(const flow *f, const pe_array *a, idx b, const group *g)
{
    double *p = g->p;
    for (idx q = 0; q < g->cols; q++, p += f->c_row) {
        const char *data = entry_at(a, a->data, b + q % g->streams, g->first + q / g->streams);
        const real *row = row_read(data, a->storage, f->c, g->y);
        for (idx i = 0; i < f->c; i++)
            p[i] = (double)row[i];
        for (idx i = f->c; i < f->c_row; i++)
            p[i] = 0;
    }
}

static void write_state(const flow *f, const double *p, real *buffer, char *data, pe_storage storage)
{
    real *row = row_target(data, storage, buffer);
    for (idx i = 0; i < f->c; i++)
        row[i] = (real)p[i];
    row_write(row, data, storage, f->c);
}

typedef struct {
    flow f;
    real *y, *a; /* state and relus of a stage */
    double *p;
} floater_state;

LAYOUT(floater)
{
    s->f = carve_flow(c, call);
    s->y = carve_reals(c, SCAN_COLUMNS * s->f.c_row);
    s->a = carve_reals(c, SCAN_COLUMNS * s->f.e_row);
    s->p = carve_doubles(c, SCAN_COLUMNS * s->f.c_row);
}

KERNEL(floater)
{
    enum { P0, W1, B1, W2, B2, WHEN, OUT };
    const idx *const dim = call->dim, n = D(n), units = SCAN_UNITS, last = share_begin(call, end, units);
    const pe_array *p0 = &call->array[P0], *out = &call->array[OUT];
    if (n == 0)
        return;
    floater_state s = floater_begin(call, work);
    flow *f = &s.f;
    double *p = s.p;
    read_flow(f, call, &call->array[W1]);
    memset(s.a, 0, (size_t)(SCAN_COLUMNS * f->e_row) * sizeof(real));
    for (idx b = share_begin(call, begin, units); b < last; b += SCAN_COLUMNS) {
        const idx cols = min_(SCAN_COLUMNS, last - b);
        group g = {.streams = cols, .cols = cols, .p = p, .y = s.y, .a = s.a};
        read_double_states(f, p0, b, &g);
        for (idx k = 0; k < n; k++) {
            g.first = k;
            for (idx q = 0; q < cols; q++)
                write_state(f, p + q * f->c_row, s.y, entry_at(out, out->data, b + q, k), out->storage);
            const idx steps = k + 1 < n ? f->steps : 0; /* no step follows the last position */
            for (idx step = 0; step < steps; step++) {
                take_step(f, step, &g);
                if (stopped_in_flow(f))
                    return;
            }
        }
    }
}

/* ---- gradient ---- */

enum { GRAD, PATH, W1, B1, W2, B2, WHEN, DP0, DW1, DB1, DW2, DB2 };

/* A run of positions. y, a, dk and dz hold states, relus and the cotangents of both products. They have an entry
 * q = position * streams + stream for each stage of at most STEPS steps. Stages are c_slab (e_slab) numbers apart. */
typedef struct {
    flow f;
    real *w1_transposed, *w2_transposed;
    real *y, *a, *dk, *dz;
    double *p, *starts, *lambda; /* states; states at each STEPS-th step; cotangents of states */
    idx streams, cols, c_slab, e_slab;
} floater_vjp_state;

LAYOUT(floater_vjp)
{
    s->f = carve_flow(c, call);
    const flow *f = &s->f;
    const idx stages = min_(f->steps, STEPS) * f->rule->stages * SCAN_COLUMNS;
    s->w1_transposed = carve_reals(c, padded(f->c) * f->e);
    s->w2_transposed = carve_reals(c, padded(f->e) * f->c);
    s->y = carve_reals(c, stages * f->c_row);
    s->a = carve_reals(c, stages * f->e_row);
    s->dk = carve_reals(c, stages * f->c_row);
    s->dz = carve_reals(c, stages * f->e_row);
    s->p = carve_doubles(c, SCAN_COLUMNS * f->c_row);
    s->lambda = carve_doubles(c, SCAN_COLUMNS * f->c_row);
    s->starts = carve_doubles(c, (BLOCKS(f->steps, STEPS) - 1) * SCAN_COLUMNS * f->c_row);
}

/* From   p' = p + sum_i h b_i k_i,  k_i = F(y_i),  y_i = p + sum_m h a_im k_m:
 *     dk_i = h b_i lambda + sum over m > i of h a_mi dy_m,   dy_i = (dF/dp)^T dk_i,   lambda += sum_i dy_i
 * and from   k = W2 [a; t] + b2, a = relu(z), z = W1 [y; t] + b1:   da = W2^T dk, dz = da where a > 0, dy = W1^T dz */
static void step_backward(const floater_vjp_state *s, idx step, idx position)
{
    const flow *f = &s->f;
    const tableau *rule = f->rule;
    const idx n = s->streams * f->c_row, to_e = position * s->streams * f->e_row, to_c = position * n;
    for (int i = rule->stages - 1; i >= 0; i--) {
        const idx slab = step * rule->stages + i;
        real *restrict dk = s->dk + slab * s->c_slab + to_c, *restrict dz = s->dz + slab * s->e_slab + to_e;
        const real *a = s->a + slab * s->e_slab + to_e;
        const double hb = f->h * rule->weight[i];
        SIMD
        for (idx j = 0; j < n; j++)
            dk[j] = (real)(hb * s->lambda[j]);
        for (int m = i + 1; m < rule->stages; m++) {
            const real ha = (real)(f->h * rule->from[m][i]), *dy = f->k[m];
            SIMD
            for (idx j = 0; j < n; j++)
                dk[j] = fma_(ha, dy[j], dk[j]);
        }
        const matvec up = {s->w2_transposed, NULL, dk, dz, f->e, f->c, f->c_row, f->e_row, 0, 0};
        const matvec down = {s->w1_transposed, NULL, dz, f->k[i], f->c, f->e, f->e_row, f->c_row, 0, 0};
        FN(multiply_columns)(&up, s->streams);
        SIMD
        for (idx j = 0; j < s->streams * f->e_row; j++)
            dz[j] = a[j] > 0 ? dz[j] : 0;
        FN(multiply_columns)(&down, s->streams);
    }
    for (int i = 0; i < rule->stages; i++) {
        for (idx j = 0; j < n; j++)
            s->lambda[j] += (double)f->k[i][j];
    }
}

/* dW1 += dz [y; t]^T, db1 += dz, dW2 += dk [a; t]^T, db2 += dk, over the stages of `steps` steps */
static void add_stage_weights(const floater_vjp_state *s, idx steps, const pe_work *work)
{
    const flow *f = &s->f;
    const pe_call *call = f->call;
    const idx terms = steps * f->rule->stages * s->cols, c_row = f->c_row, e_row = f->e_row;
    const outer_products dw1 = {s->dz, s->y, e_row, c_row, terms, block_sums(call, DW1, work), f->e, f->c + 1};
    const outer_products dw2 = {s->dk, s->a, c_row, e_row, terms, block_sums(call, DW2, work), f->c, f->e + 1};
    FN(add_outer_products)(&dw1);
    FN(add_vectors)(s->dz, e_row, terms, f->e, block_sums(call, DB1, work));
    FN(add_outer_products)(&dw2);
    FN(add_vectors)(s->dk, c_row, terms, f->c, block_sums(call, DB2, work));
}

/* Propagate lambda from position first + run back to position first, for the streams from b on. More than STEPS steps
 * are split into stretches of STEPS. A forward pass keeps the state before each stretch. Then each stretch, beginning
 * with the last, recomputes its stages and propagates lambda. */
static int floater_run_vjp(floater_vjp_state *s, idx b, idx first, idx run, const pe_work *work)
{
    flow *f = &s->f;
    const pe_array *grad = &f->call->array[GRAD], *path = &f->call->array[PATH];
    const idx stretches = BLOCKS(f->steps, STEPS), stages = f->rule->stages, state = s->cols * f->c_row;
    group g = {first, s->streams, s->cols, s->p, s->y, s->a, 0, 0};
    read_double_states(f, path, b, &g);
    for (idx stretch = 0; stretch + 1 < stretches; stretch++) {
        memcpy(s->starts + stretch * state, s->p, (size_t)state * sizeof(double));
        for (idx step = stretch * STEPS; step < (stretch + 1) * STEPS; step++) {
            take_step(f, step, &g);
            if (stopped_in_flow(f))
                return 0;
        }
    }
    g.y_stage = s->c_slab, g.a_stage = s->e_slab;
    for (idx stretch = stretches - 1; stretch >= 0; stretch--) {
        const idx from = stretch * STEPS, steps = min_(STEPS, f->steps - from);
        if (stretch < stretches - 1)
            memcpy(s->p, s->starts + stretch * state, (size_t)state * sizeof(double));
        for (idx step = 0; step < steps; step++) {
            g.y = s->y + step * stages * s->c_slab, g.a = s->a + step * stages * s->e_slab;
            take_step(f, from + step, &g);
            if (stopped_in_flow(f))
                return 0;
        }
        for (idx k = run - 1; k >= 0; k--) {
            for (idx step = steps - 1; step >= 0; step--) {
                step_backward(s, step, k);
                if (stopped_in_flow(f))
                    return 0;
            }
            if (stretch > 0)
                continue;
            for (idx q = 0; q < s->streams; q++) {
                const char *data = entry_at(grad, grad->data, b + q, first + k);
                const real *cotangent = row_read(data, grad->storage, f->c, f->k[0]);
                for (idx i = 0; i < f->c; i++)
                    s->lambda[q * f->c_row + i] += (double)cotangent[i];
            }
        }
        add_stage_weights(s, steps, work);
    }
    return 1;
}

/* PATH has the states that floater stored. */
KERNEL(floater_vjp)
{
    const idx *const dim = call->dim, n = D(n), units = SCAN_UNITS, last = share_begin(call, end, units);
    const pe_array *grad = &call->array[GRAD], *dp0 = &call->array[DP0];
    floater_vjp_state s = floater_vjp_begin(call, work);
    const flow *f = &s.f;
    read_flow(&s.f, call, &call->array[W1]);
    FN(pack_matrix_transposed)(&call->array[W1], 0, f->c, f->e, s.w1_transposed);
    FN(pack_matrix_transposed)(&call->array[W2], 0, f->e, f->c, s.w2_transposed);
    /* Clear y, a, dk and dz, which are contiguous: the products also read the padding of their rows. */
    memset(s.y, 0, (size_t)((char *)s.p - (char *)s.y));
    for (idx b = share_begin(call, begin, units); b < last; b += SCAN_COLUMNS) {
        s.streams = min_(SCAN_COLUMNS, last - b);
        const idx most = f->steps > STEPS ? 1 : SCAN_COLUMNS / s.streams;
        memset(s.lambda, 0, (size_t)(s.streams * f->c_row) * sizeof(double));
        if (n > 0)
            read_double_states(f, grad, b, &(group){n - 1, s.streams, s.streams, s.lambda, s.y, NULL, 0, 0});
        for (idx left = n - 1; left > 0;) {
            const idx run = min_(most, left);
            s.cols = run * s.streams;
            s.c_slab = s.cols * f->c_row;
            s.e_slab = s.cols * f->e_row;
            left -= run;
            if (!floater_run_vjp(&s, b, left, run, work))
                return;
        }
        for (idx q = 0; q < s.streams; q++)
            memcpy(entry_at(dp0, dp0->data, b + q, 0), s.lambda + q * f->c_row, (size_t)f->c * sizeof(double));
    }
}
