/* filterbank - intensity beams into SIGPROC files, one per beam and band.
 *
 * All files of a band grow together, in whole samples. Nothing in a header depends on a file's length, so
 * that a search can read files while they grow. */
#include "formats/common/fileio.h"
#include "formats/sigproc/sigproc.h"
#include "formats/tables/beam_table.h"
#include "runtime/stage.h"
#include "stages/common/stage/earlier.h"
#include "stages/common/stage/names.h"
#include "stages/common/stage/shape.h"
#include "stages/filterbank/files.h"
#include "stages/filterbank/missing.h"
#include "stages/filterbank/rows.h"
#include "stages/filterbank_description.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCRATCH_BYTES = 1 << 20, MAX_STEPS = 256 }; /* rows of one beam that are written at once */

struct filterbank {
    const char *directory, *prefix, *values, *source; /* parameters */
    struct br_ints beams;
    double src_raj, src_dej, max_gap_s;
    int64_t telescope_id, machine_id;
    bool overwrite;
    struct names names;

    unsigned step; /* base samples per sample of the files */
    size_t nbeams, nbands;
    const size_t *beam;         /* [nbeams] of the stream */
    struct sigproc_band *bands; /* [nbands] */
    struct rows rows;
    struct files files;      /* [band][beam] */
    struct file_lock claim;  /* of the names of all of them */
    struct missing *missing; /* [band] */
    void *scratch;           /* rows of ROWS_BEAMS beams */
    size_t chunk;            /* steps that fit */
    bool open, named;
    unsigned part;          /* from 1: files after a long hole are further parts */
    uint64_t next;          /* the step that is to be written next */
    uint64_t written;       /* steps in all */
    struct br_stage *stage; /* whose process runs */
};

static const char *const values_choices[] = {"levels", "intensity", NULL};
static const struct br_param params[] = {
    BR_PARAM("directory", BR_P_PATH, struct filterbank, directory,
             "where the files go; it is made if there is none" NAMES_HELP, .def = "."),
    BR_PARAM(
        "prefix", BR_P_STRING, struct filterbank, prefix,
        "files are PREFIXnnnn.fil, nnnn being the beam; with several bands PREFIXnnnn_bandN.fil" NAMES_HELP,
        .def = "beam"),
    BR_PARAM("beams", BR_P_INTS, struct filterbank, beams, "numbers of the beams to write; default all",
             .min = 0, .max = 1 << 20),
    BR_PARAM(
        "values", BR_P_CHOICE, struct filterbank, values,
        "of quantized beams: their levels as 8 bits, or the intensities they stand for as float32; default "
        "levels, of 4 bits with scales intensity",
        .choices = values_choices),
    BR_PARAM("source", BR_P_STRING, struct filterbank, source, "source_name of the header; default 'beam N'"),
    BR_PARAM("src_raj", BR_P_REAL, struct filterbank, src_raj,
             "right ascension for the header, as SIGPROC writes it", .def = "0", .unit = "hhmmss.s", .min = 0,
             .max = 240000),
    BR_PARAM("src_dej", BR_P_REAL, struct filterbank, src_dej,
             "declination for the header, as SIGPROC writes it", .def = "0", .unit = "ddmmss.s",
             .min = -900000, .max = 900000),
    BR_PARAM("telescope_id", BR_P_INT, struct filterbank, telescope_id,
             "SIGPROC's number of the telescope; 20 is CHIME, 0 is none", .def = "0", .min = 0,
             .max = 100000),
    BR_PARAM("machine_id", BR_P_INT, struct filterbank, machine_id, "SIGPROC's number of the backend",
             .def = "0", .min = 0, .max = 100000),
    BR_PARAM("max_gap_s", BR_P_REAL, struct filterbank, max_gap_s,
             "lost frames are filled in with the mean; after a longer hole new files are begun (_part2)",
             .def = "60", .min = 0, .max = 1e6, .unit = "s"),
    BR_PARAM("overwrite", BR_P_BOOL, struct filterbank, overwrite,
             "replace earlier files of this directory and prefix, rather than refuse", .def = "false"),
    {0},
};
static const struct br_port inputs[] = {
    {"in",
     "levels [beam][freq][time], uint8 or int4 (quantize), or J[freq][time][beam], f16 or f32 (frb_beams)"},
    {0}};

static void band_and_part(const struct filterbank *fb, size_t band, char text[64])
{
    int n = fb->nbands > 1 ? snprintf(text, 64, "_band%zu", band) : 0;
    if (n == 0) text[0] = '\0';
    if (fb->part > 1) snprintf(text + n, 64 - (size_t)n, "_part%u", fb->part);
}

static void file_name(void *owner, size_t i, char *name)
{
    const struct filterbank *fb = owner;
    char tail[64];
    band_and_part(fb, i / fb->nbeams, tail);
    snprintf(name, FILES_NAME, "%.150s%04zu%s.fil", fb->prefix, fb->beam[i % fb->nbeams], tail);
}

static bool has_axes(const struct br_array *array, const char *a, const char *b, const char *c)
{
    return array->naxes == 3 && strcmp(array->axis[0].name, a) == 0 && strcmp(array->axis[1].name, b) == 0 &&
           strcmp(array->axis[2].name, c) == 0;
}

static int take_form(struct br_stage *stage, struct filterbank *fb, const struct br_stream *in)
{
    const struct br_array *array = &in->array;
    bool is_levels =
        has_axes(array, "beam", "freq", "time") && (array->dtype == BR_UINT8 || array->dtype == BR_INT4);
    bool is_floats =
        has_axes(array, "freq", "time", "beam") && (array->dtype == BR_F16 || array->dtype == BR_F32);
    char text[160];
    if (!is_levels && !is_floats)
        return br_stage_fail(stage, BR_E_INVALID,
                             "its input is %s, which is no intensity beams; it writes uint8 or int4 "
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
    fb->rows = (struct rows){.form = array->dtype == BR_UINT8  ? ROWS_UINT8
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
    status = names_configure(&fb->names, stage, &fb->directory, &fb->prefix, fb->overwrite);
    if (status != BR_OK) return status;
    status = br_stage_writes_files(stage, br_stage_given(stage, "prefix") ? "prefix" : "directory",
                                   fb->directory, fb->prefix, ".fil");
    if (status != BR_OK) return status;
    char found[FILES_PATH];
    files_earlier(fb->directory, fb->prefix, false, found, NULL);
    if (found[0] != '\0' && !fb->overwrite)
        status = br_stage_fail_run_at(
            stage, "directory",
            "%s exists and would be lost; move it away, choose another directory or prefix, "
            "perhaps with {start} in it, or set overwrite: true",
            found);
    if (status != BR_OK) return status;
    fb->step = in->zone[0].downsample;
    fb->nbeams = fb->beams.count > 0 ? fb->beams.count : fb->rows.nbeams;
    size_t *beam = br_stage_alloc(stage, fb->nbeams * sizeof *beam);
    bool *taken = br_stage_alloc(stage, fb->rows.nbeams * sizeof *taken);
    for (size_t i = 0; i < fb->nbeams; i++) {
        beam[i] = fb->beams.count > 0 ? (size_t)fb->beams.value[i] : i;
        if (beam[i] >= fb->rows.nbeams)
            return br_stage_fail_at(stage, "beams", "beam %zu does not exist; the input has beams 0 to %zu",
                                    beam[i], fb->rows.nbeams - 1);
        if (taken[beam[i]]) return br_stage_fail_at(stage, "beams", "beam %zu is listed twice", beam[i]);
        taken[beam[i]] = true;
    }
    fb->beam = beam;
    fb->bands = br_stage_alloc(stage, in->nchannels * sizeof *fb->bands);
    fb->nbands = sigproc_bands(in, fb->bands, br_stage_alloc(stage, in->nchannels * sizeof(uint32_t)));
    if (fb->nbands == 0) return br_no_memory(stage, in->nchannels * sizeof *fb->bands);
    return BR_OK;
}

/* Makes the directory and takes the names of all files, as soon as they are known. */
static int take_names(struct br_stage *stage, struct filterbank *fb)
{
    struct br_error error = {0};
    char found[FILES_PATH], table[FILES_PATH];
    if (files_directory(fb->directory, &error) != BR_OK ||
        earlier_claim(&fb->claim, fb->directory, fb->prefix, &error) != BR_OK)
        return br_stage_fail(stage, error.status, "%s", error.text);
    fb->named = true;
    if (files_earlier(fb->directory, fb->prefix, fb->overwrite, found, &error) != BR_OK)
        return br_stage_fail(stage, error.status, "%s", error.text);
    if (fb->names.late && found[0] != '\0')
        return br_stage_fail(stage, BR_E_IO, "%s exists and would be lost; move it away, or use {run}",
                             found);
    snprintf(table, sizeof table, "%.4000s/%.150ss.csv", fb->directory, fb->prefix);
    if (beam_table_write(table, br_stage_input(stage, 0), &error) != BR_OK)
        return br_stage_fail(stage, error.status, "%s", error.text);
    return BR_OK;
}

static int start(struct br_stage *stage, void *self)
{
    struct filterbank *fb = self;
    struct br_error error = {0};
    size_t widest = 0, cells = fb->rows.nchannels * fb->rows.nbeams;
    fb->claim.fd = -1;
    fb->missing = calloc(fb->nbands, sizeof *fb->missing);
    if (fb->missing == NULL) return br_no_memory(stage, fb->nbands * sizeof *fb->missing);
    for (size_t b = 0; b < fb->nbands; b++) {
        if (fb->bands[b].nchannels > widest) widest = fb->bands[b].nchannels;
        if (missing_create(&fb->missing[b], &fb->bands[b], &error) != BR_OK)
            return br_stage_fail(stage, error.status, "%s", error.text);
    }
    size_t row = widest * rows_value_bytes(&fb->rows);
    fb->chunk = SCRATCH_BYTES / row;
    if (fb->chunk > MAX_STEPS) fb->chunk = MAX_STEPS;
    if (fb->chunk < 1) fb->chunk = 1;
    fb->scratch = malloc(ROWS_BEAMS * fb->chunk * row);
    if (fb->rows.floats) {
        fb->rows.mean = calloc(cells, sizeof *fb->rows.mean);
        fb->rows.seen = calloc(cells, sizeof *fb->rows.seen);
    }
    if (fb->scratch == NULL || (fb->rows.floats && (fb->rows.mean == NULL || fb->rows.seen == NULL)))
        return br_no_memory(stage, ROWS_BEAMS * fb->chunk * row + cells * 6);
    fb->files.directory = fb->directory;
    fb->files.name = file_name;
    fb->files.owner = fb;
    if (files_create(&fb->files, fb->nbands * fb->nbeams, &error) != BR_OK)
        return br_stage_fail(stage, error.status, "%s", error.text);
    return fb->names.late ? BR_OK : take_names(stage, fb);
}

/* Begins all files, step `first` being their sample 0. */
static int begin(struct filterbank *fb, const struct br_stream *stream, uint64_t first,
                 struct br_error *error)
{
    int status = BR_OK;
    fb->part++;
    fb->open = true;
    fb->next = first;
    for (size_t band = 0; band < fb->nbands; band++) {
        const struct sigproc_band *b = &fb->bands[band];
        char tail[64], name[FILES_NAME], source[32];
        band_and_part(fb, band, tail);
        snprintf(name, sizeof name, "%.150s%s.gaps", fb->prefix, tail);
        missing_begin(&fb->missing[band], fb->directory, name);
        for (size_t i = 0; i < fb->nbeams && status == BR_OK; i++) {
            uint8_t bytes[SIGPROC_HEADER_MAX];
            file_name(fb, band * fb->nbeams + i, name);
            snprintf(source, sizeof source, "beam %zu", fb->beam[i]);
            double azimuth = 0, zenith = 0;
            if (stream->beams != NULL)
                beam_azimuth(stream->telescope, stream->beams[fb->beam[i]], &azimuth, &zenith);
            struct sigproc_header header = {
                .az_start_deg = azimuth,
                .za_start_deg = zenith,
                .rawdatafile = name,
                .source_name = fb->source != NULL ? fb->source : source,
                .telescope_id = (int)fb->telescope_id,
                .machine_id = (int)fb->machine_id,
                .src_raj = fb->src_raj,
                .src_dej = fb->src_dej,
                .fch1_mhz = b->fch1_mhz,
                .foff_mhz = b->foff_mhz,
                .nchans = (int)b->nchannels,
                .nbits = fb->rows.floats ? 32 : 8,
                .nbeams = (int)fb->rows.nbeams,
                .ibeam = (int)fb->beam[i] + 1,
                .tstart_mjd = sigproc_mjd(sigproc_arrival_ns(stream, first, fb->step, b->delay)),
                .tsamp_s = fb->step * br_stream_sample_s(stream)};
            status =
                files_begin(&fb->files, band * fb->nbeams + i, bytes, sigproc_format(bytes, &header), error);
        }
    }
    return status;
}

/* Writes `steps` steps of the frame in fb->rows from step `from` of it on to all files. */
static int write_steps(struct filterbank *fb, size_t from, uint64_t steps, struct br_error *error)
{
    uint8_t weight = fb->rows.data == NULL ? BR_MISSING : BR_VALID;
    for (size_t band = 0; band < fb->nbands; band++) {
        const struct sigproc_band *b = &fb->bands[band];
        size_t row = b->nchannels * rows_value_bytes(&fb->rows);
        int status = missing_add(&fb->missing[band], fb->rows.data == NULL ? NULL : fb->rows.valid,
                                 fb->rows.nsteps, from, (size_t)steps, weight, error);
        for (uint64_t done = 0; done < steps && status == BR_OK;) {
            size_t take = steps - done < fb->chunk ? (size_t)(steps - done) : fb->chunk;
            for (size_t i = 0; i < fb->nbeams && status == BR_OK; i += ROWS_BEAMS) {
                size_t group = fb->nbeams - i < ROWS_BEAMS ? fb->nbeams - i : ROWS_BEAMS;
                rows_make(&fb->rows, b, fb->beam + i, group, from + (size_t)done, take, fb->scratch);
                br_stage_waits_for(fb->stage, "the disk");
                for (size_t k = 0; k < group && status == BR_OK; k++)
                    status = files_append(&fb->files, band * fb->nbeams + i + k,
                                          (uint8_t *)fb->scratch + k * take * row, take * row, error);
                br_stage_waits_for(fb->stage, NULL);
            }
            done += take;
        }
        if (status != BR_OK) return status;
    }
    fb->next += steps;
    fb->written += steps;
    return BR_OK;
}

static int end(struct filterbank *fb, struct br_error *error)
{
    int status = BR_OK;
    for (size_t b = 0; fb->open && b < fb->nbands; b++) {
        int result = missing_end(&fb->missing[b], status == BR_OK ? error : NULL);
        if (status == BR_OK) status = result;
    }
    int result = files_close(&fb->files, status == BR_OK ? error : NULL);
    fb->open = false;
    return status != BR_OK ? status : result;
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct filterbank *fb = self;
    const struct br_stream *stream = br_stage_input(stage, 0);
    const struct br_frame *in = io->in[0];
    struct br_error error = {0};
    int status = BR_OK;
    if (in == NULL) return BR_FINISHED;
    if (!fb->named) {
        names_fill(&fb->names, stage, in->first);
        status = take_names(stage, fb);
        if (status != BR_OK) return status;
    }

    fb->stage = stage;
    uint64_t first = in->first / fb->step, skip = 0;
    size_t nsteps = br_time_steps(in->first, in->samples, fb->step);
    if (fb->open && first > fb->next &&
        (double)(first - fb->next) * fb->step * br_stream_sample_s(stream) > fb->max_gap_s) {
        br_stage_note(stage, "%.3f s are missing; new files are begun",
                      (double)(first - fb->next) * fb->step * br_stream_sample_s(stream));
        status = end(fb, &error);
    }
    if (status == BR_OK && !fb->open) status = begin(fb, stream, first, &error);
    if (status == BR_OK && first > fb->next) { /* the queue dropped frames */
        fb->rows.data = NULL;
        status = write_steps(fb, 0, first - fb->next, &error);
    }
    /* Beside a loss two frames may share a step; the first one wrote it. */
    if (status == BR_OK && first < fb->next) skip = fb->next - first < nsteps ? fb->next - first : nsteps;
    if (status == BR_OK && skip < nsteps) {
        fb->rows.data = in->data;
        fb->rows.side = in->side;
        fb->rows.valid = in->complete ? NULL : in->valid;
        fb->rows.nsteps = nsteps;
        status = write_steps(fb, (size_t)skip, nsteps - skip, &error);
    }
    return status == BR_OK ? BR_CONSUMED : br_stage_fail(stage, status, "%s", error.text);
}

static int stop(struct br_stage *stage, void *self)
{
    struct filterbank *fb = self;
    struct br_error error = {0};
    int status = end(fb, &error);
    size_t files = fb->nbands * fb->nbeams * fb->part;
    if (fb->part > 0)
        br_stage_note(stage, "%llu samples of %zu beam%s in %zu file%s, %s/%s*.fil",
                      (unsigned long long)fb->written, fb->nbeams, fb->nbeams == 1 ? "" : "s", files,
                      files == 1 ? "" : "s", fb->directory, fb->prefix);
    for (size_t b = 0; fb->missing != NULL && b < fb->nbands; b++) missing_destroy(&fb->missing[b]);
    files_destroy(&fb->files);
    file_lock_release(&fb->claim);
    free(fb->missing);
    free(fb->scratch);
    free(fb->rows.mean);
    free(fb->rows.seen);
    return status == BR_OK ? BR_OK : br_stage_fail(stage, status, "%s", error.text);
}

BR_STAGE_EXPORT = {
    .abi_version = BR_ABI_VERSION,
    .type_size = sizeof(struct br_stage_type),
    .name = "filterbank",
    .summary = "intensity beams to SIGPROC filterbank files, one per beam and band",
    .description = description,
    .params = params,
    .inputs = inputs,
    .size = sizeof(struct filterbank),
    .configure = configure,
    .start = start,
    .process = process,
    .stop = stop,
};
