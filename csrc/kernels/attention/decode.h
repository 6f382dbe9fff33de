/* decode.h -- attention of so few queries that their kernel waits for memory; see decode.c. */
#ifndef PE_DECODE_H
#define PE_DECODE_H

#include "tile/tile.h"

/* Whether decode.c takes the call: a property of its shapes and terms, the same for all units. */
int FN(is_decoding)(const pe_call *call);
/* Whether unit number `unit`, one head, begins a share of heads that read the same keys. Then decode computes the share;
 * the units of its other heads have nothing to do. */
int FN(begins_decoding)(const pe_call *call, idx unit);
/* Bit i: the result of head + i is not finite and was not written: attention.c then computes that head. -1: stopped. */
int FN(decode)(pe_queries *u, char *scratch);

#endif
