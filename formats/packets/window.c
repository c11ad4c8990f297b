/* window.c - see window.h. */
#include "formats/packets/window.h"
#include "formats/common/coding.h"

#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

const char *const window_reason_name[WINDOW_NREASONS] = {
#define WINDOW_REASON(NAME, name, text) name,
    WINDOW_REASONS(WINDOW_REASON)
#undef WINDOW_REASON
};

static int32_t *make_slots(const int64_t *id, size_t n)
{
    int32_t *slot = malloc(PACKET_MAX_IDS * sizeof *slot);
    if (slot == NULL) return NULL;
    for (size_t i = 0; i < PACKET_MAX_IDS; i++) slot[i] = -1;
    for (size_t i = 0; i < n; i++) slot[id[i]] = (int32_t)i;
    return slot;
}

int window_make(struct window *w, const struct packet_description *packet, const struct packet_layout *layout,
                unsigned nopen, unsigned nthreads, struct br_error *error)
{
    size_t n = layout->nsources;
    *w = (struct window){.packet = packet, .layout = layout, .nopen = nopen, .nthreads = nthreads};
    atomic_init(&w->base, -1);
    atomic_init(&w->from, INT64_MAX);
    atomic_init(&w->lacking, WINDOW_NO_FRAME);
    atomic_init(&w->near, (int64_t)(packet->sequence_period / 2));
    if (packet->sequence_period > INT64_MAX ||
        __builtin_mul_overflow((int64_t)packet->sequence_period, packet->sequence_samples, &w->period))
        w->period = 0;
    w->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    w->source_slot = make_slots(layout->source_id, n);
    w->stream_slot = make_slots(layout->stream_id, layout->nstreams);
    w->thread = calloc(nthreads, sizeof *w->thread);
    w->source = calloc(n, sizeof *w->source);
    w->seen = calloc(n, sizeof *w->seen);
    w->live = calloc(n, sizeof *w->live);
    w->missing = calloc(n, sizeof *w->missing);
    w->together = calloc(n, sizeof *w->together);
    w->disowned = calloc(n, sizeof *w->disowned);
    w->share = calloc(layout->nstreams, sizeof *w->share);
    w->absent = calloc(n, sizeof *w->absent);
    bool good = w->wake >= 0 && w->source_slot != NULL && w->stream_slot != NULL && w->thread != NULL &&
                w->source != NULL && w->seen != NULL && w->live != NULL && w->missing != NULL &&
                w->together != NULL && w->disowned != NULL && w->share != NULL && w->absent != NULL;
    for (unsigned k = 0; good && k < nopen; k++) {
        atomic_init(&w->open[k].number, -1);
        w->open[k].absent = calloc(n, sizeof *w->open[k].absent);
        good = w->open[k].absent != NULL;
    }
    for (unsigned i = 0; good && i < nthreads; i++) {
        struct window_thread *thread = &w->thread[i];
        thread->count = calloc(n + 1, sizeof *thread->count);
        good = thread->count != NULL;
        for (unsigned k = 0; good && k < nopen; k++) {
            thread->receipt[k] = calloc(layout->nblocks, layout->receipt_bytes);
            good = thread->receipt[k] != NULL;
        }
    }
    for (size_t i = 0; good && i < n; i++) {
        atomic_init(&w->source[i].latest, INT64_MIN);
        atomic_init(&w->source[i].elsewhere, INT64_MIN);
        atomic_init(&w->source[i].doubtful, INT64_MAX);
        atomic_init(&w->source[i].since, layout->absent[i]);
        w->absent[i] = layout->absent[i];
    }
    return good ? BR_OK : br_fail(error, BR_E_NO_MEMORY, "no memory for the counters of %zu sources", n);
}

void window_free(struct window *w)
{
    for (unsigned i = 0; w->thread != NULL && i < w->nthreads; i++) {
        free(w->thread[i].count);
        for (unsigned k = 0; k < w->nopen; k++) free(w->thread[i].receipt[k]);
    }
    for (unsigned k = 0; k < w->nopen; k++) free(w->open[k].absent);
    if (w->wake >= 0) close(w->wake);
    free(w->absent);
    free(w->thread);
    free(w->source_slot);
    free(w->stream_slot);
    free(w->source);
    free(w->seen);
    free(w->live);
    free(w->missing);
    free(w->together);
    free(w->disowned);
    free(w->share);
    *w = (struct window){.wake = -1};
}

/* --- receiving threads ------------------------------------------------------------------------- */

void window_enter(struct window *w, struct window_thread *thread)
{
    atomic_fetch_add(&thread->visits, 1);
    thread->base = atomic_load(&w->base);
    thread->near = atomic_load_explicit(&w->near, memory_order_relaxed);
}

void window_leave(struct window_thread *thread)
{
    coding_settle();
    atomic_fetch_add(&thread->visits, 1);
}

static enum window_reason count(struct window_thread *thread, size_t source, enum window_reason reason)
{
    _Atomic uint64_t *n = &thread->count[source][reason];
    atomic_store_explicit(n, atomic_load_explicit(n, memory_order_relaxed) + 1, memory_order_relaxed);
    return reason;
}

static inline int32_t slot_of(const int32_t *slots, int64_t id)
{
    return id >= 0 && id < PACKET_MAX_IDS ? slots[id] : -1;
}

/* A vote for what most packets say: one for `at` or, as it is `far` from there, against it. */
static bool vote(struct window_source *source, _Atomic int64_t *at, int64_t sample, int64_t far)
{
    uint32_t n = atomic_load_explicit(&source->votes, memory_order_relaxed);
    bool same = n == 0 || llabs(sample - atomic_load_explicit(at, memory_order_relaxed)) <= far;
    if (n < (same ? WINDOW_MOST_VOTES : UINT32_MAX))
        atomic_store_explicit(&source->votes, same ? n + 1 : n - 1, memory_order_relaxed);
    if (same) atomic_store_explicit(at, sample, memory_order_relaxed);
    return same;
}

/* A packet near the open frames is where its source was, and against its being elsewhere. False where that
 * source is elsewhere by most of its packets: then this one is none of its. */
static bool is_where_it_was(struct window_source *source, int64_t sample)
{
    uint32_t n = atomic_load_explicit(&source->votes, memory_order_relaxed);
    int64_t doubtful = atomic_load_explicit(&source->doubtful, memory_order_relaxed);
    if (n > 0) atomic_store_explicit(&source->votes, n - 1, memory_order_relaxed);
    if (n >= WINDOW_JUMP_PACKETS) return false;
    if (n == 0 ? doubtful != INT64_MAX : sample < doubtful)
        atomic_store_explicit(&source->doubtful, n == 0 ? INT64_MAX : sample, memory_order_relaxed);
    atomic_store_explicit(&source->latest, sample, memory_order_relaxed);
    return true;
}

/* The memory of frame `number`, which is open, or NULL. The number first: when it is this frame's, so is the
 * memory, and neither what the frame before had nor what the next one gets. */
static uint8_t *memory_of(const struct window_open *open, int64_t number)
{
    if (atomic_load_explicit(&open->number, memory_order_acquire) != number) return NULL;
    return atomic_load_explicit(&open->data, memory_order_acquire);
}

/* Whether a source is absent in a frame without memory, as far as that can be said. */
static bool absent_in(const struct window_source *source, int64_t number)
{
    int64_t since = atomic_load_explicit(&source->since, memory_order_relaxed);
    return (number >= since >> 1) == ((since & 1) != 0);
}

/* Writes the payload into frame `number`, which is open. No locked operation: it would wait for all stores
 * past the caches, a fifth of the time. So two threads may write one packet that comes to both at the same
 * time; window_close sees that. */
static enum window_reason place(struct window *w, struct window_thread *thread, int64_t number, size_t block,
                                size_t slot, uint8_t *data, const uint8_t *payload)
{
    const struct packet_layout *l = w->layout;
    size_t at = block * l->receipt_bytes + slot / 8;
    uint8_t bit = (uint8_t)(1u << slot % 8);
    for (unsigned i = 0; i < w->nthreads; i++) {
        const _Atomic uint8_t *receipt = w->thread[i].receipt[number % w->nopen];
        if ((atomic_load_explicit(receipt + at, memory_order_relaxed) & bit) != 0) return WINDOW_DUPLICATE;
    }
    _Atomic uint8_t *mine = thread->receipt[number % w->nopen] + at;
    atomic_store_explicit(mine, atomic_load_explicit(mine, memory_order_relaxed) | bit, memory_order_relaxed);
    coding_convert_past_caches(CODING_INT4X2, payload, data + block * l->block_bytes + slot * l->packet_bytes,
                               l->packet_bytes);
    return WINDOW_ACCEPTED;
}

/* Wakes the stage's thread, once until it has looked. */
static void ask_to_close(struct window *w)
{
    uint64_t one = 1;
    if (atomic_load_explicit(&w->wanted, memory_order_relaxed) || atomic_exchange(&w->wanted, true)) return;
    if (write(w->wake, &one, sizeof one) < 0) return; /* it looks again after a while anyway */
}

/* The first sample of a packet by our count: WINDOW_ACCEPTED where it can be, else what becomes of it. */
static enum window_reason sample_of(const struct window *w, const struct window_thread *thread,
                                    uint64_t in_header, int64_t *sample)
{
    const struct packet_description *packet = w->packet;
    int64_t counter = packet_unwrap(in_header, packet->sequence_period, thread->near);
    if (__builtin_mul_overflow(counter, packet->sequence_samples, sample) ||
        __builtin_add_overflow(*sample, packet->sequence_offset, sample))
        return WINDOW_STRAY;
    if (thread->base < 0 && w->period > 0) { /* up to whole periods, which may hold part of a packet */
        *sample = (*sample % w->period + w->period) % w->period;
        return WINDOW_ACCEPTED;
    }
    if (*sample < 0) return WINDOW_STRAY;
    if (*sample % (int64_t)w->layout->packet_samples != 0) return WINDOW_MALFORMED;
    if (__builtin_add_overflow(*sample, atomic_load_explicit(&w->shift, memory_order_relaxed), sample) ||
        *sample < 0 || *sample > INT64_MAX / 2)
        return WINDOW_STRAY;
    return WINDOW_ACCEPTED;
}

/* The first frame lies ahead of the sources, which come from there. */
static bool is_awaited(const struct window *w, int64_t base, int64_t sample)
{
    return base == atomic_load_explicit(&w->begun, memory_order_relaxed) &&
           sample >= atomic_load_explicit(&w->from, memory_order_relaxed) - w->far;
}

enum window_reason window_packet(struct window *w, struct window_thread *thread, const uint8_t *bytes,
                                 size_t length)
{
    const struct packet_layout *l = w->layout;
    struct packet_header header;
    enum packet_verdict verdict = packet_header_read(w->packet, bytes, length, &header);
    int32_t from = header.named ? slot_of(w->source_slot, header.source) : -1;
    size_t source = from >= 0 ? (size_t)from : l->nsources;
    if (verdict == PACKET_FOREIGN) return count(thread, l->nsources, WINDOW_FOREIGN);
    if (verdict == PACKET_MALFORMED) return count(thread, source, WINDOW_MALFORMED);
    int32_t stream = slot_of(w->stream_slot, header.stream);
    if (from < 0 || stream < 0) return count(thread, source, WINDOW_FOREIGN);
    struct window_source *s = &w->source[from];
    int64_t sample, frame_samples = (int64_t)l->frame_samples;
    enum window_reason can = sample_of(w, thread, header.counter, &sample);
    int64_t number = can == WINDOW_ACCEPTED ? sample / frame_samples : INT64_MAX / 2;
    int64_t ahead = number - thread->base;
    bool is_open = can == WINDOW_ACCEPTED && thread->base >= 0 && ahead >= 0 && ahead < w->nopen;
    const struct window_open *open = is_open ? &w->open[number % w->nopen] : NULL;
    uint8_t *data = is_open ? memory_of(open, number) : NULL;
    if (data != NULL ? open->absent[from] : absent_in(s, number))
        return count(thread, source, WINDOW_FOREIGN);
    if (can != WINDOW_ACCEPTED) return count(thread, source, can);
    thread->sample = sample;
    thread->from = source;
    thread->slot = source * l->nstreams + (size_t)stream;
    if (thread->base < 0) {
        if (!vote(s, &s->latest, sample, w->far))
            atomic_store_explicit(&s->elsewhere, sample, memory_order_relaxed);
        return count(thread, source, WINDOW_EARLY);
    }
    int64_t in_frame = sample % frame_samples, begin = thread->base * frame_samples;
    int64_t beyond = sample - begin - (int64_t)w->nopen * frame_samples;
    bool far = beyond >= w->far || (begin - sample > w->far && !is_awaited(w, thread->base, sample));
    if (far) vote(s, &s->elsewhere, sample, w->far);
    if (far || !is_where_it_was(s, sample)) return count(thread, source, WINDOW_STRAY);
    if (verdict == PACKET_FLAGGED) return count(thread, source, WINDOW_FLAGGED);
    if (ahead < 0) {
        bool before = number < atomic_load_explicit(&w->begun, memory_order_relaxed);
        return count(thread, source, before ? WINDOW_EARLY : WINDOW_LATE);
    }
    if (ahead > 1 || (ahead == 1 && in_frame >= w->hold)) ask_to_close(w);
    if (data == NULL && w->keeps_ahead) return WINDOW_NO_FRAME;
    if (data == NULL)
        return count(thread, source,
                     (enum window_reason)atomic_load_explicit(&w->lacking, memory_order_relaxed));
    size_t block = (size_t)in_frame / l->packet_samples;
    return count(thread, source, place(w, thread, number, block, thread->slot, data, header.payload));
}

void window_damaged(struct window *w, struct window_thread *thread)
{
    count(thread, w->layout->nsources, WINDOW_MALFORMED);
}

/* --- the stage's thread ------------------------------------------------------------------------ */

uint64_t window_count(const struct window *w, size_t source, enum window_reason reason)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < w->nthreads; i++)
        sum += atomic_load_explicit(&w->thread[i].count[source][reason], memory_order_relaxed);
    if (source < w->layout->nsources && reason == WINDOW_ACCEPTED)
        sum -= w->together[source] + w->disowned[source];
    if (source < w->layout->nsources && reason == WINDOW_STRAY) sum += w->disowned[source];
    if (source < w->layout->nsources && reason == WINDOW_DUPLICATE) sum += w->together[source];
    return sum;
}

void window_set_near(struct window *w, int64_t sample)
{
    const struct packet_description *p = w->packet;
    int64_t counted = sample - atomic_load(&w->shift) - p->sequence_offset;
    atomic_store(&w->near, counted > 0 ? counted / p->sequence_samples : 0);
}

static void set_base(struct window *w, int64_t base)
{
    window_set_near(w, base * (int64_t)w->layout->frame_samples);
    atomic_store(&w->base, base);
}

void window_forget(struct window *w, int64_t sample)
{
    size_t n = w->layout->nsources;
    for (unsigned i = 0; i < w->nthreads; i++)
        for (size_t s = 0; s <= n; s++)
            for (int r = 0; r < WINDOW_NREASONS; r++) atomic_store(&w->thread[i].count[s][r], 0);
    for (size_t s = 0; s < n; s++)
        if (atomic_load(&w->source[s].latest) != INT64_MIN) atomic_store(&w->source[s].latest, sample);
}

void window_wait(struct window *w, int ms)
{
    uint64_t n;
    struct pollfd wait = {.fd = w->wake, .events = POLLIN};
    if (poll(&wait, 1, ms) == 1 && read(w->wake, &n, sizeof n) < 0) return;
    atomic_store(&w->wanted, false);
}

void window_begin(struct window *w, int64_t first)
{
    for (size_t s = 0; s < w->layout->nsources; s++) {
        atomic_store(&w->source[s].votes, 0);
        atomic_store(&w->source[s].doubtful, INT64_MAX);
    }
    w->disowns = false;
    atomic_store(&w->begun, first);
    set_base(w, first);
}

/* Until no receiving thread is inside that was when this was called. */
static void wait_for_threads(const struct window *w)
{
    for (unsigned i = 0; i < w->nthreads; i++) {
        uint64_t visits = atomic_load(&w->thread[i].visits);
        while (visits % 2 == 1 && atomic_load(&w->thread[i].visits) == visits) sched_yield();
    }
}

void window_expect(struct window *w, int64_t number, const bool *absent)
{
    for (size_t s = 0; s < w->layout->nsources; s++) {
        if (w->absent[s] == absent[s]) continue;
        w->absent[s] = absent[s];
        int64_t since = (int64_t)((uint64_t)number << 1 | absent[s]);
        atomic_store_explicit(&w->source[s].since, since, memory_order_relaxed);
    }
}

void window_give(struct window *w, int64_t number, struct br_frame *frame)
{
    struct window_open *open = &w->open[number % w->nopen];
    open->frame = frame;
    memcpy(open->absent, w->absent, w->layout->nsources * sizeof *w->absent);
    for (unsigned i = 0; i < w->nthreads; i++)
        memset((void *)w->thread[i].receipt[number % w->nopen], 0,
               w->layout->nblocks * w->layout->receipt_bytes);
    atomic_store_explicit(&open->number, number, memory_order_release);
    atomic_store_explicit(&open->data, frame->data, memory_order_release);
}

static bool has_packet(const uint8_t *receipt, size_t slot)
{
    return (receipt[slot / 8] >> slot % 8 & 1) != 0;
}

/* The receipts of all threads in one. A packet that two threads wrote at the same time counts once. */
static void join_receipts(struct window *w, int64_t number, uint8_t *receipt)
{
    const struct packet_layout *l = w->layout;
    memset(receipt, 0, l->nblocks * l->receipt_bytes);
    for (unsigned i = 0; i < w->nthreads; i++) {
        const uint8_t *one = (const uint8_t *)w->thread[i].receipt[number % w->nopen];
        for (size_t at = 0; at < l->nblocks * l->receipt_bytes; at++) {
            unsigned both = receipt[at] & one[at];
            for (size_t slot = at % l->receipt_bytes * 8; both != 0; both >>= 1, slot++)
                w->together[slot / l->nstreams] += both & 1;
            receipt[at] |= one[at];
        }
    }
}

/* Sources have jumped: what was taken since they began to be elsewhere is somebody else's. */
static void leave_out_doubtful(struct window *w, const struct br_frame *frame)
{
    const struct packet_layout *l = w->layout;
    for (size_t s = 0; s < l->nsources; s++)
        for (size_t b = 0; b < l->nblocks; b++) {
            uint8_t *receipt = (uint8_t *)frame->side + b * l->receipt_bytes;
            if ((int64_t)(frame->first + b * l->packet_samples) < atomic_load(&w->source[s].doubtful))
                continue;
            for (size_t k = s * l->nstreams; k < (s + 1) * l->nstreams; k++) {
                w->disowned[s] += has_packet(receipt, k);
                receipt[k / 8] &= (uint8_t) ~(1u << k % 8);
            }
        }
}

/* Counts what is missing of a frame in which some sources are absent, and writes the share of the inputs that
 * came: blocks x packet_samples rows. */
static void set_validity(struct window *w, const struct br_stream *stream, struct br_frame *frame,
                         const bool *absent)
{
    const struct packet_layout *l = w->layout;
    size_t expected = 0, nslots = l->nsources * l->nstreams, lacking = 0;
    for (size_t s = 0; s < l->nsources; s++) expected += !absent[s];
    for (size_t b = 0; b < l->nblocks; b++)
        for (size_t k = 0; k < l->receipt_bytes; k++)
            lacking += (size_t)__builtin_popcount(((const uint8_t *)frame->side)[b * l->receipt_bytes + k]);
    lacking = expected * l->nstreams * l->nblocks - lacking;
    frame->complete = lacking == 0;
    frame->missing = 0;
    for (size_t b = 0; b < l->nblocks && lacking > 0; b++) {
        const uint8_t *receipt = (const uint8_t *)frame->side + b * l->receipt_bytes;
        uint8_t *row = frame->valid + b * l->packet_samples * l->nchannels;
        size_t here = 0;
        for (size_t k = 0; k < nslots; k++) {
            bool there = has_packet(receipt, k);
            here += there;
            if (!there && !absent[k / l->nstreams]) w->missing[k / l->nstreams]++;
        }
        if (here == expected * l->nstreams) {
            memset(row, BR_VALID, l->packet_samples * l->nchannels);
            continue;
        }
        for (size_t j = 0; j < l->nstreams; j++) {
            size_t came = 0;
            for (size_t s = 0; s < l->nsources; s++) came += has_packet(receipt, s * l->nstreams + j);
            w->share[j] = br_validity(came, expected);
        }
        for (size_t f = 0; f < l->nchannels; f++) row[f] = w->share[l->channel_stream[f]];
        for (size_t t = 1; t < l->packet_samples; t++) memcpy(row + t * l->nchannels, row, l->nchannels);
    }
    br_frame_close_validity(stream, frame);
}

struct br_frame *window_close(struct window *w, const struct br_stream *stream)
{
    int64_t number = atomic_load(&w->base);
    struct window_open *open = &w->open[number % w->nopen];
    set_base(w, number + 1);
    wait_for_threads(w);
    struct br_frame *frame = open->frame;
    atomic_store(&open->data, NULL);
    open->frame = NULL;
    if (frame == NULL) return NULL;
    frame->first = (uint64_t)number * w->layout->frame_samples;
    frame->samples = w->layout->frame_samples;
    join_receipts(w, number, frame->side);
    if (w->disowns) leave_out_doubtful(w, frame);
    set_validity(w, stream, frame, open->absent);
    return frame;
}

void window_set_shift(struct window *w, int64_t shift)
{
    atomic_store(&w->shift, shift);
    wait_for_threads(w);
    for (size_t s = 0; s < w->layout->nsources; s++) atomic_store(&w->source[s].latest, INT64_MIN);
}

/* Blocks up to the last one with a packet. */
static size_t blocks_with_packets(const struct packet_layout *l, const uint8_t *receipt)
{
    size_t bytes = l->nblocks * l->receipt_bytes;
    while (bytes > 0 && receipt[bytes - 1] == 0) bytes--;
    return (bytes + l->receipt_bytes - 1) / l->receipt_bytes;
}

bool window_has_packets(const struct window *w, int64_t number)
{
    bool any = false;
    if (w->open[number % w->nopen].frame == NULL) return false;
    for (unsigned i = 0; i < w->nthreads && !any; i++)
        any = blocks_with_packets(w->layout, (const uint8_t *)w->thread[i].receipt[number % w->nopen]) > 0;
    return any;
}

void window_trim(const struct window *w, const struct br_stream *stream, struct br_frame *frame)
{
    const struct packet_layout *l = w->layout;
    const bool *absent = w->open[frame->first / l->frame_samples % w->nopen].absent;
    size_t blocks = blocks_with_packets(l, frame->side), cut = l->nblocks - blocks;
    for (size_t s = 0; s < l->nsources; s++)
        if (!absent[s]) w->missing[s] -= cut * l->nstreams;
    frame->samples = blocks * l->packet_samples;
    br_frame_close_validity(stream, frame);
}
