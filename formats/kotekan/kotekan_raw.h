/* kotekan_raw.h - files of kotekan's rawFileWrite: frames as they lay in its buffers, each behind the u32
 * size of its metadata and the metadata. One frame in a file is what kotekan reads back; more are read here.
 */
#ifndef BEAMRING_FORMATS_KOTEKAN_KOTEKAN_RAW_H
#define BEAMRING_FORMATS_KOTEKAN_KOTEKAN_RAW_H

#include "formats/kotekan/chord_metadata.h"

#include <stdbool.h>

enum { KOTEKAN_RAW_HEADER = 4 + CHORD_METADATA_BYTES };

struct kotekan_frame {
    struct chord_metadata metadata;
    uint64_t offset; /* of the frame in the file */
    uint64_t bytes;  /* by its metadata */
    uint64_t there;  /* how many of them the file has */
};

/* True when the start of a file looks like such a frame with chordMetadata. */
bool kotekan_raw_probe(const void *start, size_t length);

/* Reads the header of the frame at byte `at` of the open file of `file_bytes`. Errors: BR_E_FORMAT naming the
 * file and field, BR_E_IO. */
int kotekan_raw_read(struct kotekan_frame *frame, int fd, const char *path, uint64_t at, uint64_t file_bytes,
                     struct br_error *error);

/* The electric field in a frame: lengths of its dimensions T, F, P, D (absent ones are 1) and bytes between
 * neighbours. */
struct kotekan_field {
    uint64_t samples, nfreq, npol, ndish;
    uint64_t stride_time, stride_freq, stride_pol, stride_dish;
    bool chime;     /* the coding */
    uint64_t first; /* sample of the F-engine */
};

/* Errors: BR_E_FORMAT when it is another array (type, dimensions, upchannelized or downsampled). */
int kotekan_raw_field(const struct chord_metadata *metadata, const char *from, struct kotekan_field *field,
                      struct br_error *error);

#endif
