/* report.c - what became of the packets, in words. See capture.h. */
#include "stages/capture/capture.h"

#include "formats/common/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { WARN_EVERY_S = 60, TEXT = 700 };

uint64_t capture_packets(const struct capture *c)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < c->nreceivers; i++)
        n += atomic_load_explicit(&c->receiver[i].packets, memory_order_relaxed);
    return n;
}

static uint64_t total(const struct capture *c, enum window_reason reason)
{
    uint64_t n = 0;
    for (size_t s = 0; s <= c->layout.nsources; s++) n += window_count(&c->window, s, reason);
    return n;
}

/* Kinds of trouble, in the order of their reports; capture_warn puts the number between the two. */
enum trouble { KERNEL_LOST, NIC_MISSED, FRAGMENTS, NO_FRAME, BEHIND, MALFORMED, TROUBLES };
static const struct {
    const char *before, *behind;
} troubles[] = {
    [KERNEL_LOST] = {"the kernel lost ",
                     "packets, each bundle counted as one (more `threads`, a larger `receive_buffer`)"},
    [NIC_MISSED] = {"the NIC missed ", "packets (longer rings: `ethtool -G`; more queues)"},
    [FRAGMENTS] = {"", "IP fragments came: the MTU on the way is too small for these packets"},
    [NO_FRAME] = {"", "packets found no free frame: a later stage is too slow"},
    [BEHIND] = {"",
                "packets found no frame though some were free: this stage's thread was not run in time (more "
                "processors, or fewer programs on them)"},
    [MALFORMED] = {"", "packets are malformed: `beamring capture-report` shows what arrives"},
};

void capture_warn(struct br_stage *stage, struct capture *c, uint64_t now)
{
    if (c->warn_ns != 0 && now - c->warn_ns < (uint64_t)WARN_EVERY_S * 1000000000u) return;
    uint64_t counts[TROUBLES] = {[NO_FRAME] = total(c, WINDOW_NO_FRAME),
                                 [BEHIND] = total(c, WINDOW_BEHIND),
                                 [MALFORMED] = total(c, WINDOW_MALFORMED)};
    int broke = 0;
    for (unsigned i = 0; i < c->nreceivers; i++) {
        const struct receiver *r = &c->receiver[i];
        counts[KERNEL_LOST] += atomic_load_explicit(&r->kernel_lost, memory_order_relaxed);
        counts[FRAGMENTS] += atomic_load_explicit(&r->fragments, memory_order_relaxed);
        if (broke == 0) broke = atomic_load_explicit(&r->broke, memory_order_relaxed);
    }
    for (size_t k = 0; k < c->nnics; k++) counts[NIC_MISSED] += c->nic[k].counted[CAPTURE_MISSED];
    char text[TEXT] = "";
    for (unsigned i = 0; i < TROUBLES; i++)
        if (counts[i] > c->told[i])
            text_append(text, TEXT, "; %s%" PRIu64 " %s", troubles[i].before, counts[i] - c->told[i],
                        troubles[i].behind);
    if (broke != 0) text_append(text, TEXT, "; receiving fails: %s", strerror(broke));
    if (c->reopening.status != BR_OK) text_append(text, TEXT, "; a new interface: %s", c->reopening.text);
    if (text[0] == '\0') return;
    _Static_assert(sizeof counts == sizeof c->told, "what was told has a place for each trouble");
    memcpy(c->told, counts, sizeof counts);
    c->warn_ns = now;
    br_stage_warn(stage, "%s", text + 2);
}

/* A source is silent when nothing has come of it for so long. */
#define SILENT_NS ((uint64_t)1000000000)

/* Tells the log that these sources have gone, or are back, once for each change. */
static void tell(struct br_stage *stage, const struct capture *c, size_t count, size_t first, bool gone)
{
    if (count == 0) return;
    char others[48] = "";
    if (count > 1) snprintf(others, sizeof others, " and %zu other%s", count - 1, count > 2 ? "s" : "");
    long long source = c->layout.source_id[first];
    if (gone)
        br_stage_warn(stage, "source %lld%s: no packets for 1 s", source, others);
    else
        br_stage_note(stage, "source %lld%s: packets arrive again", source, others);
}

void capture_say_who_is_silent(struct br_stage *stage, struct capture *c, uint64_t now)
{
    size_t silent = 0, expected = 0, longest = 0, gone = 0, back = 0, first_gone = 0, first_back = 0;
    char text[240];
    for (size_t s = 0; s < c->layout.nsources; s++) {
        if (c->window.live[s] || c->seen_ns[s] == 0) c->seen_ns[s] = now;
        bool quiet = now - c->seen_ns[s] >= SILENT_NS && !c->window.absent[s];
        if (quiet && !c->quiet[s] && gone++ == 0) first_gone = s;
        if (!quiet && c->quiet[s] && !c->window.absent[s] && back++ == 0) first_back = s;
        c->quiet[s] = quiet;
        if (c->window.absent[s]) continue;
        expected++;
        if (!quiet) continue;
        if (silent++ == 0 || c->seen_ns[s] < c->seen_ns[longest]) longest = s;
    }
    tell(stage, c, gone, first_gone, true);
    tell(stage, c, back, first_back, false);
    /* Nothing at all is what the stage waits for; some missing is what it is in trouble with. */
    bool all = silent == expected;
    br_stage_waits_for(stage, all ? "packets: none come" : NULL);
    if (all || silent == 0) {
        br_stage_trouble(stage, NULL);
        return;
    }
    snprintf(text, sizeof text, "%zu of %zu sources send nothing: source %" PRId64 " for %.0f s", silent,
             expected, c->layout.source_id[longest], (double)(now - c->seen_ns[longest]) * 1e-9);
    br_stage_trouble(stage, text);
}

uint64_t capture_never_came(const struct capture *c, size_t source)
{
    uint64_t came = window_count(&c->window, source, WINDOW_LATE) +
                    window_count(&c->window, source, WINDOW_FLAGGED) +
                    window_count(&c->window, source, WINDOW_MALFORMED);
    uint64_t missing = c->window.missing[source];
    return missing > came ? missing - came : 0;
}

static void say(struct br_stage *stage, const struct capture *c, size_t source)
{
    char text[TEXT] = "", who[64] = "no known source";
    uint64_t sum = 0;
    for (int r = 0; r < WINDOW_NREASONS; r++) {
        uint64_t n = window_count(&c->window, source, (enum window_reason)r);
        sum += n;
        if (n > 0) text_append(text, TEXT, ", %" PRIu64 " %s", n, window_reason_name[r]);
    }
    if (source < c->layout.nsources) {
        snprintf(who, sizeof who, "source %" PRId64, c->layout.source_id[source]);
        text_append(text, TEXT, ", %" PRIu64 " never came", capture_never_came(c, source));
    } else if (sum == 0) {
        return;
    }
    br_stage_note(stage, "%s: %s", who, text + 2);
}

void capture_report(struct br_stage *stage, const struct capture *c)
{
    uint64_t kernel = 0, never = 0, xdp[3] = {0};
    for (unsigned i = 0; i < c->nreceivers; i++) {
        const struct receiver *r = &c->receiver[i];
        kernel += atomic_load(&r->kernel_lost);
        xdp[0] += atomic_load(&r->xdp.dropped);
        xdp[1] += atomic_load(&r->xdp.ring_full);
        xdp[2] += atomic_load(&r->xdp.fill_empty);
    }
    for (size_t s = 0; s < c->layout.nsources; s++) never += capture_never_came(c, s);
    char text[TEXT] = "";
    for (int r = 0; r < WINDOW_NREASONS; r++)
        text_append(text, TEXT, ", %" PRIu64 " %s", total(c, (enum window_reason)r), window_reason_name[r]);
    br_stage_note(stage,
                  "%" PRIu64 " packets: %s; %" PRIu64 " never came, of which the kernel lost %" PRIu64
                  "; %" PRIu64 " resets",
                  capture_packets(c), text + 2, never, kernel, c->resets);
    for (size_t k = 0; k < c->nnics; k++)
        if (c->nic[k].counted[CAPTURE_MISSED] > 0)
            br_stage_note(stage, "%s missed %" PRIu64 " packets: the NIC had no room for them",
                          c->nic[k].name, c->nic[k].counted[CAPTURE_MISSED]);
    if (xdp[0] + xdp[1] + xdp[2] > 0)
        br_stage_note(stage,
                      "AF_XDP: rx_dropped %" PRIu64 ", rx_ring_full %" PRIu64
                      ", rx_fill_ring_empty_descs %" PRIu64,
                      xdp[0], xdp[1], xdp[2]);
    for (size_t s = 0; s <= c->layout.nsources; s++) say(stage, c, s);
}
