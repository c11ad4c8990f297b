/* record - any stream into files: what a stage has to do for a writer of formats/ (formats/writer.h). */
#include "stages/common/sky/towards.h"
#include "stages/common/stage/earlier.h"
#include "stages/common/stage/export.h"
#include "stages/common/stage/made_with.h"
#include "stages/common/stage/names.h"
#include "stages/common/stage/writing.h"
#include "stages/record_description.h"

#include <stdio.h>
#include <string.h>

struct record {
    const char *directory, *prefix, *format, *coding, *vdif_station; /* parameters */
    int64_t file_bytes, vdif_samples;
    bool overwrite, lossy;
    struct names names;

    struct file_writer writer;
    bool ready;
};

static const char *const formats[] = {"dada", "kotekan", "guppi", "chime", "vdif", "sources", NULL};
static const char *const codings[] = {"int4p4chime", "int4p4", NULL};
static const struct br_param params[] = {
    PARAM(PATH, struct record, directory, "folder for the files; created if it does not exist" NAMES_HELP,
          .def = "."),
    PARAM(STRING, struct record, prefix,
          "start of the file names: PREFIX_000000.dada, PREFIX_000001.dada, ..." NAMES_HELP,
          .required = true),
    PARAM(CHOICE, struct record, format,
          "format of the files; formats other than dada and kotekan take only the electric field (vdif also "
          "voltage beams), and cannot express everything",
          .def = "dada", .choices = formats),
    PARAM(BOOL, struct record, lossy, "write even if the format cannot express everything, with a warning",
          .def = "false"),
    PARAM(CHOICE, struct record, coding,
          "kotekan: coding of the electric field: int4p4chime for kotekan's GPU stages, or int4p4, that of "
          "beamring",
          .def = "int4p4chime", .choices = codings),
    PARAM(INT, struct record, file_bytes,
          "size at which a new DADA file begins, at the end of a frame; 0: never", .def = "17179869184",
          .min = 0, .max = 1e18, .unit = "bytes"),
    PARAM(INT, struct record, vdif_samples,
          "vdif: samples in a VDIF frame, which is valid or missing as a whole; 0: as few as VDIF allows",
          .def = "0", .min = 0, .max = 1 << 24, .unit = "samples"),
    PARAM(STRING, struct record, vdif_station,
          "vdif: id of the station, two characters or a number below 65536; default: 0"),
    PARAM(BOOL, struct record, overwrite,
          "replace an earlier recording of this directory and prefix instead of refusing to start",
          .def = "false"),
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

static int check_names(struct br_stage *stage, struct record *r, const struct writer_format *format)
{
    char found[WRITER_PATH], suffix[16];
    if (r->prefix[0] == '\0' || strchr(r->prefix, '/') != NULL)
        return br_stage_fail_at(stage, "prefix", "'%s'; expected the start of a file name, without '/'",
                                r->prefix);
    const char *other = format != &vdif_files && br_stage_given(stage, "vdif_samples")   ? "vdif_samples"
                        : format != &vdif_files && br_stage_given(stage, "vdif_station") ? "vdif_station"
                        : format != &kotekan_files && br_stage_given(stage, "coding")    ? "coding"
                                                                                         : NULL;
    if (other != NULL) return br_stage_fail_at(stage, other, "this is not for format %s", r->format);
    int status = names_configure(&r->names, stage, &r->directory, &r->prefix, r->overwrite,
                                 format == &dada_files ? is_ours : NULL);
    if (status != BR_OK) return status;
    if (strlen(r->directory) + strlen(r->prefix) + 32 > WRITER_PATH)
        return br_stage_fail_at(stage, "directory", "the name is too long");
    snprintf(found, sizeof found, "%s_", r->prefix);
    snprintf(suffix, sizeof suffix, ".%s", format->suffix);
    status = br_stage_writes_files(stage, "prefix", r->directory, found, suffix);
    return status == BR_OK ? names_check(&r->names, stage, "prefix") : status;
}

static int configure(struct br_stage *stage, void *self)
{
    struct record *r = self;
    struct file_writer *w = &r->writer;
    const struct writer_format *format = writer_format_of(r->format);
    int status = check_names(stage, r, format);
    if (status != BR_OK) return status;
    *w = (struct file_writer){
        .format = format,
        .stream = br_stage_input(stage, 0),
        .host = writing_host(stage),
        .state = br_stage_alloc(stage, format->size),
        .directory = r->directory,
        .prefix = r->prefix,
        .lossy = r->lossy,
        .overwrite = r->overwrite,
        .int4p4chime = format == &kotekan_files && strcmp(r->coding, "int4p4chime") == 0,
        .vdif_samples = (uint64_t)r->vdif_samples,
        .vdif_station = r->vdif_station,
        .file_bytes = (uint64_t)r->file_bytes,
    };
    if (w->stream->nbeams > 0) status = br_stage_site(stage, "prefix", w->stream->telescope, &w->site);
    if (status == BR_OK) status = writer_refuses(w);
    if (status == BR_OK && w->losses[0] != '\0')
        br_stage_warn(stage, "in the format %s is lost: %s", format->name, w->losses + 2);
    return writing_status(stage, w, status);
}

/* Makes the directory and takes the names of all files, as soon as they are known. */
static int take_names(struct br_stage *stage, struct record *r)
{
    struct file_writer *w = &r->writer;
    w->directory = r->directory;
    w->prefix = r->prefix;
    int status = names_begin(&r->names, stage);
    if (status != BR_OK) return status;
    status = writer_open(w);
    r->ready = status == BR_OK;
    return writing_status(stage, w, status);
}

static int start(struct br_stage *stage, void *self)
{
    struct record *r = self;
    r->writer.host.updates_room = made_with_room(stage);
    r->ready = r->names.late;
    return r->names.late ? BR_OK : take_names(stage, r);
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct record *r = self;
    if (io->in[0] == NULL) return BR_FINISHED;
    if (!r->names.begun) {
        names_fill(&r->names, stage, io->in[0]->first);
        int named = take_names(stage, r);
        if (named != BR_OK) return named;
    }
    br_stage_waits_for(stage, "the disk");
    int status = writer_put(&r->writer, io->in[0]);
    br_stage_waits_for(stage, NULL);
    return status == BR_OK ? BR_CONSUMED : writing_status(stage, &r->writer, status);
}

static int stop(struct br_stage *stage, void *self)
{
    struct record *r = self;
    struct file_writer *w = &r->writer;
    int status = writer_close(w);
    file_lock_release(&r->names.claim);
    if (w->unmarked > 0)
        br_stage_warn(stage,
                      "%llu samples of a channel were missing or flagged, which the format %s cannot say",
                      (unsigned long long)w->unmarked, w->format->name);
    if (w->changed > 0)
        br_stage_warn(stage, "%llu values of -8 - 8i were written as -7 - 8i",
                      (unsigned long long)w->changed);
    if (w->files > 0)
        br_stage_note(stage, "%llu samples in %llu file%s %s/%s_*.%s", (unsigned long long)w->samples,
                      (unsigned long long)w->files, w->files == 1 ? "," : "s,", r->directory, r->prefix,
                      w->format->suffix);
    else if (r->ready)
        br_stage_warn(stage, "no %s arrived, so no file was written", w->started ? "valid sample" : "data");
    return writing_status(stage, w, status);
}

STAGE_EXPORT(record, struct record,
             "any stream into DADA files, the electric field into those of other systems", .inputs = inputs);
