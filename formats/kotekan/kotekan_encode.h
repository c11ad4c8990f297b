/* kotekan_encode.h - frames of our streams as the frames that kotekan's GPU stages take and give, for its TCP
 * links and raw files:
 *
 *   our stream                              name  type         dimensions                     factor, step
 *   E[time][freq][pol][dish] int4x2         E     int4p4chime  [T][F][P][D]                   1, 1
 *   ... upchannelized by U                  Ebar  int4p4chime  [Tbar][Fbar][P][D]             U, U
 *   I[freq][time][gridp][gridq] f16         I     float16      [Ttilde][Fbar][beamQ][beamP]   U T, U T
 *   I[freq][time][beam] f16                 I2    float16      [R][Fbar][Ttilde]              U T, U T
 *   J[beam][freq][pol][time] int4x2         J     int4p4       [B][F][P][T]                   1, 1
 *
 * factor is freq_upchan_factor and step time_downsampling_fpga; T are the upchannelized samples of a time
 * step. (That the factor has T in it is kotekan's way.) half_fpga_sample0 is taps - 1 behind a filterbank of
 * so many taps. Any other stream of one array goes with its own axes in their own order. */
#ifndef BEAMRING_FORMATS_KOTEKAN_KOTEKAN_ENCODE_H
#define BEAMRING_FORMATS_KOTEKAN_KOTEKAN_ENCODE_H

#include "buffers/stream.h"
#include "formats/common/permute.h"
#include "formats/kotekan/chord_metadata.h"

enum { KOTEKAN_MOST_CHANNELS = CHORD_MAX_FREQ - 1 }; /* kotekan asserts nfreq < 1024 */

struct kotekan_encoder {
    struct chord_metadata metadata; /* of a frame; dimensions and times change with it */
    struct br_array array;          /* ours; time has the steps of a full frame */
    int32_t coarse[CHORD_MAX_FREQ]; /* numbers of the F-engine's channels: multiples of their width */
    size_t ncoarse;
    unsigned factor, downsample, half; /* as the metadata says them */
    unsigned order[BR_MAX_AXES];       /* our axis that is their dimension i */
    bool chime;                        /* the coding */
    bool copy;                         /* the bytes are ours */
};

/* Prepares for the frames of a stream; `chime`: the electric field in int4p4chime rather than int4p4. Errors:
 * BR_E_INVALID: what a frame of kotekan cannot hold (zones, scales, a type, more than 1023 channels, more
 * than 2 GiB). */
int kotekan_encoder_init(struct kotekan_encoder *encoder, const struct br_stream *stream, bool chime,
                         struct br_error *error);

/* Writes the CHORD_METADATA_BYTES of a frame of `steps` time steps that starts at base sample `first`, a
 * multiple of a step. */
void kotekan_encode_metadata(struct kotekan_encoder *encoder, uint64_t first, size_t steps, int32_t counter,
                             void *bytes);

/* Writes the frame's data, as many bytes as `in` has; they do not overlap. */
void kotekan_encode(const struct kotekan_encoder *encoder, size_t steps, const void *in, void *out);

#endif
