/* run.h - runs a pipeline of CHORD's frames as the runtime does, with ends of its own.
 *
 * The same stages, queues, inserted transfers and threads as from a file. Only the two ends are replaced
 * once the graph is built: the source hands on frames that are filled already, without touching them, and
 * the sink takes note of the time. */
#ifndef BEAMRING_TOOLS_BENCH_GPU_RUN_H
#define BEAMRING_TOOLS_BENCH_GPU_RUN_H

#include "runtime/run/pipeline.h"
#include "tools/bench/gpu/gpu.h"

enum {
    RUN_FRAMES = 144, /* of a run; the first RUN_WARM and the last RUN_COOL are not looked at */
    RUN_WARM = 24,
    RUN_COOL = 16
};

struct gpu_run {
    const char *name, *text;                              /* of the pipeline, YAML */
    uint64_t samples;                                     /* of a frame of its source */
    bool fed;                                             /* its source is replaced */
    bool stages;                                          /* prints what they did */
    void (*built)(struct gpu *g, struct br_graph *graph); /* may change stages before the start; NULL: none */
    void (*ended)(struct gpu *g, struct br_graph *graph); /* after the end; NULL: none */
};

/* The result of a run. */
struct gpu_run_result {
    double ms, cpu_us; /* of a frame: wall clock; CPU time of the whole process */
    double threads_us; /* of that, the stages' threads */
    double middle_us;  /* CPU time of a call of the stages between the two ends and the copies, their mean */
    double hops;       /* queues that a frame passes; more where stages cut it up */
    size_t in_bytes, out_bytes; /* that a frame moves to the device and back */
    size_t grid_steps;          /* time steps in a frame of FRB stage 1, 0 without */
};

/* Runs it to its end; one at a time. False after a failure, which is in g->error. */
bool gpu_run(struct gpu *g, const struct gpu_run *what, struct gpu_run_result *r);

/* Gives the stage another process; its start and stop are not called. `type` must live as long as the
 * stage. */
void gpu_replace(struct br_stage *stage, struct br_stage_type *type,
                 int (*process)(struct br_stage *, void *, const struct br_io *));

#define GPU_EPOCH "1700000000000000000"

/* Writes a pipeline's beginning as YAML: the device, the telescope, the stream, "pipeline:". */
void gpu_node_text(FILE *out, const struct gpu_node *node, const char *device);

/* --- hops.c: what handing on a frame costs ------------------------------------------------------- */

/* `text(stages)`: a pipeline's YAML, to be freed, with so many stages on the GPU. Returns 1 if a hop costs
 * more than it should. */
int gpu_hops(struct gpu *g, uint64_t samples, char *(*text)(unsigned stages));

/* --- timeline.c: what ran when -------------------------------------------------------------------- */

void gpu_timeline_begin(struct gpu *g, struct br_graph *graph); /* a gpu_run's `built` ... */
void gpu_timeline_print(struct gpu *g, struct br_graph *graph); /* ... and `ended` */

#endif
