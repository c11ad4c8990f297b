/* request.c - what operators ask for: dumps in our words and in kotekan's, their status, their end. Called by
 * the thread of the control interface; nothing here touches a file. */
#include "buffers/clock.h"
#include "formats/common/text.h"
#include "runtime/stage_history.h"
#include "stages/dump/dump.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 200, ACCEPTED = 202, BAD = 400, NOT_FOUND = 404, CONFLICT = 409, BUSY = 503 };

#define MOST_DM 1e5

/* One request while it is read. */
struct order {
    struct dump_stage *s;
    const struct br_stream *stream;
    json_t *json;
    struct dump *dump;
    struct br_kept kept; /* what the history has */
    struct br_pin *pin;  /* on its earliest frame, until the dump has its own */
    int code;
    char why[400];
};

__attribute__((format(printf, 3, 4))) static bool refuse(struct order *o, int code, const char *format, ...)
{
    if (o->code != 0) return false; /* the first one counts */
    va_list args;
    va_start(args, format);
    vsnprintf(o->why, sizeof o->why, format, args);
    va_end(args);
    text_plain(o->why); /* it may quote a part of the request */
    o->code = code;
    return false;
}

/* --- values --- */

/* False only when the key is there and no finite number within the bounds. */
static bool get_real(struct order *o, const char *key, double least, double most, double *value)
{
    const json_t *number = json_object_get(o->json, key);
    if (number == NULL) return true;
    double x = json_is_number(number) ? json_number_value(number) : NAN;
    if (!(x >= least && x <= most))
        return refuse(o, BAD, "%s: expected a number from %g to %g", key, least, most);
    *value = x;
    return true;
}

static bool get_integer(struct order *o, const json_t *map, const char *key, int64_t least, int64_t *value)
{
    const json_t *number = json_object_get(map, key);
    if (number == NULL) return true;
    if (!json_is_integer(number) || json_integer_value(number) < least)
        return refuse(o, BAD, "%s: expected a whole number, at least %" PRId64, key, least);
    *value = json_integer_value(number);
    return true;
}

/* All keys must be known. */
static bool check_keys(struct order *o, const json_t *map, const char *const *known)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)map, key, value)
    {
        size_t i = 0;
        char list[300] = "";
        while (known[i] != NULL && strcmp(known[i], key) != 0) i++;
        if (known[i] != NULL) continue;
        for (i = 0; known[i] != NULL; i++)
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i > 0 ? ", " : "", known[i]);
        return refuse(o, BAD, "'%.40s' is not a key; expected %s", key, list);
    }
    return true;
}

static json_t *parse(struct order *o, const char *text)
{
    json_error_t error;
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (json == NULL)
        refuse(o, BAD, "the body is not JSON: line %d, column %d: %.200s", error.line, error.column,
               error.text);
    else if (!json_is_object(json))
        refuse(o, BAD, "the body is not an object");
    return json;
}

/* --- when, how long, how dispersed --- */

/* The history begins at another frame as soon as one more comes: the frame is pinned before it is believed
 * to be the earliest. */
static bool start_earliest(struct order *o)
{
    struct br_stage *stage = o->s->writer->stage;
    uint64_t whole;
    do {
        whole = o->kept.whole;
        br_stage_unpin(o->pin);
        o->pin = br_stage_pin(stage, 0, whole, whole + 1);
        if (o->pin == NULL) return refuse(o, BUSY, "not enough memory");
        o->kept = br_stage_kept(stage, 0);
    } while (o->kept.whole != whole);
    o->dump->sweep.start = sweep_at_sample(o->stream, whole);
    return true;
}

static bool read_start(struct order *o)
{
    static const char *const keys[] = {"sample", "time_ns", NULL};
    struct sweep *sweep = &o->dump->sweep;
    const json_t *start = json_object_get(o->json, "start");
    if (json_is_string(start) && strcmp(json_string_value(start), "earliest") == 0) return start_earliest(o);
    if (!json_is_object(start) || json_object_size(start) != 1 || !check_keys(o, start, keys))
        return refuse(
            o, BAD, "start: expected {\"sample\": NUMBER}, {\"time_ns\": UNIX NANOSECONDS} or \"earliest\"");
    bool is_sample = json_object_get(start, "sample") != NULL;
    int64_t number = 0;
    if (!get_integer(o, start, is_sample ? "sample" : "time_ns", is_sample ? 0 : INT64_MIN, &number))
        return false;
    sweep->start = is_sample ? sweep_at_sample(o->stream, (uint64_t)number) : sweep_at_ns(o->stream, number);
    return true;
}

static bool read_duration(struct order *o)
{
    double seconds = NAN;
    int64_t ns = 0, samples = 0;
    if (!get_real(o, "duration_s", 1e-9, 1e6, &seconds) || !get_integer(o, o->json, "duration_ns", 1, &ns) ||
        !get_integer(o, o->json, "samples", 1, &samples))
        return false;
    if (!isnan(seconds) + (ns > 0) + (samples > 0) != 1)
        return refuse(o, BAD, "expected one of duration_s, duration_ns and samples");
    struct sweep *sweep = &o->dump->sweep;
    if (samples > 0)
        sweep->duration = sweep_at_sample(o->stream, (uint64_t)samples);
    else
        sweep->duration =
            ns > 0 ? (__int128_t)ns * o->stream->sample_ns.den : sweep_span(o->stream, ceil(seconds * 1e9));
    return true;
}

static bool read_sweep(struct order *o)
{
    struct sweep *sweep = &o->dump->sweep;
    sweep->ref_mhz = NAN;
    if (!get_real(o, "dm", -MOST_DM, MOST_DM, &sweep->dm) ||
        !get_real(o, "dm_error", 0, MOST_DM, &sweep->dm_error) ||
        !get_real(o, "freq_ref_mhz", 1e-3, 1e9, &sweep->ref_mhz))
        return false;
    bool dispersed = sweep->dm != 0 || sweep->dm_error != 0;
    if (dispersed && isnan(sweep->ref_mhz))
        return refuse(o, BAD, "freq_ref_mhz is missing: at which frequency does the event start?");
    if (isnan(sweep->ref_mhz)) sweep->ref_mhz = INFINITY;
    return true;
}

/* --- which channels and dishes --- */

/* `listed` [channels], NULL: all are. */
static bool wants_channel(const struct order *o, const bool *listed, const json_t *range, size_t i)
{
    const struct piece *p = &o->s->piece[i];
    bool wanted = listed == NULL;
    for (size_t c = p->channel; !wanted && c < p->channel + p->count; c++) wanted = listed[c];
    if (range == NULL) return wanted;
    double low = INFINITY, high = 0;
    for (size_t c = p->channel; c < p->channel + p->count; c++) {
        low = fmin(low, o->stream->freq_mhz[c] - o->stream->width_mhz[c] / 2);
        high = fmax(high, o->stream->freq_mhz[c] + o->stream->width_mhz[c] / 2);
    }
    return wanted && high > json_number_value(json_array_get(range, 0)) &&
           low < json_number_value(json_array_get(range, 1));
}

/* A list of distinct numbers below `most`; which ones they are comes into `listed` [most], zeros before. */
static bool check_list(struct order *o, const char *key, const json_t *list, size_t most, bool *listed)
{
    if (listed == NULL) return refuse(o, BUSY, "not enough memory");
    if (!json_is_array(list) || json_array_size(list) == 0)
        return refuse(o, BAD, "%s: expected a list of numbers", key);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        if (!json_is_integer(one) || json_integer_value(one) < 0 ||
            json_integer_value(one) >= (json_int_t)most)
            return refuse(o, BAD, "%s[%zu]: expected a number from 0 to %zu", key, i, most - 1);
        size_t n = (size_t)json_integer_value(one);
        if (listed[n]) return refuse(o, BAD, "%s: %zu is listed twice", key, n);
        listed[n] = true;
    }
    return true;
}

static int by_first(const void *left, const void *right, void *pieces)
{
    const struct piece *a = (const struct piece *)pieces + *(const size_t *)left,
                       *b = (const struct piece *)pieces + *(const size_t *)right;
    if (a->window.first != b->window.first) return a->window.first < b->window.first ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

static bool pick_channels(struct order *o, const json_t *list, const json_t *range, bool *listed)
{
    if (list != NULL && !check_list(o, "channels", list, o->stream->nchannels, listed)) return false;
    if (range != NULL && (json_array_size(range) != 2 || !json_is_number(json_array_get(range, 0)) ||
                          !json_is_number(json_array_get(range, 1))))
        return refuse(o, BAD, "freq_mhz: expected [lowest, highest]");
    struct dump *d = o->dump;
    d->piece = calloc(o->s->npieces, sizeof *d->piece);
    d->order = calloc(o->s->npieces, sizeof *d->order);
    if (d->piece == NULL || d->order == NULL) return refuse(o, BUSY, "not enough memory");
    for (size_t i = 0; i < o->s->npieces; i++)
        if (wants_channel(o, list != NULL ? listed : NULL, range, i)) d->piece[d->npieces++] = o->s->piece[i];
    if (d->npieces == 0)
        return refuse(o, BAD, "freq_mhz: no channel of the stream is in this range; it has %g to %g MHz",
                      o->stream->freq_mhz[0], o->stream->freq_mhz[o->stream->nchannels - 1]);
    return true;
}

static bool read_channels(struct order *o)
{
    bool *listed = calloc(o->stream->nchannels, sizeof *listed);
    bool good =
        pick_channels(o, json_object_get(o->json, "channels"), json_object_get(o->json, "freq_mhz"), listed);
    free(listed);
    return good;
}

static bool read_dishes(struct order *o)
{
    const json_t *list = json_object_get(o->json, "dishes");
    struct dump *d = o->dump;
    if (list == NULL) return true;
    if (o->s->ndish == 0) return refuse(o, BAD, "dishes: the stream has no dishes");
    bool *listed = calloc(o->s->ndish, sizeof *listed);
    bool good = check_list(o, "dishes", list, o->s->ndish, listed);
    free(listed);
    if (!good) return false;
    d->ndishes = json_array_size(list);
    d->dish = calloc(d->ndishes, sizeof *d->dish);
    if (d->dish == NULL) return refuse(o, BUSY, "not enough memory");
    for (size_t i = 0; i < d->ndishes; i++) d->dish[i] = (size_t)json_integer_value(json_array_get(list, i));
    return true;
}

/* --- where to, and in which format --- */

/* Below the stage's own directory, never out of it. */
static bool read_directory(struct order *o, const char *key)
{
    const json_t *value = json_object_get(o->json, key);
    const char *text = value == NULL ? "" : json_string_value(value);
    struct dump *d = o->dump;
    if (text == NULL) return refuse(o, BAD, "%s: expected a text", key);
    size_t length = strlen(o->s->directory);
    if (strncmp(text, o->s->directory, length) == 0 && (text[length] == '/' || text[length] == '\0'))
        text += length;
    while (*text == '/' && text != json_string_value(value)) text++;
    bool out = text[0] == '/' || strcmp(text, "..") == 0 || strncmp(text, "../", 3) == 0 ||
               strstr(text, "/../") != NULL ||
               (strlen(text) >= 3 && strcmp(text + strlen(text) - 3, "/..") == 0);
    if (out)
        return refuse(o, BAD, "%s: '%.100s' is not below %.150s, where this stage writes", key, text,
                      o->s->directory);
    int used = snprintf(d->directory, sizeof d->directory, "%s%s%s", o->s->directory,
                        *text != '\0' ? "/" : "", text);
    if (used < 0 || used > 800) return refuse(o, BAD, "%s: the name is too long", key);
    return true;
}

static bool read_format(struct order *o)
{
    const json_t *value = json_object_get(o->json, "format");
    const char *name = value == NULL ? o->s->format : json_string_value(value);
    struct br_error why = {0};
    o->dump->format = name != NULL ? writer_format_of(name) : NULL;
    if (o->dump->format != &dada_files && o->dump->format != &chime_files)
        return refuse(o, BAD, "format: expected \"dada\" or \"chime\"");
    if (writer_takes(o->dump->format, o->stream, &why) == BR_OK) return true;
    return refuse(o, BAD, "format: %s", why.text);
}

/* --- from where --- */

static bool read_direction(struct order *o)
{
    const json_t *value = json_object_get(o->json, "direction");
    __int128_t ns = o->dump->sweep.start / o->stream->sample_ns.den + o->stream->epoch_ns;
    struct br_error why = {0};
    if (value == NULL) return true;
    if (ns < INT64_MIN || ns > INT64_MAX) return refuse(o, BAD, "start: out of range");
    if (dump_direction(o->s, o->dump, value, o->stream, (int64_t)ns, &why) == BR_OK) return true;
    return refuse(o, BAD, "direction: %s", why.text);
}

/* --- is it to be had? --- */

static bool make_windows(struct order *o)
{
    struct dump *d = o->dump;
    uint64_t reach = br_stage_history(o->s->writer->stage, 0), end = 0;
    double sample_s = br_stream_sample_s(o->stream);
    for (size_t i = 0; i < d->npieces; i++) {
        struct piece *p = &d->piece[i];
        if (!sweep_window(&d->sweep, o->stream, p->channel, p->count, &p->window))
            return refuse(o, BAD, "dm: the sweep does not end at %g MHz; leave this channel out",
                          o->stream->freq_mhz[p->channel]);
        if (p->window.end - p->window.first > reach)
            return refuse(o, BAD,
                          "%.6g s of a channel are asked for, but only %.6g s are kept: reduce the duration "
                          "or dm_error",
                          (double)(p->window.end - p->window.first) * sample_s, (double)reach * sample_s);
        if (i == 0 || p->window.first < d->span.first) d->span.first = p->window.first;
        if (p->window.end > end) d->span.end = end = p->window.end;
    }
    for (size_t i = 0; i < d->npieces; i++) d->order[i] = i;
    qsort_r(d->order, d->npieces, sizeof *d->order, by_first, d->piece);
    d->left = d->npieces;
    if (end <= o->kept.first)
        return refuse(o, CONFLICT,
                      "too late: it ends at sample %" PRIu64 ", but the history begins at %" PRIu64
                      " (Unix time %" PRId64 " ns)",
                      end, o->kept.first, br_stream_time_ns(o->stream, o->kept.first));
    double ahead_s = end > o->kept.end ? (double)(end - o->kept.end) * sample_s : 0;
    if (ahead_s > o->s->max_wait_s + (double)reach * sample_s)
        return refuse(o, BAD, "it ends %.6g s ahead of now; max_wait_s allows %g s", ahead_s,
                      o->s->max_wait_s);
    return true;
}

/* Enters the dump; the lock is taken here. */
static bool enter(struct order *o, uint64_t arrived_ns, bool has_id)
{
    struct writer *w = o->s->writer;
    struct dump *d = o->dump;
    pthread_mutex_lock(&w->lock);
    if (!has_id) {
        while (dump_find(w, w->next_id) != NULL) w->next_id++;
        d->id = w->next_id++;
    }
    const struct dump *same = dump_find(w, d->id);
    if (w->ended)
        refuse(o, CONFLICT, "the stream has ended");
    else if (same != NULL && strcmp(same->directory, d->directory) == 0)
        refuse(o, CONFLICT, "there is a dump %" PRIu64 " already: it is %s", d->id,
               dump_state_name[same->state]);
    else if (w->nactive >= (unsigned)o->s->max_dumps)
        refuse(o, BUSY, "%u dumps are not finished; max_dumps allows %" PRId64, w->nactive, o->s->max_dumps);
    else if (dump_add(w, d) != BR_OK)
        refuse(o, BUSY, "not enough memory");
    bool good = o->code == 0;
    if (good) d->pinned_after_s = (double)(br_clock_ns() - arrived_ns) * 1e-9;
    pthread_mutex_unlock(&w->lock);
    return good;
}

/* --- the requests --- */

static void set_reply(char **reply, json_t *document)
{
    *reply = document != NULL ? json_dumps(document, JSON_INDENT(1) | JSON_REAL_PRECISION(12)) : NULL;
    json_decref(document);
}

static int give_error(struct order *o, char **reply)
{
    br_stage_count_dump(o->s->writer->stage, BR_DUMPS_REFUSED, 1);
    set_reply(reply, json_pack("{ss}", "error", o->why));
    return o->code;
}

static bool begin(struct order *o, const char *text)
{
    struct br_stage *stage = o->s->writer->stage;
    o->json = parse(o, text);
    o->dump = calloc(1, sizeof *o->dump);
    if (o->code != 0) return false;
    if (o->dump == NULL) return refuse(o, BUSY, "not enough memory");
    o->kept = br_stage_kept(stage, 0);
    if (o->kept.end == 0) return refuse(o, CONFLICT, "no data have arrived yet");
    return true;
}

static void end_order(struct order *o)
{
    br_stage_unpin(o->pin);
    json_decref(o->json);
}

static int post_dump(struct dump_stage *s, const char *text, uint64_t arrived_ns, char **reply)
{
    static const char *const keys[] = {"id",           "stage",     "start",     "duration_s",
                                       "duration_ns",  "samples",   "dm",        "dm_error",
                                       "freq_ref_mhz", "channels",  "freq_mhz",  "dishes",
                                       "format",       "directory", "direction", NULL};
    struct order o = {.s = s, .stream = br_stage_input(s->writer->stage, 0)};
    int64_t id = -1;
    bool good = begin(&o, text) && check_keys(&o, o.json, keys) && get_integer(&o, o.json, "id", 0, &id) &&
                read_start(&o) && read_duration(&o) && read_sweep(&o) && read_channels(&o) &&
                read_dishes(&o) && read_direction(&o) && read_directory(&o, "directory") && read_format(&o) &&
                make_windows(&o);
    if (good) o.dump->id = (uint64_t)id;
    good = good && enter(&o, arrived_ns, id >= 0);
    end_order(&o);
    if (!good) {
        dump_free(o.dump);
        return give_error(&o, reply);
    }
    pthread_mutex_lock(&s->writer->lock);
    set_reply(reply, dump_document(s->writer, o.dump));
    pthread_mutex_unlock(&s->writer->lock);
    return ACCEPTED;
}

/* kotekan's words: all keys are needed, the reference frequency is 400 MHz. */
static bool read_baseband(struct order *o)
{
    static const char *const keys[] = {"event_id", "start_unix_seconds", "start_unix_nano", "duration_nano",
                                       "dm",       "dm_error",           "file_path",       NULL};
    struct sweep *sweep = &o->dump->sweep;
    int64_t id = 0, seconds = 0, nano = 0, duration = 0;
    if (!check_keys(o, o->json, keys)) return false;
    for (size_t i = 0; keys[i] != NULL; i++)
        if (json_object_get(o->json, keys[i]) == NULL) return refuse(o, BAD, "'%s' is missing", keys[i]);
    if (!get_integer(o, o->json, "event_id", 0, &id) ||
        !get_integer(o, o->json, "start_unix_seconds", -1, &seconds) ||
        !get_integer(o, o->json, "start_unix_nano", 0, &nano) ||
        !get_integer(o, o->json, "duration_nano", 1, &duration) ||
        !get_real(o, "dm", -MOST_DM, MOST_DM, &sweep->dm) ||
        !get_real(o, "dm_error", 0, MOST_DM, &sweep->dm_error) || !read_directory(o, "file_path"))
        return false;
    if (seconds > INT64_MAX / 2000000000) return refuse(o, BAD, "start_unix_seconds: out of range");
    if (nano >= 1000000000) return refuse(o, BAD, "start_unix_nano: expected less than a second");
    o->dump->id = (uint64_t)id;
    sweep->ref_mhz = 400;
    if (seconds >= 0)
        sweep->start = sweep_at_ns(o->stream, seconds * 1000000000 + nano);
    else if (!start_earliest(o))
        return false;
    sweep->duration = (__int128_t)duration * o->stream->sample_ns.den;
    return read_channels(o) && read_format(o) && make_windows(o);
}

static int post_baseband(struct dump_stage *s, const char *text, uint64_t arrived_ns, char **reply)
{
    struct order o = {.s = s, .stream = br_stage_input(s->writer->stage, 0)};
    bool good = begin(&o, text) && read_baseband(&o) && enter(&o, arrived_ns, true);
    end_order(&o);
    if (!good) {
        dump_free(o.dump);
        return give_error(&o, reply);
    }
    *reply = dump_accepted(s->writer, o.dump);
    return OK;
}

static int cancel(struct dump_stage *s, const char *text, char **reply)
{
    static const char *const keys[] = {"id", "stage", NULL};
    struct writer *w = s->writer;
    struct order o = {.s = s};
    int64_t id = -1;
    o.json = parse(&o, text);
    bool good = o.code == 0 && check_keys(&o, o.json, keys) && get_integer(&o, o.json, "id", 0, &id);
    if (good && id < 0) good = refuse(&o, BAD, "'id' is missing: the number of the event");
    json_decref(o.json);
    if (!good) return give_error(&o, reply);
    pthread_mutex_lock(&w->lock);
    struct dump *d = dump_find(w, (uint64_t)id);
    if (d == NULL)
        refuse(&o, NOT_FOUND, "there is no dump %" PRId64, id);
    else if (!dump_is_active(d))
        refuse(&o, CONFLICT, "dump %" PRId64 " is %s already", id, dump_state_name[d->state]);
    else
        dump_finish(w, d, DUMP_CANCELLED, "it was cancelled");
    if (o.code == 0) set_reply(reply, dump_document(w, d));
    pthread_mutex_unlock(&w->lock);
    return o.code == 0 ? OK : give_error(&o, reply);
}

int dump_request(struct br_stage *stage, void *self, const char *what, const char *text, char **reply)
{
    struct dump_stage *s = self;
    uint64_t arrived_ns = br_clock_ns();
    (void)stage;
    if (strcmp(what, "dump") == 0) return post_dump(s, text, arrived_ns, reply);
    if (strcmp(what, "dumps") == 0) return dump_list(s->writer, text, false, reply);
    if (strcmp(what, "cancel") == 0) return cancel(s, text, reply);
    if (strcmp(what, "baseband") == 0) return post_baseband(s, text, arrived_ns, reply);
    if (strcmp(what, "baseband_status") == 0) return dump_list(s->writer, text, true, reply);
    return NOT_FOUND;
}
