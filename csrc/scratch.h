/* scratch.h -- bytes of scratch of the kernels that have no layout function yet (see kernels/base/layout.h): one formula
 * for all variants, large enough for the widest panel of the widest type.
 */
#ifndef PE_SCRATCH_H
#define PE_SCRATCH_H

#include "fits.h"

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
