/* frb_grid - FRB stage 1: gridding, weights, zero-padded 2-d transform, square, sum over polarisation and
 * time. Parameters, plans and new gains; blocks.c has the stream. */
#include "stages/frb_grid/frb_grid.h"
#include "runtime/stage_updates.h"
#include "stages/common/stage/export.h"
#include "stages/common/stage/gains.h"
#include "stages/common/stage/gpu.h"
#include "stages/common/stage/parallel.h"
#include "stages/common/stage/shape.h"
#include "stages/frb_grid_description.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct br_param params[] = {
    PARAM(INT, struct frb_grid, downsample,
          "samples of the input in one output sample; for a band with one upchannelization factor",
          .def = "0", .min = 0, .max = 1 << 24, .unit = "input samples"),
    PARAM(INT, struct frb_grid, integrate,
          "base samples in one output sample; every zone's factor divides it", .def = "0", .min = 0,
          .max = 1 << 24, .unit = "base samples"),
    BR_PARAM("gains", BR_P_PATH, struct frb_grid, gains_file,
             "HDF5 file with /gain complex64 [freq][pol][dish], freq being 1, the coarse or the fine "
             "channels; default all 1"),
    PARAM(REAL, struct frb_grid, threshold, "outputs with a smaller fraction of valid input are masked",
          .def = "0.5", .min = 0, .max = 1),
    PARAM(INT, struct frb_grid, headroom,
          "room for updates to larger gains: the scale is this many powers of two above the one that the "
          "first gains need",
          .def = "0", .min = 0, .max = 16, .unit = "powers of two"),
    PARAM(INT, struct frb_grid, frame, "length of an output frame; 0 chooses one near the input's",
          .def = "0", .min = 0, .max = 1 << 20, .unit = "output samples"),
    {0},
};
static const struct br_port inputs[] = {{"in", "E[time][freq][pol][dish], int4x2, zoned or not"}, {0}};
static const struct br_port outputs[] = {{"out", "I[freq][time][gridp][gridq], f16, over all fine channels"},
                                         {0}};

static int take_block(struct br_stage *stage, struct frb_grid *fg, const struct br_stream *in)
{
    if ((fg->downsample > 0) == (fg->integrate > 0))
        return br_stage_fail(stage, BR_E_INVALID,
                             "%s of downsample (input samples) and integrate (base samples); expected one",
                             fg->downsample > 0 ? "it has both" : "it has none");
    fg->boundary = 1;
    for (unsigned z = 0; z < in->nzones; z++)
        if (in->zone[z].downsample > fg->boundary) fg->boundary = in->zone[z].downsample;
    if (fg->downsample > 0 && br_stream_is_zoned(in))
        return br_stage_fail_at(stage, "downsample",
                                "the zones of its input have samples of different lengths; give "
                                "`integrate` in base samples instead");
    fg->block = fg->downsample > 0 ? (uint64_t)fg->downsample * fg->boundary : (uint64_t)fg->integrate;
    if (fg->block > UINT32_MAX)
        return br_stage_fail_at(stage, "downsample", "%llu base samples are too many for one step",
                                (unsigned long long)fg->block);
    for (unsigned z = 0; z < in->nzones; z++)
        if (fg->block % in->zone[z].downsample != 0)
            return br_stage_fail_at(stage, "integrate",
                                    "%llu base samples are not a multiple of the %u of one sample of zone %u",
                                    (unsigned long long)fg->block, in->zone[z].downsample, z);
    return BR_OK;
}

static int take_gains(struct br_stage *stage, struct frb_grid *fg, const struct br_stream *in, size_t npol,
                      size_t ndishes)
{
    struct br_gains gains;
    struct br_gains_shape shape = {in, 0, in->nchannels, npol, ndishes};
    for (unsigned z = 0; z < in->nzones; z++) shape.ncoarse += in->zone[z].nchannels / in->zone[z].factor;
    int status = br_stage_gains(stage, fg->gains_file, &shape, &gains);
    fg->gain_channels = gains.nfreq;
    fg->gains = gains.value;
    if (status != BR_OK || fg->gains == NULL) return status;
    size_t count = gains.nfreq * npol * ndishes * 2, zeros = 0;
    while (zeros < count && fg->gains[zeros] == 0) zeros++;
    if (zeros == count) return br_stage_fail_at(stage, "gains", "%s: all gains are 0", fg->gains_file);
    return BR_OK;
}

/* Parameters of zone z's plan but for its gains. */
static struct br_frb_grid_params zone_shape(const struct frb_grid *fg, const struct br_stream *in, unsigned z)
{
    const struct br_zone *zone = &in->zone[z];
    return (struct br_frb_grid_params){.nchannels = zone->nchannels,
                                       .npol = in->array.axis[2].length,
                                       .ndishes = in->array.axis[3].length,
                                       .grid_m = in->telescope->grid_m,
                                       .grid_n = in->telescope->grid_n,
                                       .dish_cell = (const uint16_t *)fg->dish_cell,
                                       .downsample = (unsigned)(fg->block / zone->downsample),
                                       .log2_scale = fg->log2_scale,
                                       .threshold = fg->threshold};
}

/* The same with the gains of its fine channels, in malloc'ed fg->weights[z]. */
static int zone_params(struct br_stage *stage, struct frb_grid *fg, unsigned z, struct br_frb_grid_params *p)
{
    const struct br_stream *in = br_stage_input(stage, 0);
    const struct br_zone *zone = &in->zone[z];
    *p = zone_shape(fg, in, z);
    if (fg->gains == NULL) return BR_OK;
    size_t row = fg->spectators * 2, rows = fg->gain_channels == 1 ? 1 : zone->nchannels, coarse = 0;
    p->weight_channels = rows;
    fg->weights[z] = malloc(rows * row * sizeof(float));
    if (fg->weights[z] == NULL) return br_no_memory(stage, rows * row * sizeof(float));
    for (unsigned i = 0; i < z; i++) coarse += in->zone[i].nchannels / in->zone[i].factor;
    for (size_t c = 0; c < rows; c++) {
        size_t from = fg->gain_channels == 1               ? 0
                      : fg->gain_channels == in->nchannels ? zone->first_channel + c
                                                           : coarse + c / zone->factor;
        memcpy(fg->weights[z] + c * row, fg->gains + from * row, row * sizeof(float));
    }
    p->weights = fg->weights[z];
    return BR_OK;
}

static void free_weights(struct frb_grid *fg)
{
    for (unsigned z = 0; z < BR_MAX_ZONES; z++) {
        free(fg->weights[z]);
        fg->weights[z] = NULL;
    }
}

/* One power of two for all zones, so that one number describes the stream. It stays what it is when gains are
 * updated: those who read the stream were told. */
static int choose_scale(struct br_stage *stage, struct frb_grid *fg, const struct br_stream *in)
{
    const struct frb_grid *now = br_stage_running(stage);
    int needed = -1000;
    for (unsigned z = 0; z < in->nzones; z++) {
        struct br_frb_grid_params p;
        int status = zone_params(stage, fg, z, &p);
        if (status != BR_OK) {
            free_weights(fg);
            return status;
        }
        int k = br_frb_grid_log2_scale(&p);
        if (k > needed) needed = k;
    }
    free_weights(fg);
    fg->log2_scale = now != NULL ? now->log2_scale : needed + (int)fg->headroom;
    if (needed <= fg->log2_scale) return BR_OK;
    return br_stage_fail_at(stage, "gains",
                            "they are too large for the scale of the stream, 2^%d, which was chosen for the "
                            "first ones: full scale on every dish needs 2^%d; expected smaller ones, or a "
                            "restart with `headroom: %d` or more",
                            fg->log2_scale, needed, needed - fg->log2_scale + (int)now->headroom);
}

static int configure(struct br_stage *stage, void *self)
{
    struct frb_grid *fg = self;
    const struct br_stream *in = br_stage_input(stage, 0);
    struct br_stream *out = br_stage_output(stage, 0);
    int status =
        br_expect_input(stage, 1u << BR_INT4X2, "time,freq,pol,dish", "int4x2 [time][freq][pol][dish]");
    if (status != BR_OK) return status;
    const struct br_telescope *t = in->telescope;
    if (t == NULL)
        return br_stage_fail(stage, BR_E_INVALID,
                             "it needs to know the cell of every dish: add `telescope:` to the pipeline");
    if (t->dishes == NULL)
        return br_stage_fail(
            stage, BR_E_INVALID,
            "the dishes of telescope '%s' are not on a grid, which it needs: add grid, spacing_m "
            "and dishes to `telescope:`, or use the stage power_beams, which needs positions only",
            t->name);
    if (t->grid_m > 64 || t->grid_n > 64)
        return br_stage_fail(stage, BR_E_INVALID,
                             "telescope '%s' has a grid of %u x %u cells; at most 64 x 64 are supported",
                             t->name, t->grid_m, t->grid_n);
    size_t npol = in->array.axis[2].length, ndishes = in->array.axis[3].length;
    if (t->grid_m % 4 != 0 || t->grid_n % 4 != 0 || t->grid_m < 8 || t->grid_m > 32 || t->grid_n < 8 ||
        t->grid_n > 32)
        status = br_stage_decline_gpu(
            stage, "on a GPU the grid must have 8, 12, ... 32 cells each way; telescope '%s' has %u x %u",
            t->name, t->grid_m, t->grid_n);
    if (status == BR_OK && npol > 2)
        status = br_stage_decline_gpu(stage, "on a GPU it takes one or two polarisations, not %zu", npol);
    if (status != BR_OK) return status;
    fg->spectators = npol * ndishes;
    fg->cells = 4 * (size_t)t->grid_m * t->grid_n;
    status = take_block(stage, fg, in);
    if (status == BR_OK) status = take_gains(stage, fg, in, npol, ndishes);
    if (status != BR_OK) return status;

    fg->nblocks = br_blocks_of_frame(in, fg->block, in->nchannels * fg->cells * sizeof(uint16_t), fg->frame);
    size_t lengths[4] = {in->nchannels, fg->nblocks, 2 * (size_t)t->grid_m, 2 * (size_t)t->grid_n};
    status = br_output_array(stage, out, BR_F16, "freq,time,gridp,gridq", lengths);
    if (status != BR_OK) return status;
    out->frame_samples = fg->nblocks * fg->block;
    for (unsigned z = 0; z < out->nzones; z++) out->zone[z].downsample = (unsigned)fg->block;

    fg->dish_cell = br_stage_alloc(stage, ndishes * sizeof *fg->dish_cell);
    for (size_t d = 0; d < ndishes; d++) {
        fg->dish_cell[d][0] = t->dishes[d].m;
        fg->dish_cell[d][1] = t->dishes[d].n;
    }
    status = choose_scale(stage, fg, in);
    out->scale = ldexp(1, fg->log2_scale);
    return status;
}

/* Validity of a call, and a number for every block that it completes; each zone's begin at a multiple of
 * 256. */
static size_t upload_bytes(const struct frb_grid *fg, const struct br_stream *in)
{
    return br_stream_max_validity(in) + 16 * in->nchannels * (fg->nblocks + 2) +
           512 * in->nzones * (fg->nblocks / 64 + 2);
}

/* A row of the output, and the weights of the grid's cells, of every channel where the gains are. On a GPU of
 * every channel the sums of a block and of its parts, 2M x 2N each, and samples; on the CPU what the plans
 * say. */
static void memory(struct br_stage *stage, void *self, struct br_memory *m)
{
    const struct frb_grid *fg = self;
    const struct br_stream *in = br_stage_input(stage, 0);
    size_t weights = fg->gain_channels > 1 ? in->nchannels : 1;
    bool on_device = br_stage_device(stage) >= 0;
    br_stage_uploads_memory(stage, upload_bytes(fg, in), m);
    br_stage_buffer_memory(stage, fg->nblocks * fg->cells * sizeof *fg->row, m);
    br_stage_buffer_memory(stage, weights * in->nzones * fg->cells * 2 * sizeof(float), m);
    if (on_device) m->device += 2 * in->nchannels * fg->cells * sizeof(float);
    for (unsigned z = 0; z < in->nzones; z++) {
        const struct br_frb_grid_params p = zone_shape(fg, in, z);
        if (on_device)
            m->device += br_frb_grid_device_bytes(&p);
        else
            m->host += br_frb_grid_host_bytes(&p, br_stage_threads(stage));
    }
}

static int make_plans(struct br_stage *stage, struct frb_grid *fg, enum br_backend backend)
{
    const struct br_stream *in = br_stage_input(stage, 0);
    int status = BR_OK;
    for (unsigned z = 0; z < in->nzones && status == BR_OK; z++) {
        struct br_frb_grid_params p;
        struct br_why why = {""};
        status = zone_params(stage, fg, z, &p);
        p.cuda = fg->cuda;
        p.parallel = br_stage_parallel_loop(stage);
        if (status == BR_OK && br_frb_grid_create(&fg->plan[z], backend, &p, &why) != 0)
            status = br_stage_fail(stage, BR_E_INVALID, "%s", why.text);
    }
    free_weights(fg);
    return status;
}

static int start(struct br_stage *stage, void *self)
{
    struct frb_grid *fg = self;
    enum br_backend backend;
    int status = br_stage_backend(stage, upload_bytes(fg, br_stage_input(stage, 0)), &backend, &fg->cuda);
    if (status != BR_OK) return status;
    fg->row = br_stage_scratch(stage, fg->cuda, fg->nblocks * fg->cells * sizeof *fg->row);
    if (fg->row == NULL) return BR_E_NO_MEMORY;
    status = make_plans(stage, fg, backend);
    return status == BR_OK ? br_stage_gpu_holds(stage, fg->cuda) : status;
}

/* --- new gains and thresholds --- */

static int prepare(struct br_stage *stage, void *fresh, const void *self)
{
    struct frb_grid *fg = fresh;
    const struct frb_grid *now = self;
    const struct br_stream *in = br_stage_input(stage, 0);
    struct br_why why = {""};
    enum br_backend backend;
    int status = br_stage_backend_aside(stage, now->cuda, &backend, &fg->cuda);
    if (status == BR_OK) status = make_plans(stage, fg, backend);
    for (unsigned z = 0; z < in->nzones && status == BR_OK; z++)
        if (br_frb_grid_may_exchange(now->plan[z], fg->plan[z], &why) != 0)
            status = br_stage_fail_at(stage, "gains", "%s; restart the pipeline with them", why.text);
    return status;
}

static void commit(struct br_stage *stage, void *self, void *fresh, uint64_t sample)
{
    (void)sample;
    struct frb_grid *fg = self, *with = fresh;
    for (unsigned z = 0; z < br_stage_input(stage, 0)->nzones; z++)
        br_frb_grid_exchange(fg->plan[z], with->plan[z]);
}

static void discard(struct br_stage *stage, void *fresh)
{
    (void)stage;
    struct frb_grid *fg = fresh;
    for (unsigned z = 0; z < BR_MAX_ZONES; z++) br_frb_grid_destroy(fg->plan[z]);
    br_cuda_destroy(fg->cuda);
}

static const char *const updates[] = {"gains", "threshold", NULL};

static int stop(struct br_stage *stage, void *self)
{
    struct frb_grid *fg = self;
    for (unsigned z = 0; z < BR_MAX_ZONES; z++) br_frb_grid_destroy(fg->plan[z]);
    br_stage_scratch_free(fg->cuda, fg->row);
    br_stage_gpu_end(stage, fg->cuda);
    return BR_OK;
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    return frb_grid_process(stage, self, io);
}

STAGE_EXPORT(frb_grid, struct frb_grid,
             "FRB stage 1: intensities on a grid of directions, summed over polarisation and time",
             .inputs = inputs, .outputs = outputs, .flags = BR_STAGE_CUDA | BR_STAGE_COMMITS,
             .memory = memory, .updates = updates, .prepare = prepare, .commit = commit, .discard = discard);
