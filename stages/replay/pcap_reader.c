/* pcap_reader.c - see pcap_reader.h. The same open frames as capture's, fed by one thread that waits for
 * whoever reads the frames, so that nothing is lost but what the file lacks. */
#include "stages/replay/pcap_reader.h"
#include "buffers/clock.h"
#include "stages/common/packets/stream.h"

#include <inttypes.h>
#include <pcap/pcap.h>
#include <stdio.h>
#include <string.h>

enum { OPEN = 2, FIRST_LOOK = 2000, LOOK_EVERY = 256, ETHERNET = 14, UDP_HEADER = 8 };

bool pcap_probe(const void *start, size_t length)
{
    static const uint8_t marks[][4] = {{0xd4, 0xc3, 0xb2, 0xa1},
                                       {0xa1, 0xb2, 0xc3, 0xd4},
                                       {0x4d, 0x3c, 0xb2, 0xa1},
                                       {0xa1, 0xb2, 0x3c, 0x4d},
                                       {0x0a, 0x0d, 0x0d, 0x0a}};
    for (size_t i = 0; length >= 4 && i < sizeof marks / sizeof *marks; i++)
        if (memcmp(start, marks[i], 4) == 0) return true;
    return false;
}

static int configure(struct br_stage *stage, void *self, const struct file_list *files,
                     const struct replay_options *options)
{
    struct pcap_reader *r = self;
    struct br_error error = {0};
    if (options->packet == NULL)
        return br_stage_fail(stage, BR_E_INVALID,
                             "'packet' is missing; expected the name of a packet description");
    r->packet = packet_stage_load(stage, options->packet);
    if (r->packet == NULL) return BR_E_INVALID;
    size_t frame = options->frame_samples > 0 ? (size_t)options->frame_samples : 8192;
    struct packet_node node = {.sources = {options->sources->count, options->sources->value},
                               .streams = {options->streams->count, options->streams->value},
                               .frame_samples = frame,
                               .values = options->values,
                               .real = options->real};
    if (packet_layout_make(&r->layout, r->packet, &node, packet_stage_memory(stage), &error) != BR_OK)
        return br_stage_fail(stage, error.status, "%s", error.text);
    r->stream = *br_stage_output(stage, 0);
    int status = packet_stage_stream(stage, &r->layout, r->packet, &r->stream);
    if (status != BR_OK) return status;
    if (!br_stage_hints(stage)->have_epoch)
        return br_stage_fail(stage, BR_E_INVALID,
                             "the time of sample 0 is not known; give `stream: {epoch_ns: ...}`");
    r->stream.epoch_ns = br_stage_hints(stage)->epoch_ns;
    r->max_gap = (int64_t)(options->max_gap_s / br_stream_sample_s(&r->stream));
    r->files = *files;
    br_stage_suggest_depth(stage, 0, OPEN + 3);
    return BR_OK;
}

static int start(struct br_stage *stage, void *self)
{
    struct pcap_reader *r = self;
    struct br_error error = {0};
    r->opened = true;
    if (window_make(&r->window, r->packet, &r->layout, OPEN, 1, &error) != BR_OK)
        return br_stage_fail(stage, error.status, "%s", error.text);
    r->window.hold = (int64_t)r->layout.frame_samples / 4;
    r->window.far = r->max_gap;
    return BR_OK;
}

/* --- packets of the files ---------------------------------------------------------------------- */

/* The UDP payload of a packet of this link type; NULL when there is none. */
static const uint8_t *udp_payload(int link, const uint8_t *bytes, size_t length, size_t *payload)
{
    size_t at = link == DLT_EN10MB                     ? ETHERNET
                : link == DLT_LINUX_SLL                ? 16
                : link == DLT_LINUX_SLL2               ? 20
                : link == DLT_NULL || link == DLT_LOOP ? 4
                                                       : 0;
    if (link == DLT_EN10MB)
        while (length >= at + 4 && bytes[at - 2] == 0x81 && bytes[at - 1] == 0) at += 4; /* VLAN */
    if (length < at + 20 || bytes[at] >> 4 != 4 || bytes[at + 9] != 17) return NULL;
    if (((bytes[at + 6] << 8 | bytes[at + 7]) & 0x3fff) != 0) return NULL; /* a fragment */
    size_t udp = at + (size_t)(bytes[at] & 15) * 4;
    if (length < udp + UDP_HEADER) return NULL;
    size_t said = (size_t)(bytes[udp + 4] << 8 | bytes[udp + 5]), there = length - udp;
    if (said >= UDP_HEADER && said < there) there = said;
    *payload = there - UDP_HEADER;
    return bytes + udp + UDP_HEADER;
}

static int open_next(struct br_stage *stage, struct pcap_reader *r)
{
    char why[PCAP_ERRBUF_SIZE];
    if (r->at == r->files.count) return 0;
    r->pcap = pcap_open_offline(r->files.path[r->at], why);
    if (r->pcap == NULL)
        return br_stage_fail(stage, BR_E_FORMAT, "%s is no capture file: %s", r->files.path[r->at], why);
    return 1;
}

/* Puts the next packet into the window: 1, 0 at the end of all files, or a status. */
static int take(struct br_stage *stage, struct pcap_reader *r)
{
    struct pcap_pkthdr *head;
    const u_char *bytes;
    for (;;) {
        int status = r->pcap != NULL ? 1 : open_next(stage, r);
        if (status != 1) return status;
        int got = pcap_next_ex(r->pcap, &head, &bytes);
        if (got == 1) break;
        if (got == PCAP_ERROR) /* what was read so far is good */
            br_stage_warn(stage, "%s ends early: %s", r->files.path[r->at], pcap_geterr(r->pcap));
        pcap_close(r->pcap);
        r->pcap = NULL;
        r->at++;
    }
    size_t length = 0;
    const uint8_t *payload = udp_payload(pcap_datalink(r->pcap), bytes, head->caplen, &length);
    r->packets++;
    r->cut += head->caplen < head->len;
    if (payload == NULL) {
        r->no_udp++;
        return 1;
    }
    window_enter(&r->window, &r->window.thread[0]);
    window_packet(&r->window, &r->window.thread[0], payload, length);
    window_leave(&r->window.thread[0]);
    return 1;
}

/* --- frames ------------------------------------------------------------------------------------ */

/* The first packets say where the recording begins; then it is read from the beginning. */
static int begin(struct br_stage *stage, struct pcap_reader *r)
{
    int64_t at = 0;
    int status = 1;
    for (int i = 0; i < FIRST_LOOK && status == 1; i++) {
        bool first = window_position(&r->window, 1, &at);
        status = take(stage, r);
        if (first) break; /* one packet of the node's is enough: its own frame is the first */
    }
    if (status < 0) return status;
    if (!window_position(&r->window, 1, &at))
        return br_stage_fail(stage, BR_E_FORMAT, "none of the first %d packets is one of '%s' for this node",
                             FIRST_LOOK, r->packet->name);
    if (r->pcap != NULL) pcap_close(r->pcap);
    r->pcap = NULL;
    r->at = 0;
    r->packets = r->no_udp = r->cut = 0;
    window_forget(&r->window);
    r->given = at / (int64_t)r->layout.frame_samples;
    r->begun = true;
    return BR_OK;
}

static void give(struct br_stage *stage, struct pcap_reader *r, struct br_frame *out, int64_t base)
{
    if (r->given < base) r->given = base;
    while (r->given < base + OPEN) {
        struct br_frame *frame = r->ngiven == 0 ? out : br_stage_lend_ahead(stage, 0, r->ngiven);
        if (frame == NULL) return;
        window_give(&r->window, r->given++, frame);
        r->ngiven++;
    }
}

static int finish(struct pcap_reader *r)
{
    int64_t base = atomic_load(&r->window.base), last = -1;
    for (int64_t n = base; n < r->given; n++)
        if (window_has_packets(&r->window, n)) last = n;
    if (base > last) return BR_FINISHED;
    struct br_frame *frame = window_close(&r->window, &r->stream);
    if (base == last) window_trim(&r->window, &r->stream, frame);
    return base == last ? BR_PRODUCED | BR_FINISHED : BR_PRODUCED;
}

static int fill(struct br_stage *stage, void *self, struct br_frame *out)
{
    struct pcap_reader *r = self;
    int status = BR_OK;
    if (!r->begun) {
        status = begin(stage, r);
        if (status != BR_OK) return status;
        give(stage, r, out, r->given);
        window_begin(&r->window, r->given - r->ngiven);
    }
    while (!r->ended) {
        give(stage, r, out, atomic_load(&r->window.base));
        if (r->ngiven < OPEN) { /* readers hold the others: later */
            if (br_stage_sleep_until(stage, br_clock_ns() + 1000000)) return BR_FINISHED;
            continue;
        }
        for (int i = 0; i < LOOK_EVERY && !r->ended; i++) {
            status = take(stage, r);
            if (status < 0) return status;
            r->ended = status == 0;
            if (atomic_load(&r->window.wanted)) break;
        }
        if (br_stage_stopping(stage)) return BR_FINISHED;
        window_mark_all_live(&r->window);
        atomic_store(&r->window.wanted, false);
        int64_t to;
        if (window_has_jumped(&r->window, &to))
            return br_stage_fail(stage, BR_E_FORMAT,
                                 "most sources jump to sample %" PRId64
                                 ", more than max_gap_s from the others; "
                                 "play the parts one by one",
                                 to);
        if (r->ended || !window_is_due(&r->window)) continue;
        struct br_frame *frame = window_close(&r->window, &r->stream);
        r->ngiven--;
        return frame != NULL ? BR_PRODUCED : br_stage_fail(stage, BR_E_INTERNAL, "a frame had no memory");
    }
    return finish(r);
}

static void stop(struct br_stage *stage, void *self)
{
    struct pcap_reader *r = self;
    if (r->pcap != NULL) pcap_close(r->pcap);
    if (!r->opened) return;
    char text[400] = "";
    size_t n = 0;
    for (int k = 0; k < WINDOW_NREASONS && r->window.thread != NULL; k++) {
        uint64_t sum = 0;
        for (size_t s = 0; s <= r->layout.nsources; s++)
            sum += window_count(&r->window, s, (enum window_reason)k);
        if (sum > 0 && n < sizeof text)
            n += (size_t)snprintf(text + n, sizeof text - n, ", %" PRIu64 " %s", sum, window_reason_name[k]);
    }
    br_stage_note(stage, "%" PRIu64 " packets%s; %" PRIu64 " are no UDP, %" PRIu64 " were recorded in part",
                  r->packets, text, r->no_udp, r->cut);
    window_free(&r->window);
}

const struct replay_reader replay_pcap = {configure, start, fill, stop};
