#include "stages/common/stage/packet.h"

#include <inttypes.h>
#include <string.h>

const char *const packet_orders[] = {"pol_dish", "dish_pol", NULL};

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

static int check(struct br_stage *stage, const struct packet_layout *l, size_t count)
{
    if (br_stage_given(stage, "order") && (l->npol > 0 || count > 0))
        return br_stage_fail_at(stage, "order", "%s",
                                l->npol > 0 ? "the packets say themselves which polarisation an input has"
                                            : "`positions` says already where every input goes");
    if (count == 0 || count == l->ninputs) return BR_OK;
    return br_stage_fail_at(stage, "positions", "%zu positions; expected one for each of %zu inputs", count,
                            l->ninputs);
}

const int64_t *packet_place_inputs(struct br_stage *stage, const struct packet_layout *l,
                                   const struct packet_places *p)
{
    bool by_packets = l->npol > 0 || strcmp(p->order, "pol_dish") == 0;
    size_t all = p->npol * p->ndish, *first = br_stage_alloc(stage, all * sizeof *first); /* 1 + its input */
    int64_t *position = br_stage_alloc(stage, l->ninputs * sizeof *position);
    int status = check(stage, l, p->positions.count);
    for (size_t i = 0; i < l->ninputs && status == BR_OK; i++) {
        int64_t at = p->positions.count > 0 ? p->positions.value[i]
                     : by_packets           ? (int64_t)l->position[i]
                                            : (int64_t)(i % p->npol * p->ndish + i / p->npol);
        position[i] = at;
        if (at >= 0 && (size_t)at >= all)
            status = br_stage_fail_at(stage, "positions",
                                      "input %zu goes to position %" PRId64 "; expected less than %zu "
                                      "polarisations x %zu dishes, or -1",
                                      i, at, p->npol, p->ndish);
        else if (at >= 0 && first[at] > 0)
            status = br_stage_fail_at(stage, "positions", "inputs %zu and %zu both go to position %" PRId64,
                                      first[at] - 1, i, at);
        else if (at >= 0)
            first[at] = i + 1;
    }
    return status == BR_OK ? position : NULL;
}
