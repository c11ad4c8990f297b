/* ranks.h - communication of a stage with the same stage on the other ranks of a job: data that all ranks
 * gather at start, short messages to all ranks (posts), and transfers from memory to memory (messages).
 *
 * A job is `beamring run --mpi` under mpirun or srun. Every rank runs the same pipeline file, which may use
 * ${RANK}, ${RANKS} and ${LOCAL_RANK}. Without --mpi a program is rank 0 of 1. A stage communicates with the
 * stages that have the same place in the file.
 *
 * A rank that fails, dies or stops responding ends the job. Then every call that waits here returns a failure
 * that names the rank, and the stage fails with it. */
#ifndef BEAMRING_RUNTIME_RANKS_H
#define BEAMRING_RUNTIME_RANKS_H

#include "runtime/stage.h"

#ifdef __cplusplus
extern "C" {
#endif

/* This rank's number, and the number of ranks in the job: 0 and 1 without a job. Any callback. */
BR_API unsigned br_stage_rank(const struct br_stage *stage);
BR_API unsigned br_stage_ranks(const struct br_stage *stage);

/* True if this rank can exchange messages with other ranks (br_stage_message), which needs --mpi. */
BR_API bool br_stage_has_messages(const struct br_stage *stage);

/* Every rank passes `bytes` bytes at `mine` and receives the bytes of all ranks: those of rank r are at
 * (*part)[r] and (*length)[r] bytes long. The parts live as long as the pipeline and are aligned for any
 * type. Call it in configure or start, on all ranks in the same order. Returns a status; a failure is
 * recorded as the stage's. */
BR_API int br_stage_gather(struct br_stage *stage, const void *mine, size_t bytes, const void ***part,
                           const size_t **length);

/* Reports for `check --ranks` how much the stage sends to and receives from other ranks, in bytes per second
 * of real time. Call it in configure. */
BR_API void br_stage_crosses(struct br_stage *stage, double sent, double received);

/* --- for process: only br_stage_await waits --- */

/* Sends a copy of `data` to the same stage on all other ranks. Returns a status. */
BR_API int br_stage_post(struct br_stage *stage, const void *data, size_t bytes);

/* The oldest post from rank `from` that has not been dropped, or NULL; *bytes receives its length. It stays
 * valid until it is dropped. Posts arrive in the order in which they were sent. br_stage_drop_post drops the
 * oldest one. */
BR_API const void *br_stage_next_post(struct br_stage *stage, unsigned from, size_t *bytes);
BR_API void br_stage_drop_post(struct br_stage *stage, unsigned from);

/* A transfer to or from another rank. Between two ranks the messages of a stage arrive in the order in
 * which they were begun. Each needs a counterpart of the same length on the peer. The struct and its data
 * belong to the stage and must remain valid until `done` or, if the run has failed, until stop. Zero the
 * struct before its first use. */
struct br_message {
    void *data;
    size_t bytes;     /* at most BR_MESSAGE_MOST */
    unsigned peer;    /* the other rank */
    bool sends;       /* else it receives */
    int done;         /* 0 while in progress; read it with br_message_done */
    unsigned channel; /* set by the runtime */
    struct br_message *next;
};
#define BR_MESSAGE_MOST ((size_t)0x7fffffff)
static inline bool br_message_done(const struct br_message *message)
{
    return __atomic_load_n(&message->done, __ATOMIC_ACQUIRE) != 0;
}
/* Begins the transfer and returns at once. Returns a status. */
BR_API int br_stage_message(struct br_stage *stage, struct br_message *message);

/* For stop, if the run has failed while messages are in progress: ends all transfers, of all stages. After it
 * has returned true, nothing is sent or received any more. False: the transfers cannot be ended, and the
 * memory of messages must not be freed or changed before the process ends. */
BR_API bool br_stage_halt_messages(struct br_stage *stage);

/* Number of events so far, such as the arrival of a post or the end of a message. */
BR_API uint64_t br_stage_events(const struct br_stage *stage);

/* True if a rank has failed, so that the job ends. Any thread. */
BR_API bool br_stage_job_failed(const struct br_stage *stage);

/* Waits until the number of events exceeds `seen`, or `ns` nanoseconds have passed. Returns a status:
 * BR_E_IO if a rank has failed. */
BR_API int br_stage_await(struct br_stage *stage, uint64_t seen, uint64_t ns);

/* Counts `samples` base samples that the stage outputs without having taken them in: other ranks sent them,
 * or they are a hole between frames that an output frame bridges. They enter the balance: in + gained = out +
 * lost. */
BR_API void br_stage_count_gained(struct br_stage *stage, uint64_t samples);

#ifdef __cplusplus
}
#endif
#endif
