/* pcap_files.c - see pcap_files.h. */
#include "formats/pcap/pcap_files.h"
#include "buffers/regular_file.h"

#include <pcap/pcap.h>
#include <stdlib.h>
#include <string.h>

enum { ETHERNET = 14, UDP_HEADER = 8, IPV4 = 0x0800 };

const char *const pcap_reason_text[PCAP_NREASONS] = {
#define PCAP_REASON(NAME, text) text,
    PCAP_REASONS(PCAP_REASON)
#undef PCAP_REASON
};

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

/* --- one packet --------------------------------------------------------------------------------- */

static unsigned two_bytes(const uint8_t *bytes)
{
    return (unsigned)(bytes[0] << 8 | bytes[1]);
}

static bool is_tag(unsigned protocol)
{
    return protocol == 0x8100 || protocol == 0x88a8 || protocol == 0x9100; /* VLAN, and those outside it */
}

/* Where IPv4 begins in a packet of this link type; SIZE_MAX when it is something else. Where the header says
 * the protocol, VLAN tags follow it, whatever the link. */
static size_t find_ip(int link, const uint8_t *bytes, size_t length)
{
    size_t at = 0, protocol = SIZE_MAX;
    if (link == DLT_EN10MB) at = ETHERNET, protocol = 12;
    if (link == DLT_LINUX_SLL) at = 16, protocol = 14;
    if (link == DLT_LINUX_SLL2) at = 20, protocol = 0;
    if (link == DLT_NULL || link == DLT_LOOP) at = 4;
    if (protocol != SIZE_MAX) {
        if (length < at) return SIZE_MAX;
        for (; length >= at + 4 && is_tag(two_bytes(bytes + protocol)); at += 4) protocol = at + 2;
        if (two_bytes(bytes + protocol) != IPV4) return SIZE_MAX;
    }
    return length >= at + 20 && bytes[at] >> 4 == 4 ? at : SIZE_MAX;
}

/* The UDP payload of a packet of which `length` bytes are there: PCAP_NREASONS, or why it has none. */
static enum pcap_reason find_payload(int link, const uint8_t *bytes, size_t length,
                                     struct pcap_packet *packet)
{
    size_t at = find_ip(link, bytes, length);
    if (at == SIZE_MAX) return PCAP_OTHER;
    if (bytes[at + 9] != 17) return PCAP_NO_UDP;
    if ((two_bytes(bytes + at + 6) & 0x3fff) != 0) return PCAP_FRAGMENT;
    size_t udp = at + (size_t)(bytes[at] & 15) * 4;
    if (length < udp + UDP_HEADER) return PCAP_NO_UDP;
    size_t said = two_bytes(bytes + udp + 4), there = length - udp;
    if (said >= UDP_HEADER && said < there) there = said;
    packet->length = there - UDP_HEADER;
    packet->payload = bytes + udp + UDP_HEADER;
    return PCAP_NREASONS;
}

/* --- files -------------------------------------------------------------------------------------- */

static pcap_t *open_file(const char *path, char *why)
{
    return pcap_open_offline_with_tstamp_precision(path, PCAP_TSTAMP_PRECISION_NANO, why);
}

static int64_t time_of(const struct pcap_pkthdr *head)
{
    return (int64_t)head->ts.tv_sec * 1000000000 + head->ts.tv_usec; /* in nanoseconds, as it was opened */
}

struct dated {
    const char *path;
    int64_t unix_ns;
    size_t place;
};

static int by_time(const void *left, const void *right)
{
    const struct dated *a = left, *b = right;
    if (a->unix_ns != b->unix_ns) return a->unix_ns < b->unix_ns ? -1 : 1;
    return a->place < b->place ? -1 : 1;
}

int pcap_files_sort(struct caller *caller, struct pcap_files *p, const struct file_list *files)
{
    struct dated *dated = caller_alloc(caller, files->count * sizeof *dated);
    const char **path = caller_alloc(caller, (files->count + 1) * sizeof *path);
    int64_t latest = 0;
    for (size_t i = 0; i < files->count; i++) {
        char why[PCAP_ERRBUF_SIZE];
        struct pcap_pkthdr *head;
        const u_char *bytes;
        struct br_error error = {0};
        if (br_check_regular(files->path[i], &error) != BR_OK) return caller_refuse(caller, "%s", error.text);
        pcap_t *pcap = open_file(files->path[i], why);
        if (pcap == NULL) return caller_refuse(caller, "%s is not a capture file: %s", files->path[i], why);
        if (pcap_next_ex(pcap, &head, &bytes) == 1) latest = time_of(head);
        pcap_close(pcap);
        dated[i] = (struct dated){files->path[i], latest, i};
    }
    qsort(dated, files->count, sizeof *dated, by_time);
    for (size_t i = 0; i < files->count; i++) path[i] = dated[i].path;
    *p = (struct pcap_files){.files = {files->count, path}};
    return BR_OK;
}

static int open_next(struct caller *caller, struct pcap_files *p)
{
    char why[PCAP_ERRBUF_SIZE];
    if (p->at == p->files.count) return 0;
    p->pcap = open_file(p->files.path[p->at], why);
    if (p->pcap == NULL)
        return caller_fail(caller, BR_E_FORMAT, "%s is not a capture file: %s", p->files.path[p->at], why);
    return 1;
}

int pcap_files_next(struct caller *caller, struct pcap_files *p, struct pcap_packet *packet)
{
    struct pcap_pkthdr *head;
    const u_char *bytes;
    for (;;) {
        int status = p->pcap != NULL ? 1 : open_next(caller, p);
        if (status != 1) return status;
        int got = pcap_next_ex(p->pcap, &head, &bytes);
        if (got == 1) break;
        if (got == PCAP_ERROR && p->at >= p->told) { /* what was read so far is good */
            p->told = p->at + 1;
            caller_warn(caller, "%s ends early: %s", p->files.path[p->at], pcap_geterr(p->pcap));
        }
        pcap_close(p->pcap);
        p->pcap = NULL;
        p->at++;
    }
    p->packets++;
    packet->unix_ns = time_of(head);
    enum pcap_reason reason = find_payload(pcap_datalink(p->pcap), bytes, head->caplen, packet);
    if (head->caplen < head->len && reason != PCAP_OTHER) {
        reason = PCAP_CUT;
        if (head->len > p->longest) p->longest = head->len;
        if (head->caplen > p->kept) p->kept = head->caplen;
    }
    if (reason == PCAP_NREASONS) return 1;
    p->skipped[reason]++;
    return 2;
}

void pcap_files_rewind(struct pcap_files *p)
{
    if (p->pcap != NULL) pcap_close(p->pcap);
    *p = (struct pcap_files){.files = p->files, .told = p->told};
}
