/* The filterbank stage by hand: lost frames, long holes, steps that two frames share, what is refused, a full
 * disk. Values, times and frequencies are checked elsewhere, with other people's readers. */
#include "tests/stages/files_common.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

extern const struct br_stage_type filterbank_stage;

enum { BEAMS = 3, CHANNELS = 4, STEPS = 8, DOWN = 10 };

static const double freq[CHANNELS] = {400, 401, 402, 403}, width[CHANNELS] = {1, 1, 1, 1};

static struct br_stage *with_levels(const char *directory)
{
    struct br_stage *stage = driver_new(&filterbank_stage);
    struct br_stream *s = &stage->in[0];
    size_t lengths[3] = {BEAMS, CHANNELS, STEPS};
    *s = (struct br_stream){.frame_samples = STEPS * DOWN,
                            .sample_ns = {1000000, 1},
                            .nchannels = CHANNELS,
                            .freq_mhz = freq,
                            .width_mhz = width,
                            .nzones = 1,
                            .zone = {{0, CHANNELS, 1, DOWN, 0}},
                            .scale = 1,
                            .nbeams = BEAMS};
    assert_int_equal(br_array_init(&s->array, BR_UINT8, "beam,freq,time", lengths, NULL), BR_OK);
    driver_set_string(stage, "directory", directory);
    return stage;
}

static uint8_t level(size_t beam, size_t channel, uint64_t step)
{
    return (uint8_t)(1 + (beam * 97 + channel * 31 + step * 7) % 255);
}

/* One frame of [first, first + samples) whose values follow from their place. */
static int feed(struct br_stage *stage, uint64_t first, uint64_t samples)
{
    struct br_frame *frame = driver_frame(&stage->in[0]);
    size_t steps = br_time_steps(first, samples, DOWN);
    frame->first = first;
    frame->samples = samples;
    for (size_t b = 0; b < BEAMS; b++)
        for (size_t c = 0; c < CHANNELS; c++)
            for (size_t t = 0; t < steps; t++)
                ((uint8_t *)frame->data)[(b * CHANNELS + c) * steps + t] = level(b, c, first / DOWN + t);
    int result = driver_process(stage, frame, NULL);
    driver_frame_free(frame);
    return result;
}

static const double *find_real(const char *bytes, size_t size, const char *key)
{
    static double value;
    const char *at = memmem(bytes, size, key, strlen(key));
    assert_non_null(at);
    memcpy(&value, at + strlen(key), sizeof value);
    return &value;
}

/* Checks the file's rows against steps [first, first + count) of which [hole, hole_end) are missing. */
static void check_file(const char *path, size_t beam, uint64_t first, uint64_t count, uint64_t hole,
                       uint64_t hole_end)
{
    size_t bytes;
    char *file = read_all(path, &bytes);
    const char *end = memmem(file, bytes, "HEADER_END", 10);
    assert_non_null(end);
    const uint8_t *row = (const uint8_t *)end + 10;
    assert_int_equal(file + bytes - (const char *)row, count * CHANNELS);
    for (uint64_t t = first; t < first + count; t++)
        for (size_t c = 0; c < CHANNELS; c++, row++)
            assert_int_equal(*row, t >= hole && t < hole_end ? 128 : level(beam, CHANNELS - 1 - c, t));
    double mjd = 40587 + (double)(first * DOWN) * 1e-3 / 86400;
    assert_true(*find_real(file, bytes, "tstart") - mjd < 1e-9 &&
                *find_real(file, bytes, "tstart") - mjd > -1e-9);
    assert_true(*find_real(file, bytes, "tsamp") == 0.01);
    free(file);
}

static void test_lost_frames(void **state)
{
    (void)state;
    struct br_stage *stage = with_levels(in_scratch("lost"));
    assert_int_equal(driver_configure(stage), BR_OK);
    assert_int_equal(driver_start(stage), BR_OK);
    assert_int_equal(feed(stage, 73, 7), BR_CONSUMED); /* a stream that begins within step 7 */
    assert_int_equal(feed(stage, 80, 80), BR_CONSUMED);
    assert_int_equal(feed(stage, 240, 75), BR_CONSUMED); /* [160, 240) was lost; ends within step 31 */
    assert_int_equal(feed(stage, 315, 5), BR_CONSUMED);  /* the rest of it */
    assert_int_equal(driver_process(stage, NULL, NULL), BR_FINISHED);
    assert_int_equal(driver_stop(stage), BR_OK);
    driver_free(stage);
    for (size_t b = 0; b < BEAMS; b++) {
        char name[64];
        snprintf(name, sizeof name, "lost/beam%04zu.fil", b);
        check_file(in_scratch(name), b, 7, 25, 16, 24);
        unlink(in_scratch(name));
    }
    size_t bytes;
    char *gaps = read_all(in_scratch("lost/beam.gaps"), &bytes);
    const char *line = memchr(gaps, '\n', bytes);
    assert_non_null(line);
    assert_int_equal(gaps + bytes - line - 1, 4);
    assert_memory_equal(line + 1, "9 8\n", 4);
    free(gaps);
    unlink(in_scratch("lost/beam.gaps"));
    rmdir(in_scratch("lost"));
}

static void test_long_hole(void **state)
{
    (void)state;
    const int64_t second[] = {1};
    struct br_stage *stage = with_levels(in_scratch("."));
    driver_set_real(stage, "max_gap_s", 1);
    driver_set_ints(stage, "beams", second, 1);
    assert_int_equal(driver_configure(stage), BR_OK);
    assert_int_equal(driver_start(stage), BR_OK);
    assert_int_equal(feed(stage, 0, 80), BR_CONSUMED);
    assert_int_equal(feed(stage, 1080, 40), BR_CONSUMED); /* one second is filled in */
    assert_int_equal(feed(stage, 3200, 80), BR_CONSUMED);
    assert_int_equal(driver_stop(stage), BR_OK);
    driver_free(stage);
    check_file(in_scratch("beam0001.fil"), 1, 0, 112, 8, 108);
    check_file(in_scratch("beam0001_part2.fil"), 1, 320, 8, 0, 0);
    assert_int_equal(access(in_scratch("beam0000.fil"), F_OK), -1);

    /* A second run refuses to replace any of these, and says how to; then it takes all of them away. */
    for (int allowed = 0; allowed < 2; allowed++) {
        stage = with_levels(in_scratch("."));
        driver_set_bool(stage, "overwrite", allowed == 1);
        int status = driver_configure(stage);
        assert_int_equal(status, allowed ? BR_OK : BR_E_INVALID);
        if (!allowed) assert_non_null(strstr(stage->error, "overwrite"));
        if (allowed) {
            assert_int_equal(driver_start(stage), BR_OK);
            assert_int_equal(access(in_scratch("beam0001_part2.fil"), F_OK), -1);
            assert_int_equal(driver_stop(stage), BR_OK);
        }
        driver_free(stage);
    }
}

static void refused(struct br_stage *stage, const char *words)
{
    assert_true(driver_configure(stage) < 0);
    if (strstr(stage->error, words) == NULL) fail_msg("'%s' is not in '%s'", words, stage->error);
    driver_free(stage);
}

static void test_refused(void **state)
{
    (void)state;
    const int64_t beyond[] = {0, 3}, twice[] = {2, 2};
    struct br_stage *stage = with_levels(in_scratch("."));
    size_t lengths[4] = {BEAMS, CHANNELS, 2, STEPS};
    br_array_init(&stage->in[0].array, BR_INT4X2, "beam,freq,pol,time", lengths, NULL);
    refused(stage, "record");
    stage = with_levels(in_scratch("."));
    size_t grid[4] = {CHANNELS, STEPS, 8, 8};
    br_array_init(&stage->in[0].array, BR_F16, "freq,time,gridp,gridq", grid, NULL);
    refused(stage, "frb_beams");
    stage = with_levels(in_scratch("."));
    driver_set_ints(stage, "beams", beyond, 2);
    refused(stage, "beams 0 to 2");
    stage = with_levels(in_scratch("."));
    driver_set_ints(stage, "beams", twice, 2);
    refused(stage, "twice");
    stage = with_levels(in_scratch("."));
    driver_set_string(stage, "values", "intensity");
    refused(stage, "no scales");
    stage = with_levels(in_scratch("."));
    driver_set_string(stage, "prefix", "a/b");
    refused(stage, "without '/'");
}

static void test_no_directory(void **state)
{
    (void)state;
    write_file(in_scratch("file"), "x", 1);
    struct br_stage *stage = with_levels(in_scratch("file/sub"));
    assert_int_equal(driver_configure(stage), BR_OK);
    assert_int_equal(driver_start(stage), BR_E_IO);
    assert_non_null(strstr(stage->error, "file/sub"));
    assert_int_equal(driver_stop(stage), BR_OK);
    driver_free(stage);
}

/* A limit on file sizes stands in for a full disk: the error names the file, and files end with a whole
 * sample. */
static void test_disk_full(void **state)
{
    (void)state;
    struct rlimit was, limit;
    struct br_stage *stage = with_levels(in_scratch("full"));
    assert_int_equal(driver_configure(stage), BR_OK);
    assert_int_equal(driver_start(stage), BR_OK);
    assert_int_equal(feed(stage, 0, 80), BR_CONSUMED);
    struct stat info;
    assert_int_equal(stat(in_scratch("full/beam0000.fil"), &info), 0);
    off_t header = info.st_size - STEPS * CHANNELS;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &was);
    limit = (struct rlimit){(rlim_t)info.st_size + 7, was.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
    int result = feed(stage, 80, 80);
    setrlimit(RLIMIT_FSIZE, &was);
    assert_int_equal(result, BR_E_IO);
    assert_non_null(strstr(stage->error, "full/beam0000.fil"));
    char good[64];
    snprintf(good, sizeof good, "the %lld bytes before this are good", (long long)info.st_size);
    assert_string_equal(strstr(stage->error, good), good); /* and no more is said: the file was cut */
    assert_int_equal(driver_stop(stage), BR_OK);
    driver_free(stage);
    for (size_t b = 0; b < BEAMS; b++) {
        char name[64];
        snprintf(name, sizeof name, "full/beam%04zu.fil", b);
        assert_int_equal(stat(in_scratch(name), &info), 0);
        assert_int_equal(info.st_size, header + STEPS * CHANNELS);
        check_file(in_scratch(name), b, 0, 8, 0, 0);
        unlink(in_scratch(name));
    }
    rmdir(in_scratch("full"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lost_frames), cmocka_unit_test(test_long_hole),
                                       cmocka_unit_test(test_refused), cmocka_unit_test(test_no_directory),
                                       cmocka_unit_test(test_disk_full)};
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
