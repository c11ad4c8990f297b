/* The fast beamformer: layout of the weights, loop over blocks, and the portable octet. */
#include "kernels/common/cpu.h"
#include "kernels/baseband/plan.h"
#include "kernels/common/aligned.h"

#include <stdlib.h>
#include <string.h>

enum {
    TIMES = 96,
    FIELD_BYTES = 1 << 18,
    JOBS_EACH = 8 /* at least, for each thread, if there are blocks: the last ones end nearly together */
};

static void unpack_portable(uint8_t *field, const uint8_t *e, size_t ndishes)
{
    for (size_t d = 0; d < ndishes; d++) {
        unsigned byte = e[d] ^ 0x88u;
        field[2 * d] = (uint8_t)(byte & 15);
        field[2 * d + 1] = (uint8_t)(byte >> 4);
    }
}

static inline int32_t round_shift_clamp(int32_t sum, int32_t shift, int32_t most, uint64_t *clamped)
{
    int32_t value = sum >> shift; /* arithmetic on every compiler we build with */
    if (value > most || value < -most) ++*clamped;
    return value > most ? most : value < -most ? -most : value;
}

/* sum[re, im][beam] of one time. */
static void sum_portable(const struct octet_job *job, size_t t, int32_t sum[2 * OCTET])
{
    size_t pairs = job->chunks * (CHUNK / 2);
    const uint8_t *e = job->field + t * pairs * 4;
    const int8_t *w = job->weights;
    memcpy(sum, job->offset, 2 * OCTET * sizeof *sum);
    for (size_t pair = 0; pair < pairs; pair++, e += 4, w += 8 * OCTET)
        for (size_t i = 0; i < 2 * OCTET; i++)
            sum[i] += w[4 * i] * e[0] + w[4 * i + 1] * e[1] + w[4 * i + 2] * e[2] + w[4 * i + 3] * e[3];
}

static inline void octet_portable(const struct octet_job *job, int32_t most)
{
    size_t bytes = most > 7 ? 2 : 1;
    for (size_t t = 0; t < job->times; t++) {
        int32_t sum[2 * OCTET];
        bool there = !job->valid || job->valid[t];
        if (there) sum_portable(job, t, sum);
        for (size_t b = 0; b < job->beams; b++) {
            uint8_t *out = job->out + b * job->out_stride + t * bytes;
            int32_t re = there ? round_shift_clamp(sum[b], job->shift[b], most, &job->clamped[b]) : -most - 1,
                    im = there ? round_shift_clamp(sum[OCTET + b], job->shift[b], most, &job->clamped[b])
                               : -most - 1;
            if (bytes == 2) {
                out[0] = (uint8_t)re;
                out[1] = (uint8_t)im;
            } else {
                out[0] = (uint8_t)((re & 15) | (im & 15) << 4);
            }
        }
    }
}

static void octet4_portable(const struct octet_job *job)
{
    octet_portable(job, 7);
}

static void octet8_portable(const struct octet_job *job)
{
    octet_portable(job, 127);
}

static void powers_portable(const struct octet_job *job)
{
    for (size_t t = 0; t < job->times; t++) {
        int32_t sum[2 * OCTET];
        float *power = job->power + t * OCTET;
        memset(power, 0, OCTET * sizeof *power);
        if (job->valid && !job->valid[t]) continue;
        sum_portable(job, t, sum);
        for (size_t b = 0; b < OCTET; b++) {
            float re = (float)sum[b], im = (float)sum[OCTET + b], xx = re * re, yy = im * im;
            power[b] = xx + yy;
        }
    }
}

static void arrange(struct br_baseband *plan, const struct br_baseband_params *params)
{
    size_t P = plan->npol, B = plan->nbeams, D = plan->ndishes, pairs = plan->chunks * (CHUNK / 2);
    for (size_t wp = 0; wp < plan->weight_channels * P; wp++)
        for (size_t b = 0; b < B; b++) {
            const int8_t *w = params->weights + (wp * B + b) * D * 2;
            int32_t s = params->shift[wp * B + b], sum_re = 0, sum_im = 0;
            size_t octet = wp * plan->octets + b / OCTET, lane = b % OCTET;
            for (size_t d = 0; d < D; d++) {
                int8_t *re = plan->weights + ((octet * pairs + d / 2) * 2 * OCTET + lane) * 4 + d % 2 * 2;
                int8_t *im = re + OCTET * 4;
                re[0] = im[1] = w[2 * d];
                re[1] = (int8_t)-w[2 * d + 1];
                im[0] = w[2 * d + 1];
                sum_re += w[2 * d] - w[2 * d + 1];
                sum_im += w[2 * d] + w[2 * d + 1];
            }
            int32_t half = s && !plan->power ? (int32_t)1 << (s - 1) : 0;
            plan->offset[octet * 2 * OCTET + lane] = half - 8 * sum_re;
            plan->offset[octet * 2 * OCTET + OCTET + lane] = half - 8 * sum_im;
            plan->shift[octet * OCTET + lane] = s;
        }
}

static int make_scratch(struct br_baseband *plan, size_t row)
{
    unsigned workers = br_parallel_workers(&plan->parallel);
    plan->scratch = calloc(workers, sizeof *plan->scratch);
    if (!plan->scratch) return -1;
    plan->nscratch = workers;
    for (unsigned i = 0; i < workers; i++) {
        struct baseband_scratch *s = &plan->scratch[i];
        s->field = br_aligned_zeros(plan->block * row, 1);
        s->bytes = br_aligned_zeros(plan->block * OCTET, 2);
        s->valid = br_aligned_zeros(plan->block, 1);
        s->clamped = br_aligned_zeros(plan->octets * OCTET, sizeof *s->clamped);
        if (!s->field || !s->bytes || !s->valid || !s->clamped) return -1;
    }
    return 0;
}

int br_baseband_cpu_create(struct br_baseband *plan, const struct br_baseband_params *params)
{
    plan->octets = (plan->nbeams + OCTET - 1) / OCTET;
    plan->chunks = (plan->ndishes + CHUNK - 1) / CHUNK;
    size_t row = plan->chunks * CHUNK * 2, octets = plan->weight_channels * plan->npol * plan->octets;
    plan->block = TIMES;
    /* of a plan that integrates whole groups */
    size_t step = plan->power ? TIMES / 2 : TIMES / 4;
    while (plan->block > step && plan->block * row > FIELD_BYTES) plan->block -= step;

    plan->weights = br_aligned_zeros(octets * row * OCTET * 2, 1);
    plan->offset = br_aligned_zeros(octets * 2 * OCTET, sizeof *plan->offset);
    plan->shift = br_aligned_zeros(octets * OCTET, sizeof *plan->shift);
    if (!plan->weights || !plan->offset || !plan->shift || make_scratch(plan, row) != 0) return -1;
    plan->unpack = unpack_portable;
    plan->octet = plan->power ? powers_portable : plan->bits == 8 ? octet8_portable : octet4_portable;
#if BR_X86_64
    if (br_cpu_has_avx2()) {
        plan->unpack = br_baseband_unpack_avx2;
        plan->octet = plan->power       ? br_baseband_powers_avx2
                      : plan->bits == 8 ? br_baseband_octet8_avx2
                                        : br_baseband_octet_avx2;
    }
#endif
    arrange(plan, params);
    return plan->power ? br_baseband_cpu_power_create(plan) : 0;
}

void br_baseband_cpu_destroy(struct br_baseband *plan)
{
    for (unsigned i = 0; i < plan->nscratch; i++) {
        free(plan->scratch[i].field);
        free(plan->scratch[i].bytes);
        free(plan->scratch[i].valid);
        free(plan->scratch[i].clamped);
        free(plan->scratch[i].power);
        free(plan->scratch[i].groups);
        free(plan->scratch[i].running);
    }
    free(plan->scratch);
    free(plan->weights);
    free(plan->offset);
    free(plan->shift);
    free(plan->scale);
}

struct work {
    struct br_baseband *plan;
    const uint8_t *e, *e_valid;
    size_t nsteps;
    uint8_t *out;
    size_t blocks, pieces; /* of time; jobs of a channel and polarisation */
};

/* One channel and polarisation fp, `times` <= plan->block times from `start` on. */
static void do_block(const struct work *work, struct baseband_scratch *s, size_t fp, size_t start,
                     size_t times)
{
    const struct br_baseband *plan = work->plan;
    size_t F = plan->nchannels, P = plan->npol, B = plan->nbeams, D = plan->ndishes;
    size_t row = plan->chunks * CHUNK * 2, f = fp / P, wp = plan->weight_channels == 1 ? fp % P : fp;
    size_t sample = plan->bits / 4;
    for (size_t t = 0; t < times; t++)
        plan->unpack(s->field + t * row, work->e + ((start + t) * F * P + fp) * D, D);
    if (work->e_valid)
        for (size_t t = 0; t < times; t++) s->valid[t] = work->e_valid[(start + t) * F + f];
    for (size_t o = 0; o < plan->octets; o++) {
        size_t octet = wp * plan->octets + o, first = o * OCTET,
               beams = B - first < OCTET ? B - first : OCTET;
        struct octet_job job = {
            .weights = plan->weights + octet * row * OCTET * 2,
            .offset = plan->offset + octet * 2 * OCTET,
            .shift = plan->shift + octet * OCTET,
            .field = s->field,
            .chunks = plan->chunks,
            .valid = work->e_valid ? s->valid : NULL,
            .times = times,
            .out = work->out + ((first * F * P + fp) * work->nsteps + start) * sample,
            .out_stride = F * P * work->nsteps * sample,
            .beams = beams,
            .bytes = s->bytes,
            .clamped = s->clamped + first,
        };
        plan->octet(&job);
    }
}

static void do_job(void *arg, size_t job, unsigned worker)
{
    const struct work *work = arg;
    size_t fp = job / work->pieces, piece = job % work->pieces, block = work->plan->block;
    for (size_t b = piece * work->blocks / work->pieces; b < (piece + 1) * work->blocks / work->pieces; b++) {
        size_t start = b * block, left = work->nsteps - start;
        do_block(work, &work->plan->scratch[worker], fp, start, left < block ? left : block);
    }
}

uint64_t br_baseband_cpu(struct br_baseband *plan, const uint8_t *e, const uint8_t *e_valid, size_t nsteps,
                         uint8_t *out, uint64_t *saturated)
{
    size_t channels = plan->nchannels * plan->npol;
    struct work work = {plan, e, e_valid, nsteps, out, (nsteps + plan->block - 1) / plan->block, 1};
    if (plan->nscratch > 1) {
        work.pieces = (plan->nscratch * JOBS_EACH + channels - 1) / channels;
        if (work.pieces > work.blocks) work.pieces = work.blocks;
    }
    br_parallel_for(&plan->parallel, channels * work.pieces, do_job, &work);
    uint64_t total = 0;
    for (unsigned i = 0; i < plan->nscratch; i++)
        for (size_t b = 0; b < plan->nbeams; b++) {
            uint64_t *clamped = &plan->scratch[i].clamped[b];
            if (saturated) saturated[b] += *clamped;
            total += *clamped;
            *clamped = 0;
        }
    return total;
}
