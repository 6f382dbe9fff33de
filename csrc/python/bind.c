/* bind.c -- the only code that turns Python objects into a pe_call, for every row of ops.def alike.
 *
 * A call is _core.<row>(function, operand, ..., parameter, ...): `function` is the public name that messages
 * begin with. Whatever is wrong about memory (kind, rank, a named length, strides, alignment, writability) is
 * raised here, by operand name, before anything is written. What arguments mean is checked in Python.
 */
#include "python/bind.h"

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_1_23_API_VERSION
#include <numpy/arrayobject.h>

#include <float.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/dispatch.h"
#include "runtime/pool.h"

/* ---- one operand ---- */

/* What the operands of one call have agreed on so far, and the copies that live as long as the call. */
typedef struct {
    const char *function;
    int has_real, is_double, nloops, ncopies;
    double most_position, most_frequency;
    idx *dim;
    idx loops[PE_LOOPS];
    PyArrayObject *copy[PE_ARRAYS + PE_TERMS * PE_TERM_ARRAYS];
} agreement;

enum { UNKNOWN = -1 };
static const int64_t largest_position = (int64_t)1 << POSITION_BITS;

static int wrong(PyObject *exception, const agreement *a, const char *operand, const char *has, const char *expected)
{
    PyErr_Format(exception, "%s: %s has %s; expected %s", a->function, operand, has, expected);
    return -1;
}

static int wrong_length(const agreement *a, const pe_operand *o, int axis, npy_intp length, idx expected)
{
    PyErr_Format(PyExc_ValueError, "%s: %s has length %zd in axis %d; expected %zd", a->function, o->name,
                 (Py_ssize_t)length, axis, (Py_ssize_t)expected);
    return -1;
}

/* NumPy has no bfloat16 of its own; ml_dtypes registers one, known by its name. */
static int is_bfloat16(PyArrayObject *array)
{
    const char *name = PyArray_DESCR(array)->typeobj->tp_name, *dot = strrchr(name, '.');
    return PyArray_ITEMSIZE(array) == 2 && strcmp(dot ? dot + 1 : name, "bfloat16") == 0;
}

static int storage_of(PyArrayObject *array, pe_storage *storage)
{
    switch (PyArray_TYPE(array)) {
    case NPY_HALF: *storage = PE_F16; return 0;
    case NPY_FLOAT: *storage = PE_F32; return 0;
    case NPY_DOUBLE: *storage = PE_F64; return 0;
    case NPY_INT64: *storage = PE_I64; return 0;
    case NPY_BOOL: *storage = PE_BOOL; return 0;
    default: break;
    }
    if (PyTypeNum_ISSIGNED(PyArray_TYPE(array)) && PyArray_ITEMSIZE(array) == 8) /* long and long long */
        *storage = PE_I64;
    else if (PyTypeNum_ISUSERDEF(PyArray_TYPE(array)) && is_bfloat16(array))
        *storage = PE_BF16;
    else
        return -1;
    return 0;
}

static int check_storage(agreement *a, const pe_operand *o, pe_storage storage)
{
    switch (o->type) {
    case 'f': return storage == PE_F64 ? 0 : wrong(PyExc_TypeError, a, o->name, "another dtype", "float64");
    case 'p':
        return storage == PE_F64 || storage == PE_I64
                   ? 0
                   : wrong(PyExc_TypeError, a, o->name, "another dtype", "int64 or float64");
    case 'i': return storage == PE_I64 ? 0 : wrong(PyExc_TypeError, a, o->name, "another dtype", "int64");
    case 'b': return storage == PE_BOOL ? 0 : wrong(PyExc_TypeError, a, o->name, "another dtype", "bool");
    default: break;
    }
    if (storage > PE_F64)
        return wrong(PyExc_TypeError, a, o->name, "another dtype", "float16, bfloat16, float32 or float64");
    if (!a->has_real)
        a->is_double = storage == PE_F64;
    else if (a->is_double != (storage == PE_F64))
        return wrong(PyExc_TypeError, a, o->name, storage == PE_F64 ? "dtype float64" : "a narrower dtype than float64",
                     a->is_double ? "float64, as the data" : "at most float32, as the data");
    a->has_real = 1;
    return 0;
}

/* One number that an operand must not hold, as a message; or 0, and its size if that is the largest yet. */
static int unfit(const pe_operand *o, const char *p, pe_storage storage, char *has, size_t room, double *most)
{
    int64_t integer;
    double value;
    if (storage == PE_I64) {
        memcpy(&integer, p, sizeof integer);
        if (integer > largest_position || integer < -largest_position) {
            PyOS_snprintf(has, room, "%lld", (long long)integer);
            return 1;
        }
        value = (double)integer;
    } else {
        memcpy(&value, p, sizeof value);
    }
    if (o->finite ? isfinite(value) : fabs(value) <= (double)largest_position) {
        *most = fabs(value) > *most ? fabs(value) : *most;
        return 0;
    }
    PyOS_snprintf(has, room, "%.17g", value);
    return 1;
}

/* Doubles that lie one behind the other, four at a time: the largest size, or a number past `most` if one is */
static double largest_size(const double *x, npy_intp n, double most)
{
    double part[4] = {0};
    npy_intp i = 0;
    int fits = 1;
    for (; i + 4 <= n; i += 4)
        for (int c = 0; c < 4; c++) {
            const double size = fabs(x[i + c]);
            fits &= size <= most; /* not for NaN */
            part[c] = size > part[c] ? size : part[c];
        }
    for (; i < n; i++) {
        fits &= fabs(x[i]) <= most;
        part[0] = fabs(x[i]) > part[0] ? fabs(x[i]) : part[0];
    }
    for (int c = 1; c < 4; c++)
        part[0] = part[c] > part[0] ? part[c] : part[0];
    return fits ? part[0] : HUGE_VAL;
}

static int check_values(agreement *a, const pe_operand *o, PyArrayObject *array, pe_storage storage)
{
    const int ndim = PyArray_NDIM(array);
    const npy_intp size = PyArray_SIZE(array);
    npy_intp at[NPY_MAXDIMS] = {0};
    const char *p = PyArray_BYTES(array);
    double *most = o->finite ? &a->most_frequency : &a->most_position;
    char has[32];
    if (storage == PE_F64 && PyArray_IS_C_CONTIGUOUS(array)) {
        const double largest =
            largest_size((const double *)(const void *)p, size, o->finite ? DBL_MAX : (double)largest_position);
        if (largest < HUGE_VAL) {
            *most = largest > *most ? largest : *most;
            return 0;
        }
    }
    for (npy_intp i = 0; i < size; i++) {
        if (unfit(o, p, storage, has, sizeof has, most))
            return wrong(PyExc_ValueError, a, o->name, has,
                         o->finite ? "finite numbers" : "finite positions of at most 2**53");
        for (int d = ndim - 1; d >= 0; d--) {
            if (++at[d] < PyArray_DIM(array, d)) {
                p += PyArray_STRIDE(array, d);
                break;
            }
            p -= PyArray_STRIDE(array, d) * (PyArray_DIM(array, d) - 1);
            at[d] = 0;
        }
    }
    return 0;
}

/* Beyond the largest angle, sin and cos would be noise. */
static int check_angles(const agreement *a)
{
    static const double largest_angle = (double)((int64_t)1 << ANGLE_BITS);
    char has[32];
    if (a->most_position * a->most_frequency <= largest_angle)
        return 0;
    PyOS_snprintf(has, sizeof has, "%.17g", a->most_frequency);
    return wrong(PyExc_ValueError, a, "frequencies", has, "at most 2**56 radians at the largest position");
}

static idx stride_of(PyArrayObject *array, int axis)
{
    return PyArray_DIM(array, axis) == 1 ? 0 : PyArray_STRIDE(array, axis);
}

/* Kernels read native, aligned numbers, and rows without gaps unless the operand takes any strides. */
static int is_ready(const pe_operand *o, PyArrayObject *array)
{
    const int last = PyArray_NDIM(array) - 1;
    const int dense = o->naxes == 0 || o->strided || PyArray_SIZE(array) == 0 || PyArray_DIM(array, last) == 1
                      || PyArray_STRIDE(array, last) == PyArray_ITEMSIZE(array);
    return dense && PyArray_ISALIGNED(array) && PyArray_ISNOTSWAPPED(array);
}

/* An input of another layout is copied into one that is ready; an output of another layout is an error. */
static PyArrayObject *make_ready(agreement *a, const pe_operand *o, PyArrayObject *array)
{
    if (is_ready(o, array))
        return array;
    if (o->output) {
        wrong(PyExc_ValueError, a, o->name, "unaligned, byte-swapped or scattered memory",
              "native numbers in dense rows");
        return NULL;
    }
    PyArray_Descr *descr = PyArray_DescrNewByteorder(PyArray_DESCR(array), NPY_NATIVE);
    PyArrayObject *copy =
        descr ? (PyArrayObject *)PyArray_FromArray(array, descr, NPY_ARRAY_CARRAY | NPY_ARRAY_ENSURECOPY) : NULL;
    if (copy)
        a->copy[a->ncopies++] = copy;
    return copy;
}

/* Checks one array against its operand and notes it in `out`; loop strides are right-aligned, 0 where absent. */
static int take_operand(agreement *a, const pe_operand *o, PyObject *object, pe_array *out)
{
    memset(out, 0, sizeof *out);
    if (object == Py_None && o->optional)
        return 0;
    if (!PyArray_Check(object))
        return wrong(PyExc_TypeError, a, o->name, Py_TYPE(object)->tp_name, "an array");
    PyArrayObject *array = (PyArrayObject *)object;
    const int ndim = PyArray_NDIM(array), loops = ndim - o->naxes;
    if (storage_of(array, &out->storage) < 0)
        return wrong(PyExc_TypeError, a, o->name, "another dtype", "a storage dtype");
    if (check_storage(a, o, out->storage) < 0)
        return -1;
    if (loops < 0 || (o->summed && loops)) {
        PyErr_Format(PyExc_ValueError, "%s: %s has %d axes; expected %s%d", a->function, o->name, ndim,
                     o->summed ? "" : "at least ", o->naxes);
        return -1;
    }
    if (loops > PE_LOOPS)
        return wrong(PyExc_ValueError, a, o->name, "too many axes", "at most 16 leading axes");
    if (o->output && !PyArray_ISWRITEABLE(array))
        return wrong(PyExc_ValueError, a, o->name, "read-only memory", "a writeable array");
    array = make_ready(a, o, array);
    if (!array)
        return -1;
    for (int k = 0; k < o->naxes; k++) {
        const npy_intp length = PyArray_DIM(array, loops + k);
        idx *expected = &a->dim[o->axes[k]];
        if (*expected == UNKNOWN)
            *expected = length;
        else if (*expected != length)
            return wrong_length(a, o, loops + k, length, *expected);
        out->core[k] = stride_of(array, loops + k);
    }
    if ((o->type == 'p' || o->finite) && check_values(a, o, array, out->storage) < 0)
        return -1;
    for (int d = 0; d < loops; d++) {
        const int loop = PE_LOOPS - loops + d;
        const npy_intp length = PyArray_DIM(array, d);
        out->loop[loop] = stride_of(array, d);
        if (length == a->loops[loop])
            continue;
        if (o->output || (length != 1 && a->loops[loop] != 1))
            return wrong_length(a, o, d, length, a->loops[loop]);
        if (length != 1)
            a->loops[loop] = length;
    }
    if (loops > a->nloops) {
        a->nloops = loops;
    } else if (o->output && !o->summed && loops < a->nloops) {
        PyErr_Format(PyExc_ValueError, "%s: %s has %d axes; expected %d", a->function, o->name, ndim,
                     a->nloops + o->naxes);
        return -1;
    }
    out->data = PyArray_BYTES(array);
    return 0;
}

static idx elements(const pe_array *array, const pe_operand *o, const idx *dim)
{
    idx n = array->data ? 1 : 0;
    for (int k = 0; k < o->naxes; k++)
        n *= dim[o->axes[k]];
    return n;
}

/* The row that an operator of `bias` names in its first element; NULL with an exception if it names none. */
static const pe_row_of_table *row_of_term(const pe_table *table, const agreement *a, PyObject *item)
{
    const char *name =
        PyTuple_Check(item) && PyTuple_GET_SIZE(item) ? PyUnicode_AsUTF8(PyTuple_GET_ITEM(item, 0)) : NULL;
    for (int op = 0; name && op < PE_COUNT; op++)
        if (table->row[op].is_operator && strcmp(name, table->row[op].name) == 0)
            return &table->row[op];
    if (!PyErr_Occurred())
        wrong(PyExc_TypeError, a, "bias", "an unknown operator", "a row of the table");
    return NULL;
}

/* Take the arrays of one operator, (name, array, ...), in the order of its row without what the tile supplies.
 * Gradients may be left out. */
static int take_term(agreement *a, const pe_row_of_table *row, PyObject *item, pe_term *term)
{
    const Py_ssize_t arrays = PyTuple_GET_SIZE(item) - 1;
    int n = 0;
    memset(term, 0, sizeof *term);
    term->op = row->op;
    for (int axis = 0; axis < PE_OWN_AXES; axis++)
        a->dim[axis] = UNKNOWN;
    for (int k = 0; k < row->noperands; k++) {
        const pe_operand *o = &row->operand[k];
        if (o->in_tile || (o->output && n == arrays))
            continue;
        if (n == arrays)
            return wrong(PyExc_TypeError, a, row->name, "too few arrays", row->signature);
        if (take_operand(a, o, PyTuple_GET_ITEM(item, n + 1), &term->array[n]) < 0)
            return -1;
        term->size[n] = elements(&term->array[n], o, a->dim);
        n++;
    }
    if (n < arrays)
        return wrong(PyExc_TypeError, a, row->name, "too many arrays", row->signature);
    memcpy(term->dim, a->dim, sizeof term->dim);
    return 0;
}

static int check_term(const agreement *a, const pe_row_of_table *row)
{
    static const double none[PE_PARAMS] = {0};
    idx units = 0;
    double ns;
    pe_row_costs(row->op, a->dim, none, &units, &ns);
    return units >= 0 ? 0
                      : wrong(PyExc_ValueError, a, row->name, "an array with lengths that do not fit", row->signature);
}

/* Take `bias`, a tuple of operators. Their small axes are those of the call, their capital axes are their own. */
static int take_terms(const pe_table *table, agreement *a, PyObject *object, pe_term *terms, int *count)
{
    if (!PyTuple_Check(object) || PyTuple_GET_SIZE(object) > PE_TERMS)
        return wrong(PyExc_TypeError, a, "bias", "something else", "a tuple of at most 16 operators");
    *count = (int)PyTuple_GET_SIZE(object);
    for (int t = 0; t < *count; t++) {
        PyObject *item = PyTuple_GET_ITEM(object, t);
        const pe_row_of_table *row = row_of_term(table, a, item);
        if (!row || take_term(a, row, item, &terms[t]) < 0 || check_term(a, row) < 0)
            return -1;
    }
    return 0;
}

/* ---- running ---- */

/* The calling thread watches for Ctrl-C: between blocks, and inside long ones where the kernel asks. */
typedef struct {
    PyThreadState *released;
    double next_look;
    int interrupted;
} watch;

static double seconds(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int interrupted(const pe_call *call)
{
    static const double period = 0.05;
    watch *w = call->watch;
    if (w->interrupted)
        return 1;
    const double now = seconds();
    if (now < w->next_look && w->next_look - now <= period)
        return 0;
    w->next_look = now + period;
    PyEval_RestoreThread(w->released);
    w->interrupted = PyErr_CheckSignals() < 0;
    w->released = PyEval_SaveThread();
    return w->interrupted;
}

/* Adjacent loop axes become one where every operand allows it: a dense call has one loop. */
static void set_loops(pe_call *call, pe_term *terms, const agreement *a)
{
    int n = 0;
    idx from[PE_LOOPS];
    for (int d = PE_LOOPS - a->nloops; d < PE_LOOPS; d++) {
        if (a->loops[d] == 1)
            continue;
        int merges = n > 0 && call->nterms == 0;
        for (int k = 0; k < call->narrays && merges; k++)
            merges = call->array[k].loop[from[n - 1]] == call->array[k].loop[d] * a->loops[d];
        if (merges) {
            call->shape[n - 1] *= a->loops[d];
            from[n - 1] = d;
        } else {
            call->shape[n] = a->loops[d];
            from[n++] = d;
        }
    }
    call->nloops = n;
    for (int l = 0; l < n; l++) { /* from[l] >= l: nothing is overwritten before it is read */
        for (int k = 0; k < call->narrays; k++)
            call->array[k].loop[l] = call->array[k].loop[from[l]];
        for (int t = 0; t < call->nterms; t++)
            for (int k = 0; k < PE_TERM_ARRAYS; k++)
                terms[t].array[k].loop[l] = terms[t].array[k].loop[from[l]];
    }
}

/* Outputs that are summed over rows get one double slot per block; slots are added in block order. */
static int run_summed(const pe_row_of_table *row, pe_call *call, pe_job *job)
{
    const idx blocks = BLOCKS(job->units, job->block);
    double *slots[PE_ARRAYS] = {NULL}, *results[PE_ARRAYS] = {NULL};
    int status = PE_DONE;
    for (int k = 0; k < row->noperands && status == PE_DONE; k++) {
        pe_array *array = &call->array[k];
        const idx n = elements(array, &row->operand[k], call->dim);
        if (!row->operand[k].summed || n == 0)
            continue;
        results[k] = (double *)(void *)array->data;
        memset(results[k], 0, (size_t)n * sizeof(double));
        if (blocks > 0) {
            slots[k] = calloc((size_t)(n * blocks), sizeof(double));
            if (!slots[k])
                status = PE_NO_MEMORY;
            array->data = (char *)slots[k];
            array->loop[0] = n * (idx)sizeof(double); /* a kernel finds its slot at data + block * loop[0] */
        }
    }
    if (status == PE_DONE && blocks > 0)
        status = pe_run(job);
    for (int k = 0; k < row->noperands; k++) {
        const idx n = slots[k] ? elements(&call->array[k], &row->operand[k], call->dim) : 0;
        for (idx b = 0; b < blocks && status == PE_DONE; b++)
            for (idx i = 0; i < n; i++)
                results[k][i] += slots[k][b * n + i];
        free(slots[k]);
    }
    return status;
}

static int run(const char *function, int op, const pe_row_of_table *row, pe_call *call, int is_double)
{
    static const double worth_releasing_ns = 10e3, block_ns = 100e3;
    enum { MOST_SLOTS = 64 };
    pe_job job = {.kernel = pe_kernel_of(op, is_double), .call = call};
    pe_row_costs(op, call->dim, call->par, &job.units, &job.ns);
    if (job.units < 0) {
        PyErr_Format(PyExc_ValueError, "%s: an array has lengths that do not fit; expected those of %s", function,
                     row->signature);
        return -1;
    }
    job.scratch = job.kernel->scratch(call->dim, call->par);
    for (int d = 0; d < call->nloops; d++)
        job.units *= call->shape[d];
    int summed = 0;
    for (int k = 0; k < row->noperands; k++)
        summed |= row->operand[k].summed;
    if (job.units == 0 && !summed)
        return 0;
    job.block = job.ns >= block_ns ? 1 : (idx)(block_ns / (job.ns + 1)) + 1;
    if (summed && job.units > job.block * MOST_SLOTS)
        job.block = BLOCKS(job.units, MOST_SLOTS);

    watch w = {NULL, 0, 0};
    const int release = job.ns * (double)job.units > worth_releasing_ns;
    if (release) {
        call->stop = interrupted;
        call->watch = &w;
        w.next_look = seconds() + 0.05;
        w.released = PyEval_SaveThread();
    }
    const int status = summed ? run_summed(row, call, &job) : pe_run(&job);
    if (release)
        PyEval_RestoreThread(w.released);
    if (status == PE_NO_MEMORY)
        PyErr_NoMemory();
    return status == PE_DONE ? 0 : -1;
}

static int fill_call(const pe_table *table, const pe_row_of_table *row, PyObject *const *operands, agreement *a,
                     pe_term *terms, pe_call *call)
{
    for (int axis = row->first_axis; axis < PE_AXES; axis++)
        call->dim[axis] = UNKNOWN;
    for (int d = 0; d < PE_LOOPS; d++)
        a->loops[d] = 1;
    call->nterms = 0;
    call->narrays = row->noperands; /* the tuple of terms has an empty place among them */
    call->term = terms;
    call->stop = NULL;
    call->watch = NULL;
    for (int k = 0; k < row->noperands; k++) {
        const int is_terms = row->operand[k].type == '*';
        if (take_operand(a, &row->operand[k], is_terms ? Py_None : operands[k], &call->array[k]) < 0
            || (is_terms && take_terms(table, a, operands[k], terms, &call->nterms) < 0))
            return -1;
    }
    for (int k = 0; k < row->nparams; k++) {
        call->par[k] = PyFloat_AsDouble(operands[row->noperands + k]);
        if (call->par[k] == -1.0 && PyErr_Occurred())
            return -1;
    }
    set_loops(call, terms, a);
    return check_angles(a);
}

PyObject *pe_bind(const pe_table *table, int op, PyObject *const *args, Py_ssize_t nargs)
{
    const pe_row_of_table *row = &table->row[op];
    pe_term terms[PE_TERMS];
    pe_call call;
    agreement a;
    if (nargs != 1 + row->noperands + row->nparams || !PyUnicode_Check(args[0]))
        return PyErr_Format(PyExc_TypeError, "_core.%s takes a function name and %s", row->name, row->signature);
    a.function = PyUnicode_AsUTF8(args[0]);
    if (!a.function)
        return NULL;
    a.has_real = a.is_double = a.nloops = a.ncopies = 0;
    a.most_position = a.most_frequency = 0;
    a.dim = call.dim;
    const int status =
        fill_call(table, row, args + 1, &a, terms, &call) < 0 ? -1 : run(a.function, op, row, &call, a.is_double);
    while (a.ncopies > 0)
        Py_DECREF(a.copy[--a.ncopies]);
    if (status < 0)
        return NULL;
    Py_RETURN_NONE;
}

int pe_bind_init(void)
{
    import_array1(-1);
    return 0;
}
