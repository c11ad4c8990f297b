/* test_allocation.c - no heap allocation while data flows: the allocator is interposed and counts. */
#include "tests/runtime/run/run.h"

#include <errno.h>
#include <stdatomic.h>
#include <time.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
/* glibc's own entry points, behind which ours stand in for the whole program and every library that it
 * loads. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static atomic_ulong allocations;

void *malloc(size_t size)
{
    atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
    return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
    return __libc_calloc(n, size);
}

void *realloc(void *old, size_t size)
{
    atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
    return __libc_realloc(old, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **memory, size_t alignment, size_t size)
{
    atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
    *memory = __libc_memalign(alignment, size);
    return *memory != NULL ? 0 : ENOMEM;
}
#endif

#if !SANITIZED
static void pause_ms(unsigned ms)
{
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

/* Frames that the stage called `name` has taken in. */
static uint64_t frames_in(struct test_run *run, const char *name)
{
    return totals(run, name).in_frames;
}

/* Runs a pipeline whose last stage is `last`; from its `from`th frame on, until `to`, nothing may be
 * allocated. */
static void quiet_between(const char *yaml, const char *last, uint64_t from, uint64_t to)
{
    struct test_run run;
    build_ok(&run, yaml);
    assert_int_equal(br_pipeline_start(run.graph, &run.error), BR_OK);
    unsigned waited = 0;
    while (frames_in(&run, last) < from && waited++ < 60000) pause_ms(1);
    unsigned long before = atomic_load(&allocations);
    while (frames_in(&run, last) < to && waited++ < 60000) pause_ms(1);
    unsigned long during = atomic_load(&allocations) - before;
    bool got_there = frames_in(&run, last) >= to;
    br_pipeline_drain(run.graph);
    finish(&run);
    assert_string_equal(run.error.text, "");
    assert_true(got_there);
    assert_int_equal(during, 0);
    end(&run);
}
#endif

static void test_the_counter_counts(void **state)
{
    (void)state;
#if SANITIZED
    skip();
#else
    unsigned long before = atomic_load(&allocations);
    void *volatile memory = malloc(10);
    free(memory);
    assert_int_equal(atomic_load(&allocations) - before, 1);
#endif
}

static void test_queues_and_threads(void **state)
{
    (void)state;
#if SANITIZED
    skip();
#else
    quiet_between("pipeline:\n"
                  "  - {stage: t_source, samples: 100000000000, out: a}\n"
                  "  - {stage: t_pass, in: a, out: b}\n"
                  "  - {stage: t_pair, in: b, out: c}\n"
                  "  - {stage: t_sink, in: c}\n"
                  "  - {stage: t_sink, name: slow, pause_us: 100, in: {from: c, policy: drop}}\n",
                  "t_sink", 1000, 20000);
#endif
}

/* The whole chain of an FRB search and a baseband beam. */
static void test_stages(void **state)
{
    (void)state;
#if SANITIZED
    skip();
#else
    quiet_between(
        "device: cpu\n" /* launches allocate in the driver */
        "telescope:\n"
        "  name: t\n"
        "  grid: {m: 4, n: 4}\n"
        "  spacing_m: {m: 8.5, n: 6.3}\n"
        "  dishes: [[0, 0], [0, 2], [1, 1], [1, 3], [2, 0], [2, 2], [3, 1], [3, 3]]\n"
        "stream:\n"
        "  freq_mhz: {first: 400, step: 0.1953125, count: 4}\n"
        "  sample_ns: 5120\n"
        "  epoch_ns: 1700000000000000000\n"
        "pipeline:\n"
        "  - {stage: simulate, duration_s: 3600, seed: 1, frame_samples: 1536, out: field,\n"
        "     missing: [{first: 30000, count: 2000}, {first: 90000, count: 100}]}\n"
        "  - {stage: upchannelize, in: field, out: fine, factor: 16}\n"
        "  - {stage: frb_grid, in: fine, out: grid, integrate: 192}\n"
        "  - {stage: frb_beams, in: grid, out: beams, beams: {grid: [3, 3], spacing_deg: 1}}\n"
        "  - {stage: quantize, in: beams, out: levels, bits: 8, block: 64}\n"
        "  - {stage: t_sink, check: false, in: levels}\n"
        "  - {stage: baseband_beamform, in: field, out: voltage, beams: {grid: [2, 2], spacing_deg: 1}}\n"
        "  - {stage: t_sink, name: beams, check: false, in: voltage}\n",
        "t_sink", 2, 20);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_the_counter_counts),
                                       cmocka_unit_test(test_queues_and_threads),
                                       cmocka_unit_test(test_stages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
