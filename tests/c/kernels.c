/* kernels.c -- run kernels without Python, each against a plain loop in double. test_kernels.py compiles it.
 *
 * Sanitizers and valgrind can run this program: arrays and scratch are exactly as long as the kernels may expect, and
 * each block of units has fresh scratch.
 */
#include "fits.h"
#include "base/real.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNT(array) ((idx)(sizeof(array) / sizeof *(array)))

extern const pe_kernel FN(pe_kernels)[PE_COUNT]; /* kernels/table.c */
static int failures;

/* Run all units of a call, in blocks of two. */
static void run(int entry, pe_call *call)
{
    const idx *const dim = call->dim;
    const double *const par = call->par;
    const pe_kernel *kernel = &FN(pe_kernels)[entry];
    idx units = -1;
    switch (entry) {
#define CALLABLE(name, signature, units_, ns, scratch) \
    case PE_##name:                                    \
        units = (units_);                              \
        break;
#include "ops.def"
    default: break;
    }
    for (int l = 0; l < call->nloops; l++)
        units *= call->shape[l];
    if (kernel->plan)
        kernel->plan(call);
    failures += units < 1;
    for (idx begin = 0; begin < units; begin += 2) {
        const size_t bytes = (kernel->scratch(call) + 63) / 64 * 64;
        const pe_work work = {.scratch = aligned_alloc(64, bytes), .block = begin / 2, .slow_l3 = (int)(begin / 2 % 2)};
        kernel->run(call, begin, min_(units, begin + 2), &work);
        free(work.scratch);
    }
}

static void check(const char *name, idx i, real value, double expected)
{
    const double bound = PE_REAL == 32 ? 2e-6 : 1e-14;
    if (!(fabs((double)value - expected) <= bound * (1 + fabs(expected))) && failures++ < 10)
        printf("%s: number %td is %.9g; expected %.9g\n", name, i, (double)value, expected);
}

static pe_call new_call(int narrays)
{
    pe_call call = {.narrays = narrays};
    for (int axis = 0; axis < PE_AXES; axis++)
        call.dim[axis] = -1;
    return call;
}

/* n reals of about -1 .. 1 */
static real *numbers(idx n)
{
    static uint32_t state = 1;
    real *x = malloc((size_t)n * sizeof *x);
    for (idx i = 0; i < n; i++)
        x[i] = (real)((state = state * 1664525u + 1013904223u) >> 8) / (1 << 23) - 1;
    return x;
}

/* A dense array whose last named axis has the length of a row */
static pe_array matrices(void *data, idx rows, idx row)
{
    const idx size = sizeof(real);
    return (pe_array){.data = data, .core = {rows * row * size, row * size, size}, .storage = PE_STORAGE};
}

/* x(h,n,d), rotated from channel 2 on by positions from 5 on, or by a table of their angles */
static void rotate(int interleaved, int out_interleaved, int inverse, int by_table)
{
    enum { H = 3, N = 2050, D = 12, E = 4, OFFSET = 2 };
    static const double w[E] = {1, 0.5, 0.25, 0.125}, factor = 1.25;
    const idx size = sizeof(real);
    real *x = numbers(H * N * D), *out = numbers(H * N * D), *table = numbers(N * 2 * E);
    int64_t *positions = malloc(N * sizeof *positions);
    const double scale = inverse ? 1 / factor : factor;
    for (idx i = 0; i < N; i++) {
        positions[i] = i + 5;
        for (idx k = 0; k < E; k++) {
            table[i * 2 * E + k] = (real)(scale * cos((double)positions[i] * w[k]));
            table[i * 2 * E + E + k] = (real)((inverse ? -scale : scale) * sin((double)positions[i] * w[k]));
        }
    }
    pe_call call = new_call(4);
    call.D(h) = H, call.D(n) = N, call.D(d) = D, call.D(e) = E;
    call.array[0] = (pe_array){.data = (char *)x, .core = {D * size, size, N * D * size}, .storage = PE_STORAGE};
    call.array[1] = (pe_array){.data = (char *)positions, .core = {sizeof *positions}, .storage = PE_I64};
    call.array[2] = (pe_array){.data = (char *)w, .core = {sizeof *w}, .storage = PE_F64};
    call.array[3] = call.array[0], call.array[3].data = (char *)out;
    if (by_table) {
        call.array[1] = (pe_array){.data = (char *)table, .core = {2 * E * size}, .storage = PE_STORAGE};
        call.array[2] = call.array[1], call.array[2].data += E * size;
    }
    call.par[ROPE_LAYOUT] = interleaved, call.par[ROPE_OUT_LAYOUT] = out_interleaved, call.par[ROPE_OFFSET] = OFFSET;
    call.par[ROPE_INVERSE] = inverse, call.par[ROPE_FACTOR] = factor;
    run(by_table ? PE_rope : PE_rope_positions, &call);
    for (idx i = 0; i < H * N; i++) {
        const real *from = x + i * D, *to = out + i * D, *c = table + i % N * 2 * E, *s = c + E;
        for (idx k = 0; k < E; k++) {
            const idx a = OFFSET + (interleaved ? 2 * k : k), b = a + (interleaved ? 1 : E);
            const idx y = OFFSET + (out_interleaved ? 2 * k : k), z = y + (out_interleaved ? 1 : E);
            check("rope", i * D + y, to[y], (double)from[a] * (double)c[k] - (double)from[b] * (double)s[k]);
            check("rope", i * D + z, to[z], (double)from[a] * (double)s[k] + (double)from[b] * (double)c[k]);
        }
        for (idx k = 0; k < D; k += k == OFFSET - 1 ? 2 * E + 1 : 1)
            check("rope, other channels", i * D + k, to[k], (double)from[k]);
    }
    free(x), free(out), free(table), free(positions);
}

/* Causal attention of h heads with g heads of keys: q(h,n,d), k(g,m,d), v(g,m,e) */
static void attend(idx h, idx g, idx n, idx m)
{
    enum { D = 20, E = 12 };
    real *q = numbers(h * n * D), *k = numbers(g * m * D), *v = numbers(g * m * E), *out = numbers(h * n * E);
    double *weight = malloc((size_t)m * sizeof *weight);
    pe_call call = new_call(A_LSE + 1);
    call.D(h) = h, call.D(g) = g, call.D(n) = n, call.D(m) = m, call.D(d) = D, call.D(e) = E;
    call.array[A_Q] = matrices(q, n, D), call.array[A_K] = matrices(k, m, D), call.array[A_V] = matrices(v, m, E);
    call.array[A_OUT] = matrices(out, n, E);
    call.par[A_SCALE] = 0.25, call.par[A_LOW] = -HUGE_VAL, call.par[A_SHIFT] = (double)(m - n), call.par[A_PARTS] = 1;
    run(PE_attention, &call);
    for (idx row = 0; row < h * n; row++) {
        const idx of = row / n * g / h, seen = row % n + m - n + 1;
        double sum = 0;
        for (idx j = 0; j < seen; j++) {
            double score = 0;
            for (idx i = 0; i < D; i++)
                score += (double)q[row * D + i] * (double)k[(of * m + j) * D + i];
            sum += weight[j] = exp(0.25 * score);
        }
        for (idx i = 0; i < E; i++) {
            double expected = 0;
            for (idx j = 0; j < seen; j++)
                expected += weight[j] / sum * (double)v[(of * m + j) * E + i];
            check("attention", row * E + i, out[row * E + i], expected);
        }
    }
    free(q), free(k), free(v), free(out), free(weight);
}

/* A bias of distance, of two heads */
static void bias_of_distance(void)
{
    double slopes[] = {0.5, 0.25}, rel[] = {-3, -2, -1, 0, 1, 2.5};
    real out[2 * COUNT(rel)];
    pe_call call = new_call(3);
    call.D(h) = 2, call.D(l) = COUNT(rel);
    call.array[0] = (pe_array){.data = (char *)slopes, .core = {sizeof *slopes}, .storage = PE_F64};
    call.array[1] = (pe_array){.data = (char *)rel, .core = {sizeof *rel}, .storage = PE_F64};
    call.array[2] = (pe_array){.data = (char *)out, .core = {sizeof out / 2, sizeof *out}, .storage = PE_STORAGE};
    run(PE_alibi, &call);
    for (idx i = 0; i < COUNT(out); i++)
        check("alibi", i, out[i], -slopes[i / COUNT(rel)] * fabs(rel[i % COUNT(rel)]));
}

int main(void)
{
    for (int i = 0; i < 16; i++)
        rotate(i & 1, i >> 1 & 1, i >> 2 & 1, i >> 3);
    attend(4, 2, 70, 130);
    attend(4, 1, 1, 300);
    bias_of_distance();
    return failures != 0;
}
