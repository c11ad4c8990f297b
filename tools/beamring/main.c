/* main.c - the program: finds the subcommand. */
#include "tools/beamring/commands.h"

#include <string.h>

static const struct {
    const char *name, *arguments, *help;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"run", "FILE [--set KEY=VALUE]... [--stats FILE] [--quiet] [--progress]", "runs a pipeline", cmd_run},
    {"check", "FILE [--set KEY=VALUE]...", "checks it: shapes, memory and data rates; starts nothing",
     cmd_check},
    {"graph", "FILE [--dot] [--set KEY=VALUE]...", "draws it, as text or for Graphviz", cmd_graph},
    {"stages", "[NAME] [--markdown]", "lists the stages, or describes one", cmd_stages},
    {"info", "FILE...", "says what recordings and filterbank files hold", cmd_info},
    {"receive",
     "frb-node|chime-l0 ADDRESS [--directory DIR] [--idle S] [--seconds S] [--until-closed] [--hold S] "
     "[--window N]\n"
     "      frb-node: [--senders N] [--handshake S]\n"
     "      chime-l0: --beams N --channels N --epoch-ns N [--first-beam N] [--first-channel N] [--nupfreq N] "
     "[--steps N] [--counts N]\n"
     "                [--interface ADDRESS]",
     "receives FRB beams, records and counts them", cmd_receive},
    {"convert", "--to FORMAT [--stream YAML] [--lossy] IN... DIRECTORY/PREFIX",
     "writes recordings in another format", cmd_convert},
    {"bench", "[--only PART[,PART]...] [--cpu|--gpu] [--missing N] [--strict]",
     "measures kernels, queues, files and networks beside what they can be compared with", cmd_bench},
};

static void usage(FILE *out)
{
    fprintf(out, "beamring %s - from the electric field of a radio telescope to beams\n\n", BR_VERSION);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        fprintf(out, "  beamring %s %s\n      %s\n", commands[i].name, commands[i].arguments,
                commands[i].help);
    fputs("\nexit status: 0 done, 1 runtime failure, 2 bad configuration, 130 interrupted after a clean "
          "drain\n",
          out);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        usage(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        usage(stdout);
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        puts(BR_VERSION);
        return 0;
    }
    const char *names[sizeof commands / sizeof *commands + 1] = {NULL};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(argv[1], commands[i].name) == 0) {
            if (argc < 3 || (strcmp(argv[2], "--help") != 0 && strcmp(argv[2], "-h") != 0))
                return commands[i].run(argc - 1, argv + 1);
            printf("beamring %s %s\n    %s\n", commands[i].name, commands[i].arguments, commands[i].help);
            return 0;
        }
        names[i] = commands[i].name;
    }
    const char *near = br_suggest(argv[1], names);
    fprintf(stderr, "beamring: there is no command '%s'%s%s%s; `beamring help` lists them\n", argv[1],
            near != NULL ? "; did you mean '" : "", near != NULL ? near : "", near != NULL ? "'?" : "");
    return 2;
}
