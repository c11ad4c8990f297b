/* update.c - `beamring update`: posts new values to a node that runs, and says what becomes of them. */
#include "tools/beamring/commands.h"
#include "tools/beamring/remote.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BODY_MOST = 64 * 1024 }; /* that a node takes */

/* The text of a file, or of standard input for "-"; NULL after a message. */
static char *read_request(const char *path)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
    char *text = malloc(BODY_MOST + 2);
    if (file == NULL || text == NULL) {
        fprintf(stderr, "beamring update: cannot read %s: %s\n", path, strerror(errno));
        if (file != NULL && file != stdin) fclose(file);
        free(text);
        return NULL;
    }
    size_t length = fread(text, 1, BODY_MOST + 1, file);
    bool good = ferror(file) == 0 && length <= BODY_MOST;
    if (!good)
        fprintf(stderr, "beamring update: %s %s\n", path,
                length > BODY_MOST ? "has more than 64 KiB: name files in it" : "cannot be read");
    if (file != stdin) fclose(file);
    text[good ? length : 0] = '\0';
    if (good) return text;
    free(text);
    return NULL;
}

static const json_t *called(const json_t *updates, const char *id)
{
    size_t i;
    const json_t *update;
    json_array_foreach(updates, i, update)
    {
        const char *name = json_string_value(json_object_get(update, "id"));
        if (name != NULL && strcmp(name, id) == 0) return update;
    }
    return NULL;
}

/* Until the update holds, or is superseded. Returns the exit status. */
static int wait_for(const struct remote *remote, const char *id)
{
    for (;;) {
        json_t *list = remote_get(remote, "update", "/v1/updates");
        const json_t *update = called(json_object_get(list, "updates"), id);
        const char *state = json_string_value(json_object_get(update, "state"));
        bool waits = state != NULL && strcmp(state, "scheduled") == 0;
        if (state != NULL && !waits) {
            const json_t *from = json_object_get(update, "held_from");
            printf("%s: %s", id, state);
            if (from != NULL) printf(" from sample %" JSON_INTEGER_FORMAT " on", json_integer_value(from));
            putchar('\n');
        }
        json_decref(list);
        if (list == NULL) return 2;
        if (state == NULL) fprintf(stderr, "beamring update: the node does not know '%s' any more\n", id);
        if (state == NULL) return 1;
        if (!waits) return 0;
        nanosleep(&(struct timespec){0, 200000000}, NULL);
    }
}

int cmd_update(int argc, char **argv)
{
    struct remote remote;
    int file = 1;
    while (file < argc && argv[file][0] == '-' && argv[file][1] != '\0')
        file += strcmp(argv[file], "--token-file") == 0 ? 2 : 1;
    if (file >= argc) {
        fprintf(stderr, "beamring update: expected a FILE with the update, or - for standard input\n");
        return 2;
    }
    const char *path = argv[file];
    memmove(argv + file, argv + file + 1,
            (size_t)(argc - file) * sizeof *argv); /* with the NULL at the end */
    if (remote_arguments(argc - 1, argv, "--wait", &remote) != 0) return 2;
    char *text = read_request(path);
    if (text == NULL) return 2;
    long code = 0;
    json_t *reply = remote_post(&remote, argv[0], "/v1/update", text, &code);
    free(text);
    if (reply == NULL) return 2;
    char *said = json_dumps(reply, JSON_INDENT(1) | JSON_REAL_PRECISION(15));
    if (said != NULL) puts(said);
    fflush(stdout);
    free(said);
    int status = code == 202 ? 0 : 1;
    const char *id = json_string_value(json_object_get(reply, "id"));
    if (status == 0 && remote.repeat && id != NULL) status = wait_for(&remote, id);
    json_decref(reply);
    return status;
}
