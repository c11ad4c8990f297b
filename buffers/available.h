/* available.h - how much memory this process can still use. Not for stages. */
#ifndef BEAMRING_BUFFERS_AVAILABLE_H
#define BEAMRING_BUFFERS_AVAILABLE_H

#include <stddef.h>

/* Bytes of memory that this process can still use: the machine's available memory and free swap, or less if a
 * control group (cgroup v1 or v2) of the process allows less. SIZE_MAX if /proc does not say. A process that
 * uses more does not get an error: the kernel kills some program instead. `root` is put before the paths of
 * /proc and /sys ("" but in tests). `who` [size] receives the beginning of a message that names the limit:
 * "the machine has" or "the control group /x allows". */
size_t br_memory_available(const char *root, char *who, size_t size);

#endif
