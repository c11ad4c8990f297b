/* uvh5 - visibilities into UVH5 files, which pyuvdata reads.
 *
 * Visibilities stay the integer sums that the correlator made; flags and numbers of samples say what is
 * behind each. */
#include "formats/uvh5/write.h"

#include "formats/sky/apparent.h"
#include "stages/common/stage/earlier.h"
#include "stages/common/stage/export.h"
#include "stages/common/stage/names.h"
#include "stages/common/stage/shape.h"
#include "stages/common/stage/writing.h"
#include "stages/uvh5_description.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct uvh5 {
    const char *directory, *prefix, *x_orientation, *instrument; /* parameters */
    int64_t integrations, npol;
    double altitude_m, ut1_utc_s;
    bool overwrite;
    struct names names;

    struct uvh5_out out;
    struct file_writer writer;
};

static const char *const orientations[] = {"unknown", "east", "north", NULL};
static const struct br_param params[] = {
    PARAM(PATH, struct uvh5, directory, "folder for the files; created if it does not exist" NAMES_HELP,
          .def = "."),
    PARAM(STRING, struct uvh5, prefix, "files are PREFIX_NNNNNN.uvh5" NAMES_HELP, .def = "vis"),
    PARAM(INT, struct uvh5, integrations, "integrations in a file; 0: all in one", .def = "60", .min = 0,
          .max = 1e9),
    PARAM(INT, struct uvh5, npol, "polarisations of a dish; 0: follows from the number of baselines",
          .def = "0", .min = 0, .max = 2),
    PARAM(CHOICE, struct uvh5, x_orientation,
          "where polarisation 0 (x) points; polarisation 1 (y) points the other way", .def = "unknown",
          .choices = orientations),
    PARAM(REAL, struct uvh5, altitude_m,
          "height of the site above the ellipsoid; default: the telescope's height_m, or 0", .min = -1000,
          .max = 10000, .unit = "m"),
    PARAM(REAL, struct uvh5, ut1_utc_s,
          "UT1 - UTC of the day (IERS); if it is given, sidereal times are written too", .min = -1, .max = 1,
          .unit = "s"),
    PARAM(STRING, struct uvh5, instrument, "the backend's name in the header", .def = "beamring"),
    PARAM(BOOL, struct uvh5, overwrite,
          "replace earlier files of this directory and prefix instead of refusing to start", .def = "false"),
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
    const struct br_telescope *t = br_stage_input(stage, 0)->telescope;
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
    u->out.layout.with_lst = br_stage_given(stage, "ut1_utc_s");
    return BR_OK;
}

/* Which inputs the baselines join, and the pairs of dishes in their order. */
static int make_layout(struct br_stage *stage, struct uvh5 *u, const struct br_stream *in)
{
    struct uvh5_layout *l = &u->out.layout;
    struct br_error error = {0};
    const struct br_telescope *t = in->telescope;
    l->stream = in;
    l->altitude_m = isfinite(u->altitude_m) ? u->altitude_m : isfinite(t->height_m) ? t->height_m : 0;
    l->ut1_utc_s = l->with_lst ? u->ut1_utc_s : 0;
    l->conjugate = br_sideband_sign(br_stage_sideband(stage)) > 0;
    l->x_orientation = u->x_orientation;
    l->instrument = u->instrument;
    size_t ndishes = t->ndishes;
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
    status = names_configure(&u->names, stage, &u->directory, &u->prefix, u->overwrite, is_ours);
    if (status != BR_OK) return status;
    if (strlen(u->directory) + strlen(u->prefix) + 32 > WRITER_PATH)
        return br_stage_fail_at(stage, "directory", "the name is too long");
    snprintf(found, sizeof found, "%.160s_", u->prefix);
    status = br_stage_writes_files(stage, "prefix", u->directory, found, ".uvh5");
    return status == BR_OK ? names_check(&u->names, stage, "prefix") : status;
}

/* HDF5 knows no threads unless it was built so, and a pipeline may have several of these. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void lock_hdf5(void)
{
    pthread_mutex_lock(&lock);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL); /* this thread's: we say what went wrong */
}

/* Makes the directory and takes the names of all files, as soon as they are known. */
static int take_names(struct br_stage *stage, struct uvh5 *u)
{
    u->writer.directory = u->directory;
    u->writer.prefix = u->prefix;
    int status = names_begin(&u->names, stage);
    return status == BR_OK ? writing_status(stage, &u->writer, writer_open(&u->writer)) : status;
}

static int start(struct br_stage *stage, void *self)
{
    struct uvh5 *u = self;
    u->out.integrations = (uint64_t)u->integrations;
    u->writer = (struct file_writer){.format = &uvh5_files,
                                     .stream = u->out.layout.stream,
                                     .host = writing_host(stage),
                                     .state = &u->out,
                                     .overwrite = u->overwrite};
    return u->names.late ? BR_OK : take_names(stage, u);
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct uvh5 *u = self;
    if (io->in[0] == NULL) return BR_FINISHED;
    if (!u->names.begun) {
        names_fill(&u->names, stage, io->in[0]->first);
        int named = take_names(stage, u);
        if (named != BR_OK) return named;
    }
    br_stage_waits_for(stage, "the disk");
    lock_hdf5();
    int status = writer_put(&u->writer, io->in[0]);
    pthread_mutex_unlock(&lock);
    br_stage_waits_for(stage, NULL);
    return status == BR_OK ? BR_CONSUMED : writing_status(stage, &u->writer, status);
}

static int stop(struct br_stage *stage, void *self)
{
    struct uvh5 *u = self;
    const struct file_writer *w = &u->writer;
    lock_hdf5();
    int status = writer_close(&u->writer);
    pthread_mutex_unlock(&lock);
    file_lock_release(&u->names.claim);
    if (u->out.written > 0)
        br_stage_note(stage, "%llu integrations in %llu file%s %s/%s_*.uvh5",
                      (unsigned long long)u->out.written, (unsigned long long)w->files,
                      w->files == 1 ? "," : "s,", u->directory, u->prefix);
    else if (w->files == 0)
        br_stage_warn(stage, "no integration arrived, so no file was written");
    return writing_status(stage, w, status);
}

STAGE_EXPORT(uvh5, struct uvh5, "visibilities into UVH5 files, which pyuvdata reads", .inputs = inputs);
