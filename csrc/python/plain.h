/* plain.h -- tests for plain arguments, those of a call that needs neither conversions nor messages.
 *
 * For a few tokens the checks of Python take several times as long as the kernel. So `rope` and `attention` first ask
 * for one call in C. If an argument is not plain the answer is None, and Python goes the long way. The files that
 * include this decide nothing about the meaning of arguments; they only know the most usual ones.
 */
#ifndef PE_PLAIN_H
#define PE_PLAIN_H

#include "python/bind.h"

#include "python/arrays.h"

static inline int is_float(PyObject *object, double value)
{
    return PyFloat_CheckExact(object) && PyFloat_AsDouble(object) == value;
}

/* Return whether an object is an array of numbers that the result can have, and not of a subclass. */
static inline int is_plain_array(PyObject *object)
{
    if (!PyArray_CheckExact(object))
        return 0;
    PyArrayObject *array = (PyArrayObject *)object;
    const int type = PyArray_TYPE(array);
    return (type == NPY_HALF || type == NPY_FLOAT || type == NPY_DOUBLE) && PyArray_ISNOTSWAPPED(array);
}

/* The first byte of an array that has elements, and the one after its last byte */
static inline void find_bounds(PyArrayObject *x, const char **first, const char **end)
{
    *first = PyArray_BYTES(x);
    *end = *first + PyArray_ITEMSIZE(x);
    for (int d = 0; d < PyArray_NDIM(x); d++) {
        const npy_intp reach = PyArray_STRIDE(x, d) * (PyArray_DIM(x, d) - 1);
        *first += reach < 0 ? reach : 0;
        *end += reach > 0 ? reach : 0;
    }
}

static inline int lie_apart(PyObject *a, PyObject *b)
{
    const char *first_a, *end_a, *first_b, *end_b;
    find_bounds((PyArrayObject *)a, &first_a, &end_a);
    find_bounds((PyArrayObject *)b, &first_b, &end_b);
    return end_a <= first_b || end_b <= first_a;
}

/* Return whether the kernel can write to `out`: an array with the type and shape of x. It may still overlap inputs. */
static inline int is_plain_out(PyObject *object, PyArrayObject *x)
{
    PyArrayObject *out = (PyArrayObject *)object;
    return PyArray_CheckExact(object) && PyArray_TYPE(out) == PyArray_TYPE(x) && PyArray_SAMESHAPE(out, x)
           && PyArray_ISCARRAY(out) && PyArray_SIZE(out) > 0;
}

#endif
