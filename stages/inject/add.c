/* add.c - adds bursts to a frame: makes the parts of their fields that lie in it, for kernels/inject. */
#include "buffers/sky.h"
#include "kernels/common/cuda.h"
#include "stages/common/stage/gpu.h"
#include "stages/common/stage/shape.h"
#include "stages/inject/inject.h"

#include <math.h>
#include <stdlib.h>

struct inject_adder {
    struct br_inject *kernel;
    struct br_cuda *cuda; /* NULL on the CPU */
    unsigned nworkers;
    size_t room, most; /* bytes of a `pack`; jobs of a call */
    uint8_t **pack;    /* [nworkers], on a GPU [1] */
    struct job *job;   /* [most] */
    /* on a GPU */
    struct br_inject_piece *piece; /* [most] */
    struct br_inject_noise *noise; /* [nchannels] */
};

/* Samples of a channel, or on a GPU of one polarisation of it. */
struct job {
    struct inject_event *event;
    size_t channel, pol, begin, end, at; /* of the frame; place in `pack` */
};

struct frame {
    struct inject *s;
    const uint8_t *valid; /* [samples][channel]; NULL: complete */
    struct br_inject_frame field;
    uint64_t first;
    bool gpu;
};

static bool is_gone(const struct frame *frame, size_t c, size_t t)
{
    return frame->valid != NULL && frame->valid[t * frame->s->nchannels + c] == BR_MISSING;
}

/* Where [from, to) of the counter lies in the frame. */
static void overlap(const struct frame *frame, int64_t from, int64_t to, size_t *begin, size_t *end)
{
    int64_t first = (int64_t)frame->first, last = first + (int64_t)frame->field.samples;
    *begin = (size_t)((from < first ? first : from > last ? last : from) - first);
    *end = (size_t)((to < first ? first : to > last ? last : to) - first);
}

/* Phase of the burst at each input, in the stream's sideband, and the corrections of stages behind. */
static void aim(const struct inject *s, const struct inject_event *e, size_t c, size_t p,
                struct br_inject_input *input)
{
    const struct br_telescope *t = s->stream->telescope;
    for (size_t d = 0; d < s->ndishes; d++) {
        double inverse[2], gain;
        double phase =
            2 * M_PI * br_sky_cycles(s->stream->sideband, s->stream->freq_mhz[c], t->position[d], e->x, e->y);
        double re = cos(phase), im = sin(phase);
        bool used = inject_gain(s, e, c, p, d, inverse, &gain);
        input[d] = used ? (struct br_inject_input){(float)(re * inverse[0] - im * inverse[1]),
                                                   (float)(re * inverse[1] + im * inverse[0]), (float)gain}
                        : (struct br_inject_input){0, 0, 0};
    }
}

/* Makes a job's samples of one polarisation, at `to` of a pack. */
static struct br_inject_piece make_piece(const struct frame *frame, const struct job *job, unsigned worker,
                                         size_t p, float *to)
{
    const struct inject *s = frame->s;
    struct inject_event *e = job->event;
    struct burst_maker *maker = &e->maker[worker];
    size_t c = job->channel, number = c * s->npol + p, count = job->end - job->begin;
    bool lower = s->stream->sideband == BR_SIDEBAND_LOWER;
    int64_t start = burst_channel(maker, &e->burst, s->normal, c, p) + (int64_t)e->sample;
    const float *field = maker->field;
    double full = 0;
    for (int64_t i = e->first[c] - start; i < e->last[c] - start && i < (int64_t)maker->length; i++)
        full += (double)(field[2 * i] * field[2 * i] + field[2 * i + 1] * field[2 * i + 1]);
    e->full[number] = full;
    for (size_t k = 0; k < count; k++) {
        int64_t i = (int64_t)(frame->first + job->begin + k) - start;
        float *z = to + 2 * k;
        z[0] = z[1] = NAN; /* not to be touched */
        if (is_gone(frame, c, job->begin + k) || i < 0 || i >= (int64_t)maker->length) continue;
        z[0] = field[2 * i];
        z[1] = lower ? -field[2 * i + 1] : field[2 * i + 1];
        e->seen[number] += (double)(z[0] * z[0] + z[1] * z[1]);
    }
    aim(s, e, c, p, (struct br_inject_input *)(to + 2 * count));
    return (struct br_inject_piece){.sums = frame->gpu ? e->device : e->sums,
                                    .seed = e->burst.seed,
                                    .sample = frame->first + job->begin,
                                    .flux = inject_flux(e, s->stream->freq_mhz[c]),
                                    .at = job->at,
                                    .line = (uint32_t)number,
                                    .first = (uint32_t)job->begin,
                                    .count = (uint32_t)count,
                                    .measured = e->measured[c]};
}

static size_t pack_bytes(const struct inject *s, size_t samples)
{
    return (samples * 2 * sizeof(float) + s->ndishes * sizeof(struct br_inject_input) + 7) / 8 * 8;
}

/* The noise of a channel before the event; false: none of it is in the frame. */
static bool find_noise(const struct frame *frame, struct inject_event *e, size_t c,
                       struct br_inject_noise *noise)
{
    size_t begin, end;
    overlap(frame, e->first[c] - INJECT_NOISE, e->first[c], &begin, &end);
    if (begin >= end) return false;
    *noise = (struct br_inject_noise){.sums = frame->gpu ? e->device : e->sums,
                                      .channel = (uint32_t)c,
                                      .first = (uint32_t)begin,
                                      .count = (uint32_t)(end - begin)};
    for (size_t t = 0; t < end - begin; t++) {
        if (is_gone(frame, c, begin + t)) continue;
        noise->used[t / 32] |= 1u << t % 32;
        e->measured[c]++;
    }
    return true;
}

/* --- on the CPU: a channel is a job --- */

static void work(void *arg, size_t number, unsigned worker)
{
    const struct frame *frame = arg;
    const struct inject_adder *a = frame->s->adder;
    struct job *job = &a->job[number];
    struct br_inject_noise noise;
    if (find_noise(frame, job->event, job->channel, &noise))
        br_inject_measure(a->kernel, &frame->field, &noise);
    for (size_t p = 0; job->begin < job->end && p < frame->s->npol; p++) {
        float *to = (float *)(void *)a->pack[worker];
        struct br_inject_piece piece = make_piece(frame, job, worker, p, to);
        br_inject_add(a->kernel, worker, &frame->field, a->pack[worker], &piece);
    }
}

/* No two events have the same samples of a channel, so that their jobs may run in any order. */
static int add_on_cpu(struct br_stage *stage, struct frame *frame)
{
    struct inject *s = frame->s;
    struct inject_adder *a = s->adder;
    struct inject_event *e = s->active;
    int status = BR_OK;
    while (e != NULL && status == BR_OK) {
        size_t count = 0, begin, end;
        for (; e != NULL && count + s->nchannels <= a->most; e = e->next)
            for (size_t c = 0; c < s->nchannels; c++) {
                overlap(frame, e->first[c] - INJECT_NOISE, e->last[c], &begin, &end);
                if (begin >= end) continue;
                overlap(frame, e->first[c], e->last[c], &begin, &end);
                a->job[count++] = (struct job){.event = e, .channel = c, .begin = begin, .end = end};
            }
        if (count > 0) status = br_stage_parallel(stage, count, work, frame);
    }
    return status;
}

/* --- on a GPU: a polarisation is a job --- */

static void pack_piece(void *arg, size_t number, unsigned worker)
{
    const struct frame *frame = arg;
    const struct inject_adder *a = frame->s->adder;
    struct job *job = &a->job[number];
    a->piece[number] = make_piece(frame, job, worker, job->pol, (float *)(void *)(a->pack[0] + job->at));
}

/* Makes the jobs so far and enqueues them. */
static int flush(struct br_stage *stage, struct frame *frame, size_t *count, size_t *bytes)
{
    struct inject_adder *a = frame->s->adder;
    if (*count == 0) return BR_OK;
    int status = br_stage_parallel(stage, *count, pack_piece, frame);
    size_t begin, end;
    overlap(frame, a->job[0].event->first[a->job[0].channel], INT64_MAX, &begin, &end);
    a->piece[0].continues = a->job[0].begin > begin;
    if (status == BR_OK) br_inject_cuda_add(a->kernel, &frame->field, a->pack[0], *bytes, a->piece, *count);
    *count = *bytes = 0;
    return status;
}

static int add_on_gpu(struct br_stage *stage, struct frame *frame)
{
    struct inject *s = frame->s;
    struct inject_adder *a = s->adder;
    size_t count = 0, bytes = 0, begin, end, longest = (a->room - pack_bytes(s, 0)) / (2 * sizeof(float));
    int status = BR_OK;
    for (struct inject_event *e = s->active; e != NULL; e = e->next) {
        size_t most = br_inject_most_noise(a->kernel);
        for (size_t c = 0, n = 0; c < s->nchannels; c++) {
            n += find_noise(frame, e, c, &a->noise[n]);
            if (n == 0 || (n < most && c + 1 < s->nchannels)) continue;
            br_inject_cuda_measure(a->kernel, &frame->field, a->noise, n);
            n = 0;
        }
    }
    for (struct inject_event *e = s->active; e != NULL; e = e->next)
        for (size_t number = 0; number < s->nchannels * s->npol; number++) {
            size_t c = number / s->npol;
            overlap(frame, e->first[c], e->last[c], &begin, &end);
            for (size_t to; status == BR_OK && begin < end; begin = to) {
                to = end - begin > longest ? begin + longest : end;
                size_t more = pack_bytes(s, to - begin);
                if (bytes + more > a->room || count == a->most) status = flush(stage, frame, &count, &bytes);
                a->job[count++] = (struct job){e, c, number % s->npol, begin, to, bytes};
                bytes += more;
            }
        }
    if (status == BR_OK) status = flush(stage, frame, &count, &bytes);
    return status == BR_OK ? br_stage_gpu_check(stage, a->cuda) : status;
}

int inject_add(struct br_stage *stage, struct inject *s, const struct br_frame *in,
               const struct br_frame *out)
{
    struct frame frame = {.s = s,
                          .valid = in->complete ? NULL : in->valid,
                          .field = {out->data, (size_t)in->samples},
                          .first = in->first,
                          .gpu = s->adder->cuda != NULL};
    return frame.gpu ? add_on_gpu(stage, &frame) : add_on_cpu(stage, &frame);
}

/* --- memory --- */

static struct br_inject_params params_of(const struct inject *s, unsigned nworkers)
{
    return (struct br_inject_params){s->nchannels * s->npol, s->npol, s->ndishes, nworkers, NULL};
}

void inject_adder_memory(struct br_stage *stage, const struct inject *s, struct br_memory *m)
{
    bool gpu = br_stage_device(stage) >= 0;
    struct br_inject_params p = params_of(s, br_stage_threads(stage));
    size_t samples = br_stage_input(stage, 0)->array.axis[0].length, sums = br_inject_sums_bytes(&p);
    m->host += br_inject_host_bytes(&p) + sums;
    if (!gpu) m->host += p.nworkers * pack_bytes(s, samples);
    if (!gpu) return;
    m->device += br_inject_device_bytes(&p) + sums;
    br_stage_uploads_memory(stage, br_inject_upload_bytes(&p), m);
}

static int make(struct br_stage *stage, const struct inject *s, struct inject_adder *a)
{
    struct br_inject_params p = params_of(s, br_stage_threads(stage));
    struct br_why why = {""};
    enum br_backend backend;
    int status = br_stage_backend(stage, br_inject_upload_bytes(&p), &backend, &a->cuda);
    if (status != BR_OK) return status;
    p.cuda = a->cuda;
    if (br_inject_create(&a->kernel, backend, &p, &why) != 0)
        return br_stage_fail(stage, BR_E_NO_MEMORY, "%s", why.text);
    bool gpu = a->cuda != NULL;
    a->nworkers = p.nworkers;
    a->room = gpu ? br_inject_room(a->kernel) : pack_bytes(s, s->stream->frame_samples);
    a->most = gpu ? br_inject_most_pieces(a->kernel) : 2 * s->nchannels;
    a->job = malloc(a->most * sizeof *a->job);
    a->piece = malloc(a->most * sizeof *a->piece);
    a->noise = malloc(s->nchannels * sizeof *a->noise);
    a->pack = calloc(p.nworkers, sizeof *a->pack);
    bool good = a->job != NULL && a->piece != NULL && a->noise != NULL && a->pack != NULL;
    for (unsigned i = 0; good && i < (gpu ? 1 : p.nworkers); i++)
        good = (a->pack[i] = malloc(a->room)) != NULL;
    return good ? br_stage_gpu_holds(stage, a->cuda) : br_no_memory(stage, a->room * p.nworkers);
}

int inject_adder_start(struct br_stage *stage, struct inject *s)
{
    s->adder = calloc(1, sizeof *s->adder);
    return s->adder != NULL ? make(stage, s, s->adder) : br_no_memory(stage, sizeof *s->adder);
}

void inject_adder_stop(struct br_stage *stage, struct inject *s)
{
    struct inject_adder *a = s->adder;
    if (a == NULL) return;
    for (unsigned i = 0; a->pack != NULL && i < a->nworkers; i++) free(a->pack[i]);
    free(a->pack);
    free(a->job);
    free(a->piece);
    free(a->noise);
    br_inject_destroy(a->kernel);
    br_stage_gpu_end(stage, a->cuda);
    free(a);
    s->adder = NULL;
}

/* --- the sums of an event --- */

bool inject_sums_make(const struct inject *s, struct inject_event *e)
{
    struct br_inject_params p = params_of(s, 1);
    const struct inject_adder *a = s->adder;
    size_t bytes = br_inject_sums_bytes(&p);
    struct br_why why;
    e->sums = calloc(1, bytes);
    if (e->sums == NULL || a->cuda == NULL) return e->sums != NULL;
    if (br_cuda_create_aside(&e->cuda, a->cuda, &why) != 0) return false;
    e->device = br_cuda_alloc(e->cuda, bytes, &why);
    br_cuda_wait(br_cuda_stream(e->cuda)); /* it is zeroed */
    e->stream = br_cuda_stream(a->cuda);
    return e->device != NULL;
}

void inject_sums_free(struct inject_event *e)
{
    free(e->sums);
    if (e->cuda == NULL) return;
    if (e->device != NULL) br_cuda_wait(e->stream);
    br_cuda_free(e->cuda, e->device);
    br_cuda_destroy(e->cuda);
}

bool inject_settle(const struct inject *s, struct inject_event *e, struct br_why *why)
{
    if (e->device != NULL && br_inject_fetch(s->adder->kernel, e->sums, e->device, why) != 0) return false;
    struct br_inject_sums sums = br_inject_sums(s->adder->kernel, e->sums);
    for (size_t line = 0; line < s->nchannels * s->npol; line++) {
        double inverse[2], gain;
        bool used = false;
        for (size_t d = 0; d < s->ndishes; d++)
            used |= sums.power[line * s->ndishes + d] > 0 &&
                    inject_gain(s, e, line / s->npol, line % s->npol, d, inverse, &gain);
        if (!used) e->seen[line] = 0; /* nothing is known of the inputs' noise: nothing was added */
    }
    e->clipped = *sums.clipped;
    e->power = sums.power;
    e->lost = sums.lost;
    return true;
}

double inject_there(const struct inject *s, const struct inject_event *e, size_t line, size_t d)
{
    return e->seen[line] > 0 ? 1 - (double)e->lost[line * s->ndishes + d] * 0x1p-24 / e->seen[line] : 1;
}
