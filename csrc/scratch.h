/* scratch.h -- bytes of scratch of the kernels that have no layout function yet (see kernels/base/layout.h): one formula
 * for all variants, large enough for the widest panel of the widest type.
 */
#ifndef PE_SCRATCH_H
#define PE_SCRATCH_H

#include "fits.h"

/* attention (kernels/attention.c). A tile is so many bytes of one column: 96 keys in float, 48 in double. Held are
 * the packed queries and the sums of values (64 lanes each), the scores (64 lanes), a copy of the keys or the
 * values of a tile where they cannot be read in place, and one row. D = Dv = 128: 207 KB in double, half used in float.
 * Against 96 keys: 48 are 1.02 x slower, 144 and 192 1.01 x faster and larger. */
enum { ATTENTION_COLUMN = 384, ATTENTION_PAD = 16 };
#define ATTENTION_WIDTH ((D(d) > D(e) ? D(d) : D(e)) + ATTENTION_PAD)
#define ATTENTION_SCRATCH                                                                               \
    (64 * 8 * (D(d) + D(e)) + 64 * ATTENTION_COLUMN + (ATTENTION_COLUMN + 8) * ATTENTION_WIDTH + 5 * 64 \
     + CONTENT_SCRATCH)

/* content (kernels/content.c): two more packs of the queries; one panel's pack, of a table's pieces at least; products
 * of a panel with the rows of a window, twice, and those that the next tile needs; what is added, for all lanes; two
 * tiles of a panel; and numbers of rows. A panel is at most 128 bytes of a row. */
enum { CONTENT_PIECE = 64 };
#define CONTENT_WIDTH (D(d) > CONTENT_PIECE ? D(d) : CONTENT_PIECE)
#define CONTENT_SCRATCH                                                                    \
    (2 * 64 * 8 * D(d) + 128 * CONTENT_WIDTH + (2 * 128 + 8) * (ATTENTION_COLUMN / 4 + 64) \
     + (64 + 2 * 32 + 64) * ATTENTION_COLUMN + 64 * 128 + 9 * 64)
/* and its gradient (kernels/content_vjp.c): a tile of all lanes, a panel across lanes and as strips; queries as strips
 * and a part of dq; and what each lane gives to rows: of a window, with zeros around it */
#define CONTENT_VJP_SCRATCH                                                                          \
    (CONTENT_SCRATCH + 2 * 64 * ATTENTION_COLUMN + 64 * (128 + 256) + 2 * 128 * (CONTENT_WIDTH + 16) \
     + 64 * 8 * (2 * D(d) + 16) + 6 * 64)
/* logits (kernels/logits.c): the packed queries, a copy of the keys, a tile, and content's */
#define LOGITS_SCRATCH \
    (2 * 64 * 8 * D(d) + ATTENTION_COLUMN * (D(d) + ATTENTION_PAD) + 64 * ATTENTION_COLUMN + 5 * 64 + CONTENT_SCRATCH)
/* and its gradient: queries packed twice, dq, a tile of gradients, a copy of the keys, a row, and dk of a kv head */
#define LOGITS_VJP_SCRATCH                                                                              \
    (64 * 8 * (3 * D(d) + 16) + 64 * ATTENTION_COLUMN + (ATTENTION_COLUMN + 8) * (D(d) + ATTENTION_PAD) \
     + 8 * D(m) * (D(d) + 16) + 7 * 64 + CONTENT_VJP_SCRATCH)

/* its gradient (kernels/attention_vjp.c): queries and cotangents packed twice and the sums of dq, three tiles of weights,
 * copies of keys and values, two rows; and dk and dv of one kv head */
#define ATTENTION_VJP_SCRATCH                                                                \
    (64 * 8 * (3 * D(d) + 2 * D(e) + 32) + 3 * 64 * ATTENTION_COLUMN                         \
     + ATTENTION_COLUMN * (D(d) + D(e) + 2 * ATTENTION_PAD) + 16 * ATTENTION_WIDTH + 16 * 64 \
     + 8 * D(m) * (D(d) + D(e) + 32) + CONTENT_VJP_SCRATCH)

/* sinusoid (kernels/sinusoid.c): frequencies, steps and bases of one tile, 256 pairs of doubles each, and which are
 * there */
enum { SINUSOID_SCRATCH = (1 + 16 + 1) * 256 * 2 * 8 + 24 };
/* convolution (kernels/convolution.c). A window has the columns of a tile and, to both sides, what taps reach and what
 * a gradient folds back. Held are two tables of its rows and a copy of 32 channels of each (and of one row of
 * gradients), 32 channels of a tile of results, the kernel of the last channels, and a row of zeros.
 * A unit of the kernel's gradient grows with the taps: its block holds sums of them all, which then take no more
 * memory than twice the data in double. */
enum { CONVOLUTION_CHANNELS = 32 };
#define CONVOLUTION_COLUMNS (CONVOLUTION_GRADIENTS + 8 + 2 * D(s))
#define CONVOLUTION_SCRATCH                                                                          \
    (CONVOLUTION_COLUMNS * ((D(r) + 1) * (16 + 8 * CONVOLUTION_CHANNELS) + 8 * CONVOLUTION_CHANNELS) \
     + 8 * CONVOLUTION_CHANNELS * (D(r) * D(s) + 1) + 8 * D(d))
/* complex order (kernels/complex_order.c): turns of frequencies and of phases, sines, cosines, and amplitudes widened */
enum { COMPLEX_ORDER_TILE = 256, COMPLEX_ORDER_SCRATCH = COMPLEX_ORDER_TILE * 8 * 10 };

/* Walks along positions (kernels/recurrence.c, flow.c): packed weights, transposed too for gradients, and what a group of
 * columns holds. Rows are padded to panels of 64; +1 is the column of time. At most 16 shares of a batch: each has
 * weights of its own. */
enum { WALK_PAIRS = 192, FLOW_STEPS = 8, FLOW_STAGES = 4 };
#define WALK_ROW(n) (D(n) + 64)
#define RECURRENT_WEIGHTS ((D(g) + 3 * 64) * D(c) + 2 * WALK_ROW(g) + 2 * 64)
#define RECURRENT_SCRATCH (8 * (RECURRENT_WEIGHTS + WALK_COLUMNS * 5 * WALK_ROW(c)) + 1024)
#define RECURRENT_VJP_SCRATCH                                                          \
    (8                                                                                 \
         * (RECURRENT_WEIGHTS + (D(g) / (D(c) + (D(c) == 0)) + 3) * WALK_ROW(c) * D(c) \
            + (WALK_PAIRS * 8 + WALK_COLUMNS * 3) * WALK_ROW(c))                       \
     + 1024)
#define FLOW_WEIGHTS (WALK_ROW(e) * WALK_ROW(c) * 2 + WALK_ROW(e) + WALK_ROW(c))
#define FLOATER_SCRATCH (8 * (FLOW_WEIGHTS + WALK_COLUMNS * ((2 + FLOW_STAGES) * WALK_ROW(c) + WALK_ROW(e))) + 1024)
#define FLOATER_VJP_SCRATCH                                                      \
    (8                                                                           \
         * (2 * FLOW_WEIGHTS                                                     \
            + WALK_COLUMNS                                                       \
                  * (2 * FLOW_STEPS * FLOW_STAGES * (WALK_ROW(c) + WALK_ROW(e))  \
                     + (3 + 2 * FLOW_STAGES + D(s) / FLOW_STEPS) * WALK_ROW(c))) \
     + 1024)

#endif
