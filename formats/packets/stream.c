/* stream.c - see stream.h. */
#include "formats/packets/stream.h"

#include "formats/common/hints.h"

#include <string.h>

struct packet_description *packet_load(const char *name, struct packet_memory memory, struct br_error *error)
{
    struct packet_description *description;
    if (packet_description_load(&description, name, error) != BR_OK) return NULL;
    return packet_description_keep(description, memory);
}

int packet_stream(const struct packet_layout *layout, const struct packet_description *packet,
                  const struct br_stream_hints *hints, struct packet_memory memory, struct br_stream *out,
                  struct br_error *error)
{
    out->sideband = packet->sideband;
    int status = hints_sideband(hints, packet->name, "sideband", &out->sideband, error);
    if (status != BR_OK) return status;
    out->sample_ns = hints->sample_ns;
    if (hints->nfreq > 0) {
        struct br_rational t = out->sample_ns.num > 0 ? out->sample_ns : packet->sample_ns;
        double *width = memory.alloc(memory.owner, hints->nfreq * sizeof *width);
        double critical = t.num > 0 ? 1e3 * (double)t.den / (double)t.num : 0;
        for (size_t i = 0; i < hints->nfreq; i++)
            width[i] = hints->width_mhz > 0 ? hints->width_mhz : critical;
        out->freq_mhz = hints->freq_mhz;
        out->width_mhz = width;
        out->nchannels = hints->nfreq;
    }
    return packet_layout_describe(layout, packet, out, memory, error);
}

static const char *keep_text(const char *text, struct packet_memory memory)
{
    size_t length = strlen(text) + 1;
    return memcpy(memory.alloc(memory.owner, length), text, length);
}

static struct packet_ids keep_ids(struct packet_ids ids, struct packet_memory memory)
{
    size_t bytes = ids.count * sizeof *ids.value;
    if (bytes > 0) ids.value = memcpy(memory.alloc(memory.owner, bytes), ids.value, bytes);
    return ids;
}

struct packet_description *packet_description_keep(struct packet_description *description,
                                                   struct packet_memory memory)
{
    struct packet_description *copy = memory.alloc(memory.owner, sizeof *copy);
    *copy = *description;
    copy->name = keep_text(description->name, memory);
    copy->file = keep_text(description->file, memory);
    for (unsigned i = 0; i < copy->nfields; i++)
        copy->field[i].name = keep_text(description->field[i].name, memory);
    copy->sources = keep_ids(description->sources, memory);
    copy->streams = keep_ids(description->streams, memory);
    packet_description_free(description);
    return copy;
}
