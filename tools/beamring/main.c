/* main.c - the program: finds the subcommand. */
#include "tools/beamring/command_table.h"
#include "tools/beamring/commands.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static bool asks_for_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

/* The output of a command is its product, which a full disk must not lose in silence. A pipeline's products
 * are its files. */
static int finish(const struct command *command, int status)
{
    bool lost = fflush(stdout) != 0 || ferror(stdout) != 0;
    if (!lost || command->run == cmd_run || command->run == cmd_serve) return status;
    fprintf(stderr, "beamring %s: not all of it could be written to the standard output\n", command->name);
    return status != 0 ? status : 1;
}

/* Whoever starts the program may have closed them; then a recording must not become what messages go to. */
static void open_standard_streams(void)
{
    int fd;
    do fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO) close(fd);
}

int main(int argc, char **argv)
{
    open_standard_streams();
    const char *names[32] = {NULL};
    if (argc < 2) {
        help_all(stderr);
        return 2;
    }
    if (asks_for_help(argv[1])) {
        help_all(stdout);
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        puts(BR_VERSION);
        return 0;
    }
    for (size_t i = 0; commands[i].name != NULL; i++) {
        if (strcmp(argv[1], commands[i].name) == 0) {
            if (argc < 3 || !asks_for_help(argv[2]))
                return finish(&commands[i], commands[i].run(argc - 1, argv + 1));
            help_command(&commands[i], stdout);
            return finish(&commands[i], 0);
        }
        if (i + 1 < sizeof names / sizeof *names) names[i] = commands[i].name;
    }
    const char *near = br_suggest(argv[1], names);
    fprintf(stderr, "beamring: there is no command '%s'%s%s%s; `beamring help` lists them\n", argv[1],
            near != NULL ? "; did you mean '" : "", near != NULL ? near : "", near != NULL ? "'?" : "");
    return 2;
}
