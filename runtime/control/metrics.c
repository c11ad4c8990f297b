/* metrics.c - see metrics.h. Names follow the conventions of Prometheus: base units in the name, counters end
 * in _total and never fall, labels are few and stable. */
#include "runtime/control/metrics.h"
#include "runtime/control/metric_updates.h"
#include "runtime/control/process.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum kind { GAUGE, COUNTER, HISTOGRAM };
static const char *const kind_name[] = {"gauge", "counter", "histogram"};

struct metric {
    const char *name; /* NULL ends the table */
    enum kind kind;
    const char *labels; /* for people: "stage, reason"; "" */
    const char *help;
    void (*write)(struct page *page);
};

static double seconds(uint64_t ns)
{
    return (double)ns * 1e-9;
}

/* --- the node --- */

static void build_info(struct page *p)
{
    line1(p, "version", BR_VERSION, 1);
}

static void node_state(struct page *p)
{
    for (int s = 0; s <= NODE_FAILED; s++) line1(p, "state", node_state_name[s], s == (int)p->facts->state);
}

static void healthy(struct page *p)
{
    line0(p, p->facts->healthy);
}

static void ready(struct page *p)
{
    line0(p, p->facts->ready);
}

static void restarts(struct page *p)
{
    line0(p, (double)p->facts->restarts);
}

static void stream_seconds(struct page *p)
{
    if (p->view != NULL) line0(p, p->view->now.stream_s);
}

static void real_time_factor(struct page *p)
{
    if (p->view != NULL) line0(p, view_real_time_factor(p->view));
}

static void held_up(struct page *p)
{
    for (size_t s = 0; p->view != NULL && s < p->view->nstages; s++)
        line1(p, "stage", p->view->stage[s].name,
              (int)s == p->facts->verdict.stage && p->facts->verdict.kind != VERDICT_FLOWS &&
                  p->facts->verdict.kind != VERDICT_LIMITS);
}

/* --- stages --- */

#define FOR_STAGES(p)                                                                                        \
    for (size_t s = 0; (p)->view != NULL && s < (p)->view->nstages; s++)                                     \
        for (const struct view_stage_now *now = &(p)->view->now.stage[s]; now != NULL; now = NULL)
#define STAGE (p->view->stage[s].name)

static void stage_info(struct page *p)
{
    FOR_STAGES(p)
    {
        char device[24] = "cpu";
        if (p->view->stage[s].device >= 0)
            snprintf(device, sizeof device, "cuda:%d", p->view->stage[s].device);
        fputs(p->name, p->out);
        put_label(p->out, "stage", STAGE, true);
        put_label(p->out, "type", p->view->stage[s].type, false);
        put_label(p->out, "device", device, false);
        fputs("} 1\n", p->out);
        (void)now;
    }
}

static void stage_running(struct page *p)
{
    FOR_STAGES(p) line1(p, "stage", STAGE, !now->ended);
}

static void process_seconds(struct page *p)
{
    FOR_STAGES(p)
    {
        uint64_t calls = 0;
        for (unsigned i = 0; i < BR_TIME_BUCKETS; i++) {
            calls += now->took[i];
            fprintf(p->out, "%s_bucket", p->name);
            put_label(p->out, "stage", STAGE, true);
            if (i + 1 < BR_TIME_BUCKETS)
                fprintf(p->out, ",le=\"%.6g\"} %" PRIu64 "\n",
                        1e-6 * (double)((uint64_t)1 << (i + BR_TIME_FIRST_SHIFT)), calls);
            else
                fprintf(p->out, ",le=\"+Inf\"} %" PRIu64 "\n", calls);
        }
        fprintf(p->out, "%s_sum", p->name);
        put_label(p->out, "stage", STAGE, true);
        fprintf(p->out, "} %.9g\n%s_count", seconds(now->totals.busy_ns), p->name);
        put_label(p->out, "stage", STAGE, true);
        fprintf(p->out, "} %" PRIu64 "\n", calls);
    }
}

static void cpu_seconds(struct page *p)
{
    FOR_STAGES(p) line1(p, "stage", STAGE, seconds(now->totals.cpu_ns));
}

static void stage_wait(struct page *p)
{
    FOR_STAGES(p)
    {
        if (p->view->stage[s].nin > 0)
            line2(p, "stage", STAGE, "for", "input", seconds(now->totals.wait_in_ns));
        if (p->view->stage[s].nout > 0)
            line2(p, "stage", STAGE, "for", "output", seconds(now->totals.wait_out_ns));
    }
}

#define STAGE_COUNTER(NAME, CONDITION, FIELD)                                                                \
    static void NAME(struct page *p)                                                                         \
    {                                                                                                        \
        FOR_STAGES(p) if (CONDITION) line1(p, "stage", STAGE, (double)now->totals.FIELD);                    \
    }
STAGE_COUNTER(in_frames, p->view->stage[s].nin > 0, in_frames)
STAGE_COUNTER(in_samples, p->view->stage[s].nin > 0, in_samples)
STAGE_COUNTER(out_frames, p->view->stage[s].nout > 0, out_frames)
STAGE_COUNTER(out_samples, p->view->stage[s].nout > 0, out_samples)
STAGE_COUNTER(missing_cells, p->view->stage[s].nout > 0, out_missing)
STAGE_COUNTER(saturated, true, saturated)

static void lost_samples(struct page *p)
{
    FOR_STAGES(p)
    for (unsigned i = 0; i < BR_LOSS_COUNT; i++)
        line2(p, "stage", STAGE, "reason", br_losses[i].name, (double)now->lost[i]);
}

static void counted(struct page *p)
{
    FOR_STAGES(p)
    for (size_t i = 0; i < p->view->stage[s].ncounted; i++) {
        const struct view_counted *c = &p->view->stage[s].counted[i];
        fputs(p->name, p->out);
        put_label(p->out, "stage", STAGE, true);
        put_label(p->out, "of", c->of, false);
        put_label(p->out, "what", c->what, false);
        fprintf(p->out, "} %" PRIu64 "\n", c->value);
        (void)now;
    }
}

#define DUMP_NUMBER(NAME, WHICH)                                                                             \
    static void NAME(struct page *p)                                                                         \
    {                                                                                                        \
        FOR_STAGES(p) if (p->view->stage[s].dumps) line1(p, "stage", STAGE, (double)now->dumps[WHICH]);      \
    }
DUMP_NUMBER(dumps_active, BR_DUMPS_ACTIVE)
DUMP_NUMBER(dump_bytes, BR_DUMPS_BYTES)
DUMP_NUMBER(dump_missing, BR_DUMPS_MISSING_SAMPLES)
DUMP_NUMBER(dump_taken, BR_DUMPS_TAKEN_FRAMES)

static void dump_lines(struct page *p, const char *key, const enum br_dump_number *which,
                       const char *const *label, unsigned count)
{
    FOR_STAGES(p)
    for (unsigned i = 0; p->view->stage[s].dumps && i < count; i++)
        line2(p, "stage", STAGE, key, label[i], (double)now->dumps[which[i]]);
}

static void dump_requests(struct page *p)
{
    dump_lines(p, "result", (enum br_dump_number[]){BR_DUMPS_ACCEPTED, BR_DUMPS_REFUSED},
               (const char *[]){"accepted", "refused"}, 2);
}

static void dump_ends(struct page *p)
{
    dump_lines(p, "state",
               (enum br_dump_number[]){BR_DUMPS_DONE, BR_DUMPS_EMPTY, BR_DUMPS_FAILED, BR_DUMPS_CANCELLED},
               (const char *[]){"done", "empty", "failed", "cancelled"}, 4);
}

static void dump_files(struct page *p)
{
    dump_lines(p, "state", (enum br_dump_number[]){BR_DUMPS_FILES, BR_DUMPS_FILES_FAILED},
               (const char *[]){"done", "failed"}, 2);
}

static void latency(struct page *p)
{
    FOR_STAGES(p)
    if (now->latency_ns != INT64_MIN) line1(p, "stage", STAGE, (double)now->latency_ns * 1e-9);
}

static void gpu_seconds(struct page *p)
{
    FOR_STAGES(p) if (p->view->stage[s].device >= 0) line1(p, "stage", STAGE, seconds(now->gpu_ns));
}

static void gpu_calls(struct page *p)
{
    FOR_STAGES(p) if (p->view->stage[s].device >= 0) line1(p, "stage", STAGE, (double)now->gpu_calls);
}

static void stage_memory(struct page *p)
{
    FOR_STAGES(p)
    {
        const struct br_memory *m = &p->view->stage[s].memory;
        if (now->held.host + now->held.locked + now->held.device > 0) m = &now->held;
        line2(p, "stage", STAGE, "space", "host", (double)m->host);
        line2(p, "stage", STAGE, "space", "locked", (double)m->locked);
        line2(p, "stage", STAGE, "space", "device", (double)m->device);
    }
}

/* --- queues and their readers --- */

#define FOR_QUEUES(p)                                                                                        \
    for (size_t q = 0; (p)->view != NULL && q < (p)->view->nqueues; q++)                                     \
        for (const struct br_queue_counters *now = &(p)->view->now.queue[q]; now != NULL; now = NULL)
#define QUEUE (p->view->queue[q].name)

#define QUEUE_NUMBER(NAME, VALUE)                                                                            \
    static void NAME(struct page *p)                                                                         \
    {                                                                                                        \
        FOR_QUEUES(p) line1(p, "queue", QUEUE, (double)(VALUE));                                             \
    }
QUEUE_NUMBER(queue_slots, now->depth)
QUEUE_NUMBER(queue_fill, now->fill)
QUEUE_NUMBER(queue_max_fill, now->max_fill)
QUEUE_NUMBER(queue_frames, now->frames)
QUEUE_NUMBER(queue_samples, now->samples)
QUEUE_NUMBER(queue_missing, now->missing)
QUEUE_NUMBER(queue_wait, seconds(now->wait_ns))

static void queue_states(struct page *p)
{
    FOR_QUEUES(p)
    {
        enum queue_state state = queue_state(p->view, q);
        for (unsigned i = 0; i < 4; i++)
            line2(p, "queue", QUEUE, "state", queue_state_name[i], i == (unsigned)state);
        (void)now;
    }
}

static void queue_memory(struct page *p)
{
    FOR_QUEUES(p)
    {
        const struct view_queue *queue = &p->view->queue[q];
        bool locked = queue->place.space == BR_SPACE_PINNED;
        line2(p, "queue", QUEUE, "space", "host", locked ? 0 : (double)queue->bytes);
        line2(p, "queue", QUEUE, "space", "locked", locked ? (double)queue->bytes : 0);
        line2(p, "queue", QUEUE, "space", "device", (double)queue->device_bytes);
        (void)now;
    }
}

static void newest_sample(struct page *p)
{
    FOR_QUEUES(p)
    {
        const struct view_queue *queue = &p->view->queue[q];
        if (now->frames > 0)
            line1(p, "queue", QUEUE, (double)queue->epoch_ns * 1e-9 + (double)now->newest * queue->sample_s);
    }
}

#define READER_NUMBER(NAME, VALUE)                                                                           \
    static void NAME(struct page *p)                                                                         \
    {                                                                                                        \
        for (size_t r = 0; p->view != NULL && r < p->view->nreaders; r++) {                                  \
            const struct br_reader_counters *now = &p->view->now.reader[r];                                  \
            const struct view_reader *reader = &p->view->reader[r];                                          \
            line2(p, "queue", p->view->queue[reader->queue].name, "stage",                                   \
                  p->view->stage[reader->stage].name, (double)(VALUE));                                      \
        }                                                                                                    \
    }
READER_NUMBER(reader_delivered, now->delivered_samples)
READER_NUMBER(reader_dropped_frames, now->dropped_frames)
READER_NUMBER(reader_dropped, now->dropped_samples)
READER_NUMBER(reader_discarded, now->discarded_samples)
READER_NUMBER(reader_wait, seconds(now->wait_ns))

/* --- the process, the clock, the interface itself --- */

#define PROCESS_NUMBER(NAME, FIELD)                                                                          \
    static void NAME(struct page *p)                                                                         \
    {                                                                                                        \
        line0(p, p->process->FIELD);                                                                         \
    }
PROCESS_NUMBER(resident_memory, resident_bytes)
PROCESS_NUMBER(locked_memory, locked_bytes)
PROCESS_NUMBER(open_fds, open_fds)
PROCESS_NUMBER(threads, threads)
PROCESS_NUMBER(process_cpu, cpu_s)
PROCESS_NUMBER(clock_offset, clock_offset_s)
PROCESS_NUMBER(clock_error, clock_error_s)
PROCESS_NUMBER(clock_synchronised, clock_synchronised)

static void process_start(struct page *p)
{
    line0(p, (double)p->facts->process_start_ns * 1e-9);
}

static void requests(struct page *p)
{
    const struct http_counts *http = &p->facts->http;
    for (unsigned i = 0; i < HTTP_CODES && http->code[i] != 0; i++) {
        char code[12];
        snprintf(code, sizeof code, "%u", http->code[i]);
        line1(p, "code", code, (double)http->answers[i]);
    }
}

static void connections(struct page *p)
{
    line0(p, p->facts->http.connections);
}

static void messages(struct page *p)
{
    static const char *const level[] = {"note", "warning", "error"};
    for (unsigned i = 0; i < 3; i++) line1(p, "level", level[i], (double)p->facts->messages[i]);
}

static const struct metric metrics[] = {
    {"beamring_build_info", GAUGE, "version", "Version of beamring; always 1.", build_info},
    {"beamring_node_state", GAUGE, "state", "1 for the node's state, 0 for all others.", node_state},
    {"beamring_healthy", GAUGE, "", "1 while every stage's thread makes progress.", healthy},
    {"beamring_ready", GAUGE, "", "1 while sources deliver, nothing has failed and products leave in time.",
     ready},
    {"beamring_restarts_total", COUNTER, "", "Pipelines that were started after the first one.", restarts},
    {"beamring_stream_seconds_total", COUNTER, "", "Telescope time that has left the sources.",
     stream_seconds},
    {"beamring_real_time_factor", GAUGE, "", "Telescope time per elapsed time, over the last two seconds.",
     real_time_factor},
    {"beamring_stage_at_fault", GAUGE, "stage",
     "1 for the stage that holds the pipeline up, delivers nothing, loses samples or has failed.", held_up},

    {"beamring_stage_info", GAUGE, "stage, type, device", "The stages and where they run; always 1.",
     stage_info},
    {"beamring_stage_running", GAUGE, "stage", "1 until the stage's thread has ended.", stage_running},
    {"beamring_stage_process_seconds", HISTOGRAM, "stage", "How long one call of the stage took.",
     process_seconds},
    {"beamring_stage_cpu_seconds_total", COUNTER, "stage", "Processor time of the stage's thread.",
     cpu_seconds},
    {"beamring_stage_wait_seconds_total", COUNTER, "stage, for",
     "Time that the stage waited for input, or for a free frame of its output.", stage_wait},
    {"beamring_stage_in_frames_total", COUNTER, "stage", "Input frames that the stage has finished.",
     in_frames},
    {"beamring_stage_in_samples_total", COUNTER, "stage", "Base samples of these frames.", in_samples},
    {"beamring_stage_out_frames_total", COUNTER, "stage", "Frames that the stage has published.", out_frames},
    {"beamring_stage_out_samples_total", COUNTER, "stage", "Base samples that the stage has published.",
     out_samples},
    {"beamring_stage_missing_cells_total", COUNTER, "stage",
     "Cells of time and frequency without data in the stage's output.", missing_cells},
    {"beamring_stage_saturated_values_total", COUNTER, "stage", "Values of the output that were clamped.",
     saturated},
    {"beamring_stage_lost_samples_total", COUNTER, "stage, reason",
     "Base samples that the stage took in and did not pass on.", lost_samples},
    {"beamring_stage_counted_total", COUNTER, "stage, of, what",
     "Counters of the stages themselves: a source's packets, a NIC's losses.", counted},
    {"beamring_product_latency_seconds", GAUGE, "stage",
     "When a sink finished its last frame, minus the time of its newest sample.", latency},
    {"beamring_stage_gpu_sampled_seconds_total", COUNTER, "stage",
     "GPU time of the calls that were sampled, one in eight.", gpu_seconds},
    {"beamring_stage_gpu_sampled_calls_total", COUNTER, "stage", "Calls whose GPU time was sampled.",
     gpu_calls},
    {"beamring_stage_memory_bytes", GAUGE, "stage, space",
     "Memory that the stage really holds, or if unknown, the memory that it declared.", stage_memory},

    {"beamring_dump_requests_total", COUNTER, "stage, result", "Requests for dumps.", dump_requests},
    {"beamring_dumps_active", GAUGE, "stage", "Dumps that wait for samples or are being written.",
     dumps_active},
    {"beamring_dumps_total", COUNTER, "stage, state",
     "Dumps that have ended: done, empty (all samples had passed), failed or cancelled.", dump_ends},
    {"beamring_dump_files_total", COUNTER, "stage, state", "Files of dumps, one for each channel.",
     dump_files},
    {"beamring_dump_written_bytes_total", COUNTER, "stage", "Data in complete files of dumps.", dump_bytes},
    {"beamring_dump_missing_samples_total", COUNTER, "stage",
     "Base samples of a channel that files of dumps lack.", dump_missing},
    {"beamring_dump_taken_frames_total", COUNTER, "stage",
     "Pinned frames that the stream reused before they were written.", dump_taken},

    {"beamring_queue_slots", GAUGE, "queue", "Frames that the queue has room for.", queue_slots},
    {"beamring_queue_fill_frames", GAUGE, "queue",
     "Frames that the slowest blocking reader has not released.", queue_fill},
    {"beamring_queue_fill_max_frames", GAUGE, "queue", "The largest value of the metric above so far.",
     queue_max_fill},
    {"beamring_queue_state", GAUGE, "queue, state",
     "1 for the state: idle, flowing, full (its producer waits) or starved (its readers wait).",
     queue_states},
    {"beamring_queue_frames_total", COUNTER, "queue", "Frames published.", queue_frames},
    {"beamring_queue_samples_total", COUNTER, "queue", "Base samples published.", queue_samples},
    {"beamring_queue_missing_cells_total", COUNTER, "queue",
     "Cells of time and frequency without data in these frames.", queue_missing},
    {"beamring_queue_wait_seconds_total", COUNTER, "queue", "Time that the producer waited for a free frame.",
     queue_wait},
    {"beamring_queue_memory_bytes", GAUGE, "queue, space", "Memory of the queue's frames.", queue_memory},
    {"beamring_queue_newest_sample_timestamp_seconds", GAUGE, "queue",
     "Unix time of the newest sample that was published.", newest_sample},
    {"beamring_reader_delivered_samples_total", COUNTER, "queue, stage",
     "Base samples that the reader has finished.", reader_delivered},
    {"beamring_reader_dropped_frames_total", COUNTER, "queue, stage",
     "Frames that a dropping reader lost because it was too slow.", reader_dropped_frames},
    {"beamring_reader_dropped_samples_total", COUNTER, "queue, stage", "The same in base samples.",
     reader_dropped},
    {"beamring_reader_discarded_samples_total", COUNTER, "queue, stage",
     "Base samples left unread by a reader that failed or was aborted.", reader_discarded},
    {"beamring_reader_wait_seconds_total", COUNTER, "queue, stage", "Time that the reader waited for frames.",
     reader_wait},

    {"beamring_updates", GAUGE, "state", "Updates that the node remembers, by their state.", metric_updates},
    {"beamring_updates_waiting", GAUGE, "", "Requests for updates that wait for their answer.",
     metric_updates_waiting},
    {"beamring_journal_kept", GAUGE, "", "1 while the journal has all updates.", metric_journal_kept},
    {"beamring_watched_files", GAUGE, "state", "Watched files, by their state.", metric_watched_files},

    {"beamring_clock_offset_seconds", GAUGE, "", "Offset of the machine's clock, as the kernel estimates it.",
     clock_offset},
    {"beamring_clock_max_error_seconds", GAUGE, "",
     "Largest possible error of the machine's clock, as the kernel estimates it.", clock_error},
    {"beamring_clock_synchronised", GAUGE, "",
     "1 while a program (NTP, PTP) keeps the machine's clock synchronised.", clock_synchronised},
    {"beamring_http_requests_total", COUNTER, "code", "Answers of the control interface by status code.",
     requests},
    {"beamring_http_connections", GAUGE, "", "Connections to the control interface.", connections},
    {"beamring_loop_longest_iteration_seconds", GAUGE, "clock",
     "Longest time without an answer to requests: elapsed and processor time.", metric_loop_longest},
    {"beamring_loop_slow_iterations_total", COUNTER, "",
     "How often no request was answered for more than 50 ms.", metric_loop_slow},
    {"beamring_log_messages_total", COUNTER, "level", "Messages of the log.", messages},
    {"process_resident_memory_bytes", GAUGE, "", "Memory of the process that is resident.", resident_memory},
    {"process_locked_memory_bytes", GAUGE, "", "Memory of the process that is locked in place.",
     locked_memory},
    {"process_open_fds", GAUGE, "", "File descriptors of the process.", open_fds},
    {"process_threads", GAUGE, "", "Threads of the process.", threads},
    {"process_cpu_seconds_total", COUNTER, "", "Processor time of the process.", process_cpu},
    {"process_start_time_seconds", GAUGE, "", "Unix time at which the process began.", process_start},
    {0},
};

void metrics_write(const struct node_facts *facts, bool open_metrics, FILE *out)
{
    struct process_numbers process;
    process_look(&process);
    struct page page = {.out = out, .facts = facts, .view = facts->view, .process = &process};
    for (const struct metric *m = metrics; m->name != NULL; m++) {
        /* OpenMetrics names the family of a counter without its _total. */
        int length = (int)strlen(m->name);
        if (open_metrics && m->kind == COUNTER) length -= (int)strlen("_total");
        fprintf(out, "# HELP %.*s %s\n# TYPE %.*s %s\n", length, m->name, m->help, length, m->name,
                kind_name[m->kind]);
        page.name = m->name;
        m->write(&page);
    }
    if (open_metrics) fputs("# EOF\n", out);
}

void metrics_reference(FILE *out)
{
    fputs("# Metrics\n\n`GET /metrics` of a node's control interface has these numbers, for Prometheus.\n"
          "`beamring help --metrics` prints this page.\n"
          "A histogram has `_bucket` (up to 16 us, 32 us, ... 8.4 s), `_sum` and `_count`.\n"
          "Counters begin at 0 again when the pipeline is restarted.\n\n"
          "| metric | type | labels | meaning |\n|---|---|---|---|\n",
          out);
    for (const struct metric *m = metrics; m->name != NULL; m++)
        fprintf(out, "| `%s` | %s | %s | %s |\n", m->name, kind_name[m->kind], m->labels, m->help);
}
