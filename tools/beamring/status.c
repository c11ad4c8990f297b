/* status.c - `beamring status`: where a node's pipeline is held up and why; and `beamring log`. */
#include "tools/beamring/commands.h"
#include "tools/beamring/json.h"
#include "tools/beamring/remote.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

static double real(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : 0;
}

static const char *word(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value != NULL ? value : "";
}

static void print_stages(const json_t *stages)
{
    size_t i;
    const json_t *stage;
    printf("\n%-20s %-8s %5s %6s %6s %6s  %s\n", "stage", "on", "busy", "for in", "for out", "GPU", "now");
    json_array_foreach(stages, i, stage)
    {
        const char *waits = word(stage, "waits_for"), *trouble = word(stage, "trouble");
        printf("%-20.20s %-8.8s %4.0f%% %5.0f%% %6.0f%% %5.0f%%  %s%s%s%s%s\n", word(stage, "name"),
               word(stage, "device"), 100 * real(stage, "busy"), 100 * real(stage, "wait_in"),
               100 * real(stage, "wait_out"), 100 * real(stage, "gpu"), word(stage, "does"),
               waits[0] != '\0' ? " for " : "", waits, trouble[0] != '\0' ? "; " : "", trouble);
        const char *reason;
        json_t *lost;
        json_object_foreach(json_object_get(stage, "lost"), reason, lost) printf(
            "%-20s lost %" JSON_INTEGER_FORMAT " samples (%s)\n", "", json_integer_value(lost), reason);
    }
}

static void print_queues(const json_t *queues)
{
    size_t i, k;
    const json_t *queue, *reader;
    char rate[32];
    printf("\n%-20s %-8s %9s %10s %12s  %s\n", "queue", "state", "fill", "frames/s", "bytes/s", "read by");
    json_array_foreach(queues, i, queue)
    {
        char fill[24];
        snprintf(fill, sizeof fill, "%.0f/%.0f", real(queue, "fill"), real(queue, "slots"));
        printf("%-20.20s %-8.8s %9s %10.4g %12s  ", word(queue, "name"), word(queue, "state"), fill,
               real(queue, "frames_per_s"), format_bytes(real(queue, "bytes_per_s"), rate, sizeof rate));
        json_array_foreach(json_object_get(queue, "readers"), k, reader)
        {
            printf("%s%s", k > 0 ? ", " : "", word(reader, "stage"));
            if (real(reader, "dropped_samples") > 0)
                printf(" (dropped %.0f samples)", real(reader, "dropped_samples"));
        }
        putchar('\n');
    }
}

static void print_status(const json_t *status)
{
    const char *unready = word(status, "not_ready");
    printf("%s  %s, for %.1f s; %.3g times real time; %s%s%s\n", word(status, "file"), word(status, "state"),
           real(status, "uptime_s"), real(status, "real_time_factor"),
           json_is_true(json_object_get(status, "healthy")) ? "healthy" : "NOT HEALTHY",
           unready[0] != '\0' ? ", not ready: " : ", ready", unready);
    printf("%s\n", word(status, "sentence"));
    const json_t *graph = json_object_get(status, "graph");
    print_stages(json_object_get(graph, "stages"));
    print_queues(json_object_get(graph, "queues"));
}

int cmd_status(int argc, char **argv)
{
    struct remote remote;
    if (remote_arguments(argc, argv, "--watch", &remote) != 0) return 2;
    for (bool reached = false;; reached = true) {
        json_t *status = remote_get(&remote, argv[0], "/v1/status");
        if (status == NULL && !(remote.repeat && reached)) return 2; /* a node that was there may come back */
        if (remote.repeat && isatty(STDOUT_FILENO) && !remote.json) fputs("\033[H\033[2J", stdout);
        if (status != NULL && remote.json)
            json_print(json_incref(status));
        else if (status != NULL)
            print_status(status);
        fflush(stdout);
        bool ready = json_is_true(json_object_get(status, "ready"));
        json_decref(status);
        if (!remote.repeat) return ready ? 0 : 1;
        sleep(1);
    }
}

static void print_line(const json_t *line)
{
    char at[40];
    double unix_s = real(line, "unix_s");
    time_t second = (time_t)unix_s;
    struct tm utc;
    const char *stage = word(line, "stage"), *level = word(line, "level");
    gmtime_r(&second, &utc);
    strftime(at, sizeof at, "%Y-%m-%d %H:%M:%S", &utc);
    printf("%s.%03dZ %s%s%s%s%s\n", at, (int)((unix_s - (double)second) * 1000), stage,
           stage[0] != '\0' ? ": " : "", strcmp(level, "note") != 0 ? level : "",
           strcmp(level, "note") != 0 ? ": " : "", word(line, "message"));
}

int cmd_log(int argc, char **argv)
{
    struct remote remote;
    char path[64];
    json_int_t next = 0;
    if (remote_arguments(argc, argv, "--follow", &remote) != 0) return 2;
    for (;;) {
        size_t i;
        const json_t *line;
        snprintf(path, sizeof path, "/v1/log?since=%" JSON_INTEGER_FORMAT, next);
        json_t *log = remote_get(&remote, argv[0], path);
        if (log == NULL) return 2;
        json_array_foreach(json_object_get(log, "lines"), i, line) print_line(line);
        next = json_integer_value(json_object_get(log, "next"));
        json_decref(log);
        fflush(stdout);
        if (!remote.repeat) return 0;
        sleep(1);
    }
}
