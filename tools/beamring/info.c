/* info.c - `beamring info FILE...`: what a recording, a filterbank file or a packet description holds. */
#include "tools/beamring/info.h"
#include "formats/format.h"
#include "runtime/config/arena.h"
#include "stages/common/stage/made_with.h"
#include "tools/beamring/arguments.h"
#include "tools/beamring/commands.h"
#include "tools/beamring/json.h"
#include "tools/beamring/plain.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void info_line(const char *name, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("  %-12s ", name);
    vprintf(format, args);
    putchar('\n');
    va_end(args);
}

/* The updates that data were made with, in the form of made_with.h, a line each. False: another text. */
static bool print_updates(const char *label, const char *text)
{
    struct made_with_one one;
    while (*text != '\0' && strcmp(text, "...") != 0) {
        text = made_with_next(text, &one);
        if (text == NULL) return false;
        info_line(label, "%s from sample %" PRIu64 " on: %s, digest %s", one.stage, one.sample, one.id,
                  one.digest);
        label = "";
    }
    if (*text != '\0') info_line(label, "... and more");
    return true;
}

/* --- as the caller of formats ------------------------------------------------------------------------ */

struct shown {
    const char *path;
    struct br_arena arena;
};

void *info_alloc(void *arena, size_t bytes)
{
    void *memory = br_arena_alloc(arena, bytes > 0 ? bytes : 1);
    if (memory != NULL) return memory;
    fputs("beamring info: not enough memory\n", stderr);
    exit(1);
}

static void *alloc(void *owner, size_t bytes)
{
    return info_alloc(&((struct shown *)owner)->arena, bytes);
}

static int fail(void *owner, int status, const char *param, const char *text)
{
    (void)owner, (void)param;
    fprintf(stderr, "beamring info: %s\n", text);
    return status;
}

static void say(void *owner, bool warning, const char *text)
{
    (void)owner, (void)warning;
    fprintf(stderr, "beamring info: %s\n", text);
}

static void fact(void *owner, const char *name, const char *text)
{
    if (name == NULL)
        printf("%s: %s\n", ((struct shown *)owner)->path, text);
    else if ((strcmp(name, "updates") != 0 && strcmp(name, "then") != 0) || !print_updates(name, text))
        info_line(name, "%s", text);
}

static int info_file(const char *path, bool all_beams)
{
    size_t length = strlen(path);
    if (length > 5 && (strcmp(path + length - 5, ".yaml") == 0 || strcmp(path + length - 4, ".yml") == 0))
        return info_packets(path);
    int table = info_tables(path);
    if (table >= 0) return table == 0 ? BR_OK : BR_E_FORMAT;
    static const struct br_stream_hints none;
    struct shown shown = {.path = path};
    struct caller caller = {.owner = &shown,
                            .hints = &none,
                            .alloc = alloc,
                            .fail = fail,
                            .say = say,
                            .fact = fact,
                            .in_full = all_beams};
    const struct format *format = format_recognise(&caller, path);
    int status = BR_E_FORMAT;
    if (format != NULL && format->info == NULL)
        caller_fail(&caller, status,
                    "%s is a capture file; a packet description (.yaml) says what its packets hold", path);
    else if (format != NULL)
        status = format->info(&caller, path);
    br_arena_free(&shown.arena);
    return status;
}

int cmd_info(int argc, char **argv)
{
    int at = 1;
    bool json = false;
    bool all_beams = false;
    for (; at < argc && argv[at][0] == '-' && argv[at][1] != '\0'; at++) {
        if (strcmp(argv[at], "--beams") == 0)
            all_beams = true;
        else if (strcmp(argv[at], "--json") == 0)
            json = true;
        else
            return unknown_option("info", argv[at]);
    }
    if (argc <= at) {
        fputs("usage: beamring info [--beams] [--json] FILE...\nSays what DADA, VDIF, CHIME baseband (HDF5), "
              "GUPPI "
              "RAW, kotekan "
              "raw and filterbank files hold, and what a packet description (.yaml) means.\n",
              stderr);
        return 2;
    }
    char *said = NULL;
    size_t length = 0;
    FILE *out = json ? open_memstream(&said, &length) : NULL;
    FILE *const plain[2] = {plain_open(out != NULL ? out : stdout), plain_open(stderr)}, *const before[2] = {
                                                                                             stdout, stderr};
    int status = 0;
    if (plain[0] != NULL && plain[1] != NULL) stdout = plain[0], stderr = plain[1];
    for (int i = at; i < argc; i++)
        if (info_file(argv[i], all_beams) != BR_OK) status = 1;
    stdout = before[0], stderr = before[1];
    for (int i = 0; i < 2; i++)
        if (plain[i] != NULL) fclose(plain[i]);
    if (out == NULL) return status;
    fclose(out);
    int failed = json_print(json_of_info(said));
    free(said);
    return failed != 0 ? failed : status;
}
