/* bind.c -- turn Python objects into a pe_call, for every row of ops.def alike.
 *
 * A call is _core.<row>(function, operand=..., parameter=..., ...): `function` is the public name that messages begin
 * with. Optional operands may be left out.
 * All that is wrong about memory (kind, rank, a named length, strides, alignment, writability) is raised here, by
 * operand name, before anything is written. Python checks the meaning of arguments.
 */
#include "python/bind.h"

#define PE_LOADS_NUMPY
#include "python/arrays.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* The state of one call: lengths that its operands agree on so far, and copies that live as long as the call. */
typedef struct {
    const char *function;
    int has_real, is_double, nloops, ncopies;
    int writes;                           /* an output has an element */
    double most_position, most_frequency; /* largest magnitudes */
    idx *dim;
    idx loops[PE_LOOPS]; /* right-aligned */
    pe_term *terms;      /* on the heap: sixteen of them would fill the stack of a small thread */
    PyArrayObject *copy[PE_ARRAYS + PE_TERMS * (PE_TERM_ARRAYS + 2)];
} agreement;

enum { UNKNOWN = -1 };
static const int64_t largest_position = (int64_t)1 << POSITION_BITS;
static const double largest_angle = (double)((int64_t)1 << ANGLE_BITS);

/* Raise "<function>: <operand> <format>". */
static int wrong(PyObject *exception, const agreement *a, const char *operand, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    PyObject *text = PyUnicode_FromFormatV(format, values);
    va_end(values);
    if (text)
        PyErr_Format(exception, "%s: %s %U", a->function, operand, text);
    Py_XDECREF(text);
    return -1;
}

/* The name of a type; the Limited API has no field for it. */
static PyObject *name_of_type(PyTypeObject *type) { return PyObject_GetAttrString((PyObject *)type, "__name__"); }

/* Raise "<function>: <operand> has type <that of object>; expected <expected>". */
static int wrong_type(const agreement *a, const char *operand, PyObject *object, const char *expected)
{
    PyObject *name = name_of_type(Py_TYPE(object));
    if (name)
        wrong(PyExc_TypeError, a, operand, "has type %S; expected %s", name, expected);
    Py_XDECREF(name);
    return -1;
}

/* ---- the dtype of an operand ---- */

/* NumPy has no bfloat16 of its own; ml_dtypes registers one, known by its name. */
static int is_bfloat16(PyArrayObject *array)
{
    PyObject *name = PyArray_ITEMSIZE(array) == 2 ? name_of_type(PyArray_DESCR(array)->typeobj) : NULL;
    const int is_named = name && PyUnicode_CompareWithASCIIString(name, "bfloat16") == 0;
    Py_XDECREF(name);
    return is_named;
}

/* The storage of an array, or -1 if kernels do not read its dtype */
static int storage_of(PyArrayObject *array)
{
    const int type = PyArray_TYPE(array);
    switch (type) {
    case NPY_HALF: return PE_F16;
    case NPY_FLOAT: return PE_F32;
    case NPY_DOUBLE: return PE_F64;
    case NPY_BOOL: return PE_BOOL;
    case NPY_BYTE: return PE_I8;
    default: break;
    }
    if (PyTypeNum_ISSIGNED(type) && PyArray_ITEMSIZE(array) == 8) /* long or long long */
        return PE_I64;
    return PyTypeNum_ISUSERDEF(type) && is_bfloat16(array) ? PE_BF16 : -1;
}

/* All real operands of a call are float64, or none is: the first one decides. */
static int check_dtype(agreement *a, const pe_operand *o, PyArrayObject *array, int storage)
{
    const int is_double = storage == PE_F64, is_real = storage >= PE_F16 && storage <= PE_F64;
    const char *expected = NULL;
    switch (o->type) {
    case 'f': expected = is_double ? NULL : "float64"; break;
    case 'i': expected = storage == PE_I64 ? NULL : "int64"; break;
    case 'b': expected = storage == PE_BOOL ? NULL : "bool"; break;
    case 'p': expected = is_double || storage == PE_I64 ? NULL : "int64 or float64"; break;
    default:
        if (o->type == 'c' && storage == PE_I8 && !a->is_double)
            return 0;
        if (!is_real)
            expected = "float16, bfloat16, float32 or float64";
        else if (a->has_real && a->is_double != is_double)
            expected = a->is_double ? "float64, as the data" : "at most float32, as the data";
        a->has_real = 1;
        a->is_double = is_double;
    }
    return expected ? wrong(PyExc_TypeError, a, o->name, "has dtype %S; expected %s", PyArray_DESCR(array), expected)
                    : 0;
}

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

/* Move p to the next element in C order; `at` is its index. */
static const char *next_element(PyArrayObject *array, npy_intp *at, const char *p)
{
    for (int d = PyArray_NDIM(array) - 1; d >= 0; d--) {
        if (++at[d] < PyArray_DIM(array, d))
            return p + PyArray_STRIDE(array, d);
        p -= PyArray_STRIDE(array, d) * (PyArray_DIM(array, d) - 1);
        at[d] = 0;
    }
    return p;
}

static int check_numbers(agreement *a, const pe_operand *o, PyArrayObject *array, pe_storage storage)
{
    const double most = o->finite ? DBL_MAX : (double)largest_position;
    const npy_intp n = PyArray_SIZE(array);
    npy_intp at[NPY_MAXDIMS] = {0};
    const char *p = PyArray_BYTES(array);
    double *largest = o->finite ? &a->most_frequency : &a->most_position;
    const int has_no_gaps = PyArray_IS_C_CONTIGUOUS(array) || PyArray_IS_F_CONTIGUOUS(array);
    double size = has_no_gaps ? largest_of(p, storage, n, most) : HUGE_VAL;
    if (size <= most) {
        *largest = larger(*largest, size);
        return 0;
    }
    for (npy_intp i = 0; i < n; i++, p = next_element(array, at, p)) {
        size = largest_of(p, storage, 1, most);
        *largest = larger(*largest, size);
        if (!(size <= most)) {
            PyObject *number = PyArray_GETITEM(array, p);
            wrong(PyExc_ValueError, a, o->name, "has %R; expected finite %s", number,
                  o->finite ? "numbers" : "positions of at most 2**53");
            Py_XDECREF(number);
            return -1;
        }
    }
    return 0;
}

static int check_angles(const agreement *a)
{
    if (a->most_position * a->most_frequency <= largest_angle)
        return 0;
    PyObject *number = PyFloat_FromDouble(a->most_frequency);
    wrong(PyExc_ValueError, a, "frequencies", "has %R; expected at most 2**56 radians at the largest position", number);
    Py_XDECREF(number);
    return -1;
}

/* ---- the memory and axes of an operand ---- */

/* Kernels read native, aligned numbers, in rows without gaps unless the operand may have any strides. */
static int is_ready(const pe_operand *o, PyArrayObject *array)
{
    const int last = PyArray_NDIM(array) - 1;
    const int no_gaps = o->naxes == 0 || o->strided || PyArray_SIZE(array) == 0 || PyArray_DIM(array, last) == 1
                        || PyArray_STRIDE(array, last) == PyArray_ITEMSIZE(array);
    return no_gaps && PyArray_ISALIGNED(array) && PyArray_ISNOTSWAPPED(array);
}

/* Copy an input that kernels cannot read in place; an output that they cannot write in place is an error. */
static PyArrayObject *make_ready(agreement *a, const pe_operand *o, PyArrayObject *array)
{
    if (is_ready(o, array))
        return array;
    if (o->output) {
        wrong(PyExc_ValueError, a, o->name, "is unaligned, byte-swapped or scattered; expected native, whole rows");
        return NULL;
    }
    PyArray_Descr *descr = PyArray_DescrNewByteorder(PyArray_DESCR(array), NPY_NATIVE);
    PyArrayObject *copy =
        descr ? (PyArrayObject *)PyArray_FromArray(array, descr, NPY_ARRAY_CARRAY | NPY_ARRAY_ENSURECOPY) : NULL;
    if (copy)
        a->copy[a->ncopies++] = copy;
    return copy;
}

static idx stride_of(PyArrayObject *array, int axis)
{
    return PyArray_DIM(array, axis) == 1 ? 0 : PyArray_STRIDE(array, axis);
}

static const char *const one_length = "has length %zd in axis %d; expected %zd";

/* The last axes are named in the signature; a name has one length. */
static int take_named_axes(const agreement *a, const pe_operand *o, PyArrayObject *array, pe_array *out)
{
    const int loops = PyArray_NDIM(array) - o->naxes;
    for (int k = 0; k < o->naxes; k++) {
        const npy_intp length = PyArray_DIM(array, loops + k);
        idx *expected = &a->dim[o->axes[k]];
        if (*expected == UNKNOWN)
            *expected = length;
        if (*expected != length)
            return wrong(PyExc_ValueError, a, o->name, one_length, length, loops + k, *expected);
        out->core[k] = stride_of(array, loops + k);
    }
    return 0;
}

/* All axes before the named ones are loops. Inputs broadcast; an output has all loops, unless it is summed over
 * them. */
static int take_loops(agreement *a, const pe_operand *o, PyArrayObject *array, pe_array *out)
{
    const int rank = PyArray_NDIM(array), loops = rank - o->naxes;
    for (int d = 0; d < loops; d++) {
        const npy_intp length = PyArray_DIM(array, d);
        idx *expected = &a->loops[PE_LOOPS - loops + d];
        out->loop[PE_LOOPS - loops + d] = stride_of(array, d);
        if (length == *expected)
            continue;
        if (o->output || (length != 1 && *expected != 1))
            return wrong(PyExc_ValueError, a, o->name, one_length, length, d, *expected);
        if (length != 1)
            *expected = length;
    }
    if (o->output && !o->summed && loops < a->nloops)
        return wrong(PyExc_ValueError, a, o->name, "has %d axes; expected %d", rank, a->nloops + o->naxes);
    a->nloops = loops > a->nloops ? loops : a->nloops;
    return 0;
}

/* Check one array against its operand, and describe it in `out`. */
static int take_operand(agreement *a, const pe_operand *o, PyObject *object, pe_array *out)
{
    memset(out, 0, sizeof *out);
    if (object == Py_None && o->optional)
        return 0;
    if (!PyArray_Check(object))
        return wrong_type(a, o->name, object, "an array");
    PyArrayObject *array = (PyArrayObject *)object;
    const int rank = PyArray_NDIM(array), storage = storage_of(array);
    if (check_dtype(a, o, array, storage) < 0)
        return -1;
    if (rank < o->naxes || (o->summed && rank > o->naxes))
        return wrong(PyExc_ValueError, a, o->name, "has %d axes; expected %s%d", rank, o->summed ? "" : "at least ",
                     o->naxes);
    if (rank > o->naxes + PE_LOOPS)
        return wrong(PyExc_ValueError, a, o->name, "has %d axes; expected at most %d", rank, o->naxes + PE_LOOPS);
    if (o->output && !PyArray_ISWRITEABLE(array))
        return wrong(PyExc_ValueError, a, o->name, "is read-only; expected a writeable array");
    array = make_ready(a, o, array);
    if (!array || take_named_axes(a, o, array, out) < 0)
        return -1;
    a->writes |= o->output && PyArray_SIZE(array) > 0;
    out->storage = (pe_storage)storage;
    if ((o->type == 'p' || o->finite) && check_numbers(a, o, array, out->storage) < 0)
        return -1;
    out->data = PyArray_BYTES(array);
    return take_loops(a, o, array, out);
}

/* ---- the operators of attention ---- */

/* An operator is (row, operands, q_positions, k_positions): the name of its row, a dict of its arrays by name, and its
 * own positions, or None for those of the call. */
enum { TERM_ROW, TERM_OPERANDS, TERM_POSITIONS, TERM_FIELDS = TERM_POSITIONS + 2 };

/* The row that an operator of `bias` names; NULL with an exception if it names none */
static const pe_signature *row_of_term(const pe_table *table, const agreement *a, PyObject *item)
{
    const int has_fields = PyTuple_Check(item) && PyTuple_Size(item) == TERM_FIELDS;
    PyObject *name = has_fields && PyDict_Check(PyTuple_GetItem(item, TERM_OPERANDS)) ? PyTuple_GetItem(item, 0) : NULL;
    for (int op = 0; name && PyUnicode_Check(name) && op < PE_COUNT; op++) {
        const pe_signature *row = &table->row[op];
        if (row->is_operator && (row->key == name || PyUnicode_Compare(row->key, name) == 0))
            return row;
    }
    wrong(PyExc_TypeError, a, "bias", "has an unknown operator; expected (row, operands, q_positions, k_positions)");
    return NULL;
}

/* Take the positions of an operator that has its own. */
static int take_term_positions(agreement *a, PyObject *item, pe_term *term)
{
    static const pe_operand own[2] = {
        {.name = "q_positions", .type = 'p', .axes = {'n' - 'A'}, .naxes = 1, .optional = 1},
        {.name = "k_positions", .type = 'p', .axes = {'m' - 'A'}, .naxes = 1, .optional = 1}};
    for (int side = 0; side < 2; side++) {
        if (take_operand(a, &own[side], PyTuple_GetItem(item, TERM_POSITIONS + side), &term->positions[side]) < 0)
            return -1;
    }
    if (!term->positions[0].data != !term->positions[1].data)
        return wrong(PyExc_TypeError, a, "bias", "has an operator with positions of one side; expected both or none");
    return 0;
}

/* Take the arrays of one operator, except those that the tile supplies. */
static int take_term_arrays(agreement *a, const pe_signature *row, PyObject *operands, pe_term *term)
{
    Py_ssize_t given = 0;
    int n = 0;
    for (int k = 0; k < row->noperands; k++) {
        const pe_operand *o = &row->operand[k];
        if (o->in_tile)
            continue;
        PyObject *array = PyDict_GetItemWithError(operands, row->argument[k]);
        given += array != NULL;
        if (!array && PyErr_Occurred())
            return -1;
        if (take_operand(a, o, array ? array : Py_None, &term->array[n]) < 0)
            return -1;
        term->size[n] = pe_elements(&term->array[n], o, a->dim);
        n++;
    }
    if (given != PyDict_Size(operands))
        return wrong(PyExc_TypeError, a, row->name, "has unknown operands; expected %s", row->text);
    return 0;
}

static int take_term(agreement *a, const pe_signature *row, PyObject *item, pe_term *term)
{
    static const double no_parameters[PE_PARAMS] = {0};
    idx units;
    double ns;
    memset(term, 0, sizeof *term);
    term->op = row->op;
    for (int axis = 0; axis < PE_OWN_AXES; axis++)
        a->dim[axis] = UNKNOWN;
    if (take_term_positions(a, item, term) < 0
        || take_term_arrays(a, row, PyTuple_GetItem(item, TERM_OPERANDS), term) < 0)
        return -1;
    pe_row_costs(row->op, a->dim, no_parameters, &units, &ns);
    if (units < 0)
        return wrong(PyExc_ValueError, a, row->name, "has lengths that do not fit; expected those of %s", row->text);
    memcpy(term->dim, a->dim, sizeof term->dim);
    return 0;
}

/* Take `bias`, a tuple of operators. Their small axes are those of the call, their capital axes are their own. */
static int take_terms(const pe_table *table, agreement *a, PyObject *object, int *count)
{
    if (object == Py_None)
        return 0;
    if (!PyTuple_Check(object))
        return wrong_type(a, "bias", object, "a tuple");
    if (PyTuple_Size(object) > PE_TERMS)
        return wrong(PyExc_ValueError, a, "bias", "has %zd operators; expected at most %d", PyTuple_Size(object),
                     PE_TERMS);
    *count = (int)PyTuple_Size(object);
    if (*count > 0 && !(a->terms = malloc((size_t)*count * sizeof *a->terms))) {
        PyErr_NoMemory();
        return -1;
    }
    for (int t = 0; t < *count; t++) {
        PyObject *item = PyTuple_GetItem(object, t);
        const pe_signature *row = row_of_term(table, a, item);
        if (!row || take_term(a, row, item, &a->terms[t]) < 0)
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
    return call->nterms == 0;
}

/* Merge adjacent loop axes if they are one loop for every operand: a dense call has one loop. */
static void set_loops(pe_call *call, const agreement *a)
{
    int n = 0, from[PE_LOOPS];
    for (int d = PE_LOOPS - a->nloops; d < PE_LOOPS; d++) {
        if (a->loops[d] == 1)
            continue;
        const int merges = n > 0 && is_one_loop(call, from[n - 1], d, a->loops[d]);
        n += !merges;
        call->shape[n - 1] = merges ? call->shape[n - 1] * a->loops[d] : a->loops[d];
        from[n - 1] = d;
    }
    call->nloops = n;
    for (int l = 0; l < n; l++) { /* from[l] >= l: no stride is overwritten before it is read */
        for (int k = 0; k < call->narrays; k++)
            call->array[k].loop[l] = call->array[k].loop[from[l]];
        for (int t = 0; t < call->nterms; t++) {
            for (int k = 0; k < PE_TERM_ARRAYS; k++)
                a->terms[t].array[k].loop[l] = a->terms[t].array[k].loop[from[l]];
            for (int side = 0; side < 2; side++)
                a->terms[t].positions[side].loop[l] = a->terms[t].positions[side].loop[from[l]];
        }
    }
}

static int fill_call(const pe_table *table, const pe_signature *row, PyObject *const *arguments, agreement *a,
                     pe_call *call)
{
    for (int axis = row->first_axis; axis < PE_AXES; axis++)
        call->dim[axis] = UNKNOWN;
    for (int d = 0; d < PE_LOOPS; d++)
        a->loops[d] = 1;
    call->nterms = 0;
    call->narrays = row->noperands; /* the operators have an empty place among them */
    call->stop = NULL;
    call->watch = NULL;
    for (int k = 0; k < row->noperands; k++) {
        const int is_terms = row->operand[k].type == 'o';
        if (take_operand(a, &row->operand[k], is_terms ? Py_None : arguments[k], &call->array[k]) < 0
            || (is_terms && take_terms(table, a, arguments[k], &call->nterms) < 0))
            return -1;
    }
    for (int k = 0; k < row->nparams; k++) {
        PyObject *const x = arguments[row->noperands + k];
        const int is_bool = x == Py_True || x == Py_False; /* PyFloat_AsDouble makes a float of a bool */
        call->par[k] = is_bool ? x == Py_True : PyFloat_AsDouble(x);
        if (call->par[k] == -1.0 && PyErr_Occurred())
            return -1;
    }
    call->term = a->terms;
    set_loops(call, a);
    return check_angles(a);
}

PyObject *pe_bind_placed(const pe_table *table, int op, PyObject *function, PyObject *const *arguments)
{
    const pe_signature *row = &table->row[op];
    pe_call call;
    agreement a;
    a.function = PyUnicode_AsUTF8AndSize(function, NULL);
    if (!a.function)
        return NULL;
    a.has_real = a.is_double = a.nloops = a.ncopies = a.writes = 0;
    a.most_position = a.most_frequency = 0;
    a.dim = call.dim;
    a.terms = NULL;
    const int filled = fill_call(table, row, arguments, &a, &call);
    const int status = filled < 0 ? -1 : pe_run_call(a.function, row, &call, a.is_double, a.writes);
    while (a.ncopies > 0)
        Py_DECREF(a.copy[--a.ncopies]);
    free(a.terms);
    if (status < 0)
        return NULL;
    return Py_NewRef(Py_None);
}

/* Number of the argument with this name, or -1. Names in Python's code are interned as those of the row are, and
 * usually in its order from `next` on, so the first comparison finds almost every argument. */
static int find_argument(const pe_signature *row, PyObject *name, int next)
{
    const int count = row->noperands + row->nparams;
    for (int i = 0; i < count; i++) {
        const int at = next + i < count ? next + i : next + i - count;
        if (row->argument[at] == name)
            return at;
    }
    for (int at = 0; at < count; at++) {
        if (PyUnicode_Compare(row->argument[at], name) == 0) /* a name that is not interned */
            return at;
    }
    return -1;
}

PyObject *pe_bind(const pe_table *table, int op, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
    const pe_signature *row = &table->row[op];
    const int count = row->noperands + row->nparams;
    const Py_ssize_t given = names ? PyTuple_Size(names) : 0;
    PyObject *placed[PE_ARRAYS + PE_PARAMS] = {NULL};
    int next = 0;
    if (nargs != 1 || !PyUnicode_Check(args[0]))
        return PyErr_Format(PyExc_TypeError, "_core.%s takes a function name, and by name %s", row->name, row->text);
    for (Py_ssize_t i = 0; i < given; i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        const int at = find_argument(row, name, next);
        if (at < 0)
            return PyErr_Format(PyExc_TypeError, "%U: %U is unknown; expected %s", args[0], name, row->text);
        placed[at] = args[1 + i];
        next = at + 1;
    }
    for (int i = 0; i < count; i++) {
        if (!placed[i] && (i >= row->noperands || !row->operand[i].optional))
            return PyErr_Format(PyExc_TypeError, "%U: %U is missing; expected %s", args[0], row->argument[i],
                                row->text);
        if (!placed[i])
            placed[i] = Py_None;
    }
    return pe_bind_placed(table, op, args[0], placed);
}

int pe_bind_init(void)
{
    import_array1(-1);
    return 0;
}
