/* info.c - facts of kotekan's raw frames. */
#include "buffers/regular_file.h"
#include "formats/kotekan/kotekan_arrays.h"
#include "formats/kotekan/kotekan_raw.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

static void print_channels(struct caller *caller, const struct chord_metadata *m)
{
    char text[100] = "";
    size_t used = 0;
    for (int i = 0; i < m->nfreq && used + 16 < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, i > 0 ? " %d" : "%d", m->coarse_freq[i]);
    if (m->nfreq > 0)
        caller_fact(caller, "channels", "%d: numbers %s%s", m->nfreq, text,
                    used + 16 >= sizeof text ? " ..." : "");
    else
        caller_fact(caller, "channels", "not in the file");
    if (m->nfreq > 0 && m->upchan_factor[0] > 1)
        caller_fact(caller, "", "upchannelized by %d", m->upchan_factor[0]);
}

static void print_frame(struct caller *caller, const struct kotekan_frame *frame, const char *path)
{
    const struct chord_metadata *m = &frame->metadata;
    char shape[CHORD_MAX_DIMS * (CHORD_NAME + 16)] = "";
    size_t used = 0;
    for (int i = 0; i < m->dims; i++)
        used += (size_t)snprintf(shape + used, sizeof shape - used, "[%s %d]", m->dim_name[i], m->dim[i]);
    caller_fact(caller, "array", "%s, %s %s", m->name[0] != '\0' ? m->name : "without name",
                chord_type_name(m->type), shape);
    struct kotekan_array array = {0};
    struct kotekan_field field;
    struct br_error why = {0}, error = {0};
    uint64_t first = 0;
    uint32_t downsample = 1;
    int timed = chord_metadata_first(m, path, &first, &downsample, &error);
    if (kotekan_raw_field(m, path, &field, &why) == BR_OK) {
        caller_fact(caller, "holds", "the electric field%s", field.chime ? ", coding chime" : "");
    } else if (why = (struct br_error){0}, kotekan_array_describe(&array, m, path, &why) == BR_OK) {
        caller_fact(caller, "holds", "%s%s", array.what, array.chime ? ", coding chime" : "");
        timed = BR_OK;
        first = array.first;
        downsample = array.downsample;
    } else
        caller_fact(caller, "holds", "nothing that can be replayed: %s", why.text);
    print_channels(caller, m);
    caller_sideband(caller, BR_SIDEBAND_UNKNOWN);
    if (timed == BR_OK)
        caller_fact(caller, "first sample", "%" PRIu64 "; %u samples of the F-engine in a time step", first,
                    downsample);
    else
        caller_fact(caller, "first sample", "unknown: %s", error.text);
    caller_fact(caller, "times", "not in the file: give `stream: {sample_ns: ..., epoch_ns: ...}`");
}

int kotekan_info(struct caller *caller, const char *path)
{
    uint64_t size = 0, at = 0, frames = 0;
    struct br_error error = {0};
    int fd = br_open_regular(path, 0, &size, &error), status = BR_OK;
    if (fd < 0) return caller_fail(caller, BR_E_IO, "%s", error.text);
    struct kotekan_frame *frame = caller_alloc(caller, sizeof *frame);
    while (status == BR_OK && (at < size || frames == 0)) {
        status = kotekan_raw_read(frame, fd, path, at, size, &error);
        if (status != BR_OK) break;
        if (frames++ == 0) {
            caller_fact(caller, NULL, "kotekan raw frames");
            print_frame(caller, frame, path);
        }
        at = frame->offset + frame->bytes;
    }
    close(fd);
    if (frames > 0) {
        caller_fact(caller, "frames", "%" PRIu64 " of %" PRIu64 " bytes", frames, frame->bytes);
        if (status == BR_OK && frame->there < frame->bytes)
            caller_fact(caller, "truncated", "the last frame has %" PRIu64 " of %" PRIu64 " bytes",
                        frame->there, frame->bytes);
    }
    return status == BR_OK ? BR_OK : caller_fail(caller, status, "%s", error.text);
}
