/* module.c -- posenc._core: one method for each callable entry of ops.def, and the run-time controls. */
#include "python/bind.h"
#include "runtime/cpu.h"
#include "runtime/dispatch.h"
#include "runtime/pool.h"

#include <string.h>

/* NULL with an exception for a module that was created but not executed */
static pe_table *table_of(PyObject *module)
{
    pe_table *table = PyModule_GetState(module);
    if (!table)
        PyErr_SetString(PyExc_SystemError, "posenc._core: the module is not initialised");
    return table;
}

#define CALLABLE(name, ...)                                                                                  \
    static PyObject *call_##name(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *names) \
    {                                                                                                        \
        pe_table *table = table_of(module);                                                                  \
        return table ? pe_bind(table, PE_##name, args, nargs, names) : NULL;                                 \
    }
#include "ops.def"

/* A method without arguments, and a method with positional arguments. Both return `value`. */
#define GETTER(name, value)                                   \
    static PyObject *name(PyObject *module, PyObject *unused) \
    {                                                         \
        (void)module, (void)unused;                           \
        return value;                                         \
    }

static PyObject *read_operands(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
    pe_table *table = table_of(module);
    return table ? pe_read(table, args, nargs, names) : NULL;
}

static PyObject *set_helpers(PyObject *module, PyObject *functions)
{
    pe_table *table = table_of(module);
    PyObject *reader, *shown;
    if (!table || !PyArg_ParseTuple(functions, "OO", &reader, &shown))
        return NULL;
    Py_CLEAR(table->reader);
    Py_CLEAR(table->shown);
    table->reader = Py_NewRef(reader);
    table->shown = Py_NewRef(shown);
    return Py_NewRef(Py_None);
}

static PyObject *isas(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    PyObject *list = PyList_New(0);
    int failed = !list;
    for (int i = 0; i < pe_isa_count(); i++) {
        PyObject *name = PyUnicode_FromString(pe_isa_name(i));
        failed = failed || !name || (pe_isa_listed(i) && PyList_Append(list, name) < 0);
        Py_XDECREF(name);
    }
    PyObject *names = failed ? NULL : PyList_AsTuple(list);
    Py_XDECREF(list);
    return names;
}

static PyObject *set_isa(PyObject *module, PyObject *name)
{
    (void)module;
    const char *wanted = PyUnicode_AsUTF8AndSize(name, NULL);
    if (!wanted)
        return NULL;
    for (int i = 0; i < pe_isa_count(); i++) {
        if (strcmp(pe_isa_name(i), wanted) == 0 && pe_isa_usable(i)) {
            pe_set_isa(i);
            return Py_NewRef(Py_None);
        }
    }
    return PyErr_Format(PyExc_ValueError, "use_isa: name is %R; expected one of isas()", name);
}

GETTER(isa, PyUnicode_FromString(pe_isa_name(pe_isa())))
GETTER(cpu_best, PyUnicode_FromString(pe_cpu_best()))
GETTER(threads, PyLong_FromLong(pe_threads()))
GETTER(begin_rehearsal, (pe_begin_rehearsal(), Py_NewRef(Py_None)))
GETTER(end_rehearsal, (pe_end_rehearsal(), Py_NewRef(Py_None)))

static PyObject *set_threads(PyObject *module, PyObject *number)
{
    (void)module;
    const long n = PyLong_AsLong(number);
    if (n == -1 && PyErr_Occurred())
        return NULL;
    if (n < 1 || n > MOST_THREADS)
        return PyErr_Format(PyExc_ValueError, "set_num_threads: n is %ld; expected 1 to %d", n, MOST_THREADS);
    pe_set_threads((int)n);
    return Py_NewRef(Py_None);
}

/* Put a new reference into a dict; NULL passes an exception on. */
static int put(PyObject *dict, const char *name, PyObject *value)
{
    const int status = dict && value ? PyDict_SetItemString(dict, name, value) : -1;
    Py_XDECREF(value);
    return status;
}

/* {entry: signature} of ops.def */
static PyObject *signatures_of(const pe_table *table)
{
    PyObject *signatures = PyDict_New();
    for (int number = 0; number < PE_COUNT; number++) {
        const pe_signature *entry = &table->entry[number];
        if (put(signatures, entry->name, PyUnicode_FromString(entry->text)) < 0)
            Py_CLEAR(signatures);
    }
    return signatures;
}

/* {name: value} of constants.def */
static PyObject *all_constants(void)
{
    PyObject *all = PyDict_New(), *tableaus = PyDict_New();
    int failed = 0;
#define CONSTANT(name, value) failed = failed || put(all, #name, PyLong_FromLong(value)) < 0;
#define TABLEAU(name, stages, t1, t2, t3, ...) \
    failed = failed || put(tableaus, #name, Py_BuildValue("i(dddddd)(dddd)", stages, DOUBLES(__VA_ARGS__))) < 0;
#define DOUBLES(a10, a20, a21, a30, a31, a32, b0, b1, b2, b3)                                               \
    (double)(a10), (double)(a20), (double)(a21), (double)(a30), (double)(a31), (double)(a32), (double)(b0), \
        (double)(b1), (double)(b2), (double)(b3)
#include "constants.def"
    if (put(failed ? NULL : all, "TABLEAUS", tableaus) < 0)
        Py_CLEAR(all);
    return all;
}

#ifndef PE_BUILD
#define PE_BUILD "unknown flags"
#endif
#if defined(__clang__)
#define PE_COMPILER __VERSION__ /* it begins with "Clang" */
#else
#define PE_COMPILER "GCC " __VERSION__
#endif

static PyMethodDef methods[] = {
#define CALLABLE(name, signature, ...) \
    {#name, (PyCFunction)(void (*)(void))call_##name, METH_FASTCALL | METH_KEYWORDS, signature},
#include "ops.def"
    {"read", (PyCFunction)(void (*)(void))read_operands, METH_FASTCALL | METH_KEYWORDS,
     "arguments of an entry as arrays, checked as in a call"},
    {"set_helpers", set_helpers, METH_VARARGS,
     "set (reader, shown): what reads other objects than arrays, and shows values in messages"},
    {"isa", isa, METH_NOARGS, "name of the kernel variant in use"},
    {"isas", isas, METH_NOARGS, "names of the compiled variants that this machine can run, slowest first"},
    {"cpu_best", cpu_best, METH_NOARGS, "name of the best variant for this CPU, compiled or not"},
    {"set_isa", set_isa, METH_O, "use the variant of that name"},
    {"begin_rehearsal", begin_rehearsal, METH_NOARGS,
     "check operands but run no kernel on this thread until end_rehearsal"},
    {"end_rehearsal", end_rehearsal, METH_NOARGS, "end the last begin_rehearsal of this thread"},
    {"threads", threads, METH_NOARGS, "most threads of a call"},
    {"set_threads", set_threads, METH_O, "set the most threads of a call"},
    {NULL, NULL, 0, NULL},
};

static int module_exec(PyObject *module)
{
    if (pe_pool_init() < 0) {
        PyErr_NoMemory();
        return -1;
    }
    pe_table *table = PyModule_GetState(module);
    PyObject *names = PyModule_GetDict(module);
    if (pe_bind_init() < 0 || pe_table_read(table) < 0 || pe_run_init(table) < 0)
        return -1;
    return put(names, "TABLE", signatures_of(table)) < 0 || put(names, "CONSTANTS", all_constants()) < 0
                   || put(names, "BUILD", PyUnicode_FromString(PE_COMPILER ", " PE_BUILD)) < 0
               ? -1
               : 0;
}

/* The functions of Python refer to the module, which refers to them. */
static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    const pe_table *table = PyModule_GetState(module);
    if (table) {
        Py_VISIT(table->reader);
        Py_VISIT(table->shown);
    }
    return 0;
}

static int module_clear(PyObject *module)
{
    pe_table *table = PyModule_GetState(module);
    if (table)
        pe_table_free(table);
    return 0;
}

static void module_free(void *module) { module_clear(module); }

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)module_exec},
#ifdef Py_GIL_DISABLED /* no slot of the Limited API of 3.10 */
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "posenc._core",
    .m_doc = "The entries of csrc/ops.def as functions over NumPy arrays. Call them through posenc.",
    .m_size = sizeof(pe_table),
    .m_methods = methods,
    .m_slots = slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&definition); }
