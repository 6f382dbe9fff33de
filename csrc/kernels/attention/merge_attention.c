/* merge_attention.c -- combine the results of attention over disjoint parts of the keys into attention over all keys.
 *
 *     outs(p,e) lses(p) -> out(e) lse():   lse = log sum_p exp(lse_p),   out = sum_p exp(lse_p - lse) out_p
 *
 *     for (int p = 0; p < parts; p++)
 *         for (int c = 0; c < e; c++)
 *             out[c] += exp(lses[p] - lse) * outs[p][c];
 *
 * A part that saw no key has lse = -inf, and its out is not read. If no part saw a key, out is 0 and lse is -inf.
 */
#include "base/elementary.h"
#include "base/layout.h"
#include "base/row.h"

#include <math.h>

enum { OUTS, LSES, OUT, LSE };

typedef struct {
    double *sum;
    real *row;
} merge_attention_state;

LAYOUT(merge_attention)
{
    s->sum = carve_doubles(c, D(e));
    s->row = carve_reals(c, D(e));
}

static double lse_of_part(const pe_call *call, const pe_row *row, idx p)
{
    const pe_array *a = &call->array[LSES];
    return scalar_read(row->data[LSES] + p * a->core[0], a->storage);
}

KERNEL(merge_attention)
{
    const idx parts = call->D(p), e = call->D(e);
    const pe_array *outs = &call->array[OUTS], *out = &call->array[OUT];
    const merge_attention_state s = merge_attention_begin(call, work);
    for (pe_row row = row_at(call, begin); row.index < end; row_next(call, &row)) {
        double max = -HUGE_VAL, total = 0;
        for (idx p = 0; p < parts; p++) {
            const double lse = lse_of_part(call, &row, p);
            max = lse > max || lse != lse ? lse : max; /* keeps NaN */
        }
        for (idx k = 0; k < e; k++)
            s.sum[k] = -0.0; /* -0.0 + x is x for x = -0.0 too, so a single part keeps its bits */
        for (idx p = 0; p < parts; p++) {
            const double lse = lse_of_part(call, &row, p), weight = exp_minus(max - lse);
            if (lse == -HUGE_VAL)
                continue;
            const real *part = row_read(row.data[OUTS] + p * outs->core[0], outs->storage, e, s.row);
            total += weight;
            for (idx k = 0; k < e; k++)
                s.sum[k] += weight * (double)part[k];
        }
        const int seen = max != -HUGE_VAL;
        real *target = row_target(row.data[OUT], out->storage, s.row);
        for (idx k = 0; k < e; k++)
            target[k] = (real)(seen ? s.sum[k] / total : 0);
        row_write(target, row.data[OUT], out->storage, e);
        const real lse = (real)(seen ? max + log1p_pos(total - 1) : max); /* the largest part adds exactly 1 */
        if (row.data[LSE])
            memcpy(row.data[LSE], &lse, sizeof lse);
    }
}
