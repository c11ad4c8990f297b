/* pcap_files.h - capture files one after the other, in the order of their first packets' times, and the UDP
 * payloads in them. */
#ifndef BEAMRING_FORMATS_PCAP_PCAP_FILES_H
#define BEAMRING_FORMATS_PCAP_PCAP_FILES_H

#include "formats/format.h"

/* Packets without a payload that could be one of a board's. X(NAME, text) */
#define PCAP_REASONS(X)                                                                                      \
    X(OTHER, "other than IPv4")                                                                              \
    X(NO_UDP, "without UDP")                                                                                 \
    X(FRAGMENT, "IP fragments")                                                                              \
    X(CUT, "recorded in part")
enum pcap_reason {
#define PCAP_REASON(NAME, text) PCAP_##NAME,
    PCAP_REASONS(PCAP_REASON)
#undef PCAP_REASON
        PCAP_NREASONS
};
extern const char *const pcap_reason_text[PCAP_NREASONS];

struct pcap_files {
    struct file_list files;
    size_t at;   /* file */
    size_t told; /* files before it have been said to end early */
    void *pcap;  /* pcap_t of that file, or NULL */
    uint64_t packets, skipped[PCAP_NREASONS];
    uint64_t longest,
        kept; /* bytes of the longest packet that was recorded in part, and how many are there */
};

struct pcap_packet {
    const uint8_t *payload; /* UDP's; valid until the next packet */
    size_t length;
    int64_t unix_ns; /* by the file */
};

/* True for the first bytes of a pcap or pcapng file. */
bool pcap_probe(const void *start, size_t length);

/* Sorts the files by the time of their first packet; those with equal times, or without packets, stay in
 * their order. A file that cannot be read is an error at `files`. */
int pcap_files_sort(struct caller *caller, struct pcap_files *p, const struct file_list *files);

/* The next packet: 1, 2 for one without a payload (counted), 0 at the end of all files, or a status. A file
 * that ends early is a warning. */
int pcap_files_next(struct caller *caller, struct pcap_files *p, struct pcap_packet *packet);

/* Back to the first packet of the first file, with nothing counted; closes what is open. */
void pcap_files_rewind(struct pcap_files *p);

#endif
