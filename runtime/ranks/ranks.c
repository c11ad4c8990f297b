/* ranks.c - see ranks.h. */
#include "runtime/ranks/parts.h"

#include "buffers/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define GOODBYE_NS UINT64_C(8000000000)
#define HURRY_NS   UINT64_C(2000000000)

unsigned br_ranks_rank(const struct br_ranks *ranks)
{
    return ranks != NULL ? ranks->rank : 0;
}

unsigned br_ranks_count(const struct br_ranks *ranks)
{
    return ranks != NULL ? ranks->count : 1;
}

bool br_ranks_has_messages(const struct br_ranks *ranks)
{
    return ranks != NULL && ranks->mpi != NULL;
}

void br_ranks_set_stall(struct br_ranks *ranks, double seconds)
{
    if (ranks != NULL) atomic_store(&ranks->stall_ns, (uint64_t)(seconds * 1e9));
}

/* --- with the mutex held --- */

void ranks_happened(struct br_ranks *ranks)
{
    atomic_fetch_add(&ranks->events, 1);
    pthread_cond_broadcast(&ranks->changed);
}

bool ranks_wait(struct br_ranks *ranks, const struct timespec *until)
{
    if (until != NULL) return pthread_cond_timedwait(&ranks->changed, &ranks->mutex, until) == 0;
    pthread_cond_wait(&ranks->changed, &ranks->mutex);
    return true;
}

int ranks_say_why(const struct br_ranks *ranks, struct br_error *error)
{
    return br_fail(error, BR_E_IO, "rank %u %s", ranks->failed_rank, ranks->why);
}

bool ranks_say(struct br_ranks *ranks, unsigned to, const struct wire_head *head, const void *payload)
{
    struct wire *wire = &ranks->peer[to].wire;
    bool ok = wire_send(wire, head, payload);
    if (ok && wire->out.used > 0) eventfd_write(ranks->poke, 1); /* the listener sends the rest */
    return ok;
}

void ranks_tell(struct br_ranks *ranks, enum wire_type type, int number, const void *payload, size_t length)
{
    struct wire_head head = {type, ranks->rank, (uint32_t)number, 0, length};
    if (ranks->rank == 0)
        hub_hears(ranks, 0, &head, payload);
    else
        ranks_say(ranks, 0, &head, payload);
}

void ranks_connected(struct br_ranks *ranks, unsigned rank, struct wire wire)
{
    struct peer *peer = &ranks->peer[rank];
    peer->wire = wire;
    peer->came = true;
    peer->gone = false;
    peer->heard_ns = br_clock_ns();
    if (rank >= ranks->reached) ranks->reached = rank + 1;
    ranks_happened(ranks);
    eventfd_write(ranks->poke, 1);
}

/* All ranks' parts, out of what rank 0 has gathered; NULL: they are not as many, or there is no memory. */
static struct br_ranks_part *parts_of(unsigned count, const unsigned char *all, size_t length)
{
    struct br_ranks_part *part = malloc(count * sizeof *part + length);
    if (part == NULL) return NULL;
    const unsigned char *at = memcpy(&part[count], all, length);
    for (unsigned r = 0; r < count; r++) {
        uint64_t bytes = UINT64_MAX;
        if (length >= sizeof bytes) memcpy(&bytes, at, sizeof bytes);
        if (length < sizeof bytes || bytes > length - sizeof bytes) {
            free(part);
            return NULL;
        }
        part[r] = (struct br_ranks_part){at + sizeof bytes, bytes};
        at += sizeof bytes + bytes;
        length -= sizeof bytes + bytes;
    }
    return part;
}

void ranks_fail(struct br_ranks *ranks, int status, const char *text)
{
    if (!ranks->failed) ranks_tell(ranks, WIRE_FAILED, status, text, strlen(text));
}

void ranks_told(struct br_ranks *ranks, const struct wire_head *head, const void *payload)
{
    switch (head->type) {
    case WIRE_GATHERED:
        free(ranks->gathered);
        ranks->gathered = parts_of(ranks->count, payload, head->length);
        if (ranks->gathered == NULL)
            ranks_fail(ranks, 1, "cannot read what rank 0 has gathered, or has no memory for it");
        break;
    case WIRE_FAILED:
        if (ranks->failed || head->from >= ranks->count) break;
        ranks->failed = true;
        ranks->failed_rank = head->from;
        ranks->failed_status = (int)head->number;
        snprintf(ranks->why, sizeof ranks->why, "%.*s", (int)head->length, (const char *)payload);
        break;
    case WIRE_ALL_DONE:
        ranks->all_done = true;
        ranks->worst = (int)head->number;
        break;
    default:
        return;
    }
    ranks_happened(ranks);
}

/* --- for the rest of the program --- */

int br_ranks_gather(struct br_ranks *ranks, const void *mine, size_t bytes, struct br_ranks_part **parts,
                    struct br_error *error)
{
    pthread_mutex_lock(&ranks->mutex);
    ranks_tell(ranks, WIRE_GATHER, 0, mine, bytes);
    while (ranks->gathered == NULL && !ranks->failed) ranks_wait(ranks, NULL);
    int status = ranks->gathered != NULL ? BR_OK : ranks_say_why(ranks, error);
    *parts = ranks->gathered;
    ranks->gathered = NULL;
    pthread_mutex_unlock(&ranks->mutex);
    return status;
}

int br_ranks_agree(struct br_ranks *ranks, uint64_t digest, struct br_error *error)
{
    struct br_ranks_part *part;
    if (ranks == NULL || ranks->count == 1) return BR_OK;
    int status = br_ranks_gather(ranks, &digest, sizeof digest, &part, error);
    for (unsigned r = 0; status == BR_OK && r < ranks->count; r++)
        if (part[r].bytes != part[0].bytes || memcmp(part[r].data, part[0].data, part[0].bytes) != 0)
            status = br_fail(error, BR_E_INVALID,
                             "rank %u has another pipeline file (or other --set) than rank 0; expected the "
                             "same text on all ranks: what differs by rank is said with ${RANK}",
                             r);
    free(part);
    return status;
}

void br_ranks_message(struct br_ranks *ranks, struct br_message *message)
{
    ranks->mpi->submit(message);
}

uint64_t br_ranks_events(const struct br_ranks *ranks)
{
    return atomic_load(&ranks->events);
}

int br_ranks_await(struct br_ranks *ranks, uint64_t seen, uint64_t ns, struct br_error *error)
{
    struct timespec until = br_clock_in(CLOCK_MONOTONIC, ns);
    pthread_mutex_lock(&ranks->mutex);
    while (!ranks->failed && atomic_load(&ranks->events) == seen && ranks_wait(ranks, &until)) continue;
    int status = ranks->failed ? ranks_say_why(ranks, error) : BR_OK;
    pthread_mutex_unlock(&ranks->mutex);
    return status;
}

void br_ranks_fail(struct br_ranks *ranks, int exit_status, const char *why)
{
    char text[BR_ERROR_LENGTH];
    if (ranks == NULL) return;
    snprintf(text, sizeof text, "has failed: %s", why);
    pthread_mutex_lock(&ranks->mutex);
    ranks_fail(ranks, exit_status, text);
    pthread_mutex_unlock(&ranks->mutex);
}

bool br_ranks_failed(struct br_ranks *ranks, struct br_error *error)
{
    if (ranks == NULL) return false;
    pthread_mutex_lock(&ranks->mutex);
    bool failed = ranks->failed;
    if (failed) ranks_say_why(ranks, error);
    pthread_mutex_unlock(&ranks->mutex);
    return failed;
}

void br_ranks_on_failure(struct br_ranks *ranks, void (*call)(void *arg), void *arg)
{
    if (ranks == NULL) return;
    pthread_mutex_lock(&ranks->mutex);
    ranks->on_failure = call;
    ranks->on_failure_arg = arg;
    eventfd_write(ranks->poke, 1);
    pthread_mutex_unlock(&ranks->mutex);
}

bool br_ranks_halt(struct br_ranks *ranks)
{
    if (!br_ranks_has_messages(ranks) || ranks->mpi->halt()) return true;
    atomic_store(&ranks->hangs, true);
    return false;
}

bool br_ranks_hangs(const struct br_ranks *ranks)
{
    return ranks != NULL && atomic_load(&ranks->hangs);
}

static bool is_fine(int status)
{
    return status == 0 || status == 130;
}

static bool is_alone(const struct br_ranks *ranks)
{
    for (unsigned r = 0; r < ranks->count; r++)
        if (ranks->peer[r].wire.fd >= 0 && !ranks->peer[r].gone) return false;
    return true;
}

/* Waits until all are done: as long as they need, unless something is wrong. */
static void wait_for_all(struct br_ranks *ranks, bool fine)
{
    struct timespec until;
    while (!ranks->all_done && !ranks->failed && fine) ranks_wait(ranks, NULL);
    until = br_clock_in(CLOCK_MONOTONIC, GOODBYE_NS);
    while (!ranks->all_done && ranks_wait(ranks, &until)) continue;
}

int br_ranks_leave(struct br_ranks *ranks, int status)
{
    if (ranks == NULL) return status;
    pthread_mutex_lock(&ranks->mutex);
    ranks_tell(ranks, WIRE_BYE, status, NULL, 0);
    eventfd_write(ranks->poke, 1); /* of rank 0: it may be the last one */
    wait_for_all(ranks, is_fine(status));
    bool clean = !ranks->failed && ranks->all_done && is_fine(ranks->worst);
    if (ranks->failed && is_fine(status)) {
        if (ranks->failed_rank != ranks->rank)
            br_log(ranks->log, BR_LOG_ERROR, NULL, "rank %u %s", ranks->failed_rank, ranks->why);
        status = ranks->failed_status;
    } else if (status == 0) {
        status = ranks->worst;
    }
    /* Rank 0 stays until the others have heard it. */
    struct timespec until = br_clock_in(CLOCK_MONOTONIC, clean ? GOODBYE_NS : HURRY_NS);
    while (ranks->rank == 0 && !is_alone(ranks) && ranks_wait(ranks, &until)) continue;
    ranks->quit = true;
    eventfd_write(ranks->poke, 1);
    pthread_mutex_unlock(&ranks->mutex);
    pthread_join(ranks->listener, NULL);
    for (unsigned r = 0; r < ranks->count; r++) wire_close(&ranks->peer[r].wire);
    /* Without rank 0 nobody says when all are done: the others notice what this one did within a moment,
     * and who ends first has them killed. */
    if (ranks->cut_off) nanosleep(&(struct timespec){1, 500000000}, NULL);
    if (ranks->mpi != NULL && !ranks->mpi->end(clean)) { /* nor can its thread be ended */
        fflush(NULL);
        _exit(status);
    }
    ranks_free(ranks);
    return status;
}
