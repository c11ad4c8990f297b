/* Any stream into DADA files that recording_describe reads back bit for bit.
 *
 * A recording goes on from file to file. A file's header is brought up to date once a second and at the end;
 * in between it promises less than there is, never more. The sidecar with the gaps is written before the data
 * it speaks of. So a killed run leaves files that can be replayed. A window (writer.h) is one file of known
 * length, whose header is written at the end. */
#include "buffers/clock.h"
#include "buffers/output.h"
#include "formats/common/fileio.h"
#include "formats/common/text.h"
#include "formats/dada/recording.h"
#include "formats/dada/sidecar.h"
#include "formats/tables/beam_table.h"
#include "formats/writer.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Room in the header for numbers that grow. */
enum { RECORDING_SLACK = 512, WINDOW_SLACK = 128 };
#define MAX_HOLE_BYTES  (UINT64_C(1) << 30)
#define HEADER_EVERY_NS UINT64_C(1000000000)

struct dada_out {
    bool flat;
    size_t row_bytes;
    char *header; /* [file.header_bytes] */
    struct recording_file file;
    char obs_id[32];
    int fd;
    uint64_t end;       /* base sample after the last one written */
    uint64_t used;      /* bytes of payload in the current file */
    uint64_t obs_bytes; /* ... and in the files before it */
    uint64_t header_ns;
    struct sidecar gaps;
    char updates[WRITER_UPDATES]; /* that hold at the current file's first sample, or in the window */
    struct beam_table table;
    double *places; /* [2][nbeams][2]: beams_start and beams_radec of `file`; NULL: none */
    int later;      /* the file of those that begin behind its first sample; -1: not open */
    uint64_t later_bytes;
};

/* --- where beams look ------------------------------------------------------------------------------ */

static double rounded(double value, double per)
{
    return isfinite(value) ? nearbyint(value * per) / per : RECORDING_NOWHERE;
}

/* Memory for where beams look, and numbers there that take as much room as any in the header. */
static int prepare_places(struct file_writer *w)
{
    const struct br_stream *s = w->stream;
    struct dada_out *d = w->state;
    const struct apparent_site *site = s->motion != NULL ? s->motion->site : w->site;
    if (!beams_are_known(s)) return BR_OK;
    d->places = malloc(4 * s->nbeams * sizeof *d->places);
    if (d->places == NULL) return writer_no_memory(w, 4 * s->nbeams * sizeof *d->places);
    for (size_t i = 0; i < 4 * s->nbeams; i++) d->places[i] = i % 2 == 0 ? 359.1234567 : -0.123456789;
    if (beams_move(s)) d->file.beams_start = d->places;
    if (site != NULL && apparent_is_there()) d->file.beams_radec = d->places + 2 * s->nbeams;
    return BR_OK;
}

/* Beams that stand still do not, where an update or steering points them elsewhere before sample `end`. */
static void look_for_others(struct file_writer *w, uint64_t end)
{
    struct dada_out *d = w->state;
    struct br_pointing *held;
    if (d->places == NULL || d->file.beams_start != NULL) return;
    br_pointings_hold(w->stream->motion, end - 1, &held);
    if (held != NULL) d->file.beams_start = d->places;
    br_pointing_release(held);
}

/* Where they look at the start of the file. */
static int take_places(struct file_writer *w)
{
    const struct br_stream *s = w->stream;
    struct dada_out *d = w->state;
    if (d->places == NULL) return BR_OK;
    struct br_look *look = malloc(s->nbeams * sizeof *look);
    if (look == NULL) return writer_no_memory(w, s->nbeams * sizeof *look);
    int status = beams_look(s, w->site, d->file.first, look, &w->error);
    for (size_t b = 0; b < s->nbeams && status == BR_OK; b++) {
        double *xy = d->places + 2 * b, *radec = xy + 2 * s->nbeams;
        xy[0] = rounded(look[b].x, 1e9);
        xy[1] = rounded(look[b].y, 1e9);
        radec[0] = rounded(look[b].ra_deg, 1e7);
        radec[1] = rounded(look[b].dec_deg, 1e7);
    }
    free(look);
    return status;
}

/* --- the header ------------------------------------------------------------------------------------ */

static void put_direction(struct dada_writer *to, const struct writer_direction *d)
{
    if (!d->known) return;
    dada_put(to, "EVENT_AZEL", "%.7f,%.7f", d->azimuth_deg, d->altitude_deg);
    if (isfinite(d->ra_deg)) dada_put(to, "EVENT_RADEC", "%.7f,%.7f", d->ra_deg, d->dec_deg);
    if (d->name[0] != '\0') dada_put(to, "EVENT_SOURCE", "%s", d->name);
}

static void format_header(struct file_writer *w, struct dada_writer *to)
{
    struct dada_out *d = w->state;
    const struct writer_window *part = w->window;
    const char *path = part != NULL ? part->name : w->path, *slash = strrchr(path, '/');
    char list[TEXT_REAL];
    d->file.name = slash != NULL ? slash + 1 : path;
    recording_format(to, w->stream, &d->file);
    if (part == NULL) return;
    dada_put(to, "EVENT_ID", "%s", d->obs_id);
    dada_put(to, "EVENT_DM", "%s", text_real_format(list, part->dm));
    dada_put(to, "EVENT_DM_ERROR", "%s", text_real_format(list, part->dm_error));
    if (isfinite(part->ref_mhz))
        dada_put(to, "EVENT_FREQ_REF_MHZ", "%s", text_real_format(list, part->ref_mhz));
    put_direction(to, &part->direction);
    dada_put(to, "MISSING_SAMPLES", "%" PRIu64, w->lacking);
    for (size_t i = 0; i < part->ndishes; i++) { /* numbers in the stream of what stands in the file */
        char key[32];
        snprintf(key, sizeof key, "DISH_%zu", i);
        dada_put(to, key, "%zu", part->dish[i]);
    }
}

static void hold_updates(struct file_writer *w, uint64_t first, uint64_t end)
{
    struct dada_out *d = w->state;
    d->updates[0] = '\0';
    if (w->host.updates_room > 0) w->host.held(w->host.owner, first, end, d->updates, sizeof d->updates);
    d->file.updates = d->updates;
}

/* Reports an error of the data file; its contents stay readable. */
static int failed(struct file_writer *w, const char *what, int why)
{
    struct dada_out *d = w->state;
    if (w->window != NULL) return writer_failed(w, what, w->window->path, why);
    return br_fail(&w->error, BR_E_IO, "cannot %s %s: %s; the %llu samples before that are in the file", what,
                   w->path, strerror(why), (unsigned long long)(d->end - d->file.first));
}

static int write_header(struct file_writer *w)
{
    struct dada_out *d = w->state;
    struct dada_writer to = {d->header, d->file.header_bytes, 0};
    if (w->window == NULL) {
        d->file.samples = d->end - d->file.first;
        d->file.payload_bytes = d->used;
    }
    format_header(w, &to);
    if (!dada_finish(&to, d->file.header_bytes))
        return br_fail(&w->error, BR_E_INTERNAL, "the header of %s does not fit into %zu bytes", d->file.name,
                       d->file.header_bytes);
    writer_to_disk(w);
    int why = writer_from_disk(w, fileio_write(d->fd, d->header, d->file.header_bytes, 0));
    d->header_ns = br_clock_ns();
    return why == 0 ? BR_OK : failed(w, "write the header of", why);
}

/* The header's size, from one that is written nowhere, and memory for it. */
static int measure_header(struct file_writer *w, size_t slack)
{
    struct dada_out *d = w->state;
    struct dada_writer to = {0}, still = {0};
    d->file.header_bytes = DADA_MAX_HEADER; /* as many digits as it may have */
    format_header(w, &still);
    const double *moving = d->file.beams_start;
    if (w->host.updates_room > 0) d->file.beams_start = d->places; /* an update may move them */
    format_header(w, &to);
    d->file.beams_start = moving;
    if (still.used > to.used) to = still;
    d->file.header_bytes =
        (to.used + slack + w->host.updates_room + DADA_BLOCK - 1) / DADA_BLOCK * DADA_BLOCK;
    if (d->file.header_bytes > DADA_MAX_HEADER)
        return br_fail(&w->error, BR_E_INVALID,
                       "the description of its input needs a header of %zu bytes; at most %d are allowed "
                       "(fewer channels or beams)",
                       d->file.header_bytes, DADA_MAX_HEADER);
    d->header = malloc(d->file.header_bytes);
    return d->header != NULL ? BR_OK : writer_no_memory(w, d->file.header_bytes);
}

/* --- beside the file -------------------------------------------------------------------------------- */

static int gaps_failed(struct file_writer *w)
{
    const struct dada_out *d = w->state;
    return br_fail(&w->error, d->gaps.error.status, "%s", d->gaps.error.text);
}

/* Appends the updates that begin in base samples [first, end) to FILE.updates, a line each, as in the header,
 * before the data are written. No update: no file. */
static int write_later(struct file_writer *w, uint64_t first, uint64_t end)
{
    struct dada_out *d = w->state;
    if (w->window != NULL || w->host.updates_room == 0) return BR_OK;
    size_t length = w->host.begun(w->host.owner, first, end, NULL, 0); /* nearly always none */
    if (length == 0) return BR_OK;
    char *text = malloc(length + 1), name[WRITER_PATH + 16];
    snprintf(name, sizeof name, "%s.updates", w->path);
    if (text == NULL) return br_fail(&w->error, BR_E_NO_MEMORY, "no memory for %s", name);
    if (w->host.begun(w->host.owner, first, end, text, length + 1) < length) length = strlen(text);
    for (char *c = text; (c = strchr(c, ',')) != NULL;) *c = '\n';
    text[length] = '\n';
    if (d->later < 0) {
        d->later = br_output_open(name, true, &w->error);
        d->later_bytes = 0;
    }
    int why = d->later < 0 ? EIO : fileio_write(d->later, text, length + 1, d->later_bytes);
    d->later_bytes += length + 1;
    free(text);
    return why == 0 ? BR_OK : writer_failed(w, "write", name, why);
}

/* Base samples [d->end, to) do not come. */
static int put_hole(struct file_writer *w, uint64_t to)
{
    struct dada_out *d = w->state;
    if (to <= d->end) return BR_OK;
    writer_to_disk(w);
    int status = sidecar_hole(&d->gaps, d->end, to - d->end);
    int why = writer_from_disk(w, 0);
    d->end = to;
    if (status != BR_OK) return gaps_failed(w);
    return why == 0 ? BR_OK : failed(w, "write", why);
}

/* --- files ------------------------------------------------------------------------------------------ */

static int open_all(struct file_writer *w)
{
    const struct br_stream *s = w->stream;
    const struct writer_window *part = w->window;
    struct dada_out *d = w->state;
    d->fd = d->later = d->gaps.fd = -1;
    d->flat = recording_is_flat(s, &d->row_bytes);
    if (sidecar_create(&d->gaps, s->nchannels) != BR_OK) return gaps_failed(w);
    if (part == NULL) {
        d->file.obs_id = w->prefix;
        snprintf(w->path, sizeof w->path, "%s", w->prefix); /* as long as any that it will have */
        d->table = (struct beam_table){.stream = s, .site = w->site};
        snprintf(d->table.path, sizeof d->table.path, "%s/%s_beams.csv", w->directory, w->prefix);
        int status = prepare_places(w);
        return status == BR_OK ? measure_header(w, RECORDING_SLACK) : status;
    }
    uint64_t samples = part->end - part->first;
    snprintf(d->obs_id, sizeof d->obs_id, "%" PRIu64, part->event);
    d->end = part->first;
    d->file = (struct recording_file){.obs_id = d->obs_id,
                                      .first = part->first,
                                      .samples = samples,
                                      .payload_bytes = samples / s->zone[0].downsample * d->row_bytes,
                                      .obs_first = part->first};
    hold_updates(w, part->first, part->end); /* more may come until it is written */
    int status = measure_header(w, WINDOW_SLACK);
    if (status != BR_OK) return status;
    sidecar_open_late(&d->gaps, part->name);
    d->fd = writer_reserve(w, d->file.header_bytes + d->file.payload_bytes);
    return d->fd >= 0 ? BR_OK : w->error.status;
}

/* Completes the current file, if there is one. Returns the first failure, but does all it can. */
static int close_file(struct file_writer *w)
{
    struct dada_out *d = w->state;
    if (d->fd < 0) return BR_OK;
    int status = BR_OK;
    /* a frame that could not be written as a whole is cut off again */
    if (w->window == NULL && ftruncate(d->fd, (off_t)(d->file.header_bytes + d->used)) != 0)
        status = failed(w, "shorten", errno);
    int written = write_header(w);
    if (close(d->fd) != 0 && written == BR_OK) written = failed(w, "complete", errno);
    d->fd = -1;
    if (status == BR_OK) status = written;
    if (d->later >= 0 && close(d->later) != 0 && status == BR_OK)
        status = writer_failed(w, "complete the .updates of", w->path, errno);
    d->later = -1;
    if (sidecar_close(&d->gaps) != BR_OK && status == BR_OK) status = gaps_failed(w);
    d->obs_bytes += d->used;
    return status;
}

static int open_file(struct file_writer *w, uint64_t first)
{
    struct dada_out *d = w->state;
    if (w->files == 0) d->file.obs_first = first;
    d->file.number = w->files;
    d->file.first = d->end = first;
    uint64_t step = w->stream->zone[0].downsample;
    d->file.obs_offset = d->flat ? (first / step - d->file.obs_first / step) * d->row_bytes : d->obs_bytes;
    d->used = 0;
    hold_updates(w, first, first + 1);
    int status = take_places(w);
    if (status != BR_OK) return status;
    writer_path(w, d->file.number);
    if (sidecar_open(&d->gaps, w->path, w->overwrite) != BR_OK) return gaps_failed(w);
    d->fd = br_output_open(w->path, w->overwrite, &w->error);
    if (d->fd < 0) {
        sidecar_remove(&d->gaps);
        return w->error.status;
    }
    w->files++;
    return write_header(w);
}

/* Whether the frame begins a new file: framed payloads can be short only at the ends of a file, and flat ones
 * keep a hole as a hole of the file (which takes no space) unless it is huge. */
static bool wants_file(const struct file_writer *w, const struct br_frame *in, uint64_t bytes,
                       uint64_t hole_bytes)
{
    const struct dada_out *d = w->state;
    if (d->fd < 0) return true;
    if (w->window != NULL) return false;
    if (!d->flat && (in->first != d->end || d->end % w->stream->frame_samples != 0)) return true;
    if (hole_bytes > MAX_HOLE_BYTES) return true;
    return w->file_bytes > 0 && d->used > 0 && d->used + hole_bytes + bytes > w->file_bytes;
}

static int put(struct file_writer *w, const struct br_frame *in)
{
    struct dada_out *d = w->state;
    const struct br_stream *s = w->stream;
    if (w->files + (w->window != NULL) > 0 && in->first < d->end)
        return br_fail(&w->error, BR_E_INTERNAL,
                       "a frame starts at sample %llu, before the end %llu of the last one",
                       (unsigned long long)in->first, (unsigned long long)d->end);
    uint64_t step = s->zone[0].downsample, bytes = br_frame_bytes(s, in), hole = 0;
    if (d->fd >= 0 && d->flat) hole = (in->first / step - d->file.first / step) * d->row_bytes;
    hole = hole > d->used ? hole - d->used : 0;
    bool another = wants_file(w, in, bytes, hole);
    int status = another ? close_file(w) : put_hole(w, in->first);
    look_for_others(w, in->first + in->samples); /* behind the header of the file before */
    if (status == BR_OK && another) status = open_file(w, in->first);
    if (status == BR_OK && w->window == NULL)
        status = beam_table_reach(&d->table, in->first, in->first + in->samples, &w->error);
    if (status != BR_OK) return status;
    /* the header has those of its first sample */
    uint64_t known = d->end > d->file.first ? d->end : d->file.first + 1;
    status = write_later(w, known, in->first + in->samples);
    if (status != BR_OK) return status;

    uint64_t at = d->flat ? (in->first / step - d->file.first / step) * d->row_bytes : d->used;
    uint64_t offset = d->file.header_bytes + at;
    size_t side = s->side.naxes > 0 ? br_array_bytes(&s->side) : 0;
    writer_to_disk(w);
    bool good = sidecar_frame(&d->gaps, s, in) == BR_OK;
    int why = good ? fileio_write(d->fd, in->data, (size_t)bytes, offset) : 0;
    if (good && why == 0 && side > 0) why = fileio_write(d->fd, in->side, side, offset + bytes);
    why = writer_from_disk(w, why);
    if (!good) return gaps_failed(w);
    if (why != 0) return failed(w, "write", why);
    d->used = at + bytes + side;
    d->end = in->first + in->samples;
    if (w->window == NULL && br_clock_ns() - d->header_ns > HEADER_EVERY_NS) status = write_header(w);
    return status;
}

/* A window leaves nothing next to a file that has failed. */
static int close_window(struct file_writer *w)
{
    struct dada_out *d = w->state;
    int status = w->error.status == BR_OK ? put_hole(w, w->window->end) : w->error.status;
    if (status == BR_OK) {
        hold_updates(w, w->window->first, w->window->end);
        status = write_header(w);
    }
    writer_to_disk(w);
    int why = d->fd >= 0 && close(d->fd) != 0 ? errno : 0;
    bool good = status == BR_OK ? sidecar_close(&d->gaps) == BR_OK : (sidecar_remove(&d->gaps), true);
    why = writer_from_disk(w, why);
    d->fd = -1;
    if (!good && status == BR_OK) status = gaps_failed(w);
    return why != 0 && status == BR_OK ? failed(w, "complete", why) : status;
}

static int close_all(struct file_writer *w)
{
    struct dada_out *d = w->state;
    int status = w->window != NULL ? close_window(w) : close_file(w);
    int told = beam_table_end(&d->table, d->end, &w->error);
    if (status == BR_OK) status = told;
    free(d->places);
    d->places = NULL;
    sidecar_destroy(&d->gaps);
    free(d->header);
    d->header = NULL;
    return status;
}

const struct writer_format dada_files =
    WRITER_FORMAT("dada", "dada", dada_out, .everything = true, .open = open_all, .close = close_all);
