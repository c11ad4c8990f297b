/* bench.c - `beamring bench`: runs the parts asked for, or all, on the CPU and on the GPU. */
#include "tools/bench/bench.h"
#include "buffers/clock.h"
#include "tools/beamring/commands.h"
#include "tools/bench/gpu/gpu.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_RUNS = 4096 };

static struct block {
    struct block *next;
    _Alignas(64) char memory[];
} * blocks;

void *bench_alloc(size_t bytes)
{
    struct block *block = aligned_alloc(64, sizeof *block + (bytes + 63) / 64 * 64);
    if (block == NULL) {
        fprintf(stderr, "beamring bench: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    block->next = blocks;
    blocks = block;
    return block->memory;
}

void bench_free_all(void)
{
    while (blocks != NULL) {
        struct block *block = blocks;
        blocks = block->next;
        free(block);
    }
}

uint32_t bench_random(void)
{
    static uint32_t state = 1;
    return state = state * 1664525 + 1013904223;
}

int bench_by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *seconds, unsigned n)
{
    qsort(seconds, n, sizeof *seconds, bench_by_value);
    return n % 2 == 1 ? seconds[n / 2] : (seconds[n / 2 - 1] + seconds[n / 2]) / 2;
}

static double time_of(void (*work)(void *), void *arg)
{
    uint64_t begin = br_clock_ns();
    work(arg);
    return (double)(br_clock_ns() - begin) * 1e-9;
}

void bench_pair(void (*a)(void *), void *arg_a, void (*b)(void *), void *arg_b, unsigned runs,
                double *median_a, double *median_b)
{
    static double seconds[2][MOST_RUNS];
    double total = 0;
    unsigned n = 0;
    a(arg_a);
    if (b != NULL) b(arg_b);
    while (n < MOST_RUNS && (n < runs || total < 0.5)) {
        total += seconds[0][n] = time_of(a, arg_a);
        if (b != NULL) total += seconds[1][n] = time_of(b, arg_b);
        n++;
    }
    *median_a = median(seconds[0], n);
    if (b != NULL) *median_b = median(seconds[1], n);
}

int bench_report(const char *what, double value, const char *unit, const char *against, double ratio,
                 double required, int higher)
{
    bool falls_short = required > 0 && (higher ? ratio < required : ratio > required);
    printf("%-52s %12.5g %-9s %8.3f x %-30s", what, value, unit, ratio, against);
    if (required > 0)
        printf("  %s %.3g: %s", higher ? "at least" : "at most", required, falls_short ? "SHORT" : "ok");
    putchar('\n');
    fflush(stdout);
    return falls_short;
}

/* The measurements: on the CPU, on the GPU, or both. */
static const struct {
    const char *name;
    int (*cpu)(void);
    gpu_part *gpu;
} parts[] = {
    {"queue", bench_queue, NULL},
    {"upchannelize", bench_upchannelize, bench_gpu_upchannelize},
    {"baseband", bench_baseband, bench_gpu_baseband},
    {"power_beams", bench_power_beams, bench_gpu_power_beams},
    {"frb_grid", bench_frb_grid, bench_gpu_frb_grid},
    {"frb_beams", bench_frb_beams, bench_gpu_frb_beams},
    {"quantize", bench_quantize, bench_gpu_quantize},
    {"unpack", bench_unpack, bench_gpu_unpack},
    {"correlate", bench_correlate, bench_gpu_correlate},
    {"flag", bench_flag, bench_gpu_flag},
    {"capture", bench_capture, NULL},
    {"replay", bench_replay, NULL},
    {"wires", bench_wires, NULL},
    {"pipelines", NULL, gpu_pipelines},
    {"follow", bench_follow, bench_gpu_follow},
};
enum { NPARTS = sizeof parts / sizeof *parts };

static bool wanted[NPARTS];

/* Whether a part is one kernel on the GPU, which can be given data with gaps. */
static bool has_kernel(int part)
{
    gpu_part *gpu = parts[part].gpu;
    return gpu != NULL && gpu != gpu_pipelines && gpu != bench_gpu_follow;
}

/* Marks the part called by the first `length` characters of `name`. */
static bool want(const char *name, size_t length)
{
    const char *names[NPARTS + 1] = {NULL}, *near;
    char asked[64];
    for (int i = 0; i < NPARTS; i++) {
        names[i] = parts[i].name;
        if (strlen(names[i]) == length && strncmp(names[i], name, length) == 0) return wanted[i] = true;
    }
    snprintf(asked, sizeof asked, "%.*s", (int)length, name);
    near = br_suggest(asked, names);
    fprintf(stderr, "beamring bench: there is no part '%s'%s%s%s; expected", asked,
            near != NULL ? "; did you mean '" : "", near != NULL ? near : "", near != NULL ? "'?" : "");
    for (int i = 0; i < NPARTS; i++) fprintf(stderr, "%s %s", i > 0 ? "," : "", names[i]);
    fputc('\n', stderr);
    return false;
}

/* Names separated by commas. */
static bool want_all_of(const char *list)
{
    for (;;) {
        size_t length = strcspn(list, ",");
        if (!want(list, length)) return false;
        if (list[length] == '\0') return true;
        list += length + 1;
    }
}

/* One sample of how many is missing. */
static bool read_missing(const char *word, unsigned *missing)
{
    char *end;
    long n = strtol(word, &end, 10);
    if (end == word || *end != '\0' || n < 1 || n > 1000000) {
        fprintf(stderr,
                "beamring bench: --missing '%s': expected a number from 1 to 1000000: of how many samples "
                "one is missing\n",
                word);
        return false;
    }
    *missing = (unsigned)n;
    return true;
}

/* The kernels ask the environment, so that any program can be told. */
static bool read_code(const char *word)
{
    if (strcmp(word, "sm_80") != 0) {
        fprintf(stderr, "beamring bench: --code '%s': expected sm_80; without it the device's own is taken\n",
                word);
        return false;
    }
    gpu_portable = true;
    return setenv("BEAMRING_GPU_CODE", word, 1) == 0;
}

int cmd_bench(int argc, char **argv)
{
    bool strict = false, cpu = true, gpu = true, all = true;
    unsigned missing = 0;
    gpu_part *on_gpu[NPARTS];
    unsigned non_gpu = 0;
    int shorts = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--strict") == 0)
            strict = true;
        else if (strcmp(argv[i], "--cpu") == 0)
            gpu = false;
        else if (strcmp(argv[i], "--gpu") == 0)
            cpu = false;
        else if (strcmp(argv[i], "--missing") == 0) {
            if (!read_missing(++i < argc ? argv[i] : "", &missing)) return 2;
        } else if (strcmp(argv[i], "--code") == 0) {
            if (!read_code(++i < argc ? argv[i] : "")) return 2;
        } else {
            if (strcmp(argv[i], "--only") == 0 && ++i == argc) {
                fputs("beamring bench: --only expects names of parts, separated by commas\n", stderr);
                return 2;
            }
            if (!want_all_of(argv[i])) return 2;
            all = false;
        }
    }
    if (!cpu && !gpu) {
        fputs("beamring bench: --cpu leaves out the GPU and --gpu the CPU; expected at most one of them\n",
              stderr);
        return 2;
    }
    if ((missing > 0 || gpu_portable) && !gpu) {
        fprintf(stderr, "beamring bench: --%s is of kernels on the GPU, which --cpu leaves out\n",
                missing > 0 ? "missing" : "code");
        return 2;
    }
    if (gpu_portable) cpu = false;
    gpu_missing = missing;
    for (int i = 0; i < NPARTS; i++) {
        if (!all && !wanted[i]) continue;
        if (missing > 0 && !has_kernel(i)) {
            if (all) continue;
            fprintf(stderr, "beamring bench: --missing is of kernels on the GPU; '%s' is none of them\n",
                    parts[i].name);
            return 2;
        }
        if (cpu && missing == 0 && parts[i].cpu != NULL) shorts += parts[i].cpu();
        bench_free_all();
        if (gpu && parts[i].gpu != NULL) on_gpu[non_gpu++] = parts[i].gpu;
    }
    if (non_gpu > 0) shorts += bench_gpu_parts(on_gpu, non_gpu);
    if (shorts > 0)
        printf("%d result%s of what is required\n", shorts, shorts == 1 ? " falls short" : "s fall short");
    return strict && shorts > 0;
}
