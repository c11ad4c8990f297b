/* parts.h - what the files of runtime/ranks share. */
#ifndef BEAMRING_RUNTIME_RANKS_PARTS_H
#define BEAMRING_RUNTIME_RANKS_PARTS_H

#include "runtime/ranks.h"
#include "runtime/ranks/mpi.h"
#include "runtime/ranks/ranks.h"
#include "runtime/ranks/wire.h"

#include <pthread.h>
#include <stdatomic.h>

/* Something that another rank said to one stage of this one: message.channel. */
struct post {
    struct post *next;
    struct br_message message; /* it is there when this is done */
    _Alignas(16) unsigned char data[];
};

struct peer {
    struct wire wire;       /* closed: of this rank itself, and where nobody needs it */
    bool came, done, gone;  /* it has connected; it said goodbye; its connection is lost, or it is silent */
    uint64_t heard_ns;      /* when it last said something */
    struct post *post;      /* oldest first */
    struct wire_bytes part; /* of what rank 0 gathers; no data: not here yet */
};

/* Who has connected, and is yet to say who it is. */
struct stranger {
    struct wire wire;
    uint64_t since_ns;
};
enum { STRANGERS = 16 };

struct br_ranks {
    unsigned rank, count, local;
    struct br_log *log;
    const struct mpi_plugin *mpi; /* NULL: no MPI */
    pthread_t listener;
    int poke; /* an eventfd that wakes it */
    _Atomic uint64_t events, stall_ns;
    _Atomic bool hangs; /* MPI does */

    pthread_mutex_t mutex; /* of all that follows */
    pthread_cond_t changed;
    struct peer *peer;                        /* [count] */
    unsigned reached;                         /* behind the last peer that has ever been connected */
    int listening;                            /* a socket, or -1, for those who show the token */
    unsigned char token[WIRE_TOKEN];          /* which only ranks of this job know */
    struct stranger stranger[STRANGERS];      /* where more come, the one that waits longest is turned away */
    struct pollfd *poll;                      /* [STRANGERS + 2 + count], the listener's */
    uint64_t beaten_ns, looked_ns, paused_ns; /* paused_ns: since the listener looked before */
    struct br_ranks_part *gathered;           /* NULL: not here yet */
    bool failed;
    unsigned failed_rank;
    int failed_status;
    char why[BR_ERROR_LENGTH];
    void (*on_failure)(void *arg);
    void *on_failure_arg;
    bool all_done, quit;
    bool cut_off; /* from rank 0, which does not answer */
    int worst;    /* exit status of those who are done */
};

/* The thread that hears the others (listen.c). */
void *ranks_listen(void *ranks);

void ranks_free(struct br_ranks *ranks);

/* --- with the mutex held --- */

void ranks_happened(struct br_ranks *ranks);

/* Says something to another rank. False: the connection is lost. */
bool ranks_say(struct br_ranks *ranks, unsigned to, const struct wire_head *head, const void *payload);

/* Says something to rank 0, which may be this one. */
void ranks_tell(struct br_ranks *ranks, enum wire_type type, int number, const void *payload, size_t length);

/* Says that this rank has failed: the text stands behind its name. */
void ranks_fail(struct br_ranks *ranks, int status, const char *text);

/* A rank is connected by `wire`. */
void ranks_connected(struct br_ranks *ranks, unsigned rank, struct wire wire);

/* Rank 0 says something to all. */
void ranks_told(struct br_ranks *ranks, const struct wire_head *head, const void *payload);

/* A rank says something to rank 0, which keeps the membership (hub.c), or the listener there says it for a
 * rank that does not. */
void hub_hears(struct br_ranks *ranks, unsigned from, const struct wire_head *head, const void *payload);

/* Ends the job when nobody has more to do. */
void hub_look_for_end(struct br_ranks *ranks);

/* Waits for something to happen, until a time of the monotonic clock (NULL: without an end). False: it is too
 * late. */
bool ranks_wait(struct br_ranks *ranks, const struct timespec *until);

/* Why the job has failed, as a failure of this rank's call. */
int ranks_say_why(const struct br_ranks *ranks, struct br_error *error);

/* Room for a post of `from`, behind its others. NULL: no memory. */
struct post *ranks_keep(struct br_ranks *ranks, unsigned from, unsigned channel, size_t bytes);

#endif
