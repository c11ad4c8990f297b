/* info.h - what the parts of `beamring info` share. Each prints what a file holds and returns 0, or 1 after a
 * message on stderr. */
#ifndef BEAMRING_TOOLS_BEAMRING_INFO_H
#define BEAMRING_TOOLS_BEAMRING_INFO_H

#include "buffers/sky.h"

#include <stdbool.h>
#include <stdint.h>

/* "  name         text" */
void info_line(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Which sideband a file says it holds; unknown: how to say it. */
void info_sideband(enum br_sideband sideband);

/* Unix nanoseconds as UTC and MJD. */
void info_time(const char *name, int64_t ns);

/* The updates that data were made with, in the form of stages/common/stage/made_with.h, a line each. False:
 * it is no such text. */
bool info_updates(const char *label, const char *text);

int info_chime(const char *path);
int info_guppi(const char *path);
int info_kotekan(const char *path);
int info_packets(const char *path);

/* UVH5 and tables of stages (gains, weights, beams, bad inputs, drifts). -1: the HDF5 file is none of these.
 */
int info_tables(const char *path);

#endif
