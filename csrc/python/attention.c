/* attention.c -- the calls of kernels that attention and its gradient become, on every instruction set alike.
 *
 *     attention       heads that share keys, stacked as rows of one head; the keys in one part, or in several that are
 *                     merged
 *     attention_vjp   chunks of the work of a kv head, each with sums of its own if there are few; before, a run for
 *                     each dense array that heads or rows of the batch share
 *     logits_vjp      the same sums for operators that read q and k, in one chunk
 *
 * Python adds up chunks and the batch. The decisions depend on lengths, operators and parameters, never on the number
 * of threads. kernels/attention/plan.c has the decisions that depend on the instruction set.
 */
#include "python/bind.h"

#include "python/arrays.h"

#include <math.h>
#include <string.h>

#include "fits.h"

enum { MOST_ROWS = 16 };     /* most queries of a head that are stacked: more fill panels by themselves */
enum { KEY_PARTS = 16 };     /* most parts of the keys of a head */
enum { FEWEST_KEYS = 4096 }; /* fewest keys of a part: both kernels take longer for them than a thread to wake up */
enum { VJP_CHUNKS = 8 };     /* most chunks of a kv head in the gradient */
enum { FEWEST_BLOCKS = 2 };  /* fewest blocks of queries in a chunk of the gradient */

static idx size_of(pe_storage storage)
{
    static const idx size[] = {
        [PE_F16] = 2, [PE_BF16] = 2, [PE_F32] = 4, [PE_F64] = 8, [PE_I64] = 8, [PE_I8] = 1, [PE_BOOL] = 1};
    return size[storage];
}

static int work_type(const pe_binding *b) { return b->is_double ? NPY_DOUBLE : NPY_FLOAT; }
static pe_storage work_storage(const pe_binding *b) { return b->is_double ? PE_F64 : PE_F32; }

idx pe_count_batch(const pe_call *call)
{
    idx batch = 1;
    for (int l = 0; l < call->nloops; l++)
        batch *= call->shape[l];
    return batch;
}

char *pe_in_batch(const pe_call *call, const pe_array *x, idx row)
{
    char *at = x->data;
    for (int l = call->nloops - 1; l >= 0; row /= call->shape[l--])
        at += row % call->shape[l] * x->loop[l];
    return at;
}

/* Memory without gaps, of arrays with these lengths, one after the other in the order of the loops */
static pe_array whole_array(char *data, pe_storage storage, int nloops, const idx *loops, int naxes, const idx *length)
{
    pe_array array = {.data = data, .storage = storage};
    idx size = size_of(storage);
    for (int k = naxes - 1; k >= 0; size *= length[k--])
        array.core[k] = length[k] == 1 ? 0 : size;
    for (int l = nloops - 1; l >= 0; size *= loops[l--])
        array.loop[l] = loops[l] == 1 ? 0 : size;
    return array;
}

/* Such an array in memory that lives as long as the call; data is NULL with an exception */
static pe_array new_array(pe_binding *b, pe_storage storage, int nloops, const idx *loops, int naxes, const idx *length)
{
    idx bytes = size_of(storage);
    for (int l = 0; l < nloops; l++)
        bytes *= loops[l];
    for (int k = 0; k < naxes; k++)
        bytes *= length[k];
    PyObject *memory = pe_keep(b, PyArray_SimpleNew(1, &bytes, NPY_BYTE));
    return whole_array(memory ? PyArray_DATA(A(memory)) : NULL, storage, nloops, loops, naxes, length);
}

/* ---- all entries with operators ---- */

static int has_no_window(const pe_call *call) { return call->par[A_LOW] == -HUGE_VAL && call->par[A_HIGH] == HUGE_VAL; }

/* ---- attention: heads that share keys ---- */

/* With stacked queries the kernel reads the keys of a kv head once, and more lanes of a panel hold a query. The numbers
 * of heads and queries also decide whether the kernel decodes and into how many parts the keys are split; apart from
 * these two choices, stacking changes no bit of the result. */
static int can_stack(const pe_call *call)
{
    const idx n = call->D(n);
    return call->D(h) > call->D(g) && n > 0 && n <= MOST_ROWS && call->noperators == 0 && call->par[A_DROPOUT] == 0
           && (n == 1 || !call->array[A_KEEP].data);
}

/* Copy rows (count,n) of `width` numbers to memory without gaps; `outer` and `inner` are their strides. */
static int copy_rows(pe_binding *b, const pe_call *call, pe_array *x, idx count, idx outer, idx inner, idx width)
{
    const idx n = call->D(n), bytes = width * size_of(x->storage);
    const pe_array copy = new_array(b, x->storage, call->nloops, call->shape, 3, (const idx[]){count, n, width});
    char *to = copy.data;
    for (idx row = 0; to && row < pe_count_batch(call); row++) {
        const char *from = pe_in_batch(call, x, row);
        for (idx i = 0; i < count * n; i++, to += bytes)
            memcpy(to, from + i / n * outer + i % n * inner, (size_t)bytes);
    }
    *x = copy;
    return to ? 0 : -1;
}

/* Repeat the numbers (n) of queries, if there are any, for each head that shares a kv head. */
static int repeat_queries(pe_binding *b, pe_call *call, int operand, idx share)
{
    pe_array *x = &call->array[operand];
    if (!x->data || call->D(n) == 1) /* an axis of length 1 has stride 0 */
        return 0;
    if (copy_rows(b, call, x, share, 0, x->core[0], 1) < 0)
        return -1;
    x->core[0] = x->core[1];
    return 0;
}

/* Give each stacked query its position, shift, shift + 1, ..., if the caller passed none. */
static int stack_positions(pe_binding *b, pe_call *call, idx share)
{
    pe_array *x = &call->array[A_Q_POSITIONS];
    const idx n = call->D(n);
    if (has_no_window(call)) {
        x->data = call->array[A_K_POSITIONS].data = NULL;
        return 0;
    }
    if (x->data)
        return repeat_queries(b, call, A_Q_POSITIONS, share);
    *x = new_array(b, PE_F64, 0, NULL, 1, (const idx[]){share * n});
    double *position = (double *)(void *)x->data;
    for (idx i = 0; position && i < share * n; i++)
        position[i] = call->par[A_SHIFT] + (double)(i % n);
    return position ? 0 : -1;
}

/* Let the kernel write a result (h,n) or (h,n,e) to new memory, from which it is copied to its place. */
static int renew_result(pe_binding *b, pe_call *call, int operand)
{
    pe_array *x = &call->array[operand];
    PyObject **written = &b->written[operand - A_OUT];
    const idx length[] = {call->D(h), call->D(n), call->D(e)};
    *written = pe_keep(b, PyArray_NewLikeArray(A(*written), NPY_CORDER, NULL, 0));
    if (*written)
        *x = whole_array(PyArray_BYTES(A(*written)), x->storage, call->nloops, call->shape, operand == A_OUT ? 3 : 2,
                         length);
    return *written ? 0 : -1;
}

/* Stack the queries of the heads that share a kv head as rows of one head; -1 with an exception. */
static int stack_heads(pe_binding *b, pe_call *call)
{
    static const int of_heads[] = {A_Q, A_KEEP, A_SINK, A_OUT, A_LSE};
    const idx n = call->D(n), share = call->D(h) / call->D(g);
    if (stack_positions(b, call, share) < 0 || repeat_queries(b, call, A_Q_SEGMENTS, share) < 0)
        return -1;
    for (int i = 0; i < 5; i++) {
        const int operand = of_heads[i];
        pe_array *x = &call->array[operand];
        const idx width = operand == A_Q ? call->D(d) : 1; /* a mask is not copied, because it has one query */
        if (!x->data)
            continue;
        if (n > 1 && x->core[0] != n * x->core[1]) { /* the axes (h,n) are no axes (g, h / g n) */
            const int status = operand >= A_OUT ? renew_result(b, call, operand)
                                                : copy_rows(b, call, x, call->D(h), x->core[0], x->core[1], width);
            if (status < 0)
                return -1;
        }
        x->core[1] = n == 1 ? x->core[0] : x->core[1];
        x->core[0] *= share;
    }
    call->D(h) = call->D(g);
    call->D(n) = share * n;
    return 0;
}

/* ---- attention: parts of the keys ---- */

/* Each part of the keys of a head is a unit of work. Neither the number of threads nor the batch changes the number of
 * parts, so that neither changes a bit of the result. */
static idx count_parts(const pe_binding *b, const pe_call *call)
{
    const idx units = call->D(h) * BLOCKS(call->D(n), BLOCK_M), m = call->D(m);
    int in_one_part = m < 2 * FEWEST_KEYS || call->par[A_INVARIANT] != 0;
    for (int t = 0; t < call->noperators; t++)
        in_one_part |= b->table->entry[call->operators[t].entry].operand[0].ordered;
    return in_one_part ? 1 : max_(1, min_(KEY_PARTS / max_(units, 1), m / FEWEST_KEYS));
}

/* Attention to each part, and then the merged result: loops over heads and queries, of axes (p,e) and (p) */
static int attend_in_parts(pe_binding *b, pe_call *call, idx parts)
{
    const idx heads = call->D(h), n = call->D(n), e = call->D(e), length[] = {heads * parts, n, e};
    pe_array *out = &call->array[A_PART_OUT], *lse = &call->array[A_PART_LSE];
    idx loops[PE_LOOPS];
    if (call->nloops + 2 > PE_LOOPS)
        return pe_wrong(PyExc_ValueError, b, "q", "has too many axes; expected at most %d", PE_LOOPS + 1);
    call->narrays = A_PART_LSE + 1;
    *out = new_array(b, work_storage(b), call->nloops, call->shape, 3, length);
    *lse = out->data ? new_array(b, PE_F64, call->nloops, call->shape, 2, length) : *out;
    if (!lse->data || pe_run_call(b, PE_attention, call) < 0)
        return -1;
    pe_call merge = *call;
    merge.D(p) = parts;
    merge.narrays = 4;
    const pe_array *array[] = {out, lse, &call->array[A_OUT], &call->array[A_LSE]};
    for (int k = 0; k < 4; k++)
        merge.array[k] = pe_loops_over(array[k], call, 2);
    for (int k = 0; k < 2; k++) {
        const idx part = n * (k == 0 ? e : 1) * size_of(array[k]->storage);
        merge.array[k].loop[PE_LOOPS - 2] = parts * part;
        merge.array[k].core[0] = part;
        merge.array[k].core[1] = array[k]->core[2];
    }
    memcpy(loops + PE_LOOPS - 2 - call->nloops, call->shape, (size_t)call->nloops * sizeof *loops);
    loops[PE_LOOPS - 2] = heads;
    loops[PE_LOOPS - 1] = n;
    pe_merge_loops(&merge, loops, call->nloops + 2);
    return pe_run_call(b, PE_merge_attention, &merge);
}

static int run_attention(pe_binding *b, pe_call *call)
{
    if (can_stack(call) && stack_heads(b, call) < 0)
        return -1;
    const idx parts = count_parts(b, call);
    call->plan = (pe_plan){.mode = PE_ATTEND};
    call->par[A_PARTS] = (double)parts;
    return parts > 1 ? attend_in_parts(b, call, parts) : pe_run_call(b, PE_attention, call);
}

/* ---- gradients ---- */

/* Split the work of a kv head: by heads first, then by blocks of queries. Chunks fix the order of the sums over
 * queries, so that it is the same for every batch and number of threads. With few kv heads, each chunk is a unit of
 * work with sums of its own: of a kv head, or of a head for sums over queries. */
static void split_work(pe_call *call)
{
    const idx groups = max_(call->D(g), 1), wanted = BLOCKS(VJP_CHUNKS, groups), blocks = BLOCKS(call->D(n), BLOCK_M);
    const idx head_chunks = max_(1, min_(call->D(h) / groups, wanted));
    const idx block_chunks = max_(1, min_(blocks / FEWEST_BLOCKS, wanted / head_chunks));
    call->plan = (pe_plan){.mode = PE_ATTEND_VJP, .head_chunks = head_chunks, .block_chunks = block_chunks};
    call->par[A_PARTS] = pe_count_batch(call) * call->D(g) < VJP_CHUNKS ? (double)(head_chunks * block_chunks) : 1;
}

/* What a gradient returns. An array that the kernel adds to is (batch axes, heads, chunks, ...). */
typedef struct {
    pe_binding *b;
    pe_call *call;
    idx chunks;                  /* of a head */
    PyObject *result[PE_ARRAYS]; /* by operand; those of dS serve all operators */
    PyObject *of_operator[PE_OPERATORS][PE_OPERATOR_ARRAYS];
    int count[PE_OPERATORS]; /* of each operator */
} pe_gradients;

/* The shape (batch axes, heads, chunks, other lengths); returns the number of its axes */
static int shape_of(const pe_binding *b, idx chunks, int naxes, const idx *length, npy_intp *shape)
{
    const int n = b->nloops;
    memcpy(shape, b->loops + PE_LOOPS - n, (size_t)n * sizeof *shape);
    shape[n] = length[0];
    shape[n + 1] = chunks;
    memcpy(shape + n + 2, length + 1, (size_t)(naxes - 1) * sizeof *shape);
    return n + naxes + 1;
}

static PyObject *new_zeros(pe_binding *b, int type, int n, npy_intp *shape)
{
    return pe_allocate(b, (PyObject *)PyArray_DescrFromType(type), n, shape, 1);
}

/* Zeros of that shape, in which heads and chunks are one axis for the kernel; NULL with an exception */
static PyObject *new_gradient(const pe_gradients *g, int type, idx chunks, int naxes, const idx *length, pe_array *out)
{
    npy_intp shape[NPY_MAXDIMS];
    const int n = shape_of(g->b, chunks, naxes, length, shape);
    PyObject *array = new_zeros(g->b, type, n, shape);
    idx merged[PE_CORE];
    memcpy(merged, length, (size_t)naxes * sizeof *length);
    merged[0] *= chunks;
    if (array)
        *out = whole_array(PyArray_BYTES(A(array)), (pe_storage)pe_storage_of(array), g->call->nloops, g->call->shape,
                           naxes, merged);
    return array;
}

/* Zeros for an output of the kernel, unless it has them already; NULL with an exception */
static PyObject *add_result(pe_gradients *g, int operand, int type, idx chunks, int naxes, const idx *length)
{
    if (!g->result[operand])
        g->result[operand] = new_gradient(g, type, chunks, naxes, length, &g->call->array[operand]);
    return g->result[operand];
}

/* The dtype of the gradient of an input: that of the input if nothing is left to add up */
static int type_of_gradient(const pe_gradients *g, int operand, int is_summed)
{
    PyArrayObject *input = A(g->b->input[operand]);
    const int loops = g->b->nloops, rank = PyArray_NDIM(input) - 3;
    const int is_final =
        !is_summed && rank == loops && PyArray_CompareLists(PyArray_DIMS(input), g->b->loops + PE_LOOPS - loops, loops);
    return is_final ? PyArray_TYPE(input) : work_type(g->b);
}

/* ---- the gradients of operators ---- */

/* Whether a dense array has one number for all entries of an axis. It has stride 0 there, as along an empty axis. */
static int broadcasts(idx stride, idx length) { return stride == 0 && length > 0; }

/* The entry whose results are the gradients of an operator */
static const pe_signature *gradients_of(const pe_gradients *g, const pe_operator *operator_)
{
    const pe_signature *entry = &g->b->table->entry[operator_->entry];
    return entry->vjp ? entry->vjp : entry;
}

/* The sums of dS that make the gradient of an operator: it has an entry for each diagonal, pair or position. 0 if the
 * kernel adds it to arrays of its own entry */
enum { DIAGONALS = 1, ROWS = 2, COLUMNS = 4, PAIRS = 8 };

static int sums_of(const pe_gradients *g, const pe_operator *operator_)
{
    const pe_signature *vjp = gradients_of(g, operator_);
    const pe_array *x = &operator_->array[0];
    for (const pe_operand *o = vjp->operand; o < vjp->operand + vjp->noperands; o++) {
        if (!o->output)
            continue;
        if (o->gathered)
            return ROWS | COLUMNS;
        if (o->naxes == 2 && o->axes[1] == 'l' - 'A')
            return DIAGONALS;
        if (o->naxes == 3 && o->axes[2] == 'm' - 'A')
            return broadcasts(x->core[2], g->call->D(m))   ? ROWS
                   : broadcasts(x->core[1], g->call->D(n)) ? COLUMNS
                                                           : PAIRS;
    }
    return 0;
}

/* Length of axis k of gradient o. A letter that no operand has means that axis of the operand, filled up to vectors. */
static idx length_of(const pe_gradients *g, const pe_operator *operator_, const pe_operand *o,
                     const pe_operand *operand, int k)
{
    const idx length = (o->axes[k] < PE_OWN_AXES ? operator_->dim : g->call->dim)[o->axes[k]],
              letter = operand->axes[k];
    if (length != PE_UNKNOWN)
        return length;
    return BLOCKS((letter < PE_OWN_AXES ? operator_->dim : g->call->dim)[letter], VECTOR_PADDING) * VECTOR_PADDING;
}

/* Zeros without heads and chunks, for an output that is summed over all rows; NULL with an exception */
static PyObject *new_sum(pe_binding *b, int naxes, idx *length, pe_array *out)
{
    PyObject *sum = new_zeros(b, NPY_DOUBLE, naxes, length);
    if (!sum)
        return NULL;
    *out = whole_array(PyArray_BYTES(A(sum)), PE_F64, 0, NULL, naxes, length);
    b->summed[b->nsummed++] = (pe_sum){out, PyArray_DATA(A(sum)), PyArray_SIZE(A(sum))};
    return sum;
}

/* Zeros for the gradients that the kernel adds to arrays of the operator's entry; none for an operand that is left
 * out */
static int add_own_gradients(pe_gradients *g, int t)
{
    pe_operator *operator_ = &g->call->operators[t];
    const pe_signature *entry = &g->b->table->entry[operator_->entry], *vjp = gradients_of(g, operator_);
    for (int k = 0; k < vjp->noperands; k++) {
        const pe_operand *o = &vjp->operand[k];
        const int has_chunks = o->axes[0] == 't' - 'A';
        idx length[PE_CORE];
        if (!o->output)
            continue;
        const int i = g->count[t]++;
        if (!operator_->array[i].data)
            continue;
        for (int axis = 0; axis < o->naxes; axis++)
            length[axis] =
                has_chunks && axis == 0 ? g->call->D(h) : length_of(g, operator_, o, &entry->operand[i], axis);
        PyObject **own = &g->of_operator[t][i];
        *own = entry->vjp ? new_sum(g->b, o->naxes, length, &operator_->gradient[i])
                          : new_gradient(g, o->type == 'f' ? NPY_DOUBLE : work_type(g->b), has_chunks ? g->chunks : 1,
                                         o->naxes, length, &operator_->array[k]);
        if (!*own)
            return -1;
    }
    return 0;
}

/* Zeros for a sum of dS that an operator needs; NULL with an exception */
static PyObject *add_sum(pe_gradients *g, int t, int operand, int type, idx chunks, int naxes, const idx *length)
{
    return g->of_operator[t][g->count[t]++] = add_result(g, operand, type, chunks, naxes, length);
}

/* Zeros for all that the operators need; -1 with an exception */
static int add_operator_gradients(pe_gradients *g)
{
    pe_call *call = g->call;
    const idx h = call->D(h), n = call->D(n), m = call->D(m), l = max_(n + m - 1, 0);
    for (int t = 0; t < call->noperators; t++) {
        const int sums = sums_of(g, &call->operators[t]);
        if (call->operators[t].is_constant || g->count[t] > 0) /* run_shared computed it */
            continue;
        if ((sums & DIAGONALS && !add_sum(g, t, A_DIAGONAL_SUMS, NPY_DOUBLE, g->chunks, 2, (const idx[]){h, l}))
            || (sums & ROWS && !add_sum(g, t, A_ROW_SUMS, NPY_DOUBLE, 1, 3, (const idx[]){h, n, 1}))
            || (sums & COLUMNS && !add_sum(g, t, A_COLUMN_SUMS, NPY_DOUBLE, g->chunks, 3, (const idx[]){h, 1, m}))
            || (sums & PAIRS && !add_sum(g, t, A_DS, work_type(g->b), 1, 3, (const idx[]){h, n, m}))
            || (!sums && add_own_gradients(g, t) < 0))
            return -1;
    }
    return 0;
}

/* Compute the gradients of dense arrays that heads or rows of the batch share, each in a run of its own, in an order in
 * which no two threads add to the same number. */
static int run_shared(pe_gradients *g)
{
    pe_call *call = g->call;
    pe_array *out = &call->array[A_DS];
    call->plan = (pe_plan){.mode = PE_SHARED_VJP};
    call->par[A_PARTS] = VJP_CHUNKS;
    for (int t = 0; t < call->noperators; t++) {
        const pe_array *x = &call->operators[t].array[0];
        const idx h = call->D(h), length[] = {broadcasts(x->core[0], h) ? 1 : h, call->D(n), call->D(m)};
        npy_intp shape[NPY_MAXDIMS], loops[PE_LOOPS];
        int is_shared = length[0] != h;
        if (call->operators[t].is_constant || sums_of(g, &call->operators[t]) != PAIRS)
            continue;
        const int rank = shape_of(g->b, 1, 3, length, shape);
        for (int d = 0, l = 0; d < g->b->nloops; d++) { /* loops of length 1 are left out, and none are merged */
            if (shape[d] == 1)
                continue;
            loops[l] = broadcasts(x->loop[l], shape[d]) ? 1 : shape[d];
            is_shared |= loops[l] != shape[d];
            shape[d] = loops[l++];
        }
        if (!is_shared)
            continue;
        PyObject *pairs = g->of_operator[t][g->count[t]++] = new_zeros(g->b, work_type(g->b), rank, shape);
        if (!pairs)
            return -1;
        *out = whole_array(PyArray_BYTES(A(pairs)), work_storage(g->b), call->nloops, loops, 3, length);
        if (pe_run_call(g->b, PE_attention_vjp, call) < 0)
            return -1;
    }
    out->data = NULL;
    return 0;
}

/* Copy a gradient that an earlier operator has, too: arrays of a result share no memory. -1 with an exception */
static int copy_shared(pe_gradients *g, int t, int i)
{
    PyObject **own = &g->of_operator[t][i];
    for (int earlier = 0; earlier < t; earlier++) {
        for (int j = 0; j < g->count[earlier]; j++) {
            if (*own && g->of_operator[earlier][j] == *own) {
                *own = pe_keep(g->b, PyArray_NewCopy(A(*own), NPY_CORDER));
                return *own ? 0 : -1;
            }
        }
    }
    return 0;
}

/* Return the results of these operands, and a tuple with those of each operator. */
static int return_gradients(pe_gradients *g, const int *operand, int count)
{
    pe_binding *b = g->b;
    PyObject *of_operator[PE_OPERATORS];
    for (int t = g->call->noperators - 1; t >= 0; t--) {
        for (int i = 0; i < g->count[t]; i++) {
            if (copy_shared(g, t, i) < 0)
                return -1;
        }
    }
    for (int t = 0; t < g->call->noperators; t++) {
        const pe_operator *o = &b->operators[g->call->noperators + t];
        const int is_distance = o->entry != g->call->operators[t].entry && g->count[t] > 0;
        of_operator[t] = is_distance ? pe_differentiate_distances(b, g->call, o, b->shift[t], g->of_operator[t][0])
                                     : pe_keep(b, pe_tuple(g->of_operator[t], g->count[t]));
        if (!of_operator[t])
            return -1;
    }
    PyObject *all = pe_keep(b, pe_tuple(of_operator, g->call->noperators));
    for (int i = 0; i <= count; i++)
        b->result[i] = b->written[i] = i == count ? all : g->result[operand[i]];
    b->noutputs = count + 1;
    return all ? 0 : -1;
}

static int run_attention_vjp(pe_gradients *g)
{
    static const int returned[] = {A_DQ, A_DK, A_DV, A_D_SINK};
    pe_call *call = g->call;
    const idx heads = call->D(h), groups = call->D(g), n = call->D(n), m = call->D(m), d = call->D(d), e = call->D(e);
    const int has_sink = call->array[A_SINK].data != NULL;
    memset(&call->array[A_DIAGONAL_SUMS], 0, (A_DS + 1 - A_DIAGONAL_SUMS) * sizeof *call->array);
    call->narrays = A_DS + 1;
    if (run_shared(g) < 0)
        return -1;
    split_work(call);
    const idx kv_chunks = (idx)call->par[A_PARTS];
    const int is_summed = call->plan.head_chunks * call->plan.block_chunks > 1;
    g->chunks = kv_chunks > 1 ? call->plan.block_chunks : 1;
    if (!add_result(g, A_DQ, type_of_gradient(g, A_Q, 0), 1, 3, (const idx[]){heads, n, d})
        || !add_result(g, A_DK, type_of_gradient(g, A_K, is_summed), kv_chunks, 3, (const idx[]){groups, m, d})
        || !add_result(g, A_DV, type_of_gradient(g, A_V, is_summed), kv_chunks, 3, (const idx[]){groups, m, e})
        || (has_sink && !add_result(g, A_D_SINK, NPY_DOUBLE, 1, 2, (const idx[]){heads, n}))
        || add_operator_gradients(g) < 0)
        return -1;
    return pe_run_call(g->b, PE_attention_vjp, call) < 0 ? -1 : return_gradients(g, returned, 4);
}

/* Only the operators that read q and k have gradients. */
static int run_logits_vjp(pe_gradients *g)
{
    static const int returned[] = {A_DQ, A_DK};
    pe_call *call = g->call;
    const idx heads = call->D(h), n = call->D(n), m = call->D(m), d = call->D(d);
    const pe_array grad = call->array[L_GRAD];
    for (int t = 0; t < call->noperators; t++)
        call->operators[t].is_constant |=
            sums_of(g, &call->operators[t]) != 0 || g->b->table->entry[call->operators[t].entry].vjp;
    memset(&call->array[A_OUT], 0, (A_DS + 1 - A_OUT) * sizeof *call->array);
    call->array[A_GRAD] = grad;
    call->narrays = A_DS + 1;
    g->chunks = 1;
    if (!add_result(g, A_DQ, work_type(g->b), 1, 3, (const idx[]){heads, n, d})
        || !add_result(g, A_DK, work_type(g->b), 1, 3, (const idx[]){call->D(g), m, d})
        || add_operator_gradients(g) < 0)
        return -1;
    call->plan = (pe_plan){.mode = PE_LOGITS_VJP, .head_chunks = 1, .block_chunks = 1};
    call->par[A_PARTS] = 1;
    return pe_run_call(g->b, PE_logits_vjp, call) < 0 ? -1 : return_gradients(g, returned, 2);
}

static int run_logits(const pe_binding *b, pe_call *call)
{
    call->plan = (pe_plan){.mode = PE_LOGITS};
    call->par[A_PARTS] = 1;
    return pe_run_call(b, PE_logits, call);
}

/* Whether a gradient has an element to compute: without keys, that of a sink alone */
static int writes_gradients(const pe_call *call, int number)
{
    const int has_keys = call->D(m) > 0 || (number == PE_attention_vjp && call->array[A_SINK].data);
    return has_keys && pe_count_batch(call) * call->D(h) * call->D(n) > 0;
}

int pe_makes_results(int number) { return number == PE_attention_vjp || number == PE_logits_vjp; }

int pe_run_attention(pe_binding *b, pe_call *call)
{
    pe_gradients g = {.b = b, .call = call};
    if (pe_makes_results(b->entry->number))
        b->writes = writes_gradients(call, b->entry->number);
    if (pe_set_options(b, call) < 0)
        return -1;
    switch (b->entry->number) {
    case PE_attention: return run_attention(b, call);
    case PE_attention_vjp: return run_attention_vjp(&g);
    case PE_logits_vjp: return run_logits_vjp(&g);
    default: return run_logits(b, call);
    }
}
