/* position.c -- the table of position operators, and a pair of callable kernels for each DISTANCE and PAIR row: the
 * operator's values as a row of distances or a matrix, and the gradient of its arrays.
 */
#include "bias/position.h"

/* How many arrays a list of ops.def names. */
INLINE int arrays_in(const char *list)
{
    int n = 0;
    for (; *list; list++)
        n += *list == '(';
    return n;
}

/* ---- DISTANCE rows ---- */

enum { ROW = 512 }; /* distances computed at a time */

/* arrays..., rel(l) -> out(h,l). One unit is one head. */
static void distance_values(const pe_call *call, idx begin, idx end, const pe_position_op *op)
{
    const idx heads = call->D(h), l = call->D(l);
    const int rel = call->narrays - 2, out = call->narrays - 1;
    const idx size = storage_size(call->array[out].storage);
    for (idx u = begin; u < end; u++) {
        const pe_row row = row_at(call, u / heads);
        const idx h = u % heads;
        char *to = row.data[out] + h * call->array[out].core[0];
        for (idx j = 0; j < l; j += ROW) {
            const int n = (int)min_(ROW, l - j);
            real buffer[ROW], *target = row_target(to + j * size, call->array[out].storage, buffer);
            op->distance(call->array, call->dim, h, (const double *)(void *)row.data[rel] + j, n, target);
            row_write(target, to + j * size, call->array[out].storage, n);
        }
    }
}

/* grad(h,l), arrays..., rel(l) -> gradients of the first arrays. One unit is all heads, because heads may share an
 * array. */
static void distance_gradients(const pe_call *call, int arrays, const pe_position_op *op)
{
    const idx heads = call->D(h), l = call->D(l);
    const pe_array *rel = &call->array[1 + arrays], *into = rel + 1;
    for (idx h = 0; h < heads; h++) {
        const double *grad = element(&call->array[0], h, 0);
        for (idx j = 0; j < l; j += ROW)
            op->distance_vjp(call->array + 1, call->dim, h, (const double *)(void *)rel->data + j,
                             (int)min_(ROW, l - j), grad + j, into);
    }
}

/* ---- PAIR rows ---- */

enum { TILE_KEYS = 64 };

/* A walk over the blocks of one unit: one head and BLOCK_M queries. */
typedef struct {
    const pe_call *call;
    pe_row row;
    pe_array array[PE_TERM_ARRAYS]; /* at this row of the batch */
    idx head, first, last;          /* queries first <= i < last */
    int q_positions;                /* operand; k_positions is the next one */
    double q[PAIR_LANES], k[TILE_KEYS];
    pe_pair_block block;
} pair_walk;

/* Positions of n keys or lanes from `first` on; those from `count` on repeat the last one. */
static void read_positions(const pair_walk *w, int operand, idx first, int count, int n, double *restrict out)
{
    const pe_array *a = &w->call->array[operand];
    for (int i = 0; i < n; i++)
        out[i] = scalar_read(w->row.data[operand] + (first + (i < count ? i : count - 1)) * a->core[0], a->storage);
}

static void begin_unit(pair_walk *w, const pe_call *call, idx unit, int first_array, int arrays)
{
    const idx heads = call->D(h), blocks = BLOCKS(call->D(n), BLOCK_M), block = unit % (heads * blocks);
    w->call = call;
    w->row = row_at(call, unit / (heads * blocks));
    w->head = block / blocks;
    w->first = block % blocks * BLOCK_M;
    w->last = min_(call->D(n), w->first + BLOCK_M);
    w->q_positions = first_array + arrays;
    for (int k = 0; k < arrays; k++) {
        w->array[k] = call->array[first_array + k];
        w->array[k].data = w->row.data[first_array + k];
    }
    w->block.q = w->q;
    w->block.k = w->k;
}

static void set_queries(pair_walk *w, idx i)
{
    pe_pair_block *b = &w->block;
    b->lanes = w->last - i <= LANES ? LANES : PAIR_LANES;
    b->queries = (int)min_(b->lanes, w->last - i);
    b->first_q = i;
    read_positions(w, w->q_positions, i, b->queries, b->lanes, w->q);
}

static void set_keys(pair_walk *w, idx j)
{
    pe_pair_block *b = &w->block;
    b->keys = (int)min_(TILE_KEYS, w->call->D(m) - j);
    b->first_k = j;
    read_positions(w, w->q_positions + 1, j, b->keys, b->keys, w->k);
}

/* Rows i ... of out(h,n,m) from a block, whose queries are on lanes. */
static void write_block(const pair_walk *w, const real *value)
{
    const int operand = w->q_positions + 2;
    const pe_array *out = &w->call->array[operand];
    const pe_pair_block *b = &w->block;
    char *to = w->row.data[operand] + w->head * out->core[0] + b->first_q * out->core[1]
               + b->first_k * storage_size(out->storage);
    for (int l = 0; l < b->queries; l++, to += out->core[1]) {
        real buffer[TILE_KEYS], *row = row_target(to, out->storage, buffer);
        for (int j = 0; j < b->keys; j++)
            row[j] = value[j * b->lanes + l];
        row_write(row, to, out->storage, b->keys);
    }
}

/* arrays..., q_positions(n), k_positions(m) -> out(h,n,m) */
static void pair_values(const pe_call *call, idx begin, idx end, int arrays, const pe_position_op *op)
{
    pair_walk w;
    for (idx u = begin; u < end && !stop_requested(call); u++) {
        begin_unit(&w, call, u, 0, arrays);
        for (idx i = w.first; i < w.last; i += w.block.queries) {
            set_queries(&w, i);
            for (idx j = 0; j < call->D(m); j += w.block.keys) {
                real value[TILE_KEYS * PAIR_LANES];
                set_keys(&w, j);
                op->pairs(w.array, call->dim, w.head, &w.block, value);
                write_block(&w, value);
            }
        }
    }
}

/* A block of grad(h,n,m), operand 0, with its queries on lanes and 0 in lanes that are no queries. */
static void read_block(const pair_walk *w, double *restrict transposed)
{
    const pe_array *a = &w->call->array[0];
    const pe_pair_block *b = &w->block;
    memset(transposed, 0, (size_t)(TILE_KEYS * PAIR_LANES) * sizeof *transposed);
    for (int l = 0; l < b->queries; l++) {
        const char *from = w->row.data[0] + w->head * a->core[0] + (b->first_q + l) * a->core[1];
        const double *row = (const double *)(const void *)from + b->first_k;
        for (int j = 0; j < b->keys; j++)
            transposed[j * b->lanes + l] = row[j];
    }
}

/* grad(h,n,m), arrays..., q_positions(n), k_positions(m) -> +gradients of the first arrays. An operator without a
 * gradient leaves them 0. */
static void pair_gradients(const pe_call *call, idx begin, idx end, const pe_work *work, int arrays,
                           const pe_position_op *op)
{
    const int first_result = arrays + 3;
    pe_array into[PE_TERM_ARRAYS];
    pair_walk w;
    for (int k = 0; k < call->narrays - first_result; k++) {
        into[k] = call->array[first_result + k];
        into[k].data += work->block * into[k].loop[0];
    }
    if (!op->pairs_vjp)
        return;
    for (idx u = begin; u < end && !stop_requested(call); u++) {
        begin_unit(&w, call, u, 1, arrays);
        for (idx i = w.first; i < w.last; i += w.block.queries) {
            set_queries(&w, i);
            for (idx j = 0; j < call->D(m); j += w.block.keys) {
                double grad[TILE_KEYS * PAIR_LANES];
                set_keys(&w, j);
                read_block(&w, grad);
                op->pairs_vjp(w.array, call->dim, w.head, &w.block, grad, into);
            }
        }
    }
}

/* ---- the kernels and the table ---- */

#define POSITION(name, fits, signature) extern const pe_position_op FN(name##_op);
#define DISTANCE(name, arrays, gradients)                                             \
    extern const pe_position_op FN(name##_op);                                        \
    void FN(name)(const pe_call *call, idx begin, idx end, const pe_work *work)       \
    {                                                                                 \
        (void)work;                                                                   \
        distance_values(call, begin, end, &FN(name##_op));                            \
    }                                                                                 \
    void FN(name##_vjp)(const pe_call *call, idx begin, idx end, const pe_work *work) \
    {                                                                                 \
        (void)begin, (void)end, (void)work;                                           \
        distance_gradients(call, arrays_in(arrays), &FN(name##_op));                  \
    }
#define PAIR(name, arrays, gradients)                                                 \
    extern const pe_position_op FN(name##_op);                                        \
    void FN(name)(const pe_call *call, idx begin, idx end, const pe_work *work)       \
    {                                                                                 \
        (void)work;                                                                   \
        pair_values(call, begin, end, arrays_in(arrays), &FN(name##_op));             \
    }                                                                                 \
    void FN(name##_vjp)(const pe_call *call, idx begin, idx end, const pe_work *work) \
    {                                                                                 \
        pair_gradients(call, begin, end, work, arrays_in(arrays), &FN(name##_op));    \
    }
#include "ops.def"

const pe_position_op *const FN(position_op)[PE_COUNT] = {
#define POSITION(name, fits, signature) [PE_##name] = &FN(name##_op),
#define DISTANCE(name, arrays, gradients) [PE_##name] = &FN(name##_op),
#define PAIR(name, arrays, gradients) [PE_##name] = &FN(name##_op),
#include "ops.def"
};
