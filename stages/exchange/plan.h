/* plan.h - the data of each rank before and after the exchange, and the layout of a part of a frame.
 *
 * All channels and beams of the job form a plane, freq x beam. Each rank has one rectangle of it before the
 * exchange and another one afterwards. Rank s sends to rank d the intersection of its own first rectangle
 * with the second one of d. All other axes, including time, are complete within a frame. */
#ifndef BEAMRING_STAGES_EXCHANGE_PLAN_H
#define BEAMRING_STAGES_EXCHANGE_PLAN_H

#include "runtime/ranks.h"

struct rect {
    size_t freq, nfreq, beam, nbeam;
};

/* A run of channels in one zone, by its first channel in the source's and in the destination's stream. */
struct strip {
    size_t from, to, nfreq;
    unsigned downsample;
};

/* Data from one rank to another. */
struct crossing {
    size_t beam_from, beam_to, nbeam; /* within the source's and the destination's beams */
    unsigned nstrips;                 /* 0: nothing */
    struct strip strip[BR_MAX_ZONES];
};

struct plan {
    unsigned rank, ranks;
    bool to_beams, gpu;          /* gpu: requested on this rank; after plan_make: possible on all ranks */
    struct br_stream all;        /* the whole plane */
    struct br_stream *from;      /* [ranks] what each rank takes in */
    struct br_stream *to;        /* [ranks] what each rank puts out */
    struct rect *before, *after; /* [ranks] */
    struct crossing *out;        /* [ranks] from this rank to each */
    struct crossing *in;         /* [ranks] from each to this rank */
};

/* Collective, in configure: makes the plan from the inputs of all ranks, and checks that they fit together.
 * `share` ([nshare]; nshare 0: even) is the number of beams, or of coarse channels, for each rank. `holes`:
 * gaps in the band between ranks are allowed. Returns a status; a failure is recorded as the stage's. */
int plan_make(struct br_stage *stage, struct plan *plan, bool to_beams, const int64_t *share, size_t nshare,
              bool holes);

/* A part of a frame: length and stride in bytes of each axis. */
struct view {
    size_t offset; /* of its first element, from the start of the frame */
    size_t stride[BR_MAX_AXES];
};

/* Lengths of strip `i` of a crossing over `nsteps` time steps. Returns its bytes. */
size_t plan_lengths(const struct plan *plan, const struct crossing *c, unsigned i, size_t nsteps,
                    size_t length[BR_MAX_AXES]);

/* The place of strip `i` in a frame of `stream` that spans base samples [first, first + samples), starting at
 * channel `channel`, beam `beam` and time step `step` of the frame. */
struct view plan_view(const struct br_stream *stream, size_t channel, size_t beam, uint64_t first,
                      uint64_t samples, size_t step);

/* Row-major and dense. */
struct view plan_dense(const struct plan *plan, const size_t length[BR_MAX_AXES]);

/* Bytes of a message about base samples [first, first + samples). */
size_t plan_message_bytes(const struct plan *plan, const struct crossing *c, uint64_t first,
                          uint64_t samples);

/* The part of a frame of `stream` that holds a channel. */
struct br_part plan_part(const struct br_stream *stream, size_t channel, uint64_t first, uint64_t samples);

/* Copies that a GPU is to make together: each launch takes the host some microseconds. */
struct copies {
    struct br_rows rows[32];
    unsigned count;
};

/* Copies from one part to the other; on a GPU copies_make does it, in order with the stage's stream. Returns
 * a status. */
int plan_copy(struct br_stage *stage, struct copies *copies, const struct plan *plan,
              const size_t length[BR_MAX_AXES], void *to, const struct view *to_view, const void *from,
              const struct view *from_view);
int copies_make(struct br_stage *stage, struct copies *copies);

/* Packs the data that a frame of this rank has for another rank into a message, strip after strip; *bytes
 * receives its length. On a GPU copies_make does it. Returns a status. */
int plan_pack(struct br_stage *stage, struct copies *copies, const struct plan *plan,
              const struct crossing *c, const struct br_frame *in, unsigned char *to, size_t *bytes);

/* Sets all bytes of the part to `byte`. Returns a status. */
int plan_set(struct br_stage *stage, const struct plan *plan, const size_t length[BR_MAX_AXES], void *to,
             const struct view *view, int byte);

/* True if the part is contiguous in memory. */
bool plan_is_dense(const struct plan *plan, const size_t length[BR_MAX_AXES], const struct view *view);

#endif
