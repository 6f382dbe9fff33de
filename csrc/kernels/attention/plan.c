/* plan.c -- see plan.h.
 *
 *     attention(call)  =  call.plan.decodes ? decode(call) : forward(call)
 */
#include "attention/plan.h"

#include "attention/decode.h"
#include "tile/bf16.h"

enum { LEAST_OF_TILES = 4 };   /* fewest queries that tiles of AMX multiply faster */
enum { LONG_BYTES = 1 << 20 }; /* keys and values of a head that exceed many L2 caches */

/* Tiles multiply a number in three terms, as AMX does. */
static int multiplies_reals(const pe_call *call) { return call->products->most_terms == MOST_TERMS; }

/* forward.c computes whole vectors of queries, which is at least twice the work of decoding if n <= LANES / 2. Up to
 * n < PANEL_LANES, decoding is faster than products of reals in forward.c if keys and values come from memory, because
 * decoding prefetches them. In a prototype, tiles of AMX multiplied a panel of queries faster than decoding multiplied
 * 4 queries as reals. */
static int decodes(const pe_call *call, int bf16)
{
    const idx n = call->D(n), bytes = call->D(m) * (call->D(d) + call->D(e)) * (idx)sizeof(real);
    if (call->par[A_INVARIANT] != 0 || call->par[A_DROPOUT] > 0 || call->D(d) == 0 || has_content_operators(call))
        return 0;
    if (bf16 && multiplies_reals(call) && n >= LEAST_OF_TILES)
        return 0;
    return n <= LANES / 2 || (n < PANEL_LANES && bytes >= LONG_BYTES);
}

void FN(plan_attention)(pe_call *call)
{
    pe_plan *plan = &call->plan;
    const int attends = plan->mode == PE_ATTEND;
    const int is_gradient = plan->mode == PE_ATTEND_VJP || plan->mode == PE_SHARED_VJP;
    const int content = has_content_operators(call), has_bf16 = PE_REAL == 32 && call->products;
    const int bf16 = (attends || is_gradient) && has_bf16 && call->products->attention->takes(call, is_gradient);
    plan->decodes = attends && decodes(call, bf16);
    plan->heads_together = plan->decodes ? (int)min_(call->D(h) / call->D(g), MAX_Q_ROWS / call->D(n)) : 1;
    plan->bf16 = bf16 && (!content || (!is_gradient && multiplies_reals(call)));
    /* A tile is split and transposed once for several blocks. Operators that read q and k have buffers for one
     * block. */
    const int shares_tiles = !is_gradient && plan->bf16 && !content && call->par[A_PARTS] == 1;
    plan->blocks_together = shares_tiles ? (int)min_(MOST_TOGETHER, BLOCKS(call->D(n), BLOCK_M)) : 1;
}

/* Both kernels use the same memory: decode.c is done with it when it calls attend_unit. */
size_t FN(attention_scratch)(const pe_call *call)
{
    const size_t forward = FN(forward_scratch)(call), decode = FN(decode_scratch)(call);
    return forward > decode ? forward : decode;
}

KERNEL(attention) { (call->plan.decodes ? FN(decode) : FN(forward))(call, begin, end, work); }
