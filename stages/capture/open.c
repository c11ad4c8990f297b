/* open.c - where packets come in: addresses, interfaces, threads. See capture.h. */
#include "stages/capture/capture.h"

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

int capture_check_addresses(struct br_stage *stage, struct capture *c)
{
    size_t n = c->addresses.count, m = c->interfaces.count;
    for (size_t i = 0; i < n; i++)
        if (!net_is_address(c->addresses.value[i]))
            return br_stage_fail_at(stage, "addresses",
                                    "'%.100s' is not an address; expected host:port, such as *:4011 or "
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
        br_stage_note(stage, "listening on port %u%s%s with `%s`%s, %d thread%s",
                      net_port(way_socket(&c->receiver[i])), c->receiver[i].interface != NULL ? " of " : "",
                      c->receiver[i].interface != NULL ? c->receiver[i].interface : "",
                      c->receiver[i].way->name,
                      c->receiver[i].without_copy ? " (the kernel copies nothing)" : "", (int)c->threads,
                      c->threads == 1 ? "" : "s");
}

/* Sets up all receivers, none of them open. */
static int set_receivers(struct capture *c, const struct receiver_way *way, bool no_copy,
                         struct br_error *error)
{
    size_t naddresses = c->addresses.count, ninterfaces = c->interfaces.count;
    int status = BR_OK;
    for (unsigned i = 0; i < c->nreceivers && status == BR_OK; i++) {
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
            .peers = c->receiver,
            .npeers = c->nreceivers,
            .no_copy = no_copy,
            .buffer_bytes = (size_t)c->receive_buffer,
            .fd = -1,
            .guard = -1};
        status = net_resolve(&r->at, naddresses > 0 ? c->addresses.value[place] : text, SOCK_DGRAM, error);
    }
    return status;
}

/* The index of the interface that the user names; 0: unknown, or any interface. */
static unsigned index_of(const struct receiver *r)
{
    return r->interface != NULL ? if_nametoindex(r->interface) : 0;
}

static int open_all(struct capture *c, const struct receiver_way *way, bool no_copy, struct br_error *error)
{
    int status = set_receivers(c, way, no_copy, error);
    for (unsigned i = 0; i < c->nreceivers && status == BR_OK; i++) {
        status = way->open(&c->receiver[i], error);
        c->receiver[i].index = index_of(&c->receiver[i]);
        if (status == BR_OK) continue;
        for (unsigned k = 0; k <= i; k++) way->close(&c->receiver[k]);
    }
    return status;
}

int capture_open_first(struct br_stage *stage, struct capture *c, struct br_error *error)
{
    static const struct receiver_way *const ways[] = {&receiver_xdp, &receiver_packet, &receiver_socket};
    enum { WAYS = sizeof ways / sizeof *ways };
    bool any = strcmp(c->backend, "auto") == 0;
    int status = BR_E_IO;
    for (unsigned i = 0; i < WAYS && status != BR_OK; i++) {
        if (!any && strcmp(c->backend, ways[i]->name) != 0) continue;
        *error = (struct br_error){0};
        status = open_all(c, ways[i], any && ways[i] == &receiver_xdp, error);
        if (status != BR_OK && any && i < WAYS - 1)
            br_stage_note(stage, "`%s` is not used: %s", ways[i]->name, error->text);
    }
    return status;
}

/* --- an interface that was removed and made anew ----------------------------------------------- */

static bool is_on(const struct receiver *r, const char *interface)
{
    return r->interface != NULL && strcmp(r->interface, interface) == 0;
}

/* All receivers of an interface anew. */
static int reopen(struct capture *c, const char *interface, unsigned index, struct br_error *error)
{
    struct receiver *end = c->receiver + c->nreceivers;
    int status = BR_OK;
    for (struct receiver *r = c->receiver; r < end; r++)
        if (is_on(r, interface)) receiver_stop(r);
    for (struct receiver *r = c->receiver; r < end && status == BR_OK; r++)
        if (is_on(r, interface)) status = r->way->open(r, error);
    for (struct receiver *r = c->receiver; r < end && status == BR_OK; r++) {
        if (!is_on(r, interface)) continue;
        atomic_store(&r->stop, false);
        status = receiver_start(r, error);
    }
    for (struct receiver *r = c->receiver; r < end; r++) {
        if (!is_on(r, interface)) continue;
        if (status == BR_OK)
            r->index = index;
        else
            receiver_stop(r);
    }
    return status;
}

void capture_look_for_interfaces(struct br_stage *stage, struct capture *c)
{
    struct br_error error = {0};
    for (struct receiver *r = c->receiver; r < c->receiver + c->nreceivers; r++) {
        unsigned index = index_of(r);
        if (index == r->index) continue;
        if (index == 0) {
            atomic_store(&r->broke, ENODEV);
        } else if (reopen(c, r->interface, index, &error) == BR_OK) {
            br_stage_note(stage, "interface %s is another one: listening again", r->interface);
        } else {
            c->reopening = error;
        }
    }
    if (error.status == BR_OK) c->reopening = error;
}
