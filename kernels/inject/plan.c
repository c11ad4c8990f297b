/* plan.c - the tables of the noise that was rounded away. */
#include "kernels/inject/plan.h"
#include "kernels/common/cuda.h"

#include <stdlib.h>
#include <string.h>

enum { ROOM = 512 << 10, STEPS = 2048 };
#define LEAST_RMS   0.3 /* of the quietest class, levels */
#define CLASS_RATIO 1.1

/* Quantiles of a normal distribution between a and b. */
static void cut_normal(double rms, double a, double b, double centre, float *to)
{
    double sum[STEPS + 1] = {0}, h = (b - a) / STEPS;
    for (int i = 0; i < STEPS; i++) {
        double t = (a + (i + 0.5) * h) / rms;
        sum[i + 1] = sum[i] + exp(-t * t / 2);
    }
    int k = 0;
    for (int q = 0; q < INJECT_QUANTILES; q++) {
        double want = sum[STEPS] * q / (INJECT_QUANTILES - 1);
        while (k < STEPS - 1 && sum[k + 1] < want) k++;
        double part = sum[k + 1] > sum[k] ? (want - sum[k]) / (sum[k + 1] - sum[k]) : 0;
        to[q] = (float)(a + (k + part) * h - centre);
    }
}

/* The levels at the ends stand for all that is beyond, but for -8, which noise that is clamped to -7 lacks.
 * Rounding adds 1/12 to each component's power. */
static void fill_tables(struct inject_tables *tables)
{
    double rms = LEAST_RMS;
    for (int c = 0; c < INJECT_CLASSES; c++, rms *= CLASS_RATIO) {
        double least = rms / sqrt(CLASS_RATIO);
        tables->least[c] = c == 0 ? 0 : 2 * (least * least + 1. / 12);
        for (int level = -8; level < 8; level++) {
            double a = level == -7 ? fmin(-7.5, -6.5 - 5 * rms) : level - 0.5,
                   b = level == 7 ? fmax(7.5, 6.5 + 5 * rms) : level + 0.5;
            cut_normal(rms, a, b, level, tables->quantile[c][level + 8]);
        }
    }
}

static size_t pack_of(const struct br_inject_params *p, size_t samples)
{
    return samples * 2 * sizeof(float) + p->ndishes * sizeof(struct br_inject_input) + 8;
}

size_t inject_room(const struct br_inject_params *p)
{
    size_t least = pack_of(p, INJECT_SEGMENT);
    return (ROOM > least ? ROOM : least) / 8 * 8;
}

/* Of as many segments as a call may have. */
size_t inject_side_bytes(const struct br_inject_params *p)
{
    size_t samples = inject_room(p) / (2 * sizeof(float));
    return (samples / INJECT_SEGMENT + INJECT_MOST + 1) * ((p->ndishes + 3) / 4 * 4);
}

size_t br_inject_host_bytes(const struct br_inject_params *p)
{
    return sizeof(struct inject_tables) +
           p->nworkers * p->ndishes * (2 * sizeof(uint64_t) + sizeof(struct inject_factor));
}

size_t br_inject_device_bytes(const struct br_inject_params *p)
{
    return sizeof(struct inject_tables) + inject_side_bytes(p) + p->nlines * p->ndishes;
}

size_t br_inject_upload_bytes(const struct br_inject_params *p)
{
    return inject_room(p) + INJECT_MOST * sizeof(struct br_inject_piece);
}

size_t br_inject_sums_bytes(const struct br_inject_params *p)
{
    return sizeof(uint64_t) + p->nlines * p->ndishes * (sizeof(uint64_t) + sizeof(uint32_t));
}

struct br_inject_sums br_inject_sums(const struct br_inject *plan, void *sums)
{
    struct br_inject_sums s = {sums, (uint64_t *)sums + 1, NULL};
    s.power = (uint32_t *)(s.lost + plan->p.nlines * plan->p.ndishes);
    return s;
}

size_t br_inject_room(const struct br_inject *plan)
{
    return inject_room(&plan->p);
}

size_t br_inject_most_pieces(const struct br_inject *plan)
{
    (void)plan;
    return INJECT_MOST;
}

size_t br_inject_most_noise(const struct br_inject *plan)
{
    return br_inject_upload_bytes(&plan->p) / sizeof(struct br_inject_noise);
}

static bool make_scratch(struct br_inject *plan)
{
    size_t D = plan->p.ndishes;
    plan->scratch = calloc(plan->p.nworkers, sizeof *plan->scratch);
    for (unsigned i = 0; plan->scratch != NULL && i < plan->p.nworkers; i++) {
        struct inject_scratch *w = &plan->scratch[i];
        w->zeros = malloc(D * sizeof *w->zeros);
        w->gone = malloc(D * sizeof *w->gone);
        w->factor = malloc(D * sizeof *w->factor);
        if (w->zeros == NULL || w->gone == NULL || w->factor == NULL) return false;
    }
    return plan->scratch != NULL;
}

/* Moves the tables to the device. */
static int move(struct br_inject *plan, struct br_why *why)
{
#if BR_WITH_CUDA
    struct br_cuda *cuda = plan->p.cuda;
    struct inject_tables *host = plan->tables;
    plan->tables = br_cuda_table(cuda, host, sizeof *host, why);
    free(host);
    if (plan->tables != NULL) plan->side = br_cuda_alloc(cuda, inject_side_bytes(&plan->p), why);
    if (plan->side != NULL) plan->carry = br_cuda_alloc(cuda, plan->p.nlines * plan->p.ndishes, why);
    return plan->carry != NULL ? 0 : -1;
#else
    (void)plan;
    return br_because(why, "this beamring was built without CUDA");
#endif
}

int br_inject_create(struct br_inject **result, enum br_backend backend, const struct br_inject_params *p,
                     struct br_why *why)
{
    struct br_inject *plan = *result = calloc(1, sizeof *plan);
    if (plan == NULL) return br_because(why, "no memory");
    plan->p = *p;
    plan->tables = malloc(sizeof *plan->tables);
    bool good = plan->tables != NULL && make_scratch(plan);
    if (!good) br_because(why, "no memory for the tables of the noise");
    if (good) fill_tables(plan->tables);
    if (good && backend == BR_CUDA) good = move(plan, why) == 0;
    plan->backend = backend;
    if (good) return 0;
    br_inject_destroy(plan);
    *result = NULL;
    return -1;
}

void br_inject_destroy(struct br_inject *plan)
{
    if (plan == NULL) return;
    for (unsigned i = 0; plan->scratch != NULL && i < plan->p.nworkers; i++) {
        free(plan->scratch[i].zeros);
        free(plan->scratch[i].gone);
        free(plan->scratch[i].factor);
    }
    free(plan->scratch);
    if (plan->backend == BR_CUDA) {
        br_cuda_free(plan->p.cuda, plan->tables);
        br_cuda_free(plan->p.cuda, plan->side);
        br_cuda_free(plan->p.cuda, plan->carry);
    } else
        free(plan->tables);
    free(plan);
}

#if !BR_WITH_CUDA /* no plan of BR_CUDA comes here */
void br_inject_cuda_measure(const struct br_inject *plan, const struct br_inject_frame *frame,
                            const struct br_inject_noise *noise, size_t count)
{
    (void)plan, (void)frame, (void)noise, (void)count;
}

void br_inject_cuda_add(const struct br_inject *plan, const struct br_inject_frame *frame,
                        const uint8_t *pack, size_t bytes, struct br_inject_piece *pieces, size_t count)
{
    (void)plan, (void)frame, (void)pack, (void)bytes, (void)pieces, (void)count;
}

int br_inject_fetch(const struct br_inject *plan, void *host, const void *sums, struct br_why *why)
{
    (void)plan, (void)host, (void)sums;
    return br_because(why, "this beamring was built without CUDA");
}
#endif
