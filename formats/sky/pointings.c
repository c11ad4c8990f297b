#include "formats/sky/pointings.h"

#include <stdlib.h>
#include <string.h>

/* Days that are over when sample 0 comes are of no use to it. */
static struct eop days_from(const struct eop *eop, int64_t unix_ns)
{
    struct eop rest = *eop;
    int64_t over = unix_ns / INT64_C(86400000000000) + MJD_1970 - 2 - eop->first_mjd;
    size_t skip = over <= 0 ? 0 : (size_t)over < eop->ndays ? (size_t)over : eop->ndays - 1;
    return (struct eop){rest.ndays - skip, rest.first_mjd + (int64_t)skip, rest.day + skip};
}

static size_t padded(size_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

/* Copies behind what *at has of the block, and moves it on. */
static void *put(uint8_t **at, const void *data, size_t bytes)
{
    void *there = *at;
    if (data == NULL) return NULL;
    memcpy(there, data, bytes);
    *at += padded(bytes);
    return there;
}

static size_t nsources(const struct br_motion *m)
{
    return m->sources == NULL ? 0 : m->nx > 0 ? 1 : m->nbeams;
}

struct br_pointing *br_pointing_make(const struct br_motion *m, uint64_t from)
{
    size_t nsky = nsources(m), beams = m->nbeams * sizeof *m->beams;
    size_t bytes = padded(sizeof(struct br_pointing)) + 2 * padded(beams) +
                   padded(nsky * sizeof *m->sources) + padded(sizeof *m->site) + padded(sizeof(struct eop));
    struct eop eop = {0};
    if (m->site != NULL && m->site->eop != NULL) eop = days_from(m->site->eop, m->epoch_ns);
    bytes += padded(eop.ndays * sizeof *eop.day);
    for (size_t i = 0; i < nsky; i++)
        if (m->sources[i].name != NULL) bytes += padded(strlen(m->sources[i].name) + 1);
    struct br_pointing *p = calloc(1, bytes);
    if (p == NULL) return NULL;
    uint8_t *at = (uint8_t *)p + padded(sizeof *p);
    p->from = from;
    p->users = 1;
    p->motion = *m;
    p->motion.pointings = NULL;
    p->motion.beams = put(&at, m->beams, beams);
    p->motion.rates = put(&at, m->rates, beams);
    struct sky_source *sources = put(&at, m->sources, nsky * sizeof *m->sources);
    for (size_t i = 0; i < nsky; i++)
        if (sources[i].name != NULL) sources[i].name = put(&at, sources[i].name, strlen(sources[i].name) + 1);
    p->motion.sources = sources;
    struct apparent_site *site = put(&at, m->site, sizeof *m->site);
    p->motion.site = site;
    if (eop.ndays > 0) {
        eop.day = put(&at, eop.day, eop.ndays * sizeof *eop.day);
        site->eop = put(&at, &eop, sizeof eop);
    }
    return p;
}

void br_pointing_release(struct br_pointing *held)
{
    if (held != NULL && atomic_fetch_sub(&held->users, 1) == 1) free(held);
}

void br_pointing_free(struct br_pointing *p)
{
    while (p != NULL) {
        struct br_pointing *later = p->later;
        br_pointing_release(p);
        p = later;
    }
}

static bool same_table(const void *a, const void *b, size_t bytes)
{
    return (a == NULL) == (b == NULL) && (a == NULL || memcmp(a, b, bytes) == 0);
}

static bool same_source(const struct sky_source *a, const struct sky_source *b)
{
    const double values[2][4] = {{a->x, a->y, a->ra, a->dec}, {b->x, b->y, b->ra, b->dec}};
    return a->kind == b->kind && memcmp(values[0], values[1], sizeof values[0]) == 0 &&
           strcmp(a->name != NULL ? a->name : "", b->name != NULL ? b->name : "") == 0;
}

/* Whether beams point alike: updates of gains alone change nothing here. */
static bool same_motion(const struct br_motion *a, const struct br_motion *b)
{
    const struct eop *x = a->site != NULL ? a->site->eop : NULL, *y = b->site != NULL ? b->site->eop : NULL;
    size_t bytes = a->nbeams * sizeof *a->beams;
    bool same = a->nbeams == b->nbeams && a->every == b->every && same_table(a->beams, b->beams, bytes) &&
                same_table(a->rates, b->rates, bytes) && (a->sources == NULL) == (b->sources == NULL) &&
                (x == NULL) == (y == NULL) && (x == NULL || eop_end_ns(x) == eop_end_ns(y)) &&
                memcmp(a->spacing, b->spacing, sizeof a->spacing) == 0 &&
                memcmp(&a->reference_s, &b->reference_s, sizeof a->reference_s) == 0;
    for (size_t i = 0; same && i < nsources(a); i++) same = same_source(&a->sources[i], &b->sources[i]);
    return same;
}

void br_pointings_enter(const struct br_motion *file, struct br_pointing *chain, uint64_t sample)
{
    struct br_pointings *p = file != NULL ? file->pointings : NULL;
    struct br_pointing **at, *old = NULL, *same = NULL, *last;
    const struct br_motion *before = file;
    size_t kept = 1;
    if (p == NULL || chain == NULL) {
        br_pointing_free(chain);
        return;
    }
    for (; (last = chain->later) != NULL && last->from <= sample; chain = last) br_pointing_release(chain);
    chain->from = sample;
    pthread_mutex_lock(&p->lock);
    for (at = &p->first; *at != NULL && (*at)->from < sample; at = &(*at)->later) {
        before = &(*at)->motion;
        kept++;
    }
    struct br_pointing *replaced = *at;
    if (same_motion(before, &chain->motion)) {
        same = chain;
        chain = chain->later;
    }
    *at = chain;
    if (kept > POINTINGS_KEPT) { /* one call adds one */
        old = p->first;
        p->first = old->later;
        old->later = NULL;
    }
    pthread_mutex_unlock(&p->lock);
    br_pointing_release(same);
    br_pointing_free(replaced);
    br_pointing_free(old);
}

void br_pointings_clear(const struct br_motion *file)
{
    struct br_pointings *p = file != NULL ? file->pointings : NULL;
    if (p == NULL) return;
    pthread_mutex_lock(&p->lock);
    struct br_pointing *all = p->first;
    p->first = NULL;
    pthread_mutex_unlock(&p->lock);
    br_pointing_free(all);
}

const struct br_motion *br_pointings_hold(const struct br_motion *file, uint64_t sample,
                                          struct br_pointing **held)
{
    *held = NULL;
    if (file == NULL || file->pointings == NULL) return file;
    pthread_mutex_lock(&file->pointings->lock);
    for (struct br_pointing *p = file->pointings->first; p != NULL && p->from <= sample; p = p->later)
        *held = p;
    if (*held != NULL) atomic_fetch_add(&(*held)->users, 1);
    pthread_mutex_unlock(&file->pointings->lock);
    return *held != NULL ? &(*held)->motion : file;
}

uint64_t br_pointings_next(const struct br_motion *file, uint64_t sample)
{
    uint64_t next = UINT64_MAX;
    if (file == NULL || file->pointings == NULL) return next;
    pthread_mutex_lock(&file->pointings->lock);
    for (struct br_pointing *p = file->pointings->first; p != NULL && next == UINT64_MAX; p = p->later)
        if (p->from > sample) next = p->from;
    pthread_mutex_unlock(&file->pointings->lock);
    return next;
}
