/* plain.h - streams for what files say of themselves: control characters of terminals become '?'. */
#ifndef BEAMRING_TOOLS_BEAMRING_PLAIN_H
#define BEAMRING_TOOLS_BEAMRING_PLAIN_H

#include <stdio.h>

/* A stream that writes to `to`, which stays open when it is closed. NULL: no memory. */
FILE *plain_open(FILE *to);

#endif
