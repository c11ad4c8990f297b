/* bench_gpu_pipelines.c - whole pipelines fed from locked memory, beside their copies alone and their kernels
 * alone.
 *
 * They are run by the runtime as from a file: the same stages, queues, inserted transfers and threads. Only
 * the two ends are replaced once the graph is built: the source hands on frames that are filled already,
 * without touching them, and the sink takes note of the time. The last pipeline has a real source, `replay`,
 * that reads a file in memory. */
#include "runtime/pipeline.h"
#include "tools/bench.h"
#include "tools/bench_gpu.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

enum {
    FRAMES = 144, /* of a run; the first WARM and the last COOL are not looked at */
    WARM = 24,
    COOL = 16,
    MOST_STAGES = 24,
    MARKS = 1024,
    SLOTS = 16,
    COPIES = 12,
    LOCKED = 2,
    REPLAYED = 2,  /* frames in the recording */
    HEADER = 4096, /* bytes before them */
    SIDE = 32,     /* FRB beams are SIDE x SIDE */
    BLOCK = 256    /* ... quantized so many steps at a time */
};
#define EPOCH "1700000000000000000"

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
        uint64_t begin = bench_now();
        for (int i = 0; i < COPIES && ok; i++) {
            int k = i % LOCKED;
            if (to_device > 0)
                ok = gpu_ok(g, br_gpu_copy(in.device[k], in.locked[k], in.bytes, &in.stream, &g->error));
            if (ok && to_host > 0)
                ok = gpu_ok(g, br_gpu_copy(out.locked[k], out.device[k], out.bytes, &out.stream, &g->error));
        }
        ok = ok && gpu_ok(g, br_gpu_stream_wait(&in.stream, &g->error)) &&
             gpu_ok(g, br_gpu_stream_wait(&out.stream, &g->error));
        ms = (double)(bench_now() - begin) * 1e-6 / COPIES;
    }
    close_copies(&in);
    close_copies(&out);
    return ok ? ms : -1;
}

/* --- the two ends ------------------------------------------------------------------------------------- */

/* What happened at the sinks when; one pipeline runs at a time. */
static struct {
    const struct gpu *g;
    const struct br_graph *graph;
    uint64_t samples, next, frames; /* of a frame; frames sent and to be sent */
    const void *filled[SLOTS];      /* slots of the source's queue that have their data */
    struct mark {
        uint64_t ns, cpu_ns, end;
    } mark[MARKS]; /* the first sink's */
    unsigned nmarks, looked;
    struct look {
        uint64_t end, cpu_ns[MOST_STAGES], calls[MOST_STAGES];
    } look[2]; /* at all stages: the first one, and the last one while the source is busy */
} run;

static uint64_t process_cpu(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void fill_once(const struct br_stream *stream, const struct br_frame *frame)
{
    const size_t piece = (size_t)16 << 20, bytes = br_stream_max_bytes(stream);
    unsigned s = 0;
    while (s < SLOTS && run.filled[s] != NULL && run.filled[s] != frame->data) s++;
    if (s == SLOTS || run.filled[s] != NULL) return;
    run.filled[s] = frame->data;
    for (size_t at = 0; at < bytes; at += piece)
        memcpy((uint8_t *)frame->data + at, run.g->piece[GPU_BYTES] + s * 64,
               bytes - at < piece ? bytes - at : piece);
}

static int source(struct br_stage *stage, void *self, const struct br_io *io)
{
    (void)self;
    struct br_frame *out = io->out[0];
    if (run.next == run.frames || br_stage_stopping(stage)) return BR_FINISHED;
    fill_once(br_stage_output(stage, 0), out);
    out->first = run.next++ * run.samples;
    out->samples = run.samples;
    return BR_PRODUCED;
}

/* CPU time of a stage's thread; 0 once it has ended. */
static uint64_t thread_cpu(const struct br_stage *stage)
{
    struct timespec t;
    clockid_t clock;
    if (atomic_load(&stage->ended) || pthread_getcpuclockid(stage->thread, &clock) != 0 ||
        clock_gettime(clock, &t) != 0)
        return 0;
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void look_at_stages(uint64_t end)
{
    if (end < WARM * run.samples || end > (run.frames - COOL) * run.samples) return;
    struct look *look = &run.look[run.looked];
    run.looked = 1;
    look->end = end;
    for (size_t s = 0; s < run.graph->nstages && s < MOST_STAGES; s++) {
        const struct br_stage *stage = &run.graph->stage[s];
        look->cpu_ns[s] = thread_cpu(stage);
        look->calls[s] = atomic_load_explicit(&stage->counters.calls, memory_order_relaxed);
    }
}

static int sink(struct br_stage *stage, void *self, const struct br_io *io)
{
    (void)self;
    const struct br_frame *in = io->in[0];
    if (in == NULL) return BR_FINISHED;
    if (strcmp(br_stage_name(stage), "sink") != 0) return BR_CONSUMED;
    if (run.nmarks < MARKS)
        run.mark[run.nmarks++] = (struct mark){bench_now(), process_cpu(), in->first + in->samples};
    look_at_stages(in->first + in->samples);
    return BR_CONSUMED;
}

static void replace(struct br_stage *stage, struct br_stage_type *type,
                    int (*process)(struct br_stage *, void *, const struct br_io *))
{
    *type = *stage->type;
    type->start = NULL;
    type->stop = NULL;
    type->process = process;
    stage->type = type;
}

/* --- a run -------------------------------------------------------------------------------------------- */

/* What was measured of a pipeline. */
struct result {
    double ms, host_us;         /* of a frame; CPU time of a frame handed on */
    size_t in_bytes, out_bytes; /* that a frame moves to the device and back */
    size_t grid_steps;          /* time steps in a frame of FRB stage 1, 0 without */
};

static void first_and_last(const struct mark **first, const struct mark **last)
{
    *first = *last = NULL;
    for (unsigned i = 0; i < run.nmarks; i++) {
        const struct mark *m = &run.mark[i];
        if (m->end < WARM * run.samples || m->end > (run.frames - 4) * run.samples) continue;
        if (*first == NULL) *first = m;
        *last = m;
    }
}

static void measure_bytes(const struct br_graph *graph, struct result *r)
{
    for (size_t s = 0; s < graph->nstages; s++) {
        const struct br_stage *stage = &graph->stage[s];
        for (unsigned i = 0; i < stage->nout; i++) {
            const struct br_edge *edge = &stage->out[i];
            const struct br_stream *stream = &edge->stream;
            double frames = (double)run.samples / (double)stream->frame_samples;
            size_t bytes = (size_t)((double)br_stream_max_bytes(stream) * frames + 0.5);
            if (stage->nin > 0 && stage->in[0].edge->place.space == BR_SPACE_PINNED &&
                edge->place.space == BR_SPACE_CUDA)
                r->in_bytes += bytes;
            if (stage->nin > 0 && stage->in[0].edge->place.space == BR_SPACE_CUDA &&
                edge->place.space == BR_SPACE_PINNED)
                r->out_bytes += bytes;
            if (strcmp(stage->type->name, "frb_grid") == 0) r->grid_steps = stream->array.axis[1].length;
        }
    }
}

static double hops(const struct br_graph *graph)
{
    double frames = 0;
    for (size_t i = 0; i < br_graph_nedges(graph); i++) {
        struct br_queue_counters c;
        br_queue_get_counters(br_graph_edge(graph, i)->queue, &c);
        frames += (double)c.frames;
    }
    return frames / (double)run.frames;
}

/* Where the time goes in the pipeline's stages: those that the runtime inserted are the copies. */
static void report_stages(const struct br_graph *graph)
{
    const struct look *a = &run.look[0], *b = &run.look[1];
    if (b->end <= a->end) return;
    double frames = (double)(b->end - a->end) / (double)run.samples;
    printf("\n%-40s %14s %14s %14s\n", "stage of a pipeline with both", "calls a frame", "CPU us a call",
           "GPU ms a call");
    for (size_t s = 0; s < graph->nstages && s < MOST_STAGES; s++) {
        struct br_stage_totals totals;
        double calls = (double)(b->calls[s] - a->calls[s]);
        br_stage_get_totals(&graph->stage[s], &totals);
        printf("%-40s %14.2f ", graph->stage[s].name, calls / frames);
        if (calls > 0 && b->cpu_ns[s] > 0)
            printf("%14.1f ", (double)(b->cpu_ns[s] - a->cpu_ns[s]) * 1e-3 / calls);
        else
            printf("%14s ", "-");
        if (totals.gpu_ns_per_call > 0)
            printf("%14.4f\n", totals.gpu_ns_per_call * 1e-6);
        else
            printf("%14s\n", "-");
    }
}

/* Runs the pipeline of `text` to its end. `fed`: its source is replaced; `stages`: prints what they did. */
static bool run_text(struct gpu *g, const char *name, const char *text, bool fed, bool stages,
                     struct result *r)
{
    static struct br_stage_type source_type, sink_type;
    const struct mark *first, *last;
    struct br_config *config = NULL;
    struct br_graph *graph = NULL;
    struct br_log log;
    bool ok = false;
    *r = (struct result){0};
    run.g = g;
    run.next = 0;
    run.nmarks = run.looked = 0;
    memset(run.look, 0, sizeof run.look);
    memset(run.filled, 0, sizeof run.filled);
    br_log_init(&log, stderr, BR_LOG_WARNING);
    int status = br_config_parse(&config, name, text, strlen(text), 0, NULL, &g->error);
    if (status == BR_OK) status = br_graph_build(&graph, config, &log, &g->error);
    if (config != NULL && br_config_errors(config) > 0) br_config_print_errors(config, stderr);
    if (status != BR_OK) goto done;
    measure_bytes(graph, r);
    run.graph = graph;
    for (size_t s = 0; s < graph->nstages; s++) {
        struct br_stage *stage = &graph->stage[s];
        if (stage->nin > 0 && stage->nout > 0 && stage->device < 0) {
            br_fail(&g->error, BR_E_DEVICE, "%s: stage '%s' runs on the CPU", name, stage->name);
            goto done;
        }
        if (fed && stage->nin == 0) replace(stage, &source_type, source);
        if (stage->nout == 0) replace(stage, &sink_type, sink);
    }
    status = br_pipeline_start(graph, &g->error);
    if (status == BR_OK) status = br_pipeline_finish(graph, &g->error);
    if (status == BR_OK && !br_balance_ok(graph, stderr))
        status = br_fail(&g->error, BR_E_INTERNAL, "the balance of %s", name);
    first_and_last(&first, &last);
    if (status != BR_OK || first == NULL || last->end <= first->end) goto done;
    double frames = (double)(last->end - first->end) / (double)run.samples;
    r->ms = (double)(last->ns - first->ns) * 1e-6 / frames;
    r->host_us = (double)(last->cpu_ns - first->cpu_ns) * 1e-3 / frames / hops(graph);
    if (stages) report_stages(graph);
    ok = true;
done:
    if (!ok && g->error.status == BR_OK) br_fail(&g->error, BR_E_INTERNAL, "%s: nothing came out", name);
    br_graph_destroy(graph);
    br_config_free(config);
    br_log_destroy(&log);
    return ok;
}

/* --- the pipelines ------------------------------------------------------------------------------------ */

enum part { FRB = 1, VOLTAGES = 2 };

/* The pipeline as YAML, to be freed. `from`: the line of its source. */
static char *pipeline_text(const struct gpu_node *node, const char *device, const char *from, unsigned parts)
{
    char *text = NULL;
    size_t length;
    uint16_t cell[512][2];
    FILE *out = open_memstream(&text, &length);
    if (out == NULL) return NULL;
    bench_place_dishes(node->m, node->n, node->dishes, cell);
    fprintf(out,
            "device: %s\ntelescope: {name: %s, grid: {m: %u, n: %u}, spacing_m: {m: 8.5, n: 6.3}, "
            "latitude_deg: 0, "
            "longitude_deg: 0, dishes: [",
            device, node->name, node->m, node->n);
    for (unsigned d = 0; d < node->dishes; d++)
        fprintf(out, "%s[%u, %u]", d > 0 ? ", " : "", cell[d][0], cell[d][1]);
    fprintf(out,
            "]}\nstream: {epoch_ns: " EPOCH
            ", sample_ns: %.0f, freq_mhz: {first: 600, step: %.7f, count: %zu}}\n"
            "pipeline:\n%s",
            node->sample_us * 1e3, 1 / node->sample_us, node->channels, from);
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
        one = gpu_quantize(g, node, fine, SIDE * SIDE, BLOCK, 4);
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
           "ratio", "1.05", "time", "a hop");
}

/* Prints a row; 1 if it falls short of what is required. */
static int report(const struct gpu_node *node, const char *name, const struct result *r, double copies,
                  double kernels, bool required)
{
    double longer = copies > kernels ? copies : kernels, ratio = r->ms / longer;
    printf("%-40s %8.3f %8.3f %8.3f %7.3f %7s %7.2f %8.1f\n", name, r->ms, copies, kernels, ratio,
           !required      ? "-"
           : ratio > 1.05 ? "SHORT"
                          : "ok",
           (double)node->samples * node->sample_us * 1e-3 / r->ms, r->host_us);
    fflush(stdout);
    return required && ratio > 1.05;
}

/* A recording of REPLAYED frames in memory; false, with the reason printed, where there is no room. */
static bool make_recording(const struct gpu *g, const struct gpu_node *node, const char *path)
{
    size_t piece = (size_t)16 << 20, bytes = node->samples * node->channels * NPOL * node->dishes * REPLAYED;
    char header[HEADER] = "";
    struct statvfs room;
    snprintf(header, sizeof header,
             "HDR_VERSION 1.0\nHDR_SIZE %d\nFILE_SIZE %zu\nFILE_NUMBER 0\nOBS_OFFSET 0\nDTYPE int4x2\nAXES "
             "time,freq,pol,dish\n"
             "SHAPE 0,%zu,%d,%u\nSAMPLE0 0\nSAMPLES %zu\nFRAME_SAMPLES %zu\nSAMPLE_NS %.0f/1\nEPOCH_NS " EPOCH
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

static void measure_replay(struct gpu *g, const struct gpu_node *node, double copies, double kernels)
{
    char path[64], from[160];
    struct result r;
    snprintf(path, sizeof path, "/dev/shm/beamring_bench_%d.dada", (int)getpid());
    if (make_recording(g, node, path)) {
        snprintf(from, sizeof from, "  - {stage: replay, name: source, files: %s, loop: %d, out: field}\n",
                 path, FRAMES / REPLAYED);
        char *text = pipeline_text(node, "cuda:0", from, VOLTAGES);
        if (text != NULL && run_text(g, "bench replay", text, false, false, &r)) {
            report(node, "baseband, replayed from /dev/shm", &r, copies, kernels, false);
            printf("%40s replay reads %.1f GB/s; the stages behind it wait\n", "",
                   (double)r.in_bytes / r.ms * 1e-6);
        }
        free(text);
    }
    unlink(path);
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
    struct result r[N];
    double copies[N], kernels[N];
    char from[96];
    int shorts = 0;
    run.samples = node->samples;
    run.frames = FRAMES;
    snprintf(from, sizeof from,
             "  - {stage: simulate, name: source, samples: 1000000, frame_samples: %zu, out: field}\n",
             node->samples);
    printf("\nCHORD's pipelines: frames of %.0f MB every %.1f ms; their kernels alone:\n",
           (double)(node->samples * node->channels * NPOL * node->dishes) * 1e-6,
           (double)node->samples * node->sample_us * 1e-3);
    for (int i = 0; i < N; i++) {
        char *text = pipeline_text(node, "cuda:0", from, pipelines[i].parts);
        bool ok = text != NULL && run_text(g, pipelines[i].name, text, true, i == N - 1, &r[i]);
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
    for (int i = 0; i < N; i++) shorts += report(node, pipelines[i].name, &r[i], copies[i], kernels[i], true);
    measure_replay(g, node, copies[0], kernels[0]);
    return shorts;
}
