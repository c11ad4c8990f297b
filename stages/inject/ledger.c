/* ledger.c - the file of events, and the events that are told over the control interface. */
#include "buffers/clock.h"
#include "buffers/output.h"
#include "stages/inject/planner.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREDICT_MOST 2e8 /* inputs x channels x beams for which S/N is summed in full */

const char *const inject_state_name[] = {"scheduled", "injected", "partly", "refused"};

/* --- the file --- */

int ledger_open(const char *path, char *why, size_t size)
{
    struct br_error error = {0};
    struct stat at;
    int fd = -1;
    if (br_output_check(path, &error) != BR_OK)
        snprintf(why, size, "%.180s", error.text);
    else if ((fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644)) < 0 ||
             fstat(fd, &at) != 0)
        snprintf(why, size, "cannot open the ledger %.120s: %s", path, strerror(errno));
    return fd;
}

void ledger_read(struct br_stage *stage, struct inject_planner *p, const char *path)
{
    FILE *file = p->fd >= 0 ? fdopen(dup(p->fd), "r") : NULL;
    char *line = NULL;
    size_t size = 0, number = 0, damaged = 0;
    ssize_t length = 0;
    bool whole = true;
    while (file != NULL && (length = getline(&line, &size, file)) > 0) {
        json_t *one = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        const char *id = json_string_value(json_object_get(one, "id"));
        number++;
        whole = line[length - 1] == '\n';
        if (id != NULL)
            json_object_set_new(p->known, id, json_true());
        else if (damaged == 0)
            damaged = number;
        json_decref(one);
    }
    if (damaged > 0)
        br_stage_warn(stage, "%s: line %zu is not an event's; new lines go behind it", path, damaged);
    if (!whole && write(p->fd, "\n", 1) != 1) /* who wrote it was killed */
        br_stage_warn(stage, "%s: %s", path, strerror(errno));
    free(line);
    if (file != NULL) fclose(file);
}

/* Appends a whole line, or leaves the file as it was. */
static bool append(struct inject_planner *p, const char *text)
{
    char why[200] = "";
    size_t length = strlen(text), done = 0;
    off_t before = 0;
    pthread_mutex_lock(&p->mutex);
    p->disk_since = br_clock_ns();
    pthread_mutex_unlock(&p->mutex);
    if (p->fd < 0) p->fd = ledger_open(p->s->ledger, why, sizeof why);
    if (p->fd >= 0) before = lseek(p->fd, 0, SEEK_END);
    while (p->fd >= 0 && done < length) {
        ssize_t n = write(p->fd, text + done, length - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            snprintf(why, sizeof why, "cannot write the ledger %.120s: %s", p->s->ledger, strerror(errno));
            break;
        }
        done += (size_t)n;
    }
    if (p->fd >= 0 && done < length && done > 0 && ftruncate(p->fd, before) != 0) done = 0;
    pthread_mutex_lock(&p->mutex);
    p->disk_since = 0;
    p->looks = 0;
    snprintf(p->trouble, sizeof p->trouble, "%s", why);
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->mutex);
    return why[0] == '\0';
}

/* --- an event as JSON --- */

static double mean_there(const struct inject *s, const struct inject_event *e)
{
    double sum = 0, all = 0;
    for (size_t line = 0; line < s->nchannels * s->npol; line++) {
        if (!(e->seen[line] > 0)) continue;
        for (size_t d = 0; d < s->ndishes; d++)
            if (e->power[line * s->ndishes + d] > 0) sum += inject_there(s, e, line, d);
        all += (double)s->ndishes;
    }
    return all > 0 ? sum / all : 0;
}

double ledger_share_added(const struct inject *s, const struct inject_event *e)
{
    double full = 0, seen = 0;
    for (size_t c = 0; c < s->nchannels; c++) {
        double weight = pow(s->stream->freq_mhz[c] / e->burst.ref_mhz, e->index);
        for (size_t p = 0; p < s->npol; p++) {
            full += weight * 1;
            double of = e->full[c * s->npol + p];
            seen += of > 0 ? weight * e->seen[c * s->npol + p] / of : 0;
        }
    }
    return full > 0 ? seen / full : 0;
}

static json_t *rounded(double value)
{
    char text[40];
    snprintf(text, sizeof text, "%.5g", value);
    return json_real(atof(text));
}

/* {STAGE: {"step_s", "delay_s", "snr": [of each beam]}} */
static json_t *predicted(const struct inject *s, const struct inject_event *e)
{
    json_t *all = json_object();
    double *steps = malloc(s->nchannels * sizeof *steps);
    for (size_t i = 0; steps != NULL && i < s->nproducts; i++) {
        const struct inject_product *product = &s->product[i];
        const struct br_stream *stream = product->stream;
        double sums = (double)(s->nchannels * s->npol * s->ndishes) * (double)stream->nbeams;
        size_t stride = (size_t)fmin(ceil(sums / PREDICT_MOST), (double)s->nchannels);
        json_t *snr = json_array();
        struct br_beam *beams = inject_beams(product, e->sample);
        if (beams == NULL) break;
        inject_steps(s, e, product, steps);
        for (size_t b = 0; b < stream->nbeams; b++)
            json_array_append_new(snr, rounded(inject_snr(s, e, product, steps, beams[b], stride, true)));
        free(beams);
        json_object_set_new(all, product->stage,
                            json_pack("{sf sf so}", "step_s", stream->zone[0].downsample * s->sample_s,
                                      "delay_s", stream->zone[0].delay * s->sample_s, "snr", snr));
    }
    free(steps);
    return all;
}

/* The line of an event, without the end of the line; free() it. */
static char *describe(const struct inject_planner *p, const struct inject_event *e)
{
    const struct inject *s = p->s;
    json_t *o =
        json_pack("{ss ss ss sI sI sf sf sf sf sf sf}", "id", e->id, "state", inject_state_name[e->state],
                  "stage", br_stage_name(p->stage), "sample", (json_int_t)e->sample, "time_ns",
                  (json_int_t)br_stream_time_ns(s->stream, e->sample), "freq_mhz", e->burst.ref_mhz, "dm",
                  e->burst.dm, "width_s", e->burst.width_s, "scattering_s", e->burst.scattering_s,
                  "fluence_s", isnan(e->fluence_s) ? 0.0 : e->fluence_s, "index", e->index);
    /* JSON has no NaN: a beam below the horizon has no direction */
    if (!isnan(e->x)) json_object_set_new(o, "xy", json_pack("[ff]", e->x, e->y));
    if (e->beam >= 0) json_object_set_new(o, "beam", json_integer(e->beam));
    if (e->source.kind == SKY_RADEC)
        json_object_set_new(o, "radec_deg",
                            json_pack("[ff]", e->source.ra * 180 / M_PI, e->source.dec * 180 / M_PI));
    if (e->source.kind == SKY_SUN || e->source.kind == SKY_MOON)
        json_object_set_new(o, "name", json_string(e->source.kind == SKY_SUN ? "sun" : "moon"));
    if (!isnan(e->wanted_snr)) json_object_set_new(o, "wanted_snr", json_real(e->wanted_snr));
    if (e->why[0] != '\0') json_object_set_new(o, "why", json_string(e->why));
    if (e->full != NULL) {
        json_object_set_new(o, "first_sample", json_integer((json_int_t)e->begin));
        json_object_set_new(o, "end_sample", json_integer((json_int_t)e->end));
    }
    if (e->state == INJECT_INJECTED || e->state == INJECT_PARTLY) {
        json_object_set_new(o, "added", rounded(ledger_share_added(s, e)));
        json_object_set_new(o, "inputs", rounded(mean_there(s, e)));
        json_object_set_new(o, "clipped", json_integer((json_int_t)e->clipped));
        json_object_set_new(o, "beams", predicted(s, e));
    }
    char *text = o != NULL ? json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(12)) : NULL;
    json_decref(o);
    return text;
}

/* --- what is told --- */

static struct told *told_of(struct inject_planner *p, const char *id)
{
    for (size_t i = p->ntold > INJECT_KEPT ? p->ntold - INJECT_KEPT : 0; i < p->ntold; i++)
        if (strcmp(p->told[i % INJECT_KEPT].id, id) == 0) return &p->told[i % INJECT_KEPT];
    return NULL;
}

static bool save(struct inject_planner *p, const char *text)
{
    size_t length = strlen(text);
    char *line = malloc(length + 2);
    bool saved = line != NULL;
    if (saved) {
        memcpy(line, text, length);
        memcpy(line + length, "\n", 2);
        saved = append(p, line);
    }
    free(line);
    return saved;
}

bool ledger_tell(struct inject_planner *p, const struct inject_event *e)
{
    char *text = describe(p, e);
    bool saved = text != NULL && save(p, text);
    pthread_mutex_lock(&p->mutex);
    struct told *told = told_of(p, e->id);
    if (told == NULL) {
        told = &p->told[p->ntold++ % INJECT_KEPT];
        snprintf(told->id, sizeof told->id, "%s", e->id);
    }
    p->nunsaved -= told->text != NULL && !told->saved;
    free(told->text);
    told->text = text;
    told->saved = saved || text == NULL;
    p->nunsaved += !told->saved;
    pthread_mutex_unlock(&p->mutex);
    return saved;
}

/* The thread alone changes `told`. */
void ledger_save_rest(struct inject_planner *p)
{
    for (size_t i = p->ntold > INJECT_KEPT ? p->ntold - INJECT_KEPT : 0; i < p->ntold && p->nunsaved > 0;
         i++) {
        struct told *told = &p->told[i % INJECT_KEPT];
        if (told->saved) continue;
        if (!save(p, told->text)) return;
        told->saved = true;
        p->nunsaved--;
    }
}

/* --- for who asks --- */

int inject_request(struct br_stage *stage, void *self, const char *what, const char *text, char **reply)
{
    (void)stage;
    struct inject_planner *p = ((struct inject *)self)->planner;
    size_t length;
    if (strcmp(what, "injections") != 0 || p == NULL) {
        *reply = strdup("{\"error\": \"there is no such request\"}");
        return 404;
    }
    FILE *out = open_memstream(reply, &length);
    if (out == NULL) return 500;
    size_t n = 0;
    fputc('[', out);
    pthread_mutex_lock(&p->mutex);
    for (size_t i = p->ntold; i-- > 0 && i + INJECT_KEPT >= p->ntold;) {
        const struct told *told = &p->told[i % INJECT_KEPT];
        if (told->text == NULL || (text[0] != '\0' && strcmp(told->id, text) != 0)) continue;
        fprintf(out, "%s%s", n++ > 0 ? ",\n" : "", told->text);
    }
    pthread_mutex_unlock(&p->mutex);
    fputc(']', out);
    return fclose(out) == 0 ? 200 : 500;
}
