/* plot.h - pictures that a Python script beside the program draws. */
#ifndef BEAMRING_TOOLS_BEAMRING_PLOT_H
#define BEAMRING_TOOLS_BEAMRING_PLOT_H

/* Runs `script` (installed, or of tools/plots) with the arguments `data` and `picture`. Returns 0, or 1
 * after a message of the subcommand `command`: the script, Python or its modules `needs` are not there. */
int plot(const char *command, const char *script, const char *needs, const char *data, const char *picture);

#endif
