/* power_beams - the power of coherent beams, kernels/baseband/power.h, with weights from a file or from
 * directions, which may move. */
#include "kernels/baseband/power.h"
#include "runtime/stage_updates.h"
#include "stages/common/sky/coherent.h"
#include "stages/common/stage/blocks.h"
#include "stages/common/stage/export.h"
#include "stages/common/stage/gpu.h"
#include "stages/common/stage/shape.h"
#include "stages/power_beams_description.h"

#include <math.h>
#include <string.h>

/* The largest |A| of weights from directions: 127, each part rounded. */
#define LARGEST_WEIGHT (127 + M_SQRT1_2)

struct power_beams {
    struct br_coherent coherent; /* first: see br_coherent_prepare */
    int64_t integrate, frame;    /* parameters */
    double threshold;
    const char *incoherent;

    uint64_t block;       /* base samples of an output step */
    size_t nblocks, each; /* steps of a whole output frame; input samples of a step */
    size_t columns;       /* beams of the output */
    uint16_t *row;        /* [nblocks][columns], where the frames are */

    /* The output frame that is being filled: where the stream stands, and its steps that are done. */
    struct blocks blocks;
    size_t done;
};

static const char *const incoherents[] = {"none", "append", "subtract", NULL};

static const struct br_param params[] = {
    BR_COHERENT_PARAMS(struct power_beams),
    PARAM(INT, struct power_beams, integrate,
          "base samples in one output sample; a multiple of those of an input sample", .required = true,
          .min = 1, .max = 1 << 24, .unit = "base samples"),
    PARAM(CHOICE, struct power_beams, incoherent,
          "the sum over all inputs of |A|^2 |E|^2: appended as one more beam, or subtracted from all beams",
          .choices = incoherents, .def = "none"),
    PARAM(REAL, struct power_beams, threshold, "outputs with a smaller fraction of valid input are masked",
          .def = "0.5", .min = 0, .max = 1),
    PARAM(INT, struct power_beams, frame, "length of an output frame; 0 chooses one near the input's",
          .def = "0", .min = 0, .max = 1 << 20, .unit = "output samples"),
    {0},
};
static const struct br_port inputs[] = {{"in", "E[time][freq][pol][dish], int4x2, not zoned"}, {0}};
static const struct br_port outputs[] = {{"out", "I[freq][time][beam], f16"}, {0}};

static int take_block(struct br_stage *stage, struct power_beams *pb, const struct br_stream *in)
{
    unsigned step = in->zone[0].downsample;
    pb->block = (uint64_t)pb->integrate;
    if (pb->block % step != 0)
        return br_stage_fail_at(stage, "integrate",
                                "%llu base samples are not a multiple of the %u of one sample of its input",
                                (unsigned long long)pb->block, step);
    pb->each = (size_t)(pb->block / step);
    pb->nblocks =
        br_blocks_of_frame(in, pb->block, in->nchannels * pb->columns * sizeof(uint16_t), pb->frame);
    pb->blocks.step = step;
    pb->blocks.length = pb->nblocks * pb->each;
    return BR_OK;
}

/* The largest sum_d |A| 2^-s of a file's weights. */
static double largest_sum(const struct br_weights *w)
{
    double most = 0;
    for (size_t row = 0; row < w->nfreq * w->npol * w->nbeams; row++) {
        double sum = 0;
        for (size_t d = 0; d < w->ndishes; d++) {
            const int8_t *a = w->weight + (row * w->ndishes + d) * 2;
            sum += hypot(a[0], a[1]);
        }
        most = fmax(most, ldexp(sum, -w->shift[row]));
    }
    return most;
}

/* The scale stays what it is when weights are updated: those who read the stream were told. */
static int choose_scale(struct br_stage *stage, struct power_beams *pb)
{
    const struct power_beams *now = br_stage_running(stage);
    struct br_baseband_params *p = &pb->coherent.params;
    double most =
        pb->coherent.beams != NULL ? LARGEST_WEIGHT * (double)p->ndishes : largest_sum(&pb->coherent.weights);
    int needed = br_baseband_log2_scale(p, most);
    p->log2_scale = now != NULL ? now->coherent.params.log2_scale : needed;
    if (needed <= p->log2_scale) return BR_OK;
    return br_stage_fail_at(stage, pb->coherent.beams != NULL ? "beams" : "weights",
                            "these weights are too large for the scale of the stream, 2^%d, which was chosen "
                            "for the first ones: full scale on every dish needs 2^%d; expected smaller ones, "
                            "or larger shifts, or a restart with them",
                            p->log2_scale, needed);
}

static int configure(struct br_stage *stage, void *self)
{
    struct power_beams *pb = self;
    struct br_coherent *c = &pb->coherent;
    const struct br_stream *in = br_stage_input(stage, 0);
    struct br_stream *out = br_stage_output(stage, 0);
    bool incoherent = strcmp(pb->incoherent, "none") != 0;
    if (incoherent && c->beams == NULL)
        return br_stage_fail_at(
            stage, "incoherent",
            "the sum over inputs goes with beams: a file of weights does not say how much "
            "each input counts");
    c->shift = c->beams != NULL ? 0 : -1; /* intensities are float16: the file's shifts, or none */
    int status = br_coherent_configure(stage, c, out);
    if (status != BR_OK) return status;
    c->params.threshold = pb->threshold;
    if (incoherent) {
        c->params.incoherent = br_beam_weights_incoherent(stage, &c->rule);
        c->params.subtract = strcmp(pb->incoherent, "subtract") == 0;
        if (!c->params.subtract) br_directions_append_incoherent(stage, out);
    }
    pb->columns = out->nbeams;
    status = take_block(stage, pb, in);
    if (status != BR_OK) return status;
    c->params.integrate = (unsigned)pb->each;
    c->uploads = in->nchannels * (in->array.axis[0].length / pb->each + 3) * sizeof(float);
    status = choose_scale(stage, pb);
    if (status != BR_OK) return status;

    size_t lengths[3] = {in->nchannels, pb->nblocks, pb->columns};
    status = br_output_array(stage, out, BR_F16, "freq,time,beam", lengths);
    if (status != BR_OK) return status;
    out->frame_samples = pb->nblocks * pb->block;
    for (unsigned z = 0; z < out->nzones; z++) out->zone[z].downsample = (unsigned)pb->block;
    out->scale = ldexp(1, c->params.log2_scale);
    return BR_OK;
}

static size_t row_bytes(const struct power_beams *pb)
{
    return pb->nblocks * pb->columns * sizeof *pb->row;
}

static void memory(struct br_stage *stage, void *self, struct br_memory *m)
{
    const struct power_beams *pb = self;
    br_coherent_memory(stage, &pb->coherent, m);
    br_stage_buffer_memory(stage, row_bytes(pb), m);
    if (br_stage_device(stage) >= 0)
        m->device += br_baseband_power_device_bytes(&pb->coherent.params);
    else
        m->host += br_baseband_power_host_bytes(&pb->coherent.params, br_stage_threads(stage));
}

static int start(struct br_stage *stage, void *self)
{
    struct power_beams *pb = self;
    int status = br_coherent_start(stage, &pb->coherent);
    if (status != BR_OK) return status;
    pb->row = br_stage_scratch(stage, pb->coherent.cuda, row_bytes(pb));
    return pb->row != NULL ? br_stage_gpu_holds(stage, pb->coherent.cuda) : BR_E_NO_MEMORY;
}

/* --- the stream: a block of struct blocks is an output frame, whose first block may begin late --- */

/* Steps of the open frame if nothing cuts it short: the distance of its channels. */
static size_t length(const struct power_beams *pb)
{
    return pb->nblocks - pb->blocks.begin / pb->each;
}

static uint16_t *step_of(const struct power_beams *pb, const struct br_frame *out, size_t channel,
                         size_t step)
{
    return (uint16_t *)out->data + (channel * length(pb) + step) * pb->columns;
}

/* Ends an unfinished block, and hands the frame on. */
static int emit(struct br_stage *stage, struct power_beams *pb, struct br_frame *out)
{
    const struct br_stream *stream = br_stage_output(stage, 0);
    size_t before = pb->done;
    if (pb->done < length(pb))
        pb->done += br_baseband_power_flush(pb->coherent.plan, step_of(pb, out, 0, pb->done), length(pb),
                                            out->valid + pb->done, length(pb));
    int status = br_horizon_clear(stage, &pb->coherent.horizon, out->data, length(pb), before, pb->done);
    if (status != BR_OK) return status;
    status = br_shorten_rows(stage, out, stream->nchannels, length(pb), pb->done,
                             pb->columns * sizeof *pb->row, pb->row);
    if (status != BR_OK) return status;
    out->first = pb->blocks.start;
    out->samples = pb->blocks.cursor - pb->blocks.start;
    out->complete = false;
    br_frame_close_validity(stream, out);
    pb->blocks.open = false;
    status = br_stage_gpu_check(stage, pb->coherent.cuda);
    return status != BR_OK ? status : BR_PRODUCED;
}

/* A piece of the input, with the weights that hold where each of its blocks begins. */
static int add(struct br_stage *stage, struct power_beams *pb, const struct br_frame *in,
               struct br_frame *out, const struct blocks_piece *piece)
{
    const struct br_baseband_params *p = &pb->coherent.params;
    size_t row = p->nchannels * p->npol * p->ndishes, n;
    for (size_t at = piece->at, end = piece->at + piece->count; at < end; at += n) {
        uint64_t block = pb->blocks.number * pb->nblocks + at / pb->each, until;
        size_t from = piece->from + at - piece->at, next = (at / pb->each + 1) * pb->each;
        if (at % pb->each == 0 || at == pb->blocks.begin) {
            int status =
                br_coherent_weights(stage, &pb->coherent, block * pb->block, in->first + in->samples, &until);
            if (status != BR_OK) return status;
            /* up to the first block that begins at or after the sample */
            uint64_t more = until / pb->block + (until % pb->block != 0) - block;
            if (more > 1) next += (size_t)(more - 1) * pb->each;
        }
        n = (next < end ? next : end) - at;
        size_t taken, before = pb->done;
        pb->done += br_baseband_power(pb->coherent.plan, (const uint8_t *)in->data + from * row,
                                      in->complete ? NULL : in->valid + from * p->nchannels, n,
                                      length(pb) - pb->done, step_of(pb, out, 0, pb->done), length(pb),
                                      out->valid + pb->done, length(pb), &taken);
        int status = br_horizon_clear(stage, &pb->coherent.horizon, out->data, length(pb), before, pb->done);
        if (status != BR_OK) return status;
        br_horizon_count(stage, &pb->coherent.horizon, n * pb->blocks.step);
    }
    return BR_OK;
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct power_beams *pb = self;
    const struct br_frame *in = io->in[0];
    int result = 0;
    if (in == NULL) {
        result = pb->blocks.open ? emit(stage, pb, io->out[0]) : 0;
        return result < 0 ? result : result | BR_FINISHED;
    }
    if (blocks_gap(&pb->blocks, in)) return emit(stage, pb, io->out[0]); /* the same frame comes again */

    bool opens = !pb->blocks.open;
    struct blocks_piece piece = blocks_take(&pb->blocks, in);
    if (opens) {
        pb->done = 0;
        br_baseband_power_begin(pb->coherent.plan, (unsigned)(piece.at % pb->each));
    }
    int status = add(stage, pb, in, io->out[0], &piece);
    if (status == BR_OK && piece.ends) result = emit(stage, pb, io->out[0]);
    if (result >= 0 && blocks_used(&pb->blocks, in)) result |= BR_CONSUMED;
    if (status == BR_OK) status = br_stage_gpu_check(stage, pb->coherent.cuda);
    return status != BR_OK ? status : result;
}

static const char *const updates[] = {"weights", "beams", "gains", NULL};

static int stop(struct br_stage *stage, void *self)
{
    struct power_beams *pb = self;
    br_stage_scratch_free(pb->coherent.cuda, pb->row);
    br_coherent_stop(stage, &pb->coherent);
    return BR_OK;
}

STAGE_EXPORT(power_beams, struct power_beams,
             "the power of coherent beams of any array, summed over polarisation and time", .inputs = inputs,
             .outputs = outputs, .flags = BR_STAGE_CUDA | BR_STAGE_COMMITS, .memory = memory,
             .updates = updates, .prepare = br_coherent_prepare, .commit = br_coherent_commit,
             .discard = br_coherent_discard);
