#include "formats/sigproc/missing.h"

#include "buffers/output.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int missing_create(struct missing *missing, const struct sigproc_band *band, struct br_error *error)
{
    *missing =
        (struct missing){.band = band, .held = malloc(band->nchannels), .row = malloc(band->nchannels)};
    if (missing->held != NULL && missing->row != NULL) return BR_OK;
    return br_fail(error, BR_E_NO_MEMORY, "no memory for the validity of %zu channels", band->nchannels);
}

void missing_destroy(struct missing *missing)
{
    free(missing->held);
    free(missing->row);
    missing->held = missing->row = NULL;
}

void missing_begin(struct missing *missing, const char *directory, const char *name)
{
    snprintf(missing->path, sizeof missing->path, "%.4090s/%.255s", directory, name);
    if (br_output_check(missing->path, NULL) == BR_OK) unlink(missing->path);
    missing->since = missing->next = 0;
    missing->made = false;
}

static bool is_complete(const uint8_t *row, size_t n)
{
    for (size_t c = 0; c < n; c++)
        if (row[c] != BR_VALID) return false;
    return true;
}

/* Appends the lines for the steps held. The file is open only now: spans are rare, and files many. */
static int write_held(struct missing *missing, struct br_error *error)
{
    const uint8_t *held = missing->held;
    size_t n = missing->band->nchannels;
    uint64_t steps = missing->next - missing->since;
    if (steps == 0 || is_complete(held, n)) return BR_OK;
    FILE *file = missing->made ? fopen(missing->path, "ae") : br_output_stream(missing->path, true, error);
    if (file == NULL) return br_fail(error, BR_E_IO, "cannot open %s: %s", missing->path, strerror(errno));
    if (!missing->made)
        fputs("# first count [channel nchannels weight]: samples and channels as in the .fil files\n", file);
    missing->made = true;
    for (size_t c = 0; c < n;) {
        size_t end = c + 1;
        while (end < n && held[end] == held[c]) end++;
        if (held[c] == BR_MISSING && end - c == n)
            fprintf(file, "%" PRIu64 " %" PRIu64 "\n", missing->since, steps);
        else if (held[c] != BR_VALID)
            fprintf(file, "%" PRIu64 " %" PRIu64 " %zu %zu %u\n", missing->since, steps, c, end - c, held[c]);
        c = end;
    }
    int bad = ferror(file), reason = errno;
    if (fclose(file) != 0 && !bad) {
        bad = 1;
        reason = errno;
    }
    return bad ? br_fail(error, BR_E_IO, "cannot write %s: %s", missing->path, strerror(reason)) : BR_OK;
}

int missing_add(struct missing *missing, const uint8_t *valid, size_t nsteps, size_t from, size_t steps,
                uint8_t weight, struct br_error *error)
{
    size_t n = missing->band->nchannels;
    for (size_t done = 0; done < steps;) {
        size_t take = valid == NULL ? steps - done : 1;
        if (valid == NULL)
            memset(missing->row, weight, n);
        else
            for (size_t c = 0; c < n; c++)
                missing->row[c] = valid[missing->band->channel[c] * nsteps + from + done];
        if (missing->next == missing->since || memcmp(missing->row, missing->held, n) != 0) {
            int status = write_held(missing, error);
            if (status != BR_OK) return status;
            memcpy(missing->held, missing->row, n);
            missing->since = missing->next;
        }
        missing->next += take;
        done += take;
    }
    return BR_OK;
}

int missing_end(struct missing *missing, struct br_error *error)
{
    int status = write_held(missing, error);
    missing->since = missing->next;
    return status;
}
