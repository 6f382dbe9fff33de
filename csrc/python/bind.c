/* bind.c -- a call of _core from top to bottom: arguments by name, then objects, arrays, parameters, kernels, results.
 *
 * A call is _core.<entry>(function, operand=..., parameter=..., ...): `function` is the public name that messages begin
 * with. Below a door of Python (`door` in posenc/_core_api/door.py) it is left out: then messages begin with ": ".
 * Optional operands and results may be left out. Besides, a call takes `dtype`, that of results marked `typed`;
 * `start`, from which an int n counts; `seq_axis`, the axis of the first operand and of results that their signature
 * has before the last; and the length of an axis that only results have, by its letter.
 *
 * All that is wrong about memory (kind, rank, a named length, strides, alignment, writability) is raised below this
 * file, by the name of the argument, before anything is written. Python checks the meaning of arguments.
 */
#include "python/bind.h"

#define PE_LOADS_NUMPY
#include "python/arrays.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- arguments by name ---- */

/* Begin a call for `function`, which may be NULL; its lengths are in dim. -1 with an exception */
static int begin_binding(pe_binding *b, pe_table *table, const pe_signature *entry, PyObject *function, idx *dim)
{
    memset(b, 0, offsetof(pe_binding, input)); /* of the arrays behind it, as much is read as was written */
    b->table = table;
    b->entry = entry;
    b->dim = dim;
    b->seq_axis = -2;
    for (int axis = 0; axis < PE_AXES; axis++)
        dim[axis] = PE_UNKNOWN;
    for (int d = 0; d < PE_LOOPS; d++)
        b->loops[d] = 1;
    b->function = function ? PyUnicode_AsUTF8AndSize(function, NULL) : "";
    return b->function ? 0 : -1;
}

static void end_binding(pe_binding *b)
{
    while (b->nkept > 0)
        Py_DECREF(b->kept[--b->nkept]);
    free(b->operators);
    Py_XDECREF(b->dtype);
}

PyObject *pe_keep(pe_binding *b, PyObject *object)
{
    if (object && b->nkept == PE_MOST_KEPT) {
        PyErr_Format(PyExc_SystemError, "%s: more than %d arrays in a call", b->function, b->nkept);
        Py_CLEAR(object);
    }
    if (object)
        b->kept[b->nkept++] = object;
    return object;
}

int pe_is_kept(const pe_binding *b, PyObject *object)
{
    int i = 0;
    while (i < b->nkept && b->kept[i] != object)
        i++;
    return i < b->nkept;
}

static int read_dtype(pe_binding *b, PyObject *value)
{
    PyArray_Descr *descr = NULL;
    if (value == Py_None)
        return 0;
    if (PyArray_DescrConverter(value, &descr) == NPY_FAIL && !pe_forget_refusal())
        return -1;
    if (descr && pe_is_storage_dtype((PyObject *)descr))
        b->dtype = PyArray_ISNBO(descr->byteorder) ? Py_NewRef((PyObject *)descr)
                                                   : (PyObject *)PyArray_DescrNewByteorder(descr, NPY_NATIVE);
    else
        pe_wrong_value(PyExc_TypeError, b, "dtype", "is", descr ? (PyObject *)descr : value,
                       "float16, bfloat16, float32 or float64");
    Py_XDECREF(descr);
    return b->dtype ? 0 : -1;
}

/* Read an integer of at most 2**53 in size; -1 with an exception. */
static int read_whole(const pe_binding *b, const char *name, PyObject *value, int64_t *number)
{
    int overflow = 0;
    PyObject *whole = NULL;
    if (PyLong_CheckExact(value)) /* the other checks take 10 ns */
        whole = Py_NewRef(value);
    else if (!PyBool_Check(value) && !PyArray_IsScalar(value, Bool))
        whole = PyNumber_Index(value);
    if (!whole)
        return PyErr_Occurred() && !pe_forget_refusal() ? -1 : pe_wrong_type(b, name, value, "an integer");
    *number = PyLong_AsLongLongAndOverflow(whole, &overflow);
    Py_DECREF(whole);
    if (overflow < 0 || *number < -largest_position)
        return pe_wrong_value(PyExc_ValueError, b, name, "is", value, "at least -9007199254740992");
    if (overflow > 0 || *number > largest_position)
        return pe_wrong_value(PyExc_ValueError, b, name, "is", value, "at most 2**53");
    return 0;
}

static int is_same_name(PyObject *name, PyObject *interned)
{
    return name == interned || PyUnicode_Compare(name, interned) == 0;
}

/* Take an argument that is no operand or parameter. */
static int take_setting(pe_binding *b, PyObject *name, PyObject *value)
{
    Py_ssize_t n;
    if (name == b->table->seq_axis) /* most names are interned, and comparisons take longer */
        return read_whole(b, "seq_axis", value, &b->seq_axis);
    if (is_same_name(name, b->table->start))
        return read_whole(b, "start", value, &b->start);
    if (is_same_name(name, b->table->dtype))
        return read_dtype(b, value);
    if (is_same_name(name, b->table->seq_axis))
        return read_whole(b, "seq_axis", value, &b->seq_axis);
    const char *word = PyUnicode_AsUTF8AndSize(name, &n);
    if (!word)
        return -1;
    if (n != 1 || *word < 'A' || *word > 'z') {
        PyErr_Format(PyExc_TypeError, "%s: %U is unknown; expected %s", b->function, name, b->entry->text);
        return -1;
    }
    idx *length = &b->dim[*word - 'A'];
    *length = PyLong_AsSsize_t(value);
    return *length == -1 && PyErr_Occurred() ? -1 : 0;
}

/* Number of the argument with this name, or -1. Names in Python's code are interned as those of the entry are, and
 * usually in its order from `next` on, so the first comparison finds almost every argument. */
static int find_argument(const pe_binding *b, PyObject *name, int next)
{
    PyObject *const *argument = b->entry->argument;
    const int count = b->entry->noperands + b->entry->nparams;
    for (int i = 0; i < count; i++) {
        const int at = next + i < count ? next + i : next + i - count;
        if (argument[at] == name)
            return at;
    }
    if (name == b->table->start || name == b->table->seq_axis || name == b->table->dtype)
        return -1;
    for (int at = 0; at < count; at++) {
        if (PyUnicode_Compare(argument[at], name) == 0) /* a name that is not interned */
            return at;
    }
    return -1;
}

/* Put the values, whose names are given, at the places that the arguments have in the entry. `grad` receives an
 * argument of that name which is no operand, unless it is NULL. */
static int place_arguments(pe_binding *b, PyObject *const *values, PyObject *names, PyObject **grad)
{
    const Py_ssize_t given = names ? PyTuple_Size(names) : 0;
    int next = 0;
    for (Py_ssize_t i = 0; i < given; i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        const int at = find_argument(b, name, next);
        if (at >= 0) {
            b->argument[at] = values[i];
            next = at + 1;
        } else if (grad && is_same_name(name, b->table->grad)) {
            *grad = values[i];
        } else if (take_setting(b, name, values[i]) < 0) {
            return -1;
        }
    }
    return 0;
}

/* Put None at the places of optional operands and of results that were not passed. */
static int fill_places(pe_binding *b)
{
    const pe_signature *entry = b->entry;
    for (int i = 0; i < entry->noperands + entry->nparams; i++) {
        const pe_operand *o = i < entry->noperands ? &entry->operand[i] : NULL;
        if (b->argument[i])
            continue;
        if (o ? !o->optional && !o->output : !entry->parameter[i - entry->noperands].has_default) {
            PyErr_Format(PyExc_TypeError, "%s: %U is missing; expected %s", b->function, entry->argument[i],
                         entry->text);
            return -1;
        }
        b->argument[i] = o ? Py_None : NULL;
    }
    return 0;
}

/* ---- parameters ---- */

static int wrong_choice(const pe_binding *b, const pe_parameter *p, PyObject *x)
{
    PyObject *list = PyUnicode_FromFormat("%R", p->word[0]);
    for (int i = 1; list && i < p->nwords; i++) {
        PyObject *longer = PyUnicode_FromFormat("%U, %R", list, p->word[i]);
        Py_DECREF(list);
        list = longer;
    }
    if (list)
        pe_wrong_value(PyExc_ValueError, b, p->name, "is", x, "one of %U", list);
    Py_XDECREF(list);
    return -1;
}

static int read_choice(const pe_binding *b, const pe_parameter *p, PyObject *x, double *number)
{
    for (int i = 0; PyUnicode_Check(x) && i < p->nwords; i++) {
        if (PyUnicode_Compare(p->word[i], x) == 0) {
            *number = i;
            return 0;
        }
    }
    return wrong_choice(b, p, x);
}

static int read_flag(const pe_binding *b, const pe_parameter *p, PyObject *x, double *number)
{
    if (!PyBool_Check(x) && !PyArray_IsScalar(x, Bool))
        return pe_wrong_type(b, p->name, x, "True or False");
    *number = PyObject_IsTrue(x);
    return 0;
}

/* An integer from 0 to the largest that every double up to it holds */
static int read_integer(const pe_binding *b, const pe_parameter *p, PyObject *x, double *number)
{
    const int is_bool = PyBool_Check(x) || (PyArray_Check(x) && !PyArray_ISINTEGER(A(x)));
    PyObject *whole = is_bool ? NULL : PyNumber_Index(x);
    int overflow = 0;
    if (!whole)
        return !is_bool && !pe_forget_refusal() ? -1 : pe_wrong_type(b, p->name, x, "an integer");
    const long long n = PyLong_AsLongLongAndOverflow(whole, &overflow);
    Py_DECREF(whole);
    if (overflow < 0 || (overflow == 0 && n < 0))
        return pe_wrong_value(PyExc_ValueError, b, p->name, "is", x, "at least 0");
    if (overflow > 0 || n > largest_position)
        return pe_wrong_value(PyExc_ValueError, b, p->name, "is", x, "at most 2**53");
    *number = (double)n;
    return 0;
}

static int read_real(const pe_binding *b, const pe_parameter *p, PyObject *x, double *number)
{
    const int has_axes = PyArray_Check(x) && PyArray_NDIM(A(x)) > 0; /* older NumPys make a float of one entry */
    if (has_axes || PyBool_Check(x) || PyArray_IsScalar(x, Bool))
        return pe_wrong_type(b, p->name, x, "a number");
    *number = PyFloat_AsDouble(x);
    if (*number != -1.0 || !PyErr_Occurred())
        return 0;
    const int is_large = PyErr_ExceptionMatches(PyExc_OverflowError) && PyLong_Check(x);
    if (!pe_forget_refusal())
        return -1;
    return is_large ? pe_wrong(PyExc_ValueError, b, p->name, "has an integer beyond float64; expected a finite number")
                    : pe_wrong_type(b, p->name, x, "a number");
}

/* Read a parameter, or its default. A default of NaN means that it follows from other arguments, and so does None. */
static int read_parameter(const pe_binding *b, const pe_parameter *p, PyObject *x, double *number)
{
    *number = p->value;
    if (!x || (x == Py_None && isnan(p->value)))
        return 0;
    if (p->nwords > 0)
        return read_choice(b, p, x, number);
    if (p->is_flag)
        return read_flag(b, p, x, number);
    return p->is_integer ? read_integer(b, p, x, number) : read_real(b, p, x, number);
}

/* Refuse a number that the arithmetic of the call cannot multiply by. The defaults can be. */
static int check_parameter(const pe_binding *b, const pe_parameter *p, PyObject *x, double number)
{
    if (!x || x == Py_None || !p->is_finite)
        return 0;
    if (!isfinite(number))
        return pe_wrong_value(PyExc_ValueError, b, p->name, "is", x, "a finite number");
    if (!b->is_double && fabs(number) > (double)FLT_MAX)
        return pe_wrong_value(PyExc_ValueError, b, p->name, "is", x, "at most 3.4e+38 in size, or float64");
    return 0;
}

/* ---- a call ---- */

/* Return whether loop axes `outer` and `inner` are one axis of every operand. Strides of operators are not compared. */
static int is_one_loop(const pe_call *call, int outer, int inner, idx length)
{
    for (int k = 0; k < call->narrays; k++)
        if (call->array[k].loop[outer] != call->array[k].loop[inner] * length)
            return 0;
    return call->noperators == 0;
}

void pe_merge_loops(pe_call *call, const idx *loops, int nloops)
{
    int n = 0, from[PE_LOOPS];
    for (int d = PE_LOOPS - nloops; d < PE_LOOPS; d++) {
        if (loops[d] == 1)
            continue;
        const int merges = n > 0 && is_one_loop(call, from[n - 1], d, loops[d]);
        n += !merges;
        call->shape[n - 1] = merges ? call->shape[n - 1] * loops[d] : loops[d];
        from[n - 1] = d;
    }
    call->nloops = n;
    for (int l = 0; l < n; l++) { /* from[l] >= l: no stride is overwritten before it is read */
        for (int k = 0; k < call->narrays; k++)
            call->array[k].loop[l] = call->array[k].loop[from[l]];
        for (int t = 0; t < call->noperators; t++) {
            for (int k = 0; k < PE_OPERATOR_ARRAYS; k++)
                call->operators[t].array[k].loop[l] = call->operators[t].array[k].loop[from[l]];
            for (int side = 0; side < 2; side++)
                call->operators[t].positions[side].loop[l] = call->operators[t].positions[side].loop[from[l]];
        }
    }
}

/* Read all that may run code of the user: objects that are no arrays, and parameters. Pointers into arrays are taken
 * afterwards, because such code may resize the arrays. */
static int read_objects(pe_binding *b, double *par)
{
    const pe_signature *entry = b->entry;
    for (int k = 0; k < entry->noperands; k++) {
        const pe_operand *o = &entry->operand[k];
        if (o->output || o->type == 'o' || (o->optional && b->argument[k] == Py_None))
            continue;
        if (!(b->argument[k] = pe_as_array(b, o, b->argument[k])))
            return -1;
    }
    for (int k = 0; k < entry->nparams; k++) {
        if (read_parameter(b, &entry->parameter[k], b->argument[entry->noperands + k], &par[k]) < 0)
            return -1;
    }
    return 0;
}

/* Take one operand of a call; the operators, and results that attention.c makes, have an empty place. */
static int take_operand(pe_binding *b, const pe_operand *o, PyObject *object, pe_call *call, pe_array *out)
{
    const int is_result = o->output && !pe_makes_results(b->entry->number);
    if (o->type != 'o' && !o->output)
        return pe_take_input(b, o, object, out);
    if (is_result)
        return pe_take_output(b, o, object, out);
    *out = (pe_array){0};
    if (o->type == 'o')
        return pe_take_operators(b, object, &call->noperators);
    return object == Py_None ? 0 : pe_wrong_type(b, o->name, object, "None, because the call makes its results");
}

/* Refuse some of the arrays that a kernel needs together, so that it knows from one of them whether they are there. */
static int check_together(const pe_binding *b)
{
    const char *missing = NULL, *given = NULL;
    for (int k = 0; k < b->entry->noperands; k++) {
        const pe_operand *o = &b->entry->operand[k];
        if (o->together)
            *(b->argument[k] == Py_None ? &missing : &given) = o->name;
    }
    return missing && given
               ? pe_wrong(PyExc_TypeError, b, missing, "is None; expected an array, because %s is one", given)
               : 0;
}

/* In attention, q, k and v of two axes are one head. */
static int is_one_head(const pe_binding *b)
{
    for (int k = 0; k < 3; k++) {
        if (b->argument[k] != Py_None && PyArray_NDIM(A(b->argument[k])) != 2)
            return 0;
    }
    return 1;
}

/* Check what depends on several inputs, of which there are `count`: the positions of a PAIR entry are the last two. */
static int check_inputs(const pe_binding *b, pe_call *call, int count)
{
    if (b->entry->has_operators || call->D(T) < 0)
        return 0;
    call->nloops = PE_LOOPS; /* until they are merged */
    memcpy(call->shape, b->loops, sizeof b->loops);
    return pe_check_ends(b, call, &call->array[count - 2], call->D(T));
}

static int fill_call(pe_binding *b, pe_call *call)
{
    const pe_signature *entry = b->entry;
    call->noperators = 0;
    call->narrays = entry->noperands;
    if (check_together(b) < 0 || read_objects(b, call->par) < 0)
        return -1;
    b->is_one_head = entry->has_operators && is_one_head(b);
    for (int k = 0; k < entry->noperands; k++) {
        const int is_first_output = entry->operand[k].output && k > 0 && !entry->operand[k - 1].output;
        if ((is_first_output && check_inputs(b, call, k) < 0)
            || take_operand(b, &entry->operand[k], b->argument[k], call, &call->array[k]) < 0)
            return -1;
    }
    for (int k = 0; k < entry->nparams; k++) {
        if (check_parameter(b, &entry->parameter[k], b->argument[entry->noperands + k], call->par[k]) < 0)
            return -1;
    }
    call->operators = b->operators;
    pe_merge_loops(call, b->loops, b->nloops);
    return pe_check_angles(b);
}

static int run(pe_binding *b, pe_call *call)
{
    if (b->entry->has_operators)
        return pe_run_attention(b, call);
    if (b->entry->number == PE_rope_positions || b->entry->number == PE_rope)
        return pe_run_rope(b, call);
    return pe_run_call(b, b->entry->number, call);
}

PyObject *pe_bind(pe_table *table, int number, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
    const pe_signature *entry = &table->entry[number];
    PyObject *results = NULL;
    pe_call call;
    pe_binding b;
    if (nargs > 1 || (nargs == 1 && !PyUnicode_Check(args[0])))
        return PyErr_Format(PyExc_TypeError, "_core.%s takes at most a function name, and by name %s", entry->name,
                            entry->text);
    if (begin_binding(&b, table, entry, nargs ? args[0] : NULL, call.dim) < 0)
        return NULL;
    if (place_arguments(&b, args + nargs, names, NULL) == 0 && fill_places(&b) == 0 && fill_call(&b, &call) == 0
        && run(&b, &call) == 0)
        results = pe_results(&b);
    end_binding(&b);
    return results;
}

/* ---- reading without a call ---- */

/* Read the cotangent of the first result of the entry: an array of exactly its shape. */
static PyObject *read_cotangent(pe_binding *b, PyObject *object)
{
    static const pe_operand grad = {.name = "grad", .type = 'r'};
    const pe_operand *result = b->entry->operand;
    npy_intp shape[NPY_MAXDIMS];
    while (!result->output)
        result++;
    const int n = pe_shape_of_result(b, result, NULL, shape);
    PyObject *array = pe_as_array(b, &grad, object);
    array = array ? pe_in_kind(b, &grad, array) : NULL;
    array = array ? pe_in_arithmetic(b, &grad, array) : NULL; /* it is known: float64 narrows, and float32 widens */
    return array && pe_check_shape(b, grad.name, array, shape, n) == 0 ? array : NULL;
}

/* Read what was passed, in the order of the signature, into `array` by the number of the argument. */
static int read_arguments(pe_binding *b, PyObject **array)
{
    const pe_signature *entry = b->entry;
    double par[PE_PARAMS];
    int is_whole = 1;
    for (int k = 0; k < entry->noperands; k++) {
        if (b->argument[k] && !entry->operand[k].output
            && !(array[k] = pe_read_input(b, &entry->operand[k], b->argument[k])))
            return -1;
        is_whole &= entry->operand[k].output || b->argument[k] != NULL;
    }
    for (int k = 0; k < entry->nparams; k++) {
        PyObject *value = b->argument[entry->noperands + k];
        if (read_parameter(b, &entry->parameter[k], value, &par[k]) < 0
            || check_parameter(b, &entry->parameter[k], value, par[k]) < 0)
            return -1;
    }
    if (entry->number == PE_rope_positions && is_whole && pe_check_rope(b, par) < 0)
        return -1;
    for (int k = 0; k < entry->noperands; k++) {
        if (b->argument[k] && entry->operand[k].output
            && !(array[k] = pe_read_output(b, &entry->operand[k], b->argument[k])))
            return -1;
    }
    return 0;
}

/* The arrays in the order of their names: one as it is, or a tuple */
static PyObject *return_arrays(const pe_binding *b, PyObject *names, PyObject *const *array, PyObject *cotangent)
{
    PyObject *ordered[PE_ARRAYS + 1];
    int n = 0;
    for (Py_ssize_t i = 0; i < PyTuple_Size(names); i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        const int at = find_argument(b, name, 0);
        PyObject *one = at >= 0 ? array[at] : is_same_name(name, b->table->grad) ? cotangent : NULL;
        if (one)
            ordered[n++] = one;
    }
    return n == 1 ? Py_NewRef(ordered[0]) : pe_tuple(ordered, n);
}

static PyObject *read_all(pe_binding *b, PyObject *const *values, PyObject *names)
{
    PyObject *array[PE_ARRAYS + PE_PARAMS] = {NULL}, *grad = NULL, *cotangent = NULL;
    if (place_arguments(b, values, names, &grad) < 0 || read_arguments(b, array) < 0)
        return NULL;
    if (grad && !(cotangent = read_cotangent(b, grad)))
        return NULL;
    return return_arrays(b, names, array, cotangent);
}

/* The entry of this name, or the signature in `own` of a text; NULL for neither */
static const pe_signature *find_entry(const pe_table *table, const char *text, pe_signature *own)
{
    if (strchr(text, '(')) {
        *own = (pe_signature){.number = PE_COUNT, .text = text};
        return pe_signature_read(own) < 0 ? NULL : own;
    }
    for (int number = 0; number < PE_COUNT; number++) {
        if (strcmp(table->entry[number].name, text) == 0)
            return &table->entry[number];
    }
    return NULL;
}

PyObject *pe_read(pe_table *table, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
    const char *text = nargs == 1 || nargs == 2 ? PyUnicode_AsUTF8AndSize(args[nargs - 1], NULL) : NULL;
    pe_signature own = {0};
    pe_binding b;
    idx dim[PE_AXES];
    PyObject *arrays = NULL;
    if (!text || !names)
        return PyErr_Format(PyExc_TypeError,
                            "_core.read takes at most a function name, an entry or a signature, and operands");
    const pe_signature *entry = find_entry(table, text, &own);
    if (!entry) {
        PyErr_Format(PyExc_TypeError, "_core.read: %U is no entry and no signature of ops.def", args[nargs - 1]);
    } else if (begin_binding(&b, table, entry, nargs == 2 ? args[0] : NULL, dim) == 0) {
        arrays = read_all(&b, args + nargs, names);
        end_binding(&b);
    }
    pe_signature_free(&own);
    return arrays;
}

int pe_bind_init(void)
{
    import_array1(-1);
    return 0;
}
