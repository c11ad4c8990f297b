#include "formats/chime_l0/send.h"

#include <stdlib.h>
#include <string.h>

/* Lays out the packets of a destination; bytes NULL: only counts what they take. */
static size_t lay_out(const struct l0_sender *s, struct l0_destination *d, uint8_t *bytes)
{
    size_t used = 0, end = d->first_beam + d->beams, pb = s->packet_beams, pc = s->packet_channels;
    d->nslots = 0;
    d->per_beams = (s->ncoarse + pc - 1) / pc;
    for (size_t b = d->first_beam; b < end; b += pb)
        for (size_t c = 0; c < s->ncoarse; c += pc, d->nslots++) {
            struct l0_slot slot = {.first_beam = b,
                                   .nbeams = end - b < pb ? end - b : pb,
                                   .ncoarse = s->ncoarse - c < pc ? s->ncoarse - c : pc};
            size_t header = l0_header_bytes(s->version, slot.nbeams, slot.ncoarse);
            size_t length = header + slot.nbeams * slot.ncoarse * s->nup * s->steps;
            if (bytes != NULL) {
                uint16_t ids[L0_PACKET_MAX];
                for (size_t k = 0; k < slot.nbeams; k++) ids[k] = (uint16_t)(s->first_beam_id + b + k);
                struct l0_packet packet = {.version = s->version,
                                           .counts_per_sample = s->step,
                                           .frame0_ns = (uint64_t)s->epoch_ns,
                                           .nbeams = (unsigned)slot.nbeams,
                                           .nfreq = (unsigned)slot.ncoarse,
                                           .nupfreq = s->nup,
                                           .nsteps = s->steps};
                slot.bytes = bytes + used;
                slot.scales = l0_put_header(slot.bytes, &packet, ids, s->coarse_id + c);
                slot.data = slot.bytes + header;
                d->slot[d->nslots] = slot;
                d->packet[d->nslots] = (struct iovec){slot.bytes, length};
            }
            used += (length + 63) / 64 * 64;
        }
    return used;
}

int l0_sender_create(struct l0_sender *s, struct br_error *error)
{
    size_t total = 0;
    for (size_t i = 0; i < s->count; i++) s->to[i].link.fd = -1;
    int status = datagrams_create(&s->wire, error);
    for (size_t i = 0; i < s->count && status == BR_OK; i++) {
        struct l0_destination *d = &s->to[i];
        status = datagrams_open(&s->wire, &d->link, error);
        total += lay_out(s, d, NULL);
        d->slot = calloc(d->nslots, sizeof *d->slot);
        d->packet = calloc(d->nslots, sizeof *d->packet);
        if (status == BR_OK && (d->slot == NULL || d->packet == NULL))
            status = br_fail(error, BR_E_NO_MEMORY, "no memory for %zu packets", d->nslots);
    }
    if (status != BR_OK) return status;
    s->packets = malloc(total);
    if (s->packets == NULL)
        return br_fail(error, BR_E_NO_MEMORY, "no memory for packets of %zu bytes", total);
    for (size_t i = 0, used = 0; i < s->count; i++) used += lay_out(s, &s->to[i], s->packets + used);
    return BR_OK;
}

void l0_sender_free(struct l0_sender *s)
{
    for (size_t i = 0; i < s->count; i++) {
        datagrams_close(&s->to[i].link);
        free(s->to[i].slot);
        free(s->to[i].packet);
    }
    free(s->packets);
    datagrams_free(&s->wire);
}

int l0_sender_send(struct l0_sender *s, struct l0_destination *d, uint64_t count, struct br_error *error)
{
    for (size_t k = 0; k < d->nslots; k++)
        memcpy(d->slot[k].bytes + (s->version == 1 ? 8 : 16), &count, sizeof count);
    return datagrams_send(&s->wire, &d->link, d->packet, d->nslots, error);
}
