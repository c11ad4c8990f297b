#include "tools/beamring/option_words.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char command[] = "beamring convert: ";

/* Behind "convert:LINE:COLUMN: ", or the same place. */
static const char *behind_place(const char *at)
{
    static const char file[] = "convert:";
    if (strncmp(at, file, strlen(file)) != 0) return at;
    const char *end = at + strlen(file);
    while (isdigit((unsigned char)*end) || *end == ':') end++;
    return *end == ' ' ? end + 1 : at;
}

static bool skip(const char **at, const char *word)
{
    if (strncmp(*at, word, strlen(word)) != 0) return false;
    *at += strlen(word);
    return true;
}

/* Behind "beamring: error: ", "beamring: STAGE: " of a message that was logged, or the same place. */
static const char *behind_log(const char *at)
{
    if (!skip(&at, "beamring: ")) return at;
    if (!skip(&at, "error: ") && !skip(&at, "replay: ")) skip(&at, "record: ");
    return at;
}

/* Behind "stage 'NAME': PARAM: ", or the same place: the command has neither. */
static const char *behind_stage(const char *at)
{
    static const char stage[] = "stage '";
    if (strncmp(at, stage, strlen(stage)) != 0) return at;
    const char *end = strstr(at, "': ");
    if (end == NULL) return at;
    at = end + 3;
    static const char *const params[] = {"files: ", "directory: ", "prefix: ", "format: "};
    for (size_t i = 0; i < sizeof params / sizeof *params; i++)
        if (skip(&at, params[i])) break;
    return at;
}

static void put_line(FILE *to, const char *line)
{
    static const struct {
        const char *from, *to;
    } words[] = {{"`lossy: true`", "--lossy"},
                 {"set lossy: true", "give --lossy"},
                 {"`overwrite: true`", "--overwrite"},
                 {"set overwrite: true", "give --overwrite"},
                 {"`stream:`", "--stream"},
                 {"stage 'replay' reads the same file,", "DIRECTORY/PREFIX names a file of IN,"},
                 {"give another prefix", "give another DIRECTORY/PREFIX"}};
    static const char map[] = "`stream: {", key[] = "`stream: ";
    const char *at = behind_log(behind_place(line));
    if (at != line) fputs(command, to);
    at = behind_stage(at);
    while (*at != '\0') {
        size_t i = 0;
        while (i < sizeof words / sizeof *words && strncmp(at, words[i].from, strlen(words[i].from)) != 0)
            i++;
        const char *end = strstr(at, "}`");
        if (i < sizeof words / sizeof *words) {
            fputs(words[i].to, to);
            at += strlen(words[i].from);
        } else if (strncmp(at, map, strlen(map)) == 0 && end != NULL) {
            at += strlen(map);
            fprintf(to, "--stream '%.*s'", (int)(end - at), at);
            at = end + 2;
        } else if (strncmp(at, key, strlen(key)) == 0 && (end = strchr(at + 1, '`')) != NULL) {
            at += strlen(key);
            fprintf(to, "`%.*s` of --stream", (int)(end - at), at);
            at = end + 1;
        } else {
            fputc(*at++, to);
        }
    }
}

struct words {
    FILE *to;
    char *line;
    size_t used, room;
};

static ssize_t take(void *cookie, const char *data, size_t size)
{
    struct words *w = cookie;
    for (size_t i = 0; i < size; i++) {
        if (w->used + 2 > w->room) {
            char *more = realloc(w->line, 2 * w->room + 256);
            if (more == NULL) return (ssize_t)i;
            w->line = more;
            w->room = 2 * w->room + 256;
        }
        w->line[w->used++] = data[i];
        if (data[i] != '\n') continue;
        w->line[w->used] = '\0';
        put_line(w->to, w->line);
        w->used = 0;
    }
    return (ssize_t)size;
}

static int end(void *cookie)
{
    struct words *w = cookie;
    if (w->used > 0) {
        w->line[w->used] = '\0';
        put_line(w->to, w->line);
    }
    fflush(w->to);
    free(w->line);
    free(w);
    return 0;
}

FILE *option_words_open(FILE *to)
{
    struct words *w = calloc(1, sizeof *w);
    if (w == NULL) return NULL;
    w->to = to;
    FILE *stream = fopencookie(w, "w", (cookie_io_functions_t){.write = take, .close = end});
    if (stream == NULL) free(w);
    if (stream != NULL) setvbuf(stream, NULL, _IOLBF, 0);
    return stream;
}
