/* rope.c -- rotate pairs of channels by the angles of a table of cos and sin.
 *
 *     for (k < e)                                 pair k: (k, k + e) "half", (2k, 2k + 1) "interleaved"
 *         y0[k] = x0[k] * cos[k] - x1[k] * sin[k], y1[k] = x0[k] * sin[k] + x1[k] * cos[k];
 *
 * A row is one token of one head, d channels. The kernel rotates 2e channels from `offset` on and copies the others bit
 * for bit. Input and output may have different layouts. cos and sin may be scaled, so the inverse and the transpose of
 * a rotation differ; each is this kernel with another table. Each combination of layouts has a loop with constant
 * strides, which vectorises. row_order.h keeps the table in the cache.
 */
#include "fits.h"
#include "base/layout.h"
#include "base/row.h"
#include "base/stream.h"
#include "absolute/sinusoid.h"
#include "rotary/row_order.h"

/* Pair k is (x[k * step], x[k * step + partner]), and its result is (y0[k * y_step], y1[k * y_step]). */
INLINE void rotate(const real *x, idx step, idx partner, const real *c, const real *s, idx e, real *y0, real *y1,
                   idx y_step)
{
    SIMD
    for (idx k = 0; k < e; k++) {
        const real x0 = x[k * step], x1 = x[k * step + partner];
        y0[k * y_step] = fma_(x0, c[k], -(x1 * s[k]));
        y1[k * y_step] = fma_(x0, s[k], x1 * c[k]);
    }
}

/* Rows of real numbers of one head, or the same rows of two heads */
typedef struct {
    const char *x, *cosine, *sine;
    char *out;
    idx count, step_x, step_cosine, step_sine, step_out; /* rows, and bytes from a row to the next one */
    int heads, prefetch;
    idx head_x, head_out;     /* bytes from a row of the first head to the same row of the second head */
    idx before, after, bytes; /* of a row of `bytes` bytes, the first `before` and the last `after` are only copied */
} rope_rows;

/* Rotate a row of each head, a run of pairs at a time: first into `rotated`, then to y. Two heads read the table once.
 * Their rows are often equal modulo 4 KiB, where a load may wait for an earlier store of the other head, so a run of
 * both is loaded before one is stored. For a row in halves, the stores of a run complete cache lines, which an
 * unaligned vector of AVX-512 spans (NumPy aligns to 16 bytes). One head with an interleaved row needs no runs: its
 * stores are consecutive. */
INLINE void rotate_heads(const real *x, idx head_x, const real *c, const real *s, idx e, real *y, idx head_y, int heads,
                         int interleaved, int out_interleaved)
{
    enum { MOST_RUN = 4 * LANES };
    const idx run = MOST_RUN / heads, step = interleaved ? 2 : 1, y_step = out_interleaved ? 2 : 1;
    const idx partner = interleaved ? 1 : e, in_runs = heads == 2 || !out_interleaved ? e / run * run : 0;
    idx k = 0;
    for (; k < in_runs; k += run) {
        real rotated[2][2 * MOST_RUN];
        UNROLL
        for (int h = 0; h < heads; h++)
            rotate(x + h * head_x + k * step, step, partner, c + k, s + k, run, rotated[h],
                   rotated[h] + (out_interleaved ? 1 : run), y_step);
        UNROLL
        for (int h = 0; h < heads; h++) {
            real *y0 = y + h * head_y + k * y_step, *y1 = y0 + (out_interleaved ? run : e);
            UNROLL
            for (int i = 0; i < run; i += LANES)
                vec_store(y0 + i, vec_load(rotated[h] + i));
            UNROLL
            for (int i = 0; i < run; i += LANES)
                vec_store(y1 + i, vec_load(rotated[h] + run + i));
        }
    }
    for (int h = 0; h < heads && k < e; h++) {
        real *rest = y + h * head_y + k * y_step;
        rotate(x + h * head_x + k * step, step, partner, c + k, s + k, e - k, rest, rest + (out_interleaved ? 1 : e),
               y_step);
    }
}

/* Copy the first and the last bytes of a row, which are not rotated. */
INLINE void copy_rest(const char *x, char *out, idx before, idx after, idx bytes)
{
    if (before + after == 0 || x == out)
        return;
    memcpy(out, x, (size_t)before);
    memcpy(out + bytes - after, x + bytes - after, (size_t)after);
}

/* Prefetch a later row of each head, if that pays, and copy what is not rotated of this one. */
static NOINLINE void prepare_rows(const rope_rows *r, const char *x, char *out)
{
    for (int h = 0; h < r->heads; h++, x += r->head_x, out += r->head_out) {
        if (r->prefetch) {
            prefetch_row_after(x, r->step_x, r->bytes);
            prefetch_row_after(out, r->step_out, r->bytes);
        }
        copy_rest(x, out, r->before, r->after, r->bytes);
    }
}

INLINE void rotate_rows(const rope_rows *r, idx e, int heads, int interleaved, int out_interleaved)
{
    const idx before = r->before, head_x = r->head_x / (idx)sizeof(real), head_out = r->head_out / (idx)sizeof(real);
    const int prepares = r->prefetch || before || r->after;
    const char *x = r->x, *cosine = r->cosine, *sine = r->sine;
    char *out = r->out;
    for (idx i = 0; i < r->count; i++) {
        if (prepares)
            prepare_rows(r, x, out);
        rotate_heads((const real *)(const void *)(x + before), head_x, (const real *)(const void *)cosine,
                     (const real *)(const void *)sine, e, as_reals(out + before), head_out, heads, interleaved,
                     out_interleaved);
        x += r->step_x;
        cosine += r->step_cosine;
        sine += r->step_sine;
        out += r->step_out;
    }
}

/* The loops of a combination of layouts, over the channels of a row and over rows */
typedef struct {
    void (*row)(const real *x, const real *c, const real *s, idx e, real *y);
    void (*rows)(const rope_rows *, idx e);
} rotation;

#define ROTATION(name, interleaved, out_interleaved)                                       \
    static NOINLINE void name(const real *x, const real *c, const real *s, idx e, real *y) \
    {                                                                                      \
        rotate_heads(x, 0, c, s, e, y, 0, 1, interleaved, out_interleaved);                \
    }                                                                                      \
    static NOINLINE void name##_rows(const rope_rows *r, idx e)                            \
    {                                                                                      \
        if (r->heads == 2)                                                                 \
            rotate_rows(r, e, 2, interleaved, out_interleaved);                            \
        else                                                                               \
            rotate_rows(r, e, 1, interleaved, out_interleaved);                            \
    }
ROTATION(half_to_half, 0, 0)
ROTATION(half_to_interleaved, 0, 1)
ROTATION(interleaved_to_half, 1, 0)
ROTATION(interleaved_to_interleaved, 1, 1)

static rotation rotation_of(int interleaved, int out_interleaved)
{
    static const rotation all[2][2] = {
        {{half_to_half, half_to_half_rows}, {half_to_interleaved, half_to_interleaved_rows}},
        {{interleaved_to_half, interleaved_to_half_rows},
         {interleaved_to_interleaved, interleaved_to_interleaved_rows}},
    };
    return all[interleaved][out_interleaved];
}

/* Rotate 2e channels into `out`. Use `buffer` if `out` overlaps x in another layout, or if its storage is not real. */
static void rotate_row(rotation loops, const real *x, const real *c, const real *s, idx e, char *out,
                       pe_storage storage, int overlaps, real *buffer)
{
    real *target = overlaps ? buffer : row_target(out, storage, buffer);
    loops.row(x, c, s, e, target);
    if (target == buffer)
        row_store(buffer, out, storage, 2 * e);
}

typedef struct {
    real *x, *cosine, *sine, *result; /* a row that is not stored as real, as real; result also if out overlaps x */
    char *to_stream;                  /* a row of out, before stream_row copies it */
} rope_state;

LAYOUT(rope)
{
    s->x = carve_reals(c, D(d));
    s->cosine = carve_reals(c, D(e));
    s->sine = carve_reals(c, D(e));
    s->result = carve_reals(c, D(d));
    s->to_stream = carve_bytes(c, D(d) * (idx)sizeof(real));
}

/* Return whether to write `out` by non-temporal stores (stream.h). They are faster if all of these hold: the caller
 * passed `out` (into fresh pages they are slower), out is not x, out is contiguous, and out is larger than the
 * last-level cache. In half precision, conversion limits the speed, and the additional copy of a row costs more than
 * streaming saves. */
static int worth_streaming(const pe_call *call, const pe_array *x, const pe_array *out)
{
    idx run = call->D(d) * storage_size(out->storage);
    if (!PE_STREAMS || call->par[ROPE_CALLER_OUT] == 0 || x->data == out->data || out->storage != PE_STORAGE)
        return 0;
    for (int a = call->nloops - 1; a >= 0; a--) {
        if (call->shape[a] != 1 && out->loop[a] != run)
            return 0;
        run *= call->shape[a];
    }
    return run > PE_LAST_CACHE;
}

KERNEL(rope)
{
    enum { X, COS, SIN, OUT, OPERANDS };
    const idx d = call->D(d), e = call->D(e), offset = (idx)call->par[ROPE_OFFSET];
    const int interleaved = (int)call->par[ROPE_INTERLEAVED], out_interleaved = (int)call->par[ROPE_OUT_INTERLEAVED];
    const rotation loops = rotation_of(interleaved, out_interleaved);
    const pe_array *a = call->array;
    const idx size = storage_size(a[X].storage);
    const rope_state s = rope_begin(call, work);
    const int real_rows = a[X].storage == PE_STORAGE && a[COS].storage == PE_STORAGE && a[SIN].storage == PE_STORAGE
                          && a[OUT].storage == PE_STORAGE
                          && (a[X].data != a[OUT].data || interleaved == out_interleaved);
    const int stream = worth_streaming(call, &a[X], &a[OUT]), direct = real_rows && !stream;
    const row_order order = order_of_rows(call, work, &a[COS], &a[SIN], e, direct ? 2 : 1);
    idx step[OPERANDS] = {0}, count;
    for (int k = 0; k < OPERANDS && call->nloops > 0; k++)
        step[k] = a[k].loop[call->nloops - 1];
    rope_rows rows = {.step_x = step[X],
                      .step_cosine = step[COS],
                      .step_sine = step[SIN],
                      .step_out = step[OUT],
                      .prefetch = worth_prefetching(work, &order, d * size),
                      .before = offset * size,
                      .after = (d - offset - 2 * e) * size,
                      .bytes = d * size};
    /* Rows of reals are rotated in one go, in one or two heads. Others, and rows that are streamed, are converted or
     * copied one by one. */
    for (idx unit = begin; unit < end; unit += count) {
        pe_row row = row_of_unit(call, &order, unit, end - unit, &rows.heads, &count);
        if (direct) {
            rows.x = row.data[X];
            rows.cosine = row.data[COS];
            rows.sine = row.data[SIN];
            rows.out = row.data[OUT];
            rows.count = count / rows.heads;
            if (rows.heads == 2) {
                const pe_row second = row_at(call, row.index + order.positions);
                rows.head_x = second.data[X] - row.data[X];
                rows.head_out = second.data[OUT] - row.data[OUT];
            }
            loops.rows(&rows, e);
            continue;
        }
        for (idx i = 0; i < count; i++) {
            const char *x = row.data[X];
            char *out = stream ? s.to_stream : row.data[OUT];
            const int overlaps = x == out && interleaved != out_interleaved;
            const real *cosine = row_read(row.data[COS], a[COS].storage, e, s.cosine);
            const real *sine = row_read(row.data[SIN], a[SIN].storage, e, s.sine);
            if (rows.prefetch)
                prefetch_row_after(x, step[X], d * size);
            if (rows.prefetch && !stream)
                prefetch_row_after(out, step[OUT], d * size);
            copy_rest(x, out, rows.before, rows.after, rows.bytes);
            rotate_row(loops, row_read(x + offset * size, a[X].storage, 2 * e, s.x), cosine, sine, e,
                       out + offset * size, a[OUT].storage, overlaps, s.result);
            if (stream)
                stream_row(out, row.data[OUT], d * size);
            UNROLL
            for (int k = 0; k < OPERANDS; k++)
                row.data[k] += step[k];
        }
    }
    if (stream)
        stream_end();
}

typedef struct {
    void *table_scratch; /* of FN(cos_sin_table) */
    real *table, *x, *result;
} rope_positions_state;

LAYOUT(rope_positions)
{
    s->table_scratch = carve_bytes(c, (idx)FN(sinusoid_scratch)(call));
    s->table = carve_reals(c, D(n) * D(d));
    s->x = carve_reals(c, D(d));
    s->result = carve_reals(c, D(d));
}

KERNEL(rope_positions)
{
    enum { X, POSITIONS, FREQUENCIES, OUT };
    const idx n = call->D(n), d = call->D(d), e = d / 2;
    const int interleaved = (int)call->par[0];
    const rotation loops = rotation_of(interleaved, interleaved);
    const pe_array *a = call->array;
    const rope_positions_state s = rope_positions_begin(call, work);
    const char *ready = NULL; /* the positions whose table is in `s` */
    for (pe_row row = row_at(call, begin); row.index < end; row_next(call, &row)) {
        if (ready != row.data[POSITIONS]) {
            const double *w = as_doubles(row.data[FREQUENCIES]);
            FN(cos_sin_table)(s.table_scratch, row.data[POSITIONS], a[POSITIONS].storage, n, w, e, s.table);
        }
        ready = row.data[POSITIONS];
        for (idx i = 0; i < n; i++) {
            const real *x = row_read(entry_at(&a[X], row.data[X], i, 0), a[X].storage, d, s.x);
            const real *cosine = s.table + i * d;
            rotate_row(loops, x, cosine, cosine + e, e, entry_at(&a[OUT], row.data[OUT], i, 0), a[OUT].storage, 0,
                       s.result);
        }
    }
}
