/* bind.c -- turn Python objects into a pe_call, for every row of ops.def alike.
 *
 * A call is _core.<row>(function, operand=..., parameter=..., ...): `function` is the public name that messages begin
 * with. Below a door of Python (`door` in posenc/_core_api/arguments.py) it is left out: then messages begin with ": ".
 * Optional operands and results may be left out. _core.read converts and checks likewise, and computes nothing.
 *
 * All that is wrong about memory (kind, rank, a named length, strides, alignment, writability) is raised here
 * or in convert.c, by operand name, before anything is written. Python checks the meaning of arguments.
 */
#include "python/bind.h"

#define PE_LOADS_NUMPY
#include "python/arrays.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const int64_t largest_position = (int64_t)1 << POSITION_BITS;
static const double largest_angle = (double)((int64_t)1 << ANGLE_BITS);

/* ---- the numbers of an operand: positions and finite numbers ---- */

static double larger(double x, double y) { return x > y ? x : y; }

/* The largest |x| of contiguous doubles, in four independent chains; infinity if one is NaN or larger than `most` */
static double largest_magnitude(const double *x, npy_intp n, double most)
{
    double largest[4] = {0};
    int fits = 1;
    npy_intp i = 0;
    for (; i + 4 <= n; i += 4) {
        for (int c = 0; c < 4; c++) {
            const double size = fabs(x[i + c]);
            fits &= size <= most; /* false for NaN */
            largest[c] = size > largest[c] ? size : largest[c];
        }
    }
    for (; i < n; i++) {
        fits &= fabs(x[i]) <= most;
        largest[0] = larger(largest[0], fabs(x[i]));
    }
    return fits ? larger(larger(largest[0], largest[1]), larger(largest[2], largest[3])) : HUGE_VAL;
}

/* The same for integers; infinity if one is beyond the largest position, because a double may not hold it exactly */
static double largest_integer(const int64_t *x, npy_intp n)
{
    uint64_t largest = 0;
    for (npy_intp i = 0; i < n; i++) {
        const uint64_t size = x[i] < 0 ? 0 - (uint64_t)x[i] : (uint64_t)x[i];
        largest = size > largest ? size : largest;
    }
    return largest <= (uint64_t)largest_position ? (double)largest : HUGE_VAL;
}

static double largest_of(const char *x, pe_storage storage, npy_intp n, double most)
{
    return storage == PE_F64 ? largest_magnitude((const double *)(const void *)x, n, most)
                             : largest_integer((const int64_t *)(const void *)x, n);
}

/* The numbers of an array, contiguous, each axis of stride 0 visited once; a new reference, or NULL with an
 * exception */
static PyObject *distinct_numbers(PyArrayObject *array)
{
    npy_intp shape[NPY_MAXDIMS];
    if (PyArray_IS_C_CONTIGUOUS(array) || PyArray_IS_F_CONTIGUOUS(array))
        return Py_NewRef((PyObject *)array);
    for (int d = 0; d < PyArray_NDIM(array); d++)
        shape[d] = PyArray_STRIDE(array, d) == 0 && PyArray_DIM(array, d) > 0 ? 1 : PyArray_DIM(array, d);
    PyArray_Descr *descr = (PyArray_Descr *)Py_NewRef((PyObject *)PyArray_DESCR(array));
    PyObject *once = PyArray_NewFromDescr(&PyArray_Type, descr, PyArray_NDIM(array), shape, PyArray_STRIDES(array),
                                          PyArray_DATA(array), 0, NULL);
    PyObject *whole = once ? PyArray_FROM_OF(once, NPY_ARRAY_CARRAY_RO | NPY_ARRAY_ENSURECOPY) : NULL;
    Py_XDECREF(once);
    return whole;
}

static int check_numbers(pe_binding *a, const pe_operand *o, PyArrayObject *array, pe_storage storage)
{
    const double most = o->finite ? DBL_MAX : (double)largest_position;
    double *largest = o->finite ? &a->most_frequency : &a->most_position;
    PyObject *numbers = distinct_numbers(array);
    if (!numbers)
        return -1;
    const char *p = PyArray_BYTES((PyArrayObject *)numbers);
    const double size = largest_of(p, storage, PyArray_SIZE((PyArrayObject *)numbers), most);
    *largest = larger(*largest, size);
    if (size > most) {
        while (largest_of(p, storage, 1, most) <= most)
            p += sizeof(double);
        PyObject *number = PyArray_GETITEM((PyArrayObject *)numbers, p);
        pe_wrong_value(PyExc_ValueError, a, o->name, "has", number, "finite %s",
                       o->finite ? "numbers" : "positions of at most 2**53");
        Py_XDECREF(number);
    }
    Py_DECREF(numbers);
    return size > most ? -1 : 0;
}

static int check_angles(const pe_binding *a)
{
    if (a->most_position * a->most_frequency <= largest_angle)
        return 0;
    PyObject *number = PyFloat_FromDouble(a->most_frequency);
    pe_wrong_value(PyExc_ValueError, a, "frequencies", "has", number, "at most 2**56 radians at the largest position");
    Py_XDECREF(number);
    return -1;
}

/* ---- the memory and axes of an operand ---- */

/* Outputs of rows without a rule for their dtype */
static int check_dtype(pe_binding *a, const pe_operand *o, PyArrayObject *array, int storage)
{
    const int is_double = storage == PE_F64;
    const char *expected = NULL;
    if (o->type == 'f')
        expected = is_double ? NULL : "float64";
    else if (o->type == 'i')
        expected = storage == PE_I64 ? NULL : "int64";
    else if (storage < PE_F16 || storage > PE_F64)
        expected = "float16, bfloat16, float32 or float64";
    else if (a->has_real && a->is_double != is_double)
        expected = a->is_double ? "float64, as the data" : "at most float32, as the data";
    if (o->type == 'r' && !a->has_real) {
        a->has_real = 1;
        a->is_double = is_double;
    }
    return expected ? pe_wrong(PyExc_TypeError, a, o->name, "has dtype %S; expected %s", PyArray_DESCR(array), expected)
                    : 0;
}

/* Copy an input that kernels cannot read in place; an output that they cannot write in place is an error. */
static PyArrayObject *make_ready(pe_binding *a, const pe_operand *o, PyArrayObject *array)
{
    if (pe_is_ready(o, (PyObject *)array))
        return array;
    if (o->output) {
        pe_wrong(PyExc_ValueError, a, o->name, "is unaligned, byte-swapped or scattered; expected native, whole rows");
        return NULL;
    }
    PyArray_Descr *descr = PyArray_DescrNewByteorder(PyArray_DESCR(array), NPY_NATIVE);
    PyArrayObject *copy =
        descr ? (PyArrayObject *)PyArray_FromArray(array, descr, NPY_ARRAY_CARRAY | NPY_ARRAY_ENSURECOPY) : NULL;
    return (PyArrayObject *)pe_keep(a, (PyObject *)copy);
}

static idx stride_of(PyArrayObject *array, int axis)
{
    return PyArray_DIM(array, axis) == 1 ? 0 : PyArray_STRIDE(array, axis);
}

static const char *const one_length = "has length %zd in axis %d; expected %zd";

/* The last axes are named in the signature; a name has one length. */
static int take_named_axes(const pe_binding *a, const pe_operand *o, PyArrayObject *array, pe_array *out)
{
    const int loops = PyArray_NDIM(array) - o->naxes;
    for (int k = 0; k < o->naxes; k++) {
        const npy_intp length = PyArray_DIM(array, loops + k);
        idx *expected = &a->dim[o->axes[k]];
        if (*expected == PE_UNKNOWN)
            *expected = length;
        if (*expected != length && o->counts)
            return pe_wrong(PyExc_ValueError, a, o->name,
                            "has length %zd; expected %zd, the sequence axis of x (an int "
                            "n means 0..n-1, [p] one position)",
                            length, *expected);
        if (*expected != length)
            return pe_wrong(PyExc_ValueError, a, o->name, one_length, length, loops + k, *expected);
        out->core[k] = stride_of(array, loops + k);
    }
    return 0;
}

/* All axes before the named ones are loops. Inputs broadcast; an output has all loops, unless it is summed over
 * them. */
static int take_loops(pe_binding *a, const pe_operand *o, PyArrayObject *array, pe_array *out)
{
    const int rank = PyArray_NDIM(array), loops = rank - o->naxes;
    for (int d = 0; d < loops; d++) {
        const npy_intp length = PyArray_DIM(array, d);
        idx *expected = &a->loops[PE_LOOPS - loops + d];
        out->loop[PE_LOOPS - loops + d] = stride_of(array, d);
        if (length == *expected)
            continue;
        if (o->output || (length != 1 && *expected != 1))
            return pe_wrong(PyExc_ValueError, a, o->name, one_length, length, d, *expected);
        if (length != 1)
            *expected = length;
    }
    if (o->output && !o->summed && loops < a->nloops)
        return pe_wrong(PyExc_ValueError, a, o->name, "has %d axes; expected %d", rank, a->nloops + o->naxes);
    a->nloops = loops > a->nloops ? loops : a->nloops;
    return 0;
}

/* Check one array against its operand, and describe it in `out`. */
static int take_operand(pe_binding *a, const pe_operand *o, PyObject *object, pe_array *out)
{
    memset(out, 0, sizeof *out);
    if (object == Py_None && o->optional)
        return 0;
    PyArrayObject *array = (PyArrayObject *)(o->output ? pe_output(a, o, object) : pe_input(a, o, object));
    if (!array)
        return -1;
    const int rank = PyArray_NDIM(array), storage = pe_storage_of((PyObject *)array), is_alone = o->summed || o->alone;
    if (o->output && check_dtype(a, o, array, storage) < 0)
        return -1;
    if (a->reads && o->follows && o->shared > 0) { /* its shape is checked; it stays as it is */
        array = o->type == 'r' ? array : make_ready(a, o, array);
        a->taken = (PyObject *)array;
        const int has_numbers = o->type == 'p' || o->finite;
        return !array ? -1 : has_numbers ? check_numbers(a, o, array, (pe_storage)storage) : 0;
    }
    if (rank == 0 && o->naxes > 0 && !o->output)
        return pe_wrong_value(PyExc_ValueError, a, o->name, "is", object, "an array with %s%d %s",
                              is_alone ? "" : "at least ", o->naxes, o->naxes == 1 ? "axis" : "axes");
    if (is_alone && o->naxes == 0 && rank > 0)
        return pe_wrong(PyExc_ValueError, a, o->name, "has %d axes; expected one number", rank);
    if (rank < o->naxes || (is_alone && rank > o->naxes))
        return pe_wrong(PyExc_ValueError, a, o->name, "has %d axes; expected %s%d", rank, is_alone ? "" : "at least ",
                        o->naxes);
    if (rank > o->naxes + PE_LOOPS)
        return pe_wrong(PyExc_ValueError, a, o->name, "has %d axes; expected at most %d", rank, o->naxes + PE_LOOPS);
    if (o->output && !PyArray_ISWRITEABLE(array))
        return pe_wrong(PyExc_ValueError, a, o->name, "is read-only; expected a writeable array");
    if (!a->reads || o->type != 'r') /* NumPy reads any layout */
        array = make_ready(a, o, array);
    if (!array || take_named_axes(a, o, array, out) < 0)
        return -1;
    a->taken = (PyObject *)array;
    a->writes |= o->output && PyArray_SIZE(array) > 0;
    out->storage = (pe_storage)storage;
    if ((o->type == 'p' || o->finite) && check_numbers(a, o, array, out->storage) < 0)
        return -1;
    out->data = PyArray_BYTES(array);
    if (o->summed && PyArray_SIZE(array) > 0) {
        a->summed[a->nsummed++] = (pe_sum){out, (double *)(void *)out->data, PyArray_SIZE(array)};
        a->sums += PyArray_SIZE(array);
    }
    return take_loops(a, o, array, out);
}

/* ---- the operators of attention ---- */

/* An operator is (row, operands, q_positions, k_positions): the name of its row, a dict of its arrays by name, and its
 * own positions, or None for those of the call. A fifth field, False, says that its gradients are not wanted. */
enum { OPERATOR_ROW, OPERATOR_OPERANDS, OPERATOR_POSITIONS, OPERATOR_HAS_GRADIENT = OPERATOR_POSITIONS + 2 };

/* The row that an operator of `bias` names; NULL with an exception if it names none */
static const pe_signature *row_of_operator(const pe_table *table, const pe_binding *a, PyObject *item)
{
    const Py_ssize_t fields = PyTuple_Check(item) ? PyTuple_Size(item) : 0;
    const int has_fields = fields == OPERATOR_HAS_GRADIENT || fields == OPERATOR_HAS_GRADIENT + 1;
    PyObject *name =
        has_fields && PyDict_Check(PyTuple_GetItem(item, OPERATOR_OPERANDS)) ? PyTuple_GetItem(item, 0) : NULL;
    for (int op = 0; name && PyUnicode_Check(name) && op < PE_COUNT; op++) {
        const pe_signature *row = &table->row[op];
        if (row->is_operator && (row->key == name || PyUnicode_Compare(row->key, name) == 0))
            return row;
    }
    pe_wrong(PyExc_TypeError, a, "bias", "has an unknown operator; expected (row, operands, q_positions, k_positions)");
    return NULL;
}

/* Take the positions of an operator that has its own. */
static int take_operator_positions(pe_binding *a, PyObject *item, pe_operator *operator_)
{
    static const pe_operand own[2] = {
        {.name = "q_positions", .type = 'p', .axes = {'n' - 'A'}, .naxes = 1, .optional = 1},
        {.name = "k_positions", .type = 'p', .axes = {'m' - 'A'}, .naxes = 1, .optional = 1}};
    for (int side = 0; side < 2; side++) {
        PyObject *positions = PyTuple_GetItem(item, OPERATOR_POSITIONS + side);
        if (positions != Py_None && !PyArray_CheckExact(positions))
            return pe_wrong_type(a, own[side].name, positions, "an array");
        if (take_operand(a, &own[side], positions, &operator_->positions[side]) < 0)
            return -1;
    }
    if (!operator_->positions[0].data != !operator_->positions[1].data)
        return pe_wrong(PyExc_TypeError, a, "bias",
                        "has an operator with positions of one side; expected both or none");
    return 0;
}

/* Take the arrays of one operator by name, except those that the tile supplies. Its gradients have empty places. */
static int take_operator_arrays(pe_binding *a, const pe_signature *row, PyObject *operands, pe_operator *operator_)
{
    Py_ssize_t given = 0;
    int n = 0;
    for (int k = 0; k < row->noperands; k++) {
        const pe_operand *o = &row->operand[k];
        PyObject *array = o->in_tile || o->output ? NULL : PyDict_GetItemWithError(operands, row->argument[k]);
        if (o->in_tile || o->output)
            continue;
        given += array != NULL;
        if (array && array != Py_None && !PyArray_CheckExact(array)) /* no code of a user while pointers are held */
            return pe_wrong_type(a, o->name, array, "an array");
        if (PyErr_Occurred() || take_operand(a, o, array ? array : Py_None, &operator_->array[n++]) < 0)
            return -1;
    }
    if (given != PyDict_Size(operands))
        return pe_wrong(PyExc_TypeError, a, row->name, "has unknown operands; expected %s", row->text);
    return 0;
}

static int take_operator(pe_binding *a, const pe_signature *row, PyObject *item, pe_operator *operator_)
{
    static const double no_parameters[PE_PARAMS] = {0};
    idx units;
    double ns;
    memset(operator_, 0, sizeof *operator_);
    operator_->entry = row->op;
    operator_->is_constant =
        PyTuple_Size(item) > OPERATOR_HAS_GRADIENT && PyTuple_GetItem(item, OPERATOR_HAS_GRADIENT) == Py_False;
    for (int axis = 0; axis < PE_OWN_AXES; axis++)
        a->dim[axis] = PE_UNKNOWN;
    if (take_operator_positions(a, item, operator_) < 0
        || take_operator_arrays(a, row, PyTuple_GetItem(item, OPERATOR_OPERANDS), operator_) < 0)
        return -1;
    pe_row_costs(row->op, a->dim, no_parameters, &units, &ns);
    if (units < 0)
        return pe_wrong(PyExc_ValueError, a, row->name, "has lengths that do not fit; expected those of %s", row->text);
    memcpy(operator_->dim, a->dim, sizeof operator_->dim);
    return 0;
}

/* Take `bias`, a tuple of operators. Their small axes are those of the call, their capital axes are their own. */
static int take_operators(const pe_table *table, pe_binding *a, PyObject *object, int *count)
{
    if (object == Py_None)
        return 0;
    if (!PyTuple_Check(object))
        return pe_wrong_type(a, "bias", object, "a tuple");
    if (PyTuple_Size(object) > PE_OPERATORS)
        return pe_wrong(PyExc_ValueError, a, "bias", "has %zd operators; expected at most %d", PyTuple_Size(object),
                        PE_OPERATORS);
    *count = (int)PyTuple_Size(object);
    if (*count > 0 && !(a->operators = malloc((size_t)*count * sizeof *a->operators))) {
        PyErr_NoMemory();
        return -1;
    }
    for (int t = 0; t < *count; t++) {
        PyObject *item = PyTuple_GetItem(object, t);
        const pe_signature *row = row_of_operator(table, a, item);
        if (!row || take_operator(a, row, item, &a->operators[t]) < 0)
            return -1;
    }
    return 0;
}

/* ---- the call ---- */

/* Return whether loop axes `outer` and `inner` are one axis of every operand. Strides of operators are not compared. */
static int is_one_loop(const pe_call *call, int outer, int inner, idx length)
{
    for (int k = 0; k < call->narrays; k++)
        if (call->array[k].loop[outer] != call->array[k].loop[inner] * length)
            return 0;
    return call->noperators == 0;
}

void pe_merge_loops(pe_call *call, const idx *loops, int nloops)
{
    int n = 0, from[PE_LOOPS];
    for (int d = PE_LOOPS - nloops; d < PE_LOOPS; d++) {
        if (loops[d] == 1)
            continue;
        const int merges = n > 0 && is_one_loop(call, from[n - 1], d, loops[d]);
        n += !merges;
        call->shape[n - 1] = merges ? call->shape[n - 1] * loops[d] : loops[d];
        from[n - 1] = d;
    }
    call->nloops = n;
    for (int l = 0; l < n; l++) { /* from[l] >= l: no stride is overwritten before it is read */
        for (int k = 0; k < call->narrays; k++)
            call->array[k].loop[l] = call->array[k].loop[from[l]];
        for (int t = 0; t < call->noperators; t++) {
            for (int k = 0; k < PE_OPERATOR_ARRAYS; k++)
                call->operators[t].array[k].loop[l] = call->operators[t].array[k].loop[from[l]];
            for (int side = 0; side < 2; side++)
                call->operators[t].positions[side].loop[l] = call->operators[t].positions[side].loop[from[l]];
        }
    }
}

/* ---- parameters ---- */

static int wrong_choice(const pe_binding *a, const pe_parameter *p, PyObject *x)
{
    PyObject *list = PyUnicode_FromFormat("%R", p->word[0]);
    for (int i = 1; list && i < p->nwords; i++) {
        PyObject *longer = PyUnicode_FromFormat("%U, %R", list, p->word[i]);
        Py_DECREF(list);
        list = longer;
    }
    if (list)
        pe_wrong_value(PyExc_ValueError, a, p->name, "is", x, "one of %U", list);
    Py_XDECREF(list);
    return -1;
}

/* The number of a word, or -1 */
static int find_word(const pe_parameter *p, PyObject *x)
{
    for (int i = 0; PyUnicode_Check(x) && i < p->nwords; i++) {
        if (PyUnicode_Compare(p->word[i], x) == 0)
            return i;
    }
    return -1;
}

/* An integer from 0 to the largest that every double up to it holds */
static int read_integer(const pe_binding *a, const pe_parameter *p, PyObject *x, double *number)
{
    const int is_bool = PyBool_Check(x) || (PyArray_Check(x) && !PyArray_ISINTEGER((PyArrayObject *)x));
    PyObject *whole = is_bool ? NULL : PyNumber_Index(x);
    int overflow = 0;
    if (!whole)
        return !is_bool && !pe_forget_refusal() ? -1 : pe_wrong_type(a, p->name, x, "an integer");
    const long long n = PyLong_AsLongLongAndOverflow(whole, &overflow);
    Py_DECREF(whole);
    if (overflow < 0 || (overflow == 0 && n < 0))
        return pe_wrong_value(PyExc_ValueError, a, p->name, "is", x, "at least 0");
    if (overflow > 0 || n > largest_position)
        return pe_wrong_value(PyExc_ValueError, a, p->name, "is", x, "at most 2**53");
    *number = (double)n;
    return 0;
}

static int read_real(const pe_binding *a, const pe_parameter *p, PyObject *x, double *number)
{
    const int is_bool = PyBool_Check(x);                          /* PyFloat_AsDouble makes a float of it */
    if (PyArray_Check(x) && PyArray_NDIM((PyArrayObject *)x) > 0) /* older NumPys make a float of one with one entry */
        return pe_wrong_type(a, p->name, x, "a number");
    *number = is_bool ? x == Py_True : PyFloat_AsDouble(x);
    if (*number != -1.0 || !PyErr_Occurred())
        return 0;
    const int is_large = PyErr_ExceptionMatches(PyExc_OverflowError) && PyLong_Check(x);
    if (!pe_forget_refusal())
        return -1;
    return is_large ? pe_wrong(PyExc_ValueError, a, p->name, "has an integer beyond float64; expected a finite number")
                    : pe_wrong_type(a, p->name, x, "a number");
}

static int read_parameter(const pe_binding *a, const pe_parameter *p, PyObject *x, double *number)
{
    if (!x || (x == Py_None && isnan(p->value))) { /* NAN: the default follows from other arguments */
        *number = p->value;
        return 0;
    }
    if (p->nwords > 0) {
        *number = find_word(p, x);
        return *number < 0 ? wrong_choice(a, p, x) : 0;
    }
    if (p->is_bool) {
        if (!PyBool_Check(x) && !PyArray_IsScalar(x, Bool))
            return pe_wrong_type(a, p->name, x, "True or False");
        *number = PyObject_IsTrue(x);
        return 0;
    }
    if (PyLong_CheckExact(x)) { /* half the time of PyFloat_AsDouble */
        int overflow;
        const long long whole = PyLong_AsLongLongAndOverflow(x, &overflow);
        if (!overflow && whole >= 0 && whole <= 1 << 24) {
            *number = (double)whole;
            return 0;
        }
    }
    return p->is_integer ? read_integer(a, p, x, number) : read_real(a, p, x, number);
}

/* Refuse a number that the arithmetic of the call cannot multiply by. The defaults can be. */
static int check_parameter(const pe_binding *a, const pe_parameter *p, PyObject *x, double number)
{
    if (!x || !p->finite)
        return 0;
    if (!isfinite(number))
        return pe_wrong_value(PyExc_ValueError, a, p->name, "is", x, "a finite number");
    if (!a->is_double && fabs(number) > (double)FLT_MAX)
        return pe_wrong_value(PyExc_ValueError, a, p->name, "is", x, "at most 3.4e+38 in size, or float64");
    return 0;
}

/* ---- the call ---- */

/* Read all that may run code of the user: objects that are no arrays, and parameters. Pointers into arrays are taken
 * afterwards, because such code may resize the arrays. */
static int read_objects(const pe_signature *row, PyObject **arguments, pe_binding *a, double *par)
{
    for (int k = 0; k < row->noperands; k++) {
        const pe_operand *o = &row->operand[k];
        if (o->output || o->type == 'o' || (o->optional && arguments[k] == Py_None))
            continue;
        if (!(arguments[k] = pe_as_array(a, o, arguments[k])))
            return -1;
    }
    for (int k = 0; k < row->nparams; k++) {
        if (read_parameter(a, &row->parameter[k], arguments[row->noperands + k], &par[k]) < 0)
            return -1;
    }
    return 0;
}

static int fill_call(const pe_table *table, const pe_signature *row, PyObject **arguments, pe_binding *a, pe_call *call)
{
    call->noperators = 0;
    call->narrays = row->noperands; /* the operators have an empty place among them */
    if (read_objects(row, arguments, a, call->par) < 0)
        return -1;
    for (int k = 0; k < row->noperands; k++) {
        const int is_operators = row->operand[k].type == 'o';
        if (row->operand[k].output && pe_makes_results(row->op)) {
            memset(&call->array[k], 0, sizeof call->array[k]);
            if (arguments[k] != Py_None)
                return pe_wrong_type(a, row->operand[k].name, arguments[k], "None, because the call makes its results");
            continue;
        }
        if (k > 0 && row->operand[k].output && !row->operand[k - 1].output)
            pe_derive_lengths(row->op, call->dim);
        a->is_quantized = row->operand[k].type == 'c' && arguments[row->operand[k].scale] != Py_None;
        if (take_operand(a, &row->operand[k], is_operators ? Py_None : arguments[k], &call->array[k]) < 0
            || (is_operators && take_operators(table, a, arguments[k], &call->noperators) < 0))
            return -1;
    }
    for (int k = 0; k < row->nparams; k++) {
        if (check_parameter(a, &row->parameter[k], arguments[row->noperands + k], call->par[k]) < 0)
            return -1;
    }
    pe_derive_parameters(row->op, call);
    call->operators = a->operators;
    pe_merge_loops(call, a->loops, a->nloops);
    return check_angles(a);
}

static PyObject *bind(const pe_table *table, const pe_signature *row, PyObject **arguments, pe_binding *a,
                      pe_call *call)
{
    const int status = fill_call(table, row, arguments, a, call) < 0 ? -1 : pe_run_row(table, row, call, a);
    return status < 0 ? NULL : pe_results(a);
}

/* Number of the argument with this name, or -1. Names in Python's code are interned as those of the row are, and
 * usually in its order from `next` on, so the first comparison finds almost every argument. */
static int find_argument(const pe_table *table, const pe_signature *row, PyObject *name, int next)
{
    const int count = row->noperands + row->nparams;
    for (int i = 0; i < count; i++) {
        const int at = next + i < count ? next + i : next + i - count;
        if (row->argument[at] == name)
            return at;
    }
    if (name == table->start || name == table->dtype)
        return -1;
    for (int at = 0; at < count; at++) {
        if (PyUnicode_Compare(row->argument[at], name) == 0) /* a name that is not interned */
            return at;
    }
    return -1;
}

static const char *const storage_dtypes = "float16, bfloat16, float32 or float64";

/* Take an argument that is no operand or parameter: `dtype`, or the length of an axis, by its letter. */
static int take_setting(const pe_signature *row, pe_binding *a, PyObject *name, PyObject *value)
{
    Py_ssize_t n;
    const char *word = PyUnicode_AsUTF8AndSize(name, &n);
    if (word && a->reads && strcmp(word, "grad") == 0) {
        a->cotangent = value;
        return 0;
    }
    if (word && strcmp(word, "dtype") == 0) {
        if (value == Py_None)
            return 0;
        PyArray_Descr *descr = NULL;
        if (PyArray_DescrConverter(value, &descr) == NPY_FAIL) {
            if (!pe_forget_refusal())
                return -1;
        } else {
            if (pe_is_storage_dtype((PyObject *)descr)) {
                a->dtype = PyArray_ISNBO(descr->byteorder) ? Py_NewRef((PyObject *)descr)
                                                           : (PyObject *)PyArray_DescrNewByteorder(descr, NPY_NATIVE);
                Py_DECREF(descr);
                return a->dtype ? 0 : -1;
            }
        }
        if (descr)
            pe_wrong_value(PyExc_TypeError, a, "dtype", "is", (PyObject *)descr, storage_dtypes);
        Py_XDECREF(descr);
        return PyErr_Occurred() ? -1 : pe_wrong_value(PyExc_TypeError, a, "dtype", "is", value, storage_dtypes);
    }
    if (word && strcmp(word, "start") == 0) {
        int overflow = 0;
        PyObject *whole = PyBool_Check(value) || PyArray_IsScalar(value, Bool) ? NULL : PyNumber_Index(value);
        if (!whole)
            return PyErr_Occurred() && !pe_forget_refusal() ? -1 : pe_wrong_type(a, "start", value, "an integer");
        a->start = PyLong_AsLongLongAndOverflow(whole, &overflow);
        Py_DECREF(whole);
        if (overflow < 0 || a->start < -largest_position)
            return pe_wrong_value(PyExc_ValueError, a, "start", "is", value, "at least -9007199254740992");
        if (overflow > 0 || a->start > largest_position)
            return pe_wrong_value(PyExc_ValueError, a, "start", "is", value, "at most 2**53");
        return 0;
    }
    if (word && n == 1 && *word >= 'A' && *word - 'A' < PE_AXES) {
        a->dim[*word - 'A'] = PyLong_AsSsize_t(value);
        return a->dim[*word - 'A'] == -1 && PyErr_Occurred() ? -1 : 0;
    }
    PyErr_Format(PyExc_TypeError, "%s: %U is unknown; expected %s", a->function, name, row->text);
    return -1;
}

/* Begin a call of a row for `function`, which may be NULL; its lengths are in dim. */
static int begin_binding(pe_binding *a, pe_table *table, PyObject *function, const pe_signature *row, idx *dim)
{
    a->table = table;
    a->has_real = a->is_double = a->nloops = a->nkept = a->noutputs = a->ninputs = a->writes = a->reads = a->nsummed =
        0;
    a->sums = 0;
    a->is_quantized = a->fills_callers = 0;
    a->most_position = a->most_frequency = 0;
    a->first = a->dtype = a->cotangent = NULL;
    a->lead = row->operand;
    a->operators = NULL;
    a->start = 0;
    a->dim = dim;
    for (int axis = 0; axis < PE_AXES; axis++)
        dim[axis] = PE_UNKNOWN;
    for (int d = 0; d < PE_LOOPS; d++)
        a->loops[d] = 1;
    a->function = function ? PyUnicode_AsUTF8AndSize(function, NULL) : "";
    return a->function ? 0 : -1;
}

static void end_binding(pe_binding *a)
{
    while (a->nkept > 0)
        Py_DECREF(a->kept[--a->nkept]);
    free(a->operators);
    Py_XDECREF(a->dtype);
}

/* Put the values, whose names are given, at the places that the arguments have in the row. */
static int place_arguments(const pe_table *table, const pe_signature *row, pe_binding *a, PyObject *const *values,
                           PyObject *names, PyObject **placed)
{
    const Py_ssize_t given = names ? PyTuple_Size(names) : 0;
    int next = 0;
    for (Py_ssize_t i = 0; i < given; i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        const int at = find_argument(table, row, name, next);
        if (at < 0 && take_setting(row, a, name, values[i]) < 0)
            return -1;
        if (at >= 0)
            placed[at] = values[i];
        next = at < 0 ? next : at + 1;
    }
    return 0;
}

/* Put None at the places of optional operands and of results that were not passed. */
static int fill_places(const pe_signature *row, const pe_binding *a, PyObject **placed)
{
    for (int i = 0; i < row->noperands + row->nparams; i++) {
        const pe_operand *o = i < row->noperands ? &row->operand[i] : NULL;
        if (placed[i])
            continue;
        if (o ? !o->optional && !o->output : !row->parameter[i - row->noperands].has_default) {
            PyErr_Format(PyExc_TypeError, "%s: %U is missing; expected %s", a->function, row->argument[i], row->text);
            return -1;
        }
        placed[i] = o ? Py_None : NULL;
    }
    return 0;
}

PyObject *pe_bind(pe_table *table, int op, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
    const pe_signature *row = &table->row[op];
    PyObject *placed[PE_ARRAYS + PE_PARAMS] = {NULL}, *results = NULL;
    pe_call call;
    pe_binding a;
    if (nargs > 1 || (nargs == 1 && !PyUnicode_Check(args[0])))
        return PyErr_Format(PyExc_TypeError, "_core.%s takes at most a function name, and by name %s", row->name,
                            row->text);
    if (begin_binding(&a, table, nargs ? args[0] : NULL, row, call.dim) < 0)
        return NULL;
    if (place_arguments(table, row, &a, args + nargs, names, placed) == 0 && fill_places(row, &a, placed) == 0)
        results = bind(table, row, placed, &a, &call);
    end_binding(&a);
    return results;
}

/* ---- reading without a call ---- */

/* Read `grad`, the cotangent of the row's first result: an array of exactly its shape. */
static PyObject *read_cotangent(pe_binding *a, const pe_signature *row)
{
    static const pe_operand grad = {.name = "grad", .type = 'r'};
    const pe_operand *result = row->operand;
    npy_intp shape[NPY_MAXDIMS];
    while (!result->output)
        result++;
    const int n = pe_shape_of_result(a, result, NULL, shape);
    a->reads = 0; /* the arithmetic is known: float64 narrows, and float32 widens */
    PyObject *array = pe_input(a, &grad, a->cotangent);
    return array && pe_check_shape(a, grad.name, array, shape, n) == 0 ? array : NULL;
}

/* Read the arguments that are passed, and return their arrays in the order of `names`. */
static PyObject *read_arguments(const pe_table *table, const pe_signature *row, pe_binding *a, PyObject *const *values,
                                PyObject *names)
{
    PyObject *placed[PE_ARRAYS + PE_PARAMS] = {NULL}, *array[PE_ARRAYS + PE_PARAMS] = {NULL}, *cotangent = NULL;
    pe_array unused;
    double number;
    a->reads = 1;
    if (place_arguments(table, row, a, values, names, placed) < 0)
        return NULL;
    for (int k = 0; k < row->noperands; k++) {
        a->taken = Py_None;
        if (placed[k] && !row->operand[k].output && take_operand(a, &row->operand[k], placed[k], &unused) < 0)
            return NULL;
        array[k] = placed[k] ? a->taken : NULL;
    }
    for (int k = 0; k < row->nparams; k++) {
        PyObject *value = placed[row->noperands + k];
        if (value
            && (read_parameter(a, &row->parameter[k], value, &number) < 0
                || check_parameter(a, &row->parameter[k], value, number) < 0))
            return NULL;
    }
    pe_derive_lengths(row->op, a->dim);
    for (int k = 0; k < row->noperands; k++) {
        if (!row->operand[k].output || !placed[k])
            continue;
        if (!pe_output(a, &row->operand[k], placed[k]))
            return NULL;
        array[k] = a->result[a->noutputs - 1];
    }
    if (a->cotangent && !(cotangent = read_cotangent(a, row)))
        return NULL;
    PyObject *list = PyList_New(0);
    for (Py_ssize_t i = 0; list && i < PyTuple_Size(names); i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        const int at = find_argument(table, row, name, 0);
        PyObject *one = at >= 0 ? array[at] : values[i] == a->cotangent ? cotangent : NULL;
        if (one && PyList_Append(list, one) < 0)
            Py_CLEAR(list);
    }
    PyObject *all = NULL;
    if (list)
        all = PyList_Size(list) == 1 ? Py_NewRef(PyList_GetItem(list, 0)) : PyList_AsTuple(list);
    Py_XDECREF(list);
    return all;
}

PyObject *pe_read(pe_table *table, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
    const char *text = nargs == 1 || nargs == 2 ? PyUnicode_AsUTF8AndSize(args[nargs - 1], NULL) : NULL;
    const pe_signature *row = NULL;
    pe_signature own;
    pe_binding a;
    idx dim[PE_AXES];
    PyObject *arrays = NULL;
    if (!text || !names)
        return PyErr_Format(PyExc_TypeError,
                            "_core.read takes at most a function name, a row or a signature, and operands");
    const int is_text = strchr(text, '(') != NULL;
    if (is_text) {
        memset(&own, 0, sizeof own);
        own.op = PE_COUNT;
        own.text = text;
        row = pe_signature_read(&own) < 0 ? NULL : &own;
    } else {
        for (int op = 0; !row && op < PE_COUNT; op++)
            row = strcmp(table->row[op].name, text) == 0 ? &table->row[op] : NULL;
    }
    if (!row)
        PyErr_Format(PyExc_TypeError, "_core.read: %U is no row and no signature of ops.def", args[nargs - 1]);
    else if (begin_binding(&a, table, nargs == 2 ? args[0] : NULL, row, dim) == 0) {
        arrays = read_arguments(table, row, &a, args + nargs, names);
        end_binding(&a);
    }
    if (is_text)
        pe_signature_free(&own);
    return arrays;
}

int pe_bind_init(void)
{
    import_array1(-1);
    return 0;
}
