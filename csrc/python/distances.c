/* distances.c -- operators that are functions of the distance, where positions count up by one: attention takes their
 * values as the diagonals of `toeplitz`, n + m - 1 numbers a head, and its gradient returns sums along diagonals, from
 * which the gradients of the operator's arrays follow.
 */
#include "python/bind.h"

#include "python/arrays.h"

#include <string.h>

#include "fits.h"

/* Number of arrays of an operator, which the tile does not supply */
static int count_arrays(const pe_signature *entry)
{
    int n = 0;
    for (int k = 0; k < entry->noperands; k++)
        n += !entry->operand[k].tiled && !entry->operand[k].output;
    return n;
}

/* A call over the distances of n queries and m keys whose arrays are those of an operator, from number `first` on.
 * Then follow the distances, the first of which is that of the last query and key 0. */
static int begin_call(pe_binding *b, const pe_call *of, const pe_operator *o, double shift, int first, pe_call *call)
{
    npy_intp l = max_(of->D(n) + of->D(m) - 1, 0);
    PyObject *rel = pe_keep(b, PyArray_SimpleNew(1, &l, NPY_DOUBLE));
    if (!rel)
        return -1;
    double *distance = PyArray_DATA(A(rel));
    for (npy_intp t = 0; t < l; t++)
        distance[t] = (double)t - ((double)(of->D(n) - 1) + shift);
    memset(call, 0, sizeof *call);
    for (int axis = 0; axis < PE_AXES; axis++)
        call->dim[axis] = axis < PE_OWN_AXES ? o->dim[axis] : PE_UNKNOWN;
    call->D(h) = of->D(h);
    call->D(l) = l;
    const int n = count_arrays(&b->table->entry[o->entry]);
    memcpy(call->array + first, o->array, (size_t)n * sizeof *call->array);
    call->array[first + n] = (pe_array){.data = PyArray_BYTES(A(rel)), .core = {sizeof(double)}, .storage = PE_F64};
    call->narrays = first + n + 1;
    return 0;
}

static pe_array whole(PyObject *array)
{
    pe_array x = {.data = PyArray_BYTES(A(array)), .storage = (pe_storage)pe_storage_of(array)};
    for (int k = 0; k < PyArray_NDIM(A(array)); k++)
        x.core[k] = pe_stride_of(array, k);
    return x;
}

int pe_evaluate_distances(pe_binding *b, pe_call *call, pe_operator *o, double shift)
{
    pe_call values;
    const int type = b->is_double ? NPY_DOUBLE : NPY_FLOAT;
    npy_intp shape[] = {call->D(h), max_(call->D(n) + call->D(m) - 1, 0)};
    PyObject *diagonals = pe_allocate(b, (PyObject *)PyArray_DescrFromType(type), 2, shape, 0);
    if (!diagonals || begin_call(b, call, o, shift, 0, &values) < 0)
        return -1;
    values.array[values.narrays++] = whole(diagonals);
    if (pe_run_summed(b, o->entry, &values, NULL, 0) < 0)
        return -1;
    *o = (pe_operator){.entry = PE_toeplitz, .is_constant = o->is_constant, .array = {whole(diagonals)}};
    for (int axis = 0; axis < PE_OWN_AXES; axis++)
        o->dim[axis] = PE_UNKNOWN;
    call->D(l) = shape[1];
    return 0;
}

/* Sums (batch axes, heads, chunks, l), added over chunks and then over the batch, as (heads, l) */
static PyObject *add_up(pe_binding *b, PyObject *sums, const pe_call *call)
{
    const int rank = PyArray_NDIM(A(sums));
    npy_intp shape[] = {call->D(h), call->D(l)};
    const idx heads = shape[0], l = shape[1], chunks = PyArray_DIM(A(sums), rank - 2);
    const idx batch = heads * l > 0 ? PyArray_SIZE(A(sums)) / (heads * l * chunks) : 0;
    PyObject *total = pe_allocate(b, (PyObject *)PyArray_DescrFromType(NPY_DOUBLE), 2, shape, 1);
    const double *x = PyArray_DATA(A(sums));
    double *y = total ? PyArray_DATA(A(total)) : NULL;
    for (idx i = 0; y && i < batch * heads; i++) {
        for (idx t = 0; t < l; t++) {
            double sum = x[i * chunks * l + t];
            for (idx c = 1; c < chunks; c++)
                sum += x[(i * chunks + c) * l + t];
            y[i % heads * l + t] = i < heads ? sum : y[i % heads * l + t] + sum;
        }
    }
    return total;
}

PyObject *pe_differentiate_distances(pe_binding *b, const pe_call *call, const pe_operator *o, double shift,
                                     PyObject *sums)
{
    const pe_signature *vjp = b->table->entry[o->entry].vjp;
    PyObject *grad = add_up(b, sums, call), *result[PE_OPERATOR_ARRAYS];
    pe_sum summed[PE_OPERATOR_ARRAYS];
    pe_call gradients;
    int n = 0;
    if (!grad || begin_call(b, call, o, shift, 1, &gradients) < 0)
        return NULL;
    gradients.array[0] = whole(grad);
    for (int k = 0; k < vjp->noperands; k++) {
        const pe_operand *output = &vjp->operand[k];
        idx length[PE_CORE];
        if (!output->output)
            continue;
        for (int axis = 0; axis < output->naxes; axis++)
            length[axis] = gradients.dim[output->axes[axis]];
        result[n] = pe_allocate(b, (PyObject *)PyArray_DescrFromType(NPY_DOUBLE), output->naxes, length, 1);
        if (!result[n])
            return NULL;
        pe_array *array = &gradients.array[gradients.narrays++];
        *array = whole(result[n]);
        summed[n] = (pe_sum){array, PyArray_DATA(A(result[n])), PyArray_SIZE(A(result[n]))};
        n++;
    }
    return pe_run_summed(b, vjp->number, &gradients, summed, n) < 0 ? NULL : pe_keep(b, pe_tuple(result, n));
}
