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
} pe_operand;

/* The signature of a row of ops.def */
typedef struct {
    const char *name, *text;
    PyObject *key;                             /* the name as Python's interned string */
    PyObject *argument[PE_ARRAYS + PE_PARAMS]; /* likewise the names of the operands, then of the parameters */
    int op, noperands, nparams;
    int is_operator; /* attention takes it in `bias` */
    int is_summed;   /* an output is summed over all rows */
    int has_terms;   /* an operand is a tuple of operators of attention */
    int first_axis;  /* first entry of dim that the row reads: a row without capital axes begins at 'a' */
    pe_operand operand[PE_ARRAYS];
} pe_signature;

typedef struct {
    pe_signature row[PE_COUNT];
} pe_table;

int pe_table_read(pe_table *table);
void pe_table_free(pe_table *table);
/* Units of one loop row, or -1 if lengths and parameters do not fit; nanoseconds of each */
void pe_row_costs(int op, const idx *dim, const double *par, idx *units, double *ns);
/* Elements of an array in its named axes; 0 for an optional operand that is None */
static inline idx pe_elements(const pe_array *array, const pe_operand *o, const idx *dim)
{
    idx n = array->data ? 1 : 0;
    for (int k = 0; k < o->naxes; k++)
        n *= dim[o->axes[k]];
    return n;
}

/* Compute a checked call, unless it writes no element; -1 with an exception. */
int pe_run_call(const char *function, const pe_signature *row, pe_call *call, int is_double, int writes);
int pe_run_init(void);
int pe_bind_init(void); /* loads the NumPy C API */
/* Call a row as _core.<row>(function, name=value, ...) does; `names` is a tuple or NULL, as in vectorcall. */
PyObject *pe_bind(const pe_table *table, int op, PyObject *const *args, Py_ssize_t nargs, PyObject *names);
/* The same with all operands and parameters in the order of the row. */
PyObject *pe_bind_placed(const pe_table *table, int op, PyObject *function, PyObject *const *arguments);
PyObject *pe_rope_plain(const pe_table *table, PyObject *const *args, Py_ssize_t nargs);
PyObject *pe_attention_plain(const pe_table *table, PyObject *const *args, Py_ssize_t nargs);

#endif
