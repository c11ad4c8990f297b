/* check.c - `beamring check`: the graph with shapes, memory and data rates, without starting anything. */
#include "buffers/available.h"
#include "buffers/history.h"
#include "runtime/ranks/ranks.h"
#include "tools/beamring/arguments.h"
#include "tools/beamring/check_ranks.h"
#include "tools/beamring/commands.h"
#include "tools/beamring/json.h"

#include <math.h>
#include <string.h>

static void print_stage(const struct br_stage *stage)
{
    printf("%s", stage->name);
    if (stage->device >= 0) printf(" [cuda:%d]", stage->device);
}

static void print_readers(const struct br_edge *edge)
{
    printf("  ");
    print_stage(edge->producer);
    printf(" -> ");
    for (const struct br_link *link = edge->readers; link != NULL; link = link->next) {
        if (link != edge->readers) printf(", ");
        print_stage(link->stage);
        if (link->policy != BR_POLICY_BLOCK) printf(" (%s)", br_policy_name[link->policy]);
    }
    putchar('\n');
}

static void print_zones(const struct br_stream *s)
{
    for (unsigned z = 0; z < s->nzones; z++)
        printf("  zone %u: %zu channels, U = %u, steps of %u base samples\n", z, s->zone[z].nchannels,
               s->zone[z].factor, s->zone[z].downsample);
}

/* The length of a history, and the largest dispersion whose sweep over the band fits into it: the delay
 * between two frequencies is K DM (1/low^2 - 1/high^2). */
static void print_history(const struct br_edge *edge, double low_mhz, double high_mhz)
{
    static const double k_dm = 4.148806417e3; /* MHz^2 s / (pc cm^-3) */
    const struct br_stream *s = &edge->stream;
    char memory[32];
    double seconds = 0, band = 1 / (low_mhz * low_mhz) - 1 / (high_mhz * high_mhz);
    for (const struct br_link *link = edge->readers; link != NULL; link = link->next)
        if (link->policy == BR_POLICY_HISTORY) seconds = fmax(seconds, link->history_s);
    if (seconds == 0) return;
    double bytes =
        (double)br_stream_max_bytes(s) + (double)br_array_bytes(&s->side) + (double)br_stream_max_validity(s);
    unsigned frames = br_queue_history(edge->queue);
    printf("  history of %g s: %u of these frames, %s", seconds, frames,
           format_bytes(bytes * frames, memory, sizeof memory));
    if (low_mhz > 0) printf("; a sweep over these channels fits up to DM %.0f", seconds / (k_dm * band));
    printf("\n");
}

static void print_edge(const struct br_edge *edge)
{
    const struct br_stream *s = &edge->stream;
    char text[256], memory[32], rate[32];
    double sample = br_stream_sample_s(s), frame = (double)s->frame_samples * sample;
    double bytes = (double)br_array_bytes(&s->array) + (double)br_array_bytes(&s->side);
    double low = INFINITY, high = 0;
    for (size_t c = 0; c < s->nchannels; c++) {
        low = fmin(low, s->freq_mhz[c] - s->width_mhz[c] / 2);
        high = fmax(high, s->freq_mhz[c] + s->width_mhz[c] / 2);
    }
    printf("%s: %s\n", edge->name, br_array_format(&s->array, text, sizeof text));
    print_readers(edge);
    printf(
        "  %zu channels, %.6g to %.6g MHz, %s; %.6g us per step of %u base samples; frames of %llu samples, "
        "%.6g ms\n",
        s->nchannels, low, high,
        s->sideband == BR_SIDEBAND_UNKNOWN ? "sideband unknown"
        : s->sideband == BR_SIDEBAND_UPPER ? "upper sideband"
                                           : "lower sideband",
        sample * 1e6 * s->zone[0].downsample, s->zone[0].downsample, (unsigned long long)s->frame_samples,
        frame * 1e3);
    if (br_stream_is_zoned(s)) print_zones(s);
    if (edge->place.space == BR_SPACE_CUDA) {
        printf("  %u slots, %s on cuda:%d", edge->depth,
               format_bytes((double)br_queue_device_bytes(edge->queue), memory, sizeof memory),
               edge->place.device);
        printf(" and %s of the host's for validity; ",
               format_bytes((double)br_queue_bytes(edge->queue), memory, sizeof memory));
    } else {
        printf("  %u slots, %s%s; ", edge->depth,
               format_bytes((double)br_queue_bytes(edge->queue), memory, sizeof memory),
               edge->place.space == BR_SPACE_PINNED ? " locked for the GPU" : "");
    }
    printf("%s/s in real time\n", format_bytes(bytes / frame, rate, sizeof rate));
    print_history(edge, low, high);
}

static void print_spaces(const char *what, const struct br_memory *memory, const char *of)
{
    char host[32], locked[32], device[32];
    printf("  %-22.22s %12s %12s %12s%s\n", what, format_bytes((double)memory->host, host, sizeof host),
           format_bytes((double)memory->locked, locked, sizeof locked),
           format_bytes((double)memory->device, device, sizeof device), of);
}

/* All memory that the run reserves, by who holds it and where it is. */
static void print_memory(const struct br_graph *graph)
{
    printf("\n  %-22s %12s %12s %12s\n", "memory", "host", "locked", "GPU");
    for (int device = 0; device < graph->ngpus || device == 0; device++) {
        struct br_memory queues = br_graph_queue_memory(graph, device);
        char name[128], of[160] = "";
        if (graph->ngpus > 0) br_gpu_name(device, name, sizeof name);
        if (graph->ngpus > 0) snprintf(of, sizeof of, "  cuda:%d, %s", device, name);
        if (device > 0) queues.host = queues.locked = 0;
        if (device == 0 || queues.device > 0) print_spaces("queues", &queues, queues.device > 0 ? of : "");
    }
    for (size_t s = 0; s < graph->nstages; s++) {
        const struct br_stage *stage = &graph->stage[s];
        char of[32] = "";
        if (stage->memory.host + stage->memory.locked + stage->memory.device == 0) continue;
        if (stage->device >= 0) snprintf(of, sizeof of, "  cuda:%d", stage->device);
        print_spaces(stage->name, &stage->memory, of);
    }
    for (int device = 0; device < graph->ngpus || device == 0; device++) {
        struct br_memory all = br_graph_memory(graph, device);
        char of[32] = "";
        if (graph->ngpus > 0) snprintf(of, sizeof of, "  cuda:%d", device);
        if (device > 0) all.host = all.locked = 0;
        if (device == 0 || all.device > 0) print_spaces("together", &all, of);
    }
}

/* A pipeline that wants more memory than there is: most often a history that is too long. */
static void warn_of_memory(const struct br_graph *graph)
{
    struct br_memory all = br_graph_memory(graph, 0);
    char who[256], wanted[32], left[32];
    size_t available = br_memory_available("", who, sizeof who);
    double longest = 0;
    if (all.host + all.locked <= available) return;
    for (size_t s = 0; s < graph->nstages; s++)
        for (unsigned i = 0; i < graph->stage[s].nin; i++)
            longest = fmax(longest, graph->stage[s].in[i].history_s);
    fprintf(stderr, "beamring check: warning: the pipeline wants %s of the host's memory, but %s only %s",
            format_bytes((double)(all.host + all.locked), wanted, sizeof wanted), who,
            format_bytes((double)available, left, sizeof left));
    if (longest > 0) fprintf(stderr, "; the longest history keeps %g s: shorten it", longest);
    fputc('\n', stderr);
}

/* The data that stages exchange with other ranks. */
static void print_crossing(const struct br_graph *graph)
{
    char sent[32], received[32];
    for (size_t s = 0; s < graph->nstages; s++) {
        const struct br_stage *stage = &graph->stage[s];
        if (stage->sent_per_s + stage->received_per_s <= 0) continue;
        printf("\n%s: %s/s to other ranks, %s/s from them, in real time\n", stage->name,
               format_bytes(stage->sent_per_s, sent, sizeof sent),
               format_bytes(stage->received_per_s, received, sizeof received));
    }
}

/* {"ok": true, "telescope": ..., "stages", "queues", "memory"}, or {"ok": false, "errors": [...]}. */
static int print_json(const struct loaded *loaded, int status)
{
    const struct br_graph *graph = loaded->graph;
    if (status != 0)
        return json_print(json_pack("{sb so}", "ok", 0, "errors",
                                    loaded->config != NULL ? json_mistakes(loaded->config) : json_array()));
    json_t *document = json_pipeline(graph);
    json_object_set_new(document, "ok", json_true());
    json_object_set_new(document, "telescope",
                        graph->telescope != NULL ? json_pack("{ss si}", "name", graph->telescope->name,
                                                             "dishes", (int)graph->telescope->ndishes)
                                                 : json_null());
    json_object_set_new(document, "memory", json_memory(graph));
    return json_print(document);
}

static double extent(const struct br_telescope *t, int axis)
{
    double low = t->position[0][axis], high = low;
    for (size_t d = 1; d < t->ndishes; d++) {
        low = fmin(low, t->position[d][axis]);
        high = fmax(high, t->position[d][axis]);
    }
    return high - low;
}

static void print_telescope(const struct br_telescope *t)
{
    printf("telescope %s: %u dishes", t->name, t->ndishes);
    if (t->dishes != NULL)
        printf(" on a %u x %u grid, spacing %g x %g m\n\n", t->grid_m, t->grid_n, t->spacing_m_m,
               t->spacing_n_m);
    else
        printf(" within %.4g m east-west, %.4g m north-south and %.4g m in height\n\n", extent(t, 0),
               extent(t, 1), extent(t, 2));
}

static int check(const struct arguments *a, struct br_ranks *ranks)
{
    struct loaded loaded;
    int status = load_pipeline_ranked(&loaded, a->file, a->nset, a->set, BR_LOG_NOTE, ranks);
    if (a->json) {
        if (print_json(&loaded, status) != 0) status = 1;
        if (status == 0) warn_of_memory(loaded.graph);
    } else if (status == 0) {
        const struct br_graph *graph = loaded.graph;
        size_t nedges = br_graph_nedges(graph);
        if (graph->telescope != NULL) print_telescope(graph->telescope);
        for (size_t i = 0; i < nedges; i++) print_edge(br_graph_edge(graph, i));
        printf("\nstages: %zu%s, queues: %zu\n", graph->nstages,
               graph->nstages > graph->nfile ? " (with transfers)" : "", nedges);
        print_memory(graph);
        warn_of_memory(graph);
        print_crossing(graph);
    } else {
        br_ranks_fail(ranks, status, "its pipeline file cannot be run; its messages say why");
    }
    fflush(stdout);
    unload_pipeline(&loaded);
    return status;
}

int cmd_check(int argc, char **argv)
{
    struct arguments a;
    if (read_arguments(argc, argv, "rj", &a) != 0) return 2;
    bool together = a.json || strcmp(a.file, "-") == 0; /* each rank reads the file and writes */
    if (a.ranks > 0 && together) {
        fputs("beamring check: --ranks goes neither with --json nor with the standard input\n", stderr);
        return 2;
    }
    return a.ranks > 0 ? check_ranks(&a, check) : check(&a, NULL);
}
