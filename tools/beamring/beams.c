/* beams.c - `beamring beams`: where the beams of a pipeline look at a time. */
#include "buffers/clock.h"
#include "formats/common/text.h"
#include "formats/sky/motion.h"
#include "tools/beamring/arguments.h"
#include "tools/beamring/commands.h"
#include "tools/beamring/json.h"

#include <math.h>
#include <string.h>

/* --at: its Unix time. False where it has none of the forms. */
static bool read_time(const char *at, const struct br_stream *stream, int64_t *unix_ns)
{
    uint64_t sample;
    if (at == NULL || strcmp(at, "now") == 0) {
        *unix_ns = br_unix_ns();
        return true;
    }
    if (strncmp(at, "time:", 5) == 0) return text_i64(at + 5, unix_ns) == 0;
    if (strncmp(at, "sample:", 7) != 0) return text_utc(at, unix_ns) == 0;
    if (text_u64(at + 7, &sample) != 0) return false;
    *unix_ns = br_stream_time_ns(stream, sample);
    return true;
}

static void print_number(double value, int width, int decimals)
{
    if (isfinite(value))
        printf(" %*.*f", width, decimals, value);
    else
        printf(" %*s", width, "-");
}

static void print_table(const char *stage, int64_t unix_ns, const struct br_look *look, size_t count)
{
    char when[TEXT_TIME];
    printf(
        "%s at %s UTC: %zu beams\n  number           x (north)            y (east)  azimuth_deg  altitude_deg"
        "       ra_deg      dec_deg\n",
        stage, text_utc_format(when, unix_ns), count);
    for (size_t b = 0; b < count; b++) {
        printf("  %6zu", b);
        print_number(look[b].x, 19, 15);
        print_number(look[b].y, 19, 15);
        print_number(look[b].azimuth_deg, 12, 6);
        print_number(look[b].altitude_deg, 13, 6);
        print_number(look[b].ra_deg, 12, 6);
        print_number(look[b].dec_deg, 12, 6);
        putchar('\n');
    }
}

static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *json_table(int64_t unix_ns, const struct br_look *look, size_t count)
{
    json_t *beams = json_array();
    for (size_t b = 0; b < count; b++)
        json_array_append_new(beams,
                              json_pack("{sI so so so so so so}", "number", (json_int_t)b, "x",
                                        real(look[b].x), "y", real(look[b].y), "azimuth_deg",
                                        real(look[b].azimuth_deg), "altitude_deg", real(look[b].altitude_deg),
                                        "ra_deg", real(look[b].ra_deg), "dec_deg", real(look[b].dec_deg)));
    return json_pack("{sI so}", "time_ns", (json_int_t)unix_ns, "beams", beams);
}

/* Streams behind the stage that makes the beams share their description. */
static bool is_first(const struct br_graph *graph, size_t index)
{
    const struct br_motion *motion = br_graph_edge(graph, index)->stream.motion;
    if (motion == NULL) return false;
    for (size_t i = 0; i < br_graph_nedges(graph); i++)
        if (i != index && br_graph_edge(graph, i)->stream.motion == motion)
            for (const struct br_link *link = br_graph_edge(graph, i)->readers; link != NULL;
                 link = link->next)
                if (link->stage == br_graph_edge(graph, index)->producer) return false;
    return true;
}

static int show(const struct br_graph *graph, const char *at, json_t *document)
{
    size_t found = 0;
    for (size_t i = 0; i < br_graph_nedges(graph); i++) {
        const struct br_edge *edge = br_graph_edge(graph, i);
        const struct br_motion *motion = edge->stream.motion;
        int64_t unix_ns;
        if (!is_first(graph, i)) continue;
        if (!read_time(at, &edge->stream, &unix_ns)) {
            fprintf(stderr,
                    "beamring beams: --at '%s': expected a UTC such as 2026-11-27-20:00:00, time:NS (Unix "
                    "time in ns), sample:N or now\n",
                    at);
            return 2;
        }
        struct br_look *look = malloc((motion->nbeams + 1) * sizeof *look);
        if (look == NULL || br_motion_looks(motion, unix_ns, look) != BR_OK) {
            free(look);
            fprintf(stderr, "beamring beams: no memory for %zu beams\n", motion->nbeams);
            return 1;
        }
        if (document != NULL)
            json_object_set_new(document, edge->producer->name, json_table(unix_ns, look, motion->nbeams));
        else
            print_table(edge->producer->name, unix_ns, look, motion->nbeams);
        free(look);
        found++;
    }
    if (found > 0) return 0;
    fputs("beamring beams: no stage of this pipeline makes beams from directions\n", stderr);
    return 1;
}

int cmd_beams(int argc, char **argv)
{
    struct arguments a;
    struct loaded loaded;
    if (read_arguments(argc, argv, "aj", &a) != 0) return 2;
    int status = load_pipeline(&loaded, a.file, a.nset, a.set, BR_LOG_WARNING);
    json_t *document = a.json ? json_object() : NULL;
    if (status == 0) status = show(loaded.graph, a.at, document);
    unload_pipeline(&loaded);
    if (status == 0 && document != NULL) return json_print(document);
    json_decref(document);
    return status;
}
