/* rope.c -- rotate pairs of channels by position * frequency, or by the angles of a table of cos and sin.
 *
 *     for (k < e)                                 pair k: (k, k + e) "half", (2k, 2k + 1) "interleaved"
 *         y0[k] = x0[k] * cos[k] - x1[k] * sin[k], y1[k] = x0[k] * sin[k] + x1[k] * cos[k];
 *
 * A row is one token of one head, d channels. The kernels rotate 2e channels from `offset` on and copy the others bit
 * for bit. Input and output may have different layouts. cos and sin may be scaled, so the inverse and the transpose of
 * a rotation differ; each is this rotation with other cosines and sines. Each combination of layouts has a loop with
 * constant strides, which vectorises.
 *
 * A unit is a run of ROPE_RUN positions in ROPE_HEADS heads, which share positions, or rows of a table, so that one run
 * of cos and sin serves them from the L2 cache. If heads are closer in memory than positions, the loops change places.
 *
 *     cos, sin = table of positions first .. first + ROPE_RUN           in scratch; or rows of the caller's table
 *     for each two heads:
 *         for (i = first; i < first + ROPE_RUN; i++)
 *             for each of these heads:
 *                 rotate(x[head][i], cos[i - first], sin[i - first]);
 *
 * A pair depends on its position alone, so it has the same bits in any run. rope_call.c names the axes: n positions,
 * and h heads.
 */
#include "fits.h"
#include "base/layout.h"
#include "base/row.h"
#include "base/angles.h"
#include "base/stream.h"
#include "base/vec.h"

/* The addresses of a row */
typedef struct {
    const char *x, *cosine, *sine;
    char *out;
} rope_place;

/* Rows along an axis, and bytes from a row to the next one */
typedef struct {
    idx count, x, cosine, sine, out;
} rope_axis;

INLINE rope_place place_at(rope_place p, const rope_axis *a, idx i)
{
    return (rope_place){p.x + i * a->x, p.cosine + i * a->cosine, p.sine + i * a->sine, p.out + i * a->out};
}

/* The rows of a unit: its positions and its heads, of which the inner axis is closer in memory. A row of `bytes` bytes
 * has e pairs. Its first `before` and its last `after` bytes are only copied. */
typedef struct {
    rope_place first;
    rope_axis inner, outer;
    idx e, before, after, bytes;
    idx ahead; /* rows from a row to the one that is prefetched; 0: none is */
} rope_rows;

typedef struct {
    const real *x, *cosine, *sine;
    real *y;
} rope_row;

/* Rotate n pairs. Pair k is (x[k * step], x[k * step + partner]), and its result is (y[k * y_step],
 * y[k * y_step + y_partner]). */
INLINE void rotate(rope_row row, idx n, idx step, idx partner, idx y_step, idx y_partner)
{
    const real *x = row.x, *c = row.cosine, *s = row.sine;
    real *y0 = row.y, *y1 = row.y + y_partner;
    SIMD
    for (idx k = 0; k < n; k++) {
        const real x0 = x[k * step], x1 = x[k * step + partner];
        y0[k * y_step] = fma_(x0, c[k], -(x1 * s[k]));
        y1[k * y_step] = fma_(x0, s[k], x1 * c[k]);
    }
}

/* Rotate a row, or the same row of two heads, a run of pairs at a time: first into `rotated`, then to y. Two heads read
 * the table once. Their rows are often equal modulo 4 KiB, where a load may wait for an earlier store of the other
 * head, so a run of both is loaded before one is stored. For a row in halves, the stores of a run complete cache lines,
 * which an unaligned vector of AVX-512 spans (NumPy aligns to 16 bytes). One head with an interleaved row needs no
 * runs: its stores are consecutive. */
INLINE void rotate_heads(const rope_rows *r, rope_row row, int heads, int interleaved, int out_interleaved)
{
    enum { MOST_RUN = 4 * LANES };
    const idx e = r->e, head_x = r->outer.x / (idx)sizeof(real), head_y = r->outer.out / (idx)sizeof(real);
    const idx run = MOST_RUN / heads, step = interleaved ? 2 : 1, y_step = out_interleaved ? 2 : 1;
    const idx partner = interleaved ? 1 : e, in_runs = heads == 2 || !out_interleaved ? e / run * run : 0;
    idx k = 0;
    for (; k < in_runs; k += run) {
        real rotated[2][2 * MOST_RUN];
        UNROLL
        for (int h = 0; h < heads; h++)
            rotate((rope_row){row.x + h * head_x + k * step, row.cosine + k, row.sine + k, rotated[h]}, run, step,
                   partner, y_step, out_interleaved ? 1 : run);
        UNROLL
        for (int h = 0; h < heads; h++) {
            real *y0 = row.y + h * head_y + k * y_step, *y1 = y0 + (out_interleaved ? run : e);
            UNROLL
            for (int i = 0; i < run; i += LANES)
                vec_store(y0 + i, vec_load(rotated[h] + i));
            UNROLL
            for (int i = 0; i < run; i += LANES)
                vec_store(y1 + i, vec_load(rotated[h] + run + i));
        }
    }
    for (int h = 0; h < heads && k < e; h++)
        rotate((rope_row){row.x + h * head_x + k * step, row.cosine + k, row.sine + k, row.y + h * head_y + k * y_step},
               e - k, step, partner, y_step, out_interleaved ? 1 : e);
}

/* Rows whose reads are too far apart for the CPU's own prefetching, which ends at each page of 4 KiB, are prefetched:
 * the row that is rotated `ahead` rows after row i of the inner axis. Rows are `step` bytes apart, and the first row
 * after the last one, of the next head, is `next` bytes from the first. */
INLINE void prefetch_ahead(const rope_rows *r, idx i, const char *row, idx step, idx next)
{
    enum { LINE_BYTES = 64 };
    row += r->ahead * step + (i + r->ahead < r->inner.count ? 0 : next - r->inner.count * step);
    for (idx k = 0; k < r->bytes; k += LINE_BYTES)
        PREFETCH_SECOND(row + k);
}

/* Copy the first and the last bytes of a row, which are not rotated. */
INLINE void copy_rest(const rope_rows *r, const char *x, char *out)
{
    if (r->before + r->after == 0 || x == out)
        return;
    memcpy(out, x, (size_t)r->before);
    memcpy(out + r->bytes - r->after, x + r->bytes - r->after, (size_t)r->after);
}

/* Prefetch a later row of each head, if that pays, and copy what is not rotated of row i. */
static NOINLINE void prepare_rows(const rope_rows *r, idx i, const char *x, char *out, int heads)
{
    for (int h = 0; h < heads; h++, x += r->outer.x, out += r->outer.out) {
        if (r->ahead > 0) {
            prefetch_ahead(r, i, x, r->inner.x, heads * r->outer.x);
            prefetch_ahead(r, i, out, r->inner.out, heads * r->outer.out);
        }
        copy_rest(r, x, out);
    }
}

/* Rotate the rows of the inner axis. */
INLINE void rotate_rows(const rope_rows *r, int heads, int interleaved, int out_interleaved)
{
    const int prepares = r->ahead || r->before || r->after;
    const char *x = r->first.x, *cosine = r->first.cosine, *sine = r->first.sine;
    char *out = r->first.out;
    for (idx i = 0; i < r->inner.count; i++) {
        if (prepares)
            prepare_rows(r, i, x, out, heads);
        rotate_heads(r,
                     (rope_row){(const real *)(const void *)(x + r->before), (const real *)(const void *)cosine,
                                (const real *)(const void *)sine, as_reals(out + r->before)},
                     heads, interleaved, out_interleaved);
        x += r->inner.x;
        cosine += r->inner.cosine;
        sine += r->inner.sine;
        out += r->inner.out;
    }
}

/* The loop of a combination of layouts, for `heads` heads, 1 or 2 */
typedef void rotation(const rope_rows *, int heads);
INLINE void rotate_layouts(const rope_rows *r, int heads, int interleaved, int out_interleaved)
{
    if (heads == 2)
        rotate_rows(r, 2, interleaved, out_interleaved);
    else
        rotate_rows(r, 1, interleaved, out_interleaved);
}
static NOINLINE void half_to_half(const rope_rows *r, int heads) { rotate_layouts(r, heads, 0, 0); }
static NOINLINE void half_to_pairs(const rope_rows *r, int heads) { rotate_layouts(r, heads, 0, 1); }
static NOINLINE void pairs_to_half(const rope_rows *r, int heads) { rotate_layouts(r, heads, 1, 0); }
static NOINLINE void pairs_to_pairs(const rope_rows *r, int heads) { rotate_layouts(r, heads, 1, 1); }

static rotation *rotation_of(int interleaved, int out_interleaved)
{
    static rotation *const all[2][2] = {{half_to_half, half_to_pairs}, {pairs_to_half, pairs_to_pairs}};
    return all[interleaved][out_interleaved];
}

/* Operands of both kernels. A table is computed from positions and frequencies. */
enum { X, COS, SIN, OUT, POSITIONS = COS, FREQUENCIES = SIN };
enum { ALONG_N, ALONG_H = 2 }; /* named axes; rope_call.c sets h */

typedef struct {
    pe_frequencies w;
    real *table;      /* [cos | sin] of a run of positions */
    real *x, *result; /* rotated channels that are not stored as real, as real; result also if out overlaps x */
    char *to_stream;  /* a row of out, before stream_row copies it */
} rope_state;

LAYOUT(rope)
{
    carve_frequencies(&s->w, c, D(e));
    s->table = carve_reals(c, min_(D(n), ROPE_RUN) * 2 * D(e));
    s->x = carve_reals(c, 2 * D(e));
    s->result = carve_reals(c, 2 * D(e));
    s->to_stream = carve_bytes(c, D(d) * (idx)sizeof(real));
}

/* What the units of a call share */
typedef struct {
    const pe_call *call;
    rope_state s;
    rotation *rotate;
    int overlaps, streams;
    int in_one_go, in_pairs;    /* rows of reals, which are neither converted nor copied; of two heads at a time */
    rope_axis positions, heads; /* of a unit */
    rope_rows rows;
} rope_units;

/* Return whether to write `out` by non-temporal stores (stream.h). They are faster if all of these hold: the caller
 * passed `out` (into fresh pages they are slower), out is not x, out is dense, and out is larger than the last-level
 * cache. In half precision, conversion limits the speed, and the additional copy of a row costs more than streaming
 * saves. */
static int worth_streaming(const pe_call *call)
{
    const pe_array *out = &call->array[OUT];
    const idx *const dim = call->dim, row = D(d) * storage_size(out->storage);
    idx bytes = row * D(n) * D(h), last = (D(n) - 1) * out->core[ALONG_N] + (D(h) - 1) * out->core[ALONG_H];
    for (int a = 0; a < call->nloops; a++) {
        bytes *= call->shape[a];
        last += (call->shape[a] - 1) * out->loop[a];
    }
    return PE_STREAMS && call->par[ROPE_CALLER_OUT] != 0 && call->array[X].data != out->data
           && out->storage == PE_STORAGE && bytes > PE_LAST_CACHE && last + row == bytes;
}

static rope_axis axis_of(const pe_call *call, int axis)
{
    const pe_array *a = call->array;
    return (rope_axis){0, a[X].core[axis], a[COS].core[axis], a[SIN].core[axis], a[OUT].core[axis]};
}

enum { AHEAD_BYTES = 2048 }; /* from a row to the one that is prefetched */

static rope_units begin_units(const pe_call *call, const pe_work *work)
{
    const pe_array *x = &call->array[X], *out = &call->array[OUT];
    const int interleaved = (int)call->par[ROPE_LAYOUT], out_interleaved = (int)call->par[ROPE_OUT_LAYOUT];
    const idx d = call->D(d), e = call->D(e), size = storage_size(x->storage), bytes = d * size;
    const idx before = (idx)call->par[ROPE_OFFSET] * size;
    const int is_large = call->D(h) * call->D(n) * bytes >= 1 << 20; /* larger than the L2 cache of a core */
    rope_units u = {.call = call,
                    .s = rope_begin(call, work),
                    .rotate = rotation_of(interleaved, out_interleaved),
                    .overlaps = x->data == out->data && interleaved != out_interleaved,
                    .streams = worth_streaming(call),
                    .positions = axis_of(call, ALONG_N),
                    .heads = axis_of(call, ALONG_H),
                    .rows = {.e = e, .before = before, .after = bytes - before - 2 * e * size, .bytes = bytes}};
    u.in_one_go = x->storage == PE_STORAGE && out->storage == PE_STORAGE && !u.overlaps && !u.streams;
    /* A small call stays in a cache, where rows of two heads may evict each other. Where L3 is fast, prefetches cost
     * more than they save. */
    u.in_pairs = u.in_one_go && is_large;
    u.rows.ahead = work->slow_l3 && is_large ? AHEAD_BYTES / bytes + 1 : 0;
    return u;
}

/* Rotate rows of one head that are converted, or copied by streaming stores, one at a time. */
static void rotate_one_by_one(const rope_units *u)
{
    const pe_array *a = u->call->array;
    const rope_rows *r = &u->rows;
    const idx n = 2 * r->e;
    rope_rows one = {.first = r->first, .inner.count = 1, .e = r->e};
    for (idx i = 0; i < r->inner.count; i++) {
        const char *x = r->first.x + i * r->inner.x;
        char *stored = r->first.out + i * r->inner.out, *out = u->streams ? u->s.to_stream : stored;
        if (r->ahead > 0)
            prefetch_ahead(r, i, x, r->inner.x, r->outer.x);
        if (r->ahead > 0 && !u->streams)
            prefetch_ahead(r, i, out, r->inner.out, r->outer.out);
        copy_rest(r, x, out);
        out += r->before;
        real *target = u->overlaps ? u->s.result : row_target(out, a[OUT].storage, u->s.result);
        one.first.x = (const char *)row_read(x + r->before, a[X].storage, n, u->s.x);
        one.first.out = (char *)target;
        u->rotate(&one, 1);
        if (target == u->s.result)
            row_store(target, out, a[OUT].storage, n);
        if (u->streams)
            stream_row(u->s.to_stream, stored, r->bytes);
        one.first.cosine += r->inner.cosine;
        one.first.sine += r->inner.sine;
    }
}

static int are_closer(idx step, idx than) { return (step < 0 ? -step : step) < (than < 0 ? -than : than); }

/* Rotate the rows of a unit, of which `first` is the first. Two heads of reals are rotated together. */
static void rotate_unit(rope_units *u, rope_place first)
{
    rope_rows *r = &u->rows;
    const rope_axis *n = &u->positions, *h = &u->heads;
    const int heads_inside = n->count == 1 || (h->count > 1 && are_closer(h->x, n->x) && are_closer(h->out, n->out));
    const idx most = u->in_pairs && !heads_inside ? 2 : 1;
    r->inner = heads_inside ? *h : *n;
    r->outer = heads_inside ? *n : *h;
    for (idx i = 0; i < r->outer.count; i += most) {
        r->first = place_at(first, &r->outer, i);
        if (u->in_one_go)
            u->rotate(r, (int)min_(most, r->outer.count - i));
        else
            rotate_one_by_one(u);
    }
}

/* Compute the table of the positions of a unit. */
static void compute_table(rope_units *u, const char *position)
{
    const pe_array *a = &u->call->array[POSITIONS];
    const double *par = u->call->par, scale = par[ROPE_INVERSE] != 0 ? 1 / par[ROPE_FACTOR] : par[ROPE_FACTOR];
    const idx width = 2 * u->rows.e;
    angle_row to = {HALVES, par[ROPE_INVERSE] != 0 ? -scale : scale, scale, u->s.table + width / 2, u->s.table};
    for (idx i = 0; i < u->positions.count; i++, position += a->core[ALONG_N], to.s += width, to.c += width)
        store_angles_at(&u->s.w, scalar_read(position, a->storage), &to);
}

/* Rotate units begin .. end. Units of a run are next to each other, and share a computed table. */
static void rotate_units(rope_units *u, idx begin, idx end, int is_given)
{
    const pe_call *call = u->call;
    const pe_array *a = call->array;
    const idx *const dim = call->dim, rows = count_rows(call), groups = BLOCKS(D(h), ROPE_HEADS);
    const char *computed = NULL; /* the positions whose table is in scratch */
    for (idx unit = begin; unit < end; unit++) {
        const idx first = unit / groups / rows * ROPE_RUN, head = unit % groups * ROPE_HEADS;
        const pe_row row = row_at(call, unit / groups % rows);
        rope_place p = {row.data[X], row.data[COS], row.data[SIN], row.data[OUT]};
        u->positions.count = min_(D(n) - first, ROPE_RUN);
        u->heads.count = min_(D(h) - head, ROPE_HEADS);
        p = place_at(place_at(p, &u->positions, first), &u->heads, head);
        if (!is_given) {
            const char *positions = row.data[POSITIONS] + first * a[POSITIONS].core[ALONG_N];
            if (computed != positions)
                compute_table(u, positions);
            computed = positions;
            p.cosine = (const char *)u->s.table;
            p.sine = (const char *)(u->s.table + D(e));
        }
        rotate_unit(u, p);
    }
    if (u->streams)
        stream_end();
}

KERNEL(rope)
{
    rope_units u = begin_units(call, work);
    rotate_units(&u, begin, end, 1);
}

KERNEL(rope_positions)
{
    rope_units u = begin_units(call, work);
    set_frequencies(&u.s.w, as_doubles(call->array[FREQUENCIES].data), NULL, (int)call->D(e));
    u.positions.cosine = u.positions.sine = 2 * call->D(e) * (idx)sizeof(real);
    rotate_units(&u, begin, end, 0);
}
