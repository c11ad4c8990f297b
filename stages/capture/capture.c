/* capture - an F-engine's packets from the network, as they are described.
 *
 * Receiving threads (receiver.h) write packets into the open frames (window.h). The stage's own thread
 * gives frames of the output queue to the window, several ahead, closes the oldest one when most
 * sources are past it, and hands it on; it alone decides where the stream begins, what a jump of the
 * counters means, and what to say. */
#include "stages/capture/capture.h"
#include "buffers/clock.h"
#include "formats/common/hints.h"
#include "formats/common/text.h"
#include "runtime/stage_updates.h"
#include "stages/capture_description.h"
#include "stages/common/stage/export.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MOST_RESET_S 86400.0
enum { TICK_MS = 20, LOOK_MS = 100, LOOK_SOON_MS = 20 };
#define CONFIRM_S 2.0 /* so long sources that the clock confirms are waited for */

static const char *const backends[] = {"auto", "xdp", "packet", "socket", NULL};
static const char *const resets[] = {"restart", "stop", NULL};
static const struct br_param params[] = {
    PARAM(STRING, struct capture, packet,
          "the packets: a description by name (chord-crs, chime-ice, casm-snap, lwa-snap2, ata-snap, "
          "dsa110-snap, "
          "spead) or its path",
          .required = true),
    PARAM(STRINGS, struct capture, addresses,
          "where to listen: host:port, *:port, or multicast groups; default: "
          "the description's port on each interface"),
    PARAM(STRINGS, struct capture, interfaces,
          "names of network interfaces: one for all addresses, one for "
          "each, or, without addresses, those to listen on"),
    PARAM(CHOICE, struct capture, backend,
          "xdp: past the kernel's network stack (AF_XDP; Linux 6.6, CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF); "
          "packet: a ring shared with the kernel (CAP_NET_RAW); socket: UDP sockets (no rights); auto: "
          "the first that works, xdp only where the driver copies nothing",
          .def = "auto", .choices = backends),
    PARAM(INT, struct capture, threads, "receiving threads for each address", .def = "1", .min = 1,
          .max = 32),
    PARAM(INT, struct capture, receive_buffer, "size of the kernel's buffer, for each thread",
          .def = "67108864", .min = 65536, .max = 1 << 30, .unit = "bytes"),
    PARAM(INTS, struct capture, sources,
          "ids of the senders in the order of the inputs; default: the description's", .min = 0,
          .max = PACKET_MAX_IDS - 1, .min_count = 1, .max_count = PACKET_MAX_IDS),
    PARAM(INTS, struct capture, streams,
          "ids of the streams that this node receives; default: the description's", .min = 0,
          .max = PACKET_MAX_IDS - 1, .min_count = 1, .max_count = PACKET_MAX_IDS),
    PARAM(INTS, struct capture, absent,
          "ids of senders that are known to be absent: no packets are expected from them", .min = 0,
          .max = PACKET_MAX_IDS - 1),
    PARAM(CHOICE, struct capture, values, "coding of a nibble; overrides the description",
          .choices = packet_values),
    PARAM(CHOICE, struct capture, real, "which nibble is the real part; overrides the description",
          .choices = packet_real),
    PARAM(CHOICE, struct capture, sideband, "which sideband the channels hold; overrides the description",
          .choices = br_sideband_names),
    PARAM(INT, struct capture, frame_samples,
          "base samples of a frame; frames begin at multiples of it, so that all nodes cut alike",
          .def = "8192", .min = 1, .max = 1 << 30, .unit = "base samples"),
    PARAM(INT, struct capture, open, "how many frames are filled at the same time", .def = "2", .min = 2,
          .max = WINDOW_MAX_OPEN),
    PARAM(INT, struct capture, hold_samples,
          "a frame is published when most sources are this far beyond its end; 0: a quarter of a frame",
          .def = "0", .min = 0, .max = 1 << 30, .unit = "base samples"),
    PARAM(REAL, struct capture, wait_s,
          "begin at the next frame when all sources have been seen, or this long after the first packet",
          .def = "2", .min = 0, .max = 1e6, .unit = "s"),
    PARAM(REAL, struct capture, start_s,
          "begin this long after the first packet, whichever sources send: switches reset their ports when "
          "traffic begins",
          .min = 0, .max = 1e6, .unit = "s"),
    PARAM(STRING, struct capture, start_utc,
          "begin at this time by the F-engine's clock: 2026-11-23-12:00:00"),
    PARAM(INT, struct capture, start_sample, "begin with the frame that holds this base sample", .def = "-1",
          .min = -1, .max = 9e18, .unit = "base samples"),
    PARAM(CHOICE, struct capture, on_reset,
          "when most counters jump: continue at the true time, or end the run", .def = "restart",
          .choices = resets),
    PARAM(INT, struct capture, reset_samples,
          "packets farther from the open frames show a jump; 0: 16 frames or 1 s, whichever is more",
          .def = "0", .min = 0, .max = 9e18, .unit = "base samples"),
    PARAM(STRING, struct capture, epoch_url,
          "URL at which the F-engine's controller states the time of sample 0: "
          "http://controller:54321/get-frame0-time; asked again every 5 s"),
    PARAM(REAL, struct capture, idle_s,
          "end when no packet has arrived for this long after the first one; 0: never", .def = "0", .min = 0,
          .max = 1e6, .unit = "s"),
    {0},
};
static const char *const updates[] = {"absent", NULL};
static const struct br_port outputs[] = {
    {"out", "packets as received, for `unpack`: uint8 [time][freq][input] in the order of the packets"}, {0}};

/* --- configure --------------------------------------------------------------------------------- */

static int set_epoch(struct br_stage *stage, struct capture *c, struct br_stream *out)
{
    const struct br_stream_hints *hints = br_stage_hints(stage);
    struct br_error error = {0};
    int64_t epoch = hints->epoch_ns;
    if (c->epoch_url != NULL && epoch_ask(c->epoch_url, &epoch, &error) != BR_OK)
        return br_stage_fail_run_at(stage, "epoch_url", "%s", error.text); /* it may be back soon */
    if (c->epoch_url == NULL && !hints->have_epoch)
        return br_stage_fail(
            stage, BR_E_INVALID,
            "the time of sample 0 is not known; give `stream: {epoch_ns: ...}` or `epoch_url`");
    out->epoch_ns = c->epoch_ns = c->shift_epoch_ns = epoch;
    return BR_OK;
}

static int set_start(struct br_stage *stage, struct capture *c, const struct br_stream *out)
{
    int64_t at;
    if (c->start_utc == NULL) return BR_OK;
    if (text_utc(c->start_utc, &at) != 0)
        return br_stage_fail_at(stage, "start_utc", "'%.60s' is not a time; expected YYYY-MM-DD-hh:mm:ss",
                                c->start_utc);
    __int128_t num = ((__int128_t)at - out->epoch_ns) * out->sample_ns.den;
    if (num < 0) return br_stage_fail_at(stage, "start_utc", "is before the time of sample 0");
    c->start_sample = (int64_t)(num / out->sample_ns.num);
    return BR_OK;
}

/* All but `absent` is as in the stage that runs: nothing is read, asked or counted a second time. */
static int configure_update(struct br_stage *stage, struct capture *c)
{
    const struct capture *runs = br_stage_running(stage);
    struct br_error error = {0};
    struct br_stream *out = br_stage_output(stage, 0);
    struct packet_ids absent = {c->absent.count, c->absent.value};
    if (runs == NULL) return br_stage_fail(stage, BR_E_INTERNAL, "there is nothing to update");
    c->layout = runs->layout;
    if (packet_layout_absent(&c->layout, absent, packet_stage_memory(stage), &c->layout.absent, &error) !=
        BR_OK)
        return br_stage_fail_at(stage, "absent", "%s", error.text);
    out->epoch_ns = runs->epoch_ns;
    return packet_stage_stream(stage, &runs->layout, runs->description, out);
}

static int configure(struct br_stage *stage, void *self)
{
    struct capture *c = self;
    if (br_stage_is_update(stage)) return configure_update(stage, c);
    struct br_error error = {0};
    struct br_stream *out = br_stage_output(stage, 0);
    struct packet_node node = {.sources = {c->sources.count, c->sources.value},
                               .streams = {c->streams.count, c->streams.value},
                               .absent = {c->absent.count, c->absent.value},
                               .frame_samples = (size_t)c->frame_samples,
                               .values = c->values,
                               .real = c->real};
    c->description = packet_stage_load(stage, c->packet);
    if (c->description == NULL) return BR_E_INVALID;
    if (c->sideband != NULL) c->description->sideband = br_sideband_named(c->sideband);
    int status = capture_check_addresses(stage, c);
    if (status != BR_OK) return status;
    if (packet_layout_make(&c->layout, c->description, &node, packet_stage_memory(stage), &error) != BR_OK)
        return br_stage_fail(stage, error.status, "%s", error.text);
    status = packet_stage_stream(stage, &c->layout, c->description, out);
    char doubt[256];
    if (status == BR_OK && hints_doubt(out, doubt, sizeof doubt) != NULL) br_stage_warn(stage, "%s", doubt);
    if (status == BR_OK) status = set_epoch(stage, c, out);
    if (status == BR_OK) status = set_start(stage, c, out);
    if (status == BR_OK) capture_make_counters(stage, c);
    double reset_s = (double)c->reset_samples * br_stream_sample_s(out);
    if (status == BR_OK && reset_s > MOST_RESET_S)
        status = br_stage_fail_at(
            stage, "reset_samples",
            "they are %.3g s, and all frames of a gap that is not a jump are handed on as missing; "
            "expected at most a day, %.3g samples",
            reset_s, MOST_RESET_S / br_stream_sample_s(out));
    br_stage_suggest_depth(stage, 0, (unsigned)c->open + 3);
    return status;
}

/* --- start and stop ---------------------------------------------------------------------------- */

static int start(struct br_stage *stage, void *self)
{
    struct capture *c = self;
    struct br_error error = {0};
    size_t places = c->addresses.count > 0    ? c->addresses.count
                    : c->interfaces.count > 0 ? c->interfaces.count
                                              : 1;
    const struct br_stream *out = br_stage_output(stage, 0);
    unsigned n = (unsigned)(places * (size_t)c->threads);
    if (window_make(&c->window, c->description, &c->layout, (unsigned)c->open, n, &error) != BR_OK)
        return br_stage_fail(stage, error.status, "%s", error.text);
    int64_t second = (int64_t)(1 / br_stream_sample_s(out)), frames = 16 * c->frame_samples;
    c->window.hold = c->hold_samples > 0 ? c->hold_samples : c->frame_samples / 4;
    c->window.far = c->reset_samples > 0 ? c->reset_samples : second > frames ? second : frames;
    c->clock = (struct sample_clock){c->epoch_ns, out->sample_ns, c->window.period};
    c->receiver = calloc(n, sizeof *c->receiver);
    c->seen_ns = calloc(c->layout.nsources, sizeof *c->seen_ns);
    c->quiet = calloc(c->layout.nsources, sizeof *c->quiet);
    if (c->receiver == NULL || c->seen_ns == NULL || c->quiet == NULL)
        return br_stage_fail(stage, BR_E_NO_MEMORY, "no memory for %u threads", n);
    c->nreceivers = n;
    int status = capture_open_first(stage, c, &error);
    if (status != BR_OK) return br_stage_fail(stage, error.status, "%s", error.text);
    for (unsigned i = 0; i < n && status == BR_OK; i++) status = receiver_start(&c->receiver[i], &error);
    if (status == BR_OK && c->epoch_url != NULL)
        status = epoch_watch_start(&c->watch, c->epoch_url, c->epoch_ns, &error);
    c->started = status == BR_OK;
    capture_look_at_nics(c);
    return status == BR_OK ? BR_OK : br_stage_fail(stage, error.status, "%s", error.text);
}

static int stop(struct br_stage *stage, void *self)
{
    struct capture *c = self;
    for (unsigned i = 0; i < c->nreceivers; i++) receiver_stop(&c->receiver[i]);
    epoch_watch_stop(c->watch);
    if (c->started) {
        capture_look_at_nics(c);
        capture_count(stage, c);
        capture_report(stage, c);
    }
    window_free(&c->window);
    free(c->receiver);
    free(c->seen_ns);
    free(c->quiet);
    return BR_OK;
}

/* --- new values -------------------------------------------------------------------------------- */

static void commit(struct br_stage *stage, void *self, void *fresh, uint64_t sample)
{
    struct capture *c = self;
    const struct capture *with = fresh;
    (void)stage;
    for (size_t s = 0; s < c->layout.nsources; s++)
        if (c->window.absent[s] && !with->layout.absent[s]) c->seen_ns[s] = 0; /* not silent so far */
    window_expect(&c->window, (int64_t)(sample / (uint64_t)c->frame_samples), with->layout.absent);
    c->absent = with->absent;
}

/* Base samples [first, end) are taken with what is due at the first of them. */
static void take_updates(struct br_stage *stage, uint64_t first, uint64_t end)
{
    if (br_stage_next_update(stage, end) <= first) br_stage_update(stage, first);
}

/* --- the beginning ----------------------------------------------------------------------------- */

void capture_begin_with(struct br_stage *stage, struct capture *c, int64_t frame)
{
    if (!c->said_begin) {
        capture_say_begin(stage, c, frame);
        c->clock_sample = frame * c->frame_samples;
    }
    c->said_begin = true;
    c->given = frame;
    c->skip_to = frame;
    c->mark_sample = frame * c->frame_samples; /* about there */
    c->mark_ns = br_clock_ns();
    c->state = CAPTURE_RUNNING;
}

/* Settles with which frame the stream begins, when that can be said. */
static int look_for_start(struct br_stage *stage, struct capture *c, uint64_t now)
{
    size_t expected = 0, seen = 0, sure = 0;
    int64_t at;
    if (c->start_sample >= 0 && c->start_utc != NULL && c->clock.period > 0) {
        /* A time: where the counter is then depends on its period, so that packets must come first. */
        if (!window_position(&c->window, 1, &at)) return BR_OK;
        int status = capture_place(stage, c, false, &at);
        if (status < 0 || at < c->start_sample - c->clock.period / 4) return status;
        at /= c->frame_samples;
        capture_begin_with(
            stage, c, at > c->start_sample / c->frame_samples ? at + 1 : c->start_sample / c->frame_samples);
        return BR_OK;
    }
    if (c->start_sample >= 0) {
        capture_begin_with(stage, c, c->start_sample / c->frame_samples);
        return BR_OK;
    }
    /* No sample is taken yet. Updates that apply at once do so now, so that the stage does not wait for
     * sources that will not come; these numbers are below those of all frames but the first. */
    take_updates(stage, c->waited, c->waited + 1);
    c->waited++;
    for (size_t s = 0; s < c->layout.nsources; s++) {
        if (c->window.absent[s]) continue;
        expected++;
        seen += atomic_load_explicit(&c->window.source[s].latest, memory_order_relaxed) != INT64_MIN;
        sure += window_is_sure(&c->window, s);
    }
    if (seen == 0) return BR_OK;
    if (c->first_ns == 0) c->first_ns = now;
    double since = (double)(now - c->first_ns) * 1e-9;
    bool timed = c->start_s >= 0; /* not NAN */
    bool wait = !timed && since < c->wait_s;
    if (timed ? since < c->start_s : sure < expected && wait) return BR_OK;
    if (!window_position(&c->window, 1, &at)) return BR_OK;
    int status = capture_place(stage, c, wait && since < CONFIRM_S, &at);
    if (status != BR_OK) return status < 0 ? status : BR_OK;
    if (seen < expected) br_stage_warn(stage, "begins though only %zu of %zu sources send", seen, expected);
    capture_begin_with(stage, c, at / c->frame_samples + 1);
    return BR_OK;
}

/* --- frames ------------------------------------------------------------------------------------ */

/* Memory for the open frames that have none. The stream's frames get it in their order, and with it what is
 * expected in them. */
static void give_frames(struct br_stage *stage, struct capture *c, const struct br_io *io)
{
    int64_t base = atomic_load(&c->window.base);
    if (!c->ready) base = c->skip_to; /* the first frames, or the first after a jump */
    if (c->given < base) c->given = base;
    if (c->given < c->skip_to) c->given = c->skip_to;
    while (c->given < base + c->open) {
        struct br_frame *frame = c->ngiven == 0 ? io->out[0] : br_stage_lend_ahead(stage, 0, c->ngiven);
        if (frame == NULL) {
            atomic_store(&c->window.lacking, WINDOW_NO_FRAME);
            return;
        }
        uint64_t first = (uint64_t)c->given * (uint64_t)c->frame_samples;
        take_updates(stage, first, first + (uint64_t)c->frame_samples);
        window_give(&c->window, c->given++, frame);
        c->ngiven++;
    }
    atomic_store(&c->window.lacking, WINDOW_BEHIND); /* of the next ones: they are free */
}

/* Closes the oldest open frame; true when there is something to hand on. */
static bool close_oldest(struct br_stage *stage, struct capture *c, bool trim)
{
    const struct br_stream *out = br_stage_output(stage, 0);
    int64_t number = atomic_load(&c->window.base);
    struct br_frame *frame = window_close(&c->window, out);
    if (frame == NULL) {
        if (number >= c->skip_to) br_stage_count_lost(stage, BR_LOST_NO_FRAME, (uint64_t)c->frame_samples);
        return false;
    }
    if (trim) window_trim(&c->window, out, frame);
    c->ngiven--;
    c->last_sample = (int64_t)(frame->first + frame->samples);
    c->last_ns = br_clock_ns();
    return true;
}

/* --- process ----------------------------------------------------------------------------------- */

/* Nothing comes any more, or the run is to end: what is open goes on, short. */
static int end(struct br_stage *stage, struct capture *c)
{
    int64_t last = -1;
    if (!c->ending) /* or they would go on to fill frames that nobody gets */
        for (unsigned i = 0; i < c->nreceivers; i++) receiver_stop(&c->receiver[i]);
    c->ending = true;
    if (!c->ready) return BR_FINISHED;
    for (int64_t n = atomic_load(&c->window.base); n < c->given; n++)
        if (window_has_packets(&c->window, n)) last = n;
    while (atomic_load(&c->window.base) <= last) {
        bool is_last = atomic_load(&c->window.base) == last;
        if (close_oldest(stage, c, is_last)) return is_last ? BR_PRODUCED | BR_FINISHED : BR_PRODUCED;
    }
    return BR_FINISHED;
}

static int run(struct br_stage *stage, struct capture *c, const struct br_io *io)
{
    give_frames(stage, c, io);
    if (!c->ready) { /* the first frames have memory: packets may come */
        window_begin(&c->window, c->skip_to);
        c->ready = true;
    }
    while (window_is_due(&c->window)) {
        int64_t at, base = atomic_load(&c->window.base);
        bool known = window_position(&c->window, 1, &at);
        if (known) capture_mark(c, at);
        if (known && at / c->frame_samples > base + c->open)
            c->skip_to = at / c->frame_samples; /* a gap: nobody will fill what lies in it */
        bool produced = close_oldest(stage, c, false);
        if (produced) return BR_PRODUCED;
        give_frames(stage, c, io);
    }
    return 0;
}

static int flush(struct br_stage *stage, struct capture *c)
{
    while (c->ngiven > 0)
        if (close_oldest(stage, c, false)) return BR_PRODUCED;
    return capture_resume(stage, c);
}

static void look(struct br_stage *stage, struct capture *c, uint64_t now)
{
    uint64_t packets = capture_packets(c);
    /* A machine that stood still, or readers that were slow, are no silence of the senders. */
    uint64_t gap = c->called_ns > 0 ? now - c->called_ns : 0, most = LOOK_MS * UINT64_C(1000000);
    c->quiet_ns = packets != c->heard ? 0 : c->quiet_ns + (gap < most ? gap : most);
    c->called_ns = now;
    int64_t silent = c->last_ns > 0 ? (int64_t)(now - c->last_ns) : 0;
    if (c->ready && c->clock.period > 0 && silent > sample_clock_span_ns(&c->clock, c->clock.period / 4)) {
        struct sample_clock since = {0, c->clock.sample_ns, 0}; /* periods may have passed */
        window_set_near(&c->window, c->last_sample + sample_clock_at(&since, silent));
    }
    c->heard = packets;
    /* After a silence frames do not go on before somebody counts as sending: soon, or they would be full. */
    if (now - c->look_ns < (c->live > 0 ? LOOK_MS : LOOK_SOON_MS) * UINT64_C(1000000)) return;
    c->look_ns = now;
    c->live = window_look_who_sends(&c->window);
    capture_look_for_interfaces(stage, c);
    capture_look_at_nics(c);
    capture_count(stage, c);
    capture_say_who_is_silent(stage, c, now);
    capture_warn(stage, c, now);
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct capture *c = self;
    uint64_t now = br_clock_ns();
    if (!c->ending) look(stage, c, now);
    bool idle = c->idle_s > 0 && c->heard > 0 && (double)c->quiet_ns * 1e-9 > c->idle_s;
    if (c->ending || idle || br_stage_stopping(stage)) return end(stage, c);
    int status = 0;
    if (c->state == CAPTURE_WAITING) status = look_for_start(stage, c, now);
    if (c->state == CAPTURE_FLUSHING) status = flush(stage, c);
    if (c->state == CAPTURE_RUNNING && status == 0) {
        status = c->ready ? capture_look_for_jump(stage, c) : BR_OK;
        if (status == BR_OK && c->state == CAPTURE_RUNNING) status = run(stage, c, io);
    }
    capture_say_ready(stage, c);
    if (status != 0) return status;
    window_wait(&c->window, TICK_MS);
    return 0;
}

STAGE_EXPORT(capture, struct capture, "an F-engine's packets from the network", .outputs = outputs,
             .flags = BR_STAGE_COMMITS, .updates = updates, .commit = commit);
