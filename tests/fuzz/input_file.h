/* input_file.h - a fuzz target's input as a file with a name: in the current directory (run.sh gives each
 * target an empty one), written anew for each input. One without a name in a directory will not do: HDF5
 * refuses it, since it has no real path. */
#ifndef BEAMRING_TESTS_FUZZ_INPUT_FILE_H
#define BEAMRING_TESTS_FUZZ_INPUT_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char input_path[] = "fuzz-input-XXXXXX";
static int input_fd = -1;

static void remove_input(void)
{
    unlink(input_path);
}

/* Makes the file hold just these bytes. */
static bool write_input(const uint8_t *data, size_t size)
{
    if (input_fd < 0) {
        input_fd = mkstemp(input_path);
        if (input_fd < 0) {
            perror(input_path);
            exit(1);
        }
        atexit(remove_input);
    }
    return ftruncate(input_fd, 0) == 0 && pwrite(input_fd, data, size, 0) == (ssize_t)size;
}

#endif
