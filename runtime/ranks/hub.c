/* hub.c - see hub.h. */
#include "runtime/ranks/hub.h"

#include "buffers/clock.h"
#include "buffers/threads.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { STRANGERS = 16, TICK_MS = 100, CONNECT_S = 60, HELLO_S = 5 };

struct hub_rank {
    struct wire wire;
    bool came, done, gone; /* it has connected; it said goodbye; its connection is lost, or it has failed */
    uint64_t heard_ns;
    unsigned char *part; /* of what is being gathered */
    size_t part_bytes;
    bool has_part;
};

struct hub {
    unsigned ranks;
    struct hub_rank *rank;
    struct wire stranger[STRANGERS]; /* connected, and yet to say who they are: HELLO_S from then on, */
    uint64_t since_ns[STRANGERS];    /* and less where others come and there is no room */
    int listening;
    unsigned char token[WIRE_TOKEN];
    struct pollfd *poll;
    _Atomic uint64_t stall_ns, end_ns; /* end_ns: when to end although ranks are there; 0: not yet */
    uint64_t begun_ns, beaten_ns;
    struct hub_posts posts;
    bool failed, told;
    struct wire_head failure; /* what all are told of it, those too that connect later */
    unsigned char failure_text[BR_ERROR_LENGTH + 64];
    uint32_t worst;
    pthread_t thread;
};

static void say(struct hub *hub, unsigned to, const struct wire_head *head, const void *payload)
{
    struct hub_rank *r = &hub->rank[to];
    if (r->wire.fd >= 0) wire_send(&r->wire, head, payload); /* a lost connection shows when it is read */
}

/* The first failure is what helps; all hear of it, the one that failed too. */
static void fail(struct hub *hub, unsigned from, uint32_t status, const char *text, size_t length)
{
    unsigned char *payload = hub->failure_text;
    const size_t most = sizeof hub->failure_text - sizeof status;
    if (length > most) length = most;
    if (hub->failed) return;
    hub->failed = true;
    hub->worst = status;
    memcpy(payload, &status, sizeof status);
    memcpy(payload + sizeof status, text, length);
    hub->failure = (struct wire_head){.type = WIRE_FAILED, .from = from, .length = sizeof status + length};
    for (unsigned r = 0; r < hub->ranks; r++) say(hub, r, &hub->failure, payload);
}

static void gather(struct hub *hub, unsigned from, const unsigned char *payload, size_t length)
{
    struct hub_rank *mine = &hub->rank[from];
    free(mine->part);
    mine->part = malloc(length + 1);
    if (mine->part == NULL) {
        static const char text[] = "no memory for what the ranks tell each other";
        fail(hub, from, 1, text, sizeof text - 1);
        return;
    }
    memcpy(mine->part, payload, length);
    mine->part_bytes = length;
    mine->has_part = true;
    size_t total = 0;
    for (unsigned r = 0; r < hub->ranks; r++) {
        if (!hub->rank[r].has_part) return;
        total += sizeof(uint64_t) + hub->rank[r].part_bytes;
    }
    unsigned char *all = malloc(total), *at = all;
    if (all == NULL) return;
    for (unsigned r = 0; r < hub->ranks; r++) {
        uint64_t bytes = hub->rank[r].part_bytes;
        memcpy(at, &bytes, sizeof bytes);
        memcpy(at + sizeof bytes, hub->rank[r].part, bytes);
        at += sizeof bytes + bytes;
        hub->rank[r].has_part = false;
    }
    struct wire_head head = {.type = WIRE_GATHERED, .length = total};
    for (unsigned r = 0; r < hub->ranks; r++) say(hub, r, &head, all);
    free(all);
}

static void take_message(struct hub *hub, unsigned from, const struct wire_head *head,
                         const unsigned char *payload)
{
    uint32_t status = 1;
    if (head->length >= sizeof status) memcpy(&status, payload, sizeof status);
    if (head->type == WIRE_GATHER) gather(hub, from, payload, head->length);
    if (head->type == WIRE_POST && hub->posts.take != NULL)
        hub->posts.take(hub->posts.arg, from, head->channel, payload, head->length);
    if (head->type == WIRE_FAILED && head->length >= sizeof status)
        fail(hub, from, status, (const char *)payload + sizeof status, head->length - sizeof status);
    if (head->type == WIRE_BYE) {
        hub->rank[from].done = true;
        if (status > hub->worst) hub->worst = status;
    }
}

static void read_rank(struct hub *hub, unsigned r)
{
    static const char text[] = "has ended without a word: killed, crashed, or its machine is gone";
    struct hub_rank *rank = &hub->rank[r];
    const struct wire_head *head;
    const unsigned char *payload;
    bool open = wire_fill(&rank->wire);
    while ((head = wire_next(&rank->wire, &payload)) != NULL) {
        rank->heard_ns = br_clock_ns();
        take_message(hub, r, head, payload);
        wire_drop(&rank->wire);
    }
    if (open && rank->wire.fd >= 0) return;
    wire_close(&rank->wire);
    bool expected = rank->done;
    rank->gone = true; /* before all are told */
    if (!expected && !hub->posts.only) fail(hub, r, 1, text, sizeof text - 1);
}

/* Tells a rank that does not belong to the job why not. */
static void refuse(struct wire *wire, uint32_t status, const char *text)
{
    unsigned char payload[BR_ERROR_LENGTH + 64];
    size_t length = strlen(text);
    memcpy(payload, &status, sizeof status);
    memcpy(payload + sizeof status, text, length);
    wire_send(wire, &(struct wire_head){.type = WIRE_FAILED, .length = sizeof status + length}, payload);
}

/* Whether the rank that says hello is one of the job's. Where it is not, by what all were told of RANK and
 * RANKS, all end: somebody is missing. */
static bool is_expected(struct hub *hub, struct wire *stranger, const struct wire_head *head)
{
    char theirs[200], text[200];
    unsigned from = head->from, count = head->channel;
    if (count == hub->ranks && from < count && !hub->rank[from].came) return true;
    if (count != hub->ranks || from >= count) {
        static const char same[] = "expected the same RANKS for all of the job";
        snprintf(theirs, sizeof theirs, "has RANKS = %u, and this is rank %u of %u; %s", hub->ranks, from,
                 count, same);
        snprintf(text, sizeof text, "has said that it is rank %u of %u, and rank 0 has RANKS = %u; %s", from,
                 count, hub->ranks, same);
    } else {
        static const char other[] = "expected another RANK for each process of the job";
        snprintf(theirs, sizeof theirs, "knows a rank %u already; %s", from, other);
        snprintf(text, sizeof text, "is there twice; %s", other);
    }
    refuse(stranger, 2, theirs);
    fail(hub, from < hub->ranks ? from : hub->ranks - 1, 2, text, strlen(text));
    /* Nobody waits for the others; rank 0 is this process. */
    for (unsigned r = 1; r < hub->ranks; r++) hub->rank[r].gone |= !hub->rank[r].came;
    return false;
}

/* Someone who has connected says who he is, with the token that only ranks of this job know. */
static void read_stranger(struct hub *hub, struct wire *stranger)
{
    const unsigned char *payload;
    bool open = wire_fill(stranger);
    const struct wire_head *head = wire_next(stranger, &payload);
    if (head == NULL) {
        if (!open || stranger->in.used > 4096) wire_close(stranger);
        return;
    }
    if (head->type != WIRE_HELLO || head->length != WIRE_TOKEN ||
        memcmp(payload, hub->token, WIRE_TOKEN) != 0 || !is_expected(hub, stranger, head)) {
        wire_close(stranger);
        return;
    }
    struct hub_rank *rank = &hub->rank[head->from];
    wire_drop(stranger);
    rank->wire = *stranger;
    rank->came = true;
    rank->gone = false;
    rank->heard_ns = br_clock_ns();
    *stranger = (struct wire){.fd = -1};
    say(hub, (unsigned)(rank - hub->rank), &(struct wire_head){.type = WIRE_BEAT}, NULL);
    if (hub->failed) say(hub, (unsigned)(rank - hub->rank), &hub->failure, hub->failure_text);
}

/* Who has connected says at once who he is: a rank is not held up by those who do not, and cannot be pushed
 * out by them. */
static void accept_one(struct hub *hub)
{
    unsigned oldest = 0;
    int fd = accept4(hub->listening, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) return;
    /* Short messages one after the other must not wait for each other's acknowledgement. */
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    for (unsigned i = 0; i < STRANGERS && hub->stranger[oldest].fd >= 0; i++)
        if (hub->stranger[i].fd < 0 || hub->since_ns[i] < hub->since_ns[oldest]) oldest = i;
    wire_close(&hub->stranger[oldest]);
    hub->stranger[oldest].fd = fd;
    hub->since_ns[oldest] = br_clock_ns();
    read_stranger(hub, &hub->stranger[oldest]);
}

static void close_slow_strangers(struct hub *hub, uint64_t now)
{
    for (unsigned i = 0; i < STRANGERS; i++)
        if (hub->stranger[i].fd >= 0 && now - hub->since_ns[i] > (uint64_t)HELLO_S * 1000000000u)
            wire_close(&hub->stranger[i]);
}

/* Who has not been heard of for too long. */
static void find_stalled(struct hub *hub, uint64_t now)
{
    char text[160];
    uint64_t stall = atomic_load(&hub->stall_ns);
    for (unsigned r = 0; r < hub->ranks; r++) {
        struct hub_rank *rank = &hub->rank[r];
        if (rank->done || rank->gone) continue;
        if (!rank->came && now - hub->begun_ns > (uint64_t)CONNECT_S * 1000000000u) {
            rank->gone = true;
            int n = snprintf(text, sizeof text, "has not connected within %d s", CONNECT_S);
            fail(hub, r, 1, text, (size_t)n);
        }
        if (!rank->came || now < rank->heard_ns || now - rank->heard_ns < stall) continue;
        rank->gone = true;
        int n = snprintf(text, sizeof text,
                         "has given no sign of life for %.1f s (stall_s allows %.1f s): stopped, or its "
                         "machine or network hangs",
                         (double)(now - rank->heard_ns) * 1e-9, (double)stall * 1e-9);
        fail(hub, r, 1, text, (size_t)n);
    }
}

static void beat(struct hub *hub, uint64_t now)
{
    if (now - hub->beaten_ns < 250000000u) return;
    struct wire_head head = {.type = WIRE_BEAT};
    hub->beaten_ns = now;
    for (unsigned r = 0; r < hub->ranks; r++) say(hub, r, &head, NULL);
}

/* True when nobody is left who will say anything. */
static bool tell_the_end(struct hub *hub)
{
    bool all = true, connected = false;
    for (unsigned r = 0; r < hub->ranks; r++) {
        all &= hub->rank[r].done || hub->rank[r].gone;
        connected |= hub->rank[r].wire.fd >= 0 && !hub->rank[r].gone;
    }
    if (all && !hub->told) {
        hub->told = true;
        struct wire_head head = {.type = WIRE_ALL_DONE, .length = sizeof hub->worst};
        for (unsigned r = 0; r < hub->ranks; r++) say(hub, r, &head, &hub->worst);
    }
    return all && !connected;
}

static void *serve(void *arg)
{
    struct hub *hub = arg;
    for (;;) {
        unsigned n = 0;
        for (unsigned r = 0; r < hub->ranks; r++) {
            struct wire *wire = &hub->rank[r].wire;
            hub->poll[n++] =
                (struct pollfd){wire->fd, (short)(POLLIN | (wire->out.used > 0 ? POLLOUT : 0)), 0};
        }
        for (unsigned i = 0; i < STRANGERS; i++)
            hub->poll[n++] = (struct pollfd){hub->stranger[i].fd, POLLIN, 0};
        hub->poll[n++] = (struct pollfd){hub->listening, POLLIN, 0};
        poll(hub->poll, n, TICK_MS);
        if (hub->poll[n - 1].revents != 0) accept_one(hub);
        for (unsigned i = 0; i < STRANGERS; i++)
            if (hub->poll[hub->ranks + i].revents != 0) read_stranger(hub, &hub->stranger[i]);
        for (unsigned r = 0; r < hub->ranks; r++) {
            if (hub->poll[r].revents & POLLOUT) wire_flush(&hub->rank[r].wire);
            if (hub->poll[r].revents & ~POLLOUT) read_rank(hub, r);
        }
        uint64_t now = br_clock_ns(), end = atomic_load(&hub->end_ns);
        close_slow_strangers(hub, now);
        if (!hub->posts.only) find_stalled(hub, now);
        if (!hub->posts.only) beat(hub, now);
        if (tell_the_end(hub) || (end != 0 && now > end)) return NULL;
    }
}

static void release(struct hub *hub)
{
    for (unsigned r = 0; hub->rank != NULL && r < hub->ranks; r++) {
        wire_close(&hub->rank[r].wire);
        free(hub->rank[r].part);
    }
    for (unsigned i = 0; i < STRANGERS; i++) wire_close(&hub->stranger[i]);
    if (hub->listening >= 0) close(hub->listening);
    free(hub->rank);
    free(hub->poll);
    free(hub);
}

static int begin(struct hub **result, unsigned ranks, const int *fd, int listening,
                 const unsigned char *token, struct hub_posts posts, struct br_error *error)
{
    struct hub *hub = calloc(1, sizeof *hub);
    *result = NULL;
    if (hub == NULL) return br_fail(error, BR_E_NO_MEMORY, "no memory for %u ranks", ranks);
    hub->ranks = ranks;
    hub->listening = listening;
    hub->posts = posts;
    hub->rank = calloc(ranks, sizeof *hub->rank);
    hub->poll = calloc(ranks + STRANGERS + 1, sizeof *hub->poll);
    for (unsigned i = 0; i < STRANGERS; i++) hub->stranger[i].fd = -1;
    atomic_store(&hub->stall_ns, (uint64_t)30 * 1000000000u); /* until the pipeline file says */
    hub->begun_ns = br_clock_ns();
    if (token != NULL) memcpy(hub->token, token, WIRE_TOKEN);
    for (unsigned r = 0; hub->rank != NULL && r < ranks; r++) {
        hub->rank[r].wire.fd = fd != NULL ? fd[r] : -1;
        hub->rank[r].came = fd != NULL;
        hub->rank[r].heard_ns = hub->begun_ns;
    }
    bool ok = hub->rank != NULL && hub->poll != NULL && br_thread_start(&hub->thread, serve, hub) == 0;
    if (!ok) release(hub);
    if (!ok) return br_fail(error, BR_E_NO_MEMORY, "no memory or no thread for %u ranks", ranks);
    *result = hub;
    return BR_OK;
}

int hub_create(struct hub **hub, unsigned ranks, const int *fd, struct br_error *error)
{
    return begin(hub, ranks, fd, -1, NULL, (struct hub_posts){.take = NULL}, error);
}

int hub_listen(struct hub **hub, unsigned ranks, int listening, const unsigned char token[WIRE_TOKEN],
               struct hub_posts posts, struct br_error *error)
{
    return begin(hub, ranks, NULL, listening, token, posts, error);
}

void hub_set_stall(struct hub *hub, double seconds)
{
    if (hub != NULL) atomic_store(&hub->stall_ns, (uint64_t)(seconds * 1e9));
}

void hub_destroy(struct hub *hub, double wait_s)
{
    if (hub == NULL) return;
    atomic_store(&hub->end_ns, br_clock_ns() + (uint64_t)(wait_s * 1e9));
    pthread_join(hub->thread, NULL);
    release(hub);
}
