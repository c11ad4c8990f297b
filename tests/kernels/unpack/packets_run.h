/* packets_run.h - packets in some order of axes, and what the unpacker makes of them. */
#ifndef BEAMRING_TESTS_KERNELS_UNPACK_PACKETS_RUN_H
#define BEAMRING_TESTS_KERNELS_UNPACK_PACKETS_RUN_H

#include "kernels/unpack/unpack.h"
#include "tests/kernels/common/dump.h"

/* Axes of a payload by letter, slowest first: t time, f freq, p pol, i input. */
struct packets_case {
    const char *name, *axes;
    size_t length[4];
    size_t nsources, nstreams, nblocks;
    size_t channel_step; /* 1: a stream's channels are neighbours; else those of all streams interleave */
    bool offset_binary, real_high;
    size_t sum_packets; /* 0: no sums */
    size_t holes;       /* positions that no input has */
    unsigned missing;   /* per cent of packets; 100: none came; 0: no receipt */
    enum { AS_SENT, SOURCES_REVERSED, SHUFFLED } order;
};

static const struct packets_case packets_cases[] = {
    {"crs", "fti", {48, 16, 8}, 16, 8, 5, 8, true, true, 2, 0, 0, AS_SENT},
    {"crs_loss", "fti", {6, 16, 8}, 16, 8, 4, 8, true, true, 4, 0, 20, SOURCES_REVERSED},
    {"crs_absent", "fti", {6, 16, 8}, 10, 3, 3, 3, true, false, 1, 48, 10, SOURCES_REVERSED},
    {"ice", "tfi", {2, 4, 128}, 3, 2, 37, 1, true, true, 35, 0, 5, AS_SENT},
    {"ice_16", "tfi", {2, 8, 16}, 128, 1, 2, 1, true, true, 1, 0, 5, AS_SENT},
    {"casm", "fi", {32, 12}, 3, 2, 70, 1, false, true, 64, 0, 10, AS_SENT},
    {"snap2", "fi", {96, 64}, 3, 2, 3, 1, false, true, 2, 0, 30, SOURCES_REVERSED},
    {"ata", "ftp", {12, 16, 2}, 5, 2, 3, 1, false, false, 2, 0, 10, AS_SENT},
    {"ata_whole", "ftp", {13, 8, 2}, 20, 2, 7, 2, true, true, 3, 0, 10, AS_SENT},
    {"ata_mixed", "ftp", {9, 8, 2}, 18, 4, 7, 4, true, false, 4, 4, 10, SHUFFLED},
    {"six_samples", "fti", {5, 6, 4}, 5, 3, 9, 3, true, true, 4, 0, 10, AS_SENT},
    {"five_samples", "tfi", {5, 6, 4}, 5, 2, 9, 2, true, true, 4, 0, 10, AS_SENT},
    {"one_sample", "fi", {7, 3}, 5, 2, 39, 2, true, true, 17, 0, 10, SHUFFLED},
    {"snap2_long", "fi", {10, 64}, 11, 2, 45, 1, true, true, 43, 0, 20, SOURCES_REVERSED},
    {"dsa", "iftp", {3, 12, 2, 2}, 7, 1, 9, 1, false, true, 4, 2, 10, AS_SENT},
    {"shuffled", "fti", {5, 3, 7}, 3, 2, 3, 2, true, true, 1, 5, 25, SHUFFLED},
    {"odd", "tif", {3, 5, 3}, 1, 1, 4, 1, false, false, 4, 0, 50, SHUFFLED},
    {"none", "fti", {4, 4, 8}, 2, 2, 2, 2, true, true, 1, 0, 100, AS_SENT},
    {"no_sums", "fti", {4, 4, 8}, 2, 2, 3, 2, true, true, 0, 0, 10, AS_SENT},
};

enum { PACKETS_CASES = sizeof packets_cases / sizeof *packets_cases };

struct packets_run {
    struct br_unpack_params p;
    size_t nblocks, in_bytes, receipt_bytes, out_bytes, sum_count;
    size_t *stream_first;        /* [nstreams] the F-engine's number of a stream's first channel */
    uint8_t *in, *receipt, *out; /* receipt NULL: everything came */
    uint32_t *sums;
};

static inline size_t axis_length(const struct packets_case *c, char axis)
{
    const char *at = strchr(c->axes, axis);
    return at ? c->length[at - c->axes] : 1;
}

static inline size_t axis_stride(const struct packets_case *c, char axis)
{
    const char *at = strchr(c->axes, axis);
    size_t stride = at ? 1 : 0;
    for (size_t k = at ? (size_t)(at - c->axes) + 1 : 0; at && c->axes[k]; k++) stride *= c->length[k];
    return stride;
}

static inline void packets_channels(struct packets_run *r, const struct packets_case *c)
{
    struct br_unpack_params *p = &r->p;
    size_t *offset = calloc(p->nchannels, sizeof *offset), stride = axis_stride(c, 'f');
    uint32_t *stream = calloc(p->nchannels, sizeof *stream);
    r->stream_first = calloc(p->nstreams, sizeof *r->stream_first);
    for (size_t s = 0; s < p->nstreams; s++) {
        r->stream_first[s] = c->channel_step > 1 ? s : s * p->packet_channels;
        for (size_t k = 0; k < p->packet_channels; k++) {
            /* With a step, streams are as many as the step: all numbers from 0 on are there once. */
            size_t f = r->stream_first[s] + k * c->channel_step;
            offset[f] = s * p->packet_bytes + k * stride;
            stream[f] = (uint32_t)s;
        }
    }
    p->channel_offset = offset;
    p->channel_stream = stream;
}

static inline void packets_inputs(struct packets_run *r, const struct packets_case *c, uint64_t *seed)
{
    struct br_unpack_params *p = &r->p;
    size_t npol = axis_length(c, 'p'), ni = axis_length(c, 'i'), each = npol * ni, dishes = c->nsources * ni;
    size_t *offset = calloc(p->ninputs, sizeof *offset);
    uint32_t *source = calloc(p->ninputs, sizeof *source), *position = calloc(p->ninputs, sizeof *position);
    for (size_t i = 0; i < p->ninputs; i++) {
        size_t s = i / each, k = i % each, pol = k % npol, dish = k / npol;
        size_t to = c->order == SOURCES_REVERSED ? c->nsources - 1 - s : s;
        offset[i] =
            s * p->nstreams * p->packet_bytes + pol * axis_stride(c, 'p') + dish * axis_stride(c, 'i');
        source[i] = (uint32_t)s;
        position[i] = (uint32_t)(pol * dishes + to * ni + dish);
        if (c->order == SOURCES_REVERSED) position[i] += (uint32_t)c->holes;
    }
    for (size_t i = p->ninputs; c->order == SHUFFLED && i-- > 1;) {
        size_t j = dump_random(seed) % (i + 1);
        uint32_t held = position[i];
        position[i] = position[j];
        position[j] = held;
    }
    p->input_offset = offset;
    p->input_source = source;
    p->position = position;
}

static inline void packets_make(struct packets_run *r, const struct packets_case *c)
{
    uint64_t seed = c->nsources * 1000 + c->length[0];
    struct br_unpack_params *p = &r->p;
    *r = (struct packets_run){.nblocks = c->nblocks};
    p->nsources = c->nsources;
    p->nstreams = c->nstreams;
    p->packet_samples = axis_length(c, 't');
    p->time_stride = axis_stride(c, 't');
    p->packet_channels = axis_length(c, 'f');
    p->channel_stride = axis_stride(c, 'f');
    p->ninputs = axis_length(c, 'p') * axis_length(c, 'i');
    p->packet_bytes = p->packet_samples * p->packet_channels * p->ninputs;
    p->ninputs *= c->nsources;
    p->npositions = p->ninputs + c->holes;
    p->nchannels = p->nstreams * p->packet_channels;
    p->receipt_bytes = (p->nsources * p->nstreams + 31) / 32 * 4;
    p->offset_binary = c->offset_binary;
    p->real_high = c->real_high;
    p->sum_samples = c->sum_packets * p->packet_samples;
    packets_channels(r, c);
    packets_inputs(r, c, &seed);

    size_t packets = p->nsources * p->nstreams, samples = c->nblocks * p->packet_samples;
    r->in_bytes = c->nblocks * packets * p->packet_bytes;
    r->receipt_bytes = c->nblocks * p->receipt_bytes;
    r->out_bytes = samples * p->nchannels * p->npositions;
    r->sum_count = p->sum_samples
                       ? (samples + p->sum_samples - 1) / p->sum_samples * p->nchannels * 3 * p->npositions
                       : 0;
    r->in = malloc(r->in_bytes);
    for (size_t i = 0; i < r->in_bytes; i++) r->in[i] = (uint8_t)(dump_random(&seed) >> 40);
    r->receipt = c->missing ? calloc(r->receipt_bytes, 1) : NULL;
    for (size_t k = 0; c->missing && k < c->nblocks * packets; k++)
        if (dump_random(&seed) % 100 >= c->missing) {
            size_t bit = k / packets * p->receipt_bytes * 8 + k % packets;
            r->receipt[bit / 8] |= (uint8_t)(1u << bit % 8);
        }
    /* E may start anywhere; what is behind it must stay. */
    r->out = malloc(r->out_bytes + 1);
    r->sums = malloc((r->sum_count + 1) * sizeof *r->sums);
    memset(r->out, 0xa5, r->out_bytes + 1);
    memset(r->sums, 0xa5, (r->sum_count + 1) * sizeof *r->sums);
}

static inline void packets_free(struct packets_run *r)
{
    free((void *)r->p.channel_offset);
    free((void *)r->p.channel_stream);
    free((void *)r->p.input_offset);
    free((void *)r->p.input_source);
    free((void *)r->p.position);
    free(r->stream_first);
    free(r->in);
    free(r->receipt);
    free(r->out);
    free(r->sums);
}

#endif
