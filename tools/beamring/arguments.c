/* arguments.c - see arguments.h. */
#include "tools/beamring/arguments.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "--key VALUE" or "--key=VALUE": the value, or NULL if argv[*i] is not this option. Sets *bad when the
 * value is missing. */
static const char *value_of(int argc, char **argv, int *i, const char *option, bool *bad)
{
    size_t length = strlen(option);
    if (strncmp(argv[*i], option, length) != 0) return NULL;
    if (argv[*i][length] == '=') return argv[*i] + length + 1;
    if (argv[*i][length] != '\0') return NULL;
    if (*i + 1 < argc) return argv[++*i];
    *bad = true;
    fprintf(stderr, "beamring %s: %s needs a value\n", argv[0], option);
    return NULL;
}

static int read_ranks(const char *command, const char *text, struct arguments *a)
{
    char *end;
    unsigned long n = strtoul(text, &end, 10);
    if (end == text || *end != '\0' || n < 1 || n > MAX_RANKS || text[0] == '-') {
        fprintf(stderr, "beamring %s: --ranks '%s'; expected a number from 1 to %d\n", command, text,
                MAX_RANKS);
        return 2;
    }
    a->ranks = (unsigned)n;
    return 0;
}

int unknown_option(const char *command, const char *option)
{
    fprintf(stderr, "beamring %s: unknown option '%s'; `beamring help %s` lists them\n", command, option,
            command);
    return 2;
}

int read_arguments(int argc, char **argv, const char *allowed, struct arguments *a)
{
    *a = (struct arguments){0};
    for (int i = 1; i < argc; i++) {
        bool bad = false;
        const char *value;
        if ((value = value_of(argc, argv, &i, "--set", &bad)) != NULL) {
            if (a->nset == MAX_SETS) {
                fprintf(stderr, "beamring %s: more than %d --set\n", argv[0], MAX_SETS);
                return 2;
            }
            a->set[a->nset++] = value;
        } else if (!bad && strchr(allowed, 's') != NULL &&
                   (value = value_of(argc, argv, &i, "--stats", &bad)) != NULL) {
            a->stats = value;
        } else if (!bad && strchr(allowed, 'c') != NULL &&
                   (value = value_of(argc, argv, &i, "--control", &bad)) != NULL) {
            a->control = value;
        } else if (!bad && strchr(allowed, 'a') != NULL &&
                   (value = value_of(argc, argv, &i, "--at", &bad)) != NULL) {
            a->at = value;
        } else if (!bad && strchr(allowed, 'l') != NULL &&
                   (value = value_of(argc, argv, &i, "--log", &bad)) != NULL) {
            a->json_log = strcmp(value, "json") == 0;
            if (a->json_log || strcmp(value, "text") == 0) continue;
            fprintf(stderr, "beamring %s: --log '%s'; expected text or json\n", argv[0], value);
            return 2;
        } else if (!bad && strchr(allowed, 'g') != NULL &&
                   (value = value_of(argc, argv, &i, "--again", &bad)) != NULL) {
            char *end;
            a->again_s = strtod(value, &end);
            if (*end == '\0' && a->again_s >= 0.1 && a->again_s <= 1e6) continue;
            fprintf(stderr, "beamring %s: --again '%s'; expected 0.1 to 1e6 seconds\n", argv[0], value);
            return 2;
        } else if (!bad && strchr(allowed, 'm') != NULL &&
                   (value = value_of(argc, argv, &i, "--join", &bad)) != NULL) {
            a->join = value;
        } else if (!bad && strchr(allowed, 'r') != NULL &&
                   (value = value_of(argc, argv, &i, "--ranks", &bad)) != NULL) {
            if (read_ranks(argv[0], value, a) != 0) return 2;
        } else if (strchr(allowed, 'm') != NULL && strcmp(argv[i], "--mpi") == 0) {
            a->mpi = true;
        } else if (strchr(allowed, 'q') != NULL && strcmp(argv[i], "--quiet") == 0) {
            a->quiet = true;
        } else if (strchr(allowed, 'p') != NULL && strcmp(argv[i], "--progress") == 0) {
            a->progress = true;
        } else if (strchr(allowed, 'd') != NULL && strcmp(argv[i], "--dot") == 0) {
            a->dot = true;
        } else if (strchr(allowed, 'j') != NULL && strcmp(argv[i], "--json") == 0) {
            a->json = true;
        } else if (bad) {
            return 2;
        } else if (argv[i][0] == '-' && argv[i][1] != '\0') {
            return unknown_option(argv[0], argv[i]);
        } else if (a->file != NULL) {
            fprintf(stderr, "beamring %s: two files, '%s' and '%s'; expected one\n", argv[0], a->file,
                    argv[i]);
            return 2;
        } else {
            a->file = argv[i];
        }
    }
    if (a->file != NULL) return 0;
    fprintf(stderr, "beamring %s: which pipeline file?\n", argv[0]);
    return 2;
}
