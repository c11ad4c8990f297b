/* calibrate.h - what the parts of `beamring calibrate` share. */
#ifndef BEAMRING_TOOLS_BEAMRING_CALIBRATE_H
#define BEAMRING_TOOLS_BEAMRING_CALIBRATE_H

#include "stages/common/sky/winding.h"

/* The options of the command line. */
struct calibrate_request {
    size_t nfiles;
    char **file;
    struct source_place place;
    enum br_sideband sideband; /* that is stated; unknown: the files' */
    struct calibration_options options;
    char source[512]; /* as it was given */
    const char *telescope, *eop, *out, *plot;
    const char *post, *at, *stages, *token_file;
    bool overwrite;
};

/* Prints what was averaged, a row for each polarisation, and what was flagged. */
void calibrate_report(const struct calibrate_request *request, const struct visibilities *v,
                      const struct calibration *c);

/* The word before the source's name in a sentence: "the ", "source ", "direction ". */
const char *calibrate_place_kind(const struct source_place *place);

/* Says once what the files do not say, and what was left out of them. */
void calibrate_warn_inputs(const struct visibilities *v);

/* Says that the gains of polarisation p point elsewhere. */
void calibrate_warn_winding(const struct calibrate_request *request, const struct visibilities *v, size_t p,
                            const struct winding *winding);

/* "upper" or "lower": the sideband of the field that the gains multiply; upper where none is known. */
const char *calibrate_sideband(const struct visibilities *v);

/* Gives the file to a running node, and prints what it answers. Returns 0, or 1 after a message. */
int calibrate_post(const struct calibrate_request *request, uint64_t digest);

#endif
