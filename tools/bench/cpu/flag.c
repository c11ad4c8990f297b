/* Spectral kurtosis beside a copy of the field, which is a part of it; one thread. */
#include "kernels/flag/flag.h"
#include "tools/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 256, BLOCKS = 8, LONG = BLOCK * BLOCKS, CHANNELS = 8, INPUTS = 1024 };

struct flag_bench {
    struct br_flag *plan;
    uint8_t *e, *out;
};

static void beamring(void *arg)
{
    static const struct br_flag_rules rules = {5, 5, 2, 76, NULL};
    struct flag_bench *b = arg;
    br_flag_begin(b->plan, &rules);
    br_flag_add(b->plan, 0, LONG, b->e, NULL, b->out);
    br_flag_end(b->plan, b->out, NULL);
}

static void copy(void *arg)
{
    struct flag_bench *b = arg;
    memcpy(b->out, b->e, (size_t)LONG * CHANNELS * INPUTS);
}

int bench_flag(void)
{
    struct br_flag_params p = {CHANNELS, INPUTS, BLOCK, BLOCKS, -8, NULL, {0}};
    size_t bytes = (size_t)LONG * CHANNELS * INPUTS;
    struct flag_bench b = {NULL, bench_alloc(bytes), bench_alloc(bytes)};
    struct br_why why;
    double ours, theirs;
    int shorts = 1;
    if (br_flag_create(&b.plan, BR_CPU, &p, &why) == 0) {
        srand(1);
        for (size_t k = 0; k < bytes; k++) { /* sums of three: much like noise */
            int re = rand() % 5 + rand() % 5 + rand() % 4 - 5, im = rand() % 5 + rand() % 5 + rand() % 4 - 5;
            b.e[k] = (uint8_t)((re & 15) | (im & 15) << 4);
        }
        memset(b.out, 0, bytes);
        bench_pair(beamring, &b, copy, &b, 5, &ours, &theirs);
        shorts = bench_report("flag, 1024 inputs", (double)bytes / ours / 1e9, "GB/s",
                              "copy of E, one thread", theirs / ours, 0, 1);
    } else {
        fprintf(stderr, "bench flag: %s\n", why.text);
    }
    br_flag_destroy(b.plan);
    return shorts;
}
