/* recover.h - inside `beamring recover`: events of a ledger, filterbank files, and filters for known
 * bursts. */
#ifndef BEAMRING_TOOLS_BEAMRING_RECOVER_H
#define BEAMRING_TOOLS_BEAMRING_RECOVER_H

#include "formats/common/gaps.h"
#include "stages/common/sky/burst.h"

#include <stdio.h>

/* One event, as the last line of its id has it. */
struct recover_event {
    char *id, *state;
    double time_s;             /* of the maximum at burst.ref_mhz, after recover->epoch_ns */
    struct burst_params burst; /* dm, width_s, scattering_s, ref_mhz */
    double index, delay_s, wanted;
    size_t nbeams;
    double *snr; /* [nbeams] predicted; NULL: none */
};

struct recover_file {
    char *path;
    long beam;
    int nchans, nbits;
    double fch1_mhz, foff_mhz, tsamp_s;
    double start_s; /* of the first sample, after recover->epoch_ns */
    bool late;      /* times are those of a filterbank's steps: a burst comes `delay_s` of the event later */
    size_t offset, samples;
    struct gaps gaps;
    FILE *file;
};

struct recover {
    const char *ledger, *stage, *picture;
    long first_beam;
    double low, high;
    bool json;

    int64_t epoch_ns; /* Unix time from which times are counted */
    size_t nevents, nfiles;
    struct recover_event *event;
    struct recover_file *file;
    char *directory; /* of files that were made of recordings; NULL: none */
};

/* One event in one beam. */
struct recovered {
    long beam;     /* -1: no file has it */
    bool unsteady; /* the noise changes at the event: nothing can be said */
    double predicted, snr, dm_error, time_error_s;
};

/* --- recover_files.c --- */

/* Opens filterbank files, and recordings of beams by way of such files. Returns 0, or the exit status after a
 * message. */
int recover_open(struct recover *r, int count, char **paths);
void recover_close(struct recover *r);

/* --- recover_filter.c --- */

/* The burst's S/N in a beam: of a filter of its shape at its place, in units of the noise around it. The
 * errors are where the filter finds most. The noise is that on either side, as far as it keeps its level.
 * `cover` receives the share of the filter that lies in the files, squared, 0 where the level changes at the
 * event; less than 0.5: nothing was measured. False: a file cannot be read, after a message. */
bool recover_measure(const struct recover *r, const struct recover_event *event, long beam, double *cover,
                     struct recovered *found);

/* --- recover_report.c --- */

/* Reads the ledger. Returns 0, or the exit status after a message. */
int recover_ledger(struct recover *r);

/* Prints, and draws. Returns the exit status: 0, or 1 outside the limits. `found` is [nevents]. */
int recover_report(const struct recover *r, const struct recovered *found);

#endif
