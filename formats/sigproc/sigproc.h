/* sigproc.h - the header of SIGPROC filterbank files, and how a stream's channels are dealt out to them.
 *
 * A filterbank file has one channel spacing and one time of arrival, so a stream with several
 * upchannelization factors, or with holes in its band, becomes several "bands", each a file of its own for
 * every beam. */
#ifndef BEAMRING_FORMATS_SIGPROC_SIGPROC_H
#define BEAMRING_FORMATS_SIGPROC_SIGPROC_H

#include "buffers/stream.h"

#include <stdio.h>

struct sigproc_band {
    size_t nchannels;
    const uint32_t *channel; /* [nchannels] the stream's channel behind each of the file's; frequency falls */
    double fch1_mhz;         /* centre of the file's first channel, the highest */
    double foff_mhz;         /* < 0 */
    unsigned delay; /* base samples by which arrival times are earlier than the steps, see struct br_zone */
};

/* Deals out all channels: sorted by falling frequency, cut where the delay, the width or the spacing
 * changes. Channels further apart than they are wide (by 1 %) are not neighbours: a comb makes a band of
 * each. `bands` and `order` have room for stream->nchannels entries; `order` is what the bands' `channel`
 * point into. Returns the number of bands; 0 if there is no memory. */
size_t sigproc_bands(const struct br_stream *stream, struct sigproc_band *bands, uint32_t *order);

struct sigproc_header {
    const char *rawdatafile, *source_name; /* cut at 79 characters */
    int telescope_id, machine_id;
    double src_raj, src_dej; /* hhmmss.s, ddmmss.s */
    double az_start_deg, za_start_deg;
    double fch1_mhz, foff_mhz;
    int nchans, nbits, nbeams, ibeam; /* ibeam from 1 */
    double tstart_mjd, tsamp_s;
};

enum { SIGPROC_HEADER_MAX = 1024 };

/* Writes the header into a buffer of SIGPROC_HEADER_MAX; returns its length. It holds nothing that changes
 * while the file grows: readers take the number of samples from the file's size. */
size_t sigproc_format(uint8_t *buffer, const struct sigproc_header *header);

/* A key of a file's header and its value. */
enum sigproc_kind { SIGPROC_CORRUPT, SIGPROC_START, SIGPROC_END, SIGPROC_NUMBER, SIGPROC_TEXT };
struct sigproc_value {
    char key[81], text[81]; /* text: of SIGPROC_TEXT */
    double number;          /* of SIGPROC_NUMBER, integer or not; else 0 */
};

/* Reads the next key of a header, and its value unless it starts or ends the header. SIGPROC_CORRUPT: the
 * file ends, or holds something else; the key is the last one that was read. A key that SIGPROC does not
 * define must have a text. */
enum sigproc_kind sigproc_read(FILE *file, struct sigproc_value *value);

/* An angle, in hours or degrees, as a number whose digits are hhmmss.s or ddmmss.s. */
double sigproc_angle(double value);

/* Unix nanoseconds (UTC) as a modified Julian date. */
double sigproc_mjd(int64_t unix_ns);

/* Unix nanoseconds of the arrival of time step `step` of `downsample` base samples: its start less the delay.
 */
int64_t sigproc_arrival_ns(const struct br_stream *stream, uint64_t step, unsigned downsample,
                           unsigned delay);

#endif
