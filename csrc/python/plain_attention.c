/* plain_attention.c -- `attention` of plain arguments, in one call. */
#include "python/plain.h"

#include <math.h>

/* The arguments of _core.attention_plain: those of `attention`, the options that are not plain at the end */
enum { FUNCTION, Q, K, V, BIAS, CAUSAL, INVARIANT, RETURN_LSE, OUT, DROPOUT, PRECISION, OPTIONS };
enum { ARGUMENTS = OPTIONS + 11 };

static int is_bool(PyObject *object) { return object == Py_True || object == Py_False; }

static int has_plain_options(PyObject *const *args)
{
    if (!is_float(args[DROPOUT], 0) || !PyUnicode_Check(args[PRECISION])
        || PyUnicode_CompareWithASCIIString(args[PRECISION], "high") != 0)
        return 0;
    for (int i = OPTIONS; i < ARGUMENTS; i++) {
        if (args[i] != Py_None)
            return 0;
    }
    return PyTuple_CheckExact(args[BIAS]) && PyTuple_Size(args[BIAS]) == 0 && is_bool(args[CAUSAL])
           && is_bool(args[INVARIANT]) && is_bool(args[RETURN_LSE]);
}

static int is_plain_data(PyObject *object)
{
    if (!is_plain_array(object))
        return 0;
    PyArrayObject *x = (PyArrayObject *)object;
    const int n = PyArray_NDIM(x);
    return n >= 3 && PyArray_DIM(x, n - 2) < 2 * FEWEST_KEYS && PyArray_DIM(x, n - 1) <= MOST_WIDTH;
}

/* Return whether two arrays have equal lengths in all axes but `axis`. */
static int same_but_axis(PyArrayObject *a, PyArrayObject *b, int axis)
{
    if (PyArray_NDIM(a) != PyArray_NDIM(b))
        return 0;
    for (int d = 0; d < PyArray_NDIM(a); d++) {
        if (d != axis && PyArray_DIM(a, d) != PyArray_DIM(b, d))
            return 0;
    }
    return 1;
}

static int have_plain_shapes(PyArrayObject *q, PyArrayObject *k, PyArrayObject *v, int causal)
{
    const int sequence = causal ? -1 : PyArray_NDIM(q) - 2, is_double = PyArray_TYPE(q) == NPY_DOUBLE;
    return same_but_axis(q, k, sequence) && PyArray_SAMESHAPE(k, v) && (PyArray_TYPE(k) == NPY_DOUBLE) == is_double
           && (PyArray_TYPE(v) == NPY_DOUBLE) == is_double;
}

static int are_plain(PyObject *const *args)
{
    return has_plain_options(args) && is_plain_data(args[Q]) && is_plain_data(args[K]) && is_plain_data(args[V])
           && have_plain_shapes((PyArrayObject *)args[Q], (PyArrayObject *)args[K], (PyArrayObject *)args[V],
                                args[CAUSAL] == Py_True)
           && (args[OUT] == Py_None
               || (is_plain_out(args[OUT], (PyArrayObject *)args[Q]) && lie_apart(args[OUT], args[Q])
                   && lie_apart(args[OUT], args[K]) && lie_apart(args[OUT], args[V])));
}

PyObject *pe_attention_plain(const pe_table *table, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != ARGUMENTS)
        return PyErr_Format(PyExc_TypeError, "_core.attention_plain takes %d arguments", ARGUMENTS);
    if (!are_plain(args))
        return Py_NewRef(Py_None);
    PyArrayObject *q = (PyArrayObject *)args[Q];
    const int n = PyArray_NDIM(q), lse_type = PyArray_TYPE(q) == NPY_DOUBLE ? NPY_DOUBLE : NPY_FLOAT;
    const double width = (double)PyArray_DIM(q, n - 1);
    PyObject *out = args[OUT] == Py_None ? PyArray_NewLikeArray(q, NPY_CORDER, NULL, 0) : Py_NewRef(args[OUT]);
    PyObject *lse =
        args[RETURN_LSE] == Py_True ? PyArray_EMPTY(n - 1, PyArray_DIMS(q), lse_type, 0) : Py_NewRef(Py_None);
    PyObject *scale = PyFloat_FromDouble(pow(width > 0 ? width : 1, -0.5));
    PyObject *low = PyFloat_FromDouble(-HUGE_VAL), *high = PyFloat_FromDouble(args[CAUSAL] == Py_True ? 0 : HUGE_VAL);
    PyObject *weight_parts = PyLong_FromLong(PyArray_TYPE(q) == NPY_HALF ? 2 : 0); /* precision is "high" */
    PyObject *done = NULL, *result = NULL;
    if (out && lse && scale && low && high && weight_parts) {
        PyObject *const none = Py_None, *const zero = Py_False, *const one = Py_True;
        PyObject *const operands[] = {
            args[Q],         args[K],      args[V], none, none, none,  none, none, none, none, none,
            args[BIAS],      out,          lse,     none, none, scale, zero, low,  high, zero, one,
            args[INVARIANT], weight_parts, zero,    zero, zero,
        };
        done = pe_bind_placed(table, PE_attention, args[FUNCTION], operands);
    }
    if (done)
        result = args[RETURN_LSE] == Py_True ? PyTuple_Pack(2, out, lse) : Py_NewRef(out);
    PyObject *const owned[] = {out, lse, scale, low, high, weight_parts, done};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        Py_XDECREF(owned[i]);
    return result;
}
