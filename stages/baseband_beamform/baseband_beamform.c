/* baseband_beamform - coherent beams, Eq. (1) of the baseband kernel, with weights from a file or from
 * directions. */
#include "kernels/baseband/baseband.h"
#include "runtime/stage.h"
#include "stages/common/stage/gpu.h"
#include "stages/common/stage/parallel.h"
#include "stages/common/stage/shape.h"
#include "stages/common/tables/directions.h"
#include "stages/common/tables/hdf5_tables.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct baseband_beamform {
    const char *weights_file, *gains_file; /* parameters */
    const struct br_beams_param *beams;
    int64_t shift;

    struct br_weights weights; /* nfreq is 1 or the input's channels; memory of the pipeline */
    struct br_baseband *plan;
    struct br_cuda *cuda; /* NULL on the CPU */
    uint64_t *saturated;  /* [beam] components clamped */
    uint64_t components;  /* computed per beam */

    /* For frames within which new weights begin to hold: pieces of them, up to PIECE steps */
    uint8_t *piece;                /* [B][F][P][PIECE], where the frames are */
    uint8_t *piece_valid, *before; /* [F][PIECE]; [T][F]: the frame's validity up to there */
};

enum { PIECE = 1024 };

static const struct br_param params[] = {
    BR_PARAM("weights", BR_P_PATH, struct baseband_beamform, weights_file,
             "HDF5 file with /weights int8 [freq or 1][pol][beam][dish][2] and /shift int32 [freq or "
             "1][pol][beam]"),
    BR_BEAMS_PARAM(struct baseband_beamform, beams, false, "where the beams point; the weights are computed"),
    BR_PARAM("gains", BR_P_PATH, struct baseband_beamform, gains_file,
             "HDF5 file with /gain complex64 [freq or 1][pol][dish], multiplied into weights computed from "
             "beams"),
    BR_PARAM("shift", BR_P_INT, struct baseband_beamform, shift,
             "bits by which sums are shifted down, for all beams; -1: the file's, or what keeps the rms of "
             "white input",
             .def = "-1", .min = -1, .max = 30),
    {0},
};
static const struct br_port inputs[] = {{"in", "E[time][freq][pol][dish], int4x2, not zoned"}, {0}};
static const struct br_port outputs[] = {{"out", "J[beam][freq][pol][time], int4x2; -8 means missing"}, {0}};

static int weights_from_file(struct br_stage *stage, struct baseband_beamform *bb, const struct br_stream *in,
                             size_t npol, size_t ndishes)
{
    struct br_error error = {0};
    struct br_weights *w = &bb->weights;
    if (br_weights_read(w, bb->weights_file, &error) != BR_OK)
        return br_stage_fail_at(stage, "weights", "%s", error.text);
    w->weight = br_stage_keep(stage, w->weight, w->nfreq * w->npol * w->nbeams * w->ndishes * 2);
    w->shift = br_stage_keep(stage, w->shift, w->nfreq * w->npol * w->nbeams * sizeof *w->shift);
    if ((w->nfreq != 1 && w->nfreq != in->nchannels) || w->npol != npol || w->ndishes != ndishes)
        return br_stage_fail_at(
            stage, "weights",
            "%s: /weights has freq %zu, pol %zu, dish %zu; expected freq 1 or %zu, pol %zu, "
            "dish %zu",
            bb->weights_file, w->nfreq, w->npol, w->ndishes, in->nchannels, npol, ndishes);
    return BR_OK;
}

/* White input of rms r per component gives a sum of rms r sqrt(sum_d |A|^2): the shift is the nearest power
 * of two, so that the output has about the input's rms (127 sqrt(D) without gains). */
static int32_t shift_that_keeps_rms(const int8_t *weight, size_t ndishes)
{
    double power = 0;
    for (size_t i = 0; i < 2 * ndishes; i++) power += (double)weight[i] * weight[i];
    long shift = power > 0 ? lround(log2(power) / 2) : 0;
    return (int32_t)(shift < 0 ? 0 : shift > 30 ? 30 : shift);
}

/* A = round(127 g / max|g| exp(+2 pi i (m x spacing_m + n y spacing_n) / lambda)), the conjugate of the phase
 * that a source in direction (x, y) has at dish (m, n). */
static int weights_from_beams(struct br_stage *stage, struct baseband_beamform *bb,
                              const struct br_stream *in, const struct br_stream *out, size_t npol,
                              size_t ndishes)
{
    const struct br_telescope *t = in->telescope;
    struct br_error error = {0};
    struct br_gains gains = {1, npol, ndishes, NULL};
    if (t == NULL)
        return br_stage_fail(stage, BR_E_INVALID,
                             "weights from beam directions need the dishes' places: add `telescope:` to "
                             "the pipeline");
    if (bb->gains_file != NULL) {
        if (br_gains_check_channels(bb->gains_file, in, &error) != BR_OK ||
            br_gains_read(&gains, bb->gains_file, &error) != BR_OK)
            return br_stage_fail_at(stage, "gains", "%s", error.text);
        gains.value =
            br_stage_keep(stage, gains.value, gains.nfreq * gains.npol * gains.ndishes * 2 * sizeof(float));
        if ((gains.nfreq != 1 && gains.nfreq != in->nchannels) || gains.npol != npol ||
            gains.ndishes != ndishes)
            return br_stage_fail_at(
                stage, "gains", "%s: /gain is [%zu][%zu][%zu]; expected freq 1 or %zu, pol %zu, dish %zu",
                bb->gains_file, gains.nfreq, gains.npol, gains.ndishes, in->nchannels, npol, ndishes);
    }
    double largest = 0;
    for (size_t i = 0; gains.value != NULL && i < gains.nfreq * npol * ndishes; i++)
        largest = fmax(largest, hypot((double)gains.value[2 * i], (double)gains.value[2 * i + 1]));
    if (gains.value != NULL && largest == 0)
        return br_stage_fail_at(stage, "gains", "%s: all gains are 0", bb->gains_file);

    size_t nbeams = out->nbeams, rows = in->nchannels * npol * nbeams;
    bb->weights = (struct br_weights){in->nchannels,
                                      npol,
                                      nbeams,
                                      ndishes,
                                      br_stage_alloc(stage, rows * ndishes * 2),
                                      br_stage_alloc(stage, rows * sizeof(int32_t))};
    for (size_t row = 0; row < rows; row++) {
        size_t b = row % nbeams, p = row / nbeams % npol, f = row / nbeams / npol;
        double cycles_per_m = 1e6 * in->freq_mhz[f] / BR_LIGHT_M_PER_S;
        int8_t *a = bb->weights.weight + row * ndishes * 2;
        for (size_t d = 0; d < ndishes; d++) {
            double phase = 2 * M_PI * cycles_per_m *
                           (t->dishes[d].m * out->beams[b].x * t->spacing_m_m +
                            t->dishes[d].n * out->beams[b].y * t->spacing_n_m);
            double re = 127 * cos(phase), im = 127 * sin(phase);
            if (gains.value != NULL) {
                const float *g = gains.value + (((gains.nfreq == 1 ? 0 : f) * npol + p) * ndishes + d) * 2;
                double gr = (double)g[0] / largest, gi = (double)g[1] / largest, was = re;
                re = gr * was - gi * im;
                im = gr * im + gi * was;
            }
            a[2 * d] = (int8_t)lround(re);
            a[2 * d + 1] = (int8_t)lround(im);
        }
        bb->weights.shift[row] = shift_that_keeps_rms(a, ndishes);
    }
    return BR_OK;
}

static int configure(struct br_stage *stage, void *self)
{
    struct baseband_beamform *bb = self;
    const struct br_stream *in = br_stage_input(stage, 0);
    struct br_stream *out = br_stage_output(stage, 0);
    int status =
        br_expect_input(stage, 1u << BR_INT4X2, "time,freq,pol,dish", "int4x2 [time][freq][pol][dish]");
    if (status == BR_OK) status = br_expect_one_factor(stage);
    if (status != BR_OK) return status;
    size_t npol = in->array.axis[2].length, ndishes = in->array.axis[3].length;
    if ((bb->weights_file != NULL) == (bb->beams != NULL))
        return br_stage_fail(stage, BR_E_INVALID, "%s of weights and beams; expected exactly one",
                             bb->beams != NULL ? "it has both" : "it has none");
    if (bb->gains_file != NULL && bb->beams == NULL)
        return br_stage_fail_at(stage, "gains",
                                "gains go with beams; a file of weights already contains them");
    if (bb->beams != NULL) {
        status = br_directions_configure(stage, bb->beams, out);
        if (status == BR_OK) status = weights_from_beams(stage, bb, in, out, npol, ndishes);
    } else {
        status = weights_from_file(stage, bb, in, npol, ndishes);
        out->nbeams = bb->weights.nbeams;
        out->beams = NULL;
        out->beams_x = out->beams_y = 0;
    }
    if (status != BR_OK) return status;
    struct br_weights *w = &bb->weights;
    for (size_t i = 0; bb->shift >= 0 && i < w->nfreq * w->npol * w->nbeams; i++)
        w->shift[i] = (int32_t)bb->shift;

    size_t lengths[4] = {out->nbeams, in->nchannels, npol, in->array.axis[0].length};
    struct br_error error = {0};
    if (br_array_init(&out->array, BR_INT4X2, "beam,freq,pol,time", lengths, &error) != BR_OK)
        return br_stage_fail(stage, BR_E_INVALID, "%s", error.text);
    return BR_OK;
}

static size_t piece_bytes(const struct baseband_beamform *bb, const struct br_stream *in)
{
    size_t steps = in->array.axis[0].length + 1; /* a frame beside a loss may touch one step more */
    return bb->weights.nbeams * in->nchannels * bb->weights.npol * (steps < PIECE ? steps : PIECE);
}

/* The weights, int8+8 with their sums, as they were given and as the plan holds them. */
static void memory(struct br_stage *stage, void *self, struct br_memory *m)
{
    const struct baseband_beamform *bb = self;
    const struct br_weights *w = &bb->weights;
    size_t rows = w->nfreq * w->npol * w->nbeams;
    br_stage_uploads_memory(stage, br_stream_max_validity(br_stage_input(stage, 0)), m);
    br_stage_buffer_memory(stage, rows * (2 * w->ndishes + 16), m);
    br_stage_buffer_memory(stage, piece_bytes(bb, br_stage_input(stage, 0)), m);
    m->host += rows * (2 * w->ndishes + sizeof *w->shift);
    m->host += br_stream_max_validity(br_stage_input(stage, 0)) + br_stage_input(stage, 0)->nchannels * PIECE;
}

static int make_plan(struct br_stage *stage, struct baseband_beamform *bb, enum br_backend backend)
{
    struct br_why why = {""};
    struct br_baseband_params p = {.nchannels = br_stage_input(stage, 0)->nchannels,
                                   .npol = bb->weights.npol,
                                   .nbeams = bb->weights.nbeams,
                                   .ndishes = bb->weights.ndishes,
                                   .weights = bb->weights.weight,
                                   .shift = bb->weights.shift,
                                   .weight_channels = bb->weights.nfreq,
                                   .cuda = bb->cuda,
                                   .parallel = br_stage_parallel_loop(stage)};
    if (br_baseband_create(&bb->plan, backend, &p, &why) == 0) return BR_OK;
    return br_stage_fail(stage, BR_E_INVALID, "%s", why.text);
}

static int start(struct br_stage *stage, void *self)
{
    struct baseband_beamform *bb = self;
    const struct br_stream *in = br_stage_input(stage, 0);
    bb->saturated = calloc(bb->weights.nbeams, sizeof *bb->saturated);
    if (bb->saturated == NULL) return br_no_memory(stage, bb->weights.nbeams * sizeof *bb->saturated);
    bb->piece_valid = malloc(in->nchannels * PIECE);
    bb->before = malloc(br_stream_max_validity(in));
    if (bb->piece_valid == NULL || bb->before == NULL) return br_no_memory(stage, br_stream_max_validity(in));
    enum br_backend backend;
    int status = br_stage_backend(stage, br_stream_max_validity(in), &backend, &bb->cuda);
    if (status != BR_OK) return status;
    bb->piece = br_stage_scratch(stage, bb->cuda, piece_bytes(bb, in));
    if (bb->piece == NULL) return BR_E_NO_MEMORY;
    status = make_plan(stage, bb, backend);
    return status == BR_OK ? br_stage_gpu_holds(stage, bb->cuda) : status;
}

/* --- frames within which new weights begin to hold --- */

/* A frame on its way through the beamformer. */
struct cut_frame {
    const struct br_frame *in;
    struct br_frame *out;
    size_t nsteps, nchannels, row; /* row: bytes of the input's step */
    unsigned step;                 /* base samples */
    uint64_t clamped;
};

/* The first step of the frame that begins at or after a sample. */
static size_t step_at(const struct cut_frame *c, uint64_t sample)
{
    uint64_t first = c->in->first / c->step, step = (sample + c->step - 1) / c->step;
    if (step <= first) return 0;
    return step - first < c->nsteps ? (size_t)(step - first) : c->nsteps;
}

/* Steps before `end`, with room for the others: to the kernel those are missing. */
static void beamform_before(struct baseband_beamform *bb, struct cut_frame *c, size_t end)
{
    size_t F = c->nchannels;
    if (end == 0) return;
    if (c->in->complete)
        memset(bb->before, BR_VALID, end * F);
    else
        memcpy(bb->before, c->in->valid, end * F);
    memset(bb->before + end * F, BR_MISSING, (c->nsteps - end) * F);
    const uint8_t *valid = end == c->nsteps && c->in->complete ? NULL : bb->before;
    c->clamped += br_baseband_execute(bb->plan, c->in->data, valid, c->nsteps, c->out->data,
                                      c->in->complete ? NULL : c->out->valid, bb->saturated);
}

/* Steps [begin, end), into their places. */
static int beamform_piece(struct br_stage *stage, struct baseband_beamform *bb, struct cut_frame *c,
                          size_t begin, size_t end)
{
    size_t F = c->nchannels, rows = bb->weights.nbeams * F * bb->weights.npol;
    int status = BR_OK;
    for (size_t at = begin, n; at < end && status == BR_OK; at += n) {
        n = end - at < PIECE ? end - at : PIECE;
        const uint8_t *valid = c->in->complete ? NULL : c->in->valid + at * F;
        c->clamped += br_baseband_execute(bb->plan, (const uint8_t *)c->in->data + at * c->row, valid, n,
                                          bb->piece, valid != NULL ? bb->piece_valid : NULL, bb->saturated);
        status = br_stage_copy_rows(stage, (uint8_t *)c->out->data + at, c->nsteps, bb->piece, n, n, rows);
        for (size_t f = 0; valid != NULL && f < F; f++)
            memcpy(c->out->valid + f * c->nsteps + at, bb->piece_valid + f * n, n);
    }
    return status;
}

/* A frame before whose end new weights are due, at sample `due` first. */
static int beamform_cut(struct br_stage *stage, struct baseband_beamform *bb, struct cut_frame *c,
                        uint64_t due)
{
    uint64_t end = c->in->first + c->in->samples;
    size_t at = step_at(c, due);
    int status = BR_OK;
    beamform_before(bb, c, at);
    while (due < end && status == BR_OK) {
        br_stage_update(stage, due);
        due = br_stage_next_update(stage, end);
        size_t until = due < end ? step_at(c, due) : c->nsteps;
        if (until <= at) continue;
        status = beamform_piece(stage, bb, c, at, until);
        at = until;
    }
    return status;
}

static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    struct baseband_beamform *bb = self;
    const struct br_stream *from = br_stage_input(stage, 0), *stream = br_stage_output(stage, 0);
    const struct br_frame *in = io->in[0];
    struct br_frame *out = io->out[0];
    if (in == NULL) return BR_FINISHED;
    size_t nsteps = br_stream_part(from, 0, in->first, in->samples).nsteps;
    uint64_t end = in->first + in->samples, due = br_stage_next_update(stage, end);
    struct cut_frame c = {in, out, nsteps, from->nchannels, 0, from->zone[0].downsample, 0};
    c.row = c.nchannels * bb->weights.npol * bb->weights.ndishes;
    int status = BR_OK;
    if (due < end)
        status = beamform_cut(stage, bb, &c, due);
    else
        c.clamped = br_baseband_execute(bb->plan, in->data, in->complete ? NULL : in->valid, nsteps,
                                        out->data, in->complete ? NULL : out->valid, bb->saturated);
    bb->components += 2 * nsteps * from->nchannels * bb->weights.npol;
    if (in->complete) {
        out->complete = true;
        out->missing = 0;
    } else {
        out->complete = false;
        br_frame_close_validity(stream, out);
    }
    br_stage_count_saturated(stage, c.clamped);
    if (status == BR_OK) status = br_stage_gpu_check(stage, bb->cuda);
    return status != BR_OK ? status : BR_CONSUMED | BR_PRODUCED;
}

/* --- new weights --- */

static int prepare(struct br_stage *stage, void *fresh, const void *self)
{
    struct baseband_beamform *bb = fresh;
    const struct baseband_beamform *now = self;
    struct br_why why = {""};
    enum br_backend backend;
    int status = br_stage_backend_aside(stage, &backend, &bb->cuda);
    if (status == BR_OK) status = make_plan(stage, bb, backend);
    if (status == BR_OK && br_baseband_may_exchange(now->plan, bb->plan, &why) != 0)
        status = br_stage_fail(stage, BR_E_INVALID, "%s; restart the pipeline with them", why.text);
    return status;
}

static void commit(struct br_stage *stage, void *self, void *fresh, uint64_t sample)
{
    (void)stage, (void)sample;
    br_baseband_exchange(((struct baseband_beamform *)self)->plan, ((struct baseband_beamform *)fresh)->plan);
}

static void discard(struct br_stage *stage, void *fresh)
{
    (void)stage;
    struct baseband_beamform *bb = fresh;
    br_baseband_destroy(bb->plan);
    br_cuda_destroy(bb->cuda);
}

static const char *const updates[] = {"weights", "beams", "gains", "shift", NULL};

static int stop(struct br_stage *stage, void *self)
{
    struct baseband_beamform *bb = self;
    if (bb->cuda != NULL && bb->plan != NULL) br_baseband_saturated(bb->plan, bb->saturated);
    if (bb->components > 0) {
        double per = 100 / (double)bb->components;
        size_t worst = 0;
        uint64_t all = 0;
        for (size_t b = 0; b < bb->weights.nbeams; b++) {
            all += bb->saturated[b];
            if (bb->saturated[b] > bb->saturated[worst]) worst = b;
        }
        if (all > 0)
            br_stage_note(stage, "%.2g %% of all components were clamped, most in beam %zu: %.2g %%",
                          per * (double)all / (double)bb->weights.nbeams, worst,
                          per * (double)bb->saturated[worst]);
    }
    br_baseband_destroy(bb->plan);
    br_stage_scratch_free(bb->cuda, bb->piece);
    br_stage_gpu_end(stage, bb->cuda);
    free(bb->saturated);
    free(bb->piece_valid);
    free(bb->before);
    return BR_OK;
}

BR_STAGE_EXPORT = {
    .abi_version = BR_ABI_VERSION,
    .type_size = sizeof(struct br_stage_type),
    .name = "baseband_beamform",
    .summary = "coherent beams of the electric field, exact in integers",
    .description =
        "J = clamp((sum over dishes of A E + 2^(s-1)) >> s, -7, 7) for every beam, channel, "
        "polarisation and sample; sums are exact.\n\n"
        "The weights A and shifts s come from a file (`weights`) or follow from directions "
        "(`beams`): A = round(127 g/max|g| "
        "exp(+2 pi i (m x spacing_m + n y spacing_n)/lambda)) at the centre of each channel, and "
        "s = the integer nearest to "
        "log2 sqrt(sum |A|^2), which keeps the rms of white noise: log2(127 sqrt(D)) for D dishes "
        "without gains.\n\n"
        "All parameters can be updated while it runs, as long as the number of beams stays: the first sample "
        "that begins at or after the stated one is the first with the new weights.\n",
    .params = params,
    .inputs = inputs,
    .outputs = outputs,
    .flags = BR_STAGE_CUDA | BR_STAGE_COMMITS,
    .size = sizeof(struct baseband_beamform),
    .configure = configure,
    .start = start,
    .process = process,
    .memory = memory,
    .stop = stop,
    .updates = updates,
    .prepare = prepare,
    .commit = commit,
    .discard = discard,
};
