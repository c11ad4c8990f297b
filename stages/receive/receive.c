/* receive - beams and electric fields from the network. */
#include "stages/receive/receive.h"
#include "formats/chime_l0/receive.h"
#include "formats/frb_node/receive.h"
#include "formats/kotekan/receive.h"
#include "stages/common/stage/export.h"
#include "stages/common/stage/finite.h"
#include "stages/common/stage/format.h"
#include "stages/receive_description.h"

#include <inttypes.h>
#include <string.h>

enum { LOOK_MS = 50 };

static const char *const format_choices[] = {"frb-node", "chime-l0", "kotekan", NULL};
static const char *const array_choices[] = {"field", "voltages", "intensities", "grid", NULL};
static const struct br_param range_fields[] = {
    PARAM(INT, struct range_param, first, "the first id", .def = "0", .min = 0, .max = 65535),
    PARAM(INT, struct range_param, count, "how many", .required = true, .min = 1, .max = 65536),
    {0},
};
static const struct br_param params[] = {
    PARAM(CHOICE, struct receive, format, "protocol of the senders", .required = true,
          .choices = format_choices),
    PARAM(STRING, struct receive, address,
          "where to listen: host:port, or *:port for all addresses of this machine; chime-l0: may be a "
          "multicast group",
          .required = true),
    PARAM(REAL, struct receive, hold_s,
          "when no data have arrived for this long, open frames are published, complete or not", .def = "2",
          .min = 0.01, .max = 1e6, .unit = "s"),
    PARAM(REAL, struct receive, idle_s, "end when no data have arrived for this long; 0: never", .def = "0",
          .min = 0, .max = 1e6, .unit = "s"),
    PARAM(BOOL, struct receive, until_closed, "end when the last sender has closed its connection",
          .def = "false", .formats = "frb-node kotekan"),
    PARAM(INT, struct receive, window,
          "how far data may be ahead of frames that are not complete before these are published", .def = "16",
          .min = 2, .max = 4096, .unit = "frames"),
    PARAM(REAL, struct receive, handshake_s,
          "closes a sender whose handshake (frb-node: the document, kotekan: the first frame's metadata) "
          "takes longer than this, or that is silent for this long within a message; a whole message may "
          "take 60 times as long",
          .def = "10", .min = 0.1, .max = 1e6, .unit = "s", .formats = "frb-node kotekan"),
    PARAM(PATH, struct receive, document,
          "YAML file with the document that senders must agree with, and all channels to "
          "receive; packetize writes it",
          .formats = "frb-node"),
    PARAM(MAP, struct receive, beams, "beams to receive", .fields = range_fields,
          .size = sizeof(struct range_param), .formats = "chime-l0"),
    PARAM(MAP, struct receive, channels, "coarse channels to receive, 0 at 800 MHz", .fields = range_fields,
          .size = sizeof(struct range_param), .formats = "chime-l0"),
    PARAM(INT, struct receive, nupfreq, "fine channels per coarse one", .def = "16", .min = 1, .max = 64,
          .formats = "chime-l0"),
    PARAM(INT, struct receive, steps, "time steps of a packet", .def = "16", .min = 1, .max = 1024,
          .formats = "chime-l0"),
    PARAM(INT, struct receive, counts_per_sample, "counts of 2.56 us in a time step", .def = "384", .min = 1,
          .max = 65535, .formats = "chime-l0"),
    PARAM(INT, struct receive, receive_buffer, "size of the socket's buffer; the system may allow less",
          .def = "8388608", .min = 0, .max = 1 << 30, .unit = "bytes", .formats = "chime-l0"),
    PARAM(STRING, struct receive, multicast_interface,
          "address of this machine on whose network the multicast group is joined", .formats = "chime-l0"),
    PARAM(INT, struct receive, frame_samples,
          "base samples of an output frame, whatever the sender's frames are", .def = "2048", .min = 1,
          .max = 1 << 30, .unit = "base samples", .formats = "kotekan"),
    PARAM(STRING, struct receive, coding, "int4x2 or chime; overrides the metadata", .formats = "kotekan"),
    PARAM(CHOICE, struct receive, array,
          "what the frames hold: the field E[time][freq][pol][dish], the voltages "
          "[beam][freq][pol][time] or intensities "
          "[freq][time][beam] of beams, or the intensities on the grid [freq][time][gridp][gridq]",
          .def = "field", .choices = array_choices, .formats = "kotekan"),
    PARAM(INT, struct receive, nbeams, "number of beams, where the frames hold beams", .def = "0", .min = 0,
          .max = 1 << 20, .formats = "kotekan"),
    PARAM(INT, struct receive, factor,
          "fine channels per channel of the F-engine; `freq_mhz` lists the fine ones", .def = "1", .min = 1,
          .max = 128, .formats = "kotekan"),
    PARAM(INT, struct receive, downsample, "samples of the F-engine in a time step; 0: as many as `factor`",
          .def = "0", .min = 0, .max = 1 << 20, .unit = "base samples", .formats = "kotekan"),
    PARAM(INT, struct receive, max_frame_bytes, "the largest frame that is accepted", .def = "1073741824",
          .min = 1, .max = 1e12, .unit = "bytes", .formats = "kotekan"),
    {0},
};
static const struct br_port outputs[] = {{"out", "frb-node: int4 [beam][freq][time 256] with scales; "
                                                 "chime-l0: uint8 [beam][freq][time] with scales; kotekan: "
                                                 "E[time][freq][pol][dish], int4x2, or beams"},
                                         {0}};

static const struct receive_wire {
    const struct receiver_format *format;
    size_t size; /* of its receiver */
    int (*expect)(struct br_stage *stage, struct receive *r);
    int (*prepare)(struct br_stage *stage, struct receive *r); /* NULL: nothing to do */
} wires[] = {
    {&frb_node_receiver, sizeof(struct frb_receiver), expect_frb_node, prepare_frb_node},
    {&chime_l0_receiver, sizeof(struct l0_receiver), expect_chime_l0, prepare_chime_l0},
    {&kotekan_receiver, sizeof(struct kotekan_receiver), expect_kotekan, NULL},
};

static int configure(struct br_stage *stage, void *self)
{
    struct receive *r = self;
    for (size_t i = 0; i < sizeof wires / sizeof *wires; i++)
        if (strcmp(wires[i].format->name, r->format) == 0) r->wire = &wires[i];
    int status = br_check_format(stage, params, r->format);
    if (status != BR_OK) return status;
    if (!net_is_address(r->address))
        return br_stage_fail_at(
            stage, "address",
            "'%.100s' is not an address; expected host:port, such as *:5000 or 127.0.0.1:5000", r->address);
    r->state = br_stage_alloc(stage, r->wire->size);
    *r->state = (struct receiver){
        .format = r->wire->format, .window = (unsigned)r->window, .handshake_s = r->handshake_s};
    status = r->wire->expect(stage, r);
    if (status == BR_OK) finite_configure(stage);
    return status;
}

/* Memory of assembly: the window's frames, and the arrived pieces of the next one. How many of
 * kotekan's senders there will be is not known: one, with the frame that it sends and one to turn it in. */
static void memory(struct br_stage *stage, void *self, struct br_memory *m)
{
    const struct receive *r = self;
    const struct br_stream *out = br_stage_output(stage, 0);
    size_t frame = br_array_bytes(&out->array) + br_array_bytes(&out->side);
    m->host =
        (r->wire->format == &kotekan_receiver ? 2 : (size_t)r->window + 1) * frame + r->wire->format->bytes;
}

static int start(struct br_stage *stage, void *self)
{
    struct receive *r = self;
    const struct receiver_format *format = r->wire->format;
    struct net_address at;
    struct br_error error = {0};
    if (net_resolve(&at, r->address, format->udp ? SOCK_DGRAM : SOCK_STREAM, &error) != BR_OK)
        return br_stage_fail(stage, error.status, "%s", error.text);
    int status = r->wire->prepare != NULL ? r->wire->prepare(stage, r) : BR_OK;
    if (status != BR_OK) return status;
    if (format->listen(r->state, &at, &error) != BR_OK)
        return br_stage_fail(stage, error.status, "%s", error.text);
    br_stage_note(stage, "listening on port %u", r->state->port);
    return BR_OK;
}

/* Counts missing, late and duplicate samples of the stage, each kind by itself. */
static void count_losses(struct br_stage *stage, struct receive *r)
{
    static const struct {
        enum br_loss reason;
        size_t offset;
    } kinds[] = {{BR_LOST_LATE, offsetof(struct wire_counts, late)},
                 {BR_LOST_DUPLICATE, offsetof(struct wire_counts, duplicate)},
                 {BR_LOST_MALFORMED, offsetof(struct wire_counts, malformed)}};
    uint64_t samples = br_stage_output(stage, 0)->frame_samples;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        uint64_t now = *(const uint64_t *)(const void *)((const char *)&r->state->counts + kinds[i].offset);
        uint64_t *told = (uint64_t *)(void *)((char *)&r->told + kinds[i].offset);
        if (now > *told) br_stage_count_lost(stage, kinds[i].reason, (now - *told) * samples);
        *told = now;
    }
}

/* Takes what comes, and says what was wrong with a peer. */
static int step(struct br_stage *stage, struct receive *r, int ms)
{
    struct br_error error = {0};
    int status = receiver_step(r->state, ms, &error);
    if (r->state->complaint[0] != '\0') br_stage_warn(stage, "%s", r->state->complaint);
    r->state->complaint[0] = '\0';
    return status == BR_OK ? BR_OK : br_stage_fail(stage, status, "%s", error.text);
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct receive *r = self;
    const struct receiver_format *format = r->wire->format;
    const struct wire_counts *counts = &r->state->counts;
    r->started = true;
    bool stopping = br_stage_stopping(stage);
    int status = stopping ? BR_OK : step(stage, r, 0);
    if (status < 0) return status;
    double quiet = (double)r->state->quiet_ns * 1e-9;
    /* also a sender that was refused between two looks has been there */
    bool closed = r->until_closed && counts->connections > 0 && format->connected(r->state) == 0,
         idle = r->idle_s > 0 && quiet > r->idle_s;
    bool end = stopping || closed || idle;
    bool got = format->fill(r->state, br_stage_output(stage, 0), end || quiet > r->hold_s, io->out[0]);
    count_losses(stage, r);
    if (got) finite_take(stage, &r->finite, io->out[0]);
    if (got) return BR_PRODUCED;
    return end ? BR_FINISHED : step(stage, r, LOOK_MS);
}

static int stop(struct br_stage *stage, void *self)
{
    struct receive *r = self;
    const struct wire_counts *c = &r->state->counts;
    if (r->started)
        br_stage_note(stage,
                      "%" PRIu64 " received, %" PRIu64 " late, %" PRIu64 " duplicate, %" PRIu64
                      " missing, %" PRIu64 " malformed; "
                      "%" PRIu64 " connections, %" PRIu64 " refused, %" PRIu64 " broken, %" PRIu64 " silent",
                      c->received, c->late, c->duplicate, c->missing, c->malformed, c->connections,
                      c->refused, c->broken, c->silent);
    r->wire->format->free(r->state);
    return BR_OK;
}

STAGE_EXPORT(receive, struct receive, "beams and electric fields from the network", .outputs = outputs,
             .memory = memory);
