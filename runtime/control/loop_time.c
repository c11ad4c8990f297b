/* loop_time.c - see loop_time.h. */
#include "runtime/control/loop_time.h"

#include "buffers/clock.h"
#include "runtime/control/metric_lines.h"

/* Between two waits of the loop: calls all handlers that are due. */
static void iterate(struct ev_loop *ev)
{
    struct loop_time *loop_time = ev_userdata(ev);
    uint64_t begin = br_clock_ns(), cpu_begin = br_clock_of(CLOCK_THREAD_CPUTIME_ID);
    ev_invoke_pending(ev);
    uint64_t took = br_clock_ns() - begin, cpu_took = br_clock_of(CLOCK_THREAD_CPUTIME_ID) - cpu_begin;
    if (took > loop_time->longest_ns) loop_time->longest_ns = took;
    if (cpu_took > loop_time->longest_cpu_ns) loop_time->longest_cpu_ns = cpu_took;
    loop_time->slow += took > LOOP_SLOW_NS;
}

void loop_time_measure(struct loop_time *loop_time, struct ev_loop *ev)
{
    ev_set_userdata(ev, loop_time);
    ev_set_invoke_pending_cb(ev, iterate);
}

void metric_loop_longest(struct page *p)
{
    line1(p, "clock", "real", (double)p->facts->loop_time->longest_ns * 1e-9);
    line1(p, "clock", "cpu", (double)p->facts->loop_time->longest_cpu_ns * 1e-9);
}

void metric_loop_slow(struct page *p)
{
    line0(p, (double)p->facts->loop_time->slow);
}
