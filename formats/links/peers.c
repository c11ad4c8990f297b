#include "formats/links/peers.h"
#include "buffers/clock.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LOOK_MS = 50, ACCEPT_S = 1, FIRST_BACKOFF_NS = 100000000, STOP_PATIENCE_S = 5, MAX_PEERS = 256 };

static void tell(const struct peers *peers, void (*say)(void *owner, const char *text), const char *format,
                 ...) __attribute__((format(printf, 3, 4)));
static void tell(const struct peers *peers, void (*say)(void *owner, const char *text), const char *format,
                 ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    say(peers->host.owner, text);
}

static uint64_t in_ns(double seconds)
{
    return (uint64_t)(seconds * 1e9);
}

static void hang_up(struct peer *peer)
{
    if (peer->fd >= 0) close(peer->fd);
    peer->fd = -1;
    peer->state = PEER_DOWN;
    peer->npieces = 0;
}

static uint64_t answered(const struct peer *peer)
{
    return peer->acked + peer->refused;
}

/* The connection is over: what it has not answered, it never will. */
static void settle_answers(const struct peers *peers, struct peer *peer)
{
    if (!peers->acks || peer->expected_acks <= answered(peer)) return;
    peer->unanswered += peer->expected_acks - answered(peer);
    peer->expected_acks = answered(peer);
}

/* The receiver has ended the connection, with or without a word. */
static void count_ending(const struct peers *peers, struct peer *peer)
{
    bool lasted = br_clock_ns() - peer->up_at > in_ns(ACCEPT_S);
    if (!peers->acks && peer->expected_acks > 0 && lasted) peer->accepted = true;
    if (!peer->accepted) peer->endings++;
}

/* Says for the node's status who is not there, for as long as it is so. */
static void say_who_is_gone(struct peers *peers)
{
    const struct peer *first = NULL;
    size_t gone = 0;
    char text[200];
    for (size_t i = 0; i < peers->count; i++) {
        if (!peers->peer[i].told) continue;
        gone++;
        if (first == NULL) first = &peers->peer[i];
    }
    if (gone > 1)
        snprintf(text, sizeof text, "%.100s and %zu other destinations are not there", first->to.text,
                 gone - 1);
    else if (gone == 1)
        snprintf(text, sizeof text, "destination %.100s is not there", first->to.text);
    peers->host.trouble(peers->host.owner, gone > 0 ? text : NULL);
}

/* The peer is gone, or was never there. BR_OK when the stage goes on without it. */
static int lose(struct peers *peers, struct peer *peer, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static int lose(struct peers *peers, struct peer *peer, const char *format, ...)
{
    char why[160];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    bool was_up = peer->state == PEER_UP;
    settle_answers(peers, peer);
    hang_up(peer);
    uint64_t most = in_ns(peers->retry_s);
    peer->backoff_ns = was_up || peer->backoff_ns == 0 ? FIRST_BACKOFF_NS : 2 * peer->backoff_ns;
    if (peer->backoff_ns > most) peer->backoff_ns = most;
    peer->retry_at = br_clock_ns() + peer->backoff_ns;
    if (!peers->reconnect)
        return br_fail(&peers->error, BR_E_IO,
                       "%s: %s after %llu messages (reconnect: true would continue without it)",
                       peer->to.text, why, (unsigned long long)peer->sent);
    if (was_up || !peer->told)
        tell(peers, peers->host.warn, "%s: %s after %llu messages; going on without it, and trying again",
             peer->to.text, why, (unsigned long long)peer->sent);
    peer->told = true;
    say_who_is_gone(peers);
    return BR_OK;
}

static int try_to_connect(struct peers *peers, struct peer *peer)
{
    peer->fd = net_connect(&peer->to);
    if (peer->fd < 0) return lose(peers, peer, "cannot connect: %s", strerror(errno));
    peer->state = PEER_CONNECTING;
    peer->progress_at = br_clock_ns();
    return BR_OK;
}

static int finish_connecting(struct peers *peers, struct peer *peer)
{
    int reason = net_connected(peer->fd);
    if (reason != 0) return lose(peers, peer, "cannot connect: %s", strerror(reason));
    if (peer->told) tell(peers, peers->host.note, "%s: connected", peer->to.text);
    peer->state = PEER_UP;
    peer->told = false;
    say_who_is_gone(peers);
    peer->connections++;
    peer->hello_sent = 0;
    peer->expected_acks = peer->acked = peer->refused = 0;
    peer->progress_at = peer->up_at = br_clock_ns();
    return BR_OK;
}

/* Sends as much as the system takes now. */
static int push(struct peers *peers, struct peer *peer)
{
    while (peer->hello_sent < peer->hello_bytes || peer->npieces > 0) {
        struct iovec all[PEER_PIECES + 1];
        unsigned n = 0;
        if (peer->hello_sent < peer->hello_bytes)
            all[n++] =
                (struct iovec){(char *)peer->hello + peer->hello_sent, peer->hello_bytes - peer->hello_sent};
        for (unsigned i = 0; i < peer->npieces; i++) all[n++] = peer->piece[i];
        struct msghdr message = {.msg_iov = all, .msg_iovlen = n};
        ssize_t sent = sendmsg(peer->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return BR_OK;
        if (sent < 0) {
            int why = errno;
            count_ending(peers, peer);
            return lose(peers, peer, "connection lost (%s)", strerror(why));
        }
        peer->progress_at = br_clock_ns();
        size_t left = (size_t)sent, hello = peer->hello_bytes - peer->hello_sent;
        if (hello > left) hello = left;
        peer->hello_sent += hello;
        left -= hello;
        unsigned done = 0;
        while (done < peer->npieces && left >= peer->piece[done].iov_len) left -= peer->piece[done++].iov_len;
        if (done < peer->npieces) {
            peer->piece[done].iov_base = (char *)peer->piece[done].iov_base + left;
            peer->piece[done].iov_len -= left;
        }
        memmove(peer->piece, peer->piece + done, (peer->npieces - done) * sizeof *peer->piece);
        peer->npieces -= done;
    }
    return BR_OK;
}

/* Reads what the peer answers: acknowledgements, or the end of the connection. */
static int listen_to(struct peers *peers, struct peer *peer)
{
    uint8_t answer[4096];
    for (;;) {
        ssize_t n = recv(peer->fd, answer, sizeof answer, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return BR_OK;
        if (n <= 0) {
            int why = errno;
            count_ending(peers, peer);
            return n == 0 ? lose(peers, peer, "the receiver closed the connection")
                          : lose(peers, peer, "connection lost: %s", strerror(why));
        }
        peer->progress_at = br_clock_ns();
        for (ssize_t i = 0; i < n && peers->acks; i++) {
            bool most = answered(peer) >= peer->expected_acks + peer->in_flight;
            if (!most && answer[i] <= 1) {
                *(answer[i] == 1 ? &peer->acked : &peer->refused) += 1;
                peer->accepted = true;
                continue;
            }
            count_ending(peers, peer);
            return lose(peers, peer, "it was closed: it answered %u%s; expected 1 or 0 for each message",
                        answer[i], most ? " to nothing that was sent" : "");
        }
    }
}

/* Waits up to `ms` for anything to happen to the peers, and lets it happen. */
static int serve(struct peers *peers, int ms)
{
    struct pollfd wait[MAX_PEERS];
    for (size_t i = 0; i < peers->count; i++) {
        const struct peer *peer = &peers->peer[i];
        bool writes =
            peer->state == PEER_CONNECTING || peer->npieces > 0 || peer->hello_sent < peer->hello_bytes;
        wait[i] = (struct pollfd){.fd = peer->state == PEER_DOWN ? -1 : peer->fd,
                                  .events = (short)(POLLIN | (writes ? POLLOUT : 0))};
    }
    if (poll(wait, peers->count, ms) < 0 && errno != EINTR)
        return br_fail(&peers->error, BR_E_IO, "cannot wait for the network: %s", strerror(errno));
    int status = BR_OK;
    for (size_t i = 0; i < peers->count && status == BR_OK; i++) {
        struct peer *peer = &peers->peer[i];
        if (wait[i].fd < 0 || wait[i].revents == 0) continue;
        if (peer->state == PEER_CONNECTING)
            status = finish_connecting(peers, peer);
        else if ((wait[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0)
            status = listen_to(peers, peer);
        if (status == BR_OK && peer->state == PEER_UP) status = push(peers, peer);
    }
    return status;
}

/* True once the pipeline has been stopping for long enough. */
static bool out_of_patience(struct peers *peers)
{
    if (!peers->host.stopping(peers->host.owner)) return false;
    uint64_t now = br_clock_ns();
    if (peers->stop_seen == 0) peers->stop_seen = now;
    return now - peers->stop_seen > (uint64_t)STOP_PATIENCE_S * 1000000000;
}

int peers_open(struct peers *peers)
{
    uint64_t until = br_clock_ns() + in_ns(peers->connect_s);
    int status = BR_OK;
    if (peers->opened) return BR_OK;
    peers->opened = true;
    if (peers->count > MAX_PEERS)
        return br_fail(&peers->error, BR_E_INVALID, "%zu destinations; at most %d are possible", peers->count,
                       MAX_PEERS);
    for (;;) {
        size_t up = 0;
        bool reconnect = peers->reconnect;
        peers->reconnect =
            true; /* until the time is up, a refusal is not a failure: the receiver may be starting */
        for (size_t i = 0; i < peers->count && status == BR_OK; i++) {
            struct peer *peer = &peers->peer[i];
            if (peer->state == PEER_DOWN && br_clock_ns() >= peer->retry_at)
                status = try_to_connect(peers, peer);
            up += peer->state == PEER_UP;
        }
        if (status == BR_OK && up < peers->count) status = serve(peers, LOOK_MS);
        peers->reconnect = reconnect;
        if (status != BR_OK || up == peers->count) return status;
        if (br_clock_ns() >= until || peers->host.stopping(peers->host.owner)) break;
    }
    for (size_t i = 0; i < peers->count && status == BR_OK && !peers->reconnect; i++)
        if (peers->peer[i].state != PEER_UP)
            status = br_fail(&peers->error, BR_E_IO, "%s could not be reached within connect_s = %g s",
                             peers->peer[i].to.text, peers->connect_s);
    return status;
}

bool peer_ready(struct peers *peers, struct peer *peer)
{
    bool reconnect = peers->reconnect;
    peers->reconnect = true;
    if (peer->state == PEER_DOWN && br_clock_ns() >= peer->retry_at) try_to_connect(peers, peer);
    if (peer->state == PEER_CONNECTING) {
        struct pollfd wait = {.fd = peer->fd, .events = POLLOUT};
        if (poll(&wait, 1, 0) == 1) finish_connecting(peers, peer);
    }
    peers->reconnect = reconnect;
    if (peer->state != PEER_UP) peer->missed++;
    return peer->state == PEER_UP;
}

void peer_add(struct peer *peer, const void *data, size_t bytes)
{
    if (bytes > 0) peer->piece[peer->npieces++] = (struct iovec){(void *)(uintptr_t)data, bytes};
}

int peers_send(struct peers *peers)
{
    bool had[MAX_PEERS] = {false};
    int status = BR_OK, missed = 0;
    uint64_t now = br_clock_ns();
    for (size_t i = 0; i < peers->count && status == BR_OK; i++) {
        struct peer *peer = &peers->peer[i];
        had[i] = peer->in_flight = peer->npieces > 0;
        if (!had[i]) continue;
        peer->progress_at = now;
        if (peers->acks) status = listen_to(peers, peer);
        if (status == BR_OK && peer->state == PEER_UP) status = push(peers, peer);
    }
    for (bool busy = true; busy && status == BR_OK;) {
        busy = false;
        for (size_t i = 0; i < peers->count && status == BR_OK; i++) {
            struct peer *peer = &peers->peer[i];
            if (!had[i] || peer->state != PEER_UP || peer->npieces == 0) continue;
            double still = (double)(br_clock_ns() - peer->progress_at) * 1e-9;
            if (still > peers->stall_s || (still > 1 && out_of_patience(peers)))
                status = lose(peers, peer, "it stopped reading");
            else
                busy = true;
        }
        if (busy) peers->host.waits_for(peers->host.owner, "a receiver that reads too slowly");
        if (busy && status == BR_OK) status = serve(peers, LOOK_MS);
    }
    peers->host.waits_for(peers->host.owner, NULL);
    if (status != BR_OK) return status;
    for (size_t i = 0; i < peers->count; i++) {
        struct peer *peer = &peers->peer[i];
        bool arrived = had[i] && peer->state == PEER_UP;
        peer->in_flight = false;
        if (arrived) peer->expected_acks++;
        if (arrived)
            peer->sent++;
        else
            missed++;
        if (had[i] && !arrived) peer->missed++;
    }
    return missed;
}

/* Bytes that the peer's system has not acknowledged yet. */
static bool all_arrived(const struct peer *peer)
{
    int left = 0;
    return peer->hello_sent == peer->hello_bytes && (ioctl(peer->fd, SIOCOUTQ, &left) != 0 || left == 0);
}

void peers_close(struct peers *peers)
{
    if (!peers->opened) return;
    bool reconnect = peers->reconnect;
    uint64_t moved = br_clock_ns(), arrived_at = 0, answers = 0;
    peers->reconnect = true; /* what happens now is told, and fails nothing */
    for (;;) {
        uint64_t now = br_clock_ns(), seen = 0;
        bool waiting = false, arrived = true;
        for (size_t i = 0; i < peers->count; i++) {
            const struct peer *peer = &peers->peer[i];
            if (peer->state != PEER_UP) continue;
            seen += answered(peer);
            arrived = arrived && all_arrived(peer);
            if (peers->acks) waiting = waiting || answered(peer) < peer->expected_acks;
        }
        if (!arrived)
            arrived_at = 0;
        else if (arrived_at == 0)
            arrived_at = now;
        if (!peers->acks) waiting = arrived_at == 0 || now - arrived_at < in_ns(peers->idle_s);
        if (seen != answers) moved = now;
        answers = seen;
        for (size_t i = 0; i < peers->count && !waiting && !peers->acks; i++)
            if (peers->peer[i].state == PEER_UP && peers->peer[i].expected_acks > 0)
                peers->peer[i].accepted = true;
        if (!waiting) break;
        if (now - moved > in_ns(peers->close_s + peers->idle_s)) {
            tell(peers, peers->host.warn, "not everything that was sent has been %s within %g s",
                 peers->acks ? "answered" : "taken in", peers->close_s);
            break;
        }
        bool any = false;
        for (size_t i = 0; i < peers->count; i++) any = any || peers->peer[i].state == PEER_UP;
        if (!any || serve(peers, 10) != BR_OK) break;
    }
    peers->reconnect = reconnect;
    peers_abandon(peers);
}

int peers_verdict(struct peers *peers)
{
    for (size_t i = 0; i < peers->count; i++) {
        const struct peer *peer = &peers->peer[i];
        if (!peer->accepted && peers->acks && peer->endings == 0 && peer->sent > 0)
            return br_fail(&peers->error, BR_E_IO,
                           "%s was sent %llu messages and has acknowledged none; expected a receiver that "
                           "answers (or give `acks: false`)",
                           peer->to.text, (unsigned long long)peer->sent);
        if (peer->accepted || peer->endings == 0) continue;
        return br_fail(&peers->error, BR_E_IO,
                       "%s ended %llu connection%s and never accepted anything; its log says why it does "
                       "not take what is sent",
                       peer->to.text, (unsigned long long)peer->endings, peer->endings == 1 ? "" : "s");
    }
    return BR_OK;
}

void peers_abandon(struct peers *peers)
{
    for (size_t i = 0; i < peers->count; i++) {
        if (peers->peer[i].state == PEER_DOWN) continue;
        settle_answers(peers, &peers->peer[i]);
        hang_up(&peers->peer[i]);
    }
}

int peers_create(struct peers *peers, size_t count, const char *const *address)
{
    peers->peer = calloc(count, sizeof *peers->peer);
    if (peers->peer == NULL)
        return br_fail(&peers->error, BR_E_NO_MEMORY, "no memory for %zu destinations", count);
    peers->count = count;
    for (size_t i = 0; i < count; i++) peers->peer[i].fd = -1;
    int status = BR_OK;
    for (size_t i = 0; i < count && status == BR_OK; i++)
        status = net_resolve(&peers->peer[i].to, address[i], SOCK_STREAM, &peers->error);
    return status;
}

void peers_report(const struct peers *peers, const char *what)
{
    for (size_t i = 0; i < peers->count && peers->opened; i++) {
        const struct peer *peer = &peers->peer[i];
        char answers[160] = "";
        if (peers->acks)
            snprintf(answers, sizeof answers,
                     ", %llu not acknowledged, in the last connection %llu assembled and %llu dropped there",
                     (unsigned long long)peer->unanswered, (unsigned long long)peer->acked,
                     (unsigned long long)peer->refused);
        tell(peers, peers->host.note, "%s: %llu %s sent, %llu missed, %llu connection%s%s", peer->to.text,
             (unsigned long long)peer->sent, what, (unsigned long long)peer->missed,
             (unsigned long long)peer->connections, peer->connections == 1 ? "" : "s", answers);
    }
}

void peers_free(struct peers *peers)
{
    if (peers->peer == NULL) return;
    peers_abandon(peers);
    for (size_t i = 0; i < peers->count; i++) free(peers->peer[i].hello);
    free(peers->peer);
    peers->peer = NULL;
    peers->count = 0;
}
