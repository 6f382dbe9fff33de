/* posenc.h -- the structures that the binding and the kernels share.
 *
 * A call is an entry of ops.def with its arrays, lengths and parameters. The binding checks and fills it (bind.c), the
 * pool cuts its units into blocks (pool.c), and a kernel runs one block. Kernels know nothing of Python, memory
 * management, threads or errors, and cannot fail.
 */
#ifndef POSENC_H
#define POSENC_H

#if !defined(__clang__) && (!defined(__GNUC__) || __GNUC__ < 12)
#error "posenc is written in GNU C with vectors: compile it with GCC 12 or later, or clang (clang-cl on Windows)"
#endif

#include <stddef.h>
#include <stdint.h>

typedef ptrdiff_t idx; /* sizes, strides and offsets of arrays; inside a tile, int is enough */

/* Most named axes and loop axes of an array, arrays and parameters of a call, operators of a call and their arrays */
enum { PE_CORE = 3, PE_LOOPS = 16, PE_ARRAYS = 28, PE_PARAMS = 16, PE_OPERATORS = 16, PE_OPERATOR_ARRAYS = 10 };
enum { PE_OWN_AXES = 'Z' - 'A' + 1, PE_AXES = 'z' - 'A' + 1 };

#define CONSTANT(name, value) enum { name = value };
#include "constants.def"

/* Storage of numbers. Arithmetic is in float or double; the half types are storage only. PE_I8 are codes, whose rows
 * have scales in another array. */
typedef enum { PE_F16, PE_BF16, PE_F32, PE_F64, PE_I64, PE_I8, PE_BOOL } pe_storage;

/* An array of a call. An axis of length 1 has stride 0; data is NULL if an optional operand is None. */
typedef struct {
    char *data;
    idx core[PE_CORE];  /* bytes from one element of a named axis to the next */
    idx loop[PE_LOOPS]; /* the same for the loop axes; 0 if the array broadcasts along the axis */
    pe_storage storage;
} pe_array;

/* An operator of attention: its entry in ops.def, its arrays, its own positions of queries and keys, if it does not
 * read those of the call, and the results of its entry <name>_vjp, if the caller wants these gradients */
typedef struct {
    int entry, is_constant; /* is_constant: the caller does not want its gradients */
    pe_array positions[2];
    idx dim[PE_OWN_AXES]; /* lengths of the entry's capital axes */
    pe_array array[PE_OPERATOR_ARRAYS];
    pe_array gradient[PE_OPERATOR_ARRAYS];
} pe_operator;

/* Instructions that multiply bfloat16 numbers, by their names as variants (dispatch.h). A call has one, or none. */
enum { PE_AVX512BF16, PE_AMX, PE_AMX_EMULATED, PE_PRODUCTS };
struct pe_product; /* of kernels/bf16/products.h */
struct pe_bf16;    /* of kernels/tile/bf16.h */
typedef struct {
    void (*begin)(void), (*end)(void); /* set and release what a thread needs before it multiplies; NULL: nothing */
    void (*multiply)(const struct pe_product *);
    int most_terms;                  /* numbers split into more terms than this are multiplied faster as reals */
    const struct pe_bf16 *attention; /* what attention calls */
} pe_products;

/* How a call of attention is computed. csrc/python/attention.c sets the mode and the chunks. Then pe_kernel.plan sets
 * the rest, which depends on the instruction set, once for a call (kernels/attention/plan.h). */
typedef enum {
    PE_ATTEND,
    PE_LOGITS, /* the sum of the operators, without q.k, cap and softmax */
    PE_ATTEND_VJP,
    PE_SHARED_VJP, /* only the gradient of a dense bias that heads or rows of the batch share */
    PE_LOGITS_VJP
} pe_mode;
typedef struct {
    pe_mode mode;
    idx head_chunks, block_chunks; /* of the work of a kv head in the gradient */
    int decodes;                   /* decode.c computes the call */
    int heads_together;            /* heads that share keys and that decode.c computes together */
    int bf16;                      /* products of 16-bit numbers (tile/bf16.h) */
    int blocks_together;           /* most blocks of queries that visit each tile of keys together */
} pe_plan;

typedef struct pe_call pe_call;
struct pe_call {
    idx dim[PE_AXES]; /* length of each axis of the signature, capital letters first; -1 if no operand defines it */
    double par[PE_PARAMS]; /* parameters, in the order of the signature */
    int nloops, narrays, noperators;
    idx shape[PE_LOOPS]; /* lengths of the loop axes, to which all arrays broadcast */
    pe_array array[PE_ARRAYS];
    pe_operator *operators;
    const pe_products *products;  /* attention of 16-bit queries only; NULL: the kernel multiplies reals */
    pe_plan plan;                 /* of attention and its gradient */
    int (*stop)(const pe_call *); /* polled by long blocks, if not NULL; nonzero means return at once */
    void *watch;                  /* what `stop` looks at */
};

/* Bytes of the last-level cache that a core can count on. Virtual machines report a cache that they share. */
enum { PE_LAST_CACHE = 32 << 20 };

/* A block's number and the memory of the thread that runs it */
typedef struct {
    void *scratch; /* as many bytes as `scratch` of the kernel returns, 64-byte aligned */
    idx block;     /* summed outputs have partial sums for each block */
    int slow_l3;   /* 1 if a core reads L3 so slowly that a kernel should keep its data in L2 */
} pe_work;

/* One entry of ops.def in one variant */
typedef struct {
    /* Run units begin <= u < end. Units are loop rows, or pieces of them if ops.def cuts rows into units. */
    void (*run)(const pe_call *call, idx begin, idx end, const pe_work *work);
    size_t (*scratch)(const pe_call *call); /* bytes that one thread needs */
    void (*plan)(pe_call *call);            /* to be called before the others, unless NULL */
} pe_kernel;

/* Length of axis x of the signature. Capitals come first in ASCII, so D(X) is one of a call or of an operator. */
#define D(x) dim[(#x)[0] - 'A']
/* Number of blocks of at most b that cover n */
#define BLOCKS(n, b) (((n) + (b)-1) / (b))
static inline __attribute__((always_inline)) idx min_(idx a, idx b) { return a < b ? a : b; }
static inline __attribute__((always_inline)) idx max_(idx a, idx b) { return a > b ? a : b; }

#define CALLABLE(name, ...) PE_##name,
#define OPERATOR(name, ...) PE_##name,
enum pe_entry {
#include "ops.def"
    PE_COUNT
};

#endif
