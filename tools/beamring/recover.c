/* recover.c - `beamring recover`: bursts of `inject`, looked for where its ledger has them. */
#include "tools/beamring/recover.h"
#include "runtime/base/pool.h"
#include "tools/beamring/arguments.h"
#include "tools/beamring/commands.h"

#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: beamring recover LEDGER FILES... [--stage NAME] [--first-beam N] [--ratio LOW,HIGH] [--plot "
    "FILE]\n"
    "                        [--json]\n"
    "FILES are filterbank files, or recordings of beams such as `beamring receive` writes.\n";

/* Reads the options; the other arguments move to the front of argv. Returns their number, or -1. */
static int read_options(int argc, char **argv, struct recover *r)
{
    int count = 0;
    for (int i = 1; i < argc; i++) {
        char *end = NULL;
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--json") == 0) {
            r->json = true;
        } else if (strcmp(argv[i], "--stage") == 0 && i + 1 < argc) {
            r->stage = argv[++i];
        } else if (strcmp(argv[i], "--plot") == 0 && i + 1 < argc) {
            r->picture = argv[++i];
        } else if (strcmp(argv[i], "--first-beam") == 0) {
            r->first_beam = strtol(value, &end, 10);
            if (end == value || *end != '\0' || r->first_beam < 0) return -1;
            i++;
        } else if (strcmp(argv[i], "--ratio") == 0) {
            r->low = strtod(value, &end);
            if (end == value || *end != ',') return -1;
            r->high = strtod(end + 1, &end);
            if (*end != '\0' || !(r->low < r->high)) return -1;
            i++;
        } else if (argv[i][0] == '-' && argv[i][1] != '\0') {
            unknown_option("recover", argv[i]);
            return -1;
        } else {
            argv[count++] = argv[i];
        }
    }
    return count >= 2 ? count : -1;
}

/* The beam of the files in which the event should be brightest; -1: none. A refused event has no prediction:
 * `nth` counts the beams to look into. */
static long best_beam(const struct recover *r, const struct recover_event *e, size_t *nth)
{
    long best = -1;
    double most = 0;
    for (size_t i = *nth; i < r->nfiles; i++) {
        long beam = r->file[i].beam;
        if (e->snr == NULL) {
            *nth = i + 1;
            return beam;
        }
        if (beam < 0 || beam >= (long)e->nbeams || e->snr[beam] <= most) continue;
        most = e->snr[beam];
        best = beam;
    }
    *nth = r->nfiles;
    return best;
}

static bool look(const struct recover *r, const struct recover_event *e, struct recovered *found)
{
    *found = (struct recovered){.beam = -1};
    for (size_t nth = 0; nth < r->nfiles;) {
        struct recovered one = {.beam = best_beam(r, e, &nth)};
        double cover;
        if (one.beam < 0) break;
        one.predicted = e->snr != NULL ? e->snr[one.beam] : 0;
        if (!recover_measure(r, e, one.beam, &cover, &one)) return false;
        if (cover >= 0.5 && (found->beam < 0 || one.snr > found->snr))
            *found = one;
        else if (found->beam < 0)
            found->unsteady = found->unsteady || one.unsteady;
    }
    return true;
}

/* The events, looked for by several threads. */
struct search {
    const struct recover *recover;
    struct recovered *found;
    _Atomic bool failed;
};

static void look_for(void *arg, size_t i, unsigned worker)
{
    struct search *s = arg;
    (void)worker;
    if (!s->failed && !look(s->recover, &s->recover->event[i], &s->found[i])) s->failed = true;
}

/* What the files have of each event, in their order; the caller frees it. NULL: after a message. */
static struct recovered *look_for_all(const struct recover *r)
{
    struct search s = {.recover = r, .found = calloc(r->nevents + 1, sizeof *s.found)};
    struct br_pool *pool = br_pool_create(br_pool_default_threads(0), NULL, 0);
    struct br_round round;
    if (s.found == NULL || pool == NULL) {
        fputs("beamring recover: there is not enough memory\n", stderr);
        s.failed = true;
    } else {
        br_round_begin(&round, pool, 0, r->nevents, look_for, &s);
        br_round_end(&round);
    }
    br_pool_destroy(pool);
    if (s.failed) free(s.found), s.found = NULL;
    return s.found;
}

int cmd_recover(int argc, char **argv)
{
    struct recover r = {.low = 0.97, .high = 1.03};
    int count = read_options(argc, argv, &r), status = 1;
    if (count < 0) {
        fputs(usage, stderr);
        return 2;
    }
    r.ledger = argv[0];
    struct recovered *found = NULL;
    if (recover_ledger(&r) == 0 && recover_open(&r, count - 1, argv + 1) == 0) found = look_for_all(&r);
    if (found != NULL) status = recover_report(&r, found);
    free(found);
    recover_close(&r);
    for (size_t i = 0; i < r.nevents; i++) {
        free(r.event[i].id);
        free(r.event[i].state);
        free(r.event[i].snr);
    }
    free(r.event);
    return status;
}
