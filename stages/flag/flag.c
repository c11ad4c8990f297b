/* flag - flags input that is not noise: bad inputs, spectral kurtosis, powers outside limits. */
#include "stages/flag/flag.h"
#include "runtime/stage_updates.h"
#include "stages/common/stage/export.h"
#include "stages/common/stage/gpu.h"
#include "stages/common/stage/parallel.h"
#include "stages/common/stage/shape.h"
#include "stages/flag_description.h"

#include <string.h>

static const struct br_param params[] = {
    PARAM(INTS, struct flag, bad_inputs,
          "inputs that are not used but still measured: numbers pol x dishes + dish", .min = 0, .max = 8191),
    PARAM(PATH, struct flag, bad_inputs_file,
          "instead: HDF5 file with /bad_inputs integer [pol][dish]; not 0: bad"),
    PARAM(INT, struct flag, block,
          "samples in a block, for the spectral kurtosis of all inputs together; blocks begin at multiples "
          "of it",
          .def = "256", .min = 16, .max = 1 << 24, .unit = "base samples"),
    PARAM(INT, struct flag, long_block,
          "blocks over which each input is judged by itself; an output frame has this many", .def = "32",
          .min = 1, .max = 65535),
    PARAM(REALS, struct flag, threshold_sigma,
          "limits of the kurtosis, for the average over inputs and for a single input; one number or two. "
          "Noise exceeds them as often as a normal deviate does",
          .def = "[5, 5]", .min = 1, .max = 100, .min_count = 1, .max_count = 2),
    PARAM(REALS, struct flag, power,
          "limits of an input's mean |E|^2, [least, most], between which the kurtosis of int4 noise is known",
          .def = "[2, 50]", .min = 1, .max = 76, .min_count = 2, .max_count = 2),
    PARAM(INT, struct flag, least_level,
          "of the F-engine: -8, or -7 where its levels are -7 to 7. Kurtosis of strong noise depends on it",
          .def = "-8", .min = -8, .max = -7),
    {0},
};
static const struct br_port inputs[] = {{"in", "E[time][freq][pol][dish], int4x2, not zoned"}, {0}};
static const struct br_port outputs[] = {
    {"out", "E[time][freq][pol][dish], int4x2: the same without what is flagged"},
    {"kurtosis", "SK[time][freq][pol][dish], f32, of every block and input; may be left out"},
    {0}};

static struct br_flag_params plan_params(struct br_stage *stage, const struct flag *flag)
{
    const struct br_stream *in = br_stage_input(stage, 0);
    return (struct br_flag_params){.nchannels = in->nchannels,
                                   .ninputs = flag->ninputs,
                                   .block = (size_t)flag->block / in->zone[0].downsample,
                                   .nblocks = (size_t)flag->long_block,
                                   .least_level = (int)flag->least_level,
                                   .cuda = flag->cuda,
                                   .parallel = br_stage_parallel_loop(stage)};
}

static int check_blocks(struct br_stage *stage, const struct flag *flag, unsigned step)
{
    int64_t steps = flag->block / step;
    if (flag->block % step != 0)
        return br_stage_fail_at(stage, "block",
                                "%lld base samples are not a whole number of the input's samples; expected a "
                                "multiple of %u",
                                (long long)flag->block, step);
    if (steps < BR_FLAG_LEAST_SAMPLES || steps > BR_FLAG_MOST_BLOCK)
        return br_stage_fail_at(stage, "block", "%lld samples; expected %lld to %lld base samples",
                                (long long)steps, (long long)BR_FLAG_LEAST_SAMPLES * step,
                                (long long)BR_FLAG_MOST_BLOCK * step);
    if (steps * flag->long_block > BR_FLAG_MOST_SAMPLES)
        return br_stage_fail_at(stage, "long_block", "%lld samples in a long block; expected at most %d",
                                (long long)(steps * flag->long_block), BR_FLAG_MOST_SAMPLES);
    return BR_OK;
}

static int describe(struct br_stage *stage, const struct flag *flag, const struct br_stream *in, size_t npol,
                    size_t ndishes)
{
    struct br_stream *out = br_stage_output(stage, 0), *kurtosis = br_stage_output(stage, 1);
    uint64_t span = (uint64_t)(flag->block * flag->long_block);
    unsigned step = in->zone[0].downsample;
    out->frame_samples = span;
    size_t lengths[4] = {(size_t)(span / step), in->nchannels, npol, ndishes};
    int status = br_output_array(stage, out, BR_INT4X2, "time,freq,pol,dish", lengths);
    if (status != BR_OK || kurtosis == NULL) return status;
    *kurtosis = *out;
    for (unsigned z = 0; z < kurtosis->nzones; z++) kurtosis->zone[z].downsample = (unsigned)flag->block;
    lengths[0] = (size_t)flag->long_block;
    return br_output_array(stage, kurtosis, BR_F32, "time,freq,pol,dish", lengths);
}

static int configure(struct br_stage *stage, void *self)
{
    struct flag *flag = self;
    const struct br_stream *in = br_stage_input(stage, 0);
    int status =
        br_expect_input(stage, 1u << BR_INT4X2, "time,freq,pol,dish", "int4x2 [time][freq][pol][dish]");
    if (status == BR_OK) status = br_expect_one_factor(stage);
    if (status != BR_OK) return status;
    size_t npol = in->array.axis[2].length, ndishes = in->array.axis[3].length;
    flag->ninputs = npol * ndishes;
    status = check_blocks(stage, flag, in->zone[0].downsample);
    if (status == BR_OK) status = flag_make_rules(stage, flag, npol, ndishes);
    if (status == BR_OK) status = describe(stage, flag, in, npol, ndishes);
    if (status == BR_OK && !br_stage_is_update(stage)) flag_make_counters(stage, flag);
    return status;
}

static size_t upload_bytes(struct br_stage *stage, const struct flag *flag)
{
    struct br_flag_params p = plan_params(stage, flag);
    return br_flag_upload_bytes(&p, br_stage_input(stage, 0)->array.axis[0].length + 1);
}

static void memory(struct br_stage *stage, void *self, struct br_memory *m)
{
    const struct flag *flag = self;
    struct br_flag_params p = plan_params(stage, flag);
    br_stage_uploads_memory(stage, upload_bytes(stage, flag), m);
    m->host += br_flag_cells_bytes(&p);
    if (br_stage_device(stage) >= 0) {
        m->device += br_flag_device_bytes(&p);
        m->locked += br_flag_result_bytes(&p);
    } else {
        m->host += br_flag_host_bytes(&p);
    }
}

static int start(struct br_stage *stage, void *self)
{
    struct flag *flag = self;
    struct br_why why = {""};
    enum br_backend backend;
    int status = br_stage_backend(stage, upload_bytes(stage, flag), &backend, &flag->cuda);
    if (status != BR_OK) return status;
    struct br_flag_params p = plan_params(stage, flag);
    flag->blocks =
        (struct blocks){.step = br_stage_input(stage, 0)->zone[0].downsample, .length = p.block * p.nblocks};
    if (br_flag_create(&flag->plan, backend, &p, &why) != 0)
        return br_stage_fail(stage, BR_E_INVALID, "%s", why.text);
    return br_stage_gpu_holds(stage, flag->cuda);
}

/* --- process ----------------------------------------------------------------------------------- */

/* The share of each block that arrived, before anything is flagged. */
static void kurtosis_validity(const struct flag *flag, size_t F, const struct br_frame *out,
                              struct br_frame *to)
{
    size_t block = (size_t)flag->block / flag->blocks.step, begin = flag->blocks.begin,
           end = flag->blocks.fill;
    for (size_t b = begin / block, row = 0; b * block < end; b++, row++) {
        size_t from = b * block > begin ? b * block : begin,
               last = (b + 1) * block < end ? (b + 1) * block : end;
        for (size_t f = 0; f < F; f++) {
            uint64_t sum = 0;
            for (size_t t = from; t < last; t++) sum += out->valid[(t - begin) * F + f];
            to->valid[row * F + f] = br_validity(sum, (uint64_t)BR_VALID * block);
        }
    }
}

/* Flagged samples are missing; of the others those inputs are that have weight 0. */
static void apply(const struct flag *flag, size_t F, const struct br_flag_result *result,
                  struct br_frame *out)
{
    size_t block = (size_t)flag->block / flag->blocks.step, begin = flag->blocks.begin;
    for (size_t t = begin; t < flag->blocks.fill; t++) {
        const uint8_t *reason = result->reason + t / block * F;
        uint8_t *valid = out->valid + (t - begin) * F;
        for (size_t f = 0; f < F; f++) {
            if (reason[f] != BR_FLAG_KEPT)
                valid[f] = BR_MISSING;
            else if (result->used[f] < result->expected)
                valid[f] =
                    br_validity((uint64_t)valid[f] * result->used[f], (uint64_t)BR_VALID * result->expected);
        }
    }
}

/* The open long block, as far as it has come. The flags are known once the sums are: on a GPU this
 * thread waits for them, and for nothing that comes after them. The stages before it work on the frames that
 * follow meanwhile, and those behind it on the ones before. */
static int emit(struct br_stage *stage, struct flag *flag, const struct br_io *io)
{
    const struct br_stream *stream = br_stage_output(stage, 0);
    struct br_frame *out = io->out[0], *kurtosis = br_stage_output(stage, 1) != NULL ? io->out[1] : NULL;
    struct blocks *b = &flag->blocks;
    br_flag_end(flag->plan, out->data, kurtosis != NULL ? kurtosis->data : NULL);
    struct br_flag_result result = br_flag_wait(flag->plan);
    int status = br_stage_gpu_check(stage, flag->cuda);
    if (status != BR_OK) return status;
    out->first = b->start;
    out->samples = b->cursor - b->start;
    out->complete = false;
    if (kurtosis != NULL) {
        kurtosis->first = out->first;
        kurtosis->samples = out->samples;
        kurtosis->complete = false;
        kurtosis_validity(flag, stream->nchannels, out, kurtosis);
        br_frame_close_validity(br_stage_output(stage, 1), kurtosis);
    }
    apply(flag, stream->nchannels, &result, out);
    br_frame_close_validity(stream, out);
    flag_count(stage, flag, &result, out, b->begin, b->fill, b->step);
    b->open = false;
    return BR_PRODUCED;
}

/* A long block begins at base sample `start`: with the rules that hold from there on. */
static void begin(struct br_stage *stage, struct flag *flag, uint64_t start)
{
    while (br_stage_next_update(stage, start + 1) <= start) br_stage_update(stage, start);
    br_flag_begin(flag->plan, &flag->rules);
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct flag *flag = self;
    struct blocks *b = &flag->blocks;
    const struct br_frame *in = io->in[0];
    struct br_frame *out = io->out[0];
    size_t F = br_stage_input(stage, 0)->nchannels, row = F * flag->ninputs;
    int result = 0;
    if (in == NULL) {
        result = b->open ? emit(stage, flag, io) : 0;
        return result < 0 ? result : result | BR_FINISHED;
    }
    if (blocks_gap(b, in)) return emit(stage, flag, io); /* the same frame comes again */

    bool fresh = !b->open;
    struct blocks_piece piece = blocks_take(b, in);
    if (fresh) begin(stage, flag, b->start);
    size_t to = piece.at - b->begin;
    const uint8_t *valid = in->complete ? NULL : in->valid + piece.from * F;
    br_flag_add(flag->plan, piece.at, piece.count, (const uint8_t *)in->data + piece.from * row, valid,
                (uint8_t *)out->data + to * row);
    if (valid != NULL)
        memcpy(out->valid + to * F, valid, piece.count * F);
    else
        memset(out->valid + to * F, BR_VALID, piece.count * F);
    if (piece.ends) result = emit(stage, flag, io);
    if (result >= 0 && blocks_used(b, in)) result |= BR_CONSUMED;
    int status = br_stage_gpu_check(stage, flag->cuda);
    return status != BR_OK ? status : result;
}

static void commit(struct br_stage *stage, void *self, void *fresh, uint64_t sample)
{
    (void)stage, (void)sample;
    struct flag *flag = self;
    flag->rules = ((struct flag *)fresh)->rules;
}

static const char *const updates[] = {"bad_inputs", "bad_inputs_file", "threshold_sigma", "power", NULL};

static int stop(struct br_stage *stage, void *self)
{
    struct flag *flag = self;
    flag_conclude(stage, flag);
    br_flag_destroy(flag->plan);
    br_stage_gpu_end(stage, flag->cuda);
    return BR_OK;
}

STAGE_EXPORT(flag, struct flag,
             "bad inputs, spectral kurtosis and powers: input that is not noise becomes missing",
             .inputs = inputs, .outputs = outputs,
             .flags = BR_STAGE_CUDA | BR_STAGE_OPTIONAL_OUTPUTS | BR_STAGE_COMMITS, .memory = memory,
             .updates = updates, .commit = commit);
