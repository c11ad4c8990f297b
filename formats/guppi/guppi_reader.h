/* guppi_reader.h - the parts of the format `guppi`. */
#ifndef BEAMRING_FORMATS_GUPPI_GUPPI_READER_H
#define BEAMRING_FORMATS_GUPPI_GUPPI_READER_H

#include "formats/format.h"

int guppi_info(struct caller *caller, const char *path);

#endif
