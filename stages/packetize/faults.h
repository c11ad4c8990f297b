/* faults.h - what goes wrong on the way, on purpose: a simulated F-engine for tests of what receives
 * it. All of it follows from the seed. */
#ifndef BEAMRING_STAGES_PACKETIZE_FAULTS_H
#define BEAMRING_STAGES_PACKETIZE_FAULTS_H

#include "runtime/param.h"

#include <stdbool.h>

/* The parameters `faults:`. */
struct fault_params {
    int64_t seed, burst, reorder;
    double loss, duplicate, foreign, malformed, flip;
    struct br_ints silent_sources, silent_streams;
    double silent_from_s, silent_to_s, reset_s;
};
extern const struct br_param fault_params[];

enum fault_kind { FAULT_LOST, FAULT_DUPLICATE, FAULT_FOREIGN, FAULT_MALFORMED, FAULT_FLIPPED, FAULT_KINDS };

/* The accidents of one packet. */
struct fault_draw {
    bool lost, duplicate, foreign, malformed, flipped;
    uint32_t bits[4]; /* for whoever needs random numbers to do it */
};

struct faults {
    const struct fault_params *params; /* NULL: nothing goes wrong */
    uint64_t packets, burst_left;
};

/* For the next packet: of this source and stream, `at_s` seconds after the first. */
struct fault_draw faults_draw(struct faults *faults, int64_t source, int64_t stream, double at_s);

/* A random number below `n`, that follows from the seed and two counters. */
uint64_t faults_below(const struct faults *faults, uint64_t counter, uint32_t what, uint64_t n);

#endif
