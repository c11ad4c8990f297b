/* upchannelize - finer frequency channels by a polyphase filterbank, one plan per zone of the band. */
#include "kernels/upchannelize/upchannelize.h"
#include "runtime/stage_updates.h"
#include "stages/common/stage/export.h"
#include "stages/common/stage/gpu.h"
#include "stages/common/stage/parallel.h"
#include "stages/common/stage/shape.h"
#include "stages/upchannelize_description.h"

#include <stdlib.h>
#include <string.h>

struct zone_param {
    int64_t channels, factor;
};

struct upchannelize {
    int64_t factor, taps; /* parameters; factor 0: zones are given */
    struct br_maps zones;
    struct br_reals window, gain;

    unsigned nzones;
    struct br_zone coarse[BR_MAX_ZONES]; /* channels of the INPUT; factor is this zone's U */
    size_t spectators;                   /* pol x dish */
    unsigned boundary;                   /* the largest U: a frame that starts off it starts a stream */
    struct br_upchannelize *plan[BR_MAX_ZONES];
    uint64_t cursor; /* base sample at which the last frame ended */
    bool begun;
    struct br_cuda *cuda; /* NULL on the CPU */
    /* One block of the largest U, in which a step that is only partly covered is filled up with missing
     * samples; `block` is where the frames are. */
    uint8_t *block, *block_valid;
};

static const struct br_param zone_params[] = {
    PARAM(INT, struct zone_param, channels, "coarse channels in this zone", .required = true, .min = 1,
          .max = 1 << 20),
    PARAM(INT, struct zone_param, factor, "fine channels per coarse channel, U: a power of two",
          .required = true, .min = 1, .max = 128),
    {0},
};
static const struct br_param params[] = {
    PARAM(INT, struct upchannelize, factor,
          "fine channels per coarse channel, U: 1, 2, 4, ... 128; for the whole band", .def = "0", .min = 0,
          .max = 128),
    PARAM(MAPS, struct upchannelize, zones,
          "list of {channels, factor} that covers the band, in the input's order", .fields = zone_params,
          .size = sizeof(struct zone_param)),
    PARAM(INT, struct upchannelize, taps, "length of the filter in output samples, M", .def = "4", .min = 1,
          .max = 32),
    PARAM(REALS, struct upchannelize, window,
          "M U filter weights instead of the sinc-Hanning window; only with one factor"),
    PARAM(REALS, struct upchannelize, gain,
          "U gains, one per fine channel, or one for all; default sqrt(U), which keeps the rms of noise"),
    {0},
};
static const struct br_port inputs[] = {{"in", "E[time][freq][pol][dish], int4x2"}, {0}};
static const struct br_port outputs[] = {{"out", "E[time/U][freq*U][pol][dish], int4x2; one array per zone"},
                                         {0}};

/* Fills in the zones of the input; neighbours of equal factor become one. */
static int take_zones(struct br_stage *stage, struct upchannelize *up, size_t nchannels)
{
    struct zone_param all = {(int64_t)nchannels, up->factor};
    const struct zone_param *zone = up->zones.count > 0 ? up->zones.value : &all;
    size_t count = up->zones.count > 0 ? up->zones.count : 1, total = 0;
    if (br_stage_given(stage, "factor") == (up->zones.count > 0))
        return br_stage_fail(stage, BR_E_INVALID, "%s; give the whole band one factor, or a list of zones",
                             up->zones.count > 0 ? "both factor and zones are given"
                                                 : "neither factor nor zones is given");
    if (up->zones.count == 0 && up->factor < 1)
        return br_stage_fail_at(stage, "factor", "0 is not a factor; expected 1, 2, 4, ... 128");
    for (size_t i = 0; i < count; i++) {
        unsigned factor = (unsigned)zone[i].factor;
        if ((factor & (factor - 1)) != 0)
            return br_stage_fail_at(stage, up->zones.count > 0 ? "zones" : "factor",
                                    "%u is not a power of two; expected 1, 2, 4, ... 128", factor);
        struct br_zone *last = up->nzones > 0 ? &up->coarse[up->nzones - 1] : NULL;
        size_t channels = (size_t)zone[i].channels;
        if (last != NULL && last->factor == factor) {
            last->nchannels += channels;
        } else if (up->nzones == BR_MAX_ZONES) {
            return br_stage_fail_at(stage, "zones", "more than %d zones", BR_MAX_ZONES);
        } else {
            up->coarse[up->nzones++] = (struct br_zone){total, channels, factor, 1, 0};
        }
        total += channels;
        if (factor > up->boundary) up->boundary = factor;
    }
    if (total != nchannels)
        return br_stage_fail_at(stage, "zones", "the zones hold %zu channels, but the input has %zu", total,
                                nchannels);
    return BR_OK;
}

/* A zone's plan as the parameters want it. */
static struct br_upchannelize_params plan_params(const struct upchannelize *up, unsigned z, double same[128])
{
    struct br_upchannelize_params p = {.nchannels = up->coarse[z].nchannels,
                                       .nspectators = up->spectators,
                                       .factor = up->coarse[z].factor,
                                       .taps = (unsigned)up->taps,
                                       .window = up->window.count > 0 ? up->window.value : NULL};
    if (up->gain.count == 1) {
        for (unsigned i = 0; i < p.factor; i++) same[i] = up->gain.value[0];
        p.gain = same;
    } else if (up->gain.count > 1) {
        p.gain = up->gain.value;
    }
    return p;
}

/* A plan of the least size that there is refuses what the real one would. */
static int try_plan(struct br_stage *stage, const struct upchannelize *up, unsigned z)
{
    double same[128];
    struct br_upchannelize *plan;
    struct br_upchannelize_params p = plan_params(up, z, same);
    struct br_why why = {""};
    p.nchannels = p.nspectators = 1;
    if (br_upchannelize_create(&plan, BR_REFERENCE, &p, &why) != 0)
        return br_stage_fail_at(stage, up->gain.count > 0 ? "gain" : "window", "%s", why.text);
    br_upchannelize_destroy(plan);
    return BR_OK;
}

static int configure(struct br_stage *stage, void *self)
{
    struct upchannelize *up = self;
    const struct br_stream *in = br_stage_input(stage, 0);
    struct br_stream *out = br_stage_output(stage, 0);
    int status =
        br_expect_input(stage, 1u << BR_INT4X2, "time,freq,pol,dish", "int4x2 [time][freq][pol][dish]");
    if (status != BR_OK) return status;
    up->nzones = 0;
    up->boundary = 1;
    for (unsigned z = 0; z < in->nzones; z++)
        if (in->zone[z].downsample != 1 || in->zone[z].factor != 1)
            return br_stage_fail(stage, BR_E_INVALID,
                                 "its input is upchannelized already (U = %u, %u base samples per step); "
                                 "expected coarse channels",
                                 in->zone[z].factor, in->zone[z].downsample);
    status = take_zones(stage, up, in->nchannels);
    if (status != BR_OK) return status;
    for (unsigned z = 0; z < up->nzones; z++) {
        unsigned u = up->coarse[z].factor;
        if (in->frame_samples % u != 0)
            return br_stage_fail(stage, BR_E_INVALID,
                                 "the factor %u does not divide the frames of its input, %llu samples; "
                                 "choose frame_samples at "
                                 "the source as a multiple of %u",
                                 u, (unsigned long long)in->frame_samples, up->boundary);
        if (up->window.count > 0 && (up->nzones > 1 || up->window.count != (size_t)up->taps * u))
            return br_stage_fail_at(stage, "window",
                                    "it has %zu values; expected taps x factor = %llu, and one factor only",
                                    up->window.count, (unsigned long long)up->taps * u);
        if (up->gain.count > 1 && (up->nzones > 1 || up->gain.count != u))
            return br_stage_fail_at(stage, "gain",
                                    "it has %zu values; expected one, or factor = %u with one factor only",
                                    up->gain.count, u);
        if (up->gain.count + up->window.count > 0 && (status = try_plan(stage, up, z)) != BR_OK)
            return status;
    }
    up->spectators = br_array_length(&in->array, "pol") * br_array_length(&in->array, "dish");

    size_t nfine = 0;
    for (unsigned z = 0; z < up->nzones; z++) nfine += up->coarse[z].nchannels * up->coarse[z].factor;
    double *freq = br_stage_alloc(stage, nfine * sizeof *freq),
           *width = br_stage_alloc(stage, nfine * sizeof *width);
    size_t at = 0;
    enum br_sideband sideband = up->boundary > 1 ? br_stage_sideband(stage) : in->sideband;
    for (unsigned z = 0; z < up->nzones; z++) {
        const struct br_zone *zone = &up->coarse[z];
        unsigned u = zone->factor;
        out->zone[z] =
            (struct br_zone){at, zone->nchannels * u, u, u, u > 1 ? (unsigned)(up->taps - 1) * u / 2 : 0};
        for (size_t c = zone->first_channel; c < zone->first_channel + zone->nchannels; c++)
            for (unsigned i = 0; i < u; i++, at++) {
                freq[at] = br_sky_frequency(sideband, in->freq_mhz[c],
                                            ((double)i - ((double)u - 1) / 2) * in->width_mhz[c] / u);
                width[at] = in->width_mhz[c] / u;
            }
    }
    out->nzones = up->nzones;
    out->nchannels = nfine;
    out->freq_mhz = freq;
    out->width_mhz = width;
    if (up->nzones ==
        1) { /* one array; with several factors `array` keeps the coarse lengths, see stream.h */
        out->array.axis[0].length = (size_t)(in->frame_samples / up->boundary);
        out->array.axis[1].length = nfine;
    }
    return BR_OK;
}

/* The block at the end of a frame, and each zone's history: M blocks of U samples, on a GPU twice. */
static void memory(struct br_stage *stage, void *self, struct br_memory *m)
{
    const struct upchannelize *up = self;
    const struct br_stream *in = br_stage_input(stage, 0);
    size_t copies = br_stage_device(stage) >= 0 ? 2 : 1;
    br_stage_uploads_memory(stage, br_stream_max_validity(in), m);
    br_stage_buffer_memory(stage, up->boundary * in->nchannels * up->spectators, m);
    m->host += up->boundary * in->nchannels;
    for (unsigned z = 0; z < up->nzones; z++)
        if (up->coarse[z].factor > 1)
            br_stage_buffer_memory(stage,
                                   copies * (size_t)up->taps * up->coarse[z].factor *
                                       up->coarse[z].nchannels * up->spectators,
                                   m);
    /* On the CPU each thread has 64 spectators of some 256 samples and of the taps before, in three forms. */
    for (unsigned z = 0; br_stage_device(stage) < 0 && z < up->nzones; z++)
        m->host += br_stage_threads(stage) * (256 + ((size_t)up->taps + 7) * up->coarse[z].factor) * 64 * 3;
}

static int make_plans(struct br_stage *stage, struct upchannelize *up, enum br_backend backend)
{
    for (unsigned z = 0; z < up->nzones; z++) {
        double same[128];
        struct br_why why = {""};
        struct br_upchannelize_params p = plan_params(up, z, same);
        p.cuda = up->cuda;
        p.parallel = br_stage_parallel_loop(stage);
        if (br_upchannelize_create(&up->plan[z], backend, &p, &why) != 0)
            return br_stage_fail(stage, BR_E_INVALID, "%s", why.text);
    }
    return BR_OK;
}

static int start(struct br_stage *stage, void *self)
{
    struct upchannelize *up = self;
    const struct br_stream *in = br_stage_input(stage, 0);
    size_t bytes = up->boundary * in->nchannels * up->spectators;
    enum br_backend backend;
    int status = br_stage_backend(stage, br_stream_max_validity(in), &backend, &up->cuda);
    if (status != BR_OK) return status;
    up->block = br_stage_scratch(stage, up->cuda, bytes);
    if (up->block == NULL) return BR_E_NO_MEMORY;
    up->block_valid = calloc(up->boundary, in->nchannels);
    if (up->block_valid == NULL) return br_no_memory(stage, up->boundary * in->nchannels);
    status = make_plans(stage, up, backend);
    return status == BR_OK ? br_stage_gpu_holds(stage, up->cuda) : status;
}

/* One zone's part of a frame; first, left: base samples. `call` is complete but for nsteps. */
struct zone_part {
    struct br_upchannelize_call call;
    size_t u, width, nchannels;
};

static struct zone_part part_of_zone(struct br_stage *stage, struct upchannelize *up, unsigned z,
                                     const struct br_frame *in, struct br_frame *out)
{
    const struct br_zone *zone = &up->coarse[z];
    size_t nchannels = br_stage_input(stage, 0)->nchannels;
    struct br_part at = br_stream_part(br_stage_output(stage, 0), z, in->first, in->samples);
    return (struct zone_part){
        {up->plan[z], (const uint8_t *)in->data + zone->first_channel * up->spectators,
         nchannels * up->spectators, in->complete ? NULL : in->valid + zone->first_channel, nchannels,
         (size_t)in->samples, (uint8_t *)out->data + at.offset, out->valid + at.valid_offset},
        zone->factor,
        zone->nchannels * up->spectators,
        zone->nchannels};
}

/* A frame of which a step at either end may be only partly covered. Adds the number of clamped components to
 * `clamped`. Status. */
static int run_steps(struct br_stage *stage, struct upchannelize *up, struct zone_part *p, uint64_t first,
                     uint64_t *clamped)
{
    struct br_upchannelize_call *call = &p->call;
    size_t u = p->u, left = call->nsteps, phase = (size_t)(first % u);
    while (left > 0) {
        size_t take, steps;
        if (phase == 0 && left >= u) { /* whole steps, straight from the frame */
            steps = take = left - left % u;
            call->nsteps = take;
            *clamped += br_upchannelize_execute_all(call, 1);
        } else {
            steps = u;
            take = left < u - phase ? left : u - phase;
            int status = br_stage_set_rows(stage, up->block, p->width, 0, p->width, u);
            if (status == BR_OK)
                status = br_stage_copy_rows(stage, up->block + phase * p->width, p->width, call->e, call->row,
                                            p->width, take);
            if (status != BR_OK) return status;
            memset(up->block_valid, BR_MISSING, u * p->nchannels);
            for (size_t i = 0; i < take; i++) {
                uint8_t *to = up->block_valid + (phase + i) * p->nchannels;
                if (call->e_valid != NULL)
                    memcpy(to, call->e_valid + i * call->valid_row, p->nchannels);
                else
                    memset(to, BR_VALID, p->nchannels);
            }
            *clamped += br_upchannelize_execute(call->plan, up->block, p->width, up->block_valid,
                                                p->nchannels, u, call->out, call->out_valid);
            phase = 0;
        }
        call->out += steps * p->width;
        call->out_valid += steps * p->nchannels;
        left -= take;
        call->e += take * call->row;
        if (call->e_valid != NULL) call->e_valid += take * call->valid_row;
    }
    return BR_OK;
}

/* Zones of a frame on their way through it. */
struct progress {
    struct zone_part part[BR_MAX_ZONES];
    uint64_t at[BR_MAX_ZONES], end; /* base samples */
    bool together, valid;           /* the frame has whole steps everywhere; all its outputs are valid */
};

/* Takes each zone up to its first step that begins at or after `until`, or to the end. */
static int run_until(struct br_stage *stage, struct upchannelize *up, struct progress *go, uint64_t until,
                     uint64_t *clamped)
{
    struct br_upchannelize_call calls[BR_MAX_ZONES];
    size_t ncalls = 0;
    int status = BR_OK;
    for (unsigned z = 0; z < up->nzones && status == BR_OK; z++) {
        struct zone_part *part = &go->part[z];
        struct br_upchannelize_call *call = &part->call;
        uint64_t cut = until < go->end ? (until + part->u - 1) / part->u * part->u : go->end;
        if (cut > go->end) cut = go->end;
        if (cut <= go->at[z]) continue;
        call->nsteps = (size_t)(cut - go->at[z]);
        if (!go->together) {
            status = run_steps(stage, up, part, go->at[z], clamped);
        } else {
            size_t steps = call->nsteps;
            calls[ncalls] = *call;
            if (go->valid) calls[ncalls].out_valid = NULL;
            ncalls++;
            call->e += steps * call->row;
            if (call->e_valid != NULL) call->e_valid += steps * call->valid_row;
            call->out += steps * part->width;
            call->out_valid += steps * part->nchannels;
        }
        go->at[z] = cut;
    }
    if (ncalls > 0) *clamped += br_upchannelize_execute_all(calls, ncalls);
    return status;
}

/* All zones of a frame. Whole steps everywhere, which is nearly always so, go together; where everything
 * is valid nobody writes a byte of validity. Where new gains are due, each zone takes them from its first
 * step on that begins there or later. */
static int run_zones(struct br_stage *stage, struct upchannelize *up, const struct br_frame *in,
                     struct br_frame *out, uint64_t *clamped)
{
    struct progress go = {.end = in->first + in->samples};
    go.together = in->first % up->boundary == 0 && in->samples % up->boundary == 0;
    go.valid = in->complete && go.together;
    for (unsigned z = 0; z < up->nzones; z++) go.valid = go.valid && br_upchannelize_whole(up->plan[z]);
    out->complete = go.valid;
    for (unsigned z = 0; z < up->nzones; z++) {
        go.part[z] = part_of_zone(stage, up, z, in, out);
        go.at[z] = in->first;
    }
    for (;;) {
        uint64_t due = br_stage_next_update(stage, go.end);
        int status = run_until(stage, up, &go, due, clamped);
        if (status != BR_OK) return status;
        if (due >= go.end) break;
        br_stage_update(stage, due);
    }
    if (!go.valid) br_frame_close_validity(br_stage_output(stage, 0), out);
    return BR_OK;
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct upchannelize *up = self;
    const struct br_frame *in = io->in[0];
    struct br_frame *out = io->out[0];
    if (in == NULL) return BR_FINISHED;
    if (!up->begun || !br_goes_on(up->cursor, in->first, up->boundary))
        for (unsigned z = 0; z < up->nzones; z++)
            br_upchannelize_reset_at(up->plan[z], in->first / up->coarse[z].factor);
    up->begun = true;
    up->cursor = in->first + in->samples;

    uint64_t clamped = 0;
    int status = run_zones(stage, up, in, out, &clamped);
    br_stage_count_saturated(stage, clamped);
    if (status == BR_OK) status = br_stage_gpu_check(stage, up->cuda);
    return status != BR_OK ? status : BR_CONSUMED | BR_PRODUCED;
}

/* --- new gains --- */

static int prepare(struct br_stage *stage, void *fresh, const void *self)
{
    struct upchannelize *up = fresh;
    const struct upchannelize *now = self;
    struct br_why why = {""};
    enum br_backend backend;
    int status = br_stage_backend_aside(stage, now->cuda, &backend, &up->cuda);
    if (status == BR_OK) status = make_plans(stage, up, backend);
    for (unsigned z = 0; z < up->nzones && status == BR_OK; z++)
        if (br_upchannelize_may_exchange(now->plan[z], up->plan[z], &why) != 0)
            status = br_stage_fail_at(stage, "gain", "%s; restart the pipeline with it", why.text);
    return status;
}

static void commit(struct br_stage *stage, void *self, void *fresh, uint64_t sample)
{
    (void)stage, (void)sample;
    struct upchannelize *up = self, *with = fresh;
    for (unsigned z = 0; z < up->nzones; z++) br_upchannelize_exchange(up->plan[z], with->plan[z]);
}

static void discard(struct br_stage *stage, void *fresh)
{
    (void)stage;
    struct upchannelize *up = fresh;
    for (unsigned z = 0; z < up->nzones; z++) br_upchannelize_destroy(up->plan[z]);
    br_cuda_destroy(up->cuda);
}

static const char *const updates[] = {"gain", NULL};

static int stop(struct br_stage *stage, void *self)
{
    struct upchannelize *up = self;
    for (unsigned z = 0; z < up->nzones; z++) br_upchannelize_destroy(up->plan[z]);
    br_stage_scratch_free(up->cuda, up->block);
    br_stage_gpu_end(stage, up->cuda);
    free(up->block_valid);
    return BR_OK;
}

STAGE_EXPORT(upchannelize, struct upchannelize,
             "finer frequency channels (polyphase filterbank), by one factor or zone by zone",
             .inputs = inputs, .outputs = outputs, .flags = BR_STAGE_CUDA | BR_STAGE_COMMITS,
             .memory = memory, .updates = updates, .prepare = prepare, .commit = commit, .discard = discard);
