/* packetize.h - inside the stage: its parameters, and one set of callbacks per format. */
#ifndef BEAMRING_STAGES_PACKETIZE_PACKETIZE_H
#define BEAMRING_STAGES_PACKETIZE_PACKETIZE_H

#include "formats/links/datagrams.h"
#include "formats/links/peers.h"
#include "stages/packetize/document.h"
#include "stages/packetize/faults.h"

enum { DESTINATIONS = 256 };

struct destination_param {
    const char *address;
    int64_t first_beam, beams; /* beams 0: its share */
};

struct packetize;

struct wire_format {
    const char *name;
    int (*configure)(struct br_stage *stage, struct packetize *p);
    int (*start)(struct br_stage *stage, struct packetize *p);
    int (*frame)(struct br_stage *stage, struct packetize *p, const struct br_frame *in);
    int (*finish)(struct br_stage *stage, struct packetize *p); /* all input was seen */
    int (*stop)(struct br_stage *stage, struct packetize *p);
};
extern const struct wire_format frb_node_format, chime_l0_format, kotekan_format, packets_format, vdif_format;

struct packetize {
    /* parameters */
    const char *format;
    struct br_maps destinations; /* struct destination_param */
    double connect_s, stall_s, retry_s, idle_s, close_s;
    bool reconnect, acks;
    const char *coding;
    int64_t beamset, first_beam_id;
    const struct zones_param *zones;
    const struct site_param *site;
    struct br_reals noise_variance;
    double calibration_s;
    const char *document;
    bool overwrite;
    int64_t version, steps, packet_beams, packet_channels, send_buffer, multicast_hops, vdif_samples;
    const char *vdif_station;
    bool vtp;
    double rate, burst;
    const char *multicast_interface;
    const char *packet, *values, *real;
    struct br_ints sources, streams, positions;
    const char *order;
    double speed;
    const struct fault_params *faults;

    const struct wire_format *wire;
    size_t nbeams;
    struct destination_param *destination; /* [destinations.count], beams filled in */
    struct peers peers;
    void *state;         /* of the format */
    uint64_t told_until; /* base sample up to which the log says what data are made with; 0: none has come */
};

/* Gives every destination its beams. Status. */
int share_beams(struct br_stage *stage, struct packetize *p, size_t nbeams);

/* The stage's services for its senders. */
struct link_host host_of(struct br_stage *stage);

/* The parameters of packets by UDP; what was sent to a destination. */
struct datagrams wire_of(struct br_stage *stage, const struct packetize *p);
void wire_report(struct br_stage *stage, const struct datagram_destination *to);

/* Resolves the destinations and prepares the connections to them. Status. */
int start_peers(struct br_stage *stage, struct packetize *p, bool acks);

/* At the end of the input: waits until everything has arrived, and closes. Status. */
int finish_peers(struct br_stage *stage, struct packetize *p);

/* The stage fails with the message of the peers when the status is one of a failure. Returns it. */
int peers_status(struct br_stage *stage, const struct packetize *p, int status);

#endif
