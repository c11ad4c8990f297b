/* record - any stream into DADA files that `replay` reads back bit for bit; other formats are in external.h.
 *
 * A file's header is brought up to date once a second and at the end; between, it promises less than there
 * is, never more. The sidecar with the gaps is written before the data it speaks of. So a killed run leaves
 * files that can be replayed. */
#include "buffers/clock.h"
#include "buffers/output.h"
#include "formats/common/fileio.h"
#include "formats/dada/recording.h"
#include "formats/tables/beam_table.h"
#include "stages/common/stage/earlier.h"
#include "stages/common/stage/made_with.h"
#include "stages/common/stage/names.h"
#include "stages/common/stage/shape.h"
#include "stages/record/external.h"
#include "stages/record/later.h"
#include "stages/record/sidecar.h"
#include "stages/record_description.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HEADER_SLACK = 512 };
#define MAX_HOLE_BYTES  (UINT64_C(1) << 30)
#define HEADER_EVERY_NS UINT64_C(1000000000)

struct record {
    const char *directory, *prefix, *format, *coding; /* parameters */
    int64_t file_bytes, vdif_samples;
    bool overwrite, lossy;
    struct names names;

    struct external external; /* its format is NULL for DADA, which is the rest of this file */

    bool flat;
    size_t row_bytes;
    char *header; /* [file.header_bytes] */
    struct recording_file file;
    int fd;
    char path[2048];
    uint64_t end;       /* base sample after the last one written */
    uint64_t used;      /* bytes of payload in the current file */
    uint64_t obs_bytes; /* ... and in the files before it */
    uint64_t files, bytes, samples;
    uint64_t header_ns;
    bool started_obs, ready, named;
    struct sidecar gaps;
    struct later later;
    struct file_lock claim;       /* of the names of all files */
    char updates[MADE_WITH_ROOM]; /* that hold at the current file's first sample */
};

static const char *const formats[] = {"dada", "kotekan", "guppi", "chime", "vdif", "sources", NULL};
static const char *const codings[] = {"int4p4chime", "int4p4", NULL};
static const struct external_format *const external_formats[] = {
    &external_kotekan, &external_guppi, &external_chime, &external_vdif, &external_sources};
static const struct br_param params[] = {
    BR_PARAM("directory", BR_P_PATH, struct record, directory,
             "where the files go; made if it is not there" NAMES_HELP, .def = "."),
    BR_PARAM("prefix", BR_P_STRING, struct record, prefix,
             "start of the file names: PREFIX_000000.dada, PREFIX_000001.dada, ..." NAMES_HELP,
             .required = true),
    BR_PARAM("format", BR_P_CHOICE, struct record, format,
             "format of the files; all but dada and kotekan take the electric field only, and cannot say "
             "everything",
             .def = "dada", .choices = formats),
    BR_PARAM("lossy", BR_P_BOOL, struct record, lossy,
             "write in another format even what it cannot say, with a warning, rather than refuse",
             .def = "false"),
    BR_PARAM("coding", BR_P_CHOICE, struct record, coding,
             "kotekan: of the electric field; int4p4chime is what kotekan's GPU stages take, int4p4 ours",
             .def = "int4p4chime", .choices = codings),
    BR_PARAM("file_bytes", BR_P_INT, struct record, file_bytes,
             "data after which a new DADA file is begun, at the end of a frame; 0: never",
             .def = "17179869184", .min = 0, .max = 1e18, .unit = "bytes"),
    BR_PARAM("vdif_samples", BR_P_INT, struct record, vdif_samples,
             "vdif: samples in a VDIF frame, which is valid or missing as a whole; 0: as few as VDIF allows",
             .def = "0", .min = 0, .max = 1 << 24, .unit = "samples"),
    BR_PARAM("overwrite", BR_P_BOOL, struct record, overwrite,
             "replace an earlier recording of this directory and prefix, rather than refuse", .def = "false"),
    {0},
};
static const struct br_port inputs[] = {{"in", "any stream"}, {0}};

/* PREFIX_NNNNNN.dada, perhaps with .gaps or .updates behind it; or PREFIX_beams.csv. */
static bool is_ours(const char *name, const char *prefix)
{
    size_t n = strlen(prefix);
    if (strncmp(name, prefix, n) == 0 && strcmp(name + n, "_beams.csv") == 0) return true;
    const char *rest = earlier_rest(name, prefix);
    return rest != NULL && (strcmp(rest, ".dada") == 0 || strcmp(rest, ".dada.gaps") == 0 ||
                            strcmp(rest, ".dada.updates") == 0);
}

static int configure(struct br_stage *stage, void *self)
{
    struct record *r = self;
    char found[2048];
    if (r->prefix[0] == '\0' || strchr(r->prefix, '/') != NULL)
        return br_stage_fail_at(stage, "prefix", "'%s'; expected the start of a file name, without '/'",
                                r->prefix);
    int status = names_configure(&r->names, stage, &r->directory, &r->prefix, r->overwrite);
    if (status != BR_OK) return status;
    if (strcmp(r->format, "vdif") != 0 && br_stage_given(stage, "vdif_samples"))
        return br_stage_fail_at(stage, "vdif_samples", "this is not for format %s", r->format);
    if (strcmp(r->format, "kotekan") != 0 && br_stage_given(stage, "coding"))
        return br_stage_fail_at(stage, "coding", "this is not for format %s", r->format);
    for (size_t i = 0; i < sizeof external_formats / sizeof *external_formats; i++) {
        if (strcmp(r->format, external_formats[i]->name) != 0) continue;
        r->external = (struct external){.format = external_formats[i],
                                        .directory = r->directory,
                                        .prefix = r->prefix,
                                        .lossy = r->lossy,
                                        .chime = strcmp(r->format, "kotekan") == 0 &&
                                                 strcmp(r->coding, "int4p4chime") == 0,
                                        .vdif_samples = (uint64_t)r->vdif_samples,
                                        .overwrite = r->overwrite};
        return external_configure(stage, &r->external);
    }
    if (strlen(r->directory) + strlen(r->prefix) + 32 > sizeof r->path)
        return br_stage_fail_at(stage, "directory", "the name is too long");
    snprintf(found, sizeof found, "%s_", r->prefix);
    status = br_stage_writes_files(stage, "prefix", r->directory, found, ".dada");
    if (status != BR_OK) return status;
    if (!r->overwrite) {
        earlier_files(r->directory, r->prefix, is_ours, found, sizeof found);
        if (found[0] != '\0')
            status = br_stage_fail_run_at(
                stage, "prefix",
                "%s exists: an earlier recording would be lost; move it away, choose another "
                "prefix or directory, perhaps with {start} in it, or set overwrite: true",
                found);
        if (status != BR_OK) return status;
    }
    return BR_OK;
}

/* Makes the directory and takes the names of all files, as soon as they are known. */
static int take_names(struct br_stage *stage, struct record *r)
{
    struct br_error error = {0};
    char found[sizeof r->path] = "";
    snprintf(r->path, sizeof r->path, "%s", r->directory);
    if (fileio_make_directory(r->path) != 0 || access(r->directory, W_OK | X_OK) != 0)
        return br_stage_fail(stage, BR_E_IO, "cannot write into directory %s: %s", r->directory,
                             strerror(errno));
    if (earlier_claim(&r->claim, r->directory, r->prefix, &error) != BR_OK)
        return br_stage_fail(stage, BR_E_IO, "%s", error.text);
    r->named = true;
    if (r->external.format != NULL) return external_start(stage, &r->external);
    if (r->names.late) earlier_files(r->directory, r->prefix, is_ours, found, sizeof found);
    if (found[0] != '\0')
        return br_stage_fail(stage, BR_E_IO, "%s exists and would be lost; move it away, or use {run}",
                             found);
    if (r->overwrite && earlier_remove(r->directory, r->prefix, is_ours, &error) != BR_OK)
        return br_stage_fail(stage, BR_E_IO, "%s", error.text);
    snprintf(r->path, sizeof r->path, "%s/%s_beams.csv", r->directory, r->prefix);
    if (beam_table_write(r->path, br_stage_input(stage, 0), &error) != BR_OK)
        return br_stage_fail(stage, error.status, "%s", error.text);
    return BR_OK;
}

static int start(struct br_stage *stage, void *self)
{
    struct record *r = self;
    const struct br_stream *stream = br_stage_input(stage, 0);
    r->fd = r->gaps.fd = r->later.fd = r->claim.fd = -1;
    if (r->external.format != NULL) return r->names.late ? BR_OK : take_names(stage, r);
    r->flat = recording_is_flat(stream, &r->row_bytes);
    if (sidecar_create(&r->gaps, stream->nchannels) != BR_OK) return br_no_memory(stage, 1 << 20);

    /* the header's size, from one that is written nowhere */
    r->file =
        (struct recording_file){.name = r->prefix, .obs_id = r->prefix, .header_bytes = DADA_MAX_HEADER};
    struct dada_writer writer = {0};
    recording_format(&writer, stream, &r->file);
    size_t slack = HEADER_SLACK + made_with_room(stage);
    r->file.header_bytes = (writer.used + slack + DADA_BLOCK - 1) / DADA_BLOCK * DADA_BLOCK;
    if (r->file.header_bytes > DADA_MAX_HEADER)
        return br_stage_fail(
            stage, BR_E_INVALID,
            "the description of its input needs a header of %zu bytes; at most %d are allowed "
            "(fewer channels or beams)",
            r->file.header_bytes, DADA_MAX_HEADER);
    r->header = malloc(r->file.header_bytes);
    if (r->header == NULL) return br_no_memory(stage, r->file.header_bytes);
    int status = r->names.late ? BR_OK : take_names(stage, r);
    r->ready = status == BR_OK;
    return status;
}

/* What went wrong with the data file; what is in it stays readable. */
static int failed(struct br_stage *stage, struct record *r, const char *what, int why)
{
    return br_stage_fail(stage, BR_E_IO, "cannot %s %s: %s; the %llu samples before that are in the file",
                         what, r->path, strerror(why), (unsigned long long)(r->end - r->file.first));
}

static int write_header(struct br_stage *stage, struct record *r)
{
    struct dada_writer writer = {r->header, r->file.header_bytes, 0};
    const char *slash = strrchr(r->path, '/');
    r->file.name = slash != NULL ? slash + 1 : r->path;
    r->file.samples = r->end - r->file.first;
    r->file.payload_bytes = r->used;
    recording_format(&writer, br_stage_input(stage, 0), &r->file);
    if (!dada_finish(&writer, r->file.header_bytes))
        return br_stage_fail(stage, BR_E_INTERNAL, "the header of %s does not fit into %zu bytes", r->path,
                             r->file.header_bytes);
    int why = fileio_write(r->fd, r->header, r->file.header_bytes, 0);
    r->header_ns = br_clock_ns();
    return why == 0 ? BR_OK : failed(stage, r, "write the header of", why);
}

/* Completes the current file, if there is one. Returns the first failure, but does all it can. */
static int close_file(struct br_stage *stage, struct record *r)
{
    if (r->fd < 0) return BR_OK;
    int status = BR_OK;
    /* a frame that could not be written as a whole is cut off again */
    if (ftruncate(r->fd, (off_t)(r->file.header_bytes + r->used)) != 0)
        status = failed(stage, r, "shorten", errno);
    int written = write_header(stage, r);
    if (close(r->fd) != 0 && written == BR_OK) written = failed(stage, r, "complete", errno);
    r->fd = -1;
    if (status == BR_OK) status = written;
    if (later_close(&r->later) != BR_OK && status == BR_OK)
        status = br_stage_fail(stage, BR_E_IO, "%s", r->later.error.text);
    if (sidecar_close(&r->gaps) != BR_OK && status == BR_OK)
        status = br_stage_fail(stage, BR_E_IO, "%s", r->gaps.error.text);
    r->obs_bytes += r->used;
    r->files++;
    return status;
}

static int open_file(struct br_stage *stage, struct record *r, uint64_t first)
{
    const struct br_stream *stream = br_stage_input(stage, 0);
    int status = close_file(stage, r);
    if (status != BR_OK) return status;
    if (!r->started_obs) r->file.obs_first = first;
    r->started_obs = true;
    r->file.number = r->files;
    r->file.first = r->end = first;
    uint64_t d = stream->zone[0].downsample;
    r->file.obs_offset = r->flat ? (first / d - r->file.obs_first / d) * r->row_bytes : r->obs_bytes;
    r->used = 0;
    made_with(stage, first, first + 1, r->updates, sizeof r->updates);
    r->file.updates = r->updates;
    snprintf(r->path, sizeof r->path, "%s/%s_%06llu.dada", r->directory, r->prefix,
             (unsigned long long)r->file.number);
    char gaps[sizeof r->path + 8];
    snprintf(gaps, sizeof gaps, "%s.gaps", r->path);
    if (sidecar_open(&r->gaps, gaps, r->overwrite) != BR_OK)
        return br_stage_fail(stage, BR_E_IO, "%s", r->gaps.error.text);
    struct br_error error = {0};
    r->fd = br_output_open(r->path, r->overwrite, &error);
    if (r->fd < 0) {
        sidecar_close(&r->gaps);
        unlink(gaps);
        return br_stage_fail(stage, BR_E_IO, "%s", error.text);
    }
    return write_header(stage, r);
}

/* Whether the frame begins a new file: framed payloads can be short only at the ends of a file, and flat ones
 * keep a hole as a hole of the file (which takes no space) unless it is huge. */
static bool wants_file(const struct record *r, const struct br_stream *stream, const struct br_frame *in,
                       uint64_t bytes, uint64_t hole_bytes)
{
    if (r->fd < 0) return true;
    if (!r->flat && (in->first != r->end || r->end % stream->frame_samples != 0)) return true;
    if (hole_bytes > MAX_HOLE_BYTES) return true;
    return r->file_bytes > 0 && r->used > 0 && r->used + hole_bytes + bytes > (uint64_t)r->file_bytes;
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct record *r = self;
    const struct br_stream *stream = br_stage_input(stage, 0);
    const struct br_frame *in = io->in[0];
    if (in == NULL) return BR_FINISHED;
    if (!r->named) {
        names_fill(&r->names, stage, in->first);
        int status = take_names(stage, r);
        if (status != BR_OK) return status;
    }
    if (r->external.format != NULL) {
        br_stage_waits_for(stage, "the disk");
        int result = external_process(stage, &r->external, in);
        br_stage_waits_for(stage, NULL);
        return result == BR_OK ? BR_CONSUMED : result;
    }
    if (r->started_obs && in->first < r->end)
        return br_stage_fail(stage, BR_E_INTERNAL,
                             "a frame starts at sample %llu, before the end %llu of the last one",
                             (unsigned long long)in->first, (unsigned long long)r->end);
    uint64_t d = stream->zone[0].downsample, bytes = br_frame_bytes(stream, in), hole = 0;
    if (r->fd >= 0 && r->flat) hole = (in->first / d - r->file.first / d) * r->row_bytes;
    hole = hole > r->used ? hole - r->used : 0;
    int status = BR_OK;
    br_stage_waits_for(stage, "the disk");
    if (wants_file(r, stream, in, bytes, hole)) {
        status = open_file(stage, r, in->first);
    } else if (in->first > r->end && sidecar_hole(&r->gaps, r->end, in->first - r->end) != BR_OK) {
        status = br_stage_fail(stage, BR_E_IO, "%s", r->gaps.error.text);
    }
    if (status != BR_OK) return status;
    if (sidecar_frame(&r->gaps, stream, in) != BR_OK)
        return br_stage_fail(stage, BR_E_IO, "%s", r->gaps.error.text);
    uint64_t known =
        r->end > r->file.first ? r->end : r->file.first + 1; /* the header has its first sample's */
    if (later_write(&r->later, stage, r->path, known, in->first + in->samples) != BR_OK)
        return br_stage_fail(stage, BR_E_IO, "%s", r->later.error.text);

    uint64_t at = r->flat ? (in->first / d - r->file.first / d) * r->row_bytes : r->used;
    uint64_t offset = r->file.header_bytes + at;
    int why = fileio_write(r->fd, in->data, (size_t)bytes, offset);
    size_t side = stream->side.naxes > 0 ? br_array_bytes(&stream->side) : 0;
    if (why == 0 && side > 0) why = fileio_write(r->fd, in->side, side, offset + bytes);
    br_stage_waits_for(stage, NULL);
    if (why != 0) return failed(stage, r, "write", why);
    r->used = at + bytes + side;
    r->end = in->first + in->samples;
    r->bytes += bytes + side;
    r->samples += in->samples;
    if (br_clock_ns() - r->header_ns > HEADER_EVERY_NS) status = write_header(stage, r);
    return status == BR_OK ? BR_CONSUMED : status;
}

static int stop(struct br_stage *stage, void *self)
{
    struct record *r = self;
    if (r->external.format != NULL) {
        int status = r->named ? external_stop(stage, &r->external) : BR_OK;
        file_lock_release(&r->claim);
        return status;
    }
    int status = close_file(stage, r);
    file_lock_release(&r->claim);
    if (r->files > 0)
        br_stage_note(stage, "%llu samples in %llu file%s %s/%s_*.dada", (unsigned long long)r->samples,
                      (unsigned long long)r->files, r->files == 1 ? "," : "s,", r->directory, r->prefix);
    else if (r->ready)
        br_stage_warn(stage, "no data came, so there is no file");
    sidecar_destroy(&r->gaps);
    free(r->header);
    r->header = NULL;
    return status;
}

BR_STAGE_EXPORT = {
    .abi_version = BR_ABI_VERSION,
    .type_size = sizeof(struct br_stage_type),
    .name = "record",
    .summary = "any stream into DADA files, the electric field into those of other systems",
    .description = description,
    .params = params,
    .inputs = inputs,
    .size = sizeof(struct record),
    .configure = configure,
    .start = start,
    .process = process,
    .stop = stop,
};
