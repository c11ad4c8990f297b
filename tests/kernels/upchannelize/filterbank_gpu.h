/* filterbank_gpu.h - streams through the filterbank on a GPU, and against the equation. For the C files that
 * include it after cmocka.h. */
#ifndef BEAMRING_TESTS_KERNELS_UPCHANNELIZE_FILTERBANK_GPU_H
#define BEAMRING_TESTS_KERNELS_UPCHANNELIZE_FILTERBANK_GPU_H

#include "tests/kernels/common/gpu.h"
#include "tests/kernels/upchannelize/filterbank.h"

static inline void *on_device(const void *host, size_t bytes)
{
    struct br_why why;
    void *memory = br_cuda_table(gpu, host, bytes, &why);
    if (!memory) fail_msg("%s", why.text);
    return memory;
}

/* One stream through a plan on the device, in calls of `lengths[i]` blocks (the last goes on to the end),
 * with the input `off_in` and the output `off_out` bytes behind an aligned address. Around the output nothing
 * may be written. */
static inline struct result pass(struct br_upchannelize *plan, const struct stream *s, const size_t *lengths,
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
    uint64_t before = br_cuda_count(gpu);
    for (size_t b = 0, i = 0; b < s->blocks; i++) {
        size_t count = lengths && lengths[i] && lengths[i] < s->blocks - b ? lengths[i] : s->blocks - b;
        uint64_t clamped = br_upchannelize_execute(
            plan, e + off_in + b * s->U * s->row, s->row,
            s->valid ? s->valid + b * s->U * s->valid_row : NULL, s->valid_row, count * s->U,
            out + GUARD + off_out + b * s->F * s->U * s->X, r.out_valid + b * s->F * s->U);
        assert_int_equal(clamped, 0);
        b += count;
    }
    r.clamped = br_cuda_count(gpu) - before;
    struct br_why why;
    if (br_cuda_check(gpu, &why) != 0) fail_msg("%s", why.text);
    gpu_ok(cudaMemcpy(r.out, out, around, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < GUARD + off_out; i++) assert_int_equal(r.out[i], 0x11);
    for (size_t i = GUARD + off_out + n; i < around; i++) assert_int_equal(r.out[i], 0x11);
    memmove(r.out, r.out + GUARD + off_out, n);
    assert_int_equal(r.out_valid[outputs(s)], 0x11);
    check_marks(s, &r);
    br_cuda_free(gpu, e);
    br_cuda_free(gpu, out);
    free(moved);
    return r;
}

static inline struct result run_at(const struct stream *s, const size_t *lengths, size_t off_in,
                                   size_t off_out)
{
    struct br_upchannelize *plan = plan_for(s, BR_CUDA, gpu);
    struct result r = pass(plan, s, lengths, off_in, off_out);
    br_upchannelize_destroy(plan);
    return r;
}

/* Shapes for tensor cores, where sums are float16: what their rounding makes of outputs of up to 7 levels is
 * seldom more than a hundredth of a level. */
static inline int float16(const struct stream *s)
{
    return s->X % 64 == 0 && s->M <= (s->U <= 16 ? 8 : 4);
}

static inline void check(const struct stream *s, size_t off_in, size_t off_out)
{
    struct result r = run_at(s, NULL, off_in, off_out);
    double equal = check_equation(s, &r, float16(s) ? 0.02 : 1e-4);
    if (outputs(s) * s->X > 3000 && equal < 0.995)
        fail_msg("U=%zu M=%zu X=%zu: only %.3f %% are equal", s->U, s->M, s->X, 100 * equal);
    forget(&r);
}

/* Noise of rms about 2.4, as telescopes set it. */
static inline struct stream make_noise(size_t F, size_t X, size_t U, size_t M, size_t blocks)
{
    struct stream s = make(F, X, U, M, blocks);
    for (size_t i = 0; i < blocks * U * s.row; i++) {
        int re = (int)pick(0, 4) + (int)pick(0, 4) + (int)pick(0, 4) - 6,
            im = (int)pick(0, 4) + (int)pick(0, 4) + (int)pick(0, 4) - 6;
        s.e[i] = (uint8_t)((re & 15) | (im & 15) << 4);
    }
    return s;
}

#endif
