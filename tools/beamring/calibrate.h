/* calibrate.h - what the parts of `beamring calibrate` share. */
#ifndef BEAMRING_TOOLS_BEAMRING_CALIBRATE_H
#define BEAMRING_TOOLS_BEAMRING_CALIBRATE_H

#include "stages/common/tables/calibration.h"

/* What the command line asks for. */
struct calibrate_request {
    size_t nfiles;
    char **file;
    struct source_place place;
    struct calibration_options options;
    const char *source, *telescope, *out, *plot;
    const char *post, *at, *stages, *token_file;
    bool overwrite;
};

/* Prints what was averaged, a row for each polarisation, and what was flagged. */
void calibrate_report(const struct calibrate_request *request, const struct visibilities *v,
                      const struct calibration *c);

/* Draws the file of gains with tools/plots/gains_report.py. Returns 0, or 1 after a message. */
int calibrate_plot(const char *gains, const char *picture);

/* Gives the file to a running node, and prints what it answers. Returns 0, or 1 after a message. */
int calibrate_post(const struct calibrate_request *request, uint64_t digest);

#endif
