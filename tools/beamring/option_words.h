/* option_words.h - messages of a pipeline that a command made itself, in the words of the command's
 * options. */
#ifndef BEAMRING_TOOLS_BEAMRING_OPTION_WORDS_H
#define BEAMRING_TOOLS_BEAMRING_OPTION_WORDS_H

#include <stdio.h>

/* A stream that passes lines on to `to`, which stays open when this one is closed: "convert:5:12: stage
 * 'replay': files: x ..." becomes "beamring convert: x ...", `lossy: true` becomes --lossy, `stream:
 * {npol: 2}` becomes --stream 'npol: 2'. NULL without memory. */
FILE *option_words_open(FILE *to);

#endif
