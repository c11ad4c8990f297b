#include "formats/format.h"

#include "buffers/regular_file.h"
#include "formats/common/hints.h"
#include "formats/list.h"

#include <string.h>
#include <unistd.h>

#define FORMAT(name) extern const struct format format_##name;
FORMATS(FORMAT)
FORMATS_TO_SHOW(FORMAT)
#undef FORMAT

/* In the order in which a file is tried; VDIF, which has no mark, comes last. */
static const struct format *const formats[] = {
#define FORMAT(name) &format_##name,
    FORMATS(FORMAT) FORMATS_TO_SHOW(FORMAT)
#undef FORMAT
};
enum { COUNT = sizeof formats / sizeof *formats };

const char *const format_names[] = {"auto",
#define FORMAT(name) #name,
                                    FORMATS(FORMAT)
#undef FORMAT
                                        NULL};

const struct format *format_recognise(struct caller *caller, const char *path)
{
    char start[4096];
    struct br_error error = {0};
    int fd = br_open_regular(path, 0, NULL, NULL);
    ssize_t got = fd < 0 ? -1 : read(fd, start, sizeof start);
    if (fd >= 0) close(fd);
    if (got <= 0) return formats[0]; /* its reader says what is wrong with the file */
    for (size_t i = 0; i < COUNT; i++)
        if (formats[i]->probe != NULL && formats[i]->probe(start, (size_t)got)) return formats[i];
    for (size_t i = 0; i < COUNT; i++)
        if (formats[i]->probe == NULL && formats[i]->probe_file(path, &error) == BR_OK) return formats[i];
    caller_refuse(
        caller,
        "%s is not a DADA file (it does not start with a header of KEY value lines), none of the formats "
        "with a mark of their own (CHIME's HDF5, GUPPI RAW, kotekan's raw frames), and as VDIF: %s",
        path, error.text);
    return NULL;
}

/* Options that not every reader takes. */
static int check_options(struct caller *caller, const struct reader *reader,
                         const struct read_options *options, const char *path)
{
    if (caller->hints->order != NULL && (reader->takes & READER_ORDER) == 0)
        return caller_refuse(
            caller,
            "%s says itself how its axes lie; only DADA files of others do not: take `order` out "
            "of `stream:`",
            path);
    if (options->direct && (reader->takes & READER_DIRECT) == 0)
        return caller_fail_at(caller, "direct",
                              "only DADA files that all have the same channels, in the stream's order, and "
                              "of which no `part` is taken, are read so; %s is read through the page cache",
                              path);
    return BR_OK;
}

int format_open(struct caller *caller, const char *name, const struct file_list *files,
                const struct read_options *options, struct reading *r)
{
    const char *path = files->path[0];
    const struct format *format = NULL;
    for (size_t i = 0; i < COUNT; i++)
        if (strcmp(name, formats[i]->name) == 0) format = formats[i];
    if (format == NULL) format = format_recognise(caller, path);
    if (format == NULL) return BR_E_INVALID;
    if (format->reader == NULL && format->choose == NULL)
        return caller_refuse(
            caller,
            "%s is a SIGPROC filterbank file: beams that have been made; replay reads recordings, "
            "and beams where `record` wrote them",
            path);
    const struct reader *reader =
        format->choose != NULL ? format->choose(caller, files, options) : format->reader;
    *r = (struct reading){.format = format, .reader = reader, .description.time_from = "by the header"};
    int status = check_options(caller, reader, options, path);
    if (status != BR_OK) return status;
    r->self = caller_alloc(caller, reader->size);
    status = reader->describe(caller, r->self, files, options, &r->description);
    if (status != BR_OK) return status;
    if (options->part.count > 1 && (reader->takes & READER_PARTS) == 0)
        return caller_fail_at(caller, "part",
                              "%llu/%llu: %s; only recordings of E[time][freq][pol][dish] can be divided by "
                              "frequency. Name each rank's files instead, with ${RANK}",
                              (unsigned long long)options->part.index,
                              (unsigned long long)options->part.count, path);
    struct br_error error = {0};
    struct br_stream *stream = r->description.stream;
    if (hints_sideband(caller->hints, path, format->sideband, &stream->sideband, &error) != BR_OK)
        return caller_refuse(caller, "%s", error.text);
    char doubt[256];
    if (hints_doubt(stream, doubt, sizeof doubt) != NULL) caller_warn(caller, "%s: %s", path, doubt);
    return BR_OK;
}
