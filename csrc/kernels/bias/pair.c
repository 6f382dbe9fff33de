/* pair.c -- every PAIR row of ops.def as kernels that make matrices, and as tables for attention. */
#include "bias/pair.h"

enum { PAIR_TILE = 64 };

/* Positions of up to n keys or queries from the first one on; what is beyond the last stands where it does. */
static void positions_at(const pe_call *call, const pe_row *row, int operand, idx first, int there, int n,
                         double *restrict out)
{
    const pe_array *a = &call->array[operand];
    for (int i = 0; i < n; i++)
        out[i] = scalar_read(row->data[operand] + (first + (i < there ? i : there - 1)) * a->core[0], a->storage);
}

/* The blocks of a call: arrays, ..., q_positions(n), k_positions(m). One unit is one head and BLOCK_M queries. */
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
    const idx heads = call->D(h), parts = BLOCKS(call->D(n), BLOCK_M), part = unit % (heads * parts);
    b->call = call;
    b->row = row_at(call, unit / (heads * parts));
    b->head = part / parts;
    b->first = part % parts * BLOCK_M;
    b->last = min_(call->D(n), b->first + BLOCK_M);
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
#include "ops.def"

const pe_pair FN(pair)[PE_COUNT] = {
#define PAIR(name, arrays, grads) [PE_##name] = FN(name##_at),
#include "ops.def"
};

const pe_pair_grad FN(pair_grad)[PE_COUNT] = {
#define PAIR(name, arrays, grads) [PE_##name] = FN(name##_grad),
#include "ops.def"
};
