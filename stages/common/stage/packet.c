#include "stages/common/stage/packet.h"

static void *keep(void *stage, size_t bytes)
{
    return br_stage_alloc(stage, bytes);
}

struct packet_memory packet_stage_memory(struct br_stage *stage)
{
    return (struct packet_memory){keep, stage};
}

struct packet_description *packet_stage_load(struct br_stage *stage, const char *name)
{
    struct br_error error = {0};
    struct packet_description *packet = packet_load(name, packet_stage_memory(stage), &error);
    if (packet == NULL) br_stage_fail_at(stage, "packet", "%s", error.text);
    return packet;
}

int packet_stage_stream(struct br_stage *stage, const struct packet_layout *layout,
                        const struct packet_description *packet, struct br_stream *out)
{
    struct br_error error = {0};
    int status =
        packet_stream(layout, packet, br_stage_hints(stage), packet_stage_memory(stage), out, &error);
    return status == BR_OK ? BR_OK : br_stage_fail(stage, status, "%s", error.text);
}
