/* power - a stage that changes the shape: mean power |E|^2 of all dishes and polarisations, averaged over
 * `average` samples: E[time][freq][pol][dish] -> P[time][freq].
 *
 *   cc -shared -fPIC -o power.so power.c $(pkg-config --cflags --libs beamring) */
#include <runtime/stage.h>

#include <string.h>

struct power {
    int64_t average; /* parameter: samples in one output step */
    size_t nfreq, ninputs;
};

static const struct br_param params[] = {
    BR_PARAM("average", BR_P_INT, struct power, average,
             "samples in one step of the output; it divides a frame", .required = true, .min = 1,
             .max = 1 << 20, .unit = "samples"),
    {0},
};
static const struct br_port inputs[] = {{"in", "E[time][freq][pol][dish], int4x2"}, {0}};
static const struct br_port outputs[] = {{"out", "P[time][freq], f32"}, {0}};

static int configure(struct br_stage *stage, void *self)
{
    struct power *p = self;
    const struct br_stream *in = br_stage_input(stage, 0);
    struct br_stream *out = br_stage_output(stage, 0); /* so far a copy of the input's description */
    const struct br_axis *axis = in->array.axis;
    struct br_error error = {0};
    if (in->array.dtype != BR_INT4X2 || in->array.naxes != 4 || br_array_axis(&in->array, "time") != 0)
        return br_stage_fail(stage, BR_E_INVALID, "the input must be int4x2 [time][freq][pol][dish]");
    if (in->nzones != 1 || in->zone[0].downsample != 1)
        return br_stage_fail(stage, BR_E_INVALID, "the input must have the telescope's own samples");
    if (in->frame_samples % (uint64_t)p->average != 0)
        return br_stage_fail_at(stage, "average", "%lld does not divide the %llu samples of a frame",
                                (long long)p->average, (unsigned long long)in->frame_samples);
    p->nfreq = axis[1].length;
    p->ninputs = axis[2].length * axis[3].length;
    out->zone[0].downsample = (unsigned)p->average; /* frame_samples stays: it counts base samples */
    int status = br_array_init(&out->array, BR_F32, "time,freq",
                               (size_t[]){(size_t)in->frame_samples / (size_t)p->average, p->nfreq}, &error);
    return status == BR_OK ? BR_OK : br_stage_fail(stage, status, "%s", error.text);
}

/* Both nibbles are signed: the real part is the low one. */
static float power_of(const uint8_t *e, size_t n)
{
    int sum = 0;
    for (size_t i = 0; i < n; i++) {
        int re = ((e[i] & 15) ^ 8) - 8, im = ((e[i] >> 4) ^ 8) - 8;
        sum += re * re + im * im;
    }
    return (float)sum / (float)n;
}

/* Steps lie on multiples of `average` in the base counter, wherever a recording begins: a first or last frame
 * may have a step that is there in part only, and its validity says how much of it. */
static int process(struct br_stage *stage, void *self, const struct br_io *io)
{
    const struct power *p = self;
    const struct br_stream *made = br_stage_output(stage, 0);
    const struct br_frame *in = io->in[0];
    struct br_frame *out = io->out[0];
    if (in == NULL) return BR_FINISHED;

    uint64_t average = (uint64_t)p->average, first_step = in->first / average;
    uint64_t steps = br_time_steps(in->first, in->samples, (unsigned)average);
    const uint8_t *e = in->data;
    float *power = out->data;
    br_frame_open_validity(made, out); /* first and samples are the input's already */
    for (uint64_t step = 0; step < steps; step++) {
        uint64_t from = (first_step + step) * average, to = from + average;
        if (from < in->first) from = in->first;
        if (to > in->first + in->samples) to = in->first + in->samples;
        for (size_t f = 0; f < p->nfreq; f++) {
            float sum = 0;
            uint64_t good = 0;
            for (uint64_t t = from - in->first; t < to - in->first; t++) {
                if (!in->complete && in->valid[t * p->nfreq + f] == BR_MISSING) continue;
                sum += power_of(e + (t * p->nfreq + f) * p->ninputs, p->ninputs);
                good++;
            }
            power[step * p->nfreq + f] = good > 0 ? sum / (float)good : 0;
            out->valid[step * p->nfreq + f] = br_validity(good, average);
        }
    }
    br_frame_close_validity(made, out);
    return BR_CONSUMED | BR_PRODUCED;
}

BR_STAGE_EXPORT = {
    .abi_version = BR_ABI_VERSION,
    .type_size = sizeof(struct br_stage_type),
    .name = "power",
    .summary = "mean power of all dishes",
    .params = params,
    .inputs = inputs,
    .outputs = outputs,
    .size = sizeof(struct power),
    .configure = configure,
    .process = process,
};
