/* bench_beams - for tools/bench/exchange.py: frames J[freq][time][beam] of a rank's part of the band as
 * fast as they are taken, or each after some computing. Their contents do not matter. */
#include "buffers/clock.h"
#include "runtime/ranks.h"
#include "tools/bench/gpu/bare_mma.h"

struct source {
    int64_t channels, steps, beams, frames, compute_us, products; /* parameters */
    bool headers;
    uint64_t next;
};

static const struct br_param params[] = {
    BR_PARAM("channels", BR_P_INT, struct source, channels, "of each rank", .def = "64", .min = 1,
             .max = 1 << 20),
    BR_PARAM("steps", BR_P_INT, struct source, steps, "of a frame", .def = "32", .min = 1, .max = 1 << 20),
    BR_PARAM("beams", BR_P_INT, struct source, beams, "of all ranks", .def = "512", .min = 1, .max = 1 << 20),
    BR_PARAM("frames", BR_P_INT, struct source, frames, "before it ends", .def = "200", .min = 1,
             .max = 1 << 30),
    BR_PARAM("compute_us", BR_P_INT, struct source, compute_us, "processor time of a frame", .def = "0",
             .min = 0, .max = 1 << 30),
    BR_PARAM("products", BR_P_INT, struct source, products,
             "waves of bare matrix products for a frame, 10 us each: the computing of a GPU", .def = "0",
             .min = 0, .max = 1 << 20),
    BR_PARAM("headers", BR_P_BOOL, struct source, headers, "the ranks exchange nothing but headers of frames",
             .def = "false"),
    {0},
};
static const struct br_port outputs[] = {{"out", "J[freq][time][beam], f16"}, {0}};

static int configure(struct br_stage *stage, void *self)
{
    struct source *s = self;
    struct br_stream *out = br_stage_output(stage, 0);
    struct br_error error = {0};
    size_t n = (size_t)s->channels;
    double *freq = br_stage_alloc(stage, n * sizeof *freq), *width = br_stage_alloc(stage, n * sizeof *width);
    for (size_t c = 0; c < n; c++) {
        freq[c] = 400 + 0.01 * (double)(br_stage_rank(stage) * n + c);
        width[c] = 0.01;
    }
    out->frame_samples = (uint64_t)s->steps;
    out->sample_ns = (struct br_rational){1000000, 1};
    out->nchannels = n;
    out->freq_mhz = freq;
    out->width_mhz = width;
    out->nzones = 1;
    out->zone[0] = (struct br_zone){.nchannels = n, .factor = 1, .downsample = 1};
    out->nbeams = (size_t)s->beams;
    if (br_array_init(&out->array, BR_F16, "freq,time,beam",
                      (size_t[]){n, (size_t)s->steps, (size_t)s->beams}, &error) != BR_OK)
        return br_stage_fail(stage, BR_E_INVALID, "%s", error.text);
    return BR_OK;
}

/* A frame's header to all other ranks and theirs to this one, again and again. */
static int exchange_headers(struct br_stage *stage, const struct source *s)
{
    uint64_t header[3] = {0}, begin = br_clock_ns();
    for (; header[0] < (uint64_t)s->frames; header[0]++) {
        int status = br_stage_post(stage, header, sizeof header);
        for (unsigned k = 1; k < br_stage_ranks(stage); k++) {
            unsigned from = (br_stage_rank(stage) + k) % br_stage_ranks(stage);
            size_t bytes;
            uint64_t seen = br_stage_events(stage);
            while (status == BR_OK && br_stage_next_post(stage, from, &bytes) == NULL) {
                status = br_stage_await(stage, seen, 100000000);
                seen = br_stage_events(stage);
            }
            if (status != BR_OK) return status;
            br_stage_drop_post(stage, from);
        }
    }
    br_stage_note(stage, "%.3f us a frame", (double)(br_clock_ns() - begin) * 1e-3 / (double)s->frames);
    return BR_FINISHED;
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct source *s = self;
    if (s->headers) return exchange_headers(stage, s);
    if (br_stage_stopping(stage) || s->next == (uint64_t)s->frames) return BR_FINISHED;
    for (uint64_t end = br_clock_ns() + (uint64_t)s->compute_us * 1000; br_clock_ns() < end;) continue;
    if (s->products > 0)
        gpu_bare_mma(false, 64, (unsigned)s->products, io->out[0]->data, br_stage_stream(stage));
    io->out[0]->first = s->next++ * (uint64_t)s->steps;
    io->out[0]->samples = (uint64_t)s->steps;
    return BR_PRODUCED;
}

BR_STAGE_EXPORT = {
    .abi_version = BR_ABI_VERSION,
    .type_size = sizeof(struct br_stage_type),
    .name = "bench_beams",
    .summary = "frames of beams for measuring",
    .params = params,
    .flags = BR_STAGE_CUDA,
    .outputs = outputs,
    .size = sizeof(struct source),
    .configure = configure,
    .process = process,
};
