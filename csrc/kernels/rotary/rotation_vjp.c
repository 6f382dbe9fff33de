/* rotation_vjp.c -- gradients of the cos and sin that rotate pairs of x (rope.c), from the cotangents of the pairs:
 *
 *     for (k < e)
 *         dcos[k] = sum over h: g0[k] * x0[k] + g1[k] * x1[k], dsin[k] = sum over h: g1[k] * x0[k] - g0[k] * x1[k];
 *
 * With rotated pairs y in place of x they are the gradients of the logarithm of a pair's size, and of its angle. The
 * sums over the h heads that share cos and sin are double, in the order of the heads. A unit is a run of positions,
 * whose sums stay in a cache while one head after the other is read.
 */
#include "fits.h"
#include "base/layout.h"
#include "base/row.h"

typedef struct {
    real *x, *grad; /* rotated channels that are not stored as real */
} rotation_vjp_state;

LAYOUT(rotation_vjp)
{
    s->x = carve_reals(c, 2 * D(e));
    s->grad = carve_reals(c, 2 * D(e));
}

/* Add the products of n pairs. Pair k of x is (x[k * step], x[k * step + partner]). */
INLINE void add_products(const real *x, idx step, idx partner, const real *g, idx g_step, idx g_partner, idx n,
                         double *restrict dcos, double *restrict dsin)
{
    SIMD
    for (idx k = 0; k < n; k++) {
        const double x0 = (double)x[k * step], x1 = (double)x[k * step + partner];
        const double g0 = (double)g[k * g_step], g1 = (double)g[k * g_step + g_partner];
        dcos[k] += g0 * x0 + g1 * x1;
        dsin[k] += g1 * x0 - g0 * x1;
    }
}

static NOINLINE void add_row(const real *x, int interleaved, const real *g, int g_interleaved, idx n, double *dcos,
                             double *dsin)
{
    if (interleaved && g_interleaved)
        add_products(x, 2, 1, g, 2, 1, n, dcos, dsin);
    else if (interleaved)
        add_products(x, 2, 1, g, 1, n, n, dcos, dsin);
    else if (g_interleaved)
        add_products(x, 1, n, g, 2, 1, n, dcos, dsin);
    else
        add_products(x, 1, n, g, 1, n, n, dcos, dsin);
}

KERNEL(rotation_vjp)
{
    enum { X, GRAD, DCOS, DSIN };
    const idx *const dim = call->dim, e = D(e), runs = BLOCKS(D(n), ROPE_RUN);
    const pe_array *a = call->array;
    const idx before = (idx)call->par[ROPE_OFFSET];
    const idx x_before = before * storage_size(a[X].storage), grad_before = before * storage_size(a[GRAD].storage);
    const int interleaved = (int)call->par[ROPE_LAYOUT], grad_interleaved = (int)call->par[ROPE_OUT_LAYOUT];
    const rotation_vjp_state s = rotation_vjp_begin(call, work);
    for (idx unit = begin; unit < end; unit++) {
        const pe_row row = row_at(call, unit / runs);
        const idx first = unit % runs * ROPE_RUN, count = min_(D(n) - first, ROPE_RUN);
        for (idx i = first; i < first + count; i++) {
            memset(row.data[DCOS] + i * a[DCOS].core[0], 0, (size_t)e * sizeof(double));
            memset(row.data[DSIN] + i * a[DSIN].core[0], 0, (size_t)e * sizeof(double));
        }
        for (idx h = 0; h < D(h); h++) {
            for (idx i = first; i < first + count; i++) {
                const char *x = entry_at(&a[X], row.data[X], h, i) + x_before;
                const char *grad = entry_at(&a[GRAD], row.data[GRAD], h, i) + grad_before;
                add_row(row_read(x, a[X].storage, 2 * e, s.x), interleaved,
                        row_read(grad, a[GRAD].storage, 2 * e, s.grad), grad_interleaved, e,
                        as_doubles(row.data[DCOS] + i * a[DCOS].core[0]),
                        as_doubles(row.data[DSIN] + i * a[DSIN].core[0]));
            }
        }
    }
}
