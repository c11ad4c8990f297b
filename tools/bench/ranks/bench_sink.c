/* bench_sink - for tools/bench/exchange.py: takes frames, and prints in the end how long all but the first
 * of them took, and when (CLOCK_MONOTONIC). */
#include "buffers/clock.h"
#include "runtime/ranks.h"

#include <stdio.h>

struct sink {
    uint64_t first_ns, last_ns, frames;
};

static const struct br_param params[] = {{0}};
static const struct br_port inputs[] = {{"in", "any stream"}, {0}};

static int configure(struct br_stage *stage, void *self)
{
    (void)stage, (void)self;
    return BR_OK;
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct sink *s = self;
    (void)stage;
    if (io->in[0] == NULL) return BR_FINISHED;
    s->last_ns = br_clock_ns();
    if (s->frames++ == 0) s->first_ns = s->last_ns;
    return BR_CONSUMED;
}

static int stop(struct br_stage *stage, void *self)
{
    struct sink *s = self;
    if (s->frames > 1)
        br_stage_note(stage, "%.3f us a frame, from %.3f s to %.3f s",
                      (double)(s->last_ns - s->first_ns) * 1e-3 / (double)(s->frames - 1),
                      (double)s->first_ns * 1e-9, (double)s->last_ns * 1e-9);
    return BR_OK;
}

BR_STAGE_EXPORT = {
    .abi_version = BR_ABI_VERSION,
    .type_size = sizeof(struct br_stage_type),
    .name = "bench_sink",
    .summary = "takes frames for measuring",
    .params = params,
    .flags = BR_STAGE_CUDA,
    .inputs = inputs,
    .size = sizeof(struct sink),
    .configure = configure,
    .process = process,
    .stop = stop,
};
