/* bench.c - `beamring bench`: runs the parts asked for, or all. */
#include "tools/bench.h"
#include "tools/commands.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

uint64_t bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#pragma weak bench_frb
#pragma weak bench_quantize
enum { MOST_RUNS = 4096 };

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *seconds, unsigned n)
{
    qsort(seconds, n, sizeof *seconds, by_value);
    return n % 2 == 1 ? seconds[n / 2] : (seconds[n / 2 - 1] + seconds[n / 2]) / 2;
}

static double time_of(void (*work)(void *), void *arg)
{
    uint64_t begin = bench_now();
    work(arg);
    return (double)(bench_now() - begin) * 1e-9;
}

void bench_pair(void (*a)(void *), void *arg_a, void (*b)(void *), void *arg_b, unsigned runs, double *median_a,
                double *median_b)
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

double bench_median(void (*work)(void *), void *arg, unsigned runs)
{
    double seconds;
    bench_pair(work, arg, NULL, NULL, runs, &seconds, NULL);
    return seconds;
}

int bench_report(const char *what, double value, const char *unit, const char *against, double ratio, double required, int higher)
{
    bool falls_short = required > 0 && (higher ? ratio < required : ratio > required);
    printf("%-52s %12.5g %-9s %8.3f x %-30s", what, value, unit, ratio, against);
    if (required > 0) printf("  %s %.3g: %s", higher ? "at least" : "at most", required, falls_short ? "SHORT" : "ok");
    putchar('\n');
    fflush(stdout);
    return falls_short;
}

static const struct {
    const char *name;
    int (*run)(void);
} parts[] = {
    {"queue", bench_queue}, {"upchannelize", bench_upchannelize}, {"baseband", bench_baseband}, {"frb", bench_frb},
    {"quantize", bench_quantize}, {"gpu", bench_gpu},
};
enum { NPARTS = sizeof parts / sizeof *parts };

static int part_called(const char *name)
{
    const char *names[NPARTS + 1] = {NULL};
    for (int i = 0; i < NPARTS; i++) {
        if (strcmp(parts[i].name, name) == 0) return i;
        names[i] = parts[i].name;
    }
    const char *near = br_suggest(name, names);
    fprintf(stderr, "beamring bench: there is no part '%s'%s%s%s; expected queue, upchannelize, baseband, frb, quantize or gpu\n", name,
            near != NULL ? "; did you mean '" : "", near != NULL ? near : "", near != NULL ? "'?" : "");
    return -1;
}

int cmd_bench(int argc, char **argv)
{
    bool wanted[NPARTS] = {false}, strict = false, all = true;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--strict") == 0) {
            strict = true;
            continue;
        }
        int part = part_called(argv[i]);
        if (part < 0) return 2;
        wanted[part] = true;
        all = false;
    }
    int falls_short = 0;
    for (int i = 0; i < NPARTS; i++)
        if ((all || wanted[i]) && parts[i].run != NULL) falls_short += parts[i].run();
    if (falls_short > 0) printf("%d result%s of what is required\n", falls_short, falls_short == 1 ? " falls short" : "s fall short");
    return strict && falls_short > 0;
}
