/* decode.h -- attention of up to 8 queries, which is memory-bound; see decode.c. */
#ifndef PE_DECODE_H
#define PE_DECODE_H

#include "tile/tile.h"

/* Return whether decode.c takes the call: it depends on shapes and operators only. */
int FN(is_decoding)(const pe_call *call);
/* Return whether `unit` is the first of the heads that decode computes together because they read the same keys. The
 * units of the other heads have nothing to do. */
int FN(begins_decoding)(const pe_call *call, idx unit);
/* Bit i is set if the result of head + i is not finite and was not written; forward.c then computes that head. Returns
 * -1 if the call was stopped. */
int FN(decode)(pe_query_block *u, const pe_work *work);
size_t FN(decode_scratch)(const idx *dim, const double *par);

#endif
