/* dropout.c -- zero the dropped weights of a panel (dropout.h).
 *
 *     for (int j = 0; j < n; j++)
 *         for (int l = 0; l < width; l++)
 *             x[j][l] = number(query l, key j) < 65536 * dropout ? 0 : x[j][l];
 *
 * Each lane draws the numbers of its query. One call of Philox draws them for 8 keys. A multiplication of 32 x 32 bits
 * has a result of 64 bits, so a 64-bit word holds one word of a counter in its low half. The high half holds what the
 * last product left there, which no step reads. In float, one vector holds the words of lanes 0, 2, 4, ..., and another
 * holds the words of lanes 1, 3, 5, ...; a shift and an OR merge both.
 */
#include "attention/dropout.h"

#include "base/elementary.h"
#include "base/words.h"

enum { ROUNDS = 7, DRAWN_KEYS = 8, DRAWN_WORDS = 4 };
enum { WORDS = (int)(sizeof(vec_u64) / sizeof(uint64_t)), WORD_LANES = (int)(sizeof(uint64_t) / sizeof(real)) };

/* Replace the counter c by the random words. */
INLINE void philox(vec_u64 c[DRAWN_WORDS], uint32_t k0, uint32_t k1)
{
    UNROLL
    for (int r = 0; r < ROUNDS; r++) {
        const vec_u64 a = u64_mul(c[0], u64_set(0xD2511F53)), b = u64_mul(c[2], u64_set(0xCD9E8D57));
        c[0] = (b >> 32) ^ c[1] ^ u64_set(k0);
        c[1] = b;
        c[2] = (a >> 32) ^ c[3] ^ u64_set(k1);
        c[3] = a;
        k0 += 0x9E3779B9;
        k1 += 0xBB67AE85;
    }
}

/* Draw bits[w][lane], the words of `width` queries from `query` on for the keys from DRAWN_KEYS * group on. */
INLINE void draw(const pe_query_block *queries, uint32_t group, uint32_t query, int width,
                 real_bits bits[DRAWN_WORDS][PANEL_LANES])
{
    const double *par = queries->call->par;
    const uint64_t low = 0xFFFFFFFF;
    for (int l = 0; l < width; l += WORDS * WORD_LANES) {
        vec_u64 drawn[WORD_LANES][DRAWN_WORDS];
        for (int part = 0; part < WORD_LANES; part++) {
            uint64_t of_lanes[WORDS];
            for (int i = 0; i < WORDS; i++)
                of_lanes[i] = query + (uint32_t)(l + WORD_LANES * i + part);
            memcpy(&drawn[part][1], of_lanes, sizeof of_lanes);
            drawn[part][0] = u64_set(group);
            drawn[part][2] = u64_set((uint32_t)queries->head);
            drawn[part][3] = u64_set((uint32_t)queries->batch_row.index);
            philox(drawn[part], (uint32_t)par[A_SEED_LOW], (uint32_t)par[A_SEED_HIGH]);
        }
        for (int w = 0; w < DRAWN_WORDS; w++) {
            vec_u64 merged = drawn[0][w] & u64_set(low);
            if (WORD_LANES == 2) /* the first lane of a word is its first half in memory */
                merged = BIG_ENDIAN_WORDS ? merged << 32 | (drawn[WORD_LANES - 1][w] & u64_set(low))
                                          : merged | drawn[WORD_LANES - 1][w] << 32;
            memcpy(bits[w] + l, &merged, sizeof merged);
        }
    }
}

/* The number of a key is the low or the high half of its word. */
INLINE void drop_key(int width, const real_bits *bits, int shift, uint32_t least, real *restrict x)
{
    SIMD
    for (int l = 0; l < width; l++)
        x[l] = (uint32_t)bits[l] << shift < least ? 0 : x[l];
}

INLINE void drop(int width, const pe_query_block *queries, const pe_panel *p, idx first, int n, real *x)
{
    const double dropped = nearest(dropout_of(queries->call) * 65536);
    const uint32_t least = (uint32_t)(dropped < 65535 ? dropped : 65535) << 16;
    real_bits bits[DRAWN_WORDS][PANEL_LANES];
    for (int j = -(int)(first % DRAWN_KEYS); j < n; j += DRAWN_KEYS) {
        draw(queries, (uint32_t)((first + j) / DRAWN_KEYS), (uint32_t)(queries->first + p->first), width, bits);
        for (int i = (int)max_(0, -j); i < min_(DRAWN_KEYS, n - j); i++)
            drop_key(width, bits[i / 2], i % 2 ? 0 : 16, least, x + (j + i) * width);
    }
}

void FN(drop)(const pe_query_block *queries, const pe_panel *p, idx first, int n, real *x)
{
    if (p->width == LANES)
        drop(LANES, queries, p, first, n, x);
    else
        drop(PANEL_LANES, queries, p, first, n, x);
}
