/* attention_options.c -- the options of attention: which of them fit each other, and what they mean for its kernels. */
#include "python/bind.h"

#include "python/arrays.h"

#include <math.h>

#include "fits.h"

/* Whether the caller passed an operand */
static int is_given(const pe_binding *b, int operand) { return b->argument[operand] != Py_None; }

/* Check lengths, on which kernels rely; -1 with an exception. */
static int check_lengths(const pe_binding *b, pe_call *call)
{
    const idx heads = call->D(h), groups = call->D(g), n = call->D(n), m = call->D(m);
    if (groups > 0 ? heads % groups != 0 : heads != 0)
        return pe_wrong(PyExc_ValueError, b, "k", "has %zd heads; expected a divisor of the %zd heads of q", groups,
                        heads);
    if (call->D(d) > MOST_WIDTH || call->D(e) > MOST_WIDTH) /* offsets in a tile are ints */
        return pe_wrong(PyExc_ValueError, b, call->D(d) > MOST_WIDTH ? "q" : "v", "has width %zd; expected at most %d",
                        max_(call->D(d), call->D(e)), MOST_WIDTH);
    if (n > largest_position || m > largest_position)
        return pe_wrong(PyExc_ValueError, b, n > largest_position ? "q" : "k",
                        "has sequence axis %zd; expected at most 2**53 positions", max_(n, m));
    call->D(e) = max_(call->D(e), 0); /* logits may have no values */
    return 0;
}

/* ---- positions ---- */

/* Positions of one side are given: those of the other side are 0, 1, 2, .... */
static int count_other_side(pe_binding *b, pe_call *call)
{
    const int other = is_given(b, A_Q_POSITIONS) ? A_K_POSITIONS : A_Q_POSITIONS;
    return pe_count_positions(b, other == A_Q_POSITIONS ? call->D(n) : call->D(m), 0, &call->array[other]);
}

/* Whether an operator is another one if all positions, of queries and of keys, move by the same offset */
static int is_bound(const pe_binding *b, const pe_operator *o)
{
    const int own = (o->positions[0].data != NULL) + (o->positions[1].data != NULL);
    return own == 1 || (own == 0 && b->table->entry[o->entry].kind == PE_PAIR);
}

/* Replace positions that count up by one by the shift of the queries, if nothing tells them apart. */
static void shift_queries(const pe_binding *b, pe_call *call)
{
    pe_array *q = &call->array[A_Q_POSITIONS], *k = &call->array[A_K_POSITIONS];
    for (int t = 0; t < call->noperators; t++) {
        if (is_bound(b, &call->operators[t]))
            return;
    }
    if (pe_shift_of(call, q, k, &call->par[A_SHIFT]))
        q->data = k->data = NULL;
}

/* Whether the call needs distances: for its window, or for an operator that reads the positions of the call */
static int needs_distances(const pe_binding *b, const pe_call *call)
{
    int needs = call->par[A_LOW] > -HUGE_VAL || call->par[A_HIGH] < HUGE_VAL;
    for (int t = 0; t < call->noperators; t++) {
        const pe_operator *o = &call->operators[t];
        needs |= b->table->entry[o->entry].reads_positions && !(o->positions[0].data && o->positions[1].data);
    }
    return needs;
}

/* Set the positions of the call, or the shift of the queries; -1 with an exception. */
static int place_queries(pe_binding *b, pe_call *call)
{
    static const char *const words[] = {"start", "end"};
    const idx n = call->D(n), m = call->D(m);
    const double align = call->par[A_ALIGN];
    const int sides = is_given(b, A_Q_POSITIONS) + is_given(b, A_K_POSITIONS);
    call->par[A_SHIFT] = align == 1 ? (double)(m - n) : 0;
    if (sides > 0 && !isnan(align))
        return pe_wrong(PyExc_ValueError, b, "align", "is '%s'; expected None where positions are given",
                        words[(int)align]);
    if (sides == 1 && count_other_side(b, call) < 0)
        return -1;
    if (sides > 0)
        shift_queries(b, call);
    if (sides > 0 || n == m || !isnan(align) || !needs_distances(b, call))
        return 0;
    return pe_wrong(PyExc_ValueError, b, "align",
                    "is None; expected 'start', or 'end' as in decoding, because N = %zd and M = %zd differ", n, m);
}

/* ---- numbers ---- */

/* Whether the caller passed a parameter */
static int has_value(const pe_binding *b, int parameter)
{
    PyObject *value = b->argument[b->entry->noperands + parameter];
    return value && value != Py_None;
}

/* Check a parameter that the caller passed, or its default; -1 with an exception. */
static int check(const pe_binding *b, int parameter, int fits, const char *expected)
{
    PyObject *value = b->argument[b->entry->noperands + parameter];
    return fits ? 0
                : pe_wrong_value(PyExc_ValueError, b, b->entry->parameter[parameter].name, "is",
                                 value ? value : Py_None, "%s", expected);
}

static int set_scale(const pe_binding *b, pe_call *call)
{
    double *scale = &call->par[A_SCALE];
    if (isnan(*scale))
        *scale = pow(call->D(d) > 0 ? (double)call->D(d) : 1, -0.5);
    return check(b, A_SCALE, b->is_double || fabs(*scale) <= 0x1p127, /* kernels multiply it by log2(e) */
                 "at most 1.7e+38 in size, or float64");
}

/* Set the cap so that it and its inverse are finite, which changes no result, and the probability of dropout as the
 * kernels draw it, of 16 bits. */
static int set_numbers(const pe_binding *b, pe_call *call)
{
    double *par = call->par;
    const double largest = b->is_double ? 1e300 : 1e37, drawn = 0x1p16;
    const int caps = has_value(b, A_SOFTCAP);
    if (check(b, A_SOFTCAP, !caps || (par[A_SOFTCAP] > 0 && isfinite(par[A_SOFTCAP])), "a positive number or None") < 0
        || check(b, A_DROPOUT, par[A_DROPOUT] >= 0 && par[A_DROPOUT] < 1, "a probability from 0 to below 1") < 0)
        return -1;
    if (isnan(par[A_SEED_LOW]) && par[A_DROPOUT] > 0)
        return pe_wrong(PyExc_ValueError, b, "seed", "is None; expected an integer, because dropout is not 0");
    par[A_SOFTCAP] = !caps ? 0 : fmin(fmax(par[A_SOFTCAP], 1 / largest), largest);
    par[A_DROPOUT] = fmin(nearbyint(par[A_DROPOUT] * drawn), drawn - 1) / drawn;
    par[A_HIGH] = par[A_CAUSAL] != 0 ? fmin(par[A_HIGH], 0) : par[A_HIGH];
    return 0;
}

/* logits have a scale alone; all other options are off. */
static void set_options_of_logits(pe_call *call)
{
    for (int k = A_SCALE + 1; k < A_SHIFT; k++)
        call->par[k] = 0;
    call->par[A_LOW] = -HUGE_VAL;
    call->par[A_HIGH] = HUGE_VAL;
    call->par[A_ALIGN] = NAN;
}

int pe_set_options(pe_binding *b, pe_call *call)
{
    const int is_attention = b->entry->number == PE_attention || b->entry->number == PE_attention_vjp;
    const int has_q = is_given(b, A_Q_SEGMENTS), has_k = is_given(b, A_K_SEGMENTS);
    if (!is_attention) {
        set_options_of_logits(call);
        if (!is_given(b, A_Q_POSITIONS) && !is_given(b, A_K_POSITIONS))
            call->par[A_ALIGN] = 1; /* the queries are the last keys */
    }
    if (check_lengths(b, call) < 0 || set_scale(b, call) < 0 || (is_attention && set_numbers(b, call) < 0))
        return -1;
    if (has_q != has_k)
        return pe_wrong(PyExc_ValueError, b, has_q ? "k_segments" : "q_segments",
                        "is None; expected segments of both queries and keys");
    return place_queries(b, call) < 0 ? -1 : pe_place_operators(b, call);
}
