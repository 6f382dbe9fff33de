/* decode.c -- attention of few queries, one above all: as fast as keys and values are read.
 *
 * Where attention.c has queries on the SIMD lanes, most of them would be idle here. So channels stand on the lanes, both
 * of keys and of values, where they lie; LANES keys give LANES vectors of products, which a tree of additions makes
 * one vector of scores. A unit takes all heads that share their keys, up to PAIRS pairs of a head and a query: keys come
 * from memory for the first of them, for the others from the cache. A pair's sums are its own: they have the same bits
 * whatever pairs stand beside it.
 *
 * Masks are those of tile.c, a head at a time. Numbers that are not finite are left to attention.c: a result that is not
 * finite is computed again there.
 */
#include "attention/decode.h"
#include "tile/panel.h"

/* pairs of a unit; vectors of value columns and keys of values at a time; bytes that memory is asked for ahead */
enum { PAIRS = 16, STRIP = 4, SOME = 32, AHEAD = 8192, LINE = 64 };
/* pairs whose values are summed together: 16 of AVX-512's 32 registers, 8 of 16 elsewhere */
enum { TOGETHER = VEC_BYTES == 64 ? 4 : 2 };

typedef struct {
    int d, e, wide_d, wide_e; /* widths of heads, and with what fills up the last vector */
    int heads, pairs;         /* pair = number of the head times queries, plus the query */
    real *q, *o, *s, *copy, *row;
    real top[PAIRS], factor[PAIRS], one[PAIRS], total[PAIRS * LANES];
} pe_few;

static int share_of(const pe_call *call) { return (int)min_(call->D(h) / call->D(g), PAIRS / call->D(n)); }

int FN(is_decoding)(const pe_call *call)
{
    for (int t = 0; t < call->nterms; t++) {
        const int op = call->term[t].op;
        if (op == PE_shaw || op == PE_transformer_xl || op == PE_deberta || op == PE_cope || op == PE_tupe)
            return 0;
    }
    return call->D(n) <= (LANES < 16 ? LANES / 2 : 8);
}

int FN(begins_decoding)(const pe_call *call, idx unit)
{
    return unit % call->D(h) % (call->D(h) / call->D(g)) % share_of(call) == 0;
}

/* Rows whose vectors are whole: in place where they are already. A copy has zeros behind a row; rows that fill up to LANES
 * are not set, nobody looks at what becomes of them. */
static const char *whole_rows(const char *data, idx *step, pe_storage storage, int n, int width, real *copy)
{
    const idx room = width + ATTENTION_PAD, from = *step;
    if (storage == PE_STORAGE && width % LANES == 0 && n >= LANES)
        return data;
    for (int j = 0; j < n; j++) {
        real *to = copy + j * room;
        const real *row = row_read(data + j * from, storage, width, to);
        if (row != to)
            memcpy(to, row, (size_t)width * sizeof *row);
        for (int k = width; k % LANES; k++)
            to[k] = 0;
    }
    *step = room * (idx)sizeof(real);
    return (const char *)copy;
}

/* ---- products ---- */

/* Lines of rows that lie ahead, asked for in their order and a few at a time: `turns` passes over the rows share them, so
 * that there are requests under way all the time. */
typedef struct {
    const char *next;
    idx gap; /* from the end of a row to the next one */
    int left, row, wait, turns;
} pe_ahead;

INLINE pe_ahead ahead_of(const char *rows, idx step, int width, int turn, int turns)
{
    const int lines = (int)BLOCKS(width * (idx)sizeof(real), LINE);
    return (pe_ahead){rows + (AHEAD / (max_(width, 1) * (idx)sizeof(real)) + 1) * step,
                      step - lines * LINE,
                      lines,
                      lines,
                      turn,
                      turns};
}

INLINE int my_turn(pe_ahead *a)
{
    const int mine = a->wait-- == 0;
    a->wait = mine ? a->turns - 1 : a->wait;
    return mine;
}

INLINE void ask(pe_ahead *a, int lines)
{
    const int mine = my_turn(a);
    UNROLL
    for (int i = 0; i < lines; i++) {
        if (mine)
            PREFETCH(a->next);
        a->next += LINE;
        if (--a->left == 0) {
            a->next += a->gap;
            a->left = a->row;
        }
    }
}

/* s = q . k for LANES keys */
INLINE void key_block(const char *k, idx step, int turn, int turns, const real *q, int d, real *s)
{
    const char *half = k + LANES / 2 * step; /* so that LANES / 2 offsets are enough, or registers run out */
    pe_ahead ahead = ahead_of(k, step, d, turn, turns);
    vec acc[LANES];
    UNROLL
    for (int r = 0; r < LANES; r++)
        acc[r] = vec_set(0);
    for (int c = 0; c < d; c += LANES) {
        const vec x = vec_load(q + c);
        ask(&ahead, LANES * VEC_BYTES / LINE);
        UNROLL
        for (int r = 0; r < LANES; r++) {
            const char *at = (r < LANES / 2 ? k : half) + r % (LANES / 2) * step;
            acc[r] = vec_fma(vec_load((const real *)(const void *)at), x, acc[r]);
        }
        k += sizeof(vec);
        half += sizeof(vec);
    }
    vec_store(s, vec_sums(acc));
}

static NOINLINE void scores_of_pairs(pe_few *b, const char *k, idx step, int n)
{
    const int d = b->wide_d;
    for (int j = 0; j < n; j += LANES) {
        const int first = (int)max_(0, min_(j, n - LANES)); /* the last block has some keys of the one before */
        const char *at = k + first * step;
        real *s = b->s + first;
        for (int p = 0; p < b->pairs; p++)
            key_block(at, step, p, b->pairs, b->q + p * d, d, s + p * BLOCK_N);
    }
}

/* o = o factor + sum_j p_j v_j for some pairs and vectors of channels */
INLINE void value_block(int pairs, int cols, const char *v, idx step, int n, const real *p, const real *factor, real *o,
                        int o_step, const pe_ahead *rows)
{
    pe_ahead ahead = *rows;
    vec acc[4 * STRIP];
    UNROLL
    for (int i = 0; i < pairs * cols; i++)
        acc[i] = vec_set(0);
    for (int j = 0; j < n; j++, v += step) {
        if (my_turn(&ahead))
            for (int i = 0; i < ahead.row; i++)
                PREFETCH(ahead.next + i * LINE);
        ahead.next += step;
        UNROLL
        for (int r = 0; r < pairs; r++) {
            const vec y = vec_set(p[r * BLOCK_N + j]);
            UNROLL
            for (int c = 0; c < cols; c++)
                acc[r * cols + c] = vec_fma(y, vec_load((const real *)(const void *)v + c * LANES), acc[r * cols + c]);
        }
    }
    UNROLL
    for (int r = 0; r < pairs; r++)
        UNROLL
    for (int c = 0; c < cols; c++) {
        real *at = o + r * o_step + c * LANES;
        vec_store(at, vec_fma(vec_load(at), vec_set(factor[r]), acc[r * cols + c]));
    }
}

INLINE void value_columns(int cols, pe_few *b, const char *v, idx step, int first, int from, int n, pe_ahead *ahead)
{
    const int e = b->wide_e;
    const real *weight = b->s + from, *factor = from ? b->one : b->factor;
    real *o = b->o + first;
    int p = 0;
    v += first * (idx)sizeof(real);
    for (; b->pairs - p >= TOGETHER; p += TOGETHER, ahead->wait++)
        value_block(TOGETHER, cols, v, step, n, weight + p * BLOCK_N, factor + p, o + p * e, e, ahead);
    for (; p < b->pairs; p++, ahead->wait++)
        value_block(1, cols, v, step, n, weight + p * BLOCK_N, factor + p, o + p * e, e, ahead);
}

/* Some keys at a time: all their columns, for all pairs, while they are in the first cache */
static NOINLINE void values_of_pairs(pe_few *b, const char *v, idx step, int keys)
{
    const int wide = b->wide_e / (STRIP * LANES), strips = wide + (b->wide_e - wide * STRIP * LANES) / LANES;
    const int turns = strips * (b->pairs / TOGETHER + b->pairs % TOGETHER);
    for (int from = 0; from < keys; from += SOME, v += SOME * step) {
        const int n = (int)min_(SOME, keys - from);
        pe_ahead ahead = ahead_of(v, step, b->wide_e, 0, turns);
        int c = 0;
        for (; b->wide_e - c >= STRIP * LANES; c += STRIP * LANES)
            value_columns(STRIP, b, v, step, c, from, n, &ahead);
        for (; c < b->wide_e; c += LANES)
            value_columns(1, b, v, step, c, from, n, &ahead);
    }
}

/* ---- a tile ---- */

/* Scores of a pair with the bias of its head; nobody else than keys from .. to is seen */
static void bias_pair(real *s, int n, const pe_bias *bias, int lane)
{
    for (int j = 0; j < n; j++) {
        const int seen = j >= bias->from && j < bias->to;
        const real add = !seen ? MASKED : bias->add ? bias->add[(j - bias->from) * bias->step + lane] : 0;
        s[j] = add == MASKED ? MASKED : s[j] + add;
    }
}

static void softmax_pair(pe_few *b, int p, int n)
{
    const int whole = (n + LANES - 1) / LANES * LANES;
    real *s = b->s + p * BLOCK_N, lane[LANES], top = b->top[p];
    for (int j = n; j < whole; j++)
        s[j] = MASKED;
    vec most = vec_set(top);
    for (int j = 0; j < whole; j += LANES)
        most = vec_max(vec_load(s + j), most);
    vec_store(lane, most);
    for (int l = 0; l < LANES; l++)
        top = lane[l] > top ? lane[l] : top;
    const real base = top == MASKED ? 0 : top;
    b->factor[p] = exp2_((b->top[p] - base) * LOG2_E);
    b->top[p] = top;
    for (int l = 0; l < LANES; l++) {
        lane[l] = base;
        b->total[p * LANES + l] *= b->factor[p];
    }
    exponentials_narrow(s, lane, whole / LANES, b->total + p * LANES);
}

static void tile(pe_few *b, pe_queries *u, idx first_key)
{
    const pe_call *call = u->call;
    const pe_array *ka = &call->array[A_K], *va = &call->array[A_V];
    const char *k = u->row.data[A_K] + u->kv_head * ka->core[0] + first_key * ka->core[1];
    const char *v = u->row.data[A_V] + u->kv_head * va->core[0] + first_key * va->core[1];
    const real softcap = (real)call->par[A_SOFTCAP];
    const idx head = u->head;
    idx k_step = ka->core[1], v_step = va->core[1];
    pe_keys keys;
    int seen = 0, some = FN(keys_at)(&keys, u, first_key);
    if (!some && !u->row.data[A_KEEP])
        return;
    const int n = keys.n;
    k = whole_rows(k, &k_step, ka->storage, n, b->d, b->copy);
    scores_of_pairs(b, k, k_step, n);
    for (int h = 0; h < b->heads; h++) {
        u->head = head + h;
        if (h > 0 && u->row.data[A_KEEP])
            some = FN(keys_at)(&keys, u, first_key);
        keys.has_window = 0;
        pe_bias bias = {0, 0, 0, NULL};
        if (some)
            bias = FN(bias_of)(&keys, u, u->panel);
        seen |= bias.from < bias.to;
        for (int l = 0; l < u->lanes; l++) {
            const int p = h * u->lanes + l;
            if (softcap > 0)
                cap(b->s + p * BLOCK_N, n, softcap);
            if (bias.add || bias.from > 0 || bias.to < n)
                bias_pair(b->s + p * BLOCK_N, n, &bias, l);
            softmax_pair(b, p, n);
        }
    }
    u->head = head;
    if (!seen)
        return;
    v = whole_rows(v, &v_step, va->storage, n, b->e, b->copy);
    values_of_pairs(b, v, v_step, n);
}

/* ---- a unit ---- */

static void pack_pairs(const pe_queries *u, pe_few *b)
{
    const pe_array *a = &u->call->array[A_Q];
    const real scale = (real)u->call->par[A_SCALE];
    memset(b->q, 0, (size_t)(b->pairs * b->wide_d) * sizeof(real));
    for (int p = 0; p < b->pairs; p++) {
        const char *data = u->row.data[A_Q] + (u->head + p / u->lanes) * a->core[0] + p % u->lanes * a->core[1];
        const real *row = row_read(data, a->storage, b->d, b->row);
        for (int k = 0; k < b->d; k++)
            b->q[p * b->wide_d + k] = row[k] * scale;
    }
}

/* o / total in place; whether all of it is finite */
static int normalise(const pe_few *b, int p, real total)
{
    const real divisor = total == 0 ? 1 : total;
    real *o = b->o + p * b->wide_e;
    int odd = 0;
    SIMD_OR(odd)
    for (int k = 0; k < b->e; k++) {
        o[k] = o[k] / divisor + 0; /* no -0, as in attention.c */
        odd |= !(o[k] - o[k] == 0);
    }
    return !odd;
}

static int write_head(const pe_queries *u, const pe_few *b, int h)
{
    const pe_array *oa = &u->call->array[A_OUT], *la = &u->call->array[A_LSE];
    real total[PAIRS];
    for (int l = 0; l < u->lanes; l++) {
        const int p = h * u->lanes + l;
        total[l] = 0;
        for (int c = 0; c < LANES; c++)
            total[l] += b->total[p * LANES + c];
        if (!normalise(b, p, total[l]))
            return 0;
    }
    for (int l = 0; l < u->lanes; l++) {
        const int p = h * u->lanes + l;
        char *out = u->row.data[A_OUT] + (u->head + h) * oa->core[0] + l * oa->core[1];
        char *lse = u->row.data[A_LSE] + (u->head + h) * la->core[0] + l * la->core[1];
        real end = total[l] == 0 ? MASKED : (real)((double)b->top[p] + log((double)total[l]));
        if (oa->storage == PE_STORAGE)
            memcpy(out, b->o + p * b->wide_e, (size_t)b->e * sizeof(real));
        else
            row_write(b->o + p * b->wide_e, out, oa->storage, b->e);
        if (la->storage == PE_STORAGE)
            memcpy(lse, &end, sizeof end);
        else
            row_write(&end, lse, la->storage, 1);
    }
    return 1;
}

int FN(decode)(pe_queries *u, char *scratch)
{
    const pe_call *call = u->call;
    const idx share = call->D(h) / call->D(g);
    pe_few b;
    int left = 0;
    b.d = (int)call->D(d);
    b.e = (int)call->D(e);
    b.wide_d = (b.d + LANES - 1) / LANES * LANES;
    b.wide_e = (b.e + LANES - 1) / LANES * LANES;
    b.heads = (int)min_(share_of(call), share - u->head % share);
    b.pairs = b.heads * u->lanes;
    b.q = carve(&scratch, (idx)PAIRS * b.wide_d);
    b.o = carve(&scratch, (idx)PAIRS * b.wide_e);
    b.s = carve(&scratch, (idx)PAIRS * BLOCK_N);
    b.copy = carve(&scratch, (max_(b.d, b.e) + ATTENTION_PAD) * BLOCK_N);
    b.row = carve(&scratch, max_(b.d, b.e));
    pack_pairs(u, &b);
    memset(b.o, 0, (size_t)(b.pairs * b.wide_e) * sizeof(real));
    memset(b.total, 0, sizeof b.total);
    for (int p = 0; p < b.pairs; p++)
        b.top[p] = MASKED, b.one[p] = 1;
    for (idx first = 0; first < call->D(m); first += BLOCK_N) {
        if (call->stop && call->stop(call))
            return -1;
        tile(&b, u, first);
    }
    for (int h = 0; h < b.heads; h++)
        left |= !write_head(u, &b, h) << h;
    return left;
}
