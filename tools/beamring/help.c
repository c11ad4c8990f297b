/* help.c - `beamring help`: the usage, the manual page and the shell's completion, all from the table of
 * commands. */
#include "runtime/control/metrics.h"
#include "tools/beamring/command_table.h"
#include "tools/beamring/commands.h"

#include <string.h>

#define TITLE "from the electric field of a radio telescope to beams"

static const struct {
    int status;
    const char *meaning;
} statuses[] = {{0, "done"},
                {1, "a stage failed or hung, the run was aborted, or its balance does not add up"},
                {2, "the configuration or the command line is wrong; nothing was started"},
                {130, "interrupted, drained cleanly"}};

static const struct {
    const char *name, *meaning;
} variables[] = {
    {"BEAMRING_PLUGIN_PATH", "directories with stage plugins, separated by colons; searched first"},
    {"CUDA_VISIBLE_DEVICES", "the GPUs that may be used, as for every CUDA program"}};

/* "--set KEY=VALUE" into text. */
static const char *spelled(const struct option *o, char *text, size_t size)
{
    snprintf(text, size, "%s%s%s", o->name, o->value != NULL ? " " : "", o->value != NULL ? o->value : "");
    return text;
}

void help_all(FILE *out)
{
    fprintf(out, "beamring %s - " TITLE "\n\nusage: beamring COMMAND [OPTION]... [ARGUMENT]...\n",
            BR_VERSION);
    for (const struct command *c = commands; c->name != NULL; c++) {
        char call[64];
        if (c == commands || strcmp(c->group, c[-1].group) != 0) fprintf(out, "\n%s\n", c->group);
        snprintf(call, sizeof call, "%s %s", c->name, c->arguments);
        fprintf(out, "  %-34s %s\n", call, c->help);
    }
    fputs("\n`beamring help COMMAND` lists its options. Exit status:", out);
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        fprintf(out, "\n  %3d  %s", statuses[i].status, statuses[i].meaning);
    fputc('\n', out);
}

void help_command(const struct command *c, FILE *out)
{
    char text[96];
    fprintf(out, "usage: beamring %s%s%s%s\n%s.\n", c->name, c->options != NULL ? " [OPTION]..." : "",
            *c->arguments != '\0' ? " " : "", c->arguments, c->help);
    for (const struct option *o = c->options; o != NULL && o->name != NULL; o++) {
        const char *before = o == c->options ? NULL : o[-1].only;
        if (o == c->options) fputc('\n', out);
        if (o->only != NULL && (before == NULL || strcmp(before, o->only) != 0))
            fprintf(out, "%s\n", o->only);
        fprintf(out, "  %-40s %s\n", spelled(o, text, sizeof text), o->help);
    }
}

/* --- the manual page --- */

/* Text in which troff sees neither commands nor escapes. */
static void put_roff(FILE *out, const char *text)
{
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '\\')
            fputs("\\e", out);
        else if (*c == '-')
            fputs("\\-", out);
        else if ((*c == '.' || *c == '\'') && c == text)
            fprintf(out, "\\&%c", *c);
        else if (*c == '\'')
            fputs("\\(aq", out);
        else if (*c == '`')
            fputs("\\(ga", out);
        else
            fputc(*c, out);
    }
}

/* A paragraph with a tag: in bold what is typed, in italics what it stands for, then what it means. */
static void put_item(FILE *out, const char *bold, const char *italic, const char *text)
{
    fputs(".TP\n\\fB", out);
    put_roff(out, bold);
    fputs("\\fR", out);
    if (italic != NULL && *italic != '\0') {
        fputs(" \\fI", out);
        put_roff(out, italic);
        fputs("\\fR", out);
    }
    fputc('\n', out);
    put_roff(out, text);
    fputs(".\n", out);
}

static void put_options(FILE *out, const struct option *options)
{
    if (options == NULL) return;
    fputs(".RS\n", out);
    for (const struct option *o = options; o->name != NULL; o++) {
        char text[256];
        snprintf(text, sizeof text, "%s%s%s", o->only != NULL ? o->only : "", o->only != NULL ? ": " : "",
                 o->help);
        put_item(out, o->name, o->value, text);
    }
    fputs(".RE\n", out);
}

void help_man(FILE *out)
{
    fprintf(out,
            ".TH BEAMRING 1 \"\" \"beamring %s\" \"User Commands\"\n.SH NAME\nbeamring \\- " TITLE "\n"
            ".SH SYNOPSIS\n.B beamring\n.I COMMAND\n[\\fIOPTION\\fR]... [\\fIARGUMENT\\fR]...\n"
            ".SH DESCRIPTION\n"
            "beamring runs pipelines of stages that a YAML file describes: from recordings or the network of "
            "a radio\n"
            "telescope to coherent beams, intensity beams and the packets and files that carry them, on "
            "NVIDIA GPUs and\n"
            "CPUs. The first Ctrl\\-C ends the sources and drains the pipeline, the second aborts it.\n"
            ".SH COMMANDS\n",
            BR_VERSION);
    for (const struct command *c = commands; c->name != NULL; c++) {
        if (c == commands || strcmp(c->group, c[-1].group) != 0) fprintf(out, ".SS %s\n", c->group);
        put_item(out, c->name, c->arguments, c->help);
        put_options(out, c->options);
    }
    fputs(".SH EXIT STATUS\n", out);
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        char number[8];
        snprintf(number, sizeof number, "%d", statuses[i].status);
        put_item(out, number, NULL, statuses[i].meaning);
    }
    fputs(".SH ENVIRONMENT\n", out);
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        put_item(out, variables[i].name, NULL, variables[i].meaning);
    fputs(".SH SEE ALSO\nThe user guide, the stage reference and the plugin guide in the documentation of "
          "beamring.\n",
          out);
}

/* --- completion for bash --- */

/* Names of options, or their choices ("a|b|c" as "a b c"), as words. */
static void put_words(FILE *out, const struct option *options)
{
    for (const struct option *o = options; o != NULL && o->name != NULL; o++)
        fprintf(out, "%s%s", o != options ? " " : "", o->name);
}

static void put_choices(FILE *out, const char *choices)
{
    for (; *choices != '\0'; choices++) fputc(*choices == '|' ? ' ' : *choices, out);
}

/* The completions of an option's value. */
static void put_value_cases(FILE *out)
{
    fputs("    case \"$command $before\" in\n", out);
    for (const struct command *c = commands; c->name != NULL; c++)
        for (const struct option *o = c->options; o != NULL && o->name != NULL; o++) {
            if (o->value == NULL) continue;
            fprintf(out, "    '%s %s') ", c->name, o->name);
            if (strcmp(o->value, "FILE") == 0) {
                fputs("COMPREPLY=($(compgen -f -- \"$word\")); ", out);
            } else if (strcmp(o->value, "DIR") == 0) {
                fputs("COMPREPLY=($(compgen -d -- \"$word\")); ", out);
            } else if (strchr(o->value, '|') != NULL) {
                fputs("COMPREPLY=($(compgen -W '", out);
                put_choices(out, o->value);
                fputs("' -- \"$word\")); ", out);
            }
            fputs("return ;;\n", out);
        }
    fputs("    esac\n", out);
}

void help_bash(FILE *out)
{
    static const char *const complete[] = {
        [ARGUMENT_NONE] = ":",
        [ARGUMENT_PIPELINE] =
            "compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -X '!*.y*ml' -- \"$word\") "
            "$(compgen -d -- \"$word\"))",
        [ARGUMENT_FILE] = "compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- \"$word\"))",
        [ARGUMENT_STAGE] =
            "COMPREPLY=($(compgen -W \"$(\"${words[0]}\" stages 2>/dev/null | cut -d' ' -f1)\" -- "
            "\"$word\"))",
        [ARGUMENT_WIRE] = "COMPREPLY=($(compgen -W 'frb-node chime-l0' -- \"$word\"))",
        [ARGUMENT_COMMAND] = "COMPREPLY=($(compgen -W \"$commands\" -- \"$word\"))"};
    fputs("# Completion of beamring for bash; made by `beamring help --bash`.\n_beamring()\n{\n"
          "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} "
          "command=${COMP_WORDS[1]}\n"
          "    local words=(\"${COMP_WORDS[@]}\") commands='",
          out);
    for (const struct command *c = commands; c->name != NULL; c++)
        fprintf(out, "%s%s", c != commands ? " " : "", c->name);
    fputs("'\n    COMPREPLY=()\n    if [ \"$COMP_CWORD\" = 1 ]; then\n"
          "        COMPREPLY=($(compgen -W \"$commands --help --version\" -- \"$word\"))\n        return\n   "
          " fi\n",
          out);
    put_value_cases(out);
    fputs("    case $command in\n", out);
    for (const struct command *c = commands; c->name != NULL; c++) {
        fprintf(out, "    %s)\n        case $word in\n        -*) COMPREPLY=($(compgen -W '", c->name);
        put_words(out, c->options);
        fprintf(out, "' -- \"$word\")) ;;\n        *) %s ;;\n        esac\n        ;;\n",
                complete[c->argument]);
    }
    fputs("    esac\n}\ncomplete -F _beamring beamring\n", out);
}

int cmd_help(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : NULL;
    if (argc > 2) {
        fprintf(stderr, "beamring help: unexpected '%s'; expected at most one command\n", argv[2]);
        return 2;
    }
    if (what == NULL) {
        help_all(stdout);
    } else if (strcmp(what, "--man") == 0) {
        help_man(stdout);
    } else if (strcmp(what, "--bash") == 0) {
        help_bash(stdout);
    } else if (strcmp(what, "--metrics") == 0) {
        metrics_reference(stdout);
    } else {
        const struct command *c = commands;
        while (c->name != NULL && strcmp(c->name, what) != 0) c++;
        if (c->name == NULL) {
            fprintf(stderr, "beamring help: there is no command '%s'; `beamring help` lists them\n", what);
            return 2;
        }
        help_command(c, stdout);
    }
    return 0;
}
