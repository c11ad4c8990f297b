/* events.c - the dumps of a stage: what becomes of them, and what is told of them. */
#include "buffers/clock.h"
#include "runtime/stage_history.h"
#include "stages/dump/dump.h"

#include <math.h>
#include <stdlib.h>

const char *const dump_state_name[] = {"waiting", "writing", "done", "empty", "failed", "cancelled"};

bool dump_is_active(const struct dump *d)
{
    return d->state == DUMP_WAITING || d->state == DUMP_WRITING;
}

void dump_finish(struct writer *w, struct dump *d, enum dump_state state, const char *reason)
{
    static const enum br_dump_number counts[] = {[DUMP_DONE] = BR_DUMPS_DONE,
                                                 [DUMP_EMPTY] = BR_DUMPS_EMPTY,
                                                 [DUMP_FAILED] = BR_DUMPS_FAILED,
                                                 [DUMP_CANCELLED] = BR_DUMPS_CANCELLED};
    if (!dump_is_active(d)) return;
    d->state = state;
    if (d->reason[0] == '\0' && reason != NULL) snprintf(d->reason, sizeof d->reason, "%s", reason);
    d->gone = state == DUMP_FAILED || state == DUMP_CANCELLED;
    d->finished_ns = br_unix_ns();
    d->taken = br_stage_pin_taken(d->pin);
    br_stage_unpin(d->pin);
    d->pin = NULL;
    for (size_t i = 0; i < d->npieces; i++)
        if (d->piece[i].state == DUMP_WAITING || d->piece[i].state == DUMP_WRITING) d->piece[i].state = state;
    br_stage_count_dump(w->stage, counts[state], 1);
    br_stage_count_dump(w->stage, BR_DUMPS_TAKEN_FRAMES, (int64_t)d->taken);
    br_stage_count_dump(w->stage, BR_DUMPS_ACTIVE, -1);
    if (--w->nactive == 0) pthread_cond_broadcast(&w->idle);
}

struct dump *dump_find(const struct writer *w, uint64_t id)
{
    for (struct dump *d = w->dumps; d != NULL; d = d->next)
        if (d->id == id) return d;
    return NULL;
}

void dump_free(struct dump *d)
{
    if (d == NULL) return;
    br_stage_unpin(d->pin);
    free(d->piece);
    free(d->order);
    free(d->dish);
    free(d);
}

static bool is_busy(const struct writer *w, const struct dump *d)
{
    for (unsigned i = 0; i < w->nhands; i++)
        if (w->hand[i].busy_with == d) return true;
    return false;
}

/* Forgets the oldest finished dumps beyond those that are kept. */
static void trim(struct writer *w)
{
    unsigned finished = 0;
    for (struct dump **at = &w->dumps; *at != NULL;) {
        struct dump *d = *at;
        if (dump_is_active(d) || is_busy(w, d) || ++finished <= DUMP_KEPT) {
            at = &d->next;
            continue;
        }
        *at = d->next;
        dump_free(d);
    }
}

int dump_add(struct writer *w, struct dump *d)
{
    d->pin = br_stage_pin(w->stage, 0, d->span.first, d->span.end);
    if (d->pin == NULL) return BR_E_NO_MEMORY;
    d->requested_ns = br_unix_ns();
    d->next = w->dumps;
    w->dumps = d;
    w->nactive++;
    br_stage_count_dump(w->stage, BR_DUMPS_ACCEPTED, 1);
    br_stage_count_dump(w->stage, BR_DUMPS_ACTIVE, 1);
    trim(w);
    pthread_cond_broadcast(&w->work);
    return BR_OK;
}

/* --- its document --- */

/* Angles that are not known are left out. */
static json_t *direction_document(const struct writer_direction *d)
{
    json_t *document = json_object();
    if (d->name[0] != '\0') json_object_set_new(document, "name", json_string(d->name));
    if (isfinite(d->ra_deg)) json_object_set_new(document, "ra_deg", json_real(d->ra_deg));
    if (isfinite(d->dec_deg)) json_object_set_new(document, "dec_deg", json_real(d->dec_deg));
    json_object_set_new(document, "azimuth_deg", json_real(d->azimuth_deg));
    json_object_set_new(document, "altitude_deg", json_real(d->altitude_deg));
    return document;
}

json_t *dump_document(const struct writer *w, const struct dump *d)
{
    uint64_t samples = 0, missing = 0, bytes = 0;
    json_int_t count[DUMP_CANCELLED + 1] = {0};
    for (size_t i = 0; i < d->npieces; i++) {
        const struct piece *p = &d->piece[i];
        samples += p->window.end - p->window.first;
        missing += p->missing;
        bytes += p->bytes;
        count[p->state]++;
    }
    json_t *files = json_object();
    for (int i = 0; i <= DUMP_CANCELLED; i++)
        if (count[i] > 0) json_object_set_new(files, dump_state_name[i], json_integer(count[i]));
    uint64_t taken = d->pin != NULL ? br_stage_pin_taken(d->pin) : d->taken;
    json_t *document = json_pack(
        "{sI ss ss ss sI sI sI sI sI sI sf so}", "id", (json_int_t)d->id, "stage", br_stage_name(w->stage),
        "state", dump_state_name[d->state], "directory", d->directory, "first_sample",
        (json_int_t)d->span.first, "end_sample", (json_int_t)d->span.end, "channel_samples",
        (json_int_t)samples, "missing_samples", (json_int_t)missing, "bytes", (json_int_t)bytes,
        "frames_taken", (json_int_t)taken, "pinned_after_seconds", d->pinned_after_s, "files", files);
    if (d->direction.known) json_object_set_new(document, "direction", direction_document(&d->direction));
    json_object_set_new(document, "requested_ns", json_integer(d->requested_ns));
    if (d->finished_ns != 0) json_object_set_new(document, "finished_ns", json_integer(d->finished_ns));
    if (d->reason[0] != '\0') json_object_set_new(document, "reason", json_string(d->reason));
    return document;
}
