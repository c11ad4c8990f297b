/* flag.h - inside the stage: its parameters, the rules that follow from them, and what it counts. */
#ifndef BEAMRING_STAGES_FLAG_FLAG_H
#define BEAMRING_STAGES_FLAG_FLAG_H

#include "kernels/flag/flag.h"
#include "runtime/stage.h"
#include "stages/common/stage/blocks.h"

struct flag {
    /* parameters */
    struct br_ints bad_inputs;
    const char *bad_inputs_file;
    int64_t block, long_block, least_level;
    struct br_reals threshold_sigma, power;

    size_t ninputs;             /* polarisations x dishes */
    struct br_flag_rules rules; /* what holds now; bad is memory of the pipeline */
    struct br_flag *plan;
    struct br_cuda *cuda; /* NULL on the CPU */
    struct blocks blocks; /* long blocks */
    /* counts, see report.c */
    uint64_t *counted; /* of each counter */
    uint64_t *input;   /* [input]: base samples x channels */
    uint64_t all;      /* base samples x channels that came */
    bool troubled;
};

/* Fills in `rules` of the parameters. Status; a failure is the stage's and names the parameter. */
int flag_make_rules(struct br_stage *stage, struct flag *flag, size_t npol, size_t ndishes);

/* In configure: which counters there are. */
void flag_make_counters(struct br_stage *stage, struct flag *flag);

/* Counts what a long block of `samples` base samples in F channels came to; `from` and `to` are its steps,
 * `step` base samples each. */
void flag_count(struct br_stage *stage, struct flag *flag, const struct br_flag_result *result,
                const struct br_frame *out, size_t from, size_t to, unsigned step);

/* At the end: what was flagged, and which inputs most. */
void flag_conclude(struct br_stage *stage, const struct flag *flag);

#endif
