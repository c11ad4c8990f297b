/* The power of the baseband beamformer's beams, to the bit: against sums written here from the equation and
 * the order that kernels/baseband/power.h says, for streams in calls of any length, on the CPU with one
 * worker and with several, and on a GPU with the kernels that suit the device and with the portable one. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "buffers/half.h"
#include "kernels/baseband/power.h"
#include "tests/kernels/baseband/shape.h"
#include "tests/kernels/common/draws.h"
#include "tests/kernels/common/refused.h"

enum incoherent { NONE, APPEND, SUBTRACT };

/* A stream that begins `phase` samples into a block, and what comes of it: blocks, the last one flushed. */
struct run {
    struct shape n;
    unsigned integrate, phase;
    double threshold;
    enum incoherent incoherent;
    size_t blocks, columns; /* columns of the output */
    uint8_t *e, *valid;     /* valid NULL: all is there */
    int8_t *w;
    int32_t *shift, *c;
    uint16_t *expected, *out; /* [F][blocks][columns] */
    uint8_t *expected_valid, *out_valid;
};

static void *room(size_t bytes)
{
    void *memory = malloc(bytes);
    if (!memory) fail_msg("no memory");
    return memory;
}

static struct run make(struct shape n, unsigned integrate, unsigned phase, enum incoherent incoherent,
                       int missing)
{
    struct run r = {
        .n = n, .integrate = integrate, .phase = phase, .incoherent = incoherent, .threshold = 0.3};
    size_t rows = n.WF * n.P * n.B, inputs = n.T * n.F * n.P * n.D;
    r.blocks = (phase + n.T + integrate - 1) / integrate;
    r.columns = n.B + (incoherent == APPEND);
    r.e = room(inputs);
    r.w = room(rows * n.D * 2);
    r.shift = room(rows * sizeof *r.shift);
    r.c = room(n.WF * n.P * n.D * sizeof *r.c);
    for (size_t i = 0; i < inputs; i++) r.e[i] = (uint8_t)dump_random(&seed);
    for (size_t i = 0; i < rows * n.D * 2; i++) r.w[i] = (int8_t)((int)pick(0, 254) - 127);
    for (size_t i = 0; i < rows; i++) r.shift[i] = (int32_t)pick(0, 12);
    for (size_t i = 0; i < n.WF * n.P * n.D; i++) r.c[i] = (int32_t)pick(0, 1 << 15);
    if (missing) r.valid = room(n.T * n.F);
    for (size_t i = 0; missing && i < n.T * n.F; i++)
        r.valid[i] = (uint8_t)(pick(0, 2) ? 255 : pick(0, 1) ? 0 : pick(1, 254));
    /* a hole of its own, so that blocks are missing altogether */
    size_t hole = pick(0, n.T - 1), end = hole + pick(0, 2 * integrate);
    if (missing)
        for (size_t t = hole; t < n.T && t < end; t++) memset(r.valid + t * n.F, 0, n.F);
    size_t outputs = n.F * r.blocks;
    r.expected = room(outputs * r.columns * sizeof *r.expected);
    r.out = room(outputs * r.columns * sizeof *r.out);
    r.expected_valid = room(outputs);
    r.out_valid = room(outputs);
    return r;
}

static void end(struct run *r)
{
    free(r->e), free(r->valid), free(r->w), free(r->shift), free(r->c);
    free(r->expected), free(r->out), free(r->expected_valid), free(r->out_valid);
}

static int log2_scale_of(const struct run *r)
{
    return (int)ceil(log2((double)r->integrate * (double)r->n.P)) + 8;
}

/* ---- what is expected ---- */

static int part(unsigned byte, int imaginary)
{
    int value = (int)(imaginary ? byte >> 4 : byte & 15);
    return value > 7 ? value - 16 : value;
}

/* Sample t, which is there, of one polarisation in one column. */
static float power(const struct run *r, size_t t, size_t f, size_t p, size_t column)
{
    struct shape n = r->n;
    size_t wp = (n.WF == 1 ? 0 : f) * n.P + p;
    const uint8_t *e = r->e + ((t * n.F + f) * n.P + p) * n.D;
    const int8_t *w = r->w + (wp * n.B + column) * n.D * 2;
    int64_t re = 0, im = 0, sum = 0;
    for (size_t d = 0; d < n.D; d++) {
        int x = part(e[d], 0), y = part(e[d], 1);
        if (column == n.B) {
            sum += (int64_t)r->c[wp * n.D + d] * (x * x + y * y);
        } else {
            re += w[2 * d] * x - w[2 * d + 1] * y;
            im += w[2 * d] * y + w[2 * d + 1] * x;
        }
    }
    if (column == n.B) return (float)sum;
    volatile float xx = (float)re * (float)re, yy = (float)im * (float)im; /* each rounds by itself */
    return xx + yy;
}

static float tree(const float *value, size_t count)
{
    return count == 1 ? value[0] : tree(value, count / 2) + tree(value + count / 2, count / 2);
}

static float sum_block(const struct run *r, size_t block, size_t f, size_t column)
{
    struct shape n = r->n;
    float sum = 0;
    for (size_t first = 0; first < r->integrate; first += 16) {
        float group = 0;
        for (size_t p = 0; p < n.P; p++) {
            float value[16] = {0};
            for (size_t i = 0; i < 16 && first + i < r->integrate; i++) {
                size_t at = block * r->integrate + first + i; /* from the first block's first sample on */
                if (at < r->phase || at - r->phase >= n.T) continue;
                size_t t = at - r->phase;
                if (!r->valid || r->valid[t * n.F + f]) value[i] = power(r, t, f, p, column);
            }
            size_t wp = (n.WF == 1 ? 0 : f) * n.P + p;
            group += tree(value, 16) * (column < n.B ? ldexpf(1, -2 * r->shift[wp * n.B + column]) : 1);
        }
        sum += group;
    }
    return sum;
}

static void expect(struct run *r)
{
    struct shape n = r->n;
    for (size_t i = 0; i < n.F * r->blocks; i++) {
        size_t f = i / r->blocks, block = i % r->blocks;
        uint64_t shares = 0, whole = 255 * (uint64_t)r->integrate;
        for (size_t k = 0; k < r->integrate; k++) {
            size_t at = block * r->integrate + k;
            if (at < r->phase || at - r->phase >= n.T) continue;
            shares += r->valid ? r->valid[(at - r->phase) * n.F + f] : 255;
        }
        int masked = shares == 0 || (double)shares / (double)whole < r->threshold;
        long byte = lround((double)shares * 255 / (double)whole);
        if (shares < whole && byte > 254) byte = 254;
        r->expected_valid[i] = (uint8_t)(masked ? 0 : byte < 1 ? 1 : byte);
        float factor = (float)ldexp((double)whole / (double)(shares ? shares : 1), -log2_scale_of(r));
        float less = r->incoherent == SUBTRACT && !masked ? sum_block(r, block, f, n.B) : 0;
        for (size_t c = 0; c < r->columns; c++) {
            float value = masked ? 0 : (sum_block(r, block, f, c) - less) * factor;
            r->expected[i * r->columns + c] = br_half_from_float(value > 65504 ? 65504 : value);
        }
    }
}

/* ---- what comes of it ---- */

struct memory {
    uint8_t *e;
    uint16_t *out;
    void (*fetch)(void *to, const void *from, size_t bytes);
};

/* The stream in calls of lengths by chance; `most` blocks a call. */
static void execute(struct run *r, struct br_baseband *plan, const struct memory *m)
{
    struct shape n = r->n;
    size_t done = 0, at = 0;
    br_baseband_power_begin(plan, r->phase);
    while (at < n.T) {
        size_t nsteps = pick(0, 3) ? pick(1, n.T - at) : (n.T - at < 16 ? n.T - at : (n.T - at) / 16 * 16),
               taken;
        size_t most = pick(0, 2) ? r->blocks : pick(0, 3);
        size_t blocks = br_baseband_power(
            plan, m->e + at * n.F * n.P * n.D, r->valid ? r->valid + at * n.F : NULL, nsteps, most,
            m->out + done * r->columns, r->blocks, r->out_valid + done, r->blocks, &taken);
        assert_true(blocks <= most && taken <= nsteps && (taken == nsteps || blocks == most));
        done += blocks;
        at += taken;
    }
    done +=
        br_baseband_power_flush(plan, m->out + done * r->columns, r->blocks, r->out_valid + done, r->blocks);
    assert_int_equal(done, r->blocks);
    assert_int_equal(br_baseband_power_flush(plan, NULL, 0, NULL, 0), 0);
    if (m->fetch) m->fetch(r->out, m->out, n.F * r->blocks * r->columns * sizeof *r->out);
}

static struct br_baseband_params params_for(const struct run *r)
{
    struct br_baseband_params p = params_of(r->n, r->w, r->shift);
    p.integrate = r->integrate;
    p.threshold = r->threshold;
    p.log2_scale = log2_scale_of(r);
    p.incoherent = r->incoherent != NONE ? r->c : NULL;
    p.subtract = r->incoherent == SUBTRACT;
    return p;
}

static void check(struct run *r, const char *who, enum br_backend backend, const struct br_baseband_params *p,
                  const struct memory *m)
{
    struct shape n = r->n;
    struct br_baseband *plan;
    struct br_why why;
    memset(r->out, 0xee, n.F * r->blocks * r->columns * sizeof *r->out);
    memset(r->out_valid, 0xee, n.F * r->blocks);
    if (br_baseband_create(&plan, backend, p, &why) != 0) fail_msg("%s: %s", who, why.text);
    execute(r, plan, m);
    br_baseband_destroy(plan);
    for (size_t i = 0; i < n.F * r->blocks; i++) {
        if (r->out_valid[i] != r->expected_valid[i])
            fail_msg("%s: f %zu block %zu has validity %d, not %d", who, i / r->blocks, i % r->blocks,
                     r->out_valid[i], r->expected_valid[i]);
        for (size_t c = 0; c < r->columns; c++)
            if (r->out[i * r->columns + c] != r->expected[i * r->columns + c])
                fail_msg(
                    "%s, T %zu F %zu P %zu D %zu B %zu WF %zu, %u from %u, incoherent %d: f %zu block %zu "
                    "column %zu is %g, not %g",
                    who, n.T, n.F, n.P, n.D, n.B, n.WF, r->integrate, r->phase, r->incoherent, i / r->blocks,
                    i % r->blocks, c, (double)br_half_to_float(r->out[i * r->columns + c]),
                    (double)br_half_to_float(r->expected[i * r->columns + c]));
    }
}

/* Three workers that take turns, the last job first. */
static void take_turns(void *context, size_t jobs, br_parallel_work *work, void *arg)
{
    (void)context;
    for (size_t job = jobs; job-- > 0;) work(arg, job, (unsigned)(job % 3));
}

static void on_cpu(struct run *r)
{
    struct br_baseband_params p = params_for(r);
    const struct memory host = {r->e, r->out, NULL};
    check(r, "reference", BR_REFERENCE, &p, &host);
    check(r, "one worker", BR_CPU, &p, &host);
    p.parallel = (struct br_parallel){3, NULL, take_turns};
    check(r, "three workers", BR_CPU, &p, &host);
}

/* Shapes, lengths of blocks and holes by chance. */
static void any_case(void (*on)(struct run *), size_t cases, int sixteens)
{
    for (size_t i = 0; i < cases; i++) {
        struct shape n = {
            .T = pick(1, 230), .F = pick(1, 3), .P = pick(1, 3), .D = pick(1, 40), .B = pick(1, 21)};
        unsigned integrate = (unsigned)(pick(0, 1) ? 16 * pick(1, 8) : pick(1, 100));
        if (sixteens || pick(0, 2) == 0) n.D = 16 * pick(1, 9);
        if (sixteens && pick(0, 1)) n.T = 16 * pick(1, 30), n.B = pick(1, 110);
        n.WF = pick(0, 1) ? n.F : 1;
        unsigned phase = (unsigned)(pick(0, 1) ? 0 : pick(0, integrate - 1));
        struct run r = make(n, integrate, phase, (enum incoherent)(i % 3), i % 4 != 0);
        expect(&r);
        on(&r);
        end(&r);
    }
}

static void cpu_any_case(void **state)
{
    (void)state;
    any_case(on_cpu, 200, 0);
}

/* A block much longer than a slab, and a stream of many slabs of whole blocks. */
static void cpu_long(void **state)
{
    (void)state;
    struct run r =
        make((struct shape){.T = 13000, .F = 1, .P = 2, .D = 3, .B = 2, .WF = 1}, 9001, 5, APPEND, 1);
    expect(&r);
    on_cpu(&r);
    end(&r);
    r = make((struct shape){.T = 9000, .F = 2, .P = 1, .D = 2, .B = 3, .WF = 2}, 1, 0, NONE, 1);
    expect(&r);
    on_cpu(&r);
    end(&r);
}

/* New weights hold from a sample on, within a block. */
static void exchanged_within_a_block(void **state)
{
    (void)state;
    struct shape n = {.T = 20, .F = 1, .P = 1, .D = 1, .B = 1, .WF = 1};
    int8_t one[2] = {1, 0}, two[2] = {2, 0};
    int32_t shift[1] = {0};
    uint8_t e[20], valid[1];
    uint16_t out[1];
    size_t taken;
    struct br_baseband *plan, *with;
    struct br_why why;
    memset(e, 0x01, sizeof e); /* 1 + 0 i */
    struct br_baseband_params p = params_of(n, one, shift);
    p.integrate = 20;
    assert_int_equal(br_baseband_create(&plan, BR_CPU, &p, &why), 0);
    p.weights = two;
    assert_int_equal(br_baseband_create(&with, BR_CPU, &p, &why), 0);
    assert_int_equal(br_baseband_power(plan, e, NULL, 7, 1, out, 1, valid, 1, &taken), 0);
    assert_int_equal(br_baseband_may_exchange(plan, with, &why), 0);
    br_baseband_exchange(plan, with);
    assert_int_equal(br_baseband_power(plan, e + 7, NULL, 13, 1, out, 1, valid, 1, &taken), 1);
    assert_true(br_half_to_float(out[0]) == 7 + 13 * 4);
    br_baseband_destroy(with);
    p.log2_scale = 1;
    assert_int_equal(br_baseband_create(&with, BR_CPU, &p, &why), 0);
    assert_int_equal(br_baseband_may_exchange(plan, with, &why), -1);
    br_baseband_destroy(with);
    br_baseband_destroy(plan);
}

/* Full scale on every dish, in phase with the largest weights, fits float16 with the scale that is said. */
static void full_scale(void **state)
{
    (void)state;
    enum { D = 96, N = 32 };
    struct shape n = {.T = N, .F = 1, .P = 2, .D = D, .B = 1, .WF = 1};
    static int8_t w[2 * D * 2];
    static uint8_t e[N * 2 * D], valid[1];
    int32_t shift[2] = {3, 3};
    uint16_t out[1];
    size_t taken;
    struct br_baseband *plan;
    struct br_why why;
    for (size_t i = 0; i < sizeof w; i++) w[i] = -127;
    memset(e, 0x88, sizeof e); /* -8 - 8 i; times -127 + 127 i it is real */
    for (size_t i = 1; i < sizeof w; i += 2) w[i] = 127;
    struct br_baseband_params p = params_of(n, w, shift);
    p.integrate = N;
    p.log2_scale = br_baseband_log2_scale(&p, D * 127 * sqrt(2) / 8);
    assert_int_equal(br_baseband_create(&plan, BR_CPU, &p, &why), 0);
    assert_int_equal(br_baseband_power(plan, e, NULL, N, 1, out, 1, valid, 1, &taken), 1);
    double is = (double)br_half_to_float(out[0]),
           exact = ldexp(N * 2.0 * D * D * 127 * 127 * 4 * 64 / 64, -p.log2_scale);
    assert_true(fabs(is - exact) <= exact / 2048);
    assert_true(is <= 65504 && is > 65504 / 2.0);
    br_baseband_destroy(plan);
}

static void refused(const struct br_baseband_params *p, const char *text)
{
    struct br_baseband *plan;
    struct br_why why = {""};
    int status = br_baseband_create(&plan, BR_CPU, p, &why);
    assert_refused(status, plan, &why, text);
}

static void refuses(void **state)
{
    (void)state;
    int8_t w[2] = {1, 0};
    int32_t shift[1] = {0};
    struct br_baseband_params p = params_of((struct shape){.F = 1, .P = 1, .D = 1, .B = 1, .WF = 1}, w,
                                            shift),
                              bad = p;
    bad.bits = 5;
    refused(&bad, "components of 5 bits; expected 4 or 8");
    bad.bits = 8, bad.integrate = 4;
    refused(&bad, "no output of 8 bits");
    bad.bits = 0, bad.threshold = 2;
    refused(&bad, "threshold is 2; expected 0 to 1");
    bad.threshold = 0, bad.log2_scale = 500;
    refused(&bad, "log2_scale is 500");
}

#if BR_WITH_CUDA
#include "tests/kernels/common/gpu.h"

static void on_gpu(struct run *r)
{
    struct shape n = r->n;
    size_t inputs = n.T * n.F * n.P * n.D, outputs = n.F * r->blocks * r->columns;
    struct br_baseband_params p = params_for(r);
    struct memory device = {gpu_poisoned(inputs, 0), gpu_poisoned(outputs * sizeof(uint16_t), 0xee),
                            gpu_fetch};
    gpu_ok(cudaMemcpy(device.e, r->e, inputs, cudaMemcpyHostToDevice));
    p.cuda = gpu;
    check(r, "GPU", BR_CUDA, &p, &device);
    p.gpu = BR_BASEBAND_PORTABLE;
    check(r, "GPU, portable", BR_CUDA, &p, &device);
    br_cuda_free(gpu, device.e);
    br_cuda_free(gpu, device.out);
}

static void gpu_any_case(void **state)
{
    NEEDS_GPU();
    any_case(on_gpu, getenv("BEAMRING_GPU_SMALL") ? 20 : 150, 1);
    any_case(on_gpu, getenv("BEAMRING_GPU_SMALL") ? 10 : 100, 0);
}

/* Beams and dishes of telescopes: each variant of the kernels; several blocks, whole and cut. */
static void gpu_large(void **state)
{
    NEEDS_GPU();
    if (getenv("BEAMRING_GPU_SMALL")) skip(); /* set for compute-sanitizer */
    static const struct shape shapes[] = {
        {.T = 512, .F = 2, .P = 2, .D = 512, .B = 96, .WF = 2},
        {.T = 400, .F = 3, .P = 2, .D = 128, .B = 256, .WF = 1},
        {.T = 640, .F = 2, .P = 2, .D = 64, .B = 16, .WF = 2},
        {.T = 1024, .F = 1, .P = 1, .D = 1024, .B = 33, .WF = 1},
        {.T = 999, .F = 2, .P = 2, .D = 240, .B = 60, .WF = 2},
    };
    static const unsigned blocks[] = {128, 48, 1, 384, 16};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int k = 0; k < 2; k++) {
            struct run r = make(shapes[i], blocks[(i + (size_t)k) % 5], 0, (enum incoherent)(i % 3), k);
            expect(&r);
            on_gpu(&r);
            end(&r);
        }
}
#endif

int main(void)
{
    seed = 11;
    const struct CMUnitTest host[] = {cmocka_unit_test(cpu_any_case), cmocka_unit_test(cpu_long),
                                      cmocka_unit_test(exchanged_within_a_block),
                                      cmocka_unit_test(full_scale), cmocka_unit_test(refuses)};
    int failed = cmocka_run_group_tests_name("on the CPU", host, NULL, NULL);
#if BR_WITH_CUDA
    const struct CMUnitTest device[] = {cmocka_unit_test(gpu_any_case), cmocka_unit_test(gpu_large)};
    failed += cmocka_run_group_tests_name("on the GPU", device, gpu_open, gpu_close);
#endif
    return failed;
}
