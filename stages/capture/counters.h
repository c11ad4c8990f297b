/* counters.h - the stage's counters: packets of each source by what became of them, losses in the kernel and
 * in network interfaces. The statistics, the control interface and the metrics show them. */
#ifndef BEAMRING_STAGES_CAPTURE_COUNTERS_H
#define BEAMRING_STAGES_CAPTURE_COUNTERS_H

#include <stdint.h>

struct br_stage;
struct capture;

enum { CAPTURE_MISSED, CAPTURE_DROPPED, CAPTURE_ERRORS, CAPTURE_NIC };

/* A network interface that `interfaces` names. */
struct capture_nic {
    const char *name;
    unsigned index;                /* the kernel's number of it at the last look; 0: not seen yet */
    uint32_t known[CAPTURE_NIC];   /* the interface's counters at the last look */
    uint64_t counted[CAPTURE_NIC]; /* their growth since the stage started */
};

/* In configure: lists the interfaces and declares all counters. */
void capture_make_counters(struct br_stage *stage, struct capture *c);

/* Adds the growth of the interfaces' counters since the last look. The first look at an interface only notes
 * where its counters are. One thread at a time. */
void capture_look_at_nics(struct capture *c);

/* Sets all counters to their present values. From the stage's thread. */
void capture_count(struct br_stage *stage, struct capture *c);

#endif
