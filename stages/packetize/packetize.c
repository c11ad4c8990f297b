/* packetize - beams onto the network, in the formats that FRB searches receive; frames to a kotekan node. */
#include "stages/packetize/packetize.h"
#include "stages/common/stage/format.h"
#include "stages/common/stage/shape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const format_choices[] = {"frb-node", "chime-l0", "kotekan", NULL};
static const struct br_param destination_fields[] = {
    {.name = "address",
     .type = BR_P_STRING,
     .offset = offsetof(struct destination_param, address),
     .required = true,
     .help = "host:port"},
    {.name = "first_beam",
     .type = BR_P_INT,
     .offset = offsetof(struct destination_param, first_beam),
     .def = "0",
     .min = 0,
     .max = 1 << 24,
     .help = "first beam of the stream that goes there"},
    {.name = "beams",
     .type = BR_P_INT,
     .offset = offsetof(struct destination_param, beams),
     .def = "0",
     .min = 0,
     .max = 1 << 24,
     .help = "how many go there; where no destination says it, all get equal shares in order"},
    {0},
};
#define AT(field) .offset = offsetof(struct packetize, field)
static const struct br_param params[] = {
    {.name = "format",
     .type = BR_P_CHOICE,
     AT(format),
     .required = true,
     .choices = format_choices,
     .help = "what the receivers speak"},
    {.name = "destinations",
     .type = BR_P_MAPS,
     AT(destinations),
     .required = true,
     .fields = destination_fields,
     .size = sizeof(struct destination_param),
     .min_count = 1,
     .max_count = 256,
     .help = "who receives which beams"},
    {.name = "connect_s",
     .type = BR_P_REAL,
     AT(connect_s),
     .def = "10",
     .min = 0,
     .max = 1e6,
     .unit = "s",
     .help = "TCP: how long to wait at the start until all destinations are connected"},
    {.name = "reconnect",
     .type = BR_P_BOOL,
     AT(reconnect),
     .def = "true",
     .help = "TCP: go on without a destination that is lost, and try again; else its loss ends the run"},
    {.name = "retry_s",
     .type = BR_P_REAL,
     AT(retry_s),
     .def = "5",
     .min = 0.1,
     .max = 1e6,
     .unit = "s",
     .help = "TCP: the longest pause between two attempts to connect; the first is 0.1 s, and each doubles"},
    {.name = "stall_s",
     .type = BR_P_REAL,
     AT(stall_s),
     .def = "10",
     .min = 0.1,
     .max = 1e6,
     .unit = "s",
     .help =
         "TCP: a destination that takes nothing for so long is lost; until then the pipeline waits for it"},
    {.name = "idle_s",
     .type = BR_P_REAL,
     AT(idle_s),
     .def = "1",
     .min = 0,
     .max = 1e6,
     .unit = "s",
     .help =
         "TCP: at the end, without acknowledgements: the pause between the last byte's arrival and closing"},
    {.name = "close_s",
     .type = BR_P_REAL,
     AT(close_s),
     .def = "10",
     .min = 0,
     .max = 1e6,
     .unit = "s",
     .help = "TCP: at the end: how long to wait for a destination that makes no progress"},
    {.name = "acks",
     .type = BR_P_BOOL,
     AT(acks),
     .def = "false",
     .help = "frb-node: ask for an acknowledgement of every minichunk (FLAG_ACK), and wait for the last one"},
    {.name = "beamset",
     .type = BR_P_INT,
     AT(beamset),
     .def = "0",
     .min = 0,
     .max = 1 << 30,
     .help = "frb-node: number of the set of beams"},
    {.name = "first_beam_id",
     .type = BR_P_INT,
     AT(first_beam_id),
     .def = "0",
     .min = 0,
     .max = 1 << 30,
     .help = "id of the stream's beam 0; the others follow"},
    {.name = "zones",
     .type = BR_P_MAP,
     AT(zones),
     .fields = zones_fields,
     .size = sizeof(struct zones_param),
     .help = "frb-node: the frequency zones of the whole band, of which this stream may have a part; "
             "default: the stream's channels"},
    {.name = "noise_variance",
     .type = BR_P_REALS,
     AT(noise_variance),
     .def = "1",
     .min = 1e-12,
     .max = 1e9,
     .help = "frb-node: variance of the noise that is sent, one number or one per zone"},
    {.name = "levels_rms",
     .type = BR_P_REAL,
     AT(levels_rms),
     .def = "2.5",
     .min = 1e-3,
     .max = 1000,
     .help = "frb-node: levels_rms of the quantizer in front"},
    {.name = "calibration_s",
     .type = BR_P_REAL,
     AT(calibration_s),
     .def = "30",
     .min = 0,
     .max = 1e6,
     .unit = "s",
     .help = "frb-node: time over which baseline and noise are followed; 0: every minichunk by itself"},
    {.name = "site",
     .type = BR_P_MAP,
     AT(site),
     .fields = site_fields,
     .size = sizeof(struct site_param),
     .help = "frb-node: how grid and dishes stand"},
    {.name = "document",
     .type = BR_P_PATH,
     AT(document),
     .help = "frb-node: write the document that the destinations get into this file too (.1, .2, ... for the "
             "others)"},
    {.name = "version",
     .type = BR_P_INT,
     AT(version),
     .def = "2",
     .min = 1,
     .max = 2,
     .help = "chime-l0: version of the packets"},
    {.name = "steps",
     .type = BR_P_INT,
     AT(steps),
     .def = "16",
     .min = 1,
     .max = 1024,
     .unit = "time steps",
     .help = "chime-l0: time steps of a packet, a power of two"},
    {.name = "packet_beams",
     .type = BR_P_INT,
     AT(packet_beams),
     .def = "4",
     .min = 1,
     .max = 1024,
     .help = "chime-l0: beams in a packet"},
    {.name = "packet_channels",
     .type = BR_P_INT,
     AT(packet_channels),
     .def = "4",
     .min = 1,
     .max = 1024,
     .help = "chime-l0: coarse channels in a packet"},
    {.name = "rate",
     .type = BR_P_REAL,
     AT(rate),
     .def = "0",
     .min = 0,
     .max = 1e12,
     .unit = "bytes/s",
     .help = "chime-l0: at most so many bytes of UDP payload, to all destinations together; 0: as fast as "
             "they come"},
    {.name = "burst",
     .type = BR_P_REAL,
     AT(burst),
     .def = "100000",
     .min = 0,
     .max = 1e12,
     .unit = "bytes",
     .help = "chime-l0: what may be sent at once after a pause"},
    {.name = "send_buffer",
     .type = BR_P_INT,
     AT(send_buffer),
     .def = "0",
     .min = 0,
     .max = 1 << 30,
     .unit = "bytes",
     .help = "chime-l0: size of the socket's buffer; 0: the system's choice"},
    {.name = "multicast_hops",
     .type = BR_P_INT,
     AT(multicast_hops),
     .def = "1",
     .min = 0,
     .max = 255,
     .help = "chime-l0: routers that packets to a multicast group may pass, plus one"},
    {.name = "multicast_interface",
     .type = BR_P_STRING,
     AT(multicast_interface),
     .help = "chime-l0: address of this machine from which a multicast group is reached"},
    {0},
};
static const struct br_port inputs[] = {
    {"in", "frb-node: int4 [beam][freq][time] with scales (quantize: bits 4, block 256); chime-l0: "
           "J[freq][time][beam], f16 or f32 "
           "(frb_beams); kotekan: E[time][freq][pol][dish], int4x2, or any other stream with one time step"},
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
                                    "'%.100s' is no address; expected host:port, such as 10.0.0.7:5000",
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

int start_peers(struct br_stage *stage, struct packetize *p, bool acks)
{
    size_t n = p->destinations.count;
    p->peers = (struct peers){.stage = stage,
                              .count = n,
                              .acks = acks,
                              .reconnect = p->reconnect,
                              .connect_s = p->connect_s,
                              .stall_s = p->stall_s,
                              .retry_s = p->retry_s,
                              .idle_s = p->idle_s,
                              .close_s = p->close_s};
    p->peers.peer = calloc(n, sizeof *p->peers.peer);
    if (p->peers.peer == NULL) return br_no_memory(stage, n * sizeof *p->peers.peer);
    for (size_t i = 0; i < n; i++) {
        struct br_error error = {0};
        p->peers.peer[i].fd = -1;
        if (net_resolve(&p->peers.peer[i].to, p->destination[i].address, SOCK_STREAM, &error) != BR_OK)
            return br_stage_fail(stage, error.status, "%s", error.text);
    }
    return BR_OK;
}

void report_peers(struct br_stage *stage, const struct packetize *p, const char *what)
{
    for (size_t i = 0; i < p->peers.count && p->peers.peer != NULL && p->opened; i++) {
        const struct peer *peer = &p->peers.peer[i];
        char answers[96] = "";
        if (p->peers.acks)
            snprintf(answers, sizeof answers,
                     ", in the last connection %llu assembled and %llu dropped there",
                     (unsigned long long)peer->acked, (unsigned long long)peer->refused);
        br_stage_note(stage, "%s: %llu %s sent, %llu missed, %llu connection%s%s", peer->to.text,
                      (unsigned long long)peer->sent, what, (unsigned long long)peer->missed,
                      (unsigned long long)peer->connections, peer->connections == 1 ? "" : "s", answers);
    }
}

static int configure(struct br_stage *stage, void *self)
{
    static const struct wire_format *const formats[] = {&frb_node_format, &chime_l0_format, &kotekan_format};
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

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct packetize *p = self;
    if (io->in[0] == NULL) {
        int status = p->wire->finish(stage, p);
        return status < 0 ? status : BR_FINISHED;
    }
    int status = p->wire->frame(stage, p, io->in[0]);
    return status < 0 ? status : BR_CONSUMED;
}

static int stop(struct br_stage *stage, void *self)
{
    struct packetize *p = self;
    int status = p->wire->stop(stage, p);
    if (p->peers.peer != NULL) peers_abandon(&p->peers);
    free(p->peers.peer);
    return status;
}

BR_STAGE_EXPORT = {
    .abi_version = BR_ABI_VERSION,
    .type_size = sizeof(struct br_stage_type),
    .name = "packetize",
    .summary = "beams onto the network, for FRB searches; frames to a kotekan node",
    .description =
        "`frb-node` (TCP): the protocol, version 2, between X-engine nodes and CHORD's FRB-search nodes. The "
        "handshake's document is "
        "built from the telescope, the stream and the beams. Minichunks of 256 samples carry 4 bits and "
        "masks; baseline and noise of "
        "every beam and channel are followed over `calibration_s`, so that what is sent has mean 0 and "
        "`noise_variance`. A destination "
        "that is lost misses minichunks (a gap in `seq`) until it is there again. At the end nothing is cut "
        "off: the stage waits for "
        "the acknowledgements, or until all bytes have arrived and `idle_s` have passed. Two senders on this "
        "machine that would send "
        "the same channels to one destination are refused.\n\n"
        "`chime-l0` (UDP): the packets of CHIME's L0 to its L1, version 2 or 1, quantized to 1..254 per "
        "beam, coarse channel and "
        "`steps`; 0 means missing. `rate` and `burst` pace them.\n\n"
        "`kotekan` (TCP): frames as its bufferSend sends them, with the metadata that CHORD's stages use.\n\n"
        "Samples that did not reach every destination that should have them are counted as lost.\n",
    .params = params,
    .inputs = inputs,
    .size = sizeof(struct packetize),
    .configure = configure,
    .start = start,
    .process = process,
    .stop = stop,
};
