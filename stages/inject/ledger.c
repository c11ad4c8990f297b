/* ledger.c - the thread that plans events ahead of the stream, and the ledger: what is going to happen, and
 * what happened. */
#include "buffers/clock.h"
#include "buffers/output.h"
#include "runtime/stage_updates.h"
#include "stages/inject/inject.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { KEPT = 256, OPEN = 256, LOOK_MS = 100 };
#define AHEAD_S      10.0         /* of stream for which the schedule is planned */
#define PATIENCE_NS  10000000000u /* a disk that does not answer for longer is not waited for */
#define END_S        5            /* and at the end of the run */
#define PREDICT_MOST 2e8          /* inputs x channels x beams for which S/N is summed in full */

const char *const inject_state_name[] = {"scheduled", "injected", "partly", "refused"};

/* What an accepted event takes of the band, until it is over. */
struct open {
    struct burst_params burst;
    uint64_t sample, end;
    char id[INJECT_ID];
};

/* An event as it was told last. */
struct told {
    char id[INJECT_ID];
    char *text; /* JSON */
    bool saved; /* the ledger has it */
};

struct inject_planner {
    struct br_stage *stage;
    struct inject *s;
    unsigned nworkers;
    int fd;        /* -1: the ledger could not be opened */
    json_t *known; /* ids that the ledger has had */

    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool has_thread, started, quit, busy, over;
    uint64_t position;             /* no event is accepted that begins before it */
    uint64_t slot;                 /* of the schedule, the next one */
    struct inject_event *inbox;    /* new ones */
    struct inject_event *accepted; /* for the stage's thread, in order of `begin` */
    struct inject_event *finished; /* from the stage's thread */
    uint64_t disk_since;           /* when the thread began to wait for the disk; 0: it does not */
    char trouble[200];             /* why the ledger cannot be written; "": it can */
    struct open open[OPEN];
    size_t nopen;
    struct told told[KEPT]; /* a ring; the newest is ntold - 1 */
    size_t ntold, nunsaved;
};

/* --- the file --- */

static int open_file(const char *path, char *why, size_t size)
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

/* The ids that an earlier run has written. A line that is none of the ledger's is told of and left alone. */
static void read_known(struct br_stage *stage, struct inject_planner *p, const char *path)
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
    if (p->fd < 0) p->fd = open_file(p->s->ledger, why, sizeof why);
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
            if (e->power[line * s->ndishes + d] > 0)
                sum += 1 - (double)e->lost[line * s->ndishes + d] / e->seen[line];
        all += (double)s->ndishes;
    }
    return all > 0 ? sum / all : 0;
}

static double share_added(const struct inject *s, const struct inject_event *e)
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
        inject_steps(s, e, product, steps);
        for (size_t b = 0; b < stream->nbeams; b++)
            json_array_append_new(snr, rounded(inject_snr(s, e, product, steps, b, stride, true)));
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
    json_t *o = json_pack(
        "{ss ss ss sI sI sf s[ff] sf sf sf sf sf}", "id", e->id, "state", inject_state_name[e->state],
        "stage", br_stage_name(p->stage), "sample", (json_int_t)e->sample, "time_ns",
        (json_int_t)br_stream_time_ns(s->stream, e->sample), "freq_mhz", e->burst.ref_mhz, "xy", e->x, e->y,
        "dm", e->burst.dm, "width_s", e->burst.width_s, "scattering_s", e->burst.scattering_s, "fluence_s",
        isnan(e->fluence_s) ? 0.0 : e->fluence_s, "index", e->index);
    if (e->beam >= 0) json_object_set_new(o, "beam", json_integer(e->beam));
    if (!isnan(e->wanted_snr)) json_object_set_new(o, "wanted_snr", json_real(e->wanted_snr));
    if (e->why[0] != '\0') json_object_set_new(o, "why", json_string(e->why));
    if (e->full != NULL) {
        json_object_set_new(o, "first_sample", json_integer((json_int_t)e->begin));
        json_object_set_new(o, "end_sample", json_integer((json_int_t)e->end));
    }
    if (e->state == INJECT_INJECTED || e->state == INJECT_PARTLY) {
        uint64_t clipped = 0;
        for (size_t i = 0; i < e->nworkers; i++) clipped += e->clipped[i];
        json_object_set_new(o, "added", rounded(share_added(s, e)));
        json_object_set_new(o, "inputs", rounded(mean_there(s, e)));
        json_object_set_new(o, "clipped", json_integer((json_int_t)clipped));
        json_object_set_new(o, "beams", predicted(s, e));
    }
    char *text = o != NULL ? json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(12)) : NULL;
    json_decref(o);
    return text;
}

/* --- what is told --- */

static struct told *told_of(struct inject_planner *p, const char *id)
{
    for (size_t i = p->ntold > KEPT ? p->ntold - KEPT : 0; i < p->ntold; i++)
        if (strcmp(p->told[i % KEPT].id, id) == 0) return &p->told[i % KEPT];
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

/* Writes the event into the ledger, and remembers it for those who ask. False: the ledger does not have it. */
static bool tell(struct inject_planner *p, const struct inject_event *e)
{
    char *text = describe(p, e);
    bool saved = text != NULL && save(p, text);
    pthread_mutex_lock(&p->mutex);
    struct told *told = told_of(p, e->id);
    if (told == NULL) {
        told = &p->told[p->ntold++ % KEPT];
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

/* What the ledger does not have yet, where it can be written again. The thread alone changes `told`. */
static void save_rest(struct inject_planner *p)
{
    for (size_t i = p->ntold > KEPT ? p->ntold - KEPT : 0; i < p->ntold && p->nunsaved > 0; i++) {
        struct told *told = &p->told[i % KEPT];
        if (told->saved) continue;
        if (!save(p, told->text)) return;
        told->saved = true;
        p->nunsaved--;
    }
}

/* --- planning --- */

static void forbid(struct inject_event *e, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void forbid(struct inject_event *e, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(e->why, sizeof e->why, format, args);
    va_end(args);
    e->state = INJECT_REFUSED;
}

/* The open event that has samples of a channel in common with this one, or NULL. */
static const struct open *overlapped(const struct inject *s, const struct inject_planner *p,
                                     const struct inject_event *e)
{
    for (size_t i = 0; i < p->nopen; i++)
        for (size_t c = 0; c < s->nchannels; c++) {
            int64_t first, end, at = (int64_t)p->open[i].sample;
            burst_extent(&p->open[i].burst, c, &first, &end);
            if (first + at - INJECT_NOISE < e->last[c] && e->first[c] - INJECT_NOISE < end + at)
                return &p->open[i];
        }
    return NULL;
}

static void close_open(struct inject_planner *p, const char *id)
{
    for (size_t i = 0; i < p->nopen; i++)
        if (strcmp(p->open[i].id, id) == 0) p->open[i--] = p->open[--p->nopen];
}

/* Accepts a new event, tells of it and hands it over; or refuses it. Without the mutex. */
static void plan(struct inject_planner *p, struct inject_event *e)
{
    struct inject *s = p->s;
    const struct open *other = NULL;
    if (json_object_get(p->known, e->id) != NULL) { /* an earlier run has it, or an earlier update */
        inject_event_free(e);
        return;
    }
    bool good = inject_accept(s, e, p->nworkers);
    if (good) other = overlapped(s, p, e);
    if (other != NULL)
        forbid(e, "it overlaps with '%s'", other->id);
    else if (good && p->nopen == OPEN)
        forbid(e, "%d injections are open; expected fewer at a time", OPEN);
    bool saved = tell(p, e);
    pthread_mutex_lock(&p->mutex);
    if (e->state != INJECT_REFUSED && !saved)
        forbid(e, "%s", p->trouble[0] != '\0' ? p->trouble : "no memory for its line");
    else if (e->state != INJECT_REFUSED && e->begin < p->position)
        forbid(e, "it comes too late: its first sample is %" PRIu64 ", and the stream is at %" PRIu64,
               e->begin, p->position);
    if (e->state != INJECT_REFUSED) {
        struct inject_event **at = &p->accepted;
        while (*at != NULL && (*at)->begin <= e->begin) at = &(*at)->next;
        e->next = *at;
        *at = e;
        p->open[p->nopen] = (struct open){.burst = e->burst, .sample = e->sample, .end = e->end};
        snprintf(p->open[p->nopen++].id, INJECT_ID, "%s", e->id);
        json_object_set_new(p->known, e->id, json_true());
        pthread_mutex_unlock(&p->mutex);
        return;
    }
    pthread_mutex_unlock(&p->mutex);
    tell(p, e);
    br_stage_warn(p->stage, "injection '%s' is refused: %s", e->id, e->why);
    inject_event_free(e);
}

/* What became of an event that the stage has done with. */
static void conclude(struct inject_planner *p, struct inject_event *e)
{
    double added = share_added(p->s, e);
    if (added > 0)
        e->state = added > 1 - 1e-6 ? INJECT_INJECTED : INJECT_PARTLY;
    else if (e->state != INJECT_REFUSED)
        forbid(e, "nothing of it was added: the stream has no samples there");
    if (e->state == INJECT_PARTLY)
        snprintf(e->why, sizeof e->why, "%.3g %% of it was not added: there the stream has no samples",
                 100 * (1 - added));
    tell(p, e);
    if (e->state == INJECT_REFUSED) br_stage_warn(p->stage, "injection '%s' is refused: %s", e->id, e->why);
    pthread_mutex_lock(&p->mutex);
    close_open(p, e->id);
    pthread_mutex_unlock(&p->mutex);
    inject_event_free(e);
}

/* The end of the stream for which all events are planned. */
static uint64_t planned(const struct inject_planner *p)
{
    if (p->inbox != NULL || p->busy) return 0;
    return p->s->schedule == NULL ? UINT64_MAX : (uint64_t)((double)p->slot * inject_slot(p->s));
}

static struct inject_event *pop(struct inject_event **list)
{
    struct inject_event *e = *list;
    *list = e->next;
    e->next = NULL;
    return e;
}

/* The next event to plan, with the mutex: from the inbox, else from the schedule. NULL: it is not time. */
static struct inject_event *next_event(struct inject_planner *p)
{
    if (p->inbox != NULL) return pop(&p->inbox);
    if (!p->started || p->quit || p->s->schedule == NULL) return NULL;
    double slot = inject_slot(p->s), ahead = AHEAD_S / p->s->sample_s;
    if ((double)p->slot * slot > (double)p->position + ahead) return NULL;
    struct inject_event *e = inject_draw(p->s, p->slot++);
    if (e == NULL || (double)e->sample - inject_lead(p->s) >= (double)p->position) return e;
    inject_event_free(e); /* its slot had begun when the stream did, or the stream has a hole there */
    return NULL;
}

static void *run(void *arg)
{
    struct inject_planner *p = arg;
    pthread_mutex_lock(&p->mutex);
    for (;;) {
        uint64_t slot = p->slot;
        struct inject_event *over = p->finished != NULL ? pop(&p->finished) : NULL,
                            *fresh = over == NULL ? next_event(p) : NULL;
        bool again = p->slot != slot, unsaved = p->nunsaved > 0;
        if (over == NULL && fresh == NULL && !again) {
            pthread_cond_broadcast(&p->changed);
            if (p->quit) break;
            struct timespec until;
            clock_gettime(CLOCK_REALTIME, &until);
            until.tv_sec++;
            if (unsaved)
                pthread_cond_timedwait(&p->changed, &p->mutex, &until);
            else
                pthread_cond_wait(&p->changed, &p->mutex);
        }
        p->busy = fresh != NULL;
        pthread_mutex_unlock(&p->mutex);
        if (over != NULL) conclude(p, over);
        if (fresh != NULL) plan(p, fresh);
        if (unsaved) save_rest(p);
        pthread_mutex_lock(&p->mutex);
        p->busy = false;
    }
    while (p->accepted != NULL) {
        struct inject_event *e = pop(&p->accepted);
        pthread_mutex_unlock(&p->mutex);
        forbid(e, "the stream ended before it");
        tell(p, e);
        inject_event_free(e);
        pthread_mutex_lock(&p->mutex);
    }
    pthread_mutex_unlock(&p->mutex);
    if (p->nunsaved > 0) save_rest(p);
    return NULL;
}

/* --- for the stage --- */

int inject_planner_start(struct br_stage *stage, struct inject *s)
{
    bool failed;
    struct inject_planner *p = calloc(1, sizeof *p);
    struct inject_event *events = inject_events(s, &failed);
    if (p == NULL || failed || (p->known = json_object()) == NULL)
        return br_stage_fail(stage, BR_E_NO_MEMORY, "no memory for the events");
    s->planner = p;
    p->stage = stage;
    p->s = s;
    p->inbox = events;
    p->nworkers = br_stage_threads(stage);
    p->fd = open_file(s->ledger, p->trouble, sizeof p->trouble);
    if (p->fd < 0) br_stage_warn(stage, "%s: injections are refused until it can be written", p->trouble);
    read_known(stage, p, s->ledger);
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->changed, NULL);
    p->has_thread = pthread_create(&p->thread, NULL, run, p) == 0;
    return p->has_thread ? BR_OK : br_stage_fail(stage, BR_E_NO_MEMORY, "no thread for the ledger");
}

static void free_list(struct inject_event *list)
{
    while (list != NULL) inject_event_free(pop(&list));
}

void inject_planner_stop(struct br_stage *stage, struct inject *s)
{
    struct inject_planner *p = s->planner;
    if (p == NULL) return;
    if (p->has_thread) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        pthread_mutex_lock(&p->mutex);
        p->quit = true;
        pthread_cond_broadcast(&p->changed);
        /* It has a last look at what is left; a disk that hangs is left behind, and so is its memory. */
        bool hangs = false;
        while (!hangs) {
            pthread_mutex_unlock(&p->mutex);
            until.tv_sec += END_S;
            if (pthread_timedjoin_np(p->thread, NULL, &until) == 0) break;
            pthread_mutex_lock(&p->mutex);
            hangs = p->disk_since != 0 && br_clock_ns() - p->disk_since > PATIENCE_NS;
            if (hangs) pthread_mutex_unlock(&p->mutex);
        }
        if (hangs) {
            br_stage_warn(stage, "the disk of %s does not answer: the ledger is not complete", s->ledger);
            return;
        }
        pthread_mutex_destroy(&p->mutex);
        pthread_cond_destroy(&p->changed);
    }
    if (p->nunsaved > 0)
        br_stage_warn(stage, "%zu lines of the ledger are lost: %s", p->nunsaved, p->trouble);
    if (p->fd >= 0) close(p->fd);
    for (size_t i = 0; i < KEPT; i++) free(p->told[i].text);
    json_decref(p->known);
    free_list(p->inbox);
    free_list(p->accepted);
    free_list(p->finished);
    free(p);
    s->planner = NULL;
}

static void join(struct inject_event **list, struct inject_event *more)
{
    while (*list != NULL) list = &(*list)->next;
    *list = more;
}

void inject_planner_add(struct inject *s, struct inject_event *events, uint64_t sample)
{
    struct inject_planner *p = s->planner;
    pthread_mutex_lock(&p->mutex);
    if (p->position < sample) p->position = sample;
    join(&p->inbox, events);
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->mutex);
}

void inject_planner_give(struct inject *s, struct inject_event *events)
{
    struct inject_planner *p = s->planner;
    pthread_mutex_lock(&p->mutex);
    join(&p->finished, events);
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->mutex);
}

struct inject_event *inject_planner_take(struct br_stage *stage, struct inject *s, uint64_t first,
                                         uint64_t end)
{
    struct inject_planner *p = s->planner;
    pthread_mutex_lock(&p->mutex);
    if (p->position < first || !p->started) {
        p->position = first;
        if (s->schedule != NULL) {
            uint64_t slot = (uint64_t)((double)first / inject_slot(s));
            if (p->slot < slot) p->slot = slot;
        }
    }
    p->started = true;
    pthread_cond_broadcast(&p->changed);
    while (planned(p) < end) {
        if (p->disk_since != 0 && br_clock_ns() - p->disk_since > PATIENCE_NS) break;
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOOK_MS * 1000000;
        if (until.tv_nsec >= 1000000000) until.tv_nsec -= 1000000000, until.tv_sec++;
        br_stage_waits_for(stage, "the ledger");
        pthread_cond_timedwait(&p->changed, &p->mutex, &until);
        br_stage_waits_for(stage, NULL);
    }
    if (p->position < end) p->position = end;
    struct inject_event *list = p->accepted, **at = &list;
    while (*at != NULL && (*at)->begin < end) at = &(*at)->next;
    p->accepted = *at;
    *at = NULL;
    bool troubled = p->trouble[0] != '\0' || p->disk_since != 0;
    const char *trouble = !troubled               ? NULL
                          : p->trouble[0] != '\0' ? p->trouble
                                                  : "the ledger's disk does not answer";
    if (trouble != NULL && p->disk_since != 0 && br_clock_ns() - p->disk_since < PATIENCE_NS) trouble = NULL;
    if (trouble != NULL || s->troubled) br_stage_trouble(stage, trouble);
    s->troubled = trouble != NULL;
    pthread_mutex_unlock(&p->mutex);
    return list;
}

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
    for (size_t i = p->ntold; i-- > 0 && i + KEPT >= p->ntold;) {
        const struct told *told = &p->told[i % KEPT];
        if (told->text == NULL || (text[0] != '\0' && strcmp(told->id, text) != 0)) continue;
        fprintf(out, "%s%s", n++ > 0 ? ",\n" : "", told->text);
    }
    pthread_mutex_unlock(&p->mutex);
    fputc(']', out);
    return fclose(out) == 0 ? 200 : 500;
}
