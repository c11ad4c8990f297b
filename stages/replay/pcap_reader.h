/* pcap_reader.h - F-engines' packets from a capture file (pcap and pcapng), as `capture` takes them from
 * the network. */
#ifndef BEAMRING_STAGES_REPLAY_PCAP_READER_H
#define BEAMRING_STAGES_REPLAY_PCAP_READER_H

#include "stages/common/packets/window.h"
#include "stages/replay/replay.h"

struct pcap_reader {
    struct br_stream stream;
    struct packet_description *packet;
    struct packet_layout layout;
    struct window window;
    struct file_list files;
    size_t at;  /* file */
    void *pcap; /* pcap_t of that file, or NULL */
    bool begun, opened;
    int64_t given;   /* the next frame that gets memory */
    unsigned ngiven; /* frames that have memory and are not handed on */
    uint64_t packets, no_udp, cut;
    int64_t max_gap; /* samples */
    bool ended;
};

/* True for the first bytes of a pcap or pcapng file. */
bool pcap_probe(const void *start, size_t length);

extern const struct replay_reader replay_pcap; /* struct pcap_reader */

#endif
