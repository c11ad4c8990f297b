/* plan.h - who holds what before and after the exchange, and how a part of a frame lies in memory.
 *
 * All channels and beams of the job are a plane, freq x beam. A rank holds one rectangle of it before and
 * another one after it; what goes from rank s to rank d is the intersection of the two. Within a frame the
 * other axes, time among them, are whole. */
#ifndef BEAMRING_STAGES_EXCHANGE_PLAN_H
#define BEAMRING_STAGES_EXCHANGE_PLAN_H

#include "runtime/ranks.h"

struct rect {
    size_t freq, nfreq, beam, nbeam;
};

/* Channels that lie in one zone: from the first channel of the source's and of the destination's stream. */
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
    bool to_beams, gpu;          /* gpu: asked for on this rank; after plan_make: possible on all */
    struct br_stream all;        /* the whole plane */
    struct br_stream *from;      /* [ranks] what each rank takes in */
    struct br_stream *to;        /* [ranks] what each rank puts out */
    struct rect *before, *after; /* [ranks] */
    struct crossing *out;        /* [ranks] from this rank to each */
    struct crossing *in;         /* [ranks] from each to this rank */
};

/* Collective, in configure: makes the plan of all ranks' inputs, and checks that they fit together. `share`
 * ([nshare], 0: even) is how many beams, or coarse channels, each rank is to have. `holes`: a band with holes
 * between the ranks is as it shall be. Status; the failure is the stage's. */
int plan_make(struct br_stage *stage, struct plan *plan, bool to_beams, const int64_t *share, size_t nshare,
              bool holes);

/* A frame's part as lengths and strides in bytes, axis by axis. */
struct view {
    size_t offset; /* of its first element, from the start of the frame */
    size_t stride[BR_MAX_AXES];
};

/* Lengths of strip `i` of a crossing over `nsteps` time steps. Returns its bytes. */
size_t plan_lengths(const struct plan *plan, const struct crossing *c, unsigned i, size_t nsteps,
                    size_t length[BR_MAX_AXES]);

/* Where strip `i` lies in a frame of `stream` that spans base samples [first, first + samples): channels from
 * `channel` on, beams from `beam` on, from the time step `step` of the frame on. */
struct view plan_view(const struct br_stream *stream, size_t channel, size_t beam, uint64_t first,
                      uint64_t samples, size_t step);

/* Row-major and dense. */
struct view plan_dense(const struct plan *plan, const size_t length[BR_MAX_AXES]);

/* Bytes of a message about base samples [first, first + samples). */
size_t plan_message_bytes(const struct plan *plan, const struct crossing *c, uint64_t first,
                          uint64_t samples);

/* The part of a frame of `stream` that holds a channel. */
struct br_part plan_part(const struct br_stream *stream, size_t channel, uint64_t first, uint64_t samples);

/* Copies between the two; in order with the stage's stream on a GPU. Status. */
int plan_copy(struct br_stage *stage, const struct plan *plan, const size_t length[BR_MAX_AXES], void *to,
              const struct view *to_view, const void *from, const struct view *from_view);

/* Puts what a frame of the rank's own has for another rank into a message, strip after strip; *bytes: how
 * long it is. As plan_copy. */
int plan_pack(struct br_stage *stage, const struct plan *plan, const struct crossing *c,
              const struct br_frame *in, unsigned char *to, size_t *bytes);

/* Sets all of it to a byte. Status. */
int plan_set(struct br_stage *stage, const struct plan *plan, const size_t length[BR_MAX_AXES], void *to,
             const struct view *view, int byte);

/* True when it lies in one piece. */
bool plan_is_dense(const struct plan *plan, const size_t length[BR_MAX_AXES], const struct view *view);

#endif
