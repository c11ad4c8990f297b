/* inject.h - inside the stage: events, the thread that plans them and keeps the ledger, and what adds them to
 * the field.
 *
 * An event goes one way: the thread makes it (plan.c), writes it into the ledger as scheduled and hands it to
 * the stage's thread, which adds it to the field (add.c) and hands it back; the thread predicts its S/N
 * (predict.c) and writes what became of it (ledger.c). So the stage never waits for a disk that hangs, and
 * nothing is added that the ledger does not know. */
#ifndef BEAMRING_STAGES_INJECT_INJECT_H
#define BEAMRING_STAGES_INJECT_INJECT_H

#include "kernels/inject/inject.h"
#include "runtime/stage.h"
#include "stages/common/sky/burst.h"
#include "stages/common/sky/towards.h"

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
    INJECT_NOISE = BR_INJECT_NOISE, /* samples before a burst, in each channel, that show the noise */
    INJECT_ID = 80,
    INJECT_PRODUCTS = 4 /* streams of beams for which S/N is predicted */
};

/* --- parameters --- */

struct inject_burst {
    struct br_towards towards; /* the first member: BR_TOWARDS_PARAMS */
    const char *id;
    int64_t sample, beam;
    double dm, width_s, scattering_s, fluence_s, snr, index, at_mhz;
};

struct inject_schedule {
    double per_hour, radius;
    int64_t seed;
    struct br_ints beams;
    struct br_maps towards;
    struct br_reals snr, dm, width_s, scattering_s, index;
};

/* --- events --- */

enum inject_state { INJECT_SCHEDULED, INJECT_INJECTED, INJECT_PARTLY, INJECT_REFUSED, INJECT_STATES };

/* The corrections that stages behind multiply the field by: a burst is divided by them. Shared by events. */
struct inject_gains {
    _Atomic unsigned users;
    size_t nfreq;  /* 1: the same in all channels */
    float value[]; /* [nfreq][pol][dish][2] */
};

struct inject_event {
    struct inject_event *next;
    char id[INJECT_ID], why[240];
    enum inject_state state;
    uint64_t sample; /* of the maximum at ref_mhz */
    /* Where it comes from: from the beam's or the source's direction, until it is accepted. */
    double x, y, wanted_snr, fluence_s, index;
    int64_t beam; /* -1: none */
    struct sky_source source;
    struct burst_params burst;
    struct inject_gains *gains; /* NULL: all are 1 */
    uint64_t begin, end;        /* base samples that it touches, with those before it that show the noise;
                                 * known from the start */

    /* made when it is accepted; add.c */
    size_t nworkers;
    struct burst_maker *maker; /* [nworkers] */
    int64_t *first, *last;     /* [freq] base samples [first, last) that the burst has in each channel */
    uint32_t *measured;        /* [freq] samples before it over which the noise is measured */
    double *full, *seen;       /* [freq][pol] energy of the burst; of this, while the channel was there */
    void *sums, *device;       /* br_inject_sums: of the host, and of a GPU where they are made there */
    struct br_cuda *cuda;      /* on a GPU: of `device` */
    void *stream;              /* on a GPU: of the stage */

    /* of the host's sums, when it is over */
    const uint32_t *power; /* [freq][pol][dish] sum of |E|^2 before it, over `measured` samples */
    const uint64_t *lost;  /* [freq][pol][dish] of the burst's energy, while the input was missing, 2^-24 */
    uint64_t clipped;      /* components that it took beyond the levels */
};

/* A stream of beams behind the stage. */
struct inject_product {
    const char *stage;
    const struct br_stream *stream;
};

struct inject {
    /* parameters */
    struct br_maps bursts;
    const struct inject_schedule *schedule;
    const char *ledger, *gains_file;
    int64_t seed;

    size_t nchannels, npol, ndishes;
    double sample_s, top_mhz, low_mhz, high_mhz; /* the band; the centre of the highest channel */
    const struct br_stream *stream;
    const struct apparent_site *site; /* NULL: not known, and nothing is followed */
    size_t nproducts;
    struct inject_product product[INJECT_PRODUCTS];
    int16_t *normal; /* [GAUSSIAN_ENTRIES] */
    struct inject_adder *adder;
    struct inject_planner *planner;
    size_t ngains;               /* frequencies of */
    const float *gain;           /* [ngains][pol][dish][2], as read; NULL: all are 1 */
    struct inject_gains *gains;  /* of an update, until it is committed */
    struct inject_event *fresh;  /* of an update, until it is committed */
    struct inject_event *active; /* of the stage's thread: accepted, in order of `begin` */
    bool troubled;
};

/* --- plan.c: events from parameters --- */

/* Checks what does not depend on the pipeline, and finds the site. Errors are the stage's, at `bursts` or
 * `schedule`. */
int inject_check(struct br_stage *stage, struct inject *s);

/* Events of the parameter `bursts`, in its order; NULL: there are none, or no memory (*failed). */
struct inject_event *inject_events(const struct inject *s, bool *failed);

/* The event of slot k of the schedule; NULL: no memory. */
struct inject_event *inject_draw(const struct inject *s, uint64_t k);

/* Base samples of a slot of the schedule. */
double inject_slot(const struct inject *s);

/* Base samples by which a scheduled event begins before its `sample` at most. */
double inject_lead(const struct inject *s);

/* The event becomes refused, and `why` the text. False. */
bool inject_refuse(struct inject_event *event, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Gives the event its direction, strength and memory. False: it is refused, and `why` says why. */
bool inject_accept(const struct inject *s, struct inject_event *event, unsigned nworkers);
void inject_event_free(struct inject_event *event);

/* A copy of the gains that were read, for one user; NULL: all are 1, or no memory (*failed). */
struct inject_gains *inject_gains_make(const struct inject *s, bool *failed);

/* One user less; NULL is allowed. */
void inject_gains_leave(struct inject_gains *gains);

/* 1 / gain of an input, and |gain|^2. False: the gain is 0, and the input is not used. */
bool inject_gain(const struct inject *s, const struct inject_event *event, size_t channel, size_t pol,
                 size_t dish, double inverse[2], double *power);

/* --- predict.c --- */

/* Flux at the maximum before scattering at f_mhz, in units of an input's mean noise. */
double inject_flux(const struct inject_event *event, double f_mhz);

/* Fills steps[freq], which inject_snr needs: for each channel the sum over the steps of the product of
 * (share of the fluence)^2 / base samples of a step. */
void inject_steps(const struct inject *s, const struct inject_event *event,
                  const struct inject_product *product, double *steps);

/* Where the product's beams look at base sample `sample`; free() it. NULL: no memory. */
struct br_beam *inject_beams(const struct inject_product *product, uint64_t sample);

/* S/N that a filter of the burst's shape has in a beam of the product that looks there: of all inputs with
 * equal noise (`measured` false), or of those that were there. One channel of `stride` stands for its
 * neighbours. Below the horizon (NAN): 0. */
double inject_snr(const struct inject *s, const struct inject_event *event,
                  const struct inject_product *product, const double *steps, struct br_beam look,
                  size_t stride, bool measured);

/* --- planner.c: the thread --- */

struct inject_planner;

/* Opens the ledger and starts the thread. `events`: those of the pipeline file. Errors are the stage's. */
int inject_planner_start(struct br_stage *stage, struct inject *s);
void inject_planner_stop(struct br_stage *stage, struct inject *s);

/* More events; the list changes its owner. They must begin at `sample` or later. */
void inject_planner_add(struct inject *s, struct inject_event *events, uint64_t sample);

/* Exchanges the gains of events that are accepted from now on with *gains. */
void inject_planner_exchange(struct inject *s, struct inject_gains **gains);

/* For a frame [first, end): the events that begin before `end`, as far as the ledger has them; from now on
 * none is accepted that does. Waits for the thread only with events that are due, and not for a disk that
 * hangs. */
struct inject_event *inject_planner_take(struct br_stage *stage, struct inject *s, uint64_t first,
                                         uint64_t end);

/* Events with which the stage has done; the list changes its owner. */
void inject_planner_give(struct inject *s, struct inject_event *events);

/* GET /v1/injections; ledger.c. */
int inject_request(struct br_stage *stage, void *self, const char *what, const char *text, char **reply);

/* --- add.c --- */

/* For start and stop, and the memory between them: s->adder. Errors are the stage's. */
int inject_adder_start(struct br_stage *stage, struct inject *s);
void inject_adder_stop(struct br_stage *stage, struct inject *s);
void inject_adder_memory(struct br_stage *stage, const struct inject *s, struct br_memory *memory);

/* Adds what the active events have in the span of `in` to out->data, [time][freq][pol][dish] in the memory of
 * the stage's frames. Enqueued on a GPU. Returns a status. */
int inject_add(struct br_stage *stage, struct inject *s, const struct br_frame *in,
               const struct br_frame *out);

/* Zeroed sums of an event. False: no memory. */
bool inject_sums_make(const struct inject *s, struct inject_event *event);
void inject_sums_free(struct inject_event *event);

/* When the stage has done with the event: takes its sums, on a GPU when that has done with it, too. Any
 * thread. False with `why`: a GPU has failed. */
bool inject_settle(const struct inject *s, struct inject_event *event, struct br_why *why);

/* The share of a settled burst in a line (channel x polarisations + polarisation) for which a dish was
 * there. */
double inject_there(const struct inject *s, const struct inject_event *event, size_t line, size_t dish);

/* In the ledger's words: "scheduled", ... */
extern const char *const inject_state_name[INJECT_STATES];

#endif
