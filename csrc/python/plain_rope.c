/* plain_rope.c -- `rope` of plain arguments, in one call. */
#include "python/plain.h"

/* The arguments of _core.rope_plain: those of `rope`, after the function's name. The factor multiplies cos and sin. */
enum { FUNCTION, X, POSITIONS, FREQUENCIES, FACTOR, LAYOUT, ROTARY_DIM, ROTARY_OFFSET };
enum { INVERSE = ROTARY_OFFSET + 1, OUT_LAYOUT, SEQ_AXIS, START, OUT, ARGUMENTS };

/* The table of cos and sin is scratch, at most as large as x. More than this much belongs into an array. */
enum { MOST_NUMBERS = 1 << 16 };

static int is_integer(PyObject *object, long value)
{
    int overflow;
    return PyLong_CheckExact(object) && PyLong_AsLongAndOverflow(object, &overflow) == value && !overflow;
}

static int has_default_options(PyObject *const *args)
{
    return is_float(args[FACTOR], 1) && is_integer(args[ROTARY_OFFSET], 0) && args[INVERSE] == Py_False
           && args[OUT_LAYOUT] == Py_None && is_integer(args[SEQ_AXIS], -2) && is_integer(args[START], 0);
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
    if (is_integer(positions, (long)n) && n <= MOST_NUMBERS)
        return PyArray_Arange(0, (double)n, 1, NPY_INT64);
    return Py_NewRef(is_vector(positions, NPY_INT64, n) || is_vector(positions, NPY_DOUBLE, n) ? positions : Py_None);
}

PyObject *pe_rope_plain(const pe_table *table, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != ARGUMENTS)
        return PyErr_Format(PyExc_TypeError, "_core.rope_plain takes %d arguments", ARGUMENTS);
    PyArrayObject *x = (PyArrayObject *)args[X];
    if (!has_default_options(args) || !is_plain_x(args[X]) || !PyUnicode_Check(args[LAYOUT]))
        return Py_NewRef(Py_None);
    const npy_intp rows = PyArray_DIM(x, PyArray_NDIM(x) - 2), width = PyArray_DIM(x, PyArray_NDIM(x) - 1);
    const int interleaved = PyUnicode_CompareWithASCIIString(args[LAYOUT], "interleaved") == 0;
    PyObject *const frequencies = args[FREQUENCIES];
    if ((!interleaved && PyUnicode_CompareWithASCIIString(args[LAYOUT], "half") != 0) || width < 2 || width % 2
        || !(args[ROTARY_DIM] == Py_None || is_integer(args[ROTARY_DIM], (long)width))
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
