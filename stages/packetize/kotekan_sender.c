/* packetize, format kotekan: see formats/kotekan/send.h. */
#include "formats/kotekan/send.h"
#include "stages/packetize/packetize.h"

#include <string.h>

static int configure(struct br_stage *stage, struct packetize *p)
{
    const struct br_stream *in = br_stage_input(stage, 0);
    struct kotekan_sender *s = p->state = br_stage_alloc(stage, sizeof *s);
    struct br_error error = {0};
    int status = kotekan_encoder_init(&s->encoder, in, strcmp(p->coding, "int4p4chime") == 0, &error);
    if (status != BR_OK) return br_stage_fail(stage, BR_E_INVALID, "%s", error.text);
    size_t beams = p->destinations.count; /* everybody gets everything */
    const struct destination_param *d = p->destinations.value;
    for (size_t i = 0; i < p->destinations.count; i++)
        if (d[i].first_beam != 0 || d[i].beams != 0)
            return br_stage_fail_at(stage, "destinations",
                                    "first_beam and beams are not for format kotekan: all get whole frames");
    return share_beams(stage, p, beams);
}

static int start(struct br_stage *stage, struct packetize *p)
{
    struct br_error error = {0};
    if (kotekan_sender_create(p->state, br_stage_input(stage, 0), &error) != BR_OK)
        return br_stage_fail(stage, error.status, "%s", error.text);
    return start_peers(stage, p, false);
}

static int frame(struct br_stage *stage, struct packetize *p, const struct br_frame *in)
{
    int status = peers_open(&p->peers);
    if (status == BR_OK) status = kotekan_sender_put(p->state, &p->peers, in);
    if (status > 0) br_stage_count_lost(stage, BR_LOST_NO_DESTINATION, in->samples);
    return status > 0 ? BR_OK : peers_status(stage, p, status);
}

static int stop(struct br_stage *stage, struct packetize *p)
{
    (void)stage;
    peers_report(&p->peers, "frames");
    kotekan_sender_free(p->state);
    return BR_OK;
}

const struct wire_format kotekan_format = {"kotekan", configure, start, frame, finish_peers, stop};
