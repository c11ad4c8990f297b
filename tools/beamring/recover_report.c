/* recover_report.c - the ledger, and what `beamring recover` prints and draws. */
#include "buffers/regular_file.h"
#include "tools/beamring/json.h"
#include "tools/beamring/plot.h"
#include "tools/beamring/recover.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOT_MISSED 10.0 /* an event of this S/N is missed where less than half of it is found */
#define UNEXPECTED 7.0  /* an S/N that noise does not have */

/* --- the ledger --- */

static double number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

/* The beams of the event, of the stage that the user names or the only one. False after a message. */
static bool take_beams(const struct recover *r, const json_t *o, struct recover_event *e)
{
    const json_t *beams = json_object_get(o, "beams"), *found = NULL, *one;
    const char *name;
    if (beams == NULL || json_object_size(beams) == 0) return true;
    json_object_foreach((json_t *)(uintptr_t)beams, name,
                        one) if (r->stage == NULL || strcmp(r->stage, name) == 0) found = one;
    if (found == NULL || (r->stage == NULL && json_object_size(beams) > 1)) {
        fprintf(stderr, "beamring recover: %s: event '%s': %s; say with --stage whose beams the files hold\n",
                r->ledger, e->id,
                found == NULL ? "it has no beams of that stage" : "it has beams of several stages");
        return false;
    }
    const json_t *snr = json_object_get(found, "snr");
    e->nbeams = json_array_size(snr);
    e->delay_s = number(found, "delay_s");
    e->snr = calloc(e->nbeams + 1, sizeof *e->snr);
    for (size_t b = 0; e->snr != NULL && b < e->nbeams; b++)
        e->snr[b] = json_number_value(json_array_get(snr, b));
    return e->snr != NULL;
}

static void free_event(struct recover_event *e)
{
    free(e->id);
    free(e->state);
    free(e->snr);
}

/* One line; a later one of the same id takes the place of an earlier one. False: it is none of a ledger's. */
static bool take_line(struct recover *r, const json_t *o, bool *told)
{
    /* the ranges of `inject`: a wider filter or sweep than these takes hours */
    static const struct {
        const char *key;
        double least, most;
    } range[] = {{"time_ns", 0, 0x1p63}, {"freq_mhz", 1e-9, 1e9}, {"dm", 0, 1e5},
                 {"width_s", 1e-9, 10},  {"scattering_s", 0, 10}, {"index", -20, 20}};
    static const char *const states[] = {"scheduled", "injected", "partly", "refused"};
    const char *id = json_string_value(json_object_get(o, "id")),
               *state = json_string_value(json_object_get(o, "state"));
    bool good = id != NULL && json_is_integer(json_object_get(o, "time_ns")), known = false;
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        known = known || (state != NULL && strcmp(state, states[i]) == 0);
    for (size_t i = 0; i < sizeof range / sizeof *range; i++)
        good = good && json_is_number(json_object_get(o, range[i].key)) &&
               number(o, range[i].key) >= range[i].least && number(o, range[i].key) <= range[i].most;
    good = good && known;
    if (!good) return false;
    size_t at = 0;
    while (at < r->nevents && strcmp(r->event[at].id, id) != 0) at++;
    if (at == r->nevents) {
        struct recover_event *more = realloc(r->event, (at + 1) * sizeof *more);
        if (more == NULL) return false;
        r->event = more;
        r->nevents++;
    } else {
        free_event(&r->event[at]);
    }
    struct recover_event *e = &r->event[at];
    json_int_t time_ns = json_integer_value(json_object_get(o, "time_ns"));
    if (r->epoch_ns == 0) r->epoch_ns = time_ns;
    *e = (struct recover_event){.id = strdup(id),
                                .state = strdup(state),
                                .time_s = (double)(time_ns - r->epoch_ns) * 1e-9,
                                .burst = {.dm = number(o, "dm"),
                                          .width_s = number(o, "width_s"),
                                          .scattering_s = number(o, "scattering_s"),
                                          .ref_mhz = number(o, "freq_mhz")},
                                .wanted = number(o, "wanted_snr"),
                                .index = number(o, "index")};
    *told = !take_beams(r, o, e);
    return !*told;
}

/* Whether a text that is not JSON is the beginning of a line: who wrote it was killed. The next run of
 * `inject` goes on in a line of its own. */
static bool is_cut(const char *line, size_t length, const json_error_t *why)
{
    return length > 0 && line[0] == '{' &&
           (line[length - 1] != '}' || json_error_code(why) == json_error_premature_end_of_input);
}

int recover_ledger(struct recover *r)
{
    struct br_error error = {0};
    FILE *file = br_fopen_regular(r->ledger, NULL, &error);
    char *line = NULL;
    size_t size = 0, row = 0;
    ssize_t length;
    int status = 0;
    if (file == NULL) {
        fprintf(stderr, "beamring recover: %s\n", error.text);
        return 1;
    }
    while (status == 0 && (length = getline(&line, &size, file)) > 0) {
        json_error_t why = {0};
        bool told = false;
        json_t *o = json_loads(line, JSON_REJECT_DUPLICATES, &why);
        row++;
        if (o == NULL && is_cut(line, strcspn(line, "\n"), &why))
            fprintf(stderr, "beamring recover: %s: line %zu is cut off; it is left out\n", r->ledger, row);
        else if (o == NULL || !take_line(r, o, &told))
            status = 1;
        if (status != 0 && !told)
            fprintf(stderr, "beamring recover: %s:%zu: %s; expected an event of `inject`: remove the line\n",
                    r->ledger, row,
                    o == NULL ? why.text : "keys are missing, or values are wrong or out of range");
        json_decref(o);
    }
    if (status == 0 && r->nevents == 0) {
        fprintf(stderr, "beamring recover: %s: it has no event\n", r->ledger);
        status = 1;
    }
    free(line);
    fclose(file);
    return status;
}

/* --- the report --- */

struct summary {
    size_t events, missed, unexpected, outside, unsteady; /* outside: in none of the files */
    double mean, scatter, error; /* of the ratio; error: of the mean, from noise alone */
    bool good;
};

static bool counts(const struct recover_event *e, const struct recovered *f)
{
    return f->beam >= 0 && f->predicted > 0 && strcmp(e->state, "refused") != 0;
}

static bool is_missed(const struct recover_event *e, const struct recovered *f)
{
    return counts(e, f) && f->predicted >= NOT_MISSED && f->snr < f->predicted / 2;
}

static bool is_unexpected(const struct recover_event *e, const struct recovered *f)
{
    return strcmp(e->state, "refused") == 0 && f->beam >= 0 && f->snr > UNEXPECTED;
}

static struct summary summarize(const struct recover *r, const struct recovered *found)
{
    struct summary s = {0};
    double squares = 0;
    for (size_t i = 0; i < r->nevents; i++) {
        const struct recovered *f = &found[i];
        const struct recover_event *e = &r->event[i];
        s.missed += is_missed(e, f);
        s.unexpected += is_unexpected(e, f);
        s.unsteady += f->beam < 0 && f->unsteady;
        s.outside += f->beam < 0 && !f->unsteady && strcmp(e->state, "refused") != 0;
        if (!counts(e, f)) continue;
        double ratio = f->snr / f->predicted;
        s.events++;
        s.mean += ratio;
        squares += ratio * ratio;
        s.error += 1 / (f->predicted * f->predicted);
    }
    double n = (double)s.events;
    if (s.events > 0) {
        s.mean /= n;
        s.scatter = sqrt(fmax(squares / n - s.mean * s.mean, 0));
        s.error = sqrt(s.error) / n;
    }
    s.good = s.events > 0 && s.missed == 0 && s.unexpected == 0 && s.mean >= r->low - 3 * s.error &&
             s.mean <= r->high + 3 * s.error;
    return s;
}

static json_t *document(const struct recover *r, const struct recovered *found, const struct summary *s)
{
    json_t *events = json_array();
    for (size_t i = 0; i < r->nevents; i++) {
        const struct recovered *f = &found[i];
        const struct recover_event *e = &r->event[i];
        json_t *o = json_pack("{ss ss sf}", "id", e->id, "state", e->state, "dm", e->burst.dm);
        if (f->beam >= 0) {
            json_object_set_new(o, "beam", json_integer(f->beam));
            json_object_set_new(o, "recovered", json_real(f->snr));
        }
        if (counts(e, f)) {
            json_object_set_new(o, "predicted", json_real(f->predicted));
            json_object_set_new(o, "ratio", json_real(f->snr / f->predicted));
            json_object_set_new(o, "dm_error", json_real(f->dm_error));
            json_object_set_new(o, "time_error_s", json_real(f->time_error_s));
        }
        json_object_set_new(o, "unsteady", json_boolean(f->beam < 0 && f->unsteady));
        json_object_set_new(o, "missed", json_boolean(is_missed(e, f)));
        json_object_set_new(o, "unexpected", json_boolean(is_unexpected(e, f)));
        json_array_append_new(events, o);
    }
    return json_pack("{so s{sI sI sI sI sI sf sf sf s[ff] sb}}", "events", events, "summary", "events",
                     (json_int_t)s->events, "missed", (json_int_t)s->missed, "unexpected",
                     (json_int_t)s->unexpected, "outside", (json_int_t)s->outside, "unsteady",
                     (json_int_t)s->unsteady, "mean", s->mean, "scatter", s->scatter, "error", s->error,
                     "limits", r->low, r->high, "good", s->good);
}

static void print(const struct recover *r, const struct recovered *found, const struct summary *s)
{
    printf("%-28s %-9s %5s %9s %9s %7s %9s %9s\n", "event", "state", "beam", "predicted", "recovered",
           "ratio", "DM error", "ms late");
    for (size_t i = 0; i < r->nevents; i++) {
        const struct recovered *f = &found[i];
        const struct recover_event *e = &r->event[i];
        if (counts(e, f))
            printf("%-28s %-9s %5ld %9.2f %9.2f %7.3f %9.3f %9.3f%s\n", e->id, e->state, f->beam,
                   f->predicted, f->snr, f->snr / f->predicted, f->dm_error, f->time_error_s * 1e3,
                   is_missed(e, f) ? "  MISSED" : "");
        else if (f->beam >= 0)
            printf("%-28s %-9s %5ld %9s %9.2f%s\n", e->id, e->state, f->beam, "-", f->snr,
                   is_unexpected(e, f) ? "  IT IS IN THE DATA" : "");
        else if (f->unsteady)
            printf("%-28s %-9s the level of the noise changes there\n", e->id, e->state);
        else if (strcmp(e->state, "refused") != 0)
            printf("%-28s %-9s no file has it\n", e->id, e->state);
    }
    printf("recovered over predicted S/N: mean %.4f of %zu events, to %.4f by their noise; scatter %.3f\n",
           s->mean, s->events, s->error, s->scatter);
    printf("%zu missed above S/N %g, %zu in the data although refused, %zu where the noise changes, %zu in "
           "none of the files: %s\n",
           s->missed, NOT_MISSED, s->unexpected, s->unsteady, s->outside, s->good ? "good" : "NOT GOOD");
}

static int draw(const struct recover *r, const json_t *o)
{
    char name[] = "/tmp/beamring-recover-XXXXXX";
    int fd = mkstemp(name), status = 1;
    if (fd >= 0 && json_dumpfd(o, fd, 0) == 0)
        status = plot("recover", "recover_report.py", "numpy and matplotlib", name, r->picture);
    if (fd >= 0) {
        close(fd);
        unlink(name);
    }
    return status;
}

int recover_report(const struct recover *r, const struct recovered *found)
{
    struct summary s = summarize(r, found);
    json_t *o = document(r, found, &s);
    int status = s.good ? 0 : 1;
    if (r->picture != NULL && draw(r, o) != 0) status = 1;
    if (r->json && json_print(json_incref(o)) != 0) status = 1;
    if (!r->json) print(r, found, &s);
    json_decref(o);
    return status;
}
