/* rotary.c -- rotation of channel pairs by a table of cos and sin.
 *
 *     y0 = x0 cos - x1 sin,   y1 = x0 sin + x1 cos        pair k: (k, k + e) "half", (2k, 2k + 1) "interleaved"
 *
 * One row is the channels of one token in one head; 2e of them, from `offset` on, are rotated and the others are
 * copied bit for bit. The input may be stored in one layout and the output in the other. cos and sin include
 * whatever factor the caller wants; the inverse and the transpose are other tables, not other kernels.
 */
#include "base/row.h"
#include "base/stream.h"

/* A layout is where pair k begins (k * pair) and how far its second member is (partner). */
INLINE void rotate(const real *x, idx x_pair, idx x_partner, const real *c, const real *s, idx e, real *y, idx y_pair,
                   idx y_partner)
{
    SIMD
    for (idx k = 0; k < e; k++) {
        const real x0 = x[k * x_pair], x1 = x[k * x_pair + x_partner];
        y[k * y_pair] = fma_(x0, c[k], -(x1 * s[k]));
        y[k * y_pair + y_partner] = fma_(x0, s[k], x1 * c[k]);
    }
}

static NOINLINE void half_to_half(const real *x, const real *c, const real *s, idx e, real *y)
{
    rotate(x, 1, e, c, s, e, y, 1, e);
}
static NOINLINE void half_to_pairs(const real *x, const real *c, const real *s, idx e, real *y)
{
    rotate(x, 1, e, c, s, e, y, 2, 1);
}
static NOINLINE void pairs_to_half(const real *x, const real *c, const real *s, idx e, real *y)
{
    rotate(x, 2, 1, c, s, e, y, 1, e);
}
static NOINLINE void pairs_to_pairs(const real *x, const real *c, const real *s, idx e, real *y)
{
    rotate(x, 2, 1, c, s, e, y, 2, 1);
}

typedef void (*rotation)(const real *, const real *, const real *, idx, real *);

static rotation rotation_of(int interleaved, int out_interleaved)
{
    static const rotation all[2][2] = {{half_to_half, half_to_pairs}, {pairs_to_half, pairs_to_pairs}};
    return all[interleaved][out_interleaved];
}

static void copy_rest(const char *x, char *out, idx offset, idx rotated, idx d, idx size)
{
    if (x == out)
        return;
    memcpy(out, x, (size_t)(offset * size));
    memcpy(out + (offset + rotated) * size, x + (offset + rotated) * size, (size_t)((d - offset - rotated) * size));
}

/* Rotates the channels of one row; `room` holds 2e reals for a result that cannot be written where it belongs. */
static void rotate_row(rotation turn, const char *x, pe_storage stored, const real *c, const real *s, idx e, char *out,
                       pe_storage out_stored, int in_place, real *wide, real *room)
{
    const real *row = row_read(x, stored, 2 * e, wide);
    real *target = in_place ? room : row_target(out, out_stored, room);
    turn(row, c, s, e, target);
    if (target == room && out_stored == PE_STORAGE)
        memcpy(out, room, (size_t)(2 * e) * sizeof(real));
    else
        row_write(room, out, out_stored, 2 * e);
}

/* Large results go past the caches: a plain store first reads the line that it is about to fill, and evicts others.
 * Worth it where memory was there before (par[3]: `out` was given; fresh pages are slower so), is not read meanwhile (not
 * in place), is one run of rows and is larger than what a last-level cache keeps; not in half precision, where
 * conversion takes longer than memory and one copy more would count. */
enum { LARGE = 32 << 20 };

static int streams(const pe_call *call, int result)
{
    const pe_array *x = &call->array[0], *out = &call->array[result];
    idx run = call->D(d) * storage_size(out->storage);
    if (!PE_STREAMS || call->par[3] == 0 || x->data == out->data || out->storage != PE_STORAGE)
        return 0;
    for (int a = call->nloops - 1; a >= 0; a--) {
        if (call->shape[a] != 1 && out->loop[a] != run)
            return 0;
        run *= call->shape[a];
    }
    return run >= LARGE;
}

/* Rows of x to rows of out, a[0] and a[result]; cos and sin are halves of one row of a[1], or rows of a[1] and a[2]. */
INLINE void rope_rows(const pe_call *call, idx begin, idx end, const pe_work *work, idx e, int result)
{
    const idx d = call->D(d), offset = (idx)call->par[0];
    const int interleaved = (int)call->par[1], out_interleaved = (int)call->par[2];
    const rotation turn = rotation_of(interleaved, out_interleaved);
    const pe_array *a = call->array;
    const idx size = storage_size(a[0].storage);
    real *wide = work->scratch, *room = wide + d, *wide_table = room + d;
    char *line = streams(call, result) ? (char *)(wide_table + 2 * e) : NULL;
    for (pe_row at = row_at(call, begin); at.index < end; row_next(call, &at)) {
        const char *x = at.data[0];
        char *out = line ? line : at.data[result];
        const int in_place = x == out && interleaved != out_interleaved;
        const int apart = result == 3;
        const real *cosine = row_read(at.data[1], a[1].storage, apart ? e : 2 * e, wide_table);
        const real *sine = apart ? row_read(at.data[2], a[2].storage, e, wide_table + e) : cosine + e;
        copy_rest(x, out, offset, 2 * e, d, size);
        rotate_row(turn, x + offset * size, a[0].storage, cosine, sine, e, out + offset * size, a[result].storage,
                   in_place, wide, room);
        if (line)
            stream_row(line, at.data[result], d * size);
    }
    if (line)
        stream_end();
}

/* x(d) table(t) -> out(d); offset, interleaved, out_interleaved, given */
void FN(rope)(const pe_call *call, idx begin, idx end, const pe_work *work)
{
    rope_rows(call, begin, end, work, call->D(t) / 2, 2);
}

/* x(d) cos(e) sin(e) -> out(d); offset, interleaved, out_interleaved, given */
void FN(rope_given)(const pe_call *call, idx begin, idx end, const pe_work *work)
{
    rope_rows(call, begin, end, work, call->D(e), 3);
}

/* What both gradients share: dx is the transposed rotation of grad (sin negated, layouts exchanged). */
typedef struct {
    const real *grad, *x; /* from the first rotated channel on */
    const real *cosine, *sine;
} read_row;

static read_row dx_of_row(const pe_call *call, const pe_row *at, int dx, real *scratch)
{
    const idx d = call->D(d), e = call->D(t) / 2, offset = (idx)call->par[0];
    const pe_array *a = call->array;
    real *wide = scratch, *room = wide + 2 * d, *wide_table = room + d, *transposed = wide_table + 2 * e;
    const real *cosine = row_read(at->data[2], a[2].storage, 2 * e, wide_table);
    const read_row r = {row_read(at->data[0], a[0].storage, d, wide) + offset,
                        row_read(at->data[1], a[1].storage, d, wide + d) + offset, cosine, cosine + e};
    for (idx k = 0; k < e; k++)
        transposed[k] = -r.sine[k];
    const idx size = storage_size(a[dx].storage);
    copy_rest(at->data[0], at->data[dx], offset, 2 * e, d, size);
    rotate_row(rotation_of((int)call->par[2], (int)call->par[1]), (const char *)r.grad, PE_STORAGE, cosine, transposed,
               e, at->data[dx] + offset * size, a[dx].storage, 0, wide, room);
    return r;
}

/* Strides of pair k and of its partner in a layout. */
INLINE idx first_of(int interleaved, idx k) { return interleaved ? 2 * k : k; }
INLINE idx second_of(int interleaved, idx k, idx e) { return interleaved ? 2 * k + 1 : k + e; }

/* y = (x0 cos - x1 sin, x0 sin + x1 cos) turns as d y / d theta = (-y1, y0) and grows as d y / d rho = y:
 *     dtheta = dy1 y0 - dy0 y1,   drho = dy0 y0 + dy1 y1
 * From   theta_k = sum_a p_a w_ak,   rho_k = sum_a p_a growth_ak:
 *     dp_a = sum_k w_ak dtheta_k + growth_ak drho_k,   dw_ak += p_a dtheta_k */
void FN(rope_vjp)(const pe_call *call, idx begin, idx end, const pe_work *work)
{
    const idx axes = call->D(a), e = call->D(e);
    const int in = (int)call->par[1], out = (int)call->par[2];
    const pe_array *a = call->array;
    double *dtheta = work->scratch, *drho = dtheta + e;
    for (pe_row at = row_at(call, begin); at.index < end; row_next(call, &at)) {
        const read_row r = dx_of_row(call, &at, 6, (real *)(void *)(drho + e));
        for (idx k = 0; k < e; k++) {
            const double x0 = (double)r.x[first_of(in, k)], x1 = (double)r.x[second_of(in, k, e)];
            const double dy0 = (double)r.grad[first_of(out, k)], dy1 = (double)r.grad[second_of(out, k, e)];
            const double c = (double)r.cosine[k], s = (double)r.sine[k];
            const double y0 = x0 * c - x1 * s, y1 = x0 * s + x1 * c;
            dtheta[k] = dy1 * y0 - dy0 * y1;
            drho[k] = dy0 * y0 + dy1 * y1;
        }
        double *dp = (double *)(void *)at.data[7];
        for (idx axis = 0; axis < axes; axis++) {
            const double p = scalar_read(at.data[3] + axis * a[3].core[0], a[3].storage);
            const double *w = (const double *)(void *)(at.data[4] + axis * a[4].core[0]);
            double *dw = (double *)(void *)(a[8].data + work->block * a[8].loop[0]) + axis * e;
            double sum = 0;
            for (idx k = 0; k < e; k++) {
                sum += w[k] * dtheta[k];
                dw[k] += p * dtheta[k];
            }
            if (at.data[5]) {
                const double *growth = (const double *)(void *)(at.data[5] + axis * a[5].core[0]);
                for (idx k = 0; k < e; k++)
                    sum += growth[k] * drho[k];
            }
            dp[axis] = sum;
        }
    }
}

/* dcos = dy0 x0 + dy1 x1,  dsin = dy1 x0 - dy0 x1, for each row */
void FN(rope_table_vjp)(const pe_call *call, idx begin, idx end, const pe_work *work)
{
    const idx e = call->D(t) / 2;
    const int in = (int)call->par[1], out = (int)call->par[2];
    for (pe_row at = row_at(call, begin); at.index < end; row_next(call, &at)) {
        const read_row r = dx_of_row(call, &at, 3, work->scratch);
        double *dcos = (double *)(void *)at.data[4], *dsin = dcos + e;
        for (idx k = 0; k < e; k++) {
            const double x0 = (double)r.x[first_of(in, k)], x1 = (double)r.x[second_of(in, k, e)];
            const double dy0 = (double)r.grad[first_of(out, k)], dy1 = (double)r.grad[second_of(out, k, e)];
            dcos[k] = dy0 * x0 + dy1 * x1;
            dsin[k] = dy1 * x0 - dy0 * x1;
        }
    }
}
