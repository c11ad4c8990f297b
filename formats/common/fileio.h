/* fileio.h - reads and writes that are interrupted, or come in parts, and folders with those above them. */
#ifndef BEAMRING_FORMATS_COMMON_FILEIO_H
#define BEAMRING_FORMATS_COMMON_FILEIO_H

#include "buffers/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Reads up to `length` bytes at `offset`, fewer only where the file ends. The bytes read, or -1 with
 * errno. */
ssize_t fileio_read(int fd, void *buffer, size_t length, uint64_t offset);

/* Reads exactly `length` bytes at `offset`. Errors: BR_E_IO with the file's name and the byte, also for a
 * file that ends before. */
int fileio_read_all(int fd, const char *path, void *buffer, size_t length, uint64_t offset,
                    struct br_error *error);

/* The unit and the alignment of direct reads, on disk and in memory: no disk has larger blocks. */
enum { FILEIO_BLOCK = 4096 };

/* Opens a file for reading, with `direct` past the system's page cache (O_DIRECT). *direct becomes false
 * where the file system cannot do that: then it is open as without. The descriptor, or -1: BR_E_IO with the
 * file's name. */
int fileio_open(const char *path, bool *direct, struct br_error *error);

/* fileio_read_all from a file that is open directly. Bytes that do not begin and end with blocks, in the file
 * and in memory, goes through `scratch`, `room` bytes (at least two blocks) that begin with a page. */
int fileio_read_direct(int fd, const char *path, void *buffer, size_t length, uint64_t offset, void *scratch,
                       size_t room, struct br_error *error);

/* Writes all bytes at `offset`. 0, or the errno. */
int fileio_write(int fd, const void *buffer, size_t length, uint64_t offset);

/* Keeps `length` bytes of text in a file of a fixed name, next to a product. A file that holds the same is
 * left as it is; one that holds something else is replaced only with `overwrite`. Errors: BR_E_IO; the
 * message names the file, and does not say how to ask for `overwrite`. */
int fileio_keep(const char *path, const char *text, size_t length, bool overwrite, struct br_error *error);

/* Allows this process `count` more open files. False where the system does not. */
bool fileio_allow_files(size_t count);

/* Makes the folder and those above it, as far as they are not there. 0, or -1 with errno. */
int fileio_make_directory(const char *path);

#endif
