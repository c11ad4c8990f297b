/* convert.c - `beamring convert`: recordings in one format into another, by a pipeline of `replay` and
 * `record`. */
#include "runtime/run/pipeline.h"
#include "tools/beamring/arguments.h"
#include "tools/beamring/commands.h"
#include "tools/beamring/option_words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: beamring convert --to FORMAT [--stream YAML] [--coding CODING] [--lossy] [--overwrite] IN... "
    "DIRECTORY/PREFIX\n"
    "Writes the recording in the files IN as DIRECTORY/PREFIX_NNNNNNN.*; FORMAT is dada, kotekan, guppi, "
    "chime or vdif.\n"
    "--stream supplies facts that the files lack: --stream 'sample_ns: 2560, epoch_ns: 0'. If FORMAT cannot\n"
    "express a fact, convert names it and writes nothing, unless --lossy is given. --coding is for kotekan:\n"
    "int4p4chime (the default) or int4p4. --overwrite replaces an earlier recording of that name.\n";

/* The options of the command line. */
struct conversion {
    const char *to, *stream, *coding, *target;
    bool lossy, overwrite;
    int nin;
    char **in;
};

/* The first `length` characters of `text` as a YAML string. */
static void put_quoted(FILE *out, const char *text, size_t length)
{
    fputc('"', out);
    for (const char *end = text + length; text < end; text++) {
        if ((unsigned char)*text < ' ') {
            fprintf(out, "\\x%02x", (unsigned char)*text);
            continue;
        }
        if (*text == '"' || *text == '\\') fputc('\\', out);
        if (strncmp(text, "${", 2) == 0) fputc('$', out); /* no variable */
        fputc(*text, out);
    }
    fputc('"', out);
}

/* The pipeline as YAML, to be freed; NULL without memory. */
static char *pipeline(const struct conversion *c, size_t *length)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, length);
    if (out == NULL) return NULL;
    fprintf(out, "device: cpu\n");
    if (c->stream != NULL) fprintf(out, "stream: {%s}\n", c->stream);
    fprintf(out, "pipeline:\n  - stage: replay\n    out: field\n    files: [");
    for (int i = 0; i < c->nin; i++) {
        if (i > 0) fputs(", ", out);
        put_quoted(out, c->in[i], strlen(c->in[i]));
    }
    fprintf(out, "]\n  - stage: record\n    in: field\n    format: %s\n", c->to);
    if (c->lossy) fprintf(out, "    lossy: true\n");
    if (c->overwrite) fprintf(out, "    overwrite: true\n");
    const char *slash = strrchr(c->target, '/'), *prefix = slash != NULL ? slash + 1 : c->target;
    fprintf(out, "    directory: ");
    if (slash == NULL)
        put_quoted(out, ".", 1);
    else
        put_quoted(out, c->target, slash == c->target ? 1 : (size_t)(slash - c->target));
    fprintf(out, "\n    prefix: ");
    put_quoted(out, prefix, strlen(prefix));
    if (c->coding != NULL) {
        fprintf(out, "\n    coding: ");
        put_quoted(out, c->coding, strlen(c->coding));
    }
    fputc('\n', out);
    return fclose(out) == 0 ? text : NULL;
}

/* False where the command line is wrong. */
static bool parse(struct conversion *c, int argc, char **argv)
{
    int at = 1;
    for (; at < argc && argv[at][0] == '-'; at++) {
        if (strcmp(argv[at], "--lossy") == 0)
            c->lossy = true;
        else if (strcmp(argv[at], "--overwrite") == 0)
            c->overwrite = true;
        else if (strcmp(argv[at], "--to") == 0 && at + 1 < argc)
            c->to = argv[++at];
        else if (strcmp(argv[at], "--stream") == 0 && at + 1 < argc)
            c->stream = argv[++at];
        else if (strcmp(argv[at], "--coding") == 0 && at + 1 < argc)
            c->coding = argv[++at];
        else if (argv[at][1] == '\0' || at + 1 == argc)
            break;
        else
            return unknown_option("convert", argv[at]) == 0;
    }
    if (c->to == NULL || argc - at < 2 || argv[at][0] == '-') {
        fputs(usage, stderr);
        return false;
    }
    if (strcmp(c->to, "dada") != 0 && strcmp(c->to, "kotekan") != 0 && strcmp(c->to, "guppi") != 0 &&
        strcmp(c->to, "chime") != 0 && strcmp(c->to, "vdif") != 0) {
        fprintf(stderr, "beamring convert: --to %s; expected dada, kotekan, guppi, chime or vdif\n", c->to);
        return false;
    }
    c->nin = argc - at - 1;
    c->in = argv + at;
    c->target = argv[argc - 1];
    return true;
}

int cmd_convert(int argc, char **argv)
{
    struct conversion conversion = {0};
    if (!parse(&conversion, argc, argv)) return 2;
    size_t length = 0;
    char *text = pipeline(&conversion, &length);
    struct loaded l;
    struct br_error error = {0};
    FILE *out = option_words_open(stderr); /* messages speak of our options, not of a pipeline file */
    if (out == NULL || text == NULL) {
        fputs("beamring convert: not enough memory\n", stderr);
        free(text);
        return 1;
    }
    int status = 2;
    if (load_text(&l, "convert", text, out, BR_LOG_NOTE, &error) == BR_OK)
        status = br_pipeline_run(l.graph, &(struct br_run_options){.out = stdout});
    unload_pipeline(&l);
    fclose(out);
    free(text);
    return status;
}
