#include "formats/links/tcp_server.h"

#include "buffers/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { READS = 64 }; /* of one peer before the others' */

int tcp_server_listen(struct tcp_server *s, const struct net_address *address, struct br_error *error)
{
    s->listener = net_listen(address, error);
    return s->listener < 0 ? error->status : BR_OK;
}

void tcp_server_close_peer(struct tcp_server *s, unsigned peer)
{
    struct tcp_peer *p = &s->peer[peer];
    if (!p->open) return;
    close(p->fd);
    p->open = false;
    s->open--;
    s->calls->end(s->owner, peer);
}

void tcp_server_close(struct tcp_server *s)
{
    for (unsigned i = 0; i < s->most; i++) tcp_server_close_peer(s, i);
    if (s->listener >= 0) close(s->listener);
    s->listener = -1;
}

static const uint8_t *pending(const struct tcp_server *s, unsigned peer, size_t *bytes)
{
    *bytes = 0;
    return s->calls->pending != NULL ? s->calls->pending(s->owner, peer, bytes) : NULL;
}

static void write_some(struct tcp_server *s, unsigned peer)
{
    size_t bytes;
    const uint8_t *from = pending(s, peer, &bytes);
    if (bytes == 0) return;
    ssize_t n = send(s->peer[peer].fd, from, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (s->calls->sent(s->owner, peer, n > 0 ? (size_t)n : 0)) return;
    snprintf(s->complaint, WIRE_COMPLAINT, "a peer was closed: it does not read its acknowledgements");
    s->counts->silent++;
    tcp_server_close_peer(s, peer);
}

/* `why` is 0 where the peer closed, else an errno. */
static void ended(struct tcp_server *s, unsigned peer, int why)
{
    if (why != 0 || !s->calls->may_close(s->owner, peer)) {
        s->counts->broken++;
        snprintf(s->complaint, WIRE_COMPLAINT, "a connection ended within a message%s%s",
                 why != 0 ? ": " : "", why != 0 ? strerror(why) : "");
    }
    size_t bytes;
    const uint8_t *rest = pending(s, peer, &bytes);
    if (bytes > 0) send(s->peer[peer].fd, rest, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    tcp_server_close_peer(s, peer);
}

static void read_some(struct tcp_server *s, unsigned peer)
{
    for (unsigned i = 0; i < READS; i++) {
        size_t bytes;
        uint8_t *to = s->calls->room(s->owner, peer, &bytes);
        if (bytes == 0) return;
        ssize_t n = recv(s->peer[peer].fd, to, bytes, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (n <= 0) {
            ended(s, peer, n < 0 ? errno : 0);
            return;
        }
        s->peer[peer].heard_at = br_clock_ns();
        enum tcp_next next = s->calls->got(s->owner, peer, (size_t)n);
        if (next == TCP_CLOSE) tcp_server_close_peer(s, peer);
        if (next != TCP_CLOSE) write_some(s, peer);
        if (next != TCP_MORE || !s->peer[peer].open) return;
    }
}

static unsigned free_place(const struct tcp_server *s)
{
    unsigned i = 0;
    while (i < s->most && s->peer[i].open) i++;
    return i;
}

/* A free place; where there is none, the oldest stranger's, once all strangers have been heard: a handshake
 * may have come already. `most`: all are known. */
static unsigned make_place(struct tcp_server *s)
{
    unsigned place = free_place(s), oldest = s->most;
    for (unsigned i = 0; i < s->most && place == s->most; i++)
        if (s->peer[i].open && !s->calls->is_known(s->owner, i)) read_some(s, i);
    if (place == s->most) place = free_place(s);
    if (place < s->most) return place;
    for (unsigned i = 0; i < s->most; i++)
        if (!s->calls->is_known(s->owner, i) &&
            (oldest == s->most || s->peer[i].since < s->peer[oldest].since))
            oldest = i;
    if (oldest == s->most) return oldest;
    snprintf(s->complaint, WIRE_COMPLAINT,
             "a peer was closed: it had not sent its handshake yet, and all %u connections were taken",
             s->most);
    s->counts->silent++;
    tcp_server_close_peer(s, oldest);
    return oldest;
}

static void accept_all(struct tcp_server *s)
{
    for (;;) {
        int fd = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) return; /* nobody, or one that has gone again */
        unsigned i = make_place(s);
        if (i == s->most) {
            close(fd);
            s->counts->refused++;
            snprintf(s->complaint, WIRE_COMPLAINT, "a connection was refused: there are %u already", s->most);
            continue;
        }
        uint64_t now = br_clock_ns();
        s->peer[i] =
            (struct tcp_peer){.open = true, .fd = fd, .since = now, .heard_at = now, .busy_since = now};
        s->open++;
        s->counts->connections++;
        s->calls->begin(s->owner, i);
    }
}

static void close_slow(struct tcp_server *s, unsigned peer)
{
    struct tcp_peer *p = &s->peer[peer];
    uint64_t now = br_clock_ns();
    if (s->calls->may_be_silent(s->owner, peer)) {
        p->busy_since = now;
        return;
    }
    double busy = (double)(now - p->busy_since) * 1e-9, silent = (double)(now - p->heard_at) * 1e-9;
    bool known = s->calls->is_known(s->owner, peer);
    if (silent > s->handshake_s)
        snprintf(s->complaint, WIRE_COMPLAINT, "a peer was closed: it said nothing for %g s within a message",
                 s->handshake_s);
    else if (!known && busy > s->handshake_s)
        snprintf(s->complaint, WIRE_COMPLAINT, "a peer was closed: its handshake took more than %g s",
                 s->handshake_s);
    else if (busy > TCP_PATIENCE * s->handshake_s)
        snprintf(s->complaint, WIRE_COMPLAINT, "a peer was closed: a message took more than %g s",
                 TCP_PATIENCE * s->handshake_s);
    else
        return;
    s->counts->silent++;
    tcp_server_close_peer(s, peer);
}

int tcp_server_step(struct tcp_server *s, int ms, struct br_error *error)
{
    struct pollfd wait[TCP_PEERS + 1];
    for (unsigned i = 0; i < s->most; i++) {
        wait[i] = (struct pollfd){.fd = -1};
        if (!s->peer[i].open) continue;
        size_t reads, writes;
        s->calls->room(s->owner, i, &reads);
        pending(s, i, &writes);
        wait[i].events = (short)((reads > 0 ? POLLIN : 0) | (writes > 0 ? POLLOUT : 0));
        if (wait[i].events != 0) wait[i].fd = s->peer[i].fd;
    }
    wait[s->most] = (struct pollfd){.fd = s->listener, .events = POLLIN};
    int n = poll(wait, s->most + 1, ms);
    if (n < 0 && errno != EINTR)
        return br_fail(error, BR_E_IO, "cannot wait for the network: %s", strerror(errno));
    for (unsigned i = 0; i < s->most; i++) {
        if (s->peer[i].open && n > 0 && (wait[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0)
            read_some(s, i);
        if (s->peer[i].open) write_some(s, i);
        if (s->peer[i].open) close_slow(s, i);
    }
    if (n > 0 && (wait[s->most].revents & POLLIN) != 0) accept_all(s);
    return BR_OK;
}
