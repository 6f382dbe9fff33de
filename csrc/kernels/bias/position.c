/* position.c -- the table of position operators, and two kernels for each DISTANCE and PAIR entry of ops.def: <name>
 * computes the values of an operator, <name>_vjp the gradient of its arrays.
 *
 *     DISTANCE   for (j < l)  out[h][j] = b_h(rel[j]);
 *     PAIR       for (i < n)  for (j < m)  out[h][i][j] = b_h(q_positions[i], k_positions[j]);
 *
 * The kernels call the functions of a pe_position_operator on up to DISTANCES distances, or on a block of queries and
 * keys. Attention calls the same functions, so a bias has the same bits in a matrix and in attention.
 */
#include "bias/position.h"
#include "fits.h"

/* Count the arrays of a signature of ops.def, as in "w1(W,I), b1(W)". */
INLINE int arrays_in(const char *list)
{
    int n = 0;
    for (; *list; list++)
        n += *list == '(';
    return n;
}

/* ---- DISTANCE entries ---- */

enum { DISTANCES = 512 }; /* distances per call of the operator */

/* arrays..., rel(l) -> out(h,l). A unit is UNIT_DISTANCES numbers of one head of one row of the batch. */
static void distance_values(const pe_call *call, idx begin, idx end, const pe_position_operator *functions)
{
    const idx heads = call->D(h), l = call->D(l), blocks = BLOCKS(l, UNIT_DISTANCES);
    const int rel = call->narrays - 2, out = call->narrays - 1;
    const idx size = storage_size(call->array[out].storage);
    for (idx u = begin; u < end; u++) {
        const pe_row row = row_at(call, u / (heads * blocks));
        const idx h = u / blocks % heads, first = u % blocks * UNIT_DISTANCES, last = min_(l, first + UNIT_DISTANCES);
        char *to = row.data[out] + h * call->array[out].core[0];
        for (idx j = first; j < last; j += DISTANCES) {
            const int n = (int)min_(DISTANCES, last - j);
            real buffer[DISTANCES], *target = row_target(to + j * size, call->array[out].storage, buffer);
            functions->distance(call->array, call->dim, h, as_doubles(row.data[rel]) + j, n, target);
            row_write(target, to + j * size, call->array[out].storage, n);
        }
    }
}

/* The gradients of a call, from operand `first` on, for this block */
static void gradients_of_block(const pe_call *call, int first, const pe_work *work, pe_array *into)
{
    for (int k = 0; k < call->narrays - first; k++) {
        into[k] = call->array[first + k];
        into[k].data += work->block * into[k].loop[0];
    }
}

/* grad(h,l), arrays..., rel(l) -> +gradients of the arrays that have one, for all heads of a row of the batch. The
 * kernel of an operator without gradients computes nothing. */
static void distance_gradients(const pe_call *call, idx begin, idx end, const pe_work *work, int arrays,
                               const pe_position_operator *functions)
{
    const idx heads = call->D(h), l = call->D(l);
    const int rel = 1 + arrays;
    pe_array array[PE_OPERATOR_ARRAYS], into[PE_OPERATOR_ARRAYS];
    gradients_of_block(call, rel + 1, work, into);
    for (idx u = begin; u < end && functions->distance_vjp; u++) {
        const pe_row row = row_at(call, u);
        for (int k = 0; k < arrays; k++) {
            array[k] = call->array[1 + k];
            array[k].data = row.data[1 + k];
        }
        for (idx h = 0; h < heads; h++) {
            const double *grad = as_doubles(row.data[0] + h * call->array[0].core[0]);
            for (idx j = 0; j < l; j += DISTANCES) {
                if (stop_requested(call))
                    return;
                functions->distance_vjp(array, call->dim, h, as_doubles(row.data[rel]) + j, (int)min_(DISTANCES, l - j),
                                        grad + j, into);
            }
        }
    }
}

/* ---- PAIR entries ---- */

enum { TILE_KEYS = 64 };

/* A block of queries and keys of one head, and the operator */
typedef struct {
    const pe_call *call;
    const pe_position_operator *functions;
    pe_row row;
    pe_array array[PE_OPERATOR_ARRAYS]; /* with data of this row of the batch */
    const pe_array *into;               /* gradients */
    idx head;
    int q_positions; /* number of this operand; the next operand is k_positions */
    double q[PAIR_LANES], k[TILE_KEYS];
    pe_pair_block block;
} pair_state;

/* Read the positions of `count` keys or queries from `first` on; out[count .. n - 1] repeat the last one. */
static void read_block_positions(const pair_state *s, int operand, idx first, int count, int n, double *restrict out)
{
    const pe_array *a = &s->call->array[operand];
    for (int i = 0; i < n; i++)
        out[i] = scalar_read(s->row.data[operand] + (first + (i < count ? i : count - 1)) * a->core[0], a->storage);
}

static void set_queries(pair_state *s, idx i, idx last)
{
    pe_pair_block *block = &s->block;
    block->width = last - i <= LANES ? LANES : PAIR_LANES;
    block->lanes = (int)min_(block->width, last - i);
    block->first_q = i;
    read_block_positions(s, s->q_positions, i, block->lanes, block->width, s->q);
}

static void set_keys(pair_state *s, idx j)
{
    pe_pair_block *block = &s->block;
    block->keys = (int)min_(TILE_KEYS, s->call->D(m) - j);
    block->first_k = j;
    read_block_positions(s, s->q_positions + 1, j, block->keys, block->keys, s->k);
}

/* Call `compute` for all blocks of the units begin <= u < end. A unit is BLOCK_M queries of a head. */
static void compute_units(pair_state *s, idx begin, idx end, int first_array, int arrays, void (*compute)(pair_state *))
{
    const pe_call *call = s->call;
    const idx heads = call->D(h), n = call->D(n), blocks = BLOCKS(n, BLOCK_M);
    s->q_positions = first_array + arrays;
    s->block.q_positions = s->q;
    s->block.k_positions = s->k;
    for (idx u = begin; u < end; u++) {
        if (stop_requested(call))
            return;
        const idx first = u % blocks * BLOCK_M, last = min_(n, first + BLOCK_M);
        s->row = row_at(call, u / (heads * blocks));
        s->head = u / blocks % heads;
        for (int k = 0; k < arrays; k++) {
            s->array[k] = call->array[first_array + k];
            s->array[k].data = s->row.data[first_array + k];
        }
        for (idx i = first; i < last; i += s->block.lanes) {
            set_queries(s, i, last);
            for (idx j = 0; j < call->D(m); j += s->block.keys) {
                set_keys(s, j);
                compute(s);
            }
        }
    }
}

/* Compute a block, with one query per lane, and store it in rows of out(h,n,m). */
static void compute_values(pair_state *s)
{
    const int operand = s->q_positions + 2;
    const pe_array *out = &s->call->array[operand];
    const pe_pair_block *block = &s->block;
    real value[TILE_KEYS * PAIR_LANES], buffer[TILE_KEYS];
    char *to =
        entry_at(out, s->row.data[operand], s->head, block->first_q) + block->first_k * storage_size(out->storage);
    s->functions->pairs(s->array, s->call->dim, s->head, block, value);
    for (int l = 0; l < block->lanes; l++, to += out->core[1]) {
        real *row = row_target(to, out->storage, buffer);
        for (int j = 0; j < block->keys; j++)
            row[j] = value[j * block->width + l];
        row_write(row, to, out->storage, block->keys);
    }
}

/* Add the gradients of a block. Lanes hold the queries of operand 0, grad(h,n,m); lanes without a query hold 0. */
static void compute_gradients(pair_state *s)
{
    const pe_pair_block *block = &s->block;
    double grad[TILE_KEYS * PAIR_LANES] = {0};
    for (int l = 0; l < block->lanes; l++) {
        const double *row = as_doubles(entry_at(&s->call->array[0], s->row.data[0], s->head, block->first_q + l));
        for (int j = 0; j < block->keys; j++)
            grad[j * block->width + l] = row[block->first_k + j];
    }
    s->functions->pairs_vjp(s->array, s->call->dim, s->head, block, grad, s->into);
}

/* arrays..., q_positions(n), k_positions(m) -> out(h,n,m) */
static void pair_values(const pe_call *call, idx begin, idx end, int arrays, const pe_position_operator *functions)
{
    pair_state s = {.call = call, .functions = functions};
    compute_units(&s, begin, end, 0, arrays, compute_values);
}

/* grad(h,n,m), arrays..., q_positions(n), k_positions(m) -> +gradients of the arrays that have one. */
static void pair_gradients(const pe_call *call, idx begin, idx end, const pe_work *work, int arrays,
                           const pe_position_operator *functions)
{
    pe_array into[PE_OPERATOR_ARRAYS];
    pair_state s = {.call = call, .functions = functions, .into = into};
    gradients_of_block(call, arrays + 3, work, into);
    compute_units(&s, begin, end, 1, arrays, compute_gradients);
}

/* ---- the kernels and the table ---- */

#define POSITION(name, fits, signature) extern const pe_position_operator FN(name##_operator);
#define DISTANCE(name, arrays, gradients)                                     \
    extern const pe_position_operator FN(name##_operator);                    \
    KERNEL(name) { distance_values(call, begin, end, &FN(name##_operator)); } \
    KERNEL(name##_vjp) { distance_gradients(call, begin, end, work, arrays_in(arrays), &FN(name##_operator)); }
#define PAIR(name, arrays, gradients)                                                        \
    extern const pe_position_operator FN(name##_operator);                                   \
    KERNEL(name) { pair_values(call, begin, end, arrays_in(arrays), &FN(name##_operator)); } \
    KERNEL(name##_vjp) { pair_gradients(call, begin, end, work, arrays_in(arrays), &FN(name##_operator)); }
#include "ops.def"

const pe_position_operator *const FN(position_operators)[PE_COUNT] = {
#define POSITION(name, fits, signature) [PE_##name] = &FN(name##_operator),
#define DISTANCE(name, arrays, gradients) [PE_##name] = &FN(name##_operator),
#define PAIR(name, arrays, gradients) [PE_##name] = &FN(name##_operator),
#include "ops.def"
};
