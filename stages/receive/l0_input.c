/* receive, format chime-l0. */
#include "formats/chime_l0/l0_receiver.h"
#include "stages/common/stage/shape.h"
#include "stages/receive/receive.h"

#include <stdio.h>
#include <string.h>

static void *pipeline_memory(void *owner, size_t bytes)
{
    return br_stage_alloc(owner, bytes);
}

/* Applies the parameters, without memory for packets. */
static int describe(struct br_stage *stage, const struct receive *r, struct l0_receiver *l0)
{
    const struct br_stream_hints *hints = br_stage_hints(stage);
    if (r->beams == NULL || r->channels == NULL)
        return br_stage_fail(stage, BR_E_INVALID,
                             "beams and channels are missing; expected what to receive, such as "
                             "beams: {first: 0, count: 4}, channels: {first: 0, count: 1024}");
    if (r->beams->first + r->beams->count > 65536)
        return br_stage_fail_at(stage, "beams", "ids up to %lld; expected at most 65535",
                                (long long)(r->beams->first + r->beams->count - 1));
    if (r->channels->first + r->channels->count > L0_CHANNELS)
        return br_stage_fail_at(stage, "channels", "up to %lld; expected at most 1023",
                                (long long)(r->channels->first + r->channels->count - 1));
    if ((r->steps & (r->steps - 1)) != 0)
        return br_stage_fail_at(stage, "steps", "%lld; expected a power of two", (long long)r->steps);
    if (!hints->have_epoch || hints->epoch_ns < 0)
        return br_stage_fail(stage, BR_E_INVALID,
                             "the time of count 0 is missing; add stream: {epoch_ns: ...} to the pipeline");
    l0->nbeams = (size_t)r->beams->count;
    l0->ncoarse = (size_t)r->channels->count;
    uint16_t *beams = br_stage_alloc(stage, l0->nbeams * 2), *coarse = br_stage_alloc(stage, l0->ncoarse * 2);
    for (size_t i = 0; i < l0->nbeams; i++) beams[i] = (uint16_t)((size_t)r->beams->first + i);
    for (size_t i = 0; i < l0->ncoarse; i++) coarse[i] = (uint16_t)((size_t)r->channels->first + i);
    l0->beam_ids = beams;
    l0->coarse_ids = coarse;
    l0->nupfreq = (unsigned)r->nupfreq;
    l0->nsteps = (unsigned)r->steps;
    l0->counts_per_sample = (unsigned)r->counts_per_sample;
    l0->frame0_ns = (uint64_t)hints->epoch_ns;
    l0->window = (unsigned)r->window;
    l0->fd = -1;
    return BR_OK;
}

static int configure(struct br_stage *stage, struct receive *r)
{
    struct br_error error = {0};
    struct l0_receiver *l0 = r->state = br_stage_alloc(stage, sizeof *l0);
    int status = describe(stage, r, l0);
    if (status != BR_OK) return status;
    status = l0_receiver_stream(l0, br_stage_output(stage, 0), pipeline_memory, stage, &error);
    return status == BR_OK ? BR_OK : br_stage_fail(stage, status, "%s", error.text);
}

static int start(struct br_stage *stage, struct receive *r)
{
    struct l0_receiver *l0 = r->state;
    struct br_error error = {0};
    r->counts = &l0->counts;
    int status = l0_receiver_prepare(l0, &error);
    if (status != BR_OK) return br_stage_fail(stage, status, "%s", error.text);
    l0->fd = net_udp_receiver(&r->at, (int)r->receive_buffer, r->multicast_interface, &error);
    if (l0->fd < 0) return br_stage_fail(stage, error.status, "%s", error.text);
    br_stage_note(stage, "listening on port %u", net_port(l0->fd));
    return BR_OK;
}

static int step(struct br_stage *stage, struct receive *r, int ms)
{
    struct l0_receiver *l0 = r->state;
    struct br_error error = {0};
    uint64_t malformed = l0->counts.malformed;
    int status = l0_receiver_step(l0, ms, &error);
    if (malformed == 0 && l0->counts.malformed > 0)
        snprintf(r->complaint, sizeof r->complaint, "the first malformed packet: %s", l0->complaint);
    if (l0->notice[0] != '\0') snprintf(r->complaint, sizeof r->complaint, "%s", l0->notice);
    l0->notice[0] = '\0';
    return status == BR_OK ? BR_OK : br_stage_fail(stage, status, "%s", error.text);
}

static int fill(struct br_stage *stage, struct receive *r, struct br_frame *out, bool flush)
{
    struct l0_receiver *l0 = r->state;
    return assembly_take(&l0->assembly, br_stage_output(stage, 0), flush, out);
}

static bool connected(const struct receive *r)
{
    (void)r;
    return false;
}

static void stop(struct receive *r)
{
    if (r->state != NULL) l0_receiver_free(r->state);
}

const struct receive_format chime_l0_input = {
    "chime-l0", (size_t)L0_BATCH *L0_BUFFER, configure, start, step, fill, connected, stop};
