/* t_source - for tests: counts up, one byte per sample: value = base sample modulo 251. */
#include "tests/runtime/plugins/t_stream.h"

#include <string.h>
#include <unistd.h>

struct source {
    int64_t samples, frame_samples, fail_at;
    bool ignore_stop, fail_start;
    const char *start_waits;
    uint64_t next;
};

static const struct br_param params[] = {
    BR_PARAM("samples", BR_P_INT, struct source, samples, "base samples to make", .def = "1000", .min = 1,
             .max = 1e15),
    BR_PARAM("frame_samples", BR_P_INT, struct source, frame_samples, "base samples per frame", .def = "64",
             .min = 1, .max = 65536),
    BR_PARAM("fail_at", BR_P_INT, struct source, fail_at, "fails at this sample", .def = "-1"),
    BR_PARAM("ignore_stop", BR_P_BOOL, struct source, ignore_stop, "goes on when asked to end",
             .def = "false"),
    BR_PARAM("fail_start", BR_P_BOOL, struct source, fail_start, "cannot start", .def = "false"),
    BR_PARAM("start_waits", BR_P_PATH, struct source, start_waits, "starts once this file is there"),
    {0},
};
static const struct br_port outputs[] = {{"out", "bytes"}, {0}};

static int configure(struct br_stage *stage, void *self)
{
    const struct source *s = self;
    t_stream_describe(stage, s->frame_samples);
    return BR_OK;
}

static int start(struct br_stage *stage, void *self)
{
    const struct source *s = self;
    while (s->start_waits != NULL && access(s->start_waits, F_OK) != 0) usleep(1000);
    return s->fail_start ? br_stage_fail(stage, BR_E_IO, "told not to start") : BR_OK;
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct source *s = self;
    struct br_frame *out = io->out[0];
    uint64_t left = (uint64_t)s->samples - s->next;
    if (left == 0 || (br_stage_stopping(stage) && !s->ignore_stop)) return BR_FINISHED;
    if (s->fail_at >= 0 && s->next >= (uint64_t)s->fail_at)
        return br_stage_fail(stage, BR_E_IO, "told to fail at %llu", (unsigned long long)s->next);
    out->first = s->next;
    out->samples = left < (uint64_t)s->frame_samples ? left : (uint64_t)s->frame_samples;
    for (uint64_t i = 0; i < out->samples; i++) ((uint8_t *)out->data)[i] = (uint8_t)((s->next + i) % 251);
    s->next += out->samples;
    return BR_PRODUCED;
}

BR_STAGE_EXPORT = {
    .abi_version = BR_ABI_VERSION,
    .type_size = sizeof(struct br_stage_type),
    .name = "t_source",
    .summary = "counts up",
    .params = params,
    .outputs = outputs,
    .size = sizeof(struct source),
    .configure = configure,
    .start = start,
    .process = process,
};
