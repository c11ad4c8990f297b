/* listen.c - the thread that hears what other ranks say, lets them in, and notices who is gone. */
#include "runtime/ranks/parts.h"

#include "buffers/clock.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

enum { TICK_MS = 100, CONNECT_S = 60 };
#define BEAT_NS UINT64_C(250000000)

/* Says that a rank has failed, which does not say so itself: rank 0 to all, another rank to itself. All but
 * rank 0 hear from rank 0 what has become of the others. */
__attribute__((format(printf, 4, 5))) static void report(struct br_ranks *ranks, unsigned r, unsigned status,
                                                         const char *format, ...)
{
    char text[300];
    va_list values;
    va_start(values, format);
    int length = vsnprintf(text, sizeof text, format, values);
    va_end(values);
    struct wire_head head = {WIRE_FAILED, r, status, 0, (uint64_t)length};
    if (ranks->rank == 0)
        hub_hears(ranks, r, &head, text);
    else if (r == 0)
        ranks_told(ranks, &head, text);
}

static void report_silence(struct br_ranks *ranks, unsigned r, uint64_t ns)
{
    report(ranks, r, 1,
           "has given no sign of life for %.1f s (stall_s allows %.1f s): stopped, or its machine or network "
           "hangs",
           (double)ns * 1e-9, (double)atomic_load(&ranks->stall_ns) * 1e-9);
}

static bool is_missed(const struct br_ranks *ranks, unsigned r)
{
    return !ranks->all_done && !ranks->peer[r].done && !ranks->peer[r].gone;
}

/* A rank is gone, or silent for too long. */
static void lose(struct br_ranks *ranks, unsigned r)
{
    ranks->peer[r].gone = true;
    ranks->all_done |= r == 0; /* nobody else says when */
    ranks_happened(ranks);
}

static void hear(struct br_ranks *ranks, unsigned from, const struct wire_head *head, const void *payload)
{
    if (head->type == WIRE_POST) {
        struct post *post = ranks_keep(ranks, from, head->number, head->length);
        if (post == NULL) {
            ranks_fail(ranks, 1, "has no memory for what other ranks say");
            return;
        }
        memcpy(post->data, payload, head->length);
        post->message.done = 1;
        ranks_happened(ranks);
    } else if (ranks->rank == 0) {
        hub_hears(ranks, from, head, payload);
    } else if (from == 0) {
        ranks_told(ranks, head, payload);
    }
}

static void read_peer(struct br_ranks *ranks, unsigned r)
{
    struct peer *peer = &ranks->peer[r];
    const struct wire_head *head;
    const unsigned char *payload;
    bool open = wire_fill(&peer->wire);
    while ((head = wire_next(&peer->wire, &payload)) != NULL) {
        peer->heard_ns = br_clock_ns();
        hear(ranks, r, head, payload);
        wire_drop(&peer->wire);
    }
    if (open && peer->wire.fd >= 0) return;
    wire_close(&peer->wire);
    /* Or did this process stand still, so that the others have given it up? */
    if (is_missed(ranks, r) && ranks->rank == 0 && ranks->paused_ns > atomic_load(&ranks->stall_ns))
        report_silence(ranks, 0, ranks->paused_ns);
    else if (is_missed(ranks, r))
        report(ranks, r, 1, "has ended without a word: killed, crashed, or its machine is gone");
    lose(ranks, r);
}

/* Whether the rank that says hello is one of the job's. Where it is not, by what all were told of RANK and
 * RANKS, all end: somebody is missing. */
static bool is_expected(struct br_ranks *ranks, const struct wire_head *head)
{
    unsigned from = head->from, count = head->number, named = from < ranks->count ? from : ranks->count - 1;
    if (count == ranks->count && from < count && !ranks->peer[from].came) return true;
    if (ranks->rank > 0) return false;
    if (count == ranks->count && from < count)
        report(ranks, named, 2, "is there twice; expected another RANK for each process of the job");
    else
        report(ranks, named, 2,
               "has said that it is rank %u of %u, and rank 0 has RANKS = %u; expected the same RANKS for "
               "all of the job",
               from, count, ranks->count);
    /* Nobody waits for those who have not come. */
    for (unsigned r = 1; r < ranks->count; r++) ranks->peer[r].gone |= !ranks->peer[r].came;
    return false;
}

static void read_stranger(struct br_ranks *ranks, struct wire *stranger)
{
    const unsigned char *payload;
    bool open = wire_fill(stranger);
    const struct wire_head *head = wire_next(stranger, &payload);
    if (head == NULL && open && stranger->in.used <= 4096) return;
    bool knows = head != NULL && head->type == WIRE_HELLO && head->length == WIRE_TOKEN &&
                 memcmp(payload, ranks->token, WIRE_TOKEN) == 0;
    unsigned from = knows ? head->from : 0;
    bool belongs = knows && is_expected(ranks, head);
    if (belongs) {
        wire_drop(stranger);
        wire_send(stranger, &(struct wire_head){.type = WIRE_BEAT}, NULL);
    }
    struct wire_head failure = {WIRE_FAILED, ranks->failed_rank, (uint32_t)ranks->failed_status, 0,
                                strlen(ranks->why)};
    if (knows && ranks->failed) wire_send(stranger, &failure, ranks->why);
    if (belongs)
        ranks_connected(ranks, from, *stranger);
    else
        wire_close(stranger);
    *stranger = (struct wire){.fd = -1};
}

/* Who has connected says at once who it is: a rank is not held up by those who do not, and cannot be pushed
 * out by them. */
static void accept_one(struct br_ranks *ranks)
{
    struct stranger *place = &ranks->stranger[0];
    int fd = accept4(ranks->listening, NULL, NULL, SOCK_CLOEXEC), on = 1;
    if (fd < 0) return;
    /* Short messages one after the other must not wait for each other's acknowledgement. */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    for (struct stranger *s = place; s < ranks->stranger + STRANGERS && place->wire.fd >= 0; s++)
        if (s->wire.fd < 0 || s->since_ns < place->since_ns) place = s;
    wire_close(&place->wire);
    *place = (struct stranger){{.fd = fd}, br_clock_ns()};
    read_stranger(ranks, &place->wire);
}

/* Rank 0 and each other rank show each other that they live, and notice when the other does not. */
static void watch(struct br_ranks *ranks)
{
    uint64_t now = br_clock_ns(), stall = atomic_load(&ranks->stall_ns);
    bool beats = now - ranks->beaten_ns > BEAT_NS;
    if (beats) ranks->beaten_ns = now;
    for (unsigned r = 0; r < (ranks->rank == 0 ? ranks->count : 1); r++) {
        struct peer *peer = &ranks->peer[r];
        if (r == ranks->rank) continue;
        if (beats) ranks_say(ranks, r, &(struct wire_head){.type = WIRE_BEAT, .from = ranks->rank}, NULL);
        if (ranks->paused_ns > stall / 2) peer->heard_ns = now; /* it may have spoken meanwhile */
        uint64_t most = peer->came ? stall : CONNECT_S * UINT64_C(1000000000);
        if (!is_missed(ranks, r) || now < peer->heard_ns + most) continue;
        if (peer->came)
            report_silence(ranks, r, now - peer->heard_ns);
        else
            report(ranks, r, 1, "has not connected within %d s", CONNECT_S);
        lose(ranks, r);
        if (ranks->rank == 0) continue;
        ranks->cut_off = true;
        wire_close(&peer->wire);
    }
}

static struct pollfd poll_of(const struct wire *wire)
{
    return (struct pollfd){wire->fd, (short)(POLLIN | (wire->out.used > 0 ? POLLOUT : 0)), 0};
}

static void wait_for_words(struct br_ranks *ranks)
{
    struct pollfd *strangers = ranks->poll, *own = strangers + STRANGERS, *peers = own + 2;
    unsigned n = ranks->reached; /* poll refuses more entries than the process may have files */
    eventfd_t poked;
    for (unsigned i = 0; i < STRANGERS; i++) strangers[i] = poll_of(&ranks->stranger[i].wire);
    own[0] = (struct pollfd){ranks->listening, POLLIN, 0};
    own[1] = (struct pollfd){ranks->poke, POLLIN, 0};
    for (unsigned r = 0; r < n; r++) peers[r] = poll_of(&ranks->peer[r].wire);
    pthread_mutex_unlock(&ranks->mutex);
    poll(ranks->poll, STRANGERS + 2 + n, TICK_MS);
    pthread_mutex_lock(&ranks->mutex);
    uint64_t now = br_clock_ns();
    ranks->paused_ns = now - ranks->looked_ns;
    ranks->looked_ns = now;
    if (own[1].revents != 0) eventfd_read(ranks->poke, &poked);
    for (unsigned r = 0; r < n; r++) {
        if (peers[r].revents & POLLOUT) wire_flush(&ranks->peer[r].wire);
        if (peers[r].revents & ~POLLOUT) read_peer(ranks, r);
    }
    for (unsigned i = 0; i < STRANGERS; i++)
        if (strangers[i].revents != 0) read_stranger(ranks, &ranks->stranger[i].wire);
    if (own[0].revents != 0) accept_one(ranks);
}

void *ranks_listen(void *arg)
{
    struct br_ranks *ranks = arg;
    pthread_mutex_lock(&ranks->mutex);
    while (!ranks->quit) {
        wait_for_words(ranks);
        watch(ranks);
        if (ranks->rank == 0) hub_look_for_end(ranks);
        if (!ranks->failed || ranks->on_failure == NULL) continue;
        void (*call)(void *arg) = ranks->on_failure;
        ranks->on_failure = NULL;
        call(ranks->on_failure_arg);
    }
    pthread_mutex_unlock(&ranks->mutex);
    return NULL;
}
