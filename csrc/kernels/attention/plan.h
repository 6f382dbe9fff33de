/* plan.h -- what is decided once for a call of attention: the kernel, its products, and the blocks that go together.
 *
 *     few queries, no operator that reads them    decode.c    one channel per lane, heads that share keys together
 *     else                                        forward.c   one query per lane, blocks of BLOCK_M queries
 *
 * The decisions depend on shapes, dtypes, operators and parameters, and on the products of the instruction set in use;
 * never on the number of threads or on the numbers of an array.
 * csrc/python/attention.c has the decisions that do not depend on the instruction set.
 */
#ifndef PE_PLAN_H
#define PE_PLAN_H

#include "relative/content.h"

/* Complete call->plan, for attention or its gradient. */
void FN(plan_attention)(pe_call *call);

/* The two kernels: units begin <= u < end. A unit is a block of queries of a head times a part of the keys. */
KERNEL(forward);
KERNEL(decode);
/* Compute a block of queries that decode.c could not, because its result is not finite. Returns 0 if the call was
 * stopped. */
int FN(attend_unit)(const pe_call *call, idx unit, const pe_work *work);
size_t FN(forward_scratch)(const pe_call *call);
size_t FN(decode_scratch)(const pe_call *call);

#endif
