/* open.c - where packets come in: addresses, interfaces, threads. See capture.h. */
#include "stages/capture/capture.h"

#include <stdio.h>

int capture_check_addresses(struct br_stage *stage, struct capture *c)
{
    size_t n = c->addresses.count, m = c->interfaces.count;
    for (size_t i = 0; i < n; i++)
        if (!net_is_address(c->addresses.value[i]))
            return br_stage_fail_at(stage, "addresses",
                                    "'%.100s' is no address; expected host:port, such as *:4011 or "
                                    "239.1.1.1:7148",
                                    c->addresses.value[i]);
    if (n > 0 && m > 1 && m != n)
        return br_stage_fail_at(stage, "interfaces",
                                "%zu interfaces for %zu addresses; expected one for all, or one for each", m,
                                n);
    if (n == 0 && c->description->port == 0)
        return br_stage_fail(
            stage, BR_E_INVALID,
            "'%s' does not say a UDP port; give `addresses: [\"*:PORT\"]`, or `port:` in the description",
            c->description->name);
    if ((n > 0 ? n : m > 0 ? m : 1) * (size_t)c->threads > WINDOW_MAX_THREADS)
        return br_stage_fail_at(stage, "threads", "more than %d threads together", WINDOW_MAX_THREADS);
    return BR_OK;
}

/* The one that is bound to a port. */
static int way_socket(const struct receiver *r)
{
    return r->guard >= 0 ? r->guard : r->fd;
}

/* For people, and for programs that wait until packets may be sent. */
void capture_say_ready(struct br_stage *stage, struct capture *c)
{
    if (c->said) return;
    c->said = true;
    for (unsigned i = 0; i < c->nreceivers; i += (unsigned)c->threads)
        br_stage_note(stage, "listening on port %u%s%s with `%s`, %d thread%s",
                      net_port(way_socket(&c->receiver[i])), c->receiver[i].interface != NULL ? " of " : "",
                      c->receiver[i].interface != NULL ? c->receiver[i].interface : "",
                      c->receiver[i].way->name, (int)c->threads, c->threads == 1 ? "" : "s");
}

int capture_open(struct capture *c, const struct receiver_way *way, struct br_error *error)
{
    size_t naddresses = c->addresses.count, ninterfaces = c->interfaces.count;
    for (unsigned i = 0; i < c->nreceivers; i++) {
        size_t place = i / (unsigned)c->threads;
        char text[32];
        snprintf(text, sizeof text, "*:%u", c->description->port);
        struct receiver *r = &c->receiver[i];
        *r = (struct receiver){
            .window = &c->window,
            .thread = &c->window.thread[i],
            .way = way,
            .interface = ninterfaces == 0 ? NULL : c->interfaces.value[ninterfaces == 1 ? 0 : place],
            .member = i % (unsigned)c->threads,
            .members = (unsigned)c->threads,
            .buffer_bytes = (size_t)c->receive_buffer,
            .fd = -1,
            .guard = -1};
        int status =
            net_resolve(&r->at, naddresses > 0 ? c->addresses.value[place] : text, SOCK_DGRAM, error);
        if (status == BR_OK) status = way->open(r, error);
        if (status == BR_OK) continue;
        for (unsigned k = 0; k <= i; k++) way->close(&c->receiver[k]);
        return status;
    }
    return BR_OK;
}
