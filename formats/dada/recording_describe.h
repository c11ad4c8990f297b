/* recording_describe.h - what the parts of recording_describe share: recording.c (our keys),
 * recording_external.c (files of others), recording_times.c (times and frequencies of both),
 * recording_agree.c (two words for one thing). Nobody else includes it. */
#ifndef BEAMRING_FORMATS_DADA_RECORDING_DESCRIBE_H
#define BEAMRING_FORMATS_DADA_RECORDING_DESCRIBE_H

#include "formats/dada/recording.h"

enum { RECORDING_MAX_CHANNELS = 1 << 20, RECORDING_MAX_ELEMENTS = 1 << 20 };

struct describe {
    struct recording *out;
    const struct dada_header *header;
    const struct br_stream_hints *hints; /* never NULL; with the coding that the user names */
    const struct br_telescope *telescope;
    struct recording_memory memory;
    struct br_error *error;
};

/* A file without our keys: the electric field in the order that the file or the user says. */
int describe_external(struct describe *d);

int describe_sample_time(struct describe *d);
int describe_epoch(struct describe *d); /* needs the sample time */
int describe_frequencies(struct describe *d);
int describe_coding(struct describe *d);
int describe_sideband(struct describe *d);
int describe_position(struct describe *d);
int describe_telescope(struct describe *d); /* sets out->array */

/* For our own recordings: the keys that every reader of DADA files knows (NBIT, NCHAN, TSAMP, UTC_START,
 * ...), as far as they exist, agree with ours. Errors: BR_E_FORMAT with both values. */
int describe_agreement(struct describe *d);

#endif
