/* bench_packets - for tools/bench/live_memory.py: an F-engine's packets at their real rate out of memory, as
 * if the kernel's buffers had them: `capture` without a network. Threads write headers that count, and put
 * each packet into its frame as capture's receiving threads do. A thread that falls behind by more than the
 * kernel's buffers would hold leaves packets out. */
#include "buffers/clock.h"
#include "formats/packets/window.h"
#include "runtime/stage.h"
#include "stages/common/stage/packet.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST_THREADS = 32, NAP_NS = 20000 };

struct source;

struct feeder {
    struct source *source;
    struct window_thread *thread;
    pthread_t id;
    size_t first, count; /* of the sources */
    uint8_t *memory;     /* packets, one behind the other, more than the caches hold */
    size_t places, next;
    uint64_t left_out, behind_ns; /* behind_ns: the most that it was */
    bool runs;
};

struct source {
    const char *packet; /* parameters */
    struct br_ints sources, streams;
    int64_t frame_samples, threads, pool_mb;
    double seconds, buffer_ms;

    struct packet_description *description;
    struct packet_layout layout;
    struct window window;
    int64_t open, hold; /* frames that are filled at a time, samples: see choose_hold */
    struct feeder feeder[MOST_THREADS];
    uint64_t begin_ns;
    int64_t given; /* frames, from the first one on */
    unsigned ahead;
    bool begun;
    _Atomic bool quit;
    _Atomic int running;
};

static const struct br_param params[] = {
    BR_PARAM("packet", BR_P_STRING, struct source, packet, "as of capture", .def = "chord-crs"),
    BR_PARAM("sources", BR_P_INTS, struct source, sources, "as of capture", .min = 0, .max = 65535),
    BR_PARAM("streams", BR_P_INTS, struct source, streams, "as of capture", .min = 0, .max = 65535),
    BR_PARAM("frame_samples", BR_P_INT, struct source, frame_samples, "of a frame", .def = "8192", .min = 1,
             .max = 1 << 24),
    BR_PARAM("threads", BR_P_INT, struct source, threads, "that fill frames", .def = "10", .min = 1,
             .max = MOST_THREADS),
    BR_PARAM("pool_mb", BR_P_INT, struct source, pool_mb, "of packets that each thread takes in turn",
             .def = "64", .min = 1, .max = 4096),
    BR_PARAM("seconds", BR_P_REAL, struct source, seconds, "of packets", .def = "10", .min = 0.1, .max = 1e6),
    BR_PARAM("buffer_ms", BR_P_REAL, struct source, buffer_ms, "that the kernel's buffers would hold",
             .def = "100", .min = 1, .max = 1e4),
    {0},
};
static const struct br_port outputs[] = {{"out", "packets as they came, for unpack"}, {0}};

/* Frames stay open for as long as packets may wait, or a thread that is behind would be late: `hold_samples`
 * and `open` of a node whose kernel has such buffers. */
static void choose_hold(struct source *s)
{
    const struct br_rational *sample_ns = &s->description->sample_ns;
    s->hold = (int64_t)(s->buffer_ms * 1e6 * (double)sample_ns->den / (double)sample_ns->num);
    if (s->hold > (WINDOW_MAX_OPEN - 3) * s->frame_samples)
        s->hold = (WINDOW_MAX_OPEN - 3) * s->frame_samples;
    s->open = 3 + s->hold / s->frame_samples; /* one is about to close, one more to come */
}

static int configure(struct br_stage *stage, void *self)
{
    struct source *s = self;
    struct br_error error = {0};
    struct br_stream *out = br_stage_output(stage, 0);
    struct packet_node node = {.sources = {s->sources.count, s->sources.value},
                               .streams = {s->streams.count, s->streams.value},
                               .frame_samples = (size_t)s->frame_samples};
    s->description = packet_stage_load(stage, s->packet);
    if (s->description == NULL) return BR_E_INVALID;
    if (packet_layout_make(&s->layout, s->description, &node, packet_stage_memory(stage), &error) != BR_OK)
        return br_stage_fail(stage, error.status, "%s", error.text);
    choose_hold(s);
    out->epoch_ns = br_stage_hints(stage)->epoch_ns;
    br_stage_suggest_depth(stage, 0, (unsigned)s->open + 3);
    return packet_stage_stream(stage, &s->layout, s->description, out);
}

static int start(struct br_stage *stage, void *self)
{
    struct source *s = self;
    struct br_error error = {0};
    size_t bytes = packet_header_length(s->description), n = (size_t)s->threads;
    if (window_make(&s->window, s->description, &s->layout, (unsigned)s->open, (unsigned)n, &error) != BR_OK)
        return br_stage_fail(stage, error.status, "%s", error.text);
    s->window.hold = s->hold;
    s->window.far = INT64_MAX / 4;
    for (size_t i = 0; i < n; i++) {
        struct feeder *f = &s->feeder[i];
        f->source = s;
        f->thread = &s->window.thread[i];
        f->first = i * s->layout.nsources / n;
        f->count = (i + 1) * s->layout.nsources / n - f->first;
        f->places = ((size_t)s->pool_mb << 20) / bytes + 1;
        f->memory = malloc(f->places * bytes);
        if (f->memory == NULL) return br_stage_fail(stage, BR_E_NO_MEMORY, "no memory for packets");
        for (size_t k = 0; k < f->places * bytes; k++) f->memory[k] = (uint8_t)(k * 2654435761u >> 13 | 1);
    }
    return BR_OK;
}

/* All packets that a thread has of a block. */
static void fill_block(struct feeder *f, uint64_t block)
{
    struct source *s = f->source;
    const struct packet_layout *layout = &s->layout;
    size_t bytes = packet_header_length(s->description);
    struct br_error error;
    uint64_t counter = block * layout->packet_samples / (uint64_t)s->description->sequence_samples;
    window_enter(&s->window, f->thread);
    for (size_t k = 0; k < f->count * layout->nstreams; k++) {
        uint8_t *payload, *at = f->memory + f->next * bytes;
        struct packet_header header = {.counter = counter,
                                       .source = layout->source_id[f->first + k / layout->nstreams],
                                       .stream = layout->stream_id[k % layout->nstreams]};
        f->next = f->next + 1 < f->places ? f->next + 1 : 0;
        if (packet_header_write(s->description, &header, at, &payload, &error) == BR_OK)
            window_packet(&s->window, f->thread, at, bytes);
    }
    window_leave(f->thread);
}

static void *run(void *arg)
{
    struct feeder *f = arg;
    struct source *s = f->source;
    double block_ns = (double)s->layout.packet_samples * (double)s->description->sample_ns.num /
                      (double)s->description->sample_ns.den;
    uint64_t blocks = (uint64_t)(s->seconds * 1e9 / block_ns);
    for (uint64_t block = 0; block < blocks && !atomic_load(&s->quit); block++) {
        uint64_t due = s->begin_ns + (uint64_t)((double)(block + 1) * block_ns), now;
        while ((now = br_clock_ns()) < due) nanosleep(&(struct timespec){0, NAP_NS}, NULL);
        if (now - due > f->behind_ns) f->behind_ns = now - due;
        if ((double)(now - due) > s->buffer_ms * 1e6)
            f->left_out += f->count * s->layout.nstreams;
        else
            fill_block(f, block);
    }
    atomic_fetch_sub(&s->running, 1);
    return NULL;
}

/* --- the stage's thread */

static void give_frames(struct br_stage *stage, struct source *s, const struct br_io *io)
{
    int64_t base = s->begun ? atomic_load(&s->window.base) : 0;
    if (s->given < base) s->given = base;
    for (; s->given < base + s->open; s->given++, s->ahead++) {
        struct br_frame *frame = s->ahead == 0 ? io->out[0] : br_stage_lend_ahead(stage, 0, s->ahead);
        if (frame == NULL) return;
        window_give(&s->window, s->given, frame);
    }
}

/* True when the oldest frame goes on; one without memory is lost. */
static bool close_oldest(struct br_stage *stage, struct source *s)
{
    struct br_frame *frame = window_close(&s->window, br_stage_output(stage, 0));
    if (frame == NULL) br_stage_count_lost(stage, BR_LOST_NO_FRAME, (uint64_t)s->frame_samples);
    if (frame != NULL) s->ahead--;
    return frame != NULL;
}

static int begin(struct br_stage *stage, struct source *s)
{
    window_begin(&s->window, 0);
    s->begun = true;
    s->begin_ns = br_clock_ns();
    for (int64_t i = 0; i < s->threads; i++) {
        atomic_fetch_add(&s->running, 1);
        s->feeder[i].runs = pthread_create(&s->feeder[i].id, NULL, run, &s->feeder[i]) == 0;
        if (!s->feeder[i].runs) return br_stage_fail(stage, BR_E_NO_MEMORY, "no thread");
    }
    return BR_OK;
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct source *s = self;
    if (br_stage_stopping(stage)) atomic_store(&s->quit, true);
    bool over = s->begun && atomic_load(&s->running) == 0;
    give_frames(stage, s, io);
    if (!s->begun) return begin(stage, s);
    window_mark_all_live(&s->window);
    while (window_is_due(&s->window)) {
        if (close_oldest(stage, s)) return BR_PRODUCED;
        give_frames(stage, s, io);
    }
    if (!over) {
        window_wait(&s->window, 20);
        return 0;
    }
    while (atomic_load(&s->window.base) < s->given) {
        bool last = !window_has_packets(&s->window, atomic_load(&s->window.base) + 1),
             any = window_has_packets(&s->window, atomic_load(&s->window.base));
        struct br_frame *frame = any ? window_close(&s->window, br_stage_output(stage, 0)) : NULL;
        if (frame == NULL) break;
        s->ahead--;
        if (last) window_trim(&s->window, br_stage_output(stage, 0), frame);
        return BR_PRODUCED;
    }
    return BR_FINISHED;
}

static int stop(struct br_stage *stage, void *self)
{
    struct source *s = self;
    uint64_t count[WINDOW_NREASONS] = {0}, left_out = 0, others = 0, behind_ns = 0;
    char *why = NULL;
    size_t length = 0;
    FILE *text = open_memstream(&why, &length);
    atomic_store(&s->quit, true);
    for (int64_t i = 0; i < s->threads; i++) {
        if (s->feeder[i].runs) pthread_join(s->feeder[i].id, NULL);
        left_out += s->feeder[i].left_out;
        if (s->feeder[i].behind_ns > behind_ns) behind_ns = s->feeder[i].behind_ns;
        free(s->feeder[i].memory);
    }
    for (int reason = 0; s->begun && reason < WINDOW_NREASONS; reason++)
        for (size_t k = 0; k <= s->layout.nsources; k++)
            count[reason] += window_count(&s->window, k, (enum window_reason)reason);
    for (int reason = 0; reason < WINDOW_NREASONS; reason++) {
        if (reason == WINDOW_ACCEPTED) continue;
        others += count[reason];
        if (count[reason] > 0 && text != NULL)
            fprintf(text, "%llu %s, ", (unsigned long long)count[reason], window_reason_name[reason]);
    }
    if (text != NULL) fclose(text);
    br_stage_note(stage,
                  "%llu packets accepted, %llu lost (%s%llu left out); a thread was up to %.1f ms behind",
                  (unsigned long long)count[WINDOW_ACCEPTED], (unsigned long long)(others + left_out),
                  why != NULL ? why : "", (unsigned long long)left_out, (double)behind_ns * 1e-6);
    free(why);
    window_free(&s->window);
    return BR_OK;
}

BR_STAGE_EXPORT = {
    .abi_version = BR_ABI_VERSION,
    .type_size = sizeof(struct br_stage_type),
    .name = "bench_packets",
    .summary = "packets from memory for measuring",
    .params = params,
    .outputs = outputs,
    .size = sizeof(struct source),
    .configure = configure,
    .start = start,
    .process = process,
    .stop = stop,
};
