/* t_sink - for tests: checks that the bytes count up (over holes too), slowly if told to. */
#include "buffers/clock.h"

#include <runtime/stage.h>

#include <unistd.h>

struct sink {
    int64_t pause_us, fail_at, hang_at, halt_at;
    const char *halt_until;
    bool fail_stop, check;
};

static const struct br_param params[] = {
    BR_PARAM("pause_us", BR_P_INT, struct sink, pause_us, "sleeps after each frame", .def = "0",
             .unit = "us"),
    BR_PARAM("fail_at", BR_P_INT, struct sink, fail_at, "fails at this sample", .def = "-1"),
    BR_PARAM("hang_at", BR_P_INT, struct sink, hang_at, "never comes back from this sample", .def = "-1"),
    BR_PARAM("halt_at", BR_P_INT, struct sink, halt_at, "takes nothing more from this sample on ...",
             .def = "-1"),
    BR_PARAM("halt_until", BR_P_PATH, struct sink, halt_until, "... until this file is there"),
    BR_PARAM("fail_stop", BR_P_BOOL, struct sink, fail_stop, "cannot stop", .def = "false"),
    BR_PARAM("check", BR_P_BOOL, struct sink, check, "looks at the bytes", .def = "true"),
    {0},
};
static const struct br_port inputs[] = {{"in", "bytes"}, {0}};

static int configure(struct br_stage *stage, void *self)
{
    (void)stage, (void)self;
    return BR_OK;
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    const struct sink *s = self;
    const struct br_frame *in = io->in[0];
    if (in == NULL) return BR_FINISHED;
    if (s->fail_at >= 0 && in->first >= (uint64_t)s->fail_at)
        return br_stage_fail(stage, BR_E_IO, "told to fail");
    while (s->hang_at >= 0 && in->first >= (uint64_t)s->hang_at) pause();
    while (s->halt_at >= 0 && in->first >= (uint64_t)s->halt_at && access(s->halt_until, F_OK) != 0 &&
           !br_stage_stopping(stage))
        br_stage_sleep_until(stage, br_clock_ns() + 1000000);
    for (uint64_t i = 0; s->check && i < in->samples; i++)
        if (((const uint8_t *)in->data)[i] != (in->first + i) % 251)
            return br_stage_fail(stage, BR_E_INTERNAL, "wrong byte at sample %llu",
                                 (unsigned long long)(in->first + i));
    if (s->pause_us > 0) br_stage_sleep_until(stage, br_clock_ns() + (uint64_t)s->pause_us * 1000);
    return BR_CONSUMED;
}

static int stop(struct br_stage *stage, void *self)
{
    const struct sink *s = self;
    return s->fail_stop ? br_stage_fail(stage, BR_E_IO, "told not to stop") : BR_OK;
}

BR_STAGE_EXPORT = {
    .abi_version = BR_ABI_VERSION,
    .type_size = sizeof(struct br_stage_type),
    .name = "t_sink",
    .summary = "checks",
    .params = params,
    .inputs = inputs,
    .size = sizeof(struct sink),
    .configure = configure,
    .process = process,
    .stop = stop,
};
