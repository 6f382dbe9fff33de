/* signature.c -- ops.def as data: the signatures of its rows, read once when the module is made, and their costs. */
#include "python/bind.h"

#include <stdlib.h>
#include <string.h>

#include "fits.h"

static const struct {
    const char *name, *signature;
    int only_in_attention;
} rows[PE_COUNT] = {
#define CALLABLE(name, signature, ...) {#name, signature, 0},
#define OPERATOR(name, fits, signature) {#name, signature, 1},
#include "ops.def"
};

/* The row whose results are the gradients of an operator; 0 for an operator that has them in its own row */
static const int vjp_of[PE_COUNT] = {
#define DISTANCE(name, ...) [PE_##name] = PE_##name##_vjp,
#define PAIR DISTANCE
#include "ops.def"
};

/* The least cost of a unit. Without it a long call of units without columns would not poll, and not answer Ctrl-C. */
static const double least_ns = 10;

void pe_row_costs(int op, const idx *dim, const double *par, idx *units, double *ns)
{
    switch (op) {
#define CALLABLE(name, signature, units_, ns_, scratch)            \
    case PE_##name:                                                \
        *units = (units_);                                         \
        *ns = (double)(ns_) > least_ns ? (double)(ns_) : least_ns; \
        break;
#define OPERATOR(name, fits, signature) CALLABLE(name, signature, FITS(fits, 0), 0, none)
#include "ops.def"
    default: break;
    }
}

/* Copy the word after spaces at s, of small letters, digits and _; return what follows it. */
static const char *read_word(const char *s, char *word, size_t room)
{
    size_t n = 0;
    s += strspn(s, " ");
    for (; (*s >= 'a' && *s <= 'z') || (*s >= '0' && *s <= '9') || *s == '_'; s++)
        if (n + 1 < room)
            word[n++] = *s;
    word[n] = 0;
    return s;
}

/* Read "type +name(axes)" with its marks (ops.def) before the bracket; return what follows it, or NULL without a
 * ")". */
static const char *read_operand(const char *s, pe_operand *o)
{
    char type[12];
    s = read_word(s, type, sizeof type);
    o->type = type[0];
    s += strspn(s, " ");
    o->summed = *s == '+';
    s = read_word(s + o->summed, o->name, sizeof o->name);
    for (; *s && *s != '('; s++) {
        o->optional |= *s == '?';
        o->strided |= *s == '~';
        o->finite |= *s == '!';
        o->in_tile |= *s == '@';
        o->counts |= *s == '%';
        o->ids += *s == '^';
        o->alone |= *s == ':';
        o->follows |= *s == '<';
        o->copied |= *s == '>';
        o->ruled += *s == '=';
        o->is_work |= *s == '*';
        o->in_place |= *s == '&';
        o->at_positions |= *s == '$';
        o->in_one_part |= *s == '|';
    }
    for (; *s && *s != ')'; s++)
        if (*s != '(' && *s != ',' && o->naxes < PE_CORE)
            o->axes[o->naxes++] = (unsigned char)(*s - 'A');
    return *s ? s + 1 : NULL;
}

/* Intern the name of argument number i; -1 with an exception. */
static int intern(pe_signature *row, int i, const char *name)
{
    row->argument[i] = PyUnicode_InternFromString(name);
    return row->argument[i] ? 0 : -1;
}

/* Read "; name, name!, name=number, name:word|word", the parameters; -1 with an exception or if they are too many. */
static int read_parameters(const char *s, pe_signature *row)
{
    for (; *s; s += strspn(s, " ")) {
        pe_parameter *p = &row->parameter[row->nparams];
        if (row->nparams == PE_PARAMS)
            return -1;
        s = read_word(s + 1, p->name, sizeof p->name); /* after ; or , */
        while (*s == ':' || *s == '|') {
            char word[sizeof p->name];
            s = read_word(s + 1, word, sizeof word);
            if (p->nwords == PE_WORDS || !(p->word[p->nwords++] = PyUnicode_InternFromString(word)))
                return -1;
        }
        p->finite = *s == '!';
        p->is_integer = *s == '#';
        p->is_bool = *s == '?';
        s += p->finite || p->is_integer || p->is_bool;
        p->has_default = *s == '=';
        if (p->has_default) {
            char *end;
            p->value = strtod(s + 1, &end);
            s = end;
        }
        if (intern(row, row->noperands + row->nparams++, p->name) < 0)
            return -1;
    }
    return 0;
}

int pe_signature_read(pe_signature *row)
{
    const char *s = row->text;
    int output = 0, arrays = 0;
    while (s && *s && *s != ';') {
        pe_operand *o = &row->operand[row->noperands];
        if (s[0] == '-' && s[1] == '>') {
            output = 1;
            s += 2;
        } else if (*s == ' ' || *s == ',') {
            s++;
        } else if (row->noperands++ == PE_ARRAYS) {
            return -1;
        } else {
            s = read_operand(s, o);
            if (intern(row, row->noperands - 1, o->name) < 0)
                return -1;
            o->output = output;
            arrays += !o->in_tile;
            row->has_operators |= o->type == 'o';
            row->is_operator |= o->output && o->in_tile;
        }
    }
    for (int k = 0; k < row->noperands; k++) {
        pe_operand *o = &row->operand[k];
        const pe_operand *lead = &row->operand[0];
        while (o->shared < o->naxes && o->shared < lead->naxes && o->axes[o->shared] == lead->axes[o->shared])
            o->shared++;
        for (int j = 0; j < row->noperands; j++) {
            const size_t n = strlen(row->operand[k].name);
            if (strncmp(row->operand[j].name, row->operand[k].name, n) == 0
                && strcmp(row->operand[j].name + n, "_scale") == 0)
                row->operand[k].scale = j;
        }
    }
    return s && read_parameters(s, row) == 0 && (!row->is_operator || arrays <= PE_OPERATOR_ARRAYS) ? 0 : -1;
}

void pe_signature_free(pe_signature *row)
{
    Py_CLEAR(row->key);
    for (int i = 0; i < row->noperands + row->nparams; i++)
        Py_CLEAR(row->argument[i]);
    for (int i = 0; i < row->nparams * PE_WORDS; i++)
        Py_CLEAR(row->parameter[i / PE_WORDS].word[i % PE_WORDS]);
}

void pe_table_free(pe_table *table)
{
    Py_CLEAR(table->start);
    Py_CLEAR(table->dtype);
    Py_CLEAR(table->reader);
    Py_CLEAR(table->shown);
    Py_CLEAR(table->caster);
    Py_CLEAR(table->main_thread);
    Py_CLEAR(table->last_counted);
    for (int op = 0; op < PE_COUNT; op++)
        pe_signature_free(&table->row[op]);
}

int pe_table_read(pe_table *table)
{
    memset(table, 0, sizeof *table);
    table->start = PyUnicode_InternFromString("start");
    table->dtype = PyUnicode_InternFromString("dtype");
    if (!table->start || !table->dtype)
        return -1;
    for (int op = 0; op < PE_COUNT; op++) {
        pe_signature *row = &table->row[op];
        row->op = op;
        row->name = rows[op].name;
        row->text = rows[op].signature;
        row->is_operator = rows[op].only_in_attention;
        row->vjp = vjp_of[op] ? &table->row[vjp_of[op]] : NULL;
        row->key = PyUnicode_InternFromString(row->name);
        if (!row->key || pe_signature_read(row) < 0) {
            if (!PyErr_Occurred())
                PyErr_Format(PyExc_SystemError, "posenc: cannot read the signature of %s", row->name);
            return -1;
        }
    }
    for (int op = 0; op < PE_COUNT; op++) { /* kernels add to the gradients of operators on positions */
        const pe_signature *vjp = table->row[op].vjp;
        for (int k = 0; vjp && k < vjp->noperands; k++) {
            if (vjp->operand[k].output && !vjp->operand[k].summed) {
                PyErr_Format(PyExc_SystemError, "posenc: %s of %s has no +", vjp->operand[k].name, vjp->name);
                return -1;
            }
        }
    }
    return 0;
}
