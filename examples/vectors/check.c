/* Compute the rotary, sinusoidal, ALiBi and T5 vectors in double, and compare with the expected numbers.
 *
 *     cc -std=c11 -O2 examples/vectors/check.c -lm -o check && ./check examples/vectors
 *
 * Each line of vectors.txt is one of
 *
 *     case NAME
 *     PATH text VALUE
 *     PATH number VALUE
 *     PATH TYPE OFFSET RANK LENGTH...
 *
 * The last one is an array: F64, F32, I64 or BOOL, little-endian, at a byte of vectors.safetensors. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    char path[64], kind[8], rest[160];
    int is_read;
} Entry;

typedef struct {
    size_t shape[8], size;
    int rank;
    double *at;
} Array;

static Entry entries[64]; /* the lines of one case */
static int count;
static unsigned char *bytes; /* vectors.safetensors */

static Entry *find(const char *path)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(entries[i].path, path))
            return entries[i].is_read = 1, &entries[i];
    return NULL;
}

static int is_text(const char *path, const char *value)
{
    const Entry *e = find(path);
    return e && !strcmp(e->rest, value);
}

static double number(const char *path, double otherwise)
{
    const Entry *e = find(path);
    return e ? strtod(e->rest, NULL) : otherwise;
}

static Array array(const char *path)
{
    Array a = {.size = 1};
    const Entry *e = find(path);
    if (!e || e->kind[0] < 'A' || e->kind[0] > 'Z')
        return a; /* a text, a number, or no such argument */
    char *next;
    const unsigned char *from = bytes + strtoul(e->rest, &next, 10);
    a.rank = (int)strtol(next, &next, 10);
    for (int i = 0; i < a.rank; i++)
        a.size *= a.shape[i] = strtoul(next, &next, 10);
    a.at = malloc((a.size + 1) * sizeof *a.at);
    for (size_t i = 0; i < a.size; i++) {
        float f;
        long long n;
        if (!strcmp(e->kind, "F64"))
            memcpy(&a.at[i], from + 8 * i, 8);
        if (!strcmp(e->kind, "F32"))
            memcpy(&f, from + 4 * i, 4), a.at[i] = f;
        if (!strcmp(e->kind, "I64"))
            memcpy(&n, from + 8 * i, 8), a.at[i] = (double)n;
        if (!strcmp(e->kind, "BOOL"))
            a.at[i] = from[i];
    }
    return a;
}

/* Sine and cosine of position * (w + v), where v is the rounding error of w. The product is a sum of two doubles: at
 * position 2^31, the rounding of a single double would change the angle by up to 2^-22. */
static void sine_cosine(double position, double w, double v, double *sine, double *cosine)
{
    double a = position * w, b = fma(position, w, -a) + position * v;
    *sine = sin(a) * cos(b) + cos(a) * sin(b);
    *cosine = cos(a) * cos(b) - sin(a) * sin(b);
}

/* base^(-p/q) as w + v. Since x = w^q base^p is near 1, w is too large by the factor x^(1/q), about 1 + (x - 1) / q. */
static double power(double base, int p, int q, double *v)
{
    double w = pow(base, -(double)p / q), high = 1, low = 0;
    for (int i = 0; i < p + q; i++) {
        double factor = i < q ? w : base, product = high * factor;
        low = fma(high, factor, -product) + low * factor;
        high = product;
    }
    *v = -w * (high - 1 + low) / q;
    return w;
}

static void rope(double *out)
{
    Array x = array("x"), positions = array("positions"), w = array("frequencies");
    size_t width = x.shape[x.rank - 1], rows = x.shape[x.rank - 2], half = width / 2;
    int in_halves = is_text("layout", "half"), inverse = number("inverse", 0) != 0;
    for (size_t row = 0; row < x.size / width; row++)
        for (size_t k = 0; k < half; k++) {
            size_t i = row * width + (in_halves ? k : 2 * k), j = i + (in_halves ? half : 1);
            double s, c;
            sine_cosine(positions.at[row % rows], w.at[k], 0, &s, &c);
            if (inverse)
                s = -s;
            out[i] = x.at[i] * c - x.at[j] * s;
            out[j] = x.at[i] * s + x.at[j] * c;
        }
}

static void sinusoidal(double *out)
{
    Array positions = array("positions");
    int dim = (int)number("dim", 0), by_half = is_text("denominator", "half-1"),
        cosine_first = is_text("order", "cossin");
    int in_halves = is_text("layout", "half"), pairs = by_half ? dim / 2 : (dim + 1) / 2;
    size_t rows = positions.at ? positions.size : (size_t)number("positions", 0);
    double scale = number("scale", 1), base = number("base", 10000);
    for (size_t row = 0; row < rows; row++)
        for (int i = 0; i < pairs; i++) {
            double v, w = power(base, by_half ? i : 2 * i, by_half ? dim / 2 - 1 : dim, &v), both[2];
            sine_cosine(positions.at ? positions.at[row] : (double)row, w, v, &both[cosine_first],
                        &both[!cosine_first]);
            for (int second = 0; second < 2; second++) {
                int column = in_halves ? i + second * pairs : 2 * i + second;
                if (column < dim)
                    out[(int)row * dim + column] = scale * both[second];
            }
        }
}

static void alibi_slopes(double *out)
{
    int heads = (int)number("heads", 0), n = 1;
    while (2 * n <= heads)
        n *= 2;
    for (int h = 0; h < heads; h++)
        out[h] = h < n ? exp2(-8.0 * (h + 1) / n) : exp2(-4.0 * (2 * (h - n) + 1) / n);
}

static void t5_bucket(double *out)
{
    Array rel = array("rel");
    int buckets = (int)number("num_buckets", 32), both = number("bidirectional", 1) != 0;
    int side = both ? buckets / 2 : buckets, exact = side / 2;
    double max_distance = number("max_distance", 128);
    for (size_t i = 0; i < rel.size; i++) {
        double r = trunc(rel.at[i]), n = both ? fabs(r) : fmax(-r, 0);
        if (n >= exact) { /* 1e-13: a quotient of logarithms that is an integer must not be rounded below it */
            double step = log(n / exact) / log(max_distance / exact) * (side - exact);
            n = fmin(exact + floor(step + 1e-13), side - 1);
        }
        out[i] = both && r > 0 ? n + side : n;
    }
}

/* Compute the case in `entries`, and return its largest error as a share of the bound. -1: a function or an argument
 * that this program does not know. */
static double share(void)
{
    static const struct {
        const char *name;
        void (*compute)(double *);
    } known[] = {{"rope", rope}, {"sinusoidal", sinusoidal}, {"alibi_slopes", alibi_slopes}, {"t5_bucket", t5_bucket}};
    for (int i = 0; i < count; i++) /* such as frequencies/inv_freq */
        if (strchr(entries[i].path, '/') && strncmp(entries[i].path, "results/", 8))
            return -1;
    for (size_t f = 0; f < sizeof known / sizeof *known; f++) {
        if (!is_text("function", known[f].name))
            continue;
        Array expected = array("results/0/expected"), bound = array("results/0/float64");
        double *out = calloc(expected.size + 1, sizeof *out), worst = 0;
        known[f].compute(out);
        for (int i = 0; i < count; i++)
            if (!entries[i].is_read && strncmp(entries[i].path, "results/", 8))
                return -1;
        for (size_t i = 0; i < expected.size; i++) {
            double error = fabs(out[i] - expected.at[i]), part = error / bound.at[i];
            if (error != 0)
                worst = part <= worst ? worst : isnan(part) ? INFINITY : part;
        }
        return worst;
    }
    return -1;
}

int main(int words, char **word)
{
    char path[4096], line[256] = "", name[256] = "";
    snprintf(path, sizeof path, "%s/vectors.safetensors", words > 1 ? word[1] : "vectors");
    FILE *arrays = fopen(path, "rb");
    strcpy(strrchr(path, '.'), ".txt");
    FILE *lines = fopen(path, "r");
    if (!arrays || !lines)
        return fprintf(stderr, "%s or the file beside it is missing\n", path), 2;
    fseek(arrays, 0, SEEK_END);
    size_t length = (size_t)ftell(arrays);
    rewind(arrays);
    bytes = malloc(length);
    if (fread(bytes, 1, length, arrays) != length)
        return 2;
    int computed = 0, beyond = 0;
    for (int more = 1; more;) {
        more = fgets(line, sizeof line, lines) != NULL;
        if (more && strncmp(line, "case ", 5)) {
            Entry *e = &entries[count < 63 ? count++ : count];
            *e = (Entry){0};
            sscanf(line, "%63s %7s %159[^\n]", e->path, e->kind, e->rest);
            continue;
        }
        double part = share(); /* of the case before this line */
        if (part >= 0)
            printf("%-24s %.3f of the bound\n", name, part);
        computed += part >= 0;
        beyond += part > 1;
        count = 0;
        sscanf(line, "case %255s", name);
    }
    printf("%d cases, %d beyond their bounds\n", computed, beyond);
    return beyond > 0 || computed == 0;
}
