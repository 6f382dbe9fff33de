/* row_order.h -- visit the rows of x in an order that keeps a run of the cos and sin table in a cache for all heads.
 *
 *     for each row of the table's own axes, such as a batch:
 *         for (first = 0; first < positions; first += run)
 *             for each two heads:                                 heads share the table
 *                 for (i = first; i < first + run; i++)           one run of rows
 *                     for each of these heads:
 *                         rotate(x[head][i], table[i]);
 *
 * Unit u of the kernel is row u in this order. In the order of memory, run = positions, each head reads the whole
 * table, and x and out push it out of the L2 cache between two heads. If L3 is slow (pe_has_slow_l3), a run is a part
 * of the table that stays in L2. If L3 is fast, the order of memory is the fastest as long as L3 holds the table.
 */
#ifndef PE_ROW_ORDER_H
#define PE_ROW_ORDER_H

#include "base/row.h"
#include "base/vec.h"

typedef struct {
    idx heads, positions, run;
    int together; /* heads that are rotated together, 1 or 2 */
} row_order;

/* The order for a table of e pairs a row. Heads share its rows if both of its halves are broadcast along the heads. */
INLINE row_order order_of_rows(const pe_call *call, const pe_work *work, const pe_array *cosine, const pe_array *sine,
                               idx e, int together)
{
    enum { RUN_BYTES = 1 << 18 }; /* bytes of a run's table in L2 */
    const idx run_bytes = work->slow_l3 ? RUN_BYTES : PE_LAST_CACHE / 8;
    const idx table_bytes = e * (storage_size(cosine->storage) + storage_size(sine->storage));
    const int last = call->nloops - 1;
    row_order o = {1, last < 0 ? 1 : call->shape[last], 1, together};
    for (int a = last - 1; a >= 0 && cosine->loop[a] == 0 && sine->loop[a] == 0; a--)
        o.heads *= call->shape[a];
    o.run = max_(1, min_(o.positions, run_bytes / max_(1, table_bytes)));
    return o;
}

/* Return the row of unit u. *count units from u on, at most `most`, may be computed in one go: *count / *heads rows of
 * the run, each in *heads heads, 1 or 2. The units of 3 heads and 4 positions, with runs of 2 positions:
 *
 *     position     0  1 |  2   3
 *     head 0       0  2 |  6   8
 *     head 1       1  3 |  7   9
 *     head 2       4  5 | 10  11
 */
INLINE pe_row row_of_unit(const pe_call *call, const row_order *o, idx u, idx most, int *heads, idx *count)
{
    const idx of_table = o->heads * o->positions, begin = u / of_table * of_table;
    const idx first = (u - begin) / (o->heads * o->run) * o->run, run = min_(o->run, o->positions - first);
    const idx in_runs = u - begin - first * o->heads, head = in_runs / (run * o->together) * o->together;
    const idx together = min_(o->together, o->heads - head), in_head = in_runs - head * run;
    const idx i = in_head / together, h = in_head % together;
    *heads = h == 0 && most >= together ? (int)together : 1;
    *count = *heads == 1 && together == 2 ? 1 : min_(run - i, most / *heads) * *heads;
    return row_at(call, begin + (head + h) * o->positions + first + i);
}

/* Rows that are larger together than the L2 cache are prefetched where L3 is slow: the CPU's own prefetching ends at
 * each page of 4 KiB. Where L3 is fast, these prefetches cost more than they save. */
INLINE int worth_prefetching(const pe_work *work, const row_order *o, idx row_bytes)
{
    enum { L2_BYTES = 1 << 20 };
    return work->slow_l3 && o->heads * o->positions * row_bytes >= L2_BYTES;
}

/* Prefetch a row about 2 KiB after `row`; rows of `bytes` bytes begin `step` bytes apart. */
INLINE void prefetch_row_after(const char *row, idx step, idx bytes)
{
    enum { AHEAD_BYTES = 2048, LINE_BYTES = 64 };
    row += (AHEAD_BYTES / max_(1, bytes) + 1) * step;
    for (idx i = 0; i < bytes; i += LINE_BYTES)
        PREFETCH_SECOND(row + i);
}

#endif
