/* t_makes - for tests: a source that takes updates. Each byte is the `add` of its sample, and the stage notes
 * from which sample on it had which. As t_deaf it does not say that it commits: that is refused. */
#include "runtime/stage_updates.h"
#include "tests/runtime/plugins/t_stream.h"
#include "tests/runtime/plugins/t_update.h"

#include <string.h>

#ifndef MAKES_NAME
#define MAKES_NAME  "t_makes"
#define MAKES_FLAGS BR_STAGE_COMMITS
#endif

struct makes {
    struct t_update u; /* first: tests look at it */
    int64_t samples, frame_samples;
    uint64_t next;
};

static const struct br_param params[] = {
    BR_PARAM("samples", BR_P_INT, struct makes, samples, "base samples to make", .def = "6400", .min = 1,
             .max = 1e15),
    BR_PARAM("frame_samples", BR_P_INT, struct makes, frame_samples, "base samples per frame", .def = "64",
             .min = 1, .max = 65536),
    BR_PARAM("add", BR_P_INT, struct makes, u.add, "a number", .def = "0"),
    {0},
};
static const struct br_port outputs[] = {{"out", "bytes"}, {0}};

static int configure(struct br_stage *stage, void *self)
{
    const struct makes *m = self;
    t_stream_describe(stage, m->frame_samples);
    if (m->u.add == 666) return br_stage_fail_at(stage, "add", "666 is not a number that anybody wants");
    return BR_OK;
}

static void note(struct t_update *u, uint64_t sample)
{
    unsigned n = u->nseen;
    if ((n > 0 && u->seen[n - 1].add == u->add) || n == T_UPDATE_SEEN) return;
    u->seen[n].first = sample;
    u->seen[n].add = u->seen[n].table = u->add;
    u->nseen++;
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct makes *m = self;
    struct br_frame *out = io->out[0];
    uint64_t left = (uint64_t)m->samples - m->next, at = m->next;
    if (left == 0 || br_stage_stopping(stage)) return BR_FINISHED;
    uint64_t end = at + (left < (uint64_t)m->frame_samples ? left : (uint64_t)m->frame_samples);
    out->first = at;
    out->samples = end - at;
    while (at < end) {
        uint64_t until = br_stage_next_update(stage, end);
        if (until <= at) {
            br_stage_update(stage, at);
            continue;
        }
        note(&m->u, at);
        memset((uint8_t *)out->data + (at - out->first), (int)m->u.add, until - at);
        at = until;
    }
    m->next = end;
    out->complete = true;
    return BR_PRODUCED;
}

static void commit(struct br_stage *stage, void *self, void *fresh, uint64_t sample)
{
    (void)stage, (void)sample;
    ((struct makes *)self)->u.add = ((const struct makes *)fresh)->u.add;
}

static const char *const updates[] = {"add", NULL};

BR_STAGE_EXPORT = {
    .abi_version = BR_ABI_VERSION,
    .type_size = sizeof(struct br_stage_type),
    .name = MAKES_NAME,
    .summary = "makes what updates say",
    .params = params,
    .outputs = outputs,
    .flags = MAKES_FLAGS,
    .size = sizeof(struct makes),
    .configure = configure,
    .process = process,
    .updates = updates,
    .commit = commit,
};
