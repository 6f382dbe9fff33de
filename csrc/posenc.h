/* posenc.h -- what the binding and the kernels agree on.
 *
 * A call is a row of ops.def filled in: its arrays, its named dimensions, its parameters. The binding
 * checks and fills it (bind.c), the pool cuts its units into blocks (pool.c), a kernel runs one block.
 * Kernels see nothing of Python, allocation, threads or errors, and cannot fail.
 */
#ifndef POSENC_H
#define POSENC_H

#include <stddef.h>
#include <stdint.h>

typedef ptrdiff_t idx; /* every size, stride and offset that leaves a tile */

enum { PE_CORE = 3, PE_LOOPS = 16, PE_ARRAYS = 24, PE_PARAMS = 12, PE_TERMS = 16, PE_TERM_ARRAYS = 10 };
enum { PE_OWN_AXES = 'Z' - 'A' + 1, PE_AXES = 'z' - 'A' + 1 };

#define CONSTANT(name, value) enum { name = value };
#define OPTIONS(name, ...) enum { __VA_ARGS__ };
#include "constants.def"

/* How numbers lie in memory. Arithmetic is in float or double only; the half types are storage. */
typedef enum { PE_F16, PE_BF16, PE_F32, PE_F64, PE_I64, PE_BOOL } pe_storage;

/* Axes of length 1 have stride 0. data is NULL where an optional operand was not given. */
typedef struct {
    char *data;
    idx core[PE_CORE];  /* bytes along its named axes */
    idx loop[PE_LOOPS]; /* bytes along the loop axes; 0 where it broadcasts */
    pe_storage storage;
} pe_array;

/* One position operator inside attention: a row of ops.def and its arrays. */
typedef struct {
    int op;
    idx dim[PE_OWN_AXES]; /* lengths of the row's capital axes */
    pe_array array[PE_TERM_ARRAYS];
    idx size[PE_TERM_ARRAYS]; /* numbers of an array in its named axes */
} pe_term;

typedef struct pe_call pe_call;
struct pe_call {
    idx dim[PE_AXES]; /* length of each axis of the signature, capital letters first; -1 if no operand defines it */
    double par[PE_PARAMS]; /* numbers after the ';', in order */
    int nloops, narrays, nterms;
    idx shape[PE_LOOPS]; /* loop axes: what leading axes broadcast to */
    pe_array array[PE_ARRAYS];
    const pe_term *term;
    int (*stop)(const pe_call *); /* long blocks poll it; nonzero means leave at once */
    void *watch;
};

/* What one thread has while it runs a block. */
typedef struct {
    void *scratch; /* as many bytes as the kernel's `scratch` returns, 64-byte aligned */
    idx block;     /* number of this block: summed outputs have one slot for each */
} pe_work;

/* One row of ops.def in one variant. */
typedef struct {
    /* Run units begin <= u < end. A unit is a loop row, or a part of one if ops.def cuts rows into units. */
    void (*run)(const pe_call *call, idx begin, idx end, const pe_work *work);
    size_t (*scratch)(const idx *dim, const double *par); /* bytes that one thread needs */
} pe_kernel;

/* Length of axis x of the signature. Capitals come first in ASCII, so D(X) reads the dim of a call and of a term. */
#define D(x) dim[(#x)[0] - 'A']
/* Number of blocks of at most b that cover n */
#define BLOCKS(n, b) (((n) + (b)-1) / (b))

#define CALLABLE(name, ...) PE_##name,
#define TERM(name, ...) PE_##name,
enum pe_op {
#include "ops.def"
    PE_COUNT
};

#endif
