/* uvh5 - visibilities into UVH5 files, which pyuvdata reads.
 *
 * Visibilities stay the integer sums that the correlator made; flags and numbers of samples say what is
 * behind each. */
#include "formats/uvh5/file.h"

#include "formats/common/fileio.h"
#include "formats/uvh5/apparent.h"
#include "runtime/stage_updates.h"
#include "stages/common/stage/earlier.h"
#include "stages/common/stage/made_with.h"
#include "stages/common/stage/names.h"
#include "stages/common/stage/shape.h"
#include "stages/uvh5_description.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct uvh5 {
    const char *directory, *prefix, *x_orientation, *instrument; /* parameters */
    int64_t integrations, npol;
    double altitude_m, ut1_utc_s;
    bool overwrite;
    struct names names;

    struct uvh5_layout layout;
    struct uvh5_file file;
    char path[4096];
    bool open, named;
    struct file_lock claim;          /* of the names of all files */
    uint64_t files, written;         /* integrations in all */
    uint64_t file_first, told_until; /* base samples: of the file's first; up to which its history speaks */
    char history[MADE_WITH_ROOM + 128];
};

static const char *const orientations[] = {"unknown", "east", "north", NULL};
static const struct br_param params[] = {
    BR_PARAM("directory", BR_P_PATH, struct uvh5, directory,
             "where the files go; it is made if there is none" NAMES_HELP, .def = "."),
    BR_PARAM("prefix", BR_P_STRING, struct uvh5, prefix, "files are PREFIX_NNNNNN.uvh5" NAMES_HELP,
             .def = "vis"),
    BR_PARAM("integrations", BR_P_INT, struct uvh5, integrations, "integrations in a file; 0: all in one",
             .def = "60", .min = 0, .max = 1e9),
    BR_PARAM("npol", BR_P_INT, struct uvh5, npol,
             "polarisations of a dish; 0: what the number of baselines tells", .def = "0", .min = 0,
             .max = 2),
    BR_PARAM("x_orientation", BR_P_CHOICE, struct uvh5, x_orientation,
             "where polarisation 0 (x) points; polarisation 1 (y) points the other way", .def = "unknown",
             .choices = orientations),
    BR_PARAM("altitude_m", BR_P_REAL, struct uvh5, altitude_m, "height of the site above the ellipsoid",
             .def = "0", .min = -1000, .max = 10000, .unit = "m"),
    BR_PARAM("ut1_utc_s", BR_P_REAL, struct uvh5, ut1_utc_s,
             "UT1 - UTC of the day (IERS); where it is given, sidereal times are written too", .min = -1,
             .max = 1, .unit = "s"),
    BR_PARAM("instrument", BR_P_STRING, struct uvh5, instrument, "the backend's name in the header",
             .def = "beamring"),
    BR_PARAM("overwrite", BR_P_BOOL, struct uvh5, overwrite,
             "replace earlier files of this directory and prefix, rather than refuse", .def = "false"),
    {0},
};
static const struct br_port inputs[] = {{"in", "V[time][freq][baseline], int32x2 (correlate)"}, {0}};

/* PREFIX_NNNNNN.uvh5 */
static bool is_ours(const char *name, const char *prefix)
{
    const char *rest = earlier_rest(name, prefix);
    return rest != NULL && strcmp(rest, ".uvh5") == 0;
}

static int check_site(struct br_stage *stage, struct uvh5 *u)
{
    const struct br_telescope *t = br_stage_telescope(stage);
    if (t == NULL)
        return br_stage_fail(stage, BR_E_INVALID,
                             "it needs the dishes' places: add `telescope:` to the pipeline");
    if (!isfinite(t->latitude_deg) || !isfinite(t->longitude_deg))
        return br_stage_fail(stage, BR_E_INVALID,
                             "UVH5 needs the site: add latitude_deg and longitude_deg to `telescope:`");
    if (br_stage_given(stage, "ut1_utc_s") && !apparent_is_there())
        return br_stage_fail_at(stage, "ut1_utc_s",
                                "this beamring was built without ERFA, which computes sidereal times "
                                "(liberfa-dev)");
    u->layout.with_lst = br_stage_given(stage, "ut1_utc_s");
    return BR_OK;
}

/* Which inputs the baselines join, and the pairs of dishes in their order. */
static int make_layout(struct br_stage *stage, struct uvh5 *u, const struct br_stream *in)
{
    struct uvh5_layout *l = &u->layout;
    struct br_error error = {0};
    struct br_stream *stream = br_stage_alloc(stage, sizeof *stream);
    *stream = *in;
    stream->telescope = br_stage_telescope(stage);
    l->stream = stream;
    l->altitude_m = u->altitude_m;
    l->ut1_utc_s = l->with_lst ? u->ut1_utc_s : 0;
    l->conjugate = br_sideband_sign(br_stage_sideband(stage)) > 0;
    l->x_orientation = u->x_orientation;
    l->instrument = u->instrument;
    l->history = u->history;
    size_t ndishes = stream->telescope->ndishes;
    if (baselines_find(&l->inputs, in->array.axis[2].length, ndishes, (size_t)u->npol, &error) != BR_OK)
        return br_stage_fail_at(stage, "npol", "%s", error.text);
    l->npairs = l->inputs.autos ? ndishes : ndishes * (ndishes + 1) / 2;
    l->npols = l->inputs.npol == 1 ? 1 : l->inputs.autos ? 2 : 4;
    struct uvh5_pair *pair = br_stage_alloc(stage, l->npairs * sizeof *pair);
    size_t n = 0;
    for (uint32_t a = 0; a < ndishes; a++)
        for (uint32_t b = a; b < (l->inputs.autos ? a + 1 : ndishes); b++)
            pair[n++] = (struct uvh5_pair){a, b};
    l->pair = pair;
    return BR_OK;
}

static int configure(struct br_stage *stage, void *self)
{
    struct uvh5 *u = self;
    const struct br_stream *in = br_stage_input(stage, 0);
    char found[4096];
    int status = br_expect_input(stage, 1u << BR_INT32X2, "time,freq,baseline",
                                 "int32x2 V[time][freq][baseline], as correlate makes it");
    if (status == BR_OK) status = check_site(stage, u);
    if (status == BR_OK) status = make_layout(stage, u, in);
    if (status != BR_OK) return status;
    if (u->prefix[0] == '\0' || strchr(u->prefix, '/') != NULL || strlen(u->prefix) > 150)
        return br_stage_fail_at(stage, "prefix",
                                "'%.160s'; expected the start of a file's name, at most 150 letters "
                                "without '/'",
                                u->prefix);
    status = names_configure(&u->names, stage, &u->directory, &u->prefix, u->overwrite);
    if (status != BR_OK) return status;
    if (strlen(u->directory) + strlen(u->prefix) + 32 > sizeof u->path)
        return br_stage_fail_at(stage, "directory", "the name is too long");
    snprintf(found, sizeof found, "%.160s_", u->prefix);
    status = br_stage_writes_files(stage, "prefix", u->directory, found, ".uvh5");
    if (status != BR_OK || u->overwrite) return status;
    earlier_files(u->directory, u->prefix, is_ours, found, sizeof found);
    if (found[0] == '\0') return BR_OK;
    return br_stage_fail_run_at(stage, "prefix",
                                "%s exists and would be lost; move it away, choose another prefix or "
                                "directory, perhaps with {start} in it, or set overwrite: true",
                                found);
}

/* HDF5 knows no threads unless it was built so, and a pipeline may have several of these. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Makes the directory and takes the names of all files, as soon as they are known. */
static int take_names(struct br_stage *stage, struct uvh5 *u)
{
    snprintf(u->path, sizeof u->path, "%s", u->directory);
    if (fileio_make_directory(u->path) != 0 || access(u->directory, W_OK | X_OK) != 0)
        return br_stage_fail(stage, BR_E_IO, "cannot write into directory %s: %s", u->directory,
                             strerror(errno));
    struct br_error error = {0};
    if (earlier_claim(&u->claim, u->directory, u->prefix, &error) != BR_OK ||
        (u->overwrite && earlier_remove(u->directory, u->prefix, is_ours, &error) != BR_OK))
        return br_stage_fail(stage, BR_E_IO, "%s", error.text);
    u->named = true;
    return BR_OK;
}

static int start(struct br_stage *stage, void *self)
{
    struct uvh5 *u = self;
    u->claim.fd = -1;
    u->file = (struct uvh5_file){.store = {.file = -1}, .header = -1, .data = -1};
    return u->names.late ? BR_OK : take_names(stage, u);
}

/* Completes the open file. */
static int finish(struct br_stage *stage, struct uvh5 *u)
{
    if (!u->open) return BR_OK;
    u->open = false;
    int why = uvh5_close(&u->file);
    if (why == 0) return BR_OK;
    if (u->file.integrations > 0)
        return br_stage_fail(stage, BR_E_IO,
                             "cannot write to %s: %s; the %llu integrations before this are in it", u->path,
                             strerror(why), (unsigned long long)u->file.integrations);
    unlink(u->path);
    return br_stage_fail(stage, BR_E_IO, "cannot write to %s: %s; it is removed, no integration is whole",
                         u->path, strerror(why));
}

/* With the updates that the file's data up to base sample `end` were made with. */
static void make_history(const struct br_stage *stage, struct uvh5 *u, uint64_t end)
{
    char updates[MADE_WITH_ROOM];
    size_t length = made_with(stage, u->file_first, end, updates, sizeof updates);
    snprintf(u->history, sizeof u->history, "Written by beamring: sums over nsamples samples, not means.%s%s",
             length > 0 ? " Updates: " : "", updates);
}

static int write_row(struct br_stage *stage, struct uvh5 *u, const struct uvh5_row *row)
{
    if (u->open && u->integrations > 0 && u->file.integrations == (uint64_t)u->integrations) {
        int status = finish(stage, u);
        if (status != BR_OK) return status;
    }
    if (!u->open) {
        snprintf(u->path, sizeof u->path, "%.3800s/%.160s_%06llu.uvh5", u->directory, u->prefix,
                 (unsigned long long)u->files);
        if (!u->overwrite && access(u->path, F_OK) == 0)
            return br_stage_fail(stage, BR_E_IO, "%s is there already; it is not replaced", u->path);
        u->files++;
        u->file_first = row->first;
        make_history(stage, u, row->end);
        struct br_error error = {0};
        if (uvh5_create(&u->file, &u->layout, u->path, u->overwrite, &error) != BR_OK)
            return br_stage_fail(stage, error.status, "%s", error.text);
        u->open = true;
    }
    bool good = true;
    if (u->file.integrations > 0 && br_stage_updates_begun(stage, u->told_until, row->end, NULL, 0) > 0) {
        make_history(stage, u, row->end);
        good = uvh5_set_history(&u->file, u->history);
    }
    u->told_until = row->end;
    if ((good ? uvh5_append(&u->file, &u->layout, row) : hdf5_store_commit(&u->file.store, false)) != 0)
        return finish(stage, u); /* which says why */
    u->written++;
    return BR_OK;
}

/* Step k of a frame as the file wants it. Where an integration was cut, by the start or the end of the
 * stream, its time is that of what is there. */
static struct uvh5_row row_of(const struct br_stream *s, const struct br_frame *in, size_t k)
{
    uint64_t d = s->zone[0].downsample, begin = (in->first / d + k) * d, end = begin + d;
    if (begin < in->first) begin = in->first;
    if (end > in->first + in->samples) end = in->first + in->samples;
    double sample_s = br_stream_sample_s(s);
    size_t nbaselines = s->array.axis[2].length;
    int64_t half = llround((double)(end - begin) * sample_s * 0.5e9);
    return (struct uvh5_row){.first = begin,
                             .end = end,
                             .centre_ns = br_stream_time_ns(s, begin) + half,
                             .seconds = (double)(end - begin) * sample_s,
                             .samples = (double)d / s->zone[0].factor,
                             .v = (const int32_t *)in->data + 2 * k * s->nchannels * nbaselines,
                             .valid = in->complete ? NULL : in->valid + k * s->nchannels};
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct uvh5 *u = self;
    const struct br_stream *s = u->layout.stream;
    const struct br_frame *in = io->in[0];
    int status = BR_OK;
    if (in == NULL) return BR_FINISHED;
    if (!u->named) {
        names_fill(&u->names, stage, in->first);
        status = take_names(stage, u);
        if (status != BR_OK) return status;
    }
    size_t nsteps = br_time_steps(in->first, in->samples, s->zone[0].downsample);
    br_stage_waits_for(stage, "the disk");
    pthread_mutex_lock(&lock);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL); /* this thread's: we say what went wrong */
    for (size_t k = 0; k < nsteps && status == BR_OK; k++) {
        struct uvh5_row row = row_of(s, in, k);
        status = write_row(stage, u, &row);
    }
    pthread_mutex_unlock(&lock);
    br_stage_waits_for(stage, NULL);
    return status == BR_OK ? BR_CONSUMED : status;
}

static int stop(struct br_stage *stage, void *self)
{
    struct uvh5 *u = self;
    pthread_mutex_lock(&lock);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    int status = finish(stage, u);
    pthread_mutex_unlock(&lock);
    file_lock_release(&u->claim);
    if (u->written > 0)
        br_stage_note(stage, "%llu integrations in %llu file%s %s/%s_*.uvh5", (unsigned long long)u->written,
                      (unsigned long long)u->files, u->files == 1 ? "," : "s,", u->directory, u->prefix);
    else if (u->files == 0)
        br_stage_warn(stage, "no integration came, so there is no file");
    return status;
}

BR_STAGE_EXPORT = {
    .abi_version = BR_ABI_VERSION,
    .type_size = sizeof(struct br_stage_type),
    .name = "uvh5",
    .summary = "visibilities into UVH5 files, which pyuvdata reads",
    .description = description,
    .params = params,
    .inputs = inputs,
    .size = sizeof(struct uvh5),
    .configure = configure,
    .start = start,
    .process = process,
    .stop = stop,
};
