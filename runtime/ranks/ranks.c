/* ranks.c - see ranks.h: a rank's connection to the hub, and what it hears there. */
#include "runtime/ranks/parts.h"

#include "buffers/clock.h"
#include "buffers/threads.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { TICK_MS = 100, GOODBYE_S = 8 };

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
    return ranks != NULL && ranks->engine != NULL;
}

void br_ranks_set_stall(struct br_ranks *ranks, double seconds)
{
    if (ranks == NULL) return;
    atomic_store(&ranks->stall_ns, (uint64_t)(seconds * 1e9));
    hub_set_stall(ranks->hub, seconds);
}

/* --- with the mutex held --- */

static void happened(struct br_ranks *ranks)
{
    atomic_fetch_add(&ranks->events, 1);
    pthread_cond_broadcast(&ranks->changed);
}

static void set_failed(struct br_ranks *ranks, unsigned from, int status, const char *text, size_t length)
{
    if (ranks->failed) return;
    ranks->failed = true;
    ranks->failed_rank = from;
    ranks->failed_status = status;
    snprintf(ranks->why, sizeof ranks->why, "%.*s", (int)length, text);
    happened(ranks);
}

/* A lost connection to the hub is lost rank 0: the hub lives there. */
static void lost(struct br_ranks *ranks)
{
    static const char text[] = "has ended without a word: killed, crashed, or its machine is gone";
    if (!ranks->all_done) set_failed(ranks, 0, 1, text, sizeof text - 1);
    wire_close(&ranks->wire[0]);
    ranks->all_done = true;
    happened(ranks);
}

bool ranks_say(struct br_ranks *ranks, unsigned hub, uint32_t type, uint32_t channel, const void *payload,
               size_t length)
{
    struct wire_head head = {.type = type, .from = ranks->rank, .channel = channel, .length = length};
    struct wire *wire = &ranks->wire[hub];
    bool ok = wire_send(wire, &head, payload);
    if (ok && wire->out.used > 0) eventfd_write(ranks->poke, 1); /* the listener sends the rest */
    return ok;
}

static bool say(struct br_ranks *ranks, uint32_t type, const void *payload, size_t length)
{
    return ranks_say(ranks, 0, type, 0, payload, length);
}

/* Takes the messages of rank 0's hub. */
static void hear(struct br_ranks *ranks, const struct wire_head *head, const unsigned char *payload)
{
    uint32_t status = 1;
    if (head->length >= sizeof status) memcpy(&status, payload, sizeof status);
    switch (head->type) {
    case WIRE_GATHERED:
        free(ranks->gathered);
        ranks->gathered = malloc(head->length + 1);
        if (ranks->gathered != NULL) memcpy(ranks->gathered, payload, head->length);
        ranks->gathered_bytes = head->length;
        ranks->has_gathered = true;
        break;
    case WIRE_FAILED:
        ranks->unaware = !ranks->failed && head->from == ranks->rank;
        if (head->length >= sizeof status && head->from < ranks->count)
            set_failed(ranks, head->from, (int)status, (const char *)payload + sizeof status,
                       head->length - sizeof status);
        break;
    case WIRE_ALL_DONE:
        ranks->all_done = true;
        ranks->worst = (int)status;
        break;
    default:
        break;
    }
    if (head->type != WIRE_BEAT) happened(ranks);
}

static void listen_once(struct br_ranks *ranks, unsigned hub)
{
    const struct wire_head *head;
    const unsigned char *payload;
    struct wire *wire = &ranks->wire[hub];
    bool open = wire_fill(wire);
    while ((head = wire_next(wire, &payload)) != NULL) {
        if (hub == 0) ranks->heard_ns = br_clock_ns();
        if (hub == 0) hear(ranks, head, payload);
        wire_drop(wire);
    }
    if (open && wire->fd >= 0) return;
    if (hub == 0) lost(ranks);
    if (hub > 0) wire_close(wire); /* rank 0 says what has become of that rank */
}

static void look_at_clock(struct br_ranks *ranks)
{
    char text[160];
    uint64_t now = br_clock_ns(), stall = atomic_load(&ranks->stall_ns);
    if (now - ranks->beaten_ns > 250000000u) {
        ranks->beaten_ns = now;
        say(ranks, WIRE_BEAT, NULL, 0);
    }
    /* A pause of this process is none of rank 0. */
    if (now - ranks->looked_ns > stall / 2) ranks->heard_ns = now;
    ranks->looked_ns = now;
    if (ranks->all_done || now < ranks->heard_ns || now - ranks->heard_ns < stall) return;
    snprintf(text, sizeof text, "has given no sign of life for %.1f s (stall_s allows %.1f s)",
             (double)(now - ranks->heard_ns) * 1e-9, (double)stall * 1e-9);
    set_failed(ranks, 0, 1, text, strlen(text));
    ranks->cut_off = true;
    wire_close(&ranks->wire[0]);
    ranks->all_done = true;
}

static void *run(void *arg)
{
    struct br_ranks *ranks = arg;
    void (*call)(void *arg) = NULL;
    void *call_arg = NULL;
    pthread_mutex_lock(&ranks->mutex);
    while (!ranks->quit) {
        struct pollfd *fd = ranks->poll;
        unsigned n = ranks->hubs;
        for (unsigned r = 0; r < n; r++) {
            const struct wire *wire = &ranks->wire[r];
            fd[r] = (struct pollfd){wire->fd, (short)(POLLIN | (wire->out.used > 0 ? POLLOUT : 0)), 0};
        }
        fd[n] = (struct pollfd){ranks->poke, POLLIN, 0};
        pthread_mutex_unlock(&ranks->mutex);
        poll(fd, n + 1, TICK_MS);
        eventfd_t poked;
        if (fd[n].revents != 0) eventfd_read(ranks->poke, &poked);
        pthread_mutex_lock(&ranks->mutex);
        for (unsigned r = 0; r < n; r++) {
            if (ranks->wire[r].fd >= 0 && (fd[r].revents & POLLOUT)) wire_flush(&ranks->wire[r]);
            if (ranks->wire[r].fd >= 0 && (fd[r].revents & ~POLLOUT)) listen_once(ranks, r);
        }
        if (ranks->wire[0].fd >= 0) look_at_clock(ranks);
        if (!ranks->failed || ranks->on_failure == NULL) continue;
        call = ranks->on_failure;
        call_arg = ranks->on_failure_arg;
        ranks->on_failure = NULL;
        call(call_arg);
    }
    pthread_mutex_unlock(&ranks->mutex);
    return NULL;
}

/* --- for the rest of the program --- */

void ranks_take_post(void *arg, unsigned from, unsigned channel, const unsigned char *data, size_t bytes)
{
    struct br_ranks *ranks = arg;
    pthread_mutex_lock(&ranks->mutex);
    bool begun = ranks->post != NULL; /* nobody of this job posts before that */
    struct post *post = begun ? ranks_keep(ranks, from, channel, bytes) : NULL;
    if (post != NULL) {
        memcpy(post->data, data, bytes);
        post->message.done = 1;
        happened(ranks);
    }
    pthread_mutex_unlock(&ranks->mutex);
    if (begun && post == NULL) br_ranks_fail(ranks, 1, "no memory for what other ranks say");
}

void ranks_happened(void *arg, const char *failure)
{
    struct br_ranks *ranks = arg;
    pthread_mutex_lock(&ranks->mutex);
    happened(ranks);
    pthread_mutex_unlock(&ranks->mutex);
    if (failure != NULL) br_ranks_fail(ranks, 1, failure);
}

int ranks_begin(struct br_ranks *ranks, struct wire *wire, struct br_error *error)
{
    br_cond_init(&ranks->changed);
    ranks->hubs = 1;
    ranks->wire = calloc(ranks->count, sizeof *ranks->wire);
    ranks->poll = calloc(ranks->count + 1, sizeof *ranks->poll);
    if (ranks->wire != NULL)
        ranks->wire[0] = *wire;
    else
        wire_close(wire);
    ranks->poke = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ranks->heard_ns = ranks->looked_ns = br_clock_ns();
    atomic_store(&ranks->stall_ns, (uint64_t)30 * 1000000000u); /* until the pipeline file says */
    pthread_mutex_lock(&ranks->mutex);
    ranks->post = calloc(ranks->count, sizeof *ranks->post);
    pthread_mutex_unlock(&ranks->mutex);
    if (ranks->post == NULL || ranks->wire == NULL || ranks->poll == NULL || ranks->poke < 0)
        return br_fail(error, BR_E_NO_MEMORY, "no memory for %u ranks", ranks->count);
    int failure = br_thread_start(&ranks->listener, run, ranks);
    if (failure != 0) return br_fail(error, BR_E_NO_MEMORY, "no thread: %s", strerror(failure));
    ranks->listens = true;
    char number[16];
    snprintf(number, sizeof number, "%u", ranks->rank);
    setenv("RANK", number, 1);
    snprintf(number, sizeof number, "%u", ranks->count);
    setenv("RANKS", number, 1);
    snprintf(number, sizeof number, "%u", ranks->local);
    setenv("LOCAL_RANK", number, 1);
    return BR_OK;
}

/* The message about a failed job, with the mutex held. */
static int tell_failure(const struct br_ranks *ranks, struct br_error *error)
{
    if (ranks->failed_rank == ranks->rank && !ranks->unaware)
        return br_fail(error, BR_E_IO, "the job ends because this rank has failed");
    return br_fail(error, BR_E_IO, "rank %u %s", ranks->failed_rank, ranks->why);
}

int br_ranks_gather(struct br_ranks *ranks, const void *mine, size_t bytes, unsigned char **all,
                    size_t *length, struct br_error *error)
{
    int status = BR_OK;
    pthread_mutex_lock(&ranks->mutex);
    ranks->has_gathered = false;
    say(ranks, WIRE_GATHER, mine, bytes);
    while (!ranks->has_gathered && !ranks->failed) pthread_cond_wait(&ranks->changed, &ranks->mutex);
    if (!ranks->has_gathered)
        status = tell_failure(ranks, error);
    else if (ranks->gathered == NULL)
        status = br_fail(error, BR_E_NO_MEMORY, "no memory for what the ranks tell each other");
    *all = ranks->gathered;
    *length = ranks->gathered_bytes;
    ranks->gathered = NULL;
    pthread_mutex_unlock(&ranks->mutex);
    return status;
}

int br_ranks_part(const unsigned char *all, size_t length, size_t *at, const unsigned char **part,
                  size_t *bytes, struct br_error *error)
{
    uint64_t said = UINT64_MAX;
    if (length - *at >= sizeof said) memcpy(&said, all + *at, sizeof said);
    if (length - *at < sizeof said || said > length - *at - sizeof said)
        return br_fail(error, BR_E_FORMAT,
                       "rank 0 speaks for other ranks than there are; expected the same RANKS "
                       "for all of the job");
    *part = all + *at + sizeof said;
    *bytes = said;
    *at += sizeof said + said;
    return BR_OK;
}

int br_ranks_agree(struct br_ranks *ranks, uint64_t digest, struct br_error *error)
{
    unsigned char *all = NULL;
    const unsigned char *part = NULL;
    size_t length, at = 0, bytes = 0;
    uint64_t first = 0;
    if (ranks == NULL || ranks->count == 1) return BR_OK;
    int status = br_ranks_gather(ranks, &digest, sizeof digest, &all, &length, error);
    for (unsigned r = 0; status == BR_OK && r < ranks->count; r++) {
        uint64_t theirs = 0;
        status = br_ranks_part(all, length, &at, &part, &bytes, error);
        if (status != BR_OK) break;
        if (bytes == sizeof theirs) memcpy(&theirs, part, sizeof theirs);
        if (r == 0) first = theirs;
        if (theirs != first)
            status = br_fail(error, BR_E_INVALID,
                             "rank %u has another pipeline file (or other --set) than rank 0; expected the "
                             "same text on all ranks: what differs by rank is said with ${RANK}",
                             r);
    }
    free(all);
    return status;
}

int br_ranks_message(struct br_ranks *ranks, struct br_message *message)
{
    __atomic_store_n(&message->done, 0, __ATOMIC_RELAXED);
    engine_submit(ranks->engine, message);
    return BR_OK;
}

uint64_t br_ranks_events(const struct br_ranks *ranks)
{
    return atomic_load(&ranks->events);
}

int br_ranks_await(struct br_ranks *ranks, uint64_t seen, uint64_t ns, struct br_error *error)
{
    struct timespec until = br_clock_in(CLOCK_MONOTONIC, ns);
    pthread_mutex_lock(&ranks->mutex);
    int result = 0;
    while (!ranks->failed && atomic_load(&ranks->events) == seen && result != ETIMEDOUT)
        result = pthread_cond_timedwait(&ranks->changed, &ranks->mutex, &until);
    int status = ranks->failed ? tell_failure(ranks, error) : BR_OK;
    pthread_mutex_unlock(&ranks->mutex);
    return status;
}

void br_ranks_fail(struct br_ranks *ranks, int exit_status, const char *why)
{
    unsigned char payload[BR_ERROR_LENGTH + 64];
    uint32_t status = (uint32_t)exit_status;
    if (ranks == NULL) return;
    memcpy(payload, &status, sizeof status);
    int length =
        snprintf((char *)payload + sizeof status, sizeof payload - sizeof status, "has failed: %s", why);
    if (length < 0 || (size_t)length >= sizeof payload - sizeof status)
        length = (int)(sizeof payload - sizeof status) - 1;
    pthread_mutex_lock(&ranks->mutex);
    if (!ranks->failed) say(ranks, WIRE_FAILED, payload, sizeof status + (size_t)length);
    pthread_mutex_unlock(&ranks->mutex);
}

bool br_ranks_failed(struct br_ranks *ranks, struct br_error *error)
{
    if (ranks == NULL) return false;
    pthread_mutex_lock(&ranks->mutex);
    bool failed = ranks->failed;
    if (failed) tell_failure(ranks, error);
    pthread_mutex_unlock(&ranks->mutex);
    return failed;
}

void br_ranks_on_failure(struct br_ranks *ranks, void (*call)(void *arg), void *arg)
{
    if (ranks == NULL) return;
    pthread_mutex_lock(&ranks->mutex);
    ranks->on_failure = call;
    ranks->on_failure_arg = arg;
    if (call != NULL) eventfd_write(ranks->poke, 1);
    pthread_mutex_unlock(&ranks->mutex);
}

bool br_ranks_halt(struct br_ranks *ranks)
{
    return ranks == NULL || ranks->engine == NULL || engine_halt(ranks->engine);
}

bool br_ranks_hangs(const struct br_ranks *ranks)
{
    return ranks != NULL && engine_hangs(ranks->engine);
}

void ranks_free(struct br_ranks *ranks)
{
    ranks_free_posts(ranks);
    for (unsigned r = 0; ranks->wire != NULL && r < ranks->hubs; r++) wire_close(&ranks->wire[r]);
    free(ranks->gathered);
    free(ranks->wire);
    free(ranks->poll);
    if (ranks->poke >= 0) close(ranks->poke);
    free(ranks);
}

int br_ranks_leave(struct br_ranks *ranks, int status)
{
    if (ranks == NULL) return status;
    struct timespec until = {0};
    uint32_t mine = (uint32_t)status;
    pthread_mutex_lock(&ranks->mutex);
    for (unsigned r = 0; r < ranks->hubs; r++) ranks_say(ranks, r, WIRE_BYE, 0, &mine, sizeof mine);
    /* With nothing wrong the others may take as long as they need. */
    int result = 0;
    bool bounded = false;
    while (ranks->listens && !ranks->all_done && result != ETIMEDOUT) {
        if (!bounded && (ranks->failed || (status != 0 && status != 130))) {
            until = br_clock_in(CLOCK_MONOTONIC, GOODBYE_S * UINT64_C(1000000000));
            bounded = true;
        }
        result = bounded ? pthread_cond_timedwait(&ranks->changed, &ranks->mutex, &until)
                         : pthread_cond_wait(&ranks->changed, &ranks->mutex);
    }
    bool clean = !ranks->failed && ranks->all_done && (ranks->worst == 0 || ranks->worst == 130);
    if (ranks->failed && (status == 0 || status == 130)) {
        if (ranks->failed_rank != ranks->rank)
            br_log(ranks->log, BR_LOG_ERROR, NULL, "rank %u %s", ranks->failed_rank, ranks->why);
        status = ranks->failed_status;
    } else if (status == 0 && ranks->worst != 0) {
        status = ranks->worst;
    }
    for (unsigned r = 0; r < ranks->hubs; r++) wire_close(&ranks->wire[r]);
    ranks->quit = true;
    eventfd_write(ranks->poke, 1);
    pthread_mutex_unlock(&ranks->mutex);
    if (ranks->listens) pthread_join(ranks->listener, NULL);
    /* Without rank 0 nobody says when all are done: the others notice what this one did within a moment,
     * and who ends first has them killed. */
    if (ranks->cut_off) nanosleep(&(struct timespec){1, 500000000}, NULL);
    hub_destroy(ranks->hub, ranks->rank > 0 ? 0 : clean ? GOODBYE_S : 2);
    if (!engine_destroy(ranks->engine, clean)) { /* nor can its thread be ended */
        fflush(NULL);
        _exit(status);
    }
    ranks_free(ranks);
    return status;
}
