/* capture.h - inside the stage: its parameters and what it keeps. */
#ifndef BEAMRING_STAGES_CAPTURE_CAPTURE_H
#define BEAMRING_STAGES_CAPTURE_CAPTURE_H

#include "formats/common/sample_clock.h"
#include "runtime/stage.h"
#include "stages/capture/counters.h"
#include "stages/capture/epoch.h"
#include "stages/capture/receiver.h"
#include "stages/common/stage/packet.h"

enum capture_state { CAPTURE_WAITING, CAPTURE_RUNNING, CAPTURE_FLUSHING };

struct capture {
    /* parameters */
    const char *packet, *backend, *values, *real, *sideband, *start_utc, *on_reset, *epoch_url;
    struct br_strings addresses, interfaces;
    struct br_ints sources, streams, absent;
    int64_t threads, frame_samples, open, hold_samples, start_sample, reset_samples, receive_buffer;
    double start_s, wait_s, idle_s;

    struct packet_description *description;
    struct packet_layout layout; /* with `absent` as the stream begins; window.absent is what holds */
    struct window window;
    struct receiver *receiver; /* [nreceivers] */
    unsigned nreceivers;
    struct epoch_watch *watch;
    int64_t epoch_ns;       /* of the stream */
    uint64_t asked;         /* attempts after which the controller has been asked about a jump */
    int64_t shift_epoch_ns; /* by which the counters are counted now: another one after they began again */
    bool by_clock;          /* by no epoch: the controller has not said yet when they did, */
    bool anew;              /* or has just said it */
    uint64_t doubt_ns;    /* when the run began by packets that this machine's clock did not confirm, or 0 */
    bool confirmed;       /* it did so since */
    uint64_t foreign_ns;  /* when most packets were last taken for another F-engine's */
    int64_t clock_sample; /* from where on the count is as it is now */
    struct sample_clock clock;

    enum capture_state state;
    bool started, ready, ending, said, said_begin;
    const char *periods_by; /* what says how often the counter had started again; NULL: it does not */
    uint64_t begun_ns, first_ns, called_ns, look_ns, warn_ns; /* CLOCK_MONOTONIC */
    uint64_t heard;      /* packets by the last call, which was at called_ns */
    uint64_t quiet_ns;   /* looked on while nothing came */
    size_t live;         /* sources that sent between the last two looks */
    int64_t given;       /* the next frame that gets memory */
    uint64_t waited;     /* looks while nothing had begun yet */
    unsigned ngiven;     /* frames that have memory and are not published */
    int64_t skip_to;     /* frames before it get none: most sources are past them */
    int64_t resume_raw;  /* where the sources are after a jump, without the shift */
    int64_t last_sample; /* behind the last frame that was published */
    uint64_t last_ns;    /* and when */
    int64_t mark_sample; /* where most sources were when a frame was closed because they had passed it */
    uint64_t mark_ns;    /* and when */
    uint64_t resets, told[6];
    struct br_error reopening; /* why a new interface is not listened to yet */
    struct capture_nic *nic;   /* [nnics] interfaces that are named */
    size_t nnics;
    uint64_t *seen_ns; /* [nsources] when packets of the source were last seen */
    bool *quiet;       /* [nsources] the log knows that it is silent */
};

/* open.c: addresses and interfaces agree (status); all receivers are opened in the way that `backend`
 * names, or in the first that works (a br_status; what was opened is closed again when one fails); what is
 * listened to is said, once, when packets may be sent. */
int capture_check_addresses(struct br_stage *stage, struct capture *c);
int capture_open_first(struct br_stage *stage, struct capture *c, struct br_error *error);
/* An interface that was removed and made anew is listened to again. */
void capture_look_for_interfaces(struct br_stage *stage, struct capture *c);
void capture_say_ready(struct br_stage *stage, struct capture *c);

/* begin.c: the sample at which the sources are, which the window knows up to periods of the counter, and what
 * says so. 1 where the clock does not confirm it, and `wait`: sources that it confirms may yet be heard. */
int capture_place(struct br_stage *stage, struct capture *c, bool wait, int64_t *sample);
/* The stream begins with this frame: says when that was taken. */
void capture_say_begin(struct br_stage *stage, struct capture *c, int64_t frame);

/* jump.c: most sources are at this sample now. */
void capture_mark(struct capture *c, int64_t sample);
/* The state is CAPTURE_FLUSHING when most sources have jumped, or the time is better known. */
int capture_look_for_jump(struct br_stage *stage, struct capture *c);
/* After the frames before it are gone: the stream goes on, unless the controller has still to be asked. Fails
 * where it would go back by more than can be waited for. */
int capture_resume(struct br_stage *stage, struct capture *c);

/* capture.c: the stream begins, or goes on, with this frame. */
void capture_begin_with(struct br_stage *stage, struct capture *c, int64_t frame);

/* report.c: warnings while it runs (once a minute at most) and the balance of packets at the end. */
void capture_warn(struct br_stage *stage, struct capture *c, uint64_t now);
/* Says for the node's status what does not come; after window_look_who_sends. */
void capture_say_who_is_silent(struct br_stage *stage, struct capture *c, uint64_t now);
void capture_report(struct br_stage *stage, const struct capture *c);

/* Packets of published frames that came in no form, while their source was expected. */
uint64_t capture_never_came(const struct capture *c, size_t source);

/* Packets that were received, whatever became of them. */
uint64_t capture_packets(const struct capture *c);

#endif
