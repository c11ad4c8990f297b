/* test_gpu.c - pipelines on a GPU: transfers where memory changes, no waiting hosts between GPU stages,
 * and readers that drop. Skips itself where there is no GPU. */
#include "tests/gpu/t_gpu_kernels.h"
#include "tests/runtime/run/run.h"

#include <dlfcn.h>
#include <time.h>

#define NO_GPU_SKIP()                                                                                        \
    if (br_gpu_devices(NULL) == 0) {                                                                         \
        print_message("no GPU: skipped\n");                                                                  \
        skip();                                                                                              \
    }

static void pause_ms(unsigned ms)
{
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

/* The gate of the plugin that the pipeline loads. */
static void set_gate(int open)
{
    char path[4096];
    const char *list = getenv("BEAMRING_PLUGIN_PATH");
    snprintf(path, sizeof path, "%.*s/t_gpu.so", (int)strcspn(list, ":"), list);
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(plugin);
    void (*set)(int) = (void (*)(int))(uintptr_t)dlsym(plugin, "t_gpu_set_gate");
    assert_non_null(set);
    set(open);
}

static void test_transfers(void **state)
{
    (void)state;
    NO_GPU_SKIP();
    struct test_run run;
    build_ok(&run, "pipeline:\n"
                   "  - {stage: t_source, samples: 1000003, frame_samples: 4096, out: a}\n"
                   "  - {stage: t_gpu, in: a, out: b}\n"
                   "  - {stage: t_gpu, name: second, in: b, out: c}\n"
                   "  - {stage: t_sink, in: c}\n"
                   "  - {stage: t_sink, name: early, in: b}\n"
                   "  - {stage: t_sink, name: first, in: a}\n");
    assert_int_equal(run.graph->nfile, 6);
    assert_int_equal(run.graph->nstages, 9);
    assert_non_null(stage_called(&run, "a to cuda:0"));
    assert_non_null(stage_called(&run, "b to host"));
    assert_non_null(stage_called(&run, "c to host"));
    assert_int_equal(stage_called(&run, "t_source")->out[0].place.space, BR_SPACE_PINNED);
    assert_int_equal(stage_called(&run, "t_gpu")->out[0].place.space, BR_SPACE_CUDA);
    start_and_finish(&run);
    assert_string_equal(run.error.text, "");
    assert_int_equal(run.status, BR_OK);
    static const char *const sinks[] = {"t_sink", "early", "first"};
    for (size_t i = 0; i < 3; i++) assert_int_equal(totals(&run, sinks[i]).in_samples, 1000003);
    assert_true(totals(&run, "second").gpu_ns_per_call > 0);
    assert_true(br_balance_ok(run.graph, stderr));
    end(&run);
}

/* The stream of the second stage is blocked: its host still enqueues and publishes, and so do all stages
 * before it, until the ring between the first two is full. Frames that have passed when the gate opens are
 * right. */
static void test_no_host_waits(void **state)
{
    (void)state;
    NO_GPU_SKIP();
    struct test_run run;
    enum { DEPTH = 6 };
    build_ok(&run,
             "pipeline:\n"
             "  - {stage: t_source, samples: 100000000000, frame_samples: 4096, out: {name: a, depth: 6}}\n"
             "  - {stage: t_gpu, in: a, out: {name: b, depth: 6}}\n"
             "  - {stage: t_gpu, name: gated, mode: gate, in: b, out: {name: c, depth: 6}}\n"
             "  - {stage: t_sink, in: c}\n");
    set_gate(0);
    assert_int_equal(br_pipeline_start(run.graph, &run.error), BR_OK);
    uint64_t before = 0;
    for (unsigned quiet = 0; quiet < 10; quiet++) { /* until nothing moves any more */
        pause_ms(20);
        uint64_t now = totals(&run, "t_source").out_frames + totals(&run, "t_gpu").out_frames +
                       totals(&run, "gated").out_frames;
        if (now != before) quiet = 0;
        before = now;
    }
    print_message("behind a closed gate: source %llu, first %llu, gated %llu, sink %llu frames\n",
                  (unsigned long long)totals(&run, "t_source").out_frames,
                  (unsigned long long)totals(&run, "t_gpu").out_frames,
                  (unsigned long long)totals(&run, "gated").out_frames,
                  (unsigned long long)totals(&run, "t_sink").in_frames);
    assert_int_equal(totals(&run, "t_sink").in_frames, 0);
    assert_true(totals(&run, "gated").out_frames >= DEPTH);
    assert_true(totals(&run, "t_gpu").out_frames >= DEPTH);
    assert_true(totals(&run, "t_source").out_frames >= 2 * DEPTH);
    set_gate(1);
    while (totals(&run, "t_sink").in_frames < 100) pause_ms(1);
    br_pipeline_drain(run.graph);
    finish(&run);
    assert_int_equal(run.status, BR_OK);
    assert_int_equal(totals(&run, "t_sink").in_samples, totals(&run, "t_source").out_samples);
    assert_true(br_balance_ok(run.graph, stderr));
    end(&run);
}

/* A reader on a GPU that is too slow loses frames, and its neighbour does not notice. */
static void test_drop(void **state)
{
    (void)state;
    NO_GPU_SKIP();
    struct test_run run;
    build_ok(&run, "pipeline:\n"
                   "  - {stage: t_source, samples: 4096000, frame_samples: 4096, out: a}\n"
                   "  - {stage: t_gpu, in: a, out: b}\n"
                   "  - {stage: t_sink, in: b}\n"
                   "  - {stage: t_gpu, name: slow, mode: slow, in: {from: b, policy: drop}, out: c}\n"
                   "  - {stage: t_sink, name: seldom, in: c}\n");
    struct timespec begin, done;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    start_and_finish(&run);
    clock_gettime(CLOCK_MONOTONIC, &done);
    assert_int_equal(run.status, BR_OK);
    assert_int_equal(totals(&run, "t_sink").in_samples, 4096000);
    struct br_reader_counters slow;
    br_reader_get_counters(stage_called(&run, "slow")->in[0].reader, &slow);
    assert_true(slow.dropped_frames > 0 && slow.delivered_frames > 0);
    assert_int_equal(totals(&run, "seldom").in_samples, slow.delivered_samples);
    /* 1000 frames of 3 ms each if the slow one held the others up */
    assert_true((done.tv_sec - begin.tv_sec) + 1e-9 * (double)(done.tv_nsec - begin.tv_nsec) < 2);
    assert_true(br_balance_ok(run.graph, stderr));
    end(&run);
}

/* A reader on a stream gives a slot back long before its work is done: the slot that comes next must be
 * the one that was given back first, or the producer waits for the work that was enqueued last. */
static void test_slots_take_turns(void **state)
{
    (void)state;
    NO_GPU_SKIP();
    static const double mhz[] = {400}, width[] = {1};
    struct br_stream stream = {.array = {.dtype = BR_UINT8, .naxes = 2, .axis = {{"time", 64}, {"freq", 1}}},
                               .frame_samples = 64,
                               .sample_ns = {1000, 1},
                               .nchannels = 1,
                               .freq_mhz = mhz,
                               .width_mhz = width,
                               .nzones = 1,
                               .zone = {{0, 1, 1, 1, 0}},
                               .scale = 1};
    struct br_gpu_stream gpu;
    struct br_queue *queue;
    struct br_reader *reader;
    struct br_error error = {0};
    assert_int_equal(br_gpu_stream_create(&gpu, 0, &error), BR_OK);
    assert_int_equal(br_queue_create(&queue, "q", &stream, 3, (struct br_place){BR_SPACE_PINNED, 0}, &error),
                     BR_OK);
    assert_int_equal(br_queue_add_reader(queue, "r", BR_POLICY_BLOCK, &reader, &error), BR_OK);
    br_reader_set_stream(reader, &gpu);
    assert_int_equal(br_queue_seal(queue, &error), BR_OK);
    const void *used[7];
    for (unsigned i = 0; i < 7; i++) {
        struct br_frame *frame;
        const struct br_frame *read;
        assert_int_equal(br_queue_acquire(queue, &frame), BR_OK);
        used[i] = frame->data;
        frame->samples = 64;
        br_queue_publish(queue);
        assert_int_equal(br_reader_wait(reader, &read), 1);
        br_reader_release(reader);
        for (unsigned k = 1; k <= 2 && k <= i; k++) assert_ptr_not_equal(used[i], used[i - k]);
    }
    br_queue_destroy(queue);
    br_gpu_stream_destroy(&gpu);
}

/* Rows of 16, 4 and 1 bytes at a time, with gaps and without, one row, none, and more copies than a launch
 * makes: each byte where the host puts it, and no other. */
static void test_rows(void **state)
{
    (void)state;
    NO_GPU_SKIP();
    enum { BYTES = 1 << 24, COPIES = 70 };
    static unsigned char from[BYTES], found[BYTES], expected[BYTES];
    struct br_error error = {0};
    struct br_gpu_stream gpu;
    uint32_t seed = 1;
    assert_int_equal(br_gpu_stream_create(&gpu, 0, &error), BR_OK);
    void *source, *target;
    assert_int_equal(br_gpu_alloc(&source, 0, BYTES, &error), BR_OK);
    assert_int_equal(br_gpu_alloc(&target, 0, BYTES, &error), BR_OK);
    for (size_t i = 0; i < BYTES; i++)
        from[i] = (unsigned char)((seed = seed * 1664525u + 1013904223u) >> 24);
    assert_int_equal(br_gpu_copy(source, from, BYTES, &gpu, &error), BR_OK);
    for (size_t unit = 16; unit > 0; unit /= 4) {
        struct br_rows rows[COPIES];
        size_t at = 0;
        memset(expected, 0, BYTES);
        for (unsigned k = 0; k < COPIES; k++) {
            size_t width = (k % 5 == 0 ? 300 * k : k) * unit, gap = k % 3 * unit,
                   n = k % 5 == 0 ? 1 : 5 * k + 1;
            rows[k] = (struct br_rows){(unsigned char *)target + at,
                                       width + gap,
                                       (unsigned char *)source + k * unit,
                                       width + 2 * gap,
                                       width,
                                       n};
            for (size_t i = 0; i < n; i++)
                memcpy(expected + at + i * (width + gap), from + k * unit + i * (width + 2 * gap), width);
            at += n * (width + gap);
            assert_true(at < BYTES && k * unit + n * (width + 2 * gap) < BYTES);
        }
        for (int beside = 0; beside < 2; beside++) {
            assert_int_equal(br_gpu_set_rows(target, BYTES, 0, BYTES, 1, &gpu, &error), BR_OK);
            assert_int_equal(br_gpu_move_rows(rows, COPIES, beside, &gpu, &error), BR_OK);
            assert_int_equal(br_gpu_copy(found, target, BYTES, &gpu, &error), BR_OK);
            assert_int_equal(br_gpu_stream_wait(&gpu, &error), BR_OK);
            assert_memory_equal(found, expected, BYTES);
        }
    }
    br_gpu_free(source, 0);
    br_gpu_free(target, 0);
    br_gpu_stream_destroy(&gpu);
}

static void test_placement(void **state)
{
    (void)state;
    NO_GPU_SKIP();
    struct test_run run;
    build(&run, "pipeline:\n  - {stage: t_source, out: a}\n  - {stage: t_sink, device: cuda:0, in: a}\n");
    assert_int_equal(run.status, BR_E_INVALID);
    end(&run);
    build(&run, "device: cpu\npipeline:\n  - {stage: t_source, out: a}\n  - {stage: t_gpu, in: a, out: b}\n  "
                "- {stage: t_sink, in: b}\n");
    assert_int_equal(run.status, BR_E_INVALID); /* it says that it is for GPUs */
    end(&run);
    build_ok(&run, "device: cpu\npipeline:\n  - {stage: t_source, out: a}\n  - {stage: t_gpu, device: "
                   "'cuda:0', in: a, out: b}\n"
                   "  - {stage: t_sink, in: b}\n");
    end(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transfers), cmocka_unit_test(test_no_host_waits),
        cmocka_unit_test(test_drop),      cmocka_unit_test(test_slots_take_turns),
        cmocka_unit_test(test_rows),      cmocka_unit_test(test_placement),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
