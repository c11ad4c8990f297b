/* timeline.c - what ran when on the GPU: timed events around every call of every stage for a few frames,
 * drawn as text. */
#include "tools/bench/gpu/run.h"

#include <stdio.h>
#include <string.h>

enum { STAGES = 24, CALLS = 96, FRAMES = 4, COLUMNS = 110 };

/* A call that was noted: from where to where on the stage's stream, and for which frame of the source. */
struct call {
    br_gpu_event begin, end;
    uint64_t frame;
};

static struct {
    struct br_stage_type type[STAGES];
    struct traced {
        struct br_stage *stage;
        int (*process)(struct br_stage *, void *, const struct br_io *);
        struct call call[CALLS];
        unsigned ncalls;
    } traced[STAGES];
    unsigned n;
    uint64_t samples; /* of a frame of the source */
} timeline;

static int trace(struct br_stage *stage, void *self, const struct br_io *io)
{
    unsigned i = 0;
    while (timeline.traced[i].stage != stage) i++;
    struct traced *t = &timeline.traced[i];
    const struct br_frame *in = io->in[0];
    uint64_t frame = in != NULL ? in->first / timeline.samples : 0;
    bool noted = in != NULL && frame >= RUN_WARM && frame < RUN_WARM + FRAMES && t->ncalls < CALLS;
    struct call *call = &t->call[t->ncalls];
    if (noted) {
        call->frame = frame;
        br_gpu_event_record(call->begin, &stage->state->gpu, NULL);
    }
    int result = t->process(stage, self, io);
    if (noted) {
        br_gpu_event_record(call->end, &stage->state->gpu, NULL);
        t->ncalls++;
    }
    return result;
}

void gpu_timeline_begin(struct gpu *g, struct br_graph *graph)
{
    timeline.n = 0;
    for (size_t s = 0; s < graph->nstages && timeline.n < STAGES; s++) {
        struct br_stage *stage = graph->order[s];
        struct traced *t = &timeline.traced[timeline.n];
        if (stage->nin == 0 && stage->nout > 0) timeline.samples = stage->out[0].stream.frame_samples;
        if (stage->device < 0) continue;
        *t = (struct traced){.stage = stage, .process = stage->type->process};
        for (int i = 0; i < CALLS; i++)
            if (!gpu_ok(g, br_gpu_event_create(&t->call[i].begin, stage->device, true, &g->error)) ||
                !gpu_ok(g, br_gpu_event_create(&t->call[i].end, stage->device, true, &g->error)))
                return;
        timeline.type[timeline.n] = *stage->type;
        timeline.type[timeline.n].process = trace;
        stage->type = &timeline.type[timeline.n];
        timeline.n++;
    }
}

/* Draws the calls of one stage: a digit for the frame that a column was busy with. */
static void draw(const struct traced *t, br_gpu_event origin, double column_ms)
{
    char line[COLUMNS + 1];
    memset(line, ' ', COLUMNS);
    line[COLUMNS] = '\0';
    for (unsigned i = 0; i < t->ncalls; i++) {
        double from = br_gpu_event_ms(origin, t->call[i].begin) / column_ms,
               to = br_gpu_event_ms(origin, t->call[i].end) / column_ms;
        for (int c = from > 0 ? (int)from : 0; c < COLUMNS && (c < to || c == (int)from); c++)
            line[c] = (char)('0' + (t->call[i].frame - RUN_WARM) % 10);
    }
    printf("%-24.24s|%s|\n", t->stage->name, line);
}

void gpu_timeline_print(struct gpu *g, struct br_graph *graph)
{
    (void)g;
    (void)graph;
    double last = 0;
    if (timeline.n == 0 || timeline.traced[0].ncalls == 0) return;
    br_gpu_event origin = timeline.traced[0].call[0].begin; /* the copy to the GPU is first in order */
    for (unsigned i = 0; i < timeline.n; i++)
        for (unsigned k = 0; k < timeline.traced[i].ncalls; k++) {
            double end = br_gpu_event_ms(origin, timeline.traced[i].call[k].end);
            if (end > last) last = end;
        }
    printf("\nTimeline: %d consecutive frames, %.2f ms from edge to edge; a digit is the frame that the "
           "stage's stream works on\n",
           FRAMES, last);
    for (unsigned i = 0; i < timeline.n; i++) draw(&timeline.traced[i], origin, last / COLUMNS);
    for (unsigned i = 0; i < timeline.n; i++)
        for (int k = 0; k < CALLS; k++) {
            br_gpu_event_destroy(timeline.traced[i].call[k].begin);
            br_gpu_event_destroy(timeline.traced[i].call[k].end);
        }
}
