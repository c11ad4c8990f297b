#include "formats/writer.h"

#include "buffers/output.h"
#include "formats/common/axes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const struct writer_format *writer_format_of(const char *name)
{
    static const struct writer_format *const formats[] = {&dada_files,  &kotekan_files, &guppi_files,
                                                          &chime_files, &vdif_files,    &sources_files};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(name, formats[i]->name) == 0) return formats[i];
    return NULL;
}

/* --- for the formats ----------------------------------------------------------------------------- */

void writer_note(struct file_writer *w, const char *format, ...)
{
    char text[BR_ERROR_LENGTH];
    if (w->host.note == NULL) return;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    w->host.note(w->host.owner, text);
}

int writer_failed(struct file_writer *w, const char *what, const char *path, int why)
{
    return br_fail(&w->error, why == ECANCELED ? BR_E_STOPPED : BR_E_IO, "cannot %s %s: %s", what, path,
                   strerror(why));
}

int writer_no_memory(struct file_writer *w, size_t bytes)
{
    return br_fail(&w->error, BR_E_NO_MEMORY, "not enough memory: %.1f MiB needed", (double)bytes / 1048576);
}

const char *writer_path(struct file_writer *w, uint64_t number)
{
    snprintf(w->path, sizeof w->path, "%s/%s_%0*llu.%s", w->directory, w->prefix,
             w->format->everything ? 6 : 7, (unsigned long long)number, w->format->suffix);
    return w->path;
}

int writer_name(struct file_writer *w, uint64_t number)
{
    if (br_output_check(writer_path(w, number), &w->error) != BR_OK) return BR_E_IO;
    if (w->overwrite || access(w->path, F_OK) != 0) return BR_OK;
    return br_fail(&w->error, BR_E_IO, "%s exists already; choose another prefix, or set `overwrite: true`",
                   w->path);
}

FILE *writer_stream(struct file_writer *w, uint64_t number)
{
    if (writer_name(w, number) != BR_OK) return NULL;
    w->files++;
    return br_output_stream(w->path, w->overwrite, &w->error);
}

int writer_end_stream(struct file_writer *w, FILE *file, uint64_t unit, const char *blocks, int why)
{
    struct stat info;
    if (why == 0 && fflush(file) != 0) why = errno;
    if (why == 0) return fclose(file) == 0 ? BR_OK : writer_failed(w, "complete", w->path, errno);
    __fpurge(file); /* or closing it would write on */
    uint64_t whole = fstat(fileno(file), &info) == 0 ? (uint64_t)info.st_size / unit : 0;
    bool cut = ftruncate(fileno(file), (off_t)(whole * unit)) == 0;
    fclose(file);
    if (whole == 0) unlink(w->path);
    if (whole == 0)
        return br_fail(&w->error, BR_E_IO,
                       "cannot write %s: %s; it is removed, and the %llu files before it are whole", w->path,
                       strerror(why), (unsigned long long)w->files - 1);
    return br_fail(&w->error, BR_E_IO, "cannot write %s: %s; its first %llu %s are whole%s", w->path,
                   strerror(why), (unsigned long long)whole, blocks, cut ? ", and nothing follows them" : "");
}

void writer_to_disk(const struct file_writer *w)
{
    if (w->host.disk != NULL) w->host.disk(w->host.disk_owner, true);
}

int writer_from_disk(const struct file_writer *w, int why)
{
    bool wanted = w->host.disk == NULL || w->host.disk(w->host.disk_owner, false);
    return wanted || why != 0 ? why : ECANCELED;
}

bool writer_room(struct file_writer *w, size_t bytes)
{
    if (bytes <= w->bytes_room) return true;
    uint8_t *grown = realloc(w->bytes, bytes);
    if (grown == NULL) {
        writer_no_memory(w, bytes);
        return false;
    }
    w->bytes = grown;
    w->bytes_room = bytes;
    return true;
}

/* Gives the file its length: from a file system that cannot reserve room, without. 0, or an errno. */
static int lengthen(int fd, off_t bytes)
{
    if (fallocate(fd, 0, 0, bytes) == 0) return 0;
    if (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL) return errno;
    return ftruncate(fd, bytes) == 0 ? 0 : errno; /* it shows when it is full */
}

int writer_reserve(struct file_writer *w, uint64_t bytes)
{
    const struct writer_window *part = w->window;
    writer_to_disk(w);
    int fd = br_output_open(part->path, true, &w->error);
    w->files += fd >= 0;
    int why = writer_from_disk(w, fd >= 0 ? lengthen(fd, (off_t)bytes) : 0);
    if (why == 0) return fd;
    if (why == ECANCELED)
        writer_failed(w, "make", part->path, why);
    else
        br_fail(&w->error, BR_E_IO, "no room for the %llu bytes of %s: %s", (unsigned long long)bytes,
                part->name, strerror(why));
    if (fd >= 0) close(fd);
    return -1;
}

/* --- the four calls ------------------------------------------------------------------------------ */

int writer_takes(const struct writer_format *format, const struct br_stream *s, struct br_error *error)
{
    char text[160];
    if (format->everything || format->arrays) return BR_OK;
    bool field = axes_are(&s->array, "time,freq,pol,dish"), wide = s->array.dtype == BR_INT8X2;
    if (!field || (s->array.dtype != BR_INT4X2 && !(wide && format->wide)))
        return br_fail(error, BR_E_INVALID,
                       "its input is %s; it needs E[time][freq][pol][dish] in int4x2%s for the format %s%s",
                       br_array_format(&s->array, text, sizeof text), format->wide ? " or int8x2" : "",
                       format->name,
                       field && wide ? " (the stage requantize makes 4 + 4 bits of 8 + 8)" : "");
    if (br_stream_is_zoned(s) || s->zone[0].downsample != 1 || s->zone[0].factor != 1)
        return br_fail(error, BR_E_INVALID,
                       "its input is upchannelized or downsampled; the format %s has the electric field as "
                       "the F-engine gives it",
                       format->name);
    return BR_OK;
}

int writer_refuses(struct file_writer *w)
{
    const struct br_stream *s = w->stream;
    int status = writer_takes(w->format, s, &w->error);
    if (status != BR_OK) return status;
    w->nchannels = s->nchannels;
    if (br_array_axis(&s->array, "dish") >= 0) {
        w->npol = br_array_length(&s->array, "pol");
        w->ndish = br_array_length(&s->array, "dish");
        w->cell = w->npol * w->ndish * br_dtype_bits(s->array.dtype) / 8;
    }
    if (!w->format->everything && !w->format->says_sideband && s->sideband != BR_SIDEBAND_UNKNOWN)
        writer_note(
            w,
            "files of the format %s do not state their sideband; tell their reader: `stream: {sideband: %s}`",
            w->format->name, br_sideband_name(s->sideband));
    const struct br_telescope *t = s->telescope;
    if (!w->format->everything && w->ndish > 0 && t != NULL && t->position != NULL)
        writer_note(w,
                    "files of the format %s do not state the places of the dishes; give their reader the "
                    "`telescope:` of this pipeline",
                    w->format->name);
    if (w->format->refuses != NULL) status = w->format->refuses(w);
    if (status != BR_OK || w->losses[0] == '\0' || w->lossy) return status;
    return writer_refuse(w, "format", "the format %s would lose: %s; `lossy: true` writes the files anyway",
                         w->format->name, w->losses + 2);
}

int writer_open(struct file_writer *w)
{
    /* int4x2 becomes int8x2 in GUPPI */
    if (!w->format->everything && !writer_room(w, 2 * br_stream_max_bytes(w->stream))) return w->error.status;
    w->opened = true;
    if (w->window != NULL) w->next = w->window->first;
    return w->format->open != NULL ? w->format->open(w) : BR_OK;
}

/* Whether no channel of a time step has anything; channels are `of_freq` bytes apart. */
static bool step_is_missing(const uint8_t *valid, size_t nchannels, size_t of_freq)
{
    for (size_t c = 0; c < nchannels; c++)
        if (valid[c * of_freq] != BR_MISSING) return false;
    return true;
}

/* Cells whose validity the format cannot say: all that are not complete, but for missing ones where it has a
 * code for them. */
static uint64_t count_unmarked(const struct file_writer *w, const struct br_frame *frame, uint64_t *where)
{
    const struct br_stream *s = w->stream;
    size_t F = s->nchannels, T = br_frame_cells(s, frame) / F;
    bool rows = br_array_axis(&s->array, "time") < br_array_axis(&s->array, "freq");
    size_t of_time = rows ? F : 1, of_freq = rows ? 1 : T;
    uint64_t n = 0;
    for (size_t t = 0; t < T; t++) {
        const uint8_t *valid = frame->valid + t * of_time;
        if (w->format->says_missing_rows && step_is_missing(valid, F, of_freq)) continue;
        for (size_t c = 0; c < F; c++) {
            uint8_t share = valid[c * of_freq];
            if (share == BR_VALID || (w->format->says_missing && share == BR_MISSING)) continue;
            if (n++ == 0) *where = frame->first + t * s->zone[0].downsample;
        }
    }
    return n;
}

/* A frame of a format that cannot say everything. */
static int put_checked(struct file_writer *w, const struct br_frame *frame)
{
    /* the times of the others say what is missing as a whole */
    if (!frame->complete && frame->missing == br_frame_cells(w->stream, frame)) return BR_OK;
    if (w->format->only_receipts) {
        w->frames++;
        return w->format->put(w, frame);
    }
    uint64_t where = 0, unmarked = frame->complete ? 0 : count_unmarked(w, frame, &where);
    if (unmarked > 0 && !w->lossy)
        return br_fail(&w->error, BR_E_INVALID,
                       "sample %llu is missing or flagged in some channels; the format %s cannot say so: "
                       "`lossy: true` writes what is there (zeros where it is missing)",
                       (unsigned long long)where, w->format->name);
    w->unmarked += unmarked;
    w->frames++;
    uint64_t changed = w->changed;
    int status = w->format->put(w, frame);
    if (status == BR_OK && w->changed > changed && !w->lossy)
        return br_fail(&w->error, BR_E_INVALID,
                       "a sample near %llu is -8 - 8i, whose code means \"missing\" in the format %s: "
                       "`lossy: true` writes -7 - 8i%s",
                       (unsigned long long)frame->first, w->format->name,
                       w->int4p4chime ? ", `coding: int4p4` what it is" : "");
    return status;
}

int writer_put(struct file_writer *w, const struct br_frame *frame)
{
    if (!w->started) w->first = frame->first;
    w->started = true;
    w->samples += frame->samples;
    if (w->window != NULL) w->lacking += frame->first - w->next;
    w->next = frame->first + frame->samples;
    return w->format->everything ? w->format->put(w, frame) : put_checked(w, frame);
}

int writer_close(struct file_writer *w)
{
    if (!w->opened) return BR_OK;
    if (w->window != NULL && w->error.status == BR_OK) w->lacking += w->window->end - w->next;
    int status = w->format->close != NULL ? w->format->close(w) : BR_OK;
    free(w->bytes);
    w->bytes = NULL;
    return status;
}
