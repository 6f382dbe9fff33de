/* distance_rows.c -- rows of distance biases, computed once per call of attention if positions count up by one.
 *
 *     row[h][t] = b_h(t - (n - 1) - shift)   for t < n + m - 1
 *
 * The bias of query i and key j is row[h][j - i + n - 1]. All pairs of diagonal t have the same distance. So n + m - 1
 * evaluations per head replace n x m. The tiles of attention call the same function of the operator, so a bias has the
 * same bits with and without rows. The gradient of the operator's arrays needs one evaluation for each t, on the sum of
 * dS along diagonal t.
 */
#include "attention/bias_grad.h"

/* Distances that one call of an operator evaluates */
enum { DISTANCES_AT_ONCE = 512 };

static idx count_diagonals(const pe_call *call) { return call->D(n) + call->D(m) - 1; }

static int has_loops(const pe_array *a)
{
    for (int d = 0; d < PE_LOOPS; d++) {
        if (a->loop[d] != 0)
            return 1;
    }
    return 0;
}

/* Return whether an operator's own positions are integers that grow by one, for the whole batch. */
static int own_positions_count_up(const pe_array *a, idx n, double *first)
{
    if (a->storage != PE_I64 || has_loops(a))
        return 0;
    *first = scalar_read(a->data, a->storage);
    for (idx i = 1; i < n; i++) {
        if (scalar_read(a->data + i * a->core[0], a->storage) != *first + (double)i)
            return 0;
    }
    return fabs_(*first) < 0x1p51;
}

/* Return whether an operator has a row for the whole call, and its shift. This reads all own positions. */
static int has_distance_row(const pe_call *call, const pe_term *term, double *shift)
{
    const pe_position_op *op = FN(position_op)[term->op];
    double q = call->par[A_SHIFT], k = 0;
    if (!op || !op->distance)
        return 0;
    for (int i = 0; i < PE_TERM_ARRAYS; i++) {
        if (has_loops(&term->array[i]))
            return 0;
    }
    const int has_own = term->positions[0].data != NULL;
    const int counts_up =
        has_own ? own_positions_count_up(&term->positions[0], call->D(n), &q)
                      && own_positions_count_up(&term->positions[1], call->D(m), &k)
                : !call->array[A_Q_POSITIONS].data && !call->array[A_K_POSITIONS].data && q == (double)(int64_t)q;
    *shift = q - k;
    return counts_up;
}

/* Set rel to the distances of n diagonals from t on. */
static void set_distances(const pe_call *call, double shift, idx t, int n, double *restrict rel)
{
    const double first = (double)(t - (call->D(n) - 1)) - shift;
    for (int i = 0; i < n; i++)
        rel[i] = first + i;
}

static int has_term_gradients(const pe_call *call) { return call->narrays > A_TERMS && call->array[A_TERMS].data; }

/* Rows of the dS reductions of a head */
static idx slots_of_head(const pe_call *call)
{
    return call->par[A_MODE] == VJP_APART ? (idx)call->par[A_BLOCK_PARTS] : 1;
}

/* Allocate `diagonals`, which the caller passes only if other operators need it. */
static void place_diagonals(pe_call *call, pe_carver *c)
{
    pe_array *a = &call->array[A_DIAGONALS];
    const idx row = count_diagonals(call) * (idx)sizeof(double), rows = call->D(h) * slots_of_head(call);
    double elements = (double)rows * (double)count_diagonals(call);
    for (int d = 0; d < call->nloops; d++)
        elements *= (double)call->shape[d];
    const idx size = bytes_of_product(elements, sizeof(double));
    idx stride = rows * row;
    char *data = carve_bytes(c, size);
    if (!data)
        return;
    memset(data, 0, (size_t)size);
    *a = (pe_array){.data = data, .core = {row, sizeof(double)}, .storage = PE_F64};
    for (int d = call->nloops - 1; d >= 0; d--) {
        a->loop[d] = stride;
        stride *= call->shape[d];
    }
}

static size_t place_distance_rows(pe_call *call, char *memory)
{
    const idx length = count_diagonals(call);
    pe_carver c = {memory, 0};
    int found = 0;
    double shift;
    for (int t = 0; call->D(n) > 0 && call->D(m) > 0 && t < call->nterms; t++) {
        pe_term *term = &call->term[t];
        if (!has_distance_row(call, term, &shift))
            continue;
        char *data = carve_bytes(&c, bytes_of_product((double)call->D(h) * (double)length, sizeof(real)));
        if (data) {
            term->row =
                (pe_array){.data = data, .core = {length * (idx)sizeof(real), sizeof(real)}, .storage = PE_STORAGE};
            term->shift = shift;
        }
        found = 1;
    }
    if (found && has_term_gradients(call) && !call->array[A_DIAGONALS].data)
        place_diagonals(call, &c);
    return c.used;
}

/* ---- the rows ---- */

/* A unit is UNIT_DISTANCES numbers of one operator and one head. */
static idx count_row_units(const pe_call *call)
{
    return call->nterms * call->D(h) * BLOCKS(count_diagonals(call), UNIT_DISTANCES);
}

static void compute_distance_rows(const pe_call *call, idx begin, idx end, const pe_work *work)
{
    const idx length = count_diagonals(call), parts = BLOCKS(length, UNIT_DISTANCES), heads = call->D(h);
    (void)work;
    for (idx u = begin; u < end; u++) {
        const pe_term *term = &call->term[u / (heads * parts)];
        const idx h = u / parts % heads, first = u % parts * UNIT_DISTANCES,
                  last = min_(length, first + UNIT_DISTANCES);
        double rel[DISTANCES_AT_ONCE];
        if (!term->row.data)
            continue;
        real *row = as_reals(term->row.data + h * term->row.core[0]);
        for (idx t = first; t < last; t += DISTANCES_AT_ONCE) {
            const int n = (int)min_(DISTANCES_AT_ONCE, last - t);
            set_distances(call, term->shift, t, n, rel);
            FN(position_op)[term->op]->distance(term->array, term->dim, h, rel, n, row + t);
        }
    }
}

/* ---- the gradients ---- */

/* Set sum[i] to the sum of dS over diagonal t + i of a head: added over its slots, then over the batch. */
static void sum_slots(const pe_call *call, idx h, idx t, int n, double *restrict sum)
{
    const pe_array *a = &call->array[A_DIAGONALS];
    const idx slots = slots_of_head(call);
    double part[DISTANCES_AT_ONCE];
    const idx rows = count_rows(call);
    for (int i = 0; i < n; i++)
        sum[i] = 0;
    for (idx b = 0; b < rows; b++) {
        const pe_row row = row_at(call, b);
        for (idx s = 0; s < slots; s++) {
            const double *slot = as_doubles(entry_at(a, row.data[A_DIAGONALS], h * slots + s, t));
            for (int i = 0; i < n; i++)
                part[i] = s == 0 ? slot[i] : part[i] + slot[i];
        }
        for (int i = 0; i < n; i++)
            sum[i] += part[i];
    }
}

static void add_row_gradients(const pe_call *call, const pe_term *term, const pe_array *into)
{
    const idx length = count_diagonals(call);
    for (idx h = 0; h < call->D(h); h++) {
        for (idx t = 0; t < length; t += DISTANCES_AT_ONCE) {
            const int n = (int)min_(DISTANCES_AT_ONCE, length - t);
            double rel[DISTANCES_AT_ONCE], grad[DISTANCES_AT_ONCE];
            set_distances(call, term->shift, t, n, rel);
            sum_slots(call, h, t, n, grad);
            FN(position_op)[term->op]->distance_vjp(term->array, term->dim, h, rel, n, grad, into);
        }
    }
}

static void finish_distance_rows(const pe_call *call, idx begin, idx end, const pe_work *work)
{
    pe_array into[PE_TERMS][PE_TERM_ARRAYS];
    (void)begin, (void)end, (void)work;
    if (!has_term_gradients(call) || !FN(place_term_gradients)(call, call->array[A_TERMS].data, into))
        return;
    for (int t = 0; t < call->nterms; t++) {
        if (call->term[t].row.data)
            add_row_gradients(call, &call->term[t], into[t]);
    }
}

const pe_preparation FN(distance_rows) = {.place = place_distance_rows,
                                          .units = count_row_units,
                                          .ns = 4 * UNIT_DISTANCES,
                                          .prepare = compute_distance_rows,
                                          .finish = finish_distance_rows};
