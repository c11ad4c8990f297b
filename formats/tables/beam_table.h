/* beam_table.h - where beams look: numbers, direction cosines, azimuth and zenith angle, right ascension and
 * declination.
 *
 * Beams of a grid of nx by ny have the numbers ix * ny + iy. Directions (x, y) are cosines along the grid's
 * axes m (to the north) and n (to the east); azimuth runs from north over east. Beams that stand still keep
 * azimuth and zenith angle, beams that follow the sky keep right ascension and declination. */
#ifndef BEAMRING_FORMATS_TABLES_BEAM_TABLE_H
#define BEAMRING_FORMATS_TABLES_BEAM_TABLE_H

#include "formats/sky/pointings.h"

#include <stdio.h>

/* Whether it is known where a stream's beams look; whether they move. */
bool beams_are_known(const struct br_stream *stream);
bool beams_move(const struct br_stream *stream);

/* Where they look when base sample `sample` begins, as the pipeline file, steering and updates have it:
 * look[stream->nbeams], for a stream whose beams are known.
 * NAN where it is not known: all of a beam below the horizon but x and y of one that does not follow the sky;
 * the angles where the telescope has no latitude and longitude; right ascension and declination without ERFA.
 * `site` is the telescope's, for beams that stand still; NULL: they have no right ascension. Errors:
 * BR_E_NO_MEMORY. */
int beams_look(const struct br_stream *stream, const struct apparent_site *site, uint64_t sample,
               struct br_look *look, struct br_error *error);

/* A line for each beam, `between` standing between the values: number, x, y, azimuth_deg, zenith_angle_deg,
 * ra_deg, dec_deg; empty where they are not known. */
void beam_table_print(FILE *out, const struct br_look *look, size_t count, const char *between);

/* A file of comma-separated values, a line for each beam: where it looks at the start of a product and at its
 * end. Where an update or steering points beams elsewhere, these lines end, and a line for each beam follows
 * that begins there. The owner sets the first three; the rest is zero. */
struct beam_table {
    const struct br_stream *stream;
    const struct apparent_site *site; /* as above */
    char path[4352];

    bool begun;
    uint64_t first; /* base sample at the start of the last lines */
    uint64_t at;    /* bytes before these */
};

/* The product has base samples [first, end). The first call replaces what is there by a table without an end;
 * others add what begins before `end`. Nothing is written for a stream that does not say where its beams are.
 * Errors: BR_E_IO, BR_E_NO_MEMORY. */
int beam_table_reach(struct beam_table *table, uint64_t first, uint64_t end, struct br_error *error);

/* Writes the end of the table, base sample `end`, if it was begun. Errors as above. */
int beam_table_end(struct beam_table *table, uint64_t end, struct br_error *error);

#endif
