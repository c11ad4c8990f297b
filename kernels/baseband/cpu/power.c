/* power.c - the power of beams on the CPU: octets' powers, added as power.h says. */
#include "kernels/baseband/plan.h"
#include "kernels/common/aligned.h"

#include <string.h>

/* Columns as the sums of a worker have them: octets, and one more for the incoherent sum. */
static size_t padded(const struct br_baseband *plan)
{
    return (plan->octets + (plan->power->incoherent ? 1 : 0)) * OCTET;
}

int br_baseband_cpu_power_create(struct br_baseband *plan)
{
    size_t width = padded(plan), rows = plan->weight_channels * plan->npol;
    plan->scale = br_aligned_zeros(rows * plan->octets * OCTET, sizeof *plan->scale);
    if (!plan->scale) return -1;
    for (size_t i = 0; i < rows * plan->nbeams; i++)
        plan->scale[i / plan->nbeams * plan->octets * OCTET + i % plan->nbeams] = plan->power->scale[i];
    for (unsigned i = 0; i < plan->nscratch; i++) {
        struct baseband_scratch *s = &plan->scratch[i];
        s->power = br_aligned_zeros(plan->block * OCTET, sizeof *s->power);
        s->groups = br_aligned_zeros(plan->block / GROUP * width, sizeof *s->groups);
        s->running = br_aligned_zeros(width, sizeof *s->running);
        if (!s->power || !s->groups || !s->running) return -1;
    }
    return 0;
}

/* Some samples of one channel: `rows` of a block from a multiple of GROUP on, of which `before` are in an
 * earlier slab; the first one that is not is the slab's sample `from`. */
struct piece {
    size_t f, from, before, rows;
    bool ends; /* the block ends with it */
};

/* |E|^2 of all inputs at one sample, from its unpacked field. */
static float incoherent(const struct br_baseband *plan, const int32_t *c, const uint8_t *field)
{
    int64_t sum = 0;
    for (size_t d = 0; d < plan->ndishes; d++) {
        int x = field[2 * d] - 8, y = field[2 * d + 1] - 8;
        sum += (int64_t)c[d] * (x * x + y * y);
    }
    return (float)sum;
}

/* Powers of the rows of a piece, in one polarisation, of one octet; the octet behind the others is the
 * incoherent sum. */
static void form_powers(const struct br_baseband *plan, struct baseband_scratch *s, const struct piece *piece,
                        size_t wp, size_t octet, bool masks)
{
    size_t row = plan->chunks * CHUNK * 2, at = wp * plan->octets + octet, n = piece->rows - piece->before;
    float *power = s->power + piece->before * OCTET;
    if (octet < plan->octets) {
        struct octet_job job = {.weights = plan->weights + at * row * OCTET * 2,
                                .offset = plan->offset + at * 2 * OCTET,
                                .field = s->field,
                                .chunks = plan->chunks,
                                .valid = masks ? s->valid : NULL,
                                .times = n,
                                .power = power};
        plan->octet(&job);
        return;
    }
    for (size_t t = 0; t < n; t++)
        power[t * OCTET] =
            masks && !s->valid[t]
                ? 0
                : incoherent(plan, plan->power->incoherent + wp * plan->ndishes, s->field + t * row);
}

/* The tree of power.h for eight columns at once. */
static void add_groups(float *groups, const float *power, size_t count, const float *scale, bool first)
{
    for (size_t g = 0; g < count; g++, groups += OCTET, power += GROUP * OCTET) {
        float sum[GROUP / 2 * OCTET];
        for (size_t i = 0; i < GROUP / 2 * OCTET; i++)
            sum[i] =
                power[i / OCTET * 2 * OCTET + i % OCTET] + power[(i / OCTET * 2 + 1) * OCTET + i % OCTET];
        for (size_t n = GROUP / 4; n > 0; n /= 2)
            for (size_t i = 0; i < n; i++)
                for (size_t b = 0; b < OCTET; b++)
                    sum[i * OCTET + b] = sum[2 * i * OCTET + b] + sum[(2 * i + 1) * OCTET + b];
        for (size_t b = 0; b < OCTET; b++) {
            float one = sum[b] * (scale ? scale[b] : 1);
            groups[b] = first ? one : groups[b] + one;
        }
    }
}

/* Rows of the group that the slab does not complete, between the state and a worker's powers. */
static void keep_rest(const struct br_baseband *plan, float *rest, float *power, size_t octet, size_t begin,
                      size_t end, bool restores)
{
    size_t C = plan->power->columns, first = octet < plan->octets ? octet * OCTET : plan->nbeams,
           left = octet < plan->octets ? plan->nbeams - first : 1, n = left < OCTET ? left : OCTET;
    for (size_t i = begin; i < end; i++) {
        float *kept = rest + i % GROUP * C + first, *here = power + i * OCTET;
        memcpy(restores ? here : kept, restores ? kept : here, n * sizeof *here);
    }
}

static void do_piece(struct br_baseband *plan, struct baseband_scratch *s, const struct power_slab *slab,
                     const struct piece *piece)
{
    struct power_state *st = plan->power;
    size_t F = plan->nchannels, P = plan->npol, D = plan->ndishes, f = piece->f,
           octets = padded(plan) / OCTET, row = plan->chunks * CHUNK * 2, most = plan->block / GROUP,
           rows = piece->rows;
    size_t whole = piece->ends ? (rows + GROUP - 1) / GROUP : rows / GROUP, n = rows - piece->before;
    for (size_t t = 0; slab->e_valid && t < n; t++) s->valid[t] = slab->e_valid[(piece->from + t) * F + f];
    for (size_t p = 0; p < P; p++) {
        size_t wp = plan->weight_channels == 1 ? p : f * P + p, state = (f * P + p) * GROUP * st->columns;
        for (size_t t = 0; t < n; t++)
            plan->unpack(s->field + t * row, slab->e + (((piece->from + t) * F + f) * P + p) * D, D);
        for (size_t o = 0; o < octets; o++) {
            if (n > 0) form_powers(plan, s, piece, wp, o, slab->e_valid != NULL);
            keep_rest(plan, st->rest[st->now] + state, s->power, o, 0, piece->before, true);
            if (!piece->ends)
                keep_rest(plan, st->rest[st->now ^ 1] + state, s->power, o, whole * GROUP, rows, false);
            else if (rows < whole * GROUP)
                memset(s->power + rows * OCTET, 0, (whole * GROUP - rows) * OCTET * sizeof *s->power);
            add_groups(s->groups + o * most * OCTET, s->power, whole,
                       o < plan->octets ? plan->scale + (wp * plan->octets + o) * OCTET : NULL, p == 0);
        }
    }
    for (size_t o = 0; o < octets; o++)
        for (size_t i = 0; i < whole * OCTET; i++)
            s->running[o * OCTET + i % OCTET] += s->groups[o * most * OCTET + i];
}

/* A worker's sums, to or from the columns of the state, or of the output. */
static void do_span(struct br_baseband *plan, struct baseband_scratch *s, const struct power_slab *slab,
                    size_t f, size_t k)
{
    struct power_state *st = plan->power;
    const struct power_span span = power_span(st, slab, k);
    size_t C = st->columns, B = plan->nbeams, behind = plan->octets * OCTET;
    const float *before = st->running[st->now] + f * C;
    memset(s->running, 0, padded(plan) * sizeof *s->running);
    if (span.begin > 0) {
        memcpy(s->running, before, B * sizeof *before);
        if (C > B) s->running[behind] = before[B];
    }
    for (size_t at = span.begin - span.begin % GROUP; at < span.end; at += plan->block) {
        size_t rows = span.end - at < plan->block ? span.end - at : plan->block,
               early = at < span.begin ? span.begin - at : 0;
        struct piece piece = {f, span.at + at + early - span.begin, early, rows,
                              span.ends && at + rows == span.end};
        do_piece(plan, s, slab, &piece);
    }
    if (C > B) s->running[B] = s->running[behind];
    if (span.ends)
        br_baseband_power_finish(st, s->running, power_factor(st, slab, f, k),
                                 slab->out + (f * slab->out_stride + k) * (C - st->subtract));
    else
        memcpy(st->running[st->now ^ 1] + f * C, s->running, C * sizeof *s->running);
}

struct work {
    struct br_baseband *plan;
    const struct power_slab *slab;
    size_t spans, pieces; /* pieces: jobs of a channel */
};

static void do_job(void *arg, size_t job, unsigned worker)
{
    const struct work *w = arg;
    size_t piece = job % w->pieces, end = (piece + 1) * w->spans / w->pieces;
    for (size_t k = piece * w->spans / w->pieces; k < end; k++)
        do_span(w->plan, &w->plan->scratch[worker], w->slab, job / w->pieces, k);
}

void br_baseband_cpu_power(struct br_baseband *plan, const struct power_slab *slab)
{
    enum { JOBS_EACH = 8 };
    struct work w = {plan, slab, power_spans(plan->power, slab), 1};
    if (plan->nscratch > 1) {
        w.pieces = (plan->nscratch * JOBS_EACH + plan->nchannels - 1) / plan->nchannels;
        if (w.pieces > w.spans) w.pieces = w.spans;
    }
    if (w.spans > 0) br_parallel_for(&plan->parallel, plan->nchannels * w.pieces, do_job, &w);
}
