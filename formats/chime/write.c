/* CHIME baseband files: one for each channel; what is never written, or missing, is zero.
 *
 * The data go to the disk as plain bytes; HDF5 describes them in memory, so that it waits for no disk. A
 * recording has all channels of a frame or none. The bytes before its data are written when a file begins,
 * whenever it has become twice as long, so that a run that is killed leaves at least half, and at the end. A
 * window (writer.h) is one channel of known length: it is described at the end alone. */
#include "buffers/output.h"
#include "formats/chime/chime_attributes.h"
#include "formats/common/coding.h"
#include "formats/common/fileio.h"
#include "formats/hdf5/hdf5_types.h"
#include "formats/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct chime_out {
    int32_t *id;              /* [nchannels] channel numbers */
    int *fd;                  /* [nchannels] files; -1: not begun */
    uint64_t before;          /* bytes before their data */
    uint64_t first;           /* base sample of row 0 */
    uint64_t rows, described; /* that all of them have; that their descriptions spoke of */
};

/* The channels' numbers by frequency: false when not all are whole and distinct. */
static bool number(const struct br_stream *s, int32_t *id)
{
    for (size_t i = 0; i < s->nchannels; i++) {
        double n = (s->freq_mhz[i] - CHIME_TOP_MHZ) / CHIME_STEP_MHZ, whole = nearbyint(n);
        if (!(fabs(n - whole) < 1e-6) || whole < 0 || whole > 1 << 20) return false;
        id[i] = (int32_t)whole;
        for (size_t k = 0; k < i; k++)
            if (id[k] == id[i]) return false;
    }
    return true;
}

/* Numbers them as they lie where their frequencies give none; false then. */
static bool number_all(struct file_writer *w, int32_t *id)
{
    if (w->window != NULL) id[0] = (int32_t)w->window->number;
    if (w->window != NULL || number(w->stream, id)) return true;
    for (size_t i = 0; i < w->nchannels; i++) id[i] = (int32_t)i;
    return false;
}

static int refuses(struct file_writer *w)
{
    const struct br_stream *s = w->stream;
    int32_t *id = malloc(s->nchannels * sizeof *id);
    if (id == NULL) return writer_no_memory(w, s->nchannels * sizeof *id);
    bool numbered = number_all(w, id);
    free(id);
    if (w->window != NULL) return BR_OK; /* a dump is written as well as it can be */
    if (!numbered)
        writer_loses(
            w, "the channel numbers (the frequencies are not 800 MHz less a whole number of 0.390625 MHz)");
    for (size_t i = 0; i < s->nchannels; i++)
        if (fabs(s->width_mhz[i] / CHIME_STEP_MHZ + 1) > 1e-9) {
            writer_loses(w, "the channel width %.9g MHz (a reader takes 0.390625)", s->width_mhz[i]);
            break;
        }
    if (s->sample_ns.den != 1)
        writer_loses(w, "the exact sample time %lld/%lld ns", (long long)s->sample_ns.num,
                     (long long)s->sample_ns.den);
    if (s->sideband == BR_SIDEBAND_UNKNOWN)
        writer_note(w, "the sideband of the channels is not known; readers of CHIME's files assume lower. "
                       "State it: `stream: {sideband: upper}` or `lower`");
    writer_note(w,
                "CHIME's files list inputs only; tell their reader that these are %zu polarisations of %zu "
                "dishes: npol: %zu",
                w->npol, w->ndish, w->npol);
    return BR_OK;
}

/* --- what stands around the data ------------------------------------------------------------------ */

/* The description of a channel's file. */
struct description {
    const struct file_writer *w;
    size_t channel;
};

/* Which of the stream's inputs stand in the file of a window. */
static bool put_inputs(const struct file_writer *w, hid_t file)
{
    const struct writer_window *part = w->window;
    if (part == NULL) return chime_put_inputs(file, w->cell, NULL);
    uint32_t *input = malloc(w->cell * sizeof *input);
    for (size_t i = 0; input != NULL && i < w->cell; i++) {
        size_t pol = i / w->ndish, dish = i % w->ndish;
        if (part->ndishes > 0) dish = part->dish[dish];
        input[i] = (uint32_t)(pol * part->all_dishes + dish);
    }
    bool good = input != NULL && chime_put_inputs(file, w->cell, input);
    free(input);
    return good;
}

/* The updates that it was made with, in as many bytes whatever they are: the data must not move. */
static bool put_updates(const struct file_writer *w, hid_t file)
{
    char text[WRITER_UPDATES] = "";
    if (w->host.updates_room == 0) return true;
    w->host.held(w->host.owner, w->window->first, w->window->end, text, sizeof text);
    return hdf5_put_text(file, "updates", text, sizeof text);
}

static bool put_direction(const struct writer_direction *d, hid_t file)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    bool good =
        !d->known || (hdf5_put_attribute(file, "event_azimuth_deg", H5T_NATIVE_DOUBLE, &d->azimuth_deg) &&
                      hdf5_put_attribute(file, "event_altitude_deg", H5T_NATIVE_DOUBLE, &d->altitude_deg) &&
                      hdf5_put_attribute(file, "event_ra_deg", H5T_NATIVE_DOUBLE, &d->ra_deg) &&
                      hdf5_put_attribute(file, "event_dec_deg", H5T_NATIVE_DOUBLE, &d->dec_deg));
    if (good && d->name[0] != '\0')
        good = H5Tset_size(type, strlen(d->name)) >= 0 &&
               hdf5_put_attribute(file, "event_source", type, d->name);
    H5Tclose(type);
    return good;
}

static bool put_event(const struct file_writer *w, hid_t file)
{
    const struct writer_window *part = w->window;
    return part == NULL || (hdf5_put_attribute(file, "event_id", H5T_NATIVE_UINT64, &part->event) &&
                            hdf5_put_attribute(file, "event_dm", H5T_NATIVE_DOUBLE, &part->dm) &&
                            hdf5_put_attribute(file, "event_dm_error", H5T_NATIVE_DOUBLE, &part->dm_error) &&
                            hdf5_put_attribute(file, "missing_samples", H5T_NATIVE_UINT64, &w->lacking) &&
                            put_direction(&part->direction, file) && put_updates(w, file));
}

static bool put_all(hid_t file, const void *arg)
{
    const struct description *d = arg;
    const struct chime_out *c = d->w->state;
    return chime_put_attributes(file, d->w->stream, d->channel, c->id[d->channel], c->first) &&
           put_inputs(d->w, file) && put_event(d->w, file);
}

/* Describes a channel of `rows` rows. False where HDF5 fails, or the data are elsewhere already. The memory
 * is to be freed in either case. */
static bool describe(const struct file_writer *w, struct chime_around *around, size_t channel, uint64_t rows)
{
    struct chime_out *c = w->state;
    bool good = chime_describe(around, rows, w->cell, put_all, &(const struct description){w, channel});
    if (good && c->before == 0) c->before = around->head_bytes;
    return good && c->before == around->head_bytes;
}

/* Writes what stands before and behind `rows` rows of a channel, and cuts off what else there is. 0, or an
 * errno. */
static int finish(const struct file_writer *w, size_t channel, uint64_t rows)
{
    const struct chime_out *c = w->state;
    struct chime_around around;
    int fd = c->fd[channel], why = describe(w, &around, channel, rows) ? 0 : ENOMEM;
    uint64_t end = c->before + rows * w->cell;
    writer_to_disk(w);
    if (why == 0 && ftruncate(fd, (off_t)end) != 0) why = errno;
    if (why == 0) why = fileio_write(fd, around.tail, around.tail_bytes, end);
    if (why == 0) why = fileio_write(fd, around.head, around.head_bytes, 0);
    why = writer_from_disk(w, why);
    free(around.head);
    free(around.tail);
    return why;
}

/* --- files ---------------------------------------------------------------------------------------- */

static int open_all(struct file_writer *w)
{
    struct chime_out *c = w->state;
    c->id = malloc(w->nchannels * sizeof *c->id);
    c->fd = malloc(w->nchannels * sizeof *c->fd);
    if (c->id == NULL || c->fd == NULL) return writer_no_memory(w, w->nchannels * sizeof *c->fd);
    number_all(w, c->id);
    for (size_t i = 0; i < w->nchannels; i++) c->fd[i] = -1;
    int status = BR_OK;
    if (w->window == NULL) {
        for (size_t i = 0; i < w->nchannels && status == BR_OK; i++)
            status = writer_name(w, (uint64_t)c->id[i]);
        return status;
    }
    struct chime_around around;
    c->first = w->window->first;
    c->rows = w->window->end - c->first;
    bool good = describe(w, &around, 0, c->rows);
    free(around.head);
    free(around.tail);
    if (!good) return br_fail(&w->error, BR_E_IO, "HDF5 cannot describe %s", w->window->name);
    c->fd[0] = writer_reserve(w, c->before + c->rows * w->cell);
    return c->fd[0] >= 0 ? BR_OK : w->error.status;
}

static int open_channel(struct file_writer *w, size_t channel)
{
    struct chime_out *c = w->state;
    int status = writer_name(w, (uint64_t)c->id[channel]);
    if (status != BR_OK) return status;
    w->files++;
    c->fd[channel] = br_output_open(w->path, w->overwrite, &w->error);
    return c->fd[channel] >= 0 ? BR_OK : w->error.status;
}

/* A channel's rows in the coding chime: zero where it is missing. */
static void encode(struct file_writer *w, const struct br_frame *frame, size_t channel, uint8_t *out)
{
    size_t steps = w->nchannels == 1 && frame->complete ? frame->samples : 1, bytes = steps * w->cell;
    for (size_t t = 0; t < frame->samples; t += steps, out += bytes) {
        size_t at = t * w->nchannels + channel;
        if (!frame->complete && frame->valid[at] == BR_MISSING) {
            memset(out, 0, bytes);
            continue;
        }
        coding_encode(CODING_CHIME, (const uint8_t *)frame->data + at * w->cell, out, bytes);
        uint8_t *end = out + bytes; /* 0 would mean missing: -7 - 8i */
        for (uint8_t *byte = out; (byte = memchr(byte, 0, (size_t)(end - byte))) != NULL; w->changed++)
            *byte++ = 0x10;
    }
}

/* The frame's rows of a channel behind those that are there. 0, or an errno. */
static int put_channel(struct file_writer *w, const struct br_frame *frame, size_t i)
{
    struct chime_out *c = w->state;
    uint64_t row = frame->first - c->first;
    int why = w->window == NULL && row >= 2 * c->described ? finish(w, i, c->rows > 0 ? c->rows : 1) : 0;
    if (why != 0) return why;
    encode(w, frame, i, w->bytes);
    writer_to_disk(w);
    why = fileio_write(c->fd[i], w->bytes, frame->samples * w->cell, c->before + row * w->cell);
    return writer_from_disk(w, why);
}

static int put(struct file_writer *w, const struct br_frame *frame)
{
    struct chime_out *c = w->state;
    if (w->window == NULL) c->first = w->first;
    uint64_t row = frame->first - c->first;
    if (!writer_room(w, frame->samples * w->cell)) return w->error.status;
    for (size_t i = 0; i < w->nchannels; i++) {
        int status = c->fd[i] < 0 ? open_channel(w, i) : BR_OK;
        if (status != BR_OK) return status;
        int why = put_channel(w, frame, i);
        if (why != 0 && w->window != NULL) return writer_failed(w, "write", w->window->path, why);
        if (why != 0)
            return br_fail(
                &w->error, BR_E_IO,
                "cannot write channel %d to %s/%s_*.h5: %s; the %llu samples before this are there", c->id[i],
                w->directory, w->prefix, strerror(why), (unsigned long long)c->rows);
    }
    if (w->window != NULL) return BR_OK;
    if (row >= 2 * c->described) c->described = c->rows > 0 ? c->rows : 1;
    c->rows = row + frame->samples;
    return BR_OK;
}

/* Completes the files, with the rows that all of them have. One that has none goes. */
static int close_all(struct file_writer *w)
{
    struct chime_out *c = w->state;
    int status = BR_OK;
    for (size_t i = 0; c->fd != NULL && i < w->nchannels; i++) {
        if (c->fd[i] < 0) continue;
        bool wanted = w->window == NULL || w->error.status == BR_OK;
        int why = c->rows > 0 && wanted ? finish(w, i, c->rows) : 0;
        if (close(c->fd[i]) != 0 && why == 0) why = errno;
        if (c->rows == 0 && w->window == NULL) unlink(writer_path(w, (uint64_t)c->id[i]));
        if (why != 0 && w->window != NULL) status = writer_failed(w, "complete", w->window->path, why);
        if (why != 0 && status == BR_OK)
            status = br_fail(&w->error, BR_E_IO, "cannot complete channel %d of %s/%s_*.h5: %s", c->id[i],
                             w->directory, w->prefix, strerror(why));
    }
    free(c->fd);
    free(c->id);
    c->fd = NULL;
    c->id = NULL;
    return status;
}

const struct writer_format chime_files =
    WRITER_FORMAT("chime", "h5", chime_out, .says_missing = true, .says_sideband = true, .refuses = refuses,
                  .open = open_all, .close = close_all);
