/* missing.h - PREFIX.gaps beside filterbank files: where they hold a mean instead of data.
 *
 * Text, one span a line: FIRST COUNT for all channels, or FIRST COUNT CHANNEL NCHANNELS WEIGHT. Samples and
 * channels are the file's own (sample 0 is its first, channel 0 its highest frequency); WEIGHT is 0 for
 * missing, else the valid fraction in 255ths of a sample that was measured in part. Samples without a line
 * are complete. One file serves all beams of a band, and it exists only when there is something to say. */
#ifndef BEAMRING_FORMATS_SIGPROC_MISSING_H
#define BEAMRING_FORMATS_SIGPROC_MISSING_H

#include "buffers/frame.h"
#include "formats/sigproc/files.h"
#include "formats/sigproc/sigproc.h"

struct missing {
    char path[FILES_PATH];
    const struct sigproc_band *band;
    uint8_t *held, *row;  /* [band->nchannels] validity of the steps not written yet; of the step at hand */
    uint64_t since, next; /* these are [since, next) */
    bool made;            /* the file exists */
};

/* Errors: BR_E_NO_MEMORY. Free with missing_destroy. */
int missing_create(struct missing *missing, const struct sigproc_band *band, struct br_error *error);
void missing_destroy(struct missing *missing);

/* Starts the file at `path` anew; an old one is removed. */
void missing_begin(struct missing *missing, const char *directory, const char *name);

/* Takes `steps` steps from `from` on of a frame's validity, [freq][nsteps]; NULL: `weight` everywhere.
 * Errors: BR_E_IO. */
int missing_add(struct missing *missing, const uint8_t *valid, size_t nsteps, size_t from, size_t steps,
                uint8_t weight, struct br_error *error);

/* Writes what is held. Errors: BR_E_IO. */
int missing_end(struct missing *missing, struct br_error *error);

#endif
