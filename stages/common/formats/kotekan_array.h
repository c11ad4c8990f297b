/* kotekan_array.h - what a frame of kotekan's holds, in the words of our streams, where it is not the
 * electric field as the F-engine gives it: that field upchannelized, or beams. */
#ifndef BEAMRING_STAGES_COMMON_FORMATS_KOTEKAN_ARRAY_H
#define BEAMRING_STAGES_COMMON_FORMATS_KOTEKAN_ARRAY_H

#include "buffers/stream.h"
#include "stages/common/formats/chord_metadata.h"

struct kotekan_array {
    const char *what;      /* "voltages of beams" */
    struct br_array array; /* the frame's own axes, in its order; time has the frame's steps */
    uint64_t first;      /* sample of the F-engine at which the first step starts, a multiple of downsample */
    unsigned downsample; /* samples of the F-engine per step */
    unsigned factor;     /* fine channels per coarse one, U */
    size_t ncoarse;      /* channels of the F-engine; 0: not said */
};

/* Arrays that some stage takes, by their axes in any order and their type:
 *
 *   T F P D          int4x2             the electric field, upchannelized by U: a step is U samples
 *   B F P T          int4x2             voltages of beams
 *   F T B            float16, float32   intensities of beams
 *   F T beamP beamQ  float16            intensities on the grid of directions
 *
 * T may be called Tbar. Errors: BR_E_FORMAT, which says what the frame holds and what was expected. */
int kotekan_array_describe(struct kotekan_array *array, const struct chord_metadata *metadata,
                           const char *from, struct br_error *error);

/* Fills in array, nchannels, zones, beams of a stream of such frames, each `steps` steps. */
void kotekan_array_stream(struct br_stream *stream, const struct kotekan_array *array, size_t steps);

/* Centres of the fine channels of coarse ones whose centres are known: [ncoarse] -> [ncoarse x factor]. */
void kotekan_array_fine(const double *coarse_mhz, size_t ncoarse, double coarse_width_mhz, unsigned factor,
                        double *mhz, double *width_mhz);

#endif
