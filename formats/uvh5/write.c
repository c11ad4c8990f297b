#include "formats/uvh5/write.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int open_all(struct file_writer *w)
{
    struct uvh5_out *u = w->state;
    u->file = (struct uvh5_file){.store = {.file = -1}, .header = -1, .data = -1};
    u->layout.history = u->history;
    return BR_OK;
}

/* Completes the open file. */
static int finish(struct file_writer *w)
{
    struct uvh5_out *u = w->state;
    if (!u->open) return BR_OK;
    u->open = false;
    int why = uvh5_close(&u->file);
    if (why == 0) return BR_OK;
    if (u->file.integrations > 0)
        return br_fail(&w->error, BR_E_IO,
                       "cannot write to %s: %s; the %llu integrations before this are in it", w->path,
                       strerror(why), (unsigned long long)u->file.integrations);
    unlink(w->path);
    return br_fail(&w->error, BR_E_IO, "cannot write to %s: %s; it is removed, no integration is whole",
                   w->path, strerror(why));
}

/* With the updates that the file's data up to base sample `end` were made with. */
static void make_history(struct file_writer *w, uint64_t end)
{
    struct uvh5_out *u = w->state;
    char updates[WRITER_UPDATES] = "";
    size_t length = w->host.held(w->host.owner, u->file_first, end, updates, sizeof updates);
    snprintf(u->history, sizeof u->history, "Written by beamring: sums over nsamples samples, not means.%s%s",
             length > 0 ? " Updates: " : "", updates);
}

static int begin_file(struct file_writer *w, const struct uvh5_row *row)
{
    struct uvh5_out *u = w->state;
    int status = writer_name(w, w->files);
    if (status != BR_OK) return status;
    w->files++;
    u->file_first = row->first;
    make_history(w, row->end);
    status = uvh5_create(&u->file, &u->layout, w->path, w->overwrite, &w->error);
    u->open = status == BR_OK;
    return status;
}

static int write_row(struct file_writer *w, const struct uvh5_row *row)
{
    struct uvh5_out *u = w->state;
    int status = BR_OK;
    if (u->open && u->integrations > 0 && u->file.integrations == u->integrations) status = finish(w);
    if (status == BR_OK && !u->open) status = begin_file(w, row);
    if (status != BR_OK) return status;
    bool good = true;
    if (u->file.integrations > 0 && w->host.begun(w->host.owner, u->told_until, row->end, NULL, 0) > 0) {
        make_history(w, row->end);
        good = uvh5_set_history(&u->file, u->history);
    }
    u->told_until = row->end;
    if ((good ? uvh5_append(&u->file, &u->layout, row) : hdf5_store_commit(&u->file.store, false)) != 0)
        return finish(w); /* which says why */
    u->written++;
    return BR_OK;
}

/* Step k of a frame as the file wants it. Where an integration was cut, by the start or the end of the
 * stream, its time is that of what is there. */
static struct uvh5_row row_of(const struct br_stream *s, const struct br_frame *in, size_t k)
{
    uint64_t d = s->zone[0].downsample, begin = (in->first / d + k) * d, end = begin + d;
    if (begin < in->first) begin = in->first;
    if (end > in->first + in->samples) end = in->first + in->samples;
    double sample_s = br_stream_sample_s(s);
    size_t nbaselines = s->array.axis[2].length;
    int64_t half = llround((double)(end - begin) * sample_s * 0.5e9);
    return (struct uvh5_row){.first = begin,
                             .end = end,
                             .centre_ns = br_stream_time_ns(s, begin) + half,
                             .seconds = (double)(end - begin) * sample_s,
                             .samples = (double)d / s->zone[0].factor,
                             .v = (const int32_t *)in->data + 2 * k * s->nchannels * nbaselines,
                             .valid = in->complete ? NULL : in->valid + k * s->nchannels};
}

static int put(struct file_writer *w, const struct br_frame *in)
{
    size_t nsteps = br_time_steps(in->first, in->samples, w->stream->zone[0].downsample);
    int status = BR_OK;
    for (size_t k = 0; k < nsteps && status == BR_OK; k++) {
        struct uvh5_row row = row_of(w->stream, in, k);
        status = write_row(w, &row);
    }
    return status;
}

const struct writer_format uvh5_files =
    WRITER_FORMAT("uvh5", "uvh5", uvh5_out, .everything = true, .open = open_all, .close = finish);
