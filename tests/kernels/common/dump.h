/* dump.h - arrays to NumPy files, for the oracles in tests/oracle.
 *
 * A dump program runs the library on seeded input and writes input, parameters and output as
 * DIRECTORY/CASE_NAME.npy; the oracle of the same name starts it, loads them and compares with the
 * equation. */
#ifndef BEAMRING_TESTS_KERNELS_COMMON_DUMP_H
#define BEAMRING_TESTS_KERNELS_COMMON_DUMP_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* `type` is NumPy's: "|u1", "|i1", "<u2", "<i4", "<f4", "<f8", "<c8"; shape holds ndim lengths, slowest
 * first. */
static inline void dump_array(const char *directory, const char *test_case, const char *name,
                              const char *type, const void *data, size_t ndim, const size_t *shape)
{
    char path[4096], header[512];
    size_t count = 1, item = (size_t)atoi(type + 2);
    int length = snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (", type);
    for (size_t i = 0; i < ndim; i++) {
        length += snprintf(header + length, sizeof header - (size_t)length, "%zu,", shape[i]);
        count *= shape[i];
    }
    length += snprintf(header + length, sizeof header - (size_t)length, "), }");
    while ((10 + length + 1) % 64) header[length++] = ' ';
    header[length++] = '\n';
    snprintf(path, sizeof path, "%s/%s_%s.npy", directory, test_case, name);
    FILE *file = fopen(path, "wb");
    unsigned char magic[10] = {
        0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)length, (unsigned char)(length >> 8)};
    if (!file || fwrite(magic, 1, 10, file) != 10 ||
        fwrite(header, 1, (size_t)length, file) != (size_t)length ||
        (count && fwrite(data, item, count, file) != count) || fclose(file) != 0) {
        perror(path);
        exit(1);
    }
}

/* The same sequence everywhere: 64-bit splitmix. */
static inline uint64_t dump_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* The program: ONE(directory, &case, backend) for every case and both backends. */
#define DUMP_MAIN(CASES, ONE)                                                                                \
    int main(int argc, char **argv)                                                                          \
    {                                                                                                        \
        if (argc != 2) {                                                                                     \
            fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);                                               \
            return 2;                                                                                        \
        }                                                                                                    \
        for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {                                          \
            ONE(argv[1], &CASES[i], BR_REFERENCE);                                                           \
            ONE(argv[1], &CASES[i], BR_CPU);                                                                 \
        }                                                                                                    \
        return 0;                                                                                            \
    }

#endif
