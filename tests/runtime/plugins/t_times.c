/* t_times - for tests: takes any stream, and writes down when each frame came: u64 CLOCK_MONOTONIC in ns. */
#include "buffers/clock.h"

#include <runtime/stage.h>

#include <stdio.h>
#include <stdlib.h>

enum { MOST = 1 << 22 };

struct times {
    const char *file;
    uint64_t *at, count;
};

static const struct br_param params[] = {
    BR_PARAM("file", BR_P_PATH, struct times, file, "where they go in the end", .required = true),
    {0},
};
static const struct br_port inputs[] = {{"in", "anything"}, {0}};

static int configure(struct br_stage *stage, void *self)
{
    (void)stage, (void)self;
    return BR_OK;
}

static int start(struct br_stage *stage, void *self)
{
    struct times *t = self;
    t->at = malloc(MOST * sizeof *t->at);
    return t->at != NULL ? BR_OK : br_stage_fail(stage, BR_E_NO_MEMORY, "no memory");
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct times *t = self;
    (void)stage;
    if (io->in[0] == NULL) return BR_FINISHED;
    if (t->count < MOST) t->at[t->count++] = br_clock_ns();
    return BR_CONSUMED;
}

static int stop(struct br_stage *stage, void *self)
{
    struct times *t = self;
    FILE *out = t->at != NULL ? fopen(t->file, "wb") : NULL;
    bool good = out != NULL && fwrite(t->at, sizeof *t->at, t->count, out) == t->count;
    if (out != NULL) good = fclose(out) == 0 && good;
    free(t->at);
    return good ? BR_OK : br_stage_fail(stage, BR_E_IO, "cannot write %s", t->file);
}

BR_STAGE_EXPORT = {
    .abi_version = BR_ABI_VERSION,
    .type_size = sizeof(struct br_stage_type),
    .name = "t_times",
    .summary = "when frames come",
    .params = params,
    .inputs = inputs,
    .size = sizeof(struct times),
    .configure = configure,
    .start = start,
    .process = process,
    .stop = stop,
};
