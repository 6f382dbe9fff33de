/* operators.c -- the operators of attention in `bias`, a tuple.
 *
 * An operator is (entry, operands, q_positions, k_positions): the name of its entry in ops.def, a dict of its arrays by
 * name, and its own positions, or None for those of the call. A fifth field, False, says that its gradients are not
 * wanted. All of them are exact arrays, so no code of a user runs while pointers into earlier ones are held.
 */
#include "python/bind.h"

#include "python/arrays.h"

#include <stdlib.h>
#include <string.h>

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
        {.name = "q_positions", .type = 'p', .axes = {'n' - 'A'}, .naxes = 1, .optional = 1},
        {.name = "k_positions", .type = 'p', .axes = {'m' - 'A'}, .naxes = 1, .optional = 1}};
    for (int side = 0; side < 2; side++) {
        if (take_array(b, &own[side], PyTuple_GetItem(item, POSITIONS + side), &operator_->positions[side]) < 0)
            return -1;
    }
    if (!operator_->positions[0].data != !operator_->positions[1].data)
        return pe_wrong(PyExc_TypeError, b, "bias",
                        "has an operator with positions of one side; expected both or none");
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
    if (take_positions(b, item, operator_) < 0 || take_arrays(b, entry, PyTuple_GetItem(item, OPERANDS), operator_) < 0)
        return -1;
    pe_entry_costs(entry->number, b->dim, no_parameters, &units, &ns);
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
    if (*count > 0 && !(b->operators = malloc((size_t)*count * sizeof *b->operators))) {
        PyErr_NoMemory();
        return -1;
    }
    for (int t = 0; t < *count; t++) {
        if (take_operator(b, PyTuple_GetItem(object, t), &b->operators[t]) < 0)
            return -1;
    }
    return 0;
}
