/* available.h - how much memory this process can still touch. Not for stages. */
#ifndef BEAMRING_BUFFERS_AVAILABLE_H
#define BEAMRING_BUFFERS_AVAILABLE_H

#include <stddef.h>

/* Bytes that can still be had: what the machine has left, or less where a control group (cgroup v1 or v2)
 * that the process is in allows less. SIZE_MAX when the system does not say. Touching more than that would
 * not fail: it would get some program killed. `root` stands before the paths of /proc and /sys (normally
 * ""); `who` gets the words for whoever sets the limit: "the machine has" or "the control group /x
 * allows". */
size_t br_memory_available(const char *root, char *who, size_t size);

#endif
