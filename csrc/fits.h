/* fits.h -- named conditions and sizes for the rows of ops.def, which would be too long with the expressions.
 *
 * A condition on lengths and parameters holds if no kernel of the row accesses memory out of bounds. D(x) is the length
 * of axis x, or -1 if no operand defines it; P(name) is a parameter. `dim` and `par` are those of the call.
 */
#ifndef PE_FITS_H
#define PE_FITS_H

#include "posenc.h"

#define P(name) par[name]
#define FITS(condition, units) ((condition) ? (units) : -1)
#define AT_MOST(n, most) ((n) < (most) ? (n) : (most))

/* Parameters in the order of the rows */
enum { A_SCALE, A_SOFTCAP, A_LOW, A_HIGH, A_SHIFT, A_HEAD_PARTS, A_BLOCK_PARTS, A_MODE }; /* attention, logits */
enum { A_PARTS = A_SHIFT + 1, A_INVARIANT, A_WEIGHT_PARTS };                              /* attention only */
enum { A_DROPOUT = A_MODE + 1, A_SEED_LOW, A_SEED_HIGH, A_VJP_WEIGHT_PARTS };             /* and its gradient */
enum { SINUSOID_SINE, SINUSOID_COSINE, SINUSOID_STEP, SINUSOID_SINE_SCALE, SINUSOID_COSINE_SCALE };
enum { TABLE_SINE_SCALE, TABLE_COSINE_SCALE };
enum { ROPE_OFFSET, ROPE_INTERLEAVED, ROPE_OUT_INTERLEAVED, ROPE_CALLER_OUT };
enum { RECURRENT_GRU, RECURRENT_SKIP };
enum { FLOATER_DT, FLOATER_METHOD };
enum { CONVOLUTION_TOP, CONVOLUTION_LEFT, CONVOLUTION_PADDING, CONVOLUTION_RESIDUAL };
enum { GRAM_MODE };

/* ---- attention and its operators ---- */

/* Every kv head serves the same number of heads, and offsets in a tile are ints: at most 96 rows of MOST_WIDTH. */
#define HEADS_FIT ((D(g) > 0 ? D(h) % D(g) == 0 : D(h) == 0) && D(d) <= MOST_WIDTH && D(e) <= MOST_WIDTH)
/* About how many parts the keys of attention have, for its cost: axis p is heads times parts. */
#define PARTS_OF_KEYS (D(p) > D(h) ? D(p) / (D(h) + 1) + 1 : 1)

/* Axis p has an entry for each part of the keys of each head. */
#define PARTS_FIT                                                                   \
    (P(A_PARTS) == 1                                                                \
     || (P(A_PARTS) > 1 && P(A_PARTS) <= KEY_PARTS && P(A_PARTS) == (int)P(A_PARTS) \
         && (double)D(p) == (double)D(h) * P(A_PARTS)))
/* The number of 16-bit numbers that a weight is split into; 0 if the operands are not 16-bit numbers or codes. */
#define WEIGHTS_FIT(parts) (P(parts) == 0 || P(parts) == 1 || P(parts) == 2)
#define DIAGONALS_FIT (D(l) == (D(n) + D(m) > 0 ? D(n) + D(m) - 1 : 0))
/* A table has at least one row, and the map has an entry for each distance -K .. K. */
#define ROWS_FIT (D(R) > 0 && D(B) % 2 == 1)
/* The tables of DISTANCE and PAIR rows have a first number (T5's table B, Swin's table B, FoX's sums T and the
 * distances L of distance_function) unless there is nothing to look up. T5's lookup K has an entry for each distance
 * -reach .. reach, Swin's grid S is (height, width), and FIRE has one input I. An absent axis has the length -1. */
#define TABLES_FIT          \
    (D(n) == 0 || D(m) == 0 \
     || (D(B) != 0 && D(T) != 0 && D(L) != 0 && D(K) % 2 != 0 && (D(S) < 0 || D(S) == 2) && (D(I) < 0 || D(I) == 1)))
/* The number of distances in one unit of a bias of distance */
enum { UNIT_DISTANCES = 4096 };
/* The rows of a gradient are rounded up to whole vectors. */
#define PADDED(axis, width) (D(axis) < 0 || D(axis) >= BLOCKS(D(width), VECTOR_PADDING) * VECTOR_PADDING)

/* The gradient of attention cuts a kv head into chunks, head_parts x block_parts of them. If chunks are units of their
 * own (VJP_APART), the dS reductions have a row for each part of the blocks of a head. */
#define ATTENTION_VJP_FITS                                                                            \
    (P(A_HEAD_PARTS) >= 1 && P(A_BLOCK_PARTS) >= 1 && P(A_HEAD_PARTS) * P(A_BLOCK_PARTS) <= VJP_PARTS \
     && (D(l) < 0 || DIAGONALS_FIT) && WEIGHTS_FIT(A_VJP_WEIGHT_PARTS)                                \
     && (D(t) < 0 || (double)D(t) >= (double)D(h) * (P(A_MODE) == VJP_APART ? P(A_BLOCK_PARTS) : 1)))

/* ---- encodings ---- */

/* Interleaved pairs (step 2) begin at column 0, in either order; two halves (step 1) may begin at any column. */
#define SINUSOID_FITS                                                        \
    (P(SINUSOID_STEP) == 1                                                   \
     || (P(SINUSOID_STEP) == 2 && P(SINUSOID_SINE) + P(SINUSOID_COSINE) == 1 \
         && P(SINUSOID_SINE) * P(SINUSOID_COSINE) == 0))

/* Scans along positions: the number of columns of the batch that are scanned together, and the largest number of
 * shares of a batch. Each share packs the weights again. */
enum { SCAN_COLUMNS = 12, SCAN_SHARES = 16 };
#define SCAN_UNITS AT_MOST(BLOCKS(D(b), SCAN_COLUMNS), SCAN_SHARES)
#define SCAN_UNIT_COLUMNS (D(b) / (SCAN_UNITS + (D(b) == 0)) + 1)
#define TABLEAU(name, ...) FLOATER_##name,
enum {
#include "constants.def"
    FLOATER_METHODS
};
/* Numbers that a gate reads: the state, and the inputs if there are any. */
#define RECURRENT_WIDTH (D(c) + (D(e) > 0 ? D(e) : 0))
#define RECURRENT_WEIGHTS_FIT (P(RECURRENT_GRU) != 0 ? D(g) == 3 * D(c) && D(s) == 2 : D(g) == D(c) && D(s) == 1)
#define INPUTS_SERVE(steps) (D(e) < 0 || D(i) >= (steps))
#define RECURRENT_FITS (RECURRENT_WEIGHTS_FIT && INPUTS_SERVE(D(n) - 1 + (P(RECURRENT_SKIP) != 0)))
#define RECURRENT_VJP_FITS (RECURRENT_WEIGHTS_FIT && D(m) == D(n) + (P(RECURRENT_SKIP) != 0) && INPUTS_SERVE(D(m) - 1))
#define FLOATER_FITS \
    (D(j) == D(c) + 1 && D(k) == D(e) + 1 && D(s) > 0 && P(FLOATER_METHOD) >= 0 && P(FLOATER_METHOD) < FLOATER_METHODS)

/* Columns per unit of the convolutions. A unit of the kernel's gradient has more columns if there are more taps,
 * because its block holds a double for each tap: the sums take at most twice the memory of the data in double. */
enum { CONVOLUTION_TILE = 64, CONVOLUTION_GRADIENTS = 128 };
#define CONVOLUTION_UNIT (256 + D(s) / CONVOLUTION_GRADIENTS * CONVOLUTION_GRADIENTS)
/* top and left are taps of the kernel; a circular convolution wraps around at most once. */
#define CONVOLUTION_REACH(taps, before, n)                      \
    ((before) >= 0 && (before) < (double)(taps)                 \
     && (P(CONVOLUTION_PADDING) != PADDING_CIRCULAR || (n) == 0 \
         || ((before) <= (double)(n) && (double)(taps)-1 - (before) <= (double)(n))))
#define CONVOLUTION_FITS \
    (D(y) * D(w) == 0    \
     || (CONVOLUTION_REACH(D(r), P(CONVOLUTION_TOP), D(y)) && CONVOLUTION_REACH(D(s), P(CONVOLUTION_LEFT), D(w))))

/* Columns of the units that sum rows: their doubles stay in the first-level cache. */
enum { ROW_TILE = 512 };

#endif
