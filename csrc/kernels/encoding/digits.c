/* digits.c -- numbers as digits in a base and back, and the positions of the tokens that a mask keeps. */
#include "base/row.h"
#include "base/sincos.h"

/* whole() fraction?() -> out(w); base: most significant first. Remainders of 64-bit integers are exact, and so is a
 * digit plus the fraction: it has no more bits than the number. */
void FN(digits)(const pe_call *call, idx begin, idx end, const pe_work *work)
{
    const idx w = call->D(w);
    const uint64_t base = (uint64_t)call->par[0];
    (void)work;
    for (pe_row at = row_at(call, begin); at.index < end; row_next(call, &at)) {
        double *out = (double *)(void *)at.data[2];
        uint64_t rest;
        memcpy(&rest, at.data[0], sizeof rest);
        for (idx k = w - 1; k >= 0; k--) {
            if ((rest | base) >> 32) {
                out[k] = (double)(rest % base);
                rest /= base;
            } else { /* a division of 32 bits takes a third of the time on many machines */
                out[k] = (double)((uint32_t)rest % (uint32_t)base);
                rest = (uint32_t)rest / (uint32_t)base;
            }
        }
        if (at.data[1] && w > 0) {
            double fraction;
            memcpy(&fraction, at.data[1], sizeof fraction);
            out[w - 1] += fraction;
        }
    }
}

/* Horner's rule; says whether it is right to half an ulp: whole digits but for the last, below 2**53 all the way. */
static int horner(const double *digit, idx w, double base, double *result)
{
    double sum = 0;
    int exact = 1;
    for (idx k = 0; k < w; k++) {
        sum = sum * base + digit[k];
        exact &= digit[k] >= 0 && sum < 0x1p53 && (k == w - 1 || nearest(digit[k]) == digit[k]);
    }
    *result = sum;
    return exact;
}

/* The same on an unevaluated sum of two doubles, a third as fast: what was split comes back to the bit past 2**53. */
static double wide_horner(const double *digit, idx w, double base)
{
    double hi = 0, lo = 0;
    for (idx k = 0; k < w; k++) {
        const double scaled = hi * base, error = product_error(hi, base, scaled);
        const double sum = scaled + digit[k], other = sum - scaled;
        const double rest = ((scaled - (sum - other)) + (digit[k] - other)) + (error + lo * base);
        const int far = fabs_(sum) > 0x1p960; /* near the end of double errors would be NaN */
        hi = far ? sum : sum + rest;
        lo = far ? 0 : rest - (hi - sum);
    }
    return hi;
}

/* digits!(w) -> out(); base */
void FN(from_digits)(const pe_call *call, idx begin, idx end, const pe_work *work)
{
    const idx w = call->D(w);
    const double base = call->par[0];
    (void)work;
    for (pe_row at = row_at(call, begin); at.index < end; row_next(call, &at)) {
        const double *digit = (const double *)(const void *)at.data[0];
        double number;
        if (!horner(digit, w, base, &number))
            number = wide_horner(digit, w, base);
        memcpy(at.data[1], &number, sizeof number);
    }
}

/* keep(n) -> out(n); start: start + max(cumsum(keep) - 1, 0) */
void FN(positions_from_mask)(const pe_call *call, idx begin, idx end, const pe_work *work)
{
    const idx n = call->D(n);
    const int64_t start = (int64_t)call->par[0];
    (void)work;
    for (pe_row at = row_at(call, begin); at.index < end; row_next(call, &at)) {
        const unsigned char *keep = (const unsigned char *)at.data[0];
        int64_t *out = (int64_t *)(void *)at.data[1];
        int64_t count = 0;
        for (idx k = 0; k < n; k++) {
            count += keep[k] != 0;
            out[k] = start + (count > 0 ? count - 1 : 0);
        }
    }
}
