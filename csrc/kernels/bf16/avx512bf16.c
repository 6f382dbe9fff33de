/* avx512bf16.c -- the products of products.h with VDPBF16PS, which computes 32 products of bfloat16 numbers.
 *
 *     for (int k = 0; k < depth; k += 2) {
 *         c = fma(a[k + 1], b[k + 1], c);
 *         c = fma(a[k], b[k], c);
 *     }
 *
 * As in product.c, 8 rows x 2 vectors of sums stay in registers. VDPBF16PS broadcasts a word of two k of a row from
 * memory. On AMD, VDPBF16PS takes the time of an FMA and computes twice as many products, so it is faster for
 * operands of one term. On Intel it takes four times the time of an FMA, so it is slower.
 */
#include "bf16/products.h"

#if PE_HAS_INSTRUCTIONS
/* c += a[0] b[0] + a[1] b[1] for each lane */
#define ADD_WORD(c, a, b) __asm__("vdpbf16ps %1%{1to16%}, %2, %0" : "+v"(c) : "m"(*(const uint32_t(*)[1])(a)), "v"(b))

enum { ROWS = 8 };

INLINE __attribute__((target("avx512bf16"))) void multiply_rows(int width, const pe_product *w, int row)
{
    const int vectors = width / LANES;
    vec sum[2 * ROWS];
    UNROLL
    for (int i = 0; i < ROWS * vectors; i++)
        sum[i] = vec_set(0);
    for (int p = 0; p < w->passes; p++) {
        const real *b = (const real *)(const void *)w->pass[p].b;
        for (int dot = 0; dot < w->depth / DOT; dot++) {
            const char *a = w->pass[p].a + row * w->row_step + dot * w->dot_step;
            for (int k = 0; k < DOT / 2; k++, a += sizeof(uint32_t), b += vectors * LANES) {
                const vec x = vec_load(b), y = vectors == 2 ? vec_load(b + LANES) : x;
                UNROLL
                for (int r = 0; r < ROWS; r++) {
                    ADD_WORD(sum[r * vectors], (a + r * w->row_step), x);
                    if (vectors == 2)
                        ADD_WORD(sum[r * vectors + 1], (a + r * w->row_step), y);
                }
            }
        }
    }
    UNROLL
    for (int i = 0; i < ROWS * vectors; i++)
        vec_store(w->c + (row * vectors + i) * LANES, sum[i]);
}

static __attribute__((target("avx512bf16"))) void multiply(const pe_product *w)
{
    for (int row = 0; row < w->rows; row += ROWS)
        FOR_WIDTH(multiply_rows, w->width, w, row);
}

const pe_products FN(products_avx512bf16) = {NULL, NULL, multiply, 1, &FN(bf16)};
#endif
