/* convert.c -- any argument that NumPy reads as the array that a kernel reads, and memory for results.
 *
 * The signature of a row decides. A `real` operand is converted to the dtype of the arithmetic: float64 if the first
 * one is float64 or has integers, else float32, for which half types are storage. What is neither an array nor an int
 * is read by a function of Python (lists, tensors, DLPack), which posenc sets with set_helpers.
 */
#include "python/bind.h"

#include "python/arrays.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const storage_dtypes = "float16, bfloat16, float32 or float64";
static const char *const ids_below = "ids of at least 0 and below %zd";

/* ---- messages ---- */

int pe_wrong(PyObject *exception, const pe_binding *a, const char *operand, const char *format, ...)
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

int pe_wrong_value(PyObject *exception, const pe_binding *a, const char *operand, const char *has, PyObject *value,
                   const char *expected, ...)
{
    va_list values;
    va_start(values, expected);
    PyObject *text = PyUnicode_FromFormatV(expected, values);
    va_end(values);
    PyObject *of_value = text ? PyObject_CallFunctionObjArgs(a->table->shown, value, NULL) : NULL;
    if (of_value)
        pe_wrong(exception, a, operand, "%s %S; expected %U", has, of_value, text);
    Py_XDECREF(of_value);
    Py_XDECREF(text);
    return -1;
}

/* The name of a type; the Limited API has no field for it. */
static PyObject *name_of_type(PyTypeObject *type) { return PyObject_GetAttrString((PyObject *)type, "__name__"); }

int pe_wrong_type(const pe_binding *a, const char *operand, PyObject *object, const char *expected)
{
    PyObject *name = name_of_type(Py_TYPE(object));
    if (name)
        pe_wrong(PyExc_TypeError, a, operand, "has type %S; expected %s", name, expected);
    Py_XDECREF(name);
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

static int wrong_dtype(const pe_binding *a, const pe_operand *o, PyObject *array, const char *expected)
{
    return pe_wrong(PyExc_TypeError, a, o->name, "has dtype %S; expected %s", PyArray_DESCR(A(array)), expected);
}

static PyObject *tuple_of(const npy_intp *shape, int n)
{
    PyObject *tuple = PyTuple_New(n);
    for (int d = 0; tuple && d < n; d++) {
        PyObject *length = PyLong_FromSsize_t(shape[d]);
        if (!length || PyTuple_SetItem(tuple, d, length) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

/* Raise "<function>: <operand> has shape <one>; expected <before><other><after>". */
static int wrong_shape(const pe_binding *a, const char *operand, PyObject *array, const npy_intp *shape, int n,
                       const char *before, const char *after)
{
    PyObject *has = tuple_of(PyArray_DIMS(A(array)), PyArray_NDIM(A(array))), *expected = tuple_of(shape, n);
    if (has && expected)
        pe_wrong(PyExc_ValueError, a, operand, "has shape %S; expected %s%S%s", has, before, expected, after);
    Py_XDECREF(has);
    Py_XDECREF(expected);
    return -1;
}

PyObject *pe_keep(pe_binding *a, PyObject *object)
{
    if (object && a->nkept == (int)(sizeof a->kept / sizeof *a->kept)) {
        PyErr_Format(PyExc_SystemError, "%s: more than %d arrays in a call", a->function, a->nkept);
        Py_CLEAR(object);
    }
    if (object)
        a->kept[a->nkept++] = object;
    return object;
}

static int is_kept(const pe_binding *a, PyObject *object)
{
    int i = 0;
    while (i < a->nkept && a->kept[i] != object)
        i++;
    return i < a->nkept;
}

/* ---- dtypes ---- */

/* NumPy has no bfloat16 of its own; ml_dtypes registers one, known by its name. */
static int is_bfloat16(PyArray_Descr *descr)
{
    PyObject *name = name_of_type(descr->typeobj);
    const int is_named = name && PyUnicode_CompareWithASCIIString(name, "bfloat16") == 0;
    Py_XDECREF(name);
    return is_named;
}

int pe_storage_of(PyObject *object)
{
    const int type = PyArray_TYPE(A(object));
    switch (type) {
    case NPY_HALF: return PE_F16;
    case NPY_FLOAT: return PE_F32;
    case NPY_DOUBLE: return PE_F64;
    case NPY_BOOL: return PE_BOOL;
    case NPY_BYTE: return PE_I8;
    default: break;
    }
    if (PyTypeNum_ISSIGNED(type) && PyArray_ITEMSIZE(A(object)) == 8) /* long or long long */
        return PE_I64;
    return PyTypeNum_ISUSERDEF(type) && PyArray_ITEMSIZE(A(object)) == 2 && is_bfloat16(PyArray_DESCR(A(object)))
               ? PE_BF16
               : -1;
}

static int is_storage(int storage) { return storage >= PE_F16 && storage <= PE_F64; }

int pe_is_storage_dtype(PyObject *object)
{
    PyArray_Descr *descr = (PyArray_Descr *)object;
    const int type = descr->type_num;
    return type == NPY_HALF || type == NPY_FLOAT || type == NPY_DOUBLE
           || (PyTypeNum_ISUSERDEF(type) && PyDataType_ELSIZE(descr) == 2 && is_bfloat16(descr));
}

static PyObject *cast(pe_binding *a, PyObject *array, int type)
{
    return pe_keep(a, PyArray_CastToType(A(array), PyArray_DescrFromType(type), 0));
}

/* Float64 as float32; finite numbers beyond its range are refused, because as infinity they would give NaN. */
static PyObject *narrow(pe_binding *a, const pe_operand *o, PyObject *object)
{
    PyObject *from = PyArray_FROM_OTF(object, NPY_DOUBLE, NPY_ARRAY_CARRAY_RO);
    PyObject *to = from ? pe_keep(a, PyArray_SimpleNew(PyArray_NDIM(A(from)), PyArray_DIMS(A(from)), NPY_FLOAT)) : NULL;
    const double *x = from ? PyArray_DATA(A(from)) : NULL;
    float *y = to ? PyArray_DATA(A(to)) : NULL;
    int beyond = 0;
    for (npy_intp i = 0, n = to ? PyArray_SIZE(A(to)) : 0; i < n; i++) {
        y[i] = (float)x[i];
        beyond |= isinf(y[i]) && !isinf(x[i]);
    }
    Py_XDECREF(from);
    if (beyond)
        pe_wrong(PyExc_ValueError, a, o->name,
                 "has numbers beyond float32; expected at most 3.4e+38 in size, or "
                 "float64");
    return beyond ? NULL : to;
}

/* Unsigned 64-bit integers beyond the largest position would become negative. */
static int fits_signed(const pe_binding *a, const pe_operand *o, PyObject *array)
{
    if (!PyTypeNum_ISUNSIGNED(PyArray_TYPE(A(array))) || PyArray_ITEMSIZE(A(array)) < 8 || PyArray_SIZE(A(array)) == 0)
        return 1;
    PyObject *most = PyObject_CallMethod(array, "max", NULL);
    const unsigned long long number = most ? PyLong_AsUnsignedLongLongMask(most) : 0;
    const int fits = most && number <= 1ULL << POSITION_BITS;
    if (most && !fits)
        pe_wrong_value(PyExc_ValueError, a, o->name, "has", most, "at most 2**53");
    Py_XDECREF(most);
    return fits;
}

/* Whether the arithmetic of the call reads a storage as it is. Halves are storage of float; * asks for float itself. */
static int is_of_arithmetic(const pe_binding *a, const pe_operand *o, int storage)
{
    return a->is_double ? storage == PE_F64 : o->is_work ? storage == PE_F32 : storage != PE_F64;
}

/* The array in a dtype that the operand takes; NULL with an exception */
static PyObject *in_dtype(pe_binding *a, const pe_operand *o, PyObject *array, int is_empty_list)
{
    const int type = PyArray_TYPE(A(array)), is_integer = PyTypeNum_ISINTEGER(type);
    int storage = pe_storage_of(array);
    const char *expected = "float16, bfloat16, float32, float64 or integers";
    switch (o->type) {
    case 'f':
        if (storage == PE_F64)
            return array;
        if (is_integer || is_storage(storage))
            return cast(a, array, NPY_DOUBLE);
        break;
    case 'i':
        if (storage == PE_I64)
            return array;
        if (is_integer || is_empty_list)
            return o->ids || fits_signed(a, o, array) ? cast(a, array, NPY_INT64) : NULL;
        expected = "integers";
        break;
    case 'b':
        if (storage == PE_BOOL)
            return array;
        expected = "bool";
        break;
    case 'p':
        if (storage == PE_I64 || storage == PE_F64)
            return array;
        if (is_integer)
            return fits_signed(a, o, array) ? cast(a, array, NPY_INT64) : NULL;
        if (is_storage(storage))
            return cast(a, array, NPY_DOUBLE);
        expected = "integers or reals";
        break;
    default:
        if (o->type == 'c' && storage == PE_I8 && a->is_quantized && !a->is_double)
            return array;
        if (is_integer && !a->is_quantized) {
            array = cast(a, array, NPY_DOUBLE);
            if (!array)
                return NULL;
            storage = PE_F64;
        } else if (!is_storage(storage)) {
            break;
        }
        if (!a->has_real)
            a->is_double = storage == PE_F64;
        a->has_real = 1;
        if (a->reads || o->copied || is_of_arithmetic(a, o, storage))
            return array;
        if (storage == PE_F64)
            return narrow(a, o, array);
        return cast(a, array, a->is_double ? NPY_DOUBLE : NPY_FLOAT);
    }
    wrong_dtype(a, o, array, expected);
    return NULL;
}

/* ---- inputs ---- */

/* 0 .. n-1 for an int n */
static PyObject *count_from_start(pe_binding *a, const pe_operand *o, PyObject *number, idx limit)
{
    int overflow;
    const long long n = PyLong_AsLongLongAndOverflow(number, &overflow), most = 1LL << POSITION_BITS;
    npy_intp length = (npy_intp)n;
    if (overflow > 0 || n > (o->ids ? limit : most)) {
        if (!o->ids)
            return pe_wrong_value(PyExc_ValueError, a, o->name, "is", number, "at most 2**53"), NULL;
        PyObject *last = PyObject_CallMethod(number, "__sub__", "i", 1);
        if (last)
            pe_wrong_value(PyExc_IndexError, a, o->name, "has id", last, ids_below, limit);
        Py_XDECREF(last);
        return NULL;
    }
    if (n < 0)
        return pe_wrong_value(PyExc_ValueError, a, o->name, "is", number, "at least 0"), NULL;
    if (a->start + n - 1 > most)
        return pe_wrong(PyExc_ValueError, a, "start",
                        "is %lld; expected start + %lld - 1, the last position, to be at "
                        "most 2**53",
                        (long long)a->start, n),
               NULL;
#ifndef Py_GIL_DISABLED
    PyObject *last = a->table->last_counted;
    if (a->start == 0 && last && PyArray_DIM(A(last), 0) == length)
        return pe_keep(a, Py_NewRef(last));
#endif
    PyObject *array = PyArray_SimpleNew(1, &length, NPY_INT64);
    if (!array) {
        PyErr_Clear(); /* MemoryError, or ValueError for a size beyond an address */
        pe_wrong_value(PyExc_MemoryError, a, o->name, "is", number, "a number of positions that fits in memory");
        return NULL;
    }
    int64_t *p = PyArray_DATA(A(array));
    for (npy_intp i = 0; i < length; i++)
        p[i] = a->start + i;
#ifndef Py_GIL_DISABLED
    if (a->start == 0 && length <= 1024) {
        PyArray_CLEARFLAGS(A(array), NPY_ARRAY_WRITEABLE); /* _core.read returns it */
        a->table->last_counted = Py_NewRef(array);
        Py_XDECREF(last);
    }
#endif
    return pe_keep(a, array);
}

static idx limit_of(const pe_binding *a, const pe_operand *o)
{
    static const idx largest_root = 3037000499; /* of the largest idx */
    const idx r = a->dim['r' - 'A'];
    return o->ids < 2 ? r : r <= largest_root ? r * r : PTRDIFF_MAX;
}

static int check_ids(pe_binding *a, const pe_operand *o, PyObject *array, PyObject *given)
{
    const idx limit = limit_of(a, o);
    PyObject *whole = PyArray_FROM_OTF(array, NPY_INT64, NPY_ARRAY_CARRAY_RO);
    const int64_t *id = whole ? PyArray_DATA(A(whole)) : NULL;
    npy_intp wrong = -1;
    for (npy_intp i = whole ? PyArray_SIZE(A(whole)) - 1 : -1; i >= 0; i--)
        wrong = (uint64_t)id[i] >= (uint64_t)limit ? i : wrong;
    Py_XDECREF(whole);
    if (wrong < 0)
        return whole ? 0 : -1;
    PyObject *flat = PyObject_GetAttrString(given, "flat"), *at = PyLong_FromSsize_t(wrong);
    PyObject *number = flat && at ? PyObject_GetItem(flat, at) : NULL;
    if (number)
        pe_wrong_value(PyExc_IndexError, a, o->name, "has id", number, ids_below, limit);
    Py_XDECREF(flat);
    Py_XDECREF(at);
    Py_XDECREF(number);
    return -1;
}

/* A view whose loops, and the named axes that it shares with the first operand, have the lengths of that one */
static PyObject *follow(pe_binding *a, const pe_operand *o, PyObject *array)
{
    const pe_operand *lead = a->lead;
    const int own = o->naxes - o->shared, n = PyArray_NDIM(A(a->first)) - (lead->naxes - o->shared);
    const int rank = PyArray_NDIM(A(array)), axes = rank - own;
    npy_intp shape[NPY_MAXDIMS], strides[NPY_MAXDIMS] = {0};
    int fits = axes <= n, is_whole = axes >= o->shared;
    if (axes < 0 || n < 0)
        return array; /* take_operand says so */
    for (int d = 0; d < n; d++)
        shape[d] = PyArray_DIM(A(a->first), d);
    for (int d = 0; fits && d < rank; d++) {
        const npy_intp length = PyArray_DIM(A(array), d);
        npy_intp *expected = &shape[n - axes + d];
        if (d >= axes)
            *expected = length;
        fits = length == *expected || length == 1;
        is_whole = is_whole && (d < axes - o->shared || length == *expected);
        strides[n - axes + d] = length == *expected ? PyArray_STRIDE(A(array), d) : 0;
    }
    if (!fits) {
        char after[96];
        snprintf(after, sizeof after, ", the %s of %s%s", n == PyArray_NDIM(A(a->first)) ? "shape" : "leading axes",
                 lead->name, own > 0 ? ", and a last axis of any length" : "");
        wrong_shape(a, o->name, array, shape, n, "a shape that broadcasts to ", after);
        return NULL;
    }
    if (a->reads || is_whole)
        return array; /* the loops broadcast */
    Py_INCREF(PyArray_DESCR(A(array)));
    return pe_keep(a, PyArray_NewFromDescr(&PyArray_Type, PyArray_DESCR(A(array)), n + own, shape, strides,
                                           PyArray_DATA(A(array)), 0, NULL));
}

PyObject *pe_as_array(pe_binding *a, const pe_operand *o, PyObject *object)
{
    if (object == Py_None) {
        pe_wrong_type(a, o->name, object, "an array");
        return NULL;
    }
    if (PyArray_CheckExact(object) || (o->counts && PyLong_CheckExact(object)))
        return object;
    return pe_keep(a, PyObject_CallFunction(a->table->reader, "ssO", a->function, o->name, object));
}

PyObject *pe_input(pe_binding *a, const pe_operand *o, PyObject *object)
{
    PyObject *array = pe_as_array(a, o, object);
    if (array && PyLong_CheckExact(array))
        array = count_from_start(a, o, object, limit_of(a, o));
    if (!array)
        return NULL;
    if (o->counts && a->start != 0 && !PyLong_CheckExact(object)
        && (PyArray_NDIM(A(array)) > 0 || !PyTypeNum_ISINTEGER(PyArray_TYPE(A(array)))))
        return pe_wrong(PyExc_TypeError, a, "start",
                        "is %lld; expected an int n for %s, meaning start .. start + n - 1", (long long)a->start,
                        o->name),
               NULL;
    if (o->counts && PyArray_NDIM(A(array)) == 0) {
        PyObject *number = PyNumber_Index(array);
        if (!number) {
            if (!pe_forget_refusal())
                return NULL;
            if (o->ids || PyArray_TYPE(A(array)) == NPY_BOOL)
                wrong_dtype(a, o, array, o->ids ? "integers" : "integers or reals");
            else
                pe_wrong_value(PyExc_TypeError, a, o->name, "is", array,
                               "an int n, meaning 0..n-1, or an array of positions");
            return NULL;
        }
        array = count_from_start(a, o, number, limit_of(a, o));
        Py_DECREF(number);
        if (!array)
            return NULL;
    }
    /* NumPy makes float64 of an empty list, which has no numbers to lose. */
    const int is_empty_list = PyArray_SIZE(A(array)) == 0 && PyArray_NDIM(A(array)) > 0 && is_kept(a, array);
    PyObject *given = array;
    array = in_dtype(a, o, array, is_empty_list);
    if (array && (o->type == 'r' || o->type == 'c'))
        a->first = a->first ? a->first : array;
    if (array && o->follows && a->first)
        array = follow(a, o, array);
    if (array && o->copied && !a->reads && pe_storage_of(array) != pe_storage_of(a->first))
        array = pe_keep(a, PyObject_CallFunction(a->table->caster, "ssOO", a->function, o->name, array,
                                                 PyArray_DESCR(A(a->first))));
    if (array && o->ids && check_ids(a, o, array, given) < 0)
        return NULL;
    if (array)
        a->input[a->ninputs++] = array;
    return array;
}

/* ---- results ---- */

int pe_is_ready(const pe_operand *o, PyObject *object)
{
    PyArrayObject *array = A(object);
    const int last = PyArray_NDIM(array) - 1;
    if (o->summed && !PyArray_IS_C_CONTIGUOUS(array)) /* a kernel uses its strides for partial sums without gaps */
        return 0;
    const int no_gaps = o->naxes == 0 || last < 0 || o->strided || PyArray_SIZE(array) == 0
                        || PyArray_DIM(array, last) == 1 || PyArray_STRIDE(array, last) == PyArray_ITEMSIZE(array);
    return no_gaps && PyArray_ISALIGNED(array) && PyArray_ISNOTSWAPPED(array);
}

/* The first byte of an array that has elements, and the one after its last byte */
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

static int lie_apart(PyArrayObject *a, PyArrayObject *b)
{
    const char *first_a, *end_a, *first_b, *end_b;
    find_bounds(a, &first_a, &end_a);
    find_bounds(b, &first_b, &end_b);
    return end_a <= first_b || end_b <= first_a;
}

static int is_same_view(PyArrayObject *a, PyArrayObject *b)
{
    if (PyArray_DATA(a) != PyArray_DATA(b) || !PyArray_SAMESHAPE(a, b))
        return 0;
    for (int d = 0; d < PyArray_NDIM(a); d++) {
        if (PyArray_STRIDE(a, d) != PyArray_STRIDE(b, d))
            return 0;
    }
    return 1;
}

static npy_intp step_of(PyArrayObject *x, int axis)
{
    return PyArray_STRIDE(x, axis) < 0 ? -PyArray_STRIDE(x, axis) : PyArray_STRIDE(x, axis);
}

/* Return whether no two elements of an array share a byte, because each axis steps over all that shorter steps reach;
 * 0 also for axes that interleave without sharing one. */
static int has_no_overlap(PyArrayObject *x)
{
    const int axes = PyArray_NDIM(x);
    npy_intp reach = PyArray_ITEMSIZE(x);
    int is_done[NPY_MAXDIMS] = {0};
    for (int i = 0; i < axes; i++) {
        int next = -1; /* the axis with the shortest step that is left */
        for (int d = 0; d < axes; d++) {
            if (!is_done[d] && (next < 0 || step_of(x, d) < step_of(x, next)))
                next = d;
        }
        is_done[next] = 1;
        if (PyArray_DIM(x, next) <= 1)
            continue;
        if (step_of(x, next) < reach)
            return 0;
        reach += step_of(x, next) * (PyArray_DIM(x, next) - 1);
    }
    return 1;
}

/* Return whether the kernel may write to `out`: whole rows, no byte twice, and none that an input needs. Otherwise it
 * writes to memory of its own, which is copied to `out`. */
static int is_writable_in_place(const pe_binding *a, const pe_operand *o, PyObject *out)
{
    int ready = pe_is_ready(o, out) && (PyArray_IS_C_CONTIGUOUS(A(out)) || has_no_overlap(A(out)));
    for (int i = 0; ready && i < a->ninputs && PyArray_SIZE(A(out)) > 0; i++) {
        PyObject *input = a->input[i];
        ready = PyArray_SIZE(A(input)) == 0 || lie_apart(A(out), A(input))
                || (o->in_place && input == a->first && is_same_view(A(out), A(input)));
    }
    return ready;
}

/* The dtype of a result; a new reference, or NULL with an exception */
static PyArray_Descr *dtype_of(pe_binding *a, const pe_operand *o, PyObject *given)
{
    if (o->type != 'r')
        return PyArray_DescrFromType(o->type == 'i' ? NPY_INT64 : NPY_DOUBLE);
    if (o->is_work)
        return PyArray_DescrFromType(a->is_double ? NPY_DOUBLE : NPY_FLOAT);
    if (a->dtype && o->ruled < 2)
        return (PyArray_Descr *)Py_NewRef(a->dtype);
    if (a->first && PyArray_ISNOTSWAPPED(A(a->first)))
        return (PyArray_Descr *)Py_NewRef((PyObject *)PyArray_DESCR(A(a->first)));
    if (a->first)
        return PyArray_DescrNewByteorder(PyArray_DESCR(A(a->first)), NPY_NATIVE);
    if (!given)
        return PyArray_DescrFromType(NPY_FLOAT);
    if (!is_storage(pe_storage_of(given))) {
        wrong_dtype(a, o, given, storage_dtypes);
        return NULL;
    }
    return PyArray_DescrNewByteorder(PyArray_DESCR(A(given)), NPY_NATIVE);
}

PyObject *pe_allocate(pe_binding *a, PyObject *dtype, int n, idx *shape, int is_zero)
{
    PyArray_Descr *descr = (PyArray_Descr *)dtype;
    Py_INCREF(descr);
    PyObject *array = is_zero ? PyArray_Zeros(n, shape, descr, 0) : PyArray_Empty(n, shape, descr, 0);
    if (!array) {
        PyErr_Clear(); /* MemoryError, or ValueError for a size beyond an address */
        PyObject *tuple = tuple_of(shape, n);
        if (tuple)
            pe_wrong(PyExc_MemoryError, a, "the result", "has shape %S and dtype %S; expected one that fits in memory",
                     tuple, descr);
        Py_XDECREF(tuple);
    }
    Py_DECREF(descr);
    return pe_keep(a, array);
}

static int is_array_without_mask(PyObject *object)
{
    if (!PyArray_Check(object))
        return 0;
    PyObject *name = PyArray_CheckExact(object) ? NULL : name_of_type(Py_TYPE(object));
    const int is_masked = name && PyUnicode_CompareWithASCIIString(name, "MaskedArray") == 0;
    Py_XDECREF(name);
    return !is_masked;
}

/* Check the caller's array for a result of this dtype and shape; -1 with an exception. */
static int check_given(pe_binding *a, const pe_operand *o, PyObject *out, PyArray_Descr *descr, int n,
                       const npy_intp *shape)
{
    if (PyArray_DESCR(A(out)) != descr && !PyArray_EquivTypes(PyArray_DESCR(A(out)), descr))
        return pe_wrong(PyExc_TypeError, a, o->name, "has dtype %S; expected %S", PyArray_DESCR(A(out)), descr);
    if (pe_check_shape(a, o->name, out, shape, n) < 0)
        return -1;
    if (!PyArray_ISWRITEABLE(A(out)))
        return pe_wrong(PyExc_ValueError, a, o->name, "has read-only memory; expected a writeable array");
    return 0;
}

int pe_check_shape(const pe_binding *a, const char *operand, PyObject *array, const idx *shape, int n)
{
    const int fits = PyArray_NDIM(A(array)) == n && PyArray_CompareLists(PyArray_DIMS(A(array)), shape, n);
    return fits ? 0 : wrong_shape(a, operand, array, shape, n, "", "");
}

int pe_shape_of_result(const pe_binding *a, const pe_operand *o, PyObject *given, idx *shape)
{
    int n = 0;
    for (int d = PE_LOOPS - a->nloops; !o->summed && d < PE_LOOPS; d++)
        shape[n++] = a->loops[d];
    for (int k = 0; k < o->naxes; k++, n++) {
        const idx length = a->dim[o->axes[k]];
        shape[n] = length != PE_UNKNOWN ? length : given && n < PyArray_NDIM(A(given)) ? PyArray_DIM(A(given), n) : 0;
    }
    return n;
}

PyObject *pe_output(pe_binding *a, const pe_operand *o, PyObject *object)
{
    PyObject *given = object == Py_None || object == Py_True ? NULL : object, *written = NULL;
    if (given && !is_array_without_mask(given)) {
        pe_wrong_type(a, o->name, given, "a NumPy array");
        return NULL;
    }
    if (given && !o->ruled && !o->is_work)
        return given;
    npy_intp shape[NPY_MAXDIMS];
    const int n = pe_shape_of_result(a, o, given, shape);
    PyArray_Descr *descr = dtype_of(a, o, given);
    if (!descr)
        return NULL;
    if (given && check_given(a, o, given, descr, n, shape) < 0)
        written = NULL;
    else if (given && (a->reads || is_writable_in_place(a, o, given)))
        written = given;
    else
        written = pe_allocate(a, Py_NewRef((PyObject *)descr), n, shape, o->summed);
    Py_DECREF(descr);
    a->fills_callers = given && written == given;
    a->result[a->noutputs] = given ? given : written;
    a->written[a->noutputs] = written;
    a->noutputs += written != NULL;
    return written;
}

PyObject *pe_tuple(PyObject *const *items, int n)
{
    PyObject *all = PyTuple_New(n);
    for (int i = 0; all && i < n; i++) {
        if (PyTuple_SetItem(all, i, Py_NewRef(items[i] ? items[i] : Py_None)) < 0)
            Py_CLEAR(all);
    }
    return all;
}

PyObject *pe_results(pe_binding *a)
{
    for (int i = 0; i < a->noutputs; i++) {
        if (a->written[i] != a->result[i] && PyArray_CopyInto(A(a->result[i]), A(a->written[i])) < 0)
            return NULL;
    }
    return a->noutputs == 1 ? Py_NewRef(a->result[0]) : pe_tuple(a->result, a->noutputs);
}

int pe_set_helpers(pe_table *table, PyObject *functions)
{
    PyObject *read = NULL, *show = NULL, *cast_copied = NULL;
    if (!PyArg_ParseTuple(functions, "OOO", &read, &show, &cast_copied))
        return -1;
    Py_CLEAR(table->reader);
    Py_CLEAR(table->shown);
    Py_CLEAR(table->caster);
    table->reader = Py_NewRef(read);
    table->shown = Py_NewRef(show);
    table->caster = Py_NewRef(cast_copied);
    return 0;
}
