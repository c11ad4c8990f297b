/* The baseband beamformer against the exact sum, for thousands of shapes and inputs: on the CPU, and on a GPU
 * with the kernels that suit the device and with the portable one. The expected values are summed here in
 * plain integers; of large shapes for some of the outputs, chosen at random, and then the GPU's kernels are
 * compared with each other in all of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernels/baseband/shape.h"
#include "tests/kernels/common/draws.h"

/* The values of the electric field and of the weights. */
enum field { FIELD_RANDOM, FIELD_LEAST, FIELD_ENDS, FIELD_CROSSED, FIELDS };
enum weights { WEIGHTS_RANDOM, WEIGHTS_MOST, WEIGHTS_LEAST, WEIGHTS_ENDS, WEIGHTS_SMALLER, WEIGHTS };

/* Room for the largest shape; the arrays of one case at a time. */
struct run {
    struct shape n;
    unsigned bits; /* of a component of the output: 4 or 8 */
    uint8_t *e, *valid, *out;
    int8_t *w;
    int32_t *shift;
    uint64_t *clamped;  /* [B] expected, where all outputs are summed */
    size_t whole, some; /* how many cases were compared in all outputs, and in some */
    size_t decile[10];  /* beams by their clamped share */
    size_t shifted[21]; /* ... by their shift */
};

/* ---- cases ---- */

static int8_t weight_of(enum weights kind, int most)
{
    switch (kind) {
    case WEIGHTS_MOST:
        return 127;
    case WEIGHTS_LEAST:
        return -127;
    case WEIGHTS_ENDS:
        return dump_random(&seed) & 1 ? 127 : -127;
    case WEIGHTS_SMALLER:
        return (int8_t)((int)pick(0, 2 * (size_t)most) - most);
    default:
        return (int8_t)((int)pick(0, 254) - 127);
    }
}

static uint8_t field_of(enum field kind)
{
    uint64_t bits = dump_random(&seed);
    switch (kind) {
    case FIELD_LEAST:
        return 0x88; /* -8 - 8 i */
    case FIELD_ENDS:
        return (uint8_t)((bits & 1 ? 0x8 : 0x7) | (bits & 2 ? 0x80 : 0x70)); /* -8 or 7 */
    case FIELD_CROSSED:
        return bits & 1 ? 0x78 : 0x87;
    default:
        return (uint8_t)bits;
    }
}

/* Shifts of 0 to 20, or, with `balanced`, ones that clamp part of the beam's outputs. */
static void make_weights(struct run *r, enum weights kind, int balanced)
{
    struct shape n = r->n;
    for (size_t row = 0; row < n.WF * n.P * n.B; row++) {
        int most = (int)pick(1, 127);
        for (size_t i = 0; i < 2 * n.D; i++) r->w[row * n.D * 2 + i] = weight_of(kind, most);
        r->shift[row] = (int32_t)pick(0, 20);
        if (!balanced) continue;
        /* The sum of 2 D products of a field of rms 4.6 and weights up to `most`: 2^s between a 4th and a
         * 64th of its rms. */
        double rms2 = 2.0 * (double)n.D * 21.5 * most * (most + 1) / 3;
        int32_t s = 0;
        while ((double)((int64_t)1 << 2 * (s + 1)) * 30 < rms2) s++;
        r->shift[row] = s > (int32_t)pick(0, 3) ? s - (int32_t)pick(0, 3) : s;
        if (r->shift[row] < 0) r->shift[row] = 0;
    }
}

static void make_field(struct run *r, enum field kind, int missing)
{
    struct shape n = r->n;
    for (size_t i = 0; i < n.T * n.F * n.P * n.D; i++) r->e[i] = field_of(kind);
    if (missing)
        for (size_t i = 0; i < n.T * n.F; i++) r->valid[i] = pick(0, 3) ? 255 : 0;
}

/* ---- what is expected ---- */

static int component(uint8_t byte, int imaginary)
{
    int value = imaginary ? byte / 16 : byte % 16;
    return value > 7 ? value - 16 : value;
}

/* floor(sum / 2^s + 1/2), or the sum itself at s = 0, kept in [-most, most]. */
static int rounded(int64_t sum, int32_t s, int most, uint64_t *clamped)
{
    int64_t unit = (int64_t)1 << s, twice = s ? 2 * sum + unit : 2 * sum, value = twice / (2 * unit);
    if (twice % (2 * unit) < 0) value--;
    if (value > most || value < -most) ++*clamped;
    return value > most ? most : value < -most ? -most : (int)value;
}

static unsigned expected(const struct run *r, size_t t, size_t f, size_t p, size_t b, const uint8_t *valid,
                         uint64_t *clamped)
{
    struct shape n = r->n;
    if (valid && !valid[t * n.F + f]) return r->bits == 8 ? 0x8080 : 0x88;
    size_t row = ((n.WF == 1 ? 0 : f) * n.P + p) * n.B + b;
    const int8_t *w = r->w + row * n.D * 2;
    const uint8_t *e = r->e + ((t * n.F + f) * n.P + p) * n.D;
    int64_t re = 0, im = 0;
    for (size_t d = 0; d < n.D; d++) {
        int x = component(e[d], 0), y = component(e[d], 1);
        re += w[2 * d] * x - w[2 * d + 1] * y;
        im += w[2 * d] * y + w[2 * d + 1] * x;
    }
    int most = r->bits == 8 ? 127 : 7, low = rounded(re, r->shift[row], most, clamped),
        high = rounded(im, r->shift[row], most, clamped), mask = 2 * most + 1;
    return (unsigned)((low & mask) | (high & mask) << r->bits);
}

/* Compares r->out, in all outputs if they take at most `work` products, else in about as many of them as
 * that. */
static void compare(struct run *r, const char *who, const uint8_t *valid, const uint64_t *clamped,
                    size_t work)
{
    struct shape n = r->n;
    size_t outputs = n.B * n.F * n.P * n.T, tries = work / n.D + 1;
    int whole = outputs <= tries;
    if (whole) memset(r->clamped, 0, n.B * sizeof *r->clamped);
    for (size_t i = 0; i < (whole ? outputs : tries); i++) {
        size_t at = whole ? i : dump_random(&seed) % outputs;
        size_t t = at % n.T, p = at / n.T % n.P, f = at / n.T / n.P % n.F, b = at / n.T / n.P / n.F;
        uint64_t count = 0;
        unsigned is = expected(r, t, f, p, b, valid, &count),
                 got = r->bits == 8 ? r->out[2 * at] | (unsigned)r->out[2 * at + 1] << 8 : r->out[at];
        if (whole) r->clamped[b] += count;
        if (got != is)
            fail_msg("%s, %u bits, T %zu F %zu P %zu D %zu B %zu WF %zu: t %zu f %zu p %zu b %zu is %02x, "
                     "not %02x",
                     who, r->bits, n.T, n.F, n.P, n.D, n.B, n.WF, t, f, p, b, got, is);
    }
    if (whole)
        for (size_t b = 0; b < n.B; b++) {
            if (clamped[b] != r->clamped[b])
                fail_msg("%s, T %zu F %zu P %zu D %zu B %zu: beam %zu has %llu clamped components, not %llu",
                         who, n.T, n.F, n.P, n.D, n.B, b, (unsigned long long)clamped[b],
                         (unsigned long long)r->clamped[b]);
            size_t share = r->clamped[b] * 10 / (2 * n.T * n.F * n.P);
            r->decile[share > 9 ? 9 : share]++;
            for (size_t i = 0; i < n.WF * n.P; i++) r->shifted[r->shift[i * n.B + b]]++;
        }
    if (whole)
        r->whole++;
    else
        r->some++;
}

/* ---- kinds of plans ---- */

struct kind {
    const char *name;
    /* Runs the case: r->out and clamped[B]. */
    void (*execute)(struct run *r, const struct br_baseband_params *params, const uint8_t *valid,
                    uint64_t *clamped);
};

static void on_cpu(struct run *r, const struct br_baseband_params *params, const uint8_t *valid,
                   uint64_t *clamped)
{
    struct br_baseband *plan;
    struct br_why why;
    static uint8_t out_valid[1 << 20];
    assert_true(r->n.T * r->n.F <= sizeof out_valid);
    if (br_baseband_create(&plan, BR_CPU, params, &why) != 0) fail_msg("%s", why.text);
    memset(clamped, 0, r->n.B * sizeof *clamped);
    br_baseband_execute(plan, r->e, valid, r->n.T, r->out, out_valid, clamped);
    br_baseband_destroy(plan);
}

static void run_case(struct run *r, const struct kind *kind, const uint8_t *valid, size_t work)
{
    struct shape n = r->n;
    uint64_t clamped[1024];
    struct br_baseband_params params = params_of(n, r->w, r->shift);
    params.bits = r->bits;
    memset(r->out, 0xee, n.B * n.F * n.P * n.T * r->bits / 4);
    kind->execute(r, &params, valid, clamped);
    compare(r, kind->name, valid, clamped, work);
}

static void *room(size_t bytes)
{
    void *memory = malloc(bytes);
    if (!memory) fail_msg("no memory");
    return memory;
}

static struct run begin(size_t field, size_t samples, size_t weights, size_t rows, size_t outputs)
{
    return (struct run){.bits = 4,
                        .e = room(field),
                        .valid = room(samples),
                        .out = room(2 * outputs),
                        .w = room(weights),
                        .shift = room(rows * sizeof(int32_t)),
                        .clamped = room(1024 * sizeof(uint64_t))};
}

static void end(struct run *r)
{
    free(r->e);
    free(r->valid);
    free(r->out);
    free(r->w);
    free(r->shift);
    free(r->clamped);
}

/* Any shape up to 128 beams and 1024 dishes (multiples of 16) of which the outputs take at most `work`
 * products, with any field, weights and shifts. */
static void random_cases(const struct kind *kinds, size_t count, size_t cases, size_t work)
{
    struct run r = begin(1 << 20, 1 << 20, 1 << 23, 1 << 20, 1 << 20);
    for (size_t i = 0; i < cases; i++) {
        struct shape n = {
            .F = pick(1, 3), .P = pick(1, 2), .D = 16 * pick(1, i % 4 ? 8 : 64), .B = pick(1, 128)};
        if (i % 3 == 0) n.B = pick(1, 17);
        n.WF = pick(0, 1) ? n.F : 1;
        size_t most = work / (n.F * n.P * n.D * n.B) + 1;
        n.T = pick(1, most > 700 ? 700 : most);
        if (i % 5 == 0) n.T = (n.T + 15) / 16 * 16;
        r.n = n;
        r.bits = i % 5 < 2 ? 8 : 4;
        int balanced = i % 2, missing = i % 7 == 0;
        make_weights(&r, balanced ? WEIGHTS_SMALLER : (enum weights)(i / 2 % WEIGHTS), balanced);
        make_field(&r, balanced ? FIELD_RANDOM : (enum field)(i / 6 % FIELDS), missing);
        for (size_t k = 0; k < count; k++) run_case(&r, &kinds[k], missing ? r.valid : NULL, (size_t)-1 / 2);
    }
    assert_int_equal(r.whole, cases * count);
    for (int i = 0; i < 10; i++) assert_true(r.decile[i] > 0);   /* beams clamped by all shares */
    for (int i = 0; i <= 20; i++) assert_true(r.shifted[i] > 0); /* by all shifts */
    printf(
        "%zu cases, all outputs and counts equal the exact sums; beams clamped by up to 10 %%, 20 %%, ...:",
        r.whole);
    for (int i = 0; i < 10; i++) printf(" %zu", r.decile[i]);
    printf("\n");
    end(&r);
}

/* One dish count after the other, one beam count after the other, every time of a tile. */
static void every_size(const struct kind *kinds, size_t count)
{
    struct run r = begin(1 << 20, 1 << 12, 1 << 21, 1 << 12, 1 << 20);
    for (size_t i = 1; i <= 128; i++)
        for (int what = 0; what < 3; what++) {
            r.n = what == 0 ? (struct shape){.T = 19, .F = 1, .P = 1, .D = 16 * (1 + i % 64), .B = 5, .WF = 1}
                  : what == 1 ? (struct shape){.T = 18, .F = 1, .P = 1, .D = 32, .B = i, .WF = 1}
                              : (struct shape){.T = 128 + i, .F = 1, .P = 2, .D = 16, .B = 2, .WF = 1};
            r.bits = i % 2 ? 4 : 8;
            make_weights(&r, WEIGHTS_SMALLER, 1);
            make_field(&r, FIELD_RANDOM, 0);
            for (size_t k = 0; k < count; k++) run_case(&r, &kinds[k], NULL, (size_t)-1 / 2);
        }
    end(&r);
}

/* The largest sums there are, at every shift: all of -8 with all of 127 and -127, and mixtures. */
static void largest_sums(const struct kind *kinds, size_t count)
{
    struct run r = begin(1 << 20, 1 << 12, 1 << 21, 1 << 12, 1 << 20);
    static const size_t dishes[] = {16, 64, 512, 1024, 512};
    for (size_t i = 0; i < 5; i++)
        for (int weights = WEIGHTS_RANDOM; weights < WEIGHTS; weights++)
            for (int field = FIELD_LEAST; field < FIELDS; field++) {
                r.n = (struct shape){.T = 5, .F = 1, .P = 1, .D = dishes[i], .B = i < 4 ? 21 : 84, .WF = 1};
                make_weights(&r, (enum weights)weights, 0);
                for (size_t b = 0; b < r.n.B; b++) r.shift[b] = (int)b % 21;
                r.bits = field % 2 ? 4 : 8;
                make_field(&r, (enum field)field, 0);
                for (size_t k = 0; k < count; k++) run_case(&r, &kinds[k], NULL, (size_t)-1 / 2);
            }
    end(&r);
}

static const struct kind cpu[] = {{"CPU", on_cpu}};

static void cpu_random(void **state)
{
    (void)state;
    random_cases(cpu, 1, 1500, 60000);
}

static void cpu_every_size(void **state)
{
    (void)state;
    every_size(cpu, 1);
}

static void cpu_largest(void **state)
{
    (void)state;
    largest_sums(cpu, 1);
}

#if BR_WITH_CUDA
#include "tests/kernels/common/gpu.h"

enum { FIELD_ROOM = 1 << 28, VALID_ROOM = 1 << 20, OUT_ROOM = 1 << 27 };

static uint8_t *device_e, *device_out;
static size_t misaligned; /* where e and out begin */

static int open_device(void **state)
{
    if (gpu_open(state) != 0) return -1;
    if (!gpu) return 0;
    device_e = gpu_poisoned(FIELD_ROOM, 0);
    device_out = gpu_poisoned(OUT_ROOM, 0);
    return 0;
}

static int close_device(void **state)
{
    if (gpu) {
        br_cuda_free(gpu, device_e);
        br_cuda_free(gpu, device_out);
    }
    return gpu_close(state);
}

static void on_gpu(struct run *r, const struct br_baseband_params *params, enum br_baseband_gpu which,
                   const uint8_t *valid, uint64_t *clamped)
{
    struct shape n = r->n;
    size_t inputs = n.T * n.F * n.P * n.D, outputs = n.B * n.F * n.P * n.T * r->bits / 4;
    struct br_baseband_params on = *params;
    struct br_baseband *plan;
    struct br_why why;
    assert_true(inputs + misaligned <= FIELD_ROOM && outputs + misaligned + 16 <= OUT_ROOM);
    on.cuda = gpu;
    on.gpu = which;
    if (br_baseband_create(&plan, BR_CUDA, &on, &why) != 0) fail_msg("%s", why.text);
    gpu_ok(cudaMemcpyAsync(device_e + misaligned, r->e, inputs, cudaMemcpyHostToDevice, br_cuda_stream(gpu)));
    gpu_ok(cudaMemsetAsync(device_out, 0xee, outputs + misaligned + 16, br_cuda_stream(gpu)));
    br_baseband_execute(plan, device_e + misaligned, valid, n.T, device_out + misaligned, NULL, NULL);
    br_baseband_saturated(plan, clamped);
    gpu_fetch(r->out, device_out + misaligned, outputs);
    uint8_t beyond[16];
    gpu_fetch(beyond, device_out + misaligned + outputs, sizeof beyond);
    for (int i = 0; i < 16; i++) assert_int_equal(beyond[i], 0xee);
    br_baseband_destroy(plan);
}

static void on_any_gpu(struct run *r, const struct br_baseband_params *params, const uint8_t *valid,
                       uint64_t *clamped)
{
    on_gpu(r, params, BR_BASEBAND_PORTABLE, valid, clamped);
}

static void on_this_gpu(struct run *r, const struct br_baseband_params *params, const uint8_t *valid,
                        uint64_t *clamped)
{
    on_gpu(r, params, BR_BASEBAND_AUTO, valid, clamped);
}

static void on_busy_gpu(struct run *r, const struct br_baseband_params *params, const uint8_t *valid,
                        uint64_t *clamped)
{
    on_gpu(r, params, BR_BASEBAND_MANY, valid, clamped);
}

enum { GPUS = 3 };
static const struct kind gpus[GPUS] = {
    {"GPU", on_this_gpu}, {"GPU, portable", on_any_gpu}, {"GPU, for many tiles", on_busy_gpu}};

static void gpu_random(void **state)
{
    NEEDS_GPU();
    const char *cases = getenv("BEAMRING_GPU_CASES"); /* as many as one has patience for */
    random_cases(gpus, GPUS, cases ? (size_t)atoi(cases) : getenv("BEAMRING_GPU_SMALL") ? 40 : 2000, 60000);
}

static void gpu_random_misaligned(void **state)
{
    NEEDS_GPU();
    for (misaligned = 1; misaligned <= 16; misaligned *= 2) random_cases(gpus, GPUS, 100, 30000);
    misaligned = 0;
}

static void gpu_every_size(void **state)
{
    NEEDS_GPU();
    every_size(gpus, GPUS);
}

static void gpu_largest(void **state)
{
    NEEDS_GPU();
    largest_sums(gpus, GPUS);
}

/* Shapes of telescopes, and such as fill the device: some outputs are summed, and the kernels agree in all.
 */
static void gpu_large(void **state)
{
    NEEDS_GPU();
    static const struct shape shapes[] = {
        {.T = 1024, .F = 4, .P = 2, .D = 512, .B = 96, .WF = 4},
        {.T = 1040, .F = 16, .P = 2, .D = 256, .B = 16, .WF = 16},
        {.T = 1000, .F = 48, .P = 2, .D = 64, .B = 16, .WF = 1},
        {.T = 3001, .F = 3, .P = 2, .D = 512, .B = 96, .WF = 3},
        {.T = 777, .F = 5, .P = 1, .D = 1024, .B = 128, .WF = 5},
        {.T = 65536, .F = 1, .P = 2, .D = 64, .B = 16, .WF = 1},
        {.T = 4096, .F = 1, .P = 2, .D = 512, .B = 96, .WF = 1},
        {.T = 256, .F = 64, .P = 2, .D = 128, .B = 33, .WF = 64},
        {.T = 512, .F = 3, .P = 1, .D = 240, .B = 127, .WF = 3},
        {.T = 2, .F = 700, .P = 2, .D = 48, .B = 7, .WF = 700},
    };
    struct run r = begin(1 << 25, 1 << 18, 1 << 22, 1 << 16, 1 << 24);
    uint8_t *other = room(1 << 25);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct shape n = r.n = shapes[i];
        r.bits = i % 2 ? 8 : 4;
        size_t outputs = n.B * n.F * n.P * n.T * r.bits / 4;
        uint64_t clamped[GPUS][1024];
        make_weights(&r, WEIGHTS_SMALLER, 1);
        make_field(&r, FIELD_RANDOM, 1);
        struct br_baseband_params params = params_of(n, r.w, r.shift);
        params.bits = r.bits;
        for (int missing = 0; missing < 2; missing++) {
            const uint8_t *valid = missing ? r.valid : NULL;
            for (int k = 0; k < GPUS; k++) {
                gpus[k].execute(&r, &params, valid, clamped[k]);
                compare(&r, gpus[k].name, valid, clamped[k], 2000000);
                if (k == 0) memcpy(other, r.out, outputs);
                assert_memory_equal(other, r.out, outputs);
                assert_memory_equal(clamped[0], clamped[k], n.B * sizeof **clamped);
            }
        }
    }
    free(other);
    end(&r);
}
#endif

int main(void)
{
    seed = 4;
    const struct CMUnitTest host[] = {cmocka_unit_test(cpu_random), cmocka_unit_test(cpu_every_size),
                                      cmocka_unit_test(cpu_largest)};
    int failed = cmocka_run_group_tests_name("on the CPU", host, NULL, NULL);
#if BR_WITH_CUDA
    const struct CMUnitTest small[] = {cmocka_unit_test(gpu_random)};
    const struct CMUnitTest more[] = {cmocka_unit_test(gpu_random_misaligned),
                                      cmocka_unit_test(gpu_every_size), cmocka_unit_test(gpu_largest),
                                      cmocka_unit_test(gpu_large)};
    failed += cmocka_run_group_tests_name("on the GPU", small, open_device, close_device);
    if (!getenv("BEAMRING_GPU_SMALL")) /* set for compute-sanitizer */
        failed += cmocka_run_group_tests_name("on the GPU, more", more, open_device, close_device);
#endif
    return failed;
}
