/* beam_table.h - which beam is where: numbers, direction cosines, and azimuth and zenith angle where the
 * telescope's site is known.
 *
 * Beams of a grid of nx by ny have the numbers ix * ny + iy. Directions (x, y) are cosines along the grid's
 * axes m (to the north) and n (to the east); azimuth runs from north over east. They stand still: a beam
 * points to the same azimuth and zenith angle all the time. */
#ifndef BEAMRING_FORMATS_TABLES_BEAM_TABLE_H
#define BEAMRING_FORMATS_TABLES_BEAM_TABLE_H

#include "buffers/error.h"
#include "buffers/stream.h"

#include <stdio.h>

/* Degrees. False, and 0 in both, when the telescope has no latitude and longitude (or is NULL), or the beam
 * points below the horizon. */
bool beam_azimuth(const struct br_telescope *telescope, struct br_beam beam, double *azimuth_deg,
                  double *zenith_angle_deg);

/* A line for each beam, `between` standing between the values: number, x, y, azimuth_deg,
 * zenith_angle_deg; the last two are empty where they are not known. Needs stream->beams. */
void beam_table_print(FILE *out, const struct br_stream *stream, const char *between);

/* The same as a file of comma-separated values with a line of names; replaces what is there. Does nothing
 * for a stream that does not say where its beams are. Errors: BR_E_IO. */
int beam_table_write(const char *path, const struct br_stream *stream, struct br_error *error);

#endif
