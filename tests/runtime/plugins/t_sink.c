/* t_sink - for tests: checks that the bytes count up (over holes too), slowly if told to. */
#include <runtime/stage.h>

#include <time.h>

struct sink {
    int64_t pause_us, fail_at;
    bool fail_stop, check;
};

static const struct br_param params[] = {
    {.name = "pause_us",
     .type = BR_P_INT,
     .offset = offsetof(struct sink, pause_us),
     .def = "0",
     .unit = "us",
     .help = "sleeps after each frame"},
    {.name = "fail_at",
     .type = BR_P_INT,
     .offset = offsetof(struct sink, fail_at),
     .def = "-1",
     .help = "fails at this sample"},
    {.name = "fail_stop",
     .type = BR_P_BOOL,
     .offset = offsetof(struct sink, fail_stop),
     .def = "false",
     .help = "cannot stop"},
    {.name = "check",
     .type = BR_P_BOOL,
     .offset = offsetof(struct sink, check),
     .def = "true",
     .help = "looks at the bytes"},
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
    for (uint64_t i = 0; s->check && i < in->samples; i++)
        if (((const uint8_t *)in->data)[i] != (in->first + i) % 251)
            return br_stage_fail(stage, BR_E_INTERNAL, "wrong byte at sample %llu",
                                 (unsigned long long)(in->first + i));
    if (s->pause_us > 0) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        uint64_t ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
        br_stage_sleep_until(stage, ns + (uint64_t)s->pause_us * 1000);
    }
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
