/* rope_call.c -- checks of a rotation that its signature does not state, and the parameters that its kernel needs. */
#include "python/bind.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

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

enum { COS = 1, SIN, OUT }; /* or positions and frequencies */

/* Even channels from the offset on, two for each frequency; -1 with an exception */
static int check_rotated_channels(const pe_binding *b, const pe_call *call)
{
    const double *par = call->par;
    const idx width = call->D(d), e = call->D(e), offset = (idx)par[ROPE_OFFSET];
    const int is_given = !isnan(par[ROPE_ROTARY_DIM]);
    const idx channels = is_given ? (idx)par[ROPE_ROTARY_DIM] : width - offset;
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
    if (par[ROPE_FACTOR] == 0)
        return pe_wrong(PyExc_ValueError, b, "attention_factor", "is 0.0; expected a number other than 0");
    if (par[ROPE_INVERSE] != 0 && !b->is_double && fabs(1 / par[ROPE_FACTOR]) > (double)FLT_MAX) {
        PyObject *largest = PyFloat_FromDouble(1 / par[ROPE_FACTOR]);
        if (largest)
            pe_wrong_value(PyExc_ValueError, b, "attention_factor", "is", largest,
                           "at most 3.4e+38 in size, or float64");
        Py_XDECREF(largest);
        return -1;
    }
    return 0;
}

/* Make loop l a named axis whose strides are core[k]; without such a loop, l < 0, the axis has length 1. */
static void name_loop(pe_call *call, int l, char axis, int k)
{
    call->dim[axis - 'A'] = l < 0 ? 1 : call->shape[l];
    for (int i = 0; i < call->narrays; i++)
        call->array[i].core[k] = l < 0 ? 0 : call->array[i].loop[l];
    if (l < 0)
        return;
    for (call->nloops--; l < call->nloops; l++) {
        call->shape[l] = call->shape[l + 1];
        for (int i = 0; i < call->narrays; i++)
            call->array[i].loop[l] = call->array[i].loop[l + 1];
    }
}

/* Heads share positions, or rows of a table, along a loop, which becomes the axis h. Rows of a table have positions
 * along another one. */
static void name_axes(pe_call *call, int by_table)
{
    const idx *first = call->array[COS].loop, *second = call->array[SIN].loop;
    int heads = call->nloops - 1;
    if (by_table && heads > 0 && (first[heads] != 0 || second[heads] != 0))
        heads--;
    if (heads >= 0 && (first[heads] != 0 || second[heads] != 0))
        heads = -1;
    name_loop(call, heads, 'h', 2);
    if (by_table)
        name_loop(call, call->nloops - 1, 'n', 0);
}

int pe_run_rope(pe_binding *b, pe_call *call)
{
    double *par = call->par;
    const int by_table = b->entry->number == PE_rope;
    par[ROPE_CALLER_OUT] = b->written[0] == b->argument[OUT];
    if (!by_table && check_rotated_channels(b, call) < 0)
        return -1;
    if (!by_table && isnan(par[ROPE_OUT_LAYOUT]))
        par[ROPE_OUT_LAYOUT] = par[ROPE_LAYOUT];
    name_axes(call, by_table);
    return pe_run_call(b, b->entry->number, call);
}
