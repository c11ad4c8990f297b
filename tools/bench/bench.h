/* bench.h - what the parts of `beamring bench` share.
 *
 * A result is a time beside the time of something comparable measured in the same run: never a number
 * alone. */
#ifndef BEAMRING_TOOLS_BENCH_BENCH_H
#define BEAMRING_TOOLS_BENCH_BENCH_H

#include <stddef.h>
#include <stdint.h>

/* Two pieces of work called in turn, so that a machine that slows down slows both: medians of each, of at
 * least `runs` calls and 0.5 s, in seconds. */
void bench_pair(void (*a)(void *), void *arg_a, void (*b)(void *), void *arg_b, unsigned runs,
                double *median_a, double *median_b);

/* Prints one aligned line: what, its value with unit, what it is compared with, the ratio, and the
 * required ratio with "ok" or "SHORT" (required 0: none). `higher` says whether a larger ratio is better.
 * Returns 1 if short of it. */
int bench_report(const char *what, double value, const char *unit, const char *against, double ratio,
                 double required, int higher);

/* The parts; each prints its lines and returns the number of them that fall short. */
int bench_queue(void);
int bench_upchannelize(void);
int bench_baseband(void);
int bench_power_beams(void);
int bench_frb_grid(void);
int bench_frb_beams(void);
int bench_quantize(void);
int bench_unpack(void);
int bench_correlate(void);
int bench_flag(void);
int bench_capture(void);
int bench_replay(void);
int bench_wires(void); /* packetize */
int bench_follow(void);

/* Memory until the part has ended, at a multiple of 64 bytes. Without memory the program ends. */
void *bench_alloc(size_t bytes);
void bench_free_all(void);

/* The next of a fixed series of random words; the upper bits are the better ones. */
uint32_t bench_random(void);

/* A telescope's dishes on its grid of m x n cells: row after row, without the few places that have no
 * dish. */
void bench_place_dishes(unsigned m, unsigned n, unsigned dishes, uint16_t (*cell)[2]);

/* The order of two doubles, for qsort(). */
int bench_by_value(const void *a, const void *b);

#endif
