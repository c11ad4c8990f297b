/* follow.c - the time that a node in real time needs for a frame, with beams that stand still and with beams
 * that follow the sky: pipelines of both in turn, with the same source, stages and queues. New weights hold
 * from some frames on; the largest times show whether those wait for them. */
#include "buffers/clock.h"
#include "tools/beamring/commands.h"
#include "tools/bench/bench.h"
#include "tools/bench/gpu/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FRAMES = 600, WARM = 30, TIMES = 2, SAMPLES = 1024, KEPT = TIMES * (FRAMES - WARM) };
#define SAMPLE_NS 5120 /* CHORD's */
#define AT_MOST   1.05 /* of the beams that stand still */

/* The run at work. */
static struct {
    uint64_t begin_ns, next, came;
    uint64_t sent_ns[FRAMES];
    double ms[FRAMES]; /* from source to sink */
} run;

static int source(struct br_stage *stage, void *self, const struct br_io *io)
{
    (void)self;
    if (run.next == FRAMES || br_stage_stopping(stage)) return BR_FINISHED;
    if (run.next == 0) run.begin_ns = br_clock_ns();
    br_stage_sleep_until(stage, run.begin_ns + (run.next + 1) * SAMPLES * SAMPLE_NS);
    io->out[0]->first = run.next * SAMPLES;
    io->out[0]->samples = SAMPLES;
    run.sent_ns[run.next++] = br_clock_ns();
    return BR_PRODUCED;
}

static int sink(struct br_stage *stage, void *self, const struct br_io *io)
{
    (void)stage;
    (void)self;
    if (io->in[0] == NULL) return BR_FINISHED;
    uint64_t frame = (io->in[0]->first + io->in[0]->samples - 1) / SAMPLES;
    run.came += io->in[0]->samples;
    run.ms[frame] = (double)(br_clock_ns() - run.sent_ns[frame]) * 1e-6;
    return BR_CONSUMED;
}

/* The pipeline as YAML, to be freed. */
static char *pipeline_text(const struct gpu_node *node, const char *device, const char *stages, bool follow)
{
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    if (out == NULL) return NULL;
    gpu_node_text(out, node, device);
    fprintf(
        out,
        "  - {stage: simulate, name: source, samples: 1000000, frame_samples: %d, out: field}\n"
        "%s, in: %s, out: beams, beams: {grid: [8, %zu], spacing_deg: 0.1, around: {radec: [0.5, 80]}%s}}\n"
        "  - {stage: record, name: sink, in: beams, directory: nowhere, prefix: none}\n",
        SAMPLES, stages, strstr(stages, "grid") != NULL ? "grid" : "field", node->voltages / 8,
        follow ? "" : ", follow: false, reference_ns: " GPU_EPOCH);
    fclose(out);
    return text;
}

/* Runs it to its end; `ms` receives the times of frames behind the first ones. */
static bool run_once(const char *text, double *ms, struct br_error *error)
{
    static struct br_stage_type source_type, sink_type;
    struct loaded l;
    memset(&run, 0, sizeof run);
    int status = load_text(&l, "bench", text, stderr, BR_LOG_WARNING, error);
    for (size_t s = 0; status == BR_OK && s < l.graph->nstages; s++) {
        struct br_stage *stage = &l.graph->stage[s];
        if (stage->nin == 0) gpu_replace(stage, &source_type, source);
        if (stage->nout == 0) gpu_replace(stage, &sink_type, sink);
    }
    if (status == BR_OK) status = br_pipeline_start(l.graph, error);
    if (status == BR_OK) status = br_pipeline_finish(l.graph, error);
    if (status == BR_OK && run.came != FRAMES * SAMPLES)
        status = br_fail(error, BR_E_INTERNAL, "%llu of %d samples came", (unsigned long long)run.came,
                         FRAMES * SAMPLES);
    memcpy(ms, run.ms + WARM, (FRAMES - WARM) * sizeof *ms);
    unload_pipeline(&l);
    return status == BR_OK;
}

/* 1 if the frames of beams that follow take too long. */
static int measure(const struct gpu_node *node, const char *device, const char *name, const char *stages)
{
    static double ms[2][KEPT]; /* still, followed */
    struct br_error error = {0};
    bool ok = true;
    for (int i = 0; i < 2 * TIMES && ok; i++) {
        char *text = pipeline_text(node, device, stages, i % 2 == 1);
        ok = text != NULL && run_once(text, ms[i % 2] + i / 2 * (FRAMES - WARM), &error);
        free(text);
    }
    if (!ok) {
        fprintf(stderr, "beamring bench: follow: %s\n", error.text);
        return 1;
    }
    for (int k = 0; k < 2; k++) qsort(ms[k], KEPT, sizeof **ms, bench_by_value);
    const int middle = KEPT / 2, late = (KEPT * 999 + 999) / 1000 - 1;
    char what[80];
    snprintf(what, sizeof what, "%s on %s: a frame, median", name, device);
    bench_report(what, ms[1][middle], "ms", "beams that stand still", ms[1][middle] / ms[0][middle], 0, 0);
    snprintf(what, sizeof what, "%s on %s: a frame, 99.9 %%", name, device);
    return bench_report(what, ms[1][late], "ms", "beams that stand still", ms[1][late] / ms[0][late], AT_MOST,
                        0);
}

static int measure_all(const struct gpu_node *node, const char *device)
{
    return measure(node, device, "baseband", "  - {stage: baseband_beamform") +
           measure(node, device, "FRB",
                   "  - {stage: frb_grid, in: field, out: grid, integrate: 256}\n  - {stage: frb_beams");
}

int bench_follow(void)
{
    static const struct gpu_node node = {
        .name = "small", .m = 6, .n = 11, .dishes = 64, .sample_us = 5.12, .channels = 8, .voltages = 16};
    return measure_all(&node, "cpu");
}

int bench_gpu_follow(struct gpu *g)
{
    (void)g;
    return measure_all(&gpu_chord, "cuda:0");
}
