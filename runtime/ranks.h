/* ranks.h - for stages that work together with themselves on other ranks of a job: what all ranks are to
 * know, short messages to all, and data from memory to memory.
 *
 * A job is `beamring run --mpi` under mpirun or srun: every rank runs the same pipeline file, which may say
 * ${RANK}, ${RANKS} and ${LOCAL_RANK}. Alone, a program is rank 0 of 1. Stages meet their like by their
 * place in the file.
 *
 * A rank that fails, dies or gives no sign of life ends the job: then whatever waits here returns a failure
 * that names it, and the stage fails with that. */
#ifndef BEAMRING_RUNTIME_RANKS_H
#define BEAMRING_RUNTIME_RANKS_H

#include "runtime/stage.h"

#ifdef __cplusplus
extern "C" {
#endif

BR_API unsigned br_stage_rank(const struct br_stage *stage);
BR_API unsigned br_stage_ranks(const struct br_stage *stage);

/* True when data can go from the memory of this rank to that of others (br_stage_message): with --mpi. */
BR_API bool br_stage_has_messages(const struct br_stage *stage);

/* In configure and start, by all ranks in the same order: every rank gives `bytes` bytes and gets those of
 * all: part[r] and length[r] for r < ranks, which live as long as the pipeline and are aligned for any type.
 * Status; the failure is the stage's. */
BR_API int br_stage_gather(struct br_stage *stage, const void *mine, size_t bytes, const void ***part,
                           const size_t **length);

/* For `check --ranks`: what the stage sends to and gets from other ranks, in bytes per second of real time.
 * In configure. */
BR_API void br_stage_crosses(struct br_stage *stage, double sent, double received);

/* --- for process: none of these waits, but br_stage_await --- */

/* Sends a copy of some bytes to the same stage of all other ranks. Status. */
BR_API int br_stage_post(struct br_stage *stage, const void *data, size_t bytes);

/* The oldest post from another rank that was not dropped yet, or NULL; in the order of sending. */
BR_API const void *br_stage_next_post(struct br_stage *stage, unsigned from, size_t *bytes);
BR_API void br_stage_drop_post(struct br_stage *stage, unsigned from);

/* Data from or to another rank. Between two ranks the messages of a stage arrive in the order in which they
 * were begun, and each needs its counterpart of the same length. The memory must stay until `done`, or until
 * stop where the run has failed. Plain data; zero it before its first use. */
struct br_message {
    void *data;
    size_t bytes; /* at most BR_MESSAGE_MOST */
    unsigned peer;
    bool sends;       /* else it receives */
    int done;         /* 0 while it is under way; read it with br_message_done */
    unsigned channel; /* the runtime's */
    struct br_message *next;
};
#define BR_MESSAGE_MOST ((size_t)0x7fffffff)
static inline bool br_message_done(const struct br_message *message)
{
    return __atomic_load_n(&message->done, __ATOMIC_ACQUIRE) != 0;
}
BR_API int br_stage_message(struct br_stage *stage, struct br_message *message);

/* For stop, when messages are under way although the run has failed: from its return on nothing is sent or
 * received any more, for any stage. False: that cannot be had, and the memory of messages stays as it is
 * until the process has ended. */
BR_API bool br_stage_halt_messages(struct br_stage *stage);

/* How much has happened so far: posts came, messages are done. */
BR_API uint64_t br_stage_events(const struct br_stage *stage);

/* Whether a rank has failed, so that the job ends. Any thread. */
BR_API bool br_stage_job_failed(const struct br_stage *stage);

/* Waits until more has happened than `seen`, or `ns` have passed. Status: BR_E_IO when a rank has failed. */
BR_API int br_stage_await(struct br_stage *stage, uint64_t seen, uint64_t ns);

/* Counts `samples` base samples that the stage puts out and did not take in: other ranks had them. They enter
 * the balance: in + gained = out + lost. */
BR_API void br_stage_count_gained(struct br_stage *stage, uint64_t samples);

#ifdef __cplusplus
}
#endif
#endif
