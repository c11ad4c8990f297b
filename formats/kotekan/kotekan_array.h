/* kotekan_array.h - what a frame of kotekan's holds, in the words of our streams, where it is not the
 * electric field as the F-engine gives it: that field upchannelized, or beams. */
#ifndef BEAMRING_FORMATS_KOTEKAN_KOTEKAN_ARRAY_H
#define BEAMRING_FORMATS_KOTEKAN_KOTEKAN_ARRAY_H

#include "buffers/stream.h"
#include "formats/kotekan/chord_metadata.h"

#include <stdbool.h>

struct kotekan_array {
    const char *what;      /* "voltages of beams" */
    struct br_array array; /* in the order of our streams; time has the frame's steps */
    uint64_t first;      /* sample of the F-engine at which the first step starts, a multiple of downsample */
    unsigned downsample; /* samples of the F-engine per step */
    unsigned factor;     /* fine channels per coarse one, U */
    unsigned delay;      /* of the filterbank before it, samples of the F-engine; 0 where it is not said */
    size_t ncoarse;      /* channels of the F-engine; 0: not said */
    /* How the frame's bytes differ from ours. */
    size_t length[BR_MAX_AXES];  /* of the frame's dimensions, slowest first */
    unsigned order[BR_MAX_AXES]; /* its dimension that is our axis i */
    bool chime;                  /* the coding int4p4chime */
    bool copy;                   /* they do not */
};

/* Arrays that some stage takes, by their axes in any order and their type:
 *
 *   T F P D          int4x2 in both codings   the electric field, upchannelized by U: a step is U samples
 *   B F P T          int4x2                   voltages of beams
 *   F T B            float16, float32         intensities of beams
 *   F T beamP beamQ  float16                  intensities on the grid of directions
 *
 * T may be called Tbar or Ttilde, F Fbar, B R. freq_upchan_factor of intensities is U, or U times the
 * upchannelized samples of a step as kotekan's stages say it. kotekan_encode.h has the same arrays as we send
 * them. Errors: BR_E_FORMAT, which says what the frame holds and what was expected. */
int kotekan_array_describe(struct kotekan_array *array, const struct chord_metadata *metadata,
                           const char *from, struct br_error *error);

/* Brings the data of a frame of `steps` steps into our order and coding: `out` is as large as `frame`, and
 * apart from it. In the electric field in int4p4chime, cells [time][freq] with only zero bytes are
 * missing in `valid`, all others valid; other arrays do not touch it. */
void kotekan_array_decode(const struct kotekan_array *array, size_t steps, const void *frame, void *out,
                          uint8_t *valid);

/* Fills in array, nchannels, zones, beams of a stream of such frames, each `steps` steps. */
void kotekan_array_stream(struct br_stream *stream, const struct kotekan_array *array, size_t steps);

/* Centres of the fine channels of coarse ones whose centres are known: [ncoarse] -> [ncoarse x factor]. */
void kotekan_array_fine(const double *coarse_mhz, size_t ncoarse, double coarse_width_mhz, unsigned factor,
                        enum br_sideband sideband, double *mhz, double *width_mhz);

#endif
