/* info.c - facts of SIGPROC's filterbank files, which nobody replays. */
#include "buffers/regular_file.h"
#include "formats/format.h"
#include "formats/sigproc/sigproc.h"

#include <string.h>

static int print_header(struct caller *caller, const char *path, FILE *file)
{
    struct sigproc_value v = {.key = ""};
    double nchans = 0, nbits = 0, nifs = 1, tsamp = 0;
    enum sigproc_kind kind = sigproc_read(file, &v);
    if (kind == SIGPROC_START) caller_fact(caller, NULL, "SIGPROC filterbank");
    while (kind != SIGPROC_CORRUPT && (kind = sigproc_read(file, &v)) > SIGPROC_END) {
        if (kind == SIGPROC_TEXT)
            caller_fact(caller, v.key, "%s", v.text);
        else
            caller_fact(caller, v.key, "%.15g", v.number);
        if (strcmp(v.key, "nchans") == 0) nchans = v.number;
        if (strcmp(v.key, "nbits") == 0) nbits = v.number;
        if (strcmp(v.key, "nifs") == 0) nifs = v.number;
        if (strcmp(v.key, "tsamp") == 0) tsamp = v.number;
    }
    long start = ftell(file);
    if (kind != SIGPROC_END || start < 0 || fseek(file, 0, SEEK_END) != 0)
        return caller_fail(caller, BR_E_FORMAT,
                           "%s: the filterbank header is corrupt at byte %ld; its last key is '%s'", path,
                           start, v.key);
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
