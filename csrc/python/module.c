/* module.c -- posenc._core: one method for each callable row of ops.def, and the run-time controls. */
#include "python/bind.h"
#include "runtime/dispatch.h"
#include "runtime/pool.h"

#include <string.h>

static int state_of(PyObject *module, const pe_table **table)
{
    *table = PyModule_GetState(module);
    return *table ? 0 : -1;
}

#define CALLABLE(name, ...)                                                                  \
    static PyObject *call_##name(PyObject *module, PyObject *const *args, Py_ssize_t nargs)  \
    {                                                                                        \
        const pe_table *table;                                                               \
        return state_of(module, &table) < 0 ? NULL : pe_bind(table, PE_##name, args, nargs); \
    }
#include "ops.def"

static PyObject *isas(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    PyObject *names = PyTuple_New(0);
    for (int i = 0; i < pe_isa_count() && names; i++)
        if (pe_isa_usable(i)) {
            PyObject *one = Py_BuildValue("(s)", pe_isa_name(i));
            PyObject *more = one ? PySequence_Concat(names, one) : NULL;
            Py_XDECREF(one);
            Py_SETREF(names, more);
        }
    return names;
}

static PyObject *isa(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyUnicode_FromString(pe_isa_name(pe_isa()));
}

static PyObject *set_isa(PyObject *module, PyObject *name)
{
    (void)module;
    const char *wanted = PyUnicode_AsUTF8(name);
    if (!wanted)
        return NULL;
    for (int i = 0; i < pe_isa_count(); i++)
        if (strcmp(pe_isa_name(i), wanted) == 0 && pe_isa_usable(i)) {
            pe_set_isa(i);
            Py_RETURN_NONE;
        }
    return PyErr_Format(PyExc_ValueError, "use_isa: name has %R; expected one of isas()", name);
}

static PyObject *threads(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyLong_FromLong(pe_threads());
}

static PyObject *set_threads(PyObject *module, PyObject *number)
{
    (void)module;
    const long n = PyLong_AsLong(number);
    if (n == -1 && PyErr_Occurred())
        return NULL;
    if (n < 1 || n > MOST_THREADS)
        return PyErr_Format(PyExc_ValueError, "set_num_threads: n has %ld; expected 1 to %d", n, MOST_THREADS);
    pe_set_threads((int)n);
    Py_RETURN_NONE;
}

static PyObject *table(PyObject *module, PyObject *unused)
{
    (void)unused;
    const pe_table *rows;
    if (state_of(module, &rows) < 0)
        return NULL;
    PyObject *signatures = PyDict_New();
    for (int op = 0; op < PE_COUNT && signatures; op++) {
        PyObject *signature = PyUnicode_FromString(rows->row[op].signature);
        if (!signature || PyDict_SetItemString(signatures, rows->row[op].name, signature) < 0)
            Py_CLEAR(signatures);
        Py_XDECREF(signature);
    }
    return signatures;
}

/* Put a new reference into a dict; NULL passes an exception on. */
static int put(PyObject *dict, const char *name, PyObject *value)
{
    const int status = value ? PyDict_SetItemString(dict, name, value) : -1;
    Py_XDECREF(value);
    return status;
}

static PyObject *constants(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    PyObject *all = PyDict_New(), *tableaus = PyDict_New();
    int status = all && tableaus ? 0 : -1;
#define CONSTANT(name, value) status = status < 0 ? -1 : put(all, #name, PyLong_FromLong(value));
#define OPTIONS(name, ...) status = status < 0 ? -1 : put(all, #name, PyUnicode_FromString(#__VA_ARGS__));
#define TABLEAU(name, stages, t1, t2, t3, ...) \
    status = status < 0 ? -1 : put(tableaus, #name, Py_BuildValue("i(dddddd)(dddd)", stages, DOUBLES(__VA_ARGS__)));
#define DOUBLES(a, b, c, d, e, f, g, h, i, j)                                                               \
    (double)(a), (double)(b), (double)(c), (double)(d), (double)(e), (double)(f), (double)(g), (double)(h), \
        (double)(i), (double)(j)
#include "constants.def"
    if (status < 0 || PyDict_SetItemString(all, "TABLEAUS", tableaus) < 0)
        Py_CLEAR(all);
    Py_XDECREF(tableaus);
    return all;
}

#ifndef PE_BUILD
#define PE_BUILD "unknown flags"
#endif
#if defined(__clang__)
#define PE_COMPILER __VERSION__ /* says "Clang" itself */
#elif defined(__GNUC__)
#define PE_COMPILER "GCC " __VERSION__
#elif defined(_MSC_VER)
#define PE_COMPILER "MSVC"
#else
#define PE_COMPILER "unknown compiler"
#endif

static PyObject *build(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyUnicode_FromString(PE_COMPILER ", " PE_BUILD);
}

static PyMethodDef methods[] = {
#define CALLABLE(name, signature, ...) {#name, (PyCFunction)(void (*)(void))call_##name, METH_FASTCALL, signature},
#include "ops.def"
    {"isa", isa, METH_NOARGS, "name of the kernel variant in use"},
    {"isas", isas, METH_NOARGS, "names of the variants that this machine can run, slowest first"},
    {"set_isa", set_isa, METH_O, "use the variant of that name"},
    {"threads", threads, METH_NOARGS, "how many threads a call may use"},
    {"set_threads", set_threads, METH_O, "let a call use that many threads"},
    {"table", table, METH_NOARGS, "{row: signature} of ops.def"},
    {"constants", constants, METH_NOARGS, "{name: value} of constants.def"},
    {"build", build, METH_NOARGS, "compiler and flags"},
    {NULL, NULL, 0, NULL},
};

static int module_exec(PyObject *module)
{
    if (pe_pool_init() < 0) {
        PyErr_NoMemory();
        return -1;
    }
    return pe_bind_init() < 0 ? -1 : pe_table_read(PyModule_GetState(module));
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)module_exec},
#if PY_VERSION_HEX >= 0x030D0000
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "posenc._core",
    .m_doc = "The rows of csrc/ops.def as functions over prepared arrays. Call them through posenc.",
    .m_size = sizeof(pe_table),
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&definition); }
