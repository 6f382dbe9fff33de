/* signature.c -- the table as data: ops.def read into rows, their signatures once from text, when the module is made. */
#include "python/bind.h"

#include <string.h>

#include "fits.h"

static const struct {
    const char *name, *signature;
    int only_in_attention;
} rows[PE_COUNT] = {
#define CALLABLE(name, signature, ...) {#name, signature, 0},
#define TERM(name, fits, signature) {#name, signature, 1},
#include "ops.def"
};

void pe_row_costs(int op, const idx *dim, const double *par, idx *units, double *ns)
{
    switch (op) {
#define CALLABLE(name, signature, units_, ns_, scratch) \
    case PE_##name:                                     \
        *units = (units_);                              \
        *ns = (double)(ns_);                            \
        break;
#define TERM(name, fits, signature) CALLABLE(name, signature, FITS(fits, 0), 0, none)
#include "ops.def"
    default: break;
    }
}

static const char *read_word(const char *s, char *word, size_t room)
{
    size_t n = 0;
    while (*s == ' ')
        s++;
    for (; (*s >= 'a' && *s <= 'z') || (*s >= '0' && *s <= '9') || *s == '_'; s++)
        if (n + 1 < room)
            word[n++] = *s;
    word[n] = 0;
    return s;
}

static int read_signature(pe_row_of_table *row)
{
    const char *s = row->signature;
    int output = 0;
    while (*s && *s != ';') {
        if (*s == ' ' || *s == ',') {
            s++;
        } else if (s[0] == '-' && s[1] == '>') {
            output = 1;
            s += 2;
        } else {
            char type[8];
            if (row->noperands == PE_ARRAYS)
                return -1;
            pe_operand *o = &row->operand[row->noperands++];
            s = read_word(s, type, sizeof type);
            if (strcmp(type, "bias") == 0) {
                strcpy(o->name, type);
                o->type = '*';
                o->optional = 1;
                s += *s == '*';
                continue;
            }
            o->type = type[0];
            o->output = output;
            while (*s == ' ' || *s == '+')
                o->summed |= *s++ == '+';
            s = read_word(s, o->name, sizeof o->name);
            for (; *s && *s != '('; s++) {
                o->optional |= *s == '?';
                o->strided |= *s == '~';
                o->finite |= *s == '!';
                o->in_tile |= *s == '@';
            }
            row->is_operator |= o->output && o->in_tile;
            if (o->in_tile)
                row->first_axis = 0;
            if (*s++ != '(')
                return -1;
            for (; *s && *s != ')'; s++)
                if (*s != ',' && o->naxes < PE_CORE)
                    o->axes[o->naxes++] = (unsigned char)(*s - 'A');
            s += *s == ')';
        }
    }
    while (*s) {
        if (row->nparams == PE_PARAMS)
            return -1;
        s = read_word(s + 1, row->param[row->nparams++], sizeof row->param[0]);
    }
    return 0;
}

int pe_table_read(pe_table *table)
{
    for (int op = 0; op < PE_COUNT; op++) {
        pe_row_of_table *row = &table->row[op];
        memset(row, 0, sizeof *row);
        row->name = rows[op].name;
        row->signature = rows[op].signature;
        row->op = op;
        row->first_axis = 'a' - 'A';
        row->is_operator = rows[op].only_in_attention;
        if (read_signature(row) < 0) {
            PyErr_Format(PyExc_SystemError, "posenc: cannot read the signature of %s", row->name);
            return -1;
        }
    }
    return 0;
}
