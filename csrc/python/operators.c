/* operators.c -- the operators of attention in `bias`, a tuple: their arrays, and the positions that they read.
 *
 * An operator is (entry, operands, q_positions, k_positions): the name of its entry in ops.def, a dict of its arrays by
 * name, and its own positions, or None for those of the call. A fifth field, False, says that its gradients are not
 * wanted. All of them are exact arrays, so no code of a user runs while pointers into earlier ones are held.
 */
#include "python/bind.h"

#include "python/arrays.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fits.h"

enum { ENTRY, OPERANDS, POSITIONS, HAS_GRADIENT = POSITIONS + 2 };

/* The entry that an operator names; NULL with an exception if it names none */
static const pe_signature *entry_of(const pe_binding *b, PyObject *item)
{
    const Py_ssize_t fields = PyTuple_Check(item) ? PyTuple_Size(item) : 0;
    const int has_fields = (fields == HAS_GRADIENT || fields == HAS_GRADIENT + 1)
                           && PyUnicode_Check(PyTuple_GetItem(item, ENTRY))
                           && PyDict_Check(PyTuple_GetItem(item, OPERANDS));
    for (int number = 0; has_fields && number < PE_COUNT; number++) {
        const pe_signature *entry = &b->table->entry[number];
        PyObject *name = PyTuple_GetItem(item, ENTRY);
        if (entry->is_operator && (entry->key == name || PyUnicode_Compare(entry->key, name) == 0))
            return entry;
    }
    pe_wrong(PyExc_TypeError, b, "bias",
             "has an unknown operator; expected (entry, operands, q_positions, k_positions)");
    return NULL;
}

static int take_array(pe_binding *b, const pe_operand *o, PyObject *object, pe_array *out)
{
    return object == Py_None || PyArray_CheckExact(object) ? pe_take_input(b, o, object, out)
                                                           : pe_wrong_type(b, o->name, object, "an array");
}

/* Take the positions of an operator that has its own. */
static int take_positions(pe_binding *b, PyObject *item, pe_operator *operator_)
{
    static const pe_operand own[2] = {
        {.name = "q_positions", .type = 'p', .axes = {'n' - 'A'}, .naxes = 1, .optional = 1, .within = 1},
        {.name = "k_positions", .type = 'p', .axes = {'m' - 'A'}, .naxes = 1, .optional = 1, .within = 1}};
    for (int side = 0; side < 2; side++) {
        if (take_array(b, &own[side], PyTuple_GetItem(item, POSITIONS + side), &operator_->positions[side]) < 0)
            return -1;
    }
    return 0;
}

/* Take the arrays of one operator by name, except those that the tile supplies. Its gradients have empty places. */
static int take_arrays(pe_binding *b, const pe_signature *entry, PyObject *operands, pe_operator *operator_)
{
    Py_ssize_t given = 0;
    int n = 0;
    for (int k = 0; k < entry->noperands; k++) {
        const pe_operand *o = &entry->operand[k];
        if (o->tiled || o->output)
            continue;
        PyObject *array = PyDict_GetItemWithError(operands, entry->argument[k]);
        given += array != NULL;
        if (PyErr_Occurred() || take_array(b, o, array ? array : Py_None, &operator_->array[n++]) < 0)
            return -1;
    }
    if (given != PyDict_Size(operands))
        return pe_wrong(PyExc_TypeError, b, entry->name, "has unknown operands; expected %s", entry->text);
    return 0;
}

/* The small axes of an operator are those of the call, its capital axes are its own. */
static int take_operator(pe_binding *b, PyObject *item, pe_operator *operator_)
{
    static const double no_parameters[PE_PARAMS] = {0};
    const pe_signature *entry = entry_of(b, item);
    idx units;
    double ns;
    if (!entry)
        return -1;
    *operator_ = (pe_operator){.entry = entry->number};
    operator_->is_constant = PyTuple_Size(item) > HAS_GRADIENT && PyTuple_GetItem(item, HAS_GRADIENT) == Py_False;
    for (int axis = 0; axis < PE_OWN_AXES; axis++)
        b->dim[axis] = PE_UNKNOWN;
    snprintf(b->of_operator, sizeof b->of_operator, " (%s)", entry->name);
    if (take_positions(b, item, operator_) < 0 || take_arrays(b, entry, PyTuple_GetItem(item, OPERANDS), operator_) < 0)
        return -1;
    pe_entry_costs(entry->number, b->dim, no_parameters, &units, &ns);
    if (units < 0 && entry->number == PE_toeplitz)
        return pe_wrong(PyExc_ValueError, b, "diagonals",
                        "has %zd entries; expected n + m - 1 = %zd, because it fits one n and one m; distance_function "
                        "fits all",
                        b->dim['l' - 'A'], max_(b->dim['n' - 'A'] + b->dim['m' - 'A'] - 1, 0));
    if (units < 0)
        return pe_wrong(PyExc_ValueError, b, entry->name, "has lengths that do not fit; expected those of %s",
                        entry->text);
    memcpy(operator_->dim, b->dim, sizeof operator_->dim);
    return 0;
}

int pe_take_operators(pe_binding *b, PyObject *object, int *count)
{
    if (object == Py_None)
        return 0;
    if (!PyTuple_Check(object))
        return pe_wrong_type(b, "bias", object, "a tuple");
    if (PyTuple_Size(object) > PE_OPERATORS)
        return pe_wrong(PyExc_ValueError, b, "bias", "has %zd operators; expected at most %d", PyTuple_Size(object),
                        PE_OPERATORS);
    *count = (int)PyTuple_Size(object);
    if (*count > 0 && !(b->operators = malloc(2 * (size_t)*count * sizeof *b->operators))) {
        PyErr_NoMemory();
        return -1;
    }
    for (int t = 0; t < *count; t++) {
        if (take_operator(b, PyTuple_GetItem(object, t), &b->operators[t]) < 0)
            return -1;
    }
    *b->of_operator = 0;
    return 0;
}

/* ---- positions ---- */

int pe_count_positions(pe_binding *b, idx n, int64_t first, pe_array *out)
{
    npy_intp length = n;
    PyObject *array = pe_keep(b, PyArray_SimpleNew(1, &length, NPY_INT64));
    if (!array)
        return -1;
    int64_t *p = PyArray_DATA(A(array));
    for (idx i = 0; i < n; i++)
        p[i] = first + i;
    *out = (pe_array){.data = PyArray_BYTES(A(array)), .core = {pe_stride_of(array, 0)}, .storage = PE_I64};
    return 0;
}

static int64_t position_at(const char *data, const pe_array *x, idx i)
{
    int64_t position;
    memcpy(&position, data + i * x->core[0], sizeof position);
    return position;
}

/* Whether positions (n) are integers that count up by one */
static int counts_up(const pe_call *call, const pe_array *x, idx n)
{
    int counts = x->storage == PE_I64;
    for (int l = 0; l < call->nloops; l++)
        counts &= x->loop[l] == 0;
    for (idx i = 1; counts && i < n; i++)
        counts = position_at(x->data, x, i) == position_at(x->data, x, i - 1) + 1;
    return counts;
}

int pe_shift_of(const pe_call *call, const pe_array *q, const pe_array *k, double *shift)
{
    const idx n = call->D(n), m = call->D(m);
    if (pe_count_batch(call) == 0) /* arrays of an empty batch have stride 0 and no element */
        return 0;
    if (!counts_up(call, q, n) || !counts_up(call, k, m))
        return 0;
    const int64_t found = n > 0 && m > 0 ? position_at(q->data, q, 0) - position_at(k->data, k, 0) : 0;
    *shift = (double)found;
    return found >= -largest_position && found <= largest_position;
}

/* Refuse positions of one side, unless they are integers from 0 and below `end`; -1 with an exception. */
static int check_side(const pe_binding *b, const pe_call *call, int side, const pe_array *x, int64_t end)
{
    static const char *const names[] = {"q_positions", "k_positions"};
    if (x->storage != PE_I64)
        return pe_wrong(PyExc_TypeError, b, names[side], "has dtype float64; expected integers");
    int differ = 0; /* otherwise all rows of the batch share the positions */
    for (int l = 0; l < call->nloops; l++)
        differ |= x->loop[l] != 0;
    const idx batch = pe_count_batch(call), n = side == 0 ? call->D(n) : call->D(m);
    for (idx r = 0; r < (differ ? batch : min_(batch, 1)); r++) {
        const char *row = pe_in_batch(call, x, r);
        for (idx i = 0; i < n; i++) {
            const int64_t position = position_at(row, x, i);
            if (position < 0 || position >= end)
                return pe_wrong(PyExc_IndexError, b, names[side], "has %lld; expected 0 to %lld", (long long)position,
                                (long long)end - 1);
        }
    }
    return 0;
}

int pe_check_ends(const pe_binding *b, const pe_call *call, const pe_array *at, int64_t end)
{
    if (end < 0 || call->D(n) == 0 || call->D(m) == 0)
        return 0;
    return check_side(b, call, 0, &at[0], end) < 0 ? -1 : check_side(b, call, 1, &at[1], end);
}

/* The positions of one side that an operator reads: its own, those of the call, or counted ones */
static int positions_of(pe_binding *b, const pe_call *call, const pe_operator *o, int side, pe_array *out)
{
    const pe_array *of_call = &call->array[A_Q_POSITIONS + side];
    const int64_t first = side == 0 ? (int64_t)call->par[A_SHIFT] : 0;
    *out = o->positions[side].data ? o->positions[side] : *of_call;
    return out->data ? 0 : pe_count_positions(b, side == 0 ? call->D(n) : call->D(m), first, out);
}

/* Give an operator that has its own positions of one side those of the call on the other, check positions that are rows
 * of a table, and evaluate a function of distance into diagonals if its positions count up by one. -1 with an
 * exception */
static int place_operator(pe_binding *b, pe_call *call, int t)
{
    pe_operator *o = &call->operators[t];
    pe_array at[2] = {{.data = NULL}};
    const int has_own = o->positions[0].data || o->positions[1].data, kind = b->table->entry[o->entry].kind;
    const int64_t end = kind == PE_PAIR ? o->D(T) : -1;
    double shift = call->par[A_SHIFT];
    for (int side = 0; (has_own || end >= 0) && side < 2; side++) {
        if (positions_of(b, call, o, side, &at[side]) < 0)
            return -1;
        if (has_own)
            o->positions[side] = at[side];
    }
    if (pe_check_ends(b, call, at, end) < 0)
        return -1;
    const int counts = has_own ? pe_shift_of(call, &at[0], &at[1], &shift) : !call->array[A_Q_POSITIONS].data;
    b->operators[call->noperators + t] = *o;
    b->shift[t] = shift;
    return kind == PE_DISTANCE && counts ? pe_evaluate_distances(b, call, o, shift) : 0;
}

int pe_place_operators(pe_binding *b, pe_call *call)
{
    for (int t = 0; t < call->noperators; t++) {
        if (place_operator(b, call, t) < 0)
            return -1;
    }
    return 0;
}
