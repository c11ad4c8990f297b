/* beside.h - libraries that belong to this program and that only some runs need. */
#ifndef BEAMRING_RUNTIME_BASE_BESIDE_H
#define BEAMRING_RUNTIME_BASE_BESIDE_H

/* Opens the library `name` of the tree that holds this code: an installation, wherever it was moved to, or a
 * build, where it is in `room`. `flags` are those of dlopen. Returns the handle; NULL with *reason, dlopen's
 * message, which is NULL where there is no such file. */
void *br_open_beside(const char *room, const char *name, int flags, const char **reason);

#endif
