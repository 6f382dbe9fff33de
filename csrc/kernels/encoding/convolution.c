/* convolution.c -- every channel with a kernel of its own, over a grid of tokens; a sequence is a grid of one row.
 *
 *     out(i, j) = bias + sum_ab kernel(a, b) x(i + a - top, j + b - left),   + x(i, j) with residual
 *
 * Channels stand on SIMD lanes. What padding means is decided once, in a table of rows: a place outside the grid is a
 * row of zeros, the row opposite, or the nearest one. The arithmetic then has no edges. Few taps read rows where they
 * lie; many, half types and the last channels of a width that is no multiple of 32 read them from a copy of 32
 * channels: rows 2 KB apart share a few sets of the cache, and nothing is read past the end of a row.
 * Taps are added in order, one fused multiply-add each, whatever the tile: a result depends on its own taps only.
 */
#include "encoding/convolution.h"

/* ---- forward ---- */

/* CHANNELS channels of a tile: what is read, and where sums begin and end. */
typedef struct {
    view x;
    const char *kernel, *start; /* start is NULL for 0 */
    char *out;
    idx kernel_row, kernel_step, start_step, out_step; /* bytes from tap to tap, from column to column */
    idx r, s, center;                                  /* place of x(i, j) in the window, or -1 without residual */
} block;

/* Columns j .. j + width of one vector: sums[k] += sum_t kernel[t] x[j + k + t], t < taps. A row is loaded once for all
 * the columns that it belongs to. */
INLINE void add_taps(const block *b, idx at, const char *kernel, idx lane, const int width, const int taps, vec *sums)
{
    vec tap[4];
    UNROLL
    for (int t = 0; t < taps; t++)
        tap[t] = load(kernel + t * b->kernel_step, lane);
    UNROLL
    for (int i = 0; i < width + taps - 1; i++) {
        const vec x = row_vec(&b->x, at + i, lane);
        UNROLL
        for (int t = 0; t < taps; t++)
            if (i >= t && i - t < width)
                sums[i - t] = vec_fma(tap[t], x, sums[i - t]);
    }
}

INLINE void tile(const block *b, idx j, idx lane, const int width)
{
    vec sums[8];
    UNROLL
    for (int k = 0; k < width; k++)
        sums[k] = b->start ? load(b->start + (j + k) * b->start_step, lane) : vec_set(0);
    for (idx a = 0; a < b->r; a++) {
        const char *kernel = b->kernel + a * b->kernel_row;
        const idx at = a * b->x.columns + j;
        idx t = 0;
        for (; t + 4 <= b->s; t += 4)
            add_taps(b, at + t, kernel + t * b->kernel_step, lane, width, 4, sums);
        kernel += t * b->kernel_step;
        switch (b->s - t) {
        case 3: add_taps(b, at + t, kernel, lane, width, 3, sums); break;
        case 2: add_taps(b, at + t, kernel, lane, width, 2, sums); break;
        case 1: add_taps(b, at + t, kernel, lane, width, 1, sums); break;
        default: break;
        }
    }
    UNROLL
    for (int k = 0; k < width; k++) {
        if (b->center >= 0)
            sums[k] = vec_add(sums[k], row_vec(&b->x, b->center + j + k, lane));
        vec_store((real *)(void *)(b->out + (j + k) * b->out_step) + lane, sums[k]);
    }
}

/* The last tile of a row begins where it ends with the row: what two tiles compute is the same, bit for bit. */
#define TILES(width)                                       \
    for (idx j = 0; j < n; j += width)                     \
        for (idx lane = 0; lane < channels; lane += LANES) \
            tile(b, min_(j, n - width), lane, width);

static NOINLINE void eights(const block *b, idx n, idx channels) { TILES(8) }
static NOINLINE void fours(const block *b, idx n, idx channels) { TILES(4) }
static NOINLINE void twos(const block *b, idx n, idx channels) { TILES(2) }
static NOINLINE void ones(const block *b, idx n, idx channels) { TILES(1) }

static void run_tiles(const block *b, idx n, idx channels)
{
    (n >= 8 ? eights : n >= 4 ? fours : n >= 2 ? twos : ones)(b, n, channels);
}

/* What a unit has in scratch. */
typedef struct {
    const char **rows, **copied; /* tables of a window: as stored, and in panel */
    char *zeros;
    real *panel, *room, *kernel;
} desk;

static desk desk_of(const pe_call *call, const pe_work *work)
{
    const idx *dim = call->dim;
    const idx columns = CONVOLUTION_COLUMNS, places = (D(r) + 1) * columns;
    desk k;
    k.panel = work->scratch;
    k.room = k.panel + places * CHANNELS;
    k.kernel = k.room + columns * CHANNELS;
    k.rows = (const char **)(void *)(k.kernel + (D(r) * D(s) + 1) * CHANNELS);
    k.copied = k.rows + places;
    k.zeros = (char *)(k.copied + places);
    memset(k.zeros, 0, (size_t)D(d) * sizeof(real));
    return k;
}

/* Channels c .. c + n of the kernel and of the bias: where they are, or copied where blocks can read them. */
static void read_kernel(const pe_call *call, const pe_row *at, idx c, idx n, real *room, block *b)
{
    const pe_array *kernel = &call->array[1], *bias = &call->array[2];
    const idx size = (idx)sizeof(real);
    b->kernel = at->data[1] + c * storage_size(kernel->storage);
    b->kernel_row = kernel->core[0], b->kernel_step = kernel->core[1];
    b->start = at->data[2] ? at->data[2] + c * storage_size(bias->storage) : NULL;
    b->start_step = 0;
    if (n < CHANNELS || kernel->storage != PE_STORAGE) {
        for (idx t = 0; t < b->r * b->s; t++)
            copy_padded(b->kernel + t / b->s * b->kernel_row + t % b->s * b->kernel_step, kernel->storage, n,
                        room + t * CHANNELS);
        b->kernel = (const char *)room;
        b->kernel_step = CHANNELS * size, b->kernel_row = b->s * b->kernel_step;
    }
    if (b->start && (n < CHANNELS || bias->storage != PE_STORAGE)) {
        real *padded = room + b->r * b->s * CHANNELS;
        copy_padded(b->start, bias->storage, n, padded);
        b->start = (const char *)padded;
    }
}

/* n columns of a tile from room to where they are stored. */
static void put_columns(const real *room, idx n, idx channels, char *out, idx step, pe_storage storage)
{
    for (idx j = 0; j < n; j++) {
        if (storage == PE_STORAGE)
            memcpy(out + j * step, room + j * CHANNELS, (size_t)channels * sizeof(real));
        else
            row_write(room + j * CHANNELS, out + j * step, storage, channels);
    }
}

/* Places lo .. hi of an axis of n, with those beyond its ends that fold onto them: taps that begin `before` ahead put
 * something there. */
INLINE idx first_place(idx lo, idx taps, idx before) { return lo == 0 ? lo - (taps - 1 - before) : lo; }
INLINE idx last_place(idx hi, idx n, idx before) { return hi == n - 1 ? hi + before : hi; }

/* Columns j .. j + n move to the front of room, each as the sum of those that fold onto it, in order. */
static void fold_columns(real *room, idx first, idx last, idx j, idx n, idx w)
{
    for (idx k = j; k < j + n; k++) {
        const idx lo = k == 0 ? first : k, hi = k == w - 1 ? last : k;
        real *to = room + (k - j) * CHANNELS;
        memmove(to, room + (lo - first) * CHANNELS, CHANNELS * sizeof(real));
        for (idx p = lo + 1; p <= hi; p++)
            for (int c = 0; c < CHANNELS; c++)
                to[c] += room[(p - first) * CHANNELS + c];
    }
}

/* Where a tile is: n columns from (i, j), and the places y0 .. y1, x0 .. x1 that fold onto them, in a window that
 * begins at x0 - left. */
typedef struct {
    idx i, j, n, y0, y1, x0, x1, columns;
} spot;

static spot spot_of(const pe_call *call, idx i, idx j, idx n)
{
    const idx top = (idx)call->par[0], left = (idx)call->par[1], last = j + n - 1;
    if (call->par[4] == 0)
        return (spot){i, j, n, i, i, j, last, n};
    const idx x0 = first_place(j, call->D(s), left), x1 = last_place(last, call->D(w), left);
    return (spot){i,
                  j,
                  n,
                  first_place(i, call->D(r), top),
                  last_place(i, call->D(y), top),
                  x0,
                  x1,
                  (x1 - x0 + 8) & ~(idx)7}; /* whole tiles: sums that begin in room must be added to once */
}

/* Whether to leave: asked often where a tile takes long. */
static int stopped(const pe_call *call, idx c)
{
    enum { MANY_TAPS = 1024, MANY_CHANNELS = 64 * CHANNELS };
    return call->stop && (c % MANY_CHANNELS == 0 || call->D(r) * call->D(s) > MANY_TAPS) && call->stop(call);
}

/* The channels c .. c + channels of a tile. */
static void convolve_channels(const pe_call *call, const pe_row *at, const desk *k, const spot *o, idx c, idx channels)
{
    const idx top = (idx)call->par[0], left = (idx)call->par[1];
    const int padding = (int)call->par[2], residual = call->par[3] != 0, fold = call->par[4] != 0;
    const pe_array *x = &call->array[0], *to = &call->array[3];
    const idx line = CHANNELS * (idx)sizeof(real);
    char *target = at->data[3] + o->i * to->core[0] + o->j * to->core[1] + c * storage_size(to->storage);
    const int direct = !fold && channels >= CHANNELS && to->storage == PE_STORAGE;
    window seen = {k->rows, call->D(r), o->columns + call->D(s) - 1, x->storage};
    block b = {.r = call->D(r), .s = call->D(s)};
    read_kernel(call, at, c, channels, k->kernel, &b);
    b.out = direct ? target : (char *)k->room;
    b.out_step = direct ? to->core[1] : line;
    if (fold) {
        memset(k->room, 0, (size_t)(o->columns * line));
        b.start = b.out, b.start_step = line;
    }
    for (idx y = o->y0; y <= o->y1; y++) {
        if (y > o->y0 && stopped(call, 1))
            return;
        if (c == 0 || o->y0 < o->y1)
            window_rows(call, at->data[0], x, y - top, o->x0 - left, padding, k->zeros, &seen);
        b.x = view_of(&seen, c, channels, b.r * b.s <= FEW_TAPS, k->copied, k->panel);
        b.center = residual && y == o->i ? top * seen.columns + left : -1;
        run_tiles(&b, o->columns, channels);
    }
    if (fold)
        fold_columns(k->room, o->x0, o->x1, o->j, o->n, call->D(w));
    if (!direct)
        put_columns(k->room, o->n, channels, target, to->core[1], to->storage);
}

/* Few taps of rows that need no copy go through all channels at once: memory is read in sequence. */
static int in_place(const pe_call *call)
{
    const pe_array *a = call->array;
    return call->D(r) * call->D(s) <= FEW_TAPS && call->par[4] == 0 && a[0].storage == PE_STORAGE
           && a[1].storage == PE_STORAGE && (!a[2].data || a[2].storage == PE_STORAGE) && a[3].storage == PE_STORAGE;
}

/* x(y,w,d) kernel(r,s,d) bias?(d) -> out(y,w,d); top, left, padding, residual, fold */
void FN(convolution)(const pe_call *call, idx begin, idx end, const pe_work *work)
{
    const idx d = call->D(d), w = call->D(w), tiles = BLOCKS(w, TILE), units = call->D(y) * tiles;
    const desk k = desk_of(call, work);
    const idx most = in_place(call) ? d - d % CHANNELS : CHANNELS;
    for (idx u = begin; u < end; u++) {
        const pe_row at = row_at(call, u / units);
        const idx j = u % tiles * TILE;
        const spot o = spot_of(call, u % units / tiles, j, min_(TILE, w - j));
        for (idx c = 0, n; c < d; c += n) {
            n = min_(d - c >= CHANNELS ? most : CHANNELS, d - c);
            if (stopped(call, c))
                return;
            convolve_channels(call, &at, &k, &o, c, n);
        }
    }
}

/* ---- gradient of kernel and bias ---- */

/* What a tile of one vector of channels reads: n gradients, and x from place `at` on. */
typedef struct {
    view g, x;
    idx n, lane;
} pairs;

/* Columns j .. j + width: sums[a, t] += grad[j + k] x[a, j + k + t], a < rows and t < taps, as in add_taps. */
INLINE void add_products(const pairs *p, idx j, idx at, const int width, const int rows, const int taps, vec *sums)
{
    vec grad[4];
    UNROLL
    for (int k = 0; k < width; k++)
        grad[k] = row_vec(&p->g, j + k, p->lane);
    UNROLL
    for (int a = 0; a < rows; a++) {
        UNROLL
        for (int i = 0; i < width + taps - 1; i++) {
            const vec value = row_vec(&p->x, at + a * p->x.columns + j + i, p->lane);
            UNROLL
            for (int t = 0; t < taps; t++)
                if (i >= t && i - t < width)
                    sums[a * taps + t] = vec_fma(grad[i - t], value, sums[a * taps + t]);
        }
    }
}

/* Where sums in double are, of n channels of a vector: from row to row and from tap to tap. */
typedef struct {
    double *sums;
    idx row, step, n;
} wide;

INLINE void add_wide(vec sum, const wide *to, idx at)
{
    real narrow[LANES];
    double *into = to->sums + at;
    vec_store(narrow, sum);
    for (idx k = 0; k < to->n; k++)
        into[k] += (double)narrow[k];
}

/* Sums of a tile are real, of 128 products at most; sums of tiles are double. */
INLINE void add_tile(const pairs *p, idx a, idx b, const int rows, const int taps, const wide *to)
{
    const pairs here = *p; /* a copy that no store can alias */
    const idx at = a * here.x.columns + b;
    vec sums[9];
    idx j = 0;
    UNROLL
    for (int t = 0; t < rows * taps; t++)
        sums[t] = vec_set(0);
    for (; j + 4 <= here.n; j += 4)
        add_products(&here, j, at, 4, rows, taps, sums);
    for (; j < here.n; j++)
        add_products(&here, j, at, 1, rows, taps, sums);
    UNROLL
    for (int t = 0; t < rows * taps; t++)
        add_wide(sums[t], to, (a + t / taps) * to->row + (b + t % taps) * to->step);
}

/* All taps of one vector of channels: eight of a row, or three of three rows, are enough to hide what an FMA takes. */
static NOINLINE void add_kernel(const pairs *p, idx r, idx s, const wide *to)
{
    const idx eights = s & ~(idx)7, threes = s - (s - eights) % 3;
    idx a = 0;
    for (; a < r; a++)
        for (idx b = 0; b < eights; b += 8)
            add_tile(p, a, b, 1, 8, to);
    for (a = 0; a + 3 <= r; a += 3) {
        for (idx b = eights; b < threes; b += 3)
            add_tile(p, a, b, 3, 3, to);
        for (idx b = threes; b < s; b++)
            add_tile(p, a, b, 3, 1, to);
    }
    for (; a < r; a++) {
        for (idx b = eights; b < threes; b += 3)
            add_tile(p, a, b, 1, 3, to);
        for (idx b = threes; b < s; b++)
            add_tile(p, a, b, 1, 1, to);
    }
}

/* From   out(i, j) = bias + sum_ab kernel(a, b) x(i + a - top, j + b - left):
 *        dkernel(a, b) += grad(i, j) x(i + a - top, j + b - left),   dbias += grad(i, j) */
static void gradient_tile(const pe_call *call, const pe_row *at, const desk *k, idx i, idx j, idx n, double *dkernel,
                          double *dbias)
{
    const idx d = call->D(d), r = call->D(r), s = call->D(s), top = (idx)call->par[0], left = (idx)call->par[1];
    const int few = r * s <= FEW_TAPS;
    const idx places = r * (n + s - 1);
    window seen = {k->rows, r, n + s - 1, call->array[1].storage};
    window given = {k->rows + places, 1, n, call->array[0].storage};
    window_rows(call, at->data[1], &call->array[1], i - top, j - left, (int)call->par[2], k->zeros, &seen);
    window_rows(call, at->data[0], &call->array[0], i, j, PADDING_ZERO, k->zeros, &given);
    for (idx c = 0; c < d; c += CHANNELS) {
        const idx channels = min_(CHANNELS, d - c);
        if (stopped(call, c))
            return;
        pairs p = {view_of(&given, c, channels, few, k->copied + places, k->panel + places * CHANNELS),
                   view_of(&seen, c, channels, few, k->copied, k->panel), n, 0};
        for (; p.lane < channels; p.lane += LANES) {
            const idx lanes = min_(LANES, channels - p.lane), channel = c + p.lane;
            const wide to = {dkernel + channel, s * d, d, lanes}, to_bias = {dbias + channel, 0, 0, lanes};
            vec sum = vec_set(0);
            for (idx b = 0; b < n; b++)
                sum = vec_add(sum, row_vec(&p.g, b, p.lane));
            add_wide(sum, &to_bias, 0);
            add_kernel(&p, r, s, &to);
        }
    }
}

/* grad(y,w,d) x(y,w,d) -> dkernel(r,s,d), dbias(d); top, left, padding */
void FN(convolution_vjp)(const pe_call *call, idx begin, idx end, const pe_work *work)
{
    const idx *dim = call->dim;
    const idx w = D(w), unit = CONVOLUTION_UNIT, pieces = BLOCKS(w, unit), units = call->D(y) * pieces;
    const pe_array *dkernel = &call->array[2], *dbias = &call->array[3];
    const desk k = desk_of(call, work);
    for (idx u = begin; u < end; u++) {
        const pe_row at = row_at(call, u / units);
        const idx first = u % pieces * unit, last = min_(w, first + unit);
        for (idx j = first; j < last; j += GRADIENTS)
            gradient_tile(call, &at, &k, u % units / pieces, j, min_(GRADIENTS, last - j),
                          (double *)(void *)(dkernel->data + work->block * dkernel->loop[0]),
                          (double *)(void *)(dbias->data + work->block * dbias->loop[0]));
    }
}
