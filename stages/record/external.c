#include "stages/record/external.h"

#include "buffers/output.h"
#include "stages/common/stage/shape.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void external_loses(struct external *f, const char *format, ...)
{
    size_t used = strlen(f->losses);
    if (used > 0 && used + 2 < sizeof f->losses) used += (size_t)sprintf(f->losses + used, "; ");
    va_list args;
    va_start(args, format);
    vsnprintf(f->losses + used, sizeof f->losses - used, format, args);
    va_end(args);
}

bool external_numbers(const struct br_stream *s, double zero_mhz, double step_mhz, int32_t *id)
{
    for (size_t i = 0; i < s->nchannels; i++) {
        double number = (s->freq_mhz[i] - zero_mhz) / step_mhz, whole = nearbyint(number);
        if (!(fabs(number - whole) < 1e-6) || whole < 0 || whole > 1 << 20) return false;
        id[i] = (int32_t)whole;
        for (size_t k = 0; k < i; k++)
            if (id[k] == id[i]) return false;
    }
    return true;
}

int external_failed(struct br_stage *stage, const struct external *f, const char *what)
{
    return br_stage_fail(stage, BR_E_IO, "cannot %s %s: %s", what, f->path, strerror(errno));
}

const char *external_path(struct external *f, uint64_t number)
{
    snprintf(f->path, sizeof f->path, "%s/%s_%07llu.%s", f->directory, f->prefix, (unsigned long long)number,
             f->format->suffix);
    return f->path;
}

int external_name(struct br_stage *stage, struct external *f, uint64_t number)
{
    struct br_error error = {0};
    external_path(f, number);
    if (br_output_check(f->path, &error) != BR_OK) return br_stage_fail(stage, BR_E_IO, "%s", error.text);
    if (!f->overwrite && access(f->path, F_OK) == 0)
        return br_stage_fail(stage, BR_E_IO, "%s is there already; give another prefix, or `overwrite: true`",
                             f->path);
    f->files++;
    return BR_OK;
}

int external_configure(struct br_stage *stage, struct external *f)
{
    const struct br_stream *s = br_stage_input(stage, 0);
    char want[96], start[512];
    snprintf(want, sizeof want, "E[time][freq][pol][dish] in int4x2%s for the format %s",
             f->format->wide ? " or int8x2" : "", f->format->name);
    unsigned types = 1u << BR_INT4X2 | (f->format->wide ? 1u << BR_INT8X2 : 0);
    int status = f->format->arrays ? BR_OK : br_expect_input(stage, types, "time,freq,pol,dish", want);
    if (status != BR_OK) return status;
    bool plain = !br_stream_is_zoned(s) && s->zone[0].downsample == 1 && s->zone[0].factor == 1;
    if (!plain && !f->format->arrays)
        return br_stage_fail(
            stage, BR_E_INVALID,
            "its input is upchannelized or downsampled; the format %s has the electric field as the "
            "F-engine gives it",
            f->format->name);
    if (strlen(f->directory) + strlen(f->prefix) + 32 > sizeof f->path)
        return br_stage_fail_at(stage, "directory", "the name is too long");
    snprintf(start, sizeof start, "%s_", f->prefix);
    snprintf(want, sizeof want, ".%s", f->format->suffix);
    status = br_stage_writes_files(stage, "prefix", f->directory, start, want);
    if (status != BR_OK) return status;
    f->nchannels = s->nchannels;
    if (br_array_axis(&s->array, "dish") >= 0) {
        f->npol = br_array_length(&s->array, "pol");
        f->ndish = br_array_length(&s->array, "dish");
        f->cell = f->npol * f->ndish * br_dtype_bits(s->array.dtype) / 8;
    }
    if (!f->format->says_sideband && s->sideband != BR_SIDEBAND_UNKNOWN)
        br_stage_note(stage,
                      "files of the format %s do not say which sideband they hold; who reads them must be "
                      "told: `stream: {sideband: %s}`",
                      f->format->name, br_sideband_name(s->sideband));
    f->id = br_stage_alloc(stage, s->nchannels * sizeof *f->id);
    status = f->format->configure(stage, f);
    if (status != BR_OK || f->losses[0] == '\0') return status;
    if (!f->lossy)
        return br_stage_fail_at(stage, "format",
                                "in the format %s would be lost: %s; `lossy: true` writes it nevertheless",
                                f->format->name, f->losses);
    br_stage_warn(stage, "in the format %s is lost: %s", f->format->name, f->losses);
    return BR_OK;
}

int external_start(struct br_stage *stage, struct external *f)
{
    const struct br_stream *s = br_stage_input(stage, 0);
    f->bytes_room = 2 * br_stream_max_bytes(s); /* int4x2 becomes int8x2 in GUPPI */
    f->bytes = malloc(f->bytes_room);
    if (f->bytes == NULL) return br_no_memory(stage, f->bytes_room);
    return f->format->start(stage, f);
}

bool external_row_is_missing(const struct external *f, const struct br_frame *frame, size_t row)
{
    if (frame->complete) return false;
    for (size_t c = 0; c < f->nchannels; c++)
        if (frame->valid[row * f->nchannels + c] != BR_MISSING) return false;
    return true;
}

/* Cells whose validity the format cannot say: all that are not complete, but for missing ones where it has a
 * code for them. */
static uint64_t count_unmarked(const struct external *f, const struct br_stream *s,
                               const struct br_frame *frame, uint64_t *where)
{
    uint64_t cells = br_frame_cells(s, frame), n = 0;
    for (uint64_t i = 0; i < cells; i++) {
        if (f->format->says_missing_rows && i % s->nchannels == 0 &&
            external_row_is_missing(f, frame, (size_t)(i / s->nchannels))) {
            i += s->nchannels - 1;
            continue;
        }
        if (frame->valid[i] == BR_VALID || (f->format->says_missing && frame->valid[i] == BR_MISSING))
            continue;
        bool rows = br_array_axis(&s->array, "time") == 0; /* else it is somewhere in the frame */
        if (n++ == 0) *where = frame->first + (rows ? i / s->nchannels * s->zone[0].downsample : 0);
    }
    return n;
}

int external_process(struct br_stage *stage, struct external *f, const struct br_frame *frame)
{
    const struct br_stream *s = br_stage_input(stage, 0);
    if (!f->started) f->first = frame->first;
    f->started = true;
    f->samples += frame->samples;
    /* what is missing as a whole is left out, and the times of the others say so */
    if (f->format->only_receipts) {
        f->frames++;
        return f->format->write(stage, f, frame);
    }
    if (!frame->complete && frame->missing == br_frame_cells(s, frame)) return BR_OK;
    uint64_t where = 0, unmarked = frame->complete ? 0 : count_unmarked(f, s, frame, &where);
    if (unmarked > 0 && !f->lossy)
        return br_stage_fail(
            stage, BR_E_INVALID,
            "sample %llu is missing or flagged in some channels; the format %s cannot say so: `lossy: "
            "true` writes what is there (zeros where it is missing)",
            (unsigned long long)where, f->format->name);
    f->unmarked += unmarked;
    f->frames++;
    uint64_t changed = f->changed;
    int status = f->format->write(stage, f, frame);
    if (status == BR_OK && f->changed > changed && !f->lossy)
        return br_stage_fail(
            stage, BR_E_INVALID,
            "a sample near %llu is -8 - 8i, whose code means \"missing\" in the format %s: `lossy: true` "
            "writes -7 - 8i%s",
            (unsigned long long)frame->first, f->format->name,
            f->chime ? ", `coding: int4p4` what it is" : "");
    return status;
}

int external_stop(struct br_stage *stage, struct external *f)
{
    int status = f->format->stop(stage, f);
    free(f->bytes);
    f->bytes = NULL;
    if (f->unmarked > 0)
        br_stage_warn(stage,
                      "%llu samples of a channel were missing or flagged, which the format %s cannot say",
                      (unsigned long long)f->unmarked, f->format->name);
    if (f->changed > 0)
        br_stage_warn(stage, "%llu values of -8 - 8i were written as -7 - 8i",
                      (unsigned long long)f->changed);
    if (f->files > 0)
        br_stage_note(stage, "%llu samples in %llu file%s %s/%s_*.%s", (unsigned long long)f->samples,
                      (unsigned long long)f->files, f->files == 1 ? "," : "s,", f->directory, f->prefix,
                      f->format->suffix);
    else if (f->started)
        br_stage_warn(stage, "no valid sample came, so there is no file");
    return status;
}
