/* ranks.h - the ranks of a job, as one of them sees it: who it is, its connections to others, its way for
 * data. A process is at most one rank. */
#ifndef BEAMRING_RUNTIME_RANKS_RANKS_H
#define BEAMRING_RUNTIME_RANKS_RANKS_H

#include "buffers/error.h"
#include "runtime/base/log.h"

struct br_graph;
struct br_message;
struct br_ranks;

/* Starts MPI, and connects all ranks. The environment's variables of ranks (${RANK}, ${RANKS},
 * ${LOCAL_RANK}) are set. Errors: BR_E_IO, BR_E_INVALID: no MPI (and which package to install), or no
 * connection. */
int br_ranks_start_mpi(struct br_ranks **ranks, struct br_log *log, struct br_error *error);

/* Without MPI: rank RANK of RANKS of the environment; rank 0 listens at `address` ("host:port"), the others
 * connect to it. Data go from GPU to GPU only. */
int br_ranks_start_join(struct br_ranks **ranks, const char *address, struct br_log *log,
                        struct br_error *error);

/* Rank `rank` of `count` on sockets that are connected already, which become its own: fd[0] to rank 0; on
 * rank 0 fd[r] to each other rank r. */
int br_ranks_start_on(struct br_ranks **ranks, unsigned rank, unsigned count, const int *fd,
                      struct br_log *log, struct br_error *error);

unsigned br_ranks_rank(const struct br_ranks *ranks);
unsigned br_ranks_count(const struct br_ranks *ranks);
bool br_ranks_has_messages(const struct br_ranks *ranks);

/* Seconds without a sign of life after which a rank counts as failed. */
void br_ranks_set_stall(struct br_ranks *ranks, double seconds);

/* Collective: all ranks' bytes. *parts is malloc'ed, one for each rank, and holds the bytes too. */
struct br_ranks_part {
    const unsigned char *data; /* aligned for nothing */
    size_t bytes;
};
int br_ranks_gather(struct br_ranks *ranks, const void *mine, size_t bytes, struct br_ranks_part **parts,
                    struct br_error *error);

/* Collective: whether all ranks have the same pipeline file. Names the rank that has another one. */
int br_ranks_agree(struct br_ranks *ranks, uint64_t digest, struct br_error *error);

/* Collective: BR_E_INVALID if another rank would write files of the same names, on the same machine or in a
 * shared file system. BR_OK if `ranks` is NULL. */
int br_ranks_check_files(struct br_ranks *ranks, const struct br_graph *graph, struct br_error *error);

int br_ranks_post(struct br_ranks *ranks, unsigned channel, const void *data, size_t bytes,
                  struct br_error *error);
const void *br_ranks_next_post(struct br_ranks *ranks, unsigned channel, unsigned from, size_t *bytes);
void br_ranks_drop_post(struct br_ranks *ranks, unsigned channel, unsigned from);
void br_ranks_message(struct br_ranks *ranks, struct br_message *message);

uint64_t br_ranks_events(const struct br_ranks *ranks);
int br_ranks_await(struct br_ranks *ranks, uint64_t seen, uint64_t ns, struct br_error *error);

/* Tells all that this rank has failed, and why: the job ends. The first failure of all counts. */
void br_ranks_fail(struct br_ranks *ranks, int exit_status, const char *why);

/* Whether the job has failed; of another rank the text says which and why. */
bool br_ranks_failed(struct br_ranks *ranks, struct br_error *error);

/* Called once by a thread of its own when the job has failed elsewhere, from now on (NULL: no more). */
void br_ranks_on_failure(struct br_ranks *ranks, void (*call)(void *arg), void *arg);

/* Ends every use of messages' memory: nothing is received or sent any more. False: MPI hangs in a call and
 * may use it as long as the process lives; br_ranks_hangs says so again, and br_ranks_leave ends the
 * process. */
bool br_ranks_halt(struct br_ranks *ranks);
bool br_ranks_hangs(const struct br_ranks *ranks);

/* Says goodbye with an exit status, waits until all ranks that live have done so (some seconds at most), and
 * frees it. Returns the exit status: `status`, or that of the job when it has failed elsewhere. NULL is
 * allowed. */
int br_ranks_leave(struct br_ranks *ranks, int status);

#endif
