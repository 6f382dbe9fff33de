/* emulated.c -- the products of amx.c in portable C, bit for bit, for tests on every machine.
 *
 *     for (int k = 0; k < DOT; k += 2) {
 *         even = fma(a[k], b[k], even);
 *         odd = fma(a[k + 1], b[k + 1], odd);
 *     }
 *     c = (even + odd) + c;
 *
 * even and odd begin at 0 for each DOT numbers. Intel's manual gives this order for TDPBF16PS, and a Xeon gave the same
 * bits. TDPBF16PS flushes subnormal numbers in any state of the processor. Here the state of the thread (float_state.h)
 * flushes them.
 */
#include "bf16/products.h"

#if PE_REAL == 32
#include <math.h>

/* Each thread configures its tiles before it multiplies, and releases them before it does anything else. TDPBF16PS
 * without a configuration is an invalid instruction (#UD), and tiles that nothing releases slow down the thread; here
 * the product is then NaN. */
static _Thread_local int configurations;
static void begin(void) { configurations++; }
static void end(void) { configurations = 0; }

INLINE float fused(float a, float b, float c) { return PE_FMA ? fma_(a, b, c) : fmaf(a, b, c); }

INLINE void add_dot(const char *row, const uint32_t *b, int width, float *restrict c)
{
    float even[PANEL_LANES] = {0}, odd[PANEL_LANES] = {0};
    uint16_t a[DOT];
    memcpy(a, row, sizeof a);
    for (int k = 0; k < DOT; k += 2, b += width) {
        const float x = widen_bf16(a[k]), y = widen_bf16(a[k + 1]);
        SIMD
        for (int l = 0; l < width; l++) {
            even[l] = fused(x, bits_float(b[l] << 16), even[l]);
            odd[l] = fused(y, bits_float(b[l] & 0xffff0000u), odd[l]);
        }
    }
    SIMD
    for (int l = 0; l < width; l++)
        c[l] = (even[l] + odd[l]) + c[l];
}

INLINE void multiply_panel(int width, const pe_product *w)
{
    for (int r = 0; r < w->rows; r++) {
        float *c = w->c + r * width;
        for (int l = 0; l < width; l++)
            c[l] = configurations == 1 ? 0 : NAN;
        for (int k = 0; k < w->depth / DOT; k++) {
            for (int p = 0; p < w->passes; p++)
                add_dot(w->pass[p].a + r * w->row_step + k * w->dot_step, w->pass[p].b + k * DOT / 2 * width, width, c);
        }
    }
}

static void multiply(const pe_product *w) { FOR_WIDTH(multiply_panel, w->width, w); }

const pe_products FN(products_emulated) = {begin, end, multiply, MOST_TERMS, &FN(bf16)};
#endif
