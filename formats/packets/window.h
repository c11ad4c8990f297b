/* window.h - the frames that are being filled, and where each packet goes.
 *
 * THREADS. Receiving threads call window_enter, window_packet for each packet, window_leave; each has
 * a struct window_thread of its own. One other thread, the stage's, gives frames (window_give), looks
 * whether the oldest one can be closed (window_look) and closes it (window_close), which waits until
 * no receiving thread is inside that was there before: then nobody writes into the frame any more.
 * Receiving threads take no lock.
 *
 * TIME. A packet says its first sample by a counter; its sample is offset + samples x counter + shift,
 * where the shift is 0 until a reset. Before the first frame the sample is known up to whole periods of the
 * counter, and window_position gives it within the first one: window_begin says which period it is
 * (sample_clock.h knows). From then on the counter may start again. One header may lie, so nothing moves by
 * what one packet says:
 * the oldest frame is closed when most of the sources that send are past its end by `hold` samples,
 * and a jump is believed when of most of them several packets more were at one place far from the open
 * frames than were not.
 *
 * WHO IS EXPECTED. The layout says which sources are absent at first, and window_expect with which frame that
 * changes. The packets that are taken and expected in a frame depend on the frame alone: it keeps the flags
 * that held when it got memory. A packet for a frame without memory is not taken in any case; in which
 * counter it is, follows from the latest change of its source. */
#ifndef BEAMRING_FORMATS_PACKETS_WINDOW_H
#define BEAMRING_FORMATS_PACKETS_WINDOW_H

#include "buffers/frame.h"
#include "formats/packets/header.h"
#include "formats/packets/layout.h"

#include <stdatomic.h>

enum { WINDOW_MAX_OPEN = 8, WINDOW_MAX_THREADS = 64 };
/* So many votes of a source are a majority, and no more than MOST_VOTES are counted: it may come back. */
enum { WINDOW_JUMP_PACKETS = 4, WINDOW_MOST_VOTES = 6 };

/* The counter of a packet: each packet is in exactly one. X(NAME, name, text) */
#define WINDOW_REASONS(X)                                                                                    \
    X(ACCEPTED, "accepted", "written into a frame")                                                          \
    X(LATE, "late", "their frame had been published")                                                        \
    X(DUPLICATE, "duplicate", "their samples had arrived before")                                            \
    X(FOREIGN, "foreign", "of another protocol, source or stream")                                           \
    X(MALFORMED, "malformed", "they have an impossible length or number")                                    \
    X(FLAGGED, "flagged", "the sender marked the data as bad")                                               \
    X(STRAY, "stray", "their sequence number was far from the others'")                                      \
    X(NO_FRAME, "no_frame", "no frame was free: a later stage is too slow")                                  \
    X(BEHIND, "behind", "frames were free, but capture's own thread was not run in time")                    \
    X(EARLY, "early", "they precede the first frame")
enum window_reason {
#define WINDOW_REASON(NAME, name, text) WINDOW_##NAME,
    WINDOW_REASONS(WINDOW_REASON)
#undef WINDOW_REASON
        WINDOW_NREASONS
};
extern const char *const window_reason_name[WINDOW_NREASONS];

struct window_thread {
    _Atomic uint64_t visits;                    /* odd while it is inside */
    _Atomic uint64_t (*count)[WINDOW_NREASONS]; /* [nsources + 1]: by source; the last: of no known source */
    _Atomic uint8_t
        *receipt[WINDOW_MAX_OPEN]; /* what this thread wrote, as in layout.h; frame n at n % nopen */
    int64_t base, near;            /* as of window_enter */
    int64_t sample;                /* of the last packet that was one of this node's, */
    size_t from, slot;             /* and the place of its source, and of source and stream, in the layout */
    char room[64];                 /* keeps threads' counters out of each other's cache lines */
};

/* Where a source is goes by majority: another F-engine may send with the same ids. */
struct window_source {
    /* First sample of its latest packet near the open frames (before the first frame: where most of its
     * packets were); INT64_MIN: none yet */
    _Atomic int64_t latest;
    _Atomic int64_t elsewhere; /* of its latest packet far from there; INT64_MIN: none yet */
    /* By how many more packets were at `elsewhere` (before the first frame: at `latest`) than were not */
    _Atomic uint32_t votes;
    _Atomic int64_t doubtful; /* first sample of those taken since that vote began; INT64_MAX: none */
    /* 2 x the first frame in which it is as it is now, and 1 more if that is absent; in frames before that it
     * was the other way round */
    _Atomic int64_t since;
};

struct window {
    const struct packet_description *packet;
    const struct packet_layout *layout;
    int32_t *source_slot, *stream_slot; /* [PACKET_MAX_IDS] or -1 */
    unsigned nopen, nthreads;
    int64_t hold, far; /* samples */
    int64_t period;    /* samples after which the counter starts again; 0: never */
    bool keeps_ahead;  /* a packet for which there is no frame is not counted: who fills offers it again */
    _Atomic int
        lacking; /* enum window_reason that packets get if their frame has no memory; NO_FRAME at first */
    struct window_thread *thread; /* [nthreads] */
    struct window_source *source; /* [nsources] */

    _Atomic int64_t base;  /* number of the oldest open frame; < 0: nothing is taken yet */
    _Atomic int64_t begun; /* the first frame, at the beginning or after a jump */
    _Atomic int64_t from;  /* after a jump: the sample from which the sources go on to the first frame */
    _Atomic int64_t near;  /* an unwrapped counter near the open frames; before them, half a period */
    _Atomic int64_t shift;
    struct window_open {
        _Atomic int64_t number;  /* of the frame that had memory last; -1: none */
        _Atomic(uint8_t *) data; /* NULL: there is no memory for it */
        struct br_frame *frame;
        bool *absent;        /* [nsources] in this frame; changes only while there is no memory */
    } open[WINDOW_MAX_OPEN]; /* frame n at n % nopen */
    bool *absent;            /* [nsources] in frames that get memory from now on */

    _Atomic bool wanted; /* a packet came that may close the oldest frame, and `wake` says so */
    int wake;            /* an eventfd */
    uint64_t *seen;      /* [nsources] packets at the last look at who sends */
    bool *live;          /* [nsources] */
    uint64_t *missing;   /* [nsources] packets of published frames that are not there */
    uint64_t
        *together; /* [nsources] packets that two threads took, and counted as accepted, at the same time */
    uint64_t *disowned; /* [nsources] doubtful packets that were taken out of a frame again: strays */
    bool disowns;       /* sources have jumped: what is doubtful is taken out of frames that are closed now */
    uint8_t *share;     /* [nstreams] of one block */
};

/* Errors: BR_E_NO_MEMORY. window_free in any case. */
int window_make(struct window *window, const struct packet_description *packet,
                const struct packet_layout *layout, unsigned nopen, unsigned nthreads,
                struct br_error *error);
void window_free(struct window *window);

/* --- receiving threads */
void window_enter(struct window *window, struct window_thread *thread);
enum window_reason window_packet(struct window *window, struct window_thread *thread, const uint8_t *bytes,
                                 size_t length);
/* A packet whose checksum is wrong: malformed, of no known source. */
void window_damaged(struct window *window, struct window_thread *thread);
void window_leave(struct window_thread *thread);

/* --- the stage's thread */

/* Until a packet came that may close the oldest frame, or `ms` are over. */
void window_wait(struct window *window, int ms);

/* Where the sources are: the sample that most of those that send have reached (the median of their
 * latest packets). False when fewer than `least` have sent anything. */
bool window_position(const struct window *window, size_t least, int64_t *sample);

/* Before the first frame: whether a source has sent, and all its packets agree where it is, or several more
 * do than do not. */
bool window_is_sure(const struct window *window, size_t source);

/* Sources that sent since the last call. */
size_t window_look_who_sends(struct window *window);

/* For a reader of files: all sources that have sent count as sending. */
void window_mark_all_live(struct window *window);

/* As if nothing had come yet, but that those that have sent are waited for, from `sample` on. Before
 * window_begin. */
void window_forget(struct window *window, int64_t sample);

/* Begins with frame `first`; nothing is taken before it. */
void window_begin(struct window *window, int64_t first);

/* From now on samples are `shift` more than the counters say. Where sources have been says nothing of
 * where they are. */
void window_set_shift(struct window *window, int64_t shift);

/* Packets that come now are near this sample, though no frame has been closed: after a silence of a good part
 * of a period of the counter. */
void window_set_near(struct window *window, int64_t sample);

/* True when most live sources are past the end of the oldest frame by `hold`. */
bool window_is_due(const struct window *window);

/* True when most live sources have jumped; *sample is where they are, without the shift. */
bool window_has_jumped(const struct window *window, int64_t *sample);

/* From frame `number` on, which has no memory yet, these sources are absent: [nsources], copied. */
void window_expect(struct window *window, int64_t number, const bool *absent);

/* Memory for the open frame `number`, from now on. */
void window_give(struct window *window, int64_t number, struct br_frame *frame);

/* The oldest frame is done: fills in its info and validity, and moves on by one. Returns NULL when it
 * had no memory. */
struct br_frame *window_close(struct window *window, const struct br_stream *stream);

/* True when frame `number`, which is open, has any packet. */
bool window_has_packets(const struct window *window, int64_t number);

/* Cuts the frame that was closed last, and has packets, behind its last one. */
void window_trim(const struct window *window, const struct br_stream *stream, struct br_frame *frame);

/* Sum of a counter over all threads; source nsources: of no known source. */
uint64_t window_count(const struct window *window, size_t source, enum window_reason reason);

#endif
