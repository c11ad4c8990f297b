/* report.c - counters and the balance, for people and for programs. */
#include "buffers/clock.h"
#include "runtime/base/json_text.h"
#include "runtime/run/pipeline.h"

#include <inttypes.h>
#include <string.h>

/* Processor time of the stage's thread so far. */
static uint64_t cpu_ns(const struct br_stage *stage)
{
    clockid_t clock;
    if (atomic_load(&stage->state->ended) || !stage->state->has_thread)
        return atomic_load(&stage->state->counters.cpu_ns);
    return pthread_getcpuclockid(stage->state->thread, &clock) == 0 ? br_clock_of(clock) : 0;
}

const struct br_loss_words br_losses[BR_LOSS_COUNT] = {
#define WORDS(NAME, name, text) {name, text},
    BR_LOSSES(WORDS)
#undef WORDS
};

uint64_t br_stage_lost(const struct br_stage *stage, enum br_loss reason)
{
    return atomic_load_explicit(&stage->state->counters.lost[reason], memory_order_relaxed);
}

void br_stage_get_totals(const struct br_stage *stage, struct br_stage_totals *t)
{
    *t = (struct br_stage_totals){0};
    for (unsigned i = 0; i < stage->nin; i++) {
        struct br_reader_counters r;
        br_reader_get_counters(stage->in[i].reader, &r);
        t->wait_in_ns += r.wait_ns;
        if (i > 0) continue;
        t->in_frames = r.delivered_frames;
        t->in_samples = r.delivered_samples;
    }
    for (unsigned i = 0; i < stage->nout; i++) {
        struct br_queue_counters q;
        br_queue_get_counters(stage->out[i].queue, &q);
        t->wait_out_ns += q.wait_ns;
        t->out_missing += q.missing;
        if (i > 0) continue;
        t->out_frames = q.frames;
        t->out_samples = q.samples;
    }
    for (unsigned i = 0; i < BR_LOSS_COUNT; i++) t->lost_samples += br_stage_lost(stage, i);
    t->cpu_ns = cpu_ns(stage) + atomic_load_explicit(&stage->state->counters.helped_ns, memory_order_relaxed);
    t->busy_ns = atomic_load_explicit(&stage->state->counters.busy_ns, memory_order_relaxed);
    t->calls = atomic_load_explicit(&stage->state->counters.calls, memory_order_relaxed);
    t->saturated = atomic_load_explicit(&stage->state->counters.saturated, memory_order_relaxed);
    t->gained_samples = atomic_load_explicit(&stage->state->counters.gained, memory_order_relaxed);
    uint64_t gpu_ns = atomic_load_explicit(&stage->state->counters.gpu_ns, memory_order_relaxed);
    uint64_t sampled = atomic_load_explicit(&stage->state->counters.gpu_calls, memory_order_relaxed);
    t->gpu_ns_per_call = sampled > 0 ? (double)gpu_ns / (double)sampled : 0;
}

/* --- the balance --- */

static bool reader_balances(const struct br_link *link, const struct br_queue_counters *q, FILE *out)
{
    struct br_reader_counters r;
    br_reader_get_counters(link->reader, &r);
    uint64_t samples = r.delivered_samples + r.dropped_samples + r.discarded_samples + r.held_samples;
    uint64_t frames = r.delivered_frames + r.dropped_frames + r.discarded_frames + r.held_frames;
    if (samples == q->samples && frames == q->frames) return true;
    if (out != NULL)
        fprintf(out,
                "beamring: the balance of queue '%s' does not add up: %" PRIu64 " frames (%" PRIu64
                " samples) published, but stage '%s' accounts for %" PRIu64 " (%" PRIu64 ")\n",
                link->edge->name, q->frames, q->samples, link->stage->name, frames, samples);
    return false;
}

static bool stage_balances(const struct br_stage *stage, FILE *out)
{
    struct br_stage_totals t;
    br_stage_get_totals(stage, &t);
    if (stage->nin == 0 || !atomic_load(&stage->state->completed)) return true;
    bool ok = true;
    for (unsigned i = 0; i < stage->nout; i++) {
        struct br_queue_counters q;
        br_queue_get_counters(stage->out[i].queue, &q);
        if (q.samples + t.lost_samples == t.in_samples + t.gained_samples) continue;
        ok = false;
        if (out != NULL)
            fprintf(out,
                    "beamring: the balance of stage '%s' does not add up: it took in %" PRIu64
                    " samples and gained %" PRIu64 ", put out %" PRIu64 " into '%s' and reported %" PRIu64
                    " as lost: a fault of the stage\n",
                    stage->name, t.in_samples, t.gained_samples, q.samples, stage->out[i].name,
                    t.lost_samples);
    }
    return ok;
}

bool br_balance_ok(const struct br_graph *graph, FILE *out)
{
    bool ok = true;
    size_t nedges = br_graph_nedges(graph);
    for (size_t i = 0; i < nedges; i++) {
        struct br_edge *edge = br_graph_edge(graph, i);
        struct br_queue_counters q;
        br_queue_get_counters(edge->queue, &q);
        for (const struct br_link *link = edge->readers; link != NULL; link = link->next)
            ok &= reader_balances(link, &q, out);
    }
    for (size_t s = 0; s < graph->nstages; s++) ok &= stage_balances(&graph->stage[s], out);
    return ok;
}

struct br_run_times br_run_times(const struct br_graph *graph, uint64_t start_ns, uint64_t now_ns)
{
    struct br_run_times times = {.wall_s = (double)(now_ns - start_ns) * 1e-9};
    for (size_t s = 0; s < graph->nstages; s++) {
        const struct br_stage *stage = &graph->stage[s];
        if (stage->nin > 0 || stage->nout == 0) continue;
        struct br_queue_counters q;
        br_queue_get_counters(stage->out[0].queue, &q);
        double seconds = (double)q.samples * br_stream_sample_s(&stage->out[0].stream);
        if (seconds > times.stream_s) times.stream_s = seconds;
    }
    return times;
}

static double real_time_factor(const struct br_run_times *times)
{
    return times->wall_s > 0 ? times->stream_s / times->wall_s : 0;
}

/* --- for people --- */

static void print_losses(const struct br_stage *stage, FILE *out)
{
    for (unsigned i = 0; i < BR_LOSS_COUNT; i++) {
        uint64_t samples = br_stage_lost(stage, i);
        if (samples > 0)
            fprintf(out, "  %-20s lost %" PRIu64 " samples (%s): %s\n", stage->name, samples,
                    br_losses[i].name, br_losses[i].text);
    }
}

/* A count in at most seven characters: exact below 100,000, then to four digits with k, M, G, T, P or E. */
static const char *brief(uint64_t n, char *text)
{
    static const char unit[] = "kMGTPE";
    if (n < 100000) {
        sprintf(text, "%" PRIu64, n);
        return text;
    }
    double value = (double)n / 1000;
    unsigned u = 0;
    while (value >= 999.95) {
        value /= 1000;
        u++;
    }
    sprintf(text, value < 9.9995 ? "%.3f %c" : value < 99.995 ? "%.2f %c" : "%.1f %c", value, unit[u]);
    return text;
}

enum { BRIEF = 24 };

static void print_stage(const struct br_stage *stage, FILE *out)
{
    struct br_stage_totals t;
    char text[5][BRIEF];
    br_stage_get_totals(stage, &t);
    uint64_t frames = stage->nin > 0 ? t.in_frames : t.out_frames;
    fprintf(out, "  %-20.20s %7s %7s %7s %7s %9s %8.2f %8.2f %8.2f %8.2f %9.1f\n", stage->name,
            brief(t.in_frames, text[0]), brief(t.in_samples, text[1]), brief(t.out_frames, text[2]),
            brief(t.out_samples, text[3]), brief(t.saturated, text[4]), (double)t.busy_ns * 1e-9,
            (double)t.cpu_ns * 1e-9, (double)t.wait_in_ns * 1e-9, (double)t.wait_out_ns * 1e-9,
            frames > 0 ? (double)t.busy_ns * 1e-3 / (double)frames : 0);
}

static void print_gpu_time(const struct br_stage *stage, FILE *out)
{
    struct br_stage_totals t;
    if (stage->device < 0) return;
    br_stage_get_totals(stage, &t);
    fprintf(out, "  %-20.20s on cuda:%d: %.1f us of GPU time per call (sampled), %.2f s together\n",
            stage->name, stage->device, t.gpu_ns_per_call * 1e-3, t.gpu_ns_per_call * 1e-9 * (double)t.calls);
}

static void print_stages(const struct br_graph *graph, FILE *out)
{
    fprintf(out, "\n  %-20s %15s %15s %9s %8s %8s %17s %9s\n", "", "in", "out", "clamped", "busy", "CPU",
            "waited (s)", "busy per");
    fprintf(out, "  %-20s %7s %7s %7s %7s %9s %8s %8s %8s %8s %9s\n", "stage", "frames", "samples", "frames",
            "samples", "values", "s", "s", "for in", "for out", "frame, us");
    for (size_t s = 0; s < graph->nstages; s++) print_stage(&graph->stage[s], out);
    for (size_t s = 0; s < graph->nstages; s++) print_gpu_time(&graph->stage[s], out);
    for (size_t s = 0; s < graph->nstages; s++) print_losses(&graph->stage[s], out);
}

static void print_queue(const struct br_edge *edge, FILE *out)
{
    struct br_queue_counters q;
    char text[5][BRIEF];
    br_queue_get_counters(edge->queue, &q);
    for (const struct br_link *link = edge->readers; link != NULL; link = link->next) {
        struct br_reader_counters r;
        br_reader_get_counters(link->reader, &r);
        if (link == edge->readers)
            fprintf(out, "  %-20.20s %9s %8s", edge->name, brief(q.samples, text[0]),
                    brief(q.missing, text[1]));
        else
            fprintf(out, "  %-20s %9s %8s", "", "", "");
        fprintf(out, "  %-20.20s %9s %8s %9s", link->stage->name, brief(r.delivered_samples, text[2]),
                brief(r.dropped_samples, text[3]), brief(r.discarded_samples, text[4]));
        if (link == edge->readers) fprintf(out, "  %u/%u/%u", q.fill, q.max_fill, q.depth);
        fputc('\n', out);
        if (r.held_samples > 0 && edge->producer->graph->state->left_behind)
            fprintf(out, "  %-20s and '%s', which hangs, holds %" PRIu64 " samples of '%s'\n", "",
                    link->stage->name, r.held_samples, edge->name);
    }
}

static void print_queues(const struct br_graph *graph, FILE *out)
{
    size_t nedges = br_graph_nedges(graph);
    fprintf(out, "\n  %-20s %9s %8s  %-20s %9s %8s %9s  %s\n", "", "published", "missing", "", "delivered",
            "dropped", "discarded", "fill: now/");
    fprintf(out, "  %-20s %9s %8s  %-20s %9s %8s %9s  %s\n", "queue", "samples", "cells", "read by",
            "samples", "samples", "samples", "most/slots");
    for (size_t i = 0; i < nedges; i++) print_queue(br_graph_edge(graph, i), out);
}

void br_report_text(const struct br_graph *graph, const struct br_run_times *times, FILE *out)
{
    fprintf(out, "%.3f s of telescope time in %.3f s: %.3g times real time\n", times->stream_s, times->wall_s,
            real_time_factor(times));
    print_stages(graph, out);
    print_queues(graph, out);
    if (br_pipeline_ended(graph) || graph->state->left_behind)
        fprintf(out, "\nbalance: %s\n",
                br_balance_ok(graph, NULL) ? "every sample is accounted for" : "DOES NOT ADD UP");
}

void br_report_progress(const struct br_graph *graph, const struct br_run_times *times, char *text,
                        size_t size)
{
    uint64_t missing = 0, lost = 0, dropped = 0;
    unsigned fullest = 0;
    const char *where = "-";
    size_t nedges = br_graph_nedges(graph);
    for (size_t i = 0; i < nedges; i++) {
        struct br_edge *edge = br_graph_edge(graph, i);
        struct br_queue_counters q;
        br_queue_get_counters(edge->queue, &q);
        if (edge->producer->nin == 0) missing += q.missing;
        unsigned percent = q.depth > 0 ? 100 * q.fill / q.depth : 0;
        if (percent > fullest) {
            fullest = percent;
            where = edge->name;
        }
        for (const struct br_link *link = edge->readers; link != NULL; link = link->next) {
            struct br_reader_counters r;
            br_reader_get_counters(link->reader, &r);
            dropped += r.dropped_samples;
        }
    }
    for (size_t s = 0; s < graph->nstages; s++) {
        struct br_stage_totals t;
        br_stage_get_totals(&graph->stage[s], &t);
        lost += t.lost_samples;
    }
    snprintf(text, size,
             "%.2f s  %.3g x real time  missing %" PRIu64 "  lost %" PRIu64 "  dropped %" PRIu64
             "  fullest queue %s %u%%",
             times->stream_s, real_time_factor(times), missing, lost, dropped, where, fullest);
}

/* --- for programs --- */

static void json_text(FILE *out, const char *text)
{
    json_t *value = br_json_text(text);
    if (value == NULL || json_dumpf(value, out, JSON_ENCODE_ANY) != 0) fputs("null", out);
    json_decref(value);
}

static void json_memory(const char *name, const struct br_memory *memory, FILE *out)
{
    if (memory->host + memory->locked + memory->device == 0) return;
    fprintf(out, ", \"%s\": {\"host\": %zu, \"locked\": %zu, \"device\": %zu}", name, memory->host,
            memory->locked, memory->device);
}

/* {"source 3": {"late": 5, ...}, ...} */
static void json_counted(const struct br_stage *stage, FILE *out)
{
    fputs(", \"counted\": {", out);
    for (size_t i = 0; i < stage->ncounters; i++) {
        const struct br_counter *c = &stage->counter[i];
        bool first = i == 0 || strcmp(c->of, c[-1].of) != 0;
        if (first) {
            fputs(i == 0 ? "" : "}, ", out);
            json_text(out, c->of);
            fputs(": {", out);
        }
        fputs(first ? "" : ", ", out);
        json_text(out, c->what);
        fprintf(out, ": %" PRIu64, atomic_load_explicit(&stage->state->counted[i], memory_order_relaxed));
    }
    fputs(stage->ncounters > 0 ? "}}" : "}", out);
}

static void json_stage(const struct br_stage *stage, FILE *out)
{
    struct br_stage_totals t;
    br_stage_get_totals(stage, &t);
    fputs("    {\"name\": ", out);
    json_text(out, stage->name);
    fputs(", \"stage\": ", out);
    json_text(out, stage->type->name);
    fprintf(out,
            ", \"in_frames\": %" PRIu64 ", \"in_samples\": %" PRIu64 ", \"out_frames\": %" PRIu64
            ", \"out_samples\": %" PRIu64 ", \"out_missing\": %" PRIu64 ", \"saturated\": %" PRIu64
            ", \"calls\": %" PRIu64,
            t.in_frames, t.in_samples, t.out_frames, t.out_samples, t.out_missing, t.saturated, t.calls);
    if (stage->device >= 0)
        fprintf(out, ", \"device\": %d, \"gpu_s\": %.6f", stage->device,
                t.gpu_ns_per_call * 1e-9 * (double)t.calls);
    if (t.gained_samples > 0) fprintf(out, ", \"gained_samples\": %" PRIu64, t.gained_samples);
    json_memory("memory", &stage->memory, out);
    bool prepared = atomic_load(&stage->graph->state->prepared);
    json_memory("held", prepared ? &stage->state->held : &(struct br_memory){0}, out);
    fprintf(out,
            ", \"busy_s\": %.6f, \"cpu_s\": %.6f, \"wait_in_s\": %.6f, \"wait_out_s\": %.6f, \"lost\": {",
            (double)t.busy_ns * 1e-9, (double)t.cpu_ns * 1e-9, (double)t.wait_in_ns * 1e-9,
            (double)t.wait_out_ns * 1e-9);
    for (unsigned i = 0, n = 0; i < BR_LOSS_COUNT; i++)
        if (br_stage_lost(stage, i) > 0)
            fprintf(out, "%s\"%s\": %" PRIu64, n++ > 0 ? ", " : "", br_losses[i].name,
                    br_stage_lost(stage, i));
    fputc('}', out);
    json_counted(stage, out);
    fputs(", \"error\": ", out);
    /* The stage's thread writes the message: nobody reads it before the thread has ended. */
    if (atomic_load(&stage->state->ended) && stage->state->error.status != BR_OK)
        json_text(out, stage->state->error.text);
    else
        fputs("null", out);
    fputc('}', out);
}

static void json_queue(const struct br_edge *edge, FILE *out)
{
    struct br_queue_counters q;
    br_queue_get_counters(edge->queue, &q);
    fputs("    {\"name\": ", out);
    json_text(out, edge->name);
    fprintf(out,
            ", \"bytes\": %zu, \"depth\": %u, \"fill\": %u, \"max_fill\": %u, \"frames\": %" PRIu64
            ", \"samples\": %" PRIu64 ", \"missing\": %" PRIu64 ", \"readers\": [",
            br_queue_bytes(edge->queue), q.depth, q.fill, q.max_fill, q.frames, q.samples, q.missing);
    for (const struct br_link *link = edge->readers; link != NULL; link = link->next) {
        struct br_reader_counters r;
        br_reader_get_counters(link->reader, &r);
        fputs(link != edge->readers ? ", {\"stage\": " : "{\"stage\": ", out);
        json_text(out, link->stage->name);
        fprintf(out,
                ", \"policy\": \"%s\", \"delivered_frames\": %" PRIu64 ", \"delivered_samples\": %" PRIu64
                ", \"dropped_frames\": %" PRIu64 ", \"dropped_samples\": %" PRIu64
                ", \"discarded_frames\": %" PRIu64 ", \"discarded_samples\": %" PRIu64
                ", \"held_frames\": %" PRIu64 ", \"held_samples\": %" PRIu64 "}",
                br_policy_name[r.policy], r.delivered_frames, r.delivered_samples, r.dropped_frames,
                r.dropped_samples, r.discarded_frames, r.discarded_samples, r.held_frames, r.held_samples);
    }
    fputs("]}", out);
}

void br_report_json(const struct br_graph *graph, const struct br_run_times *times, int exit_status,
                    FILE *out)
{
    size_t nedges = br_graph_nedges(graph);
    fprintf(out,
            "{\n  \"version\": \"%s\", \"wall_s\": %.6f, \"stream_s\": %.9f, \"real_time_factor\": %.6g,\n",
            BR_VERSION, times->wall_s, times->stream_s, real_time_factor(times));
    if (exit_status >= 0)
        fprintf(out, "  \"exit\": %d, \"balanced\": %s,\n", exit_status,
                br_balance_ok(graph, NULL) ? "true" : "false");
    fputs("  \"stages\": [\n", out);
    for (size_t s = 0; s < graph->nstages; s++) {
        json_stage(&graph->stage[s], out);
        fputs(s + 1 < graph->nstages ? ",\n" : "\n", out);
    }
    fputs("  ],\n  \"queues\": [\n", out);
    for (size_t i = 0; i < nedges; i++) {
        json_queue(br_graph_edge(graph, i), out);
        fputs(i + 1 < nedges ? ",\n" : "\n", out);
    }
    fputs("  ]\n}\n", out);
}
