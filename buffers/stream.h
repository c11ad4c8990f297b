/* stream.h - what flows through a queue: the array of one full frame, its time base, its frequency
 * channels.
 *
 * THE TIME BASE. A telescope has one sample counter, the "base samples": base sample k starts at epoch_ns
 * + k * sample_ns.num / sample_ns.den nanoseconds (Unix time). Every frame says which base samples it
 * spans, whatever has been done to them since. A step along a time axis is `downsample` base samples, and
 * steps are aligned to the counter itself: step i always covers base samples [i * downsample, (i + 1) *
 * downsample). That is why results do not depend on where frames were cut or where a recording starts: the
 * first and the last step of a stream may just be partly covered, and say so in their validity.
 *
 * ZONES. Neighbouring channels may be upchannelized by different factors. The channels of a stream are the
 * concatenation of zones, in order; a zone's time step is zone.downsample. When all zones have the same
 * downsample (always true after frb_grid) the frame is one row-major array. When they differ, the frame is
 * the concatenation of one row-major array per zone, each with the zone's own number of time steps and
 * channels, and the other axes as in `array`. */
#ifndef BEAMRING_BUFFERS_STREAM_H
#define BEAMRING_BUFFERS_STREAM_H

#include "buffers/array.h"
#include "buffers/sky.h"
#include "buffers/telescope.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Exact positive fraction in lowest terms. */
struct br_rational {
    int64_t num, den;
};

struct br_zone {
    size_t first_channel; /* index into the stream's channel table */
    size_t nchannels;     /* channels after upchannelization */
    unsigned factor;      /* fine channels per coarse channel, U; nchannels is a multiple of it */
    unsigned downsample;  /* base samples per time step */
    /* base samples by which the centre of a step's window lies BEFORE the centre of the step: (M - 1) U /
     * 2 after a polyphase filterbank of M taps, else 0. Products that carry times of arrival (filterbank)
     * subtract it. */
    unsigned delay;
};

struct packet_layout;

struct br_beam {
    double x, y; /* direction cosines along the grid's m and n axes; theta = M x spacing_m / lambda */
};

enum { BR_MAX_ZONES = 16 };

/* A description is plain data. Its pointers are owned by the runtime's arena (br_stage_alloc) and live as
 * long as the pipeline; copying the struct shares them. */
struct br_stream {
    /* one full frame. Differing zones: time = frame_samples and freq = coarse channels, which gives the
     * right bytes because every zone keeps the bytes per coarse channel */
    struct br_array array;
    /* second array of a frame, behind the data; naxes = 0: none. The quantizer's f32 [beam][freq][2] =
     * {scale, offset}: value = scale * level + offset */
    struct br_array side;
    /* base samples spanned by a full frame. Frames start at multiples of it in the base counter; only the
     * first and last frame of a stream, and those beside a loss, are shorter */
    uint64_t frame_samples;
    int64_t epoch_ns;             /* Unix time of base sample 0, nanoseconds */
    struct br_rational sample_ns; /* base sample time, nanoseconds */
    size_t nchannels;
    const double *freq_mhz; /* [nchannels] centre of each channel, ascending or not as the telescope has it */
    const double *width_mhz; /* [nchannels] > 0 */
    unsigned nzones;         /* >= 1 */
    struct br_zone zone[BR_MAX_ZONES];
    double scale; /* physical value = scale * stored value (a power of two for intensities); 1 if unused */
    const struct br_telescope *telescope; /* NULL when the pipeline has none */
    size_t nbeams;                        /* length of the beam axis, 0 if there is none */
    const struct br_beam *beams; /* [nbeams] or NULL when directions are unknown (weights from a file) */
    /* the beams are the product of beams_x values of x (slow) and beams_y of y (fast); 0, 0: they are none */
    size_t beams_x, beams_y;
    /* frames hold packets as they came: where each sample stands (stages/common/packets/layout.h); NULL:
     * frames are arrays */
    const struct packet_layout *packets;
    /* which sideband the channels hold; what is made of the field keeps that of the field */
    enum br_sideband sideband;
};

/* True when zones have different downsample factors, so that the frame is not one array. */
BR_API bool br_stream_is_zoned(const struct br_stream *stream);

/* Number of time steps touched by base samples [first, first + samples). 0 when samples is 0. */
BR_API size_t br_time_steps(uint64_t first, uint64_t samples, unsigned downsample);

/* One zone of a frame, or the whole frame of a stream that is not zoned. */
struct br_part {
    size_t nsteps;        /* time steps of this part in this frame */
    size_t nchannels;     /* channels of this part */
    size_t first_channel; /* in the stream's channel table */
    unsigned downsample;
    size_t offset; /* bytes from the start of the frame's data */
    size_t bytes;
    /* elements from the start of the frame's validity; it has nsteps * nchannels elements */
    size_t valid_offset;
};

/* Number of parts of a frame: nzones when zoned, else 1. */
BR_API unsigned br_stream_nparts(const struct br_stream *stream);

/* Part `index` of a frame that spans base samples [first, first + samples). */
BR_API struct br_part br_stream_part(const struct br_stream *stream, unsigned index, uint64_t first,
                                     uint64_t samples);

/* The largest number of data bytes / side bytes / validity elements that a frame of this stream can need
 * (a frame that starts off a step boundary touches one more step). What queues reserve per slot. */
BR_API size_t br_stream_max_bytes(const struct br_stream *stream);
BR_API size_t br_stream_max_validity(const struct br_stream *stream);

/* Base sample `k` as Unix nanoseconds, rounded to nearest; exact integer arithmetic (128-bit inside). */
BR_API int64_t br_stream_time_ns(const struct br_stream *stream, uint64_t k);

/* Seconds per base sample. */
BR_API double br_stream_sample_s(const struct br_stream *stream);

/* Checks what every description must satisfy: zones cover the channels in order, lengths agree with the
 * arrays, sample_ns positive and in lowest terms, the time and freq axes exist, dish axis equals the
 * telescope's dishes. Errors: BR_E_INVALID, naming what disagrees. */
BR_API int br_stream_check(const struct br_stream *stream, struct br_error *error);

/* True when two streams hold the same kind of data, so that one can take the other's place. On false says
 * why. */
BR_API bool br_stream_compatible(const struct br_stream *a, const struct br_stream *b, struct br_error *why);

/* "5120/1", "2560", "1706.6666" or "5120/3" -> a fraction in lowest terms. BR_E_INVALID if not positive,
 * not a number or out of range. */
BR_API int br_rational_parse(const char *text, struct br_rational *value, struct br_error *error);

#ifdef __cplusplus
}
#endif
#endif
