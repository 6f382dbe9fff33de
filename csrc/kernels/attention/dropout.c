/* dropout.c -- zero the dropped weights of a panel (dropout.h).
 *
 *     for (int j = 0; j < n; j++)
 *         for (int l = 0; l < width; l++)
 *             x[j][l] = number(query l, key j) < 65536 * dropout ? 0 : x[j][l];
 *
 * Each lane draws the numbers of its query. One call of Philox draws them for 8 keys.
 */
#include "attention/dropout.h"

#include "base/elementary.h"

enum { ROUNDS = 7, DRAWN_KEYS = 8, DRAWN_WORDS = 4 };

/* Draw bits[w][lane], the words of `width` queries from `query` on for the keys from DRAWN_KEYS * group on. */
INLINE void draw(const pe_query_block *queries, uint32_t group, uint32_t query, int width,
                 uint32_t bits[DRAWN_WORDS][PANEL_LANES])
{
    const double *par = queries->call->par;
    const uint32_t low = (uint32_t)par[A_SEED_LOW], high = (uint32_t)par[A_SEED_HIGH];
    const uint32_t head = (uint32_t)queries->head, row = (uint32_t)queries->batch_row.index;
    SIMD
    for (int l = 0; l < width; l++) {
        uint32_t c0 = group, c1 = query + (uint32_t)l, c2 = head, c3 = row, k0 = low, k1 = high;
        UNROLL
        for (int r = 0; r < ROUNDS; r++) {
            const uint64_t a = (uint64_t)c0 * 0xD2511F53u, b = (uint64_t)c2 * 0xCD9E8D57u;
            c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
            c1 = (uint32_t)b;
            c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
            c3 = (uint32_t)a;
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        bits[0][l] = c0;
        bits[1][l] = c1;
        bits[2][l] = c2;
        bits[3][l] = c3;
    }
}

/* The number of a key is the low or the high half of its word. */
INLINE void drop_key(int width, const uint32_t *bits, int shift, uint32_t least, real *restrict x)
{
    SIMD
    for (int l = 0; l < width; l++)
        x[l] = bits[l] << shift < least ? 0 : x[l];
}

INLINE void drop(int width, const pe_view *v, real *x)
{
    const double dropped = nearest(dropout_of(v->queries->call) * 65536);
    const uint32_t least = (uint32_t)(dropped < 65535 ? dropped : 65535) << 16;
    const uint32_t query = (uint32_t)(v->queries->first + v->panel->first);
    const idx first = v->keys->first + v->bias->from;
    const int n = v->bias->to - v->bias->from;
    uint32_t bits[DRAWN_WORDS][PANEL_LANES];
    for (int j = -(int)(first % DRAWN_KEYS); j < n; j += DRAWN_KEYS) {
        draw(v->queries, (uint32_t)((first + j) / DRAWN_KEYS), query, width, bits);
        for (int i = (int)max_(0, -j); i < min_(DRAWN_KEYS, n - j); i++)
            drop_key(width, bits[i / 2], i % 2 ? 0 : 16, least, x + (j + i) * width);
    }
}

void FN(drop)(const pe_view *v, real *x)
{
    if (v->panel->width == LANES)
        drop(LANES, v, x);
    else
        drop(PANEL_LANES, v, x);
}
