/* messages.c -- exceptions: "<function>: <argument> has <what>; expected <what>". */
#include "python/bind.h"

#include "python/arrays.h"

#include <stdarg.h>

int pe_wrong(PyObject *exception, const pe_binding *b, const char *argument, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    PyObject *text = PyUnicode_FromFormatV(format, values);
    va_end(values);
    if (text)
        PyErr_Format(exception, "%s: %s %U", b->function, argument, text);
    Py_XDECREF(text);
    return -1;
}

int pe_wrong_value(PyObject *exception, const pe_binding *b, const char *argument, const char *has, PyObject *value,
                   const char *expected, ...)
{
    va_list values;
    va_start(values, expected);
    PyObject *text = PyUnicode_FromFormatV(expected, values);
    va_end(values);
    PyObject *of_value = text && value ? PyObject_CallFunctionObjArgs(b->table->shown, value, NULL) : NULL;
    if (of_value)
        pe_wrong(exception, b, argument, "%s %S; expected %U", has, of_value, text);
    Py_XDECREF(of_value);
    Py_XDECREF(text);
    return -1;
}

int pe_wrong_type(const pe_binding *b, const char *argument, PyObject *object, const char *expected)
{
    PyObject *name = pe_name_of_type(Py_TYPE(object));
    if (name)
        pe_wrong(PyExc_TypeError, b, argument, "has type %S; expected %s", name, expected);
    Py_XDECREF(name);
    return -1;
}

int pe_wrong_dtype(const pe_binding *b, const char *argument, PyObject *array, const char *expected)
{
    return pe_wrong(PyExc_TypeError, b, argument, "has dtype %S; expected %s", PyArray_DESCR(A(array)), expected);
}

PyObject *pe_tuple_of(const idx *shape, int n)
{
    PyObject *tuple = PyTuple_New(n);
    for (int d = 0; tuple && d < n; d++) {
        PyObject *length = PyLong_FromSsize_t(shape[d]);
        if (!length || PyTuple_SetItem(tuple, d, length) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

int pe_wrong_shape(const pe_binding *b, const char *argument, PyObject *array, const idx *shape, int n,
                   const char *before, const char *after)
{
    PyObject *has = pe_tuple_of(PyArray_DIMS(A(array)), PyArray_NDIM(A(array))), *expected = pe_tuple_of(shape, n);
    if (has && expected)
        pe_wrong(PyExc_ValueError, b, argument, "has shape %S; expected %s%S%s", has, before, expected, after);
    Py_XDECREF(has);
    Py_XDECREF(expected);
    return -1;
}

int pe_forget_refusal(void)
{
    const int is_refusal = PyErr_ExceptionMatches(PyExc_TypeError) || PyErr_ExceptionMatches(PyExc_ValueError)
                           || PyErr_ExceptionMatches(PyExc_OverflowError);
    if (is_refusal)
        PyErr_Clear();
    return is_refusal;
}
