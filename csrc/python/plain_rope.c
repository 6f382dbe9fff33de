/* plain_rope.c -- `rope` of plain arguments, in one call. */
#include "python/plain.h"

/* The arguments of _core.rope_plain: the function's name, then the arguments of `rope`. KNOWN is None, or a tuple
 * of fields of RopeFrequencies: inv_freq, attention_factor, layout, rotary_dim. The last two may be None. */
enum { FUNCTION, X, POSITIONS, FREQUENCIES, KNOWN, LAYOUT, ROTARY_DIM, ROTARY_OFFSET };
enum { INVERSE = ROTARY_OFFSET + 1, OUT_LAYOUT, SEQ_AXIS, START, OUT, ARGUMENTS };

/* The table of cos and sin is scratch, at most as large as x. Larger tables are passed as an array. */
enum { MOST_NUMBERS = 1 << 16 };

static int is_integer(PyObject *object, long value)
{
    int overflow;
    return PyLong_CheckExact(object) && PyLong_AsLongAndOverflow(object, &overflow) == value && !overflow;
}

static int has_default_options(PyObject *const *args)
{
    return is_integer(args[ROTARY_OFFSET], 0) && args[INVERSE] == Py_False && args[OUT_LAYOUT] == Py_None
           && is_integer(args[SEQ_AXIS], -2) && is_integer(args[START], 0);
}

/* Read `known` into the other arguments. Return 0 if they contradict each other, or if the factor is not 1. */
static int read_known(PyObject *known, PyObject **frequencies, PyObject **layout, PyObject **rotary_dim)
{
    if (known == Py_None)
        return 1;
    if (!PyTuple_CheckExact(known) || PyTuple_Size(known) != 4 || !is_float(PyTuple_GetItem(known, 1), 1))
        return 0;
    PyObject **const options[] = {layout, rotary_dim};
    for (int i = 0; i < 2; i++) {
        PyObject *const item = PyTuple_GetItem(known, 2 + i);
        if (item != Py_None && *options[i] != Py_None && *options[i] != item)
            return 0;
        *options[i] = item == Py_None ? *options[i] : item;
    }
    *frequencies = PyTuple_GetItem(known, 0);
    return 1;
}

static int is_plain_x(PyObject *object)
{
    PyArrayObject *x = (PyArrayObject *)object;
    return is_plain_array(object) && PyArray_NDIM(x) >= 2 && PyArray_NDIM(x) <= PE_LOOPS
           && PyArray_SIZE(x) <= MOST_NUMBERS;
}

/* Return whether an object is an array (length,) of these numbers. */
static int is_vector(PyObject *object, int type, npy_intp length)
{
    PyArrayObject *array = (PyArrayObject *)object;
    return PyArray_CheckExact(object) && PyArray_NDIM(array) == 1 && PyArray_DIM(array, 0) == length
           && PyArray_TYPE(array) == type;
}

/* The array for the result, `out` or a new one; NULL with or without an exception */
static PyObject *result_of(PyArrayObject *x, PyObject *out, PyObject *positions, PyObject *frequencies)
{
    if (out == Py_None)
        return PyArray_NewLikeArray(x, NPY_CORDER, NULL, 0);
    const int is_plain = is_plain_out(out, x) && (out == (PyObject *)x || lie_apart(out, (PyObject *)x))
                         && lie_apart(out, positions) && lie_apart(out, frequencies);
    return is_plain ? Py_NewRef(out) : NULL;
}

/* Positions as an array (n,); None if they are not plain; NULL with an exception */
static PyObject *positions_of(PyObject *positions, npy_intp n)
{
    if (!is_integer(positions, (long)n) || n > MOST_NUMBERS)
        return Py_NewRef(is_vector(positions, NPY_INT64, n) || is_vector(positions, NPY_DOUBLE, n) ? positions
                                                                                                   : Py_None);
    PyObject *range = PyArray_SimpleNew(1, &n, NPY_INT64); /* PyArray_Arange takes a tenth of a small call */
    for (npy_intp i = 0; range && i < n; i++)
        ((int64_t *)PyArray_DATA((PyArrayObject *)range))[i] = i;
    return range;
}

PyObject *pe_rope_plain(const pe_table *table, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != ARGUMENTS)
        return PyErr_Format(PyExc_TypeError, "_core.rope_plain takes %d arguments", ARGUMENTS);
    PyArrayObject *x = (PyArrayObject *)args[X];
    PyObject *frequencies = args[FREQUENCIES], *layout = args[LAYOUT], *rotary_dim = args[ROTARY_DIM];
    if (!has_default_options(args) || !is_plain_x(args[X])
        || !read_known(args[KNOWN], &frequencies, &layout, &rotary_dim) || !PyUnicode_Check(layout))
        return Py_NewRef(Py_None);
    const npy_intp rows = PyArray_DIM(x, PyArray_NDIM(x) - 2), width = PyArray_DIM(x, PyArray_NDIM(x) - 1);
    const int interleaved = PyUnicode_CompareWithASCIIString(layout, "interleaved") == 0;
    if ((!interleaved && PyUnicode_CompareWithASCIIString(layout, "half") != 0) || width < 2 || width % 2
        || !(rotary_dim == Py_None || is_integer(rotary_dim, (long)width))
        || !is_vector(frequencies, NPY_DOUBLE, width / 2))
        return Py_NewRef(Py_None);
    PyObject *positions = positions_of(args[POSITIONS], rows), *done = NULL;
    if (!positions || positions == Py_None)
        return positions;
    PyObject *result = result_of(x, args[OUT], positions, frequencies);
    if (result) {
        PyObject *const operands[] = {args[X], positions, frequencies, result, interleaved ? Py_True : Py_False};
        done = pe_bind_placed(table, PE_rope_positions, args[FUNCTION], operands);
    }
    Py_DECREF(positions);
    if (!done) {
        Py_XDECREF(result);
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    Py_DECREF(done);
    return result;
}
