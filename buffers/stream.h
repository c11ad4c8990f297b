/* stream.h - the description of a queue's data: the array of one full frame, its time base and its frequency
 * channels.
 *
 * THE TIME BASE. A telescope has one sample counter, which counts "base samples". Base sample k starts at
 * epoch_ns + k * sample_ns.num / sample_ns.den nanoseconds (Unix time). Every frame states the base samples
 * that it spans, also after processing. A step along a time axis spans `downsample` base samples. Steps are
 * aligned to the counter: step i always covers base samples [i * downsample, (i + 1) * downsample).
 * Therefore results do not depend on where the stream is cut into frames or where a recording starts. Only
 * the first and the last step of a stream may be partly covered; their validity shows it.
 *
 * ZONES. Neighbouring channels may be upchannelized by different factors. The channels of a stream are the
 * concatenation of its zones, in order. A zone's time step is zone.downsample base samples. When all zones
 * have the same downsample (always after frb_grid), the frame is one row-major array. When they differ, the
 * frame is the concatenation of one row-major array per zone. Each has its zone's number of time steps and
 * channels, and the other axes of `array`. */
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
    /* base samples by which the centre of a step's window lies BEFORE the centre of the step:
     * (M - 1) U / 2 after a polyphase filterbank of M taps, else 0. Stages that write times of arrival
     * (filterbank) subtract it. */
    unsigned delay;
};

struct br_motion;
struct br_beam {
    double x, y; /* direction cosines along the grid's m and n axes; theta = M x spacing_m / lambda */
};

enum { BR_MAX_ZONES = 16 };

/* A description is plain data. The runtime's arena (br_stage_alloc) owns what its pointers refer to, as long
 * as the pipeline lives; copies of the struct share it. */
struct br_stream {
    /* one full frame. If zones differ: time = frame_samples and freq = coarse channels. The number of bytes
     * is right, because all zones have the same bytes per coarse channel */
    struct br_array array;
    /* second array of a frame, behind the data; naxes = 0: none. After `quantize`: f32 [beam][freq][2] =
     * {scale, offset}, with value = scale * level + offset */
    struct br_array side;
    /* base samples spanned by a full frame. Frames start at multiples of it in the base counter. Only the
     * first and last frame of a stream, and frames next to a loss, are shorter */
    uint64_t frame_samples;
    int64_t epoch_ns;             /* Unix time of base sample 0, nanoseconds */
    struct br_rational sample_ns; /* base sample time, nanoseconds */
    size_t nchannels;
    const double *freq_mhz;  /* [nchannels] centre of each channel, in the telescope's order */
    const double *width_mhz; /* [nchannels] > 0 */
    unsigned nzones;         /* >= 1 */
    struct br_zone zone[BR_MAX_ZONES];
    double scale; /* physical value = scale * stored value (a power of two for intensities); 1 if unused */
    const struct br_telescope *telescope; /* NULL if the pipeline has none */
    size_t nbeams;                        /* length of the beam axis; 0: no beam axis */
    const struct br_beam *beams;          /* [nbeams]; NULL if directions are unknown (weights from a file) */
    /* the beams are the product of beams_x values of x (slow) and beams_y of y (fast); 0, 0: not a product */
    size_t beams_x, beams_y;
    /* for frames that hold packets as received: the layout of the packets, whose type only the stages that
     * handle packets know; NULL: frames are arrays */
    const void *packets;
    /* how the beams move (formats/sky/motion.h), in memory that lives as long as the pipeline; NULL: not
     * known. It may have fewer beams, and is of the pipeline file: it refers to what updates make of it */
    const struct br_motion *motion;
    /* the sideband that the channels hold; products of the field keep the field's */
    enum br_sideband sideband;
};

/* True if zones have different downsample factors, so that a frame is not one array. */
BR_API bool br_stream_is_zoned(const struct br_stream *stream);

/* Number of time steps that base samples [first, first + samples) touch; 0 if `samples` is 0. */
BR_API size_t br_time_steps(uint64_t first, uint64_t samples, unsigned downsample);

/* One zone of a frame, or the whole frame of a stream that is not zoned. */
struct br_part {
    size_t nsteps;        /* time steps of this part in this frame */
    size_t nchannels;     /* channels of this part */
    size_t first_channel; /* in the stream's channel table */
    unsigned downsample;
    size_t offset; /* bytes from the start of the frame's data */
    size_t bytes;
    /* elements from the start of the frame's validity; the part has nsteps * nchannels elements there */
    size_t valid_offset;
};

/* Number of parts of a frame: nzones if the stream is zoned, else 1. */
BR_API unsigned br_stream_nparts(const struct br_stream *stream);

/* Part `index` of a frame that spans base samples [first, first + samples). */
BR_API struct br_part br_stream_part(const struct br_stream *stream, unsigned index, uint64_t first,
                                     uint64_t samples);

/* The largest number of data bytes, or of validity elements, that a frame of this stream can need; a frame
 * that starts off a step boundary touches one more step. Queues reserve this per slot. */
BR_API size_t br_stream_max_bytes(const struct br_stream *stream);
BR_API size_t br_stream_max_validity(const struct br_stream *stream);

/* Unix time of base sample `k` in nanoseconds, rounded to nearest; exact (128-bit integer arithmetic). */
BR_API int64_t br_stream_time_ns(const struct br_stream *stream, uint64_t k);

/* Seconds per base sample. */
BR_API double br_stream_sample_s(const struct br_stream *stream);

/* Checks a description: zones cover the channels in order, lengths agree with the arrays, sample_ns is
 * positive and in lowest terms, the time and freq axes exist, the dish axis has the telescope's number of
 * dishes. Errors: BR_E_INVALID, naming what disagrees. */
BR_API int br_stream_check(const struct br_stream *stream, struct br_error *error);

/* True if two streams hold the same kind of data, so that one can take the other's place. If not, `why` says
 * why. */
BR_API bool br_stream_compatible(const struct br_stream *a, const struct br_stream *b, struct br_error *why);

/* True if the dishes are in the same places, or both are NULL. */
BR_API bool br_telescope_same(const struct br_telescope *a, const struct br_telescope *b);

/* Parses "5120/1", "2560", "1706.6666" or "5120/3" as a fraction in lowest terms. Errors: BR_E_INVALID if the
 * text is not a number, not positive or out of range. */
BR_API int br_rational_parse(const char *text, struct br_rational *value, struct br_error *error);

#ifdef __cplusplus
}
#endif
#endif
