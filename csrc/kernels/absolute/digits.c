/* digits.c -- digits of numbers in a base, numbers from digits, and positions of the tokens that a mask keeps.
 *
 *     for (k = w - 1; k >= 0; k--)
 *         out[k] = whole % base, whole /= base;          digits
 *     for (k = 0; k < w; k++)
 *         out = out * base + digit[k];                   from_digits
 *
 * Digits are exact. from_digits rounds once if its partial sums are exact in double. Otherwise each step rounds to a
 * double-double, or to a double above 2**960, so a result near a tie may be rounded the other way. digits divides in 32
 * bits where number and base fit. Horner's rule in double-double is slower, so from_digits tries double first.
 */
#include "fits.h"
#include "base/row.h"
#include "base/sincos.h"

/* Digits, most significant first; the last one also gets the fraction. Remainders of 64-bit integers are exact. The sum
 * of the last digit and the fraction is exact, because it has no more bits than the number. */
KERNEL(digits)
{
    enum { WHOLE, FRACTION, OUT };
    const idx w = call->D(w);
    const uint64_t base = (uint64_t)call->par[DIGITS_BASE];
    for (pe_row row = row_at(call, begin); row.index < end; row_next(call, &row)) {
        double *out = as_doubles(row.data[OUT]);
        uint64_t rest = *(const uint64_t *)(const void *)row.data[WHOLE];
        for (idx k = w - 1; k >= 0; k--) {
            if ((rest | base) >> 32) {
                out[k] = (double)(rest % base);
                rest /= base;
            } else { /* a 32-bit division takes a third of the time of a 64-bit one on many CPUs */
                out[k] = (double)((uint32_t)rest % (uint32_t)base);
                rest = (uint32_t)rest / (uint32_t)base;
            }
        }
        if (row.data[FRACTION] && w > 0)
            out[w - 1] += *as_doubles(row.data[FRACTION]);
    }
}

/* Horner's rule. Returns whether the result is within half an ulp: all digits except the last are whole numbers, and
 * all partial sums are below 2**53. No digit is negative, so the last sum is the largest. */
static int horner(const double *digit, idx w, double base, double *result)
{
    double sum = 0;
    int exact = 1;
    for (idx k = 0; k < w; k++) {
        sum = sum * base + digit[k];
        exact &= (digit[k] >= 0) & ((k == w - 1) | (nearest(digit[k]) == digit[k]));
    }
    *result = sum;
    return exact & (sum < 0x1p53);
}

/* Horner's rule on a double-double hi + lo: numbers above 2**53 round trip bit for bit. */
static double horner_double_double(const double *digit, idx w, double base)
{
    double hi = 0, lo = 0;
    for (idx k = 0; k < w; k++) {
        const double scaled = hi * base, error = product_error(hi, base, scaled);
        const double sum = scaled + digit[k], other = sum - scaled;
        const double rest = ((scaled - (sum - other)) + (digit[k] - other)) + (error + lo * base);
        const int far = fabs_(sum) > 0x1p960; /* error terms near the overflow threshold would be NaN */
        hi = far ? sum : sum + rest;
        lo = far ? 0 : rest - (hi - sum);
    }
    return hi;
}

KERNEL(from_digits)
{
    enum { DIGITS, OUT };
    const idx w = call->D(w);
    const double base = call->par[DIGITS_BASE];
    for (pe_row row = row_at(call, begin); row.index < end; row_next(call, &row)) {
        const double *digit = as_doubles(row.data[DIGITS]);
        double number;
        if (!horner(digit, w, base, &number))
            number = horner_double_double(digit, w, base);
        memcpy(row.data[OUT], &number, sizeof number);
    }
}

/* out_k = start + max((keep_0 + ... + keep_k) - 1, 0) */
KERNEL(positions_from_mask)
{
    enum { KEEP, OUT, START = 0 };
    const idx n = call->D(n);
    const int64_t start = (int64_t)call->par[START];
    for (pe_row row = row_at(call, begin); row.index < end; row_next(call, &row)) {
        const unsigned char *keep = (const unsigned char *)row.data[KEEP];
        int64_t *out = (int64_t *)(void *)row.data[OUT];
        int64_t count = 0;
        for (idx k = 0; k < n; k++) {
            count += keep[k] != 0;
            out[k] = start + (count > 0 ? count - 1 : 0);
        }
    }
}
