/* chime_reader.h - the parts of the format `chime`. */
#ifndef BEAMRING_FORMATS_CHIME_CHIME_READER_H
#define BEAMRING_FORMATS_CHIME_CHIME_READER_H

#include "formats/format.h"

int chime_info(struct caller *caller, const char *path);

#endif
