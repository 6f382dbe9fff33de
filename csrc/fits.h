/* fits.h -- named conditions and sizes for the entries of ops.def, which would be too long with the expressions.
 *
 * A condition on lengths and parameters holds if no kernel of the entry accesses memory out of bounds. D(x) is the
 * length of axis x, or -1 if no operand defines it; P(name) is a parameter. `dim` and `par` are those of the call.
 */
#ifndef PE_FITS_H
#define PE_FITS_H

#include "posenc.h"

#define P(name) par[name]
#define FITS(condition, units) ((condition) ? (units) : -1)

/* Operands of the entries of attention and logits, in their order. A_PART_OUT, A_PART_LSE and A_DIAGONAL_SUMS .. A_DS,
 * and the parameters from A_SHIFT on, are no arguments. */
enum { A_Q, A_K, A_V, A_K_SCALE, A_V_SCALE, A_KEEP, A_Q_POSITIONS, A_K_POSITIONS, A_Q_SEGMENTS, A_K_SEGMENTS, A_SINK };
enum { A_BIAS = A_SINK + 1, A_OUT, A_LSE, A_PART_OUT /* (h parts,n,e) */, A_PART_LSE /* (h parts,n) */ };
enum { A_GRAD = A_LSE + 1, A_GRAD_LSE, A_DQ, A_DK, A_DV, A_D_SINK, A_DIAGONAL_SUMS, A_ROW_SUMS, A_COLUMN_SUMS, A_DS };
enum { L_GRAD = A_BIAS + 1 }; /* of logits_vjp; attention.c moves it and the results to the places in attention_vjp */

/* Parameters in the order of the entries. attention_options.c makes A_HIGH and A_SHIFT of the caller's causal and
 * align. */
enum { A_SCALE, A_SOFTCAP, A_LOW, A_HIGH, A_PRECISION, A_DROPOUT, A_SEED_LOW, A_SEED_HIGH, A_CAUSAL, A_ALIGN };
enum { A_INVARIANT = A_ALIGN + 1, A_SHIFT /* query i is at i + shift */ };
enum { A_PARTS = A_SHIFT + 1 }; /* units of a block of queries, or of a kv head */
enum { SINUSOID_SINE, SINUSOID_COSINE, SINUSOID_STEP, SINUSOID_SINE_SCALE, SINUSOID_COSINE_SCALE };
enum { TABLE_SINE_SCALE, TABLE_COSINE_SCALE };
enum { ROPE_LAYOUT, ROPE_OFFSET, ROPE_OUT_LAYOUT, ROPE_ROTARY_DIM, ROPE_INVERSE, ROPE_FACTOR };
/* 1 if the kernel writes to the caller's array, whose memory is not fresh; no argument, rope_call.c sets it */
enum { ROPE_CALLER_OUT = ROPE_FACTOR + 1 };
enum { RECURRENT_GRU, RECURRENT_SKIP };
enum { DIGITS_BASE };
enum { FLOATER_DT, FLOATER_METHOD };
enum { CONVOLUTION_TOP, CONVOLUTION_LEFT, CONVOLUTION_PADDING, CONVOLUTION_RESIDUAL };
/* Words of the entries, in their order */
enum { PADDING_ZERO, PADDING_CIRCULAR, PADDING_REPLICATE };

/* ---- attention and its operators ---- */

#define DIAGONALS_FIT (D(l) == (D(n) + D(m) > 0 ? D(n) + D(m) - 1 : 0))
/* A table has at least one row, and the map has an entry for each distance -K .. K. */
#define ROWS_FIT (D(R) > 0 && D(B) % 2 == 1)
/* The tables of DISTANCE and PAIR entries have a first number (T5's table B, Swin's table B and codes T, FoX's sums
 * T and the distances L of distance_function) unless there is nothing to look up. T5's lookup K has an entry for each
 * distance -reach .. reach, and FIRE has one input I. An absent axis has the length -1. */
#define TABLES_FIT \
    (D(n) == 0 || D(m) == 0 || (D(B) != 0 && D(T) != 0 && D(L) != 0 && D(K) % 2 != 0 && (D(I) < 0 || D(I) == 1)))
/* The number of distances in one unit of a bias of distance */
enum { UNIT_DISTANCES = 4096 };

/* ---- encodings ---- */

/* Interleaved pairs (step 2) begin at column 0, in either order; two halves (step 1) may begin at any column. */
#define SINUSOID_FITS                                                        \
    (P(SINUSOID_STEP) == 1                                                   \
     || (P(SINUSOID_STEP) == 2 && P(SINUSOID_SINE) + P(SINUSOID_COSINE) == 1 \
         && P(SINUSOID_SINE) * P(SINUSOID_COSINE) == 0))

/* Positions and heads of a unit of rope. cos and sin of a run of positions, ROPE_PAIRS pairs, stay in the L2 cache. */
enum { ROPE_PAIRS = 1 << 13, ROPE_HEADS = 32 };
#define ROPE_RUN max_(1, ROPE_PAIRS / max_(1, D(e)))
#define ROPE_UNITS (BLOCKS(D(n), ROPE_RUN) * BLOCKS(D(h), ROPE_HEADS))
#define ROPE_NS (min_(D(n), ROPE_RUN) * min_(D(h), ROPE_HEADS) * (10 + D(d) / 4))

/* Scans along positions: the number of columns of the batch that are scanned together, and the largest number of
 * shares of a batch. Each share packs the weights again. */
enum { SCAN_COLUMNS = 12, SCAN_SHARES = 16 };
#define SCAN_UNITS min_(BLOCKS(D(b), SCAN_COLUMNS), SCAN_SHARES)
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
enum { SUM_COLUMNS = 512 };

#endif
