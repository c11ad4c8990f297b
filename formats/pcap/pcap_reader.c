/* pcap_reader.c - see pcap_reader.h. The same open frames as capture's, fed by one thread that waits for
 * whoever reads the frames, so that nothing is lost but what the file lacks. Packets ahead of the open frames
 * are kept until most sources have moved on to them. */
#include "formats/pcap/pcap_reader.h"
#include "buffers/clock.h"
#include "formats/common/order.h"
#include "formats/common/text.h"
#include "formats/packets/stream.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPEN = 2, FIRST = 64, LOOK_EVERY = 256, TEXT = 700 };
/* So much is read ahead of a source that does not send. */
enum { MOST_KEPT = 16384, MOST_KEPT_BYTES = 64 << 20 };

static int describe(struct caller *caller, void *self, const struct file_list *files,
                    const struct read_options *options, struct description *description)
{
    struct pcap_reader *r = self;
    struct br_error error = {0};
    const struct pcap_options *own = options->pcap;
    struct packet_memory memory = {caller->alloc, caller->owner};
    if (options->passes != 1) return caller_fail_at(caller, "loop", "captured packets are played once");
    if (own->packet == NULL)
        return caller_fail(caller, BR_E_INVALID,
                           "'packet' is missing; expected the name of a packet description");
    int status = pcap_files_sort(caller, &r->source, files);
    if (status != BR_OK) return status;
    r->start_ns = INT64_MIN;
    if (own->start_utc != NULL && text_utc(own->start_utc, &r->start_ns) != 0)
        return caller_fail_at(caller, "start_utc", "'%.60s' is not a time; expected YYYY-MM-DD-hh:mm:ss",
                              own->start_utc);
    r->packet = packet_load(own->packet, memory, &error);
    if (r->packet == NULL) return caller_fail_at(caller, "packet", "%s", error.text);
    struct packet_node node = own->node;
    node.frame_samples = options->frame_samples > 0 ? (size_t)options->frame_samples : 8192;
    r->stream = (struct br_stream){.scale = 1, .telescope = caller->telescope};
    if (packet_layout_make(&r->layout, r->packet, &node, memory, &error) != BR_OK ||
        packet_stream(&r->layout, r->packet, caller->hints, memory, &r->stream, &error) != BR_OK)
        return caller_fail(caller, error.status, "%s", error.text);
    if (!caller->hints->have_epoch)
        return caller_fail(caller, BR_E_INVALID,
                           "the time of sample 0 is not known; give `stream: {epoch_ns: ...}`");
    r->stream.epoch_ns = caller->hints->epoch_ns;
    r->max_gap = (int64_t)(options->max_gap_s / br_stream_sample_s(&r->stream));
    r->time_from = &description->time_from;
    description->stream = &r->stream;
    description->depth = OPEN + 3;
    return BR_OK;
}

static int start(struct caller *caller, void *self)
{
    struct pcap_reader *r = self;
    struct br_error error = {0};
    r->opened = true;
    if (window_make(&r->window, r->packet, &r->layout, OPEN, 1, &error) != BR_OK)
        return caller_fail(caller, error.status, "%s", error.text);
    size_t slots = r->layout.nsources * r->layout.nstreams;
    r->latest = malloc(slots * sizeof *r->latest);
    if (r->latest == NULL) return caller_no_memory(caller, slots * sizeof *r->latest);
    for (size_t i = 0; i < slots; i++) r->latest[i] = INT64_MIN;
    r->window.hold = (int64_t)r->layout.frame_samples / 4;
    r->window.far = r->max_gap;
    r->window.keeps_ahead = true;
    r->clock = (struct sample_clock){r->stream.epoch_ns, r->stream.sample_ns, r->window.period};
    return BR_OK;
}

/* --- packets ------------------------------------------------------------------------------------ */

static enum window_reason offer(struct pcap_reader *r, const uint8_t *bytes, size_t length)
{
    struct window_thread *thread = &r->window.thread[0];
    thread->slot = SIZE_MAX;
    window_enter(&r->window, thread);
    enum window_reason reason = window_packet(&r->window, thread, bytes, length);
    window_leave(thread);
    return reason;
}

/* A packet of the file, rather than one that was kept. */
static enum window_reason offer_new(struct pcap_reader *r, const struct pcap_packet *packet)
{
    enum window_reason reason = offer(r, packet->payload, packet->length);
    const struct window_thread *thread = &r->window.thread[0];
    if (thread->slot != SIZE_MAX && reason != WINDOW_STRAY) r->latest[thread->slot] = thread->sample;
    return reason;
}

static int keep(struct caller *caller, struct pcap_reader *r, const struct pcap_packet *packet)
{
    if (r->nkept == r->kept_room) {
        size_t room = r->kept_room > 0 ? 2 * r->kept_room : 64;
        struct kept_packet *more = realloc(r->kept, room * sizeof *more);
        if (more == NULL) return caller_no_memory(caller, room * sizeof *more);
        r->kept = more;
        r->kept_room = room;
    }
    uint8_t *bytes = malloc(packet->length);
    if (bytes == NULL) return caller_no_memory(caller, packet->length);
    memcpy(bytes, packet->payload, packet->length);
    const struct window_thread *thread = &r->window.thread[0];
    r->kept[r->nkept++] = (struct kept_packet){bytes, packet->length, thread->from, thread->sample};
    r->kept_bytes += packet->length + sizeof *r->kept;
    return 1;
}

static void drop_kept(struct pcap_reader *r, size_t i)
{
    r->kept_bytes -= r->kept[i].length + sizeof *r->kept;
    free(r->kept[i].bytes);
    r->kept[i].bytes = NULL;
}

/* Closes the holes that drop_kept leaves. */
static void pack_kept(struct pcap_reader *r)
{
    size_t n = 0;
    for (size_t i = 0; i < r->nkept; i++)
        if (r->kept[i].bytes != NULL) r->kept[n++] = r->kept[i];
    r->nkept = n;
}

/* Kept packets whose frames are open now. They say nothing of where their sources are: these have moved
 * on. */
static void offer_kept(struct pcap_reader *r)
{
    int64_t end = (atomic_load(&r->window.base) + OPEN) * (int64_t)r->layout.frame_samples;
    r->moved = false;
    for (size_t i = 0; i < r->nkept; i++) {
        const struct kept_packet *k = &r->kept[i];
        if (k->sample >= end) continue;
        _Atomic int64_t *latest = &r->window.source[k->source].latest;
        int64_t now = atomic_load(latest);
        offer(r, k->bytes, k->length);
        atomic_store(latest, now);
        drop_kept(r, i);
    }
    pack_kept(r);
}

/* At the end: a packet that its source itself has not followed lied about its sample. */
static void drop_liars(struct pcap_reader *r)
{
    int64_t far = OPEN * (int64_t)r->layout.frame_samples;
    for (size_t i = 0; i < r->nkept; i++) {
        if (atomic_load(&r->window.source[r->kept[i].source].latest) >= r->kept[i].sample - far) continue;
        r->disbelieved++;
        drop_kept(r, i);
    }
    pack_kept(r);
}

/* Puts the next packet into the window, or keeps it: 1, 0 at the end of all files, or a status. */
static int take(struct caller *caller, struct pcap_reader *r)
{
    struct pcap_packet packet;
    int status = pcap_files_next(caller, &r->source, &packet);
    if (status != 1) return status < 1 ? status : 1;
    int64_t silent = packet.unix_ns - r->last_ns;
    if (r->clock.period > 0 && silent > sample_clock_span_ns(&r->clock, r->clock.period / 4)) {
        struct sample_clock since = {r->last_ns, r->clock.sample_ns, 0};
        window_set_near(&r->window, r->last_sample + sample_clock_at(&since, packet.unix_ns));
    }
    enum window_reason reason = offer_new(r, &packet);
    if (reason == WINDOW_ACCEPTED) {
        r->last_sample = r->window.thread[0].sample;
        r->last_ns = packet.unix_ns;
    }
    return reason == WINDOW_NO_FRAME ? keep(caller, r, &packet) : 1;
}

/* True when the oldest frame is over: all sources that send are past it, in all streams. Those that have sent
 * nothing for as much as may be kept are not waited for, until they send again. */
static bool is_over(struct pcap_reader *r)
{
    int64_t end = (atomic_load(&r->window.base) + 1) * (int64_t)r->layout.frame_samples + r->window.hold;
    bool full = r->nkept >= MOST_KEPT || r->kept_bytes >= MOST_KEPT_BYTES, over = false;
    size_t slots = r->layout.nsources * r->layout.nstreams;
    for (size_t i = 0; i < slots; i++) {
        size_t slot = (r->behind + i) % slots;
        if (r->latest[slot] == INT64_MIN) continue;
        over = true;
        if (r->latest[slot] >= end) continue;
        r->behind = slot;
        if (!full) return false;
        r->latest[slot] = INT64_MIN;
    }
    return over || full;
}

/* --- the beginning ------------------------------------------------------------------------------ */

static uint64_t count_of(const struct pcap_reader *r, enum window_reason reason)
{
    uint64_t sum = 0;
    for (size_t s = 0; s <= r->layout.nsources; s++) sum += window_count(&r->window, s, reason);
    return sum;
}

/* The counts of the packets, ", 3 malformed, 2 without UDP". */
static void say_counts(const struct pcap_reader *r, char *text)
{
    for (int k = 0; k < WINDOW_NREASONS && r->window.thread != NULL; k++) {
        uint64_t sum = count_of(r, (enum window_reason)k) + (k == WINDOW_STRAY ? r->disbelieved : 0);
        if (sum > 0) text_append(text, TEXT, ", %" PRIu64 " %s", sum, window_reason_name[k]);
    }
    for (int k = 0; k < PCAP_NREASONS; k++)
        if (r->source.skipped[k] > 0)
            text_append(text, TEXT, ", %" PRIu64 " %s", r->source.skipped[k], pcap_reason_text[k]);
}

static int nobody_came(struct caller *caller, const struct pcap_reader *r)
{
    char text[TEXT] = "", advice[TEXT] = "";
    say_counts(r, text);
    if (r->source.skipped[PCAP_CUT] > 0)
        text_append(advice, TEXT,
                    "; packets of up to %" PRIu64 " bytes were recorded in part, %" PRIu64
                    " bytes of each (the snap length): record with `tcpdump -s 0`",
                    r->source.longest, r->source.kept);
    if (count_of(r, WINDOW_MALFORMED) > 0 && r->packet->bytes > 0)
        text_append(advice, TEXT, "; '%s' has packets of %zu bytes", r->packet->name, r->packet->bytes);
    return caller_fail(caller, BR_E_FORMAT,
                       "none of the first %" PRIu64 " packets of %s%s is one of '%s' for this node%s%s%s",
                       r->source.packets, r->source.files.path[0], r->source.files.count > 1 ? ", ..." : "",
                       r->packet->name, text[0] != '\0' ? ": " : "", text[0] != '\0' ? text + 2 : "", advice);
}

struct early {
    int64_t sample, unix_ns;
};

/* By how much the recording begins before the median of its first packets, sorted: with the earliest one that
 * has company. One alone may lie. */
static int64_t begins_before(const struct pcap_reader *r, const struct early *early, size_t n)
{
    int64_t span = OPEN * (int64_t)r->layout.frame_samples, period = r->clock.period, before = 0;
    for (size_t i = 0; i < n; i++) {
        int64_t d = early[n / 2].sample - early[i].sample;
        if (period > 0 && d < -period / 2) d += period;
        bool company = n < 3 || (i + 1 < n && early[i + 1].sample - early[i].sample <= span) ||
                       (i > 0 && early[i].sample - early[i - 1].sample <= span);
        if (d > before && d <= r->max_gap && company) before = d;
    }
    return before;
}

/* The sample at which the recording begins, from its first packets of this node. */
static int place_first(struct caller *caller, struct pcap_reader *r, struct early *early, size_t n,
                       int64_t *first)
{
    struct br_error error = {0};
    int64_t late, near, period = r->clock.period;
    qsort(early, n, sizeof *early, order_int64);
    struct early median = early[n / 2];
    int64_t before = begins_before(r, early, n);
    bool stated = r->start_ns != INT64_MIN;
    const char *whose = stated ? "start_utc" : "the packets' times in the file";
    near = stated ? r->start_ns : median.unix_ns;
    *first = median.sample;
    enum sample_clock_verdict verdict = sample_clock_place(&r->clock, first, near, &late);
    if (verdict == SAMPLE_CLOCK_UNSURE)
        return caller_fail(caller, sample_clock_refuse(&r->clock, *first, near, whose, &error), "%s",
                           error.text);
    size_t length =
        (size_t)snprintf(r->time_text, sizeof r->time_text, "by the packets' counter and `stream: epoch_ns`");
    if (period > 0)
        snprintf(r->time_text + length, sizeof r->time_text - length,
                 "; the counter had started again %" PRId64 " times by %s, off by %+.6g s", *first / period,
                 whose, 1e-9 * (double)late);
    *r->time_from = r->time_text;
    if (verdict == SAMPLE_CLOCK_FIRST_PERIOD)
        caller_warn(caller,
                    "by %s the first packets are %.6g s earlier than by their counter; the counter is taken "
                    "not to have started again since the epoch",
                    whose, -1e-9 * (double)late);
    *first = *first > before ? *first - before : 0;
    return BR_OK;
}

/* Reads on until all sources have sent in all streams, or so much that they are not waited for. */
static int look_who_sends(struct caller *caller, struct pcap_reader *r)
{
    int status = 1;
    struct pcap_packet packet;
    size_t bytes = 0, slots = r->layout.nsources * r->layout.nstreams, silent = 0;
    for (size_t i = 0; i < slots; i++) silent += r->latest[i] == INT64_MIN;
    for (size_t n = 0; silent > 0 && n < MOST_KEPT && bytes < MOST_KEPT_BYTES; n++) {
        status = pcap_files_next(caller, &r->source, &packet);
        if (status < 1) break;
        if (status != 1) continue;
        bytes += packet.length;
        if (offer(r, packet.payload, packet.length) != WINDOW_EARLY) continue;
        int64_t *latest = &r->latest[r->window.thread[0].slot];
        silent -= *latest == INT64_MIN;
        *latest = 0;
    }
    return status < 0 ? status : BR_OK;
}

/* Back to the beginning: who has sent will send, from sample `first` on. */
static void start_over(struct pcap_reader *r, int64_t first)
{
    pcap_files_rewind(&r->source);
    window_forget(&r->window, first - 1);
    for (size_t i = 0; i < r->layout.nsources * r->layout.nstreams; i++)
        if (r->latest[i] != INT64_MIN) r->latest[i] = first - 1;
}

/* The first packets of this node say where the recording begins; then it is read from the beginning. */
static int begin(struct caller *caller, struct pcap_reader *r)
{
    struct early early[FIRST];
    size_t n = 0;
    int64_t first;
    struct pcap_packet packet;
    int status = 1;
    while (n < FIRST && (status = pcap_files_next(caller, &r->source, &packet)) > 0) {
        if (r->source.packets % LOOK_EVERY == 0 && caller_stopping(caller)) return READER_FINISHED;
        if (status != 1 || offer_new(r, &packet) != WINDOW_EARLY) continue;
        early[n] = (struct early){r->window.thread[0].sample, packet.unix_ns};
        n++;
    }
    if (status < 0) return status;
    if (n == 0) return nobody_came(caller, r);
    status = place_first(caller, r, early, n, &first);
    if (status != BR_OK) return status;
    r->last_sample = first;
    r->last_ns = early[n / 2].unix_ns;
    status = look_who_sends(caller, r);
    if (status != BR_OK) return status;
    start_over(r, first);
    r->given = first / (int64_t)r->layout.frame_samples;
    r->begun = true;
    return BR_OK;
}

/* --- frames ------------------------------------------------------------------------------------- */

static void give(struct caller *caller, struct pcap_reader *r, struct br_frame *out, int64_t base)
{
    if (r->given < base) r->given = base;
    while (r->given < base + OPEN) {
        struct br_frame *frame = r->ngiven == 0 ? out : caller->run->lend_ahead(caller->owner, r->ngiven);
        if (frame == NULL) return;
        window_give(&r->window, r->given++, frame);
        r->ngiven++;
    }
}

/* Packets that came too late are lost, though a replay waits for everybody: then the files are wrong. */
static int end(struct caller *caller, const struct pcap_reader *r)
{
    uint64_t late = count_of(r, WINDOW_LATE) + count_of(r, WINDOW_EARLY),
             accepted = count_of(r, WINDOW_ACCEPTED);
    if (r->jumped_to != 0)
        return caller_fail(caller, BR_E_FORMAT,
                           "most sources jump to sample %" PRId64
                           ", more than max_gap_s from the others; play the parts one by one",
                           r->jumped_to);
    if (late > 0)
        caller_warn(caller, "%" PRIu64 " packets follow after their time had been played, and are lost",
                    late);
    if (late <= accepted / 4) return READER_FINISHED;
    return caller_fail(caller, BR_E_FORMAT,
                       "%" PRIu64 " packets follow after their time had been played, and only %" PRIu64
                       " in time: the files overlap, or their times are wrong; merge them by time (`mergecap "
                       "-w all.pcap FILE...`), or give those of one interface at a time",
                       late, accepted);
}

static int finish(struct caller *caller, struct pcap_reader *r)
{
    int64_t base = atomic_load(&r->window.base), last = -1;
    r->finishing = true;
    for (int64_t n = base; n < r->given; n++)
        if (window_has_packets(&r->window, n)) last = n;
    if (base > last) return end(caller, r);
    struct br_frame *frame = window_close(&r->window, &r->stream);
    if (base == last) window_trim(&r->window, &r->stream, frame);
    return READER_FRAME;
}

/* Reads on, until the oldest frame may be over. */
static int take_some(struct caller *caller, struct pcap_reader *r)
{
    int status = 1;
    for (int i = 0; i < LOOK_EVERY && status == 1; i++) {
        status = take(caller, r);
        if (atomic_load(&r->window.wanted)) break;
    }
    r->ended = status == 0;
    window_mark_all_live(&r->window);
    atomic_store(&r->window.wanted, false);
    if (status >= 0 && window_has_jumped(&r->window, &r->jumped_to)) r->ended = true;
    return status < 0 ? status : BR_OK;
}

static int fill(struct caller *caller, void *self, struct br_frame *out)
{
    struct pcap_reader *r = self;
    int status = BR_OK;
    if (!r->begun) {
        status = begin(caller, r);
        if (status != BR_OK) return status;
        give(caller, r, out, r->given);
        window_begin(&r->window, r->given - r->ngiven);
    }
    while (!r->finishing) {
        give(caller, r, out, atomic_load(&r->window.base));
        if (r->ngiven < OPEN) { /* readers hold the others: later */
            if (caller->run->sleep_until(caller->owner, br_clock_ns() + 1000000)) return READER_FINISHED;
            continue;
        }
        if (r->moved) offer_kept(r);
        if (caller_stopping(caller)) return READER_FINISHED;
        status = r->ended ? BR_OK : take_some(caller, r);
        if (status != BR_OK) return status;
        if (r->ended) drop_liars(r);
        bool due = r->ended ? r->nkept > 0 : is_over(r);
        if (!due && r->ended) break;
        if (!due) continue;
        struct br_frame *frame = window_close(&r->window, &r->stream);
        r->ngiven--;
        r->moved = true;
        return frame != NULL ? READER_FRAME : caller_fail(caller, BR_E_INTERNAL, "a frame had no memory");
    }
    return finish(caller, r);
}

static void stop(struct caller *caller, void *self)
{
    struct pcap_reader *r = self;
    if (!r->opened) return;
    char text[TEXT] = "";
    say_counts(r, text);
    caller_note(caller, "%" PRIu64 " packets%s", r->source.packets, text);
    pcap_files_rewind(&r->source);
    for (size_t i = 0; i < r->nkept; i++) free(r->kept[i].bytes);
    free(r->kept);
    free(r->latest);
    r->latest = NULL;
    r->kept = NULL;
    window_free(&r->window);
}

static const struct reader reader = {
    .size = sizeof(struct pcap_reader), .describe = describe, .start = start, .fill = fill, .stop = stop};
const struct format format_pcap = {
    .name = "pcap", .sideband = "the packets' description", .probe = pcap_probe, .reader = &reader};
