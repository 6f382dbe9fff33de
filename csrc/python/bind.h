/* bind.h -- from Python arguments to a checked pe_call, and back with the right exception.
 *
 *     signature.c   what an entry of ops.def asks of its arguments
 *     bind.c        the call from top to bottom: arguments by name, and parameters
 *     input.c       an argument as the array that a kernel reads
 *     axes.c        its axes: names, loops, one head
 *     output.c      memory for a result, and the caller's array for it
 *     operators.c   the operators of attention
 *     distances.c   those that are functions of the distance
 *     messages.c    exceptions
 *     attention_options.c   options of attention that follow from others
 *     rope_call.c, attention.c   the calls of kernels that an entry becomes
 *     run.c         a call on the pool, without the interpreter's lock
 */
#ifndef PE_BIND_H
#define PE_BIND_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "posenc.h"

static const int64_t largest_position = (int64_t)1 << POSITION_BITS;

/* ---- signature.c ---- */

/* One operand of a signature. The words are explained where they are read. */
typedef struct {
    char name[20];
    char type;                   /* first letter: real, codes, f64, pos, i64, bool, operators */
    unsigned char axes[PE_CORE]; /* entries of dim */
    signed char naxes, output;   /* all of an operand in a line of the cache */
    signed char optional, together, finite, scattered, counted, ids, pair_ids;
    signed char alone, following, within, whole, beside, broadcast, shared, masking;
    signed char typed, like_first, work, in_place, summed;
    signed char tiled, derived, gathered, ordered;
    signed char common; /* leading named axes that the first operand has, too */
    signed char scale;  /* of `codes`: the operand of its scales */
} pe_operand;

/* A parameter: a number, or a choice of words */
enum { PE_WORDS = 6 };
typedef struct {
    char name[20];
    PyObject *word[PE_WORDS]; /* interned; NULL for a number */
    int nwords;
    signed char is_finite, is_integer, is_flag, has_default;
    double value; /* the default */
} pe_parameter;

/* Kinds of operators, as in ops.def */
enum { PE_NO_KIND, PE_DISTANCE, PE_PAIR, PE_POSITION, PE_CONTENT };

/* The signature of an entry of ops.def */
typedef struct pe_signature {
    const char *name, *text;
    const struct pe_signature *vjp;            /* of an operator: the entry whose results are its gradients, or NULL */
    PyObject *key;                             /* the name as Python's interned string */
    PyObject *argument[PE_ARRAYS + PE_PARAMS]; /* likewise the names of the operands, then of the parameters */
    int number, noperands, nparams;
    int is_operator;           /* attention takes it in `bias` */
    int kind, reads_positions; /* of an operator */
    int has_operators;         /* an operand is a tuple of operators of attention */
    pe_operand operand[PE_ARRAYS];
    pe_parameter parameter[PE_PARAMS];
} pe_signature;

/* The state of the module */
typedef struct {
    pe_signature entry[PE_COUNT];
    PyObject *start, *seq_axis, *dtype, *grad; /* interned names of arguments that every entry takes, or every read */
    PyObject *reader, *shown; /* functions of Python: reader(function, argument, value) -> an array; shown(value) ->
                                     * text for a message */
    PyObject *main_thread;    /* threading.main_thread; after a fork it returns the thread that forked */
    PyObject *last_counted;   /* 0 .. n-1 of the last call, read-only: a new array takes a tenth of a small call */
} pe_table;

int pe_signature_read(pe_signature *entry); /* entry->text; -1 with an exception, or if the text is no signature */
void pe_signature_free(pe_signature *entry);
int pe_table_read(pe_table *table);
void pe_table_free(pe_table *table);
/* Units of one loop row, or -1 if lengths and parameters do not fit; nanoseconds of each */
void pe_entry_costs(int number, const idx *dim, const double *par, idx *units, double *ns);

/* ---- a call while its arguments are read ---- */

enum { PE_UNKNOWN = -1 };
enum { PE_MOST_INPUTS = PE_ARRAYS + PE_OPERATORS * (PE_OPERATOR_ARRAYS + 2) };
enum { PE_MOST_KEPT = 3 * PE_MOST_INPUTS };

/* An output that is summed over all rows */
typedef struct {
    pe_array *array;
    double *result; /* its memory; the kernel adds to partial sums instead (run.c) */
    idx length;
} pe_sum;

typedef struct {
    pe_table *table;
    const pe_signature *entry;
    const char *function;                      /* public name, with which messages begin */
    PyObject *argument[PE_ARRAYS + PE_PARAMS]; /* as the entry has them; NULL or None: left out */
    PyObject *dtype;                           /* the caller's dtype of results, or NULL */
    int64_t start, seq_axis;                   /* an int n means start .. start + n - 1; the axis of the sequence */

    idx *dim;                             /* lengths of the named axes so far */
    idx loops[PE_LOOPS];                  /* and of the loop axes, right-aligned */
    int nloops, is_double;                /* is_double: the arithmetic */
    int is_one_head;                      /* q, k and v have no axis of heads */
    const char *owner[PE_AXES];           /* the operand that set a length */
    char of_operator[32];                 /* " (name)" of the operator that is read, or "" */
    double most_position, most_frequency; /* largest magnitudes */
    PyObject *first;                      /* the first real operand, which decides on arithmetic and results; or NULL */
    pe_operator *operators;     /* on the heap: sixteen of them would fill the stack of a small thread. Then as many
                                 * as they were before they were evaluated */
    double shift[PE_OPERATORS]; /* of the queries of those, if their positions count up by one */
    int ninputs, noutputs, nkept, nsummed;
    int writes; /* an output has an element */

    PyObject *input[PE_MOST_INPUTS];                  /* arrays that no result may overlap; borrowed */
    PyObject *result[PE_ARRAYS], *written[PE_ARRAYS]; /* what is returned, and the memory that the kernel fills */
    PyObject *kept[PE_MOST_KEPT];                     /* objects that live as long as the call */
    pe_sum summed[PE_ARRAYS + PE_OPERATORS * PE_OPERATOR_ARRAYS];
} pe_binding;

/* ---- bind.c ---- */

/* Call an entry as _core.<entry>(function, name=value, ...) does; `names` is a tuple or NULL, as in vectorcall. Without
 * `function`, messages begin with ": ". */
PyObject *pe_bind(pe_table *table, int number, PyObject *const *args, Py_ssize_t nargs, PyObject *names);
/* Read arguments as _core.<entry> does, without a call: _core.read(function, entry, name=value, ...) returns their
 * arrays in this order, one array as it is. `entry` may be the text of a signature. Reals keep their dtypes and
 * layouts; integers become double. `grad` is the cotangent of the first result, in exactly its shape, for the
 * arithmetic of the entry. A result, or None, is checked or allocated as in a call. */
PyObject *pe_read(pe_table *table, PyObject *const *args, Py_ssize_t nargs, PyObject *names);
PyObject *pe_keep(pe_binding *b, PyObject *object); /* until the end of the call; NULL stays NULL */
int pe_is_kept(const pe_binding *b, PyObject *object);
/* Merge adjacent loop axes if they are one loop for every operand: a dense call has one loop. */
void pe_merge_loops(pe_call *call, const idx *loops, int nloops);
int pe_bind_init(void); /* loads the NumPy C API */

/* ---- input.c ---- */

/* An argument that is an array, or an int n for an operand that counts, as it is; else the array that a function of
 * Python reads. Borrowed; NULL with an exception */
PyObject *pe_as_array(pe_binding *b, const pe_operand *o, PyObject *object);
/* Describe the array of an argument for kernels in `out`; -1 with an exception. */
int pe_take_input(pe_binding *b, const pe_operand *o, PyObject *object, pe_array *out);
/* The array of an argument, checked as in a call; borrowed. NULL with an exception */
PyObject *pe_read_input(pe_binding *b, const pe_operand *o, PyObject *object);
/* An array in a dtype that the operand takes, and in that of the arithmetic; borrowed. NULL with an exception */
PyObject *pe_in_kind(pe_binding *b, const pe_operand *o, PyObject *array);
PyObject *pe_in_arithmetic(pe_binding *b, const pe_operand *o, PyObject *array);
int pe_is_ready(const pe_operand *o, PyObject *array); /* for kernels */
int pe_check_angles(const pe_binding *b);

/* ---- axes.c ---- */

/* Check the axes of an input, and set its strides in `out`. A message shows `given`, the caller's number. */
int pe_take_axes(pe_binding *b, const pe_operand *o, PyObject *array, PyObject *given, pe_array *out);
/* Refuse an array that does not broadcast to the loops of the first operand, and to the named axes that both have. */
int pe_check_following(const pe_binding *b, const pe_operand *o, PyObject *array);
int pe_lacks_heads(const pe_binding *b, const pe_operand *o); /* arrays of a call of one head lack their first axis */
/* A view of the first operand, or of a result, whose axis before the last is the caller's `seq_axis`; borrowed */
PyObject *pe_move_sequence(pe_binding *b, const pe_operand *o, PyObject *array);
void pe_restore_sequence(const pe_binding *b, idx *shape, int n); /* the shape of a result as the caller has it */

/* ---- output.c ---- */

/* Describe memory for a result in `out`: the caller's array if a kernel can write to it, else new memory. `object` is
 * the caller's array, None or True. Returns -1 with an exception. */
int pe_take_output(pe_binding *b, const pe_operand *o, PyObject *object, pe_array *out);
/* Likewise without a description; the result is returned, borrowed. NULL with an exception */
PyObject *pe_read_output(pe_binding *b, const pe_operand *o, PyObject *object);
/* An array of this dtype, whose reference it takes; kept too */
PyObject *pe_allocate(pe_binding *b, PyObject *dtype, int n, idx *shape, int is_zero);
/* The shape of a result: the loops of the call and its named axes. A length that no operand has is that of `given`. */
int pe_shape_of_result(const pe_binding *b, const pe_operand *o, PyObject *given, idx *shape);
int pe_check_shape(const pe_binding *b, const char *argument, PyObject *array, const idx *shape, int n);
/* Copy results to their places, and return them. */
PyObject *pe_results(pe_binding *b);
PyObject *pe_tuple(PyObject *const *items, int n); /* a new reference; None in place of NULL */
int pe_storage_of(PyObject *array);                /* -1 if kernels do not read its dtype */
int pe_is_real(int storage);
int pe_is_storage_dtype(PyObject *descr);
idx pe_stride_of(PyObject *array, int axis); /* 0 along an axis of length 1 */

/* ---- operators.c ---- */

/* Take `bias`, a tuple of operators of attention; -1 with an exception. */
int pe_take_operators(pe_binding *b, PyObject *object, int *count);
/* Set the positions that operators read, and evaluate those of distance where positions count up by one; -1 with an
 * exception. */
int pe_place_operators(pe_binding *b, pe_call *call);
/* Refuse positions `at` of queries and keys, unless they are integers from 0 and below `end` or `end` is -1; -1 with an
 * exception. Without a pair none is read. */
int pe_check_ends(const pe_binding *b, const pe_call *call, const pe_array *at, int64_t end);
int pe_count_positions(pe_binding *b, idx n, int64_t first, pe_array *out); /* first, first + 1, ... */
/* Whether positions of queries and keys count up by one; then `shift` is set: query i is at i + shift if key j is at
 * j */
int pe_shift_of(const pe_call *call, const pe_array *q, const pe_array *k, double *shift);

/* ---- distances.c ---- */

/* Evaluate an operator of distance, whose queries are at i + shift, into diagonals, and let it be `toeplitz` in the
 * call; -1 with an exception. */
int pe_evaluate_distances(pe_binding *b, pe_call *call, pe_operator *o, double shift);
/* The gradients of such an operator, from the sums along diagonals that the call returns; a tuple, borrowed. NULL with
 * an exception */
PyObject *pe_differentiate_distances(pe_binding *b, const pe_call *call, const pe_operator *o, double shift,
                                     PyObject *sums);

/* ---- messages.c ---- */

/* Raise "<function>: <argument> <text of the format>". All of these return -1. */
int pe_wrong(PyObject *exception, const pe_binding *b, const char *argument, const char *format, ...);
/* Raise "<function>: <argument> <has> <value>; expected <expected>", with the value as messages show it; NULL passes an
 * exception on. */
int pe_wrong_value(PyObject *exception, const pe_binding *b, const char *argument, const char *has, PyObject *value,
                   const char *expected, ...);
int pe_wrong_type(const pe_binding *b, const char *argument, PyObject *object, const char *expected);
int pe_wrong_dtype(const pe_binding *b, const char *argument, PyObject *array, const char *expected);
/* Raise "<function>: <argument> has shape <one>; expected <before><other><after>". */
int pe_wrong_shape(const pe_binding *b, const char *argument, PyObject *array, const idx *shape, int n,
                   const char *before, const char *after);
/* Clear an exception that says what a value is not (TypeError, ValueError, OverflowError). Returns 0 if it is another
 * one, such as KeyboardInterrupt, which stays. */
int pe_forget_refusal(void);
PyObject *pe_tuple_of(const idx *shape, int n);
PyObject *pe_name_of_type(PyTypeObject *type); /* the Limited API has no field for it */

/* ---- run.c, rope_call.c, attention.c ---- */

/* Compute a checked call, unless it writes no element; -1 with an exception. */
int pe_run_call(const pe_binding *b, int number, pe_call *call);
/* Likewise a call whose summed outputs are these, not those of the binding */
int pe_run_summed(const pe_binding *b, int number, pe_call *call, const pe_sum *summed, int count);
int pe_run_init(pe_table *table);
/* Run a rotation as one kernel or two, or a call of attention and its relatives; -1 with an exception. */
int pe_run_rope(pe_binding *b, pe_call *call);
/* Check the channels of a rotation, and its factor; -1 with an exception. */
int pe_check_rope(const pe_binding *b, const double *par);
int pe_run_attention(pe_binding *b, pe_call *call);
/* Set the options of attention that follow from others, and positions; -1 with an exception. */
int pe_set_options(pe_binding *b, pe_call *call);
/* Whether attention.c makes the results of an entry, whose shapes and dtypes the signature does not tell */
int pe_makes_results(int number);
idx pe_count_batch(const pe_call *call); /* rows of the batch, over all loops */
/* The first byte of an array in a row of the batch */
char *pe_in_batch(const pe_call *call, const pe_array *x, idx row);
/* An operand of another call, in which its first `axes` named axes are the last loops */
pe_array pe_loops_over(const pe_array *of, const pe_call *call, int axes);

#endif
