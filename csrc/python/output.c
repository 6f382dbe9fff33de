/* output.c -- memory for results. The dtype of a result follows from its entry, its shape from the inputs. The caller's
 * array is filled by the kernel where it can be, else by a copy: it may have gaps, another byte order, or memory that
 * an input needs.
 */
#include "python/bind.h"

#include "python/arrays.h"

#include <string.h>

static const char *const storage_dtypes = "float16, bfloat16, float32 or float64";

/* ---- dtypes ---- */

PyObject *pe_name_of_type(PyTypeObject *type) { return PyObject_GetAttrString((PyObject *)type, "__name__"); }

/* NumPy has no bfloat16 of its own; ml_dtypes registers one, known by its name. */
static int is_bfloat16(PyArray_Descr *descr)
{
    PyObject *name = pe_name_of_type(descr->typeobj);
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

int pe_is_real(int storage) { return storage >= PE_F16 && storage <= PE_F64; }

int pe_is_storage_dtype(PyObject *object)
{
    PyArray_Descr *descr = (PyArray_Descr *)object;
    const int type = descr->type_num;
    return type == NPY_HALF || type == NPY_FLOAT || type == NPY_DOUBLE
           || (PyTypeNum_ISUSERDEF(type) && PyDataType_ELSIZE(descr) == 2 && is_bfloat16(descr));
}

/* The dtype of a result; a new reference, or NULL with an exception */
static PyArray_Descr *dtype_of(const pe_binding *b, const pe_operand *o, PyObject *given)
{
    if (o->type != 'r')
        return PyArray_DescrFromType(o->type == 'i' ? NPY_INT64 : NPY_DOUBLE);
    if (o->work)
        return PyArray_DescrFromType(b->is_double ? NPY_DOUBLE : NPY_FLOAT);
    if (b->dtype && !o->like_first)
        return (PyArray_Descr *)Py_NewRef(b->dtype);
    if (b->first && PyArray_ISNOTSWAPPED(A(b->first)))
        return (PyArray_Descr *)Py_NewRef((PyObject *)PyArray_DESCR(A(b->first)));
    if (b->first)
        return PyArray_DescrNewByteorder(PyArray_DESCR(A(b->first)), NPY_NATIVE);
    if (!given)
        return PyArray_DescrFromType(NPY_FLOAT);
    if (pe_is_real(pe_storage_of(given)))
        return PyArray_DescrNewByteorder(PyArray_DESCR(A(given)), NPY_NATIVE);
    pe_wrong_dtype(b, o->name, given, storage_dtypes);
    return NULL;
}

/* ---- shapes ---- */

int pe_shape_of_result(const pe_binding *b, const pe_operand *o, PyObject *given, idx *shape)
{
    int n = 0;
    for (int d = PE_LOOPS - b->nloops; !o->summed && d < PE_LOOPS; d++)
        shape[n++] = b->loops[d];
    for (int k = pe_lacks_heads(b, o); k < o->naxes; k++, n++) {
        const idx length = b->dim[o->axes[k]];
        shape[n] = length != PE_UNKNOWN ? length : given && n < PyArray_NDIM(A(given)) ? PyArray_DIM(A(given), n) : 0;
    }
    if (!o->summed)
        pe_restore_sequence(b, shape, n);
    return n;
}

int pe_check_shape(const pe_binding *b, const char *argument, PyObject *array, const idx *shape, int n)
{
    const int fits = PyArray_NDIM(A(array)) == n && PyArray_CompareLists(PyArray_DIMS(A(array)), shape, n);
    return fits ? 0 : pe_wrong_shape(b, argument, array, shape, n, "", "");
}

/* ---- the caller's array ---- */

static int is_array_without_mask(PyObject *object)
{
    if (!PyArray_Check(object))
        return 0;
    PyObject *name = PyArray_CheckExact(object) ? NULL : pe_name_of_type(Py_TYPE(object));
    const int is_masked = name && PyUnicode_CompareWithASCIIString(name, "MaskedArray") == 0;
    Py_XDECREF(name);
    return !is_masked;
}

/* Check the caller's array for a result of this dtype and shape; -1 with an exception. */
static int check_given(const pe_binding *b, const pe_operand *o, PyObject *out, PyArray_Descr *descr, const idx *shape,
                       int n)
{
    if (PyArray_DESCR(A(out)) != descr && !PyArray_EquivTypes(PyArray_DESCR(A(out)), descr))
        return pe_wrong(PyExc_TypeError, b, o->name, "has dtype %S; expected %S", PyArray_DESCR(A(out)), descr);
    if (pe_check_shape(b, o->name, out, shape, n) < 0)
        return -1;
    if (!PyArray_ISWRITEABLE(A(out)))
        return pe_wrong(PyExc_ValueError, b, o->name, "has read-only memory; expected a writeable array");
    return 0;
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

static int are_apart(PyArrayObject *x, PyArrayObject *y)
{
    const char *first_x, *end_x, *first_y, *end_y;
    find_bounds(x, &first_x, &end_x);
    find_bounds(y, &first_y, &end_y);
    return end_x <= first_y || end_y <= first_x;
}

static int is_same_view(PyArrayObject *x, PyArrayObject *y)
{
    if (PyArray_DATA(x) != PyArray_DATA(y) || !PyArray_SAMESHAPE(x, y))
        return 0;
    for (int d = 0; d < PyArray_NDIM(x); d++) {
        if (PyArray_STRIDE(x, d) != PyArray_STRIDE(y, d))
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

/* Return whether the kernel may write to `out`: whole rows, no byte twice, and none that an input needs. */
static int is_writable_in_place(const pe_binding *b, const pe_operand *o, PyObject *out)
{
    int ready = pe_is_ready(o, out) && (PyArray_IS_C_CONTIGUOUS(A(out)) || has_no_overlap(A(out)));
    for (int i = 0; ready && i < b->ninputs && PyArray_SIZE(A(out)) > 0; i++) {
        PyObject *input = b->input[i];
        ready = PyArray_SIZE(A(input)) == 0 || are_apart(A(out), A(input))
                || (o->in_place && input == b->first && is_same_view(A(out), A(input)));
    }
    return ready;
}

/* ---- memory ---- */

PyObject *pe_allocate(pe_binding *b, PyObject *dtype, int n, idx *shape, int is_zero)
{
    PyArray_Descr *descr = (PyArray_Descr *)dtype;
    Py_INCREF(descr);
    PyObject *array = is_zero ? PyArray_Zeros(n, shape, descr, 0) : PyArray_Empty(n, shape, descr, 0);
    if (!array) {
        PyErr_Clear(); /* MemoryError, or ValueError for a size beyond an address */
        PyObject *tuple = pe_tuple_of(shape, n);
        if (tuple)
            pe_wrong(PyExc_MemoryError, b, "the result", "has shape %S and dtype %S; expected one that fits in memory",
                     tuple, descr);
        Py_XDECREF(tuple);
    }
    Py_DECREF(descr);
    return pe_keep(b, array);
}

/* Check the caller's array, and add the result and the memory that is written to those of the call; the latter is
 * borrowed. NULL with an exception. `is_filled`: the kernel fills the memory, so it may not be any array. */
static PyObject *add_result(pe_binding *b, const pe_operand *o, PyObject *object, int is_filled)
{
    PyObject *given = object == Py_None || object == Py_True ? NULL : object, *written = given;
    idx shape[NPY_MAXDIMS];
    if (given && !is_array_without_mask(given)) {
        pe_wrong_type(b, o->name, given, "a NumPy array");
        return NULL;
    }
    const int n = pe_shape_of_result(b, o, given, shape);
    PyArray_Descr *descr = dtype_of(b, o, given);
    const int status = descr && given ? check_given(b, o, given, descr, shape, n) : 0;
    if (descr && status == 0 && (!given || (is_filled && !is_writable_in_place(b, o, given))))
        written = pe_allocate(b, Py_NewRef((PyObject *)descr), n, shape, o->summed);
    Py_XDECREF((PyObject *)descr);
    if (!descr || status < 0 || !written)
        return NULL;
    b->result[b->noutputs] = given ? given : written;
    b->written[b->noutputs++] = written;
    return written;
}

idx pe_stride_of(PyObject *array, int axis)
{
    return PyArray_DIM(A(array), axis) == 1 ? 0 : PyArray_STRIDE(A(array), axis);
}

int pe_take_output(pe_binding *b, const pe_operand *o, PyObject *object, pe_array *out)
{
    *out = (pe_array){0};
    if (object == Py_None && o->optional)
        return 0;
    PyObject *memory = add_result(b, o, object, 1);
    if (!memory || !(memory = pe_move_sequence(b, o, memory)))
        return -1;
    const int absent = pe_lacks_heads(b, o), loops = PyArray_NDIM(A(memory)) - (o->naxes - absent);
    for (int k = absent; k < o->naxes; k++) {
        b->dim[o->axes[k]] = PyArray_DIM(A(memory), loops + k - absent);
        out->core[k] = pe_stride_of(memory, loops + k - absent);
    }
    for (int d = 0; d < loops; d++)
        out->loop[PE_LOOPS - loops + d] = pe_stride_of(memory, d);
    if (!b->first && o->type == 'r') /* an entry without data: its result decides on the arithmetic */
        b->is_double = pe_storage_of(memory) == PE_F64;
    out->storage = (pe_storage)pe_storage_of(memory);
    out->data = PyArray_BYTES(A(memory));
    b->writes |= PyArray_SIZE(A(memory)) > 0;
    if (o->summed && PyArray_SIZE(A(memory)) > 0) {
        b->summed[b->nsummed++] = (pe_sum){out, (double *)(void *)out->data, PyArray_SIZE(A(memory))};
    }
    return 0;
}

PyObject *pe_read_output(pe_binding *b, const pe_operand *o, PyObject *object)
{
    return add_result(b, o, object, 0) ? b->result[b->noutputs - 1] : NULL;
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

PyObject *pe_results(pe_binding *b)
{
    for (int i = 0; i < b->noutputs; i++) {
        if (b->written[i] != b->result[i] && PyArray_CopyInto(A(b->result[i]), A(b->written[i])) < 0)
            return NULL;
    }
    return b->noutputs == 1 ? Py_NewRef(b->result[0]) : pe_tuple(b->result, b->noutputs);
}
