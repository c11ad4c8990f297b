/* packetize - beams onto the network, in the formats that FRB searches, pulsar and VLBI backends
 * receive; frames to a kotekan node. */
#include "stages/packetize/packetize.h"
#include "formats/packets/description.h"
#include "runtime/stage_updates.h"
#include "stages/common/stage/export.h"
#include "stages/common/stage/format.h"
#include "stages/common/stage/made_with.h"
#include "stages/common/stage/packet.h"
#include "stages/packetize_description.h"

#include <string.h>

static const char *const format_choices[] = {"frb-node", "chime-l0", "kotekan", "packets", "vdif", NULL};
static const char *const codings[] = {"int4p4chime", "int4p4", NULL};
static const struct br_param destination_fields[] = {
    PARAM(STRING, struct destination_param, address, "host:port", .required = true),
    PARAM(INT, struct destination_param, first_beam, "first beam of the stream for this destination",
          .def = "0", .min = 0, .max = 1 << 24),
    PARAM(INT, struct destination_param, beams,
          "number of beams for it; if no destination states it, all get equal shares in order", .def = "0",
          .min = 0, .max = 1 << 24),
    {0},
};
static const struct br_param params[] = {
    PARAM(CHOICE, struct packetize, format, "protocol of the receivers", .required = true,
          .choices = format_choices),
    PARAM(MAPS, struct packetize, destinations, "who receives which beams", .required = true,
          .fields = destination_fields, .size = sizeof(struct destination_param), .min_count = 1,
          .max_count = DESTINATIONS),
    PARAM(REAL, struct packetize, connect_s,
          "how long to wait at the start until all destinations are connected", .def = "10", .min = 0,
          .max = 1e6, .unit = "s", .formats = "frb-node kotekan"),
    PARAM(BOOL, struct packetize, reconnect,
          "continue without a lost destination, and reconnect later; false: its loss ends the run",
          .def = "true", .formats = "frb-node kotekan"),
    PARAM(REAL, struct packetize, retry_s,
          "the longest pause between two attempts to connect; the first is 0.1 s, and each doubles",
          .def = "5", .min = 0.1, .max = 1e6, .unit = "s", .formats = "frb-node kotekan"),
    PARAM(REAL, struct packetize, stall_s,
          "a destination that accepts no data for this long is lost; until then the pipeline waits for it",
          .def = "10", .min = 0.1, .max = 1e6, .unit = "s", .formats = "frb-node kotekan"),
    PARAM(REAL, struct packetize, idle_s,
          "at the end, without acknowledgements: the pause between the last byte's arrival and closing",
          .def = "1", .min = 0, .max = 1e6, .unit = "s", .formats = "frb-node kotekan"),
    PARAM(REAL, struct packetize, close_s,
          "at the end: how long to wait for a destination that makes no progress", .def = "10", .min = 0,
          .max = 1e6, .unit = "s", .formats = "frb-node kotekan"),
    PARAM(CHOICE, struct packetize, coding,
          "coding of the electric field: int4p4chime for kotekan's GPU stages, or int4p4, that of beamring",
          .def = "int4p4chime", .choices = codings, .formats = "kotekan"),
    PARAM(BOOL, struct packetize, acks,
          "ask for an acknowledgement of every minichunk (FLAG_ACK), and wait for the last one",
          .def = "false", .formats = "frb-node"),
    PARAM(INT, struct packetize, beamset, "number of the set of beams", .def = "0", .min = 0, .max = 1 << 30,
          .formats = "frb-node"),
    PARAM(INT, struct packetize, first_beam_id, "id of the stream's beam 0; the others follow", .def = "0",
          .min = 0, .max = 1 << 30),
    PARAM(MAP, struct packetize, zones,
          "the frequency zones of the whole band, which may be wider than this stream; default: the stream's "
          "channels",
          .fields = zones_fields, .size = sizeof(struct zones_param), .formats = "frb-node"),
    PARAM(REALS, struct packetize, noise_variance,
          "variance of the noise that is sent, one number or one per zone", .def = "1", .min = 1e-12,
          .max = 1e9, .formats = "frb-node"),
    PARAM(REAL, struct packetize, calibration_s,
          "time constant of baseline and noise, at least 4 minichunks; 0: every minichunk by itself",
          .def = "3", .min = 0, .max = 1e6, .unit = "s", .formats = "frb-node"),
    PARAM(MAP, struct packetize, site, "orientation of the grid and the dishes", .fields = site_fields,
          .size = sizeof(struct site_param), .formats = "frb-node"),
    PARAM(PATH, struct packetize, document,
          "copy of the first destination's document in this file (.1, .2, ... for the others)",
          .formats = "frb-node"),
    PARAM(BOOL, struct packetize, overwrite, "replace another document in the file of `document`",
          .def = "false", .formats = "frb-node"),
    PARAM(INT, struct packetize, version, "version of the packets", .def = "2", .min = 1, .max = 2,
          .formats = "chime-l0"),
    PARAM(INT, struct packetize, steps, "time steps of a packet, a power of two", .def = "16", .min = 1,
          .max = 1024, .unit = "time steps", .formats = "chime-l0"),
    PARAM(INT, struct packetize, packet_beams, "beams in a packet", .def = "4", .min = 1, .max = 1024,
          .formats = "chime-l0"),
    PARAM(INT, struct packetize, packet_channels, "coarse channels in a packet", .def = "4", .min = 1,
          .max = 1024, .formats = "chime-l0"),
    PARAM(REAL, struct packetize, rate,
          "most bytes of UDP payload per second, to all destinations together; 0: no limit", .def = "0",
          .min = 0, .max = 1e12, .unit = "bytes/s", .formats = "chime-l0 vdif"),
    PARAM(REAL, struct packetize, burst, "most bytes that are sent at once after a pause", .def = "100000",
          .min = 0, .max = 1e12, .unit = "bytes", .formats = "chime-l0 vdif"),
    PARAM(INT, struct packetize, send_buffer, "size of the socket's buffer; 0: the system's choice",
          .def = "0", .min = 0, .max = 1 << 30, .unit = "bytes", .formats = "chime-l0 packets vdif"),
    PARAM(INT, struct packetize, multicast_hops,
          "routers that packets to a multicast group may pass, plus one", .def = "1", .min = 0, .max = 255,
          .formats = "chime-l0 packets vdif"),
    PARAM(STRING, struct packetize, multicast_interface,
          "address of this machine from which a multicast group is reached",
          .formats = "chime-l0 packets vdif"),
    PARAM(INT, struct packetize, vdif_samples,
          "samples in a VDIF frame, which is a packet; 0: the most with which packets have at most 8972 "
          "bytes; set it for a network with smaller frames",
          .def = "0", .min = 0, .max = 1 << 24, .unit = "samples", .formats = "vdif"),
    PARAM(STRING, struct packetize, vdif_station,
          "id of the station, two characters or a number below 65536; default: 0", .formats = "vdif"),
    PARAM(BOOL, struct packetize, vtp, "a sequence number of 8 bytes in front of every VDIF frame, as by VTP",
          .def = "false", .formats = "vdif"),
    PARAM(STRING, struct packetize, packet,
          "the packets of an F-engine: a description by name (chord-crs, ...) or its path",
          .formats = "packets"),
    PARAM(INTS, struct packetize, sources,
          "ids of the senders in the order of the inputs; default: the description's", .min = 0,
          .max = PACKET_MAX_IDS - 1, .formats = "packets"),
    PARAM(INTS, struct packetize, streams, "ids of the streams; default: the description's", .min = 0,
          .max = PACKET_MAX_IDS - 1, .formats = "packets"),
    PARAM(CHOICE, struct packetize, order,
          "what the number of an input means, as in unpack: pol x dishes + dish, or dish x pols + pol",
          .def = "pol_dish", .choices = packet_orders, .formats = "packets"),
    PARAM(INTS, struct packetize, positions,
          "for each input pol x dishes + dish, as in unpack; -1: it is not a dish and sends zero samples",
          .min = -1, .max = 1 << 24, .formats = "packets"),
    PARAM(CHOICE, struct packetize, values, "coding of a nibble; overrides the description",
          .choices = packet_values, .formats = "packets"),
    PARAM(CHOICE, struct packetize, real, "which nibble is the real part; overrides the description",
          .choices = packet_real, .formats = "packets"),
    PARAM(REAL, struct packetize, speed, "1: as fast as the telescope; 2: twice; 0: as fast as it goes",
          .def = "1", .min = 0, .max = 1e6, .formats = "packets"),
    PARAM(MAP, struct packetize, faults, "faults of the network, for tests", .fields = fault_params,
          .size = sizeof(struct fault_params), .formats = "packets"),
    {0},
};
static const struct br_port inputs[] = {
    {"in",
     "frb-node: int4 [beam][freq][time] with scales (quantize: bits 4, block 256); chime-l0: "
     "J[freq][time][beam], f16 or f32 "
     "(frb_beams); kotekan: E[time][freq][pol][dish], int4x2, or any other stream with one time "
     "step; packets: E[time][freq][pol][dish], int4x2; vdif: J[beam][freq][pol][time], int4x2 or int8x2 "
     "(baseband_beamform)"},
    {0}};

int share_beams(struct br_stage *stage, struct packetize *p, size_t nbeams)
{
    size_t n = p->destinations.count;
    const struct destination_param *asked = p->destinations.value;
    struct destination_param *d = br_stage_alloc(stage, n * sizeof *d);
    bool any = false, all = true;
    p->nbeams = nbeams;
    for (size_t i = 0; i < n; i++) {
        d[i] = asked[i];
        any = any || asked[i].beams > 0;
        all = all && asked[i].beams > 0;
        if (!net_is_address(asked[i].address))
            return br_stage_fail_at(stage, "destinations",
                                    "'%.100s' is not an address; expected host:port, such as 10.0.0.7:5000",
                                    asked[i].address);
        if (asked[i].first_beam > 0 && asked[i].beams == 0)
            return br_stage_fail_at(stage, "destinations", "%s has first_beam without beams",
                                    asked[i].address);
    }
    if (any && !all)
        return br_stage_fail_at(stage, "destinations",
                                "some say how many beams they get; expected all of them to, or none");
    if (!any && n > nbeams)
        return br_stage_fail_at(stage, "destinations",
                                "%zu destinations for %zu beams; expected at most one per beam", n, nbeams);
    size_t next = 0;
    for (size_t i = 0; i < n && !any; i++) {
        d[i].first_beam = (int64_t)next;
        d[i].beams = (int64_t)(nbeams / n + (i < nbeams % n));
        next += (size_t)d[i].beams;
    }
    for (size_t i = 0; i < n; i++)
        if ((uint64_t)d[i].first_beam + (uint64_t)d[i].beams > nbeams)
            return br_stage_fail_at(
                stage, "destinations", "%s: beams %lld to %lld; the stream has beams 0 to %zu", d[i].address,
                (long long)d[i].first_beam, (long long)(d[i].first_beam + d[i].beams - 1), nbeams - 1);
    p->destination = d;
    return BR_OK;
}

/* --- the senders' host ----------------------------------------------------------------------------- */

static void note(void *owner, const char *text)
{
    br_stage_note(owner, "%s", text);
}

static void warn(void *owner, const char *text)
{
    br_stage_warn(owner, "%s", text);
}

static void trouble(void *owner, const char *text)
{
    br_stage_trouble(owner, text);
}

static void waits_for(void *owner, const char *what)
{
    br_stage_waits_for(owner, what);
}

static bool stopping(void *owner)
{
    return br_stage_stopping(owner);
}

static bool sleep_until(void *owner, uint64_t ns)
{
    return br_stage_sleep_until(owner, ns);
}

struct link_host host_of(struct br_stage *stage)
{
    return (struct link_host){.owner = stage,
                              .note = note,
                              .warn = warn,
                              .trouble = trouble,
                              .waits_for = waits_for,
                              .stopping = stopping,
                              .sleep_until = sleep_until};
}

struct datagrams wire_of(struct br_stage *stage, const struct packetize *p)
{
    return (struct datagrams){.host = host_of(stage),
                              .bucket = {.rate = p->rate, .burst = p->burst},
                              .buffer_bytes = (int)p->send_buffer,
                              .multicast_hops = (int)p->multicast_hops,
                              .multicast_interface = p->multicast_interface};
}

void wire_report(struct br_stage *stage, const struct datagram_destination *to)
{
    br_stage_note(stage, "%s: %llu packets sent, %llu of them without a listener", to->to.text,
                  (unsigned long long)to->sent, (unsigned long long)to->refused);
}

int start_peers(struct br_stage *stage, struct packetize *p, bool acks)
{
    const char *address[DESTINATIONS];
    for (size_t i = 0; i < p->destinations.count; i++) address[i] = p->destination[i].address;
    p->peers = (struct peers){.host = host_of(stage),
                              .acks = acks,
                              .reconnect = p->reconnect,
                              .connect_s = p->connect_s,
                              .stall_s = p->stall_s,
                              .retry_s = p->retry_s,
                              .idle_s = p->idle_s,
                              .close_s = p->close_s};
    return peers_status(stage, p, peers_create(&p->peers, p->destinations.count, address));
}

int peers_status(struct br_stage *stage, const struct packetize *p, int status)
{
    return status < 0 ? br_stage_fail(stage, status, "%s", p->peers.error.text) : status;
}

int finish_peers(struct br_stage *stage, struct packetize *p)
{
    peers_close(&p->peers);
    return peers_status(stage, p, peers_verdict(&p->peers));
}

/* --- the stage ------------------------------------------------------------------------------------- */

static int configure(struct br_stage *stage, void *self)
{
    static const struct wire_format *const formats[] = {&frb_node_format, &chime_l0_format, &kotekan_format,
                                                        &packets_format, &vdif_format};
    struct packetize *p = self;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i]->name, p->format) == 0) p->wire = formats[i];
    int status = br_check_format(stage, params, p->format);
    return status == BR_OK ? p->wire->configure(stage, p) : status;
}

static int start(struct br_stage *stage, void *self)
{
    struct packetize *p = self;
    return p->wire->start(stage, p);
}

/* The wires have no place for it: what data are made with stands in the log, where it changes. */
static void tell_updates(struct br_stage *stage, struct packetize *p, const struct br_frame *in)
{
    char text[MADE_WITH_ROOM];
    uint64_t end = in->first + in->samples;
    size_t length = p->told_until == 0 ? made_with(stage, in->first, end, text, sizeof text)
                                       : br_stage_updates_begun(stage, p->told_until, end, text, sizeof text);
    p->told_until = end;
    if (length > 0)
        br_stage_note(stage, "base samples from %llu on are made with %s%s", (unsigned long long)in->first,
                      text, length >= sizeof text ? "..." : "");
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct packetize *p = self;
    if (io->in[0] == NULL) {
        int status = p->wire->finish(stage, p);
        return status < 0 ? status : BR_FINISHED;
    }
    const struct br_frame *in = io->in[0];
    tell_updates(stage, p, in);
    int status = p->wire->frame(stage, p, in);
    return status < 0 ? status : BR_CONSUMED;
}

static int stop(struct br_stage *stage, void *self)
{
    struct packetize *p = self;
    int status = p->wire->stop(stage, p);
    peers_free(&p->peers);
    return status;
}

STAGE_EXPORT(packetize, struct packetize,
             "beams onto the network, for FRB searches, pulsar and VLBI backends; frames to a kotekan node",
             .inputs = inputs);
