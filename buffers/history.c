/* history.c - frames that stay readable after their readers have released them. See history.h. */
#include "buffers/history.h"
#include "buffers/ring.h"

#include <stdlib.h>

int br_queue_add_history(struct br_queue *queue, const char *name, unsigned frames, struct br_reader **reader,
                         struct br_error *error)
{
    *reader = NULL;
    if (frames < 1 || frames > BR_MAX_SLOTS)
        return br_fail(error, BR_E_INVALID, "queue '%s': a history of %u frames; expected 1 to %u",
                       queue->name, frames, BR_MAX_SLOTS);
    if (frames > queue->history.frames && !queue->sealed) queue->history.frames = frames;
    return br_queue_add_reader(queue, name, BR_POLICY_HISTORY, reader, error);
}

unsigned br_queue_history(const struct br_queue *queue)
{
    return queue->history.frames;
}

/* --- the list of kept frames, oldest first; under the lock --- */

static bool overlaps(const struct br_slot *slot, uint64_t first, uint64_t end)
{
    return slot->frame.first < end && slot->frame.first + slot->frame.samples > first;
}

static bool is_wanted(const struct br_queue *queue, const struct br_slot *slot)
{
    for (const struct br_pin *c = queue->history.pins; c != NULL; c = c->next)
        if (overlaps(slot, c->first, c->end)) return true;
    return false;
}

static void find_loose(struct br_history *h, struct br_slot *from)
{
    while (from != NULL && from->pinned) from = from->newer;
    h->loose = from;
}

static void set_pinned(struct br_history *h, struct br_slot *slot, bool pinned)
{
    if (slot->pinned == pinned) return;
    slot->pinned = pinned;
    h->npinned += pinned ? 1u : -1u;
    if (pinned && h->loose == slot)
        find_loose(h, slot->newer);
    else if (!pinned && (h->loose == NULL || slot->number < h->loose->number))
        h->loose = slot;
}

/* Takes the frame out of the list. */
static void forget(struct br_history *h, struct br_slot *slot)
{
    if (h->loose == slot) find_loose(h, slot->newer);
    if (slot->number >= h->whole->number) h->whole = slot->newer;
    h->npinned -= slot->pinned;
    *(slot->older != NULL ? &slot->older->newer : &h->oldest) = slot->newer;
    *(slot->newer != NULL ? &slot->newer->older : &h->newest) = slot->older;
    slot->older = slot->newer = NULL;
    slot->kept = slot->pinned = false;
    h->nkept--;
}

/* The producer needs its memory more: every pin on it is told. */
static void take_from_pins(struct br_history *h, const struct br_slot *slot)
{
    uint64_t first = slot->frame.first, end = first + slot->frame.samples;
    for (struct br_pin *c = h->pins; c != NULL; c = c->next) {
        if (!overlaps(slot, c->first, c->end)) continue;
        c->taken_frames++;
        c->taken_samples += (end < c->end ? end : c->end) - (first > c->first ? first : c->first);
    }
}

/* A frame that a history's reader has yet to read has gone, or its entry is about to. */
static void miss_next(struct br_reader *reader)
{
    reader->counters.dropped_frames++;
    reader->counters.dropped_samples += reader->queue->ring[reader->next & reader->queue->mask].samples;
    reader->next++;
}

void br_history_skip_gone(struct br_reader *reader)
{
    const struct br_queue *queue = reader->queue;
    if (reader->counters.policy != BR_POLICY_HISTORY) return;
    for (; reader->next != queue->next; miss_next(reader)) {
        const struct br_slot *slot = queue->ring[reader->next & queue->mask].slot;
        if (slot->kept && slot->number == reader->next) return;
    }
}

struct br_slot *br_history_keep(struct br_queue *queue, struct br_slot *slot)
{
    if (queue->history.frames == 0) return NULL;
    for (struct br_reader *r = queue->readers; r != NULL; r = r->sibling)
        if (r->counters.policy == BR_POLICY_HISTORY && !r->detached && queue->next - r->next > queue->mask)
            miss_next(r);
    slot->number = queue->next;
    struct br_history *h = &queue->history;
    slot->kept = true;
    slot->older = h->newest;
    slot->newer = NULL;
    *(h->newest != NULL ? &h->newest->newer : &h->oldest) = slot;
    h->newest = slot;
    if (h->whole == NULL) h->whole = slot;
    h->nkept++;
    slot->pinned = is_wanted(queue, slot);
    h->npinned += slot->pinned;
    if (!slot->pinned && h->loose == NULL) h->loose = slot;
    if (h->nkept <= h->frames) return NULL;
    uint64_t fresh = h->frames / 8 > 0 ? h->frames / 8 : 1;
    bool is_old = h->loose != NULL && h->loose->number + fresh <= slot->number;
    struct br_slot *gone = is_old ? h->loose : h->oldest;
    if (gone->pinned) take_from_pins(h, gone);
    forget(h, gone);
    return gone;
}

/* --- pins --- */

void br_history_look(const struct br_reader *reader, struct br_history_span *span)
{
    const struct br_queue *queue = reader->queue;
    lock(queue);
    const struct br_history *h = &queue->history;
    *span = (struct br_history_span){.end = reader->passed, .frames = h->nkept, .pinned = h->npinned};
    span->whole = h->whole != NULL ? h->whole->frame.first : reader->passed;
    span->first = h->oldest != NULL ? h->oldest->frame.first : reader->passed;
    if (span->whole > span->end) span->whole = span->end;
    if (span->first > span->end) span->first = span->end;
    unlock(queue);
}

void br_pin(struct br_reader *reader, struct br_pin *pin, uint64_t first, uint64_t end)
{
    struct br_queue *queue = reader->queue;
    struct br_history *h = &queue->history;
    lock(queue);
    *pin = (struct br_pin){.reader = reader, .next = h->pins, .first = first, .end = end};
    h->pins = pin;
    for (struct br_slot *s = h->newest; s != NULL; s = s->older)
        if (overlaps(s, first, end)) set_pinned(h, s, true);
    unlock(queue);
}

/* Looks again at the pins of frames that a pin on [first, end) held. */
static void unpin(struct br_queue *queue, uint64_t first, uint64_t end)
{
    for (struct br_slot *s = queue->history.oldest; s != NULL && s->frame.first < end; s = s->newer)
        if (s->pinned && overlaps(s, first, end) && !is_wanted(queue, s))
            set_pinned(&queue->history, s, false);
}

void br_pin_advance(struct br_pin *pin, uint64_t first)
{
    struct br_queue *queue = pin->reader->queue;
    lock(queue);
    uint64_t before = pin->first;
    if (first > before) {
        pin->first = first < pin->end ? first : pin->end;
        unpin(queue, before, pin->first);
    }
    unlock(queue);
}

void br_pin_end(struct br_pin *pin)
{
    if (pin->reader == NULL) return;
    struct br_queue *queue = pin->reader->queue;
    lock(queue);
    struct br_pin **at = &queue->history.pins;
    while (*at != pin) at = &(*at)->next;
    *at = pin->next;
    unpin(queue, pin->first, pin->end);
    pin->reader = NULL;
    unlock(queue);
}

void br_pin_taken(const struct br_pin *pin, uint64_t *frames, uint64_t *samples)
{
    const struct br_queue *queue = pin->reader != NULL ? pin->reader->queue : NULL;
    if (queue != NULL) lock(queue);
    *frames = pin->taken_frames;
    *samples = pin->taken_samples;
    if (queue != NULL) unlock(queue);
}

/* --- holding --- */

/* Where the search for `at` may begin: the newest of the frames held last that are there still and not
 * beyond. */
static struct br_slot *begin_at(const struct br_reader *reader, uint64_t at)
{
    struct br_slot *best = reader->queue->history.oldest;
    for (unsigned i = 0; i < BR_HISTORY_HOLDS; i++) {
        struct br_slot *last = reader->last_hold[i];
        bool good = last != NULL && last->kept && last->number == reader->last_number[i];
        if (good && last->frame.first <= at && last->number > best->number) best = last;
    }
    return best;
}

const struct br_frame *br_history_hold(struct br_reader *reader, uint64_t at)
{
    struct br_queue *queue = reader->queue;
    lock(queue);
    struct br_slot *s = reader->nholds < BR_HISTORY_HOLDS ? begin_at(reader, at) : NULL;
    while (s != NULL && s->frame.first + s->frame.samples <= at) s = s->newer;
    /* one that its reader has not given back may not be ready yet */
    if (s != NULL && s->frame.first + s->frame.samples <= reader->passed) {
        unsigned i = reader->holds++ % BR_HISTORY_HOLDS;
        s->reading++;
        reader->nholds++;
        reader->last_hold[i] = s;
        reader->last_number[i] = s->number;
    } else {
        s = NULL;
    }
    unlock(queue);
    return s != NULL ? &s->frame : NULL;
}
