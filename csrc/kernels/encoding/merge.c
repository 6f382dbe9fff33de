/* merge.c -- attention over disjoint keys, put together from its parts: exact, not an approximation.
 *
 *     lse = log sum_p exp(lse_p),   out = sum_p exp(lse_p - lse) out_p
 *
 * A part that saw nothing (lse = -inf) has no weight and is not read; a row that no part saw is 0, lse = -inf.
 */
#include "base/row.h"

#include <math.h>

/* outs(p,e) lses(p) -> out(e) lse() */
void FN(merge_attention)(const pe_call *call, idx begin, idx end, const pe_work *work)
{
    const idx parts = call->D(p), e = call->D(e);
    const pe_array *a = call->array;
    double *sum = work->scratch;
    real *wide = (real *)(void *)(sum + e);
    for (pe_row row = row_at(call, begin); row.index < end; row_next(call, &row)) {
        double most = -HUGE_VAL, total = 0;
        for (idx p = 0; p < parts; p++) {
            const double lse = scalar_read(row.data[1] + p * a[1].core[0], a[1].storage);
            most = lse > most || lse != lse ? lse : most;
        }
        memset(sum, 0, (size_t)e * sizeof *sum);
        for (idx p = 0; p < parts; p++) {
            const double lse = scalar_read(row.data[1] + p * a[1].core[0], a[1].storage);
            const double weight = exp(lse - most);
            if (lse == -HUGE_VAL)
                continue;
            const real *out = row_read(row.data[0] + p * a[0].core[0], a[0].storage, e, wide);
            total += weight;
            for (idx k = 0; k < e; k++)
                sum[k] += weight * (double)out[k];
        }
        real *target = row_target(row.data[2], a[2].storage, wide);
        for (idx k = 0; k < e; k++)
            target[k] = (real)(most == -HUGE_VAL ? 0.0 : sum[k] / total);
        row_write(target, row.data[2], a[2].storage, e);
        const real lse = (real)(most == -HUGE_VAL ? most : most + log(total));
        memcpy(row.data[3], &lse, sizeof lse);
    }
}
