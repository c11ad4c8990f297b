/* The baseband beamformer on a GPU, frame after frame: kernels that begin before those of the frames before
 * have ended read nothing too early, and every frame becomes what it is alone. */
#include "kernels/baseband/baseband.h"
#include "kernels/common/cuda.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#if BR_WITH_CUDA
#include "tests/kernels/baseband/baseband_gpu.h"

/* Each frame is made from the beams of the one before, so many times over: with a wait after each, and all
 * enqueued at once, when the next kernel may begin before the last one has ended but must not read what is
 * not there yet. Then the same with each frame copied to one and the same place, and its beams from one and
 * the same place, with nothing else between. */
static void frames_in_a_row(void **state)
{
    NEEDS_GPU();
    enum { FRAMES = 24 };
    static const struct shape shapes[] = {{.T = 4096, .F = 3, .P = 2, .D = 96, .B = 96, .WF = 3},
                                          {.T = 300, .F = 5, .P = 2, .D = 64, .B = 64, .WF = 1},
                                          {.T = 2048, .F = 7, .P = 1, .D = 16, .B = 16, .WF = 7},
                                          {.T = 640, .F = 33, .P = 2, .D = 32, .B = 32, .WF = 33}};
    cudaStream_t stream = br_cuda_stream(gpu);
    const bool quick = getenv("BEAMRING_GPU_SMALL") != NULL;
    for (size_t k = quick ? 1 : 0; k < (quick ? 2 : sizeof shapes / sizeof *shapes); k++) {
        struct shape n = shapes[k];
        size_t bytes = n.T * n.F * n.P * n.D, beams = n.WF * n.P * n.B;
        uint8_t *frame[FRAMES + 1], *first = malloc(bytes), *a = malloc(bytes), *b = malloc(bytes);
        int8_t *w = malloc(beams * n.D * 2);
        int32_t *shift = malloc(beams * sizeof *shift);
        fill(first, bytes);
        for (size_t i = 0; i < beams * n.D * 2; i++) w[i] = (int8_t)((int)(dump_random(&seed) % 255) - 127);
        for (size_t i = 0; i < beams; i++) shift[i] = n.D > 64 ? 9 : n.D > 16 ? 8 : 7;
        struct br_baseband *plan = plan_of(BR_CUDA, BR_BASEBAND_AUTO, n, w, shift);
        for (int i = 0; i <= FRAMES; i++) frame[i] = on_device(first, bytes);
        for (int i = 0; i < FRAMES; i++) {
            br_baseband_execute(plan, frame[i], NULL, n.T, frame[i + 1], NULL, NULL);
            gpu_ok(cudaStreamSynchronize(stream));
        }
        uint64_t total = br_baseband_saturated(plan, NULL);
        gpu_ok(cudaMemcpy(a, frame[FRAMES], bytes, cudaMemcpyDeviceToHost));
        assert_true(memcmp(a, first, bytes) != 0);
        for (int i = 1; i <= FRAMES; i++) gpu_ok(cudaMemset(frame[i], 0x5a, bytes));
        gpu_ok(cudaDeviceSynchronize());
        for (int i = 0; i < FRAMES; i++)
            br_baseband_execute(plan, frame[i], NULL, n.T, frame[i + 1], NULL, NULL);
        assert_int_equal(br_baseband_saturated(plan, NULL), 2 * total);
        gpu_ok(cudaMemcpy(b, frame[FRAMES], bytes, cudaMemcpyDeviceToHost));
        assert_memory_equal(a, b, bytes);
        gpu_ok(cudaMemcpy(frame[0], first, bytes, cudaMemcpyHostToDevice));
        for (int i = 0; i < FRAMES; i++) {
            br_baseband_execute(plan, frame[0], NULL, n.T, frame[1], NULL, NULL);
            gpu_ok(cudaMemcpyAsync(frame[0], frame[1], bytes, cudaMemcpyDeviceToDevice, stream));
        }
        assert_int_equal(br_baseband_saturated(plan, NULL), 3 * total);
        gpu_ok(cudaMemcpy(b, frame[0], bytes, cudaMemcpyDeviceToHost));
        assert_memory_equal(a, b, bytes);
        br_baseband_destroy(plan);
        for (int i = 0; i <= FRAMES; i++) br_cuda_free(gpu, frame[i]);
        free(first);
        free(a);
        free(b);
        free(w);
        free(shift);
    }
}

enum { FIELDS = 5, BUFFERS = 7, MANY = 400, TAKEN = MANY / 8 };
enum { AS_IT_COMES, WITH_GAPS, OF_BEAMS, KINDS }; /* OF_BEAMS: made from the beams of the field before */

/* Two plans of one shape, their fields, and what each frame must become, all on the device. */
struct frames {
    struct shape n;
    size_t inputs, outputs, larger;
    struct br_baseband *plan, *other;
    uint8_t *valid, *field[FIELDS], *want[KINDS][FIELDS], *buffer[BUFFERS], *taken[TAKEN];
    uint8_t *moved, *arrived; /* a field that was copied, in the plans' stream or in another one */
    uint64_t clamped[KINDS][FIELDS], before;
    cudaStream_t stream, elsewhere;
    cudaEvent_t came, went;
};

/* The output for each field alone. */
static void make_wanted(struct frames *s, const uint8_t *zeros)
{
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < FIELDS; i++) {
            s->want[kind][i] =
                on_device(zeros, s->larger); /* beyond the beams: part of a field where D > B */
            br_baseband_execute(s->plan, kind == OF_BEAMS ? s->want[AS_IT_COMES][i] : s->field[i],
                                kind == WITH_GAPS ? s->valid : NULL, s->n.T, s->want[kind][i], NULL, NULL);
            uint64_t now = br_baseband_saturated(s->plan, NULL);
            s->clamped[kind][i] = now - s->before;
            s->before = now;
        }
}

static void make_frames(struct frames *s, struct shape n)
{
    size_t rows = n.WF * n.P * n.B;
    *s = (struct frames){.n = n, .inputs = n.T * n.F * n.P * n.D, .outputs = n.T * n.F * n.P * n.B};
    s->larger = s->inputs > s->outputs ? s->inputs : s->outputs;
    s->stream = br_cuda_stream(gpu);
    gpu_ok(cudaStreamCreateWithFlags(&s->elsewhere, cudaStreamNonBlocking));
    gpu_ok(cudaEventCreateWithFlags(&s->came, cudaEventDisableTiming));
    gpu_ok(cudaEventCreateWithFlags(&s->went, cudaEventDisableTiming));
    uint8_t *host = calloc(1, s->larger);
    int8_t *w = malloc(rows * n.D * 2);
    int32_t *shift = malloc(rows * sizeof *shift);
    s->valid = malloc(n.T * n.F);
    for (size_t i = 0; i < rows * n.D * 2; i++) w[i] = (int8_t)((int)(dump_random(&seed) % 255) - 127);
    for (size_t i = 0; i < rows; i++) shift[i] = n.D > 200 ? 10 : 9;
    for (size_t i = 0; i < n.T * n.F; i++) s->valid[i] = pick(0, 3) > 0;
    s->plan = plan_of(BR_CUDA, BR_BASEBAND_AUTO, n, w, shift);
    s->other = plan_of(BR_CUDA, BR_BASEBAND_AUTO, n, w, shift);
    for (int i = 0; i < BUFFERS; i++) s->buffer[i] = on_device(host, s->larger);
    for (int i = 0; i < TAKEN; i++) s->taken[i] = on_device(host, s->outputs);
    s->moved = on_device(host, s->larger);
    s->arrived = on_device(host, s->larger);
    for (int i = 0; i < FIELDS; i++) {
        fill(host, s->larger);
        s->field[i] = on_device(host, s->larger);
    }
    make_wanted(s, host);
    free(host);
    free(w);
    free(shift);
}

static void drop_frames(struct frames *s)
{
    br_baseband_destroy(s->plan);
    br_baseband_destroy(s->other);
    for (int i = 0; i < TAKEN; i++) br_cuda_free(gpu, s->taken[i]);
    for (int i = 0; i < BUFFERS; i++) br_cuda_free(gpu, s->buffer[i]);
    br_cuda_free(gpu, s->moved);
    br_cuda_free(gpu, s->arrived);
    for (int i = 0; i < FIELDS; i++) {
        br_cuda_free(gpu, s->field[i]);
        for (int kind = 0; kind < KINDS; kind++) br_cuda_free(gpu, s->want[kind][i]);
    }
    free(s->valid);
    gpu_ok(cudaEventDestroy(s->came));
    gpu_ok(cudaEventDestroy(s->went));
    gpu_ok(cudaStreamDestroy(s->elsewhere));
}

/* The input of the next frame: field i, and, now and then, before it something that it has to wait for.
 * Returns where the input is; `kind` says what becomes of it, `sum` counts what other frames of the plan
 * clamp. */
static const uint8_t *next_input(struct frames *s, int i, int to, int *kind, uint64_t *sum)
{
    const uint8_t *from = s->field[i];
    *kind = AS_IT_COMES;
    switch (pick(0, 12)) {
    case 0:
        gpu_ok(cudaMemcpyAsync(s->moved, from, s->inputs, cudaMemcpyDeviceToDevice, s->stream));
        return s->moved;
    case 1:
        *kind = WITH_GAPS;
        return from;
    case 2: /* of the beams just made */
        br_baseband_execute(s->plan, from, NULL, s->n.T, s->want[AS_IT_COMES][i], NULL, NULL);
        *sum += s->clamped[AS_IT_COMES][i];
        *kind = OF_BEAMS;
        return s->want[AS_IT_COMES][i];
    case 3:
        br_baseband_execute(s->other, from, NULL, s->n.T, s->moved, NULL, NULL);
        if (s->inputs > s->outputs) return from;
        *kind = OF_BEAMS; /* the same weights: a frame that is made from these beams */
        return s->moved;
    case 4:
        gpu_ok(cudaMemsetAsync(s->buffer[to], 0x5a, s->outputs, s->stream));
        return from;
    case 5: /* a transfer's stream brings it, some time later */
        for (int delay = 0; delay < 20; delay++)
            gpu_ok(cudaMemsetAsync(s->arrived, delay, s->larger, s->elsewhere));
        gpu_ok(cudaMemcpyAsync(s->arrived, from, s->inputs, cudaMemcpyDeviceToDevice, s->elsewhere));
        gpu_ok(cudaEventRecord(s->came, s->elsewhere));
        gpu_ok(cudaStreamWaitEvent(s->stream, s->came, 0));
        return s->arrived;
    default:
        return from;
    }
}

static void check_taken(const struct frames *s, const uint8_t *const *want, size_t count)
{
    uint8_t *got = malloc(s->outputs), *expected = malloc(s->outputs);
    for (size_t i = 0; i < count; i++) {
        gpu_ok(cudaMemcpy(got, s->taken[i], s->outputs, cudaMemcpyDeviceToHost));
        gpu_ok(cudaMemcpy(expected, want[i], s->outputs, cudaMemcpyDeviceToHost));
        assert_memory_equal(got, expected, s->outputs);
    }
    free(got);
    free(expected);
}

/* Frames that have nothing to do with each other, enqueued at once, so that they may run concurrently;
 * between them, now and then, what they have to wait for: a field that is copied first, in their stream or in
 * another, beams that are copied away before others take their place, a frame that is made from the beams of
 * the last one, validity, another plan's work. Every frame must become what it becomes alone. */
static void concurrent_frames(void **state)
{
    NEEDS_GPU();
    static const struct shape shapes[] = {{.T = 256, .F = 33, .P = 2, .D = 96, .B = 96, .WF = 33},
                                          {.T = 1088, .F = 3, .P = 2, .D = 480, .B = 90, .WF = 1},
                                          {.T = 336, .F = 5, .P = 1, .D = 208, .B = 96, .WF = 5},
                                          {.T = 133, .F = 2, .P = 2, .D = 272, .B = 130, .WF = 2},
                                          {.T = 640, .F = 9, .P = 2, .D = 32, .B = 32, .WF = 9}};
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        struct frames s;
        make_frames(&s, shapes[k]);
        uint64_t sum = 0;
        const uint8_t *want[TAKEN], *holds[BUFFERS] = {NULL};
        size_t taken = 0;
        for (int frame = 0; frame < MANY; frame++) {
            int i = (int)pick(0, FIELDS - 1), to = (int)pick(0, BUFFERS - 1), kind;
            const uint8_t *from = next_input(&s, i, to, &kind, &sum);
            br_baseband_execute(s.plan, from, kind == WITH_GAPS ? s.valid : NULL, s.n.T, s.buffer[to], NULL,
                                NULL);
            sum += s.clamped[kind][i];
            holds[to] = s.want[kind][i];
            if (from == s.arrived) {
                gpu_ok(cudaEventRecord(s.went, s.stream));
                gpu_ok(cudaStreamWaitEvent(s.elsewhere, s.went, 0));
            }
            /* what the last one made, and one from before */
            for (int j = 0; frame % 16 == 15 && j < 2 && holds[(to + j) % BUFFERS] != NULL; j++) {
                gpu_ok(cudaMemcpyAsync(s.taken[taken], s.buffer[(to + j) % BUFFERS], s.outputs,
                                       cudaMemcpyDeviceToDevice, s.stream));
                want[taken++] = holds[(to + j) % BUFFERS];
            }
        }
        assert_int_equal(br_baseband_saturated(s.plan, NULL), s.before + sum);
        check_taken(&s, want, taken);
        drop_frames(&s);
    }
}

/* Frames that follow each other without anything between them, so long that the host hears of it from the
 * device and launches them otherwise; they rotate through 2 to 6 buffers: so many launches can run
 * concurrently. The last place gets the output for the beams in the first one, which are now these, now
 * those. Every frame is what it is alone. */
static void frames_that_follow(void **state)
{
    NEEDS_GPU();
    enum { MOST = 6, FRAMES = 48, ROUNDS = 3 };
    static const struct shape shapes[] = {{.T = 256, .F = 33, .P = 2, .D = 96, .B = 96, .WF = 33},
                                          {.T = 2000, .F = 5, .P = 2, .D = 112, .B = 96, .WF = 5},
                                          {.T = 1100, .F = 35, .P = 1, .D = 16, .B = 64, .WF = 1},
                                          {.T = 640, .F = 41, .P = 2, .D = 32, .B = 32, .WF = 41},
                                          {.T = 1300, .F = 21, .P = 2, .D = 64, .B = 16, .WF = 21},
                                          {.T = 528, .F = 9, .P = 2, .D = 48, .B = 200, .WF = 9}};
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
        for (size_t places = 2; places <= MOST; places += places < 4 ? 1 : 2) {
            struct shape n = shapes[k];
            size_t inputs = n.T * n.F * n.P * n.D, outputs = n.T * n.F * n.P * n.B, rows = n.WF * n.P * n.B,
                   larger = inputs > outputs ? inputs : outputs, last = places - 1;
            uint8_t *field[MOST], *place[MOST], *want[2][MOST], *host = malloc(larger),
                                                                *got = malloc(outputs);
            uint64_t clamped[2][MOST], sum = 0;
            int8_t *w = malloc(rows * n.D * 2);
            int32_t *shift = malloc(rows * sizeof *shift);
            for (size_t i = 0; i < rows * n.D * 2; i++)
                w[i] = (int8_t)((int)(dump_random(&seed) % 255) - 127);
            for (size_t i = 0; i < rows; i++) shift[i] = 9;
            struct br_baseband *plan = plan_of(BR_CUDA, BR_BASEBAND_AUTO, n, w, shift);
            for (size_t i = 0; i < places; i++) {
                fill(host, larger);
                field[i] = on_device(host, larger);
                place[i] = on_device(host, larger); /* beyond the beams: part of a field where D > B */
            }
            for (int v = 0; v < 2; v++)
                for (size_t i = 0; i < places; i++) {
                    const uint8_t *from = i == last ? place[0] : i == 0 && v == 1 ? field[last] : field[i];
                    br_baseband_execute(plan, from, NULL, n.T, place[i], NULL, NULL);
                    uint64_t now = br_baseband_saturated(plan, NULL);
                    clamped[v][i] = now - sum;
                    sum = now;
                    want[v][i] = malloc(outputs);
                    gpu_ok(cudaMemcpy(want[v][i], place[i], outputs, cudaMemcpyDeviceToHost));
                }
            for (int round = 0; round < ROUNDS; round++) {
                for (size_t frame = 0; frame < FRAMES; frame++) {
                    size_t i = frame % places, v = frame / places % 2;
                    const uint8_t *from = i == last ? place[0] : i == 0 && v == 1 ? field[last] : field[i];
                    br_baseband_execute(plan, from, NULL, n.T, place[i], NULL, NULL);
                    sum += clamped[v][i];
                }
                assert_int_equal(br_baseband_saturated(plan, NULL), sum);
                for (size_t i = 0; i < places; i++) {
                    gpu_ok(cudaMemcpy(got, place[i], outputs, cudaMemcpyDeviceToHost));
                    assert_memory_equal(got, want[(FRAMES / places - 1) % 2][i], outputs);
                    gpu_ok(cudaMemset(place[i], 0x5a, outputs));
                }
                gpu_ok(cudaDeviceSynchronize());
            }
            br_baseband_destroy(plan);
            for (size_t i = 0; i < places; i++) {
                br_cuda_free(gpu, field[i]);
                br_cuda_free(gpu, place[i]);
                free(want[0][i]);
                free(want[1][i]);
            }
            free(host);
            free(got);
            free(w);
            free(shift);
        }
}
#endif

int main(void)
{
#if BR_WITH_CUDA
    seed = 4711;
    const struct CMUnitTest small[] = {cmocka_unit_test(frames_in_a_row)};
    const struct CMUnitTest more[] = {cmocka_unit_test(frames_that_follow),
                                      cmocka_unit_test(concurrent_frames)};
    int failed = cmocka_run_group_tests_name("gpu, small shapes", small, gpu_open, gpu_close);
    if (!getenv("BEAMRING_GPU_SMALL")) /* set for compute-sanitizer */
        failed += cmocka_run_group_tests_name("gpu", more, gpu_open, gpu_close);
    return failed;
#else
    return 77; /* skipped */
#endif
}
