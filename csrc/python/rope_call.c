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

enum { COS = 1, SIN, OUT, FREQUENCIES = SIN }; /* positions are in the place of COS */

/* Even channels from the offset on, two for each frequency or column of a table */
static int check_channels(const pe_binding *b, const double *par)
{
    const int by_table = b->entry->number == PE_rope, is_given = !isnan(par[ROPE_ROTARY_DIM]);
    const idx width = b->dim['d' - 'A'], e = b->dim['e' - 'A'], offset = (idx)par[ROPE_OFFSET];
    const idx channels = is_given ? (idx)par[ROPE_ROTARY_DIM] : width - offset;
    if (channels % 2 || channels < 2 || channels > width - offset) {
        char expected[96] = "an even rotary_dim";
        if (channels % 2 == 0)
            snprintf(expected, sizeof expected, "2 or more channels from rotary_offset %td to %td", offset, width);
        return is_given ? pe_wrong(PyExc_ValueError, b, "rotary_dim", "is %zd; expected %s", channels, expected)
                        : pe_wrong(PyExc_ValueError, b, "x", "has last axis %zd; expected %s", width, expected);
    }
    if (e == channels / 2)
        return 0;
    return pe_wrong(PyExc_ValueError, b, b->entry->operand[by_table ? COS : FREQUENCIES].name,
                    "has %zd %s; expected rotary_dim // 2 = %zd", e, by_table ? "columns" : "entries", channels / 2);
}

static int check_factor(const pe_binding *b, const double *par)
{
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

int pe_check_rope(const pe_binding *b, const double *par)
{
    return check_channels(b, par) < 0 || (b->entry->number != PE_rope && check_factor(b, par) < 0) ? -1 : 0;
}

/* Make the last loop the axis h if heads share positions, or rows of a table, along it; else h has length 1. */
static void name_heads(pe_call *call)
{
    const int last = call->nloops - 1;
    const int are_shared = last >= 0 && call->array[COS].loop[last] == 0 && call->array[SIN].loop[last] == 0;
    call->dim['h' - 'A'] = are_shared ? call->shape[last] : 1;
    for (int i = 0; i < call->narrays; i++)
        call->array[i].core[2] = are_shared ? call->array[i].loop[last] : 0;
    call->nloops -= are_shared;
}

int pe_run_rope(pe_binding *b, pe_call *call)
{
    double *par = call->par;
    par[ROPE_CALLER_OUT] = b->written[0] == b->argument[OUT];
    if (pe_check_rope(b, par) < 0)
        return -1;
    if (isnan(par[ROPE_OUT_LAYOUT]))
        par[ROPE_OUT_LAYOUT] = par[ROPE_LAYOUT];
    name_heads(call);
    return pe_run_call(b, b->entry->number, call);
}
