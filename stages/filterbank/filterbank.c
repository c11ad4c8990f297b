/* filterbank - intensity beams into SIGPROC files: what a stage has to do for formats/sigproc/write.h. */
#include "buffers/output.h"
#include "formats/common/axes.h"
#include "formats/sigproc/write.h"
#include "runtime/stage_updates.h"
#include "stages/common/sky/towards.h"
#include "stages/common/stage/export.h"
#include "stages/common/stage/made_with.h"
#include "stages/common/stage/names.h"
#include "stages/common/stage/shape.h"
#include "stages/filterbank_description.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct filterbank {
    const char *directory, *prefix, *values, *source; /* parameters */
    struct br_ints beams;
    double src_raj, src_dej, max_gap_s; /* NAN: not given */
    int64_t telescope_id, machine_id;
    bool overwrite;
    struct names names;

    struct sigproc_writer writer;
    uint64_t told; /* base sample up to which PREFIX.updates tells of updates */
};

static const char *const values_choices[] = {"levels", "intensity", NULL};
static const struct br_param params[] = {
    PARAM(PATH, struct filterbank, directory, "folder for the files; created if it does not exist" NAMES_HELP,
          .def = "."),
    PARAM(STRING, struct filterbank, prefix,
          "files are PREFIXnnnn.fil, nnnn being the beam; with several bands PREFIXnnnn_bandN.fil" NAMES_HELP,
          .def = "beam"),
    PARAM(INTS, struct filterbank, beams, "numbers of the beams to write; default all", .min = 0,
          .max = 1 << 20),
    PARAM(CHOICE, struct filterbank, values,
          "for quantized beams: the levels as 8 bits, or the intensities that they stand for as float32; "
          "default: levels, but intensity for 4 bits with scales",
          .choices = values_choices),
    PARAM(STRING, struct filterbank, source,
          "source_name of the header; default: the name of what the beam follows, or 'beam N'"),
    PARAM(REAL, struct filterbank, src_raj,
          "right ascension for the headers of all beams, as SIGPROC writes it; default: where each beam "
          "looks at the start of its file",
          .unit = "hhmmss.s", .min = 0, .max = 240000),
    PARAM(REAL, struct filterbank, src_dej, "the same for the declination", .unit = "ddmmss.s",
          .min = -900000, .max = 900000),
    PARAM(INT, struct filterbank, telescope_id, "SIGPROC's number of the telescope; 20 is CHIME, 0 is none",
          .def = "0", .min = 0, .max = 100000),
    PARAM(INT, struct filterbank, machine_id, "SIGPROC's number of the backend", .def = "0", .min = 0,
          .max = 100000),
    PARAM(REAL, struct filterbank, max_gap_s,
          "longest hole that is filled with the mean; behind a longer one new files begin (_part2)",
          .def = "60", .min = 0, .max = 1e6, .unit = "s"),
    PARAM(BOOL, struct filterbank, overwrite,
          "replace earlier files of this directory and prefix instead of refusing to start", .def = "false"),
    {0},
};
static const struct br_port inputs[] = {
    {"in",
     "levels [beam][freq][time], uint8 or int4 (quantize), or J[freq][time][beam], f16 or f32 (frb_beams)"},
    {0}};

/* --- files of an earlier run -------------------------------------------------------------------------- */

static const char *after(const char *name, const char *word)
{
    size_t n = strlen(word), digits;
    if (strncmp(name, word, n) != 0) return name;
    digits = strspn(name + n, "0123456789");
    return digits > 0 ? name + n + digits : name;
}

/* PREFIX, four digits or more, perhaps _bandN, perhaps _partN, .fil; or the same without digits, .gaps. */
static bool is_ours(const char *name, const char *prefix)
{
    size_t n = strlen(prefix);
    if (strncmp(name, prefix, n) != 0) return false;
    size_t digits = strspn(name + n, "0123456789");
    const char *rest = after(after(name + n + digits, "_band"), "_part");
    if (strcmp(name + n, "s.csv") == 0) return true; /* which beam is where */
    if (strcmp(name + n, ".updates") == 0) return true;
    return (digits >= 4 && strcmp(rest, ".fil") == 0) || (digits == 0 && strcmp(rest, ".gaps") == 0);
}

/* --- the stage -------------------------------------------------------------------------------------- */

static int take_form(struct br_stage *stage, struct filterbank *fb, const struct br_stream *in)
{
    const struct br_array *array = &in->array;
    bool is_levels =
        axes_are(array, "beam,freq,time") && (array->dtype == BR_UINT8 || array->dtype == BR_INT4);
    bool is_floats = axes_are(array, "freq,time,beam") && (array->dtype == BR_F16 || array->dtype == BR_F32);
    char text[160];
    if (!is_levels && !is_floats)
        return br_stage_fail(stage, BR_E_INVALID,
                             "its input is %s, which is not intensity beams; it writes uint8 or int4 "
                             "[beam][freq][time] (quantize makes "
                             "it) and f16 or f32 [freq][time][beam] (frb_beams makes it)%s",
                             br_array_format(array, text, sizeof text),
                             array->dtype == BR_INT4X2 ? "; `record` writes electric fields and voltages"
                                                       : "");
    if (br_stream_is_zoned(in))
        return br_stage_fail(stage, BR_E_INVALID, "the zones of its input have different time steps");
    bool scaled = array->dtype == BR_INT4 && in->side.naxes != 0,
         intensity = br_stage_given(stage, "values") ? strcmp(fb->values, "intensity") == 0 : scaled;
    if (is_floats && br_stage_given(stage, "values"))
        return br_stage_fail_at(stage, "values", "this is for quantized beams; the input is %s already",
                                br_dtype_name(array->dtype));
    if (intensity && in->side.naxes == 0)
        return br_stage_fail_at(
            stage, "values",
            "the input carries no scales and offsets, without which levels have no intensity");
    fb->writer.rows = (struct rows){.form = array->dtype == BR_UINT8  ? ROWS_UINT8
                                            : array->dtype == BR_INT4 ? ROWS_INT4
                                            : array->dtype == BR_F16  ? ROWS_F16
                                                                      : ROWS_F32,
                                    .floats = is_floats || intensity,
                                    .nchannels = in->nchannels,
                                    .nbeams = br_array_length(array, "beam"),
                                    .scale = in->scale};
    return BR_OK;
}

static int configure(struct br_stage *stage, void *self)
{
    struct filterbank *fb = self;
    const struct br_stream *in = br_stage_input(stage, 0);
    int status = take_form(stage, fb, in);
    if (status != BR_OK) return status;
    if (strchr(fb->prefix, '/') != NULL || strlen(fb->prefix) > 150)
        return br_stage_fail_at(
            stage, "prefix", "'%.160s'; expected the start of a file's name, at most 150 letters without '/'",
            fb->prefix);
    status = names_configure(&fb->names, stage, &fb->directory, &fb->prefix, fb->overwrite, is_ours);
    if (status != BR_OK) return status;
    status = br_stage_writes_files(stage, br_stage_given(stage, "prefix") ? "prefix" : "directory",
                                   fb->directory, fb->prefix, ".fil");
    struct sigproc_writer *w = &fb->writer;
    if (status == BR_OK) status = names_check(&fb->names, stage, "directory");
    if (status == BR_OK)
        status = br_stage_site(stage, "directory", br_stage_input(stage, 0)->telescope, &w->site);
    if (status != BR_OK) return status;
    w->stream = in;
    w->step = in->zone[0].downsample;
    w->nbeams = fb->beams.count > 0 ? fb->beams.count : w->rows.nbeams;
    size_t *beam = br_stage_alloc(stage, w->nbeams * sizeof *beam);
    bool *taken = br_stage_alloc(stage, w->rows.nbeams * sizeof *taken);
    for (size_t i = 0; i < w->nbeams; i++) {
        beam[i] = fb->beams.count > 0 ? (size_t)fb->beams.value[i] : i;
        if (beam[i] >= w->rows.nbeams)
            return br_stage_fail_at(stage, "beams", "beam %zu does not exist; the input has beams 0 to %zu",
                                    beam[i], w->rows.nbeams - 1);
        if (taken[beam[i]]) return br_stage_fail_at(stage, "beams", "beam %zu is listed twice", beam[i]);
        taken[beam[i]] = true;
    }
    struct sigproc_band *bands = br_stage_alloc(stage, in->nchannels * sizeof *bands);
    w->beam = beam;
    w->bands = bands;
    w->nbands = sigproc_bands(in, bands, br_stage_alloc(stage, in->nchannels * sizeof(uint32_t)));
    return w->nbands > 0 ? BR_OK : br_no_memory(stage, in->nchannels * sizeof *bands);
}

static void at_disk(void *owner, bool there)
{
    br_stage_waits_for(owner, there ? "the disk" : NULL);
}

/* Makes the directory and takes the names of all files, as soon as they are known. */
static int take_names(struct br_stage *stage, struct filterbank *fb)
{
    struct br_error error = {0};
    fb->writer.directory = fb->directory;
    fb->writer.prefix = fb->prefix;
    int status = names_begin(&fb->names, stage);
    if (status != BR_OK || sigproc_writer_open(&fb->writer, &error) == BR_OK) return status;
    return br_stage_fail(stage, error.status, "%s", error.text);
}

static int start(struct br_stage *stage, void *self)
{
    struct filterbank *fb = self;
    struct sigproc_writer *w = &fb->writer;
    struct br_error error = {0};
    w->source = fb->source;
    w->src_raj = fb->src_raj;
    w->src_dej = fb->src_dej;
    w->max_gap_s = fb->max_gap_s;
    w->telescope_id = (int)fb->telescope_id;
    w->machine_id = (int)fb->machine_id;
    w->disk = at_disk;
    w->owner = stage;
    if (sigproc_writer_create(w, &error) != BR_OK)
        return br_stage_fail(stage, error.status, "%s", error.text);
    return fb->names.late ? BR_OK : take_names(stage, fb);
}

/* Appends the updates and injections that the frame was made with, a line each time, to PREFIX.updates. */
static int tell_updates(struct br_stage *stage, struct filterbank *fb, const struct br_frame *in)
{
    char text[MADE_WITH_ROOM], path[FILES_PATH];
    struct br_error error = {0};
    uint64_t end = in->first + in->samples;
    size_t length = fb->told == 0 ? made_with(stage, in->first, end, text, sizeof text)
                                  : br_stage_updates_begun(stage, fb->told, end, text, sizeof text);
    bool begun = fb->told > 0;
    fb->told = end;
    if (length == 0) return BR_OK;
    snprintf(path, sizeof path, "%.4000s/%.150s.updates", fb->directory, fb->prefix);
    FILE *file = begun ? fopen(path, "ae") : br_output_stream(path, true, &error);
    if (file == NULL) return br_stage_fail(stage, BR_E_IO, "%s: %s", path, strerror(errno));
    bool good = fprintf(file, "%s\n", text) > 0;
    if (fclose(file) == 0 && good) return BR_OK;
    return br_stage_fail(stage, BR_E_IO, "cannot write %s: %s", path, strerror(errno));
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct filterbank *fb = self;
    struct br_error error = {0};
    if (io->in[0] == NULL) return BR_FINISHED;
    if (!fb->names.begun) {
        names_fill(&fb->names, stage, io->in[0]->first);
        int named = take_names(stage, fb);
        if (named != BR_OK) return named;
    }
    double gap_s = sigproc_writer_gap(&fb->writer, io->in[0]);
    if (gap_s > 0) br_stage_note(stage, "%.3f s are missing; new files are begun", gap_s);
    int told = br_stage_follows_updates(stage) ? tell_updates(stage, fb, io->in[0]) : BR_OK;
    if (told != BR_OK) return told;
    int status = sigproc_writer_put(&fb->writer, io->in[0], &error);
    return status == BR_OK ? BR_CONSUMED : br_stage_fail(stage, status, "%s", error.text);
}

static int stop(struct br_stage *stage, void *self)
{
    struct filterbank *fb = self;
    struct sigproc_writer *w = &fb->writer;
    struct br_error error = {0};
    int status = sigproc_writer_end(w, &error);
    size_t files = w->nbands * w->nbeams * w->part;
    if (w->part > 0)
        br_stage_note(stage, "%llu samples of %zu beam%s in %zu file%s, %s/%s*.fil",
                      (unsigned long long)w->written, w->nbeams, w->nbeams == 1 ? "" : "s", files,
                      files == 1 ? "" : "s", fb->directory, fb->prefix);
    sigproc_writer_free(w);
    file_lock_release(&fb->names.claim);
    return status == BR_OK ? BR_OK : br_stage_fail(stage, status, "%s", error.text);
}

STAGE_EXPORT(filterbank, struct filterbank,
             "intensity beams to SIGPROC filterbank files, one per beam and band", .inputs = inputs);
