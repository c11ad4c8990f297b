/* files_common.h - what the tests of file stages share: a scratch directory, small streams, random frames. */
#ifndef BEAMRING_TESTS_FILES_COMMON_H
#define BEAMRING_TESTS_FILES_COMMON_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "stage_driver.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

extern const struct br_stage_type replay_stage, record_stage;

static char scratch[64];

static inline const char *in_scratch(const char *name)
{
    static char path[64][256];
    static unsigned next;
    char *p = path[next++ % 64];
    snprintf(p, sizeof path[0], "%s/%s", scratch, name);
    return p;
}

static inline int make_scratch(void **state)
{
    (void)state;
    strcpy(scratch, "/tmp/beamring-test-XXXXXX");
    return mkdtemp(scratch) == NULL;
}

static inline int remove_scratch(void **state)
{
    (void)state;
    DIR *directory = opendir(scratch);
    for (struct dirent *e; directory != NULL && (e = readdir(directory)) != NULL;)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            unlinkat(dirfd(directory), e->d_name, 0);
    if (directory != NULL) closedir(directory);
    return rmdir(scratch);
}

static inline void write_file(const char *path, const void *data, size_t bytes)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

static inline char *read_all(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL) fail_msg("cannot open %s", path);
    fseek(f, 0, SEEK_END);
    *bytes = (size_t)ftell(f);
    rewind(f);
    char *data = malloc(*bytes + 1);
    assert_int_equal(fread(data, 1, *bytes, f), *bytes);
    data[*bytes] = '\0';
    fclose(f);
    return data;
}

static inline uint64_t random64(uint64_t *seed)
{
    uint64_t z = (*seed += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline struct br_stream basic_stream(enum br_dtype dtype, const char *axes, const size_t *lengths,
                                            size_t nchannels, uint64_t frame_samples, unsigned downsample)
{
    static const double freq[16] = {400.1, 400.3, 400.7, 401, 402, 403, 404.5, 405,
                                    406,   407,   408,   409, 410, 411, 412,   413};
    static const double width[16] = {.2, .2, .2, .2, .2, .2, .2, .2, .2, .2, .2, .2, .2, .2, .2, .3};
    struct br_stream s = {.frame_samples = frame_samples,
                          .epoch_ns = 1700000000123456789,
                          .sample_ns = {5120, 3},
                          .nchannels = nchannels,
                          .freq_mhz = freq,
                          .width_mhz = width,
                          .nzones = 1,
                          .scale = 0.125};
    s.zone[0] = (struct br_zone){0, nchannels, 1, downsample, 3};
    assert_int_equal(br_array_init(&s.array, dtype, axes, lengths, NULL), 0);
    return s;
}

/* E[time][freq][pol][dish], flat in a file. */
static inline struct br_stream field_stream(uint64_t frame_samples)
{
    return basic_stream(BR_INT4X2, "time,freq,pol,dish", (size_t[]){(size_t)frame_samples, 3, 2, 5}, 3,
                        frame_samples, 1);
}

/* Random bytes; as floats they are finite. */
static inline void random_bytes(uint8_t *data, size_t bytes, enum br_dtype dtype, uint64_t *seed)
{
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (uint8_t)random64(seed);
        if (dtype == BR_F16 && i % 2 == 1) data[i] &= 0xfb; /* an exponent's lowest bit */
        if (dtype == BR_F32 && i % 4 == 2) data[i] &= 0x7f;
    }
}

/* Fills a frame that spans [first, first + samples) with random data; `validity` 0: complete, 1: some
 * missing, 2: fractions. */
static inline void random_frame(const struct br_stream *s, struct br_frame *f, uint64_t first,
                                uint64_t samples, int validity, uint64_t *seed)
{
    f->first = first;
    f->samples = samples;
    f->missing = 0;
    f->complete = validity == 0;
    size_t bytes = br_frame_bytes(s, f), cells = br_frame_cells(s, f);
    random_bytes(f->data, bytes, s->array.dtype, seed);
    if (f->side != NULL) random_bytes(f->side, br_array_bytes(&s->side), s->side.dtype, seed);
    if (validity == 0) return;
    uint8_t held = 255;
    for (size_t i = 0; i < cells; i++) {
        if (random64(seed) % 7 == 0)
            held = validity == 1 ? (random64(seed) % 2 ? 255 : 0) : (uint8_t)random64(seed);
        f->valid[i] = held;
    }
    br_frame_close_validity(s, f);
}

static inline struct br_frame *copy_frame(const struct br_stream *s, const struct br_frame *f)
{
    struct br_frame *c = driver_frame(s);
    c->first = f->first;
    c->samples = f->samples;
    c->missing = f->missing;
    c->complete = f->complete;
    memcpy(c->data, f->data, br_frame_bytes(s, f));
    if (!f->complete) memcpy(c->valid, f->valid, br_frame_cells(s, f));
    if (f->side != NULL) memcpy(c->side, f->side, br_array_bytes(&s->side));
    return c;
}

static inline void assert_same_frame(const struct br_stream *s, struct br_frame *a, struct br_frame *b)
{
    assert_int_equal(a->first, b->first);
    assert_int_equal(a->samples, b->samples);
    assert_memory_equal(a->data, b->data, br_frame_bytes(s, a));
    if (s->side.naxes > 0) assert_memory_equal(a->side, b->side, br_array_bytes(&s->side));
    br_frame_open_validity(s, a);
    br_frame_open_validity(s, b);
    assert_memory_equal(a->valid, b->valid, br_frame_cells(s, a));
    assert_int_equal(a->missing, b->missing);
}

/* Configures and starts `replay` on one pattern. */
static inline struct br_stage *start_replay(const char *const *pattern, uint64_t frame_samples, int64_t loop)
{
    struct br_stage *r = driver_new(&replay_stage);
    driver_set_strings(r, "files", pattern, 1);
    if (frame_samples > 0) driver_set_int(r, "frame_samples", (int64_t)frame_samples);
    driver_set_int(r, "loop", loop);
    if (driver_configure(r) != 0) fail_msg("configure: %s", r->error);
    if (driver_start(r) != 0) fail_msg("start: %s", r->error);
    return r;
}

static inline void end_stage(struct br_stage *stage)
{
    if (driver_stop(stage) != 0) fail_msg("stop: %s", stage->error);
    driver_free(stage);
}

#endif
