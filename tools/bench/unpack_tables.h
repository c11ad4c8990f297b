/* unpack_tables.h - the packets that the benchmarks of `unpack` take: axes of a payload in the order of
 * real F-engines. */
#ifndef BEAMRING_TOOLS_BENCH_UNPACK_TABLES_H
#define BEAMRING_TOOLS_BENCH_UNPACK_TABLES_H

#include "kernels/unpack/unpack.h"
#include "tools/bench/bench.h"

struct unpack_shape {
    const char *name;
    size_t sources, streams, samples, channels, inputs; /* of a packet: samples, channels, inputs */
    bool time_last;                                     /* [freq][time][input], else [time][freq][input] */
    bool pol_scattered; /* inputs alternate between polarisations, whose dishes stand apart in E */
    size_t sum_samples;
    bool adjacent; /* channels of a stream, else those of all streams alternate */
};

/* The tables are of bench_alloc. */
static inline struct br_unpack_params unpack_tables(const struct unpack_shape *s)
{
    size_t F = s->streams * s->channels, n = s->sources * s->inputs, all = n / 2;
    size_t *channel = bench_alloc(F * sizeof *channel), *input = bench_alloc(n * sizeof *input);
    uint32_t *stream = bench_alloc(F * sizeof *stream), *source = bench_alloc(n * sizeof *source),
             *position = bench_alloc(n * sizeof *position);
    struct br_unpack_params p = {.nsources = s->sources,
                                 .nstreams = s->streams,
                                 .packet_samples = s->samples,
                                 .packet_bytes = s->samples * s->channels * s->inputs,
                                 .receipt_bytes = (s->sources * s->streams + 31) / 32 * 4,
                                 .time_stride = s->time_last ? s->inputs : s->channels * s->inputs,
                                 .packet_channels = s->channels,
                                 .channel_stride = s->time_last ? s->samples * s->inputs : s->inputs,
                                 .nchannels = F,
                                 .channel_offset = channel,
                                 .channel_stream = stream,
                                 .ninputs = n,
                                 .input_offset = input,
                                 .input_source = source,
                                 .position = position,
                                 .npositions = n,
                                 .offset_binary = true,
                                 .real_high = true,
                                 .sum_samples = s->sum_samples};
    for (size_t f = 0; f < F; f++) {
        size_t in_stream = s->adjacent ? f % s->channels : f / s->streams;
        stream[f] = (uint32_t)(s->adjacent ? f / s->channels : f % s->streams);
        channel[f] = stream[f] * p.packet_bytes + in_stream * p.channel_stride;
    }
    for (size_t i = 0; i < n; i++) {
        source[i] = (uint32_t)(i / s->inputs);
        input[i] = source[i] * s->streams * p.packet_bytes + i % s->inputs;
        position[i] = (uint32_t)(s->pol_scattered ? i % 2 * all + i / 2 : i);
    }
    return p;
}

#endif
