/* plain_attention.c -- `attention` of plain arguments, in one call: for a few tokens the checks of Python take several
 * times as long as the kernel.
 *
 * Arguments are plain if they need neither conversion nor a message. For others the answer is None, and Python goes the
 * long way. So this file decides nothing about the meaning of arguments; it only knows the most usual ones.
 */
#include "python/bind.h"

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_1_23_API_VERSION
#include <numpy/arrayobject.h>

#include <math.h>

/* The arguments of _core.attention_plain: those of `attention`, the options that are not plain at the end */
enum { FUNCTION, Q, K, V, BIAS, CAUSAL, INVARIANT, RETURN_LSE, OUT, OPTIONS, ARGUMENTS = OPTIONS + 10 };

static int is_bool(PyObject *object) { return object == Py_True || object == Py_False; }

static int has_plain_options(PyObject *const *args)
{
    for (int i = OPTIONS; i < ARGUMENTS; i++) {
        if (args[i] != Py_None)
            return 0;
    }
    return PyTuple_CheckExact(args[BIAS]) && PyTuple_Size(args[BIAS]) == 0 && is_bool(args[CAUSAL])
           && is_bool(args[INVARIANT]) && is_bool(args[RETURN_LSE]);
}

static int is_plain_data(PyObject *object)
{
    if (!PyArray_CheckExact(object))
        return 0;
    PyArrayObject *x = (PyArrayObject *)object;
    const int type = PyArray_TYPE(x), n = PyArray_NDIM(x);
    return n >= 3 && (type == NPY_HALF || type == NPY_FLOAT || type == NPY_DOUBLE) && PyArray_ISNOTSWAPPED(x)
           && PyArray_DIM(x, n - 2) < 2 * FEWEST_KEYS && PyArray_DIM(x, n - 1) <= MOST_WIDTH;
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

/* The first byte of an array, and the one after its last byte */
static void find_bounds(PyArrayObject *x, const char **first, const char **end)
{
    *first = PyArray_BYTES(x);
    *end = *first + PyArray_ITEMSIZE(x);
    for (int d = 0; d < PyArray_NDIM(x); d++) {
        const npy_intp reach = PyArray_STRIDE(x, d) * (PyArray_DIM(x, d) - 1);
        *first += reach < 0 ? reach : 0;
        *end += reach > 0 ? reach : 0;
    }
}

static int lie_apart(PyArrayObject *a, PyObject *b)
{
    const char *first_a, *end_a, *first_b, *end_b;
    find_bounds(a, &first_a, &end_a);
    find_bounds((PyArrayObject *)b, &first_b, &end_b);
    return end_a <= first_b || end_b <= first_a;
}

static int is_plain_out(PyObject *const *args)
{
    if (args[OUT] == Py_None)
        return 1;
    if (!PyArray_CheckExact(args[OUT]))
        return 0;
    PyArrayObject *out = (PyArrayObject *)args[OUT], *q = (PyArrayObject *)args[Q];
    return PyArray_TYPE(out) == PyArray_TYPE(q) && PyArray_SAMESHAPE(out, q) && PyArray_ISCARRAY(out)
           && PyArray_SIZE(out) > 0 && lie_apart(out, args[Q]) && lie_apart(out, args[K]) && lie_apart(out, args[V]);
}

static int are_plain(PyObject *const *args)
{
    return has_plain_options(args) && is_plain_data(args[Q]) && is_plain_data(args[K]) && is_plain_data(args[V])
           && have_plain_shapes((PyArrayObject *)args[Q], (PyArrayObject *)args[K], (PyArrayObject *)args[V],
                                args[CAUSAL] == Py_True)
           && is_plain_out(args);
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
    PyObject *done = NULL, *result = NULL;
    if (out && lse && scale && low && high) {
        PyObject *const none = Py_None, *const zero = Py_False, *const one = Py_True;
        PyObject *const operands[] = {
            args[FUNCTION], args[Q], args[K], args[V], none, none,  none, none, none, none, none, none,
            args[BIAS],     out,     lse,     none,    none, scale, zero, low,  high, zero, one,  args[INVARIANT],
        };
        done = pe_bind(table, PE_attention, operands, sizeof operands / sizeof *operands);
    }
    if (done)
        result = args[RETURN_LSE] == Py_True ? PyTuple_Pack(2, out, lse) : Py_NewRef(out);
    PyObject *const owned[] = {out, lse, scale, low, high, done};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        Py_XDECREF(owned[i]);
    return result;
}

int pe_attention_plain_init(void)
{
    import_array1(-1);
    return 0;
}
