/* counters.h - what became of packets, as numbers that others read while the stage runs. */
#ifndef BEAMRING_STAGES_CAPTURE_COUNTERS_H
#define BEAMRING_STAGES_CAPTURE_COUNTERS_H

#include <stdint.h>

struct br_stage;
struct capture;

/* The counters of a network interface since the stage started. */
struct capture_nic {
    const char *name;
    unsigned index; /* of the interface that `known` is from; 0: none */
    uint32_t known[3];
    uint64_t counted[3]; /* CAPTURE_MISSED, ... */
};
enum { CAPTURE_MISSED, CAPTURE_DROPPED, CAPTURE_ERRORS };

/* In configure: which counters there are. BR_OK, or BR_E_NO_MEMORY. */
int capture_make_counters(struct br_stage *stage, struct capture *c);

/* Reads what interfaces say. The first time is the beginning. */
void capture_look_at_nics(struct capture *c);

/* Sets all counters. From the stage's thread. */
void capture_count(struct br_stage *stage, struct capture *c);

#endif
