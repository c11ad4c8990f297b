/* lists.c - what is told of dumps and of each of their files. The text is made at once, without a tree of
 * values: a dump may have a file for each of some ten thousand channels, and who is told is answered in the
 * control interface's loop. */
#include "stages/dump/dump.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>

/* The list of all dumps for kotekan has the newest whole dumps up to so many files, one at least. */
enum { BASEBAND_FILES = 8192 };

void dump_name(const struct dump_stage *s, const struct dump *d, const struct piece *p, char *text,
               size_t size)
{
    snprintf(text, size, "%s_%" PRIu64 "_%" PRId64 ".%s", s->prefix, d->id, s->number[p->index],
             d->format->suffix);
}

static void put_string(FILE *out, const char *text)
{
    const char *c = text;
    while (*c >= ' ' && *c < 0x7f && *c != '"' && *c != '\\') c++;
    if (*c == '\0') { /* nearly always */
        fprintf(out, "\"%s\"", text);
        return;
    }
    json_t *string = json_string(text);
    char *quoted = string != NULL ? json_dumps(string, JSON_ENCODE_ANY) : NULL;
    fputs(quoted != NULL ? quoted : "\"?\"", out);
    free(quoted);
    json_decref(string);
}

static void put_name(FILE *out, const struct writer *w, const struct dump *d, const struct piece *p)
{
    char name[DUMP_PATH];
    dump_name(w->of, d, p, name, sizeof name);
    put_string(out, name);
}

static void put_pieces(FILE *out, const struct writer *w, const struct dump *d)
{
    const struct br_stream *s = br_stage_input(w->stage, 0);
    for (size_t i = 0; i < d->npieces; i++) {
        const struct piece *p = &d->piece[i];
        fprintf(out,
                "%s\n  {\"channel\": %zu, \"freq_mhz\": %.12g, \"first_sample\": %" PRIu64
                ", \"samples\": %" PRIu64 ", \"state\": \"%s\", \"missing_samples\": %" PRIu64,
                i > 0 ? "," : "", p->channel,
                (s->freq_mhz[p->channel] + s->freq_mhz[p->channel + p->count - 1]) / 2, p->window.first,
                p->window.end - p->window.first, dump_state_name[p->state], p->missing);
        if (p->state == DUMP_DONE) {
            fputs(", \"file\": ", out);
            put_name(out, w, d, p);
        }
        fputc('}', out);
    }
}

static void put_dump(FILE *out, const struct writer *w, const struct dump *d, bool pieces)
{
    json_t *document = dump_document(w, d);
    char *text = document != NULL ? json_dumps(document, JSON_INDENT(1) | JSON_REAL_PRECISION(12)) : NULL;
    size_t length = text != NULL ? strlen(text) : 0;
    json_decref(document);
    if (length > 0 && pieces) {
        fprintf(out, "%.*s,\n \"channels\": [", (int)length - 2, text); /* without its last brace */
        put_pieces(out, w, d);
        fputs("]}", out);
    } else {
        fputs(length > 0 ? text : "{}", out);
    }
    free(text);
}

/* The words of kotekan's API for a piece. */
static const char *baseband_state(enum dump_state state)
{
    static const char *const words[] = {
        [DUMP_WAITING] = "waiting", [DUMP_WRITING] = "inprogress", [DUMP_DONE] = "done",
        [DUMP_EMPTY] = "error",     [DUMP_FAILED] = "error",       [DUMP_CANCELLED] = "error"};
    return words[state];
}

static void put_baseband(FILE *out, const struct writer *w, const struct dump *d)
{
    char received[32], finished[48] = "";
    snprintf(received, sizeof received, "%.12g", (double)d->requested_ns * 1e-9);
    if (d->finished_ns != 0)
        snprintf(finished, sizeof finished, ", \"finished\": %.12g", (double)d->finished_ns * 1e-9);
    for (size_t i = 0; i < d->npieces; i++) {
        const struct piece *p = &d->piece[i];
        uint64_t total = p->window.end - p->window.first;
        bool over = p->state != DUMP_WAITING && p->state != DUMP_WRITING;
        fprintf(out, "%s\n  {\"file_name\": ", i > 0 ? "," : "");
        put_name(out, w, d, p);
        fprintf(out,
                ", \"status\": \"%s\", \"freq_id\": %" PRId64 ", \"total\": %" PRIu64
                ", \"remaining\": %" PRIu64 ", \"received\": %s%s",
                baseband_state(p->state), w->of->number[p->index], total, over ? 0 : total, received,
                finished);
        if (p->state == DUMP_EMPTY) fputs(", \"reason\": \"No data captured\"", out);
        if (p->state == DUMP_FAILED || p->state == DUMP_CANCELLED) {
            fputs(", \"reason\": ", out);
            put_string(out, d->reason[0] != '\0' ? d->reason : dump_state_name[p->state]);
        }
        fputc('}', out);
    }
}

/* If two have the same id, the newer one counts. */
static void put_events(FILE *out, const struct writer *w)
{
    size_t files = 0, events = 0;
    fputc('{', out);
    for (const struct dump *d = w->dumps; d != NULL; d = d->next) {
        files += d->npieces;
        if (events > 0 && files > BASEBAND_FILES) break;
        if (dump_find(w, d->id) != d) continue;
        fprintf(out, "%s\n \"%" PRIu64 "\": [", events++ > 0 ? "," : "", d->id);
        put_baseband(out, w, d);
        fputc(']', out);
    }
    fputc('}', out);
}

/* A number that stands for itself: an event's. False: it is none. */
static bool event_number(const char *text, uint64_t *id)
{
    if (*text == '\0' || strspn(text, "0123456789") != strlen(text) || strlen(text) > 19) return false;
    *id = strtoull(text, NULL, 10);
    return true;
}

static int put_list(FILE *out, const struct writer *w, const char *id_text, bool baseband)
{
    uint64_t id = 0;
    bool all = *id_text == '\0';
    if (!all && !event_number(id_text, &id)) {
        fputs("{\"error\": \"expected the number of an event\"}", out);
        return 400;
    }
    const struct dump *one = all ? NULL : dump_find(w, id);
    if (!all && one == NULL) {
        fputs("{\"error\": \"there is no such dump\"}", out);
        return 404;
    }
    if (baseband && all) {
        put_events(out, w);
        return 200;
    }
    fputc('[', out);
    if (baseband) put_baseband(out, w, one);
    size_t n = 0;
    for (const struct dump *d = w->dumps; !baseband && d != NULL; d = d->next) {
        if (!all && d->id != id) continue;
        fputs(n++ > 0 ? ",\n" : "", out);
        put_dump(out, w, d, !all);
    }
    fputc(']', out);
    return 200;
}

int dump_list(struct writer *w, const char *id_text, bool baseband, char **text)
{
    size_t length;
    *text = NULL;
    FILE *out = open_memstream(text, &length);
    if (out == NULL) return 500;
    (void)__fsetlocking(out, FSETLOCKING_BYCALLER); /* nobody else writes here */
    pthread_mutex_lock(&w->lock);
    int code = put_list(out, w, id_text, baseband);
    pthread_mutex_unlock(&w->lock);
    if (fclose(out) == 0) return code;
    free(*text);
    *text = NULL;
    return 500;
}

char *dump_accepted(struct writer *w, const struct dump *d)
{
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    if (out == NULL) return NULL;
    (void)__fsetlocking(out, FSETLOCKING_BYCALLER);
    fputc('{', out);
    pthread_mutex_lock(&w->lock);
    for (size_t i = 0; i < d->npieces; i++) {
        const struct piece *p = &d->piece[i];
        fprintf(out, "%s\n \"%" PRId64 "\": {\"file_name\": ", i > 0 ? "," : "", w->of->number[p->index]);
        put_name(out, w, d, p);
        fprintf(out, ", \"start_fpga\": %" PRIu64 ", \"length_fpga\": %" PRIu64 "}", p->window.first,
                p->window.end - p->window.first);
    }
    pthread_mutex_unlock(&w->lock);
    fputc('}', out);
    if (fclose(out) == 0) return text;
    free(text);
    return NULL;
}
