/* pair.c -- FIRE, Swin, FoX and Sandwich, a pair of functions each, and the kernels that make matrices of them. */
#include "pair.h"
#include "elementary.h"

#include <math.h>

/* Element (i, j) of an array, at most two axes; where to find it. */
INLINE double *place(const pe_array *a, idx i, idx j)
{
    return (double *)(void *)(a->data + i * a->core[0] + j * a->core[1]);
}

/* ---- FIRE (Li et al. 2024, equations 2 and 3): b_h = f_h(z),  f_h(z) = sum_w w2_hw relu(w1_w z + b1_w) + b2_h,
 *      z = log(1 + |c rel|) / (log(1 + |c| max(i, |threshold|)) + 1e-6),  i the position of the query
 *
 * arrays: w1(w,1), b1(w), w2(h,w), b2(h), c(), threshold() */

enum { W1, B1, W2, B2, C, THRESHOLD };
static const double fire_eps = 1e-6;

typedef struct {
    double slope, edge, reach[PAIR_LANES], divisor[PAIR_LANES]; /* |c|, |threshold|; max(i, edge) and what it makes */
} fire_queries;

static void fire_prepare(const pe_array *array, const pe_block_of_pairs *b, fire_queries *f)
{
    f->slope = fabs_(*place(&array[C], 0, 0));
    f->edge = fabs_(*place(&array[THRESHOLD], 0, 0));
    for (int l = 0; l < b->lanes; l++) {
        f->reach[l] = b->q[l] > f->edge ? b->q[l] : f->edge;
        f->divisor[l] = log1p_pos(f->slope * f->reach[l]) + fire_eps;
    }
}

/* z of one key and all lanes */
static void fire_inputs(const pe_block_of_pairs *b, const fire_queries *f, int j, double *restrict z)
{
    const double k = b->k[j];
    SIMD
    for (int l = 0; l < b->lanes; l++)
        z[l] = log1p_pos(f->slope * fabs_(k - b->q[l])) / f->divisor[l];
}

static void FN(fire_at)(const pe_array *array, const idx *dim, idx h, const pe_block_of_pairs *b, real *restrict out)
{
    const idx width = dim['w' - 'a'];
    const double b2 = *place(&array[B2], h, 0);
    fire_queries f;
    double z[PAIR_LANES];
    fire_prepare(array, b, &f);
    for (int j = 0; j < b->keys; j++) {
        fire_inputs(b, &f, j, z);
        for (int first = 0; first < b->lanes; first += LANES) {
            double sum[LANES];
            for (int l = 0; l < LANES; l++)
                sum[l] = b2;
            for (idx w = 0; w < width; w++) {
                const double w1 = *place(&array[W1], w, 0), b1 = *place(&array[B1], w, 0);
                const double w2 = *place(&array[W2], h, w);
                SIMD
                for (int l = 0; l < LANES; l++) {
                    const double hidden = fma64(w1, z[first + l], b1);
                    sum[l] = fma64(w2, hidden > 0 ? hidden : 0, sum[l]);
                }
            }
            for (int l = 0; l < LANES; l++)
                out[j * b->lanes + first + l] = (real)sum[l];
        }
    }
}

/* From   f = sum_w w2 relu(w1 z + b1) + b2:   d b2 += g,  d w2 += g relu(..),  d b1 += g w2 [..> 0],  d w1 += the same z,
 *        d z = g sum_w w2 w1 [.. > 0];
 * from   z = N / D,  N = log(1 + |c| |rel|),  D = log(1 + |c| r) + eps,  r = max(i, |threshold|):
 *        d |c| += d z (|rel| / (1 + |c rel|) - z r / (1 + |c| r)) / D,  d r = -d z z |c| / (1 + |c| r) / D.
 * Where |threshold| = i it gets half of d r, which is the mean of both sides. */
static void FN(fire_grad)(const pe_array *array, const idx *dim, idx h, const pe_block_of_pairs *b, const double *grad,
                          const pe_array *into)
{
    enum { SOME_KEYS = 32 };
    const int lanes = b->lanes;
    const double c = *place(&array[C], 0, 0), threshold = *place(&array[THRESHOLD], 0, 0);
    double total[PAIR_LANES] = {0}, d_slope[PAIR_LANES] = {0}, d_reach[PAIR_LANES] = {0}; /* by lane */
    double inverse[PAIR_LANES], share[PAIR_LANES], d_edge = 0;
    fire_queries f;
    fire_prepare(array, b, &f);
    for (int l = 0; l < lanes; l++) {
        inverse[l] = 1 / f.divisor[l];
        share[l] = f.reach[l] / (1 + f.slope * f.reach[l]);
    }
    for (int first = 0; first < b->keys; first += SOME_KEYS, grad += SOME_KEYS * lanes) {
        const int keys = (int)min_(SOME_KEYS, b->keys - first), numbers = keys * lanes;
        double z[SOME_KEYS * PAIR_LANES], d_z[SOME_KEYS * PAIR_LANES];
        for (int j = 0; j < keys; j++)
            fire_inputs(b, &f, first + j, z + j * lanes);
        for (int i = 0; i < numbers; i++)
            d_z[i] = 0;
        for (idx w = 0; w < dim['w' - 'a']; w++) {
            const double w1 = *place(&array[W1], w, 0), b1 = *place(&array[B1], w, 0), w2 = *place(&array[W2], h, w);
            double d_w1[PAIR_LANES] = {0}, d_b1[PAIR_LANES] = {0}, d_w2[PAIR_LANES] = {0}; /* by lane */
            for (int i = 0; i < numbers; i += lanes)
                SIMD
            for (int l = 0; l < lanes; l++) {
                const double hidden = fma64(w1, z[i + l], b1), g = grad[i + l], seen = hidden > 0 ? g : 0;
                d_w2[l] += seen * hidden;
                d_b1[l] += seen;
                d_w1[l] += seen * z[i + l];
                d_z[i + l] += seen * (w2 * w1);
            }
            for (int l = 1; l < lanes; l++) {
                d_w1[0] += d_w1[l];
                d_b1[0] += d_b1[l];
                d_w2[0] += d_w2[l];
            }
            *place(&into[W1], w, 0) += w2 * d_w1[0];
            *place(&into[B1], w, 0) += w2 * d_b1[0];
            *place(&into[W2], h, w) += d_w2[0];
        }
        for (int j = 0; j < keys; j++)
            SIMD
        for (int l = 0; l < lanes; l++) {
            const int i = j * lanes + l;
            const double rel = fabs_(b->k[first + j] - b->q[l]), d = d_z[i] * inverse[l];
            total[l] += grad[i];
            d_slope[l] += d * (rel / (1 + f.slope * rel) - z[i] * share[l]);
            d_reach[l] -= d * z[i];
        }
    }
    for (int l = 0; l < lanes; l++) {
        const double half = f.edge > b->q[l] ? 1 : f.edge < b->q[l] ? 0 : 0.5;
        *place(&into[B2], h, 0) += total[l];
        *place(&into[C], 0, 0) += c < 0 ? -d_slope[l] : c > 0 ? d_slope[l] : 0;
        d_edge += half * d_reach[l] * f.slope / (1 + f.slope * f.reach[l]);
    }
    *place(&into[THRESHOLD], 0, 0) += threshold < 0 ? -d_edge : threshold > 0 ? d_edge : 0;
}

/* Nothing is read or written outside of a table, whatever was given beside it; Python refuses such numbers. */
INLINE idx within(idx i, idx n) { return i < 0 ? 0 : i < n ? i : n - 1; }

/* ---- Swin (Liu et al. 2021, equation 4): b_h = table[(yq - yk + height - 1) (2 width - 1) + xq - xk + width - 1, h]
 *
 * arrays: table(b,h), grid(s) = height, width. Tokens are row-major, so with code(p) = y (2 width - 1) + x the row is
 * code(q) - code(k) + a constant. Positions are integers within the grid. */

static int64_t grid_at(const pe_array *array, int axis)
{
    int64_t length;
    memcpy(&length, array[1].data + axis * array[1].core[0], sizeof length);
    return length < 1 ? 1 : length;
}

static void swin_codes(const pe_array *array, const double *positions, int n, idx plus, idx *restrict code)
{
    const idx width = (idx)grid_at(array, 1);
    for (int i = 0; i < n; i++) {
        const idx p = (idx)positions[i];
        code[i] = p / width * (2 * width - 1) + p % width + plus;
    }
}

static void swin_rows(const pe_array *array, const pe_block_of_pairs *b, idx *restrict k, idx *restrict q)
{
    const idx height = (idx)grid_at(array, 0), width = (idx)grid_at(array, 1);
    swin_codes(array, b->k, b->keys, 0, k);
    swin_codes(array, b->q, b->lanes, (height - 1) * (2 * width - 1) + width - 1, q);
}

static void FN(swin_at)(const pe_array *array, const idx *dim, idx h, const pe_block_of_pairs *b, real *restrict out)
{
    const idx step = array[0].core[0];
    const char *column = array[0].data + h * array[0].core[1];
    const idx rows = dim['b' - 'a'];
    idx k[PAIR_KEYS], q[PAIR_LANES];
    swin_rows(array, b, k, q);
    for (int j = 0; j < b->keys; j++, out += b->lanes)
        for (int l = 0; l < b->lanes; l++)
            out[l] = (real) * (const double *)(const void *)(column + within(q[l] - k[j], rows) * step);
}

/* From   out = table[q - k, h]:   d table[q - k, h] += grad */
static void FN(swin_grad)(const pe_array *array, const idx *dim, idx h, const pe_block_of_pairs *b, const double *grad,
                          const pe_array *into)
{
    const idx rows = dim['b' - 'a'];
    idx k[PAIR_KEYS], q[PAIR_LANES];
    swin_rows(array, b, k, q);
    for (int j = 0; j < b->keys; j++, grad += b->lanes)
        for (int l = 0; l < b->lanes; l++)
            *place(&into[0], within(q[l] - k[j], rows), h) += grad[l];
}

/* ---- Forgetting Transformer (Lin et al. 2025, equation 5): b_h = C[i] - C[j], C the cumulative sums of log f
 *
 * arrays: sums(h,t); positions are integers within t. In double: C grows with the length, its differences do not. */

static void FN(fox_at)(const pe_array *array, const idx *dim, idx h, const pe_block_of_pairs *b, real *restrict out)
{
    const idx t = dim['t' - 'a'];
    double of_query[PAIR_LANES];
    for (int l = 0; l < b->lanes; l++)
        of_query[l] = *place(&array[0], h, within((idx)b->q[l], t));
    for (int j = 0; j < b->keys; j++, out += b->lanes) {
        const double of_key = *place(&array[0], h, within((idx)b->k[j], t));
        SIMD
        for (int l = 0; l < b->lanes; l++)
            out[l] = (real)(of_query[l] - of_key);
    }
}

/* From   out = C[i] - C[j]:   d C[i] += grad,   d C[j] -= grad */
static void FN(fox_grad)(const pe_array *array, const idx *dim, idx h, const pe_block_of_pairs *b, const double *grad,
                         const pe_array *into)
{
    const idx t = dim['t' - 'a'];
    double of_query[PAIR_LANES] = {0};
    (void)array;
    for (int j = 0; j < b->keys; j++, grad += b->lanes) {
        double of_key = 0;
        for (int l = 0; l < b->lanes; l++) {
            of_query[l] += grad[l];
            of_key += grad[l];
        }
        *place(&into[0], h, within((idx)b->k[j], t)) -= of_key;
    }
    for (int l = 0; l < b->lanes; l++)
        *place(&into[0], h, within((idx)b->q[l], t)) += of_query[l];
}

/* ---- Sandwich (Chi et al. 2023, section 4): b_h = (sum_t cos(w_t rel) - T) / divisor_h, t = 1 .. T
 *
 * arrays: queries(c,n), keys(m,c), divisor(h). cos(w (k - q)) = cos wk cos wq + sin wk sin wq: a product of the 2 T sines
 * and cosines of the key and of the query, instead of T cosines for each pair of each head. */

enum { WAVES = 32, ABREAST = 4 };

/* sum[r * lanes + l] += sum over t of key[r, t] q[t, l], for LANES lanes; rows is a constant where this is inlined */
INLINE void add_waves(int rows, const char *key, idx key_step, int waves, const double *restrict q,
                      double *restrict sum, int lanes)
{
    double acc[ABREAST][LANES];
    for (int r = 0; r < rows; r++)
        for (int l = 0; l < LANES; l++)
            acc[r][l] = sum[r * lanes + l];
    for (int t = 0; t < waves; t++) {
        UNROLL
        for (int r = 0; r < rows; r++) {
            const double x = *(const double *)(const void *)(key + r * key_step + t * (idx)sizeof(double));
            SIMD
            for (int l = 0; l < LANES; l++)
                acc[r][l] = fma64(x, q[t * PAIR_LANES + l], acc[r][l]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int l = 0; l < LANES; l++)
            sum[r * lanes + l] = acc[r][l];
}

static NOINLINE void waves_of_four(const char *key, idx key_step, int waves, const double *q, double *sum, int lanes)
{
    add_waves(ABREAST, key, key_step, waves, q, sum, lanes);
}

static NOINLINE void waves_of_one(const char *key, idx key_step, int waves, const double *q, double *sum, int lanes)
{
    add_waves(1, key, key_step, waves, q, sum, lanes);
}

static void FN(sandwich_at)(const pe_array *array, const idx *dim, idx h, const pe_block_of_pairs *b,
                            real *restrict out)
{
    const idx columns = dim['c' - 'a'], key_step = array[1].core[0];
    const double factor = 1 / *place(&array[2], h, 0), half = 0.5 * (double)columns;
    const char *queries = array[0].data + b->first_q * array[0].core[1];
    const char *keys = array[1].data + b->first_k * key_step;
    const int lanes = b->lanes, numbers = b->keys * lanes;
    double sum[PAIR_KEYS * PAIR_LANES], q[WAVES * PAIR_LANES] = {0};
    for (int i = 0; i < numbers; i++)
        sum[i] = 0;
    for (idx first = 0; first < columns; first += WAVES) {
        const int waves = (int)min_(WAVES, columns - first);
        const char *key = keys + first * (idx)sizeof(double);
        for (int t = 0; t < waves; t++)
            memcpy(q + t * PAIR_LANES, queries + (first + t) * array[0].core[0], (size_t)b->there * sizeof *q);
        for (int l = 0; l < lanes; l += LANES) {
            int j = 0;
            for (; j + ABREAST <= b->keys; j += ABREAST)
                waves_of_four(key + j * key_step, key_step, waves, q + l, sum + j * lanes + l, lanes);
            for (; j < b->keys; j++)
                waves_of_one(key + j * key_step, key_step, waves, q + l, sum + j * lanes + l, lanes);
        }
    }
    SIMD
    for (int i = 0; i < numbers; i++)
        out[i] = (real)((sum[i] - half) * factor);
}

/* Nothing to learn. */
static void FN(sandwich_grad)(const pe_array *array, const idx *dim, idx h, const pe_block_of_pairs *b,
                              const double *grad, const pe_array *into)
{
    (void)array, (void)dim, (void)h, (void)b, (void)grad, (void)into;
}

/* ---- every PAIR row as callable kernels ---- */

enum { PAIR_TILE = 64 };

/* Positions of up to n keys or queries from the first one on; what is beyond the last stands where it does. */
static void positions_at(const pe_call *call, const pe_row *row, int operand, idx first, int there, int n,
                         double *restrict out)
{
    const pe_array *a = &call->array[operand];
    for (int i = 0; i < n; i++)
        out[i] = scalar_read(row->data[operand] + (first + (i < there ? i : there - 1)) * a->core[0], a->storage);
}

/* The blocks of a call: arrays, ..., q_positions(n), k_positions(m). One unit is one head and PE_TILE queries. */
typedef struct {
    const pe_call *call;
    pe_row row;
    pe_array array[PE_TERM_ARRAYS]; /* at this row of the batch */
    idx head, first, last;
    int positions;
    double q[PAIR_LANES], k[PAIR_TILE];
    pe_block_of_pairs block;
} blocks;

static void blocks_at(blocks *b, const pe_call *call, idx unit, int from, int arrays)
{
    const idx heads = call->D(h), parts = BLOCKS(call->D(n), PE_TILE), part = unit % (heads * parts);
    b->call = call;
    b->row = row_at(call, unit / (heads * parts));
    b->head = part / parts;
    b->first = part % parts * PE_TILE;
    b->last = min_(call->D(n), b->first + PE_TILE);
    b->positions = from + arrays;
    for (int k = 0; k < arrays; k++) {
        b->array[k] = call->array[from + k];
        b->array[k].data = b->row.data[from + k];
    }
    b->block.q = b->q;
    b->block.k = b->k;
}

static void set_queries(blocks *b, idx i)
{
    b->block.lanes = b->last - i <= LANES ? LANES : PAIR_LANES;
    b->block.there = (int)min_(b->block.lanes, b->last - i);
    b->block.first_q = i;
    positions_at(b->call, &b->row, b->positions, i, b->block.there, b->block.lanes, b->q);
}

static void set_keys(blocks *b, idx j)
{
    b->block.keys = (int)min_(PAIR_TILE, b->call->D(m) - j);
    b->block.first_k = j;
    positions_at(b->call, &b->row, b->positions + 1, j, b->block.keys, b->block.keys, b->k);
}

static int stopped(const pe_call *call) { return call->stop && call->stop(call); }

/* arrays..., q_positions(n), k_positions(m) -> out(h,n,m): lanes are turned into rows */
static void values(const pe_call *call, idx begin, idx end, int arrays, pe_pair at)
{
    const pe_array *out = &call->array[arrays + 2];
    const idx size = storage_size(out->storage);
    blocks b;
    for (idx u = begin; u < end && !stopped(call); u++) {
        blocks_at(&b, call, u, 0, arrays);
        for (idx i = b.first; i < b.last; i += b.block.there) {
            set_queries(&b, i);
            for (idx j = 0; j < call->D(m); j += b.block.keys) {
                real value[PAIR_TILE * PAIR_LANES];
                set_keys(&b, j);
                at(b.array, call->dim, b.head, &b.block, value);
                for (int l = 0; l < b.block.there; l++) {
                    char *to = b.row.data[arrays + 2] + b.head * out->core[0] + (i + l) * out->core[1] + j * size;
                    real room[PAIR_TILE], *row = row_target(to, out->storage, room);
                    for (int t = 0; t < b.block.keys; t++)
                        row[t] = value[t * b.block.lanes + l];
                    row_write(row, to, out->storage, b.block.keys);
                }
            }
        }
    }
}

/* grad(h,n,m), arrays..., q_positions(n), k_positions(m) -> +gradients...: those of the first arrays */
static void gradients(const pe_call *call, idx begin, idx end, const pe_work *work, int arrays, pe_pair_grad of)
{
    const pe_array *grad = &call->array[0];
    const int results = call->narrays - (arrays + 3);
    pe_array into[PE_TERM_ARRAYS];
    blocks b;
    for (int k = 0; k < results; k++) {
        into[k] = call->array[arrays + 3 + k];
        into[k].data += work->block * into[k].loop[0];
    }
    for (idx u = begin; u < end && !stopped(call); u++) {
        blocks_at(&b, call, u, 1, arrays);
        for (idx i = b.first; i < b.last; i += b.block.there) {
            set_queries(&b, i);
            for (idx j = 0; j < call->D(m); j += b.block.keys) {
                double turned[PAIR_TILE * PAIR_LANES];
                set_keys(&b, j);
                memset(turned, 0, sizeof turned);
                for (int l = 0; l < b.block.there; l++) {
                    const double *from =
                        (const double *)(const void *)(b.row.data[0] + b.head * grad->core[0] + (i + l) * grad->core[1])
                        + j;
                    for (int t = 0; t < b.block.keys; t++)
                        turned[t * b.block.lanes + l] = from[t];
                }
                of(b.array, call->dim, b.head, &b.block, turned, into);
            }
        }
    }
}

#define OP(name, ...)
#define TERM(name, fits, signature)
#define DISTANCE(name, arrays, grads)
#define PAIR(name, arrays, grads)                                                     \
    void FN(name)(const pe_call *call, idx begin, idx end, const pe_work *work)       \
    {                                                                                 \
        (void)work;                                                                   \
        values(call, begin, end, arrays_in(arrays), FN(name##_at));                   \
    }                                                                                 \
    void FN(name##_vjp)(const pe_call *call, idx begin, idx end, const pe_work *work) \
    {                                                                                 \
        gradients(call, begin, end, work, arrays_in(arrays), FN(name##_grad));        \
    }
#include "../ops.def"
#undef PAIR

const pe_pair FN(pair)[PE_COUNT] = {
#define PAIR(name, arrays, grads) [PE_##name] = FN(name##_at),
#include "../ops.def"
#undef PAIR
};

const pe_pair_grad FN(pair_grad)[PE_COUNT] = {
#define PAIR(name, arrays, grads) [PE_##name] = FN(name##_grad),
#include "../ops.def"
};
