/* frb_grid - FRB stage 1: gridding, weights, zero-padded 2-d transform, square, sum over polarisation and
 * time.
 *
 * An output frame is filled over several calls, and an input frame may be spread over several output frames,
 * so this file is mostly about where blocks lie in both. All zones complete the same blocks of base samples.
 */
#include "kernels/frb_grid/frb_grid.h"
#include "runtime/stage.h"
#include "stages/common/stage/gpu.h"
#include "stages/common/stage/parallel.h"
#include "stages/common/stage/shape.h"
#include "stages/common/tables/hdf5_tables.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FRAME_BYTES = 32 << 20 }; /* frames stay below this when they hold more than one block */

struct frb_grid {
    int64_t downsample, integrate, frame; /* parameters */
    const char *gains_file;
    double threshold;

    const float *gains; /* [gain_channels][pol][dish][2], NULL: all 1 */
    size_t gain_channels;
    uint64_t block;    /* base samples per output step */
    size_t nblocks;    /* steps in a full output frame */
    size_t cells;      /* 2M x 2N */
    size_t spectators; /* pol x dish: bytes of one channel in a row of input */
    unsigned boundary; /* the largest input step, in base samples */
    int log2_scale;
    struct br_frb_grid *plan[BR_MAX_ZONES];
    struct br_cuda *cuda;         /* NULL on the CPU */
    uint16_t *row;                /* [nblocks][cells], where the frames are */
    float *weights[BR_MAX_ZONES]; /* expanded to fine channels; only while plans are made */
    uint16_t (*dish_cell)[2];

    /* The stream: `cursor` is the base sample up to which input went into blocks. */
    bool running;
    /* The output frame being filled: blocks [first_block, first_block + length), of which zone z has
     * done[z]. */
    uint64_t cursor;
    bool open;
    uint64_t start, first_block;
    size_t length, done[BR_MAX_ZONES];
    size_t taken[BR_MAX_ZONES]; /* steps of the current input frame that zone z has used */
    bool resumed;               /* the current input frame was begun in an earlier call */
};

static const struct br_param params[] = {
    BR_PARAM("downsample", BR_P_INT, struct frb_grid, downsample,
             "samples of the input in one output sample; for a band with one upchannelization factor",
             .def = "0", .min = 0, .max = 1 << 24, .unit = "input samples"),
    BR_PARAM("integrate", BR_P_INT, struct frb_grid, integrate,
             "base samples in one output sample; every zone's factor divides it", .def = "0", .min = 0,
             .max = 1 << 24, .unit = "base samples"),
    BR_PARAM("gains", BR_P_PATH, struct frb_grid, gains_file,
             "HDF5 file with /gain complex64 [freq][pol][dish], freq being 1, the coarse or the fine "
             "channels; default all 1"),
    BR_PARAM("threshold", BR_P_REAL, struct frb_grid, threshold,
             "outputs with a smaller fraction of valid input are masked", .def = "0.5", .min = 0, .max = 1),
    BR_PARAM("frame", BR_P_INT, struct frb_grid, frame,
             "length of an output frame; 0 chooses one near the input's", .def = "0", .min = 0,
             .max = 1 << 20, .unit = "output samples"),
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
    struct br_error error = {0};
    struct br_gains gains;
    if (fg->gains_file == NULL) return BR_OK;
    if (br_gains_check_channels(fg->gains_file, in, &error) != BR_OK ||
        br_gains_read(&gains, fg->gains_file, &error) != BR_OK)
        return br_stage_fail_at(stage, "gains", "%s", error.text);
    size_t ncoarse = 0;
    for (unsigned z = 0; z < in->nzones; z++) ncoarse += in->zone[z].nchannels / in->zone[z].factor;
    fg->gain_channels = gains.nfreq;
    fg->gains =
        br_stage_keep(stage, gains.value, gains.nfreq * gains.npol * gains.ndishes * 2 * sizeof(float));
    if (gains.npol != npol || gains.ndishes != ndishes ||
        (gains.nfreq != 1 && gains.nfreq != ncoarse && gains.nfreq != in->nchannels))
        return br_stage_fail_at(stage, "gains",
                                "%s: /gain is [%zu][%zu][%zu]; expected freq 1, %zu (coarse) or %zu (fine), "
                                "pol %zu, dish %zu",
                                fg->gains_file, gains.nfreq, gains.npol, gains.ndishes, ncoarse,
                                in->nchannels, npol, ndishes);
    size_t count = gains.nfreq * npol * ndishes * 2, zeros = 0;
    while (zeros < count && fg->gains[zeros] == 0) zeros++;
    if (zeros == count) return br_stage_fail_at(stage, "gains", "%s: all gains are 0", fg->gains_file);
    return BR_OK;
}

/* Parameters of zone z's plan, with the gains of its fine channels in malloc'ed fg->weights[z]. */
static int zone_params(struct br_stage *stage, struct frb_grid *fg, unsigned z, struct br_frb_grid_params *p)
{
    const struct br_stream *in = br_stage_input(stage, 0);
    const struct br_telescope *t = in->telescope;
    const struct br_zone *zone = &in->zone[z];
    *p = (struct br_frb_grid_params){.nchannels = zone->nchannels,
                                     .npol = in->array.axis[2].length,
                                     .ndishes = in->array.axis[3].length,
                                     .grid_m = t->grid_m,
                                     .grid_n = t->grid_n,
                                     .dish_cell = (const uint16_t *)fg->dish_cell,
                                     .downsample = (unsigned)(fg->block / zone->downsample),
                                     .log2_scale = fg->log2_scale,
                                     .threshold = fg->threshold};
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

    /* A frame near the duration of the input's, but not a very large one, and not less than one block. */
    size_t per_block = in->nchannels * fg->cells * sizeof(uint16_t), most = FRAME_BYTES / per_block;
    fg->nblocks = (size_t)((in->frame_samples + fg->block / 2) / fg->block);
    if (fg->nblocks > most) fg->nblocks = most;
    if (fg->nblocks < 1) fg->nblocks = 1;
    if (fg->frame > 0) fg->nblocks = (size_t)fg->frame;
    size_t lengths[4] = {in->nchannels, fg->nblocks, 2 * (size_t)t->grid_m, 2 * (size_t)t->grid_n};
    struct br_error error = {0};
    if (br_array_init(&out->array, BR_F16, "freq,time,gridp,gridq", lengths, &error) != BR_OK)
        return br_stage_fail(stage, BR_E_INVALID, "%s", error.text);
    out->frame_samples = fg->nblocks * fg->block;
    for (unsigned z = 0; z < out->nzones; z++) out->zone[z].downsample = (unsigned)fg->block;

    fg->dish_cell = br_stage_alloc(stage, ndishes * sizeof *fg->dish_cell);
    for (size_t d = 0; d < ndishes; d++) {
        fg->dish_cell[d][0] = t->dishes[d].m;
        fg->dish_cell[d][1] = t->dishes[d].n;
    }
    /* One power of two for all zones, so that one number describes the stream. */
    fg->log2_scale = -1000;
    for (unsigned z = 0; z < in->nzones; z++) {
        struct br_frb_grid_params p;
        status = zone_params(stage, fg, z, &p);
        if (status != BR_OK) break;
        int k = br_frb_grid_log2_scale(&p);
        if (k > fg->log2_scale) fg->log2_scale = k;
    }
    free_weights(fg);
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

/* A row of the output; of every channel the sums of a block and of its parts, 2M x 2N each; and the
 * weights of the grid's cells, of every channel where the gains are. */
static void memory(struct br_stage *stage, void *self, struct br_memory *m)
{
    const struct frb_grid *fg = self;
    const struct br_stream *in = br_stage_input(stage, 0);
    size_t weights = fg->gain_channels > 1 ? in->nchannels : 1;
    br_stage_uploads_memory(stage, upload_bytes(fg, in), m);
    br_stage_buffer_memory(stage, fg->nblocks * fg->cells * sizeof *fg->row, m);
    br_stage_buffer_memory(stage, 2 * in->nchannels * fg->cells * sizeof(float), m);
    br_stage_buffer_memory(stage, weights * in->nzones * fg->cells * 2 * sizeof(float), m);
    /* On the CPU each thread transforms a sample, and sums it up: of each cell 28 bytes. */
    if (br_stage_device(stage) < 0) m->host += br_stage_threads(stage) * in->nzones * fg->cells * 28;
    for (unsigned z = 0; br_stage_device(stage) >= 0 && z < in->nzones; z++) {
        const struct br_frb_grid_params p = {.nchannels = in->zone[z].nchannels,
                                             .npol = in->array.axis[2].length,
                                             .ndishes = in->array.axis[3].length,
                                             .grid_m = in->telescope->grid_m,
                                             .grid_n = in->telescope->grid_n,
                                             .downsample = (unsigned)(fg->block / in->zone[z].downsample)};
        m->device += br_frb_grid_device_bytes(&p);
    }
}

static int start(struct br_stage *stage, void *self)
{
    struct frb_grid *fg = self;
    const struct br_stream *in = br_stage_input(stage, 0);
    enum br_backend backend;
    int status = br_stage_backend(stage, upload_bytes(fg, in), &backend, &fg->cuda);
    if (status != BR_OK) return status;
    fg->row = br_stage_scratch(stage, fg->cuda, fg->nblocks * fg->cells * sizeof *fg->row);
    if (fg->row == NULL) return BR_E_NO_MEMORY;
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
    return status == BR_OK ? br_stage_gpu_holds(stage, fg->cuda) : status;
}

static void open_frame(struct frb_grid *fg, uint64_t start)
{
    fg->open = true;
    fg->start = start;
    fg->first_block = start / fg->block;
    fg->length = fg->nblocks - (size_t)(fg->first_block % fg->nblocks);
    memset(fg->done, 0, sizeof fg->done);
}

static uint16_t *row_of(const struct frb_grid *fg, const struct br_frame *out, size_t channel, size_t block)
{
    return (uint16_t *)out->data + (channel * fg->length + block) * fg->cells;
}

/* Says what the frame holds, [start, end), and leaves it to be published. */
static int emit(struct br_stage *stage, struct frb_grid *fg, struct br_frame *out, uint64_t end)
{
    const struct br_stream *stream = br_stage_output(stage, 0);
    size_t steps = br_time_steps(fg->start, end - fg->start, (unsigned)fg->block);
    size_t bytes = steps * fg->cells * sizeof(uint16_t);
    if (steps < fg->length) /* cut short: rows move together, as the frame is row-major in its own length */
        for (size_t c = 1; c < stream->nchannels; c++) { /* by way of a row of its own: they may overlap */
            int status = br_stage_copy_rows(stage, fg->row, bytes, row_of(fg, out, c, 0), bytes, bytes, 1);
            if (status == BR_OK)
                status = br_stage_copy_rows(stage, (uint8_t *)out->data + c * bytes, bytes, fg->row, bytes,
                                            bytes, 1);
            if (status != BR_OK) return status;
            memmove(out->valid + c * steps, out->valid + c * fg->length, steps);
        }
    out->first = fg->start;
    out->samples = end - fg->start;
    out->complete = false;
    br_frame_close_validity(stream, out);
    fg->open = false;
    return BR_PRODUCED;
}

/* The stream ends here, or is interrupted: unfinished blocks are finished as they are. */
static int cut(struct br_stage *stage, struct frb_grid *fg, struct br_frame *out)
{
    const struct br_stream *stream = br_stage_output(stage, 0);
    for (unsigned z = 0; z < stream->nzones; z++) {
        size_t channel = stream->zone[z].first_channel;
        if (fg->done[z] < fg->length)
            fg->done[z] += br_frb_grid_flush(fg->plan[z], row_of(fg, out, channel, fg->done[z]), fg->length,
                                             out->valid + channel * fg->length + fg->done[z], fg->length);
    }
    fg->running = false;
    int result = emit(stage, fg, out, fg->cursor), status = br_stage_gpu_check(stage, fg->cuda);
    return status != BR_OK ? status : result;
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct frb_grid *fg = self;
    const struct br_stream *from = br_stage_input(stage, 0);
    const struct br_frame *in = io->in[0];
    struct br_frame *out = io->out[0];
    if (in == NULL) {
        int result = fg->open ? cut(stage, fg, out) : 0;
        return result < 0 ? result : result | BR_FINISHED;
    }

    if (!fg->resumed) {
        if (fg->running && !br_goes_on(fg->cursor, in->first, fg->boundary)) {
            fg->running = false;
            if (fg->open) return cut(stage, fg, out); /* the same input comes again */
        }
        memset(fg->taken, 0, sizeof fg->taken);
        fg->resumed = true;
        if (!fg->running) {
            for (unsigned z = 0; z < from->nzones; z++)
                br_frb_grid_begin(fg->plan[z], (unsigned)(in->first % fg->block / from->zone[z].downsample));
            fg->running = true;
            fg->cursor = in->first;
        }
    }
    if (!fg->open) open_frame(fg, fg->cursor);

    struct br_frb_grid_call call[BR_MAX_ZONES];
    size_t steps[BR_MAX_ZONES], ncalls = 0;
    unsigned zone_of[BR_MAX_ZONES]; /* of a call */
    bool zoned = br_stream_is_zoned(from);
    for (unsigned z = 0; z < from->nzones; z++) {
        const struct br_zone *zone = &from->zone[z];
        struct br_part part = br_stream_part(from, zoned ? z : 0, in->first, in->samples);
        size_t row = part.nchannels * fg->spectators, within = zone->first_channel - part.first_channel;
        const uint8_t *e =
            (const uint8_t *)in->data + part.offset + fg->taken[z] * row + within * fg->spectators;
        const uint8_t *valid =
            in->complete ? NULL : in->valid + part.valid_offset + fg->taken[z] * part.nchannels + within;
        size_t left = part.nsteps - fg->taken[z];
        steps[z] = part.nsteps;
        if (fg->done[z] == fg->length || left == 0) continue;
        zone_of[ncalls] = z;
        call[ncalls++] = (struct br_frb_grid_call){
            .plan = fg->plan[z],
            .e = e,
            .row = row,
            .e_valid = valid,
            .valid_row = part.nchannels,
            .nsteps = left,
            .max_blocks = fg->length - fg->done[z],
            .out = row_of(fg, out, zone->first_channel, fg->done[z]),
            .out_stride = fg->length,
            .out_valid = out->valid + zone->first_channel * fg->length + fg->done[z],
            .valid_stride = fg->length};
    }
    br_frb_grid_execute_all(call,
                            ncalls); /* all zones at once: few channels with long blocks do not fill a GPU */
    for (size_t i = 0; i < ncalls; i++) {
        fg->done[zone_of[i]] += call[i].blocks;
        fg->taken[zone_of[i]] += call[i].taken;
    }
    bool full = true, used = true;
    for (unsigned z = 0; z < from->nzones; z++) {
        full = full && fg->done[z] == fg->length;
        used = used && fg->taken[z] == steps[z];
    }
    uint64_t in_end = in->first + in->samples, frame_end = (fg->first_block + fg->length) * fg->block;
    fg->cursor = full && frame_end < in_end ? frame_end : in_end;
    int result = 0;
    int status = br_stage_gpu_check(stage, fg->cuda);
    if (status == BR_OK && full) result = emit(stage, fg, out, fg->cursor);
    if (status != BR_OK || result < 0) return status != BR_OK ? status : result;
    if (used) {
        fg->resumed = false;
        result |= BR_CONSUMED;
    }
    return result;
}

static int stop(struct br_stage *stage, void *self)
{
    struct frb_grid *fg = self;
    for (unsigned z = 0; z < BR_MAX_ZONES; z++) br_frb_grid_destroy(fg->plan[z]);
    br_stage_scratch_free(fg->cuda, fg->row);
    br_stage_gpu_end(stage, fg->cuda);
    return BR_OK;
}

BR_STAGE_EXPORT = {
    .abi_version = BR_ABI_VERSION,
    .type_size = sizeof(struct br_stage_type),
    .name = "frb_grid",
    .summary = "FRB stage 1: intensities on a grid of directions, summed over polarisation and time",
    .description = "Puts the dishes on the telescope's M x N grid, multiplies by the gains, transforms "
                   "(zero-padded to 2M x 2N), squares, "
                   "and sums over both polarisations and the samples of a block. Blocks are aligned to the "
                   "base sample counter, so "
                   "that results do not depend on frames or on where a recording begins.\n\n"
                   "Values are float16 times one power of two for the whole stream, chosen so that int4 full "
                   "scale on every dish cannot "
                   "overflow. Missing samples contribute nothing, the level of a partly valid block is "
                   "restored, and a block with "
                   "too little valid input is masked.\n",
    .params = params,
    .inputs = inputs,
    .outputs = outputs,
    .flags = BR_STAGE_CUDA,
    .size = sizeof(struct frb_grid),
    .configure = configure,
    .start = start,
    .process = process,
    .memory = memory,
    .stop = stop,
};
