/* signature.c -- ops.def as data: the signatures of its entries, read once when the module is made, and their costs. */
#include "python/bind.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "fits.h"

static const struct {
    const char *name, *signature;
    int only_in_attention;
} entries[PE_COUNT] = {
#define CALLABLE(name, signature, ...) {#name, signature, 0},
#define OPERATOR(name, fits, signature) {#name, signature, 1},
#include "ops.def"
};

/* The entry whose results are the gradients of an operator; 0 for an operator that has them in its own */
static const int vjp_of[PE_COUNT] = {
#define DISTANCE(name, ...) [PE_##name] = PE_##name##_vjp,
#define PAIR DISTANCE
#include "ops.def"
};

static const char kind_of[PE_COUNT] = {
#define DISTANCE(name, ...) [PE_##name] = PE_DISTANCE,
#define PAIR(name, ...) [PE_##name] = PE_PAIR,
#define POSITION(name, ...) [PE_##name] = PE_POSITION,
#define CONTENT(name, ...) [PE_##name] = PE_CONTENT,
#include "ops.def"
};

/* A word of a signature, and the member that it sets */
typedef struct {
    const char *word;
    size_t member;
} pe_word;

/* The words that may follow an operand:
 *
 *     optional    may be left out or None
 *     together    likewise, but with all operands that have this word, or with none of them
 *     finite      no NaN and no infinity; its products with positions are angles of at most 2**56
 *     scattered   any stride along every axis; otherwise the last axis has no gaps
 *     counted     an int n means start .. start + n - 1
 *     ids         numbers of a table's rows: from 0 and below the length r
 *     pair_ids    likewise, below r * r
 *     alone       has no axes before the named ones
 *     following   broadcasts to the first operand: its loops, and the named axes with which both begin
 *     within      its loops broadcast to those of the operands before it
 *     whole       it has the loops of the operands before it, in full
 *     beside      has the loops of the first operand, all but the last (that of heads), or none
 *     broadcast   the first named axes may be left out, and any may have length 1
 *     shared      the first named axis may be left out
 *     masking     numbers below the range of the arithmetic are minus infinity
 *     typed       a result in the dtype of the first operand, or in the `dtype` of the call
 *     like_first  a result in the dtype of the first operand
 *     work        in the dtype of the arithmetic, which half types are not
 *     in_place    a result that may be the first operand itself
 *     summed      a float64 result that is summed over all loops, from 0
 * Of operators of attention:
 *     tiled       inside attention the tile supplies the operand or takes the result
 *     derived     made in Python: no array of the operator, without a gradient
 *     gathered    attention_vjp returns sums of dS over keys and over queries; Python adds them by position
 *     ordered     counts visible keys from the last one, so the keys of a head are never cut into parts
 */
static const pe_word operand_words[] = {
    {"optional", offsetof(pe_operand, optional)},   {"together", offsetof(pe_operand, together)},
    {"finite", offsetof(pe_operand, finite)},       {"scattered", offsetof(pe_operand, scattered)},
    {"counted", offsetof(pe_operand, counted)},     {"ids", offsetof(pe_operand, ids)},
    {"pair_ids", offsetof(pe_operand, pair_ids)},   {"alone", offsetof(pe_operand, alone)},
    {"following", offsetof(pe_operand, following)}, {"within", offsetof(pe_operand, within)},
    {"beside", offsetof(pe_operand, beside)},       {"broadcast", offsetof(pe_operand, broadcast)},
    {"shared", offsetof(pe_operand, shared)},       {"masking", offsetof(pe_operand, masking)},
    {"typed", offsetof(pe_operand, typed)},         {"like_first", offsetof(pe_operand, like_first)},
    {"work", offsetof(pe_operand, work)},           {"in_place", offsetof(pe_operand, in_place)},
    {"summed", offsetof(pe_operand, summed)},       {"whole", offsetof(pe_operand, whole)},
    {"tiled", offsetof(pe_operand, tiled)},         {"derived", offsetof(pe_operand, derived)},
    {"gathered", offsetof(pe_operand, gathered)},   {"ordered", offsetof(pe_operand, ordered)},
};

/* The words that may follow the name of a parameter, besides choices such as half|interleaved */
static const pe_word parameter_words[] = {
    {"integer", offsetof(pe_parameter, is_integer)}, /* from 0 to 2**53 */
    {"flag", offsetof(pe_parameter, is_flag)},       /* True or False */
    {"finite", offsetof(pe_parameter, is_finite)},   /* a number that the arithmetic of the call can multiply by */
};

/* The least cost of a unit. Without it a long call of units without columns would not poll, and not answer Ctrl-C. */
static const double least_ns = 10;

void pe_entry_costs(int op, const idx *dim, const double *par, idx *units, double *ns)
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

/* ---- reading a text ---- */

static const char *skip_spaces(const char *s) { return s + strspn(s, " "); }

/* Copy the word of letters, digits and _ after spaces at s; return what follows it and further spaces. */
static const char *read_word(const char *s, char *word, size_t room)
{
    size_t n = 0;
    s = skip_spaces(s);
    for (; (*s >= 'a' && *s <= 'z') || (*s >= '0' && *s <= '9') || *s == '_'; s++)
        if (n + 1 < room)
            word[n++] = *s;
    word[n] = 0;
    return skip_spaces(s);
}

/* Set the member of an operand or a parameter that a word names; -1 for an unknown word. */
static int set_word(void *record, const pe_word *words, size_t count, const char *word)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(words[i].word, word) == 0) {
            *((signed char *)record + words[i].member) = 1;
            return 0;
        }
    }
    return -1;
}

/* Read "type name(axes) word word ..."; return what follows, or NULL for a text that is none. */
static const char *read_operand(const char *s, pe_operand *o)
{
    char word[20];
    s = read_word(s, word, sizeof word);
    o->type = word[0];
    s = read_word(s, o->name, sizeof o->name);
    if (!o->type || !*o->name || *s != '(')
        return NULL;
    for (s++; *s && *s != ')'; s++) {
        if (*s != ',' && o->naxes < PE_CORE)
            o->axes[o->naxes++] = (unsigned char)(*s - 'A');
    }
    if (!*s)
        return NULL;
    for (s = read_word(s + 1, word, sizeof word); *word; s = read_word(s, word, sizeof word)) {
        if (set_word(o, operand_words, sizeof operand_words / sizeof *operand_words, word) < 0)
            return NULL;
    }
    o->optional |= o->together;
    return s;
}

/* Intern the name of argument number i; -1 with an exception. */
static int intern(pe_signature *entry, int i, const char *name)
{
    entry->argument[i] = PyUnicode_InternFromString(name);
    return entry->argument[i] ? 0 : -1;
}

/* Read the rest of "choice|choice|...", of which `word` is the first; return what follows, or NULL. */
static const char *read_choices(const char *s, char *word, size_t room, pe_parameter *p)
{
    for (;;) {
        if (p->nwords == PE_WORDS || !(p->word[p->nwords++] = PyUnicode_InternFromString(word)))
            return NULL;
        if (*s != '|')
            return s;
        s = read_word(s + 1, word, room);
    }
}

/* Read "name", "name: word" or "name: choice|choice", each with or without " = number"; return what follows, or
 * NULL. */
static const char *read_parameter(const char *s, pe_parameter *p)
{
    char word[sizeof p->name];
    s = read_word(s, p->name, sizeof p->name);
    if (*s == ':') {
        s = read_word(s + 1, word, sizeof word);
        if (*s == '|')
            s = read_choices(s, word, sizeof word, p);
        else if (set_word(p, parameter_words, sizeof parameter_words / sizeof *parameter_words, word) < 0)
            return NULL;
    }
    p->has_default = s && *s == '=';
    if (p->has_default) {
        char *end;
        p->value = strtod(s + 1, &end);
        s = skip_spaces(end);
    }
    return *p->name ? s : NULL;
}

/* Read the operands up to the end or a semicolon; return what follows, or NULL. */
static const char *read_operands(const char *s, pe_signature *entry)
{
    int output = 0;
    for (s = skip_spaces(s); s && *s && *s != ';'; s = s && *s == ',' ? skip_spaces(s + 1) : s) {
        pe_operand *o = &entry->operand[entry->noperands];
        if (s[0] == '-' && s[1] == '>') {
            output = 1;
            s = skip_spaces(s + 2);
            continue;
        }
        if (entry->noperands == PE_ARRAYS)
            return NULL;
        entry->noperands++;
        if (!(s = read_operand(s, o)) || !strchr(",;-", *s) || intern(entry, entry->noperands - 1, o->name) < 0)
            return NULL;
        o->output = (signed char)output;
        entry->has_operators |= o->type == 'o';
        entry->is_operator |= o->output && o->tiled;
    }
    return s;
}

/* Set the members of operands that follow from other operands. */
static void relate_operands(pe_signature *entry)
{
    const pe_operand *lead = &entry->operand[0];
    for (int k = 0; k < entry->noperands; k++) {
        pe_operand *o = &entry->operand[k];
        const size_t n = strlen(o->name);
        while (o->common < o->naxes && o->common < lead->naxes && o->axes[o->common] == lead->axes[o->common])
            o->common++;
        o->within = o->within || entry->is_operator;
        entry->reads_positions |= !o->output && (o->tiled || o->ordered || strcmp(o->name, "rows") == 0);
        for (int j = 0; j < entry->noperands; j++) {
            const char *other = entry->operand[j].name;
            if (strncmp(other, o->name, n) == 0 && strcmp(other + n, "_scale") == 0)
                o->scale = (signed char)j;
        }
    }
}

int pe_signature_read(pe_signature *entry)
{
    int arrays = 0;
    const char *s = read_operands(entry->text, entry);
    while (s && *s) { /* after ; or , */
        pe_parameter *p = &entry->parameter[entry->nparams];
        if (entry->nparams == PE_PARAMS || !strchr(";,", *s))
            return -1;
        entry->nparams++;
        if (!(s = read_parameter(s + 1, p)) || intern(entry, entry->noperands + entry->nparams - 1, p->name) < 0)
            return -1;
    }
    relate_operands(entry);
    for (int k = 0; k < entry->noperands; k++)
        arrays += !entry->operand[k].tiled;
    return s && (!entry->is_operator || arrays <= PE_OPERATOR_ARRAYS) ? 0 : -1;
}

void pe_signature_free(pe_signature *entry)
{
    Py_CLEAR(entry->key);
    for (int i = 0; i < entry->noperands + entry->nparams; i++)
        Py_CLEAR(entry->argument[i]);
    for (int i = 0; i < entry->nparams * PE_WORDS; i++)
        Py_CLEAR(entry->parameter[i / PE_WORDS].word[i % PE_WORDS]);
}

/* ---- the table ---- */

void pe_table_free(pe_table *table)
{
    PyObject **own[] = {&table->start, &table->dtype,       &table->grad,        &table->reader,
                        &table->shown, &table->main_thread, &table->last_counted};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        Py_CLEAR(*own[i]);
    for (int op = 0; op < PE_COUNT; op++)
        pe_signature_free(&table->entry[op]);
}

/* Kernels add to the gradients of operators on positions. */
static int check_gradients(const pe_signature *vjp)
{
    for (int k = 0; vjp && k < vjp->noperands; k++) {
        if (vjp->operand[k].output && !vjp->operand[k].summed) {
            PyErr_Format(PyExc_SystemError, "posenc: %s of %s is not summed", vjp->operand[k].name, vjp->name);
            return -1;
        }
    }
    return 0;
}

int pe_table_read(pe_table *table)
{
    memset(table, 0, sizeof *table);
    table->start = PyUnicode_InternFromString("start");
    table->seq_axis = PyUnicode_InternFromString("seq_axis");
    table->dtype = PyUnicode_InternFromString("dtype");
    table->grad = PyUnicode_InternFromString("grad");
    if (!table->start || !table->seq_axis || !table->dtype || !table->grad)
        return -1;
    for (int op = 0; op < PE_COUNT; op++) {
        pe_signature *entry = &table->entry[op];
        entry->number = op;
        entry->name = entries[op].name;
        entry->text = entries[op].signature;
        entry->is_operator = entries[op].only_in_attention;
        entry->kind = kind_of[op];
        entry->vjp = vjp_of[op] ? &table->entry[vjp_of[op]] : NULL;
        entry->key = PyUnicode_InternFromString(entry->name);
        if (!entry->key || pe_signature_read(entry) < 0) {
            if (!PyErr_Occurred())
                PyErr_Format(PyExc_SystemError, "posenc: cannot read the signature of %s", entry->name);
            return -1;
        }
    }
    for (int op = 0; op < PE_COUNT; op++) {
        if (check_gradients(table->entry[op].vjp) < 0)
            return -1;
    }
    return 0;
}
