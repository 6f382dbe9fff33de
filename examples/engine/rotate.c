/* An engine that rotates the inputs of a check and writes its results, for posenc to judge:
 *
 *     posenc check rope --config config.json --inputs DIR
 *     cc -std=c11 -O2 examples/engine/rotate.c -lm -o rotate && ./rotate DIR
 *     posenc check rope --config config.json --got DIR
 *
 * The model rotates pairs (i, i + width / 2) by the base 500000. -DERROR=1, 2 or 3 plants an error. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef ERROR
#define ERROR 0
#endif
enum { PAIRS = 1, BASE, TABLE }; /* adjacent pairs; another base; a table of angles that has 2048 rows */

/* A .npy file of version 1.0: 10 bytes, whose last two are the length of the header, the header, and the numbers. */
typedef struct {
    unsigned char bytes[10];
    char header[65536];
    size_t shape[8], size;
    int rank;
} Npy;

/* Read the file DIR/NUMBER-NAME.npy, and return its numbers; NULL if there is no such file. */
static void *load(Npy *a, const char *folder, int number, const char *name, size_t item)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%04d-%s.npy", folder, number, name);
    FILE *file = fopen(path, "rb");
    if (!file || fread(a->bytes, 1, 10, file) != 10)
        return NULL;
    size_t length = a->bytes[8] + 256u * a->bytes[9];
    a->header[fread(a->header, 1, length, file)] = 0; /* {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } */
    char *at = strchr(strstr(a->header, "'shape'"), '(') + 1;
    for (a->rank = 0, a->size = 1; *at >= '0' && *at <= '9'; at += strspn(at, ", "))
        a->size *= a->shape[a->rank++] = strtoul(at, &at, 10);
    void *numbers = malloc(a->size * item);
    if (fread(numbers, item, a->size, file) != a->size)
        exit(fprintf(stderr, "%s is too short\n", path));
    fclose(file);
    return numbers;
}

static void rotate(float *x, size_t width, double position)
{
    double base = ERROR == BASE ? 10000 : 500000;
    if (ERROR == TABLE && position > 2047)
        position = 2047;
    for (size_t k = 0; k < width / 2; k++) {
        double angle = position * pow(base, -2.0 * k / width), c = cos(angle), s = sin(angle);
        float *a = &x[ERROR == PAIRS ? 2 * k : k], *b = a + (ERROR == PAIRS ? 1 : width / 2), first = *a;
        *a = (float)(first * c - *b * s);
        *b = (float)(first * s + *b * c);
    }
}

int main(int words, char **word)
{
    const char *folder = words > 1 ? word[1] : ".";
    static Npy of_x, of_positions;
    float *x;
    for (int number = 0; (x = load(&of_x, folder, number, "x", sizeof *x)); number++) {
        int64_t *positions = load(&of_positions, folder, number, "positions", sizeof *positions);
        size_t width = of_x.shape[3], tokens = of_x.shape[2];
        for (size_t row = 0; row < of_x.size / width; row++)
            rotate(x + row * width, width, (double)positions[row % tokens]);
        char path[4096];
        snprintf(path, sizeof path, "%s/%04d-out.npy", folder, number);
        FILE *out = fopen(path, "wb"); /* the result has the shape and the type of x, so it has its header, too */
        fwrite(of_x.bytes, 1, 10, out);
        fwrite(of_x.header, 1, strlen(of_x.header), out);
        fwrite(x, sizeof *x, of_x.size, out);
        fclose(out);
        free(positions);
        free(x);
    }
    return 0;
}
