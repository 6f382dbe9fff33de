/* bind.h -- from Python arguments to a checked pe_call, and back with the right exception. */
#ifndef PE_BIND_H
#define PE_BIND_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "posenc.h"

/* One operand of a signature; ops.def explains the types and marks. */
typedef struct {
    char name[20];
    char type;                   /* first letter: real, codes, f64, pos, i64, bool, operators */
    unsigned char axes[PE_CORE]; /* entries of dim */
    int naxes, output, optional, strided, summed, finite, in_tile;
    int counts, ids, alone, follows, copied; /* %, number of ^, :, <, > */
    int at_positions, in_one_part;           /* $, | */
    int shared;                              /* of an operand with <: leading named axes that the first has too */
    int scale;                               /* of `codes`: the operand of its scales */
    int ruled, is_work, in_place;            /* =, *, & */
} pe_operand;

/* A parameter: a number, or a choice of words */
enum { PE_WORDS = 6 };
typedef struct {
    char name[20];
    PyObject *word[PE_WORDS]; /* interned; NULL for a number */
    int nwords;
    int finite, is_integer, is_bool, has_default;
    double value; /* the default */
} pe_parameter;

/* The signature of a row of ops.def */
typedef struct pe_signature {
    const char *name, *text;
    const struct pe_signature *vjp;            /* of an operator: the row whose results are its gradients, or NULL */
    PyObject *key;                             /* the name as Python's interned string */
    PyObject *argument[PE_ARRAYS + PE_PARAMS]; /* likewise the names of the operands, then of the parameters */
    int op, noperands, nparams;
    int is_operator;   /* attention takes it in `bias` */
    int has_operators; /* an operand is a tuple of operators of attention */
    pe_operand operand[PE_ARRAYS];
    pe_parameter parameter[PE_PARAMS];
} pe_signature;

/* The state of the module */
typedef struct {
    pe_signature row[PE_COUNT];
    PyObject *start, *dtype; /* interned names of arguments that every row takes */
    /* Functions of Python: reader(function, argument, value) -> an array, shown(value) -> text for a message,
     * caster(function, argument, array, dtype) -> the array, rounded once to the dtype of a result */
    PyObject *reader, *shown, *caster;
    PyObject *main_thread;  /* threading.main_thread; after a fork it returns the thread that forked */
    PyObject *last_counted; /* 0 .. n-1 of the last call, read-only: a new array takes a tenth of a small call */
} pe_table;

int pe_signature_read(pe_signature *row); /* row->text; -1 with an exception, or if the text is no signature */
void pe_signature_free(pe_signature *row);
int pe_table_read(pe_table *table);
void pe_table_free(pe_table *table);
/* Units of one loop row, or -1 if lengths and parameters do not fit; nanoseconds of each */
void pe_row_costs(int op, const idx *dim, const double *par, idx *units, double *ns);
int pe_run_init(pe_table *table);
int pe_bind_init(void); /* loads the NumPy C API */

/* ---- convert.c ---- */

/* An output that is summed over all rows */
typedef struct {
    pe_array *array;
    double *result; /* its memory; the kernel adds to partial sums instead (run.c) */
    idx length;
} pe_sum;

/* The state of one call: lengths that its operands agree on so far, and arrays that live as long as the call */
typedef struct {
    pe_table *table;
    const char *function;
    int has_real, is_double, nloops, nkept, noutputs, ninputs, nsummed;
    int writes;                           /* an output has an element */
    int reads;                            /* no call: arrays keep their dtypes and layouts */
    int is_quantized;                     /* the operand has scales, so int8 are codes */
    int fills_callers;                    /* the last output is the caller's array */
    double most_position, most_frequency; /* largest magnitudes */
    idx *dim;
    idx loops[PE_LOOPS];    /* right-aligned */
    pe_operator *operators; /* on the heap: sixteen of them would fill the stack of a small thread */
    const pe_operand *lead; /* the first operand of the row */
    PyObject *first;        /* the first real operand as an array, which decides on the dtype of results; or NULL */
    PyObject *dtype;        /* the caller's dtype of results, or NULL */
    PyObject *taken;        /* the array of the last operand */
    PyObject *cotangent;    /* the argument `grad` of a read, or NULL */
    int64_t start;          /* an int n for an operand with % means start .. start + n - 1 */
    /* arrays that no result may overlap; borrowed */
    PyObject *input[PE_ARRAYS + PE_OPERATORS * (PE_OPERATOR_ARRAYS + 2)];
    PyObject *result[PE_ARRAYS], *written[PE_ARRAYS]; /* what is returned, and the memory that the kernel fills */
    PyObject *kept[3 * (PE_ARRAYS + PE_OPERATORS * (PE_OPERATOR_ARRAYS + 2))];
    pe_sum summed[PE_ARRAYS + PE_OPERATORS * PE_OPERATOR_ARRAYS];
    idx sums; /* elements of all of them */
} pe_binding;

enum { PE_UNKNOWN = -1 };
int pe_wrong(PyObject *exception, const pe_binding *a, const char *operand, const char *format, ...);
/* Raise "<function>: <operand> <has> <value>; expected <expected>", with the value as messages show it. */
int pe_wrong_value(PyObject *exception, const pe_binding *a, const char *operand, const char *has, PyObject *value,
                   const char *expected, ...);
int pe_wrong_type(const pe_binding *a, const char *operand, PyObject *object, const char *expected);
/* Clear an exception that says what a value is not (TypeError, ValueError, OverflowError). Returns 0 if it is another
 * one, such as KeyboardInterrupt, which stays. */
int pe_forget_refusal(void);
int pe_storage_of(PyObject *array); /* -1 if kernels do not read its dtype */
int pe_is_storage_dtype(PyObject *descr);
int pe_is_ready(const pe_operand *o, PyObject *array); /* for kernels */
/* An argument that is an array, or an int n for an operand that counts, as it is; else the array that a function of
 * Python reads. Borrowed; NULL with an exception */
PyObject *pe_as_array(pe_binding *a, const pe_operand *o, PyObject *object);
/* The array that an argument is read as, in a dtype that the operand takes; borrowed. NULL with an exception */
PyObject *pe_input(pe_binding *a, const pe_operand *o, PyObject *object);
PyObject *pe_output(pe_binding *a, const pe_operand *o, PyObject *object);
PyObject *pe_keep(pe_binding *a, PyObject *object); /* until the end of the call; NULL stays NULL */
/* An array of this dtype, whose reference it takes; kept too */
PyObject *pe_allocate(pe_binding *a, PyObject *dtype, int n, idx *shape, int is_zero);
PyObject *pe_tuple(PyObject *const *items, int n); /* a new reference; None in place of NULL */
/* Copy results to their places, and return them. */
PyObject *pe_results(pe_binding *a);
int pe_set_helpers(pe_table *table, PyObject *functions); /* (reader, shown, caster) */
/* The shape of a result: the loops of the call and its named axes. A length that no operand has is that of `given`. */
int pe_shape_of_result(const pe_binding *a, const pe_operand *o, PyObject *given, idx *shape);
int pe_check_shape(const pe_binding *a, const char *operand, PyObject *array, const idx *shape, int n);
/* Call a row as _core.<row>(function, name=value, ...) does; `names` is a tuple or NULL, as in vectorcall. Without
 * `function`, messages begin with ": ". */
PyObject *pe_bind(pe_table *table, int op, PyObject *const *args, Py_ssize_t nargs, PyObject *names);
/* Read arguments as _core.<row> does, without a call: _core.read(function, row, name=value, ...) returns their arrays
 * in this order, one array as it is. `row` may be the text of a signature. Reals keep their dtypes and layouts;
 * integers become double. `grad` is the cotangent of the first result, in exactly its shape, for the arithmetic of the
 * row. A result, or None, is checked or allocated as in a call. */
PyObject *pe_read(pe_table *table, PyObject *const *args, Py_ssize_t nargs, PyObject *names);
/* Compute a checked call, unless it writes no element; -1 with an exception. */
int pe_run_call(const pe_binding *a, const pe_signature *row, pe_call *call);
/* ---- rows.c, attention.c ---- */

/* Lengths of axes that only results have, and parameters that the caller left out, from other arguments */
void pe_derive_lengths(int op, idx *dim);
void pe_derive_parameters(int op, pe_call *call);
/* Run a call whose arguments are checked, as one kernel or several; -1 with an exception. */
int pe_run_row(const pe_table *table, const pe_signature *row, pe_call *call, pe_binding *a);
int pe_run_attention(const pe_table *table, const pe_signature *row, pe_binding *a, pe_call *call);
/* Whether attention.c makes the results of a row, whose shapes and dtypes the signature does not tell */
int pe_makes_results(int op);
/* An operand of another call, in which its first `axes` named axes are the last loops */
pe_array pe_loops_over(const pe_array *of, const pe_call *call, int axes);
/* Merge adjacent loop axes if they are one loop for every operand: a dense call has one loop. */
void pe_merge_loops(pe_call *call, const idx *loops, int nloops);

#endif
