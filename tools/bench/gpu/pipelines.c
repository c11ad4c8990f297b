/* pipelines.c - whole pipelines fed from locked memory, beside their copies alone and their kernels alone.
 * The last one has a real source, `replay`, that reads a file in memory. */
#include "buffers/clock.h"
#include "tools/bench/bench.h"
#include "tools/bench/gpu/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum {
    COPIES = 12,
    LOCKED = 2,
    REPLAYED = 2,  /* frames in the recording */
    HEADER = 4096, /* bytes before them */
    SIDE = 32,     /* FRB beams are SIDE x SIDE */
    BLOCK = 256    /* ... quantized so many steps at a time */
};
#define REPLAY_MOST 1.25 /* of the pipeline that replays */

/* --- copies alone ------------------------------------------------------------------------------------- */

/* COPIES of them on a stream of their own, between LOCKED pieces of locked memory and as many on the GPU. */
struct copies {
    struct br_gpu_stream stream;
    size_t bytes;
    uint8_t *locked[LOCKED], *device[LOCKED];
};

static bool open_copies(struct gpu *g, struct copies *c, size_t bytes)
{
    c->bytes = bytes;
    for (int i = 0; i < LOCKED && bytes > 0; i++) {
        c->device[i] = gpu_alloc(g, bytes);
        c->locked[i] = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
        if (c->locked[i] == NULL) return br_fail(&g->error, BR_E_NO_MEMORY, "no memory") == BR_OK;
        memset(c->locked[i], 0x5a, bytes);
        if (c->device[i] == NULL || gpu_ok(g, br_gpu_pin(c->locked[i], bytes, &g->error))) continue;
        free(c->locked[i]);
        c->locked[i] = NULL;
        return false;
    }
    return gpu_ok(g, br_gpu_stream_create(&c->stream, g->stream.device, &g->error));
}

static void close_copies(struct copies *c)
{
    for (int i = 0; i < LOCKED; i++) {
        if (c->locked[i] != NULL) br_gpu_unpin(c->locked[i]);
        free(c->locked[i]);
    }
    if (c->stream.handle != NULL) br_gpu_stream_destroy(&c->stream);
}

double gpu_transfers(struct gpu *g, size_t to_device, size_t to_host)
{
    struct copies in = {0}, out = {0};
    double ms = -1;
    bool ok = open_copies(g, &in, to_device) && open_copies(g, &out, to_host);
    for (int round = 0; ok && round < 2; round++) { /* the first one warms up */
        uint64_t begin = br_clock_ns();
        for (int i = 0; i < COPIES && ok; i++) {
            int k = i % LOCKED;
            if (to_device > 0)
                ok = gpu_ok(g, br_gpu_copy(in.device[k], in.locked[k], in.bytes, &in.stream, &g->error));
            if (ok && to_host > 0)
                ok = gpu_ok(g, br_gpu_copy(out.locked[k], out.device[k], out.bytes, &out.stream, &g->error));
        }
        ok = ok && gpu_ok(g, br_gpu_stream_wait(&in.stream, &g->error)) &&
             gpu_ok(g, br_gpu_stream_wait(&out.stream, &g->error));
        ms = (double)(br_clock_ns() - begin) * 1e-6 / COPIES;
    }
    close_copies(&in);
    close_copies(&out);
    return ok ? ms : -1;
}

/* --- the pipelines ------------------------------------------------------------------------------------ */

enum part { FRB = 1, VOLTAGES = 2 };

/* The pipeline as YAML, to be freed. `from`: the line of its source. */
static char *pipeline_text(const struct gpu_node *node, const char *from, unsigned parts)
{
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    if (out == NULL) return NULL;
    gpu_node_text(out, node, "cuda:0");
    fputs(from, out);
    if (parts & FRB)
        fprintf(out,
                "  - {stage: upchannelize, in: field, out: fine, factor: %u}\n"
                "  - {stage: frb_grid, in: fine, out: grid, integrate: %u}\n"
                "  - {stage: frb_beams, in: grid, out: beams, beams: {grid: [%d, %d], spacing_deg: 0.12}}\n"
                "  - {stage: quantize, in: beams, out: levels, bits: 4, block: %d}\n"
                "  - {stage: record, name: sink, in: levels, directory: nowhere, prefix: none}\n",
                node->factor, node->integrate, SIDE, SIDE, BLOCK);
    if (parts & VOLTAGES)
        fprintf(out,
                "  - {stage: baseband_beamform, in: field, out: voltage, beams: {grid: [8, %zu], "
                "spacing_deg: 0.1}}\n"
                "  - {stage: record, name: %s, in: voltage, directory: nowhere, prefix: nothing}\n",
                node->voltages / 8, parts & FRB ? "sink2" : "sink");
    fclose(out);
    return text;
}

/* A pipeline of the copies, the two ends and so many stages between them. */
static char *hops_text(unsigned stages)
{
    char from[2048], in[32] = "field";
    int length =
        snprintf(from, sizeof from,
                 "  - {stage: simulate, name: source, samples: 1000000, frame_samples: %zu, out: field}\n",
                 gpu_chord.samples);
    for (unsigned i = 0; i < stages; i++) {
        length +=
            snprintf(from + length, sizeof from - (size_t)length,
                     "  - {stage: upchannelize, name: hop%u, in: %s, out: passed%u, factor: 1}\n", i, in, i);
        snprintf(in, sizeof in, "passed%u", i);
    }
    snprintf(from + length, sizeof from - (size_t)length,
             "  - {stage: record, name: sink, in: %s, directory: nowhere, prefix: none}\n", in);
    return pipeline_text(&gpu_chord, from, 0);
}

/* Sum of the kernels of a frame, each measured alone. */
static double kernels_alone(struct gpu *g, const struct gpu_node *node, unsigned parts, size_t grid_steps)
{
    const struct gpu_zone zone = {node->channels, node->factor};
    double steps = (double)node->samples / node->integrate, ms = 0, one;
    size_t fine = node->channels * node->factor;
    if (parts & FRB) {
        ms += gpu_upchannelize(g, node, &zone, 1);
        ms += gpu_frb_grid(g, node, &zone, 1);
        one = gpu_frb_beams(g, node, fine, grid_steps, SIDE, SIDE);
        ms += one * steps / (double)grid_steps;
        one = gpu_quantize(g, node, fine, SIDE * SIDE, BLOCK, 4, GPU_POWERS, false);
        ms += one * steps / BLOCK;
    }
    if (parts & VOLTAGES) ms += gpu_baseband(g, node);
    return gpu_ok(g, BR_OK) ? ms : -1;
}

static void heading(void)
{
    printf("\n%-40s %8s %8s %8s %7s %7s %7s %8s\n", "", "", "copies", "kernels", "", "at most", "x real",
           "CPU us");
    printf("%-40s %8s %8s %8s %7s %7s %7s %8s\n", "pipeline, ms for a frame", "whole", "alone", "alone",
           "ratio", "1.05*", "time", "a hop");
}

/* Prints a row; 1 if it falls short of what is required. */
static int report(const struct gpu_node *node, const char *name, const struct gpu_run_result *r,
                  double copies, double kernels, double most)
{
    double longer = copies > kernels ? copies : kernels, ratio = r->ms / longer;
    printf("%-40s %8.3f %8.3f %8.3f %7.3f %7s %7.2f %8.1f\n", name, r->ms, copies, kernels, ratio,
           ratio > most ? "SHORT" : "ok", (double)node->samples * node->sample_us * 1e-3 / r->ms,
           r->cpu_us / r->hops);
    fflush(stdout);
    return ratio > most;
}

/* A recording of REPLAYED frames in memory; false, with the reason printed, where there is no room. */
static bool make_recording(const struct gpu *g, const struct gpu_node *node, const char *path)
{
    size_t piece = (size_t)16 << 20, bytes = node->samples * node->channels * NPOL * node->dishes * REPLAYED;
    char header[HEADER] = "";
    struct statvfs room;
    snprintf(
        header, sizeof header,
        "HDR_VERSION 1.0\nHDR_SIZE %d\nFILE_SIZE %zu\nFILE_NUMBER 0\nOBS_OFFSET 0\nDTYPE int4x2\nAXES "
        "time,freq,pol,dish\n"
        "SHAPE 0,%zu,%d,%u\nSAMPLE0 0\nSAMPLES %zu\nFRAME_SAMPLES %zu\nSAMPLE_NS %.0f/1\nEPOCH_NS " GPU_EPOCH
        "\n"
        "FREQ_MHZ 600:%.7f:%zu\n",
        HEADER, bytes, node->channels, NPOL, node->dishes, node->samples * REPLAYED, node->samples,
        node->sample_us * 1e3, 1 / node->sample_us, node->channels);
    FILE *file =
        statvfs("/dev/shm", &room) == 0 && (double)room.f_bavail * (double)room.f_frsize > 1.2 * (double)bytes
            ? fopen(path, "wb")
            : NULL;
    bool ok = file != NULL && fwrite(header, 1, HEADER, file) == HEADER;
    for (size_t at = 0; ok && at < bytes; at += piece) {
        size_t part = bytes - at < piece ? bytes - at : piece;
        ok = fwrite(g->piece[GPU_BYTES], 1, part, file) == part;
    }
    if (file != NULL && fclose(file) != 0) ok = false;
    if (!ok) printf("replay: skipped, no room for %.0f MB in /dev/shm\n", (double)bytes * 1e-6);
    return ok;
}

/* 1 if it falls short. */
static int measure_replay(struct gpu *g, const struct gpu_node *node, double copies, double kernels)
{
    char path[64], from[160];
    struct gpu_run_result r;
    int shorts = 0;
    snprintf(path, sizeof path, "/dev/shm/beamring_bench_%d.dada", (int)getpid());
    if (make_recording(g, node, path)) {
        snprintf(from, sizeof from, "  - {stage: replay, name: source, files: %s, loop: %d, out: field}\n",
                 path, RUN_FRAMES / REPLAYED);
        char *text = pipeline_text(node, from, VOLTAGES);
        if (text != NULL &&
            gpu_run(g, &(struct gpu_run){"bench replay", text, node->samples, false, false, NULL, NULL},
                    &r)) {
            shorts = report(node, "baseband, replayed from /dev/shm", &r, copies, kernels, REPLAY_MOST);
            printf("%40s replay reads %.1f GB/s\n", "", (double)r.in_bytes / r.ms * 1e-6);
        }
        free(text);
    }
    unlink(path);
    return shorts;
}

int gpu_pipelines(struct gpu *g)
{
    static const struct {
        const char *name;
        unsigned parts;
    } pipelines[] = {
        {"baseband", VOLTAGES}, {"FRB: upchannelize to quantize", FRB}, {"both, one field", FRB | VOLTAGES}};
    enum { N = sizeof pipelines / sizeof *pipelines };
    const struct gpu_node *node = &gpu_chord;
    struct gpu_run_result r[N];
    double copies[N], kernels[N];
    char from[96];
    int shorts = 0;
    snprintf(from, sizeof from,
             "  - {stage: simulate, name: source, samples: 1000000, frame_samples: %zu, out: field}\n",
             node->samples);
    printf("\nCHORD's pipelines: frames of %.0f MB every %.1f ms; their kernels alone:\n",
           (double)(node->samples * node->channels * NPOL * node->dishes) * 1e-6,
           (double)node->samples * node->sample_us * 1e-3);
    for (int i = 0; i < N; i++) {
        char *text = pipeline_text(node, from, pipelines[i].parts);
        bool all = i == N - 1;
        struct gpu_run what = {pipelines[i].name, text, node->samples, true, all, NULL, NULL};
        bool ok = text != NULL && gpu_run(g, &what, &r[i]);
        if (ok && all) { /* once more, to see what ran when: the events that tell cost a little */
            struct gpu_run_result again;
            what.stages = false;
            what.built = gpu_timeline_begin;
            what.ended = gpu_timeline_print;
            ok = gpu_run(g, &what, &again);
        }
        free(text);
        if (!ok) return 1;
        copies[i] = gpu_transfers(g, r[i].in_bytes, r[i].out_bytes);
        gpu_free_all(g);
        /* the third has the kernels of the others */
        kernels[i] =
            i < 2 ? kernels_alone(g, node, pipelines[i].parts, r[i].grid_steps) : kernels[0] + kernels[1];
        if (!gpu_ok(g, BR_OK)) return 1;
    }
    heading();
    for (int i = 0; i < N; i++) shorts += report(node, pipelines[i].name, &r[i], copies[i], kernels[i], 1.05);
    shorts += measure_replay(g, node, copies[0], kernels[0]);
    return shorts + gpu_hops(g, node->samples, hops_text);
}
