/* stage_driver.h - runs one stage by hand: the runtime's side of runtime/stage.h, as little of it as tests
 * need.
 *
 * The stage's sources are linked into the test with -Dbeamring_stage=NAME_stage, and the br_stage_* functions
 * of this file take the place of the runtime's. */
#ifndef BEAMRING_TESTS_STAGE_DRIVER_H
#define BEAMRING_TESTS_STAGE_DRIVER_H

#include "runtime/base/pool.h"
#include "runtime/stage.h"

/* The opaque struct of runtime/stage.h. Everything may be set before configure and read after. */
struct br_stage {
    const struct br_stage_type *type;
    void *self;
    struct br_stream in[BR_MAX_PORTS], out[BR_MAX_PORTS];
    struct br_stream_hints hints;
    const struct br_telescope *telescope;
    const char *given[16]; /* names of parameters that were set */
    unsigned ngiven;
    char error[1024], warning[1024]; /* the first of each */
    int status;
    uint64_t lost[BR_LOSS_COUNT]; /* samples */
    uint64_t saturated;
    bool stopping;
    void (*said)(const char *text);           /* is told what is noted and warned of; may be NULL */
    struct br_frame *(*lend)(unsigned ahead); /* br_stage_lend_ahead; NULL: there is one frame at a time */
    unsigned threads;                         /* for br_stage_parallel; 0: the stage's own */
    bool feeds;                               /* it said so */
    int device; /* 1: if it feeds, br_stage_device is 0, a GPU whose memory is the host's */
    struct br_feed *feed;
    struct br_pool *pool;
    struct br_round round;
    void *memory[4096];
    unsigned nmemory;
};

/* A stage with its default parameters. Free with driver_free. */
struct br_stage *driver_new(const struct br_stage_type *type);
void driver_free(struct br_stage *stage);

/* Parameters. The pointers must live as long as the stage. */
void driver_set_int(struct br_stage *stage, const char *name, int64_t value);
void driver_set_real(struct br_stage *stage, const char *name, double value);
void driver_set_bool(struct br_stage *stage, const char *name, bool value);
void driver_set_string(struct br_stage *stage, const char *name, const char *value);
void driver_set_strings(struct br_stage *stage, const char *name, const char *const *values, size_t count);
void driver_set_ints(struct br_stage *stage, const char *name, const int64_t *values, size_t count);

/* Delivers the data that a feeding stage has sent. */
void driver_settle_feed(struct br_stage *stage);

int driver_configure(struct br_stage *stage);
int driver_start(struct br_stage *stage);
int driver_stop(struct br_stage *stage);

/* One call of process with at most one input and one output. */
int driver_process(struct br_stage *stage, const struct br_frame *in, struct br_frame *out);

uint64_t driver_lost_samples(const struct br_stage *stage, enum br_loss reason);
uint64_t driver_all_lost_samples(const struct br_stage *stage); /* for any reason */

/* A frame with room for the stream's largest; free with driver_frame_free. */
struct br_frame *driver_frame(const struct br_stream *stream);
void driver_frame_free(struct br_frame *frame);

#endif
