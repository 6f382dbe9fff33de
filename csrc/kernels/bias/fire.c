/* fire.c -- FIRE (Li et al. 2024, equations 2 and 3). i is the position of the query:
 *
 *     z = log(1 + |c rel|) / (log(1 + |c| max(i, |threshold|)) + 1e-6);
 *     b_h = b2[h];
 *     for (int w = 0; w < W; w++)
 *         b_h += w2[h][w] * relu(w1[w] * z + b1[w]);
 *
 * arrays: w1(W,1), b1(W), w2(h,W), b2(h), c(), threshold(). The divisor of z depends on the query alone, so it is
 * computed once per query and block. The innermost loop is over lanes, each with one query, and vectorises.
 */
#include "base/elementary.h"
#include "bias/position.h"

enum { W1, B1, W2, B2, C, THRESHOLD };
static const double fire_eps = 1e-6;

/* The parts of z that depend on the queries of a block. */
typedef struct {
    double slope, edge;         /* |c| and |threshold| */
    double reach[PAIR_LANES];   /* max(i, |threshold|) of each lane */
    double divisor[PAIR_LANES]; /* log(1 + |c| reach) + 1e-6 */
} fire_queries;

static void prepare_queries(const pe_array *array, const pe_pair_block *block, fire_queries *f)
{
    f->slope = fabs_(*element(&array[C], 0, 0));
    f->edge = fabs_(*element(&array[THRESHOLD], 0, 0));
    for (int l = 0; l < block->width; l++) {
        f->reach[l] = block->q_positions[l] > f->edge ? block->q_positions[l] : f->edge;
        f->divisor[l] = log1p_pos(f->slope * f->reach[l]) + fire_eps;
    }
}

/* z[l] of key j and each lane */
static void normalized_distance(const pe_pair_block *block, const fire_queries *f, int j, double *restrict z)
{
    const double k = block->k_positions[j];
    SIMD
    for (int l = 0; l < block->width; l++)
        z[l] = log1p_pos(f->slope * fabs_(k - block->q_positions[l])) / f->divisor[l];
}

PAIR_VALUES(fire)
{
    const idx units = D(W);
    const double b2 = *element(&array[B2], h, 0);
    fire_queries f;
    double z[PAIR_LANES];
    prepare_queries(array, block, &f);
    for (int j = 0; j < block->keys; j++) {
        normalized_distance(block, &f, j, z);
        for (int first = 0; first < block->width; first += LANES) {
            double sum[LANES];
            for (int l = 0; l < LANES; l++)
                sum[l] = b2;
            for (idx w = 0; w < units; w++) {
                const double w1 = *element(&array[W1], w, 0), b1 = *element(&array[B1], w, 0);
                const double w2 = *element(&array[W2], h, w);
                SIMD
                for (int l = 0; l < LANES; l++) {
                    const double hidden = fma64(w1, z[first + l], b1);
                    sum[l] = fma64(w2, hidden > 0 ? hidden : 0, sum[l]);
                }
            }
            for (int l = 0; l < LANES; l++)
                out[j * block->width + first + l] = (real)sum[l];
        }
    }
}

/* ---- gradient ----
 *
 * d f / d (w2, b2, w1, b1, z):
 *     f = sum_w w2 relu(w1 z + b1) + b2;   with g = grad and s = g where w1 z + b1 > 0, else 0,
 *     d b2 += g,   d w2 += s (w1 z + b1),   d b1 += w2 s,   d w1 += w2 s z,   d z = sum_w w2 w1 s
 * d z / d (c, threshold):
 *     z = N / D,   N = log(1 + |c| |rel|),   D = log(1 + |c| r) + eps,   r = max(i, |threshold|);
 *     d |c| += d z (|rel| / (1 + |c rel|) - z r / (1 + |c| r)) / D,   d r = -d z z |c| / (1 + |c| r) / D
 * At |threshold| = i, max has no derivative. d |threshold| is then d r / 2, the mean of both one-sided derivatives. */

enum { KEYS = 32 }; /* keys at a time, so that z and d_z stay in the first-level cache */

/* The pairs of some keys, from key `first` of the block on. A vector that is not aligned may span two cache lines. */
typedef struct {
    _Alignas(VEC_BYTES) double z[KEYS * PAIR_LANES], d_z[KEYS * PAIR_LANES];
    const double *grad;
    int first, keys, width;
} fire_pairs;

/* By lane: 1 / divisor, reach / (1 + |c| reach), and sums of grad, d |c| and d r */
typedef struct {
    double inverse[PAIR_LANES], share[PAIR_LANES], total[PAIR_LANES], d_slope[PAIR_LANES], d_reach[PAIR_LANES];
} fire_lanes;

/* Add the gradients of hidden unit w, and its part of d_z. */
static void unit_vjp(const pe_array *array, idx h, idx w, fire_pairs *pairs, const pe_array *into)
{
    const double w1 = *element(&array[W1], w, 0), b1 = *element(&array[B1], w, 0), w2 = *element(&array[W2], h, w);
    double d_w1[PAIR_LANES] = {0}, d_b1[PAIR_LANES] = {0}, d_w2[PAIR_LANES] = {0};
    const double *restrict z = pairs->z, *restrict grad = pairs->grad;
    double *restrict d_z = pairs->d_z;
    const int width = pairs->width;
    for (int i = 0; i < pairs->keys * width; i += width) {
        SIMD
        for (int l = 0; l < width; l++) {
            const double hidden = fma64(w1, z[i + l], b1), g = grad[i + l], active = hidden > 0 ? g : 0;
            d_w2[l] += active * hidden;
            d_b1[l] += active;
            d_w1[l] += active * z[i + l];
            d_z[i + l] += active * (w2 * w1);
        }
    }
    for (int l = 1; l < width; l++) {
        d_w1[0] += d_w1[l];
        d_b1[0] += d_b1[l];
        d_w2[0] += d_w2[l];
    }
    *element(&into[W1], w, 0) += w2 * d_w1[0];
    *element(&into[B1], w, 0) += w2 * d_b1[0];
    *element(&into[W2], h, w) += d_w2[0];
}

/* Add to the sums; d_reach leaves out the factor |c| / (1 + |c| r). */
static void distance_vjp(const pe_pair_block *block, double slope, const fire_pairs *pairs, fire_lanes *s)
{
    const int width = pairs->width;
    for (int j = 0; j < pairs->keys; j++) {
        const double k = block->k_positions[pairs->first + j];
        SIMD
        for (int l = 0; l < width; l++) {
            const int i = j * width + l;
            const double rel = fabs_(k - block->q_positions[l]), d = pairs->d_z[i] * s->inverse[l];
            s->total[l] += pairs->grad[i];
            s->d_slope[l] += d * (rel / (1 + slope * rel) - pairs->z[i] * s->share[l]);
            s->d_reach[l] -= d * pairs->z[i];
        }
    }
}

PAIR_VJP(fire_vjp)
{
    const double c = *element(&array[C], 0, 0), threshold = *element(&array[THRESHOLD], 0, 0);
    fire_queries f;
    fire_pairs pairs = {.width = block->width, .grad = grad};
    fire_lanes s = {.total = {0}};
    double d_edge = 0;
    prepare_queries(array, block, &f);
    for (int l = 0; l < block->width; l++) {
        s.inverse[l] = 1 / f.divisor[l];
        s.share[l] = f.reach[l] / (1 + f.slope * f.reach[l]);
    }
    for (; pairs.first < block->keys; pairs.first += KEYS, pairs.grad += KEYS * block->width) {
        pairs.keys = (int)min_(KEYS, block->keys - pairs.first);
        for (int j = 0; j < pairs.keys; j++)
            normalized_distance(block, &f, pairs.first + j, pairs.z + j * block->width);
        memset(pairs.d_z, 0, sizeof pairs.d_z);
        for (idx w = 0; w < D(W); w++)
            unit_vjp(array, h, w, &pairs, into);
        distance_vjp(block, f.slope, &pairs, &s);
    }
    for (int l = 0; l < block->width; l++) {
        const double half = f.edge > block->q_positions[l] ? 1 : f.edge < block->q_positions[l] ? 0 : 0.5;
        *element(&into[B2], h, 0) += s.total[l];
        *element(&into[C], 0, 0) += c < 0 ? -s.d_slope[l] : c > 0 ? s.d_slope[l] : 0;
        d_edge += half * s.d_reach[l] * f.slope / (1 + f.slope * f.reach[l]);
    }
    *element(&into[THRESHOLD], 0, 0) += threshold < 0 ? -d_edge : threshold > 0 ? d_edge : 0;
}

const pe_position_operator FN(fire_operator) = {.pairs = fire, .pairs_vjp = fire_vjp};
