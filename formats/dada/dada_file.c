/* dada_file.c - one file of a DADA recording: its header, its length, its gaps. */
#include "formats/dada/dada_reader.h"

#include <math.h>

int dada_describe(struct caller *caller, const char *path, const struct br_stream_hints *hints,
                  const char *coding, struct recording *recording, uint64_t *file_bytes,
                  struct br_error *error)
{
    struct dada_header header;
    int status = dada_read(&header, path, file_bytes, error);
    if (status != BR_OK) return status;
    struct recording_memory memory = {caller->alloc, caller->owner};
    status = recording_describe(recording, &header, hints, caller->telescope, coding, memory, error);
    dada_free(&header);
    return status;
}

/* Bytes of the data of a file of `bytes` bytes: those behind FILE_SIZE are left out, with a warning. */
static int find_payload(struct caller *caller, const struct recording *recording, const char *path,
                        uint64_t bytes, uint64_t *payload)
{
    struct br_error error = {0};
    uint64_t behind;
    if (recording_payload(recording, path, bytes, payload, &behind, &error) != BR_OK)
        return caller_refuse(caller, "%s", error.text);
    if (behind > 0)
        caller_warn(caller,
                    "%s has %llu bytes behind the %llu of data that its FILE_SIZE announces; they are "
                    "left out",
                    path, (unsigned long long)behind, (unsigned long long)*payload);
    return BR_OK;
}

/* The pipeline's `telescope:` may correct the places of a recording, but not unnoticed. */
static void compare_places(struct caller *caller, const char *path, const struct br_telescope *holds,
                           const struct br_telescope *said)
{
    if (said == NULL || holds == said || holds->ndishes != said->ndishes) return;
    for (size_t d = 0; d < said->ndishes; d++) {
        const double *a = said->position[d], *b = holds->position[d];
        if (hypot(hypot(a[0] - b[0], a[1] - b[1]), a[2] - b[2]) < 1e-3) continue;
        caller_warn(
            caller,
            "%s says that dish %zu is %.9g m east, %.9g m north and %.9g m up, `telescope:` says %.9g, "
            "%.9g and %.9g; `telescope:` holds",
            path, d, a[0], a[1], a[2], b[0], b[1], b[2]);
        return;
    }
}

int dada_describe_file(struct caller *caller, const char *path, const struct br_stream_hints *hints,
                       const char *coding, struct dada_file *file)
{
    struct br_error error = {0};
    struct recording *r = &file->recording;
    *file = (struct dada_file){0};
    if (dada_describe(caller, path, hints, coding, r, &file->bytes, &error) != BR_OK)
        return caller_refuse(caller, "%s", error.text);
    compare_places(caller, path, r->stream.telescope, r->array);
    int status = find_payload(caller, r, path, file->bytes, &file->payload);
    if (status != BR_OK) return status;
    file->samples = recording_samples(r, file->payload, &file->left);
    file->first = r->first;
    if (file->samples < r->samples || file->payload < r->announced)
        caller_warn(caller,
                    "%s is truncated: it holds %llu of the %llu bytes of data that its header announces; the "
                    "%llu whole samples are replayed",
                    path, (unsigned long long)file->payload,
                    (unsigned long long)(r->announced > file->payload
                                             ? r->announced
                                             : recording_payload_bytes(&r->stream, r->first, r->samples)),
                    (unsigned long long)file->samples);
    else if (file->left > 0)
        caller_warn(
            caller,
            "%s is truncated: its last %llu bytes are not a whole sample and are left out; its %llu whole "
            "samples are replayed",
            path, (unsigned long long)file->left, (unsigned long long)file->samples);
    struct gaps *gaps = caller_alloc(caller, sizeof *gaps);
    if (gaps_read(gaps, caller_beside(caller, path, ".gaps"), r->stream.nchannels, &error) != BR_OK)
        return caller_refuse(caller, "%s", error.text);
    gaps->gap = caller_keep(caller, gaps->gap, gaps->count * sizeof *gaps->gap);
    file->gaps = gaps->count > 0 ? gaps : NULL;
    return BR_OK;
}

void dada_move(struct dada_file *file, int64_t later)
{
    file->first = (uint64_t)((int64_t)file->first + later);
    for (size_t i = 0; file->gaps != NULL && i < file->gaps->count; i++) {
        struct gap *gap = &file->gaps->gap[i];
        gap->first = (uint64_t)((int64_t)gap->first + later);
        gap->reach = (uint64_t)((int64_t)gap->reach + later);
    }
}
