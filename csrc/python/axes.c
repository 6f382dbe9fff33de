/* axes.c -- the axes of an input: the last ones are named in the signature, and all axes before them are loops.
 *
 * A named axis has one length in the whole call. Loops broadcast: freely, or as the words `within` and `beside` say. An
 * array may lack named axes: `broadcast` lets it lack any of the first ones, `shared` the first, which is that of
 * heads; and if q, k and v of attention have two axes, they are one head, and no array of the call needs an axis of
 * heads. The caller's sequence axis may be another than the one before the last (seq_axis).
 */
#include "python/bind.h"

#include "python/arrays.h"

#include <stdio.h>
#include <string.h>

/* What the letters mean in the entries of operators of attention, and in those that take them */
static const char *const words[PE_AXES] = {
    ['h' - 'A'] = "heads",    ['g' - 'A'] = "heads",    ['n' - 'A'] = "queries",  ['m' - 'A'] = "keys",
    ['d' - 'A'] = "channels", ['e' - 'A'] = "channels", ['P' - 'A'] = "channels", ['R' - 'A'] = "rows",
};

int pe_lacks_heads(const pe_binding *b, const pe_operand *o)
{
    return b->is_one_head && o->naxes > 0 && (o->axes[0] == 'h' - 'A' || o->axes[0] == 'g' - 'A');
}

/* How many of its first named axes an array of this rank lacks */
static int count_absent(const pe_binding *b, const pe_operand *o, int rank)
{
    if (o->broadcast)
        return rank < o->naxes ? o->naxes - rank : 0;
    return rank == o->naxes - 1 && (o->shared || pe_lacks_heads(b, o));
}

/* ---- messages ---- */

/* The lengths of the loops so far and of the named axes; returns their number. */
static int whole_shape(const pe_binding *b, const pe_operand *o, idx *shape)
{
    int n = 0;
    for (int d = PE_LOOPS - b->nloops; d < PE_LOOPS; d++)
        shape[n++] = b->loops[d];
    for (int k = pe_lacks_heads(b, o); k < o->naxes; k++)
        shape[n++] = b->dim[o->axes[k]];
    return n;
}

static int wrong_broadcast(const pe_binding *b, const pe_operand *o, PyObject *array)
{
    idx shape[NPY_MAXDIMS];
    char hint[80] = "";
    const int n = whole_shape(b, o, shape), rank = PyArray_NDIM(A(array));
    snprintf(hint, sizeof hint, "%s", b->of_operator);
    if (o->broadcast && n > 2 && rank == b->nloops + 1 && PyArray_DIM(A(array), rank - 1) == shape[n - 1])
        snprintf(hint, sizeof hint, "; pass %s[..., None, None, :] if it masks keys", o->name);
    return pe_wrong_shape(b, o->name, array, shape, n, "a shape that broadcasts to ", hint);
}

/* What was meant, if positions or a table beside x do not have the length of its sequence axis */
static const char *mistaken_for(const pe_binding *b, const pe_operand *o, PyObject *array, idx length)
{
    PyArrayObject *x = A(b->argument[0]);
    const int n = PyArray_NDIM(x);
    if (b->seq_axis == -2 && n > 3 && PyArray_DIM(x, n - 3) == length)
        return "; seq_axis=-3 is that of (..., N, H, D)";
    return o->counted && PyArray_NDIM(A(array)) == n ? "; each array is rotated by a call of its own" : "";
}

static int wrong_length(const pe_binding *b, const pe_operand *o, PyObject *array, int axis, idx letter)
{
    const idx length = PyArray_DIM(A(array), axis), expected = b->dim[letter];
    if (o->broadcast)
        return wrong_broadcast(b, o, array);
    if ((b->entry->has_operators || b->entry->is_operator) && words[letter])
        return pe_wrong(PyExc_ValueError, b, o->name, "has %zd %s%s; expected %zd, as %s", length, words[letter],
                        b->of_operator, expected, b->owner[letter]);
    if (o->beside && letter == 'e' - 'A') /* of a table */
        return pe_wrong(PyExc_ValueError, b, o->name, "has %zd columns; expected %zd, as %s", length, expected,
                        b->owner[letter]);
    if (o->counted || o->beside)
        return pe_wrong(PyExc_ValueError, b, o->name, "has length %zd; expected %zd, the sequence axis of %s%s%s",
                        length, expected, b->entry->operand[0].name,
                        o->counted ? " (an int n means 0..n-1, [p] one position)" : "",
                        o->beside ? mistaken_for(b, o, array, length) : "");
    return pe_wrong(PyExc_ValueError, b, o->name, "has length %zd in axis %d; expected %zd", length, axis, expected);
}

static int wrong_loop(const pe_binding *b, const pe_operand *o, PyObject *array, int axis, int loops)
{
    if (!b->entry->has_operators)
        return pe_wrong(PyExc_ValueError, b, o->name, "has length %zd in axis %d; expected %zd",
                        PyArray_DIM(A(array), axis), axis, b->loops[PE_LOOPS - loops + axis]);
    PyObject *has = pe_tuple_of(PyArray_DIMS(A(array)), loops);
    PyObject *expected = pe_tuple_of(b->loops + PE_LOOPS - b->nloops, b->nloops);
    if (has && expected)
        pe_wrong(PyExc_ValueError, b, o->name, "has batch axes %S; expected batch axes that broadcast against %S", has,
                 expected);
    Py_XDECREF(has);
    Py_XDECREF(expected);
    return -1;
}

/* ---- checks ---- */

static int check_rank(const pe_binding *b, const pe_operand *o, PyObject *array, PyObject *given)
{
    const int absent = count_absent(b, o, PyArray_NDIM(A(array))), rank = PyArray_NDIM(A(array)) + absent;
    const int is_rotated = o == b->entry->operand && o[1].beside, is_table = o->beside && o->naxes == 2;
    const int is_head = b->entry->has_operators && (o->axes[0] == 'h' - 'A' || o->axes[0] == 'g' - 'A') && !o->within;
    if (is_head && rank < o->naxes && o->naxes == 3 && !o->output)
        return pe_wrong(PyExc_ValueError, b, o->name,
                        "has %d axes; expected at least 3, heads, sequence and channels, or 2 axes of %s, for one head",
                        rank, b->entry->operand[2].optional ? "q and k" : "q, k and v");
    if (rank == 0 && o->naxes > 0)
        return pe_wrong_value(PyExc_ValueError, b, o->name, "is", given, "an array with %s%d %s",
                              o->alone ? "" : "at least ", o->naxes, o->naxes == 1 ? "axis" : "axes");
    if (o->alone && o->naxes == 0 && rank > 0)
        return pe_wrong(PyExc_ValueError, b, o->name, "has %d axes; expected one number", rank);
    if (rank < o->naxes || (o->alone && rank > o->naxes))
        return pe_wrong(PyExc_ValueError, b, o->name, "has %d axes; expected %s%d%s", rank, o->alone ? "" : "at least ",
                        o->naxes,
                        is_rotated ? ", a sequence axis and channels"
                        : is_table ? ", positions and pairs"
                                   : "");
    if (rank > o->naxes + PE_LOOPS)
        return pe_wrong(PyExc_ValueError, b, o->name, "has %d axes; expected at most %d", rank, o->naxes + PE_LOOPS);
    return 0;
}

static int take_named_axes(pe_binding *b, const pe_operand *o, PyObject *array, int loops, int absent, pe_array *out)
{
    for (int k = absent; k < o->naxes; k++) {
        const int axis = loops + k - absent;
        const npy_intp length = PyArray_DIM(A(array), axis);
        idx *expected = &b->dim[o->axes[k]];
        if (*expected == PE_UNKNOWN) {
            *expected = length;
            b->owner[o->axes[k]] = o->name;
        }
        if (*expected != length && !(o->broadcast && length == 1))
            return wrong_length(b, o, array, axis, o->axes[k]);
        out->core[k] = pe_stride_of(array, axis);
    }
    for (int k = 0; k < absent; k++) {
        if (b->dim[o->axes[k]] == PE_UNKNOWN && !o->shared) { /* of shared tables, a later one may have heads */
            b->dim[o->axes[k]] = 1;
            b->owner[o->axes[k]] = o->name;
        }
    }
    return 0;
}

/* Check the loops of positions beside x: all loops of x, all but the last (its heads), or none; a length may be 1.
 * Returns how many loops of x follow them, 0 or 1; -1 with an exception. */
static int check_beside(const pe_binding *b, const pe_operand *o, PyObject *array, int loops)
{
    const int n = b->nloops, behind = loops > 0 && loops == n - 1;
    const idx *expected = b->loops + PE_LOOPS - loops - behind;
    const char *const name = b->entry->operand[0].name;
    idx shape[NPY_MAXDIMS];
    int fits = 1;
    if (loops > 0 && loops + behind != n) {
        char without[64] = "";
        if (n > 1)
            snprintf(without, sizeof without, ", or %d without its axis of heads", n + o->naxes - 1);
        return pe_wrong(PyExc_ValueError, b, o->name, "has %d axes; expected %d, or %d to broadcast against %s%s",
                        loops + o->naxes, o->naxes, n + o->naxes, name, without);
    }
    for (int d = 0; d < loops; d++) {
        shape[d] = expected[d];
        fits &= PyArray_DIM(A(array), d) == 1 || PyArray_DIM(A(array), d) == shape[d];
    }
    if (fits)
        return behind;
    for (int d = loops; d < PyArray_NDIM(A(array)); d++)
        shape[d] = PyArray_DIM(A(array), d);
    return pe_wrong_shape(b, o->name, array, shape, loops + o->naxes, "a shape that broadcasts against ", "");
}

static int take_loops(pe_binding *b, const pe_operand *o, PyObject *array, int loops, pe_array *out)
{
    const int behind = o->beside && b->first ? check_beside(b, o, array, loops) : 0;
    if (behind < 0)
        return -1;
    const int within = o->within && b->entry->has_operators;
    if (within && loops > b->nloops)
        return wrong_broadcast(b, o, array);
    for (int d = 0; d < loops; d++) {
        const npy_intp length = PyArray_DIM(A(array), d);
        const int at = PE_LOOPS - loops - behind + d;
        out->loop[at] = pe_stride_of(array, d);
        if (length == b->loops[at] || length == 1)
            continue;
        if (within)
            return wrong_broadcast(b, o, array);
        if (b->loops[at] != 1)
            return wrong_loop(b, o, array, d, loops);
        b->loops[at] = length;
    }
    b->nloops = loops > b->nloops ? loops : b->nloops;
    return 0;
}

/* ---- the sequence axis ---- */

PyObject *pe_move_sequence(pe_binding *b, const pe_operand *o, PyObject *array)
{
    const int n = PyArray_NDIM(A(array));
    const int64_t axis = b->seq_axis + (b->seq_axis < 0 ? n : 0);
    npy_intp order[NPY_MAXDIMS];
    if (b->seq_axis == -2 || (o != b->entry->operand && !o->output))
        return array;
    if (axis < 0 || axis > n - 2) {
        pe_wrong(PyExc_ValueError, b, "seq_axis", "is %lld; expected an axis of %s before the last of its %d",
                 (long long)b->seq_axis, b->entry->operand[0].name, n);
        return NULL;
    }
    for (int d = 0; d < n; d++)
        order[d] = d < axis || d == n - 1 ? d : d == n - 2 ? axis : d + 1;
    return pe_keep(b, PyArray_Transpose(A(array), &(PyArray_Dims){order, n}));
}

void pe_restore_sequence(const pe_binding *b, idx *shape, int n)
{
    const int64_t axis = b->seq_axis + (b->seq_axis < 0 ? n : 0);
    if (n < 2 || axis < 0 || axis > n - 2)
        return;
    const idx length = shape[n - 2];
    memmove(shape + axis + 1, shape + axis, (size_t)(n - 2 - axis) * sizeof *shape);
    shape[axis] = length;
}

/* ---- all of it ---- */

int pe_take_axes(pe_binding *b, const pe_operand *o, PyObject *array, PyObject *given, pe_array *out)
{
    idx shape[NPY_MAXDIMS];
    if (o->whole && pe_check_shape(b, o->name, array, shape, whole_shape(b, o, shape)) < 0)
        return -1;
    if (check_rank(b, o, array, given) < 0 || !(array = pe_move_sequence(b, o, array)))
        return -1;
    const int rank = PyArray_NDIM(A(array)), absent = count_absent(b, o, rank), loops = rank + absent - o->naxes;
    return take_named_axes(b, o, array, loops, absent, out) < 0 ? -1 : take_loops(b, o, array, loops, out);
}

int pe_check_following(const pe_binding *b, const pe_operand *o, PyObject *array)
{
    const pe_operand *lead = b->entry->operand;
    const int own = o->naxes - o->common, n = PyArray_NDIM(A(b->first)) - (lead->naxes - o->common);
    const int axes = PyArray_NDIM(A(array)) - own;
    const npy_intp *shape = PyArray_DIMS(A(b->first)), *length = PyArray_DIMS(A(array));
    int fits = axes <= n;
    if (axes < 0)
        return check_rank(b, o, array, array);
    for (int d = 0; fits && d < axes; d++)
        fits = length[d] == 1 || length[d] == shape[n - axes + d];
    if (fits)
        return 0;
    char after[96];
    snprintf(after, sizeof after, ", the %s of %s%s", lead->naxes == o->common ? "shape" : "leading axes", lead->name,
             own > 0 ? ", and a last axis of any length" : "");
    return pe_wrong_shape(b, o->name, array, shape, n, "a shape that broadcasts to ", after);
}
