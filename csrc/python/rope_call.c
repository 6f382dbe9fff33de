/* rope_call.c -- a rotation: one kernel if it is small; else a table of all positions, and the rotation by its rows. */
#include "python/bind.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/dispatch.h"
#include "runtime/pool.h"

#include "fits.h"

pe_array pe_loops_over(const pe_array *of, const pe_call *call, int axes)
{
    pe_array array = {.data = of->data, .storage = of->storage};
    for (int l = 0; l < call->nloops; l++)
        array.loop[PE_LOOPS - axes - call->nloops + l] = of->loop[l];
    for (int k = 0; k < PE_CORE; k++)
        *(k < axes ? &array.loop[PE_LOOPS - axes + k] : &array.core[k - axes]) = of->core[k];
    return array;
}

enum { X, POSITIONS, FREQUENCIES, OUT };
enum { LAYOUT, OFFSET, OUT_LAYOUT, INVERSE, FACTOR, ROTARY_DIM };

/* Whether the kernel writes to the caller's array, whose memory is not fresh */
static int fills_callers(const pe_binding *b) { return b->written[0] == b->argument[OUT]; }

/* Even channels from the offset on, two for each frequency; -1 with an exception */
static int check_rotated_channels(const pe_binding *b, const pe_call *call)
{
    const double *par = call->par;
    const idx width = call->D(d), e = call->D(e), offset = (idx)par[OFFSET];
    const int is_given = !isnan(par[ROTARY_DIM]);
    const idx channels = is_given ? (idx)par[ROTARY_DIM] : width - offset;
    if (channels % 2 || channels < 2 || channels > width - offset) {
        char expected[96] = "an even rotary_dim";
        if (channels % 2 == 0)
            snprintf(expected, sizeof expected, "2 or more channels from rotary_offset %td to %td", offset, width);
        return is_given ? pe_wrong(PyExc_ValueError, b, "rotary_dim", "is %zd; expected %s", channels, expected)
                        : pe_wrong(PyExc_ValueError, b, "x", "has last axis %zd; expected %s", width, expected);
    }
    if (e != channels / 2)
        return pe_wrong(PyExc_ValueError, b, "frequencies", "has %zd entries; expected rotary_dim // 2 = %zd", e,
                        channels / 2);
    if (par[FACTOR] == 0)
        return pe_wrong(PyExc_ValueError, b, "attention_factor", "is 0.0; expected a number other than 0");
    if (par[INVERSE] != 0 && !b->is_double && fabs(1 / par[FACTOR]) > (double)FLT_MAX) {
        PyObject *largest = PyFloat_FromDouble(1 / par[FACTOR]);
        if (largest)
            pe_wrong_value(PyExc_ValueError, b, "attention_factor", "is", largest,
                           "at most 3.4e+38 in size, or float64");
        Py_XDECREF(largest);
        return -1;
    }
    return 0;
}

/* The kernel of small rotations makes a table for each row of its loops. */
static int is_small_rotation(const pe_call *call)
{
    enum { MOST_NUMBERS = 1 << 16 };
    const double *par = call->par;
    idx numbers = call->D(n) * call->D(d);
    for (int l = 0; l < call->nloops; l++)
        numbers *= call->shape[l];
    return numbers <= MOST_NUMBERS && par[OFFSET] == 0 && par[OUT_LAYOUT] == par[LAYOUT] && par[INVERSE] == 0
           && par[FACTOR] == 1 && call->D(d) == 2 * call->D(e);
}

static void set_dim(pe_call *call, char axis, idx length) { call->dim[axis - 'A'] = length; }

static int rotate_by_table(const pe_binding *b, const pe_call *rope)
{
    const int is_double = b->is_double, caller_out = fills_callers(b);
    const idx n = rope->D(n), e = rope->D(e), width = 2 * e * (is_double ? (idx)sizeof(double) : (idx)sizeof(float));
    const double factor = rope->par[FACTOR];
    const int interleaved = rope->par[LAYOUT] != 0, out_interleaved = rope->par[OUT_LAYOUT] != 0;
    idx loops[PE_LOOPS], rows = n;
    pe_call first, second;
    if (rope->nloops == PE_LOOPS) {
        PyErr_Format(PyExc_ValueError, "%s: x has too many axes; expected at most %d", b->function, PE_LOOPS + 1);
        return -1;
    }
    memset(&first, 0, sizeof first);
    for (int axis = 0; axis < PE_AXES; axis++)
        first.dim[axis] = PE_UNKNOWN;
    second = first;
    for (int d = 0; d < PE_LOOPS; d++)
        loops[d] = d < PE_LOOPS - 1 - rope->nloops ? 1
                   : d < PE_LOOPS - 1              ? rope->shape[d - (PE_LOOPS - 1 - rope->nloops)]
                                                   : n;
    /* the rotation: x(d), cos(e), sin(e) -> out(d) */
    second.narrays = 4;
    second.array[0] = pe_loops_over(&rope->array[X], rope, 1);
    second.array[3] = pe_loops_over(&rope->array[OUT], rope, 1);
    set_dim(&second, 'd', rope->D(d));
    set_dim(&second, 'e', e);
    const double options[] = {rope->par[OFFSET], interleaved, out_interleaved, caller_out};
    memcpy(second.par, options, sizeof options);
    /* the table: positions(), frequencies(f), lo?(f) -> out(d), of the loops that positions have */
    first.narrays = 4;
    first.array[0] = pe_loops_over(&rope->array[POSITIONS], rope, 1);
    first.array[1] = (pe_array){.data = rope->array[FREQUENCIES].data, .storage = PE_F64, .core = {sizeof(double)}};
    set_dim(&first, 'f', e);
    set_dim(&first, 'd', 2 * e);
    const double columns[] = {(double)e, 0, 1, rope->par[INVERSE] ? -1 / factor : factor,
                              rope->par[INVERSE] ? 1 / factor : factor};
    memcpy(first.par, columns, sizeof columns);
    idx own[PE_LOOPS];
    pe_array entries = {.storage = is_double ? PE_F64 : PE_F32, .core = {is_double ? sizeof(double) : sizeof(float)}};
    rows = 1;
    for (int d = PE_LOOPS - 1; d >= 0; d--) {
        const int has = loops[d] > 1 && first.array[0].loop[d] != 0;
        own[d] = has ? loops[d] : 1;
        entries.loop[d] = has ? rows * width : 0;
        rows *= own[d];
    }
    if (n == 0 || rows == 0)
        return 0;
    size_t size = (size_t)(rows * width);
    char *memory = pe_scratch_take(&size);
    if (!memory) {
        PyErr_NoMemory();
        return -1;
    }
    entries.data = memory;
    first.array[3] = second.array[1] = second.array[2] = entries;
    second.array[2].data += width / 2;
    pe_merge_loops(&first, own, PE_LOOPS);
    pe_merge_loops(&second, loops, PE_LOOPS);
    int status = pe_run_call(b, PE_sinusoid, &first);
    if (status == 0)
        status = pe_run_call(b, PE_rope, &second);
    pe_scratch_give(memory, size);
    return status;
}

int pe_run_rope(pe_binding *b, pe_call *call)
{
    double *par = call->par;
    if (b->entry->number == PE_rope) {
        par[ROPE_CALLER_OUT] = isnan(par[ROPE_CALLER_OUT]) ? fills_callers(b) : par[ROPE_CALLER_OUT];
        return pe_run_call(b, PE_rope, call);
    }
    par[OUT_LAYOUT] = isnan(par[OUT_LAYOUT]) ? par[LAYOUT] : par[OUT_LAYOUT];
    if (check_rotated_channels(b, call) < 0)
        return -1;
    return is_small_rotation(call) ? pe_run_call(b, PE_rope_positions, call) : rotate_by_table(b, call);
}
