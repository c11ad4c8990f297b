/* command_table.h - the subcommands as data: what `beamring help`, the manual page and the shell's
 * completion are made from. A subcommand reads its own arguments; what it accepts stands here too, and a
 * test compares. */
#ifndef BEAMRING_TOOLS_BEAMRING_COMMAND_TABLE_H
#define BEAMRING_TOOLS_BEAMRING_COMMAND_TABLE_H

#include <stdio.h>

struct option {
    const char *name;  /* "--set"; NULL ends the list */
    const char *value; /* what follows it: "KEY=VALUE", "a|b" for a choice; NULL: nothing */
    const char *help;  /* one line, without a full stop */
    const char *only;  /* of which format, or NULL: of all */
};

/* The kind of a positional argument, for the completion. */
enum argument {
    ARGUMENT_NONE,
    ARGUMENT_PIPELINE,
    ARGUMENT_FILE,
    ARGUMENT_STAGE,
    ARGUMENT_WIRE,
    ARGUMENT_COMMAND
};

struct command {
    const char *group;     /* commands of a group stand one after the other */
    const char *name;      /* NULL ends the table */
    const char *arguments; /* positional ones, as in "FILE..." */
    const char *help;      /* one line, without a full stop */
    enum argument argument;
    const struct option *options; /* may be NULL */
    int (*run)(int argc, char **argv);
};

extern const struct command commands[];

/* The whole usage in groups; one command with its options; the manual page (troff); completion for bash. */
void help_all(FILE *out);
void help_command(const struct command *command, FILE *out);
void help_man(FILE *out);
void help_bash(FILE *out);

#endif
