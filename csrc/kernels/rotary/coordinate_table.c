/* coordinate_table.c -- cos and sin for rotations by several coordinates, where each pair turns by one coordinate:
 *
 *     for each coordinate c of the row:
 *         for (int k = begin[c]; k < begin[c] + pairs[c]; k++)
 *             out[k] = cosine_scale * cos(p[c] * w[k]), out[f + k] = sine_scale * sin(p[c] * w[k]);
 *
 * A pair has the bits of `sinusoid` at its coordinate. Neighbours in a grid mostly differ in one coordinate. So a row
 * recomputes only the angles of coordinates that changed; one loop then adds base and offset of all pairs (angles.h).
 */
#include "fits.h"
#include "base/layout.h"
#include "base/row.h"
#include "base/angles.h"

typedef struct {
    double position;
    int64_t base;
    int offset, is_sum, begin, pairs; /* is_sum 0: pe_angles base holds the angles of the position itself */
    char ready[OFFSETS];              /* 1 if `all` holds the angles of this offset */
} coordinate;

typedef struct {
    double *hi, *lo;        /* turns per position */
    pe_angles base, offset; /* of the row */
    pe_angles all;          /* of each offset, (OFFSETS, f) */
    coordinate *coordinate;
    real *values;
} coordinate_table_state;

static pe_angles carve_angles(pe_carver *c, idx n) { return (pe_angles){carve_doubles(c, n), carve_doubles(c, n)}; }

LAYOUT(coordinate_table)
{
    s->hi = carve_doubles(c, D(f));
    s->lo = carve_doubles(c, D(f));
    s->base = carve_angles(c, D(f));
    s->offset = carve_angles(c, D(f));
    s->all = carve_angles(c, OFFSETS * D(f));
    s->coordinate = carve_bytes(c, D(a) * (idx)sizeof(coordinate));
    s->values = carve_reals(c, D(t));
}

static pe_angles from(pe_angles angles, idx k) { return (pe_angles){angles.sine + k, angles.cosine + k}; }

/* Set the angles of coordinate c to position p. */
static void move_to(const coordinate_table_state *s, idx f, coordinate *c, double p)
{
    const int n = c->pairs, begin = c->begin;
    const double *hi = s->hi + begin, *lo = s->lo + begin;
    const pe_angles base = from(s->base, begin), offset = from(s->offset, begin);
    int64_t new_base;
    c->position = p;
    const int was_sum = c->is_sum;
    c->is_sum = split_position(p, &new_base, &c->offset);
    if (!c->is_sum) {
        sincos_row(hi, lo, p, n, base);
        return;
    }
    if (!was_sum || c->base != new_base)
        sincos_row(hi, lo, (double)new_base, n, base);
    c->base = new_base;
    const pe_angles own = from(s->all, c->offset * f + begin);
    if (!c->ready[c->offset])
        sincos_row(hi, lo, c->offset, n, own);
    c->ready[c->offset] = 1;
    memcpy(offset.sine, own.sine, (size_t)n * sizeof *own.sine);
    memcpy(offset.cosine, own.cosine, (size_t)n * sizeof *own.cosine);
}

KERNEL(coordinate_table)
{
    enum { POSITIONS, FREQUENCIES, FIRST, OUT };
    const idx axes = call->D(a), f = call->D(f);
    const pe_array *a = call->array;
    const double sine_scale = call->par[TABLE_SINE_SCALE], cosine_scale = call->par[TABLE_COSINE_SCALE];
    const coordinate_table_state s = coordinate_table_begin(call, work);
    coordinate *const last = s.coordinate + axes;
    pe_row row = row_at(call, begin);
    for (idx k = 0; k < f; k++)
        turns(as_doubles(row.data[FREQUENCIES])[k], 0, &s.hi[k], &s.lo[k]);
    for (idx axis = 0; axis < axes; axis++) {
        const double *first = as_doubles(row.data[FIRST]) + axis;
        coordinate *c = &s.coordinate[axis];
        memset(c, 0, sizeof *c);
        c->position = 0x1p60; /* equals no position: positions are at most 2**53 */
        c->begin = (int)min_(max_(0, (idx)first[0]), f);
        c->pairs = (int)min_(max_(0, (idx)first[1] - c->begin), f - c->begin);
    }
    /* add_angles_row reads the offsets of all coordinates; scale_row then overwrites its results where is_sum is 0 */
    memset(s.offset.sine, 0, (size_t)f * sizeof(double));
    memset(s.offset.cosine, 0, (size_t)f * sizeof(double));
    for (; row.index < end; row_next(call, &row)) {
        const char *position = row.data[POSITIONS];
        for (coordinate *c = s.coordinate; c < last; c++, position += a[POSITIONS].core[0]) {
            const double p = scalar_read(position, a[POSITIONS].storage);
            if (bits_of(p) != bits_of(c->position))
                move_to(&s, f, c, p);
        }
        real *to = row_target(row.data[OUT], a[OUT].storage, s.values);
        const int small =
            PE_REAL != 64 && add_angles_row(HALVES, s.base, s.offset, sine_scale, cosine_scale, (int)f, to + f, to);
        for (const coordinate *c = s.coordinate; c < last; c++) {
            const idx k = c->begin;
            if (!c->is_sum)
                scale_row(HALVES, from(s.base, k), sine_scale, cosine_scale, c->pairs, to + f + k, to + k);
            else if (small && c->base != 0 && c->offset != 0)
                recompute_small(s.hi + k, s.lo + k, c->position, from(s.base, k), from(s.offset, k), sine_scale,
                                cosine_scale, c->pairs, 1, to + f + k, to + k);
        }
        row_write(to, row.data[OUT], a[OUT].storage, 2 * f);
    }
}
