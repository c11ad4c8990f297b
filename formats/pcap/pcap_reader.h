/* pcap_reader.h - F-engines' packets from a capture file (pcap and pcapng), as `capture` takes them from
 * the network. */
#ifndef BEAMRING_FORMATS_PCAP_PCAP_READER_H
#define BEAMRING_FORMATS_PCAP_PCAP_READER_H

#include "formats/common/sample_clock.h"
#include "formats/packets/window.h"
#include "formats/pcap/pcap_files.h"

/* The user's choices for packets only; see the parameters of `replay`. */
struct pcap_options {
    const char *packet, *start_utc;
    struct packet_node node; /* but for the samples of a frame */
};

struct pcap_reader {
    struct br_stream stream;
    struct packet_description *packet;
    struct packet_layout layout;
    struct window window;
    struct pcap_files source;
    struct sample_clock clock;
    int64_t start_ns; /* Unix time by `start_utc`, or INT64_MIN */
    const char **time_from;
    char time_text[320];
    bool begun, opened, ended, finishing;
    int64_t jumped_to;            /* sample; then the recording ends with what came before. 0: no jump */
    int64_t given;                /* the next frame that gets memory */
    unsigned ngiven;              /* frames that have memory and are not handed on */
    int64_t max_gap;              /* samples */
    int64_t last_sample, last_ns; /* of the last packet in an open frame, and its time by the file */

    /* Where each source has come to in each of its streams, which queues of a NIC may have handed on apart:
     * [nsources * nstreams], INT64_MIN: it has not sent; and the one that was behind when last looked for */
    int64_t *latest;
    size_t behind;

    /* Packets ahead of the open frames, until these come to them; [nkept] */
    struct kept_packet {
        uint8_t *bytes;
        size_t length, source;
        int64_t sample;
    } * kept;
    size_t nkept, kept_room, kept_bytes;
    bool moved; /* the frames have moved on since kept packets were offered */
    uint64_t disbelieved;
};

extern const struct format format_pcap;

#endif
