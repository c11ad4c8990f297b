/* counters.c - see counters.h. */
#include "stages/capture/capture.h"

#include <ifaddrs.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* Up to MOST_SOURCES sources have counters of their own; more sources have only their sums. */
enum { MOST_SOURCES = 512, REASONS = WINDOW_NREASONS + 1, KERNEL = 5, NIC = CAPTURE_NIC };

static const char *const kernel_counter[KERNEL] = {"lost", "ip_fragments", "xdp_rx_dropped",
                                                   "xdp_rx_ring_full", "xdp_rx_fill_ring_empty"};
static const char *const nic_counter[NIC] = {"missed", "dropped", "errors"};

static size_t groups(const struct capture *c)
{
    return c->layout.nsources <= MOST_SOURCES ? c->layout.nsources : 1;
}

/* The interfaces that the user named, each once. */
static void find_nics(struct br_stage *stage, struct capture *c)
{
    c->nic = br_stage_alloc(stage, (c->interfaces.count + 1) * sizeof *c->nic);
    c->nnics = 0;
    for (size_t i = 0; i < c->interfaces.count; i++) {
        bool there = false;
        for (size_t k = 0; k < c->nnics; k++) there |= strcmp(c->nic[k].name, c->interfaces.value[i]) == 0;
        if (!there) c->nic[c->nnics++] = (struct capture_nic){.name = c->interfaces.value[i]};
    }
}

void capture_make_counters(struct br_stage *stage, struct capture *c)
{
    enum { TEXT = 40 };
    find_nics(stage, c);
    size_t ngroups = groups(c), n = (ngroups + 1) * REASONS + KERNEL + c->nnics * NIC, at = 0;
    struct br_counter *counter = br_stage_alloc(stage, n * sizeof *counter);
    char *text = br_stage_alloc(stage, ngroups * TEXT);

    for (size_t g = 0; g <= ngroups; g++, text += TEXT) {
        const char *of = g < ngroups ? text : "no known source";
        if (g < ngroups && ngroups == c->layout.nsources)
            snprintf(text, TEXT, "source %lld", (long long)c->layout.source_id[g]);
        else if (g < ngroups)
            snprintf(text, TEXT, "all sources");
        for (int r = 0; r < WINDOW_NREASONS; r++)
            counter[at++] = (struct br_counter){of, window_reason_name[r]};
        if (g < ngroups) counter[at++] = (struct br_counter){of, "never_came"};
    }
    for (int i = 0; i < KERNEL; i++) counter[at++] = (struct br_counter){"kernel", kernel_counter[i]};
    for (size_t k = 0; k < c->nnics; k++)
        for (int i = 0; i < NIC; i++) counter[at++] = (struct br_counter){c->nic[k].name, nic_counter[i]};
    br_stage_has_counters(stage, counter, at);
}

void capture_look_at_nics(struct capture *c)
{
    struct ifaddrs *all = NULL;
    if (c->nnics == 0 || getifaddrs(&all) != 0) return;
    for (const struct ifaddrs *a = all; a != NULL; a = a->ifa_next) {
        if (a->ifa_addr == NULL || a->ifa_addr->sa_family != AF_PACKET || a->ifa_data == NULL) continue;
        const struct rtnl_link_stats *stats = a->ifa_data;
        const uint32_t now[NIC] = {stats->rx_missed_errors, stats->rx_dropped, stats->rx_errors};
        for (struct capture_nic *nic = c->nic; nic < c->nic + c->nnics; nic++) {
            if (strcmp(nic->name, a->ifa_name) != 0) continue;
            unsigned index = if_nametoindex(nic->name);
            bool same = nic->index == index; /* one that was created again counts from 0 */
            for (int i = 0; i < NIC; i++) {
                if (nic->index != 0)
                    nic->counted[i] += same && now[i] >= nic->known[i] ? now[i] - nic->known[i] : now[i];
                nic->known[i] = now[i];
            }
            nic->index = index;
        }
    }
    freeifaddrs(all);
}

void capture_count(struct br_stage *stage, struct capture *c)
{
    size_t at = 0, ngroups = groups(c), each = ngroups == c->layout.nsources ? 1 : c->layout.nsources;
    uint64_t kernel[KERNEL] = {0};
    for (size_t g = 0; g <= ngroups; g++) {
        size_t begin = g < ngroups ? g * each : c->layout.nsources,
               end = g < ngroups ? begin + each : begin + 1;
        uint64_t count[REASONS] = {0};
        for (size_t s = begin; s < end; s++) {
            for (int r = 0; r < WINDOW_NREASONS; r++)
                count[r] += window_count(&c->window, s, (enum window_reason)r);
            if (g < ngroups) count[WINDOW_NREASONS] += capture_never_came(c, s);
        }
        for (int r = 0; r < REASONS - (g == ngroups); r++) br_stage_count(stage, at++, count[r]);
    }
    for (unsigned i = 0; i < c->nreceivers; i++) {
        struct receiver *r = &c->receiver[i];
        _Atomic uint64_t *const value[KERNEL] = {&r->kernel_lost, &r->fragments, &r->xdp.dropped,
                                                 &r->xdp.ring_full, &r->xdp.fill_empty};
        for (int k = 0; k < KERNEL; k++) kernel[k] += atomic_load_explicit(value[k], memory_order_relaxed);
    }
    for (int k = 0; k < KERNEL; k++) br_stage_count(stage, at++, kernel[k]);
    for (size_t k = 0; k < c->nnics; k++)
        for (int i = 0; i < NIC; i++) br_stage_count(stage, at++, c->nic[k].counted[i]);
}
