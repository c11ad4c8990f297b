#include "stages/common/stage/names.h"

#include "formats/common/fileio.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TIME_LENGTH = 20 }; /* the longest text of a placeholder */

static const char *const params[2] = {"directory", "prefix"};
static const char *const placeholders[] = {"{start}", "{date}", "{run}", NULL};

/* Which placeholder the text begins with, or -1. */
static int placeholder_at(const char *text)
{
    for (int i = 0; placeholders[i] != NULL; i++)
        if (strncmp(text, placeholders[i], strlen(placeholders[i])) == 0) return i;
    return -1;
}

static void format_time(int64_t ns, bool day_only, char text[TIME_LENGTH + 1])
{
    int64_t ms = (ns - (ns % 1000000 + 1000000) % 1000000) / 1000000; /* rounded down */
    time_t seconds = (time_t)((ms - (ms % 1000 + 1000) % 1000) / 1000);
    struct tm tm;
    char whole[32];
    gmtime_r(&seconds, &tm);
    strftime(whole, sizeof whole, day_only ? "%Y%m%d" : "%Y%m%dT%H%M%S", &tm);
    if (day_only)
        snprintf(text, TIME_LENGTH + 1, "%.8s", whole);
    else
        snprintf(text, TIME_LENGTH + 1, "%.15s.%03dZ", whole, (int)(ms - (int64_t)seconds * 1000));
}

/* Writes the template with its placeholders replaced. `out` has room for them. */
static void fill(const char *template, int64_t start_ns, int64_t run_ns, char *out)
{
    for (const char *c = template; *c != '\0';) {
        int which = placeholder_at(c);
        if (which < 0) {
            *out++ = *c++;
            continue;
        }
        format_time(which == 2 ? run_ns : start_ns, which == 1, out);
        out += strlen(out);
        c += strlen(placeholders[which]);
    }
    *out = '\0';
}

int names_plain(struct br_stage *stage, const char *param, const char *text)
{
    for (const char *c = strchr(text, '{'); c != NULL; c = strchr(c + 1, '{'))
        if (placeholder_at(c) >= 0)
            return br_stage_fail_at(stage, param, "'%.100s' holds %s, which this stage does not replace",
                                    text, placeholders[placeholder_at(c)]);
    return BR_OK;
}

int names_configure(struct names *names, struct br_stage *stage, const char **directory, const char **prefix,
                    bool overwrite, earlier_is_ours *is_ours)
{
    *names = (struct names){.name = {directory, prefix},
                            .template = {*directory, *prefix},
                            .overwrite = overwrite,
                            .is_ours = is_ours,
                            .claim = {.fd = -1}};
    for (int i = 0; i < 2; i++) {
        const char *text = *names->name[i];
        size_t count = 0;
        for (const char *c = strchr(text, '{'); c != NULL; c = strchr(c + 1, '{'), count++) {
            int which = placeholder_at(c);
            if (which < 0)
                return br_stage_fail_at(stage, params[i],
                                        "'%.100s' holds '%.20s'; expected {start}, {date} or {run}", text, c);
            names->late = names->late || which < 2;
        }
        if (count == 0) continue;
        if (overwrite)
            return br_stage_fail_at(stage, "overwrite",
                                    "%s holds placeholders, so that every run has names of its own; leave "
                                    "out one of the two",
                                    params[i]);
        char *filled = br_stage_alloc(stage, strlen(text) + count * TIME_LENGTH + 1);
        fill(text, br_stage_run_ns(stage), br_stage_run_ns(stage), filled);
        *names->name[i] = filled;
    }
    return BR_OK;
}

void names_fill(const struct names *names, struct br_stage *stage, uint64_t first)
{
    int64_t start_ns = br_stream_time_ns(br_stage_input(stage, 0), first);
    for (int i = 0; i < 2; i++)
        if (*names->name[i] != names->template[i])
            fill(names->template[i], start_ns, br_stage_run_ns(stage), (char *)(uintptr_t)*names -> name[i]);
}

/* The path of the first file of an earlier run; "": there is none. */
static void find_earlier(const struct names *names, char *found, size_t size)
{
    found[0] = '\0';
    if (names->is_ours != NULL) earlier_files(*names->name[0], *names->name[1], names->is_ours, found, size);
}

int names_check(const struct names *names, struct br_stage *stage, const char *at)
{
    char found[PATH_MAX];
    if (names->overwrite) return BR_OK;
    find_earlier(names, found, sizeof found);
    if (found[0] == '\0') return BR_OK;
    return br_stage_fail_run_at(stage, at,
                                "%s exists and would be lost; move it away, choose another directory or "
                                "prefix, perhaps with {start} in it, or set overwrite: true",
                                found);
}

int names_begin(struct names *names, struct br_stage *stage)
{
    const char *directory = *names->name[0], *prefix = *names->name[1];
    char path[PATH_MAX];
    struct br_error error = {0};
    names->begun = true;
    snprintf(path, sizeof path, "%s", directory);
    if (fileio_make_directory(path) != 0 || access(directory, W_OK | X_OK) != 0)
        return br_stage_fail(stage, BR_E_IO, "cannot write into directory %s: %s", directory,
                             strerror(errno));
    if (earlier_claim(&names->claim, directory, prefix, &error) != BR_OK)
        return br_stage_fail(stage, BR_E_IO, "%s", error.text);
    if (names->late) find_earlier(names, path, sizeof path);
    if (names->late && path[0] != '\0')
        return br_stage_fail(stage, BR_E_IO, "%s exists and would be lost; move it away, or use {run}", path);
    if (names->overwrite && names->is_ours != NULL &&
        earlier_remove(directory, prefix, names->is_ours, &error) != BR_OK)
        return br_stage_fail(stage, BR_E_IO, "%s", error.text);
    return BR_OK;
}
