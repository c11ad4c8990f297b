/* bench_sink - for tools/bench/exchange.py: takes frames, and prints in the end how long all but the first
 * of them took, and when (CLOCK_MONOTONIC). */
#include "buffers/clock.h"
#include "runtime/ranks.h"

#include <dlfcn.h>

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

/* On a GPU frames are handed on before they are there: the last one is there when the stage's stream has come
 * so far. The program has CUDA's runtime, so that this plugin needs none of its own. */
static void wait_for_last(struct br_stage *stage)
{
    int (*wait)(void *) = (int (*)(void *))(uintptr_t)dlsym(RTLD_DEFAULT, "cudaStreamSynchronize");
    if (wait == NULL || wait(br_stage_stream(stage)) != 0)
        br_stage_note(stage, "the last frames were not waited for: the time is too short");
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct sink *s = self;
    if (io->in[0] == NULL) {
        if (br_stage_device(stage) >= 0) wait_for_last(stage);
        s->last_ns = br_clock_ns();
        return BR_FINISHED;
    }
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
