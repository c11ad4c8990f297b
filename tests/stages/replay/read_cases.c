/* read_cases FILE - replays many small files one after the other and prints what came of each, for a
 * reader of the oracle to compare. FILE holds, for each: the length (uint32) and as many bytes. A line for
 * each: "refused MESSAGE", or "read DTYPE nfreq npol ndish sample_ns epoch_ns first samples f0,f1,...
 * w0,w1,... HEX", HEX being the data as int8 pairs or bytes, "-" where a cell is missing. */
#include "tests/stages/stage_driver.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern const struct br_stage_type replay_stage;

enum { MOST_FRAMES = 64, MOST_BYTES = 1 << 20 };

static void print_numbers(const double *values, size_t n)
{
    for (size_t i = 0; i < n; i++) printf("%s%.17g", i > 0 ? "," : " ", values[i]);
}

/* The frame's cells, one after the other. */
static void print_frame(const struct br_stream *s, const struct br_frame *f)
{
    size_t cells = (size_t)f->samples * s->nchannels,
           cell = br_array_bytes(&s->array) / ((size_t)s->frame_samples * s->nchannels);
    const uint8_t *data = f->data;
    for (size_t i = 0; i < cells; i++)
        if (!f->complete && f->valid[i] != BR_VALID)
            fputs("-", stdout);
        else
            for (size_t b = 0; b < cell; b++) printf("%02x", data[i * cell + b]);
}

static void print_stream(const struct br_stream *s, uint64_t first)
{
    printf("read %s %zu %zu %zu %" PRId64 "/%" PRId64 " %" PRId64 " %" PRIu64, br_dtype_name(s->array.dtype),
           s->nchannels, br_array_length(&s->array, "pol"), br_array_length(&s->array, "dish"),
           s->sample_ns.num, s->sample_ns.den, s->epoch_ns, first);
    print_numbers(s->freq_mhz, s->nchannels);
    print_numbers(s->width_mhz, s->nchannels);
    putchar(' ');
}

static void read_case(const char *path)
{
    struct br_stage *r = driver_new(&replay_stage);
    driver_set_strings(r, "files", &path, 1);
    driver_set_int(r, "frame_samples", 16);
    driver_set_int(r, "readers", 1);
    driver_set_real(r, "max_gap_s", 1e-3);
    if (driver_configure(r) != BR_OK) {
        printf("refused %s\n", r->error);
        driver_free(r);
        return;
    }
    const struct br_stream *s = &r->out[0];
    if (br_stream_max_bytes(s) > MOST_BYTES || driver_start(r) != BR_OK) {
        printf("refused too large, or: %s\n", r->error);
        driver_free(r);
        return;
    }
    struct br_frame *f = driver_frame(s);
    int result = BR_PRODUCED, frames = 0;
    while (frames < MOST_FRAMES && (result = driver_process(r, NULL, f)) == BR_PRODUCED) {
        if (frames++ == 0) print_stream(s, f->first);
        print_frame(s, f);
    }
    if (frames == 0)
        printf("refused %s\n", result < 0 ? r->error : "nothing came");
    else
        printf("%s\n", result == BR_FINISHED ? "" : " unfinished");
    driver_frame_free(f);
    driver_stop(r);
    driver_free(r);
}

int main(int argc, char **argv)
{
    char path[] = "/tmp/beamring-cases-XXXXXX";
    static char bytes[1 << 20];
    uint32_t length;
    FILE *cases = argc == 2 ? fopen(argv[1], "rb") : NULL;
    int fd = mkstemp(path);
    if (cases == NULL || fd < 0) {
        fputs("usage: read_cases FILE\n", stderr);
        return 2;
    }
    while (fread(&length, sizeof length, 1, cases) == 1 && length <= sizeof bytes &&
           fread(bytes, 1, length, cases) == length) {
        if (ftruncate(fd, 0) != 0 || pwrite(fd, bytes, length, 0) != (ssize_t)length) return 1;
        read_case(path);
    }
    fclose(cases);
    close(fd);
    unlink(path);
    return 0;
}
