/* VDIF files: the electric field in one, with a thread for each polarisation of each dish; of beams one for
 * each, with a thread for each polarisation. */
#include "formats/common/fileio.h"
#include "formats/tables/beam_table.h"
#include "formats/vdif/encode.h"
#include "formats/writer.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* A file while it is written. */
struct vdif_file_out {
    struct vdif_encoder encoder;
    struct file_writer *writer;
    FILE *file; /* NULL: not begun, or completed */
    uint64_t number;
};

struct vdif_out {
    struct vdif_encoder like; /* with all threads of the stream */
    size_t count;
    struct vdif_file_out *out; /* [count] */
    struct beam_table table;
};

/* --- refuses ------------------------------------------------------------------------------------- */

/* Names the values that the headers cannot express. */
static void tell_reader(struct file_writer *f, const struct br_stream *s, const struct vdif_encoder *e)
{
    size_t n = s->nchannels, threads = e->beams ? e->npol : e->threads;
    double step = n > 1 ? (s->freq_mhz[n - 1] - s->freq_mhz[0]) / (double)(n - 1) : s->width_mhz[0];
    bool even = true;
    for (size_t i = 0; i < n; i++)
        even = even && fabs(s->freq_mhz[0] + step * (double)i - s->freq_mhz[i]) < 1e-9;
    char mhz[96] = "freq_mhz: [the list of channels]";
    if (even)
        snprintf(mhz, sizeof mhz, "freq_mhz: {first: %.15g, step: %.15g, count: %zu}", s->freq_mhz[0], step,
                 n);
    writer_note(f,
                "VDIF has no frequencies, no count of samples from an epoch, and threads 0 to %zu instead of "
                "polarisations%s; tell its reader: %s, width_mhz: %.15g, sample_ns: %" PRId64 "/%" PRId64
                ", epoch_ns: %" PRId64 ", npol: %zu",
                threads - 1, e->beams ? " (each beam has a file)" : " and dishes", mhz, s->width_mhz[0],
                s->sample_ns.num, s->sample_ns.den, s->epoch_ns, e->npol);
}

static int refuses(struct file_writer *f)
{
    const struct br_stream *s = f->stream;
    struct vdif_out *v = f->state;
    struct vdif_encoder *e = &v->like;
    struct br_error error = {0};
    bool of_samples;
    if (vdif_encoder_init(e, s, f->vdif_samples, 0, &of_samples, &error) != BR_OK)
        return writer_refuse(f, of_samples ? "vdif_samples" : "format", "%s", error.text);
    if (f->vdif_station != NULL && !vdif_station(f->vdif_station, &e->station))
        return writer_refuse(f, "vdif_station", "'%s'; expected two characters, or a number below 65536",
                             f->vdif_station);
    v->count = e->beams ? e->rows : 1;
    if (e->threads / v->count > VDIF_MAX_THREADS)
        return writer_refuse(f, "format",
                             "vdif: it has at most %d threads; the input has %zu polarisations of %zu dishes",
                             VDIF_MAX_THREADS, e->npol, e->rows);
    if (!fileio_allow_files(v->count))
        return writer_refuse(f, "format",
                             "vdif: %zu beams need as many open files, which the system does not allow "
                             "(`ulimit -n`); form fewer beams",
                             v->count);
    if (e->rounded_ns != 0)
        writer_loses(f, "%.9g ns of the epoch (a second of VDIF begins with a sample)", e->rounded_ns);
    for (size_t i = 1; i < s->nchannels; i++)
        if (fabs(s->width_mhz[i] / s->width_mhz[0] - 1) > 1e-9) {
            writer_loses(f, "the channel widths (a reader knows one for all)");
            break;
        }
    tell_reader(f, s, e);
    return BR_OK;
}

/* --- writing ------------------------------------------------------------------------------------- */

/* Completes a file; after a failure (`why`) as far as it goes. */
static int close_file(struct vdif_file_out *out, int why)
{
    FILE *file = out->file;
    out->file = NULL;
    if (file == NULL) return BR_OK;
    writer_path(out->writer, out->number);
    return writer_end_stream(out->writer, file, out->encoder.threads * out->encoder.frame_bytes,
                             "frames of every thread", why);
}

/* The sink of a file's encoder. */
static int write_frames(void *owner, struct vdif_encoder *e)
{
    struct vdif_file_out *out = owner;
    struct file_writer *f = out->writer;
    if (e->lacking > 0 && !f->lossy)
        return br_fail(&e->error, BR_E_INVALID,
                       "of the %zu samples of the VDIF frame with sample %" PRIu64
                       ", %zu are missing or before or behind the recording, "
                       "which the format vdif cannot say: `vdif_samples: 0` makes frames as short "
                       "as can be; `lossy: true` writes zeros",
                       e->spread, e->from, e->lacking);
    f->unmarked += e->lacking * e->nchannels;
    if (out->file == NULL) out->file = writer_stream(f, out->number);
    if (out->file == NULL) return e->error = f->error, e->error.status;
    if (fwrite(e->bytes, e->frame_bytes, e->threads, out->file) == e->threads) return BR_OK;
    int status = close_file(out, errno);
    e->error = f->error;
    return status;
}

static int start(struct file_writer *f)
{
    struct vdif_out *v = f->state;
    v->out = calloc(v->count, sizeof *v->out);
    if (v->out == NULL) return writer_no_memory(f, v->count * sizeof *v->out);
    for (size_t i = 0; i < v->count; i++) {
        struct vdif_file_out *out = &v->out[i];
        *out = (struct vdif_file_out){.encoder = v->like, .writer = f, .number = i};
        out->encoder.threads = v->like.threads / v->count;
        out->encoder.first = i * out->encoder.threads;
        out->encoder.sink = write_frames;
        out->encoder.owner = out;
    }
    for (size_t i = 0; i < v->count; i++) {
        if (writer_name(f, i) != BR_OK) return f->error.status;
        if (vdif_encoder_start(&v->out[i].encoder) != BR_OK)
            return f->error = v->out[i].encoder.error, f->error.status;
    }
    v->table = (struct beam_table){.stream = f->stream, .site = f->site};
    snprintf(v->table.path, sizeof v->table.path, "%s/%s_beams.csv", f->directory, f->prefix);
    return BR_OK;
}

static int put(struct file_writer *f, const struct br_frame *frame)
{
    struct vdif_out *v = f->state;
    if (beam_table_reach(&v->table, frame->first, frame->first + frame->samples, &f->error) != BR_OK)
        return f->error.status;
    for (size_t i = 0; i < v->count; i++)
        if (vdif_encoder_put(&v->out[i].encoder, frame) != BR_OK)
            return f->error = v->out[i].encoder.error, f->error.status;
    return BR_OK;
}

/* Completes all files, after a failure too. Returns the first new failure. */
static int stop(struct file_writer *f)
{
    struct vdif_out *v = f->state;
    int status = BR_OK;
    for (size_t i = 0; i < v->count && v->out != NULL; i++) {
        struct vdif_file_out *out = &v->out[i];
        int last = vdif_encoder_flush(&out->encoder);
        if (last != BR_OK && f->error.status == BR_OK) f->error = out->encoder.error;
        int closed = close_file(out, 0);
        if (status == BR_OK) status = last != BR_OK ? last : closed;
        vdif_encoder_free(&out->encoder);
    }
    free(v->out);
    v->out = NULL;
    int told = beam_table_end(&v->table, f->next, &f->error);
    return status != BR_OK ? status : told;
}

const struct writer_format vdif_files =
    WRITER_FORMAT("vdif", "vdif", vdif_out, .arrays = true, .says_missing_rows = true, .refuses = refuses,
                  .open = start, .close = stop);
