/* update_names.c - the updates that data were made with, as stages may ask for them: see runtime/stage.h. */
#include "runtime/run/updates.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct text {
    char *to;
    size_t size, used;
};

static void put(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(t->used < t->size ? t->to + t->used : NULL, t->used < t->size ? t->size - t->used : 0,
                      format, args);
    va_end(args);
    if (n > 0) t->used += (size_t)n;
}

/* A name in which colons, commas, blanks and the like are %XX. */
static void put_name(struct text *t, const char *name)
{
    for (const char *c = name; *c != '\0'; c++)
        put(t, isalnum((unsigned char)*c) || strchr("_-.+", *c) != NULL ? "%c" : "%%%02X", (unsigned char)*c);
}

/* The updates among the sources that began in [first, end), each once. */
static void put_sources(struct text *t, const struct br_stage *stage, const struct br_held *held,
                        uint64_t first, uint64_t end)
{
    for (size_t i = 0; i < held->count; i++) {
        const struct br_held_source *s = &held->source[i];
        bool told = s->number == 0 || s->from < first || s->from >= end;
        for (size_t k = 0; k < i; k++) told = told || held->source[k].number == s->number;
        if (told) continue;
        if (t->used > 0) put(t, ",");
        put_name(t, stage->name);
        put(t, ":%" PRIu64 ":%016" PRIx64 ":", s->from, s->digest);
        put_name(t, s->id);
    }
}

/* The marks of a stage that hold at `first` (end first + 1), or begin in [first, end). Oldest first. */
static void put_marks(struct text *t, const struct br_stage *stage, uint64_t first, uint64_t end, bool begin)
{
    const struct br_updates *updates = stage->graph->state->updates;
    for (uint64_t i = updates->nmarks > BR_MARKS_KEPT ? updates->nmarks - BR_MARKS_KEPT : 0;
         i < updates->nmarks; i++) {
        const struct br_mark *m = &updates->mark[i % BR_MARKS_KEPT];
        if (m->stage != stage || m->first >= end || (begin ? m->first : m->end - 1) < first) continue;
        if (t->used > 0) put(t, ",");
        put_name(t, stage->name);
        put(t, ":%" PRIu64 ":%016x:", m->first, 0);
        put_name(t, m->id);
    }
}

void br_stage_mark(const struct br_stage *stage, uint64_t first, uint64_t end, const char *id)
{
    struct br_updates *updates = stage->graph->state->updates;
    if (end <= first) return;
    pthread_mutex_lock(&updates->mutex);
    struct br_mark *m = &updates->mark[updates->nmarks++ % BR_MARKS_KEPT];
    *m = (struct br_mark){.stage = stage, .first = first, .end = end};
    snprintf(m->id, sizeof m->id, "%s", id);
    atomic_fetch_add(&updates->commits, 1);
    pthread_mutex_unlock(&updates->mutex);
}

static const struct br_held *held_at(const struct br_stage *stage, uint64_t sample)
{
    const struct br_held *h = stage->state->updates.held;
    while (h != NULL && h->from > sample) h = h->older;
    return h;
}

bool br_stage_follows_updates(const struct br_stage *stage)
{
    return stage->state->nsources > 0;
}

size_t br_stage_updates_held(const struct br_stage *stage, uint64_t sample, char *text, size_t size)
{
    struct br_updates *updates = stage->graph->state->updates;
    struct text t = {text, size, 0};
    if (size > 0) text[0] = '\0';
    if (atomic_load(&updates->commits) == 0) return 0;
    pthread_mutex_lock(&updates->mutex);
    for (size_t i = 0; i < stage->state->nsources; i++) {
        const struct br_held *held = held_at(stage->state->source[i], sample);
        if (held != NULL) put_sources(&t, stage->state->source[i], held, 0, UINT64_MAX);
        put_marks(&t, stage->state->source[i], sample, sample + 1, false);
    }
    pthread_mutex_unlock(&updates->mutex);
    return t.used;
}

/* Oldest first. */
static void put_begun(struct text *t, const struct br_stage *stage, const struct br_held *held,
                      uint64_t first, uint64_t end)
{
    size_t count = 0;
    for (const struct br_held *h = held; h != NULL && h->from >= first; h = h->older) count++;
    while (count-- > 0) {
        const struct br_held *h = held;
        for (size_t i = 0; i < count; i++) h = h->older;
        if (h->from < end) put_sources(t, stage, h, h->from, h->from + 1);
    }
}

size_t br_stage_updates_begun(const struct br_stage *stage, uint64_t first, uint64_t end, char *text,
                              size_t size)
{
    struct br_updates *updates = stage->graph->state->updates;
    struct text t = {text, size, 0};
    if (size > 0) text[0] = '\0';
    if (atomic_load(&updates->commits) == 0) return 0;
    pthread_mutex_lock(&updates->mutex);
    for (size_t i = 0; i < stage->state->nsources; i++) {
        put_begun(&t, stage->state->source[i], stage->state->source[i]->state->updates.held, first, end);
        put_marks(&t, stage->state->source[i], first, end, true);
    }
    pthread_mutex_unlock(&updates->mutex);
    return t.used;
}
