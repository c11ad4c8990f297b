/* quantize - intensities to 4 or 8 bits with a scale and offset per beam, channel and block of time.
 *
 * One output frame is one block, aligned to the step counter. A block of which the stream covers only a part
 * (at its ends, or beside a hole) is quantized with the rest missing and emitted as a short frame: only the
 * steps that the stream covers. Frames are packed row-major in their own length, also for 4 bits: element i
 * is in byte i/2, the even one in the LOW nibble, so that with an odd number of steps rows begin in the
 * middle of a byte, and a frame with an odd number of elements ends with half a byte of zero (br_array_bytes
 * rounds up). */
#include "kernels/quantize/quantize.h"
#include "kernels/quantize/follow.h"
#include "runtime/stage.h"
#include "stages/common/stage/blocks.h"
#include "stages/common/stage/export.h"
#include "stages/common/stage/gpu.h"
#include "stages/common/stage/parallel.h"
#include "stages/common/stage/shape.h"
#include "stages/quantize_description.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct quantize {
    int64_t bits, block; /* parameters */
    double levels_rms, calibration_s;
    const char *statistics, *fuse;

    size_t nchannels, nbeams;
    unsigned step;    /* base samples per time step */
    double follow;    /* time constant of slow statistics, steps; 0: those of the block */
    uint64_t covered; /* base sample up to which blocks were quantized */
    struct br_quantize *plan;
    struct br_cuda *cuda; /* NULL on the CPU */
    uint8_t *levels; /* on a GPU: a frame of levels in host memory, to pack a part of it; NULL on the CPU */
    /* [freq][block][beam]: a block that lies in several input frames; where the frames are */
    uint16_t *gathered;
    uint8_t *gathered_valid; /* [freq][block] */

    struct blocks blocks;
};

static const char *const fuse_choices[] = {"auto", "true", "false", NULL};
static const char *const statistics_choices[] = {"slow", "block", NULL};
static const struct br_param params[] = {
    PARAM(INT, struct quantize, bits, "bits per value: 4 or 8", .required = true, .min = 4, .max = 8),
    PARAM(INT, struct quantize, block, "steps that share one scale and offset", .def = "64", .min = 2,
          .max = 65536, .unit = "time steps"),
    PARAM(REAL, struct quantize, levels_rms,
          "levels per standard deviation; default 2.5 for 4 bits; for 8 bits and `statistics: block` 16, "
          "and for `slow` what leaves room for a burst of S/N 500 in one step, "
          "127 / (6 + 650 / sqrt(channels)), 1.5 to 8",
          .min = 1e-3, .max = 1000),
    PARAM(CHOICE, struct quantize, statistics,
          "mean and deviation to which a block's levels refer: those of earlier blocks (slow), so that "
          "bursts keep their shape, or its own (block)",
          .choices = statistics_choices, .def = "slow"),
    PARAM(REAL, struct quantize, calibration_s,
          "time constant of slow statistics; default 1.5 s, at least 1536 steps and 16 blocks", .unit = "s",
          .min = 1e-9, .max = 1e6),
    PARAM(CHOICE, struct quantize, fuse, "has no effect; accepted for pipeline files of earlier versions",
          .choices = fuse_choices, .def = "auto"),
    {0},
};
static const struct br_port inputs[] = {{"in", "J[freq][time][beam], f16"}, {0}};
static const struct br_port outputs[] = {
    {"out", "levels [beam][freq][time], int4 or uint8, with f32 [beam][freq][2] = {scale, offset}"}, {0}};

/* Defaults that depend on the stream. */
static int choose_statistics(struct br_stage *stage, struct quantize *q, const struct br_stream *in)
{
    bool slow = strcmp(q->statistics, "slow") == 0;
    double step_s = q->step * br_stream_sample_s(in), blocks = (double)q->block,
           room = 6 + 650 / sqrt((double)q->nchannels);
    if (!br_stage_given(stage, "levels_rms"))
        q->levels_rms = q->bits == 4 ? 2.5 : slow ? fmin(fmax(127 / room, 1.5), 8) : 16;
    if (!slow && br_stage_given(stage, "calibration_s"))
        return br_stage_fail_at(stage, "calibration_s", "this is for `statistics: slow`");
    if (!slow) return BR_OK;
    if (!br_stage_given(stage, "calibration_s"))
        q->calibration_s = fmax(1.5, fmax(1536, 16 * blocks) * step_s);
    q->follow = q->calibration_s / step_s;
    if (q->follow < 4 * blocks)
        return br_stage_fail_at(stage, "calibration_s",
                                "%g s are %.1f blocks of %lld steps; expected at least 4", q->calibration_s,
                                q->follow / blocks, (long long)q->block);
    return BR_OK;
}

static int configure(struct br_stage *stage, void *self)
{
    struct quantize *q = self;
    const struct br_stream *in = br_stage_input(stage, 0);
    struct br_stream *out = br_stage_output(stage, 0);
    int status =
        br_expect_input(stage, 1u << BR_F16, "freq,time,beam", "f16 [freq][time][beam] (frb_beams makes it)");
    if (status != BR_OK) return status;
    if (br_stream_is_zoned(in))
        return br_stage_fail(stage, BR_E_INVALID, "the zones of its input have different time steps");
    if (q->bits != 4 && q->bits != 8)
        return br_stage_fail_at(stage, "bits", "%lld; expected 4 or 8", (long long)q->bits);
    if (q->block % 2 != 0)
        return br_stage_fail_at(stage, "block", "%lld is odd; expected an even number of steps",
                                (long long)q->block);
    q->step = in->zone[0].downsample;
    q->blocks = (struct blocks){.step = q->step, .length = (size_t)q->block};
    q->nchannels = in->nchannels;
    q->nbeams = in->array.axis[2].length;
    status = choose_statistics(stage, q, in);
    if (status != BR_OK) return status;
    size_t lengths[3] = {q->nbeams, q->nchannels, (size_t)q->block}, pair[3] = {q->nbeams, q->nchannels, 2};
    status = br_output_array(stage, out, q->bits == 4 ? BR_INT4 : BR_UINT8, "beam,freq,time", lengths);
    if (status != BR_OK) return status;
    /* The side array's last axis is {scale, offset}, which is none of the field's axes: described by hand. */
    out->side = (struct br_array){
        .dtype = BR_F32, .naxes = 3, .axis = {{"beam", pair[0]}, {"freq", pair[1]}, {"number", pair[2]}}};
    out->frame_samples = (uint64_t)q->block * q->step;
    if (br_stage_given(stage, "fuse"))
        br_stage_warn(stage, "`fuse` has no effect any more: `frb_beams` forms the beams; remove it");
    return BR_OK;
}

/* Validity of a frame and of a block, and what a block weighs. */
static size_t upload_bytes(const struct br_stage *stage, const struct quantize *q)
{
    return br_stream_max_validity(br_stage_input(stage, 0)) + q->nchannels * (size_t)q->block +
           q->nchannels * sizeof(struct br_follow_step);
}

/* A block of the input and its validity, on a GPU its levels too. */
static void memory(struct br_stage *stage, void *self, struct br_memory *m)
{
    const struct quantize *q = self;
    size_t cells = q->nchannels * (size_t)q->block;
    br_stage_uploads_memory(stage, upload_bytes(stage, q), m);
    br_stage_buffer_memory(stage, cells * q->nbeams * sizeof *q->gathered, m);
    m->host += cells + (br_stage_device(stage) >= 0 ? cells * q->nbeams : 0);
    if (q->follow > 0) br_stage_buffer_memory(stage, q->nchannels * q->nbeams * sizeof(struct br_follow), m);
}

static int start(struct br_stage *stage, void *self)
{
    struct quantize *q = self;
    struct br_why why = {""};
    size_t cells = q->nchannels * (size_t)q->block, values = cells * q->nbeams;
    struct br_quantize_params p = {.nchannels = q->nchannels,
                                   .nbeams = q->nbeams,
                                   .block = (size_t)q->block,
                                   .bits = (unsigned)q->bits,
                                   .levels_rms = q->levels_rms,
                                   .follow = q->follow,
                                   .parallel = br_stage_parallel_loop(stage)};
    enum br_backend backend;
    int status = br_stage_backend(stage, upload_bytes(stage, q), &backend, &q->cuda);
    if (status != BR_OK) return status;
    p.cuda = q->cuda;
    q->gathered = br_stage_scratch(stage, q->cuda, values * sizeof *q->gathered);
    if (q->gathered == NULL) return BR_E_NO_MEMORY;
    q->gathered_valid = calloc(cells, 1);
    if (q->cuda != NULL) q->levels = calloc(values, 1);
    if (q->gathered_valid == NULL || (q->cuda != NULL && q->levels == NULL))
        return br_no_memory(stage, values + cells);
    if (br_quantize_create(&q->plan, backend, &p, &why) != 0)
        return br_stage_fail(stage, BR_E_INVALID, "%s", why.text);
    return br_stage_gpu_holds(stage, q->cuda);
}

/* Moves steps [begin, fill) of all rows of a whole block together, into a frame of just these: elements only
 * move down. */
static void pack_part(const struct quantize *q, uint8_t *levels)
{
    size_t steps = q->blocks.fill - q->blocks.begin, rows = q->nbeams * q->nchannels,
           block = (size_t)q->block;
    for (size_t row = 0; row < rows; row++) {
        size_t from = row * block + q->blocks.begin, to = row * steps;
        if (q->bits == 8) {
            memmove(levels + to, levels + from, steps);
            continue;
        }
        for (size_t t = 0; t < steps; t++, from++, to++) {
            unsigned level = (unsigned)levels[from / 2] >> (from % 2 * 4) & 15,
                     other = to % 2 == 0 ? 0xf0 : 0x0f;
            levels[to / 2] = (uint8_t)((levels[to / 2] & other) | level << (to % 2 * 4));
        }
    }
    if (q->bits == 4 && rows * steps % 2 != 0)
        levels[rows * steps / 2] &= 0x0f; /* the half byte at the end */
}

/* The same where the frame is: a GPU's goes by way of the host, which happens at the ends of a stream
 * only. */
static int pack_frame(struct br_stage *stage, struct quantize *q, uint8_t *levels)
{
    if (q->cuda == NULL) {
        pack_part(q, levels);
        return BR_OK;
    }
    size_t bytes = (q->nbeams * q->nchannels * (size_t)q->block * (size_t)q->bits + 7) / 8;
    int status = br_stage_exchange(stage, q->levels, levels, bytes);
    if (status != BR_OK) return status;
    pack_part(q, q->levels);
    return br_stage_exchange(stage, levels, q->levels, bytes);
}

/* Finishes the frame; its levels are there already. `valid` [freq][stride]: its validity; NULL: complete. */
static int emit(struct br_stage *stage, struct quantize *q, struct br_frame *out, const uint8_t *valid,
                size_t stride)
{
    size_t steps = q->blocks.fill - q->blocks.begin;
    out->first = q->blocks.start;
    out->samples = q->blocks.cursor - q->blocks.start;
    out->complete = valid == NULL;
    out->missing = 0;
    if (valid != NULL) {
        for (size_t c = 0; c < q->nchannels; c++) memcpy(out->valid + c * steps, valid + c * stride, steps);
        br_frame_close_validity(br_stage_output(stage, 0), out);
    }
    q->blocks.open = false;
    return BR_PRODUCED;
}

/* Before a block is quantized. Behind a hole that is longer than the statistics' memory they begin anew. */
static void remember(struct quantize *q)
{
    double hole = (double)q->blocks.start - (double)q->covered;
    if (q->follow > 0 && q->covered > 0 && hole > q->follow * q->step) br_quantize_restart(q->plan);
    q->covered = q->blocks.cursor;
}

/* Quantizes what was gathered; the rest of the block is missing. */
static int emit_gathered(struct br_stage *stage, struct quantize *q, struct br_frame *out)
{
    size_t block = (size_t)q->block, steps = q->blocks.fill - q->blocks.begin;
    for (size_t c = 0; steps < block && c < q->nchannels; c++) {
        memset(q->gathered_valid + c * block, BR_MISSING, q->blocks.begin);
        memset(q->gathered_valid + c * block + q->blocks.fill, BR_MISSING, block - q->blocks.fill);
    }
    remember(q);
    uint64_t clamped =
        br_quantize_execute(q->plan, q->gathered, block, q->gathered_valid, out->data, out->side);
    int status = br_stage_gpu_check(stage, q->cuda);
    if (status == BR_OK && steps < block) status = pack_frame(stage, q, out->data);
    if (status != BR_OK) return status;
    br_stage_count_saturated(stage, clamped);
    return emit(stage, q, out, q->gathered_valid + q->blocks.begin, block);
}

/* Moves a piece of the input frame into the block. */
static int gather(struct br_stage *stage, struct quantize *q, const struct br_frame *in,
                  const struct blocks_piece *p)
{
    size_t block = (size_t)q->block, row = q->nbeams * sizeof(uint16_t);
    const uint8_t *beams = in->data;
    for (size_t c = 0; c < q->nchannels; c++) {
        if (in->complete)
            memset(q->gathered_valid + c * block + p->at, BR_VALID, p->count);
        else
            memcpy(q->gathered_valid + c * block + p->at, in->valid + c * p->nsteps + p->from, p->count);
    }
    return br_stage_copy_rows(stage, (uint8_t *)q->gathered + p->at * row, block * row, beams + p->from * row,
                              p->nsteps * row, p->count * row, q->nchannels);
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct quantize *q = self;
    const struct br_frame *in = io->in[0];
    struct br_frame *out = io->out[0];
    if (in == NULL) {
        int last = q->blocks.open ? emit_gathered(stage, q, out) : 0;
        return last < 0 ? last : last | BR_FINISHED;
    }

    if (blocks_gap(&q->blocks, in)) return emit_gathered(stage, q, out); /* the same input comes again */
    struct blocks_piece p = blocks_take(&q->blocks, in);
    int result = p.whole ? BR_OK : gather(stage, q, in, &p);
    if (result != BR_OK) return result;
    if (p.whole) { /* straight from the frame */
        const uint8_t *valid = in->complete ? NULL : in->valid + p.from;
        remember(q);
        const uint16_t *data = (const uint16_t *)in->data + p.from * q->nbeams;
        uint64_t clamped = br_quantize_execute(q->plan, data, p.nsteps, valid, out->data, out->side);
        br_stage_count_saturated(stage, clamped);
        result = br_stage_gpu_check(stage, q->cuda);
        if (result == BR_OK) result = emit(stage, q, out, valid, p.nsteps);
    } else if (p.ends) {
        result = emit_gathered(stage, q, out);
    }
    if (result < 0) return result;
    if (blocks_used(&q->blocks, in)) result |= BR_CONSUMED;
    return result;
}

static int stop(struct br_stage *stage, void *self)
{
    struct quantize *q = self;
    br_quantize_destroy(q->plan);
    br_stage_scratch_free(q->cuda, q->gathered);
    br_stage_gpu_end(stage, q->cuda);
    free(q->levels);
    free(q->gathered_valid);
    return BR_OK;
}

STAGE_EXPORT(quantize, struct quantize, "intensity beams to 4 or 8 bits, in the order of the wire",
             .inputs = inputs, .outputs = outputs, .flags = BR_STAGE_CUDA, .memory = memory);
