/* info_packets.c - `beamring info PACKET.yaml`: what a packet description means. */
#include "formats/packets/header.h"
#include "formats/packets/layout.h"
#include "runtime/config/arena.h"
#include "tools/beamring/info.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UDP_IP_ETHERNET = 42, ON_THE_WIRE = 24, /* checksum, preamble and gap of Ethernet */ LINE = 60 };

static const char *const axis_names[] = {"time", "freq", "pol", "dish", "input"};

/* "1536 + stream + 128 x bin" */
static void print_form(const char *name, const struct packet_description *p, const struct packet_form *form)
{
    char text[200] = "";
    size_t n = 0;
    if (form->base != 0) n += (size_t)snprintf(text, sizeof text, "%" PRId64 " + ", form->base);
    for (unsigned i = 0; i < form->nterms && n < sizeof text; i++) {
        const struct packet_term *t = &form->term[i];
        const char *plus = i + 1 < form->nterms ? " + " : "", *field = p->field[t->field].name;
        n += (size_t)(t->times == 1
                          ? snprintf(text + n, sizeof text - n, "%s%s", field, plus)
                          : snprintf(text + n, sizeof text - n, "%" PRId64 " x %s%s", t->times, field, plus));
    }
    info_line(name, "%s", form->nterms > 0 ? text : "0: packets do not say");
}

static int by_place(const void *left, const void *right)
{
    const struct packet_field *a = *(const struct packet_field *const *)left,
                              *b = *(const struct packet_field *const *)right;
    if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
    if (a->item != b->item) return a->item < b->item ? -1 : 1;
    return a->shift > b->shift ? -1 : a->shift < b->shift;
}

static void print_field(const struct packet_description *p, const struct packet_field *f)
{
    char what[200] = "", where[LINE];
    size_t n = 0;
    bool part = f->shift > 0 || f->bits < 8 * f->bytes;
    if (p->spead)
        snprintf(where, sizeof where, "item 0x%04x", f->item);
    else
        snprintf(where, sizeof where, "bytes %zu to %zu", f->offset, f->offset + f->bytes - 1);
    if (part)
        n += (size_t)snprintf(what + n, sizeof what - n, ", bits %u to %u", f->shift + f->bits - 1, f->shift);
    if (!p->spead && f->bytes > 1)
        n += (size_t)snprintf(what + n, sizeof what - n, ", %s endian", f->little ? "little" : "big");
    if (f->divide > 1) n += (size_t)snprintf(what + n, sizeof what - n, ", in units of %" PRIu64, f->divide);
    if (f->has_equals) n += (size_t)snprintf(what + n, sizeof what - n, ", always 0x%" PRIx64, f->equals);
    if (f->has_expect) n += (size_t)snprintf(what + n, sizeof what - n, ", expected %" PRIu64, f->expect);
    if (f->lost_if != 0) snprintf(what + n, sizeof what - n, ", lost if any of 0x%" PRIx64, f->lost_if);
    printf("    %-18s %s%s\n", where, f->name, what);
}

static void print_bytes(const struct packet_description *p)
{
    const struct packet_field *sorted[PACKET_MAX_FIELDS];
    char axes[160] = "";
    for (unsigned i = 0; i < p->nfields; i++) sorted[i] = &p->field[i];
    qsort(sorted, p->nfields, sizeof *sorted, by_place);
    for (unsigned i = 0; i < p->naxes; i++) {
        size_t n = strlen(axes);
        snprintf(axes + n, sizeof axes - n, "[%s %zu]", axis_names[p->axis[i].axis], p->axis[i].length);
    }
    bool shown = false;
    for (unsigned i = 0; i < p->nfields; i++) {
        if (!shown && !p->spead && sorted[i]->offset >= p->payload_offset) {
            printf("    bytes %zu to %zu%*s payload %s\n", p->payload_offset,
                   p->payload_offset + p->payload_bytes - 1, 4, "", axes);
            shown = true;
        }
        print_field(p, sorted[i]);
    }
    if (!shown && p->spead) printf("    %-18s payload %s\n", "behind the items", axes);
    if (!shown && !p->spead)
        printf("    bytes %zu to %zu%*s payload %s\n", p->payload_offset,
               p->payload_offset + p->payload_bytes - 1, 4, "", axes);
}

/* Rate of all that a node gets. */
static void print_rate(const struct packet_description *p, size_t slots)
{
    if (p->sample_ns.num == 0) {
        info_line("rate", "not known: give `sample_ns`");
        return;
    }
    double sample_s = 1e-9 * (double)p->sample_ns.num / (double)p->sample_ns.den;
    double packets = (double)slots / (sample_s * (double)p->nsamples),
           bytes = (double)packet_header_length(p);
    info_line("rate", "%.6g packets/s; %.4g GB/s of payload, %.4g Gb/s on the wire", packets,
              1e-9 * packets * (double)p->payload_bytes,
              8e-9 * packets * (bytes + UDP_IP_ETHERNET + ON_THE_WIRE));
}

static void print_node(const struct packet_description *p, struct br_arena *arena)
{
    struct packet_layout l;
    struct packet_memory memory = {info_alloc, arena};
    struct packet_node node = {.frame_samples = p->nsamples,
                               .values = p->values != NULL ? p->values : packet_values[0],
                               .real = p->real != NULL ? p->real : packet_real[0]};
    struct br_error error = {0};
    if (p->sources.count == 0 || p->streams.count == 0) {
        info_line("node", "give capture %s%s%s to say what a node gets",
                  p->sources.count == 0 ? "`sources`" : "",
                  p->sources.count == 0 && p->streams.count == 0 ? " and " : "",
                  p->streams.count == 0 ? "`streams`" : "");
        return;
    }
    if (packet_layout_make(&l, p, &node, memory, &error) != BR_OK) {
        info_line("node", "%s", error.text);
        return;
    }
    info_line("node", "%zu sources x %zu streams: %zu channels of %zu inputs", l.nsources, l.nstreams,
              l.nchannels, l.ninputs);
    if (p->has_freq)
        info_line("channels", "%" PRId64 " to %" PRId64 ", %.10g to %.10g MHz", l.channel_id[0],
                  l.channel_id[l.nchannels - 1],
                  p->freq_first_mhz + p->freq_step_mhz * (double)l.channel_id[0],
                  p->freq_first_mhz + p->freq_step_mhz * (double)l.channel_id[l.nchannels - 1]);
    else
        info_line("channels", "%" PRId64 " to %" PRId64 "; frequencies are not known", l.channel_id[0],
                  l.channel_id[l.nchannels - 1]);
    print_rate(p, l.nsources * l.nstreams);
}

static void print_sequence(const struct packet_description *p)
{
    char again[80] = "never starts again", time[60] = "";
    double counts = (double)p->sequence_period * (double)p->sequence_samples;
    if (p->sequence_period != 0 && p->sample_ns.num > 0)
        snprintf(time, sizeof time, ": every %.7g s",
                 1e-9 * counts * (double)p->sample_ns.num / (double)p->sample_ns.den);
    if (p->sequence_period != 0)
        snprintf(again, sizeof again, "starts again after %" PRIu64 " counts", p->sequence_period);
    info_line("sample", "%" PRId64 " x counter + %" PRId64 "; the counter %s%s", p->sequence_samples,
              p->sequence_offset, again, time);
}

int info_packets(const char *path)
{
    struct packet_description *p;
    struct br_arena arena = {NULL};
    struct br_error error = {0};
    if (packet_description_load(&p, path, &error) != BR_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    printf("%s: packet description '%s'\n", path, p->name);
    size_t bytes = packet_header_length(p);
    info_line("UDP payload", "%zu bytes, of which %zu samples; an MTU of at least %zu", bytes,
              p->payload_bytes, bytes + 28);
    if (p->port > 0) info_line("port", "%u", p->port);
    print_bytes(p);
    print_form("counter", p, &p->sequence);
    print_sequence(p);
    print_form("source", p, &p->source);
    print_form("stream", p, &p->stream);
    info_line("channel i", "%" PRId64 " + stream + %" PRId64 " x i, i below %zu", p->channel_base,
              p->channel_step, p->nchannels);
    if (p->sideband != BR_SIDEBAND_UNKNOWN)
        info_line("sideband", "%s", br_sideband_name(p->sideband));
    else
        info_line("sideband", "not in the description: `sideband: upper` or `lower` here or in `stream:`");
    info_line("packet", "%zu samples x %zu channels x %zu inputs", p->nsamples, p->nchannels, p->ninputs);
    info_line("coding", "%s, real part in the %s nibble", p->values != NULL ? p->values : "not known",
              p->real != NULL ? p->real : "(not known)");
    if (p->sample_ns.num > 0)
        info_line("sample time", "%.10g us", 1e-3 * (double)p->sample_ns.num / (double)p->sample_ns.den);
    print_node(p, &arena);
    br_arena_free(&arena);
    packet_description_free(p);
    return 0;
}
