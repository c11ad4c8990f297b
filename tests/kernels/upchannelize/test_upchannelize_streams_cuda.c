/* The filterbank on a GPU as a stream goes through it: cut into calls, in zones of a band, after a reset; and
 * its failures. */
#include "kernels/common/cuda.h"
#include "kernels/upchannelize/upchannelize.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#if BR_WITH_CUDA
#include "tests/kernels/upchannelize/filterbank_gpu.h"

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
        plan[z] = plan_for(&s[z], BR_CUDA, gpu);
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
    uint64_t before = br_cuda_count(gpu), clamped = 0;
    for (size_t i = 0, t = 0; frame[i] > 0; t += frame[i++]) {
        struct br_upchannelize_call call[MOST_ZONES];
        for (size_t z = 0; z < zones;
             z++) { /* a zone's output is T of its rows next to those of other zones */
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
    clamped = br_cuda_count(gpu) - before;
    struct br_why why;
    if (br_cuda_check(gpu, &why) != 0) fail_msg("%s", why.text);
    gpu_ok(cudaMemcpy(out, out_there, T * row + off, cudaMemcpyDeviceToHost));
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
    br_cuda_free(gpu, e_there);
    br_cuda_free(gpu, out_there);
    free(e);
    free(valid);
    free(out);
    free(out_valid);
}

static void concurrent_zones(void **state)
{
    NEEDS_GPU();
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

/* One call or many, wherever the data stand, and a second time: the same bytes. */
static void call_lengths_change_nothing(void **state)
{
    NEEDS_GPU();
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
    NEEDS_GPU();
    for (size_t U = 1; U <= 16; U *= 4)
        for (size_t X = 20; X <= 64; X = X == 21 ? 64 : X + 1) {
            struct stream zone = make(2, X, U, 4, 9);
            add_missing(&zone, 60);
            struct stream wide = make_wide(&zone, 5 * X + (X % 2 ? 3 : 4), 2 * X);
            static const size_t lengths[] = {1, 2, 3, 0};
            struct result alone = run_at(&zone, NULL, 0, 0), within = run_at(&wide, lengths, 0, 0);
            assert_same(&zone, &alone, &within);
            forget(&alone);
            forget(&within);
            drop_wide(&wide);
            drop(&zone);
        }
}

static void reset_starts_a_stream(void **state)
{
    NEEDS_GPU();
    struct stream s = make(2, 12, 4, 3, 10);
    struct br_upchannelize *plan = plan_for(&s, BR_CUDA, gpu);
    struct result fresh = pass(plan, &s, NULL, 0, 0);
    br_upchannelize_reset_at(plan, 0);
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
    NEEDS_GPU();
    struct stream s = make_to_copy();
    struct result r = run_at(&s, NULL, 0, 0);
    check_copied(&s, &r);
    forget(&r);
    drop(&s);
}

static void failures(void **state)
{
    NEEDS_GPU();
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
#endif

int main(void)
{
#if BR_WITH_CUDA
    seed = 315;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(concurrent_zones),  cmocka_unit_test(call_lengths_change_nothing),
        cmocka_unit_test(part_of_a_row),     cmocka_unit_test(reset_starts_a_stream),
        cmocka_unit_test(factor_one_copies), cmocka_unit_test(failures),
    };
    return cmocka_run_group_tests_name("gpu, small shapes", tests, gpu_open, gpu_close);
#else
    return 77; /* skipped */
#endif
}
