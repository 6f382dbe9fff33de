/* input.c -- an argument as the array that a kernel reads: object -> array -> kind -> arithmetic -> layout -> axes ->
 * numbers. A read of the same operand leaves out arithmetic and layout, so reals keep their dtypes and strides.
 *
 * An exact array or an int is taken as it is. All else (lists, tensors, DLPack) is read by a function of Python. It may
 * run code of the user, so a call converts all objects before it takes the first pointer (bind.c).
 */
#include "python/bind.h"

#include "python/arrays.h"

#include <float.h>
#include <math.h>

static const char *const ids_below = "ids of at least 0 and below %zd";

/* ---- object -> array ---- */

PyObject *pe_as_array(pe_binding *b, const pe_operand *o, PyObject *object)
{
    if (object == Py_None) {
        pe_wrong_type(b, o->name, object, "an array");
        return NULL;
    }
    if (PyArray_CheckExact(object) || (o->counted && PyLong_CheckExact(object)))
        return object;
    return pe_keep(b, PyObject_CallFunction(b->table->reader, "ssO", b->function, o->name, object));
}

static idx limit_of(const pe_binding *b, const pe_operand *o)
{
    static const idx largest_root = 3037000499; /* of the largest idx */
    const idx r = b->dim['r' - 'A'];
    return !o->pair_ids ? r : r <= largest_root ? r * r : PTRDIFF_MAX;
}

/* Check that start .. start + n - 1 are positions or rows of the table; -1 with an exception. */
static int check_count(const pe_binding *b, const pe_operand *o, PyObject *number, long long n, int overflow)
{
    const int is_id = o->ids || o->pair_ids;
    const idx limit = limit_of(b, o);
    if (is_id && (overflow > 0 || n > 0) && (b->start < 0 || overflow > 0 || n > limit - b->start)) {
        PyObject *id = b->start < 0 ? PyLong_FromLongLong(b->start)
                                    : PyObject_CallMethod(number, "__add__", "L", (long long)b->start - 1);
        pe_wrong_value(PyExc_IndexError, b, o->name, "has id", id, ids_below, limit);
        Py_XDECREF(id);
        return -1;
    }
    if (overflow > 0 || n > largest_position)
        return pe_wrong_value(PyExc_ValueError, b, o->name, "is", number, "at most 2**53");
    if (n < 0)
        return pe_wrong_value(PyExc_ValueError, b, o->name, "is", number, "at least 0");
    if (b->start + n - 1 > largest_position)
        return pe_wrong(PyExc_ValueError, b, "start",
                        "is %lld; expected start + %lld - 1, the last position, to be at most 2**53",
                        (long long)b->start, n);
    return 0;
}

/* start .. start + n - 1 */
static PyObject *count_up(pe_binding *b, const pe_operand *o, PyObject *number)
{
    enum { LONGEST_KEPT = 1024 };
    int overflow;
    const long long n = PyLong_AsLongLongAndOverflow(number, &overflow);
    npy_intp length = (npy_intp)n;
    if (check_count(b, o, number, n, overflow) < 0)
        return NULL;
#ifndef Py_GIL_DISABLED
    PyObject *last = b->table->last_counted;
    if (b->start == 0 && last && PyArray_DIM(A(last), 0) == length)
        return pe_keep(b, Py_NewRef(last));
#endif
    PyObject *array = PyArray_SimpleNew(1, &length, NPY_INT64);
    if (!array) {
        PyErr_Clear(); /* MemoryError, or ValueError for a size beyond an address */
        pe_wrong_value(PyExc_MemoryError, b, o->name, "is", number, "a number of positions that fits in memory");
        return NULL;
    }
    int64_t *p = PyArray_DATA(A(array));
    for (npy_intp i = 0; i < length; i++)
        p[i] = b->start + i;
#ifndef Py_GIL_DISABLED
    if (b->start == 0 && length <= LONGEST_KEPT) {
        PyArray_CLEARFLAGS(A(array), NPY_ARRAY_WRITEABLE); /* a read returns it */
        b->table->last_counted = Py_NewRef(array);
        Py_XDECREF(last);
    }
#endif
    return pe_keep(b, array);
}

/* The int n that an array without axes contains; a new reference, or NULL with an exception */
static PyObject *count_of(const pe_binding *b, const pe_operand *o, PyObject *array)
{
    PyObject *number = PyNumber_Index(array);
    if (number || !pe_forget_refusal())
        return number;
    if (o->ids || o->pair_ids || PyArray_TYPE(A(array)) == NPY_BOOL)
        pe_wrong_dtype(b, o->name, array, o->ids || o->pair_ids ? "integers" : "integers or reals");
    else
        pe_wrong_value(PyExc_TypeError, b, o->name, "is", array, "an int n, meaning 0..n-1, or an array of positions");
    return NULL;
}

/* An array of positions or ids, or the positions that an int n means */
static PyObject *count_positions(pe_binding *b, const pe_operand *o, PyObject *object)
{
    if (PyLong_CheckExact(object))
        return count_up(b, o, object);
    const int is_number = PyArray_NDIM(A(object)) == 0;
    if (b->start != 0 && !(is_number && PyTypeNum_ISINTEGER(PyArray_TYPE(A(object))))) {
        pe_wrong(PyExc_TypeError, b, "start", "is %lld; expected an int n for %s, meaning start .. start + n - 1",
                 (long long)b->start, o->name);
        return NULL;
    }
    if (!is_number)
        return object;
    PyObject *number = count_of(b, o, object), *array = number ? count_up(b, o, number) : NULL;
    Py_XDECREF(number);
    return array;
}

/* ---- array -> kind: the dtypes of the operand's type ---- */

static PyObject *cast(pe_binding *b, PyObject *array, int type)
{
    return pe_keep(b, PyArray_CastToType(A(array), PyArray_DescrFromType(type), 0));
}

/* Unsigned 64-bit integers beyond the largest number of the operand would become negative, or lose digits. */
static int fits_signed(const pe_binding *b, const pe_operand *o, PyObject *array)
{
    const int64_t largest = o->type == 'p' ? largest_position : INT64_MAX;
    if (!PyTypeNum_ISUNSIGNED(PyArray_TYPE(A(array))) || PyArray_ITEMSIZE(A(array)) < 8 || PyArray_SIZE(A(array)) == 0)
        return 1;
    PyObject *most = PyObject_CallMethod(array, "max", NULL);
    const unsigned long long number = most ? PyLong_AsUnsignedLongLongMask(most) : 0;
    const int fits = most && number <= (unsigned long long)largest;
    if (most && !fits)
        pe_wrong_value(PyExc_ValueError, b, o->name, "has", most,
                       o->type == 'p' ? "at most 2**53" : "at most 2**63 - 1");
    Py_XDECREF(most);
    return fits;
}

/* Integers as int64. NumPy makes float64 of an empty list, which has no numbers to lose. */
static PyObject *as_integers(pe_binding *b, const pe_operand *o, PyObject *array, const char *expected)
{
    const int is_empty = PyArray_SIZE(A(array)) == 0 && PyArray_NDIM(A(array)) > 0 && pe_is_kept(b, array);
    if (pe_storage_of(array) == PE_I64)
        return array;
    if (!PyTypeNum_ISINTEGER(PyArray_TYPE(A(array))) && !is_empty) {
        pe_wrong_dtype(b, o->name, array, expected);
        return NULL;
    }
    return o->ids || o->pair_ids || fits_signed(b, o, array) ? cast(b, array, NPY_INT64) : NULL;
}

/* Reals of any storage; integers become double. The first real operand decides on the arithmetic. */
static PyObject *as_reals(pe_binding *b, const pe_operand *o, PyObject *array)
{
    const int is_quantized = o->type == 'c' && b->argument[o->scale] && b->argument[o->scale] != Py_None;
    if (is_quantized && pe_storage_of(array) == PE_I8 && !b->is_double)
        return array;
    if (PyTypeNum_ISINTEGER(PyArray_TYPE(A(array))) && !is_quantized) {
        array = cast(b, array, NPY_DOUBLE);
    } else if (!pe_is_real(pe_storage_of(array))) {
        pe_wrong_dtype(b, o->name, array, "float16, bfloat16, float32, float64 or integers");
        return NULL;
    }
    if (array && !b->first) {
        b->is_double = pe_storage_of(array) == PE_F64;
        b->first = array;
    }
    return array;
}

PyObject *pe_in_kind(pe_binding *b, const pe_operand *o, PyObject *array)
{
    const int storage = pe_storage_of(array), is_integer = PyTypeNum_ISINTEGER(PyArray_TYPE(A(array)));
    switch (o->type) {
    case 'b':
        if (storage == PE_BOOL)
            return array;
        pe_wrong_dtype(b, o->name, array, b->entry->has_operators ? "bool, True = this key may be seen" : "bool");
        return NULL;
    case 'i': return as_integers(b, o, array, "integers");
    case 'p':
        if (storage == PE_F64 || is_integer)
            return is_integer ? as_integers(b, o, array, NULL) : array;
        if (pe_is_real(storage))
            return cast(b, array, NPY_DOUBLE);
        pe_wrong_dtype(b, o->name, array, "integers or reals");
        return NULL;
    case 'f':
        if (storage == PE_F64)
            return array;
        if (is_integer || pe_is_real(storage))
            return cast(b, array, NPY_DOUBLE);
        pe_wrong_dtype(b, o->name, array, "float16, bfloat16, float32, float64 or integers");
        return NULL;
    default: return as_reals(b, o, array);
    }
}

/* ---- kind -> arithmetic ---- */

/* Float64 as float32; finite numbers beyond its range are refused, because as infinity they would give NaN. But the
 * least numbers of a mask are minus infinity. */
static PyObject *narrow(pe_binding *b, const pe_operand *o, PyObject *object)
{
    PyObject *from = PyArray_FROM_OTF(object, NPY_DOUBLE, NPY_ARRAY_CARRAY_RO);
    PyObject *to = from ? pe_keep(b, PyArray_SimpleNew(PyArray_NDIM(A(from)), PyArray_DIMS(A(from)), NPY_FLOAT)) : NULL;
    const double *x = from ? PyArray_DATA(A(from)) : NULL;
    float *y = to ? PyArray_DATA(A(to)) : NULL;
    int beyond = 0;
    for (npy_intp i = 0, n = to ? PyArray_SIZE(A(to)) : 0; i < n; i++) {
        y[i] = (float)x[i];
        beyond |= isinf(y[i]) && !isinf(x[i]) && !(o->masking && y[i] < 0);
    }
    Py_XDECREF(from);
    if (beyond)
        pe_wrong(PyExc_ValueError, b, o->name,
                 "has numbers beyond float32; expected at most 3.4e+38 in size, or float64");
    return beyond ? NULL : to;
}

PyObject *pe_in_arithmetic(pe_binding *b, const pe_operand *o, PyObject *array)
{
    const int storage = pe_storage_of(array);
    if (!pe_is_real(storage) || (o->type != 'r' && o->type != 'c'))
        return array;
    if (b->is_double ? storage == PE_F64 : o->work ? storage == PE_F32 : storage != PE_F64)
        return array; /* half types are storage of float */
    return storage == PE_F64 ? narrow(b, o, array) : cast(b, array, b->is_double ? NPY_DOUBLE : NPY_FLOAT);
}

/* ---- layout ---- */

int pe_is_ready(const pe_operand *o, PyObject *object)
{
    PyArrayObject *array = A(object);
    const int last = PyArray_NDIM(array) - 1;
    if (o->summed && !PyArray_IS_C_CONTIGUOUS(array)) /* a kernel uses its strides for partial sums without gaps */
        return 0;
    const int no_gaps = o->naxes == 0 || last < 0 || o->scattered || PyArray_SIZE(array) == 0
                        || PyArray_DIM(array, last) == 1 || PyArray_STRIDE(array, last) == PyArray_ITEMSIZE(array);
    return no_gaps && PyArray_ISALIGNED(array) && PyArray_ISNOTSWAPPED(array);
}

/* Whether an array is the same along an axis that its gradient has: kernels would add that axis up. */
static int repeats(const pe_binding *b, const pe_operand *o, PyObject *array)
{
    int found = 0;
    for (int d = 0; d < PyArray_NDIM(A(array)); d++)
        found |= PyArray_STRIDE(A(array), d) == 0 && PyArray_DIM(A(array), d) > 1;
    return found && o->masking && b->entry->number == PE_attention_vjp;
}

/* Copy an array that kernels cannot read in place. */
static PyObject *in_layout(pe_binding *b, const pe_operand *o, PyObject *array)
{
    if (pe_is_ready(o, array) && !repeats(b, o, array))
        return array;
    PyArray_Descr *descr = PyArray_DescrNewByteorder(PyArray_DESCR(A(array)), NPY_NATIVE);
    return descr ? pe_keep(b, PyArray_FromArray(A(array), descr, NPY_ARRAY_CARRAY | NPY_ARRAY_ENSURECOPY)) : NULL;
}

/* ---- numbers: positions, finite numbers and ids ---- */

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

static double largest_of(const char *x, int storage, npy_intp n, double most)
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

/* Check positions, or numbers that have to be finite, and note the largest one for the angles of a call. */
static int check_numbers(pe_binding *b, const pe_operand *o, PyObject *array)
{
    const int storage = pe_storage_of(array);
    const double most = o->finite ? DBL_MAX : (double)largest_position;
    double *largest = o->finite ? &b->most_frequency : &b->most_position;
    PyObject *numbers = distinct_numbers(A(array));
    if (!numbers)
        return -1;
    const char *p = PyArray_BYTES(A(numbers));
    const double size = largest_of(p, storage, PyArray_SIZE(A(numbers)), most);
    *largest = larger(*largest, size);
    if (size > most) {
        while (largest_of(p, storage, 1, most) <= most)
            p += sizeof(double);
        PyObject *number = PyArray_GETITEM(A(numbers), p);
        pe_wrong_value(PyExc_ValueError, b, o->name, "has", number, "finite %s",
                       o->finite ? "numbers" : "positions of at most 2**53");
        Py_XDECREF(number);
    }
    Py_DECREF(numbers);
    return size > most ? -1 : 0;
}

/* Check that ids are rows of the table. `given` has the caller's numbers, which the message shows. */
static int check_ids(const pe_binding *b, const pe_operand *o, PyObject *array, PyObject *given)
{
    const idx limit = limit_of(b, o);
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
        pe_wrong_value(PyExc_IndexError, b, o->name, "has id", number, ids_below, limit);
    Py_XDECREF(flat);
    Py_XDECREF(at);
    Py_XDECREF(number);
    return -1;
}

/* The arrays of operators of positions are float64; in arithmetic of float their finite numbers must fit. */
static int check_range(const pe_binding *b, const pe_operand *o, PyObject *array)
{
    int beyond = 0;
    if (b->is_double)
        return 0;
    PyObject *numbers = distinct_numbers(A(array));
    const double *x = numbers ? PyArray_DATA(A(numbers)) : NULL;
    for (npy_intp i = 0, n = numbers ? PyArray_SIZE(A(numbers)) : 0; i < n; i++)
        beyond |= fabs(x[i]) > (double)FLT_MAX && !isinf(x[i]);
    Py_XDECREF(numbers);
    if (beyond)
        pe_wrong(PyExc_ValueError, b, o->name,
                 "has numbers beyond float32; expected at most 3.4e+38 in size, or float64");
    return numbers && !beyond ? 0 : -1;
}

static int check_contents(pe_binding *b, const pe_operand *o, PyObject *array, PyObject *given)
{
    if (o->ids || o->pair_ids)
        return check_ids(b, o, array, given);
    if (o->type == 'f' && !o->derived && *b->of_operator)
        return check_range(b, o, array);
    return o->type == 'p' || o->finite ? check_numbers(b, o, array) : 0;
}

int pe_check_angles(const pe_binding *b)
{
    static const double largest_angle = (double)((int64_t)1 << ANGLE_BITS);
    if (b->most_position * b->most_frequency <= largest_angle)
        return 0;
    PyObject *number = PyFloat_FromDouble(b->most_frequency);
    pe_wrong_value(PyExc_ValueError, b, "frequencies", "has", number, "at most 2**56 radians at the largest position");
    Py_XDECREF(number);
    return -1;
}

/* ---- all of it ---- */

int pe_take_input(pe_binding *b, const pe_operand *o, PyObject *object, pe_array *out)
{
    *out = (pe_array){0};
    if (object == Py_None && o->optional)
        return 0;
    PyObject *given = pe_as_array(b, o, object), *array = given;
    array = array && o->counted ? count_positions(b, o, array) : array;
    array = array ? pe_in_kind(b, o, array) : NULL;
    array = array ? pe_in_arithmetic(b, o, array) : NULL;
    array = array ? in_layout(b, o, array) : NULL;
    if (!array || pe_take_axes(b, o, array, given, out) < 0 || check_contents(b, o, array, given) < 0)
        return -1;
    b->input[b->ninputs++] = array;
    out->storage = (pe_storage)pe_storage_of(array);
    out->data = PyArray_BYTES(A(array));
    return 0;
}

PyObject *pe_read_input(pe_binding *b, const pe_operand *o, PyObject *object)
{
    pe_array unused = {0};
    if (object == Py_None && o->optional)
        return Py_None;
    PyObject *given = pe_as_array(b, o, object), *array = given;
    array = array && o->counted ? count_positions(b, o, array) : array;
    array = array ? pe_in_kind(b, o, array) : NULL;
    array = array && o->type != 'r' && o->type != 'c' ? in_layout(b, o, array) : array;
    if (!array
        || (o->following && b->first ? pe_check_following(b, o, array) : pe_take_axes(b, o, array, given, &unused)) < 0
        || check_contents(b, o, array, given) < 0)
        return NULL;
    return array;
}
