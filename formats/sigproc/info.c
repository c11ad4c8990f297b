/* info.c - facts of SIGPROC's filterbank files, which nobody replays. */
#include "buffers/regular_file.h"
#include "formats/format.h"

#include <stdio.h>
#include <string.h>

/* A length and as many characters; false at the end of the file or when the length makes no sense. */
static bool read_text(FILE *file, char text[81])
{
    int32_t n;
    if (fread(&n, sizeof n, 1, file) != 1 || n < 1 || n > 80 || fread(text, 1, (size_t)n, file) != (size_t)n)
        return false;
    text[n] = '\0';
    return true;
}

static int print_header(struct caller *caller, const char *path, FILE *file)
{
    static const char *const integers[] = {"machine_id",    "telescope_id", "data_type", "barycentric",
                                           "pulsarcentric", "nbits",        "nsamples",  "nchans",
                                           "nifs",          "nbeams",       "ibeam",     NULL};
    static const char *const reals[] = {"src_raj", "src_dej", "az_start", "za_start", "tstart", "tsamp",
                                        "fch1",    "foff",    "refdm",    "period",   NULL};
    char key[81], text[81];
    double nchans = 0, nbits = 0, nifs = 1, tsamp = 0;
    bool good = read_text(file, key) && strcmp(key, "HEADER_START") == 0, ended = false;
    if (good) caller_fact(caller, NULL, "SIGPROC filterbank");
    while (good && !ended) {
        good = read_text(file, key);
        ended = good && strcmp(key, "HEADER_END") == 0;
        if (!good || ended) break;
        double real = 0;
        int32_t integer = 0;
        bool is_integer = false, is_real = false;
        for (int i = 0; integers[i] != NULL; i++) is_integer = is_integer || strcmp(key, integers[i]) == 0;
        for (int i = 0; reals[i] != NULL; i++) is_real = is_real || strcmp(key, reals[i]) == 0;
        if (is_integer) {
            good = fread(&integer, sizeof integer, 1, file) == 1;
            real = integer;
            caller_fact(caller, key, "%d", integer);
        } else if (is_real) {
            good = fread(&real, sizeof real, 1, file) == 1;
            caller_fact(caller, key, "%.15g", real);
        } else {
            good = read_text(file, text);
            caller_fact(caller, key, "%s", text);
        }
        if (strcmp(key, "nchans") == 0) nchans = real;
        if (strcmp(key, "nbits") == 0) nbits = real;
        if (strcmp(key, "nifs") == 0) nifs = real;
        if (strcmp(key, "tsamp") == 0) tsamp = real;
    }
    long start = ftell(file);
    if (!good || start < 0 || fseek(file, 0, SEEK_END) != 0)
        return caller_fail(caller, BR_E_FORMAT, "%s: the filterbank header is corrupt after '%s'", path, key);
    double bits = nchans * nbits * nifs;
    if (bits > 0) {
        double samples = 8 * (double)(ftell(file) - start) / bits;
        caller_fact(caller, "samples", "%.0f, %.6g s", samples, samples * tsamp);
    }
    return BR_OK;
}

static int info(struct caller *caller, const char *path)
{
    struct br_error error = {0};
    FILE *file = br_fopen_regular(path, NULL, &error);
    if (file == NULL) return caller_fail(caller, BR_E_IO, "%s", error.text);
    int status = print_header(caller, path, file);
    fclose(file);
    return status;
}

static bool probe(const void *start, size_t length)
{
    return length >= 16 && memcmp((const char *)start + 4, "HEADER_START", 12) == 0;
}

const struct format format_sigproc = {.name = "sigproc", .probe = probe, .info = info};
