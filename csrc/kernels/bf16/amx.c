/* amx.c -- the products of products.h in AMX tiles: registers of 16 rows x 64 bytes.
 *
 *     A: 16 rows of a, 32 k each     B: 16 words of two k, 16 lanes each     C: 16 rows x 16 lanes of c
 *     TDPBF16PS C, A, B                         C[row][lane] += sum_k A[row][k] B[k][lane]
 *
 * A step computes 32 rows and the panel: C in tiles 0 .. 3 (two if the panel is one vector), A in 4 and 5, B in 6 and
 * 7. With two vectors, each loaded tile is multiplied twice. Passes with one term of `a` share its tiles. The code
 * is assembly, because each tile has a fixed number, and because gcc 12 hands only 8 of the 64 bytes over that
 * _tile_loadconfig needs.
 */
#include "bf16/products.h"

#if PE_HAS_INSTRUCTIONS
#define TILES __attribute__((target("amx-tile,amx-bf16")))
#define LOAD(tile, at, step) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile : : "r"(at), "r"((idx)(step)) : "memory")
#define STORE(tile, at, step) \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" : : "r"(at), "r"((idx)(step)) : "memory")
#define ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile : :)
#define MULTIPLY(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)

enum { TILE_ROWS = 16, TILE_BYTES = 64, TILES_USED = 8 };

/* The configuration belongs to the thread and slows down each context switch, so each work item releases it at its
 * end. */
TILES static void begin(void)
{
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes_of_row[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int i = 0; i < TILES_USED; i++) {
        config.rows[i] = TILE_ROWS;
        config.bytes_of_row[i] = TILE_BYTES;
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
}

TILES static void end(void) { __asm__ volatile("tilerelease" : :); }

TILES static void multiply(const pe_product *w)
{
    const int wide = w->width > LANES;
    const idx step = w->width * (idx)sizeof(float);
    for (int row = 0; row < w->rows; row += 2 * TILE_ROWS) { /* rows are a multiple of DOT */
        char *c = (char *)(w->c + row * w->width);
        ZERO(0);
        ZERO(1);
        ZERO(2);
        ZERO(3);
        for (int k = 0; k < w->depth / DOT; k++) {
            for (int p = 0; p < w->passes; p++) {
                const char *a = w->pass[p].a + row * w->row_step + k * w->dot_step;
                const char *b = (const char *)(w->pass[p].b + k * TILE_ROWS * w->width);
                LOAD(6, b, step);
                if (p == 0 || w->pass[p].a != w->pass[p - 1].a) {
                    LOAD(4, a, w->row_step);
                    LOAD(5, a + TILE_ROWS * w->row_step, w->row_step);
                }
                MULTIPLY(0, 4, 6);
                MULTIPLY(2, 5, 6);
                if (!wide)
                    continue;
                LOAD(7, b + TILE_BYTES, step);
                MULTIPLY(1, 4, 7);
                MULTIPLY(3, 5, 7);
            }
        }
        STORE(0, c, step);
        STORE(2, c + TILE_ROWS * step, step);
        if (!wide)
            continue;
        STORE(1, c + TILE_BYTES, step);
        STORE(3, c + TILE_ROWS * step + TILE_BYTES, step);
    }
}

const pe_products FN(products_amx) = {begin, end, multiply, MOST_TERMS, &FN(bf16)};
#endif
