/* loop_time.h - the duration of the loop's iterations. Requests and signals that arrive during an
 * iteration wait for its end. The longest iteration takes at least as long as the slowest handler. */
#ifndef BEAMRING_RUNTIME_CONTROL_LOOP_TIME_H
#define BEAMRING_RUNTIME_CONTROL_LOOP_TIME_H

#include <ev.h>
#include <stdint.h>

/* An iteration of the loop should take less. */
#define LOOP_SLOW_NS UINT64_C(50000000)

struct loop_time {
    uint64_t longest_ns;     /* CLOCK_MONOTONIC: with what the thread waited for */
    uint64_t longest_cpu_ns; /* the thread's processor time */
    uint64_t slow;           /* iterations of more than LOOP_SLOW_NS, by CLOCK_MONOTONIC */
};

/* Measures from now on. `loop_time`, zeros, must live as long as the loop. For the loop's thread. */
void loop_time_measure(struct loop_time *loop_time, struct ev_loop *ev);

/* Its metrics. */
struct page;
void metric_loop_longest(struct page *p);
void metric_loop_slow(struct page *p);

#endif
