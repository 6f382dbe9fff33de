/* floater.c -- positions as samples of an ordinary differential equation (FLOATER).
 *
 *     dp/dt = h(p, t),   h = W2 [relu(W1 [p; t] + b1); t] + b2          W1 (e, c+1), W2 (c, e+1), time is the last column
 *
 * Row k is p(k dt), by s Runge-Kutta steps of dt / s. A group of columns (streams, layers) walks all positions together.
 * Time stands in place c of every p and in place e of every relu, so that both products are plain dense ones. The state
 * is a double: thousands of small steps are added to it, and only the field is computed in `real`.
 *
 * The gradient is that of the discrete steps. Stages are computed again from the rows of the path, of several positions
 * at once; backwards there is one position after the other. Outer products are summed over all stages of such a run.
 */
#include "encoding/matvec.h"

#include "scratch.h"

typedef struct {
    int stages;
    double at[FLOW_STAGES], from[FLOW_STAGES][FLOW_STAGES], weight[FLOW_STAGES];
} tableau;

static const tableau tableaus[] = {
#define TABLEAU(name, stages, t1, t2, t3, a10, a20, a21, a30, a31, a32, b0, b1, b2, b3) \
    {stages, {0, t1, t2, t3}, {{0}, {a10}, {a20, a21}, {a30, a31, a32}}, {b0, b1, b2, b3}},
#include "constants.def"
};

typedef struct {
    const pe_call *call;
    const tableau *rule;
    idx c, e, c_row, e_row, steps; /* c_row, e_row: how far columns are apart */
    double dt, h;
    const double *when;
    real *w1, *b1, *w2, *b2, *w1_transposed, *w2_transposed;
    real *k[FLOW_STAGES]; /* slopes of the stages; in the gradient, cotangents of their states */
    int polls;
} flow;

enum { IN_W1 = 1, IN_STEPS = 5 }; /* operands of floater; those of floater_vjp are one further */

static flow flow_of(const pe_call *call, int shift, char **scratch)
{
    const idx c = call->D(c), e = call->D(e), s = call->D(s);
    const pe_array *a = call->array + IN_W1 + shift;
    flow f = {.call = call,
              .rule = &tableaus[(int)call->par[1]],
              .c = c,
              .e = e,
              .c_row = padded(c + 1),
              .e_row = padded(e + 1),
              .steps = s,
              .dt = call->par[0],
              .h = call->par[0] / (double)s,
              .when = (const double *)(const void *)call->array[IN_STEPS + shift].data};
    f.w1 = carve(scratch, padded(e) * (c + 1));
    f.b1 = carve(scratch, padded(e));
    f.w2 = carve(scratch, padded(c) * (e + 1));
    f.b2 = carve(scratch, padded(c));
    pack_matrix(&a[0], 0, e, c + 1, f.w1);
    read_padded(a[1].data, a[1].storage, e, f.b1);
    pack_matrix(&a[2], 0, c, e + 1, f.w2);
    read_padded(a[3].data, a[3].storage, c, f.b2);
    for (int i = 0; i < FLOW_STAGES; i++) {
        f.k[i] = carve(scratch, WALK_COLUMNS * f.c_row);
        memset(f.k[i], 0, (size_t)(WALK_COLUMNS * f.c_row) * sizeof(real));
    }
    return f;
}

/* Asked after each step of work worth some 100 us, and every 16 otherwise. */
static int stopped(flow *f)
{
    const pe_call *call = f->call;
    return call->stop && (f->c * f->e > 1 << 16 || ++f->polls % 16 == 0) && call->stop(call);
}

/* y = p + sum over stages m < i of h from[i][m] k_m, for n numbers. Slopes of later stages are those of other columns
 * or of steps gone by: not read, not even to be multiplied by 0. */
static NOINLINE void stage_state(const flow *f, int i, const double *restrict p, idx n, real *restrict y)
{
    const double *from = f->rule->from[i], h = f->h;
    const double h0 = h * from[0], h1 = h * from[1], h2 = h * from[2];
    const real *k0 = f->k[0], *k1 = f->k[i > 1 ? 1 : 0], *k2 = f->k[i > 2 ? 2 : 0];
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
static NOINLINE void advance(const flow *f, double *restrict p, idx n)
{
    const double *weight = f->rule->weight, h = f->h;
    const int stages = f->rule->stages;
    const double h0 = h * weight[0], h1 = h * weight[1], h2 = h * weight[2], h3 = h * weight[3];
    const real *k0 = f->k[0], *k1 = f->k[stages > 1 ? 1 : 0], *k2 = f->k[stages > 2 ? 2 : 0],
               *k3 = f->k[stages > 2 ? 3 : 0];
    SIMD
    for (idx j = 0; j < n; j++)
        p[j] += (h0 * (double)k0[j] + h1 * (double)k1[j]) + (h2 * (double)k2[j] + h3 * (double)k3[j]);
}

/* Step number `step` after a position, of `cols` columns: p moves on. Column q is at position first + q / streams. y and
 * a get the states and relus of stage i at i times y_stage and a_stage. */
static void take_step(const flow *f, idx step, idx first, idx streams, idx cols, double *p, real *y, idx y_stage,
                      real *a, idx a_stage)
{
    for (int i = 0; i < f->rule->stages; i++, y += y_stage, a += a_stage) {
        const double later = f->when[step] + f->rule->at[i] / (double)f->steps;
        const pe_dense up = {f->w1, f->b1, y, a, f->e, f->c + 1, f->c_row, f->e_row, 1};
        const pe_dense down = {f->w2, f->b2, a, f->k[i], f->c, f->e + 1, f->e_row, f->c_row, 0};
        stage_state(f, i, p, cols * f->c_row, y);
        for (idx q = 0; q < cols; q++)
            y[q * f->c_row + f->c] = (real)(f->dt * ((double)(first + q / streams) + later));
        dense(&up, cols);
        for (idx q = 0; q < cols; q++)
            a[q * f->e_row + f->e] = y[q * f->c_row + f->c];
        dense(&down, cols);
    }
    advance(f, p, cols * f->c_row);
}

static void read_state(const flow *f, const char *data, pe_storage storage, real *room, double *p)
{
    const real *row = row_read(data, storage, f->c, room);
    for (idx i = 0; i < f->c; i++)
        p[i] = (double)row[i];
    for (idx i = f->c; i < f->c_row; i++)
        p[i] = 0;
}

static void write_state(const flow *f, const double *p, real *room, char *data, pe_storage storage)
{
    real *row = row_target(data, storage, room);
    for (idx i = 0; i < f->c; i++)
        row[i] = (real)p[i];
    row_write(row, data, storage, f->c);
}

/* p0(b,c) w1(e,c+1) b1(e) w2(c,e+1) b2(c) when(s) -> out(b,n,c) */
void FN(floater)(const pe_call *call, idx begin, idx end, const pe_work *work)
{
    const idx n = call->D(n), *const dim = call->dim, units = WALK_UNITS, last = share_of(call, end, units);
    const pe_array *p0 = &call->array[0], *out = &call->array[6];
    char *scratch = work->scratch;
    if (n == 0)
        return;
    flow f = flow_of(call, 0, &scratch);
    real *y = carve(&scratch, WALK_COLUMNS * f.c_row), *a = carve(&scratch, WALK_COLUMNS * f.e_row);
    double *p = (double *)(void *)scratch;
    memset(a, 0, (size_t)(WALK_COLUMNS * f.e_row) * sizeof(real));
    for (idx b = share_of(call, begin, units); b < last; b += WALK_COLUMNS) {
        const idx cols = min_(WALK_COLUMNS, last - b);
        for (idx q = 0; q < cols; q++)
            read_state(&f, p0->data + (b + q) * p0->core[0], p0->storage, y, p + q * f.c_row);
        for (idx k = 0;; k++) {
            for (idx q = 0; q < cols; q++)
                write_state(&f, p + q * f.c_row, y, out->data + (b + q) * out->core[0] + k * out->core[1],
                            out->storage);
            if (k + 1 == n)
                break;
            for (idx step = 0; step < f.steps; step++) {
                take_step(&f, step, k, cols, cols, p, y, 0, a, 0);
                if (stopped(&f))
                    return;
            }
        }
    }
}

/* ---- gradient ---- */

/* States, relus and the cotangents of both products, for every stage of at most FLOW_STEPS steps of a run of positions:
 * q = position * streams + stream, and a stage is c_slab (e_slab) after the one before. */
typedef struct {
    idx streams, cols, c_slab, e_slab;
    real *y, *a, *dk, *dz;
    double *p, *starts, *lambda; /* states; those at every FLOW_STEPS-th step; cotangent of the state */
} tape;

/* From   p' = p + sum_i h b_i k_i,  k_i = h(y_i),  y_i = p + sum_m h a_im k_m:
 *     dk_i = h b_i lambda + sum over m > i of h a_mi dy_m,   dy_i = (dh/dp)^T dk_i,   lambda += sum_i dy_i
 * and from   k = W2 [a; t] + b2, a = relu(z), z = W1 [y; t] + b1:   da = W2^T dk, dz = da where a > 0, dy = W1^T dz */
static void step_back(const flow *f, const tape *t, idx step, idx position)
{
    const tableau *rule = f->rule;
    const idx n = t->streams * f->c_row, to_e = position * t->streams * f->e_row, to_c = position * n;
    for (int i = rule->stages - 1; i >= 0; i--) {
        const idx slab = step * rule->stages + i;
        real *restrict dk = t->dk + slab * t->c_slab + to_c, *restrict dz = t->dz + slab * t->e_slab + to_e;
        const real *a = t->a + slab * t->e_slab + to_e;
        const double hb = f->h * rule->weight[i];
        SIMD
        for (idx j = 0; j < n; j++)
            dk[j] = (real)(hb * t->lambda[j]);
        for (int m = i + 1; m < rule->stages; m++) {
            const real ha = (real)(f->h * rule->from[m][i]), *dy = f->k[m];
            SIMD
            for (idx j = 0; j < n; j++)
                dk[j] = fma_(ha, dy[j], dk[j]);
        }
        const pe_dense up = {f->w2_transposed, NULL, dk, dz, f->e, f->c, f->c_row, f->e_row, 0};
        const pe_dense down = {f->w1_transposed, NULL, dz, f->k[i], f->c, f->e, f->e_row, f->c_row, 0};
        dense(&up, t->streams);
        SIMD
        for (idx j = 0; j < t->streams * f->e_row; j++)
            dz[j] = a[j] > 0 ? dz[j] : 0;
        dense(&down, t->streams);
    }
    for (int i = 0; i < rule->stages; i++)
        for (idx j = 0; j < n; j++)
            t->lambda[j] += (double)f->k[i][j];
}

static double *slot_of(const pe_call *call, int operand, const pe_work *work)
{
    const pe_array *a = &call->array[operand];
    return (double *)(void *)(a->data + work->block * a->loop[0]);
}

/* dW1 += dz [y; t]^T, db1 += dz, dW2 += dk [a; t]^T, db2 += dk, over the stages of `steps` steps */
static void add_weights(const flow *f, const tape *t, idx steps, const pe_work *work)
{
    const idx pairs = steps * f->rule->stages * t->cols;
    const pe_outer first = {t->dz, t->y, f->e_row, f->c_row, pairs, slot_of(f->call, 8, work), f->e, f->c + 1};
    const pe_outer second = {t->dk, t->a, f->c_row, f->e_row, pairs, slot_of(f->call, 10, work), f->c, f->e + 1};
    add_outer(&first);
    add_rows(t->dz, f->e_row, pairs, f->e, slot_of(f->call, 9, work));
    add_outer(&second);
    add_rows(t->dk, f->c_row, pairs, f->c, slot_of(f->call, 11, work));
}

/* The positions first <= k < first + run, of columns b on: lambda moves back by `run` positions. */
static int run_back(flow *f, tape *t, idx b, idx first, idx run, const pe_work *work)
{
    const pe_array *grad = &f->call->array[0], *path = &f->call->array[1];
    const idx parts = BLOCKS(f->steps, FLOW_STEPS), stages = f->rule->stages, state = t->cols * f->c_row;
    for (idx q = 0; q < t->cols; q++)
        read_state(f, path->data + (b + q % t->streams) * path->core[0] + (first + q / t->streams) * path->core[1],
                   path->storage, t->y, t->p + q * f->c_row);
    for (idx part = 0; part + 1 < parts; part++) { /* many steps: their states by parts, then the parts backwards */
        memcpy(t->starts + part * state, t->p, (size_t)state * sizeof(double));
        for (idx step = part * FLOW_STEPS; step < (part + 1) * FLOW_STEPS; step++) {
            take_step(f, step, first, t->streams, t->cols, t->p, t->y, 0, t->a, 0);
            if (stopped(f))
                return 0;
        }
    }
    for (idx part = parts - 1; part >= 0; part--) {
        const idx from = part * FLOW_STEPS, steps = min_(FLOW_STEPS, f->steps - from);
        if (part < parts - 1)
            memcpy(t->p, t->starts + part * state, (size_t)state * sizeof(double));
        for (idx step = 0; step < steps; step++) {
            take_step(f, from + step, first, t->streams, t->cols, t->p, t->y + step * stages * t->c_slab, t->c_slab,
                      t->a + step * stages * t->e_slab, t->e_slab);
            if (stopped(f))
                return 0;
        }
        for (idx k = run - 1; k >= 0; k--) {
            for (idx step = steps - 1; step >= 0; step--) {
                step_back(f, t, step, k);
                if (stopped(f))
                    return 0;
            }
            for (idx q = 0; part == 0 && q < t->streams; q++) {
                const char *row = grad->data + (b + q) * grad->core[0] + (first + k) * grad->core[1];
                const real *g = row_read(row, grad->storage, f->c, f->k[0]);
                for (idx i = 0; i < f->c; i++)
                    t->lambda[q * f->c_row + i] += (double)g[i];
            }
        }
        add_weights(f, t, steps, work);
    }
    return 1;
}

/* grad(b,n,c) path(b,n,c) w1 b1 w2 b2 when -> dp0(b,c) +dw1(e,c+1) +db1(e) +dw2(c,e+1) +db2(c); path is the result */
void FN(floater_vjp)(const pe_call *call, idx begin, idx end, const pe_work *work)
{
    const idx n = call->D(n), *const dim = call->dim, units = WALK_UNITS, to = share_of(call, end, units);
    const pe_array *grad = &call->array[0], *dp0 = &call->array[7];
    char *scratch = work->scratch;
    flow f = flow_of(call, 1, &scratch);
    f.w1_transposed = carve(&scratch, padded(f.c) * f.e);
    f.w2_transposed = carve(&scratch, padded(f.e) * f.c);
    pack_matrix_transposed(&call->array[IN_W1 + 1], 0, f.c, f.e, f.w1_transposed);
    pack_matrix_transposed(&call->array[IN_W1 + 3], 0, f.e, f.c, f.w2_transposed);
    const idx stages = min_(f.steps, FLOW_STEPS) * f.rule->stages, c_all = stages * WALK_COLUMNS * f.c_row,
              e_all = stages * WALK_COLUMNS * f.e_row;
    tape t = {.y = carve(&scratch, c_all),
              .a = carve(&scratch, e_all),
              .dk = carve(&scratch, c_all),
              .dz = carve(&scratch, e_all)};
    memset(t.y, 0, (size_t)(scratch - (char *)t.y)); /* what pads rows takes part in products */
    t.p = (double *)(void *)scratch;
    t.lambda = t.p + WALK_COLUMNS * f.c_row;
    t.starts = t.lambda + WALK_COLUMNS * f.c_row;
    for (idx b = share_of(call, begin, units); b < to; b += WALK_COLUMNS) {
        t.streams = min_(WALK_COLUMNS, to - b);
        const idx most = f.steps > FLOW_STEPS ? 1 : WALK_COLUMNS / t.streams;
        memset(t.lambda, 0, (size_t)(t.streams * f.c_row) * sizeof(double));
        for (idx q = 0; n > 0 && q < t.streams; q++)
            read_state(&f, grad->data + (b + q) * grad->core[0] + (n - 1) * grad->core[1], grad->storage, t.y,
                       t.lambda + q * f.c_row);
        for (idx left = n - 1; left > 0;) {
            const idx run = min_(most, left);
            t.cols = run * t.streams;
            t.c_slab = t.cols * f.c_row;
            t.e_slab = t.cols * f.e_row;
            left -= run;
            if (!run_back(&f, &t, b, left, run, work))
                return;
        }
        for (idx q = 0; q < t.streams; q++)
            memcpy(dp0->data + (b + q) * dp0->core[0], t.lambda + q * f.c_row, (size_t)f.c * sizeof(double));
    }
}
