/* gpu.c - the GPU: what the device can do at most, then how much of it kernels and whole pipelines
 * reach.
 *
 * A ceiling is the rate that the vendor's own copy or matrix product, or a bare loop of mma.sync, reached in
 * the same run on random data. Kernels for any GPU multiply by mma.sync. The larger one of their columns "of
 * copy" and "of mma" says how near to their bound they are. */
#include "tools/bench/gpu/gpu.h"
#include "buffers/clock.h"
#include "tools/bench/bench.h"
#include "tools/bench/gpu/bare_mma.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PIECE ((size_t)16 << 20)
#define PLUG  ((size_t)1 << 30)
enum { SHIFTS = 4096, PLUGS = 10, UPLOADS = 1 << 26 };

/* --- memory ------------------------------------------------------------------------------------------- */

bool gpu_ok(struct gpu *g, int status)
{
    struct br_why why;
    if (status != BR_OK && g->error.status == BR_OK) br_fail(&g->error, status, "a call failed");
    if (g->error.status == BR_OK && g->cuda != NULL && br_cuda_check(g->cuda, &why) != 0)
        br_fail(&g->error, BR_E_DEVICE, "%s", why.text);
    return g->error.status == BR_OK;
}

void *gpu_alloc(struct gpu *g, size_t bytes)
{
    void *memory = NULL;
    if (!gpu_ok(g, BR_OK)) return NULL;
    if (g->nblocks == GPU_BLOCKS) {
        br_fail(&g->error, BR_E_INTERNAL, "more than %d pieces of memory", GPU_BLOCKS);
        return NULL;
    }
    if (!gpu_ok(g, br_gpu_alloc(&memory, g->stream.device, bytes, &g->error))) return NULL;
    g->block[g->nblocks++] = memory;
    return memory;
}

void *gpu_fill(struct gpu *g, size_t bytes, enum gpu_random kind)
{
    uint8_t *memory = gpu_alloc(g, bytes);
    unsigned shift = g->nblocks * 26;
    for (size_t at = 0; memory != NULL && at < bytes; at += PIECE, shift += 62) {
        size_t part = bytes - at < PIECE ? bytes - at : PIECE;
        if (!gpu_ok(g,
                    br_gpu_copy(memory + at, g->piece[kind] + shift % SHIFTS, part, &g->stream, &g->error)))
            return NULL;
    }
    return memory;
}

void gpu_free_all(struct gpu *g)
{
    if (g->stream.handle != NULL) br_gpu_stream_wait(&g->stream, NULL);
    while (g->nblocks > 0) br_gpu_free(g->block[--g->nblocks], g->stream.device);
}

unsigned gpu_sets(double bytes)
{
    unsigned sets = (unsigned)(4 * GPU_L2 / bytes) + 1;
    return sets < 2 ? 2 : sets > 16 ? 16 : sets;
}

/* --- time --------------------------------------------------------------------------------------------- */

static double cpu_us(void)
{
    return (double)br_clock_of(CLOCK_THREAD_CPUTIME_ID) * 1e-3;
}

double gpu_time(struct gpu *g, void (*enqueue)(void *arg, unsigned i), void *arg, double *host_us)
{
    double ms[GPU_RUNS], begin;
    unsigned i = 0;
    for (; i < GPU_SETS && gpu_ok(g, BR_OK); i++) enqueue(arg, i); /* warm up */
    if (!gpu_ok(g, BR_OK) || !gpu_ok(g, br_gpu_stream_wait(&g->stream, &g->error))) return -1;
    for (int k = 0; k < PLUGS; k++)
        gpu_ok(g, br_gpu_copy((uint8_t *)g->plug + PLUG / 2, g->plug, PLUG / 2, &g->stream, &g->error));
    begin = cpu_us();
    gpu_ok(g, br_gpu_event_record(g->event[0], &g->stream, &g->error));
    for (int k = 0; k < GPU_RUNS && gpu_ok(g, BR_OK); k++, i++) {
        enqueue(arg, i);
        gpu_ok(g, br_gpu_event_record(g->event[k + 1], &g->stream, &g->error));
    }
    if (host_us != NULL) *host_us = (cpu_us() - begin) / GPU_RUNS;
    if (!gpu_ok(g, BR_OK) || !gpu_ok(g, br_gpu_stream_wait(&g->stream, &g->error))) return -1;
    for (int k = 0; k < GPU_RUNS; k++) ms[k] = br_gpu_event_ms(g->event[k], g->event[k + 1]);
    qsort(ms, GPU_RUNS, sizeof *ms, bench_by_value);
    return ms[GPU_RUNS / 2];
}

/* --- rows --------------------------------------------------------------------------------------------- */

void gpu_heading(void)
{
    printf("\n%-68s %8s %7s %6s %7s %5s %5s %5s %6s %6s\n", "", "", "", "", "", "of", "of", "of", "x real",
           "host");
    printf("%-68s %8s %7s %6s %7s %5s %5s %5s %6s %6s\n", "kernel", "ms", "MB", "TB/s", "Top/s", "copy",
           "GEMM", "mma", "time", "us");
}

static void put_share(double rate, double most)
{
    if (rate > 0 && most > 0)
        printf("%5.2f ", rate / most);
    else
        printf("%5s ", "-");
}

void gpu_row(const struct gpu *g, const char *name, const struct gpu_work *work, double ms, double host_us)
{
    double bytes = work->bytes / ms * 1e3, operations = work->operations / ms * 1e3;
    printf("%-68s %8.4f %7.1f %6.3f ", name, ms, work->bytes * 1e-6, bytes * 1e-12);
    if (operations > 0)
        printf("%7.1f ", operations * 1e-12);
    else
        printf("%7s ", "-");
    put_share(bytes, g->copy);
    put_share(operations, work->int8 ? g->int8 : g->fp16);
    put_share(operations, work->int8 ? g->mma_int8 : g->mma_fp16);
    printf("%6.0f %6.1f\n", work->span_s / ms * 1e3, host_us);
    fflush(stdout);
}

/* --- ceilings ----------------------------------------------------------------------------------------- */

static void copy_device(void *arg, unsigned i)
{
    struct gpu *g = arg;
    uint8_t *a = g->plug, *b = a + PLUG / 2;
    gpu_ok(g, br_gpu_copy(i % 2 ? a : b, i % 2 ? b : a, PLUG / 2, &g->stream, &g->error));
}

struct products {
    const char *name;
    struct gpu_gemm gemm;
    const char *of; /* the kernel of which it is the bare product */
};

static void measure_products(struct gpu *g)
{
    static const struct products products[] = {
        {"int8 GEMM 8192 x 8192 x 8192, int32 out",
         {.int8 = true, .m = 8192, .n = 8192, .k = 8192, .batch = 1},
         NULL},
        {"fp16 GEMM 8192 x 8192 x 8192", {.m = 8192, .n = 8192, .k = 8192, .batch = 1}, NULL},
        {"int8 GEMM 8192 x 192 x 1024, 96 times, int8 out",
         {.int8 = true, .narrow = true, .m = 8192, .n = 192, .k = 1024, .batch = 96},
         "baseband, chord"},
        {"fp16 GEMM 256 x 5760 x 2304, 256 times",
         {.m = 256, .n = 5760, .k = 2304, .batch = 256},
         "frb_beams, chord"},
    };
    char why[128] = "";
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        const struct gpu_gemm *p = &products[i].gemm;
        double ms = gpu_gemm(g, p, why), rate = 2.0 * (double)(p->m * p->n * p->k * p->batch) / ms * 1e3;
        gpu_free_all(g);
        if (!(ms > 0)) {
            printf("%-58s %s\n", products[i].name, why);
            if (!gpu_ok(g, BR_OK)) return;
            continue;
        }
        if (products[i].of == NULL && p->int8)
            g->int8 = rate;
        else if (products[i].of == NULL)
            g->fp16 = rate;
        printf("%-58s %8.4f ms %8.1f Top/s", products[i].name, ms, rate * 1e-12);
        if (products[i].of != NULL) printf("  (%s)", products[i].of);
        putchar('\n');
    }
}

struct bare {
    struct gpu *g;
    void *out;
    bool int8;
    double operations;
};

static void run_bare(void *arg, unsigned i)
{
    struct bare *b = arg;
    (void)i;
    b->operations = gpu_bare_mma(b->int8, 4096, 1, b->out, b->g->stream.handle);
}

static void measure_bare(struct gpu *g)
{
    const struct {
        const char *name;
        bool int8;
        double *rate;
    } bare[] = {{"bare mma.sync, int8 m16n8k32", true, &g->mma_int8},
                {"bare mma.sync, fp16 m16n8k16", false, &g->mma_fp16}};
    for (size_t i = 0; i < sizeof bare / sizeof *bare; i++) {
        struct bare b = {.g = g, .out = gpu_alloc(g, sizeof(int)), .int8 = bare[i].int8};
        double ms = gpu_time(g, run_bare, &b, NULL);
        gpu_free_all(g);
        if (!(ms > 0)) return;
        *bare[i].rate = b.operations / ms * 1e3;
        printf("%-58s %8.4f ms %8.1f Top/s\n", bare[i].name, ms, *bare[i].rate * 1e-12);
    }
}

static void measure_ceilings(struct gpu *g)
{
    double ms = gpu_time(g, copy_device, g, NULL);
    if (ms < 0) return;
    g->copy = (double)PLUG / ms * 1e3; /* half read, half written */
    printf("%-58s %8.4f ms %8.3f TB/s read and written\n", "device-to-device copy, 512 MiB", ms,
           g->copy * 1e-12);
    measure_products(g);
    measure_bare(g);
    const size_t frame = (size_t)8192 * 48 * 1024;
    const struct {
        const char *name;
        size_t in, out;
        double *rate;
    } ways[] = {{"to the device, 403 MB from locked memory", frame, 0, &g->to_device},
                {"from the device, 403 MB to locked memory", 0, frame, &g->to_host},
                {"both at once", frame, frame, NULL}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways && gpu_ok(g, BR_OK); i++) {
        ms = gpu_transfers(g, ways[i].in, ways[i].out);
        double rate = (double)(ways[i].in + ways[i].out) / ms * 1e3;
        if (ways[i].rate != NULL) *ways[i].rate = rate;
        if (ms > 0) printf("%-58s %8.4f ms %8.2f GB/s\n", ways[i].name, ms, rate * 1e-9);
        gpu_free_all(g);
    }
    fflush(stdout);
}

/* --- all ---------------------------------------------------------------------------------------------- */

static bool make_pieces(struct gpu *g)
{
    uint64_t random = 88172645463325252u;
    for (int kind = 0; kind < GPU_RANDOMS; kind++) {
        uint64_t *words = aligned_alloc(4096, PIECE + SHIFTS);
        if (words == NULL) return br_fail(&g->error, BR_E_NO_MEMORY, "no memory") == BR_OK;
        for (size_t i = 0; i < (PIECE + SHIFTS) / sizeof *words; i++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            /* float16 with exponents 14, 15: 0.5 to 2; the steady ones with 15 alone and 8 bits */
            words[i] = kind == GPU_BYTES    ? random
                       : kind == GPU_HALVES ? (random & 0x87ff87ff87ff87ff) | 0x3800380038003800
                       : kind == GPU_POWERS ? (random & 0x07ff07ff07ff07ff) | 0x3800380038003800
                                            : (random & 0x00ff00ff00ff00ff) | 0x3c003c003c003c00;
        }
        g->piece[kind] = (uint8_t *)words;
        if (!gpu_ok(g, br_gpu_pin(words, PIECE + SHIFTS, &g->error))) {
            free(words);
            g->piece[kind] = NULL;
            return false;
        }
    }
    return true;
}

static bool open_device(struct gpu *g)
{
    struct br_why why;
    if (!gpu_ok(g, br_gpu_use(0, &g->error)) || !gpu_ok(g, br_gpu_stream_create(&g->stream, 0, &g->error)))
        return false;
    if (br_cuda_create(&g->cuda, 0, g->stream.handle, UPLOADS, &why) != 0)
        return br_fail(&g->error, BR_E_DEVICE, "%s", why.text) == BR_OK;
    for (int i = 0; i <= GPU_RUNS; i++)
        if (!gpu_ok(g, br_gpu_event_create(&g->event[i], 0, true, &g->error))) return false;
    if (!make_pieces(g)) return false;
    void *plug = gpu_fill(g, PLUG, GPU_BYTES);
    g->nblocks = 0; /* stays */
    g->plug = plug;
    return plug != NULL;
}

static void close_device(struct gpu *g)
{
    gpu_free_all(g);
    if (g->plug != NULL) br_gpu_free(g->plug, 0);
    br_cuda_destroy(g->cuda);
    for (int i = 0; i <= GPU_RUNS; i++)
        if (g->event[i] != NULL) br_gpu_event_destroy(g->event[i]);
    for (int kind = 0; kind < GPU_RANDOMS; kind++) {
        if (g->piece[kind] != NULL) br_gpu_unpin(g->piece[kind]);
        free(g->piece[kind]);
    }
    if (g->stream.handle != NULL) br_gpu_stream_destroy(&g->stream);
}

int bench_gpu_parts(gpu_part *const *parts, unsigned n)
{
    static struct gpu g;
    char name[128], code[64] = "";
    int shorts = 0;
    struct br_error why = {0};
    if (br_gpu_devices(&why) == 0) { /* the first call of the driver: it is set up for pipelines */
        printf("no GPU: skipped (%s)\n", why.text);
        return 0;
    }
    br_gpu_name(0, name, sizeof name);
    printf("GPU: %s\n", name);
    if (open_device(&g)) {
        br_cuda_code(code, sizeof code);
        bool own = strcmp(code, "sm_90a") == 0 && !gpu_portable;
        printf("code: %s, %s\n", code, own ? "with Hopper's own kernels" : "the kernels for any GPU");
        measure_ceilings(&g);
    }
    if (gpu_portable) puts("kernels as they are on every GPU from sm_80 on; nothing is required of them");
    if (gpu_missing > 0)
        printf("of every channel one of %u samples is missing, at least one of a shorter block\n",
               gpu_missing);
    gpu_heading();
    for (unsigned i = 0; i < n && gpu_ok(&g, BR_OK); i++) {
        /* For most of a second after a load at its power limit a GPU runs at lower clocks, whatever it
         * does then. */
        nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
        shorts += parts[i](&g);
        bench_free_all();
    }
    if (!gpu_ok(&g, BR_OK)) {
        fprintf(stderr, "bench gpu: %s\n", g.error.text);
        shorts++;
    }
    close_device(&g);
    return shorts;
}
