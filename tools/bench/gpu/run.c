/* run.c - see run.h. */
#include "tools/bench/gpu/run.h"
#include "buffers/clock.h"
#include "tools/beamring/commands.h"
#include "tools/bench/bench.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MOST_STAGES = 24, MARKS = 1024, SLOTS = 16 };

/* --- the two ends ------------------------------------------------------------------------------------- */

/* Events at the sinks and their times; one pipeline runs at a time. */
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
    clockid_t clock;
    if (atomic_load(&stage->state->ended) || pthread_getcpuclockid(stage->state->thread, &clock) != 0)
        return 0;
    return br_clock_of(clock);
}

static void look_at_stages(uint64_t end)
{
    if (end < RUN_WARM * run.samples || end > (run.frames - RUN_COOL) * run.samples) return;
    struct look *look = &run.look[run.looked];
    run.looked = 1;
    look->end = end;
    for (size_t s = 0; s < run.graph->nstages && s < MOST_STAGES; s++) {
        const struct br_stage *stage = &run.graph->stage[s];
        look->cpu_ns[s] = thread_cpu(stage);
        look->calls[s] = atomic_load_explicit(&stage->state->counters.calls, memory_order_relaxed);
    }
}

static int sink(struct br_stage *stage, void *self, const struct br_io *io)
{
    (void)self;
    const struct br_frame *in = io->in[0];
    if (in == NULL) return BR_FINISHED;
    if (strcmp(br_stage_name(stage), "sink") != 0) return BR_CONSUMED;
    if (run.nmarks < MARKS)
        run.mark[run.nmarks++] =
            (struct mark){br_clock_ns(), br_clock_of(CLOCK_PROCESS_CPUTIME_ID), in->first + in->samples};
    look_at_stages(in->first + in->samples);
    return BR_CONSUMED;
}

void gpu_replace(struct br_stage *stage, struct br_stage_type *type,
                 int (*process)(struct br_stage *, void *, const struct br_io *))
{
    *type = *stage->type;
    type->start = NULL;
    type->stop = NULL;
    type->process = process;
    stage->type = type;
}

/* --- a run -------------------------------------------------------------------------------------------- */

static void first_and_last(const struct mark **first, const struct mark **last)
{
    *first = *last = NULL;
    for (unsigned i = 0; i < run.nmarks; i++) {
        const struct mark *m = &run.mark[i];
        if (m->end < RUN_WARM * run.samples || m->end > (run.frames - 4) * run.samples) continue;
        if (*first == NULL) *first = m;
        *last = m;
    }
}

static void measure_bytes(const struct br_graph *graph, struct gpu_run_result *r)
{
    for (size_t s = 0; s < graph->nstages; s++) {
        const struct br_stage *stage = &graph->stage[s];
        for (unsigned i = 0; i < stage->nout; i++) {
            const struct br_edge *edge = &stage->out[i];
            const struct br_stream *stream = &edge->stream;
            double frames = (double)run.samples / (double)stream->frame_samples;
            size_t bytes = (size_t)((double)br_stream_max_bytes(stream) * frames + 0.5);
            bool from_host = stage->nin == 0 || stage->in[0].edge->place.space == BR_SPACE_PINNED;
            if (from_host && edge->place.space == BR_SPACE_CUDA) r->in_bytes += bytes;
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

static void add_up_threads(const struct br_graph *graph, struct gpu_run_result *r)
{
    const struct look *a = &run.look[0], *b = &run.look[1];
    double frames = (double)(b->end - a->end) / (double)run.samples, middle = 0, calls = 0;
    if (b->end <= a->end) return;
    for (size_t s = 0; s < graph->nstages && s < MOST_STAGES; s++) {
        const struct br_stage *stage = &graph->stage[s];
        double us = (double)(b->cpu_ns[s] - a->cpu_ns[s]) * 1e-3;
        r->threads_us += us / frames;
        if (stage->nin == 0 || stage->nout == 0 || strcmp(stage->type->name, "transfer") == 0) continue;
        middle += us;
        calls += (double)(b->calls[s] - a->calls[s]);
    }
    if (calls > 0) r->middle_us = middle / calls;
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

bool gpu_run(struct gpu *g, const struct gpu_run *what, struct gpu_run_result *r)
{
    static struct br_stage_type source_type, sink_type;
    const struct mark *first, *last;
    struct loaded l;
    bool ok = false;
    *r = (struct gpu_run_result){0};
    run.g = g;
    run.samples = what->samples;
    run.frames = RUN_FRAMES;
    run.next = 0;
    run.nmarks = run.looked = 0;
    memset(run.look, 0, sizeof run.look);
    memset(run.filled, 0, sizeof run.filled);
    int status = load_text(&l, "bench", what->text, stderr, BR_LOG_WARNING, &g->error);
    struct br_graph *graph = l.graph;
    if (status != BR_OK) goto done;
    measure_bytes(graph, r);
    run.graph = graph;
    for (size_t s = 0; s < graph->nstages; s++) {
        struct br_stage *stage = &graph->stage[s];
        if (stage->nin > 0 && stage->nout > 0 && stage->device < 0) {
            br_fail(&g->error, BR_E_DEVICE, "%s: stage '%s' runs on the CPU", what->name, stage->name);
            goto done;
        }
        if (what->fed && stage->nin == 0) gpu_replace(stage, &source_type, source);
        if (stage->nout == 0) gpu_replace(stage, &sink_type, sink);
    }
    if (what->built != NULL) what->built(g, graph);
    status = br_pipeline_start(graph, &g->error);
    if (status == BR_OK) status = br_pipeline_finish(graph, &g->error);
    if (status == BR_OK && !br_balance_ok(graph, stderr))
        status = br_fail(&g->error, BR_E_INTERNAL, "the balance of %s", what->name);
    first_and_last(&first, &last);
    if (status != BR_OK || first == NULL || last->end <= first->end) goto done;
    double frames = (double)(last->end - first->end) / (double)run.samples;
    r->ms = (double)(last->ns - first->ns) * 1e-6 / frames;
    r->cpu_us = (double)(last->cpu_ns - first->cpu_ns) * 1e-3 / frames;
    r->hops = hops(graph);
    add_up_threads(graph, r);
    if (what->stages) report_stages(graph);
    if (what->ended != NULL) what->ended(g, graph);
    ok = true;
done:
    if (!ok && g->error.status == BR_OK)
        br_fail(&g->error, BR_E_INTERNAL, "%s: nothing came out", what->name);
    unload_pipeline(&l);
    return ok;
}

void gpu_node_text(FILE *out, const struct gpu_node *node, const char *device)
{
    uint16_t cell[512][2];
    bench_place_dishes(node->m, node->n, node->dishes, cell);
    fprintf(out,
            "device: %s\ntelescope: {name: %s, grid: {m: %u, n: %u}, spacing_m: {m: 8.5, n: 6.3}, "
            "latitude_deg: 49.3, longitude_deg: -119.6, dishes: [",
            device, node->name, node->m, node->n);
    for (unsigned d = 0; d < node->dishes; d++)
        fprintf(out, "%s[%u, %u]", d > 0 ? ", " : "", cell[d][0], cell[d][1]);
    fprintf(out,
            "]}\nstream: {epoch_ns: " GPU_EPOCH
            ", sample_ns: %.0f, freq_mhz: {first: 600, step: %.7f, count: %zu}}\n"
            "pipeline:\n",
            node->sample_us * 1e3, 1 / node->sample_us, node->channels);
}
