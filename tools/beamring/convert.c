/* convert.c - `beamring convert`: recordings in one format into another, by a pipeline of `replay` and
 * `record`. */
#include "runtime/run/pipeline.h"
#include "tools/beamring/commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: beamring convert --to FORMAT [--stream YAML] [--coding CODING] [--lossy] IN... DIRECTORY/PREFIX\n"
    "Writes the recording in the files IN as DIRECTORY/PREFIX_NNNNNNN.*; FORMAT is dada, kotekan, guppi, "
    "chime "
    "or vdif.\n"
    "--stream says what the files do not: --stream 'sample_ns: 2560, epoch_ns: 0'. What FORMAT cannot say "
    "is\n"
    "named, and nothing is written, unless --lossy is given. --coding is for kotekan: int4p4chime (the "
    "default)\n"
    "or int4p4.\n";

/* `text` as a YAML string. */
static void put_quoted(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\') fputc('\\', out);
        if (strncmp(text, "${", 2) == 0) fputc('$', out); /* no variable */
        fputc(*text, out);
    }
    fputc('"', out);
}

/* The pipeline as YAML, to be freed; NULL without memory. */
static char *pipeline(const char *to, const char *stream, const char *coding, bool lossy, int nin, char **in,
                      const char *target, size_t *length)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, length);
    if (out == NULL) return NULL;
    const char *slash = strrchr(target, '/'), *prefix = slash != NULL ? slash + 1 : target;
    char directory[2048];
    snprintf(directory, sizeof directory, "%.*s",
             slash == NULL     ? 1
             : slash == target ? 1
                               : (int)(slash - target),
             slash == NULL ? "." : target);
    fprintf(out, "device: cpu\n");
    if (stream != NULL) fprintf(out, "stream: {%s}\n", stream);
    fprintf(out, "pipeline:\n  - stage: replay\n    out: field\n    files: [");
    for (int i = 0; i < nin; i++) {
        if (i > 0) fputs(", ", out);
        put_quoted(out, in[i]);
    }
    fprintf(out, "]\n  - stage: record\n    in: field\n    format: %s\n    lossy: %s\n    directory: ", to,
            lossy ? "true" : "false");
    put_quoted(out, directory);
    fprintf(out, "\n    prefix: ");
    put_quoted(out, prefix);
    if (coding != NULL) {
        fprintf(out, "\n    coding: ");
        put_quoted(out, coding);
    }
    fputc('\n', out);
    return fclose(out) == 0 ? text : NULL;
}

int cmd_convert(int argc, char **argv)
{
    const char *to = NULL, *stream = NULL, *coding = NULL;
    bool lossy = false;
    int at = 1;
    for (; at < argc && argv[at][0] == '-'; at++) {
        if (strcmp(argv[at], "--lossy") == 0)
            lossy = true;
        else if (strcmp(argv[at], "--to") == 0 && at + 1 < argc)
            to = argv[++at];
        else if (strcmp(argv[at], "--stream") == 0 && at + 1 < argc)
            stream = argv[++at];
        else if (strcmp(argv[at], "--coding") == 0 && at + 1 < argc)
            coding = argv[++at];
        else
            break;
    }
    if (to == NULL || argc - at < 2 || argv[at][0] == '-') {
        fputs(usage, stderr);
        return 2;
    }
    if (strcmp(to, "dada") != 0 && strcmp(to, "kotekan") != 0 && strcmp(to, "guppi") != 0 &&
        strcmp(to, "chime") != 0 && strcmp(to, "vdif") != 0) {
        fprintf(stderr, "beamring convert: --to %s; expected dada, kotekan, guppi, chime or vdif\n", to);
        return 2;
    }
    size_t length = 0;
    char *text = pipeline(to, stream, coding, lossy, argc - at - 1, argv + at, argv[argc - 1], &length);
    struct loaded l = {0};
    struct br_error error = {0};
    int status = 1;
    br_log_init(&l.log, stderr, BR_LOG_NOTE);
    if (text == NULL) {
        fputs("beamring convert: not enough memory\n", stderr);
    } else if (br_config_parse(&l.config, "convert", text, length, 0, NULL, &error) != BR_OK ||
               br_graph_build(&l.graph, l.config, &l.log, &error) != BR_OK ||
               br_config_errors(l.config) > 0) {
        if (l.config != NULL && br_config_errors(l.config) > 0)
            br_config_print_errors(l.config, stderr);
        else
            fprintf(stderr, "beamring convert: %s\n", error.text);
        status = 2;
    } else {
        status = br_pipeline_run(l.graph, &(struct br_run_options){.out = stdout});
    }
    unload_pipeline(&l);
    free(text);
    return status;
}
