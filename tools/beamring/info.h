/* info.h - what the parts of `beamring info` share. */
#ifndef BEAMRING_TOOLS_BEAMRING_INFO_H
#define BEAMRING_TOOLS_BEAMRING_INFO_H

#include <stddef.h>

/* "  name         text" */
void info_line(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Zeroed memory of a struct br_arena; never NULL. */
void *info_alloc(void *arena, size_t bytes);

/* What a packet description means. 0, or 1 after a message on stderr. */
int info_packets(const char *path);

/* UVH5 and tables of stages (gains, weights, beams, bad inputs, drifts). -1: the file is none of these.
 */
int info_tables(const char *path);

#endif
