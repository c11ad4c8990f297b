/* window_sources.c - what the sources say together: where they are, whether a frame is over, whether they
 * have jumped. See window.h. For the stage's thread. */
#include "formats/common/order.h"
#include "formats/packets/window.h"

#include <stdlib.h>

static uint64_t packets_of(const struct window *w, size_t source)
{
    uint64_t sum = 0;
    for (int r = 0; r < WINDOW_NREASONS; r++)
        if (r != WINDOW_MALFORMED && r != WINDOW_FOREIGN)
            sum += window_count(w, source, (enum window_reason)r);
    return sum;
}

size_t window_look_who_sends(struct window *w)
{
    size_t live = 0;
    for (size_t s = 0; s < w->layout->nsources; s++) {
        uint64_t n = packets_of(w, s);
        w->live[s] = n != w->seen[s];
        w->seen[s] = n;
        live += w->live[s];
        _Atomic uint32_t *votes = &w->source[s].votes; /* a silent one may be elsewhere again by now */
        if (!w->live[s] && atomic_load(votes) >= WINDOW_JUMP_PACKETS)
            atomic_store(votes, WINDOW_JUMP_PACKETS - 1);
    }
    return live;
}

bool window_position(const struct window *w, size_t least, int64_t *sample)
{
    size_t n = 0, nsources = w->layout->nsources;
    int64_t *latest = malloc(nsources * sizeof *latest);
    if (latest == NULL) return false;
    for (size_t s = 0; s < nsources; s++) {
        int64_t at = atomic_load_explicit(&w->source[s].latest, memory_order_relaxed);
        if (at != INT64_MIN && !w->absent[s]) latest[n++] = at; /* one that went away stays where it was */
    }
    bool enough = n > 0 && n >= least;
    if (enough) {
        qsort(latest, n, sizeof *latest, order_int64);
        *sample = latest[n / 2];
    }
    free(latest);
    return enough;
}

bool window_is_sure(const struct window *w, size_t source)
{
    const struct window_source *s = &w->source[source];
    return atomic_load_explicit(&s->latest, memory_order_relaxed) != INT64_MIN &&
           (atomic_load_explicit(&s->elsewhere, memory_order_relaxed) == INT64_MIN ||
            atomic_load_explicit(&s->votes, memory_order_relaxed) >= WINDOW_JUMP_PACKETS);
}

void window_mark_all_live(struct window *w)
{
    for (size_t s = 0; s < w->layout->nsources; s++)
        w->live[s] = atomic_load_explicit(&w->source[s].latest, memory_order_relaxed) != INT64_MIN;
}

/* How many sources that send are at or beyond a sample; *all: how many send. */
static size_t beyond(const struct window *w, int64_t sample, size_t *all)
{
    size_t n = 0;
    *all = 0;
    for (size_t s = 0; s < w->layout->nsources; s++) {
        int64_t at = atomic_load_explicit(&w->source[s].latest, memory_order_relaxed);
        if (at == INT64_MIN || !w->live[s]) continue;
        (*all)++;
        n += at >= sample;
    }
    return n;
}

bool window_is_due(const struct window *w)
{
    size_t all, n;
    int64_t end = (atomic_load(&w->base) + 1) * (int64_t)w->layout->frame_samples;
    n = beyond(w, end + w->hold, &all);
    return 2 * n > all;
}

bool window_has_jumped(const struct window *w, int64_t *sample)
{
    size_t all = 0, jumped = 0, nsources = w->layout->nsources;
    int64_t *at = malloc(nsources * sizeof *at);
    if (at == NULL) return false;
    for (size_t s = 0; s < nsources; s++) {
        if (!w->live[s]) continue;
        all++;
        if (atomic_load_explicit(&w->source[s].votes, memory_order_relaxed) < WINDOW_JUMP_PACKETS) continue;
        at[jumped++] = atomic_load_explicit(&w->source[s].elsewhere, memory_order_relaxed);
    }
    bool most = jumped > 0 && 2 * jumped > all;
    if (most) {
        qsort(at, jumped, sizeof *at, order_int64);
        int64_t median = at[jumped / 2];
        size_t together = 0;
        for (size_t i = 0; i < jumped; i++) together += llabs(at[i] - median) <= w->far;
        most = 2 * together > all;
        *sample = median - atomic_load(&w->shift);
    }
    free(at);
    return most;
}
