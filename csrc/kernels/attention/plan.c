/* plan.c -- see plan.h.
 *
 *     attention(call)  =  plan(call).decodes ? decode(call) : forward(call)
 */
#include "attention/plan.h"

#include "attention/decode.h"
#include "tile/bf16.h"

enum { LEAST_OF_TILES = 4 };   /* fewest queries that tiles of AMX multiply faster */
enum { LONG_BYTES = 1 << 20 }; /* keys and values of a head that exceed many L2 caches */

/* Return whether attention, or its gradient, multiplies the operands as 16-bit numbers. */
static int takes_bf16(const pe_call *call, int is_gradient)
{
    return PE_REAL == 32 && call->products && call->products->attention->takes(call, is_gradient);
}

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

pe_plan FN(plan_attention)(const pe_call *call)
{
    const int bf16 = takes_bf16(call, 0), content = has_content_operators(call);
    pe_plan plan = {.decodes = decodes(call, bf16), .blocks = 1};
    plan.bf16 = bf16 && (!content || multiplies_reals(call));
    /* A tile is split and transposed once for several blocks. Operators that read q and k have buffers for one
     * block. */
    if (plan.bf16 && !content && call->par[A_PARTS] == 1)
        plan.blocks = (int)min_(MOST_TOGETHER, BLOCKS(call->D(n), BLOCK_M));
    return plan;
}

int FN(heads_together)(const pe_call *call) { return (int)min_(call->D(h) / call->D(g), MAX_Q_ROWS / call->D(n)); }

int FN(plan_bf16_vjp)(const pe_call *call) { return takes_bf16(call, 1) && !has_content_operators(call); }

/* Both kernels use the same memory: decode.c is done with it when it calls attend_unit. */
size_t FN(attention_scratch)(const pe_call *call)
{
    const size_t forward = FN(forward_scratch)(call), decode = FN(decode_scratch)(call);
    return forward > decode ? forward : decode;
}

KERNEL(attention) { (FN(plan_attention)(call).decodes ? FN(decode) : FN(forward))(call, begin, end, work); }
