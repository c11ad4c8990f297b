/* verdict.h - where a pipeline is held up, and why, in one sentence; from a view alone. */
#ifndef BEAMRING_RUNTIME_CONTROL_VERDICT_H
#define BEAMRING_RUNTIME_CONTROL_VERDICT_H

#include "runtime/control/view.h"

enum queue_state {
    QUEUE_IDLE,    /* nothing moves, and nobody waits for it */
    QUEUE_FLOWING, /* frames move */
    QUEUE_FULL,    /* its producer waits for a free frame most of the time */
    QUEUE_STARVED  /* nothing moves, and its readers wait */
};
extern const char *const queue_state_name[4];

enum queue_state queue_state(const struct br_view *view, size_t queue);

enum verdict_kind {
    VERDICT_FLOWS,   /* all is well */
    VERDICT_LIMITS,  /* frames move, as fast as one stage lets them */
    VERDICT_TROUBLE, /* frames move, but something is missing, or gets lost */
    VERDICT_HOLDS,   /* nothing moves because of one stage */
    VERDICT_NO_DATA, /* nothing moves because a source gives nothing */
    VERDICT_FAILED,  /* a stage has failed */
    VERDICT_ENDED    /* all stages have ended */
};
extern const char *const verdict_kind_name[VERDICT_ENDED + 1];

struct verdict {
    enum verdict_kind kind;
    int stage;          /* to blame; -1: none */
    int queue;          /* where frames wait; -1: none */
    double since_s;     /* how long it has been so; 0: not known */
    char cause[320];    /* "it waits for the disk"; "" where all is well */
    char sentence[512]; /* "record holds the pipeline up: it waits for the disk; queue 'beams' is full" */
};

void verdict_make(const struct br_view *view, struct verdict *verdict);

/* The stage without inputs, or without outputs, through which nothing has come for longer than `late_s`
 * and three frames' time, or never; *silence is how long, in s. NULL: there is none. */
const char *view_silent_stage(const struct br_view *view, double late_s, double *silence);

/* Shares of the last seconds, 0 to 1: in process, waiting for input, waiting for a free frame, on the GPU
 * (mean time of sampled calls x calls). `works` is the part of `busy` with a processor: the rest is waits in
 * process, for a disk, packets or a GPU. `clamped` is a share of the values that left. */
struct view_shares {
    double busy, works, wait_in, wait_out, gpu, clamped;
    double gpu_s_per_call, busy_s_per_frame;
};
void view_stage_shares(const struct br_view *view, size_t stage, struct view_shares *shares);

/* Telescope time per time over the last seconds. */
double view_real_time_factor(const struct br_view *view);

#endif
