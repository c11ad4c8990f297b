/* The filterbank on a GPU against its equation, and against the CPU's on larger streams. */
#include "kernels/common/cuda.h"
#include "kernels/upchannelize/upchannelize.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernels/upchannelize/filterbank.h"

static void without_a_device(void **state)
{
    (void)state;
    const struct br_upchannelize_params params = {.nchannels = 1, .nspectators = 1, .factor = 4, .taps = 4};
    struct br_upchannelize *plan;
    struct br_why why;
    assert_int_equal(br_upchannelize_create(&plan, BR_CUDA, &params, &why), -1);
    assert_null(plan);
    assert_non_null(strstr(why.text, BR_WITH_CUDA ? "br_cuda" : "without CUDA"));
}

#if BR_WITH_CUDA
#include <cuda_runtime_api.h>

static struct br_cuda *cuda;

static int open_device(void **state)
{
    (void)state;
    struct br_why why;
    if (br_cuda_devices(&why) == 0) {
        printf("no GPU: skipped (%s)\n", why.text);
        return 0;
    }
    if (br_cuda_create(&cuda, 0, NULL, 1 << 20, &why) == 0) return 0;
    printf("%s\n", why.text);
    return -1;
}

static int close_device(void **state)
{
    (void)state;
    br_cuda_destroy(cuda);
    return 0;
}

#define NEEDS_DEVICE()                                                                                       \
    (void)state;                                                                                             \
    if (!cuda) skip()

static void cuda_ok(cudaError_t status)
{
    if (status != cudaSuccess) fail_msg("%s", cudaGetErrorString(status));
}

static void *on_device(const void *host, size_t bytes)
{
    struct br_why why;
    void *memory = br_cuda_table(cuda, host, bytes, &why);
    if (!memory) fail_msg("%s", why.text);
    return memory;
}

/* One stream through a plan on the device, in calls of `lengths[i]` blocks (the last goes on to the end),
 * with the input `off_in` and the output `off_out` bytes behind an aligned address. Around the output nothing
 * may be written. */
static struct result pass(struct br_upchannelize *plan, const struct stream *s, const size_t *lengths,
                          size_t off_in, size_t off_out)
{
    enum { GUARD = 64 };
    size_t inputs = s->blocks * s->U * s->row, n = outputs(s) * s->X, around = n + 2 * GUARD + off_out;
    struct result r = {malloc(around), malloc(outputs(s) + 1), 0};
    uint8_t *moved = malloc(inputs + off_in + 1);
    memcpy(moved + off_in, s->e, inputs);
    memset(r.out, 0x11, around);
    memset(r.out_valid, 0x11, outputs(s) + 1);
    uint8_t *e = on_device(moved, inputs + off_in + 1), *out = on_device(r.out, around);
    uint64_t before = br_cuda_count(cuda);
    for (size_t b = 0, i = 0; b < s->blocks; i++) {
        size_t count = lengths && lengths[i] && lengths[i] < s->blocks - b ? lengths[i] : s->blocks - b;
        uint64_t clamped = br_upchannelize_execute(
            plan, e + off_in + b * s->U * s->row, s->row,
            s->valid ? s->valid + b * s->U * s->valid_row : NULL, s->valid_row, count * s->U,
            out + GUARD + off_out + b * s->F * s->U * s->X, r.out_valid + b * s->F * s->U);
        assert_int_equal(clamped, 0);
        b += count;
    }
    r.clamped = br_cuda_count(cuda) - before;
    struct br_why why;
    if (br_cuda_check(cuda, &why) != 0) fail_msg("%s", why.text);
    cuda_ok(cudaMemcpy(r.out, out, around, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < GUARD + off_out; i++) assert_int_equal(r.out[i], 0x11);
    for (size_t i = GUARD + off_out + n; i < around; i++) assert_int_equal(r.out[i], 0x11);
    memmove(r.out, r.out + GUARD + off_out, n);
    assert_int_equal(r.out_valid[outputs(s)], 0x11);
    check_marks(s, &r);
    br_cuda_free(cuda, e);
    br_cuda_free(cuda, out);
    free(moved);
    return r;
}

static struct result run_at(const struct stream *s, const size_t *lengths, size_t off_in, size_t off_out)
{
    struct br_upchannelize *plan = plan_for(s, BR_CUDA, cuda);
    struct result r = pass(plan, s, lengths, off_in, off_out);
    br_upchannelize_destroy(plan);
    return r;
}

/* Shapes for tensor cores, where sums are float16: what their rounding makes of outputs of up to 7 levels is
 * seldom more than a hundredth of a level. */
static int float16(const struct stream *s)
{
    return s->X % 64 == 0 && s->M <= (s->U <= 16 ? 8 : 4);
}

static void check(const struct stream *s, size_t off_in, size_t off_out)
{
    struct result r = run_at(s, NULL, off_in, off_out);
    double equal = check_equation(s, &r, float16(s) ? 0.02 : 1e-4);
    if (outputs(s) * s->X > 3000 && equal < 0.995)
        fail_msg("U=%zu M=%zu X=%zu: only %.3f %% are equal", s->U, s->M, s->X, 100 * equal);
    forget(&r);
}

/* Noise of rms about 2.4, as telescopes set it. */
static struct stream make_noise(size_t F, size_t X, size_t U, size_t M, size_t blocks)
{
    struct stream s = make(F, X, U, M, blocks);
    for (size_t i = 0; i < blocks * U * s.row; i++) {
        int re = (int)pick(0, 4) + (int)pick(0, 4) + (int)pick(0, 4) - 6,
            im = (int)pick(0, 4) + (int)pick(0, 4) + (int)pick(0, 4) - 6;
        s.e[i] = (uint8_t)((re & 15) | (im & 15) << 4);
    }
    return s;
}

/* Every kernel, with rows that fill whole words and rows that do not. */
static void every_factor(void **state)
{
    NEEDS_DEVICE();
    static const size_t taps[] = {4, 1, 3, 2, 5, 7};
    for (size_t U = 2; U <= 128; U *= 2)
        for (size_t i = 0; i < 6; i++) {
            size_t M = taps[i], most = 60000 / (M * U * U) + 1, X = pick(1, most > 150 ? 150 : most);
            if (i % 2 == 0) X = (X + 3) / 4 * 4;
            struct stream s = make(pick(1, 3), X, U, M, M - 1 + pick(1, 4));
            check(&s, i % 3 == 2, i % 4 == 3);
            drop(&s);
        }
}

/* The tensor cores' kernels, those for this device and those for any: every number of taps, with data that
 * stand well and badly. */
static void every_factor_on_tensor_cores(void **state)
{
    NEEDS_DEVICE();
    for (size_t U = 2; U <= 128; U *= 2)
        for (size_t M = 1; M <= (U <= 16 ? 8 : 4); M++) {
            size_t most = 30 / U + 1;
            struct stream s =
                make_noise(M % 3 + 1, M == 4 ? 192 : 64, U, M, M - 1 + pick(most, 2 * most + 1));
            for (int portable = 0; portable < 2; portable++) {
                s.portable = portable;
                check(&s, M % 2 ? 0 : pick(1, 8), M % 4 == 3 ? pick(1, 15) : 0);
            }
            drop(&s);
        }
}

/* Gains of either sign, some of them 0, so that pairs of fine channels do not share one. */
static void own_gain_on_tensor_cores(void **state)
{
    NEEDS_DEVICE();
    for (size_t U = 2; U <= 128; U *= 2) {
        struct stream s = make_noise(2, 64, U, 4, 3 + 60 / U + 1);
        s.gain = malloc(U * sizeof *s.gain);
        for (size_t u = 0; u < U; u++)
            s.gain[u] =
                u % 5 == 4 ? 0 : (pick(0, 1) ? 1 : -1) * (double)pick(200, 1200) * 1e-3 * sqrt((double)U);
        check(&s, 0, 0);
        drop(&s);
    }
}

/* One whose second half is not the first one's in reverse: no taps are had from those of other times. */
static void own_window_on_tensor_cores(void **state)
{
    NEEDS_DEVICE();
    for (size_t U = 8; U <= 128; U *= 2) {
        struct stream s = make_noise(1, 64, U, 4, 8);
        s.window = malloc(4 * U * sizeof *s.window);
        br_upchannelize_window(s.window, (unsigned)U, 4);
        for (size_t i = 0; i < 4 * U; i++) s.window[i] *= 0.75 + 0.5 * (double)i / (4.0 * (double)U);
        check(&s, 0, 0);
        drop(&s);
    }
}

static void tones_match_the_analytic_response(void **state)
{
    NEEDS_DEVICE();
    for (size_t U = 2; U <= 128; U *= 2)
        for (size_t i = 0; i < 16; i++) {
            double at = i % 2 ? (double)pick(0, U - 2) + 0.5 : (double)pick(0, U - 1);
            struct stream s = make(1, 64, U, 4, 5);
            make_tone(&s, at);
            s.portable = i & 2;
            s.gain = malloc(U * sizeof *s.gain);
            for (size_t u = 0; u < U; u++) s.gain[u] = 1;
            struct result r = run_at(&s, NULL, 0, 0);
            check_tone(&s, &r, at);
            forget(&r);
            drop(&s);
        }
}

enum { MOST_ZONES = 12 };

/* Zones of a band, [F, U, M] each with X = 64, in frames of these many steps, together: what each gives
 * alone in one call, and as many clamped. */
static void check_zones(const unsigned (*zone)[3], size_t zones, const size_t *frame, bool missing,
                        size_t off)
{
    struct br_upchannelize *plan[MOST_ZONES];
    struct stream s[MOST_ZONES];
    size_t T = 0, row = 0, channels = 0, X = 64, first[MOST_ZONES + 1] = {0};
    for (size_t i = 0; frame[i] > 0; i++) T += frame[i];
    for (size_t z = 0; z < zones; z++) {
        s[z] = make_noise(zone[z][0], X, zone[z][1], zone[z][2], T / zone[z][1]);
        if (missing) add_missing(&s[z], 800);
        plan[z] = plan_for(&s[z], BR_CUDA, cuda);
        first[z + 1] = channels += s[z].F;
    }
    row = channels * X;
    uint8_t *e = malloc(T * row + off), *valid = malloc(T * channels), *out = malloc(T * row + off),
            *out_valid = malloc(T * channels);
    for (size_t t = 0; t < T; t++)
        for (size_t z = 0; z < zones; z++) {
            memcpy(e + off + t * row + first[z] * X, s[z].e + t * s[z].row, s[z].row);
            if (missing)
                memcpy(valid + t * channels + first[z], s[z].valid + t * s[z].valid_row, s[z].F);
            else
                memset(valid + t * channels + first[z], 255, s[z].F);
        }
    uint8_t *e_there = on_device(e, T * row + off), *out_there = on_device(e, T * row + off);
    uint64_t before = br_cuda_count(cuda), clamped = 0;
    for (size_t i = 0, t = 0; frame[i] > 0; t += frame[i++]) {
        struct br_upchannelize_call call[MOST_ZONES];
        for (size_t z = 0; z < zones;
             z++) { /* a zone's output is T of its rows beside those of other zones */
            size_t from = (first[z] * T + t * s[z].F) * X;
            call[z] = (struct br_upchannelize_call){plan[z],
                                                    e_there + off + t * row + first[z] * X,
                                                    row,
                                                    valid + t * channels + first[z],
                                                    channels,
                                                    frame[i],
                                                    out_there + off + from,
                                                    out_valid + first[z] * T + t * s[z].F};
        }
        assert_int_equal(br_upchannelize_execute_all(call, zones), 0);
    }
    clamped = br_cuda_count(cuda) - before;
    struct br_why why;
    if (br_cuda_check(cuda, &why) != 0) fail_msg("%s", why.text);
    cuda_ok(cudaMemcpy(out, out_there, T * row + off, cudaMemcpyDeviceToHost));
    for (size_t z = 0; z < zones; z++) {
        struct result alone = run_at(&s[z], NULL, 0, 0);
        if (memcmp(out + off + first[z] * T * X, alone.out, outputs(&s[z]) * X) != 0)
            fail_msg("zone %zu (U = %u) of %zu is not what it is alone", z, zone[z][1], zones);
        assert_memory_equal(out_valid + first[z] * T, alone.out_valid, outputs(&s[z]));
        clamped -= alone.clamped;
        forget(&alone);
        br_upchannelize_destroy(plan[z]);
        drop(&s[z]);
    }
    assert_int_equal(clamped, 0);
    br_cuda_free(cuda, e_there);
    br_cuda_free(cuda, out_there);
    free(e);
    free(valid);
    free(out);
    free(out_valid);
}

static void zones_beside_each_other(void **state)
{
    NEEDS_DEVICE();
    /* of every kernel; more of those that share a launch than it takes; and one */
    static const unsigned mixed[][3] = {{2, 4, 4},  {1, 64, 4}, {3, 16, 3},  {1, 1, 4}, {1, 8, 8},
                                        {1, 32, 4}, {2, 2, 4},  {1, 128, 2}, {2, 16, 4}},
                          many[12][3] = {{1, 2, 4}, {2, 4, 4},  {1, 8, 4}, {3, 16, 4}, {1, 2, 1}, {1, 4, 2},
                                         {2, 8, 3}, {1, 16, 1}, {1, 2, 4}, {1, 16, 4}, {1, 8, 4}, {2, 2, 3}},
                          one[][3] = {{5, 8, 4}};
    static const size_t frames[] = {256, 128, 512, 0}, few[] = {16, 48, 16, 112, 0}, whole[] = {1040, 0};
    for (int round = 0; round < 4; round++) {
        bool missing = round % 2 != 0;
        size_t off = round < 2 ? 0 : pick(1, 15);
        check_zones(mixed, sizeof mixed / sizeof *mixed, frames, missing, off);
        check_zones(many, sizeof many / sizeof *many, few, missing, off);
        check_zones(one, 1, whole, missing, off);
    }
}

static void many_taps(void **state)
{
    NEEDS_DEVICE();
    for (size_t U = 2; U <= 128; U *= 2) {
        struct stream s = make(1, U < 32 ? 9 : 2, U, U < 32 ? pick(8, 32) : 32, 33);
        check(&s, 0, 0);
        drop(&s);
    }
}

static void missing_samples(void **state)
{
    NEEDS_DEVICE();
    for (size_t U = 2; U <= 128; U *= 2)
        for (size_t i = 0; i < 2; i++) {
            size_t M = pick(1, 5), most = U > 32 ? 2 : 8;
            struct stream s = make(pick(2, most), i ? 4 * pick(1, 2) : pick(1, 7), U, M, 12);
            add_missing(&s, 4 * M * U);
            check(&s, 0, 0);
            drop(&s);
            s = make_noise(2, 64, U, M > 4 ? 4 : M, 7);
            s.portable = i;
            add_missing(&s, 4 * M * U);
            check(&s, 0, 0);
            drop(&s);
        }
}

/* Scaled far away from 1 and back by the gain; and so strong that nearly all is clamped. */
static void own_window_and_gain(void **state)
{
    NEEDS_DEVICE();
    for (size_t U = 2; U <= 64; U *= 2)
        for (int strong = 0; strong < 2; strong++) {
            struct stream s = make(2, 9, U, 3, 5);
            s.window = malloc(3 * U * sizeof *s.window);
            s.gain = malloc(U * sizeof *s.gain);
            for (size_t i = 0; i < 3 * U; i++) s.window[i] = ((double)pick(0, 2000) - 1000) * 1e-3 * 1e-40;
            for (size_t u = 0; u < U; u++)
                s.gain[u] = strong ? (u % 2 ? 1e45 : -3e43)
                                   : ((double)pick(0, 2000) - 1000) * 1e-3 / sqrt((double)U) * 1e40;
            /* float32's error grows with the gain: nothing is asked of what is not clamped then but to be
             * near */
            struct result r = run_at(&s, NULL, 0, 0);
            check_equation(&s, &r, strong ? 1e6 : 1e-4);
            if (strong) assert_true(r.clamped > outputs(&s) * s.X / 2);
            forget(&r);
            drop(&s);
        }
}

static void ties_round_to_even(void **state)
{
    NEEDS_DEVICE();
    for (int strong = 0; strong < 2; strong++) {
        struct stream s = make(1, 8, 2, 1, 1);
        static const int in[8] = {1, 3, 5, 7, -1, -3, -5, -8}, halves[8] = {0, 2, 2, 4, 0, -2, -2, -4};
        static const int others[8] = {-2, -7, -7, -7, 2, 7, 7, 7};
        memset(s.e, 0, 16);
        s.window = calloc(2, sizeof *s.window);
        s.gain = calloc(2, sizeof *s.gain);
        s.window[0] = 1;
        s.gain[0] = 0.5;
        s.gain[1] = strong ? -2.5 * 1024 : -2.5; /* 2.5, 7.5, 12.5 ... */
        for (size_t x = 0; x < 8; x++) s.e[x] = (uint8_t)(in[x] & 15);
        struct result r = run_at(&s, NULL, 0, 0);
        for (size_t x = 0; x < 8; x++) {
            assert_int_equal(part(r.out[x], 0), halves[x]);
            assert_int_equal(part(r.out[8 + x], 0), strong ? (in[x] > 0 ? -7 : 7) : others[x]);
            assert_int_equal(r.out[x] >> 4 | r.out[8 + x] >> 4, 0);
        }
        assert_int_equal(r.clamped, strong ? 8 : 6); /* 7.5 rounds to 8 */
        forget(&r);
        drop(&s);
    }
}

/* One call or many, wherever the data stand, and a second time: the same bytes. */
static void call_lengths_change_nothing(void **state)
{
    NEEDS_DEVICE();
    for (int round = 0; round < 32; round++) {
        size_t U = (size_t)1 << round / 2 % 8, lengths[64];
        struct stream s = make(pick(1, 4), round % 2 ? 64 : pick(1, 80), U, pick(1, 6), 1200 / U / 2 + 7);
        if (round & 16) add_missing(&s, 300);
        s.portable = round % 8 == 3;
        for (size_t i = 0; i < 64; i++) lengths[i] = pick(1, 1 + 400 / U / (i % 7 + 1));
        struct result whole = run_at(&s, NULL, 0, 0), pieces = run_at(&s, lengths, pick(0, 3), pick(0, 3)),
                      aligned = run_at(&s, lengths, 0, 0);
        assert_same(&s, &whole, &pieces);
        assert_same(&s, &whole, &aligned);
        forget(&whole);
        forget(&pieces);
        forget(&aligned);
        drop(&s);
    }
}

/* A plan for channels 2 and 3 of five, as a zone of a wider row has it. */
static void part_of_a_row(void **state)
{
    NEEDS_DEVICE();
    for (size_t U = 1; U <= 16; U *= 4)
        for (size_t X = 20; X <= 64; X = X == 21 ? 64 : X + 1) {
            size_t T = 9 * U;
            struct stream zone = make(2, X, U, 4, 9);
            add_missing(&zone, 60);
            struct stream wide = zone;
            wide.row = 5 * X + (X % 2 ? 3 : 4);
            wide.valid_row = 7;
            uint8_t *e = malloc(T * wide.row + 2 * X), *valid = malloc(T * wide.valid_row + 2);
            for (size_t i = 0; i < T * wide.row + 2 * X; i++) e[i] = (uint8_t)dump_random(&seed);
            for (size_t i = 0; i < T * wide.valid_row; i++) valid[i] = (uint8_t)(i % 3);
            for (size_t t = 0; t < T; t++) {
                memcpy(e + t * wide.row + 2 * X, zone.e + t * 2 * X, 2 * X);
                memcpy(valid + t * wide.valid_row + 2, zone.valid + t * 2, 2);
            }
            wide.e = e + 2 * X;
            wide.valid = valid + 2;
            static const size_t lengths[] = {1, 2, 3, 0};
            struct result alone = run_at(&zone, NULL, 0, 0), within = run_at(&wide, lengths, 0, 0);
            assert_same(&zone, &alone, &within);
            forget(&alone);
            forget(&within);
            free(e);
            free(valid);
            drop(&zone);
        }
}

static void reset_starts_a_stream(void **state)
{
    NEEDS_DEVICE();
    struct stream s = make(2, 12, 4, 3, 10);
    struct br_upchannelize *plan = plan_for(&s, BR_CUDA, cuda);
    struct result fresh = pass(plan, &s, NULL, 0, 0);
    br_upchannelize_reset(plan);
    struct result again = pass(plan, &s, NULL, 0, 0);
    assert_same(&s, &fresh, &again);
    /* without a reset the third stream has the second's end for a history */
    struct result third = pass(plan, &s, NULL, 0, 0);
    for (size_t i = 0; i < outputs(&s); i++) assert_int_equal(third.out_valid[i], 255);
    assert_int_equal(br_upchannelize_execute(plan, s.e, s.row, NULL, 0, 0, again.out, again.out_valid), 0);
    br_upchannelize_destroy(plan);
    forget(&fresh);
    forget(&again);
    forget(&third);
    drop(&s);
}

static void factor_one_copies(void **state)
{
    NEEDS_DEVICE();
    struct stream s = make(3, 5, 1, 4, 40);
    for (size_t i = 0; i < 40 * 15; i++) s.e[i] = (uint8_t)dump_random(&seed);
    add_missing(&s, 3);
    struct result r = run_at(&s, NULL, 0, 0);
    assert_memory_equal(r.out, s.e, 40 * 15);
    for (size_t i = 0; i < 40 * 3; i++) assert_int_equal(r.out_valid[i], s.valid[i] ? 255 : 0);
    assert_int_equal(r.clamped, 0);
    forget(&r);
    drop(&s);
}

static void failures(void **state)
{
    NEEDS_DEVICE();
    /* more missing outputs than were announced: execute returns, and the failure can be read */
    struct br_cuda *small;
    struct br_why why;
    struct stream s = make(1, 4, 2, 1, 40000);
    add_missing(&s, 2);
    assert_int_equal(br_cuda_create(&small, 0, NULL, 1, &why), 0);
    struct br_upchannelize *plan = plan_for(&s, BR_CUDA, small);
    uint8_t *memory = br_cuda_alloc(small, 2 * 40000 * 8, &why), *valid = malloc(80000);
    assert_non_null(memory);
    br_upchannelize_execute(plan, memory, s.row, s.valid, 1, 80000, memory + 40000 * 8, valid);
    assert_int_equal(br_cuda_check(small, &why), -1);
    br_upchannelize_destroy(plan);
    br_cuda_free(small, memory);
    br_cuda_destroy(small);
    free(valid);
    drop(&s);
}

/* Larger streams, many thread blocks along both axes: nearly always the CPU's level, never off by more than
 * one. */
static void like_the_cpu(void **state)
{
    NEEDS_DEVICE();
    for (int round = 0; round < 21; round++) {
        size_t U = (size_t)2 << round % 7, M = round < 14 ? 4 : pick(1, 12), F = pick(1, 9),
               X = 32 * pick(1, 8);
        if (round % 4 == 3) X = pick(1, 200);
        struct stream s = make(F, X, U, M, 1500000 / (U * F * X) + M + 3);
        if (round % 2) add_missing(&s, 3000);
        s.portable = round >= 14;
        struct result r = run_at(&s, NULL, 0, 0), c = {malloc(outputs(&s) * X), malloc(outputs(&s)), 0};
        struct br_upchannelize *plan = plan_for(&s, BR_CPU, NULL);
        c.clamped =
            br_upchannelize_execute(plan, s.e, s.row, s.valid, s.valid_row, s.blocks * U, c.out, c.out_valid);
        assert_memory_equal(r.out_valid, c.out_valid, outputs(&s));
        size_t other = 0, components = 2 * outputs(&s) * X;
        for (size_t i = 0; i < outputs(&s) * X; i++)
            for (int k = 0; k < 2; k++) {
                int difference = part(r.out[i], k) - part(c.out[i], k);
                if (abs(difference) > 1)
                    fail_msg("U=%zu M=%zu X=%zu: sample %zu is %d levels off", U, M, X, i, difference);
                other += difference != 0;
            }
        if (other > (float16(&s) ? components / 200 : components / 10000))
            fail_msg("U=%zu M=%zu X=%zu: %zu of %zu differ", U, M, X, other, components);
        double more = (double)r.clamped - (double)c.clamped;
        assert_true(fabs(more) <= (double)components * (float16(&s) ? 1e-3 : 1e-4));
        br_upchannelize_destroy(plan);
        forget(&r);
        forget(&c);
        drop(&s);
    }
}
#endif

int main(void)
{
    seed = 314;
    const struct CMUnitTest host[] = {cmocka_unit_test(without_a_device)};
    int failed = cmocka_run_group_tests(host, NULL, NULL);
#if BR_WITH_CUDA
    const struct CMUnitTest small[] = {
        cmocka_unit_test(every_factor),
        cmocka_unit_test(every_factor_on_tensor_cores),
        cmocka_unit_test(own_gain_on_tensor_cores),
        cmocka_unit_test(own_window_on_tensor_cores),
        cmocka_unit_test(tones_match_the_analytic_response),
        cmocka_unit_test(zones_beside_each_other),
        cmocka_unit_test(many_taps),
        cmocka_unit_test(missing_samples),
        cmocka_unit_test(own_window_and_gain),
        cmocka_unit_test(ties_round_to_even),
        cmocka_unit_test(call_lengths_change_nothing),
        cmocka_unit_test(part_of_a_row),
        cmocka_unit_test(reset_starts_a_stream),
        cmocka_unit_test(factor_one_copies),
        cmocka_unit_test(failures),
    };
    const struct CMUnitTest more[] = {cmocka_unit_test(like_the_cpu)};
    failed += cmocka_run_group_tests_name("gpu, small shapes", small, open_device, close_device);
    if (!getenv("BEAMRING_GPU_SMALL")) /* set for compute-sanitizer */
        failed += cmocka_run_group_tests_name("gpu", more, open_device, close_device);
#endif
    return failed;
}
