/* info.h - what the parts of `beamring info` share. Each prints what a file holds and returns 0, or 1 after a
 * message on stderr. */
#ifndef BEAMRING_TOOLS_BEAMRING_INFO_H
#define BEAMRING_TOOLS_BEAMRING_INFO_H

#include <stdint.h>

/* "  name         text" */
void info_line(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Unix nanoseconds as UTC and MJD. */
void info_time(const char *name, int64_t ns);

int info_chime(const char *path);
int info_guppi(const char *path);
int info_kotekan(const char *path);
int info_packets(const char *path);

#endif
