/* bind.h -- from Python arguments to a checked pe_call, and back with the right exception. */
#ifndef PE_BIND_H
#define PE_BIND_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "posenc.h"

/* One operand of a signature, read from the text of its row. */
typedef struct {
    char name[20];
    char type;                   /* 'r' real, 'f' f64, 'p' pos, 'i' i64, 'b' bool, '*' tuple of terms */
    unsigned char axes[PE_CORE]; /* places in dim */
    int naxes, output, optional, strided, summed, finite, in_tile;
} pe_operand;

typedef struct {
    const char *name, *signature;
    int op, noperands, nparams;
    int is_operator; /* attention takes it in `bias` */
    int first_axis;  /* the first entry of dim that the row reads: a row without capital axes begins at 'a' */
    pe_operand operand[PE_ARRAYS];
    char param[PE_PARAMS][20];
} pe_row_of_table;

typedef struct {
    pe_row_of_table row[PE_COUNT];
} pe_table;

int pe_table_read(pe_table *table);
/* Units of one loop row, or -1 if lengths and parameters do not fit; nanoseconds of a unit */
void pe_row_costs(int op, const idx *dim, const double *par, idx *units, double *ns);
int pe_bind_init(void); /* loads the NumPy C API */
PyObject *pe_bind(const pe_table *table, int op, PyObject *const *args, Py_ssize_t nargs);

#endif
