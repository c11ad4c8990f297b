/* available.h - how much memory this process can still touch. Not for stages. */
#ifndef BEAMRING_BUFFERS_AVAILABLE_H
#define BEAMRING_BUFFERS_AVAILABLE_H

#include <stddef.h>

/* Bytes of memory that this process can still use: the machine's available memory, or less if a control group
 * (cgroup v1 or v2) of the process allows less. SIZE_MAX if the system does not tell. A process that touches
 * more does not get an error: the kernel kills some program instead. `root` is put before the paths of /proc
 * and /sys (normally ""). `who` [size] receives the beginning of a message that names the limit: "the machine
 * has" or "the control group /x allows". */
size_t br_memory_available(const char *root, char *who, size_t size);

#endif
